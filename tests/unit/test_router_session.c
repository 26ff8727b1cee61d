/* Sessions that are used in several groups: kept first, ended by group 0 alone. */
#include "router_fixture.h"

static void the_end_by_ttl_reaches_the_shards(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[2], "s", 0));
    for (int i = 0; i < 9; i++) /* time moves by little at a time: a leap would be cut */
        later(f, 1000);
    assert_int_equal(done(f, &c, acquire(f->ns[2], "", 0))->ev.kind, EVENT_REFUSED);
    for (int i = 0; i < 4; i++) /* up to a quarter more */
        later(f, 1000);
    assert_int_equal(done(f, &c, acquire(f->ns[2], "", 0))->ev.kind, EVENT_GRANTED);
}

static void use_in_a_shard_keeps_a_session(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    for (int i = 0; i < 100; i++) {
        later(f, 1000);
        done(f, &c, acquire(f->ns[3], "s", 0));
        assert_int_equal(c.ev.kind, EVENT_GRANTED);
    }
    assert_int_equal(done(f, &c, of_session(OP_SESSION_SHOW, "s"))->ev.kind, EVENT_ROWS);
}

enum { BEHIND_MS = 20 }; /* so far state-machine time falls behind the clock in 20 s */

/* The whole time to live from the last use on, whichever shard it was in, and not a millisecond
 * less; a quarter more at most. */
static void a_session_lives_its_time_from_the_last_use_in_any_shard(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    for (uint64_t used = 500; used < 10000; used += 700) {
        done(f, &c, of_session(OP_SESSION_OPEN, "s"));
        done(f, &c, acquire(f->ns[1], "s", 0));
        done(f, &c, acquire(f->ns[2], "s", 0));
        wait_for(f, used);
        done(f, &c, acquire(f->ns[1 + used % 2], "s", 0));
        wait_for(f, 9999);
        assert_true(lives(f, "s"));
        assert_int_equal(done(f, &c, acquire(f->ns[1], "", 0))->ev.kind, EVENT_REFUSED);
        wait_for(f, 2501 + BEHIND_MS);
        assert_false(lives(f, "s"));
        for (size_t g = 1; g <= 2; g++) {
            assert_int_equal(done(f, &c, acquire(f->ns[g], "", 0))->ev.kind, EVENT_GRANTED);
            struct op release = {.kind = OP_RELEASE,
                                 .ns = slice_str(f->ns[g]),
                                 .name = SLICE("db"),
                                 .flags = OP_ANYONE};
            done(f, &c, release);
        }
    }
}

static size_t asked_of(struct fixture *f, struct op op)
{
    struct client c = {0};
    ask(f, &c, op);
    size_t n = f->order->box[0].n;
    settle(f);
    assert_int_equal(c.ev.kind, EVENT_GRANTED);
    return n;
}

/* A keep of less than a fifth of the time to live ago is enough, whoever it was for; also one
 * that the server itself has asked for. */
static void group_0_is_asked_five_times_a_time_to_live(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    assert_int_equal(asked_of(f, acquire(f->ns[1], "s", 0)), 1);
    assert_int_equal(asked_of(f, acquire(f->ns[1], "s", 0)), 0);
    assert_int_equal(asked_of(f, acquire(f->ns[2], "s", 0)), 1); /* not known there yet */
    later(f, 1999);
    assert_int_equal(asked_of(f, acquire(f->ns[1], "s", 0)), 0);
    later(f, 1);
    assert_int_equal(asked_of(f, acquire(f->ns[1], "s", 0)), 1);
    struct op keep = of_session(OP_SESSION_KEEPALIVE, "s");
    for (int i = 0; i < 10; i++) {
        later(f, 1999);
        engine_submit(f->engine, &keep, NULL);
        settle(f);
        assert_int_equal(asked_of(f, acquire(f->ns[2], "s", 0)), 0);
    }
}

/* Nobody leads group 0: nothing is done in the session, wherever its shard is. */
static void nothing_is_done_in_a_session_that_was_not_kept(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, d = {0};
    struct op op = acquire(f->ns[1], "s", 0);
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, op);
    wait_for(f, 5000);
    op.name = SLICE("another");
    ask(f, &c, op);
    engine_exchange(f->engine);
    assert_int_equal(f->order->box[1].n, 0);
    engine_unavailable(f->engine, 1, c.ask.id, true, "too late");
    assert_int_equal(c.ev.err, BELAY_ERR_UNAVAILABLE);
    settle(f); /* it was kept after all, but nobody is there any more */
    assert_int_equal(c.answers, 1);
    op.session = SLICE("");
    assert_int_equal(done(f, &d, op)->ev.kind, EVENT_GRANTED);
}

/* Over in group 0, and shard 1 has not heard of it: what was done before is told again under
 * its id, and nothing else is done. */
static void a_session_that_is_over_is_used_no_more(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, d = {0};
    struct op ping = {.kind = OP_TXN,
                      .ns = slice_str(f->ns[1]),
                      .session = SLICE("s"),
                      .request = SLICE("r1")};
    struct op renew = {.kind = OP_RENEW,
                       .ns = slice_str(f->ns[1]),
                       .name = SLICE("db"),
                       .owner = SLICE("me"),
                       .session = SLICE("s")};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    renew.fence = done(f, &c, acquire(f->ns[1], "s", 0))->ev.fence;
    assert_int_equal(done(f, &c, ping)->ev.status, TXN_OK);
    assert_int_equal(done(f, &c, renew)->ev.kind, EVENT_RENEWED);
    f->order->box[0].away = true; /* its messages stay where they are */
    ask(f, &d, of_session(OP_SESSION_CLOSE, "s"));
    settle(f);
    assert_int_equal(done(f, &c, ping)->ev.status, TXN_OK);
    ping.request = SLICE("r2");
    assert_int_equal(done(f, &c, ping)->ev.cause, CAUSE_SESSION);
    assert_int_equal(done(f, &c, acquire(f->ns[1], "s", 0))->ev.err, BELAY_ERR_NO_SESSION);
    assert_int_equal(done(f, &c, renew)->ev.err, BELAY_ERR_STALE);
    f->order->box[0].away = false;
    engine_lead(f->engine, 0, 0);
    settle(f);
    assert_int_equal(d.ev.kind, EVENT_SESSION_ENDED);
    assert_int_equal(done(f, &c, ping)->ev.cause, CAUSE_SESSION);
}

/* An id is used again, and an op for the session before arrives late. */
static void an_op_is_of_the_session_that_was_kept_for_it(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, late = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[1], "s", 0));
    struct op op = acquire(f->ns[1], "s", 0);
    op.name = SLICE("another");
    ask(f, &late, op); /* without a question: it waits in the box of its shard */
    struct buf waits = f->order->box[1].ops[0];
    f->order->box[1].n = 0;
    f->order->box[1].ops[0] = (struct buf){0};
    done(f, &c, of_session(OP_SESSION_CLOSE, "s"));
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[1], "s", 0));
    f->order->box[1].ops[f->order->box[1].n++] = waits;
    settle(f);
    assert_int_equal(late.answers, 1);
    assert_int_equal(late.ev.err, BELAY_ERR_NO_SESSION);
}

/* It was used without a connection, attached, and let go: who used it may do so without asking
 * until then, and counts on the whole time. */
static void a_linger_does_not_shorten_what_was_promised(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    struct op open = of_session(OP_SESSION_OPEN, "s"), attach = open;
    open.linger_ms = 100;
    attach.kind = OP_SESSION_ATTACH;
    attach.target = UINT64_C(5) << OP_NODE_SHIFT | 7; /* at another node */
    done(f, &c, open);
    done(f, &c, acquire(f->ns[1], "s", 0));
    struct op *there = &attach; /* ordered there, and this node learns of it by the log */
    there->now_ms = engine_stamp(f->engine, 0);
    engine_ordered(f->engine, 0, there);
    later(f, 1999);
    assert_int_equal(asked_of(f, acquire(f->ns[1], "s", 0)), 0);
    attach.kind = OP_SESSION_DETACH;
    attach.now_ms = engine_stamp(f->engine, 0);
    engine_ordered(f->engine, 0, &attach);
    settle(f);
    wait_for(f, 9999);
    assert_true(lives(f, "s"));
    wait_for(f, 2501 + BEHIND_MS);
    assert_false(lives(f, "s"));
}

/* A shard without a leader keeps no session alive: what it has there is free when it leads. */
static void a_session_ends_although_a_shard_is_not_heard(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[1], "s", 0));
    f->order->box[1].away = true;
    wait_for(f, 12501 + BEHIND_MS);
    assert_false(lives(f, "s"));
    f->order->box[1].away = false;
    engine_lead(f->engine, 1, 0);
    later(f, 1);
    assert_int_equal(done(f, &c, acquire(f->ns[1], "", 0))->ev.kind, EVENT_GRANTED);
}

static void three_holds(struct fixture *f)
{
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    for (size_t g = 1; g < GROUPS; g++)
        assert_int_equal(done(f, &c, acquire(f->ns[g], "s", 0))->ev.kind, EVENT_GRANTED);
}

/* A node that follows may apply what a shard has done for group 0 before what group 0 has done. */
static void an_end_counts_what_a_shard_freed_before(void **state)
{
    struct fixture *f = *state;
    struct fixture *leader;
    struct client end = {0}, other = {0};
    assert_int_equal(set_up((void **)&leader), 0);
    three_holds(f);
    three_holds(leader);
    ask(f, &end, of_session(OP_SESSION_CLOSE, "s"));
    ask(leader, &other, of_session(OP_SESSION_CLOSE, "s"));
    step_all(leader, 0);
    engine_exchange(leader->engine);
    struct box *from = &leader->order->box[1], *to = &f->order->box[1];
    assert_int_equal(from->n, 1);
    to->ops[to->n++] = from->ops[--from->n]; /* the message to the shard */
    step_all(f, 1);
    assert_int_equal(end.answers, 0);
    settle(f);
    assert_int_equal(end.answers, 1);
    assert_int_equal(end.ev.count, GROUPS - 1);
    tear_down((void **)&leader);
}

/* What was done before its connection was gone does not count: it lingers. */
static void a_session_lingers_whatever_was_done_before(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    struct op open = of_session(OP_SESSION_OPEN, "s"), detach = open;
    open.linger_ms = 2000;
    open.target = detach.target = 77;
    detach.kind = OP_SESSION_DETACH;
    for (int used = 0; used < 2; used++) {
        done(f, &c, open);
        done(f, &c, acquire(f->ns[1], "s", 0));
        assert_int_equal(done(f, &c, detach)->ev.count, 1);
        later(f, 1999);
        assert_true(lives(f, "s"));
        if (used) {
            done(f, &c, acquire(f->ns[1], "s", 0));
            wait_for(f, 12499);
            assert_true(lives(f, "s"));
        }
        later(f, 1 + BEHIND_MS);
        assert_false(lives(f, "s"));
    }
}

static void raise_level(struct fixture *f, size_t group)
{
    struct op level = {
        .kind = OP_LEVEL, .target = LEVEL_NEWEST, .now_ms = engine_stamp(f->engine, group)};
    engine_ordered(f->engine, group, &level);
}

/* At level 0, group 0 asks shard 1 when the time to live is over; that says "not used", and
 * then it is used there. Whatever is under way when the groups move, and in whichever order
 * they do: the session lives for its whole time from that use on, and then ends everywhere. */
static void a_session_moves_to_the_next_level(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 6; order++) {
        struct fixture *f = NULL;
        struct client c = {0}, used = {0};
        set_up_old((void **)&f);
        done(f, &c, of_session(OP_SESSION_OPEN, "s"));
        done(f, &c, acquire(f->ns[1], "s", 0));
        done(f, &c, acquire(f->ns[2], "s", 0));
        wait_for(f, 9999);
        f->clock_ms += 1 + BEHIND_MS;
        engine_tick(f->engine);
        step_all(f, 0);
        engine_exchange(f->engine); /* the questions are on their way */
        if (order % 2)
            step_all(f, 1); /* answered: not used */
        for (size_t g = 0; g < GROUPS; g++)
            raise_level(f, (g + order / 2) % GROUPS);
        ask(f, &used, acquire(f->ns[1], "s", 0));
        settle(f);
        assert_int_equal(used.ev.kind, EVENT_GRANTED);
        wait_for(f, 9999);
        assert_true(lives(f, "s"));
        wait_for(f, 2501 + BEHIND_MS);
        assert_false(lives(f, "s"));
        for (size_t g = 1; g <= 2; g++)
            assert_int_equal(done(f, &c, acquire(f->ns[g], "", 0))->ev.kind, EVENT_GRANTED);
        tear_down((void **)&f);
    }
}

/* The rules of level 0, with a node that keeps first. */
static void at_level_0_a_session_lives_its_time_too(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    for (int i = 0; i < 20; i++) {
        done(f, &c, acquire(f->ns[1 + i % 3], "s", 0));
        wait_for(f, 1000 * (uint64_t)(i % 10));
        assert_true(lives(f, "s"));
    }
    wait_for(f, 10001 + BEHIND_MS);
    assert_false(lives(f, "s"));
    assert_int_equal(done(f, &c, acquire(f->ns[1], "", 0))->ev.kind, EVENT_GRANTED);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(the_end_by_ttl_reaches_the_shards),
        T(use_in_a_shard_keeps_a_session),
        T(a_session_lives_its_time_from_the_last_use_in_any_shard),
        T(group_0_is_asked_five_times_a_time_to_live),
        T(nothing_is_done_in_a_session_that_was_not_kept),
        T(a_session_that_is_over_is_used_no_more),
        T(an_op_is_of_the_session_that_was_kept_for_it),
        T(a_linger_does_not_shorten_what_was_promised),
        T(a_session_ends_although_a_shard_is_not_heard),
        T(a_session_lingers_whatever_was_done_before),
        T(an_end_counts_what_a_shard_freed_before),
        cmocka_unit_test(a_session_moves_to_the_next_level),
        cmocka_unit_test_setup_teardown(at_level_0_a_session_lives_its_time_too, set_up_old,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
