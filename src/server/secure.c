/* secure.c - TLS below a connection: what it sends and receives is sealed, nothing else
 * changes.
 *
 *   on_read() --first byte 0x16--> secure_open(): a handshake is under way
 *             --its bytes--> c->in, in line --secure_go_on(), a slice a turn--> open
 *             --open--> secure_read() -> plain bytes, as if the socket had brought them
 *   write_out() --secure_seal()--> what the socket is given
 *
 * A handshake costs what hundreds of requests cost. So they take turns in slices, beside the
 * requests of all others, and no more of them are under way than CONN_HANDSHAKES_MAX: one more
 * ends the oldest. Of each at most CONN_HANDSHAKE_READ_BYTES are kept. */
#include "base/log.h"
#include "base/mem.h"
#include "base/tally.h"
#include "server/state.h"

#include <inttypes.h>
#include <sys/socket.h>

bool secure_begins(const struct conn *c, struct slice bytes)
{
    return c->server->tls.context && c->door == DOOR_SNIFF && !c->tls && buf_len(&c->in) == 0 &&
           (unsigned char)bytes.data[0] == TLS_FIRST_BYTE;
}

bool secure_is_shaking(const struct conn *c)
{
    return !list_empty(&c->shaking);
}

bool secure_is_in_line(const struct conn *c)
{
    return !list_empty(&c->in_line);
}

void secure_open(struct conn *c)
{
    struct server *s = c->server;
    if (s->n_shaking >= CONN_HANDSHAKES_MAX) {
        s->metrics.tls_failed++;
        conn_close(list_item(s->shaking.next, struct conn, shaking));
    }
    c->tls = tally_is_short() ? NULL : tls_open(s->tls.context, true);
    if (!c->tls) {
        s->metrics.tls_failed++;
        c->doomed = true;
        conn_dirty(c);
        return;
    }
    list_push_back(&s->shaking, &c->shaking);
    s->n_shaking++;
}

/* Its handshake is over, well or not. */
static void settle_hands(struct conn *c)
{
    if (!secure_is_shaking(c))
        return;
    list_remove(&c->shaking);
    list_remove(&c->in_line);
    c->server->n_shaking--;
}

void secure_close(struct conn *c)
{
    settle_hands(c);
    list_remove(&c->in_line);
    tls_close(c->tls);
    c->tls = NULL;
}

/* What became of the bytes that were fed. True: s->plain is for the program. */
static bool go_on(struct conn *c, enum tls_state state)
{
    struct server *s = c->server;
    if (tls_has_output(c->tls))
        conn_dirty(c);
    switch (state) {
    case TLS_SHAKING:
        return false;
    case TLS_OPEN:
    case TLS_CLOSED:
        if (secure_is_shaking(c)) {
            s->metrics.tls_opened++;
            login_certify(c);
        }
        settle_hands(c);
        return true;
    case TLS_FAILED:
        break;
    }
    log_debug("server.tls", "connection=%" PRIu64 " error=\"%s\"", c->id, tls_problem(c->tls));
    s->metrics.tls_failed++;
    settle_hands(c);
    c->unheard = true; /* it is told why, in an alert */
    conn_finish(c);
    return false;
}

bool secure_read(struct conn *c, struct slice *bytes)
{
    struct server *s = c->server;
    if (secure_is_shaking(c)) {
        conn_keep(c, *bytes);
        list_push_back(&s->in_line, &c->in_line);
        conn_stay_awake(s);
        return false;
    }
    buf_clear(&s->plain);
    bool open = go_on(c, tls_feed(c->tls, *bytes, &s->plain));
    *bytes = buf_slice(&s->plain);
    return open;
}

void secure_doubt(struct server *s)
{
    list_each (it, &s->conns) {
        struct conn *c = list_item(it, struct conn, all);
        if (!c->proven || !c->tls || c->closed)
            continue;
        if (secure_is_shaking(c) || secure_is_in_line(c))
            continue;
        list_push_back(&s->doubted, &c->in_line);
    }
    conn_stay_awake(s);
}

static void prove_again(struct conn *c)
{
    list_remove(&c->in_line);
    conn_dirty(c);
    if (tls_is_believed(c->tls, c->server->tls.context))
        return;
    log_debug("server.tls", "connection=%" PRIu64 " error=\"%s\"", c->id, tls_problem(c->tls));
    c->doomed = true;
}

void secure_go_on(struct server *s)
{
    uint64_t until = uv_hrtime() + CONN_HANDSHAKES_SLICE_US * UINT64_C(1000);
    while (!list_empty(&s->doubted) && uv_hrtime() < until)
        prove_again(list_item(s->doubted.next, struct conn, in_line));
    while (!list_empty(&s->in_line) && uv_hrtime() < until) {
        struct conn *c = list_item(s->in_line.next, struct conn, in_line);
        list_remove(&c->in_line);
        buf_clear(&s->plain);
        enum tls_state state = tls_feed(c->tls, buf_slice(&c->in), &s->plain);
        conn_forget_kept(c);
        if (go_on(c, state))
            conn_take(c, buf_slice(&s->plain));
        conn_dirty(c); /* it is written, and read again, at the end of the turn */
    }
}

struct buf *secure_seal(struct conn *c)
{
    struct buf *wire = &c->server->wire;
    size_t n = buf_len(&c->out) < CONN_SEAL_BYTES ? buf_len(&c->out) : CONN_SEAL_BYTES;
    if (n)
        (void)tls_write(c->tls, slice_of(buf_data(&c->out), n));
    if (tls_state(c->tls) == TLS_FAILED)
        n = buf_len(&c->out); /* nobody will read it */
    buf_consume(&c->out, n);
    buf_clear(wire);
    tls_drain(c->tls, wire);
    BELAY_CHECK(!wire->oom);
    return wire;
}

void secure_end(struct conn *c)
{
    struct buf *wire = &c->server->wire;
    tls_end(c->tls);
    buf_clear(wire);
    tls_drain(c->tls, wire);
    if (buf_len(
            wire)) /* as far as it goes: a client that does not read it has been told enough */
        (void)!send(c->fd, buf_data(wire), buf_len(wire), MSG_DONTWAIT | MSG_NOSIGNAL);
}
