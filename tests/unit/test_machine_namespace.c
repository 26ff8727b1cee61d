/* test_machine_namespace.c - namespaces: made, described, deleted. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void create_show_update_list(void **state)
{
    (void)state;
    transcript((const char *const[]){
        " 5 namespace-create n1 text=one    -> namespace-created",
        " 6 namespace-create n1             -> failed EXISTS",
        " 7 namespace-create default        -> failed EXISTS",
        " 8 namespace-update n1 text=two    -> namespace-updated",
        " 9 namespace-show n1               -> rows [n1 \"two\" created=5 updated=8 locks=0 held=0 waiting=0]",
        "10 namespace-update nowhere text=x -> failed NONAMESPACE",
        "11 namespace-show nowhere          -> failed NONAMESPACE",
        "12 namespace-list                  -> rows [default created=0 updated=0 locks=0 held=0 waiting=0] [n1 \"two\" created=5 updated=8 locks=0 held=0 waiting=0]",
        "13 namespace-list limit=1          -> rows [default created=0 updated=0 locks=0 held=0 waiting=0] more",
        "14 namespace-list after=default    -> rows [n1 \"two\" created=5 updated=8 locks=0 held=0 waiting=0]",
        NULL,
    });
}

static void the_same_name_in_two_namespaces_is_two_locks(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create n1          -> namespace-created",
        "1 acquire db ann ttl=100       -> granted ann #1 100ms",
        "2 acquire db bob ttl=100 ns=n1 -> granted bob #2 100ms",
        "3 release db #1 ns=n1          -> released",
        "4 list ns=n1                   -> rows [db exclusive bob#2:exclusive held=2 left=98]",
        "5 namespace-show n1            -> rows [n1 created=0 updated=0 locks=1 held=1 waiting=0]",
        NULL,
    });
}

/* held or waited for; a body alone is no use */
static void one_that_is_in_use_is_not_deleted(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create n1                 -> namespace-created",
        "1 acquire db ann ttl=100 ns=n1 body=x -> granted ann #1 100ms \"x\"",
        "2 namespace-delete n1                 -> failed INUSE",
        "3 release db ann ns=n1                -> (released ann #1 release), released n=1",
        "4 namespace-delete n1                 -> namespace-deleted",
        "5 namespace-delete n1                 -> failed NONAMESPACE",
        "6 show db ns=n1                       -> failed NONAMESPACE",
        "7 namespace-create n1                 -> namespace-created",
        "8 list ns=n1                          -> rows",
        NULL,
    });
}

/* by name; waiters first */
static void forced_every_holder_and_waiter_is_told(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 namespace-create n1                  -> namespace-created",
        "  1 acquire b ann ttl=100 ns=n1 delay=50 -> granted ann #1 100ms",
        "  2 acquire b bob ttl=100 wait=500 ns=n1 -> (queued bob ticket=2 place=1 500ms)",
        "  3 acquire a cy shared ttl=100 ns=n1    -> granted cy #3 100ms",
        "  4 namespace-delete n1 force            -> namespace-deleted, (expired cy #3 namespace on a), left bob namespace ticket=2 waited=2 on b @3, (expired ann #1 namespace on b)",
        "  5 namespace-create n1                  -> namespace-created",
        "  6 acquire b di ttl=100 ns=n1           -> granted di #4 100ms",
        "  7 renew a #3 ns=n1                     -> failed STALE",
        "200 tick                                 -> (expired di #4 ttl on b)",
        NULL,
    });
}

static void the_locks_of_a_session_go_with_the_namespace_the_session_stays(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create n1            -> namespace-created",
        "0 session-open s1 ttl=1000       -> session-opened 1000ms in=s1",
        "1 acquire a ann session=s1 ns=n1 -> granted ann #2 forever in=s1",
        "2 acquire a ann session=s1       -> granted ann #3 forever in=s1",
        "3 namespace-delete n1 force      -> namespace-deleted, (expired ann #2 namespace in=s1 on a)",
        "4 session-show s1                -> rows [s1 ttl=1000 linger=0 left=998 holds=1 waits=0]",
        "5 check a #3                     -> checked #3 n=1",
        NULL,
    });
}

static void the_default_one_is_like_any_other(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 acquire a ann ttl=1000         -> granted ann #1 1000ms",
        "1 namespace-delete default       -> failed INUSE",
        "2 namespace-delete default force -> namespace-deleted, (expired ann #1 namespace on a)",
        "3 acquire a ann ttl=1000         -> failed NONAMESPACE",
        "4 namespace-list                 -> rows",
        "5 namespace-create default       -> namespace-created",
        "6 acquire a ann ttl=1000         -> granted ann #2 1000ms",
        NULL,
    });
}

static void fences_go_on_rising_in_a_namespace_made_again(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create n1        -> namespace-created",
        "1 acquire a ann ttl=10 ns=n1 -> granted ann #1 10ms",
        "2 namespace-delete n1 force  -> namespace-deleted, (expired ann #1 namespace on a)",
        "3 namespace-create n1        -> namespace-created",
        "4 acquire a ann ttl=10 ns=n1 -> granted ann #2 10ms",
        NULL,
    });
}

static void an_account_that_is_not_there(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create n1 account=other -> failed NOTFOUND",
        "1 acquire a ann account=other       -> failed NONAMESPACE",
        "2 namespace-list account=other      -> rows",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_show_update_list),
        cmocka_unit_test(the_same_name_in_two_namespaces_is_two_locks),
        cmocka_unit_test(one_that_is_in_use_is_not_deleted),
        cmocka_unit_test(forced_every_holder_and_waiter_is_told),
        cmocka_unit_test(the_locks_of_a_session_go_with_the_namespace_the_session_stays),
        cmocka_unit_test(the_default_one_is_like_any_other),
        cmocka_unit_test(fences_go_on_rising_in_a_namespace_made_again),
        cmocka_unit_test(an_account_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
