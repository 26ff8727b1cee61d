/* group.h - one Raft group on one node: libraft's core over our journal and our messages.
 *
 * The core is driven by raft_step(): an event goes in, a list of things to do comes out.
 * Nothing here has a thread, a socket or a clock. What must be durable goes to the journal, and
 * what may be seen by others only then waits for it: votes and terms hold all later messages of
 * the group back, entries are reported to the core as stored when their batch is.
 *
 * Guards stand between the world and the core (group_guard): where libraft 0.22.1 crashes,
 * diverges or never comes to rest. Found with simulators and by reading it; each can be
 * switched off, and docs/INVARIANTS.md says what the simulator then finds. */
#ifndef BELAY_RAFT_GROUP_H
#define BELAY_RAFT_GROUP_H

#include "raft/entry_log.h"
#include "raft/peer_message.h"
#include "storage/journal.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    GROUP_ENTRY_COMMAND = 1, /* type of an entry that the order reads */
    GROUP_ENTRY_CHANGE = 3,  /* and of one that holds a configuration */
    GROUP_SERVERS_MAX = 16,
    GROUP_ADDRESS_MAX = 336,
    GROUP_ENTRY_BYTES_MAX = 2 << 20, /* of one proposal: the largest op fits */
    GROUP_INFLIGHT_MAX = 1024, /* entries on their way to one follower: 5,000/s at 200 ms */
    GROUP_APPEND_BYTES = 512 << 10, /* of them in one message, but at least one */
    GROUP_CONF_BYTES_MAX = 8 + GROUP_SERVERS_MAX * (GROUP_ADDRESS_MAX + 16),
};

/* No term, index, time or count of an honest node comes near it. */
#define GROUP_NUMBER_MAX (UINT64_MAX / 4)
/* By so much a term may be ahead of this node's: nobody can use them all up at once. */
#define GROUP_TERM_LEAP (UINT64_C(1) << 32)

enum group_guard {
    GUARD_SNAPSHOT_TERM = 1,        /* InstallSnapshot names the snapshot that is really sent */
    GUARD_SNAPSHOT_BUSY = 2,        /* none is taken in while one is made or installed */
    GUARD_CHANGE_ALONE = 4,         /* a configuration is a batch of its own */
    GUARD_COMMIT_FORWARD = 8,       /* an old batch never moves the commit index back */
    GUARD_CHANGE_AFTER_COMMIT = 16, /* a change waits for a commit in the leader's own term */
    GUARD_ONE_LEADER = 32,          /* a leader does not listen to a second one of its term */
    GUARD_LAST_VOTER_LEADS = 64,    /* a group shrinks to one voter only if that one leads */
    GUARD_COVERED = 128, /* entries that our snapshot covers count as known, not as missing */
    GUARD_NEW_TERM =
        512, /* the only voter elects itself in a new term, never again in an old one */
    GUARD_PRE_VOTE_TERM = 256,  /* a node that refuses a pre-vote says its own term */
    GUARD_LEARNER_VOTES = 1024, /* a voter that does not know it yet is asked, too */
    GUARD_STALE_REJECT = 2048,  /* a refusal of what has been stored since is an old one */
    GUARD_SILENT_LEADER = 4096, /* a leader not heard for long keeps nobody from standing */
    GUARD_FIRST_ENTRY = 16384,  /* no snapshot of the first entry alone: the core takes its term
                                   for the entry, and never sends either */
    GUARD_OLD_TERM = 32768,     /* a refusal of an earlier term's entries says which: the core
                                   leaves it to what is on the stack */
    GUARD_NEWER_SNAPSHOT =
        65536, /* a node that refuses a newer snapshot's index also lacks the one
                                     that it was offered: the core would wait for 30 s */
    GUARD_CHANGE_KNOWN = 131072, /* a configuration is committed when the next one comes: the
                                  * core would go back to one of long ago */
    GUARD_OWN_TERM = 8192,       /* copies are counted of the leader's own term: the core's own,
                              off it is libraft 0.15 */
};

struct group_server {
    uint64_t id;
    bool voter; /* else it learns */
    char address[GROUP_ADDRESS_MAX];
};

struct group_conf {
    struct group_server servers[GROUP_SERVERS_MAX];
    size_t n;
};

/* What a snapshot file says about itself. */
struct group_snapshot {
    uint64_t index, term, conf_index;
    struct group_conf conf;
};

struct group_env {
    uint64_t (*persist)(void *ctx, const struct journal_record *rec);     /* returns its lsn */
    void (*send)(void *ctx, uint64_t to, const struct peer_message *msg); /* msg is borrowed */
    /* False: not all of it yet, or nothing. It is called again with the same entry. */
    bool (*apply)(void *ctx, uint16_t group_no, uint64_t index, struct slice data);
    /* What is wrong with an entry that somebody else has sent; NULL: nothing. */
    const char *(*problem)(void *ctx, uint16_t group_no, struct slice data);
    void (*changed)(void *ctx, uint16_t group_no); /* role, term or leader */
    /* The snapshot to offer to a node that is far behind, and its size; false: none. */
    bool (*newest)(void *ctx, uint16_t group_no, struct group_snapshot *ret,
                   uint64_t *ret_bytes);
    /* From group_install(): store it and return its lsn; the group will say restore() when it
     * is durable. */
    uint64_t (*install)(void *ctx, uint16_t group_no, const struct group_snapshot *snap);
    void (*restore)(void *ctx, uint16_t group_no);
};

struct group_config {
    const struct group_env *env;
    void *ctx;
    uint16_t group_no;
    uint64_t id; /* this node's, not 0 */
    unsigned election_ms, heartbeat_ms;
    unsigned seed;
    unsigned inflight;   /* entries on their way to one follower, 1..GROUP_INFLIGHT_MAX */
    unsigned guards_off; /* enum group_guard: the simulator's canaries */
};

/* How far a node is in a group. */
struct group_floor {
    uint64_t term;            /* the one it is in */
    uint64_t log_term, index; /* of its last entry */
};

/* What the disk said at start. `log` is taken. */
struct group_state {
    uint64_t term, vote;
    struct group_snapshot snapshot; /* index 0: none */
    struct entry_log log;
};

enum group_role { GROUP_FOLLOWER, GROUP_CANDIDATE, GROUP_LEADER };

struct group;
/* Starts from what was stored; a node without anything waits for a leader to find it. */
struct group *group_open(const struct group_config *config, struct group_state *state,
                         uint64_t now_ms);
void group_close(struct group *g); /* NULL is allowed */

/* The two records that make a new group: the same on every first member. */
void group_bootstrap(const struct group_config *config, const struct group_conf *conf);

/* NULL, or what is wrong with it. What an honest member says is never wrong, however late and
 * however often it comes. */
const char *group_problem(const struct group *g, const struct peer_message *msg);
/* A message with which nothing is wrong. */
void group_receive(struct group *g, const struct peer_message *msg, uint64_t now_ms);
bool group_is_term(const struct group *g, uint64_t term); /* it can be one */
/* The leader `from` has sent a snapshot, which is here and sound: true, if it is wanted. */
bool group_install(struct group *g, uint64_t from, const struct group_snapshot *snap,
                   uint64_t now_ms);
/* Whenever group_next_ms() has come. A leader whose heartbeat is due within `slack_ms` sends it
 * now, and the next one as long after it as always. */
void group_tick(struct group *g, uint64_t now_ms, unsigned slack_ms);
uint64_t group_next_ms(const struct group *g); /* absolute */
/* How many should stand for election before this node: it waits a little longer for each. */
void group_set_rank(struct group *g, size_t rank);
/* The leader is probably gone: stand when it is this node's turn, if it is not heard before. */
void group_suspect(struct group *g, uint64_t now_ms);
/* A node can be reached that could not be: that terms went by without a leader says nothing
 * about the next one, which has no more time than usual. */
void group_hope(struct group *g);
void group_durable(struct group *g, uint64_t lsn,
                   uint64_t now_ms); /* the journal got that far */

/* Leader: put `data` into the log. BELAY_ERR_NOT_LEADER: nothing happened. */
BELAY_MUST_CHECK enum belay_err group_propose(struct group *g, struct slice data,
                                              uint64_t now_ms);
/* Leader: what has been committed since the last call is told to the others at once. The core
 * would let it ride on the next entries or the next heartbeat; but clients wait there. */
void group_tell_commit(struct group *g);
/* Leader: hand over to node `to`; 0: to any node that is fit. */
BELAY_MUST_CHECK enum belay_err group_transfer(struct group *g, uint64_t to, uint64_t now_ms);

/* Leader: one change of the members. BELAY_ERR_UNAVAILABLE: not now, ask again. */
enum group_change { GROUP_ADD, GROUP_PROMOTE, GROUP_REMOVE, GROUP_EDIT /* the address */ };
BELAY_MUST_CHECK enum belay_err group_change(struct group *g, enum group_change what,
                                             const struct group_server *server,
                                             uint64_t now_ms);

/* A snapshot of what is applied may be made now: fills in its head. Not while another one is
 * made or installed. Then write it, and say how it went. */
bool group_snapshot_begin(struct group *g, struct group_snapshot *ret);
void group_snapshot_end(struct group *g, const struct group_snapshot *snap, bool stored,
                        unsigned trailing, uint64_t now_ms);
/* The entries that were left behind the last snapshot go as well; `snap` is that one. */
void group_snapshot_trim(struct group *g, const struct group_snapshot *snap, uint64_t now_ms);

enum group_role group_role(const struct group *g);
uint64_t group_term(const struct group *g);
uint64_t group_leader(const struct group *g);  /* 0: unknown */
uint64_t group_applied(const struct group *g); /* entries that are applied whole */
/* Something is committed and here, and not applied: group_go_on() goes on with it. */
bool group_has_more(const struct group *g);
void group_go_on(struct group *g, uint64_t now_ms);
uint64_t group_commit(const struct group *g);
uint64_t group_last(const struct group *g); /* index of the last entry */
bool group_installing(const struct group *g);
bool group_can_install(const struct group *g); /* no snapshot is being made or installed */
/* What a snapshot up to this entry says is here already. */
bool group_covers(const struct group *g, uint64_t index, uint64_t term);
bool group_transferring(const struct group *g);
/* Leader, and everything from before its term is applied: it may stamp, propose and read. */
bool group_ready(const struct group *g);
void group_conf(const struct group *g, struct group_conf *ret); /* the last one in the log */
void group_conf_committed(const struct group *g, struct group_conf *ret);
uint64_t group_conf_index(const struct group *g); /* of the entry with the committed one */
bool group_match(const struct group *g, uint64_t id, uint64_t *ret_index); /* leader only */
uint64_t
group_oldest_lsn(const struct group *g); /* of the entries it keeps; UINT64_MAX: none */
void group_set_never_leads(struct group *g, bool never); /* at first it may */

/* While the gate is closed nothing that this node says counts for the others (group_gate.c). At
 * first it is open. */
void group_gate_close(struct group *g);
/* All other voters have said how far they are: the largest of each. */
void group_gate_lower(struct group *g, const struct group_floor *floor);
void group_gate_open(struct group *g);
bool group_may_vouch(const struct group *g); /* in the term that it is in */
void group_stands(const struct group *g, struct group_floor *ret);

const char *group_library(void); /* the version of libraft */

void group_conf_encode(const struct group_conf *conf, struct buf *out);
BELAY_MUST_CHECK enum belay_err group_conf_decode(struct slice in, struct group_conf *ret);
size_t group_conf_voters(const struct group_conf *conf);
struct group_server *group_conf_find(struct group_conf *conf, uint64_t id); /* or NULL */
#endif
