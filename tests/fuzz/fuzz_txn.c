/* Transactions: JSON of a stranger becomes a program or an error; a program of a stranger is
 * refused or runs; whatever runs leaves a sound machine that goes through a snapshot; a broken
 * snapshot with variables and waiting transactions is refused or sound.
 *
 * The first byte says which: '{' and ' ' JSON, 'P' a program, 'S' what is done to a snapshot.
 */
#include "base/check.h"
#include "base/hash.h"
#include "command/txn_json.h"
#include "machine/machine.h"
#include "machine/program.h"
#include "proto/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct hash_key key = {3, 4};

struct world {
    struct machine *m;
    struct effects fx;
    uint64_t now_ms;
};

static void apply(struct world *w, struct op op)
{
    const char *what;
    op.now_ms = w->now_ms;
    op.index = machine_applied(w->m) + 1;
    BELAY_CHECK(op_validate(&op, &what) == BELAY_OK);
    effects_reset(&w->fx);
    machine_apply(w->m, &op, &w->fx);
}

static void world_open(struct world *w)
{
    *w = (struct world){.m = machine_open(key)};
    apply(w, (struct op){.kind = OP_SESSION_OPEN, .session = SLICE("s"), .ttl_ms = 60000});
    apply(w, (struct op){.kind = OP_SESSION_OPEN, .session = SLICE("r"), .ttl_ms = 60000});
}

static void world_done(struct world *w)
{
    machine_close(w->m);
    effects_done(&w->fx);
}

static void through_snapshot(struct world *w)
{
    struct buf bytes = {0}, again = {0};
    struct machine *copy = NULL;
    machine_encode(w->m, &bytes);
    BELAY_CHECK(machine_decode(buf_slice(&bytes), key, &copy) == BELAY_OK);
    machine_encode(copy, &again);
    BELAY_CHECK(slice_eq(buf_slice(&bytes), buf_slice(&again)));
    buf_done(&bytes);
    buf_done(&again);
    machine_close(w->m);
    w->m = copy;
}

/* By two sessions, waiting and not, until its deadline and beyond. */
static void run(struct slice program, uint64_t wait_ms)
{
    struct world w;
    world_open(&w);
    struct op op = {.kind = OP_TXN, .asker = 1, .session = SLICE("s"), .program = program};
    apply(&w, op);
    op.session = SLICE("r");
    op.wait_ms = wait_ms % 1000 + 1;
    apply(&w, op);
    through_snapshot(&w);
    op.session = SLICE("s");
    w.now_ms += 10;
    apply(&w, op);
    apply(&w, (struct op){.kind = OP_SESSION_CLOSE, .session = SLICE("s")});
    w.now_ms += 2000;
    apply(&w, (struct op){.kind = OP_TICK});
    through_snapshot(&w);
    world_done(&w);
}

static void canonical_is_stable(struct slice text, struct arena *a)
{
    struct json_token *root;
    struct json_error err;
    struct buf once = {0}, twice = {0};
    if (!json_parse_in(text, a, &root, &err))
        return;
    json_canonical(&once, root, a);
    BELAY_CHECK(json_parse_in(buf_slice(&once), a, &root, &err));
    json_canonical(&twice, root, a);
    BELAY_CHECK(slice_eq(buf_slice(&once), buf_slice(&twice)));
    buf_done(&once);
    buf_done(&twice);
}

static void json(struct slice text)
{
    struct arena a = {0};
    struct txn txn;
    const char *what = NULL;
    canonical_is_stable(text, &a);
    if (txn_read(text, &a, &txn, &what) == BELAY_OK) {
        if (txn.program.len && txn.program.len <= LIMIT_PROGRAM_BYTES) {
            BELAY_CHECK(program_check(txn.program, &what) == BELAY_OK ||
                        strstr(what, "LIMIT_TXN_LOCKS"));
            if (program_check(txn.program, &what) == BELAY_OK)
                run(txn.program, txn.wait_ms);
        }
    } else {
        BELAY_CHECK(what && what[0]);
    }
    arena_done(&a);
}

static void program(struct slice bytes)
{
    const char *what = NULL;
    if (program_check(bytes, &what) == BELAY_OK)
        run(bytes, 20);
    else
        BELAY_CHECK(what && what[0]);
}

/* A snapshot with everything in it: a shared variable, one that ends, a lock, one who waits. */
static void take_snapshot(struct buf *out)
{
    static const char set[] =
        "{\"session\":\"s\",\"statements\":[{\"assert\":{\"set\":{\"table\":\"t\",\"key\":\"k\","
        "\"value\":1,\"allow_duplicates\":true}}},{\"assert\":{\"set\":{\"table\":\"u\",\"key\":"
        "\"e\",\"value\":\"x\",\"ttl_ms\":500,\"description\":\"d\"}}},"
        "{\"assert\":{\"lock\":{\"name\":\"l\"}}}]}";
    static const char wait[] =
        "{\"session\":\"r\",\"statements\":[{\"assert\":{\"not\":{\"exists\":{\"table\":\"T\","
        "\"key\":\"k\"}}}},{\"assert\":{\"lock\":{\"name\":\"l\"}}}]}";
    const char *const both[] = {set, wait};
    struct world w;
    struct arena a = {0};
    world_open(&w);
    for (int i = 0; i < 2; i++) {
        struct txn txn;
        const char *what;
        BELAY_CHECK(txn_read(slice_str(both[i]), &a, &txn, &what) == BELAY_OK);
        apply(&w, (struct op){.kind = OP_TXN,
                              .session = txn.session,
                              .program = txn.program,
                              .wait_ms = i ? 900 : 0});
    }
    machine_encode(w.m, out);
    arena_done(&a);
    world_done(&w);
}

/* Pairs of bytes: where, and what to write there; then a checksum that fits. */
static void snapshot(const uint8_t *data, size_t size)
{
    enum { CRC_BYTES = 4, MAGIC_BYTES = 8 };
    struct buf bytes = {0};
    struct machine *m = NULL;
    take_snapshot(&bytes);
    size_t n = buf_len(&bytes) - CRC_BYTES;
    for (size_t i = 0; i + 2 < size; i += 3) {
        size_t at = ((size_t)data[i] << 8 | data[i + 1]) % (n - MAGIC_BYTES) + MAGIC_BYTES;
        bytes.mem[bytes.start + at] = (char)data[i + 2];
    }
    uint32_t crc = crc32c(0, buf_data(&bytes), n);
    for (size_t i = 0; i < CRC_BYTES; i++)
        bytes.mem[bytes.start + n + i] = (char)(crc >> (8 * i));
    if (machine_decode(buf_slice(&bytes), key, &m) == BELAY_OK) {
        struct world w = {.m = m, .now_ms = machine_now(m)};
        through_snapshot(&w);
        w.now_ms += 1000;
        if (w.now_ms < UINT64_MAX / 8)
            apply(&w, (struct op){.kind = OP_TICK});
        world_done(&w);
    }
    buf_done(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *copy = malloc(size); /* of exactly that size, so that reading past it is seen */
    memcpy(copy, data, size);
    if (data[0] == 'P')
        program(slice_of(copy + 1, size - 1));
    else if (data[0] == 'S')
        snapshot(data + 1, size - 1);
    else
        json(slice_of(copy, size));
    free(copy);
    return 0;
}
