/* What a journal promises about bytes that a disk loses, tears, flips or cuts. */
#include "storage/journal.h"

#include "../sim/sim_disk.h"
#include "base/log.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES_MAX = 4096, SMALL = 16 << 10 };

/* What a reader of the journal knows in the end: one log with its votes and snapshots, and what
 * a shard has said once and never again. */
struct replay {
    uint64_t first, last; /* indexes */
    uint64_t sums[ENTRIES_MAX];
    uint64_t lsns[ENTRIES_MAX];
    uint64_t term, vote, snapshot;
    uint64_t quiet_term, quiet_vote, quiet_snapshot;
};

enum { QUIET = 1, QUIET_TERM = 5, QUIET_VOTE = 3, QUIET_SNAPSHOT = 77 };

static void replay_quiet(struct replay *r, const struct journal_record *rec)
{
    if (rec->kind == JOURNAL_VOTE) {
        r->quiet_term = rec->term;
        r->quiet_vote = rec->index;
    } else if (rec->kind == JOURNAL_SNAPSHOT) {
        r->quiet_snapshot = rec->index;
    }
}

static enum belay_err replay_record(void *ctx, const struct journal_record *rec, uint64_t lsn)
{
    struct replay *r = ctx;
    assert_true(lsn > 0);
    if (rec->group_no == QUIET) {
        replay_quiet(r, rec);
        return BELAY_OK;
    }
    if (rec->kind == JOURNAL_VOTE) {
        r->term = rec->term;
        r->vote = rec->index;
    }
    if (rec->kind == JOURNAL_SNAPSHOT)
        r->snapshot = rec->index;
    if (rec->kind != JOURNAL_ENTRY)
        return BELAY_OK;
    if (rec->index > r->last + 1 && r->last != 0)
        return BELAY_ERR_CORRUPT;
    if (rec->index >= ENTRIES_MAX)
        return BELAY_ERR_CORRUPT;
    if (r->last == 0)
        r->first = rec->index;
    r->last = rec->index;
    r->lsns[rec->index] = lsn;
    r->sums[rec->index] = rec->term;
    for (size_t i = 0; i < rec->data.len; i++)
        r->sums[rec->index] = r->sums[rec->index] * 31 + (unsigned char)rec->data.data[i];
    return BELAY_OK;
}

static enum belay_err open_on(struct sim_disk *d, bool fresh, struct replay *ret,
                              struct journal **ret_j)
{
    memset(ret, 0, sizeof *ret);
    struct journal_config config = {.disk = &d->base,
                                    .segment_bytes = SMALL,
                                    .salt = 77,
                                    .sink = replay_record,
                                    .sink_ctx = ret};
    enum belay_err err = journal_open(&config, fresh, ret_j);
    /* the first entries on disk may be older than the snapshot that lets them go, never newer
     */
    if (err == BELAY_OK && ret->last && ret->first > ret->snapshot + 1) {
        journal_close(*ret_j);
        *ret_j = NULL;
        return BELAY_ERR_CORRUPT;
    }
    return err;
}

static bool commit(struct journal *j)
{
    struct journal_job *job = journal_job_take(j);
    if (!job)
        return true;
    int code;
    journal_job_run(job);
    return journal_job_done(j, job, &code) == BELAY_OK;
}

static uint64_t append_entry(struct journal *j, uint64_t index, uint64_t term, size_t bytes)
{
    char data[2048];
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(index * 7 + i * 13 + term);
    return journal_append(j, &(struct journal_record){.kind = JOURNAL_ENTRY,
                                                      .type = 1,
                                                      .term = term,
                                                      .index = index,
                                                      .data = slice_of(data, bytes)});
}

static void append_quiet(struct journal *j)
{
    struct journal_record rec = {
        .kind = JOURNAL_VOTE, .group_no = QUIET, .term = QUIET_TERM, .index = QUIET_VOTE};
    journal_append(j, &rec);
    rec.kind = JOURNAL_SNAPSHOT;
    rec.index = QUIET_SNAPSHOT;
    rec.data = SLICE("snapshot-quiet");
    journal_append(j, &rec);
}

/* A script of batches: some entries, sometimes a vote, sometimes a truncation, sometimes a
 * snapshot that lets old segments go; and first of all what the quiet shard says. Goes on from
 * what `want` says, and puts into it what was acknowledged. */
static void run_script(struct journal *j, struct replay *want, int steps)
{
    bool first = want->quiet_term == 0;
    if (first)
        append_quiet(j);
    for (int step = 1; step <= steps; step++) {
        uint64_t term = want->term + 1;
        uint64_t from = want->last + 1;
        bool votes = step % 10 == 0;
        if (votes && want->last > want->snapshot + 4)
            from = want->last - 1; /* a new leader replaces the tail */
        uint64_t n = 1 + (uint64_t)step % 4;
        if (votes)
            journal_append(j, &(struct journal_record){
                                  .kind = JOURNAL_VOTE, .term = term, .index = (uint64_t)step});
        for (uint64_t i = 0; i < n; i++)
            want->lsns[from + i] =
                append_entry(j, from + i, term, 20 + (size_t)(step * 37 % 700));
        uint64_t snapshot = 0;
        if (step % 25 == 0 || step == 5) {
            snapshot = want->last - 2;
            journal_append(j, &(struct journal_record){.kind = JOURNAL_SNAPSHOT,
                                                       .term = term,
                                                       .index = snapshot,
                                                       .data = SLICE("snapshot-1")});
            journal_release(j, want->lsns[snapshot + 1]);
        }
        if (!commit(j))
            return;
        if (first) {
            want->quiet_term = QUIET_TERM;
            want->quiet_vote = QUIET_VOTE;
            want->quiet_snapshot = QUIET_SNAPSHOT;
            first = false;
        }
        if (votes) {
            want->term = term;
            want->vote = (uint64_t)step;
        }
        if (snapshot)
            want->snapshot = snapshot;
        want->last = from + n - 1;
    }
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    static struct sim_disk d;
    static struct replay got, want;
    struct journal *j;
    sim_disk_init(&d, 1);
    assert_int_equal(open_on(&d, true, &got, &j), BELAY_OK);
    memset(&want, 0, sizeof want);
    run_script(j, &want, 120);
    assert_true(journal_segments(j) >= 2);
    assert_true(journal_first(j) > 1); /* old segments went */
    journal_close(j);
    assert_int_equal(open_on(&d, false, &got, &j), BELAY_OK);
    assert_int_equal(got.last, want.last);
    assert_int_equal(got.term, want.term);
    assert_int_equal(got.vote, want.vote);
    assert_int_equal(got.snapshot, want.snapshot);
    assert_true(got.first <= got.snapshot + 1);
    /* and the log goes on where it ended */
    append_entry(j, got.last + 1, 99, 10);
    assert_true(commit(j));
    journal_close(j);
    assert_int_equal(open_on(&d, false, &got, &j), BELAY_OK);
    assert_int_equal(got.last, want.last + 1);
    journal_close(j);
    sim_disk_wipe(&d);
}

static void nothing_is_durable_before_its_job_is_done(void **state)
{
    (void)state;
    static struct sim_disk d;
    static struct replay got;
    struct journal *j;
    sim_disk_init(&d, 1);
    assert_int_equal(open_on(&d, true, &got, &j), BELAY_OK);
    uint64_t first = append_entry(j, 1, 1, 10);
    struct journal_job *job = journal_job_take(j);
    uint64_t second = append_entry(j, 2, 1, 10);
    assert_true(second > first);
    assert_null(journal_job_take(j)); /* one in flight; what came meanwhile goes together */
    assert_int_equal(append_entry(j, 3, 1, 10), second);
    assert_true(journal_durable(j) < first);
    int code;
    journal_job_run(job);
    assert_true(journal_durable(j) < first);
    assert_int_equal(journal_job_done(j, job, &code), BELAY_OK);
    assert_int_equal(journal_durable(j), first);
    assert_true(commit(j));
    assert_int_equal(journal_durable(j), second);
    journal_close(j);
    sim_disk_wipe(&d);
}

/* What was acknowledged is there again; the rest of what was being written is there or not. */
static void holds(const struct replay *got, const struct replay *want)
{
    assert_true(got->last >= want->last || got->term > want->term);
    assert_true(got->term > want->term || (got->term == want->term && got->vote == want->vote));
    assert_true(got->snapshot >= want->snapshot);
    assert_true(got->first <= got->snapshot + 1);
    if (want->quiet_term == 0)
        return;
    assert_int_equal(got->quiet_term, QUIET_TERM);
    assert_int_equal(got->quiet_vote, QUIET_VOTE);
    assert_int_equal(got->quiet_snapshot, QUIET_SNAPSHOT);
}

static bool is_empty(const struct sim_disk *d)
{
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        if (d->files[i].used)
            return false;
    return true;
}

/* A start: the disk is alive again, and will die at its change number `at` (0: it will not).
 * What is in it must be what `want` says, and `steps` of the script follow. */
static void live(struct sim_disk *d, uint64_t at, int steps, struct replay *want)
{
    static struct replay got;
    struct journal *j = NULL;
    sim_disk_revive(d);
    d->crash_in = at;
    enum belay_err err = open_on(d, is_empty(d), &got, &j);
    if (err != BELAY_OK && d->dead)
        return; /* it died while it was reading */
    if (err != BELAY_OK)
        fail_msg("%s", journal_problem());
    holds(&got, want);
    *want = got;
    run_script(j, want, steps);
    journal_close(j);
}

/* How often a journal rolls while it lives for so many steps. */
static uint64_t rolls(int steps)
{
    static struct sim_disk d;
    static struct replay want;
    uint64_t number = 0;
    memset(&want, 0, sizeof want);
    sim_disk_init(&d, 1);
    live(&d, 0, steps, &want);
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        if (d.files[i].used && strtoull(d.files[i].name + 8, NULL, 16) > number)
            number = strtoull(d.files[i].name + 8, NULL, 16);
    sim_disk_wipe(&d);
    return number - 1;
}

/* Power off during each single change of the disk, of a journal's first life (reaching the
 * crash with the disk at `at`), of the restart after it, and (with a random choice of points)
 * of the restart after that one: everything acknowledged is there in the end, and the journal
 * goes on for two more segments. */
enum { LIFE_1 = 60, LIFE_2 = 30, LIFE_3 = 30, LIFE_4 = 40 };

static uint64_t crash_restarts(struct sim_disk *first, const struct replay *acked,
                               uint64_t seed)
{
    static struct sim_disk d;
    static struct replay want;
    uint64_t points = 0;
    for (uint64_t at = 1;; at++) {
        sim_disk_init(&d, seed * 31 + at);
        sim_disk_copy(&d, first);
        want = *acked;
        live(&d, at, LIFE_2, &want);
        bool crashed = d.dead;
        live(&d, 1 + sim_disk_random(&d) % (2 * LIFE_3), LIFE_3, &want);
        live(&d, 0, LIFE_4, &want);
        live(&d, 0, 0, &want);
        sim_disk_wipe(&d);
        if (!crashed)
            return points;
        points++;
    }
}

static void a_crash_at_any_change_loses_nothing_acknowledged(void **state)
{
    (void)state;
    static struct sim_disk d;
    static struct replay want;
    const char *given = getenv("BELAY_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    uint64_t points = 0;
    uint64_t restarts = 0;
    print_message("# seed %" PRIu64 "\n", seed);
    assert_true(rolls(LIFE_1) >= 2 && rolls(LIFE_2) >= 2 && rolls(LIFE_4) >= 2);
    for (uint64_t at = 1;; at++) {
        sim_disk_init(&d, seed + at * 7919);
        memset(&want, 0, sizeof want);
        live(&d, at, LIFE_1, &want);
        if (!d.dead)
            break;
        points++;
        restarts += crash_restarts(&d, &want, seed + at);
        sim_disk_wipe(&d);
    }
    sim_disk_wipe(&d);
    assert_true(points > 70 && restarts > 30 * points);
    print_message("# %" PRIu64 " crash points of a first life, %" PRIu64
                  " of the restarts after them, as many of second restarts\n",
                  points, restarts);
}

static void a_failed_write_is_reported_and_not_repeated(void **state)
{
    (void)state;
    static struct sim_disk d;
    static struct replay got;
    struct journal *j;
    sim_disk_init(&d, 3);
    assert_int_equal(open_on(&d, true, &got, &j), BELAY_OK);
    uint64_t lsn = append_entry(j, 1, 1, 10);
    d.crash_in = 1;
    d.fail_errno = ENOSPC;
    struct journal_job *job = journal_job_take(j);
    journal_job_run(job);
    int code;
    assert_int_equal(journal_job_done(j, job, &code), BELAY_ERR_IO);
    assert_int_equal(code, ENOSPC);
    assert_true(journal_durable(j) < lsn);
    journal_close(j);
    sim_disk_wipe(&d);
}

static void a_full_disk_uses_the_reserve_until_there_is_room(void **state)
{
    (void)state;
    static struct sim_disk d;
    static struct replay got;
    struct journal *j;
    sim_disk_init(&d, 4);
    assert_int_equal(open_on(&d, true, &got, &j), BELAY_OK);
    assert_int_equal(journal_room(j)->needed, 0);
    d.full = true;
    uint64_t n = 0;
    while (journal_room(j)->needed == 0) {
        uint64_t lsn = append_entry(j, ++n, 1, 100);
        assert_true(commit(j));
        assert_true(journal_durable(j) >= lsn);
    }
    assert_int_equal(journal_segments(j), 2);
    assert_int_equal(journal_room(j)->needed, (JOURNAL_RESERVE + 1) * SMALL);
    journal_look_for_room(j); /* there is none */
    assert_true(journal_due(j) > 0);
    assert_true(commit(j));
    assert_true(journal_room(j)->needed > 0);
    assert_int_equal(journal_due(j), 0);
    uint64_t lsn = append_entry(j, ++n, 1, 10); /* what must be written has a place */
    assert_true(commit(j));
    assert_int_equal(journal_durable(j), lsn);
    journal_close(j);
    assert_int_equal(open_on(&d, false, &got, &j), BELAY_OK);
    assert_int_equal(got.last, n);
    assert_true(journal_room(j)->needed > 0);
    d.full = false;
    journal_look_for_room(j);
    assert_true(commit(j));
    assert_int_equal(journal_room(j)->needed, 0);
    journal_close(j);
    sim_disk_wipe(&d);
}

/* The new segment was made of the reserve; the old one says so or not. True: it does not. */
static bool crash_at_a_full_roll(uint64_t seed)
{
    static struct sim_disk d;
    static struct replay got;
    struct journal *j;
    uint64_t n = 0;
    sim_disk_init(&d, seed * UINT64_C(0x9e3779b97f4a7c15));
    assert_int_equal(open_on(&d, true, &got, &j), BELAY_OK);
    d.full = true;
    bool rolled = false;
    while (!rolled) {
        append_entry(j, ++n, 1, 100);
        d.crash_in = 2; /* in a roll: the END of the old segment */
        rolled = !commit(j);
    }
    journal_close(j);
    sim_disk_revive(&d);
    assert_int_equal(open_on(&d, false, &got, &j), BELAY_OK);
    bool unused = journal_segments(j) == 1;
    assert_true(journal_room(j)->needed > 0);
    for (n = got.last + 1; journal_segments(j) == 1; n++) { /* it has a place to go on */
        append_entry(j, n, 1, 100);
        assert_true(commit(j));
    }
    journal_close(j);
    sim_disk_wipe(&d);
    return unused;
}

static void a_crash_at_a_roll_of_a_full_disk_keeps_the_reserve(void **state)
{
    (void)state;
    unsigned unused = 0;
    enum { SEEDS = 32 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        unused += crash_at_a_full_roll(seed);
    assert_in_range(unused, 1, SEEDS - 1);
}

static bool same_replay(const struct replay *a, const struct replay *b)
{
    if (a->quiet_term != b->quiet_term || a->quiet_vote != b->quiet_vote ||
        a->quiet_snapshot != b->quiet_snapshot)
        return false;
    if (a->last != b->last || a->term != b->term || a->vote != b->vote ||
        a->snapshot != b->snapshot)
        return false;
    uint64_t from = a->first > b->first ? a->first : b->first;
    return memcmp(a->sums + from, b->sums + from,
                  (size_t)(a->last + 1 - from) * sizeof *a->sums) == 0;
}

/* A small directory, sealed as after a clean stop or a moment of rest. */
static void make_small(struct sim_disk *d, struct replay *want)
{
    struct journal *j;
    sim_disk_init(d, 5);
    assert_int_equal(open_on(d, true, want, &j), BELAY_OK);
    run_script(j, want, 60);
    journal_seal(j);
    assert_true(commit(j));
    journal_close(j);
    assert_int_equal(open_on(d, false, want, &j), BELAY_OK);
    assert_true(journal_segments(j) >= 2);
    journal_close(j);
}

struct tally {
    size_t refused, same, wrong;
};

static void judge(struct sim_disk *d, const struct replay *want, struct tally *t)
{
    static struct replay got;
    struct journal *j = NULL;
    enum belay_err err = open_on(d, false, &got, &j);
    if (err == BELAY_ERR_CORRUPT) {
        t->refused++;
    } else if (err == BELAY_OK && same_replay(&got, want)) {
        t->same++;
    } else {
        t->wrong++;
    }
    journal_close(j);
}

static void every_flipped_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    static struct sim_disk whole, d;
    static struct replay want;
    struct tally t = {0};
    make_small(&whole, &want);
    sim_disk_init(&d, 6);
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        if (!whole.files[i].used)
            continue;
        for (size_t at = 0; at < buf_len(&whole.files[i].bytes); at++) {
            sim_disk_copy(&d, &whole);
            struct sim_file *f = sim_disk_find(&d, whole.files[i].name, true);
            f->bytes.mem[f->bytes.start + at] ^= (char)(1 << at % 8);
            judge(&d, &want, &t);
        }
    }
    print_message("# flips: %zu refused, %zu harmless, %zu wrong\n", t.refused, t.same,
                  t.wrong);
    assert_int_equal(t.wrong, 0);
    assert_true(t.refused > 1000);
    sim_disk_wipe(&d);
    sim_disk_wipe(&whole);
}

static void every_cut_or_missing_file_is_refused(void **state)
{
    (void)state;
    static struct sim_disk whole, d;
    static struct replay want;
    struct tally t = {0};
    make_small(&whole, &want);
    sim_disk_init(&d, 6);
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        if (!whole.files[i].used)
            continue;
        for (size_t len = 0; len < buf_len(&whole.files[i].bytes); len++) {
            sim_disk_copy(&d, &whole);
            struct sim_file *f = sim_disk_find(&d, whole.files[i].name, true);
            f->bytes.end = f->bytes.start + len;
            judge(&d, &want, &t);
        }
        sim_disk_copy(&d, &whole);
        assert_int_equal(d.base.ops->remove(&d.base, whole.files[i].name), BELAY_OK);
        judge(&d, &want, &t);
    }
    print_message("# cuts: %zu refused, %zu harmless, %zu wrong\n", t.refused, t.same, t.wrong);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.same, 0);
    sim_disk_wipe(&d);
    sim_disk_wipe(&whole);
}

static void a_directory_belongs_to_one_process(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-journal-XXXXXX";
    assert_non_null(mkdtemp(path));
    struct disk *d, *other;
    static struct replay got;
    struct journal *j;
    assert_int_equal(disk_file_open(path, &d), BELAY_OK);
    assert_int_equal(disk_file_open(path, &other), BELAY_ERR_IN_USE);
    struct journal_config config = {
        .disk = d, .segment_bytes = SMALL, .sink = replay_record, .sink_ctx = &got};
    memset(&got, 0, sizeof got);
    assert_int_equal(journal_open(&config, true, &j), BELAY_OK);
    static struct replay want;
    memset(&want, 0, sizeof want);
    run_script(j, &want, 60);
    journal_close(j);
    memset(&got, 0, sizeof got);
    assert_int_equal(journal_open(&config, false, &j), BELAY_OK);
    assert_int_equal(got.last, want.last);
    for (uint64_t n = 1; n < 64; n++) {
        char name[DISK_NAME_MAX];
        snprintf(name, sizeof name, "journal-%016" PRIx64, n);
        assert_int_equal(d->ops->remove(d, name), BELAY_OK);
    }
    assert_int_equal(d->ops->remove(d, "reserve"), BELAY_OK);
    assert_int_equal(d->ops->remove(d, "lock"), BELAY_OK);
    journal_close(j);
    d->ops->close(d);
    assert_int_equal(rmdir(path), 0);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(nothing_is_durable_before_its_job_is_done),
        cmocka_unit_test(a_crash_at_any_change_loses_nothing_acknowledged),
        cmocka_unit_test(a_failed_write_is_reported_and_not_repeated),
        cmocka_unit_test(every_flipped_byte_is_refused_or_harmless),
        cmocka_unit_test(every_cut_or_missing_file_is_refused),
        cmocka_unit_test(a_full_disk_uses_the_reserve_until_there_is_room),
        cmocka_unit_test(a_crash_at_a_roll_of_a_full_disk_keeps_the_reserve),
        cmocka_unit_test(a_directory_belongs_to_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
