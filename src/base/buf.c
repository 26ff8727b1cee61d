/* buf.c - a growing run of bytes, for bytes on their way in or out of a connection. */
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void buf_free(struct buf *b)
{
    free(b->mem);
    *b = (struct buf){0};
}

bool buf_grow(struct buf *b, size_t n)
{
    if (b->oom)
        return false;
    size_t len = buf_len(b);
    if (b->start && len + n <= b->cap && b->start >= len) {
        memcpy(b->mem, b->mem + b->start, len); /* the halves do not overlap */
        b->start = 0;
        b->end = len;
        return true;
    }
    if (n > SIZE_MAX / 4 || len > SIZE_MAX / 4) {
        b->oom = true;
        return false;
    }
    size_t cap = 64;
    while (cap < len + n)
        cap *= 2;
    /* A large block only moves: it is never there twice. */
    char *mem = b->start == 0 ? realloc(b->mem, cap) : malloc(cap);
    if (!mem) {
        b->oom = true;
        return false;
    }
    if (b->start != 0) {
        if (len)
            memcpy(mem, b->mem + b->start, len);
        free(b->mem);
    }
    *b = (struct buf){.mem = mem, .end = len, .cap = cap};
    return true;
}

void buf_put(struct buf *b, const void *data, size_t n)
{
    if (n == 0 || !buf_reserve(b, n))
        return;
    (void)slice_put(b->mem + b->end, slice_of(data, n));
    b->end += n;
}

void buf_put_slice(struct buf *b, struct slice s)
{
    buf_put(b, s.data, s.len);
}

void buf_put_str(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_put_byte(struct buf *b, char c)
{
    if (!buf_reserve(b, 1))
        return;
    b->mem[b->end++] = c;
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_put(b, digits + at, sizeof digits - at);
}

void buf_put_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_put_byte(b, '-');
    buf_put_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void buf_vprintf(struct buf *b, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n > 0 && buf_reserve(b, (size_t)n + 1)) {
        (void)vsnprintf(b->mem + b->end, (size_t)n + 1, format, again);
        b->end += (size_t)n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

void buf_consume(struct buf *b, size_t n)
{
    BELAY_CHECK(n <= buf_len(b));
    b->start += n;
    if (b->start == b->end)
        b->start = b->end = 0;
}

void buf_clear(struct buf *b)
{
    b->start = b->end = 0;
}

void buf_shrink(struct buf *b)
{
    if (buf_len(b) == 0 && !b->oom)
        buf_done(b);
}

const char *buf_cstr(struct buf *b)
{
    if (!buf_reserve(b, 1))
        return "";
    b->mem[b->end] = '\0';
    return b->mem + b->start;
}

enum belay_err buf_read_file(struct buf *b, const char *path, size_t max)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? BELAY_ERR_NOT_FOUND : BELAY_ERR_IO;
    enum belay_err err = BELAY_OK;
    while (err == BELAY_OK) {
        if (!buf_reserve(b, 65536)) {
            err = BELAY_ERR_NO_MEMORY;
            break;
        }
        ssize_t n = read(fd, b->mem + b->end, 65536);
        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            err = BELAY_ERR_IO;
        else if (buf_len(b) + (size_t)n > max)
            err = BELAY_ERR_TOO_BIG;
        else
            b->end += (size_t)n;
    }
    int why = errno;
    (void)close(fd);
    errno = why;
    return err;
}
