/* prefetch.c - what a search has seen behind its group: hints for the next claims. */
#include "queue/prefetch.h"

#include <stdlib.h>

enum {
    AHEAD_LOW = 24,  /* ask for more when so many are left: a search brings up to 50 */
    AHEAD_REST = 64, /* claims after a miss */
    AHEAD_FRESH_MS = 50,
};

void sight_free(struct sight *s)
{
    if (!s)
        return;
    list_remove(&s->link);
    free(s->entity);
    free(s->kind);
    free(s);
}

static struct sight *first(const struct prefetch *a)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what is freed was taken out before */
    return list_empty(&a->seen) ? NULL : list_item(a->seen.next, struct sight, link);
}

void prefetch_init(struct prefetch *a)
{
    *a = (struct prefetch){0};
    list_init(&a->seen);
}

void prefetch_done(struct prefetch *a)
{
    list_each_safe(it, &a->seen) sight_free(list_item(it, struct sight, link));
    a->n = 0;
}

static struct sight *take_first(struct prefetch *a)
{
    struct sight *s = first(a);
    if (s) {
        list_remove(&s->link);
        a->n--;
    }
    return s;
}

struct sight *prefetch_take(struct prefetch *a, uint64_t now_ms)
{
    const struct sight *oldest = first(a);
    if (oldest && now_ms - oldest->seen_ms > AHEAD_FRESH_MS)
        prefetch_done(a);
    return take_first(a);
}

bool prefetch_ask(struct prefetch *a, int64_t *ret_from)
{
    if (a->rest > 0) {
        a->rest--;
        return false;
    }
    if (a->asked || a->n > AHEAD_LOW)
        return false;
    if (a->n == 0)
        a->last = 0; /* a new pass may have begun, below what was seen */
    a->asked = true;
    *ret_from = a->last;
    return true;
}

void prefetch_add(struct prefetch *a, struct list *sights, uint64_t now_ms)
{
    a->asked = false;
    list_each_safe(it, sights)
    {
        struct sight *s = list_item(it, struct sight, link);
        if (s->id <= a->last || a->rest > 0) {
            sight_free(s);
            continue;
        }
        list_remove(it);
        list_push_back(&a->seen, it);
        s->seen_ms = now_ms;
        a->last = s->id;
        a->n++;
    }
}

void prefetch_found(struct prefetch *a, int64_t id)
{
    for (struct sight *s = first(a); s && s->id <= id; s = first(a))
        sight_free(take_first(a));
    if (id > a->last)
        a->last = id;
}

void prefetch_missed(struct prefetch *a)
{
    prefetch_done(a);
    a->rest = AHEAD_REST;
}
