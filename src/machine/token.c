/* token.c - tokens: who may ask.
 *
 *   group 0   knows all of them: the sums of their secrets, their rules
 *   a shard   knows of each its number and which generations of it count; group 0 tells it by
 *             messages
 *
 * A node checks a request by what its copy of group 0 says, which may be behind. So each op
 * carries the number of its token and the generation that was checked, and the group in which
 * it takes effect looks once more: a token that was revoked there, or a secret that was
 * replaced, does nothing. The answer to a revocation waits until all groups have it
 * (engine/router.c).
 *
 * Times of tokens are times of day, by the clock of the node that was asked: nothing in here
 * compares them with the machine's own time. */
#include "auth/token.h"

#include "auth/rule.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/account.h"
#include "machine/holders.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/outbox.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/snapshot.h"

#include <stdlib.h>

enum { LIST_ROWS = 100 };

/* One answer for all of them: wrong, expired, revoked, never there. */
static const char token_invalid[] = "the token is not valid, or not any more";

const char *token_check(const struct op *op)
{
    BELAY_DCHECK(op_is(op->kind, KIND_OF_ACCOUNT));
    if (!token_is_id(op->name))
        return "a token's id has 16 hexadecimal digits";
    bool message = op->fence != 0;
    bool has_sum = op->kind != OP_TOKEN_REVOKE && op->kind != OP_TOKEN_USED;
    if (has_sum && !message && op->owner.len != TOKEN_SUM_BYTES)
        return "the sum of a secret has 32 bytes";
    if (op->fence > UINT32_MAX)
        return "no such token";
    return rules_check(op->body) ? NULL : "not the bytes of rules";
}

/* --- tokens --- */

static uint64_t hash_number(uint64_t number)
{
    uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 32;
}

static bool same_number(struct map_node *node, const void *key)
{
    return map_item(node, const struct token, by_number)->number == *(const uint64_t *)key;
}

static struct token *token_numbered(const struct machine *m, uint64_t number)
{
    BELAY_DCHECK(m->tokens.count == m->tokens_by_id.count);
    struct map_node *n = map_find(&m->tokens, hash_number(number), same_number, &number);
    return n ? map_item(n, struct token, by_number) : NULL;
}

struct slice token_id(const struct machine *m, uint64_t number)
{
    const struct token *t = number ? token_numbered(m, number) : NULL;
    return t ? slice_of(t->id, TOKEN_ID_BYTES) : SLICE("");
}

static bool same_id(struct map_node *node, const void *key)
{
    return memcmp(map_item(node, const struct token, by_id)->id, key, TOKEN_ID_BYTES) == 0;
}

static struct token *token_find(const struct machine *m, struct slice id)
{
    if (id.len != TOKEN_ID_BYTES)
        return NULL;
    struct map_node *n =
        map_find(&m->tokens_by_id, hash_bytes(&m->key, id.data, id.len), same_id, id.data);
    BELAY_DCHECK(!n || map_item(n, struct token, by_id)->number > 0);
    return n ? map_item(n, struct token, by_id) : NULL;
}

struct token_parts {
    struct account *account; /* group 0 */
    struct slice id, sum, old_sum, description, rules;
    uint64_t number, generation, old_generation;
    uint64_t created_ms, expires_ms, used_ms, overlap_ms;
};

static void token_add(struct machine *m, const struct token_parts *from)
{
    BELAY_CHECK(from->id.len == TOKEN_ID_BYTES && from->rules.len <= RULES_BYTES_MAX);
    BELAY_CHECK(from->number > 0 && from->number <= UINT32_MAX);
    BELAY_CHECK(from->sum.len == 0 || from->sum.len == TOKEN_SUM_BYTES);
    struct token *t = mem_alloc(sizeof *t + from->rules.len);
    *t = (struct token){.number = (uint32_t)from->number,
                        .generation = from->generation,
                        .old_generation = from->old_generation,
                        .account = from->account,
                        .created_ms = from->created_ms,
                        .expires_ms = from->expires_ms,
                        .used_ms = from->used_ms,
                        .overlap_ms = from->overlap_ms,
                        .description_len = from->description.len,
                        .rules_len = from->rules.len};
    memcpy(t->id, from->id.data, TOKEN_ID_BYTES);
    if (from->sum.len)
        memcpy(t->sum, from->sum.data, TOKEN_SUM_BYTES);
    if (from->old_sum.len)
        memcpy(t->old_sum, from->old_sum.data, TOKEN_SUM_BYTES);
    if (from->rules.len)
        memcpy(t->rules, from->rules.data, from->rules.len);
    if (from->description.len)
        t->description = mem_dup(from->description.data, from->description.len);
    BELAY_DCHECK(!token_numbered(m, from->number));
    list_push_back(&m->token_list, &t->in_machine);
    map_add(&m->tokens, &t->by_number, hash_number(t->number));
    map_add(&m->tokens_by_id, &t->by_id, hash_bytes(&m->key, t->id, TOKEN_ID_BYTES));
    if (t->account)
        t->account->n_tokens++;
    BELAY_CHECK(m->tokens.count == m->tokens_by_id.count);
}

static void token_remove(struct machine *m, struct token *t)
{
    BELAY_DCHECK(token_numbered(m, t->number) == t);
    if (t->account) {
        BELAY_CHECK(t->account->n_tokens > 0);
        t->account->n_tokens--;
    }
    list_remove(&t->in_machine);
    map_remove(&m->tokens, &t->by_number);
    map_remove(&m->tokens_by_id, &t->by_id);
    free(t->description);
    free(t);
    BELAY_CHECK(m->tokens.count == m->tokens_by_id.count);
}

void token_remove_all(struct machine *m, const struct account *a)
{
    list_each_safe(it, &m->token_list)
    {
        struct token *t = list_item(it, struct token, in_machine);
        if (!a || t->account == a)
            token_remove(m, t);
    }
    BELAY_CHECK(a ? a->n_tokens == 0 : m->tokens.count == 0);
}

bool token_lives(const struct machine *m, uint64_t number)
{
    return number == 0 || token_numbered(m, number) != NULL;
}

/* --- who may --- */

/* What nodes and groups say to each other, and what a client need not be known for. */
static bool is_client_s(const struct op *op)
{
    switch (op->kind) { /* no default: a new kind must be placed here */
    case OP_TICK:
    case OP_CANCEL:
    case OP_SESSION_DETACH:
    case OP_SESSION_ENROL:
    case OP_MESSAGES:
    case OP_TAKEN:
    case OP_LEVEL:
    case OP_NODE:
    case OP_AUTH_INIT:
    case OP_AUTH_RESET:
    case OP_TOKEN_USED:
    case OP_LOGIN:
        return false;
    case OP_SESSION_ATTACH: /* again, by the node of the connection: nobody asks */
        return op->asker != 0;
    case OP_SESSION_KEEPALIVE: /* by the node of an attached session: it has no token */
        return op->token != 0;
    case OP_ACQUIRE:
    case OP_RELEASE:
    case OP_RENEW:
    case OP_CONVERT:
    case OP_BODY:
    case OP_BREAK:
    case OP_SESSION_OPEN:
    case OP_SESSION_CLOSE:
    case OP_NAMESPACE_CREATE:
    case OP_NAMESPACE_UPDATE:
    case OP_NAMESPACE_DELETE:
    case OP_TXN:
    case OP_ACCOUNT_CREATE:
    case OP_ACCOUNT_UPDATE:
    case OP_ACCOUNT_DELETE:
    case OP_TOKEN_CREATE:
    case OP_TOKEN_ROTATE:
    case OP_TOKEN_REVOKE:
    case OP_CHECK:
    case OP_SHOW:
    case OP_LIST:
    case OP_SESSION_SHOW:
    case OP_SESSION_LIST:
    case OP_NAMESPACE_SHOW:
    case OP_NAMESPACE_LIST:
    case OP_TABLE_LIST:
    case OP_TABLE_SHOW:
    case OP_ACCOUNT_SHOW:
    case OP_ACCOUNT_LIST:
    case OP_TOKEN_LIST:
    case OP_FIND:
    case OP_HOLDERS:
    case OP_WAITERS:
    case OP_SESSION_ITEMS:
    case OP_KIND_COUNT:
        break;
    }
    return true;
}

bool token_refuses(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind < OP_KIND_COUNT);
    if (!is_client_s(op) || (op->token == 0 && !m->closed))
        return false;
    const struct token *t = op->token ? token_numbered(m, op->token) : NULL;
    if (t &&
        (op->rights == t->generation || (t->old_generation && op->rights == t->old_generation)))
        return false;
    request_failed(op, BELAY_ERR_LOGIN, op->token ? token_invalid : "log in first", fx);
    return true;
}

/* What was taken before anybody had to log in is nobody's. */
bool token_is_foreign(uint64_t asks, uint64_t took)
{
    return asks && took && asks != took;
}

static bool is_foreign(const struct op *op, uint64_t took, const struct session *session)
{
    bool in_session = op->session.len && slice_eq(session_id(session), op->session);
    return token_is_foreign(op->token, took) && !in_session;
}

/* Does it name a hold, or a place in the line, that another token took? */
static bool names_foreign(const struct machine *m, const struct space *s, const struct op *op,
                          struct slice name)
{
    BELAY_DCHECK(name.len > 0);
    const struct lock *l = lock_find(m, s, name);
    if (!l)
        return false;
    bool by_owner = op->owner.len && !op->fence && op->session.len == 0;
    struct who who = {op->owner, NULL};
    if (op->kind == OP_ACQUIRE) {
        const struct hold *h = by_owner ? holder_by_who(m, l, who) : NULL;
        if (h && is_foreign(op, h->token, h->session))
            return true;
    } else {
        struct hold *h = holder_named(m, l, op, m->now_ms, NULL);
        for (; h; h = holder_named(m, l, op, m->now_ms, h))
            if (is_foreign(op, h->token, h->session))
                return true;
    }
    const struct wait *w = by_owner && l->more && l->more->n_waits ? wait_of(m, l, who) : NULL;
    return w && is_foreign(op, w->token, w->session);
}

bool token_owns_session(const struct op *op, const struct session *s)
{
    BELAY_DCHECK(op->token <= UINT32_MAX);
    return !token_is_foreign(op->token, s->token) || op->flags & OP_SEES_ALL;
}

static bool any_foreign(const struct machine *m, const struct op *op)
{
    BELAY_DCHECK(op->token != 0 && op_is(op->kind, KIND_OF_HOLD));
    const struct space *s = space_find(m, op->account, op->ns);
    for (size_t i = 0; s && i <= op->more.n; i++)
        if (names_foreign(m, s, op, i ? op->more.items[i - 1] : op->name))
            return true;
    return false;
}

static const struct session *session_asked(const struct machine *m, const struct op *op)
{
    bool uses = op->kind != OP_SESSION_KEEPALIVE && op->kind != OP_SESSION_OPEN &&
                op->kind != OP_FIND; /* which only compares it */
    return uses && op->token && op->session.len ? session_find(m, op->account, op->session)
                                                : NULL;
}

bool token_overrides(const struct machine *m, const struct op *op)
{
    BELAY_DCHECK(op->flags & (OP_MAY_BREAK | OP_SEES_ALL));
    const struct session *session = session_asked(m, op);
    if (session && op->flags & OP_SEES_ALL && token_is_foreign(op->token, session->token))
        return true;
    return op->token && op->flags & OP_MAY_BREAK && op_is(op->kind, KIND_OF_HOLD) &&
           any_foreign(m, op);
}

bool token_guards(const struct machine *m, const struct op *op, struct effects *fx)
{
    const struct session *session = session_asked(m, op);
    if (session && !token_owns_session(op, session)) {
        request_failed(op, BELAY_ERR_DENIED,
                       "another token opened this session: that needs the right to break", fx);
        return true;
    }
    if (op->token && op_is(op->kind, KIND_OF_HOLD) && !(op->flags & OP_MAY_BREAK) &&
        any_foreign(m, op)) {
        request_failed(op, BELAY_ERR_DENIED,
                       "another token took it: that needs the right to break", fx);
        return true;
    }
    return false;
}

/* --- tokens asked for --- */

static struct token *token_named(const struct machine *m, const struct op *op,
                                 struct effects *fx)
{
    struct token *t = token_find(m, op->name);
    if (!t)
        request_failed(op, BELAY_ERR_NOT_FOUND, "no such token", fx);
    BELAY_DCHECK(m->group == 0 && (!t || t->account)); /* a shard is told by number */
    return t;
}

/* A message to a shard names a token by its number and has no sum. token_check() lets it pass,
 * so a request to group 0 must not look like one. */
static bool brings_sum(const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind != OP_TOKEN_REVOKE && op->kind != OP_TOKEN_USED);
    if (op->owner.len == TOKEN_SUM_BYTES)
        return true;
    request_failed(op, BELAY_ERR_SYNTAX, "the sum of a secret has 32 bytes", fx);
    return false;
}

static void token_make(struct machine *m, struct account *a, const struct op *op,
                       struct effects *fx)
{
    struct token_parts parts = {.account = a,
                                .id = op->name,
                                .sum = op->owner,
                                .description = op->text,
                                .rules = op->body,
                                .number = ++m->last_token,
                                .generation = 1,
                                .created_ms = op->wall_ms,
                                .expires_ms = op->until_ms};
    BELAY_CHECK(a && parts.number == m->last_token);
    BELAY_CHECK(m->group == 0); /* shards are told of tokens, they make none */
    token_add(m, &parts);
    struct op message = {.kind = op->kind,
                         .account = op->account,
                         .name = op->name,
                         .fence = m->last_token,
                         .rights = 1};
    outbox_post_all(m, &message);
    account_tell(m, op, EVENT_TOKEN_CREATED, fx);
}

void token_create(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_TOKEN_CREATE);
    struct account *a = outbox_may_tell(m, op, fx) ? account_named(m, op, fx) : NULL;
    if (!a || !brings_sum(op, fx))
        return;
    if (token_find(m, op->name))
        request_failed(op, BELAY_ERR_EXISTS, "a token with this id exists", fx);
    else if (a->n_tokens >= LIMIT_TOKENS)
        request_failed(op, BELAY_ERR_LIMIT, "the account has LIMIT_TOKENS (1000) tokens", fx);
    else if (m->last_token == UINT32_MAX)
        request_failed(op, BELAY_ERR_LIMIT, "no more tokens can be made", fx);
    else
        token_make(m, a, op, fx);
}

void token_init(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_AUTH_INIT);
    if (m->closed) {
        request_failed(op, BELAY_ERR_EXISTS,
                       "this was done before: log in with an operator's token", fx);
        return;
    }
    struct account *a = outbox_may_tell(m, op, fx) ? account_named(m, op, fx) : NULL;
    if (!a || !brings_sum(op, fx))
        return;
    if (token_find(m, op->name)) { /* of before a reset */
        request_failed(op, BELAY_ERR_EXISTS, "a token with this id exists", fx);
        return;
    }
    m->closed = true;
    token_make(m, a, op, fx);
}

/* The way back when every token is lost: the next AUTH_INIT makes a new one. The others
 * stay, and count again from then on. */
void token_reset(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_AUTH_RESET);
    if (!outbox_may_tell(m, op, fx))
        return;
    m->closed = false;
    struct op message = {.kind = OP_AUTH_RESET};
    outbox_post_all(m, &message);
    account_tell(m, op, EVENT_AUTH_RESET, fx);
}

static void token_renew(struct token *t, uint64_t generation, bool overlaps)
{
    t->old_generation = overlaps ? t->generation : 0;
    t->generation = generation;
    BELAY_CHECK(t->old_generation <= UINT64_MAX / 2);
}

void token_rotate(struct machine *m, const struct op *op, struct effects *fx)
{
    struct token *t = outbox_may_tell(m, op, fx) ? token_named(m, op, fx) : NULL;
    if (!t || !brings_sum(op, fx))
        return;
    BELAY_CHECK(op->owner.len == TOKEN_SUM_BYTES);
    token_renew(t, t->generation + 1, op->until_ms != 0);
    memcpy(t->old_sum, t->sum, TOKEN_SUM_BYTES);
    memcpy(t->sum, op->owner.data, TOKEN_SUM_BYTES);
    t->overlap_ms = op->until_ms;
    struct op message = {.kind = OP_TOKEN_ROTATE,
                         .name = op->name,
                         .fence = t->number,
                         .rights = t->generation,
                         .until_ms = op->until_ms};
    outbox_post_all(m, &message);
    account_tell(m, op, EVENT_TOKEN_ROTATED, fx);
}

void token_revoke(struct machine *m, const struct op *op, struct effects *fx)
{
    struct token *t = outbox_may_tell(m, op, fx) ? token_named(m, op, fx) : NULL;
    if (!t)
        return;
    struct op message = {.kind = OP_TOKEN_REVOKE, .name = op->name, .fence = t->number};
    outbox_post_all(m, &message);
    token_remove(m, t);
    BELAY_DCHECK(!token_find(m, op->name));
    account_tell(m, op, EVENT_TOKEN_REVOKED, fx);
}

void token_used(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_TOKEN_USED);
    struct token *t = token_find(m, op->name);
    if (t && op->wall_ms > t->used_ms)
        t->used_ms = op->wall_ms;
    struct event *ev = effects_add(fx, EVENT_TOKEN_USED);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
}

/* --- the same in a shard --- */

/* Numbers and generations rise, and no id comes twice; or it is no message of group 0, and a
 * snapshot with it would be refused. */
static void token_come(struct machine *m, const struct token_parts *parts)
{
    uint64_t last = 0;
    if (!list_empty(&m->token_list))
        last = list_item(m->token_list.prev, const struct token, in_machine)->number;
    if (parts->number > last && parts->generation > 0 && !token_find(m, parts->id))
        token_add(m, parts);
}

void token_message(struct machine *m, const struct op *message)
{
    BELAY_CHECK(m->group != 0);
    struct token *t = token_numbered(m, message->fence);
    struct token_parts parts = {.id = message->name,
                                .account = account_find(m, message->account),
                                .number = message->fence,
                                .generation = message->rights};
    if (message->kind == OP_AUTH_INIT || message->kind == OP_AUTH_RESET)
        m->closed = message->kind == OP_AUTH_INIT;
    if (message->kind == OP_TOKEN_REVOKE && t)
        token_remove(m, t);
    else if (message->kind == OP_TOKEN_ROTATE && t && message->rights > t->generation)
        token_renew(t, message->rights, message->until_ms != 0);
    else if (message->kind == OP_AUTH_INIT || message->kind == OP_TOKEN_CREATE)
        token_come(m, &parts);
}

/* --- looks --- */

static void token_row(const struct token *t, struct token_row *row, struct effects *fx)
{
    BELAY_CHECK(t->account);
    *row = (struct token_row){
        .account = arena_copy(&fx->arena, account_name(t->account)),
        .id = arena_copy(&fx->arena, slice_of(t->id, TOKEN_ID_BYTES)),
        .description = arena_copy(&fx->arena, account_text(t->description, t->description_len)),
        .rules = arena_copy(&fx->arena, slice_of(t->rules, t->rules_len)),
        .number = t->number,
        .generation = t->generation,
        .created_ms = t->created_ms,
        .expires_ms = t->expires_ms,
        .used_ms = t->used_ms,
        .overlap_ms = t->overlap_ms};
}

static void list_tokens(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_TOKEN_LIST);
    const struct account *a = account_named(m, op, fx);
    if (!a)
        return;
    struct event *ev = effects_add(fx, EVENT_ROWS);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    size_t page = op->limit ? (size_t)op->limit : LIST_ROWS;
    const struct token *after = token_find(m, op->text);
    ev->tokens = arena_alloc(&fx->arena, page * sizeof *ev->tokens);
    list_each (it, &m->token_list) {
        const struct token *t = list_item(it, const struct token, in_machine);
        if (t->account != a || (after && t->number <= after->number))
            continue;
        if (ev->n_rows == page) {
            ev->more = true;
            break;
        }
        BELAY_CHECK(ev->n_rows < page);
        token_row(t, &ev->tokens[ev->n_rows++], fx);
    }
}

void token_query(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op_is_read(op->kind));
    if (op->kind == OP_TOKEN_LIST) {
        list_tokens(m, op, fx);
        return;
    }
    struct token_row *row = arena_alloc(&fx->arena, sizeof *row);
    if (!machine_login(m, op, row, fx)) {
        request_failed(op, BELAY_ERR_LOGIN, token_invalid, fx);
        return;
    }
    struct event *ev = effects_add(fx, EVENT_ROWS);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->tokens = row;
    ev->n_rows = 1;
}

/* A token that is not there is compared all the same, with a sum that nobody has. */
bool machine_login(const struct machine *m, const struct op *op, struct token_row *ret,
                   struct effects *fx)
{
    static const unsigned char nobody[TOKEN_SUM_BYTES];
    BELAY_DCHECK(op->kind == OP_LOGIN);
    if (op->owner.len != TOKEN_SUM_BYTES)
        return false;
    const struct token *t = token_find(m, op->name);
    const unsigned char *sum = (const unsigned char *)op->owner.data;
    bool is_new = token_sums_equal(t ? t->sum : nobody, sum);
    bool is_old = token_sums_equal(t ? t->old_sum : nobody, sum);
    bool old_counts = t && t->old_generation && op->wall_ms < t->overlap_ms;
    bool in_time = t && (t->expires_ms == 0 || op->wall_ms < t->expires_ms);
    if (!t || !in_time || !(is_new || (is_old && old_counts)))
        return false;
    token_row(t, ret, fx);
    if (!is_new)
        ret->generation = t->old_generation;
    return true;
}

bool machine_closed(const struct machine *m)
{
    return m->closed;
}

uint64_t machine_token_generation(const struct machine *m, struct slice account,
                                  struct slice id)
{
    BELAY_DCHECK(m->group == 0); /* a shard does not know whose a token is */
    const struct token *t = token_find(m, id);
    return t && slice_eq(account_name(t->account), account) ? t->generation : 0;
}

bool machine_token(const struct machine *m, struct slice id, uint64_t generation,
                   uint64_t wall_ms, struct machine_token *ret)
{
    const struct token *t = token_find(m, id);
    bool old = t && t->old_generation && generation == t->old_generation;
    if (!t || !(generation == t->generation || (old && wall_ms < t->overlap_ms)) ||
        (t->expires_ms && wall_ms >= t->expires_ms))
        return false;
    BELAY_CHECK(t->account);
    *ret = (struct machine_token){.number = t->number,
                                  .used_ms = t->used_ms,
                                  .account = account_name(t->account),
                                  .rules = slice_of(t->rules, t->rules_len)};
    return true;
}

/* --- snapshots --- */

static struct slice sum_of(const unsigned char *sum)
{
    return slice_of((const char *)sum, TOKEN_SUM_BYTES);
}

void snapshot_put_tokens(struct buf *out, const struct machine *m)
{
    BELAY_CHECK(m->tokens.count == m->tokens_by_id.count);
    varint_put(out, m->closed);
    varint_put(out, m->last_token);
    varint_put(out, m->tokens.count);
    list_each (it, &m->token_list) {
        const struct token *t = list_item(it, const struct token, in_machine);
        varint_put(out, t->number);
        varint_put(out, t->generation);
        varint_put(out, t->old_generation);
        varint_put_bytes(out, slice_of(t->id, TOKEN_ID_BYTES));
        varint_put_bytes(out, t->account ? account_name(t->account) : slice_of("", 0));
        varint_put_bytes(out, sum_of(t->sum));
        varint_put_bytes(out, sum_of(t->old_sum));
        varint_put_bytes(out, account_text(t->description, t->description_len));
        varint_put_bytes(out, slice_of(t->rules, t->rules_len));
        varint_put(out, t->created_ms);
        varint_put(out, t->expires_ms);
        varint_put(out, t->used_ms);
        varint_put(out, t->overlap_ms);
    }
}

static void read_token(struct loader *ld)
{
    struct token_parts t = {.number = loader_bounded(ld, UINT32_MAX)};
    t.generation = loader_time(ld);
    t.old_generation = loader_bounded(ld, t.generation);
    t.id = loader_bytes(ld, TOKEN_ID_BYTES, TOKEN_ID_BYTES);
    struct slice account = loader_bytes(ld, 0, LIMIT_ACCOUNT_BYTES);
    t.sum = loader_bytes(ld, TOKEN_SUM_BYTES, TOKEN_SUM_BYTES);
    t.old_sum = loader_bytes(ld, TOKEN_SUM_BYTES, TOKEN_SUM_BYTES);
    t.description = loader_bytes(ld, 0, LIMIT_DESCRIPTION_BYTES);
    t.rules = loader_bytes(ld, 0, RULES_BYTES_MAX);
    t.created_ms = loader_time(ld);
    t.expires_ms = loader_time(ld);
    t.used_ms = loader_time(ld);
    t.overlap_ms = loader_time(ld);
    t.account = account.len ? account_find(ld->m, account) : NULL;
    uint64_t before = 0;
    if (!list_empty(&ld->m->token_list))
        before = list_item(ld->m->token_list.prev, const struct token, in_machine)->number;
    if (ld->r.bad || !loader_ok(ld, t.number > before && t.generation > 0) ||
        !loader_ok(ld, token_is_id(t.id) && rules_check(t.rules) && !token_find(ld->m, t.id)) ||
        !loader_ok(ld, t.account || (ld->m->group != 0 && account.len == 0)))
        return;
    if (loader_ok(ld, ld->m->group != 0 || t.number <= ld->m->last_token))
        token_add(ld->m, &t);
}

void loader_tokens(struct loader *ld)
{
    BELAY_DCHECK(ld->version >= 6 && ld->m->tokens.count == 0);
    ld->m->closed = loader_bounded(ld, 1);
    ld->m->last_token = loader_bounded(ld, UINT32_MAX);
    uint64_t n = loader_bounded(ld, (uint64_t)LIMIT_TOKENS * LIMIT_ACCOUNTS);
    for (; n && !ld->r.bad; n--)
        read_token(ld);
}
