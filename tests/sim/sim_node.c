/* sim_node.c - one node of the simulated cluster: its host, its life and its death. */
#include "sim.h"

#include "events/feed.h"
#include "machine/level.h"
#include "raft/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_node_set_rate(struct sim_node *n, uint64_t rate)
{
    n->clock_base = sim_node_clock(n);
    n->clock_from = n->w->now;
    n->rate = rate;
}

uint64_t sim_node_clock(const struct sim_node *n)
{
    return n->clock_base + (n->w->now - n->clock_from) * n->rate / 1000;
}

/* With AIM_PLACES the last of the first members has the last place: those who are added next
 * get the places of the others, when they are gone. */
static bool are_places_short(const struct sim_world *w)
{
    return w->options->aim == AIM_PLACES;
}

uint64_t sim_number(const struct sim_world *w, uint64_t id)
{
    uint64_t last = (uint64_t)w->plan.nodes;
    return are_places_short(w) && id >= last ? NODE_PLACES - 1 + id - last : id;
}

uint64_t sim_of_number(const struct sim_world *w, uint64_t number)
{
    uint64_t last = (uint64_t)w->plan.nodes;
    return are_places_short(w) && number >= last ? number - (NODE_PLACES - 1) + last : number;
}

struct group *sim_group(const struct sim_node *n, size_t group)
{
    return n->order ? replica_group(replica_of(n->order), group) : NULL;
}

/* --- the host --- */

static uint64_t env_now(void *ctx)
{
    return sim_node_clock(ctx);
}

/* What leases are counted by. Canary: faster by what they should allow for. */
static uint64_t lease_now(void *ctx)
{
    const struct sim_node *n = ctx;
    uint64_t now = sim_node_clock(n);
    return n->w->options->canaries & CANARY_NO_MARGIN ? now + now / 1000 : now;
}

static void env_write(void *ctx, struct journal_job *job)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    BELAY_CHECK(!n->job);
    n->job = job;
    struct sim_event *ev = sim_post(w, w->plan.disk_ms ? sim_random(w, w->plan.disk_ms + 1) : 0,
                                    EV_WRITTEN, n->id);
    ev->life = n->life;
}

/* Nodes call the members that they know, and whoever calls them (runtime.c). */
static bool has_address(const struct sim_node *n, uint64_t to)
{
    struct group_conf conf;
    bool calls = n->called[to] && !(n->w->options->canaries & CANARY_NO_CALL_BACK);
    group_conf(sim_group(n, 0), &conf);
    return calls || group_conf_find(&conf, sim_number(n->w, to));
}

static bool is_liar(const struct sim_node *n)
{
    return n->w->plan.lies && n->id == 1;
}

/* Behind the checksum of its frame: whoever gets it has to look at it. */
static void lie(struct sim_world *w, struct buf *frame)
{
    for (uint64_t n = 1 + sim_random(w, 3); n > 0; n--)
        frame->mem[frame->start + sim_random(w, buf_len(frame))] ^=
            (char)(1 + sim_random(w, 255));
}

static void env_send(void *ctx, uint64_t to, struct slice frame)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    to = sim_of_number(w, to);
    if (to == 0 || to > SIM_NODES || n->dying) /* fatal() of a real host does not return */
        return;
    if (!has_address(n, to))
        return;
    unsigned copies = !w->healing && sim_chance(w, w->plan.twice) ? 2 : 1;
    for (unsigned i = 0; i < copies; i++) {
        if (w->cut[n->id][to] || (!w->healing && sim_chance(w, w->plan.loss)))
            continue;
        uint64_t delay = w->healing ? 1 : 1 + sim_random(w, w->plan.delay_ms + 1);
        struct sim_event *ev = sim_post(w, delay, EV_MESSAGE, to);
        ev->from = n->id;
        buf_put_slice(&ev->bytes, frame);
        if (is_liar(n) && !w->healing && sim_chance(w, w->plan.lies))
            lie(w, &ev->bytes);
    }
}

static void env_snapshot(void *ctx, struct snapshot_task *task)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    BELAY_CHECK(!n->task);
    n->task = task;
    n->wrong_disk = !replica_snapshot_write(task);
    uint64_t most = 5 * w->plan.disk_ms + 20;
    bool aim = w->options->aim == AIM_SNAPSHOTS;
    if (sim_chance(w, aim ? 60 : 20)) /* of a large state: another may be fetched meanwhile */
        most = 2000;
    sim_post(w, 1 + sim_random(w, most), EV_SNAPSHOT, n->id)->life = n->life;
}

static void env_fetch(void *ctx, struct fetch *f)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    BELAY_CHECK(!n->fetch);
    n->fetch = f;
    sim_post(w, sim_random(w, w->plan.disk_ms + 1), EV_FETCHED, n->id)->life = n->life;
}

/* The log may say that another start of it came later. Where a member lies it may also say so
 * when it is not true: who leads writes the log. */
static bool may_be_void(const struct sim_node *n)
{
    return n->is_old || n->w->plan.lies;
}

/* Its program is, for the cluster or for what is on its disk. */
static bool learns_to_be_too_old(struct sim_node *n, const char *text)
{
    bool so = n->old && strstr(text, "start a newer belay");
    n->too_old |= so;
    return so;
}

static void env_fatal(void *ctx, const char *text)
{
    struct sim_node *n = ctx;
    n->dying = true;
    if (learns_to_be_too_old(n, text))
        return;
    n->refused = may_be_void(n) && !n->disk.dead; /* else its disk is why */
    bool used_up = n->disk.full && n->w->plan.segment_bytes < SIM_ROOMY_BYTES;
    if (!n->disk.dead && !may_be_void(n) && !used_up)
        sim_wrong(n->w, "stop", "node %" PRIu64 ": %s", n->id, text);
}

static const struct replica_env host = {.now_ms = env_now,
                                        .write = env_write,
                                        .send = env_send,
                                        .snapshot = env_snapshot,
                                        .fetch = env_fetch,
                                        .fatal = env_fatal};

/* --- life --- */

static void members(const struct sim_world *w, struct group_conf *conf)
{
    conf->n = 0;
    for (int i = 1; i <= w->plan.nodes; i++) {
        struct group_server *s = &conf->servers[conf->n++];
        s->id = sim_number(w, (uint64_t)i);
        s->voter = true;
        snprintf(s->address, sizeof s->address, "n%d@node-%d:1", i, i);
    }
}

/* I6: a term, and with it a vote, that was durable once is never forgotten. */
static void check_terms(struct sim_world *w, const struct sim_node *n)
{
    for (size_t i = 0; i < w->plan.groups; i++)
        if (group_term(sim_group(n, i)) < n->terms[i])
            sim_wrong(w, "I6",
                      "node %" PRIu64 " starts in term %" PRIu64
                      " of group %zu after term %" PRIu64,
                      n->id, group_term(sim_group(n, i)), i, n->terms[i]);
}

static void note_terms(struct sim_world *w, struct sim_node *n)
{
    const struct journal *j = replica_journal(replica_of(n->order));
    for (size_t i = 0; i < w->plan.groups && !journal_busy(j) && journal_due(j) == 0; i++)
        n->terms[i] = group_term(sim_group(n, i));
}

void sim_node_put_back(struct sim_node *n)
{
    sim_disk_copy(&n->disk, &n->copy);
    memset(n->terms, 0, sizeof n->terms);
    n->is_old = true;
    n->has_copy = false;
}

bool sim_node_went_back(const struct sim_node *n)
{
    return n->old && n->life > 1;
}

/* A cluster begins with one version: nobody is newer before something is in every log. Later an
 * operator goes back to the old one now and then, until that is too old. */
static bool starts_old(const struct sim_node *n)
{
    bool begun = true;
    for (size_t i = 0; i < n->w->plan.groups; i++)
        begun &= judge_length(n->w->judge, i) > 0;
    if (!n->w->plan.upgrade || n->joins)
        return false;
    return n->life == 1 || !begun || (!n->w->healing && !n->too_old && sim_chance(n->w, 40));
}

/* It was killed while it started; or it is marked as an old copy, for its disk failed when it
 * was marked and has the mark all the same. */
static void not_started(struct sim_world *w, struct sim_node *n)
{
    if (n->disk.dead || n->disk.full || learns_to_be_too_old(n, replica_problem())) {
        n->disk.full = false;
        w->n_crashes++;
        sim_post(w, 10 + sim_random(w, 1000), EV_START, n->id);
        return;
    }
    n->refused = may_be_void(n) && strstr(replica_problem(), "older copy");
    if (!n->refused)
        sim_wrong(w, "stop", "node %" PRIu64 " does not start: %s", n->id, replica_problem());
}

/* How far a clock goes in 1000 ms of the world. */
static uint64_t draw_rate(struct sim_world *w)
{
    if (!w->plan.clocks || w->healing)
        return 1000;
    if (w->plan.fine)
        return 999 + sim_random(w, 3);
    if (!w->plan.slow)
        return 960 + sim_random(w, 80);
    return sim_chance(w, 40) ? 200 + sim_random(w, 100) : 900 + sim_random(w, 100);
}

void sim_node_start(struct sim_world *w, uint64_t id)
{
    struct sim_node *n = &w->nodes[id];
    BELAY_CHECK(!n->order);
    n->life++;
    n->old = starts_old(n);
    n->clock_base = 1000 + sim_random(w, 1000000); /* a monotonic clock starts anywhere */
    n->clock_from = w->now;
    n->rate = draw_rate(w);
    n->paused_until = 0;
    n->next_wake = 0; /* one that was posted in its last life is void */
    n->lost_ms = 0;
    w->calm_ms = w->calm_ms > w->now ? w->calm_ms : w->now;
    n->dying = false;
    n->news = (struct sim_news){0};
    memset(n->called, 0, sizeof n->called);
    memset(n->applied, 0, sizeof n->applied);
    memset(n->compared, 0, sizeof n->compared);
    memset(n->read_at, 0, sizeof n->read_at);
    memset(n->shown, 0, sizeof n->shown);
    sim_disk_revive(&n->disk);
    sim_enter(n);
    struct replica_config config = {
        .env = &host,
        .env_ctx = n,
        .disk = &n->disk.base,
        .node = sim_number(w, id),
        .groups = w->plan.groups,
        .election_ms = 300,
        .heartbeat_ms = 60,
        .seed = w->plan.seed * 31 + id + n->life * 1009,
        .segment_bytes = w->plan.segment_bytes,
        .snapshot_bytes = w->plan.snapshot_bytes,
        .trailing = 4,
        .turn_work = w->plan.turn_work,
        .piece_bytes = 40 + w->plan.seed * 97 % 300,
        .silence_ms = w->plan.seed % 2 ? 0 : 700, /* a node is soon gone */
        .levels_unknown = n->old ? 1 + n->w->plan.seed % LEVEL_NEWEST : 0,
        .doubt_ms = w->plan.old_copies ? DOUBT_MS : 0,
        .inflight = w->plan.inflight,
        .guards_off = w->options->guards_off,
        .canaries = w->options->canaries};
    if (!n->joins)
        members(w, &config.members);
    if (w->plan.crashes && !w->healing && sim_chance(w, 15)) /* killed while it starts */
        n->disk.crash_in = 1 + sim_random(w, 6);
    enum belay_err err = replica_open(&config, &n->order);
    if (err != BELAY_OK) {
        n->order = NULL;
        not_started(w, n);
        return;
    }
    n->disk.crash_in = 0;
    n->disk.rolls = w->options->aim == AIM_SEGMENTS && !w->healing ? 8 : 0;
    n->feed = feed_open(4096);
    n->engine = engine_open(
        &(struct engine_config){.order = n->order,
                                .clock_ms = lease_now,
                                .clock_ctx = n,
                                .feed = n->feed,
                                .count_bits = SIM_COUNT_BITS,
                                .batch = w->plan.batch,
                                .by_number = w->options->canaries & CANARY_BY_NUMBER});
    check_terms(w, n);
    sim_node_settle(w, n);
}

/* The process dies: what the disk was doing happens in part. */
void sim_node_crash(struct sim_world *w, uint64_t id)
{
    struct sim_node *n = &w->nodes[id];
    if (!n->order)
        return;
    w->n_crashes++;
    struct journal_job *job = n->job;
    struct snapshot_task *task = n->task;
    struct fetch *fetch = n->fetch;
    n->job = NULL;
    n->task = NULL;
    n->fetch = NULL;
    if (fetch && sim_chance(w, 50)) {
        n->disk.crash_in = 1 + sim_random(w, 2);
        replica_fetch_run(fetch);
    }
    if (job && sim_chance(w, 80)) {
        n->disk.crash_in = 1 + sim_random(w, 3);
        journal_job_run(job);
    }
    n->disk.dead = true;
    if (job) {
        int code;
        enum belay_err err =
            journal_job_done(replica_journal(replica_of(n->order)), job, &code);
        (void)err;
    }
    free(task);
    sim_client_lost(w, id);
    n->wishes = 0;
    engine_close(n->engine);
    feed_close(n->feed);
    n->engine = NULL;
    n->order = NULL;
    n->life++;
}

/* --- what must hold after every step --- */

static void check_leader(struct sim_world *w, struct sim_node *n, size_t group)
{
    struct group *g = sim_group(n, group);
    uint64_t term = group_term(g);
    if (group_role(g) != GROUP_LEADER || term >= SIM_TERMS)
        return;
    uint64_t *leader = &w->leader_of[group][term];
    if (*leader != 0 && *leader != n->id)
        sim_wrong(w, "I15",
                  "term %" PRIu64 " of group %zu has two leaders, %" PRIu64 " and %" PRIu64,
                  term, group, *leader, n->id);
    if (*leader)
        return;
    *leader = n->id;
    w->n_leaders++;
    if (w->plan.hunt && sim_chance(w, 80)) {
        uint64_t soon = 2 * (uint64_t)w->plan.delay_ms + w->plan.disk_ms + 20;
        struct sim_event *ev = sim_post(w, sim_random(w, soon), EV_HUNT, n->id);
        ev->life = term;
        ev->from = group;
    }
}

/* I16: a watcher of this node misses nothing and hears nothing twice, or is told so. */
static void read_news(struct sim_world *w, struct sim_node *n)
{
    struct sim_news *news = &n->news;
    const struct event *ev;
    while (news->next && news->next < feed_next(n->feed)) {
        if (feed_get(n->feed, news->next, &ev) != BELAY_OK) {
            news->next = 0;
            break;
        }
        news->next++;
        news->seen++;
    }
    if (news->next == 0) { /* it begins, or begins again: from the state as it is now */
        news->next = feed_next(n->feed);
        news->seen = judge_news(w->judge, n);
    }
    if (news->seen != judge_news(w->judge, n) && !w->options->answers_only)
        sim_wrong(w, "I16",
                  "a watcher of node %" PRIu64 " has heard %" PRIu64 " of %" PRIu64 " news",
                  n->id, news->seen, judge_news(w->judge, n));
}

/* I32: nobody takes a member for one that was removed. Now and then: it is much to compare. */
static void check_members(struct sim_world *w, struct sim_node *n)
{
    const struct group *g = sim_group(n, 0);
    if (group_conf_index(g) > w->members_index) {
        w->members_index = group_conf_index(g);
        group_conf_committed(g, &w->members);
    }
    if (++w->n_looks % 16 != 0)
        return;
    for (size_t i = 0; i < w->members.n; i++)
        if (replica_was_removed(replica_of(n->order), w->members.servers[i].id))
            sim_wrong(w, "I32", "node %" PRIu64 " takes the member %" PRIu64 " for removed",
                      n->id, w->members.servers[i].id);
}

static void check(struct sim_world *w, struct sim_node *n)
{
    check_members(w, n);
    for (size_t i = 0; i < w->plan.groups; i++) {
        uint64_t commit = group_commit(sim_group(n, i));
        w->committed[i] = commit > w->committed[i] ? commit : w->committed[i];
        check_leader(w, n, i);
        judge_state(w->judge, n, i);
    }
    if (!w->wrong)
        read_news(w, n);
}

/* Its disk has failed: it is started again when somebody has made room. */
static void give_up(struct sim_world *w, struct sim_node *n)
{
    sim_node_crash(w, n->id);
    n->disk.full = false;
    if (!n->refused)
        sim_post(w, 10 + sim_random(w, 3000), EV_START, n->id);
}

void sim_node_settle(struct sim_world *w, struct sim_node *n)
{
    if (!n->order || w->wrong)
        return;
    struct replica *o = replica_of(n->order);
    sim_enter(n);
    replica_tick(o);
    if (engine_next_ms(n->engine) == 0)
        engine_tick(n->engine);
    replica_settle(o);
    if (n->dying) {
        give_up(w, n);
        return;
    }
    check(w, n);
    note_terms(w, n);
    uint64_t clock = sim_node_clock(n);
    uint64_t next = replica_next_ms(o);
    uint64_t due = engine_next_ms(n->engine);
    if (due != UINT64_MAX && clock + due < next)
        next = clock + due;
    uint64_t in = next > clock ? next - clock : 1;
    if (in > 1000)
        in = 1000;
    if (n->next_wake > w->now && n->next_wake <= w->now + in)
        return;
    n->next_wake = w->now + in;
    sim_post(w, in, EV_WAKE, n->id)->life = n->life;
}

void sim_node_event(struct sim_world *w, struct sim_event *ev)
{
    struct sim_node *n = &w->nodes[ev->node];
    bool mine = ev->kind == EV_MESSAGE || ev->life == n->life;
    if (!n->order || !mine)
        return;
    struct replica *o = replica_of(n->order);
    sim_enter(n);
    if (ev->kind == EV_MESSAGE) {
        uint64_t from = sim_number(w, ev->from);
        const struct sim_node *sender = &w->nodes[ev->from];
        /* with the connection that it came by */
        bool lost = (!sender->order && sender->lost_ms) || ev->seq < w->lost_seq;
        bool heard = !w->cut[ev->from][ev->node] && !lost && replica_has_room(o, from);
        n->called[ev->from] |= heard;
        if (heard && !replica_receive(o, from, buf_slice(&ev->bytes))) {
            if (sim_node_went_back(n)) /* too old for an entry, which raises the level */
                n->too_old = n->dying = true;
            else
                sim_wrong(w, "refused", "node %" PRIu64 " by node %" PRIu64, ev->from,
                          ev->node);
            replica_peer_lost(o, from); /* its connection is closed */
        }
    } else if (ev->kind == EV_WRITTEN) {
        struct journal_job *job = n->job;
        n->job = NULL;
        journal_job_run(job);
        replica_written(o, job);
    } else if (ev->kind == EV_SNAPSHOT) {
        struct snapshot_task *task = n->task;
        n->task = NULL;
        replica_snapshotted(o, task, !n->wrong_disk);
        /* What is on its disk now must be whole. */
        bool aim = w->options->aim == AIM_SNAPSHOTS || w->options->aim == AIM_SEGMENTS;
        if (w->plan.crashes && sim_chance(w, aim ? 30 : 10))
            sim_post(w, sim_random(w, 300), EV_CRASH, n->id)->life = n->life;
    } else if (ev->kind == EV_FETCHED) {
        struct fetch *f = n->fetch;
        n->fetch = NULL;
        replica_fetch_run(f);
        replica_fetched(o);
    } else if (ev->kind == EV_WAKE) {
        if (n->next_wake <= w->now)
            n->next_wake = 0;
    }
    if (n->dying)
        give_up(w, n);
    else
        sim_node_settle(w, n);
}
