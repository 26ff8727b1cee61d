/* watch.c - what happens to locks, one line each, until it is interrupted. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct watching {
    const struct cli *c;
    int64_t left; /* events to print; <= 0 after the last */
    int code;     /* CLI_OK while all is well */
};

static enum cli_color event_color(const char *event)
{
    static const struct {
        const char *event;
        enum cli_color color;
    } colors[] = {{"granted", CLI_GREEN},  {"queued", CLI_YELLOW},     {"expired", CLI_RED},
                  {"broken", CLI_RED},     {"session-ended", CLI_RED}, {"timeout", CLI_YELLOW},
                  {"overdue", CLI_YELLOW}, {"renewed", CLI_DIM}};
    for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++)
        if (strcmp(colors[i].event, event) == 0)
            return colors[i].color;
    return CLI_PLAIN;
}

static void put_text(struct buf *out, const struct belay_reply *event, const char *key,
                     const char *before)
{
    const struct belay_reply *v = belay_get(event, key);
    if (!v || v->kind != BELAY_TEXT || v->len == 0)
        return;
    buf_put_str(out, before);
    cli_put_safe(out, v->text, v->len);
}

static void put_number(struct buf *out, const struct belay_reply *event, const char *key,
                       const char *before)
{
    const struct belay_reply *v = belay_get(event, key);
    if (v)
        buf_printf(out, "%s%" PRId64, before, belay_int(v, 0));
}

/* 09:41:07.123 granted    deploy  owner=ci-7 fence=17 waited=1.2s */
static void put_event(struct buf *out, const struct belay_reply *event, bool color)
{
    struct timespec now = {0};
    struct tm day = {0};
    const char *what = belay_text(belay_get(event, "event"), "?");
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &day);
    enum cli_color mark = event_color(what);
    buf_printf(out, "%02d:%02d:%02d.%03ld %s%-14s%s", day.tm_hour, day.tm_min, day.tm_sec,
               now.tv_nsec / 1000000, mark ? cli_color(color, mark) : "", what,
               mark ? cli_color(color, CLI_PLAIN) : "");
    put_text(out, event, "name", " ");
    put_text(out, event, "owner", "  owner=");
    put_text(out, event, "mode", " mode=");
    put_number(out, event, "fence", " fence=");
    put_number(out, event, "ticket", " ticket=");
    put_number(out, event, "position", " place=");
    put_text(out, event, "reason", " reason=");
    put_text(out, event, "session", " session=");
    put_text(out, event, "by", " by=");
    put_text(out, event, "why", " why=");
    buf_put_byte(out, '\n');
}

static void on_event(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    struct watching *w = arg;
    struct buf out = {0};
    (void)b;
    if (err) {
        cli_notice("%s; some news were missed", belay_code_text(err));
        return;
    }
    if (w->left <= 0)
        return;
    w->left--;
    if (w->c->json) {
        cli_put_json(&out, event);
        buf_put_byte(&out, '\n');
    } else {
        put_event(&out, event, w->c->color);
    }
    int code = cli_flush(&out);
    if (code != CLI_OK)
        w->code = code;
}

static int watch(struct cli *c)
{
    struct watching w = {.c = c, .left = cli_number(c, "count", INT64_MAX)};
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_watch(c->belay, c->n_words ? c->words[0] : NULL,
                          (uint64_t)cli_number(c, "since", 0), on_event, &w);
    if (err)
        return cli_fail(c, err);
    bool down = false;
    while (w.left > 0 && w.code == CLI_OK) {
        err = belay_poll(c->belay, BELAY_FOREVER);
        if (err && !down)
            cli_notice("%s; trying again", belay_error(c->belay));
        down = err ? true : down && !belay_is_connected(c->belay);
    }
    return w.code;
}

static const struct cli_option watch_options[] = {
    {"since", 0, CLI_NUMBER, "SEQ", "also show earlier events, from behind this number"},
    {"count", 'c', CLI_NUMBER, "N", "stop after N events"},
    {0},
};

const struct cli_command cli_cmd_watch = {
    .name = "watch",
    .args = "[PREFIX]",
    .summary = "show events of locks as they happen",
    .about =
        "One line an event: granted, queued, released, expired, broken and so on. Goes on\n"
        "after the server was away, from where it stopped if the server still knows.",
    .examples = "  belay watch\n"
                "  belay watch db/ --json | jq .event",
    .options = watch_options,
    .max_words = 1,
    .run = watch,
    .words = "@lock",
};
