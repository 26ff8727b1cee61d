/* queries.c - what the state looks like: SHOW, LIST, CHECK. Changes nothing. */
#include "machine/queries.h"
#include "auth/rule.h"
#include "base/check.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/table.h"
#include "machine/txn_wait.h"

uint64_t query_left(uint64_t at, uint64_t now_ms)
{
    return at > now_ms ? at - now_ms : 0;
}

uint64_t query_now(const struct machine *m, const struct op *op)
{
    return op->now_ms > m->now_ms ? op->now_ms : m->now_ms;
}

enum lock_state query_state(const struct lock *l, uint64_t now_ms)
{
    BELAY_CHECK((l->n_holds == 0) == (l->used == 0));
    if (l->n_holds == 0)
        return lock_is_closed(l, now_ms) ? LOCK_CLOSED : LOCK_UNLOCKED;
    if (l->capacity != CAPACITY_RW)
        return LOCK_SEMAPHORE;
    return l->used == CAPACITY_RW ? LOCK_EXCLUSIVE : LOCK_SHARED;
}

struct holder_row query_holder(const struct hold *h, uint64_t now_ms, struct effects *fx)
{
    bool counts = h->lock->capacity != CAPACITY_RW;
    return (struct holder_row){.owner = arena_copy(&fx->arena, hold_owner(h)),
                               .session = arena_copy(&fx->arena, session_id(h->session)),
                               .mode = mode_of(h->lock, h->weight),
                               .fence = hold_fence(h),
                               .permits = counts ? h->weight : 0,
                               .held_ms = query_left(now_ms, h->since_ms),
                               .forever = h->end.pos == 0,
                               .expires_in_ms = h->end.pos ? query_left(h->end.at, now_ms) : 0,
                               .overdue = h->overdue};
}

static void holder_rows(const struct lock *l, uint64_t now_ms, struct lock_row *row,
                        struct effects *fx)
{
    size_t n = l->n_holds < LOCK_ROWS_MAX ? l->n_holds : LOCK_ROWS_MAX;
    row->holders = arena_alloc(&fx->arena, n * sizeof *row->holders);
    row->holders_total = l->n_holds;
    list_each (it, &l->holds) {
        if (row->n_holders == n)
            break;
        row->holders[row->n_holders++] =
            query_holder(list_item(it, const struct hold, in_lock), now_ms, fx);
    }
    BELAY_CHECK(row->n_holders == n);
}

struct waiter_row query_waiter(const struct wait *w, uint64_t now_ms, struct effects *fx)
{
    bool counts = w->lock->capacity != CAPACITY_RW;
    return (struct waiter_row){.owner = arena_copy(&fx->arena, wait_owner(w)),
                               .session = arena_copy(&fx->arena, session_id(w->session)),
                               .mode = mode_of(w->lock, w->weight),
                               .ticket = w->end.seq,
                               .permits = counts ? w->weight : 0,
                               .waited_ms = query_left(now_ms, w->since_ms),
                               .expires_in_ms = query_left(w->deadline_ms, now_ms)};
}

static void waiter_rows(const struct lock *l, uint64_t now_ms, struct lock_row *row,
                        struct effects *fx)
{
    if (!l->more)
        return;
    size_t n = l->more->n_waits < LOCK_ROWS_MAX ? l->more->n_waits : LOCK_ROWS_MAX;
    row->waiters = arena_alloc(&fx->arena, n * sizeof *row->waiters);
    row->waiters_total = l->more->n_waits;
    list_each (it, &l->more->waits) {
        if (row->n_waiters == n)
            break;
        struct waiter_row *one = &row->waiters[row->n_waiters++];
        *one = query_waiter(list_item(it, const struct wait, in_lock), now_ms, fx);
        one->position = row->n_waiters;
    }
    BELAY_CHECK(row->n_waiters == n);
}

static void fill_lock_row(const struct lock *l, uint64_t now_ms, struct lock_row *row,
                          struct effects *fx)
{
    row->name = arena_copy(&fx->arena, lock_name(l));
    row->state = query_state(l, now_ms);
    if (l->capacity && l->capacity != CAPACITY_RW)
        row->of = l->capacity;
    if (l->more && l->more->body_len)
        row->body = arena_copy(&fx->arena, slice_of(l->more->body, l->more->body_len));
    if (l->more && lock_is_closed(l, now_ms)) {
        BELAY_CHECK(l->more->closed.at > now_ms);
        row->closed_ms = l->more->closed.at - now_ms;
    }
    holder_rows(l, now_ms, row, fx);
    waiter_rows(l, now_ms, row, fx);
}

struct lock_row *machine_lock_row(const struct machine *m, const struct op *op,
                                  struct effects *fx)
{
    const struct space *s = space_find(m, op->account, op->ns);
    if (!s)
        return NULL;
    struct lock_row *row = arena_alloc(&fx->arena, sizeof *row);
    *row = (struct lock_row){0};
    const struct lock *l = lock_find(m, s, op->name);
    if (l)
        fill_lock_row(l, query_now(m, op), row, fx);
    else
        row->name = arena_copy(&fx->arena, op->name);
    BELAY_DCHECK(row->n_holders <= row->holders_total && row->n_waiters <= row->waiters_total);
    return row;
}

struct event *query_rows(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op_is_read(op->kind));
    struct event *ev = effects_add(fx, EVENT_ROWS);
    ev->asker = op->asker;
    ev->at_ms = query_now(m, op);
    return ev;
}

size_t query_page(const struct op *op)
{
    BELAY_CHECK(op->limit <= LIMIT_LIST);
    return op->limit ? (size_t)op->limit : 100;
}

bool query_may_read(const struct op *op, struct slice name)
{
    return op->body.len == 0 || rules_can(op->body, VERB_READ, or_default(op->ns), name, NULL);
}

struct lock *query_next(const struct index *index, const struct op *op, struct lock *l,
                        struct index_place *place)
{
    BELAY_DCHECK(!l || op->body.len > 0); /* without rules all may be read */
    struct rules_place to;
    while (l && !query_may_read(op, lock_name(l))) {
        if (!rules_skip(op->body, or_default(op->ns), lock_name(l), &to))
            return NULL;
        l = index_after(index, slice_of(to.bytes, to.len), to.itself, place);
    }
    return l;
}

static void list_locks(const struct machine *m, const struct space *s, const struct op *op,
                       struct effects *fx)
{
    struct event *ev = query_rows(m, op, fx);
    ev->locks = arena_alloc(&fx->arena, query_page(op) * sizeof *ev->locks);
    bool from_prefix = slice_cmp(op->name, op->text) > 0;
    struct index_place place;
    size_t bytes = 0;
    struct lock *l =
        index_after(&s->index, from_prefix ? op->name : op->text, from_prefix, &place);
    for (; l && slice_starts(lock_name(l), op->name); l = index_next(&s->index, &place)) {
        if (!query_may_read(op, lock_name(l))) {
            l = query_next(&s->index, op, l, &place);
            if (!l || !slice_starts(lock_name(l), op->name))
                return;
        }
        if (ev->n_rows == query_page(op) || bytes >= LIMIT_LIST_BYTES) {
            ev->more = true;
            return;
        }
        BELAY_CHECK(ev->n_rows < query_page(op));
        struct lock_row *row = &ev->locks[ev->n_rows++];
        *row = (struct lock_row){0};
        fill_lock_row(l, query_now(m, op), row, fx);
        bytes += row->name.len + row->body.len + row->n_holders * sizeof *row->holders +
                 row->n_waiters * sizeof *row->waiters;
    }
}

static void check(const struct machine *m, const struct space *s, const struct op *op,
                  struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_CHECK);
    const struct hold *h = request_hold(m, lock_find(m, s, op->name), op, query_now(m, op));
    struct event *ev = effects_add(fx, EVENT_CHECKED);
    ev->asker = op->asker;
    ev->at_ms = query_now(m, op);
    ev->count = h != NULL;
    ev->fence = h ? hold_fence(h) : 0;
}

static void session_row(const struct session *s, uint64_t now_ms, struct session_row *row,
                        struct effects *fx)
{
    BELAY_CHECK(s->n_holds <= s->n_items);
    *row = (struct session_row){
        .id = arena_copy(&fx->arena, session_id(s)),
        .description = arena_copy(&fx->arena, slice_of(s->description, s->description_len)),
        .ttl_ms = s->ttl_ms,
        .linger_ms = s->linger_ms,
        .expires_in_ms = query_left(s->end.at, now_ms),
        .holds = s->n_holds,
        .waits = s->n_items - s->n_holds,
        .variables = s->n_records,
        .enrolled = s->enrolled,
        .attached = s->target != 0};
}

bool machine_session(const struct machine *m, struct slice account, struct slice id,
                     struct machine_session *ret)
{
    BELAY_DCHECK(id.len <= LIMIT_SESSION_BYTES);
    const struct session *s = session_find(m, account, id);
    if (!s || session_over(s, m->now_ms))
        return false;
    *ret = (struct machine_session){.number = s->guest == GUEST_NOT ? s->end.seq : s->home,
                                    .ttl_ms = s->ttl_ms,
                                    .target = s->target,
                                    .token = s->token};
    return true;
}

void machine_add_session(const struct machine *m, struct slice account, struct session_row *row)
{
    const struct session *s = session_find(m, account, row->id);
    if (!s)
        return;
    BELAY_CHECK(s->n_holds <= s->n_items);
    row->holds += s->n_holds;
    row->waits += s->n_items - s->n_holds;
    row->variables += s->n_records;
}

static void show_session(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_SESSION_SHOW);
    const struct session *s = session_find(m, op->account, op->session);
    if (!s || session_over(s, query_now(m, op))) {
        request_failed(op, BELAY_ERR_NO_SESSION, "no such session, or it has ended", fx);
        return;
    }
    struct event *ev = query_rows(m, op, fx);
    ev->sessions = arena_alloc(&fx->arena, sizeof *ev->sessions);
    ev->n_rows = 1;
    session_row(s, query_now(m, op), ev->sessions, fx);
}

/* Each token is shown its own. */
static bool is_listed(const struct session *s, const struct op *op)
{
    bool mine = op->token == 0 || op->flags & OP_SEES_ALL || s->token == op->token;
    return mine && slice_eq(or_default(session_account(s)), or_default(op->account));
}

static void list_sessions(const struct machine *m, const struct op *op, struct effects *fx)
{
    struct list *at = m->session_list.next;
    if (op->text.len) {
        const struct session *after = session_find(m, op->account, op->text);
        if (!after) {
            request_failed(op, BELAY_ERR_NO_SESSION,
                           "the session named by AFTER has ended; begin again without AFTER",
                           fx);
            return;
        }
        at = after->in_machine.next;
    }
    struct event *ev = query_rows(m, op, fx);
    size_t bytes = 0;
    ev->sessions = arena_alloc(&fx->arena, query_page(op) * sizeof *ev->sessions);
    for (; at != &m->session_list; at = at->next) {
        const struct session *s = list_item(at, const struct session, in_machine);
        if (session_over(s, query_now(m, op)) || !is_listed(s, op))
            continue;
        if (ev->n_rows == query_page(op) || bytes >= LIMIT_LIST_BYTES) {
            ev->more = true;
            return;
        }
        BELAY_CHECK(ev->n_rows < query_page(op));
        bytes += sizeof *ev->sessions + s->id_len + s->description_len;
        session_row(s, query_now(m, op), &ev->sessions[ev->n_rows++], fx);
    }
}

static void add_space(const struct space *s, struct namespace_row *row)
{
    BELAY_CHECK(s->held <= s->locks.count);
    row->locks += s->locks.count;
    row->held += s->held;
    row->waiting += s->waiting;
    row->tables += s->tables.count;
    row->variables += s->n_records;
    row->transactions += s->n_parked;
}

void machine_add_namespace(const struct machine *m, struct slice account,
                           struct namespace_row *row)
{
    BELAY_DCHECK(row->name.len > 0); /* an empty one would be "default" */
    const struct space *s = space_find(m, account, row->name);
    if (s)
        add_space(s, row);
}

static void namespace_row(const struct space *s, struct namespace_row *row, struct effects *fx)
{
    BELAY_DCHECK(s->name_len > 0 && !s->doomed);
    *row = (struct namespace_row){
        .name = arena_copy(&fx->arena, slice_of(s->name, s->name_len)),
        .description = arena_copy(&fx->arena, slice_of(s->description, s->description_len)),
        .created_ms = s->created_ms,
        .updated_ms = s->updated_ms};
    add_space(s, row);
}

static void list_namespaces(const struct machine *m, const struct op *op, struct effects *fx)
{
    const struct account *a = account_find(m, op->account);
    struct event *ev = query_rows(m, op, fx);
    ev->namespaces = arena_alloc(&fx->arena, query_page(op) * sizeof *ev->namespaces);
    for (size_t i = 0; a && i < a->n; i++) {
        struct slice name = slice_of(a->spaces[i]->name, a->spaces[i]->name_len);
        bool hidden = op->body.len && !rules_can_somewhere(op->body, VERBS_OF_NAMES, &name);
        if (hidden || (op->text.len && slice_cmp(name, op->text) <= 0))
            continue;
        if (ev->n_rows == query_page(op)) {
            ev->more = true;
            return;
        }
        BELAY_CHECK(ev->n_rows < query_page(op));
        namespace_row(a->spaces[i], &ev->namespaces[ev->n_rows++], fx);
    }
}

static void show_lock(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op_is_read(op->kind));
    struct event *ev = query_rows(m, op, fx);
    ev->locks = machine_lock_row(m, op, fx);
    ev->n_rows = 1;
}

static void show_namespace(const struct machine *m, const struct space *s, const struct op *op,
                           struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_NAMESPACE_SHOW);
    struct event *ev = query_rows(m, op, fx);
    ev->namespaces = arena_alloc(&fx->arena, sizeof *ev->namespaces);
    ev->n_rows = 1;
    namespace_row(s, ev->namespaces, fx);
}

void machine_query(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op_is_read(op->kind));
    if ((m->closed || op->token) && (token_refuses(m, op, fx) || token_guards(m, op, fx)))
        return;
    if (op->kind == OP_ACCOUNT_SHOW || op->kind == OP_ACCOUNT_LIST) {
        account_query(m, op, fx);
        return;
    }
    if (op->kind == OP_TOKEN_LIST || op->kind == OP_LOGIN) {
        token_query(m, op, fx);
        return;
    }
    if (op->kind == OP_SESSION_SHOW) {
        show_session(m, op, fx);
        return;
    }
    if (op->kind == OP_SESSION_LIST) {
        list_sessions(m, op, fx);
        return;
    }
    if (op->kind == OP_SESSION_ITEMS) {
        find_items(m, op, fx);
        return;
    }
    if (op->kind == OP_NAMESPACE_LIST) {
        list_namespaces(m, op, fx);
        return;
    }
    const struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    if (op->kind == OP_CHECK)
        check(m, s, op, fx);
    else if (op->kind == OP_SHOW)
        show_lock(m, op, fx);
    else if (op->kind == OP_LIST)
        list_locks(m, s, op, fx);
    else if (op->kind == OP_FIND)
        find_locks(m, s, op, fx);
    else if (op->kind == OP_HOLDERS || op->kind == OP_WAITERS)
        find_crowd(m, s, op, fx);
    else if (op->kind == OP_TABLE_LIST || op->kind == OP_TABLE_SHOW)
        table_query(m, s, op, fx);
    else
        show_namespace(m, s, op, fx);
}
