/* writer.c - see writer.h. */
#include "storage/writer.h"

#include "base/check.h"
#include "storage/journal.h"

#include <sys/eventfd.h>
#include <unistd.h>

static void run(void *arg)
{
    struct writer *w = arg;
    for (;;) {
        uv_sem_wait(&w->due);
        if (w->stop)
            return;
        BELAY_CHECK(w->job);
        uint64_t began = uv_hrtime();
        journal_job_run(w->job);
        w->took_ns = uv_hrtime() - began;
        BELAY_CHECK(eventfd_write(w->done, 1) == 0);
    }
}

static void on_done(uv_poll_t *p, int status, int events)
{
    struct writer *w = p->data;
    eventfd_t n;
    (void)events;
    BELAY_CHECK(status == 0);
    if (eventfd_read(w->done, &n) != 0)
        return;
    BELAY_CHECK(n == 1 && w->job);
    struct journal_job *job = w->job;
    w->job = NULL;
    uv_unref((uv_handle_t *)&w->poll);
    w->written(w->ctx, job);
}

void writer_open(struct writer *w, uv_loop_t *loop,
                 void (*written)(void *ctx, struct journal_job *job), void *ctx)
{
    *w = (struct writer){.written = written, .ctx = ctx};
    w->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->poll.data = w;
    BELAY_CHECK(w->done >= 0);
    BELAY_CHECK(uv_sem_init(&w->due, 0) == 0);
    BELAY_CHECK(uv_poll_init(loop, &w->poll, w->done) == 0);
    BELAY_CHECK(uv_poll_start(&w->poll, UV_READABLE, on_done) == 0);
    uv_unref((uv_handle_t *)&w->poll); /* only a write keeps the loop alive */
    BELAY_CHECK(uv_thread_create(&w->thread, run, w) == 0);
}

void writer_run(struct writer *w, struct journal_job *job)
{
    BELAY_CHECK(!w->job);
    BELAY_CHECK(job);
    w->job = job;
    uv_ref((uv_handle_t *)&w->poll);
    uv_sem_post(&w->due);
}

void writer_close(struct writer *w)
{
    BELAY_CHECK(!w->job);
    w->stop = true;
    uv_sem_post(&w->due);
    BELAY_CHECK(uv_thread_join(&w->thread) == 0);
    uv_sem_destroy(&w->due);
    uv_close((uv_handle_t *)&w->poll, NULL);
    (void)close(w->done);
}
