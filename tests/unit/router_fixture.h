/* router_fixture.h - several groups on one engine. The order is a box per group that the test
 * empties as it likes. */
#ifndef BELAY_TESTS_ROUTER_FIXTURE_H
#define BELAY_TESTS_ROUTER_FIXTURE_H

#include "base/mem.h"
#include "choice.h"
#include "engine/engine_core.h"
#include "events/feed.h"
#include "machine/level.h"

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

static inline struct boxes *boxes_of(const struct order *o)
{
    return (struct boxes *)(void *)(uintptr_t)o;
}

static inline void boxes_open(struct order *o, struct engine *e)
{
    boxes_of(o)->engine = e;
}

static inline void boxes_submit(struct order *o, size_t shard, struct op *op)
{
    struct boxes *b = boxes_of(o);
    struct box *box = &b->box[shard];
    bool messages = op->kind == OP_MESSAGES || op->kind == OP_TAKEN;
    if (b->lossy && messages && choice_one_in(b->chance, 3))
        return;
    assert_true(box->n < BOX_MAX);
    op->now_ms = engine_stamp(b->engine, shard);
    op_encode(op, &box->ops[box->n++]);
}

static inline bool boxes_lead(const struct order *o, size_t shard)
{
    return !boxes_of(o)->box[shard].away;
}

static inline void boxes_close(struct order *o)
{
    struct boxes *b = boxes_of(o);
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t i = 0; i < b->box[g].n; i++)
            buf_done(&b->box[g].ops[i]);
    free(b);
}

static const struct order_ops boxes_ops = {.open = boxes_open,
                                           .submit = boxes_submit,
                                           .read = boxes_submit,
                                           .leads = boxes_lead,
                                           .close = boxes_close};

/* The oldest op of that group happens. */
static inline bool step(struct fixture *f, size_t group)
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

static inline void settle(struct fixture *f)
{
    bool busy = true;
    while (busy) {
        busy = false;
        engine_exchange(f->engine);
        for (size_t g = 0; g < GROUPS; g++)
            while (step(f, g))
                busy = true;
    }
}

static inline uint64_t read_clock(void *ctx)
{
    return *(uint64_t *)ctx;
}

static inline size_t shard_of(struct fixture *f, const char *ns)
{
    struct op op = {.kind = OP_SHOW, .ns = slice_str(ns), .name = SLICE("x")};
    return router_route(f->engine, &op);
}

static inline void on_answer(struct ask *ask, const struct event *ev)
{
    struct client *c = list_item(ask, struct client, ask);
    c->answers++;
    c->ev = *ev;
}

static inline struct client *ask(struct fixture *f, struct client *c, struct op op)
{
    c->ask.answer = on_answer;
    c->answers = 0;
    engine_submit(f->engine, &op, &c->ask);
    return c;
}

static inline struct client *done(struct fixture *f, struct client *c, struct op op)
{
    ask(f, c, op);
    settle(f);
    assert_int_equal(c->answers, 1);
    return c;
}

static inline struct op of_namespace(enum op_kind kind, const char *ns)
{
    return (struct op){.kind = kind, .ns = slice_str(ns)};
}

static inline struct op of_session(enum op_kind kind, const char *id)
{
    return (struct op){.kind = kind, .session = slice_str(id), .ttl_ms = 10000};
}

static inline struct op acquire(const char *ns, const char *session, uint64_t wait_ms)
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
static inline void spread(struct fixture *f)
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

static inline int set_up_at(void **state, uint64_t level)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->clock_ms = 1000;
    f->feed = feed_open(64);
    f->order = mem_zalloc(sizeof *f->order);
    f->order->base =
        (struct order){.ops = &boxes_ops, .n_groups = GROUPS, .first_level = level};
    struct engine_config config = {.order = &f->order->base,
                                   .clock_ms = read_clock,
                                   .clock_ctx = &f->clock_ms,
                                   .feed = f->feed};
    f->engine = engine_open(&config);
    spread(f);
    *state = f;
    return 0;
}

static inline int set_up(void **state)
{
    return set_up_at(state, LEVEL_NEWEST);
}

static inline int set_up_old(void **state)
{
    return set_up_at(state, 0);
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;
    engine_close(f->engine);
    feed_close(f->feed);
    free(f);
    return 0;
}

static inline void later(struct fixture *f, uint64_t ms)
{
    f->clock_ms += ms;
    engine_tick(f->engine);
    settle(f);
}

static inline void wait_for(struct fixture *f, uint64_t ms)
{
    for (; ms > 1000; ms -= 1000) /* time moves by little at a time: a leap would be cut */
        later(f, 1000);
    later(f, ms);
}

static inline bool lives(struct fixture *f, const char *id)
{
    struct client c = {0};
    return done(f, &c, of_session(OP_SESSION_SHOW, id))->ev.kind == EVENT_ROWS;
}

static inline void step_all(struct fixture *f, size_t group)
{
    while (step(f, group))
        ;
}
#endif
