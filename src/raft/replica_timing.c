/* replica_timing.c - how long commits take, for a runtime that wants to know. */
#include "raft/replica_core.h"

#include "base/check.h"

void timing_proposed(struct replica_group *r)
{
    const struct replica *o = r->o;
    if (!o->env->now_ns || r->timed_index)
        return;
    r->timed_index = group_last(r->group);
    r->timed_term = group_term(r->group);
    r->timed_ns = o->env->now_ns(o->ctx);
    BELAY_CHECK(r->timed_index > 0);
}

void timing_applied(struct replica_group *r, uint64_t index)
{
    const struct replica *o = r->o;
    if (!r->timed_index || index < r->timed_index)
        return;
    BELAY_CHECK(o->env->committed && o->env->now_ns);
    if (group_term(r->group) == r->timed_term) /* else another entry may have its index */
        o->env->committed(o->ctx, o->env->now_ns(o->ctx) - r->timed_ns);
    r->timed_index = 0;
}
