/* replica_status.c - how this node stands: is it ready, how old is what it knows, is it at
 * rest? */
#include "base/check.h"
#include "raft/replica_core.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { SEE_TEXT_MAX = 256 };

struct see {
    const char *word; /* NULL: nothing is wrong */
    char text[SEE_TEXT_MAX];
};

/* A leader that cannot reach a majority stops being one within an election time. The others
 * know what the leader knew when they last heard of it, and that its time goes on. */
uint64_t status_age(const struct order *base, size_t group_no, uint64_t *ret_now_ms)
{
    BELAY_CHECK(group_no < base->n_groups);
    const struct replica *o = (const struct replica *)(const void *)base;
    const struct replica_group *r = &o->replicas[group_no];
    if (r->leads)
        return 0;
    BELAY_CHECK(replica_now(o) >= (r->heard_at ? r->heard_at : o->opened_ms));
    uint64_t age_ms = replica_now(o) - (r->heard_at ? r->heard_at : o->opened_ms);
    *ret_now_ms = r->heard_ms + age_ms;
    return age_ms;
}

/* Nobody leads: can anybody, as far as this node sees? */
static void say_leaderless(const struct replica_group *r, struct see *ret)
{
    const struct replica *o = r->o;
    struct group_conf conf;
    size_t voters = 0;
    size_t heard = 0;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++) {
        uint64_t id = conf.servers[i].id;
        if (!conf.servers[i].voter)
            continue;
        voters++;
        uint64_t heard_ms = replica_standing(o, id)->heard_ms;
        heard += id == o->config.node ||
                 (heard_ms != 0 && replica_now(o) - heard_ms < UINT64_C(2) * ORDER_STEER_MS);
    }
    BELAY_CHECK(heard <= voters && voters <= GROUP_SERVERS_MAX);
    ret->word = heard > voters / 2 ? "no-leader" : "no-majority";
    if (voters == 0)
        snprintf(ret->text, sizeof ret->text,
                 "no leader has called: this node waits to be added to a cluster");
    else if (heard > voters / 2)
        snprintf(ret->text, sizeof ret->text, "no leader is known: one is being elected");
    else
        snprintf(ret->text, sizeof ret->text,
                 "no majority: of %zu nodes that vote %zu can be reached; look at the others "
                 "and at the network between them",
                 voters, heard);
}

static bool group_not_ready(const struct replica_group *r, struct see *ret)
{
    BELAY_CHECK(!ret->word && r->group);
    uint64_t leader = group_leader(r->group);
    uint64_t applied = group_applied(r->group);
    bool leads = leader == r->o->config.node;
    if (fetch_is_of(r)) {
        ret->word = "fetching";
        snprintf(ret->text, sizeof ret->text, "a snapshot is being fetched: wait for it");
    } else if (leader == 0) {
        say_leaderless(r, ret);
    } else if (r->doubt.lasts) {
        ret->word = "starting";
        snprintf(ret->text, sizeof ret->text,
                 "the cluster does not know yet that this node has started: wait for it");
    } else if (leads && !r->leads) {
        ret->word = "behind";
        snprintf(ret->text, sizeof ret->text, "the log of the last leader is not applied yet");
    } else if (!leads && r->heard_commit > applied + ORDER_BEHIND_MAX) {
        ret->word = "behind";
        snprintf(ret->text, sizeof ret->text,
                 "too far behind: %" PRIu64 " entries of the leader's log are not applied yet; "
                 "if this does not shrink, look at the disk and the processor of this node",
                 r->heard_commit - applied);
    }
    return ret->word;
}

const char *status_not_ready(const struct order *base, const char **ret_word)
{
    static _Thread_local char text[SEE_TEXT_MAX + 32];
    const struct replica *o = (const struct replica *)(const void *)base;
    struct see see = {0};
    BELAY_DCHECK(o->opened);
    *ret_word = "too-old";
    if (level_is_behind(o))
        return "the cluster follows newer rules than this program knows: start a newer belay here";
    *ret_word = o->leaving ? "leaving" : "stopping";
    if (o->leaving)
        return "the node is being removed from its cluster";
    if (o->retired)
        return "the node is stopping";
    *ret_word = "disk-full";
    const struct journal_room *room = journal_room(o->journal);
    if (room->needed > 0) {
        snprintf(text, sizeof text,
                 "disk is full: %" PRIu64 " bytes free in %.160s, needs %" PRIu64, room->free,
                 o->config.path, room->needed);
        return text;
    }
    for (size_t i = 0; i < base->n_groups; i++) {
        if (!group_not_ready(&o->replicas[i], &see))
            continue;
        *ret_word = see.word;
        if (base->n_groups > 1)
            snprintf(text, sizeof text, "shard %zu: %s", i, see.text);
        else
            snprintf(text, sizeof text, "%s", see.text);
        return text;
    }
    return NULL;
}

/* --- the nodes of the cluster --- */

bool replica_see_node(struct replica *o, uint64_t node)
{
    size_t place = place_of(node);
    if (place == 0 || o->seen[place] > node)
        return false;
    if (o->seen[place] == node)
        return true;
    BELAY_CHECK(place < NODE_PLACES);
    o->seen[place] = node;
    buf_clear(&o->out[place]);
    o->standings[place] = (struct standing){0};
    o->silent_ms[place] = 0;
    o->unheard[place] = false;
    o->answered[place] = (struct answered){0};
    return true;
}

const struct standing *replica_standing(const struct replica *o, uint64_t node)
{
    static const struct standing none;
    size_t place = place_of(node);
    BELAY_CHECK(place < NODE_PLACES && none.run == 0);
    return o->seen[place] == node ? &o->standings[place] : &none;
}

uint64_t replica_last_node(const struct replica *o)
{
    BELAY_CHECK(o->replicas[0].group);
    const struct replica_group *r = &o->replicas[0];
    struct group_conf conf;
    uint64_t last = 0;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++)
        last = conf.servers[i].id > last ? conf.servers[i].id : last;
    for (size_t i = 0; i < NODE_PLACES; i++)
        last = r->origins[i].node > last ? r->origins[i].node : last;
    return last;
}

static bool has_place(const struct group_conf *conf, uint64_t node)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    for (size_t i = 0; i < conf->n; i++)
        if (place_of(conf->servers[i].id) == place_of(node))
            return true;
    return false;
}

static_assert(GROUP_SERVERS_MAX < NODE_PLACES - 1, "there is always a free place");

uint64_t replica_next_node(const struct replica *o)
{
    struct group_conf conf;
    uint64_t next = 1 + replica_last_node(o);
    group_conf(o->replicas[0].group, &conf);
    if (o->config.canaries & CANARY_PLACE)
        conf.n = 0;
    while (place_of(next) == 0 || has_place(&conf, next))
        next++;
    BELAY_CHECK(place_of(next) != 0 && next <= GROUP_NUMBER_MAX);
    return next;
}

static bool is_silent(const struct replica *o, uint64_t node)
{
    uint64_t heard_ms = replica_standing(o, node)->heard_ms;
    uint64_t since_ms = heard_ms > o->opened_ms ? heard_ms : o->opened_ms;
    BELAY_CHECK(replica_now(o) >= since_ms);
    return replica_now(o) - since_ms >= ORDER_UNHEARD_MS;
}

static bool is_taken(const struct replica *o, const struct group_conf *conf, uint64_t node)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX && place_of(node) != 0);
    for (size_t i = 0; i < conf->n; i++) {
        uint64_t id = conf->servers[i].id;
        if (place_of(id) == place_of(node) && (id > node || !is_silent(o, id)))
            return true;
    }
    return false;
}

bool replica_has_room(const struct replica *o, uint64_t node)
{
    BELAY_DCHECK(o->replicas[0].group);
    struct group_conf last, committed;
    group_conf(o->replicas[0].group, &last);
    group_conf_committed(o->replicas[0].group, &committed);
    if (group_conf_find(&last, node) || group_conf_find(&committed, node))
        return true;
    return place_of(node) != place_of(o->config.node) && !is_taken(o, &last, node) &&
           !is_taken(o, &committed, node);
}

/* Before a node is removed it is in the state: run_is_known(). It stays there until a newer node
 * has its place. */
bool replica_was_removed(const struct replica *o, uint64_t node)
{
    const struct replica_group *r = &o->replicas[0];
    const struct origin *origin = &r->origins[place_of(node)];
    BELAY_DCHECK(origin->node == 0 || place_of(origin->node) == place_of(node));
    struct group_conf last, committed;
    group_conf(r->group, &last);
    group_conf_committed(r->group, &committed);
    if (committed.n == 0 || group_conf_find(&committed, node))
        return false;
    if (o->config.canaries & CANARY_OLD_VIEW)
        return node <= replica_last_node(o);
    bool is_known = origin->node > node || (origin->node == node && origin->run > 0);
    return is_known && !group_conf_find(&last, node);
}

uint64_t replica_cluster(const struct replica *o)
{
    return o->cluster;
}

size_t replica_groups(const struct replica *o)
{
    BELAY_CHECK(o->base.n_groups > 0 && o->base.n_groups <= LIMIT_GROUPS);
    return o->base.n_groups;
}

bool replica_idle(const struct replica *o)
{
    for (size_t i = 0; i < o->base.n_groups; i++) {
        const struct replica_group *r = &o->replicas[i];
        BELAY_DCHECK((r->first == NULL) == (r->n_pending == 0));
        if (r->first || r->reads)
            return false;
    }
    return true;
}

struct group *replica_group(struct replica *o, size_t group_no)
{
    BELAY_CHECK(group_no < o->base.n_groups);
    return o->replicas[group_no].group;
}

struct journal *replica_journal(struct replica *o)
{
    BELAY_DCHECK(o->journal);
    return o->journal;
}

bool replica_is_full(const struct replica *o)
{
    BELAY_DCHECK(!o->full || o->must_not_lead);
    return o->full;
}

uint64_t replica_snapshots_failed(const struct replica *o)
{
    return o->snapshots_failed;
}

size_t replica_pending(const struct replica *o, size_t group_no)
{
    BELAY_CHECK(group_no < o->base.n_groups);
    const struct replica_group *r = &o->replicas[group_no];
    BELAY_DCHECK((r->first == NULL) == (r->n_pending == 0));
    return r->n_pending;
}

bool replica_snapshot(const struct replica *o, size_t group_no, struct snapshot_file *ret)
{
    BELAY_CHECK(group_no < o->base.n_groups);
    const struct replica_group *r = &o->replicas[group_no];
    BELAY_DCHECK(r->snapshot.index == 0 || r->snapshot_name[0]);
    *ret = (struct snapshot_file){.name = r->snapshot_name, .bytes = r->snapshot_size};
    return r->snapshot.index > 0;
}

size_t replica_snapshots_failing(const struct replica *o)
{
    size_t n = 0;
    for (size_t i = 0; i < o->base.n_groups; i++)
        n += o->replicas[i].retry_ms != 0;
    BELAY_CHECK(n <= o->base.n_groups);
    return n;
}

uint64_t replica_journal_usual(const struct replica *o)
{
    enum { SEGMENTS_BESIDE = 4 }; /* the one in use, and what is not whole */
    uint64_t bytes = SEGMENTS_BESIDE * o->config.segment_bytes;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        uint64_t due = o->config.snapshot_bytes;
        if (o->replicas[i].snapshot_size > due)
            due = o->replicas[i].snapshot_size;
        bytes += 2 * due; /* a node that fetches the last one delays the next */
    }
    BELAY_CHECK(bytes > 0);
    return bytes;
}

uint64_t replica_kept_bytes(const struct replica *o, size_t group_no)
{
    BELAY_CHECK(group_no < o->base.n_groups);
    uint64_t lsn = group_oldest_lsn(o->replicas[group_no].group);
    return lsn == UINT64_MAX ? 0 : journal_bytes_from(o->journal, lsn);
}

/* --- what is due, and when --- */

/* An entry costs every node a write and the leader a message to each, whatever is in it. So the
 * next one is made when the last one is committed: until then more comes. But where messages
 * take long, several are on their way. */
bool replica_may_propose(const struct replica_group *r)
{
    BELAY_CHECK(group_commit(r->group) <= group_last(r->group) || !r->leads);
    return r->leads && (group_commit(r->group) >= group_last(r->group) ||
                        replica_now(r->o) >= r->proposed_ms + ORDER_COMMIT_WAIT_MS);
}

size_t replica_due(const struct replica *o)
{
    BELAY_CHECK(o->opened && o->journal);
    if (journal_busy(o->journal))
        return 0;
    size_t bytes = journal_due(o->journal);
    for (size_t i = 0; i < o->base.n_groups; i++)
        if (replica_may_propose(&o->replicas[i]))
            bytes += buf_len(&o->replicas[i].proposal);
    return bytes;
}

uint64_t replica_next_ms(const struct replica *o)
{
    BELAY_CHECK(o->opened);
    uint64_t next = o->placement_ms;
    uint64_t soon = replica_now(o) + ORDER_PROBE_MS;
    if ((o->asks || o->fetch) && soon < next)
        next = soon;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        const struct replica_group *r = &o->replicas[i];
        uint64_t at = group_has_more(r->group) ? replica_now(o) : group_next_ms(r->group);
        next = at < next ? at : next;
        if ((r->first || r->reads) && soon < next)
            next = soon;
        at = r->proposed_ms + ORDER_COMMIT_WAIT_MS;
        if (r->leads && buf_len(&r->proposal) && !journal_busy(o->journal) && at < next)
            next = at;
    }
    return next;
}
