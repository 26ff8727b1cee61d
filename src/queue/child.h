/* child.h - the processes a worker starts, and their certain end.
 *
 * Every child leads a process group of its own, and does not outlive the worker, however that
 * ends. What it leaves behind in its group is killed when it has ended. The kernel kills the
 * child of a worker that was killed (PR_SET_PDEATHSIG), but only after it has closed the
 * worker's connections: the database would roll back, and somebody else begin, while the child
 * still runs. So a small process, the minder, has the worker's files too. When the worker is
 * dead it ends the groups, waits until they are gone, and goes itself: with it the connections
 * end.
 *
 * Loop thread only; one nursery per loop. */
#ifndef BELAY_QUEUE_CHILD_H
#define BELAY_QUEUE_CHILD_H

#include "base/slice.h"

#include <uv.h>

enum {
    CHILD_MAX = 1024,          /* at a time in one nursery */
    CHILD_ERROR_TAIL = 4096,   /* bytes of stderr that are kept */
    CHILD_LINGER_MS = 1000,    /* how long open pipes are read after the process ended */
    CHILD_INPUT_MAX = 64 << 20 /* bytes of input not yet taken by the process */
};

struct nursery;
struct child;

/* Starts the minder. NULL: the system refused, errno says why. */
struct nursery *nursery_open(uv_loop_t *loop);
void nursery_close(struct nursery *n); /* after the last child has ended; NULL is allowed */

struct child_events {
    void (*output)(void *arg, struct slice bytes); /* of stdout, borrowed */
    /* Exited and its pipes are read; a wait status; `errors` is the tail of stderr, borrowed.
     * The child is gone after this call. */
    void (*ended)(void *arg, int status, struct slice errors);
};

/* Starts argv with the environment `env`. NULL: could not be started, errno says why. */
struct child *child_open(struct nursery *n, char *const *argv, char *const *env,
                         const struct child_events *events, void *arg);
void child_write(struct child *c, struct slice bytes); /* copies */
void child_close_input(struct child *c);               /* after what was written */
void child_kill(struct child *c);                      /* SIGKILL to its whole group */
#endif
