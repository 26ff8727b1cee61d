/* bench_txn.c - transactions in the state machine alone, on one core.
 *
 *   make benches && taskset -c 1 build/release/bench/bench_txn [SCALE]
 *
 * Every transaction is checked (op_validate) and applied, as the server does; what it says is
 * looked at. Prints `name value unit`. SCALE divides the amounts. */
#include "base/buf.h"
#include "base/check.h"
#include "command/txn_json.h"
#include "machine/machine.h"
#include "machine/program.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MILLION = 1000000, SESSIONS = 100, DIGITS = 8, TABLES = 8, KEYS = 1000 };

static const struct hash_key key = {11, 22};
static uint64_t scale = 1;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may run beside us */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double rss_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    BELAY_CHECK(f != NULL);
    BELAY_CHECK(fscanf(f, "%*s %ld", &pages) == 1);
    fclose(f);
    return (double)pages * 4096;
}

static void print(const char *name, double value, const char *unit)
{
    printf("%-34s %14.1f %s\n", name, value, unit);
}

struct bench {
    struct machine *m;
    struct effects fx;
    uint64_t now_ms;
    struct buf program;
    size_t keys[2 * TABLES]; /* where the digits of the keys stand in it */
    size_t n_keys;
    char sessions[SESSIONS][DIGITS];
};

static const struct event *apply(struct bench *b, struct op *op)
{
    const char *what;
    effects_reset(&b->fx);
    op->index = machine_applied(b->m) + 1;
    op->now_ms = b->now_ms;
    BELAY_CHECK(op_validate(op, &what) == BELAY_OK);
    machine_apply(b->m, op, &b->fx);
    return &b->fx.events[b->fx.n - 1];
}

static void bench_open(struct bench *b)
{
    *b = (struct bench){.m = machine_open(key)};
    for (int i = 0; i < SESSIONS; i++) {
        (void)snprintf(b->sessions[i], DIGITS, "s%06d", i);
        struct op op = {.kind = OP_SESSION_OPEN,
                        .session = slice_of(b->sessions[i], DIGITS - 1),
                        .ttl_ms = 3600000};
        apply(b, &op);
    }
}

static void bench_done(struct bench *b)
{
    machine_close(b->m);
    effects_done(&b->fx);
    buf_done(&b->program);
    malloc_trim(0);
}

/* Adds `ASSERT [NOT] node(table, key)`, the key being eight digits that set_key() changes. */
static void add(struct bench *b, enum program_node node, bool negate, const char *table)
{
    struct program_var v = {.table = slice_str(table), .key = SLICE("key-00000000")};
    if (node == NODE_SET) {
        v.flags = VAR_HAS_VALUE | VAR_ALLOW_DUPLICATES;
        v.value = SLICE("\"R-45899\"");
    }
    if (node == NODE_EXISTS)
        v.flags = VAR_IGNORE_THIS_SESSION;
    program_put(&b->program, NODE_ASSERT);
    if (negate)
        program_put(&b->program, NODE_NOT);
    program_put_var(&b->program, node, &v);
    const char *at =
        memmem(buf_data(&b->program) + (b->n_keys ? b->keys[b->n_keys - 1] : 0),
               buf_len(&b->program) - (b->n_keys ? b->keys[b->n_keys - 1] : 0), "key-", 4);
    b->keys[b->n_keys++] = (size_t)(at - buf_data(&b->program)) + 4;
}

static void set_key(struct bench *b, uint64_t number)
{
    char digits[DIGITS];
    for (size_t i = DIGITS; i-- > 0; number /= 10)
        digits[i] = (char)('0' + number % 10);
    for (size_t i = 0; i < b->n_keys; i++)
        memcpy(b->program.mem + b->program.start + b->keys[i], digits, DIGITS);
}

static void begin(struct bench *b, size_t n)
{
    buf_clear(&b->program);
    b->n_keys = 0;
    program_begin(&b->program, n);
}

/* `n` transactions of the program, keys from a ring of `keys`, sessions in turn. */
static double run(struct bench *b, uint64_t n, uint64_t keys, enum txn_status want)
{
    double start = seconds();
    for (uint64_t i = 0; i < n; i++) {
        set_key(b, i % keys);
        struct op op = {.kind = OP_TXN,
                        .asker = 1,
                        .session = slice_of(b->sessions[i % SESSIONS], DIGITS - 1),
                        .program = buf_slice(&b->program)};
        b->now_ms = i / 1000;
        const struct event *ev = apply(b, &op);
        BELAY_CHECK(ev->kind == EVENT_TXN && ev->status == want);
    }
    return (double)n / (seconds() - start);
}

static void one_statement(void)
{
    struct bench b;
    uint64_t n = 4 * (uint64_t)MILLION / scale;
    bench_open(&b);
    begin(&b, 1);
    add(&b, NODE_SET, false, "MDS-Entry");
    print("set, own record replaced", run(&b, n, KEYS, TXN_OK), "txn/s");
    begin(&b, 1);
    add(&b, NODE_EXISTS, true, "MDS-Review");
    print("exists, nothing there", run(&b, n, KEYS, TXN_OK), "txn/s");
    begin(&b, 1);
    add(&b, NODE_EXISTS, true, "MDS-Entry");
    print("exists, its own is ignored", run(&b, n, KEYS, TXN_OK), "txn/s");
    begin(&b, 2);
    add(&b, NODE_DELETE, false, "MDS-Entry");
    add(&b, NODE_SET, false, "MDS-Entry");
    print("delete and set", run(&b, n / 2, KEYS, TXN_OK), "txn/s");
    bench_done(&b);
}

static void eight_tables(void)
{
    struct bench b;
    bench_open(&b);
    begin(&b, (size_t)2 * TABLES);
    for (int i = 0; i < TABLES; i++) {
        char table[32];
        (void)snprintf(table, sizeof table, "Review-%d", i);
        add(&b, NODE_EXISTS, true, table);
        (void)snprintf(table, sizeof table, "Entry-%d", i);
        add(&b, NODE_SET, false, table);
    }
    print("8 tables: 8 exists and 8 set", run(&b, MILLION / scale, KEYS, TXN_OK), "txn/s");
    begin(&b, TABLES + 1);
    for (int i = 0; i < TABLES; i++) {
        char table[32];
        (void)snprintf(table, sizeof table, "Entry-%d", i);
        add(&b, NODE_SET, false, table);
    }
    add(&b, NODE_EXISTS, false, "Month-End");
    print("8 tables: 8 set, rolled back", run(&b, MILLION / scale, KEYS, TXN_ERROR), "txn/s");
    bench_done(&b);
}

static void memory(void)
{
    struct bench b;
    uint64_t n = MILLION / scale;
    bench_open(&b);
    double before = rss_bytes();
    begin(&b, 1);
    add(&b, NODE_SET, false, "MDS-Entry");
    print("set, new keys", run(&b, n, n, TXN_OK), "txn/s");
    double each = (rss_bytes() - before) / (double)n;
    print("memory of a variable, key 12 B", each - (double)(sizeof "\"R-45899\"" - 1),
          "bytes beyond its value");
    begin(&b, 1);
    add(&b, NODE_DELETE, false, "MDS-Entry");
    print("delete of a million", run(&b, n, n, TXN_OK), "txn/s");
    bench_done(&b);
}

/* Many wait for one key; each release lets one in. */
static void waiting(void)
{
    enum { WAITERS = 1000 };
    struct bench b;
    bench_open(&b);
    struct op op = {.kind = OP_TXN, .asker = 1, .session = slice_of(b.sessions[0], DIGITS - 1)};
    struct program_var v = {
        .flags = VAR_HAS_VALUE, .table = SLICE("t"), .key = SLICE("k"), .value = SLICE("1")};
    begin(&b, 1);
    program_put(&b.program, NODE_ASSERT);
    program_put_var(&b.program, NODE_SET, &v);
    op.program = buf_slice(&b.program);
    op.wait_ms = 3600000;
    for (int i = 0; i <= WAITERS; i++) {
        effects_reset(&b.fx);
        op.index = machine_applied(b.m) + 1;
        machine_apply(b.m, &op, &b.fx);
    }
    struct buf release = {0};
    program_begin(&release, 1);
    program_put(&release, NODE_ASSERT);
    program_put_var(&release, NODE_DELETE, &v);
    op.program = buf_slice(&release);
    op.wait_ms = 0;
    double start = seconds();
    for (int i = 0; i < WAITERS; i++)
        BELAY_CHECK(apply(&b, &op)->status == TXN_OK);
    print("hand over, 500 waiting on average", (double)WAITERS / (seconds() - start), "/s");
    buf_done(&release);
    bench_done(&b);
}

static void from_json(void)
{
    static const char json[] =
        "{\"session\":\"s000000\",\"description\":\"MDS Entry\",\"statements\":["
        "{\"assert\":{\"not\":{\"exists\":{\"table\":\"Month-End\",\"key\":\"CGROVE-35\"}}}},"
        "{\"assert\":{\"not\":{\"exists\":{\"table\":\"MDS-Review\",\"key\":\"CGROVE-35\","
        "\"value\":\"R-45899\"}}}},"
        "{\"assert\":{\"set\":{\"table\":\"MDS-Entry\",\"key\":\"CGROVE-35\","
        "\"value\":\"R-45899\",\"allow_duplicates\":true}}}]}";
    struct bench b;
    struct arena a = {0};
    uint64_t n = MILLION / scale;
    bench_open(&b);
    double start = seconds();
    for (uint64_t i = 0; i < n; i++) {
        struct txn txn;
        const char *what;
        arena_reset(&a);
        BELAY_CHECK(txn_read(SLICE(json), &a, &txn, &what) == BELAY_OK);
        struct op op = {.kind = OP_TXN,
                        .asker = 1,
                        .session = txn.session,
                        .text = txn.description,
                        .program = txn.program};
        BELAY_CHECK(apply(&b, &op)->status == TXN_OK);
    }
    print("the clinical entry, from JSON", (double)n / (seconds() - start), "txn/s");
    arena_done(&a);
    bench_done(&b);
}

int main(int argc, char **argv)
{
    scale = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    if (scale == 0)
        scale = 1;
    memory();
    one_statement();
    eight_tables();
    waiting();
    from_json();
    return 0;
}
