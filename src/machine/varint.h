/* varint.h - the bytes of ops and snapshots: numbers in 7-bit groups, low first; strings with
 * their length before them. A reader never runs past its end: it turns `bad` and gives zeros.
 */
#ifndef BELAY_MACHINE_VARINT_H
#define BELAY_MACHINE_VARINT_H

#include "base/buf.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

static inline size_t varint_size(uint64_t v)
{
    return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}

/* At p, where there is room; the end of it. */
static inline char *varint_write(char *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (char)(v | 0x80);
    *p++ = (char)v;
    return p;
}

void varint_put(struct buf *out, uint64_t v);
void varint_put_bytes(struct buf *out, struct slice s);

struct reader {
    struct slice left; /* borrowed */
    bool bad;          /* sticky */
};

uint8_t reader_byte(struct reader *r);
uint64_t reader_long(struct reader *r);
struct slice reader_bytes(struct reader *r); /* borrows */

/* Only the shortest form is accepted. Most are one byte: no call. */
static inline uint64_t reader_u64(struct reader *r)
{
    if (r->bad || r->left.len == 0 || (unsigned char)r->left.data[0] >= 0x80)
        return reader_long(r);
    r->left.len--;
    return (unsigned char)*r->left.data++;
}
#endif
