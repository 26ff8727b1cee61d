/* client.h - the inside of libbelay: one handle, shared by the files of this folder.
 *
 *   addrs.c       the list of addresses
 *   reply.c       a reply of the wire -> the public tree; error words -> codes
 *   connection.c  the socket: connect, greet, read, write, one step at a time
 *   seal.c        TLS below it, for addresses that want it
 *   call.c        calls in flight; blocking calls on top of connection_step()
 *   retry.c       which of them may be sent again, and the ids of those that change something
 *   ping.c        is the server there? pings, and a second connection beside one that waits
 *   lock.c        the typed calls
 *   lease.c       sessions and kept locks: renew in time, tell in time
 *   held.c        which locks are held now, kept or not
 *
 *   OFF --connection_start()--> CONNECTING --> (TLS: SHAKING) --> GREETING --> READY
 *    ^                              |                 |              |           |
 *    +------------------------------+-----------------+--------------+-----------+
 *                             connection_fail()
 *
 * Calls leave only in READY.
 *
 * Nothing here aborts on bad input or out of memory. Memory comes from malloc only. */
#ifndef BELAY_CLIENT_CLIENT_H
#define BELAY_CLIENT_CLIENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "belay.h"
#include "proto/message.h"
#include "tls/tls.h"

enum {
    CLIENT_ADDR_BYTES = 288,   /* "tls://[host]:port" */
    CLIENT_ERROR_BYTES = 512,  /* text of the last failure */
    CLIENT_WORD_BYTES = 32,    /* "STALE" */
    CLIENT_SESSION_BYTES = 65, /* id with its NUL */
    CLIENT_CALLS_MAX = 65536,  /* in flight */
    CLIENT_TIMEOUT_MS = 10000,
    CLIENT_CONNECT_MS = 3000,
    CLIENT_BACKOFF_MIN_MS = 50,
    CLIENT_BACKOFF_MAX_MS = 1000,
    CLIENT_READ_BYTES = 16384,
    CLIENT_REPLY_BYTES_MAX =
        64 * 1024 * 1024,  /* one reply: a page of 1,000 locks with bodies */
    CLIENT_TTL_MS = 30000, /* what the server takes when none is given */
    CLIENT_SESSION_TTL_MS = 60000,
    CLIENT_WAIT_MAX_MS = 7 * 24 * 3600 * 1000, /* longest wait of one request */
    CLIENT_POLL_MAX_MS = 3600 * 1000,          /* one poll(), which counts in int */
    CLIENT_PING_MS = 3000,    /* a connection that waits for pushes pings after so long */
    CLIENT_SILENCE_MS = 4000, /* without an answer: the server is left for another one */
    CLIENT_HELD_BUCKETS = 64,
    CLIENT_ID_BYTES = 24,      /* of a handle, random, in hex */
    CLIENT_REQUEST_BYTES = 48, /* of a request: that and a number */
};

struct addr {
    char text[CLIENT_ADDR_BYTES]; /* as shown: "127.0.0.1:7117", "tls://a:7117" */
    char host[CLIENT_ADDR_BYTES]; /* of a socket: its path */
    char port[8];
    bool tls, is_path;
};

/* "host:port,tls://[v6]:port,unix:///path"; BELAY_E_USAGE with the reason in `why`. */
int addrs_parse(const char *list, struct addr *ret_addrs, size_t max, size_t *ret_n, char *why,
                size_t why_bytes);

/* A command whose answer is awaited; answers come in the order of the commands, except that an
 * ACQUIRE in line is told so at once (parked) and gets its answer as a push, by its ticket. */
struct client_call {
    struct client_call *next;
    belay_reply_fn *fn;
    void *arg;
    uint64_t ticket; /* parked: the place in the line */
    bool may_park;
    bool is_greeting;
    bool keeps_result;  /* its reply outlives the callback: a blocking call */
    bool once;          /* its sender looks after it: it is never sent again from here */
    bool again;         /* it may be sent again */
    bool prompt;        /* the server answers it at once: it waits for nobody */
    int64_t timeout_ms; /* for its answer, a wait included; 0: the handle's, BELAY_FOREVER */
    int64_t until_ms;   /* when that is over */
    int64_t sent_ms;    /* on this connection */
    int64_t lost_ms;    /* since when it has been on no connection; 0: it was on none yet */
    size_t missed;      /* addresses that could not be reached since it was queued */
    size_t len;
    char bytes[]; /* the command, while it is queued or may be sent again */
};

struct client_calls {
    struct client_call *first, *last;
    size_t n;
};

/* A push that came before the "queued" of its call. */
struct early {
    struct early *next;
    uint64_t ticket;
    size_t len;
    char bytes[]; /* as it came */
};

/* What was granted, and for how long that is proven. */
struct client_lease {
    const char *name, *owner;
    uint64_t fence;
    int64_t ttl_ms; /* BELAY_FOREVER: as long as the session */
    int64_t
        sent_ms; /* of the request that was granted: the lease has lasted since then, or less */
    bool in_session; /* the handle's */
};

/* A lock that is held: one with `keep` is renewed by belay_dispatch(). */
struct client_hold {
    struct client_hold *next;
    uint64_t fence;
    int64_t ttl_ms;
    int64_t proven_ms;   /* CLOCK_BOOTTIME */
    int64_t renew_ms;    /* when to send the next RENEW */
    int64_t sent_ms;     /* the one in flight was sent; 0: none is */
    uint64_t sent_fence; /* and this was its fence */
    int64_t renewed_ms;  /* the last of ours that was answered was sent */
    int64_t by_hand_ms;  /* a RENEW of the program was sent: earlier ones do not count */
    int why;             /* it may be gone, since a request ended with this; 0: none did */
    bool in_session;
    bool unanswered;   /* a RENEW of this fence was: it may yet be carried out */
    bool dead;         /* released or lost; lease_step() frees it when no answer can come */
    const char *owner; /* behind the name */
    char name[];
};

struct asking; /* lock.c: an ACQUIRE or CONVERT in flight */

enum client_state {
    CLIENT_OFF,
    CLIENT_CONNECTING,
    CLIENT_SHAKING, /* hands, for TLS */
    CLIENT_GREETING,
    CLIENT_READY
};

struct belay {
    enum client_state state;
    int fd;       /* socket, -1 when OFF */
    int epoll_fd; /* what the user watches: socket and timer in one */
    int timer_fd;
    struct addr addrs[BELAY_ADDRS_MAX];
    size_t n_addrs, at; /* at: connected to, or tried last */
    size_t tried;       /* addresses tried since the last success */
    struct addrinfo *resolved, *resolved_next;
    int64_t connect_end_ms, retry_ms, backoff_ms;
    int64_t timeout_ms, connect_ms;
    char *ns, *token;
    uint32_t epoll_mask; /* what the socket is registered for */
    int64_t timer_ms;    /* what timer_fd is set to; INT64_MAX: nothing */
    size_t greetings;    /* answers that the greeting still waits for */
    bool connect_wanted; /* belay_connect() */
    bool round_failed;   /* this step: every address has failed */
    bool broke;          /* this step: the connection was lost */
    int64_t heard_ms;    /* the last byte of the server */
    struct belay *pulse; /* a second connection, while this one waits; NULL: none */
    struct belay *main;  /* this is the pulse of that one; NULL: it is none */

    struct tls_context *tls_context; /* NULL: no address has wanted it yet */
    struct tls *tls;                 /* of this connection; NULL: plain text */
    struct buf in, out, wire;        /* wire: what TLS has made of out */
    uint64_t requests;               /* ids given */
    struct client_calls sent, queued, parked;
    struct early *early;
    struct arena parse;           /* one reply of the wire */
    struct arena tree;            /* the reply handed to a callback */
    struct arena result;          /* the reply handed to the caller of a blocking call */
    int depth;                    /* inside callbacks */
    bool doomed;                  /* belay_close() from a callback: done when it returns */
    bool stale;                   /* a question that changes nothing is answered by any node */
    char id[CLIENT_ID_BYTES + 1]; /* begins the ids of its requests */

    int err_code;
    char err_word[CLIENT_WORD_BYTES];
    char err_text[CLIENT_ERROR_BYTES];

    char session[CLIENT_SESSION_BYTES]; /* "": none */
    int64_t session_ttl_ms, session_proven_ms, session_keep_ms, session_sent_ms;
    uintptr_t sessions; /* how many this handle has had: an answer may be for an earlier one */
    struct client_hold *holds;                     /* kept */
    struct client_hold *held[CLIENT_HELD_BUCKETS]; /* not kept, by name */
    struct asking *asking;
    belay_lost_fn *lost_fn;
    void *lost_arg;
    int64_t early_ms;
    struct {
        char reason[CLIENT_WORD_BYTES], by[CLIENT_WORD_BYTES], text[CLIENT_ERROR_BYTES];
        uint64_t fence; /* `by` and `text` are about this one */
    } told;             /* the server's words for what is lost now */

    belay_event_fn *watch_fn;
    void *watch_arg;
    char *watch_prefix;
    uint64_t watch_seen;
    char watch_since[24]; /* watch_seen in digits */
    bool session_lost;    /* until it is closed or opened anew */
};

int64_t client_now_ms(void); /* CLOCK_BOOTTIME */

/* A moment plus a duration, or two durations. INT64_MAX is never: no sum goes beyond it. */
static inline int64_t client_add_ms(int64_t a, int64_t b)
{
    int64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Notes the failure and returns `code`, so that a line can say `return client_fail(...)`. */
int client_fail(struct belay *b, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* reply.c */
int reply_code(enum belay_err err); /* BELAY_ERR_STALE -> BELAY_E_STALE */
/* Copies into `a`; NULL: out of memory. */
const struct belay_reply *reply_copy(struct arena *a, const struct reply *r);
/* The answer of ACQUIRE and CONVERT. BELAY_E_PROTOCOL: not such an answer. */
int reply_grant(struct belay *b, const struct belay_reply *r, struct belay_grant *ret_g);

/* connection.c */
/* Closes the socket; calls that were sent are answered with it. Goes on with the next address.
 * The server sees a reset, not a close: nothing is given up by this.
 */
void connection_fail(struct belay *b, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void connection_start(struct belay *b); /* OFF: begins to connect */
/* Everything that can be done without waiting. Returns a failure once: the connection broke, or
 * no address could be reached. */
int connection_step(struct belay *b);
int64_t
connection_due_ms(const struct belay *b); /* when it must be called again; INT64_MAX: never */
short connection_events(const struct belay *b); /* what the socket is polled for */
void connection_sleep(const struct belay *b,
                      int64_t until_ms);  /* until there is something to do */
int connection_watch_fd(struct belay *b); /* -1: no descriptor could be made */
void connection_arm(struct belay *b);     /* sets epoll and timer for what is awaited now */
void connection_drain_timer(struct belay *b);
void connection_off(struct belay *b);   /* closes the socket, tells nobody */
void connection_close(struct belay *b); /* closes the watched descriptors */

/* seal.c */
void seal_start(struct belay *b); /* connected: the handshake begins, or it fails */
/* What the socket has brought goes to b->in; false: the connection has failed. */
bool seal_feed(struct belay *b, struct slice bytes);
struct buf *seal_out(struct belay *b); /* what is to be sent */
bool seal_has_output(const struct belay *b);
void seal_close(struct belay *b);

/* call.c */
int client_call_send(struct belay *b, const struct belay_bytes *words, size_t n,
                     const struct client_call *like);
/* The connection is gone: what may be sent again waits for the next one, the rest fails. */
void client_call_lost(struct belay *b, int code);
/* An address failed: what was never sent fails with it if that was the last one to try. */
void client_call_unreachable(struct belay *b, int code);
void client_call_expire(struct belay *b); /* what has looked for a way for too long */
int64_t client_call_due_ms(const struct belay *b);
void client_call_answer(struct belay *b,
                        const struct reply *r); /* takes the oldest that was sent */
void client_call_push(struct belay *b, const struct reply *r, struct slice bytes);
bool client_call_may_park(const struct belay *b); /* a "queued" may be on its way */
void client_call_forget_early(struct belay *b);
void client_call_fail_all(struct belay *b, struct client_calls *list,
                          int code);            /* frees the list */
void client_call_flush_queued(struct belay *b); /* READY: what waited may leave */
size_t client_call_watch_words(struct belay *b,
                               struct belay_bytes *ret_words); /* 0: no watch */
void client_call_watch_gap(struct belay *b, int err);
/* Steps and waits until *done, or BELAY_E_DEADLINE. BELAY_FOREVER is allowed. */
int client_call_wait(struct belay *b, const bool *done, int64_t timeout_ms);
int client_call_begin(
    struct belay *b); /* a blocking call begins; BELAY_E_USAGE inside a callback */

/* retry.c */
enum again { AGAIN_NEVER, AGAIN_AS_IT_IS, AGAIN_WITH_ID };
enum again retry_kind(const struct belay_bytes *words, size_t n);
bool retry_looks(const struct belay_bytes *words,
                 size_t n); /* it only looks, and takes STALE */
void retry_init(struct belay *b);
struct slice retry_next_id(struct belay *b, char *space); /* CLIENT_REQUEST_BYTES */

bool retry_is_prompt(const struct belay_bytes *words, size_t n);

/* ping.c */
/* What keeps a lease: it must not stand behind something that waits. */
int ping_send(struct belay *b, const struct belay_bytes *words, size_t n,
              const struct client_call *like);
void ping_step(struct belay *b); /* pings, and leaves a server that is silent */
int64_t ping_due_ms(const struct belay *b);
int64_t ping_connect_ms(const struct belay *b); /* for one address to accept us */
void ping_end(struct belay *b);
struct belay *ping_main(struct belay *b); /* whose pulse it is, or itself */

/* held.c */
int held_add(struct belay *b, const struct client_lease *l);
void held_drop(struct belay *b, const char *name, uint64_t fence, const char *owner);
struct client_hold *held_find(const struct belay *b, const char *name, uint64_t fence,
                              const char *owner);                   /* NULL: it is not known */
void held_gone(struct belay *b, struct slice name, uint64_t fence); /* the server says so */
void held_session_over(struct belay *b);
void held_free(struct belay *b);
struct client_hold *hold_new(const struct client_lease *l); /* NULL: out of memory */
bool hold_is(const struct client_hold *h, const char *name, uint64_t fence, const char *owner);

/* lock.c */
bool lock_is_unknown(int err); /* it may have been carried out, or may yet be */
/* Is the hold being converted or acquired anew? Then its fence may be an old one already: if
 * `granted`, only when that was told and is being confirmed. */
bool lock_is_moving(const struct belay *b, const struct client_hold *h, bool granted);

/* lease.c */
void lease_attached(struct belay *b);
void lease_session_over(struct belay *b, int why);
void lease_step(struct belay *b);
void lease_gone(struct belay *b, struct slice name, uint64_t fence); /* the server says so */
/* Perhaps it is gone: nobody believes in it from now on, and lease_step() says that it is lost.
 */
void lease_doubt(struct client_hold *h, int why);
int64_t lease_due_ms(const struct belay *b);
int64_t lease_patience_ms(const struct belay *b); /* of a kept lease; INT64_MAX: none is kept */
int64_t lease_early_ms(const struct belay *b, int64_t ttl_ms); /* before its end it is lost */
int lease_keep(struct belay *b, const struct client_lease *l);
/* By fence, or by owner when fence is 0. */
void lease_drop(struct belay *b, const char *name, uint64_t fence, const char *owner);
struct client_hold *lease_find(const struct belay *b, const char *name, uint64_t fence,
                               const char *owner); /* kept or not; NULL: it is not known */
/* Converted: the same hold under another fence. False: it is not known. */
bool lease_move(struct belay *b, const char *name, uint64_t old,
                const struct client_lease *now);
/* Something was sent that may leave it only ttl_ms, whatever we hear of it: from now on no
 * renewal counts for longer. ttl_ms 0: it does not. */
void lease_shorten(struct client_hold *h, int64_t sent_ms, int64_t ttl_ms);
/* RENEW by hand was answered, with what is left; BELAY_FOREVER: it has no end. */
void lease_renewed(struct client_hold *h, int64_t sent_ms, int64_t ttl_ms, int64_t left_ms);
void lease_free(struct belay *b);
#endif
