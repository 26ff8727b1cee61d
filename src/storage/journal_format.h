/* journal_format.h - the bytes of a journal and the fields behind journal.h; for journal*.c
 * only. */
#ifndef BELAY_STORAGE_JOURNAL_FORMAT_H
#define BELAY_STORAGE_JOURNAL_FORMAT_H

#include "base/check.h"
#include "base/format.h"
#include "storage/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char SEGMENT_MAGIC[8] = {'B', 'E', 'L', 'A', 'Y', 'J', 'N', 'L'};
#define BATCH_MAGIC 0x48435442u /* "BTCH" */
enum {
    BATCH_HEAD = 32,  /* magic, crc, seq, segment, length */
    RECORD_HEAD = 24, /* kind, type, shard, length, term, index */
};

struct segment {
    uint64_t number;
    uint64_t first_seq; /* of the first batch in it */
    uint64_t size;
    uint64_t salt;
};

struct journal_group {
    struct journal_record vote, snapshot; /* kind 0: none yet */
    uint64_t vote_seq, snapshot_seq;      /* the last batch that says so */
    char name[DISK_NAME_MAX];             /* the snapshot's data */
};

struct file_op {
    struct file_op *next;
    char name[DISK_NAME_MAX];
    char to[DISK_NAME_MAX]; /* its new name; "": it is removed */
};

struct journal {
    struct disk *disk;
    uint64_t segment_bytes, salt;
    struct segment *segments; /* oldest first; the last is being written */
    size_t n_segments;
    uint64_t at; /* where the next batch goes in the last segment */
    uint64_t next_seq, durable, released;
    struct buf pending; /* records of the next batch */
    struct file_op *files;
    bool in_flight, sealed;
    bool look_for_room; /* the next job tries to make the reserve again */
    struct journal_room room;
    struct journal_group groups[JOURNAL_GROUPS_MAX];
};

struct journal_job {
    struct disk *disk;
    uint64_t number, at, seq;
    struct buf batch;
    /* rotation: make segment `number` of `size` bytes, close `end_number` */
    uint64_t size, end_number, end_at;
    struct buf end;
    char head[JOURNAL_SECTOR];
    uint64_t remove_first;
    size_t remove_n;
    struct file_op *files;
    uint64_t segment_bytes; /* not 0: so large are the segments to keep a reserve for */
    struct journal_room room;
    enum belay_err err;
    int saved_errno;
};

static inline void put_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (8 * i));
}

static inline void put_u64(char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (char)(v >> (8 * i));
}

static inline uint32_t get_u32(const char *p)
{
    uint32_t v = 0;
    for (int i = 3; i >= 0; i--)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

static inline uint64_t get_u64(const char *p)
{
    return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static inline uint64_t sector_up(uint64_t n)
{
    BELAY_DCHECK(n <= UINT64_MAX - JOURNAL_SECTOR);
    return (n + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR * JOURNAL_SECTOR;
}

uint32_t journal_crc(uint64_t salt, uint64_t segment, struct slice bytes);
void journal_segment_name(uint64_t number, char name[DISK_NAME_MAX]);
void journal_segment_head(char head[JOURNAL_SECTOR], uint64_t number, uint64_t size,
                          uint64_t salt);
bool journal_segment_number(const char *name, uint64_t *ret_number); /* false: it is none */
BELAY_MUST_CHECK enum belay_err journal_read_head(const char *name, struct slice file,
                                                  struct segment *seg);
/* Is there a sound batch at `at`? *ret_payload borrows its records. */
bool journal_batch_at(struct slice file, const struct segment *seg, uint64_t at,
                      uint64_t *ret_seq, struct slice *ret_payload);
/* Takes one record off the front of `in`; false: it does not hold one. */
bool journal_take_record(struct slice *in, struct journal_record *ret);
void journal_put_record(struct buf *out, const struct journal_record *rec);
void journal_batch_begin(struct buf *out);
void journal_batch_end(struct buf *out, size_t at, uint64_t seq, uint64_t salt,
                       uint64_t segment);
void journal_remember(struct journal *j, const struct journal_record *rec, uint64_t seq);
/* BELAY_OK, also when there is no space for the reserve: *room says so. */
BELAY_MUST_CHECK enum belay_err journal_keep_reserve(struct disk *disk, uint64_t segment_bytes,
                                                     struct journal_room *room);
void journal_add_segment(struct journal *j, const struct segment *seg);
#endif
