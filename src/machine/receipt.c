/* receipt.c - requests with an id: what became of them, and what still waits. */
#include "machine/receipt.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/outbox.h"
#include "machine/request.h"
#include "machine/table.h"
#include "machine/txn_wait.h"
#include "machine/varint.h"

#include <stdlib.h>

/* --- answers as bytes --- */

/* The numbers of an answer, in the order of their bytes. Rows of a SHOW are no answer to what
 * has an id, and what a lock looks like is told as it is when it is asked again. */
#define NUMBER_MAP(X)                                                                          \
    X(enum reason, reason, REASON_REVOKED)                                                     \
    X(enum belay_err, err, BELAY_ERR_OVERLOADED)                                               \
    X(uint64_t, fence, UINT64_MAX)                                                             \
    X(uint64_t, ticket, UINT64_MAX)                                                            \
    X(uint64_t, count, UINT64_MAX)                                                             \
    X(bool, forever, 1)                                                                        \
    X(uint64_t, expires_in_ms, UINT64_MAX)                                                     \
    X(uint64_t, waited_ms, UINT64_MAX)                                                         \
    X(uint64_t, posted, UINT64_MAX)                                                            \
    X(enum txn_status, status, TXN_TIMEOUT)                                                    \
    X(enum txn_cause, cause, CAUSE_REQUIREMENTS)

static void put_records(struct buf *out, const struct txn_row *row)
{
    BELAY_CHECK(row->n_records == 0 || row->records);
    varint_put(out, row->n_records);
    for (size_t i = 0; i < row->n_records && buf_len(out) <= RECEIPT_ANSWER_BYTES; i++) {
        const struct record_row *r = &row->records[i];
        varint_put_bytes(out, r->session);
        varint_put_bytes(out, r->value);
        varint_put_bytes(out, r->description);
        varint_put(out, r->set_ms_ago);
        varint_put(out, r->forever);
        varint_put(out, r->expires_in_ms);
        varint_put(out, r->exclusive);
    }
}

static void put_row(struct buf *out, const struct txn_row *row)
{
    BELAY_DCHECK(row->kind <= TXN_ROW_FENCE); /* as get_row() reads it */
    varint_put_bytes(out, row->name);
    varint_put(out, row->kind);
    varint_put_bytes(out, row->json);
    varint_put(out, row->truth);
    varint_put(out, row->fence);
    put_records(out, row);
}

/* What may be long. False: it is too long to be kept. */
static bool put_rows(struct buf *out, const struct event *ev)
{
    BELAY_CHECK(ev->n_cycle <= LIMIT_CYCLE);
    varint_put(out, ev->n_cycle);
    for (size_t i = 0; i < ev->n_cycle; i++) {
        varint_put_bytes(out, ev->cycle[i].owner);
        varint_put_bytes(out, ev->cycle[i].name);
    }
    varint_put(out, ev->n_data);
    for (size_t i = 0; i < ev->n_data && buf_len(out) <= RECEIPT_ANSWER_BYTES; i++)
        put_row(out, &ev->data[i]);
    return buf_len(out) <= RECEIPT_ANSWER_BYTES;
}

static void put_answer(struct buf *out, const struct event *ev)
{
    BELAY_CHECK(ev->kind < EVENT_KIND_COUNT);
    bool grant = ev->kind == EVENT_GRANTED;
    buf_put_byte(out, (char)ev->kind);
#define X(type, field, max) varint_put(out, (uint64_t)ev->field);
    NUMBER_MAP(X)
#undef X
    varint_put_bytes(out, ev->session);
    varint_put_bytes(out, grant ? slice_of("", 0) : ev->text); /* the body: as it then is */
    varint_put_bytes(out, ev->failed);
    size_t facts = buf_len(out);
    buf_put_byte(out, 1);
    if (!put_rows(out, ev)) {
        out->end = out->start + facts;
        buf_put_byte(out, 0);
    }
    BELAY_CHECK(!out->oom);
    BELAY_CHECK(buf_len(out) <= RECEIPT_ANSWER_BYTES);
    BELAY_DCHECK(receipt_is_answer(buf_slice(out)));
}

static uint64_t get_number(struct reader *r, uint64_t max)
{
    uint64_t v = reader_u64(r);
    if (v > max)
        r->bad = true;
    return v;
}

/* How many follow; each takes a byte at least, so that memory is never taken by a bare claim.
 */
static size_t get_count(struct reader *r)
{
    uint64_t n = get_number(r, r->left.len);
    return r->bad ? 0 : (size_t)n;
}

static void get_records(struct reader *r, struct arena *a, struct txn_row *row)
{
    row->n_records = get_count(r);
    row->records = arena_alloc(a, row->n_records * sizeof *row->records);
    for (size_t i = 0; i < row->n_records; i++) {
        struct record_row *to = &row->records[i];
        to->session = reader_bytes(r);
        to->value = reader_bytes(r);
        to->description = reader_bytes(r);
        to->set_ms_ago = reader_u64(r);
        to->forever = get_number(r, 1);
        to->expires_in_ms = reader_u64(r);
        to->exclusive = get_number(r, 1);
    }
    if (row->kind == TXN_ROW_RECORD && row->n_records != 1)
        r->bad = true;
}

static void get_row(struct reader *r, struct arena *a, struct txn_row *row)
{
    row->name = reader_bytes(r);
    row->kind = (enum txn_row_kind)get_number(r, TXN_ROW_FENCE);
    row->json = reader_bytes(r);
    row->truth = get_number(r, 1);
    row->fence = reader_u64(r);
    get_records(r, a, row);
}

static void get_rows(struct reader *r, struct arena *a, struct event *ev)
{
    ev->n_cycle = get_count(r);
    ev->cycle = arena_alloc(a, ev->n_cycle * sizeof *ev->cycle);
    for (size_t i = 0; i < ev->n_cycle; i++) {
        ev->cycle[i].owner = reader_bytes(r);
        ev->cycle[i].name = reader_bytes(r);
    }
    ev->n_data = get_count(r);
    ev->data = arena_alloc(a, ev->n_data * sizeof *ev->data);
    for (size_t i = 0; i < ev->n_data; i++)
        get_row(r, a, &ev->data[i]);
}

/* Borrows from `in`, and from `a`. False: it is no answer. */
static bool get_answer(struct slice in, struct arena *a, struct event *ev, bool *ret_whole)
{
    struct reader r = {.left = in};
    uint8_t kind = reader_byte(&r);
    if (kind >= EVENT_KIND_COUNT)
        return false;
    ev->kind = (enum event_kind)kind;
#define X(type, field, max) ev->field = (type)get_number(&r, max);
    NUMBER_MAP(X)
#undef X
    ev->session = reader_bytes(&r);
    ev->text = reader_bytes(&r);
    ev->failed = reader_bytes(&r);
    *ret_whole = get_number(&r, 1);
    if (*ret_whole)
        get_rows(&r, a, ev);
    return !r.bad && r.left.len == 0;
}

bool receipt_is_answer(struct slice answer)
{
    struct arena a = {0};
    struct event ev = {0};
    bool whole;
    bool is = get_answer(answer, &a, &ev, &whole);
    arena_done(&a);
    return is;
}

/* --- the table --- */

void receipts_init(struct receipts *rs)
{
    *rs = (struct receipts){0};
    list_init(&rs->answered);
}

static uint64_t hash_key(const struct machine *m, struct receipt_key key)
{
    BELAY_DCHECK(key.id.len > 0);
    return hash_bytes(&m->key, key.id.data, key.id.len) ^
           hash_bytes(&m->key, key.account.data, key.account.len);
}

static bool same_key(struct map_node *node, const void *key)
{
    const struct receipt *r = map_item(node, const struct receipt, by_id);
    const struct receipt_key *k = key;
    return slice_eq(receipt_id(r), k->id) && slice_eq(receipt_account(r), k->account);
}

struct receipt *receipt_with(const struct machine *m, struct receipt_key key)
{
    struct map_node *n = map_find(&m->receipts.by_id, hash_key(m, key), same_key, &key);
    return n ? map_item(n, struct receipt, by_id) : NULL;
}

static struct receipt_key key_of(const struct op *op)
{
    BELAY_DCHECK(op->request.len > 0);
    return (struct receipt_key){or_default(op->account), op->request};
}

struct receipt *receipt_add(struct machine *m, struct receipt_key key, struct slice answer)
{
    BELAY_CHECK(answer.len <= RECEIPT_ANSWER_BYTES);
    BELAY_DCHECK(!receipt_with(m, key));
    BELAY_CHECK(key.account.len <= LIMIT_ACCOUNT_BYTES);
    BELAY_CHECK(key.id.len > 0 && key.id.len <= LIMIT_REQUEST_BYTES);
    struct receipt *r = mem_alloc(sizeof *r + key.account.len + key.id.len + answer.len);
    *r = (struct receipt){.answer_len = (uint32_t)answer.len,
                          .account_len = (uint8_t)key.account.len,
                          .id_len = (uint8_t)key.id.len};
    memcpy(r->bytes, key.account.data, key.account.len);
    memcpy(r->bytes + key.account.len, key.id.data, key.id.len);
    if (answer.len)
        memcpy(r->bytes + key.account.len + key.id.len, answer.data, answer.len);
    list_init(&r->in_answered);
    map_add(&m->receipts.by_id, &r->by_id, hash_key(m, key));
    return r;
}

static size_t bytes_of(const struct receipt *r)
{
    BELAY_DCHECK(r->answer_len > 0); /* open ones are not counted */
    return (size_t)r->account_len + r->id_len + r->answer_len;
}

void receipt_forget(struct machine *m, struct receipt *r)
{
    struct receipts *rs = &m->receipts;
    if (!list_empty(&r->in_answered)) {
        list_remove(&r->in_answered);
        BELAY_CHECK(rs->n_answered > 0 && rs->bytes >= bytes_of(r));
        rs->n_answered--;
        rs->bytes -= bytes_of(r);
    }
    map_remove(&rs->by_id, &r->by_id);
    free(r);
}

static struct receipt *oldest(const struct machine *m)
{
    const struct list *answered = &m->receipts.answered;
    if (list_empty(answered))
        return NULL;
    BELAY_DCHECK(m->receipts.n_answered > 0);
    return list_item(answered->next, struct receipt, in_answered);
}

static bool is_old(const struct machine *m, const struct receipt *r)
{
    BELAY_DCHECK(r->at_ms <= m->now_ms);
    return r->at_ms + RECEIPT_MS <= m->now_ms;
}

void receipt_drop_old(struct machine *m)
{
    BELAY_DCHECK((m->receipts.n_answered == 0) == list_empty(&m->receipts.answered));
    struct receipt *r;
    for (size_t i = 0; i < RECEIPT_DROP_BATCH && (r = oldest(m)) && is_old(m, r); i++)
        receipt_forget(m, r);
}

void receipt_add_answered(struct machine *m, struct receipt *r)
{
    BELAY_CHECK(!r->wait && !r->parked && r->answer_len > 0);
    struct receipts *rs = &m->receipts;
    list_push_back(&rs->answered, &r->in_answered);
    rs->n_answered++;
    rs->bytes += bytes_of(r);
    while (rs->n_answered > LIMIT_RECEIPTS || rs->bytes > LIMIT_RECEIPT_BYTES)
        receipt_forget(m, oldest(m));
    BELAY_DCHECK(rs->n_answered > 0);
}

void receipts_done(struct machine *m)
{
    BELAY_CHECK(m->receipts.n_answered <= m->receipts.by_id.count);
    list_each_safe(it, &m->receipts.answered)
        free(list_item(it, struct receipt, in_answered)); /* open ones go with what waits */
    map_done(&m->receipts.by_id);
    buf_done(&m->receipts.scratch);
}

/* --- a request --- */

/* Everything it asks for. Not when, by whom and through which door; nor a session's id that the
 * door has drawn: it draws another one each time. The first byte of an op is the version of its
 * binary form: a later one must give the same hash. */
static uint64_t content_of(struct machine *m, const struct op *op)
{
    static const struct hash_key fixed = {0x62656c61792d7265, 0x63656970742d3031};
    struct buf *bytes = &m->receipts.scratch;
    struct op plain = *op;
    plain.now_ms = plain.asker = plain.target = plain.number = 0;
    plain.rights = plain.wall_ms = 0;
    plain.request = slice_of("", 0);
    plain.flags &= ~(uint64_t)(OP_NOBLOCK | OP_WANT_LOCK | OP_WANT_HOLDERS | OP_OVER |
                               OP_MAY_BREAK | OP_SEES_ALL);
    if (op->kind == OP_SESSION_OPEN && !(op->flags & OP_NAMED))
        plain.session = slice_of("", 0);
    buf_clear(bytes);
    op_encode(&plain, bytes);
    BELAY_CHECK(!bytes->oom);
    return hash_bytes(&fixed, buf_data(bytes) + 1, buf_len(bytes) - 1);
}

struct receipt *receipt_open(struct machine *m, const struct op *op)
{
    BELAY_CHECK(op->request.len > 0);
    struct receipt *r = receipt_add(m, key_of(op), slice_of("", 0));
    r->content = m->receipts.asked;
    r->at_ms = m->now_ms;
    return r;
}

static void keep_answer(struct machine *m, struct receipt_key key, uint64_t content,
                        const struct event *ev)
{
    BELAY_CHECK(ev->kind != EVENT_QUEUED);
    struct buf *bytes = &m->receipts.scratch;
    buf_clear(bytes);
    put_answer(bytes, ev);
    struct receipt *r = receipt_add(m, key, buf_slice(bytes));
    r->content = content;
    r->at_ms = m->now_ms;
    receipt_add_answered(m, r);
}

void receipt_settle(struct machine *m, struct receipt **r, const struct event *ev)
{
    struct receipt *open = *r;
    if (!open)
        return;
    BELAY_CHECK(open->answer_len == 0 && list_empty(&open->in_answered));
    *r = NULL;
    map_remove(&m->receipts.by_id, &open->by_id);
    keep_answer(m, (struct receipt_key){receipt_account(open), receipt_id(open)}, open->content,
                ev);
    free(open);
}

/* Not "you are in the line", nor "not now, ask again". */
static bool is_final(const struct event *ev)
{
    BELAY_DCHECK(ev->kind < EVENT_KIND_COUNT);
    return ev->asker && ev->kind != EVENT_QUEUED && ev->err != BELAY_ERR_UNAVAILABLE;
}

void receipt_note(struct machine *m, const struct op *op, const struct effects *fx,
                  size_t first)
{
    BELAY_CHECK(first <= fx->n);
    for (size_t i = first; i < fx->n; i++) {
        const struct event *ev = &fx->events[i];
        if (ev->asker == op->asker && is_final(ev)) {
            keep_answer(m, key_of(op), m->receipts.asked, ev);
            return;
        }
    }
}

void receipt_cancel(struct machine *m, const struct op *op)
{
    struct receipt *r = op->request.len ? receipt_with(m, key_of(op)) : NULL;
    BELAY_CHECK(!r || !(r->wait && r->parked));
    if (r && !r->wait && !r->parked)
        receipt_forget(m, r);
}

struct receipt *receipt_find(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->request.len > 0);
    struct receipt *r = receipt_with(m, key_of(op));
    m->receipts.asked = content_of(m, op);
    if (!r)
        return NULL;
    if (r->wait)
        wait_end_if_dead(m, r->wait, fx);
    else if (r->parked)
        parked_end_if_dead(m, r->parked, fx);
    else if (is_old(m, r))
        receipt_forget(m, r);
    else
        return r;
    return receipt_with(m, key_of(op));
}

/* --- again --- */

/* A grant is told as it is now: what is left of it, the lock's body. From here on no cancel
 * takes it away: attempts arrive in any order, and so nobody knows which of the connections the
 * client still has. */
static void repeat_grant(struct machine *m, const struct event *was, const struct op *op,
                         struct effects *fx)
{
    BELAY_CHECK(was->kind == EVENT_GRANTED);
    struct space *s = space_find(m, op->account, op->ns);
    struct op by_fence = {.fence = was->fence};
    struct hold *h =
        s ? request_hold(m, lock_find(m, s, op->name), &by_fence, m->now_ms) : NULL;
    if (!h) {
        request_failed(op, BELAY_ERR_STALE,
                       "this request was granted before, and that grant is over", fx);
        return;
    }
    h->asker = 0;
    struct event *ev = hold_tell_grant(m, h, fx);
    ev->asker = op->asker;
    ev->news = false;
    ev->ticket = was->ticket;
    ev->waited_ms = was->waited_ms;
}

/* Messages were posted about it: they may still be on their way. */
static bool concerns_groups(enum event_kind kind)
{
    return kind == EVENT_NAMESPACE_CREATED || kind == EVENT_NAMESPACE_DELETED ||
           kind == EVENT_SESSION_ENDED;
}

static void count_down(uint64_t *left_ms, uint64_t passed_ms)
{
    *left_ms -= passed_ms < *left_ms ? passed_ms : *left_ms;
}

/* What a transaction selected is told as it was then; its times are told as of now. */
static void count_down_rows(struct event *ev, uint64_t passed_ms)
{
    for (size_t i = 0; i < ev->n_data; i++) {
        for (size_t k = 0; k < ev->data[i].n_records; k++) {
            struct record_row *row = &ev->data[i].records[k];
            row->set_ms_ago += passed_ms;
            count_down(&row->expires_in_ms, passed_ms);
        }
    }
}

static void repeat_answer(struct machine *m, const struct receipt *r, const struct op *op,
                          struct effects *fx)
{
    struct event was = {0};
    bool whole = false;
    struct slice bytes = arena_copy(&fx->arena, receipt_answer(r));
    bool sound = get_answer(bytes, &fx->arena, &was, &whole);
    BELAY_CHECK(sound); /* receipt_is_answer() has seen it */
    BELAY_CHECK(r->at_ms <= m->now_ms);
    uint64_t passed_ms = m->now_ms - r->at_ms;
    if (was.kind == EVENT_GRANTED) {
        repeat_grant(m, &was, op, fx);
        return;
    }
    if (!whole) {
        bool done = was.kind == EVENT_TXN && was.status == TXN_OK;
        request_failed(op, BELAY_ERR_GONE,
                       done ? "it took effect when it was first sent; its data is "
                              "too large to be repeated"
                            : "it changed nothing when it was first sent; its answer "
                              "is too large to be repeated",
                       fx);
        return;
    }
    if (was.kind != EVENT_SESSION_OPENED) /* there it is the TTL */
        count_down(&was.expires_in_ms, passed_ms);
    count_down_rows(&was, passed_ms);
    was.asker = op->asker;
    was.posted = concerns_groups(was.kind) ? outbox_everybody(m) : 0;
    was.at_ms = m->now_ms;
    was.account = op->account;
    was.ns = op->ns;
    was.name = op->name;
    was.owner = op->owner;
    *effects_add(fx, was.kind) = was;
}

void receipt_repeat(struct machine *m, struct receipt *r, const struct op *op,
                    struct effects *fx)
{
    BELAY_CHECK(r->wait || r->parked || r->answer_len > 0);
    if (r->content != m->receipts.asked)
        request_failed(op, BELAY_ERR_IN_USE, "another request has used this request id", fx);
    else if (r->wait)
        request_return(m, r->wait, op, fx);
    else if (r->parked)
        parked_return(m, r->parked, op, fx);
    else
        repeat_answer(m, r, op, fx);
}
