/* answer_txn.c - what came of a transaction, and what tables look like. */
#include "command/answer.h"

#include "proto/json.h"

static void put_number(struct buf *out, const char *key, uint64_t v)
{
    buf_put_str(out, key);
    buf_put_u64(out, v);
}

static void put_record(struct buf *out, const struct record_row *r)
{
    buf_put_str(out, "{\"session\":");
    json_put_string(out, r->session);
    buf_put_str(out, ",\"value\":");
    buf_put_slice(out, r->value);
    buf_put_str(out, ",\"description\":");
    json_put_string(out, r->description);
    put_number(out, ",\"set_ms_ago\":", r->set_ms_ago);
    if (r->forever)
        buf_put_str(out, ",\"expires_in_ms\":null}");
    else
        put_number(out, ",\"expires_in_ms\":", r->expires_in_ms);
    if (!r->forever)
        buf_put_byte(out, '}');
}

/* Room for all of them at once: they may be megabytes, which are not to be moved again and again. */
static void reserve_records(struct buf *out, const struct txn_row *row)
{
    enum { AROUND_BYTES = 128 };
    size_t bytes = 0;
    for (size_t i = 0; i < row->n_records; i++)
        bytes += AROUND_BYTES + row->records[i].session.len + row->records[i].value.len +
                 row->records[i].description.len;
    (void)buf_reserve(out, bytes);
}

static void put_records(struct buf *out, const struct txn_row *row)
{
    reserve_records(out, row);
    buf_put_byte(out, '[');
    for (size_t i = 0; i < row->n_records; i++) {
        if (i)
            buf_put_byte(out, ',');
        put_record(out, &row->records[i]);
    }
    buf_put_byte(out, ']');
}

/* A selected value is JSON through every door: in RESP the bytes of it. */
static struct slice row_json(const struct txn_row *row, struct arena *a)
{
    struct buf out = {0};
    switch (row->kind) {
    case TXN_ROW_NULL:
        return SLICE("null");
    case TXN_ROW_JSON:
        return row->json;
    case TXN_ROW_BOOL:
        return row->truth ? SLICE("true") : SLICE("false");
    case TXN_ROW_FENCE:
        buf_put_u64(&out, row->fence);
        break;
    case TXN_ROW_RECORD:
        put_record(&out, row->records);
        break;
    case TXN_ROW_RECORDS:
        put_records(&out, row);
        break;
    }
    BELAY_CHECK(!out.oom);
    struct slice json = arena_copy(a, buf_slice(&out));
    buf_done(&out);
    return json;
}

static void put_word(struct arena *a, struct reply *map, const char *key, struct slice word)
{
    if (word.len)
        reply_text(a, map, key, word);
    else
        reply_null(a, map, key);
}

static int http_status(const struct event *ev)
{
    if (ev->status == TXN_OK)
        return 200;
    if (ev->status == TXN_TIMEOUT)
        return 408;
    if (ev->cause == CAUSE_SESSION)
        return 404;
    return ev->cause == CAUSE_REQUIREMENTS ? 412 : 409;
}

static void put_real(struct arena *a, struct reply *map, const char *key, double v)
{
    struct reply *r = reply_new(a, REPLY_DOUBLE);
    r->real = v;
    reply_add(map, slice_str(key), r);
}

struct reply *answer_txn(const struct event *ev, struct answer_standing standing,
                         struct arena *a)
{
    struct reply *r = reply_new(a, REPLY_MAP);
    r->flags |= REPLY_ROW;
    r->status = http_status(ev);
    reply_text(a, r, "status", slice_str(txn_status_word(ev->status)));
    put_word(a, r, "failed", ev->failed);
    put_word(a, r, "cause", slice_str(txn_cause_word(ev->cause)));
    reply_int(a, r, "uptime_s", (int64_t)standing.uptime_s);
    put_real(a, r, "trust", standing.trust);
    put_real(a, r, "norm", standing.norm);
    struct reply *data = reply_list(a, r, "data");
    for (size_t i = 0; i < ev->n_data; i++) {
        struct reply *row = reply_map(a, data, NULL);
        row->flags |= REPLY_ROW;
        reply_text(a, row, "name", ev->data[i].name);
        struct reply *value = reply_new(a, REPLY_JSON);
        value->text = row_json(&ev->data[i], a);
        reply_add(row, SLICE("value"), value);
    }
    return r;
}

static struct slice put_tables(const struct event *ev, struct reply *list, struct arena *a)
{
    struct slice last = SLICE("");
    for (size_t i = 0; i < ev->n_rows; i++) {
        struct reply *m = reply_map(a, list, NULL);
        reply_text(a, m, "name", ev->tables[i].name);
        reply_int(a, m, "keys", (int64_t)ev->tables[i].keys);
        reply_int(a, m, "records", (int64_t)ev->tables[i].records);
        last = ev->tables[i].name;
    }
    return last;
}

static struct slice put_variables(const struct event *ev, struct reply *list, struct arena *a)
{
    struct slice last = SLICE("");
    for (size_t i = 0; i < ev->n_rows; i++) {
        const struct record_row *r = &ev->variables[i].record;
        struct reply *m = reply_map(a, list, NULL);
        reply_text(a, m, "key", ev->variables[i].key);
        reply_text(a, m, "session", r->session);
        struct reply *value = reply_new(a, REPLY_JSON);
        value->text = r->value;
        reply_add(m, SLICE("value"), value);
        reply_text(a, m, "description", r->description);
        reply_bool(a, m, "exclusive", r->exclusive);
        reply_int(a, m, "set_ms_ago", (int64_t)r->set_ms_ago);
        if (r->forever)
            reply_null(a, m, "expires_in_ms");
        else
            reply_int(a, m, "expires_in_ms", (int64_t)r->expires_in_ms);
        last = ev->variables[i].key;
    }
    return last;
}

struct reply *answer_tables(const struct event *ev, enum op_kind op, struct arena *a)
{
    bool tables = op == OP_TABLE_LIST;
    struct reply *r = reply_new(a, REPLY_MAP);
    r->flags |= REPLY_ROW;
    struct reply *list = reply_list(a, r, tables ? "tables" : "variables");
    struct slice last = tables ? put_tables(ev, list, a) : put_variables(ev, list, a);
    if (ev->more)
        reply_text(a, r, "next", last);
    else
        reply_null(a, r, "next");
    return r;
}
