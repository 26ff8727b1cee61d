/* account.h - what the fields of an op about accounts and tokens may be; the rest of account.c
 * is behind machine.h. */
#ifndef BELAY_MACHINE_ACCOUNT_H
#define BELAY_MACHINE_ACCOUNT_H

#include "base/buf.h"
#include "machine/event.h"
#include "machine/op.h"

/* As op_validate(): NULL, or what is wrong. */
const char *account_check(const struct op *op);
const char *token_check(const struct op *op); /* of those about tokens */

/* The limits in op.body: which ones are given, and what they are. */
struct limits {
    bool given[QUOTA_COUNT];
    uint64_t at[QUOTA_COUNT]; /* 0: none */
};
void limits_put(const struct limits *limits, struct buf *out);
bool limits_get(struct slice bytes, struct limits *ret); /* false: these are not limits */
#endif
