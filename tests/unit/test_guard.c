/* test_guard.c - the guard of `belay run` in the moment of the start: it executes nothing when the
 * lease is about to end, whatever was looked at before it was forked. */
#include "cli/run/guard.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { KILL_AFTER_MS = 60000, LONG_MS = 30000 };

static char dir[] = "/tmp/belay-guard-XXXXXX", mark[64];
static char touch[] = "touch", absent[] = "/no/such/command";

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(mark, sizeof mark, "%s/ran", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

/* The next message of a guard whose group must be dead `left_ms` from now; its command would make
 * the file. */
static struct guard_message first_word(int64_t left_ms, char *program)
{
    char *const command[] = {program, mark, NULL}, *const env[] = {NULL};
    struct guard_config config = {.command = command,
                                  .env = env,
                                  .kill_after_ms = KILL_AFTER_MS,
                                  .deadline_ms = guard_now_ms() + left_ms,
                                  .socket_fd = -1,
                                  .tty_fd = -1};
    struct guard_message m = {0};
    pid_t guard;
    sigprocmask(SIG_SETMASK, NULL, &config.old_mask);
    config.old_pipe.sa_handler = SIG_DFL;
    int fd = guard_start(&config, &guard);
    assert_true(fd >= 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LONG_MS), 1);
    assert_int_equal(guard_receive(fd, &m, NULL), 1);
    if (m.word == GUARD_STARTED) { /* until the command has ended */
        struct guard_message end;
        assert_int_equal(poll(&p, 1, LONG_MS), 1);
        assert_int_equal(guard_receive(fd, &end, NULL), 1);
        assert_int_equal(end.word, GUARD_EXITED);
    }
    close(fd);
    assert_int_equal(waitpid(guard, NULL, 0), guard);
    return m;
}

static void a_command_starts_while_there_is_time(void **state)
{
    (void)state;
    assert_int_equal(first_word(KILL_AFTER_MS + LONG_MS, touch).word, GUARD_STARTED);
    assert_int_equal(unlink(mark), 0);
}

static void nothing_is_executed_when_it_would_have_to_end_at_once(void **state)
{
    static const int64_t left_ms[] = {KILL_AFTER_MS, 0, -KILL_AFTER_MS};
    (void)state;
    for (size_t i = 0; i < sizeof left_ms / sizeof *left_ms; i++) {
        struct guard_message m = first_word(left_ms[i], touch);
        assert_int_equal(m.word, GUARD_UNSTARTED);
        assert_int_equal(m.value, GUARD_TOO_LATE);
        assert_int_equal(access(mark, F_OK), -1);
    }
}

static void a_command_that_is_not_there_is_told(void **state)
{
    (void)state;
    struct guard_message m = first_word(KILL_AFTER_MS + LONG_MS, absent);
    assert_int_equal(m.word, GUARD_UNSTARTED);
    assert_int_equal(m.value, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_starts_while_there_is_time),
        cmocka_unit_test(nothing_is_executed_when_it_would_have_to_end_at_once),
        cmocka_unit_test(a_command_that_is_not_there_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
