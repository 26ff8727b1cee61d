/* sim_answer.c - what an answer means to the client that asked. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

enum { LATE_SLACK_MS = 300 }; /* a way of 150 ms there and back */

static struct sim_hold *hold_of(struct sim_client *c)
{
    return &c->holds[c->call.hold];
}

/* Replaced: an earlier attempt of its own came late, and has its place. */
static bool is_unknown(const struct sim_client *c, const struct event *ev)
{
    if (ev->kind == EVENT_REFUSED && ev->reason == REASON_REPLACED)
        return c->op.request.len > 0;
    return ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_UNAVAILABLE;
}

static bool is_stale(const struct event *ev)
{
    return ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_STALE;
}

static uint64_t think(struct sim_world *w)
{
    return w->plan.herd ? sim_random(w, 20) : 20 + sim_random(w, 300);
}

/* The session that was named is there, or not. */
static void session_named(struct sim_client *c, const struct event *ev)
{
    struct sim_session *s = &c->session;
    if (!c->call.session || c->call.session != s->number)
        return;
    bool gone = (ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_NO_SESSION) ||
                (ev->kind == EVENT_LEFT && ev->reason == REASON_SESSION) ||
                (ev->kind == EVENT_TXN && ev->cause == CAUSE_SESSION);
    bool over = c->call.kind == OP_ACQUIRE; /* asked again, of a grant that is: says no more */
    bool kept = ev->kind != EVENT_FAILED || (ev->err == BELAY_ERR_STALE && !over);
    if (c->call.kind == OP_SESSION_DETACH)
        return;
    if (c->call.kind == OP_SESSION_KEEPALIVE)
        kept = ev->count == (uint64_t)c->call.names;
    if (gone && promise_session(c))
        sim_wrong(c->w, "I11",
                  "client %d lost session %" PRIu64 " after %" PRIu64 " of %" PRIu64 " ms",
                  c->no, s->number, c->w->now - s->kept_ms, s->ttl_ms);
    if (gone)
        promise_forget_session(c);
    else if (kept && c->call.invoked_ms > s->kept_ms)
        s->kept_ms = c->call.invoked_ms;
}

/* --- locks --- */

static void take(struct sim_client *c, int lock, uint64_t fence, uint64_t near)
{
    struct sim_hold *h = promise_slot(c);
    if (!h)
        return;
    const struct sim_space *space = &c->w->spaces[c->call.ns];
    *h = c->call.want;
    h->used = true;
    h->lock = lock;
    h->fence = fence;
    h->near = near;
    h->told = c->w->moment;
    h->since_ms = c->call.invoked_ms;
    h->sure = near && !c->call.shaken && !space->deleting && !space->locks[lock].breaking;
    if (near)
        promise_granted(c, h, c->call.invoked);
}

/* The same hold with a new fence. */
static void renew_hold(struct sim_client *c, const struct event *ev)
{
    struct sim_hold *h = hold_of(c);
    struct sim_hold old = *h;
    *h = c->call.want;
    h->fence = h->near = ev->fence;
    h->told = c->w->moment;
    h->since_ms = c->call.invoked_ms;
    h->sure = c->call.was_sure && !c->call.shaken;
    promise_gone(c->w, &old);
    promise_granted(c, h, c->call.invoked);
}

static void must_have_held(struct sim_client *c, const char *what)
{
    struct sim_hold *h = hold_of(c);
    h->sure = c->call.was_sure && !c->call.shaken;
    if (promise_hold(c, h))
        sim_wrong(c->w, "I5",
                  "client %d lost lock %d of %d (fence %" PRIu64 ") after %" PRIu64
                  " of %" PRIu64 " ms: %s",
                  c->no, h->lock, h->ns, h->fence, c->w->now - h->since_ms, h->ttl_ms, what);
}

/* I36: it says how long the lease lasts, and that has been over for a while. Clocks that go at
 * a quarter of the speed cannot know. */
static void check_left(struct sim_client *c, const struct event *ev)
{
    const struct sim_lock *l = &c->w->spaces[c->call.ns].locks[c->call.lock];
    uint64_t asked_ms = c->w->now - c->call.invoked_ms;
    for (size_t i = 0; i < SIM_GONE && i < l->n_ended && !c->w->plan.slow; i++)
        if (ev->kind == EVENT_GRANTED && !ev->forever && ev->fence &&
            l->ended[i].fence == ev->fence &&
            c->w->now > l->ended[i].ms + LATE_SLACK_MS + asked_ms / 10)
            sim_wrong(c->w, "I36",
                      "client %d is told that fence %" PRIu64 " lasts %" PRIu64
                      " ms, and it ended %" PRIu64 " ms ago",
                      c->no, ev->fence, ev->expires_in_ms, c->w->now - l->ended[i].ms);
}

static void acquired(struct sim_client *c, const struct event *ev)
{
    struct sim_call *call = &c->call;
    check_left(c, ev);
    if (ev->kind == EVENT_GRANTED && call->again) {
        renew_hold(c, ev);
    } else if (ev->kind == EVENT_GRANTED) {
        for (int i = 0; i + 1 < call->names; i++)
            take(c, call->lock + i, 0, ev->fence);
        take(c, call->lock + call->names - 1, ev->fence, ev->fence);
    } else if (ev->kind == EVENT_QUEUED) {
        take(c, call->lock, 0, 0); /* it will not be told: the owner's name finds it */
    } else if (call->again) {
        must_have_held(c, "asked again and refused");
        hold_of(c)->used = false;
    }
    if (is_stale(ev) && !call->again && call->want.ttl_ms && !call->session && !call->shaken &&
        (c->w->now - call->invoked_ms) * 100 < call->want.ttl_ms * 80)
        sim_wrong(c->w, "I11",
                  "client %d was granted lock %d of %d, and that is over after %" PRIu64
                  " of %" PRIu64 " ms",
                  c->no, call->lock, call->ns, c->w->now - call->invoked_ms, call->want.ttl_ms);
    enum { ROUNDED_MS = 1 }; /* a clock of whole milliseconds that is 4 % ahead */
    uint64_t waited_ms = c->w->now - call->invoked_ms + ROUNDED_MS;
    if (ev->kind == EVENT_TIMEOUT && waited_ms * 100 < call->wait_ms * 80)
        sim_wrong(c->w, "I11", "client %d timed out after %" PRIu64 " of %" PRIu64 " ms", c->no,
                  c->w->now - call->invoked_ms, call->wait_ms);
}

static void released(struct sim_client *c, const struct event *ev)
{
    struct sim_call *call = &c->call;
    uint64_t must = 0;
    for (int i = 0; i < SIM_HOLDS; i++) {
        struct sim_hold *h = &c->holds[i];
        bool named = call->fence
                         ? i == call->hold
                         : h->used && strcmp(h->owner, call->want.owner) == 0 &&
                               h->lock >= call->lock && h->lock < call->lock + call->names;
        if (!named)
            continue;
        h->sure = call->was_sure && !call->shaken;
        must += promise_hold(c, h);
        promise_gone(c->w, h);
        h->used = false;
    }
    if (must && (ev->kind != EVENT_RELEASED || ev->count < must))
        sim_wrong(c->w, "I5",
                  "client %d gave back %" PRIu64 " of %" PRIu64
                  " holds on lock %d of %d (fence %" PRIu64 ")",
                  c->no, ev->count, must, call->lock, call->ns, call->fence);
}

/* RENEW, BODY: the hold goes on, or it is over. */
static void prolonged(struct sim_client *c, const struct event *ev)
{
    struct sim_hold *h = hold_of(c);
    if (ev->kind == EVENT_RENEWED || ev->kind == EVENT_BODY_SET) {
        h->since_ms = c->call.invoked_ms;
        h->ttl_ms = c->call.want.ttl_ms;
        h->sure = c->call.was_sure && !c->call.shaken;
    } else {
        must_have_held(c, "not prolonged");
        h->used = false;
    }
}

static void converted(struct sim_client *c, const struct event *ev)
{
    struct sim_hold *h = hold_of(c);
    if (ev->kind == EVENT_GRANTED) {
        renew_hold(c, ev);
    } else if (is_stale(ev) || (ev->kind == EVENT_REFUSED && ev->reason == REASON_LOST)) {
        must_have_held(c, "not converted");
        h->used = false;
    } else if (ev->kind == EVENT_FAILED || ev->kind == EVENT_LEFT) {
        h->used = false;
    } else {
        h->sure = c->call.was_sure && !c->call.shaken; /* as it was before */
    }
}

static void broken(struct sim_client *c)
{
    c->w->spaces[c->call.ns].locks[c->call.lock].breaking--;
}

/* --- sessions and namespaces --- */

static void session_opened(struct sim_client *c, const struct event *ev)
{
    struct sim_session *s = &c->session;
    if (ev->kind != EVENT_SESSION_OPENED) {
        sim_wrong(c->w, "I7", "client %d: session %" PRIu64 " is there already", c->no,
                  c->call.session);
        return;
    }
    s->number = c->call.session;
    s->sure = true;
    s->kept_ms = c->call.invoked_ms;
    sim_client_attached(c);
}

static void session_kept(struct sim_client *c, const struct event *ev)
{
    struct sim_session *s = &c->session;
    if (c->call.kind == OP_SESSION_DETACH) {
        if (s->linger_ms == 0)
            promise_forget_session(c); /* or what it had was over before */
        return; /* the linger runs: nothing is sure until it is attached again */
    }
    if (c->call.kind == OP_SESSION_KEEPALIVE && ev->count == 0 && promise_session(c))
        sim_wrong(c->w, "I11", "client %d: session %" PRIu64 " is not alive and must be", c->no,
                  s->number);
    if (c->call.kind == OP_SESSION_ATTACH) {
        s->sure = true;
        s->kept_ms = c->call.invoked_ms;
        sim_client_attached(c);
    }
}

static void session_closed(struct sim_client *c, const struct event *ev)
{
    struct sim_session *s = &c->session;
    s->sure = c->call.was_sure;
    if (ev->kind != EVENT_SESSION_ENDED && promise_session(c))
        sim_wrong(c->w, "I11", "client %d: session %" PRIu64 " was over too early", c->no,
                  s->number);
    /* With several groups, one that was over before may still be ending in a shard. */
    bool ended = ev->kind == EVENT_SESSION_ENDED || c->w->plan.groups == 1;
    for (int i = 0; i < SIM_HOLDS && ended; i++)
        if (c->holds[i].used && c->holds[i].session == s->number)
            promise_gone(c->w, &c->holds[i]);
    if (s->number < SIM_SESSIONS && ended)
        c->w->past.closed[s->number] = c->w->moment;
    promise_forget_session(c);
}

/* A session that was closed stays closed. */
static void poked(struct sim_client *c, const struct event *ev)
{
    uint64_t number = c->call.session;
    bool closed = number < SIM_SESSIONS && c->w->past.closed[number] &&
                  c->w->past.closed[number] < c->call.invoked;
    if (closed && ev->kind == EVENT_SESSION_KEPT && ev->count)
        sim_wrong(c->w, "I10", "client %d: session %" PRIu64 " was closed and lives", c->no,
                  number);
}

static bool anybody_must_hold(const struct sim_client *c)
{
    for (int i = 0; i < c->w->plan.clients; i++)
        for (int k = 0; k < SIM_HOLDS; k++) {
            const struct sim_hold *h = &c->w->clients[i].holds[k];
            if (h->ns == c->call.ns && h->told < c->call.invoked &&
                promise_hold(&c->w->clients[i], h))
                return true;
        }
    return false;
}

static void namespace_made(struct sim_client *c, const struct event *ev)
{
    struct sim_space *space = &c->w->spaces[c->call.ns];
    if (ev->kind == EVENT_NAMESPACE_CREATED)
        space->is_there = space->leaving == 0 && !c->call.shaken;
}

static void namespace_deleted(struct sim_client *c, const struct event *ev)
{
    c->w->spaces[c->call.ns].leaving--;
    if (c->call.again) { /* forced */
        c->w->spaces[c->call.ns].deleting--;
        return;
    }
    if (ev->kind == EVENT_NAMESPACE_DELETED && anybody_must_hold(c))
        sim_wrong(c->w, "I6", "client %d deleted namespace %d, and locks in it are held", c->no,
                  c->call.ns);
}

/* --- all of them --- */

static void session_answer(struct sim_client *c, const struct event *ev)
{
    if (c->call.session != c->session.number && c->call.kind != OP_SESSION_OPEN)
        poked(c, ev);
    else if (c->call.kind == OP_SESSION_OPEN)
        session_opened(c, ev);
    else if (c->call.kind == OP_SESSION_CLOSE)
        session_closed(c, ev);
    else if (ev->kind == EVENT_SESSION_KEPT)
        session_kept(c, ev);
}

static void lock_answer(struct sim_client *c, const struct event *ev)
{
    enum op_kind kind = c->call.kind;
    if (kind == OP_ACQUIRE)
        acquired(c, ev);
    else if (kind == OP_RELEASE)
        released(c, ev);
    else if (kind == OP_CONVERT)
        converted(c, ev);
    else if (kind == OP_BREAK)
        broken(c);
    else
        prolonged(c, ev);
}

static void read_answer(struct sim_client *c, const struct event *ev)
{
    c->w->n_reads++;
    if (ev->kind == EVENT_FAILED)
        return; /* no such namespace, no such session: the judge knows */
    if (c->call.kind == OP_CHECK)
        promise_check(c, ev);
    else if (c->call.kind == OP_SHOW || c->call.kind == OP_LIST)
        promise_rows(c, ev);
    else if (c->call.kind == OP_TABLE_SHOW)
        sim_deal_audit(c, ev);
}

static void told(struct sim_client *c, const struct event *ev)
{
    enum op_kind kind = c->call.kind;
    if (kind >= OP_ACQUIRE && kind <= OP_BREAK)
        lock_answer(c, ev);
    else if (kind >= OP_SESSION_OPEN && kind <= OP_SESSION_CLOSE)
        session_answer(c, ev);
    else if (kind == OP_NAMESPACE_CREATE)
        namespace_made(c, ev);
    else if (kind == OP_NAMESPACE_DELETE)
        namespace_deleted(c, ev);
    else if (kind == OP_TXN)
        sim_deal_answered(c, ev);
    else if (op_is_read(kind))
        read_answer(c, ev);
    session_named(c, ev);
    /* It may have gone and come back meanwhile. */
    bool must =
        c->call.ns == 0 || (c->call.in_space && c->call.goes == c->w->spaces[c->call.ns].goes);
    if (ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_NO_NAMESPACE && must && !c->call.stale)
        sim_wrong(c->w, "I29", "client %d: namespace %d is not there", c->no, c->call.ns);
}

/* What may have ended, has ended for all this client knows. */
void sim_answer_unknown(struct sim_client *c)
{
    struct sim_call *call = &c->call;
    bool ends = call->kind == OP_RELEASE || call->kind == OP_CONVERT || call->again ||
                call->deal == DEAL_UNLOCK;
    c->w->n_unknown++;
    if (call->told)
        return; /* it was answered before */
    if (ends && call->kind != OP_NAMESPACE_DELETE)
        for (int i = 0; i < SIM_HOLDS; i++)
            if (i == call->hold || strcmp(c->holds[i].owner, call->want.owner) == 0)
                c->holds[i].used = false;
    if (call->kind == OP_SESSION_CLOSE || call->kind == OP_SESSION_OPEN ||
        call->kind == OP_SESSION_DETACH)
        promise_forget_session(c);
    if (call->kind == OP_TXN && (call->deal == DEAL_FOUND || call->deal == DEAL_MOVE))
        c->session.bank = BANK_LOST;
}

/* It was promised that nothing has happened: then it is in no log. */
static void check_never(struct sim_client *c, const struct event *ev)
{
    bool is_void = c->w->nodes[c->call.node].is_old; /* its numbers were used before */
    if (slice_eq(ev->text, SLICE("no leader in time")) && !is_void &&
        judge_knows(c->w->judge, c->call.asker))
        sim_wrong(c->w, "I7", "client %d was told that nothing happened, and it did", c->no);
}

void sim_answer(struct ask *ask, const struct event *ev)
{
    struct sim_client *c =
        (struct sim_client *)(void *)((char *)ask - offsetof(struct sim_client, ask));
    struct sim_world *w = c->w;
    if (w->nodes[c->call.node].dying)
        return; /* its process has ended: nobody hears that */
    w->moment++;
    sim_mark(w, digest_event(ev));
    if (c->call.kind == OP_TICK) {
        sim_wrong(w, "answer", "client %d is answered twice", c->no);
        return;
    }
    if (ev->kind == EVENT_QUEUED && c->ask.stay)
        return; /* the outcome comes later */
    if (is_unknown(c, ev)) {
        check_never(c, ev);
        if (sim_again_lost(c))
            return;
        sim_answer_unknown(c);
    } else if (c->call.told) {
        sim_again_heard(c, ev);
    } else {
        w->n_acked++;
        told(c, ev);
        if (!w->wrong && sim_again_told(c, ev))
            return;
    }
    if (!w->wrong)
        sim_client_idle(c, think(w));
}
