/* audit.c - the file, the thread that writes it, and the buffer between it and the callers. */
#include "audit/audit.h"

#include "audit/chain.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct audit {
    char *path;
    void (*told)(void *ctx);
    void *ctx;
    pthread_t thread;
    struct chain chain; /* of the callers */
    uint64_t lost_told; /* of `lost`: what a line has said */
    /* the writing thread's */
    int fd;
    off_t size; /* of the file: what is whole */
    /* of both, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t due;
    struct buf waiting;
    size_t old_bytes; /* of `waiting`: for the file before, when `reopen` */
    bool reopen, again, stop;
    uint64_t put, durable, lost;
    int error;
};

struct slice audit_time(char space[AUDIT_TIME_BYTES])
{
    struct timespec now;
    struct tm day;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &day);
    size_t n = strftime(space, AUDIT_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &day);
    n += (size_t)snprintf(space + n, AUDIT_TIME_BYTES - n, ".%03dZ",
                          (int)(now.tv_nsec / 1000000));
    return slice_of(space, n);
}

/* --- the file --- */

/* Makes it, or appends to it. -1: errno. */
static int open_file(const char *path, off_t *ret_size)
{
    struct stat st;
    int fd =
        open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return -1;
    /* of this process: a child that writes a snapshot may outlive it, and must not keep it */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int err = fstat(fd, &st) != 0 ? errno : !S_ISREG(st.st_mode) ? EINVAL : 0;
    if (!err && fcntl(fd, F_SETLK, &lock) != 0)
        err = errno == EACCES ? EAGAIN : errno;
    if (err) {
        (void)close(fd);
        errno = err;
        return -1;
    }
    *ret_size = st.st_size;
    return fd;
}

/* The end of the file, from which the chain goes on. */
static const char *read_end(struct audit *a, struct slice tail, bool whole_file)
{
    const char *cut = tail.len ? memrchr(tail.data, '\n', tail.len) : NULL;
    size_t whole = cut ? (size_t)(cut + 1 - tail.data) : 0;
    if (tail.len == 0)
        return NULL;
    if (!cut && !whole_file)
        return "its last line is too long";
    if (ftruncate(a->fd, a->size - (off_t)(tail.len - whole)) != 0)
        return "its last line is cut off, and cannot be removed";
    a->size -= (off_t)(tail.len - whole);
    if (whole == 0)
        return NULL;
    const char *before = memrchr(tail.data, '\n', whole - 1);
    const char *line = before ? before + 1 : tail.data;
    struct slice last = slice_of(line, (size_t)(tail.data + whole - 1 - line));
    return chain_resume(&a->chain, last) ? NULL : "its last line is not a line of an audit log";
}

static const char *open_first(struct audit *a)
{
    a->fd = open_file(a->path, &a->size);
    if (a->fd < 0)
        return errno == EAGAIN   ? "another process writes it"
               : errno == EINVAL ? "it is not a regular file"
                                 : strerror(errno);
    const off_t two_lines = (off_t)2 * CHAIN_LINE_BYTES_MAX;
    off_t from = a->size > two_lines ? a->size - two_lines : 0;
    char *tail = mem_alloc((size_t)(a->size - from) + 1);
    ssize_t n = pread(a->fd, tail, (size_t)(a->size - from), from);
    const char *why = n == a->size - from ? read_end(a, slice_of(tail, (size_t)n), from == 0)
                                          : "it cannot be read";
    free(tail);
    if (why)
        (void)close(a->fd);
    return why;
}

/* All or nothing: what was written of it by half is cut off again. errno, or 0. */
static int append(struct audit *a, struct slice bytes)
{
    size_t done = 0;
    int err = 0;
    while (done < bytes.len && !err) {
        ssize_t n = write(a->fd, bytes.data + done, bytes.len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            err = n == 0 ? EIO : errno;
    }
    if (!err && bytes.len && fdatasync(a->fd) != 0)
        err = errno;
    if (err)
        (void)!ftruncate(a->fd, a->size);
    else
        a->size += (off_t)bytes.len;
    return err;
}

/* --- lines, under the lock --- */

static void put_line(struct audit *a, struct slice members)
{
    chain_put(&a->chain, members, &a->waiting);
    BELAY_CHECK(!a->waiting.oom);
    a->put = a->chain.n;
    (void)pthread_cond_signal(&a->due);
}

static void put_opened(struct audit *a)
{
    struct buf line = {0};
    char space[AUDIT_TIME_BYTES];
    buf_put_str(&line, "\"time\":\"");
    buf_put_slice(&line, audit_time(space));
    buf_put_str(&line, "\",\"event\":\"opened\",\"prev\":\"");
    buf_put_slice(&line, chain_hash(&a->chain));
    buf_put_byte(&line, '"');
    put_line(a, buf_slice(&line));
    buf_done(&line);
}

/* What waits now goes into the file before, what comes into the next one. */
static void turn_here(struct audit *a)
{
    a->reopen = true;
    a->old_bytes = buf_len(&a->waiting);
    put_opened(a);
}

/* --- the thread --- */

static bool is_renamed(const struct audit *a)
{
    struct stat at, mine;
    return fstat(a->fd, &mine) != 0 || stat(a->path, &at) != 0 || at.st_dev != mine.st_dev ||
           at.st_ino != mine.st_ino;
}

static int change_file(struct audit *a)
{
    off_t size;
    if (!is_renamed(a)) /* and a second descriptor would lose the lock when it is closed */
        return 0;
    int fd = open_file(a->path, &size);
    if (fd < 0)
        return errno;
    (void)close(a->fd);
    a->fd = fd;
    a->size = size;
    return 0;
}

/* Until there is something to do, or, after a failure, until the next try. */
static void wait_due(struct audit *a)
{
    struct timespec at;
    if (a->error && !a->stop) {
        (void)clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_sec++;
        while (!a->stop && pthread_cond_timedwait(&a->due, &a->lock, &at) != ETIMEDOUT)
            ;
        return;
    }
    while (!a->stop && !a->reopen && buf_len(&a->waiting) == 0)
        (void)pthread_cond_wait(&a->due, &a->lock);
}

/* With the lock, which it gives up to write: `batch` is what was taken over. */
static void write_batch(struct audit *a, struct buf *batch)
{
    bool turn = a->reopen;
    size_t n = turn ? a->old_bytes : buf_len(&a->waiting);
    uint64_t put = a->put;
    bool all = n == buf_len(&a->waiting);
    buf_clear(batch);
    buf_put(batch, buf_slice(&a->waiting).data, n);
    (void)pthread_mutex_unlock(&a->lock);
    int err = append(a, buf_slice(batch));
    int turned = !err && turn ? change_file(a) : 0;
    (void)pthread_mutex_lock(&a->lock);
    if (!err)
        buf_consume(&a->waiting, n);
    if (!err && a->reopen) /* asked for before, or meanwhile: then behind these bytes */
        a->old_bytes -= n;
    if (!err && turn && !turned) {
        a->reopen = false;
        if (a->again)
            turn_here(a);
        a->again = false;
    }
    if (!err && all)
        a->durable = put;
    a->error = err ? err : turned;
}

static void *write_all(void *arg)
{
    struct audit *a = arg;
    struct buf batch = {0};
    (void)pthread_mutex_lock(&a->lock);
    for (bool last = false; !last;) {
        wait_due(a);
        last = a->stop;
        do
            write_batch(a, &batch);
        while (last && !a->error && buf_len(&a->waiting));
        (void)pthread_mutex_unlock(&a->lock);
        a->told(a->ctx);
        (void)pthread_mutex_lock(&a->lock);
    }
    (void)pthread_mutex_unlock(&a->lock);
    buf_done(&batch);
    return NULL;
}

/* --- telling --- */

uint64_t audit_put(struct audit *a, struct slice members)
{
    struct buf line = {0};
    uint64_t n = 0;
    (void)pthread_mutex_lock(&a->lock);
    if (members.len > CHAIN_LINE_BYTES_MAX / 2 ||
        buf_len(&a->waiting) + members.len > AUDIT_BUFFER_BYTES) {
        a->lost++;
    } else {
        buf_put_slice(&line, members);
        if (a->lost > a->lost_told)
            buf_printf(&line, ",\"lost\":%llu", (unsigned long long)(a->lost - a->lost_told));
        a->lost_told = a->lost;
        put_line(a, buf_slice(&line));
        n = a->put;
    }
    (void)pthread_mutex_unlock(&a->lock);
    buf_done(&line);
    return n;
}

void audit_reopen(struct audit *a)
{
    (void)pthread_mutex_lock(&a->lock);
    if (a->reopen)
        a->again = true; /* the last time is under way, or has not worked yet */
    else
        turn_here(a);
    (void)pthread_mutex_unlock(&a->lock);
}

void audit_look(struct audit *a, struct audit_state *ret)
{
    (void)pthread_mutex_lock(&a->lock);
    *ret = (struct audit_state){
        .put = a->put, .durable = a->durable, .lost = a->lost, .error = a->error};
    memcpy(ret->hash, a->chain.hash, sizeof ret->hash);
    (void)pthread_mutex_unlock(&a->lock);
}

struct audit *audit_open(const char *path, void (*told)(void *ctx), void *ctx,
                         const char **ret_why)
{
    struct audit *a = mem_zalloc(sizeof *a);
    pthread_condattr_t attr;
    *a = (struct audit){.path = mem_dup(path, strlen(path)), .told = told, .ctx = ctx};
    chain_init(&a->chain);
    *ret_why = open_first(a);
    if (*ret_why) {
        free(a->path);
        free(a);
        return NULL;
    }
    a->put = a->durable = a->chain.n;
    BELAY_CHECK(pthread_condattr_init(&attr) == 0 &&
                pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&a->due, &attr) == 0 &&
                pthread_mutex_init(&a->lock, NULL) == 0);
    (void)pthread_condattr_destroy(&attr);
    put_opened(a);
    BELAY_CHECK(pthread_create(&a->thread, NULL, write_all, a) == 0);
    return a;
}

uint64_t audit_close(struct audit *a)
{
    if (!a)
        return 0;
    (void)pthread_mutex_lock(&a->lock);
    a->stop = true;
    (void)pthread_cond_signal(&a->due);
    (void)pthread_mutex_unlock(&a->lock);
    (void)pthread_join(a->thread, NULL);
    uint64_t unwritten = a->put - a->durable;
    (void)close(a->fd);
    (void)pthread_cond_destroy(&a->due);
    (void)pthread_mutex_destroy(&a->lock);
    buf_done(&a->waiting);
    free(a->path);
    free(a);
    return unwritten;
}
