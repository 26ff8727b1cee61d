/* JSON: RFC 8259 and nothing else. */
#include "proto/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct arena arena;

static void emit(struct buf *out, const struct json_token *t)
{
    const struct json_token *c = t + 1;
    if (t->type == JSON_STRING) {
        json_put_string(out, json_text(t, &arena));
        return;
    }
    if (t->type != JSON_ARRAY && t->type != JSON_OBJECT) {
        buf_put_slice(out, t->raw);
        return;
    }
    buf_put_byte(out, t->type == JSON_ARRAY ? '[' : '{');
    for (uint32_t i = 0; i < t->items; i++, c += c->span) {
        if (i)
            buf_put_byte(out, ',');
        if (t->type == JSON_OBJECT) {
            json_put_string(out, json_key(c, &arena));
            buf_put_byte(out, ':');
        }
        emit(out, c);
    }
    buf_put_byte(out, t->type == JSON_ARRAY ? ']' : '}');
    assert_int_equal(c - t, t->span);
}

/* Parses a copy of exactly that size, so that reading past it is seen. */
static bool parse(struct slice text, struct buf *out, struct json_error *err)
{
    struct json_token *root = NULL;
    char *copy = malloc(text.len ? text.len : 1);
    assert_non_null(copy);
    memcpy(copy, text.data, text.len);
    bool ok = json_parse_in(slice_of(copy, text.len), &arena, &root, err);
    buf_clear(out);
    if (ok)
        emit(out, root);
    free(copy);
    arena_reset(&arena);
    return ok;
}

static const struct {
    const char *text, *want; /* NULL: the text itself */
} good[] = {
    {"null", NULL},
    {"true", NULL},
    {" \t\r\nfalse \n", "false"},
    {"0", NULL},
    {"-0", NULL},
    {"-12.50e+07", NULL},
    {"1E400", NULL},
    {"\"\"", NULL},
    {"\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x92\"", NULL},
    {"\"\x7f\"", NULL},
    {"\"\\u0041\\u00e9\\u20AC\\ud83d\\udd12\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x92\""},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\"",
     "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\""},
    {"\"\\ud7ff\\ue000\\uffff\"", "\"\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\""},
    {"[]", NULL},
    {"[ ]", "[]"},
    {"{ }", "{}"},
    {"[1,[2,[]],{}]", NULL},
    {"[ 1 , 2 ]", "[1,2]"},
    {"{\"a\":1,\"b\":[true,null],\"c\":{\"a\":\"x\"}}", NULL},
    {"{ \"a\" : 1 , \"\" : 2 }", "{\"a\":1,\"\":2}"},
    {"{\"a\\n\":1}", NULL},
    {"{\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0,\"i\":0,\"a\":0,\"j\":0}", NULL},
};

static void documents_are_read(void **state)
{
    (void)state;
    struct buf out = {0};
    struct json_error err;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (!parse(slice_str(good[i].text), &out, &err))
            fail_msg("%s: %s at %zu", good[i].text, err.what, err.offset);
        assert_string_equal(buf_cstr(&out), good[i].want ? good[i].want : good[i].text);
    }
    buf_done(&out);
    arena_done(&arena);
}

#define S(text)                                                                                \
    {                                                                                          \
        (text), sizeof(text) - 1                                                               \
    }
static const struct {
    struct slice text;
    const char *what;
    size_t offset;
} bad[] = {
    {S(""), "a value is missing", 0},
    {S("  "), "a value is missing", 2},
    {S("nul"), "a value is missing", 0},
    {S("nulL"), "a value is missing", 0},
    {S("True"), "a value is missing", 0},
    {S("NaN"), "a value is missing", 0},
    {S("Infinity"), "a value is missing", 0},
    {S("null null"), "bytes behind the value", 5},
    {S("1 2"), "bytes behind the value", 2},
    {S("truefalse"), "bytes behind the value", 4},
    {S("\xef\xbb\xbfnull"), "a value is missing", 0},
    {S("01"), "not a number", 0},
    {S("-"), "not a number", 0},
    {S("-01"), "not a number", 0},
    {S("+1"), "a value is missing", 0},
    {S(".5"), "a value is missing", 0},
    {S("1."), "not a number", 0},
    {S("1.e5"), "not a number", 0},
    {S("1e"), "not a number", 0},
    {S("1e+"), "not a number", 0},
    {S("0x10"), "bytes behind the value", 1},
    {S("1_000"), "bytes behind the value", 1},
    {S("-Infinity"), "not a number", 0},
    {S("'a'"), "a value is missing", 0},
    {S("\"a"), "unfinished string", 2},
    {S("\"a\\\""), "unfinished string", 4},
    {S("\"\\"), "unfinished string", 2},
    {S("\"\\x41\""), "unknown escape", 1},
    {S("\"\\\0\""), "unknown escape", 1},
    {S("\"\\u12\""), "bad \\u escape", 1},
    {S("\"\\u12g4\""), "bad \\u escape", 1},
    {S("\"\\U0041\""), "unknown escape", 1},
    {S("\"\\ud800\""), "lone surrogate", 1},
    {S("\"\\ud800x\""), "lone surrogate", 1},
    {S("\"\\ud800\\u0041\""), "lone surrogate", 1},
    {S("\"\\udc00\""), "lone surrogate", 1},
    {S("\"\\udd12\\ud83d\""), "lone surrogate", 1},
    {S("\"a\nb\""), "control byte in a string", 2},
    {S("\"a\tb\""), "control byte in a string", 2},
    {S("\"a\0b\""), "control byte in a string", 2},
    {S("\"\x80\""), "invalid UTF-8", 1},
    {S("\"\xc3\""), "invalid UTF-8", 1},
    {S("\"\xc0\xaf\""), "invalid UTF-8", 1},
    {S("\"\xe0\x80\xaf\""), "invalid UTF-8", 1},
    {S("\"\xed\xa0\x80\""), "invalid UTF-8", 1},
    {S("\"\xf0\x80\x80\x80\""), "invalid UTF-8", 1},
    {S("\"\xf4\x90\x80\x80\""), "invalid UTF-8", 1},
    {S("\"\xf8\x88\x80\x80\x80\""), "invalid UTF-8", 1},
    {S("\"\xff\""), "invalid UTF-8", 1},
    {S("\"\xe2\x82"), "invalid UTF-8", 1},
    {S("["), "a value is missing", 1},
    {S("[[[[[[[["), "a value is missing", 8},
    {S("[1"), "no comma or ] behind a value", 2},
    {S("[1,"), "a value is missing", 3},
    {S("[1,]"), "a value is missing", 3},
    {S("[,1]"), "a value is missing", 1},
    {S("[1 2]"), "no comma or ] behind a value", 3},
    {S("[1}"), "no comma or ] behind a value", 2},
    {S("]"), "a value is missing", 0},
    {S("[]]"), "bytes behind the value", 2},
    {S("{"), "a member's name is missing", 1},
    {S("{a:1}"), "a member's name is missing", 1},
    {S("{1:1}"), "a member's name is missing", 1},
    {S("{\"a\"}"), "no colon behind a member's name", 4},
    {S("{\"a\":}"), "a value is missing", 5},
    {S("{\"a\":1,}"), "a member's name is missing", 7},
    {S("{\"a\":1 \"b\":2}"), "no comma or } behind a member", 7},
    {S("{\"a\":1]"), "no comma or } behind a member", 6},
    {S("{\"a\":1,\"a\":2}"), "duplicate member", 8},
    {S("{\"a\":1,\"\\u0061\":2}"), "duplicate member", 8},
    {S("[{\"\":1,\"\":1}]"), "duplicate member", 8},
    {S("{\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0,\"i\":0,\"b\":0,\"j\":0}"),
     "duplicate member", 0},
    {S("[1] // x"), "bytes behind the value", 4},
    {S("/* x */ 1"), "a value is missing", 0},
    {S("1\0"), "bytes behind the value", 1},
    {S("\0"), "a value is missing", 0},
    {S("\xa0 1"), "a value is missing", 0},
    {S("\v1"), "a value is missing", 0},
};

static void what_is_not_json_is_named(void **state)
{
    (void)state;
    struct buf out = {0};
    struct json_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (parse(bad[i].text, &out, &err))
            fail_msg("accepted: %s", bad[i].text.data);
        if (strcmp(err.what, bad[i].what) != 0 ||
            (bad[i].offset && err.offset != bad[i].offset))
            fail_msg("%s: %s at %zu", bad[i].text.data, err.what, err.offset);
    }
    buf_done(&out);
    arena_done(&arena);
}

/* No prefix of an object is a document. */
static void a_cut_document_is_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    struct json_error err;
    struct slice text =
        SLICE("{\"a\":[1,-2.5e3,true,null],\"b\\u00e9\xc3\xa9\":{\"c\":\"\\ud83d\\udd12\"}}");
    for (size_t n = 0; n <= text.len; n++) {
        bool ok = parse(slice_of(text.data, n), &out, &err);
        assert_true(ok == (n == text.len));
        assert_true(ok || err.offset <= n);
    }
    buf_done(&out);
    arena_done(&arena);
}

static void bounds_hold(void **state)
{
    (void)state;
    struct buf text = {0}, out = {0};
    struct json_error err;
    for (int more = 0; more < 2; more++) {
        buf_clear(&text);
        for (int i = 0; i < JSON_DEPTH_MAX + more; i++)
            buf_put_byte(&text, '[');
        buf_put_byte(&text, '1');
        for (int i = 0; i < JSON_DEPTH_MAX + more; i++)
            buf_put_byte(&text, ']');
        assert_true(parse(buf_slice(&text), &out, &err) == !more);
        buf_clear(&text);
        buf_put_byte(&text, '[');
        for (int i = 0; i < JSON_TOKENS_MAX - 2 + more; i++)
            buf_put_str(&text, "1,");
        buf_put_str(&text, "1]");
        assert_true(parse(buf_slice(&text), &out, &err) == !more);
        buf_clear(&text);
        buf_put_byte(&text, '{');
        for (int i = 0; i < JSON_MEMBERS_MAX + more; i++)
            buf_printf(&text, "%s\"%d\":0", i ? "," : "", i);
        buf_put_str(&text, "}");
        assert_true(parse(buf_slice(&text), &out, &err) == !more);
    }
    struct json_token few[2];
    size_t n = 0;
    assert_true(json_parse(SLICE("[1]"), few, 2, &n, &err));
    assert_int_equal(n, 2);
    assert_false(json_parse(SLICE("[1,1]"), few, 2, &n, &err));
    assert_string_equal(err.what, "too many values");
    buf_done(&text);
    buf_done(&out);
    arena_done(&arena);
}

static void members_are_found(void **state)
{
    (void)state;
    struct json_token *t = NULL;
    struct json_error err;
    assert_true(
        json_parse_in(SLICE("{\"a\":{\"b\":1},\"\\u0062\":\"\\t\"}"), &arena, &t, &err));
    assert_true(slice_eq(json_text(json_get(t, "b"), &arena), SLICE("\t")));
    assert_true(slice_eq(json_key(json_get(t, "b"), &arena), SLICE("b")));
    assert_true(slice_eq(json_get(json_get(t, "a"), "b")->raw, SLICE("1")));
    assert_null(json_get(t, "c"));
    assert_null(json_get(json_get(t, "b"), "b"));
    arena_done(&arena);
}

static void whole_numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_i64, is_u64;
        int64_t i64;
        uint64_t u64;
    } rows[] = {
        {"0", true, true, 0, 0},
        {"-0", true, false, 0, 0},
        {"1", true, true, 1, 1},
        {"-5", true, false, -5, 0},
        {"1.0", true, true, 1, 1},
        {"1e3", true, true, 1000, 1000},
        {"1.50e1", true, true, 15, 15},
        {"1200e-2", true, true, 12, 12},
        {"0e99999999999999999999", true, true, 0, 0},
        {"0.000", true, true, 0, 0},
        {"9007199254740993", true, true, 9007199254740993, 9007199254740993},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", false, true, 0, (uint64_t)INT64_MAX + 1},
        {"-9223372036854775808", true, false, INT64_MIN, 0},
        {"-9223372036854775809", false, false, 0, 0},
        {"18446744073709551615", false, true, 0, UINT64_MAX},
        {"18446744073709551616", false, false, 0, 0},
        {"1e19", false, true, 0, 10000000000000000000u},
        {"1e20", false, false, 0, 0},
        {"1e99999999999999999999", false, false, 0, 0},
        {"1e-99999999999999999999", false, false, 0, 0},
        {"1.5", false, false, 0, 0},
        {"0.1", false, false, 0, 0},
        {"15e-1", false, false, 0, 0},
        {"", false, false, 0, 0},
        {"-", false, false, 0, 0},
        {"+1", false, false, 0, 0},
        {" 1", false, false, 0, 0},
        {"1 ", false, false, 0, 0},
        {"01", false, false, 0, 0},
        {"0x1", false, false, 0, 0},
        {"1e", false, false, 0, 0},
        {"abc", false, false, 0, 0},
        {"null", false, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t v = 0;
        uint64_t u = 0;
        struct slice text = slice_str(rows[i].text);
        if (json_i64(text, &v) != rows[i].is_i64 || v != rows[i].i64)
            fail_msg("json_i64 %s", rows[i].text);
        if (json_u64(text, &u) != rows[i].is_u64 || u != rows[i].u64)
            fail_msg("json_u64 %s", rows[i].text);
    }
}

static void meaning_decides_what_is_the_same(void **state)
{
    (void)state;
    static const struct {
        bool same;
        const char *a, *b;
    } rows[] = {
        {true, "{\"a\":1,\"b\":2}", " { \"b\" : 2 , \"a\" : 1 } "},
        {true, "\"\\u0061\\/\"", "\"a/\""},
        {true, "{\"\\u0061\":0}", "{\"a\":0}"},
        {true, "1", "1.0"},
        {true, "1", "10e-1"},
        {true, "-0.0", "0"},
        {true, "1.25e2", "125"},
        {true, "100", "1e2"},
        {true, "1e999999999999", "1e999999999999"},
        {true, "[1,[2]]", "[1.0,[2]]"},
        {true, "9007199254740993", "9007199254740993.0"},
        {true, "0.001", "1e-3"},
        {false, "9007199254740993", "9007199254740992"},
        {false, "1", "-1"},
        {false, "1", "10"},
        {false, "0.1", "0.01"},
        {false, "12", "1.2"},
        {false, "1e999999999999", "1e9999999999999"},
        {false, "\"1\"", "1"},
        {false, "true", "false"},
        {false, "null", "{}"},
        {false, "{}", "[]"},
        {false, "[1,2]", "[2,1]"},
        {false, "[1]", "[1,1]"},
        {false, "{\"a\":1}", "{\"a\":2}"},
        {false, "{\"a\":1}", "{\"b\":1}"},
        {false, "{\"a\":1}", "{\"a\":1,\"b\":1}"},
        {false, "{", "{"},
        {false, "\"a\"", "\"A\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice a = slice_str(rows[i].a), b = slice_str(rows[i].b);
        if (json_same(a, b, &arena) != rows[i].same || json_same(b, a, &arena) != rows[i].same)
            fail_msg("%s and %s", rows[i].a, rows[i].b);
        arena_reset(&arena);
    }
    arena_done(&arena);
}

/* The canonical form of `text`, NULL when it is not JSON. */
static const char *canonical(const char *text, struct buf *out)
{
    struct json_token *root;
    struct json_error err;
    buf_clear(out);
    if (!json_parse_in(slice_str(text), &arena, &root, &err))
        return NULL;
    json_canonical(out, root, &arena);
    return buf_cstr(out);
}

static void a_value_has_one_canonical_form(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {" null ", "null"},
        {"[true , false]", "[true,false]"},
        {"0", "0"},
        {"-0.00e5", "0"},
        {"1.0", "1"},
        {"100", "100"},
        {"1e2", "100"},
        {"12.50", "12.5"},
        {"1250e-2", "12.5"},
        {"-0.0015", "-0.0015"},
        {"15e-4", "0.0015"},
        {"0.000001", "0.000001"},
        {"0.0000001", "1e-7"},
        {"123456789012345678901", "123456789012345678901"},
        {"1234567890123456789012", "1.234567890123456789012e+21"},
        {"1e21", "1e+21"},
        {"1e20", "100000000000000000000"},
        {"-1.5E+300", "-1.5e+300"},
        {"1e999999999999", "1e999999999999"},
        {"9007199254740993.0", "9007199254740993"},
        {"\"\\u0061\\/\\n\\u00e9\"", "\"a/\\n\xc3\xa9\""},
        {"{ \"b\":1, \"a\" :{\"d\":[],\"c\":{}} }", "{\"a\":{\"c\":{},\"d\":[]},\"b\":1}"},
        {"{\"\\u0062\":1,\"a\":2}", "{\"a\":2,\"b\":1}"},
    };
    struct buf out = {0}, again = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(canonical(rows[i].text, &out), rows[i].want);
        assert_string_equal(canonical(rows[i].want, &again), rows[i].want);
        if (!strstr(rows[i].text, "999999999999"))
            assert_true(json_same(slice_str(rows[i].text), buf_slice(&out), &arena));
        arena_reset(&arena);
    }
    buf_done(&out);
    buf_done(&again);
    arena_done(&arena);
}

static void strings_are_always_valid_utf8(void **state)
{
    (void)state;
    static const struct {
        struct slice bytes;
        const char *want;
    } rows[] = {
        {S(""), "\"\""},
        {S("plain"), "\"plain\""},
        {S("\"\\/"), "\"\\\"\\\\/\""},
        {S("\b\f\n\r\t\0\x1f\x7f"), "\"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\""},
        {S("\xc3\xa9"), "\"\xc3\xa9\""},
        {S("\xff"), "\"\xef\xbf\xbd\""},
        {S("a\xc3"), "\"a\xef\xbf\xbd\""},
        {S("\xed\xa0\x80z"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\""},
    };
    struct buf out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buf_clear(&out);
        json_put_string(&out, rows[i].bytes);
        assert_string_equal(buf_cstr(&out), rows[i].want);
    }
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_read),
        cmocka_unit_test(what_is_not_json_is_named),
        cmocka_unit_test(a_cut_document_is_refused),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(members_are_found),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(meaning_decides_what_is_the_same),
        cmocka_unit_test(a_value_has_one_canonical_form),
        cmocka_unit_test(strings_are_always_valid_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
