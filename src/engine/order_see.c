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
