/* test_limiter.c - so many a second of each, in a table that does not grow. */
#include "server/limiter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>

static const uint64_t second = 1000000000, hour = 3600 * UINT64_C(1000000000);

static unsigned let_through(struct limiter *l, uint64_t who, uint64_t now, unsigned n)
{
    unsigned through = 0;
    for (unsigned i = 0; i < n; i++)
        through += limiter_take(l, who, now) == 0;
    return through;
}

static void no_limit_is_none(void **state)
{
    struct limiter l;
    (void)state;
    limiter_init(&l, 0, 0);
    assert_int_equal(let_through(&l, 1, hour, 100000), 100000);
    limiter_done(&l);
}

static void a_burst_then_as_many_as_time_gives(void **state)
{
    struct limiter l;
    (void)state;
    limiter_init(&l, 10, 0);
    assert_int_equal(let_through(&l, 1, hour, 100), 10);
    assert_int_equal(limiter_take(&l, 1, hour), second / 10);
    assert_int_equal(limiter_take(&l, 1, hour + second / 20), second / 20);
    assert_int_equal(let_through(&l, 1, hour + second / 10, 100), 1);
    assert_int_equal(let_through(&l, 1, hour + second, 100), 9);
    assert_int_equal(let_through(&l, 1, hour + 10 * second, 100), 10); /* no more is saved up */
    assert_int_equal(let_through(&l, 2, hour + 10 * second, 100), 10); /* each for itself */
    limiter_done(&l);
}

static void whoever_waits_as_told_may(void **state)
{
    struct limiter l;
    uint64_t now = hour;
    (void)state;
    limiter_init(&l, 7, 3);
    assert_int_equal(let_through(&l, 1, now, 100), 3);
    for (int i = 0; i < 100; i++) {
        uint64_t wait = limiter_take(&l, 1, now);
        assert_true(wait > 0 && wait <= second / 7);
        assert_int_equal(limiter_take(&l, 1, now + wait - 1), 1);
        now += wait;
        assert_int_equal(limiter_take(&l, 1, now), 0);
    }
    limiter_done(&l);
}

static void a_million_strangers_take_no_more_memory_and_do_not_free_the_busy(void **state)
{
    struct limiter l;
    (void)state;
    limiter_init(&l, 10, 0);
    for (uint64_t who = 1; who <= 1000000; who++)
        assert_int_equal(limiter_take(&l, who * UINT64_C(0x9e3779b97f4a7c15), hour), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(limiter_take(&l, 5, hour), 0);
    for (uint64_t who = 1; who <= 1000000; who++) /* one request each: the quiet give way */
        (void)limiter_take(&l, who * UINT64_C(0xd1342543de82ef95), hour);
    assert_true(limiter_take(&l, 5, hour) > 0);
    limiter_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limit_is_none),
        cmocka_unit_test(a_burst_then_as_many_as_time_gives),
        cmocka_unit_test(whoever_waits_as_told_may),
        cmocka_unit_test(a_million_strangers_take_no_more_memory_and_do_not_free_the_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
