/* op.c - an op as bytes and back, and the bounds that every op must keep. */
#include "machine/op.h"

#include "auth/rule.h"
#include "base/check.h"
#include "base/format.h"
#include "machine/account.h"
#include "machine/event.h"
#include "machine/level.h"
#include "machine/outbox.h"
#include "machine/program.h"
#include "machine/varint.h"

#include <assert.h>

static const struct op_row {
    const char *word;
    unsigned traits;
} rows[] = {
#define X(id, word, traits) [OP_##id] = {word, traits},
    OP_KIND_MAP(X)
#undef X
};

const char *op_word(enum op_kind kind)
{
    BELAY_CHECK(kind < OP_KIND_COUNT);
    return rows[kind].word;
}

bool op_is(enum op_kind kind, enum op_trait trait)
{
    BELAY_CHECK(kind < OP_KIND_COUNT && trait != 0);
    return (rows[kind].traits & trait) == trait;
}

struct lease_terms op_terms(const struct op *op)
{
#define X(field, parameter, max, what) BELAY_DCHECK(op->field <= (max));
    LEASE_TERM_MAP(X)
#undef X
    return (struct lease_terms){
#define X(field, parameter, max, what) .field = (uint32_t)op->field,
        LEASE_TERM_MAP(X)
#undef X
    };
}

/* The binary form: version, kind, a bit for each field that is present, then those fields.
 * One pair of functions per type; the field list of op.h does the rest. */
enum op_field {
#define X(type, field) FIELD_##field,
    OP_FIELD_MAP(X)
#undef X
        OP_FIELD_COUNT
};
static_assert(OP_FIELD_COUNT <= 32, "the presence bits are 32");

/* The place of a field is its bit in what is stored. */
#define STORED(field, bit)                                                                     \
    static_assert(FIELD_##field == (bit), #field " is stored as bit " #bit)
STORED(now_ms, 0);
STORED(asker, 1);
STORED(account, 2);
STORED(ns, 3);
STORED(name, 4);
STORED(owner, 5);
STORED(session, 6);
STORED(body, 7);
STORED(text, 8);
STORED(fence, 9);
STORED(mode, 10);
STORED(policy, 11);
STORED(flags, 12);
STORED(ttl_ms, 13);
STORED(wait_ms, 14);
STORED(grace_ms, 15);
STORED(delay_ms, 16);
STORED(quiet_ms, 17);
STORED(permits, 18);
STORED(of, 19);
STORED(linger_ms, 20);
STORED(limit, 21);
STORED(target, 22);
STORED(more, 23);
STORED(program, 24);
STORED(request, 25);
STORED(number, 26);
STORED(token, 27);
STORED(rights, 28);
STORED(wall_ms, 29);
STORED(until_ms, 30);
#undef STORED

static bool has_u64(uint64_t v)
{
    return v != 0;
}

static bool has_bytes(struct slice v)
{
    return v.len != 0;
}

static bool has_names(struct names v)
{
    return v.n != 0;
}

static size_t size_u64(uint64_t v)
{
    return varint_size(v);
}

static size_t size_bytes(struct slice v)
{
    BELAY_DCHECK(v.len == 0 || v.data);
    return varint_size(v.len) + v.len;
}

static size_t size_names(struct names v)
{
    BELAY_CHECK(v.n == 0 || v.items);
    size_t size = varint_size(v.n);
    for (size_t i = 0; i < v.n; i++)
        size += size_bytes(v.items[i]);
    return size;
}

static char *put_u64(char *p, uint64_t v)
{
    return varint_write(p, v);
}

static char *put_bytes(char *p, struct slice v)
{
    return slice_put(varint_write(p, v.len), v);
}

static char *put_names(char *p, struct names v)
{
    p = varint_write(p, v.n);
    for (size_t i = 0; i < v.n; i++)
        p = put_bytes(p, v.items[i]);
    return p;
}

static void get_u64(struct reader *r, struct arena *a, uint64_t *ret)
{
    (void)a;
    *ret = reader_u64(r);
}

static void get_bytes(struct reader *r, struct arena *a, struct slice *ret)
{
    (void)a;
    *ret = reader_bytes(r);
}

static void get_names(struct reader *r, struct arena *a, struct names *ret)
{
    uint64_t n = reader_u64(r);
    if (n >
        r->left.len) { /* every name takes a byte at least: never allocate by a bare claim */
        r->bad = true;
        return;
    }
    struct slice *items = arena_alloc(a, (size_t)n * sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = reader_bytes(r);
    *ret = (struct names){items, (size_t)n};
}

static uint64_t version_of(const struct op *op)
{
    BELAY_CHECK(op->kind < OP_KIND_COUNT);
    if (op->token || op->rights || op->wall_ms || op->until_ms)
        return FORMAT_OP;
    return op->number ? OP_VERSION_NO_TOKEN : OP_VERSION_NO_NUMBER;
}

void op_encode(const struct op *op, struct buf *out)
{
    BELAY_CHECK((size_t)op->kind < OP_KIND_COUNT);
    uint32_t present = 0;
    size_t size = 0;
#define X(type, field)                                                                         \
    if (has_##type(op->field)) {                                                               \
        present |= 1u << FIELD_##field;                                                        \
        size += size_##type(op->field);                                                        \
    }
    OP_FIELD_MAP(X)
#undef X
    size += 2 + varint_size(present);
    if (!buf_reserve(out, size))
        return;
    char *p = out->mem + out->end;
    out->end += size;
    *p++ = (char)version_of(op);
    *p++ = (char)op->kind;
    p = varint_write(p, present);
#define X(type, field)                                                                         \
    if (present & 1u << FIELD_##field)                                                         \
        p = put_##type(p, op->field);
    OP_FIELD_MAP(X)
#undef X
    BELAY_CHECK(p == out->mem + out->end);
}

enum belay_err op_decode(struct slice in, struct arena *a, struct op *ret_op)
{
    struct reader r = {.left = in};
    struct op op = {0};
    uint64_t version = reader_byte(&r);
    uint64_t kind = reader_byte(&r);
    uint64_t present = reader_u64(&r);
    if (r.bad || version < FORMAT_OP_OLDEST || version > FORMAT_OP || kind >= OP_KIND_COUNT ||
        present >> OP_FIELD_COUNT)
        return BELAY_ERR_CORRUPT;
    op.kind = (enum op_kind)kind;
#define X(type, field)                                                                         \
    if (present & 1u << FIELD_##field) {                                                       \
        get_##type(&r, a, &op.field);                                                          \
        if (r.bad || !has_##type(op.field))                                                    \
            return BELAY_ERR_CORRUPT;                                                          \
    }
    OP_FIELD_MAP(X)
#undef X
    if (r.left.len != 0 || version != version_of(&op))
        return BELAY_ERR_CORRUPT;
    *ret_op = op;
    return BELAY_OK;
}

/* --- bounds --- */

/* One comparison a field, in a row: this runs for every request. */
#define NUMBER_MAP(X)                                                                          \
    X(wait_ms, LIMIT_WAIT_MS, "wait is over 7 days")                                           \
    X(quiet_ms, LIMIT_QUIET_MS, "quiet is over 10 minutes")                                    \
    X(linger_ms, LIMIT_LINGER_MS, "linger is over 1 day")                                      \
    X(permits, LIMIT_PERMITS, "permits are over 1000000")                                      \
    X(of, LIMIT_PERMITS, "of is over 1000000")                                                 \
    X(limit, LIMIT_LIST, "limit is over 1000")                                                 \
    X(token, UINT32_MAX, "token is out of range")                                              \
    X(mode, MODE_SEMAPHORE, "mode is not known")                                               \
    X(policy, POLICY_TIMED, "policy is not known")                                             \
    X(now_ms, UINT64_MAX / 4, "time is out of range")                                          \
    X(wall_ms, UINT64_MAX / 4, "time of day is out of range")                                  \
    X(until_ms, UINT64_MAX / 4, "time of day is out of range")                                 \
    X(rights, UINT64_MAX / 4, "no such generation of a token")

#define BYTES_MAP(X)                                                                           \
    X(account, LIMIT_ACCOUNT_BYTES, "account is over 128 bytes")                               \
    X(ns, LIMIT_NAMESPACE_BYTES, "namespace is over 128 bytes")                                \
    X(name, LIMIT_NAME_BYTES, "name is over 512 bytes")                                        \
    X(owner, LIMIT_OWNER_BYTES, "owner is over 128 bytes")                                     \
    X(session, LIMIT_SESSION_BYTES, "session id is over 64 bytes")                             \
    X(body, LIMIT_BODY_BYTES, "body is over 65536 bytes")                                      \
    X(text, LIMIT_DESCRIPTION_BYTES, "text is over 1024 bytes")                                \
    X(program, LIMIT_PROGRAM_BYTES, "transaction is over 1048576 bytes")                       \
    X(request, LIMIT_REQUEST_BYTES, "request id is over 64 bytes")

static const char *check_numbers(const struct op *op)
{
#define X(field, parameter, max, what)                                                         \
    if (op->field > (max))                                                                     \
        return what;
    LEASE_TERM_MAP(X)
#undef X
#define X(field, max, what)                                                                    \
    if (op->field > (max))                                                                     \
        return what;
    NUMBER_MAP(X)
#undef X
    if (op->kind == OP_ACQUIRE && op->policy == POLICY_TIMED && op->wait_ms < op->quiet_ms)
        return "POLICY timed needs WAIT of at least its quiet time";
    return NULL;
}

static const char *check_bytes(const struct op *op)
{
#define X(field, max, what)                                                                    \
    if (op->field.len > (max))                                                                 \
        return what;
    BYTES_MAP(X)
#undef X
    bool ids = op->kind == OP_SESSION_KEEPALIVE;
    if (op->more.n > (ids ? LIMIT_BATCH_SESSIONS : LIMIT_NAMES_PER_OP))
        return ids ? "more than 4096 sessions" : "more than 64 names";
    size_t max = ids ? LIMIT_SESSION_BYTES : LIMIT_NAME_BYTES;
    for (size_t i = 0; i < op->more.n; i++) {
        if (op->more.items[i].len == 0 || op->more.items[i].len > max)
            return ids ? "a session id is empty or over 64 bytes"
                       : "a name is empty or over 512 bytes";
    }
    return NULL;
}

static bool names_repeat(const struct op *op)
{
    BELAY_DCHECK(op->more.n <= LIMIT_NAMES_PER_OP);
    for (size_t i = 0; i < op->more.n; i++) {
        if (slice_eq(op->more.items[i], op->name))
            return true;
        for (size_t j = 0; j < i; j++)
            if (slice_eq(op->more.items[i], op->more.items[j]))
                return true;
    }
    return false;
}

static const char *check_acquire(const struct op *op)
{
    BELAY_CHECK(op->kind == OP_ACQUIRE);
    if (op->owner.len == 0)
        return "owner is empty";
    if (op->mode == MODE_NONE)
        return "mode is missing";
    if (op->mode == MODE_SEMAPHORE && (op->permits == 0 || op->of == 0))
        return "permits and of must be at least 1";
    if (op->mode == MODE_SEMAPHORE && op->permits > op->of)
        return "permits are more than of";
    if (op->mode != MODE_SEMAPHORE && (op->permits || op->of))
        return "permits need a semaphore";
    if (op->policy != POLICY_HARD && op->mode != MODE_EXCLUSIVE)
        return "POLICY soft and timed are for exclusive locks";
    if (op->quiet_ms && op->policy != POLICY_TIMED)
        return "QUIET belongs to POLICY timed";
    if (op->policy == POLICY_TIMED && op->quiet_ms == 0)
        return "POLICY timed needs its quiet time: POLICY timed ms";
    if (op->more.n && op->wait_ms)
        return "several names cannot be waited for";
    if (names_repeat(op))
        return "a name is given twice";
    return NULL;
}

static const char *check_convert(const struct op *op)
{
    BELAY_CHECK(op->kind == OP_CONVERT);
    if (op->mode != MODE_EXCLUSIVE && op->mode != MODE_SHARED)
        return "mode must be exclusive or shared";
    return op->more.n ? "only one name can be converted" : NULL;
}

/* By fence or by owner. */
static const char *check_hold(const struct op *op)
{
    BELAY_DCHECK(op_is(op->kind, KIND_OF_HOLD) || op->kind == OP_CHECK);
    if (op->name.len == 0)
        return "name is empty";
    if (!op->fence && !op->owner.len && !(op->flags & OP_ANYONE))
        return "a fence or an owner is needed";
    if (op->kind == OP_CONVERT)
        return check_convert(op);
    if (op->flags & OP_ADD_TTL && op->ttl_ms == 0)
        return "ttl is missing";
    return op->more.n && op->fence ? "several names need an owner, not a fence" : NULL;
}

static const char *check_break(const struct op *op)
{
    BELAY_CHECK(op->kind == OP_BREAK);
    if (op->text.len > LIMIT_REASON_BYTES)
        return "reason is over 256 bytes";
    return op->name.len ? NULL : "name is empty";
}

static const char *check_session(const struct op *op)
{
    BELAY_DCHECK(op->kind == OP_SESSION_OPEN || op->kind == OP_SESSION_ATTACH ||
                 op->kind == OP_SESSION_DETACH);
    if (op->kind == OP_SESSION_OPEN && op->ttl_ms == 0)
        return "ttl must be at least 1 ms";
    if (op->kind != OP_SESSION_OPEN && op->target == 0)
        return "target is missing";
    return op->session.len ? NULL : "session id is empty";
}

static const char *check_messages(const struct op *op)
{
    if (op->kind == OP_MESSAGES && (op->program.len == 0 || op->fence == 0))
        return "there is no message";
    return op->target < LIMIT_GROUPS ? NULL : "no such group";
}

/* What it looks for; and what the asker may see of it. */
static const char *check_search(const struct op *op)
{
    if (op->kind == OP_FIND && (op->fence >= SORT_COUNT || op->target > 1 + LOCK_CLOSED))
        return "no such order or state";
    if (op->kind == OP_SESSION_ITEMS && op->session.len == 0)
        return "session id is empty";
    if (op->kind == OP_SESSION_ITEMS &&
        (op->mode > ITEM_VARIABLE || op->target >= LIMIT_GROUPS))
        return "no such kind of thing, or no such shard";
    return rules_check(op->body) ? NULL : "these bytes are not rules";
}

static const char *check_combination(const struct op *op)
{
    switch (op->kind) {
    case OP_ACQUIRE:
        return op->name.len ? check_acquire(op) : "name is empty";
    case OP_CONVERT:
    case OP_RELEASE:
    case OP_RENEW:
    case OP_BODY:
    case OP_CHECK:
        return check_hold(op);
    case OP_BREAK:
        return check_break(op);
    case OP_SHOW:
    case OP_HOLDERS:
    case OP_WAITERS:
    case OP_TABLE_SHOW:
        return op->name.len ? NULL : "name is empty";
    case OP_SESSION_OPEN:
    case OP_SESSION_ATTACH:
    case OP_SESSION_DETACH:
        return check_session(op);
    case OP_TXN:
    case OP_SESSION_ENROL:
    case OP_SESSION_CLOSE:
    case OP_SESSION_SHOW:
        return op->session.len ? NULL : "session id is empty";
    case OP_NAMESPACE_CREATE:
    case OP_NAMESPACE_UPDATE:
    case OP_NAMESPACE_DELETE:
    case OP_NAMESPACE_SHOW:
        return op->ns.len ? NULL : "namespace is empty";
    case OP_CANCEL:
    case OP_NODE:
        return op->target ? NULL : "target is missing";
    case OP_MESSAGES:
    case OP_TAKEN:
        return check_messages(op);
    case OP_LEVEL:
        return op->target <= LEVEL_NEWEST ? NULL : "the level is not known";
    case OP_AUTH_INIT:
    case OP_AUTH_RESET:
    case OP_ACCOUNT_CREATE:
    case OP_ACCOUNT_UPDATE:
    case OP_ACCOUNT_DELETE:
    case OP_TOKEN_CREATE:
    case OP_TOKEN_ROTATE:
    case OP_TOKEN_REVOKE:
    case OP_TOKEN_USED:
    case OP_LOGIN:
        return account_check(op);
    case OP_TICK:
        return op->fence > LIMIT_SKIP ? "skips too much" : NULL;
    case OP_FIND:
    case OP_SESSION_ITEMS:
    case OP_LIST:
    case OP_NAMESPACE_LIST:
        return check_search(op);
    case OP_TABLE_LIST:
    case OP_SESSION_KEEPALIVE:
    case OP_ACCOUNT_SHOW:
    case OP_ACCOUNT_LIST:
    case OP_TOKEN_LIST:
    case OP_SESSION_LIST:
    case OP_KIND_COUNT:
        break;
    }
    return NULL;
}

static const char *check_request(const struct op *op)
{
    BELAY_DCHECK(op->request.len > 0);
    if (!op_is(op->kind, KIND_HAS_ID))
        return "only requests that change something may have an id";
    return op->more.n ? "a request for several names cannot have an id" : NULL;
}

enum belay_err op_validate(const struct op *op, const char **ret_what)
{
    const char *what = check_numbers(op);
    if (!what)
        what = check_bytes(op);
    if (what) {
        *ret_what = what;
        return BELAY_ERR_RANGE;
    }
    what = check_combination(op);
    if (!what && op->kind == OP_MESSAGES)
        return outbox_check(op->program, ret_what);
    if (!what && op->program.len && op->kind != OP_TXN)
        what = "only a transaction has statements";
    if (!what && op->request.len)
        what = check_request(op);
    if (!what && op->flags & OP_STALE && (!op_is_read(op->kind) || op->kind == OP_CHECK))
        what = "only a read may be stale";
    if (!what && op->program.len)
        return program_check(op->program, ret_what);
    if (!what)
        return BELAY_OK;
    *ret_what = what;
    return BELAY_ERR_SYNTAX;
}
