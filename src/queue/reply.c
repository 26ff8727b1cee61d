/* reply.c - the line of JSON with which a long-lived command answers a group. */
#include "queue/reply.h"

#include <ctype.h>

/* A cursor over the line. `why` is set once, at the first thing that is wrong. */
struct scan {
    const char *p, *end;
    const char *why;
};

static bool fail(struct scan *s, const char *why)
{
    if (!s->why)
        s->why = why;
    return false;
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
        s->p++;
}

static bool take(struct scan *s, char c)
{
    skip_space(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

static bool hex4(struct scan *s, unsigned *ret)
{
    if (s->end - s->p < 4)
        return fail(s, "a \\u escape is cut off");
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        int c = tolower((unsigned char)*s->p++);
        if (!isxdigit(c))
            return fail(s, "a \\u escape is not hexadecimal");
        v = v * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *ret = v;
    return true;
}

static void put_utf8(struct buf *out, unsigned c)
{
    if (c < 0x80) {
        buf_put_byte(out, (char)c);
    } else if (c < 0x800) {
        buf_put_byte(out, (char)(0xC0 | c >> 6));
        buf_put_byte(out, (char)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        buf_put_byte(out, (char)(0xE0 | c >> 12));
        buf_put_byte(out, (char)(0x80 | (c >> 6 & 0x3F)));
        buf_put_byte(out, (char)(0x80 | (c & 0x3F)));
    } else {
        buf_put_byte(out, (char)(0xF0 | c >> 18));
        buf_put_byte(out, (char)(0x80 | (c >> 12 & 0x3F)));
        buf_put_byte(out, (char)(0x80 | (c >> 6 & 0x3F)));
        buf_put_byte(out, (char)(0x80 | (c & 0x3F)));
    }
}

static bool escape(struct scan *s, struct buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end)
        return fail(s, "a string is cut off");
    char c = *s->p++;
    if (c == 'u') {
        unsigned v, low;
        if (!hex4(s, &v))
            return false;
        if (v >= 0xDC00 && v <= 0xDFFF)
            return fail(s, "a lone surrogate");
        if (v >= 0xD800 && v <= 0xDBFF) {
            if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
                return fail(s, "a lone surrogate");
            s->p += 2;
            if (!hex4(s, &low))
                return false;
            if (low < 0xDC00 || low > 0xDFFF)
                return fail(s, "a lone surrogate");
            v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
        }
        put_utf8(out, v);
        return true;
    }
    const char *at = c ? strchr(from, c) : NULL;
    if (!at)
        return fail(s, "unknown escape");
    buf_put_byte(out, to[at - from]);
    return true;
}

/* Behind the opening quote; the text goes to `out`. */
static bool string(struct scan *s, struct buf *out)
{
    while (s->p < s->end) {
        char c = *s->p++;
        if (c == '"')
            return true;
        if ((unsigned char)c < 0x20)
            return fail(s, "control character in a string");
        if (c == '\\') {
            if (!escape(s, out))
                return false;
        } else {
            buf_put_byte(out, c);
        }
    }
    return fail(s, "a string is cut off");
}

static bool digits(struct scan *s)
{
    if (s->p == s->end || !isdigit((unsigned char)*s->p))
        return fail(s, "malformed number");
    while (s->p < s->end && isdigit((unsigned char)*s->p))
        s->p++;
    return true;
}

static bool number(struct scan *s)
{
    if (s->p < s->end && *s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!digits(s))
        return false;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!digits(s))
            return false;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        return digits(s);
    }
    return true;
}

static bool word(struct scan *s, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0)
        return fail(s, "unexpected character");
    s->p += n;
    return true;
}

/* One value that is not a container. */
static bool scalar(struct scan *s, struct buf *scratch)
{
    switch (*s->p) {
    case '"':
        s->p++;
        return string(s, scratch);
    case 't':
        return word(s, "true");
    case 'f':
        return word(s, "false");
    case 'n':
        return word(s, "null");
    default:
        return number(s);
    }
}

static bool key(struct scan *s, struct buf *out)
{
    if (!take(s, '"'))
        return fail(s, "a member needs a name in quotes");
    if (!string(s, out))
        return false;
    return take(s, ':') || fail(s, "a member needs a colon");
}

/* Passes over one value of any depth, without recursion: `open` is a stack of brackets. */
static bool skip_value(struct scan *s, struct buf *scratch)
{
    char open[REPLY_DEPTH_MAX];
    size_t depth = 0;
    for (;;) {
        skip_space(s);
        if (s->p == s->end)
            return fail(s, "the line ends too early");
        char c = *s->p;
        buf_clear(scratch);
        if (c == '{' || c == '[') {
            if (depth == REPLY_DEPTH_MAX)
                return fail(s, "nested too deeply");
            s->p++;
            if (!take(s, c == '{' ? '}' : ']')) {
                open[depth++] = c;
                if (c == '{' && !key(s, scratch))
                    return false;
                continue;
            }
        } else if (!scalar(s, scratch)) {
            return false;
        }
        while (depth > 0 && take(s, open[depth - 1] == '{' ? '}' : ']'))
            depth--;
        if (depth == 0)
            return true;
        if (!take(s, ','))
            return fail(s, "a comma or a closing bracket is missing");
        if (open[depth - 1] == '{' && !key(s, scratch))
            return false;
    }
}

/* Where the texts ended up in `store`: offsets, because it may move while it grows. */
struct span {
    size_t from, len;
    bool set;
};

/* One member's value: its text if it is a string, else its JSON, appended to `store`. */
static bool value_text(struct scan *s, struct buf *store, struct span *ret)
{
    struct buf scratch = {0};
    size_t from = buf_len(store);
    skip_space(s);
    const char *start = s->p;
    bool ok;
    if (s->p < s->end && *s->p == '"') {
        s->p++;
        ok = string(s, store);
    } else {
        ok = skip_value(s, &scratch);
        if (ok)
            buf_put(store, start, (size_t)(s->p - start));
    }
    buf_done(&scratch);
    *ret = (struct span){from, buf_len(store) - from, true};
    return ok;
}

static bool verdict_word(struct slice status, enum verdict_kind *ret)
{
    if (slice_eq(status, SLICE("complete")))
        *ret = VERDICT_COMPLETE;
    else if (slice_eq(status, SLICE("error")))
        *ret = VERDICT_ERROR;
    else if (slice_eq(status, SLICE("retry")))
        *ret = VERDICT_RETRY;
    else
        return false;
    return true;
}

static bool members(struct scan *s, struct buf *store, struct span found[3])
{
    static const char *const names[3] = {"status", "outcome", "error"};
    if (take(s, '}'))
        return true;
    do {
        struct buf name = {0};
        struct span ignored, *where = &ignored;
        bool ok = key(s, &name);
        for (int i = 0; i < 3; i++)
            if (slice_eq(buf_slice(&name), slice_str(names[i])))
                where = &found[i];
        buf_done(&name);
        if (!ok || !value_text(s, store, where))
            return false;
    } while (take(s, ','));
    return take(s, '}') || fail(s, "a comma or a closing bracket is missing");
}

bool reply_parse(struct slice line, struct buf *store, struct verdict *ret,
                 const char **ret_why)
{
    struct scan s = {line.data, line.data + line.len, NULL};
    struct span found[3] = {0};
    struct verdict v = {0};

    buf_clear(store);
    bool ok = take(&s, '{') || fail(&s, "it is not a JSON object");
    ok = ok && members(&s, store, found);
    skip_space(&s);
    if (ok && s.p != s.end)
        ok = fail(&s, "something follows the object");
    if (ok) {
        const char *base = buf_slice(store).data;
        struct slice status = slice_of(base + found[0].from, found[0].len);
        ok = (found[0].set && verdict_word(status, &v.kind)) ||
             fail(&s, "\"status\" is not complete, error or retry");
        if (found[1].set)
            v.outcome = slice_of(base + found[1].from, found[1].len);
        if (found[2].set)
            v.error = slice_of(base + found[2].from, found[2].len);
    }
    if (ok)
        *ret = v;
    else
        *ret_why = s.why;
    return ok;
}
