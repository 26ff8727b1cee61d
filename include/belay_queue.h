/* belay_queue.h - work on the requests of a PostgreSQL queue with a function of your own.
 *
 *   static enum belay_queue_verdict on_group(void *arg, const struct belay_queue_group *g,
 *                                            struct belay_queue_result *r)
 *   {
 *       if (!outbox_send(g->entity, g->json))
 *           return BELAY_QUEUE_RETRY;
 *       r->outcome = "sent";
 *       return BELAY_QUEUE_COMPLETE;
 *   }
 *
 *   struct belay_queue_options o = {
 *       .url = "postgresql:///app", .queue = "mail", .concurrency = 4,
 *   };
 *   char why[256];
 *   int rc = belay_queue_work(&o, on_group, NULL, why, sizeof why);
 *
 * Link with libbelay_queue, libpq and libuv. What a queue, a group and a mode are:
 * docs/QUEUE.md. */
#ifndef BELAY_QUEUE_H
#define BELAY_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum belay_queue_mode { BELAY_QUEUE_TRANSACTION, BELAY_QUEUE_LEASE };

enum belay_queue_verdict {
    BELAY_QUEUE_COMPLETE,
    BELAY_QUEUE_ERROR,
    BELAY_QUEUE_RETRY /* again later, with back-off, until max_attempts */
};

/* 0 stands for the default everywhere. */
struct belay_queue_options {
    const char *url;    /* as psql takes it; NULL: the PG* environment */
    const char *schema; /* "belay" */
    const char *queue;
    const char *worker; /* the name that others see; "host:pid" */
    enum belay_queue_mode mode;
    unsigned concurrency;    /* 1: this many groups at a time, each on a thread */
    unsigned batch;          /* lease mode: groups per round trip; concurrency */
    unsigned lease_ms;       /* 30000 */
    unsigned max_attempts;   /* 10 */
    unsigned backoff_ms;     /* 1000: wait after the first attempt; doubles */
    unsigned backoff_max_ms; /* 3600000 */
    int drain;               /* 1: return when the queue is empty */
    int require_created;     /* 1: updates of an entity whose create failed are errors */
};

/* The work of one call. All pointers are borrowed for the call. */
struct belay_queue_group {
    const char *queue, *entity, *kind; /* kind: "create" or "update" */
    const char *process;               /* UUID of this claim */
    uint64_t fence;                    /* rises with every claim: for belay.guard() */
    const char *json;                  /* {"queue","entity","kind","process","fence","attempt",
                                           "requests":[{"id","attempts","pushed_at","payload"},…]} */
};

/* Texts that the function sets. They must stay valid until it is called again on the same
 * thread, or until belay_queue_work() returns. At most 64 KiB are kept. */
struct belay_queue_result {
    const char *outcome, *error;
};

/* Called on a thread of its own choice, `concurrency` of them at a time, never two for one
 * entity. */
typedef enum belay_queue_verdict belay_queue_fn(void *arg,
                                                const struct belay_queue_group *group,
                                                struct belay_queue_result *result);

/* Works until SIGTERM or SIGINT, or until the queue is empty (drain). Returns 0, or -1 with the
 * reason in `why`. It runs its own event loop, and returns after the last call of `fn` has. */
__attribute__((visibility("default"))) int
belay_queue_work(const struct belay_queue_options *options, belay_queue_fn *fn, void *arg,
                 char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
