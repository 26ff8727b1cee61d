/* order_see.c - how this node stands: is it ready, how old is what it knows, is it at rest? */
#include "engine/order_core.h"

#include <stdio.h>

/* A leader that cannot reach a majority stops being one within an election time. The others
 * know what the leader knew when they last heard of it, and that its time goes on. */
uint64_t see_age(const struct order *base, size_t shard, uint64_t *ret_now_ms)
{
    const struct order_raft *o = (const struct order_raft *)(const void *)base;
    const struct replica *r = &o->replicas[shard];
    if (r->leads)
        return 0;
    uint64_t age_ms = order_now(o) - (r->heard_at ? r->heard_at : o->opened_ms);
    *ret_now_ms = r->heard_ms + age_ms;
    return age_ms;
}

static const char *group_not_ready(const struct replica *r)
{
    uint64_t leader = group_leader(r->group);
    if (fetch_is_of(r))
        return "a snapshot is being fetched";
    if (leader == 0)
        return "no leader is known";
    if (leader == r->o->config.node)
        return r->leads ? NULL : "the log of the last leader is not applied yet";
    return r->heard_commit > group_applied(r->group) + ORDER_BEHIND_MAX
               ? "the log of the leader is not applied yet"
               : NULL;
}

const char *see_not_ready(const struct order *base)
{
    static _Thread_local char text[128];
    const struct order_raft *o = (const struct order_raft *)(const void *)base;
    if (o->leaving)
        return "the node is being removed from its cluster";
    if (o->retired)
        return "the node is stopping";
    for (size_t i = 0; i < base->n_shards; i++) {
        const char *why = group_not_ready(&o->replicas[i]);
        if (!why)
            continue;
        snprintf(text, sizeof text, "shard %zu: %s", i, why);
        return base->n_shards > 1 ? text : why;
    }
    return NULL;
}

bool order_raft_idle(const struct order_raft *o)
{
    for (size_t i = 0; i < o->base.n_shards; i++)
        if (o->replicas[i].first || o->replicas[i].reads)
            return false;
    return true;
}

/* --- what is due, and when --- */

/* An entry costs every node a write and the leader a message to each, whatever is in it. So the
 * next one is made when the last one is committed: until then more comes. But where messages
 * take long, several are on their way. */
bool order_may_propose(const struct replica *r)
{
    return r->leads && (group_commit(r->group) >= group_last(r->group) ||
                        order_now(r->o) >= r->proposed_ms + ORDER_COMMIT_WAIT_MS);
}

size_t order_raft_due(const struct order_raft *o)
{
    if (journal_busy(o->journal))
        return 0;
    size_t bytes = journal_due(o->journal);
    for (size_t i = 0; i < o->base.n_shards; i++)
        if (order_may_propose(&o->replicas[i]))
            bytes += buf_len(&o->replicas[i].proposal);
    return bytes;
}

uint64_t order_raft_next_ms(const struct order_raft *o)
{
    uint64_t next = o->steer_ms;
    uint64_t soon = order_now(o) + ORDER_PROBE_MS;
    if ((o->asks || o->fetch) && soon < next)
        next = soon;
    for (size_t i = 0; i < o->base.n_shards; i++) {
        const struct replica *r = &o->replicas[i];
        uint64_t at = group_next_ms(r->group);
        next = at < next ? at : next;
        if ((r->first || r->reads) && soon < next)
            next = soon;
        at = r->proposed_ms + ORDER_COMMIT_WAIT_MS;
        if (r->leads && buf_len(&r->proposal) && !journal_busy(o->journal) && at < next)
            next = at;
    }
    return next;
}
