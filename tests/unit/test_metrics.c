/* test_metrics.c - what stands in a label stays in it; base/tally.h: the reserve; budget.h:
 * shares. */
#include "server/metrics.h"

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
        cmocka_unit_test(the_reserve_is_given_up_once_and_taken_back),
        cmocka_unit_test(the_state_is_what_no_other_part_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
