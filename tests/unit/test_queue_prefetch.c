/* Hints of a search for the claims after it: each is given once, in order, and none that is
 * late. */
#include "queue/prefetch.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void add(struct prefetch *a, int64_t from, int64_t upto)
{
    struct list sights;
    list_init(&sights);
    for (int64_t id = from; id <= upto; id++) {
        struct sight *s = mem_zalloc(sizeof *s);
        s->id = id;
        list_push_back(&sights, &s->link);
    }
    prefetch_add(a, &sights, 1000);
    assert_true(list_empty(&sights));
}

static int64_t take(struct prefetch *a)
{
    struct sight *s = prefetch_take(a, 1000);
    int64_t id = s ? s->id : 0;
    sight_free(s);
    return id;
}

static void more_are_asked_for_in_time_and_by_one(void **state)
{
    (void)state;
    struct prefetch a;
    int64_t from = -1;
    prefetch_init(&a);
    assert_int_equal(take(&a), 0);
    assert_true(prefetch_ask(&a, &from));
    assert_int_equal(from, 0);
    assert_false(prefetch_ask(&a, &from)); /* one is enough */
    add(&a, 5, 54);
    assert_false(prefetch_ask(&a, &from)); /* there are many */
    for (int64_t id = 5; id < 35; id++)
        assert_int_equal(take(&a), id);
    assert_true(prefetch_ask(&a, &from));
    assert_int_equal(from, 54);
    add(&a, 50, 60); /* never the same one twice */
    for (int64_t id = 35; id <= 60; id++)
        assert_int_equal(take(&a), id);
    assert_int_equal(take(&a), 0);
    assert_true(prefetch_ask(&a, &from));
    assert_int_equal(from, 0); /* from wherever the next search is */
    prefetch_done(&a);
}

static void what_was_seen_a_while_ago_is_no_hint(void **state)
{
    (void)state;
    struct prefetch a;
    prefetch_init(&a);
    add(&a, 1, 3);
    assert_int_equal(take(&a), 1);
    assert_null(prefetch_take(&a, 1051));
    assert_int_equal(a.n, 0);
    add(&a, 4, 4);
    struct sight *s = prefetch_take(&a, 1050);
    assert_int_equal(s->id, 4);
    sight_free(s);
    prefetch_done(&a);
}

static void what_a_search_has_passed_is_no_hint(void **state)
{
    (void)state;
    struct prefetch a;
    int64_t from;
    prefetch_init(&a);
    assert_true(prefetch_ask(&a, &from));
    prefetch_found(&a, 3); /* while the answer was on its way */
    add(&a, 1, 9);
    prefetch_found(&a, 6);
    assert_int_equal(take(&a), 7);
    prefetch_done(&a);
    assert_int_equal(take(&a), 0);
}

static void after_a_miss_claims_search_for_a_while(void **state)
{
    (void)state;
    struct prefetch a;
    int64_t from;
    unsigned rest = 0;
    prefetch_init(&a);
    assert_true(prefetch_ask(&a, &from));
    add(&a, 1, 9);
    assert_true(prefetch_ask(&a, &from));
    prefetch_missed(&a);
    assert_int_equal(take(&a), 0);
    add(&a, 10, 19); /* asked for before the miss */
    assert_int_equal(take(&a), 0);
    while (!prefetch_ask(&a, &from))
        rest++;
    assert_true(rest > 0);
    add(&a, 4, 5);
    assert_int_equal(take(&a), 4);
    prefetch_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_are_asked_for_in_time_and_by_one),
        cmocka_unit_test(what_was_seen_a_while_ago_is_no_hint),
        cmocka_unit_test(what_a_search_has_passed_is_no_hint),
        cmocka_unit_test(after_a_miss_claims_search_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
