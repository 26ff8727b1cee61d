/* fuzz_snapshot.c - any bytes as a snapshot: refused, or a sound machine.
 *
 * The checksum at the end is put right first, else nothing would get past it. What is accepted
 * must encode to the same bytes and survive some ops; the slow checks walk it after each. */
#include "base/check.h"
#include "base/hash.h"
#include "choice.h"
#include "machine/machine.h"
#include "machine/varint.h"
#include "random_ops.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { CHECKSUM_BYTES = 4, VERSION_AT = 8, OPS = 40 };

static void put_checksum(struct buf *bytes)
{
    size_t n = buf_len(bytes) - CHECKSUM_BYTES;
    uint32_t crc = crc32c(0, buf_data(bytes), n);
    for (size_t i = 0; i < CHECKSUM_BYTES; i++)
        bytes->mem[bytes->start + n + i] = (char)(crc >> (8 * i));
}

/* Time and the counter of numbers are far from their bounds, which no life is long enough to
 * reach: a few ops may go beyond, and the next snapshot is refused. */
static bool has_room(struct slice bytes)
{
    struct reader r = {.left = slice_of(bytes.data + VERSION_AT, bytes.len - VERSION_AT)};
    (void)reader_u64(&r); /* version */
    (void)reader_u64(&r); /* applied */
    uint64_t now_ms = reader_u64(&r);
    uint64_t counter = reader_u64(&r);
    return now_ms < UINT64_MAX / 8 && counter < UINT64_MAX / 8;
}

/* Sessions are opened in group 0 only: the engine sends no such op to another one. */
static bool is_group_0(const struct machine *m)
{
    bool is = false;
    for (unsigned groups = 1; groups <= UINT8_MAX; groups++)
        is |= machine_is_group(m, 0, groups);
    return is;
}

static void use(struct machine *m, uint64_t seed)
{
    bool opens = is_group_0(m);
    struct choice c = choice_seed(seed);
    struct effects fx = {0};
    struct random_ops g;
    random_ops_init(&g, &c);
    g.now_ms = machine_now(m);
    for (size_t i = 0; i < OPS; i++) {
        struct op op;
        bool read = choice_one_in(&c, 4);
        random_ops_next(&g, read, &op);
        if (op.kind == OP_SESSION_OPEN && !opens)
            continue;
        effects_reset(&fx);
        op.index = machine_applied(m) + 1;
        if (read)
            machine_query(m, &op, &fx);
        else
            machine_apply(m, &op, &fx);
        for (size_t k = 0; k < fx.n; k++)
            random_ops_saw(&g, &fx.events[k]);
    }
    effects_done(&fx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf bytes = {0}, again = {0};
    struct machine *m = NULL;
    if (n < CHECKSUM_BYTES)
        return 0;
    buf_put(&bytes, data, n);
    put_checksum(&bytes);
    if (machine_decode(buf_slice(&bytes), (struct hash_key){n, 1}, &m) == BELAY_OK) {
        machine_encode(m, &again);
        bool newest = buf_data(&bytes)[VERSION_AT] == buf_data(&again)[VERSION_AT];
        BELAY_CHECK(!newest || slice_eq(buf_slice(&again), buf_slice(&bytes)));
        if (has_room(buf_slice(&bytes)))
            use(m, n);
        buf_clear(&again);
        machine_encode(m, &again);
        struct machine *copy = NULL;
        BELAY_CHECK(machine_decode(buf_slice(&again), (struct hash_key){2, n}, &copy) ==
                    BELAY_OK);
        BELAY_CHECK(machine_hash(m) == machine_hash(copy));
        machine_close(copy);
        machine_close(m);
    }
    buf_done(&bytes);
    buf_done(&again);
    return 0;
}
