/* txn_lock.c - locks in transactions: planned while the statements are evaluated, done only
 * when all of them have held.
 *
 * A plan is a list of steps on top of the real state. Each operator is judged against the state
 * as it would be after the steps before it; nothing happens to a lock, no fence is used up and
 * no news is told before plan_perform(). A transaction tries: it never waits in a line, and it
 * passes nobody who stands in one. */
#include "machine/txn_lock.h"
#include "base/check.h"
#include "machine/holders.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/request.h"

/* A lock as it would be after the steps of the plan. */
struct view {
    const struct lock *lock; /* NULL: there is none yet */
    uint64_t used;
    uint64_t holds;
    uint32_t capacity; /* 0: of no kind yet */
};

static struct op op_of(const struct program_lock *ask, struct session *session, uint32_t token)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .name = ask->name,
                       .owner = ask->owner,
                       .session = session_id(session),
                       .token = token,
                       .mode = ask->mode,
                       .permits = ask->permits,
                       .of = ask->of,
#define X(field, parameter, max, what) .field = ask->field,
                       LEASE_TERM_MAP(X)
#undef X
    };
}

static bool is_new(const struct lock_step *step) /* a hold that only the plan knows */
{
    return !step->is_unlock && !step->hold && !step->on_planned && !step->freed;
}

static bool is_freed(const struct lock_plan *plan, const struct hold *h)
{
    BELAY_DCHECK(plan->n <= LIMIT_TXN_LOCKS);
    for (size_t i = 0; i < plan->n; i++)
        if (plan->steps[i].is_unlock && plan->steps[i].hold == h)
            return true;
    return false;
}

static bool is_renewed(const struct lock_plan *plan, const struct hold *h)
{
    BELAY_DCHECK(plan->n <= LIMIT_TXN_LOCKS);
    for (size_t i = 0; i < plan->n; i++)
        if (!plan->steps[i].is_unlock && plan->steps[i].hold == h)
            return true;
    return false;
}

static struct view view_of(const struct lock_plan *plan, const struct lock *l,
                           struct slice name)
{
    struct view v = {.lock = l};
    if (l) {
        v.used = l->used;
        v.holds = l->n_holds;
        v.capacity = l->capacity;
    }
    uint32_t planned = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const struct lock_step *step = &plan->steps[i];
        if (!slice_eq(step->ask.name, name))
            continue;
        if (step->is_unlock && step->hold) {
            BELAY_CHECK(step->hold->lock == l && v.holds > 0 && v.used >= step->hold->weight);
            v.used -= step->hold->weight;
            v.holds--;
        } else if (is_new(step)) {
            struct op op = op_of(&step->ask, NULL, 0);
            v.used += request_weight(&op);
            v.holds++;
            planned = request_capacity(&op);
        }
    }
    if (planned)
        v.capacity = planned;
    else if (v.holds == 0 && !(l && l->more && l->more->n_waits))
        v.capacity = 0;
    return v;
}

/* The step that gave this one a new hold of that lock, or NULL. */
static struct lock_step *planned_hold(const struct lock_plan *plan,
                                      const struct program_lock *ask)
{
    for (size_t i = 0; i < plan->n; i++) {
        struct lock_step *step = &plan->steps[i];
        if (is_new(step) && slice_eq(step->ask.name, ask->name) &&
            slice_eq(step->ask.owner, ask->owner))
            return step;
    }
    return NULL;
}

static struct hold *real_hold(const struct machine *m, const struct lock_plan *plan,
                              const struct lock *l, struct who who)
{
    struct hold *h = l ? holder_by_who(m, l, who) : NULL;
    BELAY_CHECK(!h || h->lock == l);
    return h && !hold_over(h, m->now_ms) && !is_freed(plan, h) ? h : NULL;
}

static bool way_is_free(const struct machine *m, const struct view *v, const struct op *op)
{
    BELAY_CHECK(v->used <= (v->capacity ? v->capacity : UINT32_MAX));
    uint32_t capacity = v->capacity ? v->capacity : request_capacity(op);
    if (capacity != request_capacity(op) || capacity - v->used < request_weight(op))
        return false;
    if (!v->lock)
        return true;
    return !lock_is_closed(v->lock, m->now_ms) &&
           !line_bars(m, v->lock, op->mode == MODE_SHARED);
}

/* Neither the state nor the plan knows it. */
static bool makes_lock(const struct view *v)
{
    BELAY_DCHECK((v->holds == 0) == (v->used == 0));
    return !v->lock && v->holds == 0;
}

static struct txn_limit limit_reached(const struct space *s, const struct session *session,
                                      const struct lock_plan *plan, const struct view *v)
{
    size_t news = 0; /* at most as many as there are steps */
    size_t makes = makes_lock(v);
    for (size_t i = 0; i < plan->n; i++) {
        news += is_new(&plan->steps[i]);
        makes += is_new(&plan->steps[i]) && plan->steps[i].makes;
    }
    BELAY_CHECK(news <= LIMIT_TXN_LOCKS);
    struct txn_limit limit = {.text = NULL};
    if (session->n_items + news >= LIMIT_SESSION_ITEMS)
        limit.text = "the session has LIMIT_SESSION_ITEMS (10000) holds and waits";
    else if (!v->lock && s->locks.count + news >= LIMIT_LOCKS)
        limit.text = "the namespace has LIMIT_LOCKS (16000000) locks";
    else if (v->holds >= LIMIT_HOLDERS)
        limit.text = "the lock has LIMIT_HOLDERS (10000) holders";
    else if (makes_lock(v))
        limit = txn_quota(s->account, QUOTA_LOCKS, makes);
    return limit;
}

static void add(struct lock_plan *plan, struct lock_step step)
{
    BELAY_CHECK(plan->n < LIMIT_TXN_LOCKS);
    plan->steps[plan->n++] = step;
}

bool plan_lock(const struct machine *m, const struct space *s, struct session *session,
               struct lock_plan *plan, const struct program_lock *ask,
               struct txn_limit *ret_limit)
{
    const struct lock *l = lock_find(m, s, ask->name);
    struct view v = view_of(plan, l, ask->name);
    struct op op = op_of(ask, session, plan->token);
    struct hold *h = real_hold(m, plan, l, (struct who){ask->owner, session});
    const struct hold *dead = l ? holder_by_who(m, l, (struct who){ask->owner, session}) : NULL;
    if (dead && hold_over(dead, m->now_ms))
        return false; /* a holder has one hold: this one's turn to end comes first */
    const struct lock_step *mine = h ? NULL : planned_hold(plan, ask);
    uint32_t held = h ? h->weight : 0;
    if (mine) {
        struct op earlier = op_of(&mine->ask, session, plan->token);
        held = request_weight(&earlier);
    }
    if (held) { /* again: a new fence, in the mode in which it is held */
        if (v.capacity != request_capacity(&op) || held != request_weight(&op))
            return false;
    } else {
        if (!way_is_free(m, &v, &op) ||
            (l && l->more && wait_of(m, l, (struct who){ask->owner, session})))
            return false; /* a soft one of its own would not bar the way */
        *ret_limit = limit_reached(s, session, plan, &v);
        if (ret_limit->text)
            return false;
    }
    BELAY_CHECK(!h || !mine);
    add(plan, (struct lock_step){
                  .ask = *ask, .hold = h, .on_planned = mine, .makes = makes_lock(&v)});
    return true;
}

/* By fence: any holder, as a release by fence does. */
static struct hold *hold_with(const struct machine *m, const struct lock_plan *plan,
                              const struct lock *l, uint64_t fence)
{
    struct op by_fence = {.kind = OP_RELEASE, .fence = fence};
    struct hold *h = request_hold(m, l, &by_fence, m->now_ms);
    BELAY_DCHECK(!h || (h->lock == l && hold_fence(h) == fence));
    if (!h || token_is_foreign(plan->token, h->token))
        return NULL;
    return !is_freed(plan, h) && !is_renewed(plan, h) ? h : NULL;
}

bool plan_unlock(const struct machine *m, const struct space *s, const struct session *session,
                 struct lock_plan *plan, const struct program_lock *ask)
{
    const struct lock *l = lock_find(m, s, ask->name);
    struct lock_step step = {.ask = *ask, .is_unlock = true};
    if (ask->fence)
        step.hold = hold_with(m, plan, l, ask->fence);
    else
        step.hold = real_hold(m, plan, l, (struct who){ask->owner, session});
    struct lock_step *mine = ask->fence || step.hold ? NULL : planned_hold(plan, ask);
    if (!step.hold && !mine)
        return false;
    BELAY_DCHECK(!mine || is_new(mine));
    if (mine)
        mine->freed = true;
    step.on_planned = mine;
    add(plan, step);
    return true;
}

void plan_perform(struct machine *m, struct space *s, struct session *session,
                  const struct lock_plan *plan, struct txn_row *rows, struct effects *fx)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct lock_step *step = &plan->steps[i];
        struct op op = op_of(&step->ask, session, plan->token);
        struct hold *h = step->hold;
        if (step->on_planned)
            h = holder_by_who(m, lock_find(m, s, op.name), (struct who){op.owner, session});
        BELAY_CHECK(!step->on_planned || h);
        if (step->is_unlock) {
            BELAY_CHECK(h);
            hold_end(m, h, EVENT_RELEASED, REASON_RELEASE, fx);
            continue;
        }
        if (h)
            request_grant_again(m, h, &op, fx);
        else
            h = request_grant(m, lock_get(m, s, op.name), &op, session, fx);
        BELAY_CHECK(h->lock->space == s && h->session == session);
        rows[step->row].fence = hold_fence(h);
        rows[step->row].kind = TXN_ROW_FENCE;
    }
}
