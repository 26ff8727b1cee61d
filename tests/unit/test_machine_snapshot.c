/* test_machine_snapshot.c - the whole state as bytes: nothing lost, nothing believed. */
#include "base/buf.h"
#include "base/hash.h"
#include "machine/level.h"
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Some of everything: holds of all modes, a line, an upgrade, a body, sessions, a closed lock,
 * variables, a transaction that waits. */
static void fill(struct script *p)
{
    script_open(p);
    play(p, "1 namespace-create n1 text=another");
    play(p, "1 session-open s1 ttl=1000 linger=20 text=mine");
    play(p, "1 session-attach s1 target=7");
    play(p, "1 acquire a ann ttl=50 grace=7 body=some delay=9");
    play(p, "1 acquire a bob ttl=50 wait=500 body=other");
    play(p, "1 acquire a cy timed=8 ttl=50 wait=500");
    play(p, "1 acquire r ann shared session=s1");
    play(p, "1 acquire r bob shared ttl=40");
    play(p, "1 convert r bob exclusive wait=300");
    play(p, "1 acquire pool ann 2/3 ttl=80 ns=n1");
    play(p, "1 acquire pool bob 2/3 ttl=80 wait=90 ns=n1");
    play(p, "1 acquire c di ttl=5 delay=600");
    play(
        p,
        "1 txn s1 assert(set(t,k,1,ttl=30)) assert(set(t,j,2,dup)) assert(lock(z,q)) text=why");
    play(p, "1 txn s1 assert(exists(u,u)) assert(lock(pool,q)) wait=400 ns=n1");
    play(p, "7 tick");
}

static void a_copy_goes_on_as_the_original(void **state)
{
    (void)state;
    struct script p, q;
    struct buf bytes = {0};
    fill(&p);
    fill(&q);
    machine_encode(p.m, &bytes);
    machine_close(p.m);
    p.m = NULL;
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){7, 8}, &p.m),
                     BELAY_OK);
    for (int t = 8; t < 1500; t += 31) {
        play(&p, "%d tick", t);
        play(&q, "%d tick", t);
        assert_int_equal(p.fx.n, q.fx.n);
        assert_true(machine_hash(p.m) == machine_hash(q.m));
        assert_true(machine_due(p.m) == machine_due(q.m));
    }
    buf_done(&bytes);
    script_done(&p);
    script_done(&q);
}

static void every_op_changes_the_hash(void **state)
{
    (void)state;
    struct script p;
    fill(&p);
    uint64_t before = machine_hash(p.m);
    static const char *const ops[] = {"8 tick",
                                      "8 tick",
                                      "8 renew a ann ttl=51",
                                      "8 body a ann body=x",
                                      "8 session-keepalive s1",
                                      "8 session-attach s1 target=8",
                                      "8 namespace-update n1 text=y",
                                      "8 release a cy"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        play(&p, "%s", ops[i]);
        assert_true(machine_hash(p.m) != before);
        before = machine_hash(p.m);
    }
    script_done(&p);
}

static void half_a_snapshot_is_none(void **state)
{
    (void)state;
    struct script p;
    struct buf bytes = {0};
    struct machine *m = NULL;
    fill(&p);
    machine_encode(p.m, &bytes);
    for (size_t n = 0; n < buf_len(&bytes); n++)
        assert_int_equal(
            machine_decode(slice_of(buf_data(&bytes), n), (struct hash_key){1, 1}, &m),
            BELAY_ERR_CORRUPT);
    buf_put_byte(&bytes, 0);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){1, 1}, &m),
                     BELAY_ERR_CORRUPT);
    assert_null(m);
    buf_done(&bytes);
    script_done(&p);
}

static void a_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct script p;
    struct buf bytes = {0};
    struct machine *m = NULL;
    fill(&p);
    machine_encode(p.m, &bytes);
    for (size_t bit = 0; bit < 8 * buf_len(&bytes); bit++) {
        char *at = bytes.mem + bytes.start + bit / 8;
        *at = (char)(*at ^ (1 << bit % 8));
        assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){1, 1}, &m),
                         BELAY_ERR_CORRUPT);
        *at = (char)(*at ^ (1 << bit % 8));
    }
    assert_null(m);
    buf_done(&bytes);
    script_done(&p);
}

/* what a server of the first days wrote: one lock held in a session, one waiter, two namespaces
 */
static void a_snapshot_of_version_1_still_loads(void **state)
{
    (void)state;
    static const unsigned char old[] = {
        0x42, 0x45, 0x4c, 0x41, 0x59, 0x53, 0x4e, 0x50, 0x01, 0x04, 0x00, 0x03, 0x01, 0x02,
        0x73, 0x31, 0x01, 0xe0, 0xd4, 0x03, 0xe0, 0xd4, 0x03, 0x00, 0x00, 0x01, 0x64, 0x01,
        0x07, 0x64, 0x65, 0x66, 0x61, 0x75, 0x6c, 0x74, 0x02, 0x07, 0x64, 0x65, 0x66, 0x61,
        0x75, 0x6c, 0x74, 0x00, 0x00, 0x00, 0x01, 0x02, 0x64, 0x62, 0xff, 0xff, 0xff, 0xff,
        0x0f, 0x01, 0x03, 0x61, 0x6e, 0x6e, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x03, 0x62, 0x6f,
        0x62, 0x00, 0x03, 0x88, 0x27, 0x00, 0x00, 0x00, 0x88, 0x27, 0x00, 0xe8, 0x07, 0x00,
        0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x00, 0x00, 0x01, 0x78, 0x00, 0x00,
        0x00, 0x00, 0x00, 0xec, 0x71, 0x43, 0xc2,
    };
    struct script p;
    struct machine *m = NULL;
    script_open(&p);
    assert_int_equal(
        machine_decode(slice_of((const char *)old, sizeof old), (struct hash_key){1, 2}, &m),
        BELAY_OK);
    assert_int_equal(machine_level(m), 0);
    machine_close(p.m);
    p.m = m;
    const struct event *ev = play(&p, "0 session-close s1");
    assert_int_equal(ev->kind, EVENT_SESSION_ENDED);
    assert_int_equal(script_count(&p, EVENT_GRANTED), 1); /* the waiter has it now */
    assert_int_equal(play(&p, "0 namespace-delete x")->kind, EVENT_NAMESPACE_DELETED);
    script_done(&p);
}

/* A state that was reached and is not believed keeps its node from ever starting again. */
static void is_believed(struct script *p)
{
    struct buf bytes = {0};
    struct machine *copy = NULL;
    machine_encode(p->m, &bytes);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){1, 2}, &copy),
                     BELAY_OK);
    assert_true(machine_hash(copy) == machine_hash(p->m));
    machine_close(copy);
    buf_done(&bytes);
}

/* The same state with another version and level in front of it. */
static void dress(struct machine *m, const char *head, size_t n, struct buf *ret)
{
    struct buf bytes = {0};
    machine_encode(m, &bytes);
    buf_clear(ret);
    buf_put(ret, "BELAYSNP", 8);
    buf_put(ret, head, n);
    buf_put(ret, buf_data(&bytes) + 10, buf_len(&bytes) - 14);
    uint32_t crc = crc32c(0, buf_data(ret), buf_len(ret));
    for (int i = 0; i < 4; i++)
        buf_put_byte(ret, (char)(crc >> (8 * i)));
    buf_done(&bytes);
}

static void the_level_is_what_the_snapshot_says(void **state)
{
    (void)state;
    struct script p;
    struct machine *m = NULL;
    struct buf bytes = {0};
    fill(&p);
    assert_int_equal(machine_level(p.m), LEVEL_NEWEST);
    dress(p.m, "\x06\x01", 2, &bytes);
    assert_int_equal(machine_snapshot_level(buf_slice(&bytes)), 1);
    is_believed(&p);
    dress(p.m, "\x07\x63", 2, &bytes); /* of a later program */
    assert_int_equal(machine_snapshot_level(buf_slice(&bytes)), 99);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){1, 2}, &m),
                     BELAY_ERR_CORRUPT);
    buf_done(&bytes);
    script_done(&p);
}

static void a_level_goes_up_only(void **state)
{
    (void)state;
    struct machine *m = machine_open((struct hash_key){1, 2});
    struct effects fx = {0};
    machine_set_level(m, 0);
    for (uint64_t i = 0; i < 3; i++) {
        static const uint64_t levels[] = {0, LEVEL_NEWEST, 0};
        struct op op = {.kind = OP_LEVEL, .index = i + 1, .target = levels[i]};
        machine_apply(m, &op, &fx);
        assert_int_equal(machine_level(m), i == 0 ? 0 : LEVEL_NEWEST);
    }
    effects_done(&fx);
    machine_close(m);
}

static void who_waits_in_the_line_gets_the_lock_by_no_transaction(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 session-open s1 ttl=100000");
    play(&p, "0 acquire l ann ttl=50000 shared");
    play(&p, "0 acquire l bob session=s1 ttl=1000 wait=50000 soft");
    const struct event *ev = play(&p, "0 txn s1 assert(lock(l,bob,shared))");
    assert_int_equal(ev->kind, EVENT_TXN);
    assert_int_not_equal(ev->status, TXN_OK);
    is_believed(&p);
    script_done(&p);
}

static void a_holder_has_one_hold_while_many_ends_are_due(void **state)
{
    (void)state;
    enum { LOCKS = 3 * MACHINE_EXPIRE_BATCH + 10 };
    struct script p;
    script_open(&p);
    for (int i = 0; i < LOCKS; i++)
        play(&p, "0 acquire l%d ann ttl=100", i);
    play(&p, "0 acquire doc ann shared ttl=100");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(play(&p, "100 acquire doc ann shared ttl=600000")->kind,
                         EVENT_GRANTED);
        is_believed(&p);
    }
    assert_int_equal(play(&p, "100 show doc")->locks[0].n_holders, 1);
    script_done(&p);
}

static void an_upgrade_that_is_away_goes_when_it_is_asked_for_anew(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    play(&p, "0 acquire l ann ttl=60000 shared");
    play(&p, "0 acquire l bob ttl=60000 shared");
    play(&p, "0 convert l #1 exclusive wait=50000 request=c1");
    play(&p, "1 cancel l @3 away undo request=c1");
    play(&p, "2 release l bob");
    assert_int_equal(play(&p, "3 convert l #1 exclusive wait=50000 request=c2")->kind,
                     EVENT_GRANTED);
    is_believed(&p);
    assert_int_equal(play(&p, "4 show l")->locks[0].n_waiters, 0);
    script_done(&p);
}

static void a_namespace_that_is_taken_apart_does_not_count(void **state)
{
    (void)state;
    struct script p;
    script_open(&p);
    for (int i = 1; i < LIMIT_NAMESPACES; i++)
        play(&p, "0 namespace-create n%d", i);
    for (int i = 0; i < 5000; i++)
        play(&p, "0 acquire l%d ann ttl=60000", i);
    play(&p, "1 namespace-delete default force");
    assert_int_equal(play(&p, "1 namespace-create again")->kind, EVENT_NAMESPACE_CREATED);
    is_believed(&p);
    script_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_goes_on_as_the_original),
        cmocka_unit_test(every_op_changes_the_hash),
        cmocka_unit_test(half_a_snapshot_is_none),
        cmocka_unit_test(a_flipped_bit_is_noticed),
        cmocka_unit_test(a_snapshot_of_version_1_still_loads),
        cmocka_unit_test(the_level_is_what_the_snapshot_says),
        cmocka_unit_test(a_level_goes_up_only),
        cmocka_unit_test(who_waits_in_the_line_gets_the_lock_by_no_transaction),
        cmocka_unit_test(a_holder_has_one_hold_while_many_ends_are_due),
        cmocka_unit_test(an_upgrade_that_is_away_goes_when_it_is_asked_for_anew),
        cmocka_unit_test(a_namespace_that_is_taken_apart_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
