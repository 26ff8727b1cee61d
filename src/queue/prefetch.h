/* prefetch.h - what a search has seen behind the group that it took: entities of one queue that
 * were due. The claims that follow try these, in their order, and need no search of their own.
 *
 * Only a hint: who has an entity is decided by its lock, and its rows are read when it is held.
 * Where others work on the same queue hints are often late, so after a miss the claims search
 * for themselves for a while. */
#ifndef BELAY_QUEUE_PREFETCH_H
#define BELAY_QUEUE_PREFETCH_H

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sight {
    struct list link;
    int64_t id;
    int64_t upto;        /* the highest id that there was */
    uint64_t seen_ms;    /* set by prefetch_add() */
    char *entity, *kind; /* owned */
};

void sight_free(struct sight *s); /* NULL is allowed */

struct prefetch {
    struct list seen; /* of struct sight, in the order of their ids */
    size_t n;
    int64_t last;  /* the highest id that was seen or taken */
    bool asked;    /* a claim on its way brings more */
    unsigned rest; /* so many claims do not ask */
};

void prefetch_init(struct prefetch *a);
void prefetch_done(struct prefetch *a);

/* The next one that was seen a moment ago, the caller's; NULL: there is none, search. What came
 * later than a hint is not worked on with it. */
struct sight *prefetch_take(struct prefetch *a, uint64_t now_ms);

/* True when the next claim should look ahead, for what lies above `*ret_from`; its answer is
 * owed to prefetch_add(). */
bool prefetch_ask(struct prefetch *a, int64_t *ret_from);

/* Takes the sights of an answer, or an empty list when there was none. */
void prefetch_add(struct prefetch *a, struct list *sights, uint64_t now_ms);

/* A search, not a hint, led to the group with this id. */
void prefetch_found(struct prefetch *a, int64_t id);

/* Somebody else was there first. */
void prefetch_missed(struct prefetch *a);
#endif
