/* peer_message.h - what one node says to another about one Raft group, and its binary form.
 *
 * Nothing here knows libraft or sockets: the transport moves the bytes, group.c and
 * replica.c read them. Everything is length-checked before it is used; numbers that make no
 * sense are the reader's to refuse. */
#ifndef BELAY_RAFT_PEER_MESSAGE_H
#define BELAY_RAFT_PEER_MESSAGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WIRE_ENTRIES_MAX = 1024, /* of one message */
};

enum wire_type {
    WIRE_NONE,
    WIRE_APPEND,        /* term, index + log_term: what is before the entries, commit, entries;
                           seq: the leader's time, reject: so far it knows the receiver to be
                           in this term */
    WIRE_APPEND_RESULT, /* term, index: last entry that is stored, reject, features */
    WIRE_VOTE,          /* term, index + log_term: the candidate's last entry, flags */
    WIRE_VOTE_RESULT,   /* term, flags, features */
    WIRE_SNAPSHOT,      /* an offer: term, index + log_term: its last entry, seq: its bytes */
    WIRE_TIMEOUT_NOW,   /* term, index + log_term: the leader's last entry */
    WIRE_PROBE,         /* term, seq: am I still your leader? */
    WIRE_PROBE_ACK,     /* term, seq */
    WIRE_FORWARD,       /* term: run, log_term: start, seq: of the first op, data: ops for the
                           leader to order */
    WIRE_READ,          /* seq: how far must I apply to read? */
    WIRE_READ_AT,       /* seq, index, commit: the leader's time */
    WIRE_FETCH,         /* index + log_term: of the snapshot, seq: from which byte on? */
    WIRE_PIECE,         /* the same, data: some bytes of it */
    WIRE_ASK,           /* an operator's wish: term: run, seq, index: what, commit: priority,
                           conf: name, data: address, features + conf_index: sum of a secret,
                           log_term: level */
    WIRE_TOLD,          /* term, seq: of the ASK, reject: enum belay_err */
    WIRE_NODE,          /* of a node, not of a group: seq: its run, index: priority,
                           commit: how far it is in group 0, flags; term: the highest level
                           of its groups, log_term: the highest that it knows; conf_index: its
                           start, features: what its clock shows, conf: the members of group
                           0, as it knows them. Or, to one that is starting: reject: its start,
                           data: how far this node is in each group (replica_start.c) */
    WIRE_TYPE_COUNT
};

enum wire_flag {
    WIRE_DISRUPT = 1,
    WIRE_PRE_VOTE = 2,
    WIRE_GRANTED = 4,
    WIRE_RETIRING = 8,
    WIRE_DRAINED = 16,
    WIRE_NO_ANSWER = 32,     /* APPEND: unless it does not fit */
    WIRE_STARTING = 64,      /* NODE: how far are you? */
    WIRE_LEVEL_MANUAL = 128, /* NODE: an operator raises the level */
};

struct peer_entry {
    uint64_t term;
    uint8_t type;
    struct slice data;
};

struct peer_message {
    enum wire_type type;
    uint16_t group_no;
    uint64_t from; /* node id; the transport has checked it */
    uint64_t term, index, log_term, commit, reject, conf_index, seq;
    uint64_t flags, features;
    struct slice conf, data;
    const struct peer_entry *entries;
    size_t n_entries;
};

void peer_message_encode(const struct peer_message *w, struct buf *out);
/* A frame holds all that one node has to say to another at a moment, one message after the
 * other. peer_message_next() takes the first one off `frame`. */
void peer_message_put(const struct peer_message *w, struct buf *frame);
BELAY_MUST_CHECK enum belay_err peer_message_next(struct slice *frame, struct arena *a,
                                                  struct peer_message *ret_w);
/* Borrows from `in`, and the entries from `a`. BELAY_ERR_CORRUPT: not a message. */
BELAY_MUST_CHECK enum belay_err peer_message_decode(struct slice in, struct arena *a,
                                                    struct peer_message *ret_w);
#endif
