/* text_format.h - ops and events as text: for transcripts, and for what the model test prints.
 *
 *   time OP words... [key=value...]
 *     0 acquire db ann ttl=100 wait=500     0 acquire db ann shared soft +more +names
 *     0 acquire db ann 2/5
 *     0 release db #7                       0 release db ann
 *     0 release db anyone                   0 cancel db @3
 *     0 session-keepalive s1 s2
 *     0 txn s1 assert(not(exists(t,k))) assert(set(t,k,1,dup)) wait=500 text=why
 *     0 cancel session=s1 @3                0 table-show t
 *
 * A transaction's statements are written as calls: text_txn.c has them all.
 * Time is absolute. `#7` is a fence, `@3` the asker of the third op, `2/5` two permits of five.
 * Absent: account and ns are "default", the mode of an acquire is exclusive.
 *
 * An event is a word and those of its facts that are not zero. What answers an earlier asker
 * ends in `@n`; what answers nobody and is only news stands in parentheses. */
#ifndef BELAY_TESTS_TEXT_FORMAT_H
#define BELAY_TESTS_TEXT_FORMAT_H

#include "base/arena.h"
#include "base/buf.h"
#include "machine/event.h"
#include "machine/op.h"

/* Reads one op (text up to its end); slices are copied into `a`. Stops the process on a word it
 * does not know: a test that is not understood must not pass. */
void text_read_op(const char *text, struct arena *a, struct op *ret_op);
void text_put_text(struct buf *out, struct slice s); /* \xNN for what cannot be printed */
void text_put_op(struct buf *out, const struct op *op);

/* One statement or operator, as the bytes of a program. */
void text_put_node(struct buf *out, struct slice text);
/* What EVENT_TXN says beyond the facts of every event, and the rows of tables. */
void text_put_txn(struct buf *out, const struct event *ev);
void text_put_tables(struct buf *out, const struct event *ev);

/* `op`: in whose step it happened; the name, the asker are told when they are not the op's. */
void text_put_event(struct buf *out, const struct op *op, const struct event *ev);
/* Every field, rows and all: to show a difference. */
void text_put_event_fully(struct buf *out, const struct event *ev);
/* Are all fields equal, rows and cycle too? */
bool text_same_event(const struct event *a, const struct event *b);
#endif
