/* namespace.h - accounts and their namespaces in the state. */
#ifndef BELAY_MACHINE_NAMESPACE_H
#define BELAY_MACHINE_NAMESPACE_H

#include "machine/state.h"

struct space *space_find(const struct machine *m, struct slice account, struct slice name);
struct space *space_add(struct machine *m, struct account *a, struct slice name);
struct space *space_new(struct machine *m, struct account *a,
                        struct slice name);                              /* in no list */
struct account *account_any(const struct machine *m, struct slice name); /* deleted, too */
struct account *account_find(const struct machine *m, struct slice name);
struct account *account_add(struct machine *m, struct slice name);
void space_describe(struct space *s, struct slice description);
void space_free(struct space *s);
void space_doom(struct machine *m, struct space *s); /* it is taken apart from now on */
void namespace_create(struct machine *m, const struct op *op, struct effects *fx);
void namespace_update(struct machine *m, const struct op *op, struct effects *fx);
void namespace_delete(struct machine *m, const struct op *op, struct effects *fx);
/* What a message says. */
void namespace_appear(struct machine *m, const struct op *message);
void namespace_vanish(struct machine *m, const struct op *message);
void namespace_bury(struct machine *m); /* frees doomed namespaces that are empty by now */
uint64_t namespace_reap(struct machine *m, uint64_t budget,
                        struct effects *fx); /* units left */
#endif
