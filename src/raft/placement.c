/* placement.c - what the leader of a group should do next about leaders and members. Pure. */
#include "raft/placement.h"

#include "base/check.h"
#include "raft/member.h"

static bool can_stand(const struct placement_node *node)
{
    return node->member && node->voter && node->up && !node->going &&
           node->priority < MEMBER_PRIORITY_NEVER;
}

static bool can_lead(const struct placement_node *node)
{
    return can_stand(node) && node->near;
}

uint64_t placement_leader(const struct placement_node *nodes, size_t n, size_t group)
{
    BELAY_CHECK(n <= (size_t)2 * GROUP_SERVERS_MAX);
    uint8_t lowest = MEMBER_PRIORITY_NEVER;
    size_t candidates = 0;
    for (size_t i = 0; i < n; i++)
        if (can_lead(&nodes[i]) && nodes[i].priority < lowest)
            lowest = nodes[i].priority;
    for (size_t i = 0; i < n; i++)
        candidates += can_lead(&nodes[i]) && nodes[i].priority == lowest;
    for (size_t i = 0; i < n; i++) {
        size_t before = 0; /* candidates with a smaller id */
        if (!can_lead(&nodes[i]) || nodes[i].priority != lowest)
            continue;
        for (size_t k = 0; k < n; k++)
            before +=
                can_lead(&nodes[k]) && nodes[k].priority == lowest && nodes[k].id < nodes[i].id;
        BELAY_CHECK(before < candidates);
        if (before == group % candidates)
            return nodes[i].id;
    }
    return 0;
}

size_t placement_rank(const struct placement_node *nodes, size_t n, size_t group, uint64_t self)
{
    size_t first = 0;  /* with a lower priority number */
    size_t peers = 0;  /* with the same one */
    size_t before = 0; /* of those, with a smaller id */
    const struct placement_node *own = NULL;
    for (size_t i = 0; i < n; i++)
        if (nodes[i].id == self && can_stand(&nodes[i]))
            own = &nodes[i];
    if (!own)
        return n;
    for (size_t i = 0; i < n; i++) {
        if (!can_stand(&nodes[i]))
            continue;
        bool peer = nodes[i].priority == own->priority;
        first += nodes[i].priority < own->priority;
        peers += peer;
        before += peer && nodes[i].id < self;
    }
    BELAY_CHECK(peers > 0 && before < peers && first + peers <= n);
    return first + (before + peers - group % peers) % peers;
}

/* Without this voter, is there still a majority that answers? */
static bool can_spare(const struct placement_node *nodes, size_t n,
                      const struct placement_node *gone)
{
    size_t voters = 0;
    size_t up = 0;
    for (size_t i = 0; i < n; i++) {
        if (!nodes[i].member || !nodes[i].voter || &nodes[i] == gone)
            continue;
        voters++;
        up += nodes[i].up;
    }
    BELAY_CHECK(up <= voters);
    return up > voters / 2;
}

static enum placement_step step_of(const struct placement_node *nodes, size_t n,
                                   const struct placement_node *node, uint64_t self)
{
    BELAY_CHECK(node->id != 0);
    if (node->member && !node->wanted)
        return node->id != self && can_spare(nodes, n, node) ? STEER_REMOVE : STEER_NONE;
    if (!node->member && node->wanted)
        return STEER_ADD;
    if (node->member && !node->voter && node->wanted_voter && node->up && node->near)
        return STEER_PROMOTE;
    return STEER_NONE;
}

enum placement_step placement_change(const struct placement_node *nodes, size_t n,
                                     uint64_t self, uint64_t *ret_id)
{
    BELAY_CHECK(n <= (size_t)2 * GROUP_SERVERS_MAX && self != 0);
    static const enum placement_step order[] = {STEER_REMOVE, STEER_ADD, STEER_PROMOTE};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        for (size_t i = 0; i < n; i++) {
            if (step_of(nodes, n, &nodes[i], self) != order[k])
                continue;
            BELAY_CHECK(nodes[i].id != 0);
            *ret_id = nodes[i].id;
            return order[k];
        }
    }
    return STEER_NONE;
}
