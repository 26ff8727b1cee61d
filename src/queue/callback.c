/* callback.c - `belay_queue_work()`: a worker whose groups a C function works on. */
#include "belay_queue.h"

#include "queue/worker.h"

#include <stdio.h>
#include <stdlib.h>

int belay_queue_work(const struct belay_queue_options *options, belay_queue_fn *fn, void *arg,
                     char *why, size_t why_bytes)
{
    struct worker_options o = {.base = *options, .n_queue = 1, .fn = fn, .fn_arg = arg};
    char threads[16];
    o.queues[0].name = options->queue;
    if (!options->queue || !options->queue[0] || !fn ||
        options->concurrency > WORKER_SLOTS_MAX || options->batch > WORKER_BATCH_MAX) {
        (void)snprintf(why, why_bytes,
                       "a queue and a function are needed, concurrency is 1 to %d, "
                       "batch 1 to %d",
                       WORKER_SLOTS_MAX, WORKER_BATCH_MAX);
        return -1;
    }
    (void)snprintf(threads, sizeof threads, "%u",
                   options->concurrency ? options->concurrency : 1);
    (void)setenv("UV_THREADPOOL_SIZE", threads,
                 0); /* read once, when the first job is queued */
    return worker_run(&o, why, why_bytes);
}
