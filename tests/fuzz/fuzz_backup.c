/* fuzz_backup.c - any bytes as a backup: refused with a text, or a directory from which a node
 * starts, that gives only fences which the backup does not know.
 *
 * Checksums are put right first, else nothing would get past them: those of the parts, and in each
 * state those of the snapshot file and of the state. */
#include "../sim/sim_disk.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "raft/replica_core.h"
#include "repair/backup.h"
#include "single_node.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { CRC = 4, CRC_AT = 12, SNAPSHOT_HEAD = 16, KIND_AT = 16, LENGTH_AT = 24 };

/* --- checksums --- */

static void put_crc(char *at, const char *of, size_t len)
{
    uint32_t crc = crc32c(0, of, len);
    for (int i = 0; i < CRC; i++)
        at[i] = (char)(crc >> (8 * i));
}

static void seal_snapshot(char *file, size_t len)
{
    struct group_snapshot snap;
    struct origin origins[NODE_PLACES];
    struct slice state;
    if (len < SNAPSHOT_HEAD)
        return;
    put_crc(file + CRC_AT, file + SNAPSHOT_HEAD, len - SNAPSHOT_HEAD);
    for (uint16_t group = 0; group < LIMIT_GROUPS; group++) {
        if (!store_decode(slice_of(file, len), group, &snap, origins, &state))
            continue;
        if (state.len > CRC)
            put_crc(file + len - CRC, state.data, state.len - CRC);
        put_crc(file + CRC_AT, file + SNAPSHOT_HEAD, len - SNAPSHOT_HEAD);
    }
}

static uint64_t length_of(const char *frame)
{
    uint64_t len = 0;
    for (size_t i = 0; i < 8; i++)
        len |= (uint64_t)(unsigned char)frame[LENGTH_AT + i] << (8 * i);
    return len;
}

static void seal(char *file, size_t left)
{
    while (left >= BACKUP_FRAME) {
        uint64_t len = length_of(file);
        if (len > left - BACKUP_FRAME)
            return;
        if (file[KIND_AT] == BACKUP_GROUP)
            seal_snapshot(file + BACKUP_FRAME, (size_t)len);
        put_crc(file + CRC_AT, file + KIND_AT, BACKUP_FRAME - KIND_AT + (size_t)len);
        file += BACKUP_FRAME + len;
        left -= BACKUP_FRAME + (size_t)len;
    }
}

/* --- what is made of it --- */

static void start(struct sim_disk *d, const struct backup_found *found)
{
    struct single_node n;
    BELAY_CHECK(single_node_open(&n, d, (size_t)found->head.groups) == BELAY_OK);
    uint64_t fence = single_node_acquire(&n, "default", "of the fuzzer"); /* 0: it may not */
    BELAY_CHECK(fence == 0 || fence > RESTORE_SKIP);
    single_node_close(&n);
    BELAY_CHECK(single_node_open(&n, d, (size_t)found->head.groups) == BELAY_OK);
    single_node_close(&n);
}

static void restore(struct slice file, const struct backup_found *found, bool keeps)
{
    static struct sim_disk d;
    struct restore_plan plan = {
        .keeps = keeps, .wall_ms = UINT64_C(1800000000000), .seed = 7, .name = "n1"};
    sim_disk_init(&d, 3);
    enum belay_err err = backup_restore(file, &plan, &d.base);
    if (err == BELAY_OK)
        start(&d, found);
    else
        BELAY_CHECK(err == BELAY_ERR_RANGE);
    sim_disk_wipe(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf file = {0};
    struct backup_found found;
    log_set_level(LOG_NONE);
    if (n < 2)
        return 0;
    buf_put(&file, data + 1, n - 1);
    seal(file.mem + file.start, buf_len(&file));
    if (backup_look(buf_slice(&file), &found) == BELAY_OK)
        restore(buf_slice(&file), &found, data[0] & 1);
    else
        BELAY_CHECK(found.problem[0]);
    buf_done(&file);
    return 0;
}
