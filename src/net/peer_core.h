/* peer_core.h - the fields behind peer.h, for peer.c (nodes that call us) and peer_link.c (nodes
 * that we call). */
#ifndef BELAY_NET_PEER_CORE_H
#define BELAY_NET_PEER_CORE_H

#include "base/buf.h"
#include "base/list.h"
#include "net/peer.h"
#include "raft/place.h"
#include "tls/tls.h"

#include <uv.h>

enum {
    PEER_READ_BYTES = 256 << 10,
    PEER_ATTEMPTS_MAX = 8,  /* connections to one node that are being made at a time */
    PEER_ADDRESSES_MAX = 8, /* of one name that are tried */
};

/* A connection that is being made, or the one in use. */
struct attempt {
    uv_tcp_t tcp; /* first: closing it frees the whole struct */
    uv_connect_t connect;
    struct tls *tls;   /* NULL: plain text, or not connected yet */
    struct link *link; /* NULL: nobody waits for it any more */
    uint64_t since_ms;
};

/* To one node. */
struct link {
    struct peers *p;
    uint64_t node;
    char name[PEER_TEXT_MAX], host[PEER_TEXT_MAX], port[8];
    uv_timer_t timer; /* for the next attempt */
    uv_getaddrinfo_t lookup;
    bool looking;
    uint64_t look_ms; /* when to look the name up again */
    struct sockaddr_storage addresses[PEER_ADDRESSES_MAX];
    size_t n_addresses, next_address;
    struct attempt *attempts[PEER_ATTEMPTS_MAX]; /* oldest first */
    size_t n_attempts;
    struct attempt *use; /* the connection; NULL: none */
    uv_write_t write;
    struct buf out;  /* frames */
    struct buf wire; /* as they are sent, with TLS */
    struct buf writing;
    struct buf said; /* by it, on this connection */
    bool busy;       /* a write is under way */
    bool wanted;
    uint64_t retry_ms, brief_ms, up_ms;
    uint64_t say_ms;      /* not before that the log says again how it stands */
    uint64_t unproven_ms; /* or that it does not prove its name */
    uint64_t changes;     /* since it last did */
};

/* From one node. */
struct inlet {
    uv_tcp_t tcp;
    struct tls *tls; /* NULL: plain text */
    struct peers *p;
    struct list all;
    struct buf in;
    uint64_t node; /* 0: it has not said its number */
    uint64_t since_ms;
    size_t ignored; /* bytes since it was refused, with one added; 0: it was not */
};

struct peers {
    struct peers_config config;
    uv_tcp_t listener;
    uv_timer_t timer; /* once a second */
    bool listening, stopping;
    /* By place: */
    struct link *links[NODE_PLACES];
    size_t links_end; /* behind the last one */
    struct peer_hello hellos[NODE_PLACES];
    struct inlet *inlets_in[NODE_PLACES]; /* the newest connection of a node there; or NULL */
    struct list inlets;                   /* oldest first */
    char *read_mem;
    uint64_t unproven_ms; /* of nodes that call us */
};

bool peer_is_loopback(const struct sockaddr *a);
/* "host:port", "[v6]:port" */
bool peer_split(const char *address, char host[PEER_TEXT_MAX], char port[8]);
/* The log says why a connection is not believed; not of each one. */
void peer_unproven(struct peers *p, struct link *l, const char *why); /* NULL: it called us */
/* Sends what TLS has to say by itself; false: the socket does not take it. */
bool peer_send_tls(struct tls *t, uv_tcp_t *tcp);
/* A dead connection is found out within PEER_SILENCE_MS or two, whatever the cut looks like. */
void peer_set_options(uv_tcp_t *tcp);

/* peer_link.c */
struct link *link_find(const struct peers *p, uint64_t node); /* or NULL */
void link_look(struct link *l);   /* once a second: what the log has not been told yet */
void link_prove(struct link *l);  /* peers_prove() */
void link_forget(struct link *l); /* nobody wants it any more */
void link_stop(struct link *l);   /* closes its handles */
void link_done(struct link *l);   /* after the loop: frees it */
#endif
