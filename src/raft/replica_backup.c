/* replica_backup.c - the states of all groups at one moment, as a file of this node.
 *
 *   replica_backup_begin()  --> MEETING  a read in every group: what was answered before is here
 *                           --> WRITING  the groups fit together, nobody else forks: a child
 *                                        writes the file from its copy of the memory
 *                           --> MADE     replica_backup_read(), piece by piece, until
 *                                        replica_backup_drop(), or nobody asks any more
 *
 * Each group is at one moment, and the moments fit together: no message between groups is lost
 * or taken twice by a cluster that goes on from there (engine_is_cut). The moments of different
 * groups may lie apart by as much as this node was behind in one of them. */
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "raft/backup_format.h"
#include "raft/replica_core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum backup_state { BACKUP_MEETING, BACKUP_WRITING, BACKUP_MADE };

struct backup {
    struct backup_wish wish; /* ctx NULL: nobody waits for the answer */
    enum backup_state state;
    uint64_t give_up_ms;
    uint64_t bytes, used_ms;      /* MADE */
    bool met[JOURNAL_GROUPS_MAX]; /* the read of that group is over */
};

/* It goes with the next write, which is due now. */
static void remove_file(struct replica *o, const char *name)
{
    BELAY_CHECK(name[0]);
    journal_remove_file(o->journal, name);
    journal_look_for_room(o->journal);
}

static void name_of(uint64_t id, char name[DISK_NAME_MAX])
{
    BELAY_DCHECK(id != 0);
    snprintf(name, DISK_NAME_MAX, BACKUP_PREFIX "%016" PRIx64, id);
}

/* --- it begins --- */

/* Any read: when its turn comes, this node has all that was answered before. Nobody is asked for
 * the answer, and no client has asker 0. */
static void meet(struct replica_group *r)
{
    BELAY_CHECK(r->o->backup);
    struct op op = {.kind = OP_CHECK, .name = SLICE("backup"), .owner = SLICE("backup")};
    read_add(r, &op);
}

enum belay_err replica_backup_begin(struct replica *o, const struct backup_wish *wish)
{
    BELAY_CHECK(o->opened && wish->id != 0 && wish->answer && wish->ctx);
    struct backup *b = o->backup;
    uint64_t now = replica_now(o);
    if (o->retired || o->full)
        return BELAY_ERR_UNAVAILABLE;
    if (b && (b->state != BACKUP_MADE || now - b->used_ms < ORDER_BACKUP_REST_MS))
        return BELAY_ERR_IN_USE;
    if (b)
        replica_backup_drop(o, b->wish.id);
    o->backup = mem_zalloc(sizeof *o->backup);
    o->backup->wish = *wish;
    o->backup->give_up_ms = now + ORDER_BACKUP_MS;
    for (size_t i = 0; i < o->base.n_groups; i++)
        meet(&o->replicas[i]);
    o->stirred = true;
    return BELAY_OK;
}

void replica_backup_forget(struct replica *o, const void *ctx)
{
    BELAY_DCHECK(ctx);
    if (o->backup && o->backup->wish.ctx == ctx)
        o->backup->wish.ctx = NULL;
}

static void answer(struct backup *b, enum belay_err err)
{
    BELAY_DCHECK((err == BELAY_OK) == (b->state == BACKUP_MADE));
    void *ctx = b->wish.ctx;
    b->wish.ctx = NULL;
    if (ctx)
        b->wish.answer(ctx, err, b->bytes);
}

static void give_up(struct replica *o, enum belay_err err)
{
    BELAY_CHECK(o->backup && o->backup->state != BACKUP_MADE);
    struct backup *b = o->backup;
    o->backup = NULL;
    answer(b, err);
    free(b);
}

static bool has_met(const struct replica_group *r)
{
    BELAY_CHECK(r->o->backup);
    for (const struct pending_read *q = r->reads; q; q = q->next)
        if (q->asker == 0)
            return false;
    return true;
}

static bool is_moment(struct replica *o)
{
    BELAY_CHECK(o->backup->state == BACKUP_MEETING);
    bool all = true;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        bool *met = &o->backup->met[i];
        *met = *met || has_met(&o->replicas[i]);
        all = all && *met;
    }
    return all && engine_is_cut(o->engine);
}

static void start_child(struct replica *o)
{
    BELAY_CHECK(!o->snapshotting);
    struct snapshot_task *task = mem_zalloc(sizeof *task);
    *task = (struct snapshot_task){.o = o, .of_backup = true};
    name_of(o->backup->wish.id, task->name);
    o->backup->state = BACKUP_WRITING;
    o->snapshotting = true;
    o->env->snapshot(o->ctx, task);
}

void backup_settle(struct replica *o)
{
    BELAY_CHECK(o->settling);
    struct backup *b = o->backup;
    if (!b || b->state != BACKUP_MEETING)
        return;
    if (o->retired || o->full || (!o->snapshotting && replica_now(o) >= b->give_up_ms))
        give_up(o, BELAY_ERR_UNAVAILABLE);
    else if (is_moment(o) && !o->snapshotting)
        start_child(o);
}

/* --- the child --- */

struct writing {
    struct disk *disk;
    const char *name;
    uint64_t at;
    uint32_t number;
};

static bool put(struct writing *w, struct slice bytes)
{
    BELAY_CHECK(w->name[0]);
    if (bytes.len > 0 && w->disk->ops->extend(w->disk, w->name, w->at, bytes) != BELAY_OK)
        return false;
    w->at += bytes.len;
    return true;
}

static bool put_part(struct writing *w, enum backup_kind kind, struct slice content)
{
    BELAY_CHECK(content.len > 0 || kind == BACKUP_END);
    char frame[BACKUP_FRAME];
    backup_frame(kind, w->number++, content, frame);
    return put(w, slice_of(frame, sizeof frame)) && put(w, content);
}

/* Its members, its log and its number in it do not count in another cluster. */
static void encode_group(const struct replica_group *r, struct buf *out)
{
    BELAY_CHECK(buf_len(out) == 0);
    uint64_t index = group_applied(r->group);
    uint64_t term = group_term(r->group);
    struct group_snapshot snap = {.index = index ? index : 1, .term = term ? term : 1};
    group_conf(r->group, &snap.conf);
    store_encode(r, &snap, out);
}

static bool put_groups(struct writing *w, const struct replica *o, struct buf *bytes)
{
    BELAY_CHECK(w->number == 1);
    bool ok = true;
    for (size_t i = 0; i < o->base.n_groups && ok; i++) {
        buf_clear(bytes);
        encode_group(&o->replicas[i], bytes);
        ok = put_part(w, BACKUP_GROUP, buf_slice(bytes));
    }
    return ok;
}

bool backup_write(const struct snapshot_task *task)
{
    BELAY_CHECK(task->of_backup);
    const struct replica *o = task->o;
    BELAY_DCHECK(o->backup && o->backup->state == BACKUP_WRITING);
    const struct backup_wish *wish = &o->backup->wish;
    struct backup_head head = {wish->id, o->cluster, o->config.node, o->base.n_groups,
                               wish->wall_ms};
    struct writing w = {.disk = o->config.disk, .name = task->name};
    struct buf bytes = {0};
    backup_head_encode(&head, &bytes);
    bool ok = put_part(&w, BACKUP_HEAD, buf_slice(&bytes)) && put_groups(&w, o, &bytes) &&
              put_part(&w, BACKUP_END, SLICE(""));
    if (!ok)
        log_error("order.backup_failed", "file=%s error=\"%s\"", task->name, strerror(errno));
    buf_done(&bytes);
    return ok;
}

void backup_written(struct replica *o, bool stored)
{
    struct backup *b = o->backup;
    struct disk *disk = o->config.disk;
    char name[DISK_NAME_MAX];
    BELAY_CHECK(b && b->state == BACKUP_WRITING);
    name_of(b->wish.id, name);
    if (!stored || disk->ops->size(disk, name, &b->bytes) != BELAY_OK) {
        remove_file(o, name);
        give_up(o, BELAY_ERR_IO);
        return;
    }
    log_info("order.backup", "file=%s bytes=%" PRIu64, name, b->bytes);
    b->state = BACKUP_MADE;
    b->used_ms = replica_now(o);
    answer(b, BELAY_OK);
}

/* --- it is fetched --- */

static bool is_made(const struct replica *o, uint64_t id)
{
    BELAY_DCHECK(!o->backup || o->backup->wish.id != 0);
    return o->backup && o->backup->state == BACKUP_MADE && o->backup->wish.id == id;
}

bool replica_backup_find(struct replica *o, uint64_t id, uint64_t *ret_bytes)
{
    if (!is_made(o, id))
        return false;
    BELAY_DCHECK(o->backup->used_ms <= replica_now(o));
    o->backup->used_ms = replica_now(o);
    *ret_bytes = o->backup->bytes;
    return true;
}

enum belay_err replica_backup_read(const struct replica *o, uint64_t id, uint64_t at,
                                   struct buf *out)
{
    BELAY_DCHECK(o->opened);
    struct disk *disk = o->config.disk;
    char name[DISK_NAME_MAX];
    name_of(id, name);
    return disk->ops->read_at(disk, name, at, ORDER_PIECE_BYTES, out);
}

void replica_backup_drop(struct replica *o, uint64_t id)
{
    char name[DISK_NAME_MAX];
    if (!is_made(o, id))
        return;
    BELAY_DCHECK(!o->backup->wish.ctx); /* it was answered when it was made */
    name_of(id, name);
    remove_file(o, name);
    free(o->backup);
    o->backup = NULL;
}

void backup_tick(struct replica *o)
{
    BELAY_CHECK(o->opened);
    const struct backup *b = o->backup;
    if (b && b->state == BACKUP_MADE && replica_now(o) - b->used_ms >= ORDER_BACKUP_KEEP_MS)
        replica_backup_drop(o, b->wish.id);
}

void backup_done(struct replica *o)
{
    free(o->backup);
}
