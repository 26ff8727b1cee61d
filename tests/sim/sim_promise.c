/* sim_promise.c - what clients were promised, from answers alone.
 *
 *   I1-I3  nobody is granted what does not fit beside those who must still hold: who was told
 *          so, has asked for nothing that ends it, and whose lease, counted from when it was
 *          asked for, cannot be over
 *   I4     a grant has a larger fence than every grant of that lock that was answered before it
 *          was asked for
 *   I5-I7, I11  whoever must hold is found: by release, renew, check, body, convert
 *   I8     a read shows who must hold all the time from before it was asked to its answer, and
 *          nobody who is known to be gone; the same for sessions that were closed. What a node
 *          shows is never older than what it has shown before, STALE or not */
#include "machine/machine.h"
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SLOW_CLOCK = 80
}; /* per cent of a lease that must be there: clocks differ by 4 % each way */

static bool within(const struct sim_world *w, uint64_t since_ms, uint64_t ttl_ms)
{
    return (w->now - since_ms) * 100 < ttl_ms * SLOW_CLOCK;
}

bool promise_session(const struct sim_client *c)
{
    const struct sim_session *s = &c->session;
    return s->number && s->sure && within(c->w, s->kept_ms, s->ttl_ms);
}

bool promise_hold(const struct sim_client *c, const struct sim_hold *h)
{
    if (!h->used || !h->sure || (h->ttl_ms && !within(c->w, h->since_ms, h->ttl_ms)))
        return false;
    return !h->session || (h->session == c->session.number && promise_session(c));
}

struct sim_hold *promise_slot(struct sim_client *c)
{
    for (int i = 0; i < SIM_HOLDS; i++)
        if (!c->holds[i].used)
            return &c->holds[i];
    return NULL;
}

/* --- grants --- */

static bool fit_together(const struct sim_hold *a, const struct sim_hold *b)
{
    if (a->mode == MODE_SHARED && b->mode == MODE_SHARED)
        return true;
    return a->mode == MODE_SEMAPHORE && b->mode == MODE_SEMAPHORE && a->of == b->of;
}

static void check_beside(struct sim_client *c, const struct sim_hold *mine)
{
    struct sim_world *w = c->w;
    uint64_t used = mine->permits;
    for (int i = 0; i < w->plan.clients; i++) {
        for (int k = 0; k < SIM_HOLDS; k++) {
            const struct sim_hold *h = &w->clients[i].holds[k];
            if (h == mine || h->ns != mine->ns || h->lock != mine->lock ||
                !promise_hold(&w->clients[i], h) || h->near > mine->near)
                continue;
            if (!fit_together(h, mine))
                sim_wrong(w, "I1",
                          "client %d was granted lock %d of %d (fence %" PRIu64
                          ") beside client %d (%" PRIu64 ")",
                          c->no, mine->lock, mine->ns, mine->fence, i, h->fence);
            used += h->permits;
        }
    }
    if (mine->mode == MODE_SEMAPHORE && used > mine->of)
        sim_wrong(w, "I3", "%" PRIu64 " of %" PRIu64 " permits of lock %d of %d are held", used,
                  mine->of, mine->lock, mine->ns);
}

void promise_granted(struct sim_client *c, const struct sim_hold *h, uint64_t invoked)
{
    struct sim_world *w = c->w;
    struct sim_lock *l = &w->spaces[h->ns].locks[h->lock];
    if (h->fence && h->fence <= l->acked_fence && l->acked_moment < invoked)
        sim_wrong(w, "I4", "client %d was granted fence %" PRIu64 " after %" PRIu64, c->no,
                  h->fence, l->acked_fence);
    if (h->fence > l->acked_fence) {
        l->acked_fence = h->fence;
        l->acked_moment = w->moment;
    }
    check_beside(c, h);
}

void promise_gone(struct sim_world *w, const struct sim_hold *h)
{
    struct sim_lock *l = &w->spaces[h->ns].locks[h->lock];
    if (!h->fence)
        return;
    size_t at = l->n_gone++ % SIM_GONE;
    l->gone[at].fence = h->fence;
    l->gone[at].moment = w->moment;
}

/* Somebody asks for something that may take locks away from others. */
void promise_shake(struct sim_world *w, int ns, int lock)
{
    for (int i = 0; i < w->plan.clients; i++) {
        struct sim_client *c = &w->clients[i];
        for (int k = 0; k < SIM_HOLDS; k++)
            if (c->holds[k].ns == ns && (lock < 0 || c->holds[k].lock == lock))
                c->holds[k].sure = false;
        if (c->call.ns == ns)
            c->call.shaken = true;
        if (lock < 0 && c->session.number && sim_deal_space(c) == ns) {
            c->session.bank = BANK_LOST;
            memset(c->session.gates, 0, sizeof c->session.gates);
        }
    }
}

/* It is over, or may be: so is what was taken in it. */
void promise_forget_session(struct sim_client *c)
{
    for (int i = 0; i < SIM_HOLDS; i++)
        if (c->holds[i].session && c->holds[i].session == c->session.number)
            c->holds[i].used = false;
    c->old_session = c->session.number;
    c->session = (struct sim_session){0};
}

/* --- reads --- */

static bool known_gone(const struct sim_lock *l, uint64_t fence, uint64_t invoked)
{
    size_t n = l->n_gone < SIM_GONE ? l->n_gone : SIM_GONE;
    for (size_t i = 0; i < n; i++)
        if (l->gone[i].fence == fence && l->gone[i].moment < invoked)
            return true;
    return false;
}

static const struct holder_row *row_of(const struct lock_row *row, const struct sim_hold *h)
{
    for (size_t i = 0; i < row->n_holders; i++)
        if (slice_eq(row->holders[i].owner, slice_str(h->owner)))
            return &row->holders[i];
    return NULL;
}

static uint64_t session_number(struct slice id)
{
    char text[24] = "";
    if (id.len < 2 || id.len >= sizeof text)
        return 0;
    memcpy(text, id.data + 1, id.len - 1);
    return strtoull(text, NULL, 10);
}

static bool known_closed(const struct sim_world *w, uint64_t number, uint64_t invoked)
{
    uint64_t closed = number < SIM_SESSIONS ? w->past.closed[number] : 0;
    return closed && closed < invoked;
}

/* Its session is over, perhaps, but its part of the end has not come. */
static bool may_be_left(const struct sim_world *w, const struct holder_row *h)
{
    return w->plan.batch < MACHINE_EXPIRE_BATCH && h->session.len > 0;
}

static void check_holders(struct sim_client *c, const struct lock_row *row, int ns, int lock)
{
    struct sim_world *w = c->w;
    const struct sim_lock *l = &w->spaces[ns].locks[lock];
    for (size_t i = 0; i < row->n_holders; i++) {
        const struct holder_row *h = &row->holders[i];
        if (known_gone(l, h->fence, c->call.invoked) && !may_be_left(w, h))
            sim_wrong(w, "I8", "client %d reads fence %" PRIu64 " although it was given back",
                      c->no, h->fence);
        if (h->mode == MODE_EXCLUSIVE && h->fence < l->acked_fence &&
            l->acked_moment < c->call.invoked)
            sim_wrong(w, "I8",
                      "client %d reads fence %" PRIu64 " although %" PRIu64 " was known", c->no,
                      h->fence, l->acked_fence);
        if (known_closed(w, session_number(h->session), c->call.invoked))
            sim_wrong(w, "I10", "client %d reads fence %" PRIu64 " of a closed session", c->no,
                      h->fence);
    }
}

static void check_row(struct sim_client *c, const struct lock_row *row, int ns, int lock)
{
    struct sim_world *w = c->w;
    if (row)
        check_holders(c, row, ns, lock);
    for (int i = 0; i < w->plan.clients; i++) {
        for (int k = 0; k < SIM_HOLDS; k++) {
            const struct sim_hold *h = &w->clients[i].holds[k];
            if (h->ns != ns || h->lock != lock || h->told >= c->call.invoked ||
                !promise_hold(&w->clients[i], h))
                continue;
            const struct holder_row *found = row ? row_of(row, h) : NULL;
            if (!found || (h->fence && found->fence != h->fence))
                sim_wrong(w, "I8", "client %d does not see client %d's fence %" PRIu64, c->no,
                          i, h->fence);
        }
    }
}

/* Who holds after an exclusive holder has a larger fence. */
static void check_shown(struct sim_client *c, const struct lock_row *row, uint64_t *shown)
{
    for (size_t i = 0; i < row->n_holders; i++) {
        const struct holder_row *h = &row->holders[i];
        if (h->fence < *shown)
            sim_wrong(c->w, "I8",
                      "client %d reads fence %" PRIu64 " at node %" PRIu64
                      ", which has shown %" PRIu64,
                      c->no, h->fence, c->call.node, *shown);
        else if (h->mode == MODE_EXCLUSIVE)
            *shown = h->fence;
    }
}

void promise_rows(struct sim_client *c, const struct event *ev)
{
    int ns = c->call.ns;
    struct sim_node *n = &c->w->nodes[c->call.node];
    const struct lock_row *rows[SIM_LOCKS] = {0};
    for (size_t i = 0; i < ev->n_rows; i++) {
        const struct slice *name = &ev->locks[i].name;
        int lock = name->len ? name->data[name->len - 1] - '0' : -1;
        if (lock >= 0 && lock < SIM_LOCKS)
            rows[lock] = &ev->locks[i];
    }
    for (int i = 0; i < SIM_LOCKS; i++) {
        if (rows[i])
            check_shown(c, rows[i], &n->shown[ns][i]);
        if ((c->call.kind == OP_LIST || i == c->call.lock) && !c->call.stale)
            check_row(c, rows[i], ns, i);
    }
}

void promise_check(struct sim_client *c, const struct event *ev)
{
    const struct sim_lock *l = &c->w->spaces[c->call.ns].locks[c->call.lock];
    if (ev->count && known_gone(l, c->call.fence, c->call.invoked))
        sim_wrong(c->w, "I5", "client %d: fence %" PRIu64 " is current and was given back",
                  c->no, c->call.fence);
    const struct sim_hold *h = c->call.hold >= 0 ? &c->holds[c->call.hold] : NULL;
    if (h && !ev->count && h->fence == c->call.fence && promise_hold(c, h))
        sim_wrong(c->w, "I5", "client %d: fence %" PRIu64 " is not current and must be", c->no,
                  h->fence);
    struct sim_hold over = {.ns = c->call.ns, .lock = c->call.lock, .fence = c->call.fence};
    if (!ev->count && c->call.hold >= 0)
        promise_gone(c->w, &over); /* and it stays so */
}
