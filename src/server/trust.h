/* trust.h - how far this node's variables can be trusted (docs/TRANSACTIONS.md, "Trust").
 *
 * The node counts its calls (transactions and closed sessions) second by second. The norm is
 * the rate it is used to: it follows a higher rate at once and falls slowly when calls stay
 * away. Trust is the last second's rate over the norm, in 0..1: a sudden silence means that
 * others may not have been able to tell this node what they did, so a transaction that asks for
 * trust is refused before anything happens. Below a norm of one call a second there is nothing
 * to miss, and trust is 1, as it is at the start.
 *
 * Pure: time is an input (any clock that does not go back), the grid is whole seconds. */
#ifndef BELAY_SERVER_TRUST_H
#define BELAY_SERVER_TRUST_H

#include <stdint.h>

#define TRUST_DECAY_DEFAULT 0.8321 /* of the norm, in a period: the original's constants */
enum { TRUST_PERIOD_DEFAULT_MS = 3570, TRUST_GRID_MS = 1000 };

struct trust {
    double fall; /* factor of one second without calls */
    double norm; /* calls a second */
    double level;
    uint64_t calls;   /* in the second that runs */
    uint64_t from_ms; /* when that second began */
};

/* 0 < decay < 1, period_ms > 0. */
void trust_init(struct trust *t, double decay, uint64_t period_ms, uint64_t now_ms);
void trust_count(struct trust *t, uint64_t now_ms);   /* one call */
void trust_advance(struct trust *t, uint64_t now_ms); /* before norm or level is read */
#endif
