/* token.c - the text of a token: makes one, takes one apart, compares the sum of a secret. */
#include "auth/token.h"

#include "base/check.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

static const char head[] = "blt_";
enum { HEAD_BYTES = sizeof head - 1 };

static bool is_hex(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

bool token_is_id(struct slice text)
{
    return text.len == TOKEN_ID_BYTES && is_hex(text);
}

bool token_read(struct slice text, struct slice *ret_id, struct slice *ret_secret)
{
    if (text.len != TOKEN_TEXT_BYTES || memcmp(text.data, head, HEAD_BYTES) != 0 ||
        text.data[HEAD_BYTES + TOKEN_ID_BYTES] != '_')
        return false;
    *ret_id = slice_of(text.data + HEAD_BYTES, TOKEN_ID_BYTES);
    *ret_secret = slice_of(text.data + HEAD_BYTES + TOKEN_ID_BYTES + 1, TOKEN_SECRET_BYTES);
    return is_hex(*ret_id) && is_hex(*ret_secret);
}

void token_sum(struct slice secret, unsigned char ret[TOKEN_SUM_BYTES])
{
    (void)SHA256((const unsigned char *)secret.data, secret.len, ret);
}

bool token_sums_equal(const unsigned char a[TOKEN_SUM_BYTES],
                      const unsigned char b[TOKEN_SUM_BYTES])
{
    return CRYPTO_memcmp(a, b, TOKEN_SUM_BYTES) == 0;
}

void token_new(char *ret, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char raw[TOKEN_SECRET_BYTES / 2];
    BELAY_CHECK(n % 2 == 0 && n / 2 <= sizeof raw);
    BELAY_CHECK(getrandom(raw, n / 2, 0) == (ssize_t)(n / 2));
    for (size_t i = 0; i < n / 2; i++) {
        ret[2 * i] = hex[raw[i] >> 4];
        ret[2 * i + 1] = hex[raw[i] & 15];
    }
    OPENSSL_cleanse(raw, sizeof raw);
}
