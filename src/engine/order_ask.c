/* order_ask.c - what operators want changed: asked at any node, done by a leader.
 *
 *   order_raft_ask() -> WIRE_ASK to the leader of the group, again and again -> it changes the
 *   configuration of group 0, or hands over -> WIRE_TOLD -> answered when this node sees it
 *   committed
 *
 * Lost messages and new leaders do no harm: whatever is asked twice is done once, because it
 * says how things should be; a name that is added twice is found out by the number of the
 * question. One question of a node is on its way at a time. */
#include "base/check.h"
#include "base/mem.h"
#include "engine/member.h"
#include "engine/order_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct order_ask {
    struct order_ask *next;
    struct order_wish wish;
    uint64_t seq, give_up_ms, sent_ms;
    bool told; /* the leader has done it; it is to be seen here */
    order_answer *answer;
    void *ctx; /* NULL: nobody waits any more */
};

/* --- the configuration of group 0 --- */

static struct group_server *find_name(struct group_conf *conf, const char *name)
{
    for (size_t i = 0; i < conf->n; i++) {
        struct member m;
        member_parse(conf->servers[i].address, &m);
        if (strcmp(m.name, name) == 0)
            return &conf->servers[i];
    }
    return NULL;
}

/* Somebody else votes, stays and may lead. */
static bool others_lead(const struct order_raft *o, const struct group_conf *conf, uint64_t but)
{
    for (size_t i = 0; i < conf->n; i++) {
        const struct group_server *s = &conf->servers[i];
        struct member m;
        member_parse(s->address, &m);
        if (s->id != but && s->voter && !m.leaving &&
            order_raft_priority(o, s->id) < MEMBER_PRIORITY_NEVER)
            return true;
    }
    return false;
}

/* Replaces what is written of a member. */
static enum belay_err rewrite(struct order_raft *o, const struct group_server *s,
                              const struct member *m)
{
    struct group_server changed = *s;
    if (!member_format(m, changed.address))
        return BELAY_ERR_LIMIT;
    if (strcmp(changed.address, s->address) == 0)
        return BELAY_OK;
    return group_change(o->replicas[0].group, GROUP_EDIT, &changed, order_now(o));
}

static enum belay_err remove_member(struct order_raft *o, const struct group_conf *conf,
                                    const struct group_server *s)
{
    struct member m;
    member_parse(s->address, &m);
    m.leaving = true;
    return others_lead(o, conf, s->id) ? rewrite(o, s, &m) : BELAY_ERR_IN_USE;
}

static enum belay_err set_priority(struct order_raft *o, const struct group_conf *conf,
                                   const struct group_server *s, uint8_t priority)
{
    struct member m;
    if (priority == MEMBER_PRIORITY_NEVER && !others_lead(o, conf, s->id))
        return BELAY_ERR_IN_USE;
    member_parse(s->address, &m);
    m.priority = priority;
    return rewrite(o, s, &m);
}

/* A node that is alone may have been started as another one, or without a peer address, before.
 * Who joins it must be able to call it. BELAY_ERR_NOT_FOUND: it cannot. */
static enum belay_err know_self(struct order_raft *o, struct group_conf *conf)
{
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

static enum belay_err add_member(struct order_raft *o, struct group_conf *conf,
                                 const struct order_wish *wish)
{
    struct group_server s = {.id = 1 + order_raft_last_node(o)};
    struct member m = {.priority = MEMBER_PRIORITY_UNSET};
    if (s.id >= ORIGINS_MAX)
        return BELAY_ERR_LIMIT;
    snprintf(m.name, sizeof m.name, "%s", wish->name);
    snprintf(m.peer, sizeof m.peer, "%s", wish->peer);
    if (*m.name == '\0' || !member_is_address(m.peer) || !member_format(&m, s.address))
        return BELAY_ERR_RANGE;
    if (member_is_taken(conf, &m))
        return BELAY_ERR_EXISTS;
    enum belay_err err = know_self(o, conf);
    return err == BELAY_OK ? group_change(o->replicas[0].group, GROUP_ADD, &s, order_now(o))
                           : err;
}

/* By whoever leads the group; BELAY_ERR_NOT_LEADER, BELAY_ERR_UNAVAILABLE: not now. */
static enum belay_err perform(struct order_raft *o, const struct order_wish *wish)
{
    struct group_conf conf;
    group_conf(o->replicas[0].group, &conf);
    const struct group_server *s = find_name(&conf, wish->name);
    struct group *g = o->replicas[wish->group].group;
    if (group_role(g) != GROUP_LEADER)
        return BELAY_ERR_NOT_LEADER;
    lead_soon(o);
    if (wish->kind == WISH_ADD)
        return add_member(o, &conf, wish);
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
                   ? order_hand_over(&o->replicas[wish->group], s->id)
                   : BELAY_ERR_IN_USE;
    case WISH_ADD:
    case WISH_KIND_COUNT:
        break;
    }
    return BELAY_ERR_SYNTAX;
}

/* Is it so, as far as this node can see? */
static bool is_so(const struct order_raft *o, const struct order_wish *wish, uint64_t *ret_id)
{
    struct group_conf conf;
    struct member m;
    group_conf_committed(o->replicas[0].group, &conf);
    const struct group_server *s = find_name(&conf, wish->name);
    member_parse(s ? s->address : "", &m);
    *ret_id = s ? s->id : 0;
    switch (wish->kind) {
    case WISH_ADD:
        return s;
    case WISH_REMOVE:
        return !s || m.leaving;
    case WISH_PRIORITY:
        return !s || m.priority == wish->priority;
    case WISH_TRANSFER:
        return s && group_leader(o->replicas[wish->group].group) == s->id;
    case WISH_KIND_COUNT:
        break;
    }
    return false;
}

/* --- the node that is asked --- */

struct order_ask *order_raft_ask(struct order_raft *o, const struct order_wish *wish,
                                 order_answer *answer, void *ctx)
{
    BELAY_CHECK(wish->kind < WISH_KIND_COUNT);
    BELAY_CHECK(ctx);
    if (wish->group >= o->base.n_shards || o->n_asks >= ORDER_ASKS_MAX)
        return NULL;
    struct order_ask *ask = mem_zalloc(sizeof *ask);
    *ask = (struct order_ask){.wish = *wish,
                              .seq = ++o->ask_seq,
                              .give_up_ms = order_now(o) + ORDER_PATIENCE_MS,
                              .answer = answer,
                              .ctx = ctx};
    struct order_ask **end = &o->asks;
    while (*end)
        end = &(*end)->next;
    *end = ask;
    o->n_asks++;
    o->stirred = true;
    return ask;
}

void order_raft_ask_forget(struct order_ask *ask)
{
    ask->ctx = NULL;
}

static void answer_first(struct order_raft *o, enum belay_err err, uint64_t id)
{
    struct order_ask *ask = o->asks;
    o->asks = ask->next;
    o->n_asks--;
    if (ask->ctx)
        ask->answer(ask->ctx, err, id);
    free(ask);
}

static void take_answer(struct order_raft *o, enum belay_err err)
{
    if (err == BELAY_OK)
        o->asks->told = true;
    else if (err != BELAY_ERR_NOT_LEADER && err != BELAY_ERR_UNAVAILABLE)
        answer_first(o, err, 0);
}

static void ask_leader(struct order_raft *o, struct order_ask *ask)
{
    uint64_t leader = group_leader(o->replicas[ask->wish.group].group);
    ask->sent_ms = order_now(o);
    if (leader == o->config.node) {
        take_answer(o, perform(o, &ask->wish));
    } else if (leader) {
        struct wire msg = {.type = WIRE_ASK,
                           .shard = ask->wish.group,
                           .from = o->config.node,
                           .term = o->run,
                           .seq = ask->seq,
                           .index = ask->wish.kind,
                           .commit = ask->wish.priority,
                           .conf = slice_str(ask->wish.name),
                           .data = slice_str(ask->wish.peer)};
        order_send(o, leader, &msg);
    }
}

void ask_settle(struct order_raft *o)
{
    struct order_ask *ask = o->asks;
    uint64_t now = order_now(o);
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

void ask_done(struct order_raft *o)
{
    while (o->asks) {
        struct order_ask *ask = o->asks;
        o->asks = ask->next;
        free(ask);
    }
}

/* --- the leader --- */

static bool wish_of(const struct wire *msg, struct order_wish *ret)
{
    if (msg->index >= WISH_KIND_COUNT || msg->commit > MEMBER_PRIORITY_NEVER ||
        msg->conf.len >= sizeof ret->name || msg->data.len >= sizeof ret->peer ||
        memchr(msg->conf.data, 0, msg->conf.len) || memchr(msg->data.data, 0, msg->data.len))
        return false;
    *ret = (struct order_wish){.kind = (enum order_wish_kind)msg->index,
                               .group = msg->shard,
                               .priority = (uint8_t)msg->commit};
    memcpy(ret->name, msg->conf.data, msg->conf.len);
    memcpy(ret->peer, msg->data.data, msg->data.len);
    return true;
}

static void asked(struct order_raft *o, const struct wire *msg)
{
    struct answered *last = &o->answered[msg->from];
    struct order_wish wish;
    if (!wish_of(msg, &wish))
        return;
    if (last->run != msg->term || last->seq != msg->seq) {
        enum belay_err err = perform(o, &wish);
        if (err == BELAY_ERR_NOT_LEADER || err == BELAY_ERR_UNAVAILABLE)
            return; /* it asks again */
        *last = (struct answered){msg->term, msg->seq, err};
    }
    struct wire told = {.type = WIRE_TOLD,
                        .shard = msg->shard,
                        .from = o->config.node,
                        .term = msg->term,
                        .seq = msg->seq,
                        .reject = last->err};
    order_send(o, msg->from, &told);
}

void ask_receive(struct order_raft *o, const struct wire *msg)
{
    if (msg->type == WIRE_ASK)
        asked(o, msg);
    else if (o->asks && !o->asks->told && msg->term == o->run && msg->seq == o->asks->seq &&
             msg->reject <= BELAY_ERR_INTERNAL)
        take_answer(o, (enum belay_err)msg->reject);
}

enum belay_err order_raft_change(struct order_raft *o, enum group_change what,
                                 const struct group_server *server)
{
    struct group_conf conf;
    group_conf(o->replicas[0].group, &conf);
    const struct group_server *s = group_conf_find(&conf, server->id);
    lead_soon(o);
    if (what == GROUP_REMOVE)
        return s ? remove_member(o, &conf, s) : BELAY_ERR_NOT_FOUND;
    return group_change(o->replicas[0].group, what, server, order_now(o));
}
