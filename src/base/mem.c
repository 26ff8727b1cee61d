/* mem.c - memory for the server: when there is none, the process stops. */
#include "base/mem.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

void *mem_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    BELAY_CHECK(p != NULL);
    return p;
}

void *mem_zalloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    BELAY_CHECK(p != NULL);
    return p;
}

void *mem_resize(void *old, size_t bytes)
{
    void *p = realloc(old, bytes ? bytes : 1);
    BELAY_CHECK(p != NULL);
    return p;
}

char *mem_dup(const void *data, size_t bytes)
{
    char *p = mem_alloc(bytes + 1);
    if (bytes)
        memcpy(p, data, bytes);
    p[bytes] = '\0';
    return p;
}
