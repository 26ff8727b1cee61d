#include "machine/event.h"

#include "base/mem.h"

#include <stdlib.h>

const char *event_word(enum event_kind kind)
{
    static const char *const words[] = {
#define X(id, word) [EVENT_##id] = (word),
        EVENT_KIND_MAP(X)
#undef X
    };
    return (size_t)kind < EVENT_KIND_COUNT ? words[kind] : "unknown";
}

const char *reason_word(enum reason reason)
{
    static const char *const words[] = {
#define X(id, word) [REASON_##id] = (word),
        REASON_MAP(X)
#undef X
    };
    return (size_t)reason < sizeof words / sizeof words[0] ? words[reason] : "unknown";
}

const char *lock_state_word(enum lock_state state)
{
    static const char *const words[] = {"unlocked", "shared", "exclusive", "semaphore",
                                        "closed"};
    return words[state];
}

const char *lock_mode_word(enum lock_mode mode)
{
    static const char *const words[] = {"none", "exclusive", "shared", "semaphore"};
    return words[mode];
}

const char *txn_status_word(enum txn_status status)
{
    static const char *const words[] = {"ok", "error", "timeout"};
    return words[status];
}

const char *txn_cause_word(enum txn_cause cause)
{
    static const char *const words[] = {"", "statement", "session", "requirements"};
    return words[cause];
}

struct event *effects_add(struct effects *fx, enum event_kind kind)
{
    if (fx->n == fx->cap) {
        fx->cap = fx->cap ? fx->cap * 2 : 8;
        fx->events = mem_resize(fx->events, fx->cap * sizeof *fx->events);
    }
    struct event *ev = &fx->events[fx->n++];
    *ev = (struct event){.kind = kind};
    return ev;
}

void effects_done(struct effects *fx)
{
    free(fx->events);
    arena_done(&fx->arena);
    *fx = (struct effects){0};
}
