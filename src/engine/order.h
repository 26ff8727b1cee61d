/* order.h - what an engine needs from whatever puts ops in order.
 *
 * submit() hands an op over; sooner or later, in the same order on every node, the order stamps it
 * with a time and calls engine_ordered() with it: at once (memory) or when a majority has it on
 * disk (raft). read() does the same with engine_readable() when the applied state is at least as
 * new as the call. */
#ifndef BELAY_ENGINE_ORDER_H
#define BELAY_ENGINE_ORDER_H

#include "machine/op.h"

#include <stdbool.h>
#include <stddef.h>

struct engine;
struct machine;
struct order;

struct order_ops {
    void (*open)(struct order *o, struct engine *e);              /* from engine_open(), once */
    void (*submit)(struct order *o, size_t group, struct op *op); /* borrowed */
    void (*read)(struct order *o, size_t group, struct op *op);   /* borrowed */
    void (*flush)(struct order *o);                               /* NULL: nothing to do */
    bool (*leads)(const struct order *o, size_t group);           /* may it tick? NULL: yes */
    /* For how long this node may have missed something; *ret_now_ms: what time it is as far as
     * it knows. NULL: it misses nothing. */
    uint64_t (*age)(const struct order *o, size_t group, uint64_t *ret_now_ms);
    /* NULL: it can serve; else why not, and in *ret_word the same in one word. */
    const char *(*not_ready)(const struct order *o, const char **ret_word);
    bool (*idle)(const struct order *o); /* nothing of this node is on its way; NULL: never */
    void (*close)(struct order *o);
};

struct order {
    const struct order_ops *ops;
    size_t n_groups; /* groups: see order_groups() */
    uint64_t
        patience_ms; /* beyond its own wait an op may take that long; 0: it cannot be late */
    uint64_t first_level; /* of a state without any op (machine/level.h) */
    uint64_t id_base; /* this run of this node, in the top bits (OP_RUN_SHIFT) of every asker */
};

/* `--shards N`: with 1 everything is in one group; else group 0 has namespaces, accounts and
 * sessions, and N more have what is in the namespaces. */
static inline size_t order_groups(size_t shards)
{
    return shards == 1 ? 1 : shards + 1;
}

static inline size_t order_shards(size_t groups)
{
    return groups == 1 ? 1 : groups - 1;
}

/* For the order to call: op is stamped and applied; a read is answered. */
void engine_ordered(struct engine *e, size_t group, struct op *op); /* its index is set */
void engine_readable(struct engine *e, size_t group, const struct op *op);
/* What all ops that were ordered so far have cost, about, in units of LIMIT_TXN_WORK: 20 ns. */
uint64_t engine_work(const struct engine *e);

/* The time to put on what is ordered now, on the leader of the shard. A new leader first says
 * so: its time goes on from the last stamped value, or from the last that it heard of the
 * leader before, so that a change of leader, however long it took, ends no lease. */
uint64_t engine_stamp(struct engine *e, size_t group);
/* It is now_ms, says the leader. */
void engine_heard(struct engine *e, size_t group, uint64_t now_ms);
void engine_lead(struct engine *e, size_t group, uint64_t heard_ms);

/* The op of this asker was not ordered in time. With `perhaps` it may be later: if it stands in
 * a line by then, it is taken out again. */
void engine_unavailable(struct engine *e, size_t group, uint64_t asker, bool perhaps,
                        const char *text);

/* Now and then: requests that have waited too long, in any place, are answered so. */
void engine_give_up(struct engine *e);

/* Before it writes and sends: groups have messages for each other, answers wait for them. */
void engine_exchange(struct engine *e);

/* This run of this node is over for the others: all that waits here is answered so, and called
 * off under the next run, which id_base has by now. */
void engine_disown(struct engine *e);

/* The whole state of a shard, to store and to take over. */
void engine_encode(const struct engine *e, size_t group, struct buf *out);
/* Reads it, also before there is an engine. BELAY_ERR_CORRUPT: not a sound state of this shard.
 */
BELAY_MUST_CHECK enum belay_err engine_decode(size_t n_groups, size_t group, struct slice bytes,
                                              struct machine **ret_m);
void engine_adopt(struct engine *e, size_t group, struct machine *m); /* taken */
/* After engine_adopt() of a node that is running: the op of this asker is still to be
 * ordered; and then: a request that waits in that shard, and is neither expected nor in a line
 * there, has missed its outcome, and is answered so. */
void engine_expects(struct engine *e, uint64_t asker);
void engine_missed(struct engine *e, size_t group);
uint64_t engine_level(const struct engine *e,
                      size_t group); /* the rules that its state follows */
bool engine_has_waiting(const struct engine *e, size_t group, size_t place);
bool engine_is_silent(const struct engine *e, size_t group, size_t place); /* in its state */
bool engine_is_new(const struct engine *e, size_t group); /* no op was applied yet */
/* Do the states of the groups fit together, here and now? What one group says that it has told
 * another, or has taken from it, the other one knows: nothing between them is lost when all go on
 * from here. A node that is behind in one group may have to wait for that. */
bool engine_is_cut(const struct engine *e);
uint64_t engine_hash(const struct engine *e, size_t group); /* equal states, equal hashes */

/* Nothing on disk, one node, one shard: applies at once. Never NULL. */
struct order *order_memory_open(void);
#endif
