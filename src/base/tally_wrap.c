/* tally_wrap.c - what the linker puts in the place of the allocator's functions: __wrap_x is
 * called instead of x, and __real_x is x. */
#include "base/tally.h"

#include <malloc.h>

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *block);

void *__wrap_malloc(size_t bytes)
{
    void *block = __real_malloc(bytes);
    if (!block && tally_give_up())
        block = __real_malloc(bytes);
    tally_add(block ? malloc_usable_size(block) : 0);
    return block;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    void *block = __real_calloc(n, bytes);
    if (!block && tally_give_up())
        block = __real_calloc(n, bytes);
    tally_add(block ? malloc_usable_size(block) : 0);
    return block;
}

void *__wrap_realloc(void *old, size_t bytes)
{
    size_t before = malloc_usable_size(old);
    void *block = __real_realloc(old, bytes);
    if (!block && bytes && tally_give_up())
        block = __real_realloc(old, bytes);
    if (block || bytes == 0)
        tally_subtract(before);
    tally_add(block ? malloc_usable_size(block) : 0);
    return block;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    void *block = __real_aligned_alloc(alignment, bytes);
    if (!block && tally_give_up())
        block = __real_aligned_alloc(alignment, bytes);
    tally_add(block ? malloc_usable_size(block) : 0);
    return block;
}

void __wrap_free(void *block)
{
    if (!block)
        return;
    tally_subtract(malloc_usable_size(block));
    __real_free(block);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
