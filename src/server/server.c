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
#include "base/version.h"
#include "command/scripts.h"
#include "engine/host.h"
#include "engine/order.h"
#include "queue/front.h"
#include "server/state.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>

enum { LISTEN_BACKLOG = 1024, FD_RESERVE = 64, FD_MIN = 128, SECOND_MS = 1000 };

static uint64_t clock_ms(void *ctx)
{
    return uv_now(ctx);
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
    close_handle((uv_handle_t *)&s->prepare);
    close_handle((uv_handle_t *)&s->check);
    close_handle((uv_handle_t *)&s->sigterm);
    close_handle((uv_handle_t *)&s->sigint);
    close_handle((uv_handle_t *)&s->listener);
    front_close(s->front);
    s->front = NULL;
}

/* Stopping: what is on its way is answered first, by whoever leads now; then those who wait are
 * told to ask another node, and every connection is closed. */
static void dismiss_when_idle(struct server *s)
{
    if (s->host)
        host_retire(s->host);
    if (s->dismissed || (!engine_is_idle(s->engine) && uv_now(&s->loop) < s->dismiss_at_ms))
        return;
    s->dismissed = true;
    list_each_safe(it, &s->conns)
    {
        struct conn *c = list_item(it, struct conn, all);
        request_dismiss_all(c);
        watch_close(c);
        conn_finish(c);
    }
    engine_flush(s->engine);
}

void server_flush(struct server *s)
{
    engine_flush(s->engine);
    if (s->stopping)
        dismiss_when_idle(s);
    while (!list_empty(&s->dirty)) {
        struct conn *c = list_item(s->dirty.next, struct conn, dirty);
        list_remove(&c->dirty);
        conn_flush(c);
    }
    s->turn_ns = 0;
    if (s->dismissed && s->n_conns == 0 && (!s->host || host_stop(s->host)))
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

/* --- connections --- */

/* A connection that never said anything gives way to a new one. */
static void evict_silent(struct server *s)
{
    if (list_empty(&s->silent))
        return;
    struct conn *c = list_item(s->silent.next, struct conn, silent);
    if (uv_now(&s->loop) - c->since_ms >= CONN_SILENT_MS)
        conn_close(c); /* its end makes room: on_closed() */
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct server *s = listener->data;
    if (status < 0) {
        log_warn("server.accept", "error=%s", uv_strerror(status));
        return;
    }
    if (s->n_conns < s->max_conns) {
        conn_open(s);
        return;
    }
    s->accept_waiting = true; /* libuv takes no more until this one is accepted */
    s->metrics.paused++;
    evict_silent(s);
}

void server_accept_more(struct server *s)
{
    if (s->accept_waiting && !s->stopping && s->n_conns < s->max_conns) {
        s->accept_waiting = false;
        conn_open(s);
    }
}

static void count_news(struct watcher *w, const struct event *ev)
{
    struct server *s = list_item(w, struct server, counter);
    if (!ev)
        return; /* something is missing: nothing to count */
    s->metrics.news[ev->kind]++;
    if (ev->session.len)
        attach_news(s, ev);
}

/* --- once a second ---
 *
 * This timer also keeps the engine's time moving in an idle server: a loop that was not heard
 * of for longer than ENGINE_STALL_MAX_MS counts as stopped. */
static_assert((int)SECOND_MS < (int)ENGINE_STALL_MAX_MS, "an idle second is no stall");

static void on_second(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now = uv_now(&s->loop);
    uint64_t due = s->second_due_ms;
    s->metrics.lag_ms = now > due ? now - due : 0;
    if (s->metrics.lag_ms > s->metrics.lag_max_ms)
        s->metrics.lag_max_ms = s->metrics.lag_ms;
    s->second_due_ms = now + SECOND_MS;
    conn_sweep(s);
    attach_look(s);
    if (s->accept_waiting)
        evict_silent(s);
    if (s->stopping && now >= s->stop_at_ms) {
        list_each_safe(it, &s->conns) conn_close(list_item(it, struct conn, all));
    }
}

/* --- start and stop --- */

static void stop(struct server *s)
{
    s->stopping = true;
    s->stop_at_ms = uv_now(&s->loop) + SERVER_STOP_MS;
    s->dismiss_at_ms = uv_now(&s->loop) + SERVER_DRAIN_MS;
    close_handle((uv_handle_t *)&s->listener);
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
    if (s->host)
        host_hurry(s->host);
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

static bool listen_on(struct server *s)
{
    struct sockaddr_storage addr;
    const char *why = NULL;
    const char *text = s->config->listen;
    if (!guard_parse_listen(text, &addr, &why)) {
        log_error("server.listen", "address=%s error=\"%s\"", text, why);
        return false;
    }
    if (!guard_is_loopback((struct sockaddr *)&addr) && !s->config->insecure) {
        log_error("server.listen",
                  "address=%s error=\"refusing to listen beyond loopback "
                  "without credentials; --insecure if you must\"",
                  text);
        return false;
    }
    int err = uv_tcp_bind(&s->listener, (struct sockaddr *)&addr, 0);
    if (err == 0)
        err = uv_listen((uv_stream_t *)&s->listener, LISTEN_BACKLOG, on_connection);
    if (err != 0) {
        log_error("server.listen", "address=%s error=\"%s\"", text, uv_strerror(err));
        return false;
    }
    int len = sizeof addr;
    (void)uv_tcp_getsockname(&s->listener, (struct sockaddr *)&addr, &len);
    guard_format((struct sockaddr *)&addr, s->address, sizeof s->address);
    return true;
}

static void open_handles(struct server *s)
{
    BELAY_CHECK(uv_loop_init(&s->loop) == 0);
    (void)uv_tcp_init(&s->loop, &s->listener);
    (void)uv_timer_init(&s->loop, &s->engine_timer);
    (void)uv_timer_init(&s->loop, &s->second_timer);
    (void)uv_prepare_init(&s->loop, &s->prepare);
    (void)uv_check_init(&s->loop, &s->check);
    (void)uv_signal_init(&s->loop, &s->sigterm);
    (void)uv_signal_init(&s->loop, &s->sigint);
    s->listener.data = s->engine_timer.data = s->second_timer.data = s;
    s->prepare.data = s->check.data = s->sigterm.data = s->sigint.data = s;
}

static void start_handles(struct server *s)
{
    s->metrics.started_ms = uv_now(&s->loop);
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
}

/* The order of the engine: in memory, or durable with its own sockets and threads on the loop.
 */
static bool open_order(struct server *s, struct order **ret)
{
    const struct server_cluster *c = &s->config->cluster;
    if (!c->data) {
        *ret = order_memory_open();
        return true;
    }
    struct host_config config = {.loop = &s->loop,
                                 .data = c->data,
                                 .node = c->node,
                                 .peers = c->peers,
                                 .peer_listen = c->peer_listen,
                                 .listen = s->config->listen,
                                 .join_id = c->join_id,
                                 .shards = c->shards,
                                 .priority = c->priority,
                                 .silence_ms = c->silence_ms,
                                 .segment_bytes = c->segment_bytes,
                                 .snapshot_bytes = c->snapshot_bytes,
                                 .fast_failover = c->fast_failover,
                                 .insecure = s->config->insecure,
                                 .removed = on_removed,
                                 .ctx = s};
    return host_open(&config, &s->host, ret) == BELAY_OK;
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

static bool open_engine(struct server *s)
{
    struct engine_config config = {.clock_ms = clock_ms, .clock_ctx = &s->loop};
    s->feed = feed_open(SERVER_FEED_EVENTS);
    feed_start_at(s->feed, first_number());
    s->scripts = scripts_open();
    config.feed = s->feed;
    if (!open_order(s, &config.order))
        return false;
    s->engine = engine_open(&config);
    s->run_target = engine_new_target(s->engine);
    s->counter.wake = count_news;
    list_init(&s->counter.node);
    feed_watch(s->feed, &s->counter);
    return !s->host || host_start(s->host);
}

static void release(struct server *s)
{
    struct pending *p;
    engine_close(s->engine);
    host_close(s->host);
    feed_close(s->feed);
    map_done(&s->attached);
    scripts_close(s->scripts);
    arena_done(&s->request_arena);
    arena_done(&s->reply_arena);
    while ((p = s->free_pendings) != NULL) {
        s->free_pendings = p->next;
        free(p);
    }
    while (s->n_spare)
        buf_done(&s->spare[--s->n_spare]);
    free(s->read_mem);
    free(s);
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
    s->limits.write_ms = or_default(given->write_ms, CONN_WRITE_MS);
}

int server_run(const struct server_config *config)
{
    struct server *s = mem_zalloc(sizeof *s);
    s->config = config;
    set_limits(s, &config->limits);
    s->read_mem = mem_alloc(SERVER_READ_BYTES);
    s->armed_at_ms = s->keep_at_ms = UINT64_MAX;
    list_init(&s->conns);
    list_init(&s->dirty);
    list_init(&s->timed);
    list_init(&s->silent);
    attach_init(s);
    (void)signal(SIGPIPE, SIG_IGN);
    open_handles(s);
    s->max_conns = allowed_connections(config->max_connections);
    bool started = open_engine(s) && listen_on(s);
    if (started) {
        log_info("server.start", "version=%s address=%s engine=%s connections=%zu",
                 BELAY_VERSION, s->address, s->host ? "raft" : "memory", s->max_conns);
        if (config->on_listening)
            config->on_listening(s->address);
        start_handles(s);
        if (config->postgres)
            s->front = front_open(&s->loop, config->postgres, config->schema);
    } else {
        close_all_handles(s);
        if (s->host)
            host_hurry(s->host);
        while (s->host && !host_stop(s->host))
            (void)uv_run(&s->loop, UV_RUN_ONCE);
    }
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s->loop);
    if (started)
        log_info("server.stopped", "address=%s", s->address);
    release(s);
    return started ? 0 : 1;
}
