/* test_replica_level.c - which rules a cluster follows, and who may follow it. */
#include "few_nodes.h"
#include "machine/level.h"

static void all_follow(struct world *w, size_t nodes, uint64_t level)
{
    for (uint64_t id = 1; id <= nodes; id++)
        for (size_t g = 0; g < GROUPS; g++)
            assert_int_equal(engine_level(w->nodes[id].engine, g), level);
}

static void restart_newer(struct world *w, uint64_t id)
{
    stop(w, id);
    w->nodes[id].levels_unknown = 0;
    start(w, id);
    run(w, 5000);
}

static void the_level_goes_up_when_all_members_can_follow(void **state)
{
    (void)state;
    struct world *w = begin_at(3, LEVEL_NEWEST);
    run(w, 5000);
    all_follow(w, 3, 0);
    restart_newer(w, 2);
    restart_newer(w, 1);
    all_follow(w, 3, 0);
    restart_newer(w, 3);
    all_follow(w, 3, LEVEL_NEWEST);
    end(w);
}

static void a_new_cluster_begins_at_the_newest_level(void **state)
{
    (void)state;
    struct world *w = begin(3);
    w->cut = 3; /* a majority is enough */
    run(w, 5000);
    all_follow(w, 2, LEVEL_NEWEST);
    w->cut = 0;
    run(w, 5000);
    all_follow(w, 3, LEVEL_NEWEST);
    assert_int_equal(wish(w, 1, WISH_ADD, 4, 0), BELAY_OK);
    start(w, 4);
    run(w, 10000);
    all_follow(w, 4, LEVEL_NEWEST); /* it has read the whole log */
    end(w);
}

static void who_is_too_old_for_its_directory_does_not_start(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        struct world *w = begin(1);
        run(w, 1000);
        for (size_t g = 0; g < GROUPS && stored; g++) {
            replica_snapshot_now(raft(&w->nodes[1]));
            run(w, 10);
        }
        stop(w, 1);
        w->nodes[1].levels_unknown = 1;
        assert_int_equal(try_start(w, 1), BELAY_ERR_NO_PROTO);
        assert_non_null(strstr(replica_problem(), "start a newer belay"));
        w->nodes[1].levels_unknown = 0;
        w->nodes[1].order = NULL;
        start(w, 1);
        end(w);
    }
}

static void who_is_too_old_for_its_cluster_does_not_join(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    assert_int_equal(wish(w, 1, WISH_ADD, 4, 0), BELAY_OK);
    w->nodes[4].levels_unknown = 1;
    log_set_level(LOG_NONE); /* it complains */
    start(w, 4);
    run(w, 5000);
    assert_string_equal(not_ready(w, 4), "too-old");
    assert_string_equal(members(w, 1, 0), "1 2 3 4l");
    assert_int_equal(group_applied(replica_group(raft(&w->nodes[4]), 0)), 0);
    stop(w, 4);
    w->nodes[4].levels_unknown = 0;
    start(w, 4);
    run(w, 10000);
    assert_string_equal(members(w, 1, 0), "1 2 3 4");
    assert_null(not_ready(w, 4));
    end(w);
}

static enum belay_err raise_to(struct world *w, uint64_t at, uint64_t level)
{
    struct admin_request want = {.kind = WISH_LEVEL, .level = level};
    return ask_request(w, at, &want).err;
}

/* One member that waits for an operator is enough, wherever it is. */
static void an_operator_raises_the_level_of_all_groups(void **state)
{
    (void)state;
    struct world *w = begin_at(3, LEVEL_NEWEST);
    run(w, 5000);
    w->nodes[3].level_manual = true;
    for (uint64_t id = 1; id <= 2; id++)
        restart_newer(w, id);
    assert_int_equal(raise_to(w, 1, 1), BELAY_ERR_IN_USE); /* node 3 does not know it */
    restart_newer(w, 3);
    run(w, 10000);
    all_follow(w, 3, 0);
    for (uint64_t id = 1; id <= 3; id++) {
        uint64_t newest;
        bool manual;
        assert_true(replica_levels(raft(&w->nodes[1]), id, &newest, &manual));
        assert_int_equal(newest, LEVEL_NEWEST);
        assert_int_equal(manual, id == 3);
    }
    assert_int_equal(raise_to(w, 2, LEVEL_NEWEST + 1), BELAY_ERR_IN_USE);
    assert_int_equal(raise_to(w, 2, 1), BELAY_OK); /* at any node */
    run(w, 5000);
    all_follow(w, 3, 1);
    assert_int_equal(raise_to(w, 1, 1), BELAY_OK); /* it is so */
    assert_int_equal(raise_to(w, 3, LEVEL_NEWEST), BELAY_OK);
    run(w, 5000);
    all_follow(w, 3, LEVEL_NEWEST);
    assert_int_equal(raise_to(w, 1, 1), BELAY_ERR_RANGE); /* never lowered */
    all_follow(w, 3, LEVEL_NEWEST);
    end(w);
}

/* Until the level is raised, a node may go back to the program before. */
static void the_way_back_is_open_until_the_level_is_raised(void **state)
{
    (void)state;
    struct world *w = begin_at(3, 1);
    run(w, 5000);
    for (uint64_t id = 1; id <= 3; id++) {
        w->nodes[id].level_manual = true;
        restart_newer(w, id);
    }
    for (uint64_t id = 1; id <= 3; id++) {
        stop(w, id);
        w->nodes[id].levels_unknown = 1;
        start(w, id);
        run(w, 5000);
    }
    all_follow(w, 3, LEVEL_NEWEST - 1);
    for (uint64_t id = 1; id <= 3; id++)
        restart_newer(w, id);
    assert_int_equal(raise_to(w, 1, LEVEL_NEWEST), BELAY_OK);
    stop(w, 2);
    w->nodes[2].levels_unknown = 1;
    run(w, 10);
    assert_int_equal(try_start(w, 2), BELAY_ERR_NO_PROTO);
    w->nodes[2].order = NULL;
    end(w);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_goes_up_when_all_members_can_follow),
        cmocka_unit_test(a_new_cluster_begins_at_the_newest_level),
        cmocka_unit_test(who_is_too_old_for_its_directory_does_not_start),
        cmocka_unit_test(who_is_too_old_for_its_cluster_does_not_join),
        cmocka_unit_test(an_operator_raises_the_level_of_all_groups),
        cmocka_unit_test(the_way_back_is_open_until_the_level_is_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
