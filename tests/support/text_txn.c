/* text_txn.c - statements of a transaction as short words, and back what came of them. */
#include "base/check.h"
#include "machine/program.h"
#include "text_format.h"

#include <stdio.h>
#include <stdlib.h>

enum { PARTS_MAX = 80 };

static const struct {
    const char *word;
    enum program_node node;
} calls[] = {
    {"assert", NODE_ASSERT},
    {"abort", NODE_ABORT},
    {"block", NODE_BLOCK},
    {"if", NODE_IF},
    {"anyway", NODE_ANYWAY},
    {"const", NODE_SELECT_CONSTANT},
    {"op", NODE_SELECT_OPERATOR},
    {"select", NODE_SELECT},
    {"true", NODE_TRUE},
    {"false", NODE_FALSE},
    {"not", NODE_NOT},
    {"and", NODE_AND},
    {"or", NODE_OR},
    {"xor", NODE_XOR},
    {"exists", NODE_EXISTS},
    {"set", NODE_SET},
    {"delete", NODE_DELETE},
    {"lock", NODE_LOCK},
    {"unlock", NODE_UNLOCK},
};

static void lost(struct slice text)
{
    fprintf(stderr, "story: not understood: %.*s\n", (int)text.len, text.data);
    abort();
}

/* name(part,part): the parts, split at commas that stand in no parentheses. */
static enum program_node take(struct slice text, struct slice *parts, size_t *ret_n)
{
    const char *open = memchr(text.data, '(', text.len);
    size_t word = open ? (size_t)(open - text.data) : text.len, depth = 0, from = word + 1;
    *ret_n = 0;
    for (size_t i = word + 1; open && i < text.len; i++) {
        char c = text.data[i];
        bool ends = depth == 0 && (c == ',' || c == ')');
        if (ends && i > from) {
            BELAY_CHECK(*ret_n < PARTS_MAX);
            parts[(*ret_n)++] = slice_of(text.data + from, i - from);
        }
        if (ends)
            from = i + 1;
        depth += c == '(' || c == '[' || c == '{';
        depth -= depth && (c == ')' || c == ']' || c == '}');
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (slice_eq(slice_of(text.data, word), slice_str(calls[i].word)))
            return calls[i].node;
    lost(text);
    return NODE_NONE;
}

static uint64_t number_behind(struct slice part, size_t skip)
{
    char digits[24] = {0};
    BELAY_CHECK(part.len - skip < sizeof digits);
    memcpy(digits, part.data + skip, part.len - skip);
    return strtoull(digits, NULL, 10);
}

static void read_var_option(struct slice part, struct program_var *v)
{
    if (slice_eq(part, SLICE("mine")))
        v->flags &= ~(uint64_t)VAR_IGNORE_THIS_SESSION;
    else if (slice_eq(part, SLICE("need")))
        v->flags |= VAR_ABORT_IF_NOT_FOUND;
    else if (slice_eq(part, SLICE("many")))
        v->flags |= VAR_MANY;
    else if (slice_eq(part, SLICE("dup")))
        v->flags |= VAR_ALLOW_DUPLICATES;
    else if (slice_eq(part, SLICE("respect")))
        v->flags |= VAR_RESPECT_EXCLUSIVE;
    else if (slice_starts(part, SLICE("ttl=")))
        v->ttl_ms = number_behind(part, 4);
    else if (slice_starts(part, SLICE("text=")))
        v->description = slice_of(part.data + 5, part.len - 5);
    else if (v->flags & VAR_HAS_VALUE)
        lost(part);
    else {
        v->flags |= VAR_HAS_VALUE;
        v->value = part;
    }
}

/* exists(t,k[,value][,mine]) set(t,k,value[,dup][,respect][,ttl=n][,text=x])
 * delete(t,k[,value]) select(into,t,k[,mine][,need][,many]) */
static void put_var(struct buf *out, enum program_node node, const struct slice *parts,
                    size_t n)
{
    struct program_var v = {0};
    size_t at = 0;
    if (node == NODE_EXISTS || node == NODE_SELECT)
        v.flags = VAR_IGNORE_THIS_SESSION;
    if (node == NODE_SELECT)
        v.into = parts[at++];
    BELAY_CHECK(n >= at + 2);
    v.table = parts[at++];
    v.key = parts[at++];
    for (; at < n; at++)
        read_var_option(parts[at], &v);
    program_put_var(out, node, &v);
}

/* lock(name,owner[,shared][,2/5][,ttl=n][,into=x]) unlock(name,owner) unlock(name,#fence) */
static void put_lock(struct buf *out, enum program_node node, const struct slice *parts,
                     size_t n)
{
    BELAY_CHECK(n >= 2);
    struct program_lock l = {.name = parts[0], .into = parts[0], .mode = MODE_EXCLUSIVE};
    if (parts[1].data[0] == '#')
        l.fence = number_behind(parts[1], 1);
    else
        l.owner = parts[1];
    for (size_t i = 2; i < n; i++) {
        const char *slash = memchr(parts[i].data, '/', parts[i].len);
        if (slice_eq(parts[i], SLICE("shared"))) {
            l.mode = MODE_SHARED;
        } else if (slice_starts(parts[i], SLICE("ttl="))) {
            l.ttl_ms = number_behind(parts[i], 4);
        } else if (slice_starts(parts[i], SLICE("into="))) {
            l.into = slice_of(parts[i].data + 5, parts[i].len - 5);
        } else if (slash) {
            size_t skip = (size_t)(slash - parts[i].data);
            l.mode = MODE_SEMAPHORE;
            l.permits = number_behind(slice_of(parts[i].data, skip), 0);
            l.of = number_behind(parts[i], skip + 1);
        } else {
            lost(parts[i]);
        }
    }
    program_put_lock(out, node, &l);
}

static void put_if(struct buf *out, const struct slice *parts, size_t n)
{
    BELAY_CHECK(n >= 2);
    text_put_node(out, parts[0]);
    for (size_t i = 1; i <= 2; i++) {
        size_t branch = program_branch(out);
        if (i < n)
            text_put_node(out, parts[i]);
        program_branch_end(out, branch);
    }
}

void text_put_node(struct buf *out, struct slice text)
{
    struct slice parts[PARTS_MAX];
    size_t n;
    enum program_node node = take(text, parts, &n);
    if (node == NODE_EXISTS || node == NODE_SET || node == NODE_DELETE || node == NODE_SELECT) {
        put_var(out, node, parts, n);
        return;
    }
    if (node == NODE_LOCK || node == NODE_UNLOCK) {
        put_lock(out, node, parts, n);
        return;
    }
    if (node == NODE_SELECT_CONSTANT) {
        BELAY_CHECK(n == 2);
        program_put_constant(out, parts[0], parts[1]);
        return;
    }
    size_t first = 0;
    if (node == NODE_BLOCK || node == NODE_AND || node == NODE_OR || node == NODE_XOR)
        program_put_count(out, node, n);
    else
        program_put(out, node);
    if (node == NODE_SELECT_OPERATOR)
        program_put_into(out, parts[first++]);
    if (node == NODE_IF) {
        put_if(out, parts, n);
        return;
    }
    for (; first < n; first++)
        text_put_node(out, parts[first]);
}

static void put_record(struct buf *out, const struct record_row *r)
{
    text_put_text(out, r->value);
    buf_put_byte(out, '@');
    text_put_text(out, r->session);
}

static void put_data(struct buf *out, const struct txn_row *row)
{
    buf_put_byte(out, ' ');
    text_put_text(out, row->name);
    buf_put_byte(out, '=');
    switch (row->kind) {
    case TXN_ROW_NULL:
        buf_put_str(out, "null");
        break;
    case TXN_ROW_JSON:
        text_put_text(out, row->json);
        break;
    case TXN_ROW_BOOL:
        buf_put_str(out, row->truth ? "true" : "false");
        break;
    case TXN_ROW_FENCE:
        buf_printf(out, "#%llu", (unsigned long long)row->fence);
        break;
    case TXN_ROW_RECORD:
        put_record(out, row->records);
        break;
    case TXN_ROW_RECORDS:
        for (size_t i = 0; i < row->n_records; i++) {
            buf_put_byte(out, i ? ',' : '[');
            put_record(out, &row->records[i]);
        }
        buf_put_byte(out, ']');
        break;
    }
}

void text_put_txn(struct buf *out, const struct event *ev)
{
    if (ev->asker == 0)
        return; /* news */
    buf_printf(out, " %s", txn_status_word(ev->status));
    if (ev->cause != CAUSE_NONE)
        buf_printf(out, " %s", txn_cause_word(ev->cause));
    if (ev->failed.len) {
        buf_put_byte(out, ' ');
        text_put_text(out, ev->failed);
    }
    for (size_t i = 0; i < ev->n_data; i++)
        put_data(out, &ev->data[i]);
}

void text_put_tables(struct buf *out, const struct event *ev)
{
    for (size_t i = 0; ev->tables && i < ev->n_rows; i++) {
        buf_put_str(out, " [");
        text_put_text(out, ev->tables[i].name);
        buf_printf(out, " keys=%llu records=%llu]", (unsigned long long)ev->tables[i].keys,
                   (unsigned long long)ev->tables[i].records);
    }
    for (size_t i = 0; ev->variables && i < ev->n_rows; i++) {
        const struct record_row *r = &ev->variables[i].record;
        buf_put_str(out, " [");
        text_put_text(out, ev->variables[i].key);
        buf_put_byte(out, '=');
        put_record(out, r);
        if (r->description.len) {
            buf_put_str(out, " \"");
            text_put_text(out, r->description);
            buf_put_byte(out, '"');
        }
        buf_printf(out, " set=%llu", (unsigned long long)r->set_ms_ago);
        if (!r->forever)
            buf_printf(out, " left=%llu", (unsigned long long)r->expires_in_ms);
        buf_put_str(out, r->exclusive ? " exclusive]" : "]");
    }
}
