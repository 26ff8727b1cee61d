/* peer_link.c - connections to the other nodes.
 *
 *   peers_want() -> attempts, the next address of the name each time, until one is connected
 *                   -> in use --error, silence, refusal--> attempts ...
 *
 * TCP waits longer and longer between its own tries: after a cut of a minute the next one is
 * half a minute away. So a new attempt is made every PEER_RETRY_MAX_MS, beside those that are
 * still on their way, and the first that succeeds is used. */
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/peer_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAID_BYTES_MAX = 512, /* to us, on our own connection: a refusal */
    CONNECT_MS = 1000,    /* an attempt takes no longer than that */
    LOOKUP_MS = 2000,     /* a name is looked up again so long after */
    SAY_MS = 10000,       /* between two lines about one node */
    BRIEF_MAX_MS = 500,   /* a node that closes at once is called again so long after */
    WRITE_ENDS_MS = 1,    /* the last write of a closed connection is about to end */
};

static void try_again(struct link *l, uint64_t after_ms);

static uint64_t now_ms(const struct link *l)
{
    return uv_now(l->p->config.loop);
}

/* --- the log: the first change at once, the others counted --- */

static void say(struct link *l)
{
    uint64_t now = now_ms(l);
    if (l->changes == 0 || now < l->say_ms)
        return;
    if (l->use)
        log_info("peer.up", "node=%" PRIu64 " changes=%" PRIu64, l->node, l->changes);
    else
        log_warn("peer.down", "node=%" PRIu64 " changes=%" PRIu64, l->node, l->changes);
    l->say_ms = now + SAY_MS;
    l->changes = 0;
}

void link_look(struct link *l)
{
    if (l->wanted)
        say(l);
}

/* --- the connection in use --- */

static void on_closed(uv_handle_t *h)
{
    struct attempt *a = h->data;
    tls_close(a->tls);
    free(a);
}

static void drop_attempt(struct attempt *a)
{
    a->link = NULL;
    if (!uv_is_closing((uv_handle_t *)&a->tcp))
        uv_close((uv_handle_t *)&a->tcp, on_closed);
}

static void drop_attempts(struct link *l)
{
    for (size_t i = 0; i < l->n_attempts; i++)
        drop_attempt(l->attempts[i]);
    l->n_attempts = 0;
}

/* The connection has ended. A node that closes one soon after it was made may not want to hear
 * us: each next attempt then comes later. */
static void drop_link(struct link *l)
{
    if (!l->use)
        return;
    drop_attempt(l->use);
    l->use = NULL;
    buf_clear(&l->out);
    buf_clear(&l->wire);
    buf_clear(&l->said);
    bool brief = now_ms(l) < l->up_ms + PEER_STEADY_MS;
    l->brief_ms = brief ? 2 * l->brief_ms : PEER_RETRY_MIN_MS;
    if (l->brief_ms > BRIEF_MAX_MS)
        l->brief_ms = BRIEF_MAX_MS;
    l->retry_ms = PEER_RETRY_MIN_MS;
    l->changes++;
    say(l);
    try_again(l, l->brief_ms);
}

void link_prove(struct link *l)
{
    if (!l->use || !l->use->tls || tls_is_believed(l->use->tls, l->p->config.tls))
        return;
    peer_unproven(l->p, l, tls_problem(l->use->tls));
    drop_link(l);
}

static void on_written(uv_write_t *w, int status)
{
    struct link *l = w->data;
    l->busy = false;
    buf_clear(&l->writing);
    if (l->writing.cap > PEER_READ_BYTES)
        buf_done(&l->writing);
    if (!l->use || w->handle != (uv_stream_t *)&l->use->tcp)
        return; /* of a connection that is closed already */
    if (status < 0)
        drop_link(l);
}

/* What the socket does not take at once is written when it can be; that costs another turn of
 * the loop, and so it is not the rule. */
static void write_later(struct link *l, struct buf *rest)
{
    struct buf spare = l->writing;
    l->writing = *rest;
    *rest = spare;
    buf_clear(rest);
    uv_buf_t b = uv_buf_init(l->writing.mem + l->writing.start, (unsigned)buf_len(&l->writing));
    l->busy = true;
    l->write.data = l;
    if (uv_write(&l->write, (uv_stream_t *)&l->use->tcp, &b, 1, on_written) != 0) {
        l->busy = false;
        drop_link(l);
    }
}

/* What is to be sent now. */
static struct buf *bytes_of(struct link *l)
{
    struct tls *t = l->use->tls;
    if (!t)
        return &l->out;
    if (tls_write(t, buf_slice(&l->out)) == TLS_OPEN)
        tls_drain(t, &l->wire);
    buf_clear(&l->out);
    if (l->out.cap > PEER_READ_BYTES)
        buf_done(&l->out);
    return &l->wire;
}

static void flush_link(struct link *l)
{
    if (!l->use || l->busy || buf_len(&l->out) == 0)
        return;
    BELAY_CHECK(!l->out.oom);
    struct buf *bytes = bytes_of(l);
    BELAY_CHECK(!bytes->oom);
    uv_buf_t b = uv_buf_init(bytes->mem + bytes->start, (unsigned)buf_len(bytes));
    int n = uv_try_write((uv_stream_t *)&l->use->tcp, &b, 1);
    if (n < 0 && n != UV_EAGAIN) {
        drop_link(l);
        return;
    }
    buf_consume(bytes, n > 0 ? (size_t)n : 0);
    if (buf_len(bytes) > 0)
        write_later(l, bytes);
    else if (bytes->cap > PEER_READ_BYTES)
        buf_done(bytes);
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

static void use_attempt(struct link *l, struct attempt *a);
static void forget_attempt(struct link *l, const struct attempt *a);

static void end_attempt(struct link *l, struct attempt *a)
{
    if (a == l->use) {
        drop_link(l);
        return;
    }
    forget_attempt(l, a); /* the timer makes the next one */
    drop_attempt(a);
}

/* False: it is not, or no longer, the node that it should be. */
static bool take_bytes(struct link *l, struct attempt *a, struct slice bytes)
{
    if (!a->tls) {
        buf_put_slice(&l->said, bytes);
        return !l->said.oom;
    }
    enum tls_state before = tls_state(a->tls);
    enum tls_state state = tls_feed(a->tls, bytes, &l->said);
    if (state == TLS_FAILED)
        peer_unproven(l->p, l, tls_problem(a->tls));
    if (!peer_send_tls(a->tls, &a->tcp) || state == TLS_FAILED || state == TLS_CLOSED)
        return false;
    if (before == state)
        return true;
    if (!tls_is(a->tls, l->name)) {
        peer_unproven(l->p, l, "its certificate does not carry the name of this node");
        return false;
    }
    use_attempt(l, a);
    return true;
}

static void on_link_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct attempt *a = s->data;
    struct link *l = a->link;
    if (n == 0 || !l)
        return;
    if (n < 0 || !take_bytes(l, a, slice_of(b->base, (size_t)n)))
        end_attempt(l, a);
    else if (a == l->use)
        take_refusal(l);
}

/* --- attempts --- */

static void forget_attempt(struct link *l, const struct attempt *a)
{
    for (size_t i = 0; i < l->n_attempts; i++) {
        if (l->attempts[i] != a)
            continue;
        l->n_attempts--;
        memmove(&l->attempts[i], &l->attempts[i + 1], (l->n_attempts - i) * sizeof(void *));
        return;
    }
}

static void use_attempt(struct link *l, struct attempt *a)
{
    struct buf hello = {0};
    forget_attempt(l, a);
    drop_attempts(l);
    (void)uv_timer_stop(&l->timer);
    l->use = a;
    l->up_ms = now_ms(l);
    l->changes++;
    buf_clear(&l->out);
    peer_hello_encode(&l->p->config.self, &hello);
    peer_frame_put(&l->out, buf_slice(&hello));
    buf_done(&hello);
    say(l);
    l->p->config.up(l->p->config.ctx, l->node);
    flush_link(l);
}

static void on_connected(uv_connect_t *c, int status)
{
    struct attempt *a = c->data;
    struct link *l = a->link;
    if (!l)
        return;
    if (status != 0) {
        end_attempt(l, a);
        return;
    }
    peer_set_options(&a->tcp);
    (void)uv_read_start((uv_stream_t *)&a->tcp, on_alloc, on_link_read);
    if (!l->p->config.tls) {
        use_attempt(l, a);
        return;
    }
    a->tls = tls_open(l->p->config.tls, false);
    BELAY_CHECK(a->tls);
    if (!peer_send_tls(a->tls, &a->tcp))
        end_attempt(l, a);
}

/* One is about to be proven: that takes a moment, and another one would not be faster. */
static bool is_shaking(const struct link *l)
{
    for (size_t i = 0; i < l->n_attempts; i++)
        if (l->attempts[i]->tls && now_ms(l) - l->attempts[i]->since_ms < CONNECT_MS)
            return true;
    return false;
}

static void attempt_next(struct link *l)
{
    const struct sockaddr_storage *to = &l->addresses[l->next_address++ % l->n_addresses];
    if (l->n_attempts > 0 && now_ms(l) - l->attempts[0]->since_ms >= CONNECT_MS) {
        struct attempt *oldest = l->attempts[0];
        forget_attempt(l, oldest);
        drop_attempt(oldest);
    }
    if (l->n_attempts == PEER_ATTEMPTS_MAX)
        return;
    struct attempt *a = mem_zalloc(sizeof *a);
    (void)uv_tcp_init(l->p->config.loop, &a->tcp);
    a->tcp.data = a;
    a->connect.data = a;
    a->link = l;
    a->since_ms = now_ms(l);
    if (uv_tcp_connect(&a->connect, &a->tcp, (const struct sockaddr *)to, on_connected) == 0)
        l->attempts[l->n_attempts++] = a;
    else
        drop_attempt(a);
}

/* Those that this node may call. */
static void take_addresses(struct link *l, const struct addrinfo *found)
{
    l->n_addresses = 0;
    for (; found && l->n_addresses < PEER_ADDRESSES_MAX; found = found->ai_next) {
        if (found->ai_addrlen > sizeof l->addresses[0])
            continue;
        if (peer_is_loopback(found->ai_addr) || l->p->config.insecure || l->p->config.tls)
            memcpy(&l->addresses[l->n_addresses++], found->ai_addr, found->ai_addrlen);
    }
    if (l->n_addresses > 0 || now_ms(l) < l->say_ms)
        return;
    l->say_ms = now_ms(l) + SAY_MS;
    log_error("peer.address", "node=%" PRIu64 " error=\"beyond loopback without --insecure\"",
              l->node);
}

/* While a name server is out of reach, what it said last is used. */
static void on_found(uv_getaddrinfo_t *r, int status, struct addrinfo *found)
{
    struct link *l = r->data;
    bool first = l->n_addresses == 0;
    l->looking = false;
    if (status == 0 && found && l->wanted && l->look_ms != 0)
        take_addresses(l, found);
    uv_freeaddrinfo(found);
    if (l->look_ms == 0 || (first && l->n_addresses > 0 && !l->use))
        try_again(l, 0); /* for the address that is wanted by now */
}

static void look_up(struct link *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    if (l->looking || now_ms(l) < l->look_ms)
        return;
    l->lookup.data = l;
    l->look_ms = now_ms(l) + LOOKUP_MS;
    l->looking =
        uv_getaddrinfo(l->p->config.loop, &l->lookup, on_found, l->host, l->port, &hints) == 0;
}

static void on_try(uv_timer_t *t)
{
    struct link *l = t->data;
    if (l->use || !l->wanted)
        return;
    if (l->busy) {
        try_again(l, WRITE_ENDS_MS);
        return;
    }
    look_up(l);
    if (l->n_addresses > 0 && !is_shaking(l))
        attempt_next(l);
    try_again(l, l->retry_ms);
    l->retry_ms = 2 * l->retry_ms < PEER_RETRY_MAX_MS ? 2 * l->retry_ms : PEER_RETRY_MAX_MS;
}

static void try_again(struct link *l, uint64_t after_ms)
{
    if (!l->p->stopping && l->wanted)
        (void)uv_timer_start(&l->timer, on_try, after_ms, 0);
}

/* --- peer.h --- */

struct link *link_find(const struct peers *p, uint64_t node)
{
    struct link *l = p->links[place_of(node)];
    return l && l->node == node ? l : NULL;
}

static struct link *link_open(struct peers *p, size_t place)
{
    struct link *l = p->links[place] = mem_zalloc(sizeof *l);
    l->p = p;
    if (place >= p->links_end)
        p->links_end = place + 1;
    (void)uv_timer_init(p->config.loop, &l->timer);
    l->timer.data = l;
    return l;
}

void peers_want(struct peers *p, uint64_t node, const char *name, const char *address)
{
    size_t place = place_of(node);
    BELAY_CHECK(place != 0);
    struct link *l = p->links[place] ? p->links[place] : link_open(p, place);
    if (node < l->node)
        return;
    if (node > l->node) {
        link_forget(l);
        l->node = node;
    }
    char host[PEER_TEXT_MAX];
    char port[8];
    if (!peer_split(address, host, port))
        return;
    bool same =
        strcmp(host, l->host) == 0 && strcmp(port, l->port) == 0 && strcmp(name, l->name) == 0;
    if (l->wanted && same)
        return;
    memcpy(l->host, host, sizeof host);
    memcpy(l->port, port, sizeof port);
    snprintf(l->name, sizeof l->name, "%s", name);
    l->wanted = true;
    l->n_addresses = 0;
    l->look_ms = 0;
    drop_attempts(l);
    drop_link(l);
    l->retry_ms = l->brief_ms = PEER_RETRY_MIN_MS;
    try_again(l, 0);
}

void link_forget(struct link *l)
{
    if (!l->wanted)
        return;
    l->wanted = false;
    (void)uv_timer_stop(&l->timer);
    drop_attempts(l);
    drop_link(l);
}

static size_t unsent(const struct link *l)
{
    return buf_len(&l->out) + buf_len(&l->wire) + buf_len(&l->writing);
}

static size_t queue_max(const struct peers *p)
{
    size_t links = 0;
    for (size_t i = 0; i < p->links_end; i++)
        links += p->links[i] != NULL;
    size_t each = p->config.queue_bytes / (links ? links : 1);
    return each && each < PEER_QUEUE_BYTES_MAX ? each : PEER_QUEUE_BYTES_MAX;
}

size_t peers_bytes(const struct peers *p)
{
    size_t bytes = 0;
    for (size_t i = 0; i < p->links_end; i++) {
        const struct link *l = p->links[i];
        bytes += l ? l->out.cap + l->wire.cap + l->writing.cap + l->said.cap : 0;
    }
    list_each (it, &p->inlets)
        bytes += list_item(it, struct inlet, all)->in.cap;
    return bytes;
}

void peers_send(struct peers *p, uint64_t node, struct slice frame)
{
    struct link *l = link_find(p, node);
    if (!l || !l->use || frame.len > PEER_FRAME_MAX)
        return;
    size_t waits = unsent(l);
    if (waits > 0 && waits + frame.len > queue_max(p))
        return; /* it does not keep up */
    peer_frame_put(&l->out, frame);
}

void peers_flush(struct peers *p)
{
    for (size_t i = 0; i < p->links_end; i++)
        if (p->links[i])
            flush_link(p->links[i]);
}

bool peers_is_steady(const struct peers *p, uint64_t node)
{
    const struct link *l = link_find(p, node);
    return l && l->use && now_ms(l) >= l->up_ms + PEER_STEADY_MS;
}

/* --- end --- */

void link_stop(struct link *l)
{
    l->wanted = false;
    uv_close((uv_handle_t *)&l->timer, NULL);
    if (l->looking)
        (void)uv_cancel((uv_req_t *)&l->lookup);
    drop_attempts(l);
    if (l->use)
        drop_attempt(l->use);
    l->use = NULL;
}

void link_done(struct link *l)
{
    buf_done(&l->out);
    buf_done(&l->wire);
    buf_done(&l->writing);
    buf_done(&l->said);
    free(l);
}
