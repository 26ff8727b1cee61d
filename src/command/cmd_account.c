/* cmd_account.c - accounts, tokens, and who one is. The secret of a new token is drawn here and
 * told in the answer; the op carries its sum. */
#include "auth/rule.h"
#include "auth/token.h"
#include "command/command.h"
#include "machine/account.h"

static struct slice new_digits(struct call *c, size_t n)
{
    char *text = arena_alloc(c->arena, n);
    token_new(text, n);
    return slice_of(text, n);
}

/* A new secret: its sum into the op, the whole token aside for the answer. */
static void put_secret(struct call *c, struct slice id)
{
    struct slice secret = new_digits(c, TOKEN_SECRET_BYTES);
    unsigned char *sum = arena_alloc(c->arena, TOKEN_SUM_BYTES);
    token_sum(secret, sum);
    c->op.name = id;
    c->op.owner = slice_of((const char *)sum, TOKEN_SUM_BYTES);
    c->op.wall_ms = c->context->wall_ms;
    char *text = arena_alloc(c->arena, TOKEN_TEXT_BYTES);
    char *end = slice_put(slice_put(text, SLICE("blt_")), id);
    *end++ = '_';
    (void)slice_put(end, secret);
    c->secret = slice_of(text, TOKEN_TEXT_BYTES);
}

/* "rule;rule" as the bytes of rules; false: refused. */
static bool put_rules(struct call *c, struct slice text)
{
    struct buf bytes = {0};
    const char *what = NULL;
    size_t n = 0;
    for (const char *p = text.data, *end = p + text.len; p < end && !what;) {
        const char *stop = memchr(p, ';', (size_t)(end - p));
        stop = stop ? stop : end;
        struct slice one = slice_of(p, (size_t)(stop - p));
        if (++n > RULES_MAX)
            what = "a token has at most 64 rules";
        else
            what = rule_read(one, &bytes);
        if (what)
            call_fail(c, BELAY_ERR_SYNTAX, "rule %s: %s", args_quote(c->arena, one), what);
        p = stop + 1;
    }
    c->op.body = arena_copy(c->arena, buf_slice(&bytes));
    buf_done(&bytes);
    return what == NULL;
}

void cmd_auth_init(struct call *c)
{
    c->op.kind = OP_AUTH_INIT;
    c->op.account = SLICE("default");
    c->op.text = SLICE("the first operator");
    put_secret(c, new_digits(c, TOKEN_ID_BYTES));
    if (put_rules(c, SLICE("cluster,accounts;read,lock,break,admin *")))
        call_act(c, ACTION_AUTH_INIT);
    c->manner.op = OP_AUTH_INIT;
}

static struct reply *rule_reply(struct call *c, struct reply *map, const char *key,
                                const struct rule *rule)
{
    struct buf text = {0};
    if (rule->verbs == 0)
        return reply_null(c->arena, map, key);
    rule_write(rule, &text);
    struct reply *r = reply_text(c->arena, map, key, arena_copy(c->arena, buf_slice(&text)));
    buf_done(&text);
    return r;
}

void cmd_auth_whoami(struct call *c)
{
    call_act(c, ACTION_WHOAMI);
}

void cmd_auth_can(struct call *c)
{
    struct slice word = args_text(&c->args, P_VERB);
    enum verb verb = verb_find(word);
    struct rule by = {0};
    if (verb == VERB_NOBODY) {
        call_fail(c, BELAY_ERR_SYNTAX,
                  "verb must be one of read, lock, break, admin, cluster, accounts, not %s",
                  args_quote(c->arena, word));
        return;
    }
    bool can = !c->context->closed;
    if (c->context->who)
        can =
            rules_can(c->context->who->rules, verb, c->op.ns, args_text(&c->args, P_NAME), &by);
    struct reply *r = reply_new(c->arena, REPLY_MAP);
    reply_bool(c->arena, r, "can", can);
    rule_reply(c, r, "rule", &by);
    call_answer(c, r);
}

/* --- accounts --- */

/* Trimmed and in lower case: one address is written in one way. */
static void put_email(struct call *c)
{
    struct slice s = args_text(&c->args, P_EMAIL);
    while (s.len && (s.data[0] == ' ' || s.data[0] == '\t'))
        s = slice_of(s.data + 1, s.len - 1);
    while (s.len && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t'))
        s.len--;
    char *text = arena_alloc(c->arena, s.len + 1);
    bool at = false;
    for (size_t i = 0; i < s.len; i++) {
        char ch = s.data[i];
        at |= ch == '@';
        text[i] = ch;
        if (ch >= 'A' && ch <= 'Z')
            text[i] = (char)(ch | 0x20);
        if ((unsigned char)ch <= ' ' || ch == 0x7f)
            at = false, s.len = 0;
    }
    c->op.name = slice_of(text, s.len);
    if (!at || s.len == 0)
        call_fail(c, BELAY_ERR_SYNTAX, "email must be an address: name@host, without spaces");
}

static bool read_limit(struct slice one, struct limits *ret)
{
    const char *equals = memchr(one.data, '=', one.len);
    uint64_t number;
    if (!equals)
        return false;
    struct slice word = slice_of(one.data, (size_t)(equals - one.data));
    if (!args_parse_u64(slice_of(equals + 1, one.len - word.len - 1), &number) ||
        number > INT64_MAX)
        return false;
    for (size_t i = 0; i < QUOTA_COUNT; i++) {
        if (!slice_eq(word, slice_str(quota_word((enum quota)i))) || ret->given[i])
            continue;
        ret->given[i] = true;
        ret->at[i] = number;
        return true;
    }
    return false;
}

/* "namespaces=25,locks=1000": 0 takes a limit away. */
static void put_limits(struct call *c)
{
    struct slice text = args_text(&c->args, P_LIMITS);
    struct limits limits = {0};
    struct buf bytes = {0};
    for (const char *p = text.data, *end = p + text.len; p < end && c->kind == CALL_OP;) {
        const char *stop = memchr(p, ',', (size_t)(end - p));
        stop = stop ? stop : end;
        struct slice one = slice_of(p, (size_t)(stop - p));
        if (!read_limit(one, &limits))
            call_fail(c, BELAY_ERR_SYNTAX,
                      "limit %s: write WHAT=NUMBER, each once, of namespaces, locks, waiters, "
                      "sessions, variables, transactions, bytes",
                      args_quote(c->arena, one));
        p = stop + 1;
    }
    limits_put(&limits, &bytes);
    c->op.body = arena_copy(c->arena, buf_slice(&bytes));
    buf_done(&bytes);
}

void cmd_account_create(struct call *c)
{
    c->op.kind = OP_ACCOUNT_CREATE;
    c->op.ns = SLICE("default");
    c->op.account = args_has(&c->args, P_ACCOUNT) ? args_text(&c->args, P_ACCOUNT)
                                                  : new_digits(c, ACCOUNT_ID_BYTES);
    c->op.owner = args_text(&c->args, P_FULL_NAME);
    c->op.wall_ms = c->context->wall_ms;
    put_email(c);
    if (c->kind == CALL_OP)
        put_limits(c);
}

void cmd_account_list(struct call *c)
{
    c->op.kind = OP_ACCOUNT_LIST;
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
}

void cmd_account_show(struct call *c)
{
    c->op.kind = OP_ACCOUNT_SHOW;
    c->op.account = args_text(&c->args, P_ACCOUNT);
}

void cmd_account_update(struct call *c)
{
    c->op.kind = OP_ACCOUNT_UPDATE;
    c->op.account = args_text(&c->args, P_ACCOUNT);
    c->op.wall_ms = c->context->wall_ms;
    if (args_has(&c->args, P_EMAIL)) {
        c->op.flags |= OP_SET_EMAIL;
        put_email(c);
    }
    if (args_has(&c->args, P_FULL_NAME)) {
        c->op.flags |= OP_SET_NAME;
        c->op.owner = args_text(&c->args, P_FULL_NAME);
    }
    if (c->kind == CALL_OP)
        put_limits(c);
}

void cmd_account_delete(struct call *c)
{
    c->op.kind = OP_ACCOUNT_DELETE;
    c->op.account = args_text(&c->args, P_ACCOUNT);
    c->op.flags = args_has(&c->args, P_FORCE) ? OP_FORCE : 0;
}

/* --- tokens --- */

void cmd_token_create(struct call *c)
{
    uint64_t expires = args_number(&c->args, P_EXPIRES, 0);
    c->op.kind = OP_TOKEN_CREATE;
    c->op.account = args_text(&c->args, P_ACCOUNT);
    c->op.text = args_text(&c->args, P_DESCRIPTION);
    put_secret(c, new_digits(c, TOKEN_ID_BYTES));
    c->op.until_ms = expires ? c->op.wall_ms + expires : 0;
    struct slice rules = args_text(&c->args, P_RULES);
    (void)put_rules(c, rules.len ? rules : SLICE("read,lock *"));
}

void cmd_token_list(struct call *c)
{
    c->op.kind = OP_TOKEN_LIST;
    c->op.account = args_text(&c->args, P_ACCOUNT);
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
}

void cmd_token_rotate(struct call *c)
{
    uint64_t overlap = args_number(&c->args, P_OVERLAP, 0);
    c->op.kind = OP_TOKEN_ROTATE;
    put_secret(c, args_text(&c->args, P_ID));
    c->op.until_ms = overlap ? c->op.wall_ms + overlap : 0;
}

void cmd_token_revoke(struct call *c)
{
    c->op.kind = OP_TOKEN_REVOKE;
    c->op.name = args_text(&c->args, P_ID);
}
