/* test_machine_receipt.c - a request with an id takes effect once, however often it is sent. */
#include "machine/machine.h"
#include "machine/program.h"
#include "machine/receipt.h"
#include "text_format.h"
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>

static void what_is_sent_again_gets_the_same_answer(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100 body=hi request=r1 -> granted ann #1 100ms \"hi\"",
        "30 acquire db ann ttl=100 body=hi request=r1 -> granted ann #1 70ms \"hi\"",
        "40 acquire db bob ttl=100 request=r2         -> refused bob held",
        "40 release db #1 request=r3                  -> (released ann #1 release), released n=1",
        "41 release db #1 request=r3                  -> released n=1",
        "41 acquire db bob ttl=100 request=r2         -> refused bob held",
        "42 acquire db bob ttl=100                    -> granted bob #2 100ms \"hi\"",
        "43 release db #1                             -> released",
        NULL,
    });
}

static void a_renewal_counts_down_a_session_keeps_its_ttl(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100            -> granted ann #1 100ms",
        "50 renew db #1 ttl=200 request=r1    -> renewed ann #1 200ms",
        "90 renew db #1 ttl=200 request=r1    -> renewed #1 160ms",
        "90 body db #1 body=x request=r2      -> body ann #1 200ms",
        "99 body db #1 body=x request=r2      -> body #1 191ms",
        "99 renew db #9 request=r3            -> failed STALE",
        "99 renew db #9 request=r3            -> failed STALE",
        "99 session-open s1 ttl=500 request=r4 -> session-opened 500ms in=s1",
        /* another id was drawn for it: it is the same request */
        "99 session-open s2 ttl=500 request=r4 -> session-opened 500ms in=s1",
        "99 session-show s2                   -> failed NOSESSION",
        /* a client that chose the id asks for another session */
        "99 session-open s3 ttl=500 named request=r9 -> session-opened 500ms in=s3",
        "99 session-open s3 ttl=500 named request=r9 -> session-opened 500ms in=s3",
        "99 session-open s4 ttl=500 named request=r9 -> failed INUSE",
        "99 session-close s1 request=r5       -> session-ended release in=s1",
        "99 session-close s1 request=r5       -> session-ended release in=s1",
        "99 break db request=r6               -> (broken ann #1 break), broken n=1",
        "99 break db request=r6               -> broken n=1",
        "99 namespace-create n request=r7     -> namespace-created",
        "99 namespace-create n request=r7     -> namespace-created",
        "99 namespace-delete n request=r8     -> namespace-deleted",
        "99 namespace-delete n request=r8     -> namespace-deleted",
        NULL,
    });
}

/* The id is one request's; NOBLOCK and what the answer shall carry are the door's matter. */
static void another_request_under_the_id_is_refused(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 request=r1       -> granted ann #1 100ms",
        "0 acquire db ann ttl=101 request=r1       -> failed INUSE",
        "0 acquire db bob ttl=100 request=r1       -> failed INUSE",
        "0 release db #1 request=r1                -> failed INUSE",
        "0 acquire db ann ttl=100 want request=r1  -> granted ann #1 100ms",
        "0 acquire db bob ttl=100 wait=50 request=r2 -> (queued bob ticket=2 place=1 50ms)",
        "0 acquire db bob ttl=100 wait=51 request=r2 -> failed INUSE",
        "0 show db want -> rows [db exclusive ann#1:exclusive held=0 left=100 1.bob@2:exclusive waited=0 left=50]",
        "0 tick request=r3                         -> invalid: only requests that change something may have an id",
        "0 show db request=r3                      -> invalid: only requests that change something may have an id",
        "0 acquire a ann ttl=1 +b request=r3       -> invalid: a request for several names cannot have an id",
        NULL,
    });
}

static void an_account_has_its_own_ids(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100 request=r1             -> granted ann #1 100ms",
        "0 acquire db ann ttl=100 request=r1 account=other -> failed NONAMESPACE",
        NULL,
    });
}

static void who_waits_keeps_the_place(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100                      -> granted ann #1 100ms",
        " 1 acquire db bob ttl=50 wait=500 request=r1   -> (queued bob ticket=2 place=1 500ms)",
        " 1 acquire db cy ttl=50 wait=500 request=r2    -> (queued cy ticket=3 place=2 500ms)",
        /* the time-out is that of the first asking */
        " 9 acquire db bob ttl=50 wait=500 request=r1   -> refused bob replaced ticket=2 @2, (queued bob ticket=2 place=1 492ms)",
        " 9 acquire db cy ttl=50 wait=500 noblock request=r2 -> refused cy replaced ticket=3 @3, queued cy ticket=3 place=2 492ms",
        "10 release db #1  -> (released ann #1 release), released n=1, granted bob #4 ticket=2 50ms waited=9 @4",
        "15 acquire db bob ttl=50 wait=500 request=r1   -> granted bob #4 ticket=2 45ms waited=9",
        "60 tick -> (expired bob #4 ttl on db), granted cy #5 ticket=3 50ms waited=59 on db @5",
        "61 acquire db bob ttl=50 wait=500 request=r1   -> failed STALE",
        "61 acquire db cy ttl=50 wait=500 noblock request=r2 -> granted cy #5 ticket=3 49ms waited=59",
        NULL,
    });
}

static void how_a_wait_ended_is_remembered(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=1000                    -> granted ann #1 1000ms",
        " 0 acquire db bob ttl=50 wait=20 request=r1   -> (queued bob ticket=2 place=1 20ms)",
        "20 tick                                       -> timeout bob ticket=2 waited=20 on db @2",
        "30 acquire db bob ttl=50 wait=20 request=r1   -> timeout bob ticket=2 waited=20",
        "30 acquire db cy ttl=50 wait=500 request=r2   -> (queued cy ticket=3 place=1 500ms)",
        "31 release db cy                              -> left cy release ticket=3 waited=1 @5, released n=1",
        "32 acquire db cy ttl=50 wait=500 request=r2   -> left cy release ticket=3 waited=1",
        /* another request of the same owner has the place now */
        "40 acquire db di ttl=50 wait=500 request=r3   -> (queued di ticket=4 place=1 500ms)",
        "41 acquire db di ttl=60 wait=500 request=r4   -> refused di replaced ticket=4 @8, (queued di ticket=4 place=1 500ms)",
        "42 acquire db di ttl=50 wait=500 request=r3   -> refused di replaced ticket=4",
        "43 release db #1 -> (released ann #1 release), released n=1, granted di #5 ticket=4 60ms waited=3 @9",
        NULL,
    });
}

/* A wait that has run out and whose turn has not come is not taken up again. */
static void an_upgrade_is_asked_for_again(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100                     -> granted ann #1 100ms",
        "0 acquire db bob shared ttl=100                     -> granted bob #2 100ms",
        "0 convert db #1 exclusive wait=50 request=r1        -> (queued ann ticket=3 place=1 50ms)",
        "1 convert db #1 exclusive wait=50 noblock request=r1 -> refused ann replaced ticket=3 @3, queued ann ticket=3 place=1 49ms",
        "2 release db #2 -> (released bob #2 release), released n=1, granted ann #4 ticket=3 100ms waited=2 @4",
        "3 convert db #1 exclusive wait=50 request=r1        -> granted ann #4 ticket=3 99ms waited=2",
        "4 convert db #4 shared request=r2                   -> granted ann #5 100ms",
        "4 convert db #4 shared request=r2                   -> granted ann #5 100ms",
        "4 convert db #1 exclusive wait=50 request=r1        -> failed STALE",
        NULL,
    });
}

static void a_client_that_goes_takes_its_receipt_along(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100                      -> granted ann #1 100ms",
        "0 acquire db bob ttl=50 wait=500 request=r1   -> (queued bob ticket=2 place=1 500ms)",
        "0 cancel db @2 request=r1                     -> left bob cancel ticket=2 @2",
        "1 acquire db bob ttl=50 wait=500 request=r1   -> (queued bob ticket=3 place=1 500ms)",
        "2 release db #1 -> (released ann #1 release), released n=1, granted bob #4 ticket=3 50ms waited=1 @4",
        "3 cancel db @4 request=r1                     -> (released bob #4 cancel)",
        "4 acquire db bob ttl=50 wait=500 request=r1   -> granted bob #5 50ms",
        /* it has asked again: the cancel of the one before comes too late */
        "5 acquire db bob ttl=50 wait=500 request=r1   -> granted bob #5 49ms",
        "6 cancel db @7 request=r1                     -> -",
        /* so does that of the one after it: it may have been the first one that was sent */
        "6 cancel db @8 request=r1                     -> -",
        "7 check db #5                                 -> checked #5 n=1",
        NULL,
    });
}

/* Its node stops and has told it so: it keeps its place for as long as it takes to ask another
 * node. Who has no id is called off. */
static void who_is_sent_away_may_come_back(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "   0 acquire db ann ttl=9000                     -> granted ann #1 9000ms",
        "   0 acquire db bob ttl=50 wait=20000 request=r1 -> (queued bob ticket=2 place=1 20000ms)",
        "   0 acquire db cy ttl=50 wait=20000             -> (queued cy ticket=3 place=2 20000ms)",
        "   1 cancel db @2 away request=r1                -> -",
        "   1 cancel db @3 away                           -> left cy cancel ticket=3 waited=1 @3",
        "   2 release db #1                               -> (released ann #1 release), released n=1",
        "   3 acquire db bob ttl=50 wait=20000 request=r1 -> refused bob replaced ticket=2 @2, (queued bob ticket=2 place=1 19997ms), granted bob #4 ticket=2 50ms waited=3",
        /* granted in that very moment: it is fetched */
        "   4 cancel db @7 away request=r1                -> -",
        "   5 acquire db bob ttl=50 wait=20000 request=r1 -> granted bob #4 ticket=2 48ms waited=3",
        "   6 acquire db di ttl=50                        -> refused di held",
        "   7 cancel db @9 away request=r1                -> -",
        "   8 acquire eu cy ttl=50                        -> granted cy #5 50ms",
        "   8 cancel eu @12 away                          -> (released cy #5 cancel)",
        NULL,
    });
}

static void a_parked_one_is_sent_away(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "   0 session-open s1 ttl=90000 -> session-opened 90000ms in=s1",
        "   0 txn s1 assert(exists(t,k,mine)) wait=20000 request=r1 -> -",
        "   0 txn s1 assert(exists(t,k,mine)) wait=20000 -> -",
        "   1 cancel session=s1 target=2 away request=r1 -> -",
        "   1 cancel session=s1 target=3 away -> -",
        "4999 txn s1 assert(exists(t,k,mine)) wait=20000 request=r1 -> refused replaced @2",
        "6000 txn s1 anyway(set(t,k,1)) -> (transaction n=1 in=s1), transaction ok, transaction waited=6000 ok @6",
        NULL,
    });
}

/* Asker 72061992084439041 is the first of node 1 in its run 1; the node starts its run 2. */
static void a_place_outlives_its_node_for_a_while(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "   0 acquire db ann ttl=9000                                   -> granted ann #1 9000ms",
        "   0 acquire db bob ttl=50 wait=20000 request=r1 asker=72061992084439041 -> (queued bob ticket=2 place=1 20000ms)",
        "   0 acquire db cy ttl=50 wait=20000 asker=72061992084439042   -> (queued cy ticket=3 place=2 20000ms)",
        "   0 acquire db di ttl=50 wait=20000 request=r2 asker=72061992084439043 -> (queued di ticket=4 place=3 20000ms)",
        "   0 acquire db eve ttl=50 wait=2000 request=r3 asker=72061992084439044 -> (queued eve ticket=5 place=4 2000ms)",
        " 100 cancel target=72066390130950144 -> (left cy cancel ticket=3 waited=100 on db)",
        " 200 cancel target=72070788177461248 -> -",
        "2000 tick -> timeout eve ticket=5 waited=2000 on db @72061992084439044",
        "4000 acquire db bob ttl=50 wait=20000 request=r1 -> refused bob replaced ticket=2 @72061992084439041, (queued bob ticket=2 place=1 16000ms)",
        "5099 tick -> -",
        "5100 tick -> left di cancel ticket=4 waited=5100 on db @72061992084439043",
        "5200 acquire db di ttl=50 wait=20000 request=r2 -> (queued di ticket=6 place=2 20000ms)",
        "5200 acquire db eve ttl=50 wait=2000 request=r3 -> timeout eve ticket=5 waited=2000",
        "8000 release db #1 -> (released ann #1 release), released n=1, granted bob #7 ticket=2 50ms waited=8000 @9",
        NULL,
    });
}

/* Whose node is gone may be dead itself: the line waits a moment for it, and grants it nothing.
 */
static void nothing_is_granted_to_who_is_away(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "   0 acquire db ann ttl=9000                                   -> granted ann #1 9000ms",
        "   0 acquire db bob ttl=50 wait=20000 request=r1 asker=72061992084439041 -> (queued bob ticket=2 place=1 20000ms)",
        "   0 acquire db cy ttl=50 wait=20000 asker=108                 -> (queued cy ticket=3 place=2 20000ms)",
        " 100 cancel target=72066390130950144 -> -",
        " 200 release db #1 -> (released ann #1 release), released n=1",
        " 300 acquire db di ttl=50 -> refused di held",
        "1000 acquire db bob ttl=50 wait=20000 request=r1 asker=9 -> refused bob replaced ticket=2 @72061992084439041, (queued bob ticket=2 place=1 19000ms), granted bob #4 ticket=2 50ms waited=1000",
        "1010 release db #4 -> (released bob #4 release), released n=1, granted cy #5 ticket=3 50ms waited=1010 @108",
        NULL,
    });
    transcript((const char *const[]){
        "   0 acquire db ann ttl=9000                                   -> granted ann #1 9000ms",
        "   0 acquire db bob ttl=50 wait=20000 request=r1 asker=72061992084439041 -> (queued bob ticket=2 place=1 20000ms)",
        "   0 acquire db cy ttl=50 wait=20000 asker=108                 -> (queued cy ticket=3 place=2 20000ms)",
        " 100 cancel target=72066390130950144 -> -",
        " 200 release db #1 -> (released ann #1 release), released n=1",
        "5099 tick -> -",
        "5100 tick -> left bob cancel ticket=2 waited=5100 on db @72061992084439041, granted cy #4 ticket=3 50ms waited=5100 on db @108",
        NULL,
    });
}

static void a_transaction_is_done_once(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "1 txn s1 select(was,t,k,mine) assert(set(t,k,1)) request=r1 -> (transaction n=1 in=s1), transaction ok was=null",
        "2 txn s1 select(was,t,k,mine) assert(set(t,k,1)) request=r1 -> transaction ok was=null",
        "2 txn s1 select(was,t,k,mine) assert(set(t,k,2)) request=r1 -> failed INUSE",
        "2 txn s2 select(is,t,k) assert(set(t,k,1)) request=r2 -> transaction error statement 1:/AssertOp/ is=1@s1",
        "3 txn s1 assert(delete(t,k)) -> (transaction n=1 in=s1), transaction ok",
        "3 txn s2 select(is,t,k) assert(set(t,k,1)) request=r2 -> transaction error statement 1:/AssertOp/ is=1@s1",
        NULL,
    });
}

static void a_transaction_that_waits_is_asked_for_again(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=90000 -> session-opened 90000ms in=s1",
        " 0 session-open s2 ttl=90000 -> session-opened 90000ms in=s2",
        " 0 txn s1 assert(set(t,k,0)) -> (transaction n=1 in=s1), transaction ok",
        " 1 txn s2 assert(set(t,k,2)) wait=500 request=r1 -> -",
        " 2 txn s2 assert(set(t,k,2)) wait=500 request=r1 -> refused replaced @4",
        " 9 txn s1 assert(delete(t,k)) -> (transaction n=1 in=s1), transaction ok, (transaction n=1 in=s2), transaction waited=8 ok @5",
        "10 txn s2 assert(set(t,k,2)) wait=500 request=r1 -> transaction waited=8 ok",
        "10 txn s1 assert(set(t,k,3)) wait=500 request=r2 asker=72061992084439041 -> -",
        "10 txn s1 assert(set(t,k,4)) wait=9000 request=r3 asker=72061992084439042 -> -",
        "10 txn s1 assert(set(t,k,5)) wait=9000 request=r4 asker=72061992084439043 -> -",
        "20 cancel target=72066390130950144 -> -",
        "30 txn s1 assert(set(t,k,5)) wait=9000 request=r4 -> refused replaced @72061992084439043",
        "510 tick -> transaction waited=500 timeout statement 0:/AssertOp/ @72061992084439041",
        "511 txn s1 assert(set(t,k,3)) wait=500 request=r2 -> transaction waited=500 timeout statement 0:/AssertOp/",
        "5020 txn s2 assert(delete(t,k)) -> (transaction n=1 in=s2), transaction ok, (transaction n=1 in=s1), transaction waited=5010 ok @12",
        "5021 table-show t -> rows [k=5@s1 set=1 exclusive]",
        NULL,
    });
}

static void a_parked_one_is_called_off_with_its_receipt(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 assert(exists(t,k)) wait=500 request=r1 -> -",
        "1 cancel session=s1 target=2 request=r1 -> -",
        "2 txn s1 assert(exists(t,k)) wait=500 request=r1 -> -",
        "502 tick -> transaction waited=500 timeout statement 0:/AssertOp/ @4",
        "502 txn s1 assert(exists(t,k)) wait=500 request=r2 -> -",
        "503 session-close s1 -> transaction waited=1 error session @6, session-ended release in=s1",
        "504 txn s1 assert(exists(t,k)) wait=500 request=r2 -> transaction waited=1 error session",
        NULL,
    });
}

static void it_is_forgotten_after_five_minutes(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "     0 acquire db ann ttl=9 request=r1 -> granted ann #1 9ms",
        "299999 acquire db ann ttl=9 request=r1 -> (expired ann #1 ttl), failed STALE",
        "300000 acquire db ann ttl=9 request=r1 -> granted ann #2 9ms",
        NULL,
    });
}

/* --- limits --- */

struct stage {
    struct machine *m;
    struct effects fx;
};

static void apply(struct stage *s, struct op *op)
{
    const char *what = "";
    effects_reset(&s->fx);
    assert_int_equal(op_validate(op, &what), BELAY_OK);
    op->index = machine_applied(s->m) + 1;
    machine_apply(s->m, op, &s->fx);
}

static const struct event *last(const struct stage *s)
{
    return &s->fx.events[s->fx.n - 1];
}

static struct op release_no(uint64_t n, char id[32])
{
    int len = snprintf(id, 32, "%" PRIu64, n);
    return (struct op){.kind = OP_RELEASE,
                       .asker = n + 1,
                       .now_ms = n / 4096,
                       .name = SLICE("db"),
                       .fence = n + 1,
                       .request = slice_of(id, (size_t)len)};
}

/* The oldest go first: then their requests are carried out again. */
static void there_are_so_many_and_no_more(void **state)
{
    (void)state;
    struct stage s = {.m = machine_open((struct hash_key){1, 2})};
    char id[32];
    for (uint64_t n = 0; n <= LIMIT_RECEIPTS; n++) {
        struct op op = release_no(n, id);
        apply(&s, &op);
    }
    struct machine_counts counts;
    machine_counts(s.m, &counts);
    assert_int_equal(counts.receipts, LIMIT_RECEIPTS);
    for (uint64_t n = 0; n <= 2; n += 2) { /* the first takes the place of 1 */
        struct op op = release_no(n, id);
        op.fence = 77777; /* another request: only a receipt knows that */
        op.now_ms = LIMIT_RECEIPTS / 4096;
        apply(&s, &op);
        assert_int_equal(last(&s)->kind, n == 0 ? EVENT_RELEASED : EVENT_FAILED);
    }
    effects_done(&s.fx);
    machine_close(s.m);
}

/* What a transaction selects is told again when it is small. */
static void a_large_answer_is_not_told_again(void **state)
{
    (void)state;
    struct stage s = {.m = machine_open((struct hash_key){1, 2})};
    static char text[RECEIPT_ANSWER_BYTES + 2];
    memset(text, 'x', sizeof text);
    text[0] = text[sizeof text - 1] = '"';
    struct op open = {.kind = OP_SESSION_OPEN, .session = SLICE("s"), .ttl_ms = 1000};
    apply(&s, &open);
    struct buf program = {0};
    program_begin(&program, 2);
    program_put_constant(&program, SLICE("x"), slice_of(text, sizeof text));
    struct program_var set = {
        .flags = VAR_HAS_VALUE, .table = SLICE("t"), .key = SLICE("k"), .value = SLICE("1")};
    program_put(&program, NODE_ASSERT);
    program_put_var(&program, NODE_SET, &set);
    struct op txn = {.kind = OP_TXN, .session = SLICE("s"), .asker = 2, .request = SLICE("r")};
    txn.program = buf_slice(&program);
    apply(&s, &txn);
    assert_int_equal(last(&s)->status, TXN_OK);
    assert_int_equal(last(&s)->data[0].json.len, sizeof text);
    txn.asker = 3;
    apply(&s, &txn);
    assert_int_equal(last(&s)->kind, EVENT_FAILED);
    assert_int_equal(last(&s)->err, BELAY_ERR_GONE);
    assert_true(slice_starts(last(&s)->text, SLICE("it took effect")));
    buf_done(&program);
    effects_done(&s.fx);
    machine_close(s.m);
}

static void what_was_selected_is_told_again_with_its_times_as_of_now(void **state)
{
    (void)state;
    struct stage s = {.m = machine_open((struct hash_key){1, 2})};
    struct buf program = {0};
    struct op open = {.kind = OP_SESSION_OPEN, .session = SLICE("s"), .ttl_ms = 9000};
    apply(&s, &open);
    struct op set = {.kind = OP_TXN, .session = SLICE("s"), .asker = 2};
    program_begin(&program, 1);
    text_put_node(&program, SLICE("assert(set(t,k,1,ttl=500))"));
    set.program = buf_slice(&program);
    apply(&s, &set);
    buf_clear(&program);
    program_begin(&program, 1);
    text_put_node(&program, SLICE("select(is,t,k,mine)"));
    struct op select = {.kind = OP_TXN,
                        .session = SLICE("s"),
                        .asker = 3,
                        .now_ms = 100,
                        .request = SLICE("r"),
                        .program = buf_slice(&program)};
    static const struct {
        uint64_t at_ms, set_ms_ago, expires_in_ms;
    } told[] = {{100, 100, 400}, {350, 350, 150}, {600, 600, 0}};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        select.now_ms = told[i].at_ms;
        apply(&s, &select);
        assert_int_equal(last(&s)->kind, EVENT_TXN);
        const struct record_row *row = last(&s)->data[0].records;
        assert_int_equal(row->set_ms_ago, told[i].set_ms_ago);
        assert_int_equal(row->expires_in_ms, told[i].expires_in_ms);
    }
    buf_done(&program);
    effects_done(&s.fx);
    machine_close(s.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_again_gets_the_same_answer),
        cmocka_unit_test(a_renewal_counts_down_a_session_keeps_its_ttl),
        cmocka_unit_test(another_request_under_the_id_is_refused),
        cmocka_unit_test(an_account_has_its_own_ids),
        cmocka_unit_test(who_waits_keeps_the_place),
        cmocka_unit_test(how_a_wait_ended_is_remembered),
        cmocka_unit_test(an_upgrade_is_asked_for_again),
        cmocka_unit_test(a_client_that_goes_takes_its_receipt_along),
        cmocka_unit_test(who_is_sent_away_may_come_back),
        cmocka_unit_test(a_parked_one_is_sent_away),
        cmocka_unit_test(a_place_outlives_its_node_for_a_while),
        cmocka_unit_test(nothing_is_granted_to_who_is_away),
        cmocka_unit_test(a_transaction_is_done_once),
        cmocka_unit_test(a_transaction_that_waits_is_asked_for_again),
        cmocka_unit_test(a_parked_one_is_called_off_with_its_receipt),
        cmocka_unit_test(it_is_forgotten_after_five_minutes),
        cmocka_unit_test(there_are_so_many_and_no_more),
        cmocka_unit_test(a_large_answer_is_not_told_again),
        cmocka_unit_test(what_was_selected_is_told_again_with_its_times_as_of_now),
    };
    return cmocka_run_group_tests_name("machine_receipt", tests, NULL, NULL);
}
