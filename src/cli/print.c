/* print.c - what is printed: JSON for scripts, tables for people, never raw bytes of strangers.
 */
#include "base/check.h"
#include "cli/cli.h"
#include "proto/json.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

bool cli_color_wanted(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no && no[0]) && term && strcmp(term, "dumb") != 0;
}

const char *cli_color(bool on, enum cli_color color)
{
    static const char *const codes[] = {
        [CLI_PLAIN] = "\033[0m", [CLI_BOLD] = "\033[1m",   [CLI_DIM] = "\033[2m",
        [CLI_RED] = "\033[31m",  [CLI_GREEN] = "\033[32m", [CLI_YELLOW] = "\033[33m",
        [CLI_BLUE] = "\033[34m",
    };
    return on ? codes[color] : "";
}

/* ---- JSON ------------------------------------------------------------------------------ */

static void put_json_value(struct buf *out, const struct belay_reply *r)
{
    char space[REPLY_REAL_BYTES];
    switch (r->kind) {
    case BELAY_BOOL:
        buf_put_str(out, r->number ? "true" : "false");
        break;
    case BELAY_INT:
        buf_put_i64(out, r->number);
        break;
    case BELAY_DOUBLE:
        buf_put_slice(out, reply_real(r->real, space));
        break;
    case BELAY_TEXT:
    case BELAY_ERROR:
        json_put_string(out, slice_of(r->text, r->len));
        break;
    case BELAY_NULL:
    case BELAY_LIST:
    case BELAY_MAP:
        buf_put_str(out, "null");
        break;
    }
}

/* On the wire these are 0 and 1, over HTTP false and true; scripts shall not have to care which
 * way an answer came. */
static bool is_flag(const struct belay_reply *r)
{
    static const char *const keys[] = {"overdue", "attached"};
    for (size_t i = 0; r->key && i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(r->key, keys[i]) == 0)
            return r->kind == BELAY_INT;
    return false;
}

/* The depth is bounded by the parser of replies. */
void cli_put_json(struct buf *out, const struct belay_reply *r)
{
    bool map = r->kind == BELAY_MAP;
    if (is_flag(r)) {
        buf_put_str(out, r->number ? "true" : "false");
        return;
    }
    if (!map && r->kind != BELAY_LIST) {
        put_json_value(out, r);
        return;
    }
    buf_put_byte(out, map ? '{' : '[');
    for (const struct belay_reply *c = r->first; c; c = c->next) {
        if (map) {
            json_put_string(out, slice_str(c->key));
            buf_put_byte(out, ':');
        }
        cli_put_json(out, c);
        if (c->next)
            buf_put_byte(out, ',');
    }
    buf_put_byte(out, map ? '}' : ']');
}

int cli_flush(struct buf *out)
{
    bool ok = !out->oom && (buf_len(out) == 0 ||
                            fwrite(buf_data(out), 1, buf_len(out), stdout) == buf_len(out));
    ok = fflush(stdout) == 0 && ok;
    bool oom = out->oom;
    buf_done(out);
    if (ok)
        return CLI_OK;
    return cli_error(CLI_FAILED, "cannot write: %s", oom ? "out of memory" : strerror(errno));
}

int cli_print_json(const struct belay_reply *r)
{
    struct buf out = {0};
    cli_put_json(&out, r);
    buf_put_byte(&out, '\n');
    return cli_flush(&out);
}

/* ---- text ------------------------------------------------------------------------------ */

/* What turns the direction of the text: a line would look like another one. U+202A to U+202E,
 * U+2066 to U+2069. */
static bool turns(const unsigned char *p)
{
    return p[0] == 0xe2 && ((p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) ||
                            (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
}

/* Length of the valid, printable UTF-8 sequence at `p`; 0: not one. */
static size_t utf8_len(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return p[0] >= 0x20 && p[0] != 0x7f;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f;
    bool control = p[0] == 0xc2 && p[1] < 0xa0; /* C1: a terminal obeys these too */
    bool beyond = p[0] == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || control || beyond || turns(p) ? 0 : n;
}

void cli_put_safe(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = utf8_len((const unsigned char *)text + i, len - i);
        if (n) {
            buf_put(out, text + i, n);
            i += n;
        } else {
            buf_printf(out, "\\x%02x", (unsigned)(unsigned char)text[i]);
            i++;
        }
    }
}

/* The widths that libc knows, whatever the user's language is. */
static size_t width_of(wchar_t c)
{
    static locale_t utf8;
    if (c < 0x80)
        return 1;
    if (!utf8)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return 1;
    locale_t before = uselocale(utf8);
    int n = wcwidth(c);
    uselocale(before);
    return n < 0 ? 1 : (size_t)n;
}

/* The character at `p`, and its bytes; one that is cut off counts as a byte. */
static wchar_t decode(const unsigned char *p, size_t left, size_t *ret_bytes)
{
    size_t n = utf8_len(p, left);
    wchar_t c = n > 1 ? p[0] & (0xff >> (n + 1)) : p[0];
    for (size_t i = 1; i < n; i++)
        c = (c << 6) | (p[i] & 0x3f);
    *ret_bytes = n ? n : 1;
    return n ? c : L'?';
}

size_t cli_fit(const char *utf8, size_t len, size_t columns)
{
    size_t at = 0, bytes;
    while (at < len) {
        size_t n = width_of(decode((const unsigned char *)utf8 + at, len - at, &bytes));
        if (n > columns)
            break;
        columns -= n;
        at += bytes;
    }
    return at;
}

size_t cli_columns(const char *utf8, size_t len)
{
    size_t n = 0, bytes;
    for (size_t at = 0; at < len; at += bytes)
        n += width_of(decode((const unsigned char *)utf8 + at, len - at, &bytes));
    return n;
}

void cli_put_duration(struct buf *out, int64_t ms)
{
    if (ms < 0)
        buf_put_str(out, "-");
    else if (ms < 1000)
        buf_printf(out, "%" PRId64 "ms", ms);
    else if (ms < 60000)
        buf_printf(out, "%" PRId64 ".%" PRId64 "s", ms / 1000, ms % 1000 / 100);
    else if (ms < 3600000)
        buf_printf(out, "%" PRId64 "m%02" PRId64 "s", ms / 60000, ms % 60000 / 1000);
    else if (ms < 86400000)
        buf_printf(out, "%" PRId64 "h%02" PRId64 "m", ms / 3600000, ms % 3600000 / 60000);
    else
        buf_printf(out, "%" PRId64 "d%02" PRId64 "h", ms / 86400000, ms % 86400000 / 3600000);
}

/* ---- tables ---------------------------------------------------------------------------- */

void cli_cell_bytes(struct cli_table *t, enum cli_color color, const char *text, size_t len)
{
    BELAY_CHECK(t->columns > 0);
    BELAY_CHECK(t->columns <= CLI_TABLE_COLUMNS_MAX);
    cli_put_safe(&t->text, text, len);
    buf_put_byte(&t->text, '\0');
    buf_put_byte(&t->marks, (char)color);
}

void cli_cell(struct cli_table *t, enum cli_color color, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    cli_cell_bytes(t, color, buf_cstr(&text), buf_len(&text));
    buf_done(&text);
}

void cli_cell_duration(struct cli_table *t, int64_t ms)
{
    struct buf text = {0};
    cli_put_duration(&text, ms);
    cli_cell_bytes(t, CLI_PLAIN, buf_cstr(&text), buf_len(&text));
    buf_done(&text);
}

static void put_spaces(struct buf *out, size_t n)
{
    while (n--)
        buf_put_byte(out, ' ');
}

static void put_cell(struct buf *out, const char *text, size_t width, bool right,
                     const char *on)
{
    size_t pad = width - cli_columns(text, strlen(text));
    if (right)
        put_spaces(out, pad);
    buf_put_str(out, on);
    buf_put_str(out, text);
    if (on[0])
        buf_put_str(out, "\033[0m");
    if (!right)
        put_spaces(out, pad);
}

/* Spaces at the end of a line are no use to anybody, and in the way of a diff. */
static void end_line(struct buf *out)
{
    while (buf_len(out) && out->mem[out->end - 1] == ' ')
        out->end--;
    buf_put_byte(out, '\n');
}

void cli_table_put(struct cli_table *t, struct buf *out, bool color)
{
    size_t widths[CLI_TABLE_COLUMNS_MAX] = {0};
    size_t cells = buf_len(&t->marks);
    const char *text = buf_cstr(&t->text), *marks = buf_cstr(&t->marks);
    const char *at = text;
    for (size_t i = 0; i < cells; i++, at += strlen(at) + 1) {
        size_t w = cli_columns(at, strlen(at));
        if (w > widths[i % t->columns])
            widths[i % t->columns] = w;
    }
    at = text;
    for (size_t i = 0; i < cells; i++, at += strlen(at) + 1) {
        size_t column = i % t->columns;
        enum cli_color mark = i < t->columns ? CLI_BOLD : (enum cli_color)marks[i];
        put_cell(out, at, widths[column], t->right[column],
                 mark == CLI_PLAIN ? "" : cli_color(color, mark));
        if (column + 1 < t->columns)
            buf_put_str(out, "  ");
        else
            end_line(out);
    }
    if (t->text.oom || t->marks.oom)
        out->oom = true;
    buf_done(&t->text);
    buf_done(&t->marks);
}

/* ---- lists ----------------------------------------------------------------------------- */

int cli_page(struct cli *c, struct cli_pages *p, const struct belay_reply **ret_first)
{
    struct belay_bytes words[8];
    const struct belay_reply *r = NULL;
    char limit[24];
    size_t n = 0;
    *ret_first = NULL;
    if (p->what)
        words[n++] = (struct belay_bytes){p->what, strlen(p->what)};
    words[n++] = (struct belay_bytes){"LIST", 4};
    if (p->prefix && p->prefix[0]) {
        words[n++] = (struct belay_bytes){"PREFIX", 6};
        words[n++] = (struct belay_bytes){p->prefix, strlen(p->prefix)};
    }
    if (buf_len(&p->after)) {
        words[n++] = (struct belay_bytes){"AFTER", 5};
        words[n++] = (struct belay_bytes){buf_data(&p->after), buf_len(&p->after)};
    }
    if (p->limit) {
        int len = snprintf(limit, sizeof limit, "%" PRId64, p->limit);
        words[n++] = (struct belay_bytes){"LIMIT", 5};
        words[n++] = (struct belay_bytes){limit, (size_t)len};
    }
    int err = belay_callv(c->belay, words, n, p->timeout_ms, &r);
    if (err)
        return err;
    const struct belay_reply *next = belay_at(r, 1);
    *ret_first = belay_at(belay_at(r, 0), 0);
    bool more = next && next->kind == BELAY_TEXT && next->len > 0;
    p->end = !more;
    buf_clear(&p->after);
    if (more)
        buf_put(&p->after, next->text, next->len);
    return p->after.oom ? BELAY_E_MEMORY : BELAY_E_OK;
}

int cli_list(struct cli *c, const char *what, struct cli_table *t, const char *const *heads,
             void (*row)(struct cli_table *t, const struct belay_reply *r))
{
    struct buf out = {0};
    struct cli_pages pages = {.what = what};
    int err = BELAY_E_OK;
    for (size_t i = 0; i < t->columns && !c->json; i++)
        cli_cell(t, CLI_BOLD, "%s", heads[i]);
    while (!err && !pages.end) {
        const struct belay_reply *r = NULL;
        err = cli_page(c, &pages, &r);
        for (; r && !err; r = r->next) {
            if (!c->json) {
                row(t, r);
                continue;
            }
            cli_put_json(&out, r);
            buf_put_byte(&out, '\n');
        }
    }
    buf_done(&pages.after);
    cli_table_put(t, &out, c->color);
    if (!err)
        return cli_flush(&out);
    buf_done(&out);
    return cli_fail(c, err);
}
