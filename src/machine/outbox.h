/* outbox.h - messages from one group to another: written, taken once, and what their bytes may
 * be. */
#ifndef BELAY_MACHINE_OUTBOX_H
#define BELAY_MACHINE_OUTBOX_H

#include "base/err.h"
#include "base/slice.h"
#include "machine/event.h"
#include "machine/op.h"

struct machine;

/* As op_validate(): are these messages that a group may write? */
BELAY_MUST_CHECK enum belay_err outbox_check(struct slice messages, const char **ret_what);

void outbox_take(struct machine *m, const struct op *op, struct effects *fx);
void outbox_taken(struct machine *m, const struct op *op, struct effects *fx);
bool outbox_is_full(const struct machine *m, unsigned to);
void outbox_post(struct machine *m, unsigned to, const struct op *message);
uint64_t outbox_everybody(const struct machine *m); /* event.posted for all it writes to */
/* May something be told to all shards? If not, it has been answered. */
bool outbox_may_tell(const struct machine *m, const struct op *op, struct effects *fx);
void outbox_post_all(struct machine *m, const struct op *message);
void outbox_free(struct machine *m);
#endif
