/* worker_state.h - what worker.c, worker_txn.c and worker_lease.c share; for no
 * other file. */
#ifndef BELAY_QUEUE_WORKER_STATE_H
#define BELAY_QUEUE_WORKER_STATE_H

#include "queue/claim.h"
#include "queue/pg.h"
#include "queue/prefetch.h"
#include "queue/runner.h"
#include "queue/worker.h"

/* The statements: name and text, where @ stands for the schema's name. A single value is asked
 * for without FROM: that is cheaper. Others hear of the first claim of leases for a while in its
 * own transaction: a worker that dies behind it is missed when they end. */
#define WORKER_SQL(X)                                                                          \
    X(version, "SELECT @.version()")                                                           \
    X(ready, "SELECT @.ready($1)")                                                             \
    X(tend, "SELECT * FROM @.tend($1, $2, $3, $4, $5, $6)")                                    \
    X(drained, "SELECT @.drained($1)")                                                         \
    X(drain_waits, "SELECT @.drain_waits($1)")                                                 \
    X(announce_done, "SELECT @.announce_done($1)")                                             \
    X(fall_asleep, "SELECT * FROM @.fall_asleep($1, $2)")                                      \
    X(get_up, "SELECT @.get_up($1)")                                                           \
    X(unfold, "SELECT @.unfold($1)")                                                           \
    X(claim, "SELECT * FROM @.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")            \
    X(complete,                                                                                \
      "UPDATE @.claimed SET status = 'complete', outcome = $2, error = NULL, process = $3, "   \
      "fence = $4, worker = $5, attempts = attempts + 1, claimed_at = now(), "                 \
      "settled_at = clock_timestamp() WHERE id = ANY ($1)")                                    \
    X(settle, "SELECT @.settle($1, $2, $3, $4, $5, $6, $7, $8)")                               \
    X(unbegin, "SELECT @.unbegin($1)")                                                         \
    X(again, "SELECT @.again($1, $2, $3, $4, $5, $6)")                                         \
    X(claim_lease, "SELECT *, CASE WHEN $9 AND id IS NOT NULL AND row_number() OVER () = 1 "   \
                   "THEN @.announce_look($4) END "                                             \
                   "FROM @.claim_lease($1, $2, $3, $4, $5, $6, $7, $8)")                       \
    X(settle_lease, "SELECT * FROM @.settle_lease($1, $2, $3, $4, $5, $6, $7, $8, $9)")        \
    X(give_back, "SELECT @.give_back($1, $2)")                                                 \
    X(beat, "SELECT * FROM @.beat($1, $2, $3)")

struct worker_sql {
#define X(name, text) char *name;
    WORKER_SQL(X)
#undef X
};

/* Some 260,000 requests, a few seconds: what is not unfolded yet cannot be worked on together
 * with what is. */
enum {
    PASS_UNFOLD_MAX = 256,
    PASS_UNFOLD_FULL = 1024, /* what unfold() makes of bundles when there are enough */
    PASS_UNFOLD_LITTLE = 64  /* less than that counts so often */
};

/* Whether others must notify us of what they push (worker_sleep.c). */
enum sleep_state {
    SLEEP_AWAKE,  /* no: a worker that finds nothing goes to sleep, and looks once more */
    SLEEP_DOZING, /* they do, but transactions run that are older and may not know */
    SLEEP_SOUND   /* all of them do */
};

/* Where a search stands: a line per queue, and what this pass has seen. */
struct pass {
    int64_t line[WORKER_QUEUES_MAX];
    size_t at;         /* the queue being searched, as a place in the order of priority */
    size_t empty;      /* queues in a row that had nothing above their line */
    unsigned turn;     /* moves the start among queues of equal priority */
    unsigned busy;     /* rows passed over in this pass */
    bool worked;       /* this pass found something */
    bool careful;      /* a row was locked by a stranger: savepoints from here on */
    unsigned unfolded; /* times in a row; at PASS_UNFOLD_MAX what is there is worked on first */
};

struct txn_slot;
struct clerk;
struct lease_worker;

struct worker {
    const struct worker_options *o;
    uv_loop_t loop;
    struct runner_options run;
    struct worker_sql sql;
    char *channel_push;
    char name[128];                  /* what others see of us */
    char prime[64];                  /* our own notification */
    size_t order[WORKER_QUEUES_MAX]; /* of o->queues, highest priority first */
    char numbers[3][16];             /* max_attempts, backoff_ms, backoff_max_ms as text */
    char *queue_names;               /* array literal */
    char *cells;                     /* of the attempt journal, array literal; NULL: none yet */
    unsigned n_cell;                 /* so many */
    int tend_from;                   /* so far tend() has looked through the journal */
    struct pg *control;
    bool listening, reached, tending, tend_again, draining, announcing;
    bool told_polling;
    uint64_t drain_asked_ms; /* when it was last asked what a drain waits for */
    unsigned start_failures; /* of the first statements after a connect, in a row */
    uint64_t look_at;        /* others want us to tend() then; by the loop's clock */
    enum sleep_state sleep;
    bool sleep_asked;      /* fall_asleep() is on its way */
    char sleep_before[24]; /* transactions older than this one may not know that we sleep */
    uint64_t doze_since;   /* by the loop's clock */
    uint64_t told_since;   /* since then we were told of n_told pushes */
    unsigned n_told;
    unsigned looks_vain; /* in a row, while we look by ourselves */
    bool dirty;          /* a wake-up found nobody idle */
    bool stopping, closing, killed;
    bool settled[WORKER_QUEUES_MAX]; /* since watchers were told */
    uint64_t n_complete, n_error, n_retry;
    uv_timer_t tick, recheck, done, prime_timer, grace, again, doze, get_up, look;
    uv_signal_t sigterm, sigint;
    struct txn_slot *slots; /* transaction mode: n_slot of them are open */
    struct clerk *clerks;   /* and `concurrency` of these */
    unsigned n_slot;
    struct prefetch *ahead;     /* of each queue */
    struct lease_worker *lease; /* lease mode */
    unsigned concurrency, batch, lease_ms;
    int rc;
    char *why;
    size_t why_bytes;
};

/* worker.c */
bool worker_try_wake(struct worker *w); /* somebody idle starts to search; false: nobody is */
void worker_wake(struct worker *w);     /* the same, or the next idle worker does */
void worker_idle(struct worker *w, const struct pass *p); /* a search ended with nothing */
void worker_tend(struct worker *w); /* see what time has brought about, then wake */
void worker_count(struct worker *w, const char *queue, enum verdict_kind kind);
void worker_stop(struct worker *w); /* take nothing new; ends when nothing runs */
/* Stops with an error; what runs is killed. */
void worker_fail(struct worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* An answer that is an error: ends the worker when it can never work. True when it does. */
bool worker_hopeless(struct worker *w, const PGresult *res);
struct pg *worker_connect(struct worker *w, const struct pg_events *events, void *arg);
void worker_prepare(struct worker *w, struct pg *pg); /* a new connection for claims */
/* One statement that is a transaction of its own. */
void worker_ask(struct pg *pg, const char *sql, int n, const char *const *params,
                pg_result_fn *fn, void *arg);
void worker_maybe_close(struct worker *w); /* when stopping and nothing runs */

/* How a group ends whose result the database refused with this; free(). */
char *result_refused(const PGresult *res);

void pass_reset(struct pass *p);
size_t pass_queue(const struct worker *w, const struct pass *p); /* index into o->queues */
/* The queue had nothing above its line; false when that ends the search. */
bool pass_next(struct worker *w, struct pass *p);
void pass_found(struct pass *p);
void pass_unfolded(struct pass *p, long n); /* a bundle was in the way; n requests were made */

/* In a transaction of its own, whose commit nobody waits for: lost, it is done again. */
void worker_unfold(struct worker *w, struct pg *pg, const struct pass *p, pg_result_fn *fn,
                   void *arg);

/* worker_sleep.c: an idle worker is notified of what is pushed */
void sleep_fall(struct worker *w);  /* a search found nothing, or notifications reach us now */
void sleep_found(struct worker *w); /* a search found something */
void sleep_told(struct worker *w);  /* somebody pushed, and notified us */
void sleep_lost(struct worker *w);  /* the control connection is gone */

/* worker_txn.c: transaction mode */
unsigned slots_max(const struct worker *w);           /* cells, too */
void slots_open(struct worker *w, const char *cells); /* array literal of cells */
bool slots_wake(struct worker *w);                    /* false: nobody is idle */
bool slots_quiet(const struct worker *w);             /* nothing runs or is on its way */
void slots_kill(struct worker *w);
void slots_close(struct worker *w);

/* worker_lease.c: lease mode */
void worker_lease_open(struct worker *w);
bool worker_lease_wake(struct worker *w);
bool worker_lease_quiet(const struct worker *w);
void worker_lease_kill(struct worker *w);
void worker_lease_stop(struct worker *w);
void worker_lease_look(struct worker *w); /* whether all claims still stand: a heartbeat, now */
void worker_lease_close(struct worker *w);
#endif
