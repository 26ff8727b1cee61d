/* budget.h - the memory of the process: one limit, and parts with a share of it each.
 *
 *   state     everything that is in none of the others: locks, lines, sessions, variables, the
 *             log. Above its share new things are refused with OVERLOADED; what makes room, and
 *             what only keeps (RENEW, KEEPALIVE), is served.
 *   output    replies that are not sent. Above its share pages and transactions are
 *             refused, and the connections with the most of it are closed.
 *   input     requests that are not whole. Above its share they are refused.
 *   watchers  news that are not sent: as output.
 *   peers     what is on its way between nodes.
 *
 * The whole is counted at the allocator (base/tally.h); output, input, watchers and peers
 * report what they have, and the state is the rest. */
#ifndef BELAY_SERVER_BUDGET_H
#define BELAY_SERVER_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

/* X(ID, "name in the metrics", sixteenths of the limit) */
#define BUDGET_PART_MAP(X)                                                                     \
    X(STATE, "state", 10)                                                                      \
    X(OUTPUT, "output", 2)                                                                     \
    X(INPUT, "input", 2)                                                                       \
    X(WATCHERS, "watchers", 1)                                                                 \
    X(PEERS, "peers", 1)

enum budget_part {
#define X(id, name, sixteenths) BUDGET_##id,
    BUDGET_PART_MAP(X)
#undef X
        BUDGET_PARTS
};

enum { BUDGET_RESERVE_BYTES = 1 << 20 }; /* base/tally.h */

struct budget {
    size_t limit;
    size_t parts[BUDGET_PARTS]; /* as reported; not the state */
};

/* limit 0: three fifths of what this process may have (cgroup, ulimit -v, the machine): what
 * makes a snapshot needs as much as the state once more. */
void budget_init(struct budget *b, size_t limit);
void budget_tend(void); /* once a second */
size_t budget_share(const struct budget *b, enum budget_part part);
size_t budget_used(const struct budget *b, enum budget_part part);
/* No room in this part. */
bool budget_is_full(const struct budget *b, enum budget_part part);
/* Above fifteen sixteenths of its share: the next request may be refused, or be the last one
 * that fits. */
bool budget_is_nearly_full(const struct budget *b, enum budget_part part);
/* The part had `was` bytes from somebody and has `is` now. */
void budget_report(struct budget *b, enum budget_part part, size_t was, size_t is);
/* Does it need memory that stays? */
bool budget_is_growth(const struct call *call);
const char *budget_part_name(enum budget_part part);
#endif
