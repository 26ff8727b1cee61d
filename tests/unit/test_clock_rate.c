/* test_clock_rate.c - the rate of another node's clock, from messages that take their time. */
#include "raft/clock_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { START = 7, MINUTE = 60, DELAY_MS = 40 };

/* A message a second; the n-th takes n * 17 % DELAY_MS. */
static void hear(struct clock_rate *r, uint64_t from_s, uint64_t to_s, int64_t ppm)
{
    for (uint64_t s = from_s; s < to_s; s++) {
        uint64_t its_ms = 5000000 + s * 1000 + (uint64_t)((int64_t)s * ppm / 1000);
        (void)clock_rate_hear(r, START, 1000 + s * 1000 + s * 17 % DELAY_MS, its_ms);
    }
}

static void a_rate_is_found_in_two_minutes(void **state)
{
    static const int64_t rates[] = {0, 50, -50, 900, -900, 1500, -1500, 50000, -50000};
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct clock_rate r = {0};
        hear(&r, 0, MINUTE, rates[i]);
        assert_false(r.is_known);
        hear(&r, MINUTE, 3 * MINUTE, rates[i]);
        assert_true(r.is_known);
        int64_t wrong = r.ppm > rates[i] ? r.ppm - rates[i] : rates[i] - r.ppm;
        assert_true(wrong < 60 + (rates[i] < 0 ? -rates[i] : rates[i]) / 10);
        assert_int_equal(clock_rate_is_off(&r), rates[i] > 1000 || rates[i] < -1000);
    }
}

/* What waited in a buffer for seconds does not count. */
static void late_messages_say_nothing(void **state)
{
    (void)state;
    struct clock_rate r = {0};
    hear(&r, 0, 150, 0);
    for (uint64_t s = 150; s < 170; s++)
        (void)clock_rate_hear(&r, START, 171000, 5000000 + s * 1000);
    hear(&r, 171, 400, 0);
    assert_true(r.is_known);
    assert_in_range(r.ppm + 60, 0, 120);
}

/* A process that has started again, perhaps on another machine, has another clock. */
static void another_start_begins_anew(void **state)
{
    (void)state;
    struct clock_rate r = {0};
    hear(&r, 0, 3 * MINUTE, 0);
    assert_true(r.is_known);
    assert_false(clock_rate_hear(&r, START + 1, 400000, 3));
    assert_false(r.is_known);
    assert_false(clock_rate_hear(&r, START + 1, 470000, 70003));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_found_in_two_minutes),
        cmocka_unit_test(late_messages_say_nothing),
        cmocka_unit_test(another_start_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
