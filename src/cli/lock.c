/* lock.c - acquire, release, renew, convert, check, body, show, ls, break: one call each. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>

/* ---- acquire --------------------------------------------------------------------------- */

static int exit_of_grant(const struct belay_grant *g)
{
    return g->status == BELAY_GRANTED     ? CLI_OK
           : g->status == BELAY_TIMED_OUT ? CLI_TIMED_OUT
                                          : CLI_NOT;
}

static void put_text_json(struct buf *out, const char *key, const char *text, size_t len)
{
    struct belay_reply r = {.kind = BELAY_TEXT, .text = text, .len = len};
    buf_printf(out, ",\"%s\":", key);
    cli_put_json(out, &r);
}

/* {"status": ..., as the HTTP door has it: one line, whatever the outcome. */
static void put_grant_json(struct cli *c, struct buf *out, const char *name,
                           const struct belay_grant *g, const char *owner)
{
    static const char *const words[] = {"granted", "queued", "refused", "timeout", "deadlock"};
    const struct belay_reply *lock = NULL;
    buf_printf(out, "{\"status\":\"%s\"", words[g->status]);
    if (g->status == BELAY_GRANTED) {
        buf_printf(out, ",\"fence\":%" PRIu64 ",\"expires_in_ms\":%" PRId64, g->fence,
                   g->expires_in_ms);
        put_text_json(out, "body", g->body, g->body_len);
    }
    if (g->status == BELAY_REFUSED)
        buf_printf(out, ",\"reason\":\"%s\"", g->reason);
    put_text_json(out, "owner", owner, strlen(owner));
    if (g->status != BELAY_GRANTED && (lock = cli_look(c, name))) {
        buf_put_str(out, ",\"lock\":");
        cli_put_json(out, lock);
    }
    buf_put_str(out, "}\n");
}

/* Who waits for whom: "a waits for x, b waits for y". */
static void put_cycle(struct buf *out, const struct belay_grant *g)
{
    const struct belay_reply *at = belay_at(g->reply, 1);
    for (bool first = true; at; at = at->next, first = false) {
        const struct belay_reply *owner = belay_at(at, 0), *name = belay_at(at, 1);
        buf_put_str(out, first ? ": " : ", ");
        cli_put_safe(out, belay_text(owner, "?"), owner ? owner->len : 1);
        buf_put_str(out, " waits for ");
        cli_put_safe(out, belay_text(name, "?"), name ? name->len : 1);
    }
}

static int say_refusal(const struct cli *c, const char *name, const struct belay_grant *g,
                       const char *owner)
{
    struct buf why = {0};
    if (g->status == BELAY_DEADLOCK) {
        buf_put_str(&why, "waiting would be a deadlock");
        put_cycle(&why, g);
    } else {
        bool over = g->status == BELAY_TIMED_OUT;
        char reason[32]; /* the look takes the answer's memory */
        snprintf(reason, sizeof reason, "%s", over ? "held" : g->reason);
        buf_put_str(&why, over ? "not obtained, the wait is over: " : "refused: ");
        cli_put_refusal(&why, reason, owner, cli_look(c, name));
    }
    int code = cli_error(exit_of_grant(g), "%s: %s", name, buf_cstr(&why));
    buf_done(&why);
    return code;
}

static void put_grant(struct buf *out, const struct belay_grant *g, const char *owner)
{
    buf_printf(out, "fence %" PRIu64 "\nowner ", g->fence);
    cli_put_safe(out, owner, strlen(owner));
    buf_put_str(out, "\nexpires in ");
    cli_put_duration(out, g->expires_in_ms);
    if (g->body_len) {
        buf_put_str(out, "\nbody ");
        cli_put_safe(out, g->body, g->body_len);
    }
    buf_put_byte(out, '\n');
}

/* In single quotes, in which a shell takes every byte as it is, but for the quote itself. */
static void put_quoted(struct buf *out, const char *text)
{
    buf_put_byte(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buf_put_str(out, "'\\'");
        buf_put_byte(out, *text);
    }
    buf_put_byte(out, '\'');
}

/* For eval: what `belay run` gives to its command. */
static void put_exports(const struct cli *c, struct buf *out, const char *name,
                        const struct belay_grant *g, const char *owner)
{
    const char *session = cli_text(c, "session", NULL);
    buf_put_str(out, "export BELAY_LOCK=");
    put_quoted(out, name);
    buf_printf(out, " BELAY_FENCE=%" PRIu64 " BELAY_OWNER=", g->fence);
    put_quoted(out, owner);
    if (session) {
        buf_put_str(out, " BELAY_SESSION=");
        put_quoted(out, session);
    }
    buf_put_byte(out, '\n');
}

static bool is_wanted(const struct cli *c, const char *flag)
{
    return cli_has_option(c, flag) && cli_given(c, flag);
}

static int print_grant(struct cli *c, const char *name, const struct belay_grant *g,
                       const char *owner)
{
    struct buf out = {0};
    int code = exit_of_grant(g);
    if (c->json)
        put_grant_json(c, &out, name, g, owner);
    else if (g->status != BELAY_GRANTED)
        return say_refusal(c, name, g, owner);
    else if (is_wanted(c, "fence-only"))
        buf_printf(&out, "%" PRIu64 "\n", g->fence);
    else if (is_wanted(c, "export"))
        put_exports(c, &out, name, g, owner);
    else
        put_grant(&out, g, owner);
    int failed = cli_flush(&out);
    return failed ? failed : code;
}

static int parse_policy(const struct cli *c, struct belay_acquire *want)
{
    const char *policy = cli_text(c, "policy", "hard");
    want->quiet_ms = cli_number(c, "quiet", 0);
    if (strcmp(policy, "hard") == 0)
        want->policy = BELAY_HARD;
    else if (strcmp(policy, "soft") == 0)
        want->policy = BELAY_SOFT;
    else if (strcmp(policy, "timed") == 0)
        want->policy = BELAY_TIMED;
    else
        return cli_usage(c, "--policy is hard, soft or timed, not \"%s\"", policy);
    if ((want->policy == BELAY_TIMED) != cli_given(c, "quiet"))
        return cli_usage(c, "--policy timed and --quiet D belong together");
    return CLI_OK;
}

int cli_parse_kind(const struct cli *c, struct belay_acquire *want)
{
    int64_t of = cli_number(c, "semaphore", 1), permits = cli_number(c, "permits", 1);
    bool semaphore = cli_given(c, "semaphore"), shared = cli_given(c, "shared");
    if (cli_given(c, "permits") && !semaphore)
        return cli_usage(c, "--permits K is for a --semaphore N");
    if (of < 1)
        return cli_usage(c, "a semaphore has at least one permit");
    if (of > CLI_PERMITS_MAX)
        return cli_usage(c, "a semaphore has at most %d permits", CLI_PERMITS_MAX);
    if (permits < 1 || permits > of)
        return cli_usage(c, "--permits K is 1 to %" PRId64 ": there are not more", of);
    if (semaphore && shared)
        return cli_usage(c, "a semaphore is not shared: it has permits");
    want->mode = shared ? BELAY_SHARED : BELAY_EXCLUSIVE;
    want->of = semaphore ? (unsigned)of : 0;
    want->permits = semaphore ? (unsigned)permits : 0;
    return CLI_OK;
}

static int acquire_now(struct cli *c)
{
    char space[CLI_OWNER_BYTES];
    struct belay_grant g;
    struct belay_acquire want = {
        .name = c->words[0],
        .owner = cli_text(c, "owner", NULL),
        .session = cli_text(c, "session", NULL),
        .ttl_ms = cli_number(c, "ttl", 0),
        .wait_ms = cli_number(c, "wait", 0),
        .grace_ms = cli_number(c, "grace", 0),
        .delay_ms = cli_number(c, "delay", 0),
        .body = cli_text(c, "body", NULL),
    };
    int code = parse_policy(c, &want);
    if (code == CLI_OK)
        code = cli_parse_kind(c, &want);
    if (code == CLI_OK && c->json + cli_given(c, "export") + cli_given(c, "fence-only") > 1)
        code = cli_usage(c, "--json, --export and --fence-only exclude each other");
    if (code != CLI_OK)
        return code;
    if (cli_given(c, "ttl") && want.ttl_ms == 0)
        want.ttl_ms = BELAY_FOREVER;
    if (!want.owner)
        want.owner = cli_unique_owner(space);
    want.body_len = want.body ? strlen(want.body) : 0;
    code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_acquire(c->belay, &want, &g);
    return err ? cli_fail(c, err) : print_grant(c, want.name, &g, want.owner);
}

/* A shell that evaluates nothing is content: without a grant it shall fail as we do, and forget
 * the fence of another lock. */
static int acquire(struct cli *c)
{
    int code = acquire_now(c);
    if (code != CLI_OK && cli_given(c, "export"))
        printf("unset BELAY_LOCK BELAY_FENCE BELAY_OWNER BELAY_SESSION; (exit %d)\n", code);
    return code;
}

static const struct cli_option acquire_options[] = {
    {"owner", 'o', CLI_TEXT, "WHO", "who holds it (host:pid:random, printed)"},
    {"ttl", 't', CLI_DURATION, "D", "how long it lasts without renewal (30s; 0: its session)"},
    {"wait", 'w', CLI_WAIT, "D", "wait in line this long, or forever (0)"},
    {"shared", 's', CLI_FLAG, NULL, "together with other shared holders"},
    {"semaphore", 0, CLI_NUMBER, "N", "it is a semaphore with N permits"},
    {"permits", 0, CLI_NUMBER, "K", "take K of them, all or none (1)"},
    {"session", 0, CLI_TEXT, "ID", "release it when that session ends"},
    {"grace", 0, CLI_DURATION, "D", "after its TTL keep it for this long, as overdue"},
    {"delay", 0, CLI_DURATION, "D", "after an involuntary loss nobody gets it for this long"},
    {"policy", 0, CLI_TEXT, "P",
     "does a waiting exclusive block later shared ones: hard, soft, timed"},
    {"quiet", 0, CLI_DURATION, "D", "timed: wait for this long without a new shared holder"},
    {"body", 'b', CLI_TEXT, "TEXT", "set the lock's body on the grant"},
    {"fence-only", 'q', CLI_FLAG, NULL, "print the fence and nothing else"},
    {"export", 0, CLI_FLAG, NULL,
     "print BELAY_LOCK, BELAY_FENCE and BELAY_OWNER for eval in a shell"},
    {0},
};

const struct cli_command cli_cmd_acquire = {
    .name = "acquire",
    .args = "NAME",
    .summary = "take a lock, or wait in its line",
    .about = "Prints the fence, which only grows: give it to the resource, and let it refuse\n"
             "smaller ones. Nothing renews the lock afterwards; belay run does that.\n"
             "Exits with 1 when it is refused, with 4 when the wait is over; then it says who\n"
             "holds the lock, and since when.\n\n"
             "For shells: fence=$(belay acquire -q NAME) || exit, or\n"
             "eval \"$(belay acquire --export NAME)\" || exit, which sets the variables that\n"
             "belay run gives to its command.",
    .examples = "  belay acquire deploy --owner ci-7 --ttl 10m --wait 1m\n"
                "  belay acquire reports --shared --wait forever\n"
                "  belay acquire licences --semaphore 5 --permits 2\n"
                "  eval \"$(belay acquire deploy --export)\" || exit",
    .options = acquire_options,
    .min_words = 1,
    .max_words = 1,
    .run = acquire,
    .words = "@lock",
};

/* ---- what a holder does ---------------------------------------------------------------- */

static const struct cli_option hold_options[] = {
    {"fence", 'f', CLI_NUMBER, "N", "the hold with this fence"},
    {"owner", 'o', CLI_TEXT, "WHO", "the holds of this owner"},
    {0},
};

/* Exactly one of --fence and --owner; then connects. */
static int hold_of(struct cli *c, uint64_t *ret_fence, const char **ret_owner)
{
    *ret_fence = (uint64_t)cli_number(c, "fence", 0);
    *ret_owner = cli_text(c, "owner", NULL);
    if (cli_given(c, "fence") == cli_given(c, "owner"))
        return cli_usage(c, "which hold? --fence N or --owner WHO");
    if (cli_given(c, "fence") && *ret_fence == 0)
        return cli_usage(c, "fences begin with 1");
    return cli_connect(c);
}

/* {"released":true} or a word, and the exit status that fits. */
static int say(const struct cli *c, const char *key, bool yes, const char *word)
{
    if (c->json)
        printf("{\"%s\":%s}\n", key, yes ? "true" : "false");
    else
        printf("%s\n", word);
    return yes ? CLI_OK : CLI_NOT;
}

static int release(struct cli *c)
{
    uint64_t fence;
    const char *owner;
    bool held = false;
    int code = hold_of(c, &fence, &owner);
    if (code != CLI_OK)
        return code;
    int err = belay_release(c->belay, c->words[0], fence, owner, &held);
    return err ? cli_fail(c, err) : say(c, "released", held, held ? "released" : "not held");
}

const struct cli_command cli_cmd_release = {
    .name = "release",
    .args = "NAME --fence N | --owner WHO",
    .summary = "give a lock back",
    .about = "Exits with 1 when it was not held (any more): nothing has changed then.\n"
             "By owner it also takes that owner out of the line.",
    .examples = "  belay release deploy --fence 17\n"
                "  belay release deploy --owner ci-7",
    .options = hold_options,
    .min_words = 1,
    .max_words = 1,
    .run = release,
    .words = "@lock",
};

static int renew(struct cli *c)
{
    uint64_t fence;
    const char *owner;
    int64_t left = 0;
    int code = hold_of(c, &fence, &owner);
    if (code != CLI_OK)
        return code;
    int err = belay_renew(c->belay, c->words[0], fence, owner, cli_number(c, "ttl", 0), &left);
    if (err)
        return cli_fail(c, err);
    struct buf out = {0};
    if (c->json) {
        buf_printf(&out, "{\"expires_in_ms\":%" PRId64 "}\n", left);
    } else {
        buf_put_str(&out, "expires in ");
        cli_put_duration(&out, left);
        buf_put_byte(&out, '\n');
    }
    return cli_flush(&out);
}

static const struct cli_option renew_options[] = {
    {"fence", 'f', CLI_NUMBER, "N", "the hold with this fence"},
    {"owner", 'o', CLI_TEXT, "WHO", "the oldest hold of this owner"},
    {"ttl", 't', CLI_DURATION, "D", "the new lease, from now (its last TTL)"},
    {0},
};

const struct cli_command cli_cmd_renew = {
    .name = "renew",
    .args = "NAME --fence N | --owner WHO",
    .summary = "keep a lock longer, counted from now",
    .about = "Exits with 1 (STALE) when it is not held any more.",
    .examples = "  belay renew deploy --fence 17 --ttl 10m",
    .options = renew_options,
    .min_words = 1,
    .max_words = 1,
    .run = renew,
    .words = "@lock",
};

static int convert(struct cli *c)
{
    struct belay_grant g;
    bool shared = cli_given(c, "shared");
    uint64_t fence = (uint64_t)cli_number(c, "fence", 0);
    if (shared == cli_given(c, "exclusive"))
        return cli_usage(c, "to what? --shared or --exclusive");
    if (fence == 0)
        return cli_usage(c, "which hold? --fence N");
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err =
        belay_convert(c->belay, c->words[0], fence, shared ? BELAY_SHARED : BELAY_EXCLUSIVE,
                      cli_number(c, "wait", 0), &g);
    return err ? cli_fail(c, err) : print_grant(c, c->words[0], &g, "");
}

static const struct cli_option convert_options[] = {
    {"fence", 'f', CLI_NUMBER, "N", "the hold with this fence"},
    {"shared", 's', CLI_FLAG, NULL, "let other shared holders in"},
    {"exclusive", 'x', CLI_FLAG, NULL, "become the only holder"},
    {"wait", 'w', CLI_WAIT, "D", "wait this long for the others to go (0)"},
    {0},
};

const struct cli_command cli_cmd_convert = {
    .name = "convert",
    .args = "NAME --fence N --shared | --exclusive",
    .summary = "change a held lock between shared and exclusive",
    .about =
        "The lock is held all the time. It gets a new fence. Of two holders that both want\n"
        "to become the only one, the second is told so (deadlock) at once.",
    .examples = "  belay convert reports --fence 17 --exclusive --wait 10s",
    .options = convert_options,
    .min_words = 1,
    .max_words = 1,
    .run = convert,
    .words = "@lock",
};

static int check(struct cli *c)
{
    uint64_t fence;
    const char *owner;
    bool current = false;
    int code = hold_of(c, &fence, &owner);
    if (code != CLI_OK)
        return code;
    int err = belay_check(c->belay, c->words[0], fence, owner, &current);
    return err ? cli_fail(c, err) : say(c, "current", current, current ? "current" : "stale");
}

const struct cli_command cli_cmd_check = {
    .name = "check",
    .args = "NAME --fence N | --owner WHO",
    .summary = "is this fence (or owner) a current holder?",
    .about = "Exits with 0 when it is, with 1 when it is stale.",
    .examples = "  belay check deploy --fence $BELAY_FENCE || exit 1",
    .options = hold_options,
    .min_words = 1,
    .max_words = 1,
    .run = check,
    .words = "@lock",
};

static int body(struct cli *c)
{
    const struct belay_reply *r = NULL;
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    if (c->n_words == 2) {
        if (!cli_number(c, "fence", 0))
            return cli_usage(c, "only the holder sets it: --fence N");
        int err = belay_body(c->belay, c->words[0], (uint64_t)cli_number(c, "fence", 0),
                             c->words[1], strlen(c->words[1]));
        return cli_done(c, err);
    }
    int err = belay_show(c->belay, c->words[0], &r);
    if (err)
        return cli_fail(c, err);
    const struct belay_reply *text = belay_get(r, "body");
    struct buf out = {0};
    if (text && c->json) {
        cli_put_json(&out, text);
        buf_put_byte(&out, '\n');
    } else if (text) {
        buf_put(&out, text->text, text->len); /* as it is: this is the command to fetch it */
    }
    return cli_flush(&out);
}

static const struct cli_option body_options[] = {
    {"fence", 'f', CLI_NUMBER, "N", "to set it: the fence of your hold"},
    {0},
};

const struct cli_command cli_cmd_body = {
    .name = "body",
    .args = "NAME [TEXT --fence N]",
    .summary = "print a lock's body, or set it",
    .about = "The body survives release and expiry, and the next holder gets it. Use it for\n"
             "state that the next run needs. It is printed as it is, without a line end.",
    .examples = "  belay body import\n"
                "  belay body import last=4711 --fence 17",
    .options = body_options,
    .min_words = 1,
    .max_words = 2,
    .run = body,
    .words = "@lock",
};

/* ---- what an operator does ------------------------------------------------------------- */

static int break_lock(struct cli *c)
{
    int64_t count = 0;
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_break_for(c->belay, c->words[0], cli_text(c, "reason", NULL), &count);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        printf("{\"broken\":%" PRId64 "}\n", count);
    else
        printf("%" PRId64 " holder%s lost it\n", count, count == 1 ? "" : "s");
    return count ? CLI_OK : CLI_NOT;
}

static const struct cli_option break_options[] = {
    {"reason", 'r', CLI_TEXT, "TEXT", "the reason, for watchers and the audit log"},
    {0},
};

const struct cli_command cli_cmd_break = {
    .name = "break",
    .args = "NAME",
    .summary = "take a lock away from its holders, by force",
    .about = "The holders are told, their fences become stale, and the next in line gets it.\n"
             "Exits with 1 when nobody held it.",
    .examples = "  belay break deploy\n"
                "  belay break deploy --reason 'runner 4 is gone, ticket 812'",
    .options = break_options,
    .min_words = 1,
    .max_words = 1,
    .run = break_lock,
    .words = "@lock",
};
