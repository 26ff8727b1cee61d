/* replica_admin.c - what operators want changed: asked at any node, done by a leader.
 *
 *   this node    replica_admin_ask(): WIRE_ASK to the leader of the group, again and again
 *   the leader   changes the configuration of group 0, or hands over; then WIRE_TOLD
 *   this node    answers when it sees the change committed
 *
 * Lost messages and new leaders do no harm. A request says how things should be, so what is
 * asked twice is done once: a member that exists under that name and address has been added,
 * and one that does not exist has been removed. A node asks one thing at a time. */
#include "base/check.h"
#include "base/mem.h"
#include "machine/level.h"
#include "raft/member.h"
#include "raft/replica_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct admin_call {
    struct admin_call *next;
    struct admin_request wish;
    uint64_t seq, give_up_ms, sent_ms;
    bool told;    /* the leader has done it; it is to be seen here */
    bool existed; /* the member, when it was asked */
    admin_answer *answer;
    void *ctx; /* NULL: nobody waits any more */
};

/* --- the configuration of group 0 --- */

static struct group_server *find_name(struct group_conf *conf, const char *name)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    for (size_t i = 0; i < conf->n; i++) {
        struct member m;
        member_parse(conf->servers[i].address, &m);
        if (strcmp(m.name, name) == 0)
            return &conf->servers[i];
    }
    return NULL;
}

/* Somebody else votes, stays and may lead. */
static bool others_lead(const struct replica *o, const struct group_conf *conf, uint64_t but)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX && place_of(but) != 0);
    for (size_t i = 0; i < conf->n; i++) {
        const struct group_server *s = &conf->servers[i];
        struct member m;
        member_parse(s->address, &m);
        if (s->id != but && s->voter && !m.leaving &&
            replica_priority(o, s->id) < MEMBER_PRIORITY_NEVER)
            return true;
    }
    return false;
}

/* Replaces what is written of a member. */
static enum belay_err rewrite(struct replica *o, const struct group_server *s,
                              const struct member *m)
{
    BELAY_CHECK(place_of(s->id) != 0);
    struct group_server changed = *s;
    if (!member_format(m, changed.address))
        return BELAY_ERR_LIMIT;
    if (strcmp(changed.address, s->address) == 0)
        return BELAY_OK;
    return group_change(o->replicas[0].group, GROUP_EDIT, &changed, replica_now(o));
}

static enum belay_err remove_member(struct replica *o, const struct group_conf *conf,
                                    const struct group_server *s)
{
    BELAY_CHECK(s >= conf->servers && s < conf->servers + conf->n);
    struct member m;
    member_parse(s->address, &m);
    m.leaving = true;
    return others_lead(o, conf, s->id) ? rewrite(o, s, &m) : BELAY_ERR_IN_USE;
}

static enum belay_err set_priority(struct replica *o, const struct group_conf *conf,
                                   const struct group_server *s, uint8_t priority)
{
    BELAY_CHECK(priority <= MEMBER_PRIORITY_NEVER);
    struct member m;
    if (priority == MEMBER_PRIORITY_NEVER && !others_lead(o, conf, s->id))
        return BELAY_ERR_IN_USE;
    member_parse(s->address, &m);
    m.priority = priority;
    return rewrite(o, s, &m);
}

/* A node that is alone may have been started as another one, or without a peer address, before.
 * A node that joins must be able to call it. BELAY_ERR_NOT_FOUND: it cannot. */
static enum belay_err know_self(struct replica *o, struct group_conf *conf)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    const struct group_server *self = group_conf_find(conf, o->config.node);
    const struct group_server *now = group_conf_find(&o->config.members, o->config.node);
    struct member known;
    struct member m;
    if (conf->n > 1 || !self || !now)
        return BELAY_OK;
    member_parse(self->address, &known);
    member_parse(now->address, &m);
    if (!member_is_address(m.peer))
        return BELAY_ERR_NOT_FOUND;
    if (strcmp(known.name, m.name) == 0 && strcmp(known.peer, m.peer) == 0)
        return BELAY_OK;
    m.priority = known.priority;
    enum belay_err err = rewrite(o, self, &m);
    return err == BELAY_OK ? BELAY_ERR_UNAVAILABLE : err; /* when that is done */
}

/* What was to be added is there. */
static bool is_member(struct group_conf *conf, const struct admin_request *wish)
{
    BELAY_CHECK(wish->kind == WISH_ADD);
    const struct group_server *s = find_name(conf, wish->name);
    struct member m;
    member_parse(s ? s->address : "", &m);
    return s && strcmp(m.peer, wish->peer) == 0 && !m.leaving;
}

/* For a member that has not been let in yet, the secret that was printed last counts. */
static enum belay_err renew_secret(struct replica *o, const struct group_server *s,
                                   const struct admin_request *wish)
{
    BELAY_CHECK(wish->kind == WISH_ADD);
    struct member m;
    member_parse(s->address, &m);
    if (member_is_let_in(&m))
        return BELAY_OK;
    memcpy(m.join, wish->join, sizeof m.join);
    return rewrite(o, s, &m);
}

static enum belay_err add_member(struct replica *o, struct group_conf *conf,
                                 const struct admin_request *wish)
{
    BELAY_CHECK(wish->kind == WISH_ADD);
    struct group_server s = {.id = replica_next_node(o)};
    BELAY_DCHECK(!group_conf_find(conf, s.id));
    struct member m = {.priority = MEMBER_PRIORITY_UNSET};
    if (s.id >= NODE_PLACES && engine_level(o->engine, 0) < LEVEL_PLACES)
        return BELAY_ERR_LIMIT; /* until all members know larger numbers */
    snprintf(m.name, sizeof m.name, "%s", wish->name);
    snprintf(m.peer, sizeof m.peer, "%s", wish->peer);
    memcpy(m.join, wish->join, sizeof m.join);
    if (!member_is_name(wish->name) || !member_is_address(m.peer) ||
        !member_format(&m, s.address))
        return BELAY_ERR_RANGE;
    if (is_member(conf, wish))
        return renew_secret(o, find_name(conf, wish->name), wish);
    if (member_is_taken(conf, &m))
        return BELAY_ERR_EXISTS;
    enum belay_err err = know_self(o, conf);
    return err == BELAY_OK ? group_change(o->replicas[0].group, GROUP_ADD, &s, replica_now(o))
                           : err;
}

void admin_let_in(struct replica_group *r)
{
    BELAY_CHECK(r->group_no == 0);
    struct group_conf conf;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++) {
        struct member m;
        member_parse(conf.servers[i].address, &m);
        if (!conf.servers[i].voter || member_is_let_in(&m))
            continue;
        memset(m.join, 0, sizeof m.join);
        (void)rewrite(r->o, &conf.servers[i], &m); /* if not now, then a second later */
        return;
    }
}

/* On the leader of the group. BELAY_ERR_NOT_LEADER, BELAY_ERR_UNAVAILABLE: not now. */
static enum belay_err perform(struct replica *o, const struct admin_request *wish)
{
    BELAY_CHECK(wish->group < o->base.n_groups && wish->kind < WISH_KIND_COUNT);
    struct group_conf conf;
    group_conf(o->replicas[0].group, &conf);
    const struct group_server *s = find_name(&conf, wish->name);
    struct group *g = o->replicas[wish->group].group;
    if (group_role(g) != GROUP_LEADER)
        return BELAY_ERR_NOT_LEADER;
    lead_soon(o);
    if (wish->kind == WISH_ADD)
        return add_member(o, &conf, wish);
    if (wish->kind == WISH_LEVEL)
        return level_wish(&o->replicas[0], wish->level);
    if (!s)
        return BELAY_ERR_NOT_FOUND;
    switch (wish->kind) {
    case WISH_REMOVE:
        return remove_member(o, &conf, s);
    case WISH_PRIORITY:
        return set_priority(o, &conf, s, wish->priority);
    case WISH_TRANSFER:
        if (s->id == o->config.node)
            return BELAY_OK;
        return lead_may_take(&o->replicas[wish->group], s->id)
                   ? replica_hand_over(&o->replicas[wish->group], s->id)
                   : BELAY_ERR_IN_USE;
    case WISH_ADD:
    case WISH_LEVEL:
    case WISH_KIND_COUNT:
        break;
    }
    return BELAY_ERR_SYNTAX;
}

/* Is it so, as far as this node can see? */
static bool is_so(const struct replica *o, const struct admin_request *wish, uint64_t *ret_id)
{
    BELAY_CHECK(wish->group < o->base.n_groups);
    struct group_conf conf;
    struct member m;
    group_conf_committed(o->replicas[0].group, &conf);
    const struct group_server *s = find_name(&conf, wish->name);
    member_parse(s ? s->address : "", &m);
    *ret_id = s ? s->id : 0;
    switch (wish->kind) {
    case WISH_ADD:
        return is_member(&conf, wish) &&
               (member_is_let_in(&m) || memcmp(m.join, wish->join, sizeof m.join) == 0);
    case WISH_REMOVE:
        return !s || m.leaving;
    case WISH_PRIORITY:
        return !s || m.priority == wish->priority;
    case WISH_TRANSFER:
        return s && group_leader(o->replicas[wish->group].group) == s->id;
    case WISH_LEVEL:
        return level_is_reached(o, wish->level);
    case WISH_KIND_COUNT:
        break;
    }
    return false;
}

/* --- the node that is asked --- */

struct admin_call *replica_admin_ask(struct replica *o, const struct admin_request *wish,
                                     admin_answer *answer, void *ctx)
{
    BELAY_CHECK(wish->kind < WISH_KIND_COUNT);
    BELAY_CHECK(ctx);
    if (wish->group >= o->base.n_groups || o->n_asks >= ORDER_ASKS_MAX)
        return NULL;
    struct admin_call *ask = mem_zalloc(sizeof *ask);
    *ask = (struct admin_call){.wish = *wish,
                               .seq = ++o->ask_seq,
                               .give_up_ms = replica_now(o) + ORDER_PATIENCE_MS,
                               .existed = find_name(&o->members, wish->name),
                               .answer = answer,
                               .ctx = ctx};
    struct admin_call **end = &o->asks;
    while (*end)
        end = &(*end)->next;
    *end = ask;
    o->n_asks++;
    BELAY_DCHECK(o->n_asks <= ORDER_ASKS_MAX);
    o->stirred = true;
    return ask;
}

void replica_admin_forget(struct admin_call *ask)
{
    BELAY_DCHECK(ask->seq > 0 && ask->answer);
    ask->ctx = NULL;
}

static void answer_first(struct replica *o, enum belay_err err, uint64_t id)
{
    BELAY_CHECK(o->asks && o->n_asks > 0);
    struct admin_call *ask = o->asks;
    o->asks = ask->next;
    o->n_asks--;
    BELAY_DCHECK((o->asks == NULL) == (o->n_asks == 0));
    if (ask->ctx)
        ask->answer(ask->ctx, err, id);
    free(ask);
}

static void take_answer(struct replica *o, enum belay_err err)
{
    BELAY_CHECK(o->asks);
    const struct admin_call *ask = o->asks;
    if (err == BELAY_ERR_NOT_FOUND && ask->wish.kind == WISH_REMOVE && ask->existed)
        answer_first(o, BELAY_OK, 0); /* by a leader that was asked before */
    else if (err == BELAY_OK)
        o->asks->told = true;
    else if (err != BELAY_ERR_NOT_LEADER && err != BELAY_ERR_UNAVAILABLE)
        answer_first(o, err, 0);
}

static void ask_leader(struct replica *o, struct admin_call *ask)
{
    BELAY_CHECK(ask == o->asks);
    BELAY_DCHECK(ask->wish.group < o->base.n_groups);
    uint64_t leader = group_leader(o->replicas[ask->wish.group].group);
    ask->sent_ms = replica_now(o);
    if (leader == o->config.node) {
        take_answer(o, perform(o, &ask->wish));
    } else if (leader) {
        struct peer_message msg = {.type = WIRE_ASK,
                                   .group_no = ask->wish.group,
                                   .from = o->config.node,
                                   .term = o->run,
                                   .seq = ask->seq,
                                   .index = ask->wish.kind,
                                   .commit = ask->wish.priority,
                                   .log_term = ask->wish.level,
                                   .features = ask->wish.join[0],
                                   .conf_index = ask->wish.join[1],
                                   .conf = slice_str(ask->wish.name),
                                   .data = slice_str(ask->wish.peer)};
        replica_send(o, leader, &msg);
    }
}

void admin_settle(struct replica *o)
{
    BELAY_CHECK((o->asks == NULL) == (o->n_asks == 0));
    struct admin_call *ask = o->asks;
    uint64_t now = replica_now(o);
    uint64_t id;
    if (!ask)
        return;
    if (ask->told && is_so(o, &ask->wish, &id))
        answer_first(o, BELAY_OK, id);
    else if (now >= ask->give_up_ms)
        answer_first(o, BELAY_ERR_UNAVAILABLE, 0);
    else if (!(ask->told && ask->wish.kind == WISH_TRANSFER) && /* once: meanwhile none leads */
             (ask->sent_ms == 0 || now - ask->sent_ms >= ORDER_PROBE_MS))
        ask_leader(o, ask);
}

void admin_done(struct replica *o)
{
    BELAY_DCHECK((o->asks == NULL) == (o->n_asks == 0));
    while (o->asks) {
        struct admin_call *ask = o->asks;
        o->asks = ask->next;
        free(ask);
    }
}

/* --- the leader --- */

static bool wish_of(const struct peer_message *msg, struct admin_request *ret)
{
    BELAY_CHECK(msg->type == WIRE_ASK);
    if (msg->index >= WISH_KIND_COUNT || msg->commit > MEMBER_PRIORITY_NEVER ||
        msg->conf.len >= sizeof ret->name || msg->data.len >= sizeof ret->peer ||
        memchr(msg->conf.data, 0, msg->conf.len) || memchr(msg->data.data, 0, msg->data.len))
        return false;
    *ret = (struct admin_request){.kind = (enum admin_kind)msg->index,
                                  .group = msg->group_no,
                                  .priority = (uint8_t)msg->commit,
                                  .level = msg->log_term,
                                  .join = {msg->features, msg->conf_index}};
    memcpy(ret->name, msg->conf.data, msg->conf.len);
    memcpy(ret->peer, msg->data.data, msg->data.len);
    return true;
}

static void asked(struct replica *o, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no < o->base.n_groups && msg->from != o->config.node);
    struct answered *last = &o->answered[place_of(msg->from)];
    struct admin_request wish;
    if (!wish_of(msg, &wish))
        return;
    if (msg->term < last->run || (msg->term == last->run && msg->seq < last->seq))
        return; /* late: it has asked for something else since */
    if (last->run != msg->term || last->seq != msg->seq) {
        enum belay_err err = perform(o, &wish);
        if (err == BELAY_ERR_NOT_LEADER || err == BELAY_ERR_UNAVAILABLE)
            return; /* it asks again */
        *last = (struct answered){msg->term, msg->seq, err};
    }
    struct peer_message told = {.type = WIRE_TOLD,
                                .group_no = msg->group_no,
                                .from = o->config.node,
                                .term = msg->term,
                                .seq = msg->seq,
                                .reject = last->err};
    replica_send(o, msg->from, &told);
}

void admin_receive(struct replica *o, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_ASK || msg->type == WIRE_TOLD);
    if (msg->type == WIRE_ASK)
        asked(o, msg);
    else if (o->asks && !o->asks->told && msg->term == o->run && msg->seq == o->asks->seq &&
             msg->reject < BELAY_ERR_COUNT)
        take_answer(o, (enum belay_err)msg->reject);
}

enum belay_err replica_change(struct replica *o, enum group_change what,
                              const struct group_server *server)
{
    BELAY_CHECK(place_of(server->id) != 0);
    struct group_conf conf;
    group_conf(o->replicas[0].group, &conf);
    const struct group_server *s = group_conf_find(&conf, server->id);
    lead_soon(o);
    if (what == GROUP_REMOVE)
        return s ? remove_member(o, &conf, s) : BELAY_ERR_NOT_FOUND;
    return group_change(o->replicas[0].group, what, server, replica_now(o));
}
