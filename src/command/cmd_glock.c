/* cmd_glock.c - Glock's own paths, as its README promises them: always the namespace "default", an
 * exclusive lock for 30 s, the nonce is the owner. What it gets wrong in practice (docs: a
 * nonce that is too long is refused but the lock is taken) is done as it was meant. */
#include "command/command.h"

enum { GLOCK_NONCE_BYTES_MAX = 64, GLOCK_TTL_MS = 30000 };

static void glock_fail(struct call *c, int status, const char *what)
{
    struct reply *r = reply_new(c->arena, REPLY_MAP);
    reply_text(c->arena, r, "error", slice_str(what));
    r->status = status;
    call_answer(c, r);
}

void cmd_glock_acquire(struct call *c)
{
    struct slice nonce = args_text(&c->args, P_NONCE);
    c->op.kind = OP_ACQUIRE;
    c->op.ns = SLICE("default");
    c->op.name = args_text(&c->args, P_NAME);
    c->op.owner = nonce;
    c->op.mode = MODE_EXCLUSIVE;
    c->op.ttl_ms = GLOCK_TTL_MS;
    c->manner.form = FORM_GLOCK_ACQUIRE;
    if (nonce.len == 0)
        glock_fail(c, 400, "nonce missing or empty");
    else if (nonce.len > GLOCK_NONCE_BYTES_MAX)
        glock_fail(c, 400, "nonce longer than 64 bytes");
}

static void by_fence(struct call *c, enum op_kind kind, enum form form)
{
    c->op.kind = kind;
    c->op.ns = SLICE("default");
    c->op.name = args_text(&c->args, P_NAME);
    c->manner.form = (uint8_t)form;
    if (!args_parse_u64(args_text(&c->args, P_PATH_FENCE), &c->op.fence))
        glock_fail(c, 400, "fence not an integer");
    else if (c->op.fence == 0 || c->op.fence > INT64_MAX) /* none was ever given: */
        c->op.fence = INT64_MAX;                          /* stale, like any other wrong one */
}

void cmd_glock_heartbeat(struct call *c)
{
    by_fence(c, OP_RENEW, FORM_GLOCK_RENEW);
    c->op.ttl_ms = GLOCK_TTL_MS;
}

void cmd_glock_body(struct call *c)
{
    by_fence(c, OP_BODY, FORM_GLOCK_RENEW);
    c->op.body = c->request->body;
    c->op.flags = OP_SET_BODY;
    if (c->kind == CALL_OP && c->op.body.len > LIMIT_BODY_BYTES)
        glock_fail(c, 413, "body longer than 65536 bytes");
}

void cmd_glock_release(struct call *c)
{
    by_fence(c, OP_RELEASE, FORM_GLOCK_RELEASE);
}

void cmd_glock_no_fence(struct call *c)
{
    glock_fail(c, 400, "fence missing or empty");
}
