/* arena.c - many small pieces of memory that are given back together. */
#include "base/arena.h"

#include "base/check.h"

#include <stdlib.h>

enum { ARENA_CHUNK_BYTES = 8192 };

void *arena_grow(struct arena *a, size_t bytes)
{
    size_t cap = bytes > ARENA_CHUNK_BYTES ? bytes : ARENA_CHUNK_BYTES;
    struct arena_chunk *c = malloc(sizeof *c + cap);
    if (!c) {
        BELAY_CHECK(a->may_fail);
        return NULL;
    }
    struct arena_chunk **place = a->first ? &a->first->next : &a->first;
    *c = (struct arena_chunk){.next = *place, .cap = cap};
    *place = c;
    a->at = c->mem + bytes;
    a->left = cap - bytes;
    return c->mem;
}

static void free_chain(struct arena_chunk *c)
{
    while (c) {
        struct arena_chunk *next = c->next;
        free(c);
        c = next;
    }
}

void arena_free_rest(struct arena *a)
{
    free_chain(a->first->next);
    a->first->next = NULL;
}

void arena_done(struct arena *a)
{
    free_chain(a->first);
    *a = (struct arena){.may_fail = a->may_fail};
}
