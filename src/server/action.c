/* action.c - what only the connection or the server can answer. */
#include "base/log.h"
#include "base/mem.h"
#include "belay_version.h"
#include "server/state.h"

#include <stdlib.h>

static void reply_ok(struct conn *c)
{
    struct reply *r = reply_new(&c->server->request_arena, REPLY_STATUS);
    r->text = SLICE("OK");
    pipeline_reply(c, r, false);
}

static void set_text(char **at, struct slice text)
{
    free(*at);
    *at = text.len ? mem_dup(text.data, text.len) : NULL;
}

static bool set_name(struct conn *c, struct slice name)
{
    if (name.len > CONN_NAME_BYTES_MAX) {
        pipeline_reply(c,
                       reply_error(&c->server->request_arena, BELAY_ERR_RANGE,
                                   "a name has at most %d bytes", CONN_NAME_BYTES_MAX),
                       false);
        return false;
    }
    set_text(&c->name, name);
    return true;
}

static void get_name(struct conn *c)
{
    struct arena *a = &c->server->request_arena;
    struct reply *name =
        c->name ? reply_text(a, NULL, NULL, slice_str(c->name)) : reply_null(a, NULL, NULL);
    pipeline_reply(c, name, false);
}

/* RESP2 has no pushes: what would be pushed is given up. */
static void end_pushes(struct conn *c)
{
    watch_close(c);
    late_cancel(c);
}

/* False: it has been refused, or is taken again later. */
static bool log_in(struct conn *c, const struct call *call)
{
    struct arena *a = &c->server->request_arena;
    struct reply *no = NULL;
    switch (login_try(c, call->peer, call->secret)) {
    case LOGIN_OK:
        return true;
    case LOGIN_WAIT:
        return false;
    case LOGIN_BUSY:
        no = throttle_reply(c->server, login_busy_text, THROTTLE_JOIN_MS);
        break;
    case LOGIN_NO:
        /* as of now: group 0 has been asked */
        if (engine_closed(c->server->engine) || !conn_is_trusted(c))
            no = reply_error(a, BELAY_ERR_LOGIN, "the token is not valid, or not any more");
        else
            no = reply_error(
                a, BELAY_ERR_DENIED,
                "no accounts are configured: everybody is \"default\", leave AUTH out");
        break;
    case LOGIN_LOST:
        no = reply_error(a, BELAY_ERR_UNAVAILABLE, "%s", login_lost_text);
        break;
    }
    pipeline_reply(c, no, false);
    return false;
}

static void init(struct conn *c, struct call *call, bool close)
{
    struct arena *a = &c->server->request_arena;
    const char *why = NULL;
    if (!source_is_operator(c->source))
        why = "ask for the first token on this machine";
    else if (c->is_local && !socket_may_init(c))
        why =
            "over the socket, only root and the server's own user may ask for the first token";
    if (why)
        pipeline_reply(c, reply_error(a, BELAY_ERR_DENIED, "%s", why), close);
    else
        pipeline_submit(c, call, close);
}

static void whoami(struct conn *c, const struct call *call, bool close)
{
    struct arena *a = &c->server->request_arena;
    const struct machine_token *who = call->context->who;
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "account", call->context->account);
    if (who)
        reply_text(a, r, "id", slice_of(c->login.id, TOKEN_ID_BYTES));
    else
        reply_null(a, r, "id");
    answer_rules(a, r, who ? who->rules : SLICE(""));
    pipeline_reply(c, r, close);
}

static void hello(struct conn *c, const struct call *call)
{
    struct arena *a = &c->server->request_arena;
    if (call->secret.len && !log_in(c, call))
        return;
    if (call->text.len && !set_name(c, call->text))
        return;
    if (call->number == 2)
        end_pushes(c);
    if (call->number)
        c->resp = (uint8_t)call->number;
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "server", SLICE("belay"));
    reply_text(a, r, "version", SLICE(BELAY_VERSION));
    reply_int(a, r, "proto", c->resp);
    reply_int(a, r, "id", (int64_t)c->id);
    reply_text(a, r, "mode", SLICE("standalone"));
    reply_text(a, r, "role", SLICE("master"));
    reply_list(a, r, "modules");
    pipeline_reply(c, r, false);
}

static void quit(struct conn *c)
{
    reply_ok(c);
    c->end = END_CLOSED;
    conn_finish(c);
}

static void use(struct conn *c, struct slice ns)
{
    set_text(&c->ns, ns);
    c->ns_len = (uint16_t)ns.len;
}

static void reset(struct conn *c)
{
    struct reply *r = reply_new(&c->server->request_arena, REPLY_STATUS);
    end_pushes(c);
    attach_drop_all(c);
    use(c, SLICE(""));
    login_forget(c);
    set_text(&c->name, SLICE(""));
    c->resp = 2;
    r->text = SLICE("RESET");
    pipeline_reply(c, r, false);
}

static void text_page(struct conn *c, bool close, const char *media,
                      void (*write)(const struct server *s, struct buf *out))
{
    struct server *s = c->server;
    struct buf text = {0};
    write(s, &text);
    BELAY_CHECK(!text.oom);
    struct reply *r = reply_new(&s->request_arena, REPLY_PLAIN);
    r->text = buf_slice(&text);
    r->media = media;
    pipeline_reply(c, r, close);
    buf_done(&text);
}

static void ready(struct conn *c, bool close)
{
    struct server *s = c->server;
    const char *word;
    const char *why = server_not_ready(s, &word);
    struct reply *r = reply_new(&s->request_arena, REPLY_PLAIN);
    r->text = why ? slice_str(why) : SLICE("ready\n");
    r->status = why ? 503 : 200;
    pipeline_reply(c, r, close);
}

static void page(struct conn *c, const struct call *call, bool close)
{
    if (call->action == ACTION_INFO)
        text_page(c, false, NULL, metrics_info);
    else if (call->action == ACTION_METRICS)
        text_page(c, close, "text/plain; version=0.0.4; charset=utf-8", metrics_write);
    else if (call->action == ACTION_STATS)
        stats_run(c, call, close);
    else
        ready(c, close);
}

/* The line that says so is written if either level lets it. */
static void log_level(struct conn *c, enum log_level to, bool close)
{
    struct arena *a = &c->server->request_arena;
    enum log_level was = log_max;
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "level", slice_str(log_level_word(to)));
    reply_text(a, r, "was", slice_str(log_level_word(was)));
    log_set_level(to > was ? to : was);
    pipeline_reply(c, r, close);
    log_set_level(to);
}

void action_run(struct conn *c, struct call *call, bool close)
{
    struct arena *a = &c->server->request_arena;
    switch (call->action) {
    case ACTION_HELLO:
        hello(c, call);
        break;
    case ACTION_USE:
        use(c, call->text);
        reply_ok(c);
        break;
    case ACTION_WATCH:
    case ACTION_HISTORY:
        watch_run(c, call, close);
        break;
    case ACTION_UNWATCH:
        watch_close(c);
        reply_ok(c);
        break;
    case ACTION_QUIT:
        quit(c);
        break;
    case ACTION_RESET:
        reset(c);
        break;
    case ACTION_CLIENT_ID:
        pipeline_reply(c, reply_int(a, NULL, NULL, (int64_t)c->id), false);
        break;
    case ACTION_SETNAME:
        if (set_name(c, call->text))
            reply_ok(c);
        break;
    case ACTION_GETNAME:
        get_name(c);
        break;
    case ACTION_INFO:
    case ACTION_METRICS:
    case ACTION_STATS:
    case ACTION_READY:
        page(c, call, close);
        break;
    case ACTION_CLUSTER:
        cluster_action(c, call, close);
        break;
    case ACTION_QUEUE_PUSH:
    case ACTION_QUEUE_LIST:
    case ACTION_QUEUE_MANAGE:
        queue_run(c, call, close);
        break;
    case ACTION_LOGIN:
        if (log_in(c, call))
            reply_ok(c);
        break;
    case ACTION_AUTH_INIT:
        init(c, call, close);
        break;
    case ACTION_WHOAMI:
        whoami(c, call, close);
        break;
    case ACTION_LOG_LEVEL:
        log_level(c, (enum log_level)call->number, close);
        break;
    case ACTION_FIND:
        find_run(c, call, close);
        break;
    case ACTION_NONE:
        break;
    }
}
