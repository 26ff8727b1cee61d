/* buf.h - a growing run of bytes, for bytes on their way in or out.
 *
 * Zero-initialised is empty and valid. Appending never fails at the call: when memory runs out
 * the buffer remembers it in `oom`, ignores what follows, and the user of the bytes looks once
 * (the server stops, the client library returns an error).
 * Consuming from the front is cheap: it moves `start`, not the bytes. */
#ifndef BELAY_BASE_BUF_H
#define BELAY_BASE_BUF_H

#include "base/err.h"
#include "base/slice.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *mem;    /* owned */
    size_t start; /* first byte not yet consumed */
    size_t end;   /* one past the last byte */
    size_t cap;
    bool oom;
};

void buf_free(struct buf *b);

/* Frees; empty and valid afterwards; NULL is allowed. Most are empty: that costs no call. */
static inline void buf_done(struct buf *b)
{
    if (b && (b->mem || b->oom))
        buf_free(b);
}

static inline size_t buf_len(const struct buf *b)
{
    return b->end - b->start;
}

static inline const char *buf_data(const struct buf *b) /* borrowed until the next change */
{
    return b->mem + b->start;
}

static inline struct slice buf_slice(const struct buf *b)
{
    return b->mem ? slice_of(buf_data(b), buf_len(b)) : slice_of("", 0);
}

bool buf_grow(struct buf *b, size_t n);

/* Room for `n` more bytes at mem + end; false when memory ran out. Mostly there is: no call. */
static inline bool buf_reserve(struct buf *b, size_t n)
{
    return (b->cap - b->end >= n && !b->oom) || buf_grow(b, n);
}

void buf_put(struct buf *b, const void *data, size_t n); /* copies */
void buf_put_slice(struct buf *b, struct slice s);
void buf_put_str(struct buf *b, const char *s);
void buf_put_byte(struct buf *b, char c);
void buf_put_u64(struct buf *b, uint64_t v); /* decimal digits */
void buf_put_i64(struct buf *b, int64_t v);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front, n <= buf_len() */
void buf_clear(struct buf *b);             /* keeps the memory */
void buf_shrink(struct buf *b);            /* gives memory back when the buffer is empty */
const char *buf_cstr(struct buf *b);       /* with a NUL behind it, borrowed; "" when empty */

/* Reads the whole file; BELAY_ERR_NOT_FOUND, BELAY_ERR_IO, BELAY_ERR_TOO_BIG over `max`. */
BELAY_MUST_CHECK enum belay_err buf_read_file(struct buf *b, const char *path, size_t max);
#endif
