/* line.c - the line of a lock: strictly by ticket, nobody is passed, no wake-up is lost.
 *
 * A wait leaves the line in one of four ways: granted (line_serve), its time runs out or its
 * session is over (wait_expire, session_end), its client is gone (cancel_request), or its owner
 * gives up (request_release). Whatever ends a hold or a wait touches the lock, and every
 * touched line is served once before the step is over: that is why no wake-up can be lost. */
#include "machine/line.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/level.h"
#include "machine/lock.h"
#include "machine/node.h"
#include "machine/sound.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

uint64_t who_hash(const struct machine *m, struct who who)
{
    uint64_t h = hash_bytes(&m->key, who.owner.data, who.owner.len);
    return who.session ? h ^ (who.session->end.seq * 0x9e3779b97f4a7c15ULL) : h;
}

static uint64_t hash_place(const struct machine *m, struct who who, const struct lock *l)
{
    return who_hash(m, who) ^ l->by_name.hash;
}

static struct who wait_who(const struct wait *w)
{
    return (struct who){wait_owner(w), w->session};
}

static bool same_waiter(struct map_node *node, const void *key)
{
    const struct waiter *v = map_item(node, const struct waiter, by_who);
    BELAY_DCHECK(!list_empty(&v->waits));
    const struct who *who = key;
    return who_same(wait_who(list_item(v->waits.next, const struct wait, in_waiter)), *who);
}

struct waiter *waiter_find(const struct machine *m, const struct space *s, struct who who)
{
    struct map_node *n = map_find(&s->waiters, who_hash(m, who), same_waiter, &who);
    return n ? map_item(n, struct waiter, by_who) : NULL;
}

bool wait_bars_shared(const struct wait *w)
{
    BELAY_DCHECK(w->policy <= POLICY_TIMED);
    return w->policy == POLICY_HARD;
}

uint64_t wait_quiet_from(const struct wait *w)
{
    uint64_t shared_ms = w->policy == POLICY_TIMED ? w->lock->more->quiet_from_ms : 0;
    return w->quiet_from_ms > shared_ms ? w->quiet_from_ms : shared_ms;
}

uint64_t wait_quiet_at(const struct wait *w)
{
    BELAY_CHECK(w->policy == POLICY_TIMED);
    return wait_quiet_from(w) + w->quiet_ms;
}

/* When to look at the wait again: its deadline, or earlier, when it may have been quiet. */
void wait_arm(struct machine *m, struct wait *w)
{
    BELAY_DCHECK(w->end.tag == END_WAIT);
    uint64_t at = w->deadline_ms;
    if (w->policy == POLICY_TIMED && wait_quiet_at(w) > m->now_ms && wait_quiet_at(w) < at)
        at = wait_quiet_at(w);
    BELAY_DCHECK(at <= w->deadline_ms);
    heap_set(&m->ends, &w->end, at);
}

/* A turn that is due would serve the line. Before the end of `w` is moved, the line is touched
 * instead: no wake-up is lost. */
static void keep_turn(struct machine *m, struct wait *w)
{
    if (m->level >= LEVEL_PARTS && over(&w->end, m->now_ms))
        lock_touch(m, w->lock);
}

void wait_set_body(struct wait *w, const struct op *op)
{
    BELAY_CHECK(op->body.len <= LIMIT_BODY_BYTES);
    w->lock->space->account->used[QUOTA_BYTES] += op->body.len - w->body_len;
    free(w->body);
    w->brings_body = op->flags & OP_SET_BODY;
    w->body = op->body.len ? mem_dup(op->body.data, op->body.len) : NULL;
    w->body_len = op->body.len;
}

void wait_place(struct wait *w)
{
    BELAY_DCHECK(w->waiter);
    list_remove(&w->in_waiter);
    list_push_back(&w->waiter->waits, &w->in_waiter);
    list_remove(&w->in_session);
    if (w->session)
        list_push_back(&w->session->waits, &w->in_session);
}

void wait_link(struct machine *m, struct wait *w)
{
    struct space *s = w->lock->space;
    struct more *more = lock_more(w->lock);
    struct who who = wait_who(w);
    BELAY_CHECK(w->end.seq > 0 && w->end.seq <= m->counter && more->n_waits < LIMIT_WAITERS);
    BELAY_DCHECK(w->weight > 0 && w->weight <= w->lock->capacity);
    BELAY_DCHECK(!wait_of(m, w->lock, who));
    list_push_back(&more->waits, &w->in_lock);
    list_init(&w->in_barring);
    if (wait_bars_shared(w))
        list_push_back(&more->barring, &w->in_barring);
    rank_push_back(&more->ranks, &w->rank, w->end.seq);
    list_init(&w->in_session);
    list_init(&w->in_waiter);
    list_init(&w->in_node);
    w->waiter = waiter_find(m, s, who);
    if (!w->waiter) {
        w->waiter = mem_zalloc(sizeof *w->waiter);
        list_init(&w->waiter->waits);
        map_add(&s->waiters, &w->waiter->by_who, who_hash(m, who));
    }
    wait_place(w);
    if (w->session)
        w->session->n_items++;
    more->n_waits++;
    more->n_barring += wait_bars_shared(w);
    more->n_timed += w->policy == POLICY_TIMED;
    s->waiting++, m->waiting++;
    s->account->used[QUOTA_WAITERS]++;
    s->account->used[QUOTA_BYTES] += w->body_len;
    map_add(&s->waits, &w->by_place, hash_place(m, who, w->lock));
    BELAY_DCHECK(m->waiting >= s->waiting && s->waiting >= more->n_waits);
    lock_changed(m, w->lock);
}

struct wait *wait_add(struct machine *m, struct lock *l, const struct op *op,
                      struct session *session, struct hold *upgrade)
{
    BELAY_DCHECK(!upgrade || (upgrade->lock == l && upgrade->weight == SHARED_WEIGHT));
    BELAY_CHECK(op->wait_ms > 0);
    struct slice owner = upgrade ? hold_owner(upgrade) : op->owner;
    BELAY_DCHECK(owner.len > 0 && owner.len <= LIMIT_OWNER_BYTES);
    struct wait *w = mem_alloc(sizeof *w + owner.len);
    *w = (struct wait){.lock = l,
                       .session = session,
                       .upgrade = upgrade,
                       .since_ms = m->now_ms,
                       .quiet_from_ms = m->now_ms,
                       .quiet_ms = (uint32_t)op->quiet_ms,
                       .policy = (enum lock_policy)op->policy,
                       .weight = CAPACITY_RW,
                       .owner_len = (uint8_t)owner.len,
                       .end = {.seq = ++m->counter, .tag = END_WAIT}};
    memcpy(w->owner, owner.data, owner.len);
    if (op->mode == MODE_SEMAPHORE)
        w->weight = (uint32_t)op->permits;
    else if (op->mode == MODE_SHARED)
        w->weight = SHARED_WEIGHT;
    wait_link(m, w);
    if (upgrade) { /* ahead of everybody */
        list_remove(&w->in_lock);
        list_push_front(&l->more->waits, &w->in_lock);
        list_remove(&w->in_barring);
        list_push_front(&l->more->barring, &w->in_barring);
        rank_remove(&l->more->ranks, &w->rank);
        rank_push_front(&l->more->ranks, &w->rank, w->end.seq);
    }
    wait_ask(m, w, op);
    BELAY_DCHECK(wait_is_linked(w));
    BELAY_DCHECK(wait_position(w) == (upgrade ? 1 : l->more->n_waits));
    return w;
}

void wait_ask(struct machine *m, struct wait *w, const struct op *op)
{
    wait_set_asker(m, w, op->asker);
    w->token = (uint32_t)op->token;
    w->terms = op_terms(op);
    w->deadline_ms = m->now_ms + op->wait_ms;
    bool was_quiet = w->policy == POLICY_TIMED && wait_quiet_at(w) <= m->now_ms;
    if (w->away || (was_quiet && m->level >= LEVEL_OVER))
        lock_touch(m, w->lock); /* its turn may have come: wait_arm() does not look back */
    w->away = AWAY_NOT;
    if (op->request.len) {
        BELAY_DCHECK(!w->receipt);
        w->receipt = receipt_open(m, op);
        w->receipt->wait = w;
    }
    wait_set_body(w, op);
    keep_turn(m, w);
    wait_arm(m, w);
}

struct same_wait {
    struct who who;
    const struct lock *lock;
};

static bool same_wait(struct map_node *node, const void *key)
{
    const struct wait *w = map_item(node, const struct wait, by_place);
    const struct same_wait *k = key;
    return w->lock == k->lock && who_same(wait_who(w), k->who);
}

struct wait *wait_of(const struct machine *m, const struct lock *l, struct who who)
{
    struct same_wait key = {who, l};
    struct map_node *n = map_find(&l->space->waits, hash_place(m, who, l), same_wait, &key);
    return n ? map_item(n, struct wait, by_place) : NULL;
}

size_t wait_all_of(const struct machine *m, const struct space *s, struct who who,
                   struct wait **out, size_t max)
{
    size_t n = 0;
    struct waiter *v = waiter_find(m, s, who);
    if (!v)
        return 0;
    list_each (it, &v->waits) {
        if (n == max)
            break;
        out[n++] = list_item(it, struct wait, in_waiter);
    }
    BELAY_CHECK(n <= max);
    return n;
}

size_t wait_position(const struct wait *w)
{
    return rank_of(&w->rank);
}

static void unlink_and_free(struct machine *m, struct wait *w)
{
    struct lock *l = w->lock;
    struct more *more = l->more;
    BELAY_DCHECK(wait_is_linked(w));
    BELAY_CHECK(more->n_waits > 0);
    heap_remove(&m->ends, &w->end);
    BELAY_DCHECK(more->n_barring >= wait_bars_shared(w) && more->n_timed <= more->n_waits);
    list_remove(&w->in_lock);
    list_remove(&w->in_barring);
    rank_remove(&more->ranks, &w->rank);
    list_remove(&w->in_session);
    list_remove(&w->in_node);
    if (w->session) {
        BELAY_CHECK(w->session->n_items > w->session->n_holds);
        w->session->n_items--;
    }
    more->n_waits--;
    more->n_barring -= wait_bars_shared(w);
    more->n_timed -= w->policy == POLICY_TIMED;
    BELAY_CHECK(l->space->waiting > 0 && m->waiting >= l->space->waiting);
    l->space->waiting--, m->waiting--;
    BELAY_DCHECK(l->space->account->used[QUOTA_WAITERS] > 0);
    l->space->account->used[QUOTA_WAITERS]--;
    BELAY_DCHECK(l->space->account->used[QUOTA_BYTES] >= w->body_len);
    l->space->account->used[QUOTA_BYTES] -= w->body_len;
    map_remove(&l->space->waits, &w->by_place);
    list_remove(&w->in_waiter);
    if (list_empty(&w->waiter->waits)) {
        map_remove(&l->space->waiters, &w->waiter->by_who);
        free(w->waiter);
    }
    lock_changed(m, l);
    if (w->receipt)
        receipt_forget(m, w->receipt);
    free(w->body);
    free(w);
}

struct event *wait_news(const struct machine *m, const struct wait *w, enum event_kind kind,
                        struct effects *fx)
{
    BELAY_DCHECK(w->weight <= w->lock->capacity);
    struct event *ev = lock_news(m, w->lock, kind, fx);
    ev->owner = arena_copy(&fx->arena, wait_owner(w));
    ev->session = arena_copy(&fx->arena, session_id(w->session));
    ev->mode = mode_of(w->lock, w->weight);
    ev->ticket = w->end.seq;
    return ev;
}

void wait_end(struct machine *m, struct wait *w, enum event_kind kind, enum reason reason,
              struct effects *fx)
{
    BELAY_DCHECK(w->since_ms <= m->now_ms);
    struct lock *l = w->lock;
    struct event *ev = wait_news(m, w, kind, fx);
    ev->asker = wait_stays(w);
    ev->reason = reason;
    ev->waited_ms = m->now_ms - w->since_ms;
    if (reason != REASON_CANCEL)
        receipt_settle(m, &w->receipt, ev);
    unlink_and_free(m, w);
    lock_touch(m, l);
}

/* Its time is over, or the time to come back. */
static void time_out(struct machine *m, struct wait *w, struct effects *fx)
{
    BELAY_CHECK(w->deadline_ms <= m->now_ms);
    if (w->away == AWAY_CUT)
        wait_end(m, w, EVENT_LEFT, REASON_CANCEL, fx);
    else
        wait_end(m, w, EVENT_TIMEOUT, REASON_NONE, fx);
}

void wait_away(struct machine *m, struct wait *w, uint64_t since_ms)
{
    BELAY_CHECK(w->receipt && w->receipt->wait == w);
    uint64_t until = since_ms + RECEIPT_RETURN_MS;
    if (w->away)
        return;
    w->away = w->deadline_ms <= until ? AWAY : AWAY_CUT;
    w->deadline_ms = w->away == AWAY ? w->deadline_ms : until;
    BELAY_CHECK(w->deadline_ms <= until);
    keep_turn(m, w);
    wait_arm(m, w);
}

uint64_t wait_expire(struct machine *m, struct wait *w, struct effects *fx)
{
    BELAY_DCHECK(over(&w->end, m->now_ms));
    if (w->deadline_ms <= m->now_ms) {
        time_out(m, w, fx);
        return 1;
    }
    wait_arm(m, w); /* it may have been quiet for long enough, or the line goes on behind it */
    lock_touch(m, w->lock);
    return m->level >= LEVEL_PARTS ? WAIT_LOOK_UNITS : 1;
}

bool line_fits(const struct lock *l, uint32_t weight)
{
    BELAY_CHECK(l->used <= l->capacity);
    return l->capacity - l->used >= weight && l->n_holds < LIMIT_HOLDERS;
}

static void grant_upgrade(struct machine *m, struct wait *w, struct effects *fx)
{
    struct hold *h = w->upgrade;
    struct lock *l = h->lock;
    BELAY_CHECK(l->n_holds == 1 && h->weight == SHARED_WEIGHT && l->used == h->weight);
    l->used += CAPACITY_RW - h->weight;
    h->weight = CAPACITY_RW;
    h->asker = w->asker;
    h->since_ms = m->now_ms;
    h->terms.ttl_ms = w->terms.ttl_ms;
    h->overdue = false;
    BELAY_CHECK(l->used == l->capacity);
    hold_place(m, h);
    end_set(m, &h->end, after_ms(m->now_ms, h->terms.ttl_ms));
    struct event *ev = hold_granted(m, h, fx);
    ev->asker = wait_stays(w);
    ev->ticket = w->end.seq;
    ev->waited_ms = m->now_ms - w->since_ms;
    receipt_settle(m, &w->receipt, ev);
    unlink_and_free(m, w);
}

static void grant_wait(struct machine *m, struct wait *w, struct effects *fx)
{
    BELAY_DCHECK(!w->upgrade && line_fits(w->lock, w->weight));
    struct lock *l = w->lock;
    if (w->brings_body)
        lock_set_body(l, slice_of(w->body, w->body_len));
    struct grant g = {wait_owner(w), w->session, w->asker, w->terms, w->weight, w->token};
    uint64_t ticket = w->end.seq, asker = wait_stays(w);
    uint64_t waited_ms = m->now_ms - w->since_ms;
    struct receipt *receipt = w->receipt;
    w->receipt = NULL;
    struct hold *h = hold_add(m, l, &g, ++m->counter);
    end_set(m, &h->end, after_ms(m->now_ms, h->terms.ttl_ms));
    unlink_and_free(m, w);
    struct event *ev = hold_granted(m, h, fx);
    ev->asker = asker;
    ev->ticket = ticket;
    ev->waited_ms = waited_ms;
    receipt_settle(m, &receipt, ev);
}

/* What line_serve() does next. The dead are not granted, but removed. */
enum service { SERVE_GRANT, SERVE_PASS, SERVE_STOP };

static enum service judge(const struct machine *m, const struct wait *w, bool only_shared)
{
    BELAY_DCHECK(!w->upgrade || w->upgrade->lock == w->lock);
    const struct lock *l = w->lock;
    if (w->upgrade && m->level >= LEVEL_OVER && hold_over(w->upgrade, m->now_ms))
        return SERVE_STOP; /* its turn comes, and ends this wait with it */
    if (w->upgrade)
        return l->n_holds == 1 && !w->away ? SERVE_GRANT : SERVE_STOP;
    bool is_soft = w->policy != POLICY_HARD;
    if (w->away) /* it may be dead: its place is kept for a moment, but nothing is given */
        return is_soft ? SERVE_PASS : SERVE_STOP;
    bool is_shared = l->capacity == CAPACITY_RW && w->weight == SHARED_WEIGHT;
    bool is_quiet = w->policy != POLICY_TIMED || wait_quiet_at(w) <= m->now_ms;
    if (line_fits(l, w->weight) && is_quiet && (is_shared || !only_shared))
        return SERVE_GRANT;
    return is_soft ? SERVE_PASS : SERVE_STOP;
}

/* A token that is gone is granted nothing. */
static bool is_dead(const struct machine *m, const struct wait *w)
{
    return session_over(w->session, m->now_ms) || w->deadline_ms <= m->now_ms ||
           !token_lives(m, w->token);
}

static void remove_dead(struct machine *m, struct wait *w, struct effects *fx)
{
    BELAY_DCHECK(is_dead(m, w));
    if (session_over(w->session, m->now_ms))
        wait_end(m, w, EVENT_LEFT, REASON_SESSION, fx);
    else if (!token_lives(m, w->token))
        wait_end(m, w, EVENT_LEFT, REASON_REVOKED, fx);
    else
        time_out(m, w, fx);
}

void wait_end_if_dead(struct machine *m, struct wait *w, struct effects *fx)
{
    if (is_dead(m, w))
        remove_dead(m, w, fx);
}

/* A client that waits at a silent node keeps its place, and the line goes on without it. At most
 * so many are passed over, because a step does bounded work (I23): a line with more of them waits
 * until they leave. */
enum { LINE_PASS_MAX = 4096 };

const struct wait *line_first(const struct machine *m, const struct lock *l)
{
    BELAY_CHECK(l->more);
    size_t passed = 0;
    list_each (it, &l->more->waits) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        if (!node_is_silent(m, w->asker) || passed++ == LINE_PASS_MAX)
            return w;
    }
    return NULL;
}

bool line_bars(const struct machine *m, const struct lock *l, bool is_shared)
{
    const struct more *more = l->more;
    if (!more || (is_shared ? more->n_barring : more->n_waits) == 0)
        return false;
    if (m->n_silent == 0)
        return true;
    size_t passed = 0;
    list_each (it, &more->waits) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        if (node_is_silent(m, w->asker) ? passed++ == LINE_PASS_MAX
                                        : !is_shared || wait_bars_shared(w))
            return true;
    }
    return false;
}

/* --- serving --- */

/* One walk along a line. */
struct line_walk {
    struct machine *m;
    struct lock *l;
    bool only_shared; /* a wait was passed: behind it only shared ones are granted */
    size_t dead, passed;
};

/* The next wait behind `w`. Once a wait was passed, no other exclusive wait that may be passed can
 * be granted: then only the others are looked at. The upgrade has a late ticket and stands first,
 * so it is never behind another wait. */
static struct wait *next_behind(const struct line_walk *k, const struct wait *w)
{
    const struct more *more = k->l->more;
    if (!k->only_shared || k->m->level < LEVEL_PARTS) {
        struct list *next = w->in_lock.next;
        return next == &more->waits ? NULL : list_item(next, struct wait, in_lock);
    }
    struct list *next = list_empty(&w->in_barring) ? more->barring.next : w->in_barring.next;
    for (; next != &more->barring; next = next->next) {
        struct wait *v = list_item(next, struct wait, in_barring);
        if (!v->upgrade && v->end.seq > w->end.seq)
            return v;
    }
    return NULL;
}

/* May no more be done for this line in this step? Then the turn of `w` comes in the next one,
 * and serves the line again. */
static bool is_used_up(struct line_walk *k, struct wait *w, bool dead)
{
    struct machine *m = k->m;
    bool used_up = m->level >= LEVEL_PARTS ? m->line_units == 0
                                           : dead && k->dead++ == MACHINE_EXPIRE_BATCH;
    if (used_up && w->end.at > m->now_ms)
        heap_set(&m->ends, &w->end, m->now_ms);
    uint64_t units = dead ? 1 : LINE_GRANT_UNITS;
    m->line_units -= units < m->line_units ? units : m->line_units;
    return used_up;
}

static enum service serve_next(struct line_walk *k, struct wait *w, struct effects *fx)
{
    struct machine *m = k->m;
    bool dead = is_dead(m, w);
    if (!dead && node_is_silent(m, w->asker))
        return k->passed++ < LINE_PASS_MAX ? SERVE_PASS : SERVE_STOP;
    enum service next = dead ? SERVE_GRANT : judge(m, w, k->only_shared);
    if (next == SERVE_PASS) {
        k->only_shared = true;
        wait_arm(m, w);
    }
    if (next != SERVE_GRANT)
        return next;
    if (is_used_up(k, w, dead))
        return SERVE_STOP;
    if (dead)
        remove_dead(m, w, fx);
    else if (w->upgrade)
        grant_upgrade(m, w, fx);
    else
        grant_wait(m, w, fx);
    return SERVE_GRANT;
}

void line_serve(struct machine *m, struct lock *l, struct effects *fx)
{
    if (!l->more || l->more->n_waits == 0 || l->space->doomed || lock_is_closed(l, m->now_ms))
        return;
    struct line_walk k = {.m = m, .l = l};
    struct wait *w = list_item(l->more->waits.next, struct wait, in_lock), *next;
    for (enum service done = SERVE_GRANT; w && done != SERVE_STOP; w = next) {
        next = next_behind(&k, w); /* it may be gone afterwards */
        done = serve_next(&k, w, fx);
        if (done == SERVE_PASS)
            next = next_behind(&k, w);
    }
    BELAY_DCHECK(lock_is_sound(l));
}
