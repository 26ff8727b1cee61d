/* replica_start.c - every start of a node is a number in the replicated log.
 *
 *   start number = number of the run << 32 | 32 random bits of the process
 *
 * The first op of a run carries it, and so every node knows the newest start of every other. A
 * process that begins another run (replica_run.c) has a new start with it: else an older copy
 * could reach the same run unnoticed, and be given the answers of this one. A directory that
 * was put back from a backup, or copied and started twice, shows by it:
 *  - its start is known and it is that of another process, of the same run or a later one: this
 *    process is void. It ends, and its directory is marked: it must not be started again.
 *  - a leader knows that this node had acknowledged more than it has (it says so with its
 *    entries): the same.
 *  - nobody knows, for the copy is of the last run: until the cluster has committed its start,
 *    nothing that it says counts (group_gate.c). It then catches up like any other node.
 *
 * A cluster that starts as a whole has nobody to commit anything. So a node that starts asks
 * the others how far they are; when all voters have said it, that is enough. When some of them
 * never speak, it takes its own word for it after a while, and says so. */
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "machine/varint.h"
#include "raft/replica_core.h"

#include <inttypes.h>
#include <stdlib.h>

enum { RUN_SHIFT = 32, BEHIND_SAID = 3 };

const char start_over_text[] =
    "this data directory is an older copy, or was started twice: the cluster knows a later "
    "start of this node, or entries that it had acknowledged and has not; nothing was answered "
    "from it. Remove the node from the cluster and add it again with an empty directory";

uint64_t start_number(uint64_t run, uint64_t seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15U >> RUN_SHIFT;
    BELAY_CHECK(run <= UINT64_MAX >> RUN_SHIFT && random >> RUN_SHIFT == 0);
    return run << RUN_SHIFT | random;
}

static bool same_process(uint64_t a, uint64_t b)
{
    return (uint32_t)a == (uint32_t)b;
}

/* One without a run is that of a node of an earlier version. What a process has said in an
 * earlier run of its own may still be on its way. */
bool start_is_over(uint64_t start, uint64_t newer)
{
    return start >> RUN_SHIFT && !same_process(start, newer) &&
           start >> RUN_SHIFT <= newer >> RUN_SHIFT;
}

uint64_t replica_start(const struct replica *o)
{
    BELAY_DCHECK(o->run > 0 && o->start >> RUN_SHIFT == o->run);
    return o->start;
}

bool replica_is_over(const struct replica *o, uint64_t node, uint64_t start)
{
    BELAY_CHECK(place_of(node) != 0);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        const struct origin *origin = replica_origin(&o->replicas[i], node);
        if (origin && start_is_over(start, origin->start))
            return true;
    }
    return false;
}

void replica_end(struct replica *o)
{
    BELAY_CHECK(o->run > 0);
    if (o->over)
        return;
    o->over = true;
    store_run(o);
    o->env->fatal(o->ctx, start_over_text);
}

static bool is_off(const struct replica *o)
{
    return o->config.canaries & CANARY_OLD_COPY;
}

static void believe(struct replica_group *r)
{
    BELAY_CHECK(r->o->n_doubts > 0 || !r->doubt.lasts);
    r->o->n_doubts -= r->doubt.lasts;
    r->doubt.lasts = false;
    group_gate_open(r->group);
    BELAY_DCHECK(group_may_vouch(r->group));
}

/* A node that lists a newer voter in its place knows that the older one is gone. */
static void ask_voter(struct doubt *d, uint64_t node)
{
    size_t place = place_of(node);
    d->asked[place] = node > d->asked[place] ? node : d->asked[place];
    BELAY_CHECK(d->asked[place] >= node);
}

static void ask_voters(struct doubt *d, const struct group_conf *conf)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    for (size_t i = 0; i < conf->n; i++)
        if (conf->servers[i].voter)
            ask_voter(d, conf->servers[i].id);
}

/* A node that is alone has no other to ask, and a new node has promised nothing. */
void start_doubt(struct replica_group *r)
{
    BELAY_CHECK(!r->doubt.lasts);
    if (r->o->fresh || replica_alone(r) || is_off(r->o))
        return;
    struct group_conf conf;
    group_conf(r->group, &conf);
    ask_voters(&r->doubt, &conf);
    BELAY_CHECK(r->o->n_doubts < r->o->base.n_groups);
    r->doubt.lasts = true;
    r->o->n_doubts++;
    r->doubt.since_ms = replica_now(r->o);
    group_gate_close(r->group);
    BELAY_DCHECK(!group_may_vouch(r->group));
}

/* A directory that was empty when this process started is no copy. When it stands in the place
 * of another one, the others refuse it and say so (runtime.c: peer.forgot). */
static bool may_be_copy(const struct replica *o)
{
    BELAY_CHECK(!o->fresh || o->run > 0);
    return !is_off(o) && (!o->fresh || o->start_known);
}

void start_check(struct replica_group *r)
{
    BELAY_CHECK(r->o->start != 0);
    struct replica *o = r->o;
    const struct origin *self = replica_origin(r, o->config.node);
    if (!self || is_off(o))
        return;
    if (self->start == o->start) {
        o->start_known = true;
        believe(r);
    } else if (may_be_copy(o) && start_is_over(o->start, self->start)) {
        replica_end(o);
    }
}

/* A leader says it with everything that it sends; once may be a mistake. */
static bool is_said_again(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->from != r->o->config.node);
    if (r->behind_from != msg->from || r->behind_term != msg->term)
        r->behind_said = 0;
    r->behind_from = msg->from;
    r->behind_term = msg->term;
    return ++r->behind_said >= BEHIND_SAID;
}

/* In a term, what was acknowledged to its leader stays in the log until a later term. */
void start_check_append(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_APPEND);
    bool is_behind = msg->term >= group_term(r->group) && msg->reject > group_last(r->group) &&
                     msg->reject <= msg->index && may_be_copy(r->o);
    if (!is_behind) {
        r->behind_said = 0;
    } else if (is_said_again(r, msg)) {
        log_error("order.behind",
                  "shard=%u leader=%" PRIu64 " acknowledged=%" PRIu64 " has=%" PRIu64,
                  r->group_no, msg->from, msg->reject, group_last(r->group));
        replica_end(r->o);
    }
}

static void count_files(void *ctx, const char *name)
{
    (void)name;
    ++*(size_t *)ctx;
}

enum belay_err replica_is_used(struct disk *disk, bool *ret_used)
{
    size_t files = 0;
    enum belay_err err = disk->ops->list(disk, count_files, &files);
    *ret_used = files > 0;
    return err;
}

uint64_t replica_node_of(struct disk *disk)
{
    struct replica *o = mem_zalloc(sizeof *o);
    struct buf file = {0};
    uint64_t node = 0;
    uint64_t groups;
    enum belay_err err = disk->ops->read(disk, IDENTITY_NAME, &file);
    bool known = err == BELAY_OK && store_read_identity(o, buf_slice(&file), &node, &groups) &&
                 o->run > 0;
    buf_done(&file);
    free(o);
    BELAY_DCHECK(!known || place_of(node) != 0);
    return known ? node : 0;
}

/* --- how far everybody is --- */

void start_report(struct replica *o, const struct peer_message *msg)
{
    BELAY_CHECK(msg->from != o->config.node);
    struct buf data = {0};
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct group_floor own;
        struct group_conf conf;
        group_stands(o->replicas[i].group, &own);
        group_conf(o->replicas[i].group, &conf);
        varint_put(&data, own.term);
        varint_put(&data, own.log_term);
        varint_put(&data, own.index);
        varint_put(&data, group_conf_voters(&conf));
        for (size_t k = 0; k < conf.n; k++)
            if (conf.servers[k].voter)
                varint_put(&data, conf.servers[k].id);
    }
    struct peer_message report = {.type = WIRE_NODE,
                                  .from = o->config.node,
                                  .reject = msg->conf_index,
                                  .data = buf_slice(&data)};
    replica_send(o, msg->from, &report);
    buf_done(&data);
}

static void lengthen(struct group_floor *floor, const struct group_floor *by)
{
    bool longer = by->log_term != floor->log_term ? by->log_term > floor->log_term
                                                  : by->index > floor->index;
    if (longer) {
        floor->log_term = by->log_term;
        floor->index = by->index;
    }
    BELAY_CHECK(floor->log_term >= by->log_term);
}

/* What a voter said before its own disk was put back counts no more: nobody has that log now,
 * and all would wait for a leader with it. What was committed, others have, and say so. A term
 * counts for ever: this node may have voted in it. */
static void lower_gate(struct replica_group *r)
{
    struct group_floor floor = {.term = r->doubt.term};
    BELAY_CHECK(r->doubt.lasts);
    for (size_t i = 0; i < NODE_PLACES; i++)
        if (r->doubt.asked[i] != 0)
            lengthen(&floor, &r->doubt.floors[i]);
    group_gate_lower(r->group, &floor);
}

static bool has_all(const struct replica_group *r)
{
    BELAY_CHECK(r->doubt.lasts);
    const struct doubt *d = &r->doubt;
    for (size_t i = 0; i < NODE_PLACES; i++)
        if (d->asked[i] != 0 && d->told[i] != d->asked[i] && d->asked[i] != r->o->config.node)
            return false;
    return true;
}

/* Borrowed from the message, and so checked: false, when it is none. */
static bool take_report(struct replica_group *r, uint64_t from, struct reader *in)
{
    struct doubt *d = &r->doubt;
    struct group_floor floor = {.term = reader_u64(in)};
    struct group_conf conf;
    floor.log_term = reader_u64(in);
    floor.index = reader_u64(in);
    uint64_t voters = reader_u64(in);
    for (uint64_t k = 0; k < voters && !in->bad; k++)
        ask_voter(d, reader_u64(in));
    if (in->bad || !group_is_term(r->group, floor.term) || floor.log_term > GROUP_NUMBER_MAX ||
        floor.index > GROUP_NUMBER_MAX)
        return false;
    group_conf(r->group, &conf);
    ask_voters(d, &conf);
    BELAY_CHECK(place_of(from) != 0);
    d->told[place_of(from)] = from;
    d->floors[place_of(from)] = floor;
    d->term = floor.term > d->term ? floor.term : d->term;
    if (d->lasts && has_all(r))
        lower_gate(r);
    return true;
}

bool start_hear(struct replica *o, const struct peer_message *msg)
{
    BELAY_CHECK(msg->reject != 0 && msg->from != o->config.node);
    struct reader in = {.left = msg->data};
    if (msg->reject != o->start)
        return true; /* an earlier one was told */
    for (size_t i = 0; i < o->base.n_groups && in.left.len > 0; i++)
        if (!take_report(&o->replicas[i], msg->from, &in))
            return false;
    return true;
}

/* A leader is there, and has more than this node: when all of it is here, its start will be
 * known. */
static bool catches_up(const struct replica_group *r)
{
    BELAY_CHECK(r->doubt.lasts && replica_now(r->o) >= r->heard_at);
    return replica_now(r->o) - r->heard_at < r->o->config.doubt_ms &&
           (fetch_is_of(r) || group_last(r->group) < r->heard_commit);
}

void start_look(struct replica *o)
{
    BELAY_CHECK(o->n_doubts <= o->base.n_groups);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        if (!r->doubt.lasts)
            continue;
        if (catches_up(r))
            r->doubt.since_ms = replica_now(o);
        if (replica_now(o) - r->doubt.since_ms < o->config.doubt_ms)
            continue;
        log_warn("order.start_unproven",
                 "shard=%u text=\"too few other nodes can be reached to say whether this data "
                 "directory is the newest; this node assumes that it is\"",
                 r->group_no);
        believe(r);
    }
}
