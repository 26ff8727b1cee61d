/* doctor.h - what `belay doctor` finds: one line that says what is wrong, one that says what to do.
 *
 *   doctor_find(d, ..., "what is wrong") then doctor_advise(d, "what to do")
 *
 * A finding is about something that is wrong now (an error), or that will go wrong (a warning).
 * Nothing here changes a server or a directory. */
#ifndef BELAY_CLI_DOCTOR_H
#define BELAY_CLI_DOCTOR_H

#include "cli/cli.h"

enum doctor_severity { DOCTOR_WARNING, DOCTOR_ERROR };

enum {
    DOCTOR_ASK_MS = 3000,          /* a node that does not answer for so long is not well */
    DOCTOR_CERTIFICATE_DAYS = 30,  /* a certificate that ends sooner */
    DOCTOR_CLOCK_PPM = 1000,       /* leases allow for that */
    DOCTOR_WRITE_MS = 50,          /* half of the writes take longer: the disk is slow */
    DOCTOR_FULL_PERCENT = 85,      /* of memory, or of connections */
    DOCTOR_BEHIND_ENTRIES = 10000, /* a member that has applied so many less than another */
    DOCTOR_FREE_MIN_MB = 256,      /* on a disk; and 5 percent of it, up to 10 GB */
    DOCTOR_FREE_PERCENT = 5,
    DOCTOR_FREE_ENOUGH_MB = 10240,
    DOCTOR_NODES_MAX = 128,
};

struct doctor {
    struct cli *c;
    const char *where; /* what is looked at: a node, "cluster", a directory */
    struct buf found;  /* as it is printed */
    struct buf seen;   /* what was looked at, as JSON */
    size_t errors, warnings, n_seen;
    uint64_t write_us, write_slowest_us; /* as measured; 0: they were not */
};

/* About d->where. `code` names the kind of finding for programs. Each is followed by one
 * doctor_advise(). */
void doctor_find(struct doctor *d, enum doctor_severity severity, const char *code,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
void doctor_advise(struct doctor *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void doctor_saw(struct doctor *d, const char *what);

/* A server, and the other nodes of its cluster. CLI_OK, or why nothing could be looked at. */
int doctor_cluster(struct doctor *d);
/* What one node says about all: the answer of CLUSTER STATUS. */
void doctor_status(struct doctor *d, const struct belay_reply *status);
/* What each says about itself. */
struct doctor_node {
    char *name, *info; /* the answer of INFO */
};
void doctor_nodes(struct doctor *d, const struct doctor_node *nodes, size_t n);
/* The value of that line of INFO; false: it has none, as an earlier version has not. */
bool doctor_line(const char *info, const char *name, char *ret, size_t cap);
/* A directory of a node. */
int doctor_data(struct doctor *d, const char *dir);
/* The disk has `free` of `all` bytes. */
void doctor_space(struct doctor *d, uint64_t free, uint64_t all);
void doctor_writes(struct doctor *d, uint64_t median_us, uint64_t slowest_us);
#endif
