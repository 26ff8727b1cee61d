/* table.c - tables of variables: namespace -> table -> key -> records owned by sessions.
 *
 * Names of tables are compared without regard to ASCII letter case, keys byte by byte. A table
 * exists while it has a key, a key while it has a record: nothing needs creation, and nothing
 * that is empty stays behind. */
#include "machine/table.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "machine/sound.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

/* --- tables and slots --- */

static uint64_t hash_folded(const struct machine *m, struct slice name)
{
    char folded[LIMIT_TABLE_BYTES];
    BELAY_CHECK(name.len <= sizeof folded);
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        folded[i] = c;
        if (c >= 'A' && c <= 'Z')
            folded[i] = (char)(c - 'A' + 'a');
    }
    return hash_bytes(&m->key, folded, name.len);
}

static bool same_table(struct map_node *node, const void *key)
{
    const struct slice *name = key;
    return slice_eq_nocase(table_name(map_item(node, const struct table, by_name)), *name);
}

static bool same_key(struct map_node *node, const void *key)
{
    const struct slice *name = key;
    return slice_eq(slot_key(map_item(node, const struct slot, by_key)), *name);
}

static struct table *find_table(const struct space *s, struct slice name, uint64_t hash)
{
    struct map_node *n = map_find(&s->tables, hash, same_table, &name);
    return n ? map_item(n, struct table, by_name) : NULL;
}

static struct slot *find_slot(const struct table *t, struct slice key, uint64_t hash)
{
    struct map_node *n = map_find(&t->slots, hash, same_key, &key);
    return n ? map_item(n, struct slot, by_key) : NULL;
}

struct table *table_find(const struct machine *m, const struct space *s, struct slice name)
{
    return name.len <= LIMIT_TABLE_BYTES ? find_table(s, name, hash_folded(m, name)) : NULL;
}

struct slot *slot_find(const struct machine *m, const struct table *t, struct slice key)
{
    return find_slot(t, key, hash_bytes(&m->key, key.data, key.len));
}

static struct table *table_add(struct space *s, struct slice name, uint64_t hash)
{
    BELAY_CHECK(name.len > 0 && name.len <= LIMIT_TABLE_BYTES);
    struct table *t = mem_zalloc(sizeof *t + name.len);
    t->space = s;
    t->name_len = (uint8_t)name.len;
    memcpy(t->name, name.data, name.len);
    list_init(&t->slot_list);
    list_push_back(&s->table_list, &t->in_space);
    map_add(&s->tables, &t->by_name, hash);
    return t;
}

struct slot *slot_locate(const struct machine *m, const struct space *s, struct slice table,
                         struct slice key, struct slot_place *ret_place)
{
    struct slot_place *p = ret_place;
    *p = (struct slot_place){.name = table, .key = key, .table_hash = hash_folded(m, table)};
    p->hash = hash_bytes(&m->key, key.data, key.len);
    p->table = find_table(s, table, p->table_hash);
    BELAY_CHECK(!p->table || p->table->space == s);
    return p->table ? find_slot(p->table, key, p->hash) : NULL;
}

struct slot *slot_make(struct space *s, const struct slot_place *place)
{
    struct table *t = place->table;
    struct slice key = place->key;
    if (!t && s->tables.count >= LIMIT_TABLES)
        return NULL;
    if (!t)
        t = table_add(s, place->name, place->table_hash);
    BELAY_CHECK(key.len <= LIMIT_NAME_BYTES);
    BELAY_DCHECK(!find_slot(t, key, place->hash));
    struct slot *slot = mem_alloc(sizeof *slot + key.len);
    *slot = (struct slot){.table = t, .key_len = (uint16_t)key.len};
    memcpy(slot->key, key.data, key.len);
    BELAY_CHECK(key.len > 0 && t->space == s);
    list_push_back(&t->slot_list, &slot->in_table);
    map_add(&t->slots, &slot->by_key, place->hash);
    return slot;
}

void slot_drop_if_idle(struct machine *m, struct slot *slot)
{
    BELAY_CHECK((slot->records == NULL) == (slot->n_records == 0));
    (void)m;
    struct table *t = slot->table;
    if (slot->records || slot->touched)
        return;
    list_remove(&slot->in_table);
    BELAY_CHECK(t->slots.count > 0);
    map_remove(&t->slots, &slot->by_key);
    free(slot);
    if (t->slots.count)
        return;
    list_remove(&t->in_space);
    map_remove(&t->space->tables, &t->by_name);
    BELAY_CHECK(t->n_records == 0 && list_empty(&t->slot_list));
    map_done(&t->slots);
    free(t);
}

/* --- records --- */

struct record *record_new(const struct machine *m, struct slot *slot,
                          const struct record_ask *ask)
{
    BELAY_CHECK(ask->session && ask->value.len > 0);
    BELAY_CHECK(ask->value.len <= LIMIT_VALUE_BYTES);
    BELAY_CHECK(ask->description.len <= LIMIT_DESCRIPTION_BYTES);
    struct record *r = mem_alloc(sizeof *r + ask->value.len + ask->description.len);
    *r = (struct record){.slot = slot,
                         .session = ask->session,
                         .set_ms = m->now_ms,
                         .ttl_ms = (uint32_t)ask->ttl_ms,
                         .value_len = (uint32_t)ask->value.len,
                         .description_len = (uint16_t)ask->description.len,
                         .exclusive = ask->exclusive,
                         .end = {.tag = END_RECORD}};
    memcpy(r->bytes, ask->value.data, ask->value.len);
    if (ask->description.len)
        memcpy(r->bytes + ask->value.len, ask->description.data, ask->description.len);
    list_init(&r->in_session);
    return r;
}

void record_link(struct machine *m, struct record *r, struct record *prev)
{
    BELAY_CHECK(r->session);
    BELAY_CHECK(!prev || prev->slot == r->slot);
    struct slot *slot = r->slot;
    struct record **at = prev ? &prev->next : &slot->records;
    r->prev = prev;
    r->next = *at;
    *at = r;
    if (r->next)
        r->next->prev = r;
    BELAY_CHECK(slot->n_records < LIMIT_RECORDS);
    slot->n_records++;
    slot->table->n_records++;
    slot->table->space->n_records++;
    slot->table->space->account->used[QUOTA_VARIABLES]++;
    slot->table->space->account->used[QUOTA_BYTES] += r->value_len;
    r->session->n_records++;
    m->n_records++;
}

void record_unlink(struct machine *m, struct record *r, struct record *prev)
{
    struct slot *slot = r->slot;
    struct record **at = prev ? &prev->next : &slot->records;
    BELAY_CHECK(*at == r);
    *at = r->next;
    if (r->next)
        r->next->prev = prev;
    BELAY_CHECK(slot->n_records > 0 && slot->table->n_records >= slot->n_records);
    slot->n_records--;
    slot->table->n_records--;
    BELAY_CHECK(m->n_records >= slot->table->space->n_records);
    slot->table->space->n_records--;
    BELAY_CHECK(slot->table->space->account->used[QUOTA_VARIABLES] > 0);
    slot->table->space->account->used[QUOTA_VARIABLES]--;
    BELAY_CHECK(slot->table->space->account->used[QUOTA_BYTES] >= r->value_len);
    slot->table->space->account->used[QUOTA_BYTES] -= r->value_len;
    BELAY_CHECK(r->session->n_records > 0);
    r->session->n_records--;
    m->n_records--;
}

void record_settle(struct machine *m, struct record *r, uint64_t number)
{
    BELAY_CHECK(!r->gone && list_empty(&r->in_session));
    BELAY_CHECK(number > 0 && number <= m->counter);
    r->end.seq = number;
    list_push_back(&r->session->records, &r->in_session);
    end_set(m, &r->end, after_ms(r->set_ms, r->ttl_ms));
}

void record_remove(struct machine *m, struct record *r)
{
    BELAY_CHECK(record_is_settled(r));
    record_unlink(m, r, r->prev);
    list_remove(&r->in_session);
    heap_remove(&m->ends, &r->end);
    slot_changed(m, r->slot);
    free(r);
}

static void tell_expired(const struct machine *m, const struct record *r, struct effects *fx)
{
    const struct table *t = r->slot->table;
    const struct account *account = t->space->account;
    struct event *ev = effects_add(fx, EVENT_VARIABLE_EXPIRED);
    ev->news = true;
    ev->at_ms = m->now_ms;
    ev->reason = REASON_TTL;
    ev->account = arena_copy(&fx->arena, slice_of(account->name, account->name_len));
    ev->ns = arena_copy(&fx->arena, slice_of(t->space->name, t->space->name_len));
    ev->name = arena_copy(&fx->arena, slot_key(r->slot));
    ev->owner = arena_copy(&fx->arena, table_name(t));
    ev->session = arena_copy(&fx->arena, session_id(r->session));
}

void record_expire(struct machine *m, struct record *r, struct effects *fx)
{
    BELAY_CHECK(over(&r->end, m->now_ms));
    struct slot *slot = r->slot;
    tell_expired(m, r, fx);
    record_remove(m, r);
    slot_drop_if_idle(m, slot);
}

struct slot *slot_bury(struct machine *m, struct slot *slot, struct effects *fx)
{
    if (slot->buried == m->applied + 1)
        return slot; /* by this op: time has not moved since */
    slot->buried = m->applied + 1;
    for (struct record *r = slot->records, *next; r; r = next) {
        next = r->next;
        if (!record_over(r, m->now_ms))
            continue;
        if (over(&r->end, m->now_ms))
            tell_expired(m, r, fx);
        record_remove(m, r);
    }
    if (slot->records || slot->touched)
        return slot;
    slot_drop_if_idle(m, slot);
    return NULL;
}

void space_free_tables(struct space *s)
{
    list_each_safe(it, &s->table_list)
    {
        struct table *t = list_item(it, struct table, in_space);
        list_each_safe(at, &t->slot_list)
        {
            struct slot *slot = list_item(at, struct slot, in_table);
            for (struct record *r = slot->records, *next; r; r = next) {
                next = r->next;
                free(r);
            }
            free(slot);
        }
        map_done(&t->slots);
        free(t);
    }
    list_init(&s->table_list);
    s->tables.count = 0;
}

/* --- what it looks like --- */

static struct slice description_of(const struct record *r)
{
    return r->description_len ? slice_of(r->bytes + r->value_len, r->description_len)
                              : slice_of(r->session->description, r->session->description_len);
}

/* What JSON does not write as it is takes as long as so many bytes. */
enum { WORK_ESCAPE_BYTES = 12 };

static size_t shown_bytes(struct slice text)
{
    size_t bytes = 0;
    for (size_t i = 0, n; i < text.len; i += n ? n : 1) {
        char c = text.data[i];
        bool escaped = (unsigned char)c < ' ' || c == '"' || c == '\\';
        n = escaped ? 0 : utf8_len(text.data + i, text.len - i);
        bytes += n ? n : WORK_ESCAPE_BYTES;
    }
    return bytes;
}

size_t record_bytes(const struct machine *m, const struct record *r)
{
    struct slice told = description_of(r);
    if (m->level < LEVEL_OVER)
        return r->value_len + LIMIT_DESCRIPTION_BYTES;
    return r->value_len + (m->level < LEVEL_PARTS ? told.len : shown_bytes(told));
}

struct record_row record_row(const struct record *r, uint64_t now_ms, struct effects *fx)
{
    BELAY_CHECK(r->set_ms <= now_ms);
    bool forever = r->ttl_ms == 0;
    BELAY_CHECK(forever || r->set_ms + r->ttl_ms >= now_ms);
    return (struct record_row){.session = arena_copy(&fx->arena, session_id(r->session)),
                               .value = arena_copy(&fx->arena, record_value(r)),
                               .description = arena_copy(&fx->arena, description_of(r)),
                               .set_ms_ago = now_ms - r->set_ms,
                               .expires_in_ms = forever ? 0 : r->set_ms + r->ttl_ms - now_ms,
                               .forever = forever,
                               .exclusive = r->exclusive};
}

static int by_name(const void *a, const void *b)
{
    const struct table *const *x = a;
    const struct table *const *y = b;
    return slice_cmp(table_name(*x), table_name(*y));
}

static size_t page_size(const struct op *op)
{
    BELAY_CHECK(op->limit <= LIMIT_LIST);
    return op->limit ? (size_t)op->limit : 100;
}

static void list_tables(const struct space *s, const struct op *op, struct event *ev,
                        struct arena *a)
{
    size_t n = 0;
    struct table **all = arena_alloc(a, s->tables.count * sizeof(struct table *));
    list_each (it, &s->table_list)
        all[n++] = list_item(it, struct table, in_space);
    BELAY_CHECK(n == s->tables.count);
    if (n)
        qsort(all, n, sizeof(struct table *), by_name);
    ev->tables = arena_alloc(a, page_size(op) * sizeof *ev->tables);
    for (size_t i = 0; i < n; i++) {
        if (op->text.len && slice_cmp(table_name(all[i]), op->text) <= 0)
            continue;
        if (ev->n_rows == page_size(op)) {
            ev->more = true;
            return;
        }
        ev->tables[ev->n_rows++] = (struct table_row){.name = arena_copy(a, table_name(all[i])),
                                                      .keys = all[i]->slots.count,
                                                      .records = all[i]->n_records};
    }
}

/* All records of a key stand on one page, so that the key is all that the next page needs. How
 * many rows the page has: */
static size_t rows_from(struct list *at, const struct table *t, size_t room, uint64_t now_ms)
{
    size_t n = 0, bytes = 0;
    for (; at != &t->slot_list && n < room && bytes <= LIMIT_LIST_BYTES; at = at->next) {
        const struct slot *slot = list_item(at, const struct slot, in_table);
        for (const struct record *r = slot->records; r; r = r->next) {
            n += !record_over(r, now_ms);
            bytes += r->value_len + r->description_len + slot_key(slot).len +
                     sizeof(struct variable_row);
        }
    }
    return n;
}

static void list_slots(struct list *at, const struct table *t, const struct op *op,
                       struct event *ev, struct effects *fx)
{
    size_t n = rows_from(at, t, page_size(op), ev->at_ms);
    ev->variables = arena_alloc(&fx->arena, n * sizeof *ev->variables);
    for (; at != &t->slot_list && ev->n_rows < n; at = at->next) {
        const struct slot *slot = list_item(at, const struct slot, in_table);
        struct slice key = arena_copy(&fx->arena, slot_key(slot));
        for (const struct record *r = slot->records; r; r = r->next)
            if (!record_over(r, ev->at_ms))
                ev->variables[ev->n_rows++] =
                    (struct variable_row){key, record_row(r, ev->at_ms, fx)};
    }
    BELAY_CHECK(ev->n_rows == n);
    ev->more = rows_from(at, t, 1, ev->at_ms) > 0;
}

static void show_table(const struct machine *m, const struct table *t, const struct op *op,
                       struct event *ev, struct effects *fx)
{
    struct list *at = t->slot_list.next;
    if (op->text.len) {
        const struct slot *after = slot_find(m, t, op->text);
        if (!after) { /* the cursor is gone, and with it the place: say so instead of guessing
                       */
            ev->kind = EVENT_FAILED;
            ev->err = BELAY_ERR_GONE;
            ev->text = slice_str("the key named by AFTER is gone; begin again without AFTER");
            return;
        }
        at = after->in_table.next;
    }
    list_slots(at, t, op, ev, fx);
}

void table_query(const struct machine *m, const struct space *s, const struct op *op,
                 struct effects *fx)
{
    BELAY_CHECK(op->kind == OP_TABLE_LIST || op->kind == OP_TABLE_SHOW);
    struct event *ev = effects_add(fx, EVENT_ROWS);
    ev->asker = op->asker;
    ev->at_ms = op->now_ms > m->now_ms ? op->now_ms : m->now_ms;
    const struct table *t = op->kind == OP_TABLE_SHOW ? table_find(m, s, op->name) : NULL;
    if (op->kind == OP_TABLE_LIST)
        list_tables(s, op, ev, &fx->arena);
    else if (t)
        show_table(m, t, op, ev, fx);
}
