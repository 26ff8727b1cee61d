/* fuzz_member.c - any bytes as what a member says whose identity is proven: well-framed
 * messages of every kind, with numbers near the true ones or far from them, and entries that
 * hold sound ops, damaged ones or anything. The node goes on, and starts again from whatever it
 * has stored.
 *
 * A step is eight bytes: what, from whom, and small numbers; some take the bytes behind it. */
#include "../sim/sim_disk.h"
#include "base/check.h"
#include "base/log.h"
#include "raft/replica_core.h"
#include "single_node.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { STEP_BYTES = 8, STEPS_MAX = 48, ENTRIES_MAX = 3, TAIL_MAX = 48, PEERS = 2 };

/* A number near a true one, or far from all. */
static uint64_t near(uint64_t truth, uint8_t by)
{
    static const uint64_t far[] = {0,         1,          UINT32_MAX,        UINT64_MAX / 4,
                                   INT64_MAX, UINT64_MAX, UINT64_C(1) << 32, 127};
    if (by >= 248)
        return far[by & 7];
    return truth + by % 8 < 3 ? 0 : truth + by % 8 - 3;
}

static const char *const names[] = {"a", "b", "default", ""};

static void put_op(struct buf *out, const uint8_t *in, struct slice tail)
{
    struct op op = {.kind = (enum op_kind)(in[0] % OP_KIND_COUNT),
                    .account = SLICE("default"),
                    .ns = SLICE("default"),
                    .asker = in[1] & 1 ? (uint64_t)(1 + in[1] % 3) << OP_NODE_SHIFT | in[1] : 0,
                    .name = slice_str(names[in[2] % 4]),
                    .owner = slice_str(names[in[3] % 4]),
                    .session = in[4] & 1 ? SLICE("s") : slice_of("", 0),
                    .mode = in[5] % 4,
                    .ttl_ms = in[6] * 16u,
                    .wait_ms = in[7] * 16u,
                    .target = in[2] % 5,
                    .fence = in[3] % 5,
                    .flags = in[4]};
    if (in[7] & 64)
        op.program = tail;
    struct buf bytes = {0};
    op_encode(&op, &bytes);
    if (in[6] & 64 && buf_len(&bytes) > 0) /* one byte is another */
        bytes.mem[bytes.start + in[5] % buf_len(&bytes)] ^= (char)in[3];
    varint_put_bytes(out, buf_slice(&bytes));
    buf_done(&bytes);
}

static void put_entry(const struct replica_group *r, struct buf *out, const uint8_t *in,
                      struct slice tail)
{
    const struct origin *origin =
        replica_origin((struct replica_group *)(uintptr_t)r, 1 + in[1] % 3);
    if (in[0] % 8 == 7) {
        buf_put_slice(out, tail);
        return;
    }
    buf_put_byte(out, (char)(in[0] % 8 == 6 ? ENTRY_LEVEL : ENTRY_VERSION));
    varint_put(out, near(1000, in[2]));
    if (in[0] % 8 == 6) {
        varint_put(out, in[3] % 4);
        return;
    }
    varint_put(out, in[4] >= 250 ? in[4] : 1 + in[1] % 3);
    varint_put(out, near(origin ? origin->run : 1, in[5] % 8 ? 3 : in[6]));
    varint_put(out, near(origin ? origin->applied : 0, in[6] % 8 ? 4 : in[7]));
    put_op(out, in, tail);
}

static void put_members(struct buf *out, const uint8_t *in)
{
    struct group_conf conf = {.n = 1 + in[0] % 3};
    for (size_t i = 0; i < conf.n; i++) {
        conf.servers[i].id = in[1] == 255 ? 200 + i : i + 1;
        conf.servers[i].voter = in[2] >> i & 1;
        conf.servers[i].address[0] = (char)('a' + i);
    }
    group_conf_encode(&conf, out);
}

struct said {
    struct peer_message msg;
    struct peer_entry entries[ENTRIES_MAX];
    struct buf bytes[ENTRIES_MAX];
    struct buf data;
};

static void fill_entries(const struct replica_group *r, struct said *s, const uint8_t *in,
                         struct slice tail)
{
    s->msg.n_entries = in[6] % (ENTRIES_MAX + 1);
    s->msg.entries = s->entries;
    for (size_t i = 0; i < s->msg.n_entries; i++) {
        struct peer_entry *e = &s->entries[i];
        e->type = in[7] % 16 == 15 ? in[5] : in[7] % 16 == 14 ? GROUP_ENTRY_CHANGE : 1;
        if (e->type == GROUP_ENTRY_CHANGE)
            put_members(&s->bytes[i], in);
        else
            put_entry(r, &s->bytes[i], in, tail);
        e->term = near(s->msg.term, in[5] % 4 ? 3 : in[4]);
        e->data = buf_slice(&s->bytes[i]);
    }
}

static void step(struct single_node *n, const uint8_t *in, struct slice tail)
{
    struct replica *o = replica_of(n->order);
    const struct replica_group *r = &o->replicas[in[1] / 2 % o->base.n_groups];
    struct group_floor at;
    struct said s = {0};
    struct buf frame = {0};
    group_stands(r->group, &at);
    tail.len = tail.len < TAIL_MAX ? tail.len : TAIL_MAX;
    s.msg = (struct peer_message){.type = (enum wire_type)(1 + in[0] % (WIRE_TYPE_COUNT - 1)),
                                  .group_no = r->group_no,
                                  .from = 2 + in[1] % PEERS,
                                  .term = near(at.term, in[2]),
                                  .index = near(at.index, in[3]),
                                  .log_term = near(at.log_term, in[4] % 4 ? 3 : in[5]),
                                  .commit = near(at.index, in[5]),
                                  .reject = near(0, in[6] % 4 ? 3 : in[7]),
                                  .conf_index = in[6],
                                  .seq = near(r->round, in[7]),
                                  .flags = in[4]};
    if (s.msg.type == WIRE_APPEND)
        fill_entries(r, &s, in, tail);
    if (s.msg.type == WIRE_FORWARD) {
        s.msg.term = near(1, in[2] % 4 ? 3 : in[3]);
        s.msg.log_term = 0;
        s.msg.seq = near(1, in[4] % 8 ? 3 : in[5]);
        put_op(&s.data, in, tail);
    }
    if (s.msg.type == WIRE_NODE && in[3] & 1)
        s.msg.reject = o->start;
    s.msg.data = s.msg.type == WIRE_FORWARD ? buf_slice(&s.data) : tail;
    s.msg.conf = in[7] & 1 ? SLICE("m") : tail;
    peer_message_put(&s.msg, &frame);
    (void)replica_receive(o, s.msg.from, buf_slice(&frame));
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        buf_done(&s.bytes[i]);
    buf_done(&s.data);
    buf_done(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sim_disk d;
    struct single_node n;
    log_set_level(LOG_NONE);
    sim_disk_init(&d, 2);
    BELAY_CHECK(single_node_open_of_three(&n, &d, 3) == BELAY_OK);
    for (size_t i = 0; i < STEPS_MAX && size >= STEP_BYTES && !n.ended; i++) {
        data += STEP_BYTES, size -= STEP_BYTES;
        step(&n, data - STEP_BYTES, slice_of((const char *)data, size));
        n.now_ms += data[-1] & 128 ? 400 : 5;
        if (!n.ended && data[-1] & 128)
            replica_tick(replica_of(n.order));
        if (!n.ended && data[-1] % 4)
            single_node_pump(&n);
    }
    bool ended = n.ended;
    if (!ended)
        single_node_pump(&n);
    ended |= n.ended;
    single_node_close(&n);
    if (!ended) {
        BELAY_CHECK(single_node_open_of_three(&n, &d, 3) == BELAY_OK);
        single_node_close(&n);
    }
    sim_disk_wipe(&d);
    return 0;
}
