/* held.c - which locks are held now. Kept ones are in lease.c; here are the others, by name,
 * only so that belay_held() can answer. One whose lease is over is dropped without a word, when
 * the next one of its bucket comes. */
#include "client/client.h"

#include <stdlib.h>

struct client_hold *hold_new(const struct client_lease *l)
{
    size_t name = strlen(l->name) + 1, owner = strlen(l->owner) + 1;
    struct client_hold *h = calloc(1, sizeof *h + name + owner);
    if (!h)
        return NULL;
    memcpy(h->name, l->name, name);
    memcpy(h->name + name, l->owner, owner);
    h->owner = h->name + name;
    h->fence = l->fence;
    h->ttl_ms = l->ttl_ms;
    h->in_session = l->in_session;
    h->proven_ms =
        l->ttl_ms == BELAY_FOREVER ? INT64_MAX : client_add_ms(l->sent_ms, l->ttl_ms);
    return h;
}

bool hold_is(const struct client_hold *h, const char *name, uint64_t fence, const char *owner)
{
    if (h->dead || strcmp(h->name, name) != 0)
        return false;
    return fence ? h->fence == fence : !owner || strcmp(h->owner, owner) == 0;
}

static bool is_proven(const struct belay *b, const struct client_hold *h, int64_t now)
{
    bool session = !h->in_session || (b->session[0] && now < b->session_proven_ms);
    return !h->dead && session && now < h->proven_ms;
}

static size_t bucket_of(const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    return hash % CLIENT_HELD_BUCKETS;
}

void held_drop(struct belay *b, const char *name, uint64_t fence, const char *owner)
{
    int64_t now = client_now_ms();
    for (struct client_hold **at = &b->held[bucket_of(name)]; *at;) {
        struct client_hold *h = *at;
        if (is_proven(b, h, now) && !hold_is(h, name, fence, owner)) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        free(h);
    }
}

int held_add(struct belay *b, const struct client_lease *l)
{
    struct client_hold **bucket = &b->held[bucket_of(l->name)];
    struct client_hold *h = hold_new(l);
    if (!h)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    h->next = *bucket;
    *bucket = h;
    return BELAY_E_OK;
}

struct client_hold *held_find(const struct belay *b, const char *name, uint64_t fence,
                              const char *owner)
{
    struct client_hold *h = b->held[bucket_of(name)];
    while (h && !hold_is(h, name, fence, owner))
        h = h->next;
    return h;
}

void held_gone(struct belay *b, struct slice name, uint64_t fence)
{
    for (size_t i = 0; i < CLIENT_HELD_BUCKETS; i++)
        for (struct client_hold *h = b->held[i]; h; h = h->next)
            h->dead |= h->fence == fence && slice_eq(slice_str(h->name), name);
}

void held_session_over(struct belay *b)
{
    for (size_t i = 0; i < CLIENT_HELD_BUCKETS; i++)
        for (struct client_hold *h = b->held[i]; h; h = h->next)
            h->dead |= h->in_session;
}

void held_free(struct belay *b)
{
    for (size_t i = 0; i < CLIENT_HELD_BUCKETS; i++) {
        while (b->held[i]) {
            struct client_hold *h = b->held[i];
            b->held[i] = h->next;
            free(h);
        }
    }
}

static bool any_proven(const struct belay *b, const struct client_hold *h, const char *name,
                       uint64_t fence)
{
    int64_t now = client_now_ms();
    for (; h; h = h->next)
        if (hold_is(h, name, fence, NULL) && is_proven(b, h, now))
            return true;
    return false;
}

bool belay_held(const struct belay *b, const char *name, uint64_t fence)
{
    if (!b || !name)
        return false;
    return any_proven(b, b->holds, name, fence) ||
           any_proven(b, b->held[bucket_of(name)], name, fence);
}
