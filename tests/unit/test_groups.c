/* Several groups on one engine: what concerns two of them happens in both, once, and is
 * answered when it has. The order here is a box per group that the test empties as it likes. */
#include "base/mem.h"
#include "choice.h"
#include "engine/engine_core.h"
#include "events/feed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GROUPS = 4, BOX_MAX = 256 };

/* An order whose ops wait in a box per group until the test takes them out. */
struct boxes {
    struct order base;
    struct engine *engine;
    struct box {
        struct buf ops[BOX_MAX];
        size_t n;
        bool away; /* somebody else leads */
    } box[GROUPS];
    bool lossy;
    struct choice *chance;
};

struct fixture {
    struct boxes *order;
    struct engine *engine;
    struct feed *feed;
    uint64_t clock_ms;
    char ns[GROUPS][8]; /* a namespace of each shard */
};

struct client {
    struct ask ask;
    int answers;
    struct event ev;
};

static struct boxes *boxes_of(const struct order *o)
{
    return (struct boxes *)(void *)(uintptr_t)o;
}

static void boxes_open(struct order *o, struct engine *e)
{
    boxes_of(o)->engine = e;
}

static void boxes_submit(struct order *o, size_t shard, struct op *op)
{
    struct boxes *b = boxes_of(o);
    struct box *box = &b->box[shard];
    bool letters = op->kind == OP_MAIL || op->kind == OP_TAKEN;
    if (b->lossy && letters && choice_one_in(b->chance, 3))
        return;
    assert_true(box->n < BOX_MAX);
    op_encode(op, &box->ops[box->n++]);
}

static void boxes_read(struct order *o, size_t shard, const struct op *op)
{
    struct op copy = *op;
    boxes_submit(o, shard, &copy);
}

static bool boxes_lead(const struct order *o, size_t shard)
{
    return !boxes_of(o)->box[shard].away;
}

static void boxes_close(struct order *o)
{
    struct boxes *b = boxes_of(o);
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t i = 0; i < b->box[g].n; i++)
            buf_done(&b->box[g].ops[i]);
    free(b);
}

static const struct order_ops boxes_ops = {.open = boxes_open,
                                           .submit = boxes_submit,
                                           .read = boxes_read,
                                           .leads = boxes_lead,
                                           .close = boxes_close};

/* The oldest op of that group happens. */
static bool step(struct fixture *f, size_t group)
{
    struct box *box = &f->order->box[group];
    if (box->n == 0)
        return false;
    struct buf bytes = box->ops[0];
    memmove(box->ops, box->ops + 1, --box->n * sizeof *box->ops);
    memset(&box->ops[box->n], 0, sizeof *box->ops);
    struct arena a = {0};
    struct op op;
    assert_int_equal(op_decode(buf_slice(&bytes), &a, &op), BELAY_OK);
    const char *what;
    assert_int_equal(op_validate(&op, &what), BELAY_OK);
    if (op_is_read(op.kind))
        engine_readable(f->engine, group, &op);
    else
        engine_ordered(f->engine, group, &op);
    arena_done(&a);
    buf_done(&bytes);
    return true;
}

static void settle(struct fixture *f)
{
    bool busy = true;
    while (busy) {
        busy = false;
        engine_post(f->engine);
        for (size_t g = 0; g < GROUPS; g++)
            while (step(f, g))
                busy = true;
    }
}

static uint64_t read_clock(void *ctx)
{
    return *(uint64_t *)ctx;
}

static size_t shard_of(struct fixture *f, const char *ns)
{
    struct op op = {.kind = OP_SHOW, .ns = slice_str(ns), .name = SLICE("x")};
    return post_route(f->engine, &op);
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct client *c = list_item(ask, struct client, ask);
    c->answers++;
    c->ev = *ev;
}

static struct client *ask(struct fixture *f, struct client *c, struct op op)
{
    c->ask.answer = on_answer;
    c->answers = 0;
    engine_submit(f->engine, &op, &c->ask);
    return c;
}

static struct client *done(struct fixture *f, struct client *c, struct op op)
{
    ask(f, c, op);
    settle(f);
    assert_int_equal(c->answers, 1);
    return c;
}

static struct op of_namespace(enum op_kind kind, const char *ns)
{
    return (struct op){.kind = kind, .ns = slice_str(ns)};
}

static struct op of_session(enum op_kind kind, const char *id)
{
    return (struct op){.kind = kind, .session = slice_str(id), .ttl_ms = 10000};
}

static struct op acquire(const char *ns, const char *session, uint64_t wait_ms)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .ns = slice_str(ns),
                       .name = SLICE("db"),
                       .owner = SLICE("me"),
                       .session = slice_str(session),
                       .mode = MODE_EXCLUSIVE,
                       .wait_ms = wait_ms};
}

/* One namespace in every shard: "nA", "nB", ... as they fall. */
static void spread(struct fixture *f)
{
    struct client c = {0};
    size_t found = 0;
    for (char x = 'A'; found < GROUPS - 1; x++) {
        char ns[8];
        assert_true(x <= 'Z');
        snprintf(ns, sizeof ns, "n%c", x);
        size_t g = shard_of(f, ns);
        assert_true(g > 0 && g < GROUPS);
        if (f->ns[g][0])
            continue;
        snprintf(f->ns[g], sizeof f->ns[g], "%s", ns);
        assert_int_equal(done(f, &c, of_namespace(OP_NAMESPACE_CREATE, ns))->ev.kind,
                         EVENT_NAMESPACE_CREATED);
        found++;
    }
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->clock_ms = 1000;
    f->feed = feed_open(64);
    f->order = mem_zalloc(sizeof *f->order);
    f->order->base = (struct order){.ops = &boxes_ops, .n_shards = GROUPS};
    struct engine_config config = {.order = &f->order->base,
                                   .clock_ms = read_clock,
                                   .clock_ctx = &f->clock_ms,
                                   .feed = f->feed};
    f->engine = engine_open(&config);
    spread(f);
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

static void later(struct fixture *f, uint64_t ms)
{
    f->clock_ms += ms;
    engine_tick(f->engine);
    settle(f);
}

static void a_namespace_is_there_when_it_is_answered(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, d = {0};
    size_t g = shard_of(f, "new");
    ask(f, &c, of_namespace(OP_NAMESPACE_CREATE, "new"));
    assert_true(step(f, 0)); /* group 0 has it, its shard does not */
    engine_post(f->engine);
    assert_int_equal(c.answers, 0);
    assert_true(step(f, g));
    engine_post(f->engine);
    assert_int_equal(c.answers, 1);
    assert_int_equal(c.ev.kind, EVENT_NAMESPACE_CREATED);
    assert_int_equal(done(f, &d, acquire("new", "", 0))->ev.kind, EVENT_GRANTED);
    assert_int_equal(done(f, &c, of_namespace(OP_NAMESPACE_CREATE, "new"))->ev.err,
                     BELAY_ERR_EXISTS);
    assert_int_equal(done(f, &c, acquire("other", "", 0))->ev.err, BELAY_ERR_NO_NAMESPACE);
    for (size_t i = 0; i < GROUPS; i++)
        assert_int_equal(machine_letters(f->engine->shards[i].machine), 0);
}

static void a_deleted_namespace_is_gone_from_both(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, acquire(f->ns[1], "", 0));
    struct op gone = of_namespace(OP_NAMESPACE_DELETE, f->ns[1]);
    assert_int_equal(done(f, &c, gone)->ev.err, BELAY_ERR_IN_USE);
    gone.flags = OP_FORCE;
    ask(f, &c, gone);
    assert_true(step(f, 1));
    engine_post(f->engine);
    assert_int_equal(c.answers, 0); /* group 0 would still list it */
    settle(f);
    assert_int_equal(c.ev.kind, EVENT_NAMESPACE_DELETED);
    assert_int_equal(done(f, &c, of_namespace(OP_NAMESPACE_SHOW, f->ns[1]))->ev.err,
                     BELAY_ERR_NO_NAMESPACE);
    done(f, &c, of_namespace(OP_NAMESPACE_CREATE, f->ns[1]));
    assert_int_equal(done(f, &c, acquire(f->ns[1], "", 0))->ev.kind, EVENT_GRANTED);
}

static void rows_of_group_0_count_what_the_shards_have(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    struct op list = {.kind = OP_NAMESPACE_LIST};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[1], "s", 0));
    done(f, &c, acquire(f->ns[2], "s", 0));
    done(f, &c, list);
    assert_int_equal(c.ev.n_rows, GROUPS); /* with "default" */
    struct machine_counts counts;
    engine_counts(f->engine, &counts);
    assert_int_equal(counts.namespaces, GROUPS);
    assert_int_equal(counts.sessions, 1);
    assert_int_equal(counts.held, 2);
}

static void a_session_ends_in_all_shards(void **state)
{
    struct fixture *f = *state;
    struct client s = {0}, c = {0}, next[GROUPS] = {0};
    done(f, &s, of_session(OP_SESSION_OPEN, "s"));
    done(f, &s, of_session(OP_SESSION_OPEN, "t"));
    for (size_t g = 1; g < GROUPS; g++) {
        assert_int_equal(done(f, &c, acquire(f->ns[g], "s", 0))->ev.kind, EVENT_GRANTED);
        ask(f, &next[g], acquire(f->ns[g], "t", 5000));
        settle(f);
        assert_int_equal(next[g].answers, 0);
    }
    ask(f, &s, of_session(OP_SESSION_CLOSE, "s"));
    assert_true(step(f, 0));
    engine_post(f->engine);
    assert_true(step(f, 1) && step(f, 2));
    engine_post(f->engine);
    assert_int_equal(s.answers, 0); /* a lock of it is still held */
    settle(f);
    assert_int_equal(s.ev.kind, EVENT_SESSION_ENDED);
    assert_int_equal(s.ev.count, GROUPS - 1);
    for (size_t g = 1; g < GROUPS; g++)
        assert_int_equal(next[g].ev.kind, EVENT_GRANTED);
    assert_int_equal(done(f, &c, acquire(f->ns[1], "s", 0))->ev.err, BELAY_ERR_NO_SESSION);
}

static void the_end_by_ttl_reaches_the_shards(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[2], "s", 0));
    for (int i = 0; i < 9; i++) /* time moves by little at a time: a leap would be cut */
        later(f, 1000);
    assert_int_equal(done(f, &c, acquire(f->ns[2], "", 0))->ev.kind, EVENT_REFUSED);
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

static void wait_for(struct fixture *f, uint64_t ms)
{
    for (; ms > 1000; ms -= 1000) /* time moves by little at a time: a leap would be cut */
        later(f, 1000);
    later(f, ms);
}

static bool lives(struct fixture *f, const char *id)
{
    struct client c = {0};
    return done(f, &c, of_session(OP_SESSION_SHOW, id))->ev.kind == EVENT_ROWS;
}

/* As in one group: the whole time to live from the last use on, whichever shard it was in, and
 * not a millisecond less. */
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
        later(f, 1);
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

/* Nobody leads a shard: what was done there may keep the session, so it does not end; and the
 * time of that shard stands still. */
static void a_session_does_not_end_while_a_shard_is_not_heard(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[1], "s", 0));
    f->order->box[1].away = true;
    wait_for(f, 60000);
    assert_true(lives(f, "s"));
    f->order->box[1].away = false;
    engine_lead(f->engine, 1, 0);
    later(f, 1);
    assert_true(lives(f, "s"));
    wait_for(f, 9999);
    assert_false(lives(f, "s"));
    assert_int_equal(done(f, &c, acquire(f->ns[1], "", 0))->ev.kind, EVENT_GRANTED);
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
            wait_for(f, 9999);
            assert_true(lives(f, "s"));
        }
        later(f, 1);
        assert_false(lives(f, "s"));
    }
}

static void an_unknown_session_is_refused_in_the_words_of_the_op(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    assert_int_equal(done(f, &c, acquire(f->ns[1], "none", 0))->ev.err, BELAY_ERR_NO_SESSION);
    struct op txn = {.kind = OP_TXN, .ns = slice_str(f->ns[1]), .session = SLICE("none")};
    done(f, &c, txn);
    assert_int_equal(c.ev.kind, EVENT_TXN);
    assert_int_equal(c.ev.cause, CAUSE_SESSION);
}

static void who_leaves_while_it_is_enrolled_gets_nothing(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, d = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    ask(f, &c, acquire(f->ns[1], "s", 0));
    engine_cancel(f->engine, &c.ask);
    settle(f);
    assert_int_equal(c.answers, 0);
    assert_int_equal(done(f, &d, acquire(f->ns[1], "", 0))->ev.kind, EVENT_GRANTED);
}

static void a_new_leader_sends_what_the_old_one_may_not_have(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    f->order->box[0].away = true;
    ask(f, &c, of_namespace(OP_NAMESPACE_CREATE, "late"));
    settle(f);
    assert_int_equal(c.answers, 0);
    f->order->box[0].away = false;
    engine_lead(f->engine, 0, 0);
    settle(f);
    assert_int_equal(c.ev.kind, EVENT_NAMESPACE_CREATED);
    assert_int_equal(machine_letters(f->engine->shards[0].machine), 0);
}

static enum belay_err restore(struct fixture *f, size_t g, struct slice bytes)
{
    struct machine *m;
    enum belay_err err = engine_decode(GROUPS, g, bytes, &m);
    if (err == BELAY_OK)
        engine_adopt(f->engine, g, m);
    return err;
}

static void step_all(struct fixture *f, size_t group)
{
    while (step(f, group))
        ;
}

/* Its time to live is over in group 0, which asks shard 1, which says that it is not used. */
static void say_not_used(struct fixture *f, const char *id)
{
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, id));
    done(f, &c, acquire(f->ns[1], id, 0));
    done(f, &c, acquire(f->ns[2], id, 0));
    wait_for(f, 9999);
    f->clock_ms++;
    engine_tick(f->engine);
    step_all(f, 0);
    engine_post(f->engine);
    step_all(f, 1);
    struct buf bytes = {0};
    engine_encode(f->engine, 1, &bytes); /* and remembers that, whatever happens */
    assert_int_equal(restore(f, 1, buf_slice(&bytes)), BELAY_OK);
    buf_done(&bytes);
}

/* And then it is used there: that counts if group 0 hears of it in time. */
static void a_late_use_counts_when_group_0_has_heard_of_it(void **state)
{
    struct fixture *f = *state;
    struct client used = {0};
    f->order->box[2].away = true; /* the other shard takes its time to answer */
    say_not_used(f, "s");
    ask(f, &used, acquire(f->ns[1], "s", 0));
    step_all(f, 1);
    assert_int_equal(used.answers, 0);
    settle(f);
    assert_int_equal(used.answers, 1);
    assert_int_equal(used.ev.kind, EVENT_GRANTED);
    f->order->box[2].away = false;
    wait_for(f, 9999);
    assert_true(lives(f, "s"));
    wait_for(f, 1);
    assert_false(lives(f, "s"));
}

/* Its node gives up meanwhile: that is what it hears, and what it was granted is called off. */
static void who_was_told_that_it_failed_is_not_granted_anything(void **state)
{
    struct fixture *f = *state;
    struct client used = {0}, c = {0};
    struct op op = acquire(f->ns[1], "s", 0);
    op.name = SLICE("another one"); /* "db" it had before */
    f->order->box[2].away = true;
    say_not_used(f, "s");
    ask(f, &used, op);
    step_all(f, 1);
    engine_unavailable(f->engine, 1, used.ask.id, true, "too late");
    assert_int_equal(used.answers, 1);
    assert_int_equal(used.ev.err, BELAY_ERR_UNAVAILABLE);
    settle(f);
    assert_int_equal(used.answers, 1);
    op.session = SLICE("");
    assert_int_equal(done(f, &c, op)->ev.kind, EVENT_GRANTED);
}

/* If not, whoever used it hears that it is over, and nothing of it stays. */
static void a_use_that_is_too_late_is_refused(void **state)
{
    struct fixture *f = *state;
    struct client used = {0}, again = {0}, c = {0};
    say_not_used(f, "s");
    step_all(f, 2);
    engine_post(f->engine); /* both answers are on their way */
    ask(f, &used, acquire(f->ns[1], "s", 0));
    ask(f, &again, acquire(f->ns[1], "s", 0));
    step_all(f, 1);
    settle(f);
    assert_int_equal(used.answers, 1);
    assert_int_equal(used.ev.err, BELAY_ERR_NO_SESSION);
    assert_int_equal(again.answers, 1);
    assert_int_equal(again.ev.err, BELAY_ERR_NO_SESSION);
    assert_false(lives(f, "s"));
    assert_int_equal(done(f, &c, acquire(f->ns[1], "", 0))->ev.kind, EVENT_GRANTED);
}

static void the_state_of_a_group_fits_no_other(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    done(f, &c, of_session(OP_SESSION_OPEN, "s"));
    done(f, &c, acquire(f->ns[1], "s", 0));
    ask(f, &c, of_session(OP_SESSION_CLOSE, "s"));
    assert_true(step(f, 0)); /* a letter waits */
    for (size_t g = 0; g < 2; g++) {
        struct buf bytes = {0};
        uint64_t hash = engine_hash(f->engine, g);
        engine_encode(f->engine, g, &bytes);
        assert_int_equal(restore(f, g, buf_slice(&bytes)), BELAY_OK);
        assert_int_equal(engine_hash(f->engine, g), hash);
        assert_int_equal(restore(f, g + 1, buf_slice(&bytes)), BELAY_ERR_CORRUPT);
        buf_done(&bytes);
    }
    settle(f);
    assert_int_equal(c.ev.kind, EVENT_SESSION_ENDED);
    assert_int_equal(c.ev.count, 1);
}

/* --- anything may happen between the groups, but nothing is lost --- */

enum { STORM_CLIENTS = 6, STORM_SESSIONS = 4, STORM_STEPS = 4000 };

static struct op storm_op(struct fixture *f, struct choice *c)
{
    static const char *const ids[STORM_SESSIONS] = {"s0", "s1", "s2", "s3"};
    static const char *const spare[] = {"x0", "x1", "x2"};
    const char *id = choice_of(c, ids);
    const char *ns = choice_one_in(c, 4) ? choice_of(c, spare) : f->ns[1 + choice_below(c, 3)];
    struct op op;
    switch (choice_below(c, 9)) {
    case 0:
        return of_session(OP_SESSION_OPEN, id);
    case 1:
        return of_session(OP_SESSION_CLOSE, id);
    case 2:
        return of_namespace(OP_NAMESPACE_CREATE, choice_of(c, spare));
    case 3:
        op = of_namespace(OP_NAMESPACE_DELETE, choice_of(c, spare));
        op.flags = OP_FORCE;
        return op;
    case 4:
        return (struct op){
            .kind = OP_RELEASE, .ns = slice_str(ns), .name = SLICE("db"), .flags = OP_ANYONE};
    default:
        return acquire(ns, id, choice_below(c, 2) ? 3000 : 0);
    }
}

static void storm_step(struct fixture *f, struct choice *c, struct client *clients)
{
    struct client *one = &clients[choice_below(c, STORM_CLIENTS)];
    size_t g = choice_below(c, GROUPS);
    switch (choice_below(c, 8)) {
    case 0:
        if (one->ask.id && choice_one_in(c, 4))
            engine_cancel(f->engine, &one->ask);
        else if (!one->ask.id)
            ask(f, one, storm_op(f, c));
        break;
    case 1:
        f->clock_ms += choice_below(c, 500);
        engine_tick(f->engine);
        break;
    case 2:
        f->order->box[g].away = choice_below(c, 2);
        if (!f->order->box[g].away)
            engine_lead(f->engine, g, 0);
        break;
    case 3: {
        struct buf bytes = {0};
        engine_encode(f->engine, g, &bytes);
        assert_int_equal(restore(f, g, buf_slice(&bytes)), BELAY_OK);
        buf_done(&bytes);
        break;
    }
    case 4:
        engine_post(f->engine);
        break;
    default:
        step(f, g);
    }
}

/* Group 0 and the shards agree on who is there. */
static void agree(struct fixture *f)
{
    const struct shard *s = f->engine->shards;
    static const char *const ids[STORM_SESSIONS] = {"s0", "s1", "s2", "s3"};
    static const char *const spare[] = {"x0", "x1", "x2"};
    for (size_t i = 0; i < STORM_SESSIONS; i++)
        for (size_t g = 1; g < GROUPS; g++)
            if (machine_knows_session(s[g].machine, slice_str(ids[i])))
                assert_true(machine_knows_session(s[0].machine, slice_str(ids[i])));
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++) {
        struct client c = {0}, d = {0};
        done(f, &c, of_namespace(OP_NAMESPACE_SHOW, spare[i]));
        struct op list = {.kind = OP_LIST, .ns = slice_str(spare[i])};
        done(f, &d, list);
        assert_int_equal(c.ev.kind, d.ev.kind);
    }
    for (size_t g = 0; g < GROUPS; g++)
        assert_int_equal(machine_letters(s[g].machine), 0);
}

static void storm(struct fixture *f, uint64_t from)
{
    struct choice c = choice_seed(from);
    struct client clients[STORM_CLIENTS] = {0};
    f->order->lossy = true;
    f->order->chance = &c;
    for (int i = 0; i < STORM_STEPS; i++)
        storm_step(f, &c, clients);
    f->order->lossy = false;
    for (size_t g = 0; g < GROUPS; g++)
        f->order->box[g].away = false;
    for (int i = 0; i < 8; i++) /* waits run out, what was lost is sent again */
        later(f, 1000);
    for (size_t i = 0; i < STORM_CLIENTS; i++)
        assert_int_equal(clients[i].ask.id, 0);
    agree(f);
}

static uint64_t seed; /* of the storm that runs */

static void whatever_is_lost_the_groups_agree_in_the_end(void **state)
{
    (void)state;
    for (seed = 1; seed <= 200; seed++) {
        void *one = NULL;
        set_up(&one);
        storm(one, seed);
        tear_down(&one);
    }
    seed = 0;
}

static int print_seed(void **state)
{
    (void)state;
    if (seed)
        print_error("it failed with seed %llu\n", (unsigned long long)seed);
    return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_namespace_is_there_when_it_is_answered),
        T(a_deleted_namespace_is_gone_from_both),
        T(rows_of_group_0_count_what_the_shards_have),
        T(a_session_ends_in_all_shards),
        T(the_end_by_ttl_reaches_the_shards),
        T(use_in_a_shard_keeps_a_session),
        T(a_session_lives_its_time_from_the_last_use_in_any_shard),
        T(a_session_does_not_end_while_a_shard_is_not_heard),
        T(a_late_use_counts_when_group_0_has_heard_of_it),
        T(who_was_told_that_it_failed_is_not_granted_anything),
        T(a_use_that_is_too_late_is_refused),
        T(a_session_lingers_whatever_was_done_before),
        T(an_unknown_session_is_refused_in_the_words_of_the_op),
        T(who_leaves_while_it_is_enrolled_gets_nothing),
        T(a_new_leader_sends_what_the_old_one_may_not_have),
        T(the_state_of_a_group_fits_no_other),
        cmocka_unit_test_teardown(whatever_is_lost_the_groups_agree_in_the_end, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
