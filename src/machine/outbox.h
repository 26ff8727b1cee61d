/* outbox.h - what the bytes of a MESSAGES may be; the rest of outbox.c is behind machine.h. */
#ifndef BELAY_MACHINE_OUTBOX_H
#define BELAY_MACHINE_OUTBOX_H

#include "base/err.h"
#include "base/slice.h"

/* As op_validate(): are these messages that a group may write? */
BELAY_MUST_CHECK enum belay_err outbox_check(struct slice messages, const char **ret_what);
#endif
