/* replica_read.c - linearizable reads.
 *
 * Leader: a round asks every voter "is this still your term?" and takes the commit index of
 * that moment; with a majority of answers no other leader can have committed more before the
 * round began, so reads from before it are answered as soon as that index is applied. One round
 * at a time: what comes meanwhile goes into the next one. Another node asks the leader for the
 * index of a round and reads its own state. */
#include "base/check.h"
#include "base/mem.h"
#include "raft/replica_core.h"

#include <stdlib.h>
#include <string.h>

void read_add(struct replica_group *r, const struct op *op)
{
    BELAY_CHECK(op_is_read(op->kind));
    struct buf bytes = {0};
    op_encode(op, &bytes);
    BELAY_CHECK(!bytes.oom);
    struct pending_read *q = mem_alloc(sizeof *q + buf_len(&bytes));
    char *copy = (char *)(q + 1);
    memcpy(copy, buf_data(&bytes), buf_len(&bytes));
    *q = (struct pending_read){.no = r->no,
                               .asker = op->asker,
                               .give_up_ms = replica_now(r->o) + ORDER_PATIENCE_MS,
                               .op = slice_of(copy, buf_len(&bytes))};
    buf_done(&bytes);
    BELAY_CHECK(!*r->reads_end);
    *r->reads_end = q;
    r->reads_end = &q->next;
}

static void ask_voters(struct replica_group *r)
{
    BELAY_CHECK(r->leads);
    struct group_conf conf;
    group_conf(r->group, &conf);
    struct peer_message probe = {.type = WIRE_PROBE,
                                 .group_no = r->group_no,
                                 .from = r->o->config.node,
                                 .term = r->round_term,
                                 .seq = r->round};
    for (size_t i = 0; i < conf.n; i++)
        if (conf.servers[i].voter && conf.servers[i].id != r->o->config.node)
            replica_send(r->o, conf.servers[i].id, &probe);
}

static void ask(struct replica_group *r)
{
    BELAY_CHECK(r->round > 0);
    r->round_ms = replica_now(r->o) + 1; /* never 0 */
    if (r->leads) {
        ask_voters(r);
        return;
    }
    uint64_t leader = group_leader(r->group);
    struct peer_message msg = {
        .type = WIRE_READ, .group_no = r->group_no, .from = r->o->config.node, .seq = r->round};
    if (leader && leader != r->o->config.node)
        replica_send(r->o, leader, &msg);
}

static bool waiting_for_round(const struct replica_group *r)
{
    BELAY_CHECK(r->n_remote <= REMOTE_READS_MAX);
    for (const struct pending_read *q = r->reads; q; q = q->next)
        if (q->round == 0)
            return true;
    for (size_t i = 0; i < r->n_remote; i++)
        if (r->remote[i].round == 0)
            return true;
    return false;
}

static void round_done(struct replica_group *r, uint64_t index, uint64_t now_ms)
{
    BELAY_CHECK(r->n_remote <= REMOTE_READS_MAX);
    for (struct pending_read *q = r->reads; q; q = q->next) {
        if (q->round == r->round && q->index == 0) {
            q->index = index ? index : 1;
            q->now_ms = now_ms;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < r->n_remote; i++) {
        struct peer_message msg = {.type = WIRE_READ_AT,
                                   .group_no = r->group_no,
                                   .from = r->o->config.node,
                                   .seq = r->remote[i].seq,
                                   .index = index,
                                   .commit = now_ms};
        if (r->remote[i].round == r->round)
            replica_send(r->o, r->remote[i].node, &msg);
        else
            r->remote[kept++] = r->remote[i];
    }
    r->n_remote = kept;
    r->round_ms = 0;
}

static void round_begin(struct replica_group *r)
{
    BELAY_CHECK(r->round_ms == 0);
    r->round++;
    r->round_term = group_term(r->group);
    r->round_index = group_commit(r->group);
    memset(r->acks, 0, sizeof r->acks);
    for (struct pending_read *q = r->reads; q; q = q->next)
        if (q->round == 0)
            q->round = r->round;
    for (size_t i = 0; i < r->n_remote; i++)
        if (r->remote[i].round == 0)
            r->remote[i].round = r->round;
    if (r->leads && (replica_alone(r) || (r->o->config.canaries & CANARY_BLIND_READ)))
        round_done(r, r->round_index, engine_stamp(r->o->engine, r->group_no));
    else
        ask(r);
}

void read_lost(struct replica_group *r)
{
    BELAY_CHECK(r->n_remote <= REMOTE_READS_MAX);
    r->round_ms = 0;
    r->n_remote = 0;
    for (struct pending_read *q = r->reads; q; q = q->next)
        if (q->index == 0)
            q->round = 0;
}

/* The oldest op of this node that is not applied yet. */
static uint64_t oldest_pending(const struct replica_group *r)
{
    for (const struct pending_op *p = r->first; p; p = p->next)
        if (!p->given_up)
            return p->no;
    return UINT64_MAX;
}

static void answer_reads(struct replica_group *r)
{
    BELAY_CHECK(r->reads);
    struct replica *o = r->o;
    uint64_t applied = group_applied(r->group);
    uint64_t now = replica_now(o);
    struct pending_read **at = &r->reads;
    while (*at) {
        struct pending_read *q = *at;
        bool ready = q->index && q->index <= applied && q->no < oldest_pending(r);
        bool late = !ready && q->give_up_ms <= now;
        if (!ready && !late) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        struct op op;
        enum belay_err err = op_decode(q->op, &o->arena, &op);
        BELAY_CHECK(err == BELAY_OK);
        BELAY_CHECK(op_is_read(op.kind));
        op.now_ms = q->now_ms;
        if (ready)
            engine_readable(o->engine, r->group_no, &op);
        else
            engine_unavailable(o->engine, r->group_no, q->asker, false, "no majority in time");
        arena_reset(&o->arena);
        free(q);
    }
    r->reads_end = at;
}

void read_settle(struct replica_group *r)
{
    BELAY_CHECK(r->o->settling);
    bool can =
        r->leads || (group_leader(r->group) && group_leader(r->group) != r->o->config.node);
    if (r->round_ms == 0 && can && waiting_for_round(r))
        round_begin(r);
    else if (r->round_ms && replica_now(r->o) >= r->round_ms + ORDER_PROBE_MS)
        ask(r);
    if (r->reads)
        answer_reads(r);
}

static void count_ack(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_PROBE_ACK && place_of(msg->from) != 0);
    struct group_conf conf;
    size_t yes = 1; /* this node's own */
    if (!r->leads || r->round_ms == 0 || msg->seq != r->round || msg->term != r->round_term ||
        group_term(r->group) != r->round_term)
        return;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++) {
        uint64_t id = conf.servers[i].id;
        if (id == msg->from)
            r->acks[place_of(id)] = id;
        if (id != r->o->config.node && conf.servers[i].voter)
            yes += r->acks[place_of(id)] == id;
    }
    const struct group_server *self = group_conf_find(&conf, r->o->config.node);
    if (!self || !self->voter)
        yes--;
    BELAY_CHECK(yes <= group_conf_voters(&conf));
    if (yes > group_conf_voters(&conf) / 2)
        round_done(r, r->round_index, engine_stamp(r->o->engine, r->group_no));
}

static void remote_add(struct replica_group *r, const struct peer_message *msg)
{
    if (!r->leads)
        return; /* it asks again */
    for (size_t i = 0; i < r->n_remote; i++) {
        if (r->remote[i].node != msg->from)
            continue;
        if (r->remote[i].seq != msg->seq) /* a new question, so it needs a new round */
            r->remote[i] = (struct remote_read){msg->from, msg->seq, 0};
        return;
    }
    if (r->n_remote < REMOTE_READS_MAX)
        r->remote[r->n_remote++] = (struct remote_read){msg->from, msg->seq, 0};
    BELAY_CHECK(r->n_remote <= REMOTE_READS_MAX);
}

void read_receive(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type >= WIRE_PROBE && msg->from != r->o->config.node);
    if (msg->type == WIRE_PROBE) {
        struct peer_message ack = {.type = WIRE_PROBE_ACK,
                                   .group_no = r->group_no,
                                   .from = r->o->config.node,
                                   .term = msg->term,
                                   .seq = msg->seq};
        if (group_term(r->group) == msg->term && group_may_vouch(r->group))
            replica_send(r->o, msg->from, &ack);
    } else if (msg->type == WIRE_PROBE_ACK) {
        count_ack(r, msg);
    } else if (msg->type == WIRE_READ) {
        remote_add(r, msg);
    } else if (msg->type == WIRE_READ_AT) {
        if (!r->leads && r->round_ms && msg->seq == r->round &&
            msg->from == group_leader(r->group) && msg->commit <= GROUP_NUMBER_MAX)
            round_done(r, msg->index, msg->commit);
    }
}

void read_done(struct replica_group *r)
{
    while (r->reads) {
        struct pending_read *q = r->reads;
        r->reads = q->next;
        free(q);
    }
}
