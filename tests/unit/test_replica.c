/* One durable node on a disk in memory: what a stop, a crash or damage leaves of it. */
#include "raft/replica.h"

#include "../sim/sim_disk.h"
#include "base/log.h"
#include "engine/engine.h"
#include "events/feed.h"
#include "raft/replica_core.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct node {
    struct sim_disk *disk;
    struct order *order;
    struct engine *engine;
    struct feed *feed;
    struct journal_job *job;
    struct snapshot_task *task;
    uint64_t now;
    size_t members;
    bool stored;
};

static uint64_t node_now(void *ctx)
{
    return ((struct node *)ctx)->now;
}

static void node_write(void *ctx, struct journal_job *job)
{
    ((struct node *)ctx)->job = job;
}

static void node_send(void *ctx, uint64_t to, struct slice frame)
{
    (void)to;
    (void)frame;
    assert_true(((struct node *)ctx)->members > 1);
}

static void node_snapshot(void *ctx, struct snapshot_task *task)
{
    struct node *n = ctx;
    n->task = task;
    n->stored = replica_snapshot_write(task);
}

static void node_fatal(void *ctx, const char *text)
{
    (void)ctx;
    fail_msg("%s", text);
}

static const struct replica_env host = {.now_ms = node_now,
                                        .write = node_write,
                                        .send = node_send,
                                        .snapshot = node_snapshot,
                                        .fatal = node_fatal};

static void pump(struct node *n)
{
    struct replica *o = replica_of(n->order);
    replica_settle(o);
    while (n->job || n->task) {
        struct journal_job *job = n->job;
        struct snapshot_task *task = n->task;
        n->job = NULL;
        n->task = NULL;
        if (job) {
            journal_job_run(job);
            replica_written(o, job);
        }
        if (task)
            replica_snapshotted(o, task, n->stored);
        replica_settle(o);
    }
}

static enum belay_err node_open_with(struct node *n, struct sim_disk *disk, size_t groups,
                                     size_t members)
{
    *n = (struct node){.disk = disk, .now = 1000, .members = members};
    struct replica_config config = {.env = &host,
                                    .env_ctx = n,
                                    .disk = &disk->base,
                                    .node = 1,
                                    .groups = groups,
                                    .groups_fixed = true,
                                    .cluster = 9,
                                    .election_ms = 300,
                                    .heartbeat_ms = 60,
                                    .seed = 4711,
                                    .segment_bytes = 16 << 10,
                                    .snapshot_bytes = 1 << 20,
                                    .trailing = 2};
    config.members.n = members;
    for (size_t i = 0; i < members; i++) {
        struct group_server *m = &config.members.servers[i];
        *m = (struct group_server){.id = i + 1, .voter = true};
        snprintf(m->address, sizeof m->address, "n%zu@here:%zu", i + 1, i + 1);
    }
    enum belay_err err = replica_open(&config, &n->order);
    if (err != BELAY_OK)
        return err;
    n->feed = feed_open(16);
    n->engine = engine_open(&(struct engine_config){
        .order = n->order, .clock_ms = node_now, .clock_ctx = n, .feed = n->feed});
    pump(n);
    return BELAY_OK;
}

static enum belay_err node_open(struct node *n, struct sim_disk *disk)
{
    return node_open_with(n, disk, 1, 1);
}

static void node_close(struct node *n)
{
    engine_close(n->engine);
    feed_close(n->feed);
}

struct asked {
    struct ask ask;
    enum event_kind kind;
    uint64_t fence, count;
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

static struct op acquire_op(const char *name, uint64_t wait_ms)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .account = SLICE("default"),
                       .ns = SLICE("default"),
                       .name = slice_str(name),
                       .owner = SLICE("me"),
                       .mode = MODE_EXCLUSIVE,
                       .ttl_ms = 60000,
                       .wait_ms = wait_ms};
}

static struct asked acquire(struct node *n, const char *name, uint64_t wait_ms)
{
    static struct asked slots[64];
    static size_t next;
    struct asked *a = &slots[next++ % 64];
    *a = (struct asked){.ask = {.answer = on_answer}};
    struct op op = acquire_op(name, wait_ms);
    engine_submit(n->engine, &op, &a->ask);
    pump(n);
    return *a;
}

static enum event_kind acquire_with(struct node *n, int no, struct slice body)
{
    struct asked a = {.ask = {.answer = on_answer}};
    char name[32];
    snprintf(name, sizeof name, "lock-%d", no);
    struct op op = acquire_op(name, 0);
    op.body = body;
    op.flags = body.len ? OP_SET_BODY : 0;
    engine_submit(n->engine, &op, &a.ask);
    pump(n);
    return a.kind;
}

static void fill(struct node *n, int from, int to)
{
    for (int i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock-%d", i);
        struct asked a = acquire(n, name, 0);
        assert_true(a.answered);
        assert_int_equal(a.kind, EVENT_GRANTED);
        n->now += 7;
    }
}

static void nothing_is_answered_before_it_is_on_disk(void **state)
{
    (void)state;
    static struct sim_disk d;
    struct node n;
    sim_disk_init(&d, 1);
    assert_int_equal(node_open(&n, &d), BELAY_OK);
    struct asked a = {.ask = {.answer = on_answer}};
    struct op op = acquire_op("x", 0);
    engine_submit(n.engine, &op, &a.ask);
    replica_settle(replica_of(n.order));
    assert_non_null(n.job); /* being written */
    assert_false(a.answered);
    journal_job_run(n.job);
    assert_false(a.answered);
    struct journal_job *job = n.job;
    n.job = NULL;
    replica_written(replica_of(n.order), job);
    assert_true(a.answered);
    pump(&n);
    node_close(&n);
    sim_disk_wipe(&d);
}

static void a_restart_has_the_same_state_and_larger_fences(void **state)
{
    (void)state;
    static struct sim_disk d;
    struct node n;
    sim_disk_init(&d, 1);
    assert_int_equal(node_open(&n, &d), BELAY_OK);
    fill(&n, 0, 30);
    replica_snapshot_now(replica_of(n.order));
    pump(&n);
    fill(&n, 30, 60);
    uint64_t fence = acquire(&n, "lock-3", 0).fence;
    node_close(&n);
    for (int restart = 0; restart < 3; restart++) {
        assert_int_equal(node_open(&n, &d), BELAY_OK);
        uint64_t again = acquire(&n, "lock-3", 0).fence;
        assert_true(again > fence);
        fence = again;
        node_close(&n);
    }
    sim_disk_wipe(&d);
}

static void tick(struct node *n, size_t group)
{
    struct op op = {.kind = OP_TICK};
    n->now += 3;
    n->order->ops->submit(n->order, group, &op);
}

/* One journal, one batch for all of them; what is snapshotted, and where a log ends, is each
 * one's own. */
static void groups_share_a_journal_and_keep_their_own(void **state)
{
    (void)state;
    enum { GROUPS = 5 };
    static struct sim_disk d;
    struct node n;
    uint64_t last[GROUPS];
    sim_disk_init(&d, 1);
    assert_int_equal(node_open_with(&n, &d, GROUPS, 1), BELAY_OK);
    struct replica *o = replica_of(n.order);
    for (int round = 0; round < 40; round++) {
        for (size_t g = 0; g < GROUPS; g++)
            for (size_t k = 0; k <= g; k++)
                tick(&n, g);
        uint64_t durable = journal_durable(replica_journal(o));
        replica_settle(o);
        struct journal_job *job = n.job;
        n.job = NULL;
        journal_job_run(job);
        replica_written(o, job);
        assert_true(journal_durable(replica_journal(o)) > durable);
        assert_null(n.job); /* that was all */
        if (round == 20)
            replica_snapshot_now(o);
        pump(&n);
    }
    for (size_t g = 0; g < GROUPS; g++) {
        last[g] = group_last(replica_group(o, g));
        assert_int_equal(group_applied(replica_group(o, g)), last[g]);
    }
    node_close(&n);
    assert_int_equal(node_open_with(&n, &d, GROUPS + 1, 1), BELAY_ERR_IN_USE);
    assert_non_null(strstr(replica_problem(), "made for 4 shards, not for 5"));
    assert_int_equal(node_open_with(&n, &d, GROUPS, 1), BELAY_OK);
    for (size_t g = 0; g < GROUPS; g++) /* what is new says that it leads */
        assert_int_equal(group_applied(replica_group(replica_of(n.order), g)), last[g] + 1);
    node_close(&n);
    sim_disk_wipe(&d);
}

/* A shard that has said nothing since its snapshot keeps none of the journal that the others
 * fill, also after a restart. */
static void a_quiet_shard_does_not_keep_the_journal(void **state)
{
    (void)state;
    enum { GROUPS = 3, BUSY = 1, QUIET = 2, SEGMENTS = 4 };
    static struct sim_disk d;
    struct node n;
    sim_disk_init(&d, 1);
    assert_int_equal(node_open_with(&n, &d, GROUPS, 1), BELAY_OK);
    for (int life = 0; life < 2; life++) {
        struct replica *o = replica_of(n.order);
        size_t most = 0;
        for (int i = 0; i < 10; i++) {
            tick(&n, QUIET);
            pump(&n);
        }
        for (int i = 0; i < GROUPS; i++) { /* one at a time */
            replica_snapshot_now(o);
            pump(&n);
        }
        uint64_t quiet = group_last(replica_group(o, QUIET));
        for (int i = 0; i < 1000; i++) {
            tick(&n, BUSY);
            pump(&n);
            size_t now = journal_segments(replica_journal(o));
            most = now > most ? now : most;
        }
        assert_true(most > 1 && most <= SEGMENTS);
        assert_int_equal(replica_kept_bytes(o, QUIET), 0);
        assert_true(replica_kept_bytes(o, BUSY) > 0);
        assert_true(replica_kept_bytes(o, BUSY) <= journal_bytes(replica_journal(o)));
        node_close(&n);
        assert_int_equal(node_open_with(&n, &d, GROUPS, 1), BELAY_OK);
        assert_int_equal(group_applied(replica_group(replica_of(n.order), QUIET)), quiet + 1);
    }
    node_close(&n);
    sim_disk_wipe(&d);
}

static uint64_t bytes_put;

static enum belay_err put_and_count(struct disk *disk, const char *name, struct slice data)
{
    bytes_put += data.len;
    return sim_disk_put(disk, name, data);
}

/* A busy shard with a large state beside quiet ones: it is not written again and again to keep the
 * journal short, so snapshots write no more than the journal does. */
static void a_large_shard_among_others_is_not_written_more_often_than_the_journal(void **state)
{
    (void)state;
    enum { GROUPS = 3, LOCKS = 40, BODY_BYTES = 4096 };
    static struct sim_disk d;
    static char body[BODY_BYTES];
    struct node n;
    struct disk_ops counts;
    memset(body, 'x', sizeof body);
    sim_disk_init(&d, 1);
    counts = *d.base.ops;
    counts.put = put_and_count;
    d.base.ops = &counts;
    assert_int_equal(node_open_with(&n, &d, GROUPS, 1), BELAY_OK);
    struct replica *o = replica_of(n.order);
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(acquire_with(&n, i, slice_of(body, sizeof body)), EVENT_GRANTED);
    for (int i = 0; i < GROUPS; i++) {
        replica_snapshot_now(o);
        pump(&n);
    }
    assert_true(bytes_put > LOCKS * BODY_BYTES);
    bytes_put = 0;
    uint64_t before = journal_durable(replica_journal(o));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(acquire_with(&n, i % LOCKS, slice_of(NULL, 0)), EVENT_GRANTED);
    uint64_t written = (journal_durable(replica_journal(o)) - before) * JOURNAL_SECTOR;
    assert_true(bytes_put > LOCKS * BODY_BYTES);
    assert_true(bytes_put <= written);
    node_close(&n);
    sim_disk_wipe(&d);
}

static size_t snapshots_on(const struct sim_disk *d)
{
    size_t n = 0;
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        n += d->files[i].used && strncmp(d->files[i].name, "snapshot-", 9) == 0;
    return n;
}

/* Once a second a snapshot is made to save memory, but not while a node fetches the last one: it
 * would begin again every time. */
static void a_snapshot_that_saves_memory_waits_for_who_fetches_the_last_one(void **state)
{
    (void)state;
    enum { BODY_BYTES = 4096, LOCKS = 10 + ORDER_SAVE_BYTES / BODY_BYTES };
    static struct sim_disk d;
    static char body[BODY_BYTES];
    struct node n;
    sim_disk_init(&d, 1);
    assert_int_equal(node_open(&n, &d), BELAY_OK);
    struct replica *o = replica_of(n.order);
    o->config.snapshot_bytes = UINT64_MAX / 4; /* none is due by itself */
    n.now += ORDER_FETCH_MS;
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(acquire_with(&n, i, slice_of(body, sizeof body)), EVENT_GRANTED);
    o->replicas[0].fetched_ms = n.now;
    replica_save_memory(o);
    pump(&n);
    assert_int_equal(snapshots_on(&d), 0);
    n.now += ORDER_FETCH_MS;
    replica_save_memory(o);
    pump(&n);
    assert_int_equal(snapshots_on(&d), 1);
    node_close(&n);
    sim_disk_wipe(&d);
}

static enum belay_err put_with_a_flipped_bit(struct disk *disk, const char *name,
                                             struct slice data)
{
    struct buf bytes = {0};
    buf_put_slice(&bytes, data);
    bytes.mem[bytes.end - 1] ^= 4;
    enum belay_err err = sim_disk_put(disk, name, buf_slice(&bytes));
    buf_done(&bytes);
    return err;
}

/* A snapshot counts when it has been read back: one that is not what it should be replaces
 * nothing, leaves nothing behind, and is tried again later. */
static void a_snapshot_that_cannot_be_read_back_replaces_nothing(void **state)
{
    (void)state;
    static struct sim_disk d;
    struct node n;
    sim_disk_init(&d, 1);
    assert_int_equal(node_open(&n, &d), BELAY_OK);
    struct replica *o = replica_of(n.order);
    const struct disk_ops *sound = d.base.ops;
    struct disk_ops bad = *sound;
    bad.put = put_with_a_flipped_bit;
    fill(&n, 0, 30);
    replica_snapshot_now(o);
    pump(&n);
    assert_int_equal(snapshots_on(&d), 1);
    fill(&n, 30, 60);
    d.base.ops = &bad;
    replica_snapshot_now(o);
    pump(&n);
    d.base.ops = sound;
    assert_int_equal(replica_snapshots_failed(o), 1);
    assert_int_equal(snapshots_on(&d), 1);
    replica_snapshot_now(o); /* not yet */
    pump(&n);
    assert_int_equal(replica_snapshots_failed(o), 1);
    n.now += ORDER_SNAPSHOT_RETRY_MS;
    uint64_t fence = acquire(&n, "lock-3", 0).fence;
    node_close(&n);
    assert_int_equal(node_open(&n, &d), BELAY_OK);
    assert_true(acquire(&n, "lock-3", 0).fence > fence);
    replica_snapshot_now(replica_of(n.order));
    pump(&n);
    assert_int_equal(snapshots_on(&d), 1);
    node_close(&n);
    assert_int_equal(node_open(&n, &d), BELAY_OK);
    assert_true(acquire(&n, "lock-3", 0).fence > fence + 1);
    node_close(&n);
    sim_disk_wipe(&d);
}

/* Without a leader for longer than a cancel would wait by itself. */
static void what_is_called_off_stays_so_as_long_as_it_may_happen(void **state)
{
    (void)state;
    static struct sim_disk d;
    struct node n;
    sim_disk_init(&d, 1);
    assert_int_equal(node_open_with(&n, &d, 1, 3), BELAY_OK);
    struct replica *o = replica_of(n.order);
    const struct replica_group *r = &o->replicas[0];
    struct asked a = {.ask = {.answer = on_answer}};
    struct op op = acquire_op("x", 60000);
    engine_submit(n.engine, &op, &a.ask);
    engine_cancel(n.engine, &a.ask);
    n.now += ORDER_PATIENCE_MS + 1000;
    replica_tick(o);
    assert_int_equal(r->n_pending, 3); /* who it is, what was asked, that it is called off */
    n.now += 60000;
    replica_tick(o);
    assert_int_equal(r->n_pending, 1);
    pump(&n);
    node_close(&n);
    sim_disk_wipe(&d);
}

/* The number of a run has 14 bits in an asker: after 16,384 starts it begins anew and must not
 * run over into the number of the node. */
static void a_node_that_started_very_often_is_still_the_same_node(void **state)
{
    (void)state;
    assert_int_equal(replica_id_base(3, 1) >> OP_NODE_SHIFT, 3);
    assert_int_equal(replica_id_base(3, 16384) >> OP_NODE_SHIFT, 3);
    assert_int_equal(replica_id_base(3, 16385), replica_id_base(3, 1));
}

/* Every byte of every file of a small directory, flipped in turn, and every file cut and
 * removed: the node refuses to start, or has every lock that was granted. */
static size_t granted_of(struct node *n, int locks)
{
    size_t held = 0;
    for (int i = 0; i < locks; i++) {
        struct asked a = {.ask = {.answer = on_answer}};
        char name[32];
        snprintf(name, sizeof name, "lock-%d", i);
        struct op op = {.kind = OP_CHECK,
                        .account = SLICE("default"),
                        .ns = SLICE("default"),
                        .name = slice_str(name),
                        .fence = (uint64_t)i + 1};
        engine_submit(n->engine, &op, &a.ask);
        pump(n);
        assert_true(a.answered);
        held += a.count;
    }
    return held;
}

struct tally {
    size_t refused, same, wrong;
};

static void judge(struct sim_disk *d, int locks, struct tally *t)
{
    struct node n;
    if (node_open(&n, d) != BELAY_OK) {
        assert_true(strlen(replica_problem()) > 0);
        t->refused++;
        return;
    }
    if (granted_of(&n, locks) == (size_t)locks)
        t->same++;
    else
        t->wrong++;
    node_close(&n);
}

static void damage_is_refused_or_harmless(void **state)
{
    (void)state;
    enum { LOCKS = 24 };
    static struct sim_disk whole, d;
    struct node n;
    struct tally flips = {0};
    struct tally cuts = {0};
    sim_disk_init(&whole, 1);
    sim_disk_init(&d, 2);
    assert_int_equal(node_open(&n, &whole), BELAY_OK);
    fill(&n, 0, LOCKS / 2);
    replica_snapshot_now(replica_of(n.order));
    pump(&n);
    fill(&n, LOCKS / 2, LOCKS);
    replica_seal(replica_of(n.order));
    pump(&n);
    node_close(&n);
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        const struct sim_file *f = &whole.files[i];
        if (!f->used)
            continue;
        for (size_t at = 0; at < buf_len(&f->bytes); at++) {
            sim_disk_copy(&d, &whole);
            struct sim_file *hit = sim_disk_find(&d, f->name, true);
            hit->bytes.mem[hit->bytes.start + at] ^= (char)(1 << at % 8);
            judge(&d, LOCKS, &flips);
        }
        for (size_t len = 0; len < buf_len(&f->bytes); len += 1 + buf_len(&f->bytes) / 200) {
            sim_disk_copy(&d, &whole);
            struct sim_file *hit = sim_disk_find(&d, f->name, true);
            hit->bytes.end = hit->bytes.start + len;
            judge(&d, LOCKS, &cuts);
        }
        sim_disk_copy(&d, &whole);
        assert_int_equal(d.base.ops->remove(&d.base, f->name), BELAY_OK);
        judge(&d, LOCKS, &cuts);
    }
    print_message("# flips: %zu refused, %zu harmless; cuts: %zu refused, %zu harmless\n",
                  flips.refused, flips.same, cuts.refused, cuts.same);
    assert_int_equal(flips.wrong, 0);
    assert_int_equal(cuts.wrong, 0);
    assert_int_equal(cuts.same, 0);
    assert_true(flips.refused > 100);
    sim_disk_wipe(&d);
    sim_disk_wipe(&whole);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_answered_before_it_is_on_disk),
        cmocka_unit_test(a_restart_has_the_same_state_and_larger_fences),
        cmocka_unit_test(groups_share_a_journal_and_keep_their_own),
        cmocka_unit_test(a_quiet_shard_does_not_keep_the_journal),
        cmocka_unit_test(a_large_shard_among_others_is_not_written_more_often_than_the_journal),
        cmocka_unit_test(a_snapshot_that_saves_memory_waits_for_who_fetches_the_last_one),
        cmocka_unit_test(a_snapshot_that_cannot_be_read_back_replaces_nothing),
        cmocka_unit_test(what_is_called_off_stays_so_as_long_as_it_may_happen),
        cmocka_unit_test(a_node_that_started_very_often_is_still_the_same_node),
        cmocka_unit_test(damage_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
