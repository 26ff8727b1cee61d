/* invariants.h - the promises that the whole state must keep. */
#ifndef BELAY_MACHINE_INVARIANTS_H
#define BELAY_MACHINE_INVARIANTS_H

#include "machine/state.h"

/* Walks everything: the first promise that is broken, NULL when the state is sound. */
const char *machine_unsound(const struct machine *m);
bool machine_is_sound(const struct machine *m); /* stops the process if not: BELAY_DCHECK */
#endif
