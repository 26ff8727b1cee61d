/* What the database answers to a claim, as groups for the runners. */
#include "queue/claim.h"

#include "base/mem.h"
#include "queue/prefetch.h"
#include "queue/runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 12 };

/* An answer made of rows of text; NULL is NULL. */
static PGresult *answer(size_t n, const char *const rows[][COLUMNS])
{
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc names[COLUMNS] = {0};
    char name[] = "x";
    for (size_t i = 0; i < COLUMNS; i++)
        names[i].name = name;
    assert_true(PQsetResultAttrs(res, COLUMNS, names));
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < COLUMNS; c++) {
            const char *v = rows[r][c];
            int len = v ? (int)strlen(v) : -1;
            assert_true(PQsetvalue(res, (int)r, (int)c, (char *)(uintptr_t)v, len));
        }
    return res;
}

static struct work_group *take(struct claim *c)
{
    struct work_group *g = list_item(c->groups.next, struct work_group, link);
    list_remove(&g->link);
    return g;
}

static void rows_of_one_fence_are_one_group(void **state)
{
    (void)state;
    static const char *const rows[][COLUMNS] = {
        {NULL, NULL, "7", "a\"b", "update", "u-1", "30", "0", "\"then\"", "{\"x\": 1}", NULL,
         "50"},
        {NULL, NULL, "9", "a\"b", "update", "u-1", "30", "2", "\"now\"", NULL, NULL, "70"},
        {NULL, NULL, "8", "c", "create", "u-2", "31", "0", "\"then\"", "[]", "because"},
        {"9", "5", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
    };
    PGresult *res = answer(4, rows);
    struct claim c;
    claim_read("q", res, &c);
    PQclear(res);
    assert_int_equal(c.n_group, 2);
    assert_false(c.end);
    assert_int_equal(c.line, 9);
    assert_int_equal(c.busy, 3);
    struct work_group *g = take(&c);
    assert_string_equal(
        g->work, "{\"queue\":\"q\",\"entity\":\"a\\\"b\",\"kind\":\"update\","
                 "\"process\":\"u-1\",\"fence\":30,\"attempt\":3,\"requests\":["
                 "{\"id\":7,\"attempts\":0,\"pushed_at\":\"then\",\"payload\":{\"x\": 1}},"
                 "{\"id\":9,\"attempts\":2,\"pushed_at\":\"now\",\"payload\":null}]}\n");
    assert_string_equal(g->ids, "{7,9}");
    assert_string_equal(g->entity, "a\"b");
    assert_int_equal(g->fence, 30);
    assert_int_equal(g->n_request, 2);
    assert_int_equal(g->timeout_ms, 70); /* the longest that one of them asks for */
    assert_null(g->refuse);
    group_free(g);
    g = take(&c);
    assert_string_equal(g->ids, "{8}");
    assert_string_equal(g->kind, "create");
    assert_string_equal(g->refuse, "because");
    group_free(g);
    assert_true(list_empty(&c.groups));
}

static void an_answer_without_requests_still_tells_the_line(void **state)
{
    (void)state;
    static const char *const busy[][COLUMNS] = {{"12", "4"}};
    static const char *const end[][COLUMNS] = {{NULL, "0"}};
    struct claim c;
    PGresult *res = answer(1, busy);
    claim_read("q", res, &c);
    PQclear(res);
    assert_true(c.n_group == 0 && list_empty(&c.groups) && !c.end);
    assert_true(c.line == 12 && c.busy == 4);
    res = answer(1, end);
    claim_read("q", res, &c);
    PQclear(res);
    assert_true(c.n_group == 0 && c.end && c.busy == 0);
}

static void an_answer_without_requests_may_say_what_is_in_the_way(void **state)
{
    (void)state;
    static const char *const why[] = {NULL, "bundle", "late"};
    for (size_t i = 0; i < 3; i++) {
        const char *const rows[][COLUMNS] = {{"12", "1", [10] = why[i]}};
        struct claim c;
        PGresult *res = answer(1, rows);
        claim_read("q", res, &c);
        PQclear(res);
        assert_true(c.n_group == 0 && !c.end && c.line == 12 && c.busy == 1);
        assert_int_equal(c.bundle, i == 1);
        assert_int_equal(c.late, i == 2);
    }
}

static void each_request_may_tell_the_line_and_what_lies_ahead_follows(void **state)
{
    (void)state;
    static const char *const rows[][COLUMNS] = {
        {"7", "2", "7", "a", "update", "u-1", "30", "0", "\"then\"", NULL, NULL},
        {"7", "2", "9", "a", "update", "u-1", "30", "0", "\"then\"", NULL, NULL},
        {NULL, NULL, "8", "b", "create"},
        {NULL, NULL, "11", "c", "update"},
    };
    PGresult *res = answer(4, rows);
    struct claim c;
    claim_read("q", res, &c);
    PQclear(res);
    assert_true(c.n_group == 1 && !c.end && c.line == 7 && c.busy == 1);
    struct work_group *g = take(&c);
    assert_string_equal(g->ids, "{7,9}");
    group_free(g);
    struct sight *s = list_item(c.ahead.next, struct sight, link);
    assert_int_equal(s->id, 8);
    assert_string_equal(s->entity, "b");
    assert_string_equal(s->kind, "create");
    sight_free(s);
    s = list_item(c.ahead.next, struct sight, link);
    assert_int_equal(s->id, 11);
    sight_free(s);
    assert_true(list_empty(&c.ahead));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_one_fence_are_one_group),
        cmocka_unit_test(an_answer_without_requests_still_tells_the_line),
        cmocka_unit_test(an_answer_without_requests_may_say_what_is_in_the_way),
        cmocka_unit_test(each_request_may_tell_the_line_and_what_lies_ahead_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
