/* session.c - sessions: everything acquired in one goes with it.
 *
 * Nothing is granted in a session that ends, nor is anything done in it: from the step in which
 * its end begins nobody finds it. What it has then goes in parts, for a step does bounded work.
 * Until its part comes, a hold keeps others out, and a record is not seen any more. */
#include "machine/session.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/outbox.h"
#include "machine/request.h"
#include "machine/session_level0.h"
#include "machine/sound.h"
#include "machine/table.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

/* A session is known by its id within its account. */
struct session_key {
    struct slice account, id;
    bool ending;
};

static struct session_key key_of(struct slice account, struct slice id)
{
    bool is_default = slice_eq(account, SLICE("default"));
    return (struct session_key){is_default ? slice_of("", 0) : account, id, false};
}

static bool same_key(struct map_node *node, const void *key)
{
    const struct session *s = map_item(node, const struct session, by_id);
    const struct session_key *k = key;
    return slice_eq(session_id(s), k->id) && slice_eq(session_account(s), k->account) &&
           (s->ending != REASON_NONE) == k->ending;
}

static uint64_t hash_key(const struct machine *m, struct session_key k)
{
    uint64_t h = hash_bytes(&m->key, k.id.data, k.id.len);
    return k.account.len ? h ^ hash_bytes(&m->key, k.account.data, k.account.len) : h;
}

struct session *session_find(const struct machine *m, struct slice account, struct slice id)
{
    struct session_key key = key_of(account, id);
    struct map_node *n = map_find(&m->sessions, hash_key(m, key), same_key, &key);
    BELAY_DCHECK(!n || map_item(n, struct session, by_id)->ending == REASON_NONE);
    return n ? map_item(n, struct session, by_id) : NULL;
}

bool machine_session_ends(const struct machine *m, struct slice account, struct slice id)
{
    struct session_key key = key_of(account, id);
    key.ending = true;
    return map_find(&m->sessions, hash_key(m, key), same_key, &key) != NULL;
}

struct session *session_add(struct machine *m, struct slice account, struct slice id,
                            uint64_t number)
{
    BELAY_CHECK(number > 0 && number <= m->counter);
    BELAY_CHECK(id.len > 0 && id.len <= LIMIT_SESSION_BYTES);
    struct session_key key = key_of(account, id);
    BELAY_DCHECK(key.account.len <= LIMIT_ACCOUNT_BYTES);
    struct session *s = mem_alloc(sizeof *s + id.len + key.account.len);
    *s = (struct session){.id_len = id.len,
                          .account_len = key.account.len,
                          .end = {.seq = number, .tag = END_SESSION}};
    (void)slice_put(slice_put(s->bytes, id), key.account);
    list_init(&s->holds);
    list_init(&s->waits);
    list_init(&s->records);
    list_init(&s->parked);
    list_push_back(&m->session_list, &s->in_machine);
    map_add(&m->sessions, &s->by_id, hash_key(m, key));
    return s;
}

void session_count(struct session *s, struct account *a)
{
    BELAY_CHECK(!s->account && s->guest == GUEST_NOT);
    s->account = a;
    if (a)
        a->used[QUOTA_SESSIONS]++;
}

void session_describe(struct session *s, struct slice description)
{
    BELAY_DCHECK(description.len <= LIMIT_DESCRIPTION_BYTES);
    free(s->description);
    s->description = description.len ? mem_dup(description.data, description.len) : NULL;
    s->description_len = description.len;
}

void session_free(struct machine *m, struct session *s)
{
    BELAY_CHECK(s->n_items == 0 && s->n_records == 0);
    BELAY_CHECK(list_empty(&s->parked));
    BELAY_DCHECK(list_empty(&s->holds) && list_empty(&s->waits) && list_empty(&s->records));
    heap_remove(&m->ends, &s->end);
    list_remove(&s->in_machine);
    map_remove(&m->sessions, &s->by_id);
    if (s->account) {
        BELAY_CHECK(s->account->used[QUOTA_SESSIONS] > 0);
        s->account->used[QUOTA_SESSIONS]--;
        account_left(m, s->account);
    }
    free(s->description);
    free(s);
}

/* Nodes that had a session kept a moment ago use it in shards without asking again
 * (engine/router.c), and its user counts on the whole time to live from then on. So with
 * several groups it is kept for a quarter longer. */
void session_keep(struct machine *m, struct session *s)
{
    BELAY_CHECK(s->ttl_ms > 0 || s->guest != GUEST_NOT);
    bool several = m->n_groups > 1 && m->level >= LEVEL_KEEP_FIRST;
    if (s->guest == GUEST_NOT)
        heap_set(&m->ends, &s->end, m->now_ms + s->ttl_ms + (several ? s->ttl_ms / 4 : 0));
    else if (m->level < LEVEL_KEEP_FIRST)
        old_guest_used(m, s);
}

/* Keeps it for every node that may use it in a shard without asking again: a connection that
 * closes then does not make it end earlier. The node of the connection that it is attached to
 * knows when that closes. */
static void keep_for_all(struct machine *m, struct session *s)
{
    session_keep(m, s);
    if (m->n_groups > 1 && m->level >= LEVEL_KEEP_FIRST && s->target == 0) {
        BELAY_DCHECK(s->end.pos || s->guest != GUEST_NOT);
        s->owed_ms = s->end.at;
    }
}

void session_tell(struct machine *m, uint64_t shards, const struct op *message)
{
    BELAY_CHECK(message->session.len > 0);
    for (unsigned g = 1; g < m->n_groups; g++)
        if (shards & group_bit(m, g))
            outbox_post(m, g, message);
}

static struct event *session_news(const struct machine *m, const struct session *s,
                                  enum event_kind kind, uint64_t asker, struct effects *fx)
{
    BELAY_DCHECK(s->end.seq > 0 && s->id_len > 0);
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->asker = asker;
    ev->at_ms = m->now_ms;
    ev->account = arena_copy(&fx->arena, or_default(session_account(s)));
    ev->session = arena_copy(&fx->arena, session_id(s));
    ev->expires_in_ms = s->ttl_ms; /* it has just been kept */
    return ev;
}

static void end_record(struct machine *m, struct session *s)
{
    struct record *r = list_item(s->records.next, struct record, in_session);
    BELAY_CHECK(r->session == s);
    struct slot *slot = r->slot;
    record_remove(m, r);
    slot_drop_if_idle(m, slot);
}

/* The hold or wait with the lowest number. */
static void end_item(struct machine *m, struct session *s, struct effects *fx)
{
    struct hold *h = NULL;
    struct wait *w = NULL;
    if (!list_empty(&s->holds))
        h = list_item(s->holds.next, struct hold, in_session);
    if (!list_empty(&s->waits))
        w = list_item(s->waits.next, struct wait, in_session);
    BELAY_DCHECK(h || w);
    bool closed = s->ending == REASON_RELEASE;
    if (h && (!w || hold_fence(h) < w->end.seq))
        hold_end(m, h, closed ? EVENT_RELEASED : EVENT_EXPIRED, REASON_SESSION, fx);
    else
        wait_end(m, w, EVENT_LEFT, REASON_SESSION, fx);
}

/* Ends so much of what it has, in the order of their numbers; what that cost. Transactions that
 * wait go first, and then records: no transaction of this session may see it half gone. */
static uint64_t end_part(struct machine *m, struct session *s, uint64_t most,
                         struct effects *fx)
{
    BELAY_DCHECK(session_is_sound(s) && s->ending != REASON_NONE);
    uint64_t units = 0;
    for (; units < most && !list_empty(&s->parked); units += LINE_GRANT_UNITS)
        parked_leave(m, list_item(s->parked.next, struct parked, in_session), TXN_ERROR,
                     CAUSE_SESSION, fx);
    for (; units < most && !list_empty(&s->records); units++)
        end_record(m, s);
    for (; units < most && s->n_items; units++)
        end_item(m, s, fx);
    return units;
}

static bool has_nothing(const struct session *s)
{
    BELAY_DCHECK(s->n_holds <= s->n_items);
    return s->n_items == 0 && s->n_records == 0 && list_empty(&s->parked);
}

/* From here on it is over, whatever it still has. */
static void begin_end(struct machine *m, struct session *s, enum reason reason)
{
    BELAY_CHECK(s->ending == REASON_NONE && reason != REASON_NONE);
    struct op message = {.kind = OP_SESSION_CLOSE,
                         .account = session_account(s),
                         .session = session_id(s),
                         .flags = reason == REASON_RELEASE ? 0 : OP_FORCE};
    session_tell(m, s->enrolled, &message);
    s->ending = reason;
    s->n_at_end = s->n_items + s->n_records;
    s->enrolled = s->asked = s->kept_ms = 0;
    if (!over(&s->end, m->now_ms))
        heap_set(&m->ends, &s->end, m->now_ms); /* what is left goes when its turn comes */
}

static struct event *tell_end(const struct machine *m, const struct session *s, uint64_t asker,
                              struct effects *fx)
{
    BELAY_DCHECK(s->ending != REASON_NONE);
    struct event *ev = session_news(m, s, EVENT_SESSION_ENDED, asker, fx);
    ev->reason = s->ending;
    ev->count = s->n_at_end;
    ev->expires_in_ms = 0;
    ev->news = has_nothing(s) && s->guest == GUEST_NOT;
    return ev;
}

/* Only when this step is over are the lines served, so none of this session's waits can be
 * granted a lock that it has just lost. Whoever asked is answered at once; the engine keeps the
 * answer until nothing is left (engine/router.c). */
void session_end(struct machine *m, struct session *s, enum reason reason, uint64_t asker,
                 struct effects *fx)
{
    uint64_t posted = s->enrolled;
    begin_end(m, s, reason);
    uint64_t units = end_part(m, s, m->level >= LEVEL_PARTS ? m->end_units : NEVER, fx);
    m->end_units -= units < m->end_units ? units : m->end_units;
    bool done = has_nothing(s);
    BELAY_DCHECK(done || m->level >= LEVEL_PARTS); /* else it goes as a whole */
    if (done || asker)
        tell_end(m, s, asker, fx)->posted = posted;
    if (done)
        session_free(m, s);
}

uint64_t session_expire(struct machine *m, struct session *s, uint64_t budget,
                        struct effects *fx)
{
    BELAY_DCHECK(over(&s->end, m->now_ms));
    uint64_t all = s->n_items + s->n_records;
    if (s->enrolled && m->level < LEVEL_KEEP_FIRST) {
        old_ask(m, s);
        return 1 + all;
    }
    if (s->ending == REASON_NONE)
        begin_end(m, s, REASON_TTL);
    uint64_t units = end_part(m, s, m->level >= LEVEL_PARTS ? budget : NEVER, fx);
    if (has_nothing(s)) {
        tell_end(m, s, 0, fx);
        session_free(m, s);
    }
    return 1 + (m->level >= LEVEL_PARTS ? units : all);
}

struct session *session_named(const struct machine *m, const struct op *op)
{
    BELAY_DCHECK(op->session.len > 0);
    struct session *s = session_find(m, op->account, op->session);
    bool another = s && s->home && op->number && s->home != op->number;
    return op->flags & OP_OVER || another ? NULL : s;
}

struct session *session_of(struct machine *m, const struct op *op, bool *ret_ok,
                           struct effects *fx)
{
    *ret_ok = true;
    if (op->session.len == 0)
        return NULL;
    struct session *s = session_named(m, op);
    if (s && !session_over(s, m->now_ms)) {
        keep_for_all(m, s);
        BELAY_DCHECK(!session_over(s, m->now_ms));
        return s;
    }
    *ret_ok = false;
    request_failed(op, BELAY_ERR_NO_SESSION, "no such session, or it has ended", fx);
    return NULL;
}

void session_open(struct machine *m, const struct op *op, struct effects *fx)
{
    if (session_find(m, op->account, op->session) ||
        machine_session_ends(m, op->account, op->session)) {
        request_failed(op, BELAY_ERR_EXISTS, "a session with this id lives", fx);
        return;
    }
    if (m->sessions.count >= LIMIT_SESSIONS) {
        request_failed(op, BELAY_ERR_LIMIT, "there are LIMIT_SESSIONS (1000000) sessions", fx);
        return;
    }
    struct account *a = account_find(m, op->account);
    if (a && quota_reached(a, QUOTA_SESSIONS, 1)) {
        quota_refuse(a, QUOTA_SESSIONS, op, fx);
        return;
    }
    struct session *s = session_add(m, op->account, op->session, ++m->counter);
    session_count(s, a);
    s->token = (uint32_t)op->token;
    s->ttl_ms = (uint32_t)op->ttl_ms;
    s->linger_ms = (uint32_t)op->linger_ms;
    s->target = op->target;
    session_describe(s, op->text);
    session_keep(m, s);
    session_news(m, s, EVENT_SESSION_OPENED, op->asker, fx);
    BELAY_DCHECK(s->end.pos != 0);
}

void session_attach(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_SESSION_ATTACH);
    bool ok;
    struct session *s = session_find(m, op->account, op->session);
    bool moves = s && s->target && s->target != op->target;
    if (moves && m->level >= LEVEL_KEEP_FIRST && s->end.at > s->owed_ms)
        s->owed_ms = s->end.at; /* the node that it was attached at may not know it yet */
    s = session_of(m, op, &ok, fx);
    if (!s)
        return;
    s->target = op->target;
    struct event *ev = session_news(m, s, EVENT_SESSION_KEPT, op->asker, fx);
    ev->news = false;
    ev->count = 1;
    ev->linger_ms = s->linger_ms;
}

void session_detach(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_SESSION_DETACH);
    struct session *s = session_find(m, op->account, op->session);
    bool mine = s && s->target == op->target && !session_over(s, m->now_ms);
    uint64_t posted = mine ? s->enrolled : 0;
    if (mine && s->linger_ms == 0) {
        session_end(m, s, REASON_SESSION, 0, fx);
    } else if (mine) {
        uint64_t end = m->now_ms + s->linger_ms;
        s->target = 0;
        heap_set(&m->ends, &s->end, end > s->owed_ms ? end : s->owed_ms);
        struct op message = {.kind = OP_SESSION_DETACH,
                             .account = session_account(s),
                             .session = op->session,
                             .target = op->target};
        if (m->level < LEVEL_KEEP_FIRST)
            session_tell(m, s->enrolled, &message);
    }
    struct event *ev = effects_add(fx, EVENT_SESSION_KEPT);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->session = arena_copy(&fx->arena, op->session);
    ev->count = mine;
    ev->posted = posted;
}

/* The node of the connection that it is attached to asks without a token. It does not know who is
 * logged in there by now: a token that is gone has nothing kept. */
static bool may_keep(const struct machine *m, const struct op *op, const struct session *s)
{
    bool by_node = m->closed && op->token == 0;
    return by_node ? token_lives(m, s->token) : token_owns_session(op, s);
}

void session_keepalive(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_SESSION_KEEPALIVE);
    uint64_t alive = 0;
    for (size_t i = 0; i <= op->more.n; i++) {
        struct slice id = i == 0 ? op->session : op->more.items[i - 1];
        struct session *s = id.len ? session_find(m, op->account, id) : NULL;
        if (!s || session_over(s, m->now_ms) || !may_keep(m, op, s))
            continue;
        keep_for_all(m, s);
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
    BELAY_DCHECK(op->kind == OP_SESSION_CLOSE);
    struct session *s = session_find(m, op->account, op->session);
    if (!s || session_over(s, m->now_ms))
        request_failed(op, BELAY_ERR_NO_SESSION, "no such session, or it has ended", fx);
    else
        session_end(m, s, REASON_RELEASE, op->asker, fx);
}

/* The shard may use it until it is told otherwise. */
void session_invite(struct machine *m, struct session *s, uint64_t shard)
{
    BELAY_CHECK(group_bit(m, shard) != 0);
    struct op message = {
        .kind = OP_SESSION_OPEN,
        .account = session_account(s),
        .session = session_id(s),
        .number = m->level >= LEVEL_KEEP_FIRST ? s->end.seq : 0,
        .ttl_ms = s->ttl_ms,
        .token = s->token,
        .text = slice_of(s->description, s->description_len),
    };
    outbox_post(m, (unsigned)shard, &message);
    s->enrolled |= group_bit(m, shard);
}

void session_enrol(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_SESSION_ENROL);
    bool ok;
    uint64_t bit = group_bit(m, op->target);
    struct session *s = session_of(m, op, &ok, fx);
    if (!s)
        return;
    if (bit == 0) {
        request_failed(op, BELAY_ERR_RANGE, "no such shard", fx);
        return;
    }
    if (outbox_is_full(m, (unsigned)op->target)) {
        request_failed(op, BELAY_ERR_UNAVAILABLE, "the shard does not answer", fx);
        return;
    }
    if (!(s->enrolled & bit))
        session_invite(m, s, op->target);
    struct event *ev = session_news(m, s, EVENT_SESSION_KEPT, op->asker, fx);
    ev->news = false;
    ev->count = 1;
    ev->fence = s->end.seq;
    ev->posted = bit;
}

/* --- the same session in a shard --- */

void guest_comes(struct machine *m, const struct op *message)
{
    BELAY_DCHECK(m->group != 0);
    struct session *s = session_find(m, message->account, message->session);
    if (!s) {
        s = session_add(m, message->account, message->session, ++m->counter);
        s->ttl_ms = (uint32_t)message->ttl_ms;
        s->kept_ms = m->level < LEVEL_KEEP_FIRST ? m->now_ms : 0;
        session_describe(s, message->text);
    }
    s->home = message->number;
    s->token = (uint32_t)message->token;
    s->guest = GUEST;
}

struct session *guest_of(const struct machine *m, const struct op *message)
{
    struct session *s = session_find(m, message->account, message->session);
    return s && s->guest != GUEST_NOT ? s : NULL;
}

void guest_goes(struct machine *m, const struct op *message, struct effects *fx)
{
    BELAY_DCHECK(m->group != 0 && message->kind == OP_SESSION_CLOSE);
    struct session *s = guest_of(m, message);
    if (s)
        session_end(m, s, message->flags & OP_FORCE ? REASON_SESSION : REASON_RELEASE, 0, fx);
}
