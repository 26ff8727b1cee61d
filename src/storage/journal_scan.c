/* journal_scan.c - one segment by itself, read as far as anything in it can be believed. */
#include "storage/journal.h"

#include "storage/journal_format.h"

static void give(struct slice payload, uint64_t seq, journal_sink *sink, void *ctx,
                 struct journal_scan *look)
{
    struct journal_record rec;
    while (payload.len > 0 && journal_take_record(&payload, &rec)) {
        BELAY_DCHECK(rec.kind != JOURNAL_NONE && rec.kind < JOURNAL_KIND_COUNT);
        look->full = rec.kind == JOURNAL_END;
        enum belay_err err = sink(ctx, &rec, seq);
        (void)err;
    }
}

/* A head that is damaged may still have the salt, and the batches prove whether it has. */
static void look_at_head(const char *name, struct slice file, struct segment *seg,
                         struct journal_scan *ret)
{
    enum { SALT_AT = 32 };
    BELAY_DCHECK(seg->number > 0 && seg->size == 0);
    enum belay_err err = journal_read_head(name, file, seg);
    bool usual = file.len >= JOURNAL_SEGMENT_BYTES_MIN && file.len % JOURNAL_SECTOR == 0;
    ret->size = seg->size ? seg->size : usual ? file.len : 0;
    if (err == BELAY_OK)
        return;
    const char *text = strchr(journal_problem(), ' ');
    snprintf(ret->problem, sizeof ret->problem, "%s", text ? text + 1 : "damaged");
    if (file.len >= JOURNAL_SECTOR)
        seg->salt = get_u64(file.data + SALT_AT);
}

bool journal_scan(const char *name, struct slice file, journal_sink *sink, void *ctx,
                  struct journal_scan *ret)
{
    *ret = (struct journal_scan){.used = JOURNAL_SECTOR};
    if (!journal_segment_number(name, &ret->number))
        return false;
    struct segment seg = {.number = ret->number};
    look_at_head(name, file, &seg, ret);
    uint64_t bad_at = 0; /* damage, if something sound comes behind it */
    for (uint64_t at = JOURNAL_SECTOR; at < file.len;) {
        uint64_t seq;
        struct slice payload;
        if (!journal_batch_at(file, &seg, at, &seq, &payload)) {
            bad_at = bad_at ? bad_at : at;
            at += JOURNAL_SECTOR;
            continue;
        }
        ret->damaged_at = ret->damaged_at ? ret->damaged_at : bad_at;
        ret->behind += ret->damaged_at != 0;
        ret->first = ret->first ? ret->first : seq;
        ret->last = seq;
        BELAY_CHECK(at < file.len && seq > 0);
        give(payload, seq, sink, ctx, ret);
        at += sector_up(BATCH_HEAD + payload.len);
        ret->used = at;
    }
    BELAY_DCHECK((ret->first == 0) == (ret->last == 0));
    BELAY_DCHECK((ret->damaged_at == 0) == (ret->behind == 0));
    for (uint64_t at = ret->used; at < file.len && !ret->torn; at++)
        ret->torn = file.data[at] != 0;
    return true;
}
