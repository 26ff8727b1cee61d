/* steady.c - a client of libbelay that is never told of a fault: for tests with real nodes.
 *
 *   steady ADDRS NAMESPACE SESSION SEED HISTORY
 *
 * Until SIGTERM it does one thing after the other, drawn from the seed: adds one to a counter
 * that all clients share (a transaction: was it n? then it is n + 1), waits in the line of a
 * lock and gives it back, tries a lock without waiting, opens a session of its own, or closes
 * it. Nodes may die under it and come back. What the counter says must be what all clients have
 * added, a release must find the lock held, and no call may fail: that is what it counts.
 *
 * HISTORY gets a line per grant, for history.c; the last line of stdout is
 *   added N conflicts N grants N failed N */
#include "belay_txn.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOCKS = 3, TTL_MS = 15000, WAIT_MS = 20000, TIMEOUT_MS = 20000, SESSION_TTL_MS = 20000 };

struct steady {
    struct belay *b;
    const char *session; /* of the counter */
    FILE *history;
    uint64_t random, id;
    uint64_t added, conflicts, grants, failed;
};

static volatile sig_atomic_t stop;

static void on_term(int signum)
{
    (void)signum;
    stop = 1;
}

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t draw(struct steady *s, uint64_t n) /* splitmix64 */
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static bool went_well(struct steady *s, int err, const char *what)
{
    if (err == BELAY_E_OK)
        return true;
    s->failed++;
    printf("# %s: %s: %s\n", what, belay_code_text(err), belay_error(s->b));
    return false;
}

static void wrong(struct steady *s, const char *what, const char *more)
{
    s->failed++;
    printf("# %s %s\n", what, more);
}

static void on_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    (void)b;
    wrong(arg, "lost:", lost->name ? lost->name : "the session");
}

/* ---- the counter ----------------------------------------------------------------------- */

static bool read_counter(struct steady *s, int64_t *ret)
{
    struct belay_txn_result r;
    const struct belay_txn look = {.session = s->session,
                                   .statements = belay_statements(belay_select(
                                       "n", "count", "n", .with_this_session = true))};
    if (!went_well(s, belay_txn(s->b, &look, &r), "select"))
        return false;
    const char *json = belay_txn_value(&r, "n");
    const char *value = json ? strstr(json, "\"value\":") : NULL;
    *ret = value ? strtoll(value + strlen("\"value\":"), NULL, 10) : -1;
    if (*ret < 0)
        wrong(s, "there is no counter:", json ? json : "nothing");
    return *ret >= 0;
}

static void add_one(struct steady *s)
{
    int64_t n;
    struct belay_txn_result r;
    char was[24], is[24];
    if (!read_counter(s, &n))
        return;
    snprintf(was, sizeof was, "%" PRId64, n);
    snprintf(is, sizeof is, "%" PRId64, n + 1);
    const struct belay_txn add = {
        .session = s->session,
        .statements = belay_statements(
            belay_assert(belay_exists("count", "n", .json = was, .with_this_session = true)),
            belay_assert(belay_set("count", "n", .json = is, .allow_duplicates = true)))};
    if (!went_well(s, belay_txn(s->b, &add, &r), "add"))
        return;
    if (r.status == BELAY_TXN_OK)
        s->added++;
    else if (strcmp(r.cause, "statement") == 0)
        s->conflicts++; /* somebody was faster */
    else
        wrong(s, "the transaction says", r.cause);
}

/* ---- locks ----------------------------------------------------------------------------- */

static void take_and_give(struct steady *s, int64_t wait_ms)
{
    char lock[16], owner[64];
    struct belay_grant g;
    snprintf(lock, sizeof lock, "l%" PRIu64, draw(s, LOCKS));
    snprintf(owner, sizeof owner, "%" PRIx64 "-%" PRIu64, s->random, ++s->id);
    const struct belay_acquire want = {
        .name = lock, .owner = owner, .ttl_ms = TTL_MS, .wait_ms = wait_ms};
    uint64_t asked = now_us();
    if (!went_well(s, belay_acquire(s->b, &want, &g), "acquire"))
        return;
    uint64_t answered = now_us();
    if (g.status != BELAY_GRANTED) {
        if (wait_ms || g.status != BELAY_REFUSED)
            wrong(s, "the line ended with", g.reason);
        return;
    }
    bool held = false;
    uint64_t fence = g.fence, give = now_us();
    s->grants++;
    if (!went_well(s, belay_release(s->b, lock, fence, NULL, &held), "release"))
        return;
    if (!held)
        wrong(s, "was not held:", lock);
    fprintf(s->history,
            "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d\n", lock,
            fence, asked, answered, give, now_us(), TTL_MS * 1000, held);
}

static void turn_session(struct steady *s)
{
    if (belay_session_id(s->b)[0])
        (void)went_well(s, belay_session_close(s->b), "session close");
    else
        (void)went_well(s, belay_session_open(s->b, SESSION_TTL_MS, 0, "steady"),
                        "session open");
}

static void work(struct steady *s)
{
    while (!stop) {
        uint64_t what = draw(s, 100);
        if (what < 40)
            add_one(s);
        else if (what < 80)
            take_and_give(s, WAIT_MS);
        else if (what < 95)
            take_and_give(s, 0);
        else
            turn_session(s);
    }
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "steady ADDRS NAMESPACE SESSION SEED HISTORY\n");
        return 2;
    }
    struct steady s = {.session = argv[3], .random = strtoull(argv[4], NULL, 10)};
    struct belay_options o = {.addrs = argv[1], .ns = argv[2], .timeout_ms = TIMEOUT_MS};
    struct sigaction action = {.sa_handler = on_term};
    s.history = fopen(argv[5], "w");
    if (!s.history || belay_open(&o, &s.b) != BELAY_E_OK ||
        sigaction(SIGTERM, &action, NULL) != 0)
        return 2;
    belay_on_lost(s.b, 0, on_lost, &s);
    work(&s);
    belay_close(s.b);
    bool kept = fclose(s.history) == 0;
    printf("added %" PRIu64 " conflicts %" PRIu64 " grants %" PRIu64 " failed %" PRIu64 "\n",
           s.added, s.conflicts, s.grants, s.failed);
    return kept && s.failed == 0 ? 0 : 1;
}
