/* group_snapshot.c - snapshots that this node makes, and the entries that go with them. */
#include "base/check.h"
#include "raft/group_core.h"

bool group_snapshot_begin(struct group *g, struct group_snapshot *ret)
{
    if (g->making || g->installing.index || g->applied != raft_commit_index(&g->raft) ||
        g->raft.last_stored < g->applied)
        return false; /* what is applied may not be on our own disk yet */
    /* Of two changes in the log the core takes the first for committed when it starts: nobody
     * would take a snapshot with the members of an entry that it does not cover. */
    if ((g->applied == 1 && group_guarded(g, GUARD_FIRST_ENTRY)) ||
        g->raft.configuration_committed_index > g->applied)
        return false;
    const struct log_entry *e = entry_log_get(&g->log, g->applied);
    if (!e || g->raft.trail.snapshot.index == g->applied)
        return false;
    g->making = true;
    ret->index = g->applied;
    ret->term = e->term;
    ret->conf_index = g->raft.configuration_committed_index;
    group_conf_committed(g, &ret->conf);
    BELAY_CHECK(ret->term > 0 && ret->conf_index <= ret->index && ret->conf.n > 0);
    return true;
}

/* Of the entries that the snapshot covers so many stay. */
static void cut_log(struct group *g, const struct group_snapshot *snap, unsigned trailing)
{
    BELAY_CHECK(snap->index > 0 && snap->conf.n > 0 && snap->index <= g->applied);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    event.snapshot.metadata = (struct raft_snapshot_metadata){
        .index = snap->index, .term = snap->term, .configuration_index = snap->conf_index};
    group_conf_to_raft(&snap->conf, &event.snapshot.metadata.configuration);
    event.snapshot.trailing = trailing;
    group_step(g, &event);
    if (snap->index > trailing && entry_log_get(&g->log, snap->index - trailing))
        entry_log_drop_to(&g->log, snap->index - trailing);
}

void group_snapshot_end(struct group *g, const struct group_snapshot *snap, bool stored,
                        unsigned trailing, uint64_t now_ms)
{
    BELAY_CHECK(g->making);
    group_advance_clock(g, now_ms);
    BELAY_CHECK(snap->index > 0);
    g->making = false;
    /* With the guard off an installation may have replaced the log meanwhile. */
    if (stored && entry_log_get(&g->log, snap->index))
        cut_log(g, snap, trailing);
}

void group_snapshot_trim(struct group *g, const struct group_snapshot *snap, uint64_t now_ms)
{
    BELAY_CHECK(snap->index <= g->applied || g->installing.index != 0);
    if (g->making || g->installing.index || snap->index == 0 ||
        g->raft.trail.snapshot.index != snap->index || !entry_log_get(&g->log, snap->index))
        return;
    group_advance_clock(g, now_ms);
    cut_log(g, snap, 0);
}
