/* Copies of a data directory that are started: the cluster knows a later start, and they end.
 */
#include "few_nodes.h"
#include "raft/replica_core.h"

enum { ROUND_MS = 5000, SOON_MS = 2000 }; /* before ORDER_DOUBT_MS, when each trusts itself */

/* Its disk becomes what it was when `copy` was made. The others have started again meanwhile:
 * no leader remembers what it had acknowledged. */
static void put_back(struct world *w, uint64_t id, struct sim_disk *copy)
{
    struct node *n = &w->nodes[id];
    stop(w, id);
    for (uint64_t other = 1; other <= w->first; other++) {
        if (other == id)
            continue;
        stop(w, other);
        start(w, other);
    }
    run(w, ROUND_MS);
    sim_disk_copy(&n->disk, copy);
    sim_disk_wipe(copy);
    n->may_end = true;
    log_set_level(LOG_NONE); /* it complains */
    start(w, id);
    run(w, ROUND_MS);
    log_set_level(LOG_ERROR);
}

/* The process goes on under a new number when the cluster has ended its run. A copy of its
 * directory could come to the same number, and be given answers that are not its own. */
static void a_copy_from_before_another_run_of_the_same_process_ends(void **state)
{
    (void)state;
    struct world *w = begin(3);
    struct sim_disk copy;
    sim_disk_init(&copy, 9);
    run(w, ROUND_MS);
    sim_disk_copy(&copy, &w->nodes[3].disk);
    uint64_t base = w->nodes[3].order->id_base;
    w->cut = 3;
    run(w, ORDER_SILENCE_MS + ROUND_MS);
    w->cut = 0;
    run(w, ROUND_MS);
    assert_int_not_equal(w->nodes[3].order->id_base, base); /* another run */
    put_back(w, 3, &copy);
    assert_non_null(w->nodes[3].ended);
    assert_non_null(strstr(w->nodes[3].ended, "older copy"));
    end(w);
}

/* What it said in its earlier run may still be on its way: nobody takes it for another one. And
 * what it had not said yet (it has led, and was cut off) is not said behind its new start. */
static void a_process_is_not_over_when_its_run_is(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, ROUND_MS);
    uint64_t before = replica_start(raft(&w->nodes[3]));
    w->cut = 3;
    run(w, ORDER_SILENCE_MS + ROUND_MS);
    replica_announce(&raft(&w->nodes[3])->replicas[0]);
    w->cut = 0;
    run(w, ROUND_MS);
    uint64_t now = replica_start(raft(&w->nodes[3]));
    assert_true(now > before);
    for (uint64_t id = 1; id <= 3; id++) {
        for (size_t g = 0; g < GROUPS; g++)
            assert_int_equal(replica_origin(&raft(&w->nodes[id])->replicas[g], 3)->start, now);
        assert_false(replica_is_over(raft(&w->nodes[id]), 3, before));
        assert_false(replica_is_over(raft(&w->nodes[id]), 3, now));
        assert_true(replica_is_over(raft(&w->nodes[id]), 3, before + 1)); /* another process */
    }
    end(w);
}

static bool has_heard(struct world *w, uint64_t id, uint64_t of)
{
    for (size_t g = 0; g < GROUPS; g++)
        if (raft(&w->nodes[id])->replicas[g].doubt.told[of] != of)
            return false;
    return true;
}

/* All start at once, and the one with the longest log says how long that is. Then its disk is
 * put back: nobody has what it had said, and nobody may wait for it. */
static void what_a_node_said_before_its_disk_was_put_back_counts_no_more(void **state)
{
    (void)state;
    struct world *w = begin(3);
    struct sim_disk copy;
    sim_disk_init(&copy, 9);
    run(w, ROUND_MS);
    uint64_t leader = group_leader(replica_group(raft(&w->nodes[1]), 0));
    sim_disk_copy(&copy, &w->nodes[leader].disk);
    for (uint64_t id = 1; id <= 3; id++)
        if (id != leader)
            stop(w, id);
    uint64_t last = group_last(replica_group(raft(&w->nodes[leader]), 0));
    struct op op = {.kind = OP_TICK};
    w->nodes[leader].order->ops->submit(w->nodes[leader].order, 0, &op);
    run(w, 10);
    assert_true(group_last(replica_group(raft(&w->nodes[leader]), 0)) > last);
    stop(w, leader);
    for (uint64_t id = 1; id <= 3; id++)
        start(w, id);
    uint64_t one = leader % 3 + 1;
    uint64_t two = one % 3 + 1;
    while (!has_heard(w, one, leader) || !has_heard(w, two, leader))
        run(w, 1);
    stop(w, leader);
    sim_disk_copy(&w->nodes[leader].disk, &copy);
    sim_disk_wipe(&copy);
    start(w, leader);
    run(w, SOON_MS);
    for (uint64_t id = 1; id <= 3; id++)
        assert_null(not_ready(w, id));
    end(w);
}

/* A leader is known before that: it serves nothing yet, and says why. */
static void a_node_is_ready_when_its_start_is_known(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, ROUND_MS);
    stop(w, 3);
    run(w, ROUND_MS);
    w->disk_ms = 40; /* so long it takes to know it */
    start(w, 3);
    for (uint64_t ms = 0; ms < SOON_MS && !group_leader(replica_group(raft(&w->nodes[3]), 0));
         ms++)
        run(w, 1);
    assert_string_equal(not_ready(w, 3), "starting");
    run(w, SOON_MS);
    assert_null(not_ready(w, 3));
    end(w);
}

/* What a first start leaves that ends before the journal is there. */
static void put_unborn(struct world *w, uint64_t at, uint64_t node, uint64_t cluster)
{
    struct replica *o = mem_zalloc(sizeof *o);
    o->config.disk = &w->nodes[at].disk.base;
    o->config.node = node;
    o->base.n_groups = GROUPS;
    o->cluster = o->incarnation = cluster;
    assert_int_equal(store_write_identity(o), BELAY_OK);
    free(o);
}

/* It must not go on alone in the name of a cluster that it was to join, or to begin with others. */
static void a_first_start_that_was_not_complete_counts_for_nothing(void **state)
{
    (void)state;
    enum { OTHER = 77 };
    struct world *w = begin(0);
    struct disk *disk = &w->nodes[1].disk.base;
    put_unborn(w, 1, 4, OTHER);
    assert_int_equal(replica_node_of(disk), 0);
    assert_int_equal(try_start(w, 1), BELAY_ERR_IN_USE);
    assert_non_null(strstr(replica_problem(), "its first start was not complete"));
    sim_disk_wipe(&w->nodes[1].disk);
    sim_disk_init(&w->nodes[1].disk, 1);
    put_unborn(w, 1, 1, OTHER);
    w->first = 1;
    start(w, 1);
    assert_int_not_equal(replica_cluster(raft(&w->nodes[1])), OTHER);
    assert_int_equal(replica_node_of(disk), 1);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_from_before_another_run_of_the_same_process_ends),
        cmocka_unit_test(a_process_is_not_over_when_its_run_is),
        cmocka_unit_test(what_a_node_said_before_its_disk_was_put_back_counts_no_more),
        cmocka_unit_test(a_node_is_ready_when_its_start_is_known),
        cmocka_unit_test(a_first_start_that_was_not_complete_counts_for_nothing),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
