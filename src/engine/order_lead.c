/* order_lead.c - what nodes do by themselves, about once a second.
 *
 * Every node tells the others how it stands (WIRE_NODE). The leader of a group lets learners
 * vote that have caught up, brings the members of its group in line with those of group 0, and
 * hands over to the node that should lead it (steer.h decides all of it). Who is to be removed
 * is marked as leaving in group 0 first: so it knows, hands over what it leads, and stays
 * connected until no group needs it; group 0 lets it go last. */
#include "base/check.h"
#include "base/log.h"
#include "engine/member.h"
#include "engine/order_core.h"
#include "engine/steer.h"

#include <inttypes.h>

enum { NEAR_ENTRIES = 16, NODES_MAX = 2 * GROUP_SERVERS_MAX };

/* --- what is known of the nodes --- */

static bool is_self(const struct order_raft *o, uint64_t id)
{
    return id == o->config.node;
}

static void member_of(const struct order_raft *o, uint64_t id, struct member *ret)
{
    struct group_conf members = o->members;
    const struct group_server *s = group_conf_find(&members, id);
    member_parse(s ? s->address : "", ret);
}

uint8_t order_raft_priority(const struct order_raft *o, uint64_t id)
{
    struct member m;
    member_of(o, id, &m);
    if (m.priority != MEMBER_PRIORITY_UNSET)
        return m.priority;
    bool has_said = id < ORIGINS_MAX && o->standings[id].run != 0;
    return !is_self(o, id) && has_said ? o->standings[id].priority : o->config.priority;
}

bool order_raft_is_leaving(const struct order_raft *o)
{
    return o->leaving;
}

uint64_t order_raft_applied(const struct order_raft *o, uint64_t id)
{
    const struct group *g = o->replicas[0].group;
    uint64_t match;
    if (is_self(o, id))
        return group_applied(g);
    if (group_match(g, id, &match))
        return match;
    return id < ORIGINS_MAX ? o->standings[id].applied : 0;
}

bool order_raft_is_settled(const struct order_raft *o, uint64_t id)
{
    for (size_t i = 0; i < o->base.n_shards; i++) {
        struct group_conf conf;
        group_conf(o->replicas[i].group, &conf);
        const struct group_server *s = group_conf_find(&conf, id);
        if (!s || !s->voter)
            return false;
    }
    return true;
}

/* Is what this node sees of the members of a group what its leader sees, up to a moment ago? */
static bool knows_members(const struct replica *r)
{
    if (r->leads)
        return true;
    return group_leader(r->group) != 0 && r->heard_at != 0 &&
           order_now(r->o) - r->heard_at < r->o->config.election_ms &&
           group_applied(r->group) >= r->heard_commit && r->heard_commit > 0;
}

/* The node has a say in a group other than 0, or nobody here can tell: those who stay must have
 * taken over every group before group 0 lets it go, or that group is lost. */
static bool is_still_in(const struct order_raft *o, uint64_t id)
{
    for (size_t i = 1; i < o->base.n_shards; i++) {
        struct group_conf last, committed;
        group_conf(o->replicas[i].group, &last);
        group_conf_committed(o->replicas[i].group, &committed);
        if (!knows_members(&o->replicas[i]) || group_conf_find(&last, id) ||
            group_conf_find(&committed, id))
            return true;
    }
    return false;
}

/* It was heard a moment ago, and has said how it stands. */
static bool is_up(const struct order_raft *o, uint64_t id)
{
    if (is_self(o, id))
        return true;
    const struct standing *s = id < ORIGINS_MAX ? &o->standings[id] : NULL;
    return s && s->run != 0 && s->heard_ms != 0 &&
           order_now(o) - s->heard_ms < o->config.election_ms;
}

/* Its log is almost as long as ours, and says that it is a member: who has a vote without
 * knowing of it does not give it, and without it perhaps nobody can be elected. */
static bool is_near(const struct replica *r, uint64_t id)
{
    uint64_t match;
    return is_self(r->o, id) || (group_match(r->group, id, &match) &&
                                 match + NEAR_ENTRIES >= group_commit(r->group) &&
                                 match >= group_conf_index(r->group));
}

static bool is_going(const struct order_raft *o, uint64_t id, const struct member *m)
{
    bool stops = is_self(o, id) ? o->retired : id < ORIGINS_MAX && o->standings[id].retiring;
    return m->leaving || stops;
}

static bool is_drained(const struct order_raft *o, uint64_t id)
{
    return is_self(o, id) ? o->drained : id < ORIGINS_MAX && o->standings[id].drained;
}

static struct steer_node node_of(const struct replica *r, const struct group_server *s,
                                 bool is_member)
{
    const struct order_raft *o = r->o;
    struct group_conf members = o->members;
    const struct group_server *want = group_conf_find(&members, s->id);
    struct member m;
    member_parse(want ? want->address : "", &m);
    bool up = is_up(o, s->id);
    bool stays = want && (!m.leaving || (up && !is_drained(o, s->id)));
    struct steer_node node = {.id = s->id,
                              .priority = order_raft_priority(o, s->id),
                              .member = is_member,
                              .voter = is_member && s->voter,
                              .wanted = stays,
                              .wanted_voter = want && want->voter,
                              .up = up,
                              .near = is_near(r, s->id),
                              .going = is_going(o, s->id, &m)};
    if (r->shard == 0) {
        node.wanted = stays || is_still_in(o, s->id);
        node.wanted_voter = true;
    }
    return node;
}

static size_t survey(const struct replica *r, struct steer_node nodes[NODES_MAX])
{
    struct group_conf conf;
    size_t n = 0;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++)
        nodes[n++] = node_of(r, &conf.servers[i], true);
    for (size_t i = 0; i < r->o->members.n && r->shard > 0; i++)
        if (!group_conf_find(&conf, r->o->members.servers[i].id))
            nodes[n++] = node_of(r, &r->o->members.servers[i], false);
    BELAY_CHECK(n <= NODES_MAX);
    return n;
}

/* It could lead, now or in a moment. */
static bool may_lead(const struct steer_node *node)
{
    return node->voter && node->up && !node->going && node->priority < MEMBER_PRIORITY_NEVER;
}

bool lead_may_take(const struct replica *r, uint64_t id)
{
    struct steer_node nodes[NODES_MAX];
    size_t n = survey(r, nodes);
    for (size_t i = 0; i < n; i++)
        if (nodes[i].id == id)
            return may_lead(&nodes[i]);
    return false;
}

/* --- what a node does when a leader is gone --- */

/* Those who should lead stand first. */
void lead_rank(struct replica *r)
{
    uint64_t leader = group_leader(r->group);
    struct steer_node nodes[NODES_MAX];
    size_t n = survey(r, nodes);
    for (size_t i = 0; i < n; i++)
        nodes[i].up = nodes[i].id != leader;
    if (leader != r->o->config.node)
        group_set_rank(r->group, steer_rank(nodes, n, r->shard, r->o->config.node));
}

void order_raft_peer_lost(struct order_raft *o, uint64_t node)
{
    o->stirred = true;
    if (node < ORIGINS_MAX)
        o->standings[node].heard_ms = 0;
    for (size_t i = 0; i < o->base.n_shards; i++) {
        struct replica *r = &o->replicas[i];
        if (group_leader(r->group) == node)
            group_suspect(r->group, order_now(o));
    }
}

/* --- what the leader of a group does --- */

void lead_soon(struct order_raft *o)
{
    uint64_t soon = order_now(o) + ORDER_STEER_SOON_MS;
    if (soon < o->steer_ms)
        o->steer_ms = soon;
}

static void change_members(struct replica *r, const struct steer_node *nodes, size_t n)
{
    static const struct {
        enum group_change what;
        const char *word;
    } steps[] = {[STEER_ADD] = {GROUP_ADD, "add"},
                 [STEER_PROMOTE] = {GROUP_PROMOTE, "promote"},
                 [STEER_REMOVE] = {GROUP_REMOVE, "remove"}};
    struct order_raft *o = r->o;
    uint64_t id;
    enum steer_step step = steer_change(nodes, n, o->config.node, &id);
    /* An old view of group 0 would bring back who was removed. */
    bool known = o->members.n > 0 && group_leader(o->replicas[0].group) != 0;
    if (step == STEER_NONE || !known)
        return;
    if (step == STEER_REMOVE && r->shard == 0 && !run_is_known(r, id)) {
        lead_soon(o); /* its number must not be given again */
        return;
    }
    struct group_server server = {.id = id};
    const struct group_server *s = group_conf_find(&o->members, id);
    if (s)
        server = *s;
    if (group_change(r->group, steps[step].what, &server, order_now(o)) == BELAY_OK)
        log_info("order.member", "shard=%u node=%" PRIu64 " step=%s", r->shard, id,
                 steps[step].word);
}

static void hand_over(struct replica *r, const struct steer_node *nodes, size_t n)
{
    struct order_raft *o = r->o;
    uint64_t now = order_now(o);
    uint64_t to = steer_leader(nodes, n, r->shard);
    if (to == 0 || is_self(o, to)) {
        r->preferred = 0;
        return;
    }
    if (to != r->preferred) {
        r->preferred = to;
        r->preferred_ms = now;
    }
    if (!o->must_not_lead && now - r->preferred_ms < ORDER_REST_MS)
        return;
    r->preferred = 0; /* whether it works or not, the next try has time */
    if (order_hand_over(r, to) == BELAY_OK)
        log_info("order.hand_over", "shard=%u node=%" PRIu64, r->shard, to);
}

static void tend(struct replica *r)
{
    struct steer_node nodes[NODES_MAX];
    if (!group_ready(r->group) || group_transferring(r->group)) {
        r->preferred = 0;
        return;
    }
    size_t n = survey(r, nodes);
    change_members(r, nodes, n);
    hand_over(r, nodes, n);
}

/* --- what every node does --- */

void lead_tell(struct order_raft *o, uint64_t to)
{
    struct wire msg = {.type = WIRE_NODE,
                       .from = o->config.node,
                       .seq = o->run,
                       .index = o->config.priority,
                       .commit = group_applied(o->replicas[0].group),
                       .flags = (o->retired ? WIRE_RETIRING : 0u) |
                                (o->drained ? WIRE_DRAINED : 0u)};
    order_send(o, to, &msg);
}

static void tell_all(struct order_raft *o)
{
    for (size_t i = 0; i < o->members.n; i++)
        if (!is_self(o, o->members.servers[i].id))
            lead_tell(o, o->members.servers[i].id);
}

void lead_hear(struct order_raft *o, const struct wire *msg)
{
    struct standing *s = &o->standings[msg->from];
    s->heard_ms = order_now(o);
    o->silent_ms[msg->from] = 0;
    if (msg->type != WIRE_NODE || msg->seq < s->run || msg->index > MEMBER_PRIORITY_NEVER)
        return;
    s->run = msg->seq;
    s->priority = (uint8_t)msg->index;
    s->applied = msg->commit;
    s->retiring = msg->flags & WIRE_RETIRING;
    if (s->drained != !!(msg->flags & WIRE_DRAINED))
        lead_soon(o);
    s->drained = msg->flags & WIRE_DRAINED;
}

void order_raft_drained(struct order_raft *o)
{
    if (o->drained)
        return;
    o->drained = true;
    tell_all(o);
}

/* What group 0 says counts for all groups. */
void lead_follow(struct order_raft *o)
{
    struct member self;
    group_conf_committed(o->replicas[0].group, &o->members);
    member_of(o, o->config.node, &self);
    o->leaving = self.leaving;
    bool never = o->retired || order_raft_priority(o, o->config.node) == MEMBER_PRIORITY_NEVER;
    /* Who leaves may have to: it may be the only one whose log is long enough. */
    o->must_not_lead = never || o->leaving;
    for (size_t i = 0; i < o->base.n_shards; i++)
        group_set_never_leads(o->replicas[i].group, never);
}

void lead_tick(struct order_raft *o)
{
    uint64_t now = order_now(o);
    if (now < o->steer_ms)
        return;
    o->steer_ms = now + ORDER_STEER_MS;
    lead_follow(o);
    tell_all(o);
    for (size_t i = 0; i < o->base.n_shards; i++)
        tend(&o->replicas[i]);
}

/* --- stopping --- */

static bool has_successor(const struct steer_node *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (may_lead(&nodes[i]))
            return true;
    return false;
}

static bool retire_replica(struct replica *r)
{
    struct steer_node nodes[NODES_MAX];
    size_t n = survey(r, nodes);
    if (order_alone(r) || !has_successor(nodes, n))
        return true;
    if (group_role(r->group) != GROUP_LEADER)
        return group_leader(r->group) != 0; /* it leads, and may have needed this node's vote */
    if (!group_transferring(r->group) && r->n_pending == 0)
        hand_over(r, nodes, n);
    return false;
}

bool order_raft_retire(struct order_raft *o)
{
    bool done = true;
    if (!o->retired) {
        o->retired = true;
        lead_follow(o);
        tell_all(o);
    }
    for (size_t i = 0; i < o->base.n_shards; i++)
        done = retire_replica(&o->replicas[i]) && done;
    return done;
}
