/* client.c - the handle: open, close, and what is asked of it as a whole. */
#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLIENT_TOKEN_BYTES = 256 };

static const char *pick_addrs(const struct belay_options *o)
{
    if (o->addrs)
        return o->addrs;
    const char *env = getenv("BELAY_ADDR");
    return env && env[0] ? env : BELAY_ADDR_DEFAULT;
}

/* The first line of $BELAY_TOKEN_FILE. */
static int token_from_file(struct belay *b, const char *file)
{
    char text[CLIENT_TOKEN_BYTES];
    FILE *f = fopen(file, "re");
    bool read = f && fgets(text, sizeof text, f);
    if (f)
        (void)fclose(f);
    if (!read)
        return BELAY_E_USAGE;
    text[strcspn(text, " \t\r\n")] = '\0';
    b->token = strdup(text);
    explicit_bzero(text, sizeof text);
    return b->token ? BELAY_E_OK : BELAY_E_MEMORY;
}

static int pick_token(struct belay *b, const struct belay_options *o)
{
    const char *text = o->token ? o->token : getenv("BELAY_TOKEN");
    const char *file = getenv("BELAY_TOKEN_FILE");
    if (text && text[0]) {
        b->token = strdup(text);
        return b->token ? BELAY_E_OK : BELAY_E_MEMORY;
    }
    return !o->token && file && file[0] ? token_from_file(b, file) : BELAY_E_OK;
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
    if (o->ns && !b->ns)
        return BELAY_E_MEMORY;
    return pick_token(b, o);
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
    retry_init(b);
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
    b->doomed = true;
    b->depth++; /* the last callbacks may not start anything */
    ping_end(b);
    connection_off(b);
    client_fail(b, BELAY_E_CLOSED, "the handle was closed");
    client_call_fail_all(b, &b->sent, BELAY_E_CLOSED);
    client_call_fail_all(b, &b->parked, BELAY_E_CLOSED);
    client_call_fail_all(b, &b->queued, BELAY_E_CLOSED);
    lease_free(b);
    held_free(b);
    connection_close(b);
    buf_done(&b->in);
    buf_done(&b->out);
    tls_context_close(b->tls_context);
    arena_done(&b->parse);
    arena_done(&b->tree);
    arena_done(&b->result);
    free(b->ns);
    if (b->token)
        explicit_bzero(b->token, strlen(b->token));
    free(b->token);
    free(b->watch_prefix);
    free(b);
}

void belay_close(struct belay *b)
{
    if (!b)
        return;
    if (b->depth)
        b->doomed = true; /* in a callback: its caller finishes the job */
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
    return connection_watch_fd(b);
}

int belay_socket(const struct belay *b)
{
    return b->state == CLIENT_READY ? b->fd : -1;
}

int belay_dispatch(struct belay *b)
{
    if (b->depth)
        return client_fail(b, BELAY_E_USAGE, "belay_dispatch() inside a callback");
    connection_drain_timer(b);
    int err = connection_step(b);
    if (b->doomed) {
        destroy(b);
        return BELAY_E_CLOSED;
    }
    connection_arm(b);
    return err;
}

int belay_poll(struct belay *b, int64_t timeout_ms)
{
    connection_sleep(b, timeout_ms == BELAY_FOREVER
                            ? INT64_MAX
                            : client_add_ms(client_now_ms(), timeout_ms));
    return belay_dispatch(b);
}
