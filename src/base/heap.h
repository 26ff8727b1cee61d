/* heap.h - what is due next: a 4-ary heap of deadlines inside other structs.
 *
 * The order is total: by (at, seq). It depends on the entries alone and not on how they came
 * in, so two replicas, or one before and after a snapshot, take the same next one. */
#ifndef BELAY_BASE_HEAP_H
#define BELAY_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    uint64_t at;  /* when */
    uint64_t seq; /* breaks ties; unique among the entries of one heap */
    uint32_t pos; /* 1-based place in the heap, 0: not in it */
    uint32_t tag; /* the owner's: what kind of thing this is */
};

struct heap {
    struct heap_node **slots;
    size_t count, cap;
};

#define heap_item(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

void heap_set(struct heap *h, struct heap_node *n, uint64_t at); /* adds or moves; seq stays */
void heap_remove(struct heap *h, struct heap_node *n);         /* not in it: nothing happens */
static inline struct heap_node *heap_top(const struct heap *h) /* NULL when empty */
{
    return h->count ? h->slots[0] : NULL;
}
void heap_done(struct heap *h);
#endif
