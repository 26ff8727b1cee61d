/* test_txn_limits.c - every limit of variables and transactions has a name and refuses whole.
 */
#include "machine/level.h"
#include "machine/program.h"
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 250 };

/* A transaction of `n` asserts that set variables, named by number from `first` on. */
static const struct event *set_many(struct script *p, const char *session, const char *format,
                                    size_t first, size_t n)
{
    struct buf program = {0};
    program_begin(&program, n);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%zu", first + i);
        struct program_var v = {.flags = VAR_HAS_VALUE | VAR_ALLOW_DUPLICATES,
                                .table = slice_str(format[0] == 't' ? name : "t"),
                                .key = slice_str(format[0] == 'k' ? name : "k"),
                                .value = SLICE("1")};
        program_put(&program, NODE_ASSERT);
        program_put_var(&program, NODE_SET, &v);
    }
    struct op op = {.kind = OP_TXN,
                    .asker = 1,
                    .index = machine_applied(p->m) + 1,
                    .session = slice_str(session),
                    .program = buf_slice(&program)};
    const char *what = "";
    assert_int_equal(op_validate(&op, &what), BELAY_OK);
    effects_reset(&p->fx);
    machine_apply(p->m, &op, &p->fx);
    buf_done(&program);
    return &p->fx.events[p->fx.n - 1];
}

static void is_refused(const struct event *ev, const char *limit)
{
    assert_int_equal(ev->kind, EVENT_FAILED);
    assert_int_equal(ev->err, BELAY_ERR_LIMIT);
    assert_non_null(memmem(ev->text.data, ev->text.len, limit, strlen(limit)));
}

static uint64_t variables(const struct script *p)
{
    struct machine_counts n;
    machine_counts(p->m, &n);
    return n.variables;
}

static void a_namespace_has_so_many_tables(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (size_t i = 0; i < LIMIT_TABLES; i += BATCH)
        assert_int_equal(set_many(&p, "s", "table", i, BATCH)->status, TXN_OK);
    is_refused(set_many(&p, "s", "table", LIMIT_TABLES - 1, 2), "LIMIT_TABLES (10000)");
    script_store(&p);
    assert_int_equal(variables(&p), LIMIT_TABLES);
    assert_int_equal(play(&p, "0 txn s assert(set(1,other,1))")->status, TXN_OK);
    script_done(&p);
}

static void a_session_has_so_many_variables(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (size_t i = 0; i < LIMIT_SESSION_VARIABLES; i += BATCH)
        assert_int_equal(set_many(&p, "s", "key", i, BATCH)->status, TXN_OK);
    is_refused(set_many(&p, "s", "key", LIMIT_SESSION_VARIABLES, 1),
               "LIMIT_SESSION_VARIABLES (100000)");
    script_store(&p);
    /* replacing its own is no more than it had */
    assert_int_equal(set_many(&p, "s", "key", 0, BATCH)->status, TXN_OK);
    assert_int_equal(variables(&p), LIMIT_SESSION_VARIABLES);
    (void)play(&p, "0 session-close s");
    script_store(&p);
    while (machine_due(p.m) == 0)
        (void)play(&p, "0 tick");
    assert_int_equal(variables(&p), 0);
    script_done(&p);
}

static void a_variable_has_so_many_records(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    for (size_t i = 0; i <= LIMIT_RECORDS; i++) {
        (void)play(&p, "0 session-open s%zu ttl=600000", i);
        const struct event *ev = play(&p, "0 txn s%zu assert(set(t,k,1,dup))", i);
        if (i < LIMIT_RECORDS)
            assert_int_equal(ev->status, TXN_OK);
        else
            is_refused(ev, "LIMIT_RECORDS (10000)");
    }
    const struct event *all = play(&p, "0 txn s0 select(x,t,k,mine,many)");
    assert_int_equal(all->status, TXN_OK);
    assert_int_equal(all->data[0].n_records, LIMIT_RECORDS);
    script_store(&p);
    script_done(&p);
}

static void so_many_transactions_wait(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (size_t i = 0; i < LIMIT_TXN_WAITING; i++)
        assert_null(play(&p, "0 txn s assert(exists(t,k)) wait=1000"));
    is_refused(play(&p, "0 txn s assert(exists(t,k)) wait=1000"), "LIMIT_TXN_WAITING (10000)");
    script_store(&p);
    assert_int_equal(play(&p, "0 txn s assert(exists(t,k))")->status, TXN_ERROR);
    /* their deadline comes in batches, and each is answered */
    size_t answered = 0;
    for (int i = 0; answered < LIMIT_TXN_WAITING && i < 100; i++) {
        (void)play(&p, "1000 tick");
        answered += script_count(&p, EVENT_TXN);
    }
    assert_int_equal(answered, LIMIT_TXN_WAITING);
    script_done(&p);
}

/* what waits may take so many bytes, however few there are */
static void waiting_transactions_take_so_many_bytes(void **state)
{
    (void)state;
    struct script p;
    struct buf program = {0};
    char *value = malloc(LIMIT_VALUE_BYTES);
    memset(value, '1', LIMIT_VALUE_BYTES);
    program_begin(&program, 13);
    for (int i = 0; i < 12; i++)
        program_put_constant(&program, SLICE("x"), slice_of(value, LIMIT_VALUE_BYTES));
    program_put(&program, NODE_ASSERT);
    program_put(&program, NODE_FALSE);
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    struct op op = {.kind = OP_TXN,
                    .asker = 1,
                    .session = SLICE("s"),
                    .wait_ms = 1000,
                    .program = buf_slice(&program)};
    size_t n = 0;
    do {
        op.index = machine_applied(p.m) + 1;
        effects_reset(&p.fx);
        machine_apply(p.m, &op, &p.fx);
        n++;
    } while (p.fx.n == 0);
    is_refused(&p.fx.events[0], "LIMIT_TXN_WAITING_BYTES (67108864)");
    script_store(&p);
    assert_int_equal(n - 1, LIMIT_TXN_WAITING_BYTES / buf_len(&program));
    script_done(&p);
    buf_done(&program);
    free(value);
}

static void selects_too_much(uint64_t level, const char *limit)
{
    struct script p;
    struct buf program = {0};
    char *value = malloc(LIMIT_VALUE_BYTES);
    memset(value, '1', LIMIT_VALUE_BYTES);
    struct program_var v = {.flags = VAR_HAS_VALUE,
                            .table = SLICE("t"),
                            .key = SLICE("k"),
                            .value = slice_of(value, LIMIT_VALUE_BYTES)};
    script_open(&p);
    machine_set_level(p.m, level);
    (void)play(&p, "0 session-open s ttl=600000");
    program_begin(&program, 1);
    program_put(&program, NODE_ANYWAY);
    program_put_var(&program, NODE_SET, &v);
    struct op op = {.kind = OP_TXN, .asker = 1, .session = SLICE("s")};
    op.program = buf_slice(&program);
    op.index = machine_applied(p.m) + 1;
    machine_apply(p.m, &op, &p.fx);
    buf_clear(&program);
    program_begin(&program, 256);
    program_put(&program, NODE_ASSERT);
    struct program_var fresh = {
        .flags = VAR_HAS_VALUE, .table = SLICE("t"), .key = SLICE("new"), .value = SLICE("1")};
    program_put_var(&program, NODE_SET, &fresh);
    v.flags = 0;
    v.into = SLICE("x");
    for (int i = 1; i < 256; i++)
        program_put_var(&program, NODE_SELECT, &v);
    op.program = buf_slice(&program);
    op.index = machine_applied(p.m) + 1;
    effects_reset(&p.fx);
    machine_apply(p.m, &op, &p.fx);
    is_refused(&p.fx.events[0], limit);
    assert_int_equal(variables(&p), 1); /* what came before is undone */
    script_done(&p);
    buf_done(&program);
    free(value);
}

static void so_much_may_be_selected(void **state)
{
    (void)state;
    selects_too_much(LEVEL_PARTS, "LIMIT_TXN_WORK (100000) units: select less at once");
    selects_too_much(LEVEL_PARTS - 1, "LIMIT_TXN_DATA_BYTES (8388608)");
}

static void the_plan_knows_the_limits_of_locks(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (size_t i = 0; i < LIMIT_SESSION_ITEMS - 1; i++)
        assert_non_null(play(&p, "0 acquire l%zu ann session=s", i));
    assert_int_equal(play(&p, "0 txn s assert(lock(x,a)) abort")->status, TXN_ERROR);
    is_refused(play(&p, "0 txn s assert(lock(x,a)) assert(lock(y,a))"),
               "LIMIT_SESSION_ITEMS (10000)");
    assert_int_equal(play(&p, "0 txn s assert(lock(x,a))")->status, TXN_OK);
    script_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_namespace_has_so_many_tables),
        cmocka_unit_test(a_session_has_so_many_variables),
        cmocka_unit_test(a_variable_has_so_many_records),
        cmocka_unit_test(so_many_transactions_wait),
        cmocka_unit_test(waiting_transactions_take_so_many_bytes),
        cmocka_unit_test(so_much_may_be_selected),
        cmocka_unit_test(the_plan_knows_the_limits_of_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
