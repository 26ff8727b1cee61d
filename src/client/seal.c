/* seal.c - TLS for addresses that begin with tls://, between the socket and the buffers.
 *
 *   recv --seal_feed()--> b->in        b->out --seal_out()--> b->wire --> send
 *
 * The files are read when the first such address is called, or by belay_use_tls(). A pulse uses
 * what its handle has, and expects the same name: it calls the very address that the handle is
 * connected to, which is a number. */
#include "client/client.h"

#include <stdlib.h>

static const char *file_of(const char *given, const char *variable)
{
    const char *text = given ? given : getenv(variable);
    return text && text[0] ? text : NULL;
}

int belay_use_tls(struct belay *b, const struct belay_tls *given)
{
    struct belay_tls f = given ? *given : (struct belay_tls){0};
    struct tls_files files = {.ca = file_of(f.ca, "BELAY_TLS_CA"),
                              .cert = file_of(f.cert, "BELAY_TLS_CERT"),
                              .key = file_of(f.key, "BELAY_TLS_KEY")};
    struct tls_context *context = NULL;
    if (!files.cert != !files.key)
        return client_fail(b, BELAY_E_USAGE, "TLS: a certificate and its key belong together");
    enum belay_err err = tls_context_open(&files, TLS_CALLER, &context);
    if (err == BELAY_ERR_NO_MEMORY)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    if (err != BELAY_OK)
        return client_fail(b, BELAY_E_USAGE, "TLS: %s", tls_context_problem());
    tls_context_close(b->tls_context);
    b->tls_context = context;
    return BELAY_E_OK;
}

void seal_start(struct belay *b)
{
    struct belay *main = ping_main(b);
    int err = main->tls_context ? BELAY_E_OK : belay_use_tls(main, NULL);
    if (err != BELAY_E_OK) {
        char why[CLIENT_ERROR_BYTES];
        memcpy(why, main->err_text, sizeof why);
        connection_fail(b, err, "%s", why);
        return;
    }
    b->tls = tls_call(main->tls_context, main->addrs[main->at].host);
    if (b->tls)
        b->state = CLIENT_SHAKING;
    else
        connection_fail(b, BELAY_E_MEMORY, "out of memory");
}

bool seal_feed(struct belay *b, struct slice bytes)
{
    const char *text = b->addrs[b->at].text;
    switch (tls_feed(b->tls, bytes, &b->in)) {
    case TLS_SHAKING:
    case TLS_OPEN:
        return true;
    case TLS_CLOSED:
        connection_fail(b, b->state == CLIENT_READY ? BELAY_E_CLOSED : BELAY_E_CONNECT,
                        "%s closed the connection", text);
        break;
    case TLS_FAILED:
        connection_fail(b, b->state == CLIENT_READY ? BELAY_E_CLOSED : BELAY_E_CONNECT,
                        "cannot reach %s: %s", text, tls_problem(b->tls));
        break;
    }
    return false;
}

struct buf *seal_out(struct belay *b)
{
    if (b->out.oom)
        return &b->out;
    if (b->state >= CLIENT_GREETING) {
        (void)tls_write(b->tls, buf_slice(&b->out)); /* what fails is told by the next feed */
        buf_clear(&b->out);
    }
    tls_drain(b->tls, &b->wire);
    return &b->wire;
}

void seal_close(struct belay *b)
{
    tls_close(b->tls);
    b->tls = NULL;
    buf_done(&b->wire);
}

bool seal_has_output(const struct belay *b)
{
    return b->tls && (buf_len(&b->wire) || tls_has_output(b->tls));
}
