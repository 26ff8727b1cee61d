/* resp_write.c - replies and requests to bytes. On the hot path of the server: no printf. */
#include "proto/resp.h"

enum { HEAD_BYTES = 24 }; /* a type byte, a sign, 20 digits, CR, LF */

static inline size_t count_digits(uint64_t n) /* comparisons are cheaper than divisions */
{
    for (size_t digits = 1;; n /= 10000, digits += 4) {
        if (n < 10)
            return digits;
        if (n < 100)
            return digits + 1;
        if (n < 1000)
            return digits + 2;
        if (n < 10000)
            return digits + 3;
    }
}

/* Two digits a division; returns the end. */
static char *put_digits(char *p, uint64_t n)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930"
                                "31323334353637383940414243444546474849505152535455565758596061"
                                "62636465666768697071727374757677787980818283848586878889909192"
                                "93949596979899";
    char *end = p + count_digits(n);
    char *at = end;
    for (; n >= 10; n /= 100) {
        at -= 2;
        memcpy(at, pairs + n % 100 * 2, 2);
    }
    if (at > p)
        *p = (char)('0' + n);
    return end;
}

/* "$12\r\n" at p; returns the end. */
static inline char *head(char *p, char type, uint64_t n)
{
    *p++ = type;
    if (n < 10)
        *p++ = (char)('0' + n);
    else
        p = put_digits(p, n);
    *p++ = '\r';
    *p++ = '\n';
    return p;
}

static void put_head(struct buf *out, char type, uint64_t n)
{
    if (buf_reserve(out, HEAD_BYTES))
        out->end = (size_t)(head(out->mem + out->end, type, n) - out->mem);
}

static void put_bulk(struct buf *out, struct slice s)
{
    if (!buf_reserve(out, HEAD_BYTES + s.len + 2))
        return;
    char *p = head(out->mem + out->end, '$', s.len);
    p = slice_put(p, s);
    *p++ = '\r';
    *p++ = '\n';
    out->end = (size_t)(p - out->mem);
}

static void put_int(struct buf *out, int64_t v)
{
    if (v >= 0) {
        put_head(out, ':', (uint64_t)v);
        return;
    }
    buf_put_byte(out, ':');
    put_head(out, '-', 0 - (uint64_t)v);
}

/* A line cannot hold control bytes: a client's text must not end it early. */
static void put_line(struct buf *out, struct slice s)
{
    if (!buf_reserve(out, s.len + 2))
        return;
    char *p = out->mem + out->end;
    for (size_t i = 0; i < s.len; i++) {
        bool control = (unsigned char)s.data[i] < ' ' || s.data[i] == 127;
        *p = s.data[i];
        if (control)
            *p = ' ';
        p++;
    }
    *p++ = '\r';
    *p++ = '\n';
    out->end += s.len + 2;
}

static void put_error(struct buf *out, const struct reply *r)
{
    buf_put_byte(out, '-');
    buf_put_str(out, err_word(r->err));
    buf_put_byte(out, ' ');
    put_line(out, r->text.len ? r->text : slice_str(err_text(r->err)));
}

static void put_real(struct buf *out, double v, int version)
{
    char space[REPLY_REAL_BYTES];
    struct slice text = reply_real(v, space);
    if (version < 3) {
        put_bulk(out, text);
        return;
    }
    buf_put_byte(out, ',');
    put_line(out, text);
}

static inline bool is_shown(const struct reply *r)
{
    return !(r->flags & REPLY_JSON_ONLY) && r->kind != REPLY_NONE;
}

static inline bool is_spliced(const struct reply *r)
{
    return (r->flags & REPLY_SPLICE) && r->kind == REPLY_LIST;
}

static size_t count_shown(const struct reply *r, bool row)
{
    size_t n = 0;
    for (const struct reply *c = r->first; c; c = c->next)
        if (is_shown(c))
            n += row && is_spliced(c) ? count_shown(c, false) : 1;
    return n;
}

static void put_items(struct buf *out, const struct reply *r, int version, bool row)
{
    for (const struct reply *c = r->first; c; c = c->next) {
        if (!is_shown(c))
            continue;
        if (c->kind == REPLY_TEXT) /* what most of them are goes without the way round */
            put_bulk(out, c->text);
        else if (c->kind == REPLY_INT)
            put_int(out, c->number);
        else if (row && is_spliced(c))
            put_items(out, c, version, false);
        else
            resp_write(out, c, version);
    }
}

static void put_map(struct buf *out, const struct reply *r, int version)
{
    bool row = r->flags & REPLY_ROW;
    size_t n = count_shown(r, row);
    if (row) {
        if (n != 1 || (r->flags & REPLY_WRAP))
            put_head(out, '*', n);
        put_items(out, r, version, true);
        return;
    }
    put_head(out, version < 3 ? '*' : '%', version < 3 ? n * 2 : n);
    for (const struct reply *c = r->first; c; c = c->next) {
        if (!is_shown(c))
            continue;
        put_bulk(out, c->key);
        resp_write(out, c, version);
    }
}

void resp_write(struct buf *out, const struct reply *r, int version)
{
    switch (r->kind) {
    case REPLY_NONE:
        break;
    case REPLY_NULL:
        buf_put_str(out, version < 3 ? "$-1\r\n" : "_\r\n");
        break;
    case REPLY_BOOL:
        put_int(out, r->number != 0);
        break;
    case REPLY_INT:
        put_int(out, r->number);
        break;
    case REPLY_DOUBLE:
        put_real(out, r->real, version);
        break;
    case REPLY_TEXT:
    case REPLY_JSON:
    case REPLY_PLAIN:
        put_bulk(out, r->text);
        break;
    case REPLY_STATUS:
        buf_put_byte(out, '+');
        put_line(out, r->text);
        break;
    case REPLY_ERROR:
        put_error(out, r);
        break;
    case REPLY_MAP:
        put_map(out, r, version);
        break;
    case REPLY_LIST:
    case REPLY_PUSH:
        put_head(out, r->kind == REPLY_PUSH && version >= 3 ? '>' : '*', count_shown(r, false));
        put_items(out, r, version, false);
        break;
    }
}

void resp_write_request(struct buf *out, const struct slice *words, size_t n)
{
    put_head(out, '*', n);
    for (size_t i = 0; i < n; i++)
        put_bulk(out, words[i]);
}
