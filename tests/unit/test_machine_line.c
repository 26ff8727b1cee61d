/* test_machine_line.c - the line: strictly by ticket, nobody is passed, no wake-up is lost. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void first_come_first_served(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100          -> granted ann #1 100ms",
        "1 acquire db bob ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy ttl=100 wait=500  -> (queued cy ticket=3 place=2 500ms)",
        "3 release db #1                   -> (released ann #1 release), released n=1, granted bob #4 ticket=2 100ms waited=2 @2",
        "4 acquire db ann ttl=100 wait=500 -> (queued ann ticket=5 place=2 500ms)",
        "5 release db #4                   -> (released bob #4 release), released n=1, granted cy #6 ticket=3 100ms waited=3 @3",
        "6 release db #6                   -> (released cy #6 release), released n=1, granted ann #7 ticket=5 100ms waited=2 @5",
        NULL,
    });
}

/* and the lease of the next one counts from its grant */
static void a_lease_that_ends_hands_over_in_the_same_step(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100         -> granted ann #1 100ms",
        " 10 acquire db bob ttl=30 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        " 99 tick                           -> -",
        "100 tick                           -> (expired ann #1 ttl on db), granted bob #3 ticket=2 30ms waited=90 on db @2",
        "129 check db #3                    -> checked #3 n=1",
        "130 tick                           -> (expired bob #3 ttl on db)",
        NULL,
    });
}

/* the default: hard */
static void a_waiting_writer_keeps_later_readers_behind_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100         -> granted ann #1 100ms",
        "1 acquire db bob ttl=100 wait=500       -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy shared ttl=100          -> refused cy held",
        "3 acquire db cy shared ttl=100 wait=500 -> (queued cy ticket=3 place=2 500ms)",
        "4 acquire db di shared ttl=100 wait=500 -> (queued di ticket=4 place=3 500ms)",
        "5 release db #1                         -> (released ann #1 release), released n=1, granted bob #5 ticket=2 100ms waited=4 @2",
        "6 release db #5                         -> (released bob #5 release), released n=1, granted cy #6 ticket=3 100ms waited=3 @4, granted di #7 ticket=4 100ms waited=2 @5",
        NULL,
    });
}

static void readers_in_a_row_are_let_in_together_up_to_the_next_writer(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100                 -> granted ann #1 100ms",
        "1 acquire db bob shared ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy shared ttl=100 wait=500  -> (queued cy ticket=3 place=2 500ms)",
        "3 acquire db di ttl=100 wait=500         -> (queued di ticket=4 place=3 500ms)",
        "4 acquire db eve shared ttl=100 wait=500 -> (queued eve ticket=5 place=4 500ms)",
        "5 release db #1                          -> (released ann #1 release), released n=1, granted bob #6 ticket=2 100ms waited=4 @2, granted cy #7 ticket=3 100ms waited=3 @3",
        "6 release db bob                         -> (released bob #6 release), released n=1",
        "7 release db cy                          -> (released cy #7 release), released n=1, granted di #8 ticket=4 100ms waited=4 @4",
        "8 release db di                          -> (released di #8 release), released n=1, granted eve #9 ticket=5 100ms waited=4 @5",
        NULL,
    });
}

/* on arrival and in the line, but not another writer */
static void a_soft_writer_lets_readers_pass(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100        -> granted ann #1 100ms",
        "1 acquire db bob soft ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy shared ttl=100         -> granted cy #3 100ms",
        "3 acquire db di ttl=100                -> refused di held",
        "4 acquire db di soft ttl=100 wait=500  -> (queued di ticket=4 place=2 500ms)",
        "5 acquire db eve shared ttl=100        -> granted eve #5 100ms",
        "6 release db ann                       -> (released ann #1 release), released n=1",
        "7 release db cy                        -> (released cy #3 release), released n=1",
        "8 release db eve                       -> (released eve #5 release), released n=1, granted bob #6 ticket=2 100ms waited=7 @2",
        "9 release db bob                       -> (released bob #6 release), released n=1, granted di #7 ticket=4 100ms waited=5 @5",
        NULL,
    });
}

static void a_hard_writer_behind_a_soft_one_stops_the_readers(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=100         -> granted ann #1 100ms",
        "1 acquire db bob soft ttl=100 wait=500  -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy ttl=100 wait=500        -> (queued cy ticket=3 place=2 500ms)",
        "3 acquire db di shared ttl=100          -> refused di held",
        "4 acquire db di shared ttl=100 wait=500 -> (queued di ticket=4 place=3 500ms)",
        "5 release db ann                        -> (released ann #1 release), released n=1, granted bob #5 ticket=2 100ms waited=4 @2",
        "6 release db bob                        -> (released bob #5 release), released n=1, granted cy #6 ticket=3 100ms waited=4 @3",
        "7 release db cy                         -> (released cy #6 release), released n=1, granted di #7 ticket=4 100ms waited=3 @5",
        NULL,
    });
}

static void a_reader_behind_a_soft_writer_is_let_in_when_it_fits(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=100                 -> granted ann #1 100ms",
        "1 acquire db bob shared ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "2 acquire db cy soft ttl=100 wait=500    -> (queued cy ticket=3 place=2 500ms)",
        "3 acquire db di shared ttl=100 wait=500  -> (queued di ticket=4 place=3 500ms)",
        "4 release db ann                         -> (released ann #1 release), released n=1, granted bob #5 ticket=2 100ms waited=3 @2, granted di #6 ticket=4 100ms waited=1 @4",
        NULL,
    });
}

/* never on arrival; counted from the last shared grant, or from when it came */
static void a_timed_writer_waits_for_quiet(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann timed=50 ttl=100 wait=500 -> (queued ann ticket=1 place=1 500ms)",
        " 20 acquire db bob shared ttl=5              -> granted bob #2 5ms",
        " 25 tick                                     -> (expired bob #2 ttl on db)",
        " 69 tick                                     -> -",
        " 70 tick                                     -> granted ann #3 ticket=1 100ms waited=70 on db @1",
        " 71 release db ann                           -> (released ann #3 release), released n=1",
        " 72 acquire db cy timed=50 ttl=100 wait=500  -> (queued cy ticket=4 place=1 500ms)",
        "121 tick                                     -> -",
        "122 tick                                     -> granted cy #5 ticket=4 100ms waited=50 on db @7",
        NULL,
    });
}

static void a_timed_writer_that_never_finds_quiet_times_out(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann timed=10 ttl=100 wait=20 -> (queued ann ticket=1 place=1 20ms)",
        " 5 acquire db bob shared ttl=3             -> granted bob #2 3ms",
        "14 acquire db cy shared ttl=3              -> (expired bob #2 ttl), granted cy #3 3ms",
        "19 tick                                    -> (expired cy #3 ttl on db)",
        "20 tick                                    -> timeout ann ticket=1 waited=20 on db @1",
        "21 acquire db di timed=10 wait=9           -> invalid: POLICY timed needs WAIT of at least its quiet time",
        NULL,
    });
}

static void a_timed_writer_does_not_pass_the_holder_when_it_is_quiet(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=100            -> granted ann #1 100ms",
        " 1 acquire db bob timed=10 ttl=100 wait=500 -> (queued bob ticket=2 place=1 500ms)",
        "50 tick                                     -> -",
        "60 release db ann                           -> (released ann #1 release), released n=1, granted bob #3 ticket=2 100ms waited=59 @2",
        NULL,
    });
}

static void a_wait_ends_at_its_end_and_not_before(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=1000        -> granted ann #1 1000ms",
        " 1 acquire db bob ttl=100 wait=50 -> (queued bob ticket=2 place=1 50ms)",
        "50 tick                           -> -",
        "51 tick                           -> timeout bob ticket=2 waited=50 on db @2",
        "52 release db ann                 -> (released ann #1 release), released n=1",
        "53 show db                        -> rows [db unlocked]",
        NULL,
    });
}

static void a_wait_that_ends_together_with_the_hold_is_not_granted(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100          -> granted ann #1 100ms",
        "  0 acquire db bob ttl=100 wait=100 -> (queued bob ticket=2 place=1 100ms)",
        "  0 acquire db cy ttl=100 wait=101  -> (queued cy ticket=3 place=2 101ms)",
        "100 tick                            -> (expired ann #1 ttl on db), timeout bob ticket=2 waited=100 on db @2, granted cy #4 ticket=3 100ms waited=100 on db @3",
        NULL,
    });
}

static void when_the_head_times_out_those_behind_it_may_go(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=1000        -> granted ann #1 1000ms",
        " 1 acquire db bob ttl=100 wait=50        -> (queued bob ticket=2 place=1 50ms)",
        " 2 acquire db cy shared ttl=100 wait=500 -> (queued cy ticket=3 place=2 500ms)",
        "51 tick                                  -> timeout bob ticket=2 waited=50 on db @2, granted cy #4 ticket=3 100ms waited=49 on db @3",
        NULL,
    });
}

static void when_the_head_gives_up_those_behind_it_may_go(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann shared ttl=1000        -> granted ann #1 1000ms",
        "1 acquire db bob ttl=100 wait=50        -> (queued bob ticket=2 place=1 50ms)",
        "2 acquire db cy shared ttl=100 wait=500 -> (queued cy ticket=3 place=2 500ms)",
        "3 cancel db @2                          -> left bob cancel ticket=2 waited=2 @2, granted cy #4 ticket=3 100ms waited=1 @3",
        NULL,
    });
}

/* with its own ttl, body and time-out */
static void asking_again_while_waiting_takes_the_place_over(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=1000                -> granted ann #1 1000ms",
        " 1 acquire db bob ttl=100 wait=50         -> (queued bob ticket=2 place=1 50ms)",
        " 2 acquire db cy ttl=100 wait=500         -> (queued cy ticket=3 place=2 500ms)",
        "40 acquire db bob ttl=77 wait=200 body=hi -> refused bob replaced ticket=2 @2, (queued bob ticket=2 place=1 200ms)",
        "60 release db ann                         -> (released ann #1 release), released n=1, granted bob #4 ticket=2 77ms waited=59 \"hi\" @4",
        NULL,
    });
}

/* and asking for something else is refused */
static void asking_again_without_waiting_leaves_the_place_as_it_is(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=1000               -> granted ann #1 1000ms",
        " 1 acquire db bob ttl=100 wait=50        -> (queued bob ticket=2 place=1 50ms)",
        " 2 acquire db bob ttl=100                -> refused bob held",
        " 3 acquire db bob shared ttl=100 wait=50 -> refused bob kind",
        " 4 acquire db bob soft ttl=100 wait=50   -> refused bob kind",
        " 5 show db                               -> rows [db exclusive ann#1:exclusive held=5 left=995 1.bob@2:exclusive waited=4 left=46]",
        "51 tick                                  -> timeout bob ticket=2 waited=50 on db @2",
        NULL,
    });
}

/* and asking again tells where it now is */
static void noblock_is_told_its_place(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire db ann ttl=1000                 -> granted ann #1 1000ms",
        "1 acquire db bob ttl=100 wait=500 noblock -> queued bob ticket=2 place=1 500ms",
        "2 acquire db cy ttl=100 wait=500 noblock  -> queued cy ticket=3 place=2 500ms",
        "3 release db bob                          -> left bob release ticket=2 waited=2 @2, released n=1",
        "4 acquire db cy ttl=100 wait=500 noblock  -> refused cy replaced ticket=3 @3, queued cy ticket=3 place=1 500ms",
        NULL,
    });
}

static void a_place_in_one_line_is_none_in_another(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=100 +b       -> (granted ann #1 100ms), granted ann #2 100ms on b",
        "1 acquire a bob ttl=100 wait=500 -> (queued bob ticket=3 place=1 500ms)",
        "2 acquire b bob ttl=100 wait=500 -> (queued bob ticket=4 place=1 500ms)",
        "3 release b ann                  -> (released ann #2 release), released n=1, granted bob #5 ticket=4 100ms waited=1 @3",
        "4 show a                         -> rows [a exclusive ann#1:exclusive held=4 left=96 1.bob@3:exclusive waited=3 left=497]",
        NULL,
    });
}

/* the timed one at its head keeps it for itself */
static void a_new_writer_does_not_pass_the_line_of_a_free_lock(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann timed=50 ttl=100 wait=500 -> (queued ann ticket=1 place=1 500ms)",
        " 1 acquire db bob ttl=100                   -> refused bob held",
        " 2 acquire db bob ttl=100 wait=500          -> (queued bob ticket=2 place=2 500ms)",
        "50 tick                                     -> granted ann #3 ticket=1 100ms waited=50 on db @1",
        NULL,
    });
}

/* Its client sends no more: as if its time was up. What was granted stays. */
static void a_wait_is_ended_by_its_own_client(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100 asker=1 -> granted ann #1 100ms",
        " 0 acquire db bob ttl=100 wait=50 asker=2 -> (queued bob ticket=2 place=1 50ms)",
        " 1 cancel db target=1 end-wait -> -",
        " 2 cancel db target=2 end-wait -> timeout bob cancel ticket=2 waited=2 @2",
        " 3 release db #1 -> (released ann #1 release), released n=1",
        NULL,
    });
}

#define NODE_1 "72057594037927936" /* what the askers of node 1 begin with: 1 << 56 */

/* While a node is not heard, the line goes on without those who wait there. */
static void who_waits_at_a_silent_node_is_passed_over(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100                    -> granted ann #1 100ms",
        " 0 acquire db bob ttl=100 wait=500 asker=72057594037927937 -> (queued bob ticket=2 place=1 500ms)",
        " 0 acquire db cy ttl=100 wait=500           -> (queued cy ticket=3 place=2 500ms)",
        " 1 node away target=" NODE_1 "               -> -",
        " 2 release db #1 -> (released ann #1 release), released n=1, granted cy #4 ticket=3 100ms waited=2 @3",
        /* a place is kept: heard again, it is before those who came later */
        " 3 acquire db di ttl=100 wait=500           -> (queued di ticket=5 place=2 500ms)",
        " 4 node target=" NODE_1 "                    -> -",
        " 5 release db #4 -> (released cy #4 release), released n=1, granted bob #6 ticket=2 100ms waited=5 @72057594037927937",
        NULL,
    });
}

static void who_waits_at_a_silent_node_stands_in_nobodys_way(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann shared ttl=100             -> granted ann #1 100ms",
        " 0 acquire db bob ttl=100 wait=500 asker=72057594037927937 -> (queued bob ticket=2 place=1 500ms)",
        " 0 acquire db cy shared ttl=100 wait=500    -> (queued cy ticket=3 place=2 500ms)",
        " 0 acquire db di shared                     -> refused di held",
        " 1 node away target=" NODE_1
        "               -> granted cy #4 ticket=3 100ms waited=1 on db @3",
        " 1 acquire db di shared                     -> granted di #5 forever",
        " 2 acquire db eve                           -> refused eve held",
        " 3 release db #1 -> (released ann #1 release), released n=1",
        " 3 release db #4 -> (released cy #4 release), released n=1",
        " 3 release db #5 -> (released di #5 release), released n=1",
        /* nobody holds it: it is given when the node is heard */
        " 4 node target=" NODE_1
        "                    -> granted bob #6 ticket=2 100ms waited=4 on db @72057594037927937",
        NULL,
    });
}

/* What ends in the step that says so is not given away before it is said. */
static void a_node_is_silent_before_anything_ends_in_that_step(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 acquire db ann ttl=100                   -> granted ann #1 100ms",
        "  0 acquire db bob ttl=100 wait=500 asker=72057594037927937 -> (queued bob ticket=2 place=1 500ms)",
        "100 node away target=" NODE_1 "              -> (expired ann #1 ttl on db)",
        "101 acquire db cy ttl=100                   -> granted cy #3 100ms",
        /* who comes back through another node is served there */
        "102 acquire db bob ttl=100 wait=500         -> refused bob replaced ticket=2 @72057594037927937, (queued bob ticket=2 place=1 500ms)",
        "103 release db #3 -> (released cy #3 release), released n=1, granted bob #4 ticket=2 100ms waited=103 @5",
        NULL,
    });
}

/* A place that nobody stays for is of no node. */
static void a_place_that_nobody_stays_for_is_not_passed_over(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 acquire db ann ttl=100                   -> granted ann #1 100ms",
        " 0 acquire db bob ttl=100 wait=500 noblock asker=9295429630892703745 -> queued bob ticket=2 place=1 500ms",
        " 1 node away target=" NODE_1 "              -> -",
        " 2 release db #1 -> (released ann #1 release), released n=1, (granted bob #3 ticket=2 100ms waited=2)",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(a_lease_that_ends_hands_over_in_the_same_step),
        cmocka_unit_test(a_waiting_writer_keeps_later_readers_behind_it),
        cmocka_unit_test(readers_in_a_row_are_let_in_together_up_to_the_next_writer),
        cmocka_unit_test(a_soft_writer_lets_readers_pass),
        cmocka_unit_test(a_hard_writer_behind_a_soft_one_stops_the_readers),
        cmocka_unit_test(a_reader_behind_a_soft_writer_is_let_in_when_it_fits),
        cmocka_unit_test(a_timed_writer_waits_for_quiet),
        cmocka_unit_test(a_timed_writer_that_never_finds_quiet_times_out),
        cmocka_unit_test(a_timed_writer_does_not_pass_the_holder_when_it_is_quiet),
        cmocka_unit_test(a_wait_ends_at_its_end_and_not_before),
        cmocka_unit_test(a_wait_that_ends_together_with_the_hold_is_not_granted),
        cmocka_unit_test(when_the_head_times_out_those_behind_it_may_go),
        cmocka_unit_test(when_the_head_gives_up_those_behind_it_may_go),
        cmocka_unit_test(asking_again_while_waiting_takes_the_place_over),
        cmocka_unit_test(asking_again_without_waiting_leaves_the_place_as_it_is),
        cmocka_unit_test(noblock_is_told_its_place),
        cmocka_unit_test(a_place_in_one_line_is_none_in_another),
        cmocka_unit_test(a_wait_is_ended_by_its_own_client),
        cmocka_unit_test(who_waits_at_a_silent_node_is_passed_over),
        cmocka_unit_test(who_waits_at_a_silent_node_stands_in_nobodys_way),
        cmocka_unit_test(a_node_is_silent_before_anything_ends_in_that_step),
        cmocka_unit_test(a_place_that_nobody_stays_for_is_not_passed_over),
        cmocka_unit_test(a_new_writer_does_not_pass_the_line_of_a_free_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
