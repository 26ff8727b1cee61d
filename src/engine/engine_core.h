/* engine_core.h - the fields behind engine.h, for engine.c and router.c. */
#ifndef BELAY_ENGINE_ENGINE_CORE_H
#define BELAY_ENGINE_ENGINE_CORE_H

#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "engine/engine.h"
#include "engine/order.h"
#include "engine/remaining.h"
#include "machine/machine.h"

enum {
    CANCEL_KEEP_BYTES =
        256, /* of an op that was prepared; a larger one gives its memory back */
    TICK_PATIENCE_MS = 1000,
    ROUTES_KEPT = 64,
    SESSIONS_KEPT = 1 << 14,
};

/* An outstanding ask. */
struct asker_slot {
    struct ask *ask; /* NULL: free */
    struct map_node by_count;
    uint32_t at, next_free; /* in engine.slots */
    bool want_lock, want_holders;
    bool expected;       /* engine_missed() must not take it for lost */
    size_t group;        /* with `cancel`: where it may stand in a line */
    uint64_t asked_ms;   /* of the caller's clock */
    uint64_t ordered_ms; /* the same: its op was applied; 0: not yet */
    uint64_t came_ms;    /* the same: its answer; 0: not yet */
    uint64_t give_up_ms; /* of the caller's clock; 0: never */
    struct buf cancel;   /* the op that takes it out of the line, made when it has to wait */
    struct buf then;     /* the op that comes when its session has been kept */
    struct session_ending *ending; /* NULL: it ends none */
};

/* A request that ends a session. */
struct session_ending {
    struct list in_engine;
    uint64_t freed;  /* what shards have freed with it */
    struct buf name; /* of the session: account, 0, id */
};

/* Messages on their way from one group to another, while this node leads the first: soft state,
 * what is not taken after a while is sent again. */
struct carried {
    uint64_t sent, confirmed; /* numbers */
    uint64_t at_ms;           /* of the caller's clock, when something was last sent */
};

/* One shard: its state, and its time as this node would stamp it. */
struct engine_group {
    struct machine *machine;
    uint64_t clock_ms;     /* of the caller's clock when now_ms was set */
    uint64_t now_ms;       /* state-machine time */
    struct remaining late; /* the same, as the leader says */
    uint64_t
        tick_ms; /* of the caller's clock, when a tick was submitted; 0: none is on its way */
    struct carried out, in; /* shards: messages from group 0, and to it */
};

/* Which group a namespace is in; len 0: nothing is kept here. */
struct route {
    unsigned char name[LIMIT_ACCOUNT_BYTES + 1 + LIMIT_NAMESPACE_BYTES];
    size_t len, group;
};

/* A session that was kept for somebody at this node. */
struct kept_session {
    uint64_t number;
    uint64_t asked_ms; /* of the caller's clock: it was kept after that */
    uint64_t now_ms;   /* of group 0, when it was */
    uint64_t ttl_ms;
    size_t len, account_len; /* of its id; 0: nothing is kept here */
    char id[LIMIT_SESSION_BYTES], account[LIMIT_ACCOUNT_BYTES];
};

struct engine {
    struct order *order;
    struct feed *feed;
    uint64_t (*clock_ms)(void *ctx);
    void *clock_ctx;
    struct engine_group *groups;
    struct asker_slot **slots; /* the first is never used */
    uint32_t n_slots, cap_slots, first_free;
    struct map by_count; /* those that are not free, by the count in the ask's number */
    uint64_t count;      /* of the last ask */
    unsigned count_bits; /* engine_config */
    bool by_number;
    unsigned batch;
    uint64_t targets;
    bool delivering;    /* answers are being given: nothing may be submitted now */
    struct list held;   /* answers that wait until messages are taken: router.c */
    struct list ending; /* of struct session_ending */
    struct route routes[ROUTES_KEPT];
    struct kept_session *kept; /* SESSIONS_KEPT, by hash; NULL at first */
    struct ask keeper;         /* a keep-alive of the server itself that is on its way */
    uint64_t detached_ms; /* of the caller's clock, when a connection here last let one go */
    struct effects fx;
    uint64_t work; /* engine_work() */
};

uint64_t engine_clock(const struct engine *e);
struct asker_slot *engine_slot(struct engine *e,
                               uint64_t id);         /* NULL: nobody asked this node */
void engine_deliver(struct engine *e, size_t group); /* e->fx */

/* router.c: what several groups do together. When there is one, it only holds answers. */
size_t router_route(struct engine *e, struct op *op); /* the group for this op */
/* Before an op of this node is ordered. Keep first, then act: true when it waits until its session
 * has been kept. */
bool router_keep(struct engine *e, size_t group, struct op *op);
/* Waits for the answer of an op that no client asked for, to know what was kept; or NULL. One at
 * a time is enough: sessions of a second batch are kept when they are used. */
struct ask *router_keeper(struct engine *e, const struct op *op);
void router_applied(struct engine *e, size_t group,
                    const struct op *op); /* before its answers */
void router_forget(struct engine *e);     /* what was kept counts no more */
/* Messages must be taken, or a session end, before the answer is true: then it is kept. */
bool router_hold(struct engine *e, size_t group, const struct asker_slot *s,
                 const struct event *ev);
void router_count(struct engine *e, size_t group, const struct event *ev);
void router_fill(struct engine *e, const struct op *op); /* rows of group 0 */
uint64_t router_next_ms(struct engine *e);
void router_close(struct engine *e);
#endif
