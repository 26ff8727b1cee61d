/* A directory as a disk: files that are there whole or not at all, and what they leave. */
#include "base/buf.h"
#include "base/log.h"
#include "storage/disk.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Zeros are written ahead of the data; nobody who reads can tell, also not after a new start
 * and at the end of the file. */
static void a_file_is_its_data_and_zeros(void **state)
{
    (void)state;
    enum { BYTES = (5 << 19) + 512, PIECE = 100 * 512 };
    char path[] = "/tmp/belay-disk-XXXXXX";
    assert_non_null(mkdtemp(path));
    struct disk *d;
    char *want = calloc(1, BYTES);
    struct buf got = {0};
    memset(want, 'h', 512);
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->create(d, "a", slice_of(want, 512), BYTES), BELAY_OK);
    for (size_t at = 512, n = 0; at < BYTES; at += PIECE, n++) {
        size_t len = BYTES - at < PIECE ? BYTES - at : PIECE;
        memset(want + at, (int)('A' + n), len);
        assert_int_equal(d->ops->write(d, "a", at, slice_of(want + at, len)), BELAY_OK);
        buf_clear(&got);
        assert_int_equal(d->ops->read(d, "a", &got), BELAY_OK);
        assert_int_equal(buf_len(&got), BYTES);
        assert_memory_equal(buf_data(&got), want, BYTES);
        if (n % 10 == 5) {
            d->ops->close(d);
            assert_int_equal(disk_file_open(path, &d), BELAY_OK);
        }
    }
    assert_int_equal(d->ops->remove(d, "a"), BELAY_OK);
    assert_int_equal(d->ops->remove(d, "lock"), BELAY_OK);
    d->ops->close(d);
    assert_int_equal(rmdir(path), 0);
    buf_done(&got);
    free(want);
}

static void a_file_grows_piece_by_piece_and_gets_its_name(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-disk-XXXXXX";
    struct disk *d;
    struct buf out = {0};
    struct slice mapped;
    uint64_t size = 0;
    assert_non_null(mkdtemp(path));
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->extend(d, "a", 0, SLICE("an older, longer one")), BELAY_OK);
    assert_int_equal(d->ops->extend(d, "a", 0, SLICE("first ")), BELAY_OK);
    assert_int_equal(d->ops->extend(d, "a", 6, SLICE("second")), BELAY_OK);
    assert_int_equal(d->ops->extend(d, "c", 6, SLICE("second")), BELAY_ERR_IO);
    assert_int_equal(d->ops->put(d, "b", SLICE("replaced")), BELAY_OK);
    assert_int_equal(d->ops->rename(d, "a", "b"), BELAY_OK);
    assert_int_equal(d->ops->size(d, "a", &size), BELAY_ERR_NOT_FOUND);
    assert_int_equal(d->ops->size(d, "b", &size), BELAY_OK);
    assert_int_equal(size, 12);
    assert_int_equal(d->ops->map(d, "b", &mapped), BELAY_OK);
    assert_true(slice_eq(mapped, SLICE("first second")));
    d->ops->unmap(d, mapped);
    assert_int_equal(d->ops->map(d, "a", &mapped), BELAY_ERR_NOT_FOUND);
    assert_int_equal(d->ops->read_at(d, "b", 4, 4, &out), BELAY_OK);
    assert_true(slice_eq(buf_slice(&out), SLICE("t se")));
    buf_clear(&out);
    assert_int_equal(d->ops->read_at(d, "b", 10, 4, &out), BELAY_OK);
    assert_true(slice_eq(buf_slice(&out), SLICE("nd")));
    buf_clear(&out);
    assert_int_equal(d->ops->read_at(d, "b", 12, 4, &out), BELAY_OK);
    assert_int_equal(buf_len(&out), 0);
    assert_int_equal(d->ops->read_at(d, "a", 0, 4, &out), BELAY_ERR_NOT_FOUND);
    assert_int_equal(d->ops->remove(d, "b"), BELAY_OK);
    buf_done(&out);
    assert_int_equal(d->ops->remove(d, "lock"), BELAY_OK);
    d->ops->close(d);
    assert_int_equal(rmdir(path), 0);
}

static void count_file(void *ctx, const char *name)
{
    (void)name;
    ++*(size_t *)ctx;
}

/* A volume of its own has a "lost+found". */
static void a_directory_in_it_is_no_file_of_it(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-disk-XXXXXX";
    char folder[sizeof path + 32];
    struct disk *d;
    size_t n = 0;
    assert_non_null(mkdtemp(path));
    snprintf(folder, sizeof folder, "%s/lost+found", path);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->list(d, count_file, &n), BELAY_OK);
    assert_int_equal(n, 0);
    assert_int_equal(d->ops->put(d, "a", SLICE("one")), BELAY_OK);
    assert_int_equal(d->ops->list(d, count_file, &n), BELAY_OK);
    assert_int_equal(n, 1);
    assert_int_equal(rmdir(folder), 0);
    disk_file_discard(d, path);
    assert_int_equal(rmdir(path), -1); /* it went with all that was in it */
}

static void count_half_made(void *ctx, const char *name)
{
    *(size_t *)ctx += disk_file_is_half_made(name);
}

/* The names of a directory, each with a space behind it, in order. */
static void names_in(const char *path, char ret[256])
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    assert_true(n >= 0);
    ret[0] = '\0';
    for (int i = 0; i < n; i++) {
        size_t len = strlen(ret);
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            snprintf(ret + len, 256 - len, "%s ", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* Small or large, new or not: a file that cannot be completed leaves what was there, and nothing
 * beside it but the spare one of a small file that has been replaced. */
static void a_file_that_cannot_be_completed_leaves_nothing(void **state)
{
    (void)state;
    enum { LARGE = 2 * DISK_SMALL_BYTES, SMALL_FILE = 100, ALLOWED = 10 };
    static const char bytes[LARGE];
    char path[] = "/tmp/belay-disk-XXXXXX";
    char names[256];
    struct disk *d;
    struct buf got = {0};
    struct rlimit whole, tiny;
    assert_non_null(mkdtemp(path));
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->put(d, "a", SLICE("first")), BELAY_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    tiny = (struct rlimit){.rlim_cur = ALLOWED, .rlim_max = whole.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    enum belay_err small = d->ops->put(d, "snapshot-0-5-1", slice_of(bytes, SMALL_FILE));
    enum belay_err large = d->ops->put(d, "snapshot-0-6-1", slice_of(bytes, LARGE));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_int_equal(small, BELAY_ERR_IO);
    assert_int_equal(large, BELAY_ERR_IO);
    names_in(path, names);
    assert_string_equal(names, "a lock ");
    assert_int_equal(d->ops->put(d, "a", SLICE("second")), BELAY_OK);
    assert_int_equal(d->ops->put(d, "a", SLICE("third")), BELAY_OK);
    names_in(path, names);
    assert_string_equal(names, ".a.spare a lock ");
    assert_int_equal(d->ops->read(d, "a", &got), BELAY_OK);
    assert_true(slice_eq(buf_slice(&got), SLICE("third")));
    buf_done(&got);
    for (const char *const *name = (const char *const[]){"a", ".a.spare", "lock", NULL}; *name;
         name++)
        assert_int_equal(d->ops->remove(d, *name), BELAY_OK);
    d->ops->close(d);
    assert_int_equal(rmdir(path), 0);
}

static void what_is_not_completed_gives_its_space_back(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-disk-XXXXXX";
    char left[sizeof path + 32];
    struct disk *d;
    size_t n = 0;
    assert_non_null(mkdtemp(path));
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->create(d, "a", SLICE("head"), UINT64_C(1) << 60), BELAY_ERR_IO);
    assert_int_equal(d->ops->list(d, count_half_made, &n), BELAY_OK);
    assert_int_equal(n, 0);
    d->ops->close(d);
    /* and what a process left that was killed while it made a file */
    snprintf(left, sizeof left, "%s/snapshot-0-5-1.new", path);
    FILE *f = fopen(left, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(disk_file_look(path, &d), BELAY_OK);
    assert_int_equal(d->ops->list(d, count_half_made, &n), BELAY_OK);
    assert_int_equal(n, 1);
    d->ops->close(d);
    n = 0;
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->list(d, count_half_made, &n), BELAY_OK);
    assert_int_equal(n, 0);
    assert_int_equal(d->ops->remove(d, "lock"), BELAY_OK);
    d->ops->close(d);
    assert_int_equal(rmdir(path), 0);
}

/* On a full disk it may be all that a node still has: another program must not get it. */
static void a_segment_that_is_not_used_becomes_the_reserve(void **state)
{
    (void)state;
    enum { BYTES = 8192 };
    char path[] = "/tmp/belay-disk-XXXXXX";
    char names[256];
    struct disk *d;
    uint64_t size = 0;
    assert_non_null(mkdtemp(path));
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(d->ops->create(d, "a", SLICE("head"), BYTES), BELAY_OK);
    assert_int_equal(d->ops->recycle(d, "a"), BELAY_OK);
    names_in(path, names);
    assert_string_equal(names, "lock reserve ");
    assert_int_equal(d->ops->size(d, "reserve", &size), BELAY_OK);
    assert_int_equal(size, BYTES);
    assert_int_equal(d->ops->create(d, "b", SLICE("head"), BYTES / 2), BELAY_OK);
    assert_int_equal(d->ops->recycle(d, "b"), BELAY_OK); /* there is one */
    names_in(path, names);
    assert_string_equal(names, "lock reserve ");
    assert_int_equal(d->ops->size(d, "reserve", &size), BELAY_OK);
    assert_int_equal(size, BYTES);
    disk_file_discard(d, path);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_its_data_and_zeros),
        cmocka_unit_test(a_file_grows_piece_by_piece_and_gets_its_name),
        cmocka_unit_test(a_file_that_cannot_be_completed_leaves_nothing),
        cmocka_unit_test(a_directory_in_it_is_no_file_of_it),
        cmocka_unit_test(what_is_not_completed_gives_its_space_back),
        cmocka_unit_test(a_segment_that_is_not_used_becomes_the_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
