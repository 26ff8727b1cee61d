/* queue.c - /v1/queues/...: the answer comes from PostgreSQL, later; replies behind it wait. */
#include "queue/gateway.h"
#include "server/state.h"

/* The connection goes: so does its interest in the answer. */
static void forget(struct pending_reply *p)
{
    if (p->conn->server->front)
        gateway_forget(p->remote);
}

static void on_answer(void *arg, enum belay_err err, struct slice text)
{
    struct pending_reply *p = arg;
    struct server *s = p->conn->server;
    arena_reset(&s->reply_arena);
    struct reply *r;
    if (err != BELAY_OK) {
        r = reply_error(&s->reply_arena, err, "%.*s", (int)text.len, text.data);
    } else {
        r = reply_new(&s->reply_arena, REPLY_JSON);
        r->text = text;
        r->status = p->manner.command == CMD_QUEUE_PUSH ? 201 : 200;
    }
    pipeline_answer(p, r);
}

/* What manage() of the schema calls it. */
static const char *what_of(unsigned command)
{
    switch (command) {
    case CMD_QUEUE_PAUSE:
        return "pause";
    case CMD_QUEUE_RESUME:
        return "resume";
    case CMD_QUEUE_RETRY:
        return "retry";
    case CMD_QUEUE_CANCEL:
        return "cancel";
    default:
        return "keep";
    }
}

void queue_run(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    const struct args *args = &call->args;
    const char *why = "this server was started without --postgres";
    struct pending_reply *p = pipeline_defer(c, call, close, forget);
    if (s->front && call->action == ACTION_QUEUE_PUSH) {
        p->remote = gateway_push(s->front, args_text(args, P_QUEUE), args_text(args, P_JSON),
                                 on_answer, p, &why);
    } else if (s->front && call->action == ACTION_QUEUE_MANAGE) {
        struct gateway_order order = {.queue = args_text(args, P_QUEUE),
                                      .what = what_of(p->manner.command),
                                      .options = args_text(args, P_JSON)};
        p->remote = gateway_manage(s->front, &order, on_answer, p, &why);
    } else if (s->front) {
        struct gateway_filter filter = {.queue = args_text(args, P_QUEUE),
                                        .status = args_text(args, P_STATUS),
                                        .entity = args_text(args, P_ENTITY),
                                        .after = (int64_t)args_number(args, P_AFTER_ID, 0),
                                        .limit = (int64_t)args_number(args, P_LIMIT, 100)};
        p->remote = gateway_list(s->front, &filter, on_answer, p, &why);
    }
    if (!p->remote) {
        arena_reset(&s->reply_arena);
        pipeline_answer(p, reply_error(&s->reply_arena, BELAY_ERR_UNAVAILABLE, "%s", why));
    }
}
