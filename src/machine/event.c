/* event.c - the effects of a step: events, and copies of the bytes that they show. */
#include "machine/event.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdlib.h>

const char *event_word(enum event_kind kind)
{
    BELAY_CHECK(kind < EVENT_KIND_COUNT);
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
    BELAY_CHECK((size_t)state < sizeof words / sizeof words[0]);
    return words[state];
}

const char *lock_mode_word(enum lock_mode mode)
{
    static const char *const words[] = {"none", "exclusive", "shared", "semaphore"};
    BELAY_CHECK((size_t)mode < sizeof words / sizeof words[0]);
    return words[mode];
}

const char *txn_status_word(enum txn_status status)
{
    static const char *const words[] = {"ok", "error", "timeout"};
    BELAY_CHECK((size_t)status < sizeof words / sizeof words[0]);
    return words[status];
}

const char *txn_cause_word(enum txn_cause cause)
{
    static const char *const words[] = {"", "statement", "session", "requirements"};
    BELAY_CHECK((size_t)cause < sizeof words / sizeof words[0]);
    return words[cause];
}

const char *quota_word(enum quota quota)
{
    static const char *const words[] = {
#define X(id, word) [QUOTA_##id] = (word),
        QUOTA_MAP(X)
#undef X
    };
    BELAY_CHECK((size_t)quota < sizeof words / sizeof words[0]);
    return words[quota];
}

struct event *effects_add(struct effects *fx, enum event_kind kind)
{
    BELAY_CHECK((size_t)kind < EVENT_KIND_COUNT && fx->n <= fx->cap);
    if (fx->n == fx->cap) {
        fx->cap = fx->cap ? fx->cap * 2 : 8;
        fx->events = mem_resize(fx->events, fx->cap * sizeof *fx->events);
    }
    struct event *ev = &fx->events[fx->n++];
    *ev = (struct event){.kind = kind};
    return ev;
}

struct lock_row lock_row_copy(const struct lock_row *row, struct arena *a)
{
    struct lock_row copy = *row;
    copy.name = arena_copy(a, row->name);
    copy.body = arena_copy(a, row->body);
    copy.holders = arena_alloc(a, row->n_holders * sizeof *copy.holders);
    for (size_t i = 0; i < row->n_holders; i++) {
        copy.holders[i] = row->holders[i];
        copy.holders[i].owner = arena_copy(a, row->holders[i].owner);
        copy.holders[i].session = arena_copy(a, row->holders[i].session);
    }
    copy.waiters = arena_alloc(a, row->n_waiters * sizeof *copy.waiters);
    for (size_t i = 0; i < row->n_waiters; i++) {
        copy.waiters[i] = row->waiters[i];
        copy.waiters[i].owner = arena_copy(a, row->waiters[i].owner);
        copy.waiters[i].session = arena_copy(a, row->waiters[i].session);
    }
    return copy;
}

static void copy_row(struct txn_row *row, struct arena *a)
{
    BELAY_CHECK(row->n_records == 0 || row->records);
    row->name = arena_copy(a, row->name);
    row->json = arena_copy(a, row->json);
    struct record_row *records = arena_alloc(a, row->n_records * sizeof *records);
    for (size_t i = 0; i < row->n_records; i++) {
        records[i] = row->records[i];
        records[i].session = arena_copy(a, records[i].session);
        records[i].value = arena_copy(a, records[i].value);
        records[i].description = arena_copy(a, records[i].description);
    }
    row->records = records;
}

struct event event_copy(const struct event *ev, struct arena *a)
{
    struct event copy = *ev;
    struct slice *bytes[] = {&copy.account, &copy.ns, &copy.name,   &copy.owner, &copy.session,
                             &copy.text,    &copy.by, &copy.failed, NULL};
    for (struct slice **b = bytes; *b; b++)
        **b = arena_copy(a, **b);
    copy.cycle = arena_alloc(a, ev->n_cycle * sizeof *copy.cycle);
    for (size_t i = 0; i < ev->n_cycle; i++)
        copy.cycle[i] = (struct cycle_step){arena_copy(a, ev->cycle[i].owner),
                                            arena_copy(a, ev->cycle[i].name)};
    copy.data = arena_alloc(a, ev->n_data * sizeof *copy.data);
    for (size_t i = 0; i < ev->n_data; i++) {
        copy.data[i] = ev->data[i];
        copy_row(&copy.data[i], a);
    }
    return copy;
}

void effects_done(struct effects *fx)
{
    BELAY_CHECK(fx->n <= fx->cap);
    free(fx->events);
    arena_done(&fx->arena);
    *fx = (struct effects){0};
}
