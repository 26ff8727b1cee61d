/* sim_again.c - requests with an id: asked again when nobody knows what became of them.
 *
 * A client whose node died, or said that it cannot tell, asks another one for the same thing
 * under the same id, soon or when its place in a line is gone; and some ask again although they
 * were answered. I30: it takes effect once, and they hear the same. What was asked is one call
 * to the client, from the first time on: what it believes must hold either way. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

enum { TIMES_MAX = 5 };

static bool may_have_id(const struct op *op)
{
    const char *what;
    struct op named = *op;
    named.request = SLICE("r");
    return op_validate(&named, &what) == BELAY_OK && !(op->flags & OP_NOBLOCK);
}

void sim_again_name(struct sim_client *c, struct op *op)
{
    if (!(c->w->plan.habits & HABIT_AGAIN) || !may_have_id(op) || !sim_chance(c->w, 70))
        return;
    snprintf(c->words.request, sizeof c->words.request, "r%d-%" PRIu64, c->no, c->nonce);
    op->request = slice_str(c->words.request);
}

/* Mostly soon; some so late that their place in the line may be gone. */
static void come_back(struct sim_client *c)
{
    struct sim_world *w = c->w;
    uint64_t in_ms = sim_chance(w, 80) ? 20 + sim_random(w, 1500) : 4000 + sim_random(w, 3000);
    c->call.back = true;
    c->call.node = c->call.asker = 0;
    c->ask.id = 0;
    sim_client_wake(c, in_ms);
}

bool sim_again_lost(struct sim_client *c)
{
    if (!c->op.request.len || c->call.times >= TIMES_MAX || sim_chance(c->w, 10))
        return false;
    come_back(c);
    return true;
}

bool sim_again_told(struct sim_client *c, const struct event *ev)
{
    bool called_off = ev->kind == EVENT_LEFT && ev->reason == REASON_CANCEL;
    if (!c->op.request.len || called_off || !sim_chance(c->w, 20))
        return false;
    c->call.told = true;
    c->call.heard =
        (struct sim_heard){ev->kind, ev->err, ev->reason, ev->status, ev->fence, ev->count};
    come_back(c);
    return true;
}

/* Whoever was granted a lock hears the same, or that it is over: then it must not hold it. */
static bool grant_is_over(const struct sim_client *c, const struct event *ev)
{
    if (ev->kind != EVENT_FAILED || ev->err != BELAY_ERR_STALE)
        return false;
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *h = &c->holds[i];
        if (h->ns == c->call.ns && h->lock == c->call.lock && h->fence == c->call.heard.fence &&
            promise_hold(c, h))
            return false;
    }
    return true;
}

void sim_again_heard(struct sim_client *c, const struct event *ev)
{
    const struct sim_heard *was = &c->call.heard;
    /* With several groups, what the others have freed is told once. */
    bool counts = was->kind != EVENT_SESSION_ENDED || c->w->plan.groups == 1;
    bool same = ev->kind == was->kind && ev->err == was->err && ev->reason == was->reason &&
                ev->status == was->status && ev->fence == was->fence &&
                (ev->count == was->count || !counts);
    if (!same && !(was->kind == EVENT_GRANTED && grant_is_over(c, ev)))
        sim_wrong(c->w, "I30",
                  "client %d asked again (%s, %s) and heard %d (%d, fence %" PRIu64
                  ", count %" PRIu64 ") after %d (%d, fence %" PRIu64 ", count %" PRIu64 ")",
                  c->no, op_word(c->call.kind), c->words.request, (int)ev->kind, (int)ev->err,
                  ev->fence, ev->count, (int)was->kind, (int)was->err, was->fence, was->count);
}
