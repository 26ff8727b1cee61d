/* limiter.h - so many a second, for each of many: addresses, tokens.
 *
 * Each has a place in a table by its hash, and the time at which it has used up what it may. So
 * memory is fixed: of those that share a bucket of LIMITER_WAYS places, the one that has been
 * quiet for longest gives way. A burst of one second's worth, or of `burst`, is let through. */
#ifndef BELAY_SERVER_LIMITER_H
#define BELAY_SERVER_LIMITER_H

#include <stdint.h>

enum { LIMITER_BUCKETS = 1024, LIMITER_WAYS = 4 };

struct limiter {
    uint64_t interval_ns; /* from one to the next; 0: no limit */
    uint64_t burst_ns;
    struct limiter_place {
        uint64_t who, until_ns;
    } * places; /* LIMITER_BUCKETS * LIMITER_WAYS; NULL: none yet */
};

void limiter_init(struct limiter *l, uint64_t per_s, uint64_t burst); /* per_s 0: no limit */
void limiter_done(struct limiter *l);
/* One more of `who`. 0: it may; else the ns until it may, and it is not counted. */
uint64_t limiter_take(struct limiter *l, uint64_t who, uint64_t now_ns);
#endif
