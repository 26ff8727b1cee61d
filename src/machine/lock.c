/* lock.c - locks and holds: how they come to be, end and vanish. */
#include "machine/lock.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/holders.h"
#include "machine/line.h"
#include "machine/sound.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

static bool same_name(struct map_node *node, const void *key)
{
    const struct slice *name = key;
    return slice_eq(lock_name(map_item(node, const struct lock, by_name)), *name);
}

struct lock *lock_locate(const struct machine *m, const struct space *s, struct slice name,
                         uint64_t *ret_hash)
{
    *ret_hash = hash_bytes(&m->key, name.data, name.len);
    struct map_node *n = map_find(&s->locks, *ret_hash, same_name, &name);
    BELAY_DCHECK(!n || map_item(n, struct lock, by_name)->space == s);
    return n ? map_item(n, struct lock, by_name) : NULL;
}

struct lock *lock_make(struct machine *m, struct space *s, struct slice name, uint64_t hash)
{
    BELAY_CHECK(name.len > 0 && name.len <= LIMIT_NAME_BYTES);
    BELAY_CHECK(name.len <= LIMIT_NAME_BYTES);
    struct lock *l = pool_alloc(&m->pool, sizeof *l + name.len);
    *l = (struct lock){.space = s, .name_len = (uint16_t)name.len};
    (void)slice_put(l->name, name);
    list_init(&l->holds);
    map_add(&s->locks, &l->by_name, hash);
    index_add(&s->index, l);
    m->locks++;
    s->account->used[QUOTA_LOCKS]++;
    BELAY_DCHECK(l->bucket && m->locks >= s->locks.count);
    return l;
}

struct lock *lock_find(const struct machine *m, const struct space *s, struct slice name)
{
    uint64_t hash;
    return lock_locate(m, s, name, &hash);
}

struct lock *lock_get(struct machine *m, struct space *s, struct slice name)
{
    BELAY_DCHECK(name.len > 0);
    uint64_t hash;
    struct lock *l = lock_locate(m, s, name, &hash);
    return l ? l : lock_make(m, s, name, hash);
}

void lock_free(struct machine *m, struct lock *l)
{
    BELAY_CHECK(!l->touched && !l->crowded && l->used == 0);
    BELAY_CHECK(list_empty(&l->holds));
    if (l->more) {
        BELAY_CHECK(list_empty(&l->more->waits));
        heap_remove(&m->ends, &l->more->closed);
        free(l->more->body);
        free(l->more);
    }
    index_remove(&l->space->index, l);
    map_remove(&l->space->locks, &l->by_name);
    BELAY_CHECK(m->locks > 0 && l->space->account->used[QUOTA_LOCKS] > 0);
    m->locks--;
    l->space->account->used[QUOTA_LOCKS]--;
    pool_free(&m->pool, l, sizeof *l + l->name_len);
}

struct more *lock_more(struct lock *l)
{
    if (!l->more) {
        l->more = mem_zalloc(sizeof *l->more);
        l->more->lock = l;
        list_init(&l->more->waits);
        list_init(&l->more->barring);
        l->more->closed.tag = END_CLOSED;
    }
    BELAY_CHECK(l->more->lock == l);
    return l->more;
}

void lock_drop_if_idle(struct machine *m, struct lock *l)
{
    BELAY_DCHECK(lock_is_sound(l));
    struct more *more = l->more;
    if (more && more->n_waits == 0 && !more->closed.pos && more->body_len == 0) {
        BELAY_CHECK(list_empty(&more->waits));
        BELAY_CHECK(!more->body && more->n_barring == 0 && more->n_timed == 0);
        free(more->body);
        free(more);
        l->more = more = NULL;
    }
    if (l->n_holds == 0 && (!more || more->n_waits == 0))
        l->capacity = 0; /* free to be another kind of lock */
    if (l->n_holds == 0 && !more)
        lock_free(m, l);
}

void lock_set_body(struct lock *l, struct slice body)
{
    BELAY_CHECK(body.len <= LIMIT_BODY_BYTES);
    if (body.len == 0 && !l->more)
        return;
    struct more *more = lock_more(l);
    BELAY_CHECK(l->space->account->used[QUOTA_BYTES] >= more->body_len);
    BELAY_CHECK((more->body == NULL) == (more->body_len == 0));
    l->space->account->used[QUOTA_BYTES] += body.len - more->body_len;
    free(more->body);
    more->body = body.len ? mem_dup(body.data, body.len) : NULL;
    more->body_len = body.len;
}

bool lock_is_closed(const struct lock *l, uint64_t now_ms)
{
    return l->more && l->more->closed.pos && l->more->closed.at > now_ms;
}

void lock_touch(struct machine *m, struct lock *l)
{
    lock_changed(m, l);
    BELAY_DCHECK(!l->touched || m->n_touched > 0);
    if (l->touched)
        return;
    l->touched = true;
    if (m->n_touched == m->cap_touched) {
        m->cap_touched = m->cap_touched ? m->cap_touched * 2 : 16;
        m->touched = mem_resize(m->touched, m->cap_touched * sizeof(struct lock *));
    }
    m->touched[m->n_touched++] = l;
}

/* Serving one line never touches another: grants end no holds and no waits but its own. */
void lock_serve_touched(struct machine *m, struct effects *fx)
{
    const size_t n = m->n_touched;
    for (size_t i = 0; i < m->n_touched; i++)
        line_serve(m, m->touched[i], fx);
    BELAY_CHECK(m->n_touched == n);
    for (size_t i = 0; i < n; i++) {
        BELAY_DCHECK(m->touched[i]->touched);
        m->touched[i]->touched = false;
        lock_drop_if_idle(m, m->touched[i]);
    }
    m->n_touched = 0;
}

/* Thousands in a row may be about the same lock: they share a copy. */
static struct slice copy_name(const struct lock *l, struct effects *fx)
{
    const struct event *last = fx->n ? &fx->events[fx->n - 1] : NULL;
    if (last && last->ns.data == l->space->name && slice_eq(last->name, lock_name(l)))
        return last->name;
    return arena_copy(&fx->arena, lock_name(l));
}

struct event *lock_news(const struct machine *m, const struct lock *l, enum event_kind kind,
                        struct effects *fx)
{
    const struct account *account = l->space->account;
    struct slice name = copy_name(l, fx);
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->at_ms = m->now_ms;
    ev->account = slice_of(account->name, account->name_len);
    ev->ns = slice_of(l->space->name, l->space->name_len); /* outlives the step */
    ev->name = name;
    return ev;
}

bool who_same(struct who a, struct who b)
{
    return a.session == b.session && slice_eq(a.owner, b.owner);
}

struct hold *hold_add(struct machine *m, struct lock *l, const struct grant *g, uint64_t fence)
{
    BELAY_CHECK(g->owner.len > 0 && g->owner.len <= LIMIT_OWNER_BYTES);
    BELAY_DCHECK(lock_is_sound(l));
    BELAY_CHECK(l->used <= l->capacity && l->capacity - l->used >= g->weight);
    BELAY_CHECK(fence > 0 && fence <= m->counter);
    BELAY_CHECK(g->weight > 0 && l->n_holds < LIMIT_HOLDERS);
    struct hold *h = pool_alloc(&m->pool, sizeof *h + g->owner.len);
    *h = (struct hold){.lock = l,
                       .session = g->session,
                       .asker = g->asker,
                       .since_ms = m->now_ms,
                       .terms = g->terms,
                       .weight = g->weight,
                       .token = g->token,
                       .owner_len = (uint8_t)g->owner.len,
                       .end = {.seq = fence, .tag = END_HOLD}};
    (void)slice_put(h->owner, g->owner);
    list_push_back(&l->holds, &h->in_lock);
    list_init(&h->in_session);
    if (h->session) {
        list_push_back(&h->session->holds, &h->in_session);
        h->session->n_items++;
        h->session->n_holds++;
    }
    l->used += h->weight;
    if (l->n_holds++ == 0)
        l->space->held++, m->held++;
    holders_add(m, h);
    BELAY_DCHECK(lock_is_sound(l));
    lock_changed(m, l);
    return h;
}

void hold_place(struct machine *m, struct hold *h)
{
    BELAY_DCHECK(hold_is_linked(h) && hold_fence(h) <= m->counter);
    heap_remove(&m->ends, &h->end); /* its place in the heap depends on the fence */
    holders_remove(h);
    h->end.seq = ++m->counter;
    list_remove(&h->in_lock);
    list_push_back(&h->lock->holds, &h->in_lock);
    holders_add(m, h);
    if (h->session) {
        list_remove(&h->in_session);
        list_push_back(&h->session->holds, &h->in_session);
    }
    BELAY_DCHECK(h->lock->holds.prev == &h->in_lock);
    lock_changed(m, h->lock);
}

/* A shared holder has come: the waits for quiet begin anew. */
static void disturb(struct machine *m, struct lock *l)
{
    if (!l->more || l->more->n_timed == 0)
        return;
    if (m->level >= LEVEL_PARTS) {
        l->more->quiet_from_ms = m->now_ms; /* each of them sees it when its turn comes */
        return;
    }
    if (l->more->disturbed == m->now_ms + 1)
        return; /* the waits of this very moment have not been quiet for longer */
    l->more->disturbed = m->now_ms + 1;
    BELAY_CHECK(l->capacity == CAPACITY_RW && l->more->n_timed <= l->more->n_waits);
    list_each (it, &l->more->waits) {
        struct wait *w = list_item(it, struct wait, in_lock);
        if (w->policy == POLICY_TIMED) {
            w->quiet_from_ms = m->now_ms;
            wait_arm(m, w);
        }
    }
}

/* News about a hold: who, what, where. The caller adds why. */
static struct event *hold_news(struct machine *m, const struct hold *h, enum event_kind kind,
                               struct effects *fx)
{
    BELAY_DCHECK(h->weight <= h->lock->capacity);
    struct event *ev = lock_news(m, h->lock, kind, fx);
    ev->owner = arena_copy(&fx->arena, hold_owner(h));
    ev->session = arena_copy(&fx->arena, session_id(h->session));
    ev->mode = mode_of(h->lock, h->weight);
    ev->fence = hold_fence(h);
    return ev;
}

struct event *hold_tell_grant(struct machine *m, const struct hold *h, struct effects *fx)
{
    const struct lock *l = h->lock;
    struct event *ev = hold_news(m, h, EVENT_GRANTED, fx);
    ev->asker = h->asker;
    ev->count = ev->mode == MODE_SEMAPHORE ? h->weight : 0;
    ev->forever = h->end.pos == 0;
    ev->expires_in_ms = hold_left(h, m->now_ms);
    if (l->more && l->more->body_len)
        ev->text = arena_copy(&fx->arena, slice_of(l->more->body, l->more->body_len));
    return ev;
}

struct event *hold_granted(struct machine *m, const struct hold *h, struct effects *fx)
{
    if (h->weight == SHARED_WEIGHT && h->lock->capacity == CAPACITY_RW)
        disturb(m, h->lock);
    return hold_tell_grant(m, h, fx);
}

/* By its ttl, by an operator, or because its session ended other than by SESSION CLOSE. */
static bool is_involuntary(enum event_kind kind, enum reason reason)
{
    return (kind == EVENT_EXPIRED || kind == EVENT_BROKEN) && reason != REASON_NAMESPACE;
}

/* The wait that wants to convert this hold, if there is one: it stands at the head. */
static struct wait *upgrade_of(const struct hold *h)
{
    const struct more *more = h->lock->more;
    if (!more || list_empty(&more->waits))
        return NULL;
    BELAY_CHECK(more->n_waits > 0);
    struct wait *first = list_item(more->waits.next, struct wait, in_lock);
    return first->upgrade == h ? first : NULL;
}

/* The last ones stand low in the heap, from where it costs least. */
void lock_forget_holders(struct machine *m, struct lock *l)
{
    for (struct list *it = l->holds.prev; it != &l->holds; it = it->prev)
        heap_remove(&m->ends, &list_item(it, struct hold, in_lock)->end);
    holders_free(l);
}

void hold_end(struct machine *m, struct hold *h, enum event_kind kind, enum reason reason,
              struct effects *fx)
{
    BELAY_DCHECK(hold_is_linked(h) && lock_is_sound(h->lock));
    struct lock *l = h->lock;
    struct event *ev = hold_news(m, h, kind, fx);
    ev->reason = reason;
    ev->count = 1;
    struct wait *upgrade = upgrade_of(h);
    if (upgrade)
        wait_end(m, upgrade, EVENT_REFUSED, REASON_LOST, fx);
    if (h->terms.delay_ms && is_involuntary(kind, reason)) {
        struct more *more = lock_more(l);
        uint64_t opens = m->now_ms + h->terms.delay_ms;
        if (!more->closed.pos) {
            more->closed.seq = hold_fence(h); /* unique: the fence is nobody's any more */
            heap_set(&m->ends, &more->closed, opens);
        } else if (more->closed.at < opens) {
            heap_set(&m->ends, &more->closed, opens);
        }
    }
    heap_remove(&m->ends, &h->end);
    holders_remove(h);
    list_remove(&h->in_lock);
    list_remove(&h->in_session);
    if (h->session) {
        BELAY_CHECK(h->session->n_holds > 0 && h->session->n_items >= h->session->n_holds);
        h->session->n_items--;
        h->session->n_holds--;
    }
    BELAY_DCHECK(l->space->held > 0 && m->held >= l->space->held);
    l->used -= h->weight;
    if (--l->n_holds == 0)
        l->space->held--, m->held--;
    BELAY_DCHECK(lock_is_sound(l));
    holders_shrink(l);
    pool_free(&m->pool, h, sizeof *h + h->owner_len);
    lock_touch(m, l);
}

void hold_expire(struct machine *m, struct hold *h, struct effects *fx)
{
    BELAY_DCHECK(over(&h->end, m->now_ms));
    if (h->terms.grace_ms == 0 || h->overdue) {
        hold_end(m, h, EVENT_EXPIRED, REASON_TTL, fx);
        return;
    }
    h->overdue = true;
    heap_set(&m->ends, &h->end, m->now_ms + h->terms.grace_ms);
    struct event *ev = hold_news(m, h, EVENT_OVERDUE, fx);
    ev->reason = REASON_TTL;
    ev->expires_in_ms = h->terms.grace_ms;
}
