/* version.c - `belay version`: what this program is, and what it can follow and read. */
#include "base/format.h"
#include "cli/cli.h"
#include "server/server.h"
#include "tls/tls.h"

static const char *commit = "";

void cli_built_from(const char *text)
{
    commit = text;
}

static void put_formats(struct buf *out)
{
    static const struct {
        const char *name;
        int oldest, newest;
    } formats[] = {
#define X(NAME, name, oldest, newest, what) {#name, FORMAT_##NAME##_OLDEST, FORMAT_##NAME},
        FORMATS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        buf_printf(out, "%s\"%s\":{\"oldest\":%d,\"newest\":%d}", i ? "," : "", formats[i].name,
                   formats[i].oldest, formats[i].newest);
}

static int version(struct cli *c)
{
    struct buf out = {0};
    if (!c->json) {
        buf_printf(&out, "belay %s\n", BELAY_VERSION);
        return cli_flush(&out);
    }
    const char *quote = *commit ? "\"" : "";
    buf_printf(&out, "{\"version\":\"%s\",\"commit\":%s%s%s,", BELAY_VERSION, quote,
               *commit ? commit : "null", quote);
    buf_printf(&out, "\"level\":{\"oldest\":0,\"newest\":%u},\"formats\":{", server_level());
    put_formats(&out);
    buf_printf(&out, "},\"raft\":\"%s\",\"openssl\":\"%s\"}\n", server_raft_library(),
               tls_library());
    return cli_flush(&out);
}

const struct cli_command cli_cmd_version = {
    .name = "version",
    .args = "",
    .summary = "the version of this program",
    .about =
        "With --json also the commit that it was built from, the levels that it can follow\n"
        "(belay cluster level), for each format on disk and between nodes the newest version,\n"
        "which it writes, and the oldest that it reads, and the versions of libraries.",
    .examples = "  belay version --json",
    .run = version,
};
