/* journal_read.c - what the disk says at start: which batches count, and where the log ends. */
#include "storage/journal.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "storage/journal_format.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

static _Thread_local char problem[512];

const char *journal_problem(void)
{
    return problem;
}

__attribute__((format(printf, 1, 2))) static enum belay_err corrupt(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misreads va_start */
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    BELAY_DCHECK(problem[0]);
    return BELAY_ERR_CORRUPT;
}

struct journal_reader {
    const struct journal_config *config;
    struct journal *j;
    uint64_t *numbers; /* of the segments on disk, rising */
    size_t n, cap;
    uint64_t base; /* the oldest segment that must be there */
    bool ended;    /* the segment just read says that it is full */
};

bool journal_segment_number(const char *name, uint64_t *ret_number)
{
    char same[DISK_NAME_MAX];
    if (strncmp(name, "journal-", 8) != 0)
        return false;
    uint64_t number = strtoull(name + 8, NULL, 16);
    journal_segment_name(number, same);
    if (strcmp(name, same) != 0)
        return false;
    *ret_number = number;
    return true;
}

static void note_name(void *ctx, const char *name)
{
    struct journal_reader *r = ctx;
    uint64_t number;
    if (!journal_segment_number(name, &number))
        return;
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->numbers = mem_resize(r->numbers, r->cap * sizeof *r->numbers);
    }
    BELAY_CHECK(r->n < r->cap);
    r->numbers[r->n++] = number;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool journal_batch_at(struct slice file, const struct segment *seg, uint64_t at,
                      uint64_t *ret_seq, struct slice *ret_payload)
{
    if (at + BATCH_HEAD > file.len)
        return false;
    const char *head = file.data + at;
    if (get_u32(head) != BATCH_MAGIC || get_u64(head + 16) != seg->number)
        return false;
    uint64_t len = get_u64(head + 24);
    if (len > file.len - at - BATCH_HEAD)
        return false;
    BELAY_CHECK(at + BATCH_HEAD + len <= file.len);
    struct slice covered = slice_of(head + 8, BATCH_HEAD - 8 + (size_t)len);
    if (journal_crc(seg->salt, seg->number, covered) != get_u32(head + 4))
        return false;
    *ret_seq = get_u64(head + 8);
    *ret_payload = slice_of(head + BATCH_HEAD, (size_t)len);
    return *ret_seq > 0; /* they are counted from 1 */
}

static bool batch_behind(struct slice file, const struct segment *seg, uint64_t at)
{
    BELAY_CHECK(at <= file.len);
    uint64_t seq;
    struct slice payload;
    for (at += JOURNAL_SECTOR; at < file.len; at += JOURNAL_SECTOR)
        if (journal_batch_at(file, seg, at, &seq, &payload))
            return true;
    return false;
}

bool journal_take_record(struct slice *in, struct journal_record *ret)
{
    if (in->len < RECORD_HEAD)
        return false;
    const char *head = in->data;
    uint32_t len = get_u32(head + 4);
    *ret = (struct journal_record){
        .kind = (enum journal_kind)(unsigned char)head[0],
        .type = (uint8_t)head[1],
        .group_no = (uint16_t)((unsigned char)head[2] | (unsigned char)head[3] << 8),
        .term = get_u64(head + 8),
        .index = get_u64(head + 16),
        .data = slice_of(head + RECORD_HEAD, len),
    };
    if (ret->kind == JOURNAL_NONE || ret->kind >= JOURNAL_KIND_COUNT || ret->type > 127)
        return false;
    if (len > in->len - RECORD_HEAD || ret->group_no >= JOURNAL_GROUPS_MAX)
        return false;
    if (ret->kind != JOURNAL_ENTRY && len >= DISK_NAME_MAX)
        return false;
    in->data += RECORD_HEAD + len;
    in->len -= RECORD_HEAD + len;
    BELAY_DCHECK(ret->data.data + ret->data.len == in->data);
    return true;
}

static enum belay_err read_batch(struct journal_reader *r, const char *name,
                                 struct slice payload, uint64_t seq)
{
    BELAY_CHECK(seq > 0);
    while (payload.len > 0) {
        struct journal_record rec;
        if (!journal_take_record(&payload, &rec))
            return corrupt("%s: batch %" PRIu64 " holds a record of an unknown form", name,
                           seq);
        r->j->sealed = rec.kind == JOURNAL_SEAL;
        r->ended = rec.kind == JOURNAL_END;
        if (rec.kind == JOURNAL_BASE)
            r->base = rec.index;
        if (rec.kind > JOURNAL_INSTALL)
            continue;
        journal_remember(r->j, &rec, seq);
        enum belay_err err = r->config->sink(r->config->sink_ctx, &rec, seq);
        if (err != BELAY_OK)
            return corrupt("%s: batch %" PRIu64 " does not continue the batch before it", name,
                           seq);
    }
    return BELAY_OK;
}

enum belay_err journal_read_head(const char *name, struct slice file, struct segment *seg)
{
    if (file.len < JOURNAL_SECTOR || memcmp(file.data, SEGMENT_MAGIC, 8) != 0)
        return corrupt("%s: not a journal segment", name);
    uint32_t crc = crc32c(0, file.data + 16, JOURNAL_SECTOR - 16);
    if (get_u32(file.data + 12) != crc)
        return corrupt("%s: the head is damaged", name);
    uint32_t version = get_u32(file.data + 8);
    if (version < FORMAT_JOURNAL_OLDEST || version > FORMAT_JOURNAL)
        return corrupt(
            "%s: has version %u, this program reads %d to %d: damaged, or of a newer "
            "belay",
            name, version, FORMAT_JOURNAL_OLDEST, FORMAT_JOURNAL);
    if (get_u64(file.data + 16) != seg->number)
        return corrupt("%s: it was another file", name);
    seg->size = get_u64(file.data + 24);
    seg->salt = get_u64(file.data + 32);
    if (seg->size != file.len || seg->size % JOURNAL_SECTOR != 0)
        return corrupt("%s: has %zu bytes instead of %" PRIu64, name, file.len, seg->size);
    BELAY_DCHECK(seg->size >= JOURNAL_SECTOR);
    return BELAY_OK;
}

/* Makes the rest of the segment zeros again, so that no half-written batch lies under new ones.
 */
static enum belay_err cut_tail(struct journal_reader *r, const char *name, struct slice file)
{
    uint64_t at = r->j->at;
    uint64_t last = at;
    for (uint64_t i = at; i < file.len; i++)
        if (file.data[i] != 0)
            last = i + 1;
    if (last == at)
        return BELAY_OK;
    log_warn("journal.tail_cut", "file=%s offset=%" PRIu64 " bytes=%" PRIu64, name, at,
             last - at);
    BELAY_CHECK(last > at && last <= file.len);
    char *zeros = mem_zalloc((size_t)(last - at));
    enum belay_err err = r->config->disk->ops->write(r->config->disk, name, at,
                                                     slice_of(zeros, (size_t)(last - at)));
    free(zeros);
    return err;
}

/* Reads the batches of one segment into the sink, up to the first that is not sound. */
static enum belay_err read_segment(struct journal_reader *r, const char *name,
                                   struct slice file, struct segment *seg)
{
    struct journal *j = r->j;
    uint64_t seq;
    struct slice payload;
    r->ended = false;
    j->at = JOURNAL_SECTOR;
    while (!r->ended && journal_batch_at(file, seg, j->at, &seq, &payload)) {
        BELAY_CHECK(j->at % JOURNAL_SECTOR == 0);
        if (j->next_seq == 0)
            j->next_seq = seg->first_seq = seq;
        if (seq != j->next_seq)
            return corrupt("%s: batch %" PRIu64 " where %" PRIu64 " should be", name, seq,
                           j->next_seq);
        enum belay_err err = read_batch(r, name, payload, seq);
        if (err != BELAY_OK)
            return err;
        j->next_seq++;
        j->at += sector_up(BATCH_HEAD + payload.len);
    }
    if (!r->ended && batch_behind(file, seg, j->at))
        return corrupt("%s: damaged at byte %" PRIu64 ", sound data follows", name, j->at);
    return BELAY_OK;
}

/* Only empty segments may follow the one that is not full: made, and not used before a crash.
 */
static enum belay_err read_rest(struct journal_reader *r, size_t from)
{
    BELAY_DCHECK(from > 0 && from <= r->n && !r->ended);
    for (size_t i = from; i < r->n; i++) {
        char name[DISK_NAME_MAX];
        struct buf file = {0};
        struct segment seg = {.number = r->numbers[i]};
        journal_segment_name(seg.number, name);
        enum belay_err err = r->config->disk->ops->read(r->config->disk, name, &file);
        if (err == BELAY_OK)
            err = journal_read_head(name, buf_slice(&file), &seg);
        if (err == BELAY_OK && batch_behind(buf_slice(&file), &seg, 0))
            err = corrupt("%s: in use, but the segment before it does not end", name);
        buf_done(&file);
        if (err != BELAY_OK)
            return err;
        err = r->config->disk->ops->recycle(r->config->disk, name);
        if (err != BELAY_OK)
            return err;
    }
    return BELAY_OK;
}

static enum belay_err read_one(struct journal_reader *r, size_t i, bool *ret_done)
{
    BELAY_DCHECK(i < r->n && i == r->j->n_segments);
    char name[DISK_NAME_MAX];
    struct buf file = {0};
    struct segment seg = {.number = r->numbers[i], .first_seq = r->j->next_seq};
    journal_segment_name(seg.number, name);
    enum belay_err err = r->config->disk->ops->read(r->config->disk, name, &file);
    if (err == BELAY_ERR_IO)
        corrupt("%s: cannot be read: %s", name, strerror(errno));
    r->j->at = JOURNAL_SECTOR;
    if (i > 0 && r->numbers[i] != r->numbers[i - 1] + 1)
        err = corrupt("%s: the segment before it is missing", name);
    if (err == BELAY_OK)
        err = journal_read_head(name, buf_slice(&file), &seg);
    if (err == BELAY_OK)
        err = read_segment(r, name, buf_slice(&file), &seg);
    if (err == BELAY_OK && !r->ended) {
        *ret_done = true;
        err = read_rest(r, i + 1);
        if (err == BELAY_OK)
            err = cut_tail(r, name, buf_slice(&file));
    }
    journal_add_segment(r->j, &seg);
    buf_done(&file);
    return err;
}

static enum belay_err read_all(struct journal_reader *r)
{
    BELAY_CHECK(r->n > 0);
    bool done = false;
    for (size_t i = 0; i < r->n && !done; i++) {
        enum belay_err err = read_one(r, i, &done);
        if (err != BELAY_OK)
            return err;
    }
    if (!done)
        return corrupt("journal-%016" PRIx64 ": missing, the one before it is full",
                       r->numbers[r->n - 1] + 1);
    if (r->numbers[0] > r->base)
        return corrupt("journal-%016" PRIx64 ": missing, it is still needed", r->base);
    BELAY_DCHECK(r->j->n_segments > 0 && r->j->n_segments <= r->n);
    if (r->j->next_seq == 0)
        r->j->next_seq = r->j->segments[0].first_seq = 1;
    return BELAY_OK;
}

static enum belay_err start_first(struct journal *j)
{
    BELAY_CHECK(j->n_segments == 0);
    char name[DISK_NAME_MAX];
    char head[JOURNAL_SECTOR];
    struct segment seg = {1, 1, j->segment_bytes, j->salt ^ 1};
    journal_segment_name(seg.number, name);
    journal_segment_head(head, seg.number, seg.size, seg.salt);
    journal_add_segment(j, &seg);
    j->at = JOURNAL_SECTOR;
    j->next_seq = 1;
    return j->disk->ops->create(j->disk, name, slice_of(head, sizeof head), seg.size);
}

enum belay_err journal_open(const struct journal_config *config, bool fresh,
                            struct journal **ret_j)
{
    struct journal *j = mem_zalloc(sizeof *j);
    struct journal_reader r = {.config = config, .j = j};
    j->disk = config->disk;
    j->salt = config->salt;
    j->segment_bytes = config->segment_bytes ? config->segment_bytes : JOURNAL_SEGMENT_BYTES;
    BELAY_CHECK(j->segment_bytes >= JOURNAL_SEGMENT_BYTES_MIN);
    BELAY_CHECK(j->segment_bytes % JOURNAL_SECTOR == 0);
    problem[0] = '\0';
    enum belay_err err = config->disk->ops->list(config->disk, note_name, &r);
    if (err != BELAY_OK) {
        corrupt("the directory cannot be read: %s", strerror(errno));
        goto out;
    }
    if (r.n == 0 && !fresh) {
        err = corrupt("journal-%016x: missing, every segment is gone", 1);
        goto out;
    }
    if (r.n > 0) {
        qsort(r.numbers, r.n, sizeof *r.numbers, by_number);
        r.base = r.numbers[0];
        err = read_all(&r);
    } else {
        err = start_first(j);
    }
    if (err == BELAY_OK)
        err = journal_keep_reserve(j->disk, j->segment_bytes, &j->room);
    if (err == BELAY_ERR_IO && problem[0] == '\0')
        corrupt("the disk failed: %s", strerror(errno));
    j->durable = j->next_seq - 1;
out:
    free(r.numbers);
    if (err == BELAY_OK)
        *ret_j = j;
    else
        journal_close(j);
    return err;
}
