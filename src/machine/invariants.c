/* invariants.c - the walk that checks every promise of the state. A snapshot must pass it
 * before it is used; debug, model and fuzz builds also walk after ops. The numbers are those of
 * docs/INVARIANTS.md. */
#include "machine/invariants.h"
#include "base/check.h"
#include "machine/holders.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/node.h"
#include "machine/table.h"
#include "machine/txn_wait.h"

/* Every function here gives the first promise that is broken, as text, or NULL: all is well. */
#define PROMISE(cond)                                                                          \
    do {                                                                                       \
        if (!(cond))                                                                           \
            return #cond;                                                                      \
    } while (0)
#define PASS_ON(check)                                                                         \
    do {                                                                                       \
        const char *broken = (check);                                                          \
        if (broken)                                                                            \
            return broken;                                                                     \
    } while (0)

static const char *check_hold(const struct machine *m, const struct lock *l,
                              const struct hold *h)
{
    PROMISE(h->lock == l);
    PROMISE(hold_fence(h) <= m->counter); /* I4 */
    PROMISE(h->weight > 0);
    PROMISE(h->since_ms <= m->now_ms);
    PROMISE((h->ttl_ms == 0) == (h->end.pos == 0));
    return NULL;
}

/* The receipt of what waits: open, and found under its id. */
static const char *check_open(const struct machine *m, const struct space *s,
                              const struct receipt *r)
{
    struct slice account = slice_of(s->account->name, s->account->name_len);
    PROMISE(r->answer_len == 0 && list_empty(&r->in_answered));
    PROMISE(slice_eq(receipt_account(r), account) && r->at_ms <= m->now_ms);
    PROMISE(receipt_with(m, (struct receipt_key){account, receipt_id(r)}) == r);
    return NULL;
}

static const char *check_wait(const struct machine *m, const struct lock *l,
                              const struct wait *w)
{
    PROMISE(w->lock == l);
    PROMISE(w->end.seq <= m->counter);
    PROMISE(w->end.pos != 0 && w->end.at <= w->deadline_ms);
    PROMISE(w->since_ms <= m->now_ms && w->quiet_from_ms <= m->now_ms);
    PROMISE(!w->upgrade || w->upgrade->lock == l);
    PROMISE(!w->away || w->receipt);
    if (w->receipt) {
        PROMISE(w->receipt->wait == w && !w->receipt->parked);
        PASS_ON(check_open(m, l->space, w->receipt));
    }
    struct list *before = w->in_waiter.prev; /* by ticket: no table's order may show */
    PROMISE(before == &w->waiter->waits ||
            list_item(before, const struct wait, in_waiter)->end.seq < w->end.seq);
    return NULL;
}

static const char *check_line(const struct machine *m, const struct lock *l)
{
    const struct more *more = l->more;
    uint32_t n = 0, barring = 0, timed = 0;
    uint64_t ticket = 0;
    list_each (it, &more->waits) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        PASS_ON(check_wait(m, l, w));
        if (!w->upgrade) { /* I12: strictly by ticket; an upgrade stands ahead, and is one only
                            */
            PROMISE(w->end.seq > ticket);
            ticket = w->end.seq;
        } else {
            PROMISE(n == 0);
        }
        n++;
        PROMISE(n == wait_position(w));
        barring += wait_bars_shared(w);
        timed += w->policy == POLICY_TIMED;
    }
    PROMISE(n == more->n_waits && barring == more->n_barring && timed == more->n_timed);
    PROMISE(n || more->closed.pos || more->body_len);               /* else it would be gone */
    bool is_due = more->closed.pos && more->closed.at <= m->now_ms; /* its turn will come */
    const struct wait *first = line_first(m, l);
    if (first && !lock_is_closed(l, m->now_ms) && !is_due && !l->space->doomed) { /* I19 */
        bool is_quiet = first->policy != POLICY_TIMED || wait_quiet_at(first) <= m->now_ms;
        bool fits = first->upgrade ? l->n_holds == 1 : line_fits(l, first->weight);
        bool is_dead = over(&first->end, m->now_ms) || session_over(first->session, m->now_ms);
        is_dead |= first->upgrade && hold_over(first->upgrade, m->now_ms);
        bool is_passed = first->away || node_is_silent(m, first->asker);
        PROMISE(!(fits && is_quiet) || is_dead || is_passed);
    }
    return NULL;
}

static const char *check_lock(const struct machine *m, const struct lock *l)
{
    uint64_t used = 0, fence = 0;
    uint32_t n = 0, exclusive = 0;
    list_each (it, &l->holds) {
        const struct hold *h = list_item(it, const struct hold, in_lock);
        PASS_ON(check_hold(m, l, h));
        PROMISE(hold_fence(h) > fence);
        PROMISE(holder_by_fence(l, hold_fence(h)) == h);
        PROMISE(holder_by_who(m, l, (struct who){hold_owner(h), h->session}) == h);
        fence = hold_fence(h);
        used += h->weight;
        exclusive += h->weight == CAPACITY_RW;
        n++;
    }
    PROMISE(n == l->n_holds && used == l->used);
    PROMISE(used <= l->capacity);      /* I1, I2, I3: a weight is never given twice */
    PROMISE(exclusive == 0 || n == 1); /* I1 */
    PROMISE(!l->touched);
    PROMISE(n || l->more); /* exists for a reason */
    if (l->more)
        PASS_ON(check_line(m, l));
    return NULL;
}

static const char *check_record(const struct machine *m, const struct slot *slot,
                                const struct record *r)
{
    PROMISE(r->slot == slot && !r->gone);
    PROMISE(r->prev ? r->prev->next == r : slot->records == r);
    PROMISE(r->end.seq > 0 && r->end.seq <= m->counter);
    PROMISE((r->ttl_ms == 0) == (r->end.pos == 0));
    PROMISE(r->ttl_ms == 0 || r->end.at == r->set_ms + r->ttl_ms);
    PROMISE(r->session->seen_in != slot); /* one record of a session */
    r->session->seen_in = slot;
    return NULL;
}

static const char *check_table(const struct machine *m, const struct table *t)
{
    uint64_t slots = 0, records = 0;
    list_each (it, &t->slot_list) {
        const struct slot *slot = list_item(it, const struct slot, in_table);
        uint32_t n = 0;
        for (const struct record *r = slot->records; r; r = r->next)
            r->session->seen_in = NULL;
        for (const struct record *r = slot->records; r; r = r->next, n++)
            PASS_ON(check_record(m, slot, r));
        PROMISE(n > 0 && n == slot->n_records && n <= LIMIT_RECORDS); /* exists for a reason */
        PROMISE(slot->table == t && !slot->touched);
        PROMISE(slot_find(m, t, slot_key(slot)) == slot);
        slots++;
        records += n;
    }
    PROMISE(slots > 0 && slots == t->slots.count);
    PROMISE(records == t->n_records);
    PROMISE(table_find(m, t->space, table_name(t)) == t);
    return NULL;
}

static const char *check_parked(const struct machine *m, const struct space *s)
{
    uint64_t n = 0, ticket = 0;
    size_t bytes = 0;
    list_each (it, &s->parked) {
        const struct parked *p = list_item(it, const struct parked, in_space);
        PROMISE(p->space == s && p->end.seq > ticket && p->end.pos != 0);
        PROMISE(p->end.seq <= m->counter);
        PROMISE(!p->away || p->receipt);
        if (p->receipt) {
            PROMISE(p->receipt->parked == p && !p->receipt->wait);
            PASS_ON(check_open(m, s, p->receipt));
        }
        ticket = p->end.seq;
        for (size_t i = 0; i < p->n_watches; i++) {
            PROMISE(p->watches[i].parked == p);
            PROMISE(!list_empty(&p->watches[i].what->watches));
        }
        bytes += p->program_len;
        n++;
    }
    PROMISE(n == s->n_parked && bytes == s->parked_bytes && n <= LIMIT_TXN_WAITING);
    PROMISE(n || s->watched.count == 0);
    return NULL;
}

static const char *check_vars(const struct machine *m, const struct space *s)
{
    uint64_t tables = 0, records = 0;
    list_each (it, &s->table_list) {
        const struct table *t = list_item(it, const struct table, in_space);
        PASS_ON(check_table(m, t));
        records += t->n_records;
        tables++;
    }
    PROMISE(tables == s->tables.count && records == s->n_records);
    return check_parked(m, s);
}

static const char *check_session_vars(const struct session *s)
{
    uint32_t n = 0;
    uint64_t last = 0;
    list_each (it, &s->records) {
        const struct record *r = list_item(it, const struct record, in_session);
        PROMISE(r->session == s && r->end.seq > last);
        last = r->end.seq;
        n++;
    }
    PROMISE(n == s->n_records && n <= LIMIT_SESSION_VARIABLES);
    last = 0;
    list_each (it, &s->parked) {
        const struct parked *p = list_item(it, const struct parked, in_session);
        PROMISE(p->session == s && p->end.seq > last);
        last = p->end.seq;
    }
    return NULL;
}

static const char *check_session(const struct machine *m, const struct session *s)
{
    uint32_t n = 0;
    uint64_t last = 0;
    list_each (it, &s->holds) {
        const struct hold *h = list_item(it, const struct hold, in_session);
        PROMISE(h->session == s && hold_fence(h) > last);
        last = hold_fence(h);
        n++;
    }
    PROMISE(n == s->n_holds);
    last = 0;
    list_each (it, &s->waits) {
        const struct wait *w = list_item(it, const struct wait, in_session);
        PROMISE(w->session == s && w->end.seq > last);
        last = w->end.seq;
        n++;
    }
    PROMISE(n == s->n_items && n <= LIMIT_SESSION_ITEMS);
    PASS_ON(check_session_vars(s));
    bool guest = s->guest != GUEST_NOT;
    PROMISE(s->end.seq <= m->counter && guest == (m->group != 0));
    PROMISE(guest ? s->end.pos == 0 : s->end.pos != 0 || s->asked != 0);
    PROMISE((s->asked & ~s->enrolled) == 0);
    PROMISE(s->enrolled == 0 || m->n_groups > 1);
    PROMISE(s->enrolled == 0 || m->n_groups > 64 || s->enrolled >> (m->n_groups - 1) == 0);
    return NULL;
}

static const char *check_space(const struct machine *m, const struct space *s)
{
    uint64_t locks = 0, held = 0, waiting = 0;
    struct slice previous = slice_of("", 0);
    struct index_place place;
    struct lock *l = index_after(&s->index, slice_of("", 0), true, &place);
    for (; l; l = index_next(&s->index, &place)) {
        PROMISE(slice_cmp(previous, lock_name(l)) < 0);
        previous = lock_name(l);
        PASS_ON(check_lock(m, l));
        locks++;
        held += l->n_holds != 0;
        waiting += l->more ? l->more->n_waits : 0;
    }
    PROMISE(locks == s->locks.count && held == s->held && waiting == s->waiting);
    PROMISE(waiting == s->waits.count);
    return check_vars(m, s);
}

static const char *check_receipts(const struct machine *m)
{
    const struct receipts *rs = &m->receipts;
    uint64_t n = 0, at_ms = 0;
    size_t bytes = 0;
    list_each (it, &rs->answered) {
        const struct receipt *r = list_item(it, const struct receipt, in_answered);
        PROMISE(!r->wait && !r->parked && r->answer_len > 0);
        PROMISE(r->at_ms >= at_ms && r->at_ms <= m->now_ms); /* the oldest is the first */
        PROMISE(receipt_with(m, (struct receipt_key){receipt_account(r), receipt_id(r)}) == r);
        at_ms = r->at_ms;
        bytes += (size_t)r->account_len + r->id_len + r->answer_len;
        n++;
    }
    PROMISE(n == rs->n_answered && bytes == rs->bytes);
    PROMISE(n <= LIMIT_RECEIPTS && bytes <= LIMIT_RECEIPT_BYTES);
    PROMISE(n <= rs->by_id.count && rs->by_id.count - n <= m->waiting + m->n_parked);
    return NULL;
}

const char *machine_unsound(const struct machine *m)
{
    uint64_t locks = 0;
    for (size_t i = 0; i < m->n_accounts; i++) {
        for (size_t j = 0; j < m->accounts[i]->n; j++) {
            PASS_ON(check_space(m, m->accounts[i]->spaces[j]));
            locks += m->accounts[i]->spaces[j]->locks.count;
        }
    }
    list_each (it, &m->doomed) {
        const struct space *s = list_item(it, const struct space, in_doomed);
        PASS_ON(check_space(m, s));
        locks += s->locks.count;
    }
    PROMISE(locks == m->locks);
    list_each (it, &m->session_list)
        PASS_ON(check_session(m, list_item(it, const struct session, in_machine)));
    return check_receipts(m);
}

/* The walk costs as much as there is: it is made after every op on a small state, less often on
 * a big one, so that tests with a hundred thousand waiters end. */
static bool is_walk_due(const struct machine *m)
{
    enum { SMALL = 64 };
    uint64_t things = m->locks + m->waiting + m->sessions.count + m->n_records + m->n_parked +
                      m->receipts.n_answered;
    return m->applied % (1 + things / SMALL) == 0;
}

bool machine_is_sound(const struct machine *m)
{
    const char *broken = is_walk_due(m) ? machine_unsound(m) : NULL;
    if (broken)
        check_failed(__FILE__, __LINE__, broken);
    return true;
}
