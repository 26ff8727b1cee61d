/* ahead.h - what a search has seen behind the group that it took: entities of one queue that
 * were due. The claims that follow try these, in their order, and need no search of their own.
 *
 * Only a hint: who has an entity is decided by its lock, and its rows are read when it is held.
 * Where others work on the same queue hints are often late, so after a miss the claims search
 * for themselves for a while. */
#ifndef BELAY_QUEUE_AHEAD_H
#define BELAY_QUEUE_AHEAD_H

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sight {
    struct list link;
    int64_t id;
    int64_t upto;        /* the highest id that there was */
    uint64_t seen_ms;    /* set by ahead_add() */
    char *entity, *kind; /* owned */
};

void sight_free(struct sight *s); /* NULL is allowed */

struct ahead {
    struct list seen; /* of struct sight, in the order of their ids */
    size_t n;
    int64_t last;  /* the highest id that was seen or taken */
    bool asked;    /* a claim on its way brings more */
    unsigned rest; /* so many claims do not ask */
};

void ahead_init(struct ahead *a);
void ahead_done(struct ahead *a);

/* The next one that was seen a moment ago, the caller's; NULL: there is none, search. What came
 * later than a hint is not worked on with it. */
struct sight *ahead_take(struct ahead *a, uint64_t now_ms);

/* True when the next claim should look ahead, for what lies above `*ret_from`; its answer is
 * owed to ahead_add(). */
bool ahead_ask(struct ahead *a, int64_t *ret_from);

/* Takes the sights of an answer, or an empty list when there was none. */
void ahead_add(struct ahead *a, struct list *sights, uint64_t now_ms);

/* A search, not a hint, led to the group with this id. */
void ahead_found(struct ahead *a, int64_t id);

/* Somebody else was there first. */
void ahead_missed(struct ahead *a);
#endif
