/* random_txn.c - random transactions, as a tree and as JSON. */
#include "base/check.h"
#include "txn_twin.h"

#include <inttypes.h>

enum { DRAW_DEPTH_MAX = 4 };

static int new_node(struct tt_txn *x, enum program_node kind)
{
    BELAY_CHECK(x->n < TT_NODES);
    x->nodes[x->n] = (struct tt_node){.kind = kind, .value = -1};
    return x->n++;
}

static void draw_place(struct choice *c, struct tt_node *n)
{
    n->table = (int)choice_below(c, TT_TABLES);
    n->key = (int)choice_below(c, TT_KEYS);
}

static void draw_var(struct choice *c, struct tt_node *n)
{
    draw_place(c, n);
    if (n->kind == NODE_SET || choice_one_in(c, 3))
        n->value = (int)choice_below(c, TT_VALUES);
    if (n->kind == NODE_EXISTS)
        n->mine = choice_one_in(c, 3);
    if (n->kind == NODE_SET) {
        n->dup = choice_one_in(c, 2);
        n->respect = choice_one_in(c, 3);
        n->ttl_ms = choice_one_in(c, 3) ? 1 + choice_below(c, 120) : 0;
    }
}

static void draw_lock(struct choice *c, const struct tt *t, struct tt_node *n)
{
    n->lock = (int)choice_below(c, TT_LOCKS);
    n->owner = (int)choice_below(c, TT_OWNERS);
    n->mode = MODE_EXCLUSIVE;
    if (n->kind == NODE_UNLOCK) {
        int holds = t->s.n_holds[n->lock];
        if (holds && choice_one_in(c, 2))
            n->fence = t->s.holds[n->lock][choice_below(c, (uint64_t)holds)].fence;
        return;
    }
    n->ttl_ms = choice_one_in(c, 3) ? 1 + choice_below(c, 120) : 0;
    if (choice_one_in(c, 3)) {
        n->mode = MODE_SHARED;
    } else if (choice_one_in(c, 3)) {
        n->mode = MODE_SEMAPHORE;
        n->of = 3;
        n->permits = 1 + choice_below(c, 3);
    }
}

static int draw_op(struct choice *c, const struct tt *t, struct tt_txn *x, int depth)
{
    static const enum program_node kinds[] = {
        NODE_TRUE, NODE_FALSE,  NODE_NOT,    NODE_NOT, NODE_AND, NODE_OR,
        NODE_XOR,  NODE_EXISTS, NODE_EXISTS, NODE_SET, NODE_SET, NODE_DELETE,
        NODE_LOCK, NODE_UNLOCK, NODE_EXISTS, NODE_SET};
    bool leaf = depth >= DRAW_DEPTH_MAX || x->n > TT_NODES - 8;
    enum program_node kind = choice_of(c, kinds);
    while (leaf && kind >= NODE_NOT && kind <= NODE_XOR)
        kind = choice_one_in(c, 2) ? NODE_EXISTS : NODE_SET;
    int at = new_node(x, kind);
    if (kind == NODE_EXISTS || kind == NODE_SET || kind == NODE_DELETE)
        draw_var(c, &x->nodes[at]);
    if (kind == NODE_LOCK || kind == NODE_UNLOCK)
        draw_lock(c, t, &x->nodes[at]);
    int n = kind == NODE_NOT ? 1 : 0;
    if (kind == NODE_AND || kind == NODE_OR || kind == NODE_XOR)
        n = choice_one_in(c, 4) ? 3 : 2;
    for (int i = 0; i < n; i++) {
        int kid = draw_op(c, t, x, depth + 1);
        x->nodes[at].kids[x->nodes[at].n++] = kid;
    }
    return at;
}

static int draw_statement(struct choice *c, const struct tt *t, struct tt_txn *x, int depth)
{
    static const enum program_node kinds[] = {
        NODE_ASSERT,         NODE_ASSERT, NODE_ASSERT, NODE_ASSERT,
        NODE_ABORT,          NODE_BLOCK,  NODE_IF,     NODE_ANYWAY,
        NODE_ANYWAY,         NODE_SELECT, NODE_SELECT, NODE_SELECT_CONSTANT,
        NODE_SELECT_OPERATOR};
    enum program_node kind = choice_of(c, kinds);
    if (kind == NODE_ABORT && !choice_one_in(c, 3))
        kind = NODE_ANYWAY;
    if ((depth >= 2 || x->n > TT_NODES - 16) && (kind == NODE_BLOCK || kind == NODE_IF))
        kind = NODE_ASSERT;
    int at = new_node(x, kind);
    int statements = kind == NODE_BLOCK ? 1 + (int)choice_below(c, 2) : 0;
    if (kind == NODE_IF)
        statements = 1 + (int)choice_below(c, 2);
    if (kind == NODE_SELECT) {
        draw_place(c, &x->nodes[at]);
        x->nodes[at].mine = choice_one_in(c, 2);
        x->nodes[at].many = choice_one_in(c, 2);
        x->nodes[at].need = choice_one_in(c, 6);
    } else if (kind == NODE_SELECT_CONSTANT) {
        x->nodes[at].value = (int)choice_below(c, TT_VALUES);
    } else if (kind != NODE_ABORT && kind != NODE_BLOCK) {
        int kid = draw_op(c, t, x, depth + 1);
        x->nodes[at].kids[x->nodes[at].n++] = kid;
    }
    for (int i = 0; i < statements; i++) {
        int kid = draw_statement(c, t, x, depth + 1);
        x->nodes[at].kids[x->nodes[at].n++] = kid;
    }
    return at;
}

/* --- as JSON --- */

static void put(struct buf *out, const struct tt_txn *x, int at);

static void put_list(struct buf *out, const struct tt_txn *x, const struct tt_node *n)
{
    buf_put_byte(out, '[');
    for (int i = 0; i < n->n; i++) {
        buf_put_str(out, i ? "," : "");
        put(out, x, n->kids[i]);
    }
    buf_put_byte(out, ']');
}

static void put_flag(struct buf *out, const char *name, bool is, bool otherwise)
{
    if (is != otherwise)
        buf_printf(out, ",\"%s\":%s", name, is ? "true" : "false");
}

/* Letter case of tables, spelling of numbers: what must not matter is varied. */
static void put_var(struct buf *out, const struct tt_node *n, int at)
{
    bool select = n->kind == NODE_SELECT;
    buf_printf(out, "{\"table\":\"%c%d\",\"key\":\"k%d\"", at % 2 ? 't' : 'T', n->table,
               n->key);
    if (n->value >= 0 && !select)
        buf_printf(out, ",\"value\":%d%s", n->value, at % 3 ? "" : ".0");
    if (n->kind == NODE_EXISTS || select)
        put_flag(out, "ignore_this_session", !n->mine, true);
    if (select)
        buf_put_str(out, ",\"into\":\"x\"");
    put_flag(out, "abort_if_not_found", n->need, false);
    put_flag(out, "many", n->many, false);
    put_flag(out, "allow_duplicates", n->dup, false);
    put_flag(out, "respect_exclusive", n->respect, false);
    if (n->ttl_ms)
        buf_printf(out, ",\"ttl_ms\":%" PRIu64, n->ttl_ms);
    buf_put_byte(out, '}');
}

static void put_lock(struct buf *out, const struct tt_node *n)
{
    buf_printf(out, "{\"name\":\"l%d\"", n->lock);
    if (n->fence)
        buf_printf(out, ",\"fence\":%" PRIu64, n->fence);
    else
        buf_printf(out, ",\"owner\":\"o%d\"", n->owner);
    if (n->kind == NODE_LOCK && n->mode == MODE_SEMAPHORE)
        buf_printf(out, ",\"permits\":%" PRIu64 ",\"of\":%" PRIu64, n->permits, n->of);
    if (n->kind == NODE_LOCK && n->mode == MODE_SHARED)
        buf_put_str(out, ",\"mode\":\"shared\"");
    if (n->ttl_ms)
        buf_printf(out, ",\"ttl_ms\":%" PRIu64, n->ttl_ms);
    buf_put_byte(out, '}');
}

static void put_if(struct buf *out, const struct tt_txn *x, const struct tt_node *n)
{
    static const char *const parts[] = {"{\"cond\":", ",\"then\":", ",\"else\":"};
    for (int i = 0; i < n->n; i++) {
        buf_put_str(out, parts[i]);
        put(out, x, n->kids[i]);
    }
    buf_put_byte(out, '}');
}

static void put(struct buf *out, const struct tt_txn *x, int at)
{
    const struct tt_node *n = &x->nodes[at];
    enum program_node kind = n->kind;
    buf_printf(out, "{\"%s\":", program_word(kind));
    if (kind == NODE_EXISTS || kind == NODE_SET || kind == NODE_DELETE || kind == NODE_SELECT)
        put_var(out, n, at);
    else if (kind == NODE_LOCK || kind == NODE_UNLOCK)
        put_lock(out, n);
    else if (kind == NODE_BLOCK || kind == NODE_AND || kind == NODE_OR || kind == NODE_XOR)
        put_list(out, x, n);
    else if (kind == NODE_IF)
        put_if(out, x, n);
    else if (kind == NODE_SELECT_CONSTANT)
        buf_printf(out, "{\"into\":\"c\",\"value\":%d}", n->value);
    else if (kind == NODE_SELECT_OPERATOR) {
        buf_put_str(out, "{\"into\":\"o\",\"op\":");
        put(out, x, n->kids[0]);
        buf_put_byte(out, '}');
    } else if (n->n)
        put(out, x, n->kids[0]);
    else
        buf_put_str(out, "{}");
    buf_put_byte(out, '}');
}

/* What transactions wait for in life: a key, a lock, or somebody else's key to come or go. */
static int draw_wish(struct choice *c, const struct tt *t, struct tt_txn *x)
{
    static const enum program_node kinds[] = {NODE_SET, NODE_LOCK, NODE_EXISTS, NODE_NOT};
    int at = new_node(x, NODE_ASSERT), kid = new_node(x, choice_of(c, kinds));
    x->nodes[at].kids[x->nodes[at].n++] = kid;
    if (x->nodes[kid].kind == NODE_LOCK)
        draw_lock(c, t, &x->nodes[kid]);
    else if (x->nodes[kid].kind != NODE_NOT)
        draw_var(c, &x->nodes[kid]);
    if (x->nodes[kid].kind != NODE_NOT)
        return at;
    int absent = new_node(x, NODE_EXISTS);
    draw_var(c, &x->nodes[absent]);
    x->nodes[kid].kids[x->nodes[kid].n++] = absent;
    return at;
}

void tt_draw(struct choice *c, const struct tt *t, struct tt_txn *ret, struct buf *json)
{
    *ret = (struct tt_txn){.session = (int)choice_below(c, TT_SESSIONS)};
    if (t->n_parked < TT_PARKED && choice_one_in(c, 3))
        ret->wait_ms = 1 + choice_below(c, 400);
    int n = 1 + (int)choice_below(c, ret->wait_ms ? 2 : TT_TOP); /* few hold for long */
    for (int i = 0; i < n && ret->n < TT_NODES / 2; i++) {
        bool wish = ret->wait_ms && choice_one_in(c, 2);
        int at = wish ? draw_wish(c, t, ret) : draw_statement(c, t, ret, 1);
        ret->top[ret->n_top++] = at;
    }
    buf_printf(json, "{\"session\":\"s%d\",\"wait_ms\":%" PRIu64 ",\"statements\":[",
               ret->session, ret->wait_ms);
    for (int i = 0; i < ret->n_top; i++) {
        buf_put_str(json, i ? "," : "");
        put(json, ret, ret->top[i]);
    }
    buf_put_str(json, "]}");
}
