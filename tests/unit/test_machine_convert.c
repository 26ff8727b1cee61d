/* test_machine_convert.c - up and down between shared and exclusive. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void down_at_once_and_the_readers_behind_may_come(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100                 -> granted ann #1 100ms",
        "1 acquire db bob shared ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 convert db #1 shared                   -> granted ann #3 100ms, granted bob #4 ticket=2 100ms waited=1 @2",
        "3 check db #1                            -> checked",
        NULL,
    });
}

/* although others wait */
static void up_at_once_when_it_is_the_only_holder(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=100   -> granted ann #1 100ms",
        " 1 acquire db bob ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        " 2 convert db ann exclusive ttl=50 -> granted ann #3 50ms",
        " 3 show db                         -> rows [db exclusive ann#3:exclusive held=1 left=49 1.bob@2:exclusive waited=2 left=498]",
        "52 tick                            -> (expired ann #3 ttl on db), granted bob #4 ticket=2 100ms waited=51 on db @2",
        NULL,
    });
}

static void up_waits_ahead_of_the_line_and_keeps_its_hold(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=1000          -> granted ann #1 1000ms",
        " 0 acquire db bob shared ttl=1000          -> granted bob #2 1000ms",
        " 1 acquire db cy ttl=100 wait=500          -> (queued cy ticket=3 place=1 500ms)",
        " 2 convert db #1 exclusive wait=300 ttl=70 -> (queued ann ticket=4 place=1 300ms)",
        " 3 show db                                 -> rows [db shared ann#1:shared held=3 left=997 bob#2:shared held=3 left=997 1.ann@4:exclusive waited=1 left=299 2.cy@3:exclusive waited=2 left=498]",
        " 4 release db #2                           -> (released bob #2 release), released n=1, granted ann #5 ticket=4 70ms waited=2 @4",
        " 5 check db #1                             -> checked",
        "74 tick                                    -> (expired ann #5 ttl on db), granted cy #6 ticket=3 100ms waited=73 on db @3",
        NULL,
    });
}

static void without_waiting_it_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=1000 -> granted ann #1 1000ms",
        "0 acquire db bob shared ttl=1000 -> granted bob #2 1000ms",
        "1 convert db ann exclusive       -> refused ann held",
        "2 check db #1                    -> checked #1 n=1",
        NULL,
    });
}

/* the second is told at once */
static void two_that_want_up_are_a_deadlock(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=1000    -> granted ann #1 1000ms",
        "0 acquire db bob shared ttl=1000    -> granted bob #2 1000ms",
        "1 convert db ann exclusive wait=300 -> (queued ann ticket=3 place=1 300ms)",
        "2 convert db bob exclusive wait=300 -> deadlock bob (bob:db ann:db)",
        "3 convert db bob exclusive          -> deadlock bob (bob:db ann:db)",
        "4 release db bob                    -> (released bob #2 release), released n=1, granted ann #4 ticket=3 1000ms waited=3 @3",
        NULL,
    });
}

/* in whatever way: here by its ttl */
static void when_the_hold_is_lost_the_upgrade_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann shared ttl=100     -> granted ann #1 100ms",
        "  0 acquire db bob shared ttl=1000    -> granted bob #2 1000ms",
        "  1 convert db ann exclusive wait=300 -> (queued ann ticket=3 place=1 300ms)",
        "100 tick                              -> (expired ann #1 ttl on db), refused ann lost ticket=3 waited=99 on db @3",
        "101 show db                           -> rows [db shared bob#2:shared held=101 left=899]",
        NULL,
    });
}

static void released_or_broken_the_upgrade_goes_too(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100     -> granted ann #1 100ms",
        "0 acquire db bob shared ttl=1000    -> granted bob #2 1000ms",
        "1 convert db ann exclusive wait=300 -> (queued ann ticket=3 place=1 300ms)",
        "2 release db #1                     -> (released ann #1 release), refused ann lost ticket=3 waited=1 @3, released n=1",
        "3 acquire db ann shared ttl=100     -> granted ann #4 100ms",
        "4 convert db ann exclusive wait=300 -> (queued ann ticket=5 place=1 300ms)",
        "5 break db                          -> (broken bob #2 break), (broken ann #4 break), refused ann lost ticket=5 waited=1 @6, broken n=2",
        NULL,
    });
}

/* and lets the readers behind it in */
static void an_upgrade_that_times_out_leaves_the_shared_hold(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=1000        -> granted ann #1 1000ms",
        " 0 acquire db bob shared ttl=1000        -> granted bob #2 1000ms",
        " 1 convert db ann exclusive wait=50      -> (queued ann ticket=3 place=1 50ms)",
        " 2 acquire db cy shared ttl=100 wait=500 -> (queued cy ticket=4 place=2 500ms)",
        "50 tick                                  -> -",
        "51 tick                                  -> timeout ann ticket=3 waited=50 on db @3, granted cy #5 ticket=4 100ms waited=49 on db @4",
        "52 check db #1                           -> checked #1 n=1",
        NULL,
    });
}

static void asking_again_while_it_waits_takes_the_place_over(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=1000          -> granted ann #1 1000ms",
        " 0 acquire db bob shared ttl=1000          -> granted bob #2 1000ms",
        " 1 convert db ann exclusive wait=50        -> (queued ann ticket=3 place=1 50ms)",
        " 2 convert db ann exclusive wait=500 ttl=9 -> refused ann replaced ticket=3 @3, (queued ann ticket=3 place=1 500ms)",
        "60 release db bob                          -> (released bob #2 release), released n=1, granted ann #4 ticket=3 9ms waited=59 @4",
        NULL,
    });
}

static void to_the_same_mode_it_is_a_new_fence(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100         -> granted ann #1 100ms",
        "10 convert db ann exclusive       -> granted ann #2 100ms",
        "20 convert db #2 exclusive ttl=30 -> granted ann #3 30ms",
        "30 acquire x ann shared ttl=100   -> granted ann #4 100ms",
        "31 convert x ann shared           -> granted ann #5 100ms",
        NULL,
    });
}

static void what_is_not_held_is_stale(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 convert db ann shared -> failed STALE",
        " 1 acquire db ann ttl=10 -> granted ann #1 10ms",
        " 2 convert db #2 shared  -> failed STALE",
        "11 convert db #1 shared  -> (expired ann #1 ttl), failed STALE",
        "12 convert db #1         -> invalid: mode must be exclusive or shared",
        NULL,
    });
}

/* another reader was lost with a delay; it may still be reading */
static void a_closed_lock_grants_no_upgrade(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann shared ttl=1000         -> granted ann #1 1000ms",
        "  0 acquire db bob shared ttl=100 delay=50 -> granted bob #2 100ms",
        "100 tick                                   -> (expired bob #2 ttl on db)",
        "101 convert db ann exclusive               -> refused ann closed",
        "102 convert db ann exclusive wait=500      -> (queued ann ticket=3 place=1 500ms)",
        "149 tick                                   -> -",
        "150 tick                                   -> granted ann #4 ticket=3 1000ms waited=48 on db @5",
        NULL,
    });
}

static void an_upgrade_can_close_a_cycle_over_two_locks(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann shared ttl=1000    -> granted ann #1 1000ms",
        "0 acquire a bob shared ttl=1000    -> granted bob #2 1000ms",
        "0 acquire b ann ttl=1000           -> granted ann #3 1000ms",
        "1 acquire b bob ttl=1000 wait=500  -> (queued bob ticket=4 place=1 500ms)",
        "2 convert a ann exclusive wait=500 -> deadlock ann (ann:a bob:b)",
        NULL,
    });
}

/* CANCEL, from the engine: its client is gone and does not know how it went. */
static void called_off_it_takes_nothing_away_that_was_there_before(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=1000        -> granted ann #1 1000ms",
        " 0 acquire db bob shared ttl=1000        -> granted bob #2 1000ms",
        " 1 convert db #1 exclusive wait=300      -> (queued ann ticket=3 place=1 300ms)",
        " 2 cancel db @3 undo                     -> left ann cancel ticket=3 waited=1 @3",
        " 3 check db #1                           -> checked #1 n=1",
        " 4 convert db #1 exclusive wait=300      -> (queued ann ticket=4 place=1 300ms)",
        " 5 acquire db cy shared ttl=100 wait=500 -> (queued cy ticket=5 place=2 500ms)",
        " 6 release db #2                         -> (released bob #2 release), released n=1, granted ann #6 ticket=4 1000ms waited=2 @6",
        " 7 cancel db @6 undo                     -> (granted ann #7 1000ms), granted cy #8 ticket=5 100ms waited=2 @7",
        " 8 cancel db @6 undo                     -> -",
        " 9 release db ann                        -> (released ann #7 release), released n=1",
        NULL,
    });
    transcript((const char *const[]){
        " 0 acquire db ann ttl=1000        -> granted ann #1 1000ms",
        " 1 convert db #1 exclusive        -> granted ann #2 1000ms",
        " 2 cancel db @2 undo              -> -",
        " 3 convert db #2 shared           -> granted ann #3 1000ms",
        " 4 cancel db @4 undo              -> -",
        " 5 convert db #3 exclusive        -> granted ann #4 1000ms",
        " 6 cancel db @6 undo              -> (granted ann #5 1000ms)",
        " 7 acquire db bob shared ttl=1000 -> granted bob #6 1000ms",
        NULL,
    });
    transcript((const char *const[]){
        /* the fence says which hold; a session is only kept */
        " 0 session-open s3 ttl=1000                     -> session-opened 1000ms in=s3",
        " 0 acquire db ann shared ttl=1000               -> granted ann #2 1000ms",
        " 0 acquire db bob shared ttl=1000               -> granted bob #3 1000ms",
        " 1 convert db #2 exclusive wait=300 session=s3  -> (queued ann ticket=4 place=1 300ms)",
        " 2 cancel db @4 #4 undo session=s3              -> left ann cancel ticket=4 waited=1 @4",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(down_at_once_and_the_readers_behind_may_come),
        cmocka_unit_test(up_at_once_when_it_is_the_only_holder),
        cmocka_unit_test(up_waits_ahead_of_the_line_and_keeps_its_hold),
        cmocka_unit_test(without_waiting_it_is_refused),
        cmocka_unit_test(two_that_want_up_are_a_deadlock),
        cmocka_unit_test(when_the_hold_is_lost_the_upgrade_is_refused),
        cmocka_unit_test(released_or_broken_the_upgrade_goes_too),
        cmocka_unit_test(an_upgrade_that_times_out_leaves_the_shared_hold),
        cmocka_unit_test(asking_again_while_it_waits_takes_the_place_over),
        cmocka_unit_test(to_the_same_mode_it_is_a_new_fence),
        cmocka_unit_test(what_is_not_held_is_stale),
        cmocka_unit_test(a_closed_lock_grants_no_upgrade),
        cmocka_unit_test(an_upgrade_can_close_a_cycle_over_two_locks),
        cmocka_unit_test(called_off_it_takes_nothing_away_that_was_there_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
