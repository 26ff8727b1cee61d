/* conn.c - one client connection, from accept to close: reading, writing, deadlines.
 *
 *   on_read() --request_feed()--> answers in c->out --conn_flush()--> one write
 *   any state --conn_close()--> closing --on_closed()--> freed
 *
 * All reads share one buffer; only the bytes of an unfinished request are kept. A client that
 * is parked in a line keeps being read, so that its disconnect is seen at once. One that sends
 * more than may be kept for it meanwhile is not read until it may go on. */
#include "base/log.h"
#include "base/mem.h"
#include "server/state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { KEEPALIVE_S = 60 };

static uv_stream_t *stream(struct conn *c)
{
    return (uv_stream_t *)&c->tcp;
}

static uint64_t now_ms(const struct conn *c)
{
    return uv_now(&c->server->loop);
}

/* --- buffers --- */

static void in_put(struct conn *c, struct slice bytes)
{
    buf_put_slice(&c->in, bytes);
    BELAY_CHECK(!c->in.oom);
    c->server->in_bytes += bytes.len;
}

static void in_consume(struct conn *c, size_t n)
{
    buf_consume(&c->in, n);
    c->server->in_bytes -= n;
    buf_shrink(&c->in);
}

void conn_use_out(struct conn *c)
{
    struct server *s = c->server;
    if (!c->out.mem && s->n_spare)
        c->out = s->spare[--s->n_spare];
}

/* All is sent: the memory goes to whoever writes next. */
static void out_recycle(struct conn *c)
{
    struct server *s = c->server;
    if (s->n_spare < SERVER_SPARE_BUFFERS && c->out.cap <= SERVER_SPARE_BYTES_MAX) {
        buf_clear(&c->out);
        s->spare[s->n_spare++] = c->out;
        c->out = (struct buf){0};
    } else {
        buf_done(&c->out);
    }
}

/* --- end --- */

static void on_closed(uv_handle_t *handle) /* the one place that frees a conn */
{
    struct conn *c = handle->data;
    struct server *s = c->server;
    list_remove(&c->all);
    list_remove(&c->dirty);
    list_remove(&c->timed);
    list_remove(&c->silent);
    s->in_bytes -= buf_len(&c->in);
    buf_done(&c->in);
    buf_done(&c->out);
    free(c->ns);
    free(c->name);
    free(c);
    s->n_conns--;
    server_accept_more(s);
}

void conn_close(struct conn *c)
{
    if (c->closed)
        return;
    c->closed = true;
    request_cancel_all(c);
    watch_close(c);
    attach_drop_all(c);
    list_remove(&c->dirty);
    c->fd = -1; /* the number may soon be another's */
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}

void conn_dirty(struct conn *c)
{
    if (list_empty(&c->dirty))
        list_push_back(&c->server->dirty, &c->dirty);
}

void conn_finish(struct conn *c)
{
    c->closing_in = true;
    conn_dirty(c);
}

bool conn_may_take(const struct conn *c)
{
    return !c->closing_in && !c->doomed && !c->closed && c->pending_n < CONN_PIPELINE_MAX &&
           c->held_bytes + buf_len(&c->out) < CONN_OUT_BYTES_MAX &&
           !(c->watch && c->door == DOOR_HTTP);
}

/* --- reading --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    const struct conn *c = handle->data;
    *ret = uv_buf_init(c->server->read_mem, SERVER_READ_BYTES);
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf);

/* Reads on while there is room for what it may bring. */
static void set_reading(struct conn *c, bool on)
{
    if (on == c->reading || c->closed)
        return;
    c->reading = on;
    if (on)
        (void)uv_read_start(stream(c), on_alloc, on_read);
    else
        (void)uv_read_stop(stream(c));
}

/* The client has gone, or will send no more: nobody waits any longer, replies that are made may
 * still be read. */
static void on_eof(struct conn *c, ssize_t why)
{
    request_cancel_all(c);
    if (why != UV_EOF || c->lingering || (c->watch != NULL)) {
        conn_close(c);
        return;
    }
    set_reading(c, false);
    conn_finish(c);
}

static void take(struct conn *c, struct slice bytes)
{
    struct server *s = c->server;
    bool fresh = buf_len(&c->in) == 0;
    if (!fresh)
        in_put(c, bytes);
    size_t used = request_feed(c, fresh ? bytes : buf_slice(&c->in));
    if (fresh && used < bytes.len)
        in_put(c, slice_of(bytes.data + used, bytes.len - used));
    else if (!fresh)
        in_consume(c, used);
    if (fresh || used)
        c->since_ms = now_ms(c);
    if (buf_len(&c->in) == 0)
        return;
    c->paused = !conn_may_take(c);
    if (s->in_bytes > SERVER_IN_TOTAL_BYTES && !c->paused)
        request_fail(c, BELAY_ERR_LIMIT, 503, "too many unfinished requests on this server");
}

/* Has a deadline: an unfinished request, an HTTP idle time, a reader that must go on reading.
 */
static void settle(struct conn *c)
{
    bool timed = buf_len(&c->in) || c->door == DOOR_HTTP || c->writing || c->lingering;
    if (timed && list_empty(&c->timed))
        list_push_back(&c->server->timed, &c->timed);
    else if (!timed)
        list_remove(&c->timed);
    set_reading(c, !(c->paused && buf_len(&c->in) > CONN_IN_PARKED_BYTES_MAX));
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = handle->data;
    struct server *s = c->server;
    if (n == 0 || c->closed)
        return;
    if (s->turn_ns == 0)
        s->turn_ns = uv_hrtime();
    if (n < 0) {
        on_eof(c, n);
        return;
    }
    list_remove(&c->silent);
    s->metrics.bytes_in += (uint64_t)n;
    if (c->closing_in || c->lingering || (c->watch && c->door == DOOR_HTTP))
        return; /* nothing more is taken from it */
    take(c, slice_of(buf->base, (size_t)n));
    settle(c);
}

/* --- writing --- */

struct write {
    uv_write_t req;
    struct conn *conn;
    struct buf bytes;
};

static void on_written(uv_write_t *req, int status)
{
    struct write *w = req->data;
    struct conn *c = w->conn;
    c->writing = false;
    c->write_ms = now_ms(c);
    if (status < 0)
        c->doomed = true;
    buf_done(&w->bytes);
    free(w);
    if (!c->closed)
        conn_dirty(c);
}

/* What the socket did not take at once is handed to libuv. */
static void write_rest(struct conn *c)
{
    struct write *w = mem_zalloc(sizeof *w);
    w->conn = c;
    w->bytes = c->out;
    w->req.data = w;
    c->out = (struct buf){0};
    c->writing = true;
    c->write_ms = now_ms(c);
    uv_buf_t b = uv_buf_init(w->bytes.mem + w->bytes.start, (unsigned)buf_len(&w->bytes));
    if (uv_write(&w->req, stream(c), &b, 1, on_written) != 0) {
        c->writing = false;
        c->doomed = true;
        buf_done(&w->bytes);
        free(w);
    }
}

static void write_out(struct conn *c)
{
    BELAY_CHECK(!c->out.oom);
    size_t len = buf_len(&c->out);
    if (c->writing || len == 0)
        return;
    ssize_t n = send(c->fd, buf_data(&c->out), len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        c->doomed = true;
        return;
    }
    c->since_ms = now_ms(c);
    if (c->handover_ns) {
        metrics_handover(&c->server->metrics, uv_hrtime() - c->handover_ns);
        c->handover_ns = 0;
    }
    if (n > 0) {
        buf_consume(&c->out, (size_t)n);
        c->server->metrics.bytes_out += (uint64_t)n;
    }
    if (buf_len(&c->out))
        write_rest(c);
    else
        out_recycle(c);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    struct conn *c = req->data;
    free(req);
    if (status < 0 && !c->closed)
        conn_close(c);
}

/* Closing a socket with unread bytes resets it, and the client would lose our last words: stop
 * sending, and give it a moment to read and to close. */
static void linger(struct conn *c)
{
    uv_shutdown_t *req = mem_zalloc(sizeof *req);
    req->data = c;
    c->lingering = true;
    c->since_ms = now_ms(c);
    in_consume(c, buf_len(&c->in));
    set_reading(c, true);
    if (uv_shutdown(req, stream(c), on_shutdown) != 0) {
        free(req);
        conn_close(c);
    }
}

void conn_flush(struct conn *c)
{
    bool more;
    do {
        more = c->watch && watch_pump(c);
        write_out(c);
    } while (more && !c->writing && !c->doomed);
    if (c->paused && conn_may_take(c)) {
        c->paused = false;
        take(c, SLICE(""));
        if (buf_len(&c->out))
            conn_dirty(c);
    }
    if (c->doomed) {
        conn_close(c);
        return;
    }
    bool done = c->closing_in && !c->head && !c->writing && buf_len(&c->out) == 0;
    if (done && !c->lingering) {
        if (c->unheard && c->reading)
            linger(c);
        else
            conn_close(c);
    }
    if (!c->closed)
        settle(c);
}

/* --- deadlines --- */

static bool head_is_whole(const struct conn *c)
{
    return c->door == DOOR_RESP ||
           memmem(buf_data(&c->in), buf_len(&c->in), "\r\n\r\n", 4) != NULL;
}

static bool reader_stalls(struct conn *c, uint64_t now)
{
    size_t left = uv_stream_get_write_queue_size(stream(c));
    if (left != c->write_left) {
        c->write_left = left;
        c->write_ms = now;
    }
    return c->writing && now - c->write_ms >= c->server->limits.write_ms;
}

static void sweep_one(struct conn *c, uint64_t now)
{
    const struct server_limits *limits = &c->server->limits;
    uint64_t age = now - c->since_ms;
    bool late = false;
    if (c->lingering)
        late = age >= CONN_LINGER_MS;
    else if (reader_stalls(c, now))
        late = true;
    else if (c->head || c->watch || c->closing_in)
        late = false; /* waits for us, not we for it */
    else if (buf_len(&c->in)) {
        if (age >= (head_is_whole(c) ? limits->body_ms : limits->head_ms)) {
            c->server->metrics.closed_timeout++;
            request_fail(c, BELAY_ERR_TIMEOUT, 408, "the request took too long to arrive");
        }
    } else
        late = c->door == DOOR_HTTP && age >= limits->idle_ms;
    if (!late)
        return;
    if (!c->lingering)
        c->server->metrics.closed_timeout++;
    conn_close(c);
}

void conn_sweep(struct server *s)
{
    uint64_t now = uv_now(&s->loop);
    list_each_safe(it, &s->timed)
    {
        struct conn *c = list_item(it, struct conn, timed);
        if (!c->closed)
            sweep_one(c, now);
        if (!c->closed && c->watch)
            watch_heartbeat(c, now);
    }
}

/* --- begin --- */

void conn_open(struct server *s)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->server = s;
    c->tcp.data = c;
    c->id = ++s->next_conn;
    c->target = engine_new_target(s->engine);
    c->resp = 2;
    list_init(&c->all);
    list_init(&c->dirty);
    list_init(&c->timed);
    list_init(&c->silent);
    list_init(&c->keeper);
    BELAY_CHECK(uv_tcp_init(&s->loop, &c->tcp) == 0);
    s->n_conns++;
    list_push_back(&s->conns, &c->all);
    int err = uv_accept((uv_stream_t *)&s->listener, stream(c));
    if (err != 0) {
        log_debug("server.accept", "error=%s", uv_strerror(err));
        conn_close(c);
        return;
    }
    (void)uv_fileno((uv_handle_t *)&c->tcp, &c->fd);
    (void)uv_tcp_nodelay(&c->tcp, 1);
    (void)uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    c->since_ms = now_ms(c);
    s->metrics.accepted++;
    list_push_back(&s->silent, &c->silent);
    set_reading(c, true);
}
