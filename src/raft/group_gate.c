/* group_gate.c - a node that has just started may have forgotten what it promised.
 *
 * Its disk may be an older copy of itself. Then it would acknowledge entries for an old leader
 * although it has voted for a new one, or elect a leader that lacks what it had acknowledged.
 * So its word does not count at first: it votes for nobody, does not stand, and acknowledges
 * only what is committed without it. The gate opens when
 *
 *   the cluster has committed its start: the nodes that did so have all that is committed, and
 *   none of them had gone on to a later term that this node may have voted in; or
 *   every other voter has said how far it is (the floor): none of them knows of a vote in a
 *   later term, so it may acknowledge from the latest of their terms on; and in later ones it
 *   may help a candidate whose log is as long as the longest of them. */
#include "base/check.h"
#include "raft/group_core.h"

void group_set_never_leads(struct group *g, bool never)
{
    g->never_leads = never;
}

void group_gate_close(struct group *g)
{
    BELAY_CHECK(!g->gate.closed);
    g->gate = (struct gate){.closed = true};
}

void group_gate_open(struct group *g)
{
    BELAY_DCHECK(!g->asked);
    g->gate.closed = false;
}

/* It goes on to the latest of the others' terms, as if it had been told by a message of it. */
void group_gate_lower(struct group *g, const struct group_floor *floor)
{
    BELAY_CHECK(g->gate.closed);
    g->gate.has_floor = true;
    g->gate.floor = *floor;
    if (floor->term <= g->raft.current_term || g->raft.state == RAFT_LEADER)
        return;
    g->raft.current_term = floor->term;
    g->raft.voted_for = 0;
    g->vote_lsn = group_persist_vote(g, floor->term, 0);
}

void group_stands(const struct group *g, struct group_floor *ret)
{
    uint64_t last = g->raft.last_stored; /* what is not on disk may be lost again */
    const struct log_entry *e = entry_log_get(&g->log, last);
    *ret = (struct group_floor){.term = raft_current_term(&g->raft),
                                .log_term = e ? e->term : g->raft.trail.snapshot.term,
                                .index = last};
    BELAY_CHECK(ret->index <= entry_log_last(&g->log) ||
                ret->index == g->raft.trail.snapshot.index);
}

static bool is_as_long(uint64_t log_term, uint64_t index, const struct group_floor *floor)
{
    BELAY_DCHECK(floor->log_term <= GROUP_NUMBER_MAX && floor->index <= GROUP_NUMBER_MAX);
    return log_term != floor->log_term ? log_term > floor->log_term : index >= floor->index;
}

bool group_may_vouch(const struct group *g)
{
    BELAY_DCHECK(!g->gate.has_floor || g->gate.floor.term <= GROUP_NUMBER_MAX);
    return !g->gate.closed ||
           (g->gate.has_floor && raft_current_term(&g->raft) >= g->gate.floor.term);
}

uint64_t group_gate_index(const struct group *g, uint64_t index)
{
    uint64_t commit = raft_commit_index(&g->raft);
    uint64_t said = group_may_vouch(g) || index < commit ? index : commit;
    BELAY_DCHECK(said <= index);
    return said;
}

bool group_may_stand(const struct group *g, uint64_t term)
{
    BELAY_CHECK(term > 0);
    struct group_floor own;
    group_stands(g, &own);
    return !g->gate.closed || (g->gate.has_floor && term > g->gate.floor.term &&
                               is_as_long(own.log_term, own.index, &g->gate.floor));
}

bool group_may_vote(const struct group *g)
{
    BELAY_CHECK(!g->asked || g->asked->type == WIRE_VOTE);
    const struct peer_message *asked = g->asked;
    return !g->gate.closed || (g->gate.has_floor && asked && asked->term > g->gate.floor.term &&
                               is_as_long(asked->log_term, asked->index, &g->gate.floor));
}

/* A candidate asks for a term in which this node may have voted: tell it the first later one. */
void group_gate_hint(const struct group *g, struct peer_message *refusal)
{
    BELAY_CHECK(refusal->type == WIRE_VOTE_RESULT);
    if (g->gate.closed && g->gate.has_floor && !(refusal->flags & WIRE_GRANTED) &&
        refusal->flags & WIRE_PRE_VOTE && refusal->term <= g->gate.floor.term)
        refusal->term = g->gate.floor.term + 1;
}
