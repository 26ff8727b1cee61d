/* node.h - the nodes at which somebody waits, and those that are not heard. */
#ifndef BELAY_MACHINE_NODE_H
#define BELAY_MACHINE_NODE_H

#include "machine/state.h"

void nodes_init(struct machine *m);
void wait_set_asker(struct machine *m, struct wait *w, uint64_t asker);
void parked_set_asker(struct machine *m, struct parked *p, uint64_t asker);
void node_note(struct machine *m, const struct op *op);
void node_serve(struct machine *m, const struct op *op, struct effects *fx);
/* It is heard, or the run that was silent is over. */
void node_is_back(struct machine *m, struct node *n);
int node_by_ticket(const void *a, const void *b); /* of two struct heap_node pointers */

static inline bool node_is_silent(const struct machine *m, uint64_t asker)
{
    return m->n_silent && asker && !(asker & OP_ASKER_LOOSE) && m->nodes[op_node(asker)].silent;
}
#endif
