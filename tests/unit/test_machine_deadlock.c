/* test_machine_deadlock.c - a wait that would close a cycle is refused, and the cycle is named.
 */
#include "script.h"
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void two_owners_two_locks(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=1000 -> granted ann #1 1000ms",
        "0 acquire b bob ttl=1000 -> granted bob #2 1000ms",
        "1 acquire b ann wait=500 -> (queued ann ticket=3 place=1 500ms)",
        "2 acquire a bob wait=500 -> deadlock bob (bob:a ann:b)",
        "3 acquire a bob          -> refused bob held",
        "4 show a                 -> rows [a exclusive ann#1:exclusive held=4 left=996]",
        NULL,
    });
}

static void three_owners_in_a_ring(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=1000 -> granted ann #1 1000ms",
        "0 acquire b bob ttl=1000 -> granted bob #2 1000ms",
        "0 acquire c cy ttl=1000  -> granted cy #3 1000ms",
        "1 acquire b ann wait=500 -> (queued ann ticket=4 place=1 500ms)",
        "1 acquire c bob wait=500 -> (queued bob ticket=5 place=1 500ms)",
        "2 acquire a cy wait=500  -> deadlock cy (cy:a ann:b bob:c)",
        NULL,
    });
}

static void through_a_shared_holder(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann shared ttl=1000 -> granted ann #1 1000ms",
        "0 acquire a di shared ttl=1000  -> granted di #2 1000ms",
        "0 acquire b bob ttl=1000        -> granted bob #3 1000ms",
        "1 acquire b di wait=500         -> (queued di ticket=4 place=1 500ms)",
        "2 acquire a bob wait=500        -> deadlock bob (bob:a di:b)",
        NULL,
    });
}

/* waiting in the same direction is fine */
static void no_cycle_no_deadlock(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=1000 -> granted ann #1 1000ms",
        "0 acquire b bob ttl=1000 -> granted bob #2 1000ms",
        "1 acquire a bob wait=500 -> (queued bob ticket=3 place=1 500ms)",
        "1 acquire b cy wait=500  -> (queued cy ticket=4 place=1 500ms)",
        "1 acquire a cy wait=500  -> (queued cy ticket=5 place=2 500ms)",
        NULL,
    });
}

static void when_the_wait_has_gone_there_is_no_cycle(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire a ann ttl=1000 -> granted ann #1 1000ms",
        " 0 acquire b bob ttl=1000 -> granted bob #2 1000ms",
        " 1 acquire b ann wait=10  -> (queued ann ticket=3 place=1 10ms)",
        "11 acquire a bob wait=500 -> timeout ann ticket=3 waited=10 on b @3, (queued bob ticket=4 place=1 500ms)",
        NULL,
    });
}

/* a permit may come from anybody */
static void a_semaphore_is_left_out(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 1/2 ttl=1000 -> granted ann #1 n=1 1000ms",
        "0 acquire pool cy 1/2 ttl=1000  -> granted cy #2 n=1 1000ms",
        "0 acquire b bob ttl=1000        -> granted bob #3 1000ms",
        "1 acquire b ann wait=500        -> (queued ann ticket=4 place=1 500ms)",
        "2 acquire pool bob 1/2 wait=500 -> (queued bob ticket=5 place=1 500ms)",
        NULL,
    });
}

static void the_same_owner_in_another_session_is_another_one(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000          -> session-opened 1000ms in=s1",
        "0 acquire a ann ttl=1000            -> granted ann #2 1000ms",
        "0 acquire b bob ttl=1000            -> granted bob #3 1000ms",
        "1 acquire b ann session=s1 wait=500 -> (queued ann ticket=4 place=1 500ms in=s1)",
        "2 acquire a bob wait=500            -> (queued bob ticket=5 place=1 500ms)",
        NULL,
    });
}

static void another_namespace_is_another_world(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create n1          -> namespace-created",
        "0 acquire a ann ttl=1000       -> granted ann #1 1000ms",
        "0 acquire b bob ttl=1000 ns=n1 -> granted bob #2 1000ms",
        "1 acquire b ann wait=500 ns=n1 -> (queued ann ticket=3 place=1 500ms)",
        "2 acquire a bob wait=500       -> (queued bob ticket=4 place=1 500ms)",
        NULL,
    });
}

/* each wait is an edge */
static void one_owner_waiting_for_many_locks(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=1000 -> granted ann #1 1000ms",
        "0 acquire b bob ttl=1000 -> granted bob #2 1000ms",
        "0 acquire c cy ttl=1000  -> granted cy #3 1000ms",
        "1 acquire b ann wait=500 -> (queued ann ticket=4 place=1 500ms)",
        "1 acquire c ann wait=500 -> (queued ann ticket=5 place=1 500ms)",
        "2 acquire a cy wait=500  -> deadlock cy (cy:a ann:c)",
        "3 acquire a bob wait=500 -> deadlock bob (bob:a ann:b)",
        NULL,
    });
}

/* of a longer cycle the first ones */
static void sixteen_steps_are_named(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire l1 o1            -> granted o1 #1 forever",
        "0 acquire l2 o2            -> granted o2 #2 forever",
        "0 acquire l3 o3            -> granted o3 #3 forever",
        "0 acquire l4 o4            -> granted o4 #4 forever",
        "0 acquire l5 o5            -> granted o5 #5 forever",
        "0 acquire l6 o6            -> granted o6 #6 forever",
        "0 acquire l7 o7            -> granted o7 #7 forever",
        "0 acquire l8 o8            -> granted o8 #8 forever",
        "0 acquire l9 o9            -> granted o9 #9 forever",
        "0 acquire l10 o10          -> granted o10 #10 forever",
        "0 acquire l11 o11          -> granted o11 #11 forever",
        "0 acquire l12 o12          -> granted o12 #12 forever",
        "0 acquire l13 o13          -> granted o13 #13 forever",
        "0 acquire l14 o14          -> granted o14 #14 forever",
        "0 acquire l15 o15          -> granted o15 #15 forever",
        "0 acquire l16 o16          -> granted o16 #16 forever",
        "0 acquire l17 o17          -> granted o17 #17 forever",
        "1 acquire l2 o1 wait=500   -> (queued o1 ticket=18 place=1 500ms)",
        "1 acquire l3 o2 wait=500   -> (queued o2 ticket=19 place=1 500ms)",
        "1 acquire l4 o3 wait=500   -> (queued o3 ticket=20 place=1 500ms)",
        "1 acquire l5 o4 wait=500   -> (queued o4 ticket=21 place=1 500ms)",
        "1 acquire l6 o5 wait=500   -> (queued o5 ticket=22 place=1 500ms)",
        "1 acquire l7 o6 wait=500   -> (queued o6 ticket=23 place=1 500ms)",
        "1 acquire l8 o7 wait=500   -> (queued o7 ticket=24 place=1 500ms)",
        "1 acquire l9 o8 wait=500   -> (queued o8 ticket=25 place=1 500ms)",
        "1 acquire l10 o9 wait=500  -> (queued o9 ticket=26 place=1 500ms)",
        "1 acquire l11 o10 wait=500 -> (queued o10 ticket=27 place=1 500ms)",
        "1 acquire l12 o11 wait=500 -> (queued o11 ticket=28 place=1 500ms)",
        "1 acquire l13 o12 wait=500 -> (queued o12 ticket=29 place=1 500ms)",
        "1 acquire l14 o13 wait=500 -> (queued o13 ticket=30 place=1 500ms)",
        "1 acquire l15 o14 wait=500 -> (queued o14 ticket=31 place=1 500ms)",
        "1 acquire l16 o15 wait=500 -> (queued o15 ticket=32 place=1 500ms)",
        "2 acquire l1 o16 wait=500  -> deadlock o16 (o16:l1 o1:l2 o2:l3 o3:l4 o4:l5 o5:l6 o6:l7 o7:l8 o8:l9 o9:l10 o10:l11 o11:l12 o12:l13 o13:l14 o14:l15 o15:l16)",
        "3 acquire l17 o16 wait=500 -> (queued o16 ticket=33 place=1 500ms)",
        "4 acquire l1 o17 wait=500  -> deadlock o17 (o17:l1 o1:l2 o2:l3 o3:l4 o4:l5 o5:l6 o6:l7 o7:l8 o8:l9 o9:l10 o10:l11 o11:l12 o12:l13 o13:l14 o14:l15 o15:l16)",
        NULL,
    });
}

/* Each of `n` holds a lock and waits for the next one's; the last closes the cycle. */
static enum event_kind ring(struct script *p, int n)
{
    for (int i = 0; i < n; i++)
        play(p, "0 acquire l%d o%d", i, i);
    for (int i = 0; i < n - 1; i++)
        assert_int_equal(play(p, "1 acquire l%d o%d wait=500 noblock", i + 1, i)->kind,
                         EVENT_QUEUED);
    return play(p, "2 acquire l0 o%d wait=500 noblock", n - 1)->kind;
}

static void a_ring_of_thousands_is_found(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    assert_int_equal(ring(&p, 2000), EVENT_DEADLOCK);
    script_done(&p);
    /* 8,192 waits and 8,192 holders: the last edge that is looked at closes it */
    script_open(&p);
    assert_int_equal(ring(&p, 8192), EVENT_DEADLOCK);
    script_done(&p);
    script_open(&p);
    assert_int_equal(ring(&p, 8193), EVENT_QUEUED);
    script_done(&p);
}

/* A log of an earlier version is replayed as it was written. */
static void before_the_level_sixteen_steps_are_searched(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    machine_set_level(p.m, 0);
    assert_int_equal(ring(&p, 16), EVENT_DEADLOCK);
    script_done(&p);
    script_open(&p);
    machine_set_level(p.m, 0);
    assert_int_equal(ring(&p, 17), EVENT_QUEUED);
    script_done(&p);
}

/* Of a lock the oldest holders, 1,024 of them. */
static void so_many_holders_of_a_lock_are_searched(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire mine ann");
    for (int i = 0; i < 1030; i++)
        play(&p, "0 acquire db o%d shared", i);
    play(&p, "1 acquire mine o1023 wait=500");
    assert_int_equal(play(&p, "2 acquire db ann wait=500 noblock")->kind, EVENT_DEADLOCK);
    play(&p, "3 release mine o1023");
    play(&p, "3 acquire mine o1024 wait=500");
    assert_int_equal(play(&p, "4 acquire db ann wait=500 noblock")->kind, EVENT_QUEUED);
    script_done(&p);
}

/* All waits of one who waits for many locks are looked at: by ticket, and never by the order of
 * a hash table, which a snapshot or another key would change. */
static void all_waits_of_an_owner_are_searched(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire mine ann");
    for (int i = 40; i > 0; i--) {
        play(&p, "0 acquire l%d o%d", i, i);
        play(&p, "0 acquire l%d ann wait=500", i); /* l40 is the first, l1 the last */
    }
    for (int i = 40; i > 0; i--) {
        const struct event *ev = play(&p, "1 acquire mine o%d wait=500 noblock", i);
        assert_int_equal(ev->kind, EVENT_DEADLOCK);
    }
    script_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_owners_two_locks),
        cmocka_unit_test(three_owners_in_a_ring),
        cmocka_unit_test(through_a_shared_holder),
        cmocka_unit_test(no_cycle_no_deadlock),
        cmocka_unit_test(when_the_wait_has_gone_there_is_no_cycle),
        cmocka_unit_test(a_semaphore_is_left_out),
        cmocka_unit_test(the_same_owner_in_another_session_is_another_one),
        cmocka_unit_test(another_namespace_is_another_world),
        cmocka_unit_test(one_owner_waiting_for_many_locks),
        cmocka_unit_test(sixteen_steps_are_named),
        cmocka_unit_test(a_ring_of_thousands_is_found),
        cmocka_unit_test(before_the_level_sixteen_steps_are_searched),
        cmocka_unit_test(so_many_holders_of_a_lock_are_searched),
        cmocka_unit_test(all_waits_of_an_owner_are_searched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
