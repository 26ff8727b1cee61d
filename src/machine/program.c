/* program.c - the statements of a transaction as bytes: written, checked, walked. */
#include "machine/program.h"

#include "base/check.h"
#include "base/format.h"

#include <stddef.h>

static const struct node_text {
    enum program_node node;
    struct slice word;
    const char *name;
} texts[] = {
#define X(id, number, word, name) {NODE_##id, {word, sizeof(word) - 1}, name},
    PROGRAM_NODE_MAP(X)
#undef X
};

static const struct node_text *text_of(enum program_node node)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].node == node)
            return &texts[i];
    return NULL;
}

const char *program_word(enum program_node node)
{
    const struct node_text *t = text_of(node);
    return t ? t->word.data : "unknown";
}

const char *program_name(enum program_node node)
{
    const struct node_text *t = text_of(node);
    return t ? t->name : "UnknownOp";
}

enum program_node program_node(struct slice word)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (slice_eq(texts[i].word, word))
            return texts[i].node;
    return NODE_NONE;
}

/* --- writing --- */

void program_begin(struct buf *out, size_t n_statements)
{
    buf_put_byte(out, FORMAT_PROGRAM);
    varint_put(out, n_statements);
}

void program_put(struct buf *out, enum program_node node)
{
    BELAY_DCHECK(node != NODE_NONE);
    buf_put_byte(out, (char)node);
}

void program_put_count(struct buf *out, enum program_node node, size_t n)
{
    BELAY_CHECK(node != NODE_NONE);
    program_put(out, node);
    varint_put(out, n);
}

void program_put_var(struct buf *out, enum program_node node, const struct program_var *v)
{
    BELAY_CHECK(node == NODE_EXISTS || node == NODE_SET || node == NODE_DELETE ||
                node == NODE_SELECT);
    program_put(out, node);
    varint_put(out, v->flags);
    varint_put_bytes(out, v->table);
    varint_put_bytes(out, v->key);
    if (v->flags & VAR_HAS_VALUE)
        varint_put_bytes(out, v->value);
    if (node == NODE_SET) {
        varint_put_bytes(out, v->description);
        varint_put(out, v->ttl_ms);
    } else if (node == NODE_SELECT) {
        varint_put_bytes(out, v->into);
    }
}

void program_put_lock(struct buf *out, enum program_node node, const struct program_lock *l)
{
    BELAY_CHECK(node == NODE_LOCK || node == NODE_UNLOCK);
    program_put(out, node);
    varint_put_bytes(out, l->name);
    varint_put_bytes(out, l->owner);
    if (node == NODE_UNLOCK) {
        varint_put(out, l->fence);
        return;
    }
    varint_put(out, l->mode);
    varint_put(out, l->permits);
    varint_put(out, l->of);
#define X(field, parameter, max, what) varint_put(out, l->field);
    LEASE_TERM_MAP(X)
#undef X
    varint_put_bytes(out, l->into);
}

void program_put_constant(struct buf *out, struct slice into, struct slice value)
{
    program_put(out, NODE_SELECT_CONSTANT);
    varint_put_bytes(out, into);
    varint_put_bytes(out, value);
}

void program_put_into(struct buf *out, struct slice into)
{
    varint_put_bytes(out, into);
}

size_t program_branch(struct buf *out)
{
    static const char room[PROGRAM_LENGTH_BYTES];
    buf_put(out, room, sizeof room);
    BELAY_DCHECK(out->oom || buf_len(out) >= PROGRAM_LENGTH_BYTES);
    return buf_len(out);
}

void program_branch_end(struct buf *out, size_t branch)
{
    if (out->oom)
        return;
    BELAY_CHECK(branch >= PROGRAM_LENGTH_BYTES && branch <= buf_len(out));
    size_t n = buf_len(out) - branch;
    BELAY_CHECK(n <= UINT32_MAX);
    char *at = out->mem + out->start + branch - PROGRAM_LENGTH_BYTES;
    for (int i = 0; i < PROGRAM_LENGTH_BYTES; i++)
        at[i] = (char)(n >> (8 * i));
}

/* --- reading --- */

void program_get_var(struct reader *r, enum program_node node, struct program_var *ret)
{
    BELAY_CHECK(node == NODE_EXISTS || node == NODE_SET || node == NODE_DELETE ||
                node == NODE_SELECT);
    *ret = (struct program_var){.flags = reader_u64(r)};
    ret->table = reader_bytes(r);
    ret->key = reader_bytes(r);
    if (ret->flags & VAR_HAS_VALUE)
        ret->value = reader_bytes(r);
    if (node == NODE_SET) {
        ret->description = reader_bytes(r);
        ret->ttl_ms = reader_u64(r);
    } else if (node == NODE_SELECT) {
        ret->into = reader_bytes(r);
    }
}

void program_get_lock(struct reader *r, enum program_node node, struct program_lock *ret)
{
    BELAY_CHECK(node == NODE_LOCK || node == NODE_UNLOCK);
    *ret = (struct program_lock){.name = reader_bytes(r)};
    ret->owner = reader_bytes(r);
    if (node == NODE_UNLOCK) {
        ret->fence = reader_u64(r);
        return;
    }
    ret->mode = reader_u64(r);
    ret->permits = reader_u64(r);
    ret->of = reader_u64(r);
#define X(field, parameter, max, what) ret->field = reader_u64(r);
    LEASE_TERM_MAP(X)
#undef X
    ret->into = reader_bytes(r);
}

struct slice program_get_branch(struct reader *r)
{
    uint32_t n = 0;
    for (int i = 0; i < PROGRAM_LENGTH_BYTES; i++)
        n |= (uint32_t)reader_byte(r) << (8 * i);
    if (r->bad || n > r->left.len) {
        r->bad = true;
        return slice_of("", 0);
    }
    BELAY_DCHECK(n <= r->left.len);
    struct slice branch = slice_of(r->left.data, n);
    r->left = slice_of(r->left.data + n, r->left.len - n);
    return branch;
}

uint64_t program_get_begin(struct reader *r)
{
    if (reader_byte(r) != FORMAT_PROGRAM)
        r->bad = true;
    return reader_u64(r);
}

/* --- checking --- */

struct checker {
    struct reader r;
    size_t statements, operators, locks, depth;
    enum belay_err err;
    const char *what;
    void (*each)(void *ctx, enum program_node node, struct slice name); /* NULL: nobody asks */
    void *ctx;
};

static bool refuse(struct checker *c, enum belay_err err, const char *what)
{
    BELAY_CHECK(err != BELAY_OK && what);
    if (c->err == BELAY_OK) {
        c->err = err;
        c->what = what;
    }
    return false;
}

static bool within(struct checker *c, bool cond, const char *what)
{
    BELAY_DCHECK(what);
    return cond || refuse(c, BELAY_ERR_RANGE, what);
}

static bool intact(struct checker *c)
{
    return !c->r.bad || refuse(c, BELAY_ERR_SYNTAX, "the transaction's bytes are broken");
}

static bool check_into(struct checker *c, struct slice into)
{
    return intact(c) && within(c, into.len > 0 && into.len <= LIMIT_INTO_BYTES,
                               "into is empty or over 128 bytes");
}

static bool check_value(struct checker *c, struct slice value)
{
    return intact(c) && within(c, value.len > 0 && value.len <= LIMIT_VALUE_BYTES,
                               "a value is over LIMIT_VALUE_BYTES (65536)");
}

static uint64_t flags_of(enum program_node node)
{
    BELAY_DCHECK(node == NODE_EXISTS || node == NODE_SET || node == NODE_DELETE ||
                 node == NODE_SELECT);
    if (node == NODE_EXISTS)
        return VAR_HAS_VALUE | VAR_IGNORE_THIS_SESSION;
    if (node == NODE_SET)
        return VAR_HAS_VALUE | VAR_ALLOW_DUPLICATES | VAR_RESPECT_EXCLUSIVE;
    if (node == NODE_SELECT)
        return VAR_IGNORE_THIS_SESSION | VAR_ABORT_IF_NOT_FOUND | VAR_MANY;
    return VAR_HAS_VALUE;
}

static bool check_var(struct checker *c, enum program_node node)
{
    struct program_var v;
    program_get_var(&c->r, node, &v);
    if (c->each)
        c->each(c->ctx, node, slice_of("", 0));
    if (!intact(c) ||
        !within(c, v.table.len > 0 && v.table.len <= LIMIT_TABLE_BYTES,
                "a table's name is empty or over LIMIT_TABLE_BYTES (128)") ||
        !within(c, v.key.len > 0 && v.key.len <= LIMIT_NAME_BYTES,
                "a key is empty or over LIMIT_NAME_BYTES (512)"))
        return false;
    if (v.flags & ~flags_of(node) || (node == NODE_SET && !(v.flags & VAR_HAS_VALUE)))
        return refuse(c, BELAY_ERR_SYNTAX, "an operator has unknown flags");
    if (v.flags & VAR_HAS_VALUE && !check_value(c, v.value))
        return false;
    if (node == NODE_SELECT)
        return check_into(c, v.into);
    return within(c, v.description.len <= LIMIT_DESCRIPTION_BYTES,
                  "a description is over LIMIT_DESCRIPTION_BYTES (1024)") &&
           within(c, v.ttl_ms <= LIMIT_TTL_MS, "ttl_ms is over LIMIT_TTL_MS (7 days)");
}

static bool check_permits(struct checker *c, const struct program_lock *l)
{
    bool semaphore = l->mode == MODE_SEMAPHORE;
    bool fits = semaphore ? l->permits > 0 && l->permits <= l->of && l->of <= LIMIT_PERMITS
                          : l->permits == 0 && l->of == 0;
    return within(c, l->mode >= MODE_EXCLUSIVE && l->mode <= MODE_SEMAPHORE,
                  "a lock's mode is not known") &&
           within(c, fits, "permits and of do not fit the mode or each other");
}

static bool check_terms(struct checker *c, const struct program_lock *l)
{
#define X(field, parameter, max, what)                                                         \
    if (!within(c, l->field <= (max), what))                                                   \
        return false;
    LEASE_TERM_MAP(X)
#undef X
    return true;
}

static bool check_lock(struct checker *c, enum program_node node)
{
    struct program_lock l;
    program_get_lock(&c->r, node, &l);
    if (c->each)
        c->each(c->ctx, node, l.name);
    if (!intact(c) ||
        !within(c, ++c->locks <= LIMIT_TXN_LOCKS,
                "the transaction has more than LIMIT_TXN_LOCKS (64) lock operators") ||
        !within(c, l.name.len > 0 && l.name.len <= LIMIT_NAME_BYTES,
                "a lock's name is empty or over LIMIT_NAME_BYTES (512)") ||
        !within(c, l.owner.len <= LIMIT_OWNER_BYTES, "an owner is over 128 bytes"))
        return false;
    if (node == NODE_UNLOCK)
        return within(c, l.owner.len || l.fence, "unlock needs an owner or a fence");
    return within(c, l.owner.len > 0, "a lock's owner is empty") && check_permits(c, &l) &&
           check_terms(c, &l) && check_into(c, l.into);
}

static bool check_operator(struct checker *c);

static bool check_operands(struct checker *c, uint64_t min, uint64_t n)
{
    BELAY_DCHECK(min > 0 && min <= PROGRAM_OPERANDS_MAX);
    if (!intact(c) ||
        !within(c, n >= min && n <= PROGRAM_OPERANDS_MAX, "and, or, xor take 2 to 64 operands"))
        return false;
    for (; n; n--)
        if (!check_operator(c))
            return false;
    return true;
}

static bool check_operator_at(struct checker *c, enum program_node node)
{
    BELAY_DCHECK(c->depth > 0 && c->depth <= LIMIT_TXN_DEPTH);
    switch (node) {
    case NODE_TRUE:
    case NODE_FALSE:
        return true;
    case NODE_NOT:
        return check_operands(c, 1, 1);
    case NODE_AND:
    case NODE_OR:
    case NODE_XOR:
        return check_operands(c, 2, reader_u64(&c->r));
    case NODE_EXISTS:
    case NODE_SET:
    case NODE_DELETE:
        return check_var(c, node);
    case NODE_LOCK:
    case NODE_UNLOCK:
        return check_lock(c, node);
    case NODE_NONE:
    case NODE_ASSERT:
    case NODE_ABORT:
    case NODE_BLOCK:
    case NODE_IF:
    case NODE_ANYWAY:
    case NODE_SELECT_CONSTANT:
    case NODE_SELECT_OPERATOR:
    case NODE_SELECT:
        break;
    }
    return refuse(c, BELAY_ERR_SYNTAX, "an operator is not known");
}

static bool check_operator(struct checker *c)
{
    enum program_node node = (enum program_node)reader_byte(&c->r);
    if (!intact(c) ||
        !within(c, ++c->operators <= LIMIT_TXN_OPERATORS,
                "the transaction has more than LIMIT_TXN_OPERATORS (4096) operators") ||
        !within(c, ++c->depth <= LIMIT_TXN_DEPTH,
                "the transaction is deeper than LIMIT_TXN_DEPTH (64)"))
        return false;
    bool ok = check_operator_at(c, node);
    BELAY_CHECK(c->depth > 0 && (!ok || c->depth <= LIMIT_TXN_DEPTH));
    c->depth--;
    return ok;
}

static bool check_statement(struct checker *c);

/* A branch is exactly one statement. */
static bool check_branch(struct checker *c, bool may_be_empty)
{
    struct slice branch = program_get_branch(&c->r);
    if (!intact(c))
        return false;
    if (branch.len == 0 && may_be_empty)
        return true;
    struct reader behind = c->r;
    c->r = (struct reader){.left = branch};
    bool ok = check_statement(c);
    if (ok && c->r.left.len)
        ok = refuse(c, BELAY_ERR_SYNTAX, "the transaction's bytes are broken");
    BELAY_DCHECK(ok == (c->err == BELAY_OK));
    c->r = behind;
    return ok;
}

static bool check_block(struct checker *c)
{
    uint64_t n = reader_u64(&c->r);
    if (!intact(c) || !within(c, n > 0, "a block is empty"))
        return false;
    for (; n; n--)
        if (!check_statement(c))
            return false;
    return true;
}

static bool check_statement_at(struct checker *c, enum program_node node)
{
    BELAY_DCHECK(c->depth > 0 && c->depth <= LIMIT_TXN_DEPTH);
    switch (node) {
    case NODE_ASSERT:
    case NODE_ANYWAY:
        return check_operator(c);
    case NODE_ABORT:
        return true;
    case NODE_BLOCK:
        return check_block(c);
    case NODE_IF:
        return check_operator(c) && check_branch(c, false) && check_branch(c, true);
    case NODE_SELECT_CONSTANT:
        return check_into(c, reader_bytes(&c->r)) && check_value(c, reader_bytes(&c->r));
    case NODE_SELECT_OPERATOR:
        return check_into(c, reader_bytes(&c->r)) && check_operator(c);
    case NODE_SELECT:
        return check_var(c, node);
    case NODE_NONE:
    case NODE_TRUE:
    case NODE_FALSE:
    case NODE_NOT:
    case NODE_AND:
    case NODE_OR:
    case NODE_XOR:
    case NODE_EXISTS:
    case NODE_SET:
    case NODE_DELETE:
    case NODE_LOCK:
    case NODE_UNLOCK:
        break;
    }
    return refuse(c, BELAY_ERR_SYNTAX, "a statement is not known");
}

static bool check_statement(struct checker *c)
{
    enum program_node node = (enum program_node)reader_byte(&c->r);
    if (!intact(c) ||
        !within(c, ++c->statements <= LIMIT_TXN_STATEMENTS,
                "the transaction has more than LIMIT_TXN_STATEMENTS (256) statements") ||
        !within(c, ++c->depth <= LIMIT_TXN_DEPTH,
                "the transaction is deeper than LIMIT_TXN_DEPTH (64)"))
        return false;
    bool ok = check_statement_at(c, node);
    BELAY_CHECK(c->depth > 0 && (!ok || c->depth <= LIMIT_TXN_DEPTH));
    c->depth--;
    return ok;
}

static bool walk(struct checker *c)
{
    uint64_t n = program_get_begin(&c->r);
    bool ok = intact(c) && within(c, n > 0, "the transaction has no statements");
    for (; ok && n; n--)
        ok = check_statement(c);
    if (ok && c->r.left.len)
        ok = refuse(c, BELAY_ERR_SYNTAX, "the transaction's bytes are broken");
    BELAY_CHECK(ok == (c->err == BELAY_OK));
    return ok;
}

void program_each(struct slice program,
                  void (*each)(void *ctx, enum program_node node, struct slice name), void *ctx)
{
    struct checker c = {.r = {.left = program}, .each = each, .ctx = ctx};
    (void)walk(&c);
}

enum belay_err program_check(struct slice program, const char **ret_what)
{
    struct checker c = {.r = {.left = program}};
    if (walk(&c))
        return BELAY_OK;
    BELAY_CHECK(c.err != BELAY_OK && c.what);
    *ret_what = c.what;
    return c.err;
}
