/* http.h - HTTP/1.1 requests in, responses out. No sockets, no allocation but the caller's
 * arena.
 *
 * llhttp does the syntax of the head; on top of it we refuse what it lets pass: folded headers,
 * a missing or double Host, CL + TE, names that are not tokens, other protocols' names. */
#ifndef BELAY_PROTO_HTTP_H
#define BELAY_PROTO_HTTP_H

#include "base/buf.h"
#include "base/hash.h"
#include "proto/message.h"

enum http_step { HTTP_DONE, HTTP_MORE, HTTP_CONTINUE, HTTP_BAD };

/* More limits are in message.h. */
enum {
    HTTP_URI_BYTES_MAX = 8192,
    HTTP_LINE_BYTES_MAX = HTTP_URI_BYTES_MAX + 64, /* method, URI, version */
    HTTP_EXTENSION_BYTES_MAX = 256,                /* chunk extensions of a request, in all */
    HTTP_ID_BYTES_MAX = 64,                        /* X-Request-Id */
    HTTP_CHUNKS_MAX = 4096,      /* of a request: they are counted again with every read */
    HTTP_SNIFF_BYTES_MAX = 4096, /* of a first line; an inline command is not longer */
};

struct http_error {
    int status;       /* 400, 413, 414, 417, 431, 501, 503, 505 */
    const char *what; /* static text */
};

/* Borrows from `in` and `a`. HTTP_DONE: *ret_used bytes belong to the request. HTTP_CONTINUE:
 * the head is whole, nothing of the body is here, and the client waits for "100 Continue" (do
 * not ask again before more bytes came). HTTP_BAD: answer with *ret_err and close. The query
 * string is split into fields (decoded). The body stays raw: see http_read_body(). Chunked
 * bodies are put together in `a`. Never HTTP_MORE when `in` has REQUEST_BYTES_MAX bytes. An
 * Upgrade header is ignored, as a server may: Java's client sends one by default. */
enum http_step http_next(struct slice in, struct arena *a, struct request *ret_req,
                         size_t *ret_used, struct http_error *ret_err);

/* The answer to HTTP_BAD, with its status. */
struct reply *http_error_reply(struct arena *a, const struct http_error *err);

/* Splits a query string into req->fields. False: *ret_why, a static text. */
bool http_read_query(struct request *req, struct slice query, struct arena *a,
                     const char **ret_why);

/* Adds the members of a JSON object body to req->fields. An empty body adds nothing. False:
 * *ret_why names what is wrong (not JSON, not an object, too many members, a member that is
 * also in the query), for the client; memory is the arena's. */
bool http_read_body(struct request *req, struct arena *a, const char **ret_why);

/* Percent-decodes one path segment; "%2F" becomes a byte of the name. False when malformed. */
bool http_decode(struct slice segment, struct arena *a, struct slice *ret);

/* What may stand in X-Request-Id: 1 to HTTP_ID_BYTES_MAX printable characters without a space. */
bool http_is_id(struct slice id);
/* How a response is sent. */
struct http_manner {
    bool keep_alive;
    bool bare;           /* it answers HEAD: its body stays here */
    bool problem;        /* errors as RFC 9457 has them */
    struct slice id;     /* X-Request-Id; empty: none */
    struct slice date;   /* Date; empty: none */
    struct slice origin; /* of a page that may read it; empty: only one of our own */
    struct hash_key tag_key;
    uint64_t known_tag; /* the client has what has this tag; 0: nothing */
};

/* W/"0123456789abcdef": the number in there. 0: it is none of ours. Of several the first counts. */
uint64_t http_read_tag(struct slice if_none_match);
/* Appends a whole response with Content-Length. REPLY_PLAIN sets its own media type. */
void http_write(struct buf *out, const struct reply *r, struct http_manner manner);
void http_write_continue(struct buf *out);
/* Appends the head of an endless text/event-stream response, and one event of it. */
void http_write_stream_head(struct buf *out, struct http_manner manner);
void http_write_event(struct buf *out, uint64_t id, struct slice event, struct slice data);

/* Do the first bytes belong to HTTP? HTTP_DONE: yes. HTTP_BAD: no. HTTP_MORE: too few to tell.
 * Anything that begins like a method, a space and a path is HTTP, also with an unknown method,
 * and so is a line that ends in " HTTP/1.1" or the like; so that a page in a browser cannot
 * talk RESP through a form. */
enum http_step http_sniff(struct slice first);
#endif
