/* inspect_parts.h - what inspect.c found and inspect_save.c puts together; for these two only.
 */
#ifndef BELAY_ENGINE_INSPECT_PARTS_H
#define BELAY_ENGINE_INSPECT_PARTS_H

#include "engine/inspect.h"
#include "engine/order_core.h"

/* What a piece of the journal says about one group. */
struct shard_part {
    struct entry_log log;
    uint64_t term, vote;
};

/* Batches without a gap. */
struct piece {
    uint64_t first, last;
    struct shard_part *shards;
};

/* A sound snapshot. */
struct saved {
    char name[DISK_NAME_MAX];
    uint16_t shard;
    struct group_snapshot snap;
    struct origin origins[ORIGINS_MAX];
    size_t n_origins;
};

struct inspect_parts {
    struct disk *disk;           /* borrowed */
    struct order_raft *identity; /* what the file says: cluster, run, incarnation, known */
    bool has_identity;
    size_t n_groups;
    uint64_t segment_bytes; /* of its journal, 0: the default */
    struct piece *pieces;   /* oldest first */
    size_t n_pieces;
    struct saved *snapshots;
    size_t n_snapshots;
    struct group_conf conf; /* the newest members that were found, of group 0 */
    uint64_t conf_index;
    char in_use[JOURNAL_SHARDS_MAX][DISK_NAME_MAX]; /* snapshots that the journal names last */
    const struct piece *kept;
};

void inspect_plan(struct inspection *in); /* which piece is kept, and what is lost by that */
#endif
