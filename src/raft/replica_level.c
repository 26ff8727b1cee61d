/* replica_level.c - the level of each group (machine/level.h), and which nodes can follow it.
 *
 *   WIRE_NODE: "I know levels up to N" --leader: all members have said so--> ENTRY_LEVEL
 *
 * A log begins at level 0, for a log of an older version did. The first leader of a new group
 * raises it before anything else is in the log; so does a node that is alone, when it starts.
 * Else the leader waits until every member of the cluster has said that it knows the level. When
 * any of them was started with --level manual, it also waits for an operator, who raises group 0
 * (WISH_LEVEL); the other groups follow that one.
 *
 * A program that is too old for a directory does not start with it; one that is too old for its
 * cluster and the others do not listen to each other, and say why. */
#include "base/check.h"
#include "base/log.h"
#include "machine/level.h"
#include "raft/replica_core.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t level_newest(const struct replica *o)
{
    BELAY_CHECK(o->config.levels_unknown <= LEVEL_NEWEST);
    return LEVEL_NEWEST - o->config.levels_unknown;
}

/* --- raising it --- */

static void propose_level(struct replica_group *r, uint64_t level)
{
    BELAY_CHECK(level > 0 && level <= level_newest(r->o));
    BELAY_DCHECK(r->leads);
    struct buf entry = {0};
    buf_put_byte(&entry, ENTRY_LEVEL);
    varint_put(&entry, engine_stamp(r->o->engine, r->group_no));
    varint_put(&entry, level);
    BELAY_CHECK(!entry.oom);
    /* Refused only when it has just stopped leading: then the next leader does it. */
    if (group_propose(r->group, buf_slice(&entry), replica_now(r->o)) == BELAY_OK)
        log_info("order.level", "shard=%u rules=%" PRIu64, r->group_no, level);
    buf_done(&entry);
}

/* The highest level that every node in this list has said to know. */
static uint64_t known_by_all(const struct replica *o, const struct group_conf *conf)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    uint64_t level = level_newest(o);
    for (size_t i = 0; i < conf->n; i++) {
        uint64_t id = conf->servers[i].id;
        if (id == o->config.node)
            continue;
        uint64_t newest = replica_standing(o, id)->newest;
        level = newest < level ? newest : level;
    }
    BELAY_CHECK(level <= level_newest(o));
    return level;
}

/* And by members that are still to be added to this group. */
static uint64_t highest_possible(const struct replica_group *r)
{
    BELAY_CHECK(r->group_no < r->o->base.n_groups);
    struct group_conf conf;
    group_conf(r->group, &conf);
    uint64_t here = known_by_all(r->o, &conf);
    uint64_t elsewhere = known_by_all(r->o, &r->o->members);
    return elsewhere < here ? elsewhere : here;
}

static bool is_manual(const struct replica *o)
{
    BELAY_DCHECK(o->members.n <= GROUP_SERVERS_MAX);
    bool manual = o->config.level_manual;
    for (size_t i = 0; i < o->members.n; i++)
        manual |= replica_standing(o, o->members.servers[i].id)->level_manual;
    return manual;
}

void level_raise(struct replica_group *r)
{
    BELAY_CHECK(r->group_no < r->o->base.n_groups);
    const struct replica *o = r->o;
    uint64_t level = highest_possible(r);
    uint64_t first = engine_level(o->engine, 0);
    if (is_manual(o) && first < level)
        level = first;
    if (r->leads && level > engine_level(o->engine, r->group_no))
        propose_level(r, level);
}

enum belay_err level_wish(struct replica_group *r, uint64_t level)
{
    BELAY_CHECK(r->group_no == 0);
    uint64_t now = engine_level(r->o->engine, 0);
    if (!r->leads || r->o->full)
        return BELAY_ERR_UNAVAILABLE;
    if (level < now)
        return BELAY_ERR_RANGE;
    if (level > highest_possible(r))
        return BELAY_ERR_IN_USE;
    if (level > now)
        propose_level(r, level);
    return BELAY_OK;
}

bool level_is_reached(const struct replica *o, uint64_t level)
{
    BELAY_DCHECK(o->opened && o->base.n_groups > 0);
    for (size_t i = 0; i < o->base.n_groups; i++)
        if (engine_level(o->engine, i) < level)
            return false;
    return true;
}

bool replica_levels(const struct replica *o, uint64_t id, uint64_t *ret_newest,
                    bool *ret_manual)
{
    BELAY_CHECK(place_of(id) != 0);
    const struct standing *s = replica_standing(o, id);
    bool is_self = id == o->config.node;
    *ret_newest = is_self ? level_newest(o) : s->newest;
    *ret_manual = is_self ? o->config.level_manual : s->level_manual;
    return is_self || s->run != 0;
}

void level_lead(struct replica_group *r)
{
    BELAY_CHECK(r->leads);
    if (engine_is_new(r->o->engine, r->group_no) && level_newest(r->o) > 0)
        propose_level(r, level_newest(r->o));
    else
        level_raise(r);
}

/* --- following it --- */

void level_problem(const struct replica *o, const char *where, uint64_t level)
{
    BELAY_CHECK(level > level_newest(o));
    store_problem("%s follows the rules of level %" PRIu64 ", this program knows them up to "
                  "level %" PRIu64 ": start a newer belay",
                  where, level, level_newest(o));
}

void level_apply(struct replica_group *r, struct reader *in, uint64_t now)
{
    struct replica *o = r->o;
    struct op op = {.kind = OP_LEVEL, .now_ms = now, .target = reader_u64(in)};
    BELAY_CHECK(!in->bad);
    if (op.target > level_newest(o)) { /* nobody has asked this node whether it knows it */
        level_problem(o, "the cluster", op.target);
        o->env->fatal(o->ctx, replica_problem());
        return;
    }
    engine_ordered(o->engine, r->group_no, &op);
}

uint64_t level_highest(const struct replica *o)
{
    BELAY_CHECK(o->base.n_groups > 0);
    uint64_t highest = 0;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        uint64_t level = engine_level(o->engine, i);
        highest = level > highest ? level : highest;
    }
    return highest;
}

bool level_may_speak(struct replica *o, uint64_t node)
{
    BELAY_CHECK(place_of(node) != 0);
    struct standing *s = &o->standings[place_of(node)];
    uint64_t mine = level_highest(o);
    bool is_old = s->run != 0 && s->newest < mine;
    if (!is_old && s->level <= level_newest(o))
        return true;
    if (replica_now(o) >= s->complain_ms) {
        s->complain_ms = replica_now(o) + ORDER_COMPLAIN_MS;
        log_error("order.level",
                  "node=%" PRIu64 " rules=%" PRIu64 " knows=%" PRIu64 " here=%" PRIu64
                  " here_knows=%" PRIu64 " error=\"%s\"",
                  node, s->level, s->newest, mine, level_newest(o),
                  is_old ? "that node is too old for this cluster: start a newer belay there"
                         : "this node is too old for its cluster: start a newer belay here");
    }
    return false;
}

bool level_is_behind(const struct replica *o)
{
    for (size_t i = 0; i < NODE_PLACES; i++) {
        BELAY_DCHECK(o->standings[i].level == 0 || o->seen[i] != 0);
        if (o->standings[i].level > level_newest(o))
            return true;
    }
    return false;
}

/* --- what is on disk --- */

enum belay_err level_check(const struct replica_group *r)
{
    BELAY_CHECK(!r->group);
    const struct entry_log *log = &r->loaded.log;
    for (size_t i = 0; i < log->n; i++) {
        const struct log_entry *e = entry_log_get(log, log->first + i);
        struct reader in = {.left = e->data};
        if (e->type == GROUP_ENTRY_CHANGE || reader_byte(&in) != ENTRY_LEVEL)
            continue;
        reader_u64(&in); /* the time */
        uint64_t level = reader_u64(&in);
        if (in.bad || level <= level_newest(r->o))
            continue;
        char where[64];
        snprintf(where, sizeof where, "shard %u: entry %" PRIu64, r->group_no, log->first + i);
        level_problem(r->o, where, level);
        return BELAY_ERR_NO_PROTO;
    }
    return BELAY_OK;
}
