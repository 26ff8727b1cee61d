/* resp.h - RESP2 and RESP3, both directions. No sockets, no allocation but the caller's arena.
 *
 * Requests: arrays of bulk strings ("*2\r\n$4\r\nPING\r\n...") or inline words ("PING x\r\n").
 * Nothing is allocated by a length that was merely declared. */
#ifndef BELAY_PROTO_RESP_H
#define BELAY_PROTO_RESP_H

#include "base/buf.h"
#include "proto/message.h"

enum resp_step { RESP_DONE, RESP_MORE, RESP_BAD, RESP_TOO_BIG };

/* Borrows: `ret_req` points into `in` (and into `a` for its word list) and dies with the next
 * change of either. RESP_DONE: *ret_used bytes belong to the request; an empty line or "*0" is
 * DONE with an empty verb, to be skipped. RESP_BAD: *ret_why is a static text for the client
 * ("a word is not a bulk string"), and the connection has to be closed after it is sent.
 * RESP_TOO_BIG: the same, of a request that is over a limit. */
enum resp_step resp_next(struct slice in, struct arena *a, struct request *ret_req,
                         size_t *ret_used, const char **ret_why);

/* Appends the reply as RESP version 2 or 3. Control bytes in a status or error become spaces.
 */
void resp_write(struct buf *out, const struct reply *r, int version);

/* Appends a request: what a client sends. */
void resp_write_request(struct buf *out, const struct slice *words, size_t n);

enum {
    RESP_INLINE_BYTES_MAX = 4096, /* an inline command with its line end */
    RESP_DEPTH_MAX = 8,           /* of a reply: containers in containers */
    RESP_ITEMS_MAX = 1024 * 1024, /* of a reply: values in all */
    RESP_LINE_BYTES_MAX = 65536,  /* of a reply: a status, an error, a number */
    RESP_BULK_BYTES_MAX = 64 * 1024 * 1024,
};

/* Reads one reply (a client's side; pushes too) into a tree in `a`; text borrows from `in`.
 * A RESP2 map comes as a list; a set comes as a list; a big number and a verbatim string come
 * as text; attributes are dropped. An error whose word is not one of ours has
 * BELAY_ERR_INTERNAL and keeps the word in its text. RESP_MORE leaves pieces of a tree in `a`:
 * reset it before you ask again. RESP_BAD also when the arena may fail and did: then *ret_why
 * is "out of memory". */
enum resp_step resp_next_reply(struct slice in, struct arena *a, struct reply **ret_reply,
                               size_t *ret_used, const char **ret_why);
#endif
