#include "machine/varint.h"

void varint_put(struct buf *out, uint64_t v)
{
    char bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (char)(v | 0x80);
    bytes[n++] = (char)v;
    buf_put(out, bytes, n);
}

void varint_put_bytes(struct buf *out, struct slice s)
{
    varint_put(out, s.len);
    buf_put_slice(out, s);
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

uint64_t reader_u64(struct reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t b = reader_byte(r);
        if (r->bad)
            return 0;
        if (shift == 63 && b > 1)
            break; /* does not fit 64 bits */
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            if (b == 0 && shift > 0)
                break; /* a longer form than needed */
            return v;
        }
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
