/* log.c - `belay log`: what a running server logs. */
#include "cli/cli.h"

#include <string.h>

static int run(struct cli *c)
{
    const struct belay_reply *r = NULL;
    if (strcmp(c->words[0], "level") != 0)
        return cli_usage(c, "\"%s\" is not level", c->words[0]);
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_call(c->belay, &r, "LOG", "LEVEL", c->words[1], NULL);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    printf("%s (it was %s)\n", belay_text(belay_get(r, "level"), "?"),
           belay_text(belay_get(r, "was"), "?"));
    return CLI_OK;
}

const struct cli_command cli_cmd_log = {
    .name = "log",
    .args = "level error|warn|info|debug",
    .summary = "change what a running server logs",
    .about =
        "The level counts at the node that is asked, until it is changed again, or until the\n"
        "node starts again or reads its configuration again (SIGHUP): then --log-level counts.",
    .examples = "  belay log level debug --addr 10.0.0.1:7117",
    .min_words = 2,
    .max_words = 2,
    .run = run,
    .words = "level",
};
