/* journal.c - writing; reading at start is journal_read.c. */
#include "storage/journal.h"

#include "base/hash.h"
#include "base/mem.h"
#include "storage/journal_format.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* These stand in every record on disk. */
#define ON_DISK(name, number) static_assert((name) == (number), #name " is stored as " #number)
ON_DISK(JOURNAL_NONE, 0);
ON_DISK(JOURNAL_ENTRY, 1);
ON_DISK(JOURNAL_VOTE, 2);
ON_DISK(JOURNAL_SNAPSHOT, 3);
ON_DISK(JOURNAL_INSTALL, 4);
ON_DISK(JOURNAL_END, 5);
ON_DISK(JOURNAL_SEAL, 6);
ON_DISK(JOURNAL_BASE, 7);

uint32_t journal_crc(uint64_t salt, uint64_t segment, struct slice bytes)
{
    BELAY_DCHECK(bytes.len >= BATCH_HEAD - 8); /* all of the head that is behind the sum */
    char key[16];
    put_u64(key, salt);
    put_u64(key + 8, segment);
    return crc32c(crc32c(0, key, sizeof key), bytes.data, bytes.len);
}

void journal_segment_name(uint64_t number, char name[DISK_NAME_MAX])
{
    BELAY_CHECK(number > 0);
    snprintf(name, DISK_NAME_MAX, "journal-%016" PRIx64, number);
}

void journal_put_record(struct buf *out, const struct journal_record *rec)
{
    BELAY_CHECK(rec->data.len <= JOURNAL_RECORD_BYTES_MAX);
    BELAY_CHECK(rec->kind != JOURNAL_NONE && rec->kind < JOURNAL_KIND_COUNT);
    char head[RECORD_HEAD];
    head[0] = (char)rec->kind;
    head[1] = (char)rec->type;
    head[2] = (char)(rec->group_no & 0xff);
    head[3] = (char)(rec->group_no >> 8);
    put_u32(head + 4, (uint32_t)rec->data.len);
    put_u64(head + 8, rec->term);
    put_u64(head + 16, rec->index);
    buf_put(out, head, sizeof head);
    buf_put_slice(out, rec->data);
}

void journal_batch_begin(struct buf *out)
{
    BELAY_DCHECK(buf_len(out) == 0);
    static const char zeros[BATCH_HEAD];
    buf_put(out, zeros, sizeof zeros);
}

/* Fills in the head of the batch that starts at `at`, and pads it to whole sectors. */
void journal_batch_end(struct buf *out, size_t at, uint64_t seq, uint64_t salt,
                       uint64_t segment)
{
    BELAY_CHECK(seq > 0 && out->end >= at + BATCH_HEAD);
    size_t len = out->end - at - BATCH_HEAD;
    BELAY_CHECK(!out->oom);
    char *head = out->mem + at;
    put_u32(head, BATCH_MAGIC);
    put_u64(head + 8, seq);
    put_u64(head + 16, segment);
    put_u64(head + 24, len);
    put_u32(head + 4, journal_crc(salt, segment, slice_of(head + 8, BATCH_HEAD - 8 + len)));
    static const char zeros[JOURNAL_SECTOR];
    buf_put(out, zeros, sector_up(BATCH_HEAD + len) - (BATCH_HEAD + len));
    BELAY_CHECK(!out->oom);
    BELAY_CHECK((out->end - at) % JOURNAL_SECTOR == 0);
}

void journal_segment_head(char head[JOURNAL_SECTOR], uint64_t number, uint64_t size,
                          uint64_t salt)
{
    BELAY_CHECK(number > 0 && size % JOURNAL_SECTOR == 0);
    memset(head, 0, JOURNAL_SECTOR);
    memcpy(head, SEGMENT_MAGIC, 8);
    put_u64(head + 16, number);
    put_u64(head + 24, size);
    put_u64(head + 32, salt);
    put_u32(head + 8, FORMAT_JOURNAL);
    put_u32(head + 12, crc32c(0, head + 16, JOURNAL_SECTOR - 16));
}

/* Before everything in front of batch `first` goes: what only those batches say is said again
 * in `out`, and from which segment on the journal is whole. */
static void restate(struct journal *j, uint64_t first, struct buf *out)
{
    BELAY_CHECK(j->n_segments > 0);
    journal_put_record(
        out, &(struct journal_record){.kind = JOURNAL_BASE, .index = j->segments[0].number});
    for (size_t i = 0; i < JOURNAL_GROUPS_MAX; i++) {
        struct journal_group *s = &j->groups[i];
        if (s->vote.kind && s->vote_seq < first) {
            journal_put_record(out, &s->vote);
            s->vote_seq = j->next_seq;
        }
        if (s->snapshot.kind && s->snapshot_seq < first) {
            journal_put_record(out, &s->snapshot);
            s->snapshot_seq = j->next_seq;
        }
    }
}

void journal_remember(struct journal *j, const struct journal_record *rec, uint64_t seq)
{
    BELAY_CHECK(rec->group_no < JOURNAL_GROUPS_MAX);
    struct journal_group *s = &j->groups[rec->group_no];
    if (rec->kind == JOURNAL_VOTE) {
        s->vote = *rec;
        s->vote_seq = seq;
    }
    if (rec->kind != JOURNAL_SNAPSHOT && rec->kind != JOURNAL_INSTALL)
        return;
    BELAY_CHECK(rec->data.len < sizeof s->name);
    memcpy(s->name, rec->data.data, rec->data.len);
    s->snapshot_seq = seq;
    s->snapshot = *rec;
    s->snapshot.kind = JOURNAL_SNAPSHOT; /* repeated, it must not void entries again */
    s->snapshot.data = slice_of(s->name, rec->data.len);
}

uint64_t journal_append(struct journal *j, const struct journal_record *rec)
{
    BELAY_CHECK(rec->data.len <= JOURNAL_RECORD_BYTES_MAX);
    BELAY_CHECK(rec->group_no < JOURNAL_GROUPS_MAX);
    BELAY_CHECK(j->next_seq > j->durable);
    journal_put_record(&j->pending, rec);
    journal_remember(j, rec, j->next_seq);
    j->sealed = rec->kind == JOURNAL_SEAL;
    return j->next_seq;
}

void journal_rename_file(struct journal *j, const char *name, const char *to)
{
    BELAY_CHECK(name[0] && strlen(name) < DISK_NAME_MAX && strlen(to) < DISK_NAME_MAX);
    struct file_op *f = mem_zalloc(sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->to, sizeof f->to, "%s", to);
    f->next = j->files;
    j->files = f;
}

void journal_remove_file(struct journal *j, const char *name)
{
    BELAY_CHECK(name[0]);
    journal_rename_file(j, name, "");
}

static void free_files(struct file_op *f)
{
    while (f) {
        struct file_op *next = f->next;
        free(f);
        f = next;
    }
}

void journal_seal(struct journal *j)
{
    if (!j->sealed)
        journal_append(j, &(struct journal_record){.kind = JOURNAL_SEAL});
    BELAY_DCHECK(j->sealed);
}

uint64_t journal_durable(const struct journal *j)
{
    BELAY_DCHECK(j->durable < j->next_seq);
    return j->durable;
}

uint64_t journal_bytes_from(const struct journal *j, uint64_t lsn)
{
    BELAY_CHECK(j->n_segments > 0);
    uint64_t bytes = j->at;
    for (size_t i = 0; i + 1 < j->n_segments; i++)
        if (lsn < j->segments[i + 1].first_seq)
            bytes += j->segments[i].size;
    return bytes;
}

uint64_t journal_bytes(const struct journal *j)
{
    return journal_bytes_from(j, 0);
}

uint64_t journal_first(const struct journal *j)
{
    BELAY_CHECK(j->n_segments > 0);
    return j->segments[0].first_seq;
}

size_t journal_segments(const struct journal *j)
{
    BELAY_CHECK(j->n_segments > 0);
    return j->n_segments;
}

void journal_release(struct journal *j, uint64_t lsn)
{
    if (lsn > j->released)
        j->released = lsn;
}

void journal_add_segment(struct journal *j, const struct segment *seg)
{
    BELAY_DCHECK(j->n_segments == 0 || j->segments[j->n_segments - 1].number <= seg->number);
    j->segments = mem_resize(j->segments, (j->n_segments + 1) * sizeof *seg);
    j->segments[j->n_segments++] = *seg;
}

/* The segments in front of which everything is released; never the last one. This batch says
 * again what they alone know, and that they may be missing; they go when it is durable. */
static void plan_removal(struct journal *j, struct journal_job *job)
{
    BELAY_CHECK(job->remove_n == 0 && j->n_segments > 0);
    size_t n = 0;
    while (n + 1 < j->n_segments && j->segments[n + 1].first_seq <= j->released)
        n++;
    if (n == 0)
        return;
    job->remove_first = j->segments[0].number;
    job->remove_n = n;
    memmove(j->segments, j->segments + n, (j->n_segments - n) * sizeof *j->segments);
    j->n_segments -= n;
    restate(j, j->segments[0].first_seq, &job->batch);
    BELAY_CHECK(j->n_segments > 0 && j->segments[0].first_seq <= j->released);
}

/* Closes the last segment and makes the next one as large as this batch needs. */
static void plan_segment(struct journal *j, struct journal_job *job, uint64_t need)
{
    struct segment *last = &j->segments[j->n_segments - 1];
    BELAY_CHECK(j->at + JOURNAL_SECTOR <= last->size);
    journal_batch_begin(&job->end);
    journal_put_record(&job->end, &(struct journal_record){.kind = JOURNAL_END});
    journal_batch_end(&job->end, 0, j->next_seq, last->salt, last->number);
    job->end_number = last->number;
    job->end_at = j->at;
    j->next_seq++;

    uint64_t size = j->segment_bytes;
    if (size < need)
        size = sector_up(need);
    struct segment next = {last->number + 1, j->next_seq, size, j->salt ^ (last->number + 1)};
    journal_segment_head(job->head, next.number, next.size, next.salt);
    job->size = size;
    BELAY_CHECK(next.size >= need && next.first_seq == j->next_seq);
    journal_add_segment(j, &next);
    j->at = JOURNAL_SECTOR;
}

bool journal_busy(const struct journal *j)
{
    return j->in_flight;
}

size_t journal_due(const struct journal *j)
{
    size_t bytes = buf_len(&j->pending);
    return bytes || !j->look_for_room ? bytes : 1;
}

const struct journal_room *journal_room(const struct journal *j)
{
    BELAY_DCHECK(j->room.needed == 0 || j->room.needed >= j->segment_bytes);
    return &j->room;
}

void journal_found_no_room(struct journal *j)
{
    if (j->room.needed == 0)
        j->room = (struct journal_room){.needed = j->segment_bytes};
    BELAY_DCHECK(j->room.needed > 0);
}

void journal_look_for_room(struct journal *j)
{
    j->look_for_room = true;
}

enum belay_err journal_keep_reserve(struct disk *disk, uint64_t segment_bytes,
                                    struct journal_room *room)
{
    BELAY_CHECK(segment_bytes > 0 && segment_bytes <= UINT64_MAX / JOURNAL_RESERVE / 2);
    bool was_full = room->needed > 0;
    uint64_t reserve = segment_bytes * JOURNAL_RESERVE;
    enum belay_err err = disk->ops->reserve(disk, reserve, &room->free);
    room->needed = 0;
    if (err == BELAY_ERR_LIMIT)
        room->needed = reserve + segment_bytes;
    else if (was_full && room->free < segment_bytes)
        room->needed = segment_bytes;
    return err == BELAY_ERR_LIMIT ? BELAY_OK : err;
}

/* The batch of all that is pending. */
static void plan_batch(struct journal *j, struct journal_job *job)
{
    BELAY_CHECK(j->at % JOURNAL_SECTOR == 0 && buf_len(&j->pending) > 0);
    journal_batch_begin(&job->batch);
    plan_removal(j, job);
    const struct segment *last = &j->segments[j->n_segments - 1];
    uint64_t bytes = sector_up(buf_len(&job->batch) + buf_len(&j->pending));
    (void)buf_reserve(&job->batch, bytes);
    if (j->at + bytes + JOURNAL_SECTOR > last->size) { /* room for the END stays free */
        plan_segment(j, job, JOURNAL_SECTOR + bytes + JOURNAL_SECTOR);
        last = &j->segments[j->n_segments - 1];
    }
    buf_put_slice(&job->batch, buf_slice(&j->pending));
    buf_clear(&j->pending);
    journal_batch_end(&job->batch, 0, j->next_seq, last->salt, last->number);
    job->number = last->number;
    job->at = j->at;
    job->seq = j->next_seq++;
    j->at += buf_len(&job->batch);
    BELAY_CHECK(j->at + JOURNAL_SECTOR <= last->size);
    BELAY_CHECK(buf_len(&j->pending) == 0 && job->seq < j->next_seq);
}

struct journal_job *journal_job_take(struct journal *j)
{
    if (j->in_flight || journal_due(j) == 0)
        return NULL;
    struct journal_job *job = mem_zalloc(sizeof *job);
    job->disk = j->disk;
    job->seq = j->durable;
    job->room = j->room;
    if (buf_len(&j->pending) > 0)
        plan_batch(j, job);
    job->files = j->files; /* without a batch only what nothing waits for: half a fetch */
    j->files = NULL;
    if (job->size || j->look_for_room)
        job->segment_bytes = j->segment_bytes;
    j->look_for_room = false;
    j->in_flight = true;
    BELAY_DCHECK((buf_len(&job->batch) > 0) == (job->seq > j->durable));
    return job;
}

void journal_job_run(struct journal_job *job)
{
    BELAY_CHECK((job->size == 0) == (buf_len(&job->end) == 0));
    const struct disk_ops *disk = job->disk->ops;
    char name[DISK_NAME_MAX];
    enum belay_err err = BELAY_OK;
    for (struct file_op *f = job->files; f && err == BELAY_OK; f = f->next)
        if (f->to[0])
            err = disk->rename(job->disk, f->name, f->to);
    if (err == BELAY_OK && job->size) {
        journal_segment_name(job->number, name);
        err = disk->create(job->disk, name, slice_of(job->head, sizeof job->head), job->size);
        if (err == BELAY_OK) {
            journal_segment_name(job->end_number, name);
            err = disk->write(job->disk, name, job->end_at, buf_slice(&job->end));
        }
    }
    if (err == BELAY_OK && buf_len(&job->batch) > 0) {
        journal_segment_name(job->number, name);
        err = disk->write(job->disk, name, job->at, buf_slice(&job->batch));
    }
    /* From the oldest on, so that a crash in between leaves no gap. */
    for (size_t i = 0; err == BELAY_OK && i < job->remove_n; i++) {
        journal_segment_name(job->remove_first + i, name);
        err = disk->remove(job->disk, name);
    }
    for (struct file_op *f = job->files; f && err == BELAY_OK; f = f->next)
        if (!f->to[0])
            err = disk->remove(job->disk, f->name);
    if (err == BELAY_OK && job->segment_bytes)
        err = journal_keep_reserve(job->disk, job->segment_bytes, &job->room);
    job->err = err;
    job->saved_errno = errno;
}

enum belay_err journal_job_done(struct journal *j, struct journal_job *job, int *ret_errno)
{
    BELAY_CHECK(j->in_flight && job->seq >= j->durable);
    enum belay_err err = job->err;
    *ret_errno = job->saved_errno;
    if (err == BELAY_OK) {
        j->durable = job->seq;
        if (job->segment_bytes)
            j->room = job->room;
    }
    j->in_flight = false;
    buf_done(&job->batch);
    buf_done(&job->end);
    free_files(job->files);
    free(job);
    return err;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    buf_done(&j->pending);
    free_files(j->files);
    free(j->segments);
    free(j);
}
