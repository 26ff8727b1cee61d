/* find.c - locks by what they are, long lines and the things of a session: reads that look at a
 * bounded piece of the state, and say where to go on. Changes nothing. */
#include "auth/rule.h"
#include "base/check.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/queries.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/sound.h"

enum {
    FIND_UNITS = 2048,     /* locks, and holders and waiters that are compared, of one FIND */
    FIND_LINE_MAX = 1000,  /* waiters of a lock that are compared */
    FIND_WALK_MAX = 10000, /* things of a session that are passed over */
};

/* --- locks --- */

static const struct hold *first_hold(const struct lock *l)
{
    return l->n_holds ? list_item(l->holds.next, const struct hold, in_lock) : NULL;
}

static size_t n_waits(const struct lock *l)
{
    return l->more ? l->more->n_waits : 0;
}

static bool is_who(const struct op *op, struct slice owner, const struct session *session)
{
    return (op->owner.len == 0 || slice_eq(owner, op->owner)) &&
           (op->session.len == 0 || slice_eq(session_id(session), op->session));
}

/* Does the one that is looked for hold it, or wait for it? */
static bool has_who(const struct lock *l, const struct op *op, size_t *units)
{
    size_t looked = 0;
    BELAY_DCHECK(op->owner.len > 0 || op->session.len > 0);
    list_each (it, &l->holds) {
        const struct hold *h = list_item(it, const struct hold, in_lock);
        ++*units;
        if (is_who(op, hold_owner(h), h->session))
            return true;
    }
    if (n_waits(l) == 0)
        return false;
    list_each (it, &l->more->waits) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        ++*units;
        if (is_who(op, wait_owner(w), w->session))
            return true;
        if (++looked == FIND_LINE_MAX)
            return false;
    }
    return false;
}

static bool is_found(const struct lock *l, const struct op *op, uint64_t now_ms, size_t *units)
{
    const struct hold *h = first_hold(l);
    BELAY_DCHECK(lock_is_sound(l));
    if (op->target && query_state(l, now_ms) != (enum lock_state)(op->target - 1))
        return false;
    if (op->number && (!h || query_left(now_ms, h->since_ms) < op->number))
        return false;
    if (n_waits(l) < op->permits)
        return false;
    return (op->owner.len == 0 && op->session.len == 0) || has_who(l, op, units);
}

/* What has no such time stands last. */
static int64_t place_of(const struct lock *l, enum lock_sort sort)
{
    const struct hold *h = first_hold(l);
    BELAY_DCHECK(sort < SORT_COUNT);
    switch (sort) {
    case SORT_AGE:
        return h ? (int64_t)h->since_ms : INT64_MAX;
    case SORT_WAITERS:
        return -(int64_t)n_waits(l);
    case SORT_WAITED:
        return n_waits(l) ? (int64_t)list_item(l->more->waits.next, const struct wait, in_lock)
                                ->since_ms
                          : INT64_MAX;
    case SORT_EXPIRES:
        return h && h->end.pos ? (int64_t)h->end.at : INT64_MAX;
    case SORT_NAME:
    case SORT_COUNT:
        break;
    }
    return 0;
}

void find_locks(const struct machine *m, const struct space *s, const struct op *op,
                struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_FIND && op->fence < SORT_COUNT);
    enum lock_sort sort = (enum lock_sort)op->fence;
    size_t cap = sort == SORT_NAME ? query_page(op) : FIND_UNITS, units = 0;
    uint64_t now = query_now(m, op);
    struct event *ev = query_rows(m, op, fx);
    bool from_prefix = slice_cmp(op->name, op->text) > 0;
    struct index_place place;
    struct lock *l =
        index_after(&s->index, from_prefix ? op->name : op->text, from_prefix, &place);
    ev->found = arena_alloc(&fx->arena, cap * sizeof *ev->found);
    for (; l && slice_starts(lock_name(l), op->name); l = index_next(&s->index, &place)) {
        if (ev->n_rows == cap || units >= FIND_UNITS) {
            ev->more = true;
            return;
        }
        if (!query_may_read(op, lock_name(l))) {
            l = query_next(&s->index, op, l, &place);
            if (!l || !slice_starts(lock_name(l), op->name))
                return;
        }
        BELAY_CHECK(ev->n_rows < cap);
        units++;
        ev->name = lock_name(l);
        if (is_found(l, op, now, &units))
            ev->found[ev->n_rows++] = (struct found_row){lock_name(l), place_of(l, sort)};
    }
}

/* --- holders and waiters of one lock --- */

static void holders(const struct machine *m, const struct lock *l, const struct op *op,
                    struct event *ev, struct effects *fx)
{
    struct lock_row *row = ev->locks;
    BELAY_DCHECK(lock_is_sound(l));
    row->holders_total = l->n_holds;
    row->holders = arena_alloc(&fx->arena, query_page(op) * sizeof *row->holders);
    list_each (it, &l->holds) { /* LIMIT_HOLDERS of them at most */
        const struct hold *h = list_item(it, const struct hold, in_lock);
        if (hold_fence(h) <= op->fence)
            continue;
        if (row->n_holders == query_page(op)) {
            ev->more = true;
            return;
        }
        BELAY_CHECK(row->n_holders < query_page(op));
        row->holders[row->n_holders++] = query_holder(h, query_now(m, op), fx);
    }
}

/* Those who convert a hold stand before all others; these stand by their tickets. */
static bool is_behind(struct rank_node *n, uint64_t ticket)
{
    const struct wait *w = list_item(n, const struct wait, rank);
    BELAY_DCHECK(wait_is_linked(w));
    return ticket == 0 || (!w->upgrade && w->end.seq > ticket);
}

static void waiters(const struct machine *m, const struct lock *l, const struct op *op,
                    struct event *ev, struct effects *fx)
{
    BELAY_CHECK(n_waits(l) > 0);
    struct lock_row *row = ev->locks;
    struct rank_node *first = rank_first(&l->more->ranks, is_behind, op->fence);
    row->waiters_total = l->more->n_waits;
    if (!first)
        return;
    size_t position = rank_of(first);
    row->waiters = arena_alloc(&fx->arena, query_page(op) * sizeof *row->waiters);
    struct list *it = &list_item(first, struct wait, rank)->in_lock;
    for (; it != &l->more->waits; it = it->next) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        if (row->n_waiters == query_page(op)) {
            ev->more = true;
            ev->ticket = w->end.seq - 1; /* also right behind one that converts */
            return;
        }
        BELAY_CHECK(row->n_waiters < query_page(op) && position <= row->waiters_total);
        struct waiter_row *one = &row->waiters[row->n_waiters++];
        *one = query_waiter(w, query_now(m, op), fx);
        one->position = position++;
    }
}

void find_crowd(const struct machine *m, const struct space *s, const struct op *op,
                struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_HOLDERS || op->kind == OP_WAITERS);
    const struct lock *l = lock_find(m, s, op->name);
    struct event *ev = query_rows(m, op, fx);
    ev->locks = arena_alloc(&fx->arena, sizeof *ev->locks);
    *ev->locks = (struct lock_row){.name = arena_copy(&fx->arena, op->name)};
    ev->n_rows = 1;
    if (l && op->kind == OP_HOLDERS)
        holders(m, l, op, ev, fx);
    else if (l && n_waits(l))
        waiters(m, l, op, ev, fx);
}

/* --- things of a session --- */

static struct item_row item_of_lock(const struct lock *l, enum item_kind kind)
{
    BELAY_DCHECK(l->space && kind != ITEM_VARIABLE);
    return (struct item_row){
        .kind = kind, .ns = slice_of(l->space->name, l->space->name_len), .name = lock_name(l)};
}

static struct item_row hold_item(struct list *it, uint64_t now_ms)
{
    const struct hold *h = list_item(it, const struct hold, in_session);
    BELAY_DCHECK(h->session && hold_is_linked(h));
    struct item_row row = item_of_lock(h->lock, ITEM_HOLD);
    row.owner = hold_owner(h);
    row.mode = mode_of(h->lock, h->weight);
    row.number = hold_fence(h);
    row.permits = h->weight;
    row.since_ms_ago = query_left(now_ms, h->since_ms);
    row.forever = h->end.pos == 0;
    row.expires_in_ms = row.forever ? 0 : query_left(h->end.at, now_ms);
    return row;
}

static struct item_row wait_item(struct list *it, uint64_t now_ms)
{
    const struct wait *w = list_item(it, const struct wait, in_session);
    BELAY_DCHECK(w->session && wait_is_linked(w));
    struct item_row row = item_of_lock(w->lock, ITEM_WAIT);
    row.owner = wait_owner(w);
    row.mode = mode_of(w->lock, w->weight);
    row.number = w->end.seq;
    row.permits = w->weight;
    row.since_ms_ago = query_left(now_ms, w->since_ms);
    row.expires_in_ms = query_left(w->deadline_ms, now_ms);
    return row;
}

static struct item_row record_item(struct list *it, uint64_t now_ms)
{
    const struct record *r = list_item(it, const struct record, in_session);
    const struct table *t = r->slot->table;
    BELAY_DCHECK(t->space && r->session);
    return (struct item_row){.kind = ITEM_VARIABLE,
                             .ns = slice_of(t->space->name, t->space->name_len),
                             .table = table_name(t),
                             .name = slot_key(r->slot),
                             .number = r->end.seq,
                             .since_ms_ago = query_left(now_ms, r->set_ms),
                             .forever = r->end.pos == 0,
                             .expires_in_ms = r->end.pos ? query_left(r->end.at, now_ms) : 0};
}

/* Variables need a rule for the whole namespace. */
static bool may_see(const struct op *op, const struct item_row *row)
{
    struct slice name = row->kind == ITEM_VARIABLE ? SLICE("") : row->name;
    return op->body.len == 0 || rules_can(op->body, VERB_READ, row->ns, name, NULL);
}

static void put_item(struct event *ev, struct item_row row, struct effects *fx)
{
    BELAY_DCHECK(row.number > 0); /* a page goes on behind it */
    row.ns = arena_copy(&fx->arena, row.ns);
    row.name = arena_copy(&fx->arena, row.name);
    row.table = arena_copy(&fx->arena, row.table);
    row.owner = arena_copy(&fx->arena, row.owner);
    ev->items[ev->n_rows++] = row;
}

void machine_add_items(const struct machine *m, const struct op *op, struct event *ev,
                       struct effects *fx)
{
    static struct item_row (*const row_of[])(struct list * it, uint64_t now_ms) = {
        [ITEM_HOLD] = hold_item, [ITEM_WAIT] = wait_item, [ITEM_VARIABLE] = record_item};
    struct session *s = session_find(m, op->account, op->session);
    size_t walked = 0;
    if (!s || m->group < op->target || ev->more)
        return;
    struct list *const heads[] = {
        [ITEM_HOLD] = &s->holds, [ITEM_WAIT] = &s->waits, [ITEM_VARIABLE] = &s->records};
    uint64_t behind = m->group == op->target ? op->fence : 0;
    for (struct list *it = heads[op->mode]->next;
         it != heads[op->mode] && walked++ < FIND_WALK_MAX; it = it->next) {
        struct item_row row = row_of[op->mode](it, query_now(m, op));
        row.group = m->group;
        if (row.number <= behind || !may_see(op, &row))
            continue;
        if (ev->n_rows == query_page(op)) {
            ev->more = true;
            return;
        }
        BELAY_CHECK(ev->n_rows < query_page(op));
        put_item(ev, row, fx);
    }
}

void find_items(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_SESSION_ITEMS && op->mode <= ITEM_VARIABLE);
    const struct session *s = session_find(m, op->account, op->session);
    if (!s || session_over(s, query_now(m, op))) {
        request_failed(op, BELAY_ERR_NO_SESSION, "no such session, or it has ended", fx);
        return;
    }
    struct event *ev = query_rows(m, op, fx);
    ev->items = arena_alloc(&fx->arena, query_page(op) * sizeof *ev->items);
    ev->position = s->enrolled;
    machine_add_items(m, op, ev, fx);
}
