/* txn.c - transactions: a tree of statements, all or none.
 *
 *   txn_request() --evaluate()--> finish(): committed, or rolled back and answered
 *                                  \--an assert failed, wait_ms > 0--> parked (txn_wait.c)
 *
 * Variables are changed in place while the statements are evaluated, so that later operators
 * see what earlier ones did; every change is in a log and is undone in reverse order when a
 * statement aborts. Numbers, ends and places in a session are given only when it is certain.
 * Locks are planned (txn_lock.c). Both operands of AND, OR, XOR are always evaluated. */
#include "machine/txn.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/level.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/sound.h"
#include "machine/table.h"
#include "machine/txn_lock.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

/* One change of a slot's records, to be made final or undone. */
struct change {
    struct record *record;
    struct record *prev; /* it stands, or stood, behind this one; NULL: first */
    bool added;          /* else: deleted */
};

struct txn_scratch {
    struct change *changes;
    size_t n_changes, cap_changes;
    struct slot **slots; /* those that are marked touched */
    size_t n_slots, cap_slots;
    struct read *reads;
    size_t n_reads, cap_reads;
    struct txn_row *rows;
    size_t n_rows, cap_rows;
    struct lock_step steps[LIMIT_TXN_LOCKS];
};

struct eval {
    struct machine *m;
    struct space *space;
    struct session *session;
    struct slice description; /* the transaction's */
    struct effects *fx;
    struct txn_scratch *x;
    struct lock_plan plan;
    struct reader r;
    bool watching; /* what is read is written down */
    uint64_t waited_ms;
    uint64_t work;     /* nodes evaluated, records looked at */
    size_t data_bytes; /* below LEVEL_PARTS */
    size_t statement;  /* at the top */
    const char *path[LIMIT_TXN_DEPTH];
    size_t depth;
    bool stopped;           /* no statement is evaluated any more */
    bool may_wait;          /* stopped by an assert */
    struct txn_limit limit; /* stopped by a limit: which */
    struct slice failed;
};

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

static void *grown(void *items, size_t n, size_t *cap, size_t size)
{
    BELAY_CHECK(n <= *cap);
    if (n < *cap)
        return items;
    *cap = *cap ? *cap * 2 : 16;
    return mem_resize(items, *cap * size);
}

static struct txn_scratch *scratch(struct machine *m)
{
    if (!m->scratch)
        m->scratch = mem_zalloc(sizeof *m->scratch);
    struct txn_scratch *x = m->scratch;
    x->n_changes = x->n_slots = x->n_reads = x->n_rows = 0;
    return x;
}

/* --- stopping --- */

static bool bounded(struct eval *e, struct txn_limit limit)
{
    BELAY_CHECK(limit.text);
    e->limit = limit;
    e->stopped = true;
    return false;
}

static bool over_limit(struct eval *e, const char *limit)
{
    return bounded(e, (struct txn_limit){.text = limit});
}

static void stop(struct eval *e, bool by_assert)
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
static bool spend(struct eval *e, uint64_t units, const char *too_much)
{
    e->work += units;
    return e->work <= e->m->txn_work_max || over_limit(e, too_much);
}

static bool afford(struct eval *e, uint64_t units)
{
    return spend(e, units, "the transaction needs more than LIMIT_TXN_WORK (100000) units");
}

/* A record costs one unit, and one more for every so many bytes that its value is compared
 * with. */
enum { WORK_VALUE_BYTES = 256 };

static uint64_t cost_of(const struct eval *e, const struct slot *slot,
                        const struct program_var *v)
{
    BELAY_CHECK(slot->table->space == e->space);
    size_t compared = v->flags & VAR_HAS_VALUE ? v->value.len : 0;
    if (e->m->level < LEVEL_BOUNDED)
        return 0;
    return slot->n_records * (1 + compared / WORK_VALUE_BYTES);
}

/* --- variables --- */

static void note_read(struct eval *e, struct read what)
{
    struct txn_scratch *x = e->x;
    if (!e->watching)
        return;
    x->reads = grown(x->reads, x->n_reads, &x->cap_reads, sizeof *x->reads);
    x->reads[x->n_reads++] = what;
}

/* The slot, when it has records that live; NULL: nothing is set, or it stops here. */
static struct slot *slot_of(struct eval *e, const struct program_var *v,
                            struct slot_place *ret_place)
{
    note_read(e, (struct read){WATCH_VARIABLE, v->table, v->key});
    struct slot *slot = slot_locate(e->m, e->space, v->table, v->key, ret_place);
    if (!slot)
        return NULL;
    slot = slot_bury(e->m, slot, e->fx);
    if (!slot) /* its table may be gone with it */
        (void)slot_locate(e->m, e->space, v->table, v->key, ret_place);
    return slot && afford(e, cost_of(e, slot, v)) ? slot : NULL;
}

static void touch(struct eval *e, struct slot *slot)
{
    BELAY_CHECK(e->x->n_slots <= e->x->cap_slots);
    struct txn_scratch *x = e->x;
    if (slot->touched)
        return;
    slot->touched = true;
    x->slots = grown(x->slots, x->n_slots, &x->cap_slots, sizeof(struct slot *));
    x->slots[x->n_slots++] = slot;
}

static void change(struct eval *e, struct record *r, struct record *prev, bool added)
{
    BELAY_CHECK(r->session == e->session && r->gone == false);
    struct txn_scratch *x = e->x;
    x->changes = grown(x->changes, x->n_changes, &x->cap_changes, sizeof *x->changes);
    x->changes[x->n_changes++] = (struct change){r, prev, added};
    touch(e, r->slot);
    r->gone = !added;
    if (added)
        record_link(e->m, r, prev);
    else
        record_unlink(e->m, r, prev);
}

static struct record *own_record(const struct slot *slot, const struct session *session,
                                 struct record **ret_prev)
{
    *ret_prev = NULL;
    for (struct record *r = slot->records; r; *ret_prev = r, r = r->next)
        if (r->session == session)
            return r;
    return NULL; /* prev is the last one */
}

static bool is_match(const struct record *r, const struct program_var *v,
                     const struct session *ignored)
{
    return r->session != ignored &&
           (!(v->flags & VAR_HAS_VALUE) || slice_eq(record_value(r), v->value));
}

static bool exists(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    const struct slot *slot = slot_of(e, v, &place);
    const struct session *ignored = v->flags & VAR_IGNORE_THIS_SESSION ? e->session : NULL;
    for (const struct record *r = slot ? slot->records : NULL; r; r = r->next)
        if (is_match(r, v, ignored))
            return true;
    return false;
}

/* `own`: the record that the new one replaces. */
static struct txn_limit set_limit(const struct eval *e, const struct slot *slot,
                                  const struct record *own, uint64_t bytes)
{
    BELAY_DCHECK(!slot || slot->n_records <= LIMIT_RECORDS);
    const struct account *a = e->space->account;
    struct txn_limit limit = {.text = NULL};
    if (!own && e->space->n_records >= LIMIT_VARIABLES)
        limit.text = "the namespace has LIMIT_VARIABLES (16000000) variables";
    else if (!own && e->session->n_records >= LIMIT_SESSION_VARIABLES)
        limit.text = "the session has LIMIT_SESSION_VARIABLES (100000) variables";
    else if (!own && slot && slot->n_records >= LIMIT_RECORDS)
        limit.text = "the variable has LIMIT_RECORDS (10000) records";
    else if (!own)
        limit = txn_quota(a, QUOTA_VARIABLES, 1);
    if (!limit.text && quota_outgrown(a, own ? own->value_len : 0, bytes))
        limit = txn_quota(a, QUOTA_BYTES, bytes);
    return limit;
}

static bool may_join(const struct slot *slot, const struct program_var *v,
                     const struct session *session)
{
    if (!(v->flags & VAR_ALLOW_DUPLICATES))
        return false;
    if (v->flags & VAR_RESPECT_EXCLUSIVE)
        for (const struct record *r = slot->records; r; r = r->next)
            if (r->exclusive && r->session != session)
                return false;
    return true;
}

static bool set(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    struct slot *slot = slot_of(e, v, &place);
    struct record *prev = NULL, *own = NULL;
    if (e->stopped)
        return false;
    if (slot && slot->records) {
        if (!may_join(slot, v, e->session))
            return false;
        own = own_record(slot, e->session, &prev);
    }
    struct txn_limit limit = set_limit(e, slot, own, v->value.len);
    if (limit.text)
        return bounded(e, limit);
    if (!slot)
        slot = slot_make(e->space, &place);
    if (!slot)
        return over_limit(e, "the namespace has LIMIT_TABLES (10000) tables");
    struct record_ask ask = {.session = e->session,
                             .value = v->value,
                             .description =
                                 v->description.len ? v->description : e->description,
                             .ttl_ms = v->ttl_ms,
                             .exclusive = !(v->flags & VAR_ALLOW_DUPLICATES)};
    if (own)
        change(e, own, prev, false);
    BELAY_CHECK(!own || own->gone);
    change(e, record_new(e->m, slot, &ask), prev, true); /* in its place, or last */
    return true;
}

static bool delete_var(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    struct slot *slot = slot_of(e, v, &place);
    struct record *prev;
    struct record *own = slot ? own_record(slot, e->session, &prev) : NULL;
    if (!own || !is_match(own, v, NULL))
        return false;
    change(e, own, prev, false);
    return true;
}

/* --- selected data --- */

static struct txn_row *add_row(struct eval *e, struct slice name, enum txn_row_kind kind)
{
    struct txn_scratch *x = e->x;
    x->rows = grown(x->rows, x->n_rows, &x->cap_rows, sizeof *x->rows);
    struct txn_row *row = &x->rows[x->n_rows++];
    *row = (struct txn_row){.name = arena_copy(&e->fx->arena, name), .kind = kind};
    return row;
}

/* What it costs to copy something that is selected, and to write it into the answer. */
enum { WORK_SELECTED = 6, WORK_SELECTED_BYTES = 24 };

/* False: there would be too much of it. */
static bool room_for(struct eval *e, size_t bytes)
{
    if (e->m->level >= LEVEL_PARTS)
        return spend(e, WORK_SELECTED + bytes / WORK_SELECTED_BYTES,
                     "what is selected needs more than LIMIT_TXN_WORK (100000) units: "
                     "select less at once");
    e->data_bytes += bytes;
    if (e->data_bytes <= LIMIT_TXN_DATA_BYTES)
        return true;
    return over_limit(e, "the transaction selects more than LIMIT_TXN_DATA_BYTES (8388608)");
}

static void select_records(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    const struct slot *slot = slot_of(e, v, &place);
    const struct session *ignored = v->flags & VAR_IGNORE_THIS_SESSION ? e->session : NULL;
    size_t n = 0, max = v->flags & VAR_MANY ? LIMIT_RECORDS : 1;
    if (e->stopped)
        return;
    for (const struct record *r = slot ? slot->records : NULL; r && n < max; r = r->next) {
        if (!is_match(r, v, ignored))
            continue;
        if (!room_for(e, record_bytes(e->m, r)))
            return;
        n++;
    }
    if (n == 0) {
        if (v->flags & VAR_ABORT_IF_NOT_FOUND)
            stop(e, false);
        else
            add_row(e, v->into, TXN_ROW_NULL);
        return;
    }
    struct txn_row *row =
        add_row(e, v->into, v->flags & VAR_MANY ? TXN_ROW_RECORDS : TXN_ROW_RECORD);
    row->records = arena_alloc(&e->fx->arena, n * sizeof *row->records);
    for (const struct record *r = slot->records; r && row->n_records < n; r = r->next)
        if (is_match(r, v, ignored))
            row->records[row->n_records++] = record_row(r, e->m->now_ms, e->fx);
    BELAY_CHECK(row->n_records == n);
}

/* --- operators --- */

static bool eval_operator(struct eval *e);

static bool eval_var(struct eval *e, enum program_node node)
{
    struct program_var v;
    program_get_var(&e->r, node, &v);
    if (node == NODE_EXISTS)
        return exists(e, &v);
    return node == NODE_SET ? set(e, &v) : delete_var(e, &v);
}

static bool eval_lock(struct eval *e, enum program_node node)
{
    struct program_lock l;
    program_get_lock(&e->r, node, &l);
    note_read(e, (struct read){.kind = WATCH_LOCK, .key = l.name});
    if (node == NODE_UNLOCK)
        return plan_unlock(e->m, e->space, e->session, &e->plan, &l);
    (void)add_row(e, l.into, TXN_ROW_NULL); /* its fence comes when the lock does */
    struct txn_limit limit = {.text = NULL};
    bool ok = plan_lock(e->m, e->space, e->session, &e->plan, &l, &limit);
    if (limit.text)
        return bounded(e, limit);
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
    if (node == NODE_AND)
        return trues == n;
    return node == NODE_OR ? trues > 0 : trues & 1;
}

static bool eval_operator(struct eval *e)
{
    enum program_node node = (enum program_node)reader_byte(&e->r);
    if (!afford(e, 1))
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
    struct reader behind = e->r;
    e->r = (struct reader){.left = cond ? then : otherwise};
    if (e->r.left.len)
        eval_statement(e);
    e->r = behind;
}

static void eval_block(struct eval *e)
{
    for (uint64_t n = reader_u64(&e->r); n && !e->stopped; n--)
        eval_statement(e);
}

static void select_constant(struct eval *e)
{
    struct slice into = reader_bytes(&e->r), value = reader_bytes(&e->r);
    if (room_for(e, value.len))
        add_row(e, into, TXN_ROW_JSON)->json = arena_copy(&e->fx->arena, value);
}

static void select_operator(struct eval *e)
{
    struct slice into = reader_bytes(&e->r);
    bool truth = eval_operator(e);
    if (!e->stopped)
        add_row(e, into, TXN_ROW_BOOL)->truth = truth;
}

static void eval_statement_at(struct eval *e, enum program_node node)
{
    struct program_var v;
    switch (node) {
    case NODE_ASSERT:
        if (!eval_operator(e) && !e->stopped)
            stop(e, true);
        return;
    case NODE_ABORT:
        stop(e, false);
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
        select_records(e, &v);
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
    if (!afford(e, 1))
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

static void commit(struct eval *e)
{
    struct machine *m = e->m;
    for (size_t i = 0; i < e->x->n_changes; i++) {
        struct record *r = e->x->changes[i].record;
        if (e->x->changes[i].added) {
            if (!r->gone) {
                BELAY_CHECK(r->end.seq == 0);
                record_settle(m, r, ++m->counter);
            }
            continue;
        }
        BELAY_CHECK(r->gone);
        list_remove(&r->in_session);
        heap_remove(&m->ends, &r->end);
        free(r);
    }
    release_slots(e, true);
    plan_perform(m, e->space, e->session, &e->plan, e->x->rows, e->fx);
}

static void roll_back(struct eval *e)
{
    for (size_t i = e->x->n_changes; i-- > 0;) {
        const struct change *c = &e->x->changes[i];
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
