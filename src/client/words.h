/* words.h - a command being put together. Numbers are written into the struct itself. */
#ifndef BELAY_CLIENT_WORDS_H
#define BELAY_CLIENT_WORDS_H

#include "belay.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 40, WORDS_NUMBERS_MAX = 12 };

struct words {
    struct belay_bytes w[WORDS_MAX];
    size_t n;
    char numbers[WORDS_NUMBERS_MAX][24];
    size_t n_numbers;
};

static inline void words_bytes(struct words *c, const void *data, size_t len)
{
    if (c->n < WORDS_MAX)
        c->w[c->n++] = (struct belay_bytes){data, len};
}

static inline void words_add(struct words *c, const char *s)
{
    words_bytes(c, s, strlen(s));
}

static inline void words_u64(struct words *c, uint64_t v)
{
    if (c->n_numbers == WORDS_NUMBERS_MAX)
        return;
    char *space = c->numbers[c->n_numbers++];
    int n = snprintf(space, sizeof c->numbers[0], "%llu", (unsigned long long)v);
    words_bytes(c, space, (size_t)n);
}

/* "TTL 30000"; nothing when v is 0, which is "the default" everywhere. */
static inline void words_option(struct words *c, const char *key, int64_t v)
{
    if (v <= 0)
        return;
    words_add(c, key);
    words_u64(c, (uint64_t)v);
}
#endif
