/* snapshot_vars.c - the part of a snapshot that holds variables and parked transactions. */
#include "machine/node.h"
#include "machine/snapshot.h"
#include "machine/table.h"
#include "machine/txn_wait.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/sound.h"

#include <stdlib.h>

/* --- writing --- */

static void put_record(struct buf *out, const struct record *r)
{
    BELAY_CHECK(record_is_settled(r));
    snapshot_put_session_ref(out, r->session);
    varint_put(out, r->end.seq);
    varint_put(out, r->set_ms);
    varint_put(out, r->ttl_ms);
    varint_put(out, r->exclusive);
    varint_put_bytes(out, record_value(r));
    varint_put_bytes(out, slice_of(r->bytes + r->value_len, r->description_len));
}

static void put_slot(struct buf *out, const struct slot *slot)
{
    BELAY_CHECK(!slot->touched && slot->n_records > 0);
    varint_put_bytes(out, slot_key(slot));
    varint_put(out, slot->n_records);
    for (const struct record *r = slot->records; r; r = r->next)
        put_record(out, r);
}

void snapshot_put_tables(struct buf *out, const struct space *s)
{
    BELAY_CHECK((s->tables.count == 0) == list_empty(&s->table_list));
    varint_put(out, s->tables.count);
    list_each (it, &s->table_list) {
        const struct table *t = list_item(it, const struct table, in_space);
        varint_put_bytes(out, table_name(t));
        varint_put(out, t->slots.count);
        list_each (at, &t->slot_list)
            put_slot(out, list_item(at, const struct slot, in_table));
    }
}

static void put_watch(struct buf *out, const struct watched *w)
{
    BELAY_CHECK(w->key_len > 0);
    varint_put(out, w->kind);
    varint_put_bytes(out, slice_of(w->bytes, w->table_len));
    varint_put_bytes(out, slice_of(w->bytes + w->table_len, w->key_len));
}

void snapshot_put_parked(struct buf *out, const struct space *s)
{
    varint_put(out, s->n_parked);
    list_each (it, &s->parked) {
        const struct parked *p = list_item(it, const struct parked, in_space);
        BELAY_CHECK(parked_is_linked(p));
        snapshot_put_session_ref(out, p->session);
        varint_put(out, p->end.seq);
        varint_put(out, p->end.at);
        varint_put(out, p->asker);
        varint_put(out, p->since_ms);
        varint_put(out, p->token);
        varint_put(out, p->ready.pos != 0);
        varint_put_bytes(out, parked_program(p));
        varint_put_bytes(out, parked_description(p));
        snapshot_put_open(out, p->receipt, p->away);
        varint_put(out, p->n_watches);
        for (size_t i = 0; i < p->n_watches; i++)
            put_watch(out, p->watches[i].what);
    }
}

/* --- reading --- */

static void read_record(struct loader *ld, struct slot *slot, struct record **last)
{
    struct record_ask ask = {.session = loader_session(ld)};
    uint64_t number = loader_number(ld);
    uint64_t set_ms = loader_time(ld);
    ask.ttl_ms = loader_bounded(ld, LIMIT_TTL_MS);
    ask.exclusive = loader_bounded(ld, 1);
    ask.value = loader_bytes(ld, 1, LIMIT_VALUE_BYTES);
    ask.description = loader_bytes(ld, 0, LIMIT_DESCRIPTION_BYTES);
    loader_ok(ld, ask.session && set_ms <= ld->m->now_ms);
    if (ld->r.bad || !ask.session)
        return;
    if (!loader_ok(ld, ask.session->seen_in != slot)) /* one record of a session */
        return;
    ask.session->seen_in = slot;
    struct record *r = record_new(ld->m, slot, &ask);
    r->set_ms = set_ms;
    r->end.seq = number;
    BELAY_CHECK(r->session == ask.session);
    record_link(ld->m, r, *last);
    *last = r;
    ld->records =
        loader_grown(ld->records, ld->n_records, &ld->cap_records, sizeof(struct record *));
    ld->records[ld->n_records++] = r;
}

static void read_slot(struct loader *ld, struct space *s, struct slice table, bool first)
{
    struct slice key = loader_bytes(ld, 1, LIMIT_NAME_BYTES);
    uint64_t n = loader_bounded(ld, LIMIT_RECORDS);
    struct slot_place place;
    if (ld->r.bad)
        return;
    bool twin = slot_locate(ld->m, s, table, key, &place) != NULL;
    if (!loader_ok(ld, n > 0 && !twin && (place.table != NULL) == !first))
        return; /* a table of that name, in whatever letter case, is there but once */
    struct slot *slot = slot_make(s, &place);
    struct record *last = NULL;
    loader_ok(ld, slot);
    if (!slot)
        return;
    BELAY_DCHECK(slot->n_records == 0 && !slot->records);
    for (; n && !ld->r.bad; n--)
        read_record(ld, slot, &last);
}

void loader_tables(struct loader *ld, struct space *s)
{
    BELAY_CHECK(s->tables.count == 0);
    uint64_t n = loader_bounded(ld, LIMIT_TABLES);
    for (; n && !ld->r.bad; n--) {
        struct slice name = loader_bytes(ld, 1, LIMIT_TABLE_BYTES);
        uint64_t n_slots = loader_bounded(ld, LIMIT_VARIABLES);
        loader_ok(ld, n_slots > 0);
        for (uint64_t i = 0; i < n_slots && !ld->r.bad; i++)
            read_slot(ld, s, name, i == 0);
    }
}

static struct read read_watch(struct loader *ld)
{
    struct read what = {.kind = (enum watch_kind)loader_bounded(ld, WATCH_LOCK)};
    bool lock = what.kind == WATCH_LOCK;
    what.table = loader_bytes(ld, !lock, lock ? 0 : LIMIT_TABLE_BYTES);
    what.key = loader_bytes(ld, 1, LIMIT_NAME_BYTES);
    return what;
}

static void read_watches(struct loader *ld, struct parked *p)
{
    BELAY_CHECK(p->n_watches == 0);
    uint64_t n = loader_bounded(ld, LIMIT_TXN_OPERATORS + LIMIT_TXN_STATEMENTS);
    if (!loader_ok(ld, n <= ld->r.left.len)) /* each takes a byte at least */
        return;
    struct read *reads = mem_alloc((size_t)n * sizeof *reads);
    for (uint64_t i = 0; i < n; i++)
        reads[i] = read_watch(ld);
    if (!ld->r.bad)
        parked_watch(ld->m, p, reads, (size_t)n);
    free(reads);
}

static void read_parked(struct loader *ld, struct space *s, uint64_t *last_ticket)
{
    struct session *session = loader_session(ld);
    uint64_t ticket = loader_number(ld);
    uint64_t deadline_ms = loader_time(ld);
    uint64_t asker = reader_u64(&ld->r);
    uint64_t since_ms = loader_time(ld);
    uint64_t token = ld->version >= 6 ? loader_bounded(ld, UINT32_MAX) : 0;
    uint64_t ready = loader_bounded(ld, 1);
    struct slice program = loader_bytes(ld, 1, LIMIT_PROGRAM_BYTES);
    struct slice description = loader_bytes(ld, 0, LIMIT_DESCRIPTION_BYTES);
    const char *what;
    if (!loader_ok(ld, session && ticket > *last_ticket && since_ms <= ld->m->now_ms) ||
        !loader_ok(ld, s->parked_bytes + program.len <= LIMIT_TXN_WAITING_BYTES) ||
        !loader_ok(ld, program_check(program, &what) == BELAY_OK))
        return;
    *last_ticket = ticket;
    struct parked *p = parked_new(s, session, program, description);
    parked_set_asker(ld->m, p, asker);
    p->since_ms = since_ms;
    p->token = (uint32_t)token;
    parked_link(ld->m, p, ticket, deadline_ms);
    BELAY_DCHECK(parked_is_linked(p));
    p->receipt = loader_open(ld, s, &p->away);
    if (p->receipt)
        p->receipt->parked = p;
    if (ready)
        heap_set(&ld->m->ready, &p->ready, ticket);
    read_watches(ld, p);
    ld->parked =
        loader_grown(ld->parked, ld->n_parked, &ld->cap_parked, sizeof(struct parked *));
    ld->parked[ld->n_parked++] = p;
}

void loader_parked(struct loader *ld, struct space *s)
{
    BELAY_CHECK(s->n_parked == 0);
    uint64_t n = loader_bounded(ld, LIMIT_TXN_WAITING), ticket = 0;
    loader_ok(ld, n == 0 || !s->doomed);
    for (; n && !ld->r.bad; n--)
        read_parked(ld, s, &ticket);
}

static int record_by_number(const void *a, const void *b)
{
    uint64_t x = (*(struct record *const *)a)->end.seq;
    uint64_t y = (*(struct record *const *)b)->end.seq;
    BELAY_DCHECK(x > 0 && y > 0); /* 0: of a transaction that runs, and none does */
    return x < y ? -1 : x > y;
}

static int parked_by_ticket(const void *a, const void *b)
{
    uint64_t x = (*(struct parked *const *)a)->end.seq;
    uint64_t y = (*(struct parked *const *)b)->end.seq;
    return x < y ? -1 : x > y;
}

void loader_finish_records(struct loader *ld)
{
    if (ld->n_records)
        qsort(ld->records, ld->n_records, sizeof(struct record *), record_by_number);
    for (size_t i = 0; i < ld->n_records; i++)
        record_settle(ld->m, ld->records[i], ld->records[i]->end.seq);
    if (ld->n_parked)
        qsort(ld->parked, ld->n_parked, sizeof(struct parked *), parked_by_ticket);
    for (size_t i = 0; i < ld->n_parked; i++) {
        list_remove(&ld->parked[i]->in_session);
        list_push_back(&ld->parked[i]->session->parked, &ld->parked[i]->in_session);
    }
    BELAY_DCHECK(ld->n_records <= ld->cap_records && ld->n_parked <= ld->cap_parked);
}
