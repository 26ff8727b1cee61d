/* sim_judge.h - what sim_judge.c, sim_rules.c and sim_tap.c share. */
#ifndef BELAY_TESTS_SIM_JUDGE_H
#define BELAY_TESTS_SIM_JUDGE_H

#include "machine/machine.h"
#include "sim.h"

/* The real ones, behind the taps: for the judge's own machine. */
void __real_machine_apply(struct machine *m, const struct op *op, struct effects *fx);
void __real_machine_query(const struct machine *m, const struct op *op, struct effects *fx);

/* sim_rules.c: what must hold in the order of the log, from ops and events alone. */
struct rules;
struct rules *rules_open(struct sim_world *w);
void rules_close(struct rules *r);
void rules_step(struct rules *r, const struct op *op, const struct event *events, size_t n);
#endif
