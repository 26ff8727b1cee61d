/* random_ops.h - random valid ops over few names, owners and sessions, so that they collide.
 *
 * Every run draws its own mix first (swarm testing): which kinds of op, which options, how fast
 * time moves. A uniform mix hardly ever builds a long line or a deep cycle. */
#ifndef BELAY_TESTS_RANDOM_OPS_H
#define BELAY_TESTS_RANDOM_OPS_H

#include "choice.h"
#include "machine/event.h"
#include "machine/op.h"

struct twin;

enum { OPGEN_COUNT_BITS = 2, OPGEN_COUNTS = 1 << OPGEN_COUNT_BITS };
enum { OPGEN_SEEN = 16, OPGEN_NAME_BYTES = 16, OPGEN_SENT_BYTES = 256, OPGEN_NODES = 3 };

struct random_ops {
    struct choice *c; /* borrowed */
    uint64_t now_ms, asker;
    unsigned weights[OP_KIND_COUNT];
    unsigned names, owners, sessions, spaces; /* how many of each are in use */
    unsigned hurry;                           /* how fast time moves: 0 slowly .. 3 in leaps */
    unsigned long_ttls, options;              /* 0 .. 3: how often */
    uint64_t mass_names, mass_owners;         /* not 0: they come from a space of this size */
    struct random_ops_seen { /* the latest grants and askers, to be used again */
        char ns[OPGEN_NAME_BYTES], name[OPGEN_NAME_BYTES];
        uint64_t fence, asker;
    } seen[OPGEN_SEEN];
    size_t n_seen;
    struct slice more[LIMIT_NAMES_PER_OP]; /* of the op that was made last */
    char text[LIMIT_NAMES_PER_OP + 1][OPGEN_NAME_BYTES];
    char owner[OPGEN_NAME_BYTES];
    unsigned requests; /* 0 .. 3: how often one has an id */
    uint64_t runs[OPGEN_NODES];
    struct random_ops_sent { /* the latest requests with an id, to be sent again or called off
                              */
        uint64_t asker;
        size_t len;
        char bytes[OPGEN_SENT_BYTES];
    } sent[OPGEN_SEEN];
    size_t n_sent;
    char request[OPGEN_NAME_BYTES];
    const struct twin *twin; /* random_ops_repeat(); or NULL */
    uint64_t last[OPGEN_NODES]
                 [OPGEN_COUNTS]; /* who had the number last, with its whole count */
    struct random_ops_ask { /* the latest that may have to wait, with all of a cancel of it */
        uint64_t asker;
        size_t len;
        char cancel[OPGEN_SENT_BYTES];
    } asks[OPGEN_SEEN];
    size_t n_asks;
};

void random_ops_init(struct random_ops *g, struct choice *c);
/* From now on asks of a node differ in the lowest OPGEN_COUNT_BITS of their counts only as long
 * as they wait, as `twin` (borrowed) knows it: for who compares no more than these, numbers
 * come again all the time. A cancel says all that the engine says, and comes while its number
 * is still that of its ask. */
void random_ops_repeat(struct random_ops *g, const struct twin *twin);
/* The next write, or with `read` the next read; valid by op_validate(). Slices live until the
 * next call. */
void random_ops_next(struct random_ops *g, bool read, struct op *ret_op);
void random_ops_saw(struct random_ops *g,
                    const struct event *ev); /* remembers fences and askers */
#endif
