/* test_machine_lock.c - holding, letting go, asking again: docs/SEMANTICS.md, acquire and
 * release. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_free_lock_is_granted_a_held_one_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100        -> granted ann #1 100ms",
        "1 acquire db bob ttl=100        -> refused bob held",
        "2 acquire db bob shared ttl=100 -> refused bob held",
        "3 release db #1                 -> (released ann #1 release), released n=1",
        "4 acquire db bob ttl=100        -> granted bob #2 100ms",
        NULL,
    });
}

static void shared_holders_share_and_keep_a_writer_out(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100 -> granted ann #1 100ms",
        "0 acquire db bob shared ttl=100 -> granted bob #2 100ms",
        "1 acquire db cy ttl=100         -> refused cy held",
        "2 release db #1                 -> (released ann #1 release), released n=1",
        "3 acquire db cy ttl=100         -> refused cy held",
        "4 release db bob                -> (released bob #2 release), released n=1",
        "5 acquire db cy ttl=100         -> granted cy #3 100ms",
        "6 acquire db ann shared ttl=100 -> refused ann held",
        NULL,
    });
}

static void asking_again_gives_a_new_fence_and_makes_the_old_one_stale(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 -> granted ann #1 100ms",
        " 50 acquire db ann ttl=70  -> granted ann #2 70ms",
        " 51 renew db #1            -> failed STALE",
        " 52 release db #1          -> released",
        " 53 check db #1            -> checked",
        " 54 check db #2            -> checked #2 n=1",
        "119 tick                   -> -",
        "120 tick                   -> (expired ann #2 ttl on db)",
        NULL,
    });
}

static void asking_again_goes_ahead_of_the_line(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann shared ttl=100   -> granted ann #1 100ms",
        "  1 acquire db bob ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "  2 acquire db cy shared ttl=100    -> refused cy held",
        "  3 acquire db ann shared ttl=100   -> granted ann #3 100ms",
        "103 tick                            -> (expired ann #3 ttl on db), granted bob #4 ticket=2 100ms waited=102 on db @2",
        NULL,
    });
}

static void asking_again_in_another_mode_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100                -> granted ann #1 100ms",
        "1 acquire db ann shared ttl=100         -> refused ann kind",
        "2 acquire db ann shared ttl=100 wait=50 -> refused ann kind",
        "3 acquire db ann 1/2 ttl=100            -> refused ann kind",
        "4 check db #1                           -> checked #1 n=1",
        NULL,
    });
}

static void the_same_owner_in_another_session_is_somebody_else(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000          -> session-opened 1000ms in=s1",
        "0 acquire db ann ttl=100            -> granted ann #2 100ms",
        "1 acquire db ann ttl=100 session=s1 -> refused ann held",
        "2 release db #2                     -> (released ann #2 release), released n=1",
        "3 acquire db ann ttl=100 session=s1 -> granted ann #3 100ms in=s1",
        "4 acquire db ann ttl=100            -> refused ann held",
        NULL,
    });
}

static void what_is_not_held_is_released_without_a_change(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 release db ann         -> released",
        "1 release db #7          -> released",
        "2 acquire db ann ttl=100 -> granted ann #1 100ms",
        "3 release db bob         -> released",
        "4 release db #2          -> released",
        "5 release other #1       -> released",
        "6 show db                -> rows [db exclusive ann#1:exclusive held=4 left=96]",
        NULL,
    });
}

/* in whatever session they are */
static void release_by_owner_frees_all_its_holds_and_its_own_place_in_the_line(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000                   -> session-opened 1000ms in=s1",
        "0 acquire db ann shared ttl=100              -> granted ann #2 100ms",
        "0 acquire db ann shared ttl=100 session=s1   -> granted ann #3 100ms in=s1",
        "0 acquire db bob shared ttl=100              -> granted bob #4 100ms",
        "0 session-open s2 ttl=1000                   -> session-opened 1000ms in=s2",
        "1 acquire db ann ttl=100 wait=500 session=s2 -> (queued ann ticket=6 place=1 500ms in=s2)",
        "2 acquire db cy ttl=100 wait=500             -> (queued cy ticket=7 place=2 500ms)",
        "3 release db ann                             -> (released ann #2 release), (released ann #3 release in=s1), released n=2",
        "4 release db ann session=s2                  -> left ann release ticket=6 waited=3 in=s2 @6, released n=1",
        "5 release db cy                              -> left cy release ticket=7 waited=3 @7, released n=1",
        NULL,
    });
}

static void release_by_owner_and_session_frees_only_that_one(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000                 -> session-opened 1000ms in=s1",
        "0 acquire db ann shared ttl=100            -> granted ann #2 100ms",
        "0 acquire db ann shared ttl=100 session=s1 -> granted ann #3 100ms in=s1",
        "3 release db ann session=s1                -> (released ann #3 release in=s1), released n=1",
        "4 check db #2                              -> checked #2 n=1",
        NULL,
    });
}

/* Something is over when now >= its end */
static void a_lease_ends_at_its_end_and_not_before(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 -> granted ann #1 100ms",
        " 99 check db #1            -> checked #1 n=1",
        "100 check db #1            -> checked",
        " 99 acquire db bob ttl=100 -> refused bob held",
        "100 acquire db bob ttl=100 -> (expired ann #1 ttl), granted bob #2 100ms",
        "201 acquire db cy ttl=100  -> (expired bob #2 ttl), granted cy #3 100ms",
        NULL,
    });
}

static void renew_counts_from_now_with_the_given_or_the_own_ttl(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 -> granted ann #1 100ms",
        " 99 renew db #1            -> renewed ann #1 100ms",
        "198 renew db ann ttl=10    -> renewed ann #1 10ms",
        "207 renew db ann           -> renewed ann #1 10ms",
        "217 renew db #1            -> (expired ann #1 ttl), failed STALE",
        "218 renew db ann ttl=100   -> failed STALE",
        NULL,
    });
}

static void renew_by_anyone_and_by_several_names_is_all_or_none(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=100 +b -> (granted ann #1 100ms), granted ann #2 100ms on b",
        "1 acquire c bob ttl=100    -> granted bob #3 100ms",
        "2 renew c anyone ttl=50    -> renewed bob #3 50ms",
        "3 renew a ann ttl=200 +b   -> (renewed ann #1 200ms), renewed ann #2 200ms on b",
        "4 renew a ann ttl=500 +c   -> failed STALE",
        "5 show a                   -> rows [a exclusive ann#1:exclusive held=5 left=198]",
        NULL,
    });
}

/* redis-py extend(); nothing can be added to a hold without an end */
static void add_ttl_adds_to_what_remains(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100         -> granted ann #1 100ms",
        "40 renew db ann add ttl=30        -> renewed ann #1 90ms",
        "41 renew db #1                    -> renewed ann #1 100ms",
        "41 renew db ann add ttl=604800000 -> renewed ann #1 604800000ms",
        "42 acquire x ann ttl=0            -> granted ann #2 forever",
        "43 renew x ann add ttl=10         -> failed STALE",
        "44 check x #2                     -> checked #2 n=1",
        NULL,
    });
}

/* SET k v NX from two clients with the same value */
static void fresh_refuses_a_holder_that_asks_again(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 fresh        -> granted ann #1 100ms",
        "1 acquire db ann ttl=100 fresh        -> refused ann held",
        "2 check db #1                         -> checked #1 n=1",
        "3 acquire db ann shared ttl=100 fresh -> refused ann kind",
        NULL,
    });
}

static void without_ttl_a_hold_has_no_end_of_its_own(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "        0 acquire db ann     -> granted ann #1 forever",
        "604800001 check db ann       -> checked #1 n=1",
        "604800001 show db            -> rows [db exclusive ann#1:exclusive held=604800001 forever]",
        "604800002 renew db ann ttl=5 -> renewed ann #1 5ms",
        "604800007 tick               -> (expired ann #1 ttl on db)",
        NULL,
    });
}

static void several_names_are_granted_in_order_or_none_is(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=10 +b +c     -> (granted ann #1 10ms), (granted ann #2 10ms on b), granted ann #3 10ms on c",
        "1 acquire x bob ttl=10 +b +y     -> refused bob held on b",
        "2 show x                         -> rows [x unlocked]",
        "3 list                           -> rows [a exclusive ann#1:exclusive held=3 left=7] [b exclusive ann#2:exclusive held=3 left=7] [c exclusive ann#3:exclusive held=3 left=7]",
        "4 acquire x ann ttl=10 wait=5 +y -> invalid: several names cannot be waited for",
        "5 release a ann +b +nothing      -> (released ann #1 release), (released ann #2 release on b), released n=2",
        NULL,
    });
}

/* CANCEL, from the engine: whoever asked is gone before it was told. */
static void several_names_are_given_back_together(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire b ann ttl=10           -> granted ann #1 10ms",
        "1 acquire a ann ttl=10 +b +c     -> (granted ann #2 10ms), (granted ann #3 10ms on b), granted ann #4 10ms on c",
        "2 cancel a @2 +b +c              -> (released ann #2 cancel), (released ann #4 cancel on c)",
        "3 list                           -> rows [b exclusive ann#3:exclusive held=2 left=8]",
        NULL,
    });
}

static void what_was_held_before_it_was_asked_for_again_stays(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100         -> granted ann #1 100ms",
        "1 acquire db ann ttl=100         -> granted ann #2 100ms",
        "2 cancel db @2                   -> -",
        "3 acquire db bob ttl=100         -> refused bob held",
        NULL,
    });
}

static void a_name_given_twice_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=10 +a    -> invalid: a name is given twice",
        "0 acquire a ann ttl=10 +b +b -> invalid: a name is given twice",
        "1 list                       -> rows",
        NULL,
    });
}

static void break_takes_all_holds_away_and_uses_up_a_number(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100 -> granted ann #1 100ms",
        "0 acquire db bob shared ttl=100 -> granted bob #2 100ms",
        "1 acquire db cy ttl=50 wait=500 -> (queued cy ticket=3 place=1 500ms)",
        "2 acquire db di ttl=50 wait=500 -> (queued di ticket=4 place=2 500ms)",
        "3 break db                      -> (broken ann #1 break), (broken bob #2 break), broken n=2, granted cy #6 ticket=3 50ms waited=2 @3",
        "4 renew db #1                   -> failed STALE",
        "5 show db                       -> rows [db exclusive cy#6:exclusive held=2 left=48 1.di@4:exclusive waited=3 left=497]",
        "6 break nothing                 -> broken",
        "7 release db #6                 -> (released cy #6 release), released n=1, granted di #7 ticket=4 50ms waited=5 @4",
        NULL,
    });
}

/* Redis DEL */
static void release_by_anyone_frees_every_hold(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100 -> granted ann #1 100ms",
        "0 acquire db bob shared ttl=100 -> granted bob #2 100ms",
        "1 acquire db cy ttl=50 wait=500 -> (queued cy ticket=3 place=1 500ms)",
        "2 release db anyone             -> (released ann #1 release), (released bob #2 release), released n=2, granted cy #4 ticket=3 50ms waited=1 @3",
        NULL,
    });
}

/* CANCEL, from the engine */
static void a_client_that_is_gone_leaves_the_line_or_gives_back_what_it_got(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100          -> granted ann #1 100ms",
        "1 acquire db bob ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy ttl=100 wait=500  -> (queued cy ticket=3 place=2 500ms)",
        "3 cancel db @2                    -> left bob cancel ticket=2 waited=2 @2",
        "4 cancel db @2                    -> -",
        "5 release db #1                   -> (released ann #1 release), released n=1, granted cy #4 ticket=3 100ms waited=3 @3",
        "6 cancel db @3                    -> (released cy #4 cancel)",
        "7 cancel nothing @3               -> -",
        "8 cancel db @3 ns=nowhere         -> -",
        NULL,
    });
}

/* By number alone, as above, only older versions did. */
static void a_cancel_names_owner_and_session_and_what_was_not_given_yet(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000                   -> session-opened 1000ms in=s1",
        "0 acquire db ann ttl=100                     -> granted ann #2 100ms",
        "1 acquire db bob ttl=100 wait=500            -> (queued bob ticket=3 place=1 500ms)",
        "1 acquire db bob ttl=100 wait=500 session=s1 -> (queued bob ticket=4 place=2 500ms in=s1)",
        "2 cancel db @2 #1 owner=bob                  -> -",
        "2 cancel db @2 #1 owner=ann session=s1       -> -",
        "2 cancel db @2 #3 owner=ann                  -> -",
        "3 cancel db @3 #1 owner=bob session=s1       -> -",
        "3 cancel db @4 #1 owner=bob                  -> -",
        "3 cancel db @4 #1 owner=bob session=s1       -> left bob cancel ticket=4 waited=2 in=s1 @4",
        "4 cancel db @2 #1 owner=ann                  -> (released ann #2 cancel), granted bob #5 ticket=3 100ms waited=3 @3",
        "5 cancel db @3 #3 owner=bob                  -> (released bob #5 cancel)",
        NULL,
    });
}

static void an_unknown_namespace_or_session_is_said_first(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100 ns=nowhere session=s9 -> failed NONAMESPACE",
        " 1 acquire db ann ttl=100 session=s9            -> failed NOSESSION",
        " 2 release db ann ns=nowhere                    -> failed NONAMESPACE",
        " 3 renew db ann ns=nowhere                      -> failed NONAMESPACE",
        " 4 convert db ann shared ns=nowhere             -> failed NONAMESPACE",
        " 5 body db ann ns=nowhere                       -> failed NONAMESPACE",
        " 6 break db ns=nowhere                          -> failed NONAMESPACE",
        " 7 show db ns=nowhere                           -> failed NONAMESPACE",
        " 8 check db ann ns=nowhere                      -> failed NONAMESPACE",
        " 9 list ns=nowhere                              -> failed NONAMESPACE",
        "10 list                                         -> rows",
        NULL,
    });
}

static void fences_rise_although_the_lock_was_gone_in_between(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=10 -> granted ann #1 10ms",
        "1 release db #1         -> (released ann #1 release), released n=1",
        "2 list                  -> rows",
        "3 acquire db ann ttl=10 -> granted ann #2 10ms",
        "4 release db #1         -> released",
        "5 check db #2           -> checked #2 n=1",
        NULL,
    });
}

/* a TICK of `belay repair`: what was lost may have given numbers away */
static void numbers_that_are_skipped_are_never_given(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=10    -> granted ann #1 10ms",
        "1 tick #100                -> -",
        "2 acquire db bob wait=20 ttl=10 -> (queued bob ticket=102 place=1 20ms)",
        "3 release db #1            -> (released ann #1 release), released n=1, granted bob #103 ticket=102 10ms waited=1 @3",
        "4 tick #1073741825         -> invalid: skips too much",
        NULL,
    });
}

/* a new leader's clock may be behind */
static void time_never_goes_back(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "100 acquire db ann ttl=10 -> granted ann #1 10ms",
        " 50 acquire x bob ttl=10  -> granted bob #2 10ms",
        "109 check x #2            -> checked #2 n=1",
        "110 tick                  -> (expired ann #1 ttl on db), (expired bob #2 ttl on x)",
        NULL,
    });
}

static void a_lock_that_nobody_uses_is_no_lock(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 show db                      -> rows [db unlocked]",
        " 0 acquire db ann shared ttl=10 -> granted ann #1 10ms",
        " 0 acquire db bob shared ttl=20 -> granted bob #2 20ms",
        " 5 show db                      -> rows [db shared ann#1:shared held=5 left=5 bob#2:shared held=5 left=15]",
        "20 tick                         -> (expired ann #1 ttl on db), (expired bob #2 ttl on db)",
        "20 list                         -> rows",
        NULL,
    });
}

static void a_list_has_pages_in_byte_order_with_a_prefix(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire ab ann           -> granted ann #1 forever",
        "0 acquire a ann            -> granted ann #2 forever",
        "0 acquire b ann            -> granted ann #3 forever",
        "0 acquire aa ann           -> granted ann #4 forever",
        "1 list limit=2             -> rows [a exclusive ann#2:exclusive held=1 forever] [aa exclusive ann#4:exclusive held=1 forever] more",
        "1 list limit=2 after=aa    -> rows [ab exclusive ann#1:exclusive held=1 forever] [b exclusive ann#3:exclusive held=1 forever]",
        "1 list aa                  -> rows [aa exclusive ann#4:exclusive held=1 forever]",
        "1 list a limit=1 after=a   -> rows [aa exclusive ann#4:exclusive held=1 forever] more",
        "1 list a limit=5 after=aaa -> rows [ab exclusive ann#1:exclusive held=1 forever]",
        "1 list c                   -> rows",
        "1 list after=b             -> rows",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_lock_is_granted_a_held_one_refused),
        cmocka_unit_test(shared_holders_share_and_keep_a_writer_out),
        cmocka_unit_test(asking_again_gives_a_new_fence_and_makes_the_old_one_stale),
        cmocka_unit_test(asking_again_goes_ahead_of_the_line),
        cmocka_unit_test(asking_again_in_another_mode_is_refused),
        cmocka_unit_test(the_same_owner_in_another_session_is_somebody_else),
        cmocka_unit_test(what_is_not_held_is_released_without_a_change),
        cmocka_unit_test(release_by_owner_frees_all_its_holds_and_its_own_place_in_the_line),
        cmocka_unit_test(release_by_owner_and_session_frees_only_that_one),
        cmocka_unit_test(a_lease_ends_at_its_end_and_not_before),
        cmocka_unit_test(renew_counts_from_now_with_the_given_or_the_own_ttl),
        cmocka_unit_test(renew_by_anyone_and_by_several_names_is_all_or_none),
        cmocka_unit_test(add_ttl_adds_to_what_remains),
        cmocka_unit_test(fresh_refuses_a_holder_that_asks_again),
        cmocka_unit_test(without_ttl_a_hold_has_no_end_of_its_own),
        cmocka_unit_test(several_names_are_granted_in_order_or_none_is),
        cmocka_unit_test(several_names_are_given_back_together),
        cmocka_unit_test(what_was_held_before_it_was_asked_for_again_stays),
        cmocka_unit_test(a_name_given_twice_is_refused),
        cmocka_unit_test(break_takes_all_holds_away_and_uses_up_a_number),
        cmocka_unit_test(release_by_anyone_frees_every_hold),
        cmocka_unit_test(a_client_that_is_gone_leaves_the_line_or_gives_back_what_it_got),
        cmocka_unit_test(a_cancel_names_owner_and_session_and_what_was_not_given_yet),
        cmocka_unit_test(an_unknown_namespace_or_session_is_said_first),
        cmocka_unit_test(fences_rise_although_the_lock_was_gone_in_between),
        cmocka_unit_test(numbers_that_are_skipped_are_never_given),
        cmocka_unit_test(time_never_goes_back),
        cmocka_unit_test(a_lock_that_nobody_uses_is_no_lock),
        cmocka_unit_test(a_list_has_pages_in_byte_order_with_a_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
