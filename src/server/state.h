/* state.h - what the files of server/ share: the server, a connection, a request in flight.
 *
 *   accept -> SNIFF --first bytes--> RESP or HTTP, perhaps sealed with TLS (secure.c)
 *   read -> conn_feed() -> request_run() -> engine -> on_answer() -> out -> flush -> one write
 *
 * A request that was taken and has no reply yet is a `struct pending_reply` in the queue of its
 * connection; replies leave in the order of the queue. Answers only ever append to buffers and
 * mark the connection dirty; closing, cancelling and writing happen in server_flush(), once a
 * loop turn. */
#ifndef BELAY_SERVER_STATE_H
#define BELAY_SERVER_STATE_H

#include "auth/token.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "command/answer.h"
#include "command/command.h"
#include "engine/engine.h"
#include "events/feed.h"
#include "proto/http.h"
#include "server/budget.h"
#include "server/health.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/stats.h"
#include "server/trail.h"
#include "server/trust.h"
#include "tls/own.h"

#include <sys/un.h>
#include <uv.h>

enum { CONN_ADDRESS_BYTES = 64 };
enum { LOGIN_STRIKES_MAX = 256 }; /* addresses whose failed logins are counted */
enum { SERVER_SPARE_BUFFERS = 512, SERVER_SPARE_BYTES_MAX = 8192 };

struct runtime;
struct gateway;
struct gateway_call;

enum door { DOOR_SNIFF, DOOR_RESP, DOOR_HTTP };

/* Why a connection is over. Only a client that has closed it itself has given up what it held
 * and waited for; any other may live, and count on its leases. */
enum conn_end { END_NOT, END_CLOSED, END_VANISHED };

/* One address, or the Unix socket, where clients connect. */
struct listener {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io; /* first */
    bool is_local;
    bool waiting; /* libuv holds a connection without room for it */
};

/* Requests that took longer than `above_ns` (0: nobody wants to know): so many lines a second,
 * then they are counted. */
struct slow {
    uint64_t above_ns, skipped;
    struct limiter lines;
    uint64_t next_id;
    char id[20]; /* the one that was made last */
};

/* The service manager that started this server: notify.c. */
struct notify {
    struct sockaddr_un to;
    socklen_t to_bytes;
    int fd; /* -1: there is none */
    bool watchdog, ready;
};

struct server {
    const struct server_config *config; /* own_config: everybody but server.c reads it only */
    struct server_config own_config;
    struct server_limits limits; /* with the defaults filled in */
    uv_loop_t loop;
    struct listener listeners[SERVER_LISTEN_MAX + 1];
    size_t n_listeners;
    uv_timer_t engine_timer, second_timer;
    uv_idle_t idle; /* runs while somebody waits for its next slice */
    uv_prepare_t prepare;
    uv_check_t check;
    uv_signal_t sigterm, sigint, sighup;
    struct engine *engine;
    struct runtime *runtime; /* of the durable engine; NULL: memory */
    size_t backup_pieces;    /* being read from the disk */
    struct gateway *front;   /* of the queue in PostgreSQL; NULL: none */
    struct feed *feed;
    struct scripts *scripts;
    struct arena request_arena, reply_arena;
    struct request request; /* the one that is being taken */
    struct slice id;        /* what the log and X-Request-Id call it; empty: nothing yet */
    uint64_t taken_ns;      /* when the turn began that took it; 0: none is being taken */
    struct slow slow;
    struct hash_key tag_key; /* of ETags */
    time_t date_s;           /* of `date`, for HTTP */
    char date[sizeof "Sun, 06 Nov 1994 08:49:37 GMT"];
    struct call call;
    struct trail_note *note; /* of it, for the audit log, until its pending reply has it */
    bool acting; /* an action of it is being carried out, and has not answered yet */
    char *read_mem;
    struct list conns;    /* all */
    struct list dirty;    /* have something to write or to do at the end of the turn */
    struct list left;     /* dirty when the slice for that was used up */
    bool left_next;       /* one of each in turn */
    struct list timed;    /* have a deadline */
    struct list turns;    /* in the order in which they are asked to make room for others */
    struct list woken;    /* watchers that have news to read */
    struct list finding;  /* struct find: reads that have a step to do */
    struct list sliced;   /* have used up their slice of the turn, and have more to ask */
    struct list late;     /* have come when the turn was over, and have had none */
    bool late_next;       /* of these two */
    struct list quitting; /* have NOBLOCK waits that are to be called off: late.c */
    struct tls_own tls;   /* what clients are shown */
    struct list shaking;  /* hands: handshakes of TLS, the oldest first */
    struct list in_line;  /* of them: bytes of the client are there */
    size_t n_shaking;
    struct list doubted; /* their certificates are looked at once more; not read until then */
    struct buf plain, wire; /* what one read brought, and what one write sends, with TLS */
    struct budget budget;
    size_t peer_bytes;            /* of it, as last reported */
    size_t leaving[BUDGET_PARTS]; /* of it: of connections that are being closed */
    size_t expected;              /* bytes of pages that are on their way */
    size_t n_conns, max_conns;
    size_t n_unwelcome;  /* of them */
    size_t wanted_conns; /* --max-connections; max_conns is what open files allow of it */
    size_t n_remote;     /* of them: not from loopback */
    struct map sources;  /* addresses they come from */
    struct limiter by_address, by_token; /* requests in a second */
    struct map token_shares;             /* connections of each token, when they are limited */
    struct hash_key source_key;
    bool stopping;  /* no more requests are taken */
    bool dismissed; /* and the waiting clients have been told */
    uint64_t dismiss_at_ms, stop_at_ms,
        armed_at_ms; /* of the engine timer; UINT64_MAX: not armed */
    uint64_t second_due_ms;
    const char
        *said_word; /* what the log said last of why this node cannot serve; empty: it can */
    uint64_t say_ms, ready_changes; /* not before that again; what was not said since */
    uint64_t turn_ns;               /* when the work of this turn began */
    struct pending_reply *free_pendings;
    struct buf spare[SERVER_SPARE_BUFFERS];
    size_t n_spare;
    struct list keepers; /* connections with attached sessions */
    struct map attached; /* those sessions by id */
    struct heap keeps;   /* the same by when they are to be kept */
    uint64_t n_attached; /* so far */
    struct hash_key attach_key;
    uint64_t keep_at_ms;
    uint64_t run_target;     /* a connection's number of the run of this node that is known */
    struct watcher counter;  /* counts news */
    struct news_bytes *news; /* what watch.c has encoded, for the next watcher */
    struct metrics metrics;
    struct stats stats;
    struct trust trust;
    struct trail trail; /* the audit log */
    struct notify notify;
    struct health health;
    uint64_t next_conn;
    bool reset_wanted; /* belay auth reset was called for this directory */
    struct ask reset_ask;
    bool logins_changed; /* a token was revoked: whose connections are to be closed? */
    struct strikes {
        uint64_t address; /* its hash */
        uint64_t since_ms;
        unsigned n;
    } strikes[LOGIN_STRIKES_MAX];
    char address[128]; /* what it listens on first */
};

/* HTTP: what the head of the request says about its answer. */
struct web {
    uint64_t known_tag; /* http_manner */
    uint8_t origin;     /* of another page that may read it: access_origin() */
    bool bare;          /* it is HEAD: the body stays here */
    bool problem;       /* it wants errors as RFC 9457 has them */
};

struct reply_form {
    uint8_t resp; /* version */
    bool close;   /* HTTP: close the connection behind this reply */
    struct web web;
};

enum pending_state { PENDING_ASKED, PENDING_ANSWERED, PENDING_LATE };

struct pending_reply {
    struct ask ask; /* first: an answer finds its pending by it */
    struct conn *conn;
    union {
        struct pending_reply *next; /* in the queue, or free */
        struct list late;           /* of its connection: it is in the queue no more */
    };
    struct buf held; /* the reply, while others are before it */
    struct manner manner;
    void (*forget)(struct pending_reply *p); /* not the engine's: how to call it off */
    union {                                  /* of forget(): what to call off */
        struct gateway_call *remote;
        struct admin_call *wish;
        struct find *find;
        struct backup_piece *piece;
        uint64_t backup_id;
    };
    struct trail_note *note; /* for the audit log; NULL: none */
    char *id;          /* HTTP: what the log and X-Request-Id call the request; else NULL */
    uint64_t taken_ns; /* when the turn began that took it */
    char *secret;    /* of a token that is being made: told in the answer, kept nowhere else */
    uint64_t ticket; /* late: its place, by which the client knows the push */
    uint32_t late_round; /* it is wanted while this is that of its connection */
    uint8_t state;       /* enum pending_state */
    struct reply_form form;
    bool ended;        /* its client is half closed: it waits in no line */
    uint32_t expected; /* bytes of the reply that room is kept for */
};

struct attached;
struct backup_piece;
struct find;
struct token_share;
struct watch;

/* What a connection, or an HTTP request, has logged in with. */
struct login {
    bool known, by_proof;
    bool failed; /* HTTP: what the request says counts for nobody, nor what is proven */
    char id[TOKEN_ID_BYTES];
    uint64_t generation;
};

struct conn {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    uv_os_fd_t fd; /* its socket */
    bool is_local; /* it is a pipe: a connection of the Unix socket */
    struct server *server;
    struct list all, dirty, timed, turn, woken, sliced, keeper, shaking, in_line;
    struct tls *tls; /* NULL: plain text */
    struct buf in, out;
    char address[CONN_ADDRESS_BYTES];  /* of its client: "127.0.0.1:41234" */
    struct source *source;             /* the same, counted */
    struct pending_reply *head, *tail; /* replies leave in this order */
    struct list late, quitting;        /* told "queued"; the outcome will be pushed */
    struct watch *watch;
    struct attached *sessions;
    char *ns, *name;                /* owned; NULL: default, none */
    struct token_share *share;      /* its token, when the connections of one are limited */
    struct login login, login_told; /* told: to the audit log */
    char *
        proven; /* "ACCOUNT/ID": the token that its certificate or its user stands for; owned; NULL: none */
    uint64_t asked_line;    /* of the audit log, for which the request waits; 0: none */
    struct ask login_ask;   /* while group 0 is asked */
    uint64_t slow_until_ms; /* a failed login is answered then; 0: none is slowed */
    uint64_t used_ms;       /* the hour for which the use of its token was told */
    uint64_t id, target;
    uint64_t since_ms;    /* of the unfinished request, the idle time, or the linger */
    uint64_t write_ms;    /* when the reader last took something */
    uint64_t handover_ns; /* since when `handovers` are there */
    size_t writing_bytes; /* handed to libuv */
    size_t held_bytes, write_left;
    size_t expected;    /* bytes of replies that are not there yet: pages */
    size_t writing_cap; /* memory of what libuv has */
    size_t reported;    /* bytes that the budget knows of, as output or watchers */
    size_t in_reported; /* and as input */
    uint32_t handovers; /* answers to waiters that wait to be written */
    uint32_t pending_n, late_n, sessions_n, late_round;
    uint16_t ns_len;
    uint8_t reported_as; /* enum budget_part */
    uint8_t door;        /* enum door */
    uint8_t resp;        /* version */
    uint8_t end;         /* enum conn_end */
    bool writing, reading, paused;
    bool continued;    /* HTTP: the unfinished request waits for "100 Continue", or has it */
    bool continue_due; /* it is not sent yet: replies before it go first */
    struct web web;    /* of the request that is being taken */
    bool sent_away;    /* its last answer was UNAVAILABLE: it goes to another node, perhaps */
    bool logging_in;   /* the request that is first in `in` waits for that */
    bool login_asked;  /* for that request, group 0 has been */
    bool login_lost;   /* and did not answer */
    bool login_slowed; /* and its refusal has waited */
    bool confirmed;    /* group 0 has been asked about that request: login_confirm() */
    uint8_t standing;  /* and this is what it said: enum login_step */
    bool again;        /* the request was taken before, and waited */
    bool closing_in;   /* no more requests are taken; close when all is written */
    bool unwelcome;    /* its address has too many: whatever it asks, it is told so */
    bool doomed;       /* close at the end of the turn, whatever is unsent */
    bool half_closed;  /* the client has sent its last byte, and may still read */
    bool unheard;      /* it is closed for what it sent, and may still be sending */
    bool lingering;    /* shut down for writing, waits for the client to go */
    bool closed;
    bool gone; /* libuv has let go of it */
};

/* server.c */
void server_flush(struct server *s);
void server_arm_timer(struct server *s);
/* NULL: this node can serve; else why not and what to do, and in *ret_word in one word:
 * stopping, refused, or one of engine_not_ready(). */
const char *server_not_ready(const struct server *s, const char **ret_word);
uint64_t server_wall_ns(void);

/* conn.c */
void conn_open(struct server *s, struct listener *from); /* takes what libuv holds there */
void conn_close(struct conn *c);        /* not from within an answer; any number of times */
void conn_quit(struct conn *c);         /* its last NOBLOCK wait is called off */
void conn_dirty(struct conn *c);        /* look at it at the end of the turn */
void conn_flush(struct conn *c);        /* its end of the turn */
void conn_sweep(struct server *s);      /* once a second: deadlines */
void conn_yield(struct conn *c);        /* the rest of its requests comes in the next turn */
void conn_wake(struct conn *c);         /* it has news to read */
void conn_go_on(struct server *s);      /* a slice for some that have yielded or come late */
void conn_tell(struct server *s);       /* a slice of the news */
void conn_stay_awake(struct server *s); /* the loop does not sleep: there is more to do */
void conn_keep(struct conn *c, struct slice bytes); /* in c->in */
void conn_forget_kept(struct conn *c);
void conn_take(struct conn *c, struct slice bytes); /* plain bytes of the client */
/* It comes from this machine, or the operator has said --insecure. */
bool conn_is_trusted(const struct conn *c);
/* Where it comes from; AF_UNIX without a path: the socket. False: it is gone. */
bool conn_peer(const struct conn *c, struct sockaddr_storage *ret);
bool conn_evict(struct server *s);        /* one that is idle gives way; false: none is */
void conn_finish(struct conn *c);         /* takes no more requests, closes when all is sent */
void conn_use_out(struct conn *c);        /* before the first byte goes into c->out */
bool conn_may_take(const struct conn *c); /* one more request */
void conn_expect(struct conn *c, size_t was, size_t is); /* bytes of a page on its way */
void conn_report(struct conn *c); /* to the budget: what it has to send */
void conn_shed(struct server *s); /* closes those with the most to send, if it is too much */
bool conn_may_return(
    const struct conn *c); /* its client may come back, here or at another node */

/* listen.c */
bool listen_open(struct server *s); /* all of the configuration; false: the log says why not */
void listen_close(struct server *s);
void listen_accept_more(struct server *s);      /* there is room for a connection again */
bool listen_is_waiting(const struct server *s); /* for room */
void listen_told(struct server *s);             /* on_listening(), for each address */

/* socket.c */
const char *socket_bind(uv_pipe_t *pipe, const char *path); /* NULL, or why not */
const char *
socket_token(const struct conn *c); /* that its user stands for: "ACCOUNT/ID"; NULL: none */
bool socket_may_init(const struct conn *c); /* by the uid of the other side */

/* secure.c */
bool secure_begins(const struct conn *c, struct slice bytes); /* is this the begin of TLS? */
void secure_open(struct conn *c);
void secure_close(struct conn *c);
bool secure_is_shaking(const struct conn *c);
bool secure_is_in_line(const struct conn *c); /* it is not read until it had its turn */
/* What the socket has brought; true: *bytes are now plain ones, until the next call. */
bool secure_read(struct conn *c, struct slice *bytes);
void secure_go_on(struct server *s);     /* a slice for handshakes, and for those in doubt */
void secure_doubt(struct server *s);     /* certificates of clients may have been taken back */
struct buf *secure_seal(struct conn *c); /* takes from c->out; borrowed until the next call */
void secure_end(struct conn *c);         /* says that nothing more will come */

/* late.c */
void late_add(struct pending_reply *p); /* it has its "queued" */
bool late_is_wanted(const struct pending_reply *p);
void late_push(struct pending_reply *p, const struct event *ev); /* its outcome; frees it */
void late_drop(struct pending_reply *p); /* the same, and says nothing */
void late_cancel(
    struct conn *c); /* nothing more is pushed; its waits are called off by and by */
void late_dismiss(struct conn *c, const struct event *stop); /* every one is told this */
void late_go_on(struct server *s);                           /* a slice for those that quit */

/* pipeline.c */
struct answer_standing
server_standing(struct server *s); /* uptime, trust and norm, as of now */
/* Takes the requests in `in`; returns how many bytes were used up. */
size_t pipeline_feed(struct conn *c, struct slice in);
void pipeline_reply(struct conn *c, const struct reply *r, bool close); /* in order */
/* A request that something else than the engine answers, later: its place in the queue. */
struct pending_reply *pipeline_defer(struct conn *c, const struct call *call, bool close,
                                     void (*forget)(struct pending_reply *p));
void pipeline_answer(struct pending_reply *p, const struct reply *r); /* frees it */
void pipeline_free(struct pending_reply *p);
void pipeline_call_off(
    struct pending_reply *p);             /* its client is gone, or is told to go elsewhere */
void pipeline_cancel_all(struct conn *c); /* the client is gone */
void pipeline_end_waits(struct conn *c);  /* nobody waits any longer, but all are answered */
void pipeline_dismiss_all(
    struct conn *c); /* this node stops: everybody is told to go elsewhere */
void pipeline_fail(struct conn *c, enum belay_err err, int http_status, const char *what);

/* Submits the call's op: it is answered later, in order. */
void pipeline_submit(struct conn *c, struct call *call, bool close);

/* login.c */
enum login_step {
    LOGIN_OK,
    LOGIN_NO,   /* it does not count: one answer for every reason */
    LOGIN_LOST, /* group 0 could not be asked */
    LOGIN_BUSY, /* it counts, but has too many connections */
    LOGIN_WAIT, /* leave the request where it is: it is read again */
};
extern const char login_lost_text[], login_busy_text[], login_unsure_text[];
uint64_t login_wall_ms(void); /* time of day */
enum login_step login_try(struct conn *c, struct slice id, struct slice secret);
enum login_step login_http(struct conn *c, const struct request *req);
/* Before something is done that no group looks at when it takes effect: does the client's token
 * still count? LOGIN_OK, _NO, _LOST or _WAIT. */
enum login_step login_confirm(struct conn *c, const struct call *call);
/* What it may do, as of now. False: it has not logged in, or that counts no more. */
bool login_who(struct conn *c, uint64_t wall_ms, struct machine_token *ret);
/* What is proven logs in with each request. False: its token has too many connections. */
bool login_enter(struct conn *c);
void login_used(struct conn *c, const struct machine_token *who, uint64_t wall_ms);
void login_forget(struct conn *c); /* what is left is what is proven */
/* TLS is open, or it came by the Unix socket: for which token does its certificate, its user stand? */
void login_certify(struct conn *c);
void login_by_user(struct conn *c);
void login_cancel(struct conn *c); /* the connection goes */
void login_look(struct server *s); /* closes connections whose token counts no more */
void login_news(struct server *s, const struct event *ev);
void login_start(struct server *s);
void login_reset(struct server *s); /* once a second: what `belay auth reset` asked for */

/* cluster.c */
void cluster_action(struct conn *c, const struct call *call, bool close);

/* backup.c */
void backup_action(struct conn *c, const struct call *call, bool close);

/* action.c */
void action_run(struct conn *c, struct call *call, bool close);

/* queue.c */
void queue_run(struct conn *c, const struct call *call, bool close);

/* slow.c - what requests are called, and those that took long */
void slow_init(struct server *s);
void slow_done(struct server *s);
struct slice slow_id(struct conn *c); /* of the request that is being taken; RESP: empty */
/* It is answered: is it one for the log? `p` and `ev` as far as there are any. */
void slow_look(struct conn *c, const struct pending_reply *p, const struct event *ev);
/* From when a request was taken (0: it was not) until now, without `line_ms` that it stood in
 * line. */
uint64_t slow_ns(uint64_t taken_ns, uint64_t line_ms);

/* find.c - reads in many steps */
void find_run(struct conn *c, const struct call *call, bool close);
void find_go_on(struct server *s); /* a slice for them */

/* watch.c */
void watch_run(struct conn *c, const struct call *call, bool close);
void watch_close(struct conn *c);
/* Puts what is new into c->out, a bounded piece of it. True: there is more, write first. */
bool watch_pump(struct conn *c);
void watch_done(struct server *s);
void watch_heartbeat(struct conn *c, uint64_t now_ms);

/* attach.c */
void attach_init(struct server *s);
void attach_add(struct conn *c, const struct event *kept);
void attach_drop_all(struct conn *c);
/* A lock of an attached session was lost, or the session is over: its connection is told. */
void attach_news(struct server *s, const struct event *ev);
void attach_look(struct server *s); /* once a second: is what is attached still so? */
uint64_t attach_keep(struct server *s, uint64_t now_ms); /* ms until it wants to run again */

/* notify.c */
void notify_open(struct server *s);
void notify_close(struct server *s);
void notify_state(struct server *s, const char *why_not); /* NULL: it can serve */
void notify_second(struct server *s);                     /* the loop lives */
void notify_stopping(struct server *s);
void notify_reload(struct server *s, bool done);

/* source.c - addresses and how many connections each has */
void source_init(struct server *s);
/* Counts a connection of that address. NULL: it has as many as it may. */
struct source *source_take(struct server *s, const struct sockaddr *addr);
void source_give(struct server *s, struct source *source);
bool source_is_operator(const struct source *source); /* of this machine */

uint64_t source_hash(const struct source *source); /* of its address; NULL: 0 */

/* throttle.c - NULL: it may; else the answer, with the time to wait. */
void throttle_init(struct server *s);
void throttle_reload(struct server *s); /* the rates of the configuration as they are now */
void throttle_done(struct server *s);
struct reply *throttle_address(struct conn *c); /* one more request of its address */
struct reply *throttle_token(struct conn *c);   /* and of its token */
struct reply *throttle_reply(struct server *s, const char *what, uint64_t wait_ms);
bool throttle_join(struct conn *c); /* it has logged in; false: too many have */
void throttle_unwelcome(
    struct conn *c); /* its address has too many: it is told so, and closed */
void throttle_leave(struct conn *c);
enum { THROTTLE_JOIN_MS = 1000 }; /* nobody knows when one of them goes */

/* web.c - what browsers and other HTTP clients may ask of an answer */
void web_take(struct conn *c, struct request *req);
struct http_manner web_manner(const struct conn *c, struct reply_form form, struct slice id);
/* A browser asks whether that page may send such a request: the answer, or NULL: it does not. */
struct reply *web_preflight(struct conn *c, const struct request *req);

/* access.c */
/* 1 + the place of this origin in the configuration; 0: it is not allowed. */
uint8_t access_origin(const struct server *s, struct slice origin);
/* Empty: it is no longer there, the configuration was read again. */
struct slice access_origin_text(const struct server *s, uint8_t place);
bool access_is_loopback(const struct sockaddr *addr); /* or the Unix socket */
/* NULL: this page may ask; else why not. */
const char *access_http(const struct conn *c, const struct request *req);
bool access_parse_listen(const char *text, struct sockaddr_storage *ret, const char **ret_why);
void access_format(const struct sockaddr *addr, char *ret, size_t cap);
#endif
