/* request.h - what is asked of locks. */
#ifndef BELAY_MACHINE_REQUEST_H
#define BELAY_MACHINE_REQUEST_H

#include "machine/state.h"

void request_acquire(struct machine *m, const struct op *op, struct effects *fx);
void request_release(struct machine *m, const struct op *op, struct effects *fx);
void request_renew(struct machine *m, const struct op *op, struct effects *fx);
void request_body(struct machine *m, const struct op *op, struct effects *fx);
void request_convert(struct machine *m, const struct op *op, struct effects *fx);
void request_break(struct machine *m, const struct op *op, struct effects *fx);
/* The request that stands here has been sent again: the answer goes to the new asker. */
void request_return(struct machine *m, struct wait *w, const struct op *op, struct effects *fx);
/* A grant that has been judged: of a new hold, and of one that is held already. */
struct hold *request_grant(struct machine *m, struct lock *l, const struct op *op,
                           struct session *session, struct effects *fx);
void request_grant_again(struct machine *m, struct hold *h, const struct op *op,
                         struct effects *fx);
uint32_t request_capacity(const struct op *op);
uint32_t request_weight(const struct op *op);
/* The hold that op names by fence or owner and that is not over, or NULL. */
struct hold *request_hold(const struct machine *m, const struct lock *l, const struct op *op,
                          uint64_t now_ms);
struct space *request_space(const struct machine *m, const struct op *op, struct effects *fx);
struct event *request_failed(const struct op *op, enum belay_err err, const char *text,
                             struct effects *fx);

struct slice request_name(const struct op *op, size_t i); /* 0: op->name, then op->more */
/* The hold becomes again what it was before the upgrade that its asker did not hear of. */
void request_undo_upgrade(struct machine *m, struct hold *h, struct effects *fx);
#endif
