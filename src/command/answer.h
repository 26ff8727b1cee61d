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
