/* mail.h - what the bytes of a MAIL may be; the rest of mail.c is behind machine.h. */
#ifndef BELAY_MACHINE_MAIL_H
#define BELAY_MACHINE_MAIL_H

#include "base/err.h"
#include "base/slice.h"

/* As op_validate(): are these letters that a group may write? */
BELAY_MUST_CHECK enum belay_err mail_check(struct slice letters, const char **ret_what);
#endif
