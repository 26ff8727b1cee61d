/* belay_txn.h - transactions over variables and locks, written as C expressions.
 *
 *   const struct belay_txn mds_enter = {
 *       .description = "MDS Entry for Zak Pak@'Cherry Grove'",
 *       .min_trust = 0.5,
 *       .statements = belay_statements(
 *           belay_assert(belay_not(belay_exists("Month-End", "CGROVE-35"))),
 *           belay_assert(belay_not(belay_exists("MDS-Review", "CGROVE-35", "R-45899"))),
 *           belay_assert(belay_set("MDS-Entry", "CGROVE-35", "R-45899",
 *                                  .allow_duplicates = true))),
 *   };
 *   struct belay_txn_result r;
 *   int err = belay_txn(b, &mds_enter, &r);
 *   if (err == BELAY_E_OK && r.status == BELAY_TXN_ERROR)
 *       printf("not now: %s\n", r.failed);                        // 1:/AssertOp/
 *
 * A transaction happens as a whole or not at all. docs/TRANSACTIONS.md describes every
 * statement and operator. The macros below make compound literals of C11, which live as long as
 * the block that contains them: so write the transaction where you send it. Its namespace is
 * the handle's, and so is its session unless another one is named. */
#ifndef BELAY_TXN_H
#define BELAY_TXN_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

enum belay_op_kind {
    BELAY_OP_ASSERT = 1, /* statements */
    BELAY_OP_ABORT,
    BELAY_OP_BLOCK,
    BELAY_OP_IF,
    BELAY_OP_ANYWAY,
    BELAY_OP_SELECT_CONSTANT,
    BELAY_OP_SELECT_OPERATOR,
    BELAY_OP_SELECT,
    BELAY_OP_TRUE, /* operators */
    BELAY_OP_FALSE,
    BELAY_OP_NOT,
    BELAY_OP_AND,
    BELAY_OP_OR,
    BELAY_OP_XOR,
    BELAY_OP_EXISTS,
    BELAY_OP_SET,
    BELAY_OP_DELETE,
    BELAY_OP_LOCK,
    BELAY_OP_UNLOCK,
};

/* One statement or operator. Use the macros below rather than this. */
struct belay_op {
    enum belay_op_kind kind;
    const char *table, *key;       /* a variable */
    const char *value;             /* text; EXISTS, DELETE: NULL is any */
    const char *json;              /* or any other JSON, in place of value */
    const char *description;       /* SET; NULL: the transaction's, then the session's */
    int64_t ttl_ms;                /* SET, LOCK; 0: as long as the session */
    bool allow_duplicates;         /* SET: join the records of others, or replace the own one */
    bool respect_exclusive;        /* SET: but do not join one that was set exclusively */
    bool with_this_session;        /* EXISTS, SELECT: records of this session count, too */
    bool abort_if_not_found, many; /* SELECT */
    const char *into;              /* SELECT..., LOCK: the name in the data */
    const char *name, *owner;      /* LOCK, UNLOCK; owner NULL: the session's id */
    uint64_t fence;                /* UNLOCK: by fence */
    enum belay_mode mode;          /* LOCK */
    unsigned permits, of;          /* LOCK: a semaphore */
    const struct belay_op *a, *b, *c;   /* operands; IF: condition, then, else */
    const struct belay_op *const *list; /* BLOCK; ends with NULL */
};

#define belay_op(...)  (&(const struct belay_op){__VA_ARGS__})
#define belay_ops(...) ((const struct belay_op *const[]){__VA_ARGS__, NULL})

#define belay_statements(...) belay_ops(__VA_ARGS__)
#define belay_assert(op)      belay_op(.kind = BELAY_OP_ASSERT, .a = (op))
#define belay_abort()         belay_op(.kind = BELAY_OP_ABORT)
#define belay_block(...)      belay_op(.kind = BELAY_OP_BLOCK, .list = belay_ops(__VA_ARGS__))
#define belay_if(cond, then, otherwise)                                                        \
    belay_op(.kind = BELAY_OP_IF, .a = (cond), .b = (then), .c = (otherwise))
#define belay_anyway(op) belay_op(.kind = BELAY_OP_ANYWAY, .a = (op))
#define belay_select_constant(name_, ...)                                                      \
    belay_op(.kind = BELAY_OP_SELECT_CONSTANT, .into = (name_), .value = __VA_ARGS__)
#define belay_select_operator(name_, op)                                                       \
    belay_op(.kind = BELAY_OP_SELECT_OPERATOR, .into = (name_), .a = (op))
/* belay_select("who", "table", "key", .many = true) */
#define belay_select(name_, table_, ...)                                                       \
    belay_op(.kind = BELAY_OP_SELECT, .into = (name_), .table = (table_), .key = __VA_ARGS__)

#define belay_true()    belay_op(.kind = BELAY_OP_TRUE)
#define belay_false()   belay_op(.kind = BELAY_OP_FALSE)
#define belay_not(op)   belay_op(.kind = BELAY_OP_NOT, .a = (op))
#define belay_and(x, y) belay_op(.kind = BELAY_OP_AND, .a = (x), .b = (y))
#define belay_or(x, y)  belay_op(.kind = BELAY_OP_OR, .a = (x), .b = (y))
#define belay_xor(x, y) belay_op(.kind = BELAY_OP_XOR, .a = (x), .b = (y))
/* table, key, then the value (or not), then options: belay_exists("t", "k", "v") */
#define belay_exists(...) belay_op(.kind = BELAY_OP_EXISTS, .table = __VA_ARGS__)
#define belay_set(...)    belay_op(.kind = BELAY_OP_SET, .table = __VA_ARGS__)
#define belay_delete(...) belay_op(.kind = BELAY_OP_DELETE, .table = __VA_ARGS__)
/* name, owner (or not), then options: belay_lock("facility", .mode = BELAY_SHARED) */
#define belay_lock(...)   belay_op(.kind = BELAY_OP_LOCK, .name = __VA_ARGS__)
#define belay_unlock(...) belay_op(.kind = BELAY_OP_UNLOCK, .name = __VA_ARGS__)

struct belay_txn {
    const char *session; /* NULL: that of the handle */
    const char *description;
    int64_t wait_ms;       /* an assert that fails is waited for; 0: fail at once */
    unsigned min_uptime_s; /* the server refuses if it has not been up for this long */
    double min_trust;      /* 0..1; 0: any */
    const struct belay_op *const *statements; /* NULL: a ping of the session */
};

enum belay_txn_status { BELAY_TXN_OK, BELAY_TXN_ERROR, BELAY_TXN_TIMED_OUT };

/* Borrowed until the next call on the handle. */
struct belay_txn_result {
    enum belay_txn_status status;
    const char *cause;  /* "statement", "session", "requirements"; "" when it is OK */
    const char *failed; /* "1:/AssertOp/"; "" when none did */
    int64_t uptime_s;
    double trust, norm;
    const struct belay_reply *data; /* a list of [name, JSON] in the order of selection */
};

/* Sends it and waits for the outcome, wait_ms included. A transaction that did not happen is
 * not a failure: the call returns BELAY_E_OK and ret_r->status says so. BELAY_E_USAGE: the tree
 * is incomplete.
 * After a failure of the call ret_r->status is BELAY_TXN_ERROR, without a cause.
 * While a transaction waits, later answers on this connection wait behind it; leases are kept
 * through a second one meanwhile. */
BELAY_API int belay_txn(struct belay *b, const struct belay_txn *txn,
                        struct belay_txn_result *ret_r);
/* The same from JSON text as docs/TRANSACTIONS.md has it. */
BELAY_API int belay_txn_json(struct belay *b, const char *json, int64_t wait_ms,
                             struct belay_txn_result *ret_r);
/* The JSON of the first value selected into `name`; NULL: there is none. */
BELAY_API const char *belay_txn_value(const struct belay_txn_result *r, const char *name);

#ifdef __cplusplus
}
#endif
#endif
