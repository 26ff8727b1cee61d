/* resp_reply.c - a server's reply, read by a client: every type of RESP2 and RESP3 but the
 * streamed ones, into the tree that the server wrote from. */
#include "proto/resp.h"

#include <locale.h>
#include <stdlib.h>

struct reply_reader {
    const char *at, *end;
    struct arena *a;
    size_t items; /* read so far, in all */
    const char *why;
};

static enum resp_step bad(struct reply_reader *in, const char *why)
{
    in->why = why;
    return RESP_BAD;
}

/* The rest of the line, without its end. */
static enum resp_step read_line(struct reply_reader *in, struct slice *ret)
{
    size_t left = (size_t)(in->end - in->at);
    size_t look = left < RESP_LINE_BYTES_MAX ? left : RESP_LINE_BYTES_MAX;
    const char *cr = memchr(in->at, '\r', look);
    const char *lf = memchr(in->at, '\n', cr ? (size_t)(cr - in->at) : look);
    if (lf)
        return bad(in, "LF without CR");
    if (!cr)
        return look == RESP_LINE_BYTES_MAX ? bad(in, "line over the limit") : RESP_MORE;
    if (cr + 1 == in->end)
        return RESP_MORE;
    if (cr[1] != '\n')
        return bad(in, "CR without LF");
    *ret = slice_of(in->at, (size_t)(cr - in->at));
    in->at = cr + 2;
    return RESP_DONE;
}

static bool parse_i64(struct slice s, int64_t *ret_v)
{
    bool minus = s.len && *s.data == '-';
    size_t i = s.len && (*s.data == '-' || *s.data == '+');
    uint64_t v = 0, max = (uint64_t)INT64_MAX + minus;
    if (i == s.len)
        return false;
    for (; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(s.data[i] - '0');
        if (v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *ret_v = minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

/* A length or a count in 0..max; -1 is "null" where that is allowed. */
static enum resp_step read_count(struct reply_reader *in, int64_t max, int64_t *ret_n)
{
    struct slice line;
    enum resp_step step = read_line(in, &line);
    if (step != RESP_DONE)
        return step;
    if (!parse_i64(line, ret_n) || *ret_n < -1)
        return bad(in, "length is not a number");
    return *ret_n > max ? bad(in, "length over the limit") : RESP_DONE;
}

static enum resp_step read_bulk(struct reply_reader *in, struct reply *r)
{
    int64_t n = 0;
    enum resp_step step = read_count(in, RESP_BULK_BYTES_MAX, &n);
    if (step != RESP_DONE)
        return step;
    if (n < 0) {
        r->kind = REPLY_NULL;
        return RESP_DONE;
    }
    size_t len = (size_t)n;
    if ((size_t)(in->end - in->at) < len + 2)
        return RESP_MORE;
    if (in->at[len] != '\r' || in->at[len + 1] != '\n')
        return bad(in, "no line end behind a bulk string");
    r->text = slice_of(in->at, len);
    in->at += len + 2;
    return RESP_DONE;
}

/* "STALE some words" into code and words; a word that is not ours stays in the text. */
static void split_error(struct reply *r)
{
    const char *space = memchr(r->text.data, ' ', r->text.len);
    size_t n = space ? (size_t)(space - r->text.data) : r->text.len;
    r->kind = REPLY_ERROR;
    r->err = BELAY_ERR_INTERNAL;
    for (int i = BELAY_OK + 1; i < BELAY_ERR_COUNT; i++) {
        if (!slice_eq(slice_of(r->text.data, n), slice_str(err_word((enum belay_err)i))))
            continue;
        r->err = (enum belay_err)i;
        n += space != NULL;
        r->text = slice_of(r->text.data + n, r->text.len - n);
        return;
    }
}

/* The C locale whatever the program around us has set: a comma is not a point. */
static enum resp_step parse_real(struct reply_reader *in, struct slice s, double *ret_v)
{
    char text[64];
    if (s.len == 0 || s.len >= sizeof text)
        return bad(in, "not a double");
    memcpy(text, s.data, s.len);
    text[s.len] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c)
        return bad(in, "out of memory");
    char *end;
    *ret_v = strtod_l(text, &end, c);
    freelocale(c);
    bool number = strchr("+-.0123456789in", text[0]) && !memchr(text, 'x', s.len) &&
                  !memchr(text, 'X', s.len);
    return number && end == text + s.len ? RESP_DONE : bad(in, "not a double");
}

/* "txt:" and the text. */
static enum resp_step read_verbatim(struct reply_reader *in, struct reply *r)
{
    enum resp_step step = read_bulk(in, r);
    if (step != RESP_DONE || r->kind == REPLY_NULL)
        return step;
    if (r->text.len < 4 || r->text.data[3] != ':')
        return bad(in, "verbatim string without a format");
    r->text = slice_of(r->text.data + 4, r->text.len - 4);
    return RESP_DONE;
}

/* The types that are one line. */
static enum resp_step read_scalar(struct reply_reader *in, char type, struct reply *r)
{
    struct slice line;
    enum resp_step step = read_line(in, &line);
    if (step != RESP_DONE)
        return step;
    r->text = line;
    switch (type) {
    case '+':
        r->kind = REPLY_STATUS;
        return RESP_DONE;
    case '-':
        split_error(r);
        return RESP_DONE;
    case ':':
        r->kind = REPLY_INT;
        return parse_i64(line, &r->number) ? RESP_DONE : bad(in, "not an integer");
    case '_':
        r->kind = REPLY_NULL;
        return line.len == 0 ? RESP_DONE : bad(in, "null with a value");
    case '#':
        r->kind = REPLY_BOOL;
        r->number = slice_eq(line, SLICE("t"));
        return r->number || slice_eq(line, SLICE("f")) ? RESP_DONE : bad(in, "not a boolean");
    case ',':
        r->kind = REPLY_DOUBLE;
        return parse_real(in, line, &r->real);
    case '(':
        for (size_t i = line.len && *line.data == '-'; i < line.len; i++)
            if (line.data[i] < '0' || line.data[i] > '9')
                return bad(in, "not a big number");
        return line.len ? RESP_DONE : bad(in, "not a big number");
    default:
        return bad(in, "unknown type of reply");
    }
}

static enum resp_step read_value(struct reply_reader *in, unsigned depth, struct reply **ret);

static enum resp_step read_items(struct reply_reader *in, unsigned depth, struct reply *parent,
                                 int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct slice key = {"", 0};
        struct reply *child = NULL;
        if (parent->kind == REPLY_MAP) {
            enum resp_step step = read_value(in, depth, &child);
            if (step != RESP_DONE)
                return step;
            bool text = child->kind == REPLY_TEXT || child->kind == REPLY_STATUS;
            if (!text && child->kind != REPLY_INT)
                return bad(in, "a map's key is not text");
            key = child->text;
        }
        enum resp_step step = read_value(in, depth, &child);
        if (step != RESP_DONE)
            return step;
        (void)reply_add(parent, key, child);
    }
    return RESP_DONE;
}

static enum resp_step read_container(struct reply_reader *in, unsigned depth,
                                     enum reply_kind kind, struct reply *r)
{
    int64_t n = 0;
    if (depth == RESP_DEPTH_MAX)
        return bad(in, "reply too deep");
    enum resp_step step = read_count(in, RESP_ITEMS_MAX, &n);
    if (step != RESP_DONE)
        return step;
    r->kind = n < 0 ? REPLY_NULL : kind;
    return read_items(in, depth + 1, r, n);
}

static enum resp_step read_typed(struct reply_reader *in, unsigned depth, char type,
                                 struct reply *r)
{
    switch (type) {
    case '$':
        return read_bulk(in, r);
    case '=':
        return read_verbatim(in, r);
    case '!': {
        enum resp_step step = read_bulk(in, r);
        if (step == RESP_DONE)
            split_error(r);
        return step;
    }
    case '*':
    case '~':
        return read_container(in, depth, REPLY_LIST, r);
    case '%':
        return read_container(in, depth, REPLY_MAP, r);
    case '>':
        if (depth)
            return bad(in, "a push inside a reply");
        return read_container(in, depth, REPLY_PUSH, r);
    default:
        return read_scalar(in, type, r);
    }
}

/* One value; attributes before it are read and dropped. */
static enum resp_step read_value(struct reply_reader *in, unsigned depth, struct reply **ret)
{
    for (;;) {
        if (in->at == in->end)
            return RESP_MORE;
        if (++in->items > RESP_ITEMS_MAX)
            return bad(in, "reply with too many items");
        char type = *in->at++;
        struct reply *r = reply_new(in->a, REPLY_TEXT);
        if (!r)
            return bad(in, "out of memory");
        enum resp_step step = type == '|' ? read_container(in, depth, REPLY_MAP, r)
                                          : read_typed(in, depth, type, r);
        if (step != RESP_DONE)
            return step;
        *ret = r;
        if (type != '|')
            return RESP_DONE;
    }
}

enum resp_step resp_next_reply(struct slice in, struct arena *a, struct reply **ret_reply,
                               size_t *ret_used, const char **ret_why)
{
    struct reply_reader reader = {.at = in.data, .end = in.data + in.len, .a = a};
    struct reply *r = NULL;
    enum resp_step step = in.len ? read_value(&reader, 0, &r) : RESP_MORE;
    if (step == RESP_BAD)
        *ret_why = reader.why;
    if (step == RESP_DONE) {
        *ret_used = (size_t)(reader.at - in.data);
        *ret_reply = r;
    }
    return step;
}
