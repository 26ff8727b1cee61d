/* proxy.h - a bad network between clients and one server: several doors on loopback that all
 * lead there. Every connection through it is delayed, split, cut or left in silence as its plan
 * says. A reset is passed on as a reset, a close as a close. One thread. */
#ifndef BELAY_TESTS_PROXY_H
#define BELAY_TESTS_PROXY_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PROXY_DOORS = 3, PROXY_PAIRS = 64, PROXY_BYTES = 65536, PROXY_SILENCE_MS = 1500 };
enum { PROXY_TO_SERVER, PROXY_TO_CLIENT }; /* directions */
enum proxy_cut { PROXY_CUT_NOT, PROXY_CUT_CLOSE, PROXY_CUT_RESET, PROXY_CUT_SILENCE };

struct proxy_plan {
    enum proxy_cut cut;
    int way;       /* the direction whose bytes are counted */
    size_t at;     /* it is cut behind so many of them */
    int delay_ms;  /* every piece takes up to so long */
    size_t pieces; /* of up to so many bytes; 0: as they come */
};

struct proxy_pipe {
    char bytes[PROXY_BYTES];
    size_t len, passed;
    int64_t due_ms;
    bool over; /* its sender has closed, and that was passed on */
};

struct proxy_pair {
    int fd[2]; /* the client's, the server's; -1: free */
    struct proxy_plan plan;
    struct proxy_pipe pipe[2];
    bool silent, closing;
    int64_t gone_ms; /* silent or closing: when it ends */
};

struct proxy {
    int doors[PROXY_DOORS], server_port, stop_fds[2];
    char addrs[PROXY_DOORS * 24]; /* all doors, as a list */
    pthread_t thread;
    pthread_mutex_t lock;
    struct proxy_plan next; /* of the next connection; those behind it have none */
    bool storm;             /* plans are drawn */
    uint64_t random;
    atomic_int cuts;
    struct proxy_pair *pairs;
};

static inline int64_t proxy_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline uint64_t proxy_draw(uint64_t *random, uint64_t below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % below;
}

static inline void proxy_reset(int *fd)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (*fd < 0)
        return;
    setsockopt(*fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(*fd);
    *fd = -1;
}

static inline void proxy_end(struct proxy_pair *p, bool reset)
{
    for (int i = 0; i < 2; i++) {
        if (reset)
            proxy_reset(&p->fd[i]);
        else if (p->fd[i] >= 0)
            close(p->fd[i]);
        p->fd[i] = -1;
    }
}

/* ---- plans ----------------------------------------------------------------------------- */

/* What a storm is made of: most connections live for a while, some are cut, some fall silent.
 */
static inline struct proxy_plan proxy_draw_plan(struct proxy *x)
{
    struct proxy_plan plan = {.way = (int)proxy_draw(&x->random, 2)};
    plan.at = proxy_draw(&x->random, proxy_draw(&x->random, 2) ? 300 : 2000);
    uint64_t kind = proxy_draw(&x->random, 10);
    plan.cut = kind < 3   ? PROXY_CUT_RESET
               : kind < 5 ? PROXY_CUT_CLOSE
               : kind < 6 ? PROXY_CUT_SILENCE
                          : PROXY_CUT_NOT;
    plan.delay_ms = (int)proxy_draw(&x->random, proxy_draw(&x->random, 4) ? 5 : 60);
    plan.pieces = proxy_draw(&x->random, 3) ? 0 : 1 + proxy_draw(&x->random, 40);
    return plan;
}

static inline void proxy_set(struct proxy *x, const struct proxy_plan *next, bool storm)
{
    pthread_mutex_lock(&x->lock);
    x->next = next ? *next : (struct proxy_plan){0};
    x->storm = storm;
    pthread_mutex_unlock(&x->lock);
}

static inline struct proxy_plan proxy_take_plan(struct proxy *x)
{
    pthread_mutex_lock(&x->lock);
    struct proxy_plan plan = x->storm ? proxy_draw_plan(x) : x->next;
    x->next = (struct proxy_plan){0};
    pthread_mutex_unlock(&x->lock);
    return plan;
}

/* ---- one connection -------------------------------------------------------------------- */

static inline void proxy_cut_now(struct proxy *x, struct proxy_pair *p)
{
    atomic_fetch_add(&x->cuts, 1);
    if (p->plan.cut == PROXY_CUT_RESET) {
        proxy_end(p, true);
    } else if (p->plan.cut == PROXY_CUT_SILENCE) {
        p->silent = true;
        p->gone_ms = proxy_now_ms() + PROXY_SILENCE_MS;
    } else { /* read away what comes: a close with unread bytes would be a reset */
        p->closing = true;
        p->gone_ms = proxy_now_ms() + 100;
        for (int i = 0; i < 2; i++)
            shutdown(p->fd[i], SHUT_WR);
    }
}

static inline void proxy_delay(struct proxy *x, struct proxy_pair *p, struct proxy_pipe *pipe)
{
    int max = p->plan.delay_ms;
    pipe->due_ms =
        proxy_now_ms() + (max ? (int64_t)proxy_draw(&x->random, (uint64_t)max + 1) : 0);
}

/* Passes on what is due in this direction. */
static inline void proxy_pass(struct proxy *x, struct proxy_pair *p, int way)
{
    struct proxy_pipe *pipe = &p->pipe[way];
    while (p->fd[0] >= 0 && !p->closing && pipe->len && proxy_now_ms() >= pipe->due_ms) {
        bool cuts = p->plan.cut && p->plan.way == way;
        size_t n = pipe->len, left = cuts ? p->plan.at - pipe->passed : SIZE_MAX;
        if (p->plan.pieces)
            n = 1 + proxy_draw(&x->random, p->plan.pieces);
        n = n > pipe->len ? pipe->len : n;
        n = n > left ? left : n;
        ssize_t sent = n ? send(p->fd[!way], pipe->bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (sent < 0)
            return;
        pipe->passed += (size_t)sent;
        pipe->len -= (size_t)sent;
        memmove(pipe->bytes, pipe->bytes + sent, pipe->len);
        proxy_delay(x, p, pipe);
        if (cuts && pipe->passed == p->plan.at) {
            proxy_cut_now(x, p);
            return;
        }
    }
}

static inline void proxy_read(struct proxy *x, struct proxy_pair *p, int way)
{
    struct proxy_pipe *pipe = &p->pipe[way];
    size_t room = p->closing ? sizeof pipe->bytes : sizeof pipe->bytes - pipe->len;
    char *to = p->closing ? pipe->bytes : pipe->bytes + pipe->len;
    ssize_t n = room ? recv(p->fd[way], to, room, MSG_DONTWAIT) : 1;
    if (n < 0) {
        proxy_end(p, true);
    } else if (n == 0) {
        pipe->over = true;
    } else if (!p->closing && room) {
        if (!pipe->len)
            proxy_delay(x, p, pipe);
        pipe->len += (size_t)n;
    }
}

/* A close is passed on behind the bytes before it. */
static inline void proxy_finish(struct proxy_pair *p)
{
    int64_t now = proxy_now_ms();
    if (p->fd[0] < 0)
        return;
    if (p->silent && now >= p->gone_ms)
        proxy_end(p, true);
    else if (p->closing && (now >= p->gone_ms || (p->pipe[0].over && p->pipe[1].over)))
        proxy_end(p, false);
    else if (!p->silent && !p->closing)
        for (int way = 0; way < 2; way++)
            if (p->pipe[way].over && !p->pipe[way].len) {
                p->closing = true; /* nobody here half-closes: the other side closes too */
                p->gone_ms = now + 100;
                shutdown(p->fd[!way], SHUT_WR);
            }
}

/* ---- the loop -------------------------------------------------------------------------- */

static inline int proxy_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        abort();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static inline void proxy_accept(struct proxy *x, int door)
{
    int one = 1, fd = accept(door, NULL, NULL);
    for (size_t i = 0; fd >= 0 && i < PROXY_PAIRS; i++) {
        struct proxy_pair *p = &x->pairs[i];
        if (p->fd[0] >= 0)
            continue;
        memset(p, 0, sizeof *p);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        p->plan = proxy_take_plan(x);
        p->fd[0] = fd;
        p->fd[1] = proxy_connect(x->server_port);
        if (p->plan.cut && p->plan.at == 0)
            proxy_cut_now(x, p);
        return;
    }
    proxy_reset(&fd); /* no room */
}

static inline int proxy_wait_ms(const struct proxy *x)
{
    int64_t due = INT64_MAX, now = proxy_now_ms();
    for (size_t i = 0; i < PROXY_PAIRS; i++) {
        const struct proxy_pair *p = &x->pairs[i];
        if (p->fd[0] < 0)
            continue;
        if ((p->silent || p->closing) && p->gone_ms < due)
            due = p->gone_ms;
        for (int way = 0; way < 2 && !p->silent && !p->closing; way++)
            if (p->pipe[way].len && p->pipe[way].due_ms < due)
                due = p->pipe[way].due_ms;
    }
    return due == INT64_MAX ? -1 : due > now ? (int)(due - now) : 0;
}

static inline void proxy_look(struct proxy *x, struct proxy_pair *p,
                              const struct pollfd *polled)
{
    for (int way = 0; way < 2; way++) {
        if (p->fd[0] < 0)
            return;
        if (polled[way].fd != p->fd[way])
            continue; /* it has closed already */
        if (p->silent && polled[way].revents & POLLERR)
            proxy_end(p, true);
        else if (!p->silent && polled[way].revents && !p->pipe[way].over)
            proxy_read(x, p, way);
    }
    for (int way = 0; way < 2 && p->fd[0] >= 0 && !p->silent; way++)
        proxy_pass(x, p, way);
    proxy_finish(p);
}

static inline void *proxy_main(void *arg)
{
    struct proxy *x = arg;
    for (;;) {
        struct pollfd polls[2 * PROXY_PAIRS + PROXY_DOORS + 1];
        for (size_t i = 0; i < PROXY_PAIRS; i++)
            for (int way = 0; way < 2; way++) {
                const struct proxy_pair *p = &x->pairs[i];
                bool reads = !p->silent && !p->pipe[way].over;
                polls[2 * i + (size_t)way] = (struct pollfd){
                    .fd = p->fd[way] >= 0 && (reads || p->silent) ? p->fd[way] : -1,
                    .events = reads ? POLLIN : 0};
            }
        struct pollfd *doors = polls + 2 * PROXY_PAIRS;
        for (size_t i = 0; i < PROXY_DOORS; i++)
            doors[i] = (struct pollfd){.fd = x->doors[i], .events = POLLIN};
        doors[PROXY_DOORS] = (struct pollfd){.fd = x->stop_fds[0], .events = POLLIN};
        poll(polls, 2 * PROXY_PAIRS + PROXY_DOORS + 1, proxy_wait_ms(x));
        for (size_t i = 0; i < PROXY_PAIRS; i++)
            if (x->pairs[i].fd[0] >= 0)
                proxy_look(x, &x->pairs[i], polls + 2 * i);
        for (size_t i = 0; i < PROXY_DOORS; i++)
            if (doors[i].revents)
                proxy_accept(x, x->doors[i]);
        if (doors[PROXY_DOORS].revents)
            return NULL;
    }
}

static inline void proxy_start(struct proxy *x, int server_port, uint64_t seed)
{
    memset(x, 0, sizeof *x);
    x->server_port = server_port;
    x->random = seed | 1;
    x->pairs = calloc(PROXY_PAIRS, sizeof *x->pairs);
    pthread_mutex_init(&x->lock, NULL);
    if (!x->pairs || pipe(x->stop_fds) != 0)
        abort();
    for (size_t i = 0; i < PROXY_PAIRS; i++)
        x->pairs[i].fd[0] = x->pairs[i].fd[1] = -1;
    for (size_t i = 0; i < PROXY_DOORS; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof a;
        x->doors[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(x->doors[i], (struct sockaddr *)&a, sizeof a) != 0 ||
            listen(x->doors[i], 64) != 0 ||
            getsockname(x->doors[i], (struct sockaddr *)&a, &len) != 0)
            abort();
        snprintf(x->addrs + strlen(x->addrs), 24, "%s127.0.0.1:%d", i ? "," : "",
                 ntohs(a.sin_port));
    }
    if (pthread_create(&x->thread, NULL, proxy_main, x) != 0)
        abort();
}

static inline void proxy_stop(struct proxy *x)
{
    close(x->stop_fds[1]);
    pthread_join(x->thread, NULL);
    for (size_t i = 0; i < PROXY_PAIRS; i++)
        proxy_end(&x->pairs[i], true);
    for (size_t i = 0; i < PROXY_DOORS; i++)
        close(x->doors[i]);
    close(x->stop_fds[0]);
    free(x->pairs);
    pthread_mutex_destroy(&x->lock);
}
#endif
