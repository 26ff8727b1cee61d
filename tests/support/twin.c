/* twin.c - the state machine once more, as simple as can be: the oracle of the model test. */
#include "base/check.h"
#include "base/mem.h"
#include "twin_state.h"

#include <stdlib.h>

/* --- arrays --- */

void *twin_add(void *array, size_t *n, size_t bytes)
{
    void ***list = array;
    *list = mem_resize(*list, (*n + 1) * sizeof(void *));
    return (*list)[(*n)++] = mem_zalloc(bytes);
}

/* Takes it out of the array and closes the gap; it lives on. */
static void take_out(void *array, size_t *n, const void *item)
{
    void **list = array;
    size_t at = 0;
    while (list[at] != item)
        BELAY_CHECK(++at < *n);
    memmove(list + at, list + at + 1, (*n - at - 1) * sizeof(void *));
    --*n;
}

void twin_drop(void *array, size_t *n, const void *item)
{
    void **list = array;
    for (size_t i = 0; i < *n; i++)
        if (list[i] == item) {
            void *gone = list[i];
            take_out(array, n, item);
            free(gone);
            return;
        }
    check_failed(__FILE__, __LINE__, "is in the array");
}

struct slice twin_keep(struct twin *t, struct slice text)
{
    return arena_copy(&t->texts, text);
}

struct twin *twin_open(unsigned batch)
{
    struct twin *t = mem_zalloc(sizeof *t);
    t->batch = batch;
    struct t_space *s = twin_add(&t->spaces, &t->n_spaces, sizeof *s);
    s->name = SLICE("default");
    return t;
}

void twin_close(struct twin *t)
{
    if (!t)
        return;
    while (t->n_spaces)
        free(t->spaces[--t->n_spaces]);
    while (t->n_locks)
        free(t->locks[--t->n_locks]);
    while (t->n_sessions)
        free(t->sessions[--t->n_sessions]);
    while (t->n_holds)
        free(t->holds[--t->n_holds]);
    while (t->n_waits)
        free(t->waits[--t->n_waits]);
    while (t->n_receipts)
        free(t->receipts[--t->n_receipts]);
    free(t->receipts);
    free(t->spaces);
    free(t->locks);
    free(t->sessions);
    free(t->holds);
    free(t->waits);
    free(t->served);
    free(t->line);
    arena_done(&t->texts);
    free(t);
}

/* --- looking things up --- */

struct t_space *twin_space(const struct twin *t, struct slice name)
{
    for (size_t i = 0; i < t->n_spaces; i++)
        if (!t->spaces[i]->doomed && slice_eq(t->spaces[i]->name, name))
            return t->spaces[i];
    return NULL;
}

struct t_lock *twin_lock(const struct twin *t, const struct t_space *s, struct slice name)
{
    for (size_t i = 0; i < t->n_locks; i++)
        if (t->locks[i]->space == s && slice_eq(t->locks[i]->name, name))
            return t->locks[i];
    return NULL;
}

struct t_session *twin_session(const struct twin *t, struct slice id)
{
    for (size_t i = 0; i < t->n_sessions; i++)
        if (slice_eq(t->sessions[i]->id, id) && !t->sessions[i]->ending)
            return t->sessions[i];
    return NULL;
}

struct t_session *twin_live(const struct twin *t, struct slice id)
{
    struct t_session *s = id.len ? twin_session(t, id) : NULL;
    return s && s->end > t->now ? s : NULL;
}

size_t twin_holds_on(const struct twin *t, const struct t_lock *l)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_holds; i++)
        n += t->holds[i]->lock == l;
    return n;
}

size_t twin_waits_on(const struct twin *t, const struct t_lock *l)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_waits; i++)
        n += t->waits[i]->lock == l;
    return n;
}

bool twin_exists(const struct twin *t, const struct t_lock *l)
{
    return l->body.len || l->closed_no || twin_holds_on(t, l) || twin_waits_on(t, l);
}

bool twin_closed(const struct t_lock *l, uint64_t now)
{
    return l->closed_no && l->closed_until > now;
}

bool twin_over(const struct t_hold *h, uint64_t now)
{
    if (h->session && h->session->end <= now)
        return true;
    return h->end <= now && (h->overdue || !h->grace); /* in its grace it is alive */
}

/* The line: an upgrade first, then by ticket. place 0 is the head; NULL: nobody there. */
struct t_wait *twin_in_line(const struct twin *t, const struct t_lock *l, size_t place)
{
    for (int plain = 0; plain < 2; plain++)
        for (size_t i = 0; i < t->n_waits; i++)
            if (t->waits[i]->lock == l && (t->waits[i]->upgrade == NULL) == plain &&
                place-- == 0)
                return t->waits[i];
    return NULL;
}

uint64_t twin_position(const struct twin *t, const struct t_wait *w)
{
    uint64_t before = 0;
    for (size_t i = 0; i < t->n_waits && !w->upgrade; i++)
        before += t->waits[i]->lock == w->lock &&
                  (t->waits[i]->upgrade || t->waits[i]->ticket < w->ticket);
    return before + 1;
}

struct t_hold *twin_hold_of(const struct twin *t, const struct t_lock *l, struct slice owner,
                            const struct t_session *session)
{
    for (size_t i = 0; i < t->n_holds; i++)
        if (t->holds[i]->lock == l && t->holds[i]->session == session &&
            slice_eq(t->holds[i]->owner, owner))
            return t->holds[i];
    return NULL;
}

struct t_wait *twin_wait_of(const struct twin *t, const struct t_lock *l, struct slice owner,
                            const struct t_session *session)
{
    for (size_t i = 0; i < t->n_waits; i++)
        if (t->waits[i]->lock == l && t->waits[i]->session == session &&
            slice_eq(t->waits[i]->owner, owner))
            return t->waits[i];
    return NULL;
}

/* --- telling --- */

struct event *twin_failed(const struct op *op, enum belay_err err, struct effects *fx)
{
    struct event *ev = effects_add(fx, EVENT_FAILED);
    ev->asker = op->asker;
    ev->err = err;
    return ev;
}

struct slice twin_id(const struct t_session *s)
{
    return s ? s->id : slice_of("", 0);
}

static struct event *news(const struct twin *t, const struct t_lock *l, enum event_kind kind,
                          struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->at_ms = t->now;
    ev->account = SLICE("default");
    ev->ns = l->space->name;
    ev->name = l->name;
    return ev;
}

struct event *twin_tell_hold(const struct twin *t, const struct t_hold *h, enum event_kind kind,
                             struct effects *fx)
{
    struct event *ev = news(t, h->lock, kind, fx);
    ev->owner = h->owner;
    ev->session = twin_id(h->session);
    ev->mode = h->mode;
    ev->fence = h->fence;
    return ev;
}

void twin_tell_end(const struct twin *t, const struct t_hold *h, struct event *ev)
{
    ev->forever = h->end == FOREVER;
    ev->expires_in_ms = ev->forever || h->end < t->now ? 0 : h->end - t->now;
}

struct event *twin_tell_wait(const struct twin *t, const struct t_wait *w, enum event_kind kind,
                             struct effects *fx)
{
    struct event *ev = news(t, w->lock, kind, fx);
    ev->owner = w->owner;
    ev->session = twin_id(w->session);
    ev->mode = w->mode;
    ev->ticket = w->ticket;
    return ev;
}

struct event *twin_answer(const struct twin *t, const struct op *op, enum event_kind kind,
                          struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->asker = op->asker;
    ev->at_ms = t->now;
    ev->account = SLICE("default");
    ev->ns = op->ns;
    ev->name = op->name;
    return ev;
}

void twin_refuse(const struct twin *t, const struct op *op, enum reason why, struct effects *fx)
{
    struct event *ev = twin_answer(t, op, EVENT_REFUSED, fx);
    ev->reason = why;
    ev->owner = op->owner;
    ev->mode = (enum lock_mode)op->mode;
}

/* --- the line --- */

/* This lock's line is to be served before the step is over. */
void twin_touch(struct twin *t, struct t_lock *l)
{
    for (size_t i = 0; i < t->n_served; i++)
        if (t->served[i] == l)
            return;
    t->served = mem_resize(t->served, (t->n_served + 1) * sizeof(struct t_lock *));
    t->served[t->n_served++] = l;
}

static uint64_t quiet_at(const struct t_wait *w)
{
    uint64_t from = w->since > w->lock->last_shared ? w->since : w->lock->last_shared;
    return from + w->quiet;
}

bool twin_was_quiet(const struct twin *t, const struct t_wait *w)
{
    return w->policy == POLICY_TIMED && quiet_at(w) <= t->now;
}

void twin_plan_look(const struct twin *t, struct t_wait *w)
{
    w->look = w->end;
    if (w->policy == POLICY_TIMED && quiet_at(w) > t->now && quiet_at(w) < w->end)
        w->look = quiet_at(w);
}

/* Is the weight free? Nobody's place in the line is looked at here. */
bool twin_fits(const struct twin *t, const struct t_lock *l, enum lock_mode mode,
               uint64_t permits, uint64_t of)
{
    if (twin_closed(l, t->now))
        return false;
    uint64_t taken = 0;
    for (size_t i = 0; i < t->n_holds; i++) {
        const struct t_hold *h = t->holds[i];
        if (h->lock != l)
            continue;
        if (mode == MODE_EXCLUSIVE || h->mode == MODE_EXCLUSIVE)
            return false;
        taken += h->permits;
    }
    return mode != MODE_SEMAPHORE || taken + permits <= of;
}

/* A new fence, and the end counted from now. */
void twin_give(struct twin *t, struct t_hold *h)
{
    take_out(t->holds, &t->n_holds, h);
    t->holds[t->n_holds++] = h; /* there was room for it before */
    h->fence = ++t->last;
    h->since = t->now;
    h->end = h->ttl ? t->now + h->ttl : FOREVER;
    h->overdue = false;
}

struct event *twin_granted(struct twin *t, const struct t_hold *h, struct effects *fx)
{
    if (h->mode == MODE_SHARED)
        h->lock->last_shared = t->now; /* timed waits see it when they are looked at */
    struct event *ev = twin_tell_hold(t, h, EVENT_GRANTED, fx);
    ev->asker = h->asker;
    ev->count = h->mode == MODE_SEMAPHORE ? h->permits : 0;
    ev->text = h->lock->body;
    twin_tell_end(t, h, ev);
    return ev;
}

void twin_end_wait(struct twin *t, struct t_wait *w, enum event_kind kind, enum reason why,
                   struct effects *fx)
{
    struct event *ev = twin_tell_wait(t, w, kind, fx);
    ev->asker = w->asker;
    ev->reason = why;
    ev->waited_ms = t->now - w->since;
    twin_touch(t, w->lock);
    twin_drop(t->waits, &t->n_waits, w);
}

void twin_end_hold(struct twin *t, struct t_hold *h, enum event_kind kind, enum reason why,
                   struct effects *fx)
{
    struct event *ev = twin_tell_hold(t, h, kind, fx);
    ev->reason = why;
    ev->count = 1;
    for (size_t i = 0; i < t->n_waits; i++)
        if (t->waits[i]->upgrade == h) {
            twin_end_wait(t, t->waits[i], EVENT_REFUSED, REASON_LOST, fx);
            break;
        }
    bool involuntary = kind != EVENT_RELEASED && why != REASON_NAMESPACE;
    struct t_lock *l = h->lock;
    if (h->delay && involuntary) {
        if (!l->closed_no)
            l->closed_no = h->fence;
        if (l->closed_until < t->now + h->delay)
            l->closed_until = t->now + h->delay;
    }
    twin_touch(t, l);
    twin_drop(t->holds, &t->n_holds, h);
}

bool twin_is_dead(const struct twin *t, const struct t_wait *w)
{
    return (w->session && w->session->end <= t->now) || w->end <= t->now;
}

void twin_end_dead(struct twin *t, struct t_wait *w, struct effects *fx)
{
    if (w->session && w->session->end <= t->now)
        twin_end_wait(t, w, EVENT_LEFT, REASON_SESSION, fx);
    else if (w->away == AWAY_CUT)
        twin_end_wait(t, w, EVENT_LEFT, REASON_CANCEL, fx);
    else
        twin_end_wait(t, w, EVENT_TIMEOUT, REASON_NONE, fx);
}

static void grant_waiter(struct twin *t, struct t_wait *w, struct effects *fx)
{
    struct t_hold *h = w->upgrade;
    if (!h) {
        h = twin_add(&t->holds, &t->n_holds, sizeof *h);
        *h = (struct t_hold){.lock = w->lock,
                             .owner = w->owner,
                             .session = w->session,
                             .permits = w->permits,
                             .of = w->of,
                             .grace = w->grace,
                             .delay = w->delay};
        if (w->sets_body)
            w->lock->body = w->body;
    }
    h->mode = w->mode;
    h->ttl = w->ttl;
    h->asker = w->asker;
    twin_give(t, h);
    uint64_t ticket = w->ticket, waited = t->now - w->since;
    twin_drop(t->waits, &t->n_waits, w);
    struct event *ev = twin_granted(t, h, fx);
    ev->ticket = ticket;
    ev->waited_ms = waited;
}

bool twin_is_passed(const struct twin *t, uint64_t asker)
{
    bool stays = asker && !(asker & OP_ASKER_LOOSE);
    return stays && t->nodes[op_node(asker)].silent;
}

static bool may_go(const struct twin *t, const struct t_wait *w, bool only_shared)
{
    if (w->away)
        return false;
    if (w->upgrade) /* one that is over is not revived */
        return twin_holds_on(t, w->lock) == 1 && !twin_over(w->upgrade, t->now);
    if (only_shared && w->mode != MODE_SHARED)
        return false;
    if (w->policy == POLICY_TIMED && quiet_at(w) > t->now)
        return false;
    return twin_fits(t, w->lock, w->mode, w->permits, w->of);
}

/* Everybody in the line, in order, in t->line. */
static size_t line_up(struct twin *t, const struct t_lock *l)
{
    size_t n = 0;
    t->line = mem_resize(t->line, (t->n_waits + 1) * sizeof(struct t_wait *));
    for (int plain = 0; plain < 2; plain++)
        for (size_t i = 0; i < t->n_waits; i++)
            if (t->waits[i]->lock == l && (t->waits[i]->upgrade == NULL) == plain)
                t->line[n++] = t->waits[i];
    return n;
}

/* An op does so much for lines; then the turn of `w` comes in the next one. */
static bool is_used_up(struct twin *t, struct t_wait *w, bool dead)
{
    uint64_t units = dead ? 1 : 4;
    if (t->units == 0) {
        w->look = w->look < t->now ? w->look : t->now;
        return true;
    }
    t->units -= units < t->units ? units : t->units;
    return false;
}

static void serve_line(struct twin *t, struct t_lock *l, struct effects *fx)
{
    bool only_shared = false;
    if (twin_closed(l, t->now) || l->space->doomed)
        return;
    size_t n = line_up(t, l);
    for (size_t i = 0; i < n; i++) {
        struct t_wait *w = t->line[i];
        if (only_shared && w->policy != POLICY_HARD)
            continue; /* it cannot go behind another one that cannot */
        bool dead = twin_is_dead(t, w);
        if (!dead && twin_is_passed(t, w->asker))
            continue;
        bool goes = dead || may_go(t, w, only_shared);
        if (!goes && w->policy == POLICY_HARD)
            break;
        if (goes && is_used_up(t, w, dead))
            break;
        if (dead) {
            twin_end_dead(t, w, fx);
        } else if (goes) {
            grant_waiter(t, w, fx);
        } else {
            twin_plan_look(t, w);
            only_shared = true;
        }
    }
}

void twin_serve(struct twin *t, struct effects *fx)
{
    for (size_t i = 0; i < t->n_served; i++)
        serve_line(t, t->served[i], fx);
    t->n_served = 0;
}

/* --- deadlock --- */

enum { EDGES_MAX = 16384, HOLDERS_MAX = 1024 };

struct search {
    const struct twin *t;
    struct search_step { /* `owner` waits for `lock` */
        const struct t_lock *lock;
        struct slice owner;
        const struct t_session *session;
        size_t from;
    } steps[EDGES_MAX + 1];
    size_t n, edges;
};

static bool is_searched(const struct search *s, const struct t_lock *l)
{
    for (size_t i = 1; i < s->n; i++)
        if (s->steps[i].lock == l)
            return true;
    return false;
}

static bool is_semaphore(const struct twin *t, const struct t_lock *l)
{
    for (size_t i = 0; i < t->n_holds; i++)
        if (t->holds[i]->lock == l)
            return t->holds[i]->mode == MODE_SEMAPHORE;
    return false; /* nobody holds it: it leads nowhere */
}

static void add_waits(struct search *s, const struct t_hold *h, size_t from)
{
    for (size_t k = 0; k < s->t->n_waits; k++) {
        const struct t_wait *w = s->t->waits[k];
        if (w->lock->space != h->lock->space || w->session != h->session ||
            !slice_eq(w->owner, h->owner) || is_semaphore(s->t, w->lock) ||
            is_searched(s, w->lock))
            continue;
        if (s->edges++ >= EDGES_MAX)
            return;
        s->steps[s->n++] = (struct search_step){w->lock, h->owner, h->session, from};
    }
}

/* Breadth first: the holders of a lock by fence, the waits of each by ticket. */
static bool closes(struct search *s, size_t at)
{
    const struct search_step *step = &s->steps[at], *origin = &s->steps[0];
    size_t holders = 0;
    for (size_t i = 0; i < s->t->n_holds; i++) {
        const struct t_hold *h = s->t->holds[i];
        if (h->lock != step->lock ||
            (h->session == step->session && slice_eq(h->owner, step->owner)))
            continue;
        if (h->session && h->session->ending)
            continue;
        if (holders++ >= HOLDERS_MAX || s->edges++ >= EDGES_MAX)
            return false;
        if (h->session == origin->session && slice_eq(h->owner, origin->owner))
            return true;
        add_waits(s, h, at);
    }
    return false;
}

bool twin_deadlock(const struct twin *t, const struct op *op, const struct t_lock *l,
                   struct slice owner, const struct t_session *session, struct effects *fx)
{
    static struct search s;
    size_t at = 0, length = 1;
    if (op->mode == MODE_SEMAPHORE)
        return false;
    s.t = t;
    s.edges = 0;
    s.n = 1;
    s.steps[0] = (struct search_step){l, owner, session, 0};
    while (at < s.n && s.edges < EDGES_MAX && !closes(&s, at))
        at++;
    if (at == s.n || s.edges >= EDGES_MAX)
        return false;
    for (size_t i = at; i; i = s.steps[i].from)
        length++;
    struct event *ev = twin_answer(t, op, EVENT_DEADLOCK, fx);
    ev->news = true;
    ev->owner = owner;
    ev->session = twin_id(session);
    ev->mode = (enum lock_mode)op->mode;
    ev->n_cycle = length < LIMIT_CYCLE ? length : LIMIT_CYCLE;
    ev->cycle = arena_alloc(&fx->arena, ev->n_cycle * sizeof *ev->cycle);
    for (size_t i = length; i-- > 0; at = s.steps[at].from)
        if (i < ev->n_cycle)
            ev->cycle[i] = (struct cycle_step){s.steps[at].owner, s.steps[at].lock->name};
    return true;
}

/* --- one op --- */

/* The next thing that ends at or before `now`, by (end, number); false: nothing. */
struct due {
    uint64_t at, no;
    struct t_hold *hold;
    struct t_wait *wait;
    struct t_session *session;
    struct t_lock *lock;
};

static bool is_sooner(const struct due *d, uint64_t at, uint64_t no)
{
    return at < d->at || (at == d->at && no < d->no);
}

static struct due next_due(const struct twin *t)
{
    struct due d = {.at = FOREVER};
    for (size_t i = 0; i < t->n_holds; i++)
        if (is_sooner(&d, t->holds[i]->end, t->holds[i]->fence))
            d = (struct due){
                .at = t->holds[i]->end, .no = t->holds[i]->fence, .hold = t->holds[i]};
    for (size_t i = 0; i < t->n_waits; i++)
        if (is_sooner(&d, t->waits[i]->look, t->waits[i]->ticket))
            d = (struct due){
                .at = t->waits[i]->look, .no = t->waits[i]->ticket, .wait = t->waits[i]};
    for (size_t i = 0; i < t->n_sessions; i++)
        if (is_sooner(&d, t->sessions[i]->end, t->sessions[i]->no))
            d = (struct due){
                .at = t->sessions[i]->end, .no = t->sessions[i]->no, .session = t->sessions[i]};
    for (size_t i = 0; i < t->n_locks; i++)
        if (t->locks[i]->closed_no &&
            is_sooner(&d, t->locks[i]->closed_until, t->locks[i]->closed_no))
            d = (struct due){.at = t->locks[i]->closed_until,
                             .no = t->locks[i]->closed_no,
                             .lock = t->locks[i]};
    return d;
}

static void end_hold(struct twin *t, struct t_hold *h, struct effects *fx)
{
    if (h->overdue || !h->grace) {
        twin_end_hold(t, h, EVENT_EXPIRED, REASON_TTL, fx);
        return;
    }
    h->overdue = true;
    h->end = t->now + h->grace;
    struct event *ev = twin_tell_hold(t, h, EVENT_OVERDUE, fx);
    ev->reason = REASON_TTL;
    ev->expires_in_ms = h->grace;
}

static void end_wait(struct twin *t, struct t_wait *w, struct effects *fx)
{
    if (w->end <= t->now) {
        enum event_kind kind = w->away == AWAY_CUT ? EVENT_LEFT : EVENT_TIMEOUT;
        twin_end_wait(t, w, kind, w->away == AWAY_CUT ? REASON_CANCEL : REASON_NONE, fx);
        return;
    }
    twin_plan_look(t, w);
    twin_touch(t, w->lock);
}

/* What it cost: a session costs what went with it, everything else one unit. */
static uint64_t work_off(struct twin *t, const struct due *d, uint64_t budget,
                         struct effects *fx)
{
    uint64_t units = 1;
    if (d->hold) {
        end_hold(t, d->hold, fx);
    } else if (d->wait) {
        units = d->wait->end <= t->now ? 1 : 8;
        end_wait(t, d->wait, fx);
    } else if (d->session) {
        enum reason why = d->session->ending ? d->session->ending : REASON_TTL;
        units += twin_end_session(t, d->session, why, 0, budget, fx);
    } else {
        d->lock->closed_no = d->lock->closed_until = 0;
        twin_touch(t, d->lock);
    }
    return units;
}

/* A node falls silent, or is heard again: known before anything else happens in this step. */
static void hear_node(struct twin *t, const struct op *op)
{
    size_t node = op_node(op->target);
    bool silent = op->flags & OP_AWAY;
    if (silent && !t->nodes[node].silent)
        t->nodes[node].since = t->now;
    t->nodes[node].silent = silent;
}

static void touch_lines_of(struct twin *t, size_t node)
{
    for (size_t i = 0; i < t->n_waits; i++) {
        uint64_t asker = t->waits[i]->asker;
        if (asker && !(asker & OP_ASKER_LOOSE) && op_node(asker) == node)
            twin_touch(t, t->waits[i]->lock);
    }
}

void twin_run(struct twin *t, const struct op *op, struct effects *fx)
{
    if (op->kind == OP_TICK)
        t->last += op->fence;
    else if (op->kind >= OP_ACQUIRE && op->kind <= OP_CANCEL)
        twin_request(t, op, fx);
    else if (op->kind == OP_NODE)
        touch_lines_of(t, op_node(op->target));
    else if (op->kind >= OP_SESSION_OPEN && op->kind <= OP_SESSION_CLOSE)
        twin_session_op(t, op, fx);
    else if (op->kind >= OP_NAMESPACE_CREATE && op->kind <= OP_NAMESPACE_DELETE)
        twin_namespace_op(t, op, fx);
}

void twin_apply(struct twin *t, const struct op *op, struct effects *fx)
{
    if (op->now_ms > t->now)
        t->now = op->now_ms;
    if (op->kind == OP_NODE)
        hear_node(t, op);
    uint64_t budget = t->units = t->batch;
    for (struct due d = next_due(t); budget && d.at <= t->now; d = next_due(t)) {
        uint64_t units = work_off(t, &d, budget, fx);
        budget -= units < budget ? units : budget;
    }
    twin_serve(t, fx);
    twin_reap(t, budget, fx);
    twin_settle(t, fx); /* before the op: it may ask again for what has just been answered */
    t->units = t->end_units = t->batch;
    if (op->request.len && op->kind != OP_CANCEL)
        twin_once(t, op, fx);
    else
        twin_run(t, op, fx);
    twin_serve(t, fx);
    twin_settle(t, fx);
    twin_tell_nobody(fx);
}

uint64_t twin_due(const struct twin *t)
{
    for (size_t i = 0; i < t->n_locks; i++)
        if (t->locks[i]->space->doomed && twin_exists(t, t->locks[i]))
            return t->now;
    return next_due(t).at;
}

void twin_counts(const struct twin *t, struct machine_counts *ret)
{
    *ret = (struct machine_counts){.waiting = t->n_waits, .sessions = t->n_sessions};
    for (size_t i = 0; i < t->n_spaces; i++)
        ret->namespaces += !t->spaces[i]->doomed;
    for (size_t i = 0; i < t->n_locks; i++)
        t->locks[i]->users = 0;
    for (size_t i = 0; i < t->n_holds; i++)
        ret->held += t->holds[i]->lock->users++ == 0;
    for (size_t i = 0; i < t->n_waits; i++)
        t->waits[i]->lock->users++;
    for (size_t i = 0; i < t->n_locks; i++)
        ret->locks += t->locks[i]->users || t->locks[i]->body.len || t->locks[i]->closed_no;
}

uint64_t twin_number(const struct twin *t)
{
    return t->last + 1;
}

bool twin_waits(const struct twin *t, uint64_t asker)
{
    for (size_t i = 0; asker && i < t->n_waits; i++)
        if (t->waits[i]->asker == asker)
            return true;
    return false;
}
