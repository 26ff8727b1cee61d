/* txn.c - transactions: a tree of statements, all or none.
 *
 *   txn_request() --evaluate()--> finish(): committed, or rolled back and answered
 *                                  \--an assert failed, wait_ms > 0--> parked (txn_wait.c)
 *
 * Variables are changed in place while the statements are evaluated, so that later operators
 * see what earlier ones did; every change is in a log and is undone in reverse order when a
 * statement aborts. Numbers, ends and places in a session are given only when it is certain.
 * Locks are planned (txn_lock.c). Both operands of AND, OR, XOR are always evaluated. */
#include "base/check.h"
#include "base/mem.h"
#include "machine/level.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/sound.h"
#include "machine/table.h"
#include "machine/txn_core.h"

#include <stdlib.h>

enum txn_outcome { HOLDS, ABORTED, ASSERT_FAILED, OVER_LIMIT };

void txn_scratch_free(struct txn_scratch *x)
{
    if (!x)
        return;
    free(x->changes);
    free(x->slots);
    free(x->reads);
    free(x->rows);
    free(x);
}

static struct txn_scratch *scratch(struct machine *m)
{
    if (!m->scratch)
        m->scratch = mem_zalloc(sizeof *m->scratch);
    struct txn_scratch *x = m->scratch;
    x->n_changes = x->n_slots = x->n_reads = x->n_rows = 0;
    return x;
}

void *txn_grown(void *items, size_t n, size_t *cap, size_t size)
{
    BELAY_CHECK(n <= *cap);
    if (n < *cap)
        return items;
    *cap = *cap ? *cap * 2 : 16;
    return mem_resize(items, *cap * size);
}

/* --- stopping --- */

bool txn_bounded(struct eval *e, struct txn_limit limit)
{
    BELAY_CHECK(limit.text);
    e->limit = limit;
    e->stopped = true;
    return false;
}

bool txn_over_limit(struct eval *e, const char *limit)
{
    return txn_bounded(e, (struct txn_limit){.text = limit});
}

void txn_stop(struct eval *e, bool by_assert)
{
    BELAY_CHECK(!e->stopped && e->depth <= LIMIT_TXN_DEPTH);
    struct buf path = {0};
    buf_put_u64(&path, e->statement);
    buf_put_str(&path, ":/");
    for (size_t i = 0; i < e->depth; i++) {
        buf_put_str(&path, e->path[i]);
        buf_put_byte(&path, '/');
    }
    BELAY_CHECK(!path.oom);
    e->failed = arena_copy(&e->fx->arena, buf_slice(&path));
    buf_done(&path);
    e->stopped = true;
    e->may_wait = by_assert;
}

/* How long it takes depends on what it looks at: so that is counted, the same on every node.
 * False: it is too much. */
bool txn_spend(struct eval *e, uint64_t units, const char *too_much)
{
    BELAY_DCHECK(units <= UINT64_MAX - e->work);
    e->work += units;
    return e->work <= e->m->txn_work_max || txn_over_limit(e, too_much);
}

bool txn_afford(struct eval *e, uint64_t units)
{
    return txn_spend(e, units, "the transaction needs more than LIMIT_TXN_WORK (100000) units");
}

void txn_note_read(struct eval *e, struct read what)
{
    struct txn_scratch *x = e->x;
    if (!e->watching)
        return;
    BELAY_DCHECK(what.kind == WATCH_LOCK || what.kind == WATCH_VARIABLE);
    x->reads = txn_grown(x->reads, x->n_reads, &x->cap_reads, sizeof *x->reads);
    x->reads[x->n_reads++] = what;
}

/* --- operators --- */

static bool eval_operator(struct eval *e);

static bool eval_var(struct eval *e, enum program_node node)
{
    struct program_var v;
    BELAY_DCHECK(node == NODE_EXISTS || node == NODE_SET || node == NODE_DELETE);
    program_get_var(&e->r, node, &v);
    if (node == NODE_EXISTS)
        return txn_exists(e, &v);
    return node == NODE_SET ? txn_set(e, &v) : txn_delete(e, &v);
}

static bool eval_lock(struct eval *e, enum program_node node)
{
    struct program_lock l;
    program_get_lock(&e->r, node, &l);
    txn_note_read(e, (struct read){.kind = WATCH_LOCK, .key = l.name});
    if (node == NODE_UNLOCK)
        return plan_unlock(e->m, e->space, e->session, &e->plan, &l);
    (void)txn_add_row(e, l.into, TXN_ROW_NULL); /* its fence comes when the lock does */
    struct txn_limit limit = {.text = NULL};
    bool ok = plan_lock(e->m, e->space, e->session, &e->plan, &l, &limit);
    if (limit.text)
        return txn_bounded(e, limit);
    BELAY_DCHECK(e->plan.n <= LIMIT_TXN_LOCKS && (!ok || e->plan.n > 0));
    if (ok)
        e->plan.steps[e->plan.n - 1].row = e->x->n_rows - 1;
    return ok;
}

/* Every operand is evaluated, whatever the ones before it gave. */
static bool eval_operands(struct eval *e, enum program_node node)
{
    uint64_t n = reader_u64(&e->r), trues = 0;
    for (uint64_t i = 0; i < n && !e->stopped; i++)
        trues += eval_operator(e);
    BELAY_DCHECK(trues <= n && n >= 2 && n <= PROGRAM_OPERANDS_MAX);
    if (node == NODE_AND)
        return trues == n;
    return node == NODE_OR ? trues > 0 : trues & 1;
}

static bool eval_operator(struct eval *e)
{
    enum program_node node = (enum program_node)reader_byte(&e->r);
    if (!txn_afford(e, 1))
        return false;
    switch (node) {
    case NODE_TRUE:
        return true;
    case NODE_FALSE:
        return false;
    case NODE_NOT:
        return !eval_operator(e);
    case NODE_AND:
    case NODE_OR:
    case NODE_XOR:
        return eval_operands(e, node);
    case NODE_EXISTS:
    case NODE_SET:
    case NODE_DELETE:
        return eval_var(e, node);
    case NODE_LOCK:
    case NODE_UNLOCK:
        return eval_lock(e, node);
    case NODE_NONE:
    case NODE_ASSERT:
    case NODE_ABORT:
    case NODE_BLOCK:
    case NODE_IF:
    case NODE_ANYWAY:
    case NODE_SELECT_CONSTANT:
    case NODE_SELECT_OPERATOR:
    case NODE_SELECT:
        break;
    }
    BELAY_UNREACHABLE("program_check() lets no other operator pass");
}

/* --- statements --- */

static void eval_statement(struct eval *e);

static void eval_if(struct eval *e)
{
    bool cond = eval_operator(e);
    if (e->stopped)
        return;
    struct slice then = program_get_branch(&e->r);
    struct slice otherwise = program_get_branch(&e->r);
    BELAY_DCHECK(then.len > 0 && !e->r.bad);
    struct reader behind = e->r;
    e->r = (struct reader){.left = cond ? then : otherwise};
    if (e->r.left.len)
        eval_statement(e);
    e->r = behind;
}

static void eval_block(struct eval *e)
{
    uint64_t n = reader_u64(&e->r);
    BELAY_DCHECK(n > 0 && n <= LIMIT_TXN_STATEMENTS);
    for (; n && !e->stopped; n--)
        eval_statement(e);
}

static void select_constant(struct eval *e)
{
    struct slice into = reader_bytes(&e->r), value = reader_bytes(&e->r);
    BELAY_DCHECK(into.len > 0 && value.len <= LIMIT_VALUE_BYTES);
    if (txn_room_for(e, value.len))
        txn_add_row(e, into, TXN_ROW_JSON)->json = arena_copy(&e->fx->arena, value);
}

static void select_operator(struct eval *e)
{
    struct slice into = reader_bytes(&e->r);
    BELAY_DCHECK(into.len > 0 && into.len <= LIMIT_INTO_BYTES);
    bool truth = eval_operator(e);
    if (!e->stopped)
        txn_add_row(e, into, TXN_ROW_BOOL)->truth = truth;
}

static void eval_statement_at(struct eval *e, enum program_node node)
{
    struct program_var v;
    switch (node) {
    case NODE_ASSERT:
        if (!eval_operator(e) && !e->stopped)
            txn_stop(e, true);
        return;
    case NODE_ABORT:
        txn_stop(e, false);
        return;
    case NODE_BLOCK:
        eval_block(e);
        return;
    case NODE_IF:
        eval_if(e);
        return;
    case NODE_ANYWAY:
        (void)eval_operator(e);
        return;
    case NODE_SELECT_CONSTANT:
        select_constant(e);
        return;
    case NODE_SELECT_OPERATOR:
        select_operator(e);
        return;
    case NODE_SELECT:
        program_get_var(&e->r, node, &v);
        txn_select(e, &v);
        return;
    case NODE_NONE:
    case NODE_TRUE:
    case NODE_FALSE:
    case NODE_NOT:
    case NODE_AND:
    case NODE_OR:
    case NODE_XOR:
    case NODE_EXISTS:
    case NODE_SET:
    case NODE_DELETE:
    case NODE_LOCK:
    case NODE_UNLOCK:
        break;
    }
    BELAY_UNREACHABLE("program_check() lets no other statement pass");
}

static void eval_statement(struct eval *e)
{
    enum program_node node = (enum program_node)reader_byte(&e->r);
    BELAY_CHECK(e->depth < LIMIT_TXN_DEPTH);
    if (!txn_afford(e, 1))
        return;
    e->path[e->depth++] = program_name(node);
    eval_statement_at(e, node);
    e->depth--;
}

static enum txn_outcome evaluate(struct eval *e, struct slice program)
{
    e->r = (struct reader){.left = program};
    uint64_t n = program_get_begin(&e->r);
    for (; e->statement < n && !e->stopped; e->statement++)
        eval_statement(e);
    e->m->txn_work += e->work;
    BELAY_CHECK(!e->r.bad); /* op_validate() has seen it */
    BELAY_CHECK(e->depth == 0);
    if (e->limit.text)
        return OVER_LIMIT;
    if (!e->stopped)
        return HOLDS;
    return e->may_wait ? ASSERT_FAILED : ABORTED;
}

/* --- the end --- */

static void release_slots(struct eval *e, bool changed)
{
    for (size_t i = 0; i < e->x->n_slots; i++) {
        struct slot *slot = e->x->slots[i];
        BELAY_CHECK(slot->touched);
        slot->touched = false;
        if (changed)
            slot_changed(e->m, slot);
        slot_drop_if_idle(e->m, slot);
    }
}

static void keep(struct machine *m, const struct change *c)
{
    struct record *r = c->record;
    BELAY_CHECK(c->added || r->gone);
    if (!c->added) {
        list_remove(&r->in_session);
        heap_remove(&m->ends, &r->end);
        free(r);
    } else if (!r->gone) {
        BELAY_CHECK(r->end.seq == 0);
        record_settle(m, r, ++m->counter);
    }
}

static void commit(struct eval *e)
{
    for (size_t i = 0; i < e->x->n_changes; i++)
        keep(e->m, &e->x->changes[i]);
    release_slots(e, true);
    plan_perform(e->m, e->space, e->session, &e->plan, e->x->rows, e->fx);
}

static void roll_back(struct eval *e)
{
    for (size_t i = e->x->n_changes; i-- > 0;) {
        const struct change *c = &e->x->changes[i];
        BELAY_DCHECK(c->record->gone == !c->added);
        if (c->added) {
            record_unlink(e->m, c->record, c->prev);
            free(c->record);
        } else {
            record_link(e->m, c->record, c->prev);
            c->record->gone = false;
        }
    }
    release_slots(e, false);
}

static void tell_committed(struct eval *e)
{
    BELAY_DCHECK(e->fx);
    const struct space *s = e->space;
    size_t n = e->x->n_changes + e->plan.n;
    if (n == 0)
        return;
    struct event *ev = effects_add(e->fx, EVENT_TXN);
    struct arena *a = &e->fx->arena;
    ev->news = true;
    ev->at_ms = e->m->now_ms;
    ev->account = arena_copy(a, slice_of(s->account->name, s->account->name_len));
    ev->ns = arena_copy(a, slice_of(s->name, s->name_len));
    ev->session = arena_copy(a, session_id(e->session));
    ev->name = arena_copy(a, e->description);
    ev->count = n;
}

static struct event *answer(struct eval *e, uint64_t asker, enum txn_status status)
{
    BELAY_DCHECK(status != TXN_OK || e->failed.len == 0);
    struct event *ev = effects_add(e->fx, EVENT_TXN);
    ev->asker = asker;
    ev->at_ms = e->m->now_ms;
    ev->status = status;
    ev->cause = status == TXN_OK ? CAUSE_NONE : CAUSE_STATEMENT;
    ev->failed = e->failed;
    ev->waited_ms = e->waited_ms;
    ev->n_data = e->x->n_rows;
    if (ev->n_data) {
        ev->data = arena_alloc(&e->fx->arena, ev->n_data * sizeof *ev->data);
        memcpy(ev->data, e->x->rows, ev->n_data * sizeof *ev->data);
    }
    return ev;
}

static struct event *refuse(struct eval *e, uint64_t asker)
{
    BELAY_CHECK(e->limit.text);
    struct op op = {.asker = asker};
    if (e->limit.is_quota)
        return quota_refuse(e->space->account, e->limit.quota, &op, e->fx);
    return request_failed(&op, BELAY_ERR_LIMIT, e->limit.text, e->fx);
}

/* Makes the outcome true and tells it to the client. */
static struct event *finish(struct eval *e, enum txn_outcome outcome, uint64_t asker)
{
    BELAY_DCHECK((outcome == HOLDS) == !e->stopped);
    if (outcome == HOLDS)
        commit(e);
    else
        roll_back(e);
    if (outcome == OVER_LIMIT)
        return refuse(e, asker);
    if (outcome == HOLDS)
        tell_committed(e);
    return answer(e, asker, outcome == HOLDS ? TXN_OK : TXN_ERROR);
}

/* --- asking --- */

static void park(struct eval *e, const struct op *op)
{
    BELAY_CHECK(op->wait_ms > 0 && e->watching);
    struct machine *m = e->m;
    roll_back(e);
    e->limit = parked_limit(e->space, op->program.len);
    if (e->limit.text) {
        refuse(e, op->asker);
        return;
    }
    struct parked *p = parked_new(e->space, e->session, op->program, op->text);
    parked_set_asker(m, p, op->asker);
    p->token = (uint32_t)op->token;
    p->since_ms = m->now_ms;
    if (op->request.len) {
        p->receipt = receipt_open(m, op);
        p->receipt->parked = p;
    }
    parked_link(m, p, ++m->counter, m->now_ms + op->wait_ms);
    parked_watch(m, p, e->x->reads, e->x->n_reads);
}

/* The names of namespaces are compared without regard to letter case here, as the original
 * did; an exact match goes first. */
static struct space *space_of(const struct machine *m, const struct op *op)
{
    struct space *s = space_find(m, op->account, op->ns);
    /* Rights are for exact names. */
    const struct account *a = s || op->token ? NULL : account_find(m, op->account);
    for (size_t i = 0; a && i < a->n; i++)
        if (slice_eq_nocase(slice_of(a->spaces[i]->name, a->spaces[i]->name_len), op->ns))
            return a->spaces[i];
    return s;
}

static void answer_plainly(const struct machine *m, const struct op *op, enum txn_status status,
                           enum txn_cause cause, struct effects *fx)
{
    BELAY_DCHECK((status == TXN_OK) == (cause == CAUSE_NONE));
    struct event *ev = effects_add(fx, EVENT_TXN);
    ev->asker = op->asker;
    ev->at_ms = m->now_ms;
    ev->status = status;
    ev->cause = cause;
}

void txn_request(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_DCHECK(op->kind == OP_TXN);
    struct space *s = space_of(m, op);
    struct session *session = session_named(m, op);
    if (!s) {
        request_failed(op, BELAY_ERR_NO_NAMESPACE, "no such namespace", fx);
        return;
    }
    if (!session || session_over(session, m->now_ms)) {
        answer_plainly(m, op, TXN_ERROR, CAUSE_SESSION, fx);
        return;
    }
    session_keep(m, session);
    if (op->program.len == 0) {
        answer_plainly(m, op, TXN_OK, CAUSE_NONE, fx);
        return;
    }
    struct eval e = {.m = m,
                     .space = s,
                     .session = session,
                     .description = op->text,
                     .fx = fx,
                     .x = scratch(m),
                     .watching = op->wait_ms > 0};
    e.plan.steps = e.x->steps;
    e.plan.token = (uint32_t)op->token;
    enum txn_outcome outcome = evaluate(&e, op->program);
    if (outcome == ASSERT_FAILED && op->wait_ms)
        park(&e, op);
    else
        finish(&e, outcome, op->asker);
}

static struct eval eval_of(struct machine *m, const struct parked *p, struct effects *fx)
{
    BELAY_CHECK(p->since_ms <= m->now_ms);
    struct eval e = {.m = m,
                     .space = p->space,
                     .session = p->session,
                     .description = parked_description(p),
                     .fx = fx,
                     .x = scratch(m),
                     .watching = true,
                     .waited_ms = m->now_ms - p->since_ms};
    e.plan.steps = e.x->steps;
    e.plan.token = p->token;
    return e;
}

bool txn_try_parked(struct machine *m, struct parked *p, struct effects *fx)
{
    BELAY_CHECK(parked_is_linked(p) && !session_over(p->session, m->now_ms));
    if (!token_lives(m, p->token)) {
        parked_leave(m, p, TXN_ERROR, CAUSE_SESSION, fx);
        return true;
    }
    struct eval e = eval_of(m, p, fx);
    enum txn_outcome outcome = evaluate(&e, parked_program(p));
    if (outcome == ASSERT_FAILED) {
        roll_back(&e);
        parked_watch(m, p, e.x->reads, e.x->n_reads);
        return false;
    }
    parked_watch(m, p, NULL, 0); /* its own changes must not wake it */
    const struct event *ev = finish(&e, outcome, p->asker);
    receipt_settle(m, &p->receipt, ev);
    parked_remove(m, p);
    return true;
}

void txn_time_out(struct machine *m, struct parked *p, struct effects *fx)
{
    BELAY_CHECK(parked_is_linked(p));
    struct eval e = eval_of(m, p, fx);
    (void)evaluate(&e, parked_program(p)); /* where it stands, and what it would select */
    roll_back(&e);
    const struct event *ev = answer(&e, p->asker, TXN_TIMEOUT);
    receipt_settle(m, &p->receipt, ev);
    parked_remove(m, p);
}
