/* One tree, three forms: what a reply looks like in RESP2, RESP3 and JSON. */
#include "proto/http.h"
#include "proto/json.h"
#include "proto/message.h"
#include "proto/resp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct arena arena;

static struct reply *granted(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    r->flags = REPLY_ROW;
    (void)reply_text(&arena, r, "status", SLICE("granted"));
    (void)reply_int(&arena, r, "fence", 13);
    reply_int(&arena, r, "ticket", 0)->flags = REPLY_JSON_ONLY;
    (void)reply_int(&arena, r, "expires_in_ms", 30000);
    (void)reply_text(&arena, r, "body", SLICE(""));
    return r;
}

static struct reply *deadlock(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    r->flags = REPLY_ROW;
    (void)reply_text(&arena, r, "status", SLICE("deadlock"));
    struct reply *cycle = reply_list(&arena, r, "cycle");
    cycle->flags = REPLY_SPLICE;
    (void)reply_text(&arena, cycle, NULL, SLICE("a"));
    (void)reply_text(&arena, cycle, NULL, SLICE("b"));
    return r;
}

static struct reply *released(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    r->flags = REPLY_ROW;
    (void)reply_bool(&arena, r, "released", true);
    reply_map(&arena, r, "lock")->flags = REPLY_JSON_ONLY;
    return r;
}

static struct reply *timed_out(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    r->flags = REPLY_ROW | REPLY_WRAP;
    (void)reply_text(&arena, r, "status", SLICE("timeout"));
    return r;
}

static struct reply *nothing_in_a_row(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    r->flags = REPLY_ROW;
    reply_null(&arena, r, "x")->flags = REPLY_JSON_ONLY;
    return r;
}

static struct reply *show_lock(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    (void)reply_text(&arena, r, "name", SLICE("a\"\n\xff"));
    struct reply *holders = reply_list(&arena, r, "holders");
    struct reply *h = reply_map(&arena, holders, NULL);
    (void)reply_bool(&arena, h, "overdue", false);
    (void)reply_null(&arena, h, "session");
    reply_int(&arena, r, "secret", 1)->flags = REPLY_RESP_ONLY;
    (void)reply_add(r, SLICE("gone"), reply_new(&arena, REPLY_NONE));
    return r;
}

static struct reply *stale(void)
{
    return reply_error(&arena, BELAY_ERR_STALE, "fence %d\r\n is\tnot current", 13);
}

static struct reply *bare_error(void)
{
    struct reply *r = reply_new(&arena, REPLY_ERROR);
    r->err = BELAY_ERR_GONE;
    return r;
}

static struct reply *status(void)
{
    struct reply *r = reply_new(&arena, REPLY_STATUS);
    r->text = SLICE("OK\r\n-ERR");
    return r;
}

static struct reply *reals(void)
{
    static const double values[] = {
        0.1, 1, -2.5e300, 5e-324, (double)INFINITY, (double)-INFINITY, (double)NAN};
    struct reply *r = reply_list(&arena, NULL, NULL);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        reply_add(r, SLICE(""), reply_new(&arena, REPLY_DOUBLE))->real = values[i];
    return r;
}

static struct reply *push(void)
{
    struct reply *r = reply_new(&arena, REPLY_PUSH);
    (void)reply_text(&arena, r, NULL, SLICE("granted"));
    (void)reply_int(&arena, r, NULL, INT64_MIN);
    return r;
}

static struct reply *json(void)
{
    struct reply *r = reply_map(&arena, NULL, NULL);
    reply_add(r, SLICE("v"), reply_new(&arena, REPLY_JSON))->text = SLICE("{\"a\":[1]}");
    (void)reply_add(r, SLICE("w"), reply_new(&arena, REPLY_JSON));
    return r;
}

static struct reply *plain(void)
{
    struct reply *r = reply_new(&arena, REPLY_PLAIN);
    r->text = SLICE("up 1\n");
    return r;
}

static struct reply *none(void)
{
    return reply_new(&arena, REPLY_NONE);
}

static struct reply *null(void)
{
    return reply_null(&arena, NULL, NULL);
}

static const struct {
    struct reply *(*make)(void);
    const char *resp2, *resp3, *json;
} rows[] = {
    {granted, "*4\r\n$7\r\ngranted\r\n:13\r\n:30000\r\n$0\r\n\r\n",
     "*4\r\n$7\r\ngranted\r\n:13\r\n:30000\r\n$0\r\n\r\n",
     "{\"status\":\"granted\",\"fence\":13,\"ticket\":0,\"expires_in_ms\":30000,\"body\":\"\"}"},
    {deadlock, "*3\r\n$8\r\ndeadlock\r\n$1\r\na\r\n$1\r\nb\r\n",
     "*3\r\n$8\r\ndeadlock\r\n$1\r\na\r\n$1\r\nb\r\n",
     "{\"status\":\"deadlock\",\"cycle\":[\"a\",\"b\"]}"},
    {released, ":1\r\n", ":1\r\n", "{\"released\":true,\"lock\":{}}"},
    {timed_out, "*1\r\n$7\r\ntimeout\r\n", "*1\r\n$7\r\ntimeout\r\n",
     "{\"status\":\"timeout\"}"},
    {nothing_in_a_row, "*0\r\n", "*0\r\n", "{\"x\":null}"},
    {show_lock,
     "*6\r\n$4\r\nname\r\n$4\r\na\"\n\xff\r\n$7\r\nholders\r\n*1\r\n*4\r\n$7\r\noverdue\r\n:0\r\n"
     "$7\r\nsession\r\n$-1\r\n$6\r\nsecret\r\n:1\r\n",
     "%3\r\n$4\r\nname\r\n$4\r\na\"\n\xff\r\n$7\r\nholders\r\n*1\r\n%2\r\n$7\r\noverdue\r\n:0\r\n"
     "$7\r\nsession\r\n_\r\n$6\r\nsecret\r\n:1\r\n",
     "{\"name\":\"a\\\"\\n\xef\xbf\xbd\",\"holders\":[{\"overdue\":false,\"session\":null}]}"},
    {stale, "-STALE fence 13   is not current\r\n", "-STALE fence 13   is not current\r\n",
     "{\"error\":{\"code\":\"STALE\",\"message\":\"fence 13\\r\\n is\\tnot current\"}}"},
    {bare_error, "-GONE dropped already; read the full state first\r\n",
     "-GONE dropped already; read the full state first\r\n",
     "{\"error\":{\"code\":\"GONE\",\"message\":\"dropped already; read the full state first\"}}"},
    {status, "+OK  -ERR\r\n", "+OK  -ERR\r\n", "\"OK\\r\\n-ERR\""},
    {reals,
     "*7\r\n$3\r\n0.1\r\n$1\r\n1\r\n$9\r\n-2.5e+300\r\n$21\r\n4.94065645841247e-324\r\n"
     "$3\r\ninf\r\n$4\r\n-inf\r\n$3\r\nnan\r\n",
     "*7\r\n,0.1\r\n,1\r\n,-2.5e+300\r\n,4.94065645841247e-324\r\n,inf\r\n,-inf\r\n,nan\r\n",
     "[0.1,1,-2.5e+300,4.94065645841247e-324,null,null,null]"},
    {push, "*2\r\n$7\r\ngranted\r\n:-9223372036854775808\r\n",
     ">2\r\n$7\r\ngranted\r\n:-9223372036854775808\r\n", "[\"granted\",-9223372036854775808]"},
    {json, "*4\r\n$1\r\nv\r\n$9\r\n{\"a\":[1]}\r\n$1\r\nw\r\n$0\r\n\r\n",
     "%2\r\n$1\r\nv\r\n$9\r\n{\"a\":[1]}\r\n$1\r\nw\r\n$0\r\n\r\n",
     "{\"v\":{\"a\":[1]},\"w\":null}"},
    {plain, "$5\r\nup 1\n\r\n", "$5\r\nup 1\n\r\n", "\"up 1\\n\""},
    {none, "", "", ""},
    {null, "$-1\r\n", "_\r\n", "null"},
};

static void one_tree_has_three_forms(void **state)
{
    (void)state;
    struct buf out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reply *r = rows[i].make();
        buf_clear(&out);
        resp_write(&out, r, 2);
        assert_string_equal(buf_cstr(&out), rows[i].resp2);
        buf_clear(&out);
        resp_write(&out, r, 3);
        assert_string_equal(buf_cstr(&out), rows[i].resp3);
        buf_clear(&out);
        json_write(&out, r);
        assert_string_equal(buf_cstr(&out), rows[i].json);
    }
    buf_done(&out);
    arena_done(&arena);
}

/* What is written is read again as one reply, to its last byte, in both versions; and writing
 * what was read gives the same bytes in the version that knows the type. */
static void what_is_written_can_be_read(void **state)
{
    (void)state;
    struct buf out = {0}, again = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int version = 2; version <= 3; version++) {
            buf_clear(&out);
            buf_clear(&again);
            resp_write(&out, rows[i].make(), version);
            if (buf_len(&out) == 0)
                continue;
            struct reply *r = NULL;
            size_t used = 0;
            const char *why = NULL;
            enum resp_step step = resp_next_reply(buf_slice(&out), &arena, &r, &used, &why);
            assert_int_equal(step, RESP_DONE);
            assert_int_equal(used, buf_len(&out));
            resp_write(&again, r, version);
            if (r->kind != REPLY_ERROR || r->text.len)
                assert_string_equal(buf_cstr(&again), buf_cstr(&out));
        }
    }
    buf_done(&out);
    buf_done(&again);
    arena_done(&arena);
}

static void a_map_is_asked_by_key(void **state)
{
    (void)state;
    struct reply *r = granted();
    assert_int_equal(reply_get(r, "fence")->number, 13);
    assert_null(reply_get(r, "fenc"));
    assert_null(reply_get(NULL, "fence"));
    assert_null(reply_get(reply_int(&arena, NULL, NULL, 1), "fence"));
    assert_int_equal(r->count, 5);
    arena_done(&arena);
}

/* A client that runs out of memory holds NULL instead of a parent or a child. */
static void null_is_no_parent_and_no_child(void **state)
{
    (void)state;
    struct reply *r = reply_list(&arena, NULL, NULL);
    assert_null(reply_add(r, SLICE("k"), NULL));
    assert_int_equal(r->count, 0);
    assert_null(r->first);
    assert_ptr_equal(reply_add(NULL, SLICE("k"), r), r);
    arena_done(&arena);
}

static void a_response_has_its_length_before_its_body(void **state)
{
    (void)state;
    struct buf out = {0};
    const char *start = "Content-Type: application/json\r\nCache-Control: no-store\r\n"
                        "X-Content-Type-Options: nosniff\r\n";
    char want[512];
    buf_put_str(&out, "before");
    http_write(&out, released(), (struct http_manner){.keep_alive = true});
    (void)snprintf(want, sizeof want, "beforeHTTP/1.1 200 OK\r\n%sContent-Length: 27\r\n\r\n%s",
                   start, "{\"released\":true,\"lock\":{}}");
    assert_string_equal(buf_cstr(&out), want);

    buf_clear(&out);
    struct reply *r = stale();
    r->headers = SLICE("Retry-After: 1\r\n");
    http_write(&out, r, (struct http_manner){.bare = true, .id = SLICE("id-7")});
    (void)snprintf(
        want, sizeof want,
        "HTTP/1.1 409 Conflict\r\n%sX-Request-Id: id-7\r\nConnection: close\r\nRetry-After: 1\r\n"
        "Content-Length: 67\r\n\r\n",
        start);
    assert_string_equal(buf_cstr(&out), want);

    buf_clear(&out);
    r = none();
    http_write(&out, r, (struct http_manner){.keep_alive = true});
    r->status = 204;
    http_write(&out, r, (struct http_manner){.keep_alive = true});
    assert_string_equal(
        buf_cstr(&out),
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Length: 0\r\n\r\n"
        "HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n\r\n");
    buf_clear(&out);
    r = plain();
    r->media = "text/html";
    r->status = 503;
    http_write(&out, r, (struct http_manner){.keep_alive = true});
    assert_string_equal(buf_cstr(&out),
                        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\n"
                        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                        "Content-Length: 5\r\n\r\nup 1\n");
    buf_done(&out);
    arena_done(&arena);
}

static void events_cannot_be_forged_by_line_ends(void **state)
{
    (void)state;
    struct buf out = {0};
    http_write_event(&out, 7, SLICE("granted"), SLICE("a\nid: 9\r\rb\r\nc\n"));
    http_write_event(&out, 0, SLICE(""), SLICE(""));
    assert_string_equal(buf_cstr(&out), "id: 7\nevent: granted\ndata: a\ndata: id: 9\ndata: \n"
                                        "data: b\ndata: c\ndata: \n\nid: 0\ndata: \n\n");
    buf_done(&out);
}

static void a_refusal_has_a_code_and_a_status(void **state)
{
    (void)state;
    static const struct {
        int status;
        enum belay_err err;
    } want[] = {{400, BELAY_ERR_SYNTAX},  {413, BELAY_ERR_TOO_BIG}, {414, BELAY_ERR_TOO_BIG},
                {431, BELAY_ERR_TOO_BIG}, {408, BELAY_ERR_TIMEOUT}, {505, BELAY_ERR_SYNTAX}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct reply *r = http_error_reply(&arena, &(struct http_error){want[i].status, "why"});
        assert_int_equal(r->status, want[i].status);
        assert_int_equal(r->err, want[i].err);
        assert_true(slice_eq(r->text, SLICE("why")));
    }
    arena_done(&arena);
}

static void a_number_has_its_shortest_digits(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want;
    } numbers[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {-1, "-1"},
        {0.5, "0.5"},
        {0.973, "0.973"},
        {-12.25, "-12.25"},
        {0.001, "0.001"},
        {-0.001, "-0.001"},
        {100, "100"},
        {85528.56, "85528.56"},
        {0.0001, "0.0001"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e15, "1e+15"},
        {999999999999.5, "999999999999.5"},
        {1e300, "1e+300"},
    };
    char space[REPLY_REAL_BYTES];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct slice got = reply_real(numbers[i].v, space);
        if (!slice_eq(got, slice_str(numbers[i].want)))
            fail_msg("%.*s, not %s", (int)got.len, got.data, numbers[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tree_has_three_forms),
        cmocka_unit_test(what_is_written_can_be_read),
        cmocka_unit_test(a_map_is_asked_by_key),
        cmocka_unit_test(null_is_no_parent_and_no_child),
        cmocka_unit_test(a_response_has_its_length_before_its_body),
        cmocka_unit_test(events_cannot_be_forged_by_line_ends),
        cmocka_unit_test(a_refusal_has_a_code_and_a_status),
        cmocka_unit_test(a_number_has_its_shortest_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
