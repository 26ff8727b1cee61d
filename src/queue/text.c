#include "queue/text.h"

#include <errno.h>
#include <stdlib.h>

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
