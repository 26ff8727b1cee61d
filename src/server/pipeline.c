/* pipeline.c - requests in, answers out, in order.
 *
 * Every request that needs the engine is a `struct pending_reply` from a free list. In the
 * memory engine nearly all are answered before engine_submit() returns: then the reply goes
 * straight into c->out. One that waits holds back the replies behind it, not their execution.
 */
#include "base/mem.h"
#include "base/tally.h"
#include "command/answer.h"
#include "proto/http.h"
#include "proto/resp.h"
#include "server/state.h"

#include <math.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <time.h>

uint64_t server_wall_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* --- pendings --- */

/* The note of the request that was taken goes to what will answer it. */
static struct trail_note *take_note(struct server *s)
{
    struct trail_note *note = s->note;
    s->note = NULL;
    return note;
}

/* How a request that comes now is answered, whatever is agreed before its answer is there. */
static struct reply_form form_now(const struct conn *c, bool close)
{
    return (struct reply_form){.resp = c->resp, .close = close, .web = c->web};
}

static struct pending_reply *pending_new(struct conn *c, struct manner manner, bool close)
{
    struct server *s = c->server;
    struct pending_reply *p = s->free_pendings;
    if (p)
        s->free_pendings = p->next;
    else
        p = mem_alloc(sizeof *p);
    *p = (struct pending_reply){
        .conn = c, .manner = manner, .form = form_now(c, close), .taken_ns = s->taken_ns};
    struct slice id = slow_id(c);
    if (id.len) {
        p->id = mem_zalloc(id.len + 1);
        memcpy(p->id, id.data, id.len);
        p->ask.request = p->id;
    }
    return p;
}

void pipeline_free(struct pending_reply *p)
{
    struct server *s = p->conn->server;
    if (p->expected)
        conn_expect(p->conn, p->expected, 0);
    buf_done(&p->held);
    if (p->note)
        trail_end_unknown(p->conn, p->note);
    if (p->secret)
        OPENSSL_cleanse(p->secret, TOKEN_TEXT_BYTES);
    free(p->secret);
    free(p->id);
    p->next = s->free_pendings;
    s->free_pendings = p;
}

static void enqueue(struct conn *c, struct pending_reply *p)
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
    struct pending_reply *p = c->head;
    c->head = p->next;
    if (!c->head)
        c->tail = NULL;
    c->pending_n--;
}

static void write_reply(const struct conn *c, struct buf *out, const struct reply *r,
                        struct reply_form form, struct slice id)
{
    if (c->doomed)
        return; /* it gets nothing any more */
    if (c->door == DOOR_HTTP)
        http_write(out, r, web_manner(c, form, id));
    else
        resp_write(out, r, form.resp);
}

/* Replies that were ready behind the one that has just gone. */
static void emit_ready(struct conn *c)
{
    while (c->head && c->head->state == PENDING_ANSWERED) {
        struct pending_reply *p = c->head;
        buf_put_slice(&c->out, buf_slice(&p->held));
        c->held_bytes -= buf_len(&p->held);
        dequeue(c);
        pipeline_free(p);
    }
}

static void hold_back(struct conn *c, struct pending_reply *p, const struct reply *r)
{
    write_reply(c, &p->held, r, p->form, slice_str(p->id));
    c->held_bytes += buf_len(&p->held);
    p->state = PENDING_ANSWERED;
    conn_report(c);
}

/* The request that was taken, or one that was not read: it has its answer now. */
static void count(struct server *s, unsigned command, enum outcome outcome)
{
    histogram_add(&s->metrics.requests[command][outcome], 1, slow_ns(s->taken_ns, 0));
}

static void count_pending(const struct pending_reply *p, enum outcome outcome, uint64_t line_ms)
{
    histogram_add(&p->conn->server->metrics.requests[p->manner.command][outcome], 1,
                  slow_ns(p->taken_ns, line_ms));
}

/* A lock or a transaction: the answer ends a wait for its turn. */
static void count_wait(const struct pending_reply *p, const struct event *ev)
{
    bool waited = ev->kind == EVENT_GRANTED ? ev->ticket != 0
                  : ev->kind == EVENT_TXN   ? p->ask.line_ms > 0
                                          : ev->kind == EVENT_TIMEOUT || ev->kind == EVENT_LEFT;
    if (waited)
        histogram_add(&p->conn->server->metrics.line[answer_outcome(ev)], 1,
                      p->ask.line_ms * UINT64_C(1000000));
}

static enum outcome reply_outcome(const struct reply *r)
{
    return r->kind == REPLY_ERROR || r->status >= 400 ? OUTCOME_ERROR : OUTCOME_OK;
}

void pipeline_reply(struct conn *c, const struct reply *r, bool close)
{
    struct server *s = c->server;
    if (s->acting)
        count(s, s->call.manner.command, reply_outcome(r));
    s->acting = false;
    slow_look(c, NULL, NULL);
    trail_end_reply(c, take_note(s), r);
    if (c->head) {
        struct pending_reply *p = pending_new(c, (struct manner){0}, close);
        hold_back(c, p, r);
        enqueue(c, p);
    } else {
        conn_use_out(c);
        write_reply(c, &c->out, r, form_now(c, close), slow_id(c));
        conn_report(c);
    }
    conn_dirty(c);
}

void pipeline_fail(struct conn *c, enum belay_err err, int http_status, const char *what)
{
    struct server *s = c->server;
    s->id = SLICE(""); /* what fails so was not read, and has none of its own */
    arena_reset(&s->reply_arena);
    struct reply *r = reply_error(&s->reply_arena, err, "%s", what);
    r->status = http_status;
    c->web = (struct web){0};
    pipeline_reply(c, r, true);
    c->unheard = true;
    conn_finish(c);
}

/* --- answers --- */

/* It has its "queued" and stays for the outcome; `p` is the head of the queue, or its reply is
 * held back: then a stand-in takes its place there. */
static void make_late(struct pending_reply *p)
{
    struct conn *c = p->conn;
    if (p->state == PENDING_ANSWERED) {
        struct pending_reply *stand_in = pending_new(c, p->manner, p->form.close);
        stand_in->held = p->held;
        stand_in->state = PENDING_ANSWERED;
        stand_in->next = p->next;
        p->held = (struct buf){0};
        struct pending_reply *before = c->head;
        while (before->next != p)
            before = before->next;
        before->next = stand_in;
        if (c->tail == p)
            c->tail = stand_in;
    }
    p->state = PENDING_LATE;
    late_add(p);
}

static const struct reply *reply_to(const struct pending_reply *p, const struct event *ev)
{
    struct server *s = p->conn->server;
    struct arena *a = &s->reply_arena;
    bool glock = p->manner.form == FORM_GLOCK_ACQUIRE;
    if (ev->kind == EVENT_TXN)
        return answer_txn(ev, server_standing(s), a);
    if (p->secret && (ev->kind == EVENT_TOKEN_CREATED || ev->kind == EVENT_TOKEN_ROTATED))
        return answer_account(ev, p->manner, slice_of(p->secret, TOKEN_TEXT_BYTES), a);
    return answer_event(ev, p->manner, glock ? server_wall_ns() : 0, a);
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct pending_reply *p = (struct pending_reply *)ask;
    struct conn *c = p->conn;
    struct server *s = c->server;
    if (p->state == PENDING_LATE && !late_is_wanted(p)) {
        late_drop(p);
        return;
    }
    bool stays = p->ask.stay && ev->kind == EVENT_QUEUED;
    arena_reset(&s->reply_arena);
    conn_dirty(c);
    c->sent_away = ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_UNAVAILABLE;
    if (stays)
        p->ticket = ev->ticket;
    if (ev->kind == EVENT_GRANTED && ev->ticket) { /* it stood in line */
        c->handovers++;
        if (c->handover_ns == 0)
            c->handover_ns = s->turn_ns ? s->turn_ns : uv_hrtime();
    }
    count_wait(p, ev);
    if (p->state == PENDING_LATE) {
        late_push(p, ev);
        return;
    }
    count_pending(p, answer_outcome(ev), p->ask.line_ms);
    slow_look(c, p, ev);
    if (p->note && !stays) {
        trail_end(c, p->note, ev);
        p->note = NULL;
    }
    if (p->manner.op == OP_SESSION_ATTACH && ev->kind == EVENT_SESSION_KEPT)
        attach_add(c, ev);
    const struct reply *r = reply_to(p, ev);
    if (c->head != p) {
        hold_back(c, p, r);
        if (stays)
            make_late(p);
        return;
    }
    conn_use_out(c);
    write_reply(c, &c->out, r, p->form, slice_str(p->id));
    dequeue(c);
    if (stays)
        make_late(p);
    else
        pipeline_free(p);
    emit_ready(c);
    conn_report(c);
}

static bool is_page(enum op_kind op)
{
    return op == OP_LIST || op == OP_SESSION_LIST || op == OP_NAMESPACE_LIST ||
           op == OP_TABLE_LIST || op == OP_TABLE_SHOW || op == OP_FIND || op == OP_HOLDERS ||
           op == OP_WAITERS || op == OP_SESSION_ITEMS;
}

/* A page is long: room is kept for it before it is there. */
static void expect_page(struct pending_reply *p, enum op_kind op)
{
    if (!is_page(op))
        return;
    p->expected = LIMIT_LIST_BYTES;
    conn_expect(p->conn, 0, p->expected);
}

struct pending_reply *pipeline_defer(struct conn *c, const struct call *call, bool close,
                                     void (*forget)(struct pending_reply *p))
{
    struct pending_reply *p = pending_new(c, call->manner, close);
    p->forget = forget;
    p->note = take_note(c->server);
    expect_page(p, call->op.kind);
    c->server->acting = false;
    enqueue(c, p);
    return p;
}

void pipeline_answer(struct pending_reply *p, const struct reply *r)
{
    struct conn *c = p->conn;
    count_pending(p, reply_outcome(r), 0);
    slow_look(c, p, NULL);
    trail_end_reply(c, p->note, r);
    p->note = NULL;
    conn_dirty(c);
    if (c->head != p) {
        hold_back(c, p, r);
        return;
    }
    conn_use_out(c);
    write_reply(c, &c->out, r, p->form, slice_str(p->id));
    dequeue(c);
    pipeline_free(p);
    emit_ready(c);
    conn_report(c);
}

void pipeline_call_off(struct pending_reply *p)
{
    struct engine *e = p->conn->server->engine;
    if (p->forget)
        p->forget(p);
    else if (conn_may_return(p->conn))
        engine_leave(e, &p->ask);
    else
        engine_cancel(e, &p->ask);
}

void pipeline_cancel_all(struct conn *c)
{
    struct pending_reply *p;
    bool gap = false; /* what stands behind a reply that never comes would be taken for it */
    for (p = c->head; p; p = p->next) {
        if (p->state == PENDING_ASKED) {
            gap = true;
            pipeline_call_off(p);
            p->state = PENDING_ANSWERED;
        } else if (gap) {
            c->held_bytes -= buf_len(&p->held);
            buf_clear(&p->held);
        }
    }
    conn_use_out(c);
    emit_ready(c);
    late_cancel(c);
}

static struct pending_reply *next_waiting(const struct conn *c)
{
    for (struct pending_reply *p = c->head; p; p = p->next)
        if (p->state == PENDING_ASKED && !p->forget && !p->ended)
            return p;
    return NULL;
}

void pipeline_end_waits(struct conn *c)
{
    struct pending_reply *p;
    while ((p = next_waiting(c)) != NULL) { /* it may be answered, and freed, at once */
        p->ended = true;
        engine_end_wait(c->server->engine, &p->ask);
    }
    late_cancel(c);
}

static const char stopping_text[] = "this node is stopping; ask another one";

void pipeline_dismiss_all(struct conn *c)
{
    struct server *s = c->server;
    struct event stop = {
        .kind = EVENT_FAILED, .err = BELAY_ERR_UNAVAILABLE, .text = SLICE(stopping_text)};
    for (struct pending_reply *p = c->head; p; p = p->next) {
        if (p->state != PENDING_ASKED)
            continue;
        pipeline_call_off(p);
        count_pending(p, OUTCOME_ERROR, 0);
        arena_reset(&s->reply_arena);
        hold_back(c, p, reply_error(&s->reply_arena, stop.err, "%s", stopping_text));
    }
    conn_use_out(c);
    emit_ready(c);
    late_dismiss(c, &stop);
}

/* --- requests --- */

/* What must be known of the connection before the op goes off; false: refused. */
static bool prepare(struct conn *c, const struct call *call, struct pending_reply *p)
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
    pipeline_reply(c, reply_error(&s->request_arena, BELAY_ERR_LIMIT, "%s", limit),
                   p->form.close);
    count(s, call->manner.command, OUTCOME_ERROR);
    pipeline_free(p);
    return false;
}

struct answer_standing server_standing(struct server *s)
{
    uint64_t now = uv_now(&s->loop);
    trust_advance(&s->trust, now);
    /* three places say enough, and are written faster */
    return (struct answer_standing){.uptime_s = (now - s->metrics.started_ms) / 1000,
                                    .trust = round(s->trust.level * 1000) / 1000,
                                    .norm = round(s->trust.norm * 1000) / 1000};
}

/* NULL: there is memory for it. */
static const char *no_room(const struct server *s, const struct call *call)
{
    const struct budget *b = &s->budget;
    bool is_long =
        call->kind != CALL_REPLY && (is_page(call->op.kind) || call->op.kind == OP_TXN);
    if (budget_is_full(b, BUDGET_STATE) && budget_is_growth(call))
        return "this server has no memory left for new things (--max-memory)";
    size_t unread = budget_used(b, BUDGET_OUTPUT) + s->expected;
    if (is_long && (unread >= budget_share(b, BUDGET_OUTPUT) || tally_is_short()))
        return "too many answers wait to be read (--max-memory)";
    return NULL;
}

/* False: there is no memory for it, and it has been answered. */
static bool has_room(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    const char *why = no_room(s, call);
    if (!why)
        return true;
    s->metrics.refused_overloaded++;
    count(s, call->manner.command, OUTCOME_ERROR);
    pipeline_reply(c, reply_error(&s->request_arena, BELAY_ERR_OVERLOADED, "%s", why), close);
    return false;
}

/* The contract of a transaction: false when this node cannot promise what it asks for. It has
 * been answered then, and nothing has changed; but the call counts. */
static bool keeps_contract(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    if (call->op.kind != OP_TXN && call->op.kind != OP_SESSION_CLOSE)
        return true;
    struct answer_standing standing = server_standing(s);
    trust_count(&s->trust, uv_now(&s->loop));
    if (call->op.kind != OP_TXN ||
        (call->min_uptime_s <= standing.uptime_s && call->min_trust <= standing.trust))
        return true;
    struct event denied = {.kind = EVENT_TXN, .status = TXN_ERROR, .cause = CAUSE_REQUIREMENTS};
    count(s, call->manner.command, OUTCOME_REFUSED);
    pipeline_reply(c, answer_txn(&denied, standing, &s->request_arena), close);
    return false;
}

void pipeline_submit(struct conn *c, struct call *call, bool close)
{
    struct server *s = c->server;
    if (s->stopping) {
        pipeline_reply(
            c, reply_error(&s->request_arena, BELAY_ERR_UNAVAILABLE, "%s", stopping_text),
            close);
        count(s, call->manner.command, OUTCOME_ERROR);
        return;
    }
    if (!keeps_contract(c, call, close))
        return;
    struct pending_reply *p = pending_new(c, call->manner, close);
    p->ask.answer = on_answer;
    if (call->secret.len == TOKEN_TEXT_BYTES)
        p->secret = mem_dup(call->secret.data, call->secret.len);
    if (!prepare(c, call, p))
        return;
    p->note = take_note(s);
    expect_page(p, call->op.kind);
    enqueue(c, p);
    engine_submit(s->engine, &call->op, &p->ask);
    if (c->half_closed)
        pipeline_end_waits(c);
}

/* Too much of it: nothing of the request is looked at. */
static void refuse_busy(struct conn *c, const struct reply *busy, bool close)
{
    count(c->server, COMMAND_COUNT_ALL, OUTCOME_ERROR);
    trail_refuse(c, NULL, BELAY_ERR_THROTTLED);
    pipeline_reply(c, busy, close);
}

enum admission { ADMIT_GO, ADMIT_WAIT, ADMIT_REFUSED /* and answered */ };

static enum admission refuse(struct conn *c, enum belay_err err, const char *what, bool close)
{
    struct server *s = c->server;
    count(s, s->call.manner.command, OUTCOME_ERROR);
    if (err == BELAY_ERR_LOGIN)
        trail_refuse(c, &s->call, err);
    pipeline_reply(c, reply_error(&s->request_arena, err, "%s", what), close);
    return ADMIT_REFUSED;
}

/* The client has the right to it. Is there room, does the right still count where no group looks
 * again, and is it in the audit log? */
static enum admission admit(struct conn *c, struct call *call, bool close)
{
    if (call->kind != CALL_REPLY && !has_room(c, call, close))
        return ADMIT_REFUSED;
    enum login_step standing = login_confirm(c, call);
    if (standing == LOGIN_WAIT)
        return ADMIT_WAIT;
    if (standing == LOGIN_NO)
        return refuse(c, BELAY_ERR_LOGIN, err_text(BELAY_ERR_LOGIN), close);
    if (standing == LOGIN_LOST)
        return refuse(c, BELAY_ERR_UNAVAILABLE, login_unsure_text, close);
    switch (trail_begin(c, call, &c->server->note)) {
    case TRAIL_GO:
        break;
    case TRAIL_WAIT:
        return ADMIT_WAIT;
    case TRAIL_REFUSED:
        return refuse(c, BELAY_ERR_UNAVAILABLE, trail_refused_text, close);
    }
    return ADMIT_GO;
}

/* Its token has too many connections or requests: it has been answered. */
static bool is_too_much(struct conn *c, bool close)
{
    struct server *s = c->server;
    struct reply *busy = NULL;
    if (!login_enter(c)) {
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        pipeline_reply(c, throttle_reply(s, login_busy_text, THROTTLE_JOIN_MS), close);
        return true;
    }
    if ((busy = throttle_token(c)) != NULL)
        refuse_busy(c, busy, close);
    return busy != NULL;
}

/* Runs the request that was taken. False: it waits for its login, and is taken again. */
static bool run(struct conn *c, bool close)
{
    struct server *s = c->server;
    struct call *call = &s->call;
    struct machine_token who;
    struct context context = {.account = SLICE("default"),
                              .ns = c->ns ? slice_of(c->ns, c->ns_len) : SLICE("default"),
                              .resp = c->door == DOOR_HTTP ? 0 : c->resp,
                              .target = c->target,
                              .scripts = s->scripts,
                              .closed = engine_closed(s->engine),
                              .unclaimed = !engine_closed(s->engine) && !conn_is_trusted(c),
                              .wall_ms = login_wall_ms()};
    if (context.closed && login_who(c, context.wall_ms, &who)) {
        context.who = &who;
        context.account = who.account = arena_copy(&s->request_arena, who.account);
        who.rules = arena_copy(&s->request_arena, who.rules);
        context.generation = c->login.generation;
        login_used(c, &who, context.wall_ms);
        if (is_too_much(c, close))
            return true;
    }
    command_read(&s->request, &context, &s->request_arena, call);
    s->taken_ns = s->turn_ns ? s->turn_ns : uv_hrtime();
    enum admission step = admit(c, call, close);
    if (step != ADMIT_GO)
        return step == ADMIT_REFUSED;
    switch (call->kind) {
    case CALL_OP:
        pipeline_submit(c, call, close);
        break;
    case CALL_REPLY:
        count(s, call->command ? call->manner.command : COMMAND_COUNT_ALL,
              reply_outcome(call->reply));
        if (call->refused)
            trail_refuse(c, call, call->refused);
        pipeline_reply(c, call->reply, close);
        break;
    case CALL_ACTION:
        s->acting = true; /* it is counted by what it answers */
        action_run(c, call, close);
        if (s->acting && c->logging_in) {
            s->acting = false;
            return false;
        }
        if (s->acting)
            count(s, call->manner.command, OUTCOME_OK); /* a stream begins */
        s->acting = false;
        break;
    }
    return true;
}

static bool run_resp(struct conn *c)
{
    struct reply *busy = throttle_address(c);
    if (busy)
        refuse_busy(c, busy, false);
    c->again = !busy && !run(c, false);
    return !c->again;
}

static size_t take_resp(struct conn *c, struct slice in)
{
    struct server *s = c->server;
    const char *why = NULL;
    size_t used = 0;
    enum resp_step step = resp_next(in, &s->request_arena, &s->request, &used, &why);
    switch (step) {
    case RESP_DONE:
        return s->request.verb.len == 0 || run_resp(c) ? used : 0;
    case RESP_BAD:
    case RESP_TOO_BIG:
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        pipeline_fail(c, step == RESP_BAD ? BELAY_ERR_SYNTAX : BELAY_ERR_TOO_BIG, 0, why);
        return in.len;
    case RESP_MORE:
        break;
    }
    return 0;
}

/* Logs the client in. False: the request was refused, or is taken again later. */
static bool take_login(struct conn *c, bool close)
{
    struct server *s = c->server;
    struct arena *a = &s->request_arena;
    switch (login_http(c, &s->request)) {
    case LOGIN_OK:
    case LOGIN_NO: /* what needs no token is answered all the same */
        return true;
    case LOGIN_LOST:
        pipeline_reply(c, reply_error(a, BELAY_ERR_UNAVAILABLE, "%s", login_lost_text), close);
        return false;
    case LOGIN_BUSY:
        pipeline_reply(c, throttle_reply(s, login_busy_text, THROTTLE_JOIN_MS), close);
        return false;
    case LOGIN_WAIT:
        break;
    }
    return false;
}

/* False: it waits for its login, and is taken again. */
static bool run_http(struct conn *c)
{
    struct server *s = c->server;
    if (http_is_id(s->request.request_id))
        s->id = s->request.request_id;
    web_take(c, &s->request);
    bool close = !s->request.keep_alive || s->stopping;
    const char *why = access_http(c, &s->request);
    struct reply *busy = why ? NULL : throttle_address(c);
    const struct reply *ready = why ? NULL : web_preflight(c, &s->request);
    bool known = why || busy || ready || take_login(c, close);
    c->again = c->logging_in;
    if (c->again)
        return false;
    c->continued = c->continue_due = false;
    if (close)
        c->closing_in = true;
    if (why) {
        s->metrics.refused_guard++;
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        trail_refuse(c, NULL, BELAY_ERR_DENIED);
        pipeline_reply(c, reply_error(&s->request_arena, BELAY_ERR_DENIED, "%s", why), close);
    } else if (busy) {
        refuse_busy(c, busy, close);
    } else if (ready) {
        pipeline_reply(c, ready, close);
    } else if (known && !run(c, close)) {
        c->again = true;
        c->closing_in = false;
        return false;
    }
    return true;
}

static size_t take_http(struct conn *c, struct slice in)
{
    struct server *s = c->server;
    struct http_error bad = {0};
    size_t used = 0;
    switch (http_next(in, &s->request_arena, &s->request, &used, &bad)) {
    case HTTP_DONE:
        return run_http(c) ? used : 0;
    case HTTP_BAD:
        count(s, COMMAND_COUNT_ALL, OUTCOME_ERROR);
        c->web = (struct web){0};
        pipeline_reply(c, http_error_reply(&s->request_arena, &bad), true);
        c->unheard = true;
        conn_finish(c);
        return in.len;
    case HTTP_CONTINUE:
        if (!c->continued) {
            c->continued = c->continue_due = true;
            conn_dirty(c);
        }
        return 0;
    case HTTP_MORE:
        break;
    }
    return 0;
}

static const char plain_text[] =
    "this server takes only TLS from other machines: rediss://, https:// or tls://";

size_t pipeline_feed(struct conn *c, struct slice in)
{
    size_t used = 0;
    uint64_t until = uv_hrtime() + CONN_SLICE_US * UINT64_C(1000);
    while (used < in.len && conn_may_take(c)) {
        struct slice left = slice_of(in.data + used, in.len - used);
        if (c->door == DOOR_SNIFF) {
            enum http_step step = http_sniff(left);
            if (step == HTTP_MORE)
                break;
            c->door = step == HTTP_DONE ? DOOR_HTTP : DOOR_RESP;
            if (c->unwelcome) {
                throttle_unwelcome(c);
                return in.len;
            }
            if (!c->tls && !conn_is_trusted(c)) {
                pipeline_fail(c, BELAY_ERR_DENIED, 0, plain_text);
                return in.len;
            }
        }
        arena_reset(&c->server->request_arena);
        size_t n = c->door == DOOR_RESP ? take_resp(c, left) : take_http(c, left);
        c->server->id = SLICE("");
        c->server->taken_ns = 0;
        if (n == 0)
            break;
        c->confirmed = false;
        used += n;
        if (used < in.len && !c->closing_in && uv_hrtime() >= until) {
            conn_yield(c);
            break;
        }
    }
    return c->closing_in ? in.len : used;
}
