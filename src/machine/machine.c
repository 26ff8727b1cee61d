/* machine.c - one ordered op after the other: ends first, then the op, then the lines it
 * touched, then the transactions that wait for what has changed.
 *
 *   apply:  now -> ends that are due (a batch) -> lines, parked -> the op -> lines, parked
 *
 * Everything else in this folder is called from here and only from here. */
#include "machine/machine.h"
#include "machine/cancel.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/holders.h"
#include "machine/invariants.h"
#include "machine/level.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/outbox.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/session_level0.h"
#include "machine/sound.h"
#include "machine/table.h"
#include "machine/txn.h"
#include "machine/txn_wait.h"

#include <assert.h>
#include <stdlib.h>

enum { TXN_WORK_PER_UNIT = 32 }; /* a unit of a batch costs as much as so many of these */

struct machine *machine_new(struct hash_key key)
{
    struct machine *m = mem_zalloc(sizeof *m);
    m->key = key;
    m->asker_mask = UINT64_MAX;
    m->batch = MACHINE_EXPIRE_BATCH;
    m->txn_work_max = LIMIT_TXN_WORK;
    list_init(&m->session_list);
    list_init(&m->doomed);
    nodes_init(m);
    list_init(&m->token_list);
    receipts_init(&m->receipts);
    return m;
}

struct machine *machine_open(struct hash_key key)
{
    struct machine *m = machine_new(key);
    m->level = LEVEL_NEWEST;
    space_add(m, account_add(m, SLICE("default")), SLICE("default"));
    BELAY_CHECK(m->n_spaces == 1 && m->n_accounts == 1);
    return m;
}

static void free_wait(struct wait *w)
{
    BELAY_CHECK(w->body_len == 0 || w->body);
    list_remove(&w->in_waiter);
    if (list_empty(&w->waiter->waits))
        free(w->waiter);
    free(w->receipt);
    free(w->body);
    free(w);
}

static void free_space(struct space *s)
{
    BELAY_CHECK(s->account);
    struct index_place place;
    struct lock *l = index_after(&s->index, slice_of("", 0), true, &place);
    while (l) {
        struct lock *next = index_next(&s->index, &place);
        holders_free(l);
        list_each_safe(it, &l->holds) free(list_item(it, struct hold, in_lock));
        if (l->more) {
            list_each_safe(it, &l->more->waits) free_wait(list_item(it, struct wait, in_lock));
            free(l->more->body);
            free(l->more);
        }
        free(l);
        l = next;
    }
    s->locks.count = 0;
    space_free_tables(s);
    space_free_parked(s);
    space_free(s);
}

void machine_close(struct machine *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_accounts; i++) {
        for (size_t j = 0; j < m->accounts[i]->n; j++)
            free_space(m->accounts[i]->spaces[j]);
    }
    list_each_safe(it, &m->doomed) free_space(list_item(it, struct space, in_doomed));
    token_remove_all(m, NULL);
    map_done(&m->tokens);
    map_done(&m->tokens_by_id);
    for (size_t i = 0; i < m->n_accounts; i++)
        account_free(m->accounts[i]);
    free(m->accounts);
    map_done(&m->accounts_by_name);
    list_each_safe(it, &m->session_list)
    {
        struct session *s = list_item(it, struct session, in_machine);
        free(s->description);
        free(s);
    }
    map_done(&m->sessions);
    heap_done(&m->ends);
    heap_done(&m->ready);
    txn_scratch_free(m->scratch);
    outbox_free(m);
    receipts_done(m);
    pool_done(&m->pool);
    free(m->touched);
    free(m->steps);
    free(m);
}

/* It is evaluated once more, for what it says: that is part of the batch. */
static uint64_t expire_parked(struct machine *m, struct parked *p, struct effects *fx)
{
    BELAY_DCHECK(parked_is_linked(p));
    uint64_t before = m->txn_work;
    parked_expire(m, p, fx);
    return m->level >= LEVEL_BOUNDED ? (m->txn_work - before) / TXN_WORK_PER_UNIT : 0;
}

/* Works off what is due, in order of (end, number), and gives the units of work that are left.
 */
static uint64_t expire(struct machine *m, uint64_t budget, struct effects *fx)
{
    struct heap_node *top;
    while (budget && (top = heap_top(&m->ends)) && top->at <= m->now_ms) {
        BELAY_CHECK(top->pos == 1 && top->tag <= END_PARKED);
        uint64_t units = 1;
        switch ((enum end_tag)top->tag) {
        case END_HOLD:
            hold_expire(m, heap_item(top, struct hold, end), fx);
            break;
        case END_WAIT:
            units = wait_expire(m, heap_item(top, struct wait, end), fx);
            break;
        case END_SESSION:
            units = session_expire(m, heap_item(top, struct session, end), budget, fx);
            break;
        case END_CLOSED:
            heap_remove(&m->ends, top);
            lock_touch(m, heap_item(top, struct more, closed)->lock);
            break;
        case END_RECORD:
            record_expire(m, heap_item(top, struct record, end), fx);
            break;
        case END_PARKED:
            units += expire_parked(m, heap_item(top, struct parked, end), fx);
            break;
        }
        budget -= units < budget ? units : budget;
    }
    return budget;
}

static void tick(struct machine *m, const struct op *op, struct effects *fx)
{
    (void)fx; /* it carries now_ms */
    BELAY_CHECK(op->fence <= LIMIT_SKIP && m->counter < UINT64_MAX / 2);
    m->counter += op->fence; /* what was lost may have given numbers away: none comes again */
}

static void raise_level(struct machine *m, const struct op *op, struct effects *fx)
{
    (void)fx;
    BELAY_CHECK(op->target <= LEVEL_NEWEST);
    if (m->level < LEVEL_KEEP_FIRST && op->target >= LEVEL_KEEP_FIRST)
        old_sessions_move(m);
    if (op->target > m->level)
        m->level = op->target;
    BELAY_CHECK(m->level >= op->target);
}

struct event *request_failed(const struct op *op, enum belay_err err, const char *text,
                             struct effects *fx)
{
    BELAY_CHECK(err != BELAY_OK && text);
    struct event *ev = effects_add(fx, EVENT_FAILED);
    ev->asker = op->asker;
    ev->err = err;
    ev->text = slice_str(text);
    return ev;
}

struct space *request_space(const struct machine *m, const struct op *op, struct effects *fx)
{
    struct space *s = space_find(m, op->account, op->ns);
    if (!s)
        request_failed(op, BELAY_ERR_NO_NAMESPACE, "no such namespace", fx);
    BELAY_DCHECK(!s || !s->doomed);
    return s;
}

typedef void step_fn(struct machine *m, const struct op *op, struct effects *fx);

/* Writes only: a read is not ordered. */
static step_fn *const steps[] = {
    [OP_TICK] = tick,
    [OP_ACQUIRE] = request_acquire,
    [OP_RELEASE] = request_release,
    [OP_RENEW] = request_renew,
    [OP_CONVERT] = request_convert,
    [OP_BODY] = request_body,
    [OP_BREAK] = request_break,
    [OP_CANCEL] = cancel_request,
    [OP_SESSION_OPEN] = session_open,
    [OP_SESSION_ATTACH] = session_attach,
    [OP_SESSION_DETACH] = session_detach,
    [OP_SESSION_KEEPALIVE] = session_keepalive,
    [OP_SESSION_CLOSE] = session_close,
    [OP_NAMESPACE_CREATE] = namespace_create,
    [OP_NAMESPACE_UPDATE] = namespace_update,
    [OP_NAMESPACE_DELETE] = namespace_delete,
    [OP_TXN] = txn_request,
    [OP_SESSION_ENROL] = session_enrol,
    [OP_MESSAGES] = outbox_take,
    [OP_TAKEN] = outbox_taken,
    [OP_LEVEL] = raise_level,
    [OP_NODE] = node_serve,
    [OP_AUTH_INIT] = token_init,
    [OP_AUTH_RESET] = token_reset,
    [OP_ACCOUNT_CREATE] = account_create,
    [OP_ACCOUNT_UPDATE] = account_update,
    [OP_ACCOUNT_DELETE] = account_delete,
    [OP_TOKEN_CREATE] = token_create,
    [OP_TOKEN_ROTATE] = token_rotate,
    [OP_TOKEN_REVOKE] = token_revoke,
    [OP_TOKEN_USED] = token_used,
};
static_assert(sizeof steps / sizeof *steps == OP_CHECK, "a new kind of write is handled here");

/* A request with an id: carried out when it comes for the first time. */
static void step_once(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->request.len > 0 && op->request.len <= LIMIT_REQUEST_BYTES);
    struct receipt *r = receipt_find(m, op, fx);
    if (r) {
        receipt_repeat(m, r, op, fx);
        return;
    }
    size_t first = fx->n;
    steps[op->kind](m, op, fx);
    receipt_note(m, op, fx, first);
}

/* Where nobody has to log in, this is all that tokens cost. */
static inline bool is_refused(const struct machine *m, const struct op *op, struct effects *fx)
{
    if (!m->closed && !op->token)
        return false;
    return token_refuses(m, op, fx) || token_guards(m, op, fx);
}

/* The lines that were touched, then the transactions that wait for what has changed: mostly
 * none, which costs no call. */
static inline void serve(struct machine *m, struct effects *fx)
{
    if (m->n_touched)
        lock_serve_touched(m, fx);
    if (m->ready.count)
        parked_serve(m, fx);
    BELAY_DCHECK(m->n_touched == 0);
}

void machine_apply(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->index == m->applied + 1 && !op_is_read(op->kind));
    uint64_t counter = m->counter;
    BELAY_CHECK(m->n_touched == 0);
    if (op->now_ms > m->now_ms)
        m->now_ms = op->now_ms; /* a new leader's clock may be behind: time never goes back */

    if (op->kind == OP_NODE)
        node_note(m, op); /* before anything is given to somebody who waits there */
    m->txn_work = 0;
    m->line_units = m->batch;
    if (!list_empty(&m->doomed) || m->accounts_left)
        namespace_bury(m); /* the events of the step before may have pointed into them */
    uint64_t budget = expire(m, m->batch, fx); /* leases end here and nowhere else */
    if (!list_empty(&m->doomed)) {
        lock_serve_touched(m, fx);
        (void)namespace_reap(m, budget, fx);
    }
    serve(m, fx);
    if (m->receipts.n_answered)
        receipt_drop_old(m);
    size_t first = fx->n;
    m->line_units = m->end_units = m->batch; /* its own: what was due does not hold it up */
    bool overrides = op->flags & (OP_MAY_BREAK | OP_SEES_ALL) && token_overrides(m, op);
    if (is_refused(m, op, fx))
        ; /* and answered */
    else if (op->request.len && op->kind != OP_CANCEL)
        step_once(m, op, fx);
    else
        steps[op->kind](m, op, fx);
    for (size_t i = first; overrides && i < fx->n; i++)
        fx->events[i].by_break = fx->events[i].asker == op->asker;
    serve(m, fx);
    BELAY_CHECK(m->counter >= counter);
    BELAY_CHECK(m->n_touched == 0 && m->held <= m->locks);
    m->applied = op->index;
    BELAY_DCHECK(machine_is_sound(m));
}

uint64_t machine_level(const struct machine *m)
{
    BELAY_DCHECK(m->level <= LEVEL_NEWEST);
    return m->level;
}

void machine_set_level(struct machine *m, uint64_t level)
{
    BELAY_CHECK(m->applied == 0 && level <= LEVEL_NEWEST);
    m->level = level;
}

uint64_t machine_applied(const struct machine *m)
{
    return m->applied;
}

uint64_t machine_number(const struct machine *m)
{
    BELAY_DCHECK(m->counter < UINT64_MAX);
    return m->counter + 1;
}

void machine_set_askers(struct machine *m, unsigned count_bits, bool by_number)
{
    BELAY_CHECK(count_bits <= OP_RUN_SHIFT);
    uint64_t ignored = OP_ASKER_COUNT >> count_bits << count_bits;
    m->asker_mask = ~ignored;
    m->by_number = by_number;
}

void machine_set_batch(struct machine *m, unsigned units)
{
    BELAY_CHECK(units > 0);
    m->batch = units;
}

void machine_set_txn_work(struct machine *m, uint64_t units)
{
    BELAY_CHECK(units > 0);
    m->txn_work_max = units;
}

uint64_t machine_txn_work(const struct machine *m)
{
    return m->txn_work;
}

uint64_t machine_now(const struct machine *m)
{
    return m->now_ms;
}

uint64_t machine_due(const struct machine *m)
{
    list_each (it, &m->doomed)
        if (!space_is_empty(list_item(it, const struct space, in_doomed)))
            return m->now_ms;
    if (m->ready.count)
        return m->now_ms;
    const struct heap_node *top = heap_top(&m->ends);
    BELAY_CHECK(!top || top->pos == 1);
    return top ? top->at : NEVER;
}

void machine_counts(const struct machine *m, struct machine_counts *ret)
{
    BELAY_CHECK(m->held <= m->locks);
    *ret = (struct machine_counts){.locks = m->locks,
                                   .held = m->held,
                                   .waiting = m->waiting,
                                   .sessions = m->sessions.count,
                                   .namespaces = m->n_spaces,
                                   .variables = m->n_records,
                                   .transactions = m->n_parked,
                                   .receipts = m->receipts.n_answered};
}
