/* rank.h - the place of an item in a long row, without counting those before it.
 *
 * Items are put at either end and taken out anywhere; all of it takes O(log n) steps. A treap:
 * a search tree by place, a heap by a mixed number, so that it stays flat whatever comes and
 * goes. The row has no other use: keep a list to walk it. Zero-initialised is empty and valid.
 */
#ifndef BELAY_BASE_RANK_H
#define BELAY_BASE_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rank_node {
    struct rank_node *up, *left, *right;
    uint32_t count;    /* of itself and what is below it */
    uint32_t priority; /* never above that of the node above it */
};

struct rank {
    struct rank_node *root;
};

/* `number` shall differ among the items of a row; it decides how deep they stand, not where. */
void rank_push_back(struct rank *r, struct rank_node *n, uint64_t number);
void rank_push_front(struct rank *r, struct rank_node *n, uint64_t number);
void rank_remove(struct rank *r, struct rank_node *n); /* it must be in there */
size_t rank_of(const struct rank_node *n);             /* 1: first */
/* The first that is behind, NULL: none is. From one that is behind on, all must be. */
struct rank_node *rank_first(const struct rank *r,
                             bool (*is_behind)(struct rank_node *n, uint64_t key),
                             uint64_t key);
#endif
