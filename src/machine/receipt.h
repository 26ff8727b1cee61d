/* receipt.h - a request with an id takes effect once, however often it is sent.
 *
 *   (account, id) -> open:      it waits, in a line or parked; sent again it stands where it
 *                               stood, and the answer goes to the connection that asked last
 *                 -> answered:  sent again it is not carried out, it gets the same answer
 *
 * An answer is kept for RECEIPT_MS of the machine's time; when there are LIMIT_RECEIPTS of them
 * or LIMIT_RECEIPT_BYTES in them, the oldest go first. Open ones go with what waits. Answers
 * are small facts; one above RECEIPT_ANSWER_BYTES (much selected by a transaction) is kept
 * without its rows, and a repeated request is told so.
 *
 * Another request under the same id is refused: a hash of everything it asks for is compared.
 * When a node starts again, a request that waited there and has an id keeps its place for
 * RECEIPT_RETURN_MS: until then it may come again, here or at another node.
 *
 * For the files of this folder only. */
#ifndef BELAY_MACHINE_RECEIPT_H
#define BELAY_MACHINE_RECEIPT_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "machine/event.h"
#include "machine/op.h"

enum {
    RECEIPT_MS = 5 * 60 * 1000,
    RECEIPT_RETURN_MS = 5000,
    RECEIPT_ANSWER_BYTES = 4096,
    RECEIPT_DROP_BATCH = 16, /* old ones that go in one step; one comes at most */
};

struct machine;
struct parked;
struct wait;

struct receipt {
    struct map_node by_id;
    struct list in_answered;
    uint64_t content; /* hash of what was asked for */
    uint64_t at_ms;   /* answered then; open: asked then */
    struct wait *wait;
    struct parked *parked; /* what waits; neither: it is answered */
    uint32_t answer_len;
    uint8_t account_len, id_len;
    char bytes[]; /* account, id, answer */
};

struct receipts {
    struct map by_id;
    struct list answered; /* oldest first */
    uint64_t n_answered;
    size_t bytes;   /* of those: accounts, ids, answers */
    uint64_t asked; /* content of the request that is carried out */
    struct buf scratch;
};

void receipts_init(struct receipts *rs);
void receipts_done(struct machine *m); /* frees all of them */

/* The receipt of this request, or NULL. What waits under it and has run out ends first.
 * receipt_repeat(), receipt_open() and receipt_note() are then about this op. */
struct receipt *receipt_find(struct machine *m, const struct op *op, struct effects *fx);
/* The same request again: it gets its answer, or its place. Another one: refused. */
void receipt_repeat(struct machine *m, struct receipt *r, const struct op *op,
                    struct effects *fx);
/* It has been carried out; its answer, if it has one by now, is among the events from `first`
 * on. */
void receipt_note(struct machine *m, const struct op *op, const struct effects *fx,
                  size_t first);

/* It has to wait: for what waits to keep, until that is answered or gone. */
struct receipt *receipt_open(struct machine *m, const struct op *op);
/* Answered: from now on it is not the caller's any more, and *r is NULL. A NULL *r is allowed.
 */
void receipt_settle(struct machine *m, struct receipt **r, const struct event *ev);
void receipt_forget(struct machine *m, struct receipt *r); /* as if it had not been asked */
/* CANCEL: what it was granted is freed, so its answer is no longer true. */
void receipt_cancel(struct machine *m, const struct op *op);
void receipt_drop_old(struct machine *m); /* a batch */

/* For the snapshot and for invariants.c. */
static inline struct slice receipt_account(const struct receipt *r)
{
    return slice_of(r->bytes, r->account_len);
}

static inline struct slice receipt_id(const struct receipt *r)
{
    return slice_of(r->bytes + r->account_len, r->id_len);
}

static inline struct slice receipt_answer(const struct receipt *r)
{
    return slice_of(r->bytes + r->account_len + r->id_len, r->answer_len);
}

struct receipt_key {
    struct slice account, id;
};
struct receipt *receipt_with(const struct machine *m, struct receipt_key key);
struct receipt *receipt_add(struct machine *m, struct receipt_key key, struct slice answer);
void receipt_add_answered(struct machine *m, struct receipt *r); /* the youngest */
/* Is it one that receipt_settle() could have written? */
bool receipt_is_answer(struct slice answer);
#endif
