/* conn.c - one client connection, from accept to close: reading, writing, deadlines.
 *
 *   on_read() --pipeline_feed()--> answers in c->out --conn_flush()--> one write
 *   any state --conn_close()--> closing --on_closed()--> freed, when its waits are called off
 *
 * All reads share one buffer; only the bytes of an unfinished request are kept. A client that
 * is parked in a line keeps being read, so that its disconnect is seen at once. One that sends
 * more than may be kept for it meanwhile is not read until it may go on. */
#include "base/log.h"
#include "base/mem.h"
#include "base/tally.h"
#include "proto/http.h"
#include "server/state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { KEEPALIVE_S = 60 };

static uv_stream_t *stream(struct conn *c)
{
    return &c->io.stream;
}

static uint64_t now_ms(const struct conn *c)
{
    return uv_now(&c->server->loop);
}

/* --- buffers --- */

static void report_in(struct conn *c)
{
    budget_report(&c->server->budget, BUDGET_INPUT, c->in_reported, c->in.cap);
    c->in_reported = c->in.cap;
}

void conn_keep(struct conn *c, struct slice bytes)
{
    buf_put_slice(&c->in, bytes);
    BELAY_CHECK(!c->in.oom);
    report_in(c);
}

static void in_consume(struct conn *c, size_t n)
{
    buf_consume(&c->in, n);
    buf_shrink(&c->in);
    report_in(c);
}

void conn_forget_kept(struct conn *c)
{
    in_consume(c, buf_len(&c->in));
}

void conn_expect(struct conn *c, size_t was, size_t is)
{
    c->expected += is - was;
    c->server->expected += is - was;
}

static void report_out(struct conn *c, enum budget_part part, size_t bytes)
{
    struct budget *b = &c->server->budget;
    budget_report(b, (enum budget_part)c->reported_as, c->reported, 0);
    budget_report(b, part, 0, bytes);
    c->reported_as = (uint8_t)part;
    c->reported = bytes;
}

void conn_report(struct conn *c)
{
    struct budget *b = &c->server->budget;
    if (c->closed)
        return;
    report_out(c, c->watch ? BUDGET_WATCHERS : BUDGET_OUTPUT,
               c->out.cap + c->writing_cap + c->held_bytes);
    bool flood = budget_used(b, BUDGET_OUTPUT) / 2 >= budget_share(b, BUDGET_OUTPUT);
    if (c->reported > CONN_OUT_LOST_BYTES || (flood && c->reported >= CONN_OUT_BYTES_MAX))
        c->doomed = true; /* answers that are on their way would only add to it */
}

void conn_use_out(struct conn *c)
{
    struct server *s = c->server;
    if (!c->out.mem && s->n_spare)
        c->out = s->spare[--s->n_spare];
}

/* All is sent: the memory goes to the next connection that writes. */
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

static void release(struct conn *c) /* the one place that frees a conn */
{
    struct server *s = c->server;
    list_remove(&c->all);
    list_remove(&c->dirty);
    list_remove(&c->timed);
    list_remove(&c->turn);
    list_remove(&c->woken);
    list_remove(&c->sliced);
    buf_done(&c->in);
    report_in(c);
    s->leaving[c->reported_as] -= c->reported;
    report_out(c, (enum budget_part)c->reported_as, 0);
    if (c->source)
        source_give(s, c->source);
    free(c->ns);
    free(c->proven);
    free(c->name);
    free(c);
    s->n_conns--;
    listen_accept_more(s);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    c->gone = true;
    if (list_empty(&c->quitting))
        release(c);
}

void conn_quit(struct conn *c)
{
    list_remove(&c->quitting);
    if (c->gone)
        release(c);
}

bool conn_may_return(const struct conn *c)
{
    return c->server->stopping || c->sent_away || c->end == END_VANISHED;
}

/* What the socket says at its end. EPIPE: its FIN had come before the reset. A reset alone may
 * be a killed client, or something between us: the client may live. */
static void note_end(struct conn *c, int err)
{
    bool closed = err == UV_EOF || err == UV_EPIPE ||
                  (err == UV_ECONNRESET && c->server->config->reset_frees);
    if (c->end == END_NOT)
        c->end = closed ? END_CLOSED : END_VANISHED;
}

void conn_close(struct conn *c)
{
    if (c->closed)
        return;
    c->closed = true;
    if (c->writing) /* what the reader has taken of it */
        c->server->metrics.bytes_out +=
            c->writing_bytes - uv_stream_get_write_queue_size(stream(c));
    if (c->end == END_NOT)
        c->end = END_VANISHED;
    c->server->n_unwelcome -= c->unwelcome;
    login_cancel(c);
    trail_forget(c);
    throttle_leave(c);
    pipeline_cancel_all(c);
    watch_close(c);
    attach_drop_all(c);
    list_remove(&c->dirty);
    list_remove(&c->turn);
    list_remove(&c->woken);
    list_remove(&c->sliced);
    secure_close(c);
    buf_done(&c->out);
    report_out(c, (enum budget_part)c->reported_as, c->writing_cap);
    c->server->leaving[c->reported_as] += c->reported; /* until libuv lets go of it */
    c->fd = -1;                                        /* the number may soon be another's */
    uv_close((uv_handle_t *)stream(c), on_closed);
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
    return !c->closing_in && !c->doomed && !c->logging_in && !c->closed &&
           c->pending_n < CONN_PIPELINE_MAX &&
           c->held_bytes + c->expected + buf_len(&c->out) < CONN_OUT_BYTES_MAX &&
           !(c->watch && c->door == DOOR_HTTP);
}

/* --- reading --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    const struct conn *c = handle->data;
    bool shakes = secure_is_shaking(c) || (c->server->tls.context && c->door == DOOR_SNIFF);
    *ret = uv_buf_init(c->server->read_mem,
                       shakes ? CONN_HANDSHAKE_READ_BYTES : SERVER_READ_BYTES);
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

/* Behind a short read libuv takes a reset for the end of the stream. The socket knows better. */
static int true_end(const struct conn *c, int why)
{
    int err = 0;
    socklen_t len = sizeof err;
    if (why != UV_EOF || getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err == 0)
        return why;
    return uv_translate_sys_error(err);
}

/* The client has gone, or will send no more: a killed process and shutdown(SHUT_WR) look the
 * same. So what was asked is answered, but nobody waits in a line or for news any longer. */
static void on_eof(struct conn *c, int why)
{
    note_end(c, why);
    if (why != UV_EOF || c->lingering) {
        conn_close(c);
        return;
    }
    c->half_closed = true;
    c->since_ms = now_ms(c);
    if (c->watch && c->door == DOOR_HTTP)
        conn_finish(c); /* nothing comes behind a stream */
    watch_close(c);
    set_reading(c, false);
    pipeline_end_waits(c);
    conn_dirty(c);
}

static bool is_sliced(const struct conn *c)
{
    return !list_empty(&c->sliced);
}

/* So many others have been served in this turn that nobody else is. */
static bool is_late(struct conn *c)
{
    struct server *s = c->server;
    return s->turn_ns && uv_hrtime() - s->turn_ns >= TURN_SLICE_US * UINT64_C(1000) &&
           !budget_is_full(&s->budget, BUDGET_INPUT);
}

static void take(struct conn *c, struct slice bytes)
{
    struct server *s = c->server;
    if (is_late(c)) {
        conn_keep(c, bytes);
        c->since_ms = now_ms(c);
        list_push_back(&s->late, &c->sliced);
        conn_stay_awake(s);
        return;
    }
    bool fresh = buf_len(&c->in) == 0;
    if (!fresh)
        conn_keep(c, bytes);
    size_t used = pipeline_feed(c, fresh ? bytes : buf_slice(&c->in));
    if (fresh && used < bytes.len)
        conn_keep(c, slice_of(bytes.data + used, bytes.len - used));
    else if (!fresh)
        in_consume(c, used);
    if (fresh || used)
        c->since_ms = now_ms(c);
    if (buf_len(&c->in) == 0 || is_sliced(c))
        return;
    c->paused = !conn_may_take(c);
    bool full = budget_is_full(&s->budget, BUDGET_INPUT) || tally_is_short();
    if (full && !c->paused)
        pipeline_fail(c, BELAY_ERR_OVERLOADED, 503,
                      "too many unfinished requests on this server");
}

/* Bytes of a connection that may not go on are kept, but not many. */
static bool keeps_enough(const struct conn *c)
{
    return c->paused && buf_len(&c->in) &&
           (buf_len(&c->in) > CONN_IN_PARKED_BYTES_MAX ||
            budget_is_full(&c->server->budget, BUDGET_INPUT));
}

/* Has a deadline: an unfinished request, an idle time, a reader that must go on reading. */
static void settle(struct conn *c)
{
    bool timed = buf_len(&c->in) || c->tls || c->unwelcome || c->door != DOOR_SNIFF ||
                 c->writing || c->lingering || c->half_closed;
    if (timed && list_empty(&c->timed))
        list_push_back(&c->server->timed, &c->timed);
    else if (!timed)
        list_remove(&c->timed);
    set_reading(c,
                !c->half_closed && !is_sliced(c) && !keeps_enough(c) && !secure_is_in_line(c));
}

void conn_take(struct conn *c, struct slice bytes)
{
    if (bytes.len && !c->closing_in)
        take(c, bytes);
    if (c->tls && tls_state(c->tls) == TLS_CLOSED && !c->half_closed)
        on_eof(c, UV_EOF);
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
        on_eof(c, true_end(c, (int)n));
        return;
    }
    list_remove(&c->turn);
    list_push_back(&s->turns, &c->turn);
    s->metrics.bytes_in += (uint64_t)n;
    if (c->closing_in || c->lingering || (c->watch && c->door == DOOR_HTTP))
        return; /* nothing more is taken from it */
    struct slice bytes = slice_of(buf->base, (size_t)n);
    if (secure_begins(c, bytes))
        secure_open(c);
    if (c->doomed)
        return;
    if (!c->tls || secure_read(c, &bytes))
        conn_take(c, bytes);
    settle(c);
}

/* --- slices --- */

static void on_idle(uv_idle_t *idle)
{
    struct server *s = idle->data;
    conn_go_on(s);
    secure_go_on(s);
    late_go_on(s);
    if (list_empty(&s->sliced) && list_empty(&s->late) && list_empty(&s->woken) &&
        list_empty(&s->in_line) && list_empty(&s->doubted) && list_empty(&s->left) &&
        list_empty(&s->finding) && list_empty(&s->quitting))
        (void)uv_idle_stop(&s->idle);
}

/* The loop looks at the sockets, and does not wait for them. */
void conn_stay_awake(struct server *s)
{
    (void)uv_idle_start(&s->idle, on_idle);
}

void conn_yield(struct conn *c)
{
    list_push_back(&c->server->sliced, &c->sliced);
    conn_stay_awake(c->server);
}

void conn_wake(struct conn *c)
{
    if (list_empty(&c->woken))
        list_push_back(&c->server->woken, &c->woken);
}

void conn_tell(struct server *s)
{
    uint64_t until = uv_hrtime() + WATCH_SLICE_US * UINT64_C(1000);
    while (!list_empty(&s->woken) && uv_hrtime() < until) {
        struct conn *c = list_item(s->woken.next, struct conn, woken);
        list_remove(&c->woken);
        conn_flush(c);
    }
    if (!list_empty(&s->woken))
        conn_stay_awake(s);
}

/* One of each kind in turn: a small request does not wait for all the large ones. */
static struct conn *next_of_turn(struct server *s)
{
    s->late_next = !s->late_next;
    bool from_late = list_empty(&s->sliced) || (s->late_next && !list_empty(&s->late));
    struct list *queue = from_late ? &s->late : &s->sliced;
    return list_empty(queue) ? NULL : list_item(queue->next, struct conn, sliced);
}

void conn_go_on(struct server *s)
{
    s->turn_ns = uv_hrtime();
    uint64_t until = s->turn_ns + CONN_SLICE_US * UINT64_C(1000);
    for (struct conn *c; (c = next_of_turn(s)) && uv_hrtime() < until;) {
        list_remove(&c->sliced);
        c->paused = false;
        take(c, SLICE(""));
        conn_dirty(c); /* it is written, and read again, at the end of the turn */
    }
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
    c->writing_cap = 0;
    c->write_ms = now_ms(c);
    if (status < 0) {
        note_end(c, status);
        c->doomed = true;
    } else {
        c->server->metrics.bytes_out += c->writing_bytes;
    }
    buf_done(&w->bytes);
    free(w);
    if (!c->closed)
        conn_dirty(c);
}

/* What the socket did not take at once is handed to libuv. */
static void write_rest(struct conn *c, struct buf *rest)
{
    struct write *w = mem_zalloc(sizeof *w);
    w->conn = c;
    w->bytes = *rest;
    w->req.data = w;
    *rest = (struct buf){0};
    c->writing = true;
    c->writing_bytes = buf_len(&w->bytes);
    c->writing_cap = w->bytes.cap;
    c->write_ms = now_ms(c);
    uv_buf_t b = uv_buf_init(w->bytes.mem + w->bytes.start, (unsigned)buf_len(&w->bytes));
    if (uv_write(&w->req, stream(c), &b, 1, on_written) != 0) {
        c->writing = false;
        c->writing_cap = 0;
        c->doomed = true;
        buf_done(&w->bytes);
        free(w);
    }
}

static void write_out(struct conn *c)
{
    BELAY_CHECK(!c->out.oom);
    if (c->writing)
        return;
    struct buf *bytes = c->tls ? secure_seal(c) : &c->out;
    if (buf_len(bytes) == 0)
        return;
    ssize_t n = send(c->fd, buf_data(bytes), buf_len(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        note_end(c, uv_translate_sys_error(errno));
        c->doomed = true;
        return;
    }
    c->since_ms = now_ms(c);
    if (c->handover_ns) {
        histogram_add(&c->server->metrics.handover, c->handovers, uv_hrtime() - c->handover_ns);
        c->handover_ns = c->handovers = 0;
    }
    if (n > 0) {
        buf_consume(bytes, (size_t)n);
        c->server->metrics.bytes_out += (uint64_t)n;
    }
    if (buf_len(bytes))
        write_rest(c, bytes);
    else if (buf_len(&c->out))
        conn_wake(c); /* not all was sealed: the others first */
    if (buf_len(&c->out) == 0)
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

static void put_continue(struct conn *c)
{
    c->continue_due = false;
    conn_use_out(c);
    http_write_continue(&c->out);
}

void conn_flush(struct conn *c)
{
    if (c->continue_due && !c->head)
        put_continue(c);
    bool more = c->watch && watch_pump(c);
    write_out(c);
    if (more && !c->writing && !c->doomed)
        conn_wake(c); /* the others first; while it is writing, on_written() comes back here */
    conn_report(c);
    if (c->paused && !is_sliced(c) && conn_may_take(c)) {
        c->paused = false;
        take(c, SLICE(""));
        if (buf_len(&c->out))
            conn_dirty(c);
    }
    if (c->doomed) {
        conn_close(c);
        return;
    }
    bool last = c->closing_in || (c->half_closed && !c->paused && !is_sliced(c));
    bool done = last && !c->head && !c->writing && buf_len(&c->out) == 0;
    if (done && !c->lingering && c->tls)
        secure_end(c);
    if (done && !c->lingering) {
        if (c->unheard && c->reading)
            linger(c);
        else
            conn_close(c);
    }
    if (!c->closed)
        settle(c);
}

/* --- too much to send --- */

/* The one that has the most, and of equals the one that has not read for longest; NULL: nobody
 * has anything in this part. */
static struct conn *fullest(struct server *s, enum budget_part part)
{
    struct conn *most = NULL;
    list_each (it, &s->conns) {
        struct conn *c = list_item(it, struct conn, all);
        if (c->closed || c->reported_as != part || c->reported == 0)
            continue;
        if (!most || c->reported > most->reported ||
            (c->reported == most->reported && c->write_ms < most->write_ms))
            most = c;
    }
    return most;
}

static void shed(struct server *s, enum budget_part part)
{
    struct conn *c;
    while (budget_used(&s->budget, part) - s->leaving[part] >= budget_share(&s->budget, part) &&
           (c = fullest(s, part)) != NULL) {
        s->metrics.closed_overloaded++;
        conn_close(c);
    }
}

void conn_shed(struct server *s)
{
    shed(s, BUDGET_OUTPUT);
    shed(s, BUDGET_WATCHERS);
}

/* --- deadlines --- */

/* Nothing is lost when it is closed: it waits for nothing, has no session, watches nothing. */
static bool is_idle(const struct conn *c)
{
    return !c->closed && !c->head && list_empty(&c->late) && !c->watch && !c->sessions &&
           !c->writing && !c->lingering && buf_len(&c->in) == 0;
}

bool conn_evict(struct server *s)
{
    uint64_t now = uv_now(&s->loop);
    for (size_t i = 0; i < CONN_EVICT_LOOKS && !list_empty(&s->turns); i++) {
        struct conn *c = list_item(s->turns.next, struct conn, turn);
        uint64_t least = c->door == DOOR_SNIFF ? CONN_SILENT_MS : CONN_YIELD_MS;
        if (is_idle(c) && now - c->since_ms >= least) {
            s->metrics.closed_yielded++;
            conn_close(c); /* its end makes room: on_closed() */
            return true;
        }
        list_remove(&c->turn); /* the next ones are looked at next time */
        list_push_back(&s->turns, &c->turn);
    }
    return false;
}

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
    else if (c->unwelcome)
        late = age >= CONN_UNWELCOME_MS;
    else if (secure_is_shaking(c))
        late = age >= limits->head_ms;
    else if (c->half_closed)
        late = age >= CONN_HALF_CLOSED_MS;
    else if (c->head || c->watch || c->closing_in || c->logging_in)
        late = false; /* waits for us, not we for it */
    else if (buf_len(&c->in)) {
        if (age >= (head_is_whole(c) ? limits->body_ms : limits->head_ms)) {
            c->server->metrics.closed_timeout++;
            pipeline_fail(c, BELAY_ERR_TIMEOUT, 408, "the request took too long to arrive");
        }
    } else
        late = is_idle(c) &&
               age >= (c->door == DOOR_HTTP ? limits->idle_ms : limits->resp_idle_ms);
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

bool conn_peer(const struct conn *c, struct sockaddr_storage *ret)
{
    int len = sizeof *ret;
    *ret = (struct sockaddr_storage){.ss_family = AF_UNIX};
    return c->is_local || uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)ret, &len) == 0;
}

/* May it stay? Some places are kept for operators: the others go by turns, or not at all. */
static bool admit(struct conn *c)
{
    struct server *s = c->server;
    struct sockaddr_storage addr;
    if (!conn_peer(c, &addr))
        return false;
    access_format((struct sockaddr *)&addr, c->address, sizeof c->address);
    c->source = source_take(s, (struct sockaddr *)&addr);
    size_t kept = s->max_conns / SERVER_OPERATORS_MAX;
    kept = kept < SERVER_OPERATORS_MAX ? kept : SERVER_OPERATORS_MAX;
    return c->source && (source_is_operator(c->source) || s->n_remote <= s->max_conns - kept ||
                         conn_evict(s));
}

/* Its address has too many. It is told so, in the protocol that it speaks, where there is room. */
static bool stay_unwelcome(struct conn *c)
{
    struct server *s = c->server;
    bool room = s->n_unwelcome < CONN_UNWELCOME_MAX && s->n_conns <= s->max_conns / 2;
    c->unwelcome = !c->source && room;
    if (!c->unwelcome)
        return false;
    s->n_unwelcome++;
    list_push_back(&s->timed, &c->timed);
    return true;
}

bool conn_is_trusted(const struct conn *c)
{
    return c->server->config->insecure || source_is_operator(c->source);
}

static int accept_one(struct conn *c, struct listener *from)
{
    uv_loop_t *loop = &c->server->loop;
    BELAY_CHECK((c->is_local ? uv_pipe_init(loop, &c->io.pipe, 0)
                             : uv_tcp_init(loop, &c->io.tcp)) == 0);
    return uv_accept(&from->io.stream, stream(c));
}

void conn_open(struct server *s, struct listener *from)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->server = s;
    c->io.stream.data = c;
    c->is_local = from->is_local;
    c->id = ++s->next_conn;
    c->target = engine_new_target(s->engine);
    c->resp = 2;
    list_init(&c->all);
    list_init(&c->dirty);
    list_init(&c->timed);
    list_init(&c->turn);
    list_init(&c->woken);
    list_init(&c->sliced);
    list_init(&c->late);
    list_init(&c->quitting);
    list_init(&c->keeper);
    list_init(&c->shaking);
    list_init(&c->in_line);
    c->reported_as = BUDGET_OUTPUT;
    s->n_conns++;
    list_push_back(&s->conns, &c->all);
    int err = accept_one(c, from);
    if (err != 0) {
        log_debug("server.accept", "error=\"%s\"", uv_strerror(err));
        conn_close(c);
        return;
    }
    if (!admit(c)) {
        s->metrics.refused_connections++;
        if (!stay_unwelcome(c)) {
            conn_close(c);
            return;
        }
    }
    (void)uv_fileno((uv_handle_t *)stream(c), &c->fd);
    if (c->is_local) {
        login_by_user(c);
    } else {
        (void)uv_tcp_nodelay(&c->io.tcp, 1);
        (void)uv_tcp_keepalive(&c->io.tcp, 1, KEEPALIVE_S);
    }
    c->since_ms = now_ms(c);
    s->metrics.accepted++;
    list_push_back(&s->turns, &c->turn);
    set_reading(c, true);
}
