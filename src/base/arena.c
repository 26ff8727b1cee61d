#include "base/arena.h"

#include "base/check.h"

#include <stdlib.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t cap;
    _Alignas(max_align_t) char mem[];
};

enum { ARENA_CHUNK_BYTES = 8192 };

static void free_chain(struct arena_chunk *c)
{
    while (c) {
        struct arena_chunk *next = c->next;
        free(c);
        c = next;
    }
}

static bool grow(struct arena *a, size_t bytes)
{
    size_t cap = bytes > ARENA_CHUNK_BYTES ? bytes : ARENA_CHUNK_BYTES;
    struct arena_chunk *c = malloc(sizeof *c + cap);
    if (!c) {
        BELAY_CHECK(a->may_fail);
        return false;
    }
    *c = (struct arena_chunk){.cap = cap};
    if (a->now)
        a->now->next = c;
    else
        a->first = c;
    a->now = c;
    a->used = 0;
    return true;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    const size_t align = _Alignof(max_align_t);
    bytes = (bytes + align - 1) / align * align;
    if ((!a->now || a->now->cap - a->used < bytes) && !grow(a, bytes))
        return NULL;
    void *p = a->now->mem + a->used;
    a->used += bytes;
    return p;
}

struct slice arena_copy(struct arena *a, struct slice s)
{
    if (s.len == 0)
        return slice_of("", 0);
    char *p = arena_alloc(a, s.len);
    if (!p)
        return slice_of(NULL, 0);
    memcpy(p, s.data, s.len);
    return slice_of(p, s.len);
}

void arena_reset(struct arena *a)
{
    if (!a->first)
        return;
    free_chain(a->first->next);
    a->first->next = NULL;
    a->now = a->first;
    a->used = 0;
}

void arena_done(struct arena *a)
{
    free_chain(a->first);
    *a = (struct arena){.may_fail = a->may_fail};
}
