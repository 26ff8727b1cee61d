/* cancel.h - requests whose asker is gone. */
#ifndef BELAY_MACHINE_CANCEL_H
#define BELAY_MACHINE_CANCEL_H

#include "machine/state.h"

void cancel_request(struct machine *m, const struct op *op, struct effects *fx);
/* Is that the number of the asker that is gone? */
bool cancel_is_for(const struct machine *m, const struct op *cancel, uint64_t asker);
#endif
