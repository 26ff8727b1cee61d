/* web.c - what an HTTP client may ask of an answer: no body, errors of another form, only what is
 * new; and what a browser needs, so that a page of another origin may read it. */
#include "server/state.h"

#include <strings.h>
#include <time.h>

static bool has_text(struct slice in, const char *text)
{
    size_t len = strlen(text);
    for (size_t at = 0; at + len <= in.len; at++)
        if (strncasecmp(in.data + at, text, len) == 0)
            return true;
    return false;
}

/* HEAD is GET without the body; but a stream is nothing without it. */
void web_take(struct conn *c, struct request *req)
{
    struct slice stream = SLICE("/events");
    bool streams =
        req->path.len >= stream.len &&
        slice_eq(slice_of(req->path.data + req->path.len - stream.len, stream.len), stream);
    bool bare = slice_eq(req->verb, SLICE("HEAD"));
    if (bare && !streams)
        req->verb = SLICE("GET");
    bool reads = slice_eq(req->verb, SLICE("GET"));
    c->web = (struct web){.bare = bare,
                          .problem = has_text(req->accept, "application/problem+json"),
                          .origin = access_origin(c->server, req->origin),
                          .known_tag = reads ? http_read_tag(req->if_none_match) : 0};
}

static struct slice date_now(struct server *s)
{
    time_t now = time(NULL);
    struct tm utc;
    if (now != s->date_s && gmtime_r(&now, &utc)) {
        s->date_s = now;
        (void)strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    }
    return slice_str(s->date);
}

struct http_manner web_manner(const struct conn *c, struct reply_form form, struct slice id)
{
    return (struct http_manner){.keep_alive = !form.close,
                                .bare = form.web.bare,
                                .problem = form.web.problem,
                                .id = id,
                                .date = date_now(c->server),
                                .origin = access_origin_text(c->server, form.web.origin),
                                .tag_key = c->server->tag_key,
                                .known_tag = form.web.known_tag};
}

struct reply *web_preflight(struct conn *c, const struct request *req)
{
    bool asks = slice_eq(req->verb, SLICE("OPTIONS")) && req->wanted_method.len;
    if (!asks || !c->web.origin)
        return NULL;
    struct reply *r = reply_new(&c->server->request_arena, REPLY_NONE);
    r->status = 204;
    r->headers = SLICE("Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n"
                       "Access-Control-Allow-Headers: Authorization, Content-Type, "
                       "Idempotency-Key, If-None-Match, Last-Event-ID, X-Request-Id\r\n"
                       "Access-Control-Max-Age: 600\r\n");
    return r;
}
