/* metrics.h - what the server counts, as Prometheus text and as INFO lines. */
#ifndef BELAY_SERVER_METRICS_H
#define BELAY_SERVER_METRICS_H

#include "base/buf.h"
#include "command/answer.h"
#include "command/command.h"
#include "machine/event.h"

struct server;

enum { METRICS_BUCKETS = 16 }; /* powers of two from 16 us; the last is everything */

struct metrics {
    uint64_t requests[COMMAND_COUNT_ALL + 1][OUTCOME_COUNT]; /* last: not a command */
    uint64_t news[EVENT_KIND_COUNT];
    uint64_t handover[METRICS_BUCKETS], handover_n, handover_ns;
    uint64_t accepted, closed_timeout, closed_lagging, closed_overloaded, closed_yielded,
        refused_connections, refused_overloaded, refused_guard, paused;
    uint64_t failed_logins, throttled;
    uint64_t tls_opened, tls_failed;
    uint64_t bytes_in, bytes_out;
    uint64_t lag_ms, lag_max_ms;
    uint64_t started_ms;
};

void metrics_handover(struct metrics *m, size_t n, uint64_t ns); /* n of them at a time */
/* "metric{label="value"} ": whatever is in the value stays in it. */
void metrics_label(struct buf *out, const char *metric, const char *label, const char *value);
/* Prometheus. Counts of accounts are those that the client of s->call may see. */
void metrics_write(const struct server *s, struct buf *out);
void metrics_info(const struct server *s, struct buf *out); /* INFO */
#endif
