/* arena.h - many small pieces of memory with one end.
 *
 * Pieces never move and are given back together by arena_reset() or arena_done().
 * Zero-initialised is empty and valid. Out of memory stops the process (server use);
 * with `may_fail` set it returns NULL instead (client use). */
#ifndef BELAY_BASE_ARENA_H
#define BELAY_BASE_ARENA_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t cap;
    _Alignas(max_align_t) char mem[];
};

struct arena {
    struct arena_chunk
        *first;  /* kept by arena_reset(); the others hang behind it, newest first */
    char *at;    /* the next piece */
    size_t left; /* bytes from `at` on */
    bool may_fail;
};

void *arena_grow(struct arena *a, size_t bytes); /* a piece of a new chunk */
void arena_free_rest(struct arena *a);           /* all chunks but the first */
void arena_done(struct arena *a);

/* Aligned for anything, uninitialised. */
static inline void *arena_alloc(struct arena *a, size_t bytes)
{
    const size_t align = _Alignof(max_align_t);
    bytes = (bytes + align - 1) / align * align;
    if (a->left <= bytes) /* also for 0 bytes of an empty arena: never NULL */
        return arena_grow(a, bytes);
    void *p = a->at;
    a->at += bytes;
    a->left -= bytes;
    return p;
}

static inline struct slice arena_copy(struct arena *a,
                                      struct slice s) /* data is NULL: failed */
{
    if (s.len == 0)
        return slice_of("", 0);
    char *p = arena_alloc(a, s.len);
    if (!p)
        return slice_of(NULL, 0);
    (void)slice_put(p, s);
    return slice_of(p, s.len);
}

/* All pieces end, one chunk stays. */
static inline void arena_reset(struct arena *a)
{
    if (!a->first)
        return;
    if (a->first->next)
        arena_free_rest(a);
    a->at = a->first->mem;
    a->left = a->first->cap;
}
#endif
