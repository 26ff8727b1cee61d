/* text_event.c - an event as text. */
#include "text_format.h"

#define N(v) ((unsigned long long)(v))

static void put_rows(struct buf *out, const struct event *ev);

/* The event's facts that are not zero, in a fixed order. */
static void put_facts(struct buf *out, const struct event *ev)
{
    if (ev->owner.len)
        buf_put_str(out, " "), text_put_text(out, ev->owner);
    if (ev->fence)
        buf_printf(out, " #%llu", N(ev->fence));
    if (ev->reason != REASON_NONE)
        buf_printf(out, " %s", reason_word(ev->reason));
    if (ev->err != BELAY_OK)
        buf_printf(out, " %s", err_word(ev->err));
    if (ev->ticket)
        buf_printf(out, " ticket=%llu", N(ev->ticket));
    if (ev->position)
        buf_printf(out, " place=%llu", N(ev->position));
    bool is_one_hold = ev->fence && ev->count == 1 && ev->reason != REASON_NONE;
    if (ev->count && !is_one_hold)
        buf_printf(out, " n=%llu", N(ev->count));
    if (ev->expires_in_ms)
        buf_printf(out, " %llums", N(ev->expires_in_ms));
    if (ev->forever)
        buf_put_str(out, " forever");
    if (ev->waited_ms)
        buf_printf(out, " waited=%llu", N(ev->waited_ms));
    if (ev->session.len)
        buf_put_str(out, " in="), text_put_text(out, ev->session);
    if (ev->text.len && ev->kind != EVENT_FAILED)
        buf_put_str(out, " \""), text_put_text(out, ev->text), buf_put_str(out, "\"");
    if (ev->by.len)
        buf_put_str(out, " by="), text_put_text(out, ev->by);
    for (size_t i = 0; i < ev->n_cycle; i++) {
        buf_put_str(out, i ? " " : " (");
        text_put_text(out, ev->cycle[i].owner);
        buf_put_str(out, ":");
        text_put_text(out, ev->cycle[i].name);
        buf_put_str(out, i + 1 == ev->n_cycle ? ")" : "");
    }
}

void text_put_event(struct buf *out, const struct op *op, const struct event *ev)
{
    bool only_news = ev->asker == 0;
    buf_put_str(out, only_news ? "(" : "");
    buf_put_str(out, event_word(ev->kind));
    put_facts(out, ev);
    if (ev->name.len && !slice_eq(ev->name, op->name))
        buf_put_str(out, " on "), text_put_text(out, ev->name);
    if (ev->kind == EVENT_ROWS)
        put_rows(out, ev);
    if (ev->kind == EVENT_TXN)
        text_put_txn(out, ev);
    if (!only_news && ev->asker != op->asker)
        buf_printf(out, " @%llu", N(ev->asker));
    buf_put_str(out, only_news ? ")" : "");
}

static void put_lock(struct buf *out, const struct lock_row *l)
{
    buf_put_str(out, " ["), text_put_text(out, l->name);
    buf_printf(out, " %s", lock_state_word(l->state));
    if (l->of)
        buf_printf(out, " of=%llu", N(l->of));
    if (l->closed_ms)
        buf_printf(out, " closed=%llu", N(l->closed_ms));
    if (l->body.len)
        buf_put_str(out, " \""), text_put_text(out, l->body), buf_put_str(out, "\"");
    for (size_t i = 0; i < l->n_holders; i++) {
        const struct holder_row *h = &l->holders[i];
        buf_put_str(out, " "), text_put_text(out, h->owner);
        if (h->session.len)
            buf_put_str(out, "/"), text_put_text(out, h->session);
        buf_printf(out, "#%llu:%s", N(h->fence), lock_mode_word(h->mode));
        if (h->permits > 1)
            buf_printf(out, "*%llu", N(h->permits));
        buf_printf(out, " held=%llu", N(h->held_ms));
        if (h->forever)
            buf_put_str(out, " forever");
        else
            buf_printf(out, " left=%llu", N(h->expires_in_ms));
        buf_put_str(out, h->overdue ? " overdue" : "");
    }
    for (size_t i = 0; i < l->n_waiters; i++) {
        const struct waiter_row *w = &l->waiters[i];
        buf_printf(out, " %llu.", N(w->position)), text_put_text(out, w->owner);
        if (w->session.len)
            buf_put_str(out, "/"), text_put_text(out, w->session);
        buf_printf(out, "@%llu:%s", N(w->ticket), lock_mode_word(w->mode));
        if (w->permits > 1)
            buf_printf(out, "*%llu", N(w->permits));
        buf_printf(out, " waited=%llu left=%llu", N(w->waited_ms), N(w->expires_in_ms));
    }
    if (l->holders_total != l->n_holders || l->waiters_total != l->n_waiters)
        buf_printf(out, " of %llu holders, %llu waiters", N(l->holders_total),
                   N(l->waiters_total));
    buf_put_str(out, "]");
}

static void put_rows(struct buf *out, const struct event *ev)
{
    for (size_t i = 0; ev->locks && i < ev->n_rows; i++)
        put_lock(out, &ev->locks[i]);
    for (size_t i = 0; ev->sessions && i < ev->n_rows; i++) {
        const struct session_row *s = &ev->sessions[i];
        buf_put_str(out, " ["), text_put_text(out, s->id);
        if (s->description.len)
            buf_put_str(out, " \""), text_put_text(out, s->description), buf_put_str(out, "\"");
        buf_printf(out, " ttl=%llu linger=%llu left=%llu holds=%llu waits=%llu%s]",
                   N(s->ttl_ms), N(s->linger_ms), N(s->expires_in_ms), N(s->holds), N(s->waits),
                   s->attached ? " attached" : "");
    }
    for (size_t i = 0; ev->namespaces && i < ev->n_rows; i++) {
        const struct namespace_row *r = &ev->namespaces[i];
        buf_put_str(out, " ["), text_put_text(out, r->name);
        if (r->description.len)
            buf_put_str(out, " \""), text_put_text(out, r->description), buf_put_str(out, "\"");
        buf_printf(out, " created=%llu updated=%llu locks=%llu held=%llu waiting=%llu]",
                   N(r->created_ms), N(r->updated_ms), N(r->locks), N(r->held), N(r->waiting));
    }
    text_put_tables(out, ev);
    if (ev->more)
        buf_put_str(out, " more");
}

void text_put_event_fully(struct buf *out, const struct event *ev)
{
    buf_put_str(out, event_word(ev->kind));
    put_facts(out, ev);
    buf_printf(out, " asker=%llu%s at=%llu mode=%s", N(ev->asker), ev->news ? " news" : "",
               N(ev->at_ms), lock_mode_word(ev->mode));
    buf_put_str(out, " "), text_put_text(out, ev->account);
    buf_put_str(out, "/"), text_put_text(out, ev->ns);
    buf_put_str(out, "/"), text_put_text(out, ev->name);
    if (ev->kind == EVENT_FAILED)
        buf_put_str(out, ": "), text_put_text(out, ev->text);
    put_rows(out, ev);
}

static bool same_holder(const struct holder_row *a, const struct holder_row *b)
{
    return slice_eq(a->owner, b->owner) && slice_eq(a->session, b->session) &&
           a->mode == b->mode && a->fence == b->fence && a->permits == b->permits &&
           a->held_ms == b->held_ms && a->expires_in_ms == b->expires_in_ms &&
           a->forever == b->forever && a->overdue == b->overdue;
}

static bool same_waiter(const struct waiter_row *a, const struct waiter_row *b)
{
    return slice_eq(a->owner, b->owner) && slice_eq(a->session, b->session) &&
           a->mode == b->mode && a->ticket == b->ticket && a->position == b->position &&
           a->permits == b->permits && a->waited_ms == b->waited_ms &&
           a->expires_in_ms == b->expires_in_ms;
}

static bool same_lock(const struct lock_row *a, const struct lock_row *b)
{
    if (!slice_eq(a->name, b->name) || !slice_eq(a->body, b->body) || a->state != b->state ||
        a->of != b->of || a->closed_ms != b->closed_ms || a->n_holders != b->n_holders ||
        a->n_waiters != b->n_waiters || a->holders_total != b->holders_total ||
        a->waiters_total != b->waiters_total)
        return false;
    for (size_t i = 0; i < a->n_holders; i++)
        if (!same_holder(&a->holders[i], &b->holders[i]))
            return false;
    for (size_t i = 0; i < a->n_waiters; i++)
        if (!same_waiter(&a->waiters[i], &b->waiters[i]))
            return false;
    return true;
}

static bool same_session(const struct session_row *a, const struct session_row *b)
{
    return slice_eq(a->id, b->id) && slice_eq(a->description, b->description) &&
           a->ttl_ms == b->ttl_ms && a->linger_ms == b->linger_ms &&
           a->expires_in_ms == b->expires_in_ms && a->holds == b->holds &&
           a->waits == b->waits && a->attached == b->attached;
}

static bool same_namespace(const struct namespace_row *a, const struct namespace_row *b)
{
    return slice_eq(a->name, b->name) && slice_eq(a->description, b->description) &&
           a->created_ms == b->created_ms && a->updated_ms == b->updated_ms &&
           a->locks == b->locks && a->held == b->held && a->waiting == b->waiting;
}

static bool same_rows(const struct event *a, const struct event *b)
{
    if (a->n_rows != b->n_rows || a->more != b->more || !a->locks != !b->locks ||
        !a->sessions != !b->sessions || !a->namespaces != !b->namespaces)
        return false;
    for (size_t i = 0; i < a->n_rows; i++) {
        if (a->locks && !same_lock(&a->locks[i], &b->locks[i]))
            return false;
        if (a->sessions && !same_session(&a->sessions[i], &b->sessions[i]))
            return false;
        if (a->namespaces && !same_namespace(&a->namespaces[i], &b->namespaces[i]))
            return false;
    }
    return true;
}

bool text_same_event(const struct event *a, const struct event *b)
{
    if (a->kind != b->kind || a->asker != b->asker || a->news != b->news ||
        a->reason != b->reason || a->err != b->err || a->mode != b->mode ||
        a->at_ms != b->at_ms || a->fence != b->fence || a->ticket != b->ticket ||
        a->position != b->position || a->count != b->count ||
        a->expires_in_ms != b->expires_in_ms || a->waited_ms != b->waited_ms ||
        a->forever != b->forever || a->n_cycle != b->n_cycle)
        return false;
    if (!slice_eq(a->account, b->account) || !slice_eq(a->ns, b->ns) ||
        !slice_eq(a->name, b->name) || !slice_eq(a->owner, b->owner) ||
        !slice_eq(a->session, b->session) || !slice_eq(a->by, b->by))
        return false;
    /* the wording of a failure is the machine's own; that there is one is checked elsewhere */
    if (a->kind != EVENT_FAILED && !slice_eq(a->text, b->text))
        return false;
    for (size_t i = 0; i < a->n_cycle; i++)
        if (!slice_eq(a->cycle[i].owner, b->cycle[i].owner) ||
            !slice_eq(a->cycle[i].name, b->cycle[i].name))
            return false;
    return same_rows(a, b);
}
