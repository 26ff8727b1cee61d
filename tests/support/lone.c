#include "lone.h"

#include "../sim/sim_disk.h"
#include "base/check.h"
#include "events/feed.h"

static uint64_t now_ms(void *ctx)
{
    return ((struct lone *)ctx)->now_ms;
}

static void take_job(void *ctx, struct journal_job *job)
{
    ((struct lone *)ctx)->job = job;
}

static void drop(void *ctx, uint64_t to, struct slice frame)
{
    (void)ctx, (void)to, (void)frame; /* nobody is there */
}

static void take_task(void *ctx, struct snapshot_task *task)
{
    ((struct lone *)ctx)->task = task;
}

static void take_fetch(void *ctx, struct fetch *f)
{
    ((struct lone *)ctx)->fetch = f;
}

static void fatal(void *ctx, const char *text)
{
    (void)ctx;
    check_failed(__FILE__, __LINE__, text);
}

static const struct raft_host host = {.now_ms = now_ms,
                                      .write = take_job,
                                      .send = drop,
                                      .snapshot = take_task,
                                      .fetch = take_fetch,
                                      .fatal = fatal};

void lone_pump(struct lone *n)
{
    struct order_raft *o = order_raft_of(n->order);
    order_raft_settle(o);
    while (n->job || n->task || n->fetch) {
        struct journal_job *job = n->job;
        struct snapshot_task *task = n->task;
        struct fetch *fetch = n->fetch;
        n->job = NULL;
        n->task = NULL;
        n->fetch = NULL;
        if (job) {
            journal_job_run(job);
            order_raft_written(o, job);
        }
        if (task)
            order_raft_snapshotted(o, task, order_raft_snapshot_write(task));
        if (fetch) {
            order_raft_fetch_run(fetch);
            order_raft_fetched(o);
        }
        order_raft_settle(o);
    }
}

static enum belay_err open_one(struct lone *n, struct sim_disk *disk, size_t groups,
                               size_t members)
{
    *n = (struct lone){.now_ms = 1000};
    struct order_raft_config config = {.host = &host,
                                       .host_ctx = n,
                                       .disk = &disk->base,
                                       .node = 1,
                                       .groups = groups,
                                       .cluster = 9,
                                       .election_ms = 300,
                                       .heartbeat_ms = 60,
                                       .seed = 4711,
                                       .segment_bytes = JOURNAL_SEGMENT_BYTES_MIN,
                                       .snapshot_bytes = 1 << 20,
                                       .trailing = 2};
    config.members.n = members;
    config.members.servers[0] = (struct group_server){.id = 1, .voter = true, .address = "n@h"};
    config.members.servers[1] = (struct group_server){.id = 2, .voter = true, .address = "m@h"};
    enum belay_err err = order_raft_open(&config, &n->order);
    if (err != BELAY_OK)
        return err;
    n->feed = feed_open(16);
    n->engine = engine_open(&(struct engine_config){
        .order = n->order, .clock_ms = now_ms, .clock_ctx = n, .feed = n->feed});
    lone_pump(n);
    return BELAY_OK;
}

enum belay_err lone_open(struct lone *n, struct sim_disk *disk, size_t groups)
{
    return open_one(n, disk, groups, 1);
}

enum belay_err lone_open_second(struct lone *n, struct sim_disk *disk)
{
    return open_one(n, disk, 1, 2);
}

void lone_close(struct lone *n)
{
    engine_close(n->engine);
    feed_close(n->feed);
}

void lone_stop(struct lone *n)
{
    order_raft_seal(order_raft_of(n->order));
    lone_pump(n);
    lone_close(n);
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

static struct asked ask(struct lone *n, struct op op)
{
    struct asked a = {.ask = {.answer = on_answer}};
    op.account = SLICE("default");
    engine_submit(n->engine, &op, &a.ask);
    lone_pump(n);
    BELAY_CHECK(a.answered);
    n->now_ms += 7;
    return a;
}

uint64_t lone_acquire(struct lone *n, const char *ns, const char *name)
{
    struct asked a = ask(n, (struct op){.kind = OP_ACQUIRE,
                                        .ns = slice_str(ns),
                                        .name = slice_str(name),
                                        .owner = SLICE("me"),
                                        .mode = MODE_EXCLUSIVE,
                                        .ttl_ms = 600000});
    return a.kind == EVENT_GRANTED ? a.fence : 0;
}

bool lone_check(struct lone *n, const char *ns, const char *name, uint64_t fence)
{
    return ask(n, (struct op){.kind = OP_CHECK,
                              .ns = slice_str(ns),
                              .name = slice_str(name),
                              .fence = fence})
               .count == 1;
}
