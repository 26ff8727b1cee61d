/* attach.c - sessions tied to a connection: the server keeps them alive with one op for all of
 * them, and lets them go when the connection closes. */
#include "base/mem.h"
#include "server/state.h"

#include <stdlib.h>

enum { KEEP_MIN_MS = 50, KEEP_MAX_MS = 20000 };

struct attached {
    struct attached *next;
    uint64_t ttl_ms;
    size_t len;
    char id[];
};

static uint64_t period_of(uint64_t ttl_ms)
{
    uint64_t third = ttl_ms / 3;
    return third < KEEP_MIN_MS ? KEEP_MIN_MS : third > KEEP_MAX_MS ? KEEP_MAX_MS : third;
}

void attach_add(struct conn *c, struct slice session, uint64_t ttl_ms)
{
    struct server *s = c->server;
    uint64_t due = uv_now(&s->loop) + period_of(ttl_ms);
    for (const struct attached *it = c->sessions; it; it = it->next) {
        if (slice_eq(slice_of(it->id, it->len), session))
            return;
    }
    struct attached *one = mem_alloc(sizeof *one + session.len);
    one->next = c->sessions;
    one->ttl_ms = ttl_ms;
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
    list_remove(&c->keeper);
    while ((one = c->sessions) != NULL) {
        struct op op = {.kind = OP_SESSION_DETACH,
                        .account = SLICE("default"),
                        .session = slice_of(one->id, one->len),
                        .target = c->target};
        engine_submit(c->server->engine, &op, NULL);
        c->sessions = one->next;
        free(one);
    }
    c->sessions_n = 0;
}

static void keep_batch(struct server *s, const struct slice *ids, size_t n)
{
    struct op op = {
        .kind = OP_SESSION_KEEPALIVE, .account = SLICE("default"), .more = {ids, n}};
    if (n)
        engine_submit(s->engine, &op, NULL);
}

uint64_t attach_keep(struct server *s, uint64_t now_ms)
{
    if (list_empty(&s->keepers)) {
        s->keep_at_ms = UINT64_MAX;
        return UINT64_MAX;
    }
    if (now_ms < s->keep_at_ms)
        return s->keep_at_ms - now_ms;
    struct slice *ids = mem_alloc(LIMIT_BATCH_SESSIONS * sizeof *ids);
    uint64_t smallest = UINT64_MAX;
    size_t n = 0;
    list_each (it, &s->keepers) {
        const struct conn *c = list_item(it, struct conn, keeper);
        for (const struct attached *one = c->sessions; one; one = one->next) {
            smallest = one->ttl_ms < smallest ? one->ttl_ms : smallest;
            ids[n++] = slice_of(one->id, one->len);
            if (n == LIMIT_BATCH_SESSIONS) {
                keep_batch(s, ids, n);
                n = 0;
            }
        }
    }
    keep_batch(s, ids, n);
    free(ids);
    s->keep_at_ms = now_ms + period_of(smallest);
    return s->keep_at_ms - now_ms;
}
