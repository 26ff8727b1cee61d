/* snapshot.h - what the files that write and read a snapshot share. */
#ifndef BELAY_MACHINE_SNAPSHOT_H
#define BELAY_MACHINE_SNAPSHOT_H

#include "machine/state.h"
#include "machine/varint.h"

struct loader {
    struct machine *m;
    struct reader r; /* turns bad at the first thing that is not sound */
    uint64_t version;
    uint64_t *numbers; /* every fence, ticket and session number: none may stand twice */
    size_t n_numbers, cap_numbers;
    struct session **sessions; /* by number */
    size_t n_sessions;
    struct hold **holds; /* of sessions, to be put into their lists by number */
    size_t n_holds, cap_holds;
    struct wait **waits;
    size_t n_waits, cap_waits;
    struct record **records;
    size_t n_records, cap_records;
    struct parked **parked;
    size_t n_parked, cap_parked;
};

void *loader_grown(void *items, size_t n, size_t *cap, size_t size); /* room for one more */
bool loader_ok(struct loader *ld, bool cond); /* false: it is bad, now or before */
uint64_t loader_number(struct loader *ld);
uint64_t loader_bounded(struct loader *ld, uint64_t max);
uint64_t loader_time(struct loader *ld);
struct slice loader_bytes(struct loader *ld, size_t min, size_t max);
struct session *loader_session(struct loader *ld); /* NULL: none */

void snapshot_put_end(struct buf *out, const struct heap_node *end); /* 0: none; else at + 1 */
void snapshot_put_session_ref(struct buf *out, const struct session *s);

/* outbox.c */
void snapshot_put_outbox(struct buf *out, const struct machine *m);
void loader_outbox(struct loader *ld);

/* account.c, token.c */
void snapshot_put_account(struct buf *out, const struct account *a);
void loader_account(struct loader *ld, struct account *a);
void snapshot_put_tokens(struct buf *out, const struct machine *m);
void loader_tokens(struct loader *ld);

/* The receipt of something that waits, NULL: it has none. The caller ties the two. */
void snapshot_put_open(struct buf *out, const struct receipt *r, enum away away);
struct receipt *loader_open(struct loader *ld, const struct space *s, enum away *ret_away);

/* snapshot_vars.c: the tables and the parked transactions of a namespace. */
void snapshot_put_tables(struct buf *out, const struct space *s);
void snapshot_put_parked(struct buf *out, const struct space *s);
void loader_tables(struct loader *ld, struct space *s);
void loader_parked(struct loader *ld, struct space *s);
void loader_finish_records(struct loader *ld); /* into the lists of their sessions, by number */
#endif
