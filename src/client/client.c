/* client.c - the handle: open, close, and what is asked of it as a whole. */
#include "client/client.h"

#include <stdlib.h>

static const char *pick_addrs(const struct belay_options *o)
{
    if (o->addrs)
        return o->addrs;
    const char *env = getenv("BELAY_ADDR");
    return env && env[0] ? env : BELAY_ADDR_DEFAULT;
}

static int fill(struct belay *b, const struct belay_options *o)
{
    char why[CLIENT_ERROR_BYTES];
    int err =
        addrs_parse(pick_addrs(o), b->addrs, BELAY_ADDRS_MAX, &b->n_addrs, why, sizeof why);
    if (err != BELAY_E_OK)
        return err;
    b->timeout_ms = o->timeout_ms ? o->timeout_ms : CLIENT_TIMEOUT_MS;
    b->connect_ms = o->connect_ms ? o->connect_ms : CLIENT_CONNECT_MS;
    if (b->timeout_ms < 0 || b->connect_ms < 0)
        return BELAY_E_USAGE;
    b->stale = o->stale;
    b->ns = o->ns ? strdup(o->ns) : NULL;
    b->token = o->token ? strdup(o->token) : NULL;
    if ((o->ns && !b->ns) || (o->token && !b->token))
        return BELAY_E_MEMORY;
    return BELAY_E_OK;
}

int belay_open(const struct belay_options *o, struct belay **ret_b)
{
    static const struct belay_options defaults;
    if (!ret_b)
        return BELAY_E_USAGE;
    *ret_b = NULL;
    struct belay *b = calloc(1, sizeof *b);
    if (!b)
        return BELAY_E_MEMORY;
    b->fd = b->epoll_fd = b->timer_fd = -1;
    b->parse.may_fail = b->tree.may_fail = b->result.may_fail = true;
    again_init(b);
    int err = fill(b, o ? o : &defaults);
    if (err != BELAY_E_OK) {
        belay_close(b);
        return err;
    }
    *ret_b = b;
    return BELAY_E_OK;
}

static void destroy(struct belay *b)
{
    b->lost_fn = NULL;
    b->watch_fn = NULL;
    wire_off(b);
    b->depth++; /* the last callbacks may not start anything */
    client_fail(b, BELAY_E_CLOSED, "the handle was closed");
    flight_fail_all(b, &b->sent, BELAY_E_CLOSED);
    flight_fail_all(b, &b->parked, BELAY_E_CLOSED);
    flight_fail_all(b, &b->queued, BELAY_E_CLOSED);
    lease_free(b);
    wire_close(b);
    buf_done(&b->in);
    buf_done(&b->out);
    arena_done(&b->parse);
    arena_done(&b->tree);
    arena_done(&b->result);
    free(b->ns);
    free(b->token);
    free(b->watch_prefix);
    free(b);
}

void belay_close(struct belay *b)
{
    if (!b)
        return;
    if (b->depth)
        b->doomed = true; /* a callback: whoever called it finishes the job */
    else
        destroy(b);
}

int belay_connect(struct belay *b)
{
    if (b->state == CLIENT_READY)
        return BELAY_E_OK;
    /* PING: an answer is the proof, and the way there is the one every call takes */
    b->connect_wanted = true;
    int err = belay_call(b, NULL, "PING", NULL);
    b->connect_wanted = false;
    return err;
}

bool belay_is_connected(const struct belay *b)
{
    return b->state == CLIENT_READY;
}

const char *belay_addr(const struct belay *b)
{
    return b->addrs[b->at].text;
}

const char *belay_error(const struct belay *b)
{
    return b->err_text;
}

int belay_error_code(const struct belay *b)
{
    return b->err_code;
}

const char *belay_error_word(const struct belay *b)
{
    return b->err_word;
}

int belay_fd(struct belay *b)
{
    return wire_watch_fd(b);
}

int belay_socket(const struct belay *b)
{
    return b->state == CLIENT_READY ? b->fd : -1;
}

int belay_dispatch(struct belay *b)
{
    if (b->depth)
        return client_fail(b, BELAY_E_USAGE, "belay_dispatch() inside a callback");
    wire_drain_timer(b);
    int err = wire_step(b);
    if (b->doomed) {
        destroy(b);
        return BELAY_E_CLOSED;
    }
    wire_arm(b);
    return err;
}

int belay_poll(struct belay *b, int64_t timeout_ms)
{
    wire_sleep(b, timeout_ms == BELAY_FOREVER ? INT64_MAX
                                              : client_add_ms(client_now_ms(), timeout_ms));
    return belay_dispatch(b);
}
