/* pages.h - the heap on huge pages again, after a fork.
 *
 * What fork() copies are the tables of pages: for 3 GB in pages of 4 KiB that takes the loop
 * tens of milliseconds, in pages of 2 MiB one or two. malloc() asks for huge pages (serve.c),
 * but while a forked child lives, what the parent writes is taken apart into small ones. When
 * the child is over they are put together again, a few at a time: each takes about as long as
 * it takes to copy 2 MiB. Loop thread only. */
#ifndef BELAY_BASE_PAGES_H
#define BELAY_BASE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct pages {
    uintptr_t at, end; /* of the heap: where to go on, and where it ended when it began */
};

void pages_begin(struct pages *p);
bool pages_join(struct pages *p); /* the next huge page; false: there is none left */
#endif
