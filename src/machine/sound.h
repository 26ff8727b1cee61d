/* sound.h - what is true of one thing in the state whenever a function of this folder is
 * entered or left: a few comparisons, so that release builds make them too. The walk over the
 * whole state is in invariants.c. */
#ifndef BELAY_MACHINE_SOUND_H
#define BELAY_MACHINE_SOUND_H

#include "machine/state.h"

/* Nothing is given twice, and the counts agree with the list. */
static inline bool lock_is_sound(const struct lock *l)
{
    bool is_held = l->n_holds != 0;
    return l->used <= l->capacity && is_held == !list_empty(&l->holds) &&
           is_held == (l->used != 0) && l->n_holds <= LIMIT_HOLDERS;
}

/* In the line of its lock, and in the list of its session if it has one. */
static inline bool wait_is_linked(const struct wait *w)
{
    const struct more *more = w->lock->more;
    return more && more->n_waits > 0 && !list_empty(&w->in_lock) &&
           !list_empty(&w->in_waiter) && (w->session == NULL) == list_empty(&w->in_session);
}

/* The same for a hold. What it weighs is part of what its lock has given away. */
static inline bool hold_is_linked(const struct hold *h)
{
    return h->weight > 0 && h->weight <= h->lock->used && !list_empty(&h->in_lock) &&
           (h->session == NULL) == list_empty(&h->in_session);
}

/* Holds are a part of its items, and no list is empty that is counted as full. */
static inline bool session_is_sound(const struct session *s)
{
    return s->n_holds <= s->n_items && (s->n_holds == 0) == list_empty(&s->holds) &&
           (s->n_items == s->n_holds) == list_empty(&s->waits);
}

/* It counts: it has a number, and its session knows it. */
static inline bool record_is_settled(const struct record *r)
{
    return r->end.seq != 0 && !r->gone && !list_empty(&r->in_session);
}

/* It has a deadline, and its namespace and its session know it. */
static inline bool parked_is_linked(const struct parked *p)
{
    return p->end.pos != 0 && p->space->n_parked > 0 && !list_empty(&p->in_space) &&
           !list_empty(&p->in_session);
}
#endif
