/* fake_server.h - a RESP server of a test: answers every request by its first word, from a
 * table, on a free port of loopback, in a thread. "CUT" closes the connection behind the bytes
 * before it, "SILENT" never answers. */
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
#include <unistd.h>

enum { FAKE_RULES = 16, FAKE_SEEN = 64, FAKE_WORD = 64 };

struct fake_rule {
    const char *verb;  /* "ACQUIRE" or "SESSION OPEN" */
    const char *reply; /* bytes; NULL: SILENT */
    bool cut;          /* close behind them */
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

static inline void fake_talk(struct fake_server *s, int fd)
{
    struct arena a = {0};
    struct buf in = {0};
    bool open = true;
    while (open) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                              {.fd = s->stop_fds[0], .events = POLLIN}};
        poll(p, 2, -1);
        if (p[1].revents)
            break;
        buf_reserve(&in, 4096);
        ssize_t n = recv(fd, in.mem + in.end, 4096, 0);
        if (n <= 0)
            break;
        in.end += (size_t)n;
        struct request req;
        size_t used = 0;
        const char *why;
        while (open && resp_next(buf_slice(&in), &a, &req, &used, &why) == RESP_DONE) {
            struct fake_rule rule = fake_find(s, &req);
            if (rule.reply && rule.reply[0])
                send(fd, rule.reply, strlen(rule.reply), MSG_NOSIGNAL);
            open = !rule.cut;
            buf_consume(&in, used);
            arena_reset(&a);
        }
    }
    close(fd);
    buf_done(&in);
    arena_done(&a);
}

static inline void *fake_main(void *arg)
{
    struct fake_server *s = arg;
    for (;;) {
        struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN},
                              {.fd = s->stop_fds[0], .events = POLLIN}};
        poll(p, 2, -1);
        if (p[1].revents)
            return NULL;
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            continue;
        atomic_fetch_add(&s->connections, 1);
        fake_talk(s, fd); /* one at a time: a handle has one connection */
    }
}

static inline void fake_start(struct fake_server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
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
