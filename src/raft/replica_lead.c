/* replica_lead.c - what nodes do by themselves, about once a second.
 *
 * Every node tells the others how it stands (WIRE_NODE). The leader of a group lets learners
 * vote that have caught up, brings the members of its group in line with those of group 0, and
 * hands over to the node that should lead it (placement.h decides all of it). A member that
 * is to be removed is first marked as leaving in group 0. So it knows, hands over what it leads,
 * and stays connected until no group needs it. Group 0 lets it go last. */
#include "base/check.h"
#include "base/log.h"
#include "raft/member.h"
#include "raft/placement.h"
#include "raft/replica_core.h"

#include <inttypes.h>

enum { NEAR_ENTRIES = 16, NODES_MAX = 2 * GROUP_SERVERS_MAX };

/* --- what is known of the nodes --- */

static bool is_self(const struct replica *o, uint64_t id)
{
    return id == o->config.node;
}

static void member_of(const struct replica *o, uint64_t id, struct member *ret)
{
    BELAY_CHECK(o->members.n <= GROUP_SERVERS_MAX);
    struct group_conf members = o->members;
    const struct group_server *s = group_conf_find(&members, id);
    member_parse(s ? s->address : "", ret);
}

uint8_t replica_priority(const struct replica *o, uint64_t id)
{
    BELAY_CHECK(o->members.n <= GROUP_SERVERS_MAX);
    struct member m;
    member_of(o, id, &m);
    BELAY_DCHECK(m.priority <= MEMBER_PRIORITY_UNSET);
    if (m.priority != MEMBER_PRIORITY_UNSET)
        return m.priority;
    const struct standing *s = replica_standing(o, id);
    return !is_self(o, id) && s->run != 0 ? s->priority : o->config.priority;
}

bool replica_is_leaving(const struct replica *o)
{
    BELAY_DCHECK(!o->leaving || o->must_not_lead);
    return o->leaving;
}

bool replica_is_removed(const struct replica *o)
{
    return o->removed;
}

uint64_t replica_applied(const struct replica *o, uint64_t id)
{
    BELAY_CHECK(place_of(id) != 0);
    const struct group *g = o->replicas[0].group;
    uint64_t match;
    if (is_self(o, id))
        return group_applied(g);
    if (group_match(g, id, &match))
        return match;
    return replica_standing(o, id)->applied;
}

bool replica_is_settled(const struct replica *o, uint64_t id)
{
    BELAY_CHECK(o->base.n_groups > 0);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct group_conf conf;
        group_conf(o->replicas[i].group, &conf);
        const struct group_server *s = group_conf_find(&conf, id);
        if (!s || !s->voter)
            return false;
    }
    return true;
}

/* Is what this node sees of the members of a group what its leader sees, up to a moment ago? */
static bool knows_members(const struct replica_group *r)
{
    BELAY_CHECK(r->heard_at <= replica_now(r->o));
    if (r->leads)
        return true;
    return group_leader(r->group) != 0 && r->heard_at != 0 &&
           replica_now(r->o) - r->heard_at < r->o->config.election_ms &&
           group_applied(r->group) >= r->heard_commit && r->heard_commit > 0;
}

/* The node has a say in a group other than 0, or this node cannot tell. Group 0 lets it go only
 * when the nodes that stay have taken over every group; else that group would be lost. */
static bool is_still_in(const struct replica *o, uint64_t id)
{
    BELAY_CHECK(place_of(id) != 0);
    for (size_t i = 1; i < o->base.n_groups; i++) {
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
static bool is_up(const struct replica *o, uint64_t id)
{
    if (is_self(o, id))
        return true;
    const struct standing *s = replica_standing(o, id);
    BELAY_CHECK(s->heard_ms <= replica_now(o));
    return s->run != 0 && s->heard_ms != 0 &&
           replica_now(o) - s->heard_ms < o->config.election_ms;
}

/* Its log is almost as long as ours, or as ours was a moment ago: far away, all that is on its
 * way is missing. And it says that it is a member: a node that does not know of its vote does
 * not give it, and without that vote perhaps no node can be elected. */
static bool is_near(const struct replica_group *r, uint64_t id)
{
    BELAY_CHECK(place_of(id) != 0);
    uint64_t match;
    if (is_self(r->o, id))
        return true;
    return group_match(r->group, id, &match) && match >= group_conf_index(r->group) &&
           (match + NEAR_ENTRIES >= group_commit(r->group) || match >= r->near_index);
}

/* near_index: what was committed between a half and a whole election time ago. */
static void remember_commit(struct replica_group *r, uint64_t now)
{
    BELAY_CHECK(now >= r->mark_ms);
    if (!r->leads) {
        r->near_index = r->mark = UINT64_MAX;
        r->mark_ms = now;
    } else if (now - r->mark_ms >= r->o->config.election_ms / 2) {
        r->near_index = r->mark;
        r->mark = group_commit(r->group);
        r->mark_ms = now;
    }
}

static bool is_going(const struct replica *o, uint64_t id, const struct member *m)
{
    BELAY_CHECK(place_of(id) != 0);
    bool stops = is_self(o, id) ? o->retired || o->full : replica_standing(o, id)->retiring;
    return m->leaving || stops;
}

static bool is_drained(const struct replica *o, uint64_t id)
{
    BELAY_CHECK(place_of(id) != 0);
    return is_self(o, id) ? o->drained : replica_standing(o, id)->drained;
}

static struct placement_node node_of(const struct replica_group *r,
                                     const struct group_server *s, bool is_member)
{
    BELAY_CHECK(place_of(s->id) != 0 && s->id <= GROUP_NUMBER_MAX);
    const struct replica *o = r->o;
    struct group_conf members = o->members;
    const struct group_server *want = group_conf_find(&members, s->id);
    struct member m;
    member_parse(want ? want->address : "", &m);
    bool up = is_up(o, s->id);
    bool stays = want && (!m.leaving || (up && !is_drained(o, s->id)));
    struct placement_node node = {.id = s->id,
                                  .priority = replica_priority(o, s->id),
                                  .member = is_member,
                                  .voter = is_member && s->voter,
                                  .wanted = stays,
                                  .wanted_voter = want && want->voter,
                                  .up = up,
                                  .near = is_near(r, s->id),
                                  .going = is_going(o, s->id, &m)};
    if (r->group_no == 0) {
        node.wanted = stays || is_still_in(o, s->id);
        node.wanted_voter = true;
    }
    return node;
}

static size_t survey(const struct replica_group *r, struct placement_node nodes[NODES_MAX])
{
    struct group_conf conf;
    size_t n = 0;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++)
        nodes[n++] = node_of(r, &conf.servers[i], true);
    for (size_t i = 0; i < r->o->members.n && r->group_no > 0; i++)
        if (!group_conf_find(&conf, r->o->members.servers[i].id))
            nodes[n++] = node_of(r, &r->o->members.servers[i], false);
    BELAY_CHECK(n <= NODES_MAX);
    return n;
}

/* It could lead, now or in a moment. */
static bool may_lead(const struct placement_node *node)
{
    BELAY_CHECK(!node->voter || node->member);
    return node->voter && node->up && !node->going && node->priority < MEMBER_PRIORITY_NEVER;
}

bool lead_may_take(const struct replica_group *r, uint64_t id)
{
    BELAY_CHECK(place_of(id) != 0);
    struct placement_node nodes[NODES_MAX];
    size_t n = survey(r, nodes);
    for (size_t i = 0; i < n; i++)
        if (nodes[i].id == id)
            return may_lead(&nodes[i]);
    return false;
}

/* --- what a node does when a leader is gone --- */

/* The nodes that should lead stand first. */
void lead_rank(struct replica_group *r)
{
    BELAY_CHECK(r->group && r->o->opened);
    uint64_t leader = group_leader(r->group);
    struct placement_node nodes[NODES_MAX];
    size_t n = survey(r, nodes);
    for (size_t i = 0; i < n; i++)
        nodes[i].up = nodes[i].id != leader;
    if (leader != r->o->config.node)
        group_set_rank(r->group, placement_rank(nodes, n, r->group_no, r->o->config.node));
}

void replica_peer_lost(struct replica *o, uint64_t node)
{
    BELAY_CHECK(node != o->config.node);
    o->stirred = true;
    if (o->seen[place_of(node)] == node) {
        o->standings[place_of(node)].heard_ms = 0;
        run_lost(o, node);
    }
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        if (group_leader(r->group) == node)
            group_suspect(r->group, replica_now(o));
    }
}

/* --- what the leader of a group does --- */

void lead_soon(struct replica *o)
{
    uint64_t soon = replica_now(o) + ORDER_STEER_SOON_MS;
    if (soon < o->placement_ms)
        o->placement_ms = soon;
}

static void change_members(struct replica_group *r, const struct placement_node *nodes,
                           size_t n)
{
    BELAY_CHECK(n <= NODES_MAX && group_role(r->group) == GROUP_LEADER);
    static const struct {
        enum group_change what;
        const char *word;
    } steps[] = {[STEER_ADD] = {GROUP_ADD, "add"},
                 [STEER_PROMOTE] = {GROUP_PROMOTE, "promote"},
                 [STEER_REMOVE] = {GROUP_REMOVE, "remove"}};
    struct replica *o = r->o;
    uint64_t id;
    enum placement_step step = placement_change(nodes, n, o->config.node, &id);
    /* An old view of group 0 would bring back a removed member. */
    bool known = o->members.n > 0 && group_leader(o->replicas[0].group) != 0;
    if (step == STEER_NONE || !known)
        return;
    if (step == STEER_REMOVE && r->group_no == 0 && !run_is_known(r, id)) {
        lead_soon(o); /* its number must not be given again */
        return;
    }
    BELAY_CHECK((size_t)step < sizeof steps / sizeof *steps);
    struct group_server server = {.id = id};
    const struct group_server *s = group_conf_find(&o->members, id);
    if (s)
        server = *s;
    if (group_change(r->group, steps[step].what, &server, replica_now(o)) == BELAY_OK)
        log_info("order.member", "shard=%u node=%" PRIu64 " step=%s", r->group_no, id,
                 steps[step].word);
}

static void hand_over(struct replica_group *r, const struct placement_node *nodes, size_t n)
{
    BELAY_CHECK(n <= NODES_MAX);
    struct replica *o = r->o;
    uint64_t now = replica_now(o);
    uint64_t to = placement_leader(nodes, n, r->group_no);
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
    BELAY_DCHECK(place_of(to) != 0);
    r->preferred = 0; /* whether it works or not, the next try has time */
    if (replica_hand_over(r, to) == BELAY_OK)
        log_info("order.hand_over", "shard=%u node=%" PRIu64, r->group_no, to);
}

static void tend(struct replica_group *r)
{
    struct placement_node nodes[NODES_MAX];
    if (!group_ready(r->group) || group_transferring(r->group)) {
        r->preferred = 0;
        return;
    }
    size_t n = survey(r, nodes);
    BELAY_CHECK(group_role(r->group) == GROUP_LEADER);
    if (!r->o->full) {
        level_raise(r);
        change_members(r, nodes, n);
    }
    if (r->group_no == 0 && !r->o->full)
        admin_let_in(r);
    hand_over(r, nodes, n);
}

/* --- what every node does --- */

void lead_tell(struct replica *o, uint64_t to)
{
    BELAY_CHECK(to != o->config.node);
    BELAY_DCHECK(o->config.priority <= MEMBER_PRIORITY_NEVER);
    struct buf conf = {0};
    if (o->members.n > 0)
        group_conf_encode(&o->members, &conf);
    struct peer_message msg = {.type = WIRE_NODE,
                               .from = o->config.node,
                               .conf = buf_slice(&conf),
                               .seq = o->run,
                               .index = o->config.priority,
                               .commit = group_applied(o->replicas[0].group),
                               .term = level_highest(o),
                               .log_term = level_newest(o),
                               .conf_index = o->start,
                               .features = replica_now(o),
                               .flags = (o->n_doubts ? WIRE_STARTING : 0u) |
                                        (o->retired || o->full ? WIRE_RETIRING : 0u) |
                                        (o->drained ? WIRE_DRAINED : 0u) |
                                        (o->config.level_manual ? WIRE_LEVEL_MANUAL : 0u)};
    replica_send(o, to, &msg);
    buf_done(&conf);
}

static void tell_all(struct replica *o)
{
    BELAY_CHECK(o->members.n <= GROUP_SERVERS_MAX);
    for (size_t i = 0; i < o->members.n; i++)
        if (!is_self(o, o->members.servers[i].id))
            lead_tell(o, o->members.servers[i].id);
}

/* What its clock shows; 0: an earlier version, which does not say it. */
static void hear_clock(struct replica *o, struct standing *s, const struct peer_message *msg)
{
    BELAY_CHECK(s == &o->standings[place_of(msg->from)]);
    if (msg->features == 0 ||
        !clock_rate_hear(&s->rate, msg->conf_index, replica_now(o), msg->features) ||
        clock_rate_is_off(&s->rate) == s->rate_off)
        return;
    s->rate_off = !s->rate_off;
    log_warn("order.clock_rate", "node=%" PRIu64 " ppm=%" PRId64 " text=\"%s\"", msg->from,
             s->rate.ppm,
             s->rate_off ? "its clock and this node's go at different speeds; leases allow for "
                           "1000 ppm: look at the clock sources of both machines"
                         : "its clock and this node's go at the same speed again");
}

bool replica_clock_rate(const struct replica *o, uint64_t node, int64_t *ret_ppm)
{
    BELAY_CHECK(place_of(node) != 0);
    const struct clock_rate *r = &replica_standing(o, node)->rate;
    *ret_ppm = r->ppm;
    return r->is_known;
}

bool lead_hear(struct replica *o, const struct peer_message *msg)
{
    BELAY_CHECK(place_of(msg->from) != 0 && msg->from != o->config.node);
    struct standing *s = &o->standings[place_of(msg->from)];
    s->heard_ms = replica_now(o);
    run_heard(o, msg->from);
    if (msg->type == WIRE_NODE && msg->flags & WIRE_STARTING)
        start_report(o, msg);
    if (msg->type == WIRE_NODE && msg->reject != 0) /* to one that starts */
        return start_hear(o, msg);
    if (msg->type != WIRE_NODE)
        return true;
    s->level =
        msg->term; /* also when its disk has forgotten its last run: it may be new since */
    s->newest = msg->log_term;
    if (msg->seq < s->run)
        return true;
    if (msg->index > MEMBER_PRIORITY_NEVER || msg->seq > GROUP_NUMBER_MAX ||
        msg->commit > GROUP_NUMBER_MAX || msg->features > GROUP_NUMBER_MAX ||
        !named_hear(o, msg->conf))
        return false;
    s->run = msg->seq;
    s->priority = (uint8_t)msg->index;
    s->applied = msg->commit;
    s->level_manual = msg->flags & WIRE_LEVEL_MANUAL;
    s->retiring = msg->flags & WIRE_RETIRING;
    hear_clock(o, s, msg);
    if (s->drained != !!(msg->flags & WIRE_DRAINED))
        lead_soon(o);
    s->drained = msg->flags & WIRE_DRAINED;
    return true;
}

void replica_drained(struct replica *o)
{
    BELAY_DCHECK(o->opened);
    if (o->drained)
        return;
    o->drained = true;
    tell_all(o);
}

/* What group 0 says counts for all groups. */
void lead_follow(struct replica *o)
{
    struct member self;
    group_conf_committed(o->replicas[0].group, &o->members);
    for (size_t i = 0; i < o->members.n; i++)
        (void)replica_see_node(o, o->members.servers[i].id);
    BELAY_CHECK(o->members.n <= GROUP_SERVERS_MAX);
    member_of(o, o->config.node, &self);
    o->leaving = self.leaving;
    bool found = group_conf_find(&o->members, o->config.node);
    o->removed = o->removed || (o->is_member && !found);
    o->is_member = found;
    bool never =
        o->retired || o->full || replica_priority(o, o->config.node) == MEMBER_PRIORITY_NEVER;
    /* A leaving node may have to lead: its log may be the only one that is long enough. */
    o->must_not_lead = never || o->leaving;
    for (size_t i = 0; i < o->base.n_groups; i++)
        group_set_never_leads(o->replicas[i].group, never);
}

void lead_tick(struct replica *o)
{
    BELAY_CHECK(o->opened);
    uint64_t now = replica_now(o);
    for (size_t i = 0; i < o->base.n_groups; i++)
        remember_commit(&o->replicas[i], now);
    if (now < o->placement_ms)
        return;
    o->placement_ms = now + ORDER_STEER_MS;
    lead_follow(o);
    tell_all(o);
    full_tick(o);
    for (size_t i = 0; i < o->base.n_groups; i++)
        tend(&o->replicas[i]);
    BELAY_DCHECK(o->placement_ms > now);
}

void lead_stand(struct replica *o)
{
    BELAY_CHECK(o->opened);
    lead_follow(o);
    tell_all(o);
    lead_soon(o);
}

/* --- stopping --- */

static bool has_successor(const struct placement_node *nodes, size_t n)
{
    BELAY_CHECK(n <= NODES_MAX);
    for (size_t i = 0; i < n; i++)
        if (may_lead(&nodes[i]))
            return true;
    return false;
}

static bool retire_replica(struct replica_group *r)
{
    BELAY_CHECK(r->o->retired);
    struct placement_node nodes[NODES_MAX];
    size_t n = survey(r, nodes);
    if (replica_alone(r) || !has_successor(nodes, n))
        return true;
    if (group_role(r->group) != GROUP_LEADER)
        return group_leader(r->group) != 0; /* it leads, and may have needed this node's vote */
    if (!group_transferring(r->group) && r->n_pending == 0)
        hand_over(r, nodes, n);
    return false;
}

bool replica_retire(struct replica *o)
{
    BELAY_CHECK(o->opened);
    bool done = true;
    if (!o->retired) {
        o->retired = true;
        lead_stand(o);
    }
    BELAY_DCHECK(o->must_not_lead);
    for (size_t i = 0; i < o->base.n_groups; i++)
        done = retire_replica(&o->replicas[i]) && done;
    return done;
}
