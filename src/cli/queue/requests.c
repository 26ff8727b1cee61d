/* requests.c - `belay queue ls|show|history|stats|watch`. */
#include "base/mem.h"
#include "cli/queue/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const request_columns[] = {"id",         "queue",    "entity", "kind",
                                              "status",     "attempts", "fence",  "pushed_at",
                                              "settled_at", "error",    NULL};

static int run_ls(struct cli *c)
{
    static const char *const working[] = {"id",   "queue",  "entity", "kind",
                                          "mode", "worker", "age",    NULL};
    static const char *const queues[] = {"queue",    "new",   "later",     "in_progress",
                                         "complete", "error", "oldest_ms", "per_minute",
                                         "paused",   NULL};
    char after[24], limit[24];
    if (cli_given(c, "working")) {
        const char *p[] = {c->n_words ? c->words[0] : NULL};
        return queue_print(c, "working($1)", 1, p, working);
    }
    if (c->n_words == 0)
        return queue_print(c, "status()", 0, NULL, queues);
    snprintf(after, sizeof after, "%" PRId64, cli_number(c, "after", 0));
    snprintf(limit, sizeof limit, "%" PRId64, cli_number(c, "limit", 100));
    const char *p[] = {c->words[0], cli_text(c, "status", NULL), cli_text(c, "entity", NULL),
                       after, limit};
    return queue_print(c, "list($1, $2, $3, $4, $5)", 5, p, request_columns);
}

static int run_stats(struct cli *c)
{
    static const char *const columns[] = {"queue",    "new",   "later",     "in_progress",
                                          "complete", "error", "oldest_ms", "per_minute",
                                          "paused",   NULL};
    const char *p[] = {c->n_words ? c->words[0] : NULL};
    return queue_print(c, "status($1)", 1, p, columns);
}

/* A request in full, a line a column. */
static int run_show(struct cli *c)
{
    int code;
    if (c->json)
        return queue_print(c, "show($1)", 1, c->words, request_columns);
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    struct db_rows *rows = db_call(db, false, "show($1)", 1, c->words);
    if (!rows)
        return queue_failed(db);
    struct buf out = {0};
    for (int k = 0; k < db_rows_columns(rows); k++) {
        if (db_is_null(rows, 0, k))
            continue;
        buf_printf(&out, "%-12s ", db_column(rows, k));
        cli_put_safe(&out, db_value(rows, 0, k), strlen(db_value(rows, 0, k)));
        buf_put_byte(&out, '\n');
    }
    db_rows_free(rows);
    db_close(db);
    return cli_flush(&out);
}

static int run_history(struct cli *c)
{
    char limit[24];
    snprintf(limit, sizeof limit, "%" PRId64, cli_number(c, "limit", 100));
    const char *p[] = {c->words[0], c->words[1], limit};
    return queue_print(c, "history($1, $2, $3)", 3, p, request_columns);
}

/* ---- watch ---------------------------------------------------------------------------------
 */

enum { WATCH_PAGE = 1000, WATCH_BACK_MS = 5000 };

/* Ids of one look, in order: what comes again in the next one was printed. */
struct seen {
    int64_t *ids; /* owned */
    size_t n, room;
};

static int id_order(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static bool seen_before(const struct seen *s, int64_t id)
{
    return s->n > 0 && bsearch(&id, s->ids, s->n, sizeof id, id_order) != NULL;
}

static void see(struct seen *s, int64_t id)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : WATCH_PAGE;
        s->ids = mem_resize(s->ids, s->room * sizeof *s->ids);
    }
    s->ids[s->n++] = id;
}

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static void print_settled(const struct db_rows *rows, int i)
{
    struct buf out = {0};
    static const char *const names[] = {"id", "entity", "kind", "status", "error"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int k = 0; k < db_rows_columns(rows); k++)
            if (strcmp(db_column(rows, k), names[n]) == 0 && !db_is_null(rows, i, k)) {
                buf_put_str(&out, n == 0 ? "" : " ");
                cli_put_safe(&out, db_value(rows, i, k), strlen(db_value(rows, i, k)));
            }
    buf_put_byte(&out, '\n');
    (void)cli_flush(&out);
}

/* The value of a column of row i, also where the row is JSON, whose values are plain here. */
static void take_value(const struct cli *c, const struct db_rows *rows, int i, const char *name,
                       char ret[64])
{
    char mark[64];
    ret[0] = '\0';
    if (c->json) {
        snprintf(mark, sizeof mark, "\"%s\":", name);
        const char *at = strstr(db_value(rows, i, 0), mark);
        at = at ? at + strlen(mark) : "";
        at += at[0] == '"';
        snprintf(ret, 64, "%.*s", (int)strcspn(at, "\",}"), at);
        return;
    }
    for (int k = 0; k < db_rows_columns(rows); k++)
        if (strcmp(db_column(rows, k), name) == 0)
            snprintf(ret, 64, "%s", db_value(rows, i, k));
}

struct queue_watch {
    const struct cli *c;
    struct db *db;
    struct seen seen; /* at the last look */
};

/* The place in the list where the next page begins; empty: at the start. */
struct place {
    char at[64], id[64];
};

/* One page: prints what was not seen before, unless `quiet`; adds all to `now`. Returns its
 * size, -1 on failure. */
static int look_page(struct queue_watch *w, const char *ago, struct place *from,
                     struct seen *now, bool quiet)
{
    const struct cli *c = w->c;
    const char *p[] = {c->words[0], ago, from->at[0] ? from->at : NULL,
                       from->at[0] ? from->id : NULL};
    struct db_rows *rows = db_call(w->db, c->json, "settled_page($1, $2, $3, $4)", 4, p);
    if (!rows)
        return -1;
    int n = db_rows_count(rows);
    for (int i = 0; i < n; i++) {
        take_value(c, rows, i, "id", from->id);
        int64_t number = strtoll(from->id, NULL, 10);
        see(now, number);
        if (quiet || seen_before(&w->seen, number))
            continue;
        if (c->json)
            printf("%s\n", db_value(rows, i, 0));
        else
            print_settled(rows, i);
    }
    if (n > 0)
        take_value(c, rows, n - 1, "settled_at", from->at);
    fflush(stdout);
    db_rows_free(rows);
    return n;
}

/* Looks at what was settled since `since` and a little before; prints what is new unless
 * `quiet`. */
static bool look(struct queue_watch *w, int64_t since, bool quiet)
{
    char ago[32];
    struct place from = {0};
    struct seen now = {0};
    int n;
    snprintf(ago, sizeof ago, "%" PRId64 " ms", now_ms() - since + WATCH_BACK_MS);
    do
        n = look_page(w, ago, &from, &now, quiet);
    while (n == WATCH_PAGE);
    free(w->seen.ids);
    w->seen = now;
    if (now.n > 0)
        qsort(now.ids, now.n, sizeof *now.ids, id_order);
    return n >= 0;
}

static int run_watch(struct cli *c)
{
    int code;
    struct queue_watch w = {.c = c, .db = queue_connect(c, &code)};
    if (!w.db)
        return code;
    int64_t last = now_ms();
    bool ok = db_listen(w.db, "done") && look(&w, last, true);
    while (ok) { /* what is settled without a notification (cancel) shows within a second */
        ok = db_wait(w.db, 1000) >= 0;
        int64_t now = now_ms();
        ok = ok && look(&w, last, false);
        last = now;
    }
    free(w.seen.ids);
    return queue_failed(w.db);
}

/* ---- rows ----------------------------------------------------------------------------------
 */

const struct cli_command cli_queue_ls = {
    .name = "queue ls",
    .args = "[QUEUE]",
    .summary = "the queues; or the requests of one",
    .options =
        (const struct cli_option[]){
            QUEUE_OPTIONS,
            {"status", 0, CLI_TEXT, "S", "only new, in-progress, complete or error"},
            {"entity", 'e', CLI_TEXT, "E", "only this entity"},
            {"after", 0, CLI_NUMBER, "ID", "only requests above this id"},
            {"limit", 0, CLI_NUMBER, "N", "at most so many (100, up to 1000)"},
            {"working", 'w', CLI_FLAG, NULL, "groups in progress: the worker, and how long"},
            {0}},
    .max_words = 1,
    .run = run_ls,
};

const struct cli_command cli_queue_show = {
    .name = "queue show",
    .args = "ID",
    .summary = "one request in full",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 1,
    .max_words = 1,
    .run = run_show,
};

const struct cli_command cli_queue_history = {
    .name = "queue history",
    .args = "QUEUE ENTITY",
    .summary = "the requests of one entity, newest first",
    .options =
        (const struct cli_option[]){
            QUEUE_OPTIONS, {"limit", 0, CLI_NUMBER, "N", "at most so many (100)"}, {0}},
    .min_words = 2,
    .max_words = 2,
    .run = run_history,
};

const struct cli_command cli_queue_stats = {
    .name = "queue stats",
    .args = "[QUEUE]",
    .summary = "depth, oldest, in progress, errors, rate",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .max_words = 1,
    .run = run_stats,
};

const struct cli_command cli_queue_watch = {
    .name = "queue watch",
    .args = "QUEUE",
    .summary = "print requests as they are settled",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 1,
    .max_words = 1,
    .run = run_watch,
};
