/* stats.h - what happened at this node in each of the last seconds, for charts. */
#ifndef BELAY_SERVER_STATS_H
#define BELAY_SERVER_STATS_H

#include "base/histogram.h"
#include "command/answer.h"

#include <stddef.h>
#include <stdint.h>

struct server;
struct conn;
struct call;

enum { STATS_SECONDS = 300 };

/* X(name): the members of a sample; docs/PROTOCOL.md says what they are. */
#define STATS_MAP(X)                                                                           \
    X(time_ms)                                                                                 \
    X(ok)                                                                                      \
    X(refused)                                                                                 \
    X(errors)                                                                                  \
    X(granted)                                                                                 \
    X(released)                                                                                \
    X(timeouts)                                                                                \
    X(expired)                                                                                 \
    X(broken)                                                                                  \
    X(deadlocks)                                                                               \
    X(request_p50_us)                                                                          \
    X(request_p99_us)                                                                          \
    X(handover_p50_us)                                                                         \
    X(handover_p99_us)                                                                         \
    X(read_bytes)                                                                              \
    X(written_bytes)                                                                           \
    X(locks)                                                                                   \
    X(held)                                                                                    \
    X(waiting)                                                                                 \
    X(sessions)                                                                                \
    X(connections)                                                                             \
    X(lag_ms)

struct stats_sample {
#define X(name) uint64_t name;
    STATS_MAP(X)
#undef X
};

struct stats {
    struct stats_sample samples[STATS_SECONDS]; /* sample N is at N % STATS_SECONDS */
    size_t n;                                   /* so far */
    /* What had been counted at the end of the last one. */
    struct histogram requests[OUTCOME_COUNT], handover;
    uint64_t news[EVENT_KIND_COUNT], bytes_in, bytes_out;
};

void stats_second(struct server *s); /* once a second */
void stats_run(struct conn *c, const struct call *call, bool close);
#endif
