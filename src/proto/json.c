/* json.c - strict JSON: a tokenizer and a writer. */
#include "proto/json.h"
#include "base/utf8.h"

static inline bool is_plain(char c) /* in a string: stands for itself, and is one byte */
{
    return (unsigned char)c - 0x20u < 0x60 && c != '"' && c != '\\';
}

static const char too_many[] = "too many values";

struct parser {
    const char *start, *at, *end;
    struct json_token *tokens;
    size_t n, max;
    size_t depth;
    uint32_t *open; /* the containers around `at`, by token; JSON_DEPTH_MAX of them */
    const char *what;
};

static bool bad(struct parser *p, const char *at, const char *what)
{
    p->at = at;
    p->what = what;
    return false;
}

static inline void skip_space(struct parser *p)
{
    while (p->at < p->end &&
           (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

/* Four hex digits; -1 when they are not. */
static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = (char)(p[i] | 0x20);
        if (p[i] >= '0' && p[i] <= '9')
            v = v * 16 + (p[i] - '0');
        else if (c >= 'a' && c <= 'f')
            v = v * 16 + (c - 'a' + 10);
        else
            return -1;
    }
    return v;
}

static bool is_high(int u)
{
    return u >= 0xd800 && u < 0xdc00;
}

static bool is_low(int u)
{
    return u >= 0xdc00 && u < 0xe000;
}

/* A checked escape, `at` on its backslash. */
static bool check_escape(struct parser *p)
{
    if (p->end - p->at < 2)
        return bad(p, p->end, "unfinished string");
    char c = p->at[1];
    if (c != 'u') {
        if (c == '\0' || !strchr("\"\\/bfnrt", c))
            return bad(p, p->at, "unknown escape");
        p->at += 2;
        return true;
    }
    int u = hex4(p->at + 2, p->end);
    if (u < 0)
        return bad(p, p->at, "bad \\u escape");
    if (is_low(u))
        return bad(p, p->at, "lone surrogate");
    if (is_high(u)) {
        bool pair = p->end - p->at >= 12 && p->at[6] == '\\' && p->at[7] == 'u' &&
                    is_low(hex4(p->at + 8, p->end));
        if (!pair)
            return bad(p, p->at, "lone surrogate");
        p->at += 6;
    }
    p->at += 6;
    return true;
}

/* A string, `at` on its opening quote. */
static bool read_string(struct parser *p, struct slice *ret, bool *ret_escaped)
{
    const char *first = ++p->at;
    bool escaped = false;
    for (;;) {
        while (p->at < p->end && is_plain(*p->at))
            p->at++;
        if (p->at == p->end)
            return bad(p, p->at, "unfinished string");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"')
            break;
        if (c == '\\') {
            escaped = true;
            if (!check_escape(p))
                return false;
            continue;
        }
        if (c < ' ')
            return bad(p, p->at, "control byte in a string");
        size_t n = utf8_len(p->at, (size_t)(p->end - p->at));
        if (n == 0)
            return bad(p, p->at, "invalid UTF-8");
        p->at += n;
    }
    *ret = slice_of(first, (size_t)(p->at - first));
    *ret_escaped = escaped;
    p->at++;
    return true;
}

static inline const char *skip_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* The end of the number at p, or NULL when there is none. */
static const char *scan_number(const char *p, const char *end)
{
    p += p < end && *p == '-';
    const char *digits = p;
    p = skip_digits(p, end);
    if (p == digits || (*digits == '0' && p > digits + 1))
        return NULL;
    if (p < end && *p == '.') {
        digits = ++p;
        p = skip_digits(p, end);
        if (p == digits)
            return NULL;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        digits = p;
        p = skip_digits(p, end);
        if (p == digits)
            return NULL;
    }
    return p;
}

static bool read_word(struct parser *p, struct json_token *t, enum json_type type,
                      struct slice word)
{
    if (!slice_starts(slice_of(p->at, (size_t)(p->end - p->at)), word))
        return bad(p, p->at, "a value is missing");
    t->type = type;
    t->raw = slice_of(p->at, word.len);
    p->at += word.len;
    return true;
}

static bool read_number(struct parser *p, struct json_token *t)
{
    const char *end = scan_number(p->at, p->end);
    if (!end)
        return bad(p, p->at, "not a number");
    t->type = JSON_NUMBER;
    t->raw = slice_of(p->at, (size_t)(end - p->at));
    p->at = end;
    return true;
}

/* Opens a container; an empty one is closed at once. */
static bool read_open(struct parser *p, struct json_token *t)
{
    char closer = *p->at == '{' ? '}' : ']';
    t->type = *p->at == '{' ? JSON_OBJECT : JSON_ARRAY;
    t->raw.data = p->at++;
    skip_space(p);
    if (p->at < p->end && *p->at == closer) {
        t->raw.len = (size_t)(++p->at - t->raw.data);
        return true;
    }
    if (p->depth == JSON_DEPTH_MAX)
        return bad(p, t->raw.data, "too deep");
    p->open[p->depth++] = (uint32_t)(t - p->tokens);
    return true;
}

static bool read_key(struct parser *p, struct slice *ret, bool *ret_escaped)
{
    if (p->at == p->end || *p->at != '"')
        return bad(p, p->at, "a member's name is missing");
    if (!read_string(p, ret, ret_escaped))
        return false;
    skip_space(p);
    if (p->at == p->end || *p->at != ':')
        return bad(p, p->at, "no colon behind a member's name");
    p->at++;
    skip_space(p);
    return true;
}

/* One value; a container that is not empty is left open. */
static bool read_value(struct parser *p)
{
    struct json_token *parent = p->depth ? &p->tokens[p->open[p->depth - 1]] : NULL;
    skip_space(p);
    if (p->n == p->max)
        return bad(p, p->at, too_many);
    struct json_token *t = &p->tokens[p->n++];
    *t = (struct json_token){.span = 1, .key = {"", 0}};
    if (parent && parent->type == JSON_OBJECT) {
        if (parent->items == JSON_MEMBERS_MAX)
            return bad(p, p->at, "too many members");
        if (!read_key(p, &t->key, &t->key_escaped))
            return false;
    }
    if (parent)
        parent->items++;
    if (p->at < p->end && (*p->at == '-' || (*p->at >= '0' && *p->at <= '9')))
        return read_number(p, t);
    switch (p->at < p->end ? *p->at : '\0') {
    case '{':
    case '[':
        return read_open(p, t);
    case '"':
        t->type = JSON_STRING;
        return read_string(p, &t->raw, &t->escaped);
    case 't':
        return read_word(p, t, JSON_TRUE, SLICE("true"));
    case 'f':
        return read_word(p, t, JSON_FALSE, SLICE("false"));
    case 'n':
        return read_word(p, t, JSON_NULL, SLICE("null"));
    default:
        return bad(p, p->at, "a value is missing");
    }
}

/* Text that may hold (checked) escapes, byte by byte. */
struct unescape {
    const char *at, *end;
    bool escaped;
    unsigned n, used; /* of `bytes`: what one escape became */
    unsigned char bytes[4];
};

static unsigned put_utf8(unsigned char *out, unsigned u)
{
    if (u < 0x80) {
        out[0] = (unsigned char)u;
        return 1;
    }
    if (u < 0x800) {
        out[0] = (unsigned char)(0xc0 | u >> 6);
        out[1] = (unsigned char)(0x80 | (u & 0x3f));
        return 2;
    }
    if (u < 0x10000) {
        out[0] = (unsigned char)(0xe0 | u >> 12);
        out[1] = (unsigned char)(0x80 | (u >> 6 & 0x3f));
        out[2] = (unsigned char)(0x80 | (u & 0x3f));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | u >> 18);
    out[1] = (unsigned char)(0x80 | (u >> 12 & 0x3f));
    out[2] = (unsigned char)(0x80 | (u >> 6 & 0x3f));
    out[3] = (unsigned char)(0x80 | (u & 0x3f));
    return 4;
}

/* Reads one escape into `bytes`; it was checked when it was parsed. */
static void take_escape(struct unescape *s)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    char c = s->at[1];
    s->used = 0;
    if (c != 'u') {
        const char *known = memchr(from, c, sizeof from - 1);
        s->bytes[0] = (unsigned char)(known ? to[known - from] : c);
        s->n = 1;
        s->at += 2;
        return;
    }
    int u = hex4(s->at + 2, s->end);
    s->at += 6;
    if (is_high(u)) {
        u = 0x10000 + (u - 0xd800) * 0x400 + (hex4(s->at + 2, s->end) - 0xdc00);
        s->at += 6;
    }
    s->n = put_utf8(s->bytes, (unsigned)u);
}

static int unescape_next(struct unescape *s) /* -1 at the end */
{
    if (s->used == s->n) {
        if (s->at == s->end)
            return -1;
        if (!s->escaped || *s->at != '\\')
            return (unsigned char)*s->at++;
        take_escape(s);
    }
    return s->bytes[s->used++];
}

/* The order of two texts by their real bytes. */
static int text_cmp(struct slice a, bool a_escaped, struct slice b, bool b_escaped)
{
    if (!a_escaped && !b_escaped)
        return slice_cmp(a, b);
    struct unescape x = {.at = a.data, .end = a.data + a.len, .escaped = a_escaped};
    struct unescape y = {.at = b.data, .end = b.data + b.len, .escaped = b_escaped};
    for (;;) {
        int i = unescape_next(&x), j = unescape_next(&y);
        if (i != j)
            return i < j ? -1 : 1;
        if (i < 0)
            return 0;
    }
}

static int key_cmp(const struct json_token *a, const struct json_token *b)
{
    return text_cmp(a->key, a->key_escaped, b->key, b->key_escaped);
}

static inline bool same_key(const struct json_token *a, const struct json_token *b)
{
    if (!a->key_escaped && !b->key_escaped)
        return slice_eq(a->key, b->key); /* mostly told by the length */
    return key_cmp(a, b) == 0;
}

static void sift(const struct json_token **list, size_t i, size_t n)
{
    for (;;) {
        size_t child = i * 2 + 1;
        if (child >= n)
            return;
        if (child + 1 < n && key_cmp(list[child], list[child + 1]) < 0)
            child++;
        if (key_cmp(list[i], list[child]) >= 0)
            return;
        const struct json_token *t = list[i];
        list[i] = list[child];
        list[child] = t;
        i = child;
    }
}

/* The members of an object by name. A heap sort: in place, and no input makes it slow. */
static void sort_members(const struct json_token *object, const struct json_token **list)
{
    const struct json_token *t = object + 1;
    size_t n = object->items;
    for (size_t i = 0; i < n; i++, t += t->span)
        list[i] = t;
    for (size_t i = n / 2; i-- > 0;)
        sift(list, i, n);
    for (size_t i = n; i-- > 1;) {
        const struct json_token *last = list[i];
        list[i] = list[0];
        list[0] = last;
        sift(list, 0, i);
    }
}

/* A member whose name another member has too, or NULL. */
static const struct json_token *find_twin(const struct json_token *object)
{
    enum { FEW = 8 };
    const struct json_token *list[JSON_MEMBERS_MAX];
    size_t n = object->items;
    if (n > FEW) {
        sort_members(object, list);
        for (size_t i = 1; i < n; i++)
            if (key_cmp(list[i - 1], list[i]) == 0)
                return list[i];
        return NULL;
    }
    const struct json_token *t = object + 1;
    for (size_t i = 0; i < n; i++, t += t->span) {
        list[i] = t;
        for (size_t j = 0; j < i; j++)
            if (same_key(list[j], t))
                return t;
    }
    return NULL;
}

/* Behind a value: a comma, or the end of containers. */
static bool read_behind(struct parser *p)
{
    while (p->depth) {
        struct json_token *t = &p->tokens[p->open[p->depth - 1]];
        bool object = t->type == JSON_OBJECT;
        skip_space(p);
        if (p->at < p->end && *p->at == ',') {
            p->at++;
            return true;
        }
        if (p->at == p->end || *p->at != (object ? '}' : ']'))
            return bad(p, p->at,
                       object ? "no comma or } behind a member"
                              : "no comma or ] behind a value");
        t->raw.len = (size_t)(++p->at - t->raw.data);
        t->span = (uint32_t)(p->n - p->open[--p->depth]);
        const struct json_token *twin = object ? find_twin(t) : NULL;
        if (twin)
            return bad(p, twin->key.data, "duplicate member");
    }
    return true;
}

static bool read_document(struct parser *p)
{
    do {
        size_t depth = p->depth;
        if (!read_value(p))
            return false;
        if (p->depth == depth && !read_behind(p))
            return false;
    } while (p->depth);
    skip_space(p);
    return p->at == p->end || bad(p, p->at, "bytes behind the value");
}

bool json_parse(struct slice text, struct json_token *tokens, size_t max, size_t *ret_n,
                struct json_error *ret_err)
{
    uint32_t open[JSON_DEPTH_MAX];
    const char *start = text.len ? text.data : "";
    struct parser p = {
        .start = start,
        .at = start,
        .end = start + text.len,
        .tokens = tokens,
        .max = max < JSON_TOKENS_MAX ? max : JSON_TOKENS_MAX,
        .open = open,
    };
    if (!read_document(&p)) {
        *ret_err = (struct json_error){(size_t)(p.at - p.start), p.what};
        return false;
    }
    *ret_n = p.n;
    return true;
}

static struct slice unescaped(struct slice raw, bool escaped, struct arena *a)
{
    if (!escaped)
        return raw;
    char *out = arena_alloc(a, raw.len); /* an escape is longer than what it stands for */
    if (!out)
        return slice_of(NULL, 0);
    struct unescape s = {.at = raw.data, .end = raw.data + raw.len, .escaped = true};
    size_t n = 0;
    for (int c = unescape_next(&s); c >= 0; c = unescape_next(&s))
        out[n++] = (char)c;
    return slice_of(out, n);
}

struct slice json_text(const struct json_token *t, struct arena *a)
{
    return unescaped(t->raw, t->escaped, a);
}

struct slice json_key(const struct json_token *t, struct arena *a)
{
    return unescaped(t->key, t->key_escaped, a);
}

const struct json_token *json_get(const struct json_token *object, const char *key)
{
    if (object->type != JSON_OBJECT)
        return NULL;
    const struct json_token *t = object + 1;
    for (uint32_t i = 0; i < object->items; i++, t += t->span)
        if (text_cmp(t->key, t->key_escaped, slice_str(key), false) == 0)
            return t;
    return NULL;
}

/* A number as digits * 10^exp: no zeros at either end of the digits; zero has none. */
struct decimal {
    bool minus;
    struct slice digits; /* with a point in it, perhaps */
    size_t n;            /* digits without the point */
    int64_t exp;
};

enum { EXP_MAX = 1000000000 }; /* beyond it an exponent is no longer told apart */

static int64_t read_exp(const char *p, const char *end)
{
    bool minus = p < end && *p == '-';
    int64_t v = 0;
    for (p += p < end && (*p == '-' || *p == '+'); p < end; p++)
        v = v < EXP_MAX ? v * 10 + (*p - '0') : EXP_MAX;
    return minus ? -v : v;
}

/* False when `raw` is not a JSON number. */
static bool read_decimal(struct slice raw, struct decimal *ret)
{
    const char *end = raw.data + raw.len;
    if (raw.len == 0 || scan_number(raw.data, end) != end)
        return false;
    struct decimal d = {.minus = *raw.data == '-', .digits = {"", 0}};
    const char *first = NULL, *last = NULL, *p = raw.data + d.minus;
    int64_t places = 0, last_place = 0, seen = 0, before_point = -1;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            before_point = places;
            continue;
        }
        places++;
        if (first)
            seen++;
        if (*p == '0')
            continue;
        if (!first) {
            first = p;
            seen = 1;
        }
        last = p;
        last_place = places;
        d.n = (size_t)seen;
    }
    if (first) {
        d.digits = slice_of(first, (size_t)(last - first) + 1);
        d.exp = (before_point < 0 ? places : before_point) - last_place;
        d.exp += p < end ? read_exp(p + 1, end) : 0;
    } else {
        d.minus = false;
    }
    *ret = d;
    return true;
}

/* The value when it is whole and fits 64 bits. */
static bool decimal_u64(const struct decimal *d, uint64_t *ret_v)
{
    enum { DIGITS_MAX = 20 };
    if (d->exp < 0 || d->n > DIGITS_MAX || d->exp > DIGITS_MAX)
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < d->digits.len; i++)
        if (d->digits.data[i] != '.' &&
            (__builtin_mul_overflow(v, 10u, &v) ||
             __builtin_add_overflow(v, (uint64_t)(d->digits.data[i] - '0'), &v)))
            return false;
    for (int64_t i = 0; i < d->exp; i++)
        if (__builtin_mul_overflow(v, 10u, &v))
            return false;
    *ret_v = v;
    return true;
}

bool json_u64(struct slice raw, uint64_t *ret_v)
{
    struct decimal d;
    return raw.len && *raw.data != '-' && read_decimal(raw, &d) && decimal_u64(&d, ret_v);
}

bool json_i64(struct slice raw, int64_t *ret_v)
{
    struct decimal d;
    uint64_t v = 0;
    if (!read_decimal(raw, &d) || !decimal_u64(&d, &v) || v > (uint64_t)INT64_MAX + d.minus)
        return false;
    *ret_v = d.minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

static bool same_number(struct slice a, struct slice b)
{
    struct decimal x, y;
    if (slice_eq(a, b))
        return true;
    if (!read_decimal(a, &x) || !read_decimal(b, &y))
        return false;
    if (x.minus != y.minus || x.n != y.n || x.exp != y.exp)
        return false;
    if (x.exp >= EXP_MAX / 2 || x.exp <= -EXP_MAX / 2)
        return false; /* written differently and too far out to tell */
    const char *p = x.digits.data, *q = y.digits.data;
    for (size_t i = 0; i < x.n; i++, p++, q++) {
        p += *p == '.';
        q += *q == '.';
        if (*p != *q)
            return false;
    }
    return true;
}

static bool same_value(const struct json_token *a, const struct json_token *b,
                       struct arena *scratch);

static bool same_object(const struct json_token *a, const struct json_token *b,
                        struct arena *scratch)
{
    size_t n = a->items;
    const struct json_token **list =
        arena_alloc(scratch, n * 2 * sizeof(const struct json_token *));
    if (!list)
        return false;
    sort_members(a, list);
    sort_members(b, list + n);
    for (size_t i = 0; i < n; i++)
        if (key_cmp(list[i], list[n + i]) != 0 || !same_value(list[i], list[n + i], scratch))
            return false;
    return true;
}

/* Recursive: JSON_DEPTH_MAX bounds it. */
static bool same_value(const struct json_token *a, const struct json_token *b,
                       struct arena *scratch)
{
    if (a->type != b->type || a->items != b->items)
        return false;
    switch (a->type) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        return true;
    case JSON_NUMBER:
        return same_number(a->raw, b->raw);
    case JSON_STRING:
        return text_cmp(a->raw, a->escaped, b->raw, b->escaped) == 0;
    case JSON_OBJECT:
        return same_object(a, b, scratch);
    case JSON_ARRAY: {
        const struct json_token *x = a + 1, *y = b + 1;
        for (uint32_t i = 0; i < a->items; i++, x += x->span, y += y->span)
            if (!same_value(x, y, scratch))
                return false;
        return true;
    }
    }
    return false;
}

/* A number in the form that ECMAScript gives it, but with all its digits. */
static void put_number(struct buf *out, struct slice raw)
{
    enum { PLAIN_DIGITS = 21, PLAIN_ZEROS = 6 };
    struct decimal d = {0};
    bool known = read_decimal(raw, &d);
    if (!known || d.exp >= EXP_MAX / 2 || d.exp <= -EXP_MAX / 2) {
        buf_put_slice(out, raw); /* too far out to tell what it is: as it was sent */
        return;
    }
    int64_t n = (int64_t)d.n, point = n + d.exp; /* digits before the point */
    bool plain = point > -PLAIN_ZEROS && point <= PLAIN_DIGITS;
    int64_t at = plain ? point : 1;
    if (d.minus)
        buf_put_byte(out, '-');
    if (plain && point <= 0)
        buf_put_str(out, n ? "0." : "0");
    for (int64_t i = point; plain && n && i < 0; i++)
        buf_put_byte(out, '0');
    const char *p = d.digits.data;
    for (int64_t i = 0; i < n; i++, p++) {
        p += *p == '.';
        if (i == at && i > 0)
            buf_put_byte(out, '.');
        buf_put_byte(out, *p);
    }
    for (int64_t i = n; plain && n && i < point; i++)
        buf_put_byte(out, '0');
    if (!plain)
        buf_printf(out, "e%+lld", (long long)(point - 1));
}

static void put_text(struct buf *out, struct slice raw, bool escaped, struct arena *scratch)
{
    if (escaped) {
        json_put_string(out, unescaped(raw, true, scratch));
        return;
    }
    buf_put_byte(out, '"'); /* whatever needs an escape has one already */
    buf_put_slice(out, raw);
    buf_put_byte(out, '"');
}

static void put_members(struct buf *out, const struct json_token *object, struct arena *scratch)
{
    const struct json_token **list =
        arena_alloc(scratch, object->items * sizeof(struct json_token *));
    if (!list) {
        out->oom = true;
        return;
    }
    sort_members(object, list);
    for (uint32_t i = 0; i < object->items; i++) {
        if (i)
            buf_put_byte(out, ',');
        put_text(out, list[i]->key, list[i]->key_escaped, scratch);
        buf_put_byte(out, ':');
        json_canonical(out, list[i], scratch);
    }
}

/* Recursive: JSON_DEPTH_MAX bounds it. */
void json_canonical(struct buf *out, const struct json_token *t, struct arena *scratch)
{
    const struct json_token *item = t + 1;
    switch (t->type) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        buf_put_slice(out, t->raw);
        break;
    case JSON_NUMBER:
        put_number(out, t->raw);
        break;
    case JSON_STRING:
        put_text(out, t->raw, t->escaped, scratch);
        break;
    case JSON_OBJECT:
        buf_put_byte(out, '{');
        put_members(out, t, scratch);
        buf_put_byte(out, '}');
        break;
    case JSON_ARRAY:
        buf_put_byte(out, '[');
        for (uint32_t i = 0; i < t->items; i++, item += item->span) {
            if (i)
                buf_put_byte(out, ',');
            json_canonical(out, item, scratch);
        }
        buf_put_byte(out, ']');
        break;
    }
}

bool json_parse_in(struct slice text, struct arena *a, struct json_token **ret_root,
                   struct json_error *ret_err)
{
    enum { FEW = 64 }; /* fits a chunk of an arena; most documents have no more values */
    struct json_token *tokens = arena_alloc(a, FEW * sizeof *tokens);
    size_t n = FEW;
    *ret_err = (struct json_error){0, "out of memory"};
    if (!tokens)
        return false;
    if (json_parse(text, tokens, n, &n, ret_err)) {
        *ret_root = tokens;
        return true;
    }
    if (ret_err->what != too_many)
        return false;
    n = 2; /* a value stands first, or behind one of these */
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == ',' || text.data[i] == '[' || text.data[i] == '{';
    n = n < JSON_TOKENS_MAX ? n : JSON_TOKENS_MAX;
    tokens = arena_alloc(a, n * sizeof *tokens);
    *ret_err = (struct json_error){0, "out of memory"};
    if (!tokens)
        return false;
    *ret_root = tokens;
    return json_parse(text, tokens, n, &n, ret_err);
}

bool json_same(struct slice a, struct slice b, struct arena *scratch)
{
    struct json_token *x, *y;
    struct json_error err;
    return json_parse_in(a, scratch, &x, &err) && json_parse_in(b, scratch, &y, &err) &&
           same_value(x, y, scratch);
}
