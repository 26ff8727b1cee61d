/* survivor.h - is what is left of a cluster enough for a new one? */
#ifndef BELAY_SERVER_SURVIVOR_H
#define BELAY_SERVER_SURVIVOR_H

#include "repair/inspect.h"

/* Starts a node from that directory (takes the disk), alone, and applies its whole log.
 * BELAY_ERR_GONE: the states of its groups do not fit together (engine_is_cut), because it was
 * behind in some of them: messages between groups would be lost. Others: it does not start. */
BELAY_MUST_CHECK enum belay_err survivor_check(struct disk *disk, uint64_t node);
#endif
