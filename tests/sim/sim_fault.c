/* sim_fault.c - what a seed stands for, and what goes wrong in it.
 *
 * Uniform faults miss the known bugs: every seed draws its own mixture, and faults aim at
 * leaders. A hunt cuts off whoever has just been elected, while its first entries are on their
 * way, and joins the one before again: majorities rotate, and entries of several terms meet. */
#include "machine/machine.h"
#include "raft/member.h"
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

enum { LATE_MS = 20000 }; /* after the healing */

static void aim_at_sessions(struct sim_plan *p)
{
    p->groups = 3;
    p->crashes = p->short_ttls = true;
    p->habits |= HABIT_AGAIN | HABIT_SESSION;
    p->fault_every_ms = 400;
}

static void aim_at_places(struct sim_plan *p)
{
    p->nodes = 3;
    p->changes = true;
    p->old_copies = p->upgrade = false;
    p->fault_every_ms = 400;
}

static void aim_at_dead(struct sim_plan *p)
{
    p->nodes = 3;
    p->groups = 1;
    p->crashes = true;
    p->pauses = p->cuts = p->hunt = p->slow = p->changes = p->bad_disks = false;
    p->upgrade = p->old_copies = p->aim_leader = false;
    p->delay_ms = 2;
    p->disk_ms = p->loss = 0;
    p->clients = SIM_CLIENTS;
    p->habits = HABIT_LONG | HABIT_SHARED;
    p->fault_every_ms = 2000;
}

static void aim_at_gone(struct sim_plan *p)
{
    p->nodes = 1;
    p->groups = 1;
    p->crashes = p->pauses = p->changes = p->bad_disks = p->short_ttls = false;
    p->disk_ms = 200;
    p->clients = SIM_CLIENTS;
    p->habits |= HABIT_GO;
    p->habits &= ~(unsigned)(HABIT_CONVERT | HABIT_BREAK | HABIT_SEVERAL);
}

static void aim_at_liars(struct sim_plan *p)
{
    static const unsigned lies[] = {1, 5, 20, 60};
    p->nodes = p->seed % 3 ? 3 : 5;
    p->lies = lies[p->seed % 4];
    p->crashes = true; /* what they have stored of it must be good for a start */
    p->old_copies = p->bad_disks = p->upgrade = false;
    p->segment_bytes = 64 << 10;
}

static void aim_at_disaster(struct sim_plan *p)
{
    p->nodes = p->seed % 4 ? 3 : 5;
    p->groups = p->seed % 5 ? 3 : 1;
    p->disaster = true;
    p->changes = p->old_copies = p->upgrade = p->bad_disks = false;
}

static void aim_at(struct sim_plan *p, enum sim_aim aim)
{
    switch (aim) {
    case AIM_ALONE:
        p->nodes = 1;
        p->changes = p->crashes = p->aim_leader = true;
        p->disk_ms = 200;
        p->delay_ms = p->loss = 0;
        p->fault_every_ms = 300;
        break;
    case AIM_REFUSALS:
        p->nodes = 5;
        p->crashes = p->pauses = p->cuts = p->hunt = p->transfers = p->changes = false;
        p->bad_disks = p->clocks = false;
        p->delay_ms = 150;
        p->loss = 5;
        p->twice = 30;
        p->disk_ms = 0;
        break;
    case AIM_READS:
        p->nodes = 3;
        p->cuts = p->hunt = p->clocks = p->slow = p->aim_leader = true;
        p->delay_ms = 2;
        p->disk_ms = p->loss = 0;
        break;
    case AIM_COPIES:
        p->nodes = 3;
        p->old_copies = p->crashes = p->cuts = true;
        p->fault_every_ms = 400;
        break;
    case AIM_SNAPSHOTS:
        p->nodes = 3;
        p->snapshot_bytes = 600;
        p->crashes = p->cuts = true;
        p->delay_ms = 150;
        p->twice = 30;
        p->fault_every_ms = 500;
        break;
    case AIM_SEGMENTS:
        p->segment_bytes = (uint64_t)JOURNAL_SEGMENT_BYTES_MIN << p->seed % 4;
        p->groups = p->seed % 4 ? 3 : 1; /* one falls quiet beside others */
        p->snapshot_bytes = p->seed % 2 ? 600 : 2000;
        p->crashes = true;
        p->disk_ms = 40;
        p->fault_every_ms = 500;
        break;
    case AIM_GONE:
        aim_at_gone(p);
        break;
    case AIM_SESSIONS:
        aim_at_sessions(p);
        break;
    case AIM_PLACES:
        aim_at_places(p);
        break;
    case AIM_DEAD:
        aim_at_dead(p);
        break;
    case AIM_LIARS:
        aim_at_liars(p);
        break;
    case AIM_DISASTER:
        aim_at_disaster(p);
        break;
    case AIM_ALL:
    case N_AIMS:
        break;
    }
}

void sim_plan(uint64_t seed, enum sim_aim aim, struct sim_plan *ret)
{
    struct sim_world w = {.random = seed * 0x2545f4914f6cdd1d};
    static const int sizes[] = {3, 3, 3, 5, 5, 1};
    static const unsigned delays[] = {0, 2, 10, 40, 150};
    static const unsigned losses[] = {0, 0, 2, 10, 30};
    static const unsigned disks[] = {0, 1, 5, 40, 200};
    static const unsigned inflights[] = {1, 2, 8, 64, GROUP_INFLIGHT_MAX};
    static const uint64_t snaps[] = {600, 2000, 8000, 1 << 20};
    static const size_t groups[] = {1, 1, 1, 1, 3, 4};
    static const uint64_t segments[] = {JOURNAL_SEGMENT_BYTES_MIN, 4 << 10, 16 << 10, 64 << 10};
    static const uint64_t turns[] = {1, 40, 0}; /* one op, two or three, all */
    *ret = (struct sim_plan){.seed = seed,
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
                             .hunt = sim_chance(&w, 30),
                             .bad_disks = sim_chance(&w, 20),
                             .short_ttls = sim_chance(&w, 30),
                             .inflight = inflights[sim_random(&w, 5)],
                             .groups = groups[sim_random(&w, 6)]};
    for (unsigned habit = 1; habit <= HABIT_ALL; habit <<= 1)
        if (sim_chance(&w, 60))
            ret->habits |= habit;
    ret->segment_bytes = segments[sim_random(&w, 4)];
    if (ret->snapshot_bytes > 8000) /* a disk has room for SIM_DISK_FILES */
        ret->segment_bytes = 64 << 10;
    ret->turn_work = turns[seed % 3];
    ret->batch = seed % 4 == 1 ? 1 + seed / 4 % 8 : MACHINE_EXPIRE_BATCH;
    ret->old_copies = sim_chance(&w, 25);
    ret->upgrade = sim_chance(&w, 25);
    aim_at(ret, aim);
    ret->fine = ret->clocks && !ret->slow && sim_chance(&w, 50);
    if (ret->old_copies) /* who is refused is removed: others must not be */
        ret->changes = false;
    if (ret->nodes == 1 && !ret->changes) /* it stays alone */
        ret->cuts = ret->hunt = false;
    if (ret->groups > 1)
        ret->habits |= HABIT_NAMESPACE | HABIT_SESSION;
}

uint64_t sim_leader(const struct sim_world *w, size_t group)
{
    uint64_t best = 0;
    uint64_t term = 0;
    for (uint64_t i = 1; i <= SIM_NODES; i++) {
        struct group *g = sim_group(&w->nodes[i], group);
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
    uint64_t leader = sim_leader(w, sim_random(w, w->plan.groups));
    if (w->plan.aim_leader && leader && sim_chance(w, 60))
        return leader;
    return 1 + sim_random(w, SIM_NODES);
}

void sim_heal_cuts(struct sim_world *w)
{
    memset(w->cut, 0, sizeof w->cut);
}

/* These two, or the one if they are the same, on one side; all others on the other. */
static void isolate(struct sim_world *w, uint64_t one, uint64_t two)
{
    for (uint64_t a = 1; a <= SIM_NODES; a++)
        for (uint64_t b = 1; b <= SIM_NODES; b++)
            w->cut[a][b] = (a == one || a == two) != (b == one || b == two);
}

static void cut(struct sim_world *w)
{
    sim_heal_cuts(w);
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

/* In the smallest of its groups. */
static size_t least_voters(const struct sim_world *w, const struct sim_node *n)
{
    size_t least = GROUP_SERVERS_MAX;
    for (size_t i = 0; i < w->plan.groups; i++) {
        struct group_conf conf = {0};
        if (n->order)
            group_conf(sim_group(n, i), &conf);
        if (group_conf_voters(&conf) < least)
            least = group_conf_voters(&conf);
    }
    return least;
}

/* With three voters two can tell what the third has forgotten. */
/* Mostly the others notice at once that it died: their connections with it end. */
static void end_connections(struct sim_world *w, struct sim_node *dead)
{
    bool all = sim_chance(w, 60);
    for (uint64_t id = 1; all && id <= SIM_NODES; id++) {
        struct sim_node *n = &w->nodes[id];
        if (!n->order)
            continue;
        if (w->cut[dead->id][id]) {
            all = false;
            break;
        }
        sim_enter(n);
        replica_peer_lost(replica_of(n->order), sim_number(w, dead->id));
        sim_node_settle(w, n);
    }
    dead->lost_ms = all ? w->now : 0;
}

void sim_crash(struct sim_world *w, uint64_t id)
{
    if (!w->nodes[id].order || w->nodes[id].gone)
        return;
    bool put_back = w->nodes[id].has_copy && least_voters(w, &w->nodes[id]) >= 3;
    sim_node_crash(w, id);
    end_connections(w, &w->nodes[id]);
    if (put_back && sim_chance(w, 50))
        sim_node_put_back(&w->nodes[id]);
    sim_post(w, 10 + sim_random(w, 3000), EV_START, id);
}

void sim_hunt(struct sim_world *w, uint64_t leader, size_t group, uint64_t term)
{
    struct group *g = sim_group(&w->nodes[leader], group);
    if (w->healing || !g || group_role(g) != GROUP_LEADER || group_term(g) != term)
        return;
    w->n_faults++;
    sim_heal_cuts(w);
    if (w->plan.crashes && sim_chance(w, 25)) {
        sim_crash(w, leader);
        return;
    }
    isolate(w, leader, sim_chance(w, 30) ? 1 + sim_random(w, SIM_NODES) : leader);
    sim_post(w, 500 + sim_random(w, 4000), EV_JOIN, 0);
}

/* A leader that lacks what others know as committed may be none any more, and behind. */
static bool is_member(const struct sim_world *w, uint64_t id)
{
    bool known = false;
    for (size_t i = 0; i < w->plan.groups; i++) {
        uint64_t leader = sim_leader(w, i);
        struct group_conf conf;
        if (!leader || group_commit(sim_group(&w->nodes[leader], i)) < w->committed[i])
            return true; /* who knows */
        group_conf(sim_group(&w->nodes[leader], i), &conf);
        known |= group_conf_find(&conf, sim_number(w, id)) != NULL;
        group_conf_committed(sim_group(&w->nodes[leader], i), &conf);
        known |= group_conf_find(&conf, sim_number(w, id)) != NULL;
    }
    return known;
}

static void note_members(struct sim_world *w, const struct group *g)
{
    struct group_conf conf;
    group_conf_committed(g, &conf);
    for (size_t i = 0; i < conf.n; i++) {
        uint64_t id = sim_of_number(w, conf.servers[i].id);
        if (id <= SIM_NODES)
            w->nodes[id].was_in = true;
    }
}

/* Who is in the list and was never there is started. */
static void start_added(struct sim_world *w)
{
    uint64_t leader = sim_leader(w, 0);
    struct group_conf conf;
    if (!leader)
        return;
    note_members(w, sim_group(&w->nodes[leader], 0));
    group_conf(sim_group(&w->nodes[leader], 0), &conf);
    for (size_t i = 0; i < conf.n; i++) {
        uint64_t id = sim_of_number(w, conf.servers[i].id);
        BELAY_CHECK(id <= SIM_NODES || w->plan.lies);
        if (id > SIM_NODES || w->nodes[id].member)
            continue;
        w->nodes[id].member = w->nodes[id].joins = true;
        w->next_node = id >= w->next_node ? id + 1 : w->next_node;
        sim_post(w, 10 + sim_random(w, 2000), EV_START, id);
    }
}

/* --- operators --- */

static void wish_done(void *ctx, enum belay_err err, uint64_t id)
{
    struct sim_node *n = ctx;
    (void)id;
    n->wishes--;
    n->w->n_changes += err == BELAY_OK && (n->wish == WISH_ADD || n->wish == WISH_REMOVE);
}

static void ask(struct sim_world *w, struct sim_node *n, const struct admin_request *wish)
{
    sim_enter(n);
    n->wish = wish->kind;
    n->wishes += replica_admin_ask(replica_of(n->order), wish, wish_done, n) != NULL;
    sim_node_settle(w, n);
}

/* One that this node knows; false: none. */
static bool pick_member(struct sim_world *w, const struct sim_node *n,
                        struct admin_request *wish, uint64_t *ret_id)
{
    struct group_conf conf;
    struct member m;
    group_conf(sim_group(n, 0), &conf);
    if (conf.n == 0)
        return false;
    const struct group_server *s = &conf.servers[sim_random(w, conf.n)];
    member_parse(s->address, &m);
    memcpy(wish->name, m.name, sizeof wish->name);
    *ret_id = sim_of_number(w, s->id);
    return *ret_id <= SIM_NODES; /* a liar may have made up another one */
}

static struct sim_node *pick_node(struct sim_world *w)
{
    struct sim_node *n = &w->nodes[1 + sim_random(w, SIM_NODES)];
    return n->order && n->member && n->wishes == 0 && n->paused_until <= w->now ? n : NULL;
}

static void change_members(struct sim_world *w)
{
    struct sim_node *n = pick_node(w);
    struct admin_request wish = {.kind = WISH_REMOVE};
    uint64_t id;
    if (!n)
        return;
    if (w->names < SIM_JOINS && sim_chance(w, 60)) {
        wish.kind = WISH_ADD;
        snprintf(wish.name, sizeof wish.name, "m%" PRIu64, ++w->names);
        snprintf(wish.peer, sizeof wish.peer, "node-%" PRIu64 ":1", w->names);
        wish.join[0] = w->names; /* until it votes */
    } else if (pick_member(w, n, &wish, &id)) {
        w->nodes[id].leaving = true;
    } else {
        return;
    }
    ask(w, n, &wish);
}

/* Its disk is not believed: somebody who serves lets it go. */
static void remove_refused(struct sim_world *w, uint64_t id)
{
    struct sim_node *n = NULL;
    struct admin_request wish = {.kind = WISH_REMOVE};
    struct group_conf conf;
    struct member m;
    for (int i = 0; i < 2 * SIM_NODES && !n; i++)
        n = pick_node(w);
    if (!n)
        return;
    group_conf(sim_group(n, 0), &conf);
    const struct group_server *s = group_conf_find(&conf, sim_number(w, id));
    if (!s)
        return;
    member_parse(s->address, &m);
    memcpy(wish.name, m.name, sizeof wish.name);
    w->nodes[id].leaving = true;
    ask(w, n, &wish);
}

/* Who was in and was removed is stopped, for nobody will ever answer there; in the end also who
 * was to be added, when that has come to nothing. */
void sim_operate(struct sim_world *w)
{
    start_added(w);
    bool late = w->healing && w->now > w->plan.span_ms + LATE_MS;
    for (uint64_t i = 1; i < w->next_node; i++) {
        if (w->nodes[i].refused && !w->nodes[i].gone)
            remove_refused(w, i);
        bool removed = w->nodes[i].was_in && w->nodes[i].leaving;
        if (w->nodes[i].gone || is_member(w, i) || !(removed || late))
            continue;
        w->nodes[i].gone = true;
        sim_node_crash(w, i);
    }
}

/* By the core itself, to whoever is fit; or as an operator wants it. */
static void transfer(struct sim_world *w)
{
    size_t group = sim_random(w, w->plan.groups);
    uint64_t leader = sim_leader(w, group);
    struct sim_node *n = pick_node(w);
    struct admin_request wish = {.kind = sim_chance(w, 70) ? WISH_TRANSFER : WISH_PRIORITY,
                                 .priority = (uint8_t)sim_random(w, 3)};
    uint64_t id;
    if (n && sim_chance(w, 50) && pick_member(w, n, &wish, &id)) {
        if (wish.kind == WISH_TRANSFER)
            wish.group = (uint16_t)group;
        ask(w, n, &wish);
    } else if (leader) {
        sim_enter(&w->nodes[leader]);
        enum belay_err err = group_transfer(sim_group(&w->nodes[leader], group), 0,
                                            sim_node_clock(&w->nodes[leader]));
        (void)err;
        sim_node_settle(w, &w->nodes[leader]);
    }
}

/* Its disk is full, or has room again; or the next change of it fails, the node gives up, and
 * somebody makes room. */
static void spoil_disk(struct sim_world *w, struct sim_node *n)
{
    if (sim_chance(w, 60)) {
        n->disk.full = !n->disk.full;
        return;
    }
    n->disk.crash_in = 1 + sim_random(w, 4);
    n->disk.fail_errno = sim_chance(w, 50) ? ENOSPC : EIO;
}

/* Not of one that was alone in a group: it would go on alone, and nobody could tell it. */
static void copy_disk(struct sim_world *w)
{
    uint64_t id = w->old_node ? w->old_node : victim(w);
    struct sim_node *n = &w->nodes[id];
    if (least_voters(w, n) < 2)
        return;
    w->old_node = id;
    n->has_copy = true;
    sim_disk_copy(&n->copy, &n->disk);
}

void sim_fault(struct sim_world *w)
{
    w->n_faults++;
    if (w->plan.old_copies && sim_chance(w, 10))
        copy_disk(w);
    uint64_t id = victim(w);
    struct sim_node *n = &w->nodes[id];
    if (w->plan.changes && sim_chance(w, 15)) {
        change_members(w);
        return;
    }
    if (n->old && sim_chance(w, 50)) {
        sim_crash(w, id);
        return;
    }
    switch (sim_random(w, 7)) {
    case 0:
    case 1:
        if (w->plan.crashes)
            sim_crash(w, id);
        break;
    case 2:
        if (w->plan.cuts)
            cut(w);
        break;
    case 3:
        if (w->plan.pauses && n->order) {
            n->paused_until = w->now + 10 + sim_random(w, 4000);
            w->calm_ms = n->paused_until > w->calm_ms ? n->paused_until : w->calm_ms;
        }
        break;
    case 4:
        if (w->plan.transfers)
            transfer(w);
        break;
    case 5:
        if (w->plan.bad_disks && n->order)
            spoil_disk(w, n);
        break;
    default:
        if (w->plan.changes)
            change_members(w);
        break;
    }
}
