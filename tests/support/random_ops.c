/* random_ops.c - random ops for the model and fuzz tests. */
#include "random_ops.h"

#include "base/buf.h"
#include "base/check.h"
#include "twin.h"

#include <inttypes.h>
#include <stdio.h>

/* Short texts that sort and hash differently; one holds bytes that no text should rely on. */
static const struct slice names[] = {{"a", 1},    {"b", 1},    {"ab", 2},          {"c", 1},
                                     {"a\0z", 3}, {"\xff", 1}, {"db/users/42", 11}};
static const struct slice owners[] = {{"ann", 3}, {"bob", 3}, {"cy", 2}, {"di", 2}, {"eve", 3}};
static const struct slice sessions[] = {{"s1", 2}, {"s2", 2}, {"s3", 2}, {"s4", 2}};
static const struct slice spaces[] = {{"default", 7}, {"n1", 2}, {"n2", 2}};
static const uint64_t ttls[] = {1, 2, 3, 5, 8, 20, 50};
static const uint64_t long_ttls[] = {100, 1000, 5000, 20000};
static const uint64_t waits[] = {1, 2, 4, 9, 30, 200, 4000, 20000};
static const uint64_t small[] = {1, 2, 3, 6, 15};

enum { N_NAMES = sizeof names / sizeof names[0], N_OWNERS = sizeof owners / sizeof owners[0] };
enum {
    N_SESSIONS = sizeof sessions / sizeof sessions[0],
    N_SPACES = sizeof spaces / sizeof spaces[0]
};

static const unsigned usual[OP_KIND_COUNT] = {[OP_TICK] = 2,
                                              [OP_ACQUIRE] = 30,
                                              [OP_RELEASE] = 10,
                                              [OP_RENEW] = 4,
                                              [OP_CONVERT] = 5,
                                              [OP_BODY] = 2,
                                              [OP_BREAK] = 1,
                                              [OP_CANCEL] = 3,
                                              [OP_SESSION_OPEN] = 5,
                                              [OP_SESSION_ATTACH] = 2,
                                              [OP_SESSION_DETACH] = 2,
                                              [OP_SESSION_KEEPALIVE] = 2,
                                              [OP_SESSION_CLOSE] = 1,
                                              [OP_NAMESPACE_CREATE] = 2,
                                              [OP_NAMESPACE_UPDATE] = 1,
                                              [OP_NAMESPACE_DELETE] = 1,
                                              [OP_CHECK] = 3,
                                              [OP_SHOW] = 4,
                                              [OP_LIST] = 3,
                                              [OP_SESSION_SHOW] = 2,
                                              [OP_SESSION_LIST] = 2,
                                              [OP_NAMESPACE_SHOW] = 1,
                                              [OP_NAMESPACE_LIST] = 1};

void random_ops_init(struct random_ops *g, struct choice *c)
{
    static const unsigned factors[] = {1, 1, 1, 0, 3, 10};
    *g = (struct random_ops){.c = c};
    for (int k = 0; k < OP_KIND_COUNT; k++)
        g->weights[k] = usual[k] * choice_of(c, factors);
    g->weights[OP_ACQUIRE] += 10;
    g->weights[OP_NAMESPACE_CREATE] += 2 * g->weights[OP_NAMESPACE_DELETE];
    g->weights[OP_SHOW] += 1; /* both kinds of op have something to choose from */
    g->names = 1 + (unsigned)choice_below(c, N_NAMES);
    g->owners = 2 + (unsigned)choice_below(c, N_OWNERS - 1);
    g->sessions = (unsigned)choice_below(c, N_SESSIONS + 1);
    g->weights[OP_SESSION_OPEN] += 5 * g->sessions;
    g->spaces = 1 + (unsigned)choice_below(c, N_SPACES);
    g->hurry = (unsigned)choice_below(c, 4);
    g->long_ttls = (unsigned)choice_below(c, 4);
    g->options = (unsigned)choice_below(c, 4);
    g->requests = (unsigned)choice_below(c, 4);
}

static enum op_kind pick_kind(struct random_ops *g, bool read)
{
    enum op_kind first = read ? OP_CHECK : OP_TICK;
    enum op_kind end = read ? OP_KIND_COUNT : OP_CHECK;
    uint64_t sum = 0;
    for (enum op_kind k = first; k < end; k++)
        sum += g->weights[k];
    uint64_t at = choice_below(g->c, sum);
    for (enum op_kind k = first; k < end; k++) {
        if (at < g->weights[k])
            return k;
        at -= g->weights[k];
    }
    check_failed(__FILE__, __LINE__, "weights add up");
    return first;
}

static uint64_t time_step(struct random_ops *g)
{
    if (choice_below(g->c, 2) == 0)
        return 0;
    if (g->hurry && choice_one_in(g->c, 200))
        return choice_below(g->c, 100000);
    static const uint64_t widths[] = {2, 4, 20, 200};
    return choice_below(g->c, widths[g->hurry]);
}

static struct slice pick_name(struct random_ops *g, size_t slot)
{
    if (g->mass_names) {
        int n = snprintf(g->text[slot], sizeof g->text[slot], "%" PRIu64,
                         choice_below(g->c, g->mass_names));
        return slice_of(g->text[slot], (size_t)n);
    }
    return names[choice_below(g->c, g->names)];
}

static struct slice pick_owner(struct random_ops *g)
{
    if (g->mass_owners) {
        int n = snprintf(g->owner, sizeof g->owner, "o%" PRIu64,
                         choice_below(g->c, g->mass_owners));
        return slice_of(g->owner, (size_t)n);
    }
    return owners[choice_below(g->c, g->owners)];
}

static bool often(struct random_ops *g) /* an option is asked for: never, seldom, or often */
{
    return g->options && choice_below(g->c, 12) < g->options;
}

static uint64_t pick_ttl(struct random_ops *g)
{
    if (choice_one_in(g->c, 12))
        return 0;
    return choice_below(g->c, 4) < g->long_ttls ? choice_of(g->c, long_ttls)
                                                : choice_of(g->c, ttls);
}

static void pick_session(struct random_ops *g, struct op *op)
{
    if (g->sessions && choice_below(g->c, 3) == 0)
        op->session = sessions[choice_below(g->c, g->sessions)];
}

static void fill_mode(struct random_ops *g, struct op *op)
{
    uint64_t kind = choice_below(g->c, 10);
    if (kind < 5) {
        op->mode = MODE_EXCLUSIVE;
    } else if (kind < 9) {
        op->mode = MODE_SHARED;
    } else {
        op->mode = MODE_SEMAPHORE;
        op->of = choice_one_in(g->c, 6) ? 2 : 3;
        op->permits = 1 + choice_below(g->c, op->of);
    }
}

static void fill_more(struct random_ops *g, struct op *op)
{
    op->more.n = 1 + choice_below(g->c, 3);
    op->more.items = g->more;
    for (size_t i = 0; i < op->more.n; i++)
        g->more[i] = pick_name(g, i + 1);
}

static void fill_acquire(struct random_ops *g, struct op *op)
{
    op->owner = pick_owner(g);
    pick_session(g, op);
    fill_mode(g, op);
    op->ttl_ms = pick_ttl(g);
    if (choice_below(g->c, 3))
        op->wait_ms = choice_of(g->c, waits);
    if (often(g))
        op->grace_ms = choice_of(g->c, small);
    if (often(g))
        op->delay_ms = choice_of(g->c, small);
    if (often(g)) {
        op->flags |= OP_SET_BODY;
        op->body = choice_one_in(g->c, 3)
                       ? slice_of("", 0)
                       : slice_of("body of the lock", choice_below(g->c, 16));
    }
    if (often(g))
        op->flags |= OP_NOBLOCK;
    if (often(g))
        op->flags |= OP_FRESH;
    if (op->mode == MODE_EXCLUSIVE && often(g))
        op->policy = POLICY_SOFT;
    if (op->mode == MODE_EXCLUSIVE && op->wait_ms && often(g)) {
        op->policy = POLICY_TIMED;
        op->quiet_ms = choice_of(g->c, small);
        if (op->quiet_ms > op->wait_ms)
            op->quiet_ms = op->wait_ms;
    }
    if (!op->wait_ms && often(g))
        fill_more(g, op);
}

/* Whose hold: by a fence seen before, by owner, by anyone. */
static void fill_holder(struct random_ops *g, struct op *op)
{
    uint64_t how = choice_below(g->c, 8);
    if (how < 4 && g->n_seen) {
        size_t span = g->n_seen < OPGEN_SEEN ? g->n_seen : OPGEN_SEEN;
        struct random_ops_seen *s = &g->seen[choice_below(g->c, span)];
        op->fence = s->fence;
        if (!choice_one_in(g->c, 10)) {
            op->ns = slice_str(s->ns);
            if (s->name[0])
                op->name = slice_str(s->name);
        }
    }
    if (!op->fence)
        op->owner = pick_owner(g);
    if (op->kind == OP_RELEASE && choice_one_in(g->c, 4))
        op->flags |= OP_HOLDS_ONLY;
    if (how == 7 && (op->kind == OP_RELEASE || op->kind == OP_RENEW)) {
        op->flags |= OP_ANYONE;
        op->fence = 0;
        op->owner = slice_of("", 0);
    }
    if ((op->kind == OP_RELEASE || op->kind == OP_RENEW) && !op->fence && often(g))
        fill_more(g, op);
    if (choice_one_in(g->c, 6))
        pick_session(g, op);
}

static void fill_lock_op(struct random_ops *g, struct op *op)
{
    op->name = pick_name(g, 0);
    if (choice_one_in(g->c, 8))
        op->flags |= OP_WANT_LOCK;
    if (op->kind == OP_ACQUIRE) {
        fill_acquire(g, op);
        return;
    }
    if (op->kind == OP_BREAK && choice_one_in(g->c, 2))
        op->text = SLICE("it is stuck");
    if (op->kind == OP_BREAK || op->kind == OP_SHOW)
        return;
    if (op->kind == OP_CANCEL) {
        size_t span = g->n_seen < OPGEN_SEEN ? g->n_seen : OPGEN_SEEN;
        struct random_ops_seen *s = &g->seen[span ? choice_below(g->c, span) : 0];
        op->target = s->asker ? s->asker : 1 + choice_below(g->c, g->asker);
        op->flags = choice_one_in(g->c, 2) ? OP_UNDO : 0;
        if (choice_one_in(g->c, 4))
            op->flags |= OP_END_WAIT;
        if (s->name[0] && !choice_one_in(g->c, 8)) {
            op->name = slice_str(s->name);
            op->ns = slice_str(s->ns);
        }
        if (choice_one_in(g->c, 2))
            fill_more(g, op);
        return;
    }
    fill_holder(g, op);
    if (op->kind == OP_RENEW || op->kind == OP_CONVERT || op->kind == OP_BODY)
        op->ttl_ms = choice_below(g->c, 3) ? 0 : choice_of(g->c, ttls);
    if (op->kind == OP_RENEW && op->ttl_ms && often(g))
        op->flags |= OP_ADD_TTL;
    if (op->kind == OP_CONVERT) {
        op->mode = choice_below(g->c, 3) ? MODE_EXCLUSIVE : MODE_SHARED;
        op->wait_ms = choice_below(g->c, 3) ? choice_of(g->c, waits) : 0;
        if (often(g))
            op->flags |= OP_NOBLOCK;
    }
    if (op->kind == OP_BODY)
        op->body = slice_of("new body", choice_below(g->c, 9));
}

static void fill_session_op(struct random_ops *g, struct op *op)
{
    op->session = sessions[choice_below(g->c, g->sessions ? g->sessions : 1)];
    op->target = 1 + choice_below(g->c, 2);
    if (op->kind == OP_SESSION_OPEN) {
        op->target = 0;
        op->flags = choice_one_in(g->c, 2) ? OP_NAMED : 0;
        op->ttl_ms = choice_below(g->c, 2) ? choice_of(g->c, ttls) : choice_of(g->c, long_ttls);
        op->linger_ms = choice_below(g->c, 2) ? choice_of(g->c, small) : 0;
        op->text = slice_of("description", choice_below(g->c, 12));
    }
    if (op->kind == OP_SESSION_KEEPALIVE) {
        op->session = slice_of("", 0);
        op->target = 0;
        op->more.n = choice_below(g->c, 5);
        op->more.items = g->more;
        for (size_t i = 0; i < op->more.n; i++)
            g->more[i] = sessions[choice_below(g->c, N_SESSIONS)];
    }
}

static void fill_namespace_op(struct random_ops *g, struct op *op)
{
    op->ns = spaces[choice_below(g->c, N_SPACES)];
    if (op->kind == OP_NAMESPACE_DELETE && choice_one_in(g->c, 4))
        op->flags |= OP_FORCE;
    if (op->kind != OP_NAMESPACE_CREATE && op->kind != OP_NAMESPACE_UPDATE)
        return;
    op->text = slice_of("what it is for", choice_below(g->c, 15));
    if (choice_below(g->c, 4))
        op->flags |= OP_SET_TEXT;
}

static void fill_list_op(struct random_ops *g, struct op *op)
{
    op->limit = choice_below(g->c, 3) ? 1 + choice_below(g->c, 4) : 100;
    if (choice_below(g->c, 3) == 0)
        op->name = op->kind == OP_LIST ? slice_of(names[choice_below(g->c, N_NAMES)].data, 1)
                                       : slice_of("", 0);
    if (choice_below(g->c, 3) == 0)
        op->text = op->kind == OP_LIST           ? names[choice_below(g->c, N_NAMES)]
                   : op->kind == OP_SESSION_LIST ? sessions[choice_below(g->c, N_SESSIONS)]
                                                 : spaces[choice_below(g->c, N_SPACES)];
}

/* --- requests with an id --- */

void random_ops_repeat(struct random_ops *g, const struct twin *twin)
{
    g->twin = twin;
    g->weights[OP_CANCEL] = 0; /* those would name whatever was seen */
}

static uint64_t *last_of(struct random_ops *g, uint64_t asker)
{
    return &g->last[asker >> OP_NODE_SHIFT][asker % OPGEN_COUNTS];
}

/* Of a node and its run, so that it may start again. 0: all its numbers are in use. */
static uint64_t next_asker(struct random_ops *g)
{
    uint64_t node = choice_below(g->c, OPGEN_NODES);
    for (int i = 0; i < OPGEN_COUNTS; i++) {
        uint64_t asker = node << OP_NODE_SHIFT | g->runs[node] << OP_RUN_SHIFT | ++g->asker;
        if (!g->twin)
            return asker;
        if (twin_waits(g->twin, *last_of(g, asker)))
            continue;
        *last_of(g, asker) = asker;
        return asker;
    }
    return 0;
}

static struct random_ops_sent *pick_sent(struct random_ops *g)
{
    size_t span = g->n_sent < OPGEN_SEEN ? g->n_sent : OPGEN_SEEN;
    return span ? &g->sent[choice_below(g->c, span)] : NULL;
}

static struct op sent_op(const struct random_ops_sent *s)
{
    struct arena none = {0}; /* it has no list of names */
    struct op op;
    enum belay_err err = op_decode(slice_of(s->bytes, s->len), &none, &op);
    BELAY_CHECK(err == BELAY_OK);
    return op;
}

static void note_sent(struct random_ops *g, const struct op *op)
{
    struct buf bytes = {0};
    op_encode(op, &bytes);
    if (buf_len(&bytes) <= OPGEN_SENT_BYTES) {
        struct random_ops_sent *s = &g->sent[g->n_sent++ % OPGEN_SEEN];
        s->asker = op->asker;
        s->len = buf_len(&bytes);
        memcpy(s->bytes, buf_data(&bytes), s->len);
    }
    buf_done(&bytes);
}

static void give_request(struct random_ops *g, struct op *op)
{
    const char *what;
    const struct random_ops_sent *other = choice_one_in(g->c, 30) ? pick_sent(g) : NULL;
    int n = snprintf(g->request, sizeof g->request, "r%" PRIu64, g->asker);
    op->request = other ? sent_op(other).request : slice_of(g->request, (size_t)n);
    if (op_validate(op, &what) != BELAY_OK)
        op->request = slice_of("", 0);
    else
        note_sent(g, op);
}

/* As the engine prepares it. */
static void note_ask(struct random_ops *g, const struct op *op)
{
    if (!g->twin || !op->asker || op->more.n ||
        (op->kind != OP_ACQUIRE && op->kind != OP_CONVERT))
        return;
    struct op cancel = {.kind = OP_CANCEL,
                        .account = op->account,
                        .ns = op->ns,
                        .name = op->name,
                        .owner = op->owner,
                        .session = op->session,
                        .target = op->asker,
                        .fence = twin_number(g->twin),
                        .request = op->request,
                        .flags = op->kind == OP_CONVERT ? OP_UNDO : 0};
    struct random_ops_ask *ask = &g->asks[g->n_asks++ % OPGEN_SEEN];
    struct buf bytes = {0};
    op_encode(&cancel, &bytes);
    BELAY_CHECK(buf_len(&bytes) <= OPGEN_SENT_BYTES);
    ask->asker = op->asker;
    ask->len = buf_len(&bytes);
    memcpy(ask->cancel, buf_data(&bytes), ask->len);
    buf_done(&bytes);
}

/* One that was sent before, again; once in a while not quite the same. */
static bool fill_again(struct random_ops *g, struct op *op)
{
    struct random_ops_sent *s = choice_below(g->c, 16) < g->requests * 2 ? pick_sent(g) : NULL;
    if (!s)
        return false;
    *op = sent_op(s);
    op->now_ms = g->now_ms;
    op->asker = s->asker = next_asker(g);
    if (!op->asker)
        return false;
    if (op->kind == OP_ACQUIRE && choice_one_in(g->c, 20))
        op->ttl_ms++;
    if (choice_one_in(g->c, 6))
        op->flags ^= OP_NOBLOCK;
    note_ask(g, op);
    return true;
}

/* Its client is gone, and nobody at its node has had its number since. */
static bool fill_gone(struct random_ops *g, struct op *op)
{
    size_t span = g->n_asks < OPGEN_SEEN ? g->n_asks : OPGEN_SEEN;
    if (!g->twin || !span || !choice_one_in(g->c, 8))
        return false;
    const struct random_ops_ask *ask = &g->asks[choice_below(g->c, span)];
    uint64_t node = ask->asker >> OP_NODE_SHIFT;
    uint64_t run = node << OP_NODE_SHIFT | g->runs[node] << OP_RUN_SHIFT;
    if (*last_of(g, ask->asker) != ask->asker ||
        ask->asker >> OP_RUN_SHIFT != run >> OP_RUN_SHIFT)
        return false;
    struct arena none = {0}; /* it has no list of names */
    enum belay_err err = op_decode(slice_of(ask->cancel, ask->len), &none, op);
    BELAY_CHECK(err == BELAY_OK);
    op->now_ms = g->now_ms;
    if (choice_one_in(g->c, 4))
        op->flags |= choice_one_in(g->c, 2) ? OP_AWAY : OP_END_WAIT;
    return true;
}

/* Its client is gone. */
static bool fill_called_off(struct random_ops *g, struct op *op)
{
    const struct random_ops_sent *s =
        g->requests && !g->twin && choice_one_in(g->c, 40) ? pick_sent(g) : NULL;
    if (!s)
        return false;
    struct op sent = sent_op(s);
    if (sent.kind != OP_ACQUIRE && sent.kind != OP_CONVERT)
        return false;
    *op = (struct op){.kind = OP_CANCEL,
                      .now_ms = g->now_ms,
                      .account = sent.account,
                      .ns = sent.ns,
                      .name = sent.name,
                      .target = s->asker,
                      .flags = choice_one_in(g->c, 2) ? OP_AWAY : 0,
                      .request = sent.request};
    if (sent.kind == OP_CONVERT)
        op->flags |= OP_UNDO;
    if (choice_one_in(g->c, 4))
        op->flags |= OP_END_WAIT;
    return true;
}

/* A node starts again. */
static bool fill_restart(struct random_ops *g, struct op *op)
{
    if (g->mass_names || g->mass_owners || !choice_one_in(g->c, 400))
        return false;
    uint64_t node = choice_below(g->c, OPGEN_NODES);
    *op = (struct op){.kind = OP_CANCEL, .now_ms = g->now_ms, .account = SLICE("default")};
    op->target = node << OP_NODE_SHIFT | ++g->runs[node] << OP_RUN_SHIFT;
    return true;
}

/* A node is not heard any more, or is heard again. */
static bool fill_node(struct random_ops *g, struct op *op)
{
    if (!choice_one_in(g->c, 60))
        return false;
    *op = (struct op){.kind = OP_NODE, .now_ms = g->now_ms};
    op->target = choice_below(g->c, OPGEN_NODES) << OP_NODE_SHIFT | 1;
    op->flags = choice_one_in(g->c, 2) ? OP_AWAY : 0;
    return true;
}

/* The namespaces in use are made first, so that what follows is not mostly refused. */
static bool fill_first(struct random_ops *g, struct op *op)
{
    if (g->asker >= g->spaces)
        return false;
    *op = (struct op){.kind = OP_NAMESPACE_CREATE, .account = SLICE("default")};
    op->now_ms = g->now_ms;
    op->ns = spaces[g->asker++];
    op->asker = g->asker;
    return true;
}

void random_ops_next(struct random_ops *g, bool read, struct op *ret_op)
{
    const char *what = NULL;
    if (!read && fill_first(g, ret_op))
        return;
    if (!read)
        g->now_ms += time_step(g);
    if (!read && (fill_node(g, ret_op) || fill_restart(g, ret_op) || fill_gone(g, ret_op) ||
                  fill_called_off(g, ret_op) || fill_again(g, ret_op)))
        return;
    uint64_t asker = next_asker(g);
    do {
        *ret_op = (struct op){.kind = pick_kind(g, read), .now_ms = g->now_ms};
        struct op *op = ret_op;
        op->account = SLICE("default");
        op->ns = spaces[choice_below(g->c, g->spaces)];
        op->asker = choice_one_in(g->c, 20) ? 0 : asker;
        if (read && choice_below(g->c, 3) == 0) /* a read may be ahead of the last write */
            op->now_ms += choice_of(g->c, ttls);
        if ((op->kind >= OP_ACQUIRE && op->kind <= OP_CANCEL) || op->kind == OP_CHECK ||
            op->kind == OP_SHOW)
            fill_lock_op(g, op);
        else if ((op->kind >= OP_SESSION_OPEN && op->kind <= OP_SESSION_CLOSE) ||
                 op->kind == OP_SESSION_SHOW)
            fill_session_op(g, op);
        else if ((op->kind >= OP_NAMESPACE_CREATE && op->kind <= OP_NAMESPACE_DELETE) ||
                 op->kind == OP_NAMESPACE_SHOW)
            fill_namespace_op(g, op);
        else if (read)
            fill_list_op(g, op);
        else if (op->kind == OP_TICK && choice_one_in(g->c, 8))
            op->fence = choice_below(g->c, 100);
        if (g->c->fuzzed && !g->c->n) { /* the same choice for ever: end with something valid */
            *op = (struct op){.kind = read ? OP_LIST : OP_TICK, .now_ms = g->now_ms};
            op->account = op->ns = SLICE("default");
        }
    } while (op_validate(ret_op, &what) != BELAY_OK);
    if (!read && ret_op->asker && choice_below(g->c, 4) < g->requests)
        give_request(g, ret_op);
    if (!read)
        note_ask(g, ret_op);
}

static void remember(char to[OPGEN_NAME_BYTES], struct slice from)
{
    bool fits = from.len < OPGEN_NAME_BYTES && !memchr(from.data, 0, from.len);
    if (fits)
        memcpy(to, from.data, from.len);
    to[fits ? from.len : 0] = 0;
}

void random_ops_saw(struct random_ops *g, const struct event *ev)
{
    if (ev->kind != EVENT_GRANTED && ev->kind != EVENT_QUEUED)
        return;
    struct random_ops_seen *s = &g->seen[g->n_seen++ % OPGEN_SEEN];
    s->fence = ev->fence;
    s->asker = ev->asker;
    remember(s->ns, ev->ns);
    remember(s->name, ev->name);
}
