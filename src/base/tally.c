/* tally.c - counts the memory of the program. tally_wrap.c is where the allocator calls it. */
#include "base/tally.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* A block of a library that we free counts only when it goes: it may fall below 0. */
static atomic_size_t used;
static _Atomic(void *) reserve;
static atomic_bool wanted; /* a reserve shall be there */

void tally_add(size_t bytes)
{
    atomic_fetch_add_explicit(&used, bytes, memory_order_relaxed);
}

void tally_subtract(size_t bytes)
{
    atomic_fetch_sub_explicit(&used, bytes, memory_order_relaxed);
}

bool tally_give_up(void)
{
    void *block = atomic_exchange(&reserve, NULL);
    free(block);
    return block != NULL;
}

size_t tally_bytes(void)
{
    size_t bytes = atomic_load_explicit(&used, memory_order_relaxed);
    return bytes > SIZE_MAX / 2 ? 0 : bytes;
}

void tally_keep_reserve(size_t bytes)
{
    atomic_store(&wanted, true);
    if (atomic_load(&reserve))
        return;
    void *none = NULL;
    void *block = malloc(bytes);
    if (block && !atomic_compare_exchange_strong(&reserve, &none, block))
        free(block);
}

bool tally_is_short(void)
{
    return atomic_load_explicit(&wanted, memory_order_relaxed) &&
           !atomic_load_explicit(&reserve, memory_order_relaxed);
}

void *tally_malloc(size_t bytes)
{
    return malloc(bytes);
}

void *tally_calloc(size_t n, size_t bytes)
{
    return calloc(n, bytes);
}

void *tally_realloc(void *old, size_t bytes)
{
    return realloc(old, bytes);
}

void tally_free(void *block)
{
    free(block);
}
