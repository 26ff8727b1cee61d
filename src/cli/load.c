/* load.c - the load of `belay bench`: many connections, one thread, one epoll. */
#include "cli/load.h"

#include "base/buf.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    IN_BYTES = 16384,
    NAME_BYTES = 48,
    HOLD_BATCH = 256,
    EVENTS = 256,
    REPLY_DEPTH = 4,
    NS_PER_MS = 1000000,
};

static const char release_script[] =
    "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else "
    "return 0 end";

struct load_conn {
    int fd;
    size_t number;
    size_t owed;      /* replies that have to come */
    size_t step;      /* which request of the round was sent last */
    uint64_t sent_ns; /* when */
    uint64_t grants;
    struct buf rounds[2]; /* PAIR, unpipelined: acquire and release; else one batch */
    struct tls *tls;      /* NULL: plain text */
    struct buf in, wire;
};

struct load {
    const struct load_config *config;
    struct load_result *result;
    struct load_conn **conns;
    int epoll_fd;
    bool measuring, stopping;
    size_t turn; /* HANDOFF: whose grant must be next */
    size_t held; /* HOLD */
    char sha[41];
    char *why;
    size_t why_bytes;
};

static uint64_t now_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- histogram ------------------------------------------------------------------------- */

/* Below LOAD_SUB one bucket a ns; above, LOAD_SUB buckets for every doubling. */
static size_t bucket_of(uint64_t ns)
{
    if (ns < LOAD_SUB)
        return (size_t)ns;
    unsigned top = 63 - (unsigned)__builtin_clzll(ns); /* >= 5 */
    size_t at = (size_t)(top - 4) * LOAD_SUB + (size_t)((ns >> (top - 5)) - LOAD_SUB);
    return at < LOAD_BUCKETS ? at : LOAD_BUCKETS - 1;
}

static uint64_t bucket_top(size_t at)
{
    if (at < LOAD_SUB)
        return at;
    unsigned shift = (unsigned)(at / LOAD_SUB) - 1;
    return ((uint64_t)(LOAD_SUB + at % LOAD_SUB + 1) << shift) - 1;
}

void load_record(struct load_histogram *h, uint64_t ns)
{
    h->count[bucket_of(ns)]++;
    h->total++;
}

uint64_t load_percentile(const struct load_histogram *h, double part)
{
    uint64_t want = (uint64_t)(part * (double)h->total), seen = 0;
    for (size_t i = 0; i < LOAD_BUCKETS; i++) {
        seen += h->count[i];
        if (seen > want || (seen == h->total && seen))
            return bucket_top(i);
    }
    return 0;
}

/* ---- replies --------------------------------------------------------------------------- */

/* "$12\r\n": the number, and the bytes of the line; 0 bytes: not whole. */
static size_t read_line(const char *p, size_t len, long *ret_v)
{
    const char *end = len ? memchr(p, '\n', len) : NULL;
    if (!end)
        return 0;
    *ret_v = strtol(p + 1, NULL, 10);
    return (size_t)(end - p) + 1;
}

static size_t skip_at(const char *p, size_t len, int depth)
{
    long n = 0;
    size_t used = read_line(p, len, &n);
    if (!used)
        return 0;
    if (p[0] == '$' && n >= 0) {
        used += (size_t)n + 2;
        return used <= len ? used : 0;
    }
    if (p[0] != '*' || depth >= REPLY_DEPTH)
        return used;
    for (long i = 0; i < n; i++) {
        size_t item = skip_at(p + used, len - used, depth + 1);
        if (!item)
            return 0;
        used += item;
    }
    return used;
}

size_t load_skip_reply(const char *p, size_t len)
{
    return skip_at(p, len, 0);
}

/* Is this the answer of a server on which all goes well? */
static bool is_good(const struct load *l, const char *p, bool acquire)
{
    if (l->config->redis)
        return acquire ? p[0] == '+' : p[0] == ':' && p[1] == '1';
    if (l->config->txn)
        return strncmp(p, "*7\r\n$2\r\nok", 10) == 0;
    return acquire ? p[0] == '*' && p[1] == '4' : p[0] == ':' && p[1] == '1';
}

/* ---- requests -------------------------------------------------------------------------- */

static void put_words(struct buf *out, const char *const *words, size_t n)
{
    buf_printf(out, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
}

/* One statement; the variable and the session have the lock's name. */
static void put_txn(struct buf *out, const char *name, bool set)
{
    char json[256];
    snprintf(json, sizeof json,
             "{\"session\":\"%s\",\"statements\":[{\"assert\":{\"%s\":{\"table\":\"bench\","
             "\"key\":\"%s\",\"value\":1}}}]}",
             name, set ? "set" : "delete", name);
    put_words(out, (const char *[]){"TXN", json}, 2);
}

static void put_acquire(const struct load *l, struct buf *out, const char *name,
                        const char *owner, const char *wait)
{
    char ttl[24];
    snprintf(ttl, sizeof ttl, "%" PRId64, l->config->ttl_ms);
    if (l->config->redis)
        put_words(out, (const char *[]){"SET", name, owner, "NX", "PX", ttl}, 6);
    else if (l->config->txn)
        put_txn(out, name, true);
    else if (wait)
        put_words(out, (const char *[]){"ACQUIRE", name, owner, "TTL", ttl, "WAIT", wait}, 7);
    else
        put_words(out, (const char *[]){"ACQUIRE", name, owner, "TTL", ttl}, 5);
}

static void put_release(const struct load *l, struct buf *out, const char *name,
                        const char *owner)
{
    if (l->config->redis)
        put_words(out, (const char *[]){"EVALSHA", l->sha, "1", name, owner}, 5);
    else if (l->config->txn)
        put_txn(out, name, false);
    else
        put_words(out, (const char *[]){"RELEASE", name, "OWNER", owner}, 4);
}

static void own_name(const struct load_conn *c, char *name)
{
    snprintf(name, NAME_BYTES, "bench:%d:%zu", (int)getpid(), c->number);
}

static void prepare(const struct load *l, struct load_conn *c)
{
    char name[NAME_BYTES], owner[32];
    snprintf(owner, sizeof owner, "o%zu", c->number);
    own_name(c, name);
    if (l->config->mode != LOAD_PAIR)
        snprintf(name, sizeof name, "bench:%d", (int)getpid());
    if (l->config->mode == LOAD_HANDOFF || l->config->mode == LOAD_PARK) {
        put_acquire(l, &c->rounds[0], name, owner, "600000"); /* the first: join the line */
        put_release(l, &c->rounds[1], name, owner);
        put_acquire(l, &c->rounds[1], name, owner, "600000");
        return;
    }
    for (size_t i = 0; i < l->config->pipeline || i < 2; i++) {
        struct buf *round = &c->rounds[l->config->pipeline == 1 ? i : 0];
        if (i % 2 == 0)
            put_acquire(l, round, name, owner, NULL);
        else
            put_release(l, round, name, owner);
    }
}

static bool fail(struct load *l, const char *what)
{
    snprintf(l->why, l->why_bytes, "%s: %s", what, strerror(errno));
    return false;
}

/* Requests are far smaller than a socket buffer: whole, or the connection is broken. */
static bool send_bytes(struct load *l, struct load_conn *c, const struct buf *b)
{
    size_t done = 0;
    while (done < buf_len(b)) {
        ssize_t n = send(c->fd, buf_data(b) + done, buf_len(b) - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(l, "send");
        done += (size_t)n;
    }
    return true;
}

/* What TLS has to say. */
static bool send_sealed(struct load *l, struct load_conn *c)
{
    buf_clear(&c->wire);
    tls_drain(c->tls, &c->wire);
    return send_bytes(l, c, &c->wire);
}

static bool send_all(struct load *l, struct load_conn *c, const struct buf *b)
{
    if (!c->tls)
        return send_bytes(l, c, b);
    (void)tls_write(c->tls, buf_slice(b));
    return send_sealed(l, c);
}

/* As recv(): more bytes in c->in. */
static ssize_t receive(struct load_conn *c, int flags)
{
    char sealed[IN_BYTES];
    errno = ENOMEM;
    if (!buf_reserve(&c->in, IN_BYTES))
        return -1;
    ssize_t n = recv(c->fd, c->tls ? sealed : c->in.mem + c->in.end, IN_BYTES, flags);
    if (n > 0 && !c->tls)
        c->in.end += (size_t)n;
    if (n <= 0 || !c->tls)
        return n;
    enum tls_state state = tls_feed(c->tls, slice_of(sealed, (size_t)n), &c->in);
    errno = EPROTO;
    return state == TLS_OPEN || state == TLS_SHAKING ? n : -1;
}

static bool shake_hands(struct load *l, struct load_conn *c)
{
    c->tls = tls_call(l->config->tls, l->config->host);
    if (!c->tls)
        return fail(l, "connect");
    while (tls_state(c->tls) == TLS_SHAKING) {
        if (!send_sealed(l, c))
            return false;
        if (receive(c, 0) <= 0)
            break;
    }
    if (tls_state(c->tls) == TLS_OPEN)
        return send_sealed(l, c);
    snprintf(l->why, l->why_bytes, "connect: %s", tls_problem(c->tls));
    return false;
}

static bool send_round(struct load *l, struct load_conn *c)
{
    const struct load_config *g = l->config;
    c->sent_ns = now_ns();
    if (g->mode == LOAD_PAIR) {
        c->step = g->pipeline == 1 ? (c->step + 1) % 2 : 1;
        c->owed = g->pipeline == 1 ? 1 : g->pipeline;
        return send_all(l, c, &c->rounds[g->pipeline == 1 ? 1 - c->step : 0]);
    }
    c->owed = c->step ? 2 : 1; /* the release, and then, in its turn, the grant */
    bool ok = send_all(l, c, &c->rounds[c->step]);
    c->step = 1;
    return ok;
}

/* HOLD: the next locks, all on this connection's batch. */
static bool send_hold(struct load *l, struct load_conn *c)
{
    struct buf batch = {0};
    c->sent_ns = now_ns();
    for (c->owed = 0; c->owed < HOLD_BATCH && l->held < l->config->locks;
         c->owed++, l->held++) {
        char name[32];
        snprintf(name, sizeof name, "lock:%011zu", l->held); /* 16 bytes */
        put_acquire(l, &batch, name, "o", NULL);
    }
    bool ok = c->owed == 0 || send_all(l, c, &batch);
    buf_done(&batch);
    return ok;
}

/* ---- answers --------------------------------------------------------------------------- */

static void count_answer(struct load *l, struct load_conn *c, const char *p)
{
    bool acquire = l->config->mode == LOAD_HOLD;
    if (l->config->mode == LOAD_PAIR)
        acquire =
            l->config->pipeline == 1 ? c->step == 1 : (l->config->pipeline - c->owed) % 2 == 0;
    else if (l->config->mode != LOAD_HOLD)
        acquire = c->owed == 1;
    if (!is_good(l, p, acquire))
        l->result->failures++;
    if (l->config->mode != LOAD_HANDOFF) {
        l->result->ops += l->measuring;
        return;
    }
    if (!acquire)
        return;
    /* The line is first come, first served: the grants go round. */
    if (l->measuring) {
        l->result->ops++;
        c->grants++;
        l->result->out_of_turn += c->number != l->turn;
    }
    l->turn = (c->number + 1) % l->config->connections;
}

static bool take_answers(struct load *l, struct load_conn *c)
{
    size_t used;
    while (c->owed && (used = load_skip_reply(buf_data(&c->in), buf_len(&c->in)))) {
        count_answer(l, c, buf_data(&c->in));
        buf_consume(&c->in, used);
        c->owed--;
    }
    if (c->owed || l->config->mode == LOAD_PARK)
        return true;
    if (l->measuring)
        load_record(&l->result->latency, now_ns() - c->sent_ns);
    if (l->stopping)
        return true;
    return l->config->mode == LOAD_HOLD ? send_hold(l, c) : send_round(l, c);
}

static bool on_readable(struct load *l, struct load_conn *c)
{
    ssize_t n = receive(c, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        errno = n == 0 ? ECONNRESET : errno;
        return fail(l, "the server closed a connection");
    }
    return take_answers(l, c);
}

/* Runs until `until_ns`, or (HOLD) until all is answered. */
static bool turn_until(struct load *l, uint64_t until_ns)
{
    struct epoll_event events[EVENTS];
    for (;;) {
        uint64_t now = now_ns();
        if (now >= until_ns)
            return true;
        int left = (int)((until_ns - now) / NS_PER_MS) + 1;
        if (l->config->mode == LOAD_HANDOFF)
            left = 0; /* one message is under way: the time to wake us up would be measured */
        int n = epoll_wait(l->epoll_fd, events, EVENTS, left);
        if (n < 0 && errno != EINTR)
            return fail(l, "epoll");
        for (int i = 0; i < n; i++)
            if (!on_readable(l, events[i].data.ptr))
                return false;
        if (l->config->mode != LOAD_HOLD || l->held < l->config->locks)
            continue;
        size_t owed = 0;
        for (size_t i = 0; i < l->config->connections; i++)
            owed += l->conns[i]->owed;
        if (owed == 0)
            return true;
    }
}

/* ---- the server's process -------------------------------------------------------------- */

static uint64_t client_cpu_ns(void)
{
    struct rusage u = {0};
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

static uint64_t cpu_ns_of(int pid)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Resident pages are the second number of /proc/PID/statm. */
static int64_t rss_of(int pid)
{
    char path[64], text[128] = "";
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const char *at = fgets(text, sizeof text, f) ? strchr(text, ' ') : NULL;
    fclose(f);
    return at ? strtoll(at, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
}

static void server_use(int pid, uint64_t *ret_cpu_ns, int64_t *ret_rss)
{
    *ret_cpu_ns = pid ? cpu_ns_of(pid) : 0;
    *ret_rss = pid ? rss_of(pid) : 0;
}

/* ---- connections ----------------------------------------------------------------------- */

static bool conn_open(struct load *l, const struct addrinfo *ai, size_t number)
{
    struct load_conn *c = calloc(1, sizeof *c);
    if (!c)
        return fail(l, "connections");
    l->conns[number] = c;
    c->number = number;
    c->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, ai->ai_addr, ai->ai_addrlen) != 0)
        return fail(l, "connect");
    int one = 1;
    if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        return fail(l, "connect");
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) != 0)
        return fail(l, "epoll");
    return !l->config->tls || shake_hands(l, c);
}

/* Redis: EVALSHA needs the script to be known. */
static bool load_script(struct load *l)
{
    struct load_conn *c = l->conns[0];
    struct buf out = {0};
    put_words(&out, (const char *[]){"SCRIPT", "LOAD", release_script}, 3);
    bool ok = send_all(l, c, &out);
    buf_done(&out);
    while (ok && buf_len(&c->in) < 47) /* "$40\r\n" + 40 + "\r\n" */
        if (receive(c, 0) <= 0)
            return fail(l, "SCRIPT LOAD");
    if (!ok || memcmp(buf_data(&c->in), "$40\r\n", 5) != 0) {
        errno = EPROTO;
        return fail(l, "SCRIPT LOAD");
    }
    memcpy(l->sha, buf_data(&c->in) + 5, 40);
    buf_clear(&c->in);
    return true;
}

/* What a connection asks before the load begins; the reply must begin with `good`. */
static bool ask_first(struct load *l, struct load_conn *c, const char *const *words, size_t n,
                      char good)
{
    struct buf out = {0};
    put_words(&out, words, n);
    bool ok = send_all(l, c, &out);
    buf_done(&out);
    while (ok && load_skip_reply(buf_data(&c->in), buf_len(&c->in)) == 0)
        if (receive(c, 0) <= 0)
            return fail(l, words[0]);
    if (!ok)
        return false;
    const char *reply = buf_data(&c->in);
    if (reply[0] != good)
        snprintf(l->why, l->why_bytes, "%s: %.*s", words[0], (int)strcspn(reply + 1, "\r"),
                 reply + 1);
    ok = reply[0] == good;
    buf_clear(&c->in);
    return ok;
}

/* Transactions: each connection has a session, under its own name. */
static bool open_session(struct load *l, struct load_conn *c)
{
    char name[NAME_BYTES];
    own_name(c, name);
    return ask_first(l, c, (const char *[]){"SESSION", "OPEN", "TTL", "600000", "ID", name}, 6,
                     '$');
}

static bool log_in(struct load *l, struct load_conn *c)
{
    return ask_first(l, c, (const char *[]){"AUTH", l->config->token}, 2, '+');
}

static bool connect_all(struct load *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai = NULL;
    int rc = getaddrinfo(l->config->host, l->config->port, &hints, &ai);
    if (rc != 0) {
        snprintf(l->why, l->why_bytes, "%s: %s", l->config->host, gai_strerror(rc));
        return false;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < l->config->connections; i++)
        ok = conn_open(l, ai, i) && (!l->config->token || log_in(l, l->conns[i])) &&
             (!l->config->txn || open_session(l, l->conns[i]));
    freeaddrinfo(ai);
    return ok && (!l->config->redis || load_script(l));
}

/* ---- a run ----------------------------------------------------------------------------- */

static bool start(struct load *l)
{
    for (size_t i = 0; i < l->config->connections; i++) {
        struct load_conn *c = l->conns[i];
        if (l->config->mode == LOAD_HOLD) {
            if (!send_hold(l, c))
                return false;
            continue;
        }
        prepare(l, c);
        if (!send_round(l, c))
            return false;
        if (l->config->mode == LOAD_HANDOFF && i + 1 < l->config->connections) {
            struct timespec t = {.tv_nsec = 100000}; /* they join the line in this order */
            nanosleep(&t, NULL);
        }
    }
    return true;
}

static bool measure(struct load *l)
{
    const struct load_config *g = l->config;
    struct load_result *r = l->result;
    uint64_t cpu = 0;
    int64_t rss = 0, rss_end = 0;
    server_use(g->server_pid, &cpu, &rss);
    if (!start(l) || !turn_until(l, now_ns() + (uint64_t)g->warmup_ms * NS_PER_MS))
        return false;
    uint64_t cpu_warm = 0, cpu_end = 0;
    server_use(g->server_pid, &cpu_warm, &rss_end);
    uint64_t began = now_ns(), mine = client_cpu_ns();
    l->measuring = true;
    if (!turn_until(l, began + (uint64_t)g->duration_ms * NS_PER_MS))
        return false;
    l->measuring = false;
    r->elapsed_ns = now_ns() - began;
    r->client_cpu_ns = client_cpu_ns() - mine;
    server_use(g->server_pid, &cpu_end, &rss_end);
    r->server_cpu_ns = cpu_end - cpu_warm;
    r->server_rss_bytes = rss_end - rss;
    l->stopping = true;
    r->grants_min = UINT64_MAX;
    for (size_t i = 0; i < g->connections; i++) {
        uint64_t n = l->conns[i]->grants;
        r->grants_min = n < r->grants_min ? n : r->grants_min;
        r->grants_max = n > r->grants_max ? n : r->grants_max;
    }
    return true;
}

bool load_run(const struct load_config *config, struct load_result *ret, char *why,
              size_t why_bytes)
{
    struct load l = {.config = config, .result = ret, .why_bytes = why_bytes};
    l.why = why;
    *ret = (struct load_result){0};
    l.conns = calloc(config->connections, sizeof(struct load_conn *));
    l.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bool ok = l.conns && l.epoll_fd >= 0 ? connect_all(&l) && measure(&l) : fail(&l, "start");
    for (size_t i = 0; l.conns && i < config->connections; i++) {
        struct load_conn *c = l.conns[i];
        if (!c)
            continue;
        if (c->fd >= 0)
            close(c->fd);
        buf_done(&c->rounds[0]);
        buf_done(&c->rounds[1]);
        buf_done(&c->in);
        buf_done(&c->wire);
        tls_close(c->tls);
        free(c);
    }
    free(l.conns);
    if (l.epoll_fd >= 0)
        close(l.epoll_fd);
    return ok;
}
