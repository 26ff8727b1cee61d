/* replica_store.c - what the order keeps on disk: its identity, its log, its snapshots.
 *
 *   identity            cluster, node, shards, and how often it was started
 *   journal-*           terms, votes and entries of all shards (journal.h)
 *   snapshot-S-I-T      state of shard S up to entry I of term T
 *   incoming-N          one that is being fetched (replica_fetch.c)
 *   backup-N            all shards, for an operator who fetches it (replica_backup.c)
 *
 * A snapshot counts when the journal says so: it is durable before its record is. */
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "machine/machine.h"
#include "machine/varint.h"
#include "raft/replica_core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_HEAD = 16, PINNED_SEGMENTS = 3 };
static const char IDENTITY_MAGIC[8] = {'B', 'E', 'L', 'A', 'Y', 'I', 'D', '1'};
static const char SNAPSHOT_MAGIC[8] = {'B', 'E', 'L', 'A', 'Y', 'S', 'N', '1'};

static _Thread_local char problem[768];

const char *replica_problem(void)
{
    return problem;
}

void store_problem(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misreads va_start */
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
}

/* --- files with a head: magic, version, checksum of the rest --- */

static void put_u32_at(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (8 * i));
}

static void file_begin(struct buf *out, const char magic[8], uint32_t version)
{
    BELAY_CHECK(buf_len(out) == 0 && version > 0);
    char head[FILE_HEAD] = {0};
    memcpy(head, magic, 8);
    put_u32_at(head + 8, version);
    buf_put(out, head, sizeof head);
}

static void file_end(struct buf *out)
{
    BELAY_CHECK(!out->oom);
    BELAY_CHECK(buf_len(out) >= FILE_HEAD);
    char *head = out->mem + out->start;
    put_u32_at(head + 12, crc32c(0, head + FILE_HEAD, buf_len(out) - FILE_HEAD));
}

static bool file_open(struct slice in, const char magic[8], uint32_t version,
                      struct reader *ret)
{
    char head[FILE_HEAD] = {0};
    *ret = (struct reader){.bad = true};
    if (in.len < FILE_HEAD)
        return false;
    memcpy(head, magic, 8);
    put_u32_at(head + 8, version);
    put_u32_at(head + 12, crc32c(0, in.data + FILE_HEAD, in.len - FILE_HEAD));
    *ret = (struct reader){.left = slice_of(in.data + FILE_HEAD, in.len - FILE_HEAD)};
    return memcmp(head, in.data, FILE_HEAD) == 0;
}

/* BELAY_ERR_CORRUPT, and why: it may also be whole, and of a later program. */
static enum belay_err damaged(struct slice in, uint32_t newest, const char *name)
{
    uint32_t version = 0;
    for (size_t i = 0; i < 4 && in.len >= FILE_HEAD; i++)
        version |= (uint32_t)(unsigned char)in.data[8 + i] << (8 * i);
    if (version > newest)
        store_problem("%s: has version %u, this program reads up to %u: damaged, or of a newer "
                      "belay",
                      name, version, newest);
    else
        store_problem("%s: missing or damaged", name);
    return BELAY_ERR_CORRUPT;
}

/* --- identity --- */

enum belay_err store_write_identity(struct replica *o)
{
    BELAY_CHECK(place_of(o->config.node) != 0 && o->base.n_groups > 0);
    struct buf out = {0};
    file_begin(&out, IDENTITY_MAGIC, FORMAT_IDENTITY);
    varint_put(&out, o->cluster);
    varint_put(&out, o->config.node);
    varint_put(&out, o->base.n_groups);
    varint_put(&out, o->run);
    varint_put(&out, o->incarnation);
    for (size_t i = 0; i < NODE_PLACES; i++)
        varint_put(&out, o->known[i].incarnation);
    varint_put(&out, o->over);
    for (size_t i = 0; i < NODE_PLACES; i++)
        varint_put(&out, o->known[i].node);
    file_end(&out);
    enum belay_err err =
        o->config.disk->ops->put(o->config.disk, IDENTITY_NAME, buf_slice(&out));
    if (err != BELAY_OK)
        store_problem("%s: cannot be written: %s", IDENTITY_NAME, strerror(errno));
    buf_done(&out);
    return err;
}

bool store_read_identity(struct replica *o, struct slice file, uint64_t *ret_node,
                         uint64_t *ret_groups)
{
    struct reader in;
    bool sound = file_open(file, IDENTITY_MAGIC, FORMAT_IDENTITY, &in);
    o->cluster = reader_u64(&in);
    *ret_node = reader_u64(&in);
    *ret_groups = reader_u64(&in);
    o->run = reader_u64(&in);
    o->incarnation = reader_u64(&in);
    for (size_t i = 0; i < NODE_PLACES; i++)
        o->known[i] = (struct known){.incarnation = reader_u64(&in)};
    /* What follows is not there in older ones: then a number was a place. */
    o->over = sound && in.left.len > 0 && reader_u64(&in) != 0;
    bool has_numbers = in.left.len > 0;
    for (size_t i = 0; i < NODE_PLACES; i++)
        if (o->known[i].incarnation || has_numbers)
            o->known[i].node = has_numbers ? reader_u64(&in) : i;
    return sound && !in.bad && place_of(*ret_node) != 0 && *ret_groups > 0 &&
           *ret_groups <= LIMIT_GROUPS && o->run < UINT32_MAX; /* start_number() */
}

static const char unborn_text[] =
    "; its first start was not complete: start it again as it was started first";

static enum belay_err check_identity(struct replica *o, struct slice file)
{
    BELAY_CHECK(!o->journal);
    uint64_t node;
    uint64_t groups;
    if (!store_read_identity(o, file, &node, &groups))
        return damaged(file, FORMAT_IDENTITY, IDENTITY_NAME);
    if (node != o->config.node) {
        store_problem("the data directory belongs to node %" PRIu64 ", not to %" PRIu64 "%s",
                      node, o->config.node, o->run > 0 ? "" : unborn_text);
        return BELAY_ERR_IN_USE;
    }
    if (o->config.groups_fixed && groups != o->config.groups) {
        store_problem("the data directory was made for %zu shards, not for %zu; their number "
                      "cannot be changed",
                      order_shards((size_t)groups), order_shards(o->config.groups));
        return BELAY_ERR_IN_USE;
    }
    if (o->over) {
        store_problem("%s", start_over_text);
        return BELAY_ERR_IN_USE;
    }
    o->base.n_groups = (size_t)groups;
    o->fresh = o->run == 0;
    if (o->fresh && o->config.cluster) /* it has said nothing yet in the one that it was for */
        o->cluster = o->config.cluster;
    return BELAY_OK;
}

enum belay_err store_identify(struct replica *o)
{
    BELAY_CHECK(!o->journal && o->config.groups > 0);
    struct disk *disk = o->config.disk;
    struct buf file = {0};
    bool used;
    o->base.n_groups = o->config.groups;
    enum belay_err err = disk->ops->read(disk, IDENTITY_NAME, &file);
    if (err == BELAY_OK) {
        err = check_identity(o, buf_slice(&file));
    } else if (err == BELAY_ERR_NOT_FOUND) {
        o->cluster = o->config.cluster;
        o->incarnation = o->config.seed;
        err = replica_is_used(disk, &used);
        o->fresh = err == BELAY_OK && !used;
        if (err == BELAY_OK && used) {
            store_problem("%s: missing, but the directory is not empty", IDENTITY_NAME);
            err = BELAY_ERR_CORRUPT;
        }
        if (o->fresh)
            err = store_write_identity(o); /* with run 0: the first start is not complete */
    }
    buf_done(&file);
    o->run++;
    return err;
}

void store_run(struct replica *o)
{
    BELAY_CHECK(o->run > 0);
    if (store_write_identity(o) != BELAY_OK)
        o->env->fatal(o->ctx, problem);
}

uint64_t replica_incarnation(const struct replica *o)
{
    return o->incarnation;
}

bool replica_is_same(struct replica *o, uint64_t node, uint64_t incarnation)
{
    BELAY_CHECK(place_of(node) != 0);
    struct known *k = &o->known[place_of(node)];
    if (incarnation == 0 || node < k->node)
        return false;
    if (node == k->node)
        return incarnation == k->incarnation;
    *k = (struct known){node, incarnation};
    store_run(o);
    return true;
}

/* --- snapshots --- */

static void snapshot_name(uint16_t group_no, const struct group_snapshot *snap,
                          char name[DISK_NAME_MAX])
{
    BELAY_CHECK(snap->index > 0 && snap->term > 0);
    snprintf(name, DISK_NAME_MAX, "snapshot-%u-%" PRIu64 "-%" PRIu64, group_no, snap->index,
             snap->term);
}

void store_begin(uint16_t group_no, const struct group_snapshot *snap,
                 const struct origin origins[NODE_PLACES], struct buf *out)
{
    BELAY_CHECK(snap->index > 0 && snap->conf_index <= snap->index);
    struct buf conf = {0};
    group_conf_encode(&snap->conf, &conf);
    file_begin(out, SNAPSHOT_MAGIC, FORMAT_SNAPSHOT);
    varint_put(out, group_no);
    varint_put(out, snap->index);
    varint_put(out, snap->term);
    varint_put(out, snap->conf_index);
    varint_put_bytes(out, buf_slice(&conf));
    size_t n = 0;
    for (size_t i = 0; i < NODE_PLACES; i++)
        n += origins[i].node != 0;
    BELAY_CHECK(n < NODE_PLACES);
    varint_put(out, n);
    for (size_t i = 0; i < NODE_PLACES; i++) {
        if (origins[i].node == 0)
            continue;
        varint_put(out, origins[i].node);
        varint_put(out, origins[i].run);
        varint_put(out, origins[i].applied);
        varint_put(out, origins[i].start);
    }
    buf_done(&conf);
}

void store_end(struct buf *out)
{
    file_end(out);
}

void store_encode(const struct replica_group *r, const struct group_snapshot *snap,
                  struct buf *out)
{
    store_begin(r->group_no, snap, r->origins, out);
    engine_encode(r->o->engine, r->group_no, out);
    file_end(out);
}

bool store_decode(struct slice bytes, uint16_t group_no, struct group_snapshot *ret_snap,
                  struct origin ret_origins[NODE_PLACES], struct slice *ret_state)
{
    struct reader in;
    bool has_starts = file_open(bytes, SNAPSHOT_MAGIC, FORMAT_SNAPSHOT, &in);
    if (!has_starts && !file_open(bytes, SNAPSHOT_MAGIC, FORMAT_SNAPSHOT_OLDEST, &in))
        return false;
    uint64_t of = reader_u64(&in);
    ret_snap->index = reader_u64(&in);
    ret_snap->term = reader_u64(&in);
    ret_snap->conf_index = reader_u64(&in);
    struct slice conf = reader_bytes(&in);
    uint64_t n = reader_u64(&in);
    if (in.bad || of != group_no || n > NODE_PLACES || ret_snap->index == 0 ||
        ret_snap->term == 0 || group_conf_decode(conf, &ret_snap->conf) != BELAY_OK)
        return false;
    if (ret_snap->index > GROUP_NUMBER_MAX || ret_snap->term > GROUP_NUMBER_MAX ||
        ret_snap->conf_index > ret_snap->index)
        return false;
    memset(ret_origins, 0, NODE_PLACES * sizeof *ret_origins);
    for (size_t i = 0; i < n; i++) {
        uint64_t node = reader_u64(&in);
        struct origin *origin = &ret_origins[place_of(node)];
        if (place_of(node) == 0 || node > GROUP_NUMBER_MAX || origin->node != 0)
            return false;
        *origin = (struct origin){.node = node, .run = reader_u64(&in)};
        origin->applied = reader_u64(&in);
        origin->start = has_starts ? reader_u64(&in) : 0;
    }
    *ret_state = in.left;
    return !in.bad;
}

bool store_judge(size_t n_groups, uint16_t group_no, struct slice bytes, struct judged *ret)
{
    BELAY_CHECK(!ret->state);
    struct slice state;
    return store_decode(bytes, group_no, &ret->snap, ret->origins, &state) &&
           engine_decode(n_groups, group_no, state, &ret->state) == BELAY_OK;
}

static void take_judged(struct replica_group *r, const struct judged *judged)
{
    BELAY_CHECK(judged->snap.index > 0);
    r->snapshot = judged->snap;
    memcpy(r->origins, judged->origins, sizeof r->origins);
}

/* The level of the state in it; 0 also when it is damaged. */
static uint64_t snapshot_level(const struct replica_group *r, struct slice file)
{
    BELAY_CHECK(r->group_no < r->o->base.n_groups);
    struct judged *judged = mem_zalloc(sizeof *judged);
    struct slice state;
    uint64_t level = 0;
    if (store_decode(file, r->group_no, &judged->snap, judged->origins, &state))
        level = machine_snapshot_level(state);
    free(judged);
    return level;
}

static enum belay_err read_snapshot(struct replica_group *r)
{
    BELAY_CHECK(!r->state && r->snapshot.index > 0 && r->snapshot_name[0]);
    struct disk *disk = r->o->config.disk;
    struct judged *judged = mem_zalloc(sizeof *judged);
    struct buf file = {0};
    enum belay_err err = disk->ops->read(disk, r->snapshot_name, &file);
    uint64_t level = snapshot_level(r, buf_slice(&file));
    if (level > level_newest(r->o)) {
        level_problem(r->o, r->snapshot_name, level);
        err = BELAY_ERR_NO_PROTO;
    } else if (err != BELAY_OK ||
               !store_judge(r->o->base.n_groups, r->group_no, buf_slice(&file), judged) ||
               judged->snap.index != r->snapshot.index) {
        machine_close(judged->state);
        err = damaged(buf_slice(&file), FORMAT_SNAPSHOT, r->snapshot_name);
    } else {
        take_judged(r, judged);
        r->state = judged->state;
    }
    r->snapshot_size = buf_len(&file);
    free(judged);
    buf_done(&file);
    return err;
}

void store_restore_state(struct replica_group *r)
{
    BELAY_CHECK(!r->snapshot.index || r->state);
    if (r->snapshot.index)
        engine_adopt(r->o->engine, r->group_no, r->state);
    r->state = NULL;
}

/* --- records --- */

uint64_t store_persist(void *ctx, const struct journal_record *rec)
{
    BELAY_CHECK(rec->group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    return journal_append(o->journal, rec);
}

static uint64_t adopt(struct replica_group *r, const struct group_snapshot *snap,
                      const char *name, enum journal_kind kind)
{
    BELAY_CHECK(snap->index > 0 && strlen(name) < DISK_NAME_MAX);
    struct replica *o = r->o;
    if (r->snapshot.index && strcmp(r->snapshot_name, name) != 0)
        journal_remove_file(o->journal, r->snapshot_name);
    r->snapshot = *snap;
    snprintf(r->snapshot_name, sizeof r->snapshot_name, "%s", name);
    return journal_append(o->journal, &(struct journal_record){.kind = kind,
                                                               .group_no = r->group_no,
                                                               .term = snap->term,
                                                               .index = snap->index,
                                                               .data = slice_str(name)});
}

uint64_t store_install(void *ctx, uint16_t group_no, const struct group_snapshot *snap)
{
    BELAY_CHECK(group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    struct replica_group *r = &o->replicas[group_no];
    char name[DISK_NAME_MAX];
    snapshot_name(group_no, snap, name);
    journal_rename_file(o->journal, fetch_file(o, &r->snapshot_size), name);
    log_info("order.snapshot_install", "shard=%u index=%" PRIu64 " bytes=%" PRIu64, group_no,
             snap->index, r->snapshot_size);
    return adopt(r, snap, name, JOURNAL_INSTALL);
}

/* It is durable: the state jumps. What this node has waiting and what is in the snapshot
 * already was ordered without it: its outcome is not known here. Nor is that of
 * requests that waited in a line and do not any more. */
void store_restore(void *ctx, uint16_t group_no)
{
    BELAY_CHECK(group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    struct replica_group *r = &o->replicas[group_no];
    struct judged judged;
    fetch_take(r, &judged);
    take_judged(r, &judged);
    engine_adopt(o->engine, group_no, judged.state);
    r->log_bytes = r->entry_done = 0;
    start_check(r);
    const struct origin *self = replica_origin(r, o->config.node);
    uint64_t applied = self && self->run == o->run ? self->applied : 0;
    for (struct pending_op *p = r->first; p && p->number && p->number <= applied; p = p->next)
        p->give_up_ms = 0;
    for (const struct pending_op *p = r->first; p; p = p->next)
        engine_expects(o->engine, p->asker);
    engine_missed(o->engine, group_no);
}

/* A node that kept what it cannot read would never start again. The bytes are not copied: the
 * state is there twice meanwhile, and a node may be as full as that allows. */
static bool is_sound(const struct snapshot_task *task)
{
    BELAY_CHECK(task->name[0] && task->snap.index > 0);
    struct disk *disk = task->o->config.disk;
    struct judged *judged = mem_zalloc(sizeof *judged);
    struct slice bytes;
    bool sound = false;
    if (disk->ops->map(disk, task->name, &bytes) == BELAY_OK) {
        sound = store_judge(task->o->base.n_groups, task->group_no, bytes, judged) &&
                judged->snap.index == task->snap.index && judged->snap.term == task->snap.term;
        disk->ops->unmap(disk, bytes);
    }
    machine_close(judged->state);
    free(judged);
    return sound;
}

bool replica_snapshot_write(struct snapshot_task *task)
{
    BELAY_CHECK(task->group_no < task->o->base.n_groups);
    struct replica *o = task->o;
    struct buf bytes = {0};
    if (task->of_backup)
        return backup_write(task);
    store_encode(&o->replicas[task->group_no], &task->snap, &bytes);
    enum belay_err err =
        o->config.disk->ops->put(o->config.disk, task->name, buf_slice(&bytes));
    const char *why = strerror(errno);
    buf_done(&bytes);
    if (err == BELAY_OK && is_sound(task))
        return true;
    log_error("order.snapshot_unusable", "file=%s error=\"%s\"", task->name,
              err == BELAY_OK ? "the file was read back, and its state is not sound" : why);
    replica_snapshot_discard(task);
    return false;
}

void replica_snapshot_discard(struct snapshot_task *task)
{
    BELAY_CHECK(task->name[0]);
    struct disk *disk = task->o->config.disk;
    enum belay_err err = disk->ops->remove(disk, task->name);
    (void)err; /* it goes at the next start */
}

void replica_snapshotted(struct replica *o, struct snapshot_task *task, bool stored)
{
    struct replica_group *r = &o->replicas[task->group_no];
    struct disk *disk = o->config.disk;
    BELAY_CHECK(o->snapshotting && task->group_no < o->base.n_groups);
    o->snapshotting = false;
    if (task->of_backup) {
        backup_written(o, stored);
        free(task);
        return;
    }
    stored = stored && disk->ops->size(disk, task->name, &r->snapshot_size) == BELAY_OK;
    if (stored) {
        adopt(r, &task->snap, task->name, JOURNAL_SNAPSHOT);
        r->log_bytes -= task->log_bytes;
        r->retry_ms = 0;
        log_info("order.snapshot", "shard=%u index=%" PRIu64, task->group_no, task->snap.index);
    } else {
        r->retry_ms = replica_now(o) + ORDER_SNAPSHOT_RETRY_MS;
        o->snapshots_failed++;
        if (!o->retired) /* then it was given up */
            log_error("order.snapshot_failed", "shard=%u index=%" PRIu64, task->group_no,
                      task->snap.index);
    }
    group_snapshot_end(r->group, &task->snap, stored, task->trailing, replica_now(o));
    free(task);
}

static void begin_snapshot(struct replica_group *r, unsigned trailing)
{
    struct replica *o = r->o;
    struct group_snapshot snap;
    if (o->snapshotting || replica_now(o) < r->retry_ms ||
        !group_snapshot_begin(r->group, &snap))
        return;
    BELAY_CHECK(snap.conf_index <= snap.index);
    struct snapshot_task *task = mem_zalloc(sizeof *task);
    *task = (struct snapshot_task){.o = o,
                                   .group_no = r->group_no,
                                   .snap = snap,
                                   .trailing = trailing,
                                   .log_bytes = r->log_bytes};
    snapshot_name(r->group_no, &snap, task->name);
    o->snapshotting = true;
    o->env->snapshot(o->ctx, task);
}

void replica_snapshot_now(struct replica *o)
{
    BELAY_CHECK(o->opened);
    for (size_t i = 0; i < o->base.n_groups; i++)
        begin_snapshot(&o->replicas[i], o->config.trailing);
}

/* A node that fetches the last one would have to begin again with a new one. */
static bool is_fetched(const struct replica_group *r)
{
    BELAY_CHECK(r->fetched_ms <= replica_now(r->o));
    return replica_now(r->o) - r->fetched_ms < ORDER_FETCH_MS;
}

void replica_save_memory(struct replica *o)
{
    BELAY_CHECK(o->opened);
    struct replica_group *most = NULL;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        group_snapshot_trim(r->group, &r->snapshot, replica_now(o));
        if (r->log_bytes >= (most ? most->log_bytes : ORDER_SAVE_BYTES) && !is_fetched(r))
            most = r;
    }
    if (most)
        begin_snapshot(most, 0);
}

static bool is_due(const struct replica_group *r)
{
    BELAY_CHECK(r->o->config.snapshot_bytes > 0);
    uint64_t due = r->o->config.snapshot_bytes;
    if (r->snapshot_size > due)
        due = r->snapshot_size;
    if (is_fetched(r))
        due *= 2;
    /* one that nobody takes, of before group_snapshot_begin() refused it */
    bool useless = r->snapshot.conf_index > r->snapshot.index;
    return r->log_bytes > due || useless;
}

/* A quiet shard among busy ones keeps old segments for a few entries. Is that more than a few
 * segments, and than all shards would write if each gave them up? So a large shard is not
 * written again and again to keep the journal short. */
static bool is_pinned(const struct replica *o)
{
    BELAY_CHECK(o->config.segment_bytes > 0);
    uint64_t enough = PINNED_SEGMENTS * o->config.segment_bytes;
    if (o->base.n_groups == 1 || journal_segments(o->journal) <= PINNED_SEGMENTS)
        return false;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        const struct replica_group *r = &o->replicas[i];
        enough += is_fetched(r) ? 2 * r->snapshot_size : r->snapshot_size;
    }
    return journal_bytes(o->journal) > enough;
}

void store_settle(struct replica *o)
{
    BELAY_CHECK(o->opened && o->journal);
    uint64_t oldest = UINT64_MAX;
    struct replica_group *pin = NULL;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        if (is_due(r))
            begin_snapshot(r, o->config.trailing);
        uint64_t lsn = group_oldest_lsn(r->group);
        if (lsn < oldest) {
            oldest = lsn;
            pin = r;
        }
    }
    journal_release(o->journal, oldest == UINT64_MAX ? journal_durable(o->journal) : oldest);
    /* The shard that pins the journal gives its entries up. When the disk is full, every shard
     * does. */
    if (pin && (is_pinned(o) || (o->full && journal_segments(o->journal) > 1))) {
        group_snapshot_trim(pin->group, &pin->snapshot, replica_now(o));
        begin_snapshot(pin, 0);
    }
}

/* --- start --- */

static enum belay_err sink(void *ctx, const struct journal_record *rec, uint64_t lsn)
{
    BELAY_CHECK(!((struct replica *)ctx)->opened);
    struct replica *o = ctx;
    if (rec->group_no >= o->base.n_groups)
        return BELAY_ERR_CORRUPT;
    struct replica_group *r = &o->replicas[rec->group_no];
    struct entry_log *log = &r->loaded.log;
    if (rec->kind == JOURNAL_VOTE) {
        r->loaded.term = rec->term;
        r->loaded.vote = rec->index;
    } else if (rec->kind == JOURNAL_ENTRY) {
        if (rec->index == 0 || (log->first && rec->index > entry_log_last(log) + 1))
            return BELAY_ERR_CORRUPT;
        if (rec->index < log->first) /* it replaced entries whose segments are gone */
            entry_log_reset(log, rec->index);
        struct log_entry e = {rec->term, lsn, rec->data, rec->type};
        entry_log_put(log, rec->index, &e);
    } else if (rec->kind == JOURNAL_SNAPSHOT || rec->kind == JOURNAL_INSTALL) {
        r->snapshot.index = rec->index;
        r->snapshot.term = rec->term;
        snprintf(r->snapshot_name, sizeof r->snapshot_name, "%.*s", (int)rec->data.len,
                 rec->data.data);
        if (rec->kind == JOURNAL_INSTALL)
            entry_log_reset(log, rec->index + 1);
    }
    return BELAY_OK;
}

static enum belay_err check_replica(struct replica_group *r)
{
    BELAY_CHECK(!r->group && !r->state);
    struct entry_log *log = &r->loaded.log;
    uint64_t snap = r->snapshot.index;
    if (snap) {
        enum belay_err err = read_snapshot(r);
        if (err != BELAY_OK)
            return err;
    }
    if (log->n > 0 && (log->first > snap + 1 || entry_log_last(log) < snap)) {
        store_problem("shard %u: entries %" PRIu64 " to %" PRIu64
                      " do not join the snapshot at %" PRIu64,
                      r->group_no, log->first, entry_log_last(log), snap);
        return BELAY_ERR_CORRUPT;
    }
    if (snap > r->o->config.trailing)
        entry_log_drop_to(log, snap - r->o->config.trailing);
    for (size_t i = 0; i < log->n; i++) {
        const struct log_entry *e = entry_log_get(log, log->first + i);
        struct group_conf conf;
        if (e->type == GROUP_ENTRY_CHANGE && group_conf_decode(e->data, &conf) != BELAY_OK) {
            store_problem("shard %u: entry %" PRIu64 " holds no members", r->group_no,
                          log->first + i);
            return BELAY_ERR_CORRUPT;
        }
    }
    r->loaded.snapshot = r->snapshot;
    enum belay_err err = level_check(r);
    return err == BELAY_OK ? entry_check_log(r) : err;
}

bool store_is_passing(const char *name)
{
    return strncmp(name, INCOMING_PREFIX, strlen(INCOMING_PREFIX)) == 0 ||
           strncmp(name, BACKUP_PREFIX, strlen(BACKUP_PREFIX)) == 0;
}

/* A snapshot that the journal does not know was being made or fetched when the process died;
 * and before the first start is complete, nothing counts. */
struct orphans {
    struct replica *o;
    enum belay_err err;
};

static void remove_orphan(void *ctx, const char *name)
{
    BELAY_CHECK(name[0]);
    struct orphans *orphans = ctx;
    struct replica *o = orphans->o;
    bool journal = o->fresh && !o->journal && strncmp(name, "journal-", 8) == 0;
    if (strncmp(name, "snapshot-", 9) != 0 && !store_is_passing(name) && !journal)
        return;
    for (size_t i = 0; i < o->base.n_groups; i++)
        if (o->replicas[i].snapshot.index && strcmp(name, o->replicas[i].snapshot_name) == 0)
            return;
    enum belay_err err = o->config.disk->ops->remove(o->config.disk, name);
    if (err != BELAY_OK)
        orphans->err = err;
}

static enum belay_err run_jobs(struct replica *o)
{
    BELAY_CHECK(!journal_busy(o->journal));
    struct journal_job *job = journal_job_take(o->journal);
    int code;
    if (!job)
        return BELAY_OK;
    journal_job_run(job);
    enum belay_err err = journal_job_done(o->journal, job, &code);
    if (err != BELAY_OK)
        store_problem("the data directory cannot be written: %s", strerror(code));
    return err;
}

/* The same first entry on every first member: they start as one cluster. */
static enum belay_err bootstrap(struct replica *o)
{
    BELAY_CHECK(o->fresh && o->run == 1);
    static const struct group_env env = {.persist = store_persist};
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct group_config config = {.env = &env, .ctx = o, .group_no = (uint16_t)i};
        if (o->config.members.n == 0)
            continue;
        group_bootstrap(&config, &o->config.members);
        struct buf conf = {0};
        struct entry_log *log = &o->replicas[i].loaded.log;
        group_conf_encode(&o->config.members, &conf);
        entry_log_put(log, 1, &(struct log_entry){1, 1, buf_slice(&conf), GROUP_ENTRY_CHANGE});
        buf_done(&conf);
        o->replicas[i].loaded.term = 1;
    }
    return run_jobs(o);
}

enum belay_err store_open(struct replica *o)
{
    struct orphans orphans = {o, BELAY_OK};
    if (o->config.snapshot_bytes == 0)
        o->config.snapshot_bytes = ORDER_SNAPSHOT_BYTES;
    if (o->config.segment_bytes == 0)
        o->config.segment_bytes = JOURNAL_SEGMENT_BYTES;
    if (o->config.trailing == 0)
        o->config.trailing = ORDER_TRAILING;
    if (o->config.turn_work == 0)
        o->config.turn_work = ORDER_TURN_WORK;
    if (o->config.piece_bytes == 0)
        o->config.piece_bytes = ORDER_PIECE_BYTES;
    BELAY_CHECK(!o->journal);
    struct journal_config config = {.disk = o->config.disk,
                                    .segment_bytes = o->config.segment_bytes,
                                    .salt = o->config.seed ^ o->run,
                                    .sink = sink,
                                    .sink_ctx = o};
    enum belay_err err = BELAY_OK;
    if (o->fresh)
        err = o->config.disk->ops->list(o->config.disk, remove_orphan, &orphans);
    if (err == BELAY_OK)
        err = orphans.err;
    if (err == BELAY_OK)
        err = journal_open(&config, o->fresh, &o->journal);
    if (err != BELAY_OK) {
        store_problem("%s", journal_problem());
        return err;
    }
    for (size_t i = 0; i < o->base.n_groups && err == BELAY_OK; i++)
        err = check_replica(&o->replicas[i]);
    if (err == BELAY_OK)
        err = o->config.disk->ops->list(o->config.disk, remove_orphan, &orphans);
    if (err == BELAY_OK)
        err = orphans.err;
    if (err == BELAY_OK && o->fresh)
        err = bootstrap(o);
    /* Last: until here nothing has changed, and a start that failed can be tried again. */
    return err == BELAY_OK ? store_write_identity(o) : err;
}

void replica_seal(struct replica *o)
{
    BELAY_CHECK(o->journal);
    journal_seal(o->journal);
}

void store_close(struct replica *o)
{
    journal_close(o->journal);
    o->config.disk->ops->close(o->config.disk);
}
