/* attach.c - sessions tied to a connection: the server keeps them alive with one op for all of
 * them, lets them go when the connection closes, and tells the connection what they lost. */
#include "base/hash.h"
#include "base/mem.h"
#include "command/answer.h"
#include "proto/resp.h"
#include "server/state.h"

#include <stdlib.h>
#include <sys/random.h>

enum { KEEP_MIN_MS = 5, KEEP_MAX_MS = 20000 };

struct attached {
    struct attached *next; /* of its connection */
    struct map_node node;  /* of the server, by id */
    struct conn *conn;
    uint64_t ttl_ms;
    size_t len;
    char id[];
};

static uint64_t period_of(uint64_t ttl_ms)
{
    uint64_t third = ttl_ms / 3;
    return third < KEEP_MIN_MS ? KEEP_MIN_MS : third > KEEP_MAX_MS ? KEEP_MAX_MS : third;
}

void attach_init(struct server *s)
{
    list_init(&s->keepers);
    ssize_t got = getrandom(&s->attach_key, sizeof s->attach_key, 0);
    BELAY_CHECK(got == (ssize_t)sizeof s->attach_key); /* ids come from the network */
}

static bool same_id(struct map_node *node, const void *key)
{
    const struct attached *one = map_item(node, struct attached, node);
    return slice_eq(slice_of(one->id, one->len), *(const struct slice *)key);
}

static uint64_t hash_id(const struct server *s, struct slice id)
{
    return hash_bytes(&s->attach_key, id.data, id.len);
}

static struct attached *find(struct server *s, struct slice id)
{
    struct map_node *node = map_find(&s->attached, hash_id(s, id), same_id, &id);
    return node ? map_item(node, struct attached, node) : NULL;
}

/* Takes it out of everything, but does not free it. */
static void unlink_one(struct attached *one)
{
    struct conn *c = one->conn;
    struct attached **at = &c->sessions;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    map_remove(&c->server->attached, &one->node);
    if (--c->sessions_n == 0)
        list_remove(&c->keeper);
}

void attach_add(struct conn *c, struct slice session, uint64_t ttl_ms)
{
    struct server *s = c->server;
    uint64_t due = uv_now(&s->loop) + period_of(ttl_ms);
    struct attached *before = find(s, session);
    if (before && before->conn == c)
        return;
    if (before) { /* it has moved here: the other connection may close without ending it */
        unlink_one(before);
        free(before);
    }
    struct attached *one = mem_alloc(sizeof *one + session.len);
    one->next = c->sessions;
    one->conn = c;
    one->ttl_ms = ttl_ms;
    map_add(&s->attached, &one->node, hash_id(s, session));
    one->len = session.len;
    memcpy(one->id, session.data, session.len);
    c->sessions = one;
    c->sessions_n++;
    if (list_empty(&c->keeper))
        list_push_back(&s->keepers, &c->keeper);
    if (s->keep_at_ms > due)
        s->keep_at_ms = due;
}

void attach_drop_all(struct conn *c)
{
    struct attached *one;
    while ((one = c->sessions) != NULL) {
        unlink_one(one); /* first: the op may end the session before it returns */
        BELAY_CHECK(c->sessions != one);
        struct op op = {.kind = OP_SESSION_DETACH,
                        .account = SLICE("default"),
                        .session = slice_of(one->id, one->len),
                        .target = c->target};
        /* A node that stops, or cannot serve, ends nobody's session: it can be attached at
         * another one, or here after the restart, before its TTL is over. */
        if (!c->server->stopping && !c->sent_away)
            engine_submit(c->server->engine, &op, NULL);
        free(one);
    }
}

static void push(struct conn *c, const struct event *ev)
{
    struct arena a = {0}; /* the server's may hold an answer that is being written */
    if (c->door != DOOR_RESP || c->resp != 3)
        return;
    conn_use_out(c);
    resp_write(&c->out, answer_push(ev, &a), c->resp);
    conn_dirty(c);
    arena_done(&a);
}

void attach_news(struct server *s, const struct event *ev)
{
    bool lost =
        ev->kind == EVENT_EXPIRED || ev->kind == EVENT_BROKEN || ev->kind == EVENT_OVERDUE;
    bool over = ev->kind == EVENT_SESSION_ENDED;
    struct attached *one = ev->session.len && (lost || over) ? find(s, ev->session) : NULL;
    if (!one)
        return;
    push(one->conn, ev);
    if (over) {
        unlink_one(one);
        free(one);
    }
}

/* The cluster went on without this node for a while, and its connections counted as closed. */
static void attach_again(struct conn *c)
{
    struct engine *e = c->server->engine;
    c->target = engine_new_target(e);
    for (const struct attached *one = c->sessions; one; one = one->next) {
        struct op op = {.kind = OP_SESSION_ATTACH,
                        .account = SLICE("default"),
                        .session = slice_of(one->id, one->len),
                        .target = c->target};
        engine_submit(e, &op, NULL);
    }
}

static void keep_batch(struct server *s, const struct slice *ids, size_t n)
{
    struct op op = {
        .kind = OP_SESSION_KEEPALIVE, .account = SLICE("default"), .more = {ids, n}};
    if (n)
        engine_submit(s->engine, &op, NULL);
}

void attach_look(struct server *s)
{
    if (engine_knows_target(s->engine, s->run_target))
        return;
    s->run_target = engine_new_target(s->engine);
    list_each (it, &s->keepers)
        attach_again(list_item(it, struct conn, keeper));
}

uint64_t attach_keep(struct server *s, uint64_t now_ms)
{
    if (list_empty(&s->keepers)) {
        s->keep_at_ms = UINT64_MAX;
        return UINT64_MAX;
    }
    if (now_ms < s->keep_at_ms)
        return s->keep_at_ms - now_ms;
    struct arena a = {0}; /* an op may end sessions: nothing is walked while one is ordered */
    size_t n = 0, total = 0;
    uint64_t smallest = UINT64_MAX;
    list_each (it, &s->keepers)
        total += list_item(it, const struct conn, keeper)->sessions_n;
    struct slice *ids = mem_alloc(total * sizeof *ids);
    list_each (it, &s->keepers) {
        const struct conn *c = list_item(it, struct conn, keeper);
        for (const struct attached *one = c->sessions; one; one = one->next) {
            smallest = one->ttl_ms < smallest ? one->ttl_ms : smallest;
            ids[n++] = arena_copy(&a, slice_of(one->id, one->len));
        }
    }
    for (size_t at = 0; at < n; at += LIMIT_BATCH_SESSIONS)
        keep_batch(s, ids + at, n - at < LIMIT_BATCH_SESSIONS ? n - at : LIMIT_BATCH_SESSIONS);
    free(ids);
    arena_done(&a);
    s->keep_at_ms = now_ms + period_of(smallest);
    return s->keep_at_ms - now_ms;
}
