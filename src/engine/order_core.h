/* order_core.h - the fields behind order_raft.h, for the files order_*.c. */
#ifndef BELAY_ENGINE_ORDER_CORE_H
#define BELAY_ENGINE_ORDER_CORE_H

#include "engine/order_raft.h"

enum { ORIGINS_MAX = 128, ENTRY_VERSION = 1, EARLY_BYTES_MAX = 4 << 20 };

/* A node that hands over ops, and how far they have come in this shard. */
struct origin {
    uint64_t node;
    uint64_t run, applied;      /* the last op of it in the state: part of the state */
    uint64_t log_run, proposed; /* leader: the last one in its log */
};

/* An op of this node that is not applied yet. */
struct pending {
    struct pending *next;
    uint64_t no;     /* counts what this node submits, reads too */
    uint64_t number; /* as origin; 0: not sent yet */
    uint64_t asker;
    uint64_t give_up_ms;
    bool given_up;
    struct slice op; /* its bytes follow the struct */
};

/* What a node has said of itself, and when it was last heard of. */
struct standing {
    uint64_t run, heard_ms; /* run 0: nothing yet */
    uint64_t applied;       /* in group 0 */
    uint8_t priority;
    bool retiring, drained;
};

/* Leader: the last wish of a node, should it be asked again. */
struct answered {
    uint64_t run, seq;
    enum belay_err err;
};

struct read {
    struct read *next;
    uint64_t no;
    uint64_t asker;
    uint64_t give_up_ms;
    uint64_t round;  /* asked in this one, 0: not yet */
    uint64_t index;  /* known: to be applied before */
    uint64_t now_ms; /* the leader's time then */
    struct slice op;
};

/* Another node wants to know how far to apply. */
struct remote_read {
    uint64_t node, seq, round;
};
enum { REMOTE_READS_MAX = GROUP_SERVERS_MAX };

/* A snapshot that was read. */
struct judged {
    struct group_snapshot snap;
    struct origin origins[ORIGINS_MAX];
    size_t n_origins;
    struct machine *state;
};

/* One shard on this node. */
struct replica {
    struct order_raft *o;
    uint16_t shard;
    struct group_state loaded; /* until the group is opened */
    struct group *group;
    struct group_snapshot snapshot; /* on disk; index 0: none */
    uint64_t snapshot_size;
    uint64_t fetched_ms;   /* when a node has last asked for a piece of it; 0: never */
    struct machine *state; /* of the snapshot at the start, until the engine adopts it */
    char snapshot_name[DISK_NAME_MAX];
    char old_snapshot[DISK_NAME_MAX]; /* to be removed when the new one is in the journal */
    uint64_t log_bytes;               /* applied since the snapshot */

    struct origin origins[ORIGINS_MAX];
    size_t n_origins;
    struct pending *first, **end; /* in the order they were submitted */
    struct pending *unsent;       /* the first that the leader has not been told */
    size_t n_pending;
    uint64_t no;          /* of the last op or read submitted */
    uint64_t next_number; /* as origin */
    uint64_t sent_ms;
    uint64_t sent_term, sent_leader;
    bool leads;                       /* ready, and the engine knows */
    uint64_t led_term;                /* the last in which it did */
    uint64_t heard_ms;                /* state-machine time, as the last leader said */
    uint64_t heard_term;              /* whose it was */
    uint64_t heard_commit;            /* and how far it had committed */
    uint64_t heard_at;                /* and when, of the host's clock */
    uint64_t preferred, preferred_ms; /* leader: who should lead instead, and since when */
    struct buf proposal;
    uint64_t proposed_ms;
    struct buf early; /* forwarded to a leader that is not ready yet */

    struct read *reads, **reads_end;
    uint64_t round, round_term, round_index, round_ms; /* round_ms 0: none is open */
    bool acks[ORIGINS_MAX];                            /* by node */
    struct remote_read remote[REMOTE_READS_MAX];
    size_t n_remote;
};

struct order_raft {
    struct order base;
    struct buf out[ORIGINS_MAX]; /* by node: what leaves at the end of the turn */
    struct order_raft_config config;
    const struct raft_host *host;
    void *ctx;
    struct engine *engine;
    struct journal *journal;
    uint64_t cluster, run;       /* run: how often this directory was started */
    bool fresh;                  /* nothing was in it */
    uint64_t incarnation;        /* of this directory: another one is another node */
    uint64_t known[ORIGINS_MAX]; /* by node: the directory it came with first, 0: not seen */
    struct standing standings[ORIGINS_MAX]; /* by node */
    struct group_conf members;              /* of the cluster: group 0's, committed */
    struct replica *replicas;
    struct fetch *fetch; /* NULL: none */
    uint64_t n_fetches;  /* so far, for their names */
    uint64_t give_up_ms; /* when to look for those who waited too long */
    uint64_t look_ms;    /* when run_look() last looked */
    uint64_t opened_ms;
    uint64_t silent_ms[ORIGINS_MAX]; /* by node: for so long this leader has not heard it */
    struct order_ask *asks;          /* of operators here, oldest first */
    size_t n_asks;
    uint64_t ask_seq;
    struct answered answered[ORIGINS_MAX]; /* by node */
    uint64_t steer_ms;                     /* when to look after members and leaders */
    bool opened, settling, retired, snapshotting;
    bool stirred;       /* something has come since all was settled */
    uint64_t out_end;   /* behind the last node that anything was ever sent to */
    bool leaving;       /* this node is being removed from the cluster */
    bool drained;       /* and nobody here needs it any more */
    bool must_not_lead; /* leaving, retired or of priority 15: it hands over at once */
    struct arena arena; /* of one call */
    struct buf encoded; /* of one call: an op */
};

static inline uint64_t order_now(const struct order_raft *o)
{
    return o->host->now_ms(o->ctx);
}

/* What the askers of a run of a node have in common. */
static inline uint64_t order_id_base(uint64_t node, uint64_t run)
{
    uint64_t mask = (UINT64_C(1) << (OP_NODE_SHIFT - OP_RUN_SHIFT)) - 1;
    return node << OP_NODE_SHIFT | (run & mask) << OP_RUN_SHIFT;
}

void order_send(struct order_raft *o, uint64_t to, const struct wire *msg);
struct origin *order_origin(struct replica *r, uint64_t node);     /* or NULL */
struct origin *order_origin_get(struct replica *r, uint64_t node); /* a new one if need be */
void order_announce(struct replica *r);    /* the first op of a run, or of a leader */
bool order_alone(const struct replica *r); /* the only voter */
BELAY_MUST_CHECK enum belay_err order_hand_over(struct replica *r, uint64_t to);
void order_disk_failed(struct order_raft *o, int code); /* errno: the process ends */

/* order_run.c */
/* The runs of this origin before `next` are over; `now` is state-machine time. */
void run_over(struct replica *r, struct origin *origin, uint64_t next, uint64_t now);
/* Is the node in the state of this group, for good? If not, its leader puts it there. */
bool run_is_known(struct replica *r, uint64_t node);
void run_look(struct order_raft *o); /* now and then: nodes that are gone, and this one's own */

/* order_read.c */
void read_add(struct replica *r, const struct op *op);
void read_settle(struct replica *r);
void read_receive(struct replica *r, const struct wire *msg);
void read_lost(struct replica *r); /* role or term changed: ask again */
void read_done(struct replica *r);

/* order_ask.c */
void ask_settle(struct order_raft *o);
void ask_receive(struct order_raft *o, const struct wire *msg);
void ask_done(struct order_raft *o);

/* order_lead.c */
void lead_tick(struct order_raft *o);
void lead_soon(struct order_raft *o);   /* something has changed: look in a moment */
void lead_follow(struct order_raft *o); /* takes over what group 0 says of the members */
bool lead_may_take(const struct replica *r, uint64_t id); /* a group that is handed over */
void lead_rank(struct replica *r); /* who would stand for election before this node? */
void lead_tell(struct order_raft *o, uint64_t to);
void lead_hear(struct order_raft *o, const struct wire *msg);

/* order_see.c */
bool order_may_propose(const struct replica *r); /* now, or is it better to wait for more? */
/* As struct order_ops. */
uint64_t see_age(const struct order *base, size_t shard, uint64_t *ret_now_ms);
const char *see_not_ready(const struct order *base);

/* order_fetch.c */
bool fetch_newest(void *ctx, uint16_t shard, struct group_snapshot *ret, uint64_t *ret_bytes);
void fetch_receive(struct replica *r, const struct wire *msg);
void fetch_settle(struct order_raft *o);
bool fetch_is_of(const struct replica *r); /* one of this group is under way */
/* Of the one that is being installed. */
const char *fetch_file(const struct order_raft *o, uint64_t *ret_bytes);
void fetch_take(struct replica *r, struct judged *ret); /* it is installed */
void fetch_done(struct order_raft *o);

/* order_store.c */
BELAY_MUST_CHECK enum belay_err
store_identify(struct order_raft *o); /* whose directory is it? */
BELAY_MUST_CHECK enum belay_err store_open(struct order_raft *o);
/* What is in the file, whoever it belongs to; false: damaged. */
#define IDENTITY_NAME "identity"
bool store_read_identity(struct order_raft *o, struct slice file, uint64_t *ret_node,
                         uint64_t *ret_groups);
BELAY_MUST_CHECK enum belay_err store_write_identity(struct order_raft *o);
void store_run(struct order_raft *o); /* o->run is durable, or the process ends */
/* The head of a snapshot; the state itself stays in *ret_state. For the fuzzer too. */
bool store_decode(struct slice bytes, uint16_t shard, struct group_snapshot *ret_snap,
                  struct origin ret_origins[ORIGINS_MAX], size_t *ret_n,
                  struct slice *ret_state);
/* All of it, with its state, which is then the caller's; on any thread. */
bool store_judge(size_t n_groups, uint16_t shard, struct slice bytes, struct judged *ret);
/* What is fetched has such a name until it is all there. */
#define INCOMING_PREFIX "incoming-"
bool store_is_incoming(const char *name);
uint64_t store_persist(void *ctx, const struct journal_record *rec);
uint64_t store_install(void *ctx, uint16_t shard, const struct group_snapshot *snap);
void store_restore(void *ctx, uint16_t shard);
void store_restore_state(struct replica *r);
void store_settle(struct order_raft *o); /* snapshots that are due, segments that may go */
void store_close(struct order_raft *o);
void store_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
