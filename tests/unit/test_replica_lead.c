/* Several groups on several nodes, on virtual time and without faults but those of the story:
 * who leads them, who is in them, and how much they say to each other. */
#include "few_nodes.h"

#include <unistd.h>

/* --- what is seen --- */

/* "1 2 3 1": who leads the groups, as node `id` knows it. */
static const char *leaders(struct world *w, uint64_t id)
{
    static char text[64];
    text[0] = '\0';
    for (size_t g = 0; g < GROUPS; g++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", g ? " " : "",
                 (int)group_leader(replica_group(raft(&w->nodes[id]), g)));
    return text;
}

static void all_see(struct world *w, const char *led, const char *in)
{
    for (uint64_t id = 1; id <= NODES_MAX; id++) {
        if (!w->nodes[id].order || !strchr(in, (int)('0' + id)))
            continue;
        assert_string_equal(leaders(w, id), led);
        for (size_t g = 0; g < GROUPS; g++)
            assert_string_equal(members(w, id, g), in);
    }
}

/* --- stories --- */

static void nodes_lead_in_turn(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 2 * ELECTION_MS); /* from the start: who should lead stands first */
    all_see(w, "1 2 3 1", "1 2 3");
    stop(w, 1);
    run(w, 2 * ELECTION_MS);
    all_see(w, "2 2 3 3", "1 2 3");
    run(w, 5000);
    all_see(w, "2 3 2 3", "1 2 3");
    start(w, 1);
    run(w, 2000);
    all_see(w, "2 3 2 3", "1 2 3"); /* it must have been up for a while */
    run(w, 4000);
    all_see(w, "1 2 3 1", "1 2 3");
    end(w);
}

static void what_a_node_was_started_with_counts_until_it_is_changed(void **state)
{
    (void)state;
    struct world *w = begin(0);
    w->first = 3;
    w->nodes[2].priority = 3;
    w->nodes[3].priority = 15;
    for (uint64_t id = 1; id <= 3; id++)
        start(w, id);
    run(w, 5000);
    all_see(w, "2 2 2 2", "1 2 3");
    assert_int_equal(wish(w, 2, WISH_PRIORITY, 3, 1), BELAY_OK);
    run(w, 5000);
    all_see(w, "3 3 3 3", "1 2 3");
    assert_int_equal(wish(w, 2, WISH_PRIORITY, 1, 1), BELAY_OK);
    run(w, 5000);
    all_see(w, "1 3 1 3", "1 2 3");
    for (uint64_t id = 1; id <= 3; id++)
        stop(w, id);
    for (uint64_t id = 1; id <= 3; id++)
        start(w, id);
    run(w, 6000);
    all_see(w, "1 3 1 3", "1 2 3"); /* it is kept */
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(replica_priority(raft(&w->nodes[id]), 3), 1);
    end(w);
}

static void a_new_node_learns_in_every_group_and_then_votes(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    assert_int_equal(wish(w, 1, WISH_ADD, 4, 0), BELAY_OK);
    run(w, 2000); /* it is not there yet */
    for (size_t g = 0; g < GROUPS; g++)
        assert_string_equal(members(w, 1, g), "1 2 3 4l");
    assert_false(replica_is_settled(raft(&w->nodes[1]), 4));
    start(w, 4);
    run(w, 6000);
    all_see(w, "1 2 3 4", "1 2 3 4");
    assert_true(replica_is_settled(raft(&w->nodes[1]), 4));
    stop(w, 1);
    stop(w, 2); /* two of four are no majority */
    run(w, 2000);
    assert_string_equal(leaders(w, 4), "0 0 0 0");
    end(w);
}

/* The one that is removed leads group 0 and another one. */
static void who_is_removed_hands_over_first(void **state)
{
    (void)state;
    struct world *w = begin(4);
    run(w, 5000);
    all_see(w, "1 2 3 4", "1 2 3 4");
    assert_int_equal(wish(w, 1, WISH_REMOVE, 1, 0), BELAY_OK);
    run(w, 600); /* nobody had to be elected for want of a heartbeat */
    for (size_t g = 0; g < GROUPS; g++)
        assert_string_equal(members(w, 2, g), "2 3 4");
    assert_string_equal(not_ready(w, 1), "leaving");
    run(w, 5000);
    all_see(w, "2 3 4 2", "2 3 4");
    end(w);
}

static void who_cannot_be_spared_stays_until_it_can(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    stop(w, 2);
    run(w, 2000);
    assert_int_equal(wish(w, 1, WISH_REMOVE, 3, 0),
                     BELAY_OK); /* 1 and 2 would be left, and 2 is down */
    run(w, 5000);
    for (size_t g = 0; g < GROUPS; g++)
        assert_string_equal(members(w, 1, g), "1 2 3");
    assert_string_equal(leaders(w, 1), "1 1 1 1");
    start(w, 2);
    run(w, 8000);
    for (size_t g = 0; g < GROUPS; g++)
        assert_string_equal(members(w, 1, g), "1 2");
    assert_int_equal(wish(w, 1, WISH_REMOVE, 2, 0), BELAY_OK);
    assert_int_equal(wish(w, 1, WISH_REMOVE, 1, 0),
                     BELAY_ERR_IN_USE); /* nobody would be left */
    end(w);
}

/* Node 3 leaves, and is the only one alive whose log is long enough: it is elected, and hands
 * over when the other one has caught up. */
static void who_leaves_may_have_to_lead_once_more(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    w->cut = 1;
    run(w, 5000);
    assert_int_equal(wish(w, 2, WISH_REMOVE, 3, 0), BELAY_OK);
    run(w, 1000);
    assert_string_equal(members(w, 2, 0), "1 2 3");
    assert_string_equal(leaders(w, 2), "2 2 2 2");
    stop(w, 2);
    w->cut = 0;
    run(w, 8000);
    assert_string_equal(leaders(w, 1), "1 1 1 1");
    end(w);
}

static void a_wish_is_granted_at_any_node_once_it_is_so(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    for (uint64_t at = 1; at <= 3; at++) {
        assert_int_equal(wish(w, at, WISH_PRIORITY, 2, (uint8_t)at), BELAY_OK);
        assert_int_equal(replica_priority(raft(&w->nodes[1]), 2), at);
        assert_int_equal(wish(w, at, WISH_ADD, 2, 0), BELAY_OK); /* it is so */
        assert_int_equal(wish(w, at, WISH_PRIORITY, 5, 0), BELAY_ERR_NOT_FOUND);
        assert_int_equal(wish(w, at, WISH_REMOVE, 5, 0), BELAY_ERR_NOT_FOUND);
        assert_int_equal(wish(w, at, WISH_TRANSFER, 3, 0), BELAY_OK);
        assert_int_equal(group_leader(replica_group(raft(&w->nodes[at]), 0)), 3);
    }
    assert_null(not_ready(w, 1));
    stop(w, 2);
    stop(w, 3);
    assert_int_equal(wish(w, 1, WISH_PRIORITY, 2, 9), BELAY_ERR_UNAVAILABLE);
    assert_string_equal(not_ready(w, 1), "no-majority");
    end(w);
}

/* The leader says yes and dies before anybody else has it: then it is not so. */
static void a_wish_is_not_granted_before_a_majority_has_it(void **state)
{
    (void)state;
    struct world *w = begin(3);
    struct heard heard = {0};
    struct admin_request want = {.kind = WISH_PRIORITY, .name = "n2", .priority = 3};
    run(w, 5000);
    w->cut = 1;
    assert_non_null(replica_admin_ask(raft(&w->nodes[1]), &want, on_answer, &heard));
    run(w, 100);
    assert_false(heard.answered);
    assert_int_equal(replica_priority(raft(&w->nodes[1]), 2), 14);
    run(w, 3000); /* another one leads, and has not heard of it */
    w->cut = 0;
    run(w, 3000);
    assert_true(heard.answered); /* it was asked again */
    assert_int_equal(heard.err, BELAY_OK);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(replica_priority(raft(&w->nodes[id]), 2), 3);
    end(w);
}

static void no_number_is_given_twice(void **state)
{
    (void)state; /* not even that of a node that never came */
    struct world *w = begin(3);
    run(w, 5000);
    assert_int_equal(wish(w, 1, WISH_ADD, 4, 0), BELAY_OK);
    assert_int_equal(wish(w, 1, WISH_REMOVE, 4, 0), BELAY_OK);
    run(w, 3000);
    all_see(w, "1 2 3 1", "1 2 3");
    for (uint64_t id = 1; id <= 3; id++)
        stop(w, id);
    for (uint64_t id = 1; id <= 3; id++)
        start(w, id);
    run(w, 3000);
    assert_int_equal(wish(w, 1, WISH_ADD, 5, 0), BELAY_OK);
    end(w);
}

/* A vote takes two writes, one after the other, and each as long as an election should. */
static void slow_disks_elect_a_leader_too(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    stop(w, 1);
    w->disk_ms = ELECTION_MS;
    run(w, 30000);
    for (uint64_t id = 2; id <= 3; id++)
        assert_null(strpbrk(leaders(w, id), "01"));
    end(w);
}

/* Nobody came, so the log must say that its number is taken: once, however long that takes. */
static void slow_disks_do_not_make_the_log_long(void **state)
{
    (void)state;
    struct world *w = begin(3);
    const struct group *g = replica_group(raft(&w->nodes[1]), 0);
    run(w, 5000);
    assert_int_equal(wish(w, 1, WISH_ADD, 4, 0), BELAY_OK);
    uint64_t before = group_last(g);
    w->disk_ms = 400;
    assert_int_equal(wish(w, 1, WISH_REMOVE, 4, 0), BELAY_OK);
    run(w, 5000);
    assert_string_equal(members(w, 2, 0), "1 2 3");
    assert_in_range(group_last(g), before + 1, before + 8);
    end(w);
}

static void a_node_that_stops_leads_nothing_any_more(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    struct replica *o = raft(&w->nodes[1]);
    for (int polls = 0; !replica_retire(o); polls++) {
        assert_true(polls < 5); /* all groups at the same time */
        replica_settle(o);
        run(w, 10);
    }
    assert_string_equal(leaders(w, 2), "2 2 3 3"); /* as 1 and 2 of the rest */
    stop(w, 1);
    end(w);
}

/* Its process is gone, and the others see its connections end: nobody waits for a time-out. And
 * those stand that should lead then. */
static void a_broken_connection_is_believed_if_others_see_it_too(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    uint64_t term = group_term(replica_group(raft(&w->nodes[1]), 0));
    replica_peer_lost(raft(&w->nodes[2]), 1); /* that was only the network */
    assert_string_equal(leaders(w, 2), "0 2 3 0");
    run(w, 2 * HEARTBEAT_MS);
    all_see(w, "1 2 3 1", "1 2 3");
    assert_int_equal(group_term(replica_group(raft(&w->nodes[1]), 0)), term);
    stop(w, 1);
    for (uint64_t id = 2; id <= 3; id++)
        replica_peer_lost(raft(&w->nodes[id]), 1);
    run(w, ELECTION_MS / 10);
    all_see(w, "2 2 3 3", "1 2 3");
    end(w);
}

static void submit_op(struct world *w, size_t group, struct op op)
{
    for (uint64_t id = 1; id <= NODES_MAX; id++) {
        struct order *o = w->nodes[id].order;
        if (o && o->ops->leads(o, group))
            o->ops->submit(o, group, &op);
    }
}

static void submit(struct world *w, size_t group)
{
    submit_op(w, group, (struct op){.kind = OP_TICK});
}

/* What is much goes in several frames. */
static void a_commit_takes_as_long_as_the_disk_and_one_that_never_came_is_not_told(void **state)
{
    (void)state;
    struct world *w = begin(3);
    struct node *n = &w->nodes[1];
    run(w, 5000);
    w->disk_ms = 40;
    n->slowest_ns = 0;
    uint64_t before = n->commits;
    uint64_t follower = w->nodes[2].commits;
    submit(w, 0);
    run(w, 150);
    assert_int_equal(n->commits, before + 1);
    assert_int_equal(w->nodes[2].commits, follower);
    assert_in_range(n->slowest_ns, 40 * 1000000, 100 * 1000000);
    w->cut = 1;
    submit(w, 0); /* into a log that the others do not see: the next leader replaces it */
    run(w, 3000);
    w->cut = 0;
    run(w, 5000);
    assert_string_equal(leaders(w, 1), "1 2 3 1");
    assert_in_range(n->slowest_ns, 40 * 1000000, 300 * 1000000);
    before = n->commits;
    submit(w, 0);
    run(w, 150);
    assert_int_equal(n->commits, before + 1); /* the next one is timed again */
    end(w);
}

/* More than what may be on its way to it: it knows that there is more than it has. */
static void who_lacks_much_of_the_log_is_not_ready(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    w->cut = 3;
    for (size_t i = 0; i < ORDER_BEHIND_MAX + GROUP_INFLIGHT_MAX + 10; i++) {
        submit(w, 0);
        run(w, 1);
    }
    assert_string_equal(not_ready(w, 3), "no-majority");
    w->disk_ms = 40; /* only then it gets the rest */
    w->cut = 0;
    for (int ms = 0; ms < 1000 && group_leader(replica_group(raft(&w->nodes[3]), 0)) == 0; ms++)
        run(w, 1);
    assert_string_equal(not_ready(w, 3), "behind");
    run(w, 2000);
    assert_null(not_ready(w, 3));
    end(w);
}

static void no_frame_is_larger_than_it_may_be(void **state)
{
    (void)state;
    static char body[LIMIT_BODY_BYTES];
    struct world *w = begin(3);
    run(w, 2000);
    w->cut = 3;
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 7; k++)
            submit_op(w, 1,
                      (struct op){.kind = OP_BODY,
                                  .name = SLICE("l"),
                                  .owner = SLICE("o"),
                                  .body = slice_of(body, sizeof body)});
        run(w, 1);
    }
    uint64_t last = group_last(replica_group(raft(&w->nodes[1]), 1));
    w->cut = 0;
    run(w, 2000);
    assert_true(group_applied(replica_group(raft(&w->nodes[3]), 1)) >= last);
    assert_in_range(w->largest, ORDER_BATCH_BYTES, 3 * ORDER_BATCH_BYTES);
    end(w);
}

struct count {
    const char *prefix;
    size_t n;
};

static void count_file(void *ctx, const char *name)
{
    struct count *c = ctx;
    c->n += strncmp(name, c->prefix, strlen(c->prefix)) == 0;
}

static size_t files(struct node *n, const char *prefix)
{
    struct count c = {prefix, 0};
    assert_int_equal(n->disk.base.ops->list(&n->disk.base, count_file, &c), BELAY_OK);
    return c.n;
}

/* Node 3 was away, and what it missed is only in snapshots by now. */
static struct world *begin_with_one_far_behind(void)
{
    struct world *w = begin(3);
    run(w, 2000);
    stop(w, 3);
    run(w, 2000);
    for (int i = 0; i < 40; i++) {
        for (size_t g = 0; g < GROUPS; g++)
            submit(w, g);
        run(w, 5);
    }
    for (size_t g = 0; g < GROUPS; g++) { /* a node makes one at a time */
        for (uint64_t id = 1; id <= 2; id++)
            replica_snapshot_now(raft(&w->nodes[id]));
        run(w, 20);
    }
    start(w, 3);
    return w;
}

static void run_until_it_fetches(struct world *w, size_t pieces)
{
    struct node *n = &w->nodes[3];
    for (int i = 0; i < 5000 && files(n, "incoming-") == 0; i++)
        run(w, 1);
    run(w, pieces);
    assert_int_equal(files(n, "incoming-"), 1);
}

static void assert_alike(struct world *w, uint64_t a, uint64_t b)
{
    for (size_t g = 0; g < GROUPS; g++) {
        assert_int_equal(group_applied(replica_group(raft(&w->nodes[a]), g)),
                         group_applied(replica_group(raft(&w->nodes[b]), g)));
        assert_int_equal(engine_hash(w->nodes[a].engine, g),
                         engine_hash(w->nodes[b].engine, g));
    }
    assert_int_equal(files(&w->nodes[a], "incoming-"), 0);
    assert_int_equal(files(&w->nodes[a], "snapshot-"), GROUPS);
}

/* While it does, nobody is kept waiting: all leaders stay the same. */
static void who_is_far_behind_fetches_snapshots(void **state)
{
    (void)state;
    struct world *w = begin_with_one_far_behind();
    run_until_it_fetches(w, 3);
    char before[64];
    uint64_t term = group_term(replica_group(raft(&w->nodes[1]), 1));
    snprintf(before, sizeof before, "%s", leaders(w, 1));
    assert_string_equal(not_ready(w, 3), "fetching");
    run(w, 1500);
    assert_alike(w, 3, 1);
    assert_null(not_ready(w, 3));
    assert_string_equal(leaders(w, 3), before);
    assert_int_equal(group_term(replica_group(raft(&w->nodes[1]), 1)), term);
    end(w);
}

/* What it has of it gives its space back at once, and it begins again when there is some. */
static void half_a_snapshot_takes_no_space_on_a_full_disk(void **state)
{
    (void)state;
    struct world *w = begin_with_one_far_behind();
    run_until_it_fetches(w, 3);
    w->nodes[3].disk.full = true;
    log_set_level(LOG_NONE); /* it complains */
    run(w, 2000);
    log_set_level(LOG_ERROR);
    assert_int_equal(files(&w->nodes[3], "incoming-"), 0);
    assert_string_equal(not_ready(w, 3), "disk-full");
    w->nodes[3].disk.full = false;
    run(w, 10000);
    assert_null(not_ready(w, 3));
    assert_alike(w, 3, 1);
    end(w);
}

static void a_lost_piece_is_asked_for_again(void **state)
{
    (void)state;
    struct world *w = begin_with_one_far_behind();
    w->lose_one_in = 7;
    run(w, 60000);
    w->lose_one_in = 0;
    run(w, 2000);
    assert_alike(w, 3, 1);
    end(w);
}

static void a_snapshot_of_a_leader_that_dies_is_fetched_from_the_next(void **state)
{
    (void)state;
    struct world *w = begin_with_one_far_behind();
    run_until_it_fetches(w, 3);
    uint64_t dead = group_leader(replica_group(raft(&w->nodes[3]), 0));
    stop(w, dead);
    run(w, 15000);
    assert_alike(w, 3, 3 - dead);
    end(w);
}

static void a_node_that_dies_fetching_begins_again(void **state)
{
    (void)state;
    struct world *w = begin_with_one_far_behind();
    run_until_it_fetches(w, 3);
    stop(w, 3);
    start(w, 3);
    assert_int_equal(files(&w->nodes[3], "incoming-"), 0);
    run(w, 5000);
    assert_alike(w, 3, 1);
    end(w);
}

static void a_newer_snapshot_takes_the_place_of_an_older_one(void **state)
{
    (void)state;
    struct world *w = begin_with_one_far_behind();
    run_until_it_fetches(w, 3);
    for (size_t g = 0; g < GROUPS; g++) {
        submit(w, g);
        run(w, 1);
        for (uint64_t id = 1; id <= 2; id++)
            replica_snapshot_now(raft(&w->nodes[id]));
        run(w, 1);
    }
    run(w, 5000);
    assert_alike(w, 3, 1);
    end(w);
}

/* Whatever the number of groups: a heartbeat, its answer, and what every node says of itself.
 */
static void an_idle_cluster_says_little(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 10000);
    size_t before = w->n_frames;
    run(w, 10000);
    size_t pairs = 6;
    size_t rounds = 10000 / HEARTBEAT_MS + 1;
    assert_in_range(w->n_frames - before, 1, pairs * (2 * rounds + 10));
    end(w);
}

static void assert_rate(struct world *w, uint64_t at, uint64_t of, int64_t least, int64_t most)
{
    int64_t ppm;
    assert_true(replica_clock_rate(raft(&w->nodes[at]), of, &ppm));
    assert_true(least <= ppm && ppm <= most);
}

static struct world *begin_with_one_fast_clock(void)
{
    struct world *w = begin(0);
    w->first = 3;
    w->nodes[3].fast_ppm = 2000;
    for (uint64_t id = 1; id <= 3; id++)
        start(w, id);
    return w;
}

/* A millisecond of doubt in a minute is 17 ppm. */
static void nodes_know_the_rates_of_each_others_clocks(void **state)
{
    (void)state;
    struct world *w = begin_with_one_fast_clock();
    int64_t ppm;
    run(w, 60000);
    assert_false(replica_clock_rate(raft(&w->nodes[1]), 3, &ppm));
    run(w, 70000);
    assert_rate(w, 1, 2, -50, 50);
    assert_rate(w, 1, 3, 1950, 2050);
    assert_rate(w, 3, 1, -2050, -1950);
    end(w);
}

/* What the log says meanwhile is in the file. */
static void run_logged(struct world *w, uint64_t ms, FILE *log)
{
    int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    log_set_level(LOG_WARN);
    run(w, ms);
    log_set_level(LOG_ERROR);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
}

static void a_clock_of_another_rate_is_said_once(void **state)
{
    (void)state;
    struct world *w = begin_with_one_fast_clock();
    FILE *log = tmpfile();
    char line[LOG_LINE_MAX];
    size_t of[4] = {0};
    assert_non_null(log);
    run_logged(w, 250000, log); /* it is measured three times */
    rewind(log);
    while (fgets(line, sizeof line, log)) {
        const char *said = strstr(line, "order.clock_rate node=");
        if (said)
            of[said[strlen("order.clock_rate node=")] - '0']++;
    }
    assert_int_equal(of[1], 1); /* by the fast one */
    assert_int_equal(of[2], 1);
    assert_int_equal(of[3], 2);
    fclose(log);
    end(w);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_lead_in_turn),
        cmocka_unit_test(what_a_node_was_started_with_counts_until_it_is_changed),
        cmocka_unit_test(a_new_node_learns_in_every_group_and_then_votes),
        cmocka_unit_test(who_is_removed_hands_over_first),
        cmocka_unit_test(who_cannot_be_spared_stays_until_it_can),
        cmocka_unit_test(who_leaves_may_have_to_lead_once_more),
        cmocka_unit_test(a_wish_is_granted_at_any_node_once_it_is_so),
        cmocka_unit_test(a_wish_is_not_granted_before_a_majority_has_it),
        cmocka_unit_test(no_number_is_given_twice),
        cmocka_unit_test(slow_disks_elect_a_leader_too),
        cmocka_unit_test(slow_disks_do_not_make_the_log_long),
        cmocka_unit_test(a_node_that_stops_leads_nothing_any_more),
        cmocka_unit_test(a_broken_connection_is_believed_if_others_see_it_too),
        cmocka_unit_test(
            a_commit_takes_as_long_as_the_disk_and_one_that_never_came_is_not_told),
        cmocka_unit_test(who_lacks_much_of_the_log_is_not_ready),
        cmocka_unit_test(no_frame_is_larger_than_it_may_be),
        cmocka_unit_test(who_is_far_behind_fetches_snapshots),
        cmocka_unit_test(half_a_snapshot_takes_no_space_on_a_full_disk),
        cmocka_unit_test(a_lost_piece_is_asked_for_again),
        cmocka_unit_test(a_snapshot_of_a_leader_that_dies_is_fetched_from_the_next),
        cmocka_unit_test(a_node_that_dies_fetching_begins_again),
        cmocka_unit_test(a_newer_snapshot_takes_the_place_of_an_older_one),
        cmocka_unit_test(an_idle_cluster_says_little),
        cmocka_unit_test(nodes_know_the_rates_of_each_others_clocks),
        cmocka_unit_test(a_clock_of_another_rate_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
