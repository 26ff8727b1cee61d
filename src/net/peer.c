/* peer.c - connections from the other nodes; see peer.h. Those to them: peer_link.c.
 *
 *   accept -> hello -> frames -> any error closes it: the other side comes again */
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/peer_core.h"

#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACKLOG = 64,
    LOOK_MS = 1000,
    SAY_MS = 10000,  /* between two lines about callers that prove nothing */
    HELLO_MS = 5000, /* a caller says which node it is by then, or is closed */
    HELLO_BYTES_MAX = 4 * PEER_TEXT_MAX, /* a hello is smaller */
    REFUSED_BYTES_MAX = 1 << 20,         /* what it may still send before it has read that */
};

static void close_inlet(struct inlet *in);

bool peer_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)a;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool peer_split(const char *address, char host[PEER_TEXT_MAX], char port[8])
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

void peer_set_options(uv_tcp_t *tcp)
{
    static const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_NODELAY, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, PEER_SILENCE_MS / 1000},
                   {IPPROTO_TCP, TCP_KEEPINTVL, PEER_SILENCE_MS / 1000},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, PEER_SILENCE_MS}};
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)tcp, &fd) != 0)
        return;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

void peer_unproven(struct peers *p, struct link *l, const char *why)
{
    uint64_t now = uv_now(p->config.loop);
    uint64_t *say_ms = l ? &l->unproven_ms : &p->unproven_ms;
    if (now < *say_ms)
        return;
    *say_ms = now + SAY_MS;
    log_warn("peer.unproven", "node=%" PRIu64 " error=\"%s\"", l ? l->node : 0, why);
}

bool peer_send_tls(struct tls *t, uv_tcp_t *tcp)
{
    struct buf out = {0};
    tls_drain(t, &out);
    BELAY_CHECK(!out.oom);
    uv_buf_t b = uv_buf_init(out.mem + out.start, (unsigned)buf_len(&out));
    bool sent = b.len == 0 || uv_try_write((uv_stream_t *)tcp, &b, 1) == (int)b.len;
    buf_done(&out);
    return sent;
}

void peers_forget(struct peers *p, bool (*is_gone)(void *ctx, uint64_t node),
                  bool (*is_member)(void *ctx, uint64_t node))
{
    for (size_t i = 0; i < NODE_PLACES; i++) {
        struct inlet *in = p->inlets_in[i];
        struct link *l = p->links[i];
        if (in && is_gone(p->config.ctx, in->node))
            close_inlet(in);
        if (!l || !l->wanted)
            continue;
        bool calls = in && in->node == l->node;
        if (is_gone(p->config.ctx, l->node) || (!calls && !is_member(p->config.ctx, l->node)))
            link_forget(l);
    }
}

bool peers_is_up(const struct peers *p, uint64_t node)
{
    const struct link *l = link_find(p, node);
    const struct inlet *in = p->inlets_in[place_of(node)];
    return l && l->use && in && in->node == node;
}

const struct peer_hello *peers_hello(const struct peers *p, uint64_t node)
{
    const struct peer_hello *hello = &p->hellos[place_of(node)];
    return hello->node == node ? hello : NULL;
}

/* --- in --- */

static void on_inlet_closed(uv_handle_t *h)
{
    struct inlet *in = h->data;
    list_remove(&in->all);
    tls_close(in->tls);
    buf_done(&in->in);
    free(in);
}

static void close_inlet(struct inlet *in)
{
    if (in->node && in->p->inlets_in[place_of(in->node)] == in)
        in->p->inlets_in[place_of(in->node)] = NULL;
    if (!uv_is_closing((uv_handle_t *)&in->tcp))
        uv_close((uv_handle_t *)&in->tcp, on_inlet_closed);
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
    bool said = in->tls && tls_write(in->tls, buf_slice(&frame)) == TLS_OPEN &&
                peer_send_tls(in->tls, &in->tcp);
    uv_buf_t b = uv_buf_init(frame.mem + frame.start, (unsigned)buf_len(&frame));
    if (!in->tls)
        said = uv_try_write((uv_stream_t *)&in->tcp, &b, 1) == (int)b.len;
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
    hello.proven = in->tls && tls_is(in->tls, hello.name);
    if (in->tls && !hello.proven) {
        peer_unproven(p, NULL, "its certificate does not carry the name that it says");
        return false;
    }
    struct peer_refusal refusal = {0};
    if (!p->config.accept(p->config.ctx, &hello, &refusal))
        return say_no(in, &refusal);
    size_t place = place_of(hello.node);
    struct inlet *older = p->inlets_in[place];
    if (older) /* it has none but this one any more, whether its end has come or got lost */
        close_inlet(older);
    in->node = hello.node;
    p->inlets_in[place] = in;
    p->hellos[place] = hello;
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
        } else if (!in->p->config.frame(in->p->config.ctx, in->node, frame)) {
            return false;
        }
        buf_consume(&in->in, used);
    }
    return got == 0;
}

/* Its connection to us has ended, and it has no other. */
static void lose_inlet(struct inlet *in)
{
    struct peers *p = in->p;
    bool lost = in->node && p->inlets_in[place_of(in->node)] == in;
    close_inlet(in);
    if (lost && p->config.lost && !p->stopping)
        p->config.lost(p->config.ctx, in->node);
}

static void on_inlet_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
    struct inlet *in = h->data;
    (void)suggested;
    *ret = uv_buf_init(in->p->read_mem, PEER_READ_BYTES);
}

/* False: it ends. */
static bool take_bytes(struct inlet *in, struct slice bytes)
{
    if (!in->tls) {
        buf_put_slice(&in->in, bytes);
        return !in->in.oom;
    }
    enum tls_state state = tls_feed(in->tls, bytes, &in->in);
    if (state == TLS_FAILED)
        peer_unproven(in->p, NULL, tls_problem(in->tls));
    return peer_send_tls(in->tls, &in->tcp) && state != TLS_FAILED && state != TLS_CLOSED;
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
    bool stays = n > 0 && take_bytes(in, slice_of(b->base, (size_t)n)) && take_frames(in);
    /* A first frame larger than a hello can be is nobody's. */
    if (!stays || (in->node == 0 && !in->ignored && buf_len(&in->in) > HELLO_BYTES_MAX)) {
        lose_inlet(in);
    } else {
        buf_shrink(&in->in);
    }
}

/* Callers that do not say which node they are can fill all places for such callers. So the oldest
 * of them gives way: a real node says it at once. */
static void make_room(struct peers *p)
{
    struct inlet *oldest = NULL;
    size_t n = 0;
    list_each (it, &p->inlets) {
        struct inlet *in = list_item(it, struct inlet, all);
        if (in->node || uv_is_closing((uv_handle_t *)&in->tcp))
            continue;
        oldest = oldest ? oldest : in;
        n++;
    }
    if (n > PEER_STRANGERS_MAX)
        close_inlet(oldest);
}

static void on_peer(uv_stream_t *listener, int status)
{
    struct peers *p = listener->data;
    if (status < 0)
        return;
    struct inlet *in = mem_zalloc(sizeof *in);
    in->p = p;
    in->since_ms = uv_now(p->config.loop);
    (void)uv_tcp_init(p->config.loop, &in->tcp);
    in->tcp.data = in;
    in->tls = p->config.tls ? tls_open(p->config.tls, true) : NULL;
    BELAY_CHECK(in->tls || !p->config.tls);
    list_push_back(&p->inlets, &in->all);
    if (uv_accept(listener, (uv_stream_t *)&in->tcp) != 0 ||
        uv_read_start((uv_stream_t *)&in->tcp, on_inlet_alloc, on_inlet_read) != 0)
        close_inlet(in);
    else
        peer_set_options(&in->tcp);
    make_room(p);
}

/* Closes callers that have said nothing, and refused ones that do not close by themselves. */
static void on_look(uv_timer_t *t)
{
    struct peers *p = t->data;
    uint64_t now = uv_now(p->config.loop);
    list_each_safe(it, &p->inlets)
    {
        struct inlet *in = list_item(it, struct inlet, all);
        if (in->node == 0 && now - in->since_ms >= HELLO_MS)
            close_inlet(in);
    }
    for (size_t i = 0; i < p->links_end; i++)
        if (p->links[i])
            link_look(p->links[i]);
}

void peers_prove(struct peers *p)
{
    list_each_safe(it, &p->inlets)
    {
        struct inlet *in = list_item(it, struct inlet, all);
        if (!in->tls || tls_is_believed(in->tls, p->config.tls))
            continue;
        peer_unproven(p, NULL, tls_problem(in->tls));
        lose_inlet(in);
    }
    for (size_t i = 0; i < p->links_end; i++)
        if (p->links[i])
            link_prove(p->links[i]);
}

/* --- start and end --- */

static bool listen_on(struct peers *p)
{
    char host[PEER_TEXT_MAX];
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    if (!peer_split(p->config.listen, host, port) ||
        getaddrinfo(host, port, &hints, &found) != 0) {
        log_error("peer.listen", "address=%s error=\"not an address\"", p->config.listen);
        return false;
    }
    bool ok = peer_is_loopback(found->ai_addr) || p->config.insecure || p->config.tls;
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
    p->read_mem = mem_alloc(PEER_READ_BYTES);
    list_init(&p->inlets);
    (void)uv_timer_init(config->loop, &p->timer);
    p->timer.data = p;
    (void)uv_timer_start(&p->timer, on_look, LOOK_MS, LOOK_MS);
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
    uv_close((uv_handle_t *)&p->timer, NULL);
    for (size_t i = 0; i < p->links_end; i++)
        if (p->links[i])
            link_stop(p->links[i]);
}

void peers_close(struct peers *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->links_end; i++)
        if (p->links[i])
            link_done(p->links[i]);
    free(p->read_mem);
    free(p);
}
