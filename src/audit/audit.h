/* audit.h - the file of an audit log: a thread of its own writes and syncs it.
 *
 * Callers never wait. Lines are put into a bounded buffer, in the order of
 * their chain (chain.h); the thread takes all that are there, appends them with one write and
 * syncs. A write that fails is cut off the file and tried again every second; meanwhile lines
 * wait, and those that find the buffer full are lost, which the next line says ("lost": how
 * many).
 *
 * One process writes a file: it is locked. All functions are for one thread, but `told`, which
 * the writing thread calls whenever something has changed. */
#ifndef BELAY_AUDIT_AUDIT_H
#define BELAY_AUDIT_AUDIT_H

#include "base/buf.h"

enum { AUDIT_BUFFER_BYTES = 4 << 20 };

struct audit;

struct audit_state {
    uint64_t put;     /* number of the last line that was put */
    uint64_t durable; /* and of the last one on the disk */
    uint64_t lost;    /* lines for which there was no room, so far */
    int error;        /* errno of the last try; 0: it was written */
    char hash[64];    /* of the last line that was put; digits */
};

/* Opens or makes the file (0600), and says so in its first line. NULL: *ret_why, a static text,
 * perhaps with errno. A last line that a crash has cut is taken away. */
struct audit *audit_open(const char *path, void (*told)(void *ctx), void *ctx,
                         const char **ret_why);
/* `members`: `"a":1,"b":"c"`. The number of the line, 0: it is lost. */
uint64_t audit_put(struct audit *a, struct slice members);
/* From the next line on, into a new file of that name. The old one was renamed. */
void audit_reopen(struct audit *a);
void audit_look(struct audit *a, struct audit_state *ret);
/* Tries once to write what is there: how many lines it could not. NULL is allowed. */
uint64_t audit_close(struct audit *a);

/* "2026-11-18T21:15:35.123Z", now. */
enum { AUDIT_TIME_BYTES = 32 };
struct slice audit_time(char space[AUDIT_TIME_BYTES]);
#endif
