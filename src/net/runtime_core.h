/* runtime_core.h - what runtime.c and runtime_open.c share; for no other file. */
#ifndef BELAY_NET_RUNTIME_CORE_H
#define BELAY_NET_RUNTIME_CORE_H

#include "base/pages.h"
#include "net/admission.h"
#include "net/peer.h"
#include "net/refusal.h"
#include "net/runtime.h"
#include "raft/replica.h"
#include "storage/writer.h"
#include "tls/own.h"

#include <sys/types.h>
#include <uv.h>

enum { RUNTIME_WRITES = 64 }; /* so many are looked back at */

struct runtime {
    struct runtime_config config;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_timer_t join_timer; /* while there are small pages to put together */
    struct pages pages;
    uv_prepare_t prepare;
    uv_idle_t idle; /* while it is active the loop does not sleep */
    struct replica *order;
    struct disk *disk;
    struct peers *peers;
    struct tls_own tls;
    uint64_t id, cluster;
    struct admission admission; /* of a node that joins; else all 0 */
    size_t groups;
    struct refusals refusals;
    uint64_t armed_ms;          /* when the timer fires, UINT64_MAX: never */
    uint64_t look_ms;           /* when to look at the members again */
    uint64_t busy_ms;           /* when something was last written */
    uint64_t stop_ms;           /* stopping: no longer than that */
    uint64_t stranger_ms;       /* when to say again that one has called */
    uint64_t yield_ms;          /* from when on others may go first again */
    uint64_t due_ns;            /* since when there is something to write */
    uint64_t began_ns, took_ns; /* the last write */
    size_t due;                 /* how much it was when it was last looked at */
    /* the last ones, by number */
    uint64_t took_us[RUNTIME_WRITES], n_writes;
    struct writer writer;
    struct histogram writes, commits; /* see runtime.h */
    uv_work_t snapshot_work, fetch_work;
    struct snapshot_task *task;
    struct fetch *fetch; /* being stored or looked at */
    pid_t child;
    bool stored, started, stopping, retired, sealed, stopped;
    bool told_to_go, removed, hurry;
    bool has_peers;  /* --peers names more than this node */
    bool is_foreign; /* and the directory is not of the cluster that they began */
};

/* runtime_open.c: which node of which cluster this is, its directory and its order. A node that
 * joins waits here until a member calls it. */
BELAY_MUST_CHECK enum belay_err
runtime_open_order(struct runtime *h, const struct replica_env *env, struct order **ret_order);
/* Logs a caller that is not listened to, at most once in 10 s. */
void runtime_say_stranger(struct runtime *h, const struct peer_hello *hello, const char *event,
                          const char *what);
#endif
