/* claim.h - the answer of claim() and claim_lease() as groups: a row per request, those of a
 * group together. How far the search has come is told by each of them or, without a fence, by
 * the row after them; after that come entities that it saw ahead. */
#ifndef BELAY_QUEUE_CLAIM_H
#define BELAY_QUEUE_CLAIM_H

#include "base/list.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct claim {
    struct list groups; /* of struct work_group, by `link`: the caller's */
    size_t n_group;
    bool end;      /* nothing is due above the line */
    bool bundle;   /* nothing was taken, and a bundle is in the way: unfold it first */
    bool late;     /* nor here, where others were faster: ask again when it is rolled back */
    int64_t line;  /* where the search goes on, unless `end` */
    unsigned busy; /* rows that were passed over because others have their entity */
    struct list ahead; /* of struct sight: the caller's */
};

/* `queue` and `res` are borrowed for the call; `res` is pg_ok(). */
void claim_read(const char *queue, const PGresult *res, struct claim *ret);
#endif
