/* show.c - show and ls: locks as people read them. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>

enum { LS_PAGE = 200 };

static enum cli_color state_color(const char *state)
{
    if (strcmp(state, "exclusive") == 0)
        return CLI_RED;
    if (strcmp(state, "shared") == 0 || strcmp(state, "semaphore") == 0)
        return CLI_YELLOW;
    return strcmp(state, "closed") == 0 ? CLI_BLUE : CLI_GREEN;
}

static void cell_text(struct cli_table *t, const struct belay_reply *r, enum cli_color color)
{
    cli_cell_bytes(t, color, belay_text(r, "-"), r && r->kind == BELAY_TEXT ? r->len : 1);
}

static void head(struct cli_table *t, const char *const *names)
{
    for (size_t i = 0; i < t->columns; i++)
        cli_cell(t, CLI_BOLD, "%s", names[i]);
}

/* ---- show ------------------------------------------------------------------------------ */

static void put_holders(struct buf *out, const struct belay_reply *list, bool color)
{
    static const char *const names[] = {"HOLDER",  "MODE",    "FENCE", "HELD",
                                        "EXPIRES", "SESSION", ""};
    struct cli_table t = {.columns = 7, .right = {[2] = true, [3] = true, [4] = true}};
    if (!list || !list->count)
        return;
    head(&t, names);
    for (const struct belay_reply *h = list->first; h; h = h->next) {
        cell_text(&t, belay_get(h, "owner"), CLI_PLAIN);
        cell_text(&t, belay_get(h, "mode"), CLI_PLAIN);
        cli_cell(&t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(h, "fence"), 0));
        cli_cell_duration(&t, belay_int(belay_get(h, "held_ms"), -1));
        cli_cell_duration(&t, belay_int(belay_get(h, "expires_in_ms"), -1));
        cell_text(&t, belay_get(h, "session"), CLI_DIM);
        cli_cell(&t, CLI_RED, "%s", belay_int(belay_get(h, "overdue"), 0) ? "overdue" : "");
    }
    buf_put_byte(out, '\n');
    cli_table_put(&t, out, color);
}

static void put_waiters(struct buf *out, const struct belay_reply *list, bool color)
{
    static const char *const names[] = {"PLACE", "WAITER", "MODE", "TICKET", "WAITED", "LEFT"};
    struct cli_table t = {.columns = 6,
                          .right = {[0] = true, [3] = true, [4] = true, [5] = true}};
    if (!list || !list->count)
        return;
    head(&t, names);
    for (const struct belay_reply *w = list->first; w; w = w->next) {
        cli_cell(&t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(w, "position"), 0));
        cell_text(&t, belay_get(w, "owner"), CLI_PLAIN);
        cell_text(&t, belay_get(w, "mode"), CLI_PLAIN);
        cli_cell(&t, CLI_PLAIN, "%" PRId64, belay_int(belay_get(w, "ticket"), 0));
        cli_cell_duration(&t, belay_int(belay_get(w, "waited_ms"), -1));
        cli_cell_duration(&t, belay_int(belay_get(w, "expires_in_ms"), -1));
    }
    buf_put_byte(out, '\n');
    cli_table_put(&t, out, color);
}

void cli_put_lock(struct buf *out, const struct belay_reply *lock, bool color)
{
    const char *state = belay_text(belay_get(lock, "state"), "?");
    const struct belay_reply *name = belay_get(lock, "name"), *body = belay_get(lock, "body");
    cli_put_safe(out, belay_text(name, "?"), name ? name->len : 1);
    buf_printf(out, ": %s%s%s", cli_color(color, state_color(state)), state,
               cli_color(color, CLI_PLAIN));
    if (belay_get(lock, "of"))
        buf_printf(out, " of %" PRId64, belay_int(belay_get(lock, "of"), 0));
    if (belay_get(lock, "closed_ms")) {
        buf_put_str(out, " for ");
        cli_put_duration(out, belay_int(belay_get(lock, "closed_ms"), 0));
    }
    buf_put_byte(out, '\n');
    if (body && body->len) {
        buf_put_str(out, "body: ");
        cli_put_safe(out, body->text, body->len);
        buf_put_byte(out, '\n');
    }
    put_holders(out, belay_get(lock, "holders"), color);
    put_waiters(out, belay_get(lock, "waiters"), color);
}

static int show(struct cli *c)
{
    const struct belay_reply *r = NULL;
    struct buf out = {0};
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    int err = belay_show(c->belay, c->words[0], &r);
    if (err)
        return cli_fail(c, err);
    if (c->json)
        return cli_print_json(r);
    cli_put_lock(&out, r, c->color);
    return cli_flush(&out);
}

static const struct cli_option show_options[] = {
    {"stale", 0, CLI_FLAG, NULL,
     "answer at once from what this node knows, even without a majority"},
    {0},
};

const struct cli_command cli_cmd_show = {
    .name = "show",
    .options = show_options,
    .args = "NAME",
    .summary = "one lock: its holders, its line, its body",
    .about = "A lock that does not exist is shown as unlocked.",
    .examples = "  belay show deploy\n"
                "  belay show deploy --json | jq .holders",
    .min_words = 1,
    .max_words = 1,
    .run = show,
    .words = "@lock",
};

/* ---- ls -------------------------------------------------------------------------------- */

static int64_t count_of(const struct belay_reply *lock, const char *list, const char *total)
{
    const struct belay_reply *all = belay_get(lock, total), *rows = belay_get(lock, list);
    return all ? belay_int(all, 0) : rows ? (int64_t)rows->count : 0;
}

static void ls_row(struct cli_table *t, const struct belay_reply *lock)
{
    const char *state = belay_text(belay_get(lock, "state"), "?");
    const struct belay_reply *first = belay_at(belay_get(lock, "holders"), 0);
    int64_t holders = count_of(lock, "holders", "holders_total");
    struct buf who = {0};
    const struct belay_reply *owner = belay_get(first, "owner");
    if (owner)
        buf_put(&who, owner->text, owner->len);
    if (holders > 1)
        buf_printf(&who, " +%" PRId64, holders - 1);
    if (!owner)
        buf_put_str(&who, "-");
    cell_text(t, belay_get(lock, "name"), CLI_PLAIN);
    cli_cell(t, state_color(state), "%s", state);
    cli_cell_bytes(t, CLI_PLAIN, buf_cstr(&who), buf_len(&who));
    cli_cell_duration(t, belay_int(belay_get(first, "held_ms"), -1));
    cli_cell_duration(t, belay_int(belay_get(first, "expires_in_ms"), -1));
    cli_cell(t, CLI_PLAIN, "%" PRId64, count_of(lock, "waiters", "waiters_total"));
    buf_done(&who);
}

/* Every page; rows of --json are printed one a line, as they come. */
static int ls_pages(struct cli *c, struct cli_table *t, struct buf *out)
{
    struct cli_pages pages = {.prefix = c->n_words ? c->words[0] : NULL};
    int64_t left = cli_number(c, "limit", INT64_MAX);
    int err = BELAY_E_OK;
    while (!err && left > 0 && !pages.end) {
        const struct belay_reply *lock = NULL;
        pages.limit = left < LS_PAGE ? left : LS_PAGE;
        err = cli_page(c, &pages, &lock);
        for (; lock && !err; lock = lock->next) {
            left--;
            if (c->json) {
                cli_put_json(out, lock);
                buf_put_byte(out, '\n');
            } else {
                ls_row(t, lock);
            }
        }
    }
    buf_done(&pages.after);
    return err;
}

static int ls(struct cli *c)
{
    static const char *const names[] = {"NAME", "STATE", "HOLDER", "HELD", "EXPIRES", "LINE"};
    struct cli_table t = {.columns = 6, .right = {[3] = true, [4] = true, [5] = true}};
    struct buf out = {0};
    if (cli_given(c, "limit") && !cli_number(c, "limit", 0))
        return cli_usage(c, "--limit is at least 1");
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    if (!c->json)
        head(&t, names);
    int err = ls_pages(c, &t, &out);
    if (!c->json)
        cli_table_put(&t, &out, c->color);
    if (err) {
        buf_done(&out);
        return cli_fail(c, err);
    }
    return cli_flush(&out);
}

static const struct cli_option ls_options[] = {
    {"limit", 'l', CLI_NUMBER, "N", "at most N locks (all)"},
    {"stale", 0, CLI_FLAG, NULL,
     "answer at once from what this node knows, even without a majority"},
    {0},
};

const struct cli_command cli_cmd_ls = {
    .name = "ls",
    .args = "[PREFIX]",
    .summary = "locks in the order of their names",
    .about =
        "Lists every lock that is held, waited for, closed, or has a body. With --json it\nprints one line for each lock.",
    .examples = "  belay ls\n"
                "  belay ls db/ --limit 20\n"
                "  belay ls --json | jq -r 'select(.waiters|length>0).name'",
    .options = ls_options,
    .max_words = 1,
    .run = ls,
    .words = "@lock",
};
