/* graph.c - who waits for whom, from rows of locks that have a line.
 *
 * Whoever holds one lock and waits for another makes those who wait for the first wait for the
 * second, too: an edge from the one lock to the other. Locks without such an edge are roots: all
 * waiting is for one of them. The machine refuses waits that close a circle, but a circle over
 * semaphores is possible; its locks lead to no root, and are in no chain. */
#include "base/check.h"
#include "base/mem.h"
#include "command/answer.h"

#include <stdlib.h>

#define WAITING_MAX (UINT64_C(1) << 32)
enum { EDGES_MAX = 16384, CHAINS_MAX = 10, ROOTS_MAX = 20, STEPS_MAX = 100 };

/* One who holds a lock, or waits for it. */
struct end {
    struct slice ns, owner, session;
    size_t lock;
    bool waits;
};

struct edge {
    size_t from, to;
    const struct end *who;
};

struct graph_lock {
    size_t out, in;          /* edges; `out` counts down while they are gone through */
    size_t first_in;         /* those that lead here, in graph.edges */
    size_t depth;            /* locks from here to a root, this one included; 0: a circle */
    const struct edge *next; /* the first step of the longest way; NULL: a root */
    uint64_t waiting;        /* about so many wait for it in the end: each way counts */
    size_t seen;             /* by the walk of that number */
};

struct graph {
    const struct answer_found *rows;
    size_t n;
    struct graph_lock *nodes;
    struct end *ends;
    size_t n_ends;
    struct edge *edges; /* by where they lead to */
    size_t n_edges;
    size_t *order, n_order; /* roots first */
    bool cut;
};

static int by_who(const void *a, const void *b)
{
    const struct end *x = a, *y = b;
    int c = slice_cmp(x->owner, y->owner);
    c = c ? c : slice_cmp(x->session, y->session);
    c = c ? c : slice_cmp(x->ns, y->ns);
    return c ? c : (int)x->waits - (int)y->waits;
}

static bool is_same(const struct end *x, const struct end *y)
{
    return slice_eq(x->owner, y->owner) && slice_eq(x->session, y->session) &&
           slice_eq(x->ns, y->ns);
}

static int by_target(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->to > y->to) - (x->to < y->to);
}

static void collect(struct graph *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += g->rows[i].lock.n_holders + g->rows[i].lock.n_waiters;
    g->ends = mem_zalloc((n + 1) * sizeof *g->ends);
    for (size_t i = 0; i < g->n; i++) {
        const struct lock_row *l = &g->rows[i].lock;
        for (size_t h = 0; h < l->n_holders; h++)
            g->ends[g->n_ends++] = (struct end){g->rows[i].ns, l->holders[h].owner,
                                                l->holders[h].session, i, false};
        for (size_t w = 0; w < l->n_waiters; w++)
            g->ends[g->n_ends++] = (struct end){g->rows[i].ns, l->waiters[w].owner,
                                                l->waiters[w].session, i, true};
        g->cut |= l->n_holders < l->holders_total || l->n_waiters < l->waiters_total;
    }
    BELAY_CHECK(g->n_ends == n);
    qsort(g->ends, n, sizeof *g->ends, by_who);
}

static void add_edge(struct graph *g, const struct end *hold, const struct end *wait)
{
    if (hold->lock == wait->lock)
        return; /* it converts what it holds */
    if (g->n_edges == EDGES_MAX) {
        g->cut = true;
        return;
    }
    g->edges[g->n_edges++] = (struct edge){hold->lock, wait->lock, wait};
    g->nodes[hold->lock].out++;
    g->nodes[wait->lock].in++;
}

/* The ends of one owner lie side by side, what it holds first. */
static void connect(struct graph *g)
{
    g->edges = mem_alloc(EDGES_MAX * sizeof *g->edges);
    for (size_t from = 0, to; from < g->n_ends; from = to) {
        size_t waits = from;
        while (waits < g->n_ends && is_same(&g->ends[from], &g->ends[waits]) &&
               !g->ends[waits].waits)
            waits++;
        for (to = waits; to < g->n_ends && is_same(&g->ends[from], &g->ends[to]); to++)
            for (size_t hold = from; hold < waits; hold++)
                add_edge(g, &g->ends[hold], &g->ends[to]);
    }
    qsort(g->edges, g->n_edges, sizeof *g->edges, by_target);
    for (size_t i = g->n_edges; i-- > 0;)
        g->nodes[g->edges[i].to].first_in = i;
}

/* From the roots outwards: a lock comes when all that it leads to have come. */
static void measure(struct graph *g)
{
    g->order = mem_alloc((g->n + 1) * sizeof *g->order);
    for (size_t i = 0; i < g->n; i++)
        if (g->nodes[i].out == 0) {
            g->nodes[i].depth = 1;
            g->order[g->n_order++] = i;
        }
    for (size_t at = 0; at < g->n_order; at++) {
        const struct graph_lock *to = &g->nodes[g->order[at]];
        for (size_t i = 0; i < to->in; i++) {
            const struct edge *e = &g->edges[to->first_in + i];
            struct graph_lock *from = &g->nodes[e->from];
            if (from->depth < to->depth + 1) {
                from->depth = to->depth + 1;
                from->next = e;
            }
            if (--from->out == 0)
                g->order[g->n_order++] = e->from;
        }
    }
    for (size_t i = 0; i < g->n; i++)
        g->nodes[i].waiting = g->rows[i].lock.waiters_total;
    for (size_t at = g->n_order; at-- > 0;) {
        struct graph_lock *to = &g->nodes[g->order[at]];
        uint64_t sum = to->waiting;
        for (size_t i = 0; i < to->in; i++)
            sum += g->nodes[g->edges[to->first_in + i].from].waiting;
        to->waiting = sum < WAITING_MAX ? sum : WAITING_MAX;
    }
}

/* How many wait for that root in the end, each counted once; and in the lines of how many locks. */
static uint64_t count_behind(struct graph *g, size_t root, size_t walk, size_t *ret_locks)
{
    size_t *queue = mem_alloc(g->n * sizeof *queue), n = 0;
    uint64_t waiting = 0;
    queue[n++] = root;
    g->nodes[root].seen = walk;
    for (size_t at = 0; at < n; at++) {
        const struct graph_lock *to = &g->nodes[queue[at]];
        waiting += g->rows[queue[at]].lock.waiters_total;
        for (size_t i = 0; i < to->in; i++) {
            size_t from = g->edges[to->first_in + i].from;
            if (g->nodes[from].seen != walk) {
                g->nodes[from].seen = walk;
                queue[n++] = from;
            }
        }
    }
    free(queue);
    *ret_locks = n;
    return waiting;
}

/* The best `max` of those that count, by insertion: there are few. */
static size_t choose(const struct graph *g, bool roots, size_t *best, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++) {
        const struct graph_lock *node = &g->nodes[i];
        if (roots ? node->depth != 1 : (node->in != 0 || node->depth == 0))
            continue;
        size_t at = n < max ? n++ : max;
        for (; at > 0; at--) {
            const struct graph_lock *before = &g->nodes[best[at - 1]];
            if (roots ? before->waiting >= node->waiting : before->depth >= node->depth)
                break;
            if (at < max)
                best[at] = best[at - 1];
        }
        if (at < max)
            best[at] = i;
    }
    return n;
}

static void put_lock_name(struct arena *a, struct reply *m, const struct answer_found *row)
{
    reply_text(a, m, "namespace", row->ns);
    reply_text(a, m, "name", row->lock.name);
}

static void put_who(struct arena *a, struct reply *m, struct slice owner, struct slice session)
{
    reply_text(a, m, "owner", owner);
    if (session.len)
        reply_text(a, m, "session", session);
    else
        reply_null(a, m, "session");
}

static void put_roots(struct graph *g, struct arena *a, struct reply *r)
{
    size_t best[ROOTS_MAX];
    size_t n = choose(g, true, best, ROOTS_MAX);
    struct reply *list = reply_list(a, r, "roots");
    for (size_t i = 0; i < n; i++) {
        size_t locks = 0;
        uint64_t waiting = count_behind(g, best[i], i + 1, &locks);
        struct reply *m = reply_map(a, list, NULL);
        put_lock_name(a, m, &g->rows[best[i]]);
        reply_int(a, m, "waiting", (int64_t)waiting);
        reply_int(a, m, "locks", (int64_t)locks);
    }
}

/* From the first of a line to the lock that all of the chain wait for, and who holds that. */
static void put_chain(const struct graph *g, struct arena *a, struct reply *m, size_t at)
{
    const struct lock_row *lock = &g->rows[at].lock;
    reply_text(a, m, "namespace", g->rows[at].ns);
    reply_int(a, m, "length", (int64_t)g->nodes[at].depth);
    struct reply *steps = reply_list(a, m, "steps");
    struct slice owner = lock->waiters[0].owner, session = lock->waiters[0].session;
    for (size_t n = 0; n < STEPS_MAX; n++) {
        struct reply *step = reply_map(a, steps, NULL);
        put_who(a, step, owner, session);
        reply_text(a, step, "waits_for", lock->name);
        const struct edge *next = g->nodes[at].next;
        if (!next)
            break;
        owner = next->who->owner;
        session = next->who->session;
        at = next->to;
        lock = &g->rows[at].lock;
    }
    struct reply *holders = reply_list(a, m, "held_by");
    for (size_t i = 0; i < lock->n_holders && i < ROOTS_MAX; i++)
        put_who(a, reply_map(a, holders, NULL), lock->holders[i].owner,
                lock->holders[i].session);
}

struct reply *answer_graph(const struct answer_page *page, bool cut, struct arena *a)
{
    struct graph g = {.n = page->n, .cut = cut};
    g.rows = page->rows;
    g.nodes = mem_zalloc((g.n + 1) * sizeof *g.nodes);
    collect(&g);
    connect(&g);
    measure(&g);
    struct reply *r = reply_new(a, REPLY_MAP);
    put_roots(&g, a, r);
    size_t best[CHAINS_MAX];
    size_t n = choose(&g, false, best, CHAINS_MAX);
    struct reply *chains = reply_list(a, r, "chains");
    for (size_t i = 0; i < n; i++)
        put_chain(&g, a, reply_map(a, chains, NULL), best[i]);
    struct reply *locks = reply_list(a, r, "locks");
    for (size_t i = 0; i < g.n; i++) {
        struct reply *m = reply_map(a, locks, NULL);
        reply_text(a, m, "namespace", g.rows[i].ns);
        answer_lock(a, m, &g.rows[i].lock, false);
    }
    reply_bool(a, r, "cut", g.cut);
    if (page->stale)
        reply_int(a, r, "stale_ms", (int64_t)page->age_ms);
    free(g.nodes);
    free(g.ends);
    free(g.edges);
    free(g.order);
    return r;
}
