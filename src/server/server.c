/* server.c - the loop and its wiring.
 *
 *   timers -> [prepare: flush] -> sleep -> reads -> [check: flush] -> closes
 *
 * Reads and timers only fill buffers and mark connections dirty. server_flush() runs twice a
 * turn (before the loop sleeps and after it has read) and is where engine batches end, replies
 * are written, one write a connection, and connections are closed. */
#include "server/server.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/tally.h"
#include "belay_version.h"
#include "command/scripts.h"
#include "engine/order.h"
#include "machine/level.h"
#include "net/runtime.h"
#include "queue/gateway.h"
#include "raft/replica.h"
#include "server/state.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

enum { FD_RESERVE = 64, FD_MIN = 128, SECOND_MS = 1000, READY_SAY_MS = 10000 };

/* Not the loop's time, which is that of the turn's begin: a request that came during the turn
 * would count as older than it is, and its lease would end before its client expects it. */
static uint64_t clock_ms(void *ctx)
{
    (void)ctx;
    return uv_hrtime() / 1000000;
}

/* --- the end of a turn --- */

static void on_engine_timer(uv_timer_t *timer)
{
    struct server *s = timer->data;
    s->armed_at_ms = UINT64_MAX;
    if (s->turn_ns == 0)
        s->turn_ns = uv_hrtime();
    engine_tick(s->engine);
    (void)attach_keep(s, uv_now(&s->loop));
}

/* The timer may fire early, when what it was set for is gone: then it is set anew. So it is
 * only touched when something is due before it. */
void server_arm_timer(struct server *s)
{
    uint64_t now = uv_now(&s->loop);
    uint64_t next = engine_next_ms(s->engine);
    uint64_t keep = s->keep_at_ms > now ? s->keep_at_ms - now : 0;
    if (s->keep_at_ms != UINT64_MAX && keep < next)
        next = keep;
    if (next == UINT64_MAX || now + next >= s->armed_at_ms)
        return;
    s->armed_at_ms = now + next;
    (void)uv_timer_start(&s->engine_timer, on_engine_timer, next, 0);
}

static void close_handle(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void close_all_handles(struct server *s)
{
    close_handle((uv_handle_t *)&s->engine_timer);
    close_handle((uv_handle_t *)&s->second_timer);
    close_handle((uv_handle_t *)&s->idle);
    close_handle((uv_handle_t *)&s->prepare);
    close_handle((uv_handle_t *)&s->check);
    close_handle((uv_handle_t *)&s->sigterm);
    close_handle((uv_handle_t *)&s->sigint);
    close_handle((uv_handle_t *)&s->sighup);
    listen_close(s);
    gateway_close(s->front);
    s->front = NULL;
    trail_close(s);
    notify_close(s);
}

/* Stopping: what is on its way is answered first, by whoever leads now; then those who wait are
 * told to ask another node, and every connection is closed. */
static void dismiss_when_idle(struct server *s)
{
    if (s->runtime)
        runtime_retire(s->runtime);
    if (s->dismissed || (!engine_is_idle(s->engine) && uv_now(&s->loop) < s->dismiss_at_ms))
        return;
    s->dismissed = true;
    list_each_safe(it, &s->conns)
    {
        struct conn *c = list_item(it, struct conn, all);
        pipeline_dismiss_all(c);
        watch_close(c);
        conn_finish(c);
    }
    engine_flush(s->engine);
}

static bool has_dirty(const struct server *s)
{
    return !list_empty(&s->dirty) || !list_empty(&s->left);
}

/* In turns a connection that was left over and one of this turn: a client that is answered alone
 * does not wait for thousands that are answered together. */
static struct conn *next_dirty(struct server *s)
{
    s->left_next = !s->left_next;
    bool from_left = list_empty(&s->dirty) || (s->left_next && !list_empty(&s->left));
    struct list *queue = from_left ? &s->left : &s->dirty;
    return list_item(queue->next, struct conn, dirty);
}

/* A step may answer thousands, and a write is dear: so many as there is time for, then what has
 * come meanwhile is read. */
static void flush_slice(struct server *s)
{
    uint64_t until = uv_hrtime() + FLUSH_SLICE_US * UINT64_C(1000);
    while (has_dirty(s) && uv_hrtime() < until) {
        struct conn *c = next_dirty(s);
        list_remove(&c->dirty);
        conn_flush(c);
    }
    list_append(&s->left, &s->dirty);
    if (!list_empty(&s->left))
        conn_stay_awake(s);
}

void server_flush(struct server *s)
{
    find_go_on(s);
    engine_flush(s->engine);
    if (s->stopping)
        dismiss_when_idle(s);
    if (s->logins_changed)
        login_look(s);
    flush_slice(s);
    conn_tell(s);
    conn_shed(s);
    s->turn_ns = 0;
    if (s->dismissed && s->n_conns == 0 && (!s->runtime || runtime_stop(s->runtime)))
        close_all_handles(s);
    else
        server_arm_timer(s);
}

static void on_prepare(uv_prepare_t *h)
{
    server_flush(h->data);
}

static void on_check(uv_check_t *h)
{
    server_flush(h->data);
}

/* --- news --- */

static void count_news(struct watcher *w, const struct event *ev)
{
    struct server *s = list_item(w, struct server, counter);
    if (!ev)
        return; /* something is missing: nothing to count */
    s->metrics.news[ev->kind]++;
    login_news(s, ev);
    if (ev->session.len)
        attach_news(s, ev);
}

/* --- once a second ---
 *
 * This timer also keeps the engine's time moving in an idle server: a loop that was not heard
 * of for longer than ENGINE_STALL_MAX_MS counts as stopped. */
static_assert((int)SECOND_MS < (int)ENGINE_STALL_MAX_MS, "an idle second is no stall");

const char *server_not_ready(const struct server *s, const char **ret_word)
{
    *ret_word = "stopping";
    if (s->stopping)
        return "the server is stopping";
    *ret_word = "refused";
    const char *why = s->runtime ? runtime_not_ready(s->runtime) : NULL;
    return why ? why : engine_not_ready(s->engine, ret_word);
}

/* A line when it changes; what changes all the time is counted. */
static void say_ready(struct server *s, uint64_t now)
{
    const char *word;
    const char *why = server_not_ready(s, &word);
    const char *now_word = why ? word : "";
    if (!why && !s->notify.ready)
        notify_state(s, NULL);
    if (strcmp(now_word, s->said_word) == 0)
        return;
    s->ready_changes++;
    if (now < s->say_ms)
        return;
    if (why)
        log_warn("server.not_ready", "reason=%s text=%s changes=%" PRIu64, word,
                 log_bytes(slice_str(why)), s->ready_changes);
    else
        log_info("server.ready", "changes=%" PRIu64, s->ready_changes);
    notify_state(s, why);
    s->said_word = now_word;
    s->say_ms = now + READY_SAY_MS;
    s->ready_changes = 0;
}

static void on_second(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now = uv_now(&s->loop);
    uint64_t due = s->second_due_ms;
    s->metrics.lag_ms = now > due ? now - due : 0;
    if (s->metrics.lag_ms > s->metrics.lag_max_ms)
        s->metrics.lag_max_ms = s->metrics.lag_ms;
    s->second_due_ms = now + SECOND_MS;
    say_ready(s, now);
    notify_second(s);
    health_second(s);
    stats_second(s);
    budget_tend();
    if (s->runtime) {
        size_t bytes = runtime_peer_bytes(s->runtime);
        budget_report(&s->budget, BUDGET_PEERS, s->peer_bytes, bytes);
        s->peer_bytes = bytes;
    }
    if (s->runtime && budget_is_nearly_full(&s->budget, BUDGET_STATE))
        replica_save_memory(runtime_replica(s->runtime));
    conn_sweep(s);
    attach_look(s);
    login_look(s);
    login_reset(s);
    tls_own_look(&s->tls, now);
    trail_look(s);
    if (listen_is_waiting(s))
        (void)conn_evict(s);
    if (s->stopping && now >= s->stop_at_ms) {
        list_each_safe(it, &s->conns) conn_close(list_item(it, struct conn, all));
    }
}

/* --- start and stop --- */

static void stop(struct server *s)
{
    notify_stopping(s);
    s->stopping = true;
    s->stop_at_ms = uv_now(&s->loop) + SERVER_STOP_MS;
    s->dismiss_at_ms = uv_now(&s->loop) + SERVER_DRAIN_MS;
    listen_close(s);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct server *s = handle->data;
    log_info("server.stop", "signal=%d connections=%zu", signum, s->n_conns);
    if (!s->stopping) {
        stop(s);
        return;
    }
    s->stop_at_ms = 0; /* asked twice: at once */
    if (s->runtime)
        runtime_hurry(s->runtime);
}

static void on_removed(void *ctx)
{
    struct server *s = ctx;
    if (s->stopping)
        return;
    log_error("server.stop", "error=\"this node is removed from its cluster\"");
    stop(s);
}

static size_t allowed_connections(size_t wanted)
{
    struct rlimit fds;
    if (getrlimit(RLIMIT_NOFILE, &fds) != 0)
        return wanted;
    if (fds.rlim_cur < wanted + FD_RESERVE) {
        fds.rlim_cur = fds.rlim_max < wanted + FD_RESERVE ? fds.rlim_max : wanted + FD_RESERVE;
        (void)setrlimit(RLIMIT_NOFILE, &fds);
        (void)getrlimit(RLIMIT_NOFILE, &fds);
    }
    if (fds.rlim_cur >= wanted + FD_RESERVE)
        return wanted;
    size_t allowed = fds.rlim_cur > FD_MIN ? fds.rlim_cur - FD_RESERVE : FD_RESERVE;
    log_warn("server.fd_limit", "wanted=%zu allowed=%zu", wanted, allowed);
    return allowed;
}

static void open_handles(struct server *s)
{
    (void)uv_replace_allocator(tally_malloc, tally_realloc, tally_calloc, tally_free);
    tls_own_count_memory();
    BELAY_CHECK(uv_loop_init(&s->loop) == 0);
    s->loop.data = s;
    (void)uv_timer_init(&s->loop, &s->engine_timer);
    (void)uv_timer_init(&s->loop, &s->second_timer);
    (void)uv_idle_init(&s->loop, &s->idle);
    (void)uv_prepare_init(&s->loop, &s->prepare);
    (void)uv_check_init(&s->loop, &s->check);
    (void)uv_signal_init(&s->loop, &s->sigterm);
    (void)uv_signal_init(&s->loop, &s->sigint);
    (void)uv_signal_init(&s->loop, &s->sighup);
    s->engine_timer.data = s->second_timer.data = s;
    s->idle.data = s->prepare.data = s->check.data = s->sigterm.data = s->sigint.data =
        s->sighup.data = s;
}

static uint64_t or_default(uint64_t v, uint64_t otherwise)
{
    return v ? v : otherwise;
}

static void set_limits(struct server *s, const struct server_limits *given)
{
    s->limits.head_ms = or_default(given->head_ms, CONN_HEAD_MS);
    s->limits.body_ms = or_default(given->body_ms, CONN_BODY_MS);
    s->limits.idle_ms = or_default(given->idle_ms, CONN_IDLE_MS);
    s->limits.resp_idle_ms = or_default(given->resp_idle_ms, CONN_RESP_IDLE_MS);
    s->limits.write_ms = or_default(given->write_ms, CONN_WRITE_MS);
}

/* What may change while the server runs. */
static void take_over(struct server *s, const struct server_config *now)
{
    set_limits(s, &now->limits);
    s->slow.above_ns = now->slow_ms * 1000000;
    s->wanted_conns = now->max_connections;
    s->max_conns = allowed_connections(s->wanted_conns);
    s->own_config.max_per_address = now->max_per_address;
    s->own_config.max_requests_per_address = now->max_requests_per_address;
    s->own_config.max_requests_per_token = now->max_requests_per_token;
    s->own_config.max_connections_per_token = now->max_connections_per_token;
    s->own_config.hosts = now->hosts;
    s->own_config.origins = now->origins;
    throttle_reload(s);
    listen_accept_more(s);
}

static void on_reload(uv_signal_t *sig, int number)
{
    struct server *s = sig->data;
    (void)number;
    notify_reload(s, false);
    const struct server_config *now = s->config->reload ? s->config->reload() : NULL;
    if (now)
        take_over(s, now);
    tls_own_reload(&s->tls, uv_now(&s->loop));
    secure_doubt(s);
    trail_reopen(s);
    if (s->runtime)
        runtime_reload(s->runtime);
    notify_reload(s, true);
}

static void start_handles(struct server *s)
{
    metrics_init(&s->metrics, uv_now(&s->loop));
    double decay = s->config->trust_decay;
    uint64_t period_ms = s->config->trust_period_ms;
    trust_init(&s->trust, decay > 0 ? decay : TRUST_DECAY_DEFAULT,
               period_ms ? period_ms : TRUST_PERIOD_DEFAULT_MS, uv_now(&s->loop));
    s->second_due_ms = uv_now(&s->loop) + SECOND_MS;
    (void)uv_timer_start(&s->second_timer, on_second, SECOND_MS, SECOND_MS);
    (void)uv_prepare_start(&s->prepare, on_prepare);
    (void)uv_check_start(&s->check, on_check);
    (void)uv_signal_start(&s->sigterm, on_signal, SIGTERM);
    (void)uv_signal_start(&s->sigint, on_signal, SIGINT);
    if (s->config->node.tls.cert || s->tls.context || s->trail.audit || s->config->reload)
        (void)uv_signal_start(&s->sighup, on_reload, SIGHUP);
}

/* The order of the engine: in memory, or durable with its own sockets and threads on the loop.
 */
static bool open_order(struct server *s, struct order **ret)
{
    if (!s->config->node.data) {
        *ret = order_memory_open();
        return true;
    }
    struct sockaddr_storage
        addr; /* "7117" is told with its address: others ask this node there */
    const char *why = NULL;
    if (access_parse_listen(s->config->listen[0], &addr, &why))
        access_format((struct sockaddr *)&addr, s->address, sizeof s->address);
    struct runtime_config config = {.loop = &s->loop,
                                    .node = s->config->node,
                                    .listen = s->address,
                                    .insecure = s->config->insecure,
                                    .peer_bytes = budget_share(&s->budget, BUDGET_PEERS),
                                    .removed = on_removed,
                                    .ctx = s};
    return runtime_open(&config, &s->runtime, ret) == BELAY_OK;
}

/* News have numbers by which a watcher that comes back says how far it got. If it comes to
 * another node, or to this one after a restart, that must be noticed: so every process counts
 * from a random number on, with as many behind it, all exact in JavaScript. */
static uint64_t first_number(void)
{
    uint64_t random;
    BELAY_CHECK(getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random);
    return 1 + (random >> 12);
}

/* Asked with every event: the kernel's last tick will do. */
static uint64_t wall_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool open_engine(struct server *s)
{
    struct engine_config config = {.clock_ms = clock_ms};
    s->feed = feed_open(SERVER_FEED_EVENTS);
    feed_start_at(s->feed, first_number());
    feed_set_clock(s->feed, wall_ms);
    s->scripts = scripts_open();
    config.feed = s->feed;
    if (!open_order(s, &config.order))
        return false;
    s->engine = engine_open(&config);
    s->run_target = engine_new_target(s->engine);
    s->counter.wake = count_news;
    list_init(&s->counter.node);
    feed_watch(s->feed, &s->counter);
    return !s->runtime || runtime_start(s->runtime);
}

static void release(struct server *s)
{
    struct pending_reply *p;
    engine_close(s->engine);
    runtime_close(s->runtime);
    feed_close(s->feed);
    watch_done(s);
    map_done(&s->attached);
    heap_done(&s->keeps);
    map_done(&s->sources);
    throttle_done(s);
    slow_done(s);
    scripts_close(s->scripts);
    arena_done(&s->request_arena);
    arena_done(&s->reply_arena);
    while ((p = s->free_pendings) != NULL) {
        s->free_pendings = p->next;
        free(p);
    }
    while (s->n_spare)
        buf_done(&s->spare[--s->n_spare]);
    buf_done(&s->plain);
    buf_done(&s->wire);
    tls_own_close(&s->tls);
    free(s->read_mem);
    free(s);
}

unsigned server_level(void)
{
    return LEVEL_NEWEST;
}

const char *server_raft_library(void)
{
    return group_library();
}

enum server_end server_run(const struct server_config *config)
{
    struct server *s = mem_zalloc(sizeof *s);
    s->own_config = *config;
    s->config = &s->own_config;
    set_limits(s, &config->limits);
    budget_init(&s->budget, config->max_memory);
    s->read_mem = mem_alloc(SERVER_READ_BYTES);
    s->armed_at_ms = s->keep_at_ms = UINT64_MAX;
    s->said_word = "";
    BELAY_CHECK(getrandom(&s->tag_key, sizeof s->tag_key, 0) == (ssize_t)sizeof s->tag_key);
    list_init(&s->conns);
    list_init(&s->dirty);
    list_init(&s->left);
    list_init(&s->timed);
    list_init(&s->turns);
    list_init(&s->woken);
    list_init(&s->finding);
    list_init(&s->sliced);
    list_init(&s->late);
    list_init(&s->quitting);
    list_init(&s->shaking);
    list_init(&s->in_line);
    list_init(&s->doubted);
    source_init(s);
    throttle_init(s);
    slow_init(s);
    attach_init(s);
    (void)signal(SIGPIPE, SIG_IGN);
    open_handles(s);
    notify_open(s);
    s->wanted_conns = config->max_connections;
    s->max_conns = allowed_connections(s->wanted_conns);
    bool started = trail_open(s) && open_engine(s) &&
                   tls_own_open(&s->tls, &config->tls, TLS_CLIENTS, uv_now(&s->loop)) &&
                   listen_open(s);
    if (started) {
        log_info("server.start", "version=%s address=%s engine=%s connections=%zu memory=%zu",
                 BELAY_VERSION, s->address, s->runtime ? "raft" : "memory", s->max_conns,
                 s->budget.limit);
        start_handles(s);
        login_start(s);
        listen_told(s);
        if (config->postgres)
            s->front = gateway_open(&s->loop, config->postgres, config->schema);
    } else {
        close_all_handles(s);
        if (s->runtime)
            runtime_hurry(s->runtime);
        while (s->runtime && !runtime_stop(s->runtime))
            (void)uv_run(&s->loop, UV_RUN_ONCE);
    }
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s->loop);
    bool removed = s->runtime && runtime_is_removed(s->runtime);
    if (started)
        log_info("server.stopped", "address=%s", s->address);
    if (removed)
        log_error("server.removed",
                  "error=\"this node is no longer a member of its cluster; to bring it back, "
                  "empty its directory and add it as a new member: belay cluster add\"");
    release(s);
    if (!started)
        return SERVER_NOT_STARTED;
    return removed ? SERVER_REMOVED : SERVER_STOPPED;
}
