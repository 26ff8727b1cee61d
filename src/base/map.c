/* map.c - an intrusive hash table that grows a few buckets at a time. */
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
    m->slots = mem_zalloc(n * sizeof(struct map_node *));
    m->mask = n - 1;
}

static struct map_node *find_in(struct map_node *chain, uint64_t hash, map_same_fn *same,
                                const void *key)
{
    for (; chain; chain = chain->next)
        if (chain->hash == hash && same(chain, key))
            return chain;
    return NULL;
}

struct map_node *map_find(const struct map *m, uint64_t hash, map_same_fn *same,
                          const void *key)
{
    if (!m->slots)
        return NULL;
    struct map_node *n = find_in(m->slots[hash & m->mask], hash, same, key);
    if (n || !m->old)
        return n;
    return find_in(m->old[hash & m->old_mask], hash, same, key);
}

/* A chain that was moved hangs together in the new table, so `node` tells which table it is in:
 * the old one only as long as its slot there is not yet moved. */
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
