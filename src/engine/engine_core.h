/* engine_core.h - the fields behind engine.h, for engine.c and post.c. */
#ifndef BELAY_ENGINE_ENGINE_CORE_H
#define BELAY_ENGINE_ENGINE_CORE_H

#include "base/hash.h"
#include "base/list.h"
#include "engine/engine.h"
#include "engine/order.h"
#include "machine/machine.h"

/* The rest of a number is the order's: which node, which of its runs. */
#define ASK_GENERATION_MASK ((UINT64_C(1) << (OP_RUN_SHIFT - ASK_SLOT_BITS)) - 1)
enum {
    ASK_SLOT_BITS = 24,
    ASK_SLOTS_MAX = 1 << ASK_SLOT_BITS,
    CANCEL_KEEP_BYTES =
        256, /* of an op that was prepared; a larger one gives its memory back */
    TICK_PATIENCE_MS = 1000,
    ROUTES_KEPT = 64,
};

/* An outstanding ask. */
struct slot {
    struct ask *ask; /* NULL: free */
    uint64_t generation;
    uint32_t next_free;
    bool want_lock, want_holders;
    bool expected;       /* engine_missed() must not take it for lost */
    size_t shard;        /* with `cancel`: where it may stand in a line */
    uint64_t give_up_ms; /* of the caller's clock; 0: never */
    struct buf cancel;   /* the op that takes it out of the line, made when it has to wait */
    struct buf use;      /* id of a session that may have been over when it was used */
    struct buf then;     /* the op that comes when its session is enrolled in its shard */
};

/* Letters on their way from one group to another, while this node leads the first: soft state,
 * what is not taken after a while is sent again. */
struct carried {
    uint64_t sent, confirmed; /* numbers */
    uint64_t at_ms;           /* of the caller's clock, when something was last sent */
};

/* One shard: its state, and its time as this node would stamp it. */
struct shard {
    struct machine *machine;
    uint64_t clock_ms; /* of the caller's clock when now_ms was set */
    uint64_t now_ms;   /* state-machine time */
    uint64_t
        tick_ms; /* of the caller's clock, when a tick was submitted; 0: none is on its way */
    struct carried out, in; /* shards: letters from group 0, and to it */
};

/* Which group a namespace is in; len 0: nothing is kept here. */
struct route {
    unsigned char name[LIMIT_ACCOUNT_BYTES + 1 + LIMIT_NAMESPACE_BYTES];
    size_t len, shard;
};

struct engine {
    struct order *order;
    struct feed *feed;
    uint64_t (*clock_ms)(void *ctx);
    void *clock_ctx;
    struct shard *shards;
    struct slot *slots; /* slot 0 is never used */
    uint32_t n_slots, cap_slots, first_free;
    uint64_t targets;
    bool delivering;  /* answers are being given: nothing may be submitted now */
    struct list held; /* answers that wait until letters are taken: post.c */
    struct route routes[ROUTES_KEPT];
    struct effects fx;
};

uint64_t engine_clock(const struct engine *e);
struct slot *engine_slot(struct engine *e, uint64_t id); /* NULL: nobody asked this node */
void engine_deliver(struct engine *e, size_t shard);     /* e->fx */

/* post.c: what several groups do together. None of it does anything when there is one. */
size_t post_route(struct engine *e, struct op *op); /* the group for this op */
/* The session of this op must be known in its shard first: true when the op waits for that. */
bool post_enrol(struct engine *e, size_t shard, const struct op *op);
/* The answer has letters that must be taken before it is true: then it is kept. */
bool post_hold(struct engine *e, size_t shard, const struct event *ev);
void post_used(struct engine *e, size_t shard, const struct op *op); /* after it was applied */
void post_count(struct engine *e, size_t shard, const struct event *ev);
void post_fill(struct engine *e, const struct op *op); /* rows of group 0 */
uint64_t post_next_ms(struct engine *e);
void post_close(struct engine *e);
#endif
