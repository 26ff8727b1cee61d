/* request.c - what is asked of locks: docs/SEMANTICS.md, rule by rule. */
#include "machine/request.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/deadlock.h"
#include "machine/holders.h"
#include "machine/level.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/session.h"
#include "machine/sound.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

struct slice request_name(const struct op *op, size_t i)
{
    BELAY_DCHECK(i <= op->more.n);
    return i == 0 ? op->name : op->more.items[i - 1];
}

/* The answer to the one who asked; the news are told apart. */
static struct event *answer(const struct machine *m, const struct op *op, enum event_kind kind,
                            struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->account = op->account;
    ev->ns = op->ns;
    ev->name = op->name;
    return ev;
}

/* --- acquire --- */

enum verdict { GRANT, GRANT_AGAIN, TAKE_OVER, REFUSE, OVER_LIMIT, WAIT };

struct judgement {
    enum verdict verdict;
    enum reason reason; /* REFUSE */
    const char *limit;  /* OVER_LIMIT; NULL: `quota` of the account */
    enum quota quota;
    struct hold *hold; /* GRANT_AGAIN */
    struct wait *wait; /* TAKE_OVER */
};

static struct judgement refuse(enum reason reason)
{
    BELAY_DCHECK(reason != REASON_NONE);
    return (struct judgement){.verdict = REFUSE, .reason = reason};
}

static struct judgement over_limit(const char *what)
{
    BELAY_CHECK(what);
    return (struct judgement){.verdict = OVER_LIMIT, .limit = what};
}

static void tell_limit(const struct space *s, const struct op *op, const struct judgement *j,
                       struct effects *fx)
{
    BELAY_DCHECK(j->verdict == OVER_LIMIT);
    if (j->limit)
        request_failed(op, BELAY_ERR_LIMIT, j->limit, fx);
    else
        quota_refuse(s->account, j->quota, op, fx);
}

static uint64_t body_bytes(const struct lock *l)
{
    BELAY_DCHECK(!l || !l->more || l->more->body_len <= LIMIT_BODY_BYTES);
    return l && l->more ? l->more->body_len : 0;
}

/* Whoever is granted the lock sets its body; whoever waits brings one along. */
static bool outgrows(const struct space *s, const struct lock *l, const struct op *op,
                     bool waits)
{
    uint64_t bytes = op->body.len * (1 + op->more.n);
    return op->flags & OP_SET_BODY &&
           quota_outgrown(s->account, waits ? 0 : body_bytes(l), bytes);
}

/* The first limit of the account that an ACQUIRE would go over, QUOTA_COUNT: none. */
static enum quota quota_over(const struct space *s, const struct lock *l, const struct op *op,
                             bool waits)
{
    BELAY_DCHECK(!l || l->space == s);
    if (!l && quota_reached(s->account, QUOTA_LOCKS, 1 + op->more.n))
        return QUOTA_LOCKS;
    if (waits && quota_reached(s->account, QUOTA_WAITERS, 1))
        return QUOTA_WAITERS;
    return outgrows(s, l, op, waits) ? QUOTA_BYTES : QUOTA_COUNT;
}

uint32_t request_capacity(const struct op *op)
{
    return op->mode == MODE_SEMAPHORE ? (uint32_t)op->of : CAPACITY_RW;
}

uint32_t request_weight(const struct op *op)
{
    BELAY_DCHECK(op->mode != MODE_SEMAPHORE || op->permits <= op->of);
    if (op->mode == MODE_SEMAPHORE)
        return (uint32_t)op->permits;
    return op->mode == MODE_SHARED ? SHARED_WEIGHT : CAPACITY_RW;
}

/* Rules 2 to 4: the lock is known and this owner may be known to it. WAIT: nothing applies. */
static struct judgement judge_known(const struct machine *m, const struct lock *l,
                                    const struct op *op, struct who who)
{
    BELAY_DCHECK(lock_is_sound(l));
    if (l->capacity && l->capacity != request_capacity(op))
        return refuse(REASON_KIND);
    struct hold *h = holder_by_who(m, l, who);
    if (h && !hold_over(h, m->now_ms)) {
        if (h->weight != request_weight(op))
            return refuse(REASON_KIND);
        if (op->flags & OP_FRESH)
            return refuse(REASON_HELD);
        if (outgrows(l->space, l, op, false))
            return (struct judgement){.verdict = OVER_LIMIT, .quota = QUOTA_BYTES};
        return (struct judgement){.verdict = GRANT_AGAIN, .hold = h};
    }
    struct wait *w = l->more && l->more->n_waits ? wait_of(m, l, who) : NULL;
    if (!w)
        return (struct judgement){.verdict = WAIT};
    if (w->upgrade || w->weight != request_weight(op) || w->policy != op->policy ||
        w->quiet_ms != op->quiet_ms)
        return refuse(REASON_KIND);
    if (op->wait_ms == 0)
        return refuse(REASON_HELD);
    if (quota_outgrown(l->space->account, w->body_len, op->body.len))
        return (struct judgement){.verdict = OVER_LIMIT, .quota = QUOTA_BYTES};
    return (struct judgement){.verdict = TAKE_OVER, .wait = w};
}

static bool way_is_free(const struct machine *m, const struct lock *l, const struct op *op)
{
    if (op->policy == POLICY_TIMED)
        return false;
    if (!l)
        return true;
    uint32_t capacity = l->capacity ? l->capacity : request_capacity(op);
    BELAY_CHECK(l->used <= capacity);
    if (lock_is_closed(l, m->now_ms) || capacity - l->used < request_weight(op))
        return false;
    return !line_bars(m, l, op->mode == MODE_SHARED);
}

static struct judgement judge(const struct machine *m, const struct space *s,
                              const struct lock *l, const struct op *op,
                              const struct session *session)
{
    BELAY_DCHECK(!l || l->space == s);
    if (l) {
        struct judgement j = judge_known(m, l, op, (struct who){op->owner, session});
        if (j.verdict != WAIT)
            return j;
    }
    bool is_free = way_is_free(m, l, op);
    if (!is_free && op->wait_ms == 0)
        return refuse(l && lock_is_closed(l, m->now_ms) ? REASON_CLOSED : REASON_HELD);
    if (session && session->n_items + op->more.n >= LIMIT_SESSION_ITEMS)
        return over_limit("the session has LIMIT_SESSION_ITEMS (10000) holds and waits");
    if (!l && s->locks.count + op->more.n >= LIMIT_LOCKS)
        return over_limit("the namespace has LIMIT_LOCKS (16000000) locks");
    enum quota over = quota_over(s, l, op, !is_free);
    if (over != QUOTA_COUNT)
        return (struct judgement){.verdict = OVER_LIMIT, .quota = over};
    if (is_free && l && l->n_holds >= LIMIT_HOLDERS)
        return over_limit("the lock has LIMIT_HOLDERS (10000) holders");
    if (!is_free && l && l->more && l->more->n_waits >= LIMIT_WAITERS)
        return over_limit("the lock has LIMIT_WAITERS (100000) waiters");
    return (struct judgement){.verdict = is_free ? GRANT : WAIT};
}

struct hold *request_grant(struct machine *m, struct lock *l, const struct op *op,
                           struct session *session, struct effects *fx)
{
    BELAY_DCHECK(l->used == 0 || l->capacity == request_capacity(op));
    l->capacity = request_capacity(op);
    if (op->flags & OP_SET_BODY) {
        lock_set_body(l, op->body);
        lock_touch(m, l); /* an emptied body may leave `more` with nothing in it */
    }
    struct grant g = {.owner = op->owner,
                      .session = session,
                      .asker = op->asker,
                      .terms = op_terms(op),
                      .weight = request_weight(op),
                      .token = (uint32_t)op->token};
    struct hold *h = hold_add(m, l, &g, ++m->counter);
    end_set(m, &h->end, after_ms(m->now_ms, h->terms.ttl_ms));
    hold_granted(m, h, fx);
    return h;
}

/* Its owner was told of the hold before, and counts on it: no cancel takes it away. */
void request_grant_again(struct machine *m, struct hold *h, const struct op *op,
                         struct effects *fx)
{
    BELAY_DCHECK(h->weight == request_weight(op) && !hold_over(h, m->now_ms));
    h->asker = op->asker;
    h->terms = op_terms(op);
    h->since_ms = m->now_ms;
    h->overdue = false;
    hold_place(m, h);
    end_set(m, &h->end, after_ms(m->now_ms, h->terms.ttl_ms));
    if (op->flags & OP_SET_BODY) {
        lock_set_body(h->lock, op->body);
        lock_touch(m, h->lock);
    }
    hold_granted(m, h, fx);
    h->asker = 0;
}

static struct event *queued(const struct machine *m, const struct wait *w, const struct op *op,
                            struct effects *fx)
{
    BELAY_DCHECK(wait_is_linked(w));
    struct event *ev = wait_news(m, w, EVENT_QUEUED, fx);
    ev->asker = op->flags & OP_NOBLOCK ? op->asker : 0;
    ev->position = wait_position(w);
    ev->expires_in_ms = w->deadline_ms - m->now_ms;
    return ev;
}

static struct event *tell_replaced(const struct machine *m, const struct wait *w,
                                   struct effects *fx)
{
    struct event *ev = wait_news(m, w, EVENT_REFUSED, fx);
    ev->asker = wait_stays(w);
    ev->news = false; /* the line has not changed */
    ev->reason = REASON_REPLACED;
    return ev;
}

static void take_over(struct machine *m, struct wait *w, const struct op *op,
                      struct effects *fx)
{
    BELAY_CHECK(wait_is_linked(w));
    const struct event *ev = tell_replaced(m, w, fx);
    receipt_settle(m, &w->receipt, ev);
    wait_ask(m, w, op);
    queued(m, w, op, fx)->news = false;
}

void request_return(struct machine *m, struct wait *w, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(wait_is_linked(w) && w->receipt);
    tell_replaced(m, w, fx);
    wait_set_asker(m, w, op->asker);
    if (w->away) {
        w->away = AWAY_NOT;
        w->deadline_ms = w->receipt->at_ms + op->wait_ms;
        wait_arm(m, w);
        lock_touch(m, w->lock); /* it may have been its turn */
    }
    queued(m, w, op, fx)->news = false;
}

static void refused(const struct machine *m, const struct op *op, enum reason reason,
                    struct effects *fx)
{
    BELAY_DCHECK(reason != REASON_NONE);
    struct event *ev = answer(m, op, EVENT_REFUSED, fx);
    ev->reason = reason;
    ev->owner = op->owner;
    ev->mode = (enum lock_mode)op->mode;
}

static bool refused_as_deadlock(struct machine *m, const struct lock *l, const struct op *op,
                                struct who who, struct effects *fx)
{
    struct cycle_step *cycle;
    size_t n;
    if (!deadlock_found(m, l, who, fx, &cycle, &n))
        return false;
    BELAY_DCHECK(n > 0 && n <= LIMIT_CYCLE);
    struct event *ev = answer(m, op, EVENT_DEADLOCK, fx);
    ev->news = true;
    ev->owner = arena_copy(&fx->arena, who.owner);
    ev->session = arena_copy(&fx->arena, session_id(who.session));
    ev->mode = (enum lock_mode)op->mode;
    ev->cycle = cycle;
    ev->n_cycle = n;
    return true;
}

static void join_line(struct machine *m, struct lock *l, const struct op *op,
                      struct session *session, struct effects *fx)
{
    BELAY_CHECK(op->wait_ms > 0);
    if (refused_as_deadlock(m, l, op, (struct who){op->owner, session}, fx))
        return;
    l->capacity = request_capacity(op);
    struct wait *w = wait_add(m, l, op, session, NULL);
    queued(m, w, op, fx);
}

/* A holder has one hold: one that is over and not yet worked off goes before it gets another.
 * A wait that has run out must not be taken over. */
static void bury_dead(struct machine *m, struct lock *l, struct who who, struct effects *fx)
{
    struct hold *h = holder_by_who(m, l, who);
    if (h && hold_over(h, m->now_ms))
        hold_end(m, h, EVENT_EXPIRED, REASON_TTL, fx);
    struct wait *w = l->more && l->more->n_waits ? wait_of(m, l, who) : NULL;
    if (w)
        wait_end_if_dead(m, w, fx);
    bool in_use = l->n_holds || (l->more && l->more->n_waits);
    BELAY_DCHECK(in_use || l->used == 0);
    if (m->level >= LEVEL_OVER && !in_use)
        l->capacity = 0; /* it may be taken as another kind */
}

static void acquire_one(struct machine *m, struct space *s, const struct op *op,
                        struct session *session, struct effects *fx)
{
    uint64_t hash;
    struct lock *l = lock_locate(m, s, op->name, &hash);
    if (l)
        bury_dead(m, l, (struct who){op->owner, session}, fx);
    struct judgement j = judge(m, s, l, op, session);
    if (!l && (j.verdict == GRANT || j.verdict == WAIT))
        l = lock_make(m, s, op->name, hash);
    BELAY_DCHECK(l || j.verdict == REFUSE || j.verdict == OVER_LIMIT);
    switch (j.verdict) {
    case GRANT:
        (void)request_grant(m, l, op, session, fx);
        break;
    case GRANT_AGAIN:
        request_grant_again(m, j.hold, op, fx);
        break;
    case TAKE_OVER:
        take_over(m, j.wait, op, fx);
        break;
    case REFUSE:
        refused(m, op, j.reason, fx);
        break;
    case OVER_LIMIT:
        tell_limit(s, op, &j, fx);
        break;
    case WAIT:
        join_line(m, l, op, session, fx);
        break;
    }
}

/* Several names, without waiting: all or none. All grants are of one asker, which may be called
 * off; the last one carries the answer. */
static void acquire_all(struct machine *m, struct space *s, const struct op *op,
                        struct session *session, struct effects *fx)
{
    BELAY_DCHECK(op->wait_ms == 0 && op->more.n <= LIMIT_NAMES_PER_OP);
    size_t n = 1 + op->more.n;
    for (size_t i = 0; i < n; i++) {
        struct op one = *op;
        one.name = request_name(op, i);
        struct lock *l = lock_find(m, s, one.name);
        if (l && m->level >= LEVEL_OVER)
            bury_dead(m, l, (struct who){op->owner, session}, fx);
        struct judgement j = judge(m, s, l, &one, session);
        if (j.verdict == REFUSE)
            refused(m, &one, j.reason, fx);
        else if (j.verdict == OVER_LIMIT)
            tell_limit(s, op, &j, fx);
        else
            continue;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct op one = *op;
        one.name = request_name(op, i);
        one.more = (struct names){0};
        acquire_one(m, s, &one, session, fx);
        struct event *ev = &fx->events[fx->n - 1];
        BELAY_DCHECK(ev->kind == EVENT_GRANTED);
        if (i + 1 < n)
            ev->asker = 0;
    }
}

void request_acquire(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_ACQUIRE);
    bool ok;
    struct space *s = request_space(m, op, fx);
    struct session *session = s ? session_of(m, op, &ok, fx) : NULL;
    if (!s || !ok)
        return;
    if (op->more.n)
        acquire_all(m, s, op, session, fx);
    else
        acquire_one(m, s, op, session, fx);
}

/* --- by fence or by owner --- */

struct hold *request_hold(const struct machine *m, const struct lock *l, const struct op *op,
                          uint64_t now_ms)
{
    BELAY_DCHECK(now_ms >= m->now_ms);
    return l ? holder_named(m, l, op, now_ms, NULL) : NULL;
}

static void keep_session(struct machine *m, const struct op *op)
{
    struct session *s = op->session.len ? session_named(m, op) : NULL;
    if (s && !session_over(s, m->now_ms))
        session_keep(m, s);
}

static uint64_t release_from(struct machine *m, struct lock *l, const struct op *op,
                             struct effects *fx)
{
    BELAY_DCHECK(lock_is_sound(l));
    uint64_t n = 0;
    for (struct hold *h = request_hold(m, l, op, m->now_ms), *next; h; h = next, n++) {
        next = holder_named(m, l, op, m->now_ms, h);
        hold_end(m, h, EVENT_RELEASED, REASON_RELEASE, fx);
    }
    if (op->owner.len == 0 || op->fence || op->flags & OP_HOLDS_ONLY)
        return n;
    if (!l->more || l->more->n_waits == 0)
        return n;
    struct session *session = op->session.len ? session_named(m, op) : NULL;
    bool known = op->session.len == 0 || session;
    struct wait *w = known ? wait_of(m, l, (struct who){op->owner, session}) : NULL;
    if (w) {
        wait_end(m, w, EVENT_LEFT, REASON_RELEASE, fx);
        n++;
    }
    return n;
}

/* Whoever frees what anybody holds frees at most as much as one lock can have. */
static bool frees_too_much(const struct machine *m, const struct space *s, const struct op *op)
{
    uint64_t n = 0;
    if (m->level < LEVEL_PARTS || !(op->flags & OP_ANYONE) || op->more.n == 0)
        return false;
    for (size_t i = 0; i <= op->more.n; i++) {
        const struct lock *l = lock_find(m, s, request_name(op, i));
        BELAY_DCHECK(!l || l->n_holds <= LIMIT_HOLDERS);
        n += l ? l->n_holds : 0;
    }
    return n > LIMIT_HOLDERS;
}

void request_release(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_RELEASE);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    if (frees_too_much(m, s, op)) {
        request_failed(op, BELAY_ERR_LIMIT,
                       "these locks have more than LIMIT_HOLDERS (10000) holders together: "
                       "name fewer at once",
                       fx);
        return;
    }
    keep_session(m, op);
    uint64_t n = 0;
    for (size_t i = 0; i <= op->more.n; i++) {
        struct lock *l = lock_find(m, s, request_name(op, i));
        if (l)
            n += release_from(m, l, op, fx);
    }
    answer(m, op, EVENT_RELEASED, fx)->count = n;
}

static void extend(struct machine *m, struct hold *h, uint64_t ttl_ms)
{
    BELAY_CHECK(ttl_ms <= LIMIT_TTL_MS);
    if (ttl_ms)
        h->terms.ttl_ms = (uint32_t)ttl_ms;
    h->overdue = false;
    end_set(m, &h->end, after_ms(m->now_ms, h->terms.ttl_ms));
}

/* ttl more than what remains, but no longer than a new lease could be. */
static void add_ttl(struct machine *m, struct hold *h, uint64_t ttl_ms)
{
    BELAY_CHECK(h->end.pos != 0 && ttl_ms > 0);
    bool from_now = m->level >= LEVEL_OVER && h->end.at < m->now_ms; /* nothing remains */
    uint64_t end = (from_now ? m->now_ms : h->end.at) + ttl_ms;
    uint64_t max = m->now_ms + LIMIT_TTL_MS;
    h->overdue = false;
    end_set(m, &h->end, end < max ? end : max);
}

static struct event *tell_hold(const struct machine *m, const struct hold *h,
                               enum event_kind kind, uint64_t asker, struct effects *fx)
{
    BELAY_DCHECK(hold_is_linked(h));
    struct event *ev = lock_news(m, h->lock, kind, fx);
    ev->asker = asker;
    ev->owner = arena_copy(&fx->arena, hold_owner(h));
    ev->session = arena_copy(&fx->arena, session_id(h->session));
    ev->mode = mode_of(h->lock, h->weight);
    ev->fence = hold_fence(h);
    ev->forever = h->end.pos == 0;
    ev->expires_in_ms = hold_left(h, m->now_ms);
    return ev;
}

static const char stale_text[] = "the fence or owner does not hold the lock";

void request_renew(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_RENEW);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    for (size_t i = 0; i <= op->more.n; i++) {
        const struct hold *h =
            request_hold(m, lock_find(m, s, request_name(op, i)), op, m->now_ms);
        bool endless = h && h->end.pos == 0;
        if (!h || (endless && op->flags & OP_ADD_TTL)) { /* nothing to add to */
            request_failed(op, BELAY_ERR_STALE, stale_text, fx);
            return;
        }
    }
    for (size_t i = 0; i <= op->more.n; i++) {
        struct hold *h = request_hold(m, lock_find(m, s, request_name(op, i)), op, m->now_ms);
        if (op->flags & OP_ADD_TTL)
            add_ttl(m, h, op->ttl_ms);
        else
            extend(m, h, op->ttl_ms);
        tell_hold(m, h, EVENT_RENEWED, i == op->more.n ? op->asker : 0, fx);
    }
}

void request_body(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_BODY);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    struct hold *h = request_hold(m, lock_find(m, s, op->name), op, m->now_ms);
    if (!h) {
        request_failed(op, BELAY_ERR_STALE, stale_text, fx);
        return;
    }
    if (quota_outgrown(s->account, body_bytes(h->lock), op->body.len)) {
        quota_refuse(s->account, QUOTA_BYTES, op, fx);
        return;
    }
    lock_set_body(h->lock, op->body);
    extend(m, h, op->ttl_ms);
    tell_hold(m, h, EVENT_BODY_SET, op->asker, fx);
    lock_touch(m, h->lock);
}

/* --- convert --- */

static void convert_now(struct machine *m, struct hold *h, const struct op *op,
                        struct effects *fx)
{
    struct lock *l = h->lock;
    uint32_t weight = request_weight(op);
    BELAY_CHECK(l->capacity == CAPACITY_RW && l->used >= h->weight);
    bool raised = weight > h->weight;
    BELAY_CHECK(weight == SHARED_WEIGHT || l->n_holds == 1);
    l->used = l->used - h->weight + weight;
    h->weight = weight;
    h->asker = op->asker;
    h->since_ms = m->now_ms;
    hold_place(m, h);
    extend(m, h, op->ttl_ms);
    hold_granted(m, h, fx);
    if (!raised)
        h->asker = 0; /* there is nothing to undo */
    lock_touch(m, l);
}

/* The client that wanted more is gone before it knew that it has it. What it had before it was
 * told of, and may count on: it is not taken away. */
void request_undo_upgrade(struct machine *m, struct hold *h, struct effects *fx)
{
    BELAY_CHECK(hold_is_linked(h));
    struct op back = {.mode = MODE_SHARED};
    if (h->lock->capacity == CAPACITY_RW && h->weight == CAPACITY_RW)
        convert_now(m, h, &back, fx);
}

static void deadlock_of_two(const struct machine *m, const struct op *op, const struct hold *h,
                            const struct wait *other, struct effects *fx)
{
    BELAY_CHECK(other->upgrade && other->upgrade != h);
    struct event *ev = answer(m, op, EVENT_DEADLOCK, fx);
    ev->news = true;
    ev->owner = arena_copy(&fx->arena, hold_owner(h));
    ev->session = arena_copy(&fx->arena, session_id(h->session));
    ev->mode = MODE_EXCLUSIVE;
    ev->cycle = arena_alloc(&fx->arena, 2 * sizeof *ev->cycle);
    ev->n_cycle = 2;
    ev->cycle[0].owner = ev->owner;
    ev->cycle[1].owner = arena_copy(&fx->arena, wait_owner(other));
    ev->cycle[0].name = ev->cycle[1].name = ev->name;
}

static void upgrade(struct machine *m, struct hold *h, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(h->weight == SHARED_WEIGHT && h->lock->capacity == CAPACITY_RW);
    struct lock *l = h->lock;
    struct wait *first = NULL;
    if (l->more && l->more->n_waits)
        first = list_item(l->more->waits.next, struct wait, in_lock);
    if (l->n_holds == 1 && !lock_is_closed(l, m->now_ms)) {
        if (first && first->upgrade) /* away: it would want to convert what is converted */
            wait_end(m, first, EVENT_REFUSED, REASON_REPLACED, fx);
        convert_now(m, h, op, fx);
        return;
    }
    struct op ask = *op;
    ask.ttl_ms = op->ttl_ms ? op->ttl_ms : h->terms.ttl_ms;
    ask.flags &= ~(uint64_t)OP_SET_BODY;
    if (first && first->upgrade && first->upgrade != h)
        deadlock_of_two(m, op, h, first, fx);
    else if (op->wait_ms == 0)
        refused(m, op, lock_is_closed(l, m->now_ms) ? REASON_CLOSED : REASON_HELD, fx);
    else if (first && first->upgrade)
        take_over(m, first, &ask, fx);
    else if (l->more && l->more->n_waits >= LIMIT_WAITERS)
        request_failed(op, BELAY_ERR_LIMIT, "the lock has LIMIT_WAITERS (100000) waiters", fx);
    else if (quota_reached(l->space->account, QUOTA_WAITERS, 1))
        quota_refuse(l->space->account, QUOTA_WAITERS, op, fx);
    else if (h->session && h->session->n_items >= LIMIT_SESSION_ITEMS)
        request_failed(op, BELAY_ERR_LIMIT,
                       "the session has LIMIT_SESSION_ITEMS (10000) holds and waits", fx);
    else if (!refused_as_deadlock(m, l, op, (struct who){hold_owner(h), h->session}, fx))
        queued(m, wait_add(m, l, &ask, h->session, h), op, fx);
}

void request_convert(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_CONVERT);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    struct hold *h = request_hold(m, lock_find(m, s, op->name), op, m->now_ms);
    if (!h)
        request_failed(op, BELAY_ERR_STALE, stale_text, fx);
    else if (h->lock->capacity != CAPACITY_RW)
        refused(m, op, REASON_KIND, fx);
    else if (op->mode == MODE_SHARED || h->weight == CAPACITY_RW)
        convert_now(m, h, op, fx);
    else
        upgrade(m, h, op, fx);
}

/* --- break, cancel --- */

void request_break(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_BREAK);
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    struct lock *l = lock_find(m, s, op->name);
    uint64_t n = 0;
    struct slice why = arena_copy(&fx->arena, op->text);
    struct slice by = arena_copy(&fx->arena, token_id(m, op->token));
    if (l) {
        lock_forget_holders(m, l);
        list_each_safe(it, &l->holds)
        {
            size_t news = fx->n;
            hold_end(m, list_item(it, struct hold, in_lock), EVENT_BROKEN, REASON_BREAK, fx);
            fx->events[news].text = why;
            fx->events[news].by = by;
            n++;
        }
    }
    if (n)
        m->counter++; /* the fence moves on, although nobody holds it */
    answer(m, op, EVENT_BROKEN, fx)->count = n;
}
