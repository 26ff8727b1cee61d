/* claim.h - the answer of claim() and claim_lease() as groups: a row per request, those of a
 * group together; the last row is no request but tells how far the search has come. */
#ifndef BELAY_QUEUE_CLAIM_H
#define BELAY_QUEUE_CLAIM_H

#include "base/list.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct claim {
    struct list groups; /* of struct group, by `link`: the caller's */
    size_t n_group;
    bool end;      /* nothing is due above the line */
    int64_t line;  /* where the search goes on, unless `end` */
    unsigned busy; /* rows that were passed over because others have their entity */
};

/* `queue` and `res` are borrowed for the call; `res` is pg_ok(). */
void claim_read(const char *queue, const PGresult *res, struct claim *ret);
#endif
