/* cluster.c - `belay cluster`: the members and the leaders, and how to change them. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { REPLACE_LOOKS = 300, REPLACE_LOOK_US = 100000 };

static void node_rows(const struct belay_reply *r, struct cli_table *t)
{
    static const char *const names[] = {"NODE",   "ID",    "ROLE",   "PRIORITY",
                                        "UP",     "READY", "LEADS",  "APPLIED",
                                        "LISTEN", "PEER",  "PROBLEM"};
    for (size_t i = 0; i < t->columns; i++)
        cli_cell(t, CLI_BOLD, "%s", names[i]);
    for (const struct belay_reply *n = belay_at(belay_get(r, "nodes"), 0); n; n = n->next) {
        cli_cell(t, CLI_PLAIN, "%s", belay_text(belay_get(n, "name"), "?"));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "id"), 0));
        cli_cell(t, CLI_PLAIN, "%s", belay_text(belay_get(n, "role"), "?"));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "priority"), 0));
        cli_cell(t, CLI_PLAIN, "%s", belay_int(belay_get(n, "up"), 0) ? "yes" : "no");
        cli_cell(t, CLI_PLAIN, "%s", belay_int(belay_get(n, "ready"), 0) ? "yes" : "no");
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "leads"), 0));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "applied"), 0));
        cli_cell(t, CLI_PLAIN, "%s", belay_text(belay_get(n, "listen"), ""));
        cli_cell(t, CLI_DIM, "%s", belay_text(belay_get(n, "peer"), ""));
        cli_cell(t, CLI_PLAIN, "%s", belay_text(belay_get(n, "problem"), ""));
    }
}

static void shard_rows(const struct belay_reply *r, struct cli_table *t)
{
    static const char *const names[] = {"SHARD",     "LEADER",  "TERM",
                                        "COMMITTED", "APPLIED", "LEVEL"};
    for (size_t i = 0; i < t->columns; i++)
        cli_cell(t, CLI_BOLD, "%s", names[i]);
    for (const struct belay_reply *n = belay_at(belay_get(r, "shards"), 0); n; n = n->next) {
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "shard"), 0));
        cli_cell(t, CLI_PLAIN, "%s", belay_text(belay_get(n, "leader"), "none"));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "term"), 0));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "committed"), 0));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "applied"), 0));
        cli_cell(t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(n, "level"), 0));
    }
}

static int cluster_status(struct cli *c)
{
    const struct belay_reply *r = NULL;
    struct cli_table nodes = {.columns = 11,
                              .right = {[1] = true, [3] = true, [6] = true, [7] = true}};
    struct cli_table shards = {
        .columns = 6, .right = {[0] = true, [2] = true, [3] = true, [4] = true, [5] = true}};
    struct buf out = {0};
    int err = belay_call(c->belay, &r, "CLUSTER", "STATUS", NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    node_rows(r, &nodes);
    cli_table_put(&nodes, &out, c->color);
    shard_rows(r, &shards);
    buf_put_byte(&out, '\n');
    cli_table_put(&shards, &out, c->color);
    return cli_flush(&out);
}

/* What --join takes; a server of an earlier version answers a number only. */
static const char *join_of(const struct belay_reply *r, char number[32])
{
    snprintf(number, 32, "%" PRId64, belay_int(belay_get(r, "id"), 0));
    return belay_text(belay_get(r, "join"), number);
}

static int cluster_add(struct cli *c)
{
    const struct belay_reply *r = NULL;
    char number[32];
    const char *equals = strchr(c->words[1], '=');
    char name[256];
    if (!equals || equals == c->words[1] || (size_t)(equals - c->words[1]) >= sizeof name)
        return cli_usage(c, "cluster add takes NAME=HOST:PORT, the port for its peers");
    memcpy(name, c->words[1], (size_t)(equals - c->words[1]));
    name[equals - c->words[1]] = '\0';
    int err = belay_call(c->belay, &r, "CLUSTER", "ADD", name, equals + 1, NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    printf("added; start it with\n  belay serve --node %s --join %s \\\n"
           "      --peer-listen %s --data DIR --listen ADDRESS:PORT \\\n"
           "      --tls-ca ca.crt --tls-cert %s.crt --tls-key %s.key\n",
           name, join_of(r, number), equals + 1, name, name);
    return CLI_OK;
}

static int cluster_remove(struct cli *c)
{
    int err = belay_call(c->belay, NULL, "CLUSTER", "REMOVE", c->words[1], NULL);
    return cli_done(c, err);
}

static const struct belay_reply *find_node(const struct belay_reply *status, const char *name)
{
    const struct belay_reply *n = belay_at(belay_get(status, "nodes"), 0);
    while (n && strcmp(belay_text(belay_get(n, "name"), ""), name) != 0)
        n = n->next;
    return n;
}

/* Until all groups have let it go. */
static int await_gone(struct cli *c, const char *name)
{
    const struct belay_reply *r = NULL;
    for (int i = 0; i < REPLACE_LOOKS; i++) {
        int err = belay_call(c->belay, &r, "CLUSTER", "STATUS", NULL);
        if (err)
            return cli_fail(c, err);
        if (!find_node(r, name))
            return CLI_OK;
        (void)usleep(REPLACE_LOOK_US);
    }
    return cli_error(CLI_TIMED_OUT,
                     "%s is still leaving (belay cluster status); run this again later", name);
}

/* Removes it, waits, and adds a new one with its name and address. */
static int cluster_replace(struct cli *c)
{
    const struct belay_reply *r = NULL;
    char name[256];
    char place[512];
    size_t len = strcspn(c->words[1], "=");
    snprintf(name, sizeof name, "%.*s", (int)len, c->words[1]);
    int err = belay_call(c->belay, &r, "CLUSTER", "STATUS", NULL);
    if (err)
        return cli_fail(c, err);
    const struct belay_reply *node = find_node(r, name);
    if (node && belay_int(belay_get(node, "up"), 0))
        return cli_error(CLI_NOT, "%s is up: stop it before it is replaced", name);
    if (!node && c->words[1][len] == '\0')
        return cli_error(CLI_NOT, "no member has that name; say %s=HOST:PORT to add it", name);
    snprintf(place, sizeof place, "%s%s%s", c->words[1], c->words[1][len] ? "" : "=",
             c->words[1][len] ? "" : belay_text(belay_get(node, "peer"), ""));
    if (node)
        err = belay_call(c->belay, NULL, "CLUSTER", "REMOVE", name, NULL);
    if (err)
        return cli_fail(c, err);
    int code = await_gone(c, name);
    c->words[1] = place;
    return code == CLI_OK ? cluster_add(c) : code;
}

static int cluster_transfer(struct cli *c)
{
    char shard[32];
    snprintf(shard, sizeof shard, "%" PRId64, cli_number(c, "shard", 0));
    int err =
        belay_call(c->belay, NULL, "CLUSTER", "TRANSFER", c->words[1], "SHARD", shard, NULL);
    return cli_done(c, err);
}

static int cluster_priority(struct cli *c)
{
    int err = belay_call(c->belay, NULL, "CLUSTER", "PRIORITY", c->words[1], c->words[2], NULL);
    return cli_done(c, err);
}

static void level_rows(const struct belay_reply *r, struct cli_table *t)
{
    static const char *const names[] = {"NODE", "KNOWS", "RAISED"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cli_cell(t, CLI_BOLD, "%s", names[i]);
    for (const struct belay_reply *n = belay_at(belay_get(r, "nodes"), 0); n; n = n->next) {
        int64_t newest = belay_int(belay_get(n, "level_newest"), -1);
        cli_cell(t, CLI_PLAIN, "%s", belay_text(belay_get(n, "name"), "?"));
        if (newest < 0)
            cli_cell(t, CLI_DIM, "%s", "not heard");
        else
            cli_cell(t, CLI_PLAIN, "0 to %" PRId64, newest);
        cli_cell(t, CLI_PLAIN, "%s",
                 belay_int(belay_get(n, "level_manual"), 0) ? "manual" : "auto");
    }
}

/* Without a number: what it is, and what each member can follow. */
static int cluster_level_show(struct cli *c)
{
    const struct belay_reply *r = NULL;
    struct cli_table t = {.columns = 3};
    struct buf out = {0};
    int err = belay_call(c->belay, &r, "CLUSTER", "STATUS", NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    int64_t lowest = INT64_MAX, highest = 0;
    for (const struct belay_reply *g = belay_at(belay_get(r, "shards"), 0); g; g = g->next) {
        int64_t level = belay_int(belay_get(g, "level"), 0);
        lowest = level < lowest ? level : lowest;
        highest = level > highest ? level : highest;
    }
    if (lowest < highest)
        buf_printf(&out, "level %" PRId64 ", some shards %" PRId64 "\n\n", lowest, highest);
    else
        buf_printf(&out, "level %" PRId64 "\n\n", highest);
    level_rows(r, &t);
    cli_table_put(&t, &out, c->color);
    return cli_flush(&out);
}

static int cluster_level(struct cli *c)
{
    if (c->n_words == 1)
        return cluster_level_show(c);
    int err = belay_call(c->belay, NULL, "CLUSTER", "LEVEL", c->words[1], NULL);
    return cli_done(c, err);
}

static int cluster(struct cli *c)
{
    static const struct {
        const char *word;
        size_t least, most; /* words */
        const char *takes;
        int (*run)(struct cli *c);
    } verbs[] = {{"status", 1, 1, "no more words", cluster_status},
                 {"add", 2, 2, "a node", cluster_add},
                 {"remove", 2, 2, "a node", cluster_remove},
                 {"replace", 2, 2, "a node", cluster_replace},
                 {"transfer", 2, 2, "a node", cluster_transfer},
                 {"priority", 3, 3, "a node and a number", cluster_priority},
                 {"level", 1, 2, "nothing, or a number", cluster_level}};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].word, c->words[0]) != 0)
            continue;
        if (c->n_words < verbs[i].least || c->n_words > verbs[i].most)
            return cli_usage(c, "cluster %s takes %s", verbs[i].word, verbs[i].takes);
        int code = cli_connect(c);
        return code == CLI_OK ? verbs[i].run(c) : code;
    }
    return cli_usage(
        c, "\"%s\" is none of status, add, remove, replace, transfer, priority, level",
        c->words[0]);
}

static const struct cli_option cluster_options[] = {
    {"shard", 0, CLI_NUMBER, "N", "transfer: this group instead of 0"},
    {0},
};

const struct cli_command cli_cmd_cluster = {
    .name = "cluster",
    .args = "status | add NAME=HOST:PORT | remove NAME | replace NAME | transfer NAME | "
            "priority NAME N | level [N]",
    .summary = "the nodes of a cluster: status, members, leaders, level",
    .about =
        "A new node learns first and votes as soon as it has caught up; ready means that it\n"
        "does so in every group. Any node takes these commands, and answers when it is so.\n"
        "Of the nodes that are up, those with the lowest priority number lead, in turn; 15\n"
        "never leads.\n\n"
        "replace is for a node that is dead, with its disk: it removes the node and adds a new\n"
        "one with its name and address (or NAME=HOST:PORT). An empty machine then becomes that\n"
        "node with the command that is printed.\n\n"
        "The level is the set of rules that the cluster follows. level shows it, and what each\n"
        "member knows; level N raises it when all know that level. It is never lowered.",
    .examples = "  belay cluster status\n"
                "  belay cluster add n4=10.0.0.4:7200\n"
                "  belay cluster replace n2\n"
                "  belay cluster priority n1 3\n"
                "  belay cluster transfer n2\n"
                "  belay cluster level 2",
    .options = cluster_options,
    .min_words = 1,
    .max_words = 3,
    .run = cluster,
    .words = "status add remove replace transfer priority level",
};
