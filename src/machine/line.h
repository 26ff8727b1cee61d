/* line.h - the line of a lock: its waits, and whose turn it is. */
#ifndef BELAY_MACHINE_LINE_H
#define BELAY_MACHINE_LINE_H

#include "machine/state.h"

struct wait *wait_add(struct machine *m, struct lock *l, const struct op *op,
                      struct session *session, struct hold *upgrade);
void wait_link(struct machine *m, struct wait *w); /* last in line: into the lists and tables */
struct wait *wait_of(const struct machine *m, const struct lock *l, struct who who);
void wait_place(struct wait *w); /* last in the lists of its session and its waiter */
struct waiter *waiter_find(const struct machine *m, const struct space *s, struct who who);
/* All waits of that one in the namespace, by ticket, at most `max`. */
size_t wait_all_of(const struct machine *m, const struct space *s, struct who who,
                   struct wait **out, size_t max);
/* What a request asks for, put into its place in the line: a later request may take it over. */
void wait_ask(struct machine *m, struct wait *w, const struct op *op);
size_t wait_position(const struct wait *w); /* 1: next */
bool wait_bars_shared(const struct wait *w);
void wait_arm(struct machine *m, struct wait *w); /* when to look at it again */
uint64_t wait_quiet_from(const struct wait *w);
uint64_t wait_quiet_at(const struct wait *w);
void wait_set_body(struct wait *w, const struct op *op);
struct event *wait_news(const struct machine *m, const struct wait *w, enum event_kind kind,
                        struct effects *fx);
/* The wait is gone afterwards and its asker answered; its line is touched. */
void wait_end(struct machine *m, struct wait *w, enum event_kind kind, enum reason reason,
              struct effects *fx);
/* Units of work that it took. A look costs more: it moves far in the heap, twice. So does a
 * grant: a client is told. */
enum { WAIT_LOOK_UNITS = 8, LINE_GRANT_UNITS = 4 };
uint64_t wait_expire(struct machine *m, struct wait *w, struct effects *fx);
/* Over, and its own turn to be worked off has not come yet: then it comes now. */
void wait_end_if_dead(struct machine *m, struct wait *w, struct effects *fx);
/* It was last heard at `since_ms`; it has a receipt, by which it may come back. */
void wait_away(struct machine *m, struct wait *w, uint64_t since_ms);
/* Does somebody in the line go before a request that comes now, shared or not? */
bool line_bars(const struct machine *m, const struct lock *l, bool is_shared);
const struct wait *line_first(const struct machine *m,
                              const struct lock *l); /* not passed over */
void line_serve(struct machine *m, struct lock *l, struct effects *fx);
bool line_fits(const struct lock *l, uint32_t weight);
#endif
