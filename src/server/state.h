/* state.h - what the files of server/ share: the server, a connection, a request in flight.
 *
 *   accept -> SNIFF --first bytes--> RESP or HTTP
 *   read -> conn_feed() -> request_run() -> engine -> on_answer() -> out -> flush -> one write
 *
 * A request that was taken and has no reply yet is a `struct pending` in the queue of its
 * connection; replies leave in the order of the queue. Answers only ever append to buffers and
 * mark the connection dirty; closing, cancelling and writing happen in server_flush(), once a
 * loop turn. */
#ifndef BELAY_SERVER_STATE_H
#define BELAY_SERVER_STATE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "command/answer.h"
#include "command/command.h"
#include "engine/engine.h"
#include "events/feed.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/trust.h"

#include <uv.h>

enum { SERVER_SPARE_BUFFERS = 512, SERVER_SPARE_BYTES_MAX = 8192 };

struct host;
struct front;
struct front_call;

enum door { DOOR_SNIFF, DOOR_RESP, DOOR_HTTP };

struct server {
    const struct server_config *config;
    struct server_limits limits; /* with the defaults filled in */
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_timer_t engine_timer, second_timer;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_signal_t sigterm, sigint;
    struct engine *engine;
    struct host *host;   /* of the durable engine; NULL: memory */
    struct front *front; /* of the queue in PostgreSQL; NULL: none */
    struct feed *feed;
    struct scripts *scripts;
    struct arena request_arena, reply_arena;
    struct request request; /* the one that is being taken */
    struct call call;
    char *read_mem;
    struct list conns;  /* all */
    struct list dirty;  /* have something to write or to do at the end of the turn */
    struct list timed;  /* have a deadline */
    struct list silent; /* never sent a byte, oldest first */
    size_t n_conns, max_conns, in_bytes;
    bool accept_waiting; /* libuv holds a connection for which there is no room */
    bool stopping;       /* no more requests are taken */
    bool dismissed;      /* and whoever waits has been told */
    uint64_t dismiss_at_ms, stop_at_ms,
        armed_at_ms; /* of the engine timer; UINT64_MAX: not armed */
    uint64_t second_due_ms;
    uint64_t turn_ns; /* when the work of this turn began */
    struct pending *free_pendings;
    struct buf spare[SERVER_SPARE_BUFFERS];
    size_t n_spare;
    struct list keepers; /* connections with attached sessions */
    struct map attached; /* those sessions by id */
    struct hash_key attach_key;
    uint64_t keep_at_ms;
    uint64_t run_target;    /* a connection's number of the run of this node that is known */
    struct watcher counter; /* counts news */
    struct metrics metrics;
    struct trust trust;
    uint64_t next_conn;
    char address[128]; /* what it listens on */
};

enum pending_state { PENDING_ASKED, PENDING_ANSWERED, PENDING_LATE };

struct pending {
    struct ask ask; /* first: an answer finds its pending by it */
    struct conn *conn;
    struct pending *next; /* in the queue, in the late list, or free */
    struct buf held;      /* the reply, while others are before it */
    struct manner manner;
    void (*forget)(struct pending *p); /* not the engine's: how to call it off */
    struct front_call *remote;         /* of forget(): what to call off */
    struct order_ask *wish;
    uint64_t ticket; /* late: its place, by which the client knows the push */
    uint8_t state;   /* enum pending_state */
    bool close;      /* HTTP: close the connection behind this reply */
    bool bare;       /* HTTP: it answers HEAD, so its body stays here */
    bool parked;     /* was not answered in the turn it was asked */
};

struct attached;
struct watch;

struct conn {
    uv_tcp_t tcp;
    uv_os_fd_t fd; /* its socket */
    struct server *server;
    struct list all, dirty, timed, silent, keeper;
    struct buf in, out;
    struct pending *head, *tail; /* replies leave in this order */
    struct pending *late;        /* told "queued"; the outcome will be pushed */
    struct watch *watch;
    struct attached *sessions;
    char *ns, *name; /* owned; NULL: default, none */
    uint64_t id, target;
    uint64_t since_ms; /* of the unfinished request, the idle time, or the linger */
    uint64_t write_ms; /* when the reader last took something */
    uint64_t handover_ns;
    size_t held_bytes, late_n, sessions_n, write_left;
    uint32_t pending_n;
    uint16_t ns_len;
    uint8_t door; /* enum door */
    uint8_t resp; /* version */
    bool writing, reading, paused, continued;
    bool bare;       /* the request that is being taken is HEAD */
    bool sent_away;  /* its last answer was UNAVAILABLE: it goes to another node, perhaps */
    bool closing_in; /* no more requests are taken; close when all is written */
    bool doomed;     /* close at the end of the turn, whatever is unsent */
    bool unheard;    /* it is closed for what it sent, and may still be sending */
    bool lingering;  /* shut down for writing, waits for the client to go */
    bool closed;
};

/* server.c */
void server_flush(struct server *s);
void server_arm_timer(struct server *s);
void server_accept_more(struct server *s);
uint64_t server_wall_ns(void);

/* conn.c */
void conn_open(struct server *s);         /* takes the connection that libuv holds */
void conn_close(struct conn *c);          /* not from within an answer; any number of times */
void conn_dirty(struct conn *c);          /* look at it at the end of the turn */
void conn_flush(struct conn *c);          /* its end of the turn */
void conn_sweep(struct server *s);        /* once a second: deadlines */
void conn_finish(struct conn *c);         /* takes no more requests, closes when all is sent */
void conn_use_out(struct conn *c);        /* before the first byte goes into c->out */
bool conn_may_take(const struct conn *c); /* one more request */

/* request.c */
struct standing server_standing(struct server *s); /* uptime, trust and norm, as of now */
/* Takes the requests in `in`; returns how many bytes were used up. */
size_t request_feed(struct conn *c, struct slice in);
void request_reply(struct conn *c, const struct reply *r, bool close); /* in order */
/* A request that something else than the engine answers, later: its place in the queue. */
struct pending *request_defer(struct conn *c, const struct call *call, bool close,
                              void (*forget)(struct pending *p));
void request_answer(struct pending *p, const struct reply *r); /* frees it */
void request_cancel_late(struct conn *c);                      /* NOBLOCK waits */
void request_cancel_all(struct conn *c);                       /* the client is gone */
void request_dismiss_all(
    struct conn *c); /* this node stops: everybody is told to go elsewhere */
void request_fail(struct conn *c, enum belay_err err, int http_status, const char *what);

/* cluster.c */
void cluster_action(struct conn *c, const struct call *call, bool close);

/* action.c */
void action_run(struct conn *c, const struct call *call, bool close);

/* queue.c */
void queue_run(struct conn *c, const struct call *call, bool close);

/* watch.c */
void watch_open(struct conn *c, const struct call *call);
void watch_close(struct conn *c);
/* Puts what is new into c->out, a bounded piece of it. True: there is more, write first. */
bool watch_pump(struct conn *c);
void watch_heartbeat(struct conn *c, uint64_t now_ms);

/* attach.c */
void attach_init(struct server *s);
void attach_add(struct conn *c, struct slice session, uint64_t ttl_ms);
void attach_drop_all(struct conn *c);
/* A lock of an attached session was lost, or the session is over: its connection is told. */
void attach_news(struct server *s, const struct event *ev);
void attach_look(struct server *s); /* once a second: is what is attached still so? */
uint64_t attach_keep(struct server *s, uint64_t now_ms); /* ms until it wants to run again */

/* guard.c */
bool guard_is_loopback(const struct sockaddr *addr);
/* NULL: this page may ask; else why not. */
const char *guard_http(const struct server *s, const struct request *req);
bool guard_parse_listen(const char *text, struct sockaddr_storage *ret, const char **ret_why);
void guard_format(const struct sockaddr *addr, char *ret, size_t cap);
#endif
