/* sim.h - a whole cluster in one process: the real machine, engine, order and libraft core over
 * a simulated disk, network and clock. One seed, one history.
 *
 *   world (sim_world.c)   one queue of events, one random generator, one clock
 *   nodes (sim_node.c)    disk, order, engine, a clock of its own; faults: sim_fault.c
 *   clients               ask nodes for everything that can be asked (sim_client.c), remember
 *                         what they were promised (sim_promise.c, sim_answer.c), complain
 *   judge (sim_judge.c)   sees what every node applies and reads (sim_tap.c), replays it
 *                         through a machine of its own, and holds the rules of the log
 *                         (sim_rules.c)
 *
 * Two witnesses: the clients know answers alone, the judge knows the log. The one that finds a
 * contradiction says sim_wrong(). Times are milliseconds of the world; `moment` counts events
 * and orders everything. */
#ifndef BELAY_TESTS_SIM_H
#define BELAY_TESTS_SIM_H

#include "engine/engine.h"
#include "raft/replica.h"
#include "sim_client.h"
#include "sim_disk.h"

enum {
    SIM_NODES = 16, /* 1-based; a number is used once, and some are given in vain */
    SIM_JOINS = 5,  /* of them may be added */
    SIM_TERMS = 1 << 14,
    DOUBT_MS = 45000, /* with old copies: nobody but who is refused is away for so long */
};

/* Beside those of enum replica_canary. */
enum {
    CANARY_NO_COUNTER = 8,      /* the counter of fences is not in the snapshot */
    CANARY_LATE = 1024,         /* an answer says what was left when it was granted */
    CANARY_BY_NUMBER = 16,      /* a cancel means whoever has the asker's number */
    CANARY_OLD_KEEP = 32,       /* a node counts on a session that was kept long ago */
    CANARY_NO_CALL_BACK = 4096, /* a node speaks only to the members that it knows */
    CANARY_NO_MARGIN = 8192,    /* leases have no margin for clocks that differ */
    CANARY_NO_SKIP = 16384,     /* the numbers of a survivor do not go on higher */
};

/* Of an asker's count so many bits are compared, as if numbers came again that soon: there are
 * hardly more of them than asks that may be outstanding at a node. */
enum { SIM_COUNT_BITS = 4 };
_Static_assert(SIM_CLIENTS + 1 < 1 << SIM_COUNT_BITS,
               "a client has one ask at a time, and so has the keeper of sessions");

/* What a defect needs to show may be rare in the mixture that all seeds are drawn from. */
enum sim_aim {
    AIM_ALL,
    AIM_ALONE,     /* one voter that dies before its disk has what others have heard of it */
    AIM_REFUSALS,  /* refusals that arrive when they are true no more */
    AIM_READS,     /* reads at a leader that does not know yet that there is another */
    AIM_COPIES,    /* disks that are put back as they were */
    AIM_SNAPSHOTS, /* logs that are cut off while others still send and ask for them */
    AIM_SEGMENTS,  /* journals of the smallest segments, and starts that are killed as well */
    AIM_GONE,      /* clients that are gone before they have their answer */
    AIM_SESSIONS,  /* sessions that are used in several shards, and short */
    AIM_PLACES,    /* members whose place a node had before that is gone (raft/place.h) */
    AIM_DEAD,      /* nodes that die while somebody waits there */
    AIM_LIARS,     /* a member whose memory is broken: bytes of what it says are others */
    AIM_DISASTER,  /* all nodes but one are gone for good (sim_disaster.c) */
    N_AIMS,
};

/* With smaller segments a few votes use up the reserve of a full disk, and the node ends. */
enum { SIM_ROOMY_BYTES = 32 << 10 };

/* What may happen in one run, drawn from its seed. */
struct sim_plan {
    uint64_t seed;
    int nodes;        /* members at first */
    size_t groups;    /* 1, or one for namespaces and sessions and one for each shard */
    uint64_t span_ms; /* with faults; then everything heals */
    int clients;
    bool crashes, pauses, cuts, one_way, transfers, changes, clocks, aim_leader, herd;
    bool hunt;       /* who has just become leader is cut off or killed a moment later */
    bool old_copies; /* of one node: its disk is put back as it was a while ago */
    bool upgrade;    /* nodes know the newest level when they start again, and some go back */
    bool bad_disks;  /* a write fails: the node gives up and is started again */
    bool slow;       /* some clocks go at a quarter of the world's time, instead of 4 % off */
    bool fine;       /* they are 0.1 % off at most */
    bool disaster;   /* once; members change behind it only */
    bool short_ttls; /* leases as short as an election */
    unsigned habits; /* enum sim_habit: what clients do */
    unsigned loss, twice;       /* per cent of messages */
    unsigned lies;              /* per cent of what node 1 says; then nothing but the life of
                                 * the others counts: their states may be what it likes */
    unsigned delay_ms, disk_ms; /* at most */
    unsigned inflight;          /* entries on their way to a follower */
    uint64_t snapshot_bytes, segment_bytes;
    uint64_t turn_work; /* so much is applied before everything else goes on */
    unsigned batch;     /* machine_set_batch(): few units, and all that is long goes in parts */
    uint64_t fault_every_ms;
};

/* What the one who runs it wants, whatever the seed. */
struct sim_options {
    unsigned guards_off, canaries;
    enum sim_aim aim;
    bool verbose, trace;
    bool answers_only; /* the judge sees nothing: what do the clients find alone? */
};

/* What a watcher of a node has heard: as many as the log has up to what is applied there. */
struct sim_news {
    uint64_t next; /* number in the feed; 0: begins */
    uint64_t seen;
};

struct sim_node {
    struct sim_world *w;
    uint64_t id;
    struct sim_disk disk;
    struct order *order; /* NULL: it is down */
    struct engine *engine;
    struct feed *feed;
    bool old;      /* it does not know the newest levels: one of them or all */
    bool too_old;  /* and that has kept it from starting, or ended it: it is new from then on */
    uint64_t life; /* counts starts: events of an earlier one are void */
    uint64_t paused_until;
    uint64_t lost_ms; /* it died, and its connections with all others ended; 0: not with all */
    uint64_t clock_from, clock_base; /* its clock: base + (now - from) * rate / 1000 */
    uint64_t rate;
    uint64_t next_wake;
    struct journal_job *job; /* being written */
    struct fetch *fetch;     /* a piece is */
    struct snapshot_task *task;
    bool member;                /* has been part of the cluster */
    bool joins;                 /* it was not there when it was made */
    bool called[SIM_NODES + 1]; /* by whom, since it has started */
    bool wrong_disk;
    struct sim_disk copy; /* of its disk, as it was */
    bool has_copy;
    bool is_old;                   /* it has begun from the copy */
    bool refused;                  /* and was not believed: it stays down, and is removed */
    bool dying;                    /* fatal() ended its process: it stops after the call */
    enum admin_kind wish;          /* what an operator asked here last */
    unsigned wishes;               /* not answered yet */
    bool was_in;                   /* its membership was committed */
    bool leaving;                  /* an operator wants it removed */
    bool gone;                     /* and stopped, for good */
    uint64_t applied[SIM_GROUPS];  /* ops in its state */
    uint64_t compared[SIM_GROUPS]; /* the same, when its hash was last looked at */
    uint64_t read_at[SIM_GROUPS];  /* the same, when it was last read from */
    uint64_t shown[SIM_SPACES][SIM_LOCKS]; /* the largest fence of an exclusive hold in it */
    uint64_t terms[SIM_GROUPS];            /* that are on its disk, whatever happens */
    struct sim_news news;
};

enum sim_event_kind {
    EV_MESSAGE,
    EV_WRITTEN,
    EV_SNAPSHOT,
    EV_FETCHED,
    EV_WAKE,
    EV_CLIENT, /* its turn */
    EV_GO,     /* it goes away, if it still waits */
    EV_KEEP,   /* its server keeps its session */
    EV_FAULT,
    EV_CRASH,
    EV_HUNT,
    EV_BACKUP,
    EV_DISASTER,
    EV_START,
    EV_JOIN,
    EV_HEAL,
    EV_OPERATE
};

struct sim_event {
    uint64_t at, seq;
    enum sim_event_kind kind;
    uint64_t node, life, from;
    struct buf bytes;
};

struct sim_world {
    struct sim_plan plan;
    const struct sim_options *options;
    uint64_t now, moment, random;
    uint64_t trace; /* of everything that happened: equal seeds, equal traces */
    struct sim_event **heap;
    size_t n, cap;
    uint64_t seq, lost_seq; /* lost: messages before it went with all connections */
    struct sim_node nodes[SIM_NODES + 1];
    bool cut[SIM_NODES + 1][SIM_NODES + 1]; /* from, to */
    struct sim_client clients[SIM_CLIENTS];
    struct sim_space spaces[SIM_SPACES];
    struct sim_past past;
    struct judge *judge;
    bool healing;
    uint64_t calm_ms; /* nobody was stopped, and nobody started, since then */
    uint64_t leader_of[SIM_GROUPS][SIM_TERMS];
    uint64_t committed[SIM_GROUPS]; /* the last index that any node knows as such */
    struct group_conf members; /* of group 0: the newest that any node knows as committed */
    uint64_t members_index;
    uint64_t n_looks;   /* at the members */
    uint64_t old_node;  /* whose disk is put back; 0: none yet */
    uint64_t next_node; /* a number that nobody had */
    uint64_t names;     /* of nodes that were to be added */
    uint64_t n_acked, n_faults, n_crashes, n_reads, n_leaders, n_unknown, n_changes;
    uint64_t n_survived, n_unfit; /* disasters with a new cluster; that the command refuses */
    uint64_t n_restored;          /* with one made of a backup */
    struct buf backup;            /* the file; empty: there is none */
    uint64_t backup_from[SIM_GROUPS]; /* ops that anybody had applied when it was asked for */
    bool restored;                    /* the cluster is made of it */
    const char *wrong;
    char wrong_text[512];
};

/* sim_world.c */
uint64_t sim_random(struct sim_world *w, uint64_t below);
bool sim_chance(struct sim_world *w, unsigned percent);
uint64_t sim_between(struct sim_world *w, uint64_t from, uint64_t to);
void sim_wrong(struct sim_world *w, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_mark(struct sim_world *w, uint64_t what); /* into the trace */
struct sim_event *sim_post(struct sim_world *w, uint64_t in_ms, enum sim_event_kind kind,
                           uint64_t node);
struct sim_event *sim_next(struct sim_world *w);              /* NULL: none; the clock moves */
void sim_put_back(struct sim_world *w, struct sim_event *ev); /* takes it */
void sim_drop(struct sim_event *ev);                          /* frees it */

/* sim_fault.c */
void sim_plan(uint64_t seed, enum sim_aim aim, struct sim_plan *ret);
void sim_fault(struct sim_world *w);
void sim_crash(struct sim_world *w, uint64_t id); /* it starts again later */
void sim_hunt(struct sim_world *w, uint64_t leader, size_t group, uint64_t term);
void sim_operate(struct sim_world *w); /* starts who was added, stops who was removed */
void sim_heal_cuts(struct sim_world *w);
uint64_t sim_leader(const struct sim_world *w, size_t group); /* 0: none */

/* sim_node.c */
void sim_node_start(struct sim_world *w, uint64_t id);
void sim_node_crash(struct sim_world *w, uint64_t id);
void sim_node_event(struct sim_world *w, struct sim_event *ev);
void sim_node_settle(struct sim_world *w, struct sim_node *n);
uint64_t sim_node_clock(const struct sim_node *n);
bool sim_node_went_back(const struct sim_node *n); /* to the older program */
void sim_node_put_back(struct sim_node *n);        /* it is down: its disk becomes the copy */
void sim_node_set_rate(struct sim_node *n, uint64_t rate); /* per mille of the world's time */
/* A node's number in its cluster, and back. */
uint64_t sim_number(const struct sim_world *w, uint64_t id);
uint64_t sim_of_number(const struct sim_world *w, uint64_t number);
struct group *sim_group(const struct sim_node *n, size_t group);

/* sim_disaster.c */
void sim_disaster_plan(struct sim_world *w);
void sim_backup(struct sim_world *w);
void sim_disaster(struct sim_world *w);

/* sim_tap.c: who is being called; what it applies and reads meanwhile is its own. */
void sim_enter(struct sim_node *n);

/* sim_judge.c */
struct judge *judge_open(struct sim_world *w);
void judge_close(struct judge *j);
void judge_apply(struct judge *j, struct sim_node *n, size_t shard, const struct op *op,
                 const struct event *events, size_t n_events);
void judge_stamped(struct judge *j, size_t shard, uint64_t ms); /* a node says: it is now ms */
/* When that was first said, in the world; 0: it is not known. */
uint64_t judge_stamped_at(const struct judge *j, size_t shard, uint64_t ms);
void judge_read(struct judge *j, struct sim_node *n, const struct machine *m,
                const struct op *op, const struct event *ev);
void judge_state(struct judge *j, struct sim_node *n, size_t shard);
/* The logs may go on from any earlier op, as the next node says that applies them, until it comes
 * to where a survivor's numbers skip. What comes behind that is above all that were ever given. */
void judge_forks(struct judge *j);
/* With a backup it is the state itself that comes next, and skips. */
void judge_adopt(struct judge *j, const struct sim_node *n, size_t shard, uint64_t applied);
bool judge_is_forking(const struct judge *j);
uint64_t judge_length(const struct judge *j, size_t shard); /* ops that anybody has applied */
uint64_t judge_news(const struct judge *j, const struct sim_node *n); /* up to its state */
bool judge_equal(const struct judge *j, const struct sim_node *n,
                 size_t shard); /* has all of it */
bool judge_empty(
    const struct judge *j); /* nothing is held, waited for, set, open, on its way */
bool judge_knows(const struct judge *j, uint64_t asker); /* is it in a log? */
void judge_describe(const struct judge *j);
uint64_t digest_event(const struct event *ev); /* of every field, rows and all */
#endif
