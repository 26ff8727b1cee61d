/* txn_twin.c - transactions once more, as simple as can be: the oracle of model_txn. */
#include "txn_twin.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t tt_weight(enum lock_mode mode, uint64_t permits)
{
    if (mode == MODE_SEMAPHORE)
        return permits;
    return mode == MODE_SHARED ? 1 : TT_WHOLE;
}

/* --- one transaction, on a copy --- */

struct row {
    char text[TT_ROW_BYTES];
    int step; /* its fence comes from that step; -1: none */
};

struct
try {
    struct tt_state s;
    const struct tt_txn *txn;
    struct row rows[TT_ROWS];
    int n_rows;
    struct {
        bool unlock;
        int lock;
        struct tt_hold hold;
        int row;
    } steps[TT_NODES];
    int n_steps;
    const char *path[TT_NODES];
    int depth, statement;
    uint64_t work;
    bool stopped, by_assert, over_limit;
    char failed[256];
};

static bool over(const struct tt_state *s, const struct tt_record *r)
{
    bool ended = r->ttl_ms && r->set_ms + r->ttl_ms <= s->now_ms;
    return ended || s->sessions[r->session].end_ms <= s->now_ms;
}

static struct row *new_row(struct try *t)
{
    BELAY_CHECK(t->n_rows < TT_ROWS);
    t->rows[t->n_rows] = (struct row){.step = -1};
    return &t->rows[t->n_rows++];
}

static void remove_record(struct tt_state *s, int table, int key, int at)
{
    struct tt_record *r = s->slots[table][key];
    int n = --s->n_records[table][key];
    memmove(r + at, r + at + 1, (size_t)(n - at) * sizeof *r);
}

static void bury(struct tt_state *s, int table, int key)
{
    for (int i = s->n_records[table][key]; i-- > 0;)
        if (over(s, &s->slots[table][key][i]))
            remove_record(s, table, key, i);
}

static int own(const struct tt_state *s, const struct tt_node *n, int session)
{
    for (int i = 0; i < s->n_records[n->table][n->key]; i++)
        if (s->slots[n->table][n->key][i].session == session)
            return i;
    return -1;
}

static bool match(const struct tt_record *r, const struct tt_node *n, int ignored)
{
    return r->session != ignored && (n->value < 0 || n->value == r->value);
}

static bool do_exists(struct try *t, const struct tt_node *n)
{
    for (int i = 0; i < t->s.n_records[n->table][n->key]; i++)
        if (match(&t->s.slots[n->table][n->key][i], n, n->mine ? -1 : t->txn->session))
            return true;
    return false;
}

static bool do_set(struct try *t, const struct tt_node *n)
{
    struct tt_record *r = t->s.slots[n->table][n->key];
    int *count = &t->s.n_records[n->table][n->key];
    if (*count && !n->dup)
        return false;
    for (int i = 0; i < *count; i++)
        if (n->respect && r[i].exclusive && r[i].session != t->txn->session)
            return false;
    int at = own(&t->s, n, t->txn->session);
    if (at < 0)
        at = (*count)++;
    r[at] = (struct tt_record){.session = t->txn->session,
                               .value = n->value,
                               .exclusive = !n->dup,
                               .set_ms = t->s.now_ms,
                               .ttl_ms = n->ttl_ms,
                               .fresh = ++t->s.n_fresh};
    return true;
}

static bool do_delete(struct try *t, const struct tt_node *n)
{
    int at = own(&t->s, n, t->txn->session);
    if (at < 0 || !match(&t->s.slots[n->table][n->key][at], n, -1))
        return false;
    remove_record(&t->s, n->table, n->key, at);
    return true;
}

static bool hold_over(const struct tt_state *s, const struct tt_hold *h)
{
    if (h->end_ms && h->end_ms <= s->now_ms)
        return true;
    return h->session >= 0 && s->sessions[h->session].end_ms <= s->now_ms;
}

static uint64_t used(const struct tt_state *s, int lock)
{
    uint64_t sum = 0;
    for (int i = 0; i < s->n_holds[lock]; i++)
        sum += s->holds[lock][i].weight;
    return sum;
}

static void remove_hold(struct tt_state *s, int lock, int at)
{
    struct tt_hold *h = s->holds[lock];
    int n = --s->n_holds[lock];
    memmove(h + at, h + at + 1, (size_t)(n - at) * sizeof *h);
    if (n == 0)
        s->capacity[lock] = 0;
}

/* Takes the lock if it can be had at once; `h` gets the place of the new hold, at the end. */
static bool take_lock(struct tt_state *s, int lock, const struct tt_hold *want,
                      uint64_t capacity)
{
    if (s->capacity[lock] && s->capacity[lock] != capacity)
        return false;
    for (int i = 0; i < s->n_holds[lock]; i++) {
        struct tt_hold *h = &s->holds[lock][i];
        if (h->owner != want->owner || h->session != want->session)
            continue;
        if (hold_over(s, h) || h->weight != want->weight)
            return false;        /* one that is over ends first: a holder has one hold */
        remove_hold(s, lock, i); /* again: it gets a new place and a new fence */
        break;
    }
    if (used(s, lock) + want->weight > capacity)
        return false;
    BELAY_CHECK(s->n_holds[lock] < TT_HOLDS);
    s->capacity[lock] = capacity;
    s->holds[lock][s->n_holds[lock]++] = *want;
    return true;
}

static uint64_t capacity_of(enum lock_mode mode, uint64_t of)
{
    return mode == MODE_SEMAPHORE ? of : TT_WHOLE;
}

static bool do_lock(struct try *t, const struct tt_node *n)
{
    struct row *row = new_row(t);
    (void)snprintf(row->text, sizeof row->text, " l%d=", n->lock);
    struct tt_hold want = {.owner = n->owner,
                           .session = t->txn->session,
                           .weight = tt_weight(n->mode, n->permits),
                           .end_ms = n->ttl_ms ? t->s.now_ms + n->ttl_ms : 0};
    struct tt_state before = t->s;
    if (!take_lock(&t->s, n->lock, &want, capacity_of(n->mode, n->of))) {
        t->s = before;
        return false;
    }
    row->step = t->n_steps;
    /* a fence that nobody can name yet */
    t->s.holds[n->lock][t->s.n_holds[n->lock] - 1].fence = UINT64_MAX - (uint64_t)t->n_steps;
    t->steps[t->n_steps].unlock = false;
    t->n_steps++;
    return true;
}

static bool do_unlock(struct try *t, const struct tt_node *n)
{
    for (int i = 0; i < t->s.n_holds[n->lock]; i++) {
        const struct tt_hold *h = &t->s.holds[n->lock][i];
        bool named = n->fence ? h->fence == n->fence
                              : h->owner == n->owner && h->session == t->txn->session;
        if (!named || hold_over(&t->s, h))
            continue;
        remove_hold(&t->s, n->lock, i);
        t->steps[t->n_steps++].unlock = true;
        return true;
    }
    return false;
}

/* Everything that is evaluated costs 1, and 1 for each record of a variable that it is about.
 * What is selected costs more. */
enum { SELECTED = 6 };

static void spend(struct try *t, uint64_t units)
{
    t->work += units;
    if (t->work > t->txn->work_max)
        t->stopped = t->over_limit = true;
}

static void spend_records(struct try *t, const struct tt_node *n)
{
    bury(&t->s, n->table, n->key);
    spend(t, (uint64_t)t->s.n_records[n->table][n->key]);
}

static bool eval_op(struct try *t, int at)
{
    const struct tt_node *n = &t->txn->nodes[at];
    int trues = 0;
    spend(t, 1);
    if (n->kind == NODE_EXISTS || n->kind == NODE_SET || n->kind == NODE_DELETE)
        spend_records(t, n);
    for (int i = 0; i < n->n && !t->stopped; i++)
        trues += eval_op(t, n->kids[i]);
    if (t->stopped)
        return false;
    if (n->kind == NODE_EXISTS)
        return do_exists(t, n);
    if (n->kind == NODE_SET)
        return do_set(t, n);
    if (n->kind == NODE_DELETE)
        return do_delete(t, n);
    if (n->kind == NODE_LOCK)
        return do_lock(t, n);
    if (n->kind == NODE_UNLOCK)
        return do_unlock(t, n);
    if (n->kind == NODE_NOT)
        return trues == 0;
    if (n->kind == NODE_AND)
        return trues == n->n;
    if (n->kind == NODE_OR)
        return trues > 0;
    if (n->kind == NODE_XOR)
        return trues & 1;
    return n->kind == NODE_TRUE;
}

static void stop(struct try *t, bool by_assert)
{
    int len = snprintf(t->failed, sizeof t->failed, "%d:/", t->statement);
    for (int i = 0; i < t->depth; i++)
        len += snprintf(t->failed + len, sizeof t->failed - (size_t)len, "%s/", t->path[i]);
    t->stopped = true;
    t->by_assert = by_assert;
}

static void do_select(struct try *t, const struct tt_node *n)
{
    struct row row = {.step = -1};
    int found = 0, len = snprintf(row.text, sizeof row.text, n->many ? " x=[" : " x=");
    spend_records(t, n);
    if (t->stopped)
        return;
    for (int i = 0; i < t->s.n_records[n->table][n->key] && (n->many || !found); i++) {
        const struct tt_record *r = &t->s.slots[n->table][n->key][i];
        if (!match(r, n, n->mine ? -1 : t->txn->session))
            continue;
        len += snprintf(row.text + len, sizeof row.text - (size_t)len, "%s%d@s%d",
                        found ? "," : "", r->value, r->session);
        found++;
        spend(t, SELECTED);
    }
    if (t->stopped)
        return;
    if (!found && n->need) {
        stop(t, false);
        return;
    }
    if (found && n->many)
        (void)snprintf(row.text + len, sizeof row.text - (size_t)len, "]");
    if (!found)
        (void)snprintf(row.text, sizeof row.text, " x=null");
    *new_row(t) = row;
}

static void eval_statement(struct try *t, int at)
{
    const struct tt_node *n = &t->txn->nodes[at];
    spend(t, 1);
    if (t->stopped)
        return;
    t->path[t->depth++] = program_name(n->kind);
    if (n->kind == NODE_ASSERT) {
        if (!eval_op(t, n->kids[0]) && !t->stopped)
            stop(t, true);
    } else if (n->kind == NODE_ABORT) {
        stop(t, false);
    } else if (n->kind == NODE_BLOCK) {
        for (int i = 0; i < n->n && !t->stopped; i++)
            eval_statement(t, n->kids[i]);
    } else if (n->kind == NODE_IF) {
        int branch = eval_op(t, n->kids[0]) ? 1 : 2;
        if (branch < n->n && !t->stopped)
            eval_statement(t, n->kids[branch]);
    } else if (n->kind == NODE_ANYWAY) {
        (void)eval_op(t, n->kids[0]);
    } else if (n->kind == NODE_SELECT_CONSTANT) {
        spend(t, SELECTED);
        if (!t->stopped)
            (void)snprintf(new_row(t)->text, TT_ROW_BYTES, " c=%d", n->value);
    } else if (n->kind == NODE_SELECT_OPERATOR) {
        bool truth = eval_op(t, n->kids[0]);
        if (!t->stopped)
            (void)snprintf(new_row(t)->text, TT_ROW_BYTES, truth ? " o=true" : " o=false");
    } else {
        do_select(t, n);
    }
    t->depth--;
}

/* Numbers for what is new: records in the order in which they were set, then locks. */
static void settle(struct try *t)
{
    for (int f = 1; f <= t->s.n_fresh; f++)
        for (int i = 0; i < TT_TABLES * TT_KEYS * TT_SESSIONS; i++) {
            int table = i / (TT_KEYS * TT_SESSIONS), key = i / TT_SESSIONS % TT_KEYS;
            struct tt_record *r = &t->s.slots[table][key][i % TT_SESSIONS];
            if (i % TT_SESSIONS < t->s.n_records[table][key] && r->fresh == f) {
                r->number = ++t->s.counter;
                r->fresh = 0;
            }
        }
    t->s.n_fresh = 0;
    for (int step = 0; step < t->n_steps; step++) {
        if (t->steps[step].unlock)
            continue;
        uint64_t fence = ++t->s.counter;
        for (int l = 0; l < TT_LOCKS; l++)
            for (int i = 0; i < t->s.n_holds[l]; i++)
                if (t->s.holds[l][i].fence == UINT64_MAX - (uint64_t)step)
                    t->s.holds[l][i].fence = fence;
        for (int i = 0; i < t->n_rows; i++)
            if (t->rows[i].step == step) {
                size_t len = strlen(t->rows[i].text);
                (void)snprintf(t->rows[i].text + len, TT_ROW_BYTES - len, "#%" PRIu64, fence);
                t->rows[i].step = -2; /* filled */
            }
    }
}

enum outcome { HOLDS, ABORTED, ASSERT_FAILED, OVER_LIMIT };

static enum outcome attempt(const struct tt *t, const struct tt_txn *txn, struct try *ret)
{
    *ret = (struct try){.s = t->s, .txn = txn};
    for (; ret->statement < txn->n_top && !ret->stopped; ret->statement++)
        eval_statement(ret, txn->top[ret->statement]);
    if (ret->over_limit)
        return OVER_LIMIT;
    if (!ret->stopped)
        return HOLDS;
    return ret->by_assert ? ASSERT_FAILED : ABORTED;
}

static void say(struct tt *t, uint64_t asker, const char *status, const struct try *try)
{
    buf_printf(&t->said, "%" PRIu64 ": %s", asker, status);
    if (try && try->failed[0])
        buf_printf(&t->said, " %s", try->failed);
    for (int i = 0; try && i < try->n_rows; i++) {
        buf_put_str(&t->said, try->rows[i].text);
        bool lock = try->rows[i].text[1] == 'l';
        buf_put_str(&t->said, lock && try->rows[i].step != -2 ? "null" : "");
    }
    buf_put_byte(&t->said, '\n');
}

static void say_outcome(struct tt *t, uint64_t asker, enum outcome outcome,
                        const struct try *try)
{
    if (outcome == OVER_LIMIT)
        say(t, asker, "failed", NULL);
    else
        say(t, asker, outcome == HOLDS ? "ok" : "error statement", try);
}

static void unpark(struct tt *t, int at)
{
    t->n_parked--;
    memmove(t->parked + at, t->parked + at + 1,
            (size_t)(t->n_parked - at) * sizeof t->parked[0]);
}

/* Everybody who waits is tried, the first again after every success. */
static void serve(struct tt *t)
{
    static struct try try;
    for (int i = 0; i < t->n_parked; i++) {
        enum outcome outcome = attempt(t, &t->parked[i], &try);
        if (outcome == ASSERT_FAILED)
            continue;
        if (outcome == HOLDS) {
            settle(&try);
            t->s = try.s;
        }
        say_outcome(t, t->parked[i].asker, outcome, &try);
        unpark(t, i);
        i = -1;
    }
}

/* --- ends --- */

static void end_session(struct tt *t, int session)
{
    for (int i = 0; i < t->n_parked; i++)
        if (t->parked[i].session == session) {
            say(t, t->parked[i].asker, "error session", NULL);
            unpark(t, i--);
        }
    for (int i = 0; i < TT_TABLES * TT_KEYS; i++)
        for (int j = t->s.n_records[i / TT_KEYS][i % TT_KEYS]; j-- > 0;)
            if (t->s.slots[i / TT_KEYS][i % TT_KEYS][j].session == session)
                remove_record(&t->s, i / TT_KEYS, i % TT_KEYS, j);
    for (int l = 0; l < TT_LOCKS; l++)
        for (int i = t->s.n_holds[l]; i-- > 0;)
            if (t->s.holds[l][i].session == session)
                remove_hold(&t->s, l, i);
    t->s.sessions[session].lives = false;
}

struct due {
    uint64_t at, number;
    int kind, a, b, c; /* 0 session, 1 record, 2 parked, 3 hold */
};

static void earlier(struct due *best, struct due d)
{
    if (d.at < best->at || (d.at == best->at && d.number < best->number))
        *best = d;
}

static struct due next_due(const struct tt *t)
{
    struct due best = {.at = UINT64_MAX, .number = UINT64_MAX};
    for (int i = 0; i < TT_SESSIONS; i++)
        if (t->s.sessions[i].lives)
            earlier(&best,
                    (struct due){t->s.sessions[i].end_ms, t->s.sessions[i].number, 0, i, 0, 0});
    for (int i = 0; i < TT_TABLES * TT_KEYS; i++)
        for (int j = 0; j < t->s.n_records[i / TT_KEYS][i % TT_KEYS]; j++) {
            const struct tt_record *r = &t->s.slots[i / TT_KEYS][i % TT_KEYS][j];
            if (r->ttl_ms)
                earlier(&best, (struct due){r->set_ms + r->ttl_ms, r->number, 1, i / TT_KEYS,
                                            i % TT_KEYS, j});
        }
    for (int i = 0; i < t->n_parked; i++)
        earlier(&best, (struct due){t->parked[i].deadline_ms, t->parked[i].ticket, 2, i, 0, 0});
    for (int l = 0; l < TT_LOCKS; l++)
        for (int i = 0; i < t->s.n_holds[l]; i++)
            if (t->s.holds[l][i].end_ms)
                earlier(&best, (struct due){t->s.holds[l][i].end_ms, t->s.holds[l][i].fence, 3,
                                            l, i, 0});
    return best;
}

static void time_out(struct tt *t, int at)
{
    static struct try try;
    const struct tt_txn *p = &t->parked[at];
    if (t->s.sessions[p->session].end_ms <= t->s.now_ms) {
        say(t, p->asker, "error session", NULL);
    } else {
        (void)attempt(t, p, &try);
        say(t, p->asker, "timeout statement", &try);
    }
    unpark(t, at);
}

void tt_advance(struct tt *t, uint64_t now_ms)
{
    buf_clear(&t->said);
    t->s.now_ms = now_ms;
    for (struct due d = next_due(t); d.at <= now_ms; d = next_due(t)) {
        if (d.kind == 0)
            end_session(t, d.a);
        else if (d.kind == 1)
            remove_record(&t->s, d.a, d.b, d.c);
        else if (d.kind == 2)
            time_out(t, d.a);
        else
            remove_hold(&t->s, d.a, d.b);
    }
    serve(t);
}

/* --- ops --- */

static void keep(struct tt *t, int session)
{
    t->s.sessions[session].end_ms = t->s.now_ms + TT_SESSION_TTL_MS;
}

void tt_session(struct tt *t, int session, bool open, uint64_t asker)
{
    bool lives = t->s.sessions[session].lives;
    if (open == lives) {
        say(t, asker, "failed", NULL);
    } else if (open) {
        t->s.sessions[session].lives = true;
        t->s.sessions[session].number = ++t->s.counter;
        keep(t, session);
    } else {
        end_session(t, session);
    }
    serve(t);
}

void tt_txn(struct tt *t, const struct tt_txn *txn, uint64_t asker)
{
    static struct try try;
    if (!t->s.sessions[txn->session].lives) {
        say(t, asker, "error session", NULL);
        return;
    }
    keep(t, txn->session);
    enum outcome outcome = attempt(t, txn, &try);
    if (outcome == ASSERT_FAILED && txn->wait_ms) {
        BELAY_CHECK(t->n_parked < TT_PARKED);
        t->parked[t->n_parked] = *txn;
        t->parked[t->n_parked].asker = asker;
        t->parked[t->n_parked].ticket = ++t->s.counter;
        t->parked[t->n_parked++].deadline_ms = t->s.now_ms + txn->wait_ms;
        return;
    }
    if (outcome == HOLDS) {
        settle(&try);
        t->s = try.s;
    }
    say_outcome(t, asker, outcome, &try);
    serve(t);
}

void tt_acquire(struct tt *t, int lock, const struct tt_hold *want, uint64_t asker)
{
    struct tt_state before = t->s;
    uint64_t capacity = TT_WHOLE;
    if (want->session >= 0 && !t->s.sessions[want->session].lives) {
        say(t, asker, "failed", NULL);
        return;
    }
    if (want->session >= 0)
        keep(t, want->session), before = t->s;
    if (take_lock(&t->s, lock, want, capacity))
        t->s.holds[lock][t->s.n_holds[lock] - 1].fence = ++t->s.counter;
    else
        t->s = before;
    serve(t);
}

void tt_release(struct tt *t, int lock, int owner, int session, uint64_t asker)
{
    (void)asker;
    if (session >= 0 && t->s.sessions[session].lives)
        keep(t, session);
    for (int i = t->s.n_holds[lock]; i-- > 0;) {
        const struct tt_hold *h = &t->s.holds[lock][i];
        if (h->owner == owner && (session < 0 || h->session == session))
            remove_hold(&t->s, lock, i);
    }
    serve(t);
}

void tt_cancel(struct tt *t, uint64_t asker)
{
    for (int i = 0; i < t->n_parked; i++)
        if (t->parked[i].asker == asker) {
            unpark(t, i);
            return;
        }
}

void tt_show(const struct tt *t, struct buf *out)
{
    for (int i = 0; i < TT_TABLES * TT_KEYS; i++)
        for (int j = 0; j < t->s.n_records[i / TT_KEYS][i % TT_KEYS]; j++) {
            const struct tt_record *r = &t->s.slots[i / TT_KEYS][i % TT_KEYS][j];
            buf_printf(out, "t%d.k%d=%d@s%d%s set=%" PRIu64 "\n", i / TT_KEYS, i % TT_KEYS,
                       r->value, r->session, r->exclusive ? "!" : "", t->s.now_ms - r->set_ms);
        }
    for (int l = 0; l < TT_LOCKS; l++)
        for (int i = 0; i < t->s.n_holds[l]; i++)
            buf_printf(out, "l%d o%d #%" PRIu64 "\n", l, t->s.holds[l][i].owner,
                       t->s.holds[l][i].fence);
    buf_printf(out, "waiting %d\n", t->n_parked);
}
