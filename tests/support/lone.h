/* lone.h - a durable node that is alone, on a simulated disk, without a loop: everything it
 * writes is written when it is pumped, and what it says to others is lost. */
#ifndef BELAY_TESTS_LONE_H
#define BELAY_TESTS_LONE_H

#include "engine/engine.h"
#include "engine/order_raft.h"

struct sim_disk;

struct lone {
    struct order *order;
    struct engine *engine;
    struct feed *feed;
    struct journal_job *job;
    struct snapshot_task *task;
    struct fetch *fetch;
    uint64_t now_ms;
};

/* Not BELAY_OK: order_raft_problem() says why, and nothing is open. */
BELAY_MUST_CHECK enum belay_err lone_open(struct lone *n, struct sim_disk *disk, size_t groups);
/* One of two members: it leads only with the other one's vote. */
BELAY_MUST_CHECK enum belay_err lone_open_second(struct lone *n, struct sim_disk *disk);
void lone_close(struct lone *n); /* as a process that is killed: nothing more is written */
void lone_pump(struct lone *n);
void lone_stop(struct lone *n); /* seals the journal first */

uint64_t lone_acquire(struct lone *n, const char *ns, const char *name); /* its fence, or 0 */
bool lone_check(struct lone *n, const char *ns, const char *name, uint64_t fence);
#endif
