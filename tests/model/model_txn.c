/* model_txn.c - random transactions on the machine and on a serial oracle: every answer, every
 * record, every fence and everybody who waits must be the same.
 *
 *   MODEL_SEED=n   start here (printed by every run; a failure prints the one to use)
 *   MODEL_OPS=n    how many ops in all
 *
 * Transactions go the whole way: JSON, program, the op's binary form. Now and then the machine
 * goes through a snapshot into one with another hash key, and each episode is replayed. Some
 * have a request id and are sent again: then the oracle is not asked a second time. */
#include "base/check.h"
#include "command/txn_json.h"
#include "machine/machine.h"
#include "text_format.h"
#include "txn_twin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EPISODE_OPS = 400, OPS_DEFAULT = 150000, SENT = 16 };

static const struct hash_key keys[] = {{1, 2}, {0x9e3779b97f4a7c15u, 77}};

/* A transaction with a request id. */
struct sent {
    uint64_t asker; /* the last one */
    bool answered;
    bool called_off;
    char id[24];
    struct tt_txn drawn;
    struct buf json, answer;
};

struct model {
    struct choice c;
    struct tt tt;
    struct machine *m, *replayed;
    struct effects fx;
    struct arena arena;
    struct buf bytes, json, got, want;
    uint64_t seed, asker, ops;
    uint64_t work_max; /* of this episode: machine_set_txn_work() */
    uint64_t committed, over_limit, aborted, parked_ok, timeouts, snapshots, repeated;
    struct sent sent[SENT];
    size_t n_sent;
};

static void fail(const struct model *x, const char *what)
{
    printf("not ok - %s, op %" PRIu64 " of the episode with MODEL_SEED=%" PRIu64 "\n%.*s\n",
           what, x->asker, x->seed, (int)buf_len(&x->json), buf_data(&x->json));
    printf("--- the oracle\n%.*s--- the machine\n%.*s", (int)buf_len(&x->want),
           buf_data(&x->want), (int)buf_len(&x->got), buf_data(&x->got));
    exit(1);
}

/* Answers as the oracle says them; grants and refusals of plain locks are seen in the state. */
static void put_answer(struct model *x, const struct event *ev)
{
    x->over_limit += ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_LIMIT;
    if (ev->kind == EVENT_FAILED)
        buf_printf(&x->got, "%" PRIu64 ": failed\n", ev->asker);
    if (ev->kind != EVENT_TXN)
        return;
    buf_printf(&x->got, "%" PRIu64 ":", ev->asker);
    text_put_txn(&x->got, ev);
    buf_put_byte(&x->got, '\n');
    x->committed += ev->status == TXN_OK;
    x->parked_ok += ev->status == TXN_OK && ev->asker != x->asker;
    x->aborted += ev->status == TXN_ERROR;
    x->timeouts += ev->status == TXN_TIMEOUT;
}

/* What the oracle says to the asker of a request is what everybody hears who asks again. */
static void note_answers(struct model *x)
{
    struct slice said = buf_slice(&x->tt.said);
    for (const char *at = said.data, *end; at < said.data + said.len; at = end + 1) {
        end = memchr(at, '\n', (size_t)(said.data + said.len - at));
        char *text = NULL;
        uint64_t asker = strtoull(at, &text, 10);
        for (size_t i = 0; i < SENT; i++) {
            struct sent *s = &x->sent[i];
            if (s->asker != asker || s->answered)
                continue;
            s->answered = true;
            buf_clear(&s->answer);
            buf_put(&s->answer, text, (size_t)(end - text));
        }
    }
}

static void apply_to(struct machine *m, struct op *op, struct effects *fx)
{
    op->index = machine_applied(m) + 1;
    machine_apply(m, op, fx);
}

static void apply(struct model *x, const struct op *said)
{
    struct op op;
    const char *what = "";
    buf_clear(&x->bytes);
    op_encode(said, &x->bytes);
    BELAY_CHECK(op_decode(buf_slice(&x->bytes), &x->arena, &op) == BELAY_OK);
    BELAY_CHECK(op_validate(&op, &what) == BELAY_OK);
    effects_reset(&x->fx);
    apply_to(x->replayed, &op, &x->fx);
    effects_reset(&x->fx);
    apply_to(x->m, &op, &x->fx);
    buf_clear(&x->got);
    for (size_t i = 0; i < x->fx.n; i++)
        if (x->fx.events[i].asker)
            put_answer(x, &x->fx.events[i]);
    buf_clear(&x->want);
    buf_put_slice(&x->want, buf_slice(&x->tt.said));
    if (!slice_eq(buf_slice(&x->got), buf_slice(&x->want)))
        fail(x, "answers differ");
    note_answers(x);
}

/* --- the state, told as tt_show() tells it --- */

static void show_slot(struct model *x, int table, int key)
{
    char name[16], wanted[16];
    (void)snprintf(name, sizeof name, "t%d", table);
    (void)snprintf(wanted, sizeof wanted, "k%d", key);
    struct op op = {.kind = OP_TABLE_SHOW, .name = slice_str(name), .limit = LIMIT_LIST};
    effects_reset(&x->fx);
    machine_query(x->m, &op, &x->fx);
    for (size_t i = 0; i < x->fx.events[0].n_rows; i++) {
        const struct variable_row *v = &x->fx.events[0].variables[i];
        if (!slice_eq(v->key, slice_str(wanted)))
            continue;
        buf_printf(&x->got, "%s.%s=%.*s@%.*s%s set=%" PRIu64 "\n", name, wanted,
                   (int)v->record.value.len, v->record.value.data, (int)v->record.session.len,
                   v->record.session.data, v->record.exclusive ? "!" : "",
                   v->record.set_ms_ago);
    }
}

static void show_lock(struct model *x, int lock)
{
    char name[16];
    (void)snprintf(name, sizeof name, "l%d", lock);
    struct op op = {.kind = OP_SHOW, .name = slice_str(name)};
    effects_reset(&x->fx);
    machine_query(x->m, &op, &x->fx);
    const struct lock_row *l = &x->fx.events[0].locks[0];
    for (size_t i = 0; i < l->n_holders; i++)
        buf_printf(&x->got, "%s %.*s #%" PRIu64 "\n", name, (int)l->holders[i].owner.len,
                   l->holders[i].owner.data, l->holders[i].fence);
}

static void compare_states(struct model *x)
{
    struct machine_counts n;
    buf_clear(&x->got);
    buf_clear(&x->want);
    for (int i = 0; i < TT_TABLES * TT_KEYS; i++)
        show_slot(x, i / TT_KEYS, i % TT_KEYS);
    for (int i = 0; i < TT_LOCKS; i++)
        show_lock(x, i);
    machine_counts(x->m, &n);
    buf_printf(&x->got, "waiting %" PRIu64 "\n", n.transactions);
    tt_show(&x->tt, &x->want);
    if (!slice_eq(buf_slice(&x->got), buf_slice(&x->want)))
        fail(x, "states differ");
}

static void through_snapshot(struct model *x)
{
    struct machine *copy = NULL;
    struct buf again = {0};
    buf_clear(&x->bytes);
    machine_encode(x->m, &x->bytes);
    if (machine_decode(buf_slice(&x->bytes), keys[x->snapshots % 2], &copy) != BELAY_OK)
        fail(x, "a snapshot is refused");
    machine_encode(copy, &again);
    if (!slice_eq(buf_slice(&x->bytes), buf_slice(&again)))
        fail(x, "a snapshot gives other bytes");
    if (machine_hash(x->m) != machine_hash(x->replayed))
        fail(x, "a replay gives another hash");
    buf_done(&again);
    machine_set_txn_work(copy, x->work_max);
    machine_close(x->m);
    x->m = copy;
    x->snapshots++;
}

/* --- steps --- */

/* The op of the JSON in x->json. */
static void put_txn(struct model *x, struct op *op)
{
    struct txn txn;
    const char *what = "";
    if (txn_read(buf_slice(&x->json), &x->arena, &txn, &what) != BELAY_OK)
        fail(x, what);
    op->kind = OP_TXN;
    op->session = txn.session;
    op->program = txn.program;
    op->wait_ms = txn.wait_ms;
}

static void step_txn(struct model *x, struct op *op)
{
    struct tt_txn drawn;
    tt_draw(&x->c, &x->tt, &drawn, &x->json);
    drawn.work_max = x->work_max;
    put_txn(x, op);
    if (choice_one_in(&x->c, 3)) {
        struct sent *s = &x->sent[x->n_sent++ % SENT];
        struct buf json = s->json, answer = s->answer;
        *s = (struct sent){.asker = x->asker, .drawn = drawn, .json = json, .answer = answer};
        int n = snprintf(s->id, sizeof s->id, "r%" PRIu64, x->asker);
        op->request = slice_of(s->id, (size_t)n);
        buf_clear(&s->json);
        buf_put_slice(&s->json, buf_slice(&x->json));
    }
    tt_txn(&x->tt, &drawn, x->asker);
}

static void step_again(struct model *x, struct op *op)
{
    struct sent *s = &x->sent[choice_below(&x->c, SENT)];
    if (!s->asker || x->tt.n_parked == TT_PARKED)
        return;
    buf_put_slice(&x->json, buf_slice(&s->json));
    put_txn(x, op);
    op->request = slice_str(s->id);
    for (int i = 0; i < x->tt.n_parked && !s->answered; i++)
        if (x->tt.parked[i].asker == s->asker)
            x->tt.parked[i].asker = x->asker;
    s->asker = x->asker;
    x->repeated++;
    if (s->called_off)
        tt_txn(&x->tt, &s->drawn, x->asker);
    else if (s->answered)
        buf_printf(&x->tt.said, "%" PRIu64 "%.*s\n", x->asker, (int)buf_len(&s->answer),
                   buf_data(&s->answer));
    s->called_off = false;
}

static void step_lock(struct model *x, struct op *op)
{
    static const char *const owners[] = {"o0", "o1"};
    static const char *const locks[] = {"l0", "l1"};
    static const char *const sessions[] = {"s0", "s1", "s2", "s3"};
    int lock = (int)choice_below(&x->c, TT_LOCKS), owner = (int)choice_below(&x->c, TT_OWNERS);
    int session = (int)choice_below(&x->c, TT_SESSIONS);
    op->name = slice_str(locks[lock]);
    op->owner = slice_str(owners[owner]);
    op->session = slice_str(sessions[session]);
    if (choice_one_in(&x->c, 2)) {
        op->kind = OP_RELEASE;
        tt_release(&x->tt, lock, owner, session, x->asker);
        return;
    }
    op->kind = OP_ACQUIRE;
    op->mode = choice_one_in(&x->c, 2) ? MODE_SHARED : MODE_EXCLUSIVE;
    op->ttl_ms = choice_one_in(&x->c, 2) ? 1 + choice_below(&x->c, 120) : 0;
    struct tt_hold want = {.owner = owner,
                           .session = session,
                           .weight = tt_weight((enum lock_mode)op->mode, 0),
                           .end_ms = op->ttl_ms ? op->now_ms + op->ttl_ms : 0};
    tt_acquire(&x->tt, lock, &want, x->asker);
}

static void step_session(struct model *x, struct op *op, bool open)
{
    static const char *const sessions[] = {"s0", "s1", "s2", "s3"};
    int session = (int)choice_below(&x->c, TT_SESSIONS);
    op->session = slice_str(sessions[session]);
    op->kind = open ? OP_SESSION_OPEN : OP_SESSION_CLOSE;
    op->ttl_ms = open ? TT_SESSION_TTL_MS : 0;
    tt_session(&x->tt, session, open, x->asker);
}

static void step_cancel(struct model *x, struct op *op)
{
    static const char *const sessions[] = {"s0", "s1", "s2", "s3"};
    op->kind = OP_TICK;
    if (x->tt.n_parked == 0)
        return;
    const struct tt_txn *p = &x->tt.parked[choice_below(&x->c, (uint64_t)x->tt.n_parked)];
    op->kind = OP_CANCEL;
    op->session = slice_str(sessions[p->session]);
    op->target = p->asker;
    for (size_t i = 0; i < SENT; i++)
        if (x->sent[i].asker == p->asker)
            x->sent[i].called_off = true;
    tt_cancel(&x->tt, p->asker);
}

static void step(struct model *x)
{
    uint64_t pick = choice_below(&x->c, 100);
    struct op op = {.kind = OP_TICK, .asker = ++x->asker};
    op.now_ms = x->tt.s.now_ms + (choice_one_in(&x->c, 3) ? choice_below(&x->c, 60) : 0);
    arena_reset(&x->arena);
    buf_clear(&x->json);
    tt_advance(&x->tt, op.now_ms);
    note_answers(x);
    if (pick < 60)
        step_txn(x, &op);
    else if (pick < 72)
        step_again(x, &op);
    else if (pick < 80)
        step_lock(x, &op);
    else if (pick < 92)
        step_session(x, &op, true);
    else if (pick < 94)
        step_session(x, &op, false);
    else if (pick < 96)
        step_cancel(x, &op);
    apply(x, &op);
    compare_states(x);
    if (choice_one_in(&x->c, 50))
        through_snapshot(x);
}

static void episode(struct model *x, uint64_t seed)
{
    x->c = choice_seed(seed);
    x->seed = seed;
    x->asker = 0;
    x->work_max = choice_one_in(&x->c, 2) ? LIMIT_TXN_WORK : 5 + choice_below(&x->c, 40);
    x->m = machine_open(keys[0]);
    x->replayed = machine_open(keys[1]);
    machine_set_txn_work(x->m, x->work_max);
    machine_set_txn_work(x->replayed, x->work_max);
    struct buf said = x->tt.said;
    x->tt = (struct tt){.said = said};
    for (size_t i = 0; i < SENT; i++)
        x->sent[i].asker = 0;
    for (int i = 0; i < EPISODE_OPS; i++)
        step(x);
    through_snapshot(x);
    x->ops += EPISODE_OPS;
    machine_close(x->m);
    machine_close(x->replayed);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
    static struct model x;
    uint64_t seed = number_of("MODEL_SEED", (uint64_t)time(NULL) * 1000);
    uint64_t ops = number_of("MODEL_OPS", OPS_DEFAULT);
    printf("# MODEL_SEED=%" PRIu64 " MODEL_OPS=%" PRIu64 "\n", seed, ops);
    (void)fflush(stdout);
    for (; x.ops < ops; seed++)
        episode(&x, seed);
    printf("ok - %" PRIu64 " ops: %" PRIu64 " transactions committed, %" PRIu64
           " aborted, %" PRIu64 " too costly\n",
           x.ops, x.committed, x.aborted, x.over_limit);
    BELAY_CHECK(ops < 1000 || x.over_limit);
    printf("ok - %" PRIu64 " waited and got on, %" PRIu64 " timed out, none was forgotten\n",
           x.parked_ok, x.timeouts);
    printf("ok - %" PRIu64 " snapshots and replays gave equal bytes and hashes\n", x.snapshots);
    printf("ok - %" PRIu64 " that were sent again happened once\n", x.repeated);
    for (size_t i = 0; i < SENT; i++) {
        buf_done(&x.sent[i].json);
        buf_done(&x.sent[i].answer);
    }
    effects_done(&x.fx);
    arena_done(&x.arena);
    buf_done(&x.bytes);
    buf_done(&x.json);
    buf_done(&x.got);
    buf_done(&x.want);
    buf_done(&x.tt.said);
    return 0;
}
