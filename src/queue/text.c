/* text.c - text between processes and PostgreSQL. */
#include "queue/text.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

enum { UUID_BYTES = 16 };

/* Length of the well-formed UTF-8 sequence at s[0..n), 0 when there is none. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
    if (s[0] < 0x80)
        return s[0] != 0;
    size_t len = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    bool bad = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
               (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F);
    return bad ? 0 : len;
}

void text_put_clean(struct buf *out, struct slice s)
{
    const unsigned char *p = (const unsigned char *)s.data;
    size_t i = 0, from = 0;
    while (i < s.len) {
        size_t len = utf8_len(p + i, s.len - i);
        if (len > 0) {
            i += len;
            continue;
        }
        buf_put(out, s.data + from, i - from);
        buf_put_str(out, "\xEF\xBF\xBD");
        from = ++i;
    }
    buf_put(out, s.data + from, i - from);
}

void text_array_begin(struct buf *out)
{
    buf_put_byte(out, '{');
}

static void separate(struct buf *out)
{
    if (buf_data(out)[buf_len(out) - 1] != '{')
        buf_put_byte(out, ',');
}

void text_array_add(struct buf *out, struct slice item)
{
    separate(out);
    if (!item.data) {
        buf_put_str(out, "NULL");
        return;
    }
    buf_put_byte(out, '"');
    for (size_t i = 0; i < item.len; i++) {
        if (item.data[i] == '"' || item.data[i] == '\\')
            buf_put_byte(out, '\\');
        buf_put_byte(out, item.data[i]);
    }
    buf_put_byte(out, '"');
}

void text_array_add_i64(struct buf *out, int64_t item)
{
    separate(out);
    buf_put_i64(out, item);
}

void text_array_end(struct buf *out)
{
    buf_put_byte(out, '}');
}

bool text_array_next_i64(const char **at, int64_t *ret_v)
{
    const char *p = *at;
    while (*p == '{' || *p == ',')
        p++;
    char *end;
    errno = 0;
    long long v = strtoll(p, &end, 10);
    if (end == p || errno != 0)
        return false;
    *at = end;
    *ret_v = v;
    return true;
}

void text_put_json(struct buf *out, struct slice s)
{
    buf_put_byte(out, '"');
    size_t from = 0;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_put(out, s.data + from, i - from);
        if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_printf(out, "\\%c", c);
        from = i + 1;
    }
    buf_put(out, s.data + from, s.len - from);
    buf_put_byte(out, '"');
}

/* Version 4 out of 16 random bytes. */
static void put_uuid(struct buf *out, const unsigned char *random)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < UUID_BYTES; i++) {
        unsigned b = random[i];
        if (i == 6)
            b = (b & 0x0F) | 0x40;
        else if (i == 8)
            b = (b & 0x3F) | 0x80;
        if (i == 4 || i == 6 || i == 8 || i == 10)
            buf_put_byte(out, '-');
        buf_put_byte(out, hex[b >> 4]);
        buf_put_byte(out, hex[b & 15]);
    }
}

void text_put_uuids(struct buf *out, size_t n)
{
    unsigned char random[16 * UUID_BYTES]; /* so much is given in one piece */
    text_array_begin(out);
    for (size_t i = 0; i < n; i++) {
        size_t at = i * UUID_BYTES % sizeof random;
        if (at == 0)
            BELAY_CHECK(getrandom(random, sizeof random, 0) == sizeof random);
        separate(out);
        put_uuid(out, random + at);
    }
    text_array_end(out);
}

void text_put_ident(struct buf *out, const char *name)
{
    buf_put_byte(out, '"');
    for (; *name; name++) {
        if (*name == '"')
            buf_put_byte(out, '"');
        buf_put_byte(out, *name);
    }
    buf_put_byte(out, '"');
}
