/* deadlock.c - a wait that would close a cycle is refused before it begins.
 *
 * A walk over "waits for": from the lock that is wanted to its holders, from a holder to the
 * locks it waits for, and so on; when it comes back to the one who asks, that is the cycle.
 * Bounded in depth and in edges. Semaphores are left out: a permit may come from anybody. */
#include "base/check.h"
#include "machine/state.h"

enum { DEADLOCK_EDGES_MAX = 1024, DEADLOCK_WAITS_MAX = 16 };

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
        if (++w->edges > DEADLOCK_EDGES_MAX)
            break;
        if (who_same(holder, w->origin) || visit_holder(w, holder))
            return true;
    }
    w->depth--;
    return false;
}

static bool visit_holder(struct walk *w, struct who holder)
{
    struct wait *waits[DEADLOCK_WAITS_MAX];
    size_t n = wait_all_of(w->m, w->locks[0]->space, holder, waits, DEADLOCK_WAITS_MAX);
    for (size_t i = 0; i < n; i++)
        if (visit_lock(w, holder, waits[i]->lock))
            return true;
    return false;
}

bool deadlock_found(const struct machine *m, const struct lock *l, struct who who,
                    struct effects *fx, struct cycle_step **ret_cycle, size_t *ret_n)
{
    struct walk w = {.m = m, .origin = who};
    if (l->space->waiting == 0 || !visit_lock(&w, who, l))
        return false;
    struct cycle_step *cycle = arena_alloc(&fx->arena, w.depth * sizeof *cycle);
    for (size_t i = 0; i < w.depth; i++) {
        cycle[i].owner = arena_copy(&fx->arena, w.path[i].owner);
        cycle[i].name = arena_copy(&fx->arena, lock_name(w.locks[i]));
    }
    *ret_cycle = cycle;
    *ret_n = w.depth;
    return true;
}
