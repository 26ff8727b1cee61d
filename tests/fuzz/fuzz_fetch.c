/* fuzz_fetch.c - any bytes as what a leader says to a node that needs its snapshot: offers,
 * pieces, questions, in any order. The node takes in the sound one or none, and starts again
 * from whatever it has stored.
 *
 * A step is three bytes: what, and two numbers; the step of forged bytes takes those behind it.
 */
#include "../sim/sim_disk.h"
#include "base/check.h"
#include "base/log.h"
#include "machine/machine.h"
#include "raft/replica_core.h"
#include "single_node.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { LEADER = 2, TERM = 9, STEPS_MAX = 64 };

static struct buf sound; /* a snapshot file */
static struct group_snapshot snap;
static uint64_t sound_hash;

static void find_snapshot(void *ctx, const char *name)
{
    struct sim_disk *d = ctx;
    if (strncmp(name, "snapshot-", 9) == 0)
        BELAY_CHECK(d->base.ops->read(&d->base, name, &sound) == BELAY_OK);
}

static void make_sound(void)
{
    static struct sim_disk d;
    struct single_node n;
    struct judged judged = {0};
    sim_disk_init(&d, 1);
    BELAY_CHECK(single_node_open(&n, &d, 1) == BELAY_OK);
    for (int i = 0; i < 20; i++)
        BELAY_CHECK(single_node_acquire(&n, "default", (char[]){(char)('a' + i), '\0'}) > 0);
    replica_snapshot_now(replica_of(n.order));
    single_node_pump(&n);
    single_node_close(&n);
    BELAY_CHECK(d.base.ops->list(&d.base, find_snapshot, &d) == BELAY_OK);
    BELAY_CHECK(store_judge(1, 0, buf_slice(&sound), &judged));
    snap = judged.snap;
    sound_hash = machine_hash(judged.state);
    machine_close(judged.state);
    sim_disk_wipe(&d);
}

static void say(struct single_node *n, struct peer_message msg)
{
    struct buf frame = {0};
    msg.from = LEADER;
    peer_message_put(&msg, &frame);
    (void)replica_receive(replica_of(n->order), LEADER, buf_slice(&frame));
    buf_done(&frame);
}

static void beat(struct single_node *n, uint64_t term)
{
    say(n, (struct peer_message){
               .type = WIRE_APPEND, .term = term, .index = snap.index, .log_term = snap.term});
}

/* The piece at a place, `len` long or to the end; perhaps not where it belongs. */
static struct peer_message piece(size_t at, size_t len, size_t off)
{
    struct slice all = buf_slice(&sound);
    at = at < all.len ? at : all.len;
    len = len < all.len - at ? len : all.len - at;
    return (struct peer_message){.type = WIRE_PIECE,
                                 .index = snap.index,
                                 .log_term = snap.term,
                                 .seq = at + off,
                                 .data = slice_of(all.data + at, len)};
}

static void step(struct single_node *n, const uint8_t *in, struct slice rest, size_t *at)
{
    struct peer_message offer = {.type = WIRE_SNAPSHOT,
                                 .term = TERM,
                                 .index = snap.index,
                                 .log_term = snap.term,
                                 .seq = buf_len(&sound)};
    struct peer_message msg = piece(*at, (size_t)in[1] * 8, 0);
    switch (in[0] % 8) {
    case 0: /* the next piece, as it should be */
        say(n, msg);
        *at += msg.data.len;
        break;
    case 1:
        say(n, offer);
        break;
    case 2: /* another one */
        offer.index += in[1] % 3;
        offer.log_term += in[2] % 3;
        offer.seq += in[2] / 16u;
        say(n, offer);
        *at = 0;
        break;
    case 3:
        say(n, piece(in[1] * 16u, in[2] * 16u, in[2] % 4));
        break;
    case 4:
        msg.data = rest;
        say(n, msg);
        break;
    case 5:
        say(n, (struct peer_message){
                   .type = WIRE_FETCH, .index = in[1], .log_term = 1, .seq = in[2]});
        break;
    case 6:
        beat(n, TERM + in[1] % 2);
        break;
    default:
        n->now_ms += in[1] * 64u;
        replica_tick(replica_of(n->order));
    }
    if (in[2] % 4 || in[0] % 8 == 0) /* else it takes its time */
        single_node_pump(n);
}

static bool has_it(const struct single_node *n)
{
    return replica_of(n->order)->replicas[0].snapshot.index >= snap.index;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sim_disk d;
    struct single_node n;
    size_t at = 0;
    log_set_level(LOG_NONE);
    if (buf_len(&sound) == 0)
        make_sound();
    sim_disk_init(&d, 2);
    BELAY_CHECK(single_node_open_second(&n, &d) == BELAY_OK);
    beat(&n, TERM);
    single_node_pump(&n);
    for (size_t i = 0; i < STEPS_MAX && size >= 3; i++, data += 3, size -= 3)
        step(&n, data, slice_of((const char *)data + 3, size - 3), &at);
    single_node_pump(&n);
    bool stored = has_it(&n);
    if (stored)
        BELAY_CHECK(engine_hash(n.engine, 0) == sound_hash);
    single_node_close(&n);
    BELAY_CHECK(single_node_open_second(&n, &d) == BELAY_OK);
    BELAY_CHECK(has_it(&n) == stored);
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        BELAY_CHECK(!d.files[i].used || !store_is_passing(d.files[i].name));
    single_node_close(&n);
    sim_disk_wipe(&d);
    return 0;
}
