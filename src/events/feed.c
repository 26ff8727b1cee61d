#include "events/feed.h"

#include "base/mem.h"

#include <stdlib.h>

struct slot {
    struct event ev; /* its slices point into `mem` */
    char *mem;
    size_t cap;
};

struct feed {
    struct slot *slots;
    size_t cap;
    uint64_t next; /* number of the next event; the oldest kept is next - cap, or 1 */
    struct list watchers;
};

struct feed *feed_open(size_t cap)
{
    BELAY_CHECK(cap > 0);
    struct feed *f = mem_zalloc(sizeof *f);
    f->slots = mem_zalloc(cap * sizeof *f->slots);
    f->cap = cap;
    f->next = 1;
    list_init(&f->watchers);
    return f;
}

void feed_close(struct feed *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->cap; i++)
        free(f->slots[i].mem);
    list_each_safe(it, &f->watchers) list_remove(it);
    free(f->slots);
    free(f);
}

static struct slice keep(char **at, struct slice s)
{
    char *copy = *at;
    if (s.len)
        memcpy(copy, s.data, s.len);
    *at += s.len;
    return slice_of(copy, s.len);
}

uint64_t feed_append(struct feed *f, const struct event *ev)
{
    struct slot *slot = &f->slots[f->next % f->cap];
    size_t need = ev->account.len + ev->ns.len + ev->name.len + ev->owner.len + ev->session.len;
    if (need > slot->cap || !slot->mem) {
        free(slot->mem);
        slot->mem = mem_alloc(need);
        slot->cap = need;
    }
    char *at = slot->mem;
    slot->ev = *ev;
    slot->ev.account = keep(&at, ev->account);
    slot->ev.ns = keep(&at, ev->ns);
    slot->ev.name = keep(&at, ev->name);
    slot->ev.owner = keep(&at, ev->owner);
    slot->ev.session = keep(&at, ev->session);
    /* bodies and rows are for the asker: news say that something happened, not what is inside
     */
    slot->ev.text = SLICE("");
    slot->ev.cycle = NULL;
    slot->ev.locks = NULL;
    slot->ev.sessions = NULL;
    slot->ev.namespaces = NULL;
    slot->ev.tables = NULL;
    slot->ev.variables = NULL;
    slot->ev.data = NULL;
    slot->ev.failed = SLICE("");
    slot->ev.n_cycle = slot->ev.n_rows = slot->ev.n_data = 0;
    uint64_t seq = f->next++;
    list_each_safe(it, &f->watchers)
    {
        struct watcher *w = list_item(it, struct watcher, node);
        w->wake(w);
    }
    return seq;
}

enum belay_err feed_get(const struct feed *f, uint64_t seq, const struct event **ret_ev)
{
    BELAY_CHECK(seq < f->next);
    if (seq == 0 || f->next - seq > f->cap)
        return BELAY_ERR_GONE;
    *ret_ev = &f->slots[seq % f->cap].ev;
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
