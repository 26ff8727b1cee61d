/* test_feed.c - the bounded history: what is kept, what is dropped, who is woken. */
#include "events/feed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t append(struct feed *f, const char *name)
{
    struct event ev = {.kind = EVENT_GRANTED, .ns = SLICE("default"), .name = slice_str(name)};
    return feed_append(f, &ev);
}

static void numbers_start_at_one_and_have_no_gaps(void **state)
{
    (void)state;
    struct feed *f = feed_open(4);
    assert_int_equal(feed_next(f), 1);
    for (uint64_t i = 1; i <= 10; i++) {
        assert_int_equal(append(f, "a"), i);
        assert_int_equal(feed_next(f), i + 1);
    }
    feed_close(f);
}

static void the_newest_are_kept_and_the_others_are_gone(void **state)
{
    (void)state;
    struct feed *f = feed_open(3);
    const struct event *ev = NULL;
    char name[16];
    for (int i = 1; i <= 8; i++) {
        (void)snprintf(name, sizeof name, "n%d", i);
        append(f, name);
    }
    for (uint64_t seq = 0; seq <= 5; seq++)
        assert_int_equal(feed_get(f, seq, &ev), BELAY_ERR_GONE);
    for (uint64_t seq = 6; seq <= 8; seq++) {
        (void)snprintf(name, sizeof name, "n%d", (int)seq);
        assert_int_equal(feed_get(f, seq, &ev), BELAY_OK);
        assert_true(slice_eq(ev->name, slice_str(name)));
    }
    feed_close(f);
}

static void an_event_is_a_copy(void **state)
{
    (void)state;
    struct feed *f = feed_open(2);
    char owner[] = "owner";
    struct lock_row row = {0};
    struct event ev = {.kind = EVENT_EXPIRED,
                       .owner = slice_str(owner),
                       .session = SLICE("s"),
                       .text = SLICE("body"),
                       .fence = 7,
                       .locks = &row,
                       .n_rows = 1};
    const struct event *got = NULL;
    (void)feed_append(f, &ev);
    owner[0] = 'X';
    assert_int_equal(feed_get(f, 1, &got), BELAY_OK);
    assert_true(slice_eq(got->owner, SLICE("owner")));
    assert_true(slice_eq(got->session, SLICE("s")));
    assert_int_equal(got->fence, 7);
    assert_int_equal(got->text.len, 0); /* bodies and rows are for the asker */
    assert_null(got->locks);
    assert_int_equal(got->n_rows, 0);
    feed_close(f);
}

static void a_slot_grows_and_is_used_again(void **state)
{
    (void)state;
    struct feed *f = feed_open(1);
    const struct event *got = NULL;
    const char *names[] = {"a", "a much longer name than the first", "", "b"};
    for (size_t i = 0; i < 4; i++) {
        append(f, names[i]);
        assert_int_equal(feed_get(f, i + 1, &got), BELAY_OK);
        assert_true(slice_eq(got->name, slice_str(names[i])));
    }
    feed_close(f);
}

enum { LONG_BYTES = 512, TEXT_BYTES = 900, SHOWN = 1000, MANY = 20000, EDGE = 12 };

/* Event i of many: runs of events share a long name, and a reason, of which some are short. */
static struct event event_of(size_t i, char *bytes)
{
    memset(bytes, 'a' + (int)(i / 7 % 5), LONG_BYTES);
    memset(bytes + LONG_BYTES, 'A' + (int)(i / 3 % 26), TEXT_BYTES);
    return (struct event){.kind = i % 13 ? EVENT_BROKEN : EVENT_GRANTED,
                          .fence = i,
                          .name = slice_of(bytes, i / 7 % 4 ? LONG_BYTES : 5),
                          .owner = slice_of(bytes, i * 37 % 128),
                          .session = slice_of(bytes + LONG_BYTES, i % 3),
                          .text = slice_of(bytes + LONG_BYTES, i / 9 % 2 ? TEXT_BYTES : 70),
                          .by = slice_of(bytes + LONG_BYTES, i % 9)};
}

static void is_event(struct feed *f, uint64_t seq, size_t i)
{
    char bytes[LONG_BYTES + TEXT_BYTES];
    struct event want = event_of(i, bytes);
    const struct event *got = NULL;
    assert_int_equal(feed_get(f, seq, &got), BELAY_OK);
    assert_int_equal(got->fence, i);
    assert_true(slice_eq(got->name, want.name));
    assert_true(slice_eq(got->owner, want.owner));
    assert_true(slice_eq(got->session, want.session));
    assert_true(slice_eq(got->by, want.by));
    assert_true(slice_eq(got->text, want.kind == EVENT_BROKEN ? want.text : SLICE("")));
}

/* They take some 100 times as much memory as is given back at once. */
static void what_is_shown_is_right_while_others_are_dropped(void **state)
{
    (void)state;
    struct feed *f = feed_open(SHOWN);
    char bytes[LONG_BYTES + TEXT_BYTES];
    size_t known = 0; /* since the last gap */
    for (size_t i = 0; i < MANY; i++) {
        struct event ev = event_of(i, bytes);
        uint64_t seq = feed_append(f, &ev);
        memset(bytes, 0, sizeof bytes);
        known = known < SHOWN ? known + 1 : SHOWN;
        for (size_t back = 0; back < known && back < EDGE; back++) {
            is_event(f, seq - back, i - back);
            is_event(f, seq + 1 - known + back, i + 1 - known + back);
        }
        if (i % 3333 == 3332) {
            feed_gap(f);
            known = 0;
        }
    }
    feed_close(f);
}

static struct slice name_of(struct feed *f, uint64_t seq)
{
    const struct event *got = NULL;
    assert_int_equal(feed_get(f, seq, &got), BELAY_OK);
    return got->name;
}

static void events_in_a_row_share_a_long_name(void **state)
{
    (void)state;
    struct feed *f = feed_open(8);
    char name[LONG_BYTES + 1] = {0};
    memset(name, 'n', LONG_BYTES);
    uint64_t first = append(f, name), second = append(f, name);
    assert_ptr_equal(name_of(f, first).data, name_of(f, second).data);
    name[LONG_BYTES - 1] = 'm';
    uint64_t third = append(f, name);
    assert_true(slice_eq(name_of(f, third), slice_str(name)));
    assert_false(slice_eq(name_of(f, second), slice_str(name)));
    feed_close(f);
}

struct counter {
    struct watcher watcher; /* first */
    int woken;
    bool leaves;
};

static void on_wake(struct watcher *w, const struct event *ev)
{
    (void)ev;
    struct counter *c = (struct counter *)(void *)w;
    c->woken++;
    if (c->leaves)
        feed_unwatch(w);
}

static void watchers_are_woken_by_each_event(void **state)
{
    (void)state;
    struct feed *f = feed_open(2);
    struct counter a = {.watcher.wake = on_wake}, b = {.watcher.wake = on_wake, .leaves = true};
    list_init(&a.watcher.node);
    list_init(&b.watcher.node);
    append(f, "before");
    feed_watch(f, &a.watcher);
    feed_watch(f, &b.watcher);
    append(f, "one");
    append(f, "two");
    assert_int_equal(a.woken, 2);
    assert_int_equal(b.woken, 1); /* one may leave while it is woken */
    feed_unwatch(&a.watcher);
    feed_unwatch(&a.watcher);
    append(f, "three");
    assert_int_equal(a.woken, 2);
    feed_close(f);
    feed_close(NULL);
}

static void after_a_gap_everybody_is_told(void **state)
{
    (void)state;
    struct feed *f = feed_open(8);
    struct counter a = {.watcher.wake = on_wake};
    const struct event *got = NULL;
    list_init(&a.watcher.node);
    feed_watch(f, &a.watcher);
    append(f, "one");
    uint64_t read_all = feed_next(f);
    feed_gap(f);
    assert_int_equal(a.woken, 2);
    assert_int_equal(feed_get(f, 1, &got), BELAY_ERR_GONE);
    assert_true(read_all < feed_next(f)); /* there is something to read, and it says so */
    assert_int_equal(feed_get(f, read_all, &got), BELAY_ERR_GONE);
    uint64_t seq = append(f, "two");
    assert_int_equal(feed_get(f, seq, &got), BELAY_OK);
    assert_true(slice_eq(got->name, SLICE("two")));
    feed_close(f);
}

/* A number of one feed is nothing to another, whatever came in between. */
static void a_feed_may_start_anywhere(void **state)
{
    (void)state;
    struct feed *f = feed_open(4);
    const struct event *ev;
    feed_start_at(f, 1000);
    assert_int_equal(feed_next(f), 1000);
    assert_int_equal(append(f, "a"), 1000);
    assert_int_equal(append(f, "b"), 1001);
    assert_int_equal(feed_get(f, 1, &ev), BELAY_ERR_GONE);
    assert_int_equal(feed_get(f, 999, &ev), BELAY_ERR_GONE);
    assert_int_equal(feed_get(f, 1000, &ev), BELAY_OK);
    assert_true(slice_eq(ev->name, SLICE("a")));
    feed_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_start_at_one_and_have_no_gaps),
        cmocka_unit_test(the_newest_are_kept_and_the_others_are_gone),
        cmocka_unit_test(an_event_is_a_copy),
        cmocka_unit_test(a_slot_grows_and_is_used_again),
        cmocka_unit_test(what_is_shown_is_right_while_others_are_dropped),
        cmocka_unit_test(events_in_a_row_share_a_long_name),
        cmocka_unit_test(watchers_are_woken_by_each_event),
        cmocka_unit_test(after_a_gap_everybody_is_told),
        cmocka_unit_test(a_feed_may_start_anywhere),
    };
    return cmocka_run_group_tests_name("feed", tests, NULL, NULL);
}
