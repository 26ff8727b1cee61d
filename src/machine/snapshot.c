/* snapshot.c - the whole state as bytes and back, its hash, and the walk that checks it.
 *
 *   "BELAYSNP" version level | applied now counter | messages | accounts, tokens | sessions |
 *   namespaces, locks, tables, parked | answered receipts | nodes that are not heard | crc32c
 *
 * Equal states give equal bytes: everything is written in an order that is part of the state
 * (names, numbers, places in line), nothing in the order of a table. Reading trusts nothing. */
#include "machine/snapshot.h"
#include "base/check.h"
#include "base/format.h"
#include "base/mem.h"
#include "machine/holders.h"
#include "machine/invariants.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/session.h"
#include "machine/sound.h"
#include "machine/txn_wait.h"
#include "machine/varint.h"

#include <stdlib.h>

enum {
    /* 1: no variables, 2: no other groups, 3: no receipts, 4: shards tell group 0 of uses
     * unasked, 5: no level; still read. The level stays where it is in every later version, so
     * that a program which is too old can say so. */
    SNAPSHOT_FIRST_WITH_LEVEL = 6,
    SNAPSHOT_MAGIC_BYTES = 8,
    SNAPSHOT_CRC_BYTES = 4,
    SNAPSHOT_GUEST_BITS = 2, /* above them: why the session ends */
    SNAPSHOT_GUEST_MAX = REASON_REVOKED << SNAPSHOT_GUEST_BITS | GUEST_ENROLS
};
static const char magic[SNAPSHOT_MAGIC_BYTES] = {'B', 'E', 'L', 'A', 'Y', 'S', 'N', 'P'};

/* --- writing --- */

void snapshot_put_end(struct buf *out, const struct heap_node *end) /* 0: none; else at + 1 */
{
    BELAY_DCHECK(end->pos == 0 || end->at != NEVER);
    varint_put(out, end->pos ? end->at + 1 : 0);
}

void snapshot_put_session_ref(struct buf *out, const struct session *s)
{
    BELAY_DCHECK(!s || s->end.seq != 0); /* 0 stands for none */
    varint_put(out, s ? s->end.seq : 0);
}

/* The receipt of what waits; its account is that of the namespace. */
void snapshot_put_open(struct buf *out, const struct receipt *r, enum away away)
{
    BELAY_CHECK(away <= AWAY_CUT);
    varint_put_bytes(out, r ? receipt_id(r) : slice_of("", 0));
    if (!r)
        return;
    varint_put(out, r->content);
    varint_put(out, r->at_ms);
    varint_put(out, away);
}

static void put_receipt(struct buf *out, const struct receipt *r)
{
    BELAY_CHECK(r->answer_len > 0 && r->id_len > 0);
    varint_put_bytes(out, receipt_account(r));
    varint_put_bytes(out, receipt_id(r));
    varint_put(out, r->content);
    varint_put(out, r->at_ms);
    varint_put_bytes(out, receipt_answer(r));
}

static void put_session(struct buf *out, const struct session *s)
{
    BELAY_CHECK(s->end.seq != 0 && session_is_sound(s));
    varint_put_bytes(out, session_id(s));
    varint_put(out, s->end.seq);
    bool is_guest = s->guest != GUEST_NOT && s->ending == REASON_NONE;
    varint_put(out, is_guest ? s->kept_ms : s->end.pos ? s->end.at : 0);
    varint_put(out, s->ttl_ms);
    varint_put(out, s->linger_ms);
    varint_put(out, s->target);
    varint_put_bytes(out, slice_of(s->description, s->description_len));
    varint_put(out, s->guest | (uint64_t)s->ending << SNAPSHOT_GUEST_BITS);
    varint_put(out, s->enrolled);
    varint_put(out, s->asked);
    varint_put(out, s->home);
    varint_put(out, s->owed_ms);
    varint_put_bytes(out, session_account(s));
    varint_put(out, s->token);
    if (s->ending != REASON_NONE)
        varint_put(out, s->n_at_end);
}

static void put_terms(struct buf *out, const struct lease_terms *terms)
{
#define X(field, parameter, max, what)                                                         \
    BELAY_DCHECK(terms->field <= (max));                                                       \
    varint_put(out, terms->field);
    LEASE_TERM_MAP(X)
#undef X
}

static void put_hold(struct buf *out, const struct hold *h)
{
    BELAY_DCHECK(hold_is_linked(h));
    varint_put_bytes(out, hold_owner(h));
    snapshot_put_session_ref(out, h->session);
    varint_put(out, hold_fence(h));
    snapshot_put_end(out, &h->end);
    varint_put(out, h->asker);
    varint_put(out, h->since_ms);
    put_terms(out, &h->terms);
    varint_put(out, h->weight);
    varint_put(out, h->overdue);
    varint_put(out, h->token);
}

static void put_wait(struct buf *out, const struct wait *w)
{
    BELAY_DCHECK(wait_is_linked(w) && w->end.at <= w->deadline_ms);
    varint_put_bytes(out, wait_owner(w));
    snapshot_put_session_ref(out, w->session);
    varint_put(out, w->end.seq);
    varint_put(out, w->end.at);
    varint_put(out, w->upgrade ? hold_fence(w->upgrade) : 0);
    varint_put(out, w->asker);
    varint_put(out, w->since_ms);
    varint_put(out, w->deadline_ms);
    varint_put(out, wait_quiet_from(w));
    put_terms(out, &w->terms);
    varint_put(out, w->quiet_ms);
    varint_put(out, w->weight);
    varint_put(out, w->policy);
    varint_put(out, w->brings_body);
    varint_put(out, w->token);
    varint_put_bytes(out, slice_of(w->body, w->body_len));
    snapshot_put_open(out, w->receipt, w->away);
}

static void put_lock(struct buf *out, const struct lock *l)
{
    BELAY_DCHECK(lock_is_sound(l) && !l->touched);
    varint_put_bytes(out, lock_name(l));
    varint_put(out, l->capacity);
    varint_put(out, l->n_holds);
    list_each (it, &l->holds)
        put_hold(out, list_item(it, const struct hold, in_lock));
    varint_put(out, l->more != NULL);
    if (!l->more)
        return;
    snapshot_put_end(out, &l->more->closed);
    varint_put(out, l->more->closed.pos ? l->more->closed.seq : 0);
    varint_put_bytes(out, slice_of(l->more->body, l->more->body_len));
    varint_put(out, l->more->n_waits);
    list_each (it, &l->more->waits)
        put_wait(out, list_item(it, const struct wait, in_lock));
}

static void put_space(struct buf *out, const struct space *s)
{
    BELAY_DCHECK(s->name_len > 0 && s->held <= s->locks.count);
    varint_put_bytes(out, slice_of(s->name, s->name_len));
    varint_put_bytes(out, slice_of(s->description, s->description_len));
    varint_put(out, s->created_ms);
    varint_put(out, s->updated_ms);
    varint_put(out, s->locks.count);
    struct index_place place;
    struct lock *l = index_after(&s->index, slice_of("", 0), true, &place);
    for (; l; l = index_next(&s->index, &place))
        put_lock(out, l);
    snapshot_put_tables(out, s);
    snapshot_put_parked(out, s);
}

static void put_silent(struct buf *out, const struct machine *m)
{
    BELAY_CHECK(m->n_silent <= OP_NODES_MAX);
    varint_put(out, m->n_silent);
    for (size_t i = 0; i < OP_NODES_MAX; i++) {
        if (m->nodes[i].silent) {
            varint_put(out, i);
            varint_put(out, m->nodes[i].silent_ms);
        }
    }
}

void machine_encode(const struct machine *m, struct buf *out)
{
    BELAY_CHECK(m->n_touched == 0);
    size_t start = buf_len(out);
    buf_put(out, magic, sizeof magic);
    varint_put(out, FORMAT_STATE);
    varint_put(out, m->level);
    varint_put(out, m->applied);
    varint_put(out, m->now_ms);
    varint_put(out, m->counter);
    snapshot_put_outbox(out, m);
    varint_put(out, m->n_accounts);
    for (size_t i = 0; i < m->n_accounts; i++) {
        varint_put_bytes(out, account_name(m->accounts[i]));
        snapshot_put_account(out, m->accounts[i]);
    }
    snapshot_put_tokens(out, m);
    varint_put(out, m->sessions.count);
    list_each (it, &m->session_list)
        put_session(out, list_item(it, const struct session, in_machine));
    for (size_t i = 0; i < m->n_accounts; i++) {
        const struct account *a = m->accounts[i];
        varint_put(out, a->n);
        for (size_t j = 0; j < a->n; j++)
            put_space(out, a->spaces[j]);
        size_t n_doomed = 0;
        list_each (it, &m->doomed)
            n_doomed += list_item(it, const struct space, in_doomed)->account == a;
        varint_put(out, n_doomed);
        list_each (it, &m->doomed) {
            const struct space *s = list_item(it, const struct space, in_doomed);
            if (s->account == a)
                put_space(out, s);
        }
    }
    varint_put(out, m->receipts.n_answered);
    list_each (it, &m->receipts.answered)
        put_receipt(out, list_item(it, const struct receipt, in_answered));
    put_silent(out, m);
    if (out->oom)
        return;
    uint32_t crc = crc32c(0, out->mem + out->start + start, buf_len(out) - start);
    for (int i = 0; i < SNAPSHOT_CRC_BYTES; i++)
        buf_put_byte(out, (char)(crc >> (8 * i)));
}

uint64_t machine_hash(const struct machine *m)
{
    static const struct hash_key fixed = {0, 0};
    struct buf bytes = {0};
    machine_encode(m, &bytes);
    BELAY_CHECK(!bytes.oom);
    uint64_t h = hash_bytes(&fixed, buf_data(&bytes), buf_len(&bytes));
    buf_done(&bytes);
    return h;
}

/* --- reading --- */

void *loader_grown(void *items, size_t n, size_t *cap, size_t size)
{
    BELAY_CHECK(n <= *cap);
    if (n < *cap)
        return items;
    *cap = *cap ? *cap * 2 : 64;
    return mem_resize(items, *cap * size);
}

bool loader_ok(struct loader *ld, bool cond)
{
    if (!cond)
        ld->r.bad = true;
    return !ld->r.bad;
}

uint64_t loader_number(struct loader *ld)
{
    uint64_t n = reader_u64(&ld->r);
    loader_ok(ld, n > 0 && n <= ld->m->counter);
    ld->numbers =
        loader_grown(ld->numbers, ld->n_numbers, &ld->cap_numbers, sizeof *ld->numbers);
    ld->numbers[ld->n_numbers++] = n;
    BELAY_DCHECK(ld->n_numbers <= ld->cap_numbers);
    return n;
}

uint64_t loader_bounded(struct loader *ld, uint64_t max)
{
    uint64_t v = reader_u64(&ld->r);
    return loader_ok(ld, v <= max) ? v : 0;
}

struct slice loader_bytes(struct loader *ld, size_t min, size_t max)
{
    BELAY_DCHECK(min <= max);
    struct slice s = reader_bytes(&ld->r);
    loader_ok(ld, s.len >= min && s.len <= max);
    return s;
}

uint64_t loader_time(struct loader *ld)
{
    return loader_bounded(ld, UINT64_MAX / 2);
}

struct receipt *loader_open(struct loader *ld, const struct space *s, enum away *ret_away)
{
    *ret_away = AWAY_NOT;
    if (ld->version < 4)
        return NULL;
    struct receipt_key key = {slice_of(s->account->name, s->account->name_len),
                              loader_bytes(ld, 0, LIMIT_REQUEST_BYTES)};
    if (key.id.len == 0)
        return NULL;
    uint64_t content = reader_u64(&ld->r);
    uint64_t at_ms = loader_time(ld);
    *ret_away = (enum away)loader_bounded(ld, AWAY_CUT);
    if (!loader_ok(ld, at_ms <= ld->m->now_ms && !receipt_with(ld->m, key)))
        return NULL;
    struct receipt *r = receipt_add(ld->m, key, slice_of("", 0));
    BELAY_DCHECK(!r->wait && !r->parked); /* the caller ties it to what waits */
    r->content = content;
    r->at_ms = at_ms;
    return r;
}

static void read_receipt(struct loader *ld)
{
    BELAY_DCHECK(ld->version >= 4);
    struct receipt_key key = {.account = loader_bytes(ld, 1, LIMIT_ACCOUNT_BYTES)};
    key.id = loader_bytes(ld, 1, LIMIT_REQUEST_BYTES);
    uint64_t content = reader_u64(&ld->r);
    uint64_t at_ms = loader_time(ld);
    struct slice answer = loader_bytes(ld, 1, RECEIPT_ANSWER_BYTES);
    if (!loader_ok(ld, at_ms <= ld->m->now_ms && !ld->r.bad) ||
        !loader_ok(ld, receipt_is_answer(answer) && !receipt_with(ld->m, key)))
        return;
    struct receipt *r = receipt_add(ld->m, key, answer);
    r->content = content;
    r->at_ms = at_ms;
    receipt_add_answered(ld->m, r);
}

static void read_receipts(struct loader *ld)
{
    BELAY_DCHECK(ld->m->receipts.n_answered == 0);
    uint64_t n = ld->version < 4 ? 0 : loader_bounded(ld, LIMIT_RECEIPTS);
    for (; n && !ld->r.bad; n--)
        read_receipt(ld);
}

static void read_silent(struct loader *ld)
{
    BELAY_DCHECK(ld->m->n_silent == 0);
    uint64_t n = ld->version < 6 ? 0 : loader_bounded(ld, OP_NODES_MAX), next = 0;
    for (; n && !ld->r.bad; n--) {
        uint64_t i = loader_bounded(ld, OP_NODES_MAX - 1);
        uint64_t silent_ms = loader_time(ld);
        if (!loader_ok(ld, i >= next && silent_ms <= ld->m->now_ms))
            return;
        ld->m->nodes[i].silent = true;
        ld->m->nodes[i].silent_ms = silent_ms;
        ld->m->n_silent++;
        next = i + 1;
    }
}

static void read_session(struct loader *ld)
{
    struct slice id = loader_bytes(ld, 1, LIMIT_SESSION_BYTES);
    uint64_t seq = loader_number(ld);
    uint64_t at = loader_time(ld);
    uint64_t ttl_ms = loader_bounded(ld, LIMIT_TTL_MS);
    uint64_t linger_ms = loader_bounded(ld, LIMIT_LINGER_MS);
    uint64_t target = reader_u64(&ld->r);
    struct slice description = loader_bytes(ld, 0, LIMIT_DESCRIPTION_BYTES);
    uint64_t state = ld->version >= 3 ? loader_bounded(ld, SNAPSHOT_GUEST_MAX) : 0;
    enum guest guest = (enum guest)(state & GUEST_ENROLS);
    enum reason ending = (enum reason)(state >> SNAPSHOT_GUEST_BITS);
    uint64_t enrolled = ld->version >= 3 ? reader_u64(&ld->r) : 0;
    uint64_t asked = ld->version >= 5 ? reader_u64(&ld->r) : 0;
    uint64_t home = ld->version >= 6 ? reader_u64(&ld->r) : 0;
    uint64_t owed_ms = ld->version >= 6 ? loader_time(ld) : 0;
    struct slice account =
        ld->version >= 6 ? loader_bytes(ld, 0, LIMIT_ACCOUNT_BYTES) : slice_of("", 0);
    uint64_t token = ld->version >= 6 ? loader_bounded(ld, UINT32_MAX) : 0;
    uint64_t n_at_end = ending != REASON_NONE ? loader_bounded(ld, UINT32_MAX) : 0;
    bool is_new = ending != REASON_NONE || !session_find(ld->m, account, id);
    if (!loader_ok(ld, ttl_ms > 0) || !loader_ok(ld, is_new) ||
        !loader_ok(ld, (guest != GUEST_NOT) == (ld->m->group != 0)) ||
        !loader_ok(ld, guest == GUEST_NOT || !enrolled))
        return;
    struct session *s = session_add(ld->m, account, id, seq);
    s->token = (uint32_t)token;
    s->ttl_ms = (uint32_t)ttl_ms;
    s->linger_ms = (uint32_t)linger_ms;
    s->target = target;
    session_describe(s, description);
    s->guest = guest;
    s->enrolled = enrolled;
    s->asked = asked;
    s->home = home;
    s->owed_ms = owed_ms;
    s->ending = ending;
    s->n_at_end = (uint32_t)n_at_end;
    /* Before version 5 it was the time of a use, and a later one not yet told. */
    if (guest != GUEST_NOT && ending == REASON_NONE)
        s->kept_ms = ld->version >= 5 ? at : at + ttl_ms + ttl_ms / 4;
    else if (at > 0 || ending != REASON_NONE)
        heap_set(&ld->m->ends, &s->end, at);
    loader_ok(ld, ld->n_sessions == 0 || ld->sessions[ld->n_sessions - 1]->end.seq < seq);
    ld->sessions[ld->n_sessions++] = s;
    BELAY_CHECK(s->guest == guest);
}

struct session *loader_session(struct loader *ld)
{
    BELAY_CHECK(ld->n_sessions == 0 || ld->sessions);
    uint64_t seq = reader_u64(&ld->r);
    size_t lo = 0, hi = ld->n_sessions;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (ld->sessions[mid]->end.seq < seq)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (seq == 0)
        return NULL;
    bool found = lo < ld->n_sessions && ld->sessions[lo]->end.seq == seq;
    return loader_ok(ld, found) ? ld->sessions[lo] : NULL;
}

static bool weight_fits(const struct lock *l, uint64_t weight)
{
    BELAY_DCHECK(l->used <= l->capacity);
    if (weight == 0)
        return false;
    if (l->capacity == CAPACITY_RW)
        return weight == SHARED_WEIGHT || weight == CAPACITY_RW;
    return weight <= l->capacity;
}

static struct lease_terms read_terms(struct loader *ld)
{
    struct lease_terms terms;
#define X(field, parameter, max, what) terms.field = (uint32_t)loader_bounded(ld, max);
    LEASE_TERM_MAP(X)
#undef X
    return terms;
}

static void read_hold(struct loader *ld, struct lock *l)
{
    struct grant g = {.owner = loader_bytes(ld, 1, LIMIT_OWNER_BYTES),
                      .session = loader_session(ld)};
    uint64_t fence = loader_number(ld);
    uint64_t end = reader_u64(&ld->r);
    g.asker = reader_u64(&ld->r);
    uint64_t since_ms = loader_time(ld);
    g.terms = read_terms(ld);
    uint64_t weight = reader_u64(&ld->r);
    uint64_t overdue = loader_bounded(ld, 1);
    g.token = ld->version >= 6 ? (uint32_t)loader_bounded(ld, UINT32_MAX) : 0;
    loader_ok(ld, weight_fits(l, weight) && l->capacity - l->used >= weight &&
                      end <= UINT64_MAX / 2);
    if (!list_empty(&l->holds))
        loader_ok(ld, hold_fence(list_item(l->holds.prev, struct hold, in_lock)) < fence);
    if (ld->r.bad || !loader_ok(ld, !holder_by_who(ld->m, l, (struct who){g.owner, g.session})))
        return; /* one hold of a holder */
    g.weight = (uint32_t)weight;
    struct session *session = g.session;
    g.session = NULL; /* its place in the session's list comes last, when all holds are known */
    struct hold *h = hold_add(ld->m, l, &g, fence);
    h->since_ms = since_ms;
    h->overdue = overdue;
    holders_remove(h);
    h->session = session;
    holders_add(ld->m, h);
    if (end)
        heap_set(&ld->m->ends, &h->end, end - 1);
    if (session) {
        ld->holds = loader_grown(ld->holds, ld->n_holds, &ld->cap_holds, sizeof(struct hold *));
        ld->holds[ld->n_holds++] = h;
        session->n_items++;
        session->n_holds++;
    }
    BELAY_CHECK(lock_is_sound(l));
}

static struct hold *hold_with(const struct lock *l, uint64_t fence)
{
    BELAY_CHECK(fence > 0);
    list_each (it, &l->holds) {
        struct hold *h = list_item(it, struct hold, in_lock);
        if (hold_fence(h) == fence)
            return h;
    }
    return NULL;
}

/* The fields of a wait that stand behind its owner; false when they do not fit the lock. */
static bool read_wait_fields(struct loader *ld, const struct lock *l, struct wait *w)
{
    BELAY_CHECK(w->lock == l && l->more);
    w->session = loader_session(ld);
    w->end = (struct heap_node){.seq = loader_number(ld), .tag = END_WAIT};
    w->end.at = loader_time(ld);
    uint64_t upgrade = reader_u64(&ld->r);
    w->asker = reader_u64(&ld->r);
    w->since_ms = loader_time(ld);
    w->deadline_ms = loader_time(ld);
    w->quiet_from_ms = loader_time(ld);
    w->terms = read_terms(ld);
    w->quiet_ms = (uint32_t)loader_bounded(ld, LIMIT_QUIET_MS);
    uint64_t weight = reader_u64(&ld->r);
    w->weight = (uint32_t)weight;
    w->policy = (enum lock_policy)loader_bounded(ld, POLICY_TIMED);
    w->brings_body = loader_bounded(ld, 1);
    w->token = ld->version >= 6 ? (uint32_t)loader_bounded(ld, UINT32_MAX) : 0;
    loader_ok(ld, weight_fits(l, weight));
    loader_ok(ld, w->policy == POLICY_HARD || weight == CAPACITY_RW);
    loader_ok(ld, w->end.at <= w->deadline_ms && w->since_ms <= w->deadline_ms);
    if (upgrade) {
        w->upgrade = hold_with(l, upgrade);
        loader_ok(ld, w->upgrade && weight == CAPACITY_RW &&
                          w->upgrade->weight == SHARED_WEIGHT && w->policy == POLICY_HARD &&
                          w->upgrade->session == w->session);
    }
    return !ld->r.bad;
}

static void read_wait(struct loader *ld, struct lock *l)
{
    struct slice owner = loader_bytes(ld, 1, LIMIT_OWNER_BYTES);
    struct wait fields = {.lock = l, .owner_len = (uint8_t)owner.len};
    bool fits = read_wait_fields(ld, l, &fields);
    struct slice body = loader_bytes(ld, 0, LIMIT_BODY_BYTES);
    struct who who = {owner, fields.session};
    if (!fits || ld->r.bad || !loader_ok(ld, !wait_of(ld->m, l, who)))
        return;
    if (fields.upgrade &&
        !loader_ok(ld, slice_eq(hold_owner(fields.upgrade), owner) && l->more->n_waits == 0))
        return;
    struct wait *w = mem_alloc(sizeof *w + owner.len);
    memcpy(w, &fields, sizeof fields);
    memcpy(w->owner, owner.data, owner.len);
    w->body = body.len ? mem_dup(body.data, body.len) : NULL;
    w->body_len = body.len;
    uint64_t at = w->end.at;
    wait_link(ld->m, w);
    wait_set_asker(ld->m, w, fields.asker);
    heap_set(&ld->m->ends, &w->end, at);
    w->receipt = loader_open(ld, l->space, &w->away);
    if (w->receipt)
        w->receipt->wait = w;
    ld->waits = loader_grown(ld->waits, ld->n_waits, &ld->cap_waits, sizeof(struct wait *));
    ld->waits[ld->n_waits++] = w;
    BELAY_CHECK(w->end.pos != 0);
}

static void read_more(struct loader *ld, struct lock *l)
{
    BELAY_CHECK(!l->more);
    struct more *more = lock_more(l);
    uint64_t closed = reader_u64(&ld->r);
    uint64_t closed_seq = 0;
    if (closed)
        closed_seq = loader_number(ld);
    else
        loader_ok(ld, reader_u64(&ld->r) == 0);
    struct slice body = loader_bytes(ld, 0, LIMIT_BODY_BYTES);
    uint64_t n_waits = loader_bounded(ld, LIMIT_WAITERS);
    if (!loader_ok(ld, closed <= UINT64_MAX / 2))
        return;
    if (closed) {
        more->closed.seq = closed_seq;
        heap_set(&ld->m->ends, &more->closed, closed - 1);
    }
    lock_set_body(l, body);
    for (uint64_t i = 0; i < n_waits && !ld->r.bad; i++)
        read_wait(ld, l);
    loader_ok(ld, n_waits || closed || body.len); /* else it would not be there */
}

static void read_lock(struct loader *ld, struct space *s, struct slice *previous)
{
    struct slice name = loader_bytes(ld, 1, LIMIT_NAME_BYTES);
    uint64_t capacity = reader_u64(&ld->r);
    uint64_t n_holds = loader_bounded(ld, LIMIT_HOLDERS);
    if (!loader_ok(ld, slice_cmp(*previous, name) < 0) ||
        !loader_ok(ld, capacity <= LIMIT_PERMITS || capacity == CAPACITY_RW))
        return;
    *previous = name;
    struct lock *l = lock_get(ld->m, s, name);
    BELAY_DCHECK(l->n_holds == 0 && !l->more); /* names rise: it is a new one */
    l->capacity = (uint32_t)capacity;
    for (uint64_t i = 0; i < n_holds && !ld->r.bad; i++)
        read_hold(ld, l);
    uint64_t has_more = loader_bounded(ld, 1);
    if (has_more && !ld->r.bad)
        read_more(ld, l);
    bool in_use = l->n_holds || (l->more && l->more->n_waits);
    loader_ok(ld, in_use == (capacity != 0)); /* an idle lock has no kind */
    loader_ok(ld, l->n_holds || has_more);    /* and exists for a reason */
}

static void read_space(struct loader *ld, struct account *a, bool doomed)
{
    BELAY_CHECK(a->n <= a->cap);
    struct slice name = loader_bytes(ld, 1, LIMIT_NAMESPACE_BYTES);
    struct slice description = loader_bytes(ld, 0, LIMIT_DESCRIPTION_BYTES);
    uint64_t created_ms = loader_time(ld);
    uint64_t updated_ms = loader_time(ld);
    uint64_t n_locks = reader_u64(&ld->r);
    bool in_order =
        a->n == 0 ||
        slice_cmp(slice_of(a->spaces[a->n - 1]->name, a->spaces[a->n - 1]->name_len), name) < 0;
    /* Group 0 counts them when it makes one. A shard takes what it is told to, and may have a
     * "default" beside, from its beginning. */
    bool counted = !doomed && ld->m->group == 0;
    if (ld->r.bad || !loader_ok(ld, doomed || in_order) ||
        !loader_ok(ld, !counted || a->n < LIMIT_NAMESPACES))
        return;
    struct space *s = doomed ? space_new(ld->m, a, name) : space_add(ld->m, a, name);
    if (doomed) {
        s->doomed = true;
        a->n_doomed++;
        list_push_back(&ld->m->doomed, &s->in_doomed);
    }
    s->created_ms = created_ms;
    s->updated_ms = updated_ms;
    space_describe(s, description);
    struct slice previous = slice_of("", 0);
    for (uint64_t i = 0; i < n_locks && !ld->r.bad; i++)
        read_lock(ld, s, &previous);
    if (ld->version < 2 || ld->r.bad)
        return;
    loader_tables(ld, s);
    loader_parked(ld, s);
}

static struct account *read_account(struct loader *ld)
{
    struct slice name = loader_bytes(ld, 1, LIMIT_ACCOUNT_BYTES);
    if (ld->r.bad || !loader_ok(ld, !account_any(ld->m, name)))
        return NULL;
    return account_add(ld->m, name);
}

/* Since version 6 they stand before what belongs to them. */
static void read_accounts(struct loader *ld)
{
    BELAY_CHECK(ld->m->n_accounts == 0);
    uint64_t n = ld->version >= 6 ? reader_u64(&ld->r) : 0;
    for (uint64_t i = 0; i < n && !ld->r.bad; i++) {
        struct account *a = read_account(ld);
        if (a)
            loader_account(ld, a);
    }
    if (ld->version >= 6)
        loader_tokens(ld);
}

static void read_spaces(struct loader *ld)
{
    BELAY_DCHECK(ld->m->n_spaces == 0);
    uint64_t n = ld->version >= 6 ? ld->m->n_accounts : reader_u64(&ld->r);
    for (uint64_t i = 0; i < n && !ld->r.bad; i++) {
        struct account *a = ld->version >= 6 ? ld->m->accounts[i] : read_account(ld);
        if (!a)
            return;
        uint64_t n_spaces = reader_u64(&ld->r);
        for (uint64_t j = 0; j < n_spaces && !ld->r.bad; j++)
            read_space(ld, a, false);
        uint64_t n_doomed = reader_u64(&ld->r);
        for (uint64_t j = 0; j < n_doomed && !ld->r.bad; j++)
            read_space(ld, a, true);
    }
    loader_ok(ld, n > 0);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int by_fence(const void *a, const void *b)
{
    uint64_t x = hold_fence(*(struct hold *const *)a), y = hold_fence(*(struct hold *const *)b);
    return x < y ? -1 : x > y;
}

static int by_ticket(const void *a, const void *b)
{
    uint64_t x = (*(struct wait *const *)a)->end.seq, y = (*(struct wait *const *)b)->end.seq;
    return x < y ? -1 : x > y;
}

/* What could only be done when everything was read. */
static void finish(struct loader *ld)
{
    BELAY_DCHECK(ld->n_holds <= ld->cap_holds && ld->n_waits <= ld->cap_waits);
    if (ld->n_numbers)
        qsort(ld->numbers, ld->n_numbers, sizeof *ld->numbers, by_number);
    for (size_t i = 1; i < ld->n_numbers; i++)
        loader_ok(ld, ld->numbers[i - 1] < ld->numbers[i]);
    if (ld->n_holds)
        qsort(ld->holds, ld->n_holds, sizeof(struct hold *), by_fence);
    for (size_t i = 0; i < ld->n_holds; i++)
        list_push_back(&ld->holds[i]->session->holds, &ld->holds[i]->in_session);
    if (ld->n_waits)
        qsort(ld->waits, ld->n_waits, sizeof(struct wait *), by_ticket);
    for (size_t i = 0; i < ld->n_waits; i++)
        wait_place(ld->waits[i]);
    loader_finish_records(ld);
    for (size_t i = 0; i < ld->n_sessions; i++)
        if (ld->sessions[i]->guest == GUEST_NOT)
            session_count(ld->sessions[i],
                          account_any(ld->m, session_account(ld->sessions[i])));
    for (size_t i = 0; i < ld->m->n_accounts; i++)
        account_left(ld->m, ld->m->accounts[i]);
}

static void read_machine(struct loader *ld)
{
    BELAY_CHECK(ld->m->counter == 0 && ld->m->n_accounts == 0);
    struct machine *m = ld->m;
    if (ld->version >= SNAPSHOT_FIRST_WITH_LEVEL)
        m->level = loader_bounded(ld, LEVEL_NEWEST);
    m->applied = reader_u64(&ld->r);
    m->now_ms = loader_bounded(ld, UINT64_MAX / 4);
    m->counter = loader_bounded(ld, UINT64_MAX / 4);
    if (ld->version >= 3)
        loader_outbox(ld);
    read_accounts(ld);
    uint64_t n_sessions = reader_u64(&ld->r); /* counted in group 0, as namespaces */
    loader_ok(ld, m->group != 0 || n_sessions <= LIMIT_SESSIONS);
    if (!loader_ok(ld, n_sessions <= ld->r.left.len)) /* each takes a byte at least */
        return;
    ld->sessions = mem_alloc((size_t)n_sessions * sizeof(struct session *));
    for (uint64_t i = 0; i < n_sessions && !ld->r.bad; i++)
        read_session(ld);
    read_spaces(ld);
    read_receipts(ld);
    read_silent(ld);
    loader_ok(ld, ld->r.left.len == 0);
    finish(ld);
}

/* What is behind the magic and before the checksum; an empty one: these are not the bytes of a
 * snapshot. */
static struct slice snapshot_body(struct slice in)
{
    uint32_t crc = 0;
    if (in.len < SNAPSHOT_MAGIC_BYTES + SNAPSHOT_CRC_BYTES ||
        memcmp(in.data, magic, sizeof magic) != 0)
        return slice_of("", 0);
    size_t n = in.len - SNAPSHOT_CRC_BYTES;
    for (int i = 0; i < SNAPSHOT_CRC_BYTES; i++)
        crc |= (uint32_t)(unsigned char)in.data[n + (size_t)i] << (8 * i);
    if (crc != crc32c(0, in.data, n))
        return slice_of("", 0);
    return slice_of(in.data + sizeof magic, n - sizeof magic);
}

uint64_t machine_snapshot_level(struct slice in)
{
    struct reader r = {.left = snapshot_body(in)};
    if (reader_u64(&r) < SNAPSHOT_FIRST_WITH_LEVEL)
        return 0;
    uint64_t level = reader_u64(&r);
    return r.bad ? 0 : level;
}

enum belay_err machine_decode(struct slice in, struct hash_key key, struct machine **ret_m)
{
    struct slice body = snapshot_body(in);
    if (body.len == 0)
        return BELAY_ERR_CORRUPT;
    struct loader ld = {.m = machine_new(key), .r = {.left = body}};
    ld.version = reader_u64(&ld.r);
    if (loader_ok(&ld, ld.version >= FORMAT_STATE_OLDEST && ld.version <= FORMAT_STATE))
        read_machine(&ld);
    bool bad = ld.r.bad || machine_unsound(ld.m) != NULL;
    free(ld.numbers);
    free(ld.sessions);
    free(ld.holds);
    free(ld.waits);
    free(ld.records);
    free(ld.parked);
    if (bad) {
        machine_close(ld.m);
        return BELAY_ERR_CORRUPT;
    }
    BELAY_DCHECK(ld.m->n_touched == 0);
    *ret_m = ld.m;
    return BELAY_OK;
}
