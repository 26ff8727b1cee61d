/* machine.h - the lock state machine: who holds what, who is next.
 *
 * Pure: no clock, no I/O, no randomness, no log, and no failure return. The same ops in the
 * same order give the same state and the same events on every node and every run, whatever the
 * hash key. Time is an input (op.now_ms) and never goes back.
 *
 *   account -> namespace -> lock -> holders, line of waiters, body
 *                         table -> variable -> a record of each session that has set it
 *   session -> its holds, waits and records, wherever they are
 *   one counter per machine gives fences, tickets, session and record numbers: never twice
 *   messages to other machines, when it is one of several (outbox.c)
 *
 * Something is over when now >= its end. Ends are worked off at the start of every op, in order
 * of (end, number), at most MACHINE_EXPIRE_BATCH units of work an op, so that a million leases
 * that end together never stop the loop; machine_due() says that more are waiting, and a TICK
 * takes the next batch. Until then such a hold still keeps others out, but it cannot be
 * renewed, checked or used, and a dead waiter is never granted: late at worst, never early,
 * never revived. */
#ifndef BELAY_MACHINE_MACHINE_H
#define BELAY_MACHINE_MACHINE_H

#include "base/buf.h"
#include "base/hash.h"
#include "machine/event.h"
#include "machine/op.h"

enum { MACHINE_EXPIRE_BATCH = 1024 };

struct machine; /* fields: machine/state.h, for the files of this folder only */

/* A machine with the account "default" and its namespace "default". `key` seeds the hash
 * tables: random in production, and without influence on any result. */
struct machine *machine_open(struct hash_key key);
void machine_close(struct machine *m); /* NULL is allowed */

/* One of several groups, each a machine with an order of its own: group 0 knows accounts,
 * namespaces and sessions, the others keep what is in the namespaces. Right after
 * machine_open(). */
void machine_set_group(struct machine *m, unsigned group, unsigned n_groups);
bool machine_is_group(const struct machine *m, unsigned group, unsigned n_groups);

/* Which rules it follows (level.h): the newest at first, or an older level that the log of this
 * state began with; that is said right after machine_open(). */
uint64_t machine_level(const struct machine *m);
void machine_set_level(struct machine *m, uint64_t level);

/* For tests alone. A CANCEL compares only so many bits of the count in an asker's number, as if
 * numbers came again that soon; `by_number`: and nothing else, which is a defect. */
void machine_set_askers(struct machine *m, unsigned count_bits, bool by_number);

/* For tests alone: so many units of work an op instead of MACHINE_EXPIRE_BATCH, so that a few
 * ends are a crowd. */
void machine_set_batch(struct machine *m, unsigned units);

/* For tests alone: instead of LIMIT_TXN_WORK, so that small transactions reach it. */
void machine_set_txn_work(struct machine *m, uint64_t units);
/* What the transactions of the last op cost, those that were woken or timed out included. */
uint64_t machine_txn_work(const struct machine *m);

/* Applies one ordered write. Cannot fail: a request that may not succeed gets an event that
 * says so; a broken invariant stops the process. op->index must be machine_applied() + 1 and
 * the op must have passed op_validate(). Events are added to `fx`. */
void machine_apply(struct machine *m, const struct op *op, struct effects *fx);

/* Fences beyond this are no exact numbers in JSON. Nobody comes near it by granting. */
#define MACHINE_NUMBER_MAX (UINT64_C(1) << 53)

/* The state goes on as another cluster's, from where it is. Numbers go on `skip` higher, so that
 * none is given that the old cluster may have given since. What has not ended yet (leases,
 * sessions, variables) has its whole time to live from machine_now() on; or, without `keeps`,
 * every hold and every session ends now. machine_number() + skip <= MACHINE_NUMBER_MAX. */
void machine_restore(struct machine *m, uint64_t skip, bool keeps);

/* Answers a read (op_is_read) as of op->now_ms, changing nothing. */
void machine_query(const struct machine *m, const struct op *op, struct effects *fx);

/* The lock as it is, in fx's arena: for answers that carry it. NULL: no such namespace. */
struct lock_row *machine_lock_row(const struct machine *m, const struct op *op,
                                  struct effects *fx);

uint64_t machine_applied(const struct machine *m); /* index of the last op, 0 at first */
uint64_t machine_number(const struct machine *m);  /* the next fence, ticket or the like */
uint64_t machine_now(const struct machine *m);     /* its time */
/* When the next thing ends, UINT64_MAX: never. At or before machine_now(): a batch is waiting.
 */
uint64_t machine_due(const struct machine *m);

struct machine_counts {
    uint64_t locks, held, waiting, sessions, namespaces;
    uint64_t variables, transactions; /* records; transactions that wait */
    uint64_t receipts;                /* answers to requests with an id */
};
void machine_counts(const struct machine *m, struct machine_counts *ret);

/* All that stand in a line or have a waiting transaction, in no particular order. */
void machine_each_waiting(const struct machine *m, void (*each)(void *ctx, uint64_t asker),
                          void *ctx);

/* Does anybody wait at the node in that place (op_node), and stays there? Is it known not to be
 * heard? (node.c) */
bool machine_has_waiting(const struct machine *m, size_t place);
bool machine_is_silent(const struct machine *m, size_t place);

/* What it has to tell other groups (outbox.c). Messages to a group are numbered from 1. */
uint64_t machine_messages(const struct machine *m); /* how many are not known to be taken */
uint64_t machine_posted(const struct machine *m, unsigned to);  /* the last one to that group */
uint64_t machine_waiting(const struct machine *m, unsigned to); /* the first not known taken */
uint64_t machine_taken(const struct machine *m, unsigned from); /* the last one from there */
/* Messages to that group from number `first` on, as much as one MESSAGES carries; their count.
 */
size_t machine_outbox(const struct machine *m, unsigned to, uint64_t first, struct buf *out);

/* A session that lives, as its group knows it. */
struct machine_session {
    uint64_t number; /* in group 0; 0: not known, in a shard that knows it from level 0 */
    uint64_t ttl_ms;
    uint64_t target; /* group 0: the connection it is attached to, 0: none */
    uint64_t token;  /* that opened it; 0: none */
};
bool machine_session(const struct machine *m, struct slice account, struct slice id,
                     struct machine_session *ret);
/* Has the end of a session with that id begun, and is something of it left? */
bool machine_session_ends(const struct machine *m, struct slice account, struct slice id);
/* Adds what this group has of it to a row of group 0. */
void machine_add_session(const struct machine *m, struct slice account,
                         struct session_row *row);
/* Adds what it has here to the items of an answer of group 0, behind those of groups before. */
void machine_add_items(const struct machine *m, const struct op *op, struct event *ev,
                       struct effects *fx);
void machine_add_namespace(const struct machine *m, struct slice account,
                           struct namespace_row *row);

/* Adds what this group counts of the account to a row of group 0. */
/* Group 0: the account at place `i`, borrowed until the next op. False: there is none there. */
size_t machine_accounts(const struct machine *m); /* places, also of those that are going */
bool machine_account_at(const struct machine *m, size_t i, struct account_row *ret);
void machine_add_account(const struct machine *m, struct account_row *row);

/* Must a client have a token? */
bool machine_closed(const struct machine *m);
/* Of an OP_LOGIN: is it the secret of a token that counts at op->wall_ms? In about the same
 * time for every answer. The row borrows from `fx`. */
bool machine_login(const struct machine *m, const struct op *op, struct token_row *ret,
                   struct effects *fx);
/* A token that was logged in with, as long as this generation of it counts. Borrows from the
 * machine: until its next op. */
struct machine_token {
    uint64_t number, used_ms;
    struct slice account, rules;
};
/* The newest generation of a token, for a client whose certificate names that token; 0: the
 * account has no such token. */
uint64_t machine_token_generation(const struct machine *m, struct slice account,
                                  struct slice id);
bool machine_token(const struct machine *m, struct slice id, uint64_t generation,
                   uint64_t wall_ms, struct machine_token *ret);

/* The whole state with version and checksum; equal states give equal bytes. */
void machine_encode(const struct machine *m, struct buf *out);
/* Never trusts the bytes: BELAY_ERR_CORRUPT on anything that is not a sound state. */
BELAY_MUST_CHECK enum belay_err machine_decode(struct slice in, struct hash_key key,
                                               struct machine **ret_m);
/* The level in a snapshot, also in one of a later version, which nothing else can be read of.
 * 0 when these are not the bytes of one. */
uint64_t machine_snapshot_level(struct slice in);
uint64_t machine_hash(const struct machine *m); /* of the state; equal on all replicas */
#endif
