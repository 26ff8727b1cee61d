/* feed.c - the newest events, for watchers that come, go and come back. */
#include "events/feed.h"

#include "base/mem.h"

#include <stdlib.h>

/* The bytes of events that followed each other. It is given back when the newest of them is
 * dropped; an event shares bytes only with others of its slab. */
struct slab {
    struct slab *next; /* the next newer one */
    uint64_t last;     /* number of its newest event */
    size_t used;
    char bytes[UINT16_MAX];
};

/* What is kept of an event: news say that something happened, not what is inside. A body or a
 * row is for the asker. Small, because the ring is written at every step and should stay in the
 * cache. */
struct feed_event {
    uint64_t at_ms, wall_ms, fence, ticket, position, count, expires_in_ms, waited_ms;
    struct slab *slab;
    const char *bytes;       /* account, namespace, owner, session, by */
    const char *name, *text; /* perhaps those of the event before */
    uint16_t account_len, ns_len, name_len, owner_len, session_len, text_len, by_len;
    uint8_t kind, reason, mode, forever;
};

struct feed {
    struct feed_event *slots;
    size_t cap;
    uint64_t next;  /* number of the next event */
    uint64_t first; /* what is before it is gone; so is what is before next - cap */
    struct slab *oldest, *newest, *spare; /* NULL: none */
    struct list watchers;
    uint64_t (*wall_ms)(void); /* NULL: nobody knows the time of day */
    struct event shown;        /* what feed_get() gave out last */
};

struct feed *feed_open(size_t cap)
{
    BELAY_CHECK(cap > 0);
    struct feed *f = mem_zalloc(sizeof *f);
    f->slots = mem_zalloc(cap * sizeof *f->slots);
    f->cap = cap;
    f->next = f->first = 1;
    list_init(&f->watchers);
    return f;
}

void feed_start_at(struct feed *f, uint64_t number)
{
    BELAY_CHECK(f->next == 1);
    f->next = f->first = number;
}

void feed_set_clock(struct feed *f, uint64_t (*wall_ms)(void))
{
    f->wall_ms = wall_ms;
}

uint64_t feed_first(const struct feed *f)
{
    uint64_t kept = f->next > f->cap ? f->next - f->cap : 0;
    return kept > f->first ? kept : f->first;
}

void feed_close(struct feed *f)
{
    if (!f)
        return;
    for (struct slab *slab = f->oldest; slab;) {
        struct slab *next = slab->next;
        free(slab);
        slab = next;
    }
    list_each_safe(it, &f->watchers) list_remove(it);
    free(f->spare);
    free(f->slots);
    free(f);
}

static void wake(struct feed *f, const struct event *ev)
{
    list_each_safe(it, &f->watchers)
    {
        struct watcher *w = list_item(it, struct watcher, node);
        w->wake(w, ev);
    }
}

/* Gives back the slabs of which no event is left once the next one is written. */
static void drop_slabs(struct feed *f)
{
    while (f->oldest != f->newest && f->next - f->oldest->last >= f->cap) {
        struct slab *gone = f->oldest;
        f->oldest = gone->next;
        free(f->spare);
        f->spare = gone;
    }
}

/* The slab for so many bytes more. */
static struct slab *slab_for(struct feed *f, size_t bytes)
{
    BELAY_CHECK(bytes <= UINT16_MAX); /* names and descriptions: far below */
    if (f->newest && sizeof f->newest->bytes - f->newest->used >= bytes)
        return f->newest;
    struct slab *slab = f->spare ? f->spare : mem_alloc(sizeof *slab);
    f->spare = NULL;
    slab->next = NULL;
    slab->used = 0;
    if (f->newest)
        f->newest->next = slab;
    else
        f->oldest = slab;
    return f->newest = slab;
}

/* Thousands in a row may be about the same lock, for the same reason: what is long they share
 * with the event before. */
static const char *put_shared(char **at, struct slice bytes, const char *before, size_t len)
{
    enum { SHARED_BYTES_MIN = 64 };
    if (bytes.len >= SHARED_BYTES_MIN && slice_eq(slice_of(before, len), bytes))
        return before;
    const char *put = *at;
    *at = slice_put(*at, bytes);
    return put;
}

uint64_t feed_append(struct feed *f, const struct event *ev)
{
    drop_slabs(f);
    struct slice text = ev->kind == EVENT_BROKEN ? ev->text : SLICE(""); /* no body */
    struct slab *slab =
        slab_for(f, ev->account.len + ev->ns.len + ev->name.len + ev->owner.len +
                        ev->session.len + text.len + ev->by.len);
    size_t at = f->next % f->cap;
    struct feed_event *k = &f->slots[at];
    *k = (struct feed_event){.at_ms = ev->at_ms,
                             .wall_ms = f->wall_ms ? f->wall_ms() : 0,
                             .fence = ev->fence,
                             .ticket = ev->ticket,
                             .position = ev->position,
                             .count = ev->count,
                             .expires_in_ms = ev->expires_in_ms,
                             .waited_ms = ev->waited_ms,
                             .slab = slab,
                             .bytes = slab->bytes + slab->used,
                             .kind = (uint8_t)ev->kind,
                             .reason = (uint8_t)ev->reason,
                             .mode = (uint8_t)ev->mode,
                             .forever = ev->forever,
                             .account_len = (uint16_t)ev->account.len,
                             .ns_len = (uint16_t)ev->ns.len,
                             .name_len = (uint16_t)ev->name.len,
                             .owner_len = (uint16_t)ev->owner.len,
                             .session_len = (uint16_t)ev->session.len,
                             .text_len = (uint16_t)text.len,
                             .by_len = (uint16_t)ev->by.len};
    char *to = slice_put(slab->bytes + slab->used, ev->account);
    to = slice_put(to, ev->ns);
    to = slice_put(to, ev->owner);
    to = slice_put(to, ev->session);
    to = slice_put(to, ev->by);
    static const struct feed_event none;
    const struct feed_event *before = &f->slots[(at ? at : f->cap) - 1];
    if (f->next == f->first || before == k || before->slab != slab)
        before = &none; /* there is none, or its bytes are elsewhere */
    k->name = put_shared(&to, ev->name, before->name, before->name_len);
    k->text = put_shared(&to, text, before->text, before->text_len);
    slab->used = (size_t)(to - slab->bytes);
    BELAY_CHECK(slab->used <= sizeof slab->bytes);
    uint64_t seq = slab->last = f->next++;
    wake(f, ev);
    return seq;
}

void feed_gap(struct feed *f)
{
    f->first = ++f->next; /* a number that stands for what is missing */
    wake(f, NULL);
}

static struct slice show(const char **at, size_t len)
{
    struct slice s = slice_of(*at, len);
    *at += len;
    return s;
}

enum belay_err feed_get(struct feed *f, uint64_t seq, const struct event **ret_ev)
{
    BELAY_CHECK(seq < f->next);
    if (seq < feed_first(f))
        return BELAY_ERR_GONE;
    const struct feed_event *k = &f->slots[seq % f->cap];
    f->shown = (struct event){.kind = (enum event_kind)k->kind,
                              .news = true,
                              .reason = (enum reason)k->reason,
                              .mode = (enum lock_mode)k->mode,
                              .forever = k->forever,
                              .at_ms = k->at_ms,
                              .wall_ms = k->wall_ms,
                              .fence = k->fence,
                              .ticket = k->ticket,
                              .position = k->position,
                              .count = k->count,
                              .expires_in_ms = k->expires_in_ms,
                              .waited_ms = k->waited_ms};
    const char *at = k->bytes;
    f->shown.account = show(&at, k->account_len);
    f->shown.ns = show(&at, k->ns_len);
    f->shown.owner = show(&at, k->owner_len);
    f->shown.session = show(&at, k->session_len);
    f->shown.by = show(&at, k->by_len);
    f->shown.name = slice_of(k->name, k->name_len);
    f->shown.text = slice_of(k->text, k->text_len);
    *ret_ev = &f->shown;
    return BELAY_OK;
}

uint64_t feed_next(const struct feed *f)
{
    return f->next;
}

void feed_watch(struct feed *f, struct watcher *w)
{
    list_push_back(&f->watchers, &w->node);
}

void feed_unwatch(struct watcher *w)
{
    list_remove(&w->node);
}
