/* connection.c - the socket of a handle, one step at a time: connect, greet, read, write.
 *
 * connection_step() does what can be done now and never waits; who wants to wait polls the
 * socket until connection_due_ms(). A failure closes the socket and moves on to the next
 * address, at once. When all of them have failed once, the next round begins after a pause that
 * grows from CLIENT_BACKOFF_MIN_MS to CLIENT_BACKOFF_MAX_MS. A connection counts as good when
 * it has given an answer, not when it has come about. A call that was never sent counts for
 * itself: it fails when it has seen every address fail, wherever in a round it came. */
#include "client/client.h"
#include "proto/resp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { GREET_HELLO, GREET_AUTH, GREET_USE, GREET_ATTACH, GREET_WATCH, GREET_STEPS };

int64_t client_now_ms(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A socket with unread bytes is reset when it is closed. */
static void read_away(int fd)
{
    enum { ROUNDS_MAX = 256 };
    char away[4096];
    for (int i = 0; i < ROUNDS_MAX && recv(fd, away, sizeof away, MSG_DONTWAIT) > 0; i++)
        continue;
}

/* TLS: the end of what we say is no cut. As far as it goes: nothing depends on it. */
static void say_goodbye(struct belay *b)
{
    tls_end(b->tls);
    struct buf *wire = seal_out(b);
    if (buf_len(wire) && !wire->oom)
        (void)!send(b->fd, buf_data(wire), buf_len(wire), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A close is our last word, and the server frees what is ours. A client that leaves a server
 * because of a failure gives up nothing: it resets the connection, and nothing is freed before its
 * TTL. */
static void close_socket(struct belay *b, bool for_good)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (b->tls && for_good)
        say_goodbye(b);
    if (b->fd >= 0 && for_good)
        read_away(b->fd);
    else if (b->fd >= 0)
        (void)setsockopt(b->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (b->fd >= 0)
        close(b->fd); /* leaves the epoll set by itself */
    b->fd = -1;
    b->epoll_mask = 0;
    b->state = CLIENT_OFF;
    seal_close(b);
    client_call_forget_early(b);
    buf_clear(&b->in);
    buf_clear(&b->out);
    b->in.oom = b->out.oom = false;
}

static void forget_resolved(struct belay *b)
{
    if (b->resolved)
        freeaddrinfo(b->resolved);
    b->resolved = b->resolved_next = NULL;
}

/* Behind a failure of address `at`: the next one now, or a pause when all had their turn: true.
 */
static bool next_address(struct belay *b)
{
    forget_resolved(b);
    b->at = (b->at + 1) % b->n_addrs;
    b->retry_ms = client_now_ms();
    if (++b->tried < b->n_addrs)
        return false;
    b->tried = 0;
    b->backoff_ms = b->backoff_ms ? b->backoff_ms * 2 : CLIENT_BACKOFF_MIN_MS;
    if (b->backoff_ms > CLIENT_BACKOFF_MAX_MS)
        b->backoff_ms = CLIENT_BACKOFF_MAX_MS;
    b->retry_ms += b->backoff_ms;
    return true;
}

void connection_fail(struct belay *b, int code, const char *format, ...)
{
    char text[CLIENT_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool was_ready = b->state == CLIENT_READY;
    bool same_host = !was_ready && b->resolved_next;
    close_socket(b, false); /* first: what is asked meanwhile waits for the next connection */
    ping_end(b);
    bool all_failed = !same_host && next_address(b);
    client_fail(b, code, "%s", text);
    b->broke |= was_ready;
    client_call_lost(b, code);
    if (same_host || was_ready)
        return;
    b->round_failed |= all_failed;
    client_fail(b, code, "%s", text);
    client_call_unreachable(b, code);
}

/* ---- greeting -------------------------------------------------------------------------- */

static void on_greeted(struct belay *b, int err, const struct belay_reply *r, void *arg);

static void greet_word(struct belay *b, size_t step, const struct belay_bytes *words, size_t n)
{
    struct client_call like = {
        .fn = on_greeted, .arg = (void *)(uintptr_t)step, .is_greeting = true};
    if (client_call_send(b, words, n, &like) == BELAY_E_OK)
        b->greetings++;
    else
        b->out.oom = true; /* noticed before anything is written */
}

/* What we saw last is dropped there, or the server is a new one. */
static void watch_from_now(struct belay *b)
{
    struct belay_bytes words[6];
    b->watch_seen = 0;
    greet_word(b, GREET_WATCH, words, client_call_watch_words(b, words));
}

static void on_greeted(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    size_t step = (size_t)(uintptr_t)arg;
    if (b->state != CLIENT_GREETING)
        return; /* an earlier answer of this greeting has failed already */
    if (err != BELAY_E_OK && step == GREET_ATTACH && err == BELAY_E_NO_SESSION) {
        lease_session_over(b, BELAY_E_LOST);
        err = BELAY_E_OK;
    } else if (err == BELAY_E_OK && step == GREET_ATTACH) {
        lease_attached(b);
    } else if (step == GREET_WATCH && err == BELAY_E_GONE && b->watch_seen) {
        watch_from_now(b);
        err = BELAY_E_OK;
    } else if (step == GREET_WATCH && err == BELAY_E_OK && !b->watch_seen) {
        client_call_watch_gap(b, BELAY_E_GONE); /* it watches from now on: what was before? */
    }
    if (err != BELAY_E_OK) {
        char text[CLIENT_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", b->err_text);
        connection_fail(b, err, "%s: %s", b->addrs[b->at].text, text);
        return;
    }
    (void)r;
    if (--b->greetings > 0)
        return;
    b->state = CLIENT_READY;
    client_call_flush_queued(b);
}

static void greet(struct belay *b)
{
    struct belay_bytes words[6];
    b->state = CLIENT_GREETING;
    b->greetings = 0;
    b->heard_ms = client_now_ms();
    b->connect_end_ms = client_add_ms(b->heard_ms, ping_connect_ms(b));
    words[0] = (struct belay_bytes){"HELLO", 5};
    words[1] = (struct belay_bytes){"3", 1};
    greet_word(b, GREET_HELLO, words, 2);
    if (b->token) {
        words[0] = (struct belay_bytes){"AUTH", 4};
        words[1] = (struct belay_bytes){b->token, strlen(b->token)};
        greet_word(b, GREET_AUTH, words, 2);
    }
    if (b->ns) {
        words[0] = (struct belay_bytes){"USE", 3};
        words[1] = (struct belay_bytes){b->ns, strlen(b->ns)};
        greet_word(b, GREET_USE, words, 2);
    }
    if (b->session[0]) {
        words[0] = (struct belay_bytes){"SESSION", 7};
        words[1] = (struct belay_bytes){"ATTACH", 6};
        words[2] = (struct belay_bytes){b->session, strlen(b->session)};
        b->session_sent_ms = client_now_ms();
        greet_word(b, GREET_ATTACH, words, 3);
    }
    size_t n = client_call_watch_words(b, words);
    if (n)
        greet_word(b, GREET_WATCH, words, n);
}

/* ---- connecting ------------------------------------------------------------------------ */

static void on_connected(struct belay *b)
{
    if (b->addrs[b->at].tls)
        seal_start(b);
    else
        greet(b);
}

static void connect_failed(struct belay *b, int err)
{
    connection_fail(b, BELAY_E_CONNECT, "cannot reach %s: %s%s", b->addrs[b->at].text,
                    strerror(err), err == ECONNREFUSED ? "; is a server running there?" : "");
}

static void connect_to(struct belay *b, const struct sockaddr *to, socklen_t len)
{
    b->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (b->fd < 0) {
        connect_failed(b, errno);
        return;
    }
    int one = 1; /* without it small requests wait for the answer of the one before */
    if (to->sa_family != AF_UNIX &&
        setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        one = 0;
    b->state = CLIENT_CONNECTING;
    b->connect_end_ms = client_add_ms(client_now_ms(), ping_connect_ms(b));
    if (connect(b->fd, to, len) == 0)
        on_connected(b);
    else if (errno != EINPROGRESS)
        connect_failed(b, errno);
}

/* Tries the next address that the name resolved to. */
static void connect_next(struct belay *b)
{
    const struct addrinfo *ai = b->resolved_next;
    if (!ai)
        return;
    b->resolved_next = ai->ai_next;
    connect_to(b, ai->ai_addr, ai->ai_addrlen);
}

static void connect_path(struct belay *b)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s",
             b->addrs[b->at].host); /* it fits: addrs.c */
    connect_to(b, (const struct sockaddr *)&to, sizeof to);
}

void connection_start(struct belay *b)
{
    if (b->addrs[b->at].is_path) {
        connect_path(b);
        return;
    }
    if (!b->resolved_next) {
        forget_resolved(b);
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        const struct addr *a = &b->addrs[b->at];
        int rc = getaddrinfo(a->host, a->port, &hints, &b->resolved);
        if (rc == 0 && !b->resolved)
            rc = EAI_NONAME;
        if (rc != 0) {
            b->resolved = NULL;
            connection_fail(b, rc == EAI_MEMORY ? BELAY_E_MEMORY : BELAY_E_CONNECT,
                            "cannot reach %s: %s", a->text, gai_strerror(rc));
            return;
        }
        b->resolved_next = b->resolved;
    }
    connect_next(b);
}

/* CONNECTING: has it come about? */
static void finish_connect(struct belay *b)
{
    struct pollfd p = {.fd = b->fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0)
        return;
    int err = 0;
    socklen_t len = sizeof err;
    if (getsockopt(b->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
        err = errno;
    if (err)
        connect_failed(b, err);
    else
        on_connected(b);
}

/* ---- bytes ----------------------------------------------------------------------------- */

/* Hands out every whole reply that has arrived. */
static void parse_replies(struct belay *b)
{
    while (b->state >= CLIENT_GREETING && buf_len(&b->in) && !ping_main(b)->doomed) {
        struct reply *r = NULL;
        size_t used = 0;
        const char *why = "";
        arena_reset(&b->parse);
        enum resp_step step = resp_next_reply(buf_slice(&b->in), &b->parse, &r, &used, &why);
        if (step == RESP_MORE && buf_len(&b->in) < CLIENT_REPLY_BYTES_MAX)
            return;
        if (step != RESP_DONE) {
            bool oom = step == RESP_BAD && strcmp(why, "out of memory") == 0;
            connection_fail(b, oom ? BELAY_E_MEMORY : BELAY_E_PROTOCOL,
                            "%s does not speak RESP: %s", b->addrs[b->at].text,
                            step == RESP_MORE ? "a reply without end" : why);
            return;
        }
        if (r->kind == REPLY_PUSH)
            client_call_push(b, r, slice_of(buf_data(&b->in), used));
        else
            client_call_answer(b, r);
        /* A callback may have closed the connection: then the bytes are gone already. */
        if (b->state >= CLIENT_GREETING)
            buf_consume(&b->in, used);
    }
}

/* False: nothing has come, or it has failed. */
static bool read_some(struct belay *b)
{
    char sealed[CLIENT_READ_BYTES];
    if (!b->tls && !buf_reserve(&b->in, CLIENT_READ_BYTES)) {
        connection_fail(b, BELAY_E_MEMORY, "out of memory");
        return false;
    }
    ssize_t n = b->tls ? recv(b->fd, sealed, sizeof sealed, 0)
                       : recv(b->fd, b->in.mem + b->in.end, b->in.cap - b->in.end, 0);
    if (n > 0) {
        b->heard_ms = client_now_ms();
        if (b->tls)
            return seal_feed(b, slice_of(sealed, (size_t)n));
        b->in.end += (size_t)n;
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    connection_fail(b, b->state == CLIENT_READY ? BELAY_E_CLOSED : BELAY_E_CONNECT, "%s %s",
                    b->addrs[b->at].text, n == 0 ? "closed the connection" : strerror(errno));
    return false;
}

static void write_all(struct belay *b)
{
    while (b->state >= CLIENT_SHAKING) {
        struct buf *bytes = b->tls ? seal_out(b) : &b->out;
        if (bytes->oom) {
            connection_fail(b, BELAY_E_MEMORY, "out of memory");
            return;
        }
        if (buf_len(bytes) == 0)
            return;
        ssize_t n = send(b->fd, buf_data(bytes), buf_len(bytes), MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            connection_fail(b, BELAY_E_CLOSED, "%s: %s", b->addrs[b->at].text, strerror(errno));
            return;
        }
        buf_consume(bytes, (size_t)n);
    }
}

/* ---- the step -------------------------------------------------------------------------- */

static bool has_work(const struct belay *b)
{
    return b->queued.n || b->session[0] || b->holds || b->watch_fn || b->connect_wanted;
}

static bool is_on_its_way(const struct belay *b)
{
    return b->state > CLIENT_OFF && b->state < CLIENT_READY;
}

int connection_step(struct belay *b)
{
    int64_t now = client_now_ms();
    b->depth++;
    b->round_failed = b->broke = false;
    lease_step(b);
    client_call_expire(b);
    if (b->state == CLIENT_OFF && has_work(b) && now >= b->retry_ms)
        connection_start(b);
    if (b->state == CLIENT_CONNECTING)
        finish_connect(b);
    write_all(b);
    while (b->state >= CLIENT_SHAKING && !ping_main(b)->doomed && read_some(b)) {
        if (b->state == CLIENT_SHAKING && tls_state(b->tls) == TLS_OPEN)
            greet(b);
        parse_replies(b);
    }
    if (!ping_main(b)->doomed)
        ping_step(b);
    write_all(b); /* what callbacks have asked for */
    if (is_on_its_way(b) && now >= b->connect_end_ms)
        connection_fail(b, BELAY_E_CONNECT, "cannot reach %s: no answer within %lld ms",
                        b->addrs[b->at].text, (long long)ping_connect_ms(b));
    b->depth--;
    if (b->round_failed || b->broke)
        return b->err_code;
    return BELAY_E_OK;
}

int64_t connection_due_ms(const struct belay *b)
{
    int64_t due = lease_due_ms(b), queued = client_call_due_ms(b), pulse = ping_due_ms(b);
    due = queued < due ? queued : due;
    due = pulse < due ? pulse : due;
    if (b->state == CLIENT_OFF && has_work(b) && b->retry_ms < due)
        due = b->retry_ms;
    if (is_on_its_way(b) && b->connect_end_ms < due)
        due = b->connect_end_ms;
    return due;
}

short connection_events(const struct belay *b)
{
    if (b->state == CLIENT_CONNECTING)
        return POLLOUT;
    bool has_output = b->tls ? seal_has_output(b) : buf_len(&b->out) > 0;
    return (short)(POLLIN | (has_output ? POLLOUT : 0));
}

void connection_sleep(const struct belay *b, int64_t until_ms)
{
    int64_t now = client_now_ms(), due = connection_due_ms(b);
    if (due > until_ms)
        due = until_ms;
    int64_t left = due == INT64_MAX ? -1 : due > now ? due - now : 0;
    if (left > CLIENT_POLL_MAX_MS)
        left = CLIENT_POLL_MAX_MS;
    struct pollfd p[2] = {{.fd = b->fd, .events = connection_events(b)}, {.fd = -1}};
    if (b->pulse)
        p[1] = (struct pollfd){.fd = b->pulse->fd, .events = connection_events(b->pulse)};
    if (poll(p, 2, (int)left) < 0)
        return; /* EINTR: the caller looks again, as it does anyway */
}

/* ---- one descriptor for event loops ---------------------------------------------------- */

static void arm_socket(struct belay *b, int epoll_fd)
{
    if (b->fd < 0)
        return;
    short events = connection_events(b);
    uint32_t mask =
        (events & POLLIN ? (uint32_t)EPOLLIN : 0) | (events & POLLOUT ? (uint32_t)EPOLLOUT : 0);
    struct epoll_event ev = {.events = mask, .data.fd = b->fd};
    if (mask == b->epoll_mask)
        return;
    if (epoll_ctl(epoll_fd, b->epoll_mask ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, b->fd, &ev) == 0)
        b->epoll_mask = mask;
}

void connection_arm(struct belay *b)
{
    if (b->epoll_fd < 0)
        return; /* nobody watches: blocking calls need neither */
    arm_socket(b, b->epoll_fd);
    if (b->pulse)
        arm_socket(b->pulse, b->epoll_fd);
    int64_t due = connection_due_ms(b);
    if (due == b->timer_ms)
        return;
    struct itimerspec t = {0}; /* all zero: disarmed */
    if (due != INT64_MAX) {
        int64_t at = due > 0 ? due : 1;
        t.it_value = (struct timespec){.tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000};
    }
    if (timerfd_settime(b->timer_fd, TFD_TIMER_ABSTIME, &t, NULL) == 0)
        b->timer_ms = due;
}

int connection_watch_fd(struct belay *b)
{
    if (b->epoll_fd >= 0)
        return b->epoll_fd;
    b->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = b->timer_fd};
    if (b->timer_fd < 0 || b->epoll_fd < 0 ||
        epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, b->timer_fd, &ev) != 0) {
        client_fail(b, BELAY_E_MEMORY, "no descriptor to watch: %s", strerror(errno));
        connection_close(b);
        return -1;
    }
    b->timer_ms = INT64_MAX;
    connection_arm(b);
    return b->epoll_fd;
}

/* A timer that has fired stays readable until it is read or set again. */
void connection_drain_timer(struct belay *b)
{
    uint64_t count = 0;
    if (b->timer_fd >= 0 && read(b->timer_fd, &count, sizeof count) > 0)
        b->timer_ms = INT64_MAX;
}

void connection_close(struct belay *b)
{
    if (b->epoll_fd >= 0)
        close(b->epoll_fd);
    if (b->timer_fd >= 0)
        close(b->timer_fd);
    b->epoll_fd = b->timer_fd = -1;
}

void connection_off(struct belay *b)
{
    close_socket(b, true);
    forget_resolved(b);
}
