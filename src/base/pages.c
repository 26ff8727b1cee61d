/* pages.c - puts the small pages of the heap together to huge ones. */
#include "base/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_BYTES = 2 << 20, LINE_BYTES = 512 };

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

static uintptr_t heap_begin(void)
{
    char line[LINE_BYTES];
    uintptr_t begin = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && begin == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, "[heap]"))
            begin = strtoul(line, NULL, 16); /* "55d0c8a00000-55d0c8a21000 rw-p ..." */
    if (maps)
        (void)fclose(maps);
    return begin;
}

void pages_begin(struct pages *p)
{
    uintptr_t begin = heap_begin();
    p->at = (begin + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    p->end = begin ? (uintptr_t)sbrk(0) : 0;
}

bool pages_join(struct pages *p)
{
    if (p->at + HUGE_BYTES > p->end)
        return false;
    /* Where the kernel cannot, or is older, it stays as it is. */
    (void)madvise((void *)p->at, HUGE_BYTES, MADV_COLLAPSE);
    p->at += HUGE_BYTES;
    return true;
}
