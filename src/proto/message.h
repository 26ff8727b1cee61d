/* message.h - a request and a reply, whatever door they come through.
 *
 * A request borrows: its slices point into the bytes that were read (or into the arena that the
 * parser was given) and die with them. A reply is a small tree built in an arena; the same tree
 * becomes RESP or JSON, so a command is answered once and not once per protocol:
 *
 *   map{status:"granted", fence:13, ticket:0 (json only), expires_in_ms:30000, body:""}
 *     RESP  *4  granted 13 30000 ""          a map marked REPLY_ROW is its values in a row
 *     JSON  {"status":"granted","fence":13,"ticket":0,"expires_in_ms":30000,"body":""} */
#ifndef BELAY_PROTO_MESSAGE_H
#define BELAY_PROTO_MESSAGE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REQUEST_WORDS_MAX = 1024,        /* RESP words, the command's name included */
    REQUEST_FIELDS_MAX = 64,         /* HTTP: query and JSON members together */
    REQUEST_BYTES_MAX = 1024 * 1024, /* one request, all in all */
    REQUEST_HEAD_BYTES_MAX = 16384,  /* HTTP: request line and headers */
    REQUEST_HEADERS_MAX = 64,
};

enum field_type { FIELD_TEXT, FIELD_NUMBER, FIELD_BOOL, FIELD_NULL, FIELD_JSON };

/* A named value: a member of the JSON body or of the query string (those are FIELD_TEXT).
 * Text is unescaped; numbers, booleans and FIELD_JSON (arrays, objects) are the bytes as sent.
 */
struct field {
    struct slice key;
    struct slice value;
    enum field_type type;
};

struct request {
    struct slice verb;         /* RESP: the command's name; HTTP: the method */
    const struct slice *words; /* RESP: the arguments behind the name */
    size_t n_words;
    bool is_http;
    struct slice path; /* HTTP: as sent, percent-encoded, without the query */
    struct field *fields;
    size_t n_fields;
    struct slice body;         /* HTTP: raw body */
    struct slice content_type; /* HTTP headers that somebody needs; empty: not sent */
    struct slice last_event_id;
    struct slice host, origin, fetch_site, accept, authorization, idempotency_key, request_id;
    struct slice if_none_match, wanted_method; /* Access-Control-Request-Method */
    bool keep_alive;
};

enum reply_kind {
    REPLY_NONE,   /* HTTP: empty body; RESP: nothing at all is sent; inside: left out */
    REPLY_NULL,   /* null; RESP2 $-1, RESP3 _ */
    REPLY_BOOL,   /* true; RESP :1 and :0 */
    REPLY_INT,    /* signed 64 bit */
    REPLY_DOUBLE, /* RESP: a bulk string, RESP3: ','; JSON: inf and nan become null */
    REPLY_TEXT,   /* any bytes; JSON: invalid UTF-8 becomes U+FFFD */
    REPLY_STATUS, /* a short word: RESP "+OK" */
    REPLY_ERROR,  /* err and text; RESP "-STALE text", JSON {"error":{"code","message"}} */
    REPLY_LIST,
    REPLY_MAP,
    REPLY_JSON,  /* JSON as it stands: spliced into JSON, a bulk string in RESP */
    REPLY_PLAIN, /* HTTP: text/plain body as it stands; RESP: a bulk string */
    REPLY_PUSH,  /* RESP3 '>' (RESP2: an array); only at the top */
};

enum reply_flag {
    REPLY_ROW = 1,       /* a map that RESP shows as its values in a row; one value: bare */
    REPLY_JSON_ONLY = 2, /* RESP leaves it out */
    REPLY_RESP_ONLY = 4, /* JSON leaves it out */
    REPLY_SPLICE = 8,    /* a list in a row: RESP puts its items into the row itself */
    REPLY_WRAP = 16,     /* a row of one value stays an array in RESP: [timeout] */
    REPLY_TAGGED = 32,   /* HTTP, at the top: it has an ETag */
};

struct reply {
    enum reply_kind kind;
    unsigned flags;
    struct slice key; /* in a map; never NULL data there */
    struct slice text;
    int64_t number;
    double real;
    enum belay_err err;
    struct reply *first, *last, *next; /* children in order; next of my parent's children */
    size_t count;                      /* children */
    int status;                        /* HTTP, at the top only; 0: 200, or that of err */
    const char *media;                 /* REPLY_PLAIN: its content type; NULL: text/plain */
    struct slice headers; /* HTTP, at the top only: our own lines ("Allow: GET\r\n") or none */
};

/* Builders. All memory is the arena's; `text` is borrowed and must live as long. With an arena
 * that may fail they return NULL, and adding to NULL or adding NULL does nothing. */
struct reply *reply_new(struct arena *a, enum reply_kind kind);
struct reply *reply_error(struct arena *a, enum belay_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct reply *reply_add(struct reply *parent, struct slice key, struct reply *child);
struct reply *reply_text_at(struct arena *a, struct reply *map, struct slice key,
                            struct slice text);
struct reply *reply_int_at(struct arena *a, struct reply *map, struct slice key, int64_t v);
struct reply *reply_bool_at(struct arena *a, struct reply *map, struct slice key, bool v);
static inline struct reply *reply_text(struct arena *a, struct reply *map, const char *key,
                                       struct slice text)
{
    return reply_text_at(a, map, slice_str(key), text); /* a literal's length is known here */
}
static inline struct reply *reply_int(struct arena *a, struct reply *map, const char *key,
                                      int64_t v)
{
    return reply_int_at(a, map, slice_str(key), v);
}
static inline struct reply *reply_bool(struct arena *a, struct reply *map, const char *key,
                                       bool v)
{
    return reply_bool_at(a, map, slice_str(key), v);
}
struct reply *reply_null(struct arena *a, struct reply *map, const char *key);
struct reply *reply_list(struct arena *a, struct reply *map, const char *key);
struct reply *reply_map(struct arena *a, struct reply *map, const char *key);
/* `map` may be NULL (a value of its own) or a list (then key is NULL). Each returns the child.
 */

/* The shortest digits that give `v` again, "inf", "-inf" or "nan", in `space`. */
enum { REPLY_REAL_BYTES = 32 };
struct slice reply_real(double v, char *space);

/* The child of a map with that key, or NULL; for readers of replies (the client). */
const struct reply *reply_get(const struct reply *map, const char *key);
#endif
