/* resp.h - RESP2 and RESP3, both directions. No sockets, no allocation but the caller's arena.
 *
 * Requests: arrays of bulk strings ("*2\r\n$4\r\nPING\r\n...") or inline words ("PING x\r\n").
 * Nothing is allocated by a length that was merely declared. */
#ifndef BELAY_PROTO_RESP_H
#define BELAY_PROTO_RESP_H

#include "base/buf.h"
#include "proto/message.h"

enum resp_step { RESP_DONE, RESP_MORE, RESP_BAD }; /* three answers need three names */

/* Borrows: `ret_req` points into `in` (and into `a` for its word list) and dies with the next
 * change of either. RESP_DONE: *ret_used bytes belong to the request; an empty line or "*0" is
 * DONE with an empty verb, to be skipped. RESP_BAD: *ret_why is a static text for the client
 * ("bulk length over the limit"), and the connection has to be closed after it is sent. */
enum resp_step resp_next(struct slice in, struct arena *a, struct request *ret_req,
                         size_t *ret_used, const char **ret_why);

/* Appends the reply as RESP version 2 or 3. */
void resp_write(struct buf *out, const struct reply *r, int version);

/* Appends a request: what a client sends. */
void resp_write_request(struct buf *out, const struct slice *words, size_t n);

/* Reads one reply (a client's side; pushes too) into a tree in `a`; text borrows from `in`.
 * Depth and element counts are bounded by RESP_DEPTH_MAX, RESP_ITEMS_MAX. RESP_BAD also when
 * the arena may fail and did: then *ret_why is "out of memory". */
enum { RESP_DEPTH_MAX = 8, RESP_ITEMS_MAX = 1024 * 1024, RESP_INLINE_BYTES_MAX = 4096 };
enum resp_step resp_next_reply(struct slice in, struct arena *a, struct reply **ret_reply,
                               size_t *ret_used, const char **ret_why);
#endif
