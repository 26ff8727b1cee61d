/* replica_fetch.c - a snapshot on its way from a leader to a node that is too far behind for
 * entries.
 *
 *   leader  the core wants it sent --> SNAPSHOT, an offer: which one, how large
 *   here    ASKING --FETCH, PIECE--> STORING --> ASKING ...
 *           --> JUDGING --> SOUND --> INSTALLING
 *
 * The receiver asks for a piece when the one before is on its own disk. So at most one piece is
 * under way and in memory on either side, and all other messages go in between. The sender
 * keeps no record: it answers questions about the snapshot that it has, and about no other. A
 * leader offers again with every heartbeat. So it is enough to fetch one at a time, whatever
 * the number of groups, and a newer offer, of another leader or of a newer snapshot, takes the
 * place of an older one.
 *
 * What was fetched is stored under its real name only when all of it is known to be sound: a
 * node that took in what it cannot use would never start again. */
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "machine/machine.h"
#include "raft/replica_core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum fetch_state { FETCH_ASKING, FETCH_STORING, FETCH_JUDGING, FETCH_SOUND, FETCH_INSTALLING };

struct fetch {
    struct replica_group *r;
    enum fetch_state state;
    uint64_t from;
    uint64_t index, term, size; /* what was offered */
    char name[DISK_NAME_MAX];
    uint64_t stored; /* bytes */
    uint64_t asked_ms, moved_ms;
    struct buf piece; /* STORING */
    enum belay_err err;
    int code;             /* errno */
    struct judged judged; /* since JUDGING */
};

/* --- the node that has it --- */

bool fetch_newest(void *ctx, uint16_t group_no, struct group_snapshot *ret, uint64_t *ret_bytes)
{
    BELAY_CHECK(group_no < ((const struct replica *)ctx)->base.n_groups);
    const struct replica *o = ctx;
    const struct replica_group *r = &o->replicas[group_no];
    *ret = r->snapshot;
    *ret_bytes = r->snapshot_size;
    return r->snapshot.index > 0;
}

static void send_piece(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_FETCH && r->o->config.piece_bytes > 0);
    struct replica *o = r->o;
    struct disk *disk = o->config.disk;
    struct buf bytes = {0};
    if (r->snapshot.index != msg->index || r->snapshot.term != msg->log_term)
        return;
    r->fetched_ms = replica_now(o);
    enum belay_err err =
        disk->ops->read_at(disk, r->snapshot_name, msg->seq, o->config.piece_bytes, &bytes);
    BELAY_CHECK(buf_len(&bytes) <= o->config.piece_bytes);
    struct peer_message piece = {.type = WIRE_PIECE,
                                 .group_no = r->group_no,
                                 .from = o->config.node,
                                 .index = msg->index,
                                 .log_term = msg->log_term,
                                 .seq = msg->seq,
                                 .data = buf_slice(&bytes)};
    if (err != BELAY_OK)
        log_error("order.snapshot_unread", "file=%s", r->snapshot_name);
    else if (piece.data.len > 0)
        replica_send(o, msg->from, &piece);
    buf_done(&bytes);
}

/* --- the node that needs it --- */

static bool is_working(const struct fetch *f)
{
    return f->state == FETCH_STORING || f->state == FETCH_JUDGING;
}

static void forget(struct replica *o)
{
    BELAY_CHECK(o->fetch);
    struct fetch *f = o->fetch;
    machine_close(f->judged.state);
    buf_done(&f->piece);
    free(f);
    o->fetch = NULL;
}

static void give_up(struct replica *o)
{
    BELAY_CHECK(!is_working(o->fetch));
    if (o->fetch->stored > 0)
        journal_remove_file(o->journal, o->fetch->name);
    forget(o);
}

static void ask(struct fetch *f)
{
    BELAY_CHECK(!is_working(f) && f->stored < f->size);
    struct replica *o = f->r->o;
    struct peer_message msg = {.type = WIRE_FETCH,
                               .group_no = f->r->group_no,
                               .from = o->config.node,
                               .index = f->index,
                               .log_term = f->term,
                               .seq = f->stored};
    f->state = FETCH_ASKING;
    f->asked_ms = replica_now(o);
    replica_send(o, f->from, &msg);
}

static void begin(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(!r->o->fetch);
    struct replica *o = r->o;
    struct fetch *f = mem_zalloc(sizeof *f);
    *f = (struct fetch){.r = r,
                        .from = msg->from,
                        .index = msg->index,
                        .term = msg->log_term,
                        .size = msg->seq,
                        .moved_ms = replica_now(o)};
    snprintf(f->name, sizeof f->name, INCOMING_PREFIX "%" PRIu64, ++o->n_fetches);
    o->fetch = f;
    log_info("order.snapshot_fetch",
             "shard=%u node=%" PRIu64 " index=%" PRIu64 " bytes=%" PRIu64, r->group_no, f->from,
             f->index, f->size);
    ask(f);
}

static void take_offer(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_SNAPSHOT && msg->from != r->o->config.node);
    struct replica *o = r->o;
    const struct fetch *f = o->fetch;
    if (o->retired || o->full || msg->from != group_leader(r->group) ||
        msg->term != group_term(r->group) || msg->index == 0 || msg->log_term == 0 ||
        msg->seq == 0 || msg->index > GROUP_NUMBER_MAX ||
        group_covers(r->group, msg->index, msg->log_term))
        return;
    if (f && (f->r != r || is_working(f) || f->state == FETCH_INSTALLING))
        return; /* it is offered again */
    if (f && f->from == msg->from && f->index == msg->index && f->term == msg->log_term &&
        f->size == msg->seq)
        return;
    if (f)
        give_up(o);
    begin(r, msg);
}

static void take_piece(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_PIECE);
    struct replica *o = r->o;
    struct fetch *f = o->fetch;
    if (!f || f->r != r || f->state != FETCH_ASKING || f->from != msg->from ||
        f->index != msg->index || f->term != msg->log_term || f->stored != msg->seq ||
        msg->data.len == 0 || msg->data.len > f->size - f->stored)
        return;
    buf_put_slice(&f->piece, msg->data);
    BELAY_CHECK(!f->piece.oom);
    BELAY_CHECK(buf_len(&f->piece) <= f->size - f->stored);
    f->state = FETCH_STORING;
    o->env->fetch(o->ctx, f);
}

void fetch_receive(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no == r->group_no);
    if (msg->type == WIRE_SNAPSHOT)
        take_offer(r, msg);
    else if (msg->type == WIRE_FETCH)
        send_piece(r, msg);
    else
        take_piece(r, msg);
}

/* --- on another thread, and what comes of it --- */

static void judge(struct fetch *f)
{
    BELAY_CHECK(f->state == FETCH_JUDGING && f->stored == f->size && !f->judged.state);
    const struct replica *o = f->r->o;
    struct disk *disk = o->config.disk;
    struct slice file;
    f->err = disk->ops->map(disk, f->name, &file); /* two states are there meanwhile */
    if (f->err != BELAY_OK)
        return;
    if (!store_judge(o->base.n_groups, f->r->group_no, file, &f->judged) ||
        f->judged.snap.index != f->index || f->judged.snap.term != f->term)
        f->err = BELAY_ERR_CORRUPT;
    disk->ops->unmap(disk, file);
}

static bool is_out_of_space(const struct fetch *f)
{
    return f->state == FETCH_STORING && f->err == BELAY_ERR_IO && f->code == ENOSPC;
}

void replica_fetch_run(struct fetch *f)
{
    BELAY_CHECK(is_working(f));
    struct disk *disk = f->r->o->config.disk;
    if (f->state == FETCH_JUDGING)
        judge(f);
    else
        f->err = disk->ops->extend(disk, f->name, f->stored, buf_slice(&f->piece));
    f->code = errno;
    if (is_out_of_space(f) && disk->ops->remove(disk, f->name) != BELAY_OK)
        f->code = errno;
}

static void stored(struct replica *o, struct fetch *f)
{
    BELAY_CHECK(f == o->fetch && f->state == FETCH_STORING);
    if (is_out_of_space(f)) {
        log_error("order.snapshot_no_space", "path=%s shard=%u bytes=%" PRIu64, o->config.path,
                  f->r->group_no, f->size);
        forget(o);
        journal_found_no_room(o->journal);
        full_look(o);
        return;
    }
    if (f->err != BELAY_OK) {
        replica_disk_failed(o, f->code);
        return;
    }
    f->stored += buf_len(&f->piece);
    buf_clear(&f->piece);
    BELAY_CHECK(f->stored <= f->size);
    f->moved_ms = replica_now(o);
    if (f->stored < f->size) {
        f->state = FETCH_ASKING;
        if (!o->retired)
            ask(f);
        return;
    }
    f->state = FETCH_JUDGING;
    o->env->fetch(o->ctx, f);
}

void replica_fetched(struct replica *o)
{
    struct fetch *f = o->fetch;
    BELAY_CHECK(f && is_working(f));
    if (f->state == FETCH_STORING) {
        stored(o, f);
        return;
    }
    f->state = FETCH_SOUND;
    f->moved_ms = replica_now(o);
    if (f->err == BELAY_OK)
        return;
    log_error("order.snapshot_bad", "node=%" PRIu64 " shard=%u", f->from, f->r->group_no);
    give_up(o);
}

/* --- the end --- */

/* All of it is here: if its leader still leads, the core says whether it is wanted. */
static bool install(struct fetch *f)
{
    BELAY_CHECK(f->state == FETCH_SOUND && f->judged.state);
    struct group *g = f->r->group;
    if (group_leader(g) != f->from || !group_can_install(g))
        return false;
    f->state = FETCH_INSTALLING;
    if (!group_install(g, f->from, &f->judged.snap, replica_now(f->r->o)))
        f->state = FETCH_SOUND;
    return f->state == FETCH_INSTALLING;
}

void fetch_settle(struct replica *o)
{
    BELAY_CHECK(o->settling);
    struct fetch *f = o->fetch;
    if (!f || is_working(f) || f->state == FETCH_INSTALLING)
        return;
    uint64_t now = replica_now(o);
    bool stuck = now - f->moved_ms >= ORDER_FETCH_MS && group_can_install(f->r->group);
    if (f->state == FETCH_SOUND && install(f))
        return;
    if (stuck || o->retired || o->full || group_covers(f->r->group, f->index, f->term))
        give_up(o);
    else if (f->state == FETCH_ASKING && now - f->asked_ms >= ORDER_RESEND_MS)
        ask(f);
}

bool fetch_is_of(const struct replica_group *r)
{
    return r->o->fetch && r->o->fetch->r == r;
}

const char *fetch_file(const struct replica *o, uint64_t *ret_bytes)
{
    BELAY_CHECK(o->fetch && o->fetch->state == FETCH_INSTALLING);
    *ret_bytes = o->fetch->size;
    return o->fetch->name;
}

void fetch_take(struct replica_group *r, struct judged *ret)
{
    struct fetch *f = r->o->fetch;
    BELAY_CHECK(f && f->r == r && f->state == FETCH_INSTALLING);
    *ret = f->judged;
    f->judged.state = NULL;
    forget(r->o);
}

void fetch_done(struct replica *o)
{
    if (o->fetch)
        forget(o);
}
