/* http_write.c - responses and event streams. */
#include "proto/http.h"
#include "proto/json.h"

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *words;
    } table[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {423, "Locked"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].words;
    return "Other";
}

static int status_of(const struct reply *r)
{
    if (r->status)
        return r->status;
    return r->kind == REPLY_ERROR ? err_status(r->err) : 200;
}

bool http_is_id(struct slice id)
{
    for (size_t i = 0; i < id.len; i++)
        if (id.data[i] <= ' ' || id.data[i] >= 127)
            return false;
    return id.len > 0 && id.len <= HTTP_ID_BYTES_MAX;
}

static void put_id(struct buf *out, struct slice id)
{
    if (id.len == 0)
        return;
    buf_put_str(out, "X-Request-Id: ");
    buf_put_slice(out, id);
    buf_put_str(out, "\r\n");
}

static void put_head(struct buf *out, const struct reply *r, int status,
                     struct http_manner manner)
{
    (void)buf_reserve(out, 512); /* one growth for the usual response */
    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, (uint64_t)status);
    buf_put_byte(out, ' ');
    buf_put_str(out, reason(status));
    if (r->kind == REPLY_PLAIN) {
        buf_put_str(out, "\r\nContent-Type: ");
        buf_put_str(out, r->media ? r->media : "text/plain; charset=utf-8");
    } else if (r->kind != REPLY_NONE) {
        buf_put_str(out, "\r\nContent-Type: application/json");
    }
    buf_put_str(out, "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    put_id(out, manner.id);
    if (!manner.keep_alive)
        buf_put_str(out, "Connection: close\r\n");
    if (r->kind == REPLY_ERROR && r->err == BELAY_ERR_OVERLOADED)
        buf_put_str(out, "Retry-After: 1\r\n");
    buf_put_slice(out, r->headers);
}

/* The length stands before the body and is known behind it: the two change places. */
static void put_length(struct buf *out, size_t body, size_t body_len)
{
    char line[sizeof "Content-Length: 18446744073709551615\r\n\r\n"];
    buf_put_str(out, "Content-Length: ");
    buf_put_u64(out, body_len);
    buf_put_str(out, "\r\n\r\n");
    if (out->oom)
        return;
    size_t n = buf_len(out) - body - body_len;
    char *p = out->mem + out->start + body;
    memcpy(line, p + body_len, n);
    memmove(p + n, p, body_len);
    memcpy(p, line, n);
}

void http_write(struct buf *out, const struct reply *r, struct http_manner manner)
{
    int status = status_of(r);
    put_head(out, r, status, manner);
    if (status == 204 || status == 304) {
        buf_put_str(out, "\r\n");
        return;
    }
    size_t body = buf_len(out);
    if (r->kind == REPLY_PLAIN)
        buf_put_slice(out, r->text);
    else
        json_write(out, r);
    if (out->oom)
        return;
    size_t body_len = buf_len(out) - body;
    put_length(out, body, body_len);
    if (manner.bare && !out->oom)
        out->end -= body_len;
}

void http_write_continue(struct buf *out)
{
    buf_put_str(out, "HTTP/1.1 100 Continue\r\n\r\n");
}

struct reply *http_error_reply(struct arena *a, const struct http_error *err)
{
    bool big = err->status == 413 || err->status == 414 || err->status == 431;
    enum belay_err code = big                  ? BELAY_ERR_TOO_BIG
                          : err->status == 408 ? BELAY_ERR_TIMEOUT
                                               : BELAY_ERR_SYNTAX;
    struct reply *r = reply_error(a, code, "%s", err->what);
    if (r)
        r->status = err->status;
    return r;
}

void http_write_stream_head(struct buf *out, struct slice id)
{
    buf_put_str(out, "HTTP/1.1 200 OK\r\n"
                     "Content-Type: text/event-stream\r\n"
                     "Cache-Control: no-store\r\n"
                     "X-Content-Type-Options: nosniff\r\n"
                     "X-Accel-Buffering: no\r\n");
    put_id(out, id);
    buf_put_str(out, "Connection: close\r\n\r\n");
}

/* The reader takes CR, LF and CRLF for line ends: each gets a line of its own. */
static void put_lines(struct buf *out, const char *name, struct slice text)
{
    size_t from = 0;
    for (size_t i = 0; i <= text.len; i++) {
        if (i < text.len && text.data[i] != '\n' && text.data[i] != '\r')
            continue;
        buf_put_str(out, name);
        buf_put(out, text.data + from, i - from);
        buf_put_byte(out, '\n');
        if (i + 1 < text.len && text.data[i] == '\r' && text.data[i + 1] == '\n')
            i++;
        from = i + 1;
    }
}

void http_write_event(struct buf *out, uint64_t id, struct slice event, struct slice data)
{
    buf_put_str(out, "id: ");
    buf_put_u64(out, id);
    buf_put_byte(out, '\n');
    if (event.len)
        put_lines(out, "event: ", event);
    put_lines(out, "data: ", data);
    buf_put_byte(out, '\n');
}
