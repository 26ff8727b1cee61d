/* sim_judge.h - what sim_judge.c, sim_rules.c, sim_once.c and sim_tap.c share. */
#ifndef BELAY_TESTS_SIM_JUDGE_H
#define BELAY_TESTS_SIM_JUDGE_H

#include "machine/machine.h"
#include "sim.h"

/* The real ones, behind the taps: for the judge's own machine. */
void __real_machine_apply(struct machine *m, const struct op *op, struct effects *fx);
void __real_machine_query(const struct machine *m, const struct op *op, struct effects *fx);

/* The same as __real_machine_apply(), but for what a canary leaves out of it. */
void sim_tap_apply(const struct sim_world *w, struct machine *m, const struct op *op,
                   struct effects *fx);

/* sim_rules.c: what must hold in the order of the log, from ops and events alone. */
struct rules;
struct rules *rules_open(struct sim_world *w, size_t shard, const struct machine *m);
void rules_close(struct rules *r);
void rules_step(struct rules *r, const struct op *op, const struct event *events, size_t n);
/* Is this fence of the op's lock current? */
bool rules_holds(const struct rules *r, const struct op *op, uint64_t fence);

/* sim_once.c: requests with an id. A step begins, ends. */
enum { ONCE_OPEN = 256 };
struct once *once_open(struct sim_world *w);
void once_close(struct once *o);
bool once_begin(struct once *o, const struct op *op); /* true: it was asked before */
bool once_is_sure(const struct once *o); /* and nothing can have made it forgotten */
void once_end(struct once *o, const struct rules *r, const struct op *op,
              const struct event *events, size_t n);
/* The op is a cancel, and what it frees is free. */
void once_cancel(struct once *o, const struct rules *r, const struct op *op);
void once_left(struct once *o, uint64_t asker); /* what it asked for waits no more */
void once_away(struct once *o, uint64_t live);  /* the other runs are over */
/* Is it an asker of the same node as `live`, but of another of its runs? */
bool once_dead_run(uint64_t asker, uint64_t live);
#endif
