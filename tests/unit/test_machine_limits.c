/* test_machine_limits.c - every count and size has a name, a bound and a clear refusal. */
#include "machine/level.h"
#include "script.h"
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

static void assert_limit(const struct event *ev, const char *name)
{
    char text[256];
    assert_non_null(ev);
    assert_int_equal(ev->kind, EVENT_FAILED);
    assert_int_equal(ev->err, BELAY_ERR_LIMIT);
    snprintf(text, sizeof text, "%.*s", (int)ev->text.len, ev->text.data);
    assert_non_null(strstr(text, name)); /* it says which one */
}

/* At the bound one more is refused, who is in may ask again, and who leaves makes room. */
static void a_lock_has_so_many_holders(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    for (int i = 0; i < LIMIT_HOLDERS; i++)
        assert_int_equal(play(&p, "0 acquire db o%d shared ttl=100", i)->kind, EVENT_GRANTED);
    assert_limit(play(&p, "1 acquire db more shared ttl=100"), "LIMIT_HOLDERS");
    assert_limit(play(&p, "1 acquire db more shared ttl=100 wait=50"), "LIMIT_HOLDERS");
    assert_int_equal(play(&p, "1 acquire db o7 shared ttl=100")->kind, EVENT_GRANTED);
    assert_int_equal(play(&p, "1 release db o8")->count, 1);
    assert_int_equal(play(&p, "1 acquire db more shared ttl=100")->kind, EVENT_GRANTED);
    assert_limit(play(&p, "1 acquire db yet-more shared ttl=100"), "LIMIT_HOLDERS");
    script_store(&p);
    script_done(&p);
}

/* What anybody holds is freed as far as one lock can have it. Below level 2: all of it. */
static void so_many_holds_are_freed_at_once(void **state)
{
    (void)state;
    enum { LOCKS = 2, EACH = LIMIT_HOLDERS / LOCKS };
    for (uint64_t level = LEVEL_PARTS - 1; level <= LEVEL_PARTS; level++) {
        struct script p;
        script_open(&p);
        machine_set_level(p.m, level);
        for (int i = 0; i < LIMIT_HOLDERS; i++)
            play(&p, "0 acquire l%d o%d shared ttl=100", i % LOCKS, i);
        play(&p, "0 acquire l2 one shared ttl=100");
        struct slice names[] = {SLICE("l1"), SLICE("l2")};
        struct op op = {.kind = OP_RELEASE,
                        .flags = OP_ANYONE,
                        .asker = 1,
                        .name = SLICE("l0"),
                        .more = {names, 2},
                        .index = machine_applied(p.m) + 1};
        effects_reset(&p.fx);
        machine_apply(p.m, &op, &p.fx);
        const struct event *ev = &p.fx.events[p.fx.n - 1];
        if (level < LEVEL_PARTS) {
            assert_int_equal(ev->count, LIMIT_HOLDERS + 1);
        } else {
            assert_limit(ev, "name fewer at once");
            assert_int_equal(p.fx.n, 1);
            assert_int_equal(play(&p, "1 show l0")->locks->holders_total, EACH);
            assert_int_equal(play(&p, "1 release l2 one")->count, 1);
            op.index = machine_applied(p.m) + 1;
            effects_reset(&p.fx);
            machine_apply(p.m, &op, &p.fx);
            assert_int_equal(p.fx.events[p.fx.n - 1].count, LIMIT_HOLDERS);
        }
        script_done(&p);
    }
}

static void a_line_is_not_served_beyond_the_holders(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db first ttl=100");
    for (int i = 0; i < LIMIT_HOLDERS + 5; i++)
        play(&p, "0 acquire db o%d shared ttl=100 wait=500", i);
    play(&p, "1 release db first");
    size_t granted = script_count(&p, EVENT_GRANTED);
    while (machine_due(p.m) <= 1) {
        play(&p, "1 tick");
        granted += script_count(&p, EVENT_GRANTED);
    }
    assert_int_equal(granted, LIMIT_HOLDERS);
    script_store(&p);
    play(&p, "2 release db o3");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1);
    script_done(&p);
}

static void a_lock_has_so_many_waiters(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db first ttl=100");
    for (int i = 0; i < LIMIT_WAITERS; i++) {
        const struct event *ev = play(&p, "0 acquire db o%d ttl=100 wait=500 noblock", i);
        assert_int_equal(ev->kind, EVENT_QUEUED);
        assert_int_equal(ev->position, i + 1);
    }
    assert_limit(play(&p, "1 acquire db more ttl=100 wait=500"), "LIMIT_WAITERS");
    script_store(&p);
    assert_int_equal(play(&p, "1 acquire db more ttl=100")->kind, EVENT_REFUSED);
    const struct event *again = play(&p, "1 acquire db o7 ttl=100 wait=500 noblock");
    assert_int_equal(again->kind, EVENT_QUEUED);
    assert_int_equal(again->position, 8);
    play(&p, "1 release db o8");
    assert_int_equal(play(&p, "2 acquire db more ttl=100 wait=500 noblock")->kind,
                     EVENT_QUEUED);
    script_done(&p);
}

/* All waits end in one step's time: worked off in batches, each waiter told once. */
static void a_hundred_thousand_waits_end_in_batches(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db first ttl=100000");
    for (int i = 0; i < LIMIT_WAITERS; i++)
        play(&p, "0 acquire db o%d ttl=100 wait=500", i);
    size_t told = 0;
    while (machine_due(p.m) <= 500) {
        play(&p, "500 tick");
        assert_true(p.fx.n <= 2 * MACHINE_EXPIRE_BATCH); /* ends, and the dead of a line */
        told += script_count(&p, EVENT_TIMEOUT);
    }
    assert_int_equal(told, LIMIT_WAITERS);
    script_done(&p);
}

static void a_session_has_so_many_holds_and_waits(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s1 ttl=1000");
    play(&p, "0 acquire busy other ttl=1000");
    for (int i = 0; i < LIMIT_SESSION_ITEMS - 1; i++)
        assert_int_equal(play(&p, "0 acquire l%d ann session=s1", i)->kind, EVENT_GRANTED);
    assert_limit(play(&p, "1 acquire x ann session=s1 +y"), "LIMIT_SESSION_ITEMS");
    assert_int_equal(play(&p, "1 acquire busy ann session=s1 wait=5 noblock")->kind,
                     EVENT_QUEUED);
    assert_limit(play(&p, "1 acquire x ann session=s1"), "LIMIT_SESSION_ITEMS");
    script_store(&p);
    assert_limit(play(&p, "1 acquire busy bob session=s1 wait=5"), "LIMIT_SESSION_ITEMS");
    assert_int_equal(play(&p, "1 acquire l5 ann session=s1")->kind, EVENT_GRANTED);
    assert_int_equal(play(&p, "2 session-close s1")->count, LIMIT_SESSION_ITEMS);
    size_t released = script_count(&p, EVENT_RELEASED);
    while (machine_due(p.m) <= 2) {
        play(&p, "2 tick");
        released += script_count(&p, EVENT_RELEASED);
    }
    assert_int_equal(released, LIMIT_SESSION_ITEMS - 1);
    script_done(&p);
}

static void an_upgrade_counts_as_a_wait_of_its_session(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s1 ttl=1000");
    play(&p, "0 acquire db other shared ttl=1000");
    play(&p, "0 acquire db ann shared session=s1");
    for (int i = 0; i < LIMIT_SESSION_ITEMS - 1; i++)
        play(&p, "0 acquire l%d ann session=s1", i);
    assert_limit(play(&p, "1 convert db ann exclusive session=s1 wait=50"),
                 "LIMIT_SESSION_ITEMS");
    script_store(&p);
    script_done(&p);
}

static void an_account_has_so_many_namespaces(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    for (int i = 1; i < LIMIT_NAMESPACES; i++)
        assert_int_equal(play(&p, "0 namespace-create n%d", i)->kind, EVENT_NAMESPACE_CREATED);
    assert_limit(play(&p, "1 namespace-create more"), "LIMIT_NAMESPACES");
    script_store(&p);
    play(&p, "1 namespace-delete n17");
    assert_int_equal(play(&p, "1 namespace-create more")->kind, EVENT_NAMESPACE_CREATED);
    script_done(&p);
}

/* Takes the messages of `from`, which is group 0. */
static void take_messages(struct script *p, const struct machine *from)
{
    uint64_t next = 1;
    while (next <= machine_posted(from, 1)) {
        struct buf messages = {0};
        size_t n = machine_outbox(from, 1, next, &messages);
        struct op op = {.kind = OP_MESSAGES,
                        .index = machine_applied(p->m) + 1,
                        .fence = next,
                        .program = buf_slice(&messages)};
        machine_apply(p->m, &op, &p->fx);
        effects_reset(&p->fx);
        next += n;
        buf_done(&messages);
    }
}

/* Group 0 counts; all may fall into one shard, which has a "default" of its own beside. */
static void a_shard_may_have_them_all_and_its_default(void **state)
{
    (void)state;
    struct script p, shard;
    struct machine_counts counts;
    script_open(&p);
    script_open(&shard);
    machine_set_group(p.m, 0, 3);
    machine_set_group(shard.m, 1, 3);
    struct op gone = {.kind = OP_NAMESPACE_DELETE, .ns = SLICE("default")};
    gone.index = 1;
    machine_apply(p.m, &gone, &p.fx);
    struct op op = {.kind = OP_NAMESPACE_CREATE, .target = 1};
    for (int i = 0; i < LIMIT_NAMESPACES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        op.ns = slice_str(name);
        op.index = machine_applied(p.m) + 1;
        effects_reset(&p.fx);
        machine_apply(p.m, &op, &p.fx);
        assert_int_equal(p.fx.events[0].kind, EVENT_NAMESPACE_CREATED);
    }
    assert_limit(play(&p, "1 namespace-create more"), "LIMIT_NAMESPACES");
    script_store(&p);
    take_messages(&shard, p.m);
    machine_counts(shard.m, &counts);
    assert_int_equal(counts.namespaces, LIMIT_NAMESPACES + 1);
    script_store(&shard);
    script_done(&shard);
    script_done(&p);
}

/* What a lock, a wait, a session and a namespace consist of, each as large as it may be. */
static void what_is_as_large_as_it_may_be_is_stored(void **state)
{
    (void)state;
    static char bytes[LIMIT_BODY_BYTES];
    memset(bytes, 'x', sizeof bytes);
    struct script p;
    script_open(&p);
    struct op ops[] = {
        {.kind = OP_NAMESPACE_CREATE},
        {.kind = OP_SESSION_OPEN, .ttl_ms = LIMIT_TTL_MS, .linger_ms = LIMIT_LINGER_MS},
        {.kind = OP_ACQUIRE, .mode = MODE_EXCLUSIVE},
        {.kind = OP_ACQUIRE,
         .mode = MODE_EXCLUSIVE,
         .policy = POLICY_TIMED,
         .quiet_ms = LIMIT_QUIET_MS,
         .wait_ms = LIMIT_WAIT_MS}};
    for (size_t i = 0; i < 4; i++) {
        struct op *op = &ops[i];
        const char *what = NULL;
        op->ns = slice_of(bytes, LIMIT_NAMESPACE_BYTES);
        op->text = slice_of(bytes, i < 2 ? LIMIT_DESCRIPTION_BYTES : 0);
        if (i > 0)
            op->session = slice_of(bytes, LIMIT_SESSION_BYTES);
        if (i > 1) {
            op->name = slice_of(bytes, LIMIT_NAME_BYTES);
            op->owner = slice_of(bytes, LIMIT_OWNER_BYTES - (i - 2));
            op->body = slice_of(bytes, LIMIT_BODY_BYTES);
            op->flags = OP_SET_BODY;
            op->ttl_ms = LIMIT_TTL_MS;
            op->grace_ms = LIMIT_GRACE_MS;
            op->delay_ms = LIMIT_DELAY_MS;
            op->request = slice_of(bytes, LIMIT_REQUEST_BYTES - (i - 2));
        }
        op->asker = op->index = i + 1;
        assert_int_equal(op_validate(op, &what), BELAY_OK);
        effects_reset(&p.fx);
        machine_apply(p.m, op, &p.fx);
        assert_int_not_equal(p.fx.events[0].kind, EVENT_FAILED);
        script_store(&p);
    }
    script_done(&p);
}

static void so_many_answers_are_kept(void **state)
{
    (void)state;
    struct script p;
    struct machine_counts counts;
    script_open(&p);
    for (int i = 0; i < LIMIT_RECEIPTS + 10; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        struct op op = {.kind = OP_RELEASE,
                        .asker = 1,
                        .index = machine_applied(p.m) + 1,
                        .name = SLICE("l"),
                        .owner = SLICE("o"),
                        .request = slice_str(id)};
        effects_reset(&p.fx);
        machine_apply(p.m, &op, &p.fx);
        if (i == LIMIT_RECEIPTS - 1)
            script_store(&p);
    }
    machine_counts(p.m, &counts);
    assert_int_equal(counts.receipts, LIMIT_RECEIPTS);
    script_store(&p);
    script_done(&p);
}

static void there_are_so_many_sessions(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    for (int i = 0; i < LIMIT_SESSIONS; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", i);
        struct op op = {.kind = OP_SESSION_OPEN,
                        .index = machine_applied(p.m) + 1,
                        .ttl_ms = 1000,
                        .session = slice_str(id)};
        effects_reset(&p.fx);
        machine_apply(p.m, &op, &p.fx);
    }
    assert_limit(play(&p, "0 session-open more ttl=1000"), "LIMIT_SESSIONS");
    script_store(&p);
    script_done(&p);
}

static struct op valid_acquire(void)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .name = SLICE("n"),
                       .owner = SLICE("o"),
                       .mode = MODE_EXCLUSIVE,
                       .ttl_ms = 1};
}

/* Each size at its bound passes, one more does not. */
static void sizes_have_bounds(void **state)
{
    (void)state;
    static char bytes[LIMIT_BODY_BYTES + 1];
    const struct {
        size_t offset;
        size_t max;
    } rows[] = {
        {offsetof(struct op, name), LIMIT_NAME_BYTES},
        {offsetof(struct op, owner), LIMIT_OWNER_BYTES},
        {offsetof(struct op, ns), LIMIT_NAMESPACE_BYTES},
        {offsetof(struct op, account), LIMIT_ACCOUNT_BYTES},
        {offsetof(struct op, session), LIMIT_SESSION_BYTES},
        {offsetof(struct op, body), LIMIT_BODY_BYTES},
        {offsetof(struct op, text), LIMIT_DESCRIPTION_BYTES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *what = NULL;
        struct op op = valid_acquire();
        struct slice fits = slice_of(bytes, rows[i].max),
                     over = slice_of(bytes, rows[i].max + 1);
        memcpy((char *)&op + rows[i].offset, &fits, sizeof fits);
        assert_int_equal(op_validate(&op, &what), BELAY_OK);
        memcpy((char *)&op + rows[i].offset, &over, sizeof over);
        assert_int_equal(op_validate(&op, &what), BELAY_ERR_RANGE);
        assert_non_null(what);
    }
}

static void numbers_have_bounds(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        uint64_t max;
    } rows[] = {
        {offsetof(struct op, ttl_ms), LIMIT_TTL_MS},
        {offsetof(struct op, wait_ms), LIMIT_WAIT_MS},
        {offsetof(struct op, grace_ms), LIMIT_GRACE_MS},
        {offsetof(struct op, delay_ms), LIMIT_DELAY_MS},
        {offsetof(struct op, linger_ms), LIMIT_LINGER_MS},
        {offsetof(struct op, limit), LIMIT_LIST},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *what = NULL;
        struct op op = valid_acquire();
        uint64_t over = rows[i].max + 1, huge = UINT64_MAX;
        memcpy((char *)&op + rows[i].offset, &rows[i].max, sizeof over);
        assert_int_equal(op_validate(&op, &what), BELAY_OK);
        memcpy((char *)&op + rows[i].offset, &over, sizeof over);
        assert_int_equal(op_validate(&op, &what), BELAY_ERR_RANGE);
        memcpy((char *)&op + rows[i].offset, &huge, sizeof huge);
        assert_int_equal(op_validate(&op, &what), BELAY_ERR_RANGE);
    }
}

static void lists_have_bounds(void **state)
{
    (void)state;
    static struct slice ids[LIMIT_BATCH_SESSIONS + 1];
    static char texts[LIMIT_BATCH_SESSIONS + 1][8];
    const char *what = NULL;
    for (size_t i = 0; i <= LIMIT_BATCH_SESSIONS; i++) {
        snprintf(texts[i], sizeof texts[i], "s%zu", i);
        ids[i] = slice_str(texts[i]);
    }
    struct op keep = {.kind = OP_SESSION_KEEPALIVE, .more = {ids, LIMIT_BATCH_SESSIONS}};
    assert_int_equal(op_validate(&keep, &what), BELAY_OK);
    keep.more.n++;
    assert_int_equal(op_validate(&keep, &what), BELAY_ERR_RANGE);
    struct op op = valid_acquire();
    op.more = (struct names){ids, LIMIT_NAMES_PER_OP};
    enum belay_err at_bound = op_validate(&op, &what);
    op.more.n--;
    assert_int_equal(op_validate(&op, &what), BELAY_OK);
    op.more.n += 2;
    assert_int_equal(op_validate(&op, &what), BELAY_ERR_RANGE);
    assert_true(at_bound == BELAY_OK || at_bound == BELAY_ERR_RANGE);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db                       -> invalid: owner is empty",
        "0 acquire db ann quiet=5           -> invalid: QUIET belongs to POLICY timed",
        "0 acquire db ann shared soft       -> invalid: POLICY soft and timed are for exclusive locks",
        "0 acquire db ann timed=10 wait=9   -> invalid: POLICY timed needs WAIT of at least its quiet time",
        "0 acquire db ann timed=0 wait=9    -> invalid: POLICY timed needs its quiet time: POLICY timed ms",
        "0 release db                       -> invalid: a fence or an owner is needed",
        "0 renew db                         -> invalid: a fence or an owner is needed",
        "0 body db                          -> invalid: a fence or an owner is needed",
        "0 check db                         -> invalid: a fence or an owner is needed",
        "0 convert db shared                -> invalid: a fence or an owner is needed",
        "0 cancel db                        -> invalid: target is missing",
        "0 release db #1 +x                 -> invalid: several names need an owner, not a fence",
        "1 list                             -> rows",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_has_so_many_holders),
        cmocka_unit_test(so_many_holds_are_freed_at_once),
        cmocka_unit_test(a_line_is_not_served_beyond_the_holders),
        cmocka_unit_test(a_lock_has_so_many_waiters),
        cmocka_unit_test(a_hundred_thousand_waits_end_in_batches),
        cmocka_unit_test(a_session_has_so_many_holds_and_waits),
        cmocka_unit_test(an_upgrade_counts_as_a_wait_of_its_session),
        cmocka_unit_test(an_account_has_so_many_namespaces),
        cmocka_unit_test(a_shard_may_have_them_all_and_its_default),
        cmocka_unit_test(what_is_as_large_as_it_may_be_is_stored),
        cmocka_unit_test(so_many_answers_are_kept),
        cmocka_unit_test(there_are_so_many_sessions),
        cmocka_unit_test(sizes_have_bounds),
        cmocka_unit_test(numbers_have_bounds),
        cmocka_unit_test(lists_have_bounds),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
