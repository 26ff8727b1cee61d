/* host.h - the durable engine on a libuv loop: its timer, its writes, its snapshots, its peers.
 *
 *   host_open() -> order -> engine_open() -> host_start() -> ... -> host_stop() -> host_close()
 *
 * Writes run on a thread of their own, one at a time, when a look at the sockets brings nothing
 * more for them; what is submitted meanwhile goes into the next one. A snapshot is written by a
 * forked child from its copy of the memory; the loop stands still for the fork only. Loop
 * thread only. */
#ifndef BELAY_ENGINE_HOST_H
#define BELAY_ENGINE_HOST_H

#include "base/err.h"
#include "engine/member.h"

#include <stdbool.h>
#include <stdint.h>

struct uv_loop_s;
struct host;
struct order;
struct order_raft;

enum {
    HOST_ELECTION_MS = 400,
    HOST_HEARTBEAT_MS = 80,
    HOST_FAST_ELECTION_MS = 100, /* --fast-failover: a local network and a quiet machine */
    HOST_FAST_HEARTBEAT_MS = 20,
    HOST_SEAL_MS = 100,       /* after so much rest the end of the journal is sealed */
    HOST_STOP_MS = 2000,      /* a node that stops tries so long to hand over what it leads */
    HOST_SHARDS_CLUSTER = 16, /* of a new cluster; a node alone has one */
};

struct host_config {
    struct uv_loop_s *loop;
    const char *data;  /* directory */
    const char *node;  /* its name; NULL: a cluster of one */
    const char *peers; /* "n1=host:port,n2=host:port": the first members, the same everywhere;
                        * NULL: this node alone, or it will be added to a cluster */
    const char *peer_listen; /* "host:port"; NULL: nobody connects */
    uint64_t join_id;        /* not 0: wait to be added to a cluster, under this number */
    const char *listen;      /* where clients reach this node, to tell the others */
    size_t shards;           /* 0: what the directory or the cluster has */
    uint8_t priority;        /* 0..15 */
    uint64_t silence_ms, segment_bytes, snapshot_bytes; /* of order_raft_config */
    bool fast_failover, insecure;
    /* Told once: this node is being removed from its cluster, or has been. It should send its
     * clients elsewhere, and stop. */
    void (*removed)(void *ctx);
    void *ctx;
};

/* BELAY_OK, or the log says why not. A node that joins a cluster with an empty directory waits
 * here until a member calls: it must know how many shards there are. */
BELAY_MUST_CHECK enum belay_err host_open(const struct host_config *config, struct host **ret,
                                          struct order **ret_order);
/* After engine_open(). False, and a line in the log: this node must not serve. */
BELAY_MUST_CHECK bool host_start(struct host *h);
/* Begins to hand over what this node leads, each group when nothing of its own is on the way.
 * Any number of times. */
void host_retire(struct host *h);
/* The same, and makes everything durable. Call it again until it says true: then the handles
 * are closing and the loop may end. A node that is being removed votes until the others can do
 * without it. */
bool host_stop(struct host *h);
void host_hurry(struct host *h); /* host_stop() waits for nobody any more */
void host_close(struct host *h); /* after engine_close(); NULL is allowed */

struct order_raft *host_order(struct host *h);

/* For CLUSTER and /v1/cluster. */
struct host_member {
    uint64_t id;
    struct member member; /* its priority is the one in force */
    char listen[GROUP_ADDRESS_MAX];
    bool voter, up, self, leader; /* in group 0 */
    bool ready;                   /* votes in all groups, and stays */
    size_t leads;                 /* so many groups */
    uint64_t applied;
};
size_t host_members(struct host *h, struct host_member *ret, size_t max);
#endif
