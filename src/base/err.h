/* err.h - the one error space. Codes of libuv, libraft, libpq and errno are converted in the
 * file that receives them. "Somebody else holds the lock" is a result, not an error.
 *
 * The numbers are part of the state (answers that are kept): new rows stand at the end.
 * A row: enum value, word on the wire (RESP and JSON), HTTP status, what it means. */
#ifndef BELAY_BASE_ERR_H
#define BELAY_BASE_ERR_H

#include "base/check.h"

#define BELAY_ERR_MAP(X)                                                                       \
    X(BELAY_OK, "OK", 200, "done")                                                             \
    X(BELAY_ERR_SYNTAX, "SYNTAX", 400, "request is malformed")                                 \
    X(BELAY_ERR_UNKNOWN, "UNKNOWN", 404, "no such command or path")                            \
    X(BELAY_ERR_METHOD, "METHOD", 405, "this path does not take that method")                  \
    X(BELAY_ERR_TYPE, "TYPE", 415, "this content type is not understood")                      \
    X(BELAY_ERR_RANGE, "RANGE", 400, "a value is outside its bounds")                          \
    X(BELAY_ERR_TOO_BIG, "TOOBIG", 413, "request is larger than the limit")                    \
    X(BELAY_ERR_LIMIT, "LIMIT", 429, "a limit of the server is reached")                       \
    X(BELAY_ERR_NOT_FOUND, "NOTFOUND", 404, "no such thing")                                   \
    X(BELAY_ERR_NO_SESSION, "NOSESSION", 404, "no such session, or it has ended")              \
    X(BELAY_ERR_NO_NAMESPACE, "NONAMESPACE", 404, "no such namespace")                         \
    X(BELAY_ERR_EXISTS, "EXISTS", 409, "it exists already")                                    \
    X(BELAY_ERR_IN_USE, "INUSE", 409, "it is in use")                                          \
    X(BELAY_ERR_STALE, "STALE", 409, "the fence or owner does not hold the lock")              \
    X(BELAY_ERR_NO_SCRIPT, "NOSCRIPT", 404, "no matching script, use EVAL")                    \
    X(BELAY_ERR_NO_PROTO, "NOPROTO", 400, "unsupported protocol version")                      \
    X(BELAY_ERR_DENIED, "DENIED", 403, "not allowed")                                          \
    X(BELAY_ERR_NOT_LEADER, "NOTLEADER", 421, "ask the leader")                                \
    X(BELAY_ERR_UNAVAILABLE, "UNAVAILABLE", 503, "cannot serve now, try again")                \
    X(BELAY_ERR_TIMEOUT, "TIMEOUT", 408, "time ran out")                                       \
    X(BELAY_ERR_GONE, "GONE", 410, "dropped already; read the full state first")               \
    X(BELAY_ERR_CORRUPT, "CORRUPT", 500, "stored data fails its checks")                       \
    X(BELAY_ERR_IO, "IO", 500, "input or output failed")                                       \
    X(BELAY_ERR_NO_MEMORY, "NOMEMORY", 500, "out of memory")                                   \
    X(BELAY_ERR_INTERNAL, "INTERNAL", 500, "internal error")                                   \
    X(BELAY_ERR_QUOTA, "QUOTA", 429, "a limit of the account is reached")                      \
    X(BELAY_ERR_LOGIN, "DENIED", 401, "log in with a valid token")                             \
    X(BELAY_ERR_OVERLOADED, "OVERLOADED", 503, "no memory left for new things, try later")     \
    X(BELAY_ERR_THROTTLED, "THROTTLED", 429, "too many requests, wait")

enum belay_err {
#define X(id, word, status, text) id,
    BELAY_ERR_MAP(X)
#undef X
};

enum {
#define X(id, word, status, text) id##_ROW,
    BELAY_ERR_MAP(X)
#undef X
        BELAY_ERR_COUNT /* not in the enum above: a switch names every error */
};

const char *err_word(enum belay_err err); /* "STALE" */
const char *err_text(enum belay_err err); /* "the fence or owner does not hold the lock" */
int err_status(enum belay_err err);       /* 409 */
#endif
