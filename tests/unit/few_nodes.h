/* few_nodes.h - several groups on several nodes of a test, on virtual time and without faults
 * but those of the story. */
#ifndef BELAY_TESTS_FEW_NODES_H
#define BELAY_TESTS_FEW_NODES_H

#include "../sim/sim_disk.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "events/feed.h"
#include "raft/member.h"
#include "raft/replica.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    NODES_MAX = 5,
    GROUPS = 4,
    HEARTBEAT_MS = 60,
    ELECTION_MS = 300,
    SEGMENT_BYTES = 4 << 20
};

struct frame {
    struct list all;
    uint64_t from, to;
    struct buf bytes;
};

struct world;
struct node {
    struct world *w;
    uint64_t id; /* its number in the cluster: at first, where it stands in world.nodes */
    struct sim_disk disk;
    struct order *order; /* NULL: it is down */
    struct engine *engine;
    struct feed *feed;
    struct journal_job *job;
    uint64_t job_ms; /* when it was begun */
    struct snapshot_task *task;
    struct fetch *fetch;
    uint8_t priority;
    uint64_t levels_unknown;
    bool level_manual;
    uint64_t starts;
    uint64_t fast_ppm; /* its clock gains so much on the others */
    const char *ended; /* why, if it may (may_end) and did */
    bool may_end;
    uint64_t commits, slowest_ns; /* entries that it was told of, and the longest of them */
};

struct world {
    uint64_t now;
    struct node nodes[NODES_MAX + 1]; /* the first is never used */
    size_t first;                     /* members at first */
    struct list frames;
    size_t n_frames;
    uint64_t cut;       /* this node hears and says nothing */
    uint64_t disk_ms;   /* what a write takes */
    size_t lose_one_in; /* frames; 0: none */
    size_t largest;     /* of them, in bytes */
};

static inline struct replica *raft(struct node *n)
{
    return replica_of(n->order);
}

/* --- the host --- */

static inline uint64_t node_now(void *ctx)
{
    const struct node *n = ctx;
    return n->w->now + n->w->now * n->fast_ppm / 1000000;
}

static inline void node_write(void *ctx, struct journal_job *job)
{
    struct node *n = ctx;
    n->job = job;
    n->job_ms = n->w->now;
}

static inline void node_send(void *ctx, uint64_t to, struct slice bytes)
{
    struct node *n = ctx;
    struct frame *f = mem_zalloc(sizeof *f);
    f->from = n->id;
    f->to = to;
    buf_put_slice(&f->bytes, bytes);
    list_push_back(&n->w->frames, &f->all);
    n->w->n_frames++;
    if (bytes.len > n->w->largest)
        n->w->largest = bytes.len;
}

static inline void node_snapshot(void *ctx, struct snapshot_task *task)
{
    struct node *n = ctx;
    n->task = task;
    assert_true(replica_snapshot_write(task));
}

static inline void node_fetch(void *ctx, struct fetch *f)
{
    ((struct node *)ctx)->fetch = f;
}

static inline void node_fatal(void *ctx, const char *text)
{
    struct node *n = ctx;
    if (!n->may_end)
        fail_msg("%s", text);
    n->ended = text;
}

static inline uint64_t node_now_ns(void *ctx)
{
    return node_now(ctx) * 1000000;
}

static inline void node_committed(void *ctx, uint64_t ns)
{
    struct node *n = ctx;
    n->commits++;
    if (ns > n->slowest_ns)
        n->slowest_ns = ns;
}

static const struct replica_env host = {.now_ms = node_now,
                                        .write = node_write,
                                        .send = node_send,
                                        .snapshot = node_snapshot,
                                        .fetch = node_fetch,
                                        .fatal = node_fatal,
                                        .now_ns = node_now_ns,
                                        .committed = node_committed};

/* --- life --- */

static inline enum belay_err try_start(struct world *w, uint64_t id)
{
    struct node *n = &w->nodes[id];
    struct replica_config config = {.env = &host,
                                    .env_ctx = n,
                                    .disk = &n->disk.base,
                                    .node = n->id,
                                    .groups = GROUPS,
                                    .cluster = 9,
                                    .election_ms = ELECTION_MS,
                                    .heartbeat_ms = HEARTBEAT_MS,
                                    .seed = 4711 + n->id + NODES_MAX * n->starts++,
                                    .segment_bytes = SEGMENT_BYTES,
                                    .trailing = 1,
                                    .piece_bytes = 8,
                                    .priority = n->priority,
                                    .levels_unknown = n->levels_unknown,
                                    .level_manual = n->level_manual};
    for (uint64_t i = 1; i <= w->first && id <= w->first; i++) {
        struct group_server *s = &config.members.servers[config.members.n++];
        *s = (struct group_server){.id = i, .voter = true};
        snprintf(s->address, sizeof s->address, "n%d@h:%d", (int)i, (int)i);
    }
    enum belay_err err = replica_open(&config, &n->order);
    if (err != BELAY_OK)
        return err;
    n->feed = feed_open(16);
    n->engine = engine_open(&(struct engine_config){
        .order = n->order, .clock_ms = node_now, .clock_ctx = n, .feed = n->feed});
    return BELAY_OK;
}

static inline void start(struct world *w, uint64_t id)
{
    assert_int_equal(try_start(w, id), BELAY_OK);
}

static inline void stop(struct world *w, uint64_t id)
{
    struct node *n = &w->nodes[id];
    if (n->job) {
        int code;
        journal_job_run(n->job);
        assert_int_equal(journal_job_done(replica_journal(raft(n)), n->job, &code), BELAY_OK);
    }
    engine_close(n->engine);
    feed_close(n->feed);
    n->job = NULL;
    n->fetch = NULL;
    n->order = NULL;
}

static inline struct world *begin_at(size_t nodes, uint64_t levels_unknown)
{
    struct world *w = mem_zalloc(sizeof *w);
    w->now = 1000;
    w->first = nodes;
    list_init(&w->frames);
    for (uint64_t id = 1; id <= NODES_MAX; id++) {
        w->nodes[id].w = w;
        w->nodes[id].id = id;
        w->nodes[id].priority = 14;
        w->nodes[id].levels_unknown = levels_unknown;
        sim_disk_init(&w->nodes[id].disk, id);
    }
    for (uint64_t id = 1; id <= nodes; id++)
        start(w, id);
    return w;
}

static inline struct world *begin(size_t nodes)
{
    return begin_at(nodes, 0);
}

static inline struct node *find_node(struct world *w, uint64_t id)
{
    for (size_t i = 1; i <= NODES_MAX; i++)
        if (w->nodes[i].id == id)
            return &w->nodes[i];
    return NULL;
}

static inline bool deliver(struct world *w)
{
    if (list_empty(&w->frames))
        return false;
    struct frame *f = list_item(w->frames.next, struct frame, all);
    struct node *to = find_node(w, f->to);
    list_remove(&f->all);
    bool lost = w->cut == f->to || w->cut == f->from ||
                (w->lose_one_in && w->n_frames % w->lose_one_in == 0);
    if (to && to->order && !lost) {
        assert_true(replica_receive(raft(to), f->from, buf_slice(&f->bytes)));
        replica_settle(raft(to));
    }
    buf_done(&f->bytes);
    free(f);
    return true;
}

static inline void end(struct world *w)
{
    for (uint64_t id = 1; id <= NODES_MAX; id++) {
        if (w->nodes[id].order)
            stop(w, id);
        sim_disk_wipe(&w->nodes[id].disk);
    }
    while (!list_empty(&w->frames)) {
        struct frame *f = list_item(w->frames.next, struct frame, all);
        list_remove(&f->all);
        buf_done(&f->bytes);
        free(f);
    }
    free(w);
}

static inline void settle(struct world *w)
{
    bool busy = true;
    while (busy) {
        busy = deliver(w);
        for (uint64_t id = 1; id <= NODES_MAX; id++) {
            struct node *n = &w->nodes[id];
            if (n->order && n->task) {
                struct snapshot_task *task = n->task;
                n->task = NULL;
                replica_snapshotted(raft(n), task, true);
            }
            if (!n->order || !n->job || w->now < n->job_ms + w->disk_ms)
                continue;
            struct journal_job *job = n->job;
            n->job = NULL;
            busy = true;
            journal_job_run(job);
            replica_written(raft(n), job);
            replica_settle(raft(n));
        }
    }
}

/* A piece takes a millisecond. */
static inline void store_piece(struct node *n)
{
    struct fetch *f = n->fetch;
    if (!f)
        return;
    n->fetch = NULL;
    replica_fetch_run(f);
    replica_fetched(raft(n));
}

static inline void run(struct world *w, uint64_t ms)
{
    for (uint64_t until = w->now + ms; w->now < until; w->now++) {
        for (uint64_t id = 1; id <= NODES_MAX; id++) {
            struct node *n = &w->nodes[id];
            if (!n->order)
                continue;
            if (replica_next_ms(raft(n)) <= node_now(n))
                replica_tick(raft(n));
            store_piece(n);
            replica_settle(raft(n));
        }
        settle(w);
    }
}

/* --- what is seen --- */

/* "1 2 3 4l": the members of a group, as node `id` knows them. */
static inline const char *members(struct world *w, uint64_t id, size_t group)
{
    static char text[64];
    struct group_conf conf;
    group_conf(replica_group(raft(&w->nodes[id]), group), &conf);
    text[0] = '\0';
    for (uint64_t i = 1; i <= NODES_MAX; i++) {
        const struct group_server *s = group_conf_find(&conf, i);
        if (s)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d%s",
                     *text ? " " : "", (int)i, s->voter ? "" : "l");
    }
    return text;
}

/* Why a node cannot serve, in one word; NULL: it can. */
static inline const char *not_ready(struct world *w, uint64_t id)
{
    const struct order *o = w->nodes[id].order;
    const char *word;
    return o->ops->not_ready(o, &word) ? word : NULL;
}

struct heard {
    bool answered;
    enum belay_err err;
    uint64_t id;
};

static inline void on_answer(void *ctx, enum belay_err err, uint64_t id)
{
    *(struct heard *)ctx = (struct heard){true, err, id};
}

static inline struct heard ask_request(struct world *w, uint64_t at,
                                       const struct admin_request *want)
{
    struct heard heard = {0};
    assert_non_null(replica_admin_ask(raft(&w->nodes[at]), want, on_answer, &heard));
    for (int ms = 0; !heard.answered && ms < 2 * ORDER_PATIENCE_MS; ms++)
        run(w, 1);
    assert_true(heard.answered);
    return heard;
}

/* At node `at`, of the node "n5". */
static inline struct heard ask_wish(struct world *w, uint64_t at, enum admin_kind kind,
                                    uint64_t of, uint8_t priority)
{
    struct admin_request want = {.kind = kind, .priority = priority};
    snprintf(want.name, sizeof want.name, "n%d", (int)of);
    snprintf(want.peer, sizeof want.peer, "h:%d", (int)of);
    return ask_request(w, at, &want);
}

/* The same, when its number is known. */
static inline enum belay_err wish(struct world *w, uint64_t at, enum admin_kind kind,
                                  uint64_t of, uint8_t priority)
{
    struct heard heard = ask_wish(w, at, kind, of, priority);
    if (heard.err == BELAY_OK)
        assert_int_equal(heard.id, of);
    return heard.err;
}
#endif
