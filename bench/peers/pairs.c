/* pairs.c - one client for three lock servers: acquire + release pairs a second.
 *
 *   pairs belay|etcd|zookeeper CONNECTIONS SECONDS PORT...
 *
 * Every connection has a lock of its own, which no other run has used, and asks for one thing
 * at a time; connection i goes to port i modulo their number. The client is the same loop for
 * all, and costs a few microseconds a request, because it shares the machine with the servers:
 *
 *   belay      ACQUIRE, RELEASE
 *   etcd       v3lockpb.Lock/Lock and Unlock over gRPC, with a lease granted once; no JSON
 *              gateway, no gRPC library. An answer counts when its stream ends and it had a
 *              message.
 *   zookeeper  the recipe: create an ephemeral sequential node, see that it is the first child,
 *              delete it
 *
 * Prints pairs a second; stops at the first answer that is not what it should be. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_MAX = 1 << 16, OUT_MAX = 1024, CONNECTIONS_MAX = 1024 };

struct conn {
    int fd, no, step;
    char name[32];  /* of its lock */
    uint32_t xid;   /* zookeeper: of the request; etcd: its stream */
    size_t in_n;    /* bytes in `in` */
    size_t unsaid;  /* etcd: bytes received since the last window update */
    bool message;   /* etcd: the stream has had one */
    char path[128]; /* zookeeper: the node that was made */
    unsigned char in[IN_MAX], out[OUT_MAX];
    size_t out_n;
};

/* What one server speaks. A step is a request; setup steps come first and are not counted. */
struct peer {
    const char *name;
    int setup, steps; /* then `steps` for each pair */
    void (*hello)(struct conn *c);
    void (*ask)(struct conn *c, int step);
    /* Takes what is whole in c->in; 1: the request was answered, 0: more is needed. */
    int (*take)(struct conn *c, size_t *used);
};

static void fail(const struct conn *c, const char *what)
{
    fprintf(stderr, "pairs: connection %d, step %d: %s\n", c->no, c->step, what);
    exit(1);
}

static void put(struct conn *c, const void *bytes, size_t n)
{
    if (c->out_n + n > OUT_MAX)
        fail(c, "too long");
    memcpy(c->out + c->out_n, bytes, n);
    c->out_n += n;
}

static void put_number(struct conn *c, uint64_t v, int bytes) /* big endian */
{
    for (int i = bytes - 1; i >= 0; i--)
        put(c, &(unsigned char){(unsigned char)(v >> (8 * i))}, 1);
}

static uint32_t number_at(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* --- belay: RESP --- */

static void belay_ask(struct conn *c, int step)
{
    char text[256];
    int m =
        snprintf(text, sizeof text,
                 step == 0 ? "*3\r\n$7\r\nACQUIRE\r\n$%zu\r\n%s\r\n$2\r\nme\r\n"
                           : "*4\r\n$7\r\nRELEASE\r\n$%zu\r\n%s\r\n$5\r\nOWNER\r\n$2\r\nme\r\n",
                 strlen(c->name), c->name);
    put(c, text, (size_t)m);
}

static int belay_take(struct conn *c, size_t *used)
{
    static const char granted[] = "*4\r\n$7\r\ngranted\r\n";
    const char *in = (const char *)c->in;
    size_t lines = 0;
    for (size_t i = 0; i < c->in_n; i++)
        lines += in[i] == '\n';
    if (c->step == 1) {
        if (lines >= 1 && memcmp(in, ":1\r\n", 4) != 0)
            fail(c, "not released");
        *used = c->in_n;
        return lines >= 1;
    }
    if (lines >= 1 && in[0] != '*')
        fail(c, "an error");
    if (lines < 7) /* *4 $7 granted :fence :ttl $0 and the empty body */
        return 0;
    if (memcmp(in, granted, sizeof granted - 1) != 0)
        fail(c, "not granted");
    *used = c->in_n;
    return 1;
}

/* --- etcd: gRPC, which is HTTP/2 --- */

enum {
    FRAME_HEAD = 9,
    DATA = 0,
    HEADERS = 1,
    RST = 3,
    SETTINGS = 4,
    PING = 6,
    GOAWAY = 7,
    WINDOW = 8
};
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, WINDOW_STEP = 8192 };

static void put_frame(struct conn *c, size_t len, int type, int flags, uint32_t stream)
{
    put_number(c, len, 3);
    put_number(c, (uint64_t)type, 1);
    put_number(c, (uint64_t)flags, 1);
    put_number(c, stream, 4);
}

static void etcd_hello(struct conn *c)
{
    put(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    put_frame(c, 0, SETTINGS, 0, 0);
}

/* Headers without compression, one message, end. */
static void put_call(struct conn *c, const char *path, const unsigned char *message, size_t len)
{
    unsigned char head[256];
    size_t n = 0;
    size_t path_n = strlen(path);
    static const unsigned char rest[] = "\x01\x09"
                                        "localhost\x0f\x10\x10"
                                        "application/grpc\x00\x02te\x08trailers";
    head[n++] = 0x83; /* :method POST */
    head[n++] = 0x86; /* :scheme http */
    head[n++] = 0x04; /* :path */
    head[n++] = (unsigned char)path_n;
    memcpy(head + n, path, path_n);
    n += path_n;
    memcpy(head + n, rest, sizeof rest - 1);
    n += sizeof rest - 1;
    c->xid = c->xid ? c->xid + 2 : 1;
    c->message = false;
    put_frame(c, n, HEADERS, END_HEADERS, c->xid);
    put(c, head, n);
    put_frame(c, len + 5, DATA, END_STREAM, c->xid);
    put_number(c, 0, 1);
    put_number(c, len, 4);
    put(c, message, len);
}

static size_t put_varint(unsigned char *to, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        to[n++] = (unsigned char)(v | 0x80);
    to[n++] = (unsigned char)v;
    return n;
}

static size_t put_text(unsigned char *to, int field, const char *text)
{
    size_t len = strlen(text);
    to[0] = (unsigned char)(field << 3 | 2);
    to[1] = (unsigned char)len;
    memcpy(to + 2, text, len);
    return len + 2;
}

static void etcd_ask(struct conn *c, int step)
{
    enum { TTL_S = 3600 };
    unsigned char m[128];
    char text[64];
    static uint64_t base;
    if (!base)
        base = (uint64_t)time(NULL) << 20 | (uint64_t)(getpid() & 0xffff) << 4;
    uint64_t lease = base + ((uint64_t)c->no << 48);
    size_t n = 0;
    if (step == -1) { /* LeaseGrant: TTL, ID */
        m[n++] = 1 << 3;
        n += put_varint(m + n, TTL_S);
        m[n++] = 2 << 3;
        n += put_varint(m + n, lease);
        put_call(c, "/etcdserverpb.Lease/LeaseGrant", m, n);
    } else if (step == 0) {
        n = put_text(m, 1, c->name);
        m[n++] = 2 << 3;
        n += put_varint(m + n, lease);
        put_call(c, "/v3lockpb.Lock/Lock", m, n);
    } else {
        snprintf(text, sizeof text, "%s/%llx", c->name, (unsigned long long)lease);
        put_call(c, "/v3lockpb.Lock/Unlock", m, put_text(m, 1, text));
    }
}

/* What a frame means; 1: the stream is over. */
static int etcd_frame(struct conn *c, int type, int flags, const unsigned char *body,
                      size_t len)
{
    if (type == RST || type == GOAWAY)
        fail(c, "refused");
    if (type == SETTINGS && !(flags & ACK))
        put_frame(c, 0, SETTINGS, ACK, 0);
    if (type == PING && !(flags & ACK)) {
        put_frame(c, 8, PING, ACK, 0);
        put(c, body, 8);
    }
    if (type == DATA) {
        c->message = true;
        c->unsaid += len;
        if (c->unsaid >= WINDOW_STEP) {
            put_frame(c, 4, WINDOW, 0, 0);
            put_number(c, c->unsaid, 4);
            c->unsaid = 0;
        }
    }
    if ((type != DATA && type != HEADERS) || !(flags & END_STREAM))
        return 0;
    if (!c->message)
        fail(c, "an error");
    return 1;
}

static int etcd_take(struct conn *c, size_t *used)
{
    size_t at = 0;
    int over = 0;
    while (!over && c->in_n - at >= FRAME_HEAD) {
        const unsigned char *f = c->in + at;
        size_t len = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
        if (c->in_n - at < FRAME_HEAD + len)
            break;
        over = etcd_frame(c, f[3], f[4], f + FRAME_HEAD, len);
        at += FRAME_HEAD + len;
    }
    *used = at;
    return over;
}

/* --- zookeeper: jute --- */

enum {
    ZK_CREATE = 1,
    ZK_DELETE = 2,
    ZK_CHILDREN = 8,
    EPHEMERAL_SEQUENTIAL = 3,
    NODE_EXISTS = -110
};

static size_t zk_begin(struct conn *c, int type)
{
    size_t at = c->out_n;
    put_number(c, 0, 4);
    put_number(c, ++c->xid, 4);
    put_number(c, (uint64_t)type, 4);
    return at;
}

static void zk_end(struct conn *c, size_t at)
{
    size_t len = c->out_n - at - 4;
    for (int i = 0; i < 4; i++)
        c->out[at + (size_t)i] = (unsigned char)(len >> (8 * (3 - i)));
}

static void put_string(struct conn *c, const char *text)
{
    put_number(c, strlen(text), 4);
    put(c, text, strlen(text));
}

static void zk_hello(struct conn *c)
{
    enum { SESSION_MS = 30000, PASSWORD = 16 };
    put_number(c, 4 + 8 + 4 + 8 + 4 + PASSWORD, 4);
    put_number(c, 0, 4);
    put_number(c, 0, 8);
    put_number(c, SESSION_MS, 4);
    put_number(c, 0, 8);
    put_number(c, PASSWORD, 4);
    put_number(c, 0, 8);
    put_number(c, 0, 8);
}

static void zk_create(struct conn *c, const char *path, int flags)
{
    enum { ALL = 31 };
    size_t at = zk_begin(c, ZK_CREATE);
    put_string(c, path);
    put_number(c, 0, 4); /* no data */
    put_number(c, 1, 4);
    put_number(c, ALL, 4);
    put_string(c, "world");
    put_string(c, "anyone");
    put_number(c, (uint64_t)flags, 4);
    zk_end(c, at);
}

static void zk_ask(struct conn *c, int step)
{
    char text[64];
    size_t at;
    if (step == -2)
        return; /* the answer to hello */
    snprintf(text, sizeof text, "/%s%s", c->name, step == 0 ? "/lock-" : "");
    if (step == -1) {
        zk_create(c, text, 0);
    } else if (step == 0) {
        zk_create(c, text, EPHEMERAL_SEQUENTIAL);
    } else if (step == 1) {
        at = zk_begin(c, ZK_CHILDREN);
        put_string(c, text);
        put_number(c, 0, 1);
        zk_end(c, at);
    } else {
        at = zk_begin(c, ZK_DELETE);
        put_string(c, c->path);
        put_number(c, UINT32_MAX, 4);
        zk_end(c, at);
    }
}

static int zk_take(struct conn *c, size_t *used)
{
    enum { HEAD = 4 + 4 + 8 + 4 }; /* length, xid, zxid, error */
    if (c->in_n < 4 || c->in_n < 4 + number_at(c->in))
        return 0;
    *used = 4 + number_at(c->in);
    if (c->step == -2)
        return 1;
    int32_t err = *used >= HEAD ? (int32_t)number_at(c->in + 16) : -1;
    if (err != 0 && !(c->step == -1 && err == NODE_EXISTS))
        fail(c, "an error");
    if (number_at(c->in + 4) != c->xid)
        fail(c, "another answer");
    uint32_t n = *used >= HEAD + 4 ? number_at(c->in + HEAD) : 0;
    if (c->step == 0) {
        if (n >= sizeof c->path)
            fail(c, "a long path");
        memcpy(c->path, c->in + HEAD + 4, n);
        c->path[n] = '\0';
    }
    if (c->step == 1 && n != 1)
        fail(c, "not the first");
    return 1;
}

/* --- the loop --- */

static const struct peer peers[] = {{"belay", 0, 2, NULL, belay_ask, belay_take},
                                    {"etcd", 1, 2, etcd_hello, etcd_ask, etcd_take},
                                    {"zookeeper", 2, 3, zk_hello, zk_ask, zk_take}};

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void flush(struct conn *c)
{
    if (c->out_n && send(c->fd, c->out, c->out_n, MSG_NOSIGNAL) != (ssize_t)c->out_n)
        fail(c, "cannot be written");
    c->out_n = 0;
}

static struct conn *open_conn(const struct peer *p, int no, int port)
{
    struct conn *c = calloc(1, sizeof *c);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->no = no;
    snprintf(c->name, sizeof c->name, "lock-%d-%d", getpid(), no);
    c->step = -p->setup;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail(c, "cannot connect");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (p->hello)
        p->hello(c);
    p->ask(c, c->step);
    flush(c);
    return c;
}

/* Reads what is there and asks for the next; the pairs that are whole by it. */
static unsigned serve(const struct peer *p, struct conn *c)
{
    unsigned pairs = 0;
    ssize_t n = recv(c->fd, c->in + c->in_n, IN_MAX - c->in_n, 0);
    if (n <= 0)
        fail(c, "the server is gone");
    c->in_n += (size_t)n;
    for (;;) {
        size_t used = 0;
        int done = p->take(c, &used);
        c->in_n -= used;
        memmove(c->in, c->in + used, c->in_n);
        if (!done)
            break;
        pairs += c->step == p->steps - 1;
        c->step = c->step == p->steps - 1 ? 0 : c->step + 1;
        p->ask(c, c->step);
    }
    flush(c);
    return pairs;
}

static double run(const struct peer *p, int connections, double seconds, char **ports,
                  int n_ports)
{
    enum { WARM_US = 500000, EVENTS = 64 };
    int ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < connections; i++) {
        struct conn *c = open_conn(p, i, atoi(ports[i % n_ports]));
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev) != 0)
            fail(c, "epoll");
    }
    uint64_t start = now_us() + WARM_US;
    uint64_t end = start + (uint64_t)(seconds * 1e6);
    uint64_t pairs = 0;
    for (uint64_t now = 0; now < end; now = now_us()) {
        struct epoll_event evs[EVENTS];
        int n = epoll_wait(ep, evs, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            unsigned done = serve(p, evs[i].data.ptr);
            pairs += now >= start ? done : 0;
        }
    }
    return (double)pairs / seconds;
}

int main(int argc, char **argv)
{
    int connections = argc > 4 ? atoi(argv[2]) : 0;
    double seconds = argc > 4 ? atof(argv[3]) : 0;
    for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
        if (connections < 1 || connections > CONNECTIONS_MAX || !(seconds > 0) ||
            strcmp(argv[1], peers[i].name) != 0)
            continue;
        printf("%.0f\n", run(&peers[i], connections, seconds, argv + 4, argc - 4));
        return 0;
    }
    fprintf(stderr, "usage: pairs belay|etcd|zookeeper CONNECTIONS SECONDS PORT...\n");
    return 2;
}
