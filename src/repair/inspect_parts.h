/* inspect_parts.h - what inspect.c found and salvage.c puts together; for these two only.
 */
#ifndef BELAY_REPAIR_INSPECT_PARTS_H
#define BELAY_REPAIR_INSPECT_PARTS_H

#include "raft/replica_core.h"
#include "repair/inspect.h"

/* What a piece of the journal says about one group. */
struct group_part {
    struct entry_log log;
    uint64_t term, vote;
    uint64_t snapshot; /* the last that the piece names, by its index; 0: none */
    bool installed;    /* and what the group had before was void by then */
};

/* Batches without a gap. */
struct piece {
    uint64_t first, last;
    uint64_t base; /* the oldest segment that was needed when it ended; 0: it does not say */
    struct group_part *groups;
};

/* A sound snapshot. */
struct saved {
    char name[DISK_NAME_MAX];
    uint16_t group_no;
    struct group_snapshot snap;
    struct origin origins[NODE_PLACES];
};

struct inspect_parts {
    struct disk *disk;        /* borrowed */
    struct replica *identity; /* what the file says: cluster, run, incarnation, known */
    bool has_identity;
    size_t n_groups;
    uint64_t segment_bytes; /* of its journal, 0: the default */
    struct piece *pieces;   /* oldest first */
    size_t n_pieces;
    struct saved *snapshots;
    size_t n_snapshots;
    uint64_t front,
        gateway_segment;    /* the batch that the oldest segment begins with; 0: damaged */
    struct group_conf conf; /* the newest members that were found, of group 0 */
    uint64_t conf_index;
    char in_use[JOURNAL_GROUPS_MAX][DISK_NAME_MAX]; /* snapshots that the journal names last */
    const struct piece *kept;
};

void inspect_plan(struct inspection *in); /* which piece is kept, and what is lost by that */
#endif
