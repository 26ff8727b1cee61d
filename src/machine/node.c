/* node.c - who waits at which node, and nodes that are not heard.
 *
 *   heard --OP_NODE with OP_AWAY: node_note()--> silent --OP_NODE, or a new run--> heard
 *
 * A client that waits is known by the number of its node. When the leader does not hear that
 * node, the client may be dead as well: a lock given to it would be held by nobody for a whole
 * TTL. So it keeps its place and is passed over, and when the node is heard again, it is next.
 * The leader says so by an op (raft/replica_run.c), in order like everything else. Places that
 * nobody stays for (OP_ASKER_LOOSE) belong to no node. */
#include "machine/node.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/lock.h"

#include <stdlib.h>

void nodes_init(struct machine *m)
{
    BELAY_CHECK(m->n_silent == 0);
    for (size_t i = 0; i < OP_NODES_MAX; i++) {
        list_init(&m->nodes[i].waits);
        list_init(&m->nodes[i].parked);
    }
}

static bool stays_at(uint64_t asker)
{
    return asker && !(asker & OP_ASKER_LOOSE);
}

void wait_set_asker(struct machine *m, struct wait *w, uint64_t asker)
{
    if (node_is_silent(m, w->asker) != node_is_silent(m, asker))
        lock_touch(m, w->lock); /* it, or somebody behind it, may be next */
    w->asker = asker;
    list_remove(&w->in_node);
    if (stays_at(asker))
        list_push_back(&m->nodes[op_node(asker)].waits, &w->in_node);
    BELAY_DCHECK(list_empty(&w->in_node) == !stays_at(asker));
}

void parked_set_asker(struct machine *m, struct parked *p, uint64_t asker)
{
    if (node_is_silent(m, p->asker) && !p->ready.pos)
        heap_set(&m->ready, &p->ready, p->end.seq); /* it was passed over */
    p->asker = asker;
    list_remove(&p->in_node);
    if (stays_at(asker))
        list_push_back(&m->nodes[op_node(asker)].parked, &p->in_node);
    BELAY_CHECK(list_empty(&p->in_node) == !stays_at(asker));
}

bool machine_has_waiting(const struct machine *m, size_t place)
{
    BELAY_CHECK(place < OP_NODES_MAX);
    const struct node *n = &m->nodes[place];
    return !list_empty(&n->waits) || !list_empty(&n->parked);
}

bool machine_is_silent(const struct machine *m, size_t place)
{
    BELAY_CHECK(place < OP_NODES_MAX);
    return m->nodes[place].silent;
}

int node_by_ticket(const void *a, const void *b)
{
    const struct heap_node *const *x = a;
    const struct heap_node *const *y = b;
    return (*x)->seq < (*y)->seq ? -1 : (*x)->seq > (*y)->seq;
}

void node_is_back(struct machine *m, struct node *n)
{
    if (!n->silent)
        return;
    n->silent = false;
    n->silent_ms = 0;
    BELAY_CHECK(m->n_silent > 0);
    m->n_silent--;
    list_each (it, &n->parked) {
        struct parked *p = list_item(it, struct parked, in_node);
        if (!p->ready.pos)
            heap_set(&m->ready, &p->ready, p->end.seq);
    }
}

void node_note(struct machine *m, const struct op *op)
{
    BELAY_CHECK(op->kind == OP_NODE);
    struct node *n = &m->nodes[op_node(op->target)];
    if (!(op->flags & OP_AWAY)) {
        node_is_back(m, n);
    } else if (!n->silent) {
        n->silent = true;
        n->silent_ms = m->now_ms;
        BELAY_CHECK(m->n_silent < OP_NODES_MAX);
        m->n_silent++;
    }
}

/* Those behind them may go, or they themselves. By ticket: no list's order may show. */
void node_serve(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_NODE);
    (void)fx;
    const struct node *n = &m->nodes[op_node(op->target)];
    size_t count = 0;
    list_each (it, &n->waits)
        count++;
    struct heap_node **waits = mem_alloc(count * sizeof(struct heap_node *));
    count = 0;
    list_each (it, &n->waits)
        waits[count++] = &list_item(it, struct wait, in_node)->end;
    qsort(waits, count, sizeof(struct heap_node *), node_by_ticket);
    for (size_t i = 0; i < count; i++)
        lock_touch(m, heap_item(waits[i], struct wait, end)->lock);
    free(waits);
}
