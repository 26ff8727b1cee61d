/* runtime.c - the durable engine on the loop: writes, snapshots, peers, the timer, the stop.
 * How it begins is in runtime_open.c. */
#include "net/runtime_core.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,
    STOP_POLL_MS = 10,
    BATCH_BYTES = 16 << 10, /* enough for a write */
    KEPT_NS = 500000, /* a program that had the processor so long is no client about to ask */
    NO_YIELD_MS = 1000,
    JOIN_EVERY_MS = 5,
    JOIN_NS = 500000, /* at a time */
};

static_assert(PEER_FRAME_MAX >
                  ORDER_FRAME_BYTES + GROUP_APPEND_BYTES + GROUP_ENTRY_BYTES_MAX + (64 << 10),
              "what is not quite a frame yet, and the largest message");

struct replica *runtime_replica(struct runtime *h)
{
    return h->order;
}

bool runtime_self(const struct runtime *h, struct member *ret)
{
    return replica_find_member(h->order, h->id, ret);
}

const struct histogram *runtime_writes(const struct runtime *h)
{
    return &h->writes;
}

const struct histogram *runtime_commits(const struct runtime *h)
{
    return &h->commits;
}

/* --- what the order asks for --- */

static uint64_t now_ms(void *ctx)
{
    struct runtime *h = ctx;
    return uv_now(h->loop);
}

static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return uv_hrtime();
}

static void committed(void *ctx, uint64_t ns)
{
    struct runtime *h = ctx;
    histogram_add(&h->commits, 1, ns);
}

static void fatal(void *ctx, const char *text)
{
    (void)ctx;
    log_error("engine.fatal", "%s", text);
    _exit(1); /* nothing that waits may be answered, nothing more may be written */
}

static void written(void *ctx, struct journal_job *job)
{
    struct runtime *h = ctx;
    h->busy_ms = uv_now(h->loop);
    h->took_ns = uv_hrtime() - h->began_ns;
    histogram_add(&h->writes, 1, h->writer.took_ns);
    h->took_us[h->n_writes++ % RUNTIME_WRITES] = h->writer.took_ns / 1000;
    replica_written(h->order, job);
    replica_settle(h->order);
}

static void start_write(void *ctx, struct journal_job *job)
{
    struct runtime *h = ctx;
    h->began_ns = uv_hrtime();
    writer_run(&h->writer, job);
}

/* The child is over, but its number stays its own until after_wait(): see give_up_snapshot(). */
static void run_wait(uv_work_t *w)
{
    struct runtime *h = w->data;
    siginfo_t end = {0};
    while (h->child > 0 && waitid(P_PID, (id_t)h->child, &end, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR)
        continue;
    h->stored = end.si_code == CLD_EXITED && end.si_status == 0;
    if (!h->stored) /* it may have been killed */
        replica_snapshot_discard(h->task);
}

/* So that the next fork has as little to copy as this one: see base/pages.h. */
static void on_join(uv_timer_t *t)
{
    struct runtime *h = t->data;
    uint64_t until = uv_hrtime() + JOIN_NS;
    bool more = true;
    while (more && uv_hrtime() < until)
        more = pages_join(&h->pages);
    if (!more)
        (void)uv_timer_stop(t);
}

static void after_wait(uv_work_t *w, int status)
{
    struct runtime *h = w->data;
    struct snapshot_task *task = h->task;
    BELAY_CHECK(status == 0);
    if (h->child > 0)
        (void)waitpid(h->child, NULL, 0);
    h->task = NULL;
    pages_begin(&h->pages);
    (void)uv_timer_start(&h->join_timer, on_join, JOIN_EVERY_MS, JOIN_EVERY_MS);
    replica_snapshotted(h->order, task, h->stored);
    replica_settle(h->order);
}

/* When memory runs out it is the child that goes, not the server. */
static void go_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? write(fd, "1000", 4) : 0;
    (void)n; /* then as the kernel likes */
    if (fd >= 0)
        close(fd);
}

/* The child has a copy of everything as it is now, and writes it while the parent goes on. */
static void start_snapshot(void *ctx, struct snapshot_task *task)
{
    struct runtime *h = ctx;
    uint64_t before = uv_hrtime();
    BELAY_CHECK(!h->task);
    h->task = task;
    (void)uv_timer_stop(&h->join_timer);
    h->child = fork();
    if (h->child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        disk_file_forget_lock(h->disk);
        go_first();
        _exit(replica_snapshot_write(task) ? 0 : 1);
    }
    if (h->child > 0)
        log_info("engine.fork", "us=%" PRIu64, (uv_hrtime() - before) / 1000);
    else
        log_error("engine.fork", "error=\"%s\"", strerror(errno));
    h->snapshot_work.data = h;
    BELAY_CHECK(uv_queue_work(h->loop, &h->snapshot_work, run_wait, after_wait) == 0);
}

static void run_fetch(uv_work_t *w)
{
    struct runtime *h = w->data;
    replica_fetch_run(h->fetch);
}

static void after_fetch(uv_work_t *w, int status)
{
    struct runtime *h = w->data;
    BELAY_CHECK(status == 0);
    h->fetch = NULL;
    replica_fetched(h->order);
    replica_settle(h->order);
}

static void start_fetch(void *ctx, struct fetch *f)
{
    struct runtime *h = ctx;
    BELAY_CHECK(!h->fetch);
    h->fetch = f;
    h->fetch_work.data = h;
    BELAY_CHECK(uv_queue_work(h->loop, &h->fetch_work, run_fetch, after_fetch) == 0);
}

static void send_frame(void *ctx, uint64_t node, struct slice frame)
{
    struct runtime *h = ctx;
    peers_send(h->peers, node, frame);
}

static const struct replica_env runtime_env = {.now_ms = now_ms,
                                               .write = start_write,
                                               .send = send_frame,
                                               .snapshot = start_snapshot,
                                               .fetch = start_fetch,
                                               .fatal = fatal,
                                               .now_ns = now_ns,
                                               .committed = committed};

/* --- peers --- */

static bool on_frame(void *ctx, uint64_t node, struct slice frame)
{
    struct runtime *h = ctx;
    return !h->started || h->stopped || replica_receive(h->order, node, frame);
}

static void on_lost(void *ctx, uint64_t node)
{
    struct runtime *h = ctx;
    if (h->started && !h->stopped)
        replica_peer_lost(h->order, node);
}

static void on_up(void *ctx, uint64_t node)
{
    struct runtime *h = ctx;
    if (h->started)
        replica_peer_up(h->order, node);
}

static bool refuse(struct runtime *h, const struct peer_hello *hello, const char *event,
                   const struct peer_refusal *no)
{
    refusal_by_us(&h->refusals, hello, event, no, uv_now(h->loop));
    return false;
}

static bool may_speak(void *ctx, const struct peer_hello *hello, struct peer_refusal *ret_no)
{
    struct runtime *h = ctx;
    struct group_conf conf;
    if (!h->started || h->stopped)
        return false;
    if (hello->cluster != h->cluster) {
        snprintf(ret_no->why, sizeof ret_no->why,
                 "it belongs to another cluster: look at its --peers and --data");
        return refuse(h, hello, "peer.cluster", ret_no);
    }
    if (admission_is_stranger(h->order, hello)) { /* it is not told why, and comes again */
        runtime_say_stranger(h, hello, "peer.unknown", "no member knows it");
        return false;
    }
    if (admission_is_impostor(h->order, hello, ret_no))
        return refuse(h, hello, "peer.name", ret_no);
    if (replica_was_removed(h->order, hello->node)) {
        ret_no->removed = true;
        snprintf(ret_no->why, sizeof ret_no->why,
                 "it is no longer a member: empty its directory and add it as a new member");
        return refuse(h, hello, "peer.removed", ret_no);
    }
    if (!replica_has_room(h->order, hello->node))
        return false; /* as far as this node knows, another node still has the place */
    if (hello->groups != h->groups) {
        snprintf(ret_no->why, sizeof ret_no->why,
                 "it has %zu shards, this node %zu: the same --shards is needed on all nodes, "
                 "from an empty data directory on",
                 order_shards((size_t)hello->groups), order_shards(h->groups));
        return refuse(h, hello, "peer.shards", ret_no);
    }
    if (!replica_is_same(h->order, hello->node, hello->incarnation)) {
        snprintf(ret_no->why, sizeof ret_no->why,
                 "it came back with another data directory and may have forgotten votes and "
                 "entries: remove it from the cluster and add it as a new member");
        return refuse(h, hello, "peer.forgot", ret_no);
    }
    if (replica_is_over(h->order, hello->node, hello->start)) {
        ret_no->over = true;
        snprintf(ret_no->why, sizeof ret_no->why,
                 "another process has started as this node, from this directory or from a "
                 "later copy of it");
        return refuse(h, hello, "peer.over", ret_no);
    }
    refusal_clear(h->refusals.by_us, hello->node);
    group_conf(replica_group(h->order, 0), &conf);
    /* Added while this node was away, it may lead by now: it must be answered. */
    if (!group_conf_find(&conf, hello->node))
        peers_want(h->peers, hello->node, hello->name, hello->peer);
    return true;
}

static void go(struct runtime *h)
{
    if (!h->told_to_go && h->config.removed)
        h->config.removed(h->config.ctx);
    h->told_to_go = true;
}

static void on_refused(void *ctx, uint64_t node, const struct peer_refusal *refusal)
{
    struct runtime *h = ctx;
    refusal_of_us(&h->refusals, node, refusal, uv_now(h->loop));
    if (h->started && refusal_proves_over(&h->refusals, h->order, h->id))
        replica_end(h->order);
    if (h->started && refusal_proves_removed(&h->refusals, h->order, h->id)) {
        h->removed = true;
        go(h);
    }
}

static bool is_gone(void *ctx, uint64_t node)
{
    struct runtime *h = ctx;
    return replica_was_removed(h->order, node);
}

static bool is_member(void *ctx, uint64_t node)
{
    struct runtime *h = ctx;
    struct group_conf conf;
    group_conf(replica_group(h->order, 0), &conf);
    return group_conf_find(&conf, node);
}

/* Connections follow the members. A former member is no longer heard or spoken to; a future one
 * is answered as long as it calls. */
static void follow_members(struct runtime *h)
{
    struct group_conf conf;
    group_conf(replica_group(h->order, 0), &conf);
    peers_forget(h->peers, is_gone, is_member);
    for (size_t i = 0; i < conf.n; i++) {
        const struct group_server *s = &conf.servers[i];
        struct member m;
        if (peers_is_steady(h->peers, s->id))
            refusal_clear(h->refusals.of_us, s->id);
        if (s->id == h->id)
            continue;
        member_parse(s->address, &m);
        peers_want(h->peers, s->id, m.name, m.peer);
    }
}

size_t runtime_members(struct runtime *h, struct runtime_member *ret, size_t max)
{
    struct group *g = replica_group(h->order, 0);
    struct group_conf conf;
    size_t n = 0;
    group_conf(g, &conf);
    for (; n < conf.n && n < max; n++) {
        const struct group_server *s = &conf.servers[n];
        struct runtime_member *m = &ret[n];
        *m = (struct runtime_member){.id = s->id, .voter = s->voter, .self = s->id == h->id};
        member_parse(s->address, &m->member);
        m->member.priority = replica_priority(h->order, s->id);
        m->leader = group_leader(g) == s->id;
        const struct peer_hello *hello = peers_hello(h->peers, s->id);
        m->up = m->self || peers_is_up(h->peers, s->id);
        m->ready = m->up && replica_is_settled(h->order, s->id) && !m->member.leaving;
        refusal_problem(&h->refusals, s->id, uv_now(h->loop), m->problem);
        m->refused = m->problem[0] != '\0';
        if (!m->up && m->problem[0] == '\0')
            snprintf(m->problem, sizeof m->problem, "not connected");
        snprintf(m->listen, sizeof m->listen, "%s",
                 m->self ? (h->config.listen ? h->config.listen : "")
                         : (hello ? hello->listen : ""));
        m->applied = replica_applied(h->order, s->id);
        for (size_t i = 0; i < h->groups; i++)
            m->leads += group_leader(replica_group(h->order, i)) == s->id;
    }
    return n;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

bool runtime_last_writes(const struct runtime *h, struct write_times *ret)
{
    uint64_t sorted[RUNTIME_WRITES];
    size_t n = h->n_writes < RUNTIME_WRITES ? (size_t)h->n_writes : RUNTIME_WRITES;
    if (n == 0)
        return false;
    memcpy(sorted, h->took_us, sizeof sorted);
    qsort(sorted, n, sizeof sorted[0], by_size);
    *ret = (struct write_times){.median_us = sorted[n / 2], .slowest_us = sorted[n - 1]};
    BELAY_CHECK(ret->median_us <= ret->slowest_us);
    return true;
}

size_t runtime_peer_bytes(const struct runtime *h)
{
    return peers_bytes(h->peers);
}

const char *runtime_not_ready(struct runtime *h)
{
    return refusal_not_ready(&h->refusals, h->order, h->id);
}

/* --- certificates --- */

bool runtime_certificate_expires_s(const struct runtime *h, int64_t *ret_s)
{
    if (h->tls.context)
        *ret_s = tls_context_expires_s(h->tls.context);
    return h->tls.context;
}

void runtime_reload(struct runtime *h)
{
    tls_own_reload(&h->tls, uv_now(h->loop));
    if (h->tls.context)
        peers_prove(h->peers);
}

/* --- the loop --- */

static void on_timer(uv_timer_t *t)
{
    struct runtime *h = t->data;
    uint64_t now = uv_now(h->loop);
    h->armed_ms = UINT64_MAX;
    replica_tick(h->order);
    if (now >= h->look_ms) {
        h->look_ms = now + LOOK_MS;
        follow_members(h);
    }
    tls_own_look(&h->tls, now);
    if (h->busy_ms && now >= h->busy_ms + RUNTIME_SEAL_MS && replica_idle(h->order)) {
        replica_seal(h->order);
        h->busy_ms = 0;
    }
    replica_settle(h->order);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void on_idle(uv_idle_t *i)
{
    (void)i;
}

/* Other programs get the processor first: one of them may be a client about to ask. It may also
 * be a program that only computes, and keeps the processor for milliseconds: then this node does
 * not yield again for a while. */
static void let_others_go(struct runtime *h)
{
    uint64_t now = uv_now(h->loop);
    uint64_t before = uv_hrtime();
    if (now < h->yield_ms)
        return;
    (void)sched_yield();
    if (uv_hrtime() - before >= KEPT_NS)
        h->yield_ms = now + NO_YIELD_MS;
}

/* A write costs the processor as much as twenty requests, whatever is in it. So as long as a
 * look at the sockets brings more for it, another look comes first: clients that were answered
 * after the last write ask again about now. But no longer than the last write took. True: it is
 * time to write and to send. */
static bool write_when_quiet(struct runtime *h)
{
    size_t due = replica_due(h->order);
    if (due && !h->due)
        h->due_ns = uv_hrtime();
    if (due > h->due && due < BATCH_BYTES && uv_hrtime() - h->due_ns < h->took_ns) {
        h->due = due;
        let_others_go(h);
        (void)uv_idle_start(&h->idle, on_idle);
        return false;
    }
    h->due = 0;
    (void)uv_idle_stop(&h->idle);
    replica_write(h->order);
    return true;
}

/* Before the loop sleeps: what was said is written and sent, and the timer knows when to wake
 * it. */
static void on_prepare(uv_prepare_t *p)
{
    struct runtime *h = p->data;
    uint64_t now = uv_now(h->loop);
    h->removed |= replica_is_removed(h->order);
    if (h->removed || replica_is_leaving(h->order))
        go(h);
    if (write_when_quiet(h))
        peers_flush(h->peers);
    uint64_t next = earlier(replica_next_ms(h->order), h->look_ms);
    if (h->busy_ms && h->busy_ms + RUNTIME_SEAL_MS < next && replica_idle(h->order))
        next = h->busy_ms + RUNTIME_SEAL_MS;
    if (h->stopping)
        next = earlier(next, now + STOP_POLL_MS);
    if (next >= h->armed_ms && h->armed_ms > now)
        return;
    h->armed_ms = next;
    (void)uv_timer_start(&h->timer, on_timer, next > now ? next - now : 0, 0);
}

/* --- start --- */

enum belay_err runtime_open(const struct runtime_config *config, struct runtime **ret,
                            struct order **ret_order)
{
    struct runtime *h = mem_zalloc(sizeof *h);
    struct order *order = NULL;
    h->config = *config;
    h->loop = config->loop;
    h->armed_ms = UINT64_MAX;
    bool proves = tls_own_open(&h->tls, &config->node.tls, TLS_NODES, uv_now(h->loop));
    enum belay_err err =
        proves ? runtime_open_order(h, &runtime_env, &order) : BELAY_ERR_SYNTAX;
    if (err != BELAY_OK) {
        tls_own_close(&h->tls);
        free(h);
        return err;
    }
    h->order = replica_of(order);
    h->is_foreign = h->has_peers && h->cluster != replica_cluster(h->order);
    h->cluster = replica_cluster(h->order);
    h->groups = replica_groups(h->order);
    (void)uv_timer_init(h->loop, &h->timer);
    (void)uv_timer_init(h->loop, &h->join_timer);
    (void)uv_prepare_init(h->loop, &h->prepare);
    (void)uv_idle_init(h->loop, &h->idle);
    writer_open(&h->writer, h->loop, written, h);
    h->timer.data = h->join_timer.data = h->prepare.data = h;
    struct peers_config pc = {.loop = h->loop,
                              .listen = config->node.peer_listen,
                              .insecure = config->insecure,
                              .tls = h->tls.context,
                              .queue_bytes = config->peer_bytes,
                              .ctx = h,
                              .frame = on_frame,
                              .up = on_up,
                              .lost = on_lost,
                              .accept = may_speak,
                              .refused = on_refused};
    pc.self = (struct peer_hello){.cluster = h->cluster,
                                  .node = h->id,
                                  .start = replica_start(h->order),
                                  .incarnation = replica_incarnation(h->order),
                                  .groups = h->groups};
    memcpy(pc.self.secret, h->admission.secret, sizeof pc.self.secret);
    snprintf(pc.self.name, sizeof pc.self.name, "%s",
             config->node.name ? config->node.name : "n1");
    snprintf(pc.self.peer, sizeof pc.self.peer, "%s",
             config->node.peer_listen ? config->node.peer_listen : "");
    snprintf(pc.self.listen, sizeof pc.self.listen, "%s", config->listen ? config->listen : "");
    err = peers_open(&pc, &h->peers);
    *ret = h;
    *ret_order = order;
    return err;
}

/* The first members of a cluster may all have been replaced since, and --peers with them. But a
 * server that is alone would go on alone, beside those that it is told to be one of. */
static bool is_alone_by_mistake(const struct runtime *h)
{
    struct group_conf conf;
    group_conf(replica_group(h->order, 0), &conf);
    if (!h->is_foreign || conf.n > 1)
        return false;
    log_error(
        "engine.data",
        "path=%s error=\"it belongs to a server that runs alone, not to the cluster of --peers; "
        "start it without --peers and bring the others in with CLUSTER ADD, or begin with "
        "an empty directory\"",
        h->config.node.data);
    return true;
}

/* A member without an address or a name would wait for the others for ever: they cannot call it,
 * or not believe it. */
static bool lacks_place(const struct runtime *h)
{
    const struct node_options *c = &h->config.node;
    struct group_conf conf;
    struct member self;
    group_conf(replica_group(h->order, 0), &conf);
    bool is_alone = conf.n == 1 && group_conf_find(&conf, h->id);
    if (is_alone || (c->name && c->peer_listen))
        return false;
    if (!replica_find_member(h->order, h->id, &self))
        self = (struct member){0}; /* it joined, and was stopped before it was told anything */
    log_error(
        "engine.data",
        "path=%s node=%s peer=%s error=\"it belongs to this member of a cluster, which needs "
        "--node and --peer-listen at every start\"",
        c->data, log_bytes(slice_str(self.name)), log_bytes(slice_str(self.peer)));
    return true;
}

bool runtime_start(struct runtime *h)
{
    h->started = true;
    if (is_alone_by_mistake(h) || lacks_place(h))
        return false;
    (void)uv_prepare_start(&h->prepare, on_prepare);
    follow_members(h);
    h->look_ms = uv_now(h->loop) + LOOK_MS;
    h->busy_ms = uv_now(h->loop);
    return true;
}

/* --- stop --- */

/* A leaving node hands over by itself, but may have to lead or vote once more. */
static bool is_needed(const struct runtime *h)
{
    return replica_is_leaving(h->order) && !h->removed && !h->hurry;
}

void runtime_retire(struct runtime *h)
{
    if (is_needed(h))
        return;
    if (!h->stopping) {
        h->stopping = true;
        h->stop_ms = uv_now(h->loop) + RUNTIME_STOP_MS;
    }
    h->retired = replica_retire(h->order);
    replica_settle(h->order);
}

bool runtime_is_removed(const struct runtime *h)
{
    return h->removed;
}

void runtime_hurry(struct runtime *h)
{
    h->hurry = true;
}

/* Nobody waits for it: the journal has what it would say. */
static void give_up_snapshot(const struct runtime *h)
{
    if (h->task && h->child > 0)
        (void)kill(h->child, SIGKILL);
}

/* What has been said is said to the end, and everything is on disk. */
static bool is_quiet(struct runtime *h)
{
    if (is_needed(h)) {
        replica_drained(h->order);
        return false;
    }
    runtime_retire(h);
    bool done = h->hurry || (h->retired && replica_idle(h->order));
    if (!done && uv_now(h->loop) < h->stop_ms)
        return false;
    give_up_snapshot(h);
    if (!h->sealed && !h->writer.job) {
        replica_seal(h->order);
        h->sealed = true;
    }
    replica_settle(h->order);
    replica_write(h->order);
    return !h->writer.job && !h->task && !h->fetch;
}

bool runtime_stop(struct runtime *h)
{
    if (h->stopped)
        return true;
    if (h->started && !is_quiet(h))
        return false;
    h->stopped = true;
    writer_close(&h->writer);
    uv_close((uv_handle_t *)&h->timer, NULL);
    uv_close((uv_handle_t *)&h->join_timer, NULL);
    uv_close((uv_handle_t *)&h->prepare, NULL);
    uv_close((uv_handle_t *)&h->idle, NULL);
    peers_stop(h->peers);
    return true;
}

void runtime_close(struct runtime *h)
{
    if (!h)
        return;
    if (!h->stopped)
        writer_close(&h->writer);
    peers_close(h->peers);
    tls_own_close(&h->tls);
    free(h);
}
