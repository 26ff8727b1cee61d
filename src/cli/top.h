/* top.h - `belay top`: the locks as they are now, in 80 columns.
 *
 * top_view.c knows rows, order, filter and how a frame looks, and nothing of terminals; top.c
 * reads keys and the server, and paints frames. */
#ifndef BELAY_CLI_TOP_H
#define BELAY_CLI_TOP_H

#include "base/buf.h"
#include "belay.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOP_ROWS_MAX = 20000, /* locks that are looked at; more are counted by the server only */
    TOP_NAME_BYTES = 160, /* shown at most */
    TOP_FILTER_BYTES = 64,
    TOP_ERROR_BYTES = 160,
    TOP_CHOSEN_BYTES = 512, /* a name has at most so many */
    TOP_COLUMNS_MIN = 60,
};

enum top_sort { TOP_BY_NAME, TOP_BY_HELD, TOP_BY_EXPIRES, TOP_BY_LINE, TOP_BY_WAIT, TOP_SORTS };

enum top_page { TOP_LIST, TOP_LOCK, TOP_HELP };

struct top_row {
    char name[TOP_NAME_BYTES], holder[TOP_NAME_BYTES]; /* safe for a terminal */
    char state[12];
    int64_t held_ms, expires_ms,
        wait_ms; /* -1: does not apply; wait: the longest in the line */
    int64_t holders, line;
    char *raw; /* the name as it is, of raw_len bytes */
    size_t raw_len;
    char *json; /* the lock as it came; NULL: nobody wants it */
};

struct top_view {
    struct top_row *rows;
    size_t n_rows, cap;
    bool json; /* rows keep it */
    bool cut;  /* there are more than TOP_ROWS_MAX */
    enum top_sort sort;
    bool reverse;
    char filter[TOP_FILTER_BYTES];
    bool typing; /* the filter is being typed */
    enum top_page page;
    size_t at;   /* the row that is marked, of those that the filter lets through */
    size_t line; /* TOP_LOCK: the first one that is shown */
    bool marks;  /* somebody can move the mark */
    size_t columns, lines;
    bool color;
    const char *addr, *ns;
    char error[TOP_ERROR_BYTES];   /* shown in place of the counts; "": none */
    char chosen[TOP_CHOSEN_BYTES]; /* TOP_LOCK: which one */
    size_t chosen_len;
    char *detail; /* TOP_LOCK: lines of safe text; NULL: not read yet */
};

bool top_add(struct top_view *v,
             const struct belay_reply *lock); /* false: out of memory or full */
void top_order(struct top_view *v);           /* sorts, in the chosen order */
/* Fewer rows than before: the mark goes up. */
void top_stay_within(struct top_view *v);
/* A whole frame: v->lines lines of at most v->columns columns, "\r\n" between them. */
void top_draw(const struct top_view *v, struct buf *out);
/* The same rows as JSON: a line for each lock, as the server has it. */
void top_put_json(const struct top_view *v, struct buf *out);
size_t top_shown(const struct top_view *v); /* rows that the filter lets through */
/* A key or a byte of typing. False: the user wants to leave. */
bool top_key(struct top_view *v, char key);
void top_view_done(struct top_view *v);
#endif
