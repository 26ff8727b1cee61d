/* What a program may hand to libbelay, and what it gets back when that is nonsense: durations
 * beyond all bounds, values of no enum, NULLs; and what its own variables hold after a failure.
 */
#include "belay.h"
#include "belay_txn.h"
#include "client/client.h"
#include "fake_server.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fake_server server;
static struct belay *b;

static const char granted_13[] = "*4\r\n$7\r\ngranted\r\n:13\r\n:30000\r\n$2\r\nhi\r\n";
static const char txn_ok[] = "*7\r\n$2\r\nok\r\n$0\r\n\r\n$0\r\n\r\n:5\r\n:1\r\n:1\r\n*0\r\n";

#define RULES(...) ((const struct fake_rule[]){__VA_ARGS__, {0}})
#define SAYS(words, text)                                                                      \
    {                                                                                          \
        .verb = (words), .reply = (text)                                                       \
    }

static void open_handle(int64_t timeout_ms, int64_t connect_ms)
{
    struct belay_options o = {
        .addrs = server.addr, .timeout_ms = timeout_ms, .connect_ms = connect_ms};
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
}

static int start(void **state)
{
    (void)state;
    fake_start(&server);
    open_handle(2000, 2000);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    belay_close(b);
    fake_stop(&server);
    return 0;
}

/* ---- durations ------------------------------------------------------------------------- */

static void note_call(struct belay *unused, int err, const struct belay_reply *r, void *arg)
{
    (void)unused;
    (void)r;
    assert_int_equal(err, BELAY_E_OK);
    ++*(int *)arg;
}

/* INT64_MAX is a long time, not one that ended before it began. */
static void the_longest_duration_is_waited_for(void **state)
{
    struct belay_acquire want = {.name = "n", .owner = "o", .wait_ms = INT64_MAX};
    struct belay_grant g;
    struct belay_txn_result r;
    struct belay_txn txn = {.session = "s", .wait_ms = INT64_MAX};
    int calls = 0;
    (void)state;
    belay_close(b);
    open_handle(INT64_MAX, INT64_MAX);
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_13), SAYS("CONVERT", granted_13),
                            SAYS("TXN", txn_ok), SAYS("SESSION OPEN", "$2\r\ns1\r\n")));
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(belay_convert(b, "n", 13, BELAY_SHARED, INT64_MAX, &g), BELAY_E_OK);
    assert_int_equal(belay_txn(b, &txn, &r), BELAY_E_OK);
    assert_int_equal(belay_txn_json(b, "{}", INT64_MAX, &r), BELAY_E_OK);
    assert_int_equal(belay_send(b, &(struct belay_bytes){"PING", 4}, 1, note_call, &calls),
                     BELAY_E_OK);
    while (!calls)
        assert_int_equal(belay_poll(b, INT64_MAX), BELAY_E_OK);
}

static void the_longest_lease_is_proven_for_ever(void **state)
{
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = INT64_MAX, .keep = true};
    struct belay_grant g;
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_13), SAYS("SESSION OPEN", "$2\r\ns1\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(belay_session_open(b, INT64_MAX, INT64_MAX, NULL), BELAY_E_OK);
    assert_int_equal(belay_proven_ms(b), INT64_MAX);
    assert_true(belay_fd(b) >= 0);
    assert_int_equal(belay_session_keepalive(b), BELAY_E_OK);
    assert_int_equal(belay_dispatch(b), BELAY_E_OK);
    assert_string_equal(belay_session_id(b), "s1");
}

/* A call that was in flight looks for another connection: for as long as that takes. */
static void the_longest_time_out_outlives_a_connection(void **state)
{
    struct fake_server other;
    struct belay_options o = {.timeout_ms = INT64_MAX};
    char list[80];
    (void)state;
    fake_start(&other);
    snprintf(list, sizeof list, "%s,%s", other.addr, server.addr);
    o.addrs = list;
    belay_close(b);
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
    fake_set(&other, RULES({.verb = "SHOW", .cut = true}));
    assert_int_equal(belay_show(b, "n", NULL), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "SHOW n"), 1);
    fake_stop(&other);
}

/* ---- values ---------------------------------------------------------------------------- */

#define ACQUIRE(...)                                                                           \
    (struct belay_acquire)                                                                     \
    {                                                                                          \
        .name = "n", .owner = "o", __VA_ARGS__                                                 \
    }

/* None of them is taken for the default, and none reaches the server. */
static void a_value_outside_its_bounds_is_refused(void **state)
{
    const struct belay_acquire wants[] = {
        ACQUIRE(.mode = (enum belay_mode)2),
        ACQUIRE(.mode = (enum belay_mode) - 1),
        ACQUIRE(.mode = (enum belay_mode)9, .of = 2),
        ACQUIRE(.policy = (enum belay_policy)3),
        ACQUIRE(.policy = (enum belay_policy) - 1),
        ACQUIRE(.policy = (enum belay_policy)1000000),
        ACQUIRE(.permits = 2),
        ACQUIRE(.wait_ms = -2),
    };
    const struct belay_txn txns[] = {
        {.session = "s", .wait_ms = -1},         {.session = "s", .min_trust = -0.1},
        {.session = "s", .min_trust = 1.001},    {.session = "s", .min_trust = NAN},
        {.session = "s", .min_trust = INFINITY},
    };
    struct belay_grant g;
    struct belay_txn_result r;
    (void)state;
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++)
        assert_int_equal(belay_acquire(b, &wants[i], &g), BELAY_E_USAGE);
    for (size_t i = 0; i < sizeof txns / sizeof txns[0]; i++)
        assert_int_equal(belay_txn(b, &txns[i], &r), BELAY_E_USAGE);
    assert_int_equal(belay_convert(b, "n", 13, (enum belay_mode)2, 0, &g), BELAY_E_USAGE);
    assert_int_equal(belay_convert(b, "n", 13, BELAY_SHARED, -2, &g), BELAY_E_USAGE);
    assert_int_equal(belay_renew(b, "n", 13, NULL, -1, NULL), BELAY_E_USAGE);
    assert_int_equal(fake_count(&server, ""), 0);
}

static void the_values_at_the_bounds_are_taken(void **state)
{
    struct belay_grant g;
    struct belay_txn_result r;
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_13), SAYS("TXN", txn_ok)));
    assert_int_equal(belay_acquire(b, &ACQUIRE(.permits = 2, .of = 3), &g), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "ACQUIRE n o PERMITS 2 OF 3 REQUEST"), 1);
    assert_int_equal(belay_acquire(b, &ACQUIRE(.policy = BELAY_TIMED, .quiet_ms = 7), &g),
                     BELAY_E_OK);
    assert_int_equal(fake_count(&server, "ACQUIRE n o POLICY timed 7 REQUEST"), 1);
    assert_int_equal(belay_txn(b, &(struct belay_txn){.session = "s", .min_trust = 1}, &r),
                     BELAY_E_OK);
    assert_int_equal(fake_count(&server, "TXN {\"session\":\"s\",\"min_trust\":1000000e-6,"),
                     1);
    assert_int_equal(belay_txn(b, &(struct belay_txn){.session = "s"}, &r), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "TXN {\"session\":\"s\",\"statements\":[]}"), 1);
}

static void what_is_missing_is_told(void **state)
{
    const struct belay_acquire want = {.name = "n", .owner = "o"};
    const struct belay_txn txn = {.session = "s"};
    struct belay_grant g;
    struct belay_txn_result r;
    bool yes;
    (void)state;
    assert_int_equal(belay_open(NULL, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_acquire(b, NULL, &g), BELAY_E_USAGE);
    assert_int_equal(belay_acquire(b, &want, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_acquire_send(b, NULL, NULL, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_convert(b, NULL, 13, BELAY_SHARED, 0, &g), BELAY_E_USAGE);
    assert_int_equal(belay_convert(b, "n", 13, BELAY_SHARED, 0, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_check(b, "n", 13, NULL, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_check(b, NULL, 13, NULL, &yes), BELAY_E_USAGE);
    assert_int_equal(belay_body(b, "n", 13, NULL, 5), BELAY_E_USAGE);
    assert_int_equal(belay_callv(b, NULL, 3, 0, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_txn(b, NULL, &r), BELAY_E_USAGE);
    assert_int_equal(belay_txn(b, &txn, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_txn_json(b, NULL, 0, &r), BELAY_E_USAGE);
    assert_int_equal(belay_txn_json(b, "{}", 0, NULL), BELAY_E_USAGE);
    assert_int_equal(fake_count(&server, ""), 0);
}

static void what_may_be_left_out_is_not_missed(void **state)
{
    (void)state;
    fake_set(&server, RULES(SAYS("RELEASE", ":1\r\n"), SAYS("RENEW", ":9\r\n"),
                            SAYS("BREAK", ":1\r\n"), SAYS("BODY", ":9\r\n")));
    assert_int_equal(belay_release(b, "n", 13, NULL, NULL), BELAY_E_OK);
    assert_int_equal(belay_renew(b, "n", 13, NULL, 0, NULL), BELAY_E_OK);
    assert_int_equal(belay_break(b, "n", NULL), BELAY_E_OK);
    assert_int_equal(belay_body(b, "n", 13, NULL, 0), BELAY_E_OK);
    assert_int_equal(belay_show(b, "n", NULL), BELAY_E_OK);
    assert_int_equal(belay_list(b, NULL, NULL, 0, NULL), BELAY_E_OK);
}

/* ---- what is left behind by a failure -------------------------------------------------- */

static const struct belay_grant old_grant = {.status = BELAY_GRANTED, .fence = 7};

static void no_grant_is_left(const struct belay_grant *g)
{
    assert_int_equal(g->status, BELAY_REFUSED);
    assert_int_equal(g->fence, 0);
    assert_string_equal(g->reason, "");
    assert_string_equal(g->body, "");
    assert_null(g->reply);
}

/* Told by the server, not understood, or never sent: the grant of the call before is gone. */
static void a_failure_leaves_no_grant(void **state)
{
    static const char *const replies[] = {"-LIMIT full\r\n", "*1\r\n$7\r\ngranted\r\n",
                                          "*1\r\n$3\r\nwhy\r\n"};
    struct belay_acquire want = {.name = "n", .owner = "o"};
    struct belay_grant g;
    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        fake_set(&server, RULES(SAYS("ACQUIRE", replies[i]), SAYS("CONVERT", replies[i])));
        g = old_grant;
        assert_int_not_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        no_grant_is_left(&g);
        g = old_grant;
        assert_int_not_equal(belay_convert(b, "n", 7, BELAY_SHARED, 0, &g), BELAY_E_OK);
        no_grant_is_left(&g);
    }
    g = old_grant;
    assert_int_equal(belay_acquire(b, NULL, &g), BELAY_E_USAGE);
    no_grant_is_left(&g);
    g = old_grant;
    assert_int_equal(belay_convert(b, "n", 0, BELAY_SHARED, 0, &g), BELAY_E_USAGE);
    no_grant_is_left(&g);
}

struct grant_note {
    int calls;
    struct belay_grant nested; /* of a blocking call, which is not allowed there */
};

static void note_failed_grant(struct belay *h, int err, const struct belay_grant *g, void *arg)
{
    struct grant_note *n = arg;
    n->calls++;
    assert_int_equal(err, BELAY_E_STALE);
    no_grant_is_left(g);
    assert_int_equal(
        belay_acquire(h, &(struct belay_acquire){.name = "n", .owner = "o"}, &n->nested),
        BELAY_E_USAGE);
}

/* A grant out of the line that turned out to be over: the callback sees none. */
static void a_callback_sees_no_grant_that_failed(void **state)
{
    static const char pushed[] =
        "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"
        ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:500\r\n$2\r\nhi\r\n";
    struct belay_acquire want = {
        .name = "n", .owner = "o", .ttl_ms = 500, .wait_ms = 1000, .keep = true};
    struct grant_note note = {.nested = old_grant};
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", pushed), SAYS("RENEW", "-STALE gone\r\n")));
    assert_int_equal(belay_acquire_send(b, &want, note_failed_grant, &note), BELAY_E_OK);
    while (!note.calls)
        assert_int_equal(belay_poll(b, 2000), BELAY_E_OK);
    no_grant_is_left(&note.nested);
}

static void a_failure_leaves_no_reply(void **state)
{
    const struct belay_reply *const old = &(const struct belay_reply){.kind = BELAY_INT};
    const struct belay_reply *r = old;
    (void)state;
    fake_set(&server,
             RULES(SAYS("SHOW", "-NONAMESPACE gone\r\n"), SAYS("LIST", "-NONAMESPACE gone\r\n"),
                   SAYS("NAMESPACE", "-DENIED you\r\n")));
    assert_int_equal(belay_show(b, "n", &r), BELAY_E_NO_NAMESPACE);
    assert_null(r);
    r = old;
    assert_int_equal(belay_show(b, "", &r), BELAY_E_USAGE);
    assert_null(r);
    r = old;
    assert_int_equal(belay_list(b, NULL, NULL, 0, &r), BELAY_E_NO_NAMESPACE);
    assert_null(r);
    r = old;
    assert_int_equal(belay_namespace_list(b, NULL, &r), BELAY_E_DENIED);
    assert_null(r);
    r = old;
    assert_int_equal(belay_call(b, &r, NULL), BELAY_E_USAGE);
    assert_null(r);
}

static void a_failure_leaves_no_number(void **state)
{
    int64_t left = 5, count = 5;
    bool held = true, current = true;
    (void)state;
    fake_set(&server, RULES(SAYS("R", "-STALE gone\r\n"), SAYS("CHECK", "-DENIED you\r\n"),
                            SAYS("BREAK", "-DENIED you\r\n")));
    assert_int_equal(belay_release(b, "n", 13, NULL, &held), BELAY_E_STALE);
    assert_false(held);
    assert_int_equal(belay_renew(b, "n", 13, NULL, 0, &left), BELAY_E_STALE);
    assert_int_equal(left, 0);
    assert_int_equal(belay_check(b, "n", 13, NULL, &current), BELAY_E_DENIED);
    assert_false(current);
    assert_int_equal(belay_break(b, "n", &count), BELAY_E_DENIED);
    assert_int_equal(count, 0);
}

static void a_failure_leaves_no_transaction(void **state)
{
    static const char *const replies[] = {
        "-DENIED you\r\n", "*0\r\n",
        "*7\r\n$3\r\nwhy\r\n$0\r\n\r\n$0\r\n\r\n:5\r\n:1\r\n:1\r\n*0\r\n"};
    const struct belay_txn txn = {.session = "s"}, wrong = {.session = "s", .wait_ms = -1};
    struct belay_txn_result r;
    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        r = (struct belay_txn_result){.status = BELAY_TXN_OK};
        fake_set(&server, RULES(SAYS("TXN", replies[i])));
        assert_int_not_equal(belay_txn(b, &txn, &r), BELAY_E_OK);
        assert_int_equal(r.status, BELAY_TXN_ERROR);
        assert_null(belay_txn_value(&r, "x"));
    }
    r = (struct belay_txn_result){.status = BELAY_TXN_OK};
    assert_int_equal(belay_txn(b, &wrong, &r), BELAY_E_USAGE);
    assert_int_equal(r.status, BELAY_TXN_ERROR);
    assert_string_equal(r.failed, "");
    r = (struct belay_txn_result){.status = BELAY_TXN_OK};
    assert_int_equal(belay_txn_json(b, NULL, 0, &r), BELAY_E_USAGE);
    assert_int_equal(r.status, BELAY_TXN_ERROR);
    assert_string_equal(r.cause, "");
}

/* ---- addresses ------------------------------------------------------------------------- */

static void addresses_are_read_or_refused(void **state)
{
    static const struct {
        const char *list;
        int want;
        const char *first; /* or what the reason contains */
    } rows[] = {
        {"127.0.0.1:7117", BELAY_E_OK, "127.0.0.1:7117"},
        {"localhost", BELAY_E_OK, "localhost:7117"},
        {"[::1]:80", BELAY_E_OK, "[::1]:80"},
        {"[::1]", BELAY_E_OK, "[::1]:7117"},
        {"a:1,b:2,c", BELAY_E_OK, "a:1"},
        {"tls://a", BELAY_E_OK, "tls://a:7117"},
        {"tls://[::1]:80,b", BELAY_E_OK, "tls://[::1]:80"},
        {"unix:///run/belay.sock,a", BELAY_E_OK, "unix:///run/belay.sock"},
        {"tls://", BELAY_E_USAGE, "empty"},
        {"tls://tls://a", BELAY_E_USAGE, "port"},
        {"tls://:1", BELAY_E_USAGE, "host"},
        {"unix://", BELAY_E_USAGE, "begins with a '/'"},
        {"unix://run/belay.sock", BELAY_E_USAGE, "begins with a '/'"},
        {"unix:///0123456789012345678901234567890123456789012345678901234567890123456789"
         "01234567890123456789012345678901234567",
         BELAY_E_USAGE, "longer than"},
        {"", BELAY_E_USAGE, "empty"},
        {"a,,b", BELAY_E_USAGE, "empty"},
        {"a:0", BELAY_E_USAGE, "port"},
        {"a:65536", BELAY_E_USAGE, "port"},
        {"a:12x", BELAY_E_USAGE, "port"},
        {"a:", BELAY_E_USAGE, "port"},
        {":7117", BELAY_E_USAGE, "host"},
        {"::1", BELAY_E_USAGE, "brackets"},
        {"[::1", BELAY_E_USAGE, "without its"},
        {"[::1]x", BELAY_E_USAGE, "only a ':'"},
        {"http://a", BELAY_E_USAGE, "port"},
        {"a b", BELAY_E_USAGE, "character"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct addr addrs[BELAY_ADDRS_MAX];
        char why[256] = "";
        size_t n = 0;
        int got = addrs_parse(rows[i].list, addrs, BELAY_ADDRS_MAX, &n, why, sizeof why);
        assert_int_equal(got, rows[i].want);
        if (got == BELAY_E_OK)
            assert_string_equal(addrs[0].text, rows[i].first);
        else
            assert_non_null(strstr(why, rows[i].first));
    }
}

static void too_many_addresses_are_refused(void **state)
{
    struct belay *none = NULL;
    struct belay_options o = {.addrs = "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a"};
    (void)state;
    assert_int_equal(belay_open(&o, &none), BELAY_E_USAGE);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_or_refused),
        cmocka_unit_test(too_many_addresses_are_refused),
        cmocka_unit_test_setup_teardown(the_longest_duration_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(the_longest_lease_is_proven_for_ever, start, stop),
        cmocka_unit_test_setup_teardown(the_longest_time_out_outlives_a_connection, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_value_outside_its_bounds_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(the_values_at_the_bounds_are_taken, start, stop),
        cmocka_unit_test_setup_teardown(what_is_missing_is_told, start, stop),
        cmocka_unit_test_setup_teardown(what_may_be_left_out_is_not_missed, start, stop),
        cmocka_unit_test_setup_teardown(a_failure_leaves_no_grant, start, stop),
        cmocka_unit_test_setup_teardown(a_callback_sees_no_grant_that_failed, start, stop),
        cmocka_unit_test_setup_teardown(a_failure_leaves_no_reply, start, stop),
        cmocka_unit_test_setup_teardown(a_failure_leaves_no_number, start, stop),
        cmocka_unit_test_setup_teardown(a_failure_leaves_no_transaction, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
