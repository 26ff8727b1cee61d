/* feed.c - the newest events, for watchers that come, go and come back. */
#include "events/feed.h"

#include "base/mem.h"

#include <stdlib.h>

/* What is kept of an event, its bytes right behind it: news say that something happened, not
 * what is inside. A body or a row is for the asker. Small, because the ring is written at every
 * step and should stay in the cache. */
struct feed_event {
    uint64_t at_ms, fence, ticket, position, count, expires_in_ms, waited_ms;
    uint8_t kind, reason, mode, forever;
    uint16_t account_len, ns_len, name_len, owner_len, session_len, text_len, by_len;
    char bytes[];
};

struct feed_slot {
    struct feed_event *kept;
    size_t cap; /* of its bytes */
};

struct feed {
    struct feed_slot *slots;
    size_t cap;
    uint64_t next;  /* number of the next event */
    uint64_t first; /* what is before it is gone; so is what is before next - cap */
    struct list watchers;
    struct event shown; /* what feed_get() gave out last */
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

void feed_close(struct feed *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->cap; i++)
        free(f->slots[i].kept);
    list_each_safe(it, &f->watchers) list_remove(it);
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

uint64_t feed_append(struct feed *f, const struct event *ev)
{
    struct feed_slot *slot = &f->slots[f->next % f->cap];
    struct slice text = ev->kind == EVENT_BROKEN ? ev->text : SLICE(""); /* no body */
    size_t need = ev->account.len + ev->ns.len + ev->name.len + ev->owner.len +
                  ev->session.len + text.len + ev->by.len;
    BELAY_CHECK(need <= UINT16_MAX); /* names and descriptions: far below */
    if (need > slot->cap || !slot->kept) {
        free(slot->kept);
        slot->cap = (need + 31) / 32 * 32;
        slot->kept = mem_alloc(sizeof *slot->kept + slot->cap);
    }
    struct feed_event *k = slot->kept;
    *k = (struct feed_event){.at_ms = ev->at_ms,
                             .fence = ev->fence,
                             .ticket = ev->ticket,
                             .position = ev->position,
                             .count = ev->count,
                             .expires_in_ms = ev->expires_in_ms,
                             .waited_ms = ev->waited_ms,
                             .kind = (uint8_t)ev->kind,
                             .reason = (uint8_t)ev->reason,
                             .mode = (uint8_t)ev->mode,
                             .forever = ev->forever,
                             .account_len = (uint16_t)ev->account.len,
                             .ns_len = (uint16_t)ev->ns.len,
                             .owner_len = (uint16_t)ev->owner.len,
                             .session_len = (uint16_t)ev->session.len,
                             .name_len = (uint16_t)ev->name.len,
                             .text_len = (uint16_t)text.len,
                             .by_len = (uint16_t)ev->by.len};
    char *at = slice_put(k->bytes, ev->account);
    at = slice_put(at, ev->ns);
    at = slice_put(at, ev->name);
    at = slice_put(at, ev->owner);
    at = slice_put(at, ev->session);
    at = slice_put(at, text);
    (void)slice_put(at, ev->by);
    uint64_t seq = f->next++;
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
    if (seq < f->first || f->next - seq > f->cap)
        return BELAY_ERR_GONE;
    const struct feed_event *k = f->slots[seq % f->cap].kept;
    f->shown = (struct event){.kind = (enum event_kind)k->kind,
                              .news = true,
                              .reason = (enum reason)k->reason,
                              .mode = (enum lock_mode)k->mode,
                              .forever = k->forever,
                              .at_ms = k->at_ms,
                              .fence = k->fence,
                              .ticket = k->ticket,
                              .position = k->position,
                              .count = k->count,
                              .expires_in_ms = k->expires_in_ms,
                              .waited_ms = k->waited_ms};
    const char *at = k->bytes;
    f->shown.account = show(&at, k->account_len);
    f->shown.ns = show(&at, k->ns_len);
    f->shown.name = show(&at, k->name_len);
    f->shown.owner = show(&at, k->owner_len);
    f->shown.session = show(&at, k->session_len);
    f->shown.text = show(&at, k->text_len);
    f->shown.by = show(&at, k->by_len);
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
