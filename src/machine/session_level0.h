/* session_level0.h - what is otherwise at level 0 (level.h). */
#ifndef BELAY_MACHINE_SESSION_LEVEL0_H
#define BELAY_MACHINE_SESSION_LEVEL0_H

#include "machine/state.h"

void old_guest_used(struct machine *m, struct session *s);
void old_ask(struct machine *m, struct session *s);
void old_sessions_move(struct machine *m); /* to level LEVEL_KEEP_FIRST */
void guest_lingers(struct machine *m, const struct op *message);
void guest_asked(struct machine *m, const struct op *message);
void guest_answered(struct machine *m, const struct op *message, uint64_t shard,
                    struct effects *fx);
void guest_enrols(struct machine *m, const struct op *message, uint64_t shard);
#endif
