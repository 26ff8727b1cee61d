/* test_machine_find.c - FIND, HOLDERS and WAITERS against what LIST and SHOW say of the same state:
 * random locks, random filters. The work of one FIND is bounded. */
#include "choice.h"
#include "machine/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LOCKS = 5000, OWNERS = 12, STEPS = 12000, PIECE = 2048 };

static struct machine *m;
static struct effects fx;
static struct choice choice;
static uint64_t now;

static const struct event *doing(struct op op)
{
    effects_reset(&fx);
    op.now_ms = now;
    op.asker = 1;
    if (op_is_read(op.kind)) {
        machine_query(m, &op, &fx);
    } else {
        const char *what = "";
        op.index = machine_applied(m) + 1;
        if (op_validate(&op, &what) != BELAY_OK)
            fail_msg("%s", what);
        machine_apply(m, &op, &fx);
    }
    for (size_t i = 0; i < fx.n; i++)
        if (fx.events[i].asker == 1)
            return &fx.events[i];
    return NULL;
}

static struct slice text(char *space, size_t cap, char letter, uint64_t n)
{
    (void)snprintf(space, cap, "%c%llu", letter, (unsigned long long)n);
    return slice_str(space);
}

static uint64_t below(uint64_t n)
{
    return choice_below(&choice, n);
}

/* Every name has its kind; a few have long lines. */
static void one_step(void)
{
    char name[16], owner[16];
    uint64_t n = below(10) == 0 ? below(20) : below(LOCKS), kind = n % 3;
    struct op op = {.kind = below(6) ? OP_ACQUIRE : OP_RELEASE,
                    .name = text(name, sizeof name, 'n', n),
                    .owner = text(owner, sizeof owner, 'o', below(OWNERS))};
    now += below(3);
    if (op.kind == OP_ACQUIRE) {
        op.mode = kind == 0 ? MODE_EXCLUSIVE : kind == 1 ? MODE_SHARED : MODE_SEMAPHORE;
        op.mode = kind == 1 && below(4) == 0 ? MODE_EXCLUSIVE : op.mode;
        op.permits = op.of = 0;
        if (op.mode == MODE_SEMAPHORE) {
            op.permits = 1;
            op.of = 3;
        }
        op.ttl_ms = 100000 + below(100000);
        op.wait_ms = below(2) ? 100000 : 0;
        op.session = below(3) ? SLICE("") : SLICE("s1");
        op.delay_ms = below(8) ? 0 : 60000;
        if (below(8) == 0) {
            op.body = SLICE("b");
            op.flags = OP_SET_BODY;
        }
    } else if (below(5) == 0) {
        op.kind = OP_BREAK;
        op.owner = SLICE("");
    }
    (void)doing(op);
}

static bool is_who(const struct op *op, struct slice owner, struct slice session)
{
    return (op->owner.len == 0 || slice_eq(owner, op->owner)) &&
           (op->session.len == 0 || slice_eq(session, op->session));
}

static bool has_who(const struct lock_row *l, const struct op *op)
{
    bool has = op->owner.len == 0 && op->session.len == 0;
    for (size_t i = 0; i < l->n_holders && !has; i++)
        has = is_who(op, l->holders[i].owner, l->holders[i].session);
    for (size_t i = 0; i < l->n_waiters && !has; i++)
        has = is_who(op, l->waiters[i].owner, l->waiters[i].session);
    return has;
}

static bool should_be_found(const struct lock_row *l, const struct op *op)
{
    return (op->target == 0 || l->state == (enum lock_state)(op->target - 1)) &&
           (op->number == 0 || (l->n_holders && l->holders[0].held_ms >= op->number)) &&
           l->waiters_total >= op->permits && slice_starts(l->name, op->name) && has_who(l, op);
}

static int64_t place_of(const struct lock_row *l, uint64_t sort)
{
    const struct holder_row *h = l->n_holders ? &l->holders[0] : NULL;
    if (sort == SORT_AGE)
        return h ? (int64_t)(now - h->held_ms) : INT64_MAX;
    if (sort == SORT_WAITERS)
        return -(int64_t)l->waiters_total;
    if (sort == SORT_WAITED)
        return l->n_waiters ? (int64_t)(now - l->waiters[0].waited_ms) : INT64_MAX;
    if (sort == SORT_EXPIRES)
        return h && !h->forever ? (int64_t)(now + h->expires_in_ms) : INT64_MAX;
    return 0;
}

struct found {
    char name[16];
    int64_t place;
};

/* All that LIST shows, judged here. */
static size_t expect(const struct op *find, struct found *ret)
{
    struct op list = {.kind = OP_LIST, .limit = 500};
    char after[16] = "";
    size_t n = 0;
    for (bool more = true; more;) {
        list.text = slice_str(after);
        const struct event *ev = doing(list);
        for (size_t i = 0; i < ev->n_rows; i++) {
            const struct lock_row *l = &ev->locks[i];
            (void)snprintf(after, sizeof after, "%.*s", (int)l->name.len, l->name.data);
            if (!should_be_found(l, find))
                continue;
            ret[n].place = place_of(l, find->fence);
            memcpy(ret[n++].name, after, sizeof after);
        }
        more = ev->more;
    }
    return n;
}

static size_t search(struct op find, struct found *ret)
{
    char after[16] = "";
    size_t n = 0, pieces = 0;
    for (bool more = true; more; pieces++) {
        find.text = slice_str(after);
        const struct event *ev = doing(find);
        assert_true(ev->n_rows <= (find.fence == SORT_NAME ? find.limit : PIECE));
        for (size_t i = 0; i < ev->n_rows; i++, n++) {
            ret[n].place = ev->found[i].place;
            (void)snprintf(ret[n].name, sizeof ret[n].name, "%.*s", (int)ev->found[i].name.len,
                           ev->found[i].name.data);
        }
        more = ev->more;
        if (more)
            (void)snprintf(after, sizeof after, "%.*s", (int)ev->name.len, ev->name.data);
    }
    if (find.fence != SORT_NAME && find.name.len == 0)
        assert_true(pieces > 1); /* there are more locks than one piece looks at */
    return n;
}

static struct op random_find(char *owner, size_t cap)
{
    struct op find = {.kind = OP_FIND,
                      .limit = 1 + below(1000),
                      .fence = below(SORT_COUNT),
                      .target = below(2) ? 0 : below(2 + LOCK_CLOSED),
                      .number = below(2) ? 0 : below(now),
                      .permits = below(2) ? 0 : below(4),
                      .name = below(3) ? SLICE("") : SLICE("n1")};
    if (below(2))
        find.owner = text(owner, cap, 'o', below(OWNERS + 1));
    if (below(4) == 0)
        find.session = SLICE("s1");
    return find;
}

static void finds_what_a_list_shows(void **state)
{
    (void)state;
    static struct found want[LOCKS], got[LOCKS];
    for (int round = 0; round < 200; round++) {
        char owner[16];
        struct op find = random_find(owner, sizeof owner);
        size_t n = expect(&find, want);
        assert_int_equal(search(find, got), n);
        for (size_t i = 0; i < n; i++) {
            assert_string_equal(got[i].name, want[i].name);
            assert_int_equal(got[i].place, want[i].place);
        }
    }
}

/* Page by page the same as in one row, whatever the page is. */
static void pages_of_a_line(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        static uint64_t tickets[LOCK_ROWS_MAX], fences[LOCK_ROWS_MAX];
        char name[16];
        struct slice lock = text(name, sizeof name, 'n', n);
        const struct lock_row *l = doing((struct op){.kind = OP_SHOW, .name = lock})->locks;
        size_t waiters = l->n_waiters, holders = l->n_holders, at = 0;
        for (size_t i = 0; i < waiters; i++)
            tickets[i] = l->waiters[i].ticket;
        for (size_t i = 0; i < holders; i++)
            fences[i] = l->holders[i].fence;
        struct op page = {.kind = OP_WAITERS, .name = lock, .limit = 1 + below(3)};
        for (bool more = true; more;) {
            const struct event *ev = doing(page);
            for (size_t i = 0; i < ev->locks->n_waiters; i++, at++) {
                assert_int_equal(ev->locks->waiters[i].ticket, tickets[at]);
                assert_int_equal(ev->locks->waiters[i].position, at + 1);
            }
            assert_int_equal(ev->locks->waiters_total, waiters);
            page.fence = ev->ticket;
            more = ev->more;
        }
        assert_int_equal(at, waiters);
        page = (struct op){.kind = OP_HOLDERS, .name = lock, .limit = 1 + below(3)};
        at = 0;
        for (bool more = true; more;) {
            const struct event *ev = doing(page);
            for (size_t i = 0; i < ev->locks->n_holders; i++, at++) {
                assert_int_equal(ev->locks->holders[i].fence, fences[at]);
                page.fence = fences[at];
            }
            more = ev->more;
        }
        assert_int_equal(at, holders);
    }
}

static int setup(void **state)
{
    (void)state;
    const char *given = getenv("FIND_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("# FIND_SEED=%llu\n", (unsigned long long)seed);
    choice = choice_seed(seed);
    m = machine_open((struct hash_key){seed, 2});
    now = 1000;
    (void)doing(
        (struct op){.kind = OP_SESSION_OPEN, .session = SLICE("s1"), .ttl_ms = LIMIT_TTL_MS});
    for (int i = 0; i < STEPS; i++)
        one_step();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    machine_close(m);
    effects_done(&fx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_a_list_shows),
                                       cmocka_unit_test(pages_of_a_line)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
