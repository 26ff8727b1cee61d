/* single_node.h - a durable node that is alone, on a simulated disk, without a loop: everything
 * it writes is written when it is pumped, and what it says to others is lost. */
#ifndef BELAY_TESTS_SINGLE_NODE_H
#define BELAY_TESTS_SINGLE_NODE_H

#include "engine/engine.h"
#include "raft/replica.h"

struct sim_disk;

struct single_node {
    struct order *order;
    struct engine *engine;
    struct feed *feed;
    struct journal_job *job;
    struct snapshot_task *task;
    struct fetch *fetch;
    uint64_t now_ms;
    bool ended; /* the others know another start of it */
};

/* Not BELAY_OK: replica_problem() says why, and nothing is open. */
BELAY_MUST_CHECK enum belay_err single_node_open(struct single_node *n, struct sim_disk *disk,
                                                 size_t groups);
/* One of two members: it leads only with the other one's vote. */
BELAY_MUST_CHECK enum belay_err single_node_open_second(struct single_node *n,
                                                        struct sim_disk *disk);
BELAY_MUST_CHECK enum belay_err single_node_open_of_three(struct single_node *n,
                                                          struct sim_disk *disk, size_t groups);
void single_node_close(
    struct single_node *n); /* as a process that is killed: nothing more is written */
void single_node_pump(struct single_node *n);
void single_node_stop(struct single_node *n); /* seals the journal first */

uint64_t single_node_acquire(struct single_node *n, const char *ns,
                             const char *name); /* its fence, or 0 */
bool single_node_check(struct single_node *n, const char *ns, const char *name, uint64_t fence);
#endif
