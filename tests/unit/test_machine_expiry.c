/* test_machine_expiry.c - ends: in order, in batches, late at worst, never early, never
 * revived. */
#include "script.h"
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void ends_are_worked_off_by_time_and_then_by_number(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire c ann ttl=30         -> granted ann #1 30ms",
        " 0 acquire a ann ttl=20         -> granted ann #2 20ms",
        " 0 session-open s1 ttl=20       -> session-opened 20ms in=s1",
        " 0 acquire b bob ttl=20         -> granted bob #4 20ms",
        " 0 acquire c bob ttl=9 wait=20  -> (queued bob ticket=5 place=1 20ms)",
        "50 tick                         -> (expired ann #2 ttl on a), (session-ended ttl in=s1), "
        "(expired bob #4 ttl on b), timeout bob ticket=5 waited=50 on c @5, "
        "(expired ann #1 ttl on c)",
        NULL,
    });
}

static void a_renewed_lease_is_not_due_at_its_old_end(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    assert_true(machine_due(p.m) == UINT64_MAX);
    play(&p, "0 acquire a ann ttl=100");
    assert_int_equal(machine_due(p.m), 100);
    play(&p, "50 renew a ann ttl=200");
    assert_int_equal(machine_due(p.m), 250);
    play(&p, "60 acquire a bob ttl=10 wait=20");
    assert_int_equal(machine_due(p.m), 80);
    play(&p, "61 release a bob");
    assert_int_equal(machine_due(p.m), 250);
    play(&p, "62 release a ann");
    assert_true(machine_due(p.m) == UINT64_MAX);
    script_done(&p);
}

/* More leases end together than one op works off. Until its turn comes such a hold keeps others
 * out, but it cannot be used, renewed or asked for again. */
static void a_batch_at_a_time(void **state)
{
    (void)state;
    enum { LOCKS = 2 * MACHINE_EXPIRE_BATCH + 10 };
    struct script p;
    script_open(&p);
    for (int i = 0; i < LOCKS; i++)
        play(&p, "0 acquire l%d ann ttl=100", i);
    uint64_t last = LOCKS; /* the fence of the one whose turn comes last */
    play(&p, "99 tick");
    assert_int_equal(p.fx.n, 0);

    const struct event *ev = play(&p, "100 acquire l%d bob ttl=100", LOCKS - 1);
    assert_int_equal(script_count(&p, EVENT_EXPIRED), MACHINE_EXPIRE_BATCH);
    assert_int_equal(ev->kind, EVENT_REFUSED); /* still keeps others out */
    assert_int_equal(machine_due(p.m), 100);   /* and says that more is due */
    assert_int_equal(
        play(&p, "100 check l%d #%llu", LOCKS - 1, (unsigned long long)last)->count, 0);

    ev = play(&p, "100 renew l%d ann", LOCKS - 1);
    assert_int_equal(script_count(&p, EVENT_EXPIRED), MACHINE_EXPIRE_BATCH);
    assert_int_equal(ev->err, BELAY_ERR_STALE); /* never revived */
    play(&p, "100 tick");
    assert_int_equal(script_count(&p, EVENT_EXPIRED), 10);
    assert_true(machine_due(p.m) == UINT64_MAX);
    script_done(&p);
}

static void who_asks_again_ends_its_own_hold_before_its_turn(void **state)
{
    (void)state;
    enum { LOCKS = MACHINE_EXPIRE_BATCH + 1 };
    struct script p;
    script_open(&p);
    for (int i = 0; i < LOCKS; i++)
        play(&p, "0 acquire l%d ann ttl=100", i);
    assert_int_equal(play(&p, "100 acquire l%d ann ttl=100", LOCKS - 1)->kind, EVENT_GRANTED);
    assert_int_equal(script_count(&p, EVENT_EXPIRED), LOCKS);
    script_done(&p);
}

/* So many ends at 100 that what comes after them waits for its turn. */
static void crowd(struct script *p)
{
    for (int i = 0; i < 3 * MACHINE_EXPIRE_BATCH; i++)
        play(p, "0 acquire l%d other ttl=100", i);
}

static void in_a_grace_that_has_not_begun_nothing_is_left(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    crowd(&p);
    play(&p, "0 acquire db ann ttl=100 grace=1000 request=r1");
    const struct event *ev = play(&p, "150 acquire db ann ttl=100 grace=1000 request=r1");
    assert_int_equal(ev->kind, EVENT_GRANTED);
    assert_int_equal(ev->expires_in_ms, 0);
    /* ADD_TTL: so much more than what remains, and nothing does */
    ev = play(&p, "160 renew db ann add ttl=20");
    assert_int_equal(ev->kind, EVENT_RENEWED);
    assert_int_equal(ev->expires_in_ms, 20);
    script_done(&p);
}

static void a_hold_that_is_over_is_not_revived_by_its_upgrade(void **state)
{
    (void)state;
    for (uint64_t level = 0; level <= 1; level++) {
        struct script p;
        script_open(&p);
        machine_set_level(p.m, level);
        crowd(&p);
        play(&p, "0 acquire db ann shared ttl=100");
        play(&p, "0 acquire db bob shared ttl=1000");
        play(&p, "1 convert db ann exclusive wait=5000");
        play(&p, "150 release db bob");
        /* as it was before the level, for logs of then */
        assert_int_equal(script_count(&p, EVENT_GRANTED), level == 0);
        script_store(&p);
        for (int i = 0; i < 3; i++)
            play(&p, "150 tick");
        assert_int_equal(play(&p, "150 acquire db cy ttl=100")->kind,
                         level ? EVENT_GRANTED : EVENT_REFUSED);
        script_done(&p);
    }
}

/* Of its own, as when it asks for one. */
static void several_names_end_what_is_over_first(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    crowd(&p);
    play(&p, "0 acquire a ann ttl=100 +b");
    assert_int_equal(play(&p, "150 acquire a ann ttl=100 +b")->kind, EVENT_GRANTED);
    script_done(&p);
}

static void what_was_over_may_be_taken_as_another_kind(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    crowd(&p);
    play(&p, "0 acquire db ann ttl=100");
    assert_int_equal(play(&p, "150 acquire db ann 1/3 ttl=100")->kind, EVENT_GRANTED);
    script_done(&p);
}

/* The waiters' own ends have not had their turn when the holds before them end. */
static void a_dead_waiter_is_not_granted_although_its_turn_has_not_come(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire db ann ttl=100");
    for (int i = 0; i < MACHINE_EXPIRE_BATCH + 100; i++)
        play(&p, "0 acquire db o%d ttl=100 wait=101", i);
    play(&p, "0 acquire db patient ttl=100 wait=5000");
    play(&p, "200 tick");
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1);
    for (size_t i = 0; i < p.fx.n; i++)
        if (p.fx.events[i].kind == EVENT_GRANTED)
            assert_true(slice_eq(p.fx.events[i].owner, SLICE("patient")));
    script_done(&p);
}

/* As many dead waiters as one service takes out, and one alive behind them: nobody may be
 * forgotten there. */
static void behind_a_full_batch_of_dead_waiters_the_next_one_is_granted(void **state)
{
    (void)state;
    for (int more = -2; more <= 2; more++) {
        struct script p;
        size_t granted = 0;
        script_open(&p);
        play(&p, "0 acquire db ann ttl=100");
        for (int i = 0; i < 2 * MACHINE_EXPIRE_BATCH + more; i++)
            play(&p, "0 acquire db o%d ttl=100 wait=101", i);
        play(&p, "0 acquire db patient ttl=100 wait=5000");
        do {
            play(&p, "200 tick");
            granted += script_count(&p, EVENT_GRANTED);
        } while (machine_due(p.m) <= 200);
        assert_int_equal(granted, 1);
        script_done(&p);
    }
}

static void a_waiter_whose_session_is_over_is_not_granted_either(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s1 ttl=100");
    for (int i = 0; i < MACHINE_EXPIRE_BATCH; i++)
        play(&p, "0 acquire l%d ann ttl=99", i); /* a full batch comes first */
    play(&p, "0 acquire db ann ttl=1000");
    play(&p, "0 acquire db bob session=s1 wait=5000");
    const struct event *ev = play(&p, "100 release db ann");
    assert_int_equal(script_count(&p, EVENT_EXPIRED), MACHINE_EXPIRE_BATCH);
    assert_int_equal(ev->kind, EVENT_RELEASED);
    assert_int_equal(script_count(&p, EVENT_GRANTED), 0);
    assert_int_equal(script_count(&p, EVENT_LEFT), 1);
    play(&p, "100 tick");
    assert_int_equal(script_count(&p, EVENT_SESSION_ENDED), 1);
    script_done(&p);
}

static void a_big_session_ends_in_parts(void **state)
{
    (void)state;
    enum { LOCKS = 3 * MACHINE_EXPIRE_BATCH };
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s1 ttl=100");
    for (int i = 0; i < LOCKS; i++)
        play(&p, "0 acquire l%d ann session=s1", i);
    for (int left = LOCKS; left > 0; left -= MACHINE_EXPIRE_BATCH) {
        assert_int_equal(machine_due(p.m), 100);
        play(&p, "100 tick");
        assert_int_equal(script_count(&p, EVENT_EXPIRED), MACHINE_EXPIRE_BATCH);
        assert_int_equal(script_count(&p, EVENT_SESSION_ENDED), left == MACHINE_EXPIRE_BATCH);
    }
    assert_int_equal(machine_due(p.m), UINT64_MAX);
    script_done(&p);
}

static void a_big_namespace_is_taken_apart_over_the_following_ops(void **state)
{
    (void)state;
    enum { LOCKS = 2 * MACHINE_EXPIRE_BATCH };
    struct script p;
    script_open(&p);
    play(&p, "0 namespace-create n1");
    for (int i = 0; i < LOCKS; i++)
        play(&p, "0 acquire l%d ann ttl=100000 ns=n1", i);
    assert_int_equal(play(&p, "1 namespace-delete n1")->err, BELAY_ERR_IN_USE);
    assert_int_equal(play(&p, "1 namespace-delete n1 force")->kind, EVENT_NAMESPACE_DELETED);
    size_t told = script_count(&p, EVENT_EXPIRED);
    assert_true(told < LOCKS);
    assert_int_equal(play(&p, "1 namespace-create n1")->kind, EVENT_NAMESPACE_CREATED);
    told += script_count(&p, EVENT_EXPIRED);
    assert_int_equal(play(&p, "1 acquire l0 bob ttl=100000 ns=n1")->kind, EVENT_GRANTED);
    told += script_count(&p, EVENT_EXPIRED);
    for (int i = 0; machine_due(p.m) <= 1; i++) {
        assert_true(i < 10);
        play(&p, "1 tick");
        told += script_count(&p, EVENT_EXPIRED);
    }
    assert_int_equal(told, LOCKS);
    assert_int_equal(play(&p, "1 namespace-show n1")->namespaces[0].held, 1);
    script_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_worked_off_by_time_and_then_by_number),
        cmocka_unit_test(a_renewed_lease_is_not_due_at_its_old_end),
        cmocka_unit_test(a_batch_at_a_time),
        cmocka_unit_test(who_asks_again_ends_its_own_hold_before_its_turn),
        cmocka_unit_test(in_a_grace_that_has_not_begun_nothing_is_left),
        cmocka_unit_test(a_hold_that_is_over_is_not_revived_by_its_upgrade),
        cmocka_unit_test(several_names_end_what_is_over_first),
        cmocka_unit_test(what_was_over_may_be_taken_as_another_kind),
        cmocka_unit_test(a_dead_waiter_is_not_granted_although_its_turn_has_not_come),
        cmocka_unit_test(behind_a_full_batch_of_dead_waiters_the_next_one_is_granted),
        cmocka_unit_test(a_waiter_whose_session_is_over_is_not_granted_either),
        cmocka_unit_test(a_big_session_ends_in_parts),
        cmocka_unit_test(a_big_namespace_is_taken_apart_over_the_following_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
