/* front.h - the queue for a server: push and list, never blocking, on one connection that comes
 * back by itself. Loop thread only. */
#ifndef BELAY_QUEUE_FRONT_H
#define BELAY_QUEUE_FRONT_H

#include "base/err.h"
#include "base/slice.h"

#include <stdint.h>

enum { FRONT_CALLS_MAX = 1000 }; /* on their way at a time */

struct front;
struct front_call;
struct uv_loop_s;

/* `text` is the answer as JSON, or for an error a sentence; borrowed. Called once, unless
 * forgotten; never from inside of front_push() or front_list(). */
typedef void front_fn(void *arg, enum belay_err err, struct slice text);

struct front *front_open(struct uv_loop_s *loop, const char *url, const char *schema);
void front_close(struct front *f); /* forgets all calls; NULL is allowed */

/* NULL: *ret_why says why it cannot be asked now. */
/* {"entity", "kind", "payload", "run_at"} -> {"id": N}. EXISTS: a second create. */
struct front_call *front_push(struct front *f, struct slice queue, struct slice json,
                              front_fn *fn, void *arg, const char **ret_why);

struct front_filter {
    struct slice queue, status, entity; /* empty: any */
    int64_t after;
    int64_t limit; /* 1..1000 */
};
/* -> {"requests": [...]}. NOT_FOUND: no such queue. */
struct front_call *front_list(struct front *f, const struct front_filter *filter, front_fn *fn,
                              void *arg, const char **ret_why);
void front_forget(struct front_call *call); /* its answer is not wanted any more */
#endif
