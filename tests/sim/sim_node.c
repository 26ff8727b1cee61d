/* sim_node.c - one node of the simulated cluster: its host, its life and its death. */
#include "sim.h"

#include "events/feed.h"

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

struct group *sim_group(const struct sim_node *n, size_t group)
{
    return n->order ? order_raft_group(order_raft_of(n->order), group) : NULL;
}

/* --- the host --- */

static uint64_t host_now(void *ctx)
{
    return sim_node_clock(ctx);
}

static void host_write(void *ctx, struct journal_job *job)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    BELAY_CHECK(!n->job);
    n->job = job;
    struct sim_event *ev = sim_post(w, w->plan.disk_ms ? sim_random(w, w->plan.disk_ms + 1) : 0,
                                    EV_WRITTEN, n->id);
    ev->life = n->life;
}

static void host_send(void *ctx, uint64_t to, struct slice frame)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    if (to == 0 || to > SIM_NODES)
        return;
    unsigned copies = !w->healing && sim_chance(w, w->plan.twice) ? 2 : 1;
    for (unsigned i = 0; i < copies; i++) {
        if (w->cut[n->id][to] || (!w->healing && sim_chance(w, w->plan.loss)))
            continue;
        uint64_t delay = w->healing ? 1 : 1 + sim_random(w, w->plan.delay_ms + 1);
        struct sim_event *ev = sim_post(w, delay, EV_MESSAGE, to);
        ev->from = n->id;
        buf_put_slice(&ev->bytes, frame);
    }
}

static void host_snapshot(void *ctx, struct snapshot_task *task)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    BELAY_CHECK(!n->task);
    n->task = task;
    n->wrong_disk = !order_raft_snapshot_write(task);
    uint64_t most = 5 * w->plan.disk_ms + 20;
    bool aim = w->options->aim == AIM_SNAPSHOTS;
    if (sim_chance(w, aim ? 60 : 20)) /* of a large state: another may be fetched meanwhile */
        most = 2000;
    sim_post(w, 1 + sim_random(w, most), EV_SNAPSHOT, n->id)->life = n->life;
}

static void host_fetch(void *ctx, struct fetch *f)
{
    struct sim_node *n = ctx;
    struct sim_world *w = n->w;
    BELAY_CHECK(!n->fetch);
    n->fetch = f;
    sim_post(w, sim_random(w, w->plan.disk_ms + 1), EV_FETCHED, n->id)->life = n->life;
}

static void host_fatal(void *ctx, const char *text)
{
    struct sim_node *n = ctx;
    if (!n->disk.fail_errno)
        sim_wrong(n->w, "disk", "node %" PRIu64 ": %s", n->id, text);
    n->dying = true;
}

static const struct raft_host host = {.now_ms = host_now,
                                      .write = host_write,
                                      .send = host_send,
                                      .snapshot = host_snapshot,
                                      .fetch = host_fetch,
                                      .fatal = host_fatal};

/* --- life --- */

static void members(const struct sim_world *w, struct group_conf *conf)
{
    conf->n = 0;
    for (int i = 1; i <= w->plan.nodes; i++) {
        struct group_server *s = &conf->servers[conf->n++];
        s->id = (uint64_t)i;
        s->voter = true;
        snprintf(s->address, sizeof s->address, "n%d@node-%d:1", i, i);
    }
}

void sim_node_start(struct sim_world *w, uint64_t id)
{
    struct sim_node *n = &w->nodes[id];
    BELAY_CHECK(!n->order);
    n->life++;
    n->clock_base = 1000 + sim_random(w, 1000000); /* a monotonic clock starts anywhere */
    n->clock_from = w->now;
    n->rate = 1000;
    if (w->plan.clocks && !w->healing)
        n->rate = !w->plan.slow       ? 960 + sim_random(w, 80)
                  : sim_chance(w, 40) ? 200 + sim_random(w, 100)
                                      : 900 + sim_random(w, 100);
    n->paused_until = 0;
    n->dying = false;
    n->news = (struct sim_news){0};
    memset(n->applied, 0, sizeof n->applied);
    memset(n->compared, 0, sizeof n->compared);
    memset(n->read_at, 0, sizeof n->read_at);
    memset(n->shown, 0, sizeof n->shown);
    sim_disk_revive(&n->disk);
    sim_enter(n);
    struct order_raft_config config = {.host = &host,
                                       .host_ctx = n,
                                       .disk = &n->disk.base,
                                       .node = id,
                                       .groups = w->plan.groups,
                                       .election_ms = 300,
                                       .heartbeat_ms = 60,
                                       .seed = w->plan.seed * 31 + id + n->life * 1009,
                                       .segment_bytes = 64 << 10,
                                       .snapshot_bytes = w->plan.snapshot_bytes,
                                       .trailing = 4,
                                       .piece_bytes = 40 + w->plan.seed * 97 % 300,
                                       .silence_ms =
                                           w->plan.seed % 2 ? 0 : 700, /* a node is soon gone */
                                       .inflight = w->plan.inflight,
                                       .guards_off = w->options->guards_off,
                                       .canaries = w->options->canaries};
    if (!n->joins)
        members(w, &config.members);
    enum belay_err err = order_raft_open(&config, &n->order);
    if (err != BELAY_OK) {
        n->order = NULL;
        sim_wrong(w, "start", "node %" PRIu64 " does not start: %s", id, order_raft_problem());
        return;
    }
    n->feed = feed_open(4096);
    n->engine = engine_open(&(struct engine_config){
        .order = n->order, .clock_ms = host_now, .clock_ctx = n, .feed = n->feed});
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
        order_raft_fetch_run(fetch);
    }
    if (job && sim_chance(w, 80)) {
        n->disk.crash_in = 1 + sim_random(w, 3);
        journal_job_run(job);
    }
    n->disk.dead = true;
    if (job) {
        int code;
        enum belay_err err =
            journal_job_done(order_raft_journal(order_raft_of(n->order)), job, &code);
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

static void check(struct sim_world *w, struct sim_node *n)
{
    for (size_t i = 0; i < w->plan.groups; i++) {
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
    sim_post(w, 10 + sim_random(w, 3000), EV_START, n->id);
}

void sim_node_settle(struct sim_world *w, struct sim_node *n)
{
    if (!n->order || w->wrong)
        return;
    struct order_raft *o = order_raft_of(n->order);
    sim_enter(n);
    order_raft_tick(o);
    if (engine_next_ms(n->engine) == 0)
        engine_tick(n->engine);
    order_raft_settle(o);
    if (n->dying) {
        give_up(w, n);
        return;
    }
    check(w, n);
    uint64_t clock = sim_node_clock(n);
    uint64_t next = order_raft_next_ms(o);
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
    struct order_raft *o = order_raft_of(n->order);
    sim_enter(n);
    if (ev->kind == EV_MESSAGE) {
        if (!w->cut[ev->from][ev->node])
            order_raft_receive(o, ev->from, buf_slice(&ev->bytes));
    } else if (ev->kind == EV_WRITTEN) {
        struct journal_job *job = n->job;
        n->job = NULL;
        journal_job_run(job);
        order_raft_written(o, job);
    } else if (ev->kind == EV_SNAPSHOT) {
        struct snapshot_task *task = n->task;
        n->task = NULL;
        order_raft_snapshotted(o, task, !n->wrong_disk);
        /* What is on its disk now must be whole. */
        if (w->plan.crashes && sim_chance(w, w->options->aim == AIM_SNAPSHOTS ? 30 : 10))
            sim_post(w, sim_random(w, 300), EV_CRASH, n->id)->life = n->life;
    } else if (ev->kind == EV_FETCHED) {
        struct fetch *f = n->fetch;
        n->fetch = NULL;
        order_raft_fetch_run(f);
        order_raft_fetched(o);
    } else if (ev->kind == EV_WAKE) {
        if (n->next_wake <= w->now)
            n->next_wake = 0;
    }
    if (n->dying)
        give_up(w, n);
    else
        sim_node_settle(w, n);
}
