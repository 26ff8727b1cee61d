/* Out of memory in libbelay is an error like any other. Every allocation of a long conversation
 * fails once, in its turn; nothing may crash, leak or hang, and the code must be BELAY_E_MEMORY
 * (or what follows from it on the wire). The linker wraps malloc and friends: see the Makefile.
 */
#include "belay.h"
#include "fake_server.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static atomic_long countdown = -1; /* < 0: never */
static __thread bool armed;        /* only the thread under test fails */

static bool fails(void)
{
    return armed && atomic_fetch_sub(&countdown, 1) == 0;
}

#include "failing_alloc.h" /* behind fails() */

static void ignore_reply(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    (void)b;
    (void)r;
    *(int *)arg = err;
}

static void ignore_grant(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    (void)b;
    (void)g;
    *(int *)arg = err;
}

static void ignore_event(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    (void)b;
    (void)err;
    (void)event;
    (void)arg;
}

/* Everything that allocates. Returns the worst code; stops at the first failure, as a user
 * does. */
static int converse(const char *addr)
{
    struct belay *b = NULL;
    struct belay_grant g;
    const struct belay_reply *r = NULL;
    int late = BELAY_E_OK;
    bool yes = false;
    struct belay_options o = {.addrs = addr, .ns = "n", .token = "t", .timeout_ms = 1000};
    struct belay_acquire want = {
        .name = "n", .owner = "o", .wait_ms = 500, .ttl_ms = 1000, .keep = true};
    int err = belay_open(&o, &b);
    if (!err)
        err = belay_session_open(b, 5000, 0, "test");
    if (!err)
        err = belay_acquire(b, &want, &g);
    if (!err)
        err = belay_show(b, "n", &r);
    if (!err)
        err = belay_watch(b, "p", 3, ignore_event, NULL);
    if (!err)
        err = belay_check(b, "n", 8, NULL, &yes);
    if (!err)
        err = belay_send(b, &(struct belay_bytes){"N", 1}, 1, ignore_reply, &late);
    if (!err)
        err = belay_acquire_send(b, &want, ignore_grant, &late);
    if (!err)
        err = belay_call(b, NULL, "PING", NULL);
    if (!err)
        err = late;
    if (!err)
        err = belay_release(b, "n", 8, NULL, &yes);
    if (!err)
        err = belay_session_close(b);
    belay_close(b);
    return err;
}

static const struct fake_rule rules[] = {
    {.verb = "SESSION OPEN", .reply = "$2\r\ns1\r\n"},
    {.verb = "ACQUIRE",
     .reply = "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"
              ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:500\r\n$2\r\nhi\r\n"},
    {.verb = "RENEW", .reply = ":1000\r\n"},
    {.verb = "SHOW",
     .reply = "%2\r\n$4\r\nname\r\n$1\r\nn\r\n$7\r\nholders\r\n*1\r\n$1\r\nx\r\n"},
    {.verb = "CHECK", .reply = ":1\r\n"},
    {.verb = "RELEASE", .reply = ":1\r\n"},
    {.verb = "N", .reply = ":5\r\n"},
    {0},
};

static void every_allocation_may_fail(void **state)
{
    struct fake_server server;
    long n = 0;
    int err;
    (void)state;
    fake_start(&server);
    fake_set(&server, rules);
    assert_int_equal(converse(server.addr), BELAY_E_OK);
    do {
        atomic_store(&countdown, n);
        armed = true;
        err = converse(server.addr);
        armed = false;
        bool reached = atomic_load(&countdown) < 0;
        if (!reached)
            assert_int_equal(err, BELAY_E_OK);
        else if (err != BELAY_E_OK && err != BELAY_E_MEMORY && err != BELAY_E_CONNECT)
            fail_msg("allocation %ld: code %d", n, err);
        fake_set(&server, rules);
        n++;
        if (!reached)
            break;
    } while (n < 10000);
    print_message("# %ld allocations failed in their turn\n", n - 1);
    assert_true(n > 30); /* else the wrapping does not bite */
    fake_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
