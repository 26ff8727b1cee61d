/* json_write.c - replies to JSON text. */
#include "base/utf8.h"
#include "proto/json.h"

#include <math.h>

static inline bool is_plain(char c)
{
    return (unsigned char)c - 0x20u < 0x60 && c != '"' && c != '\\';
}

static void put_escape(struct buf *out, unsigned char c)
{
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\", hex[] = "0123456789abcdef";
    const char *known = memchr(from, c, sizeof from - 1);
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    if (known)
        text[1] = to[known - from];
    buf_put(out, text, known ? 2 : 6);
}

void json_put_string(struct buf *out, struct slice s)
{
    size_t from = 0, i = 0;
    if (!buf_reserve(out, s.len + 2))
        return;
    buf_put_byte(out, '"');
    while (i < s.len) {
        unsigned char c = (unsigned char)s.data[i];
        size_t n = is_plain(s.data[i]) ? 1 : c < 0x80 ? 0 : utf8_len(s.data + i, s.len - i);
        if (n) {
            i += n;
            continue;
        }
        buf_put(out, s.data + from, i - from);
        if (c < 0x80)
            put_escape(out, c);
        else
            buf_put_str(out, "\xef\xbf\xbd");
        from = ++i;
    }
    buf_put(out, s.data + from, i - from);
    buf_put_byte(out, '"');
}

static size_t string_bytes(struct slice s)
{
    size_t bytes = 2;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bytes += is_plain(s.data[i]) ? 1 : c < 0x20 ? 6 : 3;
    }
    return bytes;
}

size_t json_bytes(const struct reply *r)
{
    enum { NUMBER_BYTES = 20, KEY_BYTES = 4 /* quotes, colon, comma */ };
    size_t bytes = r->key.len + KEY_BYTES;
    switch (r->kind) {
    case REPLY_TEXT:
    case REPLY_STATUS:
    case REPLY_PLAIN:
        return bytes + string_bytes(r->text);
    case REPLY_JSON:
    case REPLY_ERROR:
        return bytes + r->text.len;
    case REPLY_LIST:
    case REPLY_PUSH:
    case REPLY_MAP:
        for (const struct reply *c = r->first; c; c = c->next)
            bytes += json_bytes(c);
        return bytes + 2;
    case REPLY_NONE:
    case REPLY_NULL:
    case REPLY_BOOL:
    case REPLY_INT:
    case REPLY_DOUBLE:
        break;
    }
    return bytes + NUMBER_BYTES;
}

static void put_real(struct buf *out, double v)
{
    char space[REPLY_REAL_BYTES];
    if (isfinite(v))
        buf_put_slice(out, reply_real(v, space));
    else
        buf_put_str(out, "null");
}

static void put_error(struct buf *out, const struct reply *r)
{
    buf_put_str(out, "{\"error\":{\"code\":\"");
    buf_put_str(out, err_word(r->err));
    buf_put_str(out, "\",\"message\":");
    json_put_string(out, r->text.len ? r->text : slice_str(err_text(r->err)));
    buf_put_str(out, "}}");
}

static void put_items(struct buf *out, const struct reply *r)
{
    bool map = r->kind == REPLY_MAP, comma = false;
    buf_put_byte(out, map ? '{' : '[');
    for (const struct reply *c = r->first; c; c = c->next) {
        if ((c->flags & REPLY_RESP_ONLY) || c->kind == REPLY_NONE)
            continue;
        if (comma)
            buf_put_byte(out, ',');
        comma = true;
        if (map) {
            json_put_string(out, c->key);
            buf_put_byte(out, ':');
        }
        json_write(out, c);
    }
    buf_put_byte(out, map ? '}' : ']');
}

void json_write(struct buf *out, const struct reply *r)
{
    switch (r->kind) {
    case REPLY_NONE:
        break;
    case REPLY_NULL:
        buf_put_str(out, "null");
        break;
    case REPLY_BOOL:
        buf_put_str(out, r->number ? "true" : "false");
        break;
    case REPLY_INT:
        buf_put_i64(out, r->number);
        break;
    case REPLY_DOUBLE:
        put_real(out, r->real);
        break;
    case REPLY_TEXT:
    case REPLY_STATUS:
    case REPLY_PLAIN:
        json_put_string(out, r->text);
        break;
    case REPLY_JSON:
        buf_put_slice(out, r->text.len ? r->text : SLICE("null"));
        break;
    case REPLY_ERROR:
        put_error(out, r);
        break;
    case REPLY_LIST:
    case REPLY_PUSH:
    case REPLY_MAP:
        put_items(out, r);
        break;
    }
}
