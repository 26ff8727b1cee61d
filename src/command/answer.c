/* answer.c - an event of the machine becomes a reply: the last step of a request on its way
 * out. */
#include "command/answer.h"

#include "proto/json.h"

#include <stdio.h>
#include <time.h>

static struct reply *flag(struct reply *r, unsigned flags)
{
    r->flags |= flags;
    return r;
}

/* No end of its own: null in JSON, -1 in RESP, as PTTL has it. */
static void put_expiry(struct arena *a, struct reply *map, const struct event *ev)
{
    if (ev->forever) {
        flag(reply_null(a, map, "expires_in_ms"), REPLY_JSON_ONLY);
        flag(reply_int(a, map, "expires_in_ms", -1), REPLY_RESP_ONLY);
    } else {
        reply_int(a, map, "expires_in_ms", (int64_t)ev->expires_in_ms);
    }
}

static void put_session(struct arena *a, struct reply *map, struct slice session)
{
    if (session.len)
        reply_text(a, map, "session", session);
    else
        reply_null(a, map, "session");
}

void answer_holder(struct arena *a, struct reply *list, const struct holder_row *h)
{
    struct reply *m = reply_map(a, list, NULL);
    reply_text(a, m, "owner", h->owner);
    reply_text(a, m, "mode", slice_str(lock_mode_word(h->mode)));
    reply_int(a, m, "fence", (int64_t)h->fence);
    if (h->mode == MODE_SEMAPHORE)
        reply_int(a, m, "permits", (int64_t)h->permits);
    put_session(a, m, h->session);
    reply_int(a, m, "held_ms", (int64_t)h->held_ms);
    if (h->forever)
        reply_null(a, m, "expires_in_ms");
    else
        reply_int(a, m, "expires_in_ms", (int64_t)h->expires_in_ms);
    reply_bool(a, m, "overdue", h->overdue);
}

void answer_waiter(struct arena *a, struct reply *list, const struct waiter_row *w)
{
    struct reply *m = reply_map(a, list, NULL);
    reply_text(a, m, "owner", w->owner);
    reply_text(a, m, "mode", slice_str(lock_mode_word(w->mode)));
    reply_int(a, m, "ticket", (int64_t)w->ticket);
    reply_int(a, m, "position", (int64_t)w->position);
    if (w->mode == MODE_SEMAPHORE)
        reply_int(a, m, "permits", (int64_t)w->permits);
    put_session(a, m, w->session);
    reply_int(a, m, "waited_ms", (int64_t)w->waited_ms);
    reply_int(a, m, "expires_in_ms", (int64_t)w->expires_in_ms);
}

void answer_lock(struct arena *a, struct reply *m, const struct lock_row *lock, bool blind)
{
    reply_text(a, m, "name", lock->name);
    reply_text(a, m, "state", slice_str(lock_state_word(lock->state)));
    if (lock->state == LOCK_SEMAPHORE)
        reply_int(a, m, "of", (int64_t)lock->of);
    if (lock->state == LOCK_CLOSED)
        reply_int(a, m, "closed_ms", (int64_t)lock->closed_ms);
    if (!blind)
        reply_text(a, m, "body", lock->body);
    struct reply *holders = reply_list(a, m, "holders");
    for (size_t i = 0; i < lock->n_holders; i++)
        answer_holder(a, holders, &lock->holders[i]);
    struct reply *waiters = blind ? NULL : reply_list(a, m, "waiters");
    for (size_t i = 0; waiters && i < lock->n_waiters; i++)
        answer_waiter(a, waiters, &lock->waiters[i]);
    if (lock->holders_total > lock->n_holders) /* the lists are cut: say how long they are */
        reply_int(a, m, "holders_total", (int64_t)lock->holders_total);
    if (waiters && lock->waiters_total > lock->n_waiters)
        reply_int(a, m, "waiters_total", (int64_t)lock->waiters_total);
}

/* "lock": what the HTTP answers carry. */
static void put_lock(struct arena *a, struct reply *map, const struct event *ev,
                     struct manner manner)
{
    if (ev->n_rows && ev->locks)
        answer_lock(a, flag(reply_map(a, map, "lock"), REPLY_JSON_ONLY), &ev->locks[0],
                    manner.blind);
}

static struct reply *row(struct arena *a)
{
    return flag(reply_new(a, REPLY_MAP), REPLY_ROW);
}

/* One that had to leave the line is told "refused": its reason says why. */
static struct slice status_of(const struct event *ev)
{
    return slice_str(event_word(ev->kind == EVENT_LEFT ? EVENT_REFUSED : ev->kind));
}

static struct reply *status_row(struct arena *a, const struct event *ev, int http_status)
{
    struct reply *r = row(a);
    reply_text(a, r, "status", status_of(ev));
    r->status = http_status;
    return r;
}

static struct reply *granted(const struct event *ev, struct manner manner, struct arena *a)
{
    struct reply *r = status_row(a, ev, 200);
    reply_int(a, r, "fence", (int64_t)ev->fence);
    if (manner.http)
        reply_int(a, r, "ticket", (int64_t)ev->ticket);
    put_expiry(a, r, ev);
    reply_text(a, r, "body", ev->text);
    put_lock(a, r, ev, manner);
    return r;
}

static struct reply *queued(const struct event *ev, struct manner manner, struct arena *a)
{
    struct reply *r = status_row(a, ev, 202);
    reply_int(a, r, "ticket", (int64_t)ev->ticket);
    reply_int(a, r, "position", (int64_t)ev->position);
    put_lock(a, r, ev, manner);
    return r;
}

/* RESP: [refused, reason, [owner, mode, fence, expires_in_ms]...] */
static struct reply *refused(const struct event *ev, struct manner manner, struct arena *a)
{
    struct reply *r = status_row(a, ev, 409);
    reply_text(a, r, "reason", slice_str(reason_word(ev->reason)));
    struct reply *holders = flag(reply_list(a, r, "holders"), REPLY_RESP_ONLY | REPLY_SPLICE);
    for (size_t i = 0; ev->n_rows && ev->locks && i < ev->locks[0].n_holders; i++) {
        const struct holder_row *h = &ev->locks[0].holders[i];
        struct reply *m = flag(reply_map(a, holders, NULL), REPLY_ROW);
        reply_text(a, m, "owner", h->owner);
        reply_text(a, m, "mode", slice_str(lock_mode_word(h->mode)));
        reply_int(a, m, "fence", (int64_t)h->fence);
        reply_int(a, m, "expires_in_ms", h->forever ? -1 : (int64_t)h->expires_in_ms);
    }
    put_lock(a, r, ev, manner);
    return r;
}

static struct reply *timed_out(const struct event *ev, struct manner manner, struct arena *a)
{
    struct reply *r = flag(status_row(a, ev, 408), REPLY_WRAP);
    flag(reply_int(a, r, "waited_ms", (int64_t)ev->waited_ms), REPLY_JSON_ONLY);
    put_lock(a, r, ev, manner);
    return r;
}

static struct reply *deadlock(const struct event *ev, struct manner manner, struct arena *a)
{
    struct reply *r = status_row(a, ev, 409);
    struct reply *cycle = flag(reply_list(a, r, "cycle"), REPLY_SPLICE);
    for (size_t i = 0; i < ev->n_cycle; i++) {
        struct reply *m = flag(reply_map(a, cycle, NULL), REPLY_ROW);
        reply_text(a, m, "owner", ev->cycle[i].owner);
        reply_text(a, m, "waits_for", ev->cycle[i].name);
    }
    put_lock(a, r, ev, manner);
    return r;
}

static struct reply *renewed(const struct event *ev, struct arena *a)
{
    struct reply *r = row(a);
    flag(reply_int(a, r, "fence", (int64_t)ev->fence), REPLY_JSON_ONLY);
    put_expiry(a, r, ev);
    return r;
}

/* RESP: +OK or a number; HTTP: the same facts as an object. */
static struct reply *ok_or(struct reply *json, struct manner manner, struct arena *a)
{
    if (manner.http && json)
        return json;
    struct reply *ok = reply_new(a, REPLY_STATUS);
    ok->text = SLICE("OK");
    return ok;
}

static struct reply *session_opened(const struct event *ev, struct arena *a)
{
    struct reply *r = row(a);
    reply_text(a, r, "id", ev->session);
    flag(reply_int(a, r, "ttl_ms", (int64_t)ev->expires_in_ms), REPLY_JSON_ONLY);
    r->status = 201;
    return r;
}

static struct reply *session_kept(const struct event *ev, struct manner manner, struct arena *a)
{
    if (manner.form == FORM_KEPT_ONE && ev->count == 0)
        return reply_error(a, BELAY_ERR_NO_SESSION, "%s", err_text(BELAY_ERR_NO_SESSION));
    if (manner.op == OP_SESSION_ATTACH)
        return ok_or(NULL, manner, a);
    struct reply *r = row(a);
    reply_int(a, r, "alive", (int64_t)ev->count);
    return r;
}

static struct reply *counted(const struct event *ev, const char *key, struct manner manner,
                             struct arena *a)
{
    struct reply *r = row(a);
    reply_int(a, r, key, (int64_t)ev->count);
    put_lock(a, r, ev, manner);
    return r;
}

static struct reply *yes_or_no(const struct event *ev, const char *key, struct manner manner,
                               struct arena *a)
{
    struct reply *r = row(a);
    reply_bool(a, r, key, ev->count > 0);
    put_lock(a, r, ev, manner);
    return r;
}

static struct reply *namespace_changed(const struct event *ev, struct manner manner,
                                       struct arena *a)
{
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "name", ev->ns);
    reply_text(a, r, "status", slice_str(event_word(ev->kind) + sizeof "namespace"));
    r->status = ev->kind == EVENT_NAMESPACE_CREATED ? 201 : 200;
    return ok_or(r, manner, a);
}

static struct reply *session_map(struct arena *a, struct reply *in, const struct session_row *s)
{
    struct reply *m = reply_map(a, in, NULL);
    reply_text(a, m, "id", s->id);
    reply_text(a, m, "description", s->description);
    reply_int(a, m, "ttl_ms", (int64_t)s->ttl_ms);
    reply_int(a, m, "linger_ms", (int64_t)s->linger_ms);
    reply_int(a, m, "expires_in_ms", (int64_t)s->expires_in_ms);
    reply_bool(a, m, "attached", s->attached);
    reply_int(a, m, "holds", (int64_t)s->holds);
    reply_int(a, m, "waits", (int64_t)s->waits);
    reply_int(a, m, "variables", (int64_t)s->variables);
    return m;
}

static struct reply *namespace_map(struct arena *a, struct reply *in,
                                   const struct namespace_row *n, uint64_t now_ms)
{
    struct reply *m = reply_map(a, in, NULL);
    reply_text(a, m, "name", n->name);
    reply_text(a, m, "description", n->description);
    reply_int(a, m, "created_ms_ago", (int64_t)(now_ms - n->created_ms));
    reply_int(a, m, "updated_ms_ago", (int64_t)(now_ms - n->updated_ms));
    reply_int(a, m, "locks", (int64_t)n->locks);
    reply_int(a, m, "held", (int64_t)n->held);
    reply_int(a, m, "waiting", (int64_t)n->waiting);
    reply_int(a, m, "tables", (int64_t)n->tables);
    reply_int(a, m, "variables", (int64_t)n->variables);
    reply_int(a, m, "waiting_transactions", (int64_t)n->transactions);
    reply_int(a, m, "shard", (int64_t)n->shard);
    return m;
}

static struct reply *lock_map(struct arena *a, struct reply *in, const struct lock_row *lock)
{
    struct reply *m = reply_map(a, in, NULL);
    answer_lock(a, m, lock, false);
    return m;
}

/* {"locks":[...],"next":name or null}; RESP [[...], next]. `next` is the AFTER of the next
 * page. A page whose text would be too long ends early. */
static struct reply *list_rows(const struct event *ev, enum op_kind op, struct arena *a)
{
    struct reply *r = row(a);
    struct slice last = SLICE("");
    size_t bytes = 0, i = 0;
    struct reply *list = reply_list(a, r,
                                    op == OP_LIST           ? "locks"
                                    : op == OP_SESSION_LIST ? "sessions"
                                                            : "namespaces");
    for (; i < ev->n_rows && bytes < LIMIT_LIST_BYTES; i++) {
        const struct reply *one;
        if (op == OP_LIST) {
            one = lock_map(a, list, &ev->locks[i]);
            last = ev->locks[i].name;
        } else if (op == OP_SESSION_LIST) {
            one = session_map(a, list, &ev->sessions[i]);
            last = ev->sessions[i].id;
        } else {
            one = namespace_map(a, list, &ev->namespaces[i], ev->at_ms);
            last = ev->namespaces[i].name;
        }
        bytes += json_bytes(one);
    }
    if (ev->more || i < ev->n_rows)
        reply_text(a, r, "next", last);
    else
        reply_null(a, r, "next");
    return r;
}

static struct reply *rows_of(const struct event *ev, struct manner manner, struct arena *a)
{
    enum op_kind op = (enum op_kind)manner.op;
    if (op == OP_LIST || op == OP_SESSION_LIST || op == OP_NAMESPACE_LIST)
        return list_rows(ev, op, a);
    if (op >= OP_ACCOUNT_SHOW && op <= OP_TOKEN_LIST)
        return answer_account(ev, manner, SLICE(""), a);
    if (op == OP_TABLE_LIST || op == OP_TABLE_SHOW)
        return answer_tables(ev, op, a);
    if (op == OP_HOLDERS || op == OP_WAITERS)
        return answer_crowd(ev, op, a);
    if (op == OP_SESSION_ITEMS)
        return answer_items(ev, manner, a);
    if (ev->n_rows == 0)
        return reply_error(a, BELAY_ERR_NOT_FOUND, "%s", err_text(BELAY_ERR_NOT_FOUND));
    if (op == OP_SESSION_SHOW)
        return session_map(a, NULL, &ev->sessions[0]);
    if (op == OP_NAMESPACE_SHOW)
        return namespace_map(a, NULL, &ev->namespaces[0], ev->at_ms);
    return flag(lock_map(a, NULL, &ev->locks[0]), REPLY_TAGGED);
}

/* A stale one says for how long it may have been so. */
static struct reply *rows(const struct event *ev, struct manner manner, struct arena *a)
{
    struct reply *r = rows_of(ev, manner, a);
    if (ev->stale && r->kind == REPLY_MAP)
        reply_int(a, r, "stale_ms", (int64_t)ev->age_ms);
    return r;
}

static struct reply *failed(const struct event *ev, struct arena *a)
{
    if (ev->text.len == 0)
        return reply_error(a, ev->err, "%s", err_text(ev->err));
    return reply_error(a, ev->err, "%.*s", (int)ev->text.len, ev->text.data);
}

static struct reply *plain(const struct event *ev, struct manner manner, struct arena *a)
{
    switch (ev->kind) {
    case EVENT_GRANTED:
        return granted(ev, manner, a);
    case EVENT_QUEUED:
        return queued(ev, manner, a);
    case EVENT_REFUSED:
    case EVENT_LEFT:
        return refused(ev, manner, a);
    case EVENT_TIMEOUT:
        return timed_out(ev, manner, a);
    case EVENT_DEADLOCK:
        return deadlock(ev, manner, a);
    case EVENT_RELEASED:
        return yes_or_no(ev, "released", manner, a);
    case EVENT_RENEWED:
        return renewed(ev, a);
    case EVENT_BODY_SET:
        return ok_or(renewed(ev, a), manner, a);
    case EVENT_CHECKED:
        return yes_or_no(ev, "current", manner, a);
    case EVENT_BROKEN:
        return counted(ev, "broken", manner, a);
    case EVENT_SESSION_OPENED:
        return session_opened(ev, a);
    case EVENT_SESSION_KEPT:
        return session_kept(ev, manner, a);
    case EVENT_SESSION_ENDED:
        return counted(ev, "freed", manner, a);
    case EVENT_NAMESPACE_CREATED:
    case EVENT_NAMESPACE_UPDATED:
    case EVENT_NAMESPACE_DELETED:
        return namespace_changed(ev, manner, a);
    case EVENT_ACCOUNT_CREATED:
    case EVENT_ACCOUNT_UPDATED:
    case EVENT_ACCOUNT_DELETED:
    case EVENT_TOKEN_CREATED:
    case EVENT_TOKEN_ROTATED:
    case EVENT_TOKEN_REVOKED:
        return answer_account(ev, manner, SLICE(""), a);
    case EVENT_ROWS:
        return rows(ev, manner, a);
    case EVENT_FAILED:
        return failed(ev, a);
    case EVENT_OVERDUE: /* news only: nobody asked */
    case EVENT_TOKEN_USED:
    case EVENT_AUTH_RESET:
    case EVENT_EXPIRED:
    case EVENT_VARIABLE_EXPIRED:
    case EVENT_TXN: /* answer_txn() */
    case EVENT_KIND_COUNT:
        break;
    }
    return reply_error(a, BELAY_ERR_INTERNAL, "no answer has the form %s",
                       event_word(ev->kind));
}

/* --- the Redis door --- */

static struct reply *number(struct arena *a, int64_t v)
{
    return reply_int(a, NULL, NULL, v);
}

static struct reply *redis_lock(const struct event *ev, struct manner manner, struct arena *a)
{
    const struct lock_row *lock = ev->n_rows && ev->locks ? &ev->locks[0] : NULL;
    const struct holder_row *h = lock && lock->n_holders ? &lock->holders[0] : NULL;
    if (manner.form == FORM_OWNER)
        return h ? reply_text(a, NULL, NULL, h->owner) : reply_null(a, NULL, NULL);
    if (manner.form == FORM_EXISTS)
        return number(a, h != NULL);
    if (!h)
        return number(a, -2);
    if (h->forever)
        return number(a, -1);
    int64_t ms = (int64_t)h->expires_in_ms;
    return number(a, manner.form == FORM_TTL ? (ms + 500) / 1000 : ms);
}

static struct reply *redis(const struct event *ev, struct manner manner, struct arena *a)
{
    bool stale = ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_STALE;
    if (ev->kind == EVENT_FAILED && !stale)
        return failed(ev, a);
    bool done = ev->kind == EVENT_GRANTED || ev->kind == EVENT_RENEWED;
    switch ((enum form)manner.form) {
    case FORM_OK_NIL:
        return done ? ok_or(NULL, manner, a) : reply_null(a, NULL, NULL);
    case FORM_COUNT:
        return number(a, done || ev->count > 0 ? manner.count : 0);
    case FORM_RELEASED:
        return number(a, (int64_t)(ev->count < manner.count ? ev->count : manner.count));
    case FORM_OWNER:
    case FORM_EXISTS:
    case FORM_PTTL:
    case FORM_TTL:
        return redis_lock(ev, manner, a);
    case FORM_PLAIN:
    case FORM_KEPT_ONE:
    case FORM_GLOCK_ACQUIRE:
    case FORM_GLOCK_RENEW:
    case FORM_GLOCK_RELEASE:
        break;
    }
    return plain(ev, manner, a);
}

/* --- Glock --- */

enum { RFC3339_BYTES = 48 };
static const uint64_t NS_PER_S = 1000000000;

static struct slice rfc3339(struct arena *a, uint64_t wall_ns)
{
    char *text = arena_alloc(a, RFC3339_BYTES);
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm day;
    (void)gmtime_r(&seconds, &day);
    size_t n = strftime(text, RFC3339_BYTES, "%Y-%m-%dT%H:%M:%S", &day);
    n +=
        (size_t)snprintf(text + n, RFC3339_BYTES - n, ".%09uZ", (unsigned)(wall_ns % NS_PER_S));
    return slice_of(text, n);
}

static struct reply *glock_error(struct arena *a, int status, struct slice what)
{
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "error", what);
    r->status = status;
    return r;
}

static struct reply *glock(const struct event *ev, struct manner manner, uint64_t wall_ns,
                           struct arena *a)
{
    bool stale = ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_STALE;
    if (ev->kind == EVENT_FAILED && !stale)
        return glock_error(a, err_status(ev->err), failed(ev, a)->text);
    if (stale)
        return glock_error(a, 403, SLICE("Lock expired"));
    if (manner.form != FORM_GLOCK_ACQUIRE)
        return reply_new(a, REPLY_NONE);
    if (ev->kind != EVENT_GRANTED)
        return glock_error(a, 403, SLICE("Lock in use"));
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "acquireTime", rfc3339(a, wall_ns));
    reply_text(a, r, "expireTime", rfc3339(a, wall_ns + ev->expires_in_ms * 1000000));
    reply_int(a, r, "fence", (int64_t)ev->fence);
    reply_text(a, r, "body", ev->text);
    return r;
}

struct reply *answer_event(const struct event *ev, struct manner manner, uint64_t wall_ns,
                           struct arena *a)
{
    if (manner.form == FORM_PLAIN || manner.form == FORM_KEPT_ONE)
        return plain(ev, manner, a);
    if (manner.form >= FORM_GLOCK_ACQUIRE)
        return glock(ev, manner, wall_ns, a);
    return redis(ev, manner, a);
}

struct reply *answer_push(const struct event *ev, struct arena *a)
{
    struct reply *r = reply_new(a, REPLY_PUSH);
    reply_text(a, r, NULL, status_of(ev));
    reply_text(a, r, NULL, ev->kind == EVENT_SESSION_ENDED ? ev->session : ev->name);
    reply_int(a, r, NULL, (int64_t)ev->fence);
    reply_int(a, r, NULL, (int64_t)ev->ticket);
    reply_int(a, r, NULL, ev->forever ? -1 : (int64_t)ev->expires_in_ms);
    if (ev->kind == EVENT_GRANTED || ev->kind == EVENT_FAILED)
        reply_text(a, r, NULL, ev->text);
    else
        reply_text(a, r, NULL, slice_str(reason_word(ev->reason)));
    return r;
}

struct reply *answer_push_by(const struct event *ev, struct arena *a)
{
    if (ev->kind != EVENT_BROKEN || (ev->by.len == 0 && ev->text.len == 0))
        return NULL;
    struct reply *r = reply_new(a, REPLY_PUSH);
    reply_text(a, r, NULL, SLICE("broken-by"));
    reply_text(a, r, NULL, ev->name);
    reply_int(a, r, NULL, (int64_t)ev->fence);
    reply_text(a, r, NULL, ev->by);
    reply_text(a, r, NULL, ev->text);
    return r;
}

static void put_some_text(struct arena *a, struct reply *m, const char *key, struct slice text)
{
    if (text.len)
        reply_text(a, m, key, text);
}

static void put_some_int(struct arena *a, struct reply *m, const char *key, uint64_t v)
{
    if (v)
        reply_int(a, m, key, (int64_t)v);
}

struct reply *answer_news(const struct event *ev, uint64_t seq, struct arena *a)
{
    struct reply *m = reply_new(a, REPLY_MAP);
    reply_int(a, m, "seq", (int64_t)seq);
    reply_text(a, m, "event", slice_str(event_word(ev->kind)));
    reply_int(a, m, "at_ms", (int64_t)ev->at_ms);
    put_some_int(a, m, "time_ms", ev->wall_ms);
    reply_text(a, m, "namespace", ev->ns);
    put_some_text(a, m, "name", ev->name);
    put_some_text(a, m, "owner", ev->owner);
    put_some_text(a, m, "session", ev->session);
    if (ev->mode != MODE_NONE)
        reply_text(a, m, "mode", slice_str(lock_mode_word(ev->mode)));
    put_some_int(a, m, "fence", ev->fence);
    put_some_int(a, m, "ticket", ev->ticket);
    put_some_int(a, m, "position", ev->position);
    put_some_text(a, m, "reason", slice_str(reason_word(ev->reason)));
    if (ev->kind == EVENT_BROKEN)
        put_some_text(a, m, "why", ev->text);
    put_some_text(a, m, "by", ev->by);
    if (ev->kind == EVENT_GRANTED || ev->kind == EVENT_RENEWED || ev->kind == EVENT_OVERDUE) {
        if (ev->forever)
            reply_null(a, m, "expires_in_ms");
        else
            reply_int(a, m, "expires_in_ms", (int64_t)ev->expires_in_ms);
    }
    put_some_int(a, m, "waited_ms", ev->waited_ms);
    put_some_int(a, m, "count", ev->count);
    return m;
}

enum outcome answer_outcome(const struct event *ev)
{
    if (ev->kind == EVENT_FAILED)
        return OUTCOME_ERROR;
    bool refusal = ev->kind == EVENT_REFUSED || ev->kind == EVENT_TIMEOUT ||
                   ev->kind == EVENT_DEADLOCK || ev->kind == EVENT_LEFT ||
                   (ev->kind == EVENT_TXN && ev->status != TXN_OK);
    return refusal ? OUTCOME_REFUSED : OUTCOME_OK;
}
