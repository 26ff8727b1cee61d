/* What a member says that is wrong: refused, without a trace; and a directory that holds it. */
#include "../sim/sim_disk.h"
#include "base/log.h"
#include "machine/level.h"
#include "raft/replica_core.h"
#include "repair/inspect.h"
#include "single_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SUM "00000000000000010000000000000002"

enum { LEADER = 2, OTHER = 3, STRANGER = 100 };

static struct sim_disk disk;
static struct single_node n;

static int open_node(void **state)
{
    (void)state;
    log_set_level(LOG_NONE);
    sim_disk_init(&disk, 2);
    return single_node_open_of_three(&n, &disk, 1) == BELAY_OK ? 0 : -1;
}

static int close_node(void **state)
{
    (void)state;
    single_node_close(&n);
    sim_disk_wipe(&disk);
    return 0;
}

static struct replica_group *replica(void)
{
    return &replica_of(n.order)->replicas[0];
}

static bool say(uint64_t node, struct peer_message msg)
{
    struct buf frame = {0};
    msg.from = node;
    peer_message_put(&msg, &frame);
    bool taken = replica_receive(replica_of(n.order), node, buf_slice(&frame));
    buf_done(&frame);
    single_node_pump(&n);
    return taken;
}

/* The first entry has the members, of term 1. */
static struct peer_message append(uint64_t term, const struct peer_entry *e, size_t n_entries)
{
    return (struct peer_message){.type = WIRE_APPEND,
                                 .term = term,
                                 .index = 1,
                                 .log_term = 1,
                                 .commit = 1 + n_entries,
                                 .entries = e,
                                 .n_entries = n_entries};
}

static struct peer_message append_one(uint64_t term, struct slice data)
{
    static struct peer_entry e;
    e = (struct peer_entry){term, GROUP_ENTRY_COMMAND, data};
    return append(term, &e, 1);
}

static struct buf entry_of(uint8_t version, uint64_t now, uint64_t node, const struct op *op)
{
    struct buf out = {0};
    struct buf bytes = {0};
    op_encode(op, &bytes);
    buf_put_byte(&out, (char)version);
    varint_put(&out, now);
    varint_put(&out, node);
    varint_put(&out, 1); /* run */
    varint_put(&out, 1); /* number */
    varint_put_bytes(&out, buf_slice(&bytes));
    buf_done(&bytes);
    return out;
}

static void wrong_entries_are_not_accepted(void **state)
{
    (void)state;
    const struct op tick = {.kind = OP_TICK};
    const struct {
        uint8_t version;
        uint64_t now, node;
        struct op op;
    } rows[] = {
        {9, 1000, LEADER, tick},
        {ENTRY_VERSION, UINT64_MAX / 2, LEADER, tick},
        {ENTRY_VERSION, 1000, 0, tick},
        {ENTRY_VERSION, 1000, NODE_PLACES, tick},
        {ENTRY_VERSION, 1000, LEADER, {.kind = OP_SHOW, .name = SLICE("a")}},
        {ENTRY_VERSION, 1000, LEADER, {.kind = OP_LEVEL}},
        {ENTRY_VERSION, 1000, LEADER, {.kind = OP_BREAK}},
        {ENTRY_VERSION, 1000, LEADER, {.kind = OP_TICK, .asker = UINT64_C(1) << OP_NODE_SHIFT}},
        {ENTRY_LEVEL, 1000, 99, tick},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf entry = entry_of(rows[i].version, rows[i].now, rows[i].node, &rows[i].op);
        assert_false(say(LEADER, append_one(2, buf_slice(&entry))));
        assert_int_equal(group_last(replica()->group), 1);
        buf_done(&entry);
    }
    assert_false(say(LEADER, append_one(2, SLICE("garbage"))));
    assert_false(say(LEADER, append_one(2, slice_of("", 0))));
    assert_int_equal(group_last(replica()->group), 1);

    struct buf sound = entry_of(ENTRY_VERSION, 1000, LEADER, &tick);
    assert_true(say(LEADER, append_one(2, buf_slice(&sound))));
    assert_int_equal(group_applied(replica()->group), 2);
    buf_done(&sound);
}

static void what_is_committed_is_not_contradicted(void **state)
{
    (void)state;
    struct buf sound = entry_of(ENTRY_VERSION, 1000, LEADER, &(struct op){.kind = OP_TICK});
    assert_true(say(LEADER, append_one(2, buf_slice(&sound))));
    struct peer_message again = append_one(3, buf_slice(&sound));
    assert_false(say(LEADER, again)); /* entry 2 of another term */
    again.n_entries = 0;
    again.index = 2;
    again.log_term = 1;
    assert_false(say(LEADER, again));
    again.log_term = 2;
    assert_true(say(LEADER, again));
    assert_false(say(OTHER, again)); /* two leaders of one term */
    buf_done(&sound);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    struct peer_message far = append(2, NULL, 0);
    far.term = UINT64_MAX;
    assert_false(say(LEADER, far));
    far = append(2, NULL, 0);
    far.seq = UINT64_MAX; /* its time */
    assert_false(say(LEADER, far));
    assert_false(say(LEADER, (struct peer_message){.type = WIRE_VOTE, .term = UINT64_MAX - 1}));
    assert_false(say(LEADER, (struct peer_message){.type = WIRE_VOTE_RESULT}));
    assert_false(say(LEADER, (struct peer_message){.type = WIRE_NODE, .seq = UINT64_MAX}));
    assert_false(
        say(LEADER, (struct peer_message){.type = WIRE_VOTE, .term = 2, .group_no = 7}));
    assert_true(group_term(replica()->group) < 10);
}

static void nobody_speaks_for_another_node(void **state)
{
    (void)state;
    struct buf frame = {0};
    struct peer_message msg = append(2, NULL, 0);
    msg.from = OTHER;
    peer_message_put(&msg, &frame);
    assert_false(replica_receive(replica_of(n.order), LEADER, buf_slice(&frame)));
    buf_done(&frame);
}

/* Elected by the vote of another member. */
static void lead(void)
{
    struct group *g = replica()->group;
    while (group_role(g) != GROUP_LEADER) {
        n.now_ms += 50;
        replica_tick(replica_of(n.order));
        single_node_pump(&n);
        if (group_role(g) != GROUP_CANDIDATE)
            continue;
        for (unsigned pre = 0; pre < 2; pre++)
            assert_true(say(OTHER, (struct peer_message){.type = WIRE_VOTE_RESULT,
                                                         .term = group_term(g) + (pre == 0),
                                                         .flags = WIRE_GRANTED |
                                                                  (pre ? 0u : WIRE_PRE_VOTE)}));
    }
    assert_true(say(OTHER, (struct peer_message){.type = WIRE_APPEND_RESULT,
                                                 .term = group_term(g),
                                                 .index = group_last(g)}));
}

static struct peer_message forward(const struct op *op, struct buf *data)
{
    struct buf bytes = {0};
    op_encode(op, &bytes);
    varint_put_bytes(data, buf_slice(&bytes));
    buf_done(&bytes);
    return (struct peer_message){
        .type = WIRE_FORWARD, .term = 1, .seq = 1, .data = buf_slice(data)};
}

static void who_is_no_member_hands_nothing_over(void **state)
{
    (void)state;
    struct buf data = {0};
    lead();
    uint64_t last = group_last(replica()->group);
    struct peer_message msg =
        forward(&(struct op){.kind = OP_BREAK, .name = SLICE("a")}, &data);
    (void)say(STRANGER, msg);
    assert_null(replica_origin(replica(), STRANGER));
    assert_int_equal(group_last(replica()->group), last);
    assert_true(say(OTHER, msg));
    n.now_ms += ORDER_COMMIT_WAIT_MS;
    single_node_pump(&n);
    assert_true(group_last(replica()->group) > last);
    buf_done(&data);
}

static void wrong_ops_are_not_taken_over(void **state)
{
    (void)state;
    const struct op rows[] = {{.kind = OP_BREAK},
                              {.kind = OP_SHOW, .name = SLICE("a")},
                              {.kind = OP_LEVEL, .target = 1},
                              {.kind = OP_TICK, .asker = UINT64_C(1) << OP_NODE_SHIFT}};
    lead();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf data = {0};
        assert_false(say(OTHER, forward(&rows[i], &data)));
        buf_done(&data);
    }
    assert_false(say(
        OTHER, (struct peer_message){
                   .type = WIRE_FORWARD, .term = 1, .seq = 1, .data = SLICE("\x7fgarbage")}));
}

/* A version before this check, or another program, has written it. */
static void a_directory_with_a_wrong_entry_does_not_start_and_repair_says_why(void **state)
{
    struct replica *o = replica_of(n.order);
    (void)state;
    (void)journal_append(o->journal, &(struct journal_record){.kind = JOURNAL_ENTRY,
                                                              .type = GROUP_ENTRY_COMMAND,
                                                              .term = 1,
                                                              .index = 2,
                                                              .data = SLICE("\x09garbage")});
    single_node_pump(&n);
    single_node_close(&n);
    assert_int_equal(single_node_open_of_three(&n, &disk, 1), BELAY_ERR_CORRUPT);
    assert_string_equal(replica_problem(),
                        "shard 0: entry 2: an entry is of an unknown version");
    struct inspection in;
    assert_int_equal(inspect_open(&disk.base, &in), BELAY_OK);
    assert_false(in.starts);
    assert_string_equal(in.problem, replica_problem());
    inspect_close(&in);
    sim_disk_wipe(&disk);
    assert_int_equal(open_node(NULL), 0);
}

/* What is committed together may cost more than a turn: the rest comes in the next ones. */
static void a_long_entry_is_applied_in_turns(void **state)
{
    (void)state;
    enum { OPS = 20000 };
    struct replica *o = replica_of(n.order);
    struct op tick = {.kind = OP_TICK};
    struct buf entry = {0}, bytes = {0};
    op_encode(&tick, &bytes);
    buf_put_byte(&entry, ENTRY_VERSION);
    varint_put(&entry, 1000);
    for (uint64_t i = 1; i <= OPS; i++) {
        varint_put(&entry, LEADER);
        varint_put(&entry, 1);
        varint_put(&entry, i);
        varint_put_bytes(&entry, buf_slice(&bytes));
    }
    uint64_t turns = 0, before = engine_work(n.engine);
    const uint64_t most = ORDER_TURN_WORK + ORDER_TURN_WORK / 10;
    uint64_t applied = group_applied(replica()->group);
    assert_true(say(LEADER, append_one(2, buf_slice(&entry))));
    assert_in_range(engine_work(n.engine) - before, 1, most);
    for (; group_applied(replica()->group) == applied; turns++) {
        before = engine_work(n.engine);
        assert_true(turns < OPS && replica_next_ms(o) <= n.now_ms);
        replica_tick(o);
        single_node_pump(&n);
        assert_in_range(engine_work(n.engine) - before, 1, most);
    }
    assert_true(turns > 1);
    assert_int_equal(replica_origin(replica(), LEADER)->applied, OPS);
    buf_done(&entry);
    buf_done(&bytes);
}

/* Who was added while this node was away is known by what another member says. */
static void members_are_named_by_members(void **state)
{
    (void)state;
    const struct replica *o = replica_of(n.order);
    struct group_conf conf = {.n = 2};
    struct member m;
    struct buf bytes = {0};
    conf.servers[0] = (struct group_server){.id = LEADER, .voter = true, .address = "x@h:2"};
    conf.servers[1] = (struct group_server){.id = STRANGER, .address = "n100@h:100 join=" SUM};
    assert_true(replica_find_member(o, LEADER, &m));
    assert_false(replica_find_member(o, STRANGER, &m));
    group_conf_encode(&conf, &bytes);
    struct peer_message msg = {.type = WIRE_NODE, .seq = 1, .conf = buf_slice(&bytes)};
    assert_true(say(LEADER, msg));
    assert_true(replica_find_member(o, STRANGER, &m));
    assert_string_equal(m.name, "n100");
    assert_false(member_is_let_in(&m));
    assert_false(replica_find_member(o, STRANGER + 1, &m));
    assert_false(replica_find_member(o, STRANGER + NODE_PLACES, &m));
    assert_true(replica_find_member(o, LEADER, &m)); /* the own log says what it is called */
    assert_string_not_equal(m.name, "x");
    msg.conf.len = 40; /* the second one is cut */
    assert_false(say(LEADER, msg));
    msg.conf = SLICE("x");
    assert_false(say(LEADER, msg));
    buf_done(&bytes);
}

/* A node that is upgraded after its disk has forgotten its last run has a run that the others take
 * for an earlier one. What its program knows counts all the same: else nobody would speak to it, and
 * it could never begin a later run. */
static void a_newer_program_is_heard_in_an_earlier_run(void **state)
{
    (void)state;
    const struct replica *o = replica_of(n.order);
    uint64_t newest = 0;
    bool manual;
    assert_true(say(LEADER, (struct peer_message){.type = WIRE_NODE, .seq = 5}));
    assert_true(replica_levels(o, LEADER, &newest, &manual));
    assert_int_equal(newest, 0);
    struct peer_message newer = {.type = WIRE_NODE, .seq = 3, .log_term = LEVEL_NEWEST};
    assert_true(say(LEADER, newer));
    assert_true(replica_levels(o, LEADER, &newest, &manual));
    assert_int_equal(newest, LEVEL_NEWEST);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_node, close_node)
    const struct CMUnitTest tests[] = {
        TEST(wrong_entries_are_not_accepted),
        TEST(what_is_committed_is_not_contradicted),
        TEST(numbers_out_of_range_are_refused),
        TEST(nobody_speaks_for_another_node),
        TEST(who_is_no_member_hands_nothing_over),
        TEST(wrong_ops_are_not_taken_over),
        TEST(a_directory_with_a_wrong_entry_does_not_start_and_repair_says_why),
        cmocka_unit_test_setup_teardown(a_long_entry_is_applied_in_turns, open_node,
                                        close_node),
        cmocka_unit_test_setup_teardown(members_are_named_by_members, open_node, close_node),
        cmocka_unit_test_setup_teardown(a_newer_program_is_heard_in_an_earlier_run, open_node,
                                        close_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
