/* fuzz_store.c - any bytes as a snapshot file or as the identity of a data directory: refused
 * with a text, or a node that starts; and the same snapshot from a peer is judged alike.
 *
 * The first byte says which file. Checksums are put right first, else nothing would get past
 * them: that of the file, and in a snapshot that of the state at its end. */
#include "../sim/sim_disk.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "machine/machine.h"
#include "raft/replica_core.h"
#include "repair/inspect.h"
#include "single_node.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 16, CRC_AT = 12, CRC = 4 };

/* --- a sound directory, made once: nothing is behind its snapshot that has to fit a forged one
 * --- */

static struct sim_disk sound;
static char snapshot_name[DISK_NAME_MAX];

static void note_snapshot(void *ctx, const char *name)
{
    (void)ctx;
    if (strncmp(name, "snapshot-", 9) == 0)
        snprintf(snapshot_name, sizeof snapshot_name, "%s", name);
}

static void make_sound(void)
{
    struct single_node n;
    sim_disk_init(&sound, 1);
    BELAY_CHECK(single_node_open(&n, &sound, 1) == BELAY_OK);
    BELAY_CHECK(single_node_acquire(&n, "default", "a") == 1);
    BELAY_CHECK(single_node_acquire(&n, "default", "b") == 2);
    replica_snapshot_now(replica_of(n.order));
    single_node_pump(&n);
    single_node_close(&n);
    BELAY_CHECK(sound.base.ops->list(&sound.base, note_snapshot, NULL) == BELAY_OK);
    BELAY_CHECK(snapshot_name[0]);
}

/* --- checksums --- */

static void put_crc(char *at, uint32_t crc)
{
    for (int i = 0; i < CRC; i++)
        at[i] = (char)(crc >> (8 * i));
}

static void seal(struct buf *file)
{
    if (buf_len(file) < HEAD)
        return;
    char *mem = file->mem + file->start;
    put_crc(mem + CRC_AT, crc32c(0, mem + HEAD, buf_len(file) - HEAD));
}

static bool head_of(struct slice file, struct group_snapshot *snap, struct slice *state)
{
    struct origin origins[NODE_PLACES];
    return store_decode(file, 0, snap, origins, state);
}

/* --- the two ways in --- */

static bool from_peer(struct slice file)
{
    struct judged judged = {0};
    bool ok = store_judge(1, 0, file, &judged);
    machine_close(judged.state);
    return ok;
}

/* Whoever looks at the directory says the same as who starts from it; and what can be saved of
 * it is something to start from, unless a forged snapshot is part of it that no journal fits.
 */
static void look(struct sim_disk *d, bool *ret_starts)
{
    static struct sim_disk to;
    struct inspection in;
    struct single_node n;
    BELAY_CHECK(inspect_open(&d->base, &in) == BELAY_OK);
    bool forged = false;
    for (size_t i = 0; i < in.n_files; i++)
        forged |= strcmp(in.files[i].name, snapshot_name) == 0 &&
                  in.files[i].state != INSPECT_DAMAGED;
    if (!in.starts && in.can_salvage && !forged) {
        sim_disk_init(&to, 3);
        BELAY_CHECK(inspect_salvage(&in, &to.base, 99) == BELAY_OK);
        BELAY_CHECK(single_node_open(&n, &to, 1) == BELAY_OK);
        single_node_close(&n);
        sim_disk_wipe(&to);
    }
    *ret_starts = in.starts;
    inspect_close(&in);
}

static bool from_disk(const char *name, struct slice file)
{
    static struct sim_disk d;
    struct single_node n;
    bool starts;
    sim_disk_init(&d, 2);
    sim_disk_copy(&d, &sound);
    struct sim_file *f = sim_disk_find(&d, name, true);
    buf_clear(&f->bytes);
    buf_put_slice(&f->bytes, file);
    look(&d, &starts);
    enum belay_err err = single_node_open(&n, &d, 1);
    BELAY_CHECK((err == BELAY_OK) == starts || err == BELAY_ERR_IN_USE); /* of another node */
    if (err == BELAY_OK)
        single_node_close(&n);
    else
        BELAY_CHECK(strlen(replica_problem()) > 0);
    sim_disk_wipe(&d);
    return err == BELAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf file = {0};
    struct group_snapshot snap;
    struct slice state;
    log_set_level(LOG_NONE);
    if (!snapshot_name[0])
        make_sound();
    if (n < 1)
        return 0;
    buf_put(&file, data + 1, n - 1);
    seal(&file);
    if (data[0] & 1) {
        (void)from_disk("identity", buf_slice(&file));
    } else {
        if (head_of(buf_slice(&file), &snap, &state) && state.len > CRC)
            put_crc(file.mem + file.end - CRC, crc32c(0, state.data, state.len - CRC));
        seal(&file);
        bool peer = from_peer(buf_slice(&file));
        bool disk = from_disk(snapshot_name, buf_slice(&file));
        BELAY_CHECK(peer || !disk); /* the disk's must also join its journal */
    }
    buf_done(&file);
    return 0;
}
