/* session.c - sessions: everything acquired in one goes with it, in one step. */
#include "base/check.h"
#include "base/mem.h"
#include "machine/state.h"

#include <stdlib.h>

static bool same_id(struct map_node *node, const void *key)
{
    const struct slice *id = key;
    return slice_eq(session_id(map_item(node, const struct session, by_id)), *id);
}

struct session *session_find(const struct machine *m, struct slice id)
{
    struct map_node *n =
        map_find(&m->sessions, hash_bytes(&m->key, id.data, id.len), same_id, &id);
    return n ? map_item(n, struct session, by_id) : NULL;
}

struct session *session_add(struct machine *m, struct slice id, uint64_t number)
{
    BELAY_CHECK(id.len > 0 && id.len <= LIMIT_SESSION_BYTES);
    struct session *s = mem_alloc(sizeof *s + id.len);
    *s = (struct session){.id_len = id.len, .end = {.seq = number, .tag = END_SESSION}};
    memcpy(s->id, id.data, id.len);
    list_init(&s->holds);
    list_init(&s->waits);
    list_init(&s->records);
    list_init(&s->parked);
    list_push_back(&m->session_list, &s->in_machine);
    map_add(&m->sessions, &s->by_id, hash_bytes(&m->key, id.data, id.len));
    return s;
}

void session_describe(struct session *s, struct slice description)
{
    free(s->description);
    s->description = description.len ? mem_dup(description.data, description.len) : NULL;
    s->description_len = description.len;
}

void session_free(struct machine *m, struct session *s)
{
    BELAY_CHECK(s->n_items == 0 && s->n_records == 0);
    BELAY_CHECK(list_empty(&s->parked));
    heap_remove(&m->ends, &s->end);
    list_remove(&s->in_machine);
    map_remove(&m->sessions, &s->by_id);
    free(s->description);
    free(s);
}

/* In a shard it is noted only: group 0 asks when it thinks that the end has come. If the answer
 * was then that it is not used, it may be over by now, and is enrolled again; until that is
 * done, whoever uses it hears nothing (engine/post.c). */
void session_keep(struct machine *m, struct session *s)
{
    if (s->guest == GUEST_NOT) {
        heap_set(&m->ends, &s->end, m->now_ms + s->ttl_ms);
        return;
    }
    s->kept_ms = m->now_ms + s->ttl_ms;
    if (s->guest != GUEST_SILENT)
        return;
    struct op letter = {.kind = OP_SESSION_ENROL, .session = session_id(s), .target = m->group};
    mail_post(m, 0, &letter);
    s->guest = GUEST_ENROLS;
}

static void tell_shards(struct machine *m, uint64_t shards, const struct op *letter)
{
    for (unsigned g = 1; g < m->n_groups; g++)
        if (shards & group_bit(m, g))
            mail_post(m, g, letter);
}

static struct event *session_news(const struct machine *m, const struct session *s,
                                  enum event_kind kind, uint64_t asker, struct effects *fx)
{
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->asker = asker;
    ev->at_ms = m->now_ms;
    ev->session = arena_copy(&fx->arena, session_id(s));
    ev->expires_in_ms = s->end.at > m->now_ms ? s->end.at - m->now_ms : 0;
    return ev;
}

/* Before anything else goes: a parked transaction of this session must not see it half gone. */
static void end_parked(struct machine *m, struct session *s, struct effects *fx)
{
    list_each_safe(it, &s->parked)
        parked_leave(m, list_item(it, struct parked, in_session), TXN_ERROR, CAUSE_SESSION, fx);
}

static void end_records(struct machine *m, struct session *s)
{
    while (!list_empty(&s->records)) {
        struct record *r = list_item(s->records.next, struct record, in_session);
        struct slot *slot = r->slot;
        record_remove(m, r);
        slot_drop_if_idle(m, slot);
    }
}

/* Holds and waits end in the order of their numbers; only then are the lines served, so none of
 * this session's waits can be granted a lock that it has just lost. */
void session_end(struct machine *m, struct session *s, enum reason reason, uint64_t asker,
                 struct effects *fx)
{
    uint64_t n = s->n_items + s->n_records;
    end_parked(m, s, fx);
    end_records(m, s);
    bool closed = reason == REASON_RELEASE;
    while (s->n_items) {
        struct hold *h = NULL;
        struct wait *w = NULL;
        if (!list_empty(&s->holds))
            h = list_item(s->holds.next, struct hold, in_session);
        if (!list_empty(&s->waits))
            w = list_item(s->waits.next, struct wait, in_session);
        if (h && (!w || hold_fence(h) < w->end.seq))
            hold_end(m, h, closed ? EVENT_RELEASED : EVENT_EXPIRED, REASON_SESSION, fx);
        else
            wait_end(m, w, EVENT_LEFT, REASON_SESSION, fx);
    }
    struct event *ev = session_news(m, s, EVENT_SESSION_ENDED, asker, fx);
    ev->reason = reason;
    ev->count = n;
    ev->expires_in_ms = 0;
    ev->news = s->guest == GUEST_NOT;
    ev->posted = s->enrolled;
    struct op letter = {
        .kind = OP_SESSION_CLOSE, .session = ev->session, .flags = closed ? 0 : OP_FORCE};
    tell_shards(m, s->enrolled, &letter);
    session_free(m, s);
}

/* Group 0 knows only of the uses it has seen itself. The shards say how long theirs keep it; it
 * ends when all have said that they do not. Meanwhile it has no end: late perhaps, never early.
 */
void session_expire(struct machine *m, struct session *s, struct effects *fx)
{
    if (s->enrolled == 0) {
        session_end(m, s, REASON_TTL, 0, fx);
        return;
    }
    struct op letter = {.kind = OP_SESSION_KEEPALIVE, .session = session_id(s)};
    tell_shards(m, s->enrolled & ~s->asked, &letter);
    s->asked = s->enrolled;
    heap_remove(&m->ends, &s->end);
}

struct session *session_of(struct machine *m, const struct op *op, bool *ret_ok,
                           struct effects *fx)
{
    *ret_ok = true;
    if (op->session.len == 0)
        return NULL;
    struct session *s = session_find(m, op->session);
    if (s && !session_over(s, m->now_ms)) {
        session_keep(m, s);
        return s;
    }
    *ret_ok = false;
    request_failed(op, BELAY_ERR_NO_SESSION, "no such session, or it has ended", fx);
    return NULL;
}

void session_open(struct machine *m, const struct op *op, struct effects *fx)
{
    if (session_find(m, op->session)) {
        request_failed(op, BELAY_ERR_EXISTS, "a session with this id lives", fx);
        return;
    }
    if (m->sessions.count >= LIMIT_SESSIONS) {
        request_failed(op, BELAY_ERR_LIMIT, "there are LIMIT_SESSIONS (1000000) sessions", fx);
        return;
    }
    struct session *s = session_add(m, op->session, ++m->counter);
    s->ttl_ms = (uint32_t)op->ttl_ms;
    s->linger_ms = (uint32_t)op->linger_ms;
    s->target = op->target;
    session_describe(s, op->text);
    session_keep(m, s);
    session_news(m, s, EVENT_SESSION_OPENED, op->asker, fx);
}

void session_attach(struct machine *m, const struct op *op, struct effects *fx)
{
    bool ok;
    struct session *s = session_of(m, op, &ok, fx);
    if (!s)
        return;
    s->target = op->target;
    struct event *ev = session_news(m, s, EVENT_SESSION_KEPT, op->asker, fx);
    ev->news = false;
    ev->count = 1;
}

void session_detach(struct machine *m, const struct op *op, struct effects *fx)
{
    struct session *s = session_find(m, op->session);
    bool mine = s && s->target == op->target && !session_over(s, m->now_ms);
    uint64_t posted = mine ? s->enrolled : 0;
    if (mine && s->linger_ms == 0) {
        session_end(m, s, REASON_SESSION, 0, fx);
    } else if (mine) {
        s->target = 0;
        heap_set(&m->ends, &s->end, m->now_ms + s->linger_ms);
        struct op letter = {
            .kind = OP_SESSION_DETACH, .session = op->session, .target = op->target};
        tell_shards(m, s->enrolled, &letter);
    }
    struct event *ev = effects_add(fx, EVENT_SESSION_KEPT);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->session = arena_copy(&fx->arena, op->session);
    ev->count = mine;
    ev->posted = posted;
}

void session_keepalive(struct machine *m, const struct op *op, struct effects *fx)
{
    uint64_t alive = 0;
    for (size_t i = 0; i <= op->more.n; i++) {
        struct slice id = i == 0 ? op->session : op->more.items[i - 1];
        struct session *s = id.len ? session_find(m, id) : NULL;
        if (!s || session_over(s, m->now_ms))
            continue;
        session_keep(m, s);
        alive++;
    }
    struct event *ev = effects_add(fx, EVENT_SESSION_KEPT);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->session = arena_copy(&fx->arena, op->session);
    ev->count = alive;
}

void session_close(struct machine *m, const struct op *op, struct effects *fx)
{
    struct session *s = session_find(m, op->session);
    if (!s || session_over(s, m->now_ms))
        request_failed(op, BELAY_ERR_NO_SESSION, "no such session, or it has ended", fx);
    else
        session_end(m, s, REASON_RELEASE, op->asker, fx);
}

/* The shard may use it until it is asked or told otherwise. */
static void invite(struct machine *m, struct session *s, uint64_t shard)
{
    struct op letter = {
        .kind = OP_SESSION_OPEN,
        .session = session_id(s),
        .ttl_ms = s->ttl_ms,
        .text = slice_of(s->description, s->description_len),
    };
    mail_post(m, (unsigned)shard, &letter);
    s->enrolled |= group_bit(m, shard);
}

void session_enrol(struct machine *m, const struct op *op, struct effects *fx)
{
    bool ok;
    uint64_t bit = group_bit(m, op->target);
    struct session *s = session_of(m, op, &ok, fx);
    if (!s)
        return;
    if (bit == 0) {
        request_failed(op, BELAY_ERR_RANGE, "no such shard", fx);
        return;
    }
    if (mail_is_full(m, (unsigned)op->target)) {
        request_failed(op, BELAY_ERR_UNAVAILABLE, "the shard does not answer", fx);
        return;
    }
    if (!(s->enrolled & bit))
        invite(m, s, op->target);
    struct event *ev = session_news(m, s, EVENT_SESSION_KEPT, op->asker, fx);
    ev->news = false;
    ev->count = 1;
    ev->posted = bit;
}

/* --- the same session in a shard --- */

void guest_comes(struct machine *m, const struct op *letter)
{
    struct session *s = session_find(m, letter->session);
    if (!s) {
        s = session_add(m, letter->session, ++m->counter);
        s->ttl_ms = (uint32_t)letter->ttl_ms;
        s->kept_ms = m->now_ms;
        session_describe(s, letter->text);
    }
    s->guest = GUEST_SURE;
}

static struct session *guest_of(const struct machine *m, const struct op *letter)
{
    struct session *s = session_find(m, letter->session);
    return s && s->guest != GUEST_NOT ? s : NULL;
}

void guest_goes(struct machine *m, const struct op *letter, struct effects *fx)
{
    struct session *s = guest_of(m, letter);
    if (s)
        session_end(m, s, letter->flags & OP_FORCE ? REASON_SESSION : REASON_RELEASE, 0, fx);
}

/* Its connection is gone: only what is done from now on keeps it longer than it lingers. */
void guest_lingers(struct machine *m, const struct op *letter)
{
    struct session *s = guest_of(m, letter);
    if (s)
        s->kept_ms = m->now_ms;
}

void guest_asked(struct machine *m, const struct op *letter)
{
    struct session *s = guest_of(m, letter);
    if (!s)
        return;
    struct op answer = {.kind = OP_SESSION_KEEPALIVE, .session = letter->session};
    if (s->kept_ms > m->now_ms)
        answer.ttl_ms = s->kept_ms - m->now_ms;
    else if (s->guest == GUEST_SURE)
        s->guest = GUEST_SILENT;
    mail_post(m, 0, &answer);
}

void guest_answered(struct machine *m, const struct op *letter, uint64_t shard,
                    struct effects *fx)
{
    struct session *s = session_find(m, letter->session);
    if (!s || s->guest != GUEST_NOT)
        return;
    uint64_t end = m->now_ms + letter->ttl_ms;
    s->asked &= ~group_bit(m, shard);
    if (letter->ttl_ms && (s->end.pos == 0 || s->end.at < end))
        heap_set(&m->ends, &s->end, end);
    if (!s->asked && s->end.pos == 0)
        session_end(m, s, REASON_TTL, 0, fx);
}

void guest_enrols(struct machine *m, const struct op *letter, uint64_t shard)
{
    struct session *s = session_find(m, letter->session);
    if (!s || s->guest != GUEST_NOT || group_bit(m, shard) == 0)
        return; /* it has ended, and a letter that says so is on its way */
    session_keep(m, s);
    invite(m, s, shard);
}
