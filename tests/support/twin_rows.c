/* twin_rows.c - what the twin's state looks like: SHOW, LIST, CHECK. */
#include "twin_state.h"

static uint64_t left(uint64_t at, uint64_t now)
{
    return at > now ? at - now : 0;
}

static uint64_t now_of(const struct twin *t, const struct op *op)
{
    return op->now_ms > t->now ? op->now_ms : t->now;
}

static void show_holders(const struct twin *t, const struct t_lock *l, uint64_t now,
                         struct lock_row *row, struct effects *fx)
{
    row->holders_total = twin_holds_on(t, l);
    row->holders = arena_alloc(&fx->arena, LOCK_ROWS_MAX * sizeof *row->holders);
    for (size_t i = 0; i < t->n_holds && row->n_holders < LOCK_ROWS_MAX; i++) {
        const struct t_hold *h = t->holds[i];
        if (h->lock != l)
            continue;
        row->holders[row->n_holders++] =
            (struct holder_row){.owner = h->owner,
                                .session = twin_id(h->session),
                                .mode = h->mode,
                                .fence = h->fence,
                                .permits = h->permits,
                                .held_ms = left(now, h->since),
                                .expires_in_ms = h->end == FOREVER ? 0 : left(h->end, now),
                                .forever = h->end == FOREVER,
                                .overdue = h->overdue};
        row->of = h->of;
        row->state = h->mode == MODE_SEMAPHORE   ? LOCK_SEMAPHORE
                     : h->mode == MODE_EXCLUSIVE ? LOCK_EXCLUSIVE
                                                 : LOCK_SHARED;
    }
}

static void show_waiters(const struct twin *t, const struct t_lock *l, uint64_t now,
                         struct lock_row *row, struct effects *fx)
{
    const struct t_wait *w;
    row->waiters_total = twin_waits_on(t, l);
    row->waiters = arena_alloc(&fx->arena, LOCK_ROWS_MAX * sizeof *row->waiters);
    while (row->n_waiters < LOCK_ROWS_MAX && (w = twin_in_line(t, l, row->n_waiters))) {
        row->waiters[row->n_waiters] = (struct waiter_row){.owner = w->owner,
                                                           .session = twin_id(w->session),
                                                           .mode = w->mode,
                                                           .ticket = w->ticket,
                                                           .position = row->n_waiters + 1,
                                                           .permits = w->permits,
                                                           .waited_ms = left(now, w->since),
                                                           .expires_in_ms = left(w->end, now)};
        row->of = w->of;
        row->n_waiters++;
    }
}

static struct lock_row show_lock(const struct twin *t, const struct t_lock *l, uint64_t now,
                                 struct effects *fx)
{
    struct lock_row row = {.name = l->name, .body = l->body};
    if (twin_closed(l, now)) {
        row.closed_ms = l->closed_until - now;
        row.state = LOCK_CLOSED;
    }
    show_holders(t, l, now, &row, fx);
    show_waiters(t, l, now, &row, fx);
    return row;
}

static struct event *rows(const struct twin *t, const struct op *op, struct effects *fx)
{
    struct event *ev = effects_add(fx, EVENT_ROWS);
    ev->asker = op->asker;
    ev->at_ms = now_of(t, op);
    return ev;
}

static size_t page_of(const struct op *op)
{
    return op->limit ? (size_t)op->limit : 100;
}

/* The existing lock of `s` with the prefix that comes next after `last` in byte order. */
static const struct t_lock *next_lock(const struct twin *t, const struct t_space *s,
                                      struct slice prefix, struct slice last)
{
    const struct t_lock *best = NULL;
    for (size_t i = 0; i < t->n_locks; i++) {
        const struct t_lock *l = t->locks[i];
        if (l->space == s && slice_starts(l->name, prefix) && slice_cmp(l->name, last) > 0 &&
            (!best || slice_cmp(l->name, best->name) < 0) && twin_exists(t, l))
            best = l;
    }
    return best;
}

static void list_locks(const struct twin *t, const struct t_space *s, const struct op *op,
                       struct effects *fx)
{
    struct event *ev = rows(t, op, fx);
    const struct t_lock *l = next_lock(t, s, op->name, op->text);
    ev->locks = arena_alloc(&fx->arena, page_of(op) * sizeof *ev->locks);
    for (; l && ev->n_rows < page_of(op); l = next_lock(t, s, op->name, l->name))
        ev->locks[ev->n_rows++] = show_lock(t, l, now_of(t, op), fx);
    ev->more = l != NULL;
}

static void check(const struct twin *t, const struct t_space *s, const struct op *op,
                  struct effects *fx)
{
    struct event *ev = effects_add(fx, EVENT_CHECKED);
    ev->asker = op->asker;
    ev->at_ms = now_of(t, op);
    for (size_t i = 0; i < t->n_holds && !ev->count; i++) {
        const struct t_hold *h = t->holds[i];
        if (h->lock->space == s && slice_eq(h->lock->name, op->name) &&
            twin_named(op, h, now_of(t, op))) {
            ev->count = 1;
            ev->fence = h->fence;
        }
    }
}

static struct session_row show_session(const struct twin *t, const struct t_session *s,
                                       uint64_t now)
{
    struct session_row row = {.id = s->id,
                              .description = s->text,
                              .ttl_ms = s->ttl,
                              .linger_ms = s->linger,
                              .expires_in_ms = left(s->end, now),
                              .attached = s->target != 0};
    for (size_t i = 0; i < t->n_holds; i++)
        row.holds += t->holds[i]->session == s;
    for (size_t i = 0; i < t->n_waits; i++)
        row.waits += t->waits[i]->session == s;
    return row;
}

/* SESSION_SHOW: one; SESSION_LIST: by number, after the one in `text`. */
static void query_sessions(const struct twin *t, const struct op *op, struct effects *fx)
{
    bool one = op->kind == OP_SESSION_SHOW;
    uint64_t now = now_of(t, op);
    struct slice id = one ? op->session : op->text;
    const struct t_session *named = id.len ? twin_session(t, id) : NULL;
    if ((one || id.len) && (!named || (one && named->end <= now))) {
        twin_failed(op, BELAY_ERR_NO_SESSION, fx);
        return;
    }
    size_t page = one ? 1 : page_of(op);
    struct event *ev = rows(t, op, fx);
    ev->sessions = arena_alloc(&fx->arena, page * sizeof *ev->sessions);
    for (size_t i = 0; i < t->n_sessions; i++) {
        const struct t_session *s = t->sessions[i];
        bool wanted = one ? s == named : !named || s->no > named->no;
        if (!wanted || s->end <= now)
            continue;
        if (ev->n_rows == page) {
            ev->more = true;
            break;
        }
        ev->sessions[ev->n_rows++] = show_session(t, s, now);
    }
}

static struct namespace_row show_space(const struct twin *t, const struct t_space *s)
{
    struct namespace_row row = {.name = s->name,
                                .description = s->text,
                                .created_ms = s->created,
                                .updated_ms = s->updated};
    for (size_t i = 0; i < t->n_locks; i++) {
        const struct t_lock *l = t->locks[i];
        if (l->space != s)
            continue;
        row.locks += twin_exists(t, l);
        row.held += twin_holds_on(t, l) > 0;
        row.waiting += twin_waits_on(t, l);
    }
    return row;
}

static const struct t_space *next_space(const struct twin *t, struct slice last)
{
    const struct t_space *best = NULL;
    for (size_t i = 0; i < t->n_spaces; i++) {
        const struct t_space *s = t->spaces[i];
        if (!s->doomed && slice_cmp(s->name, last) > 0 &&
            (!best || slice_cmp(s->name, best->name) < 0))
            best = s;
    }
    return best;
}

static void list_spaces(const struct twin *t, const struct op *op, struct effects *fx)
{
    struct event *ev = rows(t, op, fx);
    const struct t_space *s = next_space(t, op->text);
    ev->namespaces = arena_alloc(&fx->arena, page_of(op) * sizeof *ev->namespaces);
    for (; s && ev->n_rows < page_of(op); s = next_space(t, s->name))
        ev->namespaces[ev->n_rows++] = show_space(t, s);
    ev->more = s != NULL;
}

void twin_query(const struct twin *t, const struct op *op, struct effects *fx)
{
    const struct t_space *s = twin_space(t, op->ns);
    if (op->kind == OP_SESSION_SHOW || op->kind == OP_SESSION_LIST) {
        query_sessions(t, op, fx);
    } else if (op->kind == OP_NAMESPACE_LIST) {
        list_spaces(t, op, fx);
    } else if (!s) {
        twin_failed(op, BELAY_ERR_NO_NAMESPACE, fx);
    } else if (op->kind == OP_CHECK) {
        check(t, s, op, fx);
    } else if (op->kind == OP_LIST) {
        list_locks(t, s, op, fx);
    } else if (op->kind == OP_NAMESPACE_SHOW) {
        struct event *ev = rows(t, op, fx);
        ev->namespaces = arena_alloc(&fx->arena, sizeof *ev->namespaces);
        ev->namespaces[0] = show_space(t, s);
        ev->n_rows = 1;
    } else {
        struct event *ev = rows(t, op, fx);
        const struct t_lock *l = twin_lock(t, s, op->name);
        struct t_lock none = {.name = op->name};
        ev->locks = arena_alloc(&fx->arena, sizeof *ev->locks);
        ev->locks[0] = show_lock(t, l ? l : &none, now_of(t, op), fx);
        ev->n_rows = 1;
    }
}
