/* txn_var.c - what the operators and the SELECTs of a transaction do with variables. Changes are
 * made in place, so that later operators see them, and are noted in the order in which they were
 * made: txn.c makes them final or undoes them. */
#include "base/check.h"
#include "machine/level.h"
#include "machine/namespace.h"
#include "machine/node.h"
#include "machine/table.h"
#include "machine/txn_core.h"

/* A record costs one unit, and one more for every so many bytes that its value is compared
 * with. */
enum { WORK_VALUE_BYTES = 256 };

static uint64_t cost_of(const struct eval *e, const struct slot *slot,
                        const struct program_var *v)
{
    BELAY_CHECK(slot->table->space == e->space);
    size_t compared = v->flags & VAR_HAS_VALUE ? v->value.len : 0;
    if (e->m->level < LEVEL_BOUNDED)
        return 0;
    return slot->n_records * (1 + compared / WORK_VALUE_BYTES);
}

/* The slot, when it has records that live; NULL: nothing is set, or it stops here. */
static struct slot *slot_of(struct eval *e, const struct program_var *v,
                            struct slot_place *ret_place)
{
    txn_note_read(e, (struct read){WATCH_VARIABLE, v->table, v->key});
    struct slot *slot = slot_locate(e->m, e->space, v->table, v->key, ret_place);
    if (!slot)
        return NULL;
    BELAY_DCHECK(slot->table->space == e->space);
    slot = slot_bury(e->m, slot, e->fx);
    if (!slot) /* its table may be gone with it */
        (void)slot_locate(e->m, e->space, v->table, v->key, ret_place);
    return slot && txn_afford(e, cost_of(e, slot, v)) ? slot : NULL;
}

static void touch(struct eval *e, struct slot *slot)
{
    BELAY_CHECK(e->x->n_slots <= e->x->cap_slots);
    struct txn_scratch *x = e->x;
    if (slot->touched)
        return;
    slot->touched = true;
    x->slots = txn_grown(x->slots, x->n_slots, &x->cap_slots, sizeof(struct slot *));
    x->slots[x->n_slots++] = slot;
}

static void change(struct eval *e, struct record *r, struct record *prev, bool added)
{
    BELAY_CHECK(r->session == e->session && r->gone == false);
    struct txn_scratch *x = e->x;
    x->changes = txn_grown(x->changes, x->n_changes, &x->cap_changes, sizeof *x->changes);
    x->changes[x->n_changes++] = (struct change){r, prev, added};
    touch(e, r->slot);
    r->gone = !added;
    if (added)
        record_link(e->m, r, prev);
    else
        record_unlink(e->m, r, prev);
}

/* *ret_own: the session's own record, or NULL; *ret_prev: the one before it, or the last. False:
 * another's is exclusive, and that is respected. One walk for both, as records may lie anywhere in
 * memory. */
static bool own_record(const struct slot *slot, const struct session *session, bool respects,
                       struct record **ret_own, struct record **ret_prev)
{
    BELAY_DCHECK((slot->records == NULL) == (slot->n_records == 0));
    *ret_own = *ret_prev = NULL;
    for (struct record *r = slot->records; r && (respects || !*ret_own); r = r->next) {
        if (r->session == session)
            *ret_own = r;
        else if (respects && r->exclusive)
            return false;
        else if (!*ret_own)
            *ret_prev = r;
    }
    return true;
}

static bool is_match(const struct record *r, const struct program_var *v,
                     const struct session *ignored)
{
    BELAY_DCHECK(!r->gone);
    return r->session != ignored &&
           (!(v->flags & VAR_HAS_VALUE) || slice_eq(record_value(r), v->value));
}

bool txn_exists(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    const struct slot *slot = slot_of(e, v, &place);
    const struct session *ignored = v->flags & VAR_IGNORE_THIS_SESSION ? e->session : NULL;
    for (const struct record *r = slot ? slot->records : NULL; r; r = r->next)
        if (is_match(r, v, ignored))
            return true;
    return false;
}

/* `own`: the record that the new one replaces. */
static struct txn_limit set_limit(const struct eval *e, const struct slot *slot,
                                  const struct record *own, uint64_t bytes)
{
    BELAY_DCHECK(!slot || slot->n_records <= LIMIT_RECORDS);
    const struct account *a = e->space->account;
    struct txn_limit limit = {.text = NULL};
    if (!own && e->space->n_records >= LIMIT_VARIABLES)
        limit.text = "the namespace has LIMIT_VARIABLES (16000000) variables";
    else if (!own && e->session->n_records >= LIMIT_SESSION_VARIABLES)
        limit.text = "the session has LIMIT_SESSION_VARIABLES (100000) variables";
    else if (!own && slot && slot->n_records >= LIMIT_RECORDS)
        limit.text = "the variable has LIMIT_RECORDS (10000) records";
    else if (!own)
        limit = txn_quota(a, QUOTA_VARIABLES, 1);
    if (!limit.text && quota_outgrown(a, own ? own->value_len : 0, bytes))
        limit = txn_quota(a, QUOTA_BYTES, bytes);
    return limit;
}

bool txn_set(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    struct slot *slot = slot_of(e, v, &place);
    struct record *prev = NULL, *own = NULL;
    if (e->stopped)
        return false;
    if (slot && slot->records) {
        if (!(v->flags & VAR_ALLOW_DUPLICATES) ||
            !own_record(slot, e->session, v->flags & VAR_RESPECT_EXCLUSIVE, &own, &prev))
            return false;
    }
    struct txn_limit limit = set_limit(e, slot, own, v->value.len);
    if (limit.text)
        return txn_bounded(e, limit);
    if (!slot)
        slot = slot_make(e->space, &place);
    if (!slot)
        return txn_over_limit(e, "the namespace has LIMIT_TABLES (10000) tables");
    struct record_ask ask = {.session = e->session,
                             .value = v->value,
                             .description =
                                 v->description.len ? v->description : e->description,
                             .ttl_ms = v->ttl_ms,
                             .exclusive = !(v->flags & VAR_ALLOW_DUPLICATES)};
    if (own)
        change(e, own, prev, false);
    BELAY_CHECK(!own || own->gone);
    change(e, record_new(e->m, slot, &ask), prev, true); /* in its place, or last */
    return true;
}

bool txn_delete(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    struct slot *slot = slot_of(e, v, &place);
    struct record *prev = NULL, *own = NULL;
    if (slot)
        (void)own_record(slot, e->session, false, &own, &prev);
    if (!own || !is_match(own, v, NULL))
        return false;
    BELAY_DCHECK(own->slot == slot && (prev ? prev->next : slot->records) == own);
    change(e, own, prev, false);
    return true;
}

/* --- selected data --- */

struct txn_row *txn_add_row(struct eval *e, struct slice name, enum txn_row_kind kind)
{
    struct txn_scratch *x = e->x;
    x->rows = txn_grown(x->rows, x->n_rows, &x->cap_rows, sizeof *x->rows);
    BELAY_DCHECK(x->n_rows < x->cap_rows);
    struct txn_row *row = &x->rows[x->n_rows++];
    *row = (struct txn_row){.name = arena_copy(&e->fx->arena, name), .kind = kind};
    return row;
}

/* What it costs to copy something that is selected, and to write it into the answer. */
enum { WORK_SELECTED = 6, WORK_SELECTED_BYTES = 24 };

/* False: there would be too much of it. */
bool txn_room_for(struct eval *e, size_t bytes)
{
    BELAY_DCHECK(!e->stopped);
    if (e->m->level >= LEVEL_PARTS)
        return txn_spend(e, WORK_SELECTED + bytes / WORK_SELECTED_BYTES,
                         "what is selected needs more than LIMIT_TXN_WORK (100000) units: "
                         "select less at once");
    e->data_bytes += bytes;
    if (e->data_bytes <= LIMIT_TXN_DATA_BYTES)
        return true;
    return txn_over_limit(e,
                          "the transaction selects more than LIMIT_TXN_DATA_BYTES (8388608)");
}

void txn_select(struct eval *e, const struct program_var *v)
{
    struct slot_place place;
    const struct slot *slot = slot_of(e, v, &place);
    const struct session *ignored = v->flags & VAR_IGNORE_THIS_SESSION ? e->session : NULL;
    size_t n = 0, max = v->flags & VAR_MANY ? LIMIT_RECORDS : 1;
    if (e->stopped)
        return;
    for (const struct record *r = slot ? slot->records : NULL; r && n < max; r = r->next) {
        if (!is_match(r, v, ignored))
            continue;
        if (!txn_room_for(e, record_bytes(e->m, r)))
            return;
        n++;
    }
    if (n == 0) {
        if (v->flags & VAR_ABORT_IF_NOT_FOUND)
            txn_stop(e, false);
        else
            txn_add_row(e, v->into, TXN_ROW_NULL);
        return;
    }
    struct txn_row *row =
        txn_add_row(e, v->into, v->flags & VAR_MANY ? TXN_ROW_RECORDS : TXN_ROW_RECORD);
    row->records = arena_alloc(&e->fx->arena, n * sizeof *row->records);
    for (const struct record *r = slot->records; r && row->n_records < n; r = r->next)
        if (is_match(r, v, ignored))
            row->records[row->n_records++] = record_row(r, e->m->now_ms, e->fx);
    BELAY_CHECK(row->n_records == n);
}
