/* Copies of a data directory that are started: the cluster knows a later start, and they end.
 */
#include "few_nodes.h"

enum { ROUND_MS = 5000 };

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

/* What it said in its earlier run may still be on its way: nobody takes it for another one. */
static void a_process_is_not_over_when_its_run_is(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, ROUND_MS);
    uint64_t before = replica_start(raft(&w->nodes[3]));
    w->cut = 3;
    run(w, ORDER_SILENCE_MS + ROUND_MS);
    w->cut = 0;
    run(w, ROUND_MS);
    uint64_t now = replica_start(raft(&w->nodes[3]));
    assert_true(now > before);
    for (uint64_t id = 1; id <= 3; id++) {
        assert_false(replica_is_over(raft(&w->nodes[id]), 3, before));
        assert_false(replica_is_over(raft(&w->nodes[id]), 3, now));
        assert_true(replica_is_over(raft(&w->nodes[id]), 3, before + 1)); /* another process */
    }
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_from_before_another_run_of_the_same_process_ends),
        cmocka_unit_test(a_process_is_not_over_when_its_run_is),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
