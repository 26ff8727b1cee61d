/* The engine on the memory order: answers reach who asked, and nobody else; time moves as it
 * must. */
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/engine_core.h"
#include "engine/order.h"
#include "events/feed.h"
#include "machine/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Somebody who asks and remembers what came back. */
struct client {
    struct ask ask;
    int answers;
    enum event_kind kind;
    enum reason reason;
    uint64_t fence, position, count;
    size_t n_holders;
};

struct fixture {
    uint64_t clock_ms;
    struct feed *feed;
    struct engine *engine;
};

static uint64_t read_clock(void *ctx)
{
    return *(uint64_t *)ctx;
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->clock_ms = 1000;
    f->feed = feed_open(64);
    struct engine_config config = {.order = order_memory_open(),
                                   .clock_ms = read_clock,
                                   .clock_ctx = &f->clock_ms,
                                   .feed = f->feed};
    f->engine = engine_open(&config);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    engine_close(f->engine);
    feed_close(f->feed);
    free(f);
    return 0;
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct client *c = list_item(ask, struct client, ask);
    c->answers++;
    c->kind = ev->kind;
    c->reason = ev->reason;
    c->fence = ev->fence;
    c->position = ev->position;
    c->count = ev->count;
    c->n_holders = ev->n_rows ? ev->locks[0].n_holders : 0;
}

static void submit(struct fixture *f, struct client *c, struct op op)
{
    c->ask.answer = on_answer;
    engine_submit(f->engine, &op, &c->ask);
}

static struct op acquire(const char *owner, uint64_t wait_ms)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .name = SLICE("db"),
                       .owner = slice_str(owner),
                       .mode = MODE_EXCLUSIVE,
                       .ttl_ms = 1000,
                       .wait_ms = wait_ms};
}

static struct op release(const char *owner)
{
    return (struct op){.kind = OP_RELEASE, .name = SLICE("db"), .owner = slice_str(owner)};
}

static void a_waiter_is_answered_when_its_turn_comes(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0}, c = {0};
    submit(f, &a, acquire("a", 0));
    assert_int_equal(a.kind, EVENT_GRANTED);
    assert_int_equal(a.ask.id, 0);
    submit(f, &b, acquire("b", 5000));
    assert_int_equal(b.answers, 0);
    assert_int_not_equal(b.ask.id, 0);
    submit(f, &c, release("a"));
    assert_int_equal(c.kind, EVENT_RELEASED);
    assert_int_equal(b.answers, 1);
    assert_int_equal(b.kind, EVENT_GRANTED);
    assert_true(b.fence > a.fence);
}

/* Its locks are free when SESSION CLOSE is answered, however many parts that takes. */
static void a_session_that_ends_in_parts_is_answered_when_it_is_gone(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, again = {0}, d = {0};
    struct op open = {.kind = OP_SESSION_OPEN, .session = SLICE("s"), .ttl_ms = 1000};
    struct op close = {.kind = OP_SESSION_CLOSE, .session = SLICE("s"), .request = SLICE("r")};
    static const char *const names[] = {"a", "b", "c", "db"};
    machine_set_batch(f->engine->groups[0].machine, 1);
    submit(f, &c, open);
    for (size_t i = 0; i < 4; i++) {
        struct op op = acquire("o", 0);
        op.name = slice_str(names[i]);
        op.session = SLICE("s");
        submit(f, &d, op);
    }
    c.answers = 0;
    submit(f, &c, close);
    submit(f, &again, close); /* the second part; and who asks again hears it no earlier */
    engine_exchange(f->engine);
    assert_int_equal(c.answers + again.answers, 0);
    for (int parts = 0; parts < 2; parts++) {
        assert_int_equal(c.answers + again.answers, 0);
        assert_int_equal(engine_next_ms(f->engine), 0);
        engine_tick(f->engine);
    }
    assert_int_equal(c.answers, 1);
    assert_int_equal(c.kind, EVENT_SESSION_ENDED);
    assert_int_equal(c.count, 4);
    assert_int_equal(again.answers, 1);
    assert_int_equal(again.kind, EVENT_SESSION_ENDED);
    submit(f, &d, acquire("p", 0));
    assert_int_equal(d.kind, EVENT_GRANTED);
}

static void a_client_that_is_gone_leaves_the_line(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, gone = {0}, c = {0}, r = {0};
    submit(f, &a, acquire("a", 0));
    submit(f, &gone, acquire("b", 5000));
    submit(f, &c, acquire("c", 5000));
    engine_cancel(f->engine, &gone.ask);
    assert_int_equal(gone.ask.id, 0);
    submit(f, &r, release("a"));
    assert_int_equal(gone.answers, 0);
    assert_int_equal(c.kind, EVENT_GRANTED);
    engine_cancel(f->engine, &c.ask); /* answered already: nothing happens */
    struct machine_counts counts;
    engine_counts(f->engine, &counts);
    assert_int_equal(counts.held, 1);
    assert_int_equal(counts.waiting, 0);
}

/* The slot of a cancelled ask is used again at once; what was meant for the old one must not
 * reach the new one. */
static void a_reused_slot_hears_nothing_of_its_past(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, old = {0}, fresh = {0}, r = {0};
    submit(f, &a, acquire("a", 0));
    struct op queued = acquire("b", 5000);
    queued.flags =
        OP_NOBLOCK; /* its place stays when the asker goes, as long as it is answered */
    submit(f, &old, queued);
    assert_int_equal(old.kind, EVENT_QUEUED);
    submit(f, &fresh, acquire("c", 5000));
    submit(f, &r, release("a"));
    assert_int_equal(fresh.answers, 0);
    submit(f, &r, release("b"));
    assert_int_equal(fresh.kind, EVENT_GRANTED);
    assert_int_equal(old.answers, 1);
}

/* After 2^42 asks of a run. */
static void a_count_that_begins_again_passes_over_who_waits(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, first = {0}, last = {0}, next = {0}, r = {0};
    submit(f, &a, acquire("a", 0));
    submit(f, &first, acquire("b", 5000));
    assert_int_equal(first.ask.id, 2);
    f->engine->count = OP_ASKER_COUNT - 1;
    submit(f, &last, acquire("c", 5000));
    assert_int_equal(last.ask.id, OP_ASKER_COUNT);
    f->engine->count = 1; /* as if two more had asked */
    submit(f, &next, acquire("d", 5000));
    assert_int_equal(next.ask.id, 3);
    submit(f, &r, release("a"));
    assert_int_equal(first.kind, EVENT_GRANTED);
    assert_int_equal(last.answers + next.answers, 0);
}

/* Numbers that come again: what an earlier ask was given, and told of, stays. */
static void a_cancel_means_no_hold_that_was_told_before(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0}, gone = {0};
    struct machine_counts counts;
    submit(f, &a, acquire("a", 0));
    submit(f, &b, acquire("b", 5000));
    f->engine->count = 0;
    struct op shared = acquire("a", 5000);
    shared.name = SLICE("other");
    submit(f, &gone, shared); /* number 1 once more; granted, so it is not outstanding */
    assert_int_equal(gone.kind, EVENT_GRANTED);
    struct op cancel = {.kind = OP_CANCEL,
                        .name = SLICE("db"),
                        .owner = SLICE("a"),
                        .target = 1,
                        .fence = machine_number(f->engine->groups[0].machine)};
    engine_submit(f->engine, &cancel, NULL);
    engine_counts(f->engine, &counts);
    assert_int_equal(counts.held, 2);
    assert_int_equal(b.answers, 0);
}

static void one_that_stays_hears_queued_and_then_the_outcome(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {.ask = {.stay = true}}, r = {0};
    submit(f, &a, acquire("a", 0));
    struct op op = acquire("b", 5000);
    op.flags = OP_NOBLOCK;
    submit(f, &b, op);
    assert_int_equal(b.kind, EVENT_QUEUED);
    assert_int_equal(b.position, 1);
    assert_int_not_equal(b.ask.id, 0);
    submit(f, &r, release("a"));
    assert_int_equal(b.answers, 2);
    assert_int_equal(b.kind, EVENT_GRANTED);
    assert_int_equal(b.ask.id, 0);
}

static void an_answer_carries_the_lock_when_asked_for(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0};
    struct op op = acquire("a", 0);
    op.flags = OP_WANT_LOCK;
    submit(f, &a, op);
    assert_int_equal(a.n_holders, 1);
    op = acquire("b", 0);
    op.flags = OP_WANT_HOLDERS;
    submit(f, &b, op);
    assert_int_equal(b.kind, EVENT_REFUSED);
    assert_int_equal(b.reason, REASON_HELD);
    assert_int_equal(b.n_holders, 1);
}

static void ends_come_with_the_clock(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0};
    assert_true(engine_next_ms(f->engine) == UINT64_MAX);
    submit(f, &a, acquire("a", 0));
    submit(f, &b, acquire("b", 5000));
    assert_int_equal(engine_next_ms(f->engine), 1001); /* 0.1 % more than its TTL */
    f->clock_ms += 1000;
    engine_tick(f->engine); /* too early: nothing is ordered */
    assert_int_equal(b.answers, 0);
    f->clock_ms += 1;
    assert_int_equal(engine_next_ms(f->engine), 0);
    engine_tick(f->engine);
    assert_int_equal(b.kind, EVENT_GRANTED);
}

/* A process that was stopped for a minute must not end every lease when it comes back. */
static void a_pause_moves_time_by_little(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, check = {0};
    struct op op = acquire("a", 0);
    op.ttl_ms = 30000;
    submit(f, &a, op);
    f->clock_ms += 60000;
    engine_tick(f->engine);
    submit(f, &check, (struct op){.kind = OP_CHECK, .name = SLICE("db"), .owner = SLICE("a")});
    assert_int_equal(check.kind, EVENT_CHECKED);
    assert_int_equal(check.fence, a.fence);
    assert_int_equal(engine_next_ms(f->engine), engine_by_clock(30000 - ENGINE_STALL_MAX_MS));
}

static void the_clock_going_back_changes_nothing(void **state)
{
    struct fixture *f = *state;
    uint64_t before = engine_now_ms(f->engine);
    f->clock_ms -= 500;
    assert_int_equal(engine_now_ms(f->engine), before);
    f->clock_ms += 7;
    assert_int_equal(engine_now_ms(f->engine), before + 7);
}

static void news_go_to_the_feed_and_answers_do_not(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0};
    submit(f, &a, acquire("a", 0));
    uint64_t next = feed_next(f->feed);
    submit(f, &b, acquire("b", 0));
    assert_int_equal(b.kind, EVENT_REFUSED);
    assert_int_equal(feed_next(f->feed), next);
    const struct event *ev;
    assert_int_equal(feed_get(f->feed, next - 1, &ev), BELAY_OK);
    assert_int_equal(ev->kind, EVENT_GRANTED);
}

/* What the last leader has said of the time counts; what nobody has heard of does not. */
static void a_new_leader_goes_on_from_the_time_it_has_heard(void **state)
{
    struct fixture *f = *state;
    struct client a = {0};
    submit(f, &a, acquire("a", 0));
    uint64_t granted_ms = engine_now_ms(f->engine);
    f->clock_ms += engine_by_clock(900);
    assert_in_range(engine_next_ms(f->engine), engine_by_clock(99), engine_by_clock(100));
    engine_lead(f->engine, 0, granted_ms + 700);
    assert_int_equal(engine_next_ms(f->engine), engine_by_clock(300));
    engine_lead(f->engine, 0, 0);
    assert_int_equal(engine_next_ms(f->engine), engine_by_clock(1000));
}

/* State-machine time goes 0.1 % slower than the clock, however often it is asked for. */
static void a_lease_lasts_for_clocks_that_differ(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0};
    struct op op = acquire("a", 0);
    op.ttl_ms = 30000;
    submit(f, &a, op);
    submit(f, &b, acquire("b", 60000));
    for (int i = 0; i < 30029; i++) {
        f->clock_ms++;
        engine_tick(f->engine);
    }
    assert_int_equal(b.answers, 0);
    f->clock_ms += 2;
    engine_tick(f->engine);
    assert_int_equal(b.kind, EVENT_GRANTED);
}

static void time_goes_on_when_nothing_ends(void **state)
{
    struct fixture *f = *state;
    uint64_t before = engine_now_ms(f->engine);
    for (int i = 0; i < 10; i++) {
        f->clock_ms += 1000;
        assert_int_equal(engine_next_ms(f->engine), UINT64_MAX);
    }
    assert_in_range(engine_now_ms(f->engine), before + 9990, before + 9991);
}

/* An op that was stamped before the end may still be on its way and renew it: until the end is
 * ordered, no read may call it over. */
static void for_a_read_it_is_over_when_that_is_ordered(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, r = {0};
    submit(f, &a, acquire("a", 0));
    struct op check = {.kind = OP_CHECK, .name = SLICE("db"), .fence = a.fence};
    f->clock_ms += engine_by_clock(1000);
    submit(f, &r, check);
    assert_int_equal(r.count, 1);
    engine_tick(f->engine);
    submit(f, &r, check);
    assert_int_equal(r.count, 0);
}

/* A node that was behind takes over a state in which it has been decided. */
static void who_has_missed_its_outcome_is_told(void **state)
{
    struct fixture *f = *state;
    struct client a = {0}, b = {0}, c = {0}, d = {0};
    struct buf bytes = {0};
    struct machine *m;
    submit(f, &a, acquire("a", 0));
    submit(f, &b, acquire("b", 5000));
    engine_encode(f->engine, 0, &bytes);
    submit(f, &c, acquire("c", 5000));
    submit(f, &d, acquire("d", 5000));
    assert_int_equal(engine_decode(1, 0, buf_slice(&bytes), &m), BELAY_OK);
    engine_adopt(f->engine, 0, m);
    engine_expects(f->engine, d.ask.id);
    engine_missed(f->engine, 0);
    assert_int_equal(b.answers, 0); /* it stands in the line */
    assert_int_equal(c.answers, 1);
    assert_int_equal(c.kind, EVENT_FAILED);
    assert_int_equal(d.answers, 0); /* it is still to be ordered */
    engine_missed(f->engine, 0);
    assert_int_equal(d.answers, 1);
    buf_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(a_waiter_is_answered_when_its_turn_comes),
        T(a_session_that_ends_in_parts_is_answered_when_it_is_gone),
        T(a_client_that_is_gone_leaves_the_line),
        T(a_reused_slot_hears_nothing_of_its_past),
        T(a_count_that_begins_again_passes_over_who_waits),
        T(a_cancel_means_no_hold_that_was_told_before),
        T(one_that_stays_hears_queued_and_then_the_outcome),
        T(an_answer_carries_the_lock_when_asked_for),
        T(ends_come_with_the_clock),
        T(a_pause_moves_time_by_little),
        T(the_clock_going_back_changes_nothing),
        T(news_go_to_the_feed_and_answers_do_not),
        T(a_new_leader_goes_on_from_the_time_it_has_heard),
        T(a_lease_lasts_for_clocks_that_differ),
        T(time_goes_on_when_nothing_ends),
        T(for_a_read_it_is_over_when_that_is_ordered),
        T(who_has_missed_its_outcome_is_told),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
