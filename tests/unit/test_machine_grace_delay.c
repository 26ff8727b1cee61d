/* test_machine_grace_delay.c - grace before an end, delay after an involuntary one. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void with_grace_it_is_overdue_first_and_then_expires(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 grace=50 -> granted ann #1 100ms",
        " 99 tick                            -> -",
        "100 tick                            -> (overdue ann #1 ttl 50ms on db)",
        "101 show db                         -> rows [db exclusive ann#1:exclusive held=101 left=49 overdue]",
        "102 acquire db bob                  -> refused bob held",
        "149 check db #1                     -> checked #1 n=1",
        "150 check db #1                     -> checked",
        "150 tick                            -> (expired ann #1 ttl on db)",
        NULL,
    });
}

static void renewing_in_the_grace_clears_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 grace=50 -> granted ann #1 100ms",
        "100 tick                            -> (overdue ann #1 ttl 50ms on db)",
        "149 renew db #1                     -> renewed ann #1 100ms",
        "150 show db                         -> rows [db exclusive ann#1:exclusive held=150 left=99]",
        "249 tick                            -> (overdue ann #1 ttl 50ms on db)",
        "299 renew db #1                     -> (expired ann #1 ttl), failed STALE",
        NULL,
    });
}

/* it was alive until the end of its grace */
static void the_step_that_makes_it_overdue_can_also_renew_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 grace=50 -> granted ann #1 100ms",
        "100 renew db #1                     -> (overdue ann #1 ttl 50ms), renewed ann #1 100ms",
        NULL,
    });
}

static void asking_again_in_the_grace_clears_it_with_what_is_asked_now(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 grace=50 -> granted ann #1 100ms",
        "100 tick                            -> (overdue ann #1 ttl 50ms on db)",
        "110 acquire db ann ttl=10           -> granted ann #2 10ms",
        "120 tick                            -> (expired ann #2 ttl on db)",
        NULL,
    });
}

static void the_line_waits_until_the_grace_is_over(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 grace=50 -> granted ann #1 100ms",
        "  0 acquire db bob ttl=10 wait=500  -> (queued bob ticket=2 place=1 500ms)",
        "100 tick                            -> (overdue ann #1 ttl 50ms on db)",
        "150 tick                            -> (expired ann #1 ttl on db), granted bob #3 ticket=2 10ms waited=150 on db @2",
        NULL,
    });
}

static void a_session_that_ends_takes_the_grace_with_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100                    -> session-opened 100ms in=s1",
        "  0 acquire db ann session=s1 ttl=50 grace=500 -> granted ann #2 50ms in=s1",
        " 50 tick                                       -> (overdue ann #2 ttl 500ms in=s1 on db)",
        "100 tick                                       -> (expired ann #2 session in=s1 on db), (session-ended ttl n=1 in=s1)",
        NULL,
    });
}

static void after_an_involuntary_loss_the_lock_stays_closed(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 delay=50 -> granted ann #1 100ms",
        "  0 acquire db bob ttl=10 wait=500  -> (queued bob ticket=2 place=1 500ms)",
        "100 tick                            -> (expired ann #1 ttl on db)",
        "101 show db                         -> rows [db closed closed=49 1.bob@2:exclusive waited=101 left=399]",
        "102 acquire db cy                   -> refused cy closed",
        "103 acquire db cy shared            -> refused cy closed",
        "149 tick                            -> -",
        "150 tick                            -> granted bob #3 ticket=2 10ms waited=150 on db @2",
        NULL,
    });
}

/* and is gone when nobody waits */
static void a_closed_lock_opens_at_its_end(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 delay=50 -> granted ann #1 100ms",
        "100 tick                            -> (expired ann #1 ttl on db)",
        "149 acquire db bob ttl=10           -> refused bob closed",
        "150 acquire db bob ttl=10           -> granted bob #2 10ms",
        "160 tick                            -> (expired bob #2 ttl on db)",
        "161 list                            -> rows",
        NULL,
    });
}

static void no_delay_after_a_voluntary_end(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 delay=50 -> granted ann #1 100ms",
        "1 release db #1                   -> (released ann #1 release), released n=1",
        "2 acquire db bob ttl=10           -> granted bob #2 10ms",
        NULL,
    });
}

static void broken_is_an_involuntary_loss(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100 delay=50 -> granted ann #1 100ms",
        " 1 acquire db bob ttl=10 wait=500  -> (queued bob ticket=2 place=1 500ms)",
        " 2 break db                        -> (broken ann #1 break), broken n=1",
        "51 tick                            -> -",
        "52 tick                            -> granted bob #4 ticket=2 10ms waited=51 on db @2",
        NULL,
    });
}

static void so_is_the_end_of_a_session_by_its_time_or_its_connection(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100           -> session-opened 100ms in=s1",
        "  0 session-open s2 ttl=100           -> session-opened 100ms in=s2",
        "  0 acquire a ann session=s1 delay=50 -> granted ann #3 forever in=s1",
        "  0 acquire b ann session=s2 delay=50 -> granted ann #4 forever in=s2",
        "  1 session-attach s2 target=7        -> session-kept n=1 100ms in=s2",
        "  2 session-detach s2 target=7        -> (expired ann #4 session in=s2 on b), (session-ended session n=1 in=s2), session-kept n=1 in=s2",
        "  3 acquire b bob                     -> refused bob closed",
        "100 acquire a bob                     -> (expired ann #3 session in=s1), (session-ended ttl n=1 in=s1), refused bob closed",
        NULL,
    });
}

static void the_longest_delay_counts(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann shared ttl=100 delay=50 -> granted ann #1 100ms",
        "  0 acquire db bob shared ttl=100 delay=80 -> granted bob #2 100ms",
        "  0 acquire db cy shared ttl=100 delay=10  -> granted cy #3 100ms",
        "100 tick                                   -> (expired ann #1 ttl on db), (expired bob #2 ttl on db), (expired cy #3 ttl on db)",
        "179 acquire db di                          -> refused di closed",
        "180 acquire db di                          -> granted di #4 forever",
        NULL,
    });
}

static void a_later_shorter_delay_does_not_open_it_earlier(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann shared ttl=100 delay=80 -> granted ann #1 100ms",
        "  0 acquire db bob shared ttl=110 delay=10 -> granted bob #2 110ms",
        "100 tick                                   -> (expired ann #1 ttl on db)",
        "110 tick                                   -> (expired bob #2 ttl on db)",
        "179 acquire db di                          -> refused di closed",
        "180 acquire db di                          -> granted di #3 forever",
        NULL,
    });
}

/* renew and re-acquire; nobody new comes in */
static void a_remaining_holder_may_go_on_while_it_is_closed(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann shared ttl=100 delay=50 -> granted ann #1 100ms",
        "  0 acquire db bob shared ttl=1000         -> granted bob #2 1000ms",
        "100 tick                                   -> (expired ann #1 ttl on db)",
        "101 renew db bob                           -> renewed bob #2 1000ms",
        "102 acquire db bob shared ttl=1000         -> granted bob #3 1000ms",
        "103 acquire db cy shared ttl=10            -> refused cy closed",
        "104 show db                                -> rows [db shared closed=46 bob#3:shared held=2 left=998]",
        "150 acquire db cy shared ttl=10            -> granted cy #4 10ms",
        NULL,
    });
}

static void a_wait_in_front_of_a_closed_lock_times_out_as_any_other(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 delay=50 -> granted ann #1 100ms",
        "  0 acquire db bob ttl=10 wait=120  -> (queued bob ticket=2 place=1 120ms)",
        "100 tick                            -> (expired ann #1 ttl on db)",
        "120 tick                            -> timeout bob ticket=2 waited=120 on db @2",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_grace_it_is_overdue_first_and_then_expires),
        cmocka_unit_test(renewing_in_the_grace_clears_it),
        cmocka_unit_test(the_step_that_makes_it_overdue_can_also_renew_it),
        cmocka_unit_test(asking_again_in_the_grace_clears_it_with_what_is_asked_now),
        cmocka_unit_test(the_line_waits_until_the_grace_is_over),
        cmocka_unit_test(a_session_that_ends_takes_the_grace_with_it),
        cmocka_unit_test(after_an_involuntary_loss_the_lock_stays_closed),
        cmocka_unit_test(a_closed_lock_opens_at_its_end),
        cmocka_unit_test(no_delay_after_a_voluntary_end),
        cmocka_unit_test(broken_is_an_involuntary_loss),
        cmocka_unit_test(so_is_the_end_of_a_session_by_its_time_or_its_connection),
        cmocka_unit_test(the_longest_delay_counts),
        cmocka_unit_test(a_later_shorter_delay_does_not_open_it_earlier),
        cmocka_unit_test(a_remaining_holder_may_go_on_while_it_is_closed),
        cmocka_unit_test(a_wait_in_front_of_a_closed_lock_times_out_as_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
