/* `belay top` without a terminal: order, filter, keys, and frames that fit. */
#include "cli/cli.h"
#include "cli/top.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A lock as the server shows it, held by one, waited for by up to two. */
struct fixture {
    struct belay_reply map, name, state, holders, waiters;
    struct belay_reply holder, owner, held, expires;
    struct belay_reply waiter[2], waited[2];
};

static struct belay_reply text_of(const char *key, const char *text)
{
    return (struct belay_reply){
        .kind = BELAY_TEXT, .key = key, .text = text, .len = strlen(text)};
}

static struct belay_reply int_of(const char *key, int64_t v)
{
    return (struct belay_reply){.kind = BELAY_INT, .key = key, .number = v};
}

static void add(struct top_view *v, const char *name, const char *owner, int64_t held_ms,
                size_t waiters)
{
    struct fixture f = {.name = text_of("name", name), .state = text_of("state", "exclusive")};
    f.owner = text_of("owner", owner);
    f.held = int_of("held_ms", held_ms);
    f.expires = int_of("expires_in_ms", 1000 + held_ms);
    f.owner.next = &f.held;
    f.held.next = &f.expires;
    f.holder = (struct belay_reply){.kind = BELAY_MAP, .first = &f.owner, .count = 3};
    f.holders = (struct belay_reply){.kind = BELAY_LIST,
                                     .key = "holders",
                                     .first = &f.holder,
                                     .count = 1,
                                     .next = &f.waiters};
    for (size_t i = 0; i < waiters; i++) {
        f.waited[i] = int_of("waited_ms", held_ms / 2 + (int64_t)i);
        f.waiter[i] =
            (struct belay_reply){.kind = BELAY_MAP, .first = &f.waited[i], .count = 1};
        f.waiter[i].next = i + 1 < waiters ? &f.waiter[i + 1] : NULL;
    }
    f.waiters = (struct belay_reply){.kind = BELAY_LIST,
                                     .key = "waiters",
                                     .first = waiters ? &f.waiter[0] : NULL,
                                     .count = waiters};
    f.name.next = &f.state;
    f.state.next = &f.holders;
    f.map = (struct belay_reply){.kind = BELAY_MAP, .first = &f.name, .count = 4};
    assert_true(top_add(v, &f.map));
}

static struct top_view three(void)
{
    struct top_view v = {.columns = 80, .lines = 10, .addr = "a:1", .ns = "default"};
    add(&v, "bbb", "bob", 5000, 2);
    add(&v, "aaa", "alice", 9000, 0);
    add(&v, "ccc", "carol", 1000, 1);
    return v;
}

static void rows_have_every_order(void **state)
{
    static const struct {
        char key;
        const char *want; /* first messages */
    } rows[] = {{'n', "abc"}, {'h', "abc"}, {'e', "cba"},
                {'l', "bca"}, {'w', "bca"}, {'r', "acb"}};
    struct top_view v = three();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(top_key(&v, rows[i].key));
        top_order(&v);
        if (i == 1) /* held: alice 9 s, bob 5 s, carol 1 s */
            assert_true(v.rows[0].held_ms > v.rows[2].held_ms);
        for (size_t j = 0; j < 3; j++)
            assert_int_equal(v.rows[j].name[0], rows[i].want[j]);
    }
    top_view_done(&v);
}

static void a_frame_fits_whatever_the_names_are(void **state)
{
    static const size_t widths[] = {20, 60, 80, 132};
    struct top_view v = three();
    (void)state;
    add(&v,
        "a-name-that-is-much-longer-than-any-terminal-is-wide-and-then-some-more-of-it-"
        "\xc3\xa4\xc3\xb6\xc3\xbc",
        "\033[31mred", 3, 0);
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        struct buf out = {0};
        v.columns = widths[w];
        top_draw(&v, &out);
        size_t lines = 1, width = 0;
        for (const char *p = buf_cstr(&out); *p; p++) {
            assert_int_not_equal(*p, 27); /* nothing of a stranger reaches the terminal */
            if (*p == '\n') {
                lines++;
                width = 0;
            } else if (*p != '\r' && ((unsigned char)*p & 0xc0) != 0x80) {
                width++;
            }
            assert_true(width <= widths[w]);
        }
        assert_int_equal(lines, v.lines);
        buf_done(&out);
    }
    top_view_done(&v);
}

static void the_filter_is_typed_and_dropped(void **state)
{
    struct top_view v = three();
    (void)state;
    for (const char *p = "/car\r"; *p; p++)
        assert_true(top_key(&v, *p));
    assert_string_equal(v.filter, "car");
    assert_int_equal(top_shown(&v), 1); /* by holder, too */
    assert_true(top_key(&v, '/'));
    assert_true(top_key(&v, 'q')); /* a message while typing */
    assert_string_equal(v.filter, "carq");
    assert_true(top_key(&v, 127));
    assert_string_equal(v.filter, "car");
    assert_true(top_key(&v, '\033'));
    assert_string_equal(v.filter, "");
    for (int i = 0; i < 200; i++)
        assert_true(top_key(&v, i ? 'x' : '/'));
    assert_true(strlen(v.filter) < TOP_FILTER_BYTES);
    assert_true(top_key(&v, '\r'));
    assert_int_equal(top_shown(&v), 0);
    assert_false(top_key(&v, 'q'));
    top_view_done(&v);
}

static void scrolling_stays_within_the_rows(void **state)
{
    struct top_view v = three();
    (void)state;
    for (int i = 0; i < 10; i++)
        assert_true(top_key(&v, 'j'));
    assert_int_equal(v.at, 2);
    for (int i = 0; i < 10; i++)
        assert_true(top_key(&v, 'k'));
    assert_int_equal(v.at, 0);
    top_view_done(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_every_order),
        cmocka_unit_test(a_frame_fits_whatever_the_names_are),
        cmocka_unit_test(the_filter_is_typed_and_dropped),
        cmocka_unit_test(scrolling_stays_within_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
