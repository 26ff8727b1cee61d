/* clock_rate.h - how fast the clock of another node goes, against this node's own.
 *
 * A node says what its monotonic clock shows, about every second. How long the message took is
 * not known, but it is never negative: of all that is heard in a minute, the message with the
 * smallest difference between the clocks was the quickest. Two such minutes give the rate: a
 * millisecond of doubt in 60 s is 17 ppm. A node that was stopped, or whose messages waited in
 * a buffer, says nothing wrong by that: those are not the quickest ones. */
#ifndef BELAY_RAFT_CLOCK_RATE_H
#define BELAY_RAFT_CLOCK_RATE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CLOCK_RATE_WINDOW_MS = 60000,
    CLOCK_RATE_GAIN_MAX_MS = 1000000000, /* in a minute: more is nonsense */
    CLOCK_RATE_OFF_PPM = 1000,           /* more than leases allow for: 0.1 % */
};

struct clock_rate {
    uint64_t start;     /* of the process whose clock it is; 0: nothing was heard */
    uint64_t window_ms; /* this minute began then, of this node's clock */
    int64_t least;      /* own clock - its clock, at the quickest message of this minute */
    uint64_t least_ms;  /* when that came */
    int64_t before;     /* the same, of the minute before */
    uint64_t before_ms; /* 0: there was none */
    bool is_known;
    int64_t ppm; /* above 0: it goes faster than this node's */
};

/* That process says that its clock shows `its_ms`. True: there is a new estimate. */
bool clock_rate_hear(struct clock_rate *r, uint64_t start, uint64_t own_ms, uint64_t its_ms);
bool clock_rate_is_off(const struct clock_rate *r);
#endif
