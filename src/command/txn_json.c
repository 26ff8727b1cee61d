/* txn_json.c - a transaction in JSON becomes a program for the machine (machine/program.h). */
#include "command/txn_json.h"

#include "machine/op.h"
#include "machine/program.h"
#include "proto/json.h"

#include <stdlib.h>

enum { PATH_MAX_STEPS = 2 * LIMIT_TXN_DEPTH + 4, UPTIME_MAX_S = 1000000000 };

/* A step of the path to what is read: a member, or an item of an array. */
struct step {
    const char *member;
    size_t item;
};

struct maker {
    struct arena *a;
    struct buf out;
    struct buf value; /* the canonical form of one value */
    struct slice session;
    size_t statements, operators, depth; /* depth as the machine counts it */
    struct step path[PATH_MAX_STEPS];
    size_t n_path;
    enum belay_err err;
    const char *what;
};

/* --- saying what is wrong --- */

static bool fail(struct maker *mk, enum belay_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool fail(struct maker *mk, enum belay_err err, const char *format, ...)
{
    struct buf text = {0};
    for (size_t i = 0; i < mk->n_path; i++) {
        if (mk->path[i].member)
            buf_printf(&text, "%s%s", i ? "." : "", mk->path[i].member);
        else
            buf_printf(&text, "[%zu]", mk->path[i].item);
    }
    buf_put_str(&text, mk->n_path ? ": " : "");
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    buf_put_byte(&text, '\0');
    mk->err = err;
    mk->what = text.oom ? err_text(err) : arena_copy(mk->a, buf_slice(&text)).data;
    buf_done(&text);
    return false;
}

static void enter(struct maker *mk, const char *member, size_t item)
{
    BELAY_CHECK(mk->n_path < PATH_MAX_STEPS);
    mk->path[mk->n_path++] = (struct step){member, item};
}

static void leave(struct maker *mk)
{
    mk->n_path--;
}

/* Foreign text for a message: short and printable. */
static const char *quoted(struct maker *mk, struct slice s)
{
    enum { SHOWN = 40 };
    size_t n = s.len < SHOWN ? s.len : SHOWN;
    char *out = arena_alloc(mk->a, n + 1);
    for (size_t i = 0; i < n; i++) {
        out[i] = s.data[i];
        if (out[i] < ' ' || out[i] > '~')
            out[i] = '?';
    }
    out[n] = '\0';
    return out;
}

/* --- members --- */

enum member_type { TYPE_TEXT, TYPE_VALUE, TYPE_FLAG, TYPE_NUMBER, TYPE_MODE };

/* A member of an operator or statement: which have it, and where its value goes. */
struct json_member {
    struct slice name; /* empty: the end of a table */
    enum member_type type;
    bool needed;
    size_t offset; /* in struct program_var or program_lock */
    uint64_t flag; /* TYPE_FLAG: a bit of program_var.flags; else: the largest number */
};

#define S(literal)                                                                             \
    {                                                                                          \
        literal, sizeof(literal) - 1                                                           \
    }
#define VAR(field)  offsetof(struct program_var, field)
#define LOCK(field) offsetof(struct program_lock, field)

static const struct json_member exists_members[] = {
    {S("table"), TYPE_TEXT, true, VAR(table), 0},
    {S("key"), TYPE_TEXT, true, VAR(key), 0},
    {S("value"), TYPE_VALUE, false, VAR(value), 0},
    {S("ignore_this_session"), TYPE_FLAG, false, VAR(flags), VAR_IGNORE_THIS_SESSION},
    {S(""), TYPE_TEXT, false, 0, 0},
};
static const struct json_member set_members[] = {
    {S("table"), TYPE_TEXT, true, VAR(table), 0},
    {S("key"), TYPE_TEXT, true, VAR(key), 0},
    {S("value"), TYPE_VALUE, false, VAR(value), 0},
    {S("description"), TYPE_TEXT, false, VAR(description), 0},
    {S("ttl_ms"), TYPE_NUMBER, false, VAR(ttl_ms), LIMIT_TTL_MS},
    {S("allow_duplicates"), TYPE_FLAG, false, VAR(flags), VAR_ALLOW_DUPLICATES},
    {S("respect_exclusive"), TYPE_FLAG, false, VAR(flags), VAR_RESPECT_EXCLUSIVE},
    {S(""), TYPE_TEXT, false, 0, 0},
};
static const struct json_member delete_members[] = {
    {S("table"), TYPE_TEXT, true, VAR(table), 0},
    {S("key"), TYPE_TEXT, true, VAR(key), 0},
    {S("value"), TYPE_VALUE, false, VAR(value), 0},
    {S(""), TYPE_TEXT, false, 0, 0},
};
static const struct json_member select_members[] = {
    {S("into"), TYPE_TEXT, true, VAR(into), 0},
    {S("table"), TYPE_TEXT, true, VAR(table), 0},
    {S("key"), TYPE_TEXT, true, VAR(key), 0},
    {S("ignore_this_session"), TYPE_FLAG, false, VAR(flags), VAR_IGNORE_THIS_SESSION},
    {S("abort_if_not_found"), TYPE_FLAG, false, VAR(flags), VAR_ABORT_IF_NOT_FOUND},
    {S("many"), TYPE_FLAG, false, VAR(flags), VAR_MANY},
    {S(""), TYPE_TEXT, false, 0, 0},
};
static const struct json_member lock_members[] = {
    {S("name"), TYPE_TEXT, true, LOCK(name), 0},
    {S("owner"), TYPE_TEXT, false, LOCK(owner), 0},
    {S("mode"), TYPE_MODE, false, LOCK(mode), 0},
    {S("permits"), TYPE_NUMBER, false, LOCK(permits), LIMIT_PERMITS},
    {S("of"), TYPE_NUMBER, false, LOCK(of), LIMIT_PERMITS},
#define X(field, parameter, max, what) {S(#field), TYPE_NUMBER, false, LOCK(field), max},
    LEASE_TERM_MAP(X)
#undef X
        {S("into"), TYPE_TEXT, false, LOCK(into), 0},
    {S(""), TYPE_TEXT, false, 0, 0},
};
static const struct json_member unlock_members[] = {
    {S("name"), TYPE_TEXT, true, LOCK(name), 0},
    {S("owner"), TYPE_TEXT, false, LOCK(owner), 0},
    {S("fence"), TYPE_NUMBER, false, LOCK(fence), INT64_MAX},
    {S(""), TYPE_TEXT, false, 0, 0},
};
static const struct json_member into_members[] = {
    {S("into"), TYPE_TEXT, true, VAR(into), 0},
    {S(""), TYPE_TEXT, false, 0, 0},
};

static bool is_blank(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != ' ' && (s.data[i] < '\t' || s.data[i] > '\r'))
            return false;
    return true;
}

static bool put_value(struct maker *mk, const struct json_token *t)
{
    buf_clear(&mk->value);
    json_canonical(&mk->value, t, mk->a);
    if (buf_len(&mk->value) <= LIMIT_VALUE_BYTES)
        return true;
    return fail(mk, BELAY_ERR_RANGE, "the value is over LIMIT_VALUE_BYTES (%d)",
                LIMIT_VALUE_BYTES);
}

static bool read_flag(struct maker *mk, const struct json_member *m, const struct json_token *t,
                      uint64_t *flags)
{
    if (t->type != JSON_TRUE && t->type != JSON_FALSE)
        return fail(mk, BELAY_ERR_SYNTAX, "\"%s\" must be true or false", m->name.data);
    *flags = t->type == JSON_TRUE ? *flags | m->flag : *flags & ~m->flag;
    return true;
}

static bool read_number(struct maker *mk, const struct json_member *m,
                        const struct json_token *t, uint64_t *number)
{
    if (t->type == JSON_NUMBER && json_u64(t->raw, number) && *number <= m->flag)
        return true;
    return fail(mk, BELAY_ERR_RANGE, "\"%s\" must be a whole number from 0 to %llu",
                m->name.data, (unsigned long long)m->flag);
}

static bool read_mode(struct maker *mk, const struct json_token *t, uint64_t *mode)
{
    struct slice word = t->type == JSON_STRING ? t->raw : SLICE("");
    if (slice_eq(word, SLICE("exclusive")))
        *mode = MODE_EXCLUSIVE;
    else if (slice_eq(word, SLICE("shared")))
        *mode = MODE_SHARED;
    else
        return fail(mk, BELAY_ERR_SYNTAX, "\"mode\" must be \"exclusive\" or \"shared\"");
    return true;
}

static bool read_member(struct maker *mk, const struct json_member *m,
                        const struct json_token *t, void *into)
{
    void *at = (char *)into + m->offset;
    if (t->type == JSON_NULL && m->type != TYPE_VALUE)
        return !m->needed || fail(mk, BELAY_ERR_SYNTAX, "\"%s\" is null", m->name.data);
    switch (m->type) {
    case TYPE_TEXT:
        if (t->type != JSON_STRING)
            return fail(mk, BELAY_ERR_SYNTAX, "\"%s\" must be a string", m->name.data);
        *(struct slice *)at = json_text(t, mk->a);
        return true;
    case TYPE_VALUE: /* null in a condition means any, as the original has it */
        ((struct program_var *)into)->flags |= VAR_HAS_VALUE;
        if (!put_value(mk, t))
            return false;
        *(struct slice *)at = buf_slice(&mk->value);
        return true;
    case TYPE_FLAG:
        return read_flag(mk, m, t, at);
    case TYPE_NUMBER:
        return read_number(mk, m, t, at);
    case TYPE_MODE:
        return read_mode(mk, t, at);
    }
    return false;
}

/* What was needed and is missing or blank, or NULL. */
static const struct json_member *missing(const struct json_member *members, const void *from)
{
    for (const struct json_member *m = members; m->name.len; m++) {
        if (m->needed &&
            is_blank(*(const struct slice *)(const void *)((const char *)from + m->offset)))
            return m;
    }
    return NULL;
}

/* Reads the object `t` into a program_var or program_lock. Members called in `others` (the
 * parts that are read by themselves) are passed over. */
static bool read_members(struct maker *mk, const struct json_token *t,
                         const struct json_member *members, const char *other, void *into)
{
    if (t->type != JSON_OBJECT)
        return fail(mk, BELAY_ERR_SYNTAX, "an object is needed here");
    const struct json_token *item = t + 1;
    for (uint32_t i = 0; i < t->items; i++, item += item->span) {
        struct slice key = json_key(item, mk->a);
        const struct json_member *m = members;
        while (m->name.len && !slice_eq(key, m->name))
            m++;
        if (m->name.len && !read_member(mk, m, item, into))
            return false;
        if (!m->name.len && !(other && slice_eq(key, slice_str(other))))
            return fail(mk, BELAY_ERR_SYNTAX, "unknown member \"%s\"", quoted(mk, key));
    }
    const struct json_member *m = missing(members, into);
    if (m)
        return fail(mk, BELAY_ERR_SYNTAX, "\"%s\" is missing or blank", m->name.data);
    return true;
}

/* --- operators --- */

static bool make_operator(struct maker *mk, const struct json_token *t);

static bool is_any(struct slice value)
{
    return slice_eq(value, SLICE("null"));
}

static bool make_var(struct maker *mk, enum program_node node, const struct json_token *t)
{
    struct program_var v = {0};
    const struct json_member *members = exists_members;
    if (node == NODE_SET)
        members = set_members;
    else if (node == NODE_DELETE)
        members = delete_members;
    else if (node == NODE_SELECT)
        members = select_members;
    if (node == NODE_EXISTS || node == NODE_SELECT)
        v.flags = VAR_IGNORE_THIS_SESSION;
    if (!read_members(mk, t, members, NULL, &v))
        return false;
    if (node == NODE_SET && !(v.flags & VAR_HAS_VALUE)) {
        v.flags |= VAR_HAS_VALUE;
        v.value = SLICE("null");
    } else if (node != NODE_SET && is_any(v.value)) {
        v.flags &= ~(uint64_t)VAR_HAS_VALUE;
    }
    if (is_blank(v.description))
        v.description = SLICE("");
    if (v.table.len > LIMIT_TABLE_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"table\" is over LIMIT_TABLE_BYTES (%d)",
                    LIMIT_TABLE_BYTES);
    if (v.key.len > LIMIT_NAME_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"key\" is over LIMIT_NAME_BYTES (%d)",
                    LIMIT_NAME_BYTES);
    if (v.description.len > LIMIT_DESCRIPTION_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"description\" is over LIMIT_DESCRIPTION_BYTES (%d)",
                    LIMIT_DESCRIPTION_BYTES);
    if (v.into.len > LIMIT_INTO_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"into\" is over LIMIT_INTO_BYTES (%d)",
                    LIMIT_INTO_BYTES);
    program_put_var(&mk->out, node, &v);
    return true;
}

static bool complete_lock(struct maker *mk, struct program_lock *l)
{
    bool semaphore = l->of || l->permits;
    if (semaphore && l->mode)
        return fail(mk, BELAY_ERR_SYNTAX, "a semaphore (\"of\") has no \"mode\"");
    if (semaphore && l->permits == 0)
        l->permits = 1;
    if (semaphore && l->permits > l->of)
        return fail(mk, BELAY_ERR_RANGE, "\"permits\" are more than \"of\"");
    if (semaphore)
        l->mode = MODE_SEMAPHORE;
    else if (l->mode == MODE_NONE)
        l->mode = MODE_EXCLUSIVE;
    if (is_blank(l->into))
        l->into = l->name.len <= LIMIT_INTO_BYTES ? l->name : SLICE("fence");
    if (l->into.len > LIMIT_INTO_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"into\" is over LIMIT_INTO_BYTES (%d)",
                    LIMIT_INTO_BYTES);
    return true;
}

static bool make_lock(struct maker *mk, enum program_node node, const struct json_token *t)
{
    struct program_lock l = {0};
    if (!read_members(mk, t, node == NODE_LOCK ? lock_members : unlock_members, NULL, &l))
        return false;
    if (l.fence && l.owner.len)
        return fail(mk, BELAY_ERR_SYNTAX, "give \"owner\" or \"fence\", not both");
    if (l.owner.len == 0 && !l.fence)
        l.owner = mk->session;
    if (l.name.len > LIMIT_NAME_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"name\" is over LIMIT_NAME_BYTES (%d)",
                    LIMIT_NAME_BYTES);
    if (l.owner.len > LIMIT_OWNER_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"owner\" is over LIMIT_OWNER_BYTES (%d)",
                    LIMIT_OWNER_BYTES);
    if (node == NODE_LOCK && !complete_lock(mk, &l))
        return false;
    program_put_lock(&mk->out, node, &l);
    return true;
}

static bool make_operands(struct maker *mk, enum program_node node, const struct json_token *t)
{
    if (t->type != JSON_ARRAY || t->items < 2 || t->items > PROGRAM_OPERANDS_MAX)
        return fail(mk, BELAY_ERR_SYNTAX, "an array of 2 to %d operators is needed here",
                    PROGRAM_OPERANDS_MAX);
    program_put_count(&mk->out, node, t->items);
    const struct json_token *item = t + 1;
    for (uint32_t i = 0; i < t->items; i++, item += item->span) {
        enter(mk, NULL, i);
        if (!make_operator(mk, item))
            return false;
        leave(mk);
    }
    return true;
}

static bool make_nothing(struct maker *mk, enum program_node node, const struct json_token *t)
{
    if (t->type != JSON_OBJECT || t->items)
        return fail(mk, BELAY_ERR_SYNTAX, "an empty object is needed here");
    program_put(&mk->out, node);
    return true;
}

static bool make_operator_at(struct maker *mk, enum program_node node,
                             const struct json_token *t)
{
    switch (node) {
    case NODE_TRUE:
    case NODE_FALSE:
        return make_nothing(mk, node, t);
    case NODE_NOT:
        program_put(&mk->out, node);
        return make_operator(mk, t);
    case NODE_AND:
    case NODE_OR:
    case NODE_XOR:
        return make_operands(mk, node, t);
    case NODE_EXISTS:
    case NODE_SET:
    case NODE_DELETE:
        return make_var(mk, node, t);
    case NODE_LOCK:
    case NODE_UNLOCK:
        return make_lock(mk, node, t);
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
    return fail(mk, BELAY_ERR_SYNTAX, "a statement cannot stand here, only an operator");
}

/* {"word": ...}: which node it is; NODE_NONE: refused. */
static enum program_node node_of(struct maker *mk, const struct json_token *t)
{
    if (t->type != JSON_OBJECT || t->items != 1) {
        (void)fail(mk, BELAY_ERR_SYNTAX, "an object with exactly one member is needed here");
        return NODE_NONE;
    }
    struct slice word = json_key(t + 1, mk->a);
    enum program_node node = program_node(word);
    if (node == NODE_NONE)
        (void)fail(mk, BELAY_ERR_SYNTAX, "\"%s\" is no statement or operator",
                   quoted(mk, word));
    return node;
}

static bool deeper(struct maker *mk)
{
    if (++mk->depth <= LIMIT_TXN_DEPTH)
        return true;
    return fail(mk, BELAY_ERR_RANGE, "the transaction is deeper than LIMIT_TXN_DEPTH (%d)",
                LIMIT_TXN_DEPTH);
}

static bool make_operator(struct maker *mk, const struct json_token *t)
{
    enum program_node node = node_of(mk, t);
    if (node == NODE_NONE || !deeper(mk))
        return false;
    if (++mk->operators > LIMIT_TXN_OPERATORS)
        return fail(mk, BELAY_ERR_RANGE,
                    "the transaction has more than LIMIT_TXN_OPERATORS (%d) operators",
                    LIMIT_TXN_OPERATORS);
    enter(mk, program_word(node), 0);
    if (!make_operator_at(mk, node, t + 1))
        return false;
    leave(mk);
    mk->depth--;
    return true;
}

/* --- statements --- */

static bool make_statement(struct maker *mk, const struct json_token *t);

static bool make_list(struct maker *mk, const struct json_token *t)
{
    const struct json_token *item = t + 1;
    for (uint32_t i = 0; i < t->items; i++, item += item->span) {
        enter(mk, NULL, i);
        if (!make_statement(mk, item))
            return false;
        leave(mk);
    }
    return true;
}

static bool make_block(struct maker *mk, const struct json_token *t)
{
    if (t->type != JSON_ARRAY || t->items == 0)
        return fail(mk, BELAY_ERR_SYNTAX, "an array of at least one statement is needed here");
    program_put_count(&mk->out, NODE_BLOCK, t->items);
    return make_list(mk, t);
}

static bool make_branch(struct maker *mk, const char *name, const struct json_token *t)
{
    size_t branch = program_branch(&mk->out);
    enter(mk, name, 0);
    if (t && t->type != JSON_NULL && !make_statement(mk, t))
        return false;
    leave(mk);
    program_branch_end(&mk->out, branch);
    return true;
}

static bool make_if(struct maker *mk, const struct json_token *t)
{
    const struct json_token *cond = json_get(t, "cond"), *then = json_get(t, "then");
    const struct json_token *otherwise = json_get(t, "else");
    uint32_t known = (cond ? 1u : 0u) + (then ? 1u : 0u) + (otherwise ? 1u : 0u);
    if (!cond || !then || then->type == JSON_NULL)
        return fail(mk, BELAY_ERR_SYNTAX, "\"%s\" is missing", cond ? "then" : "cond");
    if (t->items != known)
        return fail(mk, BELAY_ERR_SYNTAX, "only \"cond\", \"then\" and \"else\" are known");
    program_put(&mk->out, NODE_IF);
    enter(mk, "cond", 0);
    if (!make_operator(mk, cond))
        return false;
    leave(mk);
    return make_branch(mk, "then", then) && make_branch(mk, "else", otherwise);
}

/* select_constant and select_operator: a name, and what it stands for. */
static bool make_select(struct maker *mk, enum program_node node, const struct json_token *t)
{
    const char *part = node == NODE_SELECT_CONSTANT ? "value" : "op";
    struct program_var v = {0};
    if (!read_members(mk, t, into_members, part, &v))
        return false;
    const struct json_token *what = json_get(t, part);
    if (!what)
        return fail(mk, BELAY_ERR_SYNTAX, "\"%s\" is missing", part);
    if (v.into.len > LIMIT_INTO_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"into\" is over LIMIT_INTO_BYTES (%d)",
                    LIMIT_INTO_BYTES);
    if (node == NODE_SELECT_CONSTANT) {
        if (!put_value(mk, what))
            return false;
        program_put_constant(&mk->out, v.into, buf_slice(&mk->value));
        return true;
    }
    program_put(&mk->out, node);
    program_put_into(&mk->out, v.into);
    enter(mk, part, 0);
    if (!make_operator(mk, what))
        return false;
    leave(mk);
    return true;
}

static bool make_statement_at(struct maker *mk, enum program_node node,
                              const struct json_token *t)
{
    switch (node) {
    case NODE_ASSERT:
    case NODE_ANYWAY:
        program_put(&mk->out, node);
        return make_operator(mk, t);
    case NODE_ABORT:
        return make_nothing(mk, node, t);
    case NODE_BLOCK:
        return make_block(mk, t);
    case NODE_IF:
        return make_if(mk, t);
    case NODE_SELECT_CONSTANT:
    case NODE_SELECT_OPERATOR:
        return make_select(mk, node, t);
    case NODE_SELECT:
        return make_var(mk, node, t);
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
    return fail(mk, BELAY_ERR_SYNTAX,
                "an operator cannot stand here: put it into \"assert\" or \"anyway\"");
}

static bool make_statement(struct maker *mk, const struct json_token *t)
{
    enum program_node node = node_of(mk, t);
    if (node == NODE_NONE || !deeper(mk))
        return false;
    if (++mk->statements > LIMIT_TXN_STATEMENTS)
        return fail(mk, BELAY_ERR_RANGE,
                    "the transaction has more than LIMIT_TXN_STATEMENTS (%d) statements",
                    LIMIT_TXN_STATEMENTS);
    enter(mk, program_word(node), 0);
    if (!make_statement_at(mk, node, t + 1))
        return false;
    leave(mk);
    mk->depth--;
    return true;
}

/* --- the document --- */

struct statement_head {
    struct slice session, description, request;
    uint64_t wait_ms, min_uptime_s;
};

static const struct json_member head_members[] = {
    {S("session"), TYPE_TEXT, true, offsetof(struct statement_head, session), 0},
    {S("description"), TYPE_TEXT, false, offsetof(struct statement_head, description), 0},
    {S("request"), TYPE_TEXT, false, offsetof(struct statement_head, request), 0},
    {S("wait_ms"), TYPE_NUMBER, false, offsetof(struct statement_head, wait_ms), LIMIT_WAIT_MS},
    {S("min_uptime_s"), TYPE_NUMBER, false, offsetof(struct statement_head, min_uptime_s),
     UPTIME_MAX_S},
    {S(""), TYPE_TEXT, false, 0, 0},
};

/* The members that the table cannot describe. */
static bool is_special(struct slice key)
{
    return slice_eq(key, SLICE("statements")) || slice_eq(key, SLICE("min_trust"));
}

static bool read_trust(struct maker *mk, const struct json_token *t, double *ret)
{
    char text[40];
    if (t->type == JSON_NULL)
        return true;
    if (t->type == JSON_NUMBER && t->raw.len < sizeof text) {
        memcpy(text, t->raw.data, t->raw.len);
        text[t->raw.len] = '\0';
        *ret = strtod(text, NULL);
        if (*ret >= 0 && *ret <= 1)
            return true;
    }
    return fail(mk, BELAY_ERR_RANGE, "\"min_trust\" must be a number from 0 to 1");
}

static bool read_head(struct maker *mk, const struct json_token *root, struct txn *ret)
{
    struct statement_head head = {
        .session = {"", 0}, .description = {"", 0}, .request = {"", 0}};
    const struct json_token *item = root + 1;
    if (root->type != JSON_OBJECT)
        return fail(mk, BELAY_ERR_SYNTAX, "a transaction is an object");
    for (uint32_t i = 0; i < root->items; i++, item += item->span) {
        struct slice key = json_key(item, mk->a);
        const struct json_member *m = head_members;
        while (m->name.len && !slice_eq(key, m->name))
            m++;
        if (m->name.len && !read_member(mk, m, item, &head))
            return false;
        if (!m->name.len && !is_special(key))
            return fail(mk, BELAY_ERR_SYNTAX, "unknown member \"%s\"", quoted(mk, key));
    }
    if (is_blank(head.session))
        return fail(mk, BELAY_ERR_SYNTAX, "\"session\" is missing or blank");
    if (head.session.len > LIMIT_SESSION_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"session\" is over LIMIT_SESSION_BYTES (%d)",
                    LIMIT_SESSION_BYTES);
    if (head.description.len > LIMIT_DESCRIPTION_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"description\" is over LIMIT_DESCRIPTION_BYTES (%d)",
                    LIMIT_DESCRIPTION_BYTES);
    if (head.request.len > LIMIT_REQUEST_BYTES)
        return fail(mk, BELAY_ERR_RANGE, "\"request\" is over LIMIT_REQUEST_BYTES (%d)",
                    LIMIT_REQUEST_BYTES);
    *ret =
        (struct txn){.session = head.session,
                     .request = head.request,
                     .description = is_blank(head.description) ? SLICE("") : head.description,
                     .wait_ms = head.wait_ms,
                     .min_uptime_s = head.min_uptime_s};
    const struct json_token *trust = json_get(root, "min_trust");
    return !trust || read_trust(mk, trust, &ret->min_trust);
}

static bool read_statements(struct maker *mk, const struct json_token *root)
{
    const struct json_token *t = json_get(root, "statements");
    if (!t || t->type == JSON_NULL || (t->type == JSON_ARRAY && t->items == 0))
        return true; /* a ping */
    if (t->type != JSON_ARRAY)
        return fail(mk, BELAY_ERR_SYNTAX, "\"statements\" must be an array");
    program_begin(&mk->out, t->items);
    enter(mk, "statements", 0);
    if (!make_list(mk, t))
        return false;
    leave(mk);
    return true;
}

enum belay_err txn_read(struct slice json, struct arena *a, struct txn *ret,
                        const char **ret_what)
{
    struct json_error bad;
    struct json_token *root = NULL;
    struct maker mk = {.a = a};
    if (!json_parse_in(json, a, &root, &bad)) {
        (void)fail(&mk, BELAY_ERR_SYNTAX, "the JSON is malformed at byte %zu: %s", bad.offset,
                   bad.what);
        *ret_what = mk.what;
        return mk.err;
    }
    (void)buf_reserve(&mk.out, json.len / 2 + 64);
    if (read_head(&mk, root, ret)) {
        mk.session = ret->session;
        if (read_statements(&mk, root))
            ret->program = arena_copy(a, buf_slice(&mk.out));
    }
    if (mk.out.oom || mk.value.oom)
        (void)fail(&mk, BELAY_ERR_NO_MEMORY, "out of memory");
    buf_done(&mk.out);
    buf_done(&mk.value);
    *ret_what = mk.what;
    return mk.err;
}
