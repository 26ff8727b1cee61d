/* fuzz_journal.c - any bytes as the only segment of a journal: refused or read, and usable
 * afterwards; and whoever looks at the directory says the same of it.
 *
 * Every other input has the checksums of its head and batches put right first: with them alone
 * nothing but records that were really written would get any further. */
#include "../sim/sim_disk.h"
#include "base/hash.h"
#include "base/log.h"
#include "repair/inspect.h"
#include "storage/journal.h"
#include "storage/journal_format.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char name[] = "journal-0000000000000001";

static enum belay_err count(void *ctx, const struct journal_record *rec, uint64_t lsn)
{
    BELAY_CHECK(lsn > 0);
    BELAY_CHECK(rec->kind != JOURNAL_NONE);
    ++*(size_t *)ctx;
    return BELAY_OK;
}

static void put_right(struct buf *bytes)
{
    enum { SALT_AT = 32 };
    size_t len = buf_len(bytes);
    if (len < JOURNAL_SECTOR)
        return;
    char *file = bytes->mem + bytes->start;
    put_u32(file + 12, crc32c(0, file + 16, JOURNAL_SECTOR - 16));
    for (size_t at = JOURNAL_SECTOR; at + BATCH_HEAD <= len; at += JOURNAL_SECTOR) {
        char *head = file + at;
        uint64_t n = get_u64(head + 24);
        if (get_u32(head) == BATCH_MAGIC && n <= len - at - BATCH_HEAD)
            put_u32(head + 4, journal_crc(get_u64(file + SALT_AT), get_u64(head + 16),
                                          slice_of(head + 8, BATCH_HEAD - 8 + (size_t)n)));
    }
}

static void read_and_go_on(struct sim_disk *d)
{
    size_t records = 0;
    struct journal_config config = {
        .disk = &d->base, .segment_bytes = 16 << 10, .sink = count, .sink_ctx = &records};
    struct journal *j = NULL;
    if (journal_open(&config, false, &j) != BELAY_OK)
        return;
    size_t before = records;
    journal_append(
        j, &(struct journal_record){
               .kind = JOURNAL_ENTRY, .type = 1, .term = 1, .index = 1, .data = SLICE("x")});
    struct journal_job *job = journal_job_take(j);
    int code;
    journal_job_run(job);
    BELAY_CHECK(journal_job_done(j, job, &code) == BELAY_OK);
    journal_close(j);
    records = 0;
    BELAY_CHECK(journal_open(&config, false, &j) == BELAY_OK);
    BELAY_CHECK(records > before);
    journal_close(j);
}

static void look(struct sim_disk *d)
{
    struct inspection in;
    uint64_t changes = d->changes;
    BELAY_CHECK(inspect_open(&d->base, &in) == BELAY_OK);
    BELAY_CHECK(!in.starts); /* it has no identity */
    BELAY_CHECK(d->changes == changes);
    inspect_close(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sim_disk d;
    log_set_level(LOG_NONE);
    sim_disk_init(&d, 1);
    struct buf *file = &sim_disk_find(&d, name, true)->bytes;
    buf_put(file, data, size);
    if (size % 2 == 0)
        put_right(file);
    look(&d);
    read_and_go_on(&d);
    sim_disk_wipe(&d);
    return 0;
}
