/* refusal.h - which node does not listen to which, and why: for operators, and as proof for a
 * node that was removed. No sockets. */
#ifndef BELAY_NET_REFUSAL_H
#define BELAY_NET_REFUSAL_H

#include "net/peer.h"
#include "raft/place.h"
#include "raft/replica.h"

enum { REFUSAL_TEXT_MAX = PEER_TEXT_MAX + 128 };

struct refusal {
    uint64_t node;
    struct peer_refusal no; /* without a reason: there is none */
    uint64_t at_ms;         /* the last time */
    uint64_t say_ms;        /* not before that the log says the same again */
    uint64_t times;         /* since it has */
};

struct refusals {
    struct refusal by_us[NODE_PLACES]; /* by place: this one does not listen to it */
    struct refusal of_us[NODE_PLACES]; /* by place: it does not listen to this one */
};

void refusal_by_us(struct refusals *r, const struct peer_hello *hello, const char *event,
                   const struct peer_refusal *no, uint64_t now_ms);
void refusal_of_us(struct refusals *r, uint64_t node, const struct peer_refusal *no,
                   uint64_t now_ms);
/* It is over. */
void refusal_clear(struct refusal by_place[NODE_PLACES], uint64_t node);

/* One voice proves nothing: a node that came back may not know the newest members yet. But most
 * of the voters that this node knows cannot all be wrong about what is committed. */
bool refusal_proves_removed(const struct refusals *r, struct replica *o, uint64_t self);
/* The same of another process that is this node now: what was committed, most have. */
bool refusal_proves_over(const struct refusals *r, struct replica *o, uint64_t self);

/* Why this node cannot serve: a leader does not listen to it, or most do not. NULL: it can. */
const char *refusal_not_ready(const struct refusals *r, struct replica *o, uint64_t self);
/* What is between this node and that one; empty: nothing. */
void refusal_problem(const struct refusals *r, uint64_t node, uint64_t now_ms,
                     char ret[REFUSAL_TEXT_MAX]);
#endif
