/* pool.h - small blocks that come and go with every request.
 *
 * A stock of blocks that were given back, a few of each size: the next of that size takes one
 * of them, for a fifth of the price of malloc() and free(). Every block is one of malloc():
 * what is still in use when everything ends may go with free(). Zero-initialised is empty and
 * valid. AddressSanitizer sees a use of what is in stock. */
#ifndef BELAY_BASE_POOL_H
#define BELAY_BASE_POOL_H

#include "base/mem.h"

#include <sanitizer/asan_interface.h> /* nothing at all in other builds */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Sizes are 8, 24, 40, ... bytes: what malloc() has in a block beside its own 8. */
enum { POOL_STEP = 16, POOL_LEAST = 8, POOL_SIZES = 16, POOL_KEEP = 64 /* of a size */ };

struct pool_block {
    struct pool_block *next;
};

struct pool {
    struct pool_block *first[POOL_SIZES];
    uint8_t n[POOL_SIZES];
};

static inline size_t pool_size(size_t bytes) /* which one */
{
    return (bytes + POOL_STEP - POOL_LEAST - 1) / POOL_STEP;
}

static inline size_t pool_bytes(size_t size)
{
    return size * POOL_STEP + POOL_LEAST;
}

static inline struct pool_block *pool_take(struct pool *p, size_t size)
{
    struct pool_block *b = p->first[size];
    ASAN_UNPOISON_MEMORY_REGION(b, pool_bytes(size));
    p->first[size] = b->next;
    p->n[size]--;
    return b;
}

/* bytes > 0; uninitialised; never NULL. */
static inline void *pool_alloc(struct pool *p, size_t bytes)
{
    size_t size = pool_size(bytes);
    if (size >= POOL_SIZES || !p->first[size])
        return mem_alloc(pool_bytes(size));
    return pool_take(p, size);
}

/* Takes `block`, of as many bytes as it was asked with. */
static inline void pool_free(struct pool *p, void *block, size_t bytes)
{
    size_t size = pool_size(bytes);
    if (size >= POOL_SIZES || p->n[size] == POOL_KEEP) {
        free(block);
        return;
    }
    struct pool_block *b = block;
    b->next = p->first[size];
    p->first[size] = b;
    p->n[size]++;
    ASAN_POISON_MEMORY_REGION(b, pool_bytes(size));
}

static inline void pool_done(struct pool *p)
{
    for (size_t i = 0; i < POOL_SIZES; i++)
        while (p->first[i])
            free(pool_take(p, i));
}
#endif
