/* sim_client.c - what clients ask for: everything that can be asked, as their habits say.
 *
 * A client asks one thing at a time, at any node, and remembers what it was told
 * (sim_answer.c). Its node may die under it; it may go away while it waits; the server keeps
 * the session of a connection that is there. When the world heals, it gives everything back. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

static bool has(const struct sim_client *c, enum sim_habit habit)
{
    return c->w->plan.habits & habit;
}

void sim_client_wake(struct sim_client *c, uint64_t in_ms)
{
    struct sim_event *ev = sim_post(c->w, in_ms, EV_CLIENT, 0);
    ev->from = (uint64_t)c->no;
    ev->life = ++c->nonce;
}

void sim_client_idle(struct sim_client *c, uint64_t in_ms)
{
    c->call = (struct sim_call){.kind = OP_TICK, .ns = -1, .hold = -1};
    sim_client_wake(c, in_ms);
}

static struct sim_node *pick_node(struct sim_world *w)
{
    for (int tries = 0; tries < 8 && !judge_is_forking(w->judge); tries++) {
        struct sim_node *n = &w->nodes[1 + sim_random(w, SIM_NODES)];
        if (n->order && n->member && n->paused_until <= w->now)
            return n;
    }
    return NULL;
}

/* --- words --- */

static struct slice word_ns(struct sim_client *c, int ns)
{
    if (ns == 0)
        return SLICE("default");
    snprintf(c->words.ns, sizeof c->words.ns, "n%d", ns);
    return slice_str(c->words.ns);
}

static struct slice word_lock(struct sim_client *c, int place, int lock)
{
    snprintf(c->words.names[place], sizeof c->words.names[place], "lock-%d", lock);
    return slice_str(c->words.names[place]);
}

static void name_locks(struct sim_client *c, struct op *op)
{
    op->name = word_lock(c, 0, c->call.lock);
    for (int i = 1; i < c->call.names; i++)
        c->words.more[i - 1] = word_lock(c, i, c->call.lock + i);
    op->more = (struct names){c->words.more, (size_t)(c->call.names - 1)};
}

static struct slice word_session(struct sim_client *c, uint64_t number)
{
    snprintf(c->words.session, sizeof c->words.session, "s%" PRIu64, number);
    return slice_str(c->words.session);
}

static void name_session(struct sim_client *c, struct op *op, uint64_t number)
{
    c->call.session = number;
    op->session = word_session(c, number);
}

static void pick_place(struct sim_client *c)
{
    struct sim_world *w = c->w;
    c->call.ns = has(c, HABIT_NAMESPACE) ? (int)sim_random(w, SIM_SPACES) : 0;
    c->call.lock = (int)sim_random(w, SIM_LOCKS);
    c->call.names = 1;
}

/* One of its holds; -1: it has none. */
static int pick_hold(struct sim_client *c)
{
    int from = (int)sim_random(c->w, SIM_HOLDS);
    for (int i = 0; i < SIM_HOLDS; i++)
        if (c->holds[(from + i) % SIM_HOLDS].used)
            return (from + i) % SIM_HOLDS;
    return -1;
}

static bool use_hold(struct sim_client *c, struct op *op)
{
    c->call.hold = pick_hold(c);
    if (c->call.hold < 0)
        return false;
    const struct sim_hold *h = &c->holds[c->call.hold];
    c->call.ns = h->ns;
    c->call.lock = h->lock;
    c->call.names = 1;
    c->call.want = *h;
    c->call.was_sure = h->sure;
    op->fence = c->call.fence = h->fence;
    if (!h->fence)
        op->owner = slice_str(h->owner);
    name_locks(c, op);
    return true;
}

/* --- locks --- */

static void pick_mode(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    bool semaphore = has(c, HABIT_SEMAPHORE) && (c->call.lock >= 3) != sim_chance(w, 4);
    op->mode = has(c, HABIT_SHARED) && sim_chance(w, 50) ? MODE_SHARED : MODE_EXCLUSIVE;
    if (!semaphore)
        return;
    op->mode = MODE_SEMAPHORE;
    op->of = sim_chance(w, 5) ? 2 : 3;
    op->permits = 1 + sim_random(w, op->of);
}

static void pick_options(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    if (!has(c, HABIT_OPTIONS))
        return;
    if (sim_chance(w, 20))
        op->grace_ms = sim_random(w, 500);
    if (sim_chance(w, 20))
        op->delay_ms = sim_random(w, 1000);
    if (sim_chance(w, 20)) {
        op->flags |= OP_SET_BODY;
        snprintf(c->words.body, sizeof c->words.body, "%" PRIu64, sim_random(w, 1000));
        op->body = slice_str(sim_chance(w, 20) ? "" : c->words.body);
    }
    if (op->wait_ms && sim_chance(w, 20)) {
        op->flags |= OP_NOBLOCK;
        c->ask.stay = sim_chance(w, 70);
    }
    if (op->mode == MODE_EXCLUSIVE && sim_chance(w, 30)) {
        op->policy = POLICY_SOFT;
        if (op->wait_ms > 1 && sim_chance(w, 50)) {
            op->policy = POLICY_TIMED;
            op->quiet_ms = 1 + sim_random(w, op->wait_ms < 500 ? op->wait_ms : 500);
        }
    }
    if (sim_chance(w, 20))
        op->flags |= OP_WANT_LOCK;
}

uint64_t sim_client_ttl(struct sim_client *c)
{
    return 200 + sim_random(c->w, c->w->plan.short_ttls ? 600 : 8000);
}

static uint64_t pick_wait(struct sim_client *c)
{
    if (sim_chance(c->w, 40))
        return 0;
    if (has(c, HABIT_LONG) && sim_chance(c->w, 30))
        return 200000;
    return 1 + sim_random(c->w, 5000);
}

static void want(struct sim_client *c, const struct op *op)
{
    struct sim_hold *h = &c->call.want;
    *h = (struct sim_hold){.ns = c->call.ns,
                           .lock = c->call.lock,
                           .mode = (enum lock_mode)op->mode,
                           .permits = op->permits,
                           .of = op->of,
                           .ttl_ms = op->ttl_ms,
                           .session = c->call.session};
    snprintf(h->owner, sizeof h->owner, "%.*s", (int)op->owner.len, op->owner.data);
}

static bool start_acquire(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    if (!promise_slot(c))
        return false;
    pick_place(c);
    op->kind = OP_ACQUIRE;
    snprintf(c->words.owner, sizeof c->words.owner, "c%d-%" PRIu64, c->no, c->nonce);
    op->owner = slice_str(c->words.owner);
    op->ttl_ms = sim_client_ttl(c);
    op->wait_ms = pick_wait(c);
    if (has(c, HABIT_SEVERAL) && !op->wait_ms && sim_chance(w, 30) &&
        c->call.lock + 1 < SIM_LOCKS) {
        c->call.names = 2 + (int)sim_random(w, 2);
        if (c->call.lock + c->call.names > SIM_LOCKS)
            c->call.names = SIM_LOCKS - c->call.lock;
    }
    pick_mode(c, op);
    pick_options(c, op);
    if (c->session.number && sim_chance(w, 60)) {
        name_session(c, op, c->session.number);
        if (sim_chance(w, 30))
            op->ttl_ms = 0;
    }
    name_locks(c, op);
    want(c, op);
    return true;
}

/* The holder asks once more, and gets a new fence. */
static bool start_again(struct sim_client *c, struct op *op)
{
    if (!use_hold(c, op))
        return false;
    struct sim_hold *h = &c->holds[c->call.hold];
    op->kind = OP_ACQUIRE;
    op->fence = 0;
    op->owner = slice_str(h->owner);
    op->mode = h->mode;
    op->permits = h->permits;
    op->of = h->of;
    op->ttl_ms = h->ttl_ms;
    if (h->session)
        name_session(c, op, h->session);
    c->call.again = true;
    h->sure = false;
    return true;
}

static bool start_release(struct sim_client *c, struct op *op)
{
    if (!use_hold(c, op))
        return false;
    op->kind = OP_RELEASE;
    if (op->fence && sim_chance(c->w, 80)) {
        c->holds[c->call.hold].sure = false;
        return true;
    }
    /* by the owner's name: all that it has, side by side */
    op->fence = c->call.fence = 0;
    op->owner = slice_str(c->call.want.owner);
    for (int i = 0; i < SIM_HOLDS; i++) {
        struct sim_hold *h = &c->holds[i];
        if (!h->used || strcmp(h->owner, c->call.want.owner) != 0)
            continue;
        int end = c->call.lock + c->call.names;
        c->call.lock = h->lock < c->call.lock ? h->lock : c->call.lock;
        end = h->lock >= end ? h->lock + 1 : end;
        c->call.names = end - c->call.lock;
        c->call.was_sure = c->call.was_sure && h->sure;
        h->sure = false;
    }
    name_locks(c, op);
    return true;
}

static bool start_prolong(struct sim_client *c, struct op *op)
{
    if (!use_hold(c, op))
        return false;
    op->kind = has(c, HABIT_OPTIONS) && sim_chance(c->w, 40) ? OP_BODY : OP_RENEW;
    if (op->kind == OP_BODY)
        op->body = slice_str(sim_chance(c->w, 20) ? "" : "new");
    if (c->call.want.ttl_ms && sim_chance(c->w, 50))
        c->call.want.ttl_ms = op->ttl_ms = sim_client_ttl(c);
    if (c->call.want.ttl_ms < c->holds[c->call.hold].ttl_ms)
        c->holds[c->call.hold].sure = false; /* its end may come closer, until it is answered */
    return true;
}

static bool start_convert(struct sim_client *c, struct op *op)
{
    if (!use_hold(c, op) || c->call.want.mode == MODE_SEMAPHORE)
        return false;
    op->kind = OP_CONVERT;
    op->mode = sim_chance(c->w, 60) ? MODE_EXCLUSIVE : MODE_SHARED;
    op->wait_ms = sim_chance(c->w, 60) ? 1 + sim_random(c->w, 3000) : 0;
    c->call.want.mode = (enum lock_mode)op->mode;
    c->holds[c->call.hold].sure = false;
    return true;
}

static bool start_break(struct sim_client *c, struct op *op)
{
    pick_place(c);
    op->kind = OP_BREAK;
    name_locks(c, op);
    c->w->spaces[c->call.ns].locks[c->call.lock].breaking++;
    promise_shake(c->w, c->call.ns, c->call.lock);
    return true;
}

/* --- sessions --- */

static bool start_open(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    if (c->session.number || w->past.sessions + 1 >= SIM_SESSIONS)
        return false;
    op->kind = OP_SESSION_OPEN;
    op->ttl_ms = 500 + sim_random(w, 8000);
    op->linger_ms = sim_chance(w, 50) ? 0 : 200 + sim_random(w, 2000);
    op->text = SLICE("a client");
    name_session(c, op, ++w->past.sessions);
    c->session = (struct sim_session){.ttl_ms = op->ttl_ms, .linger_ms = op->linger_ms};
    return true;
}

static bool start_session_op(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    struct sim_session *s = &c->session;
    if (!s->number)
        return false;
    name_session(c, op, s->number);
    c->call.was_sure = s->sure;
    uint64_t what = sim_random(w, 10);
    if (what < 4 || (what < 7 && s->target)) {
        op->kind = OP_SESSION_KEEPALIVE;
        c->call.names = 1;
        if (c->old_session && sim_chance(w, 50)) { /* one that may be over */
            snprintf(c->words.ids[0], sizeof c->words.ids[0], "s%" PRIu64, c->old_session);
            c->words.more[0] = slice_str(c->words.ids[0]);
            op->more = (struct names){c->words.more, 1};
            c->call.names = 2;
        }
    } else if (what < 7) {
        op->kind = OP_SESSION_ATTACH;
        op->target = s->target = UINT64_MAX; /* the node's next one, when it is known */
    } else if (what < 9 && s->target) {
        op->kind = OP_SESSION_DETACH;
        op->target = s->target;
        s->target = 0;
        s->sure = false;
    } else {
        op->kind = OP_SESSION_CLOSE;
        s->sure = false;
    }
    return true;
}

/* One that was closed, perhaps: it must not answer. */
static bool start_poke(struct sim_client *c, struct op *op)
{
    if (!c->old_session)
        return false;
    op->kind = OP_SESSION_KEEPALIVE;
    name_session(c, op, c->old_session);
    return true;
}

/* --- namespaces --- */

static bool start_namespace(struct sim_client *c, struct op *op)
{
    struct sim_world *w = c->w;
    c->call.ns = 1 + (int)sim_random(w, SIM_SPACES - 1);
    op->kind = OP_NAMESPACE_CREATE;
    op->text = SLICE("for the simulator");
    uint64_t what = sim_random(w, 10);
    if (what < 5)
        return true;
    if (what < 6) {
        op->kind = OP_NAMESPACE_UPDATE;
        op->flags = OP_SET_TEXT;
        return true;
    }
    op->kind = OP_NAMESPACE_DELETE;
    op->text = slice_of("", 0);
    w->spaces[c->call.ns].leaving++;
    w->spaces[c->call.ns].goes++;
    w->spaces[c->call.ns].is_there = false;
    for (int i = 0; i < w->plan.clients; i++)
        if (w->clients[i].call.kind == OP_NAMESPACE_CREATE &&
            w->clients[i].call.ns == c->call.ns)
            w->clients[i].call.shaken = true;
    if (what == 9) {
        op->flags = OP_FORCE;
        c->call.again = true;
        w->spaces[c->call.ns].deleting++;
        promise_shake(w, c->call.ns, -1);
    }
    return true;
}

/* --- reads --- */

static bool start_check(struct sim_client *c, struct op *op)
{
    op->kind = OP_CHECK;
    if (sim_chance(c->w, 60) && use_hold(c, op) && op->fence)
        return true;
    pick_place(c);
    const struct sim_lock *l = &c->w->spaces[c->call.ns].locks[c->call.lock];
    op->owner = slice_of("", 0);
    op->fence = c->call.fence = l->n_gone ? l->gone[(l->n_gone - 1) % SIM_GONE].fence : 1;
    c->call.hold = -1;
    name_locks(c, op);
    return true;
}

/* What its node knows will do. */
static void perhaps_stale(struct sim_client *c, struct op *op)
{
    if (!has(c, HABIT_STALE) || !sim_chance(c->w, 40))
        return;
    op->flags |= OP_STALE;
    c->call.stale = true;
}

static bool start_show(struct sim_client *c, struct op *op)
{
    pick_place(c);
    op->kind = OP_SHOW;
    perhaps_stale(c, op);
    name_locks(c, op);
    return true;
}

static bool start_list(struct sim_client *c, struct op *op)
{
    static const enum op_kind kinds[] = {OP_LIST,           OP_LIST,       OP_NAMESPACE_LIST,
                                         OP_NAMESPACE_SHOW, OP_TABLE_LIST, OP_SESSION_LIST,
                                         OP_SESSION_SHOW};
    struct sim_world *w = c->w;
    pick_place(c);
    op->kind = kinds[sim_random(w, sizeof kinds / sizeof kinds[0])];
    op->limit = 100;
    perhaps_stale(c, op);
    if (op->kind == OP_SESSION_SHOW) {
        snprintf(c->words.session, sizeof c->words.session, "s%" PRIu64,
                 1 + sim_random(w, w->past.sessions + 1));
        op->session = slice_str(c->words.session);
    }
    return true;
}

static bool start_audit(struct sim_client *c, struct op *op)
{
    pick_place(c);
    op->kind = OP_TABLE_SHOW;
    op->name = sim_chance(c->w, 70) ? SLICE("bank") : SLICE("gate");
    c->call.gate = op->name.data[0] == 'g';
    op->limit = LIMIT_LIST;
    perhaps_stale(c, op);
    return true;
}

/* --- what next --- */

static const struct {
    bool (*start)(struct sim_client *c, struct op *op); /* false: not now */
    unsigned habit;                                     /* 0: all have it */
    unsigned weight;
} actions[] = {
    {start_acquire, 0, 30},
    {start_release, 0, 20},
    {start_show, 0, 14},
    {start_check, 0, 6},
    {start_prolong, 0, 6},
    {start_again, 0, 4},
    {start_convert, HABIT_CONVERT, 8},
    {start_break, HABIT_BREAK, 1},
    {start_open, HABIT_SESSION | HABIT_TXN, 10},
    {start_session_op, HABIT_SESSION, 8},
    {start_poke, HABIT_SESSION, 2},
    {sim_deal_start, HABIT_TXN, 20},
    {start_audit, HABIT_TXN, 8},
    {start_namespace, HABIT_NAMESPACE, 6},
    {start_list, HABIT_LIST, 8},
};
enum { N_ACTIONS = sizeof actions / sizeof actions[0] };

static bool start_any(struct sim_client *c, struct op *op)
{
    unsigned sum = 0;
    for (size_t i = 0; i < N_ACTIONS; i++)
        sum += actions[i].weight;
    for (int tries = 0; tries < 20; tries++) {
        uint64_t at = sim_random(c->w, sum);
        size_t i = 0;
        while (at >= actions[i].weight)
            at -= actions[i++].weight;
        c->call = (struct sim_call){.kind = OP_TICK, .ns = 0, .hold = -1, .names = 1};
        c->ask = (struct ask){.answer = sim_answer};
        *op = (struct op){0};
        bool allowed = !actions[i].habit || c->w->plan.habits & actions[i].habit;
        if (allowed && actions[i].start(c, op))
            return true;
    }
    return false;
}

/* The world has healed: back with everything. */
static bool start_drain(struct sim_client *c, struct op *op)
{
    c->call = (struct sim_call){.kind = OP_TICK, .ns = 0, .hold = -1, .names = 1};
    c->ask = (struct ask){.answer = sim_answer};
    *op = (struct op){0};
    if (start_release(c, op))
        return true;
    if (c->session.number && sim_chance(c->w, 50)) {
        op->kind = OP_SESSION_CLOSE;
        name_session(c, op, c->session.number);
        c->call.was_sure = c->session.sure;
        c->session.sure = false;
        return true;
    }
    promise_forget_session(c); /* its time to live ends it */
    return false;
}

/* At this node, for the first time or again. */
static void ask(struct sim_client *c, struct sim_node *n)
{
    struct sim_world *w = c->w;
    struct op op = c->op;
    const char *what;
    enum belay_err err = op_validate(&op, &what);
    BELAY_CHECK(err == BELAY_OK);
    w->moment++;
    c->call.node = n->id;
    c->call.back = false;
    c->call.times++;
    const struct sim_space *space = &w->spaces[c->call.ns];
    if (space->deleting || (op.kind == OP_NAMESPACE_CREATE && space->leaving))
        c->call.shaken = true;
    for (int i = 0; i < c->call.names && c->call.lock + i < SIM_LOCKS; i++)
        if (space->locks[c->call.lock + i].breaking)
            c->call.shaken = true;
    uint64_t nonce = c->nonce;
    bool lasts = op.wait_ms || op.kind == OP_ACQUIRE; /* or its answer is on its way */
    if (lasts && has(c, HABIT_GO) && !w->healing && !c->call.told && sim_chance(w, 25)) {
        struct sim_event *ev = sim_post(w, sim_random(w, op.wait_ms + 100), EV_GO, 0);
        ev->from = (uint64_t)c->no;
        ev->life = nonce;
    }
    sim_enter(n);
    engine_submit(n->engine, &op, &c->ask);
    if (c->nonce == nonce)
        c->call.asker = c->ask.id; /* not answered at once */
    sim_node_settle(w, n);
}

static void submit(struct sim_client *c, struct sim_node *n, struct op *op)
{
    struct sim_world *w = c->w;
    const struct sim_space *space = &w->spaces[c->call.ns];
    op->account = SLICE("default");
    op->ns = word_ns(c, c->call.ns);
    sim_again_name(c, op);
    bool attach = op->kind == OP_SESSION_OPEN && !op->request.len && sim_chance(w, 50);
    if (op->target == UINT64_MAX || attach)
        op->target = c->session.target = engine_new_target(n->engine);
    c->op = *op;
    c->call.kind = op->kind;
    c->call.invoked = w->moment + 1;
    c->call.invoked_ms = w->now;
    c->call.wait_ms = op->wait_ms;
    c->call.in_space = space->is_there;
    c->call.goes = space->goes;
    for (size_t i = 0; i < w->plan.groups; i++)
        c->call.known[i] = judge_length(w->judge, i);
    ask(c, n);
}

void sim_client_act(struct sim_world *w, int no)
{
    struct sim_client *c = &w->clients[no];
    struct sim_node *n = pick_node(w);
    struct op op;
    if (!n) {
        sim_client_wake(c, 100);
        return;
    }
    if (c->call.back) {
        ask(c, n);
        return;
    }
    if (w->healing && !start_drain(c, &op)) {
        c->drained = true;
        return;
    }
    if (!w->healing && !start_any(c, &op)) {
        sim_client_idle(c, 100);
        return;
    }
    submit(c, n, &op);
}

/* --- it goes, its node goes --- */

static void forget_call(struct sim_client *c)
{
    if (sim_again_lost(c))
        return;
    sim_answer_unknown(c);
    c->ask.id = 0;
    sim_client_idle(c, 50 + sim_random(c->w, 500));
}

void sim_client_go(struct sim_world *w, int no)
{
    struct sim_client *c = &w->clients[no];
    struct sim_node *n = &w->nodes[c->call.node];
    if (c->call.kind == OP_TICK || !c->ask.id || n->paused_until > w->now)
        return;
    w->moment++;
    sim_enter(n);
    engine_cancel(n->engine, &c->ask);
    c->call.was_sure = false; /* to call off a conversion changes its fence */
    forget_call(c);
    sim_node_settle(w, n);
}

/* The node is gone, and with it the answer. What was asked may have happened or not. */
void sim_client_lost(struct sim_world *w, uint64_t node)
{
    for (int i = 0; i < w->plan.clients; i++) {
        struct sim_client *c = &w->clients[i];
        if (c->call.kind != OP_TICK && c->call.node == node)
            forget_call(c);
    }
}

/* --- the server's part: it keeps the sessions of connections that are there --- */

void sim_client_attached(struct sim_client *c)
{
    if (!c->session.target)
        return;
    struct sim_event *ev = sim_post(c->w, c->session.ttl_ms / 3, EV_KEEP, 0);
    ev->from = (uint64_t)c->no;
    ev->life = c->session.target;
}

void sim_client_keep(struct sim_world *w, int no, uint64_t target)
{
    struct sim_client *c = &w->clients[no];
    struct sim_node *n = pick_node(w);
    if (c->session.target != target || w->healing)
        return;
    sim_client_attached(c);
    if (!n)
        return;
    struct op op = {
        .kind = OP_SESSION_KEEPALIVE, .account = SLICE("default"), .more = {c->words.more, 1}};
    snprintf(c->words.ids[1], sizeof c->words.ids[1], "s%" PRIu64, c->session.number);
    c->words.more[0] = slice_str(c->words.ids[1]);
    sim_enter(n);
    engine_submit(n->engine, &op, NULL);
    sim_node_settle(w, n);
}

/* --- the end --- */

bool sim_clients_done(const struct sim_world *w)
{
    for (int i = 0; i < w->plan.clients; i++)
        if (w->clients[i].call.kind != OP_TICK || !w->clients[i].drained)
            return false;
    return true;
}

void sim_clients_done_all(struct sim_world *w)
{
    for (int i = 0; i < w->plan.clients; i++)
        buf_done(&w->clients[i].words.program);
}

void sim_client_describe(const struct sim_world *w)
{
    for (int i = 0; i < w->plan.clients; i++) {
        const struct sim_client *c = &w->clients[i];
        if (c->call.kind != OP_TICK)
            printf("#   client %d at node %" PRIu64 " asks %s (%" PRIx64 ") since %" PRIu64
                   " ms\n",
                   i, c->call.node, op_word(c->call.kind), c->ask.id, c->call.invoked_ms);
    }
}
