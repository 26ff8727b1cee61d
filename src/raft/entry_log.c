/* entry_log.c - the entries of a group that are still needed, in memory. */
#include "raft/entry_log.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdlib.h>

static struct log_entry *slot(const struct entry_log *l, size_t i)
{
    BELAY_CHECK(i < l->cap);
    return &l->slots[(l->start + i) & (l->cap - 1)];
}

const struct log_entry *entry_log_get(const struct entry_log *l, uint64_t index)
{
    if (index < l->first || index - l->first >= l->n)
        return NULL;
    return slot(l, (size_t)(index - l->first));
}

uint64_t entry_log_last(const struct entry_log *l)
{
    return l->first ? l->first + l->n - 1 : 0;
}

static void grow(struct entry_log *l)
{
    BELAY_CHECK(l->n == l->cap);
    size_t cap = l->cap ? l->cap * 2 : 64;
    BELAY_CHECK((cap & (cap - 1)) == 0);
    struct log_entry *slots = mem_alloc(cap * sizeof *slots);
    for (size_t i = 0; i < l->n; i++)
        slots[i] = *slot(l, i);
    free(l->slots);
    l->slots = slots;
    l->start = 0;
    l->cap = cap;
}

static void free_entry(struct entry_log *l, struct log_entry *e)
{
    BELAY_CHECK(l->bytes >= e->data.len);
    l->bytes -= e->data.len;
    free((void *)(uintptr_t)e->data.data);
}

void entry_log_put(struct entry_log *l, uint64_t index, const struct log_entry *e)
{
    BELAY_CHECK(index > 0);
    if (l->first == 0)
        l->first = index;
    BELAY_CHECK(index >= l->first);
    entry_log_truncate(l, index);
    BELAY_CHECK(index == l->first + l->n);
    if (l->n == l->cap)
        grow(l);
    struct log_entry *s = slot(l, l->n++);
    *s = *e;
    s->data.data = mem_dup(e->data.data, e->data.len);
    l->bytes += e->data.len;
    BELAY_CHECK(l->n <= l->cap && entry_log_last(l) == index);
}

void entry_log_truncate(struct entry_log *l, uint64_t index)
{
    while (l->n > 0 && l->first + l->n > index)
        free_entry(l, slot(l, --l->n));
    BELAY_CHECK(l->n == 0 || l->first + l->n <= index);
}

void entry_log_drop_to(struct entry_log *l, uint64_t index)
{
    while (l->n > 0 && l->first <= index) {
        free_entry(l, slot(l, 0));
        l->start = (l->start + 1) & (l->cap - 1);
        l->first++;
        l->n--;
    }
    BELAY_CHECK(l->n == 0 || l->first > index);
}

void entry_log_reset(struct entry_log *l, uint64_t next)
{
    while (l->n > 0)
        free_entry(l, slot(l, --l->n));
    BELAY_CHECK(l->bytes == 0);
    l->first = next;
    l->start = 0;
}

void entry_log_done(struct entry_log *l)
{
    entry_log_reset(l, 0);
    free(l->slots);
    *l = (struct entry_log){0};
}
