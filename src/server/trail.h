/* trail.h - what operators do: who asked for what, and what came of it. It goes into the audit
 * log (audit/audit.h), and what changes something also into the log (server.admin).
 *
 *   a command of an operator  --trail_begin()--> a note, kept with its pending reply
 *   its answer                --trail_end()----> one line
 *
 * Operators' commands are those that need break, admin, cluster or accounts, and AUTH INIT. One
 * line each says what came of it; with --audit-required a line before it, "asked", is on the
 * disk before anything is done. Logins and refusals are lines too. A flood of refusals is not:
 * above TRAIL_REFUSALS_PER_S they are counted, and the next line says how many ("skipped"). No
 * secret, no body and no payload is ever in a line; texts of clients are escaped to ASCII. */
#ifndef BELAY_SERVER_TRAIL_H
#define BELAY_SERVER_TRAIL_H

#include "command/command.h"
#include "server/limiter.h"

#include <uv.h>

struct audit;
struct conn;
struct event;
struct server;
struct trail_note;

enum { TRAIL_REFUSALS_PER_S = 100, TRAIL_REFUSALS_AT_ONCE = 1000 };
/* Lines in the log. Above that they are counted: a pipe that is full of them would lose others. */
enum { TRAIL_ACTS_PER_S = 100, TRAIL_ACTS_AT_ONCE = 100 };

struct trail {
    struct audit *audit; /* NULL: there is none */
    bool required;
    struct limiter refusals; /* of one slot */
    uint64_t skipped, skipped_told;
    struct limiter acts; /* of one slot */
    uint64_t acts_skipped;
    size_t n_asked;   /* connections that wait for their line */
    int error;        /* what the log said last of it */
    uv_async_t wrote; /* from the thread that writes */
};

enum trail_step {
    TRAIL_GO,
    TRAIL_WAIT,    /* its line is on the way to the disk: the request is taken again */
    TRAIL_REFUSED, /* it cannot be written down, so it must not be done */
};
extern const char trail_refused_text[];

bool trail_open(struct server *s); /* false: the log says why */
void trail_close(struct server *s);
void trail_reopen(struct server *s);
void trail_look(struct server *s); /* once a second: does it work? */

/* A request that was understood. *ret: what to keep of it, NULL: nothing. */
enum trail_step trail_begin(struct conn *c, const struct call *call, struct trail_note **ret);
/* What came of it: writes, and frees the note. NULL is allowed. */
void trail_end(struct conn *c, struct trail_note *note, const struct event *ev);
void trail_end_reply(struct conn *c, struct trail_note *note, const struct reply *r);
void trail_end_unknown(struct conn *c, struct trail_note *note); /* nobody waits any longer */
/* Refused before anything was done. `call` NULL: not even read. */
void trail_refuse(struct conn *c, const struct call *call, enum belay_err err);
void trail_login(struct conn *c, struct slice id, bool counts);
void trail_reset(struct server *s); /* belay auth reset has taken effect */
void trail_forget(struct conn *c);  /* the connection goes */
#endif
