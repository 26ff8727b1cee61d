/* map.h - intrusive hash table: chains, stored hashes, grows a few buckets at a time.
 *
 * The caller hashes, compares and owns the items; the table only links them. It has no order:
 * nothing that a user sees may depend on where an item stands (use machine/index for order).
 * Zero-initialised is empty and valid. */
#ifndef BELAY_BASE_MAP_H
#define BELAY_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_node {
    struct map_node *next;
    uint64_t hash;
};

struct map {
    struct map_node **slots, **old; /* `old` is being emptied into `slots` */
    size_t mask, old_mask;
    size_t moved; /* slots of `old` that are empty already */
    size_t count;
};

#define map_item(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

typedef bool map_same_fn(struct map_node *node, const void *key);

/* The node with that hash for which same(node, key) holds, or NULL. */
struct map_node *map_find(const struct map *m, uint64_t hash, map_same_fn *same,
                          const void *key);
void map_add(struct map *m, struct map_node *node, uint64_t hash); /* no check for a twin */
void map_remove(struct map *m, struct map_node *node);             /* it must be in there */
void map_done(struct map *m);                                      /* frees the table only */
#endif
