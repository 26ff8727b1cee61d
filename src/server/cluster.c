/* cluster.c - CLUSTER ... and /v1/cluster: who is in, who leads, and changing it. */
#include "command/command.h"
#include "engine/host.h"
#include "engine/order_raft.h"
#include "server/state.h"

#include <stdio.h>

enum { TEXT_MAX = 256 };

static void node_row(struct arena *a, struct reply *list, const struct host_member *m)
{
    struct reply *row = reply_add(list, slice_of("", 0), reply_new(a, REPLY_MAP));
    const char *role = m->leads ? "leader" : m->voter ? "follower" : "learner";
    if (m->member.leaving)
        role = "leaving";
    reply_text(a, row, "name", slice_str(m->member.name));
    reply_int(a, row, "id", (int64_t)m->id);
    reply_text(a, row, "role", slice_str(role));
    reply_int(a, row, "priority", m->member.priority);
    reply_bool(a, row, "up", m->up);
    reply_bool(a, row, "ready", m->ready);
    reply_int(a, row, "applied", (int64_t)m->applied);
    reply_text(a, row, "peer", slice_str(m->member.peer));
    reply_text(a, row, "listen", slice_str(m->listen));
}

static void shard_row(struct server *s, struct reply *list, size_t shard,
                      const struct host_member *members, size_t n)
{
    struct arena *a = &s->request_arena;
    const struct group *g = order_raft_group(host_order(s->host), shard);
    struct reply *row = reply_add(list, slice_of("", 0), reply_new(a, REPLY_MAP));
    const char *leader = NULL;
    for (size_t i = 0; i < n; i++)
        leader = members[i].id == group_leader(g) ? members[i].member.name : leader;
    reply_int(a, row, "shard", (int64_t)shard);
    if (leader)
        reply_text(a, row, "leader", slice_str(leader));
    else
        reply_null(a, row, "leader");
    reply_int(a, row, "term", (int64_t)group_term(g));
    reply_int(a, row, "committed", (int64_t)group_commit(g));
    reply_int(a, row, "applied", (int64_t)group_applied(g));
}

/* `members` lives as long as the reply: in the arena. */
static struct reply *status(struct server *s)
{
    struct arena *a = &s->request_arena;
    struct host_member *members = arena_alloc(a, GROUP_SERVERS_MAX * sizeof *members);
    size_t n = host_members(s->host, members, GROUP_SERVERS_MAX);
    struct reply *r = reply_new(a, REPLY_MAP);
    const char *self = "";
    const char *leader = NULL;
    for (size_t i = 0; i < n; i++) {
        self = members[i].self ? members[i].member.name : self;
        leader = members[i].leads ? members[i].member.name : leader;
    }
    reply_text(a, r, "node", slice_str(self));
    if (leader)
        reply_text(a, r, "leader", slice_str(leader));
    else
        reply_null(a, r, "leader");
    struct reply *nodes = reply_list(a, r, "nodes");
    for (size_t i = 0; i < n; i++)
        node_row(a, nodes, &members[i]);
    struct reply *shards = reply_list(a, r, "shards");
    for (size_t i = 0; i < order_raft_groups(host_order(s->host)); i++)
        shard_row(s, shards, i, members, n);
    return r;
}

static struct reply *failed(struct server *s, enum belay_err err)
{
    struct host_member members[GROUP_SERVERS_MAX];
    size_t n = host_members(s->host, members, GROUP_SERVERS_MAX);
    struct arena *a = &s->request_arena;
    for (size_t i = 0; err == BELAY_ERR_NOT_LEADER && i < n; i++)
        if (members[i].leads)
            return reply_error(a, err, "ask the leader, %s at %s", members[i].member.name,
                               members[i].listen);
    if (err == BELAY_ERR_IN_USE)
        return reply_error(a, err, "nobody would be left to vote");
    if (err == BELAY_ERR_UNAVAILABLE)
        return reply_error(a, err, "another change is under way, ask again");
    return reply_error(a, err, "%s", err_text(err));
}

static struct reply *change(struct server *s, const struct call *call)
{
    struct arena *a = &s->request_arena;
    char name[TEXT_MAX];
    char peer[TEXT_MAX];
    uint64_t id = 0;
    enum belay_err err = BELAY_ERR_RANGE;
    snprintf(name, sizeof name, "%.*s", (int)call->text.len, call->text.data);
    snprintf(peer, sizeof peer, "%.*s", (int)call->peer.len, call->peer.data);
    if (call->text.len >= sizeof name)
        return reply_error(a, err, "the name is too long");
    if (call->command == command_get(CMD_CLUSTER_ADD))
        err = host_add(s->host, name, peer, &id);
    else if (call->command == command_get(CMD_CLUSTER_REMOVE))
        err = host_remove(s->host, name);
    else if (call->command == command_get(CMD_CLUSTER_PRIORITY))
        err = host_set_priority(s->host, name, (uint8_t)call->number);
    else
        err = host_transfer(s->host, name, call->number);
    if (err != BELAY_OK)
        return failed(s, err);
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_text(a, r, "status", SLICE("ok"));
    if (id)
        reply_int(a, r, "id", (int64_t)id);
    return r;
}

void cluster_action(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    struct reply *r;
    if (!s->host)
        r = reply_error(&s->request_arena, BELAY_ERR_UNAVAILABLE,
                        "this server keeps nothing on disk and is in no cluster");
    else if (call->command == command_get(CMD_CLUSTER_STATUS))
        r = status(s);
    else
        r = change(s, call);
    request_reply(c, r, close);
}
