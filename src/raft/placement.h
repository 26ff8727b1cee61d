/* placement.h - what the leader of a group should do next: about its leader and its members.
 *
 * Pure: what is known of the nodes goes in, one decision comes out. Group 0 is told by the
 * operator which nodes are members; every other group follows it one step at a time. */
#ifndef BELAY_RAFT_PLACEMENT_H
#define BELAY_RAFT_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A node as the leader of one group sees it. */
struct placement_node {
    uint64_t id;
    uint8_t priority;          /* 0 leads first, 15 never */
    bool member, voter;        /* of this group */
    bool wanted, wanted_voter; /* and as it should be */
    bool up;                   /* heard of a moment ago */
    bool near;                 /* its log is almost as long as the leader's */
    bool going;                /* it is being stopped or removed: it must not lead */
};

/* The node that should lead group `group`. Of the voters that are up and near, those with the
 * lowest priority number take the groups in turn, in the order of their ids. 0: no node can. */
uint64_t placement_leader(const struct placement_node *nodes, size_t n, size_t group);

/* The leader is gone: how many nodes should stand for election before `self`? Those with a lower
 * priority number, and of the same number those whose turn comes first. A node that must not
 * lead stands last. */
size_t placement_rank(const struct placement_node *nodes, size_t n, size_t group,
                      uint64_t self);

/* The next change of the members of a group that `self` leads. Leaving members are removed first,
 * as soon as a majority of the others is up. A new member learns, and votes when it is near. A
 * leader does not remove itself: it hands over first. */
enum placement_step { STEER_NONE, STEER_ADD, STEER_PROMOTE, STEER_REMOVE };
enum placement_step placement_change(const struct placement_node *nodes, size_t n,
                                     uint64_t self, uint64_t *ret_id);
#endif
