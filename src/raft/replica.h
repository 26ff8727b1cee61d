/* replica.h - the durable, replicated order: Raft groups over one journal.
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
 * Sockets, threads, clocks and forks are the runtime's (net/runtime.c; the simulator has another).
 * Loop thread only; after any call the runtime calls replica_settle(). */
#ifndef BELAY_RAFT_REPLICA_H
#define BELAY_RAFT_REPLICA_H

#include "engine/order.h"
#include "raft/member.h"

enum {
    ORDER_PENDING_MAX = 262144, /* ops of one shard that wait for their turn */
    ORDER_PATIENCE_MS = 10000,  /* how long an op waits for a leader, beyond its own wait */
    ORDER_RESEND_MS = 1000,     /* what is not applied by then is sent again */
    ORDER_TURN_WORK = 50000,   /* engine_work() between two ticks; then everything else first */
    ORDER_PROBE_MS = 100,      /* and so is a question that is not answered */
    ORDER_COMMIT_WAIT_MS = 2,  /* so long the next entry waits for the last one at most */
    ORDER_COMPLAIN_MS = 10000, /* between two lines about what one node says */
    ORDER_ASKS_MAX = 64,       /* wishes of operators at one node */
    ORDER_SILENCE_MS = 30000,  /* a node not heard for so long: its waiters leave the line */
    ORDER_UNHEARD_MS = 3000,   /* and before that, for so long: it is passed over. A node speaks
                                every ORDER_STEER_MS at least */
    ORDER_BEHIND_MAX = 1024,   /* entries; a node further behind is not ready */
    ORDER_LOOK_MS = 500,       /* how often that is looked at */
    ORDER_DOUBT_MS = 3000, /* so long a node that starts waits for a majority of the others, or
                              for all of them, before it takes its own word for it */
    ORDER_SAVE_BYTES = 1 << 20, /* of entries that are worth a snapshot when memory is short */
    ORDER_SNAPSHOT_BYTES = 32 << 20, /* of entries since the last snapshot */
    ORDER_SNAPSHOT_RETRY_MS = 10000, /* after one that failed */
    ORDER_TRAILING = 64,             /* entries kept behind a snapshot, for slow followers */
    ORDER_STEER_MS = 1000,           /* how often leaders look after members */
    ORDER_STEER_SOON_MS = 20,        /* after something has changed */
    ORDER_REST_MS = 2500,            /* the preferred leader has been fit for so long */
    ORDER_FORWARD_BYTES = 256 << 10, /* of one FORWARD */
    ORDER_PIECE_BYTES = 512 << 10,   /* of a snapshot in one message */
    ORDER_FETCH_MS = 5000,           /* one that does not get on for so long makes way */
    ORDER_FRAME_BYTES = 512 << 10,   /* of messages in one frame; a larger one goes alone */
    ORDER_BATCH_BYTES = 512 << 10,   /* of ops in one entry; a larger op has one of its own */
};

struct replica;
struct snapshot_task;
struct fetch;

struct replica_env {
    uint64_t (*now_ms)(void *ctx); /* monotonic */
    /* Run the job on another thread, then replica_written(). */
    void (*write)(void *ctx, struct journal_job *job);
    /* Best effort: it may be lost. In order per node as far as it arrives. Once a turn for
     * each node, with all that the groups have to say to it. */
    void (*send)(void *ctx, uint64_t node, struct slice frame);
    /* Store a snapshot of the state as it is now (replica_snapshot_write() in a forked
     * child), then replica_snapshotted(). */
    void (*snapshot)(void *ctx, struct snapshot_task *task);
    /* Run replica_fetch_run() on another thread, then replica_fetched(). One at a time.
     */
    void (*fetch)(void *ctx, struct fetch *f);
    /* The disk failed: nothing pending will be answered, the process must end. */
    void (*fatal)(void *ctx, const char *text);
    /* For a runtime that wants to know how long commits take (both, or neither): a finer clock, and
     * what the runtime is told of an entry that this node has proposed. */
    uint64_t (*now_ns)(void *ctx);
    void (*committed)(void *ctx, uint64_t ns);
};

/* Switched on by the simulator alone, to see that it finds them. */
enum replica_canary {
    CANARY_EARLY_ACK = 1,  /* an entry counts as stored before it is */
    CANARY_BLIND_READ = 2, /* a leader answers reads without asking the others */
    CANARY_TWICE = 4,      /* an op that comes again is applied again */
    CANARY_PLACE = 64,     /* a new member gets the place of another one */
    CANARY_OLD_VIEW = 256, /* a node outside the committed configuration is taken for removed */
    CANARY_OLD_COPY = 512, /* a node is believed whatever copy of its disk it starts from */
    CANARY_GHOSTS = 2048,  /* it is not said that a node is not heard */
};

struct replica_config {
    const struct replica_env *env;
    void *env_ctx;
    struct disk *disk;         /* taken */
    const char *path;          /* of it, for messages; NULL: none */
    uint64_t node;             /* its place is not 0: place.h */
    struct group_conf members; /* of a new cluster; n 0: joins one, or has been here before */
    size_t groups;             /* of a new data directory; an old one keeps its own */
    bool groups_fixed;         /* an old one with another number is refused */
    unsigned election_ms, heartbeat_ms;
    uint64_t levels_unknown; /* tests: a program that does not know so many of the newest */
    uint64_t cluster;        /* of a new one */
    uint64_t seed;           /* random */
    uint64_t segment_bytes, snapshot_bytes; /* 0: the defaults */
    unsigned trailing;                      /* 0: ORDER_TRAILING */
    size_t piece_bytes;                     /* 0: ORDER_PIECE_BYTES */
    uint64_t turn_work;                     /* 0: ORDER_TURN_WORK */
    uint64_t silence_ms;                    /* 0: ORDER_SILENCE_MS */
    uint64_t doubt_ms;                      /* 0: ORDER_DOUBT_MS */
    unsigned inflight;                      /* 0: GROUP_INFLIGHT_MAX */
    unsigned guards_off, canaries;
    bool level_manual; /* the level is raised when an operator says so (replica_level.c) */
    bool drains;       /* replica_drained() will be called when this node is removed */
    uint8_t priority;  /* 0..15, 15 never leads; until an operator says otherwise */
    bool env_writes;   /* when it thinks fit, with replica_write(); else replica_settle()
                         does it at once */
};

/* Reads the disk and is ready to be given to engine_open(), which replays what is stored.
 * BELAY_ERR_CORRUPT, BELAY_ERR_IO: replica_problem() has the text for the operator. */
BELAY_MUST_CHECK enum belay_err replica_open(const struct replica_config *config,
                                             struct order **ret_order);
const char *replica_problem(void);
/* Has a node been here before? */
BELAY_MUST_CHECK enum belay_err replica_is_used(struct disk *disk, bool *ret_used);
/* Which node's directory is it? 0: it does not say, what it says is damaged, or that node's first
 * start was not complete: it has never been a member. */
uint64_t replica_node_of(struct disk *disk);
struct replica *replica_of(struct order *o);

void replica_settle(struct replica *o);
/* What is due for a write, and the write; nothing while one is on its way. */
size_t replica_due(const struct replica *o);
void replica_write(struct replica *o);
void replica_tick(struct replica *o);
uint64_t replica_next_ms(const struct replica *o); /* absolute, of env->now_ms() */
void replica_written(struct replica *o, struct journal_job *job);
/* A frame from `node`, which the transport knows to be that one. False, and a line in the log:
 * what it says cannot be true, and the connection should end. */
BELAY_MUST_CHECK bool replica_receive(struct replica *o, uint64_t node, struct slice frame);
/* Its connection has broken: whatever it led needs another leader soon, if it does not come
 * back at once. */
void replica_peer_lost(struct replica *o, uint64_t node);
/* How much faster that node's clock goes than this one's, per million. False: not known yet. */
bool replica_clock_rate(const struct replica *o, uint64_t node, int64_t *ret_ppm);
void replica_peer_up(struct replica *o, uint64_t node); /* what was sent may be lost */

/* Both block; any thread or process. What was written is read back and judged: false, and a
 * line in the log, if it could not be used. Nothing is left of it then. */
bool replica_snapshot_write(struct snapshot_task *task);
void replica_snapshot_discard(struct snapshot_task *task); /* whatever there is of it */
void replica_snapshotted(struct replica *o, struct snapshot_task *task, bool stored);
void replica_snapshot_now(struct replica *o); /* of every shard that can */
/* Memory is short: entries that a snapshot covers go, although a slow follower may then have to
 * fetch the snapshot, and the shard with the most entries behind its last one makes another. */
void replica_save_memory(struct replica *o);

/* A backup: the states of all groups, which fit together, as a file of this node for an operator
 * who fetches it piece by piece (replica_backup.c). Everything is in it that was answered before
 * it was asked for. One at a time. */
enum {
    ORDER_BACKUP_MS = 8000,        /* so long it may take until the moment is there */
    ORDER_BACKUP_REST_MS = 30000,  /* not read for so long: another one may take its place */
    ORDER_BACKUP_KEEP_MS = 600000, /* and then it goes */
};
struct backup_wish {
    uint64_t id; /* random, not 0 */
    uint64_t wall_ms;
    /* Once, later, from replica_settle() or replica_snapshotted(). BELAY_ERR_UNAVAILABLE: not in
     * time. BELAY_ERR_IO: it could not be written, the log says why. */
    void (*answer)(void *ctx, enum belay_err err, uint64_t bytes);
    void *ctx;
};
/* BELAY_ERR_IN_USE: there is one that is being made or fetched. BELAY_ERR_UNAVAILABLE: this node
 * stops, or its disk is full. */
BELAY_MUST_CHECK enum belay_err replica_backup_begin(struct replica *o,
                                                     const struct backup_wish *wish);
void replica_backup_forget(struct replica *o,
                           const void *ctx); /* nobody waits for its answer */
/* It is there and so large; it was asked for just now. */
BELAY_MUST_CHECK bool replica_backup_find(struct replica *o, uint64_t id, uint64_t *ret_bytes);
/* Blocks; any thread, while the order is open. BELAY_ERR_NOT_FOUND: it has gone meanwhile. */
BELAY_MUST_CHECK enum belay_err replica_backup_read(const struct replica *o, uint64_t id,
                                                    uint64_t at, struct buf *out);
void replica_backup_drop(struct replica *o, uint64_t id); /* it was fetched */

void replica_fetch_run(struct fetch *f); /* blocks; any thread */
void replica_fetched(struct replica *o);

/* Hand over whatever this node leads, and stop: true when it leads nothing any more. */
bool replica_retire(struct replica *o);

struct group *replica_group(struct replica *o, size_t group_no);
struct journal *replica_journal(struct replica *o);
bool replica_is_full(const struct replica *o);              /* its disk is: STALE reads only */
uint64_t replica_snapshots_failed(const struct replica *o); /* since the start */
/* Changes asked at this node that this shard has not applied yet. */
size_t replica_pending(const struct replica *o, size_t group_no);
/* The last snapshot of this shard on the disk. False: there is none. */
struct snapshot_file {
    const char *name; /* in the data directory; borrowed, until the next call into `o` */
    uint64_t bytes;
};
bool replica_snapshot(const struct replica *o, size_t group_no, struct snapshot_file *ret);
size_t replica_snapshots_failing(const struct replica *o); /* shards whose last one failed */
/* The journal is not longer than that as long as snapshots are stored when they are due. */
uint64_t replica_journal_usual(const struct replica *o);
/* Bytes of the journal that stay as long as this shard keeps its oldest entry. */
uint64_t replica_kept_bytes(const struct replica *o, size_t group_no);
/* The largest number that a node of this cluster has ever had: none is given twice. */
uint64_t replica_last_node(const struct replica *o);
/* For the next member: larger than all before it, and in a place that no member has. */
uint64_t replica_next_node(const struct replica *o);
/* False: another node has its place, as far as this one knows. An older one that is not heard
 * may be gone: this node's own view may be so old that it lacks the present leader. */
bool replica_has_room(const struct replica *o, uint64_t node);
/* It was a member, and a committed configuration has let it go. A node that is about to be
 * added, or whose being added is not known to be committed yet, was not. */
bool replica_was_removed(const struct replica *o, uint64_t node);
bool replica_is_removed(const struct replica *o); /* so says this node's own log of it */
/* False: neither this node's log nor a member that it hears knows of such a member. It may then
 * be nobody, or one that was added while this node was away. */
BELAY_MUST_CHECK bool replica_find_member(const struct replica *o, uint64_t node,
                                          struct member *ret);
/* A node is its data directory: one that comes back with another (emptied, restored) under the
 * same number has forgotten its votes. True: it is the one that was here before, or the first;
 * that is then remembered on disk. */
uint64_t replica_incarnation(const struct replica *o);
bool replica_is_same(struct replica *o, uint64_t node, uint64_t incarnation);
uint64_t replica_cluster(const struct replica *o);
size_t replica_groups(const struct replica *o);
/* The number of this start: of the run, and 32 random bits of the process. */
uint64_t replica_start(const struct replica *o);
/* Has the cluster seen another start of that node, later or from another copy of its directory?
 */
bool replica_is_over(const struct replica *o, uint64_t node, uint64_t start);
/* Most of the others say so of this one: the process ends. */
void replica_end(struct replica *o);
/* The members of the cluster are those of group 0, and the other groups follow by themselves.
 * Here this node must lead it (else BELAY_ERR_NOT_LEADER); BELAY_ERR_UNAVAILABLE: not now. A
 * removed member leaves as soon as it has handed over what it leads. */
BELAY_MUST_CHECK enum belay_err replica_change(struct replica *o, enum group_change what,
                                               const struct group_server *server);

/* How an operator wants the cluster to be; asked at any node. */
enum admin_kind {
    WISH_ADD, /* name, peer: a new member */
    WISH_REMOVE,
    WISH_PRIORITY,
    WISH_TRANSFER, /* it leads that group, now */
    WISH_LEVEL,    /* all groups follow at least this level */
    WISH_KIND_COUNT
};

struct admin_request {
    enum admin_kind kind;
    char name[MEMBER_NAME_MAX];
    char peer[MEMBER_PLACE_MAX];
    uint8_t priority;
    uint64_t level;
    uint16_t group;   /* 0, but for a transfer */
    uint64_t join[2]; /* WISH_ADD: struct member; 0: nobody asks it for a secret */
};

/* It is so, committed and seen by this node, `id` is the member's; or why not:
 * BELAY_ERR_EXISTS, _NOT_FOUND, _IN_USE (nobody would be left to vote, or not all members know
 * the level), _RANGE, _LIMIT, or
 * _UNAVAILABLE: not in time, it may still happen. */
typedef void admin_answer(void *ctx, enum belay_err err, uint64_t id);
struct admin_call;
/* Answered later, from replica_settle(). NULL: no such group, or too many are asking. */
struct admin_call *replica_admin_ask(struct replica *o, const struct admin_request *wish,
                                     admin_answer *answer, void *ctx);
void replica_admin_forget(struct admin_call *ask); /* nobody waits for its answer any more */
uint64_t replica_applied(const struct replica *o, uint64_t id); /* group 0; about */
/* The newest level that a node knows, and whether it waits for an operator to raise the cluster's.
 * False: it has not said so since this one started. */
bool replica_levels(const struct replica *o, uint64_t id, uint64_t *ret_newest,
                    bool *ret_manual);
uint8_t replica_priority(const struct replica *o, uint64_t id);
/* This node is being removed: the others wait until it says that its clients have gone, if it
 * was to say so (config.drains). */
bool replica_is_leaving(const struct replica *o);
void replica_drained(struct replica *o);
bool replica_is_settled(const struct replica *o, uint64_t id); /* it votes everywhere */
bool replica_idle(const struct replica *o); /* nothing pending, nothing being written */
void replica_seal(struct replica *o);       /* what is on disk now is complete */
#endif
