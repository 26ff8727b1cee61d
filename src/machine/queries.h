/* queries.h - what the answers to reads have in common; and the reads of find.c. */
#ifndef BELAY_MACHINE_QUERIES_H
#define BELAY_MACHINE_QUERIES_H

#include "machine/state.h"

uint64_t query_left(uint64_t at, uint64_t now_ms); /* 0: it is over */
uint64_t query_now(const struct machine *m, const struct op *op);
size_t query_page(const struct op *op); /* rows of a page */
struct event *query_rows(const struct machine *m, const struct op *op, struct effects *fx);
enum lock_state query_state(const struct lock *l, uint64_t now_ms);
struct holder_row query_holder(const struct hold *h, uint64_t now_ms, struct effects *fx);
/* Without its position. */
struct waiter_row query_waiter(const struct wait *w, uint64_t now_ms, struct effects *fx);

bool query_may_read(const struct op *op, struct slice name);
/* Behind a lock that may not be read, the next one that may; or NULL. A few steps for a rule. */
struct lock *query_next(const struct index *index, const struct op *op, struct lock *l,
                        struct index_place *place);

/* find.c */
void find_locks(const struct machine *m, const struct space *s, const struct op *op,
                struct effects *fx);
void find_crowd(const struct machine *m, const struct space *s, const struct op *op,
                struct effects *fx);
void find_items(const struct machine *m, const struct op *op, struct effects *fx);
#endif
