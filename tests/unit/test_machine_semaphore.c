/* test_machine_semaphore.c - permits: all or nothing, in order. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void permits_are_taken_until_there_are_no_more(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 2/3 ttl=100 -> granted ann #1 n=2 100ms",
        "1 acquire pool bob 2/3 ttl=100 -> refused bob held",
        "2 acquire pool bob 1/3 ttl=100 -> granted bob #2 n=1 100ms",
        "3 acquire pool cy 1/3 ttl=100  -> refused cy held",
        "4 show pool                    -> rows [pool semaphore of=3 ann#1:semaphore*2 held=4 left=96 bob#2:semaphore held=2 left=98]",
        NULL,
    });
}

static void a_big_request_at_the_head_is_not_passed_by_a_small_one(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 2/3 ttl=100          -> granted ann #1 n=2 100ms",
        "1 acquire pool bob 3/3 ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire pool cy 1/3 ttl=100           -> refused cy held",
        "3 acquire pool cy 1/3 ttl=100 wait=500  -> (queued cy ticket=3 place=2 500ms)",
        "4 release pool ann                      -> (released ann #1 release), released n=1, granted bob #4 ticket=2 n=3 100ms waited=3 @2",
        "5 release pool bob                      -> (released bob #4 release), released n=1, granted cy #5 ticket=3 n=1 100ms waited=2 @4",
        NULL,
    });
}

static void one_release_may_let_several_in(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 3/3 ttl=100          -> granted ann #1 n=3 100ms",
        "1 acquire pool bob 1/3 ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire pool cy 1/3 ttl=100 wait=500  -> (queued cy ticket=3 place=2 500ms)",
        "3 acquire pool di 2/3 ttl=100 wait=500  -> (queued di ticket=4 place=3 500ms)",
        "4 release pool ann                      -> (released ann #1 release), released n=1, granted bob #5 ticket=2 n=1 100ms waited=3 @2, granted cy #6 ticket=3 n=1 100ms waited=2 @3",
        NULL,
    });
}

/* and anything goes when it is free again */
static void another_kind_or_size_is_refused_while_it_is_in_use(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 1/3 ttl=100            -> granted ann #1 n=1 100ms",
        "1 acquire pool bob 1/4 ttl=100            -> refused bob kind",
        "2 acquire pool bob ttl=100                -> refused bob kind",
        "3 acquire pool bob shared ttl=100 wait=50 -> refused bob kind",
        "4 release pool ann                        -> (released ann #1 release), released n=1",
        "5 acquire pool bob 1/4 ttl=100            -> granted bob #2 n=1 100ms",
        "6 release pool bob                        -> (released bob #2 release), released n=1",
        "7 acquire pool bob ttl=100                -> granted bob #3 100ms",
        "8 acquire pool cy 1/4 ttl=100 wait=50     -> refused cy kind",
        NULL,
    });
}

static void it_is_also_in_use_while_somebody_only_waits(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire pool ann 2/2 ttl=100 delay=50 -> granted ann #1 n=2 100ms",
        "  1 acquire pool bob 1/2 ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "100 tick                                  -> (expired ann #1 ttl on pool)",
        "101 acquire pool cy ttl=100               -> refused cy kind",
        "150 tick                                  -> granted bob #3 ticket=2 n=1 100ms waited=149 on pool @2",
        NULL,
    });
}

static void asking_again_with_the_same_permits_renews_with_others_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 2/3 ttl=100 -> granted ann #1 n=2 100ms",
        "1 acquire pool ann 2/3 ttl=100 -> granted ann #2 n=2 100ms",
        "2 acquire pool ann 1/3 ttl=100 -> refused ann kind",
        "3 acquire pool bob 1/3 ttl=100 -> granted bob #3 n=1 100ms",
        "4 release pool #1              -> released",
        "5 release pool #2              -> (released ann #2 release), released n=1",
        "6 acquire pool cy 2/3 ttl=100  -> granted cy #4 n=2 100ms",
        NULL,
    });
}

static void asking_again_while_waiting_for_other_permits_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 3/3 ttl=100          -> granted ann #1 n=3 100ms",
        "1 acquire pool bob 1/3 ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire pool bob 2/3 ttl=100 wait=500 -> refused bob kind",
        "3 acquire pool bob 1/3 ttl=100 wait=500 -> refused bob replaced ticket=2 @2, (queued bob ticket=2 place=1 500ms)",
        NULL,
    });
}

static void permits_must_make_sense(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 0/3 ttl=100                   -> invalid: permits and of must be at least 1",
        "0 acquire pool ann 4/3 ttl=100                   -> invalid: permits are more than of",
        "0 acquire pool ann 1/1000001 ttl=100             -> invalid: of is over 1000000",
        "0 acquire pool ann 1000000/1000000 ttl=100       -> granted ann #1 n=1000000 100ms",
        "0 acquire pool bob 1/1000000 soft ttl=100 wait=5 -> invalid: POLICY soft and timed are for exclusive locks",
        NULL,
    });
}

static void a_semaphore_is_not_converted(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire pool ann 1/3 ttl=100 -> granted ann #1 n=1 100ms",
        "1 convert pool ann shared      -> refused ann kind",
        "2 convert pool #1 exclusive    -> refused kind",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permits_are_taken_until_there_are_no_more),
        cmocka_unit_test(a_big_request_at_the_head_is_not_passed_by_a_small_one),
        cmocka_unit_test(one_release_may_let_several_in),
        cmocka_unit_test(another_kind_or_size_is_refused_while_it_is_in_use),
        cmocka_unit_test(it_is_also_in_use_while_somebody_only_waits),
        cmocka_unit_test(asking_again_with_the_same_permits_renews_with_others_is_refused),
        cmocka_unit_test(asking_again_while_waiting_for_other_permits_is_refused),
        cmocka_unit_test(permits_must_make_sense),
        cmocka_unit_test(a_semaphore_is_not_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
