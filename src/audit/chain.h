/* chain.h - the lines of an audit log, each bound to the one before it.
 *
 *   {"n":7,...,"hash":"<64 digits>"}
 *
 * A line is an object of JSON with its number first and its hash last: SHA-256 of the hash
 * before it (64 digits) and of its own bytes up to the hash. A file begins with a line that
 * names, as "prev", the hash of the last line of the file before it. So a line that is missing,
 * added or changed shows - except at the very end, which only a copy of the last hash can
 * prove. */
#ifndef BELAY_AUDIT_CHAIN_H
#define BELAY_AUDIT_CHAIN_H

#include "base/buf.h"

#include <stdbool.h>

enum {
    CHAIN_HASH_BYTES = 64, /* digits */
    CHAIN_LINE_BYTES_MAX = 32 * 1024,
};

struct chain {
    uint64_t n; /* of the last line; 0: there is none yet */
    char hash[CHAIN_HASH_BYTES];
};

void chain_init(struct chain *c); /* nothing came before: the hash is all zeros */
static inline struct slice chain_hash(const struct chain *c)
{
    return slice_of(c->hash, CHAIN_HASH_BYTES);
}

/* Puts the next line: `members` are those between the number and the hash, `"a":1,"b":2`. */
void chain_put(struct chain *c, struct slice members, struct buf *out);

/* Goes on behind this line (without its end), which is believed. False: it is none. */
bool chain_resume(struct chain *c, struct slice line);

/* Takes a line (without its end) as the next one. NULL, or what is wrong: a static text. With
 * `c` that is not `begun`, the line is the first that is looked at: it says where the chain is.
 */
struct chain_reader {
    struct chain at;
    bool begun;
    uint64_t first; /* number of the first line that was read */
};
const char *chain_read(struct chain_reader *r, struct slice line);
#endif
