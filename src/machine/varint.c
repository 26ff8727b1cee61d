/* varint.c - numbers and strings as bytes, for ops and snapshots. */
#include "machine/varint.h"

enum { NUMBER_BYTES_MAX = 10 };

void varint_put(struct buf *out, uint64_t v)
{
    if (buf_reserve(out, NUMBER_BYTES_MAX))
        out->end = (size_t)(varint_write(out->mem + out->end, v) - out->mem);
}

void varint_put_bytes(struct buf *out, struct slice s)
{
    if (!buf_reserve(out, NUMBER_BYTES_MAX + s.len))
        return;
    char *p = varint_write(out->mem + out->end, s.len);
    out->end = (size_t)(slice_put(p, s) - out->mem);
}

uint8_t reader_byte(struct reader *r)
{
    if (r->bad || r->left.len == 0) {
        r->bad = true;
        return 0;
    }
    uint8_t b = (uint8_t)r->left.data[0];
    r->left = slice_of(r->left.data + 1, r->left.len - 1);
    return b;
}

uint64_t reader_long(struct reader *r)
{
    uint64_t v = 0;
    for (size_t i = 0; !r->bad && i < r->left.len && i < NUMBER_BYTES_MAX; i++) {
        uint8_t b = (uint8_t)r->left.data[i];
        if (i == NUMBER_BYTES_MAX - 1 && b > 1)
            break; /* does not fit 64 bits */
        v |= (uint64_t)(b & 0x7f) << (7 * i);
        if (b >= 0x80)
            continue;
        if (b == 0 && i > 0)
            break; /* a longer form than needed */
        r->left = slice_of(r->left.data + i + 1, r->left.len - i - 1);
        return v;
    }
    r->bad = true;
    return 0;
}

struct slice reader_bytes(struct reader *r)
{
    uint64_t n = reader_u64(r);
    if (r->bad || n > r->left.len) {
        r->bad = true;
        return slice_of("", 0);
    }
    struct slice s = slice_of(r->left.data, (size_t)n);
    r->left = slice_of(r->left.data + n, r->left.len - (size_t)n);
    return s;
}
