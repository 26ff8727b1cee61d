/* test_machine_parts.c - long lines, and many lines, take several steps. */
#include "script.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NODE_1                                                                                 \
    "72057594037927937" /* an asker of node 1, and node 1 itself: 1 << 56, and a number */

enum { GRANTS = MACHINE_EXPIRE_BATCH / 4 }; /* in one step */

/* Ticks until nothing is due; how many were granted in them, by ticket and in small parts. */
static size_t granted_by_ticks(struct script *p, int now)
{
    size_t granted = 0;
    for (int steps = 0; machine_due(p->m) <= (uint64_t)now; steps++) {
        assert_true(steps < 1000);
        play(p, "%d tick", now);
        size_t n = script_count(p, EVENT_GRANTED);
        assert_in_range(n, 0, 2 * GRANTS); /* before the op, and of it */
        granted += n;
    }
    return granted;
}

static void one_line_is_served_in_parts(void **state)
{
    (void)state;
    enum { WAITERS = 3 * MACHINE_EXPIRE_BATCH };
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db first ttl=1000");
    for (int i = 0; i < WAITERS; i++)
        play(&p, "0 acquire db o%d shared ttl=1000 wait=500", i);
    play(&p, "1 release db first");
    assert_int_equal(script_count(&p, EVENT_GRANTED), GRANTS);
    assert_int_equal(machine_due(p.m), 1);
    script_store(&p);
    assert_int_equal(play(&p, "1 acquire db late ttl=1000")->kind, EVENT_REFUSED);
    size_t granted = GRANTS + script_count(&p, EVENT_GRANTED);
    granted += granted_by_ticks(&p, 1);
    assert_int_equal(granted, WAITERS);
    assert_int_equal(play(&p, "2 show db")->locks->waiters_total, 0);
    script_done(&p);
}

/* Nobody who comes meanwhile passes those whose part has not come. */
static void many_lines_are_served_in_parts(void **state)
{
    (void)state;
    enum { LINES = 50, EACH = 100 };
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s ttl=100000");
    for (int i = 0; i < LINES; i++)
        play(&p, "0 acquire l%02d first session=s", i);
    for (int i = 0; i < LINES * EACH; i++)
        play(&p, "0 acquire l%02d o%d shared ttl=1000 wait=500", i % LINES, i);
    play(&p, "1 session-close s");
    assert_int_equal(script_count(&p, EVENT_RELEASED), LINES);
    assert_int_equal(script_count(&p, EVENT_GRANTED), GRANTS);
    script_store(&p);
    size_t granted = GRANTS;
    assert_int_equal(play(&p, "1 acquire l%02d late shared ttl=1000", LINES - 1)->kind,
                     EVENT_REFUSED);
    granted += script_count(&p, EVENT_GRANTED);
    granted += granted_by_ticks(&p, 1);
    assert_int_equal(granted, LINES * EACH);
    script_done(&p);
}

/* Behind one who may be passed and cannot go, no other such one can: nobody looks at them. */
static void those_who_may_be_passed_are_not_walked_over(void **state)
{
    (void)state;
    enum { DYING = 3 * MACHINE_EXPIRE_BATCH };
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db reader shared ttl=1000");
    play(&p, "0 acquire db writer soft ttl=1000 wait=500");
    for (int i = 0; i < DYING; i++)
        play(&p, "0 acquire db o%d soft ttl=1000 wait=100", i);
    play(&p, "0 acquire db hard ttl=1000 wait=500");
    play(&p, "0 acquire db behind shared ttl=1000 wait=500");
    play(&p, "100 tick");
    assert_int_equal(script_count(&p, EVENT_TIMEOUT), MACHINE_EXPIRE_BATCH);
    script_store(&p);
    assert_int_equal(granted_by_ticks(&p, 100), 0);
    play(&p, "101 release db reader");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1);
    assert_true(slice_eq(play(&p, "101 show db")->locks->holders[0].owner, SLICE("writer")));
    script_done(&p);
}

/* The next part of a line may begin with one who waits at a silent node, and whose time is over:
 * its turn comes, and serves the others. */
static void a_part_may_begin_with_one_who_is_passed_over(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    machine_set_batch(p.m, 2);
    play(&p, "0 acquire a ann ttl=10");
    play(&p, "0 acquire a next ttl=100 wait=500");
    play(&p, "0 acquire db ann ttl=10");
    play(&p, "0 acquire db bob ttl=100 wait=10 asker=" NODE_1);
    play(&p, "0 acquire db cy ttl=100 wait=500");
    play(&p, "1 node away target=" NODE_1);
    play(&p, "10 tick");
    assert_int_equal(script_count(&p, EVENT_EXPIRED), 2);
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1); /* that was the part of this step */
    assert_int_equal(machine_due(p.m), 10);
    script_store(&p);
    play(&p, "10 tick");
    assert_int_equal(script_count(&p, EVENT_TIMEOUT), 1);
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1);
    script_done(&p);
}

/* The upgrade stands first with a late ticket. A walk that leaves it out because its node is silent,
 * and then passes a soft writer, goes on behind that writer, and not behind the upgrade's ticket. */
static void a_silent_upgrade_lets_nobody_pass_a_writer(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db ann shared ttl=1000");
    play(&p, "0 acquire db bob shared ttl=1000");
    play(&p, "0 acquire db writer soft ttl=1000 wait=500");
    play(&p, "0 acquire db hard ttl=1000 wait=500");
    play(&p, "0 convert db #1 exclusive wait=500 asker=" NODE_1);
    play(&p, "0 acquire db late shared ttl=1000 wait=500");
    play(&p, "1 node away target=" NODE_1);
    assert_int_equal(script_count(&p, EVENT_GRANTED), 0);
    script_store(&p);
    play(&p, "2 release db bob");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 0);
    assert_int_equal(play(&p, "2 show db")->locks->waiters_total, 4);
    script_done(&p);
}

/* The turn of the first one whose part has not come is due. Who waits there asks again or goes away
 * before that turn comes, because older ends come first: the line goes on all the same. */
static void a_turn_that_is_due_is_not_lost(void **state)
{
    (void)state;
    const char *const moves[] = {"10 acquire db two soft ttl=1000 wait=600",
                                 "10 cancel db away target=77 owner=two request=r"};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        struct script p;
        script_open(&p);
        machine_set_batch(p.m, 2);
        for (int k = 0; k < 8; k++)
            play(&p, "0 acquire old%d ann ttl=5", k);
        play(&p, "0 acquire db ann ttl=1000");
        play(&p, "0 acquire db dying shared ttl=1000 wait=8");
        play(&p, "0 acquire db dead shared ttl=1000 wait=8");
        play(&p, "0 acquire db two soft ttl=1000 wait=500 asker=77 request=r");
        play(&p, "0 acquire db three shared ttl=1000 wait=500");
        play(&p, "10 release db ann");
        assert_int_equal(script_count(&p, EVENT_TIMEOUT),
                         2); /* that was the part of this step */
        play(&p, "%s", moves[i]);
        script_store(&p);
        play(&p, "11 tick");
        play(&p, "11 tick");
        play(&p, "11 tick");
        play(&p, "11 tick");
        assert_int_equal(play(&p, "11 show db")->locks->waiters_total,
                         1); /* one of them has it */
        script_done(&p);
    }
}

/* Readers who come do not set the clocks of all who wait for quiet; these see it by themselves. */
static void who_waits_for_quiet_is_not_told_of_every_reader(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db one shared ttl=1000");
    play(&p, "0 acquire db w timed=50 ttl=100 wait=500");
    play(&p, "20 acquire db two shared ttl=1000");
    assert_int_equal(machine_due(p.m), 50); /* as planned before the second reader came */
    script_store(&p);
    play(&p, "50 release db one");
    assert_int_equal(machine_due(p.m), 70);
    play(&p, "60 release db two");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 0);
    script_store(&p);
    play(&p, "70 tick");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1);
    script_done(&p);
}

static void a_namespace_with_one_long_line_goes_in_parts(void **state)
{
    (void)state;
    enum { WAITERS = 3 * MACHINE_EXPIRE_BATCH };
    struct script p;
    script_open(&p);
    play(&p, "0 namespace-create n1");
    play(&p, "0 acquire db first ns=n1 ttl=1000");
    for (int i = 0; i < WAITERS; i++)
        play(&p, "0 acquire db o%d ns=n1 ttl=1000 wait=500", i);
    play(&p, "1 namespace-delete n1 force");
    size_t left = script_count(&p, EVENT_LEFT);
    assert_int_equal(left, MACHINE_EXPIRE_BATCH);
    script_store(&p);
    for (int steps = 0; machine_due(p.m) <= 1; steps++) {
        assert_true(steps < 10);
        play(&p, "1 tick");
        size_t n = script_count(&p, EVENT_LEFT);
        assert_in_range(n, 0, MACHINE_EXPIRE_BATCH);
        left += n;
    }
    assert_int_equal(left, WAITERS);
    struct machine_counts counts;
    machine_counts(p.m, &counts);
    assert_int_equal(counts.locks, 0);
    script_done(&p);
}

/* What a session has goes in parts, but from the first of them on nobody can use it. */
static void the_end_of_a_session_goes_in_parts(void **state)
{
    (void)state;
    enum { LOCKS = 3 * MACHINE_EXPIRE_BATCH - 1 };
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s ttl=100000");
    play(&p, "0 acquire x first ttl=1000");
    for (int i = 0; i < LOCKS; i++)
        play(&p, "0 acquire l%04d ann session=s", i);
    uint64_t fence = p.fx.events[0].fence;
    play(&p, "0 acquire x ann session=s wait=500"); /* the last of all that it has */
    play(&p, "0 acquire l%04d next ttl=1000 wait=500", LOCKS - 1);
    const struct event *ev = play(&p, "1 session-close s");
    assert_int_equal(ev->kind, EVENT_SESSION_ENDED);
    assert_int_equal(ev->count, LOCKS + 1);
    assert_false(ev->news); /* that comes at the end */
    assert_int_equal(script_count(&p, EVENT_RELEASED), MACHINE_EXPIRE_BATCH);
    assert_int_equal(machine_due(p.m), 1);
    assert_true(machine_session_ends(p.m, slice_of("", 0), SLICE("s")));
    script_store(&p);
    machine_set_batch(p.m, 1); /* so that it does not end while it is looked at */
    assert_int_equal(play(&p, "1 session-close s")->err, BELAY_ERR_NO_SESSION);
    assert_int_equal(play(&p, "1 session-show s")->err, BELAY_ERR_NO_SESSION);
    assert_int_equal(play(&p, "1 session-list")->n_rows, 0);
    assert_int_equal(play(&p, "1 session-open s ttl=9")->err, BELAY_ERR_EXISTS);
    assert_int_equal(play(&p, "1 acquire y ann session=s")->err, BELAY_ERR_NO_SESSION);
    ev = play(&p, "1 renew l%04d #%" PRIu64 " ttl=1000", LOCKS - 1, fence);
    assert_int_equal(ev->err, BELAY_ERR_STALE);
    ev = play(&p, "1 acquire l%04d late ttl=1000", LOCKS - 1);
    assert_int_equal(ev->kind, EVENT_REFUSED);
    play(&p, "1 release x first");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 0);
    assert_int_equal(script_count(&p, EVENT_LEFT), 1); /* the turn of a dead one */
    script_store(&p);
    machine_set_batch(p.m, MACHINE_EXPIRE_BATCH);
    size_t granted = 0, ended = 0;
    while (machine_due(p.m) <= 1) {
        play(&p, "1 tick");
        assert_in_range(script_count(&p, EVENT_RELEASED), 1, MACHINE_EXPIRE_BATCH);
        granted += script_count(&p, EVENT_GRANTED);
        ended += script_count(&p, EVENT_SESSION_ENDED);
        script_store(&p);
    }
    assert_int_equal(granted, 1);
    assert_int_equal(ended, 1);
    assert_false(machine_session_ends(p.m, slice_of("", 0), SLICE("s")));
    assert_int_equal(play(&p, "2 session-open s ttl=9")->kind, EVENT_SESSION_OPENED);
    script_done(&p);
}

/* Its records are seen no more, all at once, and its transactions that wait are answered. */
static void variables_of_a_session_that_ends_are_not_seen(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    machine_set_batch(p.m, 8);
    play(&p, "0 session-open s ttl=100");
    play(&p, "0 session-open t ttl=1000");
    for (int i = 0; i < 20; i++)
        play(&p, "0 txn s assert(set(t,k%d,1))", i);
    for (int i = 0; i < 3; i++)
        play(&p, "0 txn s assert(exists(t,none)) wait=500");
    play(&p, "0 txn t assert(not(exists(t,k19))) wait=500");
    play(&p, "100 tick");
    assert_int_equal(script_count(&p, EVENT_TXN), 2); /* who waits is told: four units each */
    script_store(&p);
    const struct event *ev = play(&p, "100 txn t assert(not(exists(t,k18)))");
    assert_int_equal(ev->status, TXN_OK);
    size_t told = 0;
    while (machine_due(p.m) <= 100) {
        play(&p, "100 tick");
        for (size_t i = 0; i < p.fx.n; i++)
            told += p.fx.events[i].kind == EVENT_TXN && p.fx.events[i].status == TXN_OK;
        script_store(&p);
    }
    assert_int_equal(told, 1); /* the one that waited for a record to go */
    struct machine_counts counts;
    machine_counts(p.m, &counts);
    assert_int_equal(counts.variables + counts.transactions, 0);
    script_done(&p);
}

/* No deadlock is seen where a session is about to give its locks back. */
static void a_session_that_ends_closes_no_cycle(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    machine_set_batch(p.m, 1);
    play(&p, "0 session-open s ttl=1000");
    play(&p, "0 acquire spare ann session=s");
    play(&p, "0 acquire a ann session=s");
    play(&p, "0 acquire b bob ttl=1000");
    play(&p, "0 acquire b ann session=s wait=500");
    play(&p, "1 session-close s");
    play(&p, "0 acquire a bob ttl=1000 wait=500");
    assert_int_equal(script_count(&p, EVENT_DEADLOCK), 0);
    script_store(&p);
    script_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line_is_served_in_parts),
        cmocka_unit_test(many_lines_are_served_in_parts),
        cmocka_unit_test(those_who_may_be_passed_are_not_walked_over),
        cmocka_unit_test(a_part_may_begin_with_one_who_is_passed_over),
        cmocka_unit_test(a_silent_upgrade_lets_nobody_pass_a_writer),
        cmocka_unit_test(a_turn_that_is_due_is_not_lost),
        cmocka_unit_test(who_waits_for_quiet_is_not_told_of_every_reader),
        cmocka_unit_test(a_namespace_with_one_long_line_goes_in_parts),
        cmocka_unit_test(the_end_of_a_session_goes_in_parts),
        cmocka_unit_test(variables_of_a_session_that_ends_are_not_seen),
        cmocka_unit_test(a_session_that_ends_closes_no_cycle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
