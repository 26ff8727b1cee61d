/* txn.c - a transaction from a file or stdin: statements over variables and locks, all or none.
 */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TXN_BYTES_MAX = 1024 * 1024 };

static int read_stdin(struct buf *text)
{
    char part[4096];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0 && buf_len(text) <= TXN_BYTES_MAX)
        buf_put(text, part, n);
    if (ferror(stdin))
        return cli_error(CLI_FAILED, "stdin: %s", strerror(errno));
    if (buf_len(text) > TXN_BYTES_MAX)
        return cli_error(CLI_USAGE, "a transaction has at most %d bytes", TXN_BYTES_MAX);
    return text->oom ? cli_error(CLI_FAILED, "out of memory") : CLI_OK;
}

static int read_json(const char *path, struct buf *text)
{
    if (strcmp(path, "-") == 0)
        return read_stdin(text);
    enum belay_err err = buf_read_file(text, path, TXN_BYTES_MAX);
    return err == BELAY_OK ? CLI_OK : cli_error(CLI_USAGE, "%s: %s", path, err_text(err));
}

static void put_json(struct buf *out, const struct belay_txn *t)
{
    buf_printf(out, "{\"status\":\"%s\",\"failed\":", t->ok ? "ok" : "error");
    struct belay_reply failed = {.kind = t->failed[0] ? BELAY_TEXT : BELAY_NULL,
                                 .text = t->failed,
                                 .len = strlen(t->failed)};
    struct belay_reply cause = {.kind = t->cause[0] ? BELAY_TEXT : BELAY_NULL,
                                .text = t->cause,
                                .len = strlen(t->cause)};
    cli_put_json(out, &failed);
    buf_put_str(out, ",\"cause\":");
    cli_put_json(out, &cause);
    buf_printf(out, ",\"uptime_s\":%" PRId64 ",\"data\":[", t->uptime_s);
    for (const struct belay_reply *d = t->data->first; d; d = d->next) {
        buf_put_str(out, "{\"name\":");
        cli_put_json(out, belay_at(d, 0));
        buf_printf(out, ",\"value\":%s}%s", belay_text(belay_at(d, 1), "null"),
                   d->next ? "," : "");
    }
    buf_put_str(out, "]}\n");
}

static void put_text(struct buf *out, const struct belay_txn *t)
{
    for (const struct belay_reply *d = t->data->first; d; d = d->next) {
        const struct belay_reply *name = belay_at(d, 0), *value = belay_at(d, 1);
        cli_put_safe(out, belay_text(name, ""), name ? name->len : 0);
        buf_put_str(out, " = ");
        cli_put_safe(out, belay_text(value, "null"), value ? value->len : 4);
        buf_put_byte(out, '\n');
    }
}

static int txn(struct cli *c)
{
    struct buf text = {0}, out = {0};
    struct belay_txn t;
    int code = read_json(c->words[0], &text);
    if (code == CLI_OK)
        code = cli_connect(c);
    if (code != CLI_OK) {
        buf_done(&text);
        return code;
    }
    int err = belay_txn(c->belay, buf_cstr(&text), &t);
    buf_done(&text);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        put_json(&out, &t);
    else
        put_text(&out, &t);
    code = cli_flush(&out);
    if (code != CLI_OK || t.ok)
        return code;
    if (c->json)
        return CLI_NOT;
    return cli_error(CLI_NOT, "nothing was done: %s%s%s", t.cause, t.failed[0] ? " " : "",
                     t.failed);
}

const struct cli_command cli_cmd_txn = {
    .name = "txn",
    .args = "FILE|-",
    .summary = "a transaction over variables and locks, all or none",
    .about =
        "Reads the JSON that POST .../transactions takes. Prints what was selected. Exits with\n"
        "1 when it was not carried out: then nothing of it was.",
    .examples =
        "  belay txn - <<<'{\"session\":\"'$s'\",\"statements\":[{\"assert\":{\"true\":{}}}]}'",
    .min_words = 1,
    .max_words = 1,
    .run = txn,
};
