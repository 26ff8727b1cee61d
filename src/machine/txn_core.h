/* txn_core.h - a transaction while it is evaluated: for txn.c and txn_var.c alone. */
#ifndef BELAY_MACHINE_TXN_CORE_H
#define BELAY_MACHINE_TXN_CORE_H

#include "machine/program.h"
#include "machine/txn.h"
#include "machine/txn_lock.h"
#include "machine/txn_wait.h"

/* One change of a slot's records, to be made final or undone. */
struct change {
    struct record *record;
    struct record *prev; /* it stands, or stood, behind this one; NULL: first */
    bool added;          /* else: deleted */
};

struct txn_scratch {
    struct change *changes;
    size_t n_changes, cap_changes;
    struct slot **slots; /* those that are marked touched */
    size_t n_slots, cap_slots;
    struct read *reads;
    size_t n_reads, cap_reads;
    struct txn_row *rows;
    size_t n_rows, cap_rows;
    struct lock_step steps[LIMIT_TXN_LOCKS];
};

struct eval {
    struct machine *m;
    struct space *space;
    struct session *session;
    struct slice description; /* the transaction's */
    struct effects *fx;
    struct txn_scratch *x;
    struct lock_plan plan;
    struct reader r;
    bool watching; /* what is read is written down */
    uint64_t waited_ms;
    uint64_t work;     /* nodes evaluated, records looked at */
    size_t data_bytes; /* below LEVEL_PARTS */
    size_t statement;  /* at the top */
    const char *path[LIMIT_TXN_DEPTH];
    size_t depth;
    bool stopped;           /* no statement is evaluated any more */
    bool may_wait;          /* stopped by an assert */
    struct txn_limit limit; /* stopped by a limit: which */
    struct slice failed;
};

/* Room for one more, in txn_scratch. */
void *txn_grown(void *items, size_t n, size_t *cap, size_t size);
/* What is too much stops the evaluation: false. */
bool txn_bounded(struct eval *e, struct txn_limit limit);
bool txn_over_limit(struct eval *e, const char *limit);
bool txn_spend(struct eval *e, uint64_t units, const char *too_much);
bool txn_afford(struct eval *e, uint64_t units);
void txn_stop(struct eval *e, bool by_assert);
void txn_note_read(struct eval *e,
                   struct read what); /* a change of it wakes a parked transaction */

/* txn_var.c */
bool txn_exists(struct eval *e, const struct program_var *v);
bool txn_set(struct eval *e, const struct program_var *v);
bool txn_delete(struct eval *e, const struct program_var *v);
void txn_select(struct eval *e, const struct program_var *v);
bool txn_room_for(struct eval *e, size_t bytes); /* false: there would be too much selected */
struct txn_row *txn_add_row(struct eval *e, struct slice name, enum txn_row_kind kind);
#endif
