/* queue_see.c - `belay queue ls|show|history|stats|watch|retry|cancel|purge`. */
#include "cli/queue.h"

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
    static const char *const queues[] = {"queue",       "new",        "later",
                                         "in_progress", "complete",   "error",
                                         "oldest_ms",   "per_minute", NULL};
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
    static const char *const columns[] = {"queue",       "new",        "later",
                                          "in_progress", "complete",   "error",
                                          "oldest_ms",   "per_minute", NULL};
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

enum { WATCH_SEEN_MAX = 16384, WATCH_BACK_MS = 5000 };

/* Ids that were printed; a ring. */
struct seen {
    int64_t ids[WATCH_SEEN_MAX];
    size_t next;
};

static bool seen_before(struct seen *s, int64_t id)
{
    for (size_t i = 0; i < WATCH_SEEN_MAX; i++)
        if (s->ids[i] == id)
            return true;
    s->ids[s->next++ % WATCH_SEEN_MAX] = id;
    return false;
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

/* Looks at what was settled since `from` and a little before; prints what is new unless
 * `quiet`. */
static bool look(const struct cli *c, struct db *db, int64_t from, struct seen *seen,
                 bool quiet)
{
    char ago[32];
    snprintf(ago, sizeof ago, "%" PRId64 " ms", now_ms() - from + WATCH_BACK_MS);
    const char *p[] = {c->words[0], ago};
    struct db_rows *rows = db_call(db, c->json, "settled_within($1, $2)", 2, p);
    if (!rows)
        return false;
    for (int i = 0; i < db_rows_count(rows); i++) {
        const char *first = db_value(rows, i, 0); /* the id, or JSON that begins with it */
        int64_t id = strtoll(c->json ? first + strlen("{\"id\":") : first, NULL, 10);
        if (seen_before(seen, id) || quiet)
            continue;
        if (c->json)
            printf("%s\n", first);
        else
            print_settled(rows, i);
    }
    fflush(stdout);
    db_rows_free(rows);
    return true;
}

static int run_watch(struct cli *c)
{
    int code;
    static struct seen seen;
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    int64_t last = now_ms();
    bool ok = db_listen(db, "done") && look(c, db, last, &seen, true);
    while (ok) { /* what is settled without a notification (cancel) shows within a second */
        ok = db_wait(db, 1000) >= 0;
        int64_t now = now_ms();
        ok = ok && look(c, db, last, &seen, false);
        last = now;
    }
    return queue_failed(db);
}

/* ---- retry, cancel, purge ------------------------------------------------------------------
 */

/* The call for every id; goes on after a failure and reports it. */
static int each_id(struct cli *c, const char *call, const char *done)
{
    int code, worst = CLI_OK;
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    for (size_t i = 0; i < c->n_words; i++) {
        const char *p[] = {c->words[i]};
        struct db_rows *rows = db_call(db, false, call, 1, p);
        if (rows)
            printf(c->json ? "{\"id\":%s,\"%s\":true}\n" : "%s %s\n", c->words[i], done);
        else
            worst = cli_error(CLI_NOT, "%s", db_why(db));
        db_rows_free(rows);
    }
    db_close(db);
    return worst;
}

static int run_retry(struct cli *c)
{
    return each_id(c, "retry($1)", "retried");
}

static int run_cancel(struct cli *c)
{
    return each_id(c, "cancel($1)", "cancelled");
}

static int run_purge(struct cli *c)
{
    int code;
    char age[32];
    long long total = 0, n = 1;
    if (!cli_given(c, "older"))
        return cli_usage(c, "say how old: --older 30d");
    snprintf(age, sizeof age, "%" PRId64 " ms", cli_number(c, "older", 0));
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    const char *p[] = {c->words[0], age};
    while (n > 0) { /* small transactions: each ends before a worker would notice it */
        struct db_rows *rows = db_call(db, false, "purge($1, $2)", 2, p);
        if (!rows)
            return queue_failed(db);
        n = strtoll(db_value(rows, 0, 0), NULL, 10);
        total += n;
        db_rows_free(rows);
    }
    printf(c->json ? "{\"purged\":%lld}\n" : "%lld purged\n", total);
    db_close(db);
    return CLI_OK;
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
            {"working", 'w', CLI_FLAG, NULL, "what is being worked on, by whom, how long"},
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

const struct cli_command cli_queue_retry = {
    .name = "queue retry",
    .args = "ID...",
    .summary = "open requests that ended in error again",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 1,
    .max_words = 1000,
    .run = run_retry,
};

const struct cli_command cli_queue_cancel = {
    .name = "queue cancel",
    .args = "ID...",
    .summary = "settle open requests as cancelled",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 1,
    .max_words = 1000,
    .run = run_cancel,
};

const struct cli_command cli_queue_purge = {
    .name = "queue purge",
    .args = "QUEUE --older D",
    .summary = "delete settled requests of a certain age",
    .options =
        (const struct cli_option[]){
            QUEUE_OPTIONS, {"older", 0, CLI_DURATION, "D", "settled longer ago"}, {0}},
    .min_words = 1,
    .max_words = 1,
    .run = run_purge,
};
