/* sim_world.c - one random generator, one queue of events, one clock. */
#include "base/hash.h"
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t sim_random(struct sim_world *w, uint64_t below)
{
    w->random += 0x9e3779b97f4a7c15u;
    uint64_t z = w->random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return below ? z % below : 0;
}

bool sim_chance(struct sim_world *w, unsigned percent)
{
    return percent && sim_random(w, 100) < percent;
}

uint64_t sim_between(struct sim_world *w, uint64_t from, uint64_t to)
{
    return from + sim_random(w, to - from + 1);
}

void sim_wrong(struct sim_world *w, const char *what, const char *format, ...)
{
    bool is_stop = strcmp(what, "stop") == 0;
    if (w->wrong || (w->plan.lies && !is_stop))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->wrong_text, sizeof w->wrong_text, format, args);
    va_end(args);
    w->wrong = what;
}

void sim_mark(struct sim_world *w, uint64_t what)
{
    w->trace = (w->trace ^ what) * 0x9e3779b97f4a7c15u;
    w->trace ^= w->trace >> 29;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void push(struct sim_world *w, struct sim_event *ev)
{
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 256;
        w->heap = mem_resize(w->heap, w->cap * sizeof(struct sim_event *));
    }
    size_t i = w->n++;
    while (i > 0 && before(ev, w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = ev;
}

static struct sim_event *pop(struct sim_world *w)
{
    struct sim_event *top = w->heap[0];
    struct sim_event *last = w->heap[--w->n];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= w->n)
            break;
        if (c + 1 < w->n && before(w->heap[c + 1], w->heap[c]))
            c++;
        if (!before(w->heap[c], last))
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    if (w->n)
        w->heap[i] = last;
    return top;
}

struct sim_event *sim_post(struct sim_world *w, uint64_t in_ms, enum sim_event_kind kind,
                           uint64_t node)
{
    struct sim_event *ev = mem_zalloc(sizeof *ev);
    ev->at = w->now + in_ms;
    ev->seq = w->seq++;
    ev->kind = kind;
    ev->node = node;
    push(w, ev);
    return ev;
}

struct sim_event *sim_next(struct sim_world *w)
{
    if (w->n == 0)
        return NULL;
    struct sim_event *ev = pop(w);
    w->now = ev->at;
    w->moment++;
    sim_mark(w, ev->at << 8 ^ (uint64_t)ev->kind << 4 ^ ev->node);
    sim_mark(w, ev->from ^ ev->life << 8);
    if (buf_len(&ev->bytes))
        sim_mark(w, crc32c(0, buf_data(&ev->bytes), buf_len(&ev->bytes)));
    return ev;
}

void sim_put_back(struct sim_world *w, struct sim_event *ev)
{
    push(w, ev);
}

void sim_drop(struct sim_event *ev)
{
    buf_done(&ev->bytes);
    free(ev);
}
