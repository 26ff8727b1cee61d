/* outbox.c - what one group has to tell another: messages, taken in order, each of them once.
 *
 *   group 0 --- a namespace exists; a session may be used, has ended --> shard
 *   group 0 --- accounts and their limits; tokens, and which of them count --> shard
 *   group 0 <-- a namespace was deleted --------------------------------- shard
 *   and what session_level0.c says of level 0
 *
 * Each group is a machine with an order of its own, so no step can change two of them. What
 * concerns two is decided in one, and in the same step a message to the other is written into
 * the state. Messages to a group are numbered. They are kept until it is known (TAKEN) that the
 * other one has them; it remembers the last number it took, so one that comes again does
 * nothing. The leader of the group carries them (engine/router.c), as often as needed: what was
 * decided here happens there, once, whatever crashes in between. */
#include "machine/outbox.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/namespace.h"
#include "machine/request.h"
#include "machine/session.h"
#include "machine/session_level0.h"
#include "machine/snapshot.h"

#include <stdlib.h>

enum { MESSAGES_BYTES = 64 << 10 }; /* of one MESSAGES; a message is small */

struct group_message {
    struct list in_box;
    size_t len;
    char bytes[]; /* an op */
};

void machine_set_group(struct machine *m, unsigned group, unsigned n_groups)
{
    BELAY_CHECK(group < n_groups && n_groups > 1 && n_groups <= LIMIT_GROUPS && !m->boxes);
    m->group = group;
    m->n_groups = n_groups;
    m->boxes = mem_zalloc(n_groups * sizeof *m->boxes);
    for (unsigned i = 0; i < n_groups; i++)
        list_init(&m->boxes[i].messages);
}

bool machine_is_group(const struct machine *m, unsigned group, unsigned n_groups)
{
    return m->group == group && (m->n_groups ? m->n_groups : 1) == n_groups;
}

void outbox_free(struct machine *m)
{
    BELAY_CHECK(m->n_groups == 0 || m->boxes);
    for (unsigned i = 0; i < m->n_groups; i++)
        list_each_safe(it, &m->boxes[i].messages)
            free(list_item(it, struct group_message, in_box));
    free(m->boxes);
}

/* The box for messages to and from that group; NULL: it has no business with this one. */
static struct mailbox *box_of(const struct machine *m, uint64_t group)
{
    BELAY_CHECK(m->n_groups == 0 || m->boxes);
    bool neighbours = group < m->n_groups && (group == 0) != (m->group == 0);
    return neighbours ? &m->boxes[group] : NULL;
}

bool outbox_is_full(const struct machine *m, unsigned to)
{
    const struct mailbox *box = box_of(m, to);
    BELAY_CHECK(!box || box->n_messages <= box->posted);
    return box && box->n_messages >= LIMIT_OUTBOX;
}

uint64_t outbox_everybody(const struct machine *m)
{
    BELAY_CHECK(m->n_groups <= LIMIT_GROUPS);
    if (m->group != 0)
        return 1;
    return m->n_groups < 2 ? 0 : UINT64_MAX >> (64 - (m->n_groups - 1));
}

static void box_add(struct machine *m, struct mailbox *box, struct slice bytes)
{
    BELAY_CHECK(bytes.len > 0);
    struct group_message *l = mem_alloc(sizeof *l + bytes.len);
    l->len = bytes.len;
    memcpy(l->bytes, bytes.data, bytes.len);
    list_push_back(&box->messages, &l->in_box);
    box->n_messages++;
    m->n_messages++;
}

/* Is it a message that another group takes? */
static bool may_be_written(const struct op *op)
{
    const char *what;
    bool of_namespace = op->kind == OP_NAMESPACE_CREATE || op->kind == OP_NAMESPACE_DELETE;
    bool of_session = op->kind == OP_SESSION_OPEN || op->kind == OP_SESSION_CLOSE ||
                      op->kind == OP_SESSION_DETACH || op->kind == OP_SESSION_ENROL ||
                      (op->kind == OP_SESSION_KEEPALIVE && op->session.len > 0);
    bool of_account = op->kind >= OP_ACCOUNT_CREATE && op->kind <= OP_ACCOUNT_DELETE;
    bool of_token =
        op->fence > 0 && (op->kind == OP_AUTH_INIT ||
                          (op->kind >= OP_TOKEN_CREATE && op->kind <= OP_TOKEN_REVOKE));
    of_token |= op->kind == OP_AUTH_RESET;
    return (of_namespace || of_session || of_account || of_token) &&
           op_validate(op, &what) == BELAY_OK;
}

void outbox_post(struct machine *m, unsigned to, const struct op *message)
{
    struct mailbox *box = box_of(m, to);
    if (!box)
        return;                            /* the only group, or a shard that there is not */
    BELAY_DCHECK(may_be_written(message)); /* else nobody takes it, nor what is behind it */
    struct buf bytes = {0};
    op_encode(message, &bytes);
    BELAY_CHECK(!bytes.oom);
    box_add(m, box, buf_slice(&bytes));
    box->posted++;
    BELAY_CHECK(box->n_messages <= box->posted && m->n_messages >= box->n_messages);
    buf_done(&bytes);
}

void outbox_post_all(struct machine *m, const struct op *message)
{
    BELAY_CHECK(m->group == 0);
    for (unsigned g = 1; g < m->n_groups; g++)
        outbox_post(m, g, message);
}

/* Whatever is about to be told to all shards; false: it has been refused. */
bool outbox_may_tell(const struct machine *m, const struct op *op, struct effects *fx)
{
    BELAY_CHECK(m->group == 0);
    if (m->level < LEVEL_ACCOUNTS) {
        request_failed(op, BELAY_ERR_UNAVAILABLE,
                       "a member of the cluster is too old for accounts and tokens", fx);
        return false;
    }
    for (unsigned g = 1; g < m->n_groups; g++) {
        if (outbox_is_full(m, g)) {
            request_failed(op, BELAY_ERR_UNAVAILABLE, "a shard does not answer", fx);
            return false;
        }
    }
    return true;
}

void outbox_taken(struct machine *m, const struct op *op, struct effects *fx)
{
    (void)fx;
    struct mailbox *box = box_of(m, op->target);
    if (!box)
        return;
    list_each_safe(it, &box->messages)
    {
        if (box->posted - box->n_messages >= op->fence)
            return;
        BELAY_CHECK(box->n_messages > 0 && m->n_messages >= box->n_messages);
        list_remove(it);
        free(list_item(it, struct group_message, in_box));
        box->n_messages--;
        m->n_messages--;
    }
}

enum belay_err outbox_check(struct slice messages, const char **ret_what)
{
    struct reader in = {.left = messages};
    struct arena a = {0};
    bool sound = true;
    while (sound && in.left.len > 0) {
        struct op op;
        struct slice bytes = reader_bytes(&in);
        sound = !in.bad && op_decode(bytes, &a, &op) == BELAY_OK && may_be_written(&op);
    }
    arena_done(&a);
    BELAY_DCHECK(!sound || in.left.len == 0);
    *ret_what = "not a message";
    return sound ? BELAY_OK : BELAY_ERR_SYNTAX;
}

/* Group 0 hears what became of namespaces and sessions, a shard all the rest. A forged
 * message would leave a state that no snapshot may have. */
static bool is_for(const struct machine *m, const struct op *message)
{
    bool home = message->kind == OP_NAMESPACE_DELETE || message->kind == OP_SESSION_ENROL;
    return message->kind == OP_SESSION_KEEPALIVE || home == (m->group == 0);
}

static void take(struct machine *m, uint64_t from, const struct op *message, struct effects *fx)
{
    BELAY_DCHECK(may_be_written(message)); /* outbox_check() has seen it */
    if (!is_for(m, message))
        return;
    if (message->kind == OP_NAMESPACE_CREATE)
        namespace_appear(m, message);
    else if (message->kind == OP_NAMESPACE_DELETE)
        namespace_vanish(m, message);
    else if (message->kind >= OP_ACCOUNT_CREATE && message->kind <= OP_ACCOUNT_DELETE)
        account_message(m, message, fx);
    else if (message->kind >= OP_AUTH_INIT && message->kind <= OP_TOKEN_REVOKE)
        token_message(m, message);
    else if (message->kind == OP_SESSION_OPEN)
        guest_comes(m, message);
    else if (message->kind == OP_SESSION_CLOSE)
        guest_goes(m, message, fx);
    else if (message->kind == OP_SESSION_DETACH)
        guest_lingers(m, message);
    else if (message->kind == OP_SESSION_ENROL)
        guest_enrols(m, message, from);
    else if (m->group != 0)
        guest_asked(m, message);
    else
        guest_answered(m, message, from, fx);
}

void outbox_take(struct machine *m, const struct op *op, struct effects *fx)
{
    struct mailbox *box = box_of(m, op->target);
    struct reader in = {.left = op->program};
    struct arena a = {0};
    uint64_t number = op->fence;
    for (; box && in.left.len > 0 && number <= box->taken + 1; number++) {
        struct op message;
        enum belay_err err = op_decode(reader_bytes(&in), &a, &message);
        BELAY_CHECK(err == BELAY_OK); /* outbox_check() has seen it */
        if (number == box->taken + 1) {
            take(m, op->target, &message, fx);
            box->taken = number;
        }
    }
    arena_done(&a);
}

/* --- for the engine, which carries them --- */

uint64_t machine_messages(const struct machine *m)
{
    BELAY_DCHECK(m->n_messages == 0 || m->n_groups > 1);
    return m->n_messages;
}

uint64_t machine_posted(const struct machine *m, unsigned to)
{
    BELAY_CHECK(to < LIMIT_GROUPS);
    const struct mailbox *box = box_of(m, to);
    return box ? box->posted : 0;
}

uint64_t machine_waiting(const struct machine *m, unsigned to)
{
    const struct mailbox *box = box_of(m, to);
    BELAY_CHECK(!box || box->n_messages <= box->posted);
    return box ? box->posted - box->n_messages + 1 : 1;
}

uint64_t machine_taken(const struct machine *m, unsigned from)
{
    BELAY_CHECK(from < LIMIT_GROUPS);
    const struct mailbox *box = box_of(m, from);
    return box ? box->taken : 0;
}

size_t machine_outbox(const struct machine *m, unsigned to, uint64_t first, struct buf *out)
{
    const struct mailbox *box = box_of(m, to);
    uint64_t number = machine_waiting(m, to);
    size_t n = 0;
    if (!box)
        return 0;
    BELAY_CHECK(first >= number); /* what is before it is gone */
    list_each (it, &box->messages) {
        const struct group_message *l = list_item(it, const struct group_message, in_box);
        if (number++ < first)
            continue;
        if (n > 0 && buf_len(out) + l->len > MESSAGES_BYTES)
            break;
        varint_put_bytes(out, slice_of(l->bytes, l->len));
        n++;
    }
    BELAY_CHECK(n <= box->n_messages);
    return n;
}

/* --- snapshots --- */

void snapshot_put_outbox(struct buf *out, const struct machine *m)
{
    BELAY_CHECK(m->n_groups == 0 || m->group < m->n_groups);
    varint_put(out, m->n_groups);
    if (m->n_groups)
        varint_put(out, m->group);
    for (unsigned i = 0; i < m->n_groups; i++) {
        const struct mailbox *box = box_of(m, i);
        if (!box)
            continue;
        varint_put(out, box->posted);
        varint_put(out, box->taken);
        varint_put(out, box->n_messages);
        list_each (it, &box->messages) {
            const struct group_message *l = list_item(it, const struct group_message, in_box);
            varint_put_bytes(out, slice_of(l->bytes, l->len));
        }
    }
}

static void read_box(struct loader *ld, struct mailbox *box)
{
    box->posted = loader_bounded(ld, UINT64_MAX / 4);
    box->taken = loader_bounded(ld, UINT64_MAX / 4);
    uint64_t n = loader_bounded(ld, box->posted);
    for (uint64_t i = 0; i < n && !ld->r.bad; i++) {
        struct arena a = {0};
        struct op message;
        struct slice bytes = loader_bytes(ld, 1, LIMIT_PROGRAM_BYTES);
        if (loader_ok(ld,
                      op_decode(bytes, &a, &message) == BELAY_OK && may_be_written(&message)))
            box_add(ld->m, box, bytes);
        arena_done(&a);
    }
    BELAY_DCHECK(box->n_messages <= box->posted);
}

void loader_outbox(struct loader *ld)
{
    uint64_t n_groups = loader_bounded(ld, LIMIT_GROUPS);
    if (n_groups == 0)
        return;
    uint64_t group = reader_u64(&ld->r);
    if (!loader_ok(ld, n_groups > 1 && group < n_groups))
        return;
    machine_set_group(ld->m, (unsigned)group, (unsigned)n_groups);
    for (unsigned i = 0; i < n_groups && !ld->r.bad; i++) {
        struct mailbox *box = box_of(ld->m, i);
        if (box)
            read_box(ld, box);
    }
}
