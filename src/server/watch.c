/* watch.c - news to a connection: RESP3 pushes or Server-Sent Events.
 *
 * A watcher is woken by the feed and reads from it at its own pace, never more than
 * WATCH_OUT_BYTES ahead of its reader. Once it is woken the feed does not call it again before
 * it has read everything: thousands of watchers cost an op nothing more. What is new is encoded
 * once for all who read the same form of it. One that falls so far behind that the feed has
 * dropped what comes next is told so and closed: it must read the full state and begin again.
 */
#include "auth/rule.h"
#include "base/log.h"
#include "base/mem.h"
#include "command/answer.h"
#include "proto/http.h"
#include "proto/json.h"
#include "proto/resp.h"
#include "server/state.h"

#include <stdlib.h>

enum { WATCH_OUT_BYTES = 65536, WATCH_LOOK_MAX = 1024 /* events at one go */ };

/* An event as bytes, in the form that watchers of one kind read. */
enum { NEWS_KEPT = 64, NEWS_FORMS = 4 }; /* 0: HTTP, else the version of RESP */
struct news_bytes {
    uint64_t seq; /* 0: none */
    struct buf bytes;
};

struct watch {
    struct watcher watcher; /* first */
    struct conn *conn;
    uint64_t next; /* number of the event to look at */
    uint64_t beat_ms;
    struct slice ns, prefix; /* owned, behind the struct; no ns: all */
    uint64_t kinds;          /* bits of enum event_kind, 0: all */
};

static void on_wake(struct watcher *w, const struct event *ev)
{
    (void)ev;
    feed_unwatch(w); /* until it has read everything */
    conn_wake(((struct watch *)(void *)w)->conn);
}

/* The stream is the last reply on its connection, and closes it when it ends: not before. */
static void open_stream(struct conn *c)
{
    c->closing_in = false;
    conn_use_out(c);
    struct reply_form form = {.web = c->web};
    http_write_stream_head(&c->out, web_manner(c, form, slow_id(c)));
    conn_dirty(c);
}

static void open_pushes(struct conn *c)
{
    struct reply *ok = reply_new(&c->server->request_arena, REPLY_STATUS);
    ok->text = SLICE("OK");
    pipeline_reply(c, ok, false);
}

static void refuse(struct conn *c, enum belay_err err, const char *what)
{
    pipeline_reply(c, reply_error(&c->server->request_arena, err, "%s", what), c->closing_in);
}

static void watch_open(struct conn *c, const struct call *call)
{
    struct server *s = c->server;
    const struct event *ev;
    uint64_t first = call->number ? call->number : feed_next(s->feed);
    /* one from the future is of another process, as is one from long ago */
    bool gone = first > feed_next(s->feed) ||
                (first < feed_next(s->feed) && feed_get(s->feed, first, &ev) != BELAY_OK);
    if (gone) {
        refuse(
            c, BELAY_ERR_GONE,
            "these events were dropped already, or are from another server: read the full state "
            "first");
        return;
    }
    if (c->door == DOOR_HTTP && c->head) {
        refuse(c, BELAY_ERR_SYNTAX, "a stream cannot follow a request that still waits");
        return;
    }
    watch_close(c);
    size_t ns_len = call->op.ns.len;
    struct watch *w = mem_zalloc(sizeof *w + ns_len + call->text.len);
    char *text = (char *)(w + 1);
    memcpy(text, call->op.ns.data, ns_len);
    if (call->text.len)
        memcpy(text + ns_len, call->text.data, call->text.len);
    w->ns = slice_of(text, ns_len);
    w->prefix = slice_of(text + ns_len, call->text.len);
    w->kinds = call->kinds;
    w->conn = c;
    w->next = first;
    w->beat_ms = uv_now(&s->loop);
    w->watcher.wake = on_wake;
    list_init(&w->watcher.node);
    feed_watch(s->feed, &w->watcher);
    c->watch = w;
    if (c->door == DOOR_HTTP)
        open_stream(c);
    else
        open_pushes(c);
}

void watch_close(struct conn *c)
{
    if (!c->watch)
        return;
    feed_unwatch(&c->watch->watcher);
    free(c->watch);
    c->watch = NULL;
}

static void encode_news(struct buf *out, struct arena *a, unsigned form, uint64_t seq,
                        const struct event *ev)
{
    arena_reset(a);
    struct reply *news = answer_news(ev, seq, a);
    if (form == 0) {
        struct buf data = {0};
        json_write(&data, news);
        http_write_event(out, seq, slice_str(event_word(ev->kind)), buf_slice(&data));
        buf_done(&data);
        return;
    }
    struct reply *push = reply_new(a, REPLY_PUSH);
    reply_text(a, push, NULL, SLICE("event"));
    reply_int(a, push, NULL, (int64_t)seq);
    reply_text(a, push, NULL, slice_str(event_word(ev->kind)));
    reply_add(push, SLICE(""), news);
    resp_write(out, push, (int)form);
}

static void put_news(struct conn *c, uint64_t seq, const struct event *ev)
{
    struct server *s = c->server;
    unsigned form = c->door == DOOR_HTTP ? 0 : c->resp;
    BELAY_CHECK(form < NEWS_FORMS);
    if (!s->news)
        s->news = mem_zalloc((size_t)NEWS_FORMS * NEWS_KEPT * sizeof *s->news);
    struct news_bytes *kept = &s->news[(size_t)form * NEWS_KEPT + seq % NEWS_KEPT];
    if (kept->seq != seq) {
        buf_clear(&kept->bytes);
        encode_news(&kept->bytes, &s->reply_arena, form, seq, ev);
        BELAY_CHECK(!kept->bytes.oom);
        kept->seq = seq;
    }
    buf_put_slice(&c->out, buf_slice(&kept->bytes));
}

void watch_done(struct server *s)
{
    for (size_t i = 0; s->news && i < (size_t)NEWS_FORMS * NEWS_KEPT; i++)
        buf_done(&s->news[i].bytes);
    free(s->news);
}

/* Too slow: the feed has moved on. */
static void put_gone(struct conn *c, uint64_t seq)
{
    struct arena *a = &c->server->reply_arena;
    c->server->metrics.closed_lagging++;
    log_debug("watch.lagging", "connection=%llu lost=%llu", (unsigned long long)c->id,
              (unsigned long long)seq);
    arena_reset(a);
    if (c->door == DOOR_HTTP) {
        http_write_event(&c->out, seq, SLICE("gone"), SLICE("{\"error\":{\"code\":\"GONE\"}}"));
    } else {
        struct reply *push = reply_new(a, REPLY_PUSH);
        reply_text(a, push, NULL, SLICE("gone"));
        reply_int(a, push, NULL, (int64_t)seq);
        resp_write(&c->out, push, c->resp);
    }
    watch_close(c);
    conn_finish(c);
}

/* News of variables need a rule for the whole namespace: their names are keys, or any text. */
static bool may_read(const struct machine_token *who, const struct event *ev)
{
    bool of_variables = ev->kind == EVENT_TXN || ev->kind == EVENT_VARIABLE_EXPIRED;
    struct slice name = of_variables ? SLICE("") : ev->name;
    return rules_can(who->rules, VERB_READ, ev->ns, name, NULL);
}

/* May the client hear of it now? */
static bool may_hear(const struct event *ev, const struct machine_token *who)
{
    struct slice account = ev->account.len ? ev->account : SLICE("default");
    if (!who)
        return slice_eq(account, SLICE("default"));
    return slice_eq(account, who->account) && may_read(who, ev);
}

/* What it watches. News of accounts and tokens have no namespace, and are for nobody. */
static bool is_for(const struct watch *w, const struct event *ev)
{
    bool here = w->ns.len ? slice_eq(ev->ns, w->ns) : ev->ns.len > 0;
    return here && slice_starts(ev->name, w->prefix) &&
           (w->kinds == 0 || w->kinds >> ev->kind & 1);
}

bool watch_pump(struct conn *c)
{
    struct watch *w = c->watch;
    struct feed *feed = c->server->feed;
    const struct event *ev;
    struct machine_token who;
    bool closed = engine_closed(c->server->engine);
    if (closed && !login_who(c, login_wall_ms(), &who))
        return false; /* its connection is about to be closed: login.c */
    size_t looked = 0;
    while (w->next < feed_next(feed) && !c->writing && buf_len(&c->out) < WATCH_OUT_BYTES &&
           looked++ < WATCH_LOOK_MAX) {
        if (feed_get(feed, w->next, &ev) != BELAY_OK) {
            conn_use_out(c);
            put_gone(c, w->next);
            return false;
        }
        if (is_for(w, ev) && may_hear(ev, closed ? &who : NULL)) {
            conn_use_out(c);
            put_news(c, w->next, ev);
        }
        w->next++;
    }
    if (w->next < feed_next(feed))
        return true;
    if (list_empty(&w->watcher.node))
        feed_watch(feed, &w->watcher);
    return false;
}

void watch_heartbeat(struct conn *c, uint64_t now_ms)
{
    if (c->door != DOOR_HTTP || now_ms - c->watch->beat_ms < STREAM_HEARTBEAT_MS)
        return;
    c->watch->beat_ms = now_ms;
    if (c->writing || buf_len(&c->out))
        return; /* it has something to read */
    conn_use_out(c);
    buf_put_str(&c->out, ":\n\n");
    conn_dirty(c);
}

/* The newest first are looked for, the oldest first are shown. The feed is small: one go. */
static void show_history(struct conn *c, const struct call *call, bool close)
{
    struct feed *feed = c->server->feed;
    struct arena *a = &c->server->request_arena;
    struct reply *r = reply_new(a, REPLY_MAP);
    struct reply **found = arena_alloc(a, (size_t)call->op.limit * sizeof(void *));
    const struct event *ev;
    size_t n = 0;
    for (uint64_t seq = feed_next(feed); seq > feed_first(feed) && n < call->op.limit;) {
        if (feed_get(feed, --seq, &ev) != BELAY_OK)
            break;
        if (!slice_eq(ev->name, call->op.name) || !slice_eq(ev->ns, call->op.ns) ||
            ev->kind == EVENT_TXN || ev->kind == EVENT_VARIABLE_EXPIRED ||
            !may_hear(ev, call->context->who))
            continue;
        struct event *copy = arena_alloc(a, sizeof *copy);
        *copy = event_copy(ev, a);
        found[n++] = answer_news(copy, seq, a);
    }
    struct reply *list = reply_list(a, r, "events");
    while (n)
        (void)reply_add(list, SLICE(""), found[--n]);
    reply_int(a, r, "since", (int64_t)feed_first(feed));
    if (feed_next(feed) > feed_first(feed) && feed_get(feed, feed_first(feed), &ev) == BELAY_OK)
        reply_int(a, r, "since_time_ms", (int64_t)ev->wall_ms);
    else
        reply_null(a, r, "since_time_ms");
    pipeline_reply(c, r, close);
}

void watch_run(struct conn *c, const struct call *call, bool close)
{
    if (call->action == ACTION_HISTORY)
        show_history(c, call, close);
    else
        watch_open(c, call);
}
