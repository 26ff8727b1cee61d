/* backup.h - a backup (raft/replica_backup.c) looked at, and a data directory made of it.
 *
 * The new directory is that of a node which is alone, of a cluster of its own: what belonged to
 * the old cluster is refused by it, and refuses it. Its other nodes are added later.
 *
 * No fence is given twice. The old cluster went on after the backup, and gave numbers that the
 * backup does not know. So the numbers of every group go on RESTORE_SKIP higher, and
 * RESTORE_SKIP_S more for each second since the backup by the clock. The first part alone is
 * enough for 12 days of a million grants a second, whatever the clock says. The second part is
 * for a backup that is old, or that is restored a second time. */
#ifndef BELAY_REPAIR_BACKUP_H
#define BELAY_REPAIR_BACKUP_H

#include "raft/backup_format.h"
#include "storage/disk.h"

#define RESTORE_SKIP   (UINT64_C(1) << 40)
#define RESTORE_SKIP_S (UINT64_C(1) << 20)

struct backup_found {
    struct backup_head head;
    uint64_t locks, sessions, level;
    char problem[128]; /* what is wrong with it; "": nothing */
};

/* Reads all of it: every part and every state, and that they fit together. BELAY_ERR_CORRUPT,
 * BELAY_ERR_NO_PROTO (of a newer belay): ret->problem says what. */
BELAY_MUST_CHECK enum belay_err backup_look(struct slice file, struct backup_found *ret);

struct restore_plan {
    bool keeps;       /* leases and sessions have their whole time; else they end */
    uint64_t wall_ms; /* now */
    uint64_t seed;    /* random, not 0: of the new cluster */
    const char *name; /* of the new node; NULL: n1 */
};

/* Makes the directory in the empty `to` (borrowed). Only after backup_look() was content.
 * BELAY_ERR_RANGE: its numbers are so high that nothing is left to skip. BELAY_ERR_IO: errno. */
BELAY_MUST_CHECK enum belay_err
backup_restore(struct slice file, const struct restore_plan *plan, struct disk *to);
#endif
