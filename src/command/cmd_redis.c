/* cmd_redis.c - the commands of the common Redis lock recipes, on the same locks.
 *
 * A key is a lock, its value is the owner. SET NX never re-acquires: many clients write the
 * same value, and two of them must not both succeed (OP_FRESH). Errors that clients look for
 * have Redis' own words. */
#include "command/command.h"
#include "command/scripts.h"

enum { MS_PER_S = 1000 };

static void take(struct call *c, struct slice owner, uint64_t ttl_ms, enum form form)
{
    c->op.kind = OP_ACQUIRE;
    c->op.name = args_text(&c->args, P_KEY);
    c->op.owner = owner;
    c->op.mode = MODE_EXCLUSIVE;
    c->op.ttl_ms = ttl_ms;
    c->op.flags = OP_FRESH;
    c->manner.form = (uint8_t)form;
    c->manner.count = 1;
}

/* "PX" "3000": a time that can be set, in ms. */
static bool read_time(struct call *c, struct slice word, uint64_t unit_ms, uint64_t *ret_ms)
{
    uint64_t v = 0;
    if (!args_parse_u64(word, &v) || v == 0 || v > LIMIT_TTL_MS / unit_ms) {
        call_fail(c, BELAY_ERR_RANGE, "the time must be a whole number from 1 to %llu, not %s",
                  (unsigned long long)(LIMIT_TTL_MS / unit_ms), args_quote(c->arena, word));
        return false;
    }
    *ret_ms = v * unit_ms;
    return true;
}

void cmd_set(struct call *c)
{
    const struct slice *w = c->args.rest;
    size_t n = c->args.n_rest;
    bool nx = false;
    uint64_t ttl_ms = 0;
    for (size_t i = 0; i < n; i++) {
        bool px = slice_eq_nocase(w[i], SLICE("PX"));
        bool ex = slice_eq_nocase(w[i], SLICE("EX"));
        if (slice_eq_nocase(w[i], SLICE("NX")) && !nx) {
            nx = true;
        } else if ((px || ex) && i + 1 < n && ttl_ms == 0) {
            if (!read_time(c, w[++i], px ? 1 : MS_PER_S, &ttl_ms))
                return;
        } else {
            call_fail(c, BELAY_ERR_SYNTAX,
                      "SET takes a lock: SET key value NX [PX ms|EX s], not %s",
                      args_quote(c->arena, w[i]));
            return;
        }
    }
    take(c, args_text(&c->args, P_VALUE), ttl_ms, FORM_OK_NIL);
    if (!nx)
        call_fail(c, BELAY_ERR_SYNTAX,
                  "SET without NX would take a lock from its holder; "
                  "this is a lock server: SET key value NX [PX ms|EX s]");
}

void cmd_setnx(struct call *c)
{
    take(c, args_text(&c->args, P_VALUE), 0, FORM_COUNT);
}

static void look(struct call *c, enum form form)
{
    c->op.kind = OP_SHOW;
    c->op.name = args_text(&c->args, P_KEY);
    c->manner.form = (uint8_t)form;
}

void cmd_get(struct call *c)
{
    look(c, FORM_OWNER);
}

void cmd_exists(struct call *c)
{
    look(c, FORM_EXISTS);
}

void cmd_pttl(struct call *c)
{
    look(c, FORM_PTTL);
}

void cmd_ttl(struct call *c)
{
    look(c, FORM_TTL);
}

/* The first name in op.name, the others in op.more; each within its bounds. */
static void put_names(struct call *c, const struct slice *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (keys[i].len < 1 || keys[i].len > LIMIT_NAME_BYTES) {
            call_fail(c, BELAY_ERR_RANGE, "key must have 1 to %d bytes, not %zu",
                      LIMIT_NAME_BYTES, keys[i].len);
            return;
        }
    }
    c->op.name = keys[0];
    c->op.more = (struct names){keys + 1, n - 1};
    c->manner.count = (uint32_t)n;
}

void cmd_del(struct call *c)
{
    c->op.kind = OP_RELEASE;
    c->op.flags = OP_ANYONE;
    c->manner.form = FORM_RELEASED;
    put_names(c, c->args.rest, c->args.n_rest);
}

static void expire_in(struct call *c, uint64_t unit_ms)
{
    uint64_t v = args_number(&c->args, P_NUMBER, 0);
    c->op.name = args_text(&c->args, P_KEY);
    c->op.flags = OP_ANYONE;
    c->op.kind = v ? OP_RENEW : OP_RELEASE; /* Redis deletes what expires now */
    c->op.ttl_ms = v * unit_ms;
    c->manner.form = FORM_COUNT;
    c->manner.count = 1;
    if (v > LIMIT_TTL_MS / unit_ms)
        call_fail(c, BELAY_ERR_RANGE, "the time must be at most %llu",
                  (unsigned long long)(LIMIT_TTL_MS / unit_ms));
}

void cmd_pexpire(struct call *c)
{
    expire_in(c, 1);
}

void cmd_expire(struct call *c)
{
    expire_in(c, MS_PER_S);
}

void cmd_zrem(struct call *c)
{
    c->op.kind = OP_RELEASE;
    c->op.name = args_text(&c->args, P_KEY);
    c->op.owner = args_text(&c->args, P_VALUE);
    c->op.flags = OP_HOLDS_ONLY; /* an owner that only waits is no member of the set */
    c->manner.form = FORM_COUNT;
    c->manner.count = 1;
}

/* --- scripts --- */

static struct slice argv_of(struct call *c, size_t n_keys, uint8_t which)
{
    size_t at = n_keys + which - 1;
    return which && at < c->args.n_rest ? c->args.rest[at] : SLICE("");
}

static bool read_permits(struct call *c, const struct script *s, size_t n_keys)
{
    c->op.permits = 1;
    if (s->permits && (!args_parse_u64(argv_of(c, n_keys, s->permits), &c->op.permits) ||
                       c->op.permits < 1 || c->op.permits > LIMIT_PERMITS)) {
        call_fail(c, BELAY_ERR_RANGE, "the script's permits must be 1 to %d", LIMIT_PERMITS);
        return false;
    }
    if (s->limit && (!args_parse_u64(argv_of(c, n_keys, s->limit), &c->op.of) || c->op.of < 1 ||
                     c->op.of > LIMIT_PERMITS)) {
        call_fail(c, BELAY_ERR_RANGE, "the script's limit must be 1 to %d", LIMIT_PERMITS);
        return false;
    }
    return true;
}

static const enum op_kind kind_of[] = {
    [SCRIPT_ACQUIRE] = OP_ACQUIRE, [SCRIPT_RELEASE] = OP_RELEASE,   [SCRIPT_RENEW] = OP_RENEW,
    [SCRIPT_EXTEND] = OP_RENEW,    [SCRIPT_SEMAPHORE] = OP_ACQUIRE,
};

static void put_kind(struct call *c, const struct script *s, size_t n_keys)
{
    c->op.kind = kind_of[s->does];
    c->manner.form = s->does == SCRIPT_RELEASE && !s->permits ? FORM_RELEASED : FORM_COUNT;
    if (s->does == SCRIPT_RELEASE)
        c->op.flags = OP_HOLDS_ONLY;
    if (s->does == SCRIPT_ACQUIRE) {
        c->op.mode = MODE_EXCLUSIVE;
        c->op.flags = OP_FRESH;
    } else if (s->does == SCRIPT_EXTEND && slice_eq(argv_of(c, n_keys, 3), SLICE("0"))) {
        c->op.flags = OP_ADD_TTL;
    } else if (s->does == SCRIPT_SEMAPHORE) {
        c->op.mode = MODE_SEMAPHORE;
        if (c->op.permits > c->op.of) /* never fits: what the script answers */
            call_answer(c, reply_int(c->arena, NULL, NULL, 0));
    } else if (s->permits) {
        c->manner.count = (uint32_t)c->op.permits;
        c->op.permits = 0;
    }
    if (c->op.mode != MODE_SEMAPHORE)
        c->op.permits = 0;
}

static void run(struct call *c, const struct script *s)
{
    uint64_t n_keys = args_number(&c->args, P_NUMBER, 0);
    if (n_keys < 1 || n_keys > c->args.n_rest || n_keys > LIMIT_NAMES_PER_OP) {
        call_fail(c, BELAY_ERR_RANGE, "this script needs 1 to %d keys, and they must be given",
                  LIMIT_NAMES_PER_OP);
        return;
    }
    put_names(c, c->args.rest, s->all_keys ? n_keys : 1);
    c->op.owner = argv_of(c, n_keys, s->owner);
    if (c->kind == CALL_OP && (c->op.owner.len < 1 || c->op.owner.len > LIMIT_OWNER_BYTES))
        call_fail(c, BELAY_ERR_RANGE, "the script's owner must have 1 to %d bytes",
                  LIMIT_OWNER_BYTES);
    if (c->kind == CALL_OP && s->ttl)
        (void)read_time(c, argv_of(c, n_keys, s->ttl), s->seconds ? MS_PER_S : 1,
                        &c->op.ttl_ms);
    if (c->kind == CALL_OP && read_permits(c, s, n_keys))
        put_kind(c, s, n_keys);
}

static void fail_unknown(struct call *c)
{
    call_fail(c, BELAY_ERR_UNKNOWN,
              "script: Belay has no Lua engine; it knows the lock scripts of redlock, "
              "redis-semaphore, redis-py, redsync and Redis' documentation");
}

void cmd_eval(struct call *c)
{
    char sha[SCRIPT_SHA_BYTES];
    const struct script *s =
        scripts_learn(c->context->scripts, args_text(&c->args, P_SCRIPT), sha);
    if (s)
        run(c, s);
    else
        fail_unknown(c);
}

void cmd_evalsha(struct call *c)
{
    const struct script *s = scripts_find(c->context->scripts, args_text(&c->args, P_SCRIPT));
    if (s)
        run(c, s);
    else
        call_fail(c, BELAY_ERR_NO_SCRIPT, "No matching script. Please use EVAL.");
}

void cmd_script_load(struct call *c)
{
    char *sha = arena_alloc(c->arena, SCRIPT_SHA_BYTES);
    if (scripts_learn(c->context->scripts, args_text(&c->args, P_SCRIPT), sha))
        call_answer(c, reply_text(c->arena, NULL, NULL, slice_of(sha, SCRIPT_SHA_BYTES)));
    else
        fail_unknown(c);
}

void cmd_script_exists(struct call *c)
{
    struct reply *list = reply_list(c->arena, NULL, NULL);
    for (size_t i = 0; i < c->args.n_rest; i++)
        reply_int(c->arena, list, NULL,
                  scripts_find(c->context->scripts, c->args.rest[i]) != NULL);
    call_answer(c, list);
}

void cmd_script_flush(struct call *c)
{
    scripts_forget(c->context->scripts);
    call_answer_status(c, "OK");
}
