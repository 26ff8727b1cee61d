/* order_raft.c - ops on their way to the log and out of it; see order_raft.h. */
#include "engine/order_raft.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/order_core.h"
#include "machine/machine.h"
#include "machine/varint.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct order_raft *order_raft_of(struct order *o)
{
    return (struct order_raft *)(void *)o;
}

struct group *order_raft_group(struct order_raft *o, size_t shard)
{
    return o->replicas[shard].group;
}

struct journal *order_raft_journal(struct order_raft *o)
{
    return o->journal;
}

uint64_t order_raft_last_node(const struct order_raft *o)
{
    const struct replica *r = &o->replicas[0];
    struct group_conf conf;
    uint64_t last = 0;
    group_conf(r->group, &conf);
    for (size_t i = 0; i < conf.n; i++)
        last = conf.servers[i].id > last ? conf.servers[i].id : last;
    for (size_t i = 0; i < r->n_origins; i++)
        last = r->origins[i].node > last ? r->origins[i].node : last;
    return last;
}

uint64_t order_raft_cluster(const struct order_raft *o)
{
    return o->cluster;
}

size_t order_raft_groups(const struct order_raft *o)
{
    return o->base.n_shards;
}

uint64_t order_raft_run(const struct order_raft *o)
{
    return o->run;
}

bool order_alone(const struct replica *r)
{
    struct group_conf conf;
    group_conf(r->group, &conf);
    return group_conf_voters(&conf) == 1;
}

static void send_frame(struct order_raft *o, uint64_t to)
{
    struct buf *frame = &o->out[to];
    BELAY_CHECK(!frame->oom);
    o->host->send(o->ctx, to, buf_slice(frame));
    buf_clear(frame);
    if (frame->cap > ORDER_FRAME_BYTES)
        buf_done(frame);
}

void order_send(struct order_raft *o, uint64_t to, const struct wire *msg)
{
    if (to >= ORIGINS_MAX)
        return;
    o->stirred |= !o->settling; /* that ends with sending */
    if (to >= o->out_end)
        o->out_end = to + 1;
    wire_put(msg, &o->out[to]);
    if (buf_len(&o->out[to]) >= ORDER_FRAME_BYTES)
        send_frame(o, to);
}

/* --- origins --- */

struct origin *order_origin(struct replica *r, uint64_t node)
{
    for (size_t i = 0; i < r->n_origins; i++)
        if (r->origins[i].node == node)
            return &r->origins[i];
    return NULL;
}

struct origin *order_origin_get(struct replica *r, uint64_t node)
{
    struct origin *o = order_origin(r, node);
    if (o)
        return o;
    BELAY_CHECK(r->n_origins < ORIGINS_MAX);
    o = &r->origins[r->n_origins++];
    *o = (struct origin){.node = node};
    return o;
}

/* --- out of the log --- */

static void drop_applied(struct replica *r, uint64_t number)
{
    while (r->first && r->first->number && r->first->number <= number) {
        struct pending *p = r->first;
        r->first = p->next;
        if (r->unsent == p)
            r->unsent = p->next;
        r->n_pending--;
        free(p);
    }
    if (!r->first)
        r->end = &r->first;
}

static void apply_record(struct replica *r, struct reader *in, uint64_t now)
{
    struct order_raft *o = r->o;
    uint64_t node = reader_u64(in);
    uint64_t run = reader_u64(in);
    uint64_t number = reader_u64(in);
    struct slice bytes = reader_bytes(in);
    BELAY_CHECK(!in->bad);
    struct origin *origin = order_origin_get(r, node);
    if (run < origin->run)
        return;        /* of a process that is no more */
    if (number == 0) { /* by the leader: that run is over */
        if (run == origin->run)
            run_over(r, origin, run + 1, now);
        return;
    }
    if (run > origin->run) /* it has started again: who waited through its last run is gone */
        run_over(r, origin, run, now);
    if (number <= origin->applied && !(o->config.canaries & CANARY_TWICE))
        return; /* it came by two ways */
    BELAY_DCHECK(number == origin->applied + 1 || (o->config.canaries & CANARY_TWICE));
    origin->applied = number;
    struct op op;
    enum belay_err err = op_decode(bytes, &o->arena, &op);
    BELAY_CHECK(err == BELAY_OK);
    op.now_ms = now;
    engine_ordered(o->engine, r->shard, &op);
    arena_reset(&o->arena);
    if (node == o->config.node && run == o->run)
        drop_applied(r, number);
}

static void apply_entry(void *ctx, uint16_t shard, uint64_t index, struct slice data)
{
    struct order_raft *o = ctx;
    struct replica *r = &o->replicas[shard];
    struct reader in = {.left = data};
    (void)index;
    o->stirred = true;
    uint8_t version = reader_byte(&in);
    BELAY_CHECK(version == ENTRY_VERSION);
    uint64_t now = reader_u64(&in);
    r->log_bytes += data.len;
    while (in.left.len > 0)
        apply_record(r, &in, now);
}

/* --- into the log --- */

enum { HEAD_BYTES_MAX = 64 }; /* of an entry and of a record */

static void propose(struct replica *r)
{
    struct order_raft *o = r->o;
    if (buf_len(&r->proposal) == 0)
        return;
    struct buf entry = {0};
    (void)buf_reserve(&entry, HEAD_BYTES_MAX + buf_len(&r->proposal));
    buf_put_byte(&entry, ENTRY_VERSION);
    varint_put(&entry, engine_stamp(o->engine, r->shard));
    buf_put_slice(&entry, buf_slice(&r->proposal));
    BELAY_CHECK(!entry.oom);
    buf_clear(&r->proposal);
    r->proposed_ms = order_now(o);
    /* Refused only when it has just stopped leading: then all of it is sent to the next one. */
    if (group_propose(r->group, buf_slice(&entry), order_now(o)) != BELAY_OK)
        r->leads = false;
    buf_done(&entry);
}

static_assert(GROUP_ENTRY_BYTES_MAX > LIMIT_PROGRAM_BYTES + (LIMIT_BATCH_SESSIONS + 1) * 128,
              "every op that op_validate() lets pass must fit an entry");

/* Takes an op into the log if it is the next one of its origin. */
static void take_op(struct replica *r, uint64_t node, uint64_t run, uint64_t number,
                    struct slice op)
{
    struct origin *origin = order_origin_get(r, node);
    if (run > origin->log_run) {
        origin->log_run = run;
        origin->proposed = 0;
    }
    /* A leader that took nothing for a while (it wanted to hand over, and could not) may have
     * had something of its own in the log then: what is applied was proposed. */
    if (origin->log_run == origin->run && origin->proposed < origin->applied)
        origin->proposed = origin->applied;
    bool again = r->o->config.canaries & CANARY_TWICE && number <= origin->proposed;
    if (run < origin->log_run || (number != origin->proposed + 1 && !again))
        return; /* in the log already, or something before it got lost and comes again */
    if (buf_len(&r->proposal) + op.len + (size_t)2 * HEAD_BYTES_MAX > ORDER_BATCH_BYTES)
        propose(r); /* what is there; a larger op is then an entry of its own */
    origin->proposed = number;
    varint_put(&r->proposal, node);
    varint_put(&r->proposal, run);
    varint_put(&r->proposal, number);
    varint_put_bytes(&r->proposal, op);
}

static void number_pending(struct replica *r, struct pending *p)
{
    if (!p->number)
        p->number = r->next_number++;
}

static void pump_own(struct replica *r)
{
    while (r->unsent && r->leads) {
        struct pending *p = r->unsent;
        r->unsent = p->next;
        number_pending(r, p);
        take_op(r, r->o->config.node, r->o->run, p->number, p->op);
    }
}

/* Tells the leader what it has not been told, as often as it takes. */
static void pump_forward(struct replica *r, uint64_t leader)
{
    struct order_raft *o = r->o;
    while (r->unsent) {
        struct buf data = {0};
        number_pending(r, r->unsent);
        struct wire msg = {.type = WIRE_FORWARD,
                           .shard = r->shard,
                           .from = o->config.node,
                           .term = o->run,
                           .seq = r->unsent->number};
        while (r->unsent && buf_len(&data) < ORDER_FORWARD_BYTES) {
            number_pending(r, r->unsent);
            varint_put_bytes(&data, r->unsent->op);
            r->unsent = r->unsent->next;
        }
        msg.data = buf_slice(&data);
        order_send(o, leader, &msg);
        buf_done(&data);
        r->sent_ms = order_now(o);
    }
}

/* Elected, but what is from before is not applied yet: a moment later it can be taken. */
static void keep_early(struct replica *r, const struct wire *msg)
{
    if (group_role(r->group) != GROUP_LEADER ||
        buf_len(&r->early) + msg->data.len > EARLY_BYTES_MAX)
        return; /* it comes again */
    struct buf frame = {0};
    wire_encode(msg, &frame);
    varint_put_bytes(&r->early, buf_slice(&frame));
    buf_done(&frame);
}

static void forwarded(struct replica *r, const struct wire *msg);

static void take_early(struct replica *r)
{
    struct buf early = r->early;
    struct reader in = {.left = buf_slice(&early)};
    struct arena a = {0};
    r->early = (struct buf){0};
    while (in.left.len > 0) {
        struct wire msg;
        enum belay_err err = wire_decode(reader_bytes(&in), &a, &msg);
        BELAY_CHECK(err == BELAY_OK);
        forwarded(r, &msg);
    }
    arena_done(&a);
    buf_done(&early);
}

static void forwarded(struct replica *r, const struct wire *msg)
{
    struct reader in = {.left = msg->data};
    uint64_t number = msg->seq;
    if (number == 0)
        return;
    if (!r->leads) {
        keep_early(r, msg);
        return;
    }
    while (in.left.len > 0 && r->leads) {
        struct slice bytes = reader_bytes(&in);
        struct op op;
        const char *what;
        if (in.bad || bytes.len + 128 > GROUP_ENTRY_BYTES_MAX ||
            op_decode(bytes, &r->o->arena, &op) != BELAY_OK ||
            op_validate(&op, &what) != BELAY_OK || op_is_read(op.kind)) {
            log_error("order.forward_bad", "node=%" PRIu64 " shard=%u", msg->from, r->shard);
            arena_reset(&r->o->arena);
            return;
        }
        arena_reset(&r->o->arena);
        take_op(r, msg->from, msg->term, number++, bytes);
    }
}

static void add_pending(struct replica *r, const struct op *op, uint64_t give_up_ms)
{
    struct buf *bytes = &r->o->encoded;
    buf_clear(bytes);
    op_encode(op, bytes);
    BELAY_CHECK(!bytes->oom);
    struct pending *p = mem_alloc(sizeof *p + buf_len(bytes));
    char *copy = (char *)(p + 1);
    memcpy(copy, buf_data(bytes), buf_len(bytes));
    *p = (struct pending){.no = ++r->no,
                          .asker = op->asker,
                          .give_up_ms = give_up_ms,
                          .op = slice_of(copy, buf_len(bytes))};
    *r->end = p;
    r->end = &p->next;
    r->n_pending++;
    if (!r->unsent)
        r->unsent = p;
}

/* The first op of a run tells everybody that the runs before are over; that of a leader commits
 * something in its own term. It never gives up. */
void order_announce(struct replica *r)
{
    struct op tick = {.kind = OP_TICK};
    add_pending(r, &tick, UINT64_MAX);
}

/* --- who leads --- */

/* What was taken goes into the log before: nobody has to say it again. */
enum belay_err order_hand_over(struct replica *r, uint64_t to)
{
    if (r->leads)
        propose(r);
    return group_transfer(r->group, to, order_now(r->o));
}

static void start_leading(struct replica *r)
{
    r->leads = true;
    for (size_t i = 0; i < r->n_origins; i++) {
        r->origins[i].log_run = r->origins[i].run;
        r->origins[i].proposed = r->origins[i].applied;
    }
    buf_clear(&r->proposal);
    order_announce(r);
    r->unsent = r->first;
    if (r->led_term != group_term(r->group)) /* else it goes on: the others have heard it */
        engine_lead(r->o->engine, r->shard, r->heard_ms);
    r->led_term = group_term(r->group);
    take_early(r);
    log_info("order.leader", "shard=%u term=%" PRIu64 " index=%" PRIu64, r->shard,
             group_term(r->group), group_applied(r->group));
}

static void group_changed(void *ctx, uint16_t shard)
{
    struct order_raft *o = ctx;
    struct replica *r = &o->replicas[shard];
    if (!r->group)
        return;
    uint64_t leader = group_leader(r->group);
    lead_soon(o);
    if (shard == 0 && o->opened)
        lead_follow(o);
    if (r->sent_term == group_term(r->group) && r->sent_leader == leader)
        return;
    r->sent_term = group_term(r->group);
    r->sent_leader = leader;
    if (leader && o->opened)
        lead_rank(r);
    r->leads = false; /* until everything from before is applied */
    buf_clear(&r->early);
    r->unsent = r->first;
    read_lost(r);
}

/* What was never sent can be forgotten; what was sent may come back any time. */
static void give_up(struct replica *r)
{
    uint64_t now = order_now(r->o);
    struct pending **at = &r->first;
    struct pending *last = NULL;
    while (*at) {
        struct pending *p = *at;
        if (p->given_up || p->give_up_ms > now) {
            last = p;
            at = &p->next;
            continue;
        }
        p->given_up = true;
        engine_unavailable(r->o->engine, r->shard, p->asker, p->number != 0,
                           p->number ? "no majority in time; it may still take effect"
                                     : "no leader in time");
        if (p->number) {
            last = p;
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (r->unsent == p)
            r->unsent = p->next;
        if (!p->next)
            r->end = last ? &last->next : &r->first;
        r->n_pending--;
        free(p);
    }
}

static void settle_replica(struct replica *r)
{
    struct order_raft *o = r->o;
    bool able = group_ready(r->group) && !group_transferring(r->group);
    if (able && !r->leads)
        start_leading(r);
    if (!able)
        r->leads = false;
    uint64_t leader = group_leader(r->group);
    if (r->leads) {
        pump_own(r);
    } else if (leader && leader != o->config.node) {
        pump_forward(r, leader);
    }
    group_tell_commit(r->group);
    read_settle(r);
}

static void send_frames(struct order_raft *o)
{
    for (uint64_t to = 0; to < o->out_end; to++)
        if (buf_len(&o->out[to]) > 0)
            send_frame(o, to);
}

/* What came while the last write was under way becomes one entry of each group, which this
 * node and the others write once. */
void order_raft_write(struct order_raft *o)
{
    if (order_raft_due(o) == 0)
        return;
    for (size_t i = 0; i < o->base.n_shards; i++)
        if (order_may_propose(&o->replicas[i]))
            propose(&o->replicas[i]);
    send_frames(o);
    struct journal_job *job = journal_job_take(o->journal);
    if (job)
        o->host->write(o->ctx, job);
}

/* Everything has been said for now: send, propose, write. An answer given on the way may not
 * come back in here (the engine sees to that), but the host's write may. */
void order_raft_settle(struct order_raft *o)
{
    if (o->settling || !o->opened)
        return;
    o->settling = true;
    o->stirred = false;
    engine_post(o->engine);
    for (size_t i = 0; i < o->base.n_shards; i++)
        settle_replica(&o->replicas[i]);
    ask_settle(o);
    fetch_settle(o);
    if (o->config.canaries & CANARY_EARLY_ACK)
        for (size_t i = 0; i < o->base.n_shards; i++)
            if (!group_installing(o->replicas[i].group))
                group_durable(o->replicas[i].group, UINT64_MAX, order_now(o));
    store_settle(o);
    o->settling = false;
    send_frames(o);
    if (!o->config.host_writes)
        order_raft_write(o);
}

void order_disk_failed(struct order_raft *o, int code)
{
    char text[256];
    snprintf(text, sizeof text,
             "cannot write to the data directory: %s; nothing that was acknowledged is lost, "
             "what was pending is unknown; start again when the disk is sound",
             strerror(code));
    o->host->fatal(o->ctx, text);
}

void order_raft_written(struct order_raft *o, struct journal_job *job)
{
    int code;
    if (journal_job_done(o->journal, job, &code) != BELAY_OK) {
        order_disk_failed(o, code);
        return;
    }
    uint64_t durable = journal_durable(o->journal);
    for (size_t i = 0; i < o->base.n_shards; i++)
        group_durable(o->replicas[i].group, durable, order_now(o));
}

/* --- messages and time --- */

/* With its entries and heartbeats a leader says what time it is. A lease in a quiet shard is
 * then not as much longer as the shard was quiet when another one takes over. */
static void group_send(void *ctx, uint64_t to, const struct wire *msg)
{
    struct order_raft *o = ctx;
    struct wire timed = *msg;
    if (msg->type == WIRE_APPEND && o->replicas[msg->shard].leads)
        timed.seq = engine_stamp(o->engine, msg->shard);
    order_send(o, to, &timed);
}

/* What an earlier leader said counts no more when there is another one: that one may have begun
 * before, and what it has granted since would end too early. */
static void hear_leader(struct replica *r, const struct wire *msg)
{
    uint64_t leader = group_leader(r->group);
    uint64_t term = group_term(r->group);
    if (leader && leader != r->o->config.node && r->heard_term != term) {
        r->heard_term = term;
        r->heard_ms = 0;
    }
    if (msg->type != WIRE_APPEND || msg->term != term || msg->from != leader)
        return;
    r->heard_at = order_now(r->o);
    if (msg->seq > r->heard_ms)
        r->heard_ms = msg->seq;
    r->heard_commit = msg->commit;
}

static void receive_message(struct order_raft *o, const struct wire *msg)
{
    struct replica *r = &o->replicas[msg->shard];
    lead_hear(o, msg);
    if (msg->type == WIRE_FORWARD)
        forwarded(r, msg);
    else if (msg->type == WIRE_ASK || msg->type == WIRE_TOLD)
        ask_receive(o, msg);
    else if (msg->type == WIRE_SNAPSHOT || msg->type == WIRE_FETCH || msg->type == WIRE_PIECE)
        fetch_receive(r, msg);
    else if (msg->type >= WIRE_PROBE)
        read_receive(r, msg);
    else
        group_receive(r->group, msg, order_now(o));
    hear_leader(r, msg);
}

void order_raft_receive(struct order_raft *o, uint64_t node, struct slice frame)
{
    struct slice left = frame;
    struct arena a = {0};
    o->stirred = true;
    while (left.len > 0) {
        struct wire msg;
        if (!o->opened || wire_next(&left, &a, &msg) != BELAY_OK ||
            msg.shard >= o->base.n_shards || msg.from != node || node == o->config.node ||
            node >= ORIGINS_MAX) {
            log_error("order.message_bad", "node=%" PRIu64 " bytes=%zu", node, frame.len);
            break;
        }
        receive_message(o, &msg);
        arena_reset(&a);
    }
    arena_done(&a);
}

void order_raft_peer_up(struct order_raft *o, uint64_t node)
{
    o->stirred = true;
    lead_tell(o, node);
    for (size_t i = 0; i < o->base.n_shards; i++) {
        struct replica *r = &o->replicas[i];
        if (group_leader(r->group) == node)
            r->unsent = r->first;
    }
}

/* When one group speaks to the others, those that would do so soon do it at the same time: one
 * frame for all of them, and after a few rounds always the same ones together. */
static unsigned heartbeat_slack(const struct order_raft *o, uint64_t now)
{
    for (size_t i = 0; i < o->base.n_shards; i++)
        if (group_next_ms(o->replicas[i].group) <= now)
            return o->config.heartbeat_ms / 2;
    return 0;
}

void order_raft_tick(struct order_raft *o)
{
    uint64_t now = order_now(o);
    unsigned slack = heartbeat_slack(o, now);
    for (size_t i = 0; i < o->base.n_shards; i++) {
        struct replica *r = &o->replicas[i];
        group_tick(r->group, now, slack);
        if (r->first && !r->leads && now - r->sent_ms >= ORDER_RESEND_MS)
            r->unsent = r->first;
        give_up(r);
    }
    run_look(o);
    lead_tick(o);
    if (now >= o->give_up_ms) {
        o->give_up_ms = now + ORDER_RESEND_MS;
        engine_give_up(o->engine);
    }
}

/* --- the order that the engine sees --- */

static void raft_submit(struct order *base, size_t shard, struct op *op)
{
    struct order_raft *o = order_raft_of(base);
    struct replica *r = &o->replicas[shard];
    o->stirred = true;
    /* There are no more cancels than there were requests. */
    if (r->n_pending >= ORDER_PENDING_MAX && op->kind != OP_CANCEL)
        engine_unavailable(o->engine, shard, op->asker, false, "too many requests are waiting");
    else {
        op->now_ms = 0; /* the leader says when */
        add_pending(r, op, order_now(o) + ORDER_PATIENCE_MS + op->wait_ms);
    }
}

static void raft_read(struct order *base, size_t shard, const struct op *op)
{
    struct order_raft *o = order_raft_of(base);
    o->stirred = true;
    read_add(&o->replicas[shard], op);
}

/* Twice a turn of the loop; what the host does it settles itself. */
static void raft_flush(struct order *base)
{
    if (order_raft_of(base)->stirred)
        order_raft_settle(order_raft_of(base));
}

static bool raft_leads(const struct order *base, size_t shard)
{
    return ((const struct order_raft *)(const void *)base)->replicas[shard].leads;
}

static bool raft_idle(const struct order *base)
{
    return order_raft_idle((const struct order_raft *)(const void *)base);
}

static const struct group_env group_env = {store_persist, group_send,   apply_entry,
                                           group_changed, fetch_newest, store_install,
                                           store_restore};

/* The engine is there: the state comes from the snapshots, then from the entries behind them.
 */
static void raft_open(struct order *base, struct engine *e)
{
    struct order_raft *o = order_raft_of(base);
    o->engine = e;
    for (size_t i = 0; i < base->n_shards; i++) {
        struct replica *r = &o->replicas[i];
        store_restore_state(r);
        struct group_config config = {.env = &group_env,
                                      .ctx = o,
                                      .shard = (uint16_t)i,
                                      .id = o->config.node,
                                      .election_ms = o->config.election_ms,
                                      .heartbeat_ms = o->config.heartbeat_ms,
                                      .seed = (unsigned)(o->config.seed + i * 7919),
                                      .guards_off = o->config.guards_off,
                                      .inflight = o->config.inflight ? o->config.inflight
                                                                     : GROUP_INFLIGHT_MAX};
        r->group = group_open(&config, &r->loaded, order_now(o));
        group_durable(r->group, journal_durable(o->journal), order_now(o));
        group_changed(o, (uint16_t)i);
        if (!group_ready(r->group)) /* who leads at once says so in start_leading() */
            order_announce(r);
    }
    o->look_ms = o->opened_ms = order_now(o);
    o->opened = true;
    o->steer_ms = order_now(o) + ORDER_STEER_MS;
    lead_follow(o);
    for (size_t i = 0; i < base->n_shards; i++)
        lead_rank(&o->replicas[i]);
    order_raft_settle(o);
}

static void raft_close(struct order *base)
{
    struct order_raft *o = order_raft_of(base);
    for (size_t i = 0; i < base->n_shards; i++) {
        struct replica *r = &o->replicas[i];
        while (r->first) {
            struct pending *p = r->first;
            r->first = p->next;
            free(p);
        }
        read_done(r);
        group_close(r->group);
        entry_log_done(&r->loaded.log);
        machine_close(r->state);
        buf_done(&r->proposal);
        buf_done(&r->early);
    }
    for (size_t i = 0; i < ORIGINS_MAX; i++)
        buf_done(&o->out[i]);
    fetch_done(o);
    ask_done(o);
    store_close(o);
    arena_done(&o->arena);
    buf_done(&o->encoded);
    free(o->replicas);
    free(o);
}

static const struct order_ops raft_ops = {.open = raft_open,
                                          .submit = raft_submit,
                                          .read = raft_read,
                                          .flush = raft_flush,
                                          .leads = raft_leads,
                                          .age = see_age,
                                          .not_ready = see_not_ready,
                                          .idle = raft_idle,
                                          .close = raft_close};

enum belay_err order_raft_open(const struct order_raft_config *config, struct order **ret_order)
{
    BELAY_CHECK(config->node > 0 && config->node < 128);
    BELAY_CHECK(config->groups > 0 && config->groups <= JOURNAL_SHARDS_MAX);
    struct order_raft *o = mem_zalloc(sizeof *o);
    o->base.ops = &raft_ops;
    o->base.patience_ms = UINT64_C(2) * ORDER_PATIENCE_MS;
    o->config = *config;
    o->host = config->host;
    o->ctx = config->host_ctx;
    o->drained = !config->drains;
    if (o->config.silence_ms == 0)
        o->config.silence_ms = ORDER_SILENCE_MS;
    enum belay_err err = store_identify(o);
    o->replicas = mem_zalloc(o->base.n_shards * sizeof *o->replicas);
    for (size_t i = 0; i < o->base.n_shards; i++) {
        struct replica *r = &o->replicas[i];
        r->o = o;
        r->shard = (uint16_t)i;
        r->end = &r->first;
        r->reads_end = &r->reads;
        r->next_number = 1;
        r->round = o->run << 32; /* an answer to an earlier run never fits */
    }
    if (err == BELAY_OK)
        err = store_open(o);
    if (err != BELAY_OK) {
        raft_close(&o->base);
        return err;
    }
    o->base.id_base = order_id_base(o->config.node, o->run);
    *ret_order = &o->base;
    return BELAY_OK;
}
