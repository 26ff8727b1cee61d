/* bench_machine.c - the state machine alone, on one core, without sockets or disk.
 *
 *   make benches && taskset -c 1 build/release/bench/bench_machine [SCALE]
 *
 * Prints `name value unit`. Times are CPU time of the one thread, so that what else runs on the
 * machine does not count. SCALE divides the amounts (10: a tenth, for a quick look). */
#include "base/buf.h"
#include "base/check.h"
#include "machine/machine.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MILLION = 1000000, NAME_BYTES = 16, OWNERS = 64 };

static const struct hash_key key = {11, 22};
static uint64_t scale = 1;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
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

/* One machine, its time and a place for events. */
struct bench {
    struct machine *m;
    struct effects fx;
    uint64_t now_ms;
    double slowest; /* seconds, of one apply */
};

static void bench_open(struct bench *b)
{
    *b = (struct bench){.m = machine_open(key)};
}

static void bench_done(struct bench *b)
{
    machine_close(b->m);
    effects_done(&b->fx);
    malloc_trim(0);
}

static const struct event *apply(struct bench *b, struct op *op)
{
    effects_reset(&b->fx);
    op->index = machine_applied(b->m) + 1;
    op->now_ms = b->now_ms;
    machine_apply(b->m, op, &b->fx);
    return b->fx.n ? &b->fx.events[b->fx.n - 1] : NULL;
}

static void apply_timed(struct bench *b, struct op *op)
{
    double start = seconds();
    apply(b, op);
    double took = seconds() - start;
    if (took > b->slowest)
        b->slowest = took;
}

static struct slice name_of(uint64_t i, char text[NAME_BYTES + 1])
{
    snprintf(text, NAME_BYTES + 1, "lock/%011" PRIu64, i);
    return slice_of(text, NAME_BYTES);
}

static struct op acquire_op(struct slice name, struct slice owner)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .asker = 1,
                       .account = SLICE("default"),
                       .ns = SLICE("default"),
                       .name = name,
                       .owner = owner,
                       .mode = MODE_EXCLUSIVE,
                       .ttl_ms = TTL_DEFAULT_MS};
}

static struct op release_op(struct slice name, uint64_t fence)
{
    return (struct op){.kind = OP_RELEASE,
                       .asker = 1,
                       .account = SLICE("default"),
                       .ns = SLICE("default"),
                       .name = name,
                       .fence = fence};
}

/* Acquire and release, over `names` locks in turn; a pair is two ops. */
static void pairs(const char *title, uint64_t names, enum lock_mode mode)
{
    struct bench b;
    uint64_t n = 3 * MILLION / scale;
    char(*text)[NAME_BYTES + 1] = calloc(names, sizeof *text);
    BELAY_CHECK(text != NULL);
    for (uint64_t i = 0; i < names; i++)
        name_of(i * 7919 % names, text[i]);
    bench_open(&b);
    double start = seconds();
    for (uint64_t i = 0; i < n; i++) {
        struct op op = acquire_op(slice_of(text[i % names], NAME_BYTES), SLICE("worker-1"));
        op.mode = mode;
        b.now_ms += i % 1000 == 0;
        const struct event *ev = apply(&b, &op);
        BELAY_CHECK(ev->kind == EVENT_GRANTED);
        op = release_op(op.name, ev->fence);
        apply(&b, &op);
    }
    print(title, (double)(2 * n) / (seconds() - start), "ops/s");
    bench_done(&b);
    free(text);
}

/* The same with a request id each: answers are kept, and the oldest of them go. */
static void pairs_with_ids(void)
{
    struct bench b;
    uint64_t n = 2 * MILLION / scale;
    char id[NAME_BYTES + 1];
    bench_open(&b);
    double before = rss_bytes(), start = seconds();
    for (uint64_t i = 0; i < n; i++) {
        name_of(2 * i, id);
        struct op op = acquire_op(SLICE("the one"), SLICE("worker-1"));
        op.request = slice_of(id, NAME_BYTES);
        b.now_ms += i % 1000 == 0;
        op = release_op(op.name, apply(&b, &op)->fence);
        name_of(2 * i + 1, id);
        op.request = slice_of(id, NAME_BYTES);
        apply(&b, &op);
    }
    print("acquire+release, request ids", (double)(2 * n) / (seconds() - start), "ops/s");
    struct machine_counts counts;
    machine_counts(b.m, &counts);
    print("memory of an answer", (rss_bytes() - before) / (double)counts.receipts, "bytes RSS");
    bench_done(&b);
}

/* One lock, 64 waiters: each release hands over to the next, who goes to the end of the line.
 */
static void hand_off(void)
{
    struct bench b;
    char owners[OWNERS + 1][16];
    uint64_t n = 2 * MILLION / scale;
    struct op op = acquire_op(SLICE("the contended one"), SLICE(""));
    op.wait_ms = LIMIT_WAIT_MS;
    bench_open(&b);
    uint64_t fence = 0;
    for (size_t i = 0; i <= OWNERS; i++) {
        snprintf(owners[i], sizeof owners[i], "worker-%zu", i);
        op.owner = slice_str(owners[i]);
        const struct event *ev = apply(&b, &op);
        fence = ev->kind == EVENT_GRANTED ? ev->fence : fence;
    }
    double start = seconds();
    for (uint64_t i = 0; i < n; i++) {
        struct op release = release_op(op.name, fence);
        apply(&b, &release);
        size_t grants = 0;
        for (size_t k = 0; k < b.fx.n; k++)
            if (b.fx.events[k].kind == EVENT_GRANTED) {
                fence = b.fx.events[k].fence;
                grants++;
            }
        BELAY_CHECK(grants == 1); /* exactly one wake-up a release */
        op.owner = slice_str(owners[i % (OWNERS + 1)]);
        apply(&b, &op);
    }
    print("hand-off, 64 waiters", (double)n / (seconds() - start), "hand-offs/s");
    bench_done(&b);
}

static void sessions(void)
{
    struct bench b;
    char text[NAME_BYTES + 1], id[32];
    uint64_t n = MILLION / 4 / scale;
    bench_open(&b);
    double start = seconds();
    for (uint64_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "session-%" PRIu64, i);
        struct op op = {.kind = OP_SESSION_OPEN, .session = slice_str(id), .ttl_ms = 60000};
        apply(&b, &op);
        for (uint64_t k = 0; k < 2; k++) {
            op = acquire_op(name_of(i * 2 + k, text), SLICE("worker-1"));
            op.session = slice_str(id);
            op.ttl_ms = 0;
            apply(&b, &op);
        }
        op = (struct op){.kind = OP_SESSION_CLOSE, .session = slice_str(id)};
        BELAY_CHECK(apply(&b, &op)->kind == EVENT_SESSION_ENDED);
    }
    print("session open, 2 locks, close", (double)n / (seconds() - start), "sessions/s");
    bench_done(&b);
}

static void fill(struct bench *b, uint64_t n)
{
    char text[NAME_BYTES + 1];
    for (uint64_t i = 0; i < n; i++) {
        struct op op = acquire_op(name_of(i * 999983 % n, text), SLICE("worker-1"));
        apply_timed(b, &op);
    }
}

/* A million held locks: memory, listing, snapshot. */
static void million_held(void)
{
    struct bench b;
    uint64_t n = MILLION / scale;
    double before = rss_bytes(), start = seconds();
    bench_open(&b);
    fill(&b, n);
    print("fill 1M locks, each timed", (double)n / (seconds() - start), "ops/s");
    print("fill 1M locks, slowest apply", b.slowest * 1e3, "ms");
    print("memory of a held lock", (rss_bytes() - before) / (double)n, "bytes RSS");

    struct op list = {.kind = OP_LIST, .account = SLICE("default"), .ns = SLICE("default")};
    list.limit = LIMIT_LIST;
    char after[NAME_BYTES + 1];
    double slowest = 0;
    uint64_t rows = 0, pages = 0;
    start = seconds();
    for (bool more = true; more; pages++) {
        double page = seconds();
        effects_reset(&b.fx);
        machine_query(b.m, &list, &b.fx);
        struct event *ev = &b.fx.events[0];
        rows += ev->n_rows;
        more = ev->more;
        memcpy(after, ev->locks[ev->n_rows - 1].name.data, NAME_BYTES);
        list.text = slice_of(after, NAME_BYTES);
        page = seconds() - page;
        slowest = page > slowest ? page : slowest;
    }
    BELAY_CHECK(rows == n);
    print("LIST 1000 of 1M, mean", (seconds() - start) / (double)pages * 1e3, "ms");
    print("LIST 1000 of 1M, slowest", slowest * 1e3, "ms");

    struct buf bytes = {0};
    start = seconds();
    machine_encode(b.m, &bytes);
    print("encode 1M locks", (seconds() - start) * 1e3, "ms");
    print("snapshot of a held lock", (double)buf_len(&bytes) / (double)n, "bytes");
    struct machine *copy = NULL;
    start = seconds();
    BELAY_CHECK(machine_decode(buf_slice(&bytes), key, &copy) == BELAY_OK);
    print("decode 1M locks", (seconds() - start) * 1e3, "ms");
    machine_close(copy);
    start = seconds();
    (void)machine_hash(b.m);
    print("state hash of 1M locks", (seconds() - start) * 1e3, "ms");
    buf_done(&bytes);
    bench_done(&b);
}

/* A million leases that end in the same second. */
static void mass_expiry(void)
{
    struct bench b;
    uint64_t n = MILLION / scale, ticks = 0;
    bench_open(&b);
    fill(&b, n);
    b.now_ms = TTL_DEFAULT_MS;
    b.slowest = 0;
    double start = seconds();
    for (; machine_due(b.m) <= b.now_ms; ticks++) {
        struct op op = {.kind = OP_TICK};
        apply_timed(&b, &op);
    }
    print("1M leases end together, in all", (seconds() - start) * 1e3, "ms");
    print("1M leases end together, slowest", b.slowest * 1e3, "ms an apply");
    print("1M leases end together, ticks", (double)ticks, "applies");
    struct machine_counts counts;
    machine_counts(b.m, &counts);
    BELAY_CHECK(counts.held == 0);
    bench_done(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        scale = strtoull(argv[1], NULL, 10);
    if (scale == 0)
        scale = 1;
    million_held(); /* first: its memory is measured from an empty heap */
    mass_expiry();
    pairs("acquire+release, 1 name", 1, MODE_EXCLUSIVE);
    pairs("acquire+release, 1,000 names", 1000, MODE_EXCLUSIVE);
    pairs("acquire+release, 100,000 names", 100000, MODE_EXCLUSIVE);
    pairs("acquire+release shared, 1,000", 1000, MODE_SHARED);
    pairs_with_ids();
    hand_off();
    sessions();
    return 0;
}
