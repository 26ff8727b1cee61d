/* model_machine.c - random ops on the machine and on its naive twin: every event must be equal.
 *
 *   MODEL_SEED=n   start here (printed by every run; a failure prints the one to use)
 *   MODEL_OPS=n    how many ops in all
 *
 * The ops are cut into episodes, each with its own seed, its own mix of ops and a new machine.
 * In between, at random points, the machine is put through a snapshot and goes on as the copy,
 * and everything since the start or since a snapshot is replayed into a machine with another
 * hash key: state hash and bytes must be equal. In every third episode the machine compares two
 * bits of an asker's count, and the twin all of them: a cancel that meant another's hold or
 * wait would show. What is to be done is drawn from the seed and the twin alone, so a failing
 * episode can be made again, run in a child process that may even crash, and shrunk: steps are
 * dropped as long as it still fails. */
#include "base/check.h"
#include "base/mem.h"
#include "choice.h"
#include "machine/machine.h"
#include "random_ops.h"
#include "text_format.h"
#include "twin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    EPISODE_OPS = 2000,
    REPEAT_EVERY = 3, /* every so many episodes numbers of askers come again all the time */
    MASS_EVERY = 100, /* every so many episodes one has thousands of things that end together */
    MASS_ITEMS = 4000,
    MASS_STEPS = 100, /* after the leap to that moment */
    MASS_MINUTE_MS = 60000,
    OPS_DEFAULT = 3000000,
    SHRINK_SECONDS_MAX = 60
};

enum step_kind {
    STEP_OP,       /* a write on both */
    STEP_READ,     /* a read on both */
    STEP_SNAPSHOT, /* encode, decode, go on with the copy */
    STEP_MARK,     /* remember a snapshot */
    STEP_REPLAY,   /* from the start */
    STEP_CATCH_UP, /* from the remembered snapshot */
};

struct step {
    enum step_kind kind;
    size_t at, len; /* the op's binary form in episode.bytes */
};

struct episode {
    unsigned batch;      /* machine_set_batch(): few, and a handful of ends is a crowd */
    unsigned count_bits; /* machine_set_askers(): few, and numbers come again */
    struct step *steps;
    size_t n, cap;
    struct buf bytes;
};

static struct totals { /* shared with the child that does the work */
    uint64_t seed, ops, reads, events, episodes, snapshots, replays, mass_ends;
    uint64_t kinds[EVENT_KIND_COUNT];
} * totals;

static const struct hash_key keys[] = {{1, 2}, {0x9e3779b97f4a7c15u, 77}, {~0ull, 3}};

/* --- drawing an episode --- */

static void add_step(struct episode *e, enum step_kind kind, const struct op *op)
{
    if (e->n == e->cap) {
        e->cap = e->cap ? e->cap * 2 : 256;
        e->steps = mem_resize(e->steps, e->cap * sizeof *e->steps);
    }
    struct step *s = &e->steps[e->n++];
    *s = (struct step){.kind = kind, .at = buf_len(&e->bytes)};
    if (op)
        op_encode(op, &e->bytes);
    s->len = buf_len(&e->bytes) - s->at;
}

/* The twin is run along: what it grants decides which fences are worth asking for. */
static void take_op(struct episode *e, struct random_ops *g, struct twin *t,
                    const struct op *op)
{
    struct effects fx = {0};
    add_step(e, op_is_read(op->kind) ? STEP_READ : STEP_OP, op);
    if (!op_is_read(op->kind))
        twin_apply(t, op, &fx);
    for (size_t i = 0; i < fx.n; i++)
        random_ops_saw(g, &fx.events[i]);
    effects_done(&fx);
}

/* Thousands of leases, or of waits in a few lines, that end within a few milliseconds; then a
 * leap to that moment. */
static void draw_mass(struct episode *e, struct random_ops *g, struct twin *t)
{
    struct op op;
    if (choice_below(g->c, 2))
        g->mass_names = MASS_ITEMS;
    else
        g->mass_owners = MASS_ITEMS;
    g->hurry = 0;
    g->requests = 0; /* those would be sent again, and not be new things that end */
    for (size_t i = 0; i < MASS_ITEMS;) {
        random_ops_next(g, false, &op);
        if (op.kind != OP_ACQUIRE && !choice_one_in(g->c, 50))
            continue;
        i += op.kind == OP_ACQUIRE;
        uint64_t to_go = MASS_MINUTE_MS - op.now_ms % MASS_MINUTE_MS + choice_below(g->c, 3);
        if (op.kind == OP_ACQUIRE)
            op.ttl_ms = to_go;
        if (op.kind == OP_ACQUIRE && op.wait_ms)
            op.wait_ms = to_go + choice_below(g->c, 3);
        take_op(e, g, t, &op);
    }
    g->now_ms = (g->now_ms / MASS_MINUTE_MS + 1) * MASS_MINUTE_MS + choice_below(g->c, 6);
    for (size_t i = 0; i < MASS_STEPS; i++) {
        random_ops_next(g, choice_one_in(g->c, 4), &op);
        take_op(e, g, t, &op);
    }
}

static void draw_usual(struct episode *e, struct random_ops *g, struct twin *t)
{
    for (size_t i = 0; i < EPISODE_OPS; i++) {
        struct op op;
        random_ops_next(g, choice_one_in(g->c, 5), &op);
        take_op(e, g, t, &op);
        if (choice_one_in(g->c, 400))
            add_step(e, (enum step_kind)(STEP_SNAPSHOT + choice_below(g->c, 4)), NULL);
    }
}

static void draw_episode(uint64_t seed, struct episode *ret_e)
{
    static const unsigned batches[] = {MACHINE_EXPIRE_BATCH, 1, 2, 5};
    struct choice c = choice_seed(seed);
    bool mass = seed % MASS_EVERY == 0;
    *ret_e = (struct episode){.batch = mass ? MACHINE_EXPIRE_BATCH : choice_of(&c, batches)};
    struct twin *t = twin_open(ret_e->batch);
    struct random_ops g;
    random_ops_init(&g, &c);
    ret_e->count_bits = OP_RUN_SHIFT;
    if (!mass && seed % REPEAT_EVERY == 0) {
        ret_e->count_bits = OPGEN_COUNT_BITS;
        random_ops_repeat(&g, t);
    }
    if (mass)
        draw_mass(ret_e, &g, t);
    else
        draw_usual(ret_e, &g, t);
    add_step(ret_e, STEP_CATCH_UP, NULL);
    add_step(ret_e, STEP_REPLAY, NULL);
    add_step(ret_e, STEP_SNAPSHOT, NULL);
    twin_close(t);
}

static void episode_done(struct episode *e)
{
    free(e->steps);
    buf_done(&e->bytes);
}

static struct slice step_bytes(const struct episode *e, const struct step *s)
{
    return slice_of(buf_data(&e->bytes) + s->at, s->len);
}

static struct op step_op(const struct episode *e, const struct step *s, struct arena *a)
{
    struct op op = {0};
    BELAY_CHECK(op_decode(step_bytes(e, s), a, &op) == BELAY_OK);
    return op;
}

/* --- running it --- */

struct run {
    const struct episode *e;
    struct machine *m;
    struct twin *t;
    struct effects got, want;
    struct arena arena;
    struct buf mark; /* the remembered snapshot */
    size_t mark_step;
    bool quiet;
};

static void print_events(const char *title, const struct effects *fx)
{
    struct buf out = {0};
    for (size_t i = 0; i < fx->n; i++) {
        buf_printf(&out, "#   %s ", title);
        text_put_event_fully(&out, &fx->events[i]);
        buf_put_str(&out, "\n");
    }
    if (!fx->n)
        buf_printf(&out, "#   %s nothing\n", title);
    fwrite(buf_data(&out), 1, buf_len(&out), stdout);
    buf_done(&out);
}

static bool same_events(struct run *r, const struct op *op)
{
    bool same = r->got.n == r->want.n;
    for (size_t i = 0; same && i < r->got.n; i++)
        same = text_same_event(&r->got.events[i], &r->want.events[i]);
    if (same || r->quiet)
        return same;
    struct buf out = {0};
    text_put_op(&out, op);
    printf("# different: %s\n", buf_cstr(&out));
    print_events("machine:", &r->got);
    print_events("twin:   ", &r->want);
    buf_done(&out);
    return false;
}

static bool differs(struct run *r, const char *what)
{
    if (!r->quiet)
        printf("# %s\n", what);
    return false;
}

static void print_counts(const char *title, const struct machine_counts *c, uint64_t due)
{
    printf("# %s locks %" PRIu64 " held %" PRIu64 " waiting %" PRIu64 " sessions %" PRIu64
           " namespaces %" PRIu64 " due %" PRIu64 "\n",
           title, c->locks, c->held, c->waiting, c->sessions, c->namespaces, due);
}

static bool same_counts(struct run *r)
{
    struct machine_counts a = {0}, b = {0};
    machine_counts(r->m, &a);
    twin_counts(r->t, &b);
    bool same = a.locks == b.locks && a.held == b.held && a.waiting == b.waiting &&
                a.sessions == b.sessions && a.namespaces == b.namespaces &&
                machine_due(r->m) == twin_due(r->t);
    if (!same && !r->quiet) {
        print_counts("machine:", &a, machine_due(r->m));
        print_counts("twin:   ", &b, twin_due(r->t));
    }
    return same;
}

/* The binary form of an op must be that of the op it decodes to. */
static bool survives_encoding(const struct op *op, struct slice bytes)
{
    struct buf again = {0};
    op_encode(op, &again);
    bool same = slice_eq(buf_slice(&again), bytes);
    buf_done(&again);
    return same;
}

static void apply_both(struct run *r, struct op *op)
{
    op->index = machine_applied(r->m) + 1;
    machine_apply(r->m, op, &r->got);
    twin_apply(r->t, op, &r->want);
    totals->ops++;
}

static void query_both(struct run *r, struct op *op)
{
    if (op->now_ms < machine_now(r->m))
        op->now_ms = machine_now(r->m); /* a shrunk story may have lost an op before it */
    machine_query(r->m, op, &r->got);
    twin_query(r->t, op, &r->want);
    totals->reads++;
}

static bool run_op(struct run *r, const struct step *s)
{
    arena_reset(&r->arena);
    struct op op = step_op(r->e, s, &r->arena);
    if (!survives_encoding(&op, step_bytes(r->e, s)))
        return differs(r, "the op is another one after encode, decode, encode");
    effects_reset(&r->got);
    effects_reset(&r->want);
    if (s->kind == STEP_READ)
        query_both(r, &op);
    else
        apply_both(r, &op);
    for (size_t i = 0; i < r->want.n; i++)
        totals->kinds[r->want.events[i].kind]++;
    totals->events += r->want.n;
    totals->mass_ends += r->want.n >= MACHINE_EXPIRE_BATCH;
    return same_events(r, &op) && same_counts(r);
}

static bool same_state(struct run *r, const struct machine *a, const struct machine *b)
{
    struct buf x = {0}, y = {0};
    machine_encode(a, &x);
    machine_encode(b, &y);
    bool same = slice_eq(buf_slice(&x), buf_slice(&y));
    buf_done(&x);
    buf_done(&y);
    if (!same)
        return differs(r, "the bytes of the two states differ");
    if (machine_hash(a) != machine_hash(b))
        return differs(r, "the hashes of the two states differ");
    if (machine_applied(a) != machine_applied(b) || machine_now(a) != machine_now(b) ||
        machine_due(a) != machine_due(b))
        return differs(r, "index, time or next end of the two states differ");
    return true;
}

static void prepare(const struct episode *e, struct machine *m)
{
    machine_set_batch(m, e->batch);
    machine_set_askers(m, e->count_bits, false);
}

static bool run_snapshot(struct run *r)
{
    struct buf bytes = {0};
    struct machine *copy = NULL;
    machine_encode(r->m, &bytes);
    enum belay_err err =
        machine_decode(buf_slice(&bytes), keys[machine_applied(r->m) % 3], &copy);
    buf_done(&bytes);
    totals->snapshots++;
    if (err != BELAY_OK)
        return differs(r, "the machine does not accept its own snapshot");
    prepare(r->e, copy);
    bool same = same_state(r, r->m, copy);
    machine_close(r->m);
    r->m = copy;
    return same;
}

/* Applies the ops of steps[from .. to) to `m` (taken) and compares it with what we have. */
static bool run_again_take(struct run *r, struct machine *m, size_t from, size_t to)
{
    struct effects fx = {0};
    struct arena arena = {0};
    prepare(r->e, m);
    for (size_t i = from; i < to; i++) {
        if (r->e->steps[i].kind != STEP_OP)
            continue;
        arena_reset(&arena);
        effects_reset(&fx);
        struct op op = step_op(r->e, &r->e->steps[i], &arena);
        op.index = machine_applied(m) + 1;
        machine_apply(m, &op, &fx);
    }
    effects_done(&fx);
    arena_done(&arena);
    totals->replays++;
    bool same = same_state(r, r->m, m);
    machine_close(m);
    return same;
}

static bool run_catch_up(struct run *r, size_t to)
{
    struct machine *m = NULL;
    if (!buf_len(&r->mark))
        return true;
    if (machine_decode(buf_slice(&r->mark), keys[2], &m) != BELAY_OK)
        return differs(r, "the remembered snapshot is not accepted");
    return run_again_take(r, m, r->mark_step, to);
}

static bool run_step(struct run *r, size_t i)
{
    const struct step *s = &r->e->steps[i];
    switch (s->kind) {
    case STEP_OP:
    case STEP_READ:
        return run_op(r, s);
    case STEP_SNAPSHOT:
        return run_snapshot(r);
    case STEP_MARK:
        buf_clear(&r->mark);
        machine_encode(r->m, &r->mark);
        r->mark_step = i;
        return true;
    case STEP_REPLAY:
        return run_again_take(r, machine_open(keys[1]), 0, i);
    case STEP_CATCH_UP:
        return run_catch_up(r, i);
    }
    return false;
}

static bool run_episode(const struct episode *e, bool quiet)
{
    struct run r = {
        .e = e, .m = machine_open(keys[0]), .t = twin_open(e->batch), .quiet = quiet};
    bool same = true;
    prepare(e, r.m);
    for (size_t i = 0; same && i < e->n; i++)
        same = run_step(&r, i);
    machine_close(r.m);
    twin_close(r.t);
    effects_done(&r.got);
    effects_done(&r.want);
    arena_done(&r.arena);
    buf_done(&r.mark);
    totals->episodes++;
    return same;
}

/* --- failing --- */

/* In a child, because the machine may stop the process. */
static bool fails(const struct episode *e, bool quiet)
{
    fflush(stdout);
    pid_t pid = fork();
    BELAY_CHECK(pid >= 0);
    if (pid == 0) {
        if (quiet)
            BELAY_CHECK(freopen("/dev/null", "w", stderr) != NULL);
        bool same = run_episode(e, quiet);
        fflush(stdout);
        _exit(same ? 0 : 2);
    }
    int status = 0;
    BELAY_CHECK(waitpid(pid, &status, 0) == pid);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The episode without steps[at .. at + n); shares the bytes of `e`. */
static struct episode without(const struct episode *e, size_t at, size_t n)
{
    struct episode less = {
        .batch = e->batch, .count_bits = e->count_bits, .bytes = e->bytes, .n = e->n - n};
    less.steps = mem_alloc(e->n * sizeof *less.steps);
    memcpy(less.steps, e->steps, at * sizeof *less.steps);
    memcpy(less.steps + at, e->steps + at + n, (e->n - at - n) * sizeof *less.steps);
    return less;
}

/* With numbers that come again, a cancel is right only behind all that it was drawn behind. */
static void shrink(struct episode *e)
{
    if (e->count_bits == OPGEN_COUNT_BITS)
        return;
    time_t end = time(NULL) + SHRINK_SECONDS_MAX;
    for (size_t chunk = e->n / 2; chunk; chunk /= 2) {
        for (size_t at = 0; at < e->n && time(NULL) < end;) {
            size_t n = at + chunk < e->n ? chunk : e->n - at;
            struct episode less = without(e, at, n);
            if (fails(&less, true)) {
                free(e->steps);
                *e = less;
            } else {
                free(less.steps);
                at += n;
            }
        }
    }
}

static void print_steps(const struct episode *e)
{
    static const char *const words[] = {"", "", "snapshot", "mark", "replay", "catch up"};
    struct arena arena = {0};
    struct buf out = {0};
    for (size_t i = 0; i < e->n; i++) {
        buf_put_str(&out, "#   ");
        if (e->steps[i].kind > STEP_READ) {
            buf_printf(&out, "- %s -\n", words[e->steps[i].kind]);
            continue;
        }
        struct op op = step_op(e, &e->steps[i], &arena);
        text_put_op(&out, &op);
        buf_put_str(&out, "\n");
    }
    fwrite(buf_data(&out), 1, buf_len(&out), stdout);
    buf_done(&out);
    arena_done(&arena);
}

static void report_failure(uint64_t seed)
{
    struct episode e;
    draw_episode(seed, &e);
    printf("not ok - the machine and its twin part: MODEL_SEED=%" PRIu64 " MODEL_OPS=1\n",
           seed);
    if (!fails(&e, true)) {
        printf("# it does not fail when run alone\n");
        episode_done(&e);
        return;
    }
    size_t before = e.n;
    shrink(&e);
    printf("# %zu of %zu steps are enough:\n", e.n, before);
    print_steps(&e);
    fails(&e, false);
    episode_done(&e);
}

/* --- all of it --- */

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static int work(uint64_t seed, uint64_t ops)
{
    while (totals->ops < ops) {
        struct episode e;
        totals->seed = seed;
        draw_episode(seed++, &e);
        bool same = run_episode(&e, true);
        episode_done(&e);
        if (!same)
            return 2;
    }
    return 0;
}

/* An event that never happened was not tested. Transactions have a model of their own. */
static bool all_kinds_seen(uint64_t ops)
{
    bool all = true;
    for (int k = 0; k < EVENT_KIND_COUNT; k++) {
        if (k == EVENT_TXN || k == EVENT_VARIABLE_EXPIRED)
            continue; /* model_txn */
        if (k >= EVENT_ACCOUNT_CREATED && k <= EVENT_AUTH_RESET)
            continue; /* the twin has no accounts: test_machine_account */
        printf("# %-18s %10" PRIu64 "\n", event_word((enum event_kind)k), totals->kinds[k]);
        all = all && totals->kinds[k] > 0;
    }
    printf("# %-18s %10" PRIu64 "\n", "full batches", totals->mass_ends);
    return (all && totals->mass_ends) || ops < OPS_DEFAULT;
}

int main(void)
{
    uint64_t seed = from_env("MODEL_SEED", (uint64_t)time(NULL) * 1000003u % 1000000007u);
    uint64_t ops = from_env("MODEL_OPS", OPS_DEFAULT);
    totals =
        mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BELAY_CHECK(totals != MAP_FAILED);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was said before a crash must be seen */
    printf("# MODEL_SEED=%" PRIu64 " MODEL_OPS=%" PRIu64 "\n", seed, ops);
    fflush(stdout);
    pid_t pid = fork();
    BELAY_CHECK(pid >= 0);
    if (pid == 0)
        exit(work(seed, ops));
    int status = 0;
    BELAY_CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        report_failure(totals->seed);
        return 1;
    }
    bool seen = all_kinds_seen(ops);
    printf("%s - every kind of event happened\n", seen ? "ok" : "not ok");
    printf("ok - %" PRIu64 " ops and %" PRIu64 " reads in %" PRIu64 " episodes gave %" PRIu64
           " equal events\n",
           totals->ops, totals->reads, totals->episodes, totals->events);
    printf("ok - %" PRIu64 " snapshots gave equal bytes and hashes\n", totals->snapshots);
    printf("ok - %" PRIu64 " replays with another hash key gave equal bytes and hashes\n",
           totals->replays);
    return seen ? 0 : 1;
}
