/* test_machine_body.c - the body: up to 64 KiB that survive release, expiry and change of
 * owner. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void it_comes_back_on_the_next_grant(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100 body=page=7 -> granted ann #1 100ms \"page=7\"",
        "  1 release db ann                     -> (released ann #1 release), released n=1",
        "  2 show db                            -> rows [db unlocked \"page=7\"]",
        "  3 list                               -> rows [db unlocked \"page=7\"]",
        "  4 acquire db bob ttl=100             -> granted bob #2 100ms \"page=7\"",
        "104 tick                               -> (expired bob #2 ttl on db)",
        "105 acquire db cy shared ttl=100       -> granted cy #3 100ms \"page=7\"",
        NULL,
    });
}

static void a_lock_with_a_body_and_nobody_can_become_another_kind(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 body=x -> granted ann #1 100ms \"x\"",
        "1 release db ann                -> (released ann #1 release), released n=1",
        "2 acquire db bob 1/3 ttl=100    -> granted bob #2 n=1 100ms \"x\"",
        NULL,
    });
}

static void set_it_as_the_holder_and_it_renews(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100      -> granted ann #1 100ms",
        "50 body db #1 body=one         -> body ann #1 100ms",
        "60 body db ann ttl=20 body=two -> body ann #1 20ms",
        "79 show db                     -> rows [db exclusive \"two\" ann#1:exclusive held=79 left=1]",
        "80 body db #1 body=three       -> (expired ann #1 ttl), failed STALE",
        "81 body db bob body=four       -> failed STALE",
        "82 show db                     -> rows [db unlocked \"two\"]",
        NULL,
    });
}

static void emptied_it_is_no_reason_for_a_lock_to_exist(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 body=x -> granted ann #1 100ms \"x\"",
        "1 body db ann body=             -> body ann #1 100ms",
        "2 release db ann                -> (released ann #1 release), released n=1",
        "3 list                          -> rows",
        "4 acquire db ann ttl=100 body=x -> granted ann #2 100ms \"x\"",
        "5 release db ann                -> (released ann #2 release), released n=1",
        "6 acquire db ann ttl=100 body=  -> granted ann #3 100ms",
        "7 release db ann                -> (released ann #3 release), released n=1",
        "8 list                          -> rows",
        NULL,
    });
}

/* not before, and not when it gives up */
static void a_waiter_brings_its_body_when_it_is_granted(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 body=old          -> granted ann #1 100ms \"old\"",
        "1 acquire db bob ttl=100 wait=500 body=new -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy ttl=100 wait=5 body=never  -> (queued cy ticket=3 place=2 5ms)",
        "3 show db                                  -> rows [db exclusive \"old\" ann#1:exclusive held=3 left=97 1.bob@2:exclusive waited=2 left=498 2.cy@3:exclusive waited=1 left=4]",
        "7 tick                                     -> timeout cy ticket=3 waited=5 on db @3",
        "8 release db ann                           -> (released ann #1 release), released n=1, granted bob #4 ticket=2 100ms waited=7 \"new\" @2",
        NULL,
    });
}

static void asking_again_with_a_body_replaces_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 body=one   -> granted ann #1 100ms \"one\"",
        "1 acquire db ann ttl=100            -> granted ann #2 100ms \"one\"",
        "2 acquire db ann ttl=100 body=two   -> granted ann #3 100ms \"two\"",
        "3 acquire db bob ttl=100 body=three -> refused bob held",
        "4 show db                           -> rows [db exclusive \"two\" ann#3:exclusive held=2 left=98]",
        NULL,
    });
}

static void break_and_convert_leave_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100 body=x -> granted ann #1 100ms \"x\"",
        "1 convert db ann exclusive             -> granted ann #2 100ms \"x\"",
        "2 break db                             -> (broken ann #2 break), broken n=1",
        "3 show db                              -> rows [db unlocked \"x\"]",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_back_on_the_next_grant),
        cmocka_unit_test(a_lock_with_a_body_and_nobody_can_become_another_kind),
        cmocka_unit_test(set_it_as_the_holder_and_it_renews),
        cmocka_unit_test(emptied_it_is_no_reason_for_a_lock_to_exist),
        cmocka_unit_test(a_waiter_brings_its_body_when_it_is_granted),
        cmocka_unit_test(asking_again_with_a_body_replaces_it),
        cmocka_unit_test(break_and_convert_leave_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
