/* table.h - tables, slots and records of variables. */
#ifndef BELAY_MACHINE_TABLE_H
#define BELAY_MACHINE_TABLE_H

#include "machine/state.h"

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
/* What it counts as when it is selected: its value, and its description or that of its session. */
size_t record_bytes(const struct machine *m, const struct record *r);
struct record_row record_row(const struct record *r, uint64_t now_ms, struct effects *fx);
void table_query(const struct machine *m, const struct space *s, const struct op *op,
                 struct effects *fx);
void space_free_tables(struct space *s); /* when the machine closes: everything at once */
#endif
