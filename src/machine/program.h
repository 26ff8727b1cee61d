/* program.h - the statements of a transaction as bytes: written by the command layer from JSON,
 * carried in op.program, walked by txn.c. Versioned; never trusted before program_check().
 *
 *   program   = version, number of statements, statement *
 *   statement = ASSERT op | ABORT | BLOCK n statement* | ANYWAY op | SELECT var | ...
 *               IF op, bytes of then (4), statement, bytes of else (4), statement or nothing
 *   op        = TRUE | FALSE | NOT op | AND n op* | OR n op* | XOR n op* | EXISTS var | ...
 *
 * A node is one byte and then its fields; the branches of IF have their length before them, so
 * that the one not taken is skipped without reading it. Values are canonical JSON: the machine
 * compares bytes. */
#ifndef BELAY_MACHINE_PROGRAM_H
#define BELAY_MACHINE_PROGRAM_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "machine/op.h"
#include "machine/varint.h"

#include <stdint.h>

/* X(ID, word in JSON, name in the path of a failed statement). Numbers are part of the format:
 * add at the end of a group's gap only. */
#define PROGRAM_NODE_MAP(X)                                                                    \
    X(ASSERT, 1, "assert", "AssertOp")                                                         \
    X(ABORT, 2, "abort", "AbortOp")                                                            \
    X(BLOCK, 3, "block", "BlockOp")                                                            \
    X(IF, 4, "if", "IfOp")                                                                     \
    X(ANYWAY, 5, "anyway", "AnywayContinueAfterOp")                                            \
    X(SELECT_CONSTANT, 6, "select_constant", "SelectConstantValueOp")                          \
    X(SELECT_OPERATOR, 7, "select_operator", "SelectOperatorValueOp")                          \
    X(SELECT, 8, "select", "SelectVarValueOp")                                                 \
    X(TRUE, 32, "true", "TrueOp") /* from here on: operators */                                \
    X(FALSE, 33, "false", "FalseOp")                                                           \
    X(NOT, 34, "not", "NotOp")                                                                 \
    X(AND, 35, "and", "AndOp")                                                                 \
    X(OR, 36, "or", "OrOp")                                                                    \
    X(XOR, 37, "xor", "XorOp")                                                                 \
    X(EXISTS, 38, "exists", "ExistsOp")                                                        \
    X(SET, 39, "set", "SetVarOp")                                                              \
    X(DELETE, 40, "delete", "DeleteVarOp")                                                     \
    X(LOCK, 41, "lock", "LockOp")                                                              \
    X(UNLOCK, 42, "unlock", "UnlockOp")

enum program_node {
    NODE_NONE,
#define X(id, number, word, name) NODE_##id = (number),
    PROGRAM_NODE_MAP(X)
#undef X
};

enum {
    PROGRAM_OPERANDS_MAX = 64, /* of one AND, OR, XOR */
    PROGRAM_LENGTH_BYTES = 4,  /* before a branch of IF */
};

const char *program_word(enum program_node node); /* "select_constant" */
const char *program_name(enum program_node node); /* "SelectConstantValueOp" */
/* The node with that word, NODE_NONE: there is none. */
enum program_node program_node(struct slice word);
/* Every operator and SELECT that touches something, also in branches that are not taken: `name`
 * is a lock's, or empty for a variable. The program has passed program_check(). */
void program_each(struct slice program,
                  void (*each)(void *ctx, enum program_node node, struct slice name),
                  void *ctx);

enum var_flag {
    VAR_HAS_VALUE = 1,
    VAR_IGNORE_THIS_SESSION = 2, /* EXISTS, SELECT */
    VAR_ALLOW_DUPLICATES = 4,    /* SET */
    VAR_RESPECT_EXCLUSIVE = 8, /* SET: with ALLOW_DUPLICATES, not beside an exclusive record */
    VAR_ABORT_IF_NOT_FOUND = 16, /* SELECT */
    VAR_MANY = 32,               /* SELECT */
};

/* EXISTS, SET, DELETE, SELECT. */
struct program_var {
    uint64_t flags;
    struct slice table, key;
    struct slice value;       /* with VAR_HAS_VALUE */
    struct slice description; /* SET; empty: the transaction's, then the session's */
    uint64_t ttl_ms;          /* SET; 0: as long as its session */
    struct slice into;        /* SELECT */
};

/* LOCK, UNLOCK. */
struct program_lock {
    struct slice name;
    struct slice owner; /* UNLOCK: may be empty, with a fence */
    uint64_t fence;     /* UNLOCK */
    uint64_t mode, permits, of;
#define X(field, parameter, max, what) uint64_t field;
    LEASE_TERM_MAP(X)
#undef X
    struct slice into; /* LOCK: the name of its fence in the data */
};

/* Writing. A container is followed by its parts. */
void program_begin(struct buf *out, size_t n_statements);
void program_put(struct buf *out, enum program_node node);
void program_put_count(struct buf *out, enum program_node node, size_t n); /* BLOCK, AND, ... */
void program_put_var(struct buf *out, enum program_node node, const struct program_var *v);
void program_put_lock(struct buf *out, enum program_node node, const struct program_lock *l);
void program_put_constant(struct buf *out, struct slice into, struct slice value);
void program_put_into(struct buf *out, struct slice into); /* behind SELECT_OPERATOR */
/* A branch of IF: write it between the two; an IF without else has an empty branch. */
size_t program_branch(struct buf *out);
void program_branch_end(struct buf *out, size_t branch);

/* Reading: what stands behind the node. After program_check() it cannot go bad. */
void program_get_var(struct reader *r, enum program_node node, struct program_var *ret);
void program_get_lock(struct reader *r, enum program_node node, struct program_lock *ret);
struct slice program_get_branch(struct reader *r);
/* Past the version; the number of statements that follow. */
uint64_t program_get_begin(struct reader *r);

/* Is it a whole program within all limits? BELAY_ERR_RANGE for a limit, BELAY_ERR_SYNTAX for
 * the rest, with *ret_what a static text. */
BELAY_MUST_CHECK enum belay_err program_check(struct slice program, const char **ret_what);
#endif
