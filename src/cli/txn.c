/* txn.c - `belay txn`: a transaction from a file, or a look at the tables. */
#include "belay_txn.h"
#include "cli/cli.h"
#include "proto/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { TXN_FILE_BYTES_MAX = 1024 * 1024 };

static int read_stdin(struct buf *out)
{
    char part[4096];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0 && buf_len(out) <= TXN_FILE_BYTES_MAX)
        buf_put(out, part, n);
    if (ferror(stdin))
        return cli_error(CLI_FAILED, "stdin: %s", strerror(errno));
    if (buf_len(out) > TXN_FILE_BYTES_MAX)
        return cli_error(CLI_USAGE, "a transaction has at most %d bytes", TXN_FILE_BYTES_MAX);
    return CLI_OK;
}

static int read_source(const char *path, struct buf *out)
{
    if (strcmp(path, "-") == 0)
        return read_stdin(out);
    enum belay_err err = buf_read_file(out, path, TXN_FILE_BYTES_MAX);
    if (err == BELAY_OK)
        return CLI_OK;
    bool file = err == BELAY_ERR_NOT_FOUND || err == BELAY_ERR_IO;
    return cli_error(CLI_USAGE, "%s: %s", path, file ? strerror(errno) : err_text(err));
}

/* What of the document matters here. */
struct outline {
    bool has_session, is_empty;
    uint64_t wait_ms;
    size_t open; /* behind its first brace */
};

/* What is not a JSON object goes to the server as it is, which says what is wrong with it. */
static void read_outline(struct slice text, struct outline *ret)
{
    struct arena a = {0};
    struct json_token *root = NULL;
    struct json_error bad = {0};
    *ret = (struct outline){.has_session = true};
    if (json_parse_in(text, &a, &root, &bad) && root->type == JSON_OBJECT) {
        const struct json_token *wait = json_get(root, "wait_ms");
        *ret = (struct outline){.has_session = json_get(root, "session") != NULL,
                                .is_empty = root->items == 0,
                                .open = (size_t)(root->raw.data - text.data) + 1};
        if (wait && !json_u64(wait->raw, &ret->wait_ms))
            ret->wait_ms = 0;
    }
    arena_done(&a);
}

static void put_member(struct buf *out, const char *name, const char *text, bool more)
{
    struct belay_reply value = {.kind = BELAY_TEXT, .text = text, .len = strlen(text)};
    buf_printf(out, "\"%s\":", name);
    cli_put_json(out, &value);
    buf_put_str(out, more ? "," : "");
}

static void put_word(struct buf *out, const char *name, const char *word) /* or null */
{
    if (word[0])
        put_member(out, name, word, true);
    else
        buf_printf(out, "\"%s\":null,", name);
}

static void put_result_json(struct buf *out, const struct belay_txn_result *r)
{
    static const char *const words[] = {"ok", "error", "timeout"};
    buf_printf(out, "{\"status\":\"%s\",", words[r->status]);
    put_word(out, "failed", r->failed);
    put_word(out, "cause", r->cause);
    buf_printf(out, "\"uptime_s\":%" PRId64 ",\"trust\":%g,\"norm\":%g,\"data\":[", r->uptime_s,
               r->trust, r->norm);
    for (const struct belay_reply *row = r->data->first; row; row = row->next) {
        buf_put_byte(out, '{');
        put_member(out, "name", belay_text(belay_at(row, 0), ""), true);
        buf_printf(out, "\"value\":%s}%s", belay_text(belay_at(row, 1), "null"),
                   row->next ? "," : "");
    }
    buf_put_str(out, "]}\n");
}

static void put_data(struct buf *out, const struct belay_txn_result *r)
{
    for (const struct belay_reply *row = r->data->first; row; row = row->next) {
        const struct belay_reply *name = belay_at(row, 0), *value = belay_at(row, 1);
        cli_put_safe(out, belay_text(name, ""), name ? name->len : 0);
        buf_put_str(out, " = ");
        cli_put_safe(out, belay_text(value, "null"), value ? value->len : 4);
        buf_put_byte(out, '\n');
    }
}

static int say_why(const struct belay_txn_result *r)
{
    if (r->status == BELAY_TXN_TIMED_OUT)
        return cli_error(CLI_TIMED_OUT, "nothing was done: waited long enough for %s",
                         r->failed);
    if (strcmp(r->cause, "requirements") == 0)
        return cli_error(CLI_NOT,
                         "nothing was done: requirements (the server is up for %" PRId64
                         " s, its trust is %g)",
                         r->uptime_s, r->trust);
    return cli_error(CLI_NOT, "nothing was done: %s%s%s", r->cause, r->failed[0] ? " " : "",
                     r->failed);
}

static int transact(struct cli *c, struct buf *json, uint64_t wait_ms)
{
    static const int codes[] = {CLI_OK, CLI_NOT, CLI_TIMED_OUT};
    struct belay_txn_result r;
    struct buf out = {0};
    int err = belay_txn_json(c->belay, buf_cstr(json), (int64_t)wait_ms, &r);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        put_result_json(&out, &r);
    else
        put_data(&out, &r);
    int failed = cli_flush(&out);
    if (failed)
        return failed;
    return r.status == BELAY_TXN_OK || c->json ? codes[r.status] : say_why(&r);
}

/* The document with the session in it, when it names none. */
static int complete(struct cli *c, struct buf *source, struct buf *json, uint64_t *ret_wait_ms)
{
    struct outline o = {0};
    struct slice text = buf_slice(source);
    const char *session = cli_text(c, "session", NULL);
    read_outline(text, &o);
    *ret_wait_ms = o.wait_ms;
    if (o.has_session && session)
        return cli_usage(c, "the transaction names its session, and --session another");
    if (o.has_session) {
        buf_put_slice(json, text);
        return CLI_OK;
    }
    if (!session) { /* one for this transaction alone */
        int err = belay_session_open(c->belay, 0, 0, "belay txn");
        if (err)
            return cli_fail(c, err);
        session = belay_session_id(c->belay);
    }
    buf_put(json, text.data, o.open);
    put_member(json, "session", session, !o.is_empty);
    buf_put(json, text.data + o.open, text.len - o.open);
    return CLI_OK;
}

static int txn(struct cli *c)
{
    struct buf source = {0}, json = {0};
    uint64_t wait_ms = 0;
    int code = read_source(c->words[0], &source);
    if (code == CLI_OK)
        code = cli_connect(c);
    if (code == CLI_OK)
        code = complete(c, &source, &json, &wait_ms);
    if (code == CLI_OK && (source.oom || json.oom))
        code = cli_error(CLI_FAILED, "out of memory");
    if (code == CLI_OK)
        code = transact(c, &json, wait_ms);
    buf_done(&source);
    buf_done(&json);
    return code;
}

static const struct cli_option txn_options[] = {
    {"session", 's', CLI_TEXT, "ID", "the session it belongs to, when it names none itself"},
    {0},
};

const struct cli_command cli_cmd_txn = {
    .name = "txn",
    .args = "FILE|-",
    .summary = "run a transaction over variables and locks, all or none",
    .about =
        "FILE is the JSON of docs/TRANSACTIONS.md; - reads it from standard input. A\n"
        "transaction without a session gets one of its own, which ends with it: then its\n"
        "variables are removed; the selected data is printed. Exit status 1: it did not happen.",
    .examples =
        "  belay txn --session $(belay session open) entry.json\n"
        "  echo '{\"statements\":[{\"select\":{\"into\":\"who\",\"table\":\"MDS-Entry\",\n"
        "        \"key\":\"CGROVE-35\",\"many\":true}}]}' | belay txn -n Clinical -",
    .options = txn_options,
    .min_words = 1,
    .max_words = 1,
    .run = txn,
};
