/* test_metrics.c - what stands in a label stays in it; base/histogram.h: bounds; base/tally.h: the
 * reserve; budget.h: shares. */
#include "server/metrics.h"

#include "base/histogram.h"
#include "base/tally.h"
#include "server/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static void a_label_keeps_its_value(void **state)
{
    static const struct {
        const char *value, *text;
    } rows[] = {{"n1", "m{node=\"n1\"} "},
                {"", "m{node=\"\"} "},
                {"a\"} 1\nforged 7", "m{node=\"a\\\"} 1\\nforged 7\"} "},
                {"back\\", "m{node=\"back\\\\\"} "}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        metrics_label(&out, "m", "node", rows[i].value);
        assert_string_equal(buf_cstr(&out), rows[i].text);
        buf_done(&out);
    }
}

static void a_bound_belongs_to_what_is_below_it(void **state)
{
    struct histogram h = {0};
    (void)state;
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        uint64_t bound = histogram_bounds_ns[i];
        assert_true(i == 0 || bound > histogram_bounds_ns[i - 1]);
        uint64_t below = h.n[i];
        histogram_add(&h, 1, bound);
        assert_int_equal(h.n[i], below + 1);
        histogram_add(&h, 2, bound + 1);
        assert_int_equal(h.n[i + 1], 2);
    }
    assert_int_equal(histogram_count(&h), 3 * HISTOGRAM_BOUNDS);
    uint64_t sum = h.sum_ns;
    histogram_add(&h, 5, 7);
    histogram_add(&h, 0, UINT64_MAX);
    assert_int_equal(h.sum_ns, sum + 35);
    assert_int_equal(h.n[0], 1 + 5);
    assert_int_equal(h.n[HISTOGRAM_BOUNDS], 2);
}

static void the_reserve_is_given_up_once_and_taken_back(void **state)
{
    (void)state;
    assert_false(tally_is_short()); /* nobody has asked for one */
    tally_keep_reserve(4096);
    assert_false(tally_is_short());
    assert_true(tally_give_up());
    assert_true(tally_is_short());
    assert_false(tally_give_up());
    tally_keep_reserve(4096);
    assert_false(tally_is_short());
    assert_true(tally_give_up());
}

static void the_state_is_what_no_other_part_has(void **state)
{
    struct budget b;
    (void)state;
    budget_init(&b, 64 << 20);
    assert_int_equal(budget_share(&b, BUDGET_STATE), 40 << 20);
    assert_int_equal(budget_share(&b, BUDGET_OUTPUT), 8 << 20);
    size_t before = tally_bytes();
    tally_add(41 << 20);
    assert_true(budget_is_full(&b, BUDGET_STATE));
    budget_report(&b, BUDGET_OUTPUT, 0, 2 << 20);
    assert_int_equal(budget_used(&b, BUDGET_STATE), before + (39 << 20));
    assert_false(budget_is_full(&b, BUDGET_STATE));
    budget_report(&b, BUDGET_OUTPUT, 2 << 20, 8 << 20);
    assert_true(budget_is_full(&b, BUDGET_OUTPUT));
    budget_report(&b, BUDGET_OUTPUT, 8 << 20, 0);
    assert_int_equal(budget_used(&b, BUDGET_OUTPUT), 0);
    tally_subtract(41 << 20);
    assert_true(tally_give_up());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_label_keeps_its_value),
        cmocka_unit_test(a_bound_belongs_to_what_is_below_it),
        cmocka_unit_test(the_reserve_is_given_up_once_and_taken_back),
        cmocka_unit_test(the_state_is_what_no_other_part_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
