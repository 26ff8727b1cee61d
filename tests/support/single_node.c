/* single_node.c - one durable node on a disk in memory. */
#include "single_node.h"

#include "../sim/sim_disk.h"
#include "base/check.h"
#include "events/feed.h"
#include "raft/replica_core.h"

static uint64_t now_ms(void *ctx)
{
    return ((struct single_node *)ctx)->now_ms;
}

static void take_job(void *ctx, struct journal_job *job)
{
    ((struct single_node *)ctx)->job = job;
}

static void drop(void *ctx, uint64_t to, struct slice frame)
{
    (void)ctx, (void)to, (void)frame; /* nobody is there */
}

static void take_task(void *ctx, struct snapshot_task *task)
{
    ((struct single_node *)ctx)->task = task;
}

static void take_fetch(void *ctx, struct fetch *f)
{
    ((struct single_node *)ctx)->fetch = f;
}

/* A member may say that this node has started elsewhere since: then it must end. Anything else
 * is a defect. */
static void fatal(void *ctx, const char *text)
{
    struct single_node *n = ctx;
    if (strcmp(text, start_over_text) != 0)
        check_failed(__FILE__, __LINE__, text);
    n->ended = true;
}

static const struct replica_env host = {.now_ms = now_ms,
                                        .write = take_job,
                                        .send = drop,
                                        .snapshot = take_task,
                                        .fetch = take_fetch,
                                        .fatal = fatal};

void single_node_pump(struct single_node *n)
{
    struct replica *o = replica_of(n->order);
    replica_settle(o);
    while (n->job || n->task || n->fetch) {
        struct journal_job *job = n->job;
        struct snapshot_task *task = n->task;
        struct fetch *fetch = n->fetch;
        n->job = NULL;
        n->task = NULL;
        n->fetch = NULL;
        if (job) {
            journal_job_run(job);
            replica_written(o, job);
        }
        if (task)
            replica_snapshotted(o, task, replica_snapshot_write(task));
        if (fetch) {
            replica_fetch_run(fetch);
            replica_fetched(o);
        }
        replica_settle(o);
    }
}

static enum belay_err open_one(struct single_node *n, struct sim_disk *disk, size_t groups,
                               size_t members)
{
    *n = (struct single_node){.now_ms = 1000};
    struct replica_config config = {.env = &host,
                                    .env_ctx = n,
                                    .disk = &disk->base,
                                    .node = 1,
                                    .groups = groups,
                                    .cluster = 9,
                                    .election_ms = 300,
                                    .heartbeat_ms = 60,
                                    .seed = 4711,
                                    .segment_bytes = 16 << 10,
                                    .snapshot_bytes = 1 << 20,
                                    .trailing = 2};
    config.members.n = members;
    config.members.servers[0] = (struct group_server){.id = 1, .voter = true, .address = "n@h"};
    config.members.servers[1] = (struct group_server){.id = 2, .voter = true, .address = "m@h"};
    config.members.servers[2] = (struct group_server){.id = 3, .voter = true, .address = "o@h"};
    enum belay_err err = replica_open(&config, &n->order);
    if (err != BELAY_OK)
        return err;
    n->feed = feed_open(16);
    n->engine = engine_open(&(struct engine_config){
        .order = n->order, .clock_ms = now_ms, .clock_ctx = n, .feed = n->feed});
    single_node_pump(n);
    return BELAY_OK;
}

enum belay_err single_node_open(struct single_node *n, struct sim_disk *disk, size_t groups)
{
    return open_one(n, disk, groups, 1);
}

enum belay_err single_node_open_second(struct single_node *n, struct sim_disk *disk)
{
    return open_one(n, disk, 1, 2);
}

enum belay_err single_node_open_of_three(struct single_node *n, struct sim_disk *disk,
                                         size_t groups)
{
    return open_one(n, disk, groups, 3);
}

void single_node_close(struct single_node *n)
{
    engine_close(n->engine);
    feed_close(n->feed);
}

void single_node_stop(struct single_node *n)
{
    replica_seal(replica_of(n->order));
    single_node_pump(n);
    single_node_close(n);
}

struct asked {
    struct ask ask;
    uint64_t fence, count;
    enum event_kind kind;
    bool answered;
};

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct asked *a = (struct asked *)(void *)ask;
    a->answered = true;
    a->kind = ev->kind;
    a->fence = ev->fence;
    a->count = ev->count;
}

static struct asked ask(struct single_node *n, struct op op)
{
    struct asked a = {.ask = {.answer = on_answer}};
    op.account = SLICE("default");
    engine_submit(n->engine, &op, &a.ask);
    single_node_pump(n);
    BELAY_CHECK(a.answered);
    n->now_ms += 7;
    return a;
}

uint64_t single_node_acquire(struct single_node *n, const char *ns, const char *name)
{
    struct asked a = ask(n, (struct op){.kind = OP_ACQUIRE,
                                        .ns = slice_str(ns),
                                        .name = slice_str(name),
                                        .owner = SLICE("me"),
                                        .mode = MODE_EXCLUSIVE,
                                        .ttl_ms = 600000});
    return a.kind == EVENT_GRANTED ? a.fence : 0;
}

bool single_node_check(struct single_node *n, const char *ns, const char *name, uint64_t fence)
{
    return ask(n, (struct op){.kind = OP_CHECK,
                              .ns = slice_str(ns),
                              .name = slice_str(name),
                              .fence = fence})
               .count == 1;
}
