/* RESP: requests in, replies out and in again. Every row is also tried cut off at every byte.
 */
#include "proto/resp.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct row {
    const char *what;
    struct slice input;
    const char *want; /* "VERB <word> <word>"; "!" and the reason; "..." for more */
    size_t left;      /* bytes behind the request */
};
#define S(text)                                                                                \
    {                                                                                          \
        (text), sizeof(text) - 1                                                               \
    }

/* Bytes as text that a table can hold. */
static void show(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c >= ' ' && c < 127 && c != '<' && c != '\\')
            buf_put_byte(out, (char)c);
        else
            buf_printf(out, "\\%02x", c);
    }
}

static enum resp_step parse(struct slice in, struct buf *out, size_t *used)
{
    struct arena a = {0};
    struct request req;
    const char *why = NULL;
    enum resp_step step = resp_next(in, &a, &req, used, &why);
    buf_clear(out);
    if (step == RESP_MORE) {
        buf_put_str(out, "...");
    } else if (step != RESP_DONE) {
        buf_printf(out, "%s%s", step == RESP_BAD ? "!" : ">", why);
    } else {
        assert_false(req.is_http);
        show(out, req.verb);
        for (size_t i = 0; i < req.n_words; i++) {
            buf_put_str(out, " <");
            show(out, req.words[i]);
            buf_put_byte(out, '>');
        }
    }
    arena_done(&a);
    return step;
}

/* The bytes in memory of their own size, so that reading past them is seen. */
static enum resp_step parse_exact(struct slice in, struct buf *out, size_t *used)
{
    char *copy = malloc(in.len ? in.len : 1);
    assert_non_null(copy);
    memcpy(copy, in.data, in.len);
    enum resp_step step = parse(slice_of(copy, in.len), out, used);
    free(copy);
    return step;
}

static void check_row(const struct row *row)
{
    struct buf got = {0};
    size_t used = 0, len = row->input.len;
    enum resp_step end = parse_exact(row->input, &got, &used);
    if (strcmp(buf_cstr(&got), row->want) != 0)
        fail_msg("%s: got %s, want %s", row->what, buf_cstr(&got), row->want);
    if (end == RESP_DONE && used != len - row->left)
        fail_msg("%s: used %zu of %zu", row->what, used, len);
    bool settled = false;
    for (size_t n = 0; n < len; n++) {
        size_t part = 0;
        enum resp_step step = parse_exact(slice_of(row->input.data, n), &got, &part);
        bool early = step != RESP_MORE;
        if (early && (step != end || strcmp(buf_cstr(&got), row->want) != 0 || part != used))
            fail_msg("%s: cut at %zu: %s", row->what, n, buf_cstr(&got));
        if ((settled && !early) || (end == RESP_DONE && early != (n >= used)))
            fail_msg("%s: cut at %zu: %s", row->what, n, buf_cstr(&got));
        settled = early;
    }
    buf_done(&got);
}

static const struct row good[] = {
    {"one word", S("*1\r\n$4\r\nPING\r\n"), "PING", 0},
    {"words", S("*3\r\n$3\r\nGET\r\n$1\r\na\r\n$2\r\nbc\r\n"), "GET <a> <bc>", 0},
    {"lower case stays", S("*1\r\n$4\r\nping\r\n"), "ping", 0},
    {"empty word", S("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"), "ECHO <>", 0},
    {"any byte", S("*2\r\n$1\r\nX\r\n$4\r\n\0\r\n\xff\r\n"), "X <\\00\\0d\\0a\\ff>", 0},
    {"a bulk that looks like RESP", S("*2\r\n$1\r\nX\r\n$5\r\n*1\r\n$\r\n"), "X <*1\\0d\\0a$>",
     0},
    {"no words", S("*0\r\n"), "", 0},
    {"pipelined", S("*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n"), "A", 11},
    {"pipelined garbage is not ours", S("*1\r\n$1\r\nA\r\n\0\0"), "A", 2},
    {"inline", S("PING\r\n"), "PING", 0},
    {"inline, LF alone", S("PING\n"), "PING", 0},
    {"inline words", S("SET  a\tb \r\n"), "SET <a> <b>", 0},
    {"empty line", S("\r\n"), "", 0},
    {"empty line, LF alone", S("\nPING\r\n"), "", 6},
    {"spaces only", S("   \r\n"), "", 0},
    {"double quotes", S("ECHO \"a b\"\r\n"), "ECHO <a b>", 0},
    {"escapes", S("ECHO \"\\x00\\xfF\\n\\r\\t\\b\\a\\\\\\\"\\q\"\r\n"),
     "ECHO <\\00\\ff\\0a\\0d\\09\\08\\07\\5c\"q>", 0},
    {"an x that is no escape", S("ECHO \"\\xg0\"\r\n"), "ECHO <xg0>", 0},
    {"single quotes", S("ECHO 'a \"\\n\\'b'\r\n"), "ECHO <a \"\\5cn'b>", 0},
    {"many quoted words", S("A \"b\" \"\\x63\" '' 'd e'\r\n"), "A <b> <c> <> <d e>", 0},
    {"quoted name", S("\"PING\"\r\n"), "PING", 0},
    {"empty quoted word", S("ECHO \"\" ''\r\n"), "ECHO <> <>", 0},
    {"high bytes inline", S("ECHO \xc3\xa9\r\n"), "ECHO <\\c3\\a9>", 0},
    {"other types are words", S("$4\r\n"), "$4", 0},
    {"nothing", S(""), "...", 0},
    {"half a word", S("*1\r\n$4\r\nPI"), "...", 0},
    {"half a line", S("PIN"), "...", 0},
};

static const struct row bad[] = {
    {"negative count", S("*-1\r\n"), "!length is not a plain number", 0},
    {"very negative count", S("*-4222222622\r\n"), "!length is not a plain number", 0},
    {"no count", S("*\r\n"), "!length is not a plain number", 0},
    {"plus", S("*+1\r\n"), "!length is not a plain number", 0},
    {"space", S("* 1\r\n"), "!length is not a plain number", 0},
    {"leading zero", S("*01\r\n$1\r\nA\r\n"), "!length is not a plain number", 0},
    {"hex", S("*0x1\r\n"), "!length is not a plain number", 0},
    {"messages", S("*abc\r\n"), "!length is not a plain number", 0},
    {"count over the limit", S("*1025\r\n"), ">length over the limit", 0},
    {"count that overflows", S("*18446744073709551617\r\n"), ">length over the limit", 0},
    {"count, LF alone", S("*1\n$4\r\nPING\r\n"), "!length is not a plain number", 0},
    {"count, CR alone", S("*1\r$4\r\nPING\r\n"), "!CR without LF", 0},
    {"null word", S("*1\r\n$-1\r\n"), "!length is not a plain number", 0},
    {"negative word", S("*1\r\n$-2147483648\r\n"), "!length is not a plain number", 0},
    {"word over the limit", S("*1\r\n$1048577\r\n"), ">length over the limit", 0},
    {"word that overflows", S("*1\r\n$99999999999999999999\r\n"), ">length over the limit", 0},
    {"words over the limit together", S("*2\r\n$1\r\nA\r\n$1048560\r\n"),
     ">request over the limit", 0},
    {"word with leading zero", S("*1\r\n$04\r\nPING\r\n"), "!length is not a plain number", 0},
    {"word without length", S("*1\r\n$\r\nPING\r\n"), "!length is not a plain number", 0},
    {"integer as word", S("*1\r\n:1\r\n"), "!a word is not a bulk string", 0},
    {"status as word", S("*1\r\n+PING\r\n"), "!a word is not a bulk string", 0},
    {"array as word", S("*1\r\n*1\r\n$1\r\nA\r\n"), "!a word is not a bulk string", 0},
    {"empty line as word", S("*1\r\n\r\n"), "!a word is not a bulk string", 0},
    {"word longer than said", S("*1\r\n$3\r\nPING\r\n"), "!no line end behind a bulk string",
     0},
    {"word shorter than said", S("*1\r\n$5\r\nPING\r\n*"), "!no line end behind a bulk string",
     0},
    {"word, LF alone", S("*1\r\n$4\r\nPING\n*1\r\n"), "!no line end behind a bulk string", 0},
    {"word, CR alone", S("*1\r\n$4\r\nPING\r*1\r\n"), "!no line end behind a bulk string", 0},
    {"empty name", S("*1\r\n$0\r\n\r\n"), "!empty command name", 0},
    {"empty name inline", S("\"\" a\r\n"), "!empty command name", 0},
    {"NUL inline", S("PING\0\r\n"), "!control byte in an inline command", 0},
    {"CR inline", S("PING\rX\r\n"), "!control byte in an inline command", 0},
    {"two CR", S("PING\r\r\n"), "!control byte in an inline command", 0},
    {"escape byte inline", S("PING \x1b[0m\r\n"), "!control byte in an inline command", 0},
    {"open double quote", S("ECHO \"a\r\n"), "!unbalanced quotes", 0},
    {"open single quote", S("ECHO 'a\r\n"), "!unbalanced quotes", 0},
    {"backslash at the end", S("ECHO \"a\\\r\n"), "!unbalanced quotes", 0},
    {"no space behind a quote", S("ECHO \"a\"b\r\n"), "!no space behind a closing quote", 0},
    {"quote inside a word", S("ECHO a\"b\"\r\n"), "!a quote inside a word", 0},
    {"HTTP", S("POST / HTTP/1.1\r\n"), "!this is HTTP in the middle of RESP", 0},
    {"HTTP, LF alone", S("GET http://x/ HTTP/1.0\n"), "!this is HTTP in the middle of RESP", 0},
};

static void requests_are_read_or_waited_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        check_row(&good[i]);
}

static void malformed_requests_are_named(void **state)
{
    (void)state;
    assert_true(sizeof bad >= sizeof good);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_row(&bad[i]);
}

static void limits_are_exact(void **state)
{
    (void)state;
    struct buf in = {0}, got = {0};
    size_t used = 0;
    struct slice words[REQUEST_WORDS_MAX];
    for (size_t i = 0; i < REQUEST_WORDS_MAX; i++)
        words[i] = SLICE("w");
    resp_write_request(&in, words, REQUEST_WORDS_MAX);
    assert_int_equal(parse(buf_slice(&in), &got, &used), RESP_DONE);
    assert_int_equal(used, buf_len(&in));

    /* A request of exactly REQUEST_BYTES_MAX passes, one byte more does not. */
    static char big[REQUEST_BYTES_MAX];
    memset(big, 'x', sizeof big);
    for (size_t more = 0; more < 2; more++) {
        struct slice most = slice_of(big, REQUEST_BYTES_MAX - 23 + more);
        struct slice two[][2] = {{SLICE("X"), most}, {most, SLICE("X")}};
        for (size_t i = 0; i < 2; i++) {
            buf_clear(&in);
            resp_write_request(&in, two[i], 2);
            assert_int_equal(buf_len(&in), REQUEST_BYTES_MAX + more);
            assert_int_equal(parse(buf_slice(&in), &got, &used),
                             more ? RESP_TOO_BIG : RESP_DONE);
        }
    }
    /* An inline line with its end. */
    for (size_t more = 0; more < 2; more++) {
        buf_clear(&in);
        buf_put(&in, big, RESP_INLINE_BYTES_MAX - 1 + more);
        assert_int_equal(parse(buf_slice(&in), &got, &used), more ? RESP_TOO_BIG : RESP_MORE);
        buf_put_byte(&in, '\n');
        assert_int_equal(parse(buf_slice(&in), &got, &used), more ? RESP_TOO_BIG : RESP_DONE);
    }
    /* More words than a request may have, inline. */
    buf_clear(&in);
    for (size_t i = 0; i < REQUEST_WORDS_MAX + 1; i++)
        buf_put_str(&in, "w ");
    buf_put_byte(&in, '\n');
    assert_int_equal(parse(buf_slice(&in), &got, &used), RESP_TOO_BIG);
    assert_string_equal(buf_cstr(&got), ">too many words");
    buf_done(&in);
    buf_done(&got);
}

/* A tree as text: kinds, values, keys. */
static void show_reply(struct buf *out, const struct reply *r)
{
    static const char *const kinds[] = {"none", "null",   "bool",  "int",  "double",
                                        "text", "status", "error", "list", "map",
                                        "json", "plain",  "push"};
    buf_put_str(out, kinds[r->kind]);
    if (r->kind == REPLY_INT || r->kind == REPLY_BOOL)
        buf_printf(out, " %lld", (long long)r->number);
    if (r->kind == REPLY_DOUBLE)
        buf_printf(out, " %g", r->real);
    if (r->kind == REPLY_ERROR)
        buf_printf(out, " %s", err_word(r->err));
    if (r->kind == REPLY_TEXT || r->kind == REPLY_STATUS || r->kind == REPLY_ERROR) {
        buf_put_str(out, " <");
        show(out, r->text);
        buf_put_byte(out, '>');
    }
    if (r->kind != REPLY_LIST && r->kind != REPLY_MAP && r->kind != REPLY_PUSH)
        return;
    buf_put_str(out, " (");
    size_t n = 0;
    for (const struct reply *c = r->first; c; c = c->next, n++) {
        if (n)
            buf_put_str(out, ", ");
        if (r->kind == REPLY_MAP) {
            show(out, c->key);
            buf_put_byte(out, '=');
        }
        show_reply(out, c);
    }
    buf_put_byte(out, ')');
    assert_int_equal(n, r->count);
}

static enum resp_step parse_reply(struct slice in, struct buf *out, size_t *used)
{
    struct arena a = {.may_fail = true};
    struct reply *r = NULL;
    const char *why = NULL;
    char *copy = malloc(in.len ? in.len : 1);
    assert_non_null(copy);
    memcpy(copy, in.data, in.len);
    enum resp_step step = resp_next_reply(slice_of(copy, in.len), &a, &r, used, &why);
    buf_clear(out);
    if (step == RESP_DONE)
        show_reply(out, r);
    else
        buf_printf(out, step == RESP_BAD ? "!%s" : "...", why);
    arena_done(&a);
    free(copy);
    return step;
}

static const struct row replies[] = {
    {"status", S("+OK\r\n"), "status <OK>", 0},
    {"error of ours", S("-STALE the fence\r\n"), "error STALE <the fence>", 0},
    {"error without words", S("-STALE\r\n"), "error STALE <>", 0},
    {"foreign error", S("-ERR no\r\n"), "error INTERNAL <ERR no>", 0},
    {"OK is no error", S("-OK x\r\n"), "error INTERNAL <OK x>", 0},
    {"integer", S(":-9223372036854775808\r\n"), "int -9223372036854775808", 0},
    {"integer with plus", S(":+7\r\n"), "int 7", 0},
    {"bulk", S("$3\r\na\r\n\r\n"), "text <a\\0d\\0a>", 0},
    {"empty bulk", S("$0\r\n\r\n"), "text <>", 0},
    {"null bulk", S("$-1\r\n"), "null", 0},
    {"null array", S("*-1\r\n"), "null", 0},
    {"null", S("_\r\n"), "null", 0},
    {"array", S("*3\r\n:1\r\n$1\r\na\r\n*0\r\n"), "list (int 1, text <a>, list ())", 0},
    {"booleans", S("*2\r\n#t\r\n#f\r\n"), "list (bool 1, bool 0)", 0},
    {"doubles", S("*4\r\n,1.5\r\n,inf\r\n,-inf\r\n,1e3\r\n"),
     "list (double 1.5, double inf, double -inf, double 1000)", 0},
    {"big number", S("(123456789012345678901234567890\r\n"),
     "text <123456789012345678901234567890>", 0},
    {"blob error", S("!8\r\nSTALE ab\r\n"), "error STALE <ab>", 0},
    {"verbatim", S("=6\r\ntxt:ab\r\n"), "text <ab>", 0},
    {"map", S("%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*1\r\n_\r\n"), "map (a=int 1, b=list (null))", 0},
    {"map with a number as key", S("%1\r\n:5\r\n:1\r\n"), "map (5=int 1)", 0},
    {"set", S("~1\r\n:1\r\n"), "list (int 1)", 0},
    {"push", S(">2\r\n+a\r\n:1\r\n+OK\r\n"), "push (status <a>, int 1)", 5},
    {"attributes are dropped", S("|1\r\n+ttl\r\n:5\r\n*1\r\n|1\r\n+x\r\n:1\r\n:2\r\n"),
     "list (int 2)", 0},
    {"depth", S("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"),
     "list (list (list (list (list (list (list (list (int 1))))))))", 0},
    {"nothing", S(""), "...", 0},
};

static const struct row bad_replies[] = {
    {"unknown type", S("@1\r\n"), "!unknown type of reply", 0},
    {"HTTP", S("HTTP/1.1 400 Bad Request\r\n"), "!unknown type of reply", 0},
    {"LF alone", S("+OK\n"), "!LF without CR", 0},
    {"CR alone", S("+OK\rx\n"), "!CR without LF", 0},
    {"no integer", S(":1x\r\n"), "!not an integer", 0},
    {"empty integer", S(":\r\n"), "!not an integer", 0},
    {"sign alone", S(":-\r\n"), "!not an integer", 0},
    {"integer that overflows", S(":9223372036854775808\r\n"), "!not an integer", 0},
    {"integer that underflows", S(":-9223372036854775809\r\n"), "!not an integer", 0},
    {"negative bulk", S("$-2\r\n"), "!length is not a number", 0},
    {"bulk length", S("$1x\r\n"), "!length is not a number", 0},
    {"streamed bulk", S("$?\r\n"), "!length is not a number", 0},
    {"bulk over the limit", S("$67108865\r\n"), "!length over the limit", 0},
    {"bulk longer than said", S("$1\r\nabc"), "!no line end behind a bulk string", 0},
    {"array over the limit", S("*1048577\r\n"), "!length over the limit", 0},
    {"negative array", S("*-4222222622\r\n"), "!length is not a number", 0},
    {"null with a value", S("_x\r\n"), "!null with a value", 0},
    {"boolean", S("#x\r\n"), "!not a boolean", 0},
    {"double", S(",1.5x\r\n"), "!not a double", 0},
    {"empty double", S(",\r\n"), "!not a double", 0},
    {"hex double", S(",0x1p3\r\n"), "!not a double", 0},
    {"double with a space", S(", 1\r\n"), "!not a double", 0},
    {"long double", S(",1111111111111111111111111111111111111111111111111111111111111111\r\n"),
     "!not a double", 0},
    {"big number", S("(12x\r\n"), "!not a big number", 0},
    {"verbatim without format", S("=2\r\nab\r\n"), "!verbatim string without a format", 0},
    {"list as key", S("%1\r\n*0\r\n:1\r\n"), "!a map's key is not text", 0},
    {"null as key", S("%1\r\n_\r\n:1\r\n"), "!a map's key is not text", 0},
    {"push inside", S("*1\r\n>0\r\n"), "!a push inside a reply", 0},
    {"too deep", S("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"),
     "!reply too deep", 0},
};

static void check_reply_row(const struct row *row)
{
    struct buf got = {0};
    size_t used = 0, len = row->input.len;
    enum resp_step end = parse_reply(row->input, &got, &used);
    if (strcmp(buf_cstr(&got), row->want) != 0)
        fail_msg("%s: got %s, want %s", row->what, buf_cstr(&got), row->want);
    if (end == RESP_DONE && used != len - row->left)
        fail_msg("%s: used %zu of %zu", row->what, used, len);
    bool settled = false;
    for (size_t n = 0; n < len; n++) {
        size_t part = 0;
        bool early = parse_reply(slice_of(row->input.data, n), &got, &part) != RESP_MORE;
        if (early && strcmp(buf_cstr(&got), row->want) != 0)
            fail_msg("%s: cut at %zu: %s", row->what, n, buf_cstr(&got));
        if ((settled && !early) || (end == RESP_DONE && early != (n >= used)))
            fail_msg("%s: cut at %zu: %s", row->what, n, buf_cstr(&got));
        settled = early;
    }
    buf_done(&got);
}

static void replies_are_read_or_waited_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++)
        check_reply_row(&replies[i]);
}

static void malformed_replies_are_named(void **state)
{
    (void)state;
    assert_true(sizeof bad_replies >= sizeof replies);
    for (size_t i = 0; i < sizeof bad_replies / sizeof bad_replies[0]; i++)
        check_reply_row(&bad_replies[i]);
}

static void numbers_of_every_length_are_written(void **state)
{
    (void)state;
    struct buf out = {0};
    for (int64_t ten = 1; ten <= INT64_MAX / 10; ten *= 10) {
        const int64_t numbers[] = {ten - 1, ten, -ten, ten * 9 + 7, INT64_MAX, INT64_MIN};
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            char want[32];
            struct reply r = {.kind = REPLY_INT, .number = numbers[i]};
            buf_clear(&out);
            resp_write(&out, &r, 3);
            snprintf(want, sizeof want, ":%" PRId64 "\r\n", numbers[i]);
            assert_string_equal(buf_cstr(&out), want);
        }
    }
    buf_done(&out);
}

/* What the client sends is what the server reads, whatever the bytes. */
static void requests_survive_the_round_trip(void **state)
{
    (void)state;
    struct buf wire = {0}, got = {0}, want = {0};
    srand(7117);
    for (int round = 0; round < 200; round++) {
        char bytes[8][40];
        struct slice words[8];
        size_t n = 1 + (size_t)rand() % 8;
        buf_clear(&wire);
        buf_clear(&want);
        for (size_t i = 0; i < n; i++) {
            size_t len = i ? (size_t)rand() % sizeof bytes[i] : 4;
            for (size_t j = 0; j < len; j++)
                bytes[i][j] = (char)(rand() % 256);
            words[i] = slice_of(bytes[i], len);
            buf_put_str(&want, i ? " <" : "");
            show(&want, words[i]);
            buf_put_str(&want, i ? ">" : "");
        }
        resp_write_request(&wire, words, n);
        size_t used = 0;
        assert_int_equal(parse(buf_slice(&wire), &got, &used), RESP_DONE);
        assert_int_equal(used, buf_len(&wire));
        assert_string_equal(buf_cstr(&got), buf_cstr(&want));
    }
    buf_done(&wire);
    buf_done(&got);
    buf_done(&want);
}

static void every_error_of_ours_is_known_by_its_word(void **state)
{
    (void)state;
    struct buf wire = {0};
    struct arena a = {0};
    for (int i = BELAY_OK + 1; i < BELAY_ERR_COUNT; i++) {
        const char *word = err_word((enum belay_err)i), *why = NULL;
        struct reply *r = NULL;
        size_t used;
        buf_clear(&wire);
        buf_printf(&wire, "-%s so it is\r\n", word);
        assert_int_equal(resp_next_reply(buf_slice(&wire), &a, &r, &used, &why), RESP_DONE);
        assert_string_equal(err_word(r->err), word);
        assert_true(slice_eq(r->text, SLICE("so it is")));
    }
    buf_done(&wire);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_read_or_waited_for),
        cmocka_unit_test(malformed_requests_are_named),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(replies_are_read_or_waited_for),
        cmocka_unit_test(malformed_replies_are_named),
        cmocka_unit_test(numbers_of_every_length_are_written),
        cmocka_unit_test(requests_survive_the_round_trip),
        cmocka_unit_test(every_error_of_ours_is_known_by_its_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
