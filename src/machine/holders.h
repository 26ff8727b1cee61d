/* holders.h - who holds a lock, however many they are.
 *
 * A hold is added when it is in the lock's list, and removed before its fence changes or it
 * leaves; then the crowd may shrink. */
#ifndef BELAY_MACHINE_HOLDERS_H
#define BELAY_MACHINE_HOLDERS_H

#include "machine/state.h"

void holders_add(struct machine *m, struct hold *h);
void holders_remove(struct hold *h);
void holders_shrink(struct lock *l);
void holders_free(struct lock *l); /* when the machine closes, or all of them go */
struct hold *holder_by_fence(const struct lock *l, uint64_t fence); /* NULL: nobody */
struct hold *holder_by_who(const struct machine *m, const struct lock *l, struct who who);
/* The holds of an owner in all sessions, by fence; `after` NULL: the first. The same for those
 * that a request names and that are not over. */
struct hold *holder_next(const struct machine *m, const struct lock *l, struct slice owner,
                         const struct hold *after);
struct hold *holder_named(const struct machine *m, const struct lock *l, const struct op *op,
                          uint64_t now_ms, struct hold *after);
#endif
