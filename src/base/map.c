#include "base/map.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdlib.h>

enum { MAP_SLOTS_MIN = 16, MAP_MOVE_STEP = 8 };

/* Moves a few chains out of `old`: the price of growing, paid in small coins. */
static void move_some(struct map *m, size_t steps)
{
    for (; m->old && steps; steps--) {
        struct map_node *n = m->old[m->moved];
        while (n) {
            struct map_node *next = n->next;
            n->next = m->slots[n->hash & m->mask];
            m->slots[n->hash & m->mask] = n;
            n = next;
        }
        m->old[m->moved] = NULL;
        if (++m->moved > m->old_mask) {
            free(m->old);
            m->old = NULL;
        }
    }
}

static void grow(struct map *m)
{
    BELAY_CHECK(m->old == NULL);
    size_t n = m->slots ? (m->mask + 1) * 2 : MAP_SLOTS_MIN;
    if (m->slots) {
        m->old = m->slots;
        m->old_mask = m->mask;
        m->moved = 0;
    }
    m->slots = mem_zalloc(n * sizeof *m->slots);
    m->mask = n - 1;
}

struct map_node *map_find(const struct map *m, uint64_t hash, map_same_fn *same,
                          const void *key)
{
    if (!m->slots)
        return NULL;
    for (struct map_node *n = m->slots[hash & m->mask]; n; n = n->next)
        if (n->hash == hash && same(n, key))
            return n;
    if (!m->old)
        return NULL;
    for (struct map_node *n = m->old[hash & m->old_mask]; n; n = n->next)
        if (n->hash == hash && same(n, key))
            return n;
    return NULL;
}

void map_add(struct map *m, struct map_node *node, uint64_t hash)
{
    move_some(m, MAP_MOVE_STEP);
    if (!m->slots || (m->count > m->mask && !m->old))
        grow(m);
    node->hash = hash;
    node->next = m->slots[hash & m->mask];
    m->slots[hash & m->mask] = node;
    m->count++;
}

static bool unlink_from(struct map_node **chain, struct map_node *node)
{
    for (; *chain; chain = &(*chain)->next) {
        if (*chain == node) {
            *chain = node->next;
            return true;
        }
    }
    return false;
}

void map_remove(struct map *m, struct map_node *node)
{
    bool found = unlink_from(&m->slots[node->hash & m->mask], node) ||
                 (m->old && unlink_from(&m->old[node->hash & m->old_mask], node));
    BELAY_CHECK(found);
    m->count--;
    move_some(m, MAP_MOVE_STEP);
}

void map_done(struct map *m)
{
    free(m->slots);
    free(m->old);
    *m = (struct map){0};
}
