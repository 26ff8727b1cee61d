/* ping.c - is the server there?
 *
 * An answer that is due and does not come for CLIENT_SILENCE_MS, or for a part of a kept lease
 * when there is another address, means that the server is left: what was asked is asked again
 * elsewhere, by its request id. Who waits for a push (in a line, or for news) pings.
 *
 * Answers come in order. Behind a request that may wait (a transaction, a command that the
 * library does not know) no other is answered, so it says nothing about the server, and no
 * lease may be renewed there. Then a second connection to the same server is made, the pulse:
 * renewals and pings go there, and if it fails, the first one fails with it. */
#include "client/client.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

struct belay *ping_main(struct belay *b)
{
    return b->main ? b->main : b;
}

/* The oldest request that holds back the answers behind it; NULL: none does. */
static const struct client_call *blocker(const struct belay *b)
{
    const struct client_call *c = b->sent.first;
    while (c && c->prompt)
        c = c->next;
    return c;
}

static int64_t limit_ms(const struct belay *b)
{
    const struct belay *of = b->main ? b->main : b;
    int64_t patience = of->n_addrs > 1 ? lease_patience_ms(of) : INT64_MAX;
    if (patience < CLIENT_BACKOFF_MIN_MS)
        return CLIENT_BACKOFF_MIN_MS;
    return patience < CLIENT_SILENCE_MS ? patience : CLIENT_SILENCE_MS;
}

int64_t ping_connect_ms(const struct belay *b)
{
    const struct belay *of = b->main ? b->main : b;
    bool hurry = b->main || (of->n_addrs > 1 && lease_patience_ms(of) != INT64_MAX);
    int64_t limit = limit_ms(b);
    return hurry && limit < b->connect_ms ? limit : b->connect_ms;
}

/* ---- the second connection ------------------------------------------------------------- */

/* The very server, not another one of the same name. */
static bool find_peer(const struct belay *b, struct addr *at)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    *at = b->addrs[b->at];
    return at->is_path ||
           (getpeername(b->fd, (struct sockaddr *)&peer, &len) == 0 &&
            getnameinfo((struct sockaddr *)&peer, len, at->host, sizeof at->host, at->port,
                        sizeof at->port, NI_NUMERICHOST | NI_NUMERICSERV) == 0);
}

static struct belay *ping_open(struct belay *b)
{
    struct belay *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    if (!find_peer(b, &p->addrs[0])) {
        free(p);
        return NULL;
    }
    p->main = b;
    p->n_addrs = 1;
    p->fd = p->epoll_fd = p->timer_fd = -1;
    p->parse.may_fail = p->tree.may_fail = p->result.may_fail = true;
    p->ns = b->ns;
    p->token = b->token;
    p->timeout_ms = b->timeout_ms;
    p->connect_ms = b->connect_ms;
    p->connect_wanted = true;
    b->pulse = p;
    return p;
}

void ping_end(struct belay *b)
{
    struct belay *p = b->pulse;
    if (!p)
        return;
    b->pulse = NULL; /* first: callbacks may want another one */
    connection_off(p);
    client_fail(p, BELAY_E_CLOSED, "the connection broke");
    client_call_fail_all(p, &p->sent, BELAY_E_CLOSED);
    client_call_fail_all(p, &p->queued, BELAY_E_CLOSED);
    client_call_forget_early(p);
    buf_done(&p->in);
    buf_done(&p->out);
    arena_done(&p->parse);
    arena_done(&p->tree);
    arena_done(&p->result);
    free(p);
}

int ping_send(struct belay *b, const struct belay_bytes *words, size_t n,
              const struct client_call *like)
{
    if (b->state != CLIENT_READY || !blocker(b))
        return client_call_send(b, words, n, like);
    struct belay *p = b->pulse ? b->pulse : ping_open(b);
    if (!p)
        return client_fail(b, BELAY_E_MEMORY, "no second connection: out of memory");
    return client_call_send(p, words, n, like);
}

/* ---- signs of life --------------------------------------------------------------------- */

static bool expects_news(const struct belay *b)
{
    return b->main || b->parked.n || b->watch_fn;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* An answer is due, and must have come by then. */
static int64_t silent_ms(const struct belay *b)
{
    const struct client_call *first = b->sent.first;
    if (b->state != CLIENT_READY || !first || !first->prompt)
        return INT64_MAX;
    return client_add_ms(later(b->heard_ms, first->sent_ms), limit_ms(b));
}

static int64_t ping_ms(const struct belay *b)
{
    bool idle = b->state == CLIENT_READY && !b->sent.first && expects_news(b);
    return idle ? b->heard_ms + CLIENT_PING_MS : INT64_MAX;
}

/* Something waits, and nobody looks after the server. */
static int64_t open_ms(const struct belay *b)
{
    const struct client_call *waits = b->state == CLIENT_READY ? blocker(b) : NULL;
    return waits && !b->pulse ? waits->sent_ms + CLIENT_PING_MS : INT64_MAX;
}

static void ping(struct belay *b)
{
    struct belay_bytes word = {"PING", 4};
    struct client_call like = {.once = true};
    if (client_call_send(b, &word, 1, &like) != BELAY_E_OK)
        b->heard_ms = client_now_ms(); /* out of memory: later */
}

static void look(struct belay *b)
{
    int64_t now = client_now_ms();
    if (now >= silent_ms(b))
        connection_fail(b, BELAY_E_CLOSED, "%s has not answered for %lld ms",
                        b->addrs[b->at].text, (long long)limit_ms(b));
    else if (now >= ping_ms(b))
        ping(b);
    else if (now >= open_ms(b) && !ping_open(b)) /* it pings by itself */
        connection_fail(b, BELAY_E_MEMORY, "no second connection: out of memory");
}

void ping_step(struct belay *b)
{
    look(b);
    struct belay *p = b->pulse;
    if (!p)
        return;
    if (!blocker(b) && !p->sent.n && !p->queued.n) {
        ping_end(b);
    } else if (connection_step(p) != BELAY_E_OK && b->pulse == p) {
        char why[CLIENT_ERROR_BYTES];
        snprintf(why, sizeof why, "%s", p->err_text);
        connection_fail(b, BELAY_E_CLOSED, "%s", why);
    }
}

int64_t ping_due_ms(const struct belay *b)
{
    int64_t all[] = {silent_ms(b), ping_ms(b), open_ms(b),
                     b->pulse ? connection_due_ms(b->pulse) : INT64_MAX};
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        due = all[i] < due ? all[i] : due;
    return due;
}
