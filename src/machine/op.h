/* op.h - what can be asked of the state machine, and its versioned binary form.
 *
 * An op is complete: everything that decides its outcome is in it, also the time and every
 * random choice. Its order sets `index` and `now_ms`; the rest comes from the command. All
 * slices are borrowed. A field that is zero or empty is absent. */
#ifndef BELAY_MACHINE_OP_H
#define BELAY_MACHINE_OP_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Limits, each with a name: what is refused says which one (docs/PROTOCOL.md has the table). */
enum {
    LIMIT_NAME_BYTES = 512,
    LIMIT_OWNER_BYTES = 128,
    LIMIT_BODY_BYTES = 65536,
    LIMIT_NAMESPACE_BYTES = 128,
    LIMIT_ACCOUNT_BYTES = 128,
    LIMIT_DESCRIPTION_BYTES = 1024,
    LIMIT_SESSION_BYTES = 64,
    LIMIT_REQUEST_BYTES = 64, /* a request's id */
    LIMIT_PERMITS = 1000000,
    LIMIT_NAMES_PER_OP = 64,
    LIMIT_BATCH_SESSIONS = 4096,
    LIMIT_TTL_MS = 7 * 24 * 3600 * 1000,
    LIMIT_WAIT_MS = 7 * 24 * 3600 * 1000,
    LIMIT_GRACE_MS = 7 * 24 * 3600 * 1000,
    LIMIT_LINGER_MS = 24 * 3600 * 1000,
    LIMIT_DELAY_MS = 10 * 60 * 1000,
    LIMIT_QUIET_MS = 10 * 60 * 1000,
    LIMIT_HOLDERS = 10000,       /* of one lock */
    LIMIT_WAITERS = 100000,      /* of one lock */
    LIMIT_SESSION_ITEMS = 10000, /* holds and waits of one session */
    LIMIT_SESSIONS = 1000000,
    LIMIT_NAMESPACES = 10000,   /* of one account */
    LIMIT_LOCKS = 16 * 1000000, /* of one namespace */
    LIMIT_LIST = 1000,          /* rows of one page */
    LIMIT_LIST_BYTES = 1 << 20, /* a page with this much in it is cut short: ask for the next */
    LIMIT_CYCLE = 16,           /* steps of a deadlock that are named */
    LIMIT_TABLE_BYTES = 128,    /* a table's name; a key is as long as a lock's name */
    LIMIT_INTO_BYTES = 128,     /* the name of a selected value */
    LIMIT_VALUE_BYTES = 65536,
    LIMIT_TABLES = 10000,             /* of one namespace */
    LIMIT_VARIABLES = 16 * 1000000,   /* of one namespace: records in all its tables */
    LIMIT_RECORDS = 10000,            /* of one variable: sessions that share it */
    LIMIT_SESSION_VARIABLES = 100000, /* of one session: it ends in one step */
    LIMIT_PROGRAM_BYTES = 1024 * 1024,
    LIMIT_TXN_DEPTH = 64,
    LIMIT_TXN_STATEMENTS = 256, /* all of them, also those in blocks and branches */
    LIMIT_TXN_OPERATORS = 4096,
    LIMIT_TXN_LOCKS = 64,    /* taken or given back by one transaction */
    LIMIT_TXN_WORK = 100000, /* operators, statements, and the records they look at */
    LIMIT_TXN_DATA_BYTES = 8 * 1024 * 1024,     /* what it may select below LEVEL_PARTS */
    LIMIT_TXN_WAITING = 10000,                  /* of one namespace */
    LIMIT_TXN_WAITING_BYTES = 64 * 1024 * 1024, /* of one namespace: their programs */
    LIMIT_GROUPS = 65,        /* the first knows the namespaces, the others are shards */
    LIMIT_OUTBOX = 1000000,   /* from one group to another, not taken yet */
    LIMIT_RECEIPTS = 1 << 19, /* requests with an id whose answers are kept, of one machine */
    LIMIT_RECEIPT_BYTES = 64 * 1024 * 1024, /* and the bytes of them */
    LIMIT_SKIP = 1 << 30,                   /* numbers that a TICK skips */
    LIMIT_ACCOUNTS = 10000,
    LIMIT_TOKENS = 1000, /* of one account */
    LIMIT_EMAIL_BYTES = 254,
    LIMIT_FULL_NAME_BYTES = 128,
    LIMIT_REASON_BYTES = 256, /* of a break, as its caller gave it */
    ACCOUNT_ID_BYTES = 16,
    LIMIT_OVERLAP_MS = 7 * 24 * 3600 * 1000, /* both secrets of a token count so long */
    TTL_DEFAULT_MS = 30000,
    SESSION_TTL_DEFAULT_MS = 60000,
};

/* What is true of a kind of op. What is not at home and not everywhere is in the group of its
 * namespace. */
enum op_trait {
    KIND_READS = 1,      /* answered from the applied state; all others go through the order */
    KIND_AT_HOME = 2,    /* in group 0: sessions, which namespaces there are, accounts */
    KIND_EVERYWHERE = 4, /* in each group */
    KIND_OF_HOLD = 8,    /* done by a holder, or by a client that will be one */
    KIND_HAS_ID = 16,    /* changes something, once: it may have a request id */
    KIND_MAY_LAST = 32,  /* its client may go before it is over */
    KIND_OF_ACCOUNT = 64 | KIND_AT_HOME, /* about accounts and tokens */
};

/* X(ID, "word", traits). The order is that of the stored numbers (numbers.c); reads come last.
 *
 *   TICK        carries now_ms; `fence`: so many numbers are skipped (repair)
 *   CANCEL      the asker in `target` is gone: cancel_request()
 *   TXN         statements over variables and locks, all or none
 *   SESSION_ENROL    the session will be used in the group `target`
 *   MESSAGES    messages from the group `target`; `fence`: the number of the first
 *   TAKEN       the group `target` has taken the messages up to number `fence`
 *   LEVEL       the rules of the level `target` hold from here on (level.h)
 *   NODE        the node of `target` is not heard (OP_AWAY), or is heard again
 *   AUTH_INIT   the first token; from here on all must log in. AUTH_RESET: until AUTH_INIT
 *               nobody has to
 *   ACCOUNT_CREATE   name: email, owner: full name, body: limits. ACCOUNT_UPDATE: the same;
 *               what is absent stays
 *   ACCOUNT_SHOW     `account`; empty: the asker's own
 *   TOKEN_...   name: id; CREATE: owner: sum, body: rules; ROTATE: owner: new sum, until_ms: of
 *               the old one; USED: wall_ms: when, to the hour; LIST: of `account`
 *   LOGIN       name: id, owner: sum, wall_ms: now
 *   TABLE_SHOW  the variables of one table, oldest first
 *   FIND        locks by what they are: struct found_row
 *   HOLDERS     of one lock, behind the fence `fence`. WAITERS: behind the ticket `fence`
 *   SESSION_ITEMS    of kind `mode`; behind number `fence` in `target` */
#define OP_KIND_MAP(X)                                                                         \
    X(TICK, "tick", KIND_EVERYWHERE)                                                           \
    X(ACQUIRE, "acquire", KIND_OF_HOLD | KIND_HAS_ID | KIND_MAY_LAST)                          \
    X(RELEASE, "release", KIND_OF_HOLD | KIND_HAS_ID)                                          \
    X(RENEW, "renew", KIND_OF_HOLD | KIND_HAS_ID)                                              \
    X(CONVERT, "convert", KIND_OF_HOLD | KIND_HAS_ID | KIND_MAY_LAST)                          \
    X(BODY, "body", KIND_OF_HOLD | KIND_HAS_ID)                                                \
    X(BREAK, "break", KIND_HAS_ID)                                                             \
    X(CANCEL, "cancel", KIND_EVERYWHERE | KIND_HAS_ID)                                         \
    X(SESSION_OPEN, "session-open", KIND_AT_HOME | KIND_HAS_ID)                                \
    X(SESSION_ATTACH, "session-attach", KIND_AT_HOME | KIND_MAY_LAST)                          \
    X(SESSION_DETACH, "session-detach", KIND_AT_HOME)                                          \
    X(SESSION_KEEPALIVE, "session-keepalive", KIND_AT_HOME)                                    \
    X(SESSION_CLOSE, "session-close", KIND_AT_HOME | KIND_HAS_ID)                              \
    X(NAMESPACE_CREATE, "namespace-create", KIND_AT_HOME | KIND_HAS_ID)                        \
    X(NAMESPACE_UPDATE, "namespace-update", KIND_AT_HOME | KIND_HAS_ID)                        \
    X(NAMESPACE_DELETE, "namespace-delete", KIND_HAS_ID)                                       \
    X(TXN, "txn", KIND_HAS_ID | KIND_MAY_LAST)                                                 \
    X(SESSION_ENROL, "session-enrol", KIND_AT_HOME)                                            \
    X(MESSAGES, "messages", KIND_EVERYWHERE)                                                   \
    X(TAKEN, "taken", KIND_EVERYWHERE)                                                         \
    X(LEVEL, "level", KIND_EVERYWHERE)                                                         \
    X(NODE, "node", KIND_EVERYWHERE)                                                           \
    X(AUTH_INIT, "auth-init", KIND_OF_ACCOUNT)                                                 \
    X(AUTH_RESET, "auth-reset", KIND_OF_ACCOUNT)                                               \
    X(ACCOUNT_CREATE, "account-create", KIND_OF_ACCOUNT)                                       \
    X(ACCOUNT_UPDATE, "account-update", KIND_OF_ACCOUNT)                                       \
    X(ACCOUNT_DELETE, "account-delete", KIND_OF_ACCOUNT)                                       \
    X(TOKEN_CREATE, "token-create", KIND_OF_ACCOUNT)                                           \
    X(TOKEN_ROTATE, "token-rotate", KIND_OF_ACCOUNT)                                           \
    X(TOKEN_REVOKE, "token-revoke", KIND_OF_ACCOUNT)                                           \
    X(TOKEN_USED, "token-used", KIND_OF_ACCOUNT)                                               \
    X(CHECK, "check", KIND_READS)                                                              \
    X(SHOW, "show", KIND_READS)                                                                \
    X(LIST, "list", KIND_READS)                                                                \
    X(SESSION_SHOW, "session-show", KIND_READS | KIND_AT_HOME)                                 \
    X(SESSION_LIST, "session-list", KIND_READS | KIND_AT_HOME)                                 \
    X(NAMESPACE_SHOW, "namespace-show", KIND_READS | KIND_AT_HOME)                             \
    X(NAMESPACE_LIST, "namespace-list", KIND_READS | KIND_AT_HOME)                             \
    X(TABLE_LIST, "table-list", KIND_READS)                                                    \
    X(TABLE_SHOW, "table-show", KIND_READS)                                                    \
    X(ACCOUNT_SHOW, "account-show", KIND_READS | KIND_OF_ACCOUNT)                              \
    X(ACCOUNT_LIST, "account-list", KIND_READS | KIND_OF_ACCOUNT)                              \
    X(TOKEN_LIST, "token-list", KIND_READS | KIND_OF_ACCOUNT)                                  \
    X(LOGIN, "login", KIND_READS | KIND_OF_ACCOUNT)                                            \
    X(FIND, "find", KIND_READS)                                                                \
    X(HOLDERS, "holders", KIND_READS)                                                          \
    X(WAITERS, "waiters", KIND_READS)                                                          \
    X(SESSION_ITEMS, "session-items", KIND_READS | KIND_AT_HOME)

enum op_kind {
#define X(id, word, traits) OP_##id,
    OP_KIND_MAP(X)
#undef X
        OP_KIND_COUNT
};

enum item_kind { ITEM_HOLD, ITEM_WAIT, ITEM_VARIABLE };
/* FIND: the first are those held for longest, with the longest line, with the longest wait, and
 * those whose end is next. A lock with many holders counts by the one with the lowest fence. */
enum lock_sort { SORT_NAME, SORT_AGE, SORT_WAITERS, SORT_WAITED, SORT_EXPIRES, SORT_COUNT };
enum lock_mode { MODE_NONE, MODE_EXCLUSIVE, MODE_SHARED, MODE_SEMAPHORE };
enum lock_policy { POLICY_HARD, POLICY_SOFT, POLICY_TIMED };

enum op_flag {
    OP_NOBLOCK = 1,   /* ACQUIRE, CONVERT: the asker is told "queued" and not kept waiting */
    OP_FORCE = 2,     /* NAMESPACE_DELETE: although it is in use */
    OP_SET_BODY = 4,  /* ACQUIRE: `body` is given (perhaps empty) */
    OP_WANT_LOCK = 8, /* the answer shall carry the lock as it then is */
    OP_ANYONE = 16,   /* RELEASE, RENEW: any holder, by no fence or owner (Redis door) */
    OP_SET_TEXT = 32, /* NAMESPACE_UPDATE: `text` is given */
    OP_FRESH = 64,    /* ACQUIRE: a holder that asks again is refused, held (Redis SET NX) */
    OP_ADD_TTL = 128, /* RENEW: ttl_ms more than what remains (Redis door) */
    OP_WANT_HOLDERS = 256, /* as OP_WANT_LOCK, but only when the answer is REFUSED */
    OP_STALE = 512,        /* a read: what this node knows will do, the others are not asked */
    OP_AWAY = 1024,        /* CANCEL: it was sent away, and may come back by its request id;
                            * NODE: it is not heard */
    OP_UNDO = 2048,        /* CANCEL: of a CONVERT, which is undone: what it was about stays */
    OP_HOLDS_ONLY = 4096,  /* RELEASE: an owner who waits keeps its place (Redis door) */
    OP_NAMED = 8192,       /* SESSION_OPEN: the client chose the id; else the door drew it */
    OP_END_WAIT = 16384,   /* CANCEL: its time is up, as if its wait had ended; a grant stays */
    OP_OVER = 32768, /* its session is over, says group 0: nothing is done in it, but what was
                      * done before is told again */
    OP_MAY_BREAK = 65536,  /* its token may break this lock: also what others took is its own */
    OP_SEES_ALL = 131072,  /* of sessions: also of those that other tokens have opened */
    OP_SET_EMAIL = 262144, /* ACCOUNT_UPDATE: `name` is given */
    OP_SET_NAME = 524288,  /* ACCOUNT_UPDATE: `owner` is given */
};

/* X(field, PARAMETER, max, what is wrong above it): the terms of a lease. They go
 * whole from the op, over a place in the line, to the hold. Programs and snapshots have them in
 * this order: add at the end only, and raise their formats. */
#define LEASE_TERM_MAP(X)                                                                      \
    X(ttl_ms, TTL, LIMIT_TTL_MS, "ttl is over 7 days")                                         \
    X(grace_ms, GRACE, LIMIT_GRACE_MS, "grace is over 7 days")                                 \
    X(delay_ms, DELAY, LIMIT_DELAY_MS, "delay is over 10 minutes")

struct lease_terms {
#define X(field, parameter, max, what) uint32_t field;
    LEASE_TERM_MAP(X)
#undef X
};

/* X(type, name): every field that travels. u64 are varints, bytes are length + bytes, names is
 * a list of bytes. The order is the wire order: add at the end only, and raise FORMAT_OP.
 *
 * `target` is the asker (CANCEL), the connection (ATTACH, DETACH), a group (NAMESPACE_CREATE,
 * ENROL, MESSAGES, TAKEN), the level (LEVEL) or a number of a run (NODE). `more` names are taken
 * by ACQUIRE without waiting, RELEASE and RENEW. A TOKEN_CREATE that is a message has `token`
 * and `rights`. FIND has what the lock must be: `owner` and `session` of one who holds it or
 * waits for it, `target` (1 + enum lock_state), `number` (held for so many ms at least), `permits`
 * (so many waiters at least); and `fence` is enum lock_sort. */
#define OP_FIELD_MAP(X)                                                                        \
    X(u64, now_ms) /* state-machine time, when it was ordered */                               \
    X(u64, asker)  /* who gets the answer; 0: nobody */                                        \
    X(bytes, account)                                                                          \
    X(bytes, ns)                                                                               \
    X(bytes, name) /* lock name; LIST: prefix; TABLE_SHOW: the table */                        \
    X(bytes, owner)                                                                            \
    X(bytes, session) /* session id */                                                         \
    X(bytes, body)    /* LIST, NAMESPACE_LIST: the asker's rules, when it does not see all */  \
    X(bytes, text)    /* description; BREAK: why; LIST: after */                               \
    X(u64, fence)                                                                              \
    X(u64, mode)   /* enum lock_mode */                                                        \
    X(u64, policy) /* enum lock_policy */                                                      \
    X(u64, flags)  /* enum op_flag */                                                          \
    X(u64, ttl_ms) /* ACQUIRE 0: for ever, or with its session */                              \
    X(u64, wait_ms)                                                                            \
    X(u64, grace_ms)                                                                           \
    X(u64, delay_ms)                                                                           \
    X(u64, quiet_ms)                                                                           \
    X(u64, permits)                                                                            \
    X(u64, of)                                                                                 \
    X(u64, linger_ms)                                                                          \
    X(u64, limit)     /* LIST: rows */                                                         \
    X(u64, target)    /* what it is about: see above */                                        \
    X(names, more)    /* more names, all or none; KEEPALIVE: session ids */                    \
    X(bytes, program) /* TXN: machine/program.h, or empty: a ping; MESSAGES: messages */       \
    X(bytes, request) /* its id: sent again, it is the same request (receipt.h) */             \
    X(u64, number)    /* of its session in group 0: which one of this id was kept for it */    \
    X(u64, token)     /* who asks: the number of its token; 0: nobody has to log in */         \
    X(u64, rights)    /* the generation of the token that was checked (account.c) */           \
    X(u64, wall_ms)   /* the time of day, by the clock of the node that was asked */           \
    X(u64, until_ms)  /* a time of day at which something ends; 0: never */

struct names {
    const struct slice *items;
    size_t n;
};

struct op {
    enum op_kind kind;
    uint64_t index; /* place in the order; not in the binary form: the log knows it */
#define OP_TYPE_u64    uint64_t
#define OP_TYPE_bytes  struct slice
#define OP_TYPE_names  struct names
#define X(type, field) OP_TYPE_##type field;
    OP_FIELD_MAP(X)
#undef X
};

struct lease_terms op_terms(const struct op *op);

/* 3: without number, 4: without token and all behind it. Each op has one form, the lowest that
 * has what it needs: equal states have equal messages, and nodes of an earlier version read what
 * they can follow. */
enum { OP_VERSION_NO_TOKEN = 4, OP_VERSION_NO_NUMBER = 3 };

/* An asker's number: place of a node, its run, and a count that goes on in that run. The top
 * bit is set when it does not stay to wait: its place in a line outlives the node's run, and
 * nobody is told what comes of it. */
enum { OP_NODE_SHIFT = 56, OP_RUN_SHIFT = 42 };
#define LIMIT_EXPIRES_MS (UINT64_C(10) * 365 * 24 * 3600 * 1000) /* of a token */
#define OP_ASKER_COUNT   ((UINT64_C(1) << OP_RUN_SHIFT) - 1)
#define OP_ASKER_LOOSE   (UINT64_C(1) << 63)
enum { OP_NODES_MAX = 1 << (63 - OP_NODE_SHIFT) };

static inline size_t op_node(uint64_t asker)
{
    return (size_t)(asker >> OP_NODE_SHIFT) % OP_NODES_MAX;
}

bool op_is(enum op_kind kind, enum op_trait trait);

static inline bool op_is_read(enum op_kind kind)
{
    return op_is(kind, KIND_READS);
}
const char *op_word(enum op_kind kind);

/* Appends version, kind and the fields that are not absent. */
void op_encode(const struct op *op, struct buf *out);
/* Borrows from `in` and, for lists, from `a`. BELAY_ERR_CORRUPT: not an op of a known version,
 * or bytes left over. */
BELAY_MUST_CHECK enum belay_err op_decode(struct slice in, struct arena *a, struct op *ret_op);

/* Is every size, number and combination within its bounds? The machine takes nothing else:
 * code that makes an op or decodes one from foreign bytes asks here first. BELAY_ERR_RANGE or
 * BELAY_ERR_SYNTAX with *ret_what a static text for the client. */
BELAY_MUST_CHECK enum belay_err op_validate(const struct op *op, const char **ret_what);
#endif
