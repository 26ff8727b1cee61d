/* Text between commands and PostgreSQL: the answer line of a long-lived command, array
 * literals, clean UTF-8. */
#include "queue/reply.h"
#include "queue/schema.h"
#include "queue/text.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void a_good_line_is_understood(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum verdict_kind kind;
        const char *outcome, *error; /* NULL: none */
    } rows[] = {
        {"{\"status\":\"complete\"}", VERDICT_COMPLETE, NULL, NULL},
        {" { \"status\" : \"complete\" , \"outcome\" : \"a\\nb\" } ", VERDICT_COMPLETE, "a\nb",
         NULL},
        {"{\"outcome\":{\"a\":[1,-2.5e3,true,null,{}],\"b\":[]},\"status\":\"complete\"}",
         VERDICT_COMPLETE, "{\"a\":[1,-2.5e3,true,null,{}],\"b\":[]}", NULL},
        {"{\"status\":\"error\",\"error\":\"caf\\u00e9 \\ud83d\\ude00\"}", VERDICT_ERROR, NULL,
         "caf\xC3\xA9 \xF0\x9F\x98\x80"},
        {"{\"x\":[[[\"]\"]]],\"status\":\"retry\",\"error\":\"\"}", VERDICT_RETRY, NULL, ""},
        {"{\"status\":\"error\",\"error\":7}", VERDICT_ERROR, NULL, "7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf store = {0};
        struct verdict v;
        const char *why = NULL;
        assert_true(reply_parse(slice_str(rows[i].line), &store, &v, &why));
        assert_int_equal(v.kind, rows[i].kind);
        assert_true(slice_eq(v.outcome, slice_str(rows[i].outcome)));
        assert_true(slice_eq(v.error, slice_str(rows[i].error)));
        buf_done(&store);
    }
}

static void a_bad_line_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "what",
        "[]",
        "{}",
        "{\"status\":\"done\"}",
        "{\"status\":\"complete\"",
        "{\"status\":\"complete\",}",
        "{\"status\":\"complete\"} x",
        "{\"status\" \"complete\"}",
        "{status:\"complete\"}",
        "{\"status\":\"complete\",\"a\":01}",
        "{\"status\":\"complete\",\"a\":1.}",
        "{\"status\":\"complete\",\"a\":tru}",
        "{\"status\":\"complete\",\"a\":[1,]}",
        "{\"status\":\"complete\",\"a\":[1}",
        "{\"status\":\"complete\",\"a\":\"\\x\"}",
        "{\"status\":\"complete\",\"a\":\"\\ud800\"}",
        "{\"status\":\"complete\",\"a\":\"\\u12\"}",
        "{\"status\":\"complete\",\"a\":\"\t\"}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf store = {0};
        struct verdict v;
        const char *why = NULL;
        assert_false(reply_parse(slice_str(rows[i]), &store, &v, &why));
        assert_non_null(why);
        buf_done(&store);
    }
}

/* Cut off anywhere, a line is refused and nothing behind its end is read (the sanitizer looks).
 */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char line[] =
        "{\"a\":[{\"b\":\"\\ud83d\\ude00\"},-1.5e+3,null],\"status\":\"complete\",\"outcome\":{}}";
    for (size_t n = 0; n < sizeof line - 1; n++) {
        struct buf store = {0};
        struct verdict v;
        const char *why = NULL;
        char *copy = malloc(n ? n : 1);
        memcpy(copy, line, n);
        assert_false(reply_parse(slice_of(copy, n), &store, &v, &why));
        free(copy);
        buf_done(&store);
    }
}

static void nesting_has_a_bound(void **state)
{
    (void)state;
    struct buf line = {0}, store = {0};
    struct verdict v;
    const char *why = NULL;
    buf_put_str(&line, "{\"status\":\"complete\",\"a\":");
    for (int i = 0; i < 100000; i++)
        buf_put_byte(&line, '[');
    assert_false(reply_parse(buf_slice(&line), &store, &v, &why));
    assert_string_equal(why, "nested too deeply");
    buf_done(&line);
    buf_done(&store);
}

static void text_becomes_what_the_database_takes(void **state)
{
    (void)state;
    const struct {
        struct slice in;
        const char *want;
    } rows[] = {
        {SLICE("plain \xC3\xA9 \xF0\x9F\x98\x80"), "plain \xC3\xA9 \xF0\x9F\x98\x80"},
        {SLICE("a\0b"), "a\xEF\xBF\xBD"
                        "b"},
        {SLICE("\xFF\xC3"), "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {SLICE("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* a surrogate */
        {SLICE("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* overlong */
        {SLICE("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {SLICE(""), ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        text_put_clean(&out, rows[i].in);
        assert_string_equal(buf_cstr(&out), rows[i].want);
        buf_done(&out);
    }
}

static void arrays_and_names_are_quoted(void **state)
{
    (void)state;
    struct buf out = {0};
    text_array_begin(&out);
    text_array_add(&out, SLICE("a\"b\\c,{}"));
    text_array_add(&out, slice_of(NULL, 0));
    text_array_add(&out, SLICE("NULL"));
    text_array_add_i64(&out, -7);
    text_array_end(&out);
    assert_string_equal(buf_cstr(&out), "{\"a\\\"b\\\\c,{}\",NULL,\"NULL\",-7}");
    buf_clear(&out);
    text_put_ident(&out, "x\"; DROP TABLE y; --");
    assert_string_equal(buf_cstr(&out), "\"x\"\"; DROP TABLE y; --\"");
    const char *at = "{1,-22,9223372036854775807}";
    int64_t v[3];
    for (int i = 0; i < 3; i++)
        assert_true(text_array_next_i64(&at, &v[i]));
    assert_true(v[0] == 1 && v[1] == -22 && v[2] == INT64_MAX);
    assert_false(text_array_next_i64(&at, &v[0]));
    buf_done(&out);
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    struct buf out = {0};
    text_put_json(&out, SLICE("plain \xC3\xA9"));
    text_put_json(&out, SLICE("\"\\\n\x1F/"));
    text_put_json(&out, SLICE(""));
    assert_string_equal(buf_cstr(&out), "\"plain \xC3\xA9\"\"\\\"\\\\\\u000a\\u001f/\"\"\"");
    buf_done(&out);
}

/* Of the right form, version and variant, and no two alike. */
static void uuids_are_random(void **state)
{
    (void)state;
    enum { N = 40, LEN = 36 };
    struct buf out = {0};
    text_put_uuids(&out, N);
    const char *s = buf_cstr(&out);
    assert_int_equal(buf_len(&out), N * (LEN + 1) + 1);
    assert_true(s[0] == '{' && s[N * (LEN + 1)] == '}');
    for (size_t i = 0; i < N; i++) {
        const char *u = s + 1 + i * (LEN + 1);
        for (size_t k = 0; k < LEN; k++)
            assert_true(k == 8 || k == 13 || k == 18 || k == 23
                            ? u[k] == '-'
                            : isxdigit((unsigned char)u[k]));
        assert_int_equal(u[14], '4');
        assert_non_null(strchr("89ab", u[19]));
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(u, s + 1 + k * (LEN + 1), LEN);
    }
    buf_done(&out);
}

/* The schema in the binary ends with the version that the program asks for. */
static void the_schema_has_the_version_of_the_program(void **state)
{
    (void)state;
    char head[64];
    (void)snprintf(head, sizeof head, "\n-- == version %d ==\n", QUEUE_SCHEMA_VERSION);
    assert_non_null(strstr(queue_schema_sql, head));
    (void)snprintf(head, sizeof head, "\n-- == version %d ==\n", QUEUE_SCHEMA_VERSION + 1);
    assert_null(strstr(queue_schema_sql, head));
    assert_non_null(strstr(queue_schema_sql, "\n-- == functions ==\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_line_is_understood),
        cmocka_unit_test(a_bad_line_is_refused_with_a_reason),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(nesting_has_a_bound),
        cmocka_unit_test(text_becomes_what_the_database_takes),
        cmocka_unit_test(arrays_and_names_are_quoted),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(uuids_are_random),
        cmocka_unit_test(the_schema_has_the_version_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
