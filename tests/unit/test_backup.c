/* A backup as bytes, and the state that a restored cluster begins with. */
#include "base/buf.h"
#include "raft/backup_format.h"
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VERSION_AT = 8, LENGTH_AT = 24 };

/* --- parts --- */

static const struct slice content = {"content", 7};

static void make_part(struct buf *out)
{
    char frame[BACKUP_FRAME];
    backup_frame(BACKUP_GROUP, 3, content, frame);
    buf_put(out, frame, sizeof frame);
    buf_put_slice(out, content);
}

static enum belay_err read_part(struct slice bytes)
{
    struct slice ret;
    return backup_part(&bytes, BACKUP_GROUP, 3, &ret);
}

static void a_part_is_read_as_written(void **state)
{
    (void)state;
    struct buf part = {0};
    struct slice ret;
    make_part(&part);
    buf_put_byte(&part, 'x'); /* of what follows */
    struct slice left = buf_slice(&part);
    assert_int_equal(backup_part(&left, BACKUP_GROUP, 3, &ret), BELAY_OK);
    assert_true(slice_eq(ret, content));
    assert_true(slice_eq(left, SLICE("x")));
    buf_done(&part);
}

static void a_changed_bit_is_noticed(void **state)
{
    (void)state;
    struct buf part = {0};
    make_part(&part);
    for (size_t bit = 0; bit < 8 * buf_len(&part); bit++) {
        char *at = part.mem + part.start + bit / 8;
        *at ^= (char)(1 << bit % 8);
        enum belay_err err = read_part(buf_slice(&part));
        assert_true(err == BELAY_ERR_CORRUPT || err == BELAY_ERR_NO_PROTO);
        assert_int_equal(err == BELAY_ERR_NO_PROTO,
                         bit / 8 >= VERSION_AT && bit / 8 < VERSION_AT + 4 && *at != 0);
        *at ^= (char)(1 << bit % 8);
    }
    assert_int_equal(read_part(buf_slice(&part)), BELAY_OK);
    buf_done(&part);
}

static void a_part_that_is_cut_or_another_one_is_refused(void **state)
{
    (void)state;
    struct buf part = {0};
    struct slice ret;
    make_part(&part);
    for (size_t n = 0; n < buf_len(&part); n++)
        assert_int_equal(read_part(slice_of(buf_data(&part), n)), BELAY_ERR_CORRUPT);
    struct slice left = buf_slice(&part);
    assert_int_equal(backup_part(&left, BACKUP_END, 3, &ret), BELAY_ERR_CORRUPT);
    assert_int_equal(backup_part(&left, BACKUP_GROUP, 4, &ret), BELAY_ERR_CORRUPT);
    assert_int_equal(left.len, buf_len(&part)); /* nothing was taken */
    memset(part.mem + part.start + LENGTH_AT, 0xff, 8);
    assert_int_equal(read_part(buf_slice(&part)), BELAY_ERR_CORRUPT);
    part.mem[part.start + LENGTH_AT] = (char)-BACKUP_FRAME; /* the sum would turn over */
    assert_int_equal(read_part(buf_slice(&part)), BELAY_ERR_CORRUPT);
    buf_done(&part);
}

static void a_head_is_read_as_written_or_refused(void **state)
{
    (void)state;
    struct backup_head head = {UINT64_MAX, 1, 2, 17, UINT64_MAX}, ret;
    struct buf out = {0};
    backup_head_encode(&head, &out);
    assert_true(backup_head_decode(buf_slice(&out), &ret));
    assert_memory_equal(&head, &ret, sizeof head);
    for (size_t n = 0; n < buf_len(&out); n++)
        assert_false(backup_head_decode(slice_of(buf_data(&out), n), &ret));
    buf_put_byte(&out, 0);
    assert_false(backup_head_decode(buf_slice(&out), &ret));
    buf_done(&out);
    assert_false(backup_head_decode(SLICE("\0\1\1\1\1"), &ret)); /* no id */
    assert_false(backup_head_decode(SLICE("\1\1\1\0\1"), &ret)); /* no groups */
}

/* --- the state --- */

enum { NOW = 60, SKIP = 1000 };

/* One is near its end, one is not, one has none, one ends with its session. */
static void fill(struct script *p)
{
    script_open(p);
    play(p, "1 session-open s1 ttl=100");
    play(p, "1 acquire near ann ttl=80");
    play(p, "1 acquire far bob ttl=5000");
    play(p, "1 acquire endless cy ttl=0");
    play(p, "1 acquire mine di ttl=0 session=s1");
    play(p, "%d tick", NOW);
}

static bool is_free(struct script *p, uint64_t at, const char *lock)
{
    return play(p, "%d acquire %s other ttl=1", (int)at, lock)->kind == EVENT_GRANTED;
}

static void what_is_kept_has_its_whole_time(void **state)
{
    (void)state;
    struct script p;
    fill(&p);
    uint64_t next = machine_number(p.m);
    machine_restore(p.m, SKIP, true);
    script_store(&p);
    play(&p, "%d tick", NOW + 79);
    assert_int_equal(machine_number(p.m), next + SKIP);
    assert_false(is_free(&p, NOW + 79, "near"));
    assert_false(is_free(&p, NOW + 79, "mine"));
    play(&p, "%d tick", NOW + 81);
    assert_true(is_free(&p, NOW + 81, "near"));
    play(&p, "%d tick", NOW + 101);
    assert_true(is_free(&p, NOW + 101, "mine")); /* with its session */
    assert_false(is_free(&p, NOW + 101, "far"));
    assert_false(is_free(&p, NOW + 101, "endless"));
    script_store(&p);
    script_done(&p);
}

static void what_is_dropped_ends_now(void **state)
{
    (void)state;
    static const char *const locks[] = {"near", "far", "endless", "mine"};
    struct script p;
    fill(&p);
    uint64_t next = machine_number(p.m);
    machine_restore(p.m, SKIP, false);
    script_store(&p);
    play(&p, "%d tick", NOW + 1);
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        const struct event *ev = play(&p, "%d acquire %s other ttl=9", NOW + 1, locks[i]);
        assert_int_equal(ev->kind, EVENT_GRANTED);
        assert_true(ev->fence >= next + SKIP);
    }
    script_store(&p);
    script_done(&p);
}

/* Its time has come, and its turn has not. */
static void what_is_over_is_not_revived(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    for (int i = 0; i <= MACHINE_EXPIRE_BATCH; i++)
        play(&p, "1 acquire l%d ann ttl=80", i);
    play(&p, "81 tick");
    assert_int_equal(script_count(&p, EVENT_EXPIRED), MACHINE_EXPIRE_BATCH);
    machine_restore(p.m, SKIP, true);
    play(&p, "82 tick");
    assert_int_equal(script_count(&p, EVENT_EXPIRED), 1);
    script_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_read_as_written),
        cmocka_unit_test(a_changed_bit_is_noticed),
        cmocka_unit_test(a_part_that_is_cut_or_another_one_is_refused),
        cmocka_unit_test(a_head_is_read_as_written_or_refused),
        cmocka_unit_test(what_is_kept_has_its_whole_time),
        cmocka_unit_test(what_is_dropped_ends_now),
        cmocka_unit_test(what_is_over_is_not_revived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
