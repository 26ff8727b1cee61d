/* journal.h - one append-only log on disk for all Raft groups of a node.
 *
 *   segment = head (one sector) | batch | batch | ... | zeros up to its fixed size
 *   batch   = sequence number, length, CRC32C over all of it, then records; starts a sector
 *
 * A batch is what one write and one fdatasync made durable: everything that was appended while
 * the one before was on its way. At most one is in flight. From that follows how the end of the
 * log is read: an invalid batch with nothing valid behind it was being written when the power
 * went (a torn tail: cut off and logged); an invalid batch with a valid one behind it was
 * durable once and is damaged: BELAY_ERR_CORRUPT, the node does not start. A seal
 * (journal_seal) behind the last batch makes that true for the last one as well. A sector that
 * is durable is never written again.
 *
 * Segments have a fixed size, a number without gaps, and say when they are full; so a file that
 * was cut or removed is noticed. Old ones go when no group needs an entry in them; the terms,
 * votes and snapshots that only they hold are written once more first, and are durable before
 * the first file goes.
 *
 * A journal keeps a reserve of JOURNAL_RESERVE segments on the disk. When there is no space for
 * the next segment the reserve becomes it, and the journal is full: it goes on, but its
 * caller should write only what must be written, until there is a reserve again.
 *
 * Not thread safe, but for journal_job_run(), which may run on another thread. */
#ifndef BELAY_STORAGE_JOURNAL_H
#define BELAY_STORAGE_JOURNAL_H

#include "base/buf.h"
#include "storage/disk.h"

#include <stdbool.h>

enum {
    JOURNAL_SECTOR = 512,
    JOURNAL_GROUPS_MAX = 256,
    JOURNAL_RECORD_BYTES_MAX = 4 << 20, /* one entry */
    JOURNAL_SEGMENT_BYTES = 64 << 20,
    JOURNAL_SEGMENT_BYTES_MIN = 2 << 10, /* tests */
    JOURNAL_RESERVE = 2,                 /* segments */
};

/* What is stored. X(ID): the order is the format. */
enum journal_kind {
    JOURNAL_NONE,
    JOURNAL_ENTRY,    /* replaces everything at and behind its index */
    JOURNAL_VOTE,     /* term = current term, index = the node that this one voted for */
    JOURNAL_SNAPSHOT, /* a file holds the state up to index; data: the file's name */
    JOURNAL_INSTALL,  /* as SNAPSHOT, and the entries this node had are void */
    JOURNAL_END,      /* the segment is full, the next one exists */
    JOURNAL_SEAL,     /* everything before was durable */
    JOURNAL_BASE,     /* index = number of the oldest segment that is still needed */
    JOURNAL_KIND_COUNT
};

struct journal_record {
    enum journal_kind kind;
    uint16_t group_no;
    uint8_t type; /* ENTRY: the entry's type, as the order knows it */
    uint64_t term, index;
    struct slice data; /* borrowed */
};

struct journal;

/* What a disk full of records says at start, oldest first. `lsn` is the batch it is in. The
 * first entries of a group may come before the snapshot that made the ones in front of them
 * unneeded: whether the entries join the snapshot can be judged at the end only. */
typedef enum belay_err journal_sink(void *ctx, const struct journal_record *rec, uint64_t lsn);

struct journal_config {
    struct disk *disk;      /* borrowed */
    uint64_t segment_bytes; /* 0: JOURNAL_SEGMENT_BYTES; of new segments */
    uint64_t salt;          /* random: bytes from a client can never pass for a batch */
    journal_sink *sink;
    void *sink_ctx;
};

/* Reads everything, hands it to the sink, cuts a torn tail. A disk without segments gets the
 * first one if `fresh`, else BELAY_ERR_CORRUPT. After an error journal_problem() says what and
 * where. */
BELAY_MUST_CHECK enum belay_err journal_open(const struct journal_config *config, bool fresh,
                                             struct journal **ret_j);
void journal_close(struct journal *j); /* NULL is allowed; writes nothing */
const char *journal_problem(void);     /* of the last failed journal_open() on this thread */

/* One segment by itself, whatever is around it: to look at a damaged directory. */
struct journal_scan {
    uint64_t number;
    uint64_t size;        /* that it was made with, as far as one can tell; 0: one cannot */
    uint64_t first, last; /* the sound batches in it; first 0: there is none */
    uint64_t used;        /* where the last of them ends */
    uint64_t
        damaged_at;    /* what is not sound although something sound is behind it; 0: nothing */
    uint64_t behind;   /* sound batches behind it */
    bool torn;         /* something is behind that end: it was being written */
    bool full;         /* it says that the next segment exists */
    char problem[128]; /* of its head; "": none */
};
/* Every record of every sound batch goes to the sink (its answer is ignored), of all kinds.
 * False: not the name of a segment. */
bool journal_scan(const char *name, struct slice file, journal_sink *sink, void *ctx,
                  struct journal_scan *ret);

/* Adds a record to the next batch and returns that batch's number: it is durable when
 * journal_durable() has reached it. Copies. data.len <= JOURNAL_RECORD_BYTES_MAX. */
uint64_t journal_append(struct journal *j, const struct journal_record *rec);
/* A file that must have its new name before the next batch is durable, and one that may go
 * after it. */
void journal_rename_file(struct journal *j, const char *name, const char *to);
void journal_remove_file(struct journal *j, const char *name);
void journal_seal(struct journal *j); /* adds a seal, unless the last thing written is one */
uint64_t journal_durable(const struct journal *j);
uint64_t journal_bytes(const struct journal *j); /* in all segments */
/* In the segment that holds batch `lsn` and those behind it. */
uint64_t journal_bytes_from(const struct journal *j, uint64_t lsn);

bool journal_busy(const struct journal *j);  /* a write is in flight */
size_t journal_due(const struct journal *j); /* bytes for the next one; 0: none is due */
/* The write that is due: NULL when nothing is pending or one is in flight. Then run it,
 * anywhere, and give it back. */
struct journal_job;
struct journal_job *journal_job_take(struct journal *j);
void journal_job_run(struct journal_job *job);
/* Takes the job. Not BELAY_OK: the disk failed, errno in *ret_errno; stop the process. */
BELAY_MUST_CHECK enum belay_err journal_job_done(struct journal *j, struct journal_job *job,
                                                 int *ret_errno);

/* No batch before `lsn` is needed any more: whole segments go with the next job. */
void journal_release(struct journal *j, uint64_t lsn);
/* The number of the first batch that is still on disk. */
uint64_t journal_first(const struct journal *j);
size_t journal_segments(const struct journal *j);

/* Is the disk full? It is when the reserve was used, or somebody else has found no space for
 * another file; and then until there is a reserve, and space for a segment beside it. */
struct journal_room {
    uint64_t needed, free; /* bytes to go on, and what was there; needed 0: it is not full */
};
const struct journal_room *journal_room(const struct journal *j);
void journal_found_no_room(struct journal *j);
void journal_look_for_room(struct journal *j); /* with the next job, which is due now */
#endif
