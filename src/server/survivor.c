/* survivor.c - see survivor.h. The host is as small as one can be: no loop, no thread, no other
 * node, and a clock that goes on when it is asked to. */
#include "server/survivor.h"

#include "base/check.h"
#include "engine/engine.h"
#include "engine/order.h"
#include "events/feed.h"
#include "raft/replica.h"

#include <stdlib.h>

enum { STEP_MS = 50, STEPS_MAX = 20000, FEED_EVENTS = 16 };

struct host {
    uint64_t now_ms;
    struct journal_job *job;
    struct snapshot_task *task;
    bool failed;
};

static uint64_t now_ms(void *ctx)
{
    return ((struct host *)ctx)->now_ms;
}

static void take_job(void *ctx, struct journal_job *job)
{
    ((struct host *)ctx)->job = job;
}

static void take_task(void *ctx, struct snapshot_task *task)
{
    ((struct host *)ctx)->task = task;
}

static void send_nobody(void *ctx, uint64_t node, struct slice frame)
{
    (void)ctx, (void)node, (void)frame;
}

static void fetch_nothing(void *ctx, struct fetch *f)
{
    (void)f;
    ((struct host *)ctx)->failed = true; /* nobody has offered anything */
}

static void fail(void *ctx, const char *text)
{
    (void)text;
    ((struct host *)ctx)->failed = true;
}

static const struct replica_env env = {.now_ms = now_ms,
                                       .write = take_job,
                                       .send = send_nobody,
                                       .snapshot = take_task,
                                       .fetch = fetch_nothing,
                                       .fatal = fail};

static void pump(struct host *h, struct replica *o)
{
    replica_settle(o);
    while ((h->job || h->task) && !h->failed) {
        struct journal_job *job = h->job;
        struct snapshot_task *task = h->task;
        h->job = NULL;
        h->task = NULL;
        if (job) {
            journal_job_run(job);
            replica_written(o, job);
        }
        if (task)
            replica_snapshotted(o, task, replica_snapshot_write(task));
        replica_settle(o);
    }
}

static bool is_applied(struct replica *o)
{
    bool all = true;
    for (size_t i = 0; i < replica_groups(o); i++) {
        const struct group *g = replica_group(o, i);
        all = all && group_ready(g) && group_applied(g) == group_last(g);
    }
    return all;
}

enum belay_err survivor_check(struct disk *disk, uint64_t node)
{
    struct host h = {.now_ms = 1000};
    struct order *order;
    struct replica_config config = {.env = &env,
                                    .env_ctx = &h,
                                    .disk = disk,
                                    .node = node,
                                    .groups = 1,
                                    .election_ms = 300,
                                    .heartbeat_ms = 60,
                                    .seed = 1};
    enum belay_err err = replica_open(&config, &order);
    if (err != BELAY_OK)
        return err;
    struct feed *feed = feed_open(FEED_EVENTS);
    struct engine *e = engine_open(&(struct engine_config){
        .order = order, .clock_ms = now_ms, .clock_ctx = &h, .feed = feed});
    struct replica *o = replica_of(order);
    pump(&h, o);
    for (int i = 0; i < STEPS_MAX && !h.failed && !is_applied(o); i++) {
        h.now_ms += STEP_MS;
        replica_tick(o);
        pump(&h, o);
    }
    if (h.failed || !is_applied(o))
        err = BELAY_ERR_CORRUPT;
    else if (!engine_is_cut(e))
        err = BELAY_ERR_GONE;
    engine_close(e);
    feed_close(feed);
    return err;
}
