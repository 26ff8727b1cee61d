/* run.c - `belay run`: a command that must not run twice. */
#include "cli/run/run.h"

#include "cli/run/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BODY_BYTES_MAX = 65536 };

/* ---- options --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct run_lock *)a)->name, ((const struct run_lock *)b)->name);
}

static int parse_names(struct run *r)
{
    struct cli *c = r->c;
    if (c->n_words > RUN_LOCKS_MAX)
        return cli_usage(c, "at most %d locks at once", RUN_LOCKS_MAX);
    for (size_t i = 0; i < c->n_words; i++)
        r->locks[i].name = c->words[i];
    r->n_locks = c->n_words;
    r->first = c->words[0];
    qsort(r->locks, r->n_locks, sizeof r->locks[0], by_name);
    for (size_t i = 1; i < r->n_locks; i++)
        if (strcmp(r->locks[i - 1].name, r->locks[i].name) == 0)
            return cli_usage(c, "\"%s\" is named twice", r->locks[i].name);
    if (!c->tail || !c->tail[0])
        return cli_usage(c, "which command? belay %s NAME -- COMMAND...", c->command->name);
    return 0;
}

/* The times must leave room for each other: see the time line in run.h. */
static int parse_times(struct run *r)
{
    struct cli *c = r->c;
    r->ttl_ms = cli_number(c, "ttl", RUN_TTL_MS);
    int64_t third = r->ttl_ms / 3;
    r->kill_after_ms =
        cli_number(c, "kill-after", third < RUN_KILL_AFTER_MS ? third : RUN_KILL_AFTER_MS);
    if (r->ttl_ms < RUN_TTL_MIN_MS)
        return cli_usage(c, "--ttl is at least 1s: a shorter one cannot be kept reliably");
    if (r->kill_after_ms > third)
        return cli_usage(c, "--kill-after is at most a third of --ttl: the command has to be "
                            "dead before the lock can pass on");
    r->linger_ms = cli_number(c, "linger", 0);
    if (r->linger_ms > r->ttl_ms)
        return cli_usage(c, "--linger is at most --ttl");
    return 0;
}

int run_parse(struct run *r, struct cli *c)
{
    *r = (struct run){.c = c, .guard_fd = -1, .events_fd = -1};
    const char *owner = cli_text(c, "owner", NULL);
    if (owner && strlen(owner) >= sizeof r->owner)
        return cli_usage(c, "an owner has at most %d bytes", CLI_OWNER_BYTES - 1);
    if (owner)
        snprintf(r->owner, sizeof r->owner, "%s", owner);
    else
        cli_unique_owner(r->owner);
    int code = parse_names(r);
    if (!code)
        code = parse_times(r);
    if (code)
        return code;
    r->want = (struct belay_acquire){
        .owner = r->owner,
        .ttl_ms = r->ttl_ms,
        .delay_ms = cli_number(c, "delay", 0),
        .keep = true,
    };
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &r->old_pipe);
    r->on_lost = cli_text(c, "on-lost", NULL);
    r->is_tty = isatty(STDERR_FILENO);
    return run_events_open(r) ? 0 : RUN_USAGE;
}

void run_done(struct run *r)
{
    for (size_t i = 0; i < r->n_locks; i++)
        free(r->locks[i].body);
    if (r->events_opened)
        close(r->events_fd);
}

/* ---- bodies ---------------------------------------------------------------------------- */

static struct run_lock *first_lock(struct run *r)
{
    for (size_t i = 0; i < r->n_locks; i++)
        if (strcmp(r->locks[i].name, r->first) == 0)
            return &r->locks[i];
    return &r->locks[0];
}

/* Before the command: what the last run left behind, into the file. */
static int body_out(struct run *r)
{
    const struct run_lock *lock = first_lock(r);
    if (!r->body_to)
        return 0;
    int fd = open(r->body_to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && write(fd, lock->body, lock->body_len) == (ssize_t)lock->body_len;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    return ok ? 0 : cli_error(RUN_FAILED, "%s: %s", r->body_to, strerror(errno));
}

/* Behind a command that succeeded: for the next run. */
static int body_in(struct run *r)
{
    const struct run_lock *lock = first_lock(r);
    struct buf body = {0};
    if (!r->body_from)
        return 0;
    enum belay_err read_err = buf_read_file(&body, r->body_from, BODY_BYTES_MAX);
    if (read_err != BELAY_OK) {
        buf_done(&body);
        return cli_error(RUN_FAILED, "%s: %s", r->body_from, err_text(read_err));
    }
    int err = belay_body(r->c->belay, lock->name, lock->fence, buf_cstr(&body), buf_len(&body));
    buf_done(&body);
    return err ? run_exit_of(r, err) : 0;
}

/* ---- the row --------------------------------------------------------------------------- */

static int run_locked(struct run *r)
{
    int status = 0;
    int code = body_out(r);
    if (!code)
        code = run_watch(r, &status);
    if (!code && status == 0)
        code = body_in(r);
    run_give_back(r);
    return code ? code : status;
}

static int run(struct cli *c)
{
    struct run r;
    int code = run_parse(&r, c);
    if (!code)
        code = cli_parse_kind(c, &r.want);
    if (!code && cli_given(c, "try") && cli_given(c, "wait"))
        code = cli_usage(c, "--try does not wait: not together with --wait");
    r.wait_ms = cli_given(c, "try") ? 0 : cli_number(c, "wait", BELAY_FOREVER);
    r.wait_until_ms = r.wait_ms == BELAY_FOREVER ? INT64_MAX : guard_now_ms() + r.wait_ms;
    if (r.wait_ms > 0 && r.wait_ms < RUN_PATIENCE_MS)
        c->patience_ms = r.wait_ms > RUN_ANSWER_MS ? r.wait_ms : RUN_ANSWER_MS;
    r.at_least_ms = cli_number(c, "at-least", 0);
    r.body_from = cli_text(c, "body-from", NULL);
    r.body_to = cli_text(c, "body-to", NULL);
    if (!code)
        code = run_open(&r);
    if (!code)
        code = run_take(&r);
    if (!code)
        code = run_locked(&r);
    run_done(&r);
    return code;
}

static const struct cli_option run_options[] = {
    {"wait", 'w', CLI_WAIT, "D", "wait in line this long (forever)"},
    {"try", 0, CLI_FLAG, NULL, "do not wait"},
    {"ttl", 't', CLI_DURATION, "D", "the lease; renewed at a third of it (30s)"},
    {"shared", 's', CLI_FLAG, NULL, "together with other shared holders"},
    {"semaphore", 0, CLI_NUMBER, "N", "at most N at a time"},
    {"permits", 0, CLI_NUMBER, "K", "take K permits of the semaphore (1)"},
    {"owner", 'o', CLI_TEXT, "WHO", "who holds it (host:pid:random)"},
    {"kill-after", 'k', CLI_DURATION, "D",
     "lost: from TERM to KILL (5s, at most a third of --ttl)"},
    {"on-lost", 0, CLI_TEXT, "COMMAND", "lost: sh -c COMMAND first, for half of --kill-after"},
    {"delay", 0, CLI_DURATION, "D", "after an involuntary loss nobody gets it for this long"},
    {"linger", 0, CLI_DURATION, "D",
     "keep the session this long after a broken connection (0)"},
    {"events", 0, CLI_TEXT, "json", "write events, one line of JSON each"},
    {"events-to", 0, CLI_TEXT, "FD|FILE", "where to write them (2, stderr)"},
    {"at-least", 0, CLI_DURATION, "D",
     "keep the lock for this long, even if the command is quicker"},
    {"body-to", 0, CLI_TEXT, "FILE", "before: write the lock's body into FILE"},
    {"body-from", 0, CLI_TEXT, "FILE", "after success: set the lock's body from FILE"},
    {0},
};

const char run_exit_text[] =
    "  the command's own, 128+n when it died by signal n, 126/127 when it cannot be\n"
    "  run, and\n"
    "  200  wrong usage              204  server unreachable\n"
    "  201  not obtained (--try)     205  refused by the server, or another kind\n"
    "  202  timed out (--wait)            of lock\n"
    "  203  lost while it ran        206  failed here";

const struct cli_command cli_cmd_run = {
    .name = "run",
    .args = "NAME... -- COMMAND [ARG...]",
    .summary = "run a command while holding a lock",
    .about =
        "Waits in line for the lock, runs the command, gives the lock back, and exits as the\n"
        "command did. Several names: all or none. The command finds BELAY_LOCK, BELAY_FENCE,\n"
        "BELAY_OWNER, BELAY_SESSION and BELAY_ADDR in its environment, runs in its own process\n"
        "group, and gets the signals that belay run gets. What it leaves behind in its group is\n"
        "ended before the lock is given back.\n"
        "\n"
        "Lost means stopped: when the lease cannot be proven any more (the server is silent or\n"
        "gone, the lock was broken, belay run was stopped), the whole group gets TERM and after\n"
        "--kill-after KILL, early enough to be dead before anybody else can get the lock. A\n"
        "killed belay run takes its command with it and frees the lock in milliseconds.",
    .examples =
        "  belay run backup -- pg_dump -f /backup/db.sql db\n"
        "  belay run deploy --try -- ./deploy.sh || echo \"somebody else deploys\"\n"
        "  belay run accounts invoices --wait 30s -- ./transfer\n"
        "  belay run --semaphore 3 gpu -- ./train\n"
        "  belay run import --body-to state --body-from state -- ./import --state state",
    .options = run_options,
    .min_words = 1,
    .max_words = RUN_LOCKS_MAX + 1,
    .run = run,
    .exit_text = run_exit_text,
    .usage_exit = RUN_USAGE,
    .words = "@lock",
};
