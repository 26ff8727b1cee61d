/* json.h - strict RFC 8259, no allocation: a tokenizer into the caller's array, and a writer.
 */
#ifndef BELAY_PROTO_JSON_H
#define BELAY_PROTO_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "proto/message.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

enum {
    JSON_DEPTH_MAX = 160,
    JSON_TOKENS_MAX = 65536,
    JSON_MEMBERS_MAX = 1024, /* of one object */
};

/* One value. Tokens stand in the order of the text, a container before its items: the first
 * item of t is t + 1, the sibling behind t is t + t->span. */
struct json_token {
    enum json_type type;
    uint32_t items; /* array: items, object: members */
    uint32_t span;  /* tokens of this value, itself included */
    bool escaped;   /* a string (or its key: see key_escaped) that holds backslashes */
    bool key_escaped;
    struct slice raw; /* the value as sent; a string without its quotes, still escaped */
    struct slice key; /* in an object: the member's name, without quotes, still escaped */
};

struct json_error {
    size_t offset; /* where in the text */
    const char *what;
};

/* Parses exactly one value with white space around it. False: *ret_err says what and where
 * (also: too deep, more than `max` tokens, invalid UTF-8, lone surrogate, duplicate member). */
bool json_parse(struct slice text, struct json_token *tokens, size_t max, size_t *ret_n,
                struct json_error *ret_err);

/* The same with a token array in `a`, sized by the text; *ret_root is its first token. */
bool json_parse_in(struct slice text, struct arena *a, struct json_token **ret_root,
                   struct json_error *ret_err);

/* The bytes of a string token (or its key), unescaped into `a` when it has escapes. */
struct slice json_text(const struct json_token *t, struct arena *a);
struct slice json_key(const struct json_token *t, struct arena *a);
const struct json_token *json_get(const struct json_token *object,
                                  const char *key); /* or NULL */

/* Whole numbers only: "1", "-5", also "1e3" and "1.0"; false when it has a fraction or does not
 * fit. Text without a sign for u64. */
bool json_i64(struct slice raw, int64_t *ret_v);
bool json_u64(struct slice raw, uint64_t *ret_v);

void json_put_string(struct buf *out, struct slice s);   /* quoted; invalid UTF-8 -> U+FFFD */
void json_write(struct buf *out, const struct reply *r); /* the tree as JSON */
/* Two documents with the same meaning: member order, white space, escapes and the spelling of
 * a number ("1", "1.0", "10e-1") do not count. False also when one of them is not JSON. */
bool json_same(struct slice a, struct slice b, struct arena *scratch);

/* The one way to write a value: members by name, no white space, the shortest escapes, numbers
 * as "-12.5", "1e+30". Values that are json_same() have equal canonical bytes. `t` was parsed
 * by json_parse(); out of memory shows in out->oom. */
void json_canonical(struct buf *out, const struct json_token *t, struct arena *scratch);

/* About how long json_write() makes it: never much less. */
size_t json_bytes(const struct reply *r);
#endif
