/* request.c - requests in, answers out, in order.
 *
 * Every request that needs the engine is a `struct pending` from a free list. In the memory
 * engine nearly all are answered before engine_submit() returns: then the reply goes straight
 * into c->out. One that waits holds back the replies behind it, not their execution. */
#include "base/mem.h"
#include "command/answer.h"
#include "proto/http.h"
#include "proto/resp.h"
#include "server/state.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

uint64_t server_wall_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* --- pendings --- */

static struct pending *pending_new(struct conn *c, struct manner manner, bool close)
{
    struct server *s = c->server;
    struct pending *p = s->free_pendings;
    if (p)
        s->free_pendings = p->next;
    else
        p = mem_alloc(sizeof *p);
    *p = (struct pending){.conn = c, .manner = manner, .close = close, .bare = c->bare};
    return p;
}

static void pending_free(struct pending *p)
{
    struct server *s = p->conn->server;
    buf_done(&p->held);
    p->next = s->free_pendings;
    s->free_pendings = p;
}

static void enqueue(struct conn *c, struct pending *p)
{
    p->next = NULL;
    if (c->tail)
        c->tail->next = p;
    else
        c->head = p;
    c->tail = p;
    c->pending_n++;
}

static void dequeue(struct conn *c)
{
    struct pending *p = c->head;
    c->head = p->next;
    if (!c->head)
        c->tail = NULL;
    c->pending_n--;
}

static void write_reply(struct conn *c, struct buf *out, const struct reply *r, bool close,
                        bool bare)
{
    if (c->door == DOOR_HTTP && bare)
        http_write_head(out, r, !close);
    else if (c->door == DOOR_HTTP)
        http_write(out, r, !close);
    else
        resp_write(out, r, c->resp);
}

/* Replies that were ready behind the one that has just gone. */
static void emit_ready(struct conn *c)
{
    while (c->head && c->head->state == PENDING_ANSWERED) {
        struct pending *p = c->head;
        buf_put_slice(&c->out, buf_slice(&p->held));
        c->held_bytes -= buf_len(&p->held);
        dequeue(c);
        pending_free(p);
    }
}

static void hold_back(struct conn *c, struct pending *p, const struct reply *r)
{
    write_reply(c, &p->held, r, p->close, p->bare);
    c->held_bytes += buf_len(&p->held);
    p->state = PENDING_ANSWERED;
}

void request_reply(struct conn *c, const struct reply *r, bool close)
{
    if (c->head) {
        struct pending *p = pending_new(c, (struct manner){0}, close);
        hold_back(c, p, r);
        enqueue(c, p);
    } else {
        conn_use_out(c);
        write_reply(c, &c->out, r, close, c->bare);
    }
    conn_dirty(c);
}

void request_fail(struct conn *c, enum belay_err err, int http_status, const char *what)
{
    struct server *s = c->server;
    arena_reset(&s->reply_arena);
    struct reply *r = reply_error(&s->reply_arena, err, "%s", what);
    r->status = http_status;
    c->bare = false;
    request_reply(c, r, true);
    c->unheard = true;
    conn_finish(c);
}

/* --- answers --- */

static void count(struct server *s, unsigned command, enum outcome outcome)
{
    s->metrics.requests[command][outcome]++;
}

/* The outcome of a wait that was told "queued": a push, whenever it comes. */
static void push_late(struct pending *p, const struct event *ev)
{
    struct conn *c = p->conn;
    struct pending **at = &c->late;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    c->late_n--;
    struct event told = *ev;
    told.ticket = p->ticket; /* a failure does not know it */
    conn_use_out(c);
    resp_write(&c->out, answer_push(&told, &c->server->reply_arena), c->resp);
    pending_free(p);
}

/* It has its "queued" and stays for the outcome; `p` is the head of the queue, or its reply is
 * held back: then a stand-in takes its place there. */
static void make_late(struct pending *p)
{
    struct conn *c = p->conn;
    if (p->state == PENDING_ANSWERED) {
        struct pending *stand_in = pending_new(c, p->manner, p->close);
        stand_in->held = p->held;
        stand_in->state = PENDING_ANSWERED;
        stand_in->next = p->next;
        p->held = (struct buf){0};
        struct pending *before = c->head;
        while (before->next != p)
            before = before->next;
        before->next = stand_in;
        if (c->tail == p)
            c->tail = stand_in;
    }
    p->state = PENDING_LATE;
    p->next = c->late;
    c->late = p;
    c->late_n++;
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct pending *p = (struct pending *)ask;
    struct conn *c = p->conn;
    struct server *s = c->server;
    bool stays = p->ask.stay && ev->kind == EVENT_QUEUED;
    arena_reset(&s->reply_arena);
    conn_dirty(c);
    c->sent_away = ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_UNAVAILABLE;
    if (stays)
        p->ticket = ev->ticket;
    if (p->parked && ev->kind == EVENT_GRANTED && c->handover_ns == 0)
        c->handover_ns = s->turn_ns;
    if (p->state == PENDING_LATE) {
        push_late(p, ev);
        return;
    }
    count(s, p->manner.command, answer_outcome(ev));
    if (p->manner.op == OP_SESSION_ATTACH && ev->kind == EVENT_SESSION_KEPT)
        attach_add(c, ev->session, ev->expires_in_ms);
    bool glock = p->manner.form == FORM_GLOCK_ACQUIRE;
    const struct reply *r =
        ev->kind == EVENT_TXN
            ? answer_txn(ev, server_standing(s), &s->reply_arena)
            : answer_event(ev, p->manner, glock ? server_wall_ns() : 0, &s->reply_arena);
    if (c->head != p) {
        hold_back(c, p, r);
        if (stays)
            make_late(p);
        return;
    }
    conn_use_out(c);
    write_reply(c, &c->out, r, p->close, p->bare);
    dequeue(c);
    if (stays)
        make_late(p);
    else
        pending_free(p);
    emit_ready(c);
}

struct pending *request_defer(struct conn *c, const struct call *call, bool close,
                              void (*forget)(struct pending *p))
{
    struct pending *p = pending_new(c, call->manner, close);
    p->forget = forget;
    enqueue(c, p);
    return p;
}

void request_answer(struct pending *p, const struct reply *r)
{
    struct conn *c = p->conn;
    conn_dirty(c);
    if (c->head != p) {
        hold_back(c, p, r);
        return;
    }
    conn_use_out(c);
    write_reply(c, &c->out, r, p->close, p->bare);
    dequeue(c);
    pending_free(p);
    emit_ready(c);
}

/* It asks no more: it is gone, or it was told to go elsewhere. */
static void call_off(struct pending *p)
{
    const struct conn *c = p->conn;
    struct engine *e = c->server->engine;
    if (p->forget)
        p->forget(p);
    else if (c->sent_away || c->server->stopping)
        engine_leave(e, &p->ask);
    else
        engine_cancel(e, &p->ask);
}

void request_cancel_late(struct conn *c)
{
    struct pending *p;
    while ((p = c->late) != NULL) {
        c->late = p->next;
        call_off(p);
        pending_free(p);
    }
    c->late_n = 0;
}

void request_cancel_all(struct conn *c)
{
    struct pending *p;
    bool gap = false; /* what stands behind a reply that never comes would be taken for it */
    for (p = c->head; p; p = p->next) {
        if (p->state == PENDING_ASKED) {
            gap = true;
            call_off(p);
            p->state = PENDING_ANSWERED;
        } else if (gap) {
            c->held_bytes -= buf_len(&p->held);
            buf_clear(&p->held);
        }
    }
    conn_use_out(c);
    emit_ready(c);
    request_cancel_late(c);
}

static const char stopping_text[] = "this node is stopping; ask another one";

void request_dismiss_all(struct conn *c)
{
    struct server *s = c->server;
    struct event stop = {
        .kind = EVENT_FAILED, .err = BELAY_ERR_UNAVAILABLE, .text = SLICE(stopping_text)};
    for (struct pending *p = c->head; p; p = p->next) {
        if (p->state != PENDING_ASKED)
            continue;
        call_off(p);
        arena_reset(&s->reply_arena);
        hold_back(c, p, reply_error(&s->reply_arena, stop.err, "%s", stopping_text));
    }
    conn_use_out(c);
    emit_ready(c);
    while (c->late) {
        call_off(c->late);
        arena_reset(&s->reply_arena);
        push_late(c->late, &stop);
    }
}

/* --- requests --- */

/* What must be known of the connection before the op goes off; false: refused. */
static bool prepare(struct conn *c, const struct call *call, struct pending *p)
{
    struct server *s = c->server;
    const char *limit = NULL;
    if (call->op.flags & OP_NOBLOCK && c->door == DOOR_RESP && c->resp == 3) {
        p->ask.stay = true;
        if (c->late_n >= CONN_LATE_MAX)
            limit = "too many waits with NOBLOCK on this connection";
    }
    if (call->op.kind == OP_SESSION_ATTACH && c->sessions_n >= CONN_SESSIONS_MAX)
        limit = "too many sessions on this connection";
    if (!limit)
        return true;
    request_reply(c, reply_error(&s->request_arena, BELAY_ERR_LIMIT, "%s", limit), p->close);
    count(s, call->manner.command, OUTCOME_ERROR);
    pending_free(p);
    return false;
}

struct standing server_standing(struct server *s)
{
    uint64_t now = uv_now(&s->loop);
    trust_advance(&s->trust, now);
    /* three places say enough, and are written faster */
    return (struct standing){.uptime_s = (now - s->metrics.started_ms) / 1000,
                             .trust = round(s->trust.level * 1000) / 1000,
                             .norm = round(s->trust.norm * 1000) / 1000};
}

/* The contract of a transaction: false when this node cannot promise what it asks for. It has
 * been answered then, and nothing has changed; but the call counts. */
static bool keeps_contract(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    if (call->op.kind != OP_TXN && call->op.kind != OP_SESSION_CLOSE)
        return true;
    struct standing standing = server_standing(s);
    trust_count(&s->trust, uv_now(&s->loop));
    if (call->op.kind != OP_TXN ||
        (call->min_uptime_s <= standing.uptime_s && call->min_trust <= standing.trust))
        return true;
    struct event denied = {.kind = EVENT_TXN, .status = TXN_ERROR, .cause = CAUSE_REQUIREMENTS};
    count(s, call->manner.command, OUTCOME_REFUSED);
    request_reply(c, answer_txn(&denied, standing, &s->request_arena), close);
    return false;
}

static void submit(struct conn *c, struct call *call, bool close)
{
    struct server *s = c->server;
    if (s->stopping) {
        request_reply(
            c, reply_error(&s->request_arena, BELAY_ERR_UNAVAILABLE, "%s", stopping_text),
            close);
        count(s, call->manner.command, OUTCOME_ERROR);
        return;
    }
    if (!keeps_contract(c, call, close))
        return;
    struct pending *p = pending_new(c, call->manner, close);
    p->ask.answer = on_answer;
    if (!prepare(c, call, p))
        return;
    enqueue(c, p);
    engine_submit(s->engine, &call->op, &p->ask);
    if (c->tail == p && p->state == PENDING_ASKED)
        p->parked = true; /* it has to wait; from now on its grant is a hand-over */
}

static void run(struct conn *c, bool close)
{
    struct server *s = c->server;
    struct call *call = &s->call;
    struct context context = {.account = SLICE("default"),
                              .ns = c->ns ? slice_of(c->ns, c->ns_len) : SLICE("default"),
                              .resp = c->door == DOOR_HTTP ? 0 : c->resp,
                              .target = c->target,
                              .scripts = s->scripts};
    command_read(&s->request, &context, &s->request_arena, call);
    switch (call->kind) {
    case CALL_OP:
        submit(c, call, close);
        break;
    case CALL_REPLY:
        count(s, call->command ? call->manner.command : COMMAND_COUNT_ALL,
              call->reply->kind == REPLY_ERROR ? OUTCOME_ERROR : OUTCOME_OK);
        request_reply(c, call->reply, close);
        break;
    case CALL_ACTION:
        count(s, call->manner.command, OUTCOME_OK);
        action_run(c, call, close);
        break;
    }
}

static size_t take_resp(struct conn *c, struct slice in)
{
    struct server *s = c->server;
    const char *why = NULL;
    size_t used = 0;
    enum resp_step step = resp_next(in, &s->request_arena, &s->request, &used, &why);
    switch (step) {
    case RESP_DONE:
        if (s->request.verb.len)
            run(c, false);
        return used;
    case RESP_BAD:
    case RESP_TOO_BIG:
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        request_fail(c, step == RESP_BAD ? BELAY_ERR_SYNTAX : BELAY_ERR_TOO_BIG, 0, why);
        return in.len;
    case RESP_MORE:
        break;
    }
    return 0;
}

/* HEAD is GET without the body; but a stream is nothing without it. */
static void take_head(struct conn *c, struct request *req)
{
    struct slice stream = SLICE("/events");
    bool streams =
        req->path.len >= stream.len &&
        slice_eq(slice_of(req->path.data + req->path.len - stream.len, stream.len), stream);
    c->bare = slice_eq(req->verb, SLICE("HEAD"));
    if (c->bare && !streams)
        req->verb = SLICE("GET");
}

static void run_http(struct conn *c)
{
    struct server *s = c->server;
    take_head(c, &s->request);
    bool close = !s->request.keep_alive || s->stopping;
    const char *why = guard_http(s, &s->request);
    c->continued = false;
    if (close)
        c->closing_in = true;
    if (why) {
        s->metrics.refused_guard++;
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        request_reply(c, reply_error(&s->request_arena, BELAY_ERR_DENIED, "%s", why), close);
        return;
    }
    run(c, close);
}

static size_t take_http(struct conn *c, struct slice in)
{
    struct server *s = c->server;
    struct http_error bad = {0};
    size_t used = 0;
    switch (http_next(in, &s->request_arena, &s->request, &used, &bad)) {
    case HTTP_DONE:
        run_http(c);
        return used;
    case HTTP_BAD:
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        c->bare = false;
        request_reply(c, http_error_reply(&s->request_arena, &bad), true);
        c->unheard = true;
        conn_finish(c);
        return in.len;
    case HTTP_CONTINUE:
        if (!c->continued && !c->head) {
            c->continued = true;
            conn_use_out(c);
            http_write_continue(&c->out);
            conn_dirty(c);
        }
        return 0;
    case HTTP_MORE:
        break;
    }
    return 0;
}

size_t request_feed(struct conn *c, struct slice in)
{
    size_t used = 0;
    while (used < in.len && conn_may_take(c)) {
        struct slice left = slice_of(in.data + used, in.len - used);
        if (c->door == DOOR_SNIFF) {
            enum http_step step = http_sniff(left);
            if (step == HTTP_MORE)
                break;
            c->door = step == HTTP_DONE ? DOOR_HTTP : DOOR_RESP;
        }
        arena_reset(&c->server->request_arena);
        size_t n = c->door == DOOR_RESP ? take_resp(c, left) : take_http(c, left);
        if (n == 0)
            break;
        used += n;
    }
    return c->closing_in ? in.len : used;
}
