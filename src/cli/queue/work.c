/* work.c - `belay queue work QUEUE... -- COMMAND...`. */
#include "base/log.h"
#include "cli/queue/queue.h"
#include "queue/worker.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Found in PATH, so that a mistyped command is told before anything is claimed. */
static bool command_exists(const char *name)
{
    if (strchr(name, '/'))
        return access(name, X_OK) == 0;
    const char *path = getenv("PATH");
    bool found = false;
    struct buf file = {0};
    while (path && *path && !found) {
        size_t n = strcspn(path, ":");
        buf_clear(&file);
        buf_put(&file, path, n);
        buf_printf(&file, "/%s", name);
        found = access(buf_cstr(&file), X_OK) == 0;
        path += n + (path[n] == ':');
    }
    buf_done(&file);
    return found;
}

/* QUEUE or QUEUE=PRIORITY. The name is cut out of the word. */
static bool take_queue(struct cli *c, const char *word, struct worker_queue *ret)
{
    const char *eq = strrchr(word, '=');
    char *end = NULL;
    long priority = eq ? strtol(eq + 1, &end, 10) : 0;
    if (eq && (end == eq + 1 || *end || priority < -1000 || priority > 1000)) {
        cli_usage(c, "%s: a priority is a number from -1000 to 1000", word);
        return false;
    }
    size_t n = eq ? (size_t)(eq - word) : strlen(word);
    if (n == 0 || n > 512) {
        cli_usage(c, "\"%s\" is not a queue's name", word);
        return false;
    }
    *ret = (struct worker_queue){strndup(word, n), (int)priority};
    return ret->name != NULL;
}

static bool take_range(struct cli *c, const char *name, int64_t max, unsigned *ret)
{
    int64_t v = cli_number(c, name, 0);
    if (cli_given(c, name) && (v < 1 || v > max)) {
        cli_usage(c, "--%s is 1 to %lld", name, (long long)max);
        return false;
    }
    *ret = (unsigned)v;
    return true;
}

static bool take_mode(struct cli *c, enum belay_queue_mode *ret)
{
    const char *mode = cli_text(c, "mode", cli_given(c, "batch") ? "lease" : "transaction");
    bool lease = strcmp(mode, "lease") == 0;
    if (!lease && strcmp(mode, "transaction") != 0) {
        cli_usage(c, "--mode is transaction or lease");
        return false;
    }
    if (!lease && (cli_given(c, "batch") || cli_given(c, "lease"))) {
        cli_usage(c, "--batch and --lease belong to --mode lease");
        return false;
    }
    *ret = lease ? BELAY_QUEUE_LEASE : BELAY_QUEUE_TRANSACTION;
    return true;
}

static bool take_options(struct cli *c, struct worker_options *o)
{
    struct belay_queue_options *b = &o->base;
    b->url = queue_url(c);
    b->schema = queue_schema(c);
    b->worker = cli_text(c, "name", NULL);
    b->drain = cli_given(c, "drain");
    b->require_created = cli_given(c, "require-created");
    o->persistent = cli_given(c, "persistent");
    o->verbose = cli_given(c, "verbose");
    o->argv = c->tail;
    return take_mode(c, &b->mode) &&
           take_range(c, "concurrency", WORKER_SLOTS_MAX, &b->concurrency) &&
           take_range(c, "batch", WORKER_BATCH_MAX, &b->batch) &&
           take_range(c, "lease", INT_MAX, &b->lease_ms) &&
           take_range(c, "max-attempts", 1000000, &b->max_attempts) &&
           take_range(c, "backoff", INT_MAX, &b->backoff_ms) &&
           take_range(c, "backoff-max", INT_MAX, &b->backoff_max_ms) &&
           take_range(c, "timeout", INT_MAX, &o->timeout_ms) &&
           take_range(c, "grace", INT_MAX, &o->grace_ms) &&
           take_range(c, "poll", INT_MAX, &o->poll_ms) &&
           take_range(c, "answer", INT_MAX, &o->answer_ms);
}

static int run_work(struct cli *c)
{
    struct worker_options o = {0};
    char why[DB_WHY_BYTES] = "";
    int code = CLI_USAGE;
    if (!c->tail || !c->tail[0])
        return cli_usage(c, "the command is missing: -- COMMAND...");
    if (!take_options(c, &o))
        return CLI_USAGE;
    if (!command_exists(c->tail[0]))
        return cli_error(CLI_FAILED, "%s: command not found; nothing was claimed", c->tail[0]);
    if (o.verbose)
        log_set_level(LOG_DEBUG);
    for (; o.n_queue < c->n_words; o.n_queue++)
        if (!take_queue(c, c->words[o.n_queue], &o.queues[o.n_queue]))
            goto out;
    code = worker_run(&o, why, sizeof why) == 0 ? CLI_OK : cli_error(CLI_REFUSED, "%s", why);
out:
    for (size_t i = 0; i < o.n_queue; i++)
        free((void *)(uintptr_t)o.queues[i].name);
    return code;
}

const struct cli_command cli_queue_work = {
    .name = "queue work",
    .args = "QUEUE[=PRIORITY]... -- COMMAND...",
    .summary = "work on requests: run a command for each group",
    .about =
        "The command gets the group as JSON on stdin and BELAY_QUEUE, BELAY_ENTITY, BELAY_KIND, "
        "BELAY_PROCESS, BELAY_FENCE and BELAY_REQUESTS in its environment. Exit 0: complete, stdout "
        "(up to 64 KiB) is the outcome. 75: again later. Killed by a signal: again later. Else: "
        "error, and the end of stderr says why.\n\n"
        "transaction mode holds a transaction open while the command runs: a crash, a kill, a lost "
        "connection put the request back at once. lease mode is for work of more than a few "
        "seconds, and for speed: claims are visible, kept by heartbeats and fenced.",
    .examples = "belay queue work orders -- ./index-order\n"
                "belay queue work urgent=10 bulk --concurrency 8 --persistent -- ./worker.py\n"
                "belay queue work thumbnails --mode lease --lease 1m -- ./render",
    .options =
        (const struct cli_option[]){
            QUEUE_OPTIONS,
            {"concurrency", 'c', CLI_NUMBER, "N", "groups at a time (1)"},
            {"mode", 'm', CLI_TEXT, "MODE", "transaction (default) or lease"},
            {"batch", 'b', CLI_NUMBER, "K", "lease mode: groups per round trip"},
            {"lease", 0, CLI_DURATION, "D", "lease mode: how long without a heartbeat (30s)"},
            {"persistent", 'p', CLI_FLAG, NULL,
             "one long-lived command: a JSON line in, one out"},
            {"timeout", 0, CLI_DURATION, "D",
             "a command that takes longer is killed, tried again"},
            {"max-attempts", 0, CLI_NUMBER, "N", "then a request is given up (10)"},
            {"backoff", 0, CLI_DURATION, "D", "wait after the first attempt; doubles (1s)"},
            {"backoff-max", 0, CLI_DURATION, "D", "and not longer than this (1h)"},
            {"require-created", 0, CLI_FLAG, NULL, "updates whose create failed are errors"},
            {"drain", 0, CLI_FLAG, NULL, "work until nothing is left, then exit 0"},
            {"grace", 0, CLI_DURATION, "D", "after SIGTERM, then running commands are killed"},
            {"poll", 0, CLI_DURATION, "D", "behind a pooler: no LISTEN, look this often"},
            {"answer", 0, CLI_DURATION, "D", "a database silent for so long is given up (30s)"},
            {"name", 0, CLI_TEXT, "NAME", "the name of this worker (host:pid)"},
            {"verbose", 'v', CLI_FLAG, NULL, "log every claim and every skip"},
            {0}},
    .min_words = 1,
    .max_words = WORKER_QUEUES_MAX,
    .run = run_work,
};
