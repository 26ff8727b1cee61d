/* sim_main.c - seeds, faults, and the heal phase in which everything must come to an end.
 *
 *   sim [--seeds FIRST COUNT] [--seconds WALL] [--guards-off MASK] [--canaries MASK]
 * [--verbose]
 *
 * Prints one line a wrong seed and a TAP line at the end. With --expect-wrong a violation is
 * what is wanted: a canary that is not found is a failure of the simulator. */
#include "sim.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEAL_MS = 60000 };

/* --- the world --- */

uint64_t sim_random(struct sim_world *w, uint64_t below)
{
    w->random += 0x9e3779b97f4a7c15u;
    uint64_t z = w->random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return below ? z % below : 0;
}

bool sim_chance(struct sim_world *w, unsigned percent)
{
    return percent && sim_random(w, 100) < percent;
}

void sim_wrong(struct sim_world *w, const char *what, const char *format, ...)
{
    if (w->wrong)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->wrong_text, sizeof w->wrong_text, format, args);
    va_end(args);
    w->wrong = what;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void push(struct sim_world *w, struct sim_event *ev)
{
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 256;
        w->heap = mem_resize(w->heap, w->cap * sizeof(struct sim_event *));
    }
    size_t i = w->n++;
    while (i > 0 && before(ev, w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = ev;
}

static struct sim_event *pop(struct sim_world *w)
{
    struct sim_event *top = w->heap[0];
    struct sim_event *last = w->heap[--w->n];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= w->n)
            break;
        if (c + 1 < w->n && before(w->heap[c + 1], w->heap[c]))
            c++;
        if (!before(w->heap[c], last))
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    if (w->n)
        w->heap[i] = last;
    return top;
}

struct sim_event *sim_post(struct sim_world *w, uint64_t in_ms, int kind, uint64_t node)
{
    struct sim_event *ev = mem_zalloc(sizeof *ev);
    ev->at = w->now + in_ms;
    ev->seq = w->seq++;
    ev->kind = kind;
    ev->node = node;
    push(w, ev);
    return ev;
}

/* --- faults --- */

static uint64_t leader_node(const struct sim_world *w)
{
    uint64_t best = 0;
    uint64_t term = 0;
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        struct group *g = sim_group(&w->nodes[i]);
        if (g && group_role(g) == GROUP_LEADER && group_term(g) > term) {
            best = i;
            term = group_term(g);
        }
    }
    return best;
}

/* Faults aim: leaders are where the trouble is. */
static uint64_t victim(struct sim_world *w)
{
    uint64_t leader = leader_node(w);
    if (w->plan.aim_leader && leader && sim_chance(w, 60))
        return leader;
    return 1 + sim_random(w, SIM_NODES);
}

static void heal_cuts(struct sim_world *w)
{
    memset(w->cut, 0, sizeof w->cut);
}

static void cut(struct sim_world *w)
{
    heal_cuts(w);
    uint64_t kind = sim_random(w, 4);
    if (kind == 0)
        return;
    sim_post(w, 200 + sim_random(w, 5000), EV_JOIN, 0);
    uint64_t one = victim(w);
    for (uint64_t a = 1; a <= SIM_NODES; a++) {
        for (uint64_t b = 1; b <= SIM_NODES; b++) {
            bool apart = kind == 1 ? (a == one) != (b == one) /* one alone */
                                   : (a & 1) != (b & 1);      /* halves */
            if (kind == 3)
                apart = sim_chance(w, 30);
            if (a != b && apart)
                w->cut[a][b] = true;
            if (w->plan.one_way && sim_chance(w, 50))
                w->cut[b][a] = false;
        }
    }
}

static void change_members(struct sim_world *w)
{
    uint64_t leader = leader_node(w);
    struct group *g = leader ? sim_group(&w->nodes[leader]) : NULL;
    struct group_conf conf;
    if (!g)
        return;
    group_conf(g, &conf);
    struct group_server s = {.id = 1 + sim_random(w, SIM_NODES)};
    snprintf(s.address, sizeof s.address, "node-%" PRIu64, s.id);
    const struct group_server *known = group_conf_find(&conf, s.id);
    struct sim_node *n = &w->nodes[s.id];
    enum belay_err err = BELAY_ERR_UNAVAILABLE;
    struct order_raft *o = order_raft_of(w->nodes[leader].order);
    if (known && !known->voter) {
        uint64_t match = 0;
        if (group_match(g, s.id, &match) && match + 8 >= group_commit(g))
            err = order_raft_change(o, GROUP_PROMOTE, &s);
    } else if (known && conf.n > 2 && s.id != leader) {
        err = order_raft_change(o, GROUP_REMOVE, &s);
    } else if (!known && n->order) {
        n->member = true;
        err = order_raft_change(o, GROUP_ADD, &s);
    }
    w->n_changes += err == BELAY_OK;
    sim_node_settle(w, &w->nodes[leader]);
}

static void fault(struct sim_world *w)
{
    w->n_faults++;
    uint64_t id = victim(w);
    struct sim_node *n = &w->nodes[id];
    switch (sim_random(w, 6)) {
    case 0:
    case 1:
        if (w->plan.crashes && n->order) {
            sim_node_crash(w, id);
            sim_post(w, 10 + sim_random(w, 3000), EV_START, id);
        }
        break;
    case 2:
        if (w->plan.cuts)
            cut(w);
        break;
    case 3:
        if (w->plan.pauses && n->order)
            n->paused_until = w->now + 10 + sim_random(w, 4000);
        break;
    case 4: {
        uint64_t leader = leader_node(w);
        if (w->plan.transfers && leader) {
            enum belay_err err = group_transfer(sim_group(&w->nodes[leader]), 0,
                                                sim_node_clock(&w->nodes[leader]));
            (void)err;
            sim_node_settle(w, &w->nodes[leader]);
        }
        break;
    }
    default:
        if (w->plan.changes)
            change_members(w);
        break;
    }
}

/* --- one run --- */

static void plan_of(uint64_t seed, struct sim_plan *p)
{
    struct sim_world w = {.random = seed * 0x2545f4914f6cdd1d};
    unsigned guards = p->guards_off;
    unsigned canaries = p->canaries;
    bool verbose = p->verbose;
    static const int sizes[] = {3, 3, 3, 5, 5, 1};
    static const unsigned delays[] = {0, 2, 10, 40, 150};
    static const unsigned losses[] = {0, 0, 2, 10, 30};
    static const unsigned disks[] = {0, 1, 5, 40, 200};
    static const uint64_t snaps[] = {600, 2000, 8000, 1 << 20};
    *p = (struct sim_plan){.seed = seed,
                           .nodes = sizes[sim_random(&w, 6)],
                           .span_ms = 40000,
                           .clients = 2 + (int)sim_random(&w, SIM_CLIENTS - 2),
                           .crashes = sim_chance(&w, 75),
                           .pauses = sim_chance(&w, 50),
                           .cuts = sim_chance(&w, 75),
                           .one_way = sim_chance(&w, 40),
                           .transfers = sim_chance(&w, 40),
                           .changes = sim_chance(&w, 40),
                           .clocks = sim_chance(&w, 60),
                           .slow = sim_chance(&w, 40),
                           .aim_leader = sim_chance(&w, 70),
                           .herd = sim_chance(&w, 20),
                           .loss = losses[sim_random(&w, 5)],
                           .twice = losses[sim_random(&w, 5)],
                           .delay_ms = delays[sim_random(&w, 5)],
                           .disk_ms = disks[sim_random(&w, 5)],
                           .snapshot_bytes = snaps[sim_random(&w, 4)],
                           .fault_every_ms = 200 + sim_random(&w, 3000),
                           .guards_off = guards,
                           .canaries = canaries,
                           .verbose = verbose};
    if (p->nodes == 1)
        p->changes = p->cuts = false;
}

static void heal(struct sim_world *w)
{
    w->healing = true;
    heal_cuts(w);
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        w->nodes[i].paused_until = 0;
        sim_node_set_rate(&w->nodes[i], 1000);
        if (!w->nodes[i].order)
            sim_node_start(w, i);
    }
}

static void one_event(struct sim_world *w)
{
    struct sim_event *ev = pop(w);
    struct sim_node *n = &w->nodes[ev->node];
    w->now = ev->at;
    w->moment++;
    if (ev->node && n->paused_until > w->now && ev->kind <= EV_WAKE) {
        ev->at = n->paused_until;
        push(w, ev);
        return;
    }
    if (ev->kind <= EV_WAKE) {
        sim_node_event(w, ev);
    } else if (ev->kind == EV_CLIENT) {
        struct sim_client *c = &w->clients[ev->from];
        if (c->doing == CL_IDLE && c->nonce == ev->life && !w->healing)
            sim_client_act(w, (int)ev->from);
    } else if (ev->kind == EV_START) {
        if (!n->order)
            sim_node_start(w, ev->node);
    } else if (ev->kind == EV_FAULT && !w->healing) {
        fault(w);
        sim_post(w, 1 + sim_random(w, 2 * w->plan.fault_every_ms), EV_FAULT, 0);
    } else if (ev->kind == EV_JOIN) {
        heal_cuts(w);
    } else if (ev->kind == EV_HEAL) {
        heal(w);
    }
    buf_done(&ev->bytes);
    free(ev);
}

static bool all_equal(const struct sim_world *w)
{
    uint64_t leader = leader_node(w);
    struct group_conf conf;
    if (!leader || !group_ready(sim_group(&w->nodes[leader])))
        return false;
    struct group *g = sim_group(&w->nodes[leader]);
    if (group_applied(g) < w->top || group_applied(g) != group_last(g))
        return false;
    group_conf(g, &conf);
    for (size_t i = 0; i < conf.n; i++) {
        const struct sim_node *n = &w->nodes[conf.servers[i].id];
        if (group_applied(sim_group(n)) != group_applied(g) ||
            engine_hash(n->engine, 0) != engine_hash(w->nodes[leader].engine, 0))
            return false;
    }
    return true;
}

static void finish(struct sim_world *w)
{
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        struct sim_node *n = &w->nodes[i];
        if (n->order)
            sim_node_crash(w, i);
        sim_disk_wipe(&n->disk);
    }
    while (w->n) {
        struct sim_event *ev = pop(w);
        buf_done(&ev->bytes);
        free(ev);
    }
    free(w->heap);
}

static void describe(const struct sim_world *w)
{
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        struct group *g = sim_group(&w->nodes[i]);
        struct group_conf conf;
        if (!g) {
            printf("#   node %" PRIu64 " is down\n", i);
            continue;
        }
        group_conf(g, &conf);
        printf("#   node %" PRIu64 ": role %d term %" PRIu64 " leader %" PRIu64
               " applied %" PRIu64 " commit %" PRIu64 " last %" PRIu64 " members",
               i, (int)group_role(g), group_term(g), group_leader(g), group_applied(g),
               group_commit(g), group_last(g));
        for (size_t k = 0; k < conf.n; k++)
            printf(" %" PRIu64 "%s", conf.servers[k].id,
                   conf.servers[k].voter ? "" : "(learns)");
        printf("\n");
    }
    for (int i = 0; i < w->plan.clients; i++)
        if (w->clients[i].doing != CL_IDLE)
            printf("#   client %d at node %" PRIu64 " does %d since %" PRIu64 " ms\n", i,
                   w->clients[i].node, (int)w->clients[i].doing, w->clients[i].invoked_ms);
}

struct totals {
    uint64_t seeds, wrong, ms, acked, faults, crashes, reads, leaders, unknown, changes;
};

static bool run(uint64_t seed, const struct sim_plan *base, struct totals *t)
{
    struct sim_world *w = mem_zalloc(sizeof *w);
    w->plan = *base;
    plan_of(seed, &w->plan);
    w->random = seed;
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        w->nodes[i].w = w;
        w->nodes[i].id = i;
        w->nodes[i].member = i <= (uint64_t)w->plan.nodes;
        sim_disk_init(&w->nodes[i].disk, seed + i);
    }
    for (uint64_t i = 1; i <= SIM_NODES && !w->wrong; i++)
        if (w->nodes[i].member || w->plan.changes)
            sim_node_start(w, i);
    for (int i = 0; i < w->plan.clients; i++) {
        w->clients[i] = (struct sim_client){.w = w, .no = i, .held = -1};
        struct sim_event *ev = sim_post(w, sim_random(w, 1000), EV_CLIENT, 0);
        ev->from = (uint64_t)i;
    }
    sim_post(w, 500, EV_FAULT, 0);
    sim_post(w, w->plan.span_ms, EV_HEAL, 0);
    uint64_t end = w->plan.span_ms + HEAL_MS;
    bool settled = false;
    while (!w->wrong && !settled && w->now < end) {
        one_event(w);
        settled = w->healing && w->now > w->plan.span_ms + 2000 && sim_clients_done(w) &&
                  all_equal(w);
    }
    if (!w->wrong && !settled)
        sim_wrong(w, "I21", "not settled %d s after the last fault (clients %s)",
                  HEAL_MS / 1000, sim_clients_done(w) ? "answered" : "still waiting");
    bool wrong = w->wrong != NULL;
    if (wrong && base->verbose)
        describe(w);
    if (wrong)
        printf("# seed %" PRIu64 " at %" PRIu64 " ms: %s: %s\n", seed, w->now, w->wrong,
               w->wrong_text);
    if (base->verbose)
        printf("# seed %" PRIu64 ": nodes=%d acked=%" PRIu64 " unknown=%" PRIu64
               " crashes=%" PRIu64 " leaders=%" PRIu64 " top=%" PRIu64 " ms=%" PRIu64 "\n",
               seed, w->plan.nodes, w->n_acked, w->n_unknown, w->n_crashes, w->n_leaders,
               w->top, w->now);
    t->seeds++;
    t->wrong += wrong;
    t->ms += w->now;
    t->acked += w->n_acked;
    t->faults += w->n_faults;
    t->crashes += w->n_crashes;
    t->reads += w->n_reads;
    t->leaders += w->n_leaders;
    t->unknown += w->n_unknown;
    t->changes += w->n_changes;
    w->wrong = "over";
    finish(w);
    free(w);
    return !wrong;
}

static double wall(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct sim_plan plan = {0};
    uint64_t first = 1;
    uint64_t count = 200;
    double seconds = 1e9;
    bool expect = false;
    log_set_level(LOG_ERROR);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seeds") == 0 && i + 2 < argc) {
            first = strtoull(argv[++i], NULL, 10);
            count = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            seconds = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--guards-off") == 0 && i + 1 < argc) {
            plan.guards_off = (unsigned)strtoul(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--canaries") == 0 && i + 1 < argc) {
            plan.canaries = (unsigned)strtoul(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--expect-wrong") == 0) {
            expect = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            plan.verbose = true;
        } else if (strcmp(argv[i], "--log") == 0) {
            log_set_level(LOG_DEBUG);
        } else {
            fprintf(stderr, "unknown option %s\n", argv[i]);
            return 2;
        }
    }
    struct totals t = {0};
    double start = wall();
    for (uint64_t i = 0; i < count && wall() - start < seconds; i++)
        if (!run(first + i, &plan, &t) && expect)
            break;
    printf("# %" PRIu64 " seeds from %" PRIu64 ": %.2f cluster-hours, %" PRIu64
           " acknowledged, %" PRIu64 " reads, %" PRIu64 " unknown, %" PRIu64 " faults, %" PRIu64
           " crashes, %" PRIu64 " leaders, %" PRIu64 " member changes, %.0f s\n",
           t.seeds, first, (double)t.ms / 3.6e6, t.acked, t.reads, t.unknown, t.faults,
           t.crashes, t.leaders, t.changes, wall() - start);
    bool ok = expect ? t.wrong > 0 : t.wrong == 0;
    printf("%s - simulator: %" PRIu64 " of %" PRIu64 " seeds wrong%s\n", ok ? "ok" : "not ok",
           t.wrong, t.seeds, expect ? ", as it must be" : "");
    return ok ? 0 : 1;
}
