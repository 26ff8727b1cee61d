/* HTTP requests: what is taken, what is refused and with which status. Every row is also tried
 * cut off at every byte: it waits, or it says the same. */
#include "proto/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define S(text)                                                                                \
    {                                                                                          \
        (text), sizeof(text) - 1                                                               \
    }
#define HOST "Host: x\r\n"
#define GET  "GET / HTTP/1.1\r\n" HOST
#define POST "POST / HTTP/1.1\r\n" HOST

static struct arena arena;

static const char *type_name(enum field_type type)
{
    static const char *const names[] = {"text", "number", "bool", "null", "json"};
    return names[type];
}

/* One line: method path keep-alive/close {body} [field=value type]... */
static enum http_step parse(struct slice in, struct buf *out, size_t *used)
{
    struct request req;
    struct http_error err = {0};
    char *copy = malloc(in.len ? in.len : 1);
    assert_non_null(copy);
    memcpy(copy, in.data, in.len);
    enum http_step step = http_next(slice_of(copy, in.len), &arena, &req, used, &err);
    buf_clear(out);
    if (step == HTTP_BAD) {
        buf_printf(out, "%d %s", err.status, err.what);
    } else if (step != HTTP_DONE) {
        buf_put_str(out, step == HTTP_MORE ? "..." : "100");
    } else {
        assert_true(req.is_http);
        buf_put_slice(out, req.verb);
        buf_put_byte(out, ' ');
        buf_put_slice(out, req.path);
        buf_put_str(out, req.keep_alive ? " keep" : " close");
        if (req.body.len) {
            buf_put_str(out, " {");
            buf_put_slice(out, req.body);
            buf_put_str(out, "}");
        }
        for (size_t i = 0; i < req.n_fields; i++) {
            buf_put_str(out, " [");
            buf_put_slice(out, req.fields[i].key);
            buf_put_byte(out, '=');
            buf_put_slice(out, req.fields[i].value);
            buf_put_byte(out, ']');
        }
    }
    free(copy);
    arena_reset(&arena);
    return step;
}

static void check(const char *name, struct slice in, const char *want, size_t left)
{
    struct buf got = {0};
    size_t used = 0;
    enum http_step end = parse(in, &got, &used);
    if (strcmp(buf_cstr(&got), want) != 0)
        fail_msg("%s: got %s, want %s", name, buf_cstr(&got), want);
    if (end == HTTP_DONE && used != in.len - left)
        fail_msg("%s: used %zu of %zu", name, used, in.len);
    bool settled = false;
    for (size_t n = 0; n < in.len; n++) {
        size_t part = 0;
        enum http_step step = parse(slice_of(in.data, n), &got, &part);
        bool early = step == HTTP_DONE || step == HTTP_BAD;
        if (early && (step != end || strcmp(buf_cstr(&got), want) != 0 || part != used))
            fail_msg("%s: cut at %zu: %s", name, n, buf_cstr(&got));
        if ((settled && !early) || (end == HTTP_DONE && early != (n >= used)))
            fail_msg("%s: cut at %zu: %s", name, n, buf_cstr(&got));
        settled = early;
    }
    buf_done(&got);
}

static const struct {
    const char *what;
    struct slice in;
    const char *want;
    size_t left;
} good[] = {
    {"the least", S(GET "\r\n"), "GET / keep", 0},
    {"HTTP/1.0 without Host", S("GET /a HTTP/1.0\r\n\r\n"), "GET /a close", 0},
    {"HTTP/1.0 is closed, whatever it asks for",
     S("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), "GET /a close", 0},
    {"close", S(GET "Connection: close\r\n\r\n"), "GET / close", 0},
    {"Close, in any case", S(GET "CONNECTION: Close\r\n\r\n"), "GET / close", 0},
    {"empty header", S(GET "X-Empty:\r\nX-Blank:   \r\n\r\n"), "GET / keep", 0},
    {"no space behind the colon", S("GET / HTTP/1.1\r\nhOST:x\r\n\r\n"), "GET / keep", 0},
    {"Host with a port", S("GET / HTTP/1.1\r\nHost: [::1]:7117\r\n\r\n"), "GET / keep", 0},
    {"path as sent", S("GET /v1/a%2Fb/%C3%A9/../+ HTTP/1.1\r\n" HOST "\r\n"),
     "GET /v1/a%2Fb/%C3%A9/../+ keep", 0},
    {"query", S("GET /x?a=1&b=%20c+d%2B&&e&f=&%67== HTTP/1.1\r\n" HOST "\r\n"),
     "GET /x keep [a=1] [b= c d+] [e=] [f=] [g==]", 0},
    {"empty query", S("GET /x? HTTP/1.1\r\n" HOST "\r\n"), "GET /x keep", 0},
    {"question marks in the query", S("GET /x?a=? HTTP/1.1\r\n" HOST "\r\n"),
     "GET /x keep [a=?]", 0},
    {"body", S(POST "Content-Length: 4\r\n\r\nabcd"), "POST / keep {abcd}", 0},
    {"empty body", S(POST "Content-Length: 0\r\n\r\n"), "POST / keep", 0},
    {"length with zeros", S(POST "Content-Length: 0004\r\n\r\nabcd"), "POST / keep {abcd}", 0},
    {"a body may hold anything", S(POST "Content-Length: 4\r\n\r\n\r\n\r\n"),
     "POST / keep {\r\n\r\n}", 0},
    {"a GET may have a body", S(GET "Content-Length: 1\r\n\r\nx"), "GET / keep {x}", 0},
    {"chunks",
     S(POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"),
     "POST / keep {abc0123456789}", 0},
    {"no chunk", S(POST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "POST / keep", 0},
    {"Chunked in any case", S(POST "transfer-encoding: CHUNKED \r\n\r\n1\r\nx\r\n0\r\n\r\n"),
     "POST / keep {x}", 0},
    {"chunk extension",
     S(POST "Transfer-Encoding: chunked\r\n\r\n1;a=\"b\"\r\nx\r\n00;c\r\n\r\n"),
     "POST / keep {x}", 0},
    {"hex in both cases",
     S(POST "Transfer-Encoding: chunked\r\n\r\n0b\r\n0123456789a\r\n0\r\n\r\n"),
     "POST / keep {0123456789a}", 0},
    {"pipelined", S(GET "\r\n" GET "\r\n"), "GET / keep", 27},
    {"pipelined behind a body", S(POST "Content-Length: 1\r\n\r\nxGET"), "POST / keep {x}", 3},
    {"pipelined behind chunks",
     S(POST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n\r\n"), "POST / keep {x}", 2},
    {"the client waits for 100", S(POST "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"),
     "100", 0},
    {"and with chunks", S(POST "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n"),
     "100", 0},
    {"it does not wait longer", S(POST "Expect: 100-continue\r\nContent-Length: 4\r\n\r\na"),
     "...", 0},
    {"nor without a body", S(POST "Expect: 100-continue\r\n\r\n"), "POST / keep", 0},
    {"nor in HTTP/1.0",
     S("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"), "...", 0},
    {"other methods", S("PATCH / HTTP/1.1\r\n" HOST "\r\n"), "PATCH / keep", 0},
    {"an upgrade is not taken up",
     S(GET
       "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n"),
     "GET / keep", 0},
    {"high bytes in a value", S(GET "X: \xc3\xa9\xff\r\n\r\n"), "GET / keep", 0},
    {"a tab in a value", S(GET "X: a\tb\t\r\n\r\n"), "GET / keep", 0},
    {"nothing yet", S(""), "...", 0},
    {"half a head", S("GET / HTTP/1.1\r\nHost: x\r\n"), "...", 0},
};

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
static const struct {
    const char *what;
    struct slice in;
    int status;
} bad[] = {
    /* where a request ends */
    {"length and coding",
     S(POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400},
    {"coding and length",
     S(POST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"), 400},
    {"two lengths", S(POST "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"), 400},
    {"two equal lengths", S(POST "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"), 400},
    {"a list of lengths", S(POST "Content-Length: 4, 4\r\n\r\nabcd"), 400},
    {"signed length", S(POST "Content-Length: +4\r\n\r\nabcd"), 400},
    {"negative length", S(POST "Content-Length: -4\r\n\r\nabcd"), 400},
    {"hex length", S(POST "Content-Length: 0x4\r\n\r\nabcd"), 400},
    {"length with a space", S(POST "Content-Length: 4 4\r\n\r\nabcd"), 400},
    {"length with a fraction", S(POST "Content-Length: 4.0\r\n\r\nabcd"), 400},
    {"no length", S(POST "Content-Length:\r\n\r\n"), 400},
    {"length of words", S(POST "Content-Length: four\r\n\r\nabcd"), 400},
    {"length that overflows", S(POST "Content-Length: 18446744073709551617\r\n\r\nx"), 400},
    {"length over the limit", S(POST "Content-Length: 1048577\r\n\r\n"), 413},
    {"length over the limit with the head", S(POST "Content-Length: 1048576\r\n\r\n"), 413},
    {"two codings",
     S(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400},
    {"chunked, chunked", S(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 501},
    {"gzip, chunked", S(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501},
    {"chunked, identity", S(POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), 501},
    {"xchunked", S(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 501},
    {"identity", S(POST "Transfer-Encoding: identity\r\n\r\n"), 501},
    {"empty coding", S(POST "Transfer-Encoding:\r\n\r\n"), 501},
    {"quoted coding", S(POST "Transfer-Encoding: \"chunked\"\r\n\r\n"), 501},
    {"vertical tab before chunked", S(POST "Transfer-Encoding: \vchunked\r\n\r\n"), 400},
    {"coding in HTTP/1.0", S("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     400},
    {"space before the colon", S(POST "Content-Length : 4\r\n\r\nabcd"), 400},
    {"tab before the colon", S(POST "Content-Length\t: 4\r\n\r\nabcd"), 400},
    {"space before a name", S("GET / HTTP/1.1\r\n Host: x\r\n\r\n"), 400},
    {"folded with a space", S(GET "X: a\r\n b\r\n\r\n"), 400},
    {"folded with a tab", S(GET "X: a\r\n\tb\r\n\r\n"), 400},
    {"folded length", S(POST "X: a\r\n Content-Length: 4\r\n\r\nabcd"), 400},
    {"folded end", S(GET "X: a\r\n \r\n\r\n"), 400},
    /* line ends */
    {"LF alone", S("GET / HTTP/1.1\nHost: x\n\n"), 400},
    {"LF alone between headers", S("GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n"), 400},
    {"LF alone at the end", S("GET / HTTP/1.1\r\nHost: x\r\n\n"), 400},
    {"CR alone between headers", S("GET / HTTP/1.1\r\nHost: x\rX: y\r\n\r\n"), 400},
    {"CR alone in a value", S("GET / HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n"), 400},
    {"CR CR LF", S("GET / HTTP/1.1\r\r\nHost: x\r\n\r\n"), 400},
    {"empty line first", S("\r\n" GET "\r\n"), 400},
    {"only empty lines", S("\r\n\r\n"), 400},
    /* bytes */
    {"NUL in a value", S(GET "X: a\0b\r\n\r\n"), 400},
    {"NUL in a name", S(GET "X\0Y: a\r\n\r\n"), 400},
    {"NUL in the path", S("GET /\0 HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"escape byte in a value", S(GET "X: \x1b[0m\r\n\r\n"), 400},
    {"DEL in a value", S(GET "X: \x7f\r\n\r\n"), 400},
    {"space in a name", S(GET "X Y: a\r\n\r\n"), 400},
    {"slash in a name", S(GET "X/Y: a\r\n\r\n"), 400},
    {"brackets in a name", S(GET "(X): a\r\n\r\n"), 400},
    {"high byte in a name", S(GET "X\xe9: a\r\n\r\n"), 400},
    {"no name", S(GET ": a\r\n\r\n"), 400},
    {"no colon", S(GET "X\r\n\r\n"), 400},
    /* Host */
    {"no Host", S("GET / HTTP/1.1\r\n\r\n"), 400},
    {"no Host, but another", S("GET / HTTP/1.1\r\nX-Host: x\r\n\r\n"), 400},
    {"two Hosts", S(GET "Host: y\r\n\r\n"), 400},
    {"two equal Hosts", S(GET HOST "\r\n"), 400},
    {"two Hosts in HTTP/1.0", S("GET / HTTP/1.0\r\n" HOST HOST "\r\n"), 400},
    {"empty Host", S("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 400},
    {"empty Host in HTTP/1.0", S("GET / HTTP/1.0\r\nHost:\r\n\r\n"), 400},
    {"Host with a space", S("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400},
    {"Host with a path", S("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400},
    {"Host with a user", S("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"), 400},
    {"two types", S(GET "Content-Type: a\r\nContent-Type: b\r\n\r\n"), 400},
    {"two origins", S(GET "Origin: a\r\nOrigin: b\r\n\r\n"), 400},
    {"two idempotency keys", S(GET "Idempotency-Key: a\r\nIdempotency-Key: a\r\n\r\n"), 400},
    {"two authorizations", S(GET "Authorization: a\r\nAuthorization: b\r\n\r\n"), 400},
    /* the request line */
    {"no version", S("GET /\r\n" HOST "\r\n"), 400},
    {"empty version", S("GET / \r\n" HOST "\r\n"), 400},
    {"version in lower case", S("GET / http/1.1\r\n" HOST "\r\n"), 400},
    {"HTTP/0.9", S("GET / HTTP/0.9\r\n" HOST "\r\n"), 505},
    {"HTTP/1.2", S("GET / HTTP/1.2\r\n" HOST "\r\n"), 505},
    {"HTTP/2.0", S("GET / HTTP/2.0\r\n" HOST "\r\n"), 505},
    {"HTTP/1", S("GET / HTTP/1\r\n" HOST "\r\n"), 505},
    {"HTTP/1.10", S("GET / HTTP/1.10\r\n" HOST "\r\n"), 505},
    {"the HTTP/2 preface", S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505},
    {"RTSP", S("DESCRIBE / RTSP/1.0\r\n" HOST "\r\n"), 400},
    {"ICE", S("SOURCE / ICE/1.0\r\n" HOST "\r\n"), 400},
    {"a response", S("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), 400},
    {"two spaces", S("GET  / HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"two spaces behind", S("GET /  HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"tab instead of a space", S("GET\t/ HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"tab in the path", S("GET /\t HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"space in the path", S("GET /a b HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"space first", S(" GET / HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"no method", S("/ HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"no path", S("GET HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"unknown method", S("BREW / HTTP/1.1\r\n" HOST "\r\n"), 501},
    {"method in lower case", S("get / HTTP/1.1\r\n" HOST "\r\n"), 501},
    {"method that goes on", S("GETX / HTTP/1.1\r\n" HOST "\r\n"), 501},
    {"method with a bracket", S("GE(T / HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"absolute form", S("GET http://x/ HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"asterisk", S("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"relative path", S("GET a/b HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"CONNECT", S("CONNECT x:443 HTTP/1.1\r\n" HOST "\r\n"), 501},
    {"fragment", S("GET /a#b HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"high byte in the path", S("GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"), 400},
    /* the query */
    {"bad percent", S("GET /?a=%zz HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"short percent", S("GET /?a=%2 HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"percent alone", S("GET /?%=a HTTP/1.1\r\n" HOST "\r\n"), 400},
    {"a field twice", S("GET /?a=1&%61=2 HTTP/1.1\r\n" HOST "\r\n"), 400},
    /* expectations */
    {"unknown expectation", S(GET "Expect: 200-ok\r\n\r\n"), 417},
    {"empty expectation", S(GET "Expect:\r\n\r\n"), 417},
    /* chunks */
    {"no size", S(CHUNKED "\r\n"), 400},
    {"size in words", S(CHUNKED "x\r\n"), 400},
    {"signed size", S(CHUNKED "+1\r\nx\r\n0\r\n\r\n"), 400},
    {"negative size", S(CHUNKED "-1\r\nx\r\n0\r\n\r\n"), 400},
    {"size with 0x", S(CHUNKED "0x1\r\nx\r\n0\r\n\r\n"), 400},
    {"space before the size", S(CHUNKED " 1\r\nx\r\n0\r\n\r\n"), 400},
    {"space behind the size", S(CHUNKED "1 \r\nx\r\n0\r\n\r\n"), 400},
    {"size, LF alone", S(CHUNKED "1\nx\r\n0\r\n\r\n"), 400},
    {"size, CR alone", S(CHUNKED "1\rx\r\n0\r\n\r\n"), 400},
    {"extension, LF alone", S(CHUNKED "1;a\nx\r\n0\r\n\r\n"), 400},
    {"extension with NUL", S(CHUNKED "1;\0\r\nx\r\n0\r\n\r\n"), 400},
    {"chunk longer than said", S(CHUNKED "1\r\nxy\r\n0\r\n\r\n"), 400},
    {"chunk shorter than said", S(CHUNKED "3\r\nx\r\n0\r\n\r\n"), 400},
    {"chunk, LF alone", S(CHUNKED "1\r\nx\n0\r\n\r\n"), 400},
    {"chunk, CR alone", S(CHUNKED "1\r\nx\r0\r\n\r\n"), 400},
    {"size over the limit", S(CHUNKED "100001\r\n"), 413},
    {"size over the limit with the head", S(CHUNKED "fffff\r\n"), 413},
    {"size that overflows", S(CHUNKED "fffffffffffffffff\r\n"), 413},
    {"size of many zeros", S(CHUNKED "00000000000000001\r\nx\r\n0\r\n\r\n"), 400},
    {"trailer", S(CHUNKED "0\r\nX: y\r\n\r\n"), 400},
    {"trailer with a length", S(CHUNKED "0\r\nContent-Length: 4\r\n\r\n"), 400},
    {"the end, LF alone", S(CHUNKED "0\r\n\n"), 400},
};

static void requests_are_read_or_waited_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        check(good[i].what, good[i].in, good[i].want, good[i].left);
    arena_done(&arena);
}

static void malformed_requests_are_refused(void **state)
{
    (void)state;
    assert_true(sizeof bad / sizeof bad[0] >= 60);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct buf got = {0};
        size_t used = 0;
        if (parse(bad[i].in, &got, &used) != HTTP_BAD || atoi(buf_cstr(&got)) != bad[i].status)
            fail_msg("%s: got %s, want %d", bad[i].what, buf_cstr(&got), bad[i].status);
        check(bad[i].what, bad[i].in, buf_cstr(&got), 0);
        buf_done(&got);
    }
    arena_done(&arena);
}

/* in + n times unit + end */
static int status_of(const char *in, const char *unit, size_t n, const char *end)
{
    struct buf text = {0}, got = {0};
    size_t used = 0;
    buf_put_str(&text, in);
    for (size_t i = 0; i < n; i++)
        buf_put_str(&text, unit);
    buf_put_str(&text, end);
    enum http_step step = parse(buf_slice(&text), &got, &used);
    int status = step == HTTP_BAD ? atoi(buf_cstr(&got)) : step == HTTP_DONE ? 200 : 0;
    buf_done(&text);
    buf_done(&got);
    return status;
}

static void limits_are_exact(void **state)
{
    (void)state;
    const char *tail = " HTTP/1.1\r\n" HOST "\r\n";
    assert_int_equal(status_of("GET /", "a", HTTP_URI_BYTES_MAX - 1, tail), 200);
    assert_int_equal(status_of("GET /", "a", HTTP_URI_BYTES_MAX, tail), 414);
    assert_int_equal(status_of("GET /", "a", HTTP_LINE_BYTES_MAX, ""), 414);
    assert_int_equal(status_of(GET, "X: y\r\n", REQUEST_HEADERS_MAX - 1, "\r\n"), 200);
    assert_int_equal(status_of(GET, "X: y\r\n", REQUEST_HEADERS_MAX, "\r\n"), 431);
    size_t room = REQUEST_HEAD_BYTES_MAX - strlen(GET "X: \r\n\r\n");
    assert_int_equal(status_of(GET "X: ", "y", room, "\r\n\r\n"), 200);
    assert_int_equal(status_of(GET "X: ", "y", room + 1, "\r\n\r\n"), 431);
    assert_int_equal(status_of(GET "X: ", "y", room + 4, ""), 431);
    assert_int_equal(status_of("GET /?", "a=1&", 1, tail), 200);
    assert_int_equal(
        status_of(CHUNKED "1;", "e", HTTP_EXTENSION_BYTES_MAX - 1, "\r\nx\r\n0\r\n\r\n"), 200);
    assert_int_equal(
        status_of(CHUNKED "1;", "e", HTTP_EXTENSION_BYTES_MAX, "\r\nx\r\n0\r\n\r\n"), 400);
    assert_int_equal(status_of(CHUNKED, "1;abcdefg\r\nx\r\n", 32, "0\r\n\r\n"), 200);
    assert_int_equal(status_of(CHUNKED, "1;abcdefg\r\nx\r\n", 33, "0\r\n\r\n"), 400);
    assert_int_equal(status_of(CHUNKED, "1\r\nx\r\n", HTTP_CHUNKS_MAX, "0\r\n\r\n"), 200);
    assert_int_equal(status_of(CHUNKED, "1\r\nx\r\n", HTTP_CHUNKS_MAX + 1, "0\r\n\r\n"), 400);
    char declared[80];
    for (size_t more = 0; more < 2; more++) {
        size_t body = REQUEST_BYTES_MAX - strlen(POST "Content-Length: 1048501\r\n\r\n") + more;
        (void)snprintf(declared, sizeof declared, POST "Content-Length: %zu\r\n\r\n", body);
        assert_int_equal(status_of(declared, "x", more ? 0 : body, ""), more ? 413 : 200);
    }
    struct buf query = {0};
    for (int i = 0; i < REQUEST_FIELDS_MAX + 1; i++) {
        assert_int_equal(status_of("GET /?", buf_cstr(&query), 1, tail), 200);
        buf_printf(&query, "f%d=1&", i);
    }
    assert_int_equal(status_of("GET /?", buf_cstr(&query), 1, tail), 400);
    buf_done(&query);
    arena_done(&arena);
}

static void headers_find_their_place(void **state)
{
    (void)state;
    struct request req;
    struct http_error err;
    size_t used = 0;
    struct slice in =
        SLICE("POST /p HTTP/1.1\r\nhost:  belay:7117 \r\nContent-type: application/json\r\n"
              "ORIGIN: http://a\r\nAccept: text/event-stream\r\nAccept: */*\r\n"
              "Last-Event-ID: 42\r\nAuthorization: Bearer t\r\nIdempotency-Key: k-1\r\n"
              "X-Request-ID: r-1\r\nX-Request-Id: r-2\r\n\r\n");
    assert_int_equal(http_next(in, &arena, &req, &used, &err), HTTP_DONE);
    assert_true(slice_eq(req.host, SLICE("belay:7117")));
    assert_true(slice_eq(req.content_type, SLICE("application/json")));
    assert_true(slice_eq(req.origin, SLICE("http://a")));
    assert_true(slice_eq(req.accept, SLICE("text/event-stream")));
    assert_true(slice_eq(req.last_event_id, SLICE("42")));
    assert_true(slice_eq(req.authorization, SLICE("Bearer t")));
    assert_true(slice_eq(req.idempotency_key, SLICE("k-1")));
    assert_true(slice_eq(req.request_id, SLICE("r-1")));
    assert_int_equal(req.n_words, 0);
    arena_done(&arena);
}

static void an_id_is_short_and_printable(void **state)
{
    (void)state;
    char long_id[HTTP_ID_BYTES_MAX + 1];
    memset(long_id, 'x', sizeof long_id);
    assert_true(http_is_id(SLICE("a")));
    assert_true(http_is_id(SLICE("!\"\\~")));
    assert_true(http_is_id(slice_of(long_id, HTTP_ID_BYTES_MAX)));
    assert_false(http_is_id(slice_of(long_id, sizeof long_id)));
    assert_false(http_is_id(SLICE("")));
    assert_false(http_is_id(slice_of(NULL, 0)));
    assert_false(http_is_id(SLICE("a b")));
    assert_false(http_is_id(SLICE("a\t")));
    assert_false(http_is_id(SLICE("a\0")));
    assert_false(http_is_id(SLICE("\xfc")));
    assert_false(http_is_id(SLICE("\x7f")));
}

static const struct {
    const char *query, *body, *want;
} bodies[] = {
    {"", "", ""},
    {"", "{}", ""},
    {"a=1", "", "a=1 text;"},
    {"a=1", "{\"b\":2}", "a=1 text;b=2 number;"},
    {"", "{\"a\":\"x\\ny\",\"b\":-1.5,\"c\":true,\"d\":null,\"e\":[1],\"f\":{\"g\":0}}",
     "a=x\ny text;b=-1.5 number;c=true bool;d=null null;e=[1] json;f={\"g\":0} json;"},
    {"", "{\"\\u0061\":\"\\u0062\"}", "a=b text;"},
    {"a=1", "{\"a\":2}", "!a field is given in the query and in the body"},
    {"a=1", "{\"\\u0061\":2}", "!a field is given in the query and in the body"},
    {"", "[]", "!the body is not a JSON object"},
    {"", "\"x\"", "!the body is not a JSON object"},
    {"", "{\"a\":1,\"a\":2}", "!the body is not JSON: duplicate member at byte 8"},
    {"", "{\"a\":1", "!the body is not JSON: no comma or } behind a member at byte 6"},
    {"", "a=1", "!the body is not JSON: a value is missing at byte 0"},
    {"", " ", "!the body is not JSON: a value is missing at byte 1"},
};

static void a_body_adds_fields(void **state)
{
    (void)state;
    struct buf got = {0};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct request req = {.body = slice_str(bodies[i].body)};
        const char *why = NULL;
        assert_true(http_read_query(&req, slice_str(bodies[i].query), &arena, &why));
        buf_clear(&got);
        if (http_read_body(&req, &arena, &why)) {
            for (size_t f = 0; f < req.n_fields; f++)
                buf_printf(&got, "%.*s=%.*s %s;", (int)req.fields[f].key.len,
                           req.fields[f].key.data, (int)req.fields[f].value.len,
                           req.fields[f].value.data, type_name(req.fields[f].type));
        } else {
            buf_printf(&got, "!%s", why);
        }
        assert_string_equal(buf_cstr(&got), bodies[i].want);
    }
    struct request req = {.body = {"", 0}};
    buf_clear(&got);
    for (int i = 0; i <= REQUEST_FIELDS_MAX; i++)
        buf_printf(&got, "%s\"%d\":0", i ? "," : "{", i);
    buf_put_byte(&got, '}');
    req.body = buf_slice(&got);
    const char *why = NULL;
    assert_false(http_read_body(&req, &arena, &why));
    assert_string_equal(why, "too many fields");
    buf_done(&got);
    arena_done(&arena);
}

static void segments_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        struct slice want;
    } rows[] = {
        {"", S("")},        {"abc", S("abc")},       {"a%2Fb", S("a/b")},
        {"a+b", S("a+b")},  {"%00%fF", S("\0\xff")}, {"%2525", S("%25")},
        {"%", {NULL, 0}},   {"%2", {NULL, 0}},       {"%2g", {NULL, 0}},
        {"%g2", {NULL, 0}}, {"abc%", {NULL, 0}},     {"%%20", {NULL, 0}},
        {"%-1", {NULL, 0}}, {"% 1", {NULL, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice got = {0};
        bool ok = http_decode(slice_str(rows[i].in), &arena, &got);
        if (ok != (rows[i].want.data != NULL) || (ok && !slice_eq(got, rows[i].want)))
            fail_msg("%s", rows[i].in);
    }
    arena_done(&arena);
}

static void first_bytes_tell_the_protocol(void **state)
{
    (void)state;
    static const struct {
        enum http_step want;
        struct slice in;
    } rows[] = {
        {HTTP_DONE, S("GET /")},
        {HTTP_DONE, S("POST / HTTP/1.1\r\n")},
        {HTTP_DONE, S("BREW /coffee")},
        {HTTP_DONE, S("PING /\r\n")},
        {HTTP_DONE, S("GET http://x/ HTTP/1.1\r\n")},
        {HTTP_DONE, S("CONNECT x:1 HTTP/1.1\r\n")},
        {HTTP_DONE, S("OPTIONS * HTTP/1.1\n")},
        {HTTP_DONE, S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
        {HTTP_MORE, S("")},
        {HTTP_MORE, S("G")},
        {HTTP_MORE, S("POST")},
        {HTTP_MORE, S("POST ")},
        {HTTP_MORE, S("ECHO a")},
        {HTTP_BAD, S("*")},
        {HTTP_BAD, S("*1\r\n$4\r\nPING\r\n")},
        {HTTP_BAD, S("* /")},
        {HTTP_BAD, S("PING\r\n")},
        {HTTP_BAD, S("PING\n")},
        {HTTP_BAD, S("\r\n")},
        {HTTP_BAD, S(" GET /")},
        {HTTP_BAD, S("GET key\r\n")},
        {HTTP_BAD, S("ECHO HTTP\r\n")},
        {HTTP_BAD, S("ECHO \"HTTP/1.1\"\r\n")},
        {HTTP_BAD, S("\x16\x03\x01")},
        {HTTP_BAD, S("\0")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (http_sniff(rows[i].in) != rows[i].want)
            fail_msg("%s: %d", rows[i].in.data, (int)http_sniff(rows[i].in));
    static char words[HTTP_SNIFF_BYTES_MAX];
    memset(words, 'a', sizeof words);
    assert_int_equal(http_sniff(slice_of(words, sizeof words - 1)), HTTP_MORE);
    assert_int_equal(http_sniff(slice_of(words, sizeof words)), HTTP_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_read_or_waited_for),
        cmocka_unit_test(malformed_requests_are_refused),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(headers_find_their_place),
        cmocka_unit_test(an_id_is_short_and_printable),
        cmocka_unit_test(a_body_adds_fields),
        cmocka_unit_test(segments_are_decoded),
        cmocka_unit_test(first_bytes_tell_the_protocol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
