/* order_memory.c - the simplest order: the one in which ops come. */
#include "base/mem.h"
#include "engine/order.h"
#include "machine/level.h"

#include <stdlib.h>

struct order_memory {
    struct order order;
    struct engine *engine;
};

static void memory_open(struct order *o, struct engine *e)
{
    ((struct order_memory *)o)->engine = e;
}

static void memory_submit(struct order *o, size_t group, struct op *op)
{
    struct engine *e = ((struct order_memory *)o)->engine;
    op->now_ms = engine_stamp(e, group);
    engine_ordered(e, group, op);
}

static void memory_read(struct order *o, size_t group, struct op *op)
{
    struct engine *e = ((struct order_memory *)o)->engine;
    op->now_ms = engine_stamp(e, group);
    engine_readable(e, group, op);
}

static void memory_close(struct order *o)
{
    free(o);
}

static const struct order_ops memory_ops = {
    .open = memory_open, .submit = memory_submit, .read = memory_read, .close = memory_close};

struct order *order_memory_open(void)
{
    struct order_memory *o = mem_zalloc(sizeof *o);
    o->order = (struct order){.ops = &memory_ops, .n_groups = 1, .first_level = LEVEL_NEWEST};
    return &o->order;
}
