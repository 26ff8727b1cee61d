/* txn.h - transactions: what one look at them does. */
#ifndef BELAY_MACHINE_TXN_H
#define BELAY_MACHINE_TXN_H

#include "machine/state.h"

void txn_request(struct machine *m, const struct op *op, struct effects *fx);
/* One look at a parked transaction: true when it happened or failed for good; it has been
 * answered then and is gone. */
bool txn_try_parked(struct machine *m, struct parked *p, struct effects *fx);
/* Its deadline: answered with what it fails on, and gone. */
void txn_time_out(struct machine *m, struct parked *p, struct effects *fx);
void txn_scratch_free(struct txn_scratch *x); /* NULL is allowed */
#endif
