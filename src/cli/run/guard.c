/* guard.c - the process between `belay run` and its command: ends the command in time. */
#include "cli/run/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127, LOOK_MS = 20 };

/* RUNNING --deadline or LOST--> ON_LOST --it ended, or half the time--> TERMED --kill_at-->
 * KILLED any of them --the command exits--> ENDING: what it left behind in its group is ended,
 * too */
enum guard_state { GUARD_RUNNING, GUARD_ON_LOST, GUARD_TERMED, GUARD_KILLED };

struct guard {
    const struct guard_config *config;
    enum guard_state state;
    int fd, timer_fd, signal_fd, socket_fd;
    pid_t group, hook; /* the command; --on-lost; 0: none */
    bool exited;
    int status;
    int64_t kill_at_ms, term_at_ms;
};

int64_t guard_now_ms(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- messages -------------------------------------------------------------------------- */

static bool send_message(int fd, const struct guard_message *m, int pass_fd)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m};
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        h.msg_control = space;
        h.msg_controllen = sizeof space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass_fd, sizeof pass_fd);
    }
    return sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *m;
}

bool guard_send(int fd, enum guard_word word, int64_t value)
{
    struct guard_message m;
    memset(&m, 0, sizeof m); /* padding travels, too */
    m.word = word;
    m.value = value;
    return send_message(fd, &m, -1);
}

bool guard_send_socket(int fd, int socket_fd)
{
    struct guard_message m;
    memset(&m, 0, sizeof m);
    m.word = GUARD_SOCKET;
    return send_message(fd, &m, socket_fd);
}

int guard_receive(int fd, struct guard_message *ret, int *ret_fd)
{
    struct iovec iov = {.iov_base = ret, .iov_len = sizeof *ret};
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr h = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == ECONNRESET) /* it has gone without reading all; its words are here */
        n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int passed = -1;
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&h) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&passed, CMSG_DATA(c), sizeof passed);
    if (ret_fd)
        *ret_fd = passed;
    else if (passed >= 0)
        close(passed);
    if (n == (ssize_t)sizeof *ret)
        return 1;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* ---- the command ----------------------------------------------------------------------- */

void guard_take_terminal(int tty_fd)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGTTOU, &ignore, &old);
    if (tcsetpgrp(tty_fd, getpgrp()) != 0)
        errno = 0; /* the terminal is gone: then reading it fails, as anywhere */
    sigaction(SIGTTOU, &old, NULL);
}

/* As the runner found them when it was started. */
static void restore_signals(const struct guard *g)
{
    sigaction(SIGPIPE, &g->config->old_pipe, NULL);
    sigprocmask(SIG_SETMASK, &g->config->old_mask, NULL);
}

_Noreturn static void become_command(const struct guard *g, pid_t guard, int report_fd)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should even the guard be killed */
    if (getppid() != guard)
        _exit(EXIT_CANNOT_RUN); /* it was, before we could ask for the signal */
    if (g->config->tty_fd >= 0)
        guard_take_terminal(g->config->tty_fd);
    restore_signals(g);
    int err = GUARD_TOO_LATE; /* we, or the guard, were stopped meanwhile */
    if (guard_now_ms() < g->term_at_ms) {
        execvp(g->config->command[0], g->config->command);
        err = errno;
    }
    if (write(report_fd, &err, sizeof err) != (ssize_t)sizeof err)
        _exit(EXIT_CANNOT_RUN);
    _exit(err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

/* Forks the command; errno of a failed exec comes through a pipe that a good exec closes. */
static int start_command(struct guard *g)
{
    int pipe_fds[2], err = 0;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return errno;
    pid_t guard = getpid();
    g->group = fork();
    if (g->group == 0)
        become_command(g, guard, pipe_fds[1]);
    int fork_err = errno;
    close(pipe_fds[1]);
    if (g->group > 0) {
        setpgid(g->group, g->group); /* both sides do it: the first one counts */
        if (read(pipe_fds[0], &err, sizeof err) != (ssize_t)sizeof err)
            err = 0;
    }
    close(pipe_fds[0]);
    return g->group < 0 ? fork_err : err;
}

static void start_hook(struct guard *g)
{
    g->hook = fork();
    if (g->hook != 0)
        return;
    setpgid(0, 0);
    restore_signals(g);
    execl("/bin/sh", "sh", "-c", g->config->on_lost, (char *)NULL);
    _exit(EXIT_NOT_FOUND);
}

/* ---- the deadline ---------------------------------------------------------------------- */

static void set_timer(const struct guard *g)
{
    int64_t at =
        g->state == GUARD_RUNNING || g->state == GUARD_ON_LOST ? g->term_at_ms : g->kill_at_ms;
    int64_t soon = guard_now_ms() + LOOK_MS;
    if (g->state == GUARD_KILLED || (g->exited && soon < at))
        at = soon; /* again and again, until none is left */
    if (at < 1)
        at = 1;
    struct itimerspec t = {.it_value = {.tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000}};
    if (timerfd_settime(g->timer_fd, TFD_TIMER_ABSTIME, &t, NULL) != 0)
        _exit(EXIT_CANNOT_RUN); /* without a clock we cannot keep the promise: our end is theirs
                                 */
}

static void move_deadline(struct guard *g, int64_t dead_by_ms)
{
    if (g->state != GUARD_RUNNING)
        return; /* what was begun is ended */
    g->kill_at_ms = dead_by_ms;
    g->term_at_ms = dead_by_ms - g->config->kill_after_ms;
}

static void term(struct guard *g)
{
    g->state = GUARD_TERMED;
    kill(-g->group, SIGTERM);
    kill(-g->group, SIGCONT); /* a stopped process cannot obey */
}

/* The lock is lost or about to be: --on-lost, TERM, KILL, each in its time. */
static void begin_stop(struct guard *g)
{
    if (g->state != GUARD_RUNNING)
        return;
    if (!g->config->on_lost) {
        term(g);
        return;
    }
    g->state = GUARD_ON_LOST;
    g->term_at_ms = guard_now_ms() + (g->kill_at_ms - guard_now_ms()) / 2;
    start_hook(g);
}

static void kill_group(struct guard *g)
{
    g->state = GUARD_KILLED;
    kill(-g->group, SIGKILL);
    if (g->hook > 0)
        kill(-g->hook, SIGKILL);
}

static void on_time(struct guard *g)
{
    uint64_t count;
    int64_t now = guard_now_ms();
    if (read(g->timer_fd, &count, sizeof count) < 0)
        return;
    if (now >= g->kill_at_ms || g->state == GUARD_KILLED) {
        if (g->state == GUARD_RUNNING)
            guard_send(g->fd, GUARD_OVERDUE, 0);
        kill_group(g);
    } else if (g->state == GUARD_RUNNING && now >= g->term_at_ms) {
        guard_send(g->fd, GUARD_OVERDUE, 0);
        begin_stop(g);
    } else if (g->state == GUARD_ON_LOST && now >= g->term_at_ms) {
        term(g);
    }
}

/* ---- children -------------------------------------------------------------------------- */

/* The command has ended by itself; what it left in its group may not outlive the lock either.
 */
static void end_rest(struct guard *g)
{
    if (g->state != GUARD_RUNNING)
        return;
    int64_t by = guard_now_ms() + g->config->kill_after_ms;
    g->kill_at_ms = by < g->kill_at_ms ? by : g->kill_at_ms;
    term(g);
}

static void on_children(struct guard *g)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;
    while (read(g->signal_fd, &info, sizeof info) > 0)
        continue;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (WIFSTOPPED(status)) {
            if (pid == g->group && WSTOPSIG(status) == SIGTSTP)
                kill(-g->group, SIGCONT); /* Ctrl-Z: nobody is there to bring it back */
        } else if (pid == g->group) {
            g->exited = true;
            g->status = status;
            if (g->state == GUARD_RUNNING && guard_now_ms() >= g->kill_at_ms)
                guard_send(g->fd, GUARD_OVERDUE, 0); /* all of us were stopped meanwhile */
            end_rest(g);
        } else if (pid == g->hook) {
            g->hook = 0;
            if (g->state == GUARD_ON_LOST)
                term(g);
        }
    }
}

/* "123 (name) S 1 99 ...": is that a process of the group, and alive? */
static bool lives_in(const char *pid, pid_t group)
{
    char path[64], stat[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(stat, 1, sizeof stat - 1, f) : 0;
    if (f && fclose(f) != 0)
        n = 0;
    stat[n] = '\0';
    const char *behind = strrchr(stat, ')'); /* a name may have brackets and spaces */
    if (!behind || strlen(behind) < sizeof ") S 1 1" - 1)
        return false; /* it is gone */
    char state = behind[2];
    char *end;
    long ppid = strtol(behind + 3, &end, 10);
    long pgrp = strtol(end, NULL, 10);
    bool dead = state == 'X' || (state == 'Z' && ppid != getpid()); /* ours is reaped next */
    return pgrp == group && !dead;
}

/* A zombie counts as a member of its group until its parent looks, which may be never. */
static bool only_zombies(pid_t group)
{
    DIR *proc = opendir("/proc");
    bool only = proc != NULL;
    for (const struct dirent *d; only && (d = readdir(proc)) != NULL;)
        only = !(d->d_name[0] >= '1' && d->d_name[0] <= '9' && lives_in(d->d_name, group));
    if (proc)
        closedir(proc);
    return only;
}

static bool group_is_dead(const struct guard *g)
{
    if (!g->exited)
        return false;
    return (kill(-g->group, 0) != 0 && errno == ESRCH) || only_zombies(g->group);
}

/* ---- the runner ------------------------------------------------------------------------ */

static bool ends_a_process(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGQUIT || sig == SIGHUP;
}

static void on_runner(struct guard *g)
{
    struct guard_message m;
    int passed = -1, got;
    while ((got = guard_receive(g->fd, &m, &passed)) == 1) {
        if (m.word == GUARD_DEADLINE)
            move_deadline(g, m.value);
        if (m.word == GUARD_SIGNAL) {
            kill(-g->group, (int)m.value);
            if (ends_a_process((int)m.value))
                kill(-g->group, SIGCONT); /* a stopped process cannot obey */
        }
        if (m.word == GUARD_LOST && g->state == GUARD_RUNNING) {
            int64_t by = guard_now_ms() + g->config->kill_after_ms;
            g->kill_at_ms = by < g->kill_at_ms ? by : g->kill_at_ms;
            begin_stop(g);
        }
        if (passed >= 0) {
            if (g->socket_fd >= 0)
                close(g->socket_fd);
            g->socket_fd = passed;
        }
    }
    if (got < 0) { /* dead: the server must not hear of it before the group is */
        g->kill_at_ms = guard_now_ms();
        kill_group(g);
    }
}

static bool prepare(struct guard *g)
{
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    for (size_t i = 0; g->config->env[i]; i++)
        if (putenv(g->config->env[i]) != 0)
            return false;
    setpgid(0, 0); /* a signal to the runner's group is not meant for the guard */
    g->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    g->signal_fd = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
    /* Orphans of the group become ours, so that we see when the last one is gone. */
    return g->timer_fd >= 0 && g->signal_fd >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

_Noreturn static void guard_main(struct guard *g)
{
    int err = prepare(g) ? start_command(g) : errno;
    if (err) {
        guard_send(g->fd, GUARD_UNSTARTED, err);
        _exit(EXIT_CANNOT_RUN);
    }
    guard_send(g->fd, GUARD_STARTED, g->group);
    bool runner_lives = true;
    while (!group_is_dead(g)) {
        struct pollfd p[] = {{.fd = g->timer_fd, .events = POLLIN},
                             {.fd = g->signal_fd, .events = POLLIN},
                             {.fd = runner_lives ? g->fd : -1, .events = POLLIN}};
        set_timer(g);
        if (poll(p, 3, -1) < 0)
            continue;
        if (p[2].revents) {
            on_runner(g);
            runner_lives = !(p[2].revents & (POLLHUP | POLLERR));
        }
        if (p[1].revents)
            on_children(g);
        if (p[0].revents)
            on_time(g);
    }
    /* What the runner did not read any more would make our end a reset, which frees nothing. */
    if (!runner_lives && g->socket_fd >= 0 && shutdown(g->socket_fd, SHUT_WR) != 0)
        errno = 0; /* the connection is over already */
    guard_send(g->fd, GUARD_EXITED, g->status);
    _exit(0);
}

int guard_start(const struct guard_config *config, pid_t *ret_guard)
{
    int fds[2];
    sigset_t all, before;
    struct guard g = {.config = config,
                      .socket_fd = config->socket_fd,
                      .kill_at_ms = config->deadline_ms,
                      .term_at_ms = config->deadline_ms - config->kill_after_ms};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        return -1;
    g.fd = fds[1];
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        sigprocmask(SIG_SETMASK, &all, NULL);
        guard_main(&g);
    }
    int err = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        errno = err;
        return -1;
    }
    *ret_guard = pid;
    return fds[0];
}
