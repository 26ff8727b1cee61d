/* attach.c - sessions tied to a connection: the server keeps them alive with one op for all of
 * them, lets them go when the connection closes, and tells the connection what they lost. */
#include "base/hash.h"
#include "base/heap.h"
#include "base/mem.h"
#include "command/answer.h"
#include "proto/resp.h"
#include "server/state.h"

#include <stdlib.h>
#include <sys/random.h>

enum { KEEP_MIN_MS = 5, KEEP_MAX_MS = 20000 };
enum { KEEP_BATCH = 1024 }; /* sessions that are kept at one go; then others have their turn */

struct attached {
    struct attached *next; /* of its connection */
    struct map_node node;  /* of the server, by id */
    struct heap_node due;  /* when it is to be kept at the latest */
    struct conn *conn;
    uint64_t ttl_ms, linger_ms;
    size_t len, account_len;
    char bytes[]; /* id, account */
};

/* A session is known by its id within its account. */
struct attached_name {
    struct slice account, id;
};

static struct attached_name name_of(const struct attached *one)
{
    return (struct attached_name){slice_of(one->bytes + one->len, one->account_len),
                                  slice_of(one->bytes, one->len)};
}

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
    struct attached_name one = name_of(map_item(node, struct attached, node));
    const struct attached_name *name = key;
    return slice_eq(one.id, name->id) && slice_eq(one.account, name->account);
}

static uint64_t hash_id(const struct server *s, struct slice id)
{
    return hash_bytes(&s->attach_key, id.data, id.len);
}

static struct attached *find(struct server *s, const struct event *ev)
{
    struct attached_name name = {ev->account, ev->session};
    struct map_node *node = map_find(&s->attached, hash_id(s, name.id), same_id, &name);
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
    heap_remove(&c->server->keeps, &one->due);
    if (--c->sessions_n == 0)
        list_remove(&c->keeper);
}

void attach_add(struct conn *c, const struct event *kept)
{
    struct server *s = c->server;
    struct slice session = kept->session;
    struct attached *before = find(s, kept);
    if (before && before->conn == c)
        return;
    if (before) { /* it has moved here: the other connection may close without ending it */
        unlink_one(before);
        free(before);
    }
    struct attached *one = mem_alloc(sizeof *one + session.len + kept->account.len);
    one->next = c->sessions;
    one->conn = c;
    one->ttl_ms = kept->expires_in_ms;
    one->linger_ms = kept->linger_ms;
    one->due = (struct heap_node){.seq = ++s->n_attached};
    heap_set(&s->keeps, &one->due, uv_now(&s->loop) + period_of(one->ttl_ms));
    map_add(&s->attached, &one->node, hash_id(s, session));
    one->len = session.len;
    one->account_len = kept->account.len;
    (void)slice_put(slice_put(one->bytes, session), kept->account);
    c->sessions = one;
    c->sessions_n++;
    if (list_empty(&c->keeper))
        list_push_back(&s->keepers, &c->keeper);
    if (s->keep_at_ms > one->due.at)
        s->keep_at_ms = one->due.at;
}

void attach_drop_all(struct conn *c)
{
    struct attached *one;
    while ((one = c->sessions) != NULL) {
        unlink_one(one); /* first: the op may end the session before it returns */
        BELAY_CHECK(c->sessions != one);
        struct op op = {.kind = OP_SESSION_DETACH,
                        .account = name_of(one).account,
                        .session = name_of(one).id,
                        .target = c->target};
        /* A client that may come back counts on its TTL: the session is not ended before. It can be
         * attached here, at another node, or here after a restart. A longer linger is kept. */
        bool elsewhere = c->server->stopping || c->sent_away;
        if (!conn_may_return(c) || (!elsewhere && one->linger_ms > one->ttl_ms))
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
    const struct reply *by = answer_push_by(ev, &a);
    if (by)
        resp_write(&c->out, by, c->resp);
    resp_write(&c->out, answer_push(ev, &a), c->resp);
    conn_dirty(c);
    arena_done(&a);
}

void attach_news(struct server *s, const struct event *ev)
{
    bool lost =
        ev->kind == EVENT_EXPIRED || ev->kind == EVENT_BROKEN || ev->kind == EVENT_OVERDUE;
    bool over = ev->kind == EVENT_SESSION_ENDED;
    struct attached *one = ev->session.len && (lost || over) ? find(s, ev) : NULL;
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
                        .account = name_of(one).account,
                        .session = name_of(one).id,
                        .target = c->target};
        engine_submit(e, &op, NULL);
    }
}

/* One op for those of one account, LIMIT_BATCH_SESSIONS at most; how many that were. */
static size_t keep_batch(struct server *s, const struct attached_name *names, size_t n)
{
    struct arena a = {0};
    size_t at = 0;
    if (n > LIMIT_BATCH_SESSIONS)
        n = LIMIT_BATCH_SESSIONS;
    struct slice *ids = arena_alloc(&a, n * sizeof *ids);
    for (; at < n && slice_eq(names[at].account, names[0].account); at++)
        ids[at] = names[at].id;
    struct op op = {
        .kind = OP_SESSION_KEEPALIVE, .account = names[0].account, .more = {ids, at}};
    engine_submit(s->engine, &op, NULL);
    arena_done(&a);
    return at;
}

void attach_look(struct server *s)
{
    if (engine_knows_target(s->engine, s->run_target))
        return;
    s->run_target = engine_new_target(s->engine);
    list_each (it, &s->keepers)
        attach_again(list_item(it, struct conn, keeper));
}

/* It is kept along with others when a quarter of its time is left: fewer ops. */
static bool is_due(const struct attached *one, uint64_t now_ms)
{
    return one->due.at <= now_ms + period_of(one->ttl_ms) / 4;
}

uint64_t attach_keep(struct server *s, uint64_t now_ms)
{
    struct attached_name names[KEEP_BATCH];
    struct arena a = {0}; /* an op may end sessions: nothing is walked while one is ordered */
    size_t n = 0;
    struct heap_node *top = heap_top(&s->keeps);
    if (top && top->at <= now_ms) {
        for (; top && n < KEEP_BATCH; top = heap_top(&s->keeps)) {
            struct attached *one = heap_item(top, struct attached, due);
            if (!is_due(one, now_ms))
                break;
            names[n++] = (struct attached_name){arena_copy(&a, name_of(one).account),
                                                arena_copy(&a, name_of(one).id)};
            heap_set(&s->keeps, top, now_ms + period_of(one->ttl_ms));
        }
        for (size_t at = 0; at < n;)
            at += keep_batch(s, names + at, n - at);
    }
    arena_done(&a);
    top = heap_top(&s->keeps);
    s->keep_at_ms = top ? top->at : UINT64_MAX;
    if (!top)
        return UINT64_MAX;
    return top->at > now_ms ? top->at - now_ms : 0;
}
