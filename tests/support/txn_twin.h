/* txn_twin.h - transactions as slowly and simply as possible: the oracle of model_txn.c.
 *
 * The whole state is one plain struct. A transaction works on a copy of it: when it holds, the
 * copy becomes the state, else it is thrown away. After every step all waiting transactions are
 * tried again, by ticket, until none of them gets on: no watching, no undo log, no plan. */
#ifndef BELAY_TESTS_TXN_TWIN_H
#define BELAY_TESTS_TXN_TWIN_H

#include "base/buf.h"
#include "choice.h"
#include "machine/op.h"
#include "machine/program.h"

enum {
    TT_SESSIONS = 4,
    TT_TABLES = 2,
    TT_KEYS = 3,
    TT_LOCKS = 2,
    TT_OWNERS = 2,
    TT_VALUES = 3,
    TT_NODES = 48,
    TT_TOP = 5,
    TT_ROWS = 64,
    TT_PARKED = 24,
    TT_HOLDS = 16,
    TT_ROW_BYTES = 160,
};

/* A statement or operator, with its parts by number. */
struct tt_node {
    enum program_node kind;
    int kids[3], n;
    int table, key, value; /* value -1: none */
    bool mine, need, many, dup, respect;
    uint64_t ttl_ms;
    int lock, owner;
    enum lock_mode mode;
    uint64_t permits, of, fence;
};

struct tt_txn {
    struct tt_node nodes[TT_NODES];
    int n, top[TT_TOP], n_top;
    int session;
    uint64_t wait_ms;
    uint64_t work_max; /* it may cost so much */
    /* when it waits */
    uint64_t asker, ticket, deadline_ms;
};

struct tt_record {
    int session, value;
    bool exclusive;
    uint64_t set_ms, ttl_ms, number; /* number 0: of the transaction that runs */
    int fresh;                       /* its place among those, from 1 */
};

struct tt_hold {
    int owner, session;             /* session -1: none */
    uint64_t weight, fence, end_ms; /* end 0: none */
};

struct tt_state {
    uint64_t now_ms, counter;
    struct {
        bool lives;
        uint64_t number, end_ms;
    } sessions[TT_SESSIONS];
    struct tt_record slots[TT_TABLES][TT_KEYS][TT_SESSIONS];
    int n_records[TT_TABLES][TT_KEYS];
    struct tt_hold holds[TT_LOCKS][TT_HOLDS];
    int n_holds[TT_LOCKS];
    uint64_t capacity[TT_LOCKS]; /* 0: of no kind */
    int n_fresh;
};

struct tt {
    struct tt_state s;
    struct tt_txn parked[TT_PARKED]; /* by ticket */
    int n_parked;
    struct buf said; /* the answers of the step: "3:ok x=1;" */
};

enum { TT_SESSION_TTL_MS = 300 };

/* Draws a transaction; its JSON is appended to `json`. */
void tt_draw(struct choice *c, const struct tt *t, struct tt_txn *ret, struct buf *json);

void tt_advance(struct tt *t, uint64_t now_ms); /* ends, then those who wait */
void tt_session(struct tt *t, int session, bool open, uint64_t asker);
void tt_txn(struct tt *t, const struct tt_txn *txn, uint64_t asker);
void tt_acquire(struct tt *t, int lock, const struct tt_hold *want, uint64_t asker);
void tt_release(struct tt *t, int lock, int owner, int session, uint64_t asker);
void tt_cancel(struct tt *t, uint64_t asker);
/* Everything that is set and held, as text. */
void tt_show(const struct tt *t, struct buf *out);

uint64_t tt_weight(enum lock_mode mode, uint64_t permits);
#define TT_WHOLE 1000000000u /* the weight of an exclusive hold */
#endif
