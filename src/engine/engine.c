/* engine.c - see engine.h.
 *
 * An ask that is not answered at once is remembered in a table of slots. What travels through
 * the order and the machine is its number (slot and generation), never a pointer: an answer for
 * a slot that was reused finds nobody, and a client that is gone cannot be written to. */
#include "engine/engine.h"

#include "base/check.h"
#include "base/mem.h"
#include "engine/engine_core.h"
#include "events/feed.h"

#include <stdlib.h>
#include <sys/random.h>

static struct hash_key random_key(void)
{
    struct hash_key key;
    BELAY_CHECK(getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key);
    return key;
}

uint64_t engine_clock(const struct engine *e)
{
    return e->clock_ms(e->clock_ctx);
}

static struct machine *shard_machine(const struct engine *e, size_t shard)
{
    struct machine *m = machine_open(random_key());
    if (e->order->n_shards > 1)
        machine_set_group(m, (unsigned)shard, (unsigned)e->order->n_shards);
    return m;
}

struct engine *engine_open(const struct engine_config *config)
{
    struct engine *e = mem_zalloc(sizeof *e);
    e->order = config->order;
    e->feed = config->feed;
    e->clock_ms = config->clock_ms;
    e->clock_ctx = config->clock_ctx;
    e->n_slots = 1;
    list_init(&e->held);
    e->shards = mem_zalloc(e->order->n_shards * sizeof *e->shards);
    for (size_t i = 0; i < e->order->n_shards; i++) {
        e->shards[i].machine = shard_machine(e, i);
        e->shards[i].clock_ms = engine_clock(e);
    }
    e->order->ops->open(e->order, e);
    return e;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    post_close(e);
    for (size_t i = 0; i < e->order->n_shards; i++)
        machine_close(e->shards[i].machine);
    free(e->shards);
    e->order->ops->close(e->order);
    for (uint32_t i = 1; i < e->n_slots; i++) {
        buf_done(&e->slots[i].cancel);
        buf_done(&e->slots[i].then);
        buf_done(&e->slots[i].use);
    }
    free(e->slots);
    effects_done(&e->fx);
    free(e);
}

/* --- time --- */

uint64_t engine_stamp(struct engine *e, size_t shard)
{
    struct shard *s = &e->shards[shard];
    uint64_t clock = engine_clock(e);
    uint64_t step = clock > s->clock_ms ? clock - s->clock_ms : 0;
    s->clock_ms = clock;
    s->now_ms += step < ENGINE_STALL_MAX_MS ? step : ENGINE_STALL_MAX_MS;
    return s->now_ms;
}

uint64_t engine_now_ms(struct engine *e)
{
    return engine_stamp(e, 0);
}

void engine_lead(struct engine *e, size_t shard, uint64_t heard_ms)
{
    struct shard *s = &e->shards[shard];
    uint64_t last = machine_now(s->machine);
    s->now_ms = heard_ms > last ? heard_ms : last;
    s->clock_ms = engine_clock(e);
    s->tick_ms = 0;
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
    buf_clear(&s->use);
    s->want_lock = op->flags & OP_WANT_LOCK;
    s->give_up_ms = 0;
    if (e->order->patience_ms)
        s->give_up_ms = engine_clock(e) + op->wait_ms + e->order->patience_ms;
    s->want_holders = op->flags & OP_WANT_HOLDERS;
    ask->id = e->order->id_base | (s->generation & ASK_GENERATION_MASK) << ASK_SLOT_BITS | at;
    if ((op->flags & OP_NOBLOCK) && !ask->stay)
        ask->id |= OP_ASKER_LOOSE;
    return ask->id;
}

struct slot *engine_slot(struct engine *e, uint64_t id)
{
    uint64_t at = id & (ASK_SLOTS_MAX - 1);
    if (at == 0 || at >= e->n_slots)
        return NULL;
    struct slot *s = &e->slots[at];
    return s->ask && s->ask->id == id ? s : NULL;
}

static void ask_remove(struct engine *e, struct slot *s)
{
    s->ask->id = 0;
    s->ask = NULL;
    if (s->cancel.cap <= CANCEL_KEEP_BYTES)
        buf_clear(&s->cancel); /* for the next one in this slot */
    else
        buf_done(&s->cancel);
    buf_done(&s->then);
    buf_done(&s->use);
    s->next_free = e->first_free;
    e->first_free = (uint32_t)(s - e->slots);
}

static void answer(struct engine *e, size_t shard, struct event *ev)
{
    struct slot *s = engine_slot(e, ev->asker);
    if (!s)
        return; /* gone, or it asked another node */
    if (post_hold(e, shard, ev))
        return;
    struct ask *ask = s->ask;
    if (s->want_lock || (s->want_holders && ev->kind == EVENT_REFUSED)) {
        struct op where = {.account = ev->account, .ns = ev->ns, .name = ev->name};
        ev->locks =
            ev->name.len ? machine_lock_row(e->shards[shard].machine, &where, &e->fx) : NULL;
        ev->n_rows = ev->locks != NULL;
    }
    if (!(ev->kind == EVENT_QUEUED && ask->stay))
        ask_remove(e, s);
    ask->answer(ask, ev);
}

void engine_deliver(struct engine *e, size_t shard)
{
    e->delivering = true;
    for (size_t i = 0; i < e->fx.n; i++) {
        struct event *ev = &e->fx.events[i];
        if (ev->news)
            (void)feed_append(e->feed, ev);
        else if (ev->kind == EVENT_SESSION_ENDED)
            post_count(e, shard, ev);
        if (ev->asker)
            answer(e, shard, ev);
    }
    effects_reset(&e->fx);
    e->delivering = false;
}

/* --- ordering --- */

void engine_ordered(struct engine *e, size_t shard, struct op *op)
{
    struct shard *s = &e->shards[shard];
    op->index = machine_applied(s->machine) + 1;
    if (op->now_ms > s->now_ms)
        s->now_ms = op->now_ms; /* stamped by another node */
    if (op->kind == OP_TICK)
        s->tick_ms = 0;
    machine_apply(s->machine, op, &e->fx);
    post_used(e, shard, op);
    engine_deliver(e, shard);
}

/* What has come to its end is over for a read when that has been ordered, not before: an op
 * that was stamped earlier may still be on its way, and renew it. It would have been gone, and
 * there again. */
void engine_readable(struct engine *e, size_t shard, const struct op *op)
{
    const struct machine *m = e->shards[shard].machine;
    uint64_t due = machine_due(m);
    struct op as_of = *op;
    if (due > 0 && as_of.now_ms >= due)
        as_of.now_ms = due - 1;
    machine_query(m, &as_of, &e->fx);
    if (shard == 0)
        post_fill(e, op);
    engine_deliver(e, shard);
}

void engine_give_up(struct engine *e)
{
    uint64_t clock = engine_clock(e);
    for (uint32_t i = 1; i < e->n_slots; i++) {
        const struct slot *s = &e->slots[i];
        if (s->ask && s->give_up_ms && s->give_up_ms <= clock)
            engine_unavailable(e, 0, s->ask->id, true, "no answer from the cluster in time");
    }
}

void engine_disown(struct engine *e)
{
    for (uint32_t i = 1; i < e->n_slots; i++)
        if (e->slots[i].ask)
            engine_unavailable(e, 0, e->slots[i].ask->id, true,
                               "this node was out of reach and the cluster went on without "
                               "it; it may have taken effect");
}

void engine_encode(const struct engine *e, size_t shard, struct buf *out)
{
    machine_encode(e->shards[shard].machine, out);
}

enum belay_err engine_decode(size_t n_shards, size_t shard, struct slice bytes,
                             struct machine **ret_m)
{
    struct machine *m;
    enum belay_err err = machine_decode(bytes, random_key(), &m);
    if (err != BELAY_OK)
        return err;
    if (!machine_is_group(m, (unsigned)shard, (unsigned)n_shards)) {
        machine_close(m);
        return BELAY_ERR_CORRUPT;
    }
    *ret_m = m;
    return BELAY_OK;
}

void engine_adopt(struct engine *e, size_t shard, struct machine *m)
{
    machine_close(e->shards[shard].machine);
    e->shards[shard].machine = m;
    engine_lead(e, shard, 0);
    feed_gap(e->feed); /* what happened in between is not known here */
}

uint64_t engine_hash(const struct engine *e, size_t shard)
{
    return machine_hash(e->shards[shard].machine);
}

static void read_stale(struct engine *e, size_t shard, struct op *op)
{
    uint64_t age_ms = 0;
    if (e->order->ops->age)
        age_ms = e->order->ops->age(e->order, shard, &op->now_ms);
    machine_query(e->shards[shard].machine, op, &e->fx);
    if (shard == 0)
        post_fill(e, op);
    for (size_t i = 0; i < e->fx.n; i++) {
        e->fx.events[i].stale = true;
        e->fx.events[i].age_ms = age_ms;
    }
    engine_deliver(e, shard);
}

static size_t order_op(struct engine *e, struct op *op)
{
    size_t shard = post_route(e, op);
    if (post_enrol(e, shard, op))
        return shard;
    op->now_ms = engine_stamp(e, shard);
    if (op->flags & OP_STALE)
        read_stale(e, shard, op);
    else if (op_is_read(op->kind))
        e->order->ops->read(e->order, shard, op);
    else
        e->order->ops->submit(e->order, shard, op);
    return shard;
}

#ifdef BELAY_SLOW_CHECKS
static bool is_valid(const struct op *op)
{
    const char *what;
    return op_validate(op, &what) == BELAY_OK;
}
#endif

/* The client may go before its turn comes: keep what finds its place in the line again, or the
 * session that would stay attached to nobody. */
static void prepare_cancel(struct engine *e, const struct ask *ask, const struct op *op,
                           size_t shard)
{
    struct slot *s = engine_slot(e, ask->id);
    bool lasts = op->kind == OP_ACQUIRE || op->kind == OP_CONVERT || op->kind == OP_TXN ||
                 op->kind == OP_SESSION_ATTACH;
    if (!s || !lasts)
        return;
    struct op cancel = {.kind = OP_CANCEL,
                        .target = ask->id,
                        .account = op->account,
                        .ns = op->ns,
                        .name = op->name,
                        .request = op->request,
                        .more = op->more,
                        .wait_ms = op->wait_ms}; /* the order keeps it as long as the op */
    if (op->kind == OP_CONVERT)
        cancel.flags = OP_UNDO;
    if (op->kind == OP_TXN)
        cancel.session = op->session;
    if (op->kind == OP_SESSION_ATTACH)
        cancel = (struct op){.kind = OP_SESSION_DETACH,
                             .account = op->account,
                             .session = op->session,
                             .target = op->target};
    s->shard = shard;
    op_encode(&cancel, &s->cancel);
    BELAY_CHECK(!s->cancel.oom);
}

void engine_submit(struct engine *e, struct op *op, struct ask *ask)
{
    BELAY_CHECK(!e->delivering);
    BELAY_DCHECK(is_valid(op));
    op->asker = ask ? ask_add(e, ask, op) : 0;
    size_t shard = order_op(e, op);
    if (ask && ask->id)
        prepare_cancel(e, ask, op, shard);
}

/* Orders the op that was prepared for it, if any, and frees it. */
static void order_cancel(struct engine *e, struct buf *bytes, uint64_t flags)
{
    if (buf_len(bytes)) {
        struct arena a = {0};
        struct op op;
        enum belay_err err = op_decode(buf_slice(bytes), &a, &op);
        BELAY_CHECK(err == BELAY_OK);
        op.flags |= flags;
        /* A node that cannot serve ends nobody's session. */
        if (op.kind != OP_SESSION_DETACH || !(flags & OP_AWAY))
            (void)order_op(e, &op);
        arena_done(&a);
    }
    buf_done(bytes);
}

static void call_off(struct engine *e, struct ask *ask, uint64_t flags)
{
    BELAY_CHECK(!e->delivering);
    struct slot *s = engine_slot(e, ask->id);
    if (!s)
        return;
    struct buf bytes = s->cancel;
    s->cancel = (struct buf){0};
    ask_remove(e, s);
    order_cancel(e, &bytes, flags);
}

void engine_cancel(struct engine *e, struct ask *ask)
{
    call_off(e, ask, 0);
}

void engine_leave(struct engine *e, struct ask *ask)
{
    call_off(e, ask, OP_AWAY);
}

bool engine_is_idle(const struct engine *e)
{
    return list_empty(&e->held) && (!e->order->ops->idle || e->order->ops->idle(e->order));
}

void engine_unavailable(struct engine *e, size_t shard, uint64_t asker, bool perhaps,
                        const char *text)
{
    struct slot *s = engine_slot(e, asker);
    if (!s)
        return;
    struct buf cancel = {0};
    if (perhaps) {
        cancel = s->cancel;
        s->cancel = (struct buf){0};
    }
    buf_done(&s->then);
    buf_clear(&s->use); /* this waits for nothing, and what does comes too late */
    struct event *ev = effects_add(&e->fx, EVENT_FAILED);
    ev->asker = asker;
    ev->err = BELAY_ERR_UNAVAILABLE;
    ev->text = slice_str(text);
    engine_deliver(e, shard);
    order_cancel(e, &cancel, OP_AWAY);
}

void engine_expects(struct engine *e, uint64_t asker)
{
    struct slot *s = engine_slot(e, asker);
    if (s)
        s->expected = true;
}

static void waits_there(void *ctx, uint64_t asker)
{
    engine_expects(ctx, asker);
}

void engine_missed(struct engine *e, size_t shard)
{
    machine_each_waiting(e->shards[shard].machine, waits_there, e);
    for (uint32_t i = 1; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        bool lost = s->ask && s->shard == shard && buf_len(&s->cancel) && !buf_len(&s->then) &&
                    !s->expected;
        s->expected = false;
        if (lost)
            engine_unavailable(e, shard, s->ask->id, true,
                               "this node was behind when it was decided; it may have taken "
                               "effect");
    }
}

void engine_flush(struct engine *e)
{
    if (e->order->ops->flush)
        e->order->ops->flush(e->order);
}

/* How long until something ends in this shard, as far as it is for this node to say so. */
static uint64_t shard_next_ms(struct engine *e, size_t shard)
{
    struct shard *s = &e->shards[shard];
    if (e->order->ops->leads && !e->order->ops->leads(e->order, shard))
        return UINT64_MAX;
    uint64_t now = engine_stamp(e, shard); /* also when nothing ends: time goes on */
    uint64_t due = machine_due(s->machine);
    if (due == UINT64_MAX)
        return UINT64_MAX;
    if (s->tick_ms && s->clock_ms - s->tick_ms < TICK_PATIENCE_MS)
        return TICK_PATIENCE_MS - (s->clock_ms - s->tick_ms); /* one is on its way */
    return due > now ? due - now : 0;
}

uint64_t engine_next_ms(struct engine *e)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < e->order->n_shards; i++) {
        uint64_t at = shard_next_ms(e, i);
        next = at < next ? at : next;
    }
    uint64_t post = post_next_ms(e);
    return post < next ? post : next;
}

void engine_tick(struct engine *e)
{
    for (size_t i = 0; i < e->order->n_shards; i++) {
        if (shard_next_ms(e, i) != 0)
            continue;
        struct shard *s = &e->shards[i];
        struct op tick = {.kind = OP_TICK, .now_ms = engine_stamp(e, i)};
        s->tick_ms = s->clock_ms ? s->clock_ms : 1;
        e->order->ops->submit(e->order, i, &tick);
    }
    engine_post(e);
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
        machine_counts(e->shards[i].machine, &one);
        ret->locks += one.locks;
        ret->held += one.held;
        ret->waiting += one.waiting;
        ret->sessions += i == 0 ? one.sessions : 0; /* group 0 knows them all */
        ret->namespaces += i == 0 ? one.namespaces : 0;
        ret->variables += one.variables;
        ret->transactions += one.transactions;
        ret->receipts += one.receipts;
    }
}

uint64_t engine_new_target(struct engine *e)
{
    return e->order->id_base | ++e->targets;
}

bool engine_knows_target(const struct engine *e, uint64_t target)
{
    return target >> OP_RUN_SHIFT == e->order->id_base >> OP_RUN_SHIFT;
}
