/* event.h - what an op brought about. Two readers: the asker (its answer) and the feed (news).
 *
 * An event with an asker answers it; one marked `news` goes to the feed; a grant is both.
 * Slices are the effects' own copies, or belong to the op or to the namespace: all live until
 * the next step or effects_reset(), whichever comes first. */
#ifndef BELAY_MACHINE_EVENT_H
#define BELAY_MACHINE_EVENT_H

#include "base/arena.h"
#include "machine/op.h"

/* X(ID, "word", what it says). The numbers stand in receipts: new kinds come last. */
#define EVENT_KIND_MAP(X)                                                                      \
    X(GRANTED, "granted") /* also after CONVERT and re-acquire */                              \
    X(QUEUED, "queued")                                                                        \
    X(REFUSED, "refused")                                                                      \
    X(TIMEOUT, "timeout")   /* a wait ran out */                                               \
    X(DEADLOCK, "deadlock") /* the wait would close a cycle */                                 \
    X(RELEASED, "released") /* count: how many holds went; 0: nothing was held */              \
    X(RENEWED, "renewed")                                                                      \
    X(OVERDUE, "overdue") /* grace has begun: please unlock */                                 \
    X(EXPIRED, "expired") /* a lease ended */                                                  \
    X(BROKEN, "broken")   /* an operator took the lock away; count: holds */                   \
    X(LEFT, "left") /* a waiter left the line; it answers its request, if that still waits */  \
    X(BODY_SET, "body")                                                                        \
    X(CHECKED, "checked") /* count: 1 current, 0 stale */                                      \
    X(SESSION_OPENED, "session-opened")                                                        \
    X(SESSION_KEPT, "session-kept")   /* keep-alive or attach; count: how many are alive */    \
    X(SESSION_ENDED, "session-ended") /* count: holds and waits that went with it */           \
    X(NAMESPACE_CREATED, "namespace-created")                                                  \
    X(NAMESPACE_UPDATED, "namespace-updated")                                                  \
    X(NAMESPACE_DELETED, "namespace-deleted")                                                  \
    X(TXN, "transaction") /* its outcome; as news: name: its description, count: changes */    \
    X(VARIABLE_EXPIRED, "variable-expired") /* name: its key; owner: its table */              \
    X(ROWS, "rows")                         /* answer of every SHOW and LIST */                \
    X(FAILED, "failed")                     /* err and text: nothing was changed */            \
    X(ACCOUNT_CREATED, "account-created")   /* account */                                      \
    X(ACCOUNT_UPDATED, "account-updated")                                                      \
    X(ACCOUNT_DELETED, "account-deleted")                                                      \
    X(TOKEN_CREATED, "token-created") /* name: its id */                                       \
    X(TOKEN_ROTATED, "token-rotated")                                                          \
    X(TOKEN_REVOKED, "token-revoked")                                                          \
    X(TOKEN_USED, "token-used")                                                                \
    X(AUTH_RESET, "auth-reset")

enum event_kind {
#define X(id, word) EVENT_##id,
    EVENT_KIND_MAP(X)
#undef X
        EVENT_KIND_COUNT
};

/* Why a lock or a wait ended, or an acquire was refused. */
#define REASON_MAP(X)                                                                          \
    X(NONE, "")                                                                                \
    X(HELD, "held")     /* refused: somebody else holds it, or is before you in line */        \
    X(KIND, "kind")     /* refused: held in another mode by you, or another kind of lock */    \
    X(CLOSED, "closed") /* refused: closed after an involuntary loss */                        \
    X(REPLACED, "replaced") /* refused: the same owner asked again and took this place */      \
    X(LOST, "lost")         /* refused: what was to be converted is no longer held */          \
    X(RELEASE, "release")                                                                      \
    X(TTL, "ttl")                                                                              \
    X(SESSION, "session")                                                                      \
    X(BREAK, "break")                                                                          \
    X(CANCEL, "cancel")                                                                        \
    X(NAMESPACE, "namespace")                                                                  \
    X(REVOKED, "revoked") /* the token that it was asked for with is gone */

enum reason {
#define X(id, word) REASON_##id,
    REASON_MAP(X)
#undef X
};

const char *event_word(enum event_kind kind);
const char *reason_word(enum reason reason);

/* One holder or waiter of a lock, as it is shown. */
struct holder_row {
    struct slice owner, session;
    enum lock_mode mode;
    uint64_t fence, permits;
    uint64_t held_ms;
    uint64_t expires_in_ms; /* with `forever`: no end of its own */
    bool forever, overdue;
};

struct waiter_row {
    struct slice owner, session;
    enum lock_mode mode;
    uint64_t ticket, position, permits;
    uint64_t waited_ms, expires_in_ms;
};

enum lock_state { LOCK_UNLOCKED, LOCK_SHARED, LOCK_EXCLUSIVE, LOCK_SEMAPHORE, LOCK_CLOSED };
const char *lock_state_word(enum lock_state state);
const char *lock_mode_word(enum lock_mode mode);

struct lock_row {
    struct slice name, body;
    enum lock_state state;
    uint64_t of, closed_ms; /* semaphore: permits in all; closed: for how much longer */
    struct holder_row *holders;
    struct waiter_row *waiters; /* the first ROWS_MAX of each; the counts are exact */
    size_t n_holders, n_waiters, holders_total, waiters_total;
};
enum { LOCK_ROWS_MAX = 100 };

struct session_row {
    struct slice id, description;
    uint64_t ttl_ms, linger_ms, expires_in_ms, holds, waits, variables;
    uint64_t enrolled; /* bit i: shard 1 + i has more of it */
    bool attached;
};

/* A lock that FIND has found, and its place in the order that was asked for: lower is first. Times
 * in it are those of the state machine. */
struct found_row {
    struct slice name;
    int64_t place;
};

/* What a session holds, waits for or has set. */
struct item_row {
    struct slice ns, name, table, owner; /* variable: name is its key */
    enum item_kind kind;
    enum lock_mode mode;
    uint64_t number;  /* fence, ticket, or that of the record */
    uint64_t permits; /* of a semaphore */
    uint64_t since_ms_ago, expires_in_ms;
    uint64_t group; /* the shard in which it is */
    bool forever;
};

struct namespace_row {
    struct slice name, description;
    uint64_t created_ms, updated_ms; /* state-machine time */
    uint64_t locks, held, waiting;
    uint64_t tables, variables, transactions; /* transactions: those that wait */
    uint64_t shard;                           /* the group that keeps what is in it */
};

/* A record of a variable: set by a session, seen by all. */
struct record_row {
    struct slice session, value, description; /* value: canonical JSON */
    uint64_t set_ms_ago;
    uint64_t expires_in_ms; /* with `forever`: lives as long as its session */
    bool forever, exclusive;
};

struct variable_row {
    struct slice key;
    struct record_row record;
};

struct table_row {
    struct slice name;
    uint64_t keys, records;
};

/* X(ID, "word"): what an account may have only so much of. */
#define QUOTA_MAP(X)                                                                           \
    X(NAMESPACES, "namespaces")                                                                \
    X(LOCKS, "locks")                                                                          \
    X(WAITERS, "waiters")                                                                      \
    X(SESSIONS, "sessions")                                                                    \
    X(VARIABLES, "variables")                                                                  \
    X(TRANSACTIONS, "transactions") /* that wait */                                            \
    X(BYTES, "bytes")               /* bodies, values, and programs that wait */

enum quota {
#define X(id, word) QUOTA_##id,
    QUOTA_MAP(X)
#undef X
        QUOTA_COUNT
};
const char *quota_word(enum quota quota);

struct account_row {
    struct slice id, email, full_name;
    uint64_t created_ms, updated_ms; /* time of day; 0: the account "default" has always been */
    uint64_t tokens;
    uint64_t limits[QUOTA_COUNT]; /* 0: none of its own */
    uint64_t used[QUOTA_COUNT];
};

struct token_row {
    struct slice account, id, description, rules;
    uint64_t number, generation;
    uint64_t created_ms, expires_ms, used_ms, overlap_ms; /* times of day; 0: never, none */
};

enum txn_status { TXN_OK, TXN_ERROR, TXN_TIMEOUT };
/* Why a transaction did not happen. REQUIREMENTS is said by the server, before it is ordered.
 */
enum txn_cause { CAUSE_NONE, CAUSE_STATEMENT, CAUSE_SESSION, CAUSE_REQUIREMENTS };
const char *txn_status_word(enum txn_status status);
const char *txn_cause_word(enum txn_cause cause); /* "" for none */

enum txn_row_kind {
    TXN_ROW_NULL,
    TXN_ROW_JSON,
    TXN_ROW_BOOL,
    TXN_ROW_RECORD,
    TXN_ROW_RECORDS,
    TXN_ROW_FENCE
};

/* What a transaction selected, in the order in which it did. */
struct txn_row {
    struct slice name;
    enum txn_row_kind kind;
    struct slice json;          /* JSON */
    bool truth;                 /* BOOL */
    uint64_t fence;             /* FENCE */
    struct record_row *records; /* RECORD: one, RECORDS */
    size_t n_records;
};

struct event {
    enum event_kind kind;
    uint64_t asker; /* 0: nobody asked */
    bool news;      /* belongs in the feed */
    enum reason reason;
    enum belay_err err; /* FAILED */
    struct slice account, ns, name, owner, session;
    struct slice text; /* FAILED: what is wrong; body of a grant; BROKEN: why, in their words */
    struct slice by; /* BROKEN: the id of the token that did it; empty: nobody had to log in */
    enum lock_mode mode;
    uint64_t at_ms;   /* state-machine time of the step */
    uint64_t wall_ms; /* news that were kept: the time of day when this node heard of it */
    uint64_t index; /* an answer: the place in the log of its group, as of which it was given */
    uint32_t group;
    uint64_t fence; /* SESSION_KEPT, of ENROL: the session's number */
    uint64_t ticket, position, count;
    uint64_t expires_in_ms, waited_ms;
    uint64_t linger_ms; /* SESSION_KEPT, of ATTACH */
    uint64_t age_ms;    /* stale: for how long it may have been otherwise */
    /* Messages about it were posted in this step: from a shard to group 0, from group 0 to the
     * shards 1 + i whose bit i is set. It has happened when they are taken. */
    uint64_t posted;
    bool by_break; /* an answer: the right to break was used, on what another token took */
    bool forever;
    bool stale; /* ROWS: what this node alone knows */
    /* DEADLOCK: owner i waits for lock i, which owner i + 1 holds, and the last one's the first
     */
    struct cycle_step {
        struct slice owner, name;
    } * cycle;
    size_t n_cycle;
    struct lock_row *locks; /* ROWS; with OP_WANT_LOCK one row, the lock after the step */
    struct session_row *sessions;
    struct namespace_row *namespaces;
    struct table_row *tables;
    struct variable_row *variables;
    struct account_row *accounts;
    struct token_row *tokens;
    struct found_row *found; /* FIND; with `more`, `name` is the last lock that was looked at */
    struct item_row *items;
    size_t n_rows;
    bool more;              /* ROWS: the list goes on behind the last row */
    enum txn_status status; /* TXN */
    enum txn_cause cause;
    struct slice failed; /* the statement: "1:/AssertOp/"; empty: none */
    struct txn_row *data;
    size_t n_data;
};

/* A row of its own. */
struct lock_row lock_row_copy(const struct lock_row *row, struct arena *a);

/* The answer to an op that was ordered, with bytes of its own; the rows of a read are not
 * copied. */
struct event event_copy(const struct event *ev, struct arena *a);

/* Where a step's events are put. Zero-initialised is empty and valid. */
struct effects {
    struct event *events;
    size_t n, cap;
    struct arena arena;
};

struct event *effects_add(struct effects *fx,
                          enum event_kind kind); /* zeroed; valid until next */
static inline void effects_reset(struct effects *fx)
{
    fx->n = 0;
    arena_reset(&fx->arena);
}
void effects_done(struct effects *fx);
#endif
