/* sim_deal.c - transactions of clients, with an invariant that is exact.
 *
 * Every session has two accounts, x and y, that hold SIM_BANK together: a transaction moves
 * between them or does nothing, and whoever looks sees the sum (I25), and exactly what the
 * owner was told last (I8). A gate is a variable that one session has or none (I1). A lock that
 * is taken in a transaction is a lock like every other one. */
#include "sim.h"

#include "machine/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int sim_deal_space(const struct sim_client *c)
{
    return c->w->plan.habits & HABIT_NAMESPACE ? (int)(c->session.number % SIM_SPACES) : 0;
}

static void put_var(struct buf *out, enum program_node node, const char *table, const char *key,
                    uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    struct program_var v = {.flags = VAR_HAS_VALUE,
                            .table = slice_str(table),
                            .key = slice_str(key),
                            .value = slice_str(text)};
    if (node == NODE_EXISTS)
        v.flags |= VAR_IGNORE_THIS_SESSION;
    program_put(out, NODE_ASSERT);
    program_put_var(out, node, &v);
}

/* --- accounts --- */

static void put_bank(struct sim_client *c, struct buf *out, bool before, bool bad)
{
    const struct sim_session *s = &c->session;
    char x[24], y[24];
    snprintf(x, sizeof x, "x%" PRIu64, s->number);
    snprintf(y, sizeof y, "y%" PRIu64, s->number);
    program_begin(out, (before ? 4u : 2u) + (bad ? 1u : 0u));
    if (before) {
        put_var(out, NODE_DELETE, "bank", x, s->x);
        put_var(out, NODE_DELETE, "bank", y, s->y);
    }
    put_var(out, NODE_SET, "bank", x, c->call.x);
    put_var(out, NODE_SET, "bank", y, c->call.y);
    if (bad)
        put_var(out, NODE_EXISTS, "bank", "nothing", 0);
}

static void start_bank(struct sim_client *c, struct buf *out)
{
    struct sim_session *s = &c->session;
    c->call.x = sim_random(c->w, SIM_BANK + 1);
    c->call.y = SIM_BANK - c->call.x;
    c->call.deal = s->bank == BANK_NONE ? DEAL_FOUND : DEAL_MOVE;
    bool bad = sim_chance(c->w, 30);
    if (bad)
        c->call.deal = DEAL_BAD;
    put_bank(c, out, s->bank == BANK_KNOWN, bad);
}

/* --- gates --- */

static void start_gate(struct sim_client *c, struct op *op, struct buf *out)
{
    char key[8];
    c->call.gate = (int)sim_random(c->w, SIM_GATES);
    snprintf(key, sizeof key, "%d", c->call.gate);
    program_begin(out, 1);
    if (c->session.gates[c->call.gate]) {
        c->call.deal = DEAL_GATE_OUT;
        c->session.gates[c->call.gate] = false;
        put_var(out, NODE_DELETE, "gate", key, c->session.number);
        return;
    }
    c->call.deal = DEAL_GATE_IN;
    put_var(out, NODE_SET, "gate", key, c->session.number);
    if (sim_chance(c->w, 60))
        op->wait_ms = c->w->plan.habits & HABIT_LONG && sim_chance(c->w, 30)
                          ? 200000
                          : 1 + sim_random(c->w, 4000);
}

/* --- locks --- */

static void start_lock(struct sim_client *c, struct buf *out)
{
    struct program_lock l = {.mode = sim_chance(c->w, 50) ? MODE_SHARED : MODE_EXCLUSIVE,
                             .ttl_ms = sim_chance(c->w, 30) ? 0 : sim_client_ttl(c),
                             .into = SLICE("fence")};
    char name[24];
    c->call.deal = DEAL_LOCK;
    c->call.lock = (int)sim_random(c->w, SIM_LOCKS);
    snprintf(name, sizeof name, "lock-%d", c->call.lock);
    struct sim_hold *h = &c->call.want;
    *h = (struct sim_hold){.ns = c->call.ns,
                           .lock = c->call.lock,
                           .mode = (enum lock_mode)l.mode,
                           .ttl_ms = l.ttl_ms,
                           .session = c->session.number};
    snprintf(h->owner, sizeof h->owner, "t%d-%" PRIu64, c->no, c->nonce);
    l.name = slice_str(name);
    l.owner = slice_str(h->owner);
    program_begin(out, 1);
    program_put(out, NODE_ASSERT);
    program_put_lock(out, NODE_LOCK, &l);
}

static bool start_unlock(struct sim_client *c, struct buf *out)
{
    for (int i = 0; i < SIM_HOLDS; i++) {
        struct sim_hold *h = &c->holds[i];
        if (!h->used || !h->fence || h->ns != c->call.ns)
            continue;
        char name[24];
        snprintf(name, sizeof name, "lock-%d", h->lock);
        struct program_lock l = {.name = slice_str(name), .fence = h->fence};
        c->call.deal = DEAL_UNLOCK;
        c->call.hold = i;
        c->call.lock = h->lock;
        c->call.want = *h;
        c->call.was_sure = h->sure;
        h->sure = false;
        program_begin(out, 1);
        program_put(out, NODE_ASSERT);
        program_put_lock(out, NODE_UNLOCK, &l);
        return true;
    }
    return false;
}

bool sim_deal_start(struct sim_client *c, struct op *op)
{
    struct sim_session *s = &c->session;
    struct buf *out = &c->words.program;
    if (!s->number || !s->sure)
        return false;
    op->kind = OP_TXN;
    op->session = (snprintf(c->words.session, sizeof c->words.session, "s%" PRIu64, s->number),
                   slice_str(c->words.session));
    c->call.session = s->number;
    c->call.ns = sim_deal_space(c);
    buf_clear(out);
    uint64_t what = sim_random(c->w, 10);
    if (what < 5) {
        if (s->bank == BANK_LOST)
            return false;
        start_bank(c, out);
    } else if (what < 8) {
        start_gate(c, op, out);
    } else if (what < 9) {
        if (!promise_slot(c))
            return false;
        start_lock(c, out);
    } else if (!start_unlock(c, out)) {
        return false;
    }
    op->program = buf_slice(out);
    return true;
}

/* --- answers --- */

/* A session that must live, in a namespace that must be there: then this must have gone well.
 */
static void must_succeed(struct sim_client *c, const struct event *ev, const char *what)
{
    bool excused = c->call.shaken || c->w->spaces[c->call.ns].deleting || c->call.ns != 0;
    if (!(ev->kind == EVENT_TXN && ev->status == TXN_OK) && promise_session(c) && !excused)
        sim_wrong(c->w, "I25", "client %d: %s failed in session %" PRIu64, c->no, what,
                  c->session.number);
}

static void bank_answered(struct sim_client *c, const struct event *ev)
{
    struct sim_session *s = &c->session;
    bool ok = ev->kind == EVENT_TXN && ev->status == TXN_OK;
    if (c->call.deal == DEAL_BAD) {
        if (ok)
            sim_wrong(c->w, "I25", "client %d: a false assert held", c->no);
        return;
    }
    must_succeed(c, ev, "a transfer");
    if (!ok) {
        s->bank = ev->kind == EVENT_TXN ? BANK_LOST : s->bank;
        return;
    }
    s->bank = c->call.shaken || c->w->spaces[c->call.ns].deleting ? BANK_LOST : BANK_KNOWN;
    s->x = c->call.x;
    s->y = c->call.y;
    s->bank_told = c->w->moment;
}

static void gate_answered(struct sim_client *c, const struct event *ev)
{
    struct sim_world *w = c->w;
    int gate = c->call.gate;
    bool ok = ev->kind == EVENT_TXN && ev->status == TXN_OK;
    if (c->call.deal == DEAL_GATE_OUT) {
        must_succeed(c, ev, "leaving a gate");
        return;
    }
    if (!ok)
        return;
    for (int i = 0; i < w->plan.clients; i++) {
        const struct sim_client *o = &w->clients[i];
        bool both = promise_session(o) && promise_session(c); /* the answer may be an old one */
        if (o != c && o->session.gates[gate] && both && sim_deal_space(o) == c->call.ns)
            sim_wrong(w, "I1", "clients %d and %d have gate %d", c->no, i, gate);
    }
    c->session.gates[gate] = !c->call.shaken && !w->spaces[c->call.ns].deleting;
}

static void lock_answered(struct sim_client *c, const struct event *ev)
{
    struct sim_hold *h = promise_slot(c);
    if (ev->kind != EVENT_TXN || ev->status != TXN_OK || !h)
        return;
    const struct sim_space *space = &c->w->spaces[c->call.ns];
    *h = c->call.want;
    h->used = true;
    h->told = c->w->moment;
    h->since_ms = c->call.invoked_ms;
    h->sure = !c->call.shaken && !space->deleting && !space->locks[c->call.lock].breaking;
    for (size_t i = 0; i < ev->n_data; i++)
        if (ev->data[i].kind == TXN_ROW_FENCE)
            h->fence = h->near = ev->data[i].fence;
    if (!h->fence)
        sim_wrong(c->w, "I25", "client %d: a lock without a fence", c->no);
    promise_granted(c, h, c->call.invoked);
}

static void unlock_answered(struct sim_client *c, const struct event *ev)
{
    struct sim_hold *h = &c->holds[c->call.hold];
    h->sure = c->call.was_sure && !c->call.shaken;
    if (promise_hold(c, h))
        must_succeed(c, ev, "an unlock");
    if (ev->kind == EVENT_TXN && ev->status == TXN_OK)
        promise_gone(c->w, h);
    h->used = false;
}

void sim_deal_answered(struct sim_client *c, const struct event *ev)
{
    if (c->call.session != c->session.number)
        return;
    if (c->call.deal == DEAL_LOCK)
        lock_answered(c, ev);
    else if (c->call.deal == DEAL_UNLOCK)
        unlock_answered(c, ev);
    else if (c->call.deal == DEAL_GATE_IN || c->call.deal == DEAL_GATE_OUT)
        gate_answered(c, ev);
    else
        bank_answered(c, ev);
}

/* --- whoever looks --- */

static bool find(const struct event *ev, char account, uint64_t session, uint64_t *ret)
{
    char key[24];
    char text[24] = "";
    snprintf(key, sizeof key, "%c%" PRIu64, account, session);
    for (size_t i = 0; i < ev->n_rows; i++) {
        const struct variable_row *v = &ev->variables[i];
        if (!slice_eq(v->key, slice_str(key)) || v->record.value.len >= sizeof text)
            continue;
        memcpy(text, v->record.value.data, v->record.value.len);
        *ret = strtoull(text, NULL, 10);
        return true;
    }
    return false;
}

static void audit_session(struct sim_client *c, const struct event *ev, uint64_t session)
{
    uint64_t x = 0;
    uint64_t y = 0;
    bool has_x = find(ev, 'x', session, &x);
    bool has_y = find(ev, 'y', session, &y);
    if (has_x != has_y || (has_x && x + y != SIM_BANK))
        sim_wrong(c->w, "I25", "client %d sees %" PRIu64 " and %" PRIu64 " in session %" PRIu64,
                  c->no, x, y, session);
}

static void audit_client(struct sim_client *c, const struct event *ev,
                         const struct sim_client *owner)
{
    const struct sim_session *s = &owner->session;
    uint64_t x = 0;
    if (s->bank != BANK_KNOWN || s->bank_told >= c->call.invoked || !promise_session(owner) ||
        sim_deal_space(owner) != c->call.ns || owner->call.deal == DEAL_MOVE)
        return;
    if (!find(ev, 'x', s->number, &x) || x != s->x)
        sim_wrong(c->w, "I8",
                  "client %d sees %" PRIu64 " in session %" PRIu64 ", it must be %" PRIu64,
                  c->no, x, s->number, s->x);
}

void sim_deal_audit(struct sim_client *c, const struct event *ev)
{
    if (ev->more || !ev->variables)
        return;
    for (size_t i = 0; i < ev->n_rows && !c->call.gate; i++) {
        struct slice id = ev->variables[i].record.session;
        char text[24] = "";
        if (id.len > 1 && id.len < sizeof text)
            memcpy(text, id.data + 1, id.len - 1);
        audit_session(c, ev, strtoull(text, NULL, 10));
    }
    for (size_t i = 0; i < ev->n_rows && c->call.gate; i++)
        for (size_t k = 0; k < i; k++)
            if (slice_eq(ev->variables[i].key, ev->variables[k].key))
                sim_wrong(c->w, "I1", "client %d sees two in one gate", c->no);
    for (int i = 0; i < c->w->plan.clients && !c->call.gate && !c->call.stale; i++)
        audit_client(c, ev, &c->w->clients[i]);
}
