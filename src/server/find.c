/* find.c - reads that look at more than one op may: FIND, LIST with a filter, GRAPH.
 *
 *   namespaces -> locks, a piece of one namespace after the other -> the rows of the best of them
 *
 * Each step is a read of its own, and all such reads together have FIND_SLICE_US of a turn. So the
 * loop is never held, however many locks there are. The first step in each shard is linearizable.
 * What this node has applied never goes back, so the steps behind it ask this node alone. */
#include "auth/rule.h"
#include "base/mem.h"
#include "command/answer.h"
#include "server/state.h"

#include <stdlib.h>

enum { FIND_SLICE_US = 1000 };

enum find_phase { FIND_NAMESPACES, FIND_LOCKS, FIND_ROWS };

struct find_space {
    struct slice name;
    size_t group;
};

struct find_best {
    int64_t place;
    size_t space;
    char *name; /* owned */
    size_t len;
};

struct find {
    struct ask ask; /* first */
    struct list in_server;
    struct server *server;
    struct pending_reply *pending;
    struct op op; /* FIND: what it looks for; its bytes are the arena's */
    struct arena arena;
    enum find_phase phase;
    bool all; /* namespaces */
    bool is_list, is_graph;
    size_t limit;
    struct find_space *spaces; /* to look in */
    size_t n_spaces, cap_spaces, at_space;
    struct slice from,
        behind; /* the namespace to begin with, and the last one that was listed */
    struct slice first_behind; /* the place in that namespace */
    struct buf after;          /* the place in the one that is looked in */
    struct find_best *best;    /* room for twice the limit */
    size_t n_best, at_row;
    struct answer_found *rows;
    size_t n_rows, bytes;
    bool more;
    uint64_t age_ms, began_ms;
    bool seen[LIMIT_GROUPS];
    int64_t base_ms[LIMIT_GROUPS]; /* their times when it began */
    const struct reply *failed;
};

static void find_free(struct find *f)
{
    list_remove(&f->in_server);
    for (size_t i = 0; i < f->n_best; i++)
        free(f->best[i].name);
    free(f->best);
    free(f->spaces);
    free(f->rows);
    buf_done(&f->after);
    arena_done(&f->arena);
    free(f);
}

/* The connection goes: so does its interest in the answer. */
static void forget(struct pending_reply *p)
{
    engine_cancel(p->find->server->engine, &p->find->ask);
    find_free(p->find);
}

/* --- what was found --- */

static int compare(const void *a, const void *b)
{
    const struct find_best *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    return slice_cmp(slice_of(x->name, x->len), slice_of(y->name, y->len));
}

static void keep_best(struct find *f)
{
    qsort(f->best, f->n_best, sizeof *f->best, compare);
    f->more |= f->n_best > f->limit;
    while (f->n_best > f->limit)
        free(f->best[--f->n_best].name);
}

static bool is_of_time(enum lock_sort sort)
{
    return sort == SORT_AGE || sort == SORT_WAITED || sort == SORT_EXPIRES;
}

static void add_found(struct find *f, const struct found_row *row)
{
    struct find_best *b = &f->best[f->n_best];
    *b = (struct find_best){.place = row->place, .space = f->at_space, .len = row->name.len};
    if (is_of_time((enum lock_sort)f->op.fence) && row->place != INT64_MAX)
        b->place -= f->base_ms[f->spaces[f->at_space].group];
    b->name = mem_dup(row->name.data, row->name.len);
    if (++f->n_best == 2 * f->limit)
        keep_best(f);
}

static void take_locks(struct find *f, const struct event *ev)
{
    size_t group = f->spaces[f->at_space].group;
    if (!f->seen[group])
        f->base_ms[group] =
            (int64_t)ev->at_ms - (int64_t)(uv_now(&f->server->loop) - f->began_ms);
    f->seen[group] = true;
    for (size_t i = 0; i < ev->n_rows; i++)
        add_found(f, &ev->found[i]);
    bool full = f->op.fence == SORT_NAME && f->n_best == f->limit;
    buf_clear(&f->after);
    if (ev->more)
        buf_put_slice(&f->after, ev->name);
    else
        f->at_space++;
    f->more |= full && f->at_space < f->n_spaces;
    if (full || f->at_space == f->n_spaces) {
        keep_best(f);
        f->phase = FIND_ROWS;
    }
}

/* The namespaces that may be read, from the first one on. */
static void take_spaces(struct find *f, const struct event *ev)
{
    for (size_t i = 0; i < ev->n_rows; i++) {
        const struct namespace_row *row = &ev->namespaces[i];
        bool hidden = f->op.body.len && !rules_can_somewhere(f->op.body, VERB_READ, &row->name);
        f->behind = arena_copy(&f->arena, row->name);
        if (hidden || slice_cmp(row->name, f->from) < 0)
            continue;
        if (f->n_spaces == f->cap_spaces) {
            f->cap_spaces = f->cap_spaces ? f->cap_spaces * 2 : 16;
            f->spaces = mem_resize(f->spaces, f->cap_spaces * sizeof *f->spaces);
        }
        f->spaces[f->n_spaces++] = (struct find_space){f->behind, (size_t)row->shard};
    }
    if (ev->more)
        return;
    f->phase = f->n_spaces ? FIND_LOCKS : FIND_ROWS;
    if (f->n_spaces && slice_eq(f->spaces[0].name, f->from))
        buf_put_slice(&f->after, f->first_behind);
}

/* It may be gone by now. */
static bool is_there(const struct lock_row *row)
{
    return row->state != LOCK_UNLOCKED || row->waiters_total || row->body.len;
}

static void take_row(struct find *f, const struct event *ev)
{
    const struct find_best *b = &f->best[f->at_row++];
    const struct lock_row *lock = ev->n_rows ? &ev->locks[0] : NULL;
    if (!lock || !is_there(lock))
        return;
    f->rows[f->n_rows++] =
        (struct answer_found){.ns = f->all ? f->spaces[b->space].name : SLICE(""),
                              .lock = lock_row_copy(lock, &f->arena)};
    f->bytes += lock->name.len + lock->body.len + lock->n_holders * sizeof *lock->holders +
                lock->n_waiters * sizeof *lock->waiters;
    while (f->bytes >= LIMIT_LIST_BYTES && f->at_row < f->n_best) {
        f->more = true;
        free(f->best[--f->n_best].name);
    }
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct find *f = (struct find *)ask;
    bool vanished =
        ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_NO_NAMESPACE && f->behind.len;
    list_push_back(&f->server->finding, &f->in_server);
    conn_stay_awake(f->server);
    if (ev->kind == EVENT_FAILED && !vanished) {
        struct slice text = ev->text.len ? ev->text : slice_str(err_text(ev->err));
        f->failed = reply_error(&f->arena, ev->err, "%.*s", (int)text.len, text.data);
        return;
    }
    f->age_ms = ev->age_ms > f->age_ms ? ev->age_ms : f->age_ms;
    if (f->phase == FIND_NAMESPACES)
        take_spaces(f, ev);
    else if (f->phase == FIND_LOCKS)
        take_locks(f, ev);
    else
        take_row(f, ev);
}

/* --- steps --- */

static struct op next_op(const struct find *f)
{
    struct op op = f->op;
    if (f->phase == FIND_NAMESPACES) {
        op = (struct op){.kind = OP_NAMESPACE_LIST, .text = f->behind, .limit = LIMIT_LIST};
        op.flags = f->op.flags & OP_STALE;
        op.body = f->op.body;
    } else if (f->phase == FIND_LOCKS) {
        op.ns = f->spaces[f->at_space].name;
        op.text = buf_slice(&f->after);
        op.limit = f->limit - (f->op.fence == SORT_NAME ? f->n_best : 0);
        op.flags |= f->seen[f->spaces[f->at_space].group] ? OP_STALE : 0;
    } else {
        const struct find_best *b = &f->best[f->at_row];
        op = (struct op){.kind = OP_SHOW, .name = slice_of(b->name, b->len), .flags = OP_STALE};
        op.ns = f->spaces[b->space].name;
    }
    op.account = f->op.account;
    op.token = f->op.token;
    op.rights = f->op.rights;
    return op;
}

static struct slice place_of_last(struct find *f)
{
    const struct find_best *b = &f->best[f->n_best - 1];
    struct slice name = slice_of(b->name, b->len);
    return f->is_list ? name : answer_place(f->spaces[b->space].name, name, &f->arena);
}

static void finish(struct find *f)
{
    struct server *s = f->server;
    struct answer_page page = {
        .rows = f->rows, .n = f->n_rows, .stale = f->op.flags & OP_STALE, .age_ms = f->age_ms};
    if (f->more && f->op.fence == SORT_NAME && f->n_best)
        page.next = place_of_last(f);
    struct arena *a = &s->reply_arena;
    arena_reset(a);
    const struct reply *r = f->failed     ? f->failed
                            : f->is_graph ? answer_graph(&page, f->more, a)
                                          : answer_found(&page, a);
    pipeline_answer(f->pending, r);
    find_free(f);
}

static void step(struct find *f)
{
    struct op op;
    if (f->failed || (f->phase == FIND_ROWS && f->at_row == f->n_best)) {
        finish(f);
        return;
    }
    op = next_op(f);
    engine_submit(f->server->engine, &op, &f->ask);
}

void find_go_on(struct server *s)
{
    uint64_t until = uv_hrtime() + FIND_SLICE_US * UINT64_C(1000);
    while (!list_empty(&s->finding) && uv_hrtime() < until) {
        struct find *f = list_item(s->finding.next, struct find, in_server);
        list_remove(&f->in_server);
        BELAY_CHECK(s->finding.next != &f->in_server);
        step(f);
    }
    if (!list_empty(&s->finding))
        conn_stay_awake(s);
}

/* The bytes of the request go: what is looked for stays. */
static void keep_op(struct find *f, const struct op *op)
{
    struct arena *a = &f->arena;
    f->op = *op;
    f->op.account = arena_copy(a, op->account);
    f->op.ns = arena_copy(a, op->ns);
    f->op.name = arena_copy(a, op->name);
    f->op.owner = arena_copy(a, op->owner);
    f->op.session = arena_copy(a, op->session);
    f->op.body = arena_copy(a, op->body);
    f->op.text = arena_copy(a, op->text);
}

void find_run(struct conn *c, const struct call *call, bool close)
{
    struct find *f = mem_zalloc(sizeof *f);
    list_init(&f->in_server);
    f->server = c->server;
    f->ask.answer = on_answer;
    f->began_ms = uv_now(&c->server->loop);
    keep_op(f, &call->op);
    f->is_list = call->command == command_get(CMD_LIST);
    f->is_graph = call->command == command_get(CMD_GRAPH);
    f->all = !f->is_list;
    f->limit = (size_t)call->op.limit;
    f->best = mem_alloc(2 * f->limit * sizeof *f->best);
    f->rows = mem_alloc(f->limit * sizeof *f->rows);
    if (f->is_list || call->text.len) {
        f->spaces = mem_alloc(sizeof *f->spaces);
        f->spaces[0] = (struct find_space){f->op.ns, 0};
        f->n_spaces = 1;
        f->phase = FIND_LOCKS;
        buf_put_slice(&f->after, f->op.text);
    } else {
        f->from = f->op.ns;
        f->first_behind = f->op.text;
    }
    f->pending = pipeline_defer(c, call, close, forget);
    f->pending->find = f;
    list_push_back(&c->server->finding, &f->in_server);
    conn_stay_awake(c->server);
}
