/* replica_receive.c - what other nodes say, message by message.
 *
 * Nothing that a node says may stop this one: what is wrong in itself, or contradicts what is
 * known for certain, changes nothing, is said once, and ends the connection. */
#include "base/check.h"
#include "base/log.h"
#include "raft/replica_core.h"

#include <inttypes.h>

/* What an earlier leader said counts no more when there is another one: that one may have begun
 * before, and what it has granted since would end too early. */
static void hear_leader(struct replica_group *r, const struct peer_message *msg)
{
    uint64_t leader = group_leader(r->group);
    uint64_t term = group_term(r->group);
    BELAY_CHECK(r->heard_term <= term && r->heard_at <= replica_now(r->o));
    if (leader && leader != r->o->config.node && r->heard_term != term) {
        r->heard_term = term;
        r->heard_ms = 0;
    }
    if (msg->type != WIRE_APPEND || msg->term != term || msg->from != leader)
        return;
    r->heard_from = msg->from;
    r->heard_at = replica_now(r->o);
    if (msg->seq > r->heard_ms)
        r->heard_ms = msg->seq;
    if (msg->seq > 0)
        engine_heard(r->o->engine, r->group_no, msg->seq);
    r->heard_commit = msg->commit;
}

static const char *forward_problem(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_FORWARD && place_of(msg->from) != 0);
    struct reader in = {.left = msg->data};
    const char *what = NULL;
    if (msg->seq == 0 || msg->seq > GROUP_NUMBER_MAX || msg->term > GROUP_NUMBER_MAX)
        return "a number of it is out of range";
    while (in.left.len > 0 && !what) {
        struct slice bytes = reader_bytes(&in);
        what = in.bad ? "it is cut off" : entry_op_problem(r, msg->from, bytes);
    }
    return what;
}

static void complain(struct replica *o, uint64_t node, const char *what)
{
    struct standing *s = &o->standings[place_of(node)];
    BELAY_CHECK(what && what[0] && s->wrong_ms <= replica_now(o) + ORDER_COMPLAIN_MS);
    if (replica_now(o) < s->wrong_ms)
        return;
    s->wrong_ms = replica_now(o) + ORDER_COMPLAIN_MS;
    log_error("order.message_wrong", "node=%" PRIu64 " error=\"%s\"", node, what);
}

/* The leader of a group knows its members: no other node hands anything over to it, or reads
 * there. A group may still lack a member that group 0 has. */
static bool is_member(const struct replica_group *r, uint64_t node)
{
    BELAY_CHECK(place_of(node) != 0);
    struct group_conf conf;
    group_conf(r->group, &conf);
    if (group_conf_find(&conf, node))
        return true;
    group_conf(r->o->replicas[0].group, &conf);
    return group_conf_find(&conf, node);
}

/* What a node must have a right to: it changes the state, or reads it. */
static bool may_ask(const struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no == r->group_no);
    bool asks = msg->type == WIRE_FORWARD || msg->type == WIRE_ASK || msg->type == WIRE_READ ||
                msg->type == WIRE_FETCH;
    return !asks || group_role(r->group) != GROUP_LEADER || is_member(r, msg->from);
}

static const char *problem_of_message(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no == r->group_no);
    if (msg->type == WIRE_FORWARD)
        return forward_problem(r, msg);
    return msg->type < WIRE_PROBE && msg->type != WIRE_SNAPSHOT ? group_problem(r->group, msg)
                                                                : NULL;
}

/* NULL, or what is wrong. */
static const char *receive_message(struct replica *o, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no < o->base.n_groups && msg->from != o->config.node);
    struct replica_group *r = &o->replicas[msg->group_no];
    const char *what = problem_of_message(r, msg);
    if (!what && !lead_hear(o, msg))
        what = "its status makes no sense";
    if (what)
        return what;
    if (msg->type == WIRE_APPEND)
        start_check_append(r, msg);
    if (o->over || !level_may_speak(o, msg->from))
        return NULL;
    if (!may_ask(r, msg))
        complain(o, msg->from, "it sends a request, but is not a member of the cluster");
    else if (msg->type == WIRE_FORWARD)
        order_forwarded(r, msg);
    else if (msg->type == WIRE_ASK || msg->type == WIRE_TOLD)
        admin_receive(o, msg);
    else if (msg->type == WIRE_SNAPSHOT || msg->type == WIRE_FETCH || msg->type == WIRE_PIECE)
        fetch_receive(r, msg);
    else if (msg->type >= WIRE_PROBE)
        read_receive(r, msg);
    else {
        struct peer_message taken = *msg;
        full_append(o, &taken);
        group_receive(r->group, &taken, replica_now(o));
    }
    hear_leader(r, msg);
    return NULL;
}

bool replica_receive(struct replica *o, uint64_t node, struct slice frame)
{
    BELAY_CHECK(o->base.n_groups > 0);
    struct slice left = frame;
    struct arena a = {0};
    const char *what = NULL;
    if (place_of(node) == place_of(o->config.node))
        return true; /* this node is no member any more */
    /* A message may bring a newer node in the sender's place: the rest of the frame is void then. */
    while (left.len > 0 && !what && o->opened && !o->over && replica_see_node(o, node)) {
        o->stirred = true;
        struct peer_message msg;
        if (peer_message_next(&left, &a, &msg) != BELAY_OK)
            what = "these bytes are not a message";
        else if (msg.group_no >= o->base.n_groups)
            what = "there is no such shard";
        else if (msg.from != node)
            what = "it speaks for another node";
        else
            what = receive_message(o, &msg);
        arena_reset(&a);
    }
    arena_done(&a);
    if (what)
        complain(o, node, what);
    return !what;
}
