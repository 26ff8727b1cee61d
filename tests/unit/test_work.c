/* test_work.c - no op costs more than its bound, whatever the state: work is counted, not time.
 */
#include "machine/program.h"
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* A key of so many records, each of a session of its own: s0, s1, ... */
static void set_records(struct script *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)play(p, "0 session-open s%zu ttl=600000", i);
        assert_int_equal(play(p, "0 txn s%zu assert(set(t,k,1,dup))", i)->status, TXN_OK);
    }
}

enum { LOOKS = 50 };

/* A transaction of session s0: sets t/new, then looks `rounds` times LOOKS for a value that is
 * not there, and needs it. */
static struct op looks(struct buf *program, size_t rounds, struct slice value)
{
    struct program_var found = {
        .flags = VAR_HAS_VALUE, .table = SLICE("t"), .key = SLICE("k"), .value = value};
    struct program_var new = found;
    new.key = SLICE("new");
    program_begin(program, 1 + rounds);
    program_put(program, NODE_ANYWAY);
    program_put_var(program, NODE_SET, &new);
    for (size_t round = 1; round <= rounds; round++) {
        program_put(program, round < rounds ? NODE_ANYWAY : NODE_ASSERT);
        program_put_count(program, NODE_OR, LOOKS);
        for (size_t i = 0; i < LOOKS; i++)
            program_put_var(program, NODE_EXISTS, &found);
    }
    return (struct op){.kind = OP_TXN, .session = SLICE("s0"), .program = buf_slice(program)};
}

static const struct event *apply(struct script *p, struct op *op)
{
    const char *what = "";
    op->asker = 1;
    op->index = machine_applied(p->m) + 1;
    assert_int_equal(op_validate(op, &what), BELAY_OK);
    effects_reset(&p->fx);
    machine_apply(p->m, op, &p->fx);
    return p->fx.n ? &p->fx.events[p->fx.n - 1] : NULL;
}

static const struct event *look(struct script *p, size_t rounds, struct slice value)
{
    struct buf program = {0};
    struct op op = looks(&program, rounds, value);
    const struct event *ev = apply(p, &op);
    buf_done(&program);
    return ev;
}

static void is_refused(const struct event *ev)
{
    const char *limit = "LIMIT_TXN_WORK (100000)";
    assert_int_equal(ev->kind, EVENT_FAILED);
    assert_int_equal(ev->err, BELAY_ERR_LIMIT);
    assert_non_null(memmem(ev->text.data, ev->text.len, limit, strlen(limit)));
}

static void a_transaction_that_costs_too_much_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    set_records(&p, 1000);
    is_refused(look(&p, 72, SLICE("9")));
    assert_true(machine_txn_work(p.m) <= LIMIT_TXN_WORK + 1000);
    is_refused(look(&p, 2, SLICE("9")));
    assert_int_equal(play(&p, "0 txn s0 select(x,t,new,mine)")->data[0].kind, TXN_ROW_NULL);
    assert_int_equal(look(&p, 1, SLICE("9"))->status, TXN_ERROR); /* its assert fails */
    script_done(&p);
}

static void a_long_value_costs_more(void **state)
{
    (void)state;
    struct script p;
    char value[256];
    memset(value, '9', sizeof value);
    script_open(&p);
    set_records(&p, 1000);
    is_refused(look(&p, 1, slice_of(value, sizeof value)));
    assert_int_equal(look(&p, 1, slice_of(value, sizeof value - 1))->status, TXN_ERROR);
    script_done(&p);
}

static void level_0_has_no_such_limit(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    machine_set_level(p.m, 0);
    set_records(&p, 1000);
    assert_int_equal(look(&p, 2, SLICE("9"))->status, TXN_ERROR);
    script_done(&p);
}

/* Selects the records of t/k, so many times. */
static const struct event *select_all(struct script *p, size_t times)
{
    struct buf program = {0};
    struct program_var all = {
        .flags = VAR_MANY, .into = SLICE("x"), .table = SLICE("t"), .key = SLICE("k")};
    program_begin(&program, times);
    for (size_t i = 0; i < times; i++)
        program_put_var(&program, NODE_SELECT, &all);
    struct op op = {.kind = OP_TXN, .session = SLICE("s0"), .program = buf_slice(&program)};
    const struct event *ev = apply(p, &op);
    buf_done(&program);
    return ev;
}

enum { SELECTED = 6, SELECTED_BYTES = 24 };

/* What it costs to copy it and to answer with it, however small the records are. */
static void what_is_selected_costs_as_much_as_it_takes(void **state)
{
    (void)state;
    enum { N = 1000, EACH = 1 + SELECTED, MOST = LIMIT_TXN_WORK / (N * EACH) };
    struct script p;
    script_open(&p);
    set_records(&p, N);
    assert_int_equal(select_all(&p, MOST)->status, TXN_OK);
    assert_int_equal(machine_txn_work(p.m), MOST * (1 + N * EACH));
    is_refused(select_all(&p, MOST + 1));
    assert_true(machine_txn_work(p.m) <= LIMIT_TXN_WORK + SELECTED);
    script_done(&p);
}

/* As long as it is in the answer. */
static void a_long_description_costs_as_much_as_it_takes(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t times, bytes;
    } rows[] = {{"a", 1024, 1024},
                {"\"", 512, 6144},
                {"\\", 1, 12},
                {"\x01", 1024, 12288},
                {"\xff", 1024, 12288}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct script p;
        struct buf program = {0};
        char text[1024];
        memset(text, rows[i].text[0], sizeof text);
        struct program_var new = {.flags = VAR_HAS_VALUE,
                                  .table = SLICE("t"),
                                  .key = SLICE("k"),
                                  .value = SLICE("1"),
                                  .description = slice_of(text, rows[i].times)};
        program_begin(&program, 1);
        program_put(&program, NODE_ASSERT);
        program_put_var(&program, NODE_SET, &new);
        script_open(&p);
        (void)play(&p, "0 session-open s0 ttl=600000");
        struct op op = {.kind = OP_TXN, .session = SLICE("s0"), .program = buf_slice(&program)};
        assert_int_equal(apply(&p, &op)->status, TXN_OK);
        assert_int_equal(select_all(&p, 1)->status, TXN_OK);
        assert_int_equal(machine_txn_work(p.m),
                         2 + SELECTED + (rows[i].bytes + 1) / SELECTED_BYTES);
        buf_done(&program);
        script_done(&p);
    }
}

/* One set wakes all of them, and each looks at a key of a thousand records. */
static void those_who_are_woken_go_in_batches(void **state)
{
    (void)state;
    enum { WAITING = 100 };
    struct script p;
    struct buf program = {0};
    script_open(&p);
    set_records(&p, 1000);
    struct op op = looks(&program, 1, SLICE("9"));
    for (size_t i = 0; i < WAITING; i++) {
        op.wait_ms = 1000;
        assert_null(apply(&p, &op));
    }
    (void)play(&p, "0 txn s1 assert(set(t,k,9,dup))");
    size_t done = script_count(&p, EVENT_TXN), steps = 1;
    for (;; steps++) {
        assert_true(machine_txn_work(p.m) <= 2 * LIMIT_TXN_WORK);
        if (machine_due(p.m) > 0)
            break;
        (void)play(&p, "0 tick");
        done += script_count(&p, EVENT_TXN);
    }
    assert_true(steps > 10);
    assert_true(done >= WAITING); /* nobody was forgotten */
    assert_int_equal(play(&p, "0 txn s0 select(x,t,new,mine)")->data[0].kind, TXN_ROW_RECORD);
    struct machine_counts n;
    machine_counts(p.m, &n);
    assert_int_equal(n.transactions, 0);
    buf_done(&program);
    script_done(&p);
}

/* They are evaluated once more when their time is over. */
static void those_who_time_out_go_in_batches(void **state)
{
    (void)state;
    enum { WAITING = 100 };
    struct script p;
    struct buf program = {0};
    script_open(&p);
    set_records(&p, 1000);
    struct op op = looks(&program, 1, SLICE("9"));
    for (size_t i = 0; i < WAITING; i++) {
        op.wait_ms = 1000;
        assert_null(apply(&p, &op));
    }
    size_t steps = 0, done = 0;
    for (; done < WAITING; steps++) {
        (void)play(&p, "1000 tick");
        done += script_count(&p, EVENT_TXN);
        assert_true(machine_txn_work(p.m) <= 2 * LIMIT_TXN_WORK);
    }
    assert_true(steps > 10);
    buf_done(&program);
    script_done(&p);
}

/* Everybody finds its place, whatever the number of those before it. */
static void positions_are_right_while_others_leave(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct script p;
    script_open(&p);
    (void)play(&p, "0 acquire L h ttl=600000");
    for (size_t i = 0; i < N; i++)
        (void)play(&p, "0 acquire L o%zu ttl=1000 wait=600000 noblock", i);
    for (size_t i = 0; i < N; i += 2)
        (void)play(&p, "0 release L o%zu", i);
    for (size_t i = 1; i < N; i += 2) {
        const struct event *ev = play(&p, "0 acquire L o%zu ttl=1000 wait=600000 noblock", i);
        assert_int_equal(ev->position, (i + 1) / 2);
    }
    script_store(&p);
    script_done(&p);
}

static void through_snapshot(struct script *p)
{
    struct buf bytes = {0};
    struct machine *copy = NULL;
    machine_encode(p->m, &bytes);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){5, 6}, &copy),
                     BELAY_OK);
    machine_close(p->m);
    p->m = copy;
    buf_done(&bytes);
}

/* Holders of a crowd are found by fence, by owner, and by owner and session; it grows, shrinks
 * and grows again. */
static void holders_in_a_crowd_are_found(void **state)
{
    (void)state;
    enum { N = 200 };
    struct script p;
    uint64_t fences[N];
    script_open(&p);
    (void)play(&p, "0 session-open s ttl=600000");
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N; i++)
            fences[i] = play(&p, "0 acquire L o%zu shared ttl=600000", i)->fence;
        (void)play(&p, "0 acquire L o7 session=s shared ttl=600000");
        assert_int_equal(play(&p, "0 check L #%llu", (unsigned long long)fences[7])->count, 1);
        assert_int_equal(play(&p, "0 check L o7 session=s")->count, 1);
        assert_int_equal(play(&p, "0 check L o8 session=s")->count, 0);
        (void)play(&p, "0 acquire L o8 session=s shared ttl=600000");
        uint64_t again = play(&p, "0 acquire L o9 shared ttl=600000")->fence;
        assert_true(again > fences[N - 1]);
        assert_int_equal(play(&p, "0 check L #%llu", (unsigned long long)fences[9])->count, 0);
        assert_int_equal(play(&p, "0 release L o7")->kind, EVENT_RELEASED);
        assert_int_equal(script_count(&p, EVENT_RELEASED), 3); /* both, and the answer */
        through_snapshot(&p);
        assert_int_equal(play(&p, "0 check L o8")->count, 1);
        assert_int_equal(play(&p, "0 check L o8 session=s")->count, 1);
        (void)play(&p, "0 release L o8 session=s");
        for (size_t i = 0; i < N; i++)
            (void)play(&p, "0 release L o%zu", i);
    }
    struct machine_counts n;
    machine_counts(p.m, &n);
    assert_int_equal(n.locks, 0);
    script_done(&p);
}

/* Pages of sessions with descriptions of so many bytes: how many rows the first has. Everybody
 * is in one of them, once, and none costs more than a page may. */
static size_t first_page(size_t described)
{
    enum { N = 2500 };
    struct script p;
    char text[LIMIT_DESCRIPTION_BYTES], id[LIMIT_SESSION_BYTES];
    memset(text, 'd', sizeof text);
    script_open(&p);
    for (size_t i = 0; i < N; i++) {
        int len = snprintf(id, sizeof id, "s%zu", i);
        struct op open = {.kind = OP_SESSION_OPEN,
                          .session = slice_of(id, (size_t)len),
                          .ttl_ms = 600000,
                          .text = slice_of(text, described)};
        assert_int_equal(apply(&p, &open)->kind, EVENT_SESSION_OPENED);
    }
    size_t seen = 0, first = 0;
    for (bool more = true; more;) {
        struct op list = {.kind = OP_SESSION_LIST, .limit = LIMIT_LIST};
        list.text = slice_of(id, seen ? (size_t)snprintf(id, sizeof id, "s%zu", seen - 1) : 0);
        effects_reset(&p.fx);
        machine_query(p.m, &list, &p.fx);
        const struct event *ev = &p.fx.events[0];
        size_t bytes = 0;
        assert_int_equal(ev->kind, EVENT_ROWS);
        assert_true(ev->n_rows > 0 && ev->n_rows <= LIMIT_LIST);
        for (size_t i = 0; i < ev->n_rows; i++) {
            bytes += ev->sessions[i].id.len + ev->sessions[i].description.len;
            (void)snprintf(id, sizeof id, "s%zu", seen++);
            assert_true(slice_eq(ev->sessions[i].id, slice_str(id)));
        }
        assert_true(bytes <= LIMIT_LIST_BYTES);
        first = first ? first : ev->n_rows;
        more = ev->more;
    }
    assert_int_equal(seen, N);
    script_done(&p);
    return first;
}

static void a_page_of_sessions_has_its_limits(void **state)
{
    (void)state;
    assert_int_equal(first_page(0), LIMIT_LIST);
    size_t rows = first_page(LIMIT_DESCRIPTION_BYTES); /* so few have the bytes of a page */
    assert_true(rows > LIMIT_LIST / 2 && rows < LIMIT_LIST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transaction_that_costs_too_much_is_refused_and_changes_nothing),
        cmocka_unit_test(a_long_value_costs_more),
        cmocka_unit_test(level_0_has_no_such_limit),
        cmocka_unit_test(what_is_selected_costs_as_much_as_it_takes),
        cmocka_unit_test(a_long_description_costs_as_much_as_it_takes),
        cmocka_unit_test(those_who_are_woken_go_in_batches),
        cmocka_unit_test(those_who_time_out_go_in_batches),
        cmocka_unit_test(positions_are_right_while_others_leave),
        cmocka_unit_test(holders_in_a_crowd_are_found),
        cmocka_unit_test(a_page_of_sessions_has_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
