/* state.h - the fields of the machine, for the files of this folder only.
 *
 *   machine -> account -> space (a namespace) -> lock -> hold *
 *                                                   \-> more -> wait * , body, closed
 *                                  \-> table -> slot (a key) -> record *
 *                                  \-> parked (a waiting transaction) -> watch *
 *   machine -> session -> its holds, waits, records, parked
 *   machine -> receipts of requests that have an id (receipt.h)
 *
 * Most of a million locks have one holder and no waiter: what such a lock does not need is in
 * `more`. Everything with an end is in the heap `ends`; its tie-break number is the
 * fence, ticket or session number, so the order of ends does not depend on how the heap grew.
 */
#ifndef BELAY_MACHINE_STATE_H
#define BELAY_MACHINE_STATE_H

#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/rank.h"
#include "machine/accounts.h"
#include "machine/event.h"
#include "machine/index.h"
#include "machine/level.h"
#include "machine/machine.h"
#include "machine/program.h"
#include "machine/receipt.h"

#include <stdint.h>

#define NEVER UINT64_MAX
#define CAPACITY_RW                                                                            \
    UINT32_MAX /* capacity of a read/write lock, weight of an exclusive hold                   \
                */
enum { SHARED_WEIGHT = 1 };

enum end_tag { END_HOLD, END_WAIT, END_SESSION, END_CLOSED, END_RECORD, END_PARKED };

/* A session in a shard, where group 0 says when it ends. The last two are of level 0
 * (session_level0.c). */
enum guest {
    GUEST_NOT, /* group 0, or the only group */
    GUEST,
    GUEST_SILENT, /* it was not used when group 0 asked, and may be over */
    GUEST_ENROLS, /* it has been used since: group 0 knows whether it was in time */
};

struct session {
    struct map_node by_id;
    struct list in_machine;      /* by number */
    struct heap_node end;        /* seq: its number */
    struct list holds, waits;    /* each by number */
    struct list records, parked; /* each by number */
    uint32_t n_items, n_holds;   /* holds and waits; holds alone */
    uint32_t n_records;
    const struct slot *seen_in; /* scratch: twins among the records of a slot */
    uint32_t ttl_ms, linger_ms;
    uint64_t target;    /* the connection it is attached to, 0: none */
    uint64_t enrolled;  /* group 0: bit i: shard 1 + i knows it */
    uint64_t owed_ms;   /* group 0: a connection that closes does not end it before */
    enum reason ending; /* why it ends, part by part; REASON_NONE: it lives */
    uint32_t n_at_end;  /* what it had when that began: holds, waits and records */
    enum guest guest;
    uint64_t home;    /* guest: its number in group 0; 0: not known, from level 0 */
    uint64_t asked;   /* level 0, group 0: shards that have not said yet whether it is used */
    uint64_t kept_ms; /* level 0, guest: what was done here keeps it until then */
    char *description;
    size_t description_len;
    uint32_t token;             /* that opened it; 0: none */
    struct account *account;    /* group 0, where sessions are counted; NULL: it is gone */
    size_t id_len, account_len; /* account_len 0: "default" */
    char bytes[];               /* id, account */
};

struct space {
    struct account *account;
    struct list in_doomed; /* when it is being taken apart */
    bool doomed;
    struct map locks;
    struct index index;
    struct map waits;   /* by who waits for which lock */
    struct map waiters; /* by who waits */
    struct map crowds;  /* of locks with many holders (holders.c); not part of the state */
    uint64_t held, waiting;
    struct map tables;      /* by name, letter case folded */
    struct list table_list; /* oldest first */
    uint64_t n_records;
    struct list parked; /* by ticket */
    uint32_t n_parked;
    size_t parked_bytes;
    struct map watched; /* what parked transactions have read */
    uint64_t created_ms, updated_ms;
    char *description;
    size_t description_len;
    size_t name_len;
    char name[];
};

struct more {
    struct lock *lock;
    struct list waits;   /* by place in the line */
    struct list barring; /* those of them that a new shared request may not pass */
    struct rank ranks;   /* all of them, for their positions */
    uint32_t n_waits, n_barring;
    uint32_t n_timed;
    uint64_t disturbed;      /* below LEVEL_PARTS: 1 + when all timed ones began anew */
    uint64_t quiet_from_ms;  /* since LEVEL_PARTS: before it, no timed one has been quiet */
    uint64_t searched;       /* as in struct waiter */
    struct heap_node closed; /* at: when it opens */
    char *body;
    size_t body_len;
};

struct lock {
    struct map_node by_name;
    struct space *space;
    struct index_bucket *bucket; /* its place in the index */
    uint32_t slot;
    uint32_t capacity; /* while it is held or waited for; CAPACITY_RW: read/write */
    uint32_t used;     /* sum of weights */
    uint32_t n_holds;
    struct list holds; /* by fence */
    struct more *more; /* NULL: nobody waits, no body, not closed */
    bool touched;      /* in the machine's list of lines to serve */
    bool crowded;      /* its holders are in a crowd (holders.c) */
    uint16_t name_len;
    char name[];
};

struct hold {
    struct list in_lock, in_session;
    struct heap_node end; /* seq: the fence */
    struct lock *lock;
    struct session *session; /* NULL: none */
    uint64_t asker;          /* who asked for it */
    uint64_t since_ms;
    struct lease_terms terms;
    uint32_t weight;
    uint32_t token; /* that took it; 0: none */
    bool overdue;
    uint8_t owner_len;
    char owner[];
};

/* A node at whose connections somebody waits. */
struct node {
    struct list waits, parked; /* of the clients that stay there, in no particular order */
    bool silent;               /* the leader does not hear it: they are passed over */
    uint64_t silent_ms;        /* since when */
};

struct waiter { /* a client that waits for one thing, or for many */
    struct map_node by_who;
    struct list waits; /* by ticket; never empty */
    uint64_t searched; /* by the search of that number: deadlock.c; not part of the state */
};

/* Its node is gone. By its request id it may come back until its deadline, which may have been
 * brought forward for that. */
enum away { AWAY_NOT, AWAY, AWAY_CUT };

struct wait {
    struct list in_lock, in_barring, in_session, in_waiter, in_node;
    struct rank_node rank;
    struct map_node by_place; /* by who and lock */
    struct waiter *waiter;
    struct heap_node
        end; /* seq: the ticket; at: the deadline, or earlier, when it may be quiet */
    struct lock *lock;
    struct session *session;
    struct hold *upgrade;    /* the shared hold that it wants to convert, NULL: a plain wait */
    struct receipt *receipt; /* owned; NULL: the request has no id */
    uint64_t asker;
    uint64_t since_ms, deadline_ms, quiet_from_ms;
    struct lease_terms terms;
    uint32_t quiet_ms, weight;
    uint32_t token; /* that asked for it; 0: none */
    enum lock_policy policy;
    bool brings_body;
    enum away away;
    char *body;
    size_t body_len;
    uint8_t owner_len;
    char owner[];
};

struct table {
    struct map_node by_name;
    struct list in_space;
    struct space *space;
    struct map slots;
    struct list slot_list; /* oldest first */
    uint64_t n_records;
    uint8_t name_len;
    char name[]; /* as it was first written */
};

/* A variable: a key of a table, with a record of each session that has set it. It exists while
 * it has a record, and during a transaction that has touched it. */
struct slot {
    struct map_node by_key;
    struct list in_table;
    struct table *table;
    struct record *records; /* oldest first */
    uint64_t buried;        /* the op that last took out what was over; not part of the state */
    uint32_t n_records;
    uint16_t key_len;
    bool touched; /* by the transaction that runs */
    char key[];
};

struct record {
    struct record *prev, *next;
    struct list in_session;
    struct heap_node end; /* seq: its number; 0: set by the transaction that runs */
    struct slot *slot;
    struct session *session;
    uint64_t set_ms;
    uint32_t ttl_ms; /* 0: as long as its session */
    uint32_t value_len;
    uint16_t description_len; /* 0: its session's */
    bool exclusive;           /* set without allow_duplicates */
    bool gone;                /* deleted by the transaction that runs */
    char bytes[];             /* value, description */
};

/* A transaction that waits until its asserts hold. */
struct parked {
    struct list in_space, in_session, in_node;
    struct heap_node end; /* at: its deadline, seq: its ticket */
    struct heap_node
        ready; /* in machine.ready, by ticket: something that it read has changed */
    struct space *space;
    struct session *session;
    struct receipt *receipt; /* as in struct wait */
    enum away away; /* it is evaluated all the same: it belongs to a session that lives */
    uint64_t asker, since_ms;
    uint32_t token; /* that asked for it; 0: none */
    struct txn_watch *watches;
    size_t n_watches;
    size_t program_len, description_len;
    char bytes[]; /* program, description */
};

enum watch_kind { WATCH_VARIABLE, WATCH_LOCK };

/* Something that was read, whether it exists or not. */
struct read {
    enum watch_kind kind;
    struct slice table; /* variable */
    struct slice key;   /* or the lock's name */
};

/* Something that parked transactions have read. */
struct watched {
    struct map_node by_what;
    struct list watches;
    enum watch_kind kind;
    uint8_t table_len;
    uint16_t key_len;
    char bytes[]; /* table, key */
};

struct txn_watch {
    struct list in_watched;
    struct watched *what;
    struct parked *parked;
};

/* Messages to another group and from it. */
struct mailbox {
    struct list messages; /* by number; the last one is number `posted` */
    uint64_t n_messages;
    uint64_t posted, taken;
};

/* Who holds or waits: owner and session together. */
struct who {
    struct slice owner;
    const struct session *session;
};

/* deadlock.c: somebody waits for a lock; the step before it is number `from`. */
struct search_step {
    struct who waiter;
    const struct lock *lock;
    size_t from;
};

struct txn_scratch; /* txn.c: memory that is used again by every transaction */

struct machine {
    uint64_t applied, now_ms;
    uint64_t counter; /* the last fence, ticket or session number given */
    uint64_t level;   /* the rules it follows: level.h */
    struct hash_key key;
    struct heap ends;
    struct account **accounts; /* in the order they came */
    size_t n_accounts;
    struct map accounts_by_name;
    struct map tokens, tokens_by_id;
    struct list token_list;
    uint64_t last_token; /* group 0: the number of the last one that was made */
    bool closed;         /* clients must have a token */
    bool accounts_left;  /* a deleted account has nothing left */
    struct map sessions;
    struct list session_list; /* by number */
    struct list doomed;       /* spaces being taken apart */
    struct lock **touched;    /* scratch of one step: lines to serve */
    size_t n_touched, cap_touched;
    uint64_t held, waiting, locks, n_spaces;
    struct heap ready; /* parked transactions to be looked at, by ticket */
    uint64_t n_records, n_parked;
    uint64_t txn_work;           /* of the transactions of this step; see LIMIT_TXN_WORK */
    uint64_t txn_work_max;       /* see machine_set_txn_work() */
    struct txn_scratch *scratch; /* NULL at first */
    unsigned group, n_groups;    /* n_groups 0: the only one */
    struct mailbox *boxes;       /* by group: 0 writes to all, all write to 0 */
    uint64_t n_messages;         /* in all of them */
    struct receipts receipts;
    struct node nodes[OP_NODES_MAX];
    size_t n_silent;           /* of them */
    struct search_step *steps; /* scratch of deadlock.c */
    size_t cap_steps;
    uint64_t searches;
    struct pool pool;    /* of locks and holds */
    unsigned batch;      /* see machine_set_batch() */
    uint64_t line_units; /* of work that are left in this step for lines */
    uint64_t end_units;  /* and in this op for sessions that it ends */
    uint64_t asker_mask; /* what a CANCEL compares; see machine_set_askers() */
    bool by_number;
};

static inline struct slice or_default(struct slice name) /* of an account or a namespace */
{
    return name.len ? name : SLICE("default");
}

static inline struct slice lock_name(const struct lock *l)
{
    return slice_of(l->name, l->name_len);
}

static inline struct slice hold_owner(const struct hold *h)
{
    return slice_of(h->owner, h->owner_len);
}

static inline struct slice wait_owner(const struct wait *w)
{
    return slice_of(w->owner, w->owner_len);
}

/* The asker that is told the outcome. One that does not stay was told "queued" and hears no more:
 * its number is not known any more where it asked. */
static inline uint64_t wait_stays(const struct wait *w)
{
    return w->asker & OP_ASKER_LOOSE ? 0 : w->asker;
}

static inline struct slice session_id(const struct session *s)
{
    return s ? slice_of(s->bytes, s->id_len) : slice_of("", 0);
}

static inline struct slice session_account(const struct session *s) /* empty: "default" */
{
    return slice_of(s->bytes + s->id_len, s->account_len);
}

static inline struct slice table_name(const struct table *t)
{
    return slice_of(t->name, t->name_len);
}

static inline struct slice slot_key(const struct slot *s)
{
    return slice_of(s->key, s->key_len);
}

static inline struct slice record_value(const struct record *r)
{
    return slice_of(r->bytes, r->value_len);
}

static inline struct slice parked_program(const struct parked *p)
{
    return slice_of(p->bytes, p->program_len);
}

static inline struct slice parked_description(const struct parked *p)
{
    return slice_of(p->bytes + p->program_len, p->description_len);
}

static inline uint64_t hold_fence(const struct hold *h)
{
    return h->end.seq;
}

static inline bool over(const struct heap_node *end, uint64_t now_ms)
{
    return end->pos != 0 && end->at <= now_ms;
}

static inline bool session_over(const struct session *s, uint64_t now_ms)
{
    if (!s || s->ending != REASON_NONE)
        return s != NULL;
    return s->enrolled == 0 && over(&s->end, now_ms); /* else when it has been ended */
}

/* Reached its end, worked off or not: cannot be used any more. A hold in its grace is alive. */
static inline bool hold_over(const struct hold *h, uint64_t now_ms)
{
    bool ended = over(&h->end, now_ms) && (h->overdue || h->terms.grace_ms == 0);
    return ended || session_over(h->session, now_ms);
}

/* What is left of it. A hold whose grace has not had its turn to begin has nothing left. */
static inline uint64_t hold_left(const struct hold *h, uint64_t now_ms)
{
    return h->end.pos && h->end.at > now_ms ? h->end.at - now_ms : 0;
}

static inline bool space_is_empty(const struct space *s) /* a doomed one goes then */
{
    return s->locks.count == 0 && s->tables.count == 0;
}

static inline bool record_over(const struct record *r, uint64_t now_ms)
{
    return over(&r->end, now_ms) || session_over(r->session, now_ms);
}

static inline enum lock_mode mode_of(const struct lock *l, uint32_t weight)
{
    if (l->capacity != CAPACITY_RW)
        return MODE_SEMAPHORE;
    return weight == CAPACITY_RW ? MODE_EXCLUSIVE : MODE_SHARED;
}

static inline uint64_t after_ms(uint64_t now_ms, uint64_t span_ms) /* 0: never */
{
    return span_ms ? now_ms + span_ms : NEVER;
}

static inline void end_set(struct machine *m, struct heap_node *end, uint64_t at)
{
    if (at == NEVER)
        heap_remove(&m->ends, end);
    else
        heap_set(&m->ends, end, at);
}

/* The bit of a shard in event.posted and session.enrolled; 0: there is no such shard. */
static inline uint64_t group_bit(const struct machine *m, uint64_t group)
{
    return m->group == 0 && group > 0 && group < m->n_groups ? UINT64_C(1) << (group - 1) : 0;
}

struct machine *machine_new(struct hash_key key); /* machine.c; without any account */
#endif
