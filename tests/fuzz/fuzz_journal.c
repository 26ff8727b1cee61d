/* Any bytes as the only segment of a journal: refused or read, and usable afterwards. */
#include "../sim/sim_disk.h"
#include "base/log.h"
#include "engine/journal.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum belay_err count(void *ctx, const struct journal_record *rec, uint64_t lsn)
{
    BELAY_CHECK(lsn > 0);
    BELAY_CHECK(rec->kind != JOURNAL_NONE);
    ++*(size_t *)ctx;
    return BELAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sim_disk d;
    static bool quiet;
    if (!quiet)
        log_set_level(LOG_ERROR);
    quiet = true;
    sim_disk_init(&d, 1);
    buf_put(&sim_disk_find(&d, "journal-0000000000000001", true)->bytes, data, size);
    size_t records = 0;
    struct journal_config config = {.disk = &d.base,
                                    .segment_bytes = JOURNAL_SEGMENT_BYTES_MIN,
                                    .sink = count,
                                    .sink_ctx = &records};
    struct journal *j = NULL;
    if (journal_open(&config, false, &j) == BELAY_OK) {
        size_t before = records;
        journal_append(
            j,
            &(struct journal_record){
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
    sim_disk_wipe(&d);
    return 0;
}
