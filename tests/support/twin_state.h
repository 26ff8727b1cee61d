/* twin_state.h - the fields of the twin, for twin*.c only. Holds stand in order of their fences
 * and waits in order of their tickets: numbers only rise, and a new one goes to the end. */
#ifndef BELAY_TESTS_TWIN_STATE_H
#define BELAY_TESTS_TWIN_STATE_H

#include "twin.h"

#define FOREVER UINT64_MAX

struct t_space {
    struct slice name, text;
    uint64_t created, updated;
    uint64_t doomed; /* not 0: deleted and not yet taken apart; the smaller went first */
};

struct t_lock { /* a name that was ever used; most are nothing any more */
    struct t_space *space;
    struct slice name, body;
    uint64_t closed_until, closed_no; /* closed_no 0: open */
    uint64_t last_shared;
    uint64_t users; /* holds and waits, when they are being counted */
};

struct t_session {
    struct slice id, text;
    uint64_t no, ttl, linger, end, target;
    uint64_t owed;      /* what a connection before this one was promised */
    enum reason ending; /* why it ends, part by part; REASON_NONE: it lives */
    uint64_t had;       /* then, when that began */
};

struct t_hold {
    struct t_lock *lock;
    struct slice owner;
    struct t_session *session;
    enum lock_mode mode;
    uint64_t permits, of, fence, asker, since, end, ttl, grace, delay;
    bool overdue;
};

struct t_wait {
    struct t_lock *lock;
    struct slice owner, body;
    struct t_session *session;
    struct t_hold *upgrade; /* NULL: a plain wait */
    enum lock_mode mode;
    enum lock_policy policy;
    bool sets_body;
    enum { AWAY_NOT, AWAY, AWAY_CUT } away; /* its node is gone; and its end was cut */
    uint64_t permits, of, ticket, asker, since, ttl, grace, delay, quiet;
    uint64_t end; /* the wait runs out */
    uint64_t
        look; /* when to look at it: its end, or before that, when it may have been quiet */
};

struct t_receipt {
    struct slice id, asked;
    uint64_t asker; /* who gets the answer */
    uint64_t at;    /* answered then; before that: asked then */
    bool answered;
    struct event answer;
};

struct twin {
    unsigned batch;     /* units of work that an op does for what is due */
    uint64_t units;     /* that are left for lines */
    uint64_t end_units; /* and in this op for sessions that it ends */
    uint64_t now, last; /* time; the last number given */
    uint64_t n_hidden;
    uint64_t dooms;     /* namespaces deleted so far */
    struct arena texts; /* copies of all names, owners, bodies: kept until the end */
    struct t_space **spaces;
    struct t_lock **locks;
    struct t_session **sessions;
    struct t_hold **holds;
    struct t_wait **waits;
    struct t_receipt **receipts;
    size_t n_spaces, n_locks, n_sessions, n_holds, n_waits, n_receipts;
    struct t_lock **served; /* the lines to serve in this step */
    size_t n_served;
    struct t_wait **line; /* the line that is being served */
    struct {
        bool silent;
        uint64_t since;
    } nodes[OP_NODES_MAX]; /* that are not heard */
};

struct t_space *twin_space(const struct twin *t, struct slice name); /* NULL: unknown */
struct t_lock *twin_lock(const struct twin *t, const struct t_space *s, struct slice name);
struct t_session *twin_session(const struct twin *t, struct slice id); /* that does not end */
bool twin_exists(const struct twin *t, const struct t_lock *l);
size_t twin_holds_on(const struct twin *t, const struct t_lock *l);
size_t twin_waits_on(const struct twin *t, const struct t_lock *l);
bool twin_over(const struct t_hold *h, uint64_t now); /* at its end, worked off or not */
bool twin_named(const struct op *op, const struct t_hold *h, uint64_t now);
bool twin_closed(const struct t_lock *l, uint64_t now);
struct t_wait *twin_in_line(const struct twin *t, const struct t_lock *l, size_t place);
struct event *twin_failed(const struct op *op, enum belay_err err, struct effects *fx);

/* twin_request.c */
void twin_request(struct twin *t, const struct op *op, struct effects *fx);
/* Another asker stands at this place. */
void twin_replace(struct twin *t, struct t_wait *w, const struct op *op, struct effects *fx);

/* twin_receipt.c */
void twin_once(struct twin *t, const struct op *op, struct effects *fx); /* it has an id */
void twin_settle(struct twin *t, const struct effects *fx); /* answers of this step are kept */
void twin_forget(struct twin *t, struct slice request);     /* if it has been answered */
void twin_hide(struct twin *t, struct t_wait *w); /* its asker is told nothing any more */
void twin_tell_nobody(struct effects *fx);        /* what was for those who are hidden */
bool twin_has_receipt(const struct twin *t, const struct t_wait *w);
void twin_forget_wait(struct twin *t, const struct t_wait *w); /* as if it had not been asked */

/* twin_session.c */
void twin_session_op(struct twin *t, const struct op *op, struct effects *fx);
/* It ends, or goes on ending, for so many units; what it took. */
uint64_t twin_end_session(struct twin *t, struct t_session *s, enum reason why, uint64_t asker,
                          uint64_t units, struct effects *fx);
void twin_namespace_op(struct twin *t, const struct op *op, struct effects *fx);
uint64_t twin_reap(struct twin *t, uint64_t budget, struct effects *fx);

/* twin.c, for the others */
void twin_run(struct twin *t, const struct op *op, struct effects *fx); /* carries it out */
bool twin_is_passed(const struct twin *t, uint64_t asker);              /* its node is silent */
bool twin_is_dead(const struct twin *t, const struct t_wait *w);
void twin_end_dead(struct twin *t, struct t_wait *w, struct effects *fx);
void twin_end_hold(struct twin *t, struct t_hold *h, enum event_kind kind, enum reason why,
                   struct effects *fx);
void twin_end_wait(struct twin *t, struct t_wait *w, enum event_kind kind, enum reason why,
                   struct effects *fx);
void twin_serve(struct twin *t, struct effects *fx); /* all lines that are to be served */
void twin_touch(struct twin *t, struct t_lock *l);   /* its line is to be served in this step */
void twin_give(struct twin *t, struct t_hold *h);    /* a new fence; its end counts from now */
/* Has nobody come to share the lock for as long as a timed wait wants it quiet? */
bool twin_was_quiet(const struct twin *t, const struct t_wait *w);
void twin_plan_look(const struct twin *t, struct t_wait *w);
/* Is the weight free? Nobody's place in the line is looked at here. */
bool twin_fits(const struct twin *t, const struct t_lock *l, enum lock_mode mode,
               uint64_t permits, uint64_t of);
struct t_hold *twin_hold_of(const struct twin *t, const struct t_lock *l, struct slice owner,
                            const struct t_session *session);
struct t_wait *twin_wait_of(const struct twin *t, const struct t_lock *l, struct slice owner,
                            const struct t_session *session);
struct t_session *twin_live(const struct twin *t, struct slice id);
struct slice twin_id(const struct t_session *s); /* NULL: empty */
uint64_t twin_position(const struct twin *t, const struct t_wait *w);
struct event *twin_answer(const struct twin *t, const struct op *op, enum event_kind kind,
                          struct effects *fx);
struct event *twin_tell_hold(const struct twin *t, const struct t_hold *h, enum event_kind kind,
                             struct effects *fx);
struct event *twin_tell_wait(const struct twin *t, const struct t_wait *w, enum event_kind kind,
                             struct effects *fx);
void twin_tell_end(const struct twin *t, const struct t_hold *h, struct event *ev);
struct event *twin_granted(struct twin *t, const struct t_hold *h, struct effects *fx);
void twin_refuse(const struct twin *t, const struct op *op, enum reason why,
                 struct effects *fx);
/* Would this wait close a cycle? Then it is told. */
bool twin_deadlock(const struct twin *t, const struct op *op, const struct t_lock *l,
                   struct slice owner, const struct t_session *session, struct effects *fx);
struct slice twin_keep(struct twin *t, struct slice text);
void *twin_add(void *array, size_t *n, size_t bytes);     /* a zeroed item at the end */
void twin_drop(void *array, size_t *n, const void *item); /* frees it, closes the gap */
#endif
