/* sim_judge.c - the log as it is, and one more machine that replays it.
 *
 * The first node that applies an op makes it part of the log; every other one must apply the
 * same op at the same place (I15), say the same (I14) and be in the same state (I13); so must a
 * machine of the judge's own, with another hash key and without disks, snapshots and restarts.
 * An asker is in one log, once (I7). What groups write to each other arrives as it was written,
 * and is taken in the end (I28). Between two ops the log's time moves no more than the
 * world's (I11). A read sees everything that anybody had applied when it was
 * asked (I8), and says what the judge's machine says. */
#include "sim_judge.h"

#include "base/hash.h"
#include "machine/state.h"
#include "machine/varint.h"
#include "repair/backup.h"
#include "text_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct step {
    uint64_t op, events; /* digests */
    uint64_t state;      /* hash after it; 0: not looked at yet */
    uint64_t news;       /* how many there were, up to here */
    uint64_t asker;
    struct buf bytes; /* of the op; empty: it is never replayed */
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
    struct rules *rules;
    bool forks;     /* judge_forks() */
    uint64_t floor; /* the highest number that was given before */
};

/* Messages from one group to another, by number. */
struct messages {
    uint64_t *digests;
    size_t n, cap;
};

struct judge {
    struct sim_world *w;
    struct log logs[SIM_GROUPS];
    struct messages messages[SIM_GROUPS][SIM_GROUPS]; /* from, to */
    uint64_t *askers;                                 /* open addressing */
    size_t n_askers, cap_askers;
    struct buf scratch;
};

static void open_log(const struct judge *j, size_t i, struct log *log)
{
    log->machine = machine_open((struct hash_key){i + 1, 42});
    machine_set_level(log->machine, 0); /* the log raises it */
    machine_set_batch(log->machine, j->w->plan.batch);
    if (j->w->plan.groups > 1)
        machine_set_group(log->machine, (unsigned)i, (unsigned)j->w->plan.groups);
    log->rules = rules_open(j->w, i, log->machine);
}

struct judge *judge_open(struct sim_world *w)
{
    struct judge *j = mem_zalloc(sizeof *j);
    j->w = w;
    for (size_t i = 0; i < j->w->plan.groups; i++) {
        open_log(j, i, &j->logs[i]);
        j->logs[i].stamps = mem_zalloc(STAMPS * sizeof(struct stamp));
    }
    return j;
}

void judge_close(struct judge *j)
{
    for (size_t i = 0; i < j->w->plan.groups; i++) {
        struct log *log = &j->logs[i];
        machine_close(log->machine);
        effects_done(&log->fx);
        rules_close(log->rules);
        for (size_t k = 0; k < log->n; k++)
            buf_done(&log->steps[k].bytes);
        free(log->steps);
        free(log->stamps);
        for (size_t k = 0; k < SIM_GROUPS; k++)
            free(j->messages[i][k].digests);
    }
    free(j->askers);
    buf_done(&j->scratch);
    free(j);
}

/* --- askers --- */

static uint64_t *asker_place(const struct judge *j, uint64_t asker)
{
    size_t at = (size_t)(asker * 0x9e3779b97f4a7c15u >> 20) & (j->cap_askers - 1);
    while (j->askers[at] && j->askers[at] != asker)
        at = (at + 1) & (j->cap_askers - 1);
    return &j->askers[at];
}

static void grow_askers(struct judge *j)
{
    uint64_t *old = j->askers;
    size_t n = j->cap_askers;
    j->cap_askers = n ? 2 * n : 1024;
    j->askers = mem_zalloc(j->cap_askers * sizeof *j->askers);
    for (size_t i = 0; i < n; i++)
        if (old[i])
            *asker_place(j, old[i]) = old[i];
    free(old);
}

/* To enrol a session in a shard is no effect of its own: the op comes behind it. */
static void check_once(struct judge *j, const struct step *step, uint64_t index)
{
    if (!step->asker)
        return;
    if (2 * j->n_askers >= j->cap_askers)
        grow_askers(j);
    uint64_t *place = asker_place(j, step->asker);
    if (*place)
        sim_wrong(j->w, "I7", "asker %" PRIx64 " is in the log twice, again at op %" PRIu64,
                  step->asker, index);
    j->n_askers += *place == 0;
    *place = step->asker;
}

static void forget_askers(struct judge *j)
{
    if (j->askers)
        memset(j->askers, 0, j->cap_askers * sizeof *j->askers);
    j->n_askers = 0;
    for (size_t i = 0; i < j->w->plan.groups; i++)
        for (size_t k = 0; k < j->logs[i].n; k++)
            check_once(j, &j->logs[i].steps[k], k + 1);
}

bool judge_knows(const struct judge *j, uint64_t asker)
{
    return j->cap_askers && *asker_place(j, asker) != 0;
}

/* --- digests and texts --- */

static uint64_t digest_bytes(struct slice s)
{
    static const struct hash_key key = {7, 7};
    return hash_bytes(&key, s.data, s.len);
}

static uint64_t digest_op(struct judge *j, const struct op *op)
{
    buf_clear(&j->scratch);
    op_encode(op, &j->scratch);
    return digest_bytes(buf_slice(&j->scratch));
}

static uint64_t digest_events(const struct event *events, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ digest_event(&events[i])) * 0x9e3779b97f4a7c15u;
    return h;
}

static void tell(const struct judge *j, size_t group, const struct op *op,
                 const struct event *events, size_t n)
{
    struct buf text = {0};
    text_put_op(&text, op);
    for (size_t i = 0; i < n; i++) {
        buf_put_str(&text, i ? ", " : " -> ");
        text_put_event(&text, op, &events[i]);
    }
    printf("#   %6" PRIu64 " ms op %zu/%" PRIu64 " @%" PRIx64 ": %s\n", j->w->now, group,
           op->index, op->asker, buf_cstr(&text));
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

uint64_t judge_stamped_at(const struct judge *j, size_t shard, uint64_t ms)
{
    return ms < STAMPS ? j->logs[shard].stamps[ms].first : 0;
}

static void check_clock(struct judge *j, const struct log *log, const struct op *op)
{
    uint64_t before = machine_now(log->machine);
    if (op->now_ms <= before || op->now_ms >= STAMPS)
        return;
    uint64_t from = before ? log->stamps[before].first : 1; /* 0 is when the world began */
    const struct stamp *to = &log->stamps[op->now_ms];
    uint64_t passed = to->last > from ? to->last - from : 0;
    if (from && to->last &&
        (op->now_ms - before) * 100 > (passed + CLOCK_SLACK_MS) * CLOCK_FAST)
        sim_wrong(j->w, "I11",
                  "op %" PRIu64 ": the log's time moves by %" PRIu64 " ms in %" PRIu64,
                  op->index, op->now_ms - before, passed);
}

/* --- messages --- */

static void note_messages(struct judge *j, size_t group)
{
    const struct machine *m = j->logs[group].machine;
    for (size_t to = 0; to < j->w->plan.groups; to++) {
        struct messages *l = &j->messages[group][to];
        while (l->n < machine_posted(m, (unsigned)to)) {
            if (l->n == l->cap) {
                l->cap = l->cap ? 2 * l->cap : 64;
                l->digests = mem_resize(l->digests, l->cap * sizeof *l->digests);
            }
            buf_clear(&j->scratch);
            (void)machine_outbox(m, (unsigned)to, l->n + 1, &j->scratch);
            struct reader in = {.left = buf_slice(&j->scratch)};
            l->digests[l->n++] = digest_bytes(reader_bytes(&in));
        }
    }
}

static void check_messages(struct judge *j, size_t group, const struct op *op)
{
    if (op->kind != OP_MESSAGES || op->target >= SIM_GROUPS || j->logs[op->target].forks)
        return;
    const struct messages *l = &j->messages[op->target][group];
    struct reader in = {.left = op->program};
    for (uint64_t number = op->fence; in.left.len > 0; number++) {
        uint64_t digest = digest_bytes(reader_bytes(&in));
        if (number > l->n || l->digests[number - 1] != digest)
            sim_wrong(j->w, "I28",
                      "group %zu gets message %" PRIu64 " of group %" PRIu64
                      ", which wrote another or none",
                      group, number, op->target);
    }
}

static bool messages_arrived(const struct judge *j)
{
    for (unsigned a = 0; a < j->w->plan.groups; a++) {
        if (machine_messages(j->logs[a].machine))
            return false;
        for (unsigned b = 0; b < j->w->plan.groups; b++)
            if (machine_posted(j->logs[a].machine, b) != machine_taken(j->logs[b].machine, a))
                return false;
    }
    return true;
}

/* --- what is applied --- */

/* A lease has ended: from now on nobody may be told that something of it is left. */
static void note_ended(struct sim_world *w, const struct event *ev)
{
    if (ev->kind != EVENT_EXPIRED || ev->reason != REASON_TTL || ev->name.len == 0)
        return;
    int lock = ev->name.data[ev->name.len - 1] - '0';
    int ns = slice_eq(ev->ns, SLICE("default")) ? 0 : ev->ns.data[ev->ns.len - 1] - '0';
    if (lock < 0 || lock >= SIM_LOCKS || ns < 0 || ns >= SIM_SPACES)
        return;
    struct sim_lock *l = &w->spaces[ns].locks[lock];
    size_t at = l->n_ended++ % SIM_GONE;
    l->ended[at].fence = ev->fence;
    l->ended[at].ms = w->now;
}

/* I4: no number of a cluster that was lost is given again. */
static void check_floor(struct judge *j, const struct log *log, const struct op *op,
                        const struct event *events, size_t n)
{
    for (size_t i = 0; i < n && !log->forks; i++)
        if (events[i].kind == EVENT_GRANTED && events[i].news && events[i].fence <= log->floor)
            sim_wrong(j->w, "I4",
                      "op %" PRIu64 ": fence %" PRIu64
                      ", and the lost cluster came to %" PRIu64,
                      op->index, events[i].fence, log->floor);
}

static void append(struct judge *j, size_t group, const struct op *op, struct step *step,
                   const struct event *events, size_t n)
{
    struct log *log = &j->logs[group];
    if (log->n == log->cap) {
        log->cap = log->cap ? 2 * log->cap : 1024;
        log->steps = mem_resize(log->steps, log->cap * sizeof *log->steps);
    }
    step->news = log->n ? log->steps[log->n - 1].news : 0;
    for (size_t i = 0; i < n; i++) {
        step->news += events[i].news;
        note_ended(j->w, &events[i]);
    }
    step->asker = op->kind == OP_SESSION_ENROL ? 0 : op->asker;
    if (j->w->plan.disaster)
        op_encode(op, &step->bytes);
    log->steps[log->n++] = *step;
    check_once(j, step, op->index);
    check_clock(j, log, op);
    check_messages(j, group, op);
    check_floor(j, log, op, events, n);
    effects_reset(&log->fx);
    sim_tap_apply(j->w, log->machine, op, &log->fx);
    if (digest_events(log->fx.events, log->fx.n) != step->events) {
        if (j->w->options->verbose)
            tell(j, group, op, log->fx.events, log->fx.n);
        sim_wrong(j->w, "I14", "the judge's machine says something else at op %" PRIu64,
                  op->index);
    }
    note_messages(j, group);
    rules_step(log->rules, op, log->fx.events, log->fx.n);
}

/* --- a log that goes on from an earlier op --- */

void judge_forks(struct judge *j)
{
    for (size_t i = 0; i < j->w->plan.groups; i++) {
        j->logs[i].forks = true;
        j->logs[i].floor = machine_number(j->logs[i].machine) - 1;
    }
}

bool judge_is_forking(const struct judge *j)
{
    for (size_t i = 0; i < j->w->plan.groups; i++)
        if (j->logs[i].forks)
            return true;
    return false;
}

static void replay(const struct judge *j, struct log *log, size_t at)
{
    struct arena a = {0};
    struct op op;
    enum belay_err err = op_decode(buf_slice(&log->steps[at].bytes), &a, &op);
    BELAY_CHECK(err == BELAY_OK);
    op.index = at + 1;
    effects_reset(&log->fx);
    sim_tap_apply(j->w, log->machine, &op, &log->fx);
    rules_step(log->rules, &op, log->fx.events, log->fx.n);
    arena_done(&a);
}

/* What is behind the first n ops is lost. */
static void cut_log(struct judge *j, size_t group, size_t n)
{
    struct log *log = &j->logs[group];
    BELAY_CHECK(log->forks && n <= log->n);
    for (size_t i = n; i < log->n; i++)
        buf_done(&log->steps[i].bytes);
    log->n = n;
    machine_close(log->machine);
    rules_close(log->rules);
    open_log(j, group, log);
    for (size_t i = 0; i < n; i++)
        replay(j, log, i);
    for (size_t to = 0; to < j->w->plan.groups; to++) {
        uint64_t posted = machine_posted(log->machine, (unsigned)to);
        if (j->messages[group][to].n > posted)
            j->messages[group][to].n = posted;
    }
    forget_askers(j);
}

void judge_adopt(struct judge *j, const struct sim_node *n, size_t shard, uint64_t applied)
{
    struct log *log = &j->logs[shard];
    if (!log->forks || !j->w->restored || n->id == 0 || j->w->wrong)
        return;
    if (applied < j->w->backup_from[shard])
        sim_wrong(j->w, "I43",
                  "a backup of group %zu ends at op %" PRIu64 ", but op %" PRIu64
                  " was applied before it was asked for",
                  shard, applied, j->w->backup_from[shard]);
    cut_log(j, shard, applied);
    machine_restore(log->machine, RESTORE_SKIP, true);
    log->forks = false;
    if (applied > 0)
        log->steps[applied - 1].state = machine_hash(log->machine);
}

/* A survivor's log is what it is, as far as it goes. */
static void fork_log(struct judge *j, size_t group, const struct op *op,
                     const struct step *step)
{
    struct log *log = &j->logs[group];
    bool differs = op->index <= log->n && log->steps[op->index - 1].op != step->op;
    if (log->forks && differs)
        cut_log(j, group, op->index - 1);
    if (op->kind == OP_TICK && op->fence)
        log->forks = false;
}

/* Where a member lies nothing can be said of what the nodes do. */
static bool sees_nothing(const struct judge *j)
{
    return j->w->options->answers_only || j->w->plan.lies;
}

void judge_apply(struct judge *j, struct sim_node *n, size_t shard, const struct op *op,
                 const struct event *events, size_t n_events)
{
    struct log *log = &j->logs[shard];
    n->applied[shard] = op->index;
    if (sees_nothing(j) || j->w->wrong || n->id == 0)
        return;
    struct step step = {.op = digest_op(j, op), .events = digest_events(events, n_events)};
    sim_mark(j->w, step.op ^ step.events);
    fork_log(j, shard, op, &step);
    if (op->index == log->n + 1) {
        if (j->w->options->trace)
            tell(j, shard, op, events, n_events);
        append(j, shard, op, &step, events, n_events);
    } else if (op->index > log->n + 1) {
        sim_wrong(j->w, "I15", "node %" PRIu64 " applies op %" PRIu64 ", nobody the one before",
                  n->id, op->index);
    } else if (log->steps[op->index - 1].op != step.op) {
        if (j->w->options->verbose)
            tell(j, shard, op, events, n_events);
        sim_wrong(j->w, "I15", "node %" PRIu64 " applies another op %" PRIu64, n->id,
                  op->index);
    } else if (log->steps[op->index - 1].events != step.events) {
        if (j->w->options->verbose)
            tell(j, shard, op, events, n_events);
        sim_wrong(j->w, "I14", "node %" PRIu64 " says something else at op %" PRIu64, n->id,
                  op->index);
    }
}

void judge_state(struct judge *j, struct sim_node *n, size_t shard)
{
    struct log *log = &j->logs[shard];
    uint64_t at = n->applied[shard];
    if (at == n->compared[shard] || at == 0 || at > log->n || sees_nothing(j))
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

/* A node shows what is in its state, and never less than it has shown before; unless it says so
 * (STALE), everything that anybody had applied when it was asked. */
void judge_read(struct judge *j, struct sim_node *n, const struct machine *m,
                const struct op *op, const struct event *ev)
{
    size_t shard = m->group;
    struct log *log = &j->logs[shard];
    const struct sim_client *c = who_asks(j->w, op->asker);
    uint64_t at = machine_applied(m);
    if (!op->asker || !c || sees_nothing(j) || j->w->wrong || n->dying)
        return;
    uint64_t least = op->flags & OP_STALE ? n->read_at[shard] : c->call.known[shard];
    if (at < least)
        sim_wrong(
            j->w, "I8", "client %d reads at op %" PRIu64 ", but op %" PRIu64 " was %s it asked",
            c->no, at, least, op->flags & OP_STALE ? "shown there before" : "applied before");
    if (at != n->applied[shard])
        sim_wrong(j->w, "I8", "client %d reads at op %" PRIu64 ", but the node is at %" PRIu64,
                  c->no, at, n->applied[shard]);
    n->read_at[shard] = at;
    if (at != log->n)
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
    for (size_t i = 0; i < j->w->plan.groups; i++)
        if (n->applied[i] && n->applied[i] <= j->logs[i].n)
            sum += j->logs[i].steps[n->applied[i] - 1].news;
    return sum;
}

bool judge_equal(const struct judge *j, const struct sim_node *n, size_t shard)
{
    return n->applied[shard] == j->logs[shard].n &&
           engine_hash(n->engine, shard) == machine_hash(j->logs[shard].machine);
}

static bool has_space(const struct judge *j, size_t group, const char *name)
{
    struct effects fx = {0};
    struct op show = {
        .kind = OP_NAMESPACE_SHOW, .account = SLICE("default"), .ns = slice_str(name)};
    __real_machine_query(j->logs[group].machine, &show, &fx);
    bool found = fx.n == 1 && fx.events[0].kind == EVENT_ROWS;
    effects_done(&fx);
    return found;
}

/* A namespace that group 0 knows is in one shard, and in none when it does not. */
static bool spaces_agree(const struct judge *j)
{
    for (int ns = 1; ns < SIM_SPACES && j->w->plan.groups > 1; ns++) {
        char name[16];
        size_t shards = 0;
        snprintf(name, sizeof name, "n%d", ns);
        for (size_t g = 1; g < j->w->plan.groups; g++)
            shards += has_space(j, g, name);
        if (shards != has_space(j, 0, name))
            return false;
    }
    return true;
}

bool judge_empty(const struct judge *j)
{
    if (!messages_arrived(j) || !spaces_agree(j))
        return false;
    for (size_t i = 0; i < j->w->plan.groups; i++) {
        struct machine_counts c;
        machine_counts(j->logs[i].machine, &c);
        if (c.held || c.waiting || c.sessions || c.variables || c.transactions)
            return false;
    }
    return true;
}

void judge_describe(const struct judge *j)
{
    for (size_t i = 0; i < j->w->plan.groups; i++) {
        struct machine_counts c;
        machine_counts(j->logs[i].machine, &c);
        printf("#   group %zu: %zu ops, messages %" PRIu64 ", held %" PRIu64 " waiting %" PRIu64
               " sessions %" PRIu64 " variables %" PRIu64 " transactions %" PRIu64 "\n",
               i, j->logs[i].n, machine_messages(j->logs[i].machine), c.held, c.waiting,
               c.sessions, c.variables, c.transactions);
    }
}
