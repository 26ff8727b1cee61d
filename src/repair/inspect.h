/* inspect.h - a data directory looked at file by file, without changing it, and what of it can
 * be saved.
 *
 * Whether a node starts from it is found out by starting one, on a disk that takes no change:
 * the answer is the server's own. What can be saved is searched for apart, and deeper: a
 * journal with damage in it is several pieces, each of batches without a gap, and the state at
 * the end of a piece can be had when every group has a sound snapshot that its entries of that
 * piece join, or all its entries from the first one on. The one that gets
 * farthest is kept. What lies between a damage and a snapshot behind it is needed by nobody:
 * often nothing is lost.
 *
 * With several groups the piece must have entries of each of them, or prove that a group had
 * none since its snapshot: the states of groups belong to one moment, for they count the
 * messages that they send each other. */
#ifndef BELAY_REPAIR_INSPECT_H
#define BELAY_REPAIR_INSPECT_H

#include "storage/disk.h"

#include <stdbool.h>

enum { INSPECT_TEXT_MAX = 192, INSPECT_ADDRESS_MAX = 256 };

enum inspect_state {
    INSPECT_SOUND,
    INSPECT_DAMAGED,
    INSPECT_MISSING,
    INSPECT_UNUSED, /* nobody asks for it */
};

struct inspect_file {
    char name[DISK_NAME_MAX];
    enum inspect_state state;
    char text[INSPECT_TEXT_MAX];
};

struct inspection {
    struct inspect_file *files; /* by name */
    size_t n_files;
    bool starts;
    bool too_new;      /* nothing is damaged, but this program is older than what wrote it */
    char problem[768]; /* what the server says when it does not */
    /* whose it is; 0 or "": not known */
    uint64_t node;
    char name[INSPECT_ADDRESS_MAX], peer[INSPECT_ADDRESS_MAX];
    size_t members; /* of its cluster, as far as it knows; 1: it is alone */
    /* what can be saved of a node that is alone */
    bool can_salvage;
    bool can_survive;      /* of a member whose cluster is gone */
    uint64_t lost_batches; /* each is what one write made durable */
    bool lost_more;        /* and perhaps what cannot be counted: a file that is gone, or cut */
    struct inspect_parts *parts;
};

/* Borrows `disk` until inspect_close(). BELAY_ERR_NOT_FOUND: there is nothing of a node in it.
 * BELAY_ERR_IO: errno. */
BELAY_MUST_CHECK enum belay_err inspect_open(struct disk *disk, struct inspection *ret);
/* The same, but only the names of the files: nothing is read. */
BELAY_MUST_CHECK enum belay_err inspect_list(struct disk *disk, struct inspection *ret);
void inspect_close(struct inspection *in); /* zeroed is allowed */

/* Only with can_salvage: makes a directory with what can be saved, in the empty `to`
 * (borrowed). Its fences go on so much higher that none is given twice, whatever was lost.
 * `seed` is random.
 */
BELAY_MUST_CHECK enum belay_err inspect_salvage(const struct inspection *in, struct disk *to,
                                                uint64_t seed);

/* Only with can_survive: the same of a member of a cluster that has lost its majority for good.
 * What comes out is alone, and of another cluster. All that is in its log counts, also what it
 * does not know to be committed. */
BELAY_MUST_CHECK enum belay_err inspect_survive(const struct inspection *in, struct disk *to,
                                                uint64_t seed);

/* A file of this name says that the files of the directory are being replaced: it keeps it from
 * being taken for an empty one. The next start deletes it, as what was being fetched. */
extern const char inspect_replacing[];
#endif
