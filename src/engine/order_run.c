/* order_run.c - runs of nodes that are over although the node itself does not say so.
 *
 *   leader: not heard for silence_ms, or no member any more --end_runs()--> record with number
 * 0 every node: that record --run_over()--> the run counts no more, its waiters leave their
 * lines the node itself, if it lives: run_look() finds its run over --begin_run()--> a new one
 *
 * A node that starts again says so with its first op, and that takes those who waited there out
 * of their lines. One that never comes back would leave them standing until their own deadline,
 * in front of everybody else. So the leader of each shard ends its run, in order like
 * everything else: no op of that run takes effect behind it. A node that was only cut off reads
 * this in the log when it is back, tells whoever waits there UNAVAILABLE, and goes on under a
 * new number. */
#include "base/check.h"
#include "base/log.h"
#include "engine/order_core.h"
#include "machine/varint.h"

#include <inttypes.h>
#include <stdlib.h>

void run_over(struct replica *r, struct origin *origin, uint64_t next, uint64_t now)
{
    origin->run = next;
    origin->applied = 0;
    struct op cancel = {
        .kind = OP_CANCEL, .now_ms = now, .target = order_id_base(origin->node, next)};
    engine_ordered(r->o->engine, r->shard, &cancel);
}

/* --- the leader --- */

static bool is_gone(const struct order_raft *o, struct group_conf *conf, uint64_t node)
{
    if (node == o->config.node)
        return false;
    return !group_conf_find(conf, node) || o->silent_ms[node] >= o->config.silence_ms;
}

static void put_over(struct replica *r, uint64_t node, uint64_t run)
{
    varint_put(&r->proposal, node);
    varint_put(&r->proposal, run);
    varint_put(&r->proposal, 0);
    varint_put_bytes(&r->proposal, slice_of("", 0));
}

bool run_is_known(struct replica *r, uint64_t node)
{
    struct origin *origin = order_origin_get(r, node);
    if (origin->run == 0 && origin->log_run == 0 && r->leads) {
        put_over(r, node, 0);
        origin->log_run = 1; /* once: it is asked again and again until it is there */
    }
    return origin->run > 0;
}

/* A run without an op has nobody in any line: nothing is said twice. */
static void end_runs(struct replica *r)
{
    struct group_conf conf;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < r->n_origins; i++) {
        struct origin *origin = &r->origins[i];
        if (origin->proposed == 0 || !is_gone(r->o, &conf, origin->node))
            continue;
        log_warn("order.node_gone", "node=%" PRIu64 " run=%" PRIu64 " shard=%u", origin->node,
                 origin->log_run, r->shard);
        put_over(r, origin->node, origin->log_run);
        origin->log_run++;
        origin->proposed = 0;
    }
}

/* Silence counts while this node leads something, for only then the others have to speak to it;
 * and a step of it is bounded, for a leader that was stopped itself has heard nobody either. */
static void count_silence(struct order_raft *o, uint64_t now)
{
    const uint64_t most = UINT64_C(2) * ORDER_LOOK_MS;
    uint64_t step = now - o->look_ms < most ? now - o->look_ms : most;
    bool leads = false;
    for (size_t i = 0; i < o->base.n_shards; i++)
        leads |= o->replicas[i].leads;
    for (size_t i = 0; i < ORIGINS_MAX; i++)
        o->silent_ms[i] = leads ? o->silent_ms[i] + step : 0;
}

/* --- the node whose run it was --- */

/* Who asked is told that it failed, and called off (engine_disown). What nobody waits for can
 * be said once more: cancels, keep-alives and the like do no harm twice. */
static void say_again(struct replica *r)
{
    struct pending *p = r->first;
    r->first = r->unsent = NULL;
    r->end = &r->first;
    r->n_pending = 0;
    r->next_number = 1;
    order_announce(r);
    while (p) {
        struct pending *next = p->next;
        if (p->asker) {
            free(p);
        } else {
            p->next = NULL;
            p->number = 0;
            *r->end = p;
            r->end = &p->next;
            r->n_pending++;
        }
        p = next;
    }
    r->unsent = r->first;
}

static void begin_run(struct order_raft *o, uint64_t run)
{
    log_warn("order.run_over",
             "run=%" PRIu64 " text=\"the cluster went on without this node, which was out of "
             "reach; whoever waited here is told so\"",
             o->run);
    o->run = run;
    o->base.id_base = order_id_base(o->config.node, run);
    store_run(o);
    for (size_t i = 0; i < o->base.n_shards; i++)
        say_again(&o->replicas[i]);
    engine_disown(o->engine);
}

void run_look(struct order_raft *o)
{
    uint64_t now = order_now(o);
    uint64_t last = 0;
    if (now - o->look_ms < ORDER_LOOK_MS)
        return;
    count_silence(o, now);
    o->look_ms = now;
    for (size_t i = 0; i < o->base.n_shards; i++) {
        struct replica *r = &o->replicas[i];
        const struct origin *self = order_origin(r, o->config.node);
        if (self && self->run > last)
            last = self->run;
        if (r->leads)
            end_runs(r);
    }
    if (last > o->run)
        begin_run(o, last + 1);
}
