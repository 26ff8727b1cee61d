/* txn.c - a transaction's tree becomes its JSON, and one command. */
#include "client/client.h"
#include "client/words.h"

#include "belay_txn.h"

#include <inttypes.h>

enum { TXN_DEPTH_MAX = 128 }; /* the server's own limit is lower */

struct txn_writer {
    struct buf out;
    int depth;
    const char *wrong; /* NULL: nothing so far */
};

/* Bytes above 127 go as they are: the server refuses what is not UTF-8. */
static void put_string(struct txn_writer *w, const char *s)
{
    buf_put_byte(&w->out, '"');
    for (; s && *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            buf_put_byte(&w->out, '\\');
        if (c < ' ')
            buf_printf(&w->out, "\\u%04x", c);
        else
            buf_put_byte(&w->out, *s);
    }
    buf_put_byte(&w->out, '"');
}

static void put_member(struct txn_writer *w, const char *name, const char *value)
{
    if (!value)
        return;
    buf_printf(&w->out, ",\"%s\":", name);
    put_string(w, value);
}

static void put_flag(struct txn_writer *w, const char *name, bool is, bool otherwise)
{
    if (is != otherwise)
        buf_printf(&w->out, ",\"%s\":%s", name, is ? "true" : "false");
}

static void put_value(struct txn_writer *w, const struct belay_op *op)
{
    if (op->json)
        buf_printf(&w->out, ",\"value\":%s", op->json);
    else
        put_member(w, "value", op->value);
}

static void put_op(struct txn_writer *w, const struct belay_op *op);

static const char *word_of(enum belay_op_kind kind)
{
    static const char *const words[] = {[BELAY_OP_ASSERT] = "assert",
                                        [BELAY_OP_ABORT] = "abort",
                                        [BELAY_OP_BLOCK] = "block",
                                        [BELAY_OP_IF] = "if",
                                        [BELAY_OP_ANYWAY] = "anyway",
                                        [BELAY_OP_SELECT_CONSTANT] = "select_constant",
                                        [BELAY_OP_SELECT_OPERATOR] = "select_operator",
                                        [BELAY_OP_SELECT] = "select",
                                        [BELAY_OP_TRUE] = "true",
                                        [BELAY_OP_FALSE] = "false",
                                        [BELAY_OP_NOT] = "not",
                                        [BELAY_OP_AND] = "and",
                                        [BELAY_OP_OR] = "or",
                                        [BELAY_OP_XOR] = "xor",
                                        [BELAY_OP_EXISTS] = "exists",
                                        [BELAY_OP_SET] = "set",
                                        [BELAY_OP_DELETE] = "delete",
                                        [BELAY_OP_LOCK] = "lock",
                                        [BELAY_OP_UNLOCK] = "unlock"};
    size_t n = sizeof words / sizeof words[0];
    return (size_t)kind < n ? words[kind] : NULL;
}

static void put_var(struct txn_writer *w, const struct belay_op *op)
{
    bool select = op->kind == BELAY_OP_SELECT;
    buf_put_str(&w->out, "{\"table\":");
    put_string(w, op->table);
    put_member(w, "key", op->key);
    if (!select)
        put_value(w, op);
    if (select)
        put_member(w, "into", op->into);
    if (select || op->kind == BELAY_OP_EXISTS)
        put_flag(w, "ignore_this_session", !op->with_this_session, true);
    put_flag(w, "abort_if_not_found", op->abort_if_not_found, false);
    put_flag(w, "many", op->many, false);
    put_member(w, "description", op->description);
    put_flag(w, "allow_duplicates", op->allow_duplicates, false);
    put_flag(w, "respect_exclusive", op->respect_exclusive, false);
    if (op->ttl_ms > 0)
        buf_printf(&w->out, ",\"ttl_ms\":%" PRId64, op->ttl_ms);
    buf_put_byte(&w->out, '}');
}

static void put_lock(struct txn_writer *w, const struct belay_op *op)
{
    buf_put_str(&w->out, "{\"name\":");
    put_string(w, op->name);
    put_member(w, "owner", op->owner);
    put_member(w, "into", op->into);
    if (op->kind == BELAY_OP_UNLOCK && op->fence)
        buf_printf(&w->out, ",\"fence\":%" PRIu64, op->fence);
    if (op->of)
        buf_printf(&w->out, ",\"permits\":%u,\"of\":%u", op->permits ? op->permits : 1, op->of);
    else if (op->mode == BELAY_SHARED)
        put_member(w, "mode", "shared");
    if (op->ttl_ms > 0)
        buf_printf(&w->out, ",\"ttl_ms\":%" PRId64, op->ttl_ms);
    buf_put_byte(&w->out, '}');
}

static void put_list(struct txn_writer *w, const struct belay_op *const *list)
{
    buf_put_byte(&w->out, '[');
    for (size_t i = 0; list && list[i]; i++) {
        buf_put_str(&w->out, i ? "," : "");
        put_op(w, list[i]);
    }
    buf_put_byte(&w->out, ']');
}

static void put_part(struct txn_writer *w, const char *before, const struct belay_op *op)
{
    buf_put_str(&w->out, before);
    put_op(w, op);
}

static void put_select(struct txn_writer *w, const struct belay_op *op)
{
    buf_put_str(&w->out, "{\"into\":");
    put_string(w, op->into);
    if (op->kind == BELAY_OP_SELECT_OPERATOR)
        put_part(w, ",\"op\":", op->a);
    else
        put_value(w, op);
    buf_put_byte(&w->out, '}');
}

static void put_parts(struct txn_writer *w, const struct belay_op *op)
{
    switch (op->kind) {
    case BELAY_OP_ASSERT:
    case BELAY_OP_ANYWAY:
    case BELAY_OP_NOT:
        put_op(w, op->a);
        break;
    case BELAY_OP_ABORT:
    case BELAY_OP_TRUE:
    case BELAY_OP_FALSE:
        buf_put_str(&w->out, "{}");
        break;
    case BELAY_OP_BLOCK:
        put_list(w, op->list);
        break;
    case BELAY_OP_IF:
        put_part(w, "{\"cond\":", op->a);
        put_part(w, ",\"then\":", op->b);
        if (op->c)
            put_part(w, ",\"else\":", op->c);
        buf_put_byte(&w->out, '}');
        break;
    case BELAY_OP_SELECT_CONSTANT:
    case BELAY_OP_SELECT_OPERATOR:
        put_select(w, op);
        break;
    case BELAY_OP_AND:
    case BELAY_OP_OR:
    case BELAY_OP_XOR:
        put_part(w, "[", op->a);
        put_part(w, ",", op->b);
        buf_put_byte(&w->out, ']');
        break;
    case BELAY_OP_SELECT:
    case BELAY_OP_EXISTS:
    case BELAY_OP_SET:
    case BELAY_OP_DELETE:
        put_var(w, op);
        break;
    case BELAY_OP_LOCK:
    case BELAY_OP_UNLOCK:
        put_lock(w, op);
        break;
    }
}

static void put_op(struct txn_writer *w, const struct belay_op *op)
{
    const char *word = op ? word_of(op->kind) : NULL;
    if (!word)
        w->wrong = op ? "a transaction has an operator of an unknown kind"
                      : "an operator of the transaction is missing";
    else if (w->depth == TXN_DEPTH_MAX)
        w->wrong = "the transaction is too deep";
    if (w->wrong)
        return;
    w->depth++;
    buf_printf(&w->out, "{\"%s\":", word);
    put_parts(w, op);
    buf_put_byte(&w->out, '}');
    w->depth--;
}

static void put_txn(struct txn_writer *w, const struct belay *b, const struct belay_txn *txn)
{
    buf_put_str(&w->out, "{\"session\":");
    put_string(w, txn->session ? txn->session : b->session);
    put_member(w, "description", txn->description);
    if (txn->wait_ms > 0)
        buf_printf(&w->out, ",\"wait_ms\":%" PRId64, txn->wait_ms);
    if (txn->min_uptime_s)
        buf_printf(&w->out, ",\"min_uptime_s\":%u", txn->min_uptime_s);
    if (txn->min_trust > 0) { /* whole millionths: no locale can put a comma there */
        unsigned millionths = (unsigned)(txn->min_trust * 1000000 + 0.5);
        buf_printf(&w->out, ",\"min_trust\":%ue-6", millionths);
    }
    buf_put_str(&w->out, ",\"statements\":");
    put_list(w, txn->statements);
    buf_put_byte(&w->out, '}');
}

/* [status, failed, cause, uptime_s, trust, norm, data] */
static int read_result(struct belay *b, const struct belay_reply *r,
                       struct belay_txn_result *ret)
{
    enum { RESULT_WORDS = 7 };
    const char *status = belay_text(belay_at(r, 0), "");
    const struct belay_reply *trust = belay_at(r, 4), *norm = belay_at(r, 5);
    if (!r || r->kind != BELAY_LIST || r->count < RESULT_WORDS)
        return client_fail(b, BELAY_E_PROTOCOL, "the answer is not that of a transaction");
    struct belay_txn_result got = {
        .failed = belay_text(belay_at(r, 1), ""),
        .cause = belay_text(belay_at(r, 2), ""),
        .uptime_s = belay_int(belay_at(r, 3), 0),
        .trust = trust->kind == BELAY_DOUBLE ? trust->real : (double)belay_int(trust, 0),
        .norm = norm->kind == BELAY_DOUBLE ? norm->real : (double)belay_int(norm, 0),
        .data = belay_at(r, 6)};
    if (strcmp(status, "ok") == 0)
        got.status = BELAY_TXN_OK;
    else if (strcmp(status, "error") == 0)
        got.status = BELAY_TXN_ERROR;
    else if (strcmp(status, "timeout") == 0)
        got.status = BELAY_TXN_TIMED_OUT;
    else
        return client_fail(b, BELAY_E_PROTOCOL, "a transaction has no status \"%s\"", status);
    *ret = got;
    return BELAY_E_OK;
}

static int send_json(struct belay *b, const char *json, size_t len, int64_t wait_ms,
                     struct belay_txn_result *ret_r)
{
    const struct belay_reply *r = NULL;
    struct words c = {0};
    words_add(&c, "TXN");
    words_bytes(&c, json, len);
    int64_t timeout_ms = wait_ms > 0 ? client_add_ms(b->timeout_ms, wait_ms) : 0;
    int err = belay_callv(b, c.w, c.n, timeout_ms, &r);
    return err == BELAY_E_OK ? read_result(b, r, ret_r) : err;
}

/* Until the answer is there it did not happen: so it reads when the call fails. */
static int begin_result(struct belay *b, struct belay_txn_result *ret_r)
{
    if (!ret_r)
        return client_fail(b, BELAY_E_USAGE, "a transaction needs room for its result");
    *ret_r = (struct belay_txn_result){.status = BELAY_TXN_ERROR, .cause = "", .failed = ""};
    return BELAY_E_OK;
}

static int check_txn(struct belay *b, const struct belay_txn *txn)
{
    if (!txn)
        return client_fail(b, BELAY_E_USAGE, "there is no transaction");
    if (txn->wait_ms < 0)
        return client_fail(b, BELAY_E_USAGE, "a duration is negative");
    if (!(txn->min_trust >= 0 && txn->min_trust <= 1)) /* NaN is neither */
        return client_fail(b, BELAY_E_USAGE, "min_trust is between 0 and 1");
    if (!txn->session && b->session_lost)
        return client_fail(b, BELAY_E_LOST, "the session of this handle is over");
    if (!txn->session && !b->session[0])
        return client_fail(b, BELAY_E_USAGE, "a transaction needs a session");
    return BELAY_E_OK;
}

int belay_txn(struct belay *b, const struct belay_txn *txn, struct belay_txn_result *ret_r)
{
    struct txn_writer w = {0};
    int err = begin_result(b, ret_r);
    if (err == BELAY_E_OK)
        err = check_txn(b, txn);
    if (err != BELAY_E_OK)
        return err;
    put_txn(&w, b, txn);
    if (w.wrong)
        err = client_fail(b, BELAY_E_USAGE, "%s", w.wrong);
    else if (w.out.oom)
        err = client_fail(b, BELAY_E_MEMORY, "out of memory");
    else
        err = send_json(b, buf_data(&w.out), buf_len(&w.out), txn->wait_ms, ret_r);
    buf_done(&w.out);
    return err;
}

int belay_txn_json(struct belay *b, const char *json, int64_t wait_ms,
                   struct belay_txn_result *ret_r)
{
    int err = begin_result(b, ret_r);
    if (err != BELAY_E_OK)
        return err;
    if (!json)
        return client_fail(b, BELAY_E_USAGE, "there is no transaction");
    return send_json(b, json, strlen(json), wait_ms, ret_r);
}

const char *belay_txn_value(const struct belay_txn_result *r, const char *name)
{
    for (const struct belay_reply *row = r->data ? r->data->first : NULL; row; row = row->next)
        if (strcmp(belay_text(belay_at(row, 0), ""), name) == 0)
            return belay_text(belay_at(row, 1), "null");
    return NULL;
}
