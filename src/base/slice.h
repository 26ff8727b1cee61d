/* slice.h - a borrowed run of bytes. It owns nothing and may hold any byte, NUL too. */
#ifndef BELAY_BASE_SLICE_H
#define BELAY_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) { /* short words, mostly in the same case: no call */
        unsigned char differ = (unsigned char)(a.data[i] ^ b.data[i]);
        unsigned char letter = (unsigned char)(a.data[i] | 32);
        if (differ && (differ != 32 || letter < 'a' || letter > 'z'))
            return false;
    }
    return true;
}

/* Copies, returns the end. Names are short: up to 32 bytes are two moves that may overlap, and
 * no call. */
static inline char *slice_put(char *to, struct slice s)
{
    char *end = to + s.len;
    if (s.len > 32) {
        memcpy(to, s.data, s.len);
    } else if (s.len >= 16) {
        memcpy(to, s.data, 16);
        memcpy(end - 16, s.data + s.len - 16, 16);
    } else if (s.len >= 8) {
        memcpy(to, s.data, 8);
        memcpy(end - 8, s.data + s.len - 8, 8);
    } else if (s.len >= 4) {
        memcpy(to, s.data, 4);
        memcpy(end - 4, s.data + s.len - 4, 4);
    } else {
        for (size_t i = 0; i < s.len; i++)
            to[i] = s.data[i];
    }
    return end;
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
