/* replica_core.h - the fields behind replica.h, for the files replica*.c. */
#ifndef BELAY_RAFT_REPLICA_CORE_H
#define BELAY_RAFT_REPLICA_CORE_H

#include "base/format.h"
#include "machine/varint.h"
#include "raft/clock_rate.h"
#include "raft/place.h"
#include "raft/replica.h"

enum { RUNS_APART = 64, EARLY_BYTES_MAX = 4 << 20 };

/* The first byte of an entry says what it holds. The second field is the time. */
enum {
    ENTRY_VERSION = FORMAT_ENTRY_OLDEST, /* records: node, run, number, op */
    ENTRY_LEVEL =
        FORMAT_ENTRY, /* a level (machine/level.h) that this group follows from here on */
    ENTRY_ROOM = 128, /* of an entry, beside a single op */
};

/* A node that hands over ops, and how far they have come: part of the state of a shard. It
 * stays when the node is gone, until there is an op of a newer node in its place. */
struct origin {
    uint64_t node;         /* 0: nobody */
    uint64_t run, applied; /* the last op of it in the state */
    uint64_t start;        /* its newest one, 0: unknown */
};

/* Leader: the same of what is in its log, whether it is applied or not. */
struct ahead {
    uint64_t node;
    uint64_t run, proposed;
    uint64_t start;
    bool silent; /* it is said that the node is not heard (OP_NODE) */
};

/* The data directory that a node came with first. */
struct known {
    uint64_t node, incarnation;
};

/* An op of this node that is not applied yet. */
struct pending_op {
    struct pending_op *next;
    uint64_t no;     /* counts what this node submits, reads too */
    uint64_t number; /* as origin; 0: not sent yet */
    uint64_t asker;
    uint64_t give_up_ms;
    bool given_up;
    bool announces;  /* replica_announce() */
    struct slice op; /* its bytes follow the struct */
};

/* What a node has said of itself, and when it was last heard of. */
struct standing {
    uint64_t run, heard_ms; /* run 0: nothing yet */
    uint64_t applied;       /* in group 0 */
    uint64_t level, newest; /* of its groups; that it knows (replica_level.c) */
    struct clock_rate rate; /* of its clock */
    bool rate_off;          /* and that it is off has been said */
    uint64_t complain_ms;   /* when to say again that it is not listened to */
    uint64_t wrong_ms;      /* and that what it says is wrong */
    uint8_t priority;
    bool retiring, drained;
    bool level_manual; /* it waits for an operator */
};

/* Leader: the last wish of a node, should it be asked again. */
struct answered {
    uint64_t run, seq;
    enum belay_err err;
};

/* A member that this node knows from others only. */
struct named {
    uint64_t node; /* 0: none */
    struct member member;
};

struct pending_read {
    struct pending_read *next;
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
    struct origin origins[NODE_PLACES]; /* by place */
    struct machine *state;
};

/* What is stored by env->snapshot(). */
struct snapshot_task {
    struct replica *o;
    bool of_backup; /* all groups (replica_backup.c); of what follows, the name alone counts */
    uint16_t group_no;
    struct group_snapshot snap;
    char name[DISK_NAME_MAX];
    unsigned trailing;
    uint64_t log_bytes;
};

/* What the others have said since this node started: replica_start.c. */
struct doubt {
    bool lasts;        /* its word does not count in this group */
    uint64_t since_ms; /* it began, or this node was still catching up */
    uint64_t asked[NODE_PLACES],
        told[NODE_PLACES]; /* by place: the voters; those that have said how far they are */
    struct group_floor floors[NODE_PLACES]; /* by place: what it has said last */
    uint64_t term;                          /* the latest that any of them ever said */
};

/* One shard on this node. */
struct replica_group {
    struct replica *o;
    uint16_t group_no;
    struct group_state loaded; /* until the group is opened */
    struct group *group;
    struct doubt doubt;
    struct group_snapshot snapshot; /* on disk; index 0: none */
    uint64_t snapshot_size;
    uint64_t fetched_ms;   /* when a node has last asked for a piece of it; 0: never */
    struct machine *state; /* of the snapshot at the start, until the engine adopts it */
    char snapshot_name[DISK_NAME_MAX];
    char old_snapshot[DISK_NAME_MAX]; /* to be removed when the new one is in the journal */
    uint64_t log_bytes;               /* applied since the snapshot */
    size_t entry_done;                /* so many bytes of the entry that is being applied */
    uint64_t retry_ms; /* no snapshot before: the last one failed; 0: it did not */

    struct origin origins[NODE_PLACES]; /* by place */
    struct ahead ahead[NODE_PLACES];    /* by place */
    struct pending_op *first, **end;    /* in the order they were submitted */
    struct pending_op *unsent;          /* the first that the leader has not been told */
    size_t n_pending;
    uint64_t no;          /* of the last op or read submitted */
    uint64_t next_number; /* as origin */
    uint64_t sent_ms;
    uint64_t sent_term, sent_leader;
    bool leads;             /* ready, and the engine knows */
    uint64_t led_term;      /* the last in which it did */
    uint64_t heard_ms;      /* state-machine time, as the last leader said */
    uint64_t heard_term;    /* the term of that leader */
    uint64_t heard_commit;  /* and how far it had committed */
    uint64_t heard_at;      /* and when, of env->now_ms() */
    uint64_t heard_from;    /* that leader; 0: none was heard yet */
    uint64_t mark, mark_ms; /* leader: what was committed, and when */
    uint64_t near_index;    /* and before that: a node that has it is not far behind */
    uint64_t behind_from, behind_term; /* a leader says that this node had more than it has */
    unsigned behind_said;              /* so often, one after the other */
    uint64_t preferred,
        preferred_ms; /* leader: the node that should lead instead, since when */
    struct buf proposal;
    uint64_t proposed_ms;
    uint64_t timed_index, timed_term, timed_ns; /* an entry, proposed then; index 0: none */
    struct buf early; /* forwarded to a leader that is not ready yet */

    struct pending_read *reads, **reads_end;
    uint64_t round, round_term, round_index, round_ms; /* round_ms 0: none is open */
    uint64_t acks[NODE_PLACES]; /* by place: the nodes that have answered */
    struct remote_read remote[REMOTE_READS_MAX];
    size_t n_remote;
};

struct replica {
    struct order base;
    /* By place, of the node that is seen there: replica_see_node(). */
    uint64_t seen[NODE_PLACES];  /* its number */
    struct buf out[NODE_PLACES]; /* what leaves at the end of the turn */
    struct standing standings[NODE_PLACES];
    uint64_t silent_ms[NODE_PLACES]; /* for so long this leader has not heard it */
    bool unheard[NODE_PLACES];       /* its connection has ended, or it was silent for long */
    struct answered answered[NODE_PLACES];
    struct known known[NODE_PLACES]; /* by place */
    struct named named[NODE_PLACES]; /* by place */
    struct replica_config config;
    const struct replica_env *env;
    void *ctx;
    struct engine *engine;
    struct journal *journal;
    uint64_t cluster, run;     /* run: starts of this directory, and runs that were ended */
    uint64_t start;            /* number of this process in this run: replica_start.c */
    uint64_t work_until;       /* engine_work(): no more is applied before the next tick */
    size_t n_doubts;           /* groups in which its word does not count yet */
    bool over;                 /* another start has made this one void */
    bool fresh;                /* nothing was in it */
    bool start_known;          /* its start has been committed, as this process has seen */
    uint64_t incarnation;      /* of this directory: another one is another node */
    struct group_conf members; /* of the cluster: group 0's, committed */
    struct replica_group *replicas;
    struct fetch *fetch;   /* NULL: none */
    uint64_t n_fetches;    /* so far, for their names */
    struct backup *backup; /* NULL: none */
    uint64_t snapshots_failed;
    uint64_t give_up_ms; /* when to look for requests that waited too long */
    uint64_t look_ms;    /* when run_look() last looked */
    uint64_t opened_ms;
    struct admin_call *asks; /* of operators here, oldest first */
    size_t n_asks;
    uint64_t ask_seq;
    uint64_t placement_ms; /* when to look after members and leaders */
    bool opened, settling, retired, snapshotting;
    bool stirred;       /* something has come since all was settled */
    size_t out_end;     /* behind the last place that anything was ever sent to */
    bool leaving;       /* this node is being removed from the cluster */
    bool is_member;     /* committed, as this process has seen */
    bool removed;       /* and not any more */
    bool drained;       /* and nobody here needs it any more */
    bool full;          /* its disk is: replica_full.c */
    bool must_not_lead; /* leaving, retired, full or of priority 15: it hands over at once */
    struct arena arena; /* of one call */
    struct buf encoded; /* of one call: an op */
};

static inline uint64_t replica_now(const struct replica *o)
{
    return o->env->now_ms(o->ctx);
}

/* What the askers of a run of a node have in common. Runs of the next node in the same place
 * are counted from RUNS_APART higher up: what a client of a node that is gone was known by does
 * not come again soon. Should it, then nobody waits under it any more (origin_of_record), and a
 * cancel names more than that. */
static inline uint64_t replica_id_base(uint64_t node, uint64_t run)
{
    uint64_t mask = (UINT64_C(1) << (OP_NODE_SHIFT - OP_RUN_SHIFT)) - 1;
    uint64_t counted = run + node / NODE_PLACES * RUNS_APART;
    return (uint64_t)place_of(node) << OP_NODE_SHIFT | (counted & mask) << OP_RUN_SHIFT;
}

void replica_send(struct replica *o, uint64_t to, const struct peer_message *msg);
void order_forwarded(struct replica_group *r,
                     const struct peer_message *msg);                  /* a sound FORWARD */
struct origin *replica_origin(struct replica_group *r, uint64_t node); /* or NULL */
/* A new row if need be; NULL: a newer node has its place. */
struct ahead *replica_ahead(struct replica_group *r, uint64_t node);
/* What is kept by place is about this node from now on; false: about a newer one. */
bool replica_see_node(struct replica *o, uint64_t node);
const struct standing *replica_standing(const struct replica *o, uint64_t node);
void replica_set_run(struct replica *o, uint64_t run); /* and all that follows from it */
void replica_announce(struct replica_group *r);    /* the first op of a run, or of a leader */
bool replica_alone(const struct replica_group *r); /* the only voter */
BELAY_MUST_CHECK enum belay_err replica_hand_over(struct replica_group *r, uint64_t to);
void replica_disk_failed(struct replica *o, int code); /* errno: the process ends */

/* replica_entry.c: NULL, or what is wrong, in words. */
const char *entry_problem(struct replica_group *r, struct slice data);
const char *entry_op_problem(struct replica_group *r, uint64_t node, struct slice bytes);
BELAY_MUST_CHECK enum belay_err entry_check_log(struct replica_group *r);

/* replica_run.c */
/* The runs of this origin before `next` are over; `now` is state-machine time. */
void run_over(struct replica_group *r, struct origin *origin, uint64_t next, uint64_t now);
/* What the leader has put into the log about the run that this origin has. */
void run_word(struct replica_group *r, struct origin *origin, struct slice word, uint64_t now);
void run_lost(struct replica *o, uint64_t node);  /* its connection has ended */
void run_heard(struct replica *o, uint64_t node); /* it has said something */
void run_lead(struct replica_group *r);           /* this node has begun to lead it */
/* Is the node in the state of this group, for good? If not, its leader puts it there. */
bool run_is_known(struct replica_group *r, uint64_t node);
void run_look(struct replica *o); /* now and then: nodes that are gone, and this one's own */

/* replica_start.c */
uint64_t start_number(uint64_t run, uint64_t seed);
/* `newer` began after `start`, or beside it from another copy of the same directory. */
extern const char start_over_text[];
bool start_is_over(uint64_t start, uint64_t newer);
void start_doubt(struct replica_group *r); /* at the start */
void start_check(
    struct replica_group *r); /* after the state has changed: is this node still it? */
void start_check_append(struct replica_group *r, const struct peer_message *msg);
void start_report(struct replica *o, const struct peer_message *msg);
/* false: what it says makes no sense. */
bool start_hear(struct replica *o, const struct peer_message *msg);
void start_look(struct replica *o); /* now and then */

/* replica_timing.c: one entry at a time is timed, from when this node proposed it until it is
 * applied here. */
void timing_proposed(struct replica_group *r); /* the last entry of the log */
void timing_applied(struct replica_group *r, uint64_t index);

/* replica_read.c */
void read_add(struct replica_group *r, const struct op *op);
void read_settle(struct replica_group *r);
void read_receive(struct replica_group *r, const struct peer_message *msg);
void read_lost(struct replica_group *r); /* role or term changed: ask again */
void read_done(struct replica_group *r);

/* replica_admin.c */
void admin_settle(struct replica *o);
void admin_receive(struct replica *o, const struct peer_message *msg);
void admin_done(struct replica *o);
/* Leader of group 0, now and then: forgets the secrets of new members that vote. */
void admin_let_in(struct replica_group *r);

/* replica_lead.c */
void lead_tick(struct replica *o);
void lead_soon(struct replica *o);   /* something has changed: look in a moment */
void lead_follow(struct replica *o); /* takes over what group 0 says of the members */
void lead_stand(struct replica *o);  /* it has changed whether this node may lead */
bool lead_may_take(const struct replica_group *r,
                   uint64_t id);         /* a group that is handed over */
void lead_rank(struct replica_group *r); /* which nodes stand for election before this one? */
void lead_tell(struct replica *o, uint64_t to);
bool lead_hear(struct replica *o,
               const struct peer_message *msg); /* false: it makes no sense */

/* replica_named.c */
/* The members that another one knows; false: it makes no sense. */
bool named_hear(struct replica *o, struct slice conf);

/* replica_level.c */
void level_lead(struct replica_group *r);  /* this node has begun to lead it */
void level_raise(struct replica_group *r); /* leader, now and then */
/* Leader of group 0: an operator wants it. BELAY_ERR_RANGE: it would be lowered.
 * BELAY_ERR_IN_USE: not all members know it. */
enum belay_err level_wish(struct replica_group *r, uint64_t level);
bool level_is_reached(const struct replica *o, uint64_t level); /* by all groups, here */
void level_apply(struct replica_group *r, struct reader *in, uint64_t now); /* an ENTRY_LEVEL */
uint64_t level_highest(const struct replica *o);                            /* of all groups */
bool level_may_speak(struct replica *o, uint64_t node); /* both follow what the other does */
bool level_is_behind(const struct replica *o);          /* this program is too old here */
BELAY_MUST_CHECK enum belay_err
level_check(const struct replica_group *r);     /* of what is on disk */
uint64_t level_newest(const struct replica *o); /* that it knows */
void level_problem(const struct replica *o, const char *where, uint64_t level);

/* replica_full.c */
extern const char full_text[];
void full_look(
    struct replica *o); /* after a write: has the disk become full, or not any more? */
void full_tick(struct replica *o); /* about once a second */
void full_append(const struct replica *o,
                 struct peer_message *msg); /* takes away what has no place */

/* replica_status.c */
bool replica_may_propose(
    const struct replica_group *r); /* now, or is it better to wait for more? */
/* As struct order_ops. */
uint64_t status_age(const struct order *base, size_t group_no, uint64_t *ret_now_ms);
const char *status_not_ready(const struct order *base, const char **ret_word);

/* replica_fetch.c */
bool fetch_newest(void *ctx, uint16_t group_no, struct group_snapshot *ret,
                  uint64_t *ret_bytes);
void fetch_receive(struct replica_group *r, const struct peer_message *msg);
void fetch_settle(struct replica *o);
bool fetch_is_of(const struct replica_group *r); /* one of this group is under way */
/* Of the one that is being installed. */
const char *fetch_file(const struct replica *o, uint64_t *ret_bytes);
void fetch_take(struct replica_group *r, struct judged *ret); /* it is installed */
void fetch_done(struct replica *o);

/* replica_backup.c */
void backup_settle(struct replica *o);
void backup_tick(struct replica *o); /* now and then */
BELAY_MUST_CHECK bool backup_write(const struct snapshot_task *task);
void backup_written(struct replica *o, bool stored);
void backup_done(struct replica *o);

/* replica_store.c */
BELAY_MUST_CHECK enum belay_err
store_identify(struct replica *o); /* reads which node's directory it is */
BELAY_MUST_CHECK enum belay_err store_open(struct replica *o);
/* What is in the file, for any node; false: damaged. */
#define IDENTITY_NAME "identity"
bool store_read_identity(struct replica *o, struct slice file, uint64_t *ret_node,
                         uint64_t *ret_groups);
BELAY_MUST_CHECK enum belay_err store_write_identity(struct replica *o);
void store_run(struct replica *o); /* o->run is durable, or the process ends */
/* The head of a snapshot; the state itself stays in *ret_state. For the fuzzer too. */
bool store_decode(struct slice bytes, uint16_t group_no, struct group_snapshot *ret_snap,
                  struct origin ret_origins[NODE_PLACES], struct slice *ret_state);
/* A snapshot: its head, then the state, then the end, into an empty `out`. */
void store_begin(uint16_t group_no, const struct group_snapshot *snap,
                 const struct origin origins[NODE_PLACES], struct buf *out);
void store_end(struct buf *out);
/* All of it, of the state as it is. */
void store_encode(const struct replica_group *r, const struct group_snapshot *snap,
                  struct buf *out);
/* All of it, with its state, which is then the caller's; on any thread. */
bool store_judge(size_t n_groups, uint16_t group_no, struct slice bytes, struct judged *ret);
/* What is fetched has such a name until it is all there. A backup has one until it was fetched.
 * The next start deletes both. */
#define INCOMING_PREFIX "incoming-"
#define BACKUP_PREFIX   "backup-"
bool store_is_passing(const char *name);
uint64_t store_persist(void *ctx, const struct journal_record *rec);
uint64_t store_install(void *ctx, uint16_t group_no, const struct group_snapshot *snap);
void store_restore(void *ctx, uint16_t group_no);
void store_restore_state(struct replica_group *r);
void store_settle(struct replica *o); /* snapshots that are due, segments that may go */
void store_close(struct replica *o);
void store_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
