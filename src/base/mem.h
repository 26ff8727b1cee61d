/* mem.h - memory for the server: it never returns NULL. Out of memory stops the process,
 * because a replica that skips a step is worse than one that restarts. The client library
 * does not use this file. */
#ifndef BELAY_BASE_MEM_H
#define BELAY_BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);                 /* uninitialised; bytes may be 0 */
void *mem_zalloc(size_t bytes);                /* zeroed */
void *mem_resize(void *old, size_t bytes);     /* as realloc */
char *mem_dup(const void *data, size_t bytes); /* a copy with a NUL behind it */
#endif
