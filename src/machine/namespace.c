/* namespace.c - accounts and the namespaces in them. */
#include "machine/namespace.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/outbox.h"
#include "machine/request.h"
#include "machine/table.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

static bool same_name(struct map_node *node, const void *key)
{
    const struct account *a = map_item(node, const struct account, by_name);
    return slice_eq(account_name(a), *(const struct slice *)key);
}

struct account *account_any(const struct machine *m, struct slice name)
{
    name = or_default(name);
    struct map_node *n = map_find(&m->accounts_by_name,
                                  hash_bytes(&m->key, name.data, name.len), same_name, &name);
    return n ? map_item(n, struct account, by_name) : NULL;
}

struct account *account_find(const struct machine *m, struct slice name)
{
    struct account *a = account_any(m, name);
    return a && !a->gone ? a : NULL;
}

struct account *account_add(struct machine *m, struct slice name)
{
    BELAY_CHECK(name.len > 0 && name.len <= LIMIT_ACCOUNT_BYTES);
    struct account *a = mem_zalloc(sizeof *a);
    a->name = mem_dup(name.data, name.len);
    a->name_len = name.len;
    m->accounts = mem_resize(m->accounts, (m->n_accounts + 1) * sizeof(struct account *));
    m->accounts[m->n_accounts++] = a;
    map_add(&m->accounts_by_name, &a->by_name, hash_bytes(&m->key, name.data, name.len));
    return a;
}

/* Where the namespace is, or would be. */
static inline size_t place_of(const struct account *a, struct slice name, bool *ret_found)
{
    size_t lo = 0, hi = a->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = slice_cmp(slice_of(a->spaces[mid]->name, a->spaces[mid]->name_len), name);
        if (c == 0) {
            *ret_found = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    BELAY_DCHECK(lo <= a->n);
    *ret_found = false;
    return lo;
}

struct space *space_find(const struct machine *m, struct slice account, struct slice name)
{
    const struct account *a = account_find(m, account);
    bool found = false;
    size_t at = a ? place_of(a, or_default(name), &found) : 0;
    BELAY_DCHECK(!found || (a->spaces[at]->account == a && !a->spaces[at]->doomed));
    return found ? a->spaces[at] : NULL;
}

struct space *space_add(struct machine *m, struct account *a, struct slice name)
{
    bool found;
    size_t at = place_of(a, name, &found);
    BELAY_CHECK(at <= a->n);
    BELAY_CHECK(!found);
    struct space *s = space_new(m, a, name);
    if (a->n == a->cap) {
        a->cap = a->cap ? a->cap * 2 : 4;
        a->spaces = mem_resize(a->spaces, a->cap * sizeof(struct space *));
    }
    memmove(a->spaces + at + 1, a->spaces + at, (a->n - at) * sizeof(struct space *));
    a->spaces[at] = s;
    a->n++;
    a->used[QUOTA_NAMESPACES]++;
    m->n_spaces++;
    BELAY_DCHECK(a->n <= a->cap);
    return s;
}

struct space *space_new(struct machine *m, struct account *a, struct slice name)
{
    BELAY_CHECK(name.len > 0 && name.len <= LIMIT_NAMESPACE_BYTES);
    struct space *s = mem_zalloc(sizeof *s + name.len);
    s->account = a;
    s->created_ms = s->updated_ms = m->now_ms;
    s->name_len = name.len;
    memcpy(s->name, name.data, name.len);
    list_init(&s->in_doomed);
    list_init(&s->table_list);
    list_init(&s->parked);
    return s;
}

void space_describe(struct space *s, struct slice description)
{
    BELAY_CHECK(description.len <= LIMIT_DESCRIPTION_BYTES);
    free(s->description);
    s->description = description.len ? mem_dup(description.data, description.len) : NULL;
    s->description_len = description.len;
}

void space_free(struct space *s)
{
    BELAY_CHECK(s->locks.count == 0 && s->tables.count == 0);
    BELAY_CHECK(s->n_parked == 0 && s->watched.count == 0);
    map_done(&s->tables);
    map_done(&s->watched);
    map_done(&s->locks);
    map_done(&s->waits);
    map_done(&s->waiters);
    map_done(&s->crowds);
    index_done(&s->index);
    free(s->description);
    free(s);
}

void space_doom(struct machine *m, struct space *s)
{
    BELAY_CHECK(!s->doomed);
    struct account *a = s->account;
    bool found;
    size_t at = place_of(a, slice_of(s->name, s->name_len), &found);
    BELAY_CHECK(found);
    memmove(a->spaces + at, a->spaces + at + 1, (a->n - at - 1) * sizeof(struct space *));
    BELAY_CHECK(a->used[QUOTA_NAMESPACES] > 0 && m->n_spaces >= a->n);
    a->n--;
    a->used[QUOTA_NAMESPACES]--;
    m->n_spaces--;
    s->doomed = true;
    a->n_doomed++;
    list_push_back(&m->doomed, &s->in_doomed);
}

static struct event *tell(const struct machine *m, const struct op *op, enum event_kind kind,
                          struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->account = arena_copy(&fx->arena, or_default(op->account));
    ev->ns = arena_copy(&fx->arena, op->ns);
    return ev;
}

void namespace_create(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_NAMESPACE_CREATE);
    struct account *a = account_find(m, op->account);
    if (!a) {
        request_failed(op, BELAY_ERR_NOT_FOUND, "no such account", fx);
    } else if (space_find(m, op->account, op->ns)) {
        request_failed(op, BELAY_ERR_EXISTS, "a namespace with this name exists", fx);
    } else if (a->n >= LIMIT_NAMESPACES) {
        request_failed(op, BELAY_ERR_LIMIT, "the account has LIMIT_NAMESPACES (10000)", fx);
    } else if (quota_reached(a, QUOTA_NAMESPACES, 1)) {
        quota_refuse(a, QUOTA_NAMESPACES, op, fx);
    } else if (outbox_is_full(m, (unsigned)op->target)) {
        request_failed(op, BELAY_ERR_UNAVAILABLE, "its shard does not answer", fx);
    } else {
        space_describe(space_add(m, a, op->ns), op->text);
        tell(m, op, EVENT_NAMESPACE_CREATED, fx)->posted = group_bit(m, op->target);
        struct op message = {.kind = OP_NAMESPACE_CREATE, .account = op->account, .ns = op->ns};
        outbox_post(m, (unsigned)op->target, &message);
    }
}

void namespace_appear(struct machine *m, const struct op *message)
{
    BELAY_DCHECK(m->group != 0);
    struct account *a = account_any(m, message->account);
    if (!a)
        a = account_add(m, message->account);
    if (!a->gone && !space_find(m, message->account, message->ns))
        space_add(m, a, message->ns);
}

void namespace_vanish(struct machine *m, const struct op *message)
{
    BELAY_DCHECK(m->group == 0);
    struct space *s = space_find(m, message->account, message->ns);
    if (s)
        space_doom(m, s);
}

void namespace_update(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_NAMESPACE_UPDATE);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    if (op->flags & OP_SET_TEXT)
        space_describe(s, op->text);
    s->updated_ms = m->now_ms;
    tell(m, op, EVENT_NAMESPACE_UPDATED, fx);
}

void namespace_delete(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_NAMESPACE_DELETE);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    bool in_use = s->held || s->waiting || s->n_records || s->n_parked;
    if (in_use && !(op->flags & OP_FORCE)) {
        request_failed(op, BELAY_ERR_IN_USE,
                       s->held || s->waiting
                           ? "locks in it are held or waited for; use force"
                           : "variables in it are set or waited for; use force",
                       fx);
        return;
    }
    space_doom(m, s);
    parked_leave_space(m, s, fx);
    tell(m, op, EVENT_NAMESPACE_DELETED, fx)->posted = m->group != 0;
    if (m->group != 0) {
        struct op message = {.kind = OP_NAMESPACE_DELETE, .account = op->account, .ns = op->ns};
        outbox_post(m, 0, &message);
    }
    (void)namespace_reap(m, MACHINE_EXPIRE_BATCH, fx);
}

/* Takes one lock apart, or the front of its line; what it cost. */
static uint64_t reap_lock(struct machine *m, struct lock *l, uint64_t budget,
                          struct effects *fx)
{
    BELAY_CHECK(l->space->doomed && budget > 0);
    uint64_t units = 1, most = m->level >= LEVEL_PARTS ? budget : NEVER;
    for (; l->more && !list_empty(&l->more->waits) && units <= most; units++)
        wait_end(m, list_item(l->more->waits.next, struct wait, in_lock), EVENT_LEFT,
                 REASON_NAMESPACE, fx);
    for (; !list_empty(&l->holds) && units <= most; units++)
        hold_end(m, list_item(l->holds.next, struct hold, in_lock), EVENT_EXPIRED,
                 REASON_NAMESPACE, fx);
    if (units > most)
        return units; /* the rest goes later */
    BELAY_CHECK(l->n_holds == 0 && l->used == 0);
    lock_set_body(l, slice_of("", 0));
    if (l->more)
        heap_remove(&m->ends, &l->more->closed);
    lock_touch(m, l); /* idle now: it goes at the end of the step */
    return units;
}

/* Takes one variable apart; what it cost. */
static uint64_t reap_slot(struct machine *m, struct table *t)
{
    BELAY_CHECK(t->space->doomed && !list_empty(&t->slot_list));
    struct slot *slot = list_item(t->slot_list.next, struct slot, in_table);
    uint64_t units = 1;
    for (; slot->records; units++)
        record_remove(m, slot->records);
    slot_drop_if_idle(m, slot);
    return units;
}

/* Several at once: to take one out puts its bucket out of order. */
static size_t first_locks(const struct space *s, struct lock *ret_locks[INDEX_BUCKET])
{
    struct index_place place;
    size_t n = 0;
    struct lock *l = index_after(&s->index, slice_of("", 0), true, &place);
    for (; l && n < INDEX_BUCKET; l = index_next(&s->index, &place))
        ret_locks[n++] = l;
    BELAY_CHECK(n <= INDEX_BUCKET && (n > 0) == (s->locks.count > 0));
    return n;
}

/* Takes locks out of a doomed namespace until it is empty or the budget is used up. */
static uint64_t reap_locks(struct machine *m, struct space *s, uint64_t budget,
                           struct effects *fx)
{
    BELAY_CHECK(s->doomed);
    struct lock *locks[INDEX_BUCKET];
    size_t n;
    while (budget && (n = first_locks(s, locks)) > 0)
        for (size_t i = 0; i < n && budget; i++) {
            uint64_t units = reap_lock(m, locks[i], budget, fx);
            budget -= units < budget ? units : budget;
            lock_serve_touched(m, fx);
        }
    return budget;
}

/* The same for its variables. */
static uint64_t reap_tables(struct machine *m, struct space *s, uint64_t budget)
{
    BELAY_CHECK(s->doomed);
    while (budget && !list_empty(&s->table_list)) {
        uint64_t units = reap_slot(m, list_item(s->table_list.next, struct table, in_space));
        budget -= units < budget ? units : budget;
    }
    return budget;
}

uint64_t namespace_reap(struct machine *m, uint64_t budget, struct effects *fx)
{
    list_each (it, &m->doomed) {
        struct space *s = list_item(it, struct space, in_doomed);
        budget = reap_locks(m, s, budget, fx);
        budget = reap_tables(m, s, budget);
    }
    return budget;
}

/* Deleted accounts that have nothing left. */
static void bury_accounts(struct machine *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n_accounts; i++) {
        struct account *a = m->accounts[i];
        if (a->gone && !a->n_doomed && !a->used[QUOTA_SESSIONS]) {
            BELAY_CHECK(a->n == 0 && a->n_tokens == 0);
            map_remove(&m->accounts_by_name, &a->by_name);
            account_free(a);
        } else {
            m->accounts[kept++] = a;
        }
    }
    m->n_accounts = kept;
    m->accounts_left = false;
}

void namespace_bury(struct machine *m)
{
    list_each_safe(it, &m->doomed)
    {
        struct space *s = list_item(it, struct space, in_doomed);
        if (space_is_empty(s)) {
            BELAY_CHECK(s->doomed && s->account->n_doomed > 0);
            s->account->n_doomed--;
            account_left(m, s->account);
            list_remove(it);
            space_free(s);
        }
    }
    if (m->accounts_left)
        bury_accounts(m);
}
