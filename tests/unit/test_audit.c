/* test_audit.c - the audit log: whatever is changed in a chain shows; the file and its thread. */
#include "audit/audit.h"
#include "audit/chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES = 6 };

/* A file of its own: the line that opens it, then others. */
static void make_lines(struct buf lines[LINES])
{
    struct chain c;
    struct buf first = {0};
    chain_init(&c);
    buf_put_str(&first, "\"event\":\"opened\",\"prev\":\"");
    buf_put_slice(&first, chain_hash(&c));
    buf_put_byte(&first, '"');
    for (int i = 0; i < LINES; i++) {
        lines[i] = (struct buf){0};
        chain_put(&c, i ? SLICE("\"name\":\"a\"") : buf_slice(&first), &lines[i]);
    }
    buf_done(&first);
}

static const char *read_lines(const struct buf *lines, const int *order, size_t n)
{
    struct chain_reader r = {0};
    const char *why = NULL;
    for (size_t i = 0; i < n && !why; i++)
        why =
            chain_read(&r, slice_of(buf_data(&lines[order[i]]), buf_len(&lines[order[i]]) - 1));
    return why;
}

static void done_lines(struct buf lines[LINES])
{
    for (int i = 0; i < LINES; i++)
        buf_done(&lines[i]);
}

static void every_other_order_shows(void **state)
{
    struct buf lines[LINES];
    (void)state;
    make_lines(lines);
    assert_null(read_lines(lines, (int[]){0, 1, 2, 3, 4, 5}, 6));
    assert_null(
        read_lines(lines, (int[]){0, 1, 2}, 3)); /* the end: only a kept hash can tell */
    assert_non_null(read_lines(lines, (int[]){0, 2}, 2));
    assert_non_null(read_lines(lines, (int[]){0, 1, 1}, 3));
    assert_non_null(read_lines(lines, (int[]){0, 2, 1}, 3));
    assert_non_null(read_lines(lines, (int[]){1, 2}, 2));
    done_lines(lines);
}

/* Each bit of each line but the first byte's case: nothing can be changed unseen. */
static void every_changed_bit_shows(void **state)
{
    struct buf lines[LINES];
    (void)state;
    make_lines(lines);
    for (int i = 0; i < LINES; i++) {
        size_t n = buf_len(&lines[i]) - 1;
        for (size_t bit = 0; bit < n * 8; bit++) {
            char *at = lines[i].mem + lines[i].start + bit / 8;
            *at = (char)(*at ^ 1 << bit % 8);
            assert_non_null(read_lines(lines, (int[]){0, 1, 2, 3, 4, 5}, 6));
            *at = (char)(*at ^ 1 << bit % 8);
        }
    }
    assert_null(read_lines(lines, (int[]){0, 1, 2, 3, 4, 5}, 6));
    done_lines(lines);
}

static void what_is_no_line_is_refused_at_every_length(void **state)
{
    struct buf lines[LINES];
    (void)state;
    make_lines(lines);
    for (size_t n = 0; n + 1 < buf_len(&lines[0]); n++) {
        struct chain_reader r = {0};
        struct chain c;
        char *cut = malloc(n + 1); /* so that a byte too far is seen */
        memcpy(cut, buf_data(&lines[0]), n);
        assert_non_null(chain_read(&r, slice_of(cut, n)));
        (void)chain_resume(&c, slice_of(cut, n));
        free(cut);
    }
    done_lines(lines);
}

static void nobody(void *ctx)
{
    (void)ctx;
}

static uint64_t verified(const char *path, struct chain_reader *r)
{
    char *line = NULL;
    size_t cap = 0;
    uint64_t lines = 0;
    ssize_t n;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while ((n = getline(&line, &cap, f)) > 0) {
        assert_int_equal(line[n - 1], '\n');
        assert_null(chain_read(r, slice_of(line, (size_t)n - 1)));
        lines++;
    }
    free(line);
    (void)fclose(f);
    return lines;
}

static void all_lines_are_there_however_often_the_file_is_changed(void **state)
{
    enum { FILES = 20, EACH = 200 };
    char dir[] = "/tmp/belay-audit-XXXXXX", path[64], old[80];
    const char *why;
    struct chain_reader r = {0};
    uint64_t lines = 0;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log", dir);
    struct audit *a = audit_open(path, nobody, NULL, &why);
    assert_non_null(a);
    for (int f = 0; f < FILES; f++) {
        for (int i = 0; i < EACH; i++)
            assert_true(audit_put(a, SLICE("\"name\":\"x\"")) > 0);
        snprintf(old, sizeof old, "%s.%d", path, f);
        struct stat st;
        if (stat(path, &st) == 0) /* the thread may not have made it yet */
            assert_int_equal(rename(path, old), 0);
        audit_reopen(a);
    }
    struct audit_state at;
    audit_look(a, &at);
    assert_int_equal(at.lost, 0);
    assert_int_equal(audit_close(a), 0);
    for (int f = 0; f <= FILES; f++) {
        if (f < FILES)
            snprintf(old, sizeof old, "%s.%d", path, f);
        else
            snprintf(old, sizeof old, "%s", path);
        if (f == FILES || access(old, F_OK) == 0) {
            lines += verified(old, &r);
            (void)unlink(old);
        }
    }
    assert_int_equal(lines, r.at.n);
    assert_true(lines > FILES * EACH && lines <= FILES * EACH + 2 * FILES + 1);
    (void)rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_other_order_shows),
        cmocka_unit_test(every_changed_bit_shows),
        cmocka_unit_test(what_is_no_line_is_refused_at_every_length),
        cmocka_unit_test(all_lines_are_there_however_often_the_file_is_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
