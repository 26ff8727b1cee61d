/* peer.c - the sockets between nodes; see peer.h.
 *
 *   peers_want() -> RESTING --timer--> LOOKUP -> CONNECTING -> UP --error--> RESTING
 *   accept -> hello -> frames -> any error closes it: the other side comes again */
#include "engine/peer.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum {
    READ_BYTES = 256 << 10,
    BACKLOG = 64,
    SAID_BYTES_MAX = 512,        /* to us, on our own connection: a refusal */
    REFUSED_BYTES_MAX = 1 << 20, /* what it may still send before it has read that */
};

enum link_state { LINK_RESTING, LINK_LOOKUP, LINK_CONNECTING, LINK_UP };

/* To one node. */
struct link {
    struct peers *p;
    uint64_t node;
    char host[PEER_TEXT_MAX], port[8];
    uv_timer_t timer;
    uv_getaddrinfo_t lookup;
    uv_connect_t connect;
    uv_tcp_t *tcp; /* NULL: none; freed by its close callback */
    uv_write_t write;
    struct buf out, writing;
    struct buf said; /* by it, on this connection */
    enum link_state state;
    bool busy; /* a write is under way */
    bool wanted;
    uint64_t retry_ms, up_ms;
};

/* From one node. */
struct inlet {
    uv_tcp_t tcp;
    struct peers *p;
    struct list all;
    struct buf in;
    uint64_t node;  /* 0: has not said who it is */
    size_t ignored; /* bytes since it was refused, with one added; 0: it was not */
};

struct peers {
    struct peers_config config;
    uv_tcp_t listener;
    bool listening, stopping;
    struct link *links[PEER_NODES_MAX];
    size_t links_end; /* behind the last one */
    struct peer_hello hellos[PEER_NODES_MAX];
    struct list inlets;
    char *read_mem;
};

static void rest(struct link *l);
static void close_inlet(struct inlet *in);

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)a;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* "host:port", "[v6]:port" */
static bool split(const char *address, char host[PEER_TEXT_MAX], char port[8])
{
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    if (n == 0 || n >= PEER_TEXT_MAX || strlen(colon + 1) >= 8 || colon[1] == '\0')
        return false;
    bool brackets = address[0] == '[' && address[n - 1] == ']';
    memcpy(host, address + brackets, n - 2 * (size_t)brackets);
    host[n - 2 * (size_t)brackets] = '\0';
    snprintf(port, 8, "%s", colon + 1);
    return true;
}

/* --- out --- */

static void on_tcp_closed(uv_handle_t *h)
{
    free(h);
}

static void drop_link(struct link *l)
{
    if (l->tcp && !uv_is_closing((uv_handle_t *)l->tcp))
        uv_close((uv_handle_t *)l->tcp, on_tcp_closed);
    l->tcp = NULL;
    buf_clear(&l->out);
    buf_clear(&l->said);
    if (l->state == LINK_UP) {
        log_warn("peer.down", "node=%" PRIu64, l->node);
        if (uv_now(l->p->config.loop) >= l->up_ms + PEER_RETRY_MAX_MS)
            l->retry_ms = PEER_RETRY_MIN_MS; /* it had listened to us */
    }
    if (l->state != LINK_LOOKUP)
        rest(l);
}

static void on_written(uv_write_t *w, int status)
{
    struct link *l = w->data;
    l->busy = false;
    buf_clear(&l->writing);
    if (l->writing.cap > READ_BYTES)
        buf_done(&l->writing);
    if (w->handle != (uv_stream_t *)l->tcp)
        return; /* of a connection that is closed already */
    if (status < 0)
        drop_link(l);
}

/* What the socket does not take at once is written when it can be; that costs another turn of
 * the loop, and so it is not the rule. */
static void write_later(struct link *l)
{
    struct buf spare = l->writing;
    l->writing = l->out;
    l->out = spare;
    buf_clear(&l->out);
    uv_buf_t b = uv_buf_init(l->writing.mem + l->writing.start, (unsigned)buf_len(&l->writing));
    l->busy = true;
    l->write.data = l;
    if (uv_write(&l->write, (uv_stream_t *)l->tcp, &b, 1, on_written) != 0) {
        l->busy = false;
        drop_link(l);
    }
}

static void flush_link(struct link *l)
{
    if (l->state != LINK_UP || l->busy || buf_len(&l->out) == 0)
        return;
    BELAY_CHECK(!l->out.oom);
    uv_buf_t b = uv_buf_init(l->out.mem + l->out.start, (unsigned)buf_len(&l->out));
    int n = uv_try_write((uv_stream_t *)l->tcp, &b, 1);
    if (n < 0 && n != UV_EAGAIN) {
        drop_link(l);
        return;
    }
    buf_consume(&l->out, n > 0 ? (size_t)n : 0);
    if (buf_len(&l->out) > 0)
        write_later(l);
    else if (l->out.cap > READ_BYTES)
        buf_done(&l->out);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
    static char memory[SAID_BYTES_MAX];
    (void)h;
    (void)suggested;
    *ret = uv_buf_init(memory, sizeof memory);
}

/* Nothing is ever said on this side, but why we are not listened to. */
static void take_refusal(struct link *l)
{
    struct peer_refusal refusal;
    struct slice frame;
    size_t used;
    int got = peer_frame_next(buf_slice(&l->said), &frame, &used);
    if (got > 0 && peer_refusal_decode(frame, &refusal) == BELAY_OK && l->p->config.refused)
        l->p->config.refused(l->p->config.ctx, l->node, &refusal);
    if (got != 0 || buf_len(&l->said) > SAID_BYTES_MAX)
        drop_link(l);
}

static void on_link_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct link *l = s->data;
    if (n == 0 || l->tcp != (uv_tcp_t *)s)
        return;
    if (n < 0) {
        drop_link(l);
        return;
    }
    buf_put(&l->said, b->base, (size_t)n);
    take_refusal(l);
}

static void on_connected(uv_connect_t *c, int status)
{
    struct link *l = c->data;
    if (c->handle != (uv_stream_t *)l->tcp)
        return;
    if (status < 0) {
        drop_link(l);
        return;
    }
    struct buf hello = {0};
    (void)uv_tcp_nodelay(l->tcp, 1);
    (void)uv_read_start((uv_stream_t *)l->tcp, on_alloc, on_link_read);
    l->state = LINK_UP;
    l->up_ms = uv_now(l->p->config.loop);
    buf_clear(&l->out);
    peer_hello_encode(&l->p->config.self, &hello);
    peer_frame_put(&l->out, buf_slice(&hello));
    buf_done(&hello);
    log_info("peer.up", "node=%" PRIu64, l->node);
    l->p->config.up(l->p->config.ctx, l->node);
    flush_link(l);
}

static void on_found(uv_getaddrinfo_t *r, int status, struct addrinfo *found)
{
    struct link *l = r->data;
    bool ok = status == 0 && !l->p->stopping && l->wanted;
    if (ok && !is_loopback(found->ai_addr) && !l->p->config.insecure) {
        log_error("peer.address",
                  "node=%" PRIu64 " error=\"beyond loopback without --insecure\"", l->node);
        ok = false;
    }
    if (ok) {
        l->tcp = mem_zalloc(sizeof *l->tcp);
        (void)uv_tcp_init(l->p->config.loop, l->tcp);
        l->tcp->data = l;
        l->connect.data = l;
        l->state = LINK_CONNECTING;
        ok = uv_tcp_connect(&l->connect, l->tcp, found->ai_addr, on_connected) == 0;
    }
    if (!ok) {
        l->state = LINK_RESTING;
        drop_link(l);
    }
    uv_freeaddrinfo(found);
}

static void on_retry(uv_timer_t *t)
{
    struct link *l = t->data;
    if (l->state != LINK_RESTING || l->busy || !l->wanted) {
        if (l->wanted && l->busy)
            rest(l);
        return;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    l->lookup.data = l;
    l->state = LINK_LOOKUP;
    if (uv_getaddrinfo(l->p->config.loop, &l->lookup, on_found, l->host, l->port, &hints) !=
        0) {
        l->state = LINK_RESTING;
        rest(l);
    }
}

static void rest(struct link *l)
{
    l->state = LINK_RESTING;
    if (l->p->stopping || !l->wanted)
        return;
    (void)uv_timer_start(&l->timer, on_retry, l->retry_ms, 0);
    l->retry_ms = 2 * l->retry_ms < PEER_RETRY_MAX_MS ? 2 * l->retry_ms : PEER_RETRY_MAX_MS;
}

void peers_want(struct peers *p, uint64_t node, const char *address)
{
    BELAY_CHECK(node > 0 && node < PEER_NODES_MAX);
    struct link *l = p->links[node];
    if (!l) {
        l = p->links[node] = mem_zalloc(sizeof *l);
        l->p = p;
        l->node = node;
        if (node >= p->links_end)
            p->links_end = (size_t)node + 1;
        (void)uv_timer_init(p->config.loop, &l->timer);
        l->timer.data = l;
    }
    char host[PEER_TEXT_MAX];
    char port[8];
    if (!split(address, host, port))
        return;
    bool same = strcmp(host, l->host) == 0 && strcmp(port, l->port) == 0;
    if (l->wanted && same)
        return;
    memcpy(l->host, host, sizeof host);
    memcpy(l->port, port, sizeof port);
    l->wanted = true;
    l->retry_ms = PEER_RETRY_MIN_MS;
    if (l->state == LINK_RESTING)
        (void)uv_timer_start(&l->timer, on_retry, 0, 0);
    else
        drop_link(l);
}

void peers_forget(struct peers *p, uint64_t node)
{
    struct link *l = p->links[node];
    list_each_safe(it, &p->inlets)
    {
        struct inlet *in = list_item(it, struct inlet, all);
        if (in->node == node)
            close_inlet(in);
    }
    if (!l || !l->wanted)
        return;
    l->wanted = false;
    drop_link(l);
}

void peers_send(struct peers *p, uint64_t node, struct slice frame)
{
    struct link *l = node < PEER_NODES_MAX ? p->links[node] : NULL;
    if (!l || l->state != LINK_UP || frame.len > PEER_FRAME_MAX)
        return;
    if (buf_len(&l->out) > 0 && buf_len(&l->out) + frame.len > PEER_QUEUE_BYTES_MAX)
        return; /* it does not keep up */
    peer_frame_put(&l->out, frame);
}

void peers_flush(struct peers *p)
{
    for (size_t i = 0; i < p->links_end; i++)
        if (p->links[i])
            flush_link(p->links[i]);
}

bool peers_is_up(const struct peers *p, uint64_t node)
{
    return node < PEER_NODES_MAX && p->links[node] && p->links[node]->state == LINK_UP;
}

const struct peer_hello *peers_hello(const struct peers *p, uint64_t node)
{
    return node < PEER_NODES_MAX && p->hellos[node].node ? &p->hellos[node] : NULL;
}

/* --- in --- */

static void on_inlet_closed(uv_handle_t *h)
{
    struct inlet *in = h->data;
    list_remove(&in->all);
    buf_done(&in->in);
    free(in);
}

static void close_inlet(struct inlet *in)
{
    if (!uv_is_closing((uv_handle_t *)&in->tcp))
        uv_close((uv_handle_t *)&in->tcp, on_inlet_closed);
}

/* Unless it has come again already. */
static void tell_lost(const struct inlet *lost)
{
    struct peers *p = lost->p;
    list_each (it, &p->inlets) {
        const struct inlet *in = list_item(it, struct inlet, all);
        if (in != lost && in->node == lost->node)
            return;
    }
    if (lost->node && p->config.lost && !p->stopping)
        p->config.lost(p->config.ctx, lost->node);
}

/* It is told, and ignored until it goes: closing at once could take the words back. */
static bool say_no(struct inlet *in, const struct peer_refusal *refusal)
{
    struct buf text = {0};
    struct buf frame = {0};
    if (refusal->why[0] == '\0')
        return false;
    peer_refusal_encode(refusal, &text);
    peer_frame_put(&frame, buf_slice(&text));
    BELAY_CHECK(!frame.oom);
    uv_buf_t b = uv_buf_init(frame.mem + frame.start, (unsigned)buf_len(&frame));
    bool said = uv_try_write((uv_stream_t *)&in->tcp, &b, 1) == (int)b.len;
    in->ignored = 1;
    buf_done(&text);
    buf_done(&frame);
    return said;
}

static bool take_hello(struct inlet *in, struct slice frame)
{
    struct peer_hello hello;
    struct peers *p = in->p;
    if (peer_hello_decode(frame, &hello) != BELAY_OK || hello.node == p->config.self.node) {
        log_warn("peer.stranger", "bytes=%zu", frame.len);
        return false;
    }
    struct peer_refusal refusal = {0};
    if (!p->config.accept(p->config.ctx, &hello, &refusal))
        return say_no(in, &refusal);
    in->node = hello.node;
    p->hellos[hello.node] = hello;
    return true;
}

static bool take_frames(struct inlet *in)
{
    struct slice frame;
    size_t used;
    int got;
    while ((got = peer_frame_next(buf_slice(&in->in), &frame, &used)) > 0) {
        if (in->ignored)
            return true;
        if (in->node == 0) {
            if (!take_hello(in, frame))
                return false;
        } else {
            in->p->config.frame(in->p->config.ctx, in->node, frame);
        }
        buf_consume(&in->in, used);
    }
    return got == 0;
}

static void on_inlet_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
    struct inlet *in = h->data;
    (void)suggested;
    *ret = uv_buf_init(in->p->read_mem, READ_BYTES);
}

static void on_inlet_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct inlet *in = s->data;
    if (n == 0)
        return;
    if (in->ignored) {
        in->ignored += n > 0 ? (size_t)n : 0;
        if (n < 0 || in->ignored > REFUSED_BYTES_MAX)
            close_inlet(in);
        return;
    }
    if (n > 0)
        buf_put(&in->in, b->base, (size_t)n);
    /* A first frame larger than a hello can be is nobody's. */
    bool stranger =
        in->node == 0 && buf_len(&in->in) > (size_t)4 * PEER_TEXT_MAX && n == READ_BYTES;
    if (n < 0 || in->in.oom || stranger || !take_frames(in)) {
        close_inlet(in);
        tell_lost(in);
    } else {
        buf_shrink(&in->in);
    }
}

static void on_peer(uv_stream_t *listener, int status)
{
    struct peers *p = listener->data;
    if (status < 0)
        return;
    struct inlet *in = mem_zalloc(sizeof *in);
    in->p = p;
    (void)uv_tcp_init(p->config.loop, &in->tcp);
    in->tcp.data = in;
    list_push_back(&p->inlets, &in->all);
    if (uv_accept(listener, (uv_stream_t *)&in->tcp) != 0 ||
        uv_read_start((uv_stream_t *)&in->tcp, on_inlet_alloc, on_inlet_read) != 0)
        close_inlet(in);
}

/* --- start and end --- */

static bool listen_on(struct peers *p)
{
    char host[PEER_TEXT_MAX];
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    if (!split(p->config.listen, host, port) || getaddrinfo(host, port, &hints, &found) != 0) {
        log_error("peer.listen", "address=%s error=\"not an address\"", p->config.listen);
        return false;
    }
    bool ok = is_loopback(found->ai_addr) || p->config.insecure;
    if (!ok)
        log_error("peer.listen",
                  "address=%s error=\"refusing peers beyond loopback without mutual TLS; "
                  "--insecure if you must\"",
                  p->config.listen);
    int err = ok ? uv_tcp_bind(&p->listener, found->ai_addr, 0) : 0;
    if (ok && err == 0)
        err = uv_listen((uv_stream_t *)&p->listener, BACKLOG, on_peer);
    if (err != 0)
        log_error("peer.listen", "address=%s error=\"%s\"", p->config.listen, uv_strerror(err));
    freeaddrinfo(found);
    return ok && err == 0;
}

enum belay_err peers_open(const struct peers_config *config, struct peers **ret)
{
    struct peers *p = mem_zalloc(sizeof *p);
    p->config = *config;
    p->read_mem = mem_alloc(READ_BYTES);
    list_init(&p->inlets);
    *ret = p;
    if (!config->listen)
        return BELAY_OK;
    (void)uv_tcp_init(config->loop, &p->listener);
    p->listener.data = p;
    p->listening = true;
    return listen_on(p) ? BELAY_OK : BELAY_ERR_IO;
}

void peers_stop(struct peers *p)
{
    if (p->stopping)
        return;
    p->stopping = true;
    if (p->listening)
        uv_close((uv_handle_t *)&p->listener, NULL);
    list_each_safe(it, &p->inlets) close_inlet(list_item(it, struct inlet, all));
    for (size_t i = 0; i < PEER_NODES_MAX; i++) {
        struct link *l = p->links[i];
        if (!l)
            continue;
        l->wanted = false;
        uv_close((uv_handle_t *)&l->timer, NULL);
        if (l->tcp && !uv_is_closing((uv_handle_t *)l->tcp))
            uv_close((uv_handle_t *)l->tcp, on_tcp_closed);
        l->tcp = NULL;
        l->state = LINK_RESTING;
    }
}

void peers_close(struct peers *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < PEER_NODES_MAX; i++) {
        if (!p->links[i])
            continue;
        buf_done(&p->links[i]->out);
        buf_done(&p->links[i]->writing);
        buf_done(&p->links[i]->said);
        free(p->links[i]);
    }
    free(p->read_mem);
    free(p);
}
