/* repair.c - `belay repair`: a data directory that a server does not start from. */
#include "server/repair.h"

#include "cli/cli.h"
#include "proto/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const states[] = {"sound", "damaged", "missing", "unused"};

/* For a shell, as one word. */
static void put_word(struct buf *out, const char *text)
{
    if (text[strcspn(text, " \t\n\"'\\$`*?[]{}()<>|&;#~!")] == '\0' && *text) {
        buf_put_str(out, text);
        return;
    }
    buf_put_byte(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buf_put_str(out, "'\\''");
        else
            buf_put_byte(out, *text);
    }
    buf_put_byte(out, '\'');
}

static void put_command(struct buf *out, const char *dir, const char *flags)
{
    buf_put_str(out, "  belay repair --data ");
    put_word(out, dir);
    buf_printf(out, " %s\n", flags);
}

/* --- what is there --- */

static void put_files(const struct cli *c, const struct inspection *in, struct buf *out)
{
    static const enum cli_color colors[] = {CLI_GREEN, CLI_RED, CLI_RED, CLI_DIM};
    struct cli_table t = {.columns = 3};
    cli_cell(&t, CLI_BOLD, "FILE");
    cli_cell(&t, CLI_BOLD, "STATE");
    cli_cell(&t, CLI_BOLD, "WHAT");
    for (size_t i = 0; i < in->n_files; i++) {
        const struct inspect_file *f = &in->files[i];
        cli_cell_bytes(&t, CLI_PLAIN, f->name, strlen(f->name));
        cli_cell(&t, colors[f->state], "%s", states[f->state]);
        cli_cell(&t, CLI_PLAIN, "%s", f->text);
    }
    cli_table_put(&t, out, c->color);
}

static bool loses(const struct inspection *in)
{
    return in->lost_batches > 0 || in->lost_more;
}

static void put_loss(const struct inspection *in, struct buf *out)
{
    if (in->lost_batches)
        buf_printf(out, "%" PRIu64 " batch%s of the journal", in->lost_batches,
                   in->lost_batches == 1 ? "" : "es");
    if (in->lost_more)
        buf_printf(out, "%sthe contents of files that cannot be read any more",
                   in->lost_batches ? ", and " : "");
}

static void put_alone(const char *dir, const struct inspection *in, struct buf *out)
{
    if (!in->can_salvage) {
        buf_put_str(out,
                    "The node is alone, and nothing can be saved: no state without damage is "
                    "left to begin with.\nPut a copy of the directory in its place, or begin "
                    "with an empty one. Both give fences again that were given since.\n");
        return;
    }
    buf_put_str(out, "The node is alone: no other node has its data. If you have a copy of the "
                     "directory that is as new, use it.\nElse, to save what can be saved");
    if (!loses(in)) {
        buf_put_str(out, " (this loses nothing that was answered):\n");
        put_command(out, dir, "--salvage");
        return;
    }
    buf_put_str(out, ", and LOSE ");
    put_loss(in, out);
    buf_put_str(out, ", with everything that was answered in them:\n");
    put_command(out, dir, "--salvage --lose-data");
}

static void put_advice(const char *dir, const struct inspection *in, struct buf *out)
{
    if (in->starts) {
        buf_put_str(out, "\nA server starts from it.\n");
        return;
    }
    buf_printf(out, "\nA server does not start from it: %s\n", in->problem);
    if (in->too_new)
        return;
    if (in->members > 1) {
        buf_printf(out,
                   "Node %s belongs to a cluster, and the other nodes have its data. To let it "
                   "join them as a\nnew member:\n",
                   in->name[0] ? in->name : "");
        put_command(out, dir, "--rejoin");
    } else if (in->members == 1) {
        put_alone(dir, in, out);
    } else {
        buf_put_str(out,
                    "Too little is left to say whether it belongs to a cluster. If it does, "
                    "move the directory away,\nremove the node from the cluster and add it "
                    "as a new one. If it is alone, a copy is needed.\n");
    }
}

static void put_json(const struct inspection *in, struct buf *out)
{
    buf_printf(out, "{\"starts\":%s,\"problem\":", in->starts ? "true" : "false");
    json_put_string(out, slice_str(in->problem));
    buf_printf(out, ",\"node\":%" PRIu64 ",\"name\":", in->node);
    json_put_string(out, slice_str(in->name));
    buf_printf(out,
               ",\"members\":%zu,\"can_salvage\":%s,\"lost_batches\":%" PRIu64
               ",\"lost_more\":%s,\"files\":[",
               in->members, in->can_salvage ? "true" : "false", in->lost_batches,
               in->lost_more ? "true" : "false");
    for (size_t i = 0; i < in->n_files; i++) {
        buf_put_str(out, i ? ",{\"name\":" : "{\"name\":");
        json_put_string(out, slice_str(in->files[i].name));
        buf_printf(out, ",\"state\":\"%s\",\"text\":", states[in->files[i].state]);
        json_put_string(out, slice_str(in->files[i].text));
        buf_put_byte(out, '}');
    }
    buf_put_str(out, "]}\n");
}

static int look(const struct cli *c, const char *dir, const struct inspection *in)
{
    struct buf out = {0};
    if (c->json) {
        put_json(in, &out);
    } else {
        put_files(c, in, &out);
        put_advice(dir, in, &out);
    }
    int code = cli_flush(&out);
    return code == CLI_OK && !in->starts ? CLI_NOT : code;
}

/* --- what is done --- */

static int failed(const struct repair *r, enum belay_err err)
{
    const char *aside = repair_aside(r);
    return cli_error(CLI_FAILED, "%s%s%s%s",
                     err == BELAY_ERR_IO ? strerror(errno) : err_text(err),
                     *aside ? "; the moved files are in " : "; nothing has changed", aside, "");
}

static int rejoin(struct repair *r, const char *dir)
{
    const struct inspection *in = repair_found(r);
    const char *name = in->name[0] ? in->name : "NAME";
    const char *peer = in->peer[0] ? in->peer : "HOST:PORT";
    struct buf out = {0};
    if (in->members < 2)
        return cli_error(CLI_NOT,
                         in->members == 1
                             ? "the node is alone: no other node has its data; see --salvage"
                             : "too little is left to know that other nodes have its data");
    enum belay_err err = repair_rejoin(r);
    if (err != BELAY_OK)
        return failed(r, err);
    buf_put_str(&out, "The directory is empty; its files are now in ");
    put_word(&out, repair_aside(r));
    buf_printf(&out,
               ".\nNow, where NODE is HOST:PORT of any other node:\n"
               "  belay cluster remove %s --addr NODE\n"
               "when belay cluster status does not show it any more:\n"
               "  belay cluster add %s=%s --addr NODE\n"
               "and with what this prints behind --join as N, and the --tls- options:\n"
               "  belay serve --node %s --join N --peer-listen %s --data ",
               name, name, peer, name, peer);
    put_word(&out, dir);
    buf_put_str(&out, " --listen ADDRESS:PORT\n");
    return cli_flush(&out);
}

static int salvage(struct repair *r, const char *dir, bool lose_data)
{
    const struct inspection *in = repair_found(r);
    struct buf out = {0};
    if (in->starts)
        return cli_error(CLI_NOT, "nothing is to be saved: a server starts from it");
    if (in->too_new)
        return cli_error(CLI_NOT, "nothing is to be saved: %s", in->problem);
    if (in->members != 1)
        return cli_error(
            CLI_NOT, in->members ? "the other nodes of its cluster have its data; see --rejoin"
                                 : "too little is left to know that the node is alone");
    if (!in->can_salvage)
        return cli_error(CLI_NOT, "nothing can be saved: no state without damage is left to "
                                  "begin with");
    if (loses(in) && !lose_data) {
        put_loss(in, &out);
        int code = cli_error(CLI_NOT, "this loses %s; say --lose-data", buf_cstr(&out));
        buf_done(&out);
        return code;
    }
    enum belay_err err = repair_salvage(r);
    if (err != BELAY_OK)
        return failed(r, err);
    buf_put_str(&out, loses(in) ? "Saved; lost: " : "Saved; nothing is lost");
    put_loss(in, &out);
    buf_put_str(
        &out, ".\nFences go on so much higher that none is given twice. The old files are in ");
    put_word(&out, repair_aside(r));
    buf_put_str(&out, ".\n  belay serve --data ");
    put_word(&out, dir);
    buf_put_byte(&out, '\n');
    return cli_flush(&out);
}

int cli_no_data(const char *dir, enum belay_err err)
{
    if (err == BELAY_ERR_IN_USE)
        return cli_error(CLI_FAILED, "%s: a server runs on it; stop it first", dir);
    if (err == BELAY_ERR_NOT_FOUND)
        return cli_error(CLI_FAILED, "%s: there is no data of a node", dir);
    return cli_error(CLI_FAILED, "%s: %s", dir,
                     err == BELAY_ERR_IO ? strerror(errno) : err_text(err));
}

static const char loss_text[] =
    "This makes a new cluster of what this one node has. Lost may be: everything that was answered\n"
    "and that only the other nodes have, because this one was behind or cut off. Fences go on so\n"
    "much higher that none is given twice. Nodes of the old cluster are refused for ever.\n"
    "Use it only when most nodes are gone for good. A backup may have more.\n";

static int survive(struct repair *r, const char *dir, bool lose_data)
{
    const struct inspection *in = repair_found(r);
    struct buf out = {0};
    if (in->too_new || !in->can_survive)
        return cli_error(CLI_NOT, "%s",
                         in->members == 1
                             ? "the node is alone: it starts as it is; see --salvage"
                         : *in->problem ? in->problem
                                        : "nothing is left to begin with");
    if (!lose_data) {
        fputs(loss_text, stderr);
        return cli_error(CLI_NOT, "say --lose-data to do it; nothing has changed");
    }
    enum belay_err err = repair_survive(r);
    if (err == BELAY_ERR_GONE)
        return cli_error(CLI_NOT,
                         "the node was behind in some shards, and what it has of them does not "
                         "fit together: take another node, or restore a backup; nothing has "
                         "changed");
    if (err != BELAY_OK)
        return failed(r, err);
    buf_put_str(&out, "A new cluster of one node. The old files are in ");
    put_word(&out, repair_aside(r));
    buf_printf(&out,
               ".\nStart it, with its other options as before, and add nodes:\n"
               "  belay serve --node %s --peer-listen %s --data ",
               in->name, in->peer);
    put_word(&out, dir);
    buf_put_str(&out, "\n  belay cluster add NAME=HOST:PORT\n");
    return cli_flush(&out);
}

static int repair(struct cli *c)
{
    const char *dir = cli_text(c, "data", NULL);
    bool wants_rejoin = cli_given(c, "rejoin");
    bool wants_salvage = cli_given(c, "salvage");
    struct repair *r = NULL;
    if (!dir)
        return cli_usage(c, "--data is missing");
    bool wants_survival = cli_given(c, "survivor");
    if (wants_rejoin + wants_salvage + wants_survival > 1)
        return cli_usage(c, "--rejoin, --salvage and --survivor exclude each other");
    if (cli_given(c, "lose-data") && !wants_salvage && !wants_survival)
        return cli_usage(c, "--lose-data goes with --salvage or --survivor");
    enum belay_err err = repair_open(dir, &r);
    if (err != BELAY_OK)
        return cli_no_data(dir, err);
    int code = wants_survival  ? survive(r, dir, cli_given(c, "lose-data"))
               : wants_rejoin  ? rejoin(r, dir)
               : wants_salvage ? salvage(r, dir, cli_given(c, "lose-data"))
                               : look(c, dir, repair_found(r));
    repair_close(r);
    return code;
}

static const struct cli_option repair_options[] = {
    {"data", 'd', CLI_TEXT, "DIR", "the data directory of a server that is stopped"},
    {"rejoin", 0, CLI_FLAG, NULL,
     "node of a cluster: empty the directory, so that the node can join anew"},
    {"salvage", 0, CLI_FLAG, NULL, "node that is alone: save what can be saved"},
    {"survivor", 0, CLI_FLAG, NULL,
     "most nodes are gone for good: make a new cluster of what this one has"},
    {"lose-data", 0, CLI_FLAG, NULL, "with --salvage or --survivor: even if this loses data"},
    {0},
};

const struct cli_command cli_cmd_repair = {
    .name = "repair",
    .args = "--data DIR [--rejoin | (--salvage | --survivor) [--lose-data]]",
    .summary = "look at a damaged data directory, and mend it",
    .about =
        "A server does not start from a directory in which anything is damaged, missing or cut.\n"
        "Without --rejoin or --salvage the command changes nothing: it checks every file and says\n"
        "what can be done.\n\n"
        "--rejoin is for a node of a cluster: it must not come back under its old number, because\n"
        "it may have forgotten a vote. The other nodes have all the data, and it can join them as\n"
        "a new member. --salvage is for a node that is alone: it keeps the newest state that can\n"
        "still be proved. --survivor says what may be lost, and with --lose-data makes a cluster\n"
        "of its own of a member that is left when most others are gone for good. None of them\n"
        "deletes anything: the old files are moved to DIR/.aside-N.",
    .examples = "  belay repair --data /var/lib/belay\n"
                "  belay repair --data /var/lib/belay --rejoin\n"
                "  belay repair --data /var/lib/belay --salvage --lose-data",
    .options = repair_options,
    .run = repair,
    .exit_text = "  0  a server starts from it, or it was mended\n"
                 "  1  damaged, or it cannot be done\n"
                 "  2  wrong usage    6  no such directory, in use, or it cannot be written",
};
