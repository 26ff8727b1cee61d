/* http.c - requests. Three passes, each over what the one before has proved:
 *
 *   scan_head()   finds the end of the head; no byte of it can hide a line end
 *   llhttp        the grammar of request line and headers; stops at the end of the head
 *   read_body()   Content-Length or chunks, counted and not trusted
 *
 * llhttp never sees a body: there is one opinion about where a request ends, ours. */
#include "proto/http.h"

#include <llhttp.h>

struct http_head {
    struct request *req;
    struct http_error *err;
    struct slice target, name, value;
    unsigned seen; /* bits: headers that may come once */
    bool expects, chunked, complete;
    size_t length; /* declared, of the body */
};

static enum http_step bad(struct http_error *err, int status, const char *what)
{
    *err = (struct http_error){status, what};
    return HTTP_BAD;
}

static bool is_token(char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    switch (c) {
    case '!':
    case '#':
    case '$':
    case '%':
    case '&':
    case '\'':
    case '*':
    case '+':
    case '-':
    case '.':
    case '^':
    case '_':
    case '`':
    case '|':
    case '~':
        return true;
    default:
        return false;
    }
}

static bool is_all_token(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_token(s.data[i]))
            return false;
    return s.len > 0;
}

/* A CR in the head at p + i: the end of a line, or of the head (*ret_end is then set). */
static enum http_step scan_line_end(struct slice in, size_t i, bool empty, size_t *ret_end,
                                    struct http_error *err)
{
    if (i + 1 == in.len)
        return HTTP_MORE;
    if (in.data[i + 1] != '\n')
        return bad(err, 400, "CR without LF in the head");
    if (empty)
        *ret_end = i + 2;
    else if (i + 2 < in.len && (in.data[i + 2] == ' ' || in.data[i + 2] == '\t'))
        return bad(err, 400, "folded header");
    return HTTP_DONE;
}

/* Finds the end of the head. Whatever is wrong with its bytes is seen as soon as they are here,
 * and not when the head is whole: it may never be. */
static enum http_step scan_head(struct slice in, size_t *ret_end, struct http_error *err)
{
    size_t line = 0, lines = 0, end = 0;
    bool full = in.len >= REQUEST_HEAD_BYTES_MAX;
    in.len = full ? REQUEST_HEAD_BYTES_MAX : in.len;
    for (size_t i = 0; i < in.len; i++) {
        unsigned char c = (unsigned char)in.data[i];
        if (lines == 0 && i == HTTP_LINE_BYTES_MAX)
            return bad(err, 414, "request line over the limit");
        if ((c >= ' ' && c != 127) || c == '\t')
            continue;
        if (c != '\r')
            return bad(err, 400,
                       c == '\n' ? "LF without CR in the head" : "control byte in the head");
        enum http_step step = scan_line_end(in, i, i == line, &end, err);
        if (step == HTTP_MORE)
            break;
        if (step == HTTP_BAD)
            return step;
        if (end) {
            *ret_end = end;
            return lines ? HTTP_DONE : bad(err, 400, "no request line");
        }
        if (lines++ > REQUEST_HEADERS_MAX)
            return bad(err, 431, "too many headers");
        line = ++i + 1;
    }
    return full ? bad(err, 431, "head over the limit") : HTTP_MORE;
}

/* "GET /path HTTP/1.1": llhttp lets other protocols and none at all pass. */
static enum http_step check_request_line(struct slice head, struct slice *ret_method,
                                         struct http_error *err)
{
    const char *eol = memchr(head.data, '\r', head.len);
    const char *space = memchr(head.data, ' ', (size_t)(eol - head.data));
    const char *last = memrchr(head.data, ' ', (size_t)(eol - head.data));
    if (!space || space == last || memchr(space + 1, ' ', (size_t)(last - space - 1)))
        return bad(err, 400, "malformed request line");
    *ret_method = slice_of(head.data, (size_t)(space - head.data));
    if (!is_all_token(*ret_method))
        return bad(err, 400, "malformed method");
    struct slice version = slice_of(last + 1, (size_t)(eol - last - 1));
    if (!slice_starts(version, SLICE("HTTP/")))
        return bad(err, 400, "malformed request line");
    if (!slice_eq(version, SLICE("HTTP/1.1")) && !slice_eq(version, SLICE("HTTP/1.0")))
        return bad(err, 505, "only HTTP/1.1 and HTTP/1.0 are supported");
    return HTTP_DONE;
}

static enum http_step check_target(struct slice target, struct http_error *err)
{
    if (target.len > HTTP_URI_BYTES_MAX)
        return bad(err, 414, "URI over the limit");
    if (target.len == 0 || *target.data != '/')
        return bad(err, 400, "the request target is not a path");
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.data[i];
        if (c <= ' ' || c == '#' || c >= 127)
            return bad(err, 400, "a byte in the URI must be percent-encoded");
    }
    return HTTP_DONE;
}

static bool is_host(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_token(s.data[i]) && !strchr("[]:(),;=", s.data[i]))
            return false;
    return s.len > 0;
}

/* Headers that somebody needs: where they go, and whether a second one is an error. */
static const struct known_header {
    struct slice name;
    size_t place;
    bool once;
} known[] = {
    {{"host", 4}, offsetof(struct request, host), true},
    {{"origin", 6}, offsetof(struct request, origin), true},
    {{"sec-fetch-site", 14}, offsetof(struct request, fetch_site), true},
    {{"content-type", 12}, offsetof(struct request, content_type), true},
    {{"authorization", 13}, offsetof(struct request, authorization), true},
    {{"last-event-id", 13}, offsetof(struct request, last_event_id), true},
    {{"idempotency-key", 15}, offsetof(struct request, idempotency_key), true},
    {{"x-request-id", 12}, offsetof(struct request, request_id), false},
    {{"accept", 6}, offsetof(struct request, accept), false},
    {{"if-none-match", 13}, offsetof(struct request, if_none_match), false},
    {{"access-control-request-method", 29}, offsetof(struct request, wanted_method), false},
};
enum { N_KNOWN = sizeof known / sizeof known[0] };
enum { SEEN_LENGTH = 1 << N_KNOWN, SEEN_CODING = SEEN_LENGTH << 1 };

static enum http_step take_length(struct http_head *h)
{
    if (h->seen & (SEEN_LENGTH | SEEN_CODING))
        return bad(h->err, 400, "the length of the body is given twice");
    h->seen |= SEEN_LENGTH;
    for (size_t i = 0; i < h->value.len; i++) {
        if (h->value.data[i] < '0' || h->value.data[i] > '9')
            return bad(h->err, 400, "malformed Content-Length");
        h->length = h->length * 10 + (size_t)(h->value.data[i] - '0');
        if (h->length > REQUEST_BYTES_MAX)
            return bad(h->err, 413, "body over the limit");
    }
    return h->value.len ? HTTP_DONE : bad(h->err, 400, "malformed Content-Length");
}

static enum http_step take_coding(struct http_head *h)
{
    if (h->seen & (SEEN_LENGTH | SEEN_CODING))
        return bad(h->err, 400, "the length of the body is given twice");
    h->seen |= SEEN_CODING;
    if (!slice_eq_nocase(h->value, SLICE("chunked")))
        return bad(h->err, 501, "only the chunked transfer coding is supported");
    h->chunked = true;
    return HTTP_DONE;
}

static enum http_step take_expect(struct http_head *h)
{
    if (!slice_eq_nocase(h->value, SLICE("100-continue")))
        return bad(h->err, 417, "unknown expectation");
    h->expects = true;
    return HTTP_DONE;
}

static enum http_step take_header(struct http_head *h)
{
    while (h->value.len && strchr(" \t", h->value.data[h->value.len - 1]))
        h->value.len--;
    if (!is_all_token(h->name))
        return bad(h->err, 400, "malformed header name");
    if (slice_eq_nocase(h->name, SLICE("content-length")))
        return take_length(h);
    if (slice_eq_nocase(h->name, SLICE("transfer-encoding")))
        return take_coding(h);
    if (slice_eq_nocase(h->name, SLICE("expect")))
        return take_expect(h);
    for (unsigned i = 0; i < N_KNOWN; i++) {
        if (!slice_eq_nocase(h->name, known[i].name))
            continue;
        bool again = h->seen & 1u << i;
        if (again && known[i].once)
            return bad(h->err, 400, "a header is given twice that may be given once");
        h->seen |= 1u << i;
        if (!again)
            memcpy((char *)h->req + known[i].place, &h->value, sizeof h->value);
    }
    return HTTP_DONE;
}

/* llhttp may hand out one run of bytes in pieces; they lie side by side. */
static int extend(struct slice *s, const char *at, size_t n)
{
    if (s->len == 0)
        *s = slice_of(at, n);
    else if (s->data + s->len == at)
        s->len += n;
    else
        return HPE_USER;
    return 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t n)
{
    struct http_head *h = parser->data;
    return extend(&h->target, at, n);
}

static int on_header_field(llhttp_t *parser, const char *at, size_t n)
{
    struct http_head *h = parser->data;
    return extend(&h->name, at, n);
}

static int on_header_value(llhttp_t *parser, const char *at, size_t n)
{
    struct http_head *h = parser->data;
    return extend(&h->value, at, n);
}

static int on_header_value_complete(llhttp_t *parser)
{
    struct http_head *h = parser->data;
    if (take_header(h) != HTTP_DONE)
        return HPE_USER;
    h->name = h->value = slice_of("", 0);
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_head *h = parser->data;
    h->complete = true;
    return HPE_PAUSED;
}

/* llhttp stopped before the end of the head; which of us saw it first must not show. */
static enum http_step refused(const struct http_head *h, llhttp_errno_t why)
{
    struct http_error *err = h->err;
    if (err->status) /* we did */
        return HTTP_BAD;
    if (why == HPE_INVALID_METHOD)
        return bad(err, 501, "unknown method");
    if (why == HPE_INVALID_TRANSFER_ENCODING && !(h->seen & (SEEN_LENGTH | SEEN_CODING)))
        return bad(err, 501, "only the chunked transfer coding is supported");
    if (why == HPE_INVALID_TRANSFER_ENCODING || why == HPE_UNEXPECTED_CONTENT_LENGTH)
        return bad(err, 400, "the length of the body is given twice");
    if (why == HPE_INVALID_CONTENT_LENGTH)
        return bad(err, 400, "malformed Content-Length");
    if (why == HPE_INVALID_HEADER_TOKEN)
        return bad(err, 400, "malformed header");
    return bad(err, 400, "malformed head");
}

static enum http_step parse_head(struct slice in, struct http_head *h)
{
    static const llhttp_settings_t settings = {
        .on_url = on_url,
        .on_header_field = on_header_field,
        .on_header_value = on_header_value,
        .on_header_value_complete = on_header_value_complete,
        .on_headers_complete = on_headers_complete,
    };
    llhttp_t parser;
    enum http_step step = check_request_line(in, &h->req->verb, h->err);
    if (step != HTTP_DONE)
        return step;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = h;
    llhttp_errno_t result = llhttp_execute(&parser, in.data, in.len);
    if (!h->complete)
        return refused(h, result);
    if (parser.method == HTTP_CONNECT)
        return bad(h->err, 501, "CONNECT is not supported");
    bool old = parser.http_minor == 0;
    if (h->req->host.data ? !is_host(h->req->host) : !old)
        return bad(h->err, 400, "missing or malformed Host");
    if (old && h->chunked)
        return bad(h->err, 400, "chunks in HTTP/1.0");
    if (old)
        h->expects = false;
    h->req->keep_alive = !old && llhttp_should_keep_alive(&parser);
    return check_target(h->target, h->err);
}

/* Chunks on the wire, and where they go when `to` is set. */
struct chunks {
    const char *start, *at, *end;
    char *to;
    size_t bytes; /* of the body so far */
    size_t extension_bytes, count;
    struct http_error *err;
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum http_step read_line_end(struct chunks *c)
{
    if (c->at < c->end && *c->at != '\r')
        return bad(c->err, 400, "malformed chunk");
    if (c->end - c->at < 2)
        return HTTP_MORE;
    if (c->at[1] != '\n')
        return bad(c->err, 400, "malformed chunk");
    c->at += 2;
    return HTTP_DONE;
}

/* "1a;name=value\r\n" */
static enum http_step read_chunk_head(struct chunks *c, size_t *ret_n)
{
    enum { DIGITS_MAX = 16 };
    size_t n = 0, digits = 0;
    for (; c->at < c->end && hex_digit(*c->at) >= 0; c->at++, digits++) {
        n = n * 16 + (size_t)hex_digit(*c->at);
        if (n > REQUEST_BYTES_MAX)
            return bad(c->err, 413, "body over the limit");
        if (digits == DIGITS_MAX)
            return bad(c->err, 400, "malformed chunk");
    }
    if (c->at == c->end)
        return HTTP_MORE;
    if (digits == 0)
        return bad(c->err, 400, "malformed chunk");
    if (*c->at == ';') {
        for (; c->at < c->end && *c->at != '\r'; c->at++) {
            unsigned char byte = (unsigned char)*c->at;
            if (++c->extension_bytes > HTTP_EXTENSION_BYTES_MAX)
                return bad(c->err, 400, "chunk extensions over the limit");
            if ((byte < ' ' && byte != '\t') || byte == 127)
                return bad(c->err, 400, "malformed chunk");
        }
    }
    *ret_n = n;
    return read_line_end(c);
}

static enum http_step read_chunk(struct chunks *c, bool *ret_last)
{
    size_t n = 0;
    enum http_step step = read_chunk_head(c, &n);
    if (step != HTTP_DONE)
        return step;
    if (n == 0) {
        *ret_last = true;
        if (c->at < c->end && *c->at != '\r')
            return bad(c->err, 400, "trailers are not supported");
        return read_line_end(c);
    }
    if (++c->count > HTTP_CHUNKS_MAX)
        return bad(c->err, 400, "too many chunks");
    if ((size_t)(c->at - c->start) + n > REQUEST_BYTES_MAX)
        return bad(c->err, 413, "body over the limit");
    if ((size_t)(c->end - c->at) < n)
        return HTTP_MORE;
    if (c->to)
        memcpy(c->to + c->bytes, c->at, n);
    c->bytes += n;
    c->at += n;
    return read_line_end(c);
}

static enum http_step read_chunks(struct chunks *c)
{
    enum http_step step = HTTP_DONE;
    for (bool last = false; step == HTTP_DONE && !last;)
        step = read_chunk(c, &last);
    return step;
}

/* `at` is the end of the head. Memory is taken when all chunks are there. */
static enum http_step read_chunked(struct slice in, size_t at, struct arena *a,
                                   struct http_head *h, size_t *ret_used)
{
    struct chunks c = {
        .start = in.data, .at = in.data + at, .end = in.data + in.len, .err = h->err};
    struct chunks again = c;
    enum http_step step = read_chunks(&c);
    if (step != HTTP_DONE)
        return step;
    again.to = arena_alloc(a, c.bytes);
    if (!again.to)
        return bad(h->err, 503, "out of memory");
    step = read_chunks(&again);
    BELAY_CHECK(step == HTTP_DONE);
    h->req->body = slice_of(again.to, again.bytes);
    *ret_used = (size_t)(again.at - in.data);
    return HTTP_DONE;
}

static enum http_step read_body(struct slice in, size_t at, struct arena *a,
                                struct http_head *h, size_t *ret_used)
{
    enum http_step step = HTTP_DONE;
    if (h->chunked) {
        step = read_chunked(in, at, a, h, ret_used);
    } else if (at + h->length > REQUEST_BYTES_MAX) {
        return bad(h->err, 413, "request over the limit");
    } else if (in.len - at < h->length) {
        step = HTTP_MORE;
    } else {
        h->req->body = slice_of(in.data + at, h->length);
        *ret_used = at + h->length;
    }
    /* A client that has begun to send its body does not wait for a word from us. */
    return step == HTTP_MORE && h->expects && in.len == at ? HTTP_CONTINUE : step;
}

static enum http_step split_target(struct slice target, struct arena *a, struct request *req,
                                   struct http_error *err)
{
    const char *mark = memchr(target.data, '?', target.len);
    req->path = slice_of(target.data, mark ? (size_t)(mark - target.data) : target.len);
    if (!mark)
        return HTTP_DONE;
    struct slice query = slice_of(mark + 1, target.len - req->path.len - 1);
    const char *why = NULL;
    return http_read_query(req, query, a, &why) ? HTTP_DONE : bad(err, 400, why);
}

enum http_step http_next(struct slice in, struct arena *a, struct request *ret_req,
                         size_t *ret_used, struct http_error *ret_err)
{
    struct request req = {.is_http = true, .verb = {"", 0}, .path = {"", 0}, .body = {"", 0}};
    struct http_error err = {0};
    struct http_head h = {.req = &req, .err = &err, .name = {"", 0}, .value = {"", 0}};
    size_t end = 0, used = 0;
    enum http_step step = scan_head(in, &end, &err);
    if (step == HTTP_DONE)
        step = parse_head(slice_of(in.data, end), &h);
    if (step == HTTP_DONE)
        step = read_body(in, end, a, &h, &used);
    if (step == HTTP_DONE)
        step = split_target(h.target, a, &req, &err);
    if (step == HTTP_MORE && in.len >= REQUEST_BYTES_MAX)
        step = bad(&err, 413, "request over the limit");
    if (step == HTTP_DONE) {
        *ret_req = req;
        *ret_used = used;
    } else if (step == HTTP_BAD) {
        *ret_err = err;
    }
    return step;
}

/* Does a line end in " HTTP/1.1" or the like? */
static bool names_http(struct slice line)
{
    if (line.len && line.data[line.len - 1] == '\r')
        line.len--;
    struct slice tail = SLICE(" HTTP/");
    return line.len > tail.len + 3 &&
           slice_eq(slice_of(line.data + line.len - tail.len - 3, tail.len), tail);
}

enum http_step http_sniff(struct slice first)
{
    size_t look = first.len < HTTP_SNIFF_BYTES_MAX ? first.len : HTTP_SNIFF_BYTES_MAX;
    size_t i = 0;
    while (i < look && is_token(first.data[i]))
        i++;
    bool first_is_resp = look && *first.data == '*';
    if (first_is_resp || (i < look && (i == 0 || first.data[i] != ' ')))
        return HTTP_BAD;
    if (i + 1 < look && first.data[i + 1] == '/')
        return HTTP_DONE;
    const char *lf = i + 1 < look ? memchr(first.data, '\n', look) : NULL;
    if (lf)
        return names_http(slice_of(first.data, (size_t)(lf - first.data))) ? HTTP_DONE
                                                                           : HTTP_BAD;
    return look == HTTP_SNIFF_BYTES_MAX ? HTTP_BAD : HTTP_MORE;
}
