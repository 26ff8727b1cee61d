/* order.h - what an engine needs from whatever puts ops in order.
 *
 * submit() hands an op over; sooner or later, in the same order on every node, the order calls
 * engine_ordered() with it: at once (memory) or when a majority has it on disk (raft). read()
 * calls engine_readable() when the applied state is at least as new as the call. */
#ifndef BELAY_ENGINE_ORDER_H
#define BELAY_ENGINE_ORDER_H

#include "machine/op.h"

#include <stddef.h>

struct engine;
struct order;

struct order_ops {
    void (*open)(struct order *o, struct engine *e); /* from engine_open(), once */
    void (*submit)(struct order *o, size_t shard, const struct op *op); /* borrowed */
    void (*read)(struct order *o, size_t shard, const struct op *op);   /* borrowed */
    void (*flush)(struct order *o);
    const char *(*not_ready)(const struct order *o);
    void (*close)(struct order *o);
};

struct order {
    const struct order_ops *ops;
    size_t n_shards;
};

/* For the order to call: op is stamped and applied; a read is answered. */
void engine_ordered(struct engine *e, size_t shard, const struct op *op);
void engine_readable(struct engine *e, size_t shard, const struct op *op);

/* Nothing on disk, one node, one shard: applies at once. Never NULL. */
struct order *order_memory_open(void);
#endif
