/* HTTP: the input is a stream of requests. Checked: an answer does not depend on what has not
 * arrived, nothing reaches past the input, what HTTP takes is known as HTTP by its first bytes
 * and never taken by RESP, and the body is read without surprises. */
#include "base/check.h"
#include "proto/http.h"
#include "proto/json.h"
#include "proto/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_inside(struct slice s, struct slice in)
{
    return s.len == 0 || (s.data >= in.data && s.data + s.len <= in.data + in.len);
}

static void check_request(struct request *req, struct slice in, struct arena *a)
{
    const struct slice borrowed[] = {req->verb,          req->path,          req->content_type,
                                     req->host,          req->origin,        req->accept,
                                     req->last_event_id, req->authorization, req->fetch_site};
    for (size_t i = 0; i < sizeof borrowed / sizeof borrowed[0]; i++) {
        BELAY_CHECK(is_inside(borrowed[i], in));
        BELAY_CHECK(!borrowed[i].len || !memchr(borrowed[i].data, '\n', borrowed[i].len));
        BELAY_CHECK(!borrowed[i].len || !memchr(borrowed[i].data, '\r', borrowed[i].len));
        BELAY_CHECK(!borrowed[i].len || !memchr(borrowed[i].data, '\0', borrowed[i].len));
    }
    BELAY_CHECK(req->path.len > 0 && *req->path.data == '/');
    BELAY_CHECK(req->body.len <= in.len);
    struct slice decoded;
    if (http_decode(req->path, a, &decoded))
        BELAY_CHECK(decoded.len <= req->path.len);
    const char *why = NULL;
    if (http_read_body(req, a, &why))
        BELAY_CHECK(req->n_fields <= REQUEST_FIELDS_MAX);
    else
        BELAY_CHECK(why != NULL && strlen(why) < 200);
    for (size_t i = 0; i < req->n_fields; i++)
        for (size_t j = 0; j < i; j++)
            BELAY_CHECK(!slice_eq(req->fields[i].key, req->fields[j].key));
}

static void check_prefixes(struct slice in, enum http_step step, size_t used, const char *what)
{
    size_t stride = in.len / 32 + 1;
    struct arena a = {0};
    for (size_t n = 0; n < in.len; n += stride) {
        struct request req;
        struct http_error err = {0};
        size_t part = 0;
        enum http_step s = http_next(slice_of(in.data, n), &a, &req, &part, &err);
        if (s == HTTP_MORE || s == HTTP_CONTINUE)
            BELAY_CHECK(step != HTTP_DONE || n < used);
        else
            BELAY_CHECK(s == step && part == used && err.what == what);
        enum http_step sniff = http_sniff(slice_of(in.data, n));
        BELAY_CHECK(sniff == HTTP_MORE || sniff == http_sniff(in));
        arena_reset(&a);
    }
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of((const char *)data, size);
    struct arena a = {0};
    while (in.len) {
        struct request req, resp;
        struct http_error err = {0};
        size_t used = 0, ignored = 0;
        const char *why = NULL;
        enum http_step step = http_next(in, &a, &req, &used, &err);
        check_prefixes(in, step, used, err.what);
        if (step == HTTP_BAD)
            BELAY_CHECK(err.status >= 400 && err.status < 600 && err.what);
        if (step != HTTP_DONE)
            break;
        BELAY_CHECK(used > 0);
        BELAY_CHECK(used <= in.len);
        BELAY_CHECK(http_sniff(in) == HTTP_DONE);
        enum resp_step other = resp_next(in, &a, &resp, &ignored, &why);
        BELAY_CHECK(other == RESP_BAD || other == RESP_TOO_BIG);
        check_request(&req, slice_of(in.data, used), &a);
        in = slice_of(in.data + used, in.len - used);
        arena_reset(&a);
    }
    arena_done(&a);
    return 0;
}
