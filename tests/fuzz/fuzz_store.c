/* fuzz_store.c - any bytes as a snapshot file or as the identity of a data directory: refused
 * with a text, or a node that starts; and the same snapshot from a peer is judged alike.
 *
 * The first byte says which file. Checksums are put right first, else nothing would get past
 * them: that of the file, and in a snapshot that of the state at its end. */
#include "../sim/sim_disk.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/order_core.h"
#include "events/feed.h"
#include "machine/machine.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 16, CRC_AT = 12, CRC = 4 };

/* --- a node without a network, whose disk is at once --- */

static struct journal_job *job;
static struct snapshot_task *task;

static uint64_t now_ms(void *ctx)
{
    (void)ctx;
    return 1000;
}

static void take_job(void *ctx, struct journal_job *j)
{
    (void)ctx;
    job = j;
}

static void drop(void *ctx, uint64_t to, struct slice frame)
{
    (void)ctx;
    (void)to;
    (void)frame;
}

static void take_task(void *ctx, struct snapshot_task *t)
{
    (void)ctx;
    task = t;
}

static void fatal(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
    BELAY_CHECK(false);
}

static const struct raft_host host = {now_ms, take_job, drop, take_task, fatal};

static void pump(struct order_raft *o)
{
    order_raft_settle(o);
    while (job || task) {
        struct journal_job *j = job;
        struct snapshot_task *t = task;
        job = NULL;
        task = NULL;
        if (j) {
            journal_job_run(j);
            order_raft_written(o, j);
        }
        if (t)
            order_raft_snapshotted(o, t, order_raft_snapshot_write(t));
        order_raft_settle(o);
    }
}

static enum belay_err start(struct sim_disk *d, struct feed *feed, struct order **ret_order,
                            struct engine **ret_engine)
{
    struct order_raft_config config = {.host = &host,
                                       .disk = &d->base,
                                       .node = 1,
                                       .groups = 1,
                                       .cluster = 9,
                                       .election_ms = 300,
                                       .heartbeat_ms = 60,
                                       .seed = 4711,
                                       .segment_bytes = JOURNAL_SEGMENT_BYTES_MIN};
    config.members.n = 1;
    config.members.servers[0] = (struct group_server){.id = 1, .voter = true, .address = "n@h"};
    enum belay_err err = order_raft_open(&config, ret_order);
    if (err != BELAY_OK)
        return err;
    *ret_engine = engine_open(
        &(struct engine_config){.order = *ret_order, .clock_ms = now_ms, .feed = feed});
    pump(order_raft_of(*ret_order));
    return BELAY_OK;
}

/* --- a sound directory, made once: nothing is behind its snapshot that has to fit a forged one
 * --- */

static struct sim_disk sound;
static char snapshot_name[DISK_NAME_MAX];

static void acquire(struct engine *e, const char *name)
{
    struct op op = {.kind = OP_ACQUIRE,
                    .account = SLICE("default"),
                    .ns = SLICE("default"),
                    .name = slice_str(name),
                    .owner = SLICE("me"),
                    .mode = MODE_EXCLUSIVE,
                    .ttl_ms = 60000};
    engine_submit(e, &op, NULL);
}

static void note_snapshot(void *ctx, const char *name)
{
    (void)ctx;
    if (strncmp(name, "snapshot-", 9) == 0)
        snprintf(snapshot_name, sizeof snapshot_name, "%s", name);
}

static void make_sound(struct feed *feed)
{
    struct order *order;
    struct engine *e;
    log_set_level(LOG_NONE);
    sim_disk_init(&sound, 1);
    BELAY_CHECK(start(&sound, feed, &order, &e) == BELAY_OK);
    acquire(e, "a");
    acquire(e, "b");
    pump(order_raft_of(order));
    order_raft_snapshot_now(order_raft_of(order));
    pump(order_raft_of(order));
    engine_close(e);
    sim_disk_revive(&sound);
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
    struct origin origins[ORIGINS_MAX];
    size_t n;
    return store_decode(file, 0, snap, origins, &n, state);
}

/* --- the two ways in --- */

static bool from_peer(struct slice file)
{
    static struct order_raft o = {.base = {.n_shards = 1}};
    struct replica r = {.o = &o};
    struct group_snapshot snap;
    struct slice state;
    struct wire msg = {.type = WIRE_SNAPSHOT, .from = 2, .data = file};
    if (head_of(file, &snap, &state)) {
        msg.index = snap.index;
        msg.log_term = snap.term;
    }
    bool ok = store_check(&r, &msg);
    machine_close(r.state);
    return ok;
}

static bool from_disk(const char *name, struct slice file, struct feed *feed)
{
    static struct sim_disk d;
    struct order *order;
    struct engine *e;
    sim_disk_init(&d, 2);
    sim_disk_copy(&d, &sound);
    struct sim_file *f = sim_disk_find(&d, name, true);
    buf_clear(&f->bytes);
    buf_put_slice(&f->bytes, file);
    bool ok = start(&d, feed, &order, &e) == BELAY_OK;
    if (ok)
        engine_close(e);
    else
        BELAY_CHECK(strlen(order_raft_problem()) > 0);
    sim_disk_wipe(&d);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct feed *feed;
    struct buf file = {0};
    struct group_snapshot snap;
    struct slice state;
    if (!feed) {
        feed = feed_open(16);
        make_sound(feed);
    }
    if (n < 1)
        return 0;
    buf_put(&file, data + 1, n - 1);
    seal(&file);
    if (data[0] & 1) {
        (void)from_disk("identity", buf_slice(&file), feed);
    } else {
        if (head_of(buf_slice(&file), &snap, &state) && state.len > CRC)
            put_crc(file.mem + file.end - CRC, crc32c(0, state.data, state.len - CRC));
        seal(&file);
        bool peer = from_peer(buf_slice(&file));
        bool disk = from_disk(snapshot_name, buf_slice(&file), feed);
        BELAY_CHECK(peer || !disk); /* the disk's must also join its journal */
    }
    buf_done(&file);
    return 0;
}
