/* test_trust.c - the norm of calls follows up at once and falls slowly; trust is what is left.
 */
#include "server/trust.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

/* `calls` in the second that begins at `second`. */
static void busy(struct trust *t, uint64_t second, int calls)
{
    for (int i = 0; i < calls; i++)
        trust_count(t, second * 1000 + (uint64_t)i * 1000 / (uint64_t)calls);
}

static void it_is_one_from_the_start(void **state)
{
    (void)state;
    struct trust t;
    trust_init(&t, TRUST_DECAY_DEFAULT, TRUST_PERIOD_DEFAULT_MS, 5000);
    trust_advance(&t, 5000);
    assert_true(t.level == 1 && t.norm == 0);
    trust_advance(&t, 3605000);
    assert_true(t.level == 1 && t.norm == 0);
}

static void the_norm_follows_up_at_once(void **state)
{
    (void)state;
    struct trust t;
    trust_init(&t, TRUST_DECAY_DEFAULT, TRUST_PERIOD_DEFAULT_MS, 0);
    busy(&t, 0, 20);
    trust_advance(&t, 999);
    assert_true(t.norm == 0 && t.level == 1);
    trust_advance(&t, 1000);
    assert_true(t.norm == 20 && t.level == 1);
    busy(&t, 1, 50);
    trust_advance(&t, 2000);
    assert_true(t.norm == 50 && t.level == 1);
}

/* the original's constants: 0.8321 in 3.57 s, here second by second */
static void it_falls_with_the_calls_that_stay_away(void **state)
{
    (void)state;
    struct trust t;
    double fall = pow(0.8321, 1000.0 / 3570.0);
    trust_init(&t, TRUST_DECAY_DEFAULT, TRUST_PERIOD_DEFAULT_MS, 0);
    busy(&t, 0, 20);
    busy(&t, 1, 2);
    trust_advance(&t, 2000);
    assert_true(near(t.norm, 20 * fall));
    assert_true(near(t.level, 2 / (20 * fall)));
    trust_advance(&t, 3000);
    assert_true(t.level == 0);
    busy(&t, 3, 19);
    trust_advance(&t, 4000);
    assert_true(near(t.norm, 19)); /* 20 has fallen below it: up at once */
    assert_true(t.level == 1);
}

/* a burst of 16 and silence: no trust until the norm is below one call, as the original took
 * 55 to 60 s */
static void after_a_burst_it_comes_back(void **state)
{
    (void)state;
    struct trust t;
    trust_init(&t, TRUST_DECAY_DEFAULT, TRUST_PERIOD_DEFAULT_MS, 0);
    busy(&t, 0, 16);
    trust_advance(&t, 54000);
    assert_true(t.level == 0);
    trust_advance(&t, 56000);
    assert_true(t.level == 1 && t.norm == 0);
}

static void its_constants_can_be_chosen(void **state)
{
    (void)state;
    struct trust t;
    trust_init(&t, 0.5, 1000, 0);
    busy(&t, 0, 16);
    trust_advance(&t, 2000);
    assert_true(near(t.norm, 8));
    trust_advance(&t, 4000);
    assert_true(near(t.norm, 2) && t.level == 0);
    trust_advance(&t, 5000);
    assert_true(t.norm == 0 && t.level == 1);
}

/* looking often or seldom makes no difference */
static void only_the_grid_counts(void **state)
{
    (void)state;
    struct trust often, seldom;
    trust_init(&often, TRUST_DECAY_DEFAULT, TRUST_PERIOD_DEFAULT_MS, 7);
    trust_init(&seldom, TRUST_DECAY_DEFAULT, TRUST_PERIOD_DEFAULT_MS, 7);
    for (uint64_t ms = 7; ms < 60000; ms += 13) {
        trust_advance(&often, ms);
        if (ms % 5 == 0) {
            trust_count(&often, ms);
            trust_count(&seldom, ms);
        }
    }
    trust_advance(&often, 100000);
    trust_advance(&seldom, 100000);
    assert_true(near(often.norm, seldom.norm) && near(often.level, seldom.level));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_one_from_the_start),
        cmocka_unit_test(the_norm_follows_up_at_once),
        cmocka_unit_test(it_falls_with_the_calls_that_stay_away),
        cmocka_unit_test(after_a_burst_it_comes_back),
        cmocka_unit_test(its_constants_can_be_chosen),
        cmocka_unit_test(only_the_grid_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
