/* test_txn.c - transactions: every statement and operator, all or none. */
#include "transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void set_is_first_come_and_not_reentrant(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 txn s1 op(x,set(t,k,1)) op(y,set(t,k,1)) -> (transaction n=1 in=s1), transaction ok x=true y=false",
        "0 txn s1 op(x,set(t,k,1)) -> transaction ok x=false",
        "0 txn s2 op(x,set(t,k,2)) -> transaction ok x=false",
        "0 table-show t -> rows [k=1@s1 set=0 exclusive]",
        NULL,
    });
}

/* the flag belongs to the newcomer only, as in the original; respect_exclusive closes that */
static void allow_duplicates_joins_and_replaces_in_place(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 session-open s3 ttl=1000 -> session-opened 1000ms in=s3",
        "0 txn s1 op(x,set(t,k,1)) -> (transaction n=1 in=s1), transaction ok x=true",
        "0 txn s2 op(x,set(t,k,2,dup,respect)) -> transaction ok x=false",
        "1 txn s2 op(x,set(t,k,2,dup)) -> (transaction n=1 in=s2), transaction ok x=true",
        "2 txn s3 op(x,set(t,k,3,dup)) -> (transaction n=1 in=s3), transaction ok x=true",
        "3 txn s1 op(x,set(t,k,4,dup)) -> (transaction n=2 in=s1), transaction ok x=true",
        "4 table-show t -> rows [k=4@s1 set=1] [k=2@s2 set=3] [k=3@s3 set=2]",
        "4 txn s2 op(x,set(t,k,5,dup,respect)) -> (transaction n=2 in=s2), transaction ok x=true",
        "4 txn s2 select(a,t,k) select(b,t,k,many) select(c,t,k,mine,many) -> transaction ok a=4@s1 b=[4@s1,3@s3] c=[4@s1,5@s2,3@s3]",
        NULL,
    });
}

static void exists_compares_the_value_and_ignores_this_session(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 txn s1 anyway(set(t,k,1)) -> (transaction n=1 in=s1), transaction ok",
        "0 txn s1 op(a,exists(t,k)) op(b,exists(t,k,mine)) op(c,exists(t,k,1,mine)) op(d,exists(t,k,2,mine)) -> transaction ok a=false b=true c=true d=false",
        "0 txn s2 op(a,exists(t,k)) op(b,exists(t,k,1)) op(c,exists(t,k,2)) op(d,exists(t,z)) op(e,exists(z,k)) -> transaction ok a=true b=true c=false d=false e=false",
        NULL,
    });
}

static void delete_takes_only_what_is_its_own(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 txn s1 anyway(set(t,k,1)) -> (transaction n=1 in=s1), transaction ok",
        "0 txn s2 anyway(set(t,k,2,dup)) -> (transaction n=1 in=s2), transaction ok",
        "0 txn s1 op(x,delete(t,k,2)) -> transaction ok x=false",
        "0 txn s1 op(x,delete(t,k,1)) op(y,delete(t,k)) -> (transaction n=1 in=s1), transaction ok x=true y=false",
        "0 table-show t -> rows [k=2@s2 set=0]",
        "0 txn s2 op(x,delete(t,k)) -> (transaction n=1 in=s2), transaction ok x=true",
        "0 table-list -> rows",
        NULL,
    });
}

/* both operands are always evaluated, with what they do */
static void operators_never_stop_halfway(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 op(x,or(set(t,a,1),set(t,b,1))) op(y,and(false,set(t,c,1))) -> (transaction n=3 in=s1), transaction ok x=true y=false",
        "0 table-show t -> rows [a=1@s1 set=0 exclusive] [b=1@s1 set=0 exclusive] [c=1@s1 set=0 exclusive]",
        "0 txn s1 op(a,and(true,true)) op(b,and(true,false)) op(c,or(false,false)) op(d,or(false,true)) -> transaction ok a=true b=false c=false d=true",
        "0 txn s1 op(a,xor(true,true)) op(b,xor(true,false)) op(c,xor(true,true,true)) op(d,not(true)) op(e,not(not(true))) -> transaction ok a=false b=true c=true d=false e=true",
        NULL,
    });
}

static void the_path_names_what_aborted(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 assert(true) assert(not(and(true,true))) -> transaction error statement 1:/AssertOp/",
        "0 txn s1 abort -> transaction error statement 0:/AbortOp/",
        "0 txn s1 block(if(true,abort)) -> transaction error statement 0:/BlockOp/IfOp/AbortOp/",
        "0 txn s1 const(a,1) block(const(b,2),if(false,abort,assert(false))) -> transaction error statement 1:/BlockOp/IfOp/AssertOp/ a=1 b=2",
        "0 txn s1 select(x,t,k,need) -> transaction error statement 0:/SelectVarValueOp/",
        "0 txn s1 select(x,t,k) select(y,t,k,many) -> transaction ok x=null y=null",
        "0 txn s1 if(false,abort) if(true,const(a,1),abort) if(false,abort,const(b,2)) -> transaction ok a=1 b=2",
        NULL,
    });
}

/* whatever a transaction did to any slot is undone in reverse, and the order of records stays
 */
static void an_abort_undoes_everything(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "0 session-open s3 ttl=1000 -> session-opened 1000ms in=s3",
        "0 txn s1 anyway(set(t,k,1,dup)) anyway(set(t,j,1)) -> (transaction n=2 in=s1), transaction ok",
        "0 txn s2 anyway(set(t,k,2,dup)) -> (transaction n=1 in=s2), transaction ok",
        "0 txn s3 anyway(set(t,k,3,dup)) -> (transaction n=1 in=s3), transaction ok",
        "1 txn s2 assert(delete(t,k)) assert(set(t,k,9,dup)) assert(set(t,k,8,dup)) assert(set(u,n,1)) assert(delete(u,n)) assert(set(u,n,2)) select(x,t,k,mine,many) abort -> transaction error statement 7:/AbortOp/ x=[1@s1,3@s3,8@s2]",
        "1 table-show t -> rows [k=1@s1 set=1] [k=2@s2 set=1] [k=3@s3 set=1] [j=1@s1 set=1 exclusive]",
        "1 table-list -> rows [t keys=2 records=4]",
        "1 txn s1 assert(delete(t,j)) assert(delete(t,k)) abort -> transaction error statement 2:/AbortOp/",
        "1 table-show t -> rows [k=1@s1 set=1] [k=2@s2 set=1] [k=3@s3 set=1] [j=1@s1 set=1 exclusive]",
        NULL,
    });
}

static void later_operators_see_earlier_changes(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 txn s1 op(a,set(t,k,1)) op(b,exists(t,k,mine)) op(c,delete(t,k)) op(d,exists(t,k,mine)) op(e,set(t,k,2)) -> (transaction n=3 in=s1), transaction ok a=true b=true c=true d=false e=true",
        "0 table-show t -> rows [k=2@s1 set=0 exclusive]",
        NULL,
    });
}

static void a_variable_ends_exactly_on_time(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "  0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "  0 txn s1 anyway(set(t,k,1,ttl=100)) -> (transaction n=1 in=s1), transaction ok",
        " 99 txn s2 op(x,exists(t,k)) -> transaction ok x=true",
        " 99 table-show t -> rows [k=1@s1 set=99 left=1 exclusive]",
        "100 table-show t -> rows",
        "100 txn s2 op(x,exists(t,k)) -> (variable-expired t ttl in=s1 on k), transaction ok x=false",
        "100 txn s1 anyway(set(t,k,1,ttl=100)) -> (transaction n=1 in=s1), transaction ok",
        "150 txn s1 anyway(set(t,k,2,ttl=100,dup)) -> (transaction n=2 in=s1), transaction ok",
        "200 tick -> -",
        "250 tick -> (variable-expired t ttl in=s1 on k)",
        NULL,
    });
}

static void variables_go_with_their_session_in_one_step(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "  0 session-open s1 ttl=100 -> session-opened 100ms in=s1",
        "  0 session-open s2 ttl=1000 -> session-opened 1000ms in=s2",
        "  0 txn s1 anyway(set(t,k,1,dup)) anyway(set(u,k,1)) -> (transaction n=2 in=s1), transaction ok",
        "  0 txn s2 anyway(set(t,k,2,dup)) -> (transaction n=1 in=s2), transaction ok",
        "  0 acquire db ann session=s1 -> granted ann #6 forever in=s1",
        " 50 txn s1 -> transaction ok",
        "149 txn s2 op(x,exists(t,k)) -> transaction ok x=true",
        "150 tick -> (expired ann #6 session in=s1 on db), (session-ended ttl n=3 in=s1)",
        "150 table-list -> rows [t keys=1 records=1]",
        "150 txn s1 -> transaction error session",
        "150 session-close s2 -> session-ended release n=1 in=s2",
        "150 table-list -> rows",
        NULL,
    });
}

/* a blank description falls back to the transaction's, then to the session's */
static void descriptions_fall_back(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 text=sess -> session-opened 1000ms in=s1",
        "0 txn s1 anyway(set(t,a,1,text=own)) anyway(set(t,b,1)) text=txn -> (transaction n=2 in=s1 on txn), transaction ok",
        "0 txn s1 anyway(set(t,c,1)) -> (transaction n=1 in=s1), transaction ok",
        "0 table-show t -> rows [a=1@s1 \"own\" set=0 exclusive] [b=1@s1 \"txn\" set=0 exclusive] [c=1@s1 \"sess\" set=0 exclusive]",
        NULL,
    });
}

static void names_of_tables_and_namespaces_have_no_case_but_keys_do(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 namespace-create Clinical -> namespace-created",
        "0 txn s1 anyway(set(Month-End,k,1)) ns=CLINICAL -> (transaction n=1 in=s1), transaction ok",
        "0 txn s1 op(a,exists(MONTH-end,k,mine)) op(b,exists(month-END,K,mine)) ns=clinical -> transaction ok a=true b=false",
        "0 table-show month-end ns=Clinical -> rows [k=1@s1 set=0 exclusive]",
        "0 txn s1 abort ns=nowhere -> failed NONAMESPACE",
        NULL,
    });
}

static void a_namespace_with_variables_is_in_use(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 session-open s1 ttl=1000 -> session-opened 1000ms in=s1",
        "0 namespace-create x -> namespace-created",
        "0 txn s1 anyway(set(t,k,1)) ns=x -> (transaction n=1 in=s1), transaction ok",
        "0 txn s1 assert(exists(t,z)) ns=x wait=500 -> -",
        "0 namespace-delete x -> failed INUSE",
        "0 namespace-delete x force -> failed NONAMESPACE @4, namespace-deleted",
        "0 tick -> -",
        "0 session-close s1 -> session-ended release in=s1",
        NULL,
    });
}

/* the example of the seed */
static void the_clinical_example(void **state)
{
    (void)state;
    transcript((const char *const[]){
        "0 namespace-create Clinical -> namespace-created",
        "0 session-open u1 ttl=1000 -> session-opened 1000ms in=u1",
        "0 session-open u2 ttl=1000 -> session-opened 1000ms in=u2",
        "0 session-open u3 ttl=1000 -> session-opened 1000ms in=u3",
        "0 txn u1 assert(not(exists(Month-End,CG))) assert(not(exists(MDS-Review,CG,R))) assert(set(MDS-Entry,CG,R,dup)) ns=Clinical -> (transaction n=1 in=u1), transaction ok",
        "0 txn u2 assert(not(exists(Month-End,CG))) assert(not(exists(MDS-Review,CG,R))) assert(set(MDS-Entry,CG,R,dup)) ns=Clinical -> (transaction n=1 in=u2), transaction ok",
        "0 txn u3 assert(not(exists(Month-End,CG))) assert(not(exists(MDS-Entry,CG,R))) assert(set(MDS-Review,CG,R)) ns=Clinical -> transaction error statement 1:/AssertOp/",
        "0 txn u3 assert(not(exists(Month-End,CG))) assert(not(exists(MDS-Entry,CG,S))) assert(set(MDS-Review,CG,S)) ns=Clinical -> (transaction n=1 in=u3), transaction ok",
        "0 txn u3 anyway(delete(MDS-Review,CG,S)) ns=Clinical -> (transaction n=1 in=u3), transaction ok",
        NULL,
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_is_first_come_and_not_reentrant),
        cmocka_unit_test(allow_duplicates_joins_and_replaces_in_place),
        cmocka_unit_test(exists_compares_the_value_and_ignores_this_session),
        cmocka_unit_test(delete_takes_only_what_is_its_own),
        cmocka_unit_test(operators_never_stop_halfway),
        cmocka_unit_test(the_path_names_what_aborted),
        cmocka_unit_test(an_abort_undoes_everything),
        cmocka_unit_test(later_operators_see_earlier_changes),
        cmocka_unit_test(a_variable_ends_exactly_on_time),
        cmocka_unit_test(variables_go_with_their_session_in_one_step),
        cmocka_unit_test(descriptions_fall_back),
        cmocka_unit_test(names_of_tables_and_namespaces_have_no_case_but_keys_do),
        cmocka_unit_test(a_namespace_with_variables_is_in_use),
        cmocka_unit_test(the_clinical_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
