/* choice.h - where a random test takes its decisions from: a seed, or the bytes of a fuzzer. */
#ifndef BELAY_TESTS_CHOICE_H
#define BELAY_TESTS_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct choice {
    uint64_t state;       /* seeded: splitmix64 */
    const uint8_t *bytes; /* fuzzed: borrowed; when they are used up every choice is 0 */
    size_t n;
    bool fuzzed;
};

static inline struct choice choice_seed(uint64_t seed)
{
    return (struct choice){.state = seed};
}

static inline struct choice choice_bytes(const uint8_t *bytes, size_t n)
{
    return (struct choice){.bytes = bytes, .n = n, .fuzzed = true};
}

static inline uint64_t choice_u64(struct choice *c)
{
    if (c->fuzzed) {
        uint64_t v = 0;
        for (int i = 0; i < 2 && c->n; i++, c->n--)
            v = v << 8 | *c->bytes++;
        return v;
    }
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t choice_below(struct choice *c, uint64_t n) /* 0 .. n - 1 */
{
    if (c->fuzzed && n <= 256) {
        if (!c->n)
            return 0;
        c->n--;
        return *c->bytes++ % n;
    }
    return choice_u64(c) % n;
}

static inline bool choice_one_in(struct choice *c, uint64_t n)
{
    return choice_below(c, n) == n - 1; /* never, once a fuzzer's bytes are used up */
}

#define choice_of(c, array) ((array)[choice_below((c), sizeof(array) / sizeof((array)[0]))])
#endif
