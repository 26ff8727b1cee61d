/* state.h - the fields of the machine, for the files of this folder only.
 *
 *   machine -> account -> space (a namespace) -> lock -> hold *
 *                                                   \-> more -> wait * , body, closed
 *                                  \-> table -> slot (a key) -> record *
 *                                  \-> parked (a waiting transaction) -> watch *
 *   machine -> session -> its holds, waits, records, parked
 *   machine -> receipts of requests that have an id (receipt.h)
 *
 * A million locks are mostly held by one and waited for by nobody: what such a lock does not
 * need is in `more`. Everything with an end is in the heap `ends`; its tie-break number is the
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
    uint64_t target;   /* the connection it is attached to, 0: none */
    uint64_t enrolled; /* group 0: bit i: shard 1 + i knows it */
    uint64_t owed_ms;  /* group 0: a connection that closes does not end it before */
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
    struct map tables;      /* by name, message case folded */
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
    struct list waits; /* by place in the line */
    struct rank ranks; /* the same, for their positions */
    uint32_t n_waits;
    uint32_t n_barring; /* waits that a new shared request may not pass */
    uint32_t n_timed;
    uint64_t disturbed;      /* 1 + when all timed ones began anew; not part of the state */
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
    uint32_t ttl_ms, grace_ms, delay_ms, weight;
    uint32_t token; /* that took it; 0: none */
    bool overdue;
    uint8_t owner_len;
    char owner[];
};

/* A node at whose connections somebody waits. */
struct node {
    struct list waits, parked; /* of those who stay there, in no order that means anything */
    bool silent;               /* whoever leads does not hear it: they are passed over */
    uint64_t silent_ms;        /* since when */
};

struct waiter { /* somebody who waits for something, or for many things */
    struct map_node by_who;
    struct list waits; /* by ticket; never empty */
    uint64_t searched; /* by the search of that number: deadlock.c; not part of the state */
};

/* Its node is gone. By its request id it may come back until its deadline, which may have been
 * brought forward for that. */
enum away { AWAY_NOT, AWAY, AWAY_CUT };

struct wait {
    struct list in_lock, in_session, in_waiter, in_node;
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
    uint32_t ttl_ms, grace_ms, delay_ms, quiet_ms, weight;
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
    bool closed;         /* whoever asks must have a token */
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

/* Who is told what comes of it. One who does not stay was told "queued", and nobody hears more:
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
    return s && s->enrolled == 0 && over(&s->end, now_ms); /* else when it has been ended */
}

/* Reached its end, worked off or not: cannot be used any more. A hold in its grace is alive. */
static inline bool hold_over(const struct hold *h, uint64_t now_ms)
{
    bool ended = over(&h->end, now_ms) && (h->overdue || h->grace_ms == 0);
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

/* holders.c: who holds a lock, however many they are. A hold is added when it is in the lock's
 * list, and removed before its fence changes or it leaves; then the crowd may shrink. */
void holders_add(struct machine *m, struct hold *h);
void holders_remove(struct hold *h);
void holders_shrink(struct lock *l);
void holders_free(struct lock *l); /* when the machine closes */
struct hold *holder_by_fence(const struct lock *l, uint64_t fence); /* NULL: nobody */
struct hold *holder_by_who(const struct machine *m, const struct lock *l, struct who who);
/* The holds of an owner in all sessions, by fence; `after` NULL: the first. The same for those
 * that a request names and that are not over. */
struct hold *holder_next(const struct machine *m, const struct lock *l, struct slice owner,
                         const struct hold *after);
struct hold *holder_named(const struct machine *m, const struct lock *l, const struct op *op,
                          uint64_t now_ms, struct hold *after);

/* namespace.c */
struct space *space_find(const struct machine *m, struct slice account, struct slice name);
struct space *space_add(struct machine *m, struct account *a, struct slice name);
struct space *space_new(struct machine *m, struct account *a,
                        struct slice name);                              /* in no list */
struct account *account_any(const struct machine *m, struct slice name); /* deleted, too */
struct account *account_find(const struct machine *m, struct slice name);
struct account *account_add(struct machine *m, struct slice name);
void space_describe(struct space *s, struct slice description);
void space_free(struct space *s);
void space_doom(struct machine *m, struct space *s); /* it is taken apart from now on */
void namespace_create(struct machine *m, const struct op *op, struct effects *fx);
void namespace_update(struct machine *m, const struct op *op, struct effects *fx);
void namespace_delete(struct machine *m, const struct op *op, struct effects *fx);
/* What a message says. */
void namespace_appear(struct machine *m, const struct op *message);
void namespace_vanish(struct machine *m, const struct op *message);
void namespace_bury(struct machine *m); /* frees doomed namespaces that are empty by now */
uint64_t namespace_reap(struct machine *m, uint64_t budget,
                        struct effects *fx); /* units left */

/* lock.c: locks and holds */
struct lock *lock_find(const struct machine *m, const struct space *s, struct slice name);
struct lock *lock_get(struct machine *m, struct space *s, struct slice name); /* or makes it */
/* The same in two steps, the name hashed once: find it, and make the one that is not there. */
struct lock *lock_locate(const struct machine *m, const struct space *s, struct slice name,
                         uint64_t *ret_hash);
struct lock *lock_make(struct machine *m, struct space *s, struct slice name, uint64_t hash);
void lock_drop_if_idle(struct machine *m, struct lock *l); /* frees what nobody needs */
void lock_free(struct machine *m, struct lock *l);
struct more *lock_more(struct lock *l);
void lock_set_body(struct lock *l, struct slice body);
void lock_touch(struct machine *m, struct lock *l); /* its line is to be served in this step */
void lock_serve_touched(struct machine *m, struct effects *fx);
struct event *lock_news(const struct machine *m, const struct lock *l, enum event_kind kind,
                        struct effects *fx); /* news about this lock, to be filled in */
bool lock_is_closed(const struct lock *l, uint64_t now_ms);

struct grant { /* what a hold is made of */
    struct slice owner;
    struct session *session;
    uint64_t asker;
    uint32_t ttl_ms, grace_ms, delay_ms, weight, token;
};
struct hold *hold_add(struct machine *m, struct lock *l, const struct grant *g, uint64_t fence);
void hold_place(struct machine *m, struct hold *h); /* last in its lists: it has a new fence */
void hold_end(struct machine *m, struct hold *h, enum event_kind kind, enum reason reason,
              struct effects *fx); /* the hold is gone afterwards, its line is touched */
struct event *hold_granted(struct machine *m, const struct hold *h, struct effects *fx);
struct event *hold_tell_grant(struct machine *m, const struct hold *h,
                              struct effects *fx); /* as it is now; nothing happens */
void hold_expire(struct machine *m, struct hold *h, struct effects *fx);
bool who_same(struct who a, struct who b);
uint64_t who_hash(const struct machine *m, struct who who);

/* request.c: what is asked of locks */
void request_acquire(struct machine *m, const struct op *op, struct effects *fx);
void request_release(struct machine *m, const struct op *op, struct effects *fx);
void request_renew(struct machine *m, const struct op *op, struct effects *fx);
void request_body(struct machine *m, const struct op *op, struct effects *fx);
void request_convert(struct machine *m, const struct op *op, struct effects *fx);
void request_break(struct machine *m, const struct op *op, struct effects *fx);
void request_cancel(struct machine *m, const struct op *op, struct effects *fx);
/* The request that stands here has been sent again: the answer goes to the new asker. */
void request_return(struct machine *m, struct wait *w, const struct op *op, struct effects *fx);
/* A grant that has been judged: of a new hold, and of one that is held already. */
struct hold *request_grant(struct machine *m, struct lock *l, const struct op *op,
                           struct session *session, struct effects *fx);
void request_grant_again(struct machine *m, struct hold *h, const struct op *op,
                         struct effects *fx);
uint32_t request_capacity(const struct op *op);
uint32_t request_weight(const struct op *op);
/* The hold that op names by fence or owner and that is not over, or NULL. */
struct hold *request_hold(const struct machine *m, const struct lock *l, const struct op *op,
                          uint64_t now_ms);
struct space *request_space(const struct machine *m, const struct op *op, struct effects *fx);
struct event *request_failed(const struct op *op, enum belay_err err, const char *text,
                             struct effects *fx);

/* Is that the number of the one who is gone? */
bool request_is_target(const struct machine *m, const struct op *cancel, uint64_t asker);

/* line.c: waits */
struct wait *wait_add(struct machine *m, struct lock *l, const struct op *op,
                      struct session *session, struct hold *upgrade);
void wait_link(struct machine *m, struct wait *w); /* last in line: into the lists and tables */
struct wait *wait_of(const struct machine *m, const struct lock *l, struct who who);
void wait_place(struct wait *w); /* last in the lists of its session and its waiter */
struct waiter *waiter_find(const struct machine *m, const struct space *s, struct who who);
/* All waits of that one in the namespace, by ticket, at most `max`. */
size_t wait_all_of(const struct machine *m, const struct space *s, struct who who,
                   struct wait **out, size_t max);
/* What a request asks for, put into its place in the line: a later request may take it over. */
void wait_ask(struct machine *m, struct wait *w, const struct op *op);
size_t wait_position(const struct wait *w); /* 1: next */
bool wait_bars_shared(const struct wait *w);
void wait_arm(struct machine *m, struct wait *w); /* when to look at it again */
uint64_t wait_quiet_at(const struct wait *w);
void wait_set_body(struct wait *w, const struct op *op);
struct event *wait_news(const struct machine *m, const struct wait *w, enum event_kind kind,
                        struct effects *fx);
/* The wait is gone afterwards and its asker answered; its line is touched. */
void wait_end(struct machine *m, struct wait *w, enum event_kind kind, enum reason reason,
              struct effects *fx);
void wait_expire(struct machine *m, struct wait *w, struct effects *fx);
/* Over, and its own turn to be worked off has not come yet: then it comes now. */
void wait_end_if_dead(struct machine *m, struct wait *w, struct effects *fx);
/* It was last heard at `since_ms`; it has a receipt, by which it may come back. */
void wait_away(struct machine *m, struct wait *w, uint64_t since_ms);
/* Does somebody in the line go before a request that comes now, shared or not? */
bool line_bars(const struct machine *m, const struct lock *l, bool is_shared);
const struct wait *line_first(const struct machine *m,
                              const struct lock *l); /* not passed over */
void line_serve(struct machine *m, struct lock *l, struct effects *fx);
bool line_fits(const struct lock *l, uint32_t weight);

/* deadlock.c: would `who`, waiting for `l`, close a cycle? Then it is put into fx's arena. */
bool deadlock_found(struct machine *m, const struct lock *l, struct who who, struct effects *fx,
                    struct cycle_step **ret_cycle, size_t *ret_n);

/* session.c */
struct session *session_find(const struct machine *m, struct slice account, struct slice id);
struct session *session_add(struct machine *m, struct slice account, struct slice id,
                            uint64_t number);
void session_count(struct session *s, struct account *a); /* group 0: it is one of its */
void session_describe(struct session *s, struct slice description);
void session_free(struct machine *m, struct session *s);
void session_keep(struct machine *m, struct session *s);
void session_expire(struct machine *m, struct session *s, struct effects *fx);
void session_end(struct machine *m, struct session *s, enum reason reason, uint64_t asker,
                 struct effects *fx);
/* The session that op names, if that one is here and may be used; it may be over. */
struct session *session_named(const struct machine *m, const struct op *op);
/* The live session that op names, kept alive by it; NULL with *ret_ok when it names none. */
struct session *session_of(struct machine *m, const struct op *op, bool *ret_ok,
                           struct effects *fx);
void session_open(struct machine *m, const struct op *op, struct effects *fx);
void session_attach(struct machine *m, const struct op *op, struct effects *fx);
void session_detach(struct machine *m, const struct op *op, struct effects *fx);
void session_keepalive(struct machine *m, const struct op *op, struct effects *fx);
void session_close(struct machine *m, const struct op *op, struct effects *fx);
void session_enrol(struct machine *m, const struct op *op, struct effects *fx);
/* Messages: what group 0 says of its sessions to a shard. */
void guest_comes(struct machine *m, const struct op *message);
void guest_goes(struct machine *m, const struct op *message, struct effects *fx);
struct session *guest_of(const struct machine *m, const struct op *message);
void session_tell(struct machine *m, uint64_t shards, const struct op *message);
void session_invite(struct machine *m, struct session *s, uint64_t shard);

/* session_level0.c: what is otherwise at level 0 */
void old_guest_used(struct machine *m, struct session *s);
void old_ask(struct machine *m, struct session *s);
void old_sessions_move(struct machine *m); /* to level LEVEL_KEEP_FIRST */
void guest_lingers(struct machine *m, const struct op *message);
void guest_asked(struct machine *m, const struct op *message);
void guest_answered(struct machine *m, const struct op *message, uint64_t shard,
                    struct effects *fx);
void guest_enrols(struct machine *m, const struct op *message, uint64_t shard);

/* outbox.c */
void outbox_take(struct machine *m, const struct op *op, struct effects *fx);
void outbox_taken(struct machine *m, const struct op *op, struct effects *fx);
bool outbox_is_full(const struct machine *m, unsigned to);
void outbox_post(struct machine *m, unsigned to, const struct op *message);
uint64_t outbox_everybody(const struct machine *m); /* event.posted for all it writes to */
/* May something be told to all shards? If not, it has been answered. */
bool outbox_may_tell(const struct machine *m, const struct op *op, struct effects *fx);
void outbox_post_all(struct machine *m, const struct op *message);
void outbox_free(struct machine *m);

/* table.c: tables, slots, records */
struct table *table_find(const struct machine *m, const struct space *s, struct slice name);
struct slot *slot_find(const struct machine *m, const struct table *t, struct slice key);
struct slot_place { /* where a slot is, or would be: what looking for it has found out */
    struct slice name, key;
    uint64_t table_hash, hash;
    struct table *table; /* NULL: it would be made too */
};
struct slot *slot_locate(const struct machine *m, const struct space *s, struct slice table,
                         struct slice key, struct slot_place *ret_place); /* or NULL */
/* Makes the one that slot_locate() did not find, and its table. NULL: LIMIT_TABLES. */
struct slot *slot_make(struct space *s, const struct slot_place *place);
void slot_drop_if_idle(struct machine *m, struct slot *slot); /* and its table */
struct record_ask {                                           /* what a record is made of */
    struct session *session;
    struct slice value, description;
    uint64_t ttl_ms;
    bool exclusive;
};
/* In no list yet, without a number. */
struct record *record_new(const struct machine *m, struct slot *slot,
                          const struct record_ask *ask);
/* Into and out of the slot's list, behind `prev` (NULL: first), and the counts. */
void record_link(struct machine *m, struct record *r, struct record *prev);
void record_unlink(struct machine *m, struct record *r, struct record *prev);
/* It counts from now on: number, session, end. */
void record_settle(struct machine *m, struct record *r, uint64_t number);
void record_remove(struct machine *m, struct record *r); /* for good; frees it */
void record_expire(struct machine *m, struct record *r, struct effects *fx);
/* Takes out what has reached its end and waits for its turn; the slot may go with it. */
struct slot *slot_bury(struct machine *m, struct slot *slot, struct effects *fx);
struct record_row record_row(const struct record *r, uint64_t now_ms, struct effects *fx);
void table_query(const struct machine *m, const struct space *s, const struct op *op,
                 struct effects *fx);
void space_free_tables(struct space *s); /* when the machine closes: everything at once */

/* txn.c */
void txn_request(struct machine *m, const struct op *op, struct effects *fx);
/* One look at a parked transaction: true when it happened or failed for good; it has been
 * answered then and is gone. */
bool txn_try_parked(struct machine *m, struct parked *p, struct effects *fx);
/* Its deadline: answered with what it fails on, and gone. */
void txn_time_out(struct machine *m, struct parked *p, struct effects *fx);
void txn_scratch_free(struct txn_scratch *x); /* NULL is allowed */

/* txn_wait.c: parked transactions. */
struct parked *parked_new(struct space *s, struct session *session, struct slice program,
                          struct slice description);
void parked_link(struct machine *m, struct parked *p, uint64_t ticket, uint64_t deadline_ms);
void parked_watch(struct machine *m, struct parked *p, const struct read *reads, size_t n);
void parked_remove(struct machine *m, struct parked *p); /* frees it; answers nobody */
void parked_leave(struct machine *m, struct parked *p, enum txn_status status,
                  enum txn_cause cause, struct effects *fx); /* answered, and gone */
void parked_expire(struct machine *m, struct parked *p, struct effects *fx);
void parked_leave_space(struct machine *m, struct space *s, struct effects *fx);
void parked_end_if_dead(struct machine *m, struct parked *p, struct effects *fx);
void parked_away(struct machine *m, struct parked *p, uint64_t since_ms); /* as wait_away() */
void parked_return(struct machine *m, struct parked *p, const struct op *op,
                   struct effects *fx);  /* as request_return() */
void space_free_parked(struct space *s); /* as space_free_tables() */
void parked_cancel(struct machine *m, const struct op *op,
                   struct effects *fx); /* its client is gone */
/* Looks at those that are ready, in ticket order; a batch. */
void parked_serve(struct machine *m, struct effects *fx);
void watch_wake(struct machine *m, const struct space *s, const struct read *what);

static inline void lock_changed(struct machine *m, const struct lock *l)
{
    if (l->space->watched.count)
        watch_wake(m, l->space, &(struct read){.kind = WATCH_LOCK, .key = lock_name(l)});
}

static inline void slot_changed(struct machine *m, const struct slot *s)
{
    if (s->table->space->watched.count)
        watch_wake(m, s->table->space,
                   &(struct read){WATCH_VARIABLE, table_name(s->table), slot_key(s)});
}

/* txn_lock.c: what a transaction wants to do to locks, before it is done. */
struct lock_plan {
    struct lock_step *steps; /* LIMIT_TXN_LOCKS of them */
    size_t n;
    uint32_t token; /* that asks; 0: none */
};
struct lock_step {
    struct program_lock ask;
    bool is_unlock;
    struct hold *hold; /* UNLOCK: the one that goes; LOCK: the one that is granted again */
    bool on_planned;   /* the same for a hold that this transaction takes: not yet known */
    bool freed;        /* LOCK: by a later step */
    size_t row;        /* LOCK: where its fence goes */
};
/* Could it be done now? Then it is in the plan. LOCK: *ret_limit says which limit is in the
 * way.
 */
bool plan_lock(const struct machine *m, const struct space *s, struct session *session,
               struct lock_plan *plan, const struct program_lock *ask, const char **ret_limit);
bool plan_unlock(const struct machine *m, const struct space *s, const struct session *session,
                 struct lock_plan *plan, const struct program_lock *ask);
/* Does it all, in order; rows get their fences. */
void plan_perform(struct machine *m, struct space *s, struct session *session,
                  const struct lock_plan *plan, struct txn_row *rows, struct effects *fx);

/* node.c: who waits where, and nodes that are not heard */
void nodes_init(struct machine *m);
void wait_set_asker(struct machine *m, struct wait *w, uint64_t asker);
void parked_set_asker(struct machine *m, struct parked *p, uint64_t asker);
void node_note(struct machine *m, const struct op *op);
void node_serve(struct machine *m, const struct op *op, struct effects *fx);
/* It is heard, or the run that was silent is over. */
void node_is_back(struct machine *m, struct node *n);
int node_by_ticket(const void *a, const void *b); /* of two struct heap_node pointers */

static inline bool node_is_silent(const struct machine *m, uint64_t asker)
{
    return m->n_silent && asker && !(asker & OP_ASKER_LOOSE) && m->nodes[op_node(asker)].silent;
}

/* machine.c, invariants.c */
struct machine *machine_new(struct hash_key key); /* without any account */
/* Walks everything: the first promise that is broken, NULL when the state is sound. */
const char *machine_unsound(const struct machine *m);
bool machine_is_sound(const struct machine *m); /* stops the process if not: BELAY_DCHECK */
#endif
