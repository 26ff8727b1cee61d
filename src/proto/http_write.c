/* http_write.c - responses and event streams. */
#include "proto/http.h"
#include "proto/json.h"

#include <inttypes.h>
#include <stdlib.h>

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

static void put_line(struct buf *out, const char *name, struct slice value)
{
    if (value.len == 0)
        return;
    buf_put_str(out, name);
    buf_put_slice(out, value);
    buf_put_str(out, "\r\n");
}

/* What every response has, of a page and of a stream. */
static void put_common(struct buf *out, struct http_manner manner)
{
    buf_put_str(out, "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    put_line(out, "Date: ", manner.date);
    put_line(out, "X-Request-Id: ", manner.id);
    put_line(out, "Access-Control-Allow-Origin: ", manner.origin);
    if (manner.origin.len)
        buf_put_str(out, "Access-Control-Expose-Headers: ETag, Retry-After, X-Request-Id\r\n"
                         "Vary: Origin\r\n");
}

static bool is_time(struct slice key)
{
    return key.len > 3 && memcmp(key.data + key.len - 3, "_ms", 3) == 0;
}

static uint64_t mix(uint64_t sum, struct hash_key key, struct slice bytes)
{
    struct hash_key next = {key.k0 ^ sum, key.k1};
    return hash_bytes(&next, bytes.data, bytes.len);
}

/* Of all that it says, but for how long something has lasted or will last. */
static uint64_t tag_of(const struct reply *r, struct hash_key key, uint64_t sum)
{
    struct {
        uint64_t kind, count, key_len;
        int64_t number;
        char key[24]; /* longer ones differ in their beginnings, too */
    } facts = {.kind = r->kind, .count = r->count, .key_len = r->key.len, .number = r->number};
    if (is_time(r->key))
        return sum;
    if (r->key.len)
        memcpy(facts.key, r->key.data,
               r->key.len < sizeof facts.key ? r->key.len : sizeof facts.key);
    sum = mix(sum, key, slice_of((const char *)&facts, sizeof facts));
    if (r->text.len)
        sum = mix(sum, key, r->text);
    for (const struct reply *c = r->first; c; c = c->next)
        sum = tag_of(c, key, sum);
    return sum;
}

uint64_t http_read_tag(struct slice if_none_match)
{
    enum { DIGITS = 16 };
    char text[DIGITS + 1] = "";
    const char *quote =
        if_none_match.len ? memchr(if_none_match.data, '"', if_none_match.len) : NULL;
    size_t left = quote ? if_none_match.len - (size_t)(quote - if_none_match.data) : 0;
    char *end = text;
    if (left < DIGITS + 2 || quote[DIGITS + 1] != '"')
        return 0;
    memcpy(text, quote + 1, DIGITS);
    uint64_t tag = strtoull(text, &end, 16);
    return end == text + DIGITS ? tag : 0;
}

static void put_head(struct buf *out, const struct reply *r, int status,
                     struct http_manner manner)
{
    (void)buf_reserve(out, 512); /* one growth for the usual response */
    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, (uint64_t)status);
    buf_put_byte(out, ' ');
    buf_put_str(out, reason(status));
    const char *media = "application/json";
    if (r->kind == REPLY_PLAIN)
        media = r->media ? r->media : "text/plain; charset=utf-8";
    else if (r->kind == REPLY_ERROR && manner.problem)
        media = "application/problem+json";
    if (r->kind != REPLY_NONE && status != 304) {
        buf_put_str(out, "\r\nContent-Type: ");
        buf_put_str(out, media);
    }
    put_common(out, manner);
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

/* RFC 9457; `code` is what tells one error from another. */
static void put_problem(struct buf *out, const struct reply *r, int status)
{
    buf_printf(out, "{\"type\":\"urn:belay:error:%s\",\"title\":", err_word(r->err));
    json_put_string(out, slice_str(err_text(r->err)));
    buf_printf(out, ",\"status\":%d,\"code\":\"%s\",\"detail\":", status, err_word(r->err));
    json_put_string(out, r->text.len ? r->text : slice_str(err_text(r->err)));
    buf_put_byte(out, '}');
}

void http_write(struct buf *out, const struct reply *r, struct http_manner manner)
{
    int status = status_of(r);
    bool tagged = r->flags & REPLY_TAGGED;
    uint64_t tag = tagged ? tag_of(r, manner.tag_key, 1) : 0;
    if (tagged && tag == manner.known_tag)
        status = 304;
    put_head(out, r, status, manner);
    if (tagged)
        buf_printf(out, "ETag: W/\"%016" PRIx64 "\"\r\n", tag);
    if (status == 204 || status == 304) {
        buf_put_str(out, "\r\n");
        return;
    }
    size_t body = buf_len(out);
    if (r->kind == REPLY_PLAIN)
        buf_put_slice(out, r->text);
    else if (r->kind == REPLY_ERROR && manner.problem)
        put_problem(out, r, status);
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

void http_write_stream_head(struct buf *out, struct http_manner manner)
{
    buf_put_str(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream");
    put_common(out, manner);
    buf_put_str(out, "X-Accel-Buffering: no\r\nConnection: close\r\n\r\n");
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
