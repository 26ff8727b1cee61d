/* manage.c - `belay queue retry|cancel|purge|pause|resume|keep`. */
#include "cli/queue/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TIME_BYTES = 64 /* of a timestamp as text */, CURSOR_MAX = 2, PARAMS_MAX = 6 };

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

/* Calls until a call has done nothing: small transactions, each of which ends before a worker
 * would notice it. The last `cursor` parameters are those values that stand behind the count in
 * the answer of the call before. */
static int each_batch(struct cli *c, const char *call, int n, const char *const *params,
                      int cursor, const char *done)
{
    int code;
    char from[CURSOR_MAX][TIME_BYTES];
    const char *p[PARAMS_MAX];
    long long total = 0, count = 1;
    for (int i = 0; i < n; i++)
        p[i] = params[i];
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    while (count > 0) {
        struct db_rows *rows = db_call(db, false, call, n, p);
        if (!rows)
            return queue_failed(db);
        count = strtoll(db_value(rows, 0, 0), NULL, 10);
        total += count;
        for (int i = 0; i < cursor; i++) {
            snprintf(from[i], sizeof from[i], "%s", db_value(rows, 0, i + 1));
            p[n - cursor + i] = from[i];
        }
        db_rows_free(rows);
    }
    if (c->json)
        printf("{\"%s\":%lld}\n", done, total);
    else
        printf("%lld %s\n", total, done);
    db_close(db);
    return CLI_OK;
}

/* Ids, or a queue and a filter, of which `more` tells what only one command has. */
static bool is_clear(const struct cli *c, bool more)
{
    bool filter = more || cli_given(c, "entity") || cli_given(c, "kind");
    return cli_given(c, "queue") ? c->n_words == 0 : c->n_words > 0 && !filter;
}

static int run_retry(struct cli *c)
{
    if (!is_clear(c, cli_given(c, "error")))
        return cli_usage(c, "ids are needed, or --queue and which of its errors");
    if (c->n_words > 0)
        return each_id(c, "retry($1)", "retried");
    const char *p[] = {cli_text(c, "queue", NULL),
                       cli_text(c, "entity", NULL),
                       cli_text(c, "kind", NULL),
                       cli_text(c, "error", NULL),
                       "-infinity",
                       NULL};
    return each_batch(c, "retry_where($1, $2, $3, $4, 1000, $5, $6)", 6, p, 2, "retried");
}

static int run_cancel(struct cli *c)
{
    if (!is_clear(c, false))
        return cli_usage(c, "ids are needed, or --queue and which of its requests");
    if (c->n_words > 0)
        return each_id(c, "cancel($1)", "cancelled");
    const char *p[] = {cli_text(c, "queue", NULL), cli_text(c, "entity", NULL),
                       cli_text(c, "kind", NULL)};
    return each_batch(c, "cancel_where($1, $2, $3)", 3, p, 0, "cancelled");
}

static int run_purge(struct cli *c)
{
    char age[32];
    if (!cli_given(c, "older"))
        return cli_usage(c, "say how old: --older 30d");
    snprintf(age, sizeof age, "%" PRId64 " ms", cli_number(c, "older", 0));
    const char *p[] = {c->words[0], age, "-infinity"};
    return each_batch(c, "purge($1, $2, 5000, $3)", 3, p, 1, "purged");
}

/* One call that answers nothing, or whether it changed anything. */
static int once(struct cli *c, const char *call, int n, const char *const *p, const char *done)
{
    int code;
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    struct db_rows *rows = db_call(db, false, call, n, p);
    if (!rows)
        return queue_failed(db);
    bool changed = db_value(rows, 0, 0)[0] != 'f';
    if (c->json)
        printf("{\"%s\":true,\"changed\":%s}\n", done, changed ? "true" : "false");
    else
        printf("%s%s\n", done, changed ? "" : " already");
    db_rows_free(rows);
    db_close(db);
    return CLI_OK;
}

static int run_pause(struct cli *c)
{
    return once(c, "pause($1)", 1, c->words, "paused");
}

static int run_resume(struct cli *c)
{
    return once(c, "resume($1)", 1, c->words, "running");
}

static int run_keep(struct cli *c)
{
    char age[32], count[32];
    bool limited = cli_given(c, "for") || cli_given(c, "count");
    if (limited == cli_given(c, "all"))
        return cli_usage(c, "give --for D, --count N, or --all");
    snprintf(age, sizeof age, "%" PRId64 " ms", cli_number(c, "for", 0));
    snprintf(count, sizeof count, "%" PRId64, cli_number(c, "count", 0));
    const char *p[] = {c->words[0], cli_given(c, "for") ? age : NULL,
                       cli_given(c, "count") ? count : NULL};
    return once(c, "keep($1, $2, $3)", 3, p, "set");
}

/* ---- rows ----------------------------------------------------------------------------------
 */

#define FILTER_OPTIONS                                                                         \
    {"queue", 'q', CLI_TEXT, "Q", "all that fit, of this queue"},                              \
        {"entity", 'e', CLI_TEXT, "E", "only this entity"},                                    \
    {                                                                                          \
        "kind", 'k', CLI_TEXT, "KIND", "only create or update"                                 \
    }

const struct cli_command cli_queue_retry = {
    .name = "queue retry",
    .args = "ID... | --queue Q",
    .summary = "open requests that ended in error again",
    .examples = "belay queue retry --queue mail --error 'connection refused'",
    .options = (const struct cli_option[]){QUEUE_OPTIONS,
                                           FILTER_OPTIONS,
                                           {"error", 0, CLI_TEXT, "TEXT",
                                            "only those with this text in their error"},
                                           {0}},
    .max_words = 1000,
    .run = run_retry,
};

const struct cli_command cli_queue_cancel = {
    .name = "queue cancel",
    .args = "ID... | --queue Q",
    .summary = "settle open requests as cancelled",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, FILTER_OPTIONS, {0}},
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

const struct cli_command cli_queue_pause = {
    .name = "queue pause",
    .args = "QUEUE",
    .summary = "stop workers from taking more requests of the queue",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 1,
    .max_words = 1,
    .run = run_pause,
};

const struct cli_command cli_queue_resume = {
    .name = "queue resume",
    .args = "QUEUE",
    .summary = "workers take requests of the queue again",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 1,
    .max_words = 1,
    .run = run_resume,
};

const struct cli_command cli_queue_keep = {
    .name = "queue keep",
    .args = "QUEUE --for D | --count N | --all",
    .summary = "how long settled requests are kept, and how many",
    .options =
        (const struct cli_option[]){QUEUE_OPTIONS,
                                    {"for", 0, CLI_DURATION, "D", "settled not longer ago"},
                                    {"count", 0, CLI_NUMBER, "N", "the newest so many"},
                                    {"all", 0, CLI_FLAG, NULL, "everything (the default)"},
                                    {0}},
    .min_words = 1,
    .max_words = 1,
    .run = run_keep,
};
