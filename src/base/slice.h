/* slice.h - a borrowed run of bytes. It owns nothing and may hold any byte, NUL too. */
#ifndef BELAY_BASE_SLICE_H
#define BELAY_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

struct slice {
    const char *data;
    size_t len;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})

static inline struct slice slice_of(const char *data, size_t len)
{
    return (struct slice){data, len};
}

static inline struct slice slice_str(const char *s) /* NULL is the empty slice */
{
    return (struct slice){s, s ? strlen(s) : 0};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_eq_nocase(struct slice a, struct slice b) /* ASCII */
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_starts(struct slice s, struct slice prefix)
{
    return s.len >= prefix.len &&
           (prefix.len == 0 || memcmp(s.data, prefix.data, prefix.len) == 0);
}

/* Byte order, shorter first: the one order in which names are listed everywhere. */
static inline int slice_cmp(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    if (c != 0)
        return c;
    return a.len < b.len ? -1 : a.len > b.len;
}
#endif
