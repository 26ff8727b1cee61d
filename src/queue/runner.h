/* runner.h - has one group worked on: by a command per group, by one long-lived command, or by
 * a C function on a thread. One runner per slot of a worker. Every start is answered once,
 * whatever happens.
 *
 *   command     the group as JSON on stdin, and BELAY_* in the environment. Exit 0: complete,
 *               and stdout is the outcome; 75 or killed by a signal: again later; any other:
 *               error, and stderr says why
 *   persistent  one JSON line in, one JSON line out (reply.h); a quick one is given many lines
 *               at once
 *   function    belay_queue_fn */
#ifndef BELAY_QUEUE_RUNNER_H
#define BELAY_QUEUE_RUNNER_H

#include "base/list.h"
#include "belay_queue.h"
#include "queue/child.h"
#include "queue/reply.h"

#include <uv.h>

enum { RUNNER_WINDOW_MAX = 512 };

struct work_group {
    struct list link;
    char *queue, *entity, *kind, *process, *ids; /* ids: array literal */
    char *work;                                  /* one line of JSON, with its newline */
    char *refuse;                                /* why it must not be worked on, or NULL */
    int64_t fence;
    int64_t attempts; /* that had ended before it was claimed */
    unsigned n_request;
    uint64_t timeout_ms; /* the longest that one of its requests asks for; 0: none does */
    bool lost;           /* the claim is gone: how it ends does not matter any more */

    /* Lease mode: all groups that are held, and until when at least. */
    struct list held;
    uint64_t deadline_ms; /* by our clock, counted from before the database's */
    bool beaten;          /* in the heartbeat that is on its way */
};

void group_free(struct work_group *g); /* NULL is allowed */

struct runner_options {
    uv_loop_t *loop;
    struct nursery *nursery;
    char *const *argv; /* the command, or NULL: `fn` */
    bool persistent;
    uint64_t timeout_ms; /* 0: none */
    belay_queue_fn *fn;
    void *fn_arg;
};

struct runner;
typedef void runner_done_fn(void *arg, struct work_group *g, const struct verdict *v);

/* `options` is borrowed as long as the runner lives. */
struct runner *runner_open(const struct runner_options *options, runner_done_fn *done,
                           void *arg);
/* Nothing may be running. A long-lived command gets the end of its input, then five seconds. */
void runner_close(struct runner *r);

/* Borrows `g` until it is done. False: the command could not be started, errno says why; `done`
 * is not called. More than one at a time only when persistent; all of them are given to the
 * command by runner_flush(). */
bool runner_start(struct runner *r, struct work_group *g);
void runner_flush(struct runner *r);
void runner_kill(struct runner *r); /* what runs is killed, and done soon */
/* The group is lost: if it was given to the runner, being worked on or waiting behind, the
 * runner is killed. The others come back untouched. */
void runner_drop(struct runner *r, const struct work_group *g);
size_t runner_load(const struct runner *r); /* groups started and not done */
/* More may be started: one at a time, and more where a long-lived command answers quickly. */
bool runner_has_room(const struct runner *r);
#endif
