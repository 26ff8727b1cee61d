/* twin_session.c - sessions and namespaces, by docs/SEMANTICS.md. */
#include "base/check.h"
#include "twin_state.h"

/* --- sessions --- */

static struct event *tell(const struct twin *t, struct slice id, enum event_kind kind,
                          uint64_t asker, struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->asker = asker;
    ev->at_ms = t->now;
    ev->session = id;
    return ev;
}

static uint64_t items_of(const struct twin *t, const struct t_session *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t->n_holds; i++)
        n += t->holds[i]->session == s;
    for (size_t i = 0; i < t->n_waits; i++)
        n += t->waits[i]->session == s;
    return n;
}

/* The hold or wait with the lowest number. */
static void end_item(struct twin *t, struct t_session *s, struct effects *fx)
{
    struct t_hold *h = NULL;
    struct t_wait *w = NULL;
    for (size_t i = t->n_holds; i--;)
        if (t->holds[i]->session == s)
            h = t->holds[i];
    for (size_t i = t->n_waits; i--;)
        if (t->waits[i]->session == s)
            w = t->waits[i];
    bool closed = s->ending == REASON_RELEASE;
    if (h && (!w || h->fence < w->ticket))
        twin_end_hold(t, h, closed ? EVENT_RELEASED : EVENT_EXPIRED, REASON_SESSION, fx);
    else
        twin_end_wait(t, w, EVENT_LEFT, REASON_SESSION, fx);
}

/* Everything of the session ends, by number, so much in a step; the lines are served after
 * that. Nobody finds it by its id any more. */
uint64_t twin_end_session(struct twin *t, struct t_session *s, enum reason why, uint64_t asker,
                          uint64_t units, struct effects *fx)
{
    uint64_t spent = 0;
    if (!s->ending) {
        s->ending = why;
        s->had = items_of(t, s);
        s->end = s->end < t->now ? s->end : t->now;
    }
    for (; spent < units && items_of(t, s); spent++)
        end_item(t, s, fx);
    bool done = items_of(t, s) == 0;
    if (done || asker) {
        struct event *ev = tell(t, s->id, EVENT_SESSION_ENDED, asker, fx);
        ev->account = SLICE("default");
        ev->news = done;
        ev->reason = why;
        ev->count = s->had;
    }
    if (done)
        twin_drop(t->sessions, &t->n_sessions, s);
    return spent;
}

/* By an op. */
static void end_session(struct twin *t, struct t_session *s, enum reason why, uint64_t asker,
                        struct effects *fx)
{
    uint64_t spent = twin_end_session(t, s, why, asker, t->end_units, fx);
    t->end_units -= spent < t->end_units ? spent : t->end_units;
}

/* Some session has this id, and may be ending. */
static bool is_taken(const struct twin *t, struct slice id)
{
    for (size_t i = 0; i < t->n_sessions; i++)
        if (slice_eq(t->sessions[i]->id, id))
            return true;
    return false;
}

static void open_session(struct twin *t, const struct op *op, struct effects *fx)
{
    if (is_taken(t, op->session)) {
        twin_failed(op, BELAY_ERR_EXISTS, fx);
        return;
    }
    struct t_session *s = twin_add(&t->sessions, &t->n_sessions, sizeof *s);
    *s = (struct t_session){.id = twin_keep(t, op->session),
                            .text = twin_keep(t, op->text),
                            .no = ++t->last,
                            .ttl = op->ttl_ms,
                            .linger = op->linger_ms,
                            .target = op->target,
                            .end = t->now + op->ttl_ms};
    struct event *ev = tell(t, s->id, EVENT_SESSION_OPENED, op->asker, fx);
    ev->account = SLICE("default");
    ev->news = true;
    ev->expires_in_ms = s->ttl;
}

static void attach(struct twin *t, const struct op *op, struct effects *fx)
{
    struct t_session *s = twin_live(t, op->session);
    if (!s) {
        twin_failed(op, BELAY_ERR_NO_SESSION, fx);
        return;
    }
    if (s->target && s->target != op->target && s->end > s->owed)
        s->owed = s->end;
    s->target = op->target;
    s->end = t->now + s->ttl;
    struct event *ev = tell(t, s->id, EVENT_SESSION_KEPT, op->asker, fx);
    ev->account = SLICE("default");
    ev->count = 1;
    ev->expires_in_ms = s->ttl;
}

static void detach(struct twin *t, const struct op *op, struct effects *fx)
{
    struct t_session *s = twin_live(t, op->session);
    bool mine = s && s->target == op->target;
    if (mine && s->linger) {
        s->target = 0;
        s->end = t->now + s->linger > s->owed ? t->now + s->linger : s->owed;
    } else if (mine) {
        end_session(t, s, REASON_SESSION, 0, fx);
    }
    tell(t, op->session, EVENT_SESSION_KEPT, op->asker, fx)->count = mine;
}

static void keep_alive(struct twin *t, const struct op *op, struct effects *fx)
{
    uint64_t alive = 0;
    for (size_t i = 0; i < op->more.n; i++) {
        struct t_session *s = twin_live(t, op->more.items[i]);
        if (s) {
            s->end = t->now + s->ttl;
            alive++;
        }
    }
    tell(t, op->session, EVENT_SESSION_KEPT, op->asker, fx)->count = alive;
}

void twin_session_op(struct twin *t, const struct op *op, struct effects *fx)
{
    struct t_session *s = twin_live(t, op->session);
    if (op->kind == OP_SESSION_OPEN)
        open_session(t, op, fx);
    else if (op->kind == OP_SESSION_ATTACH)
        attach(t, op, fx);
    else if (op->kind == OP_SESSION_DETACH)
        detach(t, op, fx);
    else if (op->kind == OP_SESSION_KEEPALIVE)
        keep_alive(t, op, fx);
    else if (s)
        end_session(t, s, REASON_RELEASE, op->asker, fx);
    else
        twin_failed(op, BELAY_ERR_NO_SESSION, fx);
}

/* --- namespaces --- */

static void tell_space(const struct twin *t, const struct op *op, enum event_kind kind,
                       struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->asker = op->asker;
    ev->at_ms = t->now;
    ev->account = SLICE("default");
    ev->ns = op->ns;
}

static bool in_use(const struct twin *t, const struct t_space *s)
{
    for (size_t i = 0; i < t->n_holds; i++)
        if (t->holds[i]->lock->space == s)
            return true;
    for (size_t i = 0; i < t->n_waits; i++)
        if (t->waits[i]->lock->space == s)
            return true;
    return false;
}

void twin_namespace_op(struct twin *t, const struct op *op, struct effects *fx)
{
    struct t_space *s = twin_space(t, op->ns);
    if (op->kind == OP_NAMESPACE_CREATE && s) {
        twin_failed(op, BELAY_ERR_EXISTS, fx);
    } else if (op->kind == OP_NAMESPACE_CREATE) {
        s = twin_add(&t->spaces, &t->n_spaces, sizeof *s);
        *s = (struct t_space){.name = twin_keep(t, op->ns),
                              .text = twin_keep(t, op->text),
                              .created = t->now,
                              .updated = t->now};
        tell_space(t, op, EVENT_NAMESPACE_CREATED, fx);
    } else if (!s) {
        twin_failed(op, BELAY_ERR_NO_NAMESPACE, fx);
    } else if (op->kind == OP_NAMESPACE_UPDATE) {
        if (op->flags & OP_SET_TEXT)
            s->text = twin_keep(t, op->text);
        s->updated = t->now;
        tell_space(t, op, EVENT_NAMESPACE_UPDATED, fx);
    } else if (in_use(t, s) && !(op->flags & OP_FORCE)) {
        twin_failed(op, BELAY_ERR_IN_USE, fx);
    } else {
        s->doomed = ++t->dooms;
        tell_space(t, op, EVENT_NAMESPACE_DELETED, fx);
        twin_reap(t, MACHINE_EXPIRE_BATCH, fx);
    }
}

/* The existing lock of `s` that comes first in byte order. */
static struct t_lock *first_lock(const struct twin *t, const struct t_space *s)
{
    struct t_lock *first = NULL;
    for (size_t i = 0; i < t->n_locks; i++) {
        struct t_lock *l = t->locks[i];
        if (l->space == s && (!first || slice_cmp(l->name, first->name) < 0) &&
            twin_exists(t, l))
            first = l;
    }
    return first;
}

static uint64_t reap_lock(struct twin *t, struct t_lock *l, uint64_t budget, struct effects *fx)
{
    uint64_t units = 1;
    struct t_wait *w;
    for (; units <= budget && (w = twin_in_line(t, l, 0)) != NULL; units++)
        twin_end_wait(t, w, EVENT_LEFT, REASON_NAMESPACE, fx);
    for (size_t i = 0; units <= budget && i < t->n_holds;) {
        if (t->holds[i]->lock != l) {
            i++;
            continue;
        }
        twin_end_hold(t, t->holds[i], EVENT_EXPIRED, REASON_NAMESPACE, fx);
        units++;
    }
    if (units > budget)
        return units;
    l->body = slice_of("", 0);
    l->closed_no = l->closed_until = 0;
    return units;
}

static struct t_space *first_doomed(const struct twin *t)
{
    struct t_space *first = NULL;
    for (size_t i = 0; i < t->n_spaces; i++)
        if (t->spaces[i]->doomed && (!first || t->spaces[i]->doomed < first->doomed))
            first = t->spaces[i];
    return first;
}

uint64_t twin_reap(struct twin *t, uint64_t budget, struct effects *fx)
{
    struct t_space *s;
    while (budget && (s = first_doomed(t)) != NULL) {
        struct t_lock *l = first_lock(t, s);
        if (!l) { /* only names of nothing are left */
            for (size_t i = 0; i < t->n_locks;) {
                if (t->locks[i]->space == s)
                    twin_drop(t->locks, &t->n_locks, t->locks[i]);
                else
                    i++;
            }
            twin_drop(t->spaces, &t->n_spaces, s);
            continue;
        }
        uint64_t units = reap_lock(t, l, budget, fx);
        budget -= units < budget ? units : budget;
        twin_serve(t, fx);
    }
    return budget;
}
