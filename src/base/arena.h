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

struct arena_chunk;
struct arena {
    struct arena_chunk *first; /* kept by arena_reset() */
    struct arena_chunk *now;
    size_t used; /* in `now` */
    bool may_fail;
};

void *arena_alloc(struct arena *a, size_t bytes); /* aligned for anything, uninitialised */
struct slice arena_copy(struct arena *a, struct slice s); /* data is NULL when it failed */
void arena_reset(struct arena *a);                        /* all pieces end, one chunk stays */
void arena_done(struct arena *a);
#endif
