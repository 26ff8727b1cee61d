/* engine.h - puts ops in one order, keeps their time, applies them, answers the askers.
 *
 *   engine_submit() --order--> machine_apply() --events--> ask.answer()    to the asker
 *                                                    \---> feed_append()   to all watchers
 *
 * Two orders behind one interface (order.h): `memory` (nothing on disk) and `raft`. Nothing
 * above or below knows which one runs. Loop thread only.
 *
 * Time: state-machine time moves with the caller's monotonic clock from the last stamped value,
 * never with the wall clock, and never goes back. A loop that stood still for longer than
 * ENGINE_STALL_MAX_MS (a stopped process, a starved machine) advances time by no more than
 * that: a pause must not expire every lease at once, before its holder had a chance to renew.
 */
#ifndef BELAY_ENGINE_ENGINE_H
#define BELAY_ENGINE_ENGINE_H

#include "machine/event.h"
#include "machine/op.h"

#include <stddef.h>
#include <stdint.h>

enum { ENGINE_STALL_MAX_MS = 2000 };

struct engine;
struct feed;
struct machine_counts;
struct order;

/* A caller that waits for an answer. Embedded in the asker's own struct and zeroed at first; it
 * must stay where it is until it is answered or cancelled. */
struct ask {
    /* Called exactly once, perhaps before engine_submit() returns; `ev` is borrowed. With
     * `stay` it is called for QUEUED first and once more for the outcome. It must not submit or
     * cancel: note what is to be done and do it when the call is back (else a chain of grants
     * would become a chain of calls). */
    void (*answer)(struct ask *ask, const struct event *ev);
    bool stay;
    const char *request; /* what the log calls the request, beside its number; NULL: nothing */
    uint64_t id;         /* the engine's: not 0 while an answer is outstanding */
    /* How long it took, by the clock, set before an answer: until it was ordered (0: it was not,
     * or at once), and then in a line for its turn. */
    uint64_t order_ms, line_ms;
};

struct engine_config {
    struct order *order;             /* taken: engine_close() closes it */
    uint64_t (*clock_ms)(void *ctx); /* monotonic */
    void *clock_ctx;
    struct feed *feed; /* borrowed; news go there */
    /* Tests alone: machine_set_askers(). 0: the whole count. */
    unsigned count_bits;
    bool by_number;
    unsigned batch; /* tests alone: machine_set_batch(). 0: as it is */
};

struct engine *engine_open(const struct engine_config *config); /* never NULL */
void engine_close(struct engine *e);                            /* NULL is allowed */

/* Orders `op` (borrowed; copied if it must wait), which has passed op_validate(), and answers
 * `ask` (may be NULL). Reads are linearizable; with OP_STALE they are answered at
 * once from what this node has applied. */
void engine_submit(struct engine *e, struct op *op, struct ask *ask);

/* The asker is gone: no answer will come. If it stands in a line it leaves it, and what was
 * granted to it meanwhile is freed. An ask that is not outstanding is left alone. */
void engine_cancel(struct engine *e, struct ask *ask);
/* The same, but it was told to ask another node: what has a request id keeps its place, or its
 * grant, until it is asked for again (for a while: machine/receipt.h). */
void engine_leave(struct engine *e, struct ask *ask);

/* The asker does not wait any longer, but it is answered: what it was granted stays; if it
 * stands in a line, its time is up. */
void engine_end_wait(struct engine *e, struct ask *ask);

/* Nothing is on its way: a request that is not answered by now waits in a line. */
bool engine_is_idle(const struct engine *e);

/* End of a loop turn: what was submitted may now be written, sent, answered in one batch. */
void engine_flush(struct engine *e);

/* Milliseconds until engine_tick() wants to be called, UINT64_MAX: not before the next submit.
 */
uint64_t engine_next_ms(struct engine *e);
void engine_tick(struct engine *e); /* bounded work: one batch of ends */

/* Can this node serve now? NULL: yes; else why not and what to do, for people, and in *ret_word
 * in one word, for alarms: too-old, leaving, stopping, fetching, no-leader, no-majority,
 * behind.
 */
const char *engine_not_ready(const struct engine *e, const char **ret_word);
void engine_counts(const struct engine *e, struct machine_counts *ret); /* for metrics */
uint64_t engine_by_clock(uint64_t span_ms); /* of state-machine time: so long by the clock */
uint64_t engine_now_ms(struct engine *e);   /* state-machine time */

/* What this node knows of tokens (machine.h has the same): it may be behind. */
bool engine_closed(const struct engine *e);
bool engine_login(struct engine *e, const struct op *op, uint64_t *ret_generation);
uint64_t engine_token_generation(const struct engine *e, struct slice account, struct slice id);
struct machine_token;
bool engine_token(const struct engine *e, struct slice id, uint64_t generation,
                  uint64_t wall_ms, struct machine_token *ret);

struct account_row;
size_t engine_accounts(const struct engine *e); /* places in the list of accounts */
/* The account at that place, its counts of all groups added up; borrowed. False: none. */
bool engine_account_at(const struct engine *e, size_t i, struct account_row *ret);

/* The connection numbers for SESSION_ATTACH/DETACH (op.target): unique over nodes and restarts.
 */
uint64_t engine_new_target(struct engine *e);
/* Is it of this run? What was attached under an earlier one is not any more. */
bool engine_knows_target(const struct engine *e, uint64_t target);
#endif
