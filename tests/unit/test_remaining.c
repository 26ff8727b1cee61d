/* What is left of a lease when its answer is given: stories of a clock and of what is heard. */
#include "engine/remaining.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { TTL_MS = 3000, FIRST_MS = 1000000, GRANTED_MS = 500 };

/* The answer to a grant at GRANTED_MS of the state; 0: that it is over. */
static uint64_t left(const struct remaining *l, uint64_t clock_ms, uint64_t asked_ms)
{
    struct event ev = {.kind = EVENT_GRANTED, .at_ms = GRANTED_MS, .expires_in_ms = TTL_MS};
    remaining_tell(l, clock_ms, asked_ms, &ev);
    if (ev.kind == EVENT_GRANTED)
        return ev.expires_in_ms;
    assert_int_equal(ev.err, BELAY_ERR_UNAVAILABLE);
    return 0;
}

/* The state's time is heard every 100 ms, for so long. */
static uint64_t hear(struct remaining *l, uint64_t clock_ms, uint64_t now_ms, uint64_t for_ms)
{
    for (uint64_t ms = 0; ms <= for_ms; ms += 100)
        remaining_heard(l, clock_ms + ms, now_ms + ms, false);
    return clock_ms + for_ms;
}

static void an_answer_in_time_says_what_the_state_says(void **state)
{
    (void)state;
    struct remaining l = {0};
    uint64_t clock = hear(&l, FIRST_MS, 0, GRANTED_MS);
    assert_int_equal(left(&l, clock + LATE_MS - 1, LATE_MS - 1), TTL_MS);
}

static void a_node_that_was_stopped_counts_the_time_meanwhile(void **state)
{
    (void)state;
    struct remaining l = {0};
    uint64_t clock = hear(&l, FIRST_MS, 0, GRANTED_MS + 2 * LATE_KEEP_MS);
    uint64_t granted = FIRST_MS + GRANTED_MS;
    clock += 500; /* it hears what was sent before: nothing of it says how late it is */
    remaining_heard(&l, clock, GRANTED_MS, false);
    assert_int_equal(left(&l, clock, 10000), TTL_MS - (clock - granted));
    assert_int_equal(left(&l, granted + TTL_MS, 10000), 0);
}

/* It was stopped before it had heard anything, and the first thing that it hears is old. */
static void at_first_a_lease_counts_from_when_it_was_asked_for(void **state)
{
    (void)state;
    struct remaining l = {0};
    assert_int_equal(left(&l, FIRST_MS, 1800), TTL_MS - 1800);
    remaining_heard(&l, FIRST_MS, GRANTED_MS, false);
    assert_int_equal(left(&l, FIRST_MS, 1800), TTL_MS - 1800);
    assert_int_equal(left(&l, FIRST_MS, TTL_MS), 0);
    uint64_t clock = hear(&l, FIRST_MS, GRANTED_MS, 2 * LATE_KEEP_MS);
    assert_int_equal(left(&l, clock, TTL_MS), TTL_MS - 2 * LATE_KEEP_MS);
}

static void who_leads_knows_what_time_it_is(void **state)
{
    (void)state;
    struct remaining l = {0};
    remaining_heard(&l, FIRST_MS, GRANTED_MS, true);
    assert_int_equal(left(&l, FIRST_MS + 100, TTL_MS), TTL_MS - 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_time_says_what_the_state_says),
        cmocka_unit_test(a_node_that_was_stopped_counts_the_time_meanwhile),
        cmocka_unit_test(at_first_a_lease_counts_from_when_it_was_asked_for),
        cmocka_unit_test(who_leads_knows_what_time_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
