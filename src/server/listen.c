/* listen.c - where clients connect: addresses and ports, and the Unix socket.
 *
 * A connection is taken only when there is room for it. Until then libuv holds it, and its
 * listener waits. */
#include "base/log.h"
#include "server/state.h"

#include <string.h>

enum { LISTEN_BACKLOG = 1024 };

static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *from = stream->data;
    struct server *s = stream->loop->data;
    if (status < 0) {
        log_warn("server.accept", "error=\"%s\"", uv_strerror(status));
        return;
    }
    if (s->n_conns < s->max_conns) {
        conn_open(s, from);
        return;
    }
    from->waiting = true; /* libuv takes no more */
    s->metrics.paused++;
    (void)conn_evict(s);
}

void listen_accept_more(struct server *s)
{
    for (size_t i = s->n_listeners; i-- > 0;) { /* the Unix socket first */
        struct listener *from = &s->listeners[i];
        if (!from->waiting || s->stopping || s->n_conns >= s->max_conns)
            continue;
        from->waiting = false;
        conn_open(s, from);
    }
}

bool listen_is_waiting(const struct server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++)
        if (s->listeners[i].waiting)
            return true;
    return false;
}

static struct listener *add(struct server *s, bool is_local)
{
    BELAY_CHECK(s->n_listeners <= SERVER_LISTEN_MAX);
    struct listener *l = &s->listeners[s->n_listeners++];
    l->is_local = is_local;
    if (is_local)
        (void)uv_pipe_init(&s->loop, &l->io.pipe, 0);
    else
        (void)uv_tcp_init(&s->loop, &l->io.tcp);
    l->io.stream.data = l;
    return l;
}

static bool failed(const char *text, const char *why)
{
    log_error("server.listen", "address=%s error=\"%s\"", log_bytes(slice_str(text)), why);
    return false;
}

const char *server_check_listen(const char *text)
{
    struct sockaddr_storage addr;
    const char *why = NULL;
    return access_parse_listen(text, &addr, &why) ? NULL : why;
}

static bool listen_at(struct server *s, const char *text)
{
    struct sockaddr_storage addr;
    const char *why = NULL;
    if (!access_parse_listen(text, &addr, &why))
        return failed(text, why);
    if (!access_is_loopback((struct sockaddr *)&addr) && !s->config->insecure &&
        !s->tls.context)
        return failed(text, "refusing to listen beyond loopback without TLS (--tls-cert and "
                            "--tls-key; belay cert makes them); --insecure if you must");
    struct listener *l = add(s, false);
    int err = uv_tcp_bind(&l->io.tcp, (struct sockaddr *)&addr, 0);
    if (err == 0)
        err = uv_listen(&l->io.stream, LISTEN_BACKLOG, on_connection);
    if (err == UV_EADDRINUSE)
        return failed(text,
                      "address already in use by another program: stop that one, or choose "
                      "another port with --listen");
    return err == 0 || failed(text, uv_strerror(err));
}

static bool listen_locally(struct server *s, const char *path)
{
    struct listener *l = add(s, true);
    const char *why = socket_bind(&l->io.pipe, path);
    int err = why ? 0 : uv_listen(&l->io.stream, LISTEN_BACKLOG, on_connection);
    if (err != 0)
        why = uv_strerror(err);
    if (why)
        log_error("server.socket", "path=%s error=\"%s\"", log_bytes(slice_str(path)), why);
    return !why;
}

static void address_of(const struct listener *l, char *ret, size_t cap)
{
    struct sockaddr_storage addr;
    int len = sizeof addr;
    (void)uv_tcp_getsockname(&l->io.tcp, (struct sockaddr *)&addr, &len);
    access_format((struct sockaddr *)&addr, ret, cap);
}

bool listen_open(struct server *s)
{
    for (const char *const *at = s->config->listen; *at; at++)
        if (!listen_at(s, *at))
            return false;
    address_of(&s->listeners[0], s->address, sizeof s->address);
    return !s->config->socket || listen_locally(s, s->config->socket);
}

void listen_told(struct server *s)
{
    char address[sizeof s->address];
    for (size_t i = 0; s->config->on_listening && i < s->n_listeners; i++) {
        if (s->listeners[i].is_local)
            continue;
        address_of(&s->listeners[i], address, sizeof address);
        s->config->on_listening(address); /* a reader of it may send SIGTERM at once */
    }
}

void listen_close(struct server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++)
        if (!uv_is_closing((uv_handle_t *)&s->listeners[i].io))
            uv_close((uv_handle_t *)&s->listeners[i].io, NULL);
}
