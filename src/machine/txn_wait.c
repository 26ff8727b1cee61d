/* txn_wait.c - transactions that wait until their asserts hold, without polling.
 *
 *   parked --something that it read changes: watch_wake()--> ready --parked_serve()--> committed
 *     ^                                                        |  \
 *     +------------------- an assert still fails --------------+   +--> aborted
 *
 *   parked --its deadline, its session ends, its client goes--> answered and gone
 *
 * How a transaction goes depends on what it reads and on nothing else, so it is looked at again
 * only when something that it has read is changed: a variable (set or not), a lock (held or
 * not). Those that are ready are served in the order of their tickets, the lowest first after
 * every commit, until the transactions of the step have cost PARKED_SERVE_WORK; machine_due()
 * asks for the next.
 */
#include "machine/txn_wait.h"
#include "base/check.h"
#include "base/mem.h"
#include "machine/cancel.h"
#include "machine/level.h"
#include "machine/lock.h"
#include "machine/node.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/sound.h"
#include "machine/txn.h"

#include <stdlib.h>

enum { PARKED_SERVE_WORK = 16384 };

/* --- what is watched --- */

static struct slice watched_table(const struct watched *w)
{
    return slice_of(w->bytes, w->table_len);
}

static struct slice watched_key(const struct watched *w)
{
    return slice_of(w->bytes + w->table_len, w->key_len);
}

static uint64_t hash_read(const struct machine *m, const struct read *what)
{
    uint64_t h = hash_bytes(&m->key, what->key.data, what->key.len);
    return h ^ (what->kind == WATCH_LOCK ? 0x9e3779b97f4a7c15ULL : what->table.len);
}

static bool same_read(const struct watched *w, const struct read *what)
{
    return w->kind == what->kind && slice_eq(watched_key(w), what->key) &&
           slice_eq_nocase(watched_table(w), what->table);
}

static bool same_watched(struct map_node *node, const void *key)
{
    return same_read(map_item(node, const struct watched, by_what), key);
}

static struct watched *watched_find(const struct machine *m, const struct space *s,
                                    const struct read *what)
{
    BELAY_DCHECK(what->key.len > 0);
    struct map_node *n = map_find(&s->watched, hash_read(m, what), same_watched, what);
    return n ? map_item(n, struct watched, by_what) : NULL;
}

static struct watched *watched_get(struct machine *m, struct space *s, const struct read *what)
{
    BELAY_CHECK(what->key.len <= LIMIT_NAME_BYTES && what->table.len <= LIMIT_TABLE_BYTES);
    struct watched *w = watched_find(m, s, what);
    if (w)
        return w;
    w = mem_alloc(sizeof *w + what->table.len + what->key.len);
    *w = (struct watched){.kind = what->kind,
                          .table_len = (uint8_t)what->table.len,
                          .key_len = (uint16_t)what->key.len};
    if (what->table.len)
        memcpy(w->bytes, what->table.data, what->table.len);
    memcpy(w->bytes + what->table.len, what->key.data, what->key.len);
    list_init(&w->watches);
    map_add(&s->watched, &w->by_what, hash_read(m, what));
    return w;
}

void watch_wake(struct machine *m, const struct space *s, const struct read *what)
{
    struct watched *w = watched_find(m, s, what);
    if (!w)
        return;
    list_each (it, &w->watches) {
        struct parked *p = list_item(it, struct txn_watch, in_watched)->parked;
        BELAY_CHECK(p->space == s && parked_is_linked(p));
        if (!p->ready.pos)
            heap_set(&m->ready, &p->ready, p->end.seq);
    }
}

static bool watches_already(const struct parked *p, const struct read *reads, size_t n)
{
    if (p->n_watches != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!same_read(p->watches[i].what, &reads[i]))
            return false;
    return true;
}

static void unwatch(struct parked *p)
{
    for (size_t i = 0; i < p->n_watches; i++) {
        struct watched *w = p->watches[i].what;
        BELAY_CHECK(p->watches[i].parked == p && !list_empty(&w->watches));
        list_remove(&p->watches[i].in_watched);
        if (list_empty(&w->watches)) {
            map_remove(&p->space->watched, &w->by_what);
            free(w);
        }
    }
    free(p->watches);
    p->watches = NULL;
    p->n_watches = 0;
}

void parked_watch(struct machine *m, struct parked *p, const struct read *reads, size_t n)
{
    if (watches_already(p, reads, n))
        return;
    unwatch(p);
    BELAY_CHECK(p->n_watches == 0);
    p->watches = n ? mem_alloc(n * sizeof *p->watches) : NULL;
    p->n_watches = n;
    for (size_t i = 0; i < n; i++) {
        struct watched *w = watched_get(m, p->space, &reads[i]);
        p->watches[i] = (struct txn_watch){.what = w, .parked = p};
        list_push_back(&w->watches, &p->watches[i].in_watched);
    }
}

/* --- coming and going --- */

struct parked *parked_new(struct space *s, struct session *session, struct slice program,
                          struct slice description)
{
    BELAY_CHECK(description.len <= LIMIT_DESCRIPTION_BYTES);
    BELAY_CHECK(program.len > 0 && program.len <= LIMIT_PROGRAM_BYTES);
    struct parked *p = mem_zalloc(sizeof *p + program.len + description.len);
    p->space = s;
    p->session = session;
    p->program_len = program.len;
    p->description_len = description.len;
    memcpy(p->bytes, program.data, program.len);
    if (description.len)
        memcpy(p->bytes + program.len, description.data, description.len);
    list_init(&p->in_space);
    list_init(&p->in_session);
    list_init(&p->in_node);
    return p;
}

struct txn_limit parked_limit(const struct space *s, uint64_t bytes)
{
    BELAY_DCHECK(s->parked_bytes <= LIMIT_TXN_WAITING_BYTES && bytes <= LIMIT_PROGRAM_BYTES);
    struct txn_limit limit = txn_quota(s->account, QUOTA_TRANSACTIONS, 1);
    if (!limit.text)
        limit = txn_quota(s->account, QUOTA_BYTES, bytes);
    if (s->n_parked >= LIMIT_TXN_WAITING)
        limit = (struct txn_limit){
            .text = "the namespace has LIMIT_TXN_WAITING (10000) waiting transactions"};
    else if (s->parked_bytes + bytes > LIMIT_TXN_WAITING_BYTES)
        limit = (struct txn_limit){.text = "waiting transactions of the namespace have "
                                           "LIMIT_TXN_WAITING_BYTES (67108864)"};
    return limit;
}

void parked_link(struct machine *m, struct parked *p, uint64_t ticket, uint64_t deadline_ms)
{
    BELAY_CHECK(p->space->n_parked < LIMIT_TXN_WAITING);
    BELAY_CHECK(ticket > 0 && ticket <= m->counter && !p->end.pos);
    p->end = (struct heap_node){.seq = ticket, .tag = END_PARKED};
    p->ready = (struct heap_node){.seq = ticket};
    heap_set(&m->ends, &p->end, deadline_ms);
    list_push_back(&p->space->parked, &p->in_space);
    list_push_back(&p->session->parked, &p->in_session);
    p->space->n_parked++;
    p->space->account->used[QUOTA_TRANSACTIONS]++;
    p->space->account->used[QUOTA_BYTES] += p->program_len;
    p->space->parked_bytes += p->program_len;
    m->n_parked++;
}

void parked_remove(struct machine *m, struct parked *p)
{
    BELAY_CHECK(parked_is_linked(p));
    unwatch(p);
    if (p->receipt)
        receipt_forget(m, p->receipt);
    heap_remove(&m->ends, &p->end);
    heap_remove(&m->ready, &p->ready);
    list_remove(&p->in_space);
    list_remove(&p->in_session);
    list_remove(&p->in_node);
    BELAY_CHECK(m->n_parked >= p->space->n_parked);
    p->space->n_parked--;
    BELAY_CHECK(p->space->account->used[QUOTA_TRANSACTIONS] > 0);
    p->space->account->used[QUOTA_TRANSACTIONS]--;
    p->space->account->used[QUOTA_BYTES] -= p->program_len;
    BELAY_CHECK(p->space->parked_bytes >= p->program_len);
    p->space->parked_bytes -= p->program_len;
    m->n_parked--;
    free(p);
}

void space_free_parked(struct space *s)
{
    BELAY_CHECK((s->n_parked == 0) == list_empty(&s->parked));
    list_each_safe(it, &s->parked)
    {
        struct parked *p = list_item(it, struct parked, in_space);
        unwatch(p);
        free(p->receipt);
        free(p);
    }
    list_init(&s->parked);
    s->n_parked = 0;
}

void parked_leave(struct machine *m, struct parked *p, enum txn_status status,
                  enum txn_cause cause, struct effects *fx)
{
    BELAY_CHECK(p->since_ms <= m->now_ms);
    struct event *ev = effects_add(fx, EVENT_TXN);
    ev->asker = p->asker;
    ev->at_ms = m->now_ms;
    ev->status = status;
    ev->cause = cause;
    ev->waited_ms = m->now_ms - p->since_ms;
    receipt_settle(m, &p->receipt, ev);
    parked_remove(m, p);
}

void parked_leave_space(struct machine *m, struct space *s, struct effects *fx)
{
    list_each_safe(it, &s->parked)
    {
        struct parked *p = list_item(it, struct parked, in_space);
        struct op ask = {.asker = p->asker};
        const struct event *ev =
            request_failed(&ask, BELAY_ERR_NO_NAMESPACE, "the namespace was deleted", fx);
        receipt_settle(m, &p->receipt, ev);
        parked_remove(m, p);
    }
    BELAY_CHECK(s->n_parked == 0);
}

void parked_cancel(struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_CANCEL);
    struct session *s = session_find(m, op->account, op->session);
    if (!s)
        return;
    list_each (it, &s->parked) {
        struct parked *p = list_item(it, struct parked, in_session);
        if (cancel_is_for(m, op, p->asker)) {
            if (op->flags & OP_END_WAIT) {
                if (p->receipt)
                    receipt_forget(m, p->receipt);
                p->receipt = NULL;
                parked_expire(m, p, fx);
            } else if (op->flags & OP_AWAY && p->receipt) {
                parked_away(m, p, m->now_ms);
                if (op->fence)
                    parked_set_asker(m, p, 0); /* it is known by its id alone */
            } else {
                parked_remove(m, p);
            }
            return;
        }
    }
}

void parked_expire(struct machine *m, struct parked *p, struct effects *fx)
{
    BELAY_CHECK(p->end.pos != 0);
    if (session_over(p->session, m->now_ms))
        parked_leave(m, p, TXN_ERROR, CAUSE_SESSION, fx);
    else if (p->away)
        parked_remove(m, p);
    else
        txn_time_out(m, p, fx);
}

static bool is_dead(const struct machine *m, const struct parked *p)
{
    return session_over(p->session, m->now_ms) || over(&p->end, m->now_ms);
}

void parked_end_if_dead(struct machine *m, struct parked *p, struct effects *fx)
{
    BELAY_CHECK(parked_is_linked(p));
    if (is_dead(m, p))
        parked_expire(m, p, fx);
}

/* --- a node that is gone --- */

void parked_away(struct machine *m, struct parked *p, uint64_t since_ms)
{
    BELAY_CHECK(p->receipt && p->receipt->parked == p);
    uint64_t until = since_ms + RECEIPT_RETURN_MS;
    if (p->away || p->end.at <= until)
        return;
    p->away = AWAY_CUT;
    heap_set(&m->ends, &p->end, until);
}

void parked_return(struct machine *m, struct parked *p, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(p->receipt && p->receipt->parked == p);
    struct event *ev = effects_add(fx, EVENT_REFUSED);
    ev->asker = p->asker;
    ev->at_ms = m->now_ms;
    ev->reason = REASON_REPLACED;
    parked_set_asker(m, p, op->asker);
    if (!p->away)
        return;
    p->away = AWAY_NOT;
    heap_set(&m->ends, &p->end, p->receipt->at_ms + op->wait_ms);
}

/* --- serving --- */

void parked_serve(struct machine *m, struct effects *fx)
{
    uint64_t before = m->level >= LEVEL_BOUNDED ? 0 : m->txn_work; /* then: twice a step */
    struct heap_node *top;
    while (m->txn_work - before < PARKED_SERVE_WORK && (top = heap_top(&m->ready))) {
        struct parked *p = heap_item(top, struct parked, ready);
        BELAY_CHECK(p->ready.seq == p->end.seq && parked_is_linked(p));
        heap_remove(&m->ready, top);
        if (is_dead(m, p))
            parked_expire(m, p, fx);
        else if (node_is_silent(m, p->asker))
            continue; /* passed over: node_is_back() */
        else if (txn_try_parked(m, p, fx))
            lock_serve_touched(m, fx);
    }
}
