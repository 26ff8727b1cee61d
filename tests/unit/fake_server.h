/* fake_server.h - a RESP server of a test: answers every request by its first words, from a
 * table, on a free port of loopback, in a thread. Answers of a connection keep their order: a
 * rule that takes its time holds back what comes behind it. */
#ifndef BELAY_TESTS_FAKE_SERVER_H
#define BELAY_TESTS_FAKE_SERVER_H

#include "base/arena.h"
#include "base/buf.h"
#include "proto/resp.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FAKE_RULES = 16, FAKE_SEEN = 64, FAKE_WORD = 64, FAKE_CONNS = 8 };

struct fake_rule {
    const char *verb;  /* "ACQUIRE" or "SESSION OPEN" */
    const char *reply; /* bytes; NULL: SILENT */
    bool cut;          /* close behind them */
    int after_ms;      /* it takes so long */
};

struct fake_conn {
    int fd; /* -1: none */
    struct buf in;
    struct fake_rule late; /* verb NULL: nothing is held back */
    int64_t late_ms;
};

struct fake_server {
    int fd, stop_fds[2];
    char addr[32];
    pthread_t thread;
    pthread_mutex_t lock;
    struct fake_rule rules[FAKE_RULES];
    char seen[FAKE_SEEN][FAKE_WORD * 4]; /* whole requests, words joined by blanks */
    size_t n_seen;
    atomic_int connections;
    struct fake_conn conns[FAKE_CONNS];
    int last_fd; /* the newest connection */
};

static inline void fake_set(struct fake_server *s, const struct fake_rule *rules)
{
    pthread_mutex_lock(&s->lock);
    memset(s->rules, 0, sizeof s->rules);
    for (size_t i = 0; rules[i].verb; i++)
        s->rules[i] = rules[i];
    s->n_seen = 0;
    pthread_mutex_unlock(&s->lock);
}

/* How many requests began with these words. */
static inline size_t fake_count(struct fake_server *s, const char *prefix)
{
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_seen && i < FAKE_SEEN; i++)
        n += strncmp(s->seen[i], prefix, strlen(prefix)) == 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* The first request that began with these words, into `space` (FAKE_WORD * 4); "": none did. */
static inline const char *fake_seen(struct fake_server *s, const char *prefix, char *space)
{
    space[0] = '\0';
    pthread_mutex_lock(&s->lock);
    for (size_t i = s->n_seen; i-- > 0;)
        if (strncmp(s->seen[i], prefix, strlen(prefix)) == 0)
            memcpy(space, s->seen[i], sizeof s->seen[i]);
    pthread_mutex_unlock(&s->lock);
    return space;
}

static inline struct fake_rule fake_find(struct fake_server *s, const struct request *req)
{
    char line[FAKE_WORD * 4];
    int n = snprintf(line, sizeof line, "%.*s", (int)req->verb.len, req->verb.data);
    for (size_t i = 0; i < req->n_words && n < (int)sizeof line; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %.*s", (int)req->words[i].len,
                      req->words[i].data);
    pthread_mutex_lock(&s->lock);
    struct fake_rule found = {.verb = "", .reply = "+OK\r\n"}; /* HELLO, USE... */
    if (s->n_seen < FAKE_SEEN)
        memcpy(s->seen[s->n_seen++], line, sizeof line);
    for (size_t i = 0; i < FAKE_RULES && s->rules[i].verb; i++) {
        if (strncmp(line, s->rules[i].verb, strlen(s->rules[i].verb)) == 0) {
            found = s->rules[i];
            break;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static inline int64_t fake_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Bytes that nobody asked for, on the newest connection. */
static inline void fake_send(struct fake_server *s, const char *bytes)
{
    pthread_mutex_lock(&s->lock);
    if (s->last_fd >= 0)
        send(s->last_fd, bytes, strlen(bytes), MSG_NOSIGNAL);
    pthread_mutex_unlock(&s->lock);
}

static inline void fake_hang_up(struct fake_server *s, struct fake_conn *c)
{
    pthread_mutex_lock(&s->lock);
    if (s->last_fd == c->fd)
        s->last_fd = -1;
    close(c->fd);
    pthread_mutex_unlock(&s->lock);
    c->fd = -1;
    buf_done(&c->in);
    c->late.verb = NULL;
}

/* False: it hung up. */
static inline bool fake_say(struct fake_server *s, struct fake_conn *c, struct fake_rule rule)
{
    if (rule.reply && rule.reply[0])
        send(c->fd, rule.reply, strlen(rule.reply), MSG_NOSIGNAL);
    if (rule.cut)
        fake_hang_up(s, c);
    return !rule.cut;
}

/* Answers what has come, up to what takes its time. */
static inline void fake_answer(struct fake_server *s, struct fake_conn *c)
{
    struct arena a = {0};
    struct request req;
    size_t used = 0;
    const char *why;
    while (c->fd >= 0 && !c->late.verb &&
           resp_next(buf_slice(&c->in), &a, &req, &used, &why) == RESP_DONE) {
        struct fake_rule rule = fake_find(s, &req);
        buf_consume(&c->in, used);
        arena_reset(&a);
        if (rule.after_ms) {
            c->late = rule;
            c->late_ms = fake_now_ms() + rule.after_ms;
        } else if (!fake_say(s, c, rule)) {
            break;
        }
    }
    arena_done(&a);
}

static inline void fake_read(struct fake_server *s, struct fake_conn *c)
{
    buf_reserve(&c->in, 4096);
    ssize_t n = recv(c->fd, c->in.mem + c->in.end, 4096, 0);
    if (n <= 0) {
        fake_hang_up(s, c);
        return;
    }
    c->in.end += (size_t)n;
    fake_answer(s, c);
}

static inline void fake_accept(struct fake_server *s)
{
    int fd = accept(s->fd, NULL, NULL);
    if (fd < 0)
        return;
    for (size_t i = 0; i < FAKE_CONNS; i++) {
        if (s->conns[i].fd >= 0)
            continue;
        pthread_mutex_lock(&s->lock);
        s->conns[i].fd = s->last_fd = fd;
        pthread_mutex_unlock(&s->lock);
        atomic_fetch_add(&s->connections, 1);
        return;
    }
    abort();
}

static inline int fake_timeout(const struct fake_server *s)
{
    int64_t due = INT64_MAX, now = fake_now_ms();
    for (size_t i = 0; i < FAKE_CONNS; i++)
        if (s->conns[i].late.verb && s->conns[i].late_ms < due)
            due = s->conns[i].late_ms;
    return due == INT64_MAX ? -1 : due > now ? (int)(due - now) : 0;
}

static inline void *fake_main(void *arg)
{
    struct fake_server *s = arg;
    for (;;) {
        struct pollfd p[FAKE_CONNS + 2];
        for (size_t i = 0; i < FAKE_CONNS; i++)
            p[i] = (struct pollfd){.fd = s->conns[i].fd, .events = POLLIN};
        p[FAKE_CONNS] = (struct pollfd){.fd = s->fd, .events = POLLIN};
        p[FAKE_CONNS + 1] = (struct pollfd){.fd = s->stop_fds[0], .events = POLLIN};
        poll(p, FAKE_CONNS + 2, fake_timeout(s));
        for (size_t i = 0; i < FAKE_CONNS; i++) {
            struct fake_conn *c = &s->conns[i];
            if (c->late.verb && fake_now_ms() >= c->late_ms) {
                struct fake_rule rule = c->late;
                c->late.verb = NULL;
                if (fake_say(s, c, rule))
                    fake_answer(s, c);
            }
            if (c->fd >= 0 && p[i].fd == c->fd && p[i].revents)
                fake_read(s, c);
        }
        if (p[FAKE_CONNS].revents)
            fake_accept(s);
        if (p[FAKE_CONNS + 1].revents)
            break;
    }
    for (size_t i = 0; i < FAKE_CONNS; i++)
        if (s->conns[i].fd >= 0)
            fake_hang_up(s, &s->conns[i]);
    return NULL;
}

static inline void fake_start(struct fake_server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->last_fd = -1;
    for (size_t i = 0; i < FAKE_CONNS; i++)
        s->conns[i].fd = -1;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int ok = s->fd >= 0 && bind(s->fd, (struct sockaddr *)&a, sizeof a) == 0 &&
             listen(s->fd, 16) == 0 && getsockname(s->fd, (struct sockaddr *)&a, &len) == 0 &&
             pipe(s->stop_fds) == 0;
    if (!ok)
        abort();
    snprintf(s->addr, sizeof s->addr, "127.0.0.1:%d", ntohs(a.sin_port));
    if (pthread_create(&s->thread, NULL, fake_main, s) != 0)
        abort();
}

static inline void fake_stop(struct fake_server *s)
{
    close(s->stop_fds[1]);
    pthread_join(s->thread, NULL);
    close(s->stop_fds[0]);
    close(s->fd);
    pthread_mutex_destroy(&s->lock);
}
#endif
