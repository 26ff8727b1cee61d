/* deadlock.c - a wait that would close a cycle is refused before it begins.
 *
 * A search over "waits for": from the lock that is wanted to its holders, from a holder to the
 * locks it waits for, and so on; when it comes back to the one who asks, that is the cycle.
 * Breadth first, so that it is a shortest one: holders by fence, waits by ticket. Each
 * waiter and each lock is looked at once, and the number of edges is bounded: so is the time,
 * whatever the length of a cycle. Semaphores are left out: a permit may come from
 * anybody. */
#include "machine/deadlock.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/level.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/txn_wait.h"

enum { DEADLOCK_EDGES_MAX = 16384, DEADLOCK_HOLDERS_MAX = 1024 };

struct search {
    struct machine *m;
    const struct space *space;
    struct who origin;
    size_t n, edges;
};

static struct search_step *add_step(struct search *s, struct who waiter, const struct lock *l)
{
    BELAY_CHECK(s->n <= s->m->cap_steps);
    struct machine *m = s->m;
    if (s->n == m->cap_steps) {
        m->cap_steps = m->cap_steps ? m->cap_steps * 2 : 64;
        m->steps = mem_resize(m->steps, m->cap_steps * sizeof *m->steps);
    }
    m->steps[s->n] = (struct search_step){.waiter = waiter, .lock = l};
    return &m->steps[s->n++];
}

/* What this holder waits for comes next, if nobody has led there before. */
static void add_waits(struct search *s, struct who holder, size_t from)
{
    struct waiter *v = waiter_find(s->m, s->space, holder);
    if (!v || v->searched == s->m->searches)
        return;
    v->searched = s->m->searches;
    list_each (it, &v->waits) {
        const struct lock *l = list_item(it, struct wait, in_waiter)->lock;
        BELAY_DCHECK(l->space == s->space && l->more && l->more->n_waits > 0);
        if (l->capacity != CAPACITY_RW || l->more->searched == s->m->searches)
            continue;
        if (s->edges++ >= DEADLOCK_EDGES_MAX)
            return;
        l->more->searched = s->m->searches;
        add_step(s, holder, l)->from = from;
    }
}

/* Does a holder of that lock close the cycle? */
static bool look_at(struct search *s, size_t at)
{
    BELAY_CHECK(at < s->n);
    const struct lock *l = s->m->steps[at].lock;
    struct who waiter = s->m->steps[at].waiter;
    size_t holders = 0;
    list_each (it, &l->holds) {
        const struct hold *h = list_item(it, const struct hold, in_lock);
        struct who holder = {hold_owner(h), h->session};
        if (who_same(holder, waiter))
            continue; /* an upgrade does not wait for itself */
        if (h->session && h->session->ending != REASON_NONE)
            continue; /* it waits for nothing any more */
        if (holders++ >= DEADLOCK_HOLDERS_MAX || s->edges++ >= DEADLOCK_EDGES_MAX)
            return false;
        if (who_same(holder, s->origin))
            return true;
        add_waits(s, holder, at);
    }
    return false;
}

static size_t cycle_length(const struct machine *m, size_t last)
{
    size_t n = 1;
    for (; last; last = m->steps[last].from, n++)
        BELAY_CHECK(m->steps[last].from < last); /* it leads back to the first, and ends */
    return n;
}

/* Of a long cycle the first LIMIT_CYCLE steps are told. */
static struct cycle_step *tell_cycle(const struct machine *m, size_t last, struct effects *fx,
                                     size_t *ret_n)
{
    size_t length = cycle_length(m, last);
    *ret_n = length < LIMIT_CYCLE ? length : LIMIT_CYCLE;
    BELAY_CHECK(*ret_n > 0 && *ret_n <= LIMIT_CYCLE);
    struct cycle_step *cycle = arena_alloc(&fx->arena, *ret_n * sizeof *cycle);
    for (size_t i = length; i-- > 0; last = m->steps[last].from)
        if (i < *ret_n) {
            cycle[i].owner = arena_copy(&fx->arena, m->steps[last].waiter.owner);
            cycle[i].name = arena_copy(&fx->arena, lock_name(m->steps[last].lock));
        }
    return cycle;
}

static bool find_cycle(struct machine *m, const struct lock *l, struct who who,
                       struct effects *fx, struct cycle_step **ret_cycle, size_t *ret_n)
{
    struct search s = {.m = m, .space = l->space, .origin = who};
    m->searches++;
    add_step(&s, who, l)->from = 0; /* may be looked at once more, when another waits for it */
    for (size_t at = 0; at < s.n && s.edges < DEADLOCK_EDGES_MAX; at++)
        if (look_at(&s, at)) {
            *ret_cycle = tell_cycle(m, at, fx, ret_n);
            return true;
        }
    return false;
}

/* --- as it was before LEVEL_LONG_CYCLES --- */

enum { OLD_EDGES_MAX = 1024, OLD_WAITS_MAX = 16 };

struct walk {
    const struct machine *m;
    struct who origin;
    struct who path[LIMIT_CYCLE]; /* path[i] waits for locks[i] */
    const struct lock *locks[LIMIT_CYCLE];
    size_t depth;
    size_t edges;
};

static bool visit_holder(struct walk *w, struct who holder);

/* Does some holder of `l` lead back to the origin? */
static bool visit_lock(struct walk *w, struct who waiter, const struct lock *l)
{
    if (w->depth == LIMIT_CYCLE || l->capacity != CAPACITY_RW)
        return false;
    w->path[w->depth] = waiter;
    w->locks[w->depth++] = l;
    list_each (it, &l->holds) {
        const struct hold *h = list_item(it, const struct hold, in_lock);
        struct who holder = {hold_owner(h), h->session};
        if (who_same(holder, waiter))
            continue; /* an upgrade does not wait for itself */
        if (++w->edges > OLD_EDGES_MAX)
            break;
        if (who_same(holder, w->origin) || visit_holder(w, holder))
            return true;
    }
    BELAY_CHECK(w->depth > 0 && w->depth <= LIMIT_CYCLE);
    w->depth--;
    return false;
}

static bool visit_holder(struct walk *w, struct who holder)
{
    struct wait *waits[OLD_WAITS_MAX];
    size_t n = wait_all_of(w->m, w->locks[0]->space, holder, waits, OLD_WAITS_MAX);
    BELAY_DCHECK(n <= OLD_WAITS_MAX);
    for (size_t i = 0; i < n; i++)
        if (visit_lock(w, holder, waits[i]->lock))
            return true;
    return false;
}

static bool find_short_cycle(const struct machine *m, const struct lock *l, struct who who,
                             struct effects *fx, struct cycle_step **ret_cycle, size_t *ret_n)
{
    struct walk w = {.m = m, .origin = who};
    if (!visit_lock(&w, who, l))
        return false;
    BELAY_CHECK(w.depth > 0 && w.depth <= LIMIT_CYCLE);
    struct cycle_step *cycle = arena_alloc(&fx->arena, w.depth * sizeof *cycle);
    for (size_t i = 0; i < w.depth; i++) {
        cycle[i].owner = arena_copy(&fx->arena, w.path[i].owner);
        cycle[i].name = arena_copy(&fx->arena, lock_name(w.locks[i]));
    }
    *ret_cycle = cycle;
    *ret_n = w.depth;
    return true;
}

bool deadlock_found(struct machine *m, const struct lock *l, struct who who, struct effects *fx,
                    struct cycle_step **ret_cycle, size_t *ret_n)
{
    if (l->space->waiting == 0 || l->capacity != CAPACITY_RW)
        return false;
    BELAY_CHECK(l->space->waiting <= m->waiting);
    return m->level >= LEVEL_LONG_CYCLES ? find_cycle(m, l, who, fx, ret_cycle, ret_n)
                                         : find_short_cycle(m, l, who, fx, ret_cycle, ret_n);
}
