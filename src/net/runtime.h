/* runtime.h - the durable engine on a libuv loop: its timer, its writes, its snapshots, its
 * peers.
 *
 *   runtime_open() -> order -> engine_open() -> runtime_start() -> ...
 *   -> runtime_stop() -> runtime_close()
 *
 * Writes run on a thread of their own, one at a time, when a look at the sockets brings nothing
 * more for them; what is submitted meanwhile goes into the next one. A snapshot is written by a
 * forked child from its copy of the memory; the loop stands still for the fork only. Loop
 * thread only. */
#ifndef BELAY_NET_RUNTIME_H
#define BELAY_NET_RUNTIME_H

#include "base/err.h"
#include "base/histogram.h"
#include "net/node_options.h"
#include "net/refusal.h"
#include "raft/member.h"

#include <stdbool.h>
#include <stdint.h>

struct uv_loop_s;
struct runtime;
struct order;
struct replica;

enum {
    RUNTIME_ELECTION_MS = 400,
    RUNTIME_HEARTBEAT_MS = 80,
    RUNTIME_FAST_ELECTION_MS = 100, /* --fast-failover: a local network and a quiet machine */
    RUNTIME_FAST_HEARTBEAT_MS = 20,
    RUNTIME_SEAL_MS = 100,  /* after so much rest the end of the journal is sealed */
    RUNTIME_STOP_MS = 2000, /* a node that stops tries so long to hand over what it leads */
    RUNTIME_SHARDS_CLUSTER = 16, /* of a new cluster; a node alone has one */
};

struct runtime_config {
    struct uv_loop_s *loop;
    struct node_options node;
    const char *listen; /* where clients reach this node, to tell the others */
    bool insecure;      /* between nodes, plain text will do */
    size_t peer_bytes;  /* may wait to be sent to other nodes; 0: peer.h's maximum for each */
    /* Told once: this node is being removed from its cluster, or has been. It should send its
     * clients elsewhere, and stop. */
    void (*removed)(void *ctx);
    void *ctx;
};

/* BELAY_OK, or the log says why not. A node that joins a cluster with an empty directory waits
 * here until a member calls: it must know how many shards there are. */
BELAY_MUST_CHECK enum belay_err runtime_open(const struct runtime_config *config,
                                             struct runtime **ret, struct order **ret_order);
/* After engine_open(). False, and a line in the log: this node must not serve. */
BELAY_MUST_CHECK bool runtime_start(struct runtime *h);
/* Begins to hand over what this node leads, each group when nothing of its own is on the way.
 * Any number of times. */
void runtime_retire(struct runtime *h);
/* The same, and makes everything durable. Call it again until it says true: then the handles
 * are closing and the loop may end. A node that is being removed votes until the others can do
 * without it. */
bool runtime_stop(struct runtime *h);
/* It is proven that this node is no member any more: by its own log, or by most of the
 * voters that it knows. */
bool runtime_is_removed(const struct runtime *h);
void runtime_hurry(struct runtime *h); /* runtime_stop() does not wait for others any more */
void runtime_close(struct runtime *h); /* after engine_close(); NULL is allowed */

/* Reads the files of TLS again; connections that there are go on. */
void runtime_reload(struct runtime *h);
/* False: no TLS. Else seconds until this node's certificate ends. */
bool runtime_certificate_expires_s(const struct runtime *h, int64_t *ret_s);

size_t runtime_peer_bytes(const struct runtime *h); /* what is kept for and from other nodes */

struct replica *runtime_replica(struct runtime *h);
/* This node. False: its log does not have it as a member yet. */
bool runtime_self(const struct runtime *h, struct member *ret);
/* How long each write to the journal took, with its fdatasync. */
const struct histogram *runtime_writes(const struct runtime *h);
/* The same of the last ones: half of them at most `median_us`. False: there was none. */
struct write_times {
    uint64_t median_us, slowest_us;
};
bool runtime_last_writes(const struct runtime *h, struct write_times *ret);
/* How long entries took that this node has put into a log as its leader, until they were
 * applied. One entry of each shard is timed at a time. */
const struct histogram *runtime_commits(const struct runtime *h);

/* For CLUSTER and /v1/cluster. */
struct runtime_member {
    uint64_t id;
    struct member member; /* its priority is the one in force */
    char listen[GROUP_ADDRESS_MAX];
    bool voter, self, leader;       /* in group 0 */
    bool up;                        /* connected both ways */
    bool ready;                     /* and votes in all groups, and stays */
    bool refused;                   /* by this node, or it refuses this one */
    char problem[REFUSAL_TEXT_MAX]; /* why it is not up; empty: nothing is wrong */
    size_t leads;                   /* so many groups */
    uint64_t applied;
};
/* NULL, or why this node cannot serve, as far as only the sockets know: it is refused. */
const char *runtime_not_ready(struct runtime *h);
size_t runtime_members(struct runtime *h, struct runtime_member *ret, size_t max);
#endif
