/* supervise.c - while the command runs: keep the lease, tell the guard, forward signals. */
#include "cli/run/guard.h"
#include "cli/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENV_ALWAYS = 5, ENV_MAX = 9, AGAIN_MS = 50 };

static const int forwarded[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM,
                                SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM};

/* ---- the deadline ---------------------------------------------------------------------- */

/* Renewals move what is proven; the guard is told when that changed, and so is who listens when
 * a renewal came so late that one more like it would have been too late. */
static void tell_guard(struct run *r)
{
    int64_t proven = belay_proven_ms(r->c->belay);
    if (proven != INT64_MAX && proven != r->proven_ms) {
        int64_t age = guard_now_ms() - (r->proven_ms - r->ttl_ms); /* of the renewal before */
        if (age > r->ttl_ms / 2)
            run_event(r, "renewed-late", ",\"after_ms\":%" PRId64, age);
        r->proven_ms = proven;
        guard_send(r->guard_fd, GUARD_DEADLINE, proven - run_margin_ms(r));
    }
    /* A new connection often has the number of the old one; but in between there was none, and
     * we were here then: greeting a server takes more than one turn of the loop. */
    int socket_fd = belay_socket(r->c->belay);
    if (socket_fd < 0)
        r->sent_socket = -1;
    else if (socket_fd != r->sent_socket && guard_send_socket(r->guard_fd, socket_fd))
        r->sent_socket = socket_fd;
}

/* ---- the environment ------------------------------------------------------------------- */

/* "BELAY_FENCE=3 7": for several locks in the order of their names. */
static char *env_list(const struct run *r, const char *key, bool fences)
{
    struct buf out = {0};
    buf_printf(&out, "%s=", key);
    for (size_t i = 0; i < r->n_locks; i++) {
        if (fences)
            buf_printf(&out, "%s%" PRIu64, i ? " " : "", r->locks[i].fence);
        else
            buf_printf(&out, "%s%s", i ? " " : "", r->locks[i].name);
    }
    char *text = out.oom ? NULL : strdup(buf_cstr(&out));
    buf_done(&out);
    return text;
}

static char *env_text(const char *key, const char *value)
{
    struct buf out = {0};
    buf_printf(&out, "%s=%s", key, value);
    char *text = out.oom ? NULL : strdup(buf_cstr(&out));
    buf_done(&out);
    return text;
}

/* So that what the command asks of the same servers is believed in the same way. */
static bool fill_tls(const struct cli *c, char **env)
{
    static const char *const rows[][2] = {{"tls-ca", "BELAY_TLS_CA"},
                                          {"tls-cert", "BELAY_TLS_CERT"},
                                          {"tls-key", "BELAY_TLS_KEY"}};
    for (size_t i = 0, n = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!cli_given(c, rows[i][0]))
            continue;
        env[n] = env_text(rows[i][1], cli_text(c, rows[i][0], NULL));
        if (!env[n++])
            return false;
    }
    return true;
}

static bool fill_env(const struct run *r, char **env)
{
    const char *addrs = cli_text(r->c, "addr", NULL), *in_env = getenv("BELAY_ADDR");
    if (!addrs)
        addrs = in_env && in_env[0] ? in_env : BELAY_ADDR_DEFAULT;
    env[0] = env_list(r, "BELAY_LOCK", false);
    env[1] = env_list(r, "BELAY_FENCE", true);
    env[2] = env_text("BELAY_OWNER", r->owner);
    env[3] = env_text("BELAY_SESSION", belay_session_id(r->c->belay));
    env[4] = env_text("BELAY_ADDR", addrs);
    for (size_t i = 0; i < ENV_ALWAYS; i++)
        if (!env[i])
            return false;
    return fill_tls(r->c, env + ENV_ALWAYS);
}

/* ---- starting -------------------------------------------------------------------------- */

/* The terminal, if our group is the one that it listens to: then the command's shall be. Where
 * standard input comes from does not matter. */
static int open_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && tcgetpgrp(fd) == getpgrp())
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void lose(struct run *r)
{
    if (r->lost)
        return;
    r->lost = true;
    r->lost_why = BELAY_E_DEADLINE;
    snprintf(r->lost_words, sizeof r->lost_words, "it was not renewed in time");
    run_event(r, "lost", ",\"why\":\"not renewed in time\"%s", "");
}

/* What came between the grant and now may have taken long. */
static bool is_proven(struct run *r)
{
    int ignored = belay_dispatch(r->c->belay); /* it renews, or says that we have lost */
    (void)ignored;
    if (guard_now_ms() >= belay_proven_ms(r->c->belay) - run_margin_ms(r) - r->kill_after_ms)
        lose(r);
    return !r->lost;
}

static int start(struct run *r, int tty_fd, const sigset_t *old_mask)
{
    char *env[ENV_MAX] = {NULL};
    int exit_code = 0;
    r->group = 0;
    r->proven_ms = belay_proven_ms(r->c->belay);
    r->sent_socket = belay_socket(r->c->belay);
    struct guard_config config = {
        .command = r->c->tail,
        .env = env,
        .kill_after_ms = r->kill_after_ms,
        .deadline_ms = r->proven_ms - run_margin_ms(r),
        .on_lost = r->on_lost,
        .socket_fd = r->sent_socket,
        .tty_fd = tty_fd,
        .old_pipe = r->old_pipe,
        .old_mask = *old_mask,
    };
    r->guard_fd = fill_env(r, env) ? guard_start(&config, &r->guard) : -1;
    if (r->guard_fd < 0)
        exit_code = cli_error(RUN_FAILED, "cannot start a process: %s", strerror(errno));
    for (size_t i = 0; i < ENV_MAX; i++)
        free(env[i]);
    r->started_ms = guard_now_ms();
    return exit_code;
}

/* ---- running --------------------------------------------------------------------------- */

struct supervision {
    struct run *r;
    bool exited, guard_gone, lost_told, signalled;
    bool was_lost;      /* when the command ended */
    int status;         /* as waitpid() has it */
    int unstarted;      /* errno of a failed exec, or GUARD_TOO_LATE */
    int64_t dead_by_ms; /* by then the guard has ended the group; else we do */
};

static int shell_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void on_guard(struct supervision *w)
{
    struct guard_message m;
    int got;
    while ((got = guard_receive(w->r->guard_fd, &m, NULL)) == 1) {
        if (m.word == GUARD_STARTED) {
            w->r->group = (pid_t)m.value;
            run_event(w->r, "started", ",\"pid\":%" PRId64, m.value);
        } else if (m.word == GUARD_EXITED) {
            w->exited = true;
            w->was_lost = w->r->lost;
            w->status = (int)m.value;
            run_event(w->r, "exited", ",\"status\":%d,\"ran_ms\":%" PRId64,
                      shell_status(w->status), guard_now_ms() - w->r->started_ms);
        } else if (m.word == GUARD_UNSTARTED) {
            w->unstarted = (int)m.value;
        } else if (m.word == GUARD_OVERDUE) {
            lose(w->r); /* we were stopped, or too slow: the guard did not wait for us */
        }
    }
    w->guard_gone = got < 0;
}

static void on_signal(struct supervision *w, int signal_fd)
{
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        w->signalled = w->signalled || info.ssi_signo != SIGWINCH;
        if (w->exited || !guard_send(w->r->guard_fd, GUARD_SIGNAL, (int64_t)info.ssi_signo))
            continue;
        if (info.ssi_signo != SIGWINCH)
            kill(w->r->guard, SIGCONT); /* a stopped guard could not pass it on */
    }
}

/* The guard is stopped, or too slow: its part is ours. It is woken up, to see what is left and
 * to tell us. */
static void end_group(struct supervision *w)
{
    const struct run *r = w->r;
    on_guard(w);
    if (w->exited || w->unstarted || w->guard_gone)
        return;
    lose(w->r);
    if (r->group > 0)
        kill(-r->group, SIGKILL);
    kill(r->guard, r->group > 0 ? SIGCONT : SIGKILL); /* with it goes what it has started */
    w->dead_by_ms = guard_now_ms() + AGAIN_MS;
}

static void tell_lost(struct supervision *w)
{
    int64_t by = guard_now_ms() + w->r->kill_after_ms;
    w->lost_told = true;
    w->dead_by_ms = by < w->dead_by_ms ? by : w->dead_by_ms;
    guard_send(w->r->guard_fd, GUARD_LOST, 0);
}

static int until(int64_t at_ms)
{
    int64_t left = at_ms - guard_now_ms();
    return left <= 0 ? 0 : left < INT_MAX ? (int)left : INT_MAX;
}

/* Until the command's group is dead; then, for --at-least, until that time or a signal. */
static void loop(struct supervision *w, int signal_fd)
{
    struct run *r = w->r;
    int belay_fd_ = belay_fd(r->c->belay);
    for (;;) {
        int64_t stay_ms = r->started_ms + r->at_least_ms;
        bool over = w->exited || w->unstarted || w->guard_gone;
        if (over && (until(stay_ms) == 0 || w->signalled || r->lost || !w->exited))
            return;
        struct pollfd p[] = {{.fd = belay_fd_, .events = POLLIN},
                             {.fd = w->exited ? -1 : r->guard_fd, .events = POLLIN},
                             {.fd = signal_fd, .events = POLLIN}};
        if (poll(p, 3, until(over ? stay_ms : w->dead_by_ms)) < 0 && errno != EINTR)
            return;
        if (!over && until(w->dead_by_ms) == 0)
            end_group(w);
        if (p[2].revents)
            on_signal(w, signal_fd);
        if (p[1].revents)
            on_guard(w);
        if (p[0].revents) {
            int ignored =
                belay_dispatch(r->c->belay); /* it goes on by itself, or we are lost */
            (void)ignored;
        }
        if (!w->exited)
            tell_guard(r);
        if (r->lost && !w->lost_told)
            tell_lost(w);
        else if (!r->lost)
            w->dead_by_ms = r->proven_ms - run_margin_ms(r);
    }
}

static int exit_status(const struct supervision *w)
{
    if (w->was_lost) {
        const char *when = w->unstarted ? "before the command could start" : "while it ran";
        cli_error(RUN_LOST, "the lock was lost %s (%s)", when, w->r->lost_words);
        return RUN_LOST;
    }
    return shell_status(w->status);
}

static void watch_group(struct supervision *w, const sigset_t *set)
{
    int signal_fd = signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    loop(w, signal_fd);
    if (signal_fd >= 0)
        close(signal_fd);
    close(w->r->guard_fd); /* a guard that still lives ends the group now */
    w->r->guard_fd = -1;
    if (!w->exited && w->r->group > 0)
        kill(-w->r->group, SIGKILL); /* somebody killed the guard: its part is ours */
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

/* What became of it: 0 and *ret_status, or an exit status of our own. */
static int judge(struct supervision *w, int *ret_status)
{
    struct run *r = w->r;
    if (w->unstarted == GUARD_TOO_LATE)
        lose(r);
    else if (w->unstarted)
        return cli_error(w->unstarted == ENOENT ? 127 : 126, "%s: %s", r->c->tail[0],
                         strerror(w->unstarted));
    if (!w->exited && r->lost)
        w->was_lost = true;
    else if (!w->exited)
        return cli_error(RUN_FAILED, "the guard process was killed");
    *ret_status = exit_status(w);
    return 0;
}

int run_watch(struct run *r, int *ret_status)
{
    struct supervision w = {.r = r, .dead_by_ms = INT64_MAX};
    if (!is_proven(r)) {
        w.unstarted = GUARD_TOO_LATE;
        return judge(&w, ret_status);
    }
    sigset_t set, old;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &old); /* first: none may end us when the command lives */
    int tty_fd = open_terminal();
    int exit_code = start(r, tty_fd, &old);
    if (!exit_code)
        watch_group(&w, &set);
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (tty_fd >= 0) {
        guard_take_terminal(tty_fd);
        close(tty_fd);
    }
    return exit_code ? exit_code : judge(&w, ret_status);
}
