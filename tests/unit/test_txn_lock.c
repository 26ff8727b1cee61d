/* test_txn_lock.c - locks in transactions: planned first, done at the end or not at all. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_lock_and_a_variable_are_one_step(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 txn s1 assert(not(exists(month-end,f))) assert(lock(f,ann,into=fence)) assert(set(entry,f,1)) -> (granted ann #4 forever in=s1 on f), (transaction n=2 in=s1), transaction ok fence=#4",
        "0 show f -> rows [f exclusive ann/s1#4:exclusive held=0 forever]",
        "0 txn s2 assert(lock(f,bob)) -> transaction error statement 0:/AssertOp/ f=null",
        "0 txn s1 assert(unlock(f,ann)) assert(delete(entry,f)) -> (released ann #4 release in=s1 on f), (transaction n=2 in=s1), transaction ok",
        "0 txn s2 assert(lock(f,bob,ttl=50)) -> (granted bob #5 50ms in=s2 on f), (transaction n=1 in=s2), transaction ok f=#5",
        "50 tick -> (expired bob #5 ttl in=s2 on f)",
        NULL,
    });
}

/* no fence is used up, no news is told, and what was released is still held */
static void an_abort_leaves_locks_alone(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 acquire a ann session=s1 -> granted ann #2 forever in=s1",
        "0 txn s1 assert(lock(b,ann)) assert(unlock(a,ann)) assert(lock(a,bob)) abort -> transaction error statement 3:/AbortOp/ b=null a=null",
        "0 list -> rows [a exclusive ann/s1#2:exclusive held=0 forever]",
        "0 acquire c ann ttl=10 -> granted ann #3 10ms",
        NULL,
    });
}

static void later_operators_see_the_plan(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 op(a,lock(l,ann)) op(b,lock(l,bob)) op(c,unlock(l,bob)) op(d,unlock(l,ann)) op(e,unlock(l,ann)) op(f,lock(l,bob)) -> (granted ann #2 forever in=s1 on l), (released ann #2 release in=s1 on l), (granted bob #3 forever in=s1 on l), (transaction n=3 in=s1), transaction ok l=#2 a=true l=null b=false c=false d=true e=false l=#3 f=true",
        "0 show l -> rows [l exclusive bob/s1#3:exclusive held=0 forever]",
        "0 txn s1 op(a,unlock(l,bob)) op(b,lock(l,ann,2/5)) op(c,lock(l,cy,3/5)) op(d,lock(l,dan,1/5)) -> (released bob #3 release in=s1 on l), (granted ann #4 n=2 forever in=s1 on l), (granted cy #5 n=3 forever in=s1 on l), (transaction n=3 in=s1), transaction ok a=true l=#4 b=true l=#5 c=true l=null d=false",
        "0 show l -> rows [l semaphore of=5 ann/s1#4:semaphore*2 held=0 forever cy/s1#5:semaphore*3 held=0 forever]",
        "0 txn s1 op(a,lock(m,ann,shared)) op(b,lock(m,bob,shared)) op(c,lock(m,ann)) op(d,lock(m,cy)) -> (granted ann #6 forever in=s1 on m), (granted bob #7 forever in=s1 on m), (transaction n=2 in=s1), transaction ok m=#6 a=true m=#7 b=true m=null c=false m=null d=false",
        NULL,
    });
}

/* a holder that asks again has a new fence, also within one transaction */
static void a_lock_taken_again_has_a_new_fence(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 acquire l ann session=s1 -> granted ann #2 forever in=s1",
        "0 txn s1 op(a,lock(l,ann,ttl=70)) op(b,unlock(l,#2)) -> (granted ann #3 70ms in=s1 on l), (transaction n=1 in=s1), transaction ok l=#3 a=true b=false",
        "0 txn s1 op(a,lock(n,ann)) op(b,lock(n,ann)) -> (granted ann #4 forever in=s1 on n), (granted ann #5 forever in=s1 on n), (transaction n=2 in=s1), transaction ok n=#4 a=true n=#5 b=true",
        "0 txn s1 op(a,unlock(n,#4)) op(b,unlock(n,#5)) op(c,unlock(l,#3)) -> (released ann #5 release in=s1 on n), (released ann #3 release in=s1 on l), (transaction n=2 in=s1), transaction ok a=false b=true c=true",
        NULL,
    });
}

static void nobody_in_a_line_is_passed(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 acquire l ann session=s1 shared -> granted ann #2 forever in=s1",
        "0 acquire l bob ttl=10 wait=500 -> (queued bob ticket=3 place=1 500ms)",
        "0 txn s1 op(a,lock(l,cy,shared)) op(b,lock(l,ann,shared)) -> (granted ann #4 forever in=s1 on l), (transaction n=1 in=s1), transaction ok l=null a=false l=#4 b=true",
        "0 txn s1 op(a,unlock(l,ann)) op(b,lock(l,ann)) -> (released ann #4 release in=s1 on l), (transaction n=1 in=s1), transaction ok a=true l=null b=false, granted bob #5 ticket=3 10ms on l @3",
        NULL,
    });
}

static void a_closed_lock_and_a_dead_hold_are_not_for_the_taking(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        " 0 acquire l ann ttl=10 delay=20 -> granted ann #2 10ms",
        "10 txn s1 op(a,lock(l,bob)) -> (expired ann #2 ttl on l), transaction ok l=null a=false",
        "30 txn s1 op(a,lock(l,bob)) -> (granted bob #3 forever in=s1 on l), (transaction n=1 in=s1), transaction ok l=#3 a=true",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_and_a_variable_are_one_step),
        cmocka_unit_test(an_abort_leaves_locks_alone),
        cmocka_unit_test(later_operators_see_the_plan),
        cmocka_unit_test(a_lock_taken_again_has_a_new_fence),
        cmocka_unit_test(nobody_in_a_line_is_passed),
        cmocka_unit_test(a_closed_lock_and_a_dead_hold_are_not_for_the_taking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
