/* post.c - what several groups do together.
 *
 *   route    a namespace lives in the shard that SHA-256 of account and namespace says;
 *            namespaces themselves and sessions live in group 0
 *   carry    letters that one group has for another (machine/mail.c): whoever leads the one
 *            orders them in the other, and tells the first when they are taken
 *   hold     an answer is given when what it says is true everywhere: a namespace can be used
 *            when it has been made, a session's locks are free when it has been closed
 *   enrol    the first use of a session in a shard: group 0 is asked, its letter comes to the
 *            shard, then the op goes on its way
 *
 * Nothing here is remembered beyond a crash: what must happen is in the letters. */
#include "base/check.h"
#include "base/mem.h"
#include "engine/engine_core.h"

#include <openssl/sha.h>
#include <stdlib.h>

enum { SEND_AGAIN_MS = 2000 };

static unsigned n_groups(const struct engine *e)
{
    return (unsigned)e->order->n_shards;
}

static const struct machine *machine_of(const struct engine *e, size_t group)
{
    return e->shards[group].machine;
}

/* --- route --- */

/* The first 32 bits of SHA-256 say where, in as many equal ranges as there are shards. */
static size_t shard_by_sum(const struct engine *e, const struct route *key)
{
    unsigned char sum[SHA256_DIGEST_LENGTH];
    (void)SHA256(key->name, key->len, sum);
    uint64_t place =
        (uint64_t)sum[0] << 24 | (uint64_t)sum[1] << 16 | (uint64_t)sum[2] << 8 | sum[3];
    return 1 + (size_t)(place * (n_groups(e) - 1) >> 32);
}

/* Names that differ in letter case only fall together: a transaction may mean either. The sum
 * costs as much as all else that is done for a lock, so the last answers are kept. */
static size_t shard_of(struct engine *e, struct slice account, struct slice ns)
{
    struct route key = {0};
    if (account.len == 0)
        account = SLICE("default");
    if (ns.len == 0)
        ns = SLICE("default");
    key.len = account.len + 1 + ns.len;
    memcpy(key.name, account.data, account.len);
    for (size_t i = 0; i < ns.len; i++) {
        unsigned char c = (unsigned char)ns.data[i];
        key.name[account.len + 1 + i] = c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    }
    struct route *kept = &e->routes[crc32c(0, key.name, key.len) % ROUTES_KEPT];
    if (kept->len != key.len || memcmp(kept->name, key.name, key.len) != 0) {
        key.shard = shard_by_sum(e, &key);
        *kept = key;
    }
    return kept->shard;
}

size_t post_route(struct engine *e, struct op *op)
{
    if (n_groups(e) == 1)
        return 0;
    bool of_session = op->kind >= OP_SESSION_OPEN && op->kind <= OP_SESSION_CLOSE;
    of_session |= op->kind == OP_SESSION_SHOW || op->kind == OP_SESSION_LIST;
    bool of_namespaces = op->kind == OP_NAMESPACE_CREATE || op->kind == OP_NAMESPACE_UPDATE ||
                         op->kind == OP_NAMESPACE_SHOW || op->kind == OP_NAMESPACE_LIST;
    if (op->kind == OP_NAMESPACE_CREATE)
        op->target = shard_of(e, op->account, op->ns);
    return of_session || of_namespaces ? 0 : shard_of(e, op->account, op->ns);
}

/* --- hold --- */

struct held {
    struct list in_engine;
    size_t shard;      /* that has posted the letters */
    uint64_t posted;   /* as struct event */
    uint64_t *numbers; /* by group: how far they must be taken */
    struct slice use;  /* a session that it depends on whether group 0 still has it */
    struct event ev;
    struct arena arena;
};

static void held_add(struct engine *e, size_t shard, const struct event *ev)
{
    struct held *h = mem_zalloc(sizeof *h + n_groups(e) * sizeof *h->numbers);
    h->shard = shard;
    h->posted = ev->posted;
    h->numbers = (uint64_t *)(h + 1);
    for (unsigned g = 0; g < n_groups(e); g++)
        h->numbers[g] = machine_posted(machine_of(e, shard), g);
    h->ev = event_copy(ev, &h->arena);
    h->ev.news = false;
    h->ev.posted = 0;
    h->use = arena_copy(&h->arena, buf_slice(&engine_slot(e, ev->asker)->use));
    list_push_back(&e->held, &h->in_engine);
}

static void held_free(struct held *h)
{
    list_remove(&h->in_engine);
    arena_done(&h->arena);
    free(h);
}

/* Group 0 may have ended the session before it hears that it was used. Until it has said so,
 * whoever used it is told nothing: not in this step, and not what comes of it later. */
void post_used(struct engine *e, size_t shard, const struct op *op)
{
    struct slot *s = shard && op->session.len ? engine_slot(e, op->asker) : NULL;
    if (!s || !machine_doubts_session(machine_of(e, shard), op->session))
        return;
    buf_clear(&s->use);
    buf_put_slice(&s->use, op->session);
    BELAY_CHECK(!s->use.oom);
}

bool post_hold(struct engine *e, size_t shard, const struct event *ev)
{
    if (n_groups(e) == 1)
        return false;
    const struct slot *s = engine_slot(e, ev->asker);
    bool enrols = buf_len(&s->then) > 0;
    if (ev->posted == 0 && !enrols && buf_len(&s->use) == 0)
        return false;
    held_add(e, shard, ev);
    return true;
}

static bool is_true_now(const struct engine *e, const struct held *h)
{
    if (h->use.len && machine_doubts_session(machine_of(e, h->shard), h->use))
        return false;
    if (h->shard != 0)
        return !h->posted ||
               machine_taken(machine_of(e, 0), (unsigned)h->shard) >= h->numbers[0];
    for (unsigned g = 1; g < n_groups(e); g++)
        if (h->posted >> (g - 1) & 1 && machine_taken(machine_of(e, g), 0) < h->numbers[g])
            return false;
    return true;
}

/* What a shard has freed with a session belongs to the answer that is given for all. */
void post_count(struct engine *e, size_t shard, const struct event *ev)
{
    list_each (it, &e->held) {
        struct held *h = list_item(it, struct held, in_engine);
        if (shard != 0 && h->ev.kind == EVENT_SESSION_ENDED &&
            slice_eq(h->ev.session, ev->session))
            h->ev.count += ev->count;
    }
}

/* Enrolled, or not: then the shard itself says so, in the words of that op. */
static void go_on(struct engine *e, struct buf *bytes)
{
    struct arena a = {0};
    struct op op;
    enum belay_err err = op_decode(buf_slice(bytes), &a, &op);
    BELAY_CHECK(err == BELAY_OK);
    size_t shard = post_route(e, &op);
    op.now_ms = engine_stamp(e, shard);
    e->order->ops->submit(e->order, shard, &op);
    arena_done(&a);
    buf_done(bytes);
}

/* A use that group 0 heard of too late: what was done in the shard goes with the session. */
static void give(struct engine *e, const struct held *h)
{
    if (h->use.len && !machine_knows_session(machine_of(e, h->shard), h->use)) {
        struct event *ev = effects_add(&e->fx, EVENT_FAILED);
        ev->asker = h->ev.asker;
        ev->err = BELAY_ERR_NO_SESSION;
        ev->text = SLICE("the session has ended");
    } else {
        *effects_add(&e->fx, h->ev.kind) = h->ev;
    }
    engine_deliver(e, h->shard);
}

static void give_held(struct engine *e)
{
    list_each_safe(it, &e->held)
    {
        struct held *h = list_item(it, struct held, in_engine);
        struct slot *s = engine_slot(e, h->ev.asker);
        if (s && !is_true_now(e, h))
            continue;
        if (s)
            buf_clear(&s->use);
        if (s && buf_len(&s->then)) {
            struct buf then = s->then;
            s->then = (struct buf){0};
            go_on(e, &then);
        } else if (s) {
            give(e, h);
        }
        held_free(h);
    }
}

/* --- enrol --- */

bool post_enrol(struct engine *e, size_t shard, const struct op *op)
{
    if (shard == 0 || op->session.len == 0 || op_is_read(op->kind) ||
        machine_knows_session(machine_of(e, shard), op->session))
        return false;
    struct slot *s = engine_slot(e, op->asker);
    if (!s)
        return false; /* nobody would hear how it went */
    op_encode(op, &s->then);
    BELAY_CHECK(!s->then.oom);
    struct op enrol = {.kind = OP_SESSION_ENROL,
                       .now_ms = engine_stamp(e, 0),
                       .asker = op->asker,
                       .session = op->session,
                       .target = shard};
    e->order->ops->submit(e->order, 0, &enrol);
    return true;
}

/* --- carry --- */

static void carry(struct engine *e, unsigned from, unsigned to, struct carried *c)
{
    const struct machine *m = machine_of(e, from);
    uint64_t posted = machine_posted(m, to), waiting = machine_waiting(m, to);
    uint64_t taken = machine_taken(machine_of(e, to), from);
    uint64_t now = engine_clock(e);
    if (waiting > posted)
        return; /* there is none */
    if (now - c->at_ms >= SEND_AGAIN_MS || c->sent > posted)
        *c = (struct carried){0};
    if (taken >= waiting && c->confirmed < taken) {
        struct op op = {.kind = OP_TAKEN, .target = to, .fence = taken};
        op.now_ms = engine_stamp(e, from);
        c->confirmed = taken;
        c->at_ms = now;
        e->order->ops->submit(e->order, from, &op);
    }
    /* This node's copy of the other group may be old: what is known to be taken is not here any
     * more, and the numbers go on behind it. */
    uint64_t next = c->sent > taken ? c->sent + 1 : taken + 1;
    next = next > waiting ? next : waiting;
    while (next <= posted) {
        struct buf letters = {0};
        size_t n = machine_mail(m, to, next, &letters);
        struct op op = {.kind = OP_MAIL, .target = from, .fence = next};
        op.program = buf_slice(&letters);
        op.now_ms = engine_stamp(e, to);
        e->order->ops->submit(e->order, to, &op);
        buf_done(&letters);
        next += n;
        c->sent = next - 1;
        c->at_ms = now;
    }
}

static bool may_carry(const struct engine *e, size_t group)
{
    if (machine_letters(machine_of(e, group)) == 0)
        return false;
    return !e->order->ops->leads || e->order->ops->leads(e->order, group);
}

void engine_post(struct engine *e)
{
    if (n_groups(e) == 1)
        return;
    give_held(e);
    bool home = may_carry(e, 0);
    for (unsigned g = 1; g < n_groups(e); g++) {
        if (home)
            carry(e, 0, g, &e->shards[g].out);
        if (may_carry(e, g))
            carry(e, g, 0, &e->shards[g].in);
    }
}

uint64_t post_next_ms(struct engine *e)
{
    uint64_t next = UINT64_MAX;
    for (unsigned g = 0; n_groups(e) > 1 && g < n_groups(e); g++)
        if (may_carry(e, g))
            next = SEND_AGAIN_MS;
    return next;
}

/* --- rows --- */

void post_fill(struct engine *e, const struct op *op)
{
    for (unsigned g = 1; g < n_groups(e); g++) {
        for (size_t i = 0; i < e->fx.n; i++) {
            const struct event *ev = &e->fx.events[i];
            for (size_t row = 0; ev->sessions && row < ev->n_rows; row++)
                machine_add_session(machine_of(e, g), &ev->sessions[row]);
            for (size_t row = 0; ev->namespaces && row < ev->n_rows; row++) {
                struct namespace_row *ns = &ev->namespaces[row];
                if (shard_of(e, op->account, ns->name) != g)
                    continue;
                machine_add_namespace(machine_of(e, g), op->account, ns);
                ns->shard = g;
            }
        }
    }
}

void post_close(struct engine *e)
{
    list_each_safe(it, &e->held) held_free(list_item(it, struct held, in_engine));
}
