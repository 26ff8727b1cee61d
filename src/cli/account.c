/* account.c - `belay auth`, `belay account`, `belay token`: who may do what. */
#include "cli/cli.h"
#include "server/repair.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { WORDS_MAX = 16 };

/* The words of a request that is put together. */
struct account_call {
    struct belay_bytes words[WORDS_MAX];
    size_t n;
};

static void add(struct account_call *r, const char *word)
{
    r->words[r->n++] = (struct belay_bytes){word, strlen(word)};
}

static void add_option(struct account_call *r, const char *keyword, const char *value)
{
    if (!value)
        return;
    add(r, keyword);
    add(r, value);
}

/* One reply: an object as JSON, or a line for each member. */
static int print(struct cli *c, const struct belay_reply *r)
{
    struct buf out = {0};
    if (c->json)
        return cli_print_json(r);
    for (const struct belay_reply *m = r->first; m; m = m->next) {
        buf_printf(&out, "%-13s ", m->key ? m->key : "");
        if (m->kind == BELAY_TEXT)
            cli_put_safe(&out, m->text, m->len);
        else
            cli_put_json(&out, m);
        buf_put_byte(&out, '\n');
    }
    return cli_flush(&out);
}

static int send(struct cli *c, const struct account_call *r)
{
    const struct belay_reply *reply = NULL;
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_callv(c->belay, r->words, r->n, 0, &reply);
    return err ? cli_fail(c, err) : print(c, reply);
}

/* A duration as the milliseconds that the server takes. */
static const char *ms_text(const struct cli *c, const char *option, char *space, size_t size)
{
    if (!cli_given(c, option))
        return NULL;
    snprintf(space, size, "%" PRId64, cli_number(c, option, 0));
    return space;
}

struct verb {
    const char *word;
    size_t min, max; /* words, its own included */
    int (*run)(struct cli *c);
};

static const char *takes(const struct verb *v)
{
    if (v->max == 1)
        return "no more words";
    return v->max == 2 ? "one ID" : "a verb, then perhaps a namespace, and a name in it";
}

static int run_verb(struct cli *c, const struct verb *verbs)
{
    for (const struct verb *v = verbs; v->word; v++) {
        if (strcmp(v->word, c->words[0]) != 0)
            continue;
        if (c->n_words < v->min || c->n_words > v->max)
            return cli_usage(c, "%s %s takes %s", c->command->name, v->word, takes(v));
        return v->run(c);
    }
    return cli_usage(c, "\"%s\" is none of %s", c->words[0], c->command->words);
}

/* All pages of a list: a table, or an object of JSON for each page of 1000. */
static int list(struct cli *c, struct account_call *r, struct cli_table *t,
                const char *const *heads,
                void (*row)(struct cli_table *t, const struct belay_reply *r))
{
    struct buf out = {0}, after = {0};
    size_t n = r->n;
    int err = cli_connect(c);
    if (err)
        return err;
    for (size_t i = 0; heads[i] && !c->json; i++)
        cli_cell(t, CLI_BOLD, "%s", heads[i]);
    for (bool more = true; more && !err;) {
        const struct belay_reply *reply = NULL;
        r->n = n;
        add_option(r, "LIMIT", "1000");
        add_option(r, "AFTER", buf_len(&after) ? buf_cstr(&after) : NULL);
        err = belay_callv(c->belay, r->words, r->n, 0, &reply);
        const struct belay_reply *next = err ? NULL : belay_get(reply, "next");
        const struct belay_reply *first = err ? NULL : belay_at(belay_at(reply, 0), 0);
        if (c->json && !err) {
            cli_put_json(&out, reply);
            buf_put_byte(&out, '\n');
        }
        for (; first && !c->json; first = first->next)
            row(t, first);
        more = next && next->kind == BELAY_TEXT;
        buf_clear(&after);
        if (more)
            buf_put(&after, next->text, next->len);
    }
    buf_done(&after);
    cli_table_put(t, &out, c->color);
    if (!err)
        return cli_flush(&out);
    buf_done(&out);
    return cli_fail(c, err);
}

/* --- auth --- */

static int auth_init(struct cli *c)
{
    struct account_call r = {0};
    add(&r, "AUTH");
    add(&r, "INIT");
    return send(c, &r);
}

static int auth_whoami(struct cli *c)
{
    struct account_call r = {0};
    add(&r, "AUTH");
    add(&r, "WHOAMI");
    return send(c, &r);
}

static int tell_can(const struct cli *c, const struct belay_reply *reply, bool can)
{
    const struct belay_reply *rule = belay_get(reply, "rule");
    struct buf out = {0};
    if (c->json) {
        buf_printf(&out, "{\"can\":%s,\"rule\":", can ? "true" : "false");
        cli_put_json(&out, rule);
        buf_put_byte(&out, '}');
    } else {
        buf_printf(&out, "%s", can ? "yes" : "no");
        if (rule && rule->kind == BELAY_TEXT) {
            buf_put_str(&out, ": the rule ");
            cli_put_safe(&out, rule->text, rule->len);
            buf_put_str(&out, " decides");
        } else {
            buf_put_str(&out, can ? ": nobody has to log in" : ": no rule matches");
        }
    }
    buf_put_byte(&out, '\n');
    return cli_flush(&out);
}

/* 0: yes, 1: no. */
static int auth_can(struct cli *c)
{
    const struct belay_reply *reply = NULL;
    struct account_call r = {0};
    add(&r, "AUTH");
    add(&r, "CAN");
    add(&r, c->words[1]);
    add_option(&r, "NAMESPACE", c->n_words > 2 ? c->words[2] : NULL);
    add_option(&r, "NAME", c->n_words > 3 ? c->words[3] : NULL);
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_callv(c->belay, r.words, r.n, 0, &reply);
    if (err)
        return cli_fail(c, err);
    bool can = belay_int(belay_get(reply, "can"), 0);
    code = tell_can(c, reply, can);
    return code == CLI_OK && !can ? CLI_NOT : code;
}

/* A file that the node finds when it starts: a user who can write there is its master anyway. */
static int auth_reset(struct cli *c)
{
    const char *dir = cli_text(c, "data", NULL);
    if (!dir)
        return cli_usage(c, "auth reset needs --data DIR, the directory of a stopped node");
    enum belay_err err = repair_reset_login(dir);
    if (err != BELAY_OK)
        return cli_no_data(dir, err);
    if (c->json)
        printf("{\"reset\":true}\n");
    else
        printf("when the node starts, nobody has to log in: run belay auth init then\n");
    return CLI_OK;
}

static int auth(struct cli *c)
{
    static const struct verb verbs[] = {{"init", 1, 1, auth_init},
                                        {"whoami", 1, 1, auth_whoami},
                                        {"can", 2, 4, auth_can},
                                        {"reset", 1, 1, auth_reset},
                                        {0}};
    return run_verb(c, verbs);
}

static const struct cli_option auth_options[] = {
    {"data", 'd', CLI_TEXT, "DIR", "reset: the directory of a stopped node"},
    {0},
};

const struct cli_command cli_cmd_auth = {
    .name = "auth",
    .args = "init | whoami | can VERB [NS [NAME]] | reset --data DIR",
    .summary = "the first token, your account and token, and their rights",
    .about =
        "init makes the first operator's token, once, on the machine of the server: from\n"
        "then on everybody must log in, at all nodes. It is shown this once. Keep it in a\n"
        "file that only you can read, and name that in BELAY_TOKEN_FILE.\n"
        "can says yes (exit 0) or no (exit 1), and which rule decides.\n"
        "Use reset when every operator's token is lost: stop a node, reset its\n"
        "directory, start it, and init makes a new one. All other tokens stay.",
    .examples = "  belay auth init --json\n"
                "  BELAY_TOKEN_FILE=~/.belay belay auth can lock default backup",
    .options = auth_options,
    .min_words = 1,
    .max_words = 4,
    .run = auth,
    .words = "init whoami can reset",
};

/* --- account --- */

static const char *const quotas[] = {"namespaces", "locks",        "waiters", "sessions",
                                     "variables",  "transactions", "bytes"};

/* --max-locks 5 --max-bytes 9: "locks=5,bytes=9" */
static void put_limits(const struct cli *c, struct buf *out)
{
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        char option[32];
        snprintf(option, sizeof option, "max-%s", quotas[i]);
        if (cli_given(c, option))
            buf_printf(out, "%s%s=%" PRId64, buf_len(out) ? "," : "", quotas[i],
                       cli_number(c, option, 0));
    }
}

static int send_limits(struct cli *c, struct account_call *r)
{
    struct buf limits = {0};
    put_limits(c, &limits);
    if (buf_len(&limits))
        add_option(r, "LIMITS", buf_cstr(&limits));
    int code = send(c, r);
    buf_done(&limits);
    return code;
}

static int account_create(struct cli *c)
{
    struct account_call r = {0};
    if (!cli_given(c, "email") || !cli_given(c, "name"))
        return cli_usage(c, "account create needs --email and --name");
    add(&r, "ACCOUNT");
    add(&r, "CREATE");
    add(&r, cli_text(c, "email", ""));
    add(&r, cli_text(c, "name", ""));
    add_option(&r, "ID", cli_text(c, "id", NULL));
    return send_limits(c, &r);
}

static int account_update(struct cli *c)
{
    struct account_call r = {0};
    add(&r, "ACCOUNT");
    add(&r, "UPDATE");
    add(&r, c->words[1]);
    add_option(&r, "EMAIL", cli_text(c, "email", NULL));
    add_option(&r, "NAME", cli_text(c, "name", NULL));
    return send_limits(c, &r);
}

static int account_show(struct cli *c)
{
    struct account_call r = {0};
    add(&r, "ACCOUNT");
    add(&r, "SHOW");
    add(&r, c->words[1]);
    return send(c, &r);
}

static int account_rm(struct cli *c)
{
    struct account_call r = {0};
    add(&r, "ACCOUNT");
    add(&r, "DELETE");
    add(&r, c->words[1]);
    if (cli_given(c, "force"))
        add(&r, "FORCE");
    return send(c, &r);
}

static void text_cell(struct cli_table *t, const struct belay_reply *r)
{
    cli_cell_bytes(t, CLI_PLAIN, belay_text(r, ""), r && r->kind == BELAY_TEXT ? r->len : 0);
}

static void account_row(struct cli_table *t, const struct belay_reply *a)
{
    text_cell(t, belay_get(a, "id"));
    text_cell(t, belay_get(a, "email"));
    text_cell(t, belay_get(a, "name"));
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(a, "tokens"), 0));
    const struct belay_reply *used = belay_get(a, "used");
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(used, "namespaces"), 0));
}

static int account_ls(struct cli *c)
{
    static const char *const heads[] = {"ACCOUNT", "EMAIL",      "NAME",
                                        "TOKENS",  "NAMESPACES", NULL};
    struct account_call r = {0};
    struct cli_table t = {.columns = 5, .right = {[3] = true, [4] = true}};
    add(&r, "ACCOUNT");
    add(&r, "LIST");
    return list(c, &r, &t, heads, account_row);
}

static int account(struct cli *c)
{
    static const struct verb verbs[] = {
        {"create", 1, 1, account_create}, {"ls", 1, 1, account_ls},
        {"show", 2, 2, account_show},     {"update", 2, 2, account_update},
        {"rm", 2, 2, account_rm},         {0}};
    return run_verb(c, verbs);
}

static const struct cli_option account_options[] = {
    {"id", 0, CLI_TEXT, "ID", "create: 16 hexadecimal digits; drawn, if left out"},
    {"email", 0, CLI_TEXT, "E", "create, update: an address that no other account has"},
    {"name", 0, CLI_TEXT, "N", "create, update: the full name"},
    {"max-namespaces", 0, CLI_NUMBER, "N", "create, update: at most; 0: no limit of its own"},
    {"max-locks", 0, CLI_NUMBER, "N", "create, update: in a shard"},
    {"max-waiters", 0, CLI_NUMBER, "N", "create, update: in a shard"},
    {"max-sessions", 0, CLI_NUMBER, "N", "create, update: at most"},
    {"max-variables", 0, CLI_NUMBER, "N", "create, update: in a shard"},
    {"max-transactions", 0, CLI_NUMBER, "N", "create, update: that wait, in a shard"},
    {"max-bytes", 0, CLI_NUMBER, "N", "create, update: bodies and values, in a shard"},
    {"force", 0, CLI_FLAG, NULL, "rm: even if it has tokens, namespaces or sessions"},
    {0},
};

const struct cli_command cli_cmd_account = {
    .name = "account",
    .args = "create | ls | show ID | update ID | rm ID",
    .summary = "accounts: each has namespaces, sessions and tokens of its own",
    .about = "A server on which nobody has to log in has one account, \"default\".",
    .examples = "  belay account create --email ops@example.com --name Ops --max-locks 10000\n"
                "  belay account rm 0123456789abcdef --force",
    .options = account_options,
    .min_words = 1,
    .max_words = 2,
    .run = account,
    .words = "create ls show update rm",
};

/* --- token --- */

static int token_create(struct cli *c)
{
    struct account_call r = {0};
    struct buf rules = {0};
    char expires[24];
    size_t n;
    const char *const *texts = cli_texts(c, "rule", &n);
    for (size_t i = 0; i < n; i++)
        buf_printf(&rules, "%s%s", i ? ";" : "", texts[i]);
    add(&r, "TOKEN");
    add(&r, "CREATE");
    add(&r, cli_text(c, "account", "default"));
    add_option(&r, "RULES", n ? buf_cstr(&rules) : NULL);
    add_option(&r, "EXPIRES", ms_text(c, "expires", expires, sizeof expires));
    add_option(&r, "DESCRIPTION", cli_text(c, "description", NULL));
    int code = send(c, &r);
    buf_done(&rules);
    return code;
}

static int token_rotate(struct cli *c)
{
    struct account_call r = {0};
    char overlap[24];
    add(&r, "TOKEN");
    add(&r, "ROTATE");
    add(&r, c->words[1]);
    add_option(&r, "OVERLAP", ms_text(c, "overlap", overlap, sizeof overlap));
    return send(c, &r);
}

static int token_rm(struct cli *c)
{
    struct account_call r = {0};
    add(&r, "TOKEN");
    add(&r, "REVOKE");
    add(&r, c->words[1]);
    return send(c, &r);
}

/* A time of day in UTC, "-" for none. */
static void day_cell(struct cli_table *t, const struct belay_reply *ms)
{
    char text[sizeof "2026-11-18 21:00"];
    struct tm day;
    time_t at = (time_t)(belay_int(ms, 0) / 1000);
    if (at == 0 || !gmtime_r(&at, &day) ||
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &day) == 0)
        cli_cell(t, CLI_PLAIN, "-");
    else
        cli_cell(t, CLI_PLAIN, "%s", text);
}

static void token_row(struct cli_table *t, const struct belay_reply *k)
{
    struct buf rules = {0};
    const struct belay_reply *all = belay_get(k, "rules");
    for (const struct belay_reply *r = all ? all->first : NULL; r; r = r->next)
        buf_printf(&rules, "%s%s", buf_len(&rules) ? "; " : "", belay_text(r, ""));
    text_cell(t, belay_get(k, "id"));
    cli_cell(t, CLI_PLAIN, "%s", buf_len(&rules) ? buf_cstr(&rules) : "");
    day_cell(t, belay_get(k, "expires_at_ms"));
    day_cell(t, belay_get(k, "used_at_ms"));
    text_cell(t, belay_get(k, "description"));
    buf_done(&rules);
}

static int token_ls(struct cli *c)
{
    static const char *const heads[] = {"TOKEN", "RULES",       "EXPIRES",
                                        "USED",  "DESCRIPTION", NULL};
    struct account_call r = {0};
    struct cli_table t = {.columns = 5};
    add(&r, "TOKEN");
    add(&r, "LIST");
    add(&r, cli_text(c, "account", "default"));
    return list(c, &r, &t, heads, token_row);
}

static int token(struct cli *c)
{
    static const struct verb verbs[] = {{"create", 1, 1, token_create},
                                        {"ls", 1, 1, token_ls},
                                        {"rotate", 2, 2, token_rotate},
                                        {"rm", 2, 2, token_rm},
                                        {0}};
    return run_verb(c, verbs);
}

static const struct cli_option token_options[] = {
    {"account", 0, CLI_TEXT, "ID", "create, ls: the account of the tokens (default)"},
    {"rule", 0, CLI_TEXTS, "RULE", "create: 'read,lock NS/PREFIX*'; may stand several times"},
    {"expires", 0, CLI_DURATION, "D", "create: how long it is valid (for ever)"},
    {"description", 0, CLI_TEXT, "T", "create: what it is for"},
    {"overlap", 0, CLI_DURATION, "D", "rotate: how long the old secret stays valid"},
    {0},
};

const struct cli_command cli_cmd_token = {
    .name = "token",
    .args = "create | ls | rotate ID | rm ID",
    .summary = "tokens: credentials and their rights",
    .about =
        "A rule is verbs and names: 'read,lock team/db*' for the locks of the namespace team\n"
        "that begin with db; 'admin team' for the namespace; 'cluster,accounts' for operators.\n"
        "The most exact rule decides alone. Without a rule: 'read,lock *'. A token is shown\n"
        "once; rm takes effect at all nodes before it answers.",
    .examples = "  belay token create --rule 'read,lock ci*' --expires 90d --description CI\n"
                "  belay token rotate 0123456789abcdef --overlap 1h",
    .options = token_options,
    .min_words = 1,
    .max_words = 2,
    .run = token,
    .words = "create ls rotate rm",
};
