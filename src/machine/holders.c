/* holders.c - the holders of a lock with many of them, by fence and by who they are.
 *
 * Most locks have one holder: those are found by walking. A lock with CROWD_MIN holders gets a
 * crowd, and keeps it until half of them are gone. It is not part of the state: what is found
 * is the same with and without it. */
#include "machine/holders.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/lock.h"
#include "machine/session.h"

#include <stdlib.h>

enum { CROWD_MIN = 32 };

/* The holds of one owner, whatever their session. */
struct holder_group {
    struct map_node by_owner;
    struct list members; /* by fence; never empty */
};

struct holder_member {
    struct map_node by_fence, by_who;
    struct list in_group;
    struct holder_group *group;
    struct hold *hold;
};

struct crowd {
    struct map_node by_lock;
    struct lock *lock;
    struct map by_fence, by_who, by_owner;
};

static uint64_t hash_number(uint64_t number)
{
    number *= UINT64_C(0x9e3779b97f4a7c15);
    return number ^ number >> 32;
}

static bool same_lock(struct map_node *node, const void *key)
{
    return map_item(node, const struct crowd, by_lock)->lock == key;
}

static struct crowd *crowd_of(const struct lock *l)
{
    struct map_node *n = map_find(&l->space->crowds, l->by_name.hash, same_lock, l);
    BELAY_CHECK(n);
    return map_item(n, struct crowd, by_lock);
}

static bool same_fence(struct map_node *node, const void *key)
{
    return hold_fence(map_item(node, const struct holder_member, by_fence)->hold) ==
           *(const uint64_t *)key;
}

static struct holder_member *with_fence(const struct crowd *c, uint64_t fence)
{
    BELAY_DCHECK(fence > 0);
    struct map_node *n = map_find(&c->by_fence, hash_number(fence), same_fence, &fence);
    return n ? map_item(n, struct holder_member, by_fence) : NULL;
}

static bool same_who(struct map_node *node, const void *key)
{
    const struct hold *h = map_item(node, const struct holder_member, by_who)->hold;
    return who_same((struct who){hold_owner(h), h->session}, *(const struct who *)key);
}

static struct slice group_owner(const struct holder_group *g)
{
    BELAY_CHECK(!list_empty(&g->members));
    return hold_owner(list_item(g->members.next, const struct holder_member, in_group)->hold);
}

static bool same_owner(struct map_node *node, const void *key)
{
    return slice_eq(group_owner(map_item(node, const struct holder_group, by_owner)),
                    *(const struct slice *)key);
}

static struct holder_group *group_of(const struct machine *m, const struct crowd *c,
                                     struct slice owner)
{
    BELAY_DCHECK(owner.len > 0);
    uint64_t hash = hash_bytes(&m->key, owner.data, owner.len);
    struct map_node *n = map_find(&c->by_owner, hash, same_owner, &owner);
    return n ? map_item(n, struct holder_group, by_owner) : NULL;
}

static void join(struct machine *m, struct crowd *c, struct hold *h)
{
    BELAY_DCHECK(!with_fence(c, hold_fence(h)));
    BELAY_CHECK(h->lock == c->lock);
    struct slice owner = hold_owner(h);
    struct holder_member *one = mem_zalloc(sizeof *one);
    one->hold = h;
    one->group = group_of(m, c, owner);
    if (!one->group) {
        one->group = mem_zalloc(sizeof *one->group);
        list_init(&one->group->members);
        map_add(&c->by_owner, &one->group->by_owner,
                hash_bytes(&m->key, owner.data, owner.len));
    }
    list_push_back(&one->group->members, &one->in_group);
    map_add(&c->by_fence, &one->by_fence, hash_number(hold_fence(h)));
    map_add(&c->by_who, &one->by_who, who_hash(m, (struct who){owner, h->session}));
}

static void leave(struct crowd *c, struct holder_member *one)
{
    BELAY_CHECK(one && one->hold->lock == c->lock);
    map_remove(&c->by_fence, &one->by_fence);
    map_remove(&c->by_who, &one->by_who);
    BELAY_DCHECK(c->by_fence.count == c->by_who.count);
    list_remove(&one->in_group);
    if (list_empty(&one->group->members)) {
        map_remove(&c->by_owner, &one->group->by_owner);
        free(one->group);
    }
    free(one);
}

static void gather(struct machine *m, struct lock *l)
{
    BELAY_CHECK(!l->crowded);
    struct crowd *c = mem_zalloc(sizeof *c);
    c->lock = l;
    l->crowded = true;
    map_add(&l->space->crowds, &c->by_lock, l->by_name.hash);
    list_each (it, &l->holds)
        join(m, c, list_item(it, struct hold, in_lock));
    BELAY_CHECK(c->by_fence.count == l->n_holds && c->by_who.count == l->n_holds);
}

void holders_free(struct lock *l)
{
    if (!l->crowded)
        return;
    struct crowd *c = crowd_of(l);
    struct holder_member **members =
        mem_alloc((l->n_holds + 1) * sizeof(struct holder_member *));
    size_t n = 0;
    list_each (it, &l->holds)
        members[n++] = with_fence(c, hold_fence(list_item(it, struct hold, in_lock)));
    BELAY_CHECK(c->by_fence.count == n && n == l->n_holds);
    for (size_t i = 0; i < n; i++) { /* not out of the tables: those go as a whole */
        list_remove(&members[i]->in_group);
        if (list_empty(&members[i]->group->members))
            free(members[i]->group);
        free(members[i]);
    }
    free(members);
    map_done(&c->by_fence);
    map_done(&c->by_who);
    map_done(&c->by_owner);
    map_remove(&l->space->crowds, &c->by_lock);
    free(c);
    l->crowded = false;
}

void holders_add(struct machine *m, struct hold *h)
{
    BELAY_CHECK(!list_empty(&h->in_lock));
    if (h->lock->crowded)
        join(m, crowd_of(h->lock), h);
    else if (h->lock->n_holds >= CROWD_MIN)
        gather(m, h->lock);
}

void holders_remove(struct hold *h)
{
    struct lock *l = h->lock;
    if (!l->crowded)
        return;
    struct crowd *c = crowd_of(l);
    leave(c, with_fence(c, hold_fence(h)));
    BELAY_CHECK(c->by_fence.count == l->n_holds - 1);
}

void holders_shrink(struct lock *l)
{
    BELAY_CHECK(l->n_holds <= LIMIT_HOLDERS);
    if (l->n_holds < CROWD_MIN / 2)
        holders_free(l);
}

struct hold *holder_by_fence(const struct lock *l, uint64_t fence)
{
    BELAY_DCHECK(fence > 0);
    if (l->crowded) {
        const struct holder_member *one = with_fence(crowd_of(l), fence);
        return one ? one->hold : NULL;
    }
    list_each (it, &l->holds) {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (hold_fence(h) == fence)
            return h;
    }
    return NULL;
}

struct hold *holder_by_who(const struct machine *m, const struct lock *l, struct who who)
{
    if (l->crowded) {
        BELAY_DCHECK(l->n_holds >= CROWD_MIN / 2);
        struct map_node *n = map_find(&crowd_of(l)->by_who, who_hash(m, who), same_who, &who);
        return n ? map_item(n, struct holder_member, by_who)->hold : NULL;
    }
    list_each (it, &l->holds) {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (who_same((struct who){hold_owner(h), h->session}, who))
            return h;
    }
    return NULL;
}

struct hold *holder_next(const struct machine *m, const struct lock *l, struct slice owner,
                         const struct hold *after)
{
    BELAY_CHECK(!after || after->lock == l);
    if (l->crowded) {
        const struct crowd *c = crowd_of(l);
        struct holder_group *g = group_of(m, c, owner);
        if (!g)
            return NULL;
        struct list *at =
            after ? with_fence(c, hold_fence(after))->in_group.next : g->members.next;
        return at == &g->members ? NULL
                                 : list_item(at, const struct holder_member, in_group)->hold;
    }
    for (struct list *at = after ? after->in_lock.next : l->holds.next; at != &l->holds;
         at = at->next) {
        struct hold *h = list_item(at, struct hold, in_lock);
        if (slice_eq(hold_owner(h), owner))
            return h;
    }
    return NULL;
}

/* --- by fence or by owner --- */

static bool names_hold(const struct op *op, const struct hold *h, uint64_t now_ms)
{
    BELAY_DCHECK(h->weight > 0 && h->weight <= h->lock->used);
    bool same_session = slice_eq(session_id(h->session), op->session);
    if (hold_over(h, now_ms) || (op->flags & OP_OVER && same_session))
        return false;
    if (op->fence)
        return hold_fence(h) == op->fence;
    if (op->flags & OP_ANYONE)
        return true;
    return slice_eq(hold_owner(h), op->owner) && (op->session.len == 0 || same_session);
}

struct hold *holder_named(const struct machine *m, const struct lock *l, const struct op *op,
                          uint64_t now_ms, struct hold *after)
{
    BELAY_CHECK(!after || after->lock == l);
    bool one = op->fence || (op->session.len && !(op->flags & OP_ANYONE));
    struct hold *h = after;
    do {
        if (one && after)
            return NULL;
        if (op->fence) {
            h = holder_by_fence(l, op->fence);
        } else if (op->flags & OP_ANYONE) {
            struct list *at = h ? h->in_lock.next : l->holds.next;
            h = at == &l->holds ? NULL : list_item(at, struct hold, in_lock);
        } else if (op->session.len) {
            const struct session *session = session_find(m, op->account, op->session);
            h = session ? holder_by_who(m, l, (struct who){op->owner, session}) : NULL;
        } else {
            h = holder_next(m, l, op->owner, h);
        }
    } while (h && !one && !names_hold(op, h, now_ms));
    return h && names_hold(op, h, now_ms) ? h : NULL;
}
