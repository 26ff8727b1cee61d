/* sim_client.c - clients that remember what they were told and do not accept a contradiction.
 *
 * Rules, from answers alone (moments order them):
 *   I4   a grant has a larger fence than every grant of that lock that was answered before it
 * was asked I1   nobody is granted a lock that somebody was told to hold, has not given back,
 * and whose lease, counted from when it was asked for, cannot be over I5/7/11  such a holder's
 * release by fence frees it: the lease did not end early, the grant was not repeated behind its
 * back, nothing that was acknowledged is lost I8   a read shows no holder that was known to be
 * gone or replaced before the read began, and shows one that is known to hold all the time from
 * before it to after it */
#include "sim.h"

#include "machine/event.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    SLOW_CLOCK = 80
}; /* per cent of a lease that must be there: clocks differ by 4 % each way */

static bool must_hold(const struct sim_client *c)
{
    return c->held >= 0 && (c->w->now - c->granted_ms) * 100 < c->ttl_ms * SLOW_CLOCK;
}

static void idle(struct sim_client *c, uint64_t in_ms)
{
    c->doing = CL_IDLE;
    c->nonce++;
    struct sim_event *ev = sim_post(c->w, in_ms, EV_CLIENT, 0);
    ev->from = (uint64_t)c->no;
    ev->life = c->nonce;
}

static uint64_t think(struct sim_world *w)
{
    return w->plan.herd ? sim_random(w, 20) : 20 + sim_random(w, 300);
}

static void granted(struct sim_client *c, const struct event *ev)
{
    struct sim_world *w = c->w;
    struct sim_lock *l = &w->locks[c->lock];
    if (ev->fence <= l->acked_fence && l->acked_moment < c->invoked)
        sim_wrong(w, "I4", "client %d was granted fence %" PRIu64 " after %" PRIu64, c->no,
                  ev->fence, l->acked_fence);
    for (int i = 0; i < w->plan.clients; i++) {
        const struct sim_client *o = &w->clients[i];
        bool giving = o->doing == CL_RELEASE;
        if (o != c && o->held == c->lock && !giving && o->fence < ev->fence && must_hold(o))
            sim_wrong(w, "I1",
                      "client %d was granted lock %d (fence %" PRIu64 ") of client %d (%" PRIu64
                      ")",
                      c->no, c->lock, ev->fence, i, o->fence);
    }
    if (ev->fence > l->acked_fence) {
        l->acked_fence = ev->fence;
        l->acked_moment = w->moment;
    }
    c->held = c->lock;
    c->fence = ev->fence;
    c->granted_ms =
        c->invoked_ms; /* a lease begins when it is ordered: not before it was asked */
}

static void released(struct sim_client *c, const struct event *ev)
{
    struct sim_world *w = c->w;
    struct sim_lock *l = &w->locks[c->lock];
    if (ev->count == 0 && must_hold(c))
        sim_wrong(w, "I5",
                  "client %d lost lock %d (fence %" PRIu64 ") after %" PRIu64 " of %" PRIu64
                  " ms",
                  c->no, c->lock, c->fence, w->now - c->granted_ms, c->ttl_ms);
    if (c->fence > l->gone_fence) {
        l->gone_fence = c->fence;
        l->gone_moment = w->moment;
    }
    c->held = -1;
}

static void seen(struct sim_client *c, const struct event *ev)
{
    struct sim_world *w = c->w;
    const struct sim_lock *l = &w->locks[c->lock];
    uint64_t fence = 0;
    w->n_reads++;
    if (ev->n_rows == 1 && ev->locks[0].n_holders > 0)
        fence = ev->locks[0].holders[0].fence;
    if (fence && fence < l->acked_fence && l->acked_moment < c->invoked)
        sim_wrong(w, "I8", "client %d reads fence %" PRIu64 " although %" PRIu64 " was known",
                  c->no, fence, l->acked_fence);
    if (fence && fence <= l->gone_fence && l->gone_moment < c->invoked)
        sim_wrong(w, "I8", "client %d reads fence %" PRIu64 " although it was released", c->no,
                  fence);
    for (int i = 0; i < w->plan.clients; i++) {
        const struct sim_client *o = &w->clients[i];
        bool held = o->held == c->lock && o->doing != CL_RELEASE && must_hold(o) &&
                    o->fence == l->acked_fence && l->acked_moment < c->invoked;
        if (held && fence != o->fence)
            sim_wrong(w, "I8",
                      "client %d does not see client %d's fence %" PRIu64 " but %" PRIu64,
                      c->no, i, o->fence, fence);
    }
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct sim_client *c =
        (struct sim_client *)(void *)((char *)ask - offsetof(struct sim_client, ask));
    struct sim_world *w = c->w;
    w->moment++;
    w->n_acked += ev->kind != EVENT_FAILED;
    bool unknown = ev->kind == EVENT_FAILED;
    w->n_unknown += unknown;
    switch (c->doing) {
    case CL_ACQUIRE:
        if (ev->kind == EVENT_GRANTED)
            granted(c, ev);
        break;
    case CL_RELEASE:
        if (!unknown)
            released(c, ev);
        else
            c->held = -1; /* it may be gone or not: nothing is promised any more */
        break;
    case CL_READ:
        if (!unknown)
            seen(c, ev);
        break;
    case CL_OTHER:
        if (!unknown && ev->kind == EVENT_RENEWED)
            c->granted_ms = c->invoked_ms;
        break;
    case CL_IDLE:
        sim_wrong(w, "answer", "client %d is answered twice", c->no);
        break;
    }
    if (!w->wrong)
        idle(c, think(w));
}

/* The node is gone, and with it the answer. What it held goes on until its lease is over, but
 * this client starts a new life and promises nothing about it. */
void sim_client_lost(struct sim_world *w, uint64_t node)
{
    for (int i = 0; i < w->plan.clients; i++) {
        struct sim_client *c = &w->clients[i];
        if (c->doing == CL_IDLE || c->node != node)
            continue;
        w->n_unknown++;
        if (c->doing == CL_RELEASE || c->doing == CL_OTHER)
            c->held = -1;
        c->ask.id = 0;
        idle(c, 50 + sim_random(w, 500));
    }
}

static struct sim_node *pick_node(struct sim_world *w)
{
    for (int tries = 0; tries < 8; tries++) {
        struct sim_node *n = &w->nodes[1 + sim_random(w, SIM_NODES)];
        if (n->order && n->member && n->paused_until <= w->now)
            return n;
    }
    return NULL;
}

static void start_acquire(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    c->doing = CL_ACQUIRE;
    c->lock = (int)sim_random(w, SIM_LOCKS);
    snprintf(c->owner, sizeof c->owner, "c%d-%" PRIu64, c->no, c->nonce);
    c->ttl_ms = 200 + sim_random(w, 20000);
    op->kind = OP_ACQUIRE;
    op->mode = MODE_EXCLUSIVE;
    op->ttl_ms = c->ttl_ms;
    op->wait_ms = sim_chance(w, 60) ? sim_random(w, 5000) : 0;
    op->owner = slice_str(c->owner);
}

static void start_with_lock(struct sim_client *c, struct op *op)
{
    c->lock = c->held;
    op->fence = c->fence;
    if (sim_chance(c->w, 15)) {
        c->doing = CL_OTHER;
        op->kind = OP_RENEW;
    } else {
        c->doing = CL_RELEASE;
        op->kind = OP_RELEASE;
    }
}

void sim_client_act(struct sim_world *w, int no)
{
    struct sim_client *c = &w->clients[no];
    struct sim_node *n = pick_node(w);
    if (!n) {
        idle(c, 100);
        return;
    }
    struct op op = {.account = SLICE("default"), .ns = SLICE("default")};
    char name[16];
    w->moment++;
    c->invoked = w->moment;
    c->invoked_ms = w->now;
    if (sim_chance(w, 30)) {
        c->doing = CL_READ;
        c->lock = (int)sim_random(w, SIM_LOCKS);
        op.kind = OP_SHOW;
    } else if (c->held >= 0) {
        start_with_lock(c, &op);
    } else {
        start_acquire(c, &op);
    }
    snprintf(name, sizeof name, "lock-%d", c->lock);
    op.name = slice_str(name);
    c->node = n->id;
    c->ask = (struct ask){.answer = on_answer};
    engine_submit(n->engine, &op, &c->ask);
    sim_node_settle(w, n);
}

bool sim_clients_done(const struct sim_world *w)
{
    for (int i = 0; i < w->plan.clients; i++)
        if (w->clients[i].doing != CL_IDLE)
            return false;
    return true;
}
