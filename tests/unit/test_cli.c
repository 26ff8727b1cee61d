/* What the command line does without a server: durations, options, tables, safe text, JSON. */
#include "cli/cli.h"
#include "cli/load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void durations(void **state)
{
    static const struct {
        const char *text;
        int64_t want; /* -1: refused */
        const char *why;
    } rows[] = {
        {"0", 0, NULL},
        {"250ms", 250, NULL},
        {"30s", 30000, NULL},
        {"1m30s", 90000, NULL},
        {"2h", 7200000, NULL},
        {"1d2h3m4s5ms", 93784005, NULL},
        {"0s", 0, NULL},
        {"007s", 7000, NULL},
        {"30", -1, "unit is missing"},
        {"", -1, "empty"},
        {"s", -1, "number and a unit"},
        {"-1s", -1, "number and a unit"},
        {"1.5s", -1, "whole numbers"},
        {"1x", -1, "units are"},
        {"1sec", -1, "units are"},
        {"30s1m", -1, "larger units come first"},
        {"1s1s", -1, "each once"},
        {"1m30", -1, "unit is missing"},
        {"1s ", -1, "number and a unit"},
        {" 1s", -1, "number and a unit"},
        {"99999999999999999999s", -1, "mistake"},
        {"999999999999h", -1, "mistake"},
        {"1S", -1, "whole numbers"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t ms = -1;
        const char *why = cli_parse_duration(rows[i].text, &ms);
        if (rows[i].want >= 0) {
            assert_null(why);
            assert_int_equal(ms, rows[i].want);
        } else {
            assert_non_null(why);
            if (!strstr(why, rows[i].why))
                fail_msg("\"%s\": %s", rows[i].text, why);
        }
    }
}

static void numbers(void **state)
{
    int64_t v = -1;
    (void)state;
    assert_null(cli_parse_number("0", &v));
    assert_int_equal(v, 0);
    assert_null(cli_parse_number("9223372036854775799", &v));
    assert_non_null(cli_parse_number("", &v));
    assert_non_null(cli_parse_number("-1", &v));
    assert_non_null(cli_parse_number("1x", &v));
    assert_non_null(cli_parse_number("99999999999999999999", &v));
}

static void sizes(void **state)
{
    static const char *const bad[] = {"",         "mb",    "-1mb",
                                      "1.5gb",    "1 mb",  "1mbx",
                                      "1pb",      "0x1mb", "99999999999999999999",
                                      "9000000tb"};
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"0", 0},
                {"65536", 65536},
                {"512kb", 512 << 10},
                {"256mb", 256 << 20},
                {"256MB", 256 << 20},
                {"2g", INT64_C(2) << 30},
                {"1tb", INT64_C(1) << 40}};
    int64_t v;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_null(cli_parse_size(good[i].text, &v));
        assert_int_equal(v, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_non_null(cli_parse_size(bad[i], &v));
}

/* A command line in one string, words between blanks. */
struct line {
    char text[256];
    char *argv[16];
    struct cli c;
};

static bool parse(struct line *l, const char *text)
{
    int argc = 0;
    snprintf(l->text, sizeof l->text, "%s", text);
    for (char *w = strtok(l->text, " "); w; w = strtok(NULL, " "))
        l->argv[argc++] = w;
    l->c = (struct cli){.command = &cli_cmd_acquire};
    return cli_parse(&l->c, argc, l->argv);
}

/* Options in any order, values in both spellings, letters, and what follows "--". */
static void options_in_any_order(void **state)
{
    struct line l = {0};
    (void)state;
    assert_true(parse(&l, "acquire --ttl=1m name -w forever -s -j -- -x y"));
    assert_int_equal(l.c.n_words, 1);
    assert_string_equal(l.c.words[0], "name");
    assert_int_equal(cli_number(&l.c, "ttl", 0), 60000);
    assert_int_equal(cli_number(&l.c, "wait", 0), BELAY_FOREVER);
    assert_true(cli_given(&l.c, "shared"));
    assert_true(l.c.json);
    assert_string_equal(l.c.tail[0], "-x");
    assert_string_equal(cli_text(&l.c, "owner", "nobody"), "nobody");
    cli_parse_done(&l.c);
}

static void bad_options_are_refused(void **state)
{
    static const char *const rows[] = {
        "--nope x",      "-Z x",   "x --ttl", "x --ttl 5",           "x --shared=yes",
        "x y",           "",       "--json",  "x --ttl=1s --ttl=2s", "x --semaphore -1",
        "x --wait ever", "x --=1", "x -sj",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct line l = {0};
        char text[256];
        snprintf(text, sizeof text, "acquire %s", rows[i]);
        if (parse(&l, text))
            fail_msg("\"%s\" was taken", text);
        cli_parse_done(&l.c);
    }
}

static void tables_are_aligned(void **state)
{
    struct cli_table t = {.columns = 3, .right = {[1] = true}};
    struct buf out = {0};
    (void)state;
    cli_cell(&t, CLI_BOLD, "NAME");
    cli_cell(&t, CLI_BOLD, "N");
    cli_cell(&t, CLI_BOLD, "NOTE");
    cli_cell(&t, CLI_PLAIN, "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xb6\xc3\xa4");
    cli_cell(&t, CLI_PLAIN, "7");
    cli_cell(&t, CLI_PLAIN, "x");
    cli_cell_bytes(&t, CLI_PLAIN, "a\033[2J", 5);
    cli_cell(&t, CLI_PLAIN, "1234");
    cli_cell(&t, CLI_PLAIN, "%s", "");
    cli_table_put(&t, &out, false);
    assert_string_equal(buf_cstr(&out), "NAME         N  NOTE\n"
                                        "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xb6\xc3\xa4        7  x\n"
                                        "a\\x1b[2J  1234\n");
    buf_done(&out);
}

static void colours_do_not_move_columns(void **state)
{
    struct cli_table t = {.columns = 2};
    struct buf out = {0};
    (void)state;
    cli_cell(&t, CLI_BOLD, "A");
    cli_cell(&t, CLI_BOLD, "B");
    cli_cell(&t, CLI_RED, "xx");
    cli_cell(&t, CLI_PLAIN, "y");
    cli_table_put(&t, &out, true);
    assert_string_equal(buf_cstr(&out), "\033[1mA\033[0m   \033[1mB\033[0m\n"
                                        "\033[31mxx\033[0m  y\n");
    buf_done(&out);
}

static void strange_bytes_are_shown_not_obeyed(void **state)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"plain", "plain"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"\xf0\x9f\x94\x92", "\xf0\x9f\x94\x92"},
        {"\x07", "\\x07"},
        {"\x7f", "\\x7f"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"}, /* CSI as a C1 control */
        {"\xff\xfe", "\\xff\\xfe"},
        {"\xe2\x82", "\\xe2\\x82"},
        {"\xc0\xaf", "\\xc0\\xaf"},                   /* overlong */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
        {"a\nb", "a\\x0ab"},
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"}, /* turns the text */
        {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"},
        {"\xe2\x82\xac", "\xe2\x82\xac"}, /* and the euro does not */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        cli_put_safe(&out, rows[i].in, strlen(rows[i].in));
        assert_string_equal(buf_cstr(&out), rows[i].want);
        buf_done(&out);
    }
}

static void durations_are_short_to_read(void **state)
{
    static const struct {
        int64_t ms;
        const char *want;
    } rows[] = {{-1, "-"},           {0, "0ms"},         {999, "999ms"},
                {1000, "1.0s"},      {59999, "59.9s"},   {60000, "1m00s"},
                {3599999, "59m59s"}, {3600000, "1h00m"}, {86400000, "1d00h"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        cli_put_duration(&out, rows[i].ms);
        assert_string_equal(buf_cstr(&out), rows[i].want);
        buf_done(&out);
    }
}

static void replies_become_json(void **state)
{
    struct belay_reply yes = {.kind = BELAY_INT, .key = "overdue", .number = 1};
    struct belay_reply text = {
        .kind = BELAY_TEXT, .key = "b", .text = "a\"\n", .len = 3, .next = &yes};
    struct belay_reply null = {.kind = BELAY_NULL, .key = "n", .next = &text};
    struct belay_reply map = {.kind = BELAY_MAP, .first = &null, .count = 3};
    struct belay_reply list = {.kind = BELAY_LIST, .first = &map, .count = 1};
    struct buf out = {0};
    (void)state;
    cli_put_json(&out, &list);
    assert_string_equal(buf_cstr(&out), "[{\"n\":null,\"b\":\"a\\\"\\n\",\"overdue\":true}]");
    buf_done(&out);
}

/* Every row is complete, and its options do not clash with the common ones. */
static void every_row_is_sound(void **state)
{
    size_t n = 0;
    (void)state;
    for (const struct cli_command *const *c = cli_commands(); *c; c++, n++) {
        assert_non_null((*c)->summary);
        assert_non_null((*c)->args);
        assert_true(((*c)->run != NULL) != ((*c)->run_raw != NULL));
        assert_ptr_equal(cli_find((*c)->name), *c);
        const struct cli_option *a, *b;
        size_t i = 0;
        for (; (a = cli_option_at(*c, i)); i++) {
            assert_true(a->help && (a->type == CLI_FLAG || a->value));
            for (size_t j = 0; j < i && (b = cli_option_at(*c, j)); j++) {
                if (strcmp(a->name, b->name) == 0 || (a->letter && a->letter == b->letter))
                    fail_msg("belay %s: --%s and --%s clash", (*c)->name, a->name, b->name);
            }
        }
        assert_true(i <= CLI_OPTIONS_MAX);
    }
    assert_true(n > 10);
}

static void percentiles(void **state)
{
    struct load_histogram *h = calloc(1, sizeof *h);
    (void)state;
    assert_non_null(h);
    for (uint64_t i = 1; i <= 1000; i++)
        load_record(h, i * 1000);
    uint64_t p50 = load_percentile(h, 0.5), p99 = load_percentile(h, 0.99);
    assert_true(p50 >= 500000 && p50 <= 520000);
    assert_true(p99 >= 990000 && p99 <= 1025000);
    load_record(h, UINT64_MAX); /* out of range lands in the last bucket */
    free(h);
}

static void replies_are_skipped_whole(void **state)
{
    static const struct {
        const char *in;
        size_t want;
    } rows[] = {{"+OK\r\n", 5},       {":1\r\n:2\r\n", 4},
                {"$3\r\nabc\r\n", 9}, {"$3\r\nab", 0},
                {"$-1\r\n", 5},       {"*2\r\n:1\r\n$1\r\na\r\n", 15},
                {"*2\r\n:1\r\n", 0},  {"", 0},
                {"*0\r\n", 4},        {"-ERR x", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(load_skip_reply(rows[i].in, strlen(rows[i].in)), rows[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(numbers),
        cmocka_unit_test(sizes),
        cmocka_unit_test(options_in_any_order),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(tables_are_aligned),
        cmocka_unit_test(colours_do_not_move_columns),
        cmocka_unit_test(strange_bytes_are_shown_not_obeyed),
        cmocka_unit_test(durations_are_short_to_read),
        cmocka_unit_test(replies_become_json),
        cmocka_unit_test(every_row_is_sound),
        cmocka_unit_test(percentiles),
        cmocka_unit_test(replies_are_skipped_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
