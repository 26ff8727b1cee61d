/* JSON: json-c, strict, is the oracle: we take nothing that it refuses. What we take and write
 * again means the same, and any bytes at all become a string that we take. */
#define json_type oracle_json_type /* both libraries have an enum of that name */
#include <json-c/json.h>
#undef json_type

#include "base/check.h"
#include "base/utf8.h"
#include "proto/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool oracle_takes(struct slice text)
{
    struct json_tokener *t = json_tokener_new_ex(JSON_DEPTH_MAX + 8);
    json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    struct json_object *o = json_tokener_parse_ex(t, text.data, (int)text.len);
    enum json_tokener_error err = json_tokener_get_error(t);
    if (err == json_tokener_continue) { /* a number may go on: tell it that the text is over */
        o = json_tokener_parse_ex(t, "", 1);
        err = json_tokener_get_error(t);
    }
    json_object_put(o);
    json_tokener_free(t);
    return err == json_tokener_success;
}

static void emit(struct buf *out, const struct json_token *t, struct arena *a)
{
    const struct json_token *c = t + 1;
    if (t->type == JSON_STRING) {
        json_put_string(out, json_text(t, a));
        return;
    }
    if (t->type != JSON_ARRAY && t->type != JSON_OBJECT) {
        buf_put_slice(out, t->raw);
        return;
    }
    buf_put_byte(out, t->type == JSON_ARRAY ? '[' : '{');
    for (uint32_t i = 0; i < t->items; i++, c += c->span) {
        if (i)
            buf_put_byte(out, ',');
        if (t->type == JSON_OBJECT) {
            json_put_string(out, json_key(c, a));
            buf_put_byte(out, ':');
        }
        emit(out, c, a);
    }
    buf_put_byte(out, t->type == JSON_ARRAY ? ']' : '}');
    BELAY_CHECK(c == t + t->span);
}

static void check_numbers(const struct json_token *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v = 0;
        uint64_t u = 0;
        char text[32];
        if (t[i].type != JSON_NUMBER)
            continue;
        if (json_i64(t[i].raw, &v) && t[i].raw.len < sizeof text) {
            memcpy(text, t[i].raw.data, t[i].raw.len);
            text[t[i].raw.len] = '\0';
            bool plain = strspn(text, "-0123456789") == t[i].raw.len;
            BELAY_CHECK(!plain || strtoll(text, NULL, 10) == v);
            BELAY_CHECK(v < 0 || *text == '-' || (json_u64(t[i].raw, &u) && u == (uint64_t)v));
        }
    }
}

static void check_document(struct slice text)
{
    struct arena a = {0};
    struct json_token *root = NULL;
    struct json_error err = {0, NULL};
    if (!json_parse_in(text, &a, &root, &err)) {
        BELAY_CHECK(err.what);
        BELAY_CHECK(err.offset <= text.len);
        arena_done(&a);
        return;
    }
    struct buf out = {0};
    BELAY_CHECK(oracle_takes(text));
    check_numbers(root, root->span);
    emit(&out, root, &a);
    BELAY_CHECK(oracle_takes(buf_slice(&out)));
    BELAY_CHECK(json_same(text, buf_slice(&out), &a));
    BELAY_CHECK(json_same(buf_slice(&out), text, &a));
    buf_done(&out);
    arena_done(&a);
}

static void check_string(struct slice bytes)
{
    struct arena a = {0};
    struct buf out = {0};
    struct json_token *root = NULL;
    struct json_error err;
    json_put_string(&out, bytes);
    BELAY_CHECK(json_parse_in(buf_slice(&out), &a, &root, &err));
    bool valid = true;
    for (size_t i = 0, n; valid && i < bytes.len; i += n)
        valid = (n = utf8_len(bytes.data + i, bytes.len - i)) != 0;
    BELAY_CHECK(!valid || slice_eq(json_text(root, &a), bytes));
    buf_done(&out);
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of((const char *)data, size);
    check_document(in);
    check_string(in);
    return 0;
}
