/* peer.h - frames between the nodes of a cluster, over TCP and mutual TLS.
 *
 *   node A --one connection--> node B     what A says to B
 *   node A <--one connection-- node B     what B says to A; only a refusal takes the other one
 *
 * A frame is its length, its CRC32C and its bytes; the first one says which node speaks and to
 * which cluster. Lengths are checked before anything is kept, and bytes are kept as they come,
 * never by the length that is declared. What cannot be sent is dropped: Raft says it again.
 * Everything of one loop turn for one node leaves in one write. Of two connections of one node
 * to this one the newer counts, and the older is closed: its end may have got lost. So does the
 * newer of two nodes with one place (place.h). */
#ifndef BELAY_NET_PEER_H
#define BELAY_NET_PEER_H

#include "base/err.h"
#include "base/slice.h"
#include "net/admission.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PEER_FRAME_MAX = 4 << 20,
    PEER_QUEUE_BYTES_MAX = 64 << 20, /* unsent to one node */
    PEER_RETRY_MIN_MS = 20,
    PEER_RETRY_MAX_MS = 200, /* between two attempts to connect, however long a cut lasts */
    PEER_SILENCE_MS = 1000, /* a connection on which nothing is confirmed for so long is dead */
    PEER_STEADY_MS = 500,   /* a node that refuses us has done so by then */
    PEER_STRANGERS_MAX =
        64, /* connections that have not said which node they are; one more, and
                                the oldest of them is closed */
    PEER_TEXT_MAX = 256,
};

struct tls_context;
struct uv_loop_s;
struct peers;

/* What a node says of itself when it connects. */
struct peer_hello {
    uint64_t cluster, node;
    uint64_t start;                                  /* replica_start() */
    uint64_t incarnation;                            /* of its data directory */
    uint64_t groups;                                 /* in it: the same everywhere */
    char name[PEER_TEXT_MAX], listen[PEER_TEXT_MAX]; /* where its clients connect */
    char peer[PEER_TEXT_MAX];                        /* where its peers do */
    char secret[ADMISSION_SECRET_MAX];               /* a new member's; empty: it has none */
    bool proven; /* its certificate carries this name; not a part of the bytes */
};

/* Why a node is not listened to: said on its own connection, before that is closed. */
struct peer_refusal {
    bool removed; /* it is no member any more */
    bool over;    /* another process is this node now */
    char why[PEER_TEXT_MAX];
};

struct peers_config {
    struct uv_loop_s *loop;
    struct peer_hello self;
    const char *listen;            /* NULL: nobody connects to this node */
    bool insecure;                 /* may listen and connect beyond loopback in plain text */
    const struct tls_context *tls; /* NULL: plain text. It may be reloaded any time */
    size_t
        queue_bytes; /* unsent to all nodes, shared by them; 0: as the maximum of each says */
    void *ctx;
    /* False: what it says is wrong, and its connection is closed. */
    bool (*frame)(void *ctx, uint64_t node, struct slice frame);
    void (*up)(void *ctx, uint64_t node);   /* a fresh connection to it */
    void (*lost)(void *ctx, uint64_t node); /* its connection to us has ended; or NULL */
    /* May this node speak to us? If not, it is told why; without a reason it is not. */
    bool (*accept)(void *ctx, const struct peer_hello *hello, struct peer_refusal *ret_refusal);
    void (*refused)(void *ctx, uint64_t node, const struct peer_refusal *refusal); /* or NULL */
};

BELAY_MUST_CHECK enum belay_err peers_open(const struct peers_config *config,
                                           struct peers **ret);
/* Connect, and keep at it. With TLS it must prove that it is `name`. */
void peers_want(struct peers *p, uint64_t node, const char *name, const char *address);
/* Ends the connections with nodes of which is_gone(config.ctx) says so, and those to nodes that
 * are no members and do not call either. */
void peers_forget(struct peers *p, bool (*is_gone)(void *ctx, uint64_t node),
                  bool (*is_member)(void *ctx, uint64_t node));
void peers_send(struct peers *p, uint64_t node, struct slice frame);
void peers_flush(struct peers *p);                          /* end of a turn */
bool peers_is_up(const struct peers *p, uint64_t node);     /* connected both ways */
bool peers_is_steady(const struct peers *p, uint64_t node); /* it listens to us */
const struct peer_hello *peers_hello(const struct peers *p, uint64_t node); /* or NULL */
size_t peers_bytes(const struct peers *p); /* that are kept: unsent, or not a whole frame */
/* The files of TLS were read again: connections with nodes that are not believed any more end.
 */
void peers_prove(struct peers *p);
void peers_stop(struct peers *p);  /* closes the handles; the loop ends when they are closed */
void peers_close(struct peers *p); /* after the loop; NULL is allowed */

/* The bytes of a hello, and back; for the fuzzer too. */
struct buf;
void peer_hello_encode(const struct peer_hello *h, struct buf *out);
BELAY_MUST_CHECK enum belay_err peer_hello_decode(struct slice in, struct peer_hello *ret);
void peer_refusal_encode(const struct peer_refusal *r, struct buf *out);
BELAY_MUST_CHECK enum belay_err peer_refusal_decode(struct slice in, struct peer_refusal *ret);
/* Takes one frame off the front of `in`: 1 one, 0 more bytes are needed, -1 nonsense. */
int peer_frame_next(struct slice in, struct slice *ret_frame, size_t *ret_used);
void peer_frame_put(struct buf *out, struct slice frame);
#endif
