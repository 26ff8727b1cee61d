/* answer.h - an event becomes a reply: one tree for RESP and for JSON. */
#ifndef BELAY_COMMAND_ANSWER_H
#define BELAY_COMMAND_ANSWER_H

#include "command/command.h"
#include "machine/event.h"

/* The answer, in the form of that request. `wall_ns` is the time of day (Glock shows it).
 * Borrows from `ev`; memory is the arena's. Never NULL. */
struct reply *answer_event(const struct event *ev, struct manner manner, uint64_t wall_ns,
                           struct arena *a);

/* What a node can say of itself (server/trust.h): every answer to a transaction carries it. */
struct answer_standing {
    uint64_t uptime_s;
    double trust, norm;
};

/* The answer to TXN: EVENT_TXN. A selected value is JSON through every door. */
struct reply *answer_txn(const struct event *ev, struct answer_standing standing,
                         struct arena *a);
struct reply *answer_tables(const struct event *ev, enum op_kind op, struct arena *a);

/* Members of a row: a lock into its map, a holder or a waiter as one more of a list. `blind`: for
 * a client that may not read the lock, but is told who holds it. */
void answer_lock(struct arena *a, struct reply *map, const struct lock_row *lock, bool blind);
void answer_holder(struct arena *a, struct reply *list, const struct holder_row *h);
void answer_waiter(struct arena *a, struct reply *list, const struct waiter_row *w);

/* HOLDERS, WAITERS; SESSION HOLDS, WAITS and VARIABLES. */
struct reply *answer_crowd(const struct event *ev, enum op_kind op, struct arena *a);
struct reply *answer_items(const struct event *ev, struct manner manner, struct arena *a);

/* The answer to FIND, and to LIST with a filter: `ns` of each row is left out when it is empty. */
struct answer_found {
    struct slice ns;
    struct lock_row lock;
};
struct answer_page {
    const struct answer_found *rows;
    size_t n;
    struct slice next; /* the AFTER of the next page; empty: this is the last one */
    bool stale;
    uint64_t age_ms;
};
struct reply *answer_found(const struct answer_page *page, struct arena *a);
/* The answer to GRAPH, from locks that have a line; `cut`: there are more of them. */
struct reply *answer_graph(const struct answer_page *page, bool cut, struct arena *a);
/* What FIND's AFTER says: "namespace/name", both percent-encoded. False: it says nothing. */
struct slice answer_place(struct slice ns, struct slice name, struct arena *a);
bool answer_read_place(struct slice text, struct arena *a, struct slice *ret_ns,
                       struct slice *ret_name);

/* Answers about accounts and tokens; `secret`: of a token that was made by it, or empty. */
struct reply *answer_account(const struct event *ev, struct manner manner, struct slice secret,
                             struct arena *a);
void answer_rules(struct arena *a, struct reply *map, struct slice rules); /* as texts */

/* The late outcome of an ACQUIRE or CONVERT that was told "queued": a RESP3 push
 * [word, name, fence, ticket, expires_in_ms, body or reason]. */
struct reply *answer_push(const struct event *ev, struct arena *a);

/* EVENT_BROKEN: by which token, and why, in their words: a push of its own before that of the
 * event, [broken-by, name, fence, token, text]. NULL: nobody said. */
struct reply *answer_push_by(const struct event *ev, struct arena *a);

/* News for watchers: the members of the JSON `data`, and of the map in a RESP3 push. */
struct reply *answer_news(const struct event *ev, uint64_t seq, struct arena *a);

/* What an event is counted as in the metrics. */
enum outcome { OUTCOME_OK, OUTCOME_REFUSED, OUTCOME_ERROR, OUTCOME_COUNT };
enum outcome answer_outcome(const struct event *ev);
#endif
