/* remaining.h - what is left of a lease when its answer is given.
 *
 * The state says what was left when the op was ordered. A node that was stopped or cut off
 * gives that answer later, and what it hears then is old as well: entries and heartbeats that
 * waited in a buffer. So it goes by its own monotonic clock and by how far the state-machine
 * time was ahead of that clock at most: a message that was long on its way says too little, and
 * none says too much. What was known before counts on for LATE_KEEP_MS after something is heard
 * again; until then all that is old has been read. (Time stands still while nobody leads, so it
 * must be forgotten some time.) For so long after the very first time that is heard nothing is
 * known, and a lease counts from when it was asked for. */
#ifndef BELAY_ENGINE_REMAINING_H
#define BELAY_ENGINE_REMAINING_H

#include "machine/event.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LATE_KEEP_MS = 1000,
    LATE_MS = 50, /* the usual way through the cluster: a client that counts from its request */
};

struct remaining {
    bool is_known;
    uint64_t since_ms;         /* of the clock: `ahead` is of what was heard since then */
    int64_t ahead, earlier;    /* of the clock, at most */
    uint64_t now_ms, until_ms; /* the latest that was heard, and before `since_ms` */
    bool is_own;               /* this node says what time it is: that is exact */
};

/* It is `now_ms` in the state, as the leader says. */
void remaining_heard(struct remaining *l, uint64_t clock_ms, uint64_t now_ms, bool is_own);
/* The answer as it is true now: what is left, or that nothing is, as far as this node knows;
 * another one may know better. It was asked for
 * `asked_ms` ago, and not granted before. */
void remaining_tell(const struct remaining *l, uint64_t clock_ms, uint64_t asked_ms,
                    struct event *ev);
#endif
