/* heap.c - deadlines in a 4-ary heap: what is due next. */
#include "base/heap.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdlib.h>

static inline bool before(const struct heap_node *a, const struct heap_node *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static inline void place(struct heap *h, size_t i, struct heap_node *n)
{
    h->slots[i] = n;
    n->pos = (uint32_t)i + 1;
}

static void sift_up(struct heap *h, size_t i)
{
    struct heap_node *n = h->slots[i];
    while (i > 0) {
        size_t parent = (i - 1) / 4;
        if (!before(n, h->slots[parent]))
            break;
        place(h, i, h->slots[parent]);
        i = parent;
    }
    place(h, i, n);
}

static void sift_down(struct heap *h, size_t i)
{
    struct heap_node *n = h->slots[i];
    for (;;) {
        size_t first = i * 4 + 1;
        if (first >= h->count)
            break;
        size_t least = first;
        size_t last = first + 4 < h->count ? first + 4 : h->count;
        for (size_t c = first + 1; c < last; c++)
            if (before(h->slots[c], h->slots[least]))
                least = c;
        if (!before(h->slots[least], n))
            break;
        place(h, i, h->slots[least]);
        i = least;
    }
    place(h, i, n);
}

void heap_set(struct heap *h, struct heap_node *n, uint64_t at)
{
    n->at = at;
    if (!n->pos) {
        BELAY_CHECK(h->count < UINT32_MAX);
        if (h->count == h->cap) {
            h->cap = h->cap ? h->cap * 2 : 64;
            h->slots = mem_resize(h->slots, h->cap * sizeof(struct heap_node *));
        }
        place(h, h->count++, n);
    }
    sift_up(h, n->pos - 1);
    sift_down(h, n->pos - 1);
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    if (!n->pos)
        return;
    size_t i = n->pos - 1;
    struct heap_node *last = h->slots[--h->count];
    n->pos = 0;
    if (last == n)
        return;
    place(h, i, last);
    sift_up(h, i);
    sift_down(h, last->pos - 1);
}

void heap_done(struct heap *h)
{
    free(h->slots);
    *h = (struct heap){0};
}
