/* A damaged directory: what is said about it, and what is saved of it. */
#include "repair/inspect.h"

#include "../sim/sim_disk.h"
#include "base/log.h"
#include "single_node.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LOCKS = 24 };

struct made {
    struct sim_disk disk;
    uint64_t fences[LOCKS];
    size_t groups;
};

static void acquire_some(struct single_node *n, struct made *m, int from, int to)
{
    for (int i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock-%d", i);
        m->fences[i] = single_node_acquire(n, "default", name);
        assert_true(m->fences[i] > 0);
    }
}

static void take_snapshots(struct single_node *n, size_t groups)
{
    for (size_t i = 0; i < groups; i++) { /* one at a time */
        replica_snapshot_now(replica_of(n->order));
        single_node_pump(n);
    }
}

/* Half of the locks, a snapshot, the other half, and a clean stop. */
static void make(struct made *m, size_t groups)
{
    struct single_node n;
    sim_disk_init(&m->disk, 1);
    m->groups = groups;
    assert_int_equal(single_node_open(&n, &m->disk, groups), BELAY_OK);
    acquire_some(&n, m, 0, LOCKS / 2);
    take_snapshots(&n, groups);
    acquire_some(&n, m, LOCKS / 2, LOCKS);
    single_node_stop(&n);
}

/* Several shards, of which one has anything to do: the others have said nothing since their
 * snapshots, and the segments with their entries are gone. */
static void make_quiet(struct made *m, size_t groups)
{
    struct single_node n;
    sim_disk_init(&m->disk, 1);
    m->groups = groups;
    assert_int_equal(single_node_open(&n, &m->disk, groups), BELAY_OK);
    acquire_some(&n, m, 0, LOCKS / 2);
    take_snapshots(&n, groups);
    for (int i = 0; i < 16; i++)
        acquire_some(&n, m, 0, LOCKS / 2);
    assert_true(journal_first(replica_journal(replica_of(n.order))) > 1);
    acquire_some(&n, m, LOCKS / 2, LOCKS);
    single_node_stop(&n);
}

static size_t held(struct single_node *n, const struct made *m)
{
    size_t count = 0;
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock-%d", i);
        count += single_node_check(n, "default", name, m->fences[i]);
    }
    return count;
}

static const struct inspect_file *file(const struct inspection *in, const char *name)
{
    for (size_t i = 0; i < in->n_files; i++)
        if (strncmp(in->files[i].name, name, strlen(name)) == 0)
            return &in->files[i];
    fail_msg("%s is not in the report", name);
    return NULL;
}

static struct sim_file *find(struct sim_disk *d, const char *prefix)
{
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        if (d->files[i].used && strncmp(d->files[i].name, prefix, strlen(prefix)) == 0)
            return &d->files[i];
    fail_msg("there is no %s", prefix);
    return NULL;
}

static void flip(struct sim_file *f, size_t at)
{
    assert_true(f && f->bytes.mem);
    f->bytes.mem[f->bytes.start + at] ^= (char)(1 << at % 8);
}

/* Saves what can be saved into a directory of its own, starts from it, and says how many locks
 * are held there. Every fence that it gives must be new. */
static size_t salvaged(const struct inspection *in, const struct made *m)
{
    static struct sim_disk to;
    struct single_node n;
    sim_disk_init(&to, 3);
    assert_int_equal(inspect_salvage(in, &to.base, 77), BELAY_OK);
    assert_int_equal(single_node_open(&n, &to, m->groups), BELAY_OK);
    size_t count = held(&n, m);
    assert_true(single_node_acquire(&n, "default", "new") > m->fences[LOCKS - 1]);
    single_node_close(&n);
    assert_int_equal(single_node_open(&n, &to, m->groups), BELAY_OK); /* and once more */
    assert_int_equal(held(&n, m), count);
    single_node_close(&n);
    sim_disk_wipe(&to);
    return count;
}

static void a_sound_directory_is_said_to_be_sound(void **state)
{
    (void)state;
    static struct made m;
    struct inspection in;
    make(&m, 1);
    uint64_t changes = m.disk.changes;
    assert_int_equal(inspect_open(&m.disk.base, &in), BELAY_OK);
    assert_true(in.starts);
    assert_int_equal(in.node, 1);
    assert_int_equal(in.members, 1);
    assert_string_equal(in.name, "n");
    assert_string_equal(in.peer, "h");
    assert_int_equal(in.n_files, 3);
    for (size_t i = 0; i < in.n_files; i++)
        assert_int_equal(in.files[i].state, INSPECT_SOUND);
    assert_non_null(strstr(file(&in, "snapshot-")->text, "12 locks"));
    assert_int_equal(m.disk.changes, changes); /* nothing was written */
    inspect_close(&in);
    sim_disk_wipe(&m.disk);
}

static void a_directory_without_a_node_is_none(void **state)
{
    (void)state;
    static struct sim_disk d;
    struct inspection in;
    sim_disk_init(&d, 1);
    assert_int_equal(inspect_open(&d.base, &in), BELAY_ERR_NOT_FOUND);
    assert_int_equal(d.base.ops->put(&d.base, "notes", SLICE("x")), BELAY_OK);
    assert_int_equal(inspect_open(&d.base, &in), BELAY_ERR_NOT_FOUND);
    sim_disk_wipe(&d);
}

static void what_is_behind_the_damage_is_lost_and_counted(void **state)
{
    (void)state;
    static struct made m;
    struct inspection in;
    make(&m, 1);
    struct sim_file *f = find(&m.disk, "journal-");
    size_t used = buf_len(&f->bytes);
    while (f->bytes.mem[f->bytes.start + used - 1] == 0)
        used--;
    /* the last sector is the seal, the one before it the last lock, the fourth one that of four
     * before */
    flip(f, used / JOURNAL_SECTOR * JOURNAL_SECTOR - (size_t)4 * JOURNAL_SECTOR + 9);
    assert_int_equal(inspect_open(&m.disk.base, &in), BELAY_OK);
    assert_false(in.starts);
    assert_non_null(strstr(in.problem, f->name));
    assert_int_equal(file(&in, "journal-")->state, INSPECT_DAMAGED);
    assert_non_null(strstr(file(&in, "journal-")->text, "4 sound batches behind it"));
    assert_int_equal(file(&in, "snapshot-")->state, INSPECT_SOUND);
    assert_true(in.can_salvage);
    assert_int_equal(in.lost_batches, 5);
    assert_false(in.lost_more);
    assert_int_equal(salvaged(&in, &m), LOCKS - 4);
    inspect_close(&in);
    sim_disk_wipe(&m.disk);
}

static void damage_that_a_snapshot_covers_loses_nothing(void **state)
{
    (void)state;
    static struct made m;
    struct inspection in;
    make(&m, 1);
    flip(find(&m.disk, "journal-"), (size_t)6 * JOURNAL_SECTOR + 9);
    assert_int_equal(inspect_open(&m.disk.base, &in), BELAY_OK);
    assert_false(in.starts);
    assert_true(in.can_salvage);
    assert_int_equal(in.lost_batches, 0);
    assert_int_equal(salvaged(&in, &m), LOCKS);
    inspect_close(&in);
    sim_disk_wipe(&m.disk);
}

static void
a_damaged_snapshot_or_identity_loses_nothing_while_the_journal_has_it_all(void **state)
{
    (void)state;
    static const char *const names[] = {"identity", "snapshot-"};
    static struct made m;
    for (size_t i = 0; i < 2; i++) {
        for (int gone = 0; gone < 2; gone++) {
            struct inspection in;
            make(&m, 1);
            struct sim_file *f = find(&m.disk, names[i]);
            if (gone)
                assert_int_equal(m.disk.base.ops->remove(&m.disk.base, f->name), BELAY_OK);
            else
                flip(f, 30);
            assert_int_equal(inspect_open(&m.disk.base, &in), BELAY_OK);
            assert_false(in.starts);
            assert_true(in.can_salvage);
            assert_int_equal(in.lost_batches, 0);
            assert_int_equal(salvaged(&in, &m), LOCKS);
            inspect_close(&in);
            sim_disk_wipe(&m.disk);
        }
    }
}

static void snapshots_of_quiet_shards_count(void **state)
{
    (void)state;
    static struct made m;
    struct inspection in;
    for (int gone = 0; gone < 2; gone++) {
        make_quiet(&m, 4);
        struct sim_file *f = find(&m.disk, "identity");
        if (gone)
            assert_int_equal(m.disk.base.ops->remove(&m.disk.base, f->name), BELAY_OK);
        else
            flip(f, 30);
        assert_int_equal(inspect_open(&m.disk.base, &in), BELAY_OK);
        assert_false(in.starts);
        assert_true(in.can_salvage);
        assert_int_equal(in.lost_batches, 0);
        assert_false(in.lost_more);
        assert_int_equal(salvaged(&in, &m), LOCKS);
        inspect_close(&in);
        sim_disk_wipe(&m.disk);
    }
}

/* The states of several groups belong to one moment. */
static void several_groups_are_kept_together_or_not_at_all(void **state)
{
    (void)state;
    static struct made m;
    size_t kept = 0;
    size_t none = 0;
    make(&m, 3);
    struct sim_file *f = find(&m.disk, "journal-");
    for (size_t at = JOURNAL_SECTOR + 9; at < buf_len(&f->bytes); at += JOURNAL_SECTOR) {
        struct inspection in;
        flip(f, at);
        assert_int_equal(inspect_open(&m.disk.base, &in), BELAY_OK);
        if (!in.starts && in.can_salvage) {
            size_t count = salvaged(&in, &m);
            assert_true(in.lost_batches || count == LOCKS);
            kept++;
        }
        none += !in.starts && !in.can_salvage;
        inspect_close(&in);
        flip(f, at);
    }
    print_message("# %zu times saved, %zu times not\n", kept, none);
    assert_true(kept > 10);
    sim_disk_wipe(&m.disk);
}

/* Every byte of every file flipped, every file cut and removed: what the report says about the
 * start is what a start does, and what is saved is sound and has every lock unless it says that
 * something is lost. */
struct tally {
    size_t starts, saved, lossy, lost;
};

static void judge(struct sim_disk *d, const struct made *m, struct tally *t)
{
    struct inspection in;
    struct single_node n;
    if (inspect_open(&d->base, &in) != BELAY_OK)
        return;
    bool starts = in.starts;
    if (!starts && in.can_salvage) {
        size_t count = salvaged(&in, m);
        bool lossy = in.lost_batches || in.lost_more;
        assert_true(lossy || count == LOCKS);
        t->saved += !lossy;
        t->lossy += lossy;
    }
    t->lost += !starts && !in.can_salvage;
    t->starts += starts;
    inspect_close(&in);
    assert_int_equal(single_node_open(&n, d, m->groups) == BELAY_OK, starts);
    if (starts)
        single_node_close(&n);
}

/* Every `step`th byte, from the first on. */
static struct tally damage_all(const struct made *m, size_t step)
{
    static struct sim_disk d;
    struct tally t = {0};
    sim_disk_init(&d, 2);
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        const struct sim_file *f = &m->disk.files[i];
        for (size_t at = 0; f->used && at < buf_len(&f->bytes); at += step) {
            sim_disk_copy(&d, &m->disk);
            flip(sim_disk_find(&d, f->name, true), at);
            judge(&d, m, &t);
        }
        for (size_t len = 0; f->used && len < buf_len(&f->bytes);
             len += 1 + buf_len(&f->bytes) / 100) {
            sim_disk_copy(&d, &m->disk);
            struct sim_file *hit = sim_disk_find(&d, f->name, true);
            hit->bytes.end = hit->bytes.start + len;
            judge(&d, m, &t);
        }
        if (f->used) {
            sim_disk_copy(&d, &m->disk);
            assert_int_equal(d.base.ops->remove(&d.base, f->name), BELAY_OK);
            judge(&d, m, &t);
        }
    }
    print_message("# %zu start, %zu saved without loss, %zu with, %zu lost\n", t.starts,
                  t.saved, t.lossy, t.lost);
    sim_disk_wipe(&d);
    return t;
}

static void whatever_is_damaged_the_report_is_right_and_what_is_saved_is_sound(void **state)
{
    (void)state;
    static struct made m;
    make(&m, 1);
    struct tally t = damage_all(&m, 1);
    assert_true(t.saved > 50);
    assert_true(t.lossy > 50);
    sim_disk_wipe(&m.disk);
}

static void and_so_it_is_with_several_shards(void **state)
{
    (void)state;
    static struct made m;
    make_quiet(&m, 4);
    struct tally t = damage_all(&m, 11);
    assert_true(t.starts > 50);
    assert_true(t.saved > 10);
    assert_true(t.lossy + t.lost > 50);
    sim_disk_wipe(&m.disk);
}

int main(void)
{
    log_set_level(LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_directory_is_said_to_be_sound),
        cmocka_unit_test(a_directory_without_a_node_is_none),
        cmocka_unit_test(what_is_behind_the_damage_is_lost_and_counted),
        cmocka_unit_test(damage_that_a_snapshot_covers_loses_nothing),
        cmocka_unit_test(
            a_damaged_snapshot_or_identity_loses_nothing_while_the_journal_has_it_all),
        cmocka_unit_test(snapshots_of_quiet_shards_count),
        cmocka_unit_test(several_groups_are_kept_together_or_not_at_all),
        cmocka_unit_test(whatever_is_damaged_the_report_is_right_and_what_is_saved_is_sound),
        cmocka_unit_test(and_so_it_is_with_several_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
