/* load.h - load on a server from one thread: many connections, one epoll, few bytes touched.
 *
 * It speaks RESP2 by itself and not through libbelay, because it measures servers: both Belay
 * and Redis get the same client, which formats its requests once and only skips over the
 * replies. */
#ifndef BELAY_CLI_LOAD_H
#define BELAY_CLI_LOAD_H

#include "belay.h"
#include "tls/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOAD_CONNECTIONS_MAX = 60000, LOAD_PIPELINE_MAX = 1024, LOAD_LOCKS_MAX = 20000000 };

/* What the connections do. */
enum load_mode {
    LOAD_PAIR,    /* each its own lock: acquire, release, acquire... */
    LOAD_HANDOFF, /* all of them the same lock: wait in line, release at once, wait again */
    LOAD_PARK,    /* all but one wait in line, and nothing happens */
    LOAD_HOLD,    /* take many locks and keep them */
};

struct load_config {
    const char *host, *port;
    struct tls_context *tls; /* NULL: plain text */
    const char *token;       /* NULL: nobody logs in */
    enum load_mode mode;
    bool redis; /* SET NX PX and EVALSHA in place of ACQUIRE and RELEASE */
    bool txn;   /* transactions that set and delete a variable in their place */
    size_t connections, pipeline, locks;
    int64_t duration_ms, warmup_ms;
    int64_t ttl_ms;
    int server_pid; /* 0: unknown; else its CPU and memory are measured too */
};

/* Latencies in nanoseconds, each bucket at most 1/32 wide. */
enum { LOAD_SUB = 32, LOAD_BUCKETS = 40 * LOAD_SUB };
struct load_histogram {
    uint64_t count[LOAD_BUCKETS];
    uint64_t total;
};
void load_record(struct load_histogram *h, uint64_t ns);
uint64_t load_percentile(const struct load_histogram *h,
                         double part); /* 0.99; the upper bound */

struct load_result {
    uint64_t ops;      /* commands answered while it was measured; HANDOFF: grants */
    uint64_t failures; /* answers that were not the expected ones */
    uint64_t elapsed_ns, client_cpu_ns, server_cpu_ns;
    int64_t server_rss_bytes;        /* grown by */
    uint64_t grants_min, grants_max; /* HANDOFF: of one connection */
    uint64_t out_of_turn;            /* HANDOFF: grants that passed somebody in the line */
    struct load_histogram latency;
};

/* False: it failed, and `why` says what. */
bool load_run(const struct load_config *config, struct load_result *ret, char *why,
              size_t why_bytes);
/* Bytes of the RESP2 reply at `p`; 0: not whole yet. */
size_t load_skip_reply(const char *p, size_t len);
#endif
