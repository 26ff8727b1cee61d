/* worker.h - a worker: claims groups of one or more queues, has them worked on, settles them.
 *
 * One event loop of its own, a control connection (LISTEN, what time brings about, heartbeats)
 * and the connections that claim: one per slot in transaction mode (worker_txn.c), one in all in
 * lease mode (worker_lease.c).
 *
 *   asleep --push, timer, start--> search from line 0 --found--> work --settled--> search on
 *
 * When there is nothing above the line: if this pass worked on something, another pass from 0,
 * because somebody may have skipped a row because of us; else asleep.
 *
 * A lost notification costs nothing: every wake-up searches everything, and there is one every
 * 60 s anyway. */
#ifndef BELAY_QUEUE_WORKER_H
#define BELAY_QUEUE_WORKER_H

#include "belay_queue.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WORKER_QUEUES_MAX = 64,
    WORKER_SLOTS_MAX = 256,
    WORKER_BATCH_MAX = 500,
    WORKER_SAFETY_POLL_MS = 60000,
    WORKER_POLL_MS = 1000,    /* when notifications do not reach us */
    WORKER_RECHECK_MS = 1000, /* rows were passed over because others have their entity */
    WORKER_OVERDUE_MS = 200,  /* what is due could not be taken: somebody has it locked */
    WORKER_DRAIN_CHECK_MS = 50,
    WORKER_DRAIN_SAY_MS = 10000, /* what it waits for is said that often */
    WORKER_PRIME_MS = 3000,      /* how long our own notification may take */
    WORKER_DONE_MS = 100,        /* watchers hear of settled requests that often */
    WORKER_DOZE_MIN_MS = 2,      /* how long to look again for older transactions */
    WORKER_DOZE_MAX_MS = 10000,
    WORKER_GET_UP_MS = 1000, /* a worker that was busy for so long need not be told of more */
    WORKER_LOOK_MS = 10,     /* nor one that is told more often than that */
    WORKER_TOLD_MAX = 50,    /* by so many times in a row */
    WORKER_LOOKS_VAIN = 10   /* after so many in a row it wants to be told again */
};

struct worker_queue {
    const char *name;
    int priority; /* higher first; equal ones in turn */
};

/* All of it is borrowed for the call. 0 stands for the default of belay_queue.h. */
struct worker_options {
    struct belay_queue_options base; /* its `queue` is not used */
    struct worker_queue queues[WORKER_QUEUES_MAX];
    size_t n_queue;
    char *const *argv; /* the command; NULL: fn */
    bool persistent;
    bool verbose;        /* the database tells which rows it passes over */
    unsigned timeout_ms; /* of a group; 0: none */
    unsigned grace_ms;   /* after SIGTERM for what is being worked on; 0: until it is done */
    unsigned poll_ms;    /* > 0: no LISTEN, no prepared statements: behind a pooler */
    unsigned answer_ms;  /* a statement not answered for so long ends its connection; 0: 30 s */
    belay_queue_fn *fn;
    void *fn_arg;
};

/* Works until told to stop. 0, or -1 and a sentence in `why`. While it runs SIGTERM and SIGINT
 * stop it and SIGPIPE is ignored; then the process has its own handlers back. */
int worker_run(const struct worker_options *o, char *why, size_t why_bytes);
#endif
