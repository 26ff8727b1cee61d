/* belay.h - libbelay, the C client of the Belay lock server. This file is its manual.
 *
 * Compile with `pkg-config --cflags --libs belay`. A first program (examples/ has three more):
 *
 *     struct belay *b = NULL;
 *     struct belay_grant g;
 *     if (belay_open(NULL, &b) != BELAY_E_OK)                 // $BELAY_ADDR, or 127.0.0.1:7117
 *         return 1;
 *     struct belay_acquire want = {.name = "backup", .owner = "me", .wait_ms = 5000};
 *     int err = belay_acquire(b, &want, &g);                  // connects when it has to
 *     if (err != BELAY_E_OK)
 *         fprintf(stderr, "%s\n", belay_error(b));            // what went wrong, in words
 *     else if (g.status == BELAY_GRANTED)
 *         work(g.fence), belay_release(b, "backup", g.fence, NULL, NULL);
 *     belay_close(b);
 *
 * Rules
 * - Every call that can fail returns an `enum belay_code` (0 is success); belay_error() has the
 *   words for the last failure of that handle. "Somebody else holds it" is not a failure: it is
 *   an answer, in `status`.
 * - After a failure nothing reads as a success: a reply is NULL, a number 0, a truth false, a
 *   grant REFUSED without a reason. A NULL where none is allowed is BELAY_E_USAGE.
 * - The library never prints, never aborts, never changes signals or the environment, and keeps
 *   no global state. Out of memory is BELAY_E_MEMORY like any other failure.
 * - A handle belongs to one thread at a time. Different threads use different handles.
 * - Text in a reply ends with a NUL behind its `len` bytes, and may contain NULs itself.
 * - Replies are borrowed: they live until the next call on the same handle, or until the
 *   callback that got them returns.
 * - Structs of options may grow at the end in later versions: initialise them by name, zero the
 *   rest ({.name = "x"}). A member that is 0 or NULL means "the default".
 * - When the connection breaks before an answer came, or the server answers that it cannot
 *   serve now, the request is sent again, to the next address, until its time-out is over
 *   (without any connection: for timeout_ms at most). Requests that change something carry a
 *   random request id, so that they take effect once; a place in a line is kept. Commands of
 *   belay_call() and belay_send() that cannot be repeated safely are sent once.
 * - Durations are milliseconds. Fences and tickets are 64-bit numbers that only grow.
 *
 * Two ways to use it: blocking calls (first part), or one file descriptor in your own event
 * loop with callbacks (second part). Both may be mixed on one handle, except that a callback
 * must not make a blocking call (BELAY_E_USAGE). */
#ifndef BELAY_H
#define BELAY_H

#include "belay_version.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_API          __attribute__((visibility("default")))
#define BELAY_ADDR_DEFAULT "127.0.0.1:7117"

enum {
    BELAY_FOREVER = -1,
    BELAY_ADDRS_MAX = 16,
    BELAY_WORDS_MAX = 1024,    /* of one command */
    BELAY_CALL_WORDS_MAX = 32, /* of belay_call() */
};

/* Errors. Those below 100 are found by the library; those from 100 on are the server's answer,
 * and belay_error_word() returns their word on the wire. */
enum belay_code {
    BELAY_E_OK = 0,
    BELAY_E_MEMORY,       /* out of memory */
    BELAY_E_USAGE,        /* a wrong argument; nothing was sent */
    BELAY_E_CONNECT,      /* no address of the list could be reached */
    BELAY_E_DEADLINE,     /* no answer in time; the request may still have been carried out */
    BELAY_E_CLOSED,       /* the connection broke, and the request could not be sent again with
                             success; it may have been carried out */
    BELAY_E_PROTOCOL,     /* the answer is not one of a Belay server */
    BELAY_E_LOST,         /* the session of this handle is over, and everything held in it */
    BELAY_E_STALE = 100,  /* the fence or owner does not hold the lock; an acquire: the lock was
                             granted while there was no connection, and the lease is over */
    BELAY_E_NO_SESSION,   /* no such session, or it has ended */
    BELAY_E_NO_NAMESPACE, /* no such namespace */
    BELAY_E_NOT_FOUND,    /* no such thing */
    BELAY_E_EXISTS,       /* it exists already */
    BELAY_E_IN_USE,       /* it is in use */
    BELAY_E_LIMIT,        /* a limit of the server is reached */
    BELAY_E_RANGE,        /* a value is outside its bounds */
    BELAY_E_SYNTAX,       /* the server does not understand the request */
    BELAY_E_DENIED,       /* not allowed: credentials are missing or too weak */
    BELAY_E_UNAVAILABLE,  /* cannot serve now, try again */
    BELAY_E_GONE,         /* that part of the history is dropped: read the full state first */
    BELAY_E_SERVER,       /* any other error answer */
};

BELAY_API const char *belay_code_text(int code); /* "no answer in time"; never NULL */

/* ---- the handle ----------------------------------------------------------------------- */

struct belay; /* one connection at a time to one of a list of servers */

struct belay_options {
    const char *addrs;  /* "host:port,host:port"; NULL: $BELAY_ADDR, or BELAY_ADDR_DEFAULT.
                           The port may be left out (7117); IPv6 as [::1]:7117. With tls:// in
                           front the server must prove that it is this host: belay_use_tls().
                           unix:///path is a socket of this machine */
    const char *ns;     /* namespace; NULL: the server's default one */
    const char *token;  /* sent with AUTH; NULL: $BELAY_TOKEN, or the first line of the file
                           $BELAY_TOKEN_FILE, or none; "": none */
    int64_t timeout_ms; /* for the answer of a call, not counting its own wait_ms; 0: 10,000 */
    int64_t connect_ms; /* for one address of the list to accept us; 0: 3,000 */
    bool stale; /* belay_show(), belay_list() and the like: the connected server answers from
                   what it knows, even if it cannot reach the others; the reply has stale_ms */
};

/* Allocates and checks the addresses; does not connect yet. `o` may be NULL.
 * BELAY_E_USAGE: an address is malformed. *ret_b is NULL when it fails. */
BELAY_API int belay_open(const struct belay_options *o, struct belay **ret_b);
/* NULL is allowed. Callbacks in flight get BELAY_E_CLOSED. In a callback that belay_dispatch()
 * or belay_poll() runs, it takes effect when that returns (with BELAY_E_CLOSED); not allowed in
 * a callback that a blocking call runs. */
BELAY_API void belay_close(struct belay *b);

/* Files in PEM for addresses that begin with tls://. NULL: the files that $BELAY_TLS_CA,
 * $BELAY_TLS_CERT and $BELAY_TLS_KEY name. Without a CA the CAs of the system are used. `cert`
 * and `key` identify this program to the server; they are optional. */
struct belay_tls {
    const char *ca, *cert, *key;
};

/* Reads the files now, for connections that are made from now on. `f` may be NULL.
 * BELAY_E_USAGE: a file is missing or invalid; belay_error() says which. */
BELAY_API int belay_use_tls(struct belay *b, const struct belay_tls *f);

/* Connects now instead of at the first call. Every address is tried once, last good first. */
BELAY_API int belay_connect(struct belay *b);
BELAY_API bool belay_is_connected(const struct belay *b);
/* "127.0.0.1:7117": connected to, or last tried. */
BELAY_API const char *belay_addr(const struct belay *b);

/* The last failure on this handle. Never NULL; "" before the first. */
BELAY_API const char *belay_error(const struct belay *b);
BELAY_API int belay_error_code(const struct belay *b);
/* "STALE"; "" for a local failure. */
BELAY_API const char *belay_error_word(const struct belay *b);

/* ---- replies -------------------------------------------------------------------------- */

enum belay_kind {
    BELAY_NULL,
    BELAY_BOOL, /* number is 0 or 1 */
    BELAY_INT,
    BELAY_DOUBLE,
    BELAY_TEXT,
    BELAY_ERROR, /* inside a list only: at the top it is the call's error code */
    BELAY_LIST,
    BELAY_MAP, /* children have a key */
};

struct belay_reply {
    enum belay_kind kind;
    const char *key; /* in a map, else NULL */
    const char *text;
    size_t len; /* of text */
    int64_t number;
    double real;
    size_t count; /* children */
    const struct belay_reply *first, *next;
};

/* The child of a map with that key, or of a list with that number from 0; NULL when absent.
 * `r` may be NULL, so look-ups can be chained. */
BELAY_API const struct belay_reply *belay_get(const struct belay_reply *r, const char *key);
BELAY_API const struct belay_reply *belay_at(const struct belay_reply *r, size_t i);
BELAY_API int64_t belay_int(const struct belay_reply *r,
                            int64_t otherwise); /* text in digits counts */
BELAY_API const char *belay_text(const struct belay_reply *r, const char *otherwise);

/* ---- any command ---------------------------------------------------------------------- */

struct belay_bytes {
    const char *data;
    size_t len;
};

/* Sends one command and waits for its answer: belay_call(b, &r, "SHOW", "backup", NULL).
 * The words are C strings and end with NULL. `ret_r` may be NULL. */
BELAY_API int belay_call(struct belay *b, const struct belay_reply **ret_r, ...)
    __attribute__((sentinel));
/* The same with words of any bytes and its own deadline; timeout_ms 0: that of the handle. */
BELAY_API int belay_callv(struct belay *b, const struct belay_bytes *words, size_t n,
                          int64_t timeout_ms, const struct belay_reply **ret_r);

/* ---- locks ---------------------------------------------------------------------------- */

enum belay_mode { BELAY_EXCLUSIVE, BELAY_SHARED };
enum belay_policy { BELAY_HARD, BELAY_SOFT, BELAY_TIMED };

struct belay_acquire {
    const char *name;    /* 1..512 bytes */
    const char *owner;   /* 1..128 bytes; your name, the same on every call */
    const char *session; /* NULL: the session of this handle, if it has one; "": none */
    enum belay_mode mode;
    int64_t ttl_ms;   /* 0: 30,000; BELAY_FOREVER: as long as its session lives */
    int64_t wait_ms;  /* 0: do not wait; BELAY_FOREVER */
    int64_t grace_ms; /* after the TTL the lock stays held for this long, as overdue */
    int64_t delay_ms; /* after an involuntary loss nobody gets the lock for this long */
    enum belay_policy policy;
    int64_t quiet_ms;     /* BELAY_TIMED: this long without a new shared holder */
    unsigned permits, of; /* of > 0: a semaphore with that many permits; permits 0: 1 */
    const void *body;     /* the lock's body is set to this on the grant; NULL: left as it is */
    size_t body_len;
    bool keep; /* renew it at a third of its TTL (belay_dispatch), see "Leases that are kept" */
};

enum belay_status {
    BELAY_GRANTED,
    BELAY_QUEUED,
    BELAY_REFUSED,
    BELAY_TIMED_OUT,
    BELAY_DEADLOCK
};

struct belay_grant {
    enum belay_status status;
    uint64_t fence; /* GRANTED: give it to the resource, it refuses smaller ones */
    int64_t
        expires_in_ms; /* GRANTED: counted from the grant; BELAY_FOREVER: no end of its own */
    const char *body;  /* GRANTED: the lock's body, borrowed */
    size_t body_len;
    uint64_t ticket, position; /* QUEUED */
    const char *reason; /* REFUSED: "held", "kind", "closed", "replaced", "lost"; else "" */
    const struct belay_reply
        *reply; /* the answer as it came: holders, the cycle of a deadlock */
};

/* Asks for the lock and waits in line for up to wait_ms. */
BELAY_API int belay_acquire(struct belay *b, const struct belay_acquire *want,
                            struct belay_grant *ret_g);

/* By fence, or by owner when fence is 0. By owner it frees every hold of that owner; if the
 * request is delayed on its way, this includes a hold that was granted meanwhile. So give the
 * fence if you know it. *ret_held (may be NULL) is false, with BELAY_E_OK, when the lock was
 * not held (any more). */
BELAY_API int belay_release(struct belay *b, const char *name, uint64_t fence,
                            const char *owner, bool *ret_held);
/* ttl_ms 0: the last TTL of the hold. BELAY_E_STALE: not held (any more). */
BELAY_API int belay_renew(struct belay *b, const char *name, uint64_t fence, const char *owner,
                          int64_t ttl_ms, int64_t *ret_left_ms);
/* Changes the mode of a held lock, which stays held meanwhile; answers as belay_acquire(). */
BELAY_API int belay_convert(struct belay *b, const char *name, uint64_t fence,
                            enum belay_mode mode, int64_t wait_ms, struct belay_grant *ret_g);
/* Is this fence (or owner, with fence 0) a current holder? For resources that ask. */
BELAY_API int belay_check(struct belay *b, const char *name, uint64_t fence, const char *owner,
                          bool *ret_current);
/* Sets the body that the next holder finds; also renews. BELAY_E_STALE: not held. */
BELAY_API int belay_body(struct belay *b, const char *name, uint64_t fence, const void *body,
                         size_t len);
/* A map: name, state, body, holders[], waiters[] (the LOCK shape of docs/PROTOCOL.md). */
BELAY_API int belay_show(struct belay *b, const char *name, const struct belay_reply **ret_r);
/* One page, in order of names: [[LOCK...], next]; next is the `after` of the next page, or
 * null. */
BELAY_API int belay_list(struct belay *b, const char *prefix, const char *after, unsigned limit,
                         const struct belay_reply **ret_r);
/* The operator's forced unlock. *ret_count (may be NULL): number of holders that lost the lock.
 * `reason` (up to 256 bytes, or NULL) is in the event for watchers and in the audit log. */
BELAY_API int belay_break(struct belay *b, const char *name, int64_t *ret_count);
BELAY_API int belay_break_for(struct belay *b, const char *name, const char *reason,
                              int64_t *ret_count);

/* ---- namespaces ----------------------------------------------------------------------- */

BELAY_API int belay_namespace_create(struct belay *b, const char *ns, const char *description);
BELAY_API int belay_namespace_delete(struct belay *b, const char *ns, bool force);
/* A page, as belay_list(): [[{name, description, locks...}...], next]. */
BELAY_API int belay_namespace_list(struct belay *b, const char *after,
                                   const struct belay_reply **ret_r);

/* ---- the session ---------------------------------------------------------------------- */

/* Opens a session that is attached to this handle's connection. Locks that are acquired in it
 * are freed when it ends. It ends with the connection (after linger_ms), by
 * belay_session_close(), or ttl_ms after it was last kept. When the connection breaks, the next
 * call or dispatch connects to another address of the list and attaches the session again; if
 * it has ended by then, the result is BELAY_E_LOST and the lost callback. A handle has one
 * session at most. ttl_ms 0: 60,000. */
BELAY_API int belay_session_open(struct belay *b, int64_t ttl_ms, int64_t linger_ms,
                                 const char *description);
/* Attaches a session that exists. ttl_ms 0: the TTL that the server reports. */
BELAY_API int belay_session_attach(struct belay *b, const char *id, int64_t ttl_ms);
BELAY_API int belay_session_keepalive(struct belay *b);
BELAY_API int belay_session_close(struct belay *b); /* frees everything in it, at once */
BELAY_API const char *belay_session_id(const struct belay *b); /* "" when there is none */

/* ---- the event loop ------------------------------------------------------------------- */

/* One descriptor for the whole life of the handle, to be watched for reading (poll, epoll,
 * libuv, GLib...): it becomes readable when there is anything to do, timers included. Then call
 * belay_dispatch(): it reads, writes, connects, renews, and calls your callbacks; it never
 * blocks (except for the lookup of a host name). It returns a failure once, when the connection
 * broke or could not be made; then it tries again by itself, with growing pauses.
 * CAUTION: the descriptor is level-triggered and not a socket. */
BELAY_API int belay_fd(struct belay *b); /* -1: out of descriptors */
BELAY_API int belay_dispatch(struct belay *b);
/* The socket of the connection, -1 when there is none; it changes with each reconnect. Use it
 * only to hold it, or to pass it to another process, so that the server does not see the
 * connection close. Never read or write it. */
BELAY_API int belay_socket(const struct belay *b);
/* Waits for up to timeout_ms (BELAY_FOREVER) until there is something to do and dispatches it.
 */
BELAY_API int belay_poll(struct belay *b, int64_t timeout_ms);

/* `err` is 0 with the reply, or says why there is none (belay_error() has the text). Every
 * callback is called exactly once, at the latest by belay_close(). */
typedef void belay_reply_fn(struct belay *b, int err, const struct belay_reply *r, void *arg);
typedef void belay_grant_fn(struct belay *b, int err, const struct belay_grant *g, void *arg);

/* Queues a command; its answer goes to `fn`. A failure to queue is returned and `fn` is not
 * called. */
BELAY_API int belay_send(struct belay *b, const struct belay_bytes *words, size_t n,
                         belay_reply_fn *fn, void *arg);
/* As belay_acquire(); `fn` is called once, with the final result (granted, refused, timed out).
 */
BELAY_API int belay_acquire_send(struct belay *b, const struct belay_acquire *want,
                                 belay_grant_fn *fn, void *arg);

/* ---- leases that are kept ------------------------------------------------------------- */

/* A lock acquired with `keep` is renewed at a third of its TTL by belay_dispatch(), and the
 * session of the handle likewise. The library knows how long a lease is proven: the moment the
 * last successful request was *sent* plus the TTL, on CLOCK_BOOTTIME, so that a suspended
 * machine counts. `fn` is called once for every lease
 *   - that the server says is gone (why: BELAY_E_STALE, BELAY_E_LOST): another owner may have
 *     it;
 *   - that could not be renewed and is proven for only early_ms more (why: BELAY_E_CONNECT or
 *     BELAY_E_DEADLINE): nobody else can have it before left_ms have passed. Stop the work;
 *   - that was acquired again, or converted, with unknown outcome (why: the failure of that
 *     request): the fence may have changed.
 * name is NULL for the session itself. early_ms is what you need to stop; 0: a tenth of the
 * TTL. */
struct belay_lost {
    const char *name;
    uint64_t fence;
    int why;
    int64_t left_ms;
    /* What the server said of it; "" each, if it did not say. */
    const char *reason; /* its word: "break", "ttl", "release", "revoked" ... */
    const char *by,
        *text; /* "break": the id of the token that did it, and why, in their words */
};
typedef void belay_lost_fn(struct belay *b, const struct belay_lost *lost, void *arg);
BELAY_API void belay_on_lost(struct belay *b, int64_t early_ms, belay_lost_fn *fn, void *arg);

/* The time until which all kept leases are proven, in ms of CLOCK_BOOTTIME; INT64_MAX: none is
 * kept. */
BELAY_API int64_t belay_proven_ms(const struct belay *b);

/* Do I hold it now? True when this handle was granted the lock (fence 0: under any fence), has
 * neither released nor lost it, and its lease is proven at this very moment: then nobody else
 * can have it, unless an operator broke it. It asks only the clock, so its answer is right
 * after a stop, too, before anything was dispatched. It works with and without `keep`. A lock
 * in a session of this handle is held no longer than the session is proven. Of a lock in
 * another session it knows only the lock's own TTL; if there is none, it answers false. */
BELAY_API bool belay_held(const struct belay *b, const char *name, uint64_t fence);

/* ---- news ----------------------------------------------------------------------------- */

/* A map: event ("granted", "released", "expired"...), seq, name, owner, fence... as
 * docs/PROTOCOL.md says. `err` BELAY_E_GONE: news were missed, or may have been; read the
 * state (belay_list) again; the watch goes on. */
typedef void belay_event_fn(struct belay *b, int err, const struct belay_reply *event,
                            void *arg);

/* Watches the locks whose names begin with `prefix` (NULL: all). A handle has one watch; a NULL
 * `fn` ends it. since: the last seq that was seen; 0: from now on. */
BELAY_API int belay_watch(struct belay *b, const char *prefix, uint64_t since,
                          belay_event_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
