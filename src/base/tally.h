/* tally.h - how much memory this program has allocated, counted at the allocator.
 *
 * The linker sends every malloc(), calloc(), realloc(), aligned_alloc() and free() of our own
 * objects here (--wrap, see the Makefile: the belay binary only). Each block counts with what
 * the allocator gave for it. Libraries that allocate by themselves are not seen; libuv and
 * libraft are told to use ours.
 *
 * A reserve is kept for the moment when the allocator has nothing left: it is given up once and
 * the allocation is tried again. Then tally_is_short() until the reserve could be taken back:
 * meanwhile the server refuses requests that need memory. Any thread. */
#ifndef BELAY_BASE_TALLY_H
#define BELAY_BASE_TALLY_H

#include <stdbool.h>
#include <stddef.h>

size_t tally_bytes(void);
void tally_keep_reserve(size_t bytes); /* also to take it back, from time to time */
bool tally_is_short(void);

/* For tally_wrap.c. */
void tally_add(size_t bytes);
void tally_subtract(size_t bytes);
bool tally_give_up(void); /* the reserve; true: there is more memory now than a moment ago */

/* For libraries that can be told what to use. */
void *tally_malloc(size_t bytes);
void *tally_calloc(size_t n, size_t bytes);
void *tally_realloc(void *old, size_t bytes);
void tally_free(void *block);
#endif
