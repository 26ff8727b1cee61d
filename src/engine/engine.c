/* engine.c - see engine.h.
 *
 * An ask that is not answered at once is remembered in a slot. What travels through the order
 * and the machine is its number, never a pointer: an answer to an ask that is over finds
 * nobody, and a client that is gone cannot be written to. Numbers of a run are counted; after
 * 2^42 of them the count begins again, and passes over those that are outstanding. */
#include "engine/engine.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_core.h"
#include "events/feed.h"

#include <inttypes.h>
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

static void set_for_tests(const struct engine *e, struct machine *m)
{
    machine_set_askers(m, e->count_bits, e->by_number);
    if (e->batch)
        machine_set_batch(m, e->batch);
}

static struct machine *group_machine(const struct engine *e, size_t group)
{
    struct machine *m = machine_open(random_key());
    machine_set_level(m, e->order->first_level);
    set_for_tests(e, m);
    if (e->order->n_groups > 1)
        machine_set_group(m, (unsigned)group, (unsigned)e->order->n_groups);
    return m;
}

struct engine *engine_open(const struct engine_config *config)
{
    struct engine *e = mem_zalloc(sizeof *e);
    e->order = config->order;
    e->feed = config->feed;
    e->clock_ms = config->clock_ms;
    e->clock_ctx = config->clock_ctx;
    e->count_bits = config->count_bits ? config->count_bits : OP_RUN_SHIFT;
    e->by_number = config->by_number;
    e->batch = config->batch;
    e->n_slots = 1;
    list_init(&e->held);
    list_init(&e->ending);
    e->groups = mem_zalloc(e->order->n_groups * sizeof *e->groups);
    for (size_t i = 0; i < e->order->n_groups; i++) {
        e->groups[i].machine = group_machine(e, i);
        e->groups[i].clock_ms = engine_clock(e);
    }
    e->order->ops->open(e->order, e);
    return e;
}

static void ending_drop(struct asker_slot *s)
{
    struct session_ending *ending = s->ending;
    s->ending = NULL;
    if (!ending)
        return;
    list_remove(&ending->in_engine);
    buf_done(&ending->name);
    free(ending);
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    router_close(e);
    for (size_t i = 0; i < e->order->n_groups; i++)
        machine_close(e->groups[i].machine);
    free(e->groups);
    e->order->ops->close(e->order);
    for (uint32_t i = 1; i < e->n_slots; i++) {
        buf_done(&e->slots[i]->cancel);
        buf_done(&e->slots[i]->then);
        ending_drop(e->slots[i]);
        free(e->slots[i]);
    }
    free(e->slots);
    map_done(&e->by_count);
    effects_done(&e->fx);
    free(e);
}

/* --- time --- */

/* State-machine time goes 0.1 % slower than the clock. So a client that counts a lease by its own
 * clock, from when it sent the request, sees it last for its whole time, even if that clock is
 * so much slower than the leader's (SEMANTICS, clock rates). */
enum { CLOCK_MARGIN = 1000 };           /* one in so many */
enum { OP_WORK = 10, EVENT_WORK = 20 }; /* beside what its transactions cost */

static uint64_t slowed(uint64_t clock_ms)
{
    return clock_ms - clock_ms / (CLOCK_MARGIN + 1);
}

uint64_t engine_by_clock(uint64_t span_ms)
{
    return span_ms + (span_ms + CLOCK_MARGIN - 1) / CLOCK_MARGIN;
}

uint64_t engine_stamp(struct engine *e, size_t group)
{
    struct engine_group *s = &e->groups[group];
    uint64_t clock = engine_clock(e);
    uint64_t step = clock > s->clock_ms ? slowed(clock) - slowed(s->clock_ms) : 0;
    s->clock_ms = clock;
    s->now_ms += step < ENGINE_STALL_MAX_MS ? step : ENGINE_STALL_MAX_MS;
    if (!e->order->ops->leads || e->order->ops->leads(e->order, group))
        remaining_heard(&s->late, clock, s->now_ms, true);
    return s->now_ms;
}

void engine_heard(struct engine *e, size_t group, uint64_t now_ms)
{
    remaining_heard(&e->groups[group].late, engine_clock(e), now_ms, false);
}

uint64_t engine_now_ms(struct engine *e)
{
    return engine_stamp(e, 0);
}

void engine_lead(struct engine *e, size_t group, uint64_t heard_ms)
{
    struct engine_group *s = &e->groups[group];
    uint64_t last = machine_now(s->machine);
    s->now_ms = heard_ms > last ? heard_ms : last;
    s->clock_ms = engine_clock(e);
    s->tick_ms = 0;
}

/* --- asks --- */

static uint64_t hash_count(const struct engine *e, uint64_t id)
{
    uint64_t count = id & ((UINT64_C(1) << e->count_bits) - 1);
    uint64_t mixed = count * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 32; /* no two counts have the same; the table takes the low bits */
}

static bool any(struct map_node *node, const void *key)
{
    (void)node, (void)key;
    return true; /* it has the hash of that count */
}

/* 2^42 in a run; what is outstanding is passed over when they begin again. */
static uint64_t next_count(struct engine *e)
{
    do
        e->count = (e->count + 1) & OP_ASKER_COUNT;
    while (map_find(&e->by_count, hash_count(e, e->count), any, NULL));
    return e->count;
}

static bool same_id(struct map_node *node, const void *key)
{
    return map_item(node, const struct asker_slot, by_count)->ask->id == *(const uint64_t *)key;
}

struct asker_slot *engine_slot(struct engine *e, uint64_t id)
{
    struct map_node *n = map_find(&e->by_count, hash_count(e, id), same_id, &id);
    return n ? map_item(n, struct asker_slot, by_count) : NULL;
}

static struct asker_slot *free_slot(struct engine *e)
{
    uint32_t at = e->first_free;
    if (at) {
        e->first_free = e->slots[at]->next_free;
        return e->slots[at];
    }
    if (e->n_slots >= e->cap_slots) {
        e->cap_slots = e->cap_slots ? e->cap_slots * 2 : 64;
        e->slots = mem_resize(e->slots, e->cap_slots * sizeof(void *));
    }
    struct asker_slot *s = mem_zalloc(sizeof *s);
    s->at = e->n_slots++;
    e->slots[s->at] = s;
    return s;
}

static uint64_t ask_add(struct engine *e, struct ask *ask, const struct op *op)
{
    struct asker_slot *s = free_slot(e);
    s->ask = ask;
    s->asked_ms = engine_clock(e);
    s->ordered_ms = s->came_ms = 0;
    s->want_lock = op->flags & OP_WANT_LOCK;
    s->give_up_ms = 0;
    if (e->order->patience_ms)
        s->give_up_ms = s->asked_ms + op->wait_ms + e->order->patience_ms;
    s->want_holders = op->flags & OP_WANT_HOLDERS;
    ask->id = e->order->id_base | next_count(e);
    if ((op->flags & OP_NOBLOCK) && !ask->stay)
        ask->id |= OP_ASKER_LOOSE;
    map_add(&e->by_count, &s->by_count, hash_count(e, ask->id));
    return ask->id;
}

static void ask_remove(struct engine *e, struct asker_slot *s)
{
    map_remove(&e->by_count, &s->by_count);
    s->ask->id = 0;
    s->ask = NULL;
    if (s->cancel.cap <= CANCEL_KEEP_BYTES)
        buf_clear(&s->cancel); /* for the next one in this slot */
    else
        buf_done(&s->cancel);
    buf_done(&s->then);
    ending_drop(s);
    s->next_free = e->first_free;
    e->first_free = s->at;
}

static void answer(struct engine *e, size_t group, struct event *ev)
{
    struct asker_slot *s = engine_slot(e, ev->asker);
    if (!s)
        return; /* gone, or it asked another node */
    uint64_t now = engine_clock(e);
    s->came_ms = s->came_ms ? s->came_ms : now;
    if (router_hold(e, group, s, ev))
        return;
    if (ev->kind == EVENT_SESSION_ENDED && s->ending)
        ev->count += s->ending->freed;
    struct ask *ask = s->ask;
    ask->order_ms = s->ordered_ms ? s->ordered_ms - s->asked_ms : 0;
    ask->line_ms = s->ordered_ms ? s->came_ms - s->ordered_ms : 0;
    if (s->want_lock || (s->want_holders && ev->kind == EVENT_REFUSED)) {
        struct op where = {.account = ev->account, .ns = ev->ns, .name = ev->name};
        ev->locks =
            ev->name.len ? machine_lock_row(e->groups[group].machine, &where, &e->fx) : NULL;
        ev->n_rows = ev->locks != NULL;
    }
    uint64_t asked_ms = now - s->asked_ms;
    if (ev->kind == EVENT_QUEUED && ask->stay)
        s->came_ms = 0; /* its turn is still to come */
    else
        ask_remove(e, s);
    remaining_tell(&e->groups[group].late, now, asked_ms, ev);
    log_debug("engine.answer", "asker=%" PRIu64 " answer=%s group=%zu fence=%" PRIu64,
              ev->asker, event_word(ev->kind), group, ev->fence);
    ask->answer(ask, ev);
}

void engine_deliver(struct engine *e, size_t group)
{
    e->delivering = true;
    for (size_t i = 0; i < e->fx.n; i++) {
        struct event *ev = &e->fx.events[i];
        if (ev->news)
            (void)feed_append(e->feed, ev);
        else if (ev->kind == EVENT_SESSION_ENDED)
            router_count(e, group, ev);
        if (ev->asker) {
            ev->index = machine_applied(e->groups[group].machine);
            ev->group = (uint32_t)group;
            answer(e, group, ev);
        }
    }
    effects_reset(&e->fx);
    e->delivering = false;
}

/* --- ordering --- */

/* From now on it waits for its turn, if it is not answered at once. */
static void note_ordered(struct engine *e, uint64_t asker)
{
    struct asker_slot *s = asker ? engine_slot(e, asker) : NULL;
    if (!s)
        return;
    s->ordered_ms = engine_clock(e);
    s->came_ms = 0;
}

void engine_ordered(struct engine *e, size_t group, struct op *op)
{
    struct engine_group *s = &e->groups[group];
    op->index = machine_applied(s->machine) + 1;
    log_debug("engine.apply",
              "asker=%" PRIu64 " op=%s group=%zu index=%" PRIu64 " now=%" PRIu64, op->asker,
              op_word(op->kind), group, op->index, op->now_ms);
    if (op->now_ms > s->now_ms)
        s->now_ms = op->now_ms; /* stamped by another node */
    if (op->kind == OP_TICK)
        s->tick_ms = 0;
    note_ordered(e, op->asker);
    machine_apply(s->machine, op, &e->fx);
    e->work += OP_WORK + machine_txn_work(s->machine) + EVENT_WORK * e->fx.n;
    router_applied(e, group, op);
    engine_deliver(e, group);
}

uint64_t engine_work(const struct engine *e)
{
    return e->work;
}

/* What has come to its end is over for a read when that has been ordered, not before: an op
 * that was stamped earlier may still be on its way, and renew it. It would have been gone, and
 * there again. */
void engine_readable(struct engine *e, size_t group, const struct op *op)
{
    const struct machine *m = e->groups[group].machine;
    uint64_t due = machine_due(m);
    struct op as_of = *op;
    if (due > 0 && as_of.now_ms >= due)
        as_of.now_ms = due - 1;
    note_ordered(e, op->asker);
    machine_query(m, &as_of, &e->fx);
    if (group == 0)
        router_fill(e, op);
    engine_deliver(e, group);
}

void engine_give_up(struct engine *e)
{
    uint64_t clock = engine_clock(e);
    for (uint32_t i = 1; i < e->n_slots; i++) {
        const struct asker_slot *s = e->slots[i];
        if (s->ask && s->give_up_ms && s->give_up_ms <= clock)
            engine_unavailable(e, 0, s->ask->id, true, "no answer from the cluster in time");
    }
}

void engine_disown(struct engine *e)
{
    router_forget(e);
    for (uint32_t i = 1; i < e->n_slots; i++)
        if (e->slots[i]->ask)
            engine_unavailable(e, 0, e->slots[i]->ask->id, true,
                               "this node was out of reach and the cluster went on without "
                               "it; the request may have taken effect");
}

void engine_encode(const struct engine *e, size_t group, struct buf *out)
{
    machine_encode(e->groups[group].machine, out);
}

enum belay_err engine_decode(size_t n_groups, size_t group, struct slice bytes,
                             struct machine **ret_m)
{
    struct machine *m;
    enum belay_err err = machine_decode(bytes, random_key(), &m);
    if (err != BELAY_OK)
        return err;
    if (!machine_is_group(m, (unsigned)group, (unsigned)n_groups)) {
        machine_close(m);
        return BELAY_ERR_CORRUPT;
    }
    *ret_m = m;
    return BELAY_OK;
}

void engine_adopt(struct engine *e, size_t group, struct machine *m)
{
    machine_close(e->groups[group].machine);
    set_for_tests(e, m);
    e->groups[group].machine = m;
    engine_lead(e, group, 0);
    feed_gap(e->feed); /* what happened in between is not known here */
}

uint64_t engine_level(const struct engine *e, size_t group)
{
    return machine_level(e->groups[group].machine);
}

bool engine_has_waiting(const struct engine *e, size_t group, size_t place)
{
    return machine_has_waiting(e->groups[group].machine, place);
}

bool engine_is_silent(const struct engine *e, size_t group, size_t place)
{
    return machine_is_silent(e->groups[group].machine, place);
}

bool engine_is_new(const struct engine *e, size_t group)
{
    return machine_applied(e->groups[group].machine) == 0;
}

uint64_t engine_hash(const struct engine *e, size_t group)
{
    return machine_hash(e->groups[group].machine);
}

static void read_stale(struct engine *e, size_t group, struct op *op)
{
    uint64_t age_ms = 0;
    op->now_ms = engine_stamp(e, group);
    if (e->order->ops->age)
        age_ms = e->order->ops->age(e->order, group, &op->now_ms);
    machine_query(e->groups[group].machine, op, &e->fx);
    if (group == 0)
        router_fill(e, op);
    for (size_t i = 0; i < e->fx.n; i++) {
        e->fx.events[i].stale = true;
        e->fx.events[i].age_ms = age_ms;
    }
    engine_deliver(e, group);
}

static void order_op(struct engine *e, size_t group, struct op *op)
{
    if (router_keep(e, group, op))
        return;
    log_debug("engine.order", "asker=%" PRIu64 " op=%s group=%zu", op->asker, op_word(op->kind),
              group);
    if (op->flags & OP_STALE)
        read_stale(e, group, op);
    else if (op_is_read(op->kind))
        e->order->ops->read(e->order, group, op);
    else
        e->order->ops->submit(e->order, group, op);
}

#ifdef BELAY_SLOW_CHECKS
static bool is_valid(const struct op *op)
{
    const char *what;
    return op_validate(op, &what) == BELAY_OK;
}
#endif

/* The client may go before its turn comes: keep what finds its place in the line again, or the
 * session that would stay attached to nobody. `number`: what it gets has this one or a later
 * one. */
static void prepare_cancel(struct engine *e, const struct ask *ask, const struct op *op,
                           size_t group, uint64_t number)
{
    struct asker_slot *s = engine_slot(e, ask->id);
    if (!s || !op_is(op->kind, KIND_MAY_LAST))
        return;
    struct op cancel = {.kind = OP_CANCEL,
                        .target = ask->id,
                        .account = op->account,
                        .ns = op->ns,
                        .name = op->name,
                        .owner = op->owner,
                        .session = op->session,
                        .fence = number,
                        .request = op->request,
                        .more = op->more,
                        .wait_ms = op->wait_ms}; /* the order keeps it as long as the op */
    if (op->kind == OP_CONVERT)
        cancel.flags = OP_UNDO;
    if (op->kind == OP_SESSION_ATTACH)
        cancel = (struct op){.kind = OP_SESSION_DETACH,
                             .account = op->account,
                             .session = op->session,
                             .target = op->target};
    s->group = group;
    op_encode(&cancel, &s->cancel);
    BELAY_CHECK(!s->cancel.oom);
}

void engine_submit(struct engine *e, struct op *op, struct ask *ask)
{
    BELAY_CHECK(!e->delivering);
    BELAY_DCHECK(is_valid(op));
    if (!ask)
        ask = router_keeper(e, op);
    op->asker = ask ? ask_add(e, ask, op) : 0;
    size_t group = router_route(e, op);
    log_debug("engine.submit", "asker=%" PRIu64 " op=%s group=%zu ns=%s name=%s%s%s", op->asker,
              op_word(op->kind), group, log_bytes(op->ns), log_bytes(op->name),
              ask && ask->request ? " id=" : "",
              ask && ask->request ? log_bytes(slice_str(ask->request)) : "");
    uint64_t number = machine_number(e->groups[group].machine);
    order_op(e, group, op);
    if (ask && ask->id)
        prepare_cancel(e, ask, op, group, number);
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
            order_op(e, router_route(e, &op), &op);
        arena_done(&a);
    }
    buf_done(bytes);
}

static void call_off(struct engine *e, struct ask *ask, uint64_t flags)
{
    BELAY_CHECK(!e->delivering);
    struct asker_slot *s = engine_slot(e, ask->id);
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

void engine_end_wait(struct engine *e, struct ask *ask)
{
    BELAY_CHECK(!e->delivering);
    const struct asker_slot *s = engine_slot(e, ask->id);
    struct op op;
    if (!s || buf_len(&s->cancel) == 0)
        return;
    struct arena a = {0};
    struct slice bytes = arena_copy(&a, buf_slice(&s->cancel)); /* an answer frees the slot */
    enum belay_err err = op_decode(bytes, &a, &op);
    BELAY_CHECK(err == BELAY_OK);
    op.flags |= OP_END_WAIT;
    if (op.kind == OP_CANCEL)
        order_op(e, router_route(e, &op), &op);
    arena_done(&a);
}

bool engine_is_idle(const struct engine *e)
{
    return list_empty(&e->held) && (!e->order->ops->idle || e->order->ops->idle(e->order));
}

void engine_unavailable(struct engine *e, size_t group, uint64_t asker, bool perhaps,
                        const char *text)
{
    struct asker_slot *s = engine_slot(e, asker);
    if (!s)
        return;
    struct buf cancel = {0};
    if (perhaps) {
        cancel = s->cancel;
        s->cancel = (struct buf){0};
    }
    buf_done(&s->then);
    struct event *ev = effects_add(&e->fx, EVENT_FAILED);
    ev->asker = asker;
    ev->err = BELAY_ERR_UNAVAILABLE;
    ev->text = slice_str(text);
    engine_deliver(e, group);
    order_cancel(e, &cancel, OP_AWAY);
}

void engine_expects(struct engine *e, uint64_t asker)
{
    struct asker_slot *s = engine_slot(e, asker);
    if (s)
        s->expected = true;
}

static void waits_there(void *ctx, uint64_t asker)
{
    engine_expects(ctx, asker);
}

void engine_missed(struct engine *e, size_t group)
{
    machine_each_waiting(e->groups[group].machine, waits_there, e);
    for (uint32_t i = 1; i < e->n_slots; i++) {
        struct asker_slot *s = e->slots[i];
        bool lost = s->ask && s->group == group && buf_len(&s->cancel) && !buf_len(&s->then) &&
                    !s->expected;
        s->expected = false;
        if (lost)
            engine_unavailable(e, group, s->ask->id, true,
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
static uint64_t engine_group_next_ms(struct engine *e, size_t group)
{
    struct engine_group *s = &e->groups[group];
    if (e->order->ops->leads && !e->order->ops->leads(e->order, group))
        return UINT64_MAX;
    uint64_t now = engine_stamp(e, group); /* also when nothing ends: time goes on */
    uint64_t due = machine_due(s->machine);
    if (due == UINT64_MAX)
        return UINT64_MAX;
    if (s->tick_ms && s->clock_ms - s->tick_ms < TICK_PATIENCE_MS)
        return TICK_PATIENCE_MS - (s->clock_ms - s->tick_ms); /* one is on its way */
    return due > now ? engine_by_clock(due - now) : 0;
}

uint64_t engine_next_ms(struct engine *e)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < e->order->n_groups; i++) {
        uint64_t at = engine_group_next_ms(e, i);
        next = at < next ? at : next;
    }
    uint64_t post = router_next_ms(e);
    return post < next ? post : next;
}

void engine_tick(struct engine *e)
{
    for (size_t i = 0; i < e->order->n_groups; i++) {
        if (engine_group_next_ms(e, i) != 0)
            continue;
        struct engine_group *s = &e->groups[i];
        struct op tick = {.kind = OP_TICK};
        s->tick_ms = s->clock_ms ? s->clock_ms : 1;
        e->order->ops->submit(e->order, i, &tick);
    }
    engine_exchange(e);
}

const char *engine_not_ready(const struct engine *e, const char **ret_word)
{
    return e->order->ops->not_ready ? e->order->ops->not_ready(e->order, ret_word) : NULL;
}

void engine_counts(const struct engine *e, struct machine_counts *ret)
{
    *ret = (struct machine_counts){0};
    for (size_t i = 0; i < e->order->n_groups; i++) {
        struct machine_counts one;
        machine_counts(e->groups[i].machine, &one);
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

bool engine_closed(const struct engine *e)
{
    return machine_closed(e->groups[0].machine);
}

bool engine_login(struct engine *e, const struct op *op, uint64_t *ret_generation)
{
    struct token_row row;
    bool known = machine_login(e->groups[0].machine, op, &row, &e->fx);
    *ret_generation = known ? row.generation : 0;
    effects_reset(&e->fx);
    return known;
}

uint64_t engine_token_generation(const struct engine *e, struct slice account, struct slice id)
{
    return machine_token_generation(e->groups[0].machine, account, id);
}

bool engine_token(const struct engine *e, struct slice id, uint64_t generation,
                  uint64_t wall_ms, struct machine_token *ret)
{
    return machine_token(e->groups[0].machine, id, generation, wall_ms, ret);
}

size_t engine_accounts(const struct engine *e)
{
    return machine_accounts(e->groups[0].machine);
}

bool engine_account_at(const struct engine *e, size_t i, struct account_row *ret)
{
    if (!machine_account_at(e->groups[0].machine, i, ret))
        return false;
    for (size_t g = 1; g < e->order->n_groups; g++)
        machine_add_account(e->groups[g].machine, ret);
    return true;
}
