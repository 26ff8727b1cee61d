/* request.c - what is asked of locks: docs/SEMANTICS.md, rule by rule. */
#include "base/check.h"
#include "base/mem.h"
#include "machine/state.h"

#include <stdlib.h>

struct event *request_failed(const struct op *op, enum belay_err err, const char *text,
                             struct effects *fx)
{
    struct event *ev = effects_add(fx, EVENT_FAILED);
    ev->asker = op->asker;
    ev->err = err;
    ev->text = slice_str(text);
    return ev;
}

struct space *request_space(const struct machine *m, const struct op *op, struct effects *fx)
{
    struct space *s = space_find(m, op->account, op->ns);
    if (!s)
        request_failed(op, BELAY_ERR_NO_NAMESPACE, "no such namespace", fx);
    return s;
}

static struct slice name_at(const struct op *op, size_t i) /* 0: op->name, then op->more */
{
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
    const char *limit;  /* OVER_LIMIT */
    struct hold *hold;  /* GRANT_AGAIN */
    struct wait *wait;  /* TAKE_OVER */
};

static struct judgement refuse(enum reason reason)
{
    return (struct judgement){.verdict = REFUSE, .reason = reason};
}

static struct judgement over_limit(const char *what)
{
    return (struct judgement){.verdict = OVER_LIMIT, .limit = what};
}

uint32_t request_capacity(const struct op *op)
{
    return op->mode == MODE_SEMAPHORE ? (uint32_t)op->of : CAPACITY_RW;
}

uint32_t request_weight(const struct op *op)
{
    if (op->mode == MODE_SEMAPHORE)
        return (uint32_t)op->permits;
    return op->mode == MODE_SHARED ? SHARED_WEIGHT : CAPACITY_RW;
}

/* Rules 2 to 4: the lock is known and this owner may be known to it. WAIT: nothing applies. */
static struct judgement judge_known(const struct machine *m, const struct lock *l,
                                    const struct op *op, struct who who)
{
    if (l->capacity && l->capacity != request_capacity(op))
        return refuse(REASON_KIND);
    struct hold *h = hold_of(l, who);
    if (h && !hold_over(h, m->now_ms)) {
        if (h->weight != request_weight(op))
            return refuse(REASON_KIND);
        if (op->flags & OP_FRESH)
            return refuse(REASON_HELD);
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
    return (struct judgement){.verdict = TAKE_OVER, .wait = w};
}

static bool way_is_free(const struct machine *m, const struct lock *l, const struct op *op)
{
    if (op->policy == POLICY_TIMED)
        return false;
    if (!l)
        return true;
    uint32_t capacity = l->capacity ? l->capacity : request_capacity(op);
    if (lock_is_closed(l, m->now_ms) || capacity - l->used < request_weight(op))
        return false;
    if (!l->more)
        return true;
    return op->mode == MODE_SHARED ? l->more->n_barring == 0 : l->more->n_waits == 0;
}

static struct judgement judge(const struct machine *m, const struct space *s,
                              const struct lock *l, const struct op *op,
                              const struct session *session)
{
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
    if (is_free && l && l->n_holds >= LIMIT_HOLDERS)
        return over_limit("the lock has LIMIT_HOLDERS (10000) holders");
    if (!is_free && l && l->more && l->more->n_waits >= LIMIT_WAITERS)
        return over_limit("the lock has LIMIT_WAITERS (100000) waiters");
    return (struct judgement){.verdict = is_free ? GRANT : WAIT};
}

struct hold *request_grant(struct machine *m, struct lock *l, const struct op *op,
                           struct session *session, struct effects *fx)
{
    l->capacity = request_capacity(op);
    if (op->flags & OP_SET_BODY) {
        lock_set_body(l, op->body);
        lock_touch(m, l); /* an emptied body may leave `more` with nothing in it */
    }
    struct grant g = {.owner = op->owner,
                      .session = session,
                      .asker = op->asker,
                      .ttl_ms = (uint32_t)op->ttl_ms,
                      .grace_ms = (uint32_t)op->grace_ms,
                      .delay_ms = (uint32_t)op->delay_ms,
                      .weight = request_weight(op)};
    struct hold *h = hold_add(m, l, &g, ++m->counter);
    end_set(m, &h->end, after_ms(m->now_ms, h->ttl_ms));
    hold_granted(m, h, fx);
    return h;
}

/* Its owner was told of the hold before, and counts on it: no cancel takes it away. */
void request_grant_again(struct machine *m, struct hold *h, const struct op *op,
                         struct effects *fx)
{
    h->asker = op->asker;
    h->ttl_ms = (uint32_t)op->ttl_ms;
    h->grace_ms = (uint32_t)op->grace_ms;
    h->delay_ms = (uint32_t)op->delay_ms;
    h->since_ms = m->now_ms;
    h->overdue = false;
    hold_place(m, h);
    end_set(m, &h->end, after_ms(m->now_ms, h->ttl_ms));
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
    ev->asker = w->asker;
    ev->news = false; /* the line has not changed */
    ev->reason = REASON_REPLACED;
    return ev;
}

static void take_over(struct machine *m, struct wait *w, const struct op *op,
                      struct effects *fx)
{
    const struct event *ev = tell_replaced(m, w, fx);
    receipt_settle(m, &w->receipt, ev);
    wait_ask(m, w, op);
    queued(m, w, op, fx)->news = false;
}

void request_return(struct machine *m, struct wait *w, const struct op *op, struct effects *fx)
{
    tell_replaced(m, w, fx);
    w->asker = op->asker;
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
    struct event *ev = answer(m, op, EVENT_REFUSED, fx);
    ev->reason = reason;
    ev->owner = op->owner;
    ev->mode = (enum lock_mode)op->mode;
}

static bool refused_as_deadlock(const struct machine *m, const struct lock *l,
                                const struct op *op, struct who who, struct effects *fx)
{
    struct cycle_step *cycle;
    size_t n;
    if (!deadlock_found(m, l, who, fx, &cycle, &n))
        return false;
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
    if (refused_as_deadlock(m, l, op, (struct who){op->owner, session}, fx))
        return;
    l->capacity = request_capacity(op);
    struct wait *w = wait_add(m, l, op, session, NULL);
    queued(m, w, op, fx);
}

/* A holder has one hold: one that is over and not yet worked off goes before it gets another.
 */
static void bury_dead_hold(struct machine *m, const struct lock *l, struct who who,
                           struct effects *fx)
{
    struct hold *h = hold_of(l, who);
    if (h && hold_over(h, m->now_ms))
        hold_end(m, h, EVENT_EXPIRED, REASON_TTL, fx);
}

/* A wait of this owner that has run out and is not yet worked off must not be taken over. */
static void bury_dead_wait(struct machine *m, const struct lock *l, struct who who,
                           struct effects *fx)
{
    if (!l->more || l->more->n_waits == 0)
        return;
    struct wait *w = wait_of(m, l, who);
    if (w)
        wait_end_if_dead(m, w, fx);
}

static void acquire_one(struct machine *m, struct space *s, const struct op *op,
                        struct session *session, struct effects *fx)
{
    uint64_t hash;
    struct lock *l = lock_locate(m, s, op->name, &hash);
    if (l) {
        bury_dead_hold(m, l, (struct who){op->owner, session}, fx);
        bury_dead_wait(m, l, (struct who){op->owner, session}, fx);
    }
    struct judgement j = judge(m, s, l, op, session);
    if (!l && (j.verdict == GRANT || j.verdict == WAIT))
        l = lock_make(m, s, op->name, hash);
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
        request_failed(op, BELAY_ERR_LIMIT, j.limit, fx);
        break;
    case WAIT:
        join_line(m, l, op, session, fx);
        break;
    }
}

/* Several names, without waiting: all or none. All grants are of one asker, who may be called
 * off; the last one carries the answer. */
static void acquire_all(struct machine *m, struct space *s, const struct op *op,
                        struct session *session, struct effects *fx)
{
    size_t n = 1 + op->more.n;
    for (size_t i = 0; i < n; i++) {
        struct op one = *op;
        one.name = name_at(op, i);
        struct judgement j = judge(m, s, lock_find(m, s, one.name), &one, session);
        if (j.verdict == REFUSE)
            refused(m, &one, j.reason, fx);
        else if (j.verdict == OVER_LIMIT)
            request_failed(op, BELAY_ERR_LIMIT, j.limit, fx);
        else
            continue;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct op one = *op;
        one.name = name_at(op, i);
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

static bool names_hold(const struct op *op, const struct hold *h, uint64_t now_ms)
{
    if (hold_over(h, now_ms))
        return false;
    if (op->fence)
        return hold_fence(h) == op->fence;
    if (op->flags & OP_ANYONE)
        return true;
    return slice_eq(hold_owner(h), op->owner) &&
           (op->session.len == 0 || slice_eq(session_id(h->session), op->session));
}

struct hold *request_hold(const struct lock *l, const struct op *op, uint64_t now_ms)
{
    if (!l)
        return NULL;
    list_each (it, &l->holds) {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (names_hold(op, h, now_ms))
            return h;
    }
    return NULL;
}

static void keep_session(struct machine *m, const struct op *op)
{
    struct session *s = op->session.len ? session_find(m, op->session) : NULL;
    if (s && !session_over(s, m->now_ms))
        session_keep(m, s);
}

static uint64_t release_from(struct machine *m, struct lock *l, const struct op *op,
                             struct effects *fx)
{
    uint64_t n = 0;
    list_each_safe(it, &l->holds)
    {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (!names_hold(op, h, m->now_ms))
            continue;
        hold_end(m, h, EVENT_RELEASED, REASON_RELEASE, fx);
        n++;
        if (op->fence)
            break;
    }
    if (op->owner.len == 0 || op->fence || !l->more || l->more->n_waits == 0)
        return n;
    struct session *session = op->session.len ? session_find(m, op->session) : NULL;
    bool known = op->session.len == 0 || session;
    struct wait *w = known ? wait_of(m, l, (struct who){op->owner, session}) : NULL;
    if (w) {
        wait_end(m, w, EVENT_LEFT, REASON_RELEASE, fx);
        n++;
    }
    return n;
}

void request_release(struct machine *m, const struct op *op, struct effects *fx)
{
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    uint64_t n = 0;
    for (size_t i = 0; i <= op->more.n; i++) {
        struct lock *l = lock_find(m, s, name_at(op, i));
        if (l)
            n += release_from(m, l, op, fx);
    }
    answer(m, op, EVENT_RELEASED, fx)->count = n;
}

static void extend(struct machine *m, struct hold *h, uint64_t ttl_ms)
{
    if (ttl_ms)
        h->ttl_ms = (uint32_t)ttl_ms;
    h->overdue = false;
    end_set(m, &h->end, after_ms(m->now_ms, h->ttl_ms));
}

/* ttl more than what remains, but no longer than a new lease could be. */
static void add_ttl(struct machine *m, struct hold *h, uint64_t ttl_ms)
{
    uint64_t end = h->end.at + ttl_ms;
    uint64_t max = m->now_ms + LIMIT_TTL_MS;
    h->overdue = false;
    end_set(m, &h->end, end < max ? end : max);
}

static struct event *tell_hold(const struct machine *m, const struct hold *h,
                               enum event_kind kind, uint64_t asker, struct effects *fx)
{
    struct event *ev = lock_news(m, h->lock, kind, fx);
    ev->asker = asker;
    ev->owner = arena_copy(&fx->arena, hold_owner(h));
    ev->session = arena_copy(&fx->arena, session_id(h->session));
    ev->mode = mode_of(h->lock, h->weight);
    ev->fence = hold_fence(h);
    ev->forever = h->end.pos == 0;
    ev->expires_in_ms = ev->forever ? 0 : h->end.at - m->now_ms;
    return ev;
}

static const char stale_text[] = "the fence or owner does not hold the lock";

void request_renew(struct machine *m, const struct op *op, struct effects *fx)
{
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    for (size_t i = 0; i <= op->more.n; i++) {
        const struct hold *h = request_hold(lock_find(m, s, name_at(op, i)), op, m->now_ms);
        bool endless = h && h->end.pos == 0;
        if (!h || (endless && op->flags & OP_ADD_TTL)) { /* nothing to add to */
            request_failed(op, BELAY_ERR_STALE, stale_text, fx);
            return;
        }
    }
    for (size_t i = 0; i <= op->more.n; i++) {
        struct hold *h = request_hold(lock_find(m, s, name_at(op, i)), op, m->now_ms);
        if (op->flags & OP_ADD_TTL)
            add_ttl(m, h, op->ttl_ms);
        else
            extend(m, h, op->ttl_ms);
        tell_hold(m, h, EVENT_RENEWED, i == op->more.n ? op->asker : 0, fx);
    }
}

void request_body(struct machine *m, const struct op *op, struct effects *fx)
{
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    struct hold *h = request_hold(lock_find(m, s, op->name), op, m->now_ms);
    if (!h) {
        request_failed(op, BELAY_ERR_STALE, stale_text, fx);
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
    bool raised = weight > h->weight;
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
static void undo_upgrade(struct machine *m, struct hold *h, struct effects *fx)
{
    struct op back = {.mode = MODE_SHARED};
    if (h->lock->capacity == CAPACITY_RW && h->weight == CAPACITY_RW)
        convert_now(m, h, &back, fx);
}

static void deadlock_of_two(const struct machine *m, const struct op *op, const struct hold *h,
                            const struct wait *other, struct effects *fx)
{
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
    ask.ttl_ms = op->ttl_ms ? op->ttl_ms : h->ttl_ms;
    ask.flags &= ~(uint64_t)OP_SET_BODY;
    if (first && first->upgrade && first->upgrade != h)
        deadlock_of_two(m, op, h, first, fx);
    else if (op->wait_ms == 0)
        refused(m, op, lock_is_closed(l, m->now_ms) ? REASON_CLOSED : REASON_HELD, fx);
    else if (first && first->upgrade)
        take_over(m, first, &ask, fx);
    else if (l->more && l->more->n_waits >= LIMIT_WAITERS)
        request_failed(op, BELAY_ERR_LIMIT, "the lock has LIMIT_WAITERS (100000) waiters", fx);
    else if (h->session && h->session->n_items >= LIMIT_SESSION_ITEMS)
        request_failed(op, BELAY_ERR_LIMIT,
                       "the session has LIMIT_SESSION_ITEMS (10000) holds and waits", fx);
    else if (!refused_as_deadlock(m, l, op, (struct who){hold_owner(h), h->session}, fx))
        queued(m, wait_add(m, l, &ask, h->session, h), op, fx);
}

void request_convert(struct machine *m, const struct op *op, struct effects *fx)
{
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    keep_session(m, op);
    struct hold *h = request_hold(lock_find(m, s, op->name), op, m->now_ms);
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
    struct space *s = request_space(m, op, fx);
    if (!s)
        return;
    struct lock *l = lock_find(m, s, op->name);
    uint64_t n = 0;
    if (l) {
        list_each_safe(it, &l->holds)
        {
            hold_end(m, list_item(it, struct hold, in_lock), EVENT_BROKEN, REASON_BREAK, fx);
            n++;
        }
    }
    if (n)
        m->counter++; /* the fence moves on, although nobody holds it */
    answer(m, op, EVENT_BROKEN, fx)->count = n;
}

static void cancel_in(struct machine *m, struct lock *l, const struct op *op,
                      struct effects *fx)
{
    if (l->more) {
        list_each (it, &l->more->waits) {
            struct wait *w = list_item(it, struct wait, in_lock);
            if (w->asker == op->target) {
                if (op->flags & OP_AWAY && w->receipt)
                    wait_away(m, w);
                else
                    wait_end(m, w, EVENT_LEFT, REASON_CANCEL, fx);
                return;
            }
        }
    }
    list_each (it, &l->holds) {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (h->asker == op->target) {
            if (op->flags & OP_AWAY && op->request.len)
                return; /* it was granted in that moment: it may be fetched */
            if (op->flags & OP_UNDO)
                undo_upgrade(m, h, fx);
            else
                hold_end(m, h, EVENT_RELEASED, REASON_CANCEL, fx);
            receipt_cancel(m, op);
            return;
        }
    }
}

static int by_ticket(const void *a, const void *b)
{
    const struct heap_node *const *x = a;
    const struct heap_node *const *y = b;
    return (*x)->seq < (*y)->seq ? -1 : (*x)->seq > (*y)->seq;
}

/* Whose wait is it, if it is one? */
static uint64_t waiting_asker(struct heap_node *end)
{
    if (end->tag == END_WAIT)
        return heap_item(end, struct wait, end)->asker;
    return end->tag == END_PARKED ? heap_item(end, struct parked, end)->asker : 0;
}

void machine_each_waiting(const struct machine *m, void (*each)(void *ctx, uint64_t asker),
                          void *ctx)
{
    for (size_t i = 0; i < m->ends.count; i++) {
        uint64_t asker = waiting_asker(m->ends.slots[i]);
        if (asker)
            each(ctx, asker);
    }
}

/* Of the same node as `live`, but of another of its runs? */
static bool of_dead_run(uint64_t id, uint64_t live)
{
    return id && id >> OP_NODE_SHIFT == live >> OP_NODE_SHIFT &&
           id >> OP_RUN_SHIFT != live >> OP_RUN_SHIFT;
}

/* Called off, or it may come back if it has a request id. */
static void cancel_wait(struct machine *m, struct wait *w, struct effects *fx)
{
    if (w->receipt) {
        wait_away(m, w);
        return;
    }
    w->asker = 0; /* nobody is answered: a node that lives tells its own clients why */
    wait_end(m, w, EVENT_LEFT, REASON_CANCEL, fx);
}

static void cancel_parked(struct machine *m, struct parked *p)
{
    if (p->receipt)
        parked_away(m, p);
    else
        parked_remove(m, p);
}

/* A node's earlier runs are over: whoever waited there is gone, and so are the connections that
 * sessions were attached to. What they hold stays, for the answer may have reached them, and a
 * session lives for the rest of its TTL: its client may attach it elsewhere. By ticket, for the
 * heap has no order of its own. */
static void cancel_runs(struct machine *m, uint64_t live, struct effects *fx)
{
    size_t n = 0;
    struct heap_node **gone = mem_alloc(m->ends.count * sizeof(struct heap_node *));
    for (size_t i = 0; i < m->ends.count; i++) {
        struct heap_node *end = m->ends.slots[i];
        struct session *s =
            end->tag == END_SESSION ? heap_item(end, struct session, end) : NULL;
        if (s && of_dead_run(s->target, live))
            s->target = 0;
        if (of_dead_run(waiting_asker(end), live))
            gone[n++] = end;
    }
    qsort(gone, n, sizeof(struct heap_node *), by_ticket);
    for (size_t i = 0; i < n; i++) {
        if (gone[i]->tag == END_WAIT)
            cancel_wait(m, heap_item(gone[i], struct wait, end), fx);
        else
            cancel_parked(m, heap_item(gone[i], struct parked, end));
    }
    free(gone);
}

void request_cancel(struct machine *m, const struct op *op, struct effects *fx)
{
    if (op->name.len == 0 && op->session.len == 0) {
        cancel_runs(m, op->target, fx);
        return;
    }
    struct space *s = space_find(m, op->account, op->ns);
    if (op->name.len == 0) {
        parked_cancel(m, op);
        return;
    }
    for (size_t i = 0; s && i <= op->more.n; i++) {
        struct lock *l = lock_find(m, s, name_at(op, i));
        if (l)
            cancel_in(m, l, op, fx);
    }
}
