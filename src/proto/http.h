/* http.h - HTTP/1.1 requests in, responses out. No sockets, no allocation but the caller's
 * arena.
 *
 * llhttp does the syntax; on top of it we refuse what it lets pass: folded headers, a missing
 * or double Host, CL + TE, names that are not tokens. Limits: message.h. */
#ifndef BELAY_PROTO_HTTP_H
#define BELAY_PROTO_HTTP_H

#include "base/buf.h"
#include "proto/message.h"

enum http_step { HTTP_DONE, HTTP_MORE, HTTP_CONTINUE, HTTP_BAD };

struct http_error {
    int status;       /* 400, 408, 413, 414, 417, 431, 501, 505 */
    const char *what; /* static text */
};

/* Borrows from `in` and `a`. HTTP_DONE: *ret_used bytes belong to the request. HTTP_CONTINUE:
 * the head is whole, the body is not, and the client waits for "100 Continue". HTTP_BAD: answer
 * with *ret_err and close. The query string is split into fields (decoded). The body stays raw:
 * see http_read_body(). Chunked bodies are put together in `a`. */
enum http_step http_next(struct slice in, struct arena *a, struct request *ret_req,
                         size_t *ret_used, struct http_error *ret_err);

/* Adds the members of a JSON object body to req->fields. An empty body adds nothing. False:
 * *ret_why names what is wrong (not JSON, not an object, too many members, a member that is
 * also in the query), for the client; memory is the arena's. */
bool http_read_body(struct request *req, struct arena *a, const char **ret_why);

/* Percent-decodes one path segment; "%2F" becomes a byte of the name. False when malformed. */
bool http_decode(struct slice segment, struct arena *a, struct slice *ret);

/* Appends a whole response with Content-Length. REPLY_PLAIN sets its own media type. */
void http_write(struct buf *out, const struct reply *r, bool keep_alive);
/* Appends the head of an endless text/event-stream response, and one event of it. */
void http_write_stream_head(struct buf *out);
void http_write_event(struct buf *out, uint64_t id, struct slice event, struct slice data);

/* Do the first bytes belong to HTTP? HTTP_MORE: too few to tell. Anything that begins like a
 * method, a space and a path is HTTP, also an unknown method; so that a page in a browser
 * cannot talk RESP through a form. */
enum http_step http_sniff(struct slice first);
#endif
