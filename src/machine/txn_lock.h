/* txn_lock.h - what a transaction wants to do to locks, before it is done. */
#ifndef BELAY_MACHINE_TXN_LOCK_H
#define BELAY_MACHINE_TXN_LOCK_H

#include "machine/state.h"

/* What is in the way of a transaction: a limit, or the quota of its account. */
struct txn_limit {
    const char *text; /* NULL: nothing */
    bool is_quota;
    enum quota quota;
};

/* Would there be so many more of them than the account may have? */
static inline struct txn_limit txn_quota(const struct account *a, enum quota quota,
                                         uint64_t more)
{
    const char *word = quota_reached(a, quota, more) ? quota_word(quota) : NULL;
    return (struct txn_limit){word, true, quota};
}

struct lock_plan {
    struct lock_step *steps; /* LIMIT_TXN_LOCKS of them */
    size_t n;
    uint32_t token; /* that asks; 0: none */
};
struct lock_step {
    struct program_lock ask;
    bool is_unlock;
    struct hold *hold; /* UNLOCK: the one that goes; LOCK: the one that is granted again */
    bool on_planned;   /* the same for a hold that this transaction takes: not yet known */
    bool freed;        /* LOCK: by a later step */
    bool makes;        /* LOCK: there is no such lock yet */
    size_t row;        /* LOCK: where its fence goes */
};
/* Could it be done now? Then it is in the plan. LOCK: *ret_limit says what is in the way. */
bool plan_lock(const struct machine *m, const struct space *s, struct session *session,
               struct lock_plan *plan, const struct program_lock *ask,
               struct txn_limit *ret_limit);
bool plan_unlock(const struct machine *m, const struct space *s, const struct session *session,
                 struct lock_plan *plan, const struct program_lock *ask);
/* Does it all, in order; rows get their fences. */
void plan_perform(struct machine *m, struct space *s, struct session *session,
                  const struct lock_plan *plan, struct txn_row *rows, struct effects *fx);
#endif
