/* cancel.c - requests whose asker is gone: what waits leaves its line, what was granted is
 * freed. */
#include "machine/cancel.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/holders.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/sound.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

bool cancel_is_for(const struct machine *m, const struct op *cancel, uint64_t asker)
{
    /* One without a fence was written by an older version: there the whole number counts. */
    uint64_t mask = cancel->fence ? m->asker_mask : UINT64_MAX;
    return asker && ((asker ^ cancel->target) & mask) == 0;
}

/* A cancel names what was asked for: the lock, owner and session, and with `fence` the first
 * number that had not been given yet. So it never means what its owner was told of before, not
 * even if the asker's number came again. Older versions named the lock and the number alone. */
static bool cancels_owner(const struct machine *m, const struct op *op, struct who who)
{
    BELAY_DCHECK(who.owner.len > 0);
    if (who.session && who.session->ending != REASON_NONE)
        return false; /* it goes with its session */
    if (op->fence == 0 || m->by_number)
        return true;
    if (op->owner.len && !slice_eq(op->owner, who.owner))
        return false;
    /* CONVERT finds a hold by its fence; a session that it names is only kept. */
    bool any_session = op->flags & OP_UNDO;
    return any_session || slice_eq(op->session, session_id(who.session));
}

/* The number of an asker that does not stay is forgotten once the asker was told "queued": a
 * number that came again could be that of an earlier place. An asker that stays is known as long
 * as its wait. */
static bool cancels_wait(const struct machine *m, const struct op *op, const struct wait *w)
{
    if (!cancel_is_for(m, op, w->asker) ||
        !cancels_owner(m, op, (struct who){wait_owner(w), w->session}))
        return false;
    bool forgotten = w->asker & OP_ASKER_LOOSE && w->end.seq < op->fence;
    return m->by_number || !forgotten;
}

static bool cancels_hold(const struct machine *m, const struct op *op, const struct hold *h)
{
    return cancel_is_for(m, op, h->asker) &&
           cancels_owner(m, op, (struct who){hold_owner(h), h->session}) &&
           (hold_fence(h) >= op->fence || m->by_number);
}

static void end_called_off(struct machine *m, struct wait *w, const struct op *op,
                           struct effects *fx)
{
    BELAY_DCHECK(wait_is_linked(w));
    BELAY_CHECK(w->asker && cancels_wait(m, op, w)); /* nobody else's wait ends (I33) */
    if (op->flags & OP_END_WAIT) {
        wait_end(m, w, EVENT_TIMEOUT, REASON_CANCEL, fx);
    } else if (op->flags & OP_AWAY && w->receipt) {
        wait_away(m, w, m->now_ms);
        if (op->fence)
            wait_set_asker(m, w, 0); /* it is known by its id alone */
    } else {
        wait_end(m, w, EVENT_LEFT, REASON_CANCEL, fx);
    }
}

static void free_called_off(struct machine *m, struct hold *h, const struct op *op,
                            struct effects *fx)
{
    BELAY_DCHECK(hold_is_linked(h));
    BELAY_CHECK(h->asker && cancels_hold(m, op, h)); /* nobody else's hold is freed (I33) */
    if (op->flags & OP_END_WAIT || (op->flags & OP_AWAY && op->request.len))
        return; /* it was granted in that moment: it stays, or may be fetched */
    if (op->flags & OP_UNDO)
        request_undo_upgrade(m, h, fx);
    else
        hold_end(m, h, EVENT_RELEASED, REASON_CANCEL, fx);
    receipt_cancel(m, op);
}

/* The owner of an ACQUIRE has one place here, which is looked up. The owner of a CONVERT waits at
 * the head, or got what it asked for, and then nobody else holds the lock. */
static void cancel_named(struct machine *m, struct lock *l, const struct op *op,
                         struct effects *fx)
{
    struct wait *w = NULL;
    struct hold *h = NULL;
    bool waits = l->more && l->more->n_waits;
    const struct session *session =
        op->session.len ? session_find(m, op->account, op->session) : NULL;
    struct who who = {op->owner, session};
    BELAY_DCHECK(lock_is_sound(l));
    if (op->flags & OP_UNDO) {
        w = waits ? list_item(l->more->waits.next, struct wait, in_lock) : NULL;
        h = l->n_holds == 1 ? list_item(l->holds.next, struct hold, in_lock) : NULL;
    } else if (session || op->session.len == 0) {
        w = waits ? wait_of(m, l, who) : NULL;
        h = holder_by_who(m, l, who);
    }
    BELAY_CHECK(!w || w->lock == l);
    BELAY_CHECK(!h || h->lock == l);
    if (w && cancels_wait(m, op, w))
        end_called_off(m, w, op, fx);
    else if (h && cancels_hold(m, op, h))
        free_called_off(m, h, op, fx);
}

/* By its number alone, as older versions did. */
static void cancel_numbered(struct machine *m, struct lock *l, const struct op *op,
                            struct effects *fx)
{
    BELAY_DCHECK(op->fence == 0 || m->by_number);
    if (l->more) {
        list_each (it, &l->more->waits) {
            struct wait *w = list_item(it, struct wait, in_lock);
            if (cancels_wait(m, op, w)) {
                end_called_off(m, w, op, fx);
                return;
            }
        }
    }
    list_each (it, &l->holds) {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (cancels_hold(m, op, h)) {
            free_called_off(m, h, op, fx);
            return;
        }
    }
}

/* Whose wait is it, if it is one? */
static uint64_t waiting_asker(struct heap_node *end)
{
    BELAY_DCHECK(end->pos != 0 && end->tag <= END_PARKED);
    if (end->tag == END_WAIT)
        return heap_item(end, struct wait, end)->asker;
    return end->tag == END_PARKED ? heap_item(end, struct parked, end)->asker : 0;
}

void machine_each_waiting(const struct machine *m, void (*each)(void *ctx, uint64_t asker),
                          void *ctx)
{
    for (size_t i = 0; i < m->ends.count; i++) {
        uint64_t asker = waiting_asker(m->ends.slots[i]);
        if (asker)
            each(ctx, asker);
    }
}

/* Of the same node as `live`, but of another of its runs? */
static bool of_dead_run(uint64_t id, uint64_t live)
{
    return id && id >> OP_NODE_SHIFT == live >> OP_NODE_SHIFT &&
           id >> OP_RUN_SHIFT != live >> OP_RUN_SHIFT;
}

/* Called off, or it may come back if it has a request id. */
static void cancel_wait(struct machine *m, struct wait *w, uint64_t since_ms,
                        struct effects *fx)
{
    if (w->receipt && since_ms + RECEIPT_RETURN_MS > m->now_ms) {
        wait_away(m, w, since_ms);
        return;
    }
    /* Nobody is answered: a node that lives tells its own clients why. */
    wait_set_asker(m, w, 0);
    BELAY_CHECK(w->asker == 0);
    wait_end(m, w, EVENT_LEFT, REASON_CANCEL, fx);
}

static void cancel_parked(struct machine *m, struct parked *p, uint64_t since_ms)
{
    BELAY_DCHECK(since_ms <= m->now_ms);
    if (p->receipt && since_ms + RECEIPT_RETURN_MS > m->now_ms)
        parked_away(m, p, since_ms);
    else
        parked_remove(m, p);
}

/* A node's earlier runs are over: the clients that waited there are gone, and so are the
 * connections that sessions were attached to. What they hold stays, because the answer may have
 * reached them. A session lives for the rest of its TTL: its client may attach it elsewhere.
 * Requests with an id have had time to come back since the node fell silent. By ticket, for the
 * heap has no order of its own. */
static void cancel_runs(struct machine *m, uint64_t live, struct effects *fx)
{
    size_t n = 0;
    struct node *node = &m->nodes[op_node(live)];
    uint64_t since_ms = node->silent ? node->silent_ms : m->now_ms;
    struct heap_node **gone = mem_alloc(m->ends.count * sizeof(struct heap_node *));
    for (size_t i = 0; i < m->ends.count; i++) {
        struct heap_node *end = m->ends.slots[i];
        struct session *s =
            end->tag == END_SESSION ? heap_item(end, struct session, end) : NULL;
        if (s && of_dead_run(s->target, live))
            s->target = 0;
        if (of_dead_run(waiting_asker(end), live))
            gone[n++] = end;
    }
    BELAY_CHECK(n <= m->ends.count);
    qsort(gone, n, sizeof(struct heap_node *), node_by_ticket);
    for (size_t i = 1; i < n; i++)
        BELAY_CHECK(gone[i - 1]->seq < gone[i]->seq); /* before the first is freed */
    for (size_t i = 0; i < n; i++) {
        if (gone[i]->tag == END_WAIT)
            cancel_wait(m, heap_item(gone[i], struct wait, end), since_ms, fx);
        else
            cancel_parked(m, heap_item(gone[i], struct parked, end), since_ms);
    }
    free(gone);
    node_is_back(m, node);
}

void cancel_request(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_CANCEL);
    if (op->name.len == 0 && op->session.len == 0) {
        cancel_runs(m, op->target, fx);
        return;
    }
    struct space *s = space_find(m, op->account, op->ns);
    if (op->name.len == 0) {
        parked_cancel(m, op, fx);
        return;
    }
    for (size_t i = 0; s && i <= op->more.n; i++) {
        struct lock *l = lock_find(m, s, request_name(op, i));
        if (l && op->fence && !m->by_number)
            cancel_named(m, l, op, fx);
        else if (l)
            cancel_numbered(m, l, op, fx);
    }
}
