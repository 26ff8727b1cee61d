/* place.h - the place of a node in the tables of the others.
 *
 * A member's number is never given twice, so numbers grow without a bound. Tables about nodes
 * have NODE_PLACES rows. A node stands in the row number % NODE_PLACES, and so does what its
 * clients are known by (replica_id_base). No two members ever have the same place
 * (replica_next_node): a node in whose place there is a newer one is no member any more.
 * Place 0 is nobody's. */
#ifndef BELAY_RAFT_PLACE_H
#define BELAY_RAFT_PLACE_H

#include <stddef.h>
#include <stdint.h>

enum { NODE_PLACES = 128 };

static inline size_t place_of(uint64_t node)
{
    return node % NODE_PLACES;
}
#endif
