/* hash.c - SipHash-1-3 for tables, CRC32C for stored bytes. */
#include "base/hash.h"

#include <string.h>

static inline uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

struct sip {
    uint64_t a, b, c, d;
};

static inline void sip_round(struct sip *s)
{
    s->a += s->b;
    s->b = rotl(s->b, 13) ^ s->a;
    s->a = rotl(s->a, 32);
    s->c += s->d;
    s->d = rotl(s->d, 16) ^ s->c;
    s->a += s->d;
    s->d = rotl(s->d, 21) ^ s->a;
    s->c += s->b;
    s->b = rotl(s->b, 17) ^ s->c;
    s->c = rotl(s->c, 32);
}

static inline uint64_t load(const unsigned char *p) /* compilers make one instruction of it */
{
    return p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
           (uint64_t)p[7] << 56;
}

/* The last `left` (below 8) of `n` bytes, at p: with a look back where there is something
 * behind. */
static inline uint64_t load_tail(const unsigned char *p, size_t left, size_t n)
{
    if (left && n >= 8)
        return load(p + left - 8) >> (64 - 8 * left);
    uint64_t word = 0;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

uint64_t hash_bytes(const struct hash_key *key, const void *data, size_t n)
{
    struct sip s = {key->k0 ^ 0x736f6d6570736575ULL, key->k1 ^ 0x646f72616e646f6dULL,
                    key->k0 ^ 0x6c7967656e657261ULL, key->k1 ^ 0x7465646279746573ULL};
    const unsigned char *p = data;
    uint64_t word;
    size_t left = n;
    for (; left >= 8; left -= 8, p += 8) {
        word = load(p);
        s.d ^= word;
        sip_round(&s);
        s.a ^= word;
    }
    word = (uint64_t)n << 56 | load_tail(p, left, n);
    s.d ^= word;
    sip_round(&s);
    s.a ^= word;
    s.c ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_hw(uint32_t crc, const unsigned char *p,
                                                         size_t n)
{
    uint64_t c = crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    for (; n; n--, p++)
        c = __builtin_ia32_crc32qi((uint32_t)c, *p);
    return (uint32_t)c;
}
#endif

static uint32_t crc_plain(uint32_t crc, const unsigned char *p, size_t n)
{
    for (; n; n--, p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_hw(crc, data, n);
#endif
    return ~crc_plain(crc, data, n);
}
