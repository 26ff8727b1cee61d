/* libbelay while something waits, and around the end of a lease: it must never believe in a lock
 * that somebody else may have, nor forget one that is its own. */
#include "belay.h"
#include "belay_txn.h"
#include "client/client.h"
#include "fake_server.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fake_server server, other;

static int start(void **state)
{
    (void)state;
    fake_start(&server);
    fake_start(&other);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    fake_stop(&server);
    fake_stop(&other);
    return 0;
}

#define RULES(...) ((const struct fake_rule[]){__VA_ARGS__, {0}})
#define SAYS(words, text)                                                                      \
    {                                                                                          \
        .verb = (words), .reply = (text)                                                       \
    }
#define SAYS_AFTER(ms, words, text)                                                            \
    {                                                                                          \
        .verb = (words), .reply = (text), .after_ms = (ms)                                     \
    }
#define SESSION_S1 SAYS("SESSION OPEN", "$2\r\ns1\r\n"), SAYS("SESSION ATTACH", "+OK\r\n")

static const char granted_5[] = "*4\r\n$7\r\ngranted\r\n:5\r\n:600\r\n$0\r\n\r\n";
static const char queued_7[] = "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n";
static const char push_8[] =
    ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:600\r\n$2\r\nhi\r\n";
static const char txn_ok[] = "*7\r\n$2\r\nok\r\n$0\r\n\r\n$0\r\n\r\n:1\r\n:1\r\n:1\r\n*0\r\n";

static struct belay *open_handle(const char *addrs)
{
    struct belay *b = NULL;
    struct belay_options o = {.addrs = addrs, .timeout_ms = 20000, .connect_ms = 10000};
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
    return b;
}

static struct belay *open_both(void)
{
    char list[80];
    snprintf(list, sizeof list, "%s,%s", server.addr, other.addr);
    return open_handle(list);
}

enum { LONG_MS = 30000 }; /* for what comes at once, but on a busy machine */

/* What a handle told. */
struct told {
    int grants, err, losts, session_losts, why, news, gaps;
    uint64_t fence;
};

static void on_grant(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    struct told *t = arg;
    (void)b;
    t->grants++;
    t->err = err;
    t->fence = g->status == BELAY_GRANTED ? g->fence : 0;
}

static void on_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct told *t = arg;
    (void)b;
    t->why = lost->why;
    t->losts += lost->name != NULL;
    t->session_losts += lost->name == NULL;
}

static void on_news(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    struct told *t = arg;
    (void)b;
    (void)event;
    t->news += err == BELAY_E_OK;
    t->gaps += err == BELAY_E_GONE;
}

/* Until *what is not 0, or the time is over. */
static bool until(struct belay *b, const int *what, int64_t ms)
{
    int64_t end = client_now_ms() + ms;
    while (!*what && client_now_ms() < end) {
        int ignored = belay_poll(b, 20);
        (void)ignored;
    }
    return *what != 0;
}

static void for_ms(struct belay *b, int64_t ms)
{
    int never = 0;
    assert_false(until(b, &never, ms));
}

static void nap(int64_t ms) /* as if the process were stopped: nothing is dispatched */
{
    poll(NULL, 0, (int)ms);
}

/* ---- order ----------------------------------------------------------------------------- */

/* Behind a request that waits, the grant comes before the "queued" that is held back. */
static void a_push_before_its_queued_is_not_forgotten(void **state)
{
    struct told t = {0};
    struct belay_bytes slow = {"SLOW", 4};
    struct belay_acquire want = {.name = "n", .owner = "o", .wait_ms = 5000};
    struct belay *b = open_handle(server.addr);
    (void)state;
    fake_set(&server, RULES(SAYS("SLOW", ""), SAYS("ACQUIRE", "")));
    assert_int_equal(belay_send(b, &slow, 1, NULL, NULL), BELAY_E_OK);
    assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
    while (fake_count(&server, "ACQUIRE") == 0)
        for_ms(b, 10);
    fake_send(&server, ">6\r\n$7\r\ngranted\r\n$1\r\nx\r\n:9\r\n:6\r\n:1\r\n$0\r\n\r\n");
    fake_send(&server, push_8);
    for_ms(b, 50);
    assert_int_equal(t.grants, 0);
    fake_send(&server, "+OK\r\n");
    fake_send(&server, queued_7);
    assert_true(until(b, &t.grants, LONG_MS));
    assert_int_equal(t.err, BELAY_E_OK);
    assert_int_equal(t.fence, 8);
    assert_null(b->early);
    belay_close(b);
}

/* ---- a transaction that waits ---------------------------------------------------------- */

static void a_waiting_transaction_does_not_end_its_session(void **state)
{
    struct told t = {0};
    struct belay_txn_result r;
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 2000, .keep = true};
    struct belay_txn txn = {.wait_ms = 20000};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server,
             RULES(SESSION_S1, SAYS("SESSION KEEPALIVE", ":1\r\n"), SAYS("RENEW", ":2000\r\n"),
                   SAYS("ACQUIRE", granted_5), SAYS_AFTER(5000, "TXN", txn_ok)));
    assert_int_equal(belay_session_open(b, 2000, 0, NULL), BELAY_E_OK);
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(belay_txn(b, &txn, &r), BELAY_E_OK);
    assert_int_equal(r.status, BELAY_TXN_OK);
    assert_int_equal(t.losts + t.session_losts, 0);
    assert_string_equal(belay_session_id(b), "s1");
    assert_true(belay_held(b, "n", 5));
    assert_true(fake_count(&server, "SESSION KEEPALIVE") >= 4);
    assert_true(fake_count(&server, "RENEW n 5") >= 4);
    assert_int_equal(fake_count(&server, "TXN"), 1); /* and it kept its connection */
    for (int64_t end = client_now_ms() + LONG_MS; b->pulse && client_now_ms() < end;)
        for_ms(b, 10);
    assert_null(b->pulse); /* the second one is gone with the need for it */
    belay_close(b);
}

static void a_server_that_vanishes_under_a_transaction_is_left(void **state)
{
    struct told t = {0};
    struct belay_txn_result r;
    struct belay_txn txn = {.wait_ms = 20000};
    struct belay *b = open_both();
    char here[FAKE_WORD * 4], there[FAKE_WORD * 4];
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SESSION_S1, SAYS_AFTER(60000, "TXN", ""),
                            SAYS_AFTER(60000, "SESSION KEEPALIVE", "")));
    fake_set(&other,
             RULES(SESSION_S1, SAYS("SESSION KEEPALIVE", ":1\r\n"), SAYS("TXN", txn_ok)));
    assert_int_equal(belay_session_open(b, 4000, 0, NULL), BELAY_E_OK);
    assert_int_equal(belay_txn(b, &txn, &r), BELAY_E_OK);
    assert_int_equal(r.status, BELAY_TXN_OK);
    assert_int_equal(t.session_losts, 0);
    assert_string_equal(fake_seen(&server, "TXN", here), fake_seen(&other, "TXN", there));
    belay_close(b);
}

/* ---- silence --------------------------------------------------------------------------- */

static void who_waits_or_watches_leaves_a_silent_server(void **state)
{
    struct told w = {0}, t = {0};
    struct belay_acquire want = {.name = "n", .owner = "o", .wait_ms = 60000};
    struct belay *waiter = open_both(), *watcher = open_both();
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", queued_7), SAYS("PING", "")));
    fake_set(&other, RULES(SAYS("ACQUIRE", granted_5)));
    assert_int_equal(belay_acquire_send(waiter, &want, on_grant, &t), BELAY_E_OK);
    fake_set(&server, RULES(SAYS("ACQUIRE", queued_7)));
    assert_int_equal(belay_watch(watcher, NULL, 0, on_news, &w), BELAY_E_OK);
    fake_set(&server, RULES(SAYS("ACQUIRE", queued_7), SAYS("PING", "")));
    int64_t end = client_now_ms() + LONG_MS;
    while ((!t.grants || !w.gaps) && client_now_ms() < end) {
        int ignored = belay_poll(waiter, 20) + belay_poll(watcher, 20);
        (void)ignored;
    }
    assert_int_equal(t.grants, 1);
    assert_int_equal(t.err, BELAY_E_OK);
    assert_int_equal(t.fence, 5);
    assert_int_equal(w.gaps, 1);
    assert_string_equal(belay_addr(watcher), other.addr);
    char here[FAKE_WORD * 4], there[FAKE_WORD * 4];
    assert_string_equal(fake_seen(&server, "ACQUIRE n o WAIT 60000 NOBLOCK REQUEST", here),
                        fake_seen(&other, "ACQUIRE", there));
    belay_close(waiter);
    belay_close(watcher);
}

static void a_holder_leaves_a_silent_server_in_time(void **state)
{
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 4000, .keep = true};
    struct belay *b = open_both();
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SESSION_S1, SAYS("ACQUIRE", granted_5),
                            SAYS("SESSION KEEPALIVE", ""), SAYS("RENEW", "")));
    fake_set(&other, RULES(SESSION_S1, SAYS("SESSION KEEPALIVE", ":1\r\n"),
                           SAYS("RENEW", ":4000\r\n")));
    assert_int_equal(belay_session_open(b, 4000, 0, NULL), BELAY_E_OK);
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    for_ms(b, 5000);
    assert_int_equal(t.losts + t.session_losts, 0);
    assert_true(belay_held(b, "n", 5));
    assert_string_equal(belay_addr(b), other.addr);
    belay_close(b);
}

/* Nobody else can have it: so it is not left for nothing. */
static void the_only_server_is_waited_for(void **state)
{
    struct told t = {0};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SESSION_S1, SAYS_AFTER(1500, "SESSION KEEPALIVE", ":1\r\n")));
    assert_int_equal(belay_session_open(b, 5000, 0, NULL), BELAY_E_OK);
    for_ms(b, 6000);
    assert_int_equal(t.session_losts, 0);
    assert_int_equal(atomic_load(&server.connections), 1);
    belay_close(b);
}

/* ---- callbacks ------------------------------------------------------------------------- */

struct releasing {
    struct told told;
    int usage;
};

static void releases(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct releasing *r = arg;
    on_lost(b, lost, &r->told);
    if (!lost->name)
        return;
    r->usage += belay_release(b, "n", 5, NULL, NULL) == BELAY_E_USAGE;
    r->usage += belay_release(b, "m", 5, NULL, NULL) == BELAY_E_USAGE;
    r->usage += belay_renew(b, "m", 5, NULL, 1, NULL) == BELAY_E_USAGE;
    r->usage += belay_session_close(b) == BELAY_E_USAGE;
}

static void a_release_inside_a_lost_callback_drops_nothing(void **state)
{
    struct releasing r = {{0}, 0};
    struct belay_grant g;
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, releases, &r);
    for (int in_one_step = 0; in_one_step < 2; in_one_step++) {
        r = (struct releasing){{0}, 0};
        fake_set(&server, RULES(SESSION_S1, SAYS("ACQUIRE", granted_5),
                                SAYS("SESSION CLOSE", ":1\r\n"), SAYS("RENEW", ":600\r\n")));
        assert_int_equal(belay_session_open(b, 60000, 0, NULL), BELAY_E_OK);
        struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 60000, .keep = true};
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        want.name = "m";
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        if (in_one_step) {
            fake_send(&server, ">6\r\n$13\r\nsession-ended\r\n$2\r\ns1\r\n:0\r\n:0\r\n:0\r\n"
                               "$3\r\nttl\r\n");
        } else {
            fake_send(&server, ">6\r\n$6\r\nbroken\r\n$1\r\nn\r\n:5\r\n:0\r\n:0\r\n$0\r\n\r\n");
            assert_true(until(b, &r.told.losts, LONG_MS));
            nap(5);
            assert_true(belay_held(b, "m", 5));
            assert_int_equal(r.told.losts, 1);
            fake_send(&server, ">6\r\n$6\r\nbroken\r\n$1\r\nm\r\n:5\r\n:0\r\n:0\r\n$0\r\n\r\n");
        }
        for (int64_t end = client_now_ms() + LONG_MS;
             r.told.losts < 2 && client_now_ms() < end;)
            for_ms(b, 10);
        assert_int_equal(r.told.losts, 2);
        assert_int_equal(r.usage, 8);
        assert_int_equal(belay_session_close(b), BELAY_E_OK);
    }
    belay_close(b);
}

/* ---- conversions ----------------------------------------------------------------------- */

/* The renewal of the old fence crosses the grant of the new one. */
static void a_converted_lock_is_not_lost(void **state)
{
    static const char crossing[] =
        ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:2000\r\n$2\r\nhi\r\n-STALE not held\r\n";
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {
        .name = "n", .owner = "o", .ttl_ms = 2000, .mode = BELAY_SHARED, .keep = true};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("CONVERT", queued_7),
                            SAYS("RENEW n 5", crossing), SAYS("RENEW n 8", ":2000\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(belay_convert(b, "n", 5, BELAY_EXCLUSIVE, 20000, &g), BELAY_E_OK);
    assert_int_equal(g.fence, 8);
    for_ms(b, 2000);
    assert_int_equal(t.losts, 0);
    assert_true(belay_held(b, "n", 8));
    assert_false(belay_held(b, "n", 5));
    belay_close(b);
}

/* ---- whose grant is it? ---------------------------------------------------------------- */

static void a_grant_of_a_session_that_is_over_is_given_back(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct told t = {0};
        struct belay_acquire want = {
            .name = "n", .owner = "o", .wait_ms = 20000, .keep = keep != 0};
        struct belay *b = open_handle(server.addr);
        belay_on_lost(b, 0, on_lost, &t);
        fake_set(&server, RULES(SESSION_S1, SAYS("ACQUIRE", queued_7),
                                SAYS_AFTER(60000, "SESSION KEEPALIVE", "")));
        assert_int_equal(belay_session_open(b, 500, 0, NULL), BELAY_E_OK);
        assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
        assert_true(until(b, &t.session_losts, LONG_MS));
        /* asked again on the next connection, it is granted where it was asked for: in s1 */
        fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("RENEW", ":30000\r\n")));
        assert_true(until(b, &t.grants, LONG_MS));
        assert_int_equal(t.err, BELAY_E_LOST);
        assert_false(belay_held(b, "n", 0));
        for (int64_t end = client_now_ms() + LONG_MS;
             !fake_count(&server, "RELEASE n 5") && client_now_ms() < end;)
            for_ms(b, 10);
        assert_int_equal(fake_count(&server, "RELEASE n 5"), 1);
        belay_close(b);
    }
}

static void a_late_grant_is_handed_over_only_when_it_lasts(void **state)
{
    static const struct {
        const char *renew;
        int err;
    } rows[] = {{":1500\r\n", BELAY_E_OK}, {"-STALE over\r\n", BELAY_E_STALE}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct told t = {0};
        struct belay_acquire want = {
            .name = "n", .owner = "o", .wait_ms = 20000, .ttl_ms = 1500};
        struct belay *b = open_handle(server.addr);
        fake_set(&server, RULES(SAYS("ACQUIRE", queued_7), SAYS("RENEW n 8", rows[i].renew)));
        assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
        while (fake_count(&server, "ACQUIRE") == 0)
            for_ms(b, 10);
        fake_send(&server, push_8);
        nap(1600); /* the lease is over when it is read */
        assert_true(until(b, &t.grants, LONG_MS));
        assert_int_equal(t.err, rows[i].err);
        assert_int_equal(belay_held(b, "n", 8), rows[i].err == BELAY_E_OK);
        belay_close(b);
    }
}

/* ---- belay_held() ---------------------------------------------------------------------- */

static void held_is_right_after_a_stop(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct belay_grant g;
        struct belay_acquire want = {
            .name = "n", .owner = "o", .ttl_ms = 1500, .keep = keep != 0};
        struct belay *b = open_handle(server.addr);
        fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("RELEASE", ":1\r\n")));
        assert_false(belay_held(b, "n", 0));
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        assert_true(belay_held(b, "n", 5));
        assert_true(belay_held(b, "n", 0));
        assert_false(belay_held(b, "n", 6));
        assert_false(belay_held(b, "m", 5));
        nap(1600);
        assert_false(belay_held(b, "n", 5));
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        assert_true(belay_held(b, "n", 5));
        assert_int_equal(belay_release(b, "n", 5, NULL, NULL), BELAY_E_OK);
        assert_false(belay_held(b, "n", 5));
        belay_close(b);
    }
    assert_false(belay_held(NULL, "n", 5));
}

static void a_lock_without_end_is_held_as_long_as_its_session(void **state)
{
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = BELAY_FOREVER};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SESSION_S1, SAYS("ACQUIRE", granted_5)));
    assert_int_equal(belay_session_open(b, 1500, 0, NULL), BELAY_E_OK);
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_true(belay_held(b, "n", 5));
    nap(1600);
    assert_false(belay_held(b, "n", 5));
    want.session = "somebody's"; /* the handle does not keep that one */
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_false(belay_held(b, "n", 5));
    belay_close(b);
}

/* What the server answers counts: a renewal without a TTL is one for the last TTL given. */
static void a_renewal_by_hand_counts(void **state)
{
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 60000};
    struct belay *b = open_handle(server.addr);
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("RENEW", ":100\r\n"),
                            SAYS("CONVERT", granted_5)));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(belay_renew(b, "n", 5, NULL, 100, NULL), BELAY_E_OK); /* shorter */
    nap(150);
    assert_false(belay_held(b, "n", 5));
    assert_int_equal(belay_renew(b, "n", 5, NULL, 0, NULL), BELAY_E_OK);
    nap(150);
    assert_false(belay_held(b, "n", 5));
    assert_int_equal(belay_convert(b, "n", 5, BELAY_SHARED, 0, &g), BELAY_E_OK);
    nap(700); /* granted_5 says 600 */
    assert_false(belay_held(b, "n", 5));
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("RENEW", ":3000\r\n")));
    want.ttl_ms = 3000;
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    nap(2000);
    assert_int_equal(belay_renew(b, "n", 5, NULL, 0, NULL), BELAY_E_OK);
    nap(1500);
    assert_true(belay_held(b, "n", 5));
    belay_close(b);
}

static void send_txn(struct belay *b)
{
    struct belay_bytes words[2] = {{"TXN", 3}, {"{}", 2}};
    assert_int_equal(belay_send(b, words, 2, NULL, NULL), BELAY_E_OK);
}

/* The one on the second connection may be carried out behind the one by hand: for its time. */
static void a_renewal_on_its_way_bounds_one_by_hand(void **state)
{
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 2000, .keep = true};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server,
             RULES(SAYS("ACQUIRE", granted_5), SAYS("RENEW n 5 TTL 2000", ""),
                   SAYS("RENEW n 5 TTL 60000", ":60000\r\n"), SAYS_AFTER(1000, "TXN", txn_ok)));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    send_txn(b);
    while (fake_count(&server, "RENEW n 5 TTL 2000") == 0)
        for_ms(b, 10);
    assert_int_equal(belay_renew(b, "n", 5, NULL, 60000, NULL), BELAY_E_OK);
    assert_true(until(b, &t.losts, LONG_MS));
    assert_false(belay_held(b, "n", 5));
    belay_close(b);
}

/* The answer is lost, but the server may have taken it: for the shorter time. */
static void a_lock_that_is_asked_for_again_lasts_as_long_as_it_asks(void **state)
{
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 60000};
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct belay *b = open_handle(server.addr);
        belay_on_lost(b, 0, on_lost, &t);
        want.keep = keep != 0;
        want.ttl_ms = 60000;
        fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("RENEW", ":60000\r\n")));
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        fake_set(&server, RULES(SAYS("ACQUIRE", ""), SAYS("RENEW", "")));
        want.ttl_ms = 100;
        assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
        nap(150);
        assert_false(belay_held(b, "n", 5));
        belay_close(b);
    }
}

/* The request may be carried out behind any renewal: none is for longer. */
static void a_lock_that_is_asked_for_again_is_renewed_for_that_long(void **state)
{
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 60000, .keep = true};
    struct belay *b = open_handle(server.addr);
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_5)));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    fake_set(&server, RULES(SAYS("ACQUIRE", "")));
    want.ttl_ms = 7000;
    assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
    for (int64_t end = client_now_ms() + LONG_MS;
         !fake_count(&server, "RENEW n 5") && client_now_ms() < end;)
        for_ms(b, 10);
    assert_int_equal(fake_count(&server, "RENEW n 5 TTL 7000"), 1);
    belay_close(b);
}

/* ---- which fence is it? ---------------------------------------------------------------- */

static const char granted_6[] = "*4\r\n$7\r\ngranted\r\n:6\r\n:60000\r\n$0\r\n\r\n";

/* Kept or not, before and after: there is one hold, and the fence of before is an old one. */
static void a_lock_that_is_asked_for_again_has_one_fence(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct told t = {0};
        struct belay_grant g;
        struct belay_acquire want = {
            .name = "n", .owner = "o", .ttl_ms = 60000, .keep = i % 2 != 0};
        struct belay *b = open_handle(server.addr);
        belay_on_lost(b, 0, on_lost, &t);
        fake_set(&server, RULES(SAYS("ACQUIRE", granted_5)));
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        fake_set(&server, RULES(SAYS("ACQUIRE", granted_6), SAYS("RELEASE", ":1\r\n")));
        want.keep = i / 2 != 0;
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        assert_true(belay_held(b, "n", 6));
        assert_false(belay_held(b, "n", 5));
        assert_int_equal(belay_release(b, "n", 6, NULL, NULL), BELAY_E_OK);
        assert_false(belay_held(b, "n", 0));
        assert_int_equal(t.losts, 0);
        belay_close(b);
    }
}

/* The server may have given it another fence before something went wrong. */
static void a_lock_whose_fence_is_not_known_is_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct told t = {0};
        struct belay_grant g;
        struct belay_acquire want = {
            .name = "n", .owner = "o", .ttl_ms = 60000, .keep = i % 2 != 0};
        struct belay *b = open_handle(server.addr);
        belay_on_lost(b, 0, on_lost, &t);
        fake_set(&server,
                 RULES(SAYS("ACQUIRE", granted_5), SAYS("CONVERT", "-IO no disk\r\n")));
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        fake_set(&server,
                 RULES(SAYS("ACQUIRE", "-RANGE no\r\n"), SAYS("CONVERT", "-LIMIT no\r\n")));
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_RANGE); /* that is no doubt */
        assert_int_equal(belay_convert(b, "n", 5, BELAY_SHARED, 0, &g), BELAY_E_LIMIT);
        assert_true(belay_held(b, "n", 5));
        fake_set(&server,
                 RULES(SAYS("ACQUIRE", "-IO no disk\r\n"), SAYS("CONVERT", "-IO no disk\r\n")));
        int err =
            i / 2 ? belay_acquire(b, &want, &g) : belay_convert(b, "n", 5, BELAY_SHARED, 0, &g);
        assert_int_equal(err, BELAY_E_SERVER);
        assert_false(belay_held(b, "n", 0));
        for_ms(b, 50);
        assert_int_equal(t.losts, want.keep);
        assert_int_equal(t.why, want.keep ? BELAY_E_SERVER : 0);
        belay_close(b);
    }
}

static void what_the_server_does_not_know_is_not_held(void **state)
{
    static const char broken[] =
        ">6\r\n$6\r\nbroken\r\n$1\r\nn\r\n:5\r\n:0\r\n:0\r\n$0\r\n\r\n+OK\r\n";
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 60000};
    struct belay *b = open_handle(server.addr);
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_5), SAYS("RENEW", "-STALE no\r\n"),
                            SAYS("CONVERT", "-STALE no\r\n"), SAYS("PING", broken)));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
        assert_true(belay_held(b, "n", 5));
        if (i == 0)
            assert_int_equal(belay_renew(b, "n", 5, NULL, 0, NULL), BELAY_E_STALE);
        else if (i == 1)
            assert_int_equal(belay_convert(b, "n", 5, BELAY_SHARED, 0, &g), BELAY_E_STALE);
        else
            assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
        assert_false(belay_held(b, "n", 5));
    }
    belay_close(b);
}

/* The grant crosses the release of all that the owner has. */
static void a_release_by_owner_covers_what_was_just_granted(void **state)
{
    static const char crossing[] =
        ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:600\r\n$2\r\nhi\r\n:1\r\n";
    struct told t = {0};
    struct belay_acquire want = {.name = "n", .owner = "o", .wait_ms = 20000, .ttl_ms = 60000};
    struct belay *b = open_handle(server.addr);
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", queued_7), SAYS("RELEASE", crossing)));
    assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
    assert_int_equal(belay_release(b, "n", 0, "o", NULL), BELAY_E_OK);
    assert_int_equal(t.grants, 1);
    assert_false(belay_held(b, "n", 0));
    belay_close(b);
}

/* ---- answers that come behind later ones ----------------------------------------------- */

/* Held back behind a transaction, while the second connection keeps session and lock. */
static void an_old_answer_does_not_take_back_what_is_proven(void **state)
{
    struct told t = {0};
    struct belay_grant g;
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 2000, .keep = true};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server,
             RULES(SESSION_S1, SAYS("SESSION KEEPALIVE", ":1\r\n"), SAYS("RENEW", ":2000\r\n"),
                   SAYS("ACQUIRE", granted_5), SAYS_AFTER(2500, "TXN", txn_ok)));
    assert_int_equal(belay_session_open(b, 2000, 0, NULL), BELAY_E_OK);
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    send_txn(b);
    assert_int_equal(belay_session_keepalive(b), BELAY_E_OK);
    send_txn(b);
    assert_int_equal(belay_renew(b, "n", 5, NULL, 0, NULL), BELAY_E_OK);
    assert_int_equal(t.losts + t.session_losts, 0);
    assert_true(belay_held(b, "n", 5));
    belay_close(b);
}

static void an_answer_about_an_earlier_session_is_not_about_this_one(void **state)
{
    struct told t = {0};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SESSION_S1, SAYS_AFTER(3000, "SESSION KEEPALIVE s1", ":0\r\n"),
                            SAYS_AFTER(1000, "TXN",
                                       ">6\r\n$13\r\nsession-ended\r\n$2\r\ns1\r\n:0\r\n:0\r\n"
                                       ":0\r\n$3\r\nttl\r\n*0\r\n")));
    assert_int_equal(belay_session_open(b, 2000, 0, NULL), BELAY_E_OK);
    send_txn(b);
    assert_true(until(b, &t.session_losts, LONG_MS));
    assert_int_equal(fake_count(&server, "SESSION KEEPALIVE s1"), 1);
    fake_set(&server, RULES(SAYS("SESSION OPEN", "$2\r\ns2\r\n")));
    assert_int_equal(belay_session_open(b, 60000, 0, NULL), BELAY_E_OK);
    for_ms(b, 3500);
    assert_int_equal(t.session_losts, 1);
    assert_string_equal(belay_session_id(b), "s2");
    belay_close(b);
}

/* The grant out of the line is being proven on the second connection when all of them break. */
static void what_proves_a_grant_is_asked_at_the_next_server(void **state)
{
    struct told t = {0};
    struct belay_acquire want = {
        .name = "n", .owner = "o", .wait_ms = 20000, .ttl_ms = 60000, .keep = true};
    struct belay *b = open_both();
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", queued_7), SAYS_AFTER(60000, "TXN", ""),
                            {.verb = "RENEW", .reply = "", .cut = true}));
    fake_set(&other, RULES(SAYS_AFTER(60000, "TXN", ""), SAYS("RENEW", ":60000\r\n")));
    assert_int_equal(belay_acquire_send(b, &want, on_grant, &t), BELAY_E_OK);
    while (fake_count(&server, "ACQUIRE") == 0)
        for_ms(b, 10);
    send_txn(b);
    fake_send(&server, push_8);
    assert_true(until(b, &t.grants, LONG_MS));
    assert_int_equal(t.err, BELAY_E_OK);
    assert_true(belay_held(b, "n", 8));
    assert_int_equal(fake_count(&server, "RENEW n 8"), 1);
    assert_int_equal(fake_count(&other, "RENEW n 8"), 1);
    assert_string_equal(belay_addr(b), other.addr);
    belay_close(b);
}

/* Two owners on one handle: the second grant does not end the renewals of the first. */
static void owners_of_one_name_are_kept_apart(void **state)
{
    struct belay_grant g;
    struct belay_acquire want = {
        .name = "n", .owner = "a", .ttl_ms = 1500, .mode = BELAY_SHARED, .keep = true};
    struct belay *b = open_handle(server.addr);
    (void)state;
    fake_set(&server,
             RULES(SAYS("ACQUIRE n a", granted_5),
                   SAYS("ACQUIRE n b", "*4\r\n$7\r\ngranted\r\n:6\r\n:1500\r\n$0\r\n\r\n"),
                   SAYS("RENEW", ":1500\r\n"), SAYS("RELEASE", ":1\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    want.owner = "b";
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    for_ms(b, 2000);
    assert_true(belay_held(b, "n", 5));
    assert_true(belay_held(b, "n", 6));
    assert_int_equal(belay_release(b, "n", 0, "b", NULL), BELAY_E_OK);
    assert_true(belay_held(b, "n", 5));
    assert_false(belay_held(b, "n", 6));
    belay_close(b);
}

/* ---- somebody's session ---------------------------------------------------------------- */

static void the_ttl_of_an_attached_session_is_asked_for(void **state)
{
    struct told t = {0};
    struct belay *b = open_handle(server.addr);
    (void)state;
    belay_on_lost(b, 0, on_lost, &t);
    fake_set(&server, RULES(SAYS("SESSION SHOW s9", "%1\r\n$6\r\nttl_ms\r\n:600\r\n"),
                            SAYS("SESSION KEEPALIVE", "")));
    assert_int_equal(belay_session_attach(b, "s9", 0), BELAY_E_OK);
    assert_true(until(b, &t.session_losts, LONG_MS));
    assert_int_equal(fake_count(&server, "SESSION KEEPALIVE s9"), 1);
    fake_set(&server, RULES(SAYS("SESSION SHOW", "-NOSESSION it has ended\r\n")));
    assert_int_equal(belay_session_close(b), BELAY_E_OK);
    assert_int_equal(belay_session_attach(b, "s9", 0), BELAY_E_NO_SESSION);
    belay_close(b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_push_before_its_queued_is_not_forgotten),
        TEST(a_waiting_transaction_does_not_end_its_session),
        TEST(a_server_that_vanishes_under_a_transaction_is_left),
        TEST(who_waits_or_watches_leaves_a_silent_server),
        TEST(a_holder_leaves_a_silent_server_in_time),
        TEST(the_only_server_is_waited_for),
        TEST(a_release_inside_a_lost_callback_drops_nothing),
        TEST(a_converted_lock_is_not_lost),
        TEST(a_grant_of_a_session_that_is_over_is_given_back),
        TEST(a_late_grant_is_handed_over_only_when_it_lasts),
        TEST(held_is_right_after_a_stop),
        TEST(a_lock_without_end_is_held_as_long_as_its_session),
        TEST(a_renewal_by_hand_counts),
        TEST(a_renewal_on_its_way_bounds_one_by_hand),
        TEST(a_lock_that_is_asked_for_again_lasts_as_long_as_it_asks),
        TEST(a_lock_that_is_asked_for_again_is_renewed_for_that_long),
        TEST(a_lock_that_is_asked_for_again_has_one_fence),
        TEST(a_lock_whose_fence_is_not_known_is_lost),
        TEST(a_release_by_owner_covers_what_was_just_granted),
        TEST(what_the_server_does_not_know_is_not_held),
        TEST(an_old_answer_does_not_take_back_what_is_proven),
        TEST(an_answer_about_an_earlier_session_is_not_about_this_one),
        TEST(what_proves_a_grant_is_asked_at_the_next_server),
        TEST(owners_of_one_name_are_kept_apart),
        TEST(the_ttl_of_an_attached_session_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
