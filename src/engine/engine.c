/* engine.c - see engine.h.
 *
 * An ask that is not answered at once is remembered in a table of slots. What travels through
 * the order and the machine is its number (slot and generation), never a pointer: an answer for
 * a slot that was reused finds nobody, and a client that is gone cannot be written to. */
#include "engine/engine.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/order.h"
#include "events/feed.h"
#include "machine/machine.h"

#include <stdlib.h>
#include <sys/random.h>

enum { ASK_SLOT_BITS = 24, ASK_SLOTS_MAX = 1 << ASK_SLOT_BITS };

/* An outstanding ask. */
struct slot {
    struct ask *ask; /* NULL: free */
    uint64_t generation;
    uint32_t next_free;
    bool want_lock, want_holders;
    struct buf cancel; /* the op that takes it out of the line, made when it has to wait */
};

struct engine {
    struct order *order;
    struct feed *feed;
    uint64_t (*clock_ms)(void *ctx);
    void *clock_ctx;
    struct machine **machines; /* one a shard */
    uint64_t last_clock_ms;    /* of the caller's clock */
    uint64_t now_ms;           /* state-machine time */
    struct slot *slots;        /* slot 0 is never used */
    uint32_t n_slots, cap_slots, first_free;
    uint64_t targets;
    bool delivering; /* answers are being given: nothing may be submitted now */
    struct effects fx;
};

static struct hash_key random_key(void)
{
    struct hash_key key;
    BELAY_CHECK(getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key);
    return key;
}

struct engine *engine_open(const struct engine_config *config)
{
    struct engine *e = mem_zalloc(sizeof *e);
    e->order = config->order;
    e->feed = config->feed;
    e->clock_ms = config->clock_ms;
    e->clock_ctx = config->clock_ctx;
    e->last_clock_ms = e->clock_ms(e->clock_ctx);
    e->n_slots = 1;
    e->machines = mem_alloc(e->order->n_shards * sizeof(struct machine *));
    for (size_t i = 0; i < e->order->n_shards; i++)
        e->machines[i] = machine_open(random_key());
    e->order->ops->open(e->order, e);
    return e;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->order->n_shards; i++)
        machine_close(e->machines[i]);
    free(e->machines);
    e->order->ops->close(e->order);
    for (uint32_t i = 1; i < e->n_slots; i++)
        buf_done(&e->slots[i].cancel);
    free(e->slots);
    effects_done(&e->fx);
    free(e);
}

/* --- time --- */

uint64_t engine_now_ms(struct engine *e)
{
    uint64_t clock = e->clock_ms(e->clock_ctx);
    uint64_t step = clock > e->last_clock_ms ? clock - e->last_clock_ms : 0;
    e->last_clock_ms = clock;
    e->now_ms += step < ENGINE_STALL_MAX_MS ? step : ENGINE_STALL_MAX_MS;
    return e->now_ms;
}

/* --- asks --- */

static uint64_t ask_add(struct engine *e, struct ask *ask, const struct op *op)
{
    uint32_t at = e->first_free;
    if (at) {
        e->first_free = e->slots[at].next_free;
    } else {
        if (e->n_slots >= e->cap_slots) {
            e->cap_slots = e->cap_slots ? e->cap_slots * 2 : 64;
            e->slots = mem_resize(e->slots, e->cap_slots * sizeof *e->slots);
        }
        BELAY_CHECK(e->n_slots < ASK_SLOTS_MAX);
        at = e->n_slots++;
        e->slots[at] = (struct slot){0};
    }
    struct slot *s = &e->slots[at];
    s->ask = ask;
    s->generation++;
    s->want_lock = op->flags & OP_WANT_LOCK;
    s->want_holders = op->flags & OP_WANT_HOLDERS;
    ask->id = s->generation << ASK_SLOT_BITS | at;
    return ask->id;
}

static struct slot *ask_slot(struct engine *e, uint64_t id)
{
    uint64_t at = id & (ASK_SLOTS_MAX - 1);
    if (at == 0 || at >= e->n_slots)
        return NULL;
    struct slot *s = &e->slots[at];
    return s->ask && s->generation == id >> ASK_SLOT_BITS ? s : NULL;
}

static void ask_remove(struct engine *e, struct slot *s)
{
    s->ask->id = 0;
    s->ask = NULL;
    buf_done(&s->cancel);
    s->next_free = e->first_free;
    e->first_free = (uint32_t)(s - e->slots);
}

static void answer(struct engine *e, size_t shard, struct event *ev)
{
    struct slot *s = ask_slot(e, ev->asker);
    if (!s)
        return; /* gone, or it asked another node */
    struct ask *ask = s->ask;
    if (s->want_lock || (s->want_holders && ev->kind == EVENT_REFUSED)) {
        struct op where = {.account = ev->account, .ns = ev->ns, .name = ev->name};
        ev->locks = ev->name.len ? machine_lock_row(e->machines[shard], &where, &e->fx) : NULL;
        ev->n_rows = ev->locks != NULL;
    }
    if (!(ev->kind == EVENT_QUEUED && ask->stay))
        ask_remove(e, s);
    ask->answer(ask, ev);
}

static void deliver(struct engine *e, size_t shard)
{
    e->delivering = true;
    for (size_t i = 0; i < e->fx.n; i++) {
        struct event *ev = &e->fx.events[i];
        if (ev->news)
            (void)feed_append(e->feed, ev);
        if (ev->asker)
            answer(e, shard, ev);
    }
    effects_reset(&e->fx);
    e->delivering = false;
}

/* --- ordering --- */

void engine_ordered(struct engine *e, size_t shard, const struct op *op)
{
    struct op ordered = *op;
    ordered.index = machine_applied(e->machines[shard]) + 1;
    if (op->now_ms > e->now_ms)
        e->now_ms = op->now_ms; /* stamped by another node */
    machine_apply(e->machines[shard], &ordered, &e->fx);
    deliver(e, shard);
}

void engine_readable(struct engine *e, size_t shard, const struct op *op)
{
    machine_query(e->machines[shard], op, &e->fx);
    deliver(e, shard);
}

static void order_op(struct engine *e, struct op *op)
{
    op->now_ms = engine_now_ms(e);
    if (op_is_read(op->kind))
        e->order->ops->read(e->order, 0, op);
    else
        e->order->ops->submit(e->order, 0, op);
}

#ifdef BELAY_SLOW_CHECKS
static bool is_valid(const struct op *op)
{
    const char *what;
    return op_validate(op, &what) == BELAY_OK;
}
#endif

/* The client may go before its turn comes: keep what finds its place in the line again. */
static void prepare_cancel(struct engine *e, const struct ask *ask, const struct op *op)
{
    struct slot *s = ask_slot(e, ask->id);
    bool waits = op->kind == OP_ACQUIRE || op->kind == OP_CONVERT || op->kind == OP_TXN;
    if (!s || !waits)
        return;
    struct op cancel = {.kind = OP_CANCEL,
                        .target = ask->id,
                        .account = op->account,
                        .ns = op->ns,
                        .name = op->name,
                        .more = op->more};
    if (op->kind == OP_TXN)
        cancel.session = op->session;
    op_encode(&cancel, &s->cancel);
    BELAY_CHECK(!s->cancel.oom);
}

void engine_submit(struct engine *e, const struct op *op, struct ask *ask)
{
    BELAY_CHECK(!e->delivering);
    BELAY_DCHECK(is_valid(op));
    struct op ordered = *op;
    ordered.asker = ask ? ask_add(e, ask, op) : 0;
    order_op(e, &ordered);
    if (ask && ask->id)
        prepare_cancel(e, ask, op);
}

void engine_cancel(struct engine *e, struct ask *ask)
{
    BELAY_CHECK(!e->delivering);
    struct slot *s = ask_slot(e, ask->id);
    if (!s)
        return;
    struct buf bytes = s->cancel;
    s->cancel = (struct buf){0};
    ask_remove(e, s);
    if (buf_len(&bytes)) {
        struct arena a = {0};
        struct op op;
        enum belay_err err = op_decode(buf_slice(&bytes), &a, &op);
        BELAY_CHECK(err == BELAY_OK);
        order_op(e, &op);
        arena_done(&a);
    }
    buf_done(&bytes);
}

void engine_flush(struct engine *e)
{
    if (e->order->ops->flush)
        e->order->ops->flush(e->order);
}

uint64_t engine_next_ms(struct engine *e)
{
    uint64_t now = engine_now_ms(e), due = UINT64_MAX;
    for (size_t i = 0; i < e->order->n_shards; i++) {
        uint64_t at = machine_due(e->machines[i]);
        due = at < due ? at : due;
    }
    if (due == UINT64_MAX)
        return UINT64_MAX;
    return due > now ? due - now : 0;
}

void engine_tick(struct engine *e)
{
    struct op tick = {.kind = OP_TICK};
    if (engine_next_ms(e) == 0)
        order_op(e, &tick);
}

const char *engine_not_ready(const struct engine *e)
{
    return e->order->ops->not_ready ? e->order->ops->not_ready(e->order) : NULL;
}

void engine_counts(const struct engine *e, struct machine_counts *ret)
{
    *ret = (struct machine_counts){0};
    for (size_t i = 0; i < e->order->n_shards; i++) {
        struct machine_counts one;
        machine_counts(e->machines[i], &one);
        ret->locks += one.locks;
        ret->held += one.held;
        ret->waiting += one.waiting;
        ret->sessions += one.sessions;
        ret->namespaces += one.namespaces;
        ret->variables += one.variables;
        ret->transactions += one.transactions;
    }
}

uint64_t engine_new_target(struct engine *e)
{
    return ++e->targets;
}
