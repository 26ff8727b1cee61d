/* sim_disaster.c - all nodes die, and all but one of them for good: `belay repair --survivor`
 * makes a new cluster of what that one has on its disk, which goes on with the load and gets new
 * members. Or the command refuses, because the groups do not fit together: then it has changed
 * nothing, and the old cluster starts again. Where a backup was made before, no disk is left,
 * and the new cluster is made of the backup. */
#include "repair/backup.h"
#include "server/survivor.h"
#include "sim.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_MS = 3000, LAST_MS = 25000 };

void sim_disaster_plan(struct sim_world *w)
{
    if (!w->plan.disaster)
        return;
    uint64_t at = sim_between(w, FIRST_MS, LAST_MS);
    sim_post(w, at, EV_DISASTER, 0);
    if (sim_chance(w, 40))
        sim_post(w, at - sim_random(w, FIRST_MS), EV_BACKUP, 0);
}

static uint64_t digest(const struct sim_disk *d)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        const struct sim_file *f = &d->files[i];
        if (f->used)
            sum = sum * 31 + crc32c(crc32c(0, f->name, strlen(f->name)), buf_data(&f->bytes),
                                    buf_len(&f->bytes));
    }
    return sum;
}

/* What was answered may be lost: nobody counts on what it has, or asks again for an answer. The
 * judge alone knows which fences were given. */
static void forget_answers(struct sim_world *w)
{
    for (int i = 0; i < w->plan.clients; i++) {
        struct sim_client *c = &w->clients[i];
        for (int k = 0; k < SIM_HOLDS; k++)
            c->holds[k].used = false;
        promise_forget_session(c);
        c->ask.id = 0;
        sim_client_idle(c, sim_random(w, 1000));
    }
    for (int ns = 0; ns < SIM_SPACES; ns++) {
        w->spaces[ns].is_there = false;
        for (int k = 0; k < SIM_LOCKS; k++) {
            struct sim_lock *l = &w->spaces[ns].locks[k];
            l->acked_fence = 0;
            l->n_gone = l->n_ended = 0;
        }
    }
    memset(w->past.closed, 0, sizeof w->past.closed);
}

/* Nothing that was known of the old cluster holds for this one. */
static void begin_again(struct sim_world *w, struct sim_node *survivor)
{
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        w->nodes[i].gone |= w->nodes[i].member && &w->nodes[i] != survivor;
        w->nodes[i].lost_ms = 0;
    }
    survivor->joins = true; /* its directory knows the rest */
    memset(w->leader_of, 0, sizeof w->leader_of);
    memset(w->committed, 0, sizeof w->committed);
    w->members_index = 0;
    w->plan.changes = true;
    forget_answers(w);
    judge_forks(w->judge);
    sim_node_start(w, survivor->id);
}

static void start_all(struct sim_world *w)
{
    for (uint64_t i = 1; i <= SIM_NODES; i++)
        if (w->nodes[i].member)
            sim_post(w, 10 + sim_random(w, 2000), EV_START, i);
}

/* The new directory is made in `to`. */
static enum belay_err run_command(struct sim_world *w, struct sim_disk *from,
                                  struct sim_disk *to)
{
    struct inspection in;
    uint64_t seed = sim_random(w, UINT64_MAX) >> 1 | 1;
    enum belay_err err = inspect_open(&from->base, &in);
    if (err == BELAY_OK && !in.can_survive)
        err = BELAY_ERR_CORRUPT;
    if (err == BELAY_OK)
        err = inspect_survive(&in, &to->base, seed);
    if (err == BELAY_OK)
        err = survivor_check(&to->base, in.node);
    inspect_close(&in);
    return err;
}

/* --- a backup --- */

static void backup_made(void *ctx, enum belay_err err, uint64_t bytes)
{
    struct sim_node *n = ctx;
    struct buf *file = &n->w->backup;
    while (err == BELAY_OK && buf_len(file) < bytes)
        err = replica_backup_read(replica_of(n->order), n->w->plan.seed, buf_len(file), file);
    if (err != BELAY_OK)
        buf_clear(file);
}

void sim_backup(struct sim_world *w)
{
    struct sim_node *n = &w->nodes[1 + sim_random(w, (uint64_t)w->plan.nodes)];
    struct backup_wish wish = {
        .id = w->plan.seed, .wall_ms = 1, .answer = backup_made, .ctx = n};
    if (!n->order || n->paused_until > w->now)
        return;
    for (size_t i = 0; i < w->plan.groups; i++)
        w->backup_from[i] = judge_length(w->judge, i);
    sim_enter(n);
    enum belay_err err = replica_backup_begin(replica_of(n->order), &wish);
    if (err == BELAY_OK)
        sim_node_settle(w, n);
}

/* All disks are gone. */
static void restore(struct sim_world *w, struct sim_disk *to)
{
    struct backup_found found;
    struct restore_plan plan = {.keeps = true, .wall_ms = 1, .seed = w->plan.seed};
    struct sim_node *first = &w->nodes[1];
    enum belay_err err = backup_look(buf_slice(&w->backup), &found);
    if (err == BELAY_OK)
        err = backup_restore(buf_slice(&w->backup), &plan, &to->base);
    if (err != BELAY_OK) {
        sim_wrong(w, "I43", "no cluster can be made of the backup: %s", found.problem);
        return;
    }
    sim_disk_copy(&first->disk, to);
    memset(first->terms, 0, sizeof first->terms); /* it is another node, with that number */
    w->restored = true;
    w->n_restored++;
    begin_again(w, first);
}

/* --- the end of the old cluster --- */

static void survive(struct sim_world *w, struct sim_node *n, struct sim_node *command)
{
    sim_disk_revive(&n->disk);
    uint64_t before = digest(&n->disk);
    enum belay_err err = run_command(w, &n->disk, &command->disk);
    if (digest(&n->disk) != before)
        sim_wrong(w, "survivor", "the command has changed the disk of node %" PRIu64, n->id);
    if (err == BELAY_OK) {
        sim_disk_copy(&n->disk, &command->disk);
        w->n_survived++;
        begin_again(w, n);
    } else if (err == BELAY_ERR_GONE) {
        w->n_unfit++;
        start_all(w);
    } else {
        sim_wrong(w, "survivor", "no cluster can be made of node %" PRIu64 ": %s", n->id,
                  err_text(err));
    }
}

void sim_disaster(struct sim_world *w)
{
    struct sim_node *command = &w->nodes[0]; /* no node: the judge does not listen to it */
    struct sim_node *n = &w->nodes[1 + sim_random(w, (uint64_t)w->plan.nodes)];
    for (uint64_t i = 1; i <= SIM_NODES; i++)
        sim_node_crash(w, i);
    w->lost_seq = w->seq;
    w->n_faults++;
    command->w = w;
    sim_disk_init(&command->disk, w->plan.seed);
    sim_enter(command);
    if (buf_len(&w->backup))
        restore(w, &command->disk);
    else
        survive(w, n, command);
    sim_disk_wipe(&command->disk);
}
