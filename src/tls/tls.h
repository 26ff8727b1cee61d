/* tls.h - TLS between memory buffers: proof of identity, and bytes that no other can read.
 *
 *   socket --tls_feed()--> tls --tls_read()--> plain bytes
 *   socket <--tls_drain()-- tls <--tls_write()-- plain bytes
 *
 * Nothing here knows a socket, and nothing aborts: libbelay uses it too. A context holds what
 * three files say: the certificates that are believed, and the own certificate with its key. A
 * connection keeps the context that it began with: reloading ends none. What was fed is taken
 * at once; what is to be sent is kept until it is drained. The caller drains it after each
 * call, and so it is bounded by what it reads at a time.
 *
 * The other side may be anybody. It may send TLS_HANDSHAKE_BYTES_MAX until it is open, and
 * TLS_IDLE_MESSAGES_MAX messages that carry nothing (new keys and the like) between two that
 * do; renegotiation is off. */
#ifndef BELAY_TLS_TLS_H
#define BELAY_TLS_TLS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TLS_PROBLEM_MAX = 256,
    TLS_WARN_DAYS = 30, /* before a certificate ends this is said */
    TLS_HANDSHAKE_BYTES_MAX = 64 << 10,
    TLS_IDLE_MESSAGES_MAX = 32,
    TLS_FIRST_BYTE = 0x16, /* how every connection begins */
};

struct tls_files {
    const char *ca, *cert, *key; /* PEM; that of the CA may hold a list of what it takes back */
};

const char *tls_library(void); /* its version */

enum tls_use {
    TLS_NODES,   /* 1.3; both sides prove that they are nodes; all three files */
    TLS_CLIENTS, /* to clients, 1.2 or 1.3: the server proves itself; with a CA a client may,
                    too */
    TLS_CALLER,  /* a client: no CA: those of the system; the other two: both or none */
};

struct tls_context;
struct tls;

/* BELAY_ERR_SYNTAX: a file is missing, is no PEM, does not fit the others, or is not of this
 * use; tls_context_problem() says which and why. BELAY_ERR_NO_MEMORY. */
BELAY_MUST_CHECK enum belay_err tls_context_open(const struct tls_files *files,
                                                 enum tls_use use, struct tls_context **ret);
/* Reads the files again. When something is wrong with them what was there stays in use. */
BELAY_MUST_CHECK enum belay_err tls_context_reload(struct tls_context *c);
const char *tls_context_problem(void);
/* Seconds until the own certificate or that of its CA ends; negative: it has. */
int64_t tls_context_expires_s(const struct tls_context *c);
void tls_context_close(struct tls_context *c); /* NULL is allowed */

enum tls_state {
    TLS_SHAKING, /* hands, that is: nothing is proven yet */
    TLS_OPEN,
    TLS_CLOSED, /* the other side has said that it ends */
    TLS_FAILED, /* tls_problem() says why */
};

/* As the side that was called, or as the one that calls. NULL: out of memory. */
struct tls *tls_open(const struct tls_context *c, bool was_called);
/* Calls, and opens only if the certificate is that of this host, a name or an address. */
struct tls *tls_call(const struct tls_context *c, const char *host);
void tls_close(struct tls *t); /* NULL is allowed */
enum tls_state tls_state(const struct tls *t);
const char *tls_problem(const struct tls *t); /* in plain words */

/* What has come from the socket; what it holds for the program is appended to `plain`. There
 * may be something to drain afterwards, also after a failure. */
enum tls_state tls_feed(struct tls *t, struct slice bytes, struct buf *plain);
/* Only when it is open; also when the other side has said that it ends. */
enum tls_state tls_write(struct tls *t, struct slice plain);
void tls_drain(struct tls *t, struct buf *out); /* what is to be sent is appended */
bool tls_has_output(const struct tls *t);       /* is there something to drain? */
void tls_end(struct tls *t);                    /* says that nothing more will be written */

/* Open: the other side's certificate carries exactly this DNS name. */
bool tls_is(const struct tls *t, const char *name);
/* Would it be believed if it came now? False: tls_problem() says why not. */
bool tls_is_believed(struct tls *t, const struct tls_context *c);
/* The part behind `prefix` of the first URI in the other side's certificate that begins with
 * it; false: it has none, or one that does not fit. */
bool tls_uri(const struct tls *t, const char *prefix, char *ret, size_t cap);
#endif
