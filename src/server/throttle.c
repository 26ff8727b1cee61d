/* throttle.c - how much one address and one token may ask of this node: requests in a second,
 * connections of a token (those of an address are counted in source.c). Each node counts for
 * itself. */
#include "base/mem.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdlib.h>

static const uint64_t NS_PER_MS = 1000000;

/* A token and its connections; there are no more of them than connections. */
struct token_share {
    struct map_node by_id;
    char id[TOKEN_ID_BYTES];
    size_t n;
};

void throttle_init(struct server *s)
{
    limiter_init(&s->by_address, s->config->max_requests_per_address, 0);
    limiter_init(&s->by_token, s->config->max_requests_per_token, 0);
}

void throttle_reload(struct server *s)
{
    limiter_done(&s->by_address);
    limiter_done(&s->by_token);
    throttle_init(s);
}

void throttle_done(struct server *s)
{
    limiter_done(&s->by_address);
    limiter_done(&s->by_token);
    map_done(&s->token_shares);
}

struct reply *throttle_reply(struct server *s, const char *what, uint64_t wait_ms)
{
    enum { HEADER_BYTES = 48 };
    struct arena *a = &s->request_arena;
    char *header = arena_alloc(a, HEADER_BYTES);
    int n = snprintf(header, HEADER_BYTES, "Retry-After: %" PRIu64 "\r\n",
                     (wait_ms + 999) / 1000); /* whole seconds */
    struct reply *r =
        reply_error(a, BELAY_ERR_THROTTLED, "%s: wait %" PRIu64 " ms", what, wait_ms);
    r->headers = slice_of(header, (size_t)n);
    s->metrics.throttled++;
    return r;
}

static struct reply *take(struct server *s, struct limiter *l, uint64_t who, const char *what)
{
    if (l->interval_ns == 0)
        return NULL;
    uint64_t wait_ns = limiter_take(l, who, uv_hrtime());
    return wait_ns ? throttle_reply(s, what, (wait_ns + NS_PER_MS - 1) / NS_PER_MS) : NULL;
}

struct reply *throttle_address(struct conn *c)
{
    struct server *s = c->server;
    if (c->again || !c->source)
        return NULL; /* it was counted */
    return take(s, &s->by_address, source_hash(c->source), "too many requests of this address");
}

static uint64_t hash_id(const struct server *s, const char *id)
{
    return hash_bytes(&s->source_key, id, TOKEN_ID_BYTES);
}

struct reply *throttle_token(struct conn *c)
{
    struct server *s = c->server;
    if (c->again || s->by_token.interval_ns == 0)
        return NULL;
    return take(s, &s->by_token, hash_id(s, c->login.id), "too many requests of this token");
}

/* --- connections of an address --- */

void throttle_unwelcome(struct conn *c)
{
    const char *what = "too many connections of this address";
    trail_refuse(c, NULL, BELAY_ERR_THROTTLED);
    pipeline_reply(c, throttle_reply(c->server, what, THROTTLE_JOIN_MS), true);
    c->unheard = true;
    conn_finish(c);
}

/* --- connections of a token --- */

static bool same_id(struct map_node *node, const void *key)
{
    return memcmp(map_item(node, struct token_share, by_id)->id, key, TOKEN_ID_BYTES) == 0;
}

void throttle_leave(struct conn *c)
{
    struct token_share *share = c->share;
    c->share = NULL;
    if (!share || --share->n > 0)
        return;
    map_remove(&c->server->token_shares, &share->by_id);
    free(share);
}

bool throttle_join(struct conn *c)
{
    struct server *s = c->server;
    size_t max = s->config->max_connections_per_token;
    if (max == 0 || (c->share && memcmp(c->share->id, c->login.id, TOKEN_ID_BYTES) == 0))
        return true;
    uint64_t hash = hash_id(s, c->login.id);
    struct map_node *node = map_find(&s->token_shares, hash, same_id, c->login.id);
    struct token_share *share = node ? map_item(node, struct token_share, by_id) : NULL;
    if (share && share->n >= max)
        return false;
    throttle_leave(c); /* it was logged in as another */
    if (!share) {
        share = mem_zalloc(sizeof *share);
        memcpy(share->id, c->login.id, TOKEN_ID_BYTES);
        map_add(&s->token_shares, &share->by_id, hash);
    }
    share->n++;
    c->share = share;
    return true;
}
