/* child.c - the processes that a worker starts, and their certain end. */
#include "queue/child.h"

#include "base/check.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,
    MINDER_STACK = 65536,
    MINDER_WAITS = 2000, /* milliseconds for what cannot be killed: it hangs in the system */
};

struct nursery {
    uv_loop_t *loop;
    uv_signal_t *sigchld;
    struct list children;
    volatile int32_t *groups; /* of CHILD_MAX children, 0: none; shared with the minder */
    pid_t worker, minder;
};

struct child {
    struct list link; /* in nursery.children until it is waited for */
    struct nursery *nursery;
    struct child_events events;
    void *arg;
    pid_t pid;
    volatile int32_t *place; /* in nursery.groups */
    int status;
    bool exited;
    uv_pipe_t in, out, err;
    uv_timer_t linger;
    unsigned open_pipes;   /* of out and err */
    unsigned open_handles; /* the child is freed with the last of them */
    char tail[CHILD_ERROR_TAIL];
    size_t tail_len;
    char read_buf[READ_BYTES];
};

/* ---- the minder ----------------------------------------------------------------------------
 */

/* A process that nobody has waited for yet does nothing any more. No memory is allocated here:
 * this is a copy of a process that may have had threads. */
static bool is_alive(int32_t pid)
{
    char text[512];
    (void)snprintf(text, sizeof text, "/proc/%d/stat", pid);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && !strchr("ZX", name_end[2]);
}

static void end_groups(const volatile int32_t *groups)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (size_t i = 0; i < CHILD_MAX; i++)
        if (groups[i] > 0)
            (void)kill(-groups[i], SIGKILL);
    for (size_t i = 0, waits = 0; i < CHILD_MAX; i++)
        for (; groups[i] > 0 && is_alive(groups[i]) && waits < MINDER_WAITS; waits++)
            (void)nanosleep(&ms, NULL);
}

/* Sleeps until the worker is dead, ends what it had started, and only then itself: with the
 * last process that has them the worker's files are closed, its connections among them. */
static int minder_main(void *arg)
{
    const struct nursery *n = arg;
    sigset_t all;
    int got;
    (void)setsid();
    (void)prctl(PR_SET_NAME, "belay-minder");
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGUSR1);
    while (getppid() == n->worker)
        (void)sigwait(&all, &got);
    end_groups(n->groups);
    _exit(0);
}

static bool minder_start(struct nursery *n)
{
    static _Alignas(16) char stack[MINDER_STACK];
    size_t bytes = CHILD_MAX * sizeof *n->groups;
    void *groups = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (groups == MAP_FAILED)
        return false;
    n->groups = groups;
    n->worker = getpid();
    n->minder = clone(minder_main, stack + sizeof stack, CLONE_FILES | SIGCHLD, n);
    if (n->minder > 0)
        return true;
    (void)munmap(groups, bytes);
    return false;
}

static void minder_stop(struct nursery *n)
{
    (void)kill(n->minder, SIGKILL);
    (void)waitpid(n->minder, NULL, 0);
    (void)munmap((void *)(uintptr_t)n->groups, CHILD_MAX * sizeof *n->groups);
}

static volatile int32_t *free_place(struct nursery *n)
{
    for (size_t i = 0; i < CHILD_MAX; i++)
        if (n->groups[i] == 0)
            return &n->groups[i];
    errno = EAGAIN;
    return NULL;
}

/* ---- the end of a child --------------------------------------------------------------------
 */

static void on_child_closed(uv_handle_t *handle)
{
    struct child *c = handle->data;
    if (--c->open_handles == 0)
        free(c);
}

static void close_once(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_child_closed);
}

/* The leader has exited and is not waited for yet, so that its number still means its group:
 * what it left behind there ends with it. */
static void finish(struct child *c)
{
    if (uv_is_closing((uv_handle_t *)&c->linger))
        return;
    (void)kill(-c->pid, SIGKILL);
    (void)waitpid(c->pid, &c->status, 0);
    list_remove(&c->link);
    *c->place = 0;
    close_once((uv_handle_t *)&c->in);
    close_once((uv_handle_t *)&c->out);
    close_once((uv_handle_t *)&c->err);
    close_once((uv_handle_t *)&c->linger);
    c->events.ended(c->arg, c->status, slice_of(c->tail, c->tail_len));
}

static void on_linger(uv_timer_t *timer)
{
    finish(timer->data); /* something it left behind keeps its pipes open */
}

static void on_sigchld(uv_signal_t *handle, int signum)
{
    (void)signum;
    struct nursery *n = handle->data;
    list_each_safe(it, &n->children)
    {
        struct child *c = list_item(it, struct child, link);
        siginfo_t info = {0};
        if (c->exited || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != c->pid)
            continue;
        c->exited = true;
        if (c->open_pipes == 0)
            finish(c);
        else
            (void)uv_timer_start(&c->linger, on_linger, CHILD_LINGER_MS, 0);
    }
}

static void pipe_ended(struct child *c, uv_stream_t *stream)
{
    close_once((uv_handle_t *)stream);
    if (--c->open_pipes == 0 && c->exited)
        finish(c);
}

/* ---- pipes ---------------------------------------------------------------------------------
 */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct child *c = handle->data;
    *buf = uv_buf_init(c->read_buf, sizeof c->read_buf);
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct child *c = stream->data;
    if (n > 0)
        c->events.output(c->arg, slice_of(buf->base, (size_t)n));
    else if (n < 0)
        pipe_ended(c, stream);
}

/* The tail is kept for the request, and everything goes on to our own stderr for the operator.
 */
static void on_error_output(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct child *c = stream->data;
    if (got < 0) {
        pipe_ended(c, stream);
        return;
    }
    size_t n = (size_t)got;
    const char *data = buf->base;
    log_raw(data, n);
    if (n > sizeof c->tail) {
        data += n - sizeof c->tail;
        n = sizeof c->tail;
    }
    if (c->tail_len + n > sizeof c->tail) {
        size_t drop = c->tail_len + n - sizeof c->tail;
        memmove(c->tail, c->tail + drop, c->tail_len - drop);
        c->tail_len -= drop;
    }
    memcpy(c->tail + c->tail_len, data, n);
    c->tail_len += n;
}

struct write_job {
    uv_write_t req;
    char bytes[];
};

static void on_written(uv_write_t *req, int status)
{
    (void)status; /* a process that does not read its input will say more by how it ends */
    free(req);
}

void child_write(struct child *c, struct slice bytes)
{
    if (uv_is_closing((uv_handle_t *)&c->in))
        return;
    uv_buf_t now = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);
    int sent = uv_try_write((uv_stream_t *)&c->in, &now, 1);
    size_t done = sent > 0 ? (size_t)sent : 0;
    if (done == bytes.len ||
        uv_stream_get_write_queue_size((uv_stream_t *)&c->in) > CHILD_INPUT_MAX)
        return;
    struct write_job *job = mem_alloc(sizeof *job + bytes.len - done);
    memcpy(job->bytes, bytes.data + done, bytes.len - done);
    uv_buf_t rest = uv_buf_init(job->bytes, (unsigned)(bytes.len - done));
    if (uv_write(&job->req, (uv_stream_t *)&c->in, &rest, 1, on_written) != 0)
        free(job);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    (void)status;
    struct child *c = req->handle->data;
    close_once((uv_handle_t *)&c->in);
    free(req);
}

void child_close_input(struct child *c)
{
    if (uv_is_closing((uv_handle_t *)&c->in))
        return;
    uv_shutdown_t *req = mem_alloc(sizeof *req);
    if (uv_shutdown(req, (uv_stream_t *)&c->in, on_shutdown) != 0) {
        close_once((uv_handle_t *)&c->in);
        free(req);
    }
}

/* ---- start ---------------------------------------------------------------------------------
 */

static _Noreturn void child_main(const int fds[3], int report, struct nursery *n,
                                 volatile int32_t *place, char *const *argv, char *const *env)
{
    sigset_t none;
    *place = (int32_t)getpid(); /* before anything is begun: the minder must know */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == n->worker) { /* else it died before the line above */
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        for (int s = 1; s < NSIG; s++)
            if (s != SIGKILL && s != SIGSTOP)
                (void)signal(s, SIG_DFL);
        for (int i = 0; i < 3; i++)
            (void)dup2(fds[i], i);
        (void)execvpe(argv[0], argv, env);
    }
    int code = errno;
    ssize_t ignored = write(report, &code, sizeof code);
    (void)ignored;
    _exit(127);
}

/* Pipes for stdin, stdout, stderr and the news of a failed exec; fds[i][0] is read. */
static bool make_pipes(int fds[4][2])
{
    for (int i = 0; i < 4; i++)
        fds[i][0] = fds[i][1] = -1;
    for (int i = 0; i < 4; i++)
        if (pipe2(fds[i], O_CLOEXEC) != 0)
            return false;
    return true;
}

static void close_pipes(int fds[4][2])
{
    int keep = errno;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            if (fds[i][j] >= 0)
                (void)close(fds[i][j]);
    errno = keep;
}

static pid_t start(struct nursery *n, volatile int32_t *place, int fds[4][2], char *const *argv,
                   char *const *env)
{
    pid_t pid = fork();
    if (pid == 0) {
        const int std[3] = {fds[0][0], fds[1][1], fds[2][1]};
        child_main(std, fds[3][1], n, place, argv, env);
    }
    if (pid < 0)
        return -1;
    *place = (int32_t)pid;
    (void)setpgid(pid, pid); /* both sides do it, so that it is done in either order */
    (void)close(fds[3][1]);
    fds[3][1] = -1;
    int code = 0;
    ssize_t got;
    do
        got = read(fds[3][0], &code, sizeof code); /* ends with the exec */
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return pid;
    (void)waitpid(pid, NULL, 0);
    *place = 0;
    errno = code;
    return -1;
}

static void adopt(struct child *c, uv_pipe_t *pipe, int *fd)
{
    (void)uv_pipe_init(c->nursery->loop, pipe, 0);
    pipe->data = c;
    int rc = uv_pipe_open(pipe, *fd);
    BELAY_CHECK(rc == 0);
    *fd = -1;
}

struct child *child_open(struct nursery *n, char *const *argv, char *const *env,
                         const struct child_events *events, void *arg)
{
    int fds[4][2];
    volatile int32_t *place = free_place(n);
    pid_t pid = make_pipes(fds) && place ? start(n, place, fds, argv, env) : -1;
    if (pid < 0) {
        close_pipes(fds);
        return NULL;
    }
    struct child *c = mem_alloc(sizeof *c);
    c->nursery = n;
    c->events = *events;
    c->arg = arg;
    c->pid = pid;
    c->place = place;
    c->exited = false;
    c->tail_len = 0;
    adopt(c, &c->in, &fds[0][1]);
    adopt(c, &c->out, &fds[1][0]);
    adopt(c, &c->err, &fds[2][0]);
    close_pipes(fds);
    (void)uv_timer_init(n->loop, &c->linger);
    c->linger.data = c;
    c->open_pipes = 2;
    c->open_handles = 4;
    list_push_back(&n->children, &c->link);
    (void)uv_read_start((uv_stream_t *)&c->out, on_alloc, on_output);
    (void)uv_read_start((uv_stream_t *)&c->err, on_alloc, on_error_output);
    return c;
}

void child_kill(struct child *c)
{
    (void)kill(-c->pid,
               SIGKILL); /* also when its leader has exited: it is not waited for yet */
}

struct nursery *nursery_open(uv_loop_t *loop)
{
    struct nursery *n = mem_zalloc(sizeof *n);
    n->loop = loop;
    list_init(&n->children);
    if (!minder_start(n)) {
        free(n);
        return NULL;
    }
    n->sigchld = mem_zalloc(sizeof *n->sigchld);
    (void)uv_signal_init(loop, n->sigchld);
    n->sigchld->data = n;
    (void)uv_signal_start(n->sigchld, on_sigchld, SIGCHLD);
    uv_unref((uv_handle_t *)n->sigchld);
    return n;
}

static void on_signal_closed(uv_handle_t *handle)
{
    free(handle);
}

void nursery_close(struct nursery *n)
{
    if (!n)
        return;
    BELAY_CHECK(list_empty(&n->children)); /* their parent waits for them */
    uv_close((uv_handle_t *)n->sigchld, on_signal_closed);
    minder_stop(n);
    free(n);
}
