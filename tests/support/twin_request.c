/* twin_request.c - what is asked of locks, by docs/SEMANTICS.md. */
#include "machine/receipt.h"
#include "twin_state.h"

/* --- acquire --- */

static bool same_kind(const struct op *op, enum lock_mode mode, uint64_t of)
{
    if (op->mode == MODE_SEMAPHORE || mode == MODE_SEMAPHORE)
        return op->mode == MODE_SEMAPHORE && mode == MODE_SEMAPHORE && op->of == of;
    return true;
}

/* Rule 2 */
static bool is_another_kind(const struct twin *t, const struct t_lock *l, const struct op *op)
{
    for (size_t i = 0; i < t->n_holds; i++)
        if (t->holds[i]->lock == l && !same_kind(op, t->holds[i]->mode, t->holds[i]->of))
            return true;
    for (size_t i = 0; i < t->n_waits; i++)
        if (t->waits[i]->lock == l && !same_kind(op, t->waits[i]->mode, t->waits[i]->of))
            return true;
    return false;
}

/* Rule 5 */
static bool is_barred(const struct twin *t, const struct t_lock *l, const struct op *op)
{
    if (op->policy == POLICY_TIMED)
        return true;
    for (size_t i = 0; i < t->n_waits; i++)
        if (t->waits[i]->lock == l && !twin_is_passed(t, t->waits[i]->asker) &&
            (op->mode != MODE_SHARED || t->waits[i]->policy == POLICY_HARD))
            return true;
    return !twin_fits(t, l, (enum lock_mode)op->mode, op->permits, op->of);
}

static struct t_lock *lock_of(struct twin *t, struct t_space *s, struct slice name)
{
    struct t_lock *l = twin_lock(t, s, name);
    if (!l) {
        l = twin_add(&t->locks, &t->n_locks, sizeof *l);
        l->space = s;
        l->name = twin_keep(t, name);
    }
    return l;
}

enum verdict { GRANT, AGAIN, TAKE_OVER, REFUSE, QUEUE };

/* Rules 2 to 6 and 9, in their order. */
static enum verdict judge(const struct twin *t, const struct t_lock *l, const struct op *op,
                          const struct t_session *session, enum reason *ret_why)
{
    *ret_why = REASON_KIND;
    if (is_another_kind(t, l, op))
        return REFUSE;
    const struct t_hold *h = twin_hold_of(t, l, op->owner, session);
    if (h && !twin_over(h, t->now)) {
        bool same = h->mode == op->mode && h->permits == op->permits;
        if (same && op->flags & OP_FRESH)
            *ret_why = REASON_HELD;
        return same && !(op->flags & OP_FRESH) ? AGAIN : REFUSE;
    }
    const struct t_wait *w = twin_wait_of(t, l, op->owner, session);
    if (w) {
        bool same = !w->upgrade && w->mode == op->mode && w->permits == op->permits &&
                    w->policy == op->policy && w->quiet == op->quiet_ms;
        if (same)
            *ret_why = REASON_HELD;
        return same && op->wait_ms ? TAKE_OVER : REFUSE;
    }
    if (!is_barred(t, l, op))
        return GRANT;
    *ret_why = twin_closed(l, t->now) ? REASON_CLOSED : REASON_HELD;
    return op->wait_ms ? QUEUE : REFUSE;
}

static void ask(struct twin *t, struct t_wait *w, const struct op *op)
{
    bool moved = twin_is_passed(t, w->asker) != twin_is_passed(t, op->asker);
    w->asker = op->asker;
    w->ttl = op->ttl_ms;
    w->grace = op->grace_ms;
    w->delay = op->delay_ms;
    w->end = t->now + op->wait_ms;
    if (w->away || moved || twin_was_quiet(t, w) || w->look <= t->now)
        twin_touch(t, w->lock);
    w->away = AWAY_NOT;
    w->sets_body = op->flags & OP_SET_BODY;
    w->body = twin_keep(t, op->body);
    twin_plan_look(t, w);
}

static struct event *queued(const struct twin *t, const struct t_wait *w, const struct op *op,
                            struct effects *fx)
{
    struct event *ev = twin_tell_wait(t, w, EVENT_QUEUED, fx);
    ev->asker = op->flags & OP_NOBLOCK ? op->asker : 0;
    ev->position = twin_position(t, w);
    ev->expires_in_ms = w->end - t->now;
    return ev;
}

void twin_replace(struct twin *t, struct t_wait *w, const struct op *op, struct effects *fx)
{
    struct event *ev = twin_tell_wait(t, w, EVENT_REFUSED, fx);
    ev->asker = w->asker;
    ev->news = false;
    ev->reason = REASON_REPLACED;
    w->asker = op->asker;
    queued(t, w, op, fx)->news = false;
}

static void take_over(struct twin *t, struct t_wait *w, const struct op *op, struct effects *fx)
{
    uint64_t asker = w->asker;
    ask(t, w, op);
    w->asker = asker;
    twin_replace(t, w, op, fx);
}

static struct t_wait *join(struct twin *t, struct t_lock *l, const struct op *op,
                           struct slice owner, struct t_session *session)
{
    struct t_wait *w = twin_add(&t->waits, &t->n_waits, sizeof *w);
    *w = (struct t_wait){.lock = l,
                         .owner = twin_keep(t, owner),
                         .session = session,
                         .mode = (enum lock_mode)op->mode,
                         .policy = (enum lock_policy)op->policy,
                         .permits = op->permits,
                         .of = op->of,
                         .ticket = ++t->last,
                         .since = t->now,
                         .look = UINT64_MAX,
                         .quiet = op->quiet_ms};
    ask(t, w, op);
    return w;
}

static void take(struct twin *t, struct t_lock *l, const struct op *op,
                 struct t_session *session, struct effects *fx)
{
    struct t_hold *h = twin_hold_of(t, l, op->owner, session);
    bool again = h;
    if (!h) {
        h = twin_add(&t->holds, &t->n_holds, sizeof *h);
        h->lock = l;
        h->owner = twin_keep(t, op->owner);
        h->session = session;
    }
    h->mode = (enum lock_mode)op->mode;
    h->permits = op->permits;
    h->of = op->of;
    h->asker = op->asker;
    h->ttl = op->ttl_ms;
    h->grace = op->grace_ms;
    h->delay = op->delay_ms;
    if (op->flags & OP_SET_BODY) {
        l->body = twin_keep(t, op->body);
        twin_touch(t, l); /* whoever has run out is told now */
    }
    twin_give(t, h);
    twin_granted(t, h, fx);
    if (again)
        h->asker = 0; /* it had it: called off, it keeps it */
}

/* What is its own, is over, and has not had its turn yet, goes first. */
static void bury(struct twin *t, const struct t_lock *l, const struct op *op,
                 const struct t_session *session, struct effects *fx)
{
    struct t_hold *h = twin_hold_of(t, l, op->owner, session);
    if (h && twin_over(h, t->now))
        twin_end_hold(t, h, EVENT_EXPIRED, REASON_TTL, fx);
    struct t_wait *w = twin_wait_of(t, l, op->owner, session);
    if (w && twin_is_dead(t, w))
        twin_end_dead(t, w, fx);
}

static void acquire_one(struct twin *t, struct t_lock *l, const struct op *op,
                        struct t_session *session, struct effects *fx)
{
    enum reason why;
    bury(t, l, op, session, fx);
    switch (judge(t, l, op, session, &why)) {
    case GRANT:
    case AGAIN:
        take(t, l, op, session, fx);
        break;
    case TAKE_OVER:
        take_over(t, twin_wait_of(t, l, op->owner, session), op, fx);
        break;
    case REFUSE:
        twin_refuse(t, op, why, fx);
        break;
    case QUEUE:
        if (!twin_deadlock(t, op, l, op->owner, session, fx))
            queued(t, join(t, l, op, op->owner, session), op, fx);
        break;
    }
}

static struct op one_of(const struct op *op, size_t i)
{
    struct op one = *op;
    one.name = i == 0 ? op->name : op->more.items[i - 1];
    one.more = (struct names){0};
    if (i != op->more.n)
        one.asker = 0; /* the last one carries the answer */
    return one;
}

static void acquire(struct twin *t, struct t_space *s, const struct op *op,
                    struct t_session *session, struct effects *fx)
{
    for (size_t i = 0; op->more.n && i <= op->more.n; i++) { /* all or none */
        enum reason why;
        struct op one = one_of(op, i);
        one.asker = op->asker;
        struct t_lock *l = lock_of(t, s, one.name);
        bury(t, l, op, session, fx);
        if (judge(t, l, &one, session, &why) == REFUSE) {
            twin_refuse(t, &one, why, fx);
            return;
        }
    }
    for (size_t i = 0; i <= op->more.n; i++) {
        struct op one = one_of(op, i);
        struct t_lock *l = lock_of(t, s, one.name);
        bool again = twin_hold_of(t, l, op->owner, session);
        acquire_one(t, l, &one, session, fx);
        if (op->more.n && !again) /* all of them are given back if it is called off */
            twin_hold_of(t, l, op->owner, session)->asker = op->asker;
    }
}

/* --- by fence or owner --- */

bool twin_named(const struct op *op, const struct t_hold *h, uint64_t now)
{
    if (twin_over(h, now))
        return false;
    if (op->fence)
        return h->fence == op->fence;
    if (op->flags & OP_ANYONE)
        return true;
    return slice_eq(h->owner, op->owner) &&
           (!op->session.len || slice_eq(twin_id(h->session), op->session));
}

static struct t_hold *named_hold(const struct twin *t, const struct t_space *s,
                                 const struct op *op)
{
    for (size_t i = 0; i < t->n_holds; i++) {
        struct t_hold *h = t->holds[i];
        if (h->lock->space == s && slice_eq(h->lock->name, op->name) &&
            twin_named(op, h, t->now))
            return h;
    }
    return NULL;
}

/* What it has goes with it: nothing else can be done to that. */
static bool is_ending(const struct t_session *s)
{
    return s && s->ending;
}

static uint64_t release_one(struct twin *t, const struct t_space *s, const struct op *op,
                            struct effects *fx)
{
    uint64_t n = 0;
    struct t_hold *h;
    while ((h = named_hold(t, s, op)) != NULL) {
        twin_end_hold(t, h, EVENT_RELEASED, REASON_RELEASE, fx);
        n++;
    }
    bool leaves = op->owner.len && !op->fence && !(op->flags & OP_HOLDS_ONLY);
    for (size_t i = 0; leaves && i < t->n_waits;) {
        struct t_wait *w = t->waits[i];
        if (w->lock->space == s && slice_eq(w->lock->name, op->name) &&
            slice_eq(w->owner, op->owner) && slice_eq(twin_id(w->session), op->session) &&
            !is_ending(w->session)) {
            twin_end_wait(t, w, EVENT_LEFT, REASON_RELEASE, fx);
            n++;
        } else {
            i++;
        }
    }
    return n;
}

static uint64_t holders_of(const struct twin *t, const struct t_space *s, struct slice name)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t->n_holds; i++)
        n += t->holds[i]->lock->space == s && slice_eq(t->holds[i]->lock->name, name);
    return n;
}

static void release(struct twin *t, const struct t_space *s, const struct op *op,
                    struct effects *fx)
{
    uint64_t n = 0, held = 0;
    for (size_t i = 0; i <= op->more.n; i++) {
        struct op one = one_of(op, i);
        held += holders_of(t, s, one.name);
    }
    if (held > LIMIT_HOLDERS && op->more.n && op->flags & OP_ANYONE) {
        twin_failed(op, BELAY_ERR_LIMIT, fx);
        return;
    }
    for (size_t i = 0; i <= op->more.n; i++) {
        struct op one = one_of(op, i);
        n += release_one(t, s, &one, fx);
    }
    twin_answer(t, op, EVENT_RELEASED, fx)->count = n;
}

/* `ttl` 0: the hold's own. */
static void extend(const struct twin *t, struct t_hold *h, uint64_t ttl)
{
    if (ttl)
        h->ttl = ttl;
    h->end = h->ttl ? t->now + h->ttl : FOREVER;
    h->overdue = false;
}

static void add_ttl(const struct twin *t, struct t_hold *h, uint64_t ttl)
{
    h->end = (h->end > t->now ? h->end : t->now) + ttl; /* what remains, and more */
    if (h->end > t->now + LIMIT_TTL_MS)
        h->end = t->now + LIMIT_TTL_MS;
    h->overdue = false;
}

static void renew(struct twin *t, const struct t_space *s, const struct op *op,
                  struct effects *fx)
{
    for (size_t i = 0; i <= op->more.n; i++) {
        struct op one = one_of(op, i);
        const struct t_hold *h = named_hold(t, s, &one);
        if (!h || (op->flags & OP_ADD_TTL && h->end == FOREVER)) {
            twin_failed(op, BELAY_ERR_STALE, fx);
            return;
        }
    }
    for (size_t i = 0; i <= op->more.n; i++) {
        struct op one = one_of(op, i);
        struct t_hold *h = named_hold(t, s, &one);
        if (op->flags & OP_ADD_TTL)
            add_ttl(t, h, op->ttl_ms);
        else
            extend(t, h, op->ttl_ms);
        struct event *ev = twin_tell_hold(t, h, EVENT_RENEWED, fx);
        ev->asker = one.asker;
        twin_tell_end(t, h, ev);
    }
}

static void set_body(struct twin *t, const struct t_space *s, const struct op *op,
                     struct effects *fx)
{
    struct t_hold *h = named_hold(t, s, op);
    if (!h) {
        twin_failed(op, BELAY_ERR_STALE, fx);
        return;
    }
    h->lock->body = twin_keep(t, op->body);
    extend(t, h, op->ttl_ms);
    struct event *ev = twin_tell_hold(t, h, EVENT_BODY_SET, fx);
    ev->asker = op->asker;
    twin_tell_end(t, h, ev);
    twin_touch(t, h->lock);
}

static void tell_two_upgrades(const struct twin *t, const struct op *op, const struct t_hold *h,
                              const struct t_wait *other, struct effects *fx)
{
    struct event *ev = twin_answer(t, op, EVENT_DEADLOCK, fx);
    ev->news = true;
    ev->owner = h->owner;
    ev->session = twin_id(h->session);
    ev->mode = MODE_EXCLUSIVE;
    ev->n_cycle = 2;
    ev->cycle = arena_alloc(&fx->arena, 2 * sizeof *ev->cycle);
    ev->cycle[0] = (struct cycle_step){h->owner, h->lock->name};
    ev->cycle[1] = (struct cycle_step){other->owner, h->lock->name};
}

static void convert_now(struct twin *t, struct t_hold *h, const struct op *op,
                        struct effects *fx)
{
    bool raised = h->mode == MODE_SHARED && op->mode == MODE_EXCLUSIVE;
    h->mode = (enum lock_mode)op->mode;
    h->asker = op->asker;
    if (op->ttl_ms)
        h->ttl = op->ttl_ms;
    twin_give(t, h);
    twin_granted(t, h, fx);
    if (!raised)
        h->asker = 0;
    twin_touch(t, h->lock);
}

static void upgrade(struct twin *t, struct t_hold *h, const struct op *op, struct effects *fx)
{
    struct t_lock *l = h->lock;
    struct t_wait *head = twin_in_line(t, l, 0);
    struct op wish = *op;
    wish.ttl_ms = op->ttl_ms ? op->ttl_ms : h->ttl;
    if (twin_holds_on(t, l) == 1 && !twin_closed(l, t->now)) {
        if (head && head->upgrade) /* away, or it would have been granted */
            twin_end_wait(t, head, EVENT_REFUSED, REASON_REPLACED, fx);
        convert_now(t, h, op, fx);
    } else if (head && head->upgrade && head->upgrade != h) {
        tell_two_upgrades(t, op, h, head, fx);
    } else if (!op->wait_ms) {
        twin_refuse(t, op, twin_closed(l, t->now) ? REASON_CLOSED : REASON_HELD, fx);
    } else if (head && head->upgrade) {
        take_over(t, head, &wish, fx);
    } else if (!twin_deadlock(t, op, l, h->owner, h->session, fx)) {
        struct t_wait *w = join(t, l, &wish, h->owner, h->session);
        w->upgrade = h;
        queued(t, w, op, fx);
    }
}

static void convert(struct twin *t, const struct t_space *s, const struct op *op,
                    struct effects *fx)
{
    struct t_hold *h = named_hold(t, s, op);
    if (!h)
        twin_failed(op, BELAY_ERR_STALE, fx);
    else if (h->mode == MODE_SEMAPHORE)
        twin_refuse(t, op, REASON_KIND, fx);
    else if (op->mode == MODE_SHARED || h->mode == MODE_EXCLUSIVE)
        convert_now(t, h, op, fx);
    else
        upgrade(t, h, op, fx);
}

/* --- break, cancel --- */

static void break_lock(struct twin *t, const struct t_space *s, const struct op *op,
                       struct effects *fx)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t->n_holds;) {
        struct t_hold *h = t->holds[i];
        if (h->lock->space == s && slice_eq(h->lock->name, op->name)) {
            size_t news = fx->n;
            twin_end_hold(t, h, EVENT_BROKEN, REASON_BREAK, fx);
            fx->events[news].text = op->text;
            n++;
        } else {
            i++;
        }
    }
    t->last += n > 0;
    twin_answer(t, op, EVENT_BROKEN, fx)->count = n;
}

static void go_away(struct twin *t, struct t_wait *w, uint64_t since)
{
    if (w->away)
        return;
    if (w->look <= t->now) /* its turn would have served the line */
        twin_touch(t, w->lock);
    w->away = w->end <= since + RECEIPT_RETURN_MS ? AWAY : AWAY_CUT;
    if (w->away == AWAY_CUT)
        w->end = since + RECEIPT_RETURN_MS;
    twin_plan_look(t, w);
}

static void go_away_by(struct twin *t, struct t_wait *w, const struct op *cancel)
{
    go_away(t, w, t->now);
    if (cancel->fence && twin_is_passed(t, w->asker))
        twin_touch(t, w->lock);
    if (cancel->fence)
        twin_hide(t, w); /* it comes back by its id alone */
}

static void cancel_one(struct twin *t, const struct t_space *s, const struct op *op,
                       struct effects *fx)
{
    const struct t_lock *l = s ? twin_lock(t, s, op->name) : NULL;
    for (size_t i = 0; l && i < t->n_waits; i++)
        if (t->waits[i]->lock == l && t->waits[i]->asker == op->target &&
            !is_ending(t->waits[i]->session)) {
            if (op->flags & OP_END_WAIT)
                twin_end_wait(t, t->waits[i], EVENT_TIMEOUT, REASON_CANCEL, fx);
            else if (op->flags & OP_AWAY && twin_has_receipt(t, t->waits[i]))
                go_away_by(t, t->waits[i], op);
            else
                twin_end_wait(t, t->waits[i], EVENT_LEFT, REASON_CANCEL, fx);
            return;
        }
    for (size_t i = 0; l && !(op->flags & OP_END_WAIT) && i < t->n_holds; i++)
        if (t->holds[i]->lock == l && t->holds[i]->asker == op->target &&
            !is_ending(t->holds[i]->session)) {
            if (op->flags & OP_AWAY && op->request.len)
                return;
            if (!(op->flags & OP_UNDO))
                twin_end_hold(t, t->holds[i], EVENT_RELEASED, REASON_CANCEL, fx);
            else if (t->holds[i]->mode == MODE_EXCLUSIVE)
                convert_now(t, t->holds[i], &(struct op){.mode = MODE_SHARED}, fx);
            twin_forget(t, op->request);
            return;
        }
}

static void cancel(struct twin *t, const struct t_space *s, const struct op *op,
                   struct effects *fx)
{
    for (size_t i = 0; i <= op->more.n; i++) {
        struct op one = one_of(op, i);
        cancel_one(t, s, &one, fx);
    }
}

static bool is_over(uint64_t id, uint64_t live)
{
    return id && id >> OP_NODE_SHIFT == live >> OP_NODE_SHIFT &&
           id >> OP_RUN_SHIFT != live >> OP_RUN_SHIFT;
}

/* A node has a new run: those who waited there are gone, or may come back by their id. */
static void cancel_runs(struct twin *t, uint64_t live, struct effects *fx)
{
    size_t node = op_node(live);
    uint64_t since = t->nodes[node].silent ? t->nodes[node].since : t->now;
    for (size_t i = 0; i < t->n_sessions; i++)
        if (is_over(t->sessions[i]->target, live))
            t->sessions[i]->target = 0;
    for (size_t i = 0; i < t->n_waits;) {
        struct t_wait *w = t->waits[i];
        bool gone = is_over(w->asker, live);
        bool waits = twin_has_receipt(t, w) && since + RECEIPT_RETURN_MS > t->now;
        if (gone && !waits) {
            twin_forget_wait(t, w);
            w->asker = 0;
            twin_end_wait(t, w, EVENT_LEFT, REASON_CANCEL, fx);
            continue;
        }
        if (gone)
            go_away(t, w, since);
        i++;
    }
    t->nodes[node].silent = false;
}

void twin_request(struct twin *t, const struct op *op, struct effects *fx)
{
    struct t_space *s = twin_space(t, op->ns);
    struct t_session *session = twin_live(t, op->session);
    if (op->kind == OP_CANCEL && !op->name.len && !op->session.len) {
        cancel_runs(t, op->target, fx);
        return;
    }
    if (op->kind == OP_CANCEL) {
        cancel(t, s, op, fx);
        return;
    }
    if (!s) {
        twin_failed(op, BELAY_ERR_NO_NAMESPACE, fx);
        return;
    }
    if (op->kind == OP_ACQUIRE && op->session.len && !session) {
        twin_failed(op, BELAY_ERR_NO_SESSION, fx);
        return;
    }
    if (session) /* whoever names it keeps it */
        session->end = t->now + session->ttl;
    if (op->kind == OP_ACQUIRE)
        acquire(t, s, op, session, fx);
    else if (op->kind == OP_RELEASE)
        release(t, s, op, fx);
    else if (op->kind == OP_RENEW)
        renew(t, s, op, fx);
    else if (op->kind == OP_BODY)
        set_body(t, s, op, fx);
    else if (op->kind == OP_CONVERT)
        convert(t, s, op, fx);
    else if (op->kind == OP_BREAK)
        break_lock(t, s, op, fx);
}
