/* metrics.h - what the server counts, as Prometheus text and as INFO lines. */
#ifndef BELAY_SERVER_METRICS_H
#define BELAY_SERVER_METRICS_H

#include "base/buf.h"
#include "base/histogram.h"
#include "command/answer.h"
#include "command/command.h"
#include "machine/event.h"

struct server;

struct metrics {
    struct histogram requests[COMMAND_COUNT_ALL + 1][OUTCOME_COUNT]; /* last: not a command */
    struct histogram line[OUTCOME_COUNT]; /* requests that waited for their turn */
    uint64_t news[EVENT_KIND_COUNT];
    struct histogram handover;
    uint64_t accepted, closed_timeout, closed_lagging, closed_overloaded, closed_yielded,
        refused_connections, refused_overloaded, refused_guard, paused;
    uint64_t failed_logins, throttled;
    uint64_t tls_opened, tls_failed;
    uint64_t bytes_in, bytes_out;
    uint64_t lag_ms, lag_max_ms;
    uint64_t started_ms, started_wall_ns;
    uint64_t files_at_start; /* open ones, before there were clients */
};

void metrics_init(struct metrics *m, uint64_t now_ms);
/* "metric{label="value"} ": whatever is in the value stays in it. */
void metrics_label(struct buf *out, const char *metric, const char *label, const char *value);
/* Prometheus. Counts of accounts are those that the client of s->call may see. */
void metrics_write(const struct server *s, struct buf *out);
void metrics_info(const struct server *s, struct buf *out); /* INFO */
#endif
