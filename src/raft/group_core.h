/* group_core.h - the inside of a group: for the files group*.c, which know libraft.
 *
 * Built for 0.22.1, whose raft_step() has no written contract about memory; this is what its
 * source does, and what these files rely on:
 *  - RECEIVE AppendEntries: when the step has RAFT_UPDATE_ENTRIES the caller keeps
 *    entries[0].batch, in every other case the core frees it. We give it one byte as a token,
 *    never our data.
 *  - RECEIVE InstallSnapshot: the same with conf and data, and RAFT_UPDATE_SNAPSHOT.
 *  - SUBMIT: the caller keeps everything. The barrier of a new leader is the core's own malloc,
 *    and comes as an update whose batch the caller frees.
 *  - START, CONFIGURATION, SNAPSHOT, PERSISTED_SNAPSHOT: the core takes the configuration.
 *  - messages: valid until the next step; the entries to send are the caller's to fill in.
 * Out of memory stops the process before the core can see it (raft_heap_set). */
#ifndef BELAY_RAFT_GROUP_CORE_H
#define BELAY_RAFT_GROUP_CORE_H

#include "raft/group.h"

#include <raft.h>

#if !defined(RAFT_VERSION_NUMBER) || RAFT_VERSION_NUMBER < 2201
#error "libraft 0.22.1 or later is needed: 0.15 commits entries of older terms by counting"
#endif

/* A message that must not leave before the term and vote behind it are durable. */
struct held {
    struct held *next;
    uint64_t to, lsn;
    struct buf bytes;
};

/* Leader: up to where a follower has been told the commit index, or offered a snapshot. */
struct told {
    uint64_t id, term, index;
};

struct gate {
    bool closed, has_floor;
    struct group_floor floor;
};

struct group {
    struct raft raft;
    const struct group_env *env;
    void *ctx;
    uint16_t group_no;
    unsigned guards_off;
    bool never_leads;
    bool no_answer;                      /* to the message that is being received */
    bool is_old;                         /* and that is of an earlier term */
    const struct peer_message *asked;    /* and that asks for a vote; else NULL */
    uint64_t entries_term, entries_from; /* the last one that sent entries, and its term */
    struct gate gate;
    struct entry_log log;
    uint64_t applied;
    uint64_t durable;  /* the journal got that far */
    uint64_t vote_lsn; /* nothing may be sent before it */
    struct held *held; /* oldest first */
    struct held **held_end;
    struct group_snapshot installing; /* index 0: none */
    uint64_t install_lsn;
    bool making;                         /* a snapshot of our own */
    uint64_t term_start;                 /* leader: last index when the term began */
    struct told told[GROUP_SERVERS_MAX]; /* by place in the configuration */
    struct told offered[GROUP_SERVERS_MAX];
    size_t rank;       /* so many should stand before this node */
    uint64_t led_term; /* the last one in which a leader was known */
    unsigned timeout;  /* of its next election, as it follows from that */
    uint64_t now_ms;
};

static inline bool group_guarded(const struct group *g, enum group_guard guard)
{
    return !(g->guards_off & guard);
}

static inline void group_advance_clock(struct group *g, uint64_t now_ms)
{
    if (now_ms > g->now_ms)
        g->now_ms = now_ms;
}

/* One step of the core, and what it wants done. Its only failure is a defect: the process must
 * not go on. */
void group_step(struct group *g, struct raft_event *event);
void group_take_update(struct group *g, struct raft_update *u);
/* Applies what is committed and here; after every step, and never from inside one. */
void group_apply_committed(struct group *g);
/* The core hears that this configuration is committed, if it does not know a later one. */
void group_settle_conf(struct group *g, uint64_t index, struct slice data);
uint64_t group_persist_vote(struct group *g, uint64_t term, uint64_t vote);
bool group_only_voter(const struct group_conf *conf, uint64_t id);
void group_set_timeout(struct group *g); /* after a step: when to stand, if it drew anew */
/* Without GUARD_OWN_TERM, a leader commits what has enough copies, whatever its term. */
void group_count_copies(struct group *g);
/* What that member was offered last, or where to write it down; NULL: it is none. */
struct told *group_offered(struct group *g, uint64_t id);
/* group_gate.c: what may be said while the gate is closed. */
uint64_t group_gate_index(const struct group *g, uint64_t index); /* acknowledged up to there */
bool group_may_stand(const struct group *g, uint64_t term);
void group_gate_hint(const struct group *g, struct peer_message *refusal); /* of a pre-vote */
bool group_may_vote(const struct group *g); /* for the candidate that asks */
void group_conf_to_raft(const struct group_conf *conf, struct raft_configuration *c);
#endif
