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
 *   letters to other machines, when it is one of several (mail.c)
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

/* Applies one ordered write. Cannot fail: a request that may not succeed gets an event that
 * says so; a broken invariant stops the process. op->index must be machine_applied() + 1 and
 * the op must have passed op_validate(). Events are added to `fx`. */
void machine_apply(struct machine *m, const struct op *op, struct effects *fx);

/* Answers a read (op_is_read) as of op->now_ms, changing nothing. */
void machine_query(const struct machine *m, const struct op *op, struct effects *fx);

/* The lock as it is, in fx's arena: for answers that carry it. NULL: no such namespace. */
struct lock_row *machine_lock_row(const struct machine *m, const struct op *op,
                                  struct effects *fx);

uint64_t machine_applied(const struct machine *m); /* index of the last op, 0 at first */
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

/* Whoever stands in a line or has a transaction that waits, in no order that means anything. */
void machine_each_waiting(const struct machine *m, void (*each)(void *ctx, uint64_t asker),
                          void *ctx);

/* What it has to tell other groups (mail.c). Letters to a group are numbered from 1. */
uint64_t machine_letters(const struct machine *m); /* how many are not known to be taken */
uint64_t machine_posted(const struct machine *m, unsigned to);  /* the last one to that group */
uint64_t machine_waiting(const struct machine *m, unsigned to); /* the first not known taken */
uint64_t machine_taken(const struct machine *m, unsigned from); /* the last one from there */
/* Letters to that group from number `first` on, as much as one MAIL carries; their count. */
size_t machine_mail(const struct machine *m, unsigned to, uint64_t first, struct buf *out);

bool machine_knows_session(const struct machine *m, struct slice id);
/* Shard: it was used here, and only group 0 knows whether it was over by then. */
bool machine_doubts_session(const struct machine *m, struct slice id);
/* Adds what this group has of it to a row of group 0. */
void machine_add_session(const struct machine *m, struct session_row *row);
void machine_add_namespace(const struct machine *m, struct slice account,
                           struct namespace_row *row);

/* The whole state with version and checksum; equal states give equal bytes. */
void machine_encode(const struct machine *m, struct buf *out);
/* Never trusts the bytes: BELAY_ERR_CORRUPT on anything that is not a sound state. */
BELAY_MUST_CHECK enum belay_err machine_decode(struct slice in, struct hash_key key,
                                               struct machine **ret_m);
uint64_t machine_hash(const struct machine *m); /* of the state; equal on all replicas */
#endif
