/* test_txn_wait.c - transactions that wait: in ticket order, without polling, none forgotten.
 */
#include "script.h"
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

static void it_waits_until_its_assert_holds(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        " 0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        " 0 txn s1 assert(set(t,k,1)) -> (transaction n=1 in=s1), transaction ok",
        " 1 txn s2 const(c,5) assert(set(t,k,2)) wait=500 -> -",
        " 2 txn s1 anyway(set(t,other,1)) -> (transaction n=1 in=s1), transaction ok",
        " 9 txn s1 assert(delete(t,k)) -> (transaction n=1 in=s1), transaction ok, (transaction n=1 in=s2), transaction waited=8 ok c=5 @4",
        " 9 table-show t -> rows [other=1@s1 set=7 exclusive] [k=2@s2 set=0 exclusive]",
        NULL,
    });
}

static void only_an_assert_waits(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 abort wait=500 -> transaction error statement 0:/AbortOp/",
        "0 txn s1 select(x,t,k,need) wait=500 -> transaction error statement 0:/SelectVarValueOp/",
        "0 txn s1 assert(true) wait=500 -> transaction ok",
        NULL,
    });
}

/* at its deadline it is told what it fails on, and is never done late */
static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "  0 txn s1 const(c,1) block(assert(exists(t,k))) wait=100 -> -",
        " 99 tick -> -",
        "100 txn s1 anyway(set(t,k,1)) -> transaction waited=100 timeout statement 1:/BlockOp/AssertOp/ c=1 @2, (transaction n=1 in=s1), transaction ok",
        NULL,
    });
}

static void they_are_served_by_ticket(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 txn s1 assert(set(t,k,0)) -> (transaction n=1 in=s1), transaction ok",
        "1 txn s2 assert(set(t,k,1)) assert(set(t,k,9)) wait=500 -> -",
        "2 txn s2 assert(set(t,k,2)) wait=500 -> -",
        "3 txn s2 assert(set(t,k,3)) wait=500 -> -",
        "4 txn s1 assert(delete(t,k)) -> (transaction n=1 in=s1), transaction ok, (transaction n=1 in=s2), transaction waited=2 ok @5",
        "5 txn s2 assert(delete(t,k)) -> (transaction n=1 in=s2), transaction ok, (transaction n=1 in=s2), transaction waited=2 ok @6",
        NULL,
    });
}

/* one change sets off the next: each is looked at again when what it read has changed */
static void a_chain_runs_in_one_step(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 assert(exists(t,b,mine)) assert(set(t,c,1)) wait=500 -> -",
        "0 txn s1 assert(exists(t,a,mine)) assert(set(t,b,1)) wait=500 -> -",
        "0 txn s1 assert(set(t,a,1)) -> (transaction n=1 in=s1), transaction ok, (transaction n=1 in=s1), transaction ok @3, (transaction n=1 in=s1), transaction ok @2",
        NULL,
    });
}

static void it_waits_for_a_lock_too(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "  0 acquire l ann ttl=100 -> granted ann #2 100ms",
        "  0 txn s1 assert(lock(l,bob)) assert(set(t,k,1)) wait=500 -> -",
        "  1 acquire l cy ttl=50 wait=500 -> (queued cy ticket=4 place=1 500ms)",
        "100 tick -> (expired ann #2 ttl on l), granted cy #5 ticket=4 50ms waited=99 on l @4",
        "120 release l cy -> (released cy #5 release), released n=1, (granted bob #7 forever in=s1), (transaction n=2 in=s1), transaction waited=120 ok l=#7 @3",
        NULL,
    });
}

static void it_ends_with_its_session_its_client_or_its_namespace(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100 -> session-opened 100ms in=s1",
        "  0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "  0 txn s1 assert(exists(t,k)) wait=500 -> -",
        "  0 txn s2 assert(exists(t,k)) wait=500 -> -",
        "100 tick -> transaction waited=100 error session @3, (session-ended ttl in=s1)",
        "100 cancel session=s2 target=4 -> -",
        "101 txn s2 anyway(set(t,k,1)) -> (transaction n=1 in=s2), transaction ok",
        "600 tick -> -",
        NULL,
    });
}

/* an end is a change like any other */
static void an_expired_variable_wakes_who_waits_for_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        " 0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        " 0 txn s1 assert(set(t,k,1,ttl=50)) assert(set(t,j,1)) -> (transaction n=2 in=s1), transaction ok",
        " 0 txn s2 assert(set(T,k,2)) wait=500 -> -",
        " 0 txn s2 assert(set(t,j,2)) wait=500 -> -",
        "50 tick -> (variable-expired t ttl in=s1 on k), (transaction n=1 in=s2), transaction waited=50 ok @4",
        "60 session-close s1 -> session-ended release n=1 in=s1, (transaction n=1 in=s2), transaction waited=60 ok @5",
        NULL,
    });
}

/* a thousand wait for one key: each release lets exactly the next one in */
static void none_of_a_thousand_is_forgotten_or_passed(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct script p;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    (void)play(&p, "0 txn s assert(set(t,k,0))");
    uint64_t first = p.line + 1;
    for (int i = 0; i < N; i++)
        assert_null(play(&p, "1 txn s assert(set(t,k,%d)) wait=500000", i));
    for (int i = 0; i < N; i++) {
        (void)play(&p, "%d txn s assert(delete(t,k))", i + 2);
        size_t answers = 0;
        for (size_t j = 0; j < p.fx.n; j++)
            answers += p.fx.events[j].kind == EVENT_TXN && p.fx.events[j].asker;
        assert_int_equal(answers, 2);
        assert_int_equal(p.fx.events[p.fx.n - 1].asker, first + (uint64_t)i);
    }
    struct machine_counts n;
    machine_counts(p.m, &n);
    assert_int_equal(n.transactions, 0);
    script_done(&p);
}

static void through_snapshot(struct script *p)
{
    struct buf bytes = {0};
    struct machine *copy = NULL;
    machine_encode(p->m, &bytes);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){5, 6}, &copy),
                     BELAY_OK);
    buf_done(&bytes);
    machine_close(p->m);
    p->m = copy;
}

/* so many things end at once that its own end has not had its turn: it is over all the same */
static void behind_a_full_batch_it_never_happens_late(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (int i = 0; i < MACHINE_EXPIRE_BATCH + 10; i++)
        (void)play(&p, "0 acquire l%d ann ttl=100", i);
    assert_null(play(&p, "0 txn s assert(exists(t,k,mine)) wait=100"));
    uint64_t waiter = p.line;
    assert_int_equal(play(&p, "100 txn s assert(set(t,k,1))")->status, TXN_OK);
    const struct event *late = &p.fx.events[p.fx.n - 1];
    assert_true(late->asker == waiter && late->status == TXN_TIMEOUT);
    script_done(&p);
}

/* more than one step may look at: the rest comes with the next ones, in the same order, also
 * after a snapshot */
static void a_crowd_is_served_in_batches(void **state)
{
    (void)state;
    enum { N = 9000 };
    struct script p;
    uint64_t last = 0, served = 0;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (int i = 0; i < N; i++)
        assert_null(play(&p, "1 txn s assert(exists(t,k,mine)) wait=500000"));
    (void)play(&p, "2 txn s assert(set(t,k,1))");
    int steps = 1;
    for (;; steps++) {
        for (size_t j = 0; j < p.fx.n; j++) {
            const struct event *ev = &p.fx.events[j];
            if (ev->kind != EVENT_TXN || ev->asker == 0 || ev->asker == p.line)
                continue;
            assert_true(ev->asker > last);
            last = ev->asker;
            served++;
        }
        if (served == N)
            break;
        assert_true(machine_due(p.m) <= machine_now(p.m));
        through_snapshot(&p);
        (void)play(&p, "3 tick");
    }
    assert_true(steps > 1);
    script_done(&p);
}

/* Its client may be dead: nothing is done in its name until its node is heard again. */
static void a_transaction_at_a_silent_node_is_passed_over(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        " 0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        " 0 txn s1 assert(set(t,k,1)) -> (transaction n=1 in=s1), transaction ok",
        " 1 txn s2 assert(set(t,k,2)) wait=500 asker=72057594037927937 -> -",
        " 2 node away target=72057594037927936 -> -",
        " 3 txn s1 assert(delete(t,k)) -> (transaction n=1 in=s1), transaction ok",
        " 4 node target=72057594037927936 -> (transaction n=1 in=s2), transaction waited=3 ok @72057594037927937",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transaction_at_a_silent_node_is_passed_over),
        cmocka_unit_test(it_waits_until_its_assert_holds),
        cmocka_unit_test(only_an_assert_waits),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(they_are_served_by_ticket),
        cmocka_unit_test(a_chain_runs_in_one_step),
        cmocka_unit_test(it_waits_for_a_lock_too),
        cmocka_unit_test(it_ends_with_its_session_its_client_or_its_namespace),
        cmocka_unit_test(an_expired_variable_wakes_who_waits_for_it),
        cmocka_unit_test(none_of_a_thousand_is_forgotten_or_passed),
        cmocka_unit_test(behind_a_full_batch_it_never_happens_late),
        cmocka_unit_test(a_crowd_is_served_in_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
