/* chain.c - the hash of a line, and whether the next one fits. */
#include "audit/chain.h"

#include <openssl/evp.h>

static const char hash_key[] = ",\"hash\":\"", number_key[] = "{\"n\":";
enum {
    KEY_BYTES = sizeof hash_key - 1,
    END_BYTES = KEY_BYTES + CHAIN_HASH_BYTES + 2, /* and "} */
    SUM_BYTES = 32
};

void chain_init(struct chain *c)
{
    c->n = 0;
    memset(c->hash, '0', sizeof c->hash);
}

static void hash_of(const char before[CHAIN_HASH_BYTES], struct slice bytes,
                    char ret[CHAIN_HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[SUM_BYTES];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    BELAY_CHECK(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(ctx, before, CHAIN_HASH_BYTES) == 1 &&
                EVP_DigestUpdate(ctx, bytes.data, bytes.len) == 1 &&
                EVP_DigestFinal_ex(ctx, sum, NULL) == 1);
    EVP_MD_CTX_free(ctx);
    for (size_t i = 0; i < SUM_BYTES; i++) {
        ret[2 * i] = digits[sum[i] >> 4];
        ret[2 * i + 1] = digits[sum[i] & 15];
    }
}

void chain_put(struct chain *c, struct slice members, struct buf *out)
{
    size_t begin = buf_len(out);
    buf_put_str(out, number_key);
    buf_put_u64(out, ++c->n);
    buf_put_byte(out, ',');
    buf_put_slice(out, members);
    struct slice line = buf_slice(out);
    hash_of(c->hash, slice_of(line.data + begin, line.len - begin), c->hash);
    buf_put_str(out, hash_key);
    buf_put_slice(out, chain_hash(c));
    buf_put_str(out, "\"}\n");
}

/* Whole, and nothing else: digits without a sign, and few enough. */
static bool read_number(struct slice line, uint64_t *ret)
{
    enum { DIGITS_MAX = 19 };
    size_t i = sizeof number_key - 1, begin = i;
    uint64_t n = 0;
    if (!slice_starts(line, slice_str(number_key)))
        return false;
    for (; i < line.len && i - begin < DIGITS_MAX && line.data[i] >= '0' && line.data[i] <= '9';
         i++)
        n = n * 10 + (uint64_t)(line.data[i] - '0');
    *ret = n;
    return i > begin && i < line.len && line.data[i] == ',';
}

/* What the first line of a file says of the hash before it. */
static bool read_before(struct slice line, char ret[CHAIN_HASH_BYTES])
{
    static const char key[] = "\"event\":\"opened\",\"prev\":\"";
    const char *at = memmem(line.data, line.len, key, sizeof key - 1);
    if (!at || (size_t)(line.data + line.len - at) < sizeof key - 1 + CHAIN_HASH_BYTES)
        return false;
    memcpy(ret, at + sizeof key - 1, CHAIN_HASH_BYTES);
    return true;
}

/* A line in its two parts. */
static bool split(struct slice line, struct slice *ret_bytes, struct slice *ret_hash)
{
    if (line.len < END_BYTES ||
        memcmp(line.data + line.len - END_BYTES, hash_key, KEY_BYTES) != 0 ||
        memcmp(line.data + line.len - 2, "\"}", 2) != 0)
        return false;
    *ret_bytes = slice_of(line.data, line.len - END_BYTES);
    *ret_hash = slice_of(line.data + ret_bytes->len + KEY_BYTES, CHAIN_HASH_BYTES);
    return true;
}

bool chain_resume(struct chain *c, struct slice line)
{
    struct slice bytes, hash;
    if (!split(line, &bytes, &hash) || !read_number(line, &c->n))
        return false;
    memcpy(c->hash, hash.data, hash.len);
    return true;
}

const char *chain_read(struct chain_reader *r, struct slice line)
{
    uint64_t n;
    char hash[CHAIN_HASH_BYTES];
    struct slice bytes, said;
    if (!split(line, &bytes, &said) || !read_number(line, &n))
        return "this is not a line of an audit log";
    if (!r->begun && !read_before(line, r->at.hash))
        return "the first line is not the event \"opened\": lines before it are missing";
    if (r->begun && n != r->at.n + 1)
        return n > r->at.n ? "lines are missing before this one" : "the line stands twice";
    hash_of(r->at.hash, bytes, hash);
    if (!slice_eq(slice_of(hash, sizeof hash), said))
        return "the hash is wrong: this line, or the one before it, was changed";
    if (!r->begun)
        r->first = n;
    r->begun = true;
    r->at.n = n;
    memcpy(r->at.hash, hash, sizeof hash);
    return NULL;
}
