/* sim_rules.c - what must hold in the order of the log, from ops and events alone.
 *
 * A small book of holds, waits and sessions is kept from the news; it knows nothing of how the
 * machine works. I1-I3: who is granted fits beside those who hold. I4: numbers rise. I5: a
 * fence ends its own hold only. I9: several names, all or none. I10: the end of a session
 * leaves nothing. I11: nothing ends before its end, by the time in the log and by that of the
 * world. I12: nobody is passed. I19: nobody who could go is left standing. I30: a request with
 * an id is carried out once, and whoever asks again is told the same. */
#include "base/hash.h"
#include "machine/receipt.h"
#include "machine/varint.h"
#include "sim_judge.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BOOK_MAX = 1024 };

struct book_hold {
    uint64_t lock, ns, who, session, fence, asker;
    uint64_t end_ms;        /* 0: none */
    uint64_t ttl_ms, asked; /* until that end; and when it was asked for, in the world */
    enum lock_mode mode;
    uint64_t permits, of, delay_ms;
};

struct book_wait {
    uint64_t lock, ns, who, session, ticket, asker;
    uint64_t deadline_ms;
    uint64_t wait_ms, asked;
    enum lock_mode mode;
    enum lock_policy policy;
    uint64_t permits, of, delay_ms;
    bool upgrade;
    bool has_id;
    bool by_id;          /* its connection is gone: it is known by its id alone */
    uint64_t known_ms;   /* when it came into the log, in the world */
    uint64_t away_until; /* its node is gone: so long it may come back; 0: it is there */
};

struct book_session {
    uint64_t id, ttl_ms, linger_ms, end_ms;
    char name[16];
};

struct book_closed {
    uint64_t lock, ns, until_ms;
};

struct rules {
    struct sim_world *w;
    const struct machine *machine; /* is asked only whether something is over, or due */
    size_t shard;
    uint64_t now_ms, top; /* top: the highest number given out */
    struct book_hold holds[BOOK_MAX];
    struct book_wait waits[BOOK_MAX]; /* in the order of their tickets */
    struct book_session sessions[BOOK_MAX];
    struct book_closed closed[BOOK_MAX];
    size_t n_holds, n_waits, n_sessions, n_closed;
    struct once *once;
    bool again, due; /* this step's op has been asked before; more is due behind it */
    struct {
        bool silent;
        uint64_t since_ms;
    } nodes[OP_NODES_MAX];
    uint64_t taken[SIM_GROUPS]; /* messages, by the group that wrote them */
    const struct op *op;        /* of this step */
};

struct rules *rules_open(struct sim_world *w, size_t shard, const struct machine *m)
{
    struct rules *r = mem_zalloc(sizeof *r);
    r->w = w;
    r->machine = m;
    r->shard = shard;
    r->once = once_open(w);
    return r;
}

void rules_close(struct rules *r)
{
    once_close(r->once);
    free(r);
}

static uint64_t id_of(struct slice a, struct slice b) /* 0: both empty */
{
    static const struct hash_key key = {11, 13};
    if (a.len + b.len == 0)
        return 0;
    return hash_bytes(&key, a.data, a.len) * 31 + (b.len ? hash_bytes(&key, b.data, b.len) : 0);
}

/* --- time --- */

enum { KNOWN_MS = 1200 }; /* so long after the end of a connection a leader has said so */
enum {
    FAST_CLOCK = 95,
    ROUNDING_MS = 2
}; /* per cent: the fastest clocks are 4 % ahead; those
    * that differ by 0.1 % only end nothing early */

/* When the client asked for what this step does; 0: nobody knows. */
static uint64_t asked_at(const struct rules *r)
{
    for (int i = 0; i < r->w->plan.clients; i++)
        if (r->op->asker && r->w->clients[i].ask.id == r->op->asker)
            return r->w->clients[i].call.invoked_ms;
    return 0;
}

/* Has the world really seen so much time pass? */
static void check_time(const struct rules *r, const char *what, uint64_t number, uint64_t asked,
                       uint64_t ms)
{
    uint64_t real = r->w->now - asked + ROUNDING_MS;
    uint64_t least = r->w->plan.clocks && !r->w->plan.fine ? FAST_CLOCK : 100;
    if (asked && real * 100 < ms * least)
        sim_wrong(r->w, "I11",
                  "op %" PRIu64 ": %s %" PRIu64 " ends %" PRIu64 " ms after it was asked for, "
                  "not %" PRIu64,
                  r->op->index, what, number, real, ms);
}

/* --- the book --- */

static struct book_hold *hold_by_fence(struct rules *r, uint64_t lock, uint64_t fence)
{
    for (size_t i = 0; i < r->n_holds; i++)
        if (r->holds[i].fence == fence && r->holds[i].lock == lock)
            return &r->holds[i];
    return NULL;
}

/* I38: the log says that its node is not heard, and it stays there. */
static bool is_passed(const struct rules *r, const struct book_wait *w)
{
    bool stays = w->asker && !(w->asker & OP_ASKER_LOOSE) && !w->by_id;
    return stays && r->nodes[op_node(w->asker)].silent;
}

static const struct sim_node *node_in(const struct sim_world *w, size_t place)
{
    for (uint64_t id = SIM_NODES; id > 0; id--) /* the newest one */
        if (sim_number(w, id) % OP_NODES_MAX == place)
            return &w->nodes[id];
    return NULL;
}

/* I38: its node is dead, and everybody knew when this was ordered: their connections with it
 * had ended, or, of those that were started since, it was silent for long; nobody was stopped. */
static void check_dead(const struct rules *r, const struct book_wait *w)
{
    const struct sim_world *world = r->w;
    const struct sim_node *n = node_in(world, op_node(w->asker));
    if (w->asker & OP_ASKER_LOOSE || w->by_id || world->plan.slow || world->plan.upgrade ||
        !n || n->order || !n->lost_ms)
        return;
    uint64_t known = n->lost_ms > w->known_ms ? n->lost_ms : w->known_ms;
    if (world->calm_ms > n->lost_ms)
        known = (known > world->calm_ms ? known : world->calm_ms) + ORDER_UNHEARD_MS;
    if (judge_stamped_at(world->judge, r->shard, r->op->now_ms) > known + KNOWN_MS)
        sim_wrong(r->w, "I38",
                  "op %" PRIu64 ": ticket %" PRIu64 " is granted, and node %" PRIu64 " is dead",
                  r->op->index, w->ticket, n->id);
}

static struct book_hold *hold_by_who(struct rules *r, uint64_t lock, uint64_t who)
{
    for (size_t i = 0; i < r->n_holds; i++)
        if (r->holds[i].who == who && r->holds[i].lock == lock)
            return &r->holds[i];
    return NULL;
}

static struct book_wait *wait_by_ticket(struct rules *r, uint64_t ticket)
{
    for (size_t i = 0; i < r->n_waits; i++)
        if (r->waits[i].ticket == ticket)
            return &r->waits[i];
    return NULL;
}

/* What is due may come in a later step. */
static bool in_parts(const struct rules *r)
{
    return r->w->plan.batch < MACHINE_EXPIRE_BATCH && r->due;
}

static struct book_session *session_by_id(struct rules *r, uint64_t id)
{
    for (size_t i = 0; i < r->n_sessions; i++)
        if (r->sessions[i].id == id)
            return &r->sessions[i];
    return NULL;
}

/* Nothing is held in a session that is over, though what it has may go in later steps. When that
 * is, the book does not know to the millisecond: asking again may have kept it. */
static bool is_over(const struct rules *r, uint64_t session)
{
    struct machine_session lives;
    for (size_t i = 0; session && i < r->n_sessions; i++)
        if (r->sessions[i].id == session)
            return !machine_session(r->machine, SLICE(""), slice_str(r->sessions[i].name),
                                    &lives);
    return false;
}

static void drop_hold(struct rules *r, struct book_hold *h)
{
    *h = r->holds[--r->n_holds];
}

static void drop_wait(struct rules *r, struct book_wait *w)
{
    size_t at = (size_t)(w - r->waits);
    memmove(w, w + 1, (--r->n_waits - at) * sizeof *w);
}

static bool is_closed(const struct rules *r, uint64_t lock)
{
    for (size_t i = 0; i < r->n_closed; i++)
        if (r->closed[i].lock == lock && r->closed[i].until_ms > r->now_ms)
            return true;
    return false;
}

static void close_lock(struct rules *r, const struct book_hold *h, uint64_t until_ms)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->n_closed; i++)
        if (r->closed[i].until_ms > r->now_ms)
            r->closed[kept++] = r->closed[i];
    r->n_closed = kept;
    BELAY_CHECK(r->n_closed < BOOK_MAX);
    r->closed[r->n_closed++] = (struct book_closed){h->lock, h->ns, until_ms};
}

/* --- grants --- */

static bool fits(const struct rules *r, uint64_t lock, uint64_t but, enum lock_mode mode,
                 uint64_t permits, uint64_t of)
{
    uint64_t used = 0;
    for (size_t i = 0; i < r->n_holds; i++) {
        const struct book_hold *h = &r->holds[i];
        if (h->lock != lock || h->who == but)
            continue;
        bool both_shared = h->mode == MODE_SHARED && mode == MODE_SHARED;
        bool both_semaphores = h->mode == MODE_SEMAPHORE && mode == MODE_SEMAPHORE;
        if (!both_shared && !(both_semaphores && (h->of == of || !h->of || !of)))
            return false;
        used += h->permits;
    }
    return mode != MODE_SEMAPHORE || of == 0 || used + permits <= of;
}

/* Does this one in the line keep a newcomer or a later one of that mode from going? */
static bool bars(const struct book_wait *w, enum lock_mode mode)
{
    bool lets_pass = w->mode == MODE_EXCLUSIVE && w->policy != POLICY_HARD && !w->upgrade;
    return !(lets_pass && mode == MODE_SHARED);
}

static void check_line(struct rules *r, const struct event *ev, const struct book_wait *mine,
                       uint64_t lock)
{
    for (size_t i = 0; i < r->n_waits; i++) {
        const struct book_wait *w = &r->waits[i];
        if (w->lock != lock || w == mine)
            continue;
        bool ahead = !mine || w->upgrade || w->ticket < mine->ticket;
        if (mine && mine->upgrade)
            ahead = false;
        if (ahead && bars(w, ev->mode) && !is_passed(r, w))
            sim_wrong(r->w, "I12", "op %" PRIu64 ": fence %" PRIu64 " passes ticket %" PRIu64,
                      r->op->index, ev->fence, w->ticket);
    }
}

static void granted(struct rules *r, const struct event *ev)
{
    struct book_hold h = {.lock = id_of(ev->ns, ev->name),
                          .ns = id_of(ev->ns, slice_of("", 0)),
                          .who = id_of(ev->owner, ev->session),
                          .session = id_of(ev->session, slice_of("", 0)),
                          .fence = ev->fence,
                          .asker = ev->asker,
                          .end_ms = ev->forever ? 0 : ev->at_ms + ev->expires_in_ms,
                          .ttl_ms = ev->expires_in_ms,
                          .asked = asked_at(r),
                          .mode = ev->mode,
                          .permits = ev->count};
    struct book_wait *w = ev->ticket ? wait_by_ticket(r, ev->ticket) : NULL;
    struct book_hold *old = hold_by_who(r, h.lock, h.who);
    bool by_op = r->op->kind == OP_ACQUIRE && !w;
    h.of = w ? w->of : by_op ? r->op->of : 0;
    h.delay_ms = w && !w->upgrade ? w->delay_ms : by_op ? r->op->delay_ms : 0;
    if (old && !by_op)
        h.delay_ms = old->delay_ms; /* converted */
    if (w)
        h.asker = w->asker; /* who did not stay is not told, but may be called off */
    if (by_op)
        h.asker = r->op->asker; /* of several names too: the last one only carries the answer */
    if (old && (by_op || old->mode == MODE_EXCLUSIVE || h.mode == MODE_SHARED))
        h.asker = 0; /* it had as much before: a cancel takes nothing away */
    if (ev->ticket && !w)
        sim_wrong(r->w, "I12", "op %" PRIu64 ": ticket %" PRIu64 " is granted and not in line",
                  r->op->index, ev->ticket);
    if (ev->fence <= r->top)
        sim_wrong(r->w, "I4", "op %" PRIu64 ": fence %" PRIu64 " after number %" PRIu64,
                  r->op->index, ev->fence, r->top);
    r->top = ev->fence;
    if (!fits(r, h.lock, h.who, h.mode, h.permits, h.of))
        sim_wrong(r->w,
                  h.mode == MODE_SEMAPHORE ? "I3"
                  : h.mode == MODE_SHARED  ? "I2"
                                           : "I1",
                  "op %" PRIu64 ": fence %" PRIu64 " does not fit beside the holders",
                  r->op->index, ev->fence);
    if (!old)
        check_line(r, ev, w, h.lock);
    if (h.session && !session_by_id(r, h.session))
        sim_wrong(r->w, "I10", "op %" PRIu64 ": a grant in a session that is over",
                  r->op->index);
    if (is_closed(r, h.lock) && !old)
        sim_wrong(r->w, "I1", "op %" PRIu64 ": a closed lock is granted", r->op->index);
    if (w && is_passed(r, w))
        sim_wrong(r->w, "I38",
                  "op %" PRIu64 ": ticket %" PRIu64 " is granted, and its node not heard",
                  r->op->index, ev->ticket);
    if (w)
        check_dead(r, w);
    if (w && w->away_until)
        sim_wrong(r->w, "I30",
                  "op %" PRIu64 ": ticket %" PRIu64 " is granted, and its node gone",
                  r->op->index, ev->ticket);
    if (w)
        drop_wait(r, w);
    if (old)
        drop_hold(r, old);
    BELAY_CHECK(r->n_holds < BOOK_MAX);
    r->holds[r->n_holds++] = h;
}

static void queued(struct rules *r, const struct event *ev)
{
    const struct op *op = r->op;
    struct book_wait *known = wait_by_ticket(r, ev->ticket);
    struct book_wait w = {.lock = id_of(ev->ns, ev->name),
                          .ns = id_of(ev->ns, slice_of("", 0)),
                          .who = id_of(ev->owner, ev->session),
                          .session = id_of(ev->session, slice_of("", 0)),
                          .ticket = ev->ticket,
                          .asker = op->asker,
                          .deadline_ms = ev->at_ms + op->wait_ms,
                          .wait_ms = op->wait_ms,
                          .asked = asked_at(r),
                          .mode = (enum lock_mode)op->mode,
                          .policy = (enum lock_policy)op->policy,
                          .permits = op->permits,
                          .of = op->of,
                          .delay_ms = op->delay_ms,
                          .upgrade = op->kind == OP_CONVERT,
                          .has_id = op->request.len > 0,
                          .known_ms = r->w->now};
    if (r->again && once_is_sure(r->once))
        sim_wrong(r->w, "I30",
                  "op %" PRIu64 " was asked before and waits anew, ticket %" PRIu64, op->index,
                  ev->ticket);
    if (known) {
        *known = w; /* taken over, in its place */
        return;
    }
    if (ev->ticket <= r->top)
        sim_wrong(r->w, "I4", "op %" PRIu64 ": ticket %" PRIu64 " after number %" PRIu64,
                  op->index, ev->ticket, r->top);
    r->top = ev->ticket;
    BELAY_CHECK(r->n_waits < BOOK_MAX);
    r->waits[r->n_waits++] = w;
}

/* --- ends --- */

static void hold_gone(struct rules *r, const struct event *ev)
{
    uint64_t lock = id_of(ev->ns, ev->name);
    struct book_hold *h = hold_by_fence(r, lock, ev->fence);
    if (!h) {
        sim_wrong(r->w, "I3", "op %" PRIu64 ": fence %" PRIu64 " ends and is not held",
                  r->op->index, ev->fence);
        return;
    }
    if (ev->kind == EVENT_EXPIRED && ev->reason == REASON_TTL &&
        (h->end_ms == 0 || ev->at_ms < h->end_ms))
        sim_wrong(r->w, "I11", "op %" PRIu64 ": fence %" PRIu64 " expires before its end",
                  r->op->index, ev->fence);
    if (ev->kind == EVENT_EXPIRED && ev->reason == REASON_TTL)
        check_time(r, "fence", ev->fence, h->asked, h->ttl_ms);
    if (ev->kind == EVENT_RELEASED && ev->reason == REASON_RELEASE &&
        r->op->kind == OP_RELEASE && r->op->fence && r->op->fence != ev->fence)
        sim_wrong(r->w, "I5", "op %" PRIu64 ": fence %" PRIu64 " is released by another one",
                  r->op->index, ev->fence);
    if (ev->reason == REASON_CANCEL && h->asker != r->op->target)
        sim_wrong(r->w, "I30",
                  "op %" PRIu64 ": fence %" PRIu64 " is called off by somebody else",
                  r->op->index, ev->fence);
    if (h->delay_ms && ev->kind != EVENT_RELEASED && ev->reason != REASON_NAMESPACE)
        close_lock(r, h, ev->at_ms + h->delay_ms);
    drop_hold(r, h);
}

static void wait_gone(struct rules *r, const struct event *ev)
{
    struct book_wait *w = wait_by_ticket(r, ev->ticket);
    if (!w) {
        sim_wrong(r->w, "I12", "op %" PRIu64 ": ticket %" PRIu64 " leaves and is not in line",
                  r->op->index, ev->ticket);
        return;
    }
    if (ev->kind == EVENT_TIMEOUT && ev->at_ms < w->deadline_ms)
        sim_wrong(r->w, "I11", "op %" PRIu64 ": ticket %" PRIu64 " times out too early",
                  r->op->index, ev->ticket);
    if (ev->kind == EVENT_TIMEOUT)
        check_time(r, "ticket", ev->ticket, w->asked, w->wait_ms);
    if (w->away_until && ev->reason == REASON_CANCEL && r->op->kind != OP_CANCEL &&
        ev->at_ms < w->away_until)
        sim_wrong(r->w, "I30", "op %" PRIu64 ": ticket %" PRIu64 " could still come back",
                  r->op->index, ev->ticket);
    if (w->by_id && ev->reason == REASON_CANCEL) /* known by its id alone: nobody is told */
        once_left(r->once, w->asker);
    drop_wait(r, w);
}

static void prolonged(struct rules *r, const struct event *ev)
{
    struct book_hold *h = hold_by_fence(r, id_of(ev->ns, ev->name), ev->fence);
    if (!h) {
        sim_wrong(r->w, "I5", "op %" PRIu64 ": fence %" PRIu64 " is renewed and not held",
                  r->op->index, ev->fence);
        return;
    }
    h->end_ms = ev->forever ? 0 : ev->at_ms + ev->expires_in_ms;
    if (ev->kind == EVENT_OVERDUE) {
        check_time(r, "fence", ev->fence, h->asked, h->ttl_ms);
        h->ttl_ms += ev->expires_in_ms;
    } else {
        h->ttl_ms = ev->expires_in_ms;
        h->asked = asked_at(r);
    }
}

static struct book_session *add_session(struct rules *r, struct slice id)
{
    struct book_session *s = &r->sessions[r->n_sessions++];
    BELAY_CHECK(r->n_sessions <= BOOK_MAX && id.len < sizeof s->name);
    *s = (struct book_session){.id = id_of(id, slice_of("", 0))};
    memcpy(s->name, id.data, id.len);
    return s;
}

static void session_opened(struct rules *r, const struct event *ev)
{
    struct book_session *s = add_session(r, ev->session);
    s->ttl_ms = r->op->ttl_ms;
    s->linger_ms = r->op->linger_ms;
    s->end_ms = ev->at_ms + r->op->ttl_ms;
}

static void session_ended(struct rules *r, const struct event *ev)
{
    uint64_t id = id_of(ev->session, slice_of("", 0));
    struct book_session *s = session_by_id(r, id);
    if (!s) {
        sim_wrong(r->w, "I10", "op %" PRIu64 ": a session ends twice", r->op->index);
        return;
    }
    if (ev->reason == REASON_TTL && ev->at_ms < s->end_ms)
        sim_wrong(r->w, "I11", "op %" PRIu64 ": a session ends %" PRIu64 " ms too early",
                  r->op->index, s->end_ms - ev->at_ms);
    for (size_t i = 0; i < r->n_holds; i++)
        if (r->holds[i].session == id)
            sim_wrong(r->w, "I10", "op %" PRIu64 ": fence %" PRIu64 " outlives its session",
                      r->op->index, r->holds[i].fence);
    for (size_t i = 0; i < r->n_waits; i++)
        if (r->waits[i].session == id)
            sim_wrong(r->w, "I10", "op %" PRIu64 ": ticket %" PRIu64 " outlives its session",
                      r->op->index, r->waits[i].ticket);
    *s = r->sessions[--r->n_sessions];
}

static void namespace_gone(struct rules *r, struct slice name)
{
    uint64_t ns = id_of(name, slice_of("", 0));
    for (size_t i = 0; i < r->n_closed; i++)
        if (r->closed[i].ns == ns)
            r->closed[i].until_ms = 0;
    for (size_t i = 0; i < r->n_holds; i++)
        if (r->holds[i].ns == ns)
            sim_wrong(r->w, "I10", "op %" PRIu64 ": fence %" PRIu64 " outlives its namespace",
                      r->op->index, r->holds[i].fence);
    for (size_t i = 0; i < r->n_waits; i++)
        if (r->waits[i].ns == ns)
            sim_wrong(r->w, "I10", "op %" PRIu64 ": ticket %" PRIu64 " outlives its namespace",
                      r->op->index, r->waits[i].ticket);
}

/* --- one step --- */

/* What was known is said once more, to another asker: a cancel of the one before, or of either
 * when both have been told of a grant, frees nothing. */
static void told_again(struct rules *r, const struct event *ev)
{
    struct book_hold *h = hold_by_fence(r, id_of(ev->ns, ev->name), ev->fence);
    struct book_wait *w = wait_by_ticket(r, ev->ticket);
    if (ev->kind == EVENT_GRANTED && h)
        h->asker = 0;
    if (ev->kind != EVENT_QUEUED)
        return;
    if (!w) {
        sim_wrong(r->w, "I30", "op %" PRIu64 ": ticket %" PRIu64 " is not in line",
                  r->op->index, ev->ticket);
        return;
    }
    w->asker = r->op->asker;
    w->away_until = 0;
    w->by_id = false;
    w->known_ms = r->w->now;
}

static void take_event(struct rules *r, const struct event *ev)
{
    if (r->again && !ev->news && (ev->asker == r->op->asker || ev->kind == EVENT_QUEUED)) {
        told_again(r, ev);
        return;
    }
    switch (ev->kind) {
    case EVENT_GRANTED:
        granted(r, ev);
        break;
    case EVENT_QUEUED:
        queued(r, ev);
        break;
    case EVENT_REFUSED:
    case EVENT_TIMEOUT:
    case EVENT_LEFT:
        if (ev->news && ev->ticket)
            wait_gone(r, ev);
        break;
    case EVENT_RELEASED:
    case EVENT_EXPIRED:
    case EVENT_BROKEN:
        if (ev->news)
            hold_gone(r, ev);
        break;
    case EVENT_RENEWED:
    case EVENT_BODY_SET:
    case EVENT_OVERDUE:
        prolonged(r, ev);
        break;
    case EVENT_SESSION_OPENED:
        session_opened(r, ev);
        break;
    case EVENT_SESSION_ENDED:
        if (ev->news || !ev->asker) /* else it is an answer that is kept until it is true */
            session_ended(r, ev);
        break;
    case EVENT_DEADLOCK:
    case EVENT_CHECKED:
    case EVENT_SESSION_KEPT:
    case EVENT_NAMESPACE_CREATED:
    case EVENT_NAMESPACE_UPDATED:
    case EVENT_NAMESPACE_DELETED:
    case EVENT_TXN:
    case EVENT_VARIABLE_EXPIRED:
    case EVENT_ROWS:
    case EVENT_FAILED:
    case EVENT_ACCOUNT_CREATED:
    case EVENT_ACCOUNT_UPDATED:
    case EVENT_ACCOUNT_DELETED:
    case EVENT_TOKEN_CREATED:
    case EVENT_TOKEN_ROTATED:
    case EVENT_TOKEN_REVOKED:
    case EVENT_TOKEN_USED:
    case EVENT_AUTH_RESET:
    case EVENT_KIND_COUNT:
        break;
    }
}

static void keep(struct rules *r, struct slice id)
{
    struct book_session *s = id.len ? session_by_id(r, id_of(id, slice_of("", 0))) : NULL;
    if (s && !is_over(r, s->id))
        s->end_ms = r->now_ms + s->ttl_ms;
}

/* Group 0: a shard has said for how long what was done there keeps it. */
static void keep_until(struct rules *r, struct slice id, uint64_t end_ms)
{
    struct book_session *s = session_by_id(r, id_of(id, slice_of("", 0)));
    if (s && s->end_ms < end_ms)
        s->end_ms = end_ms;
}

/* Whoever names a session keeps it; a connection that closes lets it linger. */
static void keep_sessions(struct rules *r, const struct event *events, size_t n)
{
    const struct op *op = r->op;
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == EVENT_FAILED && events[i].err == BELAY_ERR_NO_NAMESPACE)
            return;
    struct book_session *s = session_by_id(r, id_of(op->session, slice_of("", 0)));
    if (op->kind == OP_SESSION_DETACH) {
        if (s && n && events[n - 1].count)
            s->end_ms = r->now_ms + s->linger_ms;
        return;
    }
    if (op->kind == OP_CANCEL || r->again)
        return;
    keep(r, op->session);
    for (size_t i = 0; op->kind == OP_SESSION_KEEPALIVE && i < op->more.n; i++)
        keep(r, op->more.items[i]);
}

static void guest_comes(struct rules *r, struct slice session)
{
    if (!session_by_id(r, id_of(session, slice_of("", 0))))
        (void)add_session(r, session);
}

/* A session that is used in a shard is known there by a message of group 0; by another one,
 * group 0 hears how long it is. Its end is in the news of the same step: who comes, comes
 * before. */
static void take_messages(struct rules *r, bool before)
{
    struct reader in = {.left = r->op->program};
    struct arena a = {0};
    if (r->op->kind != OP_MESSAGES || r->op->target >= SIM_GROUPS)
        return;
    uint64_t taken = r->taken[r->op->target];
    for (uint64_t number = r->op->fence; in.left.len > 0; number++) {
        struct op message;
        struct slice bytes = reader_bytes(&in);
        if (number != taken + 1 || op_decode(bytes, &a, &message) != BELAY_OK)
            continue;
        taken = number;
        if (before && message.kind == OP_SESSION_OPEN)
            guest_comes(r, message.session);
        if (!before && message.kind == OP_SESSION_KEEPALIVE)
            keep_until(r, message.session, r->now_ms + message.ttl_ms);
        if (!before && message.kind == OP_SESSION_ENROL)
            keep(r, message.session);
    }
    if (!before)
        r->taken[r->op->target] = taken;
    arena_done(&a);
}

/* I9: as many grants as names, or none. */
static void check_several(const struct rules *r, const struct event *events, size_t n)
{
    const struct op *op = r->op;
    if (op->kind != OP_ACQUIRE || op->more.n == 0)
        return;
    size_t granted = 0;
    for (size_t i = 0; i < n; i++)
        granted += events[i].kind == EVENT_GRANTED && slice_eq(events[i].owner, op->owner);
    if (granted && granted != 1 + op->more.n)
        sim_wrong(r->w, "I9", "op %" PRIu64 ": %zu of %zu names are granted", op->index,
                  granted, 1 + op->more.n);
}

bool rules_holds(const struct rules *r, const struct op *op, uint64_t fence)
{
    uint64_t lock = id_of(op->ns, op->name);
    for (size_t i = 0; i < r->n_holds; i++) {
        const struct book_hold *h = &r->holds[i];
        if (h->lock == lock && h->fence == fence)
            return (h->end_ms == 0 || h->end_ms > r->now_ms) && !is_over(r, h->session);
    }
    return false;
}

/* Who has cancelled stands in no line and holds nothing of it. Who has an id and did not go by
 * itself keeps its place for a while, and what it was granted. */
static void check_cancel(struct rules *r)
{
    const struct op *op = r->op;
    if (op->kind != OP_CANCEL)
        return;
    bool run = op->name.len == 0 && op->session.len == 0;
    bool stays = run || op->flags & OP_AWAY;
    once_cancel(r->once, r, op);
    if (run)
        once_away(r->once, op->target);
    for (size_t i = 0; i < r->n_waits; i++) {
        struct book_wait *w = &r->waits[i];
        bool gone = run ? once_dead_run(w->asker, op->target) : w->asker == op->target;
        if (!w->asker || !gone || is_over(r, w->session))
            continue;
        if (!stays || !w->has_id)
            sim_wrong(r->w, "I12", "op %" PRIu64 ": asker %" PRIx64 " is gone and waits",
                      op->index, w->asker);
        w->by_id |= !run && op->fence;
        if (stays && w->has_id && !w->away_until)
            w->away_until = RECEIPT_RETURN_MS + (run && r->nodes[op_node(op->target)].silent
                                                     ? r->nodes[op_node(op->target)].since_ms
                                                     : r->now_ms);
    }
    if (run)
        r->nodes[op_node(op->target)].silent = false;
    for (size_t i = 0; !(stays && (run || op->request.len)) && i < r->n_holds; i++)
        if (r->holds[i].asker == op->target && !is_over(r, r->holds[i].session))
            sim_wrong(r->w, "I12", "op %" PRIu64 ": asker %" PRIx64 " is gone and holds",
                      op->index, op->target);
}

/* I30: who does not come back leaves the line. */
static void check_away(const struct rules *r)
{
    for (size_t i = 0; i < r->n_waits && !in_parts(r); i++)
        if (r->waits[i].away_until && r->now_ms >= r->waits[i].away_until)
            sim_wrong(r->w, "I30", "op %" PRIu64 ": ticket %" PRIu64 " has not come back",
                      r->op->index, r->waits[i].ticket);
}

static bool could_go(const struct rules *r, const struct book_wait *w, bool only_shared)
{
    if (w->policy == POLICY_TIMED || w->away_until || is_passed(r, w))
        return false; /* when it is quiet is not in the news; nobody may be there */
    if (w->upgrade)
        return fits(r, w->lock, w->who, MODE_EXCLUSIVE, 0, 0);
    return fits(r, w->lock, 0, w->mode, w->permits, w->of) &&
           (w->mode == MODE_SHARED || !only_shared);
}

static const struct book_wait *upgrade_on(const struct rules *r, uint64_t lock)
{
    for (size_t i = 0; i < r->n_waits; i++)
        if (r->waits[i].upgrade && r->waits[i].lock == lock)
            return &r->waits[i];
    return NULL;
}

/* I19: the line of this waiter's lock, down to itself. */
static void check_waiter(const struct rules *r, const struct book_wait *mine)
{
    const struct book_wait *upgrade = upgrade_on(r, mine->lock);
    bool only_shared = false;
    bool waits_for_upgrade = upgrade && upgrade != mine && !is_passed(r, upgrade);
    if (in_parts(r) || is_closed(r, mine->lock) || waits_for_upgrade)
        return;
    for (const struct book_wait *w = r->waits; w < mine && !mine->upgrade; w++) {
        if (w->lock != mine->lock || is_passed(r, w))
            continue;
        if (bars(w, MODE_SHARED))
            return;
        only_shared = true;
    }
    if (could_go(r, mine, only_shared))
        sim_wrong(r->w, "I19", "op %" PRIu64 ": ticket %" PRIu64 " could go and is left",
                  r->op->index, mine->ticket);
}

static void hear_node(struct rules *r, const struct op *op)
{
    size_t node = op_node(op->target);
    bool silent = op->flags & OP_AWAY;
    if (silent && !r->nodes[node].silent)
        r->nodes[node].since_ms = r->now_ms;
    r->nodes[node].silent = silent;
}

void rules_step(struct rules *r, const struct op *op, const struct event *events, size_t n)
{
    r->op = op;
    r->due = machine_due(r->machine) <= machine_now(r->machine);
    if (op->now_ms > r->now_ms)
        r->now_ms = op->now_ms;
    if (op->kind == OP_NODE)
        hear_node(r, op);
    r->again = once_begin(r->once, op);
    take_messages(r, true);
    for (size_t i = 0; i < n; i++)
        take_event(r, &events[i]);
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == EVENT_NAMESPACE_DELETED && !r->again)
            namespace_gone(r, events[i].ns);
    once_end(r->once, r, op, events, n);
    keep_sessions(r, events, n);
    take_messages(r, false);
    check_several(r, events, n);
    check_cancel(r);
    check_away(r);
    for (size_t i = 0; i < r->n_waits; i++)
        check_waiter(r, &r->waits[i]);
}
