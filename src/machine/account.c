/* account.c - accounts: what belongs to whom, and how much of it there may be.
 *
 *   group 0   knows them all: names, limits, and tokens (token.c)
 *   a shard   knows the limits; group 0 tells it by messages
 *
 * Each group counts what it keeps of an account, exactly: namespaces and sessions in group 0,
 * what is in a namespace in its shard. A limit holds in each group. */
#include "machine/account.h"

#include "auth/token.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/namespace.h"
#include "machine/outbox.h"
#include "machine/request.h"
#include "machine/snapshot.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

/* --- bounds --- */

void limits_put(const struct limits *limits, struct buf *out)
{
    for (uint64_t i = 0; i < QUOTA_COUNT; i++) {
        if (!limits->given[i])
            continue;
        BELAY_CHECK(limits->at[i] <= INT64_MAX);
        varint_put(out, i);
        varint_put(out, limits->at[i]);
    }
}

bool limits_get(struct slice bytes, struct limits *ret)
{
    struct reader r = {.left = bytes};
    *ret = (struct limits){0};
    uint64_t least = 0; /* each once, in their order */
    while (r.left.len && !r.bad) {
        uint64_t i = reader_u64(&r);
        uint64_t limit = reader_u64(&r);
        if (r.bad || i < least || i >= QUOTA_COUNT || limit > INT64_MAX)
            return false;
        ret->given[i] = true;
        ret->at[i] = limit;
        least = i + 1;
    }
    return !r.bad;
}

const char *account_check(const struct op *op)
{
    struct limits limits;
    BELAY_DCHECK(op_is(op->kind, KIND_OF_ACCOUNT));
    bool of_account = op->kind == OP_ACCOUNT_CREATE || op->kind == OP_ACCOUNT_UPDATE;
    if (op->kind == OP_AUTH_RESET)
        return NULL;
    if (!of_account && op->kind != OP_ACCOUNT_DELETE)
        return token_check(op);
    if (op->account.len == 0)
        return "account is empty";
    if (op->kind == OP_ACCOUNT_CREATE && !token_is_id(op->account))
        return "an account's id has 16 hexadecimal digits";
    if (op->name.len > LIMIT_EMAIL_BYTES)
        return "email is over 254 bytes";
    return !of_account || limits_get(op->body, &limits) ? NULL : "these bytes are not limits";
}

/* --- telling --- */

struct event *account_tell(const struct machine *m, const struct op *op, enum event_kind kind,
                           struct effects *fx)
{
    BELAY_CHECK(kind < EVENT_KIND_COUNT);
    struct event *ev = effects_add(fx, kind);
    ev->news = true;
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->account = arena_copy(&fx->arena, or_default(op->account));
    ev->name = arena_copy(&fx->arena, op->name);
    ev->posted = outbox_everybody(m);
    return ev;
}

/* --- accounts --- */

static void set_text(char **at, size_t *len, struct slice text)
{
    BELAY_CHECK(text.len == 0 || text.data);
    free(*at);
    *at = text.len ? mem_dup(text.data, text.len) : NULL;
    *len = text.len;
}

void account_free(struct account *a)
{
    BELAY_CHECK(a->n == 0 || a->spaces);
    free(a->spaces);
    free(a->email);
    free(a->full_name);
    free(a->name);
    free(a);
}

static void set_limits(struct account *a, struct slice body)
{
    struct limits limits;
    bool sound = limits_get(body, &limits);
    BELAY_CHECK(sound); /* account_check() has seen it */
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        if (limits.given[i])
            a->limits[i] = limits.at[i];
}

static bool email_is_taken(const struct machine *m, struct slice email,
                           const struct account *but)
{
    BELAY_DCHECK(m->group == 0); /* a shard knows no email */
    for (size_t i = 0; i < m->n_accounts; i++) {
        const struct account *a = m->accounts[i];
        if (a != but && !a->gone && email.len &&
            slice_eq(account_text(a->email, a->email_len), email))
            return true;
    }
    return false;
}

void account_create(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(m->group == 0 && op->kind == OP_ACCOUNT_CREATE);
    struct account *a = account_any(m, op->account);
    if (!outbox_may_tell(m, op, fx))
        return;
    if (a) {
        request_failed(op, BELAY_ERR_EXISTS,
                       a->gone ? "an account with this id is being deleted"
                               : "an account with this id exists",
                       fx);
        return;
    }
    if (email_is_taken(m, op->name, NULL)) {
        request_failed(op, BELAY_ERR_EXISTS, "account with this email already exists", fx);
        return;
    }
    if (m->n_accounts >= LIMIT_ACCOUNTS) {
        request_failed(op, BELAY_ERR_LIMIT, "there are LIMIT_ACCOUNTS (10000) accounts", fx);
        return;
    }
    a = account_add(m, op->account);
    set_text(&a->email, &a->email_len, op->name);
    set_text(&a->full_name, &a->full_name_len, op->owner);
    a->created_ms = a->updated_ms = op->wall_ms;
    set_limits(a, op->body);
    (void)space_add(m, a, SLICE("default"));
    struct op message = {.kind = OP_ACCOUNT_CREATE, .account = op->account, .body = op->body};
    outbox_post_all(m, &message);
    struct op place = {
        .kind = OP_NAMESPACE_CREATE, .account = op->account, .ns = SLICE("default")};
    outbox_post(m, (unsigned)op->target, &place);
    account_tell(m, op, EVENT_ACCOUNT_CREATED, fx);
}

struct account *account_named(const struct machine *m, const struct op *op, struct effects *fx)
{
    struct account *a = account_find(m, op->account);
    if (!a)
        request_failed(op, BELAY_ERR_NOT_FOUND, "account not found", fx);
    BELAY_CHECK(!a || !a->gone);
    return a;
}

void account_update(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_ACCOUNT_UPDATE);
    struct account *a = outbox_may_tell(m, op, fx) ? account_named(m, op, fx) : NULL;
    if (!a)
        return;
    if (op->flags & OP_SET_EMAIL && email_is_taken(m, op->name, a)) {
        request_failed(op, BELAY_ERR_EXISTS, "account with this email already exists", fx);
        return;
    }
    if (op->flags & OP_SET_EMAIL)
        set_text(&a->email, &a->email_len, op->name);
    if (op->flags & OP_SET_NAME)
        set_text(&a->full_name, &a->full_name_len, op->owner);
    a->updated_ms = op->wall_ms;
    set_limits(a, op->body);
    struct op message = {.kind = OP_ACCOUNT_UPDATE, .account = op->account, .body = op->body};
    outbox_post_all(m, &message);
    account_tell(m, op, EVENT_ACCOUNT_UPDATED, fx)->name =
        arena_copy(&fx->arena, account_text(a->email, a->email_len));
}

/* It and its namespaces are gone; what is in them is taken apart later, in batches. */
static void account_vanish(struct machine *m, struct account *a, struct effects *fx)
{
    while (a->n) {
        struct space *s = a->spaces[a->n - 1]; /* the last one: the others need not move */
        space_doom(m, s);
        parked_leave_space(m, s, fx);
    }
    BELAY_CHECK(a->n == 0);
    token_remove_all(m, a);
    a->gone = true;
    account_left(m, a);
    BELAY_CHECK(a->gone && a->n_tokens == 0);
}

void account_left(struct machine *m, const struct account *a)
{
    if (a->gone && !a->n_doomed && !a->used[QUOTA_SESSIONS])
        m->accounts_left = true;
}

/* A client without an account is in this one. */
static bool stays(const struct account *a)
{
    return slice_eq(account_name(a), SLICE("default"));
}

void account_delete(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_ACCOUNT_DELETE);
    struct account *a = outbox_may_tell(m, op, fx) ? account_named(m, op, fx) : NULL;
    if (!a)
        return;
    bool in_use = a->n_tokens || a->n > 1 || a->used[QUOTA_SESSIONS] || a->used[QUOTA_LOCKS] ||
                  a->used[QUOTA_VARIABLES];
    if (stays(a)) {
        request_failed(op, BELAY_ERR_IN_USE, "the account \"default\" stays", fx);
    } else if (in_use && !(op->flags & OP_FORCE)) {
        request_failed(op, BELAY_ERR_IN_USE,
                       "the account has tokens, sessions, or namespaces in use; use force", fx);
    } else {
        account_tell(m, op, EVENT_ACCOUNT_DELETED, fx);
        account_vanish(m, a, fx);
        struct op message = {.kind = OP_ACCOUNT_DELETE, .account = op->account};
        outbox_post_all(m, &message);
    }
}

/* --- the same in a shard --- */

void account_message(struct machine *m, const struct op *message, struct effects *fx)
{
    BELAY_CHECK(m->group != 0);
    struct account *a = account_any(m, message->account);
    if (message->kind == OP_ACCOUNT_DELETE) {
        if (a && !stays(a))
            account_vanish(m, a, fx);
        return;
    }
    if (!a)
        a = account_add(m, message->account);
    a->gone = false; /* it was deleted and made again, before it had been taken apart here */
    set_limits(a, message->body);
}

/* --- looks --- */

static void account_row(const struct account *a, struct account_row *row, struct effects *fx)
{
    BELAY_CHECK(!a->gone);
    *row = (struct account_row){
        .id = arena_copy(&fx->arena, account_name(a)),
        .email = arena_copy(&fx->arena, account_text(a->email, a->email_len)),
        .full_name = arena_copy(&fx->arena, account_text(a->full_name, a->full_name_len)),
        .created_ms = a->created_ms,
        .updated_ms = a->updated_ms,
        .tokens = a->n_tokens};
    memcpy(row->limits, a->limits, sizeof row->limits);
    memcpy(row->used, a->used, sizeof row->used);
}

void machine_add_account(const struct machine *m, struct account_row *row)
{
    BELAY_CHECK(row->id.len > 0);
    const struct account *a = account_find(m, row->id);
    for (size_t i = 0; a && i < QUOTA_COUNT; i++)
        if (i != QUOTA_NAMESPACES && i != QUOTA_SESSIONS) /* group 0 counts those */
            row->used[i] += a->used[i];
}

size_t machine_accounts(const struct machine *m)
{
    return m->n_accounts;
}

bool machine_account_at(const struct machine *m, size_t i, struct account_row *ret)
{
    const struct account *a = i < m->n_accounts ? m->accounts[i] : NULL;
    if (!a || a->gone)
        return false;
    BELAY_DCHECK(a->n == a->used[QUOTA_NAMESPACES]);
    *ret = (struct account_row){.id = account_name(a), .tokens = a->n_tokens};
    memcpy(ret->limits, a->limits, sizeof ret->limits);
    memcpy(ret->used, a->used, sizeof ret->used);
    return true;
}

static size_t page_size(const struct op *op)
{
    BELAY_CHECK(op->limit <= LIMIT_LIST);
    return op->limit ? (size_t)op->limit : 100;
}

static struct event *rows(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op_is_read(op->kind));
    struct event *ev = effects_add(fx, EVENT_ROWS);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    return ev;
}

/* In the order in which they were made; `text` is the id of the last one that was seen. */
static void list_accounts(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_ACCOUNT_LIST);
    struct event *ev = rows(m, op, fx);
    bool behind = op->text.len == 0;
    ev->accounts = arena_alloc(&fx->arena, page_size(op) * sizeof *ev->accounts);
    for (size_t i = 0; i < m->n_accounts && !ev->more; i++) {
        const struct account *a = m->accounts[i];
        if (behind && !a->gone && ev->n_rows == page_size(op))
            ev->more = true;
        else if (behind && !a->gone)
            account_row(a, &ev->accounts[ev->n_rows++], fx);
        behind = behind || slice_eq(account_name(a), op->text);
    }
}

void account_query(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op_is_read(op->kind));
    if (op->kind == OP_ACCOUNT_LIST) {
        list_accounts(m, op, fx);
        return;
    }
    const struct account *a = account_named(m, op, fx);
    if (!a)
        return;
    struct event *ev = rows(m, op, fx);
    ev->accounts = arena_alloc(&fx->arena, sizeof *ev->accounts);
    ev->n_rows = 1;
    account_row(a, ev->accounts, fx);
}

/* --- quotas --- */

bool quota_reached(const struct account *a, enum quota quota, uint64_t more)
{
    BELAY_CHECK((size_t)quota < QUOTA_COUNT);
    return a->limits[quota] && a->used[quota] + more > a->limits[quota];
}

bool quota_outgrown(const struct account *a, uint64_t was, uint64_t is)
{
    return is > was && quota_reached(a, QUOTA_BYTES, is - was);
}

struct event *quota_refuse(const struct account *a, enum quota quota, const struct op *op,
                           struct effects *fx)
{
    BELAY_CHECK((size_t)quota < QUOTA_COUNT && a->limits[quota] > 0);
    struct buf text = {0};
    buf_printf(&text, "the account may have %llu %s and has %llu",
               (unsigned long long)a->limits[quota], quota_word(quota),
               (unsigned long long)a->used[quota]);
    struct event *ev = request_failed(op, BELAY_ERR_QUOTA, "", fx);
    ev->text = arena_copy(&fx->arena, buf_slice(&text));
    buf_done(&text);
    return ev;
}

/* --- snapshots --- */

void snapshot_put_account(struct buf *out, const struct account *a)
{
    BELAY_CHECK(a->email_len <= LIMIT_EMAIL_BYTES && a->full_name_len <= LIMIT_FULL_NAME_BYTES);
    varint_put(out, a->gone);
    varint_put_bytes(out, account_text(a->email, a->email_len));
    varint_put_bytes(out, account_text(a->full_name, a->full_name_len));
    varint_put(out, a->created_ms);
    varint_put(out, a->updated_ms);
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        varint_put(out, a->limits[i]);
}

void loader_account(struct loader *ld, struct account *a)
{
    BELAY_DCHECK(a->n == 0 && a->n_tokens == 0);
    a->gone = loader_bounded(ld, 1);
    set_text(&a->email, &a->email_len, loader_bytes(ld, 0, LIMIT_EMAIL_BYTES));
    set_text(&a->full_name, &a->full_name_len, loader_bytes(ld, 0, LIMIT_FULL_NAME_BYTES));
    a->created_ms = loader_time(ld);
    a->updated_ms = loader_time(ld);
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        a->limits[i] = loader_bounded(ld, INT64_MAX);
}
