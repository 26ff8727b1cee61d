/* restored.c - a state that begins again as another cluster's, from a backup or from what a lost
 * cluster has left. */
#include "base/check.h"
#include "machine/index.h"
#include "machine/session.h"
#include "machine/state.h"

/* What has reached its end is over, also when its turn has not come yet: it is not revived. */
static void restore_hold(struct machine *m, struct hold *h, bool keeps)
{
    if (over(&h->end, m->now_ms))
        return;
    if (!keeps) {
        h->terms.ttl_ms = h->terms.ttl_ms ? h->terms.ttl_ms : 1; /* also one that had no end */
        h->overdue = true;                                       /* and no grace */
        heap_set(&m->ends, &h->end, m->now_ms);
    } else if (h->end.pos && !h->overdue) {
        heap_set(&m->ends, &h->end, m->now_ms + h->terms.ttl_ms);
    }
    BELAY_CHECK((h->terms.ttl_ms == 0) == (h->end.pos == 0));
}

static void restore_locks(struct machine *m, const struct space *s, bool keeps)
{
    BELAY_DCHECK(!s->doomed);
    struct index_place place;
    struct lock *l = index_after(&s->index, slice_of("", 0), true, &place);
    for (; l; l = index_next(&s->index, &place))
        list_each (it, &l->holds)
            restore_hold(m, list_item(it, struct hold, in_lock), keeps);
}

static void restore_records(struct machine *m, const struct slot *s)
{
    for (struct record *r = s->records; r; r = r->next) {
        BELAY_DCHECK((r->ttl_ms == 0) == (r->end.pos == 0));
        if (r->ttl_ms && !over(&r->end, m->now_ms)) {
            r->set_ms = m->now_ms;
            heap_set(&m->ends, &r->end, m->now_ms + r->ttl_ms);
        }
    }
}

static void restore_tables(struct machine *m, const struct space *s)
{
    list_each (table, &s->table_list)
        list_each (slot, &list_item(table, const struct table, in_space)->slot_list)
            restore_records(m, list_item(slot, const struct slot, in_table));
}

/* Group 0 says when a session ends; its guests in shards hear of it. With a session go its records
 * and what it waits for. */
static void restore_session(struct machine *m, struct session *s, bool keeps)
{
    if (s->guest != GUEST_NOT || s->ending != REASON_NONE || over(&s->end, m->now_ms))
        return;
    if (keeps)
        session_keep(m, s);
    else
        heap_set(&m->ends, &s->end, m->now_ms);
    BELAY_DCHECK(s->end.pos != 0); /* it ends some time */
}

void machine_restore(struct machine *m, uint64_t skip, bool keeps)
{
    BELAY_CHECK(skip > 0 && m->counter <= MACHINE_NUMBER_MAX - skip);
    m->counter += skip;
    for (size_t i = 0; i < m->n_accounts; i++) {
        for (size_t k = 0; k < m->accounts[i]->n; k++) {
            restore_locks(m, m->accounts[i]->spaces[k], keeps);
            if (keeps)
                restore_tables(m, m->accounts[i]->spaces[k]);
        }
    }
    list_each (it, &m->session_list)
        restore_session(m, list_item(it, struct session, in_machine), keeps);
}
