/* lock.h - locks and their holds. */
#ifndef BELAY_MACHINE_LOCK_H
#define BELAY_MACHINE_LOCK_H

#include "machine/state.h"

struct lock *lock_find(const struct machine *m, const struct space *s, struct slice name);
struct lock *lock_get(struct machine *m, struct space *s, struct slice name); /* or makes it */
/* The same in two steps, the name hashed once: find it, and make the one that is not there. */
struct lock *lock_locate(const struct machine *m, const struct space *s, struct slice name,
                         uint64_t *ret_hash);
struct lock *lock_make(struct machine *m, struct space *s, struct slice name, uint64_t hash);
void lock_drop_if_idle(struct machine *m, struct lock *l); /* frees what is not needed */
void lock_free(struct machine *m, struct lock *l);
struct more *lock_more(struct lock *l);
void lock_set_body(struct lock *l, struct slice body);
void lock_touch(struct machine *m, struct lock *l); /* its line is to be served in this step */
void lock_serve_touched(struct machine *m, struct effects *fx);
struct event *lock_news(const struct machine *m, const struct lock *l, enum event_kind kind,
                        struct effects *fx); /* news about this lock, to be filled in */
bool lock_is_closed(const struct lock *l, uint64_t now_ms);

struct grant { /* what a hold is made of */
    struct slice owner;
    struct session *session;
    uint64_t asker;
    struct lease_terms terms;
    uint32_t weight, token;
};
struct hold *hold_add(struct machine *m, struct lock *l, const struct grant *g, uint64_t fence);
void hold_place(struct machine *m, struct hold *h); /* last in its lists: it has a new fence */
/* All of them will go in this step: they leave at once the tables in which they are found. */
void lock_forget_holders(struct machine *m, struct lock *l);
void hold_end(struct machine *m, struct hold *h, enum event_kind kind, enum reason reason,
              struct effects *fx); /* the hold is gone afterwards, its line is touched */
struct event *hold_granted(struct machine *m, const struct hold *h, struct effects *fx);
struct event *hold_tell_grant(struct machine *m, const struct hold *h,
                              struct effects *fx); /* as it is now; nothing happens */
void hold_expire(struct machine *m, struct hold *h, struct effects *fx);
bool who_same(struct who a, struct who b);
uint64_t who_hash(const struct machine *m, struct who who);
#endif
