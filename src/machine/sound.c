/* sound.c - the walk that checks every promise of the state: debug, model and fuzz builds only.
 * The numbers are those of docs/INVARIANTS.md. */
#include "base/check.h"
#include "machine/state.h"

static void check_hold(const struct machine *m, const struct lock *l, const struct hold *h)
{
    BELAY_CHECK(h->lock == l);
    BELAY_CHECK(hold_fence(h) <= m->counter); /* I4 */
    BELAY_CHECK(h->weight > 0);
    BELAY_CHECK((h->ttl_ms == 0) == (h->end.pos == 0));
}

static void check_wait(const struct machine *m, const struct lock *l, const struct wait *w)
{
    BELAY_CHECK(w->lock == l);
    BELAY_CHECK(w->end.seq <= m->counter);
    BELAY_CHECK(w->end.pos != 0 && w->end.at <= w->deadline_ms);
    BELAY_CHECK(!w->upgrade || w->upgrade->lock == l);
    struct list *before = w->in_waiter.prev; /* by ticket: no table's order may show */
    BELAY_CHECK(before == &w->waiter->waits ||
                list_item(before, const struct wait, in_waiter)->end.seq < w->end.seq);
}

static void check_line(const struct machine *m, const struct lock *l)
{
    const struct more *more = l->more;
    uint32_t n = 0, barring = 0, timed = 0;
    uint64_t ticket = 0;
    list_each (it, &more->waits) {
        const struct wait *w = list_item(it, const struct wait, in_lock);
        check_wait(m, l, w);
        if (!w->upgrade) { /* I12: strictly by ticket; an upgrade stands ahead, and is one only
                            */
            BELAY_CHECK(w->end.seq > ticket);
            ticket = w->end.seq;
        } else {
            BELAY_CHECK(n == 0);
        }
        n++;
        barring += wait_bars_shared(w);
        timed += w->policy == POLICY_TIMED;
    }
    BELAY_CHECK(n == more->n_waits && barring == more->n_barring && timed == more->n_timed);
    BELAY_CHECK(n || more->closed.pos || more->body_len);          /* else it would be gone */
    if (n && !lock_is_closed(l, m->now_ms) && !l->space->doomed) { /* I19: no lost wake-up */
        const struct wait *first = list_item(more->waits.next, const struct wait, in_lock);
        bool is_quiet = first->policy != POLICY_TIMED || wait_quiet_at(first) <= m->now_ms;
        bool fits = first->upgrade ? l->n_holds == 1 : line_fits(l, first->weight);
        bool is_dead = over(&first->end, m->now_ms) || session_over(first->session, m->now_ms);
        BELAY_CHECK(!(fits && is_quiet) || is_dead);
    }
}

static void check_lock(const struct machine *m, const struct lock *l)
{
    uint64_t used = 0, fence = 0;
    uint32_t n = 0, exclusive = 0;
    list_each (it, &l->holds) {
        const struct hold *h = list_item(it, const struct hold, in_lock);
        check_hold(m, l, h);
        BELAY_CHECK(hold_fence(h) > fence);
        fence = hold_fence(h);
        used += h->weight;
        exclusive += h->weight == CAPACITY_RW;
        n++;
    }
    BELAY_CHECK(n == l->n_holds && used == l->used);
    BELAY_CHECK(used <= l->capacity);      /* I1, I2, I3: a weight is never given twice */
    BELAY_CHECK(exclusive == 0 || n == 1); /* I1 */
    BELAY_CHECK(!l->touched);
    BELAY_CHECK(n || l->more); /* exists for a reason */
    if (l->more)
        check_line(m, l);
}

static void check_record(const struct machine *m, const struct slot *slot,
                         const struct record *r)
{
    BELAY_CHECK(r->slot == slot && !r->gone);
    BELAY_CHECK(r->end.seq > 0 && r->end.seq <= m->counter);
    BELAY_CHECK((r->ttl_ms == 0) == (r->end.pos == 0));
    BELAY_CHECK(r->ttl_ms == 0 || r->end.at == r->set_ms + r->ttl_ms);
    for (const struct record *other = r->next; other; other = other->next)
        BELAY_CHECK(other->session != r->session); /* one record of a session */
}

static uint64_t check_table(const struct machine *m, const struct table *t)
{
    uint64_t slots = 0, records = 0;
    list_each (it, &t->slot_list) {
        const struct slot *slot = list_item(it, const struct slot, in_table);
        uint32_t n = 0;
        for (const struct record *r = slot->records; r; r = r->next, n++)
            check_record(m, slot, r);
        BELAY_CHECK(n > 0 && n == slot->n_records); /* exists for a reason */
        BELAY_CHECK(slot->table == t && !slot->touched);
        BELAY_CHECK(slot_find(m, t, slot_key(slot)) == slot);
        slots++;
        records += n;
    }
    BELAY_CHECK(slots > 0 && slots == t->slots.count);
    BELAY_CHECK(records == t->n_records);
    BELAY_CHECK(table_find(m, t->space, table_name(t)) == t);
    return records;
}

static void check_parked(const struct machine *m, const struct space *s)
{
    uint64_t n = 0, ticket = 0;
    size_t bytes = 0;
    list_each (it, &s->parked) {
        const struct parked *p = list_item(it, const struct parked, in_space);
        BELAY_CHECK(p->space == s && p->end.seq > ticket && p->end.pos != 0);
        BELAY_CHECK(p->end.seq <= m->counter);
        ticket = p->end.seq;
        for (size_t i = 0; i < p->n_watches; i++) {
            BELAY_CHECK(p->watches[i].parked == p);
            BELAY_CHECK(!list_empty(&p->watches[i].what->watches));
        }
        bytes += p->program_len;
        n++;
    }
    BELAY_CHECK(n == s->n_parked && bytes == s->parked_bytes);
    BELAY_CHECK(n || s->watched.count == 0);
}

static void check_vars(const struct machine *m, const struct space *s)
{
    uint64_t tables = 0, records = 0;
    list_each (it, &s->table_list) {
        records += check_table(m, list_item(it, const struct table, in_space));
        tables++;
    }
    BELAY_CHECK(tables == s->tables.count && records == s->n_records);
    check_parked(m, s);
}

static void check_session_vars(const struct session *s)
{
    uint32_t n = 0;
    uint64_t last = 0;
    list_each (it, &s->records) {
        const struct record *r = list_item(it, const struct record, in_session);
        BELAY_CHECK(r->session == s && r->end.seq > last);
        last = r->end.seq;
        n++;
    }
    BELAY_CHECK(n == s->n_records);
    last = 0;
    list_each (it, &s->parked) {
        const struct parked *p = list_item(it, const struct parked, in_session);
        BELAY_CHECK(p->session == s && p->end.seq > last);
        last = p->end.seq;
    }
}

static void check_session(const struct machine *m, const struct session *s)
{
    uint32_t n = 0;
    uint64_t last = 0;
    list_each (it, &s->holds) {
        const struct hold *h = list_item(it, const struct hold, in_session);
        BELAY_CHECK(h->session == s && hold_fence(h) > last);
        last = hold_fence(h);
        n++;
    }
    last = 0;
    list_each (it, &s->waits) {
        const struct wait *w = list_item(it, const struct wait, in_session);
        BELAY_CHECK(w->session == s && w->end.seq > last);
        last = w->end.seq;
        n++;
    }
    BELAY_CHECK(n == s->n_items);
    check_session_vars(s);
    BELAY_CHECK(s->end.pos != 0 && s->end.seq <= m->counter);
}

static uint64_t check_space(const struct machine *m, const struct space *s)
{
    uint64_t locks = 0, held = 0, waiting = 0;
    struct slice previous = slice_of("", 0);
    struct index_place place;
    struct lock *l = index_after(&s->index, slice_of("", 0), true, &place);
    for (; l; l = index_next(&s->index, &place)) {
        BELAY_CHECK(slice_cmp(previous, lock_name(l)) < 0);
        previous = lock_name(l);
        check_lock(m, l);
        locks++;
        held += l->n_holds != 0;
        waiting += l->more ? l->more->n_waits : 0;
    }
    BELAY_CHECK(locks == s->locks.count && held == s->held && waiting == s->waiting);
    BELAY_CHECK(waiting == s->waits.count);
    check_vars(m, s);
    return locks;
}

/* The walk costs as much as there is: it is made after every op on a small state, less often on
 * a big one, so that tests with a hundred thousand waiters end. */
static bool is_walk_due(const struct machine *m)
{
    enum { SMALL = 256 };
    return m->applied % (1 + (m->locks + m->waiting + m->sessions.count) / SMALL) == 0;
}

bool machine_is_sound(const struct machine *m)
{
    uint64_t locks = 0;
    if (!is_walk_due(m))
        return true;
    for (size_t i = 0; i < m->n_accounts; i++)
        for (size_t j = 0; j < m->accounts[i]->n; j++)
            locks += check_space(m, m->accounts[i]->spaces[j]);
    list_each (it, &m->doomed)
        locks += check_space(m, list_item(it, const struct space, in_doomed));
    BELAY_CHECK(locks == m->locks);
    list_each (it, &m->session_list)
        check_session(m, list_item(it, const struct session, in_machine));
    return true;
}
