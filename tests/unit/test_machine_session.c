/* test_machine_session.c - sessions: everything in one goes with it. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* in the order of the numbers; the lines are served after that */
static void a_session_ends_and_frees_everything_at_once(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100 text=mine -> session-opened 100ms in=s1",
        "  0 acquire a ann session=s1          -> granted ann #2 forever in=s1",
        "  0 acquire b bob ttl=1000            -> granted bob #3 1000ms",
        "  0 acquire b ann session=s1 wait=500 -> (queued ann ticket=4 place=1 500ms in=s1)",
        "  0 acquire c ann session=s1 ttl=1000 -> granted ann #5 1000ms in=s1",
        "  1 acquire a cy ttl=1000 wait=500    -> (queued cy ticket=6 place=1 500ms)",
        "  2 session-show s1                   -> rows [s1 \"mine\" ttl=100 linger=0 left=98 holds=2 waits=1]",
        " 99 tick                              -> -",
        "100 tick                              -> (expired ann #2 session in=s1 on a), left ann session ticket=4 waited=100 in=s1 on b @4, (expired ann #5 session in=s1 on c), (session-ended ttl n=3 in=s1), granted cy #7 ticket=6 1000ms waited=99 on a @6",
        "101 session-show s1                   -> failed NOSESSION",
        "102 acquire c ann session=s1          -> failed NOSESSION",
        NULL,
    });
}

/* it is not an involuntary loss */
static void close_frees_without_delay(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=100           -> session-opened 100ms in=s1",
        "0 acquire a ann session=s1 delay=50 -> granted ann #2 forever in=s1",
        "1 acquire a bob ttl=10 wait=500     -> (queued bob ticket=3 place=1 500ms)",
        "2 session-close s1                  -> (released ann #2 session in=s1 on a), session-ended release n=1 in=s1, granted bob #4 ticket=3 10ms waited=1 on a @3",
        "3 session-close s1                  -> failed NOSESSION",
        NULL,
    });
}

static void any_op_that_names_it_keeps_it(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100         -> session-opened 100ms in=s1",
        " 90 acquire a ann session=s1        -> granted ann #2 forever in=s1",
        "180 acquire b bob ttl=1000          -> granted bob #3 1000ms",
        "189 acquire b ann session=s1        -> refused ann held",
        "280 renew a ann session=s1          -> renewed ann #2 forever in=s1",
        "370 release nothing ann session=s1  -> released",
        "460 convert a ann shared session=s1 -> granted ann #4 forever in=s1",
        "550 body a ann session=s1 body=x    -> body ann #4 forever in=s1",
        "640 session-keepalive s1 s2         -> session-kept n=1",
        "739 session-show s1                 -> rows [s1 ttl=100 linger=0 left=1 holds=1 waits=0]",
        "740 tick                            -> (expired ann #4 session in=s1 on a), (session-ended ttl n=1 in=s1)",
        NULL,
    });
}

static void keepalive_counts_those_that_live(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100    -> session-opened 100ms in=s1",
        "  0 session-open s2 ttl=100    -> session-opened 100ms in=s2",
        " 50 session-keepalive s1       -> session-kept n=1",
        "100 session-keepalive s1 s2 s3 -> (session-ended ttl in=s2), session-kept n=1",
        "101 session-keepalive          -> session-kept",
        "199 tick                       -> -",
        "200 tick                       -> (session-ended ttl in=s1)",
        NULL,
    });
}

/* one that has ended can */
static void an_id_that_lives_cannot_be_opened(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100 -> session-opened 100ms in=s1",
        "  1 session-open s1 ttl=100 -> failed EXISTS",
        " 99 session-open s1 ttl=100 -> failed EXISTS",
        "100 session-open s1 ttl=100 -> (session-ended ttl in=s1), session-opened 100ms in=s1",
        NULL,
    });
}

static void a_closed_connection_ends_it_after_linger(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=1000 linger=50 -> session-opened 1000ms in=s1",
        " 0 acquire a ann session=s1           -> granted ann #2 forever in=s1",
        " 1 session-attach s1 target=7         -> session-kept n=1 1000ms in=s1",
        " 2 session-show s1                    -> rows [s1 ttl=1000 linger=50 left=999 holds=1 waits=0 attached]",
        "10 session-detach s1 target=7         -> session-kept n=1 in=s1",
        "59 session-show s1                    -> rows [s1 ttl=1000 linger=50 left=1 holds=1 waits=0]",
        "60 tick                               -> (expired ann #2 session in=s1 on a), (session-ended ttl n=1 in=s1)",
        NULL,
    });
}

/* the next one has the lock in the same step */
static void a_closed_connection_ends_it_at_once_without_linger(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000      -> session-opened 1000ms in=s1",
        "0 acquire a ann session=s1      -> granted ann #2 forever in=s1",
        "1 session-attach s1 target=7    -> session-kept n=1 1000ms in=s1",
        "2 acquire a bob ttl=10 wait=500 -> (queued bob ticket=3 place=1 500ms)",
        "3 session-detach s1 target=7    -> (expired ann #2 session in=s1 on a), (session-ended session n=1 in=s1), session-kept n=1 in=s1, granted bob #4 ticket=3 10ms waited=1 on a @4",
        NULL,
    });
}

/* the client has moved to another node */
static void a_late_detach_of_an_old_connection_is_ignored(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "   0 session-open s1 ttl=1000 linger=50 -> session-opened 1000ms in=s1",
        "   1 session-attach s1 target=7         -> session-kept n=1 1000ms in=s1",
        "   2 session-attach s1 target=8         -> session-kept n=1 1000ms in=s1",
        "   3 session-detach s1 target=7         -> session-kept in=s1",
        "   4 session-show s1                    -> rows [s1 ttl=1000 linger=50 left=998 holds=0 waits=0 attached]",
        "   5 session-detach s1 target=8         -> session-kept n=1 in=s1",
        "  30 session-attach s1 target=9         -> session-kept n=1 1000ms in=s1",
        "1029 session-show s1                    -> rows [s1 ttl=1000 linger=50 left=1 holds=0 waits=0 attached]",
        "1030 tick                               -> (session-ended ttl in=s1)",
        "1031 session-attach s1 target=9         -> failed NOSESSION",
        "1032 session-detach s1 target=9         -> session-kept in=s1",
        NULL,
    });
}

/* it held the lock as one owner and waited as another */
static void none_of_its_waiters_is_granted_what_it_has_just_lost(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100           -> session-opened 100ms in=s1",
        "  0 acquire a ann session=s1          -> granted ann #2 forever in=s1",
        "  0 acquire a bob session=s1 wait=500 -> (queued bob ticket=3 place=1 500ms in=s1)",
        "  0 acquire a cy ttl=10 wait=500      -> (queued cy ticket=4 place=2 500ms)",
        "100 tick                              -> (expired ann #2 session in=s1 on a), left bob session ticket=3 waited=100 in=s1 on a @3, (session-ended ttl n=2 in=s1), granted cy #5 ticket=4 10ms waited=100 on a @4",
        NULL,
    });
}

/* its session and the hold it waits for end in the same step */
static void the_waiter_of_a_session_that_is_over_is_never_granted(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100           -> session-opened 100ms in=s1",
        "  0 acquire a bob ttl=100             -> granted bob #2 100ms",
        "  0 acquire a ann session=s1 wait=500 -> (queued ann ticket=3 place=1 500ms in=s1)",
        "100 tick                              -> left ann session ticket=3 waited=100 in=s1 on a @3, (session-ended ttl n=1 in=s1), (expired bob #2 ttl on a)",
        "101 show a                            -> rows [a unlocked]",
        NULL,
    });
}

/* and the session lives on */
static void a_lease_in_a_session_ends_by_itself_too(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=100         -> session-opened 100ms in=s1",
        " 0 acquire a ann session=s1 ttl=50 -> granted ann #2 50ms in=s1",
        "50 tick                            -> (expired ann #2 ttl in=s1 on a)",
        "51 session-show s1                 -> rows [s1 ttl=100 linger=0 left=49 holds=0 waits=0]",
        NULL,
    });
}

static void an_upgrade_goes_with_the_session_of_its_hold(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100         -> session-opened 100ms in=s1",
        "  0 acquire a ann session=s1 shared -> granted ann #2 forever in=s1",
        "  0 acquire a bob shared ttl=1000   -> granted bob #3 1000ms",
        "  1 convert a #2 exclusive wait=500 -> (queued ann ticket=4 place=1 500ms in=s1)",
        "100 tick                            -> (expired ann #2 session in=s1 on a), refused ann lost ticket=4 waited=99 in=s1 on a @4, (session-ended ttl n=2 in=s1)",
        NULL,
    });
}

static void sessions_are_listed_in_the_order_they_were_opened(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open zz ttl=100       -> session-opened 100ms in=zz",
        " 0 session-open aa ttl=100       -> session-opened 100ms in=aa",
        " 0 session-open mm ttl=50        -> session-opened 50ms in=mm",
        " 1 session-list limit=2          -> rows [zz ttl=100 linger=0 left=99 holds=0 waits=0] [aa ttl=100 linger=0 left=99 holds=0 waits=0] more",
        " 1 session-list limit=2 after=aa -> rows [mm ttl=50 linger=0 left=49 holds=0 waits=0]",
        "50 session-list after=aa         -> rows",
        "51 session-list after=nobody     -> failed NOSESSION",
        NULL,
    });
}

/* CANCEL from the engine, without a name: node 1 lives in its run 2 now. Askers and connections
 * are numbers of node, run and the rest; 72061992084439... is node 1, run 1. Places that nobody
 * stays for (the top bit) and what is held stay. */
static void the_runs_of_a_node_that_are_over_leave_every_line_and_no_attachment(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 0 session-open s1 ttl=100 linger=5 target=72061992084439041  -> session-opened 100ms in=s1",
        " 0 session-open s2 ttl=100 target=144119586122366977          -> session-opened 100ms in=s2",
        " 1 acquire a ann ttl=50 asker=72061992084439042               -> granted ann #3 50ms",
        " 1 acquire a bob ttl=50 wait=500 asker=72061992084439043      -> (queued bob ticket=4 place=1 500ms)",
        " 1 acquire a cy ttl=50 wait=500 asker=144119586122366978      -> (queued cy ticket=5 place=2 500ms)",
        " 1 acquire a di ttl=50 wait=500 asker=72066390130950145       -> (queued di ticket=6 place=3 500ms)",
        " 1 acquire a ed ttl=50 wait=500 noblock asker=9295434029139214852 -> queued ed ticket=7 place=4 500ms",
        " 2 cancel target=72066390130950144                            -> (left bob cancel ticket=4 waited=1 on a)",
        " 3 session-list                                               -> rows [s1 ttl=100 linger=5 left=97 holds=0 waits=0] [s2 ttl=100 linger=0 left=97 holds=0 waits=0 attached]",
        " 4 session-detach s1 target=72061992084439041                 -> session-kept in=s1",
        "51 tick                                                       -> (expired ann #3 ttl on a), granted cy #8 ticket=5 50ms waited=50 on a @144119586122366978",
        NULL,
    });
}

static void what_a_session_must_have(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1    -> invalid: ttl must be at least 1 ms",
        "0 session-open ttl=5 -> invalid: session id is empty",
        "0 session-attach s1  -> invalid: target is missing",
        "0 session-detach s1  -> invalid: target is missing",
        "0 session-close s1   -> failed NOSESSION",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_ends_and_frees_everything_at_once),
        cmocka_unit_test(close_frees_without_delay),
        cmocka_unit_test(any_op_that_names_it_keeps_it),
        cmocka_unit_test(keepalive_counts_those_that_live),
        cmocka_unit_test(an_id_that_lives_cannot_be_opened),
        cmocka_unit_test(a_closed_connection_ends_it_after_linger),
        cmocka_unit_test(a_closed_connection_ends_it_at_once_without_linger),
        cmocka_unit_test(a_late_detach_of_an_old_connection_is_ignored),
        cmocka_unit_test(none_of_its_waiters_is_granted_what_it_has_just_lost),
        cmocka_unit_test(the_waiter_of_a_session_that_is_over_is_never_granted),
        cmocka_unit_test(a_lease_in_a_session_ends_by_itself_too),
        cmocka_unit_test(an_upgrade_goes_with_the_session_of_its_hold),
        cmocka_unit_test(sessions_are_listed_in_the_order_they_were_opened),
        cmocka_unit_test(the_runs_of_a_node_that_are_over_leave_every_line_and_no_attachment),
        cmocka_unit_test(what_a_session_must_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
