/* What every layer stands on: buffers, arenas, the table, the heap, hashes, log text. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pages.h"
#include "base/pool.h"
#include "base/rank.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void a_buffer_grows_and_is_consumed(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_slice(&b).len, 0);
    assert_string_equal(buf_cstr(&b), "");
    buf_put_str(&b, "abc");
    buf_put_byte(&b, '-');
    buf_put_u64(&b, UINT64_MAX);
    buf_put_byte(&b, ' ');
    buf_put_i64(&b, INT64_MIN);
    buf_printf(&b, " %s %d", "x", 7);
    assert_string_equal(buf_cstr(&b), "abc-18446744073709551615 -9223372036854775808 x 7");
    buf_consume(&b, 4);
    assert_string_equal(buf_cstr(&b), "18446744073709551615 -9223372036854775808 x 7");
    buf_consume(&b, buf_len(&b));
    assert_int_equal(buf_len(&b), 0);
    buf_shrink(&b);
    assert_null(b.mem);
    buf_done(&b);
    buf_done(NULL);
}

/* A queue of bytes that is filled and emptied for ever stays small and in order. */
static void a_buffer_used_as_a_queue_stays_small(void **state)
{
    (void)state;
    struct buf b = {0};
    unsigned char in = 0, out = 0;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        for (int n = rand() % 50; n && buf_len(&b) < 400; n--)
            buf_put_byte(&b, (char)in++);
        size_t n = (size_t)rand() % (buf_len(&b) + 1);
        for (size_t j = 0; j < n; j++)
            assert_int_equal((unsigned char)buf_data(&b)[j], out++);
        buf_consume(&b, n);
    }
    assert_true(b.cap <= 1024);
    buf_done(&b);
}

static void out_of_memory_is_remembered(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_put_str(&b, "abc");
    assert_false(buf_reserve(&b, SIZE_MAX / 2));
    assert_true(b.oom);
    buf_put_str(&b, "def");
    assert_int_equal(buf_len(&b), 3);
    buf_done(&b);
}

static void a_file_is_read_up_to_a_limit(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "hello", 5), 5);
    assert_int_equal(close(fd), 0);
    struct buf b = {0};
    assert_int_equal(buf_read_file(&b, path, 5), BELAY_OK);
    assert_string_equal(buf_cstr(&b), "hello");
    buf_clear(&b);
    assert_int_equal(buf_read_file(&b, path, 4), BELAY_ERR_TOO_BIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(buf_read_file(&b, path, 4), BELAY_ERR_NOT_FOUND);
    assert_int_equal(buf_read_file(&b, "/", 4), BELAY_ERR_IO);
    buf_done(&b);
}

static void arena_pieces_stay_and_are_aligned(void **state)
{
    (void)state;
    struct arena a = {0};
    unsigned char *pieces[200];
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 200; i++) {
            pieces[i] = arena_alloc(&a, i * 7);
            assert_int_equal((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
            memset(pieces[i], (int)i, i * 7);
        }
        for (size_t i = 1; i < 200; i++) {
            assert_int_equal(pieces[i][0], i);
            assert_int_equal(pieces[i][i * 7 - 1], i);
        }
        arena_reset(&a);
    }
    struct slice none = arena_copy(&a, slice_of(NULL, 0));
    assert_int_equal(none.len, 0);
    assert_non_null(none.data);
    struct slice copy = arena_copy(&a, SLICE("a\0b"));
    assert_true(slice_eq(copy, SLICE("a\0b")));
    arena_done(&a);
    arena_done(&a);
}

struct item {
    struct map_node node;
    uint64_t key;
    bool in;
};

static bool same_key(struct map_node *node, const void *key)
{
    return map_item(node, struct item, node)->key == *(const uint64_t *)key;
}

/* Random adds and removes while it grows: what is in is found, what is not is not. */
static void the_table_finds_while_it_grows(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct map m = {0};
    struct item *items = mem_zalloc(N * sizeof *items);
    size_t in = 0, growing = 0;
    uint64_t absent = N;
    assert_null(map_find(&m, 1, same_key, &absent));
    srand(2);
    for (int step = 0; step < 100000; step++) {
        size_t span = step < 50000 ? (size_t)step / 10 + 1 : N; /* grows slowly */
        uint64_t i = (uint64_t)rand() % span;
        uint64_t hash = i * 0x9e3779b97f4a7c15u >> (i % 3 ? 0 : 60); /* some collide */
        struct map_node *found = map_find(&m, hash, same_key, &i);
        assert_true((found != NULL) == items[i].in);
        growing += m.old != NULL;
        if (items[i].in) {
            assert_ptr_equal(found, &items[i].node);
            map_remove(&m, found);
            in--;
        } else {
            items[i].key = i;
            map_add(&m, &items[i].node, hash);
            in++;
        }
        items[i].in = !items[i].in;
        assert_int_equal(m.count, in);
    }
    assert_true(growing > 100); /* it was caught in the middle */
    map_done(&m);
    free(items);
}

/* The order comes from (at, seq) alone, however the entries came in, moved or left. */
static void the_heap_gives_the_earliest(void **state)
{
    (void)state;
    enum { N = 300 };
    struct heap h = {0};
    struct heap_node nodes[N] = {0};
    srand(3);
    assert_null(heap_top(&h));
    for (size_t i = 0; i < N; i++)
        nodes[i].seq = i;
    for (int step = 0; step < 5000; step++) {
        struct heap_node *n = &nodes[rand() % N];
        if (rand() % 3)
            heap_set(&h, n, (uint64_t)rand() % 50);
        else
            heap_remove(&h, n);
        const struct heap_node *least = NULL;
        size_t count = 0;
        for (size_t i = 0; i < N; i++) {
            if (!nodes[i].pos)
                continue;
            count++;
            if (!least || nodes[i].at < least->at)
                least = &nodes[i]; /* seq rises with i */
        }
        assert_ptr_equal(heap_top(&h), least);
        assert_int_equal(h.count, count);
    }
    heap_done(&h);
}

static void a_list_keeps_its_order(void **state)
{
    (void)state;
    struct list head, nodes[4];
    list_init(&head);
    assert_true(list_empty(&head));
    list_push_back(&head, &nodes[1]);
    list_push_back(&head, &nodes[2]);
    list_push_front(&head, &nodes[0]);
    size_t i = 0;
    list_each (n, &head)
        assert_ptr_equal(n, &nodes[i++]);
    assert_int_equal(i, 3);
    list_each_safe(n, &head) list_remove(n);
    assert_true(list_empty(&head));
    list_remove(&nodes[0]);
}

/* Blocks of all sizes come and go at random, far more of a size than are kept; what is written
 * into one stays while it is in use. */
static void pool_blocks_are_used_again_and_never_twice(void **state)
{
    (void)state;
    enum { BLOCKS = 3 * POOL_KEEP };
    struct pool p = {0};
    struct {
        unsigned char *at;
        size_t bytes;
    } used[BLOCKS] = {{0}};
    srand(2);
    for (int i = 0; i < 100000; i++) {
        size_t at = (size_t)rand() % BLOCKS;
        if (used[at].at) {
            for (size_t j = 0; j < used[at].bytes; j++)
                assert_int_equal(used[at].at[j], (unsigned char)at);
            pool_free(&p, used[at].at, used[at].bytes);
            used[at].at = NULL;
        } else {
            used[at].bytes = 1 + (size_t)rand() % (i % 2 ? 20 : POOL_SIZES * POOL_STEP + 40);
            used[at].at = pool_alloc(&p, used[at].bytes);
            memset(used[at].at, (int)at, used[at].bytes);
        }
    }
    void *block = pool_alloc(&p, 7);
    pool_free(&p, block, 7);
    assert_ptr_equal(pool_alloc(&p, POOL_LEAST), block);
    free(block);
    for (size_t i = 0; i < BLOCKS; i++)
        free(used[i].at);
    pool_done(&p);
    assert_null(p.first[0]);
}

static void slices_of_every_length_are_copied(void **state)
{
    (void)state;
    for (size_t n = 0; n < 70; n++) {
        char *from = mem_alloc(n), *to = mem_alloc(n); /* nothing behind them may be touched */
        for (size_t i = 0; i < n; i++)
            from[i] = (char)('!' + i);
        assert_ptr_equal(slice_put(to, slice_of(from, n)), to + n);
        assert_memory_equal(to, from, n);
        free(from);
        free(to);
    }
    char none;
    assert_ptr_equal(slice_put(&none, slice_of(NULL, 0)), &none);
}

static void letters_of_either_case_are_the_same(void **state)
{
    (void)state;
    static const struct {
        struct slice a, b;
        bool same;
    } rows[] = {
        {{"", 0}, {NULL, 0}, true},
        {{"Acquire", 7}, {"ACQUIRE", 7}, true},
        {{"azAZ", 4}, {"AZaz", 4}, true},
        {{"ttl", 3}, {"tt", 2}, false},
        {{"ttl", 3}, {"ttk", 3}, false},
        {{"\0a", 2}, {"\0B", 2}, false}, /* a NUL ends nothing */
        {{"a\0", 2}, {"a ", 2}, false},  /* they differ by the bit of the case, but */
        {{"@", 1}, {"`", 1}, false},     /* only messages have a case */
        {{"[", 1}, {"{", 1}, false},
        {{"\xc4", 1}, {"\xe4", 1}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(slice_eq_nocase(rows[i].a, rows[i].b), rows[i].same);
        assert_int_equal(slice_eq_nocase(rows[i].b, rows[i].a), rows[i].same);
    }
}

/* SipHash-1-3: the values of Python 3.11's hash() of bytes with PYTHONHASHSEED=0 (keys 0, 0).
 * CRC32C: RFC 3720, B.4. */
static void hashes_have_known_values(void **state)
{
    (void)state;
    struct hash_key zero = {0, 0}, other = {1, 0};
    unsigned char bytes[63], flat[32] = {0};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    assert_true(hash_bytes(&zero, "a", 1) == 0x407448d2b89b1813u);
    assert_true(hash_bytes(&zero, "belay", 5) == 0x4362539be131f77au);
    assert_true(hash_bytes(&zero, "12345678", 8) == 0x3489982430560a87u);
    assert_true(hash_bytes(&zero, bytes, 63) == 0x385d3e39e5f37359u);
    assert_true(hash_bytes(&zero, flat, 16) == 0x76be999e3e25b2a0u);
    uint64_t all = 0;
    for (size_t n = 1; n < 63; n++)
        all ^= hash_bytes(&zero, bytes, n);
    assert_true(all == 0x87e11d4c7e47629fu);
    assert_true(hash_bytes(&other, "a", 1) != hash_bytes(&zero, "a", 1));

    assert_true(crc32c(0, "123456789", 9) == 0xe3069283u);
    assert_true(crc32c(0, flat, 32) == 0x8a9136aau);
    assert_true(crc32c(crc32c(0, "1234", 4), "56789", 5) == 0xe3069283u);
    memset(flat, 0xff, sizeof flat);
    assert_true(crc32c(0, flat, 32) == 0x62a8ab43u);
    assert_true(crc32c(0, bytes, 32) == 0x46dd794eu);
    assert_true(crc32c(0, "", 0) == 0);
}

/* Random comings and goings against plain counting; the tree stays flat. */
static void a_rank_is_the_place_in_the_row(void **state)
{
    (void)state;
    enum { N = 400, STEPS = 20000, DEPTH_MAX = 60 };
    static struct item {
        struct list in_row;
        struct rank_node node;
        bool in;
    } items[N];
    struct list row;
    struct rank rank = {0};
    list_init(&row);
    srand(7);
    for (int step = 0; step < STEPS; step++) {
        struct item *it = &items[rand() % N];
        if (it->in) {
            list_remove(&it->in_row);
            rank_remove(&rank, &it->node);
        } else if (rand() % 8) {
            list_push_back(&row, &it->in_row);
            rank_push_back(&rank, &it->node, (uint64_t)step);
        } else {
            list_push_front(&row, &it->in_row);
            rank_push_front(&rank, &it->node, (uint64_t)step);
        }
        it->in = !it->in;
        size_t n = 0;
        list_each (at, &row) {
            const struct item *one = list_item(at, const struct item, in_row);
            if (step % 50 == 0)
                assert_int_equal(rank_of(&one->node), n + 1);
            int depth = 0;
            for (const struct rank_node *up = &one->node; step % 50 == 0 && up; up = up->up)
                depth++;
            assert_true(depth <= DEPTH_MAX);
            n++;
        }
        assert_int_equal(rank.root ? rank.root->count : 0, n);
    }
}

static void log_text_is_printable_and_bounded(void **state)
{
    (void)state;
    static const struct {
        struct slice in;
        const char *want;
    } rows[] = {
        {{"", 0}, "\"\""},
        {{"abc", 3}, "\"abc\""},
        {{"a\n\x1b[0m", 6}, "\"a\\x0a\\x1b[0m\""},
        {{"\0\x7f\xff", 3}, "\"\\x00\\x7f\\xff\""},
        {{"\"\\", 2}, "\"\\x22\\x5c\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(log_bytes(rows[i].in), rows[i].want);
    char many[200];
    memset(many, '\n', sizeof many);
    const char *text = log_bytes(slice_of(many, sizeof many));
    assert_int_equal(strlen(text), 160 * 4 + 3);
    assert_string_equal(text + strlen(text) - 2, "~\"");
    const char *other = log_bytes(SLICE("x"));
    assert_ptr_not_equal(text, other);
}

static void a_log_line_becomes_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", ""},
        {"node=2", ",\"node\":2"},
        {"ms=1.250 n=-7 zero=0", ",\"ms\":1.250,\"n\":-7,\"zero\":0"},
        {"a=007 b=1. c=.5 d=- e=1e5 f=", ",\"a\":\"007\",\"b\":\"1.\",\"c\":\".5\",\"d\":\"-\","
                                         "\"e\":\"1e5\",\"f\":\"\""},
        {"id=123456789012345 big=1234567890123456",
         ",\"id\":123456789012345,\"big\":\"1234567890123456\""},
        {"name=\"7\" x=\"\"", ",\"name\":\"7\",\"x\":\"\""},
        {"error=\"no \"such\" file\" path=/a",
         ",\"error\":\"no \\\"such\\\" file\",\"path\":\"/a\""},
        {"path=C:\\x", ",\"path\":\"C:\\\\x\""},
        {"error=\"the line was cu", ",\"error\":\"the line was cu\""},
        {"polling every 5 ms", ",\"text\":\"polling every 5 ms\""},
        {"node=1 and more", ",\"node\":1,\"text\":\"and more\""},
    };
    char out[LOG_LINE_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = log_put_members(out, sizeof out, rows[i].text);
        assert_int_equal(n, strlen(rows[i].want));
        assert_memory_equal(out, rows[i].want, n);
    }
    /* what a client sent cannot look like another key */
    char line[256];
    (void)snprintf(line, sizeof line, "name=%s ok=1", log_bytes(SLICE("x\" ok=2 y=\"\\")));
    static const char want[] = ",\"name\":\"x\\\\x22 ok=2 y=\\\\x22\\\\x5c\",\"ok\":1";
    assert_int_equal(log_put_members(out, sizeof out, line), sizeof want - 1);
    assert_memory_equal(out, want, sizeof want - 1);
    /* a member that has no room is left out as a whole, with those behind it */
    for (size_t cap = 0; cap < 20; cap++)
        assert_int_equal(log_put_members(out, cap, "ab=12 cd=\"34\" e=5"), cap < 8    ? 0
                                                                           : cap < 18 ? 8
                                                                                      : 18);
}

static void log_levels_have_words(void **state)
{
    (void)state;
    enum log_level level = LOG_NONE;
    assert_true(log_level_of(SLICE("debug"), &level));
    assert_int_equal(level, LOG_DEBUG);
    assert_string_equal(log_level_word(LOG_WARN), "warn");
    assert_false(log_level_of(SLICE("loud"), &level));
    assert_false(log_level_of(SLICE(""), &level));
    assert_int_equal(level, LOG_DEBUG);
}

static void errors_have_words(void **state)
{
    (void)state;
    assert_string_equal(err_word(BELAY_ERR_STALE), "STALE");
    assert_int_equal(err_status(BELAY_ERR_NOT_LEADER), 421);
    assert_string_equal(err_word((enum belay_err)9999), "INTERNAL");
}

/* Whether the kernel can or not: the walk comes to its end, and every byte stays what it was. */
static void pages_are_put_together(void **state)
{
    enum { BLOCKS = 2000, BYTES = 4096 };
    unsigned char *blocks[BLOCKS];
    struct pages pages;
    size_t steps = 0;
    (void)state;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = mem_alloc(BYTES);
        memset(blocks[i], (int)(i % 251), BYTES);
    }
    pages_begin(&pages);
    size_t most = (pages.end - pages.at) / (2 << 20) + 1;
    while (pages_join(&pages))
        steps++;
    assert_true(steps <= most);
    for (size_t i = 0; i < BLOCKS; i++) {
        for (size_t k = 0; k < BYTES; k++)
            assert_int_equal(blocks[i][k], i % 251);
        free(blocks[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_grows_and_is_consumed),
        cmocka_unit_test(a_buffer_used_as_a_queue_stays_small),
        cmocka_unit_test(out_of_memory_is_remembered),
        cmocka_unit_test(a_file_is_read_up_to_a_limit),
        cmocka_unit_test(arena_pieces_stay_and_are_aligned),
        cmocka_unit_test(the_table_finds_while_it_grows),
        cmocka_unit_test(the_heap_gives_the_earliest),
        cmocka_unit_test(a_list_keeps_its_order),
        cmocka_unit_test(pool_blocks_are_used_again_and_never_twice),
        cmocka_unit_test(slices_of_every_length_are_copied),
        cmocka_unit_test(letters_of_either_case_are_the_same),
        cmocka_unit_test(pages_are_put_together),
        cmocka_unit_test(hashes_have_known_values),
        cmocka_unit_test(a_rank_is_the_place_in_the_row),
        cmocka_unit_test(log_text_is_printable_and_bounded),
        cmocka_unit_test(a_log_line_becomes_json),
        cmocka_unit_test(log_levels_have_words),
        cmocka_unit_test(errors_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
