/* sim_judge.c - the log as it is, and one more machine that replays it.
 *
 * The first node that applies an op makes it part of the log; every other one must apply the
 * same op at the same place (I15), say the same (I14) and be in the same state (I13); so must a
 * machine of the judge's own, with another hash key and without disks, snapshots and restarts.
 * An asker is in the log once (I7). Between two ops the log's time moves no more than the
 * world's (I11). A read sees everything that anybody had applied when it was
 * asked (I8), and says what the judge's machine says. */
#include "sim_judge.h"

#include "base/hash.h"
#include "story.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct step {
    uint64_t op, events; /* digests */
    uint64_t state;      /* hash after it; 0: not looked at yet */
    uint64_t news;       /* how many there were, up to here */
};

/* When, in the world, a node said that it is now so late; 0: never. */
struct stamp {
    uint32_t first, last;
};
enum { STAMPS = 1 << 17 }; /* milliseconds: no run is longer */

struct log {
    struct machine *machine;
    struct stamp *stamps; /* by the time in the log */

    struct effects fx;
    struct step *steps;
    size_t n, cap;
    uint64_t *askers; /* open addressing */
    size_t n_askers, cap_askers;
    struct rules *rules;
};

struct judge {
    struct sim_world *w;
    struct log logs[SIM_SHARDS];
    struct buf scratch;
};

struct judge *judge_open(struct sim_world *w)
{
    struct judge *j = mem_zalloc(sizeof *j);
    j->w = w;
    for (size_t i = 0; i < SIM_SHARDS; i++) {
        j->logs[i].machine = machine_open((struct hash_key){i + 1, 42});
        j->logs[i].rules = rules_open(w);
        j->logs[i].stamps = mem_zalloc(STAMPS * sizeof(struct stamp));
    }
    return j;
}

void judge_close(struct judge *j)
{
    for (size_t i = 0; i < SIM_SHARDS; i++) {
        struct log *log = &j->logs[i];
        machine_close(log->machine);
        effects_done(&log->fx);
        rules_close(log->rules);
        free(log->steps);
        free(log->askers);
        free(log->stamps);
    }
    buf_done(&j->scratch);
    free(j);
}

/* --- askers --- */

static uint64_t *asker_place(const struct log *log, uint64_t asker)
{
    size_t at = (size_t)(asker * 0x9e3779b97f4a7c15u >> 20) & (log->cap_askers - 1);
    while (log->askers[at] && log->askers[at] != asker)
        at = (at + 1) & (log->cap_askers - 1);
    return &log->askers[at];
}

static void grow_askers(struct log *log)
{
    struct log old = *log;
    log->cap_askers = old.cap_askers ? 2 * old.cap_askers : 1024;
    log->askers = mem_zalloc(log->cap_askers * sizeof *log->askers);
    for (size_t i = 0; i < old.cap_askers; i++)
        if (old.askers[i])
            *asker_place(log, old.askers[i]) = old.askers[i];
    free(old.askers);
}

static bool asker_is_new(struct log *log, uint64_t asker)
{
    if (2 * log->n_askers >= log->cap_askers)
        grow_askers(log);
    uint64_t *place = asker_place(log, asker);
    if (*place)
        return false;
    *place = asker;
    log->n_askers++;
    return true;
}

bool judge_knows(const struct judge *j, size_t shard, uint64_t asker)
{
    const struct log *log = &j->logs[shard];
    return log->cap_askers && *asker_place(log, asker) != 0;
}

/* --- digests and texts --- */

static uint64_t digest_op(struct judge *j, const struct op *op)
{
    static const struct hash_key key = {7, 7};
    buf_clear(&j->scratch);
    op_encode(op, &j->scratch);
    return hash_bytes(&key, buf_data(&j->scratch), buf_len(&j->scratch));
}

static uint64_t digest_events(const struct event *events, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ digest_event(&events[i])) * 0x9e3779b97f4a7c15u;
    return h;
}

static void tell(const struct judge *j, const struct op *op, const struct event *events,
                 size_t n)
{
    struct buf text = {0};
    story_put_op(&text, op);
    for (size_t i = 0; i < n; i++) {
        buf_put_str(&text, i ? ", " : " -> ");
        story_put_event(&text, op, &events[i]);
    }
    printf("#   %6" PRIu64 " ms op %" PRIu64 " @%" PRIx64 ": %s\n", j->w->now, op->index,
           op->asker, buf_cstr(&text));
    buf_done(&text);
}

/* --- time --- */

enum { CLOCK_SLACK_MS = 5, CLOCK_FAST = 105 }; /* per cent: the fastest are 4 % ahead */

void judge_stamped(struct judge *j, size_t shard, uint64_t ms)
{
    struct stamp *s = ms < STAMPS ? &j->logs[shard].stamps[ms] : NULL;
    if (!s)
        return;
    s->last = (uint32_t)j->w->now + 1;
    if (!s->first)
        s->first = s->last;
}

static void check_clock(struct judge *j, const struct log *log, const struct op *op)
{
    uint64_t before = machine_now(log->machine);
    if (op->now_ms <= before || op->now_ms >= STAMPS)
        return;
    const struct stamp *from = &log->stamps[before];
    const struct stamp *to = &log->stamps[op->now_ms];
    uint64_t passed = to->last > from->first ? to->last - from->first : 0;
    if (from->first && to->last &&
        (op->now_ms - before) * 100 > (passed + CLOCK_SLACK_MS) * CLOCK_FAST)
        sim_wrong(j->w, "I11",
                  "op %" PRIu64 ": the log's time moves by %" PRIu64 " ms in %" PRIu64,
                  op->index, op->now_ms - before, passed);
}

/* --- what is applied --- */

static void append(struct judge *j, struct log *log, const struct op *op, struct step *step,
                   const struct event *events, size_t n)
{
    if (log->n == log->cap) {
        log->cap = log->cap ? 2 * log->cap : 1024;
        log->steps = mem_resize(log->steps, log->cap * sizeof *log->steps);
    }
    step->news = log->n ? log->steps[log->n - 1].news : 0;
    for (size_t i = 0; i < n; i++)
        step->news += events[i].news;
    log->steps[log->n++] = *step;
    if (op->asker && !asker_is_new(log, op->asker))
        sim_wrong(j->w, "I7", "asker %" PRIx64 " is in the log twice, again at op %" PRIu64,
                  op->asker, op->index);
    check_clock(j, log, op);
    effects_reset(&log->fx);
    __real_machine_apply(log->machine, op, &log->fx);
    if (digest_events(log->fx.events, log->fx.n) != step->events) {
        if (j->w->options->verbose)
            tell(j, op, log->fx.events, log->fx.n);
        sim_wrong(j->w, "I14", "the judge's machine says something else at op %" PRIu64,
                  op->index);
    }
    rules_step(log->rules, op, log->fx.events, log->fx.n);
}

void judge_apply(struct judge *j, struct sim_node *n, size_t shard, const struct op *op,
                 const struct event *events, size_t n_events)
{
    struct log *log = &j->logs[shard];
    n->applied[shard] = op->index;
    if (j->w->options->answers_only || j->w->wrong)
        return;
    struct step step = {digest_op(j, op), digest_events(events, n_events), 0, 0};
    sim_mark(j->w, step.op ^ step.events);
    if (op->index == log->n + 1) {
        if (j->w->options->trace)
            tell(j, op, events, n_events);
        append(j, log, op, &step, events, n_events);
    } else if (op->index > log->n + 1) {
        sim_wrong(j->w, "I15", "node %" PRIu64 " applies op %" PRIu64 ", nobody the one before",
                  n->id, op->index);
    } else if (log->steps[op->index - 1].op != step.op) {
        if (j->w->options->verbose)
            tell(j, op, events, n_events);
        sim_wrong(j->w, "I15", "node %" PRIu64 " applies another op %" PRIu64, n->id,
                  op->index);
    } else if (log->steps[op->index - 1].events != step.events) {
        if (j->w->options->verbose)
            tell(j, op, events, n_events);
        sim_wrong(j->w, "I14", "node %" PRIu64 " says something else at op %" PRIu64, n->id,
                  op->index);
    }
}

void judge_state(struct judge *j, struct sim_node *n, size_t shard)
{
    struct log *log = &j->logs[shard];
    uint64_t at = n->applied[shard];
    if (at == n->compared[shard] || at == 0 || at > log->n || j->w->options->answers_only)
        return;
    n->compared[shard] = at;
    struct step *step = &log->steps[at - 1];
    uint64_t hash = engine_hash(n->engine, shard);
    if (step->state == 0)
        step->state = at == log->n ? machine_hash(log->machine) : hash;
    if (step->state != hash)
        sim_wrong(j->w, "I13", "node %" PRIu64 " differs after op %" PRIu64, n->id, at);
}

/* --- what is read --- */

static const struct sim_client *who_asks(const struct sim_world *w, uint64_t asker)
{
    for (int i = 0; i < w->plan.clients; i++)
        if (w->clients[i].ask.id == asker)
            return &w->clients[i];
    return NULL;
}

void judge_read(struct judge *j, struct sim_node *n, size_t shard, const struct op *op,
                const struct event *ev)
{
    struct log *log = &j->logs[shard];
    const struct sim_client *c = who_asks(j->w, op->asker);
    if (!c || j->w->options->answers_only || j->w->wrong)
        return;
    if (n->applied[shard] < c->call.known)
        sim_wrong(j->w, "I8",
                  "client %d reads at op %" PRIu64 ", but op %" PRIu64
                  " was applied before it asked",
                  c->no, n->applied[shard], c->call.known);
    if (n->applied[shard] != log->n)
        return; /* the judge is further on */
    effects_reset(&log->fx);
    __real_machine_query(log->machine, op, &log->fx);
    if (log->fx.n != 1 || digest_event(&log->fx.events[0]) != digest_event(ev))
        sim_wrong(j->w, "I8", "client %d reads something else than the judge", c->no);
}

/* --- the end --- */

uint64_t judge_length(const struct judge *j, size_t shard)
{
    return j->logs[shard].n;
}

uint64_t judge_news(const struct judge *j, const struct sim_node *n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SIM_SHARDS; i++)
        if (n->applied[i] && n->applied[i] <= j->logs[i].n)
            sum += j->logs[i].steps[n->applied[i] - 1].news;
    return sum;
}

const struct machine *judge_machine(const struct judge *j, size_t shard)
{
    return j->logs[shard].machine;
}

bool judge_equal(const struct judge *j, const struct sim_node *n)
{
    for (size_t i = 0; i < SIM_SHARDS; i++)
        if (n->applied[i] != j->logs[i].n ||
            engine_hash(n->engine, i) != machine_hash(j->logs[i].machine))
            return false;
    return true;
}

bool judge_empty(const struct judge *j)
{
    for (size_t i = 0; i < SIM_SHARDS; i++) {
        struct machine_counts c;
        machine_counts(j->logs[i].machine, &c);
        if (c.held || c.waiting || c.sessions || c.variables || c.transactions)
            return false;
    }
    return true;
}

void judge_describe(const struct judge *j)
{
    for (size_t i = 0; i < SIM_SHARDS; i++) {
        struct machine_counts c;
        machine_counts(j->logs[i].machine, &c);
        printf("#   shard %zu: %zu ops, held %" PRIu64 " waiting %" PRIu64 " sessions %" PRIu64
               " variables %" PRIu64 " transactions %" PRIu64 "\n",
               i, j->logs[i].n, c.held, c.waiting, c.sessions, c.variables, c.transactions);
    }
}
