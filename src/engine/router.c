/* router.c - what several groups do together.
 *
 *   route    a namespace lives in the shard that SHA-256 of account and namespace says;
 *            namespaces themselves and sessions live in group 0
 *   carry    messages that one group has for another (machine/outbox.c): the leader of the
 *            one orders them in the other, and tells the first when they are taken
 *   hold     an answer is given when what it says is true everywhere: a namespace can be used
 *            when it has been made, a session's locks are free when it has been closed (also
 *            when there is one group, for a session ends in parts)
 *   keep     keep first, then act: an op that names a session goes to group 0 first. Group 0
 *            keeps the session or says that it is over. When the session is used in a shard for
 *            the first time, group 0 also writes a message to that shard. Then the op goes on
 *            its way. So whatever takes effect in a shard does so in a session that lives for
 *            its whole time from the request on. A node that has had the session kept a moment
 *            ago leaves this step out
 *
 * Nothing here is remembered beyond a crash: what must happen is in the messages. */
#include "base/check.h"
#include "base/mem.h"
#include "engine/engine_core.h"
#include "machine/level.h"

#include <openssl/sha.h>
#include <stdlib.h>

enum { SEND_AGAIN_MS = 2000 };

static unsigned n_groups(const struct engine *e)
{
    return (unsigned)e->order->n_groups;
}

static const struct machine *machine_of(const struct engine *e, size_t group)
{
    return e->groups[group].machine;
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
        key.group = shard_by_sum(e, &key);
        *kept = key;
    }
    return kept->group;
}

size_t router_route(struct engine *e, struct op *op)
{
    if (n_groups(e) == 1)
        return 0;
    if (op->kind == OP_NAMESPACE_CREATE || op->kind == OP_ACCOUNT_CREATE)
        op->target = shard_of(e, op->account, op->ns);
    return op_is(op->kind, KIND_AT_HOME) ? 0 : shard_of(e, op->account, op->ns);
}

/* --- hold --- */

struct held_answer {
    struct list in_engine;
    size_t group;      /* that has posted the messages */
    uint64_t posted;   /* as struct event */
    uint64_t *numbers; /* by group: how far they must be taken */
    struct event ev;
    struct arena arena;
};

/* Is something left of the session of which it says that it has ended? */
static bool still_ends(const struct engine *e, const struct event *ev)
{
    for (unsigned g = 0; g < n_groups(e) && ev->kind == EVENT_SESSION_ENDED; g++)
        if (machine_session_ends(machine_of(e, g), ev->account, ev->session))
            return true;
    return false;
}

static void held_add(struct engine *e, size_t group, const struct event *ev)
{
    struct held_answer *h = mem_zalloc(sizeof *h + n_groups(e) * sizeof *h->numbers);
    h->group = group;
    h->posted = ev->posted;
    h->numbers = (uint64_t *)(h + 1);
    for (unsigned g = 0; g < n_groups(e); g++)
        h->numbers[g] = machine_posted(machine_of(e, group), g);
    h->ev = event_copy(ev, &h->arena);
    h->ev.news = false;
    h->ev.posted = 0;
    list_push_back(&e->held, &h->in_engine);
}

static void held_free(struct held_answer *h)
{
    list_remove(&h->in_engine);
    arena_done(&h->arena);
    free(h);
}

bool router_hold(struct engine *e, size_t group, const struct asker_slot *s,
                 const struct event *ev)
{
    bool keeps = buf_len(&s->then) > 0;
    if (ev->posted == 0 && !keeps && !still_ends(e, ev))
        return false;
    held_add(e, group, ev);
    return true;
}

/* A session is known by its id within its account; "default" is also what is left out. */
struct session_name {
    struct slice account, id;
};

static struct session_name name_of(struct slice account, struct slice id)
{
    bool is_default = slice_eq(account, SLICE("default"));
    return (struct session_name){is_default ? slice_of("", 0) : account, id};
}

/* Is the session known in the shard, as far as this node has its log? */
static bool is_guest(const struct engine *e, size_t group, struct session_name name,
                     uint64_t number)
{
    struct machine_session s;
    return machine_session(machine_of(e, group), name.account, name.id, &s) &&
           (s.number == number || s.number == 0);
}

static bool is_true_now(const struct engine *e, const struct held_answer *h)
{
    if (h->group != 0)
        return !h->posted ||
               machine_taken(machine_of(e, 0), (unsigned)h->group) >= h->numbers[0];
    for (unsigned g = 1; g < n_groups(e); g++) {
        bool concerned = h->posted >> (g - 1) & 1;
        bool keeps = h->ev.kind == EVENT_SESSION_KEPT && h->ev.fence;
        if (concerned && machine_taken(machine_of(e, g), 0) < h->numbers[g] &&
            !(keeps && is_guest(e, g, name_of(h->ev.account, h->ev.session), h->ev.fence)))
            return false;
    }
    return !still_ends(e, &h->ev);
}

static void put_name(struct buf *out, struct session_name name)
{
    buf_put_slice(out, name.account);
    buf_put_byte(out, 0);
    buf_put_slice(out, name.id);
}

/* What a shard has freed with a session belongs to the answer that is given for all. This node may
 * have the shard's log before that of group 0, so it counts from the request on. */
void router_count(struct engine *e, size_t group, const struct event *ev)
{
    struct buf name = {0};
    if (group == 0 || list_empty(&e->ending))
        return;
    put_name(&name, name_of(ev->account, ev->session));
    list_each (it, &e->ending) {
        struct session_ending *ending = list_item(it, struct session_ending, in_engine);
        if (slice_eq(buf_slice(&ending->name), buf_slice(&name)))
            ending->freed += ev->count;
    }
    buf_done(&name);
}

static void give(struct engine *e, const struct held_answer *h)
{
    *effects_add(&e->fx, h->ev.kind) = h->ev;
    engine_deliver(e, h->group);
}

/* Its session has been kept, or is over: then the shard says so in the words of the op, or
 * tells again what was done before. */
static void act(struct engine *e, const struct event *ev, struct buf *bytes)
{
    struct arena a = {0};
    struct op op;
    enum belay_err err = op_decode(buf_slice(bytes), &a, &op);
    BELAY_CHECK(err == BELAY_OK);
    if (ev->kind == EVENT_SESSION_KEPT)
        op.number = ev->fence;
    else
        op.flags |= OP_OVER;
    size_t group = router_route(e, &op);
    e->order->ops->submit(e->order, group, &op);
    arena_done(&a);
    buf_done(bytes);
}

static void give_held(struct engine *e)
{
    list_each_safe(it, &e->held)
    {
        struct held_answer *h = list_item(it, struct held_answer, in_engine);
        struct asker_slot *s = engine_slot(e, h->ev.asker);
        if (s && !is_true_now(e, h))
            continue;
        bool acts = s && buf_len(&s->then) &&
                    (h->ev.kind != EVENT_FAILED || h->ev.err == BELAY_ERR_NO_SESSION);
        if (acts) {
            struct buf then = s->then;
            s->then = (struct buf){0};
            act(e, &h->ev, &then);
        } else if (s) {
            buf_done(&s->then);
            give(e, h);
        }
        held_free(h);
    }
}

/* --- keep --- */

static struct kept_session *kept_place(struct engine *e, struct session_name name)
{
    if (!e->kept)
        e->kept = mem_zalloc(SESSIONS_KEPT * sizeof *e->kept);
    uint32_t sum = crc32c(0, name.account.data, name.account.len);
    return &e->kept[crc32c(sum, name.id.data, name.id.len) % SESSIONS_KEPT];
}

static struct kept_session *kept_find(struct engine *e, struct session_name name)
{
    struct kept_session *k = kept_place(e, name);
    bool same = slice_eq(slice_of(k->id, k->len), name.id) &&
                slice_eq(slice_of(k->account, k->account_len), name.account);
    return same ? k : NULL;
}

static void kept_drop(struct engine *e, struct session_name name)
{
    struct kept_session *k = kept_find(e, name);
    if (k)
        k->len = 0;
}

void router_forget(struct engine *e)
{
    free(e->kept);
    e->kept = NULL;
}

/* A keep that was asked for less than a fifth of its time to live ago is as good as one now:
 * group 0 keeps a session for a quarter longer (session_keep). Neither this node's clock nor
 * group 0's may have moved by more. */
static bool is_kept(struct engine *e, size_t group, struct op *op)
{
    struct session_name name = name_of(op->account, op->session);
    const struct kept_session *k = kept_find(e, name);
    if (!k || !is_guest(e, group, name, k->number))
        return false;
    uint64_t most = k->ttl_ms / 5;
    if (engine_clock(e) - k->asked_ms >= most ||
        machine_now(machine_of(e, 0)) - k->now_ms >= most)
        return false;
    op->number = k->number;
    return true;
}

static bool keep_first(struct engine *e, size_t group, struct op *op)
{
    if (group == 0 || op->session.len == 0 || op_is_read(op->kind))
        return false;
    struct asker_slot *s = engine_slot(e, op->asker);
    if (!s || is_kept(e, group, op))
        return false; /* without a slot nobody would hear how it went: a cancel */
    op_encode(op, &s->then);
    BELAY_CHECK(!s->then.oom);
    struct op enrol = {.kind = OP_SESSION_ENROL,
                       .asker = op->asker,
                       .account = name_of(op->account, op->session).account,
                       .session = op->session,
                       .flags = op->flags & OP_SEES_ALL,
                       .token = op->token,
                       .target = group};
    e->order->ops->submit(e->order, 0, &enrol);
    return true;
}

/* What it does to the session is ordered behind every keep from before it. */
static void end_session(struct engine *e, const struct op *op)
{
    e->detached_ms = engine_clock(e);
    kept_drop(e, name_of(op->account, op->session));
    struct asker_slot *s = op->asker ? engine_slot(e, op->asker) : NULL;
    if (s && !s->ending) {
        s->ending = mem_zalloc(sizeof *s->ending);
        put_name(&s->ending->name, name_of(op->account, op->session));
        list_push_back(&e->ending, &s->ending->in_engine);
    }
}

bool router_keep(struct engine *e, size_t group, struct op *op)
{
    if (n_groups(e) == 1)
        return false;
    if (op->kind == OP_SESSION_DETACH || op->kind == OP_SESSION_CLOSE)
        end_session(e, op);
    return keep_first(e, group, op);
}

/* What could come between this keep and the next use, and make the session's end an earlier one?
 * A connection of another node; one of this node only if it has closed since (detached_ms). */
static void note_kept(struct engine *e, uint64_t asked_ms, const struct op *op, struct slice id)
{
    struct session_name name = name_of(op->account, id);
    const struct machine *m = machine_of(e, 0);
    struct machine_session s;
    if (name.id.len == 0 || !machine_session(m, name.account, name.id, &s))
        return;
    if (op->token && s.token && s.token != op->token && !(op->flags & OP_SEES_ALL))
        return; /* another token's: it was not kept */
    bool here = engine_knows_target(e, s.target) && asked_ms > e->detached_ms;
    if (s.target != 0 && !here)
        return;
    struct kept_session *k = kept_place(e, name);
    *k = (struct kept_session){.number = s.number,
                               .asked_ms = asked_ms,
                               .now_ms = machine_now(m),
                               .ttl_ms = s.ttl_ms,
                               .len = name.id.len,
                               .account_len = name.account.len};
    (void)slice_put(k->id, name.id);
    (void)slice_put(k->account, name.account);
}

static bool was_kept(const struct engine *e, const struct op *op)
{
    for (size_t i = 0; i < e->fx.n; i++)
        if (e->fx.events[i].asker == op->asker && e->fx.events[i].kind == EVENT_SESSION_KEPT)
            return true;
    return false;
}

void router_applied(struct engine *e, size_t group, const struct op *op)
{
    bool keeps = op->kind == OP_SESSION_ENROL || op->kind == OP_SESSION_KEEPALIVE ||
                 op->kind == OP_SESSION_ATTACH;
    if (group != 0 || n_groups(e) == 1 || !keeps ||
        machine_level(machine_of(e, 0)) < LEVEL_KEEP_FIRST)
        return;
    const struct asker_slot *s = engine_slot(e, op->asker);
    if (!s || !was_kept(e, op))
        return; /* of another node, or refused */
    note_kept(e, s->asked_ms, op, op->session);
    for (size_t i = 0; i < op->more.n; i++)
        note_kept(e, s->asked_ms, op, op->more.items[i]);
}

static void on_kept(struct ask *ask, const struct event *ev)
{
    (void)ask, (void)ev; /* router_applied() has noted it */
}

struct ask *router_keeper(struct engine *e, const struct op *op)
{
    if (n_groups(e) == 1 || op->kind != OP_SESSION_KEEPALIVE || e->keeper.id)
        return NULL;
    e->keeper.answer = on_kept;
    return &e->keeper;
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
        c->confirmed = taken;
        c->at_ms = now;
        e->order->ops->submit(e->order, from, &op);
    }
    /* This node's copy of the other group may be old: what is known to be taken is not here any
     * more, and the numbers go on behind it. */
    uint64_t next = c->sent > taken ? c->sent + 1 : taken + 1;
    next = next > waiting ? next : waiting;
    while (next <= posted) {
        struct buf messages = {0};
        size_t n = machine_outbox(m, to, next, &messages);
        struct op op = {.kind = OP_MESSAGES, .target = from, .fence = next};
        op.program = buf_slice(&messages);
        e->order->ops->submit(e->order, to, &op);
        buf_done(&messages);
        next += n;
        c->sent = next - 1;
        c->at_ms = now;
    }
}

static bool may_carry(const struct engine *e, size_t group)
{
    if (machine_messages(machine_of(e, group)) == 0)
        return false;
    return !e->order->ops->leads || e->order->ops->leads(e->order, group);
}

void engine_exchange(struct engine *e)
{
    give_held(e);
    if (n_groups(e) == 1)
        return;
    bool home = may_carry(e, 0);
    for (unsigned g = 1; g < n_groups(e); g++) {
        if (home)
            carry(e, 0, g, &e->groups[g].out);
        if (may_carry(e, g))
            carry(e, g, 0, &e->groups[g].in);
    }
}

uint64_t router_next_ms(struct engine *e)
{
    uint64_t next = UINT64_MAX;
    for (unsigned g = 0; n_groups(e) > 1 && g < n_groups(e); g++)
        if (may_carry(e, g))
            next = SEND_AGAIN_MS;
    return next;
}

/* Everything that `to` has taken has been posted, and everything that is posted and not taken
 * is still kept. */
static bool fits(const struct engine *e, unsigned from, unsigned to)
{
    const struct machine *m = machine_of(e, from);
    uint64_t taken = machine_taken(machine_of(e, to), from);
    return taken <= machine_posted(m, to) && machine_waiting(m, to) <= taken + 1;
}

bool engine_is_cut(const struct engine *e)
{
    bool fit = true;
    for (unsigned g = 1; g < n_groups(e); g++)
        fit = fit && fits(e, 0, g) && fits(e, g, 0);
    return fit;
}

/* --- rows --- */

void router_fill(struct engine *e, const struct op *op)
{
    if (n_groups(e) < 2)
        return;
    for (size_t i = 0; i < e->fx.n; i++) {
        struct event *ev = &e->fx.events[i];
        for (unsigned g = 1; ev->items && g < n_groups(e); g++)
            if (ev->position >> (g - 1) & 1)
                machine_add_items(machine_of(e, g), op, ev, &e->fx);
        for (size_t row = 0; ev->sessions && row < ev->n_rows; row++)
            for (unsigned g = 1; g < n_groups(e); g++)
                if (ev->sessions[row].enrolled >> (g - 1) & 1)
                    machine_add_session(machine_of(e, g), op->account, &ev->sessions[row]);
        for (size_t row = 0; ev->accounts && row < ev->n_rows; row++)
            for (unsigned g = 1; g < n_groups(e); g++)
                machine_add_account(machine_of(e, g), &ev->accounts[row]);
        for (size_t row = 0; ev->namespaces && row < ev->n_rows; row++) {
            struct namespace_row *ns = &ev->namespaces[row];
            ns->shard = shard_of(e, op->account, ns->name);
            machine_add_namespace(machine_of(e, (unsigned)ns->shard), op->account, ns);
        }
    }
}

void router_close(struct engine *e)
{
    list_each_safe(it, &e->held) held_free(list_item(it, struct held_answer, in_engine));
    router_forget(e);
}
