/* Members that are replaced again and again: their numbers are never given twice, and use
 * nothing up (raft/place.h). On virtual time; PLACE_ROUNDS sets the number of replacements.
 */
#include "few_nodes.h"
#include "raft/replica_core.h"
#include "repair/backup.h"
#include "single_node.h"

enum { ROUNDS = 200, REPLACED = 4, ROUND_MS = 60000 };

static size_t rounds(void)
{
    const char *text = getenv("PLACE_ROUNDS");
    return text ? strtoul(text, NULL, 10) : ROUNDS;
}

/* To the next moment at which anything is due. */
static void step(struct world *w)
{
    uint64_t next = UINT64_MAX;
    run(w, 1);
    for (size_t i = 1; i <= NODES_MAX; i++) {
        if (!w->nodes[i].order)
            continue;
        if (w->nodes[i].fetch)
            return;
        uint64_t due = replica_next_ms(raft(&w->nodes[i]));
        next = due < next ? due : next;
    }
    w->now = next > w->now ? next : w->now;
}

/* Adds a member "n4" and says its number. */
static uint64_t add(struct world *w, uint64_t at)
{
    struct heard heard = ask_wish(w, at, WISH_ADD, REPLACED, 0);
    assert_int_equal(heard.err, BELAY_OK);
    return heard.id;
}

static void join(struct world *w, uint64_t id)
{
    struct node *n = &w->nodes[REPLACED];
    sim_disk_wipe(&n->disk);
    sim_disk_init(&n->disk, REPLACED);
    n->id = id;
    start(w, REPLACED);
    uint64_t until = w->now + ROUND_MS;
    while (!replica_is_settled(raft(&w->nodes[1]), id) || not_ready(w, REPLACED)) {
        assert_true(w->now < until);
        step(w);
    }
}

/* The node `no` of the world, whose number is `id`. */
static void leave(struct world *w, uint64_t at, uint64_t no, uint64_t id)
{
    assert_int_equal(ask_wish(w, at, WISH_REMOVE, no, 0).err, BELAY_OK);
    for (uint64_t until = w->now + ROUND_MS; !replica_was_removed(raft(&w->nodes[at]), id);) {
        assert_true(w->now < until);
        step(w);
    }
    if (w->nodes[no].order)
        stop(w, no);
}

/* Numbers only grow, and who is gone stays gone. */
static void members_are_replaced_without_end(void **state)
{
    (void)state;
    struct world *w = begin(3);
    uint64_t last = 3;
    size_t n = rounds();
    run(w, 5000);
    for (size_t i = 0; i < n; i++) {
        uint64_t id = add(w, 1);
        assert_in_range(id, last + 1, last + 5);
        assert_int_not_equal(place_of(id), 0);
        last = id;
        if (i % 8 != 7) /* else it never comes */
            join(w, id);
        leave(w, 1, REPLACED, id);
        const struct replica *o = raft(&w->nodes[1]);
        assert_true(replica_was_removed(o, 4)); /* the first one, whoever has its place */
        for (uint64_t at = 1; at <= 3; at++)
            assert_false(replica_was_removed(o, at));
        assert_false(replica_was_removed(o, replica_next_node(o)));
        if (i % 16 == 15) { /* what is on disk says the same */
            stop(w, 2);
            start(w, 2);
        }
    }
    assert_true(last >= n);
    end(w);
}

/* A node that was away has an old list of members: who leads by now may have the place of one
 * in it. That one is not heard then. */
static void a_newer_node_has_room_when_the_older_one_is_not_heard(void **state)
{
    (void)state;
    enum { NEWER = NODE_PLACES + 2 };
    struct world *w = begin(3);
    run(w, 5000);
    assert_false(replica_has_room(raft(&w->nodes[1]), NEWER));
    stop(w, 2);
    run(w, ORDER_UNHEARD_MS / 2);
    assert_false(replica_has_room(raft(&w->nodes[1]), NEWER));
    run(w, ORDER_UNHEARD_MS);
    assert_true(replica_has_room(raft(&w->nodes[1]), NEWER));
    assert_true(replica_has_room(raft(&w->nodes[1]), 2)); /* it may come back */
    start(w, 2);
    run(w, 5000);
    assert_false(replica_has_room(raft(&w->nodes[1]), NEWER));
    assert_false(replica_has_room(raft(&w->nodes[2]), NEWER)); /* its own place */
    end(w);
}

static void on_backup(void *ctx, enum belay_err err, uint64_t bytes)
{
    assert_int_equal(err, BELAY_OK);
    *(uint64_t *)ctx = bytes;
}

static void back_up(struct world *w, uint64_t at, struct buf *ret_file)
{
    uint64_t bytes = 0;
    struct backup_wish wish = {.id = 1, .wall_ms = 1, .answer = on_backup, .ctx = &bytes};
    assert_int_equal(replica_backup_begin(raft(&w->nodes[at]), &wish), BELAY_OK);
    run(w, ROUND_MS);
    assert_true(bytes > 0);
    while (buf_len(ret_file) < bytes)
        assert_int_equal(
            replica_backup_read(raft(&w->nodes[at]), wish.id, buf_len(ret_file), ret_file),
            BELAY_OK);
}

/* The new cluster begins with a node 1, and a later node may have had its place in the old one.
 */
static void a_backup_is_restored_whoever_had_the_first_place(void **state)
{
    (void)state;
    enum { AT = 2, LATER = NODE_PLACES + 1 };
    const struct restore_plan plan = {.keeps = true, .wall_ms = 1, .seed = 7};
    struct world *w = begin(3);
    struct buf file = {0};
    struct sim_disk disk;
    struct single_node restored;
    run(w, 5000);
    leave(w, AT, 1, 1);
    for (uint64_t id = 0; id != LATER;) {
        id = add(w, AT);
        leave(w, AT, REPLACED, id);
    }
    back_up(w, AT, &file);
    end(w);
    sim_disk_init(&disk, 1);
    assert_int_equal(backup_restore(buf_slice(&file), &plan, &disk.base), BELAY_OK);
    assert_int_equal(single_node_open(&restored, &disk, GROUPS), BELAY_OK);
    for (size_t g = 0; g < GROUPS; g++) { /* what it says counts in all of them */
        struct replica_group *r = &replica_of(restored.order)->replicas[g];
        assert_non_null(replica_origin(r, 1));
        assert_int_equal(replica_origin(r, 1)->start, replica_start(r->o));
    }
    assert_true(single_node_acquire(&restored, "default", "lock") > 0);
    single_node_close(&restored);
    sim_disk_wipe(&disk);
    buf_done(&file);
}

/* At node 1, which leads group 0: from node 2, and longer under way than what it said since. */
static void remove_late(struct world *w, uint64_t run_no, uint64_t seq)
{
    struct buf frame = {0};
    peer_message_put(&(struct peer_message){.type = WIRE_ASK,
                                            .from = 2,
                                            .term = run_no,
                                            .seq = seq,
                                            .index = WISH_REMOVE,
                                            .conf = SLICE("n4")},
                     &frame);
    node_send(&w->nodes[2], 1, buf_slice(&frame));
    buf_done(&frame);
    run(w, 3000);
}

static void a_wish_that_comes_after_the_next_one_is_too_late(void **state)
{
    (void)state;
    struct world *w = begin(3);
    run(w, 5000);
    uint64_t first = raft(&w->nodes[2])->run;
    assert_int_equal(ask_wish(w, 2, WISH_REMOVE, REPLACED, 0).err, BELAY_ERR_NOT_FOUND);
    add(w, 2);
    remove_late(w, first, 1);
    assert_string_equal(members(w, 1, 0), "1 2 3 4l");
    stop(w, 2);
    start(w, 2);
    run(w, 5000);
    assert_true(raft(&w->nodes[2])->run > first);
    add(w, 2); /* it is there */
    remove_late(w, first, 2);
    assert_string_equal(members(w, 1, 0), "1 2 3 4l");
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_node_has_room_when_the_older_one_is_not_heard),
        cmocka_unit_test(members_are_replaced_without_end),
        cmocka_unit_test(a_backup_is_restored_whoever_had_the_first_place),
        cmocka_unit_test(a_wish_that_comes_after_the_next_one_is_too_late),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
