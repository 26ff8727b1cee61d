/* writer.h - the thread that makes journal batches durable, one at a time, for a libuv loop.
 *
 * libuv's own pool would do it too, but wakes a loop that then has to spin until the waker is
 * done, takes two locks, and has look-ups of host names in the same line. */
#ifndef BELAY_STORAGE_WRITER_H
#define BELAY_STORAGE_WRITER_H

#include <stdbool.h>
#include <uv.h>

struct journal_job;

struct writer {
    uv_thread_t thread;
    uv_sem_t due;
    uv_poll_t poll;
    int done; /* eventfd */
    struct journal_job *job;
    bool stop;
    uint64_t took_ns;                                    /* the last job, on the disk */
    void (*written)(void *ctx, struct journal_job *job); /* on the loop */
    void *ctx;
};

/* Does not return if the system has no thread or descriptor for it. */
void writer_open(struct writer *w, uv_loop_t *loop,
                 void (*written)(void *ctx, struct journal_job *job), void *ctx);
void writer_run(struct writer *w, struct journal_job *job); /* when the last one is written */
void writer_close(struct writer *w); /* its handle is closed when the loop has turned */
#endif
