/* deadlock.h - would a wait close a cycle? */
#ifndef BELAY_MACHINE_DEADLOCK_H
#define BELAY_MACHINE_DEADLOCK_H

#include "machine/state.h"

/* Would `who`, waiting for `l`, close a cycle? Then it is put into fx's arena. */
bool deadlock_found(struct machine *m, const struct lock *l, struct who who, struct effects *fx,
                    struct cycle_step **ret_cycle, size_t *ret_n);
#endif
