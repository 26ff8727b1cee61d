/* session.c - sessions by hand: for scripts that take several locks and give all back at once.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static int session_open(struct cli *c)
{
    char ttl[24], linger[24];
    const struct belay_reply *r = NULL;
    snprintf(ttl, sizeof ttl, "%" PRId64, cli_number(c, "ttl", 60000));
    snprintf(linger, sizeof linger, "%" PRId64, cli_number(c, "linger", 0));
    int err = belay_call(c->belay, &r, "SESSION", "OPEN", "TTL", ttl, "LINGER", linger,
                         "DESCRIPTION", cli_text(c, "description", ""), NULL);
    if (err)
        return cli_fail(c, err);
    struct buf out = {0};
    if (c->json) {
        buf_put_str(&out, "{\"id\":");
        cli_put_json(&out, r);
        buf_put_str(&out, "}");
    } else {
        buf_put_str(&out, belay_text(r, "?"));
    }
    buf_put_byte(&out, '\n');
    return cli_flush(&out);
}

static int session_keepalive(struct cli *c)
{
    const struct belay_reply *r = NULL;
    int err = belay_call(c->belay, &r, "SESSION", "KEEPALIVE", c->words[1], NULL);
    if (err)
        return cli_fail(c, err);
    bool alive = belay_int(r, 0) > 0;
    if (c->json)
        printf("{\"alive\":%s}\n", alive ? "true" : "false");
    else
        printf("%s\n", alive ? "alive" : "over");
    return alive ? CLI_OK : CLI_NOT;
}

static int session_close(struct cli *c)
{
    const struct belay_reply *r = NULL;
    int err = belay_call(c->belay, &r, "SESSION", "CLOSE", c->words[1], NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        printf("{\"freed\":%" PRId64 "}\n", belay_int(r, 0));
    else
        printf("%" PRId64 " freed\n", belay_int(r, 0));
    return CLI_OK;
}

static int session_show(struct cli *c)
{
    const struct belay_reply *r = NULL;
    struct buf out = {0};
    int err = belay_call(c->belay, &r, "SESSION", "SHOW", c->words[1], NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    for (const struct belay_reply *m = r->first; m; m = m->next) {
        buf_printf(&out, "%-14s ", m->key);
        if (m->kind == BELAY_TEXT)
            cli_put_safe(&out, m->text, m->len);
        else
            cli_put_json(&out, m);
        buf_put_byte(&out, '\n');
    }
    return cli_flush(&out);
}

static void session_row(struct cli_table *t, const struct belay_reply *s)
{
    const struct belay_reply *text = belay_get(s, "description");
    const struct belay_reply *id = belay_get(s, "id");
    cli_cell_bytes(t, CLI_PLAIN, belay_text(id, "?"), id ? id->len : 1);
    cli_cell(t, CLI_PLAIN, "%s", belay_int(belay_get(s, "attached"), 0) ? "yes" : "no");
    cli_cell_duration(t, belay_int(belay_get(s, "ttl_ms"), -1));
    cli_cell_duration(t, belay_int(belay_get(s, "expires_in_ms"), -1));
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(s, "holds"), 0));
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(s, "waits"), 0));
    cli_cell_bytes(t, CLI_DIM, belay_text(text, ""), text ? text->len : 0);
}

static int session_ls(struct cli *c)
{
    static const char *const names[] = {"SESSION", "ATTACHED", "TTL",        "EXPIRES",
                                        "HOLDS",   "WAITS",    "DESCRIPTION"};
    struct cli_table t = {.columns = 7,
                          .right = {[2] = true, [3] = true, [4] = true, [5] = true}};
    return cli_list(c, "SESSION", &t, names, session_row);
}

static void on_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    (void)b;
    *(int *)arg = lost->why;
}

/* Lives as long as this process: the end of the process ends the session (after its linger). */
static int session_attach(struct cli *c)
{
    int why = BELAY_E_OK;
    belay_on_lost(c->belay, 0, on_lost, &why);
    int err = belay_session_attach(c->belay, c->words[1], cli_number(c, "ttl", 0));
    if (err)
        return cli_fail(c, err);
    cli_notice("attached; interrupt to end it");
    while (why == BELAY_E_OK) {
        int ignored = belay_poll(c->belay, BELAY_FOREVER); /* it tries again by itself */
        (void)ignored;
    }
    return cli_error(CLI_NOT, "the session is lost: %s", belay_code_text(why));
}

static int session(struct cli *c)
{
    static const struct {
        const char *word;
        size_t words;
        int (*run)(struct cli *c);
    } verbs[] = {
        {"open", 1, session_open},           {"attach", 2, session_attach},
        {"keepalive", 2, session_keepalive}, {"close", 2, session_close},
        {"show", 2, session_show},           {"ls", 1, session_ls},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].word, c->words[0]) != 0)
            continue;
        if (c->n_words != verbs[i].words)
            return cli_usage(c, "session %s takes %s", verbs[i].word,
                             verbs[i].words == 1 ? "no id" : "an id");
        int code = cli_connect(c);
        return code == CLI_OK ? verbs[i].run(c) : code;
    }
    return cli_usage(c, "\"%s\" is none of open, attach, keepalive, close, show, ls",
                     c->words[0]);
}

static const struct cli_option session_options[] = {
    {"ttl", 't', CLI_DURATION, "D", "open: how long it lives without a keepalive (60s)"},
    {"linger", 'l', CLI_DURATION, "D", "open: how long it outlives its connection (0)"},
    {"description", 'd', CLI_TEXT, "TEXT", "open: what it is for"},
    {"stale", 0, CLI_FLAG, NULL,
     "ls, show: answer at once from what this node knows, even without a majority"},
    {0},
};

const struct cli_command cli_cmd_session = {
    .name = "session",
    .args = "open | ls | attach ID | keepalive ID | close ID | show ID",
    .summary = "sessions: locks that are released when the session ends",
    .about =
        "open prints the id; give it to acquire with --session. It lives by keepalive, by\n"
        "any command in it, or while attach runs. close frees everything in one step.\n"
        "keepalive exits with 1 when the session is over.",
    .examples = "  s=$(belay session open --ttl 5m)\n"
                "  belay acquire a --session $s && belay acquire b --session $s\n"
                "  belay session close $s",
    .options = session_options,
    .min_words = 1,
    .max_words = 2,
    .run = session,
    .words = "open ls attach keepalive close show",
};
