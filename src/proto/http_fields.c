/* http_fields.c - the named values of a request: path segments, query, JSON body. */
#include "proto/http.h"
#include "proto/json.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool decode(struct slice s, bool plus_is_space, struct arena *a, struct slice *ret)
{
    bool plain = !memchr(s.data, '%', s.len) && !(plus_is_space && memchr(s.data, '+', s.len));
    if (plain) {
        *ret = s;
        return true;
    }
    char *out = arena_alloc(a, s.len);
    if (!out)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '%') {
            int high = i + 2 < s.len ? hex_digit(s.data[i + 1]) : -1;
            int low = i + 2 < s.len ? hex_digit(s.data[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        out[n++] = c;
    }
    *ret = slice_of(out, n);
    return true;
}

bool http_decode(struct slice segment, struct arena *a, struct slice *ret)
{
    return decode(segment, false, a, ret);
}

static bool has_field(const struct request *req, struct slice key)
{
    for (size_t i = 0; i < req->n_fields; i++)
        if (slice_eq(req->fields[i].key, key))
            return true;
    return false;
}

bool http_read_query(struct request *req, struct slice query, struct arena *a,
                     const char **ret_why)
{
    req->fields = arena_alloc(a, REQUEST_FIELDS_MAX * sizeof *req->fields);
    if (!req->fields) {
        *ret_why = "out of memory";
        return false;
    }
    for (const char *p = query.data, *end = p + query.len; p < end;) {
        size_t left = (size_t)(end - p);
        const char *stop = memchr(p, '&', left);
        struct slice pair = slice_of(p, stop ? (size_t)(stop - p) : left);
        p += pair.len + 1;
        if (pair.len == 0)
            continue;
        const char *equals = memchr(pair.data, '=', pair.len);
        size_t n = equals ? (size_t)(equals - pair.data) : pair.len;
        struct slice value = equals ? slice_of(equals + 1, pair.len - n - 1) : slice_of("", 0);
        struct field f = {.type = FIELD_TEXT};
        *ret_why = NULL;
        if (!decode(slice_of(pair.data, n), true, a, &f.key) ||
            !decode(value, true, a, &f.value))
            *ret_why = "malformed percent-encoding in the query";
        else if (has_field(req, f.key))
            *ret_why = "a query field is given twice";
        else if (req->n_fields == REQUEST_FIELDS_MAX)
            *ret_why = "too many query fields";
        if (*ret_why)
            return false;
        req->fields[req->n_fields++] = f;
    }
    return true;
}

static enum field_type field_type_of(enum json_type type)
{
    switch (type) {
    case JSON_NULL:
        return FIELD_NULL;
    case JSON_FALSE:
    case JSON_TRUE:
        return FIELD_BOOL;
    case JSON_NUMBER:
        return FIELD_NUMBER;
    case JSON_STRING:
        return FIELD_TEXT;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    return FIELD_JSON;
}

static const char *why_not_json(const struct json_error *err, struct arena *a)
{
    struct reply *r = reply_error(a, BELAY_ERR_SYNTAX, "the body is not JSON: %s at byte %zu",
                                  err->what, err->offset);
    return r ? r->text.data : "the body is not JSON"; /* a reply's words end with a NUL */
}

bool http_read_body(struct request *req, struct arena *a, const char **ret_why)
{
    struct json_token *root;
    struct json_error err;
    if (req->body.len == 0)
        return true;
    if (!json_parse_in(req->body, a, &root, &err)) {
        *ret_why = why_not_json(&err, a);
        return false;
    }
    if (root->type != JSON_OBJECT) {
        *ret_why = "the body is not a JSON object";
        return false;
    }
    if (req->n_fields + root->items > REQUEST_FIELDS_MAX) {
        *ret_why = "too many fields";
        return false;
    }
    struct field *fields = arena_alloc(a, (req->n_fields + root->items) * sizeof *fields);
    if (!fields) {
        *ret_why = "out of memory";
        return false;
    }
    if (req->n_fields)
        memcpy(fields, req->fields, req->n_fields * sizeof *fields);
    const struct json_token *t = root + 1;
    for (uint32_t i = 0; i < root->items; i++, t += t->span) {
        struct field f = {json_key(t, a), json_text(t, a), field_type_of(t->type)};
        if (has_field(req, f.key)) {
            *ret_why = "a field is given in the query and in the body";
            return false;
        }
        fields[req->n_fields + i] = f;
    }
    req->fields = fields;
    req->n_fields += root->items;
    return true;
}
