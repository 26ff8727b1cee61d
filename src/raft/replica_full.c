/* replica_full.c - a node whose disk is full.
 *
 * The journal has used up its reserve (journal.h) and there is no space for another one, or
 * there was none for a snapshot that this node has to fetch. What the node must still write, it
 * can: votes, terms, the record of a snapshot, which gives space back. So it stays a member
 * that votes, but
 *  - it takes no request that changes anything, and no read that has to be up to date: both are
 *    answered UNAVAILABLE at once. STALE reads, status and metrics are served;
 *  - it leads nothing: it hands over to a node that can, and puts nothing into a log meanwhile;
 *  - it takes no entries from a leader, and so acknowledges none; it still hears the leader;
 *  - it fetches no snapshot.
 * Time stands still in what only it could lead. Once a second it looks for room. When the
 * reserve is there again it goes on by itself. */
#include "base/check.h"
#include "base/log.h"
#include "raft/replica_core.h"

#include <inttypes.h>

const char full_text[] =
    "the disk of this node is full: ask another node, or make space there; reads with STALE are "
    "answered";

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The time that it has given to what it led counts, and stands still from now on. */
static void stop_leading(struct replica_group *r)
{
    BELAY_CHECK(r->o->full);
    if (r->leads) {
        r->heard_ms = later(r->heard_ms, engine_stamp(r->o->engine, r->group_no));
        r->heard_at = replica_now(r->o);
    }
    r->leads = false;
    r->led_term = 0;
    for (struct pending_op *p = r->first; p; p = p->next)
        if (!p->announces)
            p->give_up_ms = 0;
}

void full_look(struct replica *o)
{
    BELAY_CHECK(o->opened);
    const struct journal_room *room = journal_room(o->journal);
    bool full = room->needed > 0;
    if (full == o->full)
        return;
    o->full = full;
    for (size_t i = 0; i < o->base.n_groups && full; i++)
        stop_leading(&o->replicas[i]);
    lead_stand(o);
    BELAY_DCHECK(!full || o->must_not_lead);
    if (full)
        log_error("order.disk_full",
                  "path=%s free=%" PRIu64 " needed=%" PRIu64
                  " next=\"STALE reads only, until there is space\"",
                  o->config.path, room->free, room->needed);
    else
        log_info("order.disk_has_room", "path=%s", o->config.path);
}

void full_tick(struct replica *o)
{
    BELAY_CHECK(o->opened && o->journal);
    if (o->full)
        journal_look_for_room(o->journal);
}

void full_append(const struct replica *o, struct peer_message *msg)
{
    BELAY_CHECK(msg->from != o->config.node);
    if (!o->full || msg->n_entries == 0)
        return;
    msg->n_entries = 0;
    if (msg->commit > msg->index)
        msg->commit = msg->index; /* what is behind it here may not be the leader's */
}
