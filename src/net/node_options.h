/* node_options.h - what an operator says of a node: one struct from the command line to the
 * replica. An option that is not given is 0 or NULL, and means the default. */
#ifndef BELAY_NET_NODE_OPTIONS_H
#define BELAY_NET_NODE_OPTIONS_H

#include "tls/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node_options {
    const char *data;  /* directory; NULL: nothing on disk */
    const char *name;  /* NULL: a cluster of one */
    const char *peers; /* "n1=host:port,n2=host:port": the first members, the same everywhere;
                        * NULL: this node alone, or it will be added to a cluster */
    const char *peer_listen; /* "host:port"; NULL: nobody connects */
    const char *join;        /* admission.h; not NULL: wait to be added to a cluster */
    struct tls_files tls;    /* all, or none: the nodes speak plain text */
    size_t shards;           /* 0: what the directory or the cluster has */
    uint64_t silence_ms;     /* of a node, until the clients that wait there leave */
    uint64_t segment_bytes, snapshot_bytes; /* of the journal */
    uint8_t priority;                       /* 0..15 */
    bool fast_failover;
    bool level_manual; /* an operator raises the level */
};
#endif
