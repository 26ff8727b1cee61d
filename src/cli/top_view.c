/* top_view.c - what `belay top` shows: rows, order, filter and one frame of the screen. */
#include "cli/top.h"

#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The fixed columns; name and holder share what is left. */
enum {
    W_STATE = 9,
    W_HELD = 6,
    W_EXPIRES = 7,
    W_LINE = 5,
    W_WAIT = 6,
    W_GAPS = 6,
    HEAD_LINES = 2
};

/* ---- rows ------------------------------------------------------------------------------ */

static void copy_safe(char *to, const struct belay_reply *text)
{
    struct buf safe = {0};
    if (text && text->kind == BELAY_TEXT)
        cli_put_safe(&safe, text->text, text->len);
    size_t len = buf_len(&safe) < TOP_NAME_BYTES ? buf_len(&safe) : TOP_NAME_BYTES - 1;
    while (len < buf_len(&safe) && ((unsigned char)buf_cstr(&safe)[len] & 0xc0) == 0x80)
        len--; /* whole characters */
    memcpy(to, buf_cstr(&safe), len);
    to[len] = '\0';
    buf_done(&safe);
}

/* Without it the lock cannot be chosen. */
static void copy_raw(struct top_row *row, const struct belay_reply *text)
{
    bool fits = text && text->kind == BELAY_TEXT && text->len <= TOP_CHOSEN_BYTES;
    row->raw = fits ? malloc(text->len + 1) : NULL;
    row->raw_len = row->raw ? text->len : 0;
    if (row->raw)
        memcpy(row->raw, text->text, text->len);
}

static int64_t total_of(const struct belay_reply *lock, const char *list, const char *total)
{
    const struct belay_reply *rows = belay_get(lock, list), *all = belay_get(lock, total);
    return all ? belay_int(all, 0) : rows ? (int64_t)rows->count : 0;
}

static char *json_of(const struct belay_reply *lock)
{
    struct buf text = {0};
    cli_put_json(&text, lock);
    char *copy = text.oom ? NULL : strdup(buf_cstr(&text));
    buf_done(&text);
    return copy;
}

bool top_add(struct top_view *v, const struct belay_reply *lock)
{
    if (v->n_rows == TOP_ROWS_MAX) {
        v->cut = true;
        return false;
    }
    if (v->n_rows == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 64;
        struct top_row *rows = realloc(v->rows, cap * sizeof *rows);
        if (!rows)
            return false;
        v->rows = rows;
        v->cap = cap;
    }
    struct top_row *row = &v->rows[v->n_rows++];
    const struct belay_reply *holder = belay_at(belay_get(lock, "holders"), 0);
    *row = (struct top_row){.held_ms = -1, .expires_ms = -1, .wait_ms = -1};
    if (v->json && !(row->json = json_of(lock))) {
        v->n_rows--;
        return false;
    }
    copy_safe(row->name, belay_get(lock, "name"));
    copy_raw(row, belay_get(lock, "name"));
    copy_safe(row->holder, belay_get(holder, "owner"));
    snprintf(row->state, sizeof row->state, "%s", belay_text(belay_get(lock, "state"), "?"));
    row->holders = total_of(lock, "holders", "holders_total");
    row->line = total_of(lock, "waiters", "waiters_total");
    if (holder) {
        row->held_ms = belay_int(belay_get(holder, "held_ms"), -1);
        row->expires_ms = belay_int(belay_get(holder, "expires_in_ms"), -1);
    }
    for (const struct belay_reply *w = belay_at(belay_get(lock, "waiters"), 0); w;
         w = w->next) {
        int64_t waited = belay_int(belay_get(w, "waited_ms"), -1);
        row->wait_ms = waited > row->wait_ms ? waited : row->wait_ms;
    }
    return true;
}

static int64_t key_of(const struct top_row *row, enum top_sort sort)
{
    switch (sort) {
    case TOP_BY_HELD:
        return row->held_ms;
    case TOP_BY_EXPIRES: /* what ends first is of interest; what never ends comes last */
        return row->expires_ms < 0 ? INT64_MIN : -row->expires_ms;
    case TOP_BY_LINE:
        return row->line;
    case TOP_BY_WAIT:
        return row->wait_ms;
    case TOP_BY_NAME:
    case TOP_SORTS:
        break;
    }
    return 0;
}

/* Largest first; the same by name. */
static int compare(const void *a, const void *b, void *arg)
{
    const struct top_row *x = a, *y = b;
    const struct top_view *v = arg;
    int64_t kx = key_of(x, v->sort), ky = key_of(y, v->sort);
    int c = kx > ky ? -1 : kx < ky ? 1 : strcmp(x->name, y->name);
    return v->reverse ? -c : c;
}

void top_order(struct top_view *v)
{
    if (v->n_rows)
        qsort_r(v->rows, v->n_rows, sizeof *v->rows, compare, v);
}

static bool passes(const struct top_view *v, const struct top_row *row)
{
    return !v->filter[0] || strstr(row->name, v->filter) || strstr(row->holder, v->filter);
}

size_t top_shown(const struct top_view *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n_rows; i++)
        n += passes(v, &v->rows[i]);
    return n;
}

void top_stay_within(struct top_view *v)
{
    size_t n = top_shown(v);
    if (v->at >= n)
        v->at = n ? n - 1 : 0;
}

void top_view_done(struct top_view *v)
{
    for (size_t i = 0; i < v->n_rows; i++) {
        free(v->rows[i].json);
        free(v->rows[i].raw);
    }
    free(v->rows);
    v->rows = NULL;
    v->n_rows = v->cap = 0;
}

/* ---- a frame --------------------------------------------------------------------------- */

/* Exactly `width` columns: padded, or cut with a '~'. */
static void put_fit(struct buf *out, const char *text, size_t width, bool right)
{
    size_t len = strlen(text), n = cli_columns(text, len);
    for (size_t i = n; right && i < width; i++)
        buf_put_byte(out, ' ');
    if (n > width) { /* half of a wide character is a blank */
        len = cli_fit(text, len, width - 1);
        n = cli_columns(text, len) + 1;
        buf_put(out, text, len);
        buf_put_byte(out, '~');
    } else {
        buf_put(out, text, len);
    }
    for (size_t i = n; !right && i < width; i++)
        buf_put_byte(out, ' ');
}

static void put_ms(struct buf *out, int64_t ms, size_t width)
{
    struct buf text = {0};
    cli_put_duration(&text, ms);
    put_fit(out, buf_cstr(&text), width, true);
    buf_done(&text);
}

static void name_widths(const struct top_view *v, size_t *ret_name, size_t *ret_holder)
{
    size_t fixed = W_STATE + W_HELD + W_EXPIRES + W_LINE + W_WAIT + W_GAPS;
    size_t columns = v->columns < TOP_COLUMNS_MIN ? TOP_COLUMNS_MIN : v->columns;
    *ret_name = (columns - fixed) * 3 / 5;
    *ret_holder = columns - fixed - *ret_name;
}

static void put_line(const struct top_view *v, struct buf *line, const char *on,
                     struct buf *out)
{
    buf_put_str(out, on);
    put_fit(out, buf_cstr(line), v->columns, false);
    if (on[0])
        buf_put_str(out, "\033[0m");
    buf_done(line);
}

static void put_counts(const struct top_view *v, struct buf *out)
{
    static const char *const names[] = {"name", "held", "expires", "line", "wait"};
    struct buf line = {0};
    int64_t held = 0, waiting = 0;
    for (size_t i = 0; i < v->n_rows; i++) {
        held += v->rows[i].holders > 0;
        waiting += v->rows[i].line;
    }
    buf_printf(&line, "belay top  %s/%s  ", v->addr, v->ns);
    if (v->typing)
        buf_printf(&line, "filter: %s_", v->filter);
    else if (v->error[0])
        buf_put_str(&line, v->error);
    else
        buf_printf(&line, "%zu%s locks, %" PRId64 " held, %" PRId64 " waiting  by %s%s%s%s",
                   v->n_rows, v->cut ? "+" : "", held, waiting, names[v->sort],
                   v->reverse ? " reversed" : "", v->filter[0] ? "  /" : "", v->filter);
    put_line(v, &line, v->error[0] && !v->typing ? cli_color(v->color, CLI_RED) : "", out);
}

static void put_head(const struct top_view *v, struct buf *out)
{
    struct buf line = {0};
    size_t name, holder;
    name_widths(v, &name, &holder);
    put_fit(&line, "NAME", name, false);
    buf_put_byte(&line, ' ');
    put_fit(&line, "STATE", W_STATE, false);
    buf_put_byte(&line, ' ');
    put_fit(&line, "HOLDER", holder, false);
    buf_put_byte(&line, ' ');
    put_fit(&line, "HELD", W_HELD, true);
    buf_put_byte(&line, ' ');
    put_fit(&line, "EXPIRES", W_EXPIRES, true);
    buf_put_byte(&line, ' ');
    put_fit(&line, "LINE", W_LINE, true);
    buf_put_byte(&line, ' ');
    put_fit(&line, "WAIT", W_WAIT, true);
    put_line(v, &line, cli_color(v->color, CLI_BOLD), out);
}

static void put_row(const struct top_view *v, const struct top_row *row, bool marked,
                    struct buf *out)
{
    struct buf line = {0}, who = {0};
    size_t name, holder;
    name_widths(v, &name, &holder);
    buf_put_str(&who, row->holder[0] ? row->holder : "-");
    if (row->holders > 1)
        buf_printf(&who, " +%" PRId64, row->holders - 1);
    put_fit(&line, row->name, name, false);
    buf_put_byte(&line, ' ');
    put_fit(&line, row->state, W_STATE, false);
    buf_put_byte(&line, ' ');
    put_fit(&line, buf_cstr(&who), holder, false);
    buf_put_byte(&line, ' ');
    put_ms(&line, row->held_ms, W_HELD);
    buf_put_byte(&line, ' ');
    put_ms(&line, row->expires_ms, W_EXPIRES);
    buf_printf(&line, " %*" PRId64 " ", W_LINE, row->line);
    put_ms(&line, row->wait_ms, W_WAIT);
    const char *color = row->line ? cli_color(v->color, CLI_YELLOW) : "";
    put_line(v, &line, marked ? "\033[7m" : color, out);
    buf_done(&who);
}

static void draw_rows(const struct top_view *v, size_t left, struct buf *out)
{
    size_t skip = v->at >= left ? v->at - left + 1 : 0, n = 0;
    put_head(v, out);
    for (size_t i = 0; i < v->n_rows && left; i++) {
        if (!passes(v, &v->rows[i]) || n++ < skip)
            continue;
        buf_put_str(out, "\r\n");
        put_row(v, &v->rows[i], v->marks && n - 1 == v->at, out);
        left--;
    }
    for (; left; left--) {
        struct buf empty = {0};
        buf_put_str(out, "\r\n");
        put_line(v, &empty, "", out);
    }
}

static const char *next_line(const char *text)
{
    size_t len = strcspn(text, "\n");
    return text + len + (text[len] == '\n');
}

/* Lines of text, from the `skip`-th on, in `n` lines of the screen. */
static void draw_text(const struct top_view *v, const char *text, size_t skip, size_t n,
                      struct buf *out)
{
    while (skip--)
        text = next_line(text);
    for (size_t i = 0; i < n; i++, text = next_line(text)) {
        struct buf line = {0};
        buf_put(&line, text, strcspn(text, "\n"));
        buf_put_str(out, i ? "\r\n" : "");
        put_line(v, &line, "", out);
    }
}

static const char help_text[] =
    "n h e l w   sort by name, time held, expiry, line, longest wait; r reverses\n"
    "/           filter: names or holders that contain it; Enter keeps it, Escape\n"
    "            drops it\n"
    "j k g       down, up, to the first one; also the arrows\n"
    "Enter       the marked lock: all its holders, its line, its body\n"
    "?           this page\n"
    "q           leave; Ctrl-C, too. Ctrl-Z stops it until fg\n"
    "\n"
    "HELD        for how long the first holder has it\n"
    "EXPIRES     what is left of its lease\n"
    "LINE        how many wait\n"
    "WAIT        the longest wait of them\n"
    "\n"
    "A yellow row has a line. If the server does not answer, the first line says for\n"
    "how long, and the rest is what was known before.\n";

void top_draw(const struct top_view *v, struct buf *out)
{
    static const char *const keys[] = {
        [TOP_LIST] =
            "? help  q quit  n h e l w sort  r reverse  / filter  j k  Enter: one lock",
        [TOP_LOCK] = "Escape back  j k scroll",
        [TOP_HELP] = "any key goes back"};
    size_t left = v->lines > HEAD_LINES + 1 ? v->lines - HEAD_LINES - 1 : 1;
    struct buf line = {0};
    put_counts(v, out);
    buf_put_str(out, "\r\n");
    if (v->page == TOP_LIST)
        draw_rows(v, left, out);
    else if (v->page == TOP_LOCK)
        draw_text(v, v->detail ? v->detail : "", v->line, left + 1, out);
    else
        draw_text(v, help_text, 0, left + 1, out);
    buf_put_str(out, "\r\n");
    buf_put_str(&line, keys[v->page]);
    put_line(v, &line, cli_color(v->color, CLI_DIM), out);
}

void top_put_json(const struct top_view *v, struct buf *out)
{
    for (size_t i = 0; i < v->n_rows; i++)
        if (passes(v, &v->rows[i]))
            buf_printf(out, "%s\n", v->rows[i].json);
}

/* ---- keys ------------------------------------------------------------------------------ */

static void type(struct top_view *v, char key)
{
    size_t n = strlen(v->filter);
    if (key == '\r' || key == '\n') {
        v->typing = false;
    } else if (key == '\033') { /* Escape: no filter */
        v->typing = false;
        v->filter[0] = '\0';
    } else if (key == 127 || key == '\b') {
        while (n && ((unsigned char)v->filter[n - 1] & 0xc0) == 0x80)
            n--; /* a whole code point */
        v->filter[n ? n - 1 : 0] = '\0';
    } else if (((unsigned char)key >= ' ') && n + 1 < sizeof v->filter) {
        v->filter[n] = key;
        v->filter[n + 1] = '\0';
    }
    v->at = 0;
}

/* The marked row, if there is one. */
static void choose(struct top_view *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct top_row *row = &v->rows[i];
        if (!passes(v, row) || n++ != v->at || !row->raw)
            continue;
        memcpy(v->chosen, row->raw, row->raw_len);
        v->chosen_len = row->raw_len;
        v->line = 0;
        free(v->detail);
        v->detail = NULL;
        v->page = TOP_LOCK;
    }
}

/* On another page than the list. */
static void other_key(struct top_view *v, char key)
{
    size_t lines = 0;
    for (const char *at = v->detail; at && *at; at++)
        lines += *at == '\n';
    if (v->page == TOP_LOCK && key == 'j')
        v->line += v->line + 1 < lines;
    else if (v->page == TOP_LOCK && key == 'k')
        v->line -= v->line > 0;
    else if (key)
        v->page = TOP_LIST;
}

bool top_key(struct top_view *v, char key)
{
    static const char sorts[] = {[TOP_BY_NAME] = 'n',
                                 [TOP_BY_HELD] = 'h',
                                 [TOP_BY_EXPIRES] = 'e',
                                 [TOP_BY_LINE] = 'l',
                                 [TOP_BY_WAIT] = 'w'};
    if (v->typing) {
        type(v, key);
        return true;
    }
    if (v->page != TOP_LIST) {
        other_key(v, key);
        return key != 3;
    }
    for (size_t i = 0; i < sizeof sorts; i++) {
        if (key == sorts[i]) {
            v->sort = (enum top_sort)i;
            v->reverse = false;
        }
    }
    if (key == 'r')
        v->reverse = !v->reverse;
    if (key == '/')
        v->typing = true;
    if (key == '?')
        v->page = TOP_HELP;
    if (key == '\r' || key == '\n')
        choose(v);
    if (key == 'j' && v->at + 1 < top_shown(v))
        v->at++;
    if (key == 'k' && v->at)
        v->at--;
    if (key == 'g')
        v->at = 0;
    return key != 'q' && key != 3; /* Ctrl-C, should the terminal hand it over */
}
