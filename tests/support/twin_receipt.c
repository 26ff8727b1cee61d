/* twin_receipt.c - requests with an id, by docs/SEMANTICS.md: every one that comes for the
 * first time is written down with its asker, and whatever answers that asker is its answer. */
#include "base/check.h"
#include "machine/receipt.h"
#include "twin_state.h"

/* What it asks for, as bytes. */
static struct slice asked_by(struct twin *t, const struct op *op)
{
    struct op plain = *op;
    struct buf bytes = {0};
    plain.now_ms = plain.asker = plain.target = 0;
    plain.request = slice_of("", 0);
    plain.flags &= ~(uint64_t)(OP_NOBLOCK | OP_WANT_LOCK | OP_WANT_HOLDERS);
    if (op->kind == OP_SESSION_OPEN && !(op->flags & OP_NAMED))
        plain.session = slice_of("", 0);
    op_encode(&plain, &bytes);
    struct slice kept = twin_keep(t, buf_slice(&bytes));
    buf_done(&bytes);
    return kept;
}

static struct t_receipt *with_id(const struct twin *t, struct slice id)
{
    for (size_t i = 0; i < t->n_receipts; i++)
        if (slice_eq(t->receipts[i]->id, id))
            return t->receipts[i];
    return NULL;
}

static struct event keep_event(struct twin *t, const struct event *ev)
{
    struct event kept = *ev;
    kept.session = twin_keep(t, ev->session);
    kept.text = twin_keep(t, ev->text);
    kept.cycle = arena_alloc(&t->texts, ev->n_cycle * sizeof *kept.cycle);
    for (size_t i = 0; i < ev->n_cycle; i++)
        kept.cycle[i] = (struct cycle_step){twin_keep(t, ev->cycle[i].owner),
                                            twin_keep(t, ev->cycle[i].name)};
    return kept;
}

void twin_settle(struct twin *t, const struct effects *fx)
{
    for (size_t i = 0; i < fx->n; i++) {
        const struct event *ev = &fx->events[i];
        for (size_t k = 0; k < t->n_receipts; k++) {
            struct t_receipt *r = t->receipts[k];
            if (!ev->asker || r->answered || r->asker != ev->asker || ev->kind == EVENT_QUEUED)
                continue;
            if (ev->reason == REASON_CANCEL) { /* as if it had not been asked */
                twin_drop(t->receipts, &t->n_receipts, r);
                break;
            }
            r->answered = true;
            r->at = t->now;
            r->answer = keep_event(t, ev);
        }
    }
}

void twin_forget(struct twin *t, struct slice request)
{
    struct t_receipt *r = with_id(t, request);
    if (r && r->answered)
        twin_drop(t->receipts, &t->n_receipts, r);
}

static struct t_receipt *receipt_of(const struct twin *t, const struct t_wait *w)
{
    for (size_t i = 0; i < t->n_receipts; i++)
        if (!t->receipts[i]->answered && t->receipts[i]->asker == w->asker)
            return t->receipts[i];
    return NULL;
}

bool twin_has_receipt(const struct twin *t, const struct t_wait *w)
{
    return receipt_of(t, w) != NULL;
}

void twin_forget_wait(struct twin *t, const struct t_wait *w)
{
    struct t_receipt *r = receipt_of(t, w);
    if (r)
        twin_drop(t->receipts, &t->n_receipts, r);
}

/* The twin finds a receipt by its asker, and so it gets one that no node has. */
static const uint64_t hidden = UINT64_C(127) << OP_NODE_SHIFT;

void twin_hide(struct twin *t, struct t_wait *w)
{
    uint64_t to = hidden | ++t->n_hidden;
    for (size_t i = 0; i < t->n_receipts; i++)
        if (!t->receipts[i]->answered && t->receipts[i]->asker == w->asker)
            t->receipts[i]->asker = to;
    w->asker = to;
}

void twin_tell_nobody(struct effects *fx)
{
    for (size_t i = 0; i < fx->n; i++)
        if (fx->events[i].asker >= hidden)
            fx->events[i].asker = 0;
}

static struct t_wait *waiting(const struct twin *t, const struct t_receipt *r)
{
    for (size_t i = 0; i < t->n_waits; i++)
        if (t->waits[i]->asker == r->asker)
            return t->waits[i];
    check_failed(__FILE__, __LINE__, "what is not answered waits");
    return NULL;
}

static void repeat_grant(struct twin *t, const struct event *was, const struct op *op,
                         struct effects *fx)
{
    struct op by_fence = {.fence = was->fence};
    for (size_t i = 0; i < t->n_holds; i++) {
        struct t_hold *h = t->holds[i];
        if (!slice_eq(h->lock->name, op->name) || h->lock->space != twin_space(t, op->ns) ||
            !twin_named(&by_fence, h, t->now))
            continue;
        h->asker = 0;
        struct event *ev = twin_tell_hold(t, h, EVENT_GRANTED, fx);
        ev->news = false;
        ev->asker = op->asker;
        ev->count = h->mode == MODE_SEMAPHORE ? h->permits : 0;
        ev->text = h->lock->body;
        ev->ticket = was->ticket;
        ev->waited_ms = was->waited_ms;
        twin_tell_end(t, h, ev);
        return;
    }
    twin_failed(op, BELAY_ERR_STALE, fx);
}

static void repeat(struct twin *t, const struct t_receipt *r, const struct op *op,
                   struct effects *fx)
{
    const struct event *was = &r->answer;
    if (was->kind == EVENT_GRANTED) {
        repeat_grant(t, was, op, fx);
        return;
    }
    struct event *ev = twin_answer(t, op, was->kind, fx);
    ev->owner = op->owner;
    ev->reason = was->reason;
    ev->err = was->err;
    ev->fence = was->fence;
    ev->ticket = was->ticket;
    ev->count = was->count;
    ev->forever = was->forever;
    ev->waited_ms = was->waited_ms;
    ev->session = was->session;
    ev->text = was->text;
    ev->cycle = was->cycle;
    ev->n_cycle = was->n_cycle;
    uint64_t passed = was->kind == EVENT_SESSION_OPENED ? 0 : t->now - r->at;
    ev->expires_in_ms = was->expires_in_ms > passed ? was->expires_in_ms - passed : 0;
}

static void stand_again(struct twin *t, struct t_receipt *r, const struct op *op,
                        struct effects *fx)
{
    struct t_wait *w = waiting(t, r);
    r->asker = op->asker;
    if (twin_is_passed(t, w->asker) != twin_is_passed(t, op->asker))
        twin_touch(t, w->lock);
    if (w->away) {
        w->away = AWAY_NOT;
        w->end = r->at + op->wait_ms;
        twin_plan_look(t, w);
        twin_touch(t, w->lock);
    }
    twin_replace(t, w, op, fx);
}

void twin_once(struct twin *t, const struct op *op, struct effects *fx)
{
    struct t_receipt *r = with_id(t, op->request);
    if (r && !r->answered && twin_is_dead(t, waiting(t, r))) {
        twin_end_dead(t, waiting(t, r), fx);
        twin_settle(t, fx);
        r = with_id(t, op->request);
    }
    if (r && r->answered && r->at + RECEIPT_MS <= t->now) {
        twin_drop(t->receipts, &t->n_receipts, r);
        r = NULL;
    }
    if (!r) {
        r = twin_add(&t->receipts, &t->n_receipts, sizeof *r);
        r->id = twin_keep(t, op->request);
        r->asked = asked_by(t, op);
        r->asker = op->asker;
        r->at = t->now;
        twin_run(t, op, fx);
    } else if (!slice_eq(r->asked, asked_by(t, op))) {
        twin_failed(op, BELAY_ERR_IN_USE, fx);
    } else if (r->answered) {
        repeat(t, r, op, fx);
    } else {
        stand_again(t, r, op, fx);
    }
}
