/* command.h - a request becomes an op, an event becomes a reply. The one table: commands.def.
 *
 *   request --command_read()--> struct call: an op to submit, a reply at once, or an action
 *                               of the connection (greet, watch, quit)
 *   event --answer_event()--> reply (answer.h)
 *
 * No state is read here and no socket is known: a request is understood without a server. */
#ifndef BELAY_COMMAND_COMMAND_H
#define BELAY_COMMAND_COMMAND_H

#include "base/arena.h"
#include "command/args.h"
#include "machine/op.h"
#include "proto/message.h"

#include <assert.h>

#include "machine/machine.h"

struct call;
struct scripts;

enum command_flag {
    CMD_READ = 1,        /* changes nothing */
    CMD_WRITE = 2,       /* changes locks or sessions */
    CMD_ADMIN = 4,       /* an operator's command */
    CMD_CONNECTION = 8,  /* about the connection itself */
    CMD_REDIS = 16,      /* a Redis lock recipe */
    CMD_GLOCK = 32,      /* Glock's own path: its error bodies are {"error":"text"} */
    CMD_PAGE = 64,       /* a page for people and monitors */
    CMD_RAW = 128,       /* HTTP: the body is bytes, not JSON */
    CMD_FORM = 256,      /* HTTP: the body may be a form */
    CMD_RESP_ONLY = 512, /* has no HTTP route on purpose: needs a lasting connection */
    CMD_JSON = 1024,     /* HTTP: the body is one JSON document, read by the command: P_JSON */
};

enum command_id {
#define CMD(id, name, fn, flags, need, again, method, path, positions, options, summary)       \
    CMD_##id,
#include "command/commands.def"
#undef CMD
    COMMAND_COUNT_ALL
};

/* The right that a command takes: rights.h. */
enum need {
    NEED_NOTHING, /* not even to log in */
    NEED_TOKEN,   /* any token that counts; what is shown is what it may read */
    NEED_READ,    /* the verb, for every name in it */
    NEED_LOCK,
    NEED_BREAK,
    NEED_ADMIN,      /* for the namespace, or the queue */
    NEED_READ_ALL,   /* for the whole namespace */
    NEED_READ_SOME,  /* somewhere in the namespace; what is shown is what it may read */
    NEED_READ_NAMED, /* somewhere in the namespace, if one is named; else any token */
    NEED_LOCK_SOME,  /* anywhere */
    NEED_EACH,       /* TXN: read for what it looks at, lock for what it changes */
    NEED_CLUSTER,
    NEED_ACCOUNTS,
};

enum call_kind { CALL_OP, CALL_REPLY, CALL_ACTION };

/* What only the server can do for a connection. */
enum action {
    ACTION_NONE,
    ACTION_HELLO, /* number: RESP version, 0: as it is; text: name or empty; with a secret:
                     LOGIN */
    ACTION_USE,   /* text: namespace */
    ACTION_WATCH, /* text: prefix; number: first event wanted, 0: from now on; op.ns: empty: all;
                     kinds: bits of enum event_kind, 0: all */
    ACTION_HISTORY, /* op.ns, op.name, op.limit */
    ACTION_UNWATCH,
    ACTION_QUIT,
    ACTION_RESET,
    ACTION_CLIENT_ID,
    ACTION_SETNAME, /* text */
    ACTION_GETNAME,
    ACTION_INFO,
    ACTION_READY,
    ACTION_METRICS,
    ACTION_STATS,
    ACTION_CLUSTER,    /* its command says what; text: node, peer: its address, number */
    ACTION_QUEUE_PUSH, /* the arguments are in the call */
    ACTION_QUEUE_LIST,
    ACTION_QUEUE_MANAGE,
    ACTION_LOGIN,     /* peer: public id or empty, secret: the secret, or the whole token */
    ACTION_AUTH_INIT, /* the op makes the first token, if it may: only from this machine */
    ACTION_WHOAMI,
    ACTION_LOG_LEVEL, /* number: enum log_level */
    ACTION_FIND,      /* op: OP_FIND; text: the one namespace to look in */
};

/* How the answer shall look; kept while the asker waits, so it is small. */
enum form {
    FORM_PLAIN,    /* by the event's kind */
    FORM_KEPT_ONE, /* keep-alive of one session by path: gone is an error */
    FORM_OK_NIL,   /* Redis SET NX: OK, or null when refused */
    FORM_COUNT,    /* Redis: manner.count when it succeeded, else 0 */
    FORM_RELEASED, /* Redis: how many went, at most manner.count */
    FORM_OWNER,    /* Redis GET */
    FORM_EXISTS,   /* Redis EXISTS */
    FORM_PTTL,
    FORM_TTL,
    FORM_GLOCK_ACQUIRE,
    FORM_GLOCK_RENEW,
    FORM_GLOCK_RELEASE,
};

struct manner {
    uint8_t form;    /* enum form */
    uint8_t op;      /* enum op_kind: what was asked */
    uint8_t command; /* enum command_id, for the metrics */
    bool http : 1;
    bool blind : 1; /* the client may not read the lock that it asked about */
    uint32_t count;
};
static_assert(COMMAND_COUNT_ALL < 256 && OP_KIND_COUNT < 256, "struct manner keeps bytes");

/* What a request is read in: borrowed for the call. */
struct context {
    struct slice account, ns;        /* the connection's */
    int resp;                        /* RESP version, 0: HTTP */
    uint64_t target;                 /* the connection's number, for SESSION ATTACH */
    struct scripts *scripts;         /* those that were loaded */
    bool closed;                     /* the client must have logged in */
    bool unclaimed;                  /* nobody can yet, and this one may not do without */
    const struct machine_token *who; /* as what; NULL: nobody has, or has to */
    uint64_t generation;             /* of that token */
    uint64_t wall_ms;                /* time of day */
};

struct command {
    struct slice name; /* "SESSION OPEN"; HTTP only: "/healthz" */
    void (*read)(struct call *c);
    unsigned flags;
    enum need need;
    const char *method, *path; /* "POST|PUT", "/v1/sessions/{id}"; NULL: RESP only */
    struct params params;
    const char *summary;
};

struct call {
    const struct command *command;
    const struct context *context;
    const struct request *request;
    struct arena *arena;
    struct args args;
    /* what came of it */
    enum call_kind kind;
    struct op op;
    struct manner manner;
    struct reply *reply;    /* CALL_REPLY */
    enum belay_err refused; /* it: for want of a right, or of a login; BELAY_OK: it is not */
    enum action action;
    struct slice text, peer;
    struct slice secret; /* of a new token, for its answer alone; LOGIN: to be checked */
    uint64_t number;
    uint64_t kinds;        /* WATCH */
    uint64_t min_uptime_s; /* TXN: what the node must be able to say of itself */
    double min_trust;
};

/* Understands `req` (which http_read_body() may extend, in `a`). Everything in *ret borrows
 * from the request, the context and the arena. A request that is wrong becomes a CALL_REPLY
 * with an error; ret->command is NULL when there is no such command or path. */
void command_read(struct request *req, const struct context *context, struct arena *a,
                  struct call *ret);

const struct command *command_get(enum command_id id);
const struct command *command_find(struct slice name); /* "session open", any case; or NULL */

const char *command_group(const struct command *cmd); /* "The connection" */

/* Markdown for PROTOCOL.md: every command with its usage, route and summary. */
void command_write_docs(struct buf *out);

/* For the cmd_*() functions: refuse, or answer at once. */
void call_fail(struct call *c, enum belay_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void call_answer(struct call *c, struct reply *r);
void call_answer_status(struct call *c, const char *word); /* "+OK" */
void call_act(struct call *c, enum action action);

#define CMD(id, name, fn, flags, need, again, method, path, positions, options, summary)       \
    void cmd_##fn(struct call *c);
#include "command/commands.def"
#undef CMD
#endif
