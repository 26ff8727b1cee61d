/* audit.c - `belay audit verify`: is an audit log whole, and as it was written? */
#include "audit/chain.h"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct verified {
    struct chain_reader reader;
    const char *file, *why; /* where it is wrong; why NULL: it is not */
    uint64_t line;          /* of that file */
    bool unreadable;
};

/* A line with its end. False: there is none, or it is wrong. */
static bool verify_line(struct verified *v, struct slice line)
{
    v->line++;
    if (line.data[line.len - 1] != '\n')
        v->why = "the line is cut: it was being written, or its end is missing";
    else
        v->why = chain_read(&v->reader, slice_of(line.data, line.len - 1));
    return v->why == NULL;
}

static void verify_file(struct verified *v, const char *path)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    FILE *f = fopen(path, "re");
    v->file = path;
    v->line = 0;
    errno = f ? 0 : errno;
    while (f && (n = getline(&line, &cap, f)) > 0 && verify_line(v, slice_of(line, (size_t)n)))
        ;
    if (!f || ferror(f)) {
        v->why = strerror(errno);
        v->unreadable = true;
    }
    free(line);
    if (f)
        (void)fclose(f);
}

static int tell(const struct cli *c, const struct verified *v)
{
    const struct chain *at = &v->reader.at;
    uint64_t lines = v->reader.begun ? at->n - v->reader.first + 1 : 0;
    if (v->why && v->line)
        cli_error(CLI_NOT, "%s:%" PRIu64 ": %s", v->file, v->line, v->why);
    else if (v->why)
        cli_error(v->unreadable ? CLI_FAILED : CLI_NOT, "%s: %s", v->file, v->why);
    if (c->json)
        printf("{\"whole\":%s,\"lines\":%" PRIu64 ",\"first\":%" PRIu64 ",\"last\":%" PRIu64
               ",\"hash\":\"%.*s\"}\n",
               v->why ? "false" : "true", lines, v->reader.first, at->n,
               v->reader.begun ? CHAIN_HASH_BYTES : 0, at->hash);
    else if (!v->why && lines)
        printf("%" PRIu64 " lines are whole, %" PRIu64 " to %" PRIu64
               "; the last hash is\n%.*s\n",
               lines, v->reader.first, at->n, CHAIN_HASH_BYTES, at->hash);
    else if (!v->why)
        printf("there is no line\n");
    if (v->unreadable)
        return CLI_FAILED;
    return v->why ? CLI_NOT : CLI_OK;
}

static int audit(struct cli *c)
{
    struct verified v = {0};
    if (strcmp(c->words[0], "verify") != 0)
        return cli_usage(c, "\"%s\" is not verify", c->words[0]);
    for (size_t i = 1; i < c->n_words && !v.why; i++)
        verify_file(&v, c->words[i]);
    return tell(c, &v);
}

const struct cli_command cli_cmd_audit = {
    .name = "audit",
    .args = "verify FILE...",
    .summary = "check that an audit log is complete and unchanged",
    .about =
        "FILE... is what serve --audit has written, the oldest first. Each line has the hash\n"
        "of the one before it: a line that is missing, added or changed is named, and the exit\n"
        "status is 1. That lines are missing at the end shows only by the last hash: compare\n"
        "it with the one in the server's log, or with a copy that you keep elsewhere.",
    .examples = "  belay audit verify audit.log.2 audit.log.1 audit.log",
    .min_words = 2,
    .max_words = 1000,
    .run = audit,
    .words = "verify",
};
