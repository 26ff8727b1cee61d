/* replica.c - ops on their way to the log and out of it; see replica.h. */
#include "raft/replica.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "machine/machine.h"
#include "machine/varint.h"
#include "raft/replica_core.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct order_ops raft_ops;

struct replica *replica_of(struct order *o)
{
    BELAY_DCHECK(o->ops == &raft_ops);
    return (struct replica *)(void *)o;
}

bool replica_alone(const struct replica_group *r)
{
    BELAY_CHECK(r->group);
    struct group_conf conf;
    group_conf(r->group, &conf);
    return group_conf_voters(&conf) == 1;
}

static void send_frame(struct replica *o, size_t place)
{
    BELAY_CHECK(place > 0 && o->seen[place] != 0);
    struct buf *frame = &o->out[place];
    BELAY_CHECK(!frame->oom);
    BELAY_CHECK(buf_len(frame) > 0);
    o->env->send(o->ctx, o->seen[place], buf_slice(frame));
    buf_clear(frame);
    if (frame->cap > ORDER_FRAME_BYTES)
        buf_done(frame);
}

void replica_send(struct replica *o, uint64_t to, const struct peer_message *msg)
{
    BELAY_CHECK(msg->from == o->config.node && to != o->config.node);
    size_t place = place_of(to);
    if (!replica_see_node(o, to))
        return;
    o->stirred |= !o->settling; /* that ends with sending */
    if (place >= o->out_end)
        o->out_end = place + 1;
    peer_message_put(msg, &o->out[place]);
    if (buf_len(&o->out[place]) >= ORDER_FRAME_BYTES)
        send_frame(o, place);
}

/* --- origins --- */

struct origin *replica_origin(struct replica_group *r, uint64_t node)
{
    struct origin *origin = &r->origins[place_of(node)];
    BELAY_DCHECK(origin->node == 0 || place_of(origin->node) == place_of(node));
    return origin->node == node ? origin : NULL;
}

/* Of a record in the log. The first record of a newer node ends the waits through the node that
 * had its place before. NULL: the record is of that earlier node. */
static struct origin *origin_of_record(struct replica_group *r, uint64_t node, uint64_t now)
{
    BELAY_CHECK(place_of(node) != 0);
    struct origin *origin = &r->origins[place_of(node)];
    if (origin->node > node)
        return NULL;
    if (origin->node < node) {
        if (origin->node)
            run_over(r, origin, origin->run + 1, now);
        *origin = (struct origin){.node = node};
    }
    return origin;
}

/* --- out of the log --- */

static void drop_applied(struct replica_group *r, uint64_t number)
{
    while (r->first && r->first->number && r->first->number <= number) {
        struct pending_op *p = r->first;
        r->first = p->next;
        if (r->unsent == p)
            r->unsent = p->next;
        BELAY_CHECK(r->n_pending > 0);
        r->n_pending--;
        free(p);
    }
    if (!r->first)
        r->end = &r->first;
    BELAY_CHECK((r->first == NULL) == (r->n_pending == 0));
}

static void apply_record(struct replica_group *r, struct reader *in, uint64_t now)
{
    BELAY_CHECK(in->left.len > 0 && !r->o->over);
    struct replica *o = r->o;
    uint64_t node = reader_u64(in);
    uint64_t run = reader_u64(in);
    uint64_t number = reader_u64(in);
    struct slice bytes = reader_bytes(in);
    BELAY_CHECK(!in->bad);
    struct origin *origin = origin_of_record(r, node, now);
    if (!origin || run < origin->run)
        return;        /* of a process that is no more */
    if (number == 0) { /* by the leader */
        if (run == origin->run)
            run_word(r, origin, bytes, now);
        return;
    }
    if (run > origin->run) /* it has started again: waits through its last run are over */
        run_over(r, origin, run, now);
    if (number <= origin->applied && !(o->config.canaries & CANARY_TWICE))
        return; /* it came by two ways */
    BELAY_CHECK(origin->node == node && origin->run == run);
    origin->applied = number;
    struct op op;
    enum belay_err err = op_decode(bytes, &o->arena, &op);
    BELAY_CHECK(err == BELAY_OK);
    op.now_ms = now;
    if (op.kind == OP_TICK && op.target) {
        origin->start = op.target;
        start_check(r);
    }
    if (!o->over)
        engine_ordered(o->engine, r->group_no, &op);
    arena_reset(&o->arena);
    if (node == o->config.node && run == o->run)
        drop_applied(r, number);
}

/* At the start nobody waits for anything else. */
static bool has_worked_enough(const struct replica *o)
{
    return o->opened && engine_work(o->engine) >= o->work_until;
}

/* What is committed together may cost more than a turn of the loop may take: then the rest of
 * it comes in the next ones, op by op. */
static bool apply_entry(void *ctx, uint16_t group_no, uint64_t index, struct slice data)
{
    BELAY_CHECK(group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    struct replica_group *r = &o->replicas[group_no];
    struct reader in = {.left = data};
    o->stirred = true;
    if (o->over)
        return true; /* this process is void, and about to end */
    if (has_worked_enough(o))
        return false;
    uint8_t version = reader_byte(&in);
    BELAY_CHECK(version == ENTRY_VERSION || version == ENTRY_LEVEL);
    uint64_t now = reader_u64(&in);
    if (version == ENTRY_LEVEL)
        level_apply(r, &in, now);
    BELAY_DCHECK(r->entry_done < data.len && (r->entry_done == 0 || version == ENTRY_VERSION));
    if (r->entry_done)
        in.left = slice_of(data.data + r->entry_done, data.len - r->entry_done);
    while (version == ENTRY_VERSION && in.left.len > 0 && !o->over && !has_worked_enough(o))
        apply_record(r, &in, now);
    bool done = version == ENTRY_LEVEL || in.left.len == 0 || o->over;
    r->entry_done = done ? 0 : data.len - in.left.len;
    r->log_bytes += done ? data.len : 0;
    if (done)
        timing_applied(r, index);
    return done;
}

/* --- into the log --- */

enum { HEAD_BYTES_MAX = 64 }; /* of an entry and of a record */

static void propose(struct replica_group *r)
{
    struct replica *o = r->o;
    if (buf_len(&r->proposal) == 0)
        return;
    struct buf entry = {0};
    (void)buf_reserve(&entry, HEAD_BYTES_MAX + buf_len(&r->proposal));
    buf_put_byte(&entry, ENTRY_VERSION);
    varint_put(&entry, engine_stamp(o->engine, r->group_no));
    buf_put_slice(&entry, buf_slice(&r->proposal));
    BELAY_CHECK(!entry.oom);
    BELAY_CHECK(buf_len(&entry) <= GROUP_ENTRY_BYTES_MAX);
    buf_clear(&r->proposal);
    r->proposed_ms = replica_now(o);
    /* Refused only when it has just stopped leading: then all of it is sent to the next one. */
    if (group_propose(r->group, buf_slice(&entry), replica_now(o)) != BELAY_OK)
        r->leads = false;
    else
        timing_proposed(r);
    buf_done(&entry);
}

static_assert(GROUP_ENTRY_BYTES_MAX > LIMIT_PROGRAM_BYTES + (LIMIT_BATCH_SESSIONS + 1) * 128,
              "every op that op_validate() lets pass must fit an entry");

/* The node that hands over an op, and the number of the op among its own. */
struct handed {
    uint64_t node, start, run, number;
};

/* Takes an op into the log if it is the next one of its origin. */
static void take_op(struct replica_group *r, const struct handed *by, struct slice op)
{
    BELAY_CHECK(r->leads && op.len > 0 && by->number > 0);
    struct ahead *a = replica_ahead(r, by->node);
    const struct origin *origin = replica_origin(r, by->node);
    uint64_t run = by->run, number = by->number;
    if (!a || start_is_over(by->start, a->start))
        return;
    a->start = by->start;
    if (run > a->run)
        *a = (struct ahead){.node = by->node, .run = run, .start = by->start};
    /* A leader that took nothing for a while (it wanted to hand over, and could not) may have
     * had something of its own in the log then: what is applied was proposed. */
    if (origin && a->run == origin->run && a->proposed < origin->applied)
        a->proposed = origin->applied;
    bool again = r->o->config.canaries & CANARY_TWICE && number <= a->proposed;
    if (run < a->run || (number != a->proposed + 1 && !again))
        return; /* in the log already, or something before it got lost and comes again */
    if (buf_len(&r->proposal) + op.len + (size_t)2 * HEAD_BYTES_MAX > ORDER_BATCH_BYTES)
        propose(r); /* what is there; a larger op is then an entry of its own */
    a->proposed = number;
    varint_put(&r->proposal, by->node);
    varint_put(&r->proposal, run);
    varint_put(&r->proposal, number);
    varint_put_bytes(&r->proposal, op);
}

static void number_pending(struct replica_group *r, struct pending_op *p)
{
    if (!p->number)
        p->number = r->next_number++;
    BELAY_CHECK(p->number > 0 && p->number < r->next_number);
}

/* Until every group knows this start, nothing but the start itself is said in any of them. */
static bool may_pump(const struct replica_group *r)
{
    BELAY_CHECK(!r->unsent || r->first);
    return r->unsent && (r->unsent->announces || r->o->n_doubts == 0);
}

static void pump_own(struct replica_group *r)
{
    BELAY_CHECK(group_role(r->group) == GROUP_LEADER);
    while (may_pump(r) && r->leads) {
        struct pending_op *p = r->unsent;
        r->unsent = p->next;
        number_pending(r, p);
        const struct replica *o = r->o;
        take_op(r, &(struct handed){o->config.node, o->start, o->run, p->number}, p->op);
    }
}

/* Tells the leader what it has not been told, as often as it takes. */
static void pump_forward(struct replica_group *r, uint64_t leader)
{
    BELAY_CHECK(!r->leads && leader != 0 && leader != r->o->config.node);
    struct replica *o = r->o;
    while (may_pump(r)) {
        struct buf data = {0};
        number_pending(r, r->unsent);
        struct peer_message msg = {.type = WIRE_FORWARD,
                                   .group_no = r->group_no,
                                   .from = o->config.node,
                                   .term = o->run,
                                   .log_term = o->start,
                                   .seq = r->unsent->number};
        while (may_pump(r) && buf_len(&data) < ORDER_FORWARD_BYTES) {
            number_pending(r, r->unsent);
            varint_put_bytes(&data, r->unsent->op);
            r->unsent = r->unsent->next;
        }
        msg.data = buf_slice(&data);
        replica_send(o, leader, &msg);
        buf_done(&data);
        r->sent_ms = replica_now(o);
    }
}

/* Elected, but what is from before is not applied yet: a moment later it can be taken. */
static void keep_early(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(!r->leads && msg->type == WIRE_FORWARD);
    if (group_role(r->group) != GROUP_LEADER ||
        buf_len(&r->early) + msg->data.len > EARLY_BYTES_MAX)
        return; /* it comes again */
    struct buf frame = {0};
    peer_message_encode(msg, &frame);
    varint_put_bytes(&r->early, buf_slice(&frame));
    buf_done(&frame);
}

static void take_early(struct replica_group *r)
{
    BELAY_CHECK(group_ready(r->group));
    struct buf early = r->early;
    struct reader in = {.left = buf_slice(&early)};
    struct arena a = {0};
    r->early = (struct buf){0};
    while (in.left.len > 0) {
        struct peer_message msg;
        enum belay_err err = peer_message_decode(reader_bytes(&in), &a, &msg);
        BELAY_CHECK(err == BELAY_OK);
        order_forwarded(r, &msg);
    }
    arena_done(&a);
    buf_done(&early);
}

void order_forwarded(struct replica_group *r, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type == WIRE_FORWARD && msg->from != r->o->config.node);
    struct reader in = {.left = msg->data};
    uint64_t number = msg->seq;
    if (!r->leads) {
        keep_early(r, msg);
        return;
    }
    while (in.left.len > 0 && r->leads) {
        struct slice bytes = reader_bytes(&in);
        take_op(r, &(struct handed){msg->from, msg->log_term, msg->term, number++}, bytes);
    }
}

static struct pending_op *add_pending(struct replica_group *r, const struct op *op,
                                      uint64_t give_up_ms)
{
    struct buf *bytes = &r->o->encoded;
    buf_clear(bytes);
    op_encode(op, bytes);
    BELAY_CHECK(!bytes->oom);
    struct pending_op *p = mem_alloc(sizeof *p + buf_len(bytes));
    char *copy = (char *)(p + 1);
    memcpy(copy, buf_data(bytes), buf_len(bytes));
    *p = (struct pending_op){.no = ++r->no,
                             .asker = op->asker,
                             .give_up_ms = give_up_ms,
                             .op = slice_of(copy, buf_len(bytes))};
    BELAY_CHECK(!*r->end);
    *r->end = p;
    r->end = &p->next;
    r->n_pending++;
    if (!r->unsent)
        r->unsent = p;
    BELAY_CHECK(r->unsent && r->n_pending > 0);
    return p;
}

void replica_set_run(struct replica *o, uint64_t run)
{
    BELAY_CHECK(run > 0);
    BELAY_DCHECK(run >= o->run);
    o->run = run;
    o->start = start_number(run, o->config.seed);
    o->base.id_base = replica_id_base(o->config.node, run);
}

/* The first op of a run tells everybody that the runs before are over; that of a leader commits
 * something in its own term. It never gives up. */
void replica_announce(struct replica_group *r)
{
    BELAY_CHECK(r->o->start != 0);
    struct op tick = {.kind = OP_TICK, .target = r->o->start};
    add_pending(r, &tick, UINT64_MAX)->announces = true;
}

/* --- leading --- */

/* What was taken goes into the log before: nobody has to say it again. */
enum belay_err replica_hand_over(struct replica_group *r, uint64_t to)
{
    BELAY_CHECK(to != r->o->config.node);
    if (r->leads)
        propose(r);
    return group_transfer(r->group, to, replica_now(r->o));
}

static void start_leading(struct replica_group *r)
{
    BELAY_CHECK(!r->leads && group_ready(r->group));
    r->leads = true;
    buf_clear(&r->proposal);
    run_lead(r); /* first of all: what comes next may have something to give */
    replica_announce(r);
    r->unsent = r->first;
    if (r->led_term != group_term(r->group)) /* else it goes on: the others have heard it */
        engine_lead(r->o->engine, r->group_no, r->heard_ms);
    r->led_term = group_term(r->group);
    level_lead(r);
    take_early(r);
    log_info("order.leader", "shard=%u term=%" PRIu64 " index=%" PRIu64, r->group_no,
             group_term(r->group), group_applied(r->group));
}

static void group_changed(void *ctx, uint16_t group_no)
{
    BELAY_CHECK(group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    struct replica_group *r = &o->replicas[group_no];
    if (!r->group)
        return;
    uint64_t leader = group_leader(r->group);
    lead_soon(o);
    if (group_no == 0 && o->opened)
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
static void give_up(struct replica_group *r)
{
    uint64_t now = replica_now(r->o);
    struct pending_op **at = &r->first;
    struct pending_op *last = NULL;
    while (*at) {
        struct pending_op *p = *at;
        if (p->given_up || p->give_up_ms > now) {
            last = p;
            at = &p->next;
            continue;
        }
        p->given_up = true;
        const char *why =
            p->number ? "no majority in time; it may still take effect" : "no leader in time";
        engine_unavailable(r->o->engine, r->group_no, p->asker, p->number != 0,
                           r->o->full ? full_text : why);
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
        BELAY_CHECK(r->n_pending > 0);
        r->n_pending--;
        free(p);
    }
    BELAY_CHECK(!*r->end);
}

static void settle_replica(struct replica_group *r)
{
    BELAY_CHECK(r->group && r->o->settling);
    struct replica *o = r->o;
    group_go_on(r->group, replica_now(o));
    bool able = group_ready(r->group) && !group_transferring(r->group) && !o->full;
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

static void send_frames(struct replica *o)
{
    BELAY_CHECK(o->out_end <= NODE_PLACES);
    for (size_t place = 0; place < o->out_end; place++)
        if (buf_len(&o->out[place]) > 0)
            send_frame(o, place);
}

/* What came while the last write was under way becomes one entry of each group, which this
 * node and the others write once. */
void replica_write(struct replica *o)
{
    BELAY_CHECK(!o->settling);
    if (replica_due(o) == 0)
        return;
    for (size_t i = 0; i < o->base.n_groups; i++)
        if (replica_may_propose(&o->replicas[i]))
            propose(&o->replicas[i]);
    send_frames(o);
    struct journal_job *job = journal_job_take(o->journal);
    if (job)
        o->env->write(o->ctx, job);
}

/* Everything has been said for now: send, propose, write. An answer given on the way may not
 * come back in here (the engine sees to that), but the runtime's write may. */
void replica_settle(struct replica *o)
{
    if (o->settling || !o->opened || o->over)
        return;
    o->settling = true;
    o->stirred = false;
    engine_exchange(o->engine);
    for (size_t i = 0; i < o->base.n_groups; i++)
        settle_replica(&o->replicas[i]);
    admin_settle(o);
    fetch_settle(o);
    backup_settle(o);
    if (o->config.canaries & CANARY_EARLY_ACK)
        for (size_t i = 0; i < o->base.n_groups; i++)
            if (!group_installing(o->replicas[i].group))
                group_durable(o->replicas[i].group, UINT64_MAX, replica_now(o));
    store_settle(o);
    BELAY_DCHECK(o->settling);
    o->settling = false;
    send_frames(o);
    if (!o->config.env_writes)
        replica_write(o);
}

void replica_disk_failed(struct replica *o, int code)
{
    BELAY_CHECK(o->journal);
    char text[256];
    snprintf(text, sizeof text,
             "cannot write to the data directory: %s; nothing that was acknowledged is lost, "
             "the outcome of pending requests is unknown; start again when the disk is sound",
             strerror(code));
    o->env->fatal(o->ctx, text);
}

void replica_written(struct replica *o, struct journal_job *job)
{
    BELAY_CHECK(job && o->journal);
    int code;
    if (journal_job_done(o->journal, job, &code) != BELAY_OK) {
        replica_disk_failed(o, code);
        return;
    }
    full_look(o);
    uint64_t durable = journal_durable(o->journal);
    for (size_t i = 0; i < o->base.n_groups; i++)
        group_durable(o->replicas[i].group, durable, replica_now(o));
}

/* --- messages and time --- */

/* With its entries and heartbeats a leader says what time it is. A lease in a quiet shard is
 * then not as much longer as the shard was quiet when another one takes over. */
static void group_send(void *ctx, uint64_t to, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    struct peer_message timed = *msg;
    if (msg->type == WIRE_APPEND && o->replicas[msg->group_no].leads)
        timed.seq = engine_stamp(o->engine, msg->group_no);
    replica_send(o, to, &timed);
}

void replica_peer_up(struct replica *o, uint64_t node)
{
    BELAY_CHECK(o->opened && node != o->config.node);
    o->stirred = true;
    lead_tell(o, node);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        group_hope(r->group);
        if (group_leader(r->group) == node)
            r->unsent = r->first;
    }
}

/* When one group speaks to the others, those that would do so soon do it at the same time: one
 * frame for all of them, and after a few rounds always the same ones together. */
static unsigned heartbeat_slack(const struct replica *o, uint64_t now)
{
    for (size_t i = 0; i < o->base.n_groups; i++)
        if (group_next_ms(o->replicas[i].group) <= now)
            return o->config.heartbeat_ms / 2;
    return 0;
}

void replica_tick(struct replica *o)
{
    BELAY_CHECK(o->opened);
    uint64_t now = replica_now(o);
    unsigned slack = heartbeat_slack(o, now);
    o->work_until = engine_work(o->engine) + o->config.turn_work;
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
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
        backup_tick(o);
    }
}

/* --- the order that the engine sees --- */

static void raft_submit(struct order *base, size_t group_no, struct op *op)
{
    BELAY_CHECK(group_no < base->n_groups && !op_is_read(op->kind));
    BELAY_CHECK(op->now_ms == 0); /* the leader says when */
    struct replica *o = replica_of(base);
    struct replica_group *r = &o->replicas[group_no];
    o->stirred = true;
    /* There are no more cancels than there were requests. */
    if (o->full && op->kind != OP_CANCEL)
        engine_unavailable(o->engine, group_no, op->asker, false, full_text);
    else if (r->n_pending >= ORDER_PENDING_MAX && op->kind != OP_CANCEL)
        engine_unavailable(o->engine, group_no, op->asker, false,
                           "too many requests are waiting");
    else
        (void)add_pending(r, op, replica_now(o) + ORDER_PATIENCE_MS + op->wait_ms);
}

static void raft_read(struct order *base, size_t group_no, struct op *op)
{
    BELAY_CHECK(group_no < base->n_groups && op_is_read(op->kind));
    struct replica *o = replica_of(base);
    o->stirred = true;
    if (o->full)
        engine_unavailable(o->engine, group_no, op->asker, false, full_text);
    else
        read_add(&o->replicas[group_no], op);
}

/* Twice a turn of the loop; what the runtime does it settles itself. */
static void raft_flush(struct order *base)
{
    if (replica_of(base)->stirred)
        replica_settle(replica_of(base));
}

static bool raft_leads(const struct order *base, size_t group_no)
{
    BELAY_CHECK(group_no < base->n_groups);
    return ((const struct replica *)(const void *)base)->replicas[group_no].leads;
}

static bool raft_idle(const struct order *base)
{
    return replica_idle((const struct replica *)(const void *)base);
}

static const char *problem_of_entry(void *ctx, uint16_t group_no, struct slice data)
{
    BELAY_CHECK(group_no < ((struct replica *)ctx)->base.n_groups);
    struct replica *o = ctx;
    return entry_problem(&o->replicas[group_no], data);
}

static const struct group_env group_env = {.persist = store_persist,
                                           .send = group_send,
                                           .apply = apply_entry,
                                           .problem = problem_of_entry,
                                           .changed = group_changed,
                                           .newest = fetch_newest,
                                           .install = store_install,
                                           .restore = store_restore};

/* The engine is there: the state comes from the snapshots, then from the entries behind them.
 */
static void raft_open(struct order *base, struct engine *e)
{
    struct replica *o = replica_of(base);
    BELAY_CHECK(!o->opened && !o->engine);
    o->engine = e;
    for (size_t i = 0; i < base->n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        store_restore_state(r);
        struct group_config config = {.env = &group_env,
                                      .ctx = o,
                                      .group_no = (uint16_t)i,
                                      .id = o->config.node,
                                      .election_ms = o->config.election_ms,
                                      .heartbeat_ms = o->config.heartbeat_ms,
                                      .seed = (unsigned)(o->config.seed + i * 7919),
                                      .guards_off = o->config.guards_off,
                                      .inflight = o->config.inflight ? o->config.inflight
                                                                     : GROUP_INFLIGHT_MAX};
        r->group = group_open(&config, &r->loaded, replica_now(o));
        group_durable(r->group, journal_durable(o->journal), replica_now(o));
        group_changed(o, (uint16_t)i);
        start_doubt(r);
        if (!group_ready(r->group)) /* a node that leads at once says so in start_leading() */
            replica_announce(r);
    }
    o->look_ms = o->opened_ms = replica_now(o);
    o->work_until = engine_work(e) + o->config.turn_work;
    o->opened = true;
    o->placement_ms = replica_now(o) + ORDER_STEER_MS;
    full_look(o);
    lead_follow(o);
    for (size_t i = 0; i < base->n_groups; i++)
        lead_rank(&o->replicas[i]);
    replica_settle(o);
}

static void raft_close(struct order *base)
{
    struct replica *o = replica_of(base);
    for (size_t i = 0; i < base->n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        BELAY_DCHECK(r->o == o && r->group_no == i);
        while (r->first) {
            struct pending_op *p = r->first;
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
    for (size_t i = 0; i < NODE_PLACES; i++)
        buf_done(&o->out[i]);
    fetch_done(o);
    backup_done(o);
    admin_done(o);
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
                                          .age = status_age,
                                          .not_ready = status_not_ready,
                                          .idle = raft_idle,
                                          .close = raft_close};

enum belay_err replica_open(const struct replica_config *config, struct order **ret_order)
{
    BELAY_CHECK(place_of(config->node) != 0);
    BELAY_CHECK(config->groups > 0 && config->groups <= JOURNAL_GROUPS_MAX);
    struct replica *o = mem_zalloc(sizeof *o);
    o->base.ops = &raft_ops;
    o->base.patience_ms = UINT64_C(2) * ORDER_PATIENCE_MS;
    o->config = *config;
    o->env = config->env;
    o->ctx = config->env_ctx;
    o->drained = !config->drains;
    if (!o->config.path)
        o->config.path = "";
    if (o->config.silence_ms == 0)
        o->config.silence_ms = ORDER_SILENCE_MS;
    if (o->config.doubt_ms == 0)
        o->config.doubt_ms = ORDER_DOUBT_MS;
    enum belay_err err = store_identify(o);
    o->replicas = mem_zalloc(o->base.n_groups * sizeof *o->replicas);
    for (size_t i = 0; i < o->base.n_groups; i++) {
        struct replica_group *r = &o->replicas[i];
        r->o = o;
        r->group_no = (uint16_t)i;
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
    replica_set_run(o, o->run);
    *ret_order = &o->base;
    return BELAY_OK;
}
