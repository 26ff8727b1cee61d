/* order_raft.h - the durable, replicated order: Raft groups over one journal.
 *
 *   engine_submit -> pending -> (this node leads)  proposal -> group -> journal, followers
 *                           \-> (another one does) FORWARD to it
 *   committed entry -> its ops, in order, to engine_ordered() on every node; the node where the
 *   client is connected answers it from there.
 *
 * An op is in the log once at most, whatever gets lost or is sent twice: every run of every
 * node (an origin) numbers the ops it hands over for a shard, the leader takes them without
 * gaps, and what has been applied already is skipped. The table of origins is part of the
 * state.
 *
 * Reads wait until a majority has confirmed, after the read came, that this leader still leads
 * (PROBE), and until what the same node submitted before is applied. No clock is trusted for
 * it.
 *
 * Sockets, threads, clocks and forks are the host's (peer.c; the simulator has another one).
 * Loop thread only; after any call the host calls order_raft_settle(). */
#ifndef BELAY_ENGINE_ORDER_RAFT_H
#define BELAY_ENGINE_ORDER_RAFT_H

#include "engine/member.h"
#include "engine/order.h"

enum {
    ORDER_PENDING_MAX = 262144, /* ops of one shard that wait for their turn */
    ORDER_PATIENCE_MS = 10000,  /* how long an op waits for a leader, beyond its own wait */
    ORDER_RESEND_MS = 1000,     /* what is not applied by then is sent again */
    ORDER_PROBE_MS = 100,       /* and so is a question that is not answered */
    ORDER_COMMIT_WAIT_MS = 2,   /* so long the next entry waits for the last one at most */
    ORDER_ASKS_MAX = 64,        /* wishes of operators at one node */
    ORDER_SILENCE_MS =
        30000,               /* a node not heard for so long: who waits there leaves the line */
    ORDER_BEHIND_MAX = 1024, /* entries; a node further behind is not ready */
    ORDER_LOOK_MS = 500,     /* how often that is looked at */
    ORDER_SNAPSHOT_BYTES = 32 << 20, /* of entries since the last snapshot */
    ORDER_TRAILING = 64,             /* entries kept behind a snapshot, for slow followers */
    ORDER_STEER_MS = 1000,           /* how often leaders look after members */
    ORDER_STEER_SOON_MS = 20,        /* after something has changed */
    ORDER_REST_MS = 2500,            /* who should lead has been fit for so long */
    ORDER_FORWARD_BYTES = 256 << 10, /* of one FORWARD */
    ORDER_PIECE_BYTES = 512 << 10,   /* of a snapshot in one message */
    ORDER_FETCH_MS = 5000,           /* one that does not get on for so long makes way */
    ORDER_FRAME_BYTES = 512 << 10,   /* of messages in one frame; a larger one goes alone */
    ORDER_BATCH_BYTES = 512 << 10,   /* of ops in one entry; a larger op has one of its own */
};

struct order_raft;
struct snapshot_task;
struct fetch;

struct raft_host {
    uint64_t (*now_ms)(void *ctx); /* monotonic */
    /* Run the job on another thread, then order_raft_written(). */
    void (*write)(void *ctx, struct journal_job *job);
    /* Best effort: it may be lost. In order per node as far as it arrives. Once a turn for
     * each node, with all that the groups have to say to it. */
    void (*send)(void *ctx, uint64_t node, struct slice frame);
    /* Store a snapshot of the state as it is now (order_raft_snapshot_write() in a forked
     * child), then order_raft_snapshotted(). */
    void (*snapshot)(void *ctx, struct snapshot_task *task);
    /* Run order_raft_fetch_run() on another thread, then order_raft_fetched(). One at a time.
     */
    void (*fetch)(void *ctx, struct fetch *f);
    /* The disk failed: nothing pending will be answered, the process must end. */
    void (*fatal)(void *ctx, const char *text);
};

/* Switched on by the simulator alone, to see that it finds them. */
enum order_canary {
    CANARY_EARLY_ACK = 1,  /* an entry counts as stored before it is */
    CANARY_BLIND_READ = 2, /* a leader answers reads without asking the others */
    CANARY_TWICE = 4,      /* an op that comes again is applied again */
};

struct order_raft_config {
    const struct raft_host *host;
    void *host_ctx;
    struct disk *disk;         /* taken */
    uint64_t node;             /* 1..127 */
    struct group_conf members; /* of a new cluster; n 0: joins one, or has been here before */
    size_t groups;             /* of a new data directory; an old one keeps its own */
    bool groups_fixed;         /* an old one with another number is refused */
    unsigned election_ms, heartbeat_ms;
    uint64_t cluster;                       /* of a new one */
    uint64_t seed;                          /* random */
    uint64_t segment_bytes, snapshot_bytes; /* 0: the defaults */
    unsigned trailing;                      /* 0: ORDER_TRAILING */
    size_t piece_bytes;                     /* 0: ORDER_PIECE_BYTES */
    uint64_t silence_ms;                    /* 0: ORDER_SILENCE_MS */
    unsigned inflight;                      /* 0: GROUP_INFLIGHT_MAX */
    unsigned guards_off, canaries;
    bool drains;      /* order_raft_drained() will be called when this node is removed */
    uint8_t priority; /* 0..15, 15 never leads; until an operator says otherwise */
    bool host_writes; /* when it thinks fit, with order_raft_write(); else order_raft_settle()
                         does it at once */
};

/* Reads the disk and is ready to be given to engine_open(), which replays what is stored.
 * BELAY_ERR_CORRUPT, BELAY_ERR_IO: order_raft_problem() has the text for the operator. */
BELAY_MUST_CHECK enum belay_err order_raft_open(const struct order_raft_config *config,
                                                struct order **ret_order);
const char *order_raft_problem(void);
/* Has a node been here before? */
BELAY_MUST_CHECK enum belay_err order_raft_is_used(struct disk *disk, bool *ret_used);
struct order_raft *order_raft_of(struct order *o);

void order_raft_settle(struct order_raft *o);
/* What is due for a write, and the write; nothing while one is on its way. */
size_t order_raft_due(const struct order_raft *o);
void order_raft_write(struct order_raft *o);
void order_raft_tick(struct order_raft *o);
uint64_t order_raft_next_ms(const struct order_raft *o); /* absolute, of host->now_ms */
void order_raft_written(struct order_raft *o, struct journal_job *job);
/* A frame from `node`, which the transport knows to be that one. Nonsense is dropped. */
void order_raft_receive(struct order_raft *o, uint64_t node, struct slice frame);
/* Its connection has broken: whatever it led needs another leader soon, if it does not come
 * back at once. */
void order_raft_peer_lost(struct order_raft *o, uint64_t node);
void order_raft_peer_up(struct order_raft *o, uint64_t node); /* what was sent may be lost */

bool order_raft_snapshot_write(struct snapshot_task *task); /* blocks; any thread or process */
void order_raft_snapshotted(struct order_raft *o, struct snapshot_task *task, bool stored);
void order_raft_snapshot_now(struct order_raft *o); /* of every shard that can */

void order_raft_fetch_run(struct fetch *f); /* blocks; any thread */
void order_raft_fetched(struct order_raft *o);

/* Hand over whatever this node leads, and stop: true when it leads nothing any more. */
bool order_raft_retire(struct order_raft *o);

struct group *order_raft_group(struct order_raft *o, size_t shard);
struct journal *order_raft_journal(struct order_raft *o);
/* The largest number that a node of this cluster has ever had: none is given twice. */
uint64_t order_raft_last_node(const struct order_raft *o);
/* A node is its data directory: one that comes back with another (emptied, restored) under the
 * same number has forgotten its votes. True: it is the one that was here before, or the first;
 * that is then remembered on disk. */
uint64_t order_raft_incarnation(const struct order_raft *o);
bool order_raft_is_same(struct order_raft *o, uint64_t node, uint64_t incarnation);
void order_raft_forget_node(struct order_raft *o, uint64_t node); /* it is no member any more */
uint64_t order_raft_cluster(const struct order_raft *o);
size_t order_raft_groups(const struct order_raft *o);
uint64_t order_raft_run(const struct order_raft *o); /* how often its directory was started */
/* The members of the cluster are those of group 0, and the other groups follow by themselves.
 * Here this node must lead it (else BELAY_ERR_NOT_LEADER); BELAY_ERR_UNAVAILABLE: not now. Who
 * is removed leaves as soon as it has handed over what it leads. */
BELAY_MUST_CHECK enum belay_err order_raft_change(struct order_raft *o, enum group_change what,
                                                  const struct group_server *server);

/* How an operator wants the cluster to be; asked at any node. */
enum order_wish_kind {
    WISH_ADD, /* name, peer: a new member */
    WISH_REMOVE,
    WISH_PRIORITY,
    WISH_TRANSFER, /* it leads that group, now */
    WISH_KIND_COUNT
};

struct order_wish {
    enum order_wish_kind kind;
    char name[MEMBER_NAME_MAX];
    char peer[GROUP_ADDRESS_MAX];
    uint8_t priority;
    uint16_t group; /* 0, but for a transfer */
};

/* It is so, committed and seen by this node, `id` is the member's; or why not:
 * BELAY_ERR_EXISTS, _NOT_FOUND, _IN_USE (nobody would be left to vote), _RANGE, _LIMIT, or
 * _UNAVAILABLE: not in time, it may still happen. */
typedef void order_answer(void *ctx, enum belay_err err, uint64_t id);
struct order_ask;
/* Answered later, from order_raft_settle(). NULL: no such group, or too many are asking. */
struct order_ask *order_raft_ask(struct order_raft *o, const struct order_wish *wish,
                                 order_answer *answer, void *ctx);
void order_raft_ask_forget(struct order_ask *ask); /* nobody waits for its answer any more */
uint64_t order_raft_applied(const struct order_raft *o, uint64_t id); /* group 0; about */
uint8_t order_raft_priority(const struct order_raft *o, uint64_t id);
/* This node is being removed: the others wait until it says that its clients have gone, if it
 * was to say so (config.drains). */
bool order_raft_is_leaving(const struct order_raft *o);
void order_raft_drained(struct order_raft *o);
bool order_raft_is_settled(const struct order_raft *o, uint64_t id); /* it votes everywhere */
bool order_raft_idle(const struct order_raft *o); /* nothing pending, nothing being written */
void order_raft_seal(struct order_raft *o);       /* what is on disk now is complete */
#endif
