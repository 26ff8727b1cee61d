/* create.h - a new data directory of a node that is alone, made of states.
 *
 *   create_open() -> create_group() for each group, in order -> create_close() */
#ifndef BELAY_REPAIR_CREATE_H
#define BELAY_REPAIR_CREATE_H

#include "raft/replica_core.h"

struct create;

struct create_plan {
    struct disk *to;  /* empty; borrowed */
    uint64_t cluster; /* random, not 0: that of no other directory */
    size_t n_groups;
    const char *name; /* of the node */
};

BELAY_MUST_CHECK enum belay_err create_open(const struct create_plan *plan,
                                            struct create **ret);
/* The next group goes on from `state` (borrowed): the new node replaces its members, and whoever
 * had the place of that node. */
BELAY_MUST_CHECK enum belay_err create_group(struct create *c, struct judged *state);
/* With BELAY_OK: completes the directory; else leaves it as it is. Frees `c`, NULL is allowed.
 * The first error of all. */
BELAY_MUST_CHECK enum belay_err create_close(struct create *c, enum belay_err err);

/* The writes of a journal that are due, here and now; also for salvage.c. */
BELAY_MUST_CHECK enum belay_err create_flush(struct journal *j);
enum belay_err create_no_record(void *ctx, const struct journal_record *rec, uint64_t lsn);
#endif
