/* One Raft group: what it says to a member that is far behind, and what it takes a snapshot of.
 */
#include "raft/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ME = 1, LEARNER = 2, HEARTBEAT_MS = 60 };

/* What the group wanted done. Entries are on disk at once. */
struct world {
    struct group *g;
    uint64_t now, lsn;
    struct group_snapshot snapshot; /* the newest */
    uint64_t beat;                  /* index at which the last heartbeat ended */
    uint64_t offer;                 /* index of the last snapshot offered */
    size_t offers;
};

static uint64_t persist(void *ctx, const struct journal_record *rec)
{
    (void)rec;
    return ++((struct world *)ctx)->lsn;
}

static void send_message(void *ctx, uint64_t to, const struct peer_message *msg)
{
    struct world *w = ctx;
    assert_int_equal(to, LEARNER);
    if (msg->type == WIRE_APPEND)
        w->beat = msg->index;
    if (msg->type != WIRE_SNAPSHOT)
        return;
    w->offer = msg->index;
    w->offers++;
}

static bool apply(void *ctx, uint16_t shard, uint64_t index, struct slice data)
{
    (void)ctx;
    (void)shard;
    (void)index;
    (void)data;
    return true;
}

static void changed(void *ctx, uint16_t shard)
{
    (void)ctx;
    (void)shard;
}

static bool newest(void *ctx, uint16_t shard, struct group_snapshot *ret, uint64_t *ret_bytes)
{
    struct world *w = ctx;
    (void)shard;
    *ret = w->snapshot;
    *ret_bytes = 100;
    return w->snapshot.index > 0;
}

static const struct group_env env = {.persist = persist,
                                     .send = send_message,
                                     .apply = apply,
                                     .changed = changed,
                                     .newest = newest};

static void open_leader(struct world *w)
{
    *w = (struct world){.now = 1000};
    struct group_conf conf = {.servers = {{.id = ME, .voter = true, .address = "n1@here"},
                                          {.id = LEARNER, .address = "n2@there"}},
                              .n = 2};
    struct buf bytes = {0};
    struct group_state state = {.term = 1};
    group_conf_encode(&conf, &bytes);
    entry_log_put(
        &state.log, 1,
        &(struct log_entry){.term = 1, .type = GROUP_ENTRY_CHANGE, .data = buf_slice(&bytes)});
    w->g = group_open(&(struct group_config){.env = &env,
                                             .ctx = w,
                                             .id = ME,
                                             .election_ms = 300,
                                             .heartbeat_ms = HEARTBEAT_MS,
                                             .seed = 4711,
                                             .inflight = 4},
                      &state, w->now);
    buf_done(&bytes);
    group_durable(w->g, w->lsn, w->now);
    assert_int_equal(group_role(w->g), GROUP_LEADER);
}

/* More entries, and a snapshot that takes their place. */
static void grow(struct world *w)
{
    for (int i = 0; i < 5; i++) {
        assert_int_equal(group_propose(w->g, SLICE("entry"), w->now), BELAY_OK);
        group_durable(w->g, w->lsn, w->now);
    }
    struct group_snapshot snap;
    assert_true(group_snapshot_begin(w->g, &snap));
    w->snapshot = snap;
    group_snapshot_end(w->g, &snap, true, 0, w->now);
}

static void beat(struct world *w)
{
    w->now += HEARTBEAT_MS;
    group_tick(w->g, w->now, 0);
}

static void refuse(struct world *w, uint64_t index, uint64_t last)
{
    struct peer_message msg = {.type = WIRE_APPEND_RESULT,
                               .from = LEARNER,
                               .term = group_term(w->g),
                               .reject = index,
                               .index = last};
    group_receive(w->g, &msg, w->now);
}

static void who_lacks_an_offered_snapshot_is_offered_the_newer_one_at_once(void **state)
{
    (void)state;
    struct world w;
    open_leader(&w);
    grow(&w);
    beat(&w);
    refuse(&w, w.beat, 0);
    uint64_t first = w.snapshot.index;
    assert_int_equal(w.offers, 1);
    assert_int_equal(w.offer, first);

    /* It was being fetched, or it was installed and the node died before it could say so. */
    grow(&w);
    assert_true(w.snapshot.index > first);
    beat(&w);
    assert_int_equal(w.beat, w.snapshot.index);
    refuse(&w, w.beat, first);
    assert_int_equal(w.offers, 2);
    assert_int_equal(w.offer, w.snapshot.index);

    beat(&w); /* and with every heartbeat again */
    refuse(&w, w.beat, first);
    assert_int_equal(w.offers, 3);
    assert_int_equal(w.offer, w.snapshot.index);
    group_close(w.g);
}

static void send_nowhere(void *ctx, uint64_t to, const struct peer_message *msg)
{
    (void)ctx;
    (void)to;
    (void)msg;
}

/* A heartbeat behind entry 4. */
static void hear(struct world *w, uint64_t commit)
{
    struct peer_message msg = {.type = WIRE_APPEND,
                               .from = LEARNER,
                               .term = 2,
                               .index = 4,
                               .log_term = 2,
                               .commit = commit};
    group_receive(w->g, &msg, w->now);
    group_durable(w->g, w->lsn, w->now);
}

/* A leader makes a second change when the first one is committed. Who starts with both in its
 * log knows that before it is told how far the leader has committed. */
static void a_snapshot_has_no_members_of_a_later_entry(void **state)
{
    (void)state;
    static const struct group_env quiet = {
        .persist = persist, .send = send_nowhere, .apply = apply, .changed = changed};
    struct world w = {.now = 1000};
    struct group_conf conf = {.servers = {{.id = ME, .voter = true, .address = "n1@here"},
                                          {.id = LEARNER, .voter = true, .address = "n2@there"},
                                          {.id = 3, .voter = true, .address = "n3@there"},
                                          {.id = 4, .address = "n4@there"}},
                              .n = 3};
    struct group_state old = {.term = 2};
    struct buf bytes[3] = {0};
    struct peer_entry changes[3];
    for (int i = 0; i < 3; i++) {
        conf.servers[3].voter = i == 2;
        group_conf_encode(&conf, &bytes[i]);
        changes[i] = (struct peer_entry){
            .term = 2, .type = GROUP_ENTRY_CHANGE, .data = buf_slice(&bytes[i])};
        conf.n = 4;
    }
    struct log_entry log[] = {{.term = 1, .type = GROUP_ENTRY_CHANGE, .data = changes[0].data},
                              {.term = 2, .type = 1, .data = SLICE("entry")},
                              {.term = 2, .type = GROUP_ENTRY_CHANGE, .data = changes[1].data},
                              {.term = 2, .type = GROUP_ENTRY_CHANGE, .data = changes[2].data}};
    for (uint64_t i = 0; i < 4; i++)
        entry_log_put(&old.log, i + 1, &log[i]);
    w.g = group_open(&(struct group_config){.env = &quiet,
                                            .ctx = &w,
                                            .id = ME,
                                            .election_ms = 300,
                                            .heartbeat_ms = HEARTBEAT_MS,
                                            .seed = 4711,
                                            .inflight = 4},
                     &old, w.now);
    struct group_snapshot snap;
    hear(&w, 2);
    assert_int_equal(group_applied(w.g), 2);
    assert_false(group_snapshot_begin(w.g, &snap));
    hear(&w, 4);
    assert_int_equal(group_applied(w.g), 4);
    assert_true(group_snapshot_begin(w.g, &snap));
    assert_true(snap.conf_index <= snap.index);
    group_snapshot_end(w.g, &snap, false, 0, w.now);
    group_close(w.g);
    for (int i = 0; i < 3; i++)
        buf_done(&bytes[i]);
}

static bool apply_nothing(void *ctx, uint16_t shard, uint64_t index, struct slice data)
{
    (void)ctx;
    (void)shard;
    (void)index;
    (void)data;
    return false;
}

/* One entry behind `index`, which is of term 2. */
static void take_entry(struct world *w, uint64_t term, uint64_t index,
                       const struct peer_entry *entry)
{
    struct peer_message msg = {.type = WIRE_APPEND,
                               .from = LEARNER,
                               .term = term,
                               .index = index,
                               .log_term = 2,
                               .commit = index,
                               .n_entries = 1};
    msg.entries = (struct peer_entry *)(uintptr_t)entry;
    assert_null(group_problem(w->g, &msg));
    group_receive(w->g, &msg, w->now);
    group_durable(w->g, w->lsn, w->now);
}

/* It has taken longer to apply what is committed than others needed for two more changes, and
 * the last one is cut off. */
static void who_is_slow_goes_back_to_the_members_of_the_last_change(void **state)
{
    (void)state;
    static const struct group_env slow = {
        .persist = persist, .send = send_nowhere, .apply = apply_nothing, .changed = changed};
    struct world w = {.now = 1000};
    struct group_conf conf = {.servers = {{.id = ME, .voter = true, .address = "n1@here"},
                                          {.id = LEARNER, .voter = true, .address = "n2@there"},
                                          {.id = 3, .address = "n3@there"},
                                          {.id = 4, .address = "n4@there"}}};
    struct buf bytes[3] = {0};
    struct group_state old = {.term = 2};
    for (size_t i = 0; i < 3; i++) {
        conf.n = 2 + i;
        group_conf_encode(&conf, &bytes[i]);
    }
    struct log_entry log[] = {
        {.term = 1, .type = GROUP_ENTRY_CHANGE, .data = buf_slice(&bytes[0])},
        {.term = 2, .type = 1, .data = SLICE("entry")}};
    for (uint64_t i = 0; i < 2; i++)
        entry_log_put(&old.log, i + 1, &log[i]);
    w.g = group_open(&(struct group_config){.env = &slow,
                                            .ctx = &w,
                                            .id = ME,
                                            .election_ms = 300,
                                            .heartbeat_ms = HEARTBEAT_MS,
                                            .seed = 4711,
                                            .inflight = 4},
                     &old, w.now);
    for (uint64_t i = 1; i < 3; i++)
        take_entry(&w, 2, 1 + i,
                   &(struct peer_entry){
                       .term = 2, .type = GROUP_ENTRY_CHANGE, .data = buf_slice(&bytes[i])});
    group_conf(w.g, &conf);
    assert_int_equal(conf.n, 4);
    take_entry(&w, 3, 3, &(struct peer_entry){.term = 3, .type = 1, .data = SLICE("other")});
    group_conf(w.g, &conf);
    assert_int_equal(group_applied(w.g), 1);
    assert_int_equal(conf.n, 3);
    group_close(w.g);
    for (int i = 0; i < 3; i++)
        buf_done(&bytes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_lacks_an_offered_snapshot_is_offered_the_newer_one_at_once),
        cmocka_unit_test(a_snapshot_has_no_members_of_a_later_entry),
        cmocka_unit_test(who_is_slow_goes_back_to_the_members_of_the_last_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
