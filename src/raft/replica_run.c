/* replica_run.c - runs of nodes that are over although the node itself does not say so.
 *
 *   the leader       has not heard the node for silence_ms, or it is no member any more
 *                    --end_runs()--> a record with number 0
 *   every node       that record --run_over()--> the run counts no more, its waiters leave
 *                    their lines
 *   the node itself  if it lives: run_look() finds its run over --begin_run()--> a new one
 *
 * Until then its waiters keep their places, but nothing is given to them: the leader says that
 * it does not hear the node, and later that it does, by an OP_NODE (machine/node.c). It says so
 * when the node's connection has ended, or when nothing came for ORDER_UNHEARD_MS, and only if
 * somebody waits there. What was said is part of the state: the next leader knows it, and takes
 * it back when it hears the node itself.
 *
 * A node that starts again says so with its first op, and that takes its earlier waiters out
 * of their lines. One that never comes back would leave them standing until their own deadline,
 * in front of everybody else. So the leader of each shard ends its run, in order like
 * everything else: no op of that run takes effect behind it. A node that was only cut off reads
 * this in the log when it is back, tells its waiting clients UNAVAILABLE, and goes on under a
 * new number. */
#include "base/check.h"
#include "base/log.h"
#include "machine/level.h"
#include "machine/varint.h"
#include "raft/replica_core.h"

#include <inttypes.h>
#include <stdlib.h>

void run_over(struct replica_group *r, struct origin *origin, uint64_t next, uint64_t now)
{
    BELAY_CHECK(next > origin->run && origin->node != 0);
    origin->run = next;
    origin->applied = 0;
    struct op cancel = {
        .kind = OP_CANCEL, .now_ms = now, .target = replica_id_base(origin->node, next)};
    engine_ordered(r->o->engine, r->group_no, &cancel);
}

/* --- the leader --- */

struct ahead *replica_ahead(struct replica_group *r, uint64_t node)
{
    BELAY_CHECK(place_of(node) != 0);
    struct ahead *a = &r->ahead[place_of(node)];
    if (a->node > node)
        return NULL;
    if (a->node < node)
        *a = (struct ahead){.node = node};
    return a;
}

static bool is_gone(const struct replica *o, struct group_conf *conf, uint64_t node)
{
    BELAY_CHECK(place_of(node) != 0);
    if (node == o->config.node)
        return false;
    return !group_conf_find(conf, node) || o->silent_ms[place_of(node)] >= o->config.silence_ms;
}

/* A record of the leader's own about a run of a node; without an op: that run is over. */
static void put_word(struct replica_group *r, uint64_t node, uint64_t run, struct slice op)
{
    BELAY_CHECK(r->leads && place_of(node) != 0);
    varint_put(&r->proposal, node);
    varint_put(&r->proposal, run);
    varint_put(&r->proposal, 0);
    varint_put_bytes(&r->proposal, op);
}

static void put_over(struct replica_group *r, uint64_t node, uint64_t run)
{
    put_word(r, node, run, slice_of("", 0));
}

/* Says that the node is heard or not, if that is news in this leader's log. */
static void say_heard(struct replica_group *r, struct ahead *a)
{
    BELAY_CHECK(a == &r->ahead[place_of(a->node)] || a->node == 0);
    struct replica *o = r->o;
    size_t place = place_of(a->node);
    bool silent = o->unheard[place] && a->node != o->config.node;
    if (!r->leads || a->node == 0 || silent == a->silent ||
        engine_level(o->engine, r->group_no) < LEVEL_SILENCE ||
        o->config.canaries & CANARY_GHOSTS)
        return;
    if (silent && !engine_has_waiting(o->engine, r->group_no, place))
        return; /* nobody could be given anything */
    log_info(silent ? "order.node_silent" : "order.node_heard",
             "node=%" PRIu64 " run=%" PRIu64 " shard=%u", a->node, a->run, r->group_no);
    struct op op = {.kind = OP_NODE,
                    .target = replica_id_base(a->node, a->run),
                    .flags = silent ? OP_AWAY : 0};
    buf_clear(&o->encoded);
    op_encode(&op, &o->encoded);
    BELAY_CHECK(!o->encoded.oom);
    put_word(r, a->node, a->run, buf_slice(&o->encoded));
    a->silent = silent;
}

static void say_heard_everywhere(struct replica *o, uint64_t node)
{
    BELAY_CHECK(place_of(node) != 0);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct ahead *a = &o->replicas[i].ahead[place_of(node)];
        if (a->node == node)
            say_heard(&o->replicas[i], a);
    }
}

void run_lost(struct replica *o, uint64_t node)
{
    BELAY_CHECK(o->seen[place_of(node)] == node);
    o->unheard[place_of(node)] = true;
    say_heard_everywhere(o, node);
}

void run_heard(struct replica *o, uint64_t node)
{
    BELAY_CHECK(o->seen[place_of(node)] == node);
    o->silent_ms[place_of(node)] = 0;
    if (!o->unheard[place_of(node)])
        return;
    o->unheard[place_of(node)] = false;
    say_heard_everywhere(o, node);
}

/* Its log begins with what is in the state. What an earlier leader has said of a node stays
 * true until this one hears it. That leader itself has not been heard, if this one has not been
 * handed the group over. */
void run_lead(struct replica_group *r)
{
    BELAY_CHECK(r->leads);
    struct replica *o = r->o;
    uint64_t now = replica_now(o);
    if (r->heard_from && o->seen[place_of(r->heard_from)] == r->heard_from &&
        now - r->heard_at >= o->config.election_ms)
        o->unheard[place_of(r->heard_from)] = true;
    for (size_t i = 0; i < NODE_PLACES; i++) {
        const struct origin *origin = &r->origins[i];
        struct ahead *a = &r->ahead[i];
        bool silent = origin->node && engine_is_silent(o->engine, r->group_no, i);
        *a = (struct ahead){origin->node, origin->run, origin->applied, origin->start, silent};
        if (silent && now - replica_standing(o, a->node)->heard_ms >= ORDER_UNHEARD_MS)
            o->unheard[i] = true;
        say_heard(r, a);
    }
}

void run_word(struct replica_group *r, struct origin *origin, struct slice word, uint64_t now)
{
    BELAY_CHECK(origin->node != 0);
    struct replica *o = r->o;
    struct op op;
    if (word.len == 0) {
        run_over(r, origin, origin->run + 1, now);
        return;
    }
    enum belay_err err = op_decode(word, &o->arena, &op);
    BELAY_CHECK(err == BELAY_OK && op.kind == OP_NODE);
    op.now_ms = now;
    engine_ordered(o->engine, r->group_no, &op);
    arena_reset(&o->arena);
}

bool run_is_known(struct replica_group *r, uint64_t node)
{
    BELAY_CHECK(place_of(node) != 0);
    const struct origin *origin = replica_origin(r, node);
    struct ahead *a = replica_ahead(r, node);
    if (a && a->run == 0 && r->leads) {
        put_over(r, node, 0);
        a->run = 1; /* once: it is asked again and again until it is there */
    }
    return origin && origin->run > 0;
}

/* A run without an op has nobody in any line: nothing is said twice. */
static void end_runs(struct replica_group *r)
{
    BELAY_CHECK(r->leads);
    struct group_conf conf;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < NODE_PLACES; i++) {
        struct ahead *a = &r->ahead[i];
        if (a->proposed == 0 || !is_gone(r->o, &conf, a->node))
            continue;
        log_warn("order.node_gone", "node=%" PRIu64 " run=%" PRIu64 " shard=%u", a->node,
                 a->run, r->group_no);
        put_over(r, a->node, a->run);
        a->run++;
        a->proposed = 0;
        a->silent = false;
    }
}

/* Silence counts while this node leads something, for only then the others have to speak to it;
 * and a step of it is bounded, for a leader that was stopped itself has heard nobody either. */
static void count_silence(struct replica *o, uint64_t now)
{
    BELAY_CHECK(now >= o->look_ms);
    const uint64_t most = UINT64_C(2) * ORDER_LOOK_MS;
    uint64_t step = now - o->look_ms < most ? now - o->look_ms : most;
    bool leads = false;
    for (size_t i = 0; i < o->base.n_groups; i++)
        leads |= o->replicas[i].leads;
    for (size_t i = 0; i < NODE_PLACES; i++) {
        o->silent_ms[i] = leads ? o->silent_ms[i] + step : 0;
        o->unheard[i] |= o->silent_ms[i] >= ORDER_UNHEARD_MS;
    }
}

/* --- the node that the run belonged to --- */

/* Clients that asked are told that it failed, and called off (engine_disown). Ops that nobody
 * waits for can be said once more: cancels, keep-alives and the like do no harm twice. But not the
 * start of the run that is over: behind that of the new one it would be taken for the newest. */
static void say_again(struct replica_group *r)
{
    BELAY_CHECK((r->first == NULL) == (r->n_pending == 0));
    struct pending_op *p = r->first;
    r->first = r->unsent = NULL;
    r->end = &r->first;
    r->n_pending = 0;
    r->next_number = 1;
    replica_announce(r);
    while (p) {
        struct pending_op *next = p->next;
        if (p->asker || p->announces) {
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
    BELAY_CHECK(r->unsent && r->n_pending > 0);
}

static void begin_run(struct replica *o, uint64_t run)
{
    BELAY_CHECK(run > o->run);
    log_warn("order.run_over",
             "run=%" PRIu64 " text=\"the cluster went on without this node, which was out of "
             "reach; clients that waited here get UNAVAILABLE\"",
             o->run);
    replica_set_run(o, run);
    store_run(o);
    for (size_t i = 0; i < o->base.n_groups; i++)
        say_again(&o->replicas[i]);
    engine_disown(o->engine);
}

void run_look(struct replica *o)
{
    BELAY_CHECK(o->opened && replica_now(o) >= o->look_ms);
    uint64_t now = replica_now(o);
    uint64_t last = 0;
    if (now - o->look_ms < ORDER_LOOK_MS)
        return;
    count_silence(o, now);
    o->look_ms = now;
    start_look(o);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        const struct origin *self = replica_origin(r, o->config.node);
        if (self && self->run > last)
            last = self->run;
        if (!r->leads)
            continue;
        end_runs(r);
        for (size_t k = 0; k < NODE_PLACES; k++)
            say_heard(r, &r->ahead[k]);
    }
    if (last > o->run)
        begin_run(o, last + 1);
}
