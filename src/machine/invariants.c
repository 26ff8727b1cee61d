/* invariants.c - the walk that checks every promise of the state. A snapshot must pass it
 * before it is used; debug, model and fuzz builds also walk after ops. The numbers are those of
 * docs/INVARIANTS.md. */
#include "machine/invariants.h"
#include "base/check.h"
#include "machine/holders.h"
#include "machine/line.h"
#include "machine/lock.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/session.h"
#include "machine/sound.h"
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

/* What is in all namespaces together: the counts of the machine and of the accounts say the
 * same.
 */
struct totals {
    uint64_t locks, held, waiting, records, parked, bytes;
};

static const char *check_hold(const struct machine *m, const struct lock *l,
                              const struct hold *h)
{
    PROMISE(h->lock == l);
    PROMISE(hold_fence(h) <= m->counter); /* I4 */
    PROMISE(h->weight > 0);
    PROMISE(h->since_ms <= m->now_ms);
    PROMISE((h->terms.ttl_ms == 0) == (h->end.pos == 0));
    PROMISE(hold_is_linked(h));
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
    PROMISE(w->lock == l && wait_is_linked(w));
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

/* The end of a wait that is passed over, before `first`, is due: its turn serves the line. */
static bool is_served_next(const struct machine *m, const struct lock *l,
                           const struct wait *first)
{
    list_each (it, &l->more->waits) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        if (w == first)
            break;
        if (over(&w->end, m->now_ms))
            return true;
    }
    return false;
}

static const char *check_line(const struct machine *m, const struct lock *l)
{
    const struct more *more = l->more;
    uint32_t n = 0, barring = 0, timed = 0;
    uint64_t ticket = 0;
    const struct list *next = more->barring.next;
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
        if (wait_bars_shared(w)) {
            PROMISE(next == &w->in_barring);
            next = next->next;
            barring++;
        }
        timed += w->policy == POLICY_TIMED;
    }
    PROMISE(next == &more->barring);
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
        is_dead |= is_served_next(m, l, first);
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
    PROMISE(!l->touched && lock_is_sound(l));
    PROMISE(n != 0 || !l->crowded);
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
    PROMISE(record_is_settled(r));
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
        PROMISE(p->end.seq <= m->counter && parked_is_linked(p));
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

/* I10: what is left of it goes in the parts that are due. */
static const char *check_ending(const struct machine *m, const struct session *s)
{
    PROMISE(m->level >= LEVEL_PARTS);
    PROMISE(s->ending == REASON_TTL || s->ending == REASON_SESSION ||
            s->ending == REASON_RELEASE);
    PROMISE(over(&s->end, m->now_ms) && s->enrolled == 0 && s->asked == 0);
    PROMISE(s->n_items + s->n_records <= s->n_at_end);
    PROMISE(s->n_at_end <= LIMIT_SESSION_ITEMS + LIMIT_SESSION_VARIABLES);
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
    PROMISE(s->end.seq <= m->counter && guest == (m->group != 0) && session_is_sound(s));
    if (s->ending != REASON_NONE)
        return check_ending(m, s);
    PROMISE(session_find(m, session_account(s), session_id(s)) == s);
    PROMISE(guest ? s->end.pos == 0 : s->end.pos != 0 || s->asked != 0);
    PROMISE((s->asked & ~s->enrolled) == 0);
    PROMISE(s->enrolled == 0 || m->n_groups > 1);
    PROMISE(s->enrolled == 0 || m->n_groups > 64 || s->enrolled >> (m->n_groups - 1) == 0);
    return NULL;
}

/* Bodies of a lock: its own, and what is brought along by those who wait. */
static uint64_t bytes_of_lock(const struct lock *l)
{
    if (!l->more)
        return 0;
    uint64_t bytes = l->more->body_len;
    list_each (it, &l->more->waits)
        bytes += list_item(it, const struct wait, in_lock)->body_len;
    return bytes;
}

/* What counts for the quota of bytes, apart from bodies: they are counted lock by lock. */
static uint64_t bytes_of_vars(const struct space *s)
{
    uint64_t bytes = s->parked_bytes;
    list_each (it, &s->table_list) {
        const struct table *t = list_item(it, const struct table, in_space);
        list_each (at, &t->slot_list) {
            const struct record *r = list_item(at, const struct slot, in_table)->records;
            for (; r; r = r->next)
                bytes += r->value_len;
        }
    }
    return bytes;
}

static const char *check_space(const struct machine *m, const struct space *s,
                               struct totals *all)
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
        all->bytes += bytes_of_lock(l);
    }
    PROMISE(locks == s->locks.count && held == s->held && waiting == s->waiting);
    PROMISE(waiting == s->waits.count && s->waiters.count <= waiting);
    all->locks += locks;
    all->held += held;
    all->waiting += waiting;
    all->records += s->n_records;
    all->parked += s->n_parked;
    all->bytes += bytes_of_vars(s);
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

static const char *check_account(const struct machine *m, const struct account *a,
                                 struct totals *all)
{
    PROMISE(account_any(m, account_name(a)) == a);
    PROMISE(a->used[QUOTA_NAMESPACES] == a->n);
    PROMISE(!a->gone || (a->n == 0 && a->n_tokens == 0)); /* it may be freed when it is empty */
    for (size_t i = 0; i < a->n; i++) {
        PROMISE(a->spaces[i]->account == a && !a->spaces[i]->doomed);
        PASS_ON(check_space(m, a->spaces[i], all));
    }
    return NULL;
}

/* Every namespace that is, and every one that is being taken apart. */
static const char *check_accounts(const struct machine *m)
{
    struct totals all = {0};
    uint64_t used[QUOTA_COUNT] = {0}, sessions = 0;
    for (size_t i = 0; i < m->n_accounts; i++) {
        PASS_ON(check_account(m, m->accounts[i], &all));
        for (size_t q = 0; q < QUOTA_COUNT; q++)
            used[q] += m->accounts[i]->used[q];
    }
    list_each (it, &m->doomed) {
        const struct space *s = list_item(it, const struct space, in_doomed);
        PROMISE(s->doomed && s->account->n_doomed > 0);
        PASS_ON(check_space(m, s, &all));
    }
    list_each (it, &m->session_list) {
        const struct session *s = list_item(it, const struct session, in_machine);
        PASS_ON(check_session(m, s));
        sessions += s->account != NULL;
    }
    PROMISE(all.locks == m->locks && all.held == m->held && all.waiting == m->waiting);
    PROMISE(all.records == m->n_records && all.parked == m->n_parked);
    PROMISE(used[QUOTA_NAMESPACES] == m->n_spaces && used[QUOTA_SESSIONS] == sessions);
    PROMISE(used[QUOTA_LOCKS] == all.locks && used[QUOTA_WAITERS] == all.waiting);
    PROMISE(used[QUOTA_VARIABLES] == all.records && used[QUOTA_TRANSACTIONS] == all.parked);
    PROMISE(used[QUOTA_BYTES] == all.bytes);
    return NULL;
}

static const char *check_tokens(const struct machine *m)
{
    uint64_t n = 0, last = 0, owned = 0;
    list_each (it, &m->token_list) {
        const struct token *t = list_item(it, const struct token, in_machine);
        PROMISE(m->group != 0 || (t->number > last && t->number <= m->last_token));
        PROMISE(token_lives(m, t->number));
        PROMISE(t->account || m->group != 0); /* a row of it names its account */
        last = t->number;
        owned += t->account != NULL;
        n++;
    }
    PROMISE(n == m->tokens.count && n == m->tokens_by_id.count);
    for (size_t i = 0; i < m->n_accounts; i++)
        owned -= m->accounts[i]->n_tokens;
    PROMISE(owned == 0);
    return NULL;
}

/* The next end is on top, and everything that ends knows its place. */
static const char *check_ends(const struct machine *m)
{
    for (size_t i = 0; i < m->ends.count; i++) {
        const struct heap_node *n = m->ends.slots[i];
        const struct heap_node *above = m->ends.slots[i ? (i - 1) / 4 : 0];
        PROMISE(n->pos == i + 1 && n->tag <= END_PARKED);
        PROMISE(above->at < n->at || (above->at == n->at && above->seq <= n->seq));
    }
    return NULL;
}

static const char *check_outbox(const struct machine *m)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < m->n_groups; i++) {
        PROMISE(m->boxes[i].n_messages <= m->boxes[i].posted);
        n += m->boxes[i].n_messages;
    }
    PROMISE(n == m->n_messages);
    return NULL;
}

static const char *check_nodes(const struct machine *m)
{
    size_t silent = 0;
    for (size_t i = 0; i < OP_NODES_MAX; i++) {
        silent += m->nodes[i].silent;
        list_each (it, &m->nodes[i].waits) {
            uint64_t asker = list_item(it, const struct wait, in_node)->asker;
            PROMISE(asker && !(asker & OP_ASKER_LOOSE) && op_node(asker) == i);
        }
        list_each (it, &m->nodes[i].parked)
            PROMISE(op_node(list_item(it, const struct parked, in_node)->asker) == i);
    }
    PROMISE(silent == m->n_silent);
    return NULL;
}

const char *machine_unsound(const struct machine *m)
{
    PASS_ON(check_ends(m));
    PASS_ON(check_accounts(m));
    PASS_ON(check_tokens(m));
    PASS_ON(check_outbox(m));
    PASS_ON(check_nodes(m));
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
