/* One Raft group that leads: what it says to a member that is far behind. */
#include "engine/group.h"

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

static void send_message(void *ctx, uint64_t to, const struct wire *msg)
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

static void apply(void *ctx, uint16_t shard, uint64_t index, struct slice data)
{
    (void)ctx;
    (void)shard;
    (void)index;
    (void)data;
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
    struct wire msg = {.type = WIRE_APPEND_RESULT,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_lacks_an_offered_snapshot_is_offered_the_newer_one_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
