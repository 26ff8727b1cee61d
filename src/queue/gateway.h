/* gateway.h - the queue for a server: push and list, never blocking, on one connection that
 * comes back by itself. Loop thread only. */
#ifndef BELAY_QUEUE_GATEWAY_H
#define BELAY_QUEUE_GATEWAY_H

#include "base/err.h"
#include "base/slice.h"

#include <stdint.h>

enum {
    FRONT_CALLS_MAX = 1000,    /* on their way at a time */
    FRONT_PAGE_BYTES = 1 << 20 /* of a list; a page ends with the request that reaches it */
};

struct gateway;
struct gateway_call;
struct uv_loop_s;

/* `text` is the answer as JSON, or for an error a sentence; borrowed. Called once, unless
 * forgotten; never from inside of gateway_push() or gateway_list(). */
typedef void gateway_fn(void *arg, enum belay_err err, struct slice text);

struct gateway *gateway_open(struct uv_loop_s *loop, const char *url, const char *schema);
void gateway_close(struct gateway *f); /* forgets all calls; NULL is allowed */

/* NULL: *ret_why says why it cannot be asked now. */
/* {"entity", "kind", "payload", "run_at", ...} -> {"id": N}, as push_json() of the schema.
 * EXISTS: a second create. */
struct gateway_call *gateway_push(struct gateway *f, struct slice queue, struct slice json,
                                  gateway_fn *fn, void *arg, const char **ret_why);

struct gateway_order {
    struct slice queue;
    const char *what;     /* pause, resume, retry, cancel, keep */
    struct slice options; /* an object */
};
/* -> what manage() of the schema answers. */
struct gateway_call *gateway_manage(struct gateway *f, const struct gateway_order *order,
                                    gateway_fn *fn, void *arg, const char **ret_why);

struct gateway_filter {
    struct slice queue, status, entity; /* empty: any */
    int64_t after;
    int64_t limit; /* 1..1000 */
};
/* -> {"requests": [...], "more": true}; more: the page ended before the list. NOT_FOUND: no
 * such queue. */
struct gateway_call *gateway_list(struct gateway *f, const struct gateway_filter *filter,
                                  gateway_fn *fn, void *arg, const char **ret_why);
void gateway_forget(struct gateway_call *call); /* its answer is not wanted any more */
#endif
