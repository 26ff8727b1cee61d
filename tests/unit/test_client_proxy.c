/* libbelay against a real server behind a bad network (proxy.h).
 *
 * First a conversation that uses all of it, cut behind every single byte, in both directions,
 * by a close and by a reset: every call comes to its end, and has taken effect once.
 * Then storms: several handles want the same locks while their connections are delayed, split,
 * cut and left in silence, they themselves stop for longer than a lease, and allocations fail.
 * The judge knows what a handle may believe: never in a lock that another one believes in,
 * never in one that the server has given up, and nothing that was kept ends without a word.
 * BELAY_PROXY_SECONDS (20) is the length of each half, BELAY_PROXY_SEED its seed. */
#include "base/log.h"
#include "belay.h"
#include "belay_txn.h"
#include "client/client.h"
#include "proxy.h"
#include "server/server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { PLAYERS = 4, LOCKS = 3, NAME_BYTES = 32 };

static struct proxy proxy;
static pid_t server_pid;
static char server_addr[64];
static int64_t seconds = 20;
static uint64_t seed, dice;

/* ---- allocations that fail ------------------------------------------------------------- */

static __thread long countdown = -1; /* < 0: none fails */

static bool fails(void)
{
    return countdown >= 0 && countdown-- == 0;
}

#include "failing_alloc.h" /* behind fails() */

/* ---- the server ------------------------------------------------------------------------ */

static int told_fd;

static void on_listening(const char *address)
{
    if (write(told_fd, address, strlen(address) + 1) < 0)
        abort();
}

/* A child of its own, so that its signals and its memory are its own. */
static int start(void **state)
{
    int fds[2];
    const char *given = getenv("BELAY_PROXY_SECONDS"), *from = getenv("BELAY_PROXY_SEED");
    struct timespec now;
    (void)state;
    clock_gettime(CLOCK_REALTIME, &now);
    seconds = given ? atoll(given) : seconds;
    seed = from ? strtoull(from, NULL, 10)
                : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    dice = seed | 1;
    print_message("# BELAY_PROXY_SEED=%llu\n", (unsigned long long)seed);
    if (pipe(fds) != 0)
        return -1;
    server_pid = fork();
    if (server_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        log_set_level(LOG_ERROR);
        told_fd = fds[1];
        static const char *const listen[] = {"127.0.0.1:0", NULL};
        struct server_config config = {
            .listen = listen, .max_connections = 1000, .on_listening = on_listening};
        _exit((int)server_run(&config));
    }
    close(fds[1]);
    ssize_t n = read(fds[0], server_addr, sizeof server_addr - 1);
    close(fds[0]);
    if (n <= 0)
        return -1;
    proxy_start(&proxy, atoi(strrchr(server_addr, ':') + 1), seed);
    return 0;
}

static int stop(void **state)
{
    int status = 0;
    (void)state;
    proxy_stop(&proxy);
    kill(server_pid, SIGTERM);
    return waitpid(server_pid, &status, 0) == server_pid && status == 0 ? 0 : -1;
}

static struct belay *open_handle(const char *addrs, int64_t timeout_ms)
{
    struct belay *b = NULL;
    struct belay_options o = {.addrs = addrs, .timeout_ms = timeout_ms, .connect_ms = 1000};
    int err = belay_open(&o, &b);
    assert_true(err == BELAY_E_OK || err == BELAY_E_MEMORY);
    return b;
}

/* ---- a conversation, cut at every byte ------------------------------------------------- */

struct heard {
    int grants, err, news, gaps, losts;
    uint64_t fence;
};

static void on_grant(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    struct heard *h = arg;
    (void)b;
    h->grants++;
    h->err = err;
    h->fence = g->fence;
}

static void on_news(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    struct heard *h = arg;
    (void)b;
    h->gaps += err != BELAY_E_OK;
    h->news += !err && strcmp(belay_text(belay_get(event, "event"), ""), "granted") == 0;
}

static void on_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct heard *h = arg;
    (void)b;
    (void)lost;
    h->losts++;
}

/* A place in line, while somebody else has the lock. */
static void talk_of_lines(struct belay *b, struct belay *direct, const char *name)
{
    struct heard h = {0};
    struct belay_grant g;
    bool held = false;
    struct belay_acquire theirs = {.name = name, .owner = "direct"};
    struct belay_acquire ours = {.name = name, .owner = "me", .wait_ms = 8000, .keep = true};
    assert_int_equal(belay_watch(b, name, 0, on_news, &h), BELAY_E_OK);
    assert_int_equal(belay_acquire(direct, &theirs, &g), BELAY_E_OK);
    assert_int_equal(belay_acquire_send(b, &ours, on_grant, &h), BELAY_E_OK);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK); /* behind the "queued" */
    assert_int_equal(h.grants, 0);
    assert_int_equal(belay_release(direct, name, g.fence, NULL, NULL), BELAY_E_OK);
    int64_t end = client_now_ms() + 10000;
    while ((!h.grants || (h.news < 2 && !h.gaps)) && client_now_ms() < end) {
        int ignored = belay_poll(b, 100);
        (void)ignored;
    }
    assert_int_equal(h.grants, 1);
    assert_int_equal(h.err, BELAY_E_OK);
    assert_true(h.news >= 2 || h.gaps); /* all of it, or that something is missing */
    assert_true(belay_held(b, name, h.fence));
    assert_int_equal(belay_watch(b, NULL, 0, NULL, NULL), BELAY_E_OK);
    assert_int_equal(belay_release(b, name, h.fence, NULL, &held), BELAY_E_OK);
    assert_true(held);
}

static void talk_of_locks(struct belay *b, struct belay *direct, const char *name)
{
    struct belay_grant g, shared;
    struct belay_txn_result r;
    bool yes = false;
    struct belay_acquire want = {.name = name, .owner = "me", .ttl_ms = 20000, .keep = true};
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(g.status, BELAY_GRANTED);
    assert_true(belay_held(b, name, g.fence));
    assert_int_equal(belay_body(b, name, g.fence, "body", 4), BELAY_E_OK);
    assert_int_equal(belay_convert(b, name, g.fence, BELAY_SHARED, 0, &shared), BELAY_E_OK);
    assert_true(shared.status == BELAY_GRANTED && shared.fence > g.fence);
    assert_true(belay_held(b, name, shared.fence) && !belay_held(b, name, g.fence));
    assert_int_equal(belay_check(direct, name, shared.fence, NULL, &yes), BELAY_E_OK);
    assert_true(yes);
    struct belay_txn txn = {.statements = belay_statements(belay_assert(
                                belay_set("proxy", name, "1", .allow_duplicates = false)))};
    assert_int_equal(belay_txn(b, &txn, &r), BELAY_E_OK);
    assert_int_equal(r.status, BELAY_TXN_OK); /* a second time it would fail */
    assert_int_equal(belay_release(b, name, shared.fence, NULL, &yes), BELAY_E_OK);
    assert_true(yes);
    assert_false(belay_held(b, name, 0));
}

/* The whole library, once. The session lingers: a close in between is none of ours. */
static void converse(struct belay *direct, unsigned round)
{
    struct heard h = {0};
    char name[NAME_BYTES], line[NAME_BYTES], id[CLIENT_SESSION_BYTES];
    const struct belay_reply *r = NULL;
    struct belay *b = open_handle(proxy.addrs, 5000);
    snprintf(name, sizeof name, "lock-%u", round);
    snprintf(line, sizeof line, "line-%u", round);
    belay_on_lost(b, 0, on_lost, &h);
    assert_int_equal(belay_session_open(b, 20000, 20000, "proxy"), BELAY_E_OK);
    snprintf(id, sizeof id, "%s", belay_session_id(b));
    talk_of_locks(b, direct, name);
    talk_of_lines(b, direct, line);
    assert_string_equal(belay_session_id(b), id);
    assert_int_equal(h.losts, 0);
    assert_int_equal(belay_session_close(b), BELAY_E_OK);
    belay_close(b);
    assert_int_equal(belay_show(direct, name, &r), BELAY_E_OK);
    assert_int_equal(belay_get(r, "holders")->count, 0);
    assert_int_equal(belay_show(direct, line, &r), BELAY_E_OK);
    assert_int_equal(belay_get(r, "holders")->count + belay_get(r, "waiters")->count, 0);
    assert_int_equal(belay_call(direct, NULL, "SESSION", "SHOW", id, NULL), BELAY_E_NO_SESSION);
}

/* Behind every byte, if there is time; else behind every second, third... from a random one on.
 */
static void cut_at_every_byte(void **state)
{
    static const enum proxy_cut cuts[] = {PROXY_CUT_CLOSE, PROXY_CUT_RESET};
    struct belay *direct = open_handle(server_addr, 5000);
    unsigned round = 0;
    (void)state;
    int64_t begun = client_now_ms();
    for (; round < 20; round++)
        converse(direct, round); /* nothing is cut: how long does one take? */
    int64_t each_us = (client_now_ms() - begun) * 1000 / round + 1;
    enum { CUTS_ABOUT = 2 * 4000 };
    size_t stride = 1 + (size_t)(CUTS_ABOUT * 2 * each_us / (seconds * 1000000));
    for (int i = 0; i < 4; i++) {
        size_t at = proxy_draw(&dice, stride);
        for (int before = -1; before != atomic_load(&proxy.cuts); at += stride) {
            before = atomic_load(&proxy.cuts);
            struct proxy_plan plan = {
                .cut = cuts[i / 2], .way = i % 2, .at = at, .pieces = at % 3 ? 0 : 7};
            proxy_set(&proxy, &plan, false);
            converse(direct, round++);
        }
        print_message("# %s, direction %d: %zu bytes, every %zu\n", i / 2 ? "reset" : "close",
                      i % 2, at - stride, stride);
        assert_true(at > 500); /* else it was not what is said here */
    }
    belay_close(direct);
}

/* ---- storms ---------------------------------------------------------------------------- */

struct player;

struct claim { /* what a player has to do with one lock */
    struct player *by;
    char name[NAME_BYTES];
    bool asked, shared, kept, in_session;
    bool asks_shared, asks_kept, asks_in_session;
    uint64_t fence;
    int answer, release; /* how its last acquire and release ended, for a failure's text */
    uint64_t released;   /* that release was of this fence; 0: by owner */
};

struct player {
    struct belay *b;
    int waits; /* transactions in flight */
    unsigned opened;
    char owner[NAME_BYTES];
    struct claim claims[LOCKS];
};

static struct {
    struct player players[PLAYERS];
    struct belay *direct;
    uint64_t grants, losts, checks, believed, failed_memory;
} storm;

static uint64_t draw(uint64_t below)
{
    return proxy_draw(&dice, below);
}

static bool believes(const struct claim *c)
{
    return c->by->b && belay_held(c->by->b, c->name, 0);
}

/* Nobody believes in a lock beside somebody who believes to have it alone. */
static void judge(void)
{
    for (size_t l = 0; l < LOCKS; l++) {
        size_t all = 0, alone = 0;
        for (size_t p = 0; p < PLAYERS; p++) {
            const struct claim *c = &storm.players[p].claims[l];
            bool yes = believes(c);
            all += yes;
            alone += yes && !c->shared;
        }
        storm.believed += all > 0;
        if (alone && all > 1)
            fail_msg("%zu handles believe to hold %s, %zu of them alone", all,
                     storm.players[0].claims[l].name, alone);
    }
}

/* What is kept does not end without a word, once the handle had its turn. */
static void dispatch(struct player *p)
{
    if (!p->b)
        return;
    int ignored = belay_poll(p->b, 0);
    (void)ignored;
    for (size_t l = 0; l < LOCKS; l++)
        if (p->claims[l].kept && !believes(&p->claims[l]))
            fail_msg("%s lost %s and was not told", p->owner, p->claims[l].name);
}

static void dispatch_all(void)
{
    for (size_t i = 0; i < PLAYERS; i++) {
        dispatch(&storm.players[i]);
        judge();
    }
}

static void storm_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct player *p = arg;
    (void)b;
    storm.losts++;
    for (size_t l = 0; l < LOCKS && lost->name; l++) {
        struct claim *c = &p->claims[l];
        if (strcmp(c->name, lost->name) != 0)
            continue;
        assert_true(c->kept); /* once */
        c->kept = false;
        assert_false(belay_held(p->b, lost->name, lost->fence));
    }
}

static void storm_granted(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    struct claim *c = arg;
    assert_true(c->asked); /* once */
    c->asked = false;
    c->answer = err != BELAY_E_OK ? err : -(int)g->status;
    if (err != BELAY_E_OK || g->status != BELAY_GRANTED)
        return;
    storm.grants++;
    c->shared = c->asks_shared;
    c->kept = c->asks_kept;
    c->in_session = c->asks_in_session;
    c->fence = g->fence;
    if (!belay_held(b, c->name, g->fence))
        fail_msg("%s was handed %s, whose lease is over", c->by->owner, c->name);
}

/* Each time another owner: what a closed handle has sent may yet arrive, and from the same owner it
 * would be asking again for what that has, under another fence and for another time. */
static void player_open(struct player *p)
{
    snprintf(p->owner, sizeof p->owner, "player-%td.%u", p - storm.players, p->opened++);
    p->b = open_handle(proxy.addrs, 800);
    if (p->b)
        belay_on_lost(p->b, 0, storm_lost, p);
}

static void player_close(struct player *p)
{
    belay_close(p->b); /* asks in flight are answered by this */
    p->b = NULL;
    assert_int_equal(p->waits, 0);
    for (size_t l = 0; l < LOCKS; l++) {
        assert_false(p->claims[l].asked);
        p->claims[l].kept = false;
    }
}

static void do_ask(struct player *p, struct claim *c)
{
    if (c->asked || ((c->kept || believes(c)) && draw(8)))
        return; /* now and then it asks again for what it has, for another time */
    bool is_rw = c == &p->claims[LOCKS - 1];
    c->asks_shared = is_rw && draw(2);
    c->asks_kept = draw(2);
    c->asks_in_session = belay_session_id(p->b)[0];
    struct belay_acquire want = {.name = c->name,
                                 .owner = p->owner,
                                 .mode = c->asks_shared ? BELAY_SHARED : BELAY_EXCLUSIVE,
                                 .ttl_ms = 300 + (int64_t)draw(900),
                                 .wait_ms = draw(4) ? (int64_t)draw(1000) : 0,
                                 .keep = c->asks_kept};
    c->asked = belay_acquire_send(p->b, &want, storm_granted, c) == BELAY_E_OK;
}

static void do_release(struct player *p, struct claim *c)
{
    if (!c->kept && !believes(c))
        return;
    c->kept = false;
    uint64_t fence = draw(2) ? c->fence : 0; /* 0: by owner */
    c->released = fence;
    c->release = belay_release(p->b, c->name, fence, p->owner, NULL);
    if (!fence)
        c->kept = false; /* also what was granted meanwhile */
}

static void do_convert(struct player *p)
{
    struct claim *c = &p->claims[LOCKS - 1];
    struct belay_grant g;
    bool to_shared = !c->shared;
    if (c->asked || !believes(c))
        return;
    c->shared = true; /* whatever comes of it, it is not alone any more, or not yet */
    int err = belay_convert(p->b, c->name, c->fence, to_shared ? BELAY_SHARED : BELAY_EXCLUSIVE,
                            (int64_t)draw(300), &g);
    if (err != BELAY_E_OK || g.status != BELAY_GRANTED)
        return;
    c->fence = g.fence;
    c->shared = to_shared || !belay_held(p->b, c->name, g.fence);
}

static void do_session(struct player *p)
{
    int64_t ttl = 500 + (int64_t)draw(1500);
    int ignored;
    if (!belay_session_id(p->b)[0]) {
        ignored = belay_session_close(p->b); /* one that is lost */
        ignored = belay_session_open(p->b, ttl, ttl, p->owner);
    } else if (draw(3) == 0) {
        for (size_t l = 0; l < LOCKS; l++)
            p->claims[l].kept &= !p->claims[l].in_session; /* nobody tells what is given up */
        ignored = belay_session_close(p->b);
    } else {
        struct belay_txn_result r;
        struct belay_txn txn = {.wait_ms = (int64_t)draw(draw(6) ? 30 : 400),
                                .statements = belay_statements(
                                    belay_assert(belay_exists("proxy", "never", "there")))};
        ignored = belay_txn(p->b, &txn, &r);
    }
    (void)ignored;
}

static void txn_over(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    (void)b;
    (void)err;
    (void)r;
    ((struct player *)arg)->waits--;
}

/* Everything that is sent behind it is answered behind it. */
static void do_wait(struct player *p)
{
    char json[256];
    const char *session = belay_session_id(p->b);
    if (!session[0])
        return;
    int n = snprintf(json, sizeof json,
                     "{\"session\":\"%s\",\"wait_ms\":%d,\"statements\":[{\"assert\":"
                     "{\"exists\":{\"table\":\"proxy\",\"key\":\"never\"}}}]}",
                     session, (int)draw(900));
    struct belay_bytes words[2] = {{"TXN", 3}, {json, (size_t)n}};
    p->waits += belay_send(p->b, words, 2, txn_over, p) == BELAY_E_OK;
}

/* What is believed before and after the question must be true at the server. */
static void do_check(const struct player *p, const struct claim *c)
{
    bool current = true;
    uint64_t fence = c->fence;
    if (c->asked || !belay_held(p->b, c->name, fence))
        return;
    if (belay_check(storm.direct, c->name, fence, NULL, &current) != BELAY_E_OK)
        fail_msg("the direct way fails: %s", belay_error(storm.direct));
    storm.checks++;
    if (!current && belay_held(p->b, c->name, fence))
        fail_msg(
            "%s believes in %s (fence %llu), the server does not; its last acquire ended with "
            "%d, its last release (of %llu) with %d",
            p->owner, c->name, (unsigned long long)fence, c->answer,
            (unsigned long long)c->released, c->release);
}

static void play(struct player *p)
{
    struct claim *c = &p->claims[draw(LOCKS)];
    if (!p->b) {
        player_open(p);
        return;
    }
    if (draw(20) == 0)
        countdown = (long)draw(40);
    switch (draw(60)) {
    case 0:
        player_close(p);
        break;
    case 1:
        poll(NULL, 0, draw(3) ? 0 : (int)draw(900)); /* everybody is stopped */
        break;
    case 2:
        do_session(p);
        break;
    case 4:
    case 5:
        do_convert(p);
        break;
    case 6:
    case 7:
    case 8:
        do_release(p, c);
        break;
    case 9:
        if (believes(c) && !c->asked) {
            int ignored = belay_renew(p->b, c->name, c->fence, NULL, (int64_t)draw(800), NULL);
            (void)ignored;
        }
        break;
    case 16:
    case 17:
        do_wait(p);
        break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
        countdown = -1;
        do_check(p, c);
        break;
    default:
        if (draw(6) == 0)
            do_release(p, c);
        do_ask(p, c);
        dispatch(p);
        poll(NULL, 0, (int)draw(5));
        break;
    }
    storm.failed_memory += p->b && belay_error_code(p->b) == BELAY_E_MEMORY;
    countdown = -1;
}

static bool anybody_asks(void)
{
    for (size_t i = 0; i < PLAYERS; i++)
        for (size_t l = 0; l < LOCKS; l++)
            if (storm.players[i].claims[l].asked || storm.players[i].waits)
                return true;
    return false;
}

/* A holder that the server knows is one that a player believes in, or soon will not be. */
static bool is_settled(const char *name)
{
    const struct belay_reply *r = NULL;
    assert_int_equal(belay_show(storm.direct, name, &r), BELAY_E_OK);
    const struct belay_reply *holders = belay_get(r, "holders");
    for (const struct belay_reply *h = holders->first; h; h = h->next) {
        const char *owner = belay_text(belay_get(h, "owner"), "");
        uint64_t fence = (uint64_t)belay_int(belay_get(h, "fence"), 0);
        bool known = false;
        for (size_t i = 0; i < PLAYERS; i++) {
            const struct player *p = &storm.players[i];
            known |= p->b && strcmp(p->owner, owner) == 0 && belay_held(p->b, name, fence);
        }
        if (!known)
            return false;
    }
    return true;
}

/* The network is well again: everything that was asked is answered, and nothing is held that
 * nobody knows of. */
static void calm_down(void)
{
    proxy_set(&proxy, NULL, false);
    int64_t end = client_now_ms() + 20000;
    while (anybody_asks() && client_now_ms() < end) {
        dispatch_all();
        poll(NULL, 0, 5);
    }
    assert_false(anybody_asks());
    end = client_now_ms() + 20000;
    for (size_t l = 0; l < LOCKS; l++) {
        while (!is_settled(storm.players[0].claims[l].name) && client_now_ms() < end) {
            dispatch_all();
            poll(NULL, 0, 5);
        }
        assert_true(is_settled(storm.players[0].claims[l].name));
    }
}

static void nobody_believes_what_is_not_so(void **state)
{
    int cuts = atomic_load(&proxy.cuts);
    (void)state;
    storm.direct = open_handle(server_addr, 5000);
    for (size_t i = 0; i < PLAYERS; i++) {
        struct player *p = &storm.players[i];
        for (size_t l = 0; l < LOCKS; l++) {
            p->claims[l].by = p;
            snprintf(p->claims[l].name, sizeof p->claims[l].name, "storm-%zu", l);
        }
        player_open(p);
    }
    int64_t end = client_now_ms() + seconds * 1000;
    for (unsigned round = 1; client_now_ms() < end; round++) {
        proxy_set(&proxy, NULL, true);
        int64_t calm = client_now_ms() + 6000;
        while (client_now_ms() < calm && client_now_ms() < end) {
            play(&storm.players[draw(PLAYERS)]);
            dispatch_all();
        }
        calm_down();
    }
    for (size_t i = 0; i < PLAYERS; i++)
        player_close(&storm.players[i]);
    belay_close(storm.direct);
    print_message("# %llu grants, %llu losts, %llu beliefs checked, %d cuts, %llu times no "
                  "memory\n",
                  (unsigned long long)storm.grants, (unsigned long long)storm.losts,
                  (unsigned long long)storm.checks, atomic_load(&proxy.cuts) - cuts,
                  (unsigned long long)storm.failed_memory);
    assert_true(storm.grants > 20 && storm.checks > 5 && storm.losts > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(nobody_believes_what_is_not_so),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
