/* sim.h - a whole cluster in one process: the real machine, engine, order and libraft core over
 * a simulated disk, network and clock. One seed, one history.
 *
 *   world -> nodes (disk, order, engine, clock), one queue of events, one random generator
 *   clients ask nodes, remember what they were promised, and complain (sim_wrong)
 *
 * Times are milliseconds of the world; `moment` counts events and orders everything. */
#ifndef BELAY_TESTS_SIM_H
#define BELAY_TESTS_SIM_H

#include "engine/engine.h"
#include "engine/order_raft.h"
#include "sim_disk.h"

enum {
    SIM_NODES = 6, /* 1-based; the last ones may join later */
    SIM_CLIENTS = 12,
    SIM_LOCKS = 5,
    SIM_INDEXES = 1 << 16, /* of the log, checked for equality */
    SIM_TERMS = 1 << 14,
};

/* What may happen in one run, drawn from its seed. */
struct sim_plan {
    uint64_t seed;
    int nodes;        /* members at first */
    uint64_t span_ms; /* with faults; then everything heals */
    int clients;
    bool crashes, pauses, cuts, one_way, transfers, changes, clocks, aim_leader, herd;
    bool slow; /* some clocks go at a quarter of the world's time, instead of 4 % off */
    unsigned loss, twice;       /* per cent of messages */
    unsigned delay_ms, disk_ms; /* at most */
    uint64_t snapshot_bytes;
    unsigned guards_off, canaries;
    uint64_t fault_every_ms;
    bool verbose;
};

struct sim_node {
    struct sim_world *w;
    uint64_t id;
    struct sim_disk disk;
    struct order *order; /* NULL: it is down */
    struct engine *engine;
    struct feed *feed;
    uint64_t life; /* counts starts: events of an earlier one are void */
    uint64_t paused_until;
    uint64_t clock_from, clock_base; /* its clock: base + (now - from) * rate / 1000 */
    uint64_t rate;
    uint64_t next_wake;
    struct journal_job *job; /* being written */
    struct snapshot_task *task;
    bool member; /* has been part of the cluster */
    bool wrong_disk;
    uint64_t seen_applied;
};

struct sim_event {
    uint64_t at, seq;
    enum {
        EV_MESSAGE,
        EV_WRITTEN,
        EV_SNAPSHOT,
        EV_WAKE,
        EV_CLIENT,
        EV_FAULT,
        EV_START,
        EV_JOIN,
        EV_HEAL
    } kind;
    uint64_t node, life, from;
    struct buf bytes;
};

struct sim_client {
    struct sim_world *w;
    int no;
    struct ask ask;
    enum { CL_IDLE, CL_ACQUIRE, CL_RELEASE, CL_READ, CL_OTHER } doing;
    uint64_t node, life;
    uint64_t nonce;
    uint64_t invoked, invoked_ms; /* moment and time */
    int lock;
    /* what it holds, as it was told */
    uint64_t fence, granted_ms, ttl_ms;
    int held;
    char owner[32];
};

/* What is known about one lock from answers alone. */
struct sim_lock {
    uint64_t acked_fence;  /* the largest that anybody was granted */
    uint64_t acked_moment; /* when it was answered */
    uint64_t gone_fence;   /* the largest whose release was answered */
    uint64_t gone_moment;
};

struct sim_world {
    struct sim_plan plan;
    uint64_t now, moment, random;
    struct sim_event **heap;
    size_t n, cap;
    uint64_t seq;
    struct sim_node nodes[SIM_NODES + 1];
    bool cut[SIM_NODES + 1][SIM_NODES + 1]; /* from, to */
    struct sim_client clients[SIM_CLIENTS];
    struct sim_lock locks[SIM_LOCKS];
    bool healing;
    uint64_t hash_at[SIM_INDEXES]; /* of the state after that entry */
    uint64_t leader_of[SIM_TERMS];
    uint64_t top; /* the highest entry that was applied anywhere */
    uint64_t n_acked, n_faults, n_crashes, n_reads, n_leaders, n_unknown, n_changes;
    const char *wrong;
    char wrong_text[512];
};

uint64_t sim_random(struct sim_world *w, uint64_t below);
bool sim_chance(struct sim_world *w, unsigned percent);
void sim_wrong(struct sim_world *w, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct sim_event *sim_post(struct sim_world *w, uint64_t in_ms, int kind, uint64_t node);

/* sim_node.c */
void sim_node_start(struct sim_world *w, uint64_t id);
void sim_node_crash(struct sim_world *w, uint64_t id);
void sim_node_event(struct sim_world *w, struct sim_event *ev);
void sim_node_settle(struct sim_world *w, struct sim_node *n);
uint64_t sim_node_clock(const struct sim_node *n);
void sim_node_set_rate(struct sim_node *n, uint64_t rate); /* per mille of the world's time */
struct group *sim_group(const struct sim_node *n);

/* sim_client.c */
void sim_client_act(struct sim_world *w, int no);
void sim_client_lost(struct sim_world *w, uint64_t node); /* its node died */
bool sim_clients_done(const struct sim_world *w);
#endif
