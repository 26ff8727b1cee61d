/* run.h - a command under a lock: what `belay run` and `belay elect` share.
 *
 *   run_open()  connect, open a session attached to the connection
 *   run_take()  WAITING in the lines, one lock after the other in the order of their names
 *   run_watch() RUNNING: renew, forward signals, until the command has ended or had to be ended
 *   run_close() give everything back
 *
 * Times. A renewal that was sent at s proves the lease until p = s + ttl, on CLOCK_BOOTTIME:
 *
 *   s         s + ttl/3       p - margin - kill_after     p - margin     p
 *   |         |               |                           |              |
 *   renew     renew again     TERM                        KILL           the server may grant
 *                                                                        it to somebody else
 *
 * margin = ttl/50, at least 100 ms: for clocks that do not run alike, and for dying. */
#ifndef BELAY_CLI_RUN_RUN_H
#define BELAY_CLI_RUN_RUN_H

#include "cli/cli.h"

#include <signal.h>
#include <sys/types.h>

/* Exit statuses of their own; everything else is the command's (128+n: it died by signal n). */
enum run_exit {
    RUN_USAGE = 200,        /* the command line is wrong; nothing was done */
    RUN_NOT_OBTAINED = 201, /* --try: somebody else has it */
    RUN_TIMED_OUT = 202,    /* --wait is over */
    RUN_LOST = 203,         /* lost while the command ran: its group was ended */
    RUN_UNREACHABLE = 204,  /* no server could be reached */
    RUN_REFUSED = 205,      /* the server answered with an error */
    RUN_FAILED = 206,       /* something of this machine failed */
};

enum {
    RUN_LOCKS_MAX = 64,
    RUN_TTL_MIN_MS = 1000,
    RUN_TTL_MS = 30000,
    RUN_KILL_AFTER_MS = 5000,
    RUN_MARGIN_PART = 50,
    RUN_MARGIN_MIN_MS = 100,
    RUN_LOOK_MS = 1000,     /* how often the place in the line is looked up */
    RUN_FIRST_LOOK_MS = 50, /* a lock that is granted at once reports no line */
    RUN_AGAIN_MS = 200,     /* pause after a deadlock or a lost session, at most */
    RUN_ANSWER_MS = 1000, /* the server has so long, at least, to answer; also behind --wait */
    RUN_PATIENCE_MS = 10000, /* libbelay's own time-out: a shorter --wait shortens it */
    RUN_REASON_BYTES = 16,
    RUN_WORDS_BYTES = 512,
};

struct run_lock {
    const char *name; /* borrowed from argv */
    uint64_t fence;
    char *body; /* owned; of the first lock only */
    size_t body_len;
};

struct run {
    struct cli *c;
    struct run_lock locks[RUN_LOCKS_MAX]; /* sorted by name */
    size_t n_locks;
    const char *first; /* the first one on the command line: its body is handed over */
    char owner[CLI_OWNER_BYTES];
    struct belay_acquire want; /* all but the name */
    int64_t ttl_ms, wait_ms, linger_ms, kill_after_ms, at_least_ms;
    const char *on_lost, *body_from, *body_to;
    int64_t wait_until_ms; /* CLOCK_BOOTTIME; INT64_MAX: for ever */
    /* the question that is open */
    uint64_t serial;
    bool answered;
    int answer_err;
    enum belay_status answer;
    char answer_reason[RUN_REASON_BYTES]; /* of BELAY_REFUSED */
    bool unheard;                         /* the wait is over, and the server did not say so */
    bool is_tty;                          /* stderr shows the place in the line */
    bool status_shown;
    bool quiet;         /* the same failure was told already */
    int events_fd;      /* -1: none */
    bool events_opened; /* by us: a file */
    /* while it runs */
    bool lost;                        /* a lease of ours is gone */
    char lost_words[RUN_WORDS_BYTES]; /* why, for people */
    int lost_why;                     /* enum belay_code */
    int guard_fd, sent_socket;
    int64_t proven_ms, started_ms;
    pid_t guard, group;
    struct sigaction old_pipe; /* of SIGPIPE: a reader of events that goes must not end us */
};

/* events.c */
bool run_events_open(struct run *r); /* --events, --events-to; false: it said why */
/* One line of JSON: {"event":"waiting","at":"...", then `members` ("\"name\":\"x\"") }. */
void run_event(struct run *r, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void run_event_lock(struct run *r, const char *event, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void run_event_lost(struct run *r, const struct belay_lost *lost);
void run_status(struct run *r, const struct belay_reply *lock, const char *name); /* the line */
void run_status_clear(struct run *r);

/* acquire.c */
int64_t run_margin_ms(const struct run *r);
int run_open(struct run *r); /* 0, or an exit status */
int run_take(struct run *r);
int run_exit_of(struct run *r, int code); /* prints the error of the handle */
void run_give_back(struct run *r);

/* supervise.c */
/* Runs the command. *ret_status: its exit status, or RUN_LOST. 0, or an exit status of our own.
 */
int run_watch(struct run *r, int *ret_status);

/* run.c */
int run_parse(struct run *r, struct cli *c); /* 0, or RUN_USAGE */
void run_done(struct run *r);
extern const char run_exit_text[];
#endif
