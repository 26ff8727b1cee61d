/* cluster.c - CLUSTER ... and /v1/cluster: the members and the leaders, and how to change them. */
#include "auth/token.h"
#include "base/mem.h"
#include "command/command.h"
#include "net/admission.h"
#include "net/runtime.h"
#include "raft/replica.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void node_row(struct server *s, struct reply *list, const struct runtime_member *m)
{
    struct arena *a = &s->request_arena;
    struct reply *row = reply_add(list, slice_of("", 0), reply_new(a, REPLY_MAP));
    uint64_t newest;
    int64_t ppm;
    bool manual;
    bool has_said = replica_levels(runtime_replica(s->runtime), m->id, &newest, &manual);
    const char *role = m->leader ? "leader" : m->voter ? "follower" : "learner";
    if (m->member.leaving)
        role = "leaving";
    reply_text(a, row, "name", slice_str(m->member.name));
    reply_int(a, row, "id", (int64_t)m->id);
    reply_text(a, row, "role", slice_str(role));
    reply_int(a, row, "priority", m->member.priority);
    reply_bool(a, row, "up", m->up);
    reply_bool(a, row, "ready", m->ready);
    reply_int(a, row, "leads", (int64_t)m->leads);
    reply_int(a, row, "applied", (int64_t)m->applied);
    reply_text(a, row, "peer", slice_str(m->member.peer));
    reply_text(a, row, "listen", slice_str(m->listen));
    reply_text(a, row, "problem", slice_str(m->problem));
    if (has_said)
        reply_int(a, row, "level_newest", (int64_t)newest);
    else
        reply_null(a, row, "level_newest");
    reply_bool(a, row, "level_manual", manual);
    if (replica_clock_rate(runtime_replica(s->runtime), m->id, &ppm))
        reply_int(a, row, "clock_ppm", ppm);
    else
        reply_null(a, row, "clock_ppm");
}

static void shard_row(struct server *s, struct reply *list, size_t shard,
                      const struct runtime_member *members, size_t n)
{
    struct arena *a = &s->request_arena;
    const struct group *g = replica_group(runtime_replica(s->runtime), shard);
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
    reply_int(a, row, "level", (int64_t)engine_level(s->engine, shard));
}

/* `members` lives as long as the reply: in the arena. */
static struct reply *status(struct server *s)
{
    struct arena *a = &s->request_arena;
    struct runtime_member *members = arena_alloc(a, GROUP_SERVERS_MAX * sizeof *members);
    size_t n = runtime_members(s->runtime, members, GROUP_SERVERS_MAX);
    struct reply *r = reply_new(a, REPLY_MAP);
    r->flags = REPLY_TAGGED;
    const char *self = "";
    const char *leader = NULL;
    for (size_t i = 0; i < n; i++) {
        if (members[i].self) {
            const char *word;
            const char *why = server_not_ready(s, &word);
            snprintf(members[i].problem, sizeof members[i].problem, "%s", why ? why : "");
        }
        self = members[i].self ? members[i].member.name : self;
        leader = members[i].leader ? members[i].member.name : leader;
    }
    reply_text(a, r, "node", slice_str(self));
    if (leader)
        reply_text(a, r, "leader", slice_str(leader));
    else
        reply_null(a, r, "leader");
    struct reply *nodes = reply_list(a, r, "nodes");
    for (size_t i = 0; i < n; i++)
        node_row(s, nodes, &members[i]);
    struct reply *shards = reply_list(a, r, "shards");
    for (size_t i = 0; i < replica_groups(runtime_replica(s->runtime)); i++)
        shard_row(s, shards, i, members, n);
    return r;
}

/* The connection goes: so does its interest in the answer. */
static void forget(struct pending_reply *p)
{
    replica_admin_forget(p->wish);
}

/* Who keeps the cluster from a higher level, as this node has heard. */
static struct reply *too_high(struct server *s, struct arena *a)
{
    struct replica *o = runtime_replica(s->runtime);
    struct runtime_member *members = arena_alloc(a, GROUP_SERVERS_MAX * sizeof *members);
    size_t n = runtime_members(s->runtime, members, GROUP_SERVERS_MAX);
    struct buf text = {0};
    uint64_t newest;
    bool manual;
    for (size_t i = 0; i < n; i++) {
        const char *comma = i ? ", " : "";
        if (replica_levels(o, members[i].id, &newest, &manual))
            buf_printf(&text, "%s%s up to %" PRIu64, comma, members[i].member.name, newest);
        else
            buf_printf(&text, "%s%s not heard", comma, members[i].member.name);
    }
    struct reply *r = reply_error(a, BELAY_ERR_IN_USE,
                                  "not all members know that level: %s; start a newer belay on "
                                  "those that do not",
                                  buf_cstr(&text));
    buf_done(&text);
    return r;
}

static struct reply *failed(struct server *s, enum command_id command, enum belay_err err)
{
    struct arena *a = &s->reply_arena;
    if (err == BELAY_ERR_IN_USE && command == CMD_CLUSTER_LEVEL)
        return too_high(s, a);
    if (err == BELAY_ERR_RANGE && command == CMD_CLUSTER_LEVEL)
        return reply_error(a, err, "the level is %" PRIu64 " already, and is never lowered",
                           engine_level(s->engine, 0));
    if (err == BELAY_ERR_NOT_FOUND && command == CMD_CLUSTER_ADD)
        return reply_error(a, err,
                           "this node has no address that others can call: start it with "
                           "--peer-listen HOST:PORT, not 0.0.0.0");
    if (err == BELAY_ERR_RANGE && command == CMD_CLUSTER_ADD)
        return reply_error(
            a, err,
            "an address is HOST:PORT, a name has at most %d bytes without spaces, "
            "quotes, control characters, @, comma and =, and both together "
            "have at most %d bytes",
            MEMBER_NAME_MAX - 1, MEMBER_PLACE_MAX - 2);
    if (err == BELAY_ERR_IN_USE && command == CMD_CLUSTER_TRANSFER)
        return reply_error(a, err,
                           "that node cannot lead it: it is down or leaving, does not vote in "
                           "that group yet, or has priority 15");
    if (err == BELAY_ERR_IN_USE)
        return reply_error(a, err, "no node would be left that votes and may lead");
    if (err == BELAY_ERR_NOT_FOUND)
        return reply_error(a, err, "no member has that name");
    if (err == BELAY_ERR_EXISTS)
        return reply_error(
            a, err, "a member has that name, or that address, but not both, or it is leaving");
    if (err == BELAY_ERR_UNAVAILABLE)
        return reply_error(a, err,
                           "no leader has confirmed it in time; it may still take effect");
    return reply_error(a, err, "%s", err_text(err));
}

/* The secret is shown here only. A member that was let in needs none. */
static void say_added(struct server *s, struct reply *r, uint64_t id, const char *secret)
{
    struct arena *a = &s->reply_arena;
    struct replica *o = runtime_replica(s->runtime);
    struct admission join = {.node = id, .cluster = replica_cluster(o)};
    struct member m;
    char *text = arena_alloc(a, ADMISSION_TEXT_MAX);
    if (replica_find_member(o, id, &m) && !member_is_let_in(&m))
        memcpy(join.secret, secret, sizeof join.secret);
    admission_format(&join, text);
    reply_int(a, r, "id", (int64_t)id);
    reply_text(a, r, "join", slice_str(text));
}

static void on_answer(void *ctx, enum belay_err err, uint64_t id)
{
    struct pending_reply *p = ctx;
    struct server *s = p->conn->server;
    struct arena *a = &s->reply_arena;
    arena_reset(a);
    struct reply *r =
        err == BELAY_OK ? reply_new(a, REPLY_MAP) : failed(s, p->manner.command, err);
    if (err == BELAY_OK) {
        reply_text(a, r, "status", SLICE("ok"));
        if (p->manner.command == CMD_CLUSTER_ADD)
            say_added(s, r, id, p->secret);
    }
    pipeline_answer(p, r);
}

static bool has_nul(struct slice s)
{
    return s.len > 0 && memchr(s.data, 0, s.len);
}

static bool wish_of(const struct call *call, struct admin_request *ret)
{
    static const struct {
        enum command_id command;
        enum admin_kind kind;
    } kinds[] = {{CMD_CLUSTER_ADD, WISH_ADD},
                 {CMD_CLUSTER_REMOVE, WISH_REMOVE},
                 {CMD_CLUSTER_PRIORITY, WISH_PRIORITY},
                 {CMD_CLUSTER_TRANSFER, WISH_TRANSFER},
                 {CMD_CLUSTER_LEVEL, WISH_LEVEL}};
    if (call->text.len >= sizeof ret->name || call->peer.len >= sizeof ret->peer ||
        has_nul(call->text) || has_nul(call->peer))
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (call->command == command_get(kinds[i].command))
            ret->kind = kinds[i].kind;
    memcpy(ret->name, call->text.data, call->text.len);
    memcpy(ret->peer, call->peer.data, call->peer.len);
    if (ret->kind == WISH_PRIORITY)
        ret->priority = (uint8_t)call->number;
    if (ret->kind == WISH_TRANSFER)
        ret->group = (uint16_t)call->number;
    if (ret->kind == WISH_LEVEL)
        ret->level = (uint64_t)call->number;
    return true;
}

static void change(struct conn *c, const struct call *call, bool close)
{
    struct replica *o = runtime_replica(c->server->runtime);
    struct arena *a = &c->server->request_arena;
    struct admin_request wish = {0};
    if (!wish_of(call, &wish)) {
        pipeline_reply(c,
                       reply_error(a, BELAY_ERR_RANGE,
                                   "the name or address is too long, or has a NUL in it"),
                       close);
        return;
    }
    if (wish.group >= replica_groups(o)) {
        pipeline_reply(c, reply_error(a, BELAY_ERR_NOT_FOUND, "there is no such shard"), close);
        return;
    }
    struct pending_reply *p = pipeline_defer(c, call, close, forget);
    if (wish.kind == WISH_ADD) {
        p->secret = mem_zalloc(TOKEN_TEXT_BYTES);
        admission_draw(p->secret);
        admission_sum(p->secret, wish.join);
    }
    p->wish = replica_admin_ask(o, &wish, on_answer, p);
    if (!p->wish)
        on_answer(p, BELAY_ERR_LIMIT, 0);
}

void cluster_action(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    if (!s->runtime)
        pipeline_reply(c,
                       reply_error(&s->request_arena, BELAY_ERR_UNAVAILABLE,
                                   "this server keeps nothing on disk and is in no cluster"),
                       close);
    else if (call->command == command_get(CMD_CLUSTER_STATUS))
        pipeline_reply(c, status(s), close);
    else if (call->command == command_get(CMD_BACKUP_START) ||
             call->command == command_get(CMD_BACKUP_READ))
        backup_action(c, call, close);
    else
        change(c, call, close);
}
