/* token.h - the text of a token: blt_<public id>_<secret>. Pure, but for token_new().
 *
 * The public id is 16 hexadecimal digits and finds the token; the secret is 256 random bits in
 * 64 of them, shown once. Only its SHA-256 is kept. A secret of 256 random bits cannot be
 * guessed, so no slow hash is needed. */
#ifndef BELAY_AUTH_TOKEN_H
#define BELAY_AUTH_TOKEN_H

#include "base/slice.h"

#include <stdbool.h>

enum {
    TOKEN_ID_BYTES = 16,
    TOKEN_SECRET_BYTES = 64,
    TOKEN_SUM_BYTES = 32,
    TOKEN_TEXT_BYTES = 4 + TOKEN_ID_BYTES + 1 + TOKEN_SECRET_BYTES,
};

/* Both parts of a token's text; they borrow from it. False: it is not one. */
bool token_read(struct slice text, struct slice *ret_id, struct slice *ret_secret);
bool token_is_id(struct slice text); /* 16 lower-case hexadecimal digits */

/* SHA-256 of a secret, whatever bytes it has. */
void token_sum(struct slice secret, unsigned char ret[TOKEN_SUM_BYTES]);
/* In the same time whether they are equal or not. */
bool token_sums_equal(const unsigned char a[TOKEN_SUM_BYTES],
                      const unsigned char b[TOKEN_SUM_BYTES]);

/* Random hexadecimal digits, as many as `n`, which is even and at most TOKEN_SECRET_BYTES. */
void token_new(char *ret, size_t n);
#endif
