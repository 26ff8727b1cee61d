/* txn_wait.h - parked transactions, and what wakes them. */
#ifndef BELAY_MACHINE_TXN_WAIT_H
#define BELAY_MACHINE_TXN_WAIT_H

#include "machine/state.h"
#include "machine/txn_lock.h"

struct parked *parked_new(struct space *s, struct session *session, struct slice program,
                          struct slice description);
/* May one more of so many bytes wait there? */
struct txn_limit parked_limit(const struct space *s, uint64_t bytes);
void parked_link(struct machine *m, struct parked *p, uint64_t ticket, uint64_t deadline_ms);
void parked_watch(struct machine *m, struct parked *p, const struct read *reads, size_t n);
void parked_remove(struct machine *m, struct parked *p); /* frees it; answers nobody */
void parked_leave(struct machine *m, struct parked *p, enum txn_status status,
                  enum txn_cause cause, struct effects *fx); /* answered, and gone */
void parked_expire(struct machine *m, struct parked *p, struct effects *fx);
void parked_leave_space(struct machine *m, struct space *s, struct effects *fx);
void parked_end_if_dead(struct machine *m, struct parked *p, struct effects *fx);
void parked_away(struct machine *m, struct parked *p, uint64_t since_ms); /* as wait_away() */
void parked_return(struct machine *m, struct parked *p, const struct op *op,
                   struct effects *fx);  /* as request_return() */
void space_free_parked(struct space *s); /* as space_free_tables() */
void parked_cancel(struct machine *m, const struct op *op,
                   struct effects *fx); /* its client is gone */
/* Looks at those that are ready, in ticket order; a batch. */
void parked_serve(struct machine *m, struct effects *fx);
void watch_wake(struct machine *m, const struct space *s, const struct read *what);

static inline void lock_changed(struct machine *m, const struct lock *l)
{
    if (l->space->watched.count)
        watch_wake(m, l->space, &(struct read){.kind = WATCH_LOCK, .key = lock_name(l)});
}

static inline void slot_changed(struct machine *m, const struct slot *s)
{
    if (s->table->space->watched.count)
        watch_wake(m, s->table->space,
                   &(struct read){WATCH_VARIABLE, table_name(s->table), slot_key(s)});
}
#endif
