/* answer_account.c - answers about accounts and tokens. */
#include "auth/rule.h"
#include "command/answer.h"

static void put_time(struct arena *a, struct reply *m, const char *key, uint64_t ms)
{
    if (ms)
        reply_int(a, m, key, (int64_t)ms);
    else
        reply_null(a, m, key);
}

static struct reply *account_map(struct arena *a, struct reply *in,
                                 const struct account_row *row)
{
    struct reply *m = reply_map(a, in, NULL);
    reply_text(a, m, "id", row->id);
    reply_text(a, m, "email", row->email);
    reply_text(a, m, "name", row->full_name);
    put_time(a, m, "created_at_ms", row->created_ms);
    put_time(a, m, "updated_at_ms", row->updated_ms);
    reply_int(a, m, "tokens", (int64_t)row->tokens);
    struct reply *limits = reply_map(a, m, "limits");
    struct reply *used = reply_map(a, m, "used");
    for (size_t i = 0; i < QUOTA_COUNT; i++) {
        const char *word = quota_word((enum quota)i);
        put_time(a, limits, word, row->limits[i]);
        reply_int(a, used, word, (int64_t)row->used[i]);
    }
    return m;
}

void answer_rules(struct arena *a, struct reply *map, struct slice rules)
{
    struct reply *list = reply_list(a, map, "rules");
    struct rule rule;
    while (rules_next(&rules, &rule)) {
        struct buf text = {0};
        rule_write(&rule, &text);
        reply_text(a, list, NULL, arena_copy(a, buf_slice(&text)));
        buf_done(&text);
    }
}

static void token_map(struct arena *a, struct reply *in, const struct token_row *row)
{
    struct reply *m = reply_map(a, in, NULL);
    reply_text(a, m, "id", row->id);
    reply_text(a, m, "description", row->description);
    answer_rules(a, m, row->rules);
    put_time(a, m, "created_at_ms", row->created_ms);
    put_time(a, m, "expires_at_ms", row->expires_ms);
    put_time(a, m, "used_at_ms", row->used_ms);
    put_time(a, m, "overlap_until_ms", row->overlap_ms);
}

static struct reply *rows(const struct event *ev, enum op_kind op, struct arena *a)
{
    if (op == OP_ACCOUNT_SHOW)
        return account_map(a, NULL, &ev->accounts[0]);
    struct reply *r = reply_new(a, REPLY_MAP);
    struct reply *list = reply_list(a, r, op == OP_ACCOUNT_LIST ? "accounts" : "tokens");
    struct slice last = SLICE("");
    for (size_t i = 0; i < ev->n_rows; i++) {
        if (op == OP_ACCOUNT_LIST)
            account_map(a, list, &ev->accounts[i]);
        else
            token_map(a, list, &ev->tokens[i]);
        last = op == OP_ACCOUNT_LIST ? ev->accounts[i].id : ev->tokens[i].id;
    }
    if (ev->more)
        reply_text(a, r, "next", last);
    else
        reply_null(a, r, "next");
    return r;
}

struct reply *answer_account(const struct event *ev, struct manner manner, struct slice secret,
                             struct arena *a)
{
    if (ev->kind == EVENT_ROWS)
        return rows(ev, (enum op_kind)manner.op, a);
    struct reply *r = reply_new(a, REPLY_MAP);
    bool of_account = ev->kind == EVENT_ACCOUNT_CREATED || ev->kind == EVENT_ACCOUNT_UPDATED ||
                      ev->kind == EVENT_ACCOUNT_DELETED;
    if (secret.len)
        reply_text(a, r, "token", secret);
    reply_text(a, r, "id", of_account ? ev->account : ev->name);
    if (ev->kind == EVENT_ACCOUNT_CREATED || ev->kind == EVENT_ACCOUNT_UPDATED)
        reply_text(a, r, "email", ev->name);
    reply_text(
        a, r, "status",
        slice_str(event_word(ev->kind) + (of_account ? sizeof "account" : sizeof "token")));
    r->status =
        ev->kind == EVENT_ACCOUNT_CREATED || ev->kind == EVENT_TOKEN_CREATED ? 201 : 200;
    return r;
}
