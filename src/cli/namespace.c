/* namespace.c - rooms for locks: ls, create, delete, show, update. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>

static void namespace_row(struct cli_table *t, const struct belay_reply *n)
{
    const struct belay_reply *text = belay_get(n, "description");
    const struct belay_reply *name = belay_get(n, "name");
    cli_cell_bytes(t, CLI_PLAIN, belay_text(name, "?"), name ? name->len : 1);
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "locks"), 0));
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "held"), 0));
    cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "waiting"), 0));
    cli_cell_duration(t, belay_int(belay_get(n, "created_ms_ago"), -1));
    cli_cell_bytes(t, CLI_DIM, belay_text(text, ""), text ? text->len : 0);
}

static int namespace_ls(struct cli *c)
{
    static const char *const names[] = {"NAMESPACE", "LOCKS", "HELD",
                                        "WAITING",   "AGE",   "DESCRIPTION"};
    struct cli_table t = {.columns = 6,
                          .right = {[1] = true, [2] = true, [3] = true, [4] = true}};
    return cli_list(c, "NAMESPACE", &t, names, namespace_row);
}

static int namespace_show(struct cli *c)
{
    const struct belay_reply *r = NULL;
    struct buf out = {0};
    int err = belay_call(c->belay, &r, "NAMESPACE", "SHOW", c->words[1], NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    for (const struct belay_reply *m = r->first; m; m = m->next) {
        buf_printf(&out, "%-20s ", m->key);
        if (m->kind == BELAY_TEXT)
            cli_put_safe(&out, m->text, m->len);
        else
            cli_put_json(&out, m);
        buf_put_byte(&out, '\n');
    }
    return cli_flush(&out);
}

static int namespace_create(struct cli *c)
{
    int err = belay_namespace_create(c->belay, c->words[1], cli_text(c, "description", NULL));
    return cli_done(c, err);
}

static int namespace_update(struct cli *c)
{
    if (!cli_given(c, "description"))
        return cli_usage(c, "update what? --description TEXT");
    int err = belay_call(c->belay, NULL, "NAMESPACE", "UPDATE", c->words[1], "DESCRIPTION",
                         cli_text(c, "description", ""), NULL);
    return cli_done(c, err);
}

static int namespace_delete(struct cli *c)
{
    int err = belay_namespace_delete(c->belay, c->words[1], cli_given(c, "force"));
    return cli_done(c, err);
}

static int namespaces(struct cli *c)
{
    static const struct {
        const char *word;
        size_t words;
        int (*run)(struct cli *c);
    } verbs[] = {
        {"ls", 1, namespace_ls},         {"create", 2, namespace_create},
        {"delete", 2, namespace_delete}, {"show", 2, namespace_show},
        {"update", 2, namespace_update},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].word, c->words[0]) != 0)
            continue;
        if (c->n_words != verbs[i].words)
            return cli_usage(c, "namespace %s takes %s", verbs[i].word,
                             verbs[i].words == 1 ? "no name" : "a name");
        int code = cli_connect(c);
        return code == CLI_OK ? verbs[i].run(c) : code;
    }
    return cli_usage(c, "\"%s\" is none of ls, create, delete, show, update", c->words[0]);
}

static const struct cli_option namespace_options[] = {
    {"description", 'd', CLI_TEXT, "TEXT", "create, update: what it is for"},
    {"force", 0, CLI_FLAG, NULL, "delete: even if locks in it are held"},
    {"stale", 0, CLI_FLAG, NULL,
     "ls, show: answer at once from what this node knows, even without a majority"},
    {0},
};

const struct cli_command cli_cmd_namespace = {
    .name = "namespace",
    .args = "ls | create NS | delete NS | show NS | update NS",
    .summary = "namespaces: separate sets of locks",
    .about =
        "Every server has one, default. delete refuses while locks in it are held, unless\n"
        "forced: then holders and waiters are told, and bodies go too.",
    .examples = "  belay namespace create staging --description \"the staging cluster\"\n"
                "  belay acquire deploy -n staging",
    .options = namespace_options,
    .min_words = 1,
    .max_words = 2,
    .run = namespaces,
    .words = "ls create delete show update",
};
