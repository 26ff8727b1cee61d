/* elect.c - `belay elect`: leader election as a supervised process, and who leads now. */
#include "cli/run/run.h"

#include "cli/run/guard.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- observing ------------------------------------------------------------------------- */

struct observed {
    bool stale;     /* something happened: look again */
    uint64_t fence; /* of the leader that was printed; 0: none */
    bool printed;
};

static void on_news(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    (void)b;
    (void)err;
    (void)event;
    ((struct observed *)arg)->stale = true;
}

static int print_leader(struct cli *c, struct observed *o, const struct belay_reply *lock)
{
    const struct belay_reply *leader = belay_at(belay_get(lock, "holders"), 0);
    const struct belay_reply *owner = belay_get(leader, "owner");
    uint64_t fence = (uint64_t)belay_int(belay_get(leader, "fence"), 0);
    struct buf out = {0};
    if (o->printed && fence == o->fence)
        return CLI_OK; /* a renewal, or somebody joined the line */
    o->printed = true;
    o->fence = fence;
    if (c->json && owner) {
        buf_put_str(&out, "{\"leader\":");
        cli_put_json(&out, owner);
        buf_printf(&out, ",\"fence\":%" PRIu64 "}", fence);
    } else if (c->json) {
        buf_put_str(&out, "{\"leader\":null}");
    } else if (owner) {
        cli_put_safe(&out, owner->text, owner->len);
        buf_printf(&out, " leads (fence %" PRIu64 ")", fence);
    } else {
        buf_put_str(&out, "nobody leads");
    }
    buf_put_byte(&out, '\n');
    return cli_flush(&out);
}

static int observe(struct cli *c)
{
    struct observed o = {.stale = true};
    const char *name = c->words[0];
    int64_t left = cli_number(c, "count", INT64_MAX);
    if (cli_connect(c) != CLI_OK)
        return RUN_USAGE;
    int err = belay_watch(c->belay, name, 0, on_news, &o);
    while (err == BELAY_E_OK && left > 0) {
        const struct belay_reply *lock = NULL;
        bool first = !o.printed;
        uint64_t before = o.fence;
        if (o.stale) {
            o.stale = false;
            err = belay_show(c->belay, name, &lock);
            if (err == BELAY_E_OK && print_leader(c, &o, lock) != CLI_OK)
                return RUN_FAILED;
            left -= first || before != o.fence;
        } else if (belay_poll(c->belay, BELAY_FOREVER) != BELAY_E_OK) {
            cli_notice("%s; trying again", belay_error(c->belay));
            o.stale = true; /* the look itself waits for the server */
        }
        if (err == BELAY_E_CLOSED ||
            err == BELAY_E_CONNECT) { /* it comes back, or somebody stops us */
            struct timespec pause = {.tv_nsec = 200000000};
            nanosleep(&pause, NULL);
            o.stale = true;
            err = BELAY_E_OK;
        }
    }
    return err ? cli_fail(c, err) : CLI_OK;
}

/* ---- leading --------------------------------------------------------------------------- */

/* Leads, and when that is over other than by the command's own end, stands for election again.
 */
static int lead(struct run *r)
{
    int code = run_open(r);
    for (;;) {
        int status = 0;
        if (!code)
            code = run_take(r);
        if (!code)
            code = run_watch(r, &status);
        run_give_back(r);
        if (code)
            return code;
        if (status != RUN_LOST)
            return status;
        cli_notice("waiting to lead again");
        do {
            struct timespec pause = {.tv_nsec = 200000000};
            nanosleep(&pause, NULL);
            code = run_open(r);
            r->quiet = true;
        } while (code == RUN_UNREACHABLE); /* a leader that lost its server waits for it */
        r->quiet = false;
    }
}

static int elect(struct cli *c)
{
    struct run r;
    if (cli_given(c, "observe"))
        return c->tail ? cli_usage(c, "--observe runs no command") : observe(c);
    int code = run_parse(&r, c);
    r.wait_ms = BELAY_FOREVER;
    r.wait_until_ms = INT64_MAX;
    if (!code)
        code = lead(&r);
    run_done(&r);
    return code;
}

static const struct cli_option elect_options[] = {
    {"observe", 0, CLI_FLAG, NULL, "print who leads now, and each change"},
    {"count", 'c', CLI_NUMBER, "N", "observe: stop after N lines"},
    {"ttl", 't', CLI_DURATION, "D", "the lease; renewed at a third of it (30s)"},
    {"owner", 'o', CLI_TEXT, "WHO", "the candidate's name (host:pid:random)"},
    {"kill-after", 'k', CLI_DURATION, "D",
     "lost: from TERM to KILL (5s, at most a third of --ttl)"},
    {"on-lost", 0, CLI_TEXT, "COMMAND", "lost: sh -c COMMAND first, for half of --kill-after"},
    {"delay", 0, CLI_DURATION, "D",
     "after an involuntary loss there is no leader for this long"},
    {"linger", 0, CLI_DURATION, "D",
     "keep the session this long after a broken connection (0)"},
    {"events", 0, CLI_TEXT, "json", "write events, one line of JSON each"},
    {"events-to", 0, CLI_TEXT, "FD|FILE", "where to write them (2, stderr)"},
    {0},
};

const struct cli_command cli_cmd_elect = {
    .name = "elect",
    .args = "NAME -- COMMAND [ARG...]   or   --observe NAME",
    .summary = "run a command while leader",
    .about =
        "Stands for election, runs the command while it leads, and stops it in time when it\n"
        "no longer does (see belay help run); then it stands again. When the command ends by\n"
        "itself, the leadership is given back and belay elect exits as it did.",
    .examples = "  belay elect scheduler --owner $(hostname) -- ./scheduler\n"
                "  belay elect --observe scheduler",
    .options = elect_options,
    .min_words = 1,
    .max_words = 1,
    .run = elect,
    .exit_text = run_exit_text,
    .usage_exit = RUN_USAGE,
    .words = "@lock",
};
