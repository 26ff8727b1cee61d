/* twin.h - the state machine once more, as simple as it can be: arrays, searched from end to
 * end.
 *
 * Written from docs/SEMANTICS.md, rule by rule, and not from the machine: it is right by being
 * obvious. It forgets nothing and is slow. The model test compares every event of the two. */
#ifndef BELAY_TESTS_TWIN_H
#define BELAY_TESTS_TWIN_H

#include "machine/event.h"
#include "machine/machine.h"
#include "machine/op.h"

struct twin;

struct twin *twin_open(unsigned batch); /* as machine_set_batch() */
void twin_close(struct twin *t);        /* NULL is allowed */
void twin_apply(struct twin *t, const struct op *op, struct effects *fx);
void twin_query(const struct twin *t, const struct op *op, struct effects *fx);
void twin_counts(const struct twin *t, struct machine_counts *ret);
uint64_t twin_due(const struct twin *t);               /* as machine_due() */
uint64_t twin_number(const struct twin *t);            /* as machine_number() */
bool twin_waits(const struct twin *t, uint64_t asker); /* in some line */
#endif
