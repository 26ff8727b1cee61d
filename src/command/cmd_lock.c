/* cmd_lock.c - ACQUIRE and what can be asked of a lock. */
#include "command/command.h"

/* RELEASE, RENEW, CHECK, CONVERT, BODY: whose hold is meant. */
static void put_hold(struct call *c)
{
    c->op.name = args_text(&c->args, P_NAME);
    c->op.owner = args_text(&c->args, P_OWNER);
    c->op.fence = args_number(&c->args, P_FENCE, 0);
}

/* HTTP answers carry the lock; RESP ones name the holders when refused. */
static uint64_t want(const struct call *c)
{
    return c->context->resp ? OP_WANT_HOLDERS : OP_WANT_LOCK;
}

/* Waiting and not to be kept: told "queued" at once. */
static void put_wait(struct call *c)
{
    c->op.wait_ms = args_number(&c->args, P_WAIT, 0);
    if (args_has(&c->args, P_NOBLOCK) && c->op.wait_ms > 0)
        c->op.flags |= OP_NOBLOCK;
}

static void put_mode(struct call *c)
{
    const struct args *a = &c->args;
    if (!args_has(a, P_PERMITS) && !args_has(a, P_OF)) {
        c->op.mode = args_number(a, P_MODE, MODE_EXCLUSIVE);
        return;
    }
    c->op.mode = MODE_SEMAPHORE;
    c->op.permits = args_number(a, P_PERMITS, 1);
    c->op.of = args_number(a, P_OF, 0);
    if (args_has(a, P_MODE))
        call_fail(c, BELAY_ERR_SYNTAX, "a semaphore (PERMITS n OF m) has no MODE");
    else if (!args_has(a, P_OF))
        call_fail(c, BELAY_ERR_SYNTAX, "PERMITS needs OF: how many permits there are in all");
    else if (c->op.permits > c->op.of)
        call_fail(c, BELAY_ERR_RANGE,
                  "PERMITS %llu OF %llu: a semaphore has no more permits than OF",
                  (unsigned long long)c->op.permits, (unsigned long long)c->op.of);
}

void cmd_acquire(struct call *c)
{
    const struct args *a = &c->args;
    c->op.kind = OP_ACQUIRE;
    c->op.name = args_text(a, P_NAME);
    c->op.owner = args_text(a, P_OWNER);
    c->op.session = args_text(a, P_SESSION);
#define X(field, parameter, max, what) c->op.field = args_number(a, P_##parameter, 0);
    LEASE_TERM_MAP(X)
#undef X
    if (!args_has(a, P_TTL))
        c->op.ttl_ms = TTL_DEFAULT_MS;
    c->op.policy = args_number(a, P_POLICY, POLICY_HARD);
    c->op.quiet_ms = args_number(a, P_QUIET, 0);
    c->op.flags = want(c);
    if (args_has(a, P_BODY)) {
        c->op.body = args_text(a, P_BODY);
        c->op.flags |= OP_SET_BODY;
    }
    put_wait(c);
    if (c->op.ttl_ms == 0 && !args_has(a, P_SESSION))
        call_fail(c, BELAY_ERR_RANGE, "TTL 0 (until released) needs a SESSION to end with");
    if (c->kind == CALL_OP)
        put_mode(c);
}

void cmd_release(struct call *c)
{
    c->op.kind = OP_RELEASE;
    c->op.flags = c->context->resp ? 0 : OP_WANT_LOCK;
    put_hold(c);
}

void cmd_renew(struct call *c)
{
    c->op.kind = OP_RENEW;
    put_hold(c);
    c->op.ttl_ms = args_number(&c->args, P_TTL, 0);
    if (args_has(&c->args, P_TTL) && c->op.ttl_ms == 0)
        call_fail(c, BELAY_ERR_RANGE,
                  "TTL must be at least 1 ms; leave it out to keep the lock's own");
}

void cmd_convert(struct call *c)
{
    c->op.kind = OP_CONVERT;
    put_hold(c);
    put_wait(c);
    c->op.flags |= want(c);
    c->op.mode = args_number(&c->args, P_MODE, 0);
    c->op.ttl_ms = args_number(&c->args, P_TTL, 0);
    if (!args_has(&c->args, P_MODE))
        call_fail(c, BELAY_ERR_SYNTAX, "MODE is missing: CONVERT to shared or to exclusive?");
    else if (args_has(&c->args, P_TTL) && c->op.ttl_ms == 0)
        call_fail(c, BELAY_ERR_RANGE,
                  "TTL must be at least 1 ms; leave it out to keep the lock's own");
}

void cmd_check(struct call *c)
{
    c->op.kind = OP_CHECK;
    put_hold(c);
}

void cmd_body(struct call *c)
{
    c->op.kind = OP_BODY;
    put_hold(c);
    c->op.body = args_text(&c->args, P_BODY);
    c->op.flags = OP_SET_BODY;
}

void cmd_show(struct call *c)
{
    c->op.kind = OP_SHOW;
    c->op.name = args_text(&c->args, P_NAME);
}

void cmd_break(struct call *c)
{
    c->op.kind = OP_BREAK;
    c->op.name = args_text(&c->args, P_NAME);
    c->op.text = args_text(&c->args, P_REASON);
    c->op.flags = c->context->resp ? 0 : OP_WANT_LOCK;
}
