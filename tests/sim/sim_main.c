/* sim_main.c - seeds, and the heal phase in which everything must come to an end.
 *
 *   sim [--seeds FIRST COUNT] [--seconds WALL] [--hours LEAST] [--twice] [--verbose] [--trace]
 *       [--log] [--aim WORD] [--guards-off MASK] [--canaries MASK] [--answers-only]
 *       [--expect-wrong]
 *
 * Prints one line a wrong seed and a TAP line at the end. --hours: fewer hours of clusters than
 * that are a failure, too. --twice runs every seed two times and compares the traces. --aim:
 * seeds of one kind (enum sim_aim). With --expect-wrong, seeds are tried until one is wrong
 * with the canary or without the guard and right as it should be: a defect that is not found is
 * a failure of the simulator. --answers-only asks what the clients find without the judge.
 * --aims names the aims. */
#include "sim.h"

#include "base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HEAL_MS = 60000, OPERATE_MS = 2000 };

/* --- one run --- */

static void heal(struct sim_world *w)
{
    w->healing = true;
    sim_heal_cuts(w);
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        struct sim_node *n = &w->nodes[i];
        n->paused_until = 0;
        n->disk.crash_in = n->disk.rolls = 0;
        n->disk.full = false;
        sim_node_set_rate(n, 1000);
        if (n->order && sim_node_went_back(n)) /* the others may not listen to it */
            sim_node_crash(w, i);
        if (!n->order && n->member && !n->gone && !n->refused)
            sim_node_start(w, i);
    }
    for (int i = 0; i < w->plan.clients; i++)
        if (w->clients[i].call.kind == OP_TICK)
            sim_client_idle(&w->clients[i], sim_random(w, 500));
    sim_post(w, OPERATE_MS, EV_OPERATE, 0);
}

static void client_event(struct sim_world *w, const struct sim_event *ev)
{
    struct sim_client *c = &w->clients[ev->from];
    if (ev->kind == EV_KEEP)
        sim_client_keep(w, c->no, ev->life);
    else if (c->nonce != ev->life)
        return; /* of an earlier turn */
    else if (ev->kind == EV_GO)
        sim_client_go(w, c->no);
    else if (c->call.kind == OP_TICK || c->call.back)
        sim_client_act(w, c->no);
}

static void one_event(struct sim_world *w)
{
    struct sim_event *ev = sim_next(w);
    if (!ev)
        return;
    struct sim_node *n = &w->nodes[ev->node];
    if (ev->node && n->paused_until > w->now && ev->kind <= EV_WAKE) {
        ev->at = n->paused_until;
        sim_put_back(w, ev);
        return;
    }
    if (ev->kind <= EV_WAKE) {
        sim_node_event(w, ev);
    } else if (ev->kind <= EV_KEEP) {
        client_event(w, ev);
    } else if (ev->kind == EV_START) {
        if (!n->order && !n->gone && !n->refused)
            sim_node_start(w, ev->node);
    } else if (ev->kind == EV_FAULT && !w->healing) {
        sim_fault(w);
        sim_operate(w);
        sim_post(w, 1 + sim_random(w, 2 * w->plan.fault_every_ms), EV_FAULT, 0);
    } else if (ev->kind == EV_CRASH && !w->healing) {
        if (ev->life == n->life)
            sim_crash(w, ev->node);
    } else if (ev->kind == EV_HUNT) {
        sim_hunt(w, ev->node, ev->from, ev->life);
    } else if (ev->kind == EV_BACKUP) {
        sim_backup(w);
    } else if (ev->kind == EV_DISASTER) {
        sim_disaster(w);
    } else if (ev->kind == EV_JOIN) {
        sim_heal_cuts(w);
    } else if (ev->kind == EV_HEAL) {
        heal(w);
    } else if (ev->kind == EV_OPERATE) {
        sim_operate(w);
        sim_post(w, OPERATE_MS, EV_OPERATE, 0);
    }
    sim_drop(ev);
}

static bool group_equal(const struct sim_world *w, size_t group)
{
    uint64_t leader = sim_leader(w, group);
    struct group_conf conf;
    struct group *g = leader ? sim_group(&w->nodes[leader], group) : NULL;
    if (!g || !group_ready(g) || group_applied(g) != group_last(g))
        return false;
    group_conf(g, &conf);
    for (size_t i = 0; i < conf.n; i++) {
        const struct sim_node *n = &w->nodes[sim_of_number(w, conf.servers[i].id)];
        if (!n->order || group_applied(sim_group(n, group)) != group_applied(g) ||
            (!w->options->answers_only && !judge_equal(w->judge, n, group)))
            return false;
    }
    return true;
}

static bool all_equal(const struct sim_world *w)
{
    for (size_t i = 0; i < w->plan.groups; i++)
        if (!group_equal(w, i))
            return false;
    return true;
}

static bool wishes_done(const struct sim_world *w)
{
    for (uint64_t i = 1; i <= SIM_NODES; i++)
        if (w->nodes[i].wishes)
            return false;
    return true;
}

static bool settled(const struct sim_world *w)
{
    if (w->plan.lies)
        return w->healing;
    return w->healing && w->now > w->plan.span_ms + 2000 && sim_clients_done(w) &&
           wishes_done(w) && all_equal(w) &&
           (w->options->answers_only || judge_empty(w->judge));
}

static void finish(struct sim_world *w)
{
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        struct sim_node *n = &w->nodes[i];
        if (n->order)
            sim_node_crash(w, i);
        sim_disk_wipe(&n->disk);
        sim_disk_wipe(&n->copy);
    }
    struct sim_event *ev;
    while ((ev = sim_next(w)))
        sim_drop(ev);
    free(w->heap);
    buf_done(&w->backup);
    judge_close(w->judge);
    sim_clients_done_all(w);
}

static void describe_group(const struct sim_node *n, size_t group)
{
    struct group *g = sim_group(n, group);
    struct group_conf conf;
    group_conf(g, &conf);
    printf("#   node %" PRIu64 " group %zu: role %d term %" PRIu64 " leader %" PRIu64
           " applied %" PRIu64 " commit %" PRIu64 " last %" PRIu64 " members",
           n->id, group, (int)group_role(g), group_term(g), group_leader(g), group_applied(g),
           group_commit(g), group_last(g));
    for (size_t k = 0; k < conf.n; k++)
        printf(" %" PRIu64 "%s", conf.servers[k].id, conf.servers[k].voter ? "" : "(learns)");
    printf("\n");
}

static void describe(const struct sim_world *w)
{
    for (uint64_t i = 1; i < w->next_node; i++) {
        if (!w->nodes[i].order)
            printf("#   node %" PRIu64 " is %s\n", i, w->nodes[i].gone ? "gone" : "down");
        for (size_t g = 0; w->nodes[i].order && g < w->plan.groups; g++)
            describe_group(&w->nodes[i], g);
    }
    sim_client_describe(w);
    judge_describe(w->judge);
}

struct totals {
    uint64_t seeds, wrong, ms, acked, faults, crashes, reads, leaders, unknown, changes;
    uint64_t survived, unfit, restored;
};

static void count(struct totals *t, const struct sim_world *w)
{
    t->seeds++;
    t->wrong += w->wrong != NULL;
    t->ms += w->now;
    t->acked += w->n_acked;
    t->faults += w->n_faults;
    t->crashes += w->n_crashes;
    t->reads += w->n_reads;
    t->leaders += w->n_leaders;
    t->unknown += w->n_unknown;
    t->changes += w->n_changes;
    t->survived += w->n_survived;
    t->unfit += w->n_unfit;
    t->restored += w->n_restored;
}

static void begin(struct sim_world *w)
{
    uint64_t seed = w->plan.seed;
    w->random = seed;
    w->judge = judge_open(w);
    w->next_node = (uint64_t)w->plan.nodes + 1;
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        w->nodes[i].w = w;
        w->nodes[i].id = i;
        w->nodes[i].member = i <= (uint64_t)w->plan.nodes;
        sim_disk_init(&w->nodes[i].disk, seed + i);
        sim_disk_init(&w->nodes[i].copy, 0);
    }
    for (uint64_t i = 1; i <= SIM_NODES && !w->wrong; i++)
        if (w->nodes[i].member)
            sim_node_start(w, i);
    for (int i = 0; i < w->plan.clients; i++) {
        w->clients[i] = (struct sim_client){.w = w, .no = i};
        sim_client_idle(&w->clients[i], sim_random(w, 1000));
    }
    sim_post(w, 500, EV_FAULT, 0);
    sim_post(w, w->plan.span_ms, EV_HEAL, 0);
    sim_disaster_plan(w);
}

/* Returns the trace; *ret_wrong: something was found. */
static uint64_t run(uint64_t seed, const struct sim_options *options, struct totals *t,
                    bool *ret_wrong)
{
    struct sim_world *w = mem_zalloc(sizeof *w);
    sim_plan(seed, options->aim, &w->plan);
    w->options = options;
    begin(w);
    uint64_t end = w->plan.span_ms + HEAL_MS + (w->plan.old_copies ? DOUBT_MS : 0);
    bool done = false;
    while (!w->wrong && !done && w->now < end) {
        one_event(w);
        done = settled(w);
    }
    if (!w->wrong && !done)
        sim_wrong(w, "I21", "not settled %d s after the last fault (clients %s, nodes %s)",
                  HEAL_MS / 1000, sim_clients_done(w) ? "answered" : "still waiting",
                  all_equal(w) ? "equal" : "not equal");
    *ret_wrong = w->wrong != NULL;
    if (w->wrong && options->verbose)
        describe(w);
    if (w->wrong)
        printf("# seed %" PRIu64 " at %" PRIu64 " ms: %s: %s\n", seed, w->now, w->wrong,
               w->wrong_text);
    uint64_t trace = w->trace;
    if (options->verbose)
        printf("# seed %" PRIu64 ": nodes=%d groups=%zu acked=%" PRIu64 " unknown=%" PRIu64
               " crashes=%" PRIu64 " leaders=%" PRIu64 " ops=%" PRIu64 " ms=%" PRIu64
               " trace=%016" PRIx64 "\n",
               seed, w->plan.nodes, w->plan.groups, w->n_acked, w->n_unknown, w->n_crashes,
               w->n_leaders, judge_length(w->judge, 0), w->now, trace);
    count(t, w);
    w->wrong = "over";
    finish(w);
    free(w);
    return trace;
}

/* --- many --- */

static uint64_t running; /* the seed */

/* A broken promise stops the process: which seed was it? */
static void on_stop(int number)
{
    char text[128];
    int n = snprintf(text, sizeof text, "# seed %" PRIu64 " stops the process\n", running);
    ssize_t written = write(STDOUT_FILENO, text, (size_t)n);
    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

static double wall(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

struct args {
    struct sim_options options;
    uint64_t first, count;
    double seconds, hours;
    bool expect, twice;
};

static const char *const aim_words[N_AIMS] = {
    "all",  "alone",    "refusals", "reads", "copies", "snapshots", "segments",
    "gone", "sessions", "places",   "dead",  "liars",  "disaster"};

static bool parse_aim(const char *word, enum sim_aim *ret)
{
    for (int i = 0; i < N_AIMS; i++)
        if (strcmp(word, aim_words[i]) == 0) {
            *ret = (enum sim_aim)i;
            return true;
        }
    fprintf(stderr, "unknown aim %s\n", word);
    return false;
}

static bool parse(int argc, char **argv, struct args *a)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seeds") == 0 && i + 2 < argc) {
            a->first = strtoull(argv[++i], NULL, 10);
            a->count = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            a->seconds = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--hours") == 0 && i + 1 < argc) {
            a->hours = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--guards-off") == 0 && i + 1 < argc) {
            a->options.guards_off = (unsigned)strtoul(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--canaries") == 0 && i + 1 < argc) {
            a->options.canaries = (unsigned)strtoul(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--aim") == 0 && i + 1 < argc) {
            if (!parse_aim(argv[++i], &a->options.aim))
                return false;
        } else if (strcmp(argv[i], "--aims") == 0) {
            for (int k = 0; k < N_AIMS; k++)
                printf("%s%s", aim_words[k], k + 1 < N_AIMS ? " " : "\n");
            exit(0);
        } else if (strcmp(argv[i], "--expect-wrong") == 0) {
            a->expect = true;
        } else if (strcmp(argv[i], "--answers-only") == 0) {
            a->options.answers_only = true;
        } else if (strcmp(argv[i], "--twice") == 0) {
            a->twice = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            a->options.verbose = true;
        } else if (strcmp(argv[i], "--trace") == 0) {
            a->options.trace = true;
        } else if (strcmp(argv[i], "--log") == 0) {
            log_set_level(LOG_DEBUG);
        } else {
            fprintf(stderr, "unknown option %s\n", argv[i]);
            return false;
        }
    }
    return true;
}

/* --- a defect that must be found --- */

/* In a process of its own: a broken promise stops it. */
static bool is_wrong(uint64_t seed, const struct sim_options *options)
{
    pid_t child = fork();
    BELAY_CHECK(child >= 0);
    if (child == 0) {
        struct totals t = {0};
        bool wrong;
        running = seed;
        run(seed, options, &t, &wrong);
        exit(wrong);
    }
    int status;
    pid_t done = waitpid(child, &status, 0);
    BELAY_CHECK(done == child);
    return status != 0;
}

/* Wrong with the defect, and right without it. */
static int hunt(const struct args *a)
{
    struct sim_options sound = a->options;
    double start = wall();
    bool found = false;
    uint64_t seed = a->first;
    sound.guards_off = sound.canaries = 0;
    for (; !found && seed < a->first + a->count && wall() - start < a->seconds; seed++)
        found = is_wrong(seed, &a->options) && !is_wrong(seed, &sound);
    printf("%s - simulator: %s after %" PRIu64 " seeds and %.0f s\n", found ? "ok" : "not ok",
           found ? "found" : "not found", seed - a->first, wall() - start);
    return found ? 0 : 1;
}

/* --- seeds that must be right --- */

static int all(const struct args *a)
{
    struct totals t = {0};
    uint64_t strayed = 0;
    double start = wall();
    for (uint64_t seed = a->first; seed < a->first + a->count && wall() - start < a->seconds;
         seed++) {
        bool wrong;
        running = seed;
        uint64_t trace = run(seed, &a->options, &t, &wrong);
        if (a->twice && run(seed, &a->options, &t, &wrong) != trace) {
            printf("# seed %" PRIu64 " goes two ways\n", seed);
            strayed++;
        }
    }
    double hours = (double)t.ms / 3.6e6;
    printf("# %" PRIu64 " seeds from %" PRIu64 ": %.2f cluster-hours, %" PRIu64
           " acknowledged, %" PRIu64 " reads, %" PRIu64 " unknown, %" PRIu64 " faults, %" PRIu64
           " crashes, %" PRIu64 " leaders, %" PRIu64 " member changes, %.0f s\n",
           t.seeds, a->first, hours, t.acked, t.reads, t.unknown, t.faults, t.crashes,
           t.leaders, t.changes, wall() - start);
    if (t.survived + t.unfit + t.restored)
        printf("# new clusters: %" PRIu64 " of survivors, %" PRIu64 " of backups; %" PRIu64
               " refused\n",
               t.survived, t.restored, t.unfit);
    bool far = hours >= a->hours;
    bool ok = t.wrong == 0 && strayed == 0 && far;
    printf("%s - simulator: %" PRIu64 " of %" PRIu64 " seeds wrong%s%s\n", ok ? "ok" : "not ok",
           t.wrong, t.seeds, a->twice ? ", each run twice" : "", far ? "" : ", too few hours");
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct args a = {.first = 1, .count = 200, .seconds = 1e9};
    log_set_level(LOG_NONE); /* disks fail by the dozen */
    if (!parse(argc, argv, &a))
        return 2;
    signal(SIGABRT, on_stop);
    signal(SIGSEGV, on_stop);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return a.expect ? hunt(&a) : all(&a);
}
