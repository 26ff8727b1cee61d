/* queue.c - `belay queue`: finds the subcommand; install, uninstall, grant, push, capture. */
#include "cli/queue/queue.h"
#include "queue/schema.h"

#include <stdlib.h>
#include <string.h>

enum { PUSH_LINES_MAX = 1000, PUSH_BATCH_BYTES = 4 << 20 };

/* ---- shared --------------------------------------------------------------------------------
 */

const char *queue_url(const struct cli *c)
{
    const char *env = getenv("BELAY_DB");
    return cli_text(c, "db", env && env[0] ? env : NULL);
}

const char *queue_schema(const struct cli *c)
{
    const char *env = getenv("BELAY_SCHEMA");
    return cli_text(c, "schema", env && env[0] ? env : "belay");
}

struct db *queue_connect(const struct cli *c, int *ret_code)
{
    char why[DB_WHY_BYTES];
    struct db *db = db_open(queue_url(c), queue_schema(c), why);
    if (!db)
        *ret_code = cli_error(CLI_UNREACHABLE, "%s", why);
    return db;
}

/* 55P03, 23505 and the like are the answer no; the rest is refused. */
int queue_failed(struct db *db)
{
    static const char *const no[] = {"23505", "55000", "55P03", "P0002", "BL001"};
    int code = CLI_REFUSED;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strcmp(db_state(db), no[i]) == 0)
            code = CLI_NOT;
    cli_error(code, "%s", db_why(db));
    db_close(db);
    return code;
}

static void put_table(struct buf *out, const struct db_rows *rows, const char *const *columns,
                      bool color)
{
    struct cli_table t = {0};
    int index[CLI_TABLE_COLUMNS_MAX];
    for (size_t i = 0; columns[i]; i++) {
        index[i] = 0;
        for (int k = 0; k < db_rows_columns(rows); k++)
            if (strcmp(db_column(rows, k), columns[i]) == 0)
                index[i] = k;
        t.columns++;
        cli_cell(&t, CLI_BOLD, "%s", columns[i]);
    }
    for (int r = 0; r < db_rows_count(rows); r++)
        for (size_t i = 0; i < t.columns; i++) {
            const char *v = db_is_null(rows, r, index[i]) ? "-" : db_value(rows, r, index[i]);
            cli_cell_bytes(&t, CLI_PLAIN, v, strlen(v));
        }
    cli_table_put(&t, out, color);
}

int queue_print(struct cli *c, const char *call, int n, const char *const *params,
                const char *const *columns)
{
    int code;
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    struct db_rows *rows = db_call(db, c->json, call, n, params);
    if (!rows)
        return queue_failed(db);
    struct buf out = {0};
    if (c->json)
        for (int r = 0; r < db_rows_count(rows); r++)
            buf_printf(&out, "%s\n", db_value(rows, r, 0));
    else
        put_table(&out, rows, columns, c->color);
    db_rows_free(rows);
    db_close(db);
    return cli_flush(&out);
}

/* ---- install, uninstall, grant -------------------------------------------------------------
 */

static int run_install(struct cli *c)
{
    int code, from = 0;
    if (cli_given(c, "print")) {
        fputs(queue_schema_sql, stdout);
        return CLI_OK;
    }
    int to = (int)cli_number(c, "to", QUEUE_SCHEMA_VERSION);
    if (to < 1 || to > QUEUE_SCHEMA_VERSION)
        return cli_usage(c, "--to is 1 to %d", QUEUE_SCHEMA_VERSION);
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    if (!db_install(db, to, &from))
        return queue_failed(db);
    if (c->json)
        printf("{\"schema_version\":%d,\"was\":%d}\n", to, from);
    else if (from == 0)
        printf("installed version %d\n", to);
    else if (from < to)
        printf("upgraded version %d to %d\n", from, to);
    else
        printf("version %d is installed\n", from);
    db_close(db);
    return CLI_OK;
}

static int run_uninstall(struct cli *c)
{
    int code;
    if (!cli_given(c, "yes"))
        return cli_usage(c, "this deletes all requests and their history: say --yes");
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    if (!db_uninstall(db))
        return queue_failed(db);
    printf("%s\n", c->json ? "{\"uninstalled\":true}" : "uninstalled");
    db_close(db);
    return CLI_OK;
}

static int run_grant(struct cli *c)
{
    int code;
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    struct db_rows *rows = db_call(db, false, "grant_to($1, $2)", 2, c->words);
    if (!rows)
        return queue_failed(db);
    db_rows_free(rows);
    db_close(db);
    printf("%s\n", c->json ? "{\"granted\":true}" : "granted");
    return CLI_OK;
}

/* ---- push ----------------------------------------------------------------------------------
 */

/* $5 of a push: a time, or with --in ms from now by the database's clock, not by ours. */
#define PUSH_IN "clock_timestamp() + make_interval(secs => $5::bigint / 1000.0)"
#define PUSH_AT "$5::timestamptz"
#define PUSH_OBJECT(run_at)                                                                    \
    "jsonb_build_object('entity', $2::text, 'kind', $3::text, 'max_attempts', $6::integer, "   \
    "'timeout_ms', $7::integer, 'run_at', " run_at                                             \
    ") || CASE WHEN $4::text IS NULL THEN '{}' ELSE jsonb_build_object('payload', $4::jsonb) END"
#define PUSH_MANY(run_at) "push_many($1, jsonb_build_array(" PUSH_OBJECT(run_at) "))"
#define PUSH_ONCE(run_at)                                                                      \
    "push_once($1, $8, make_interval(secs => $9::bigint / 1000.0), " PUSH_OBJECT(run_at) ")"

/* A number as text, or NULL when the option was not given. */
static const char *number_text(const struct cli *c, const char *name, char buffer[24])
{
    snprintf(buffer, 24, "%lld", (long long)cli_number(c, name, 0));
    return cli_given(c, name) ? buffer : NULL;
}

/* A push with more than push() takes: the first five parameters are those of push(). */
static int push_more(struct cli *c, struct db *db, const char *const *five)
{
    char attempts[24], timeout[24], within[24];
    bool once = cli_given(c, "once"), in = cli_given(c, "in");
    const char *p[9] = {five[0], five[1], five[2], five[3], five[4]};
    p[5] = number_text(c, "max-attempts", attempts);
    p[6] = number_text(c, "timeout", timeout);
    p[7] = cli_text(c, "once", NULL);
    p[8] = number_text(c, "within", within);
    struct db_rows *rows =
        once ? db_call(db, false, in ? PUSH_ONCE(PUSH_IN) : PUSH_ONCE(PUSH_AT), 9, p)
             : db_call(db, false, in ? PUSH_MANY(PUSH_IN) : PUSH_MANY(PUSH_AT), 7, p);
    if (!rows)
        return queue_failed(db);
    if (c->json && once)
        printf("{\"id\":%s,\"made\":%s}\n", db_value(rows, 0, 0),
               db_value(rows, 0, 1)[0] == 't' ? "true" : "false");
    else
        printf(c->json ? "{\"id\":%s}\n" : "%s\n", db_value(rows, 0, 0));
    db_rows_free(rows);
    db_close(db);
    return CLI_OK;
}

static int push_one(struct cli *c, struct db *db)
{
    const char *p[5] = {c->words[0], c->words[1]};
    char run_at[64];
    p[2] = c->n_words > 2 ? c->words[2] : cli_text(c, "kind", "create");
    p[3] = c->n_words > 3 ? c->words[3] : cli_text(c, "payload", NULL);
    p[4] = cli_text(c, "run-at", NULL);
    const char *call = "push($1, $2, $3, $4, $5)";
    if (cli_given(c, "in")) {
        snprintf(run_at, sizeof run_at, "%lld", (long long)cli_number(c, "in", 0));
        p[4] = run_at;
        call = "push($1, $2, $3, $4, " PUSH_IN ")";
    }
    if (cli_given(c, "max-attempts") || cli_given(c, "timeout") || cli_given(c, "once"))
        return push_more(c, db, p);
    struct db_rows *rows = db_call(db, false, call, 5, p);
    if (!rows)
        return queue_failed(db);
    printf(c->json ? "{\"id\":%s}\n" : "%s\n", db_value(rows, 0, 0));
    db_rows_free(rows);
    db_close(db);
    return CLI_OK;
}

/* One array of lines in one transaction; prints how many there were. */
static bool push_batch(struct db *db, const char *queue, struct buf *batch, long long *total)
{
    if (buf_len(batch) == 0)
        return true;
    buf_put_byte(batch, ']');
    const char *p[] = {queue, buf_cstr(batch)};
    struct db_rows *rows = db_call(db, false, "push_many($1, $2)", 2, p);
    if (rows)
        *total += db_rows_count(rows);
    db_rows_free(rows);
    buf_clear(batch);
    return rows != NULL;
}

static int push_stdin(struct cli *c, struct db *db)
{
    struct buf batch = {0};
    char *line = NULL;
    size_t cap = 0, n = 0;
    ssize_t len;
    long long total = 0;
    bool ok = true;
    while (ok && (len = getline(&line, &cap, stdin)) >= 0) {
        if (strspn(line, " \t\r\n") == (size_t)len)
            continue;
        buf_put_byte(&batch, buf_len(&batch) == 0 ? '[' : ',');
        buf_put(&batch, line, (size_t)len);
        if (++n % PUSH_LINES_MAX == 0 || buf_len(&batch) > PUSH_BATCH_BYTES)
            ok = push_batch(db, c->words[0], &batch, &total);
    }
    ok = ok && push_batch(db, c->words[0], &batch, &total);
    free(line);
    buf_done(&batch);
    if (!ok) {
        cli_notice("%lld requests were pushed before the failure", total);
        return queue_failed(db);
    }
    printf(c->json ? "{\"pushed\":%lld}\n" : "%lld\n", total);
    db_close(db);
    return CLI_OK;
}

static int run_push(struct cli *c)
{
    int code;
    bool many = cli_given(c, "stdin");
    if (many ? c->n_words != 1 : c->n_words < 2)
        return cli_usage(c, many ? "--stdin takes a queue and nothing else"
                                 : "a queue and an entity are needed");
    if (cli_given(c, "in") && cli_given(c, "run-at"))
        return cli_usage(c, "--in and --run-at exclude each other");
    if (cli_given(c, "once") != cli_given(c, "within"))
        return cli_usage(c, "--once KEY and --within D go together");
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    return many ? push_stdin(c, db) : push_one(c, db);
}

/* ---- capture -------------------------------------------------------------------------------
 */

static int capture_add(struct cli *c)
{
    int code;
    if (c->n_words != 1 || !cli_given(c, "queue") || !cli_given(c, "entity"))
        return cli_usage(c, "a table, --queue and --entity are needed");
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    char lock_ms[24];
    snprintf(lock_ms, sizeof lock_ms, "%lld", (long long)cli_number(c, "lock-timeout", 3000));
    const char *p[] = {c->words[0],
                       cli_text(c, "queue", NULL),
                       cli_text(c, "entity", NULL),
                       cli_text(c, "columns", ""),
                       cli_text(c, "when", NULL),
                       cli_given(c, "always") ? "t" : "f",
                       cli_given(c, "no-notify") ? "f" : "t",
                       lock_ms};
    struct db_rows *rows = db_call(
        db, false, "capture($1::regclass, $2, $3, string_to_array($4, ','), $5, $6, $7, $8)", 8,
        p);
    if (!rows)
        return queue_failed(db);
    printf(c->json ? "{\"capture\":%s}\n" : "capture %s\n", db_value(rows, 0, 0));
    db_rows_free(rows);
    db_close(db);
    return CLI_OK;
}

static int capture_remove(struct cli *c)
{
    int code;
    char no[24], lock_ms[24];
    snprintf(no, sizeof no, "%lld", (long long)cli_number(c, "remove", 0));
    snprintf(lock_ms, sizeof lock_ms, "%lld", (long long)cli_number(c, "lock-timeout", 3000));
    const char *p[] = {no, lock_ms};
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    struct db_rows *rows = db_call(db, false, "uncapture($1, $2)", 2, p);
    if (!rows)
        return queue_failed(db);
    db_rows_free(rows);
    db_close(db);
    printf("%s\n", c->json ? "{\"removed\":true}" : "removed");
    return CLI_OK;
}

/* Prints what captures do not see; CLI_NOT when something is broken. */
static int capture_check(struct cli *c)
{
    static const char *const columns[] = {"no", "source", "broken", "problem", NULL};
    int code = CLI_OK;
    struct db *db = queue_connect(c, &code);
    if (!db)
        return code;
    struct db_rows *rows = db_call(db, false, "capture_check()", 0, NULL);
    if (!rows)
        return queue_failed(db);
    bool broken = false;
    for (int r = 0; r < db_rows_count(rows); r++)
        broken = broken || db_value(rows, r, 2)[0] == 't';
    db_rows_free(rows);
    db_close(db);
    code = queue_print(c, "capture_check()", 0, NULL, columns);
    return code == CLI_OK && broken ? CLI_NOT : code;
}

static int run_capture(struct cli *c)
{
    static const char *const columns[] = {"no",        "source", "queue",  "entity", "columns",
                                          "condition", "always", "notify", NULL};
    if (cli_given(c, "check"))
        return capture_check(c);
    if (cli_given(c, "list"))
        return queue_print(c, "captures()", 0, NULL, columns);
    if (cli_given(c, "remove"))
        return capture_remove(c);
    return capture_add(c);
}

/* ---- rows ----------------------------------------------------------------------------------
 */

const struct cli_command cli_queue_install = {
    .name = "queue install",
    .args = "",
    .summary = "put the schema into a database, or bring it up to date",
    .options =
        (const struct cli_option[]){QUEUE_OPTIONS,
                                    {"print", 0, CLI_FLAG, NULL, "print the SQL instead"},
                                    {"to", 0, CLI_NUMBER, "N", "stop at this version"},
                                    {0}},
    .run = run_install,
};

const struct cli_command cli_queue_uninstall = {
    .name = "queue uninstall",
    .args = "--yes",
    .summary = "remove the schema with all requests, and all captures",
    .options =
        (const struct cli_option[]){QUEUE_OPTIONS, {"yes", 0, CLI_FLAG, NULL, "really"}, {0}},
    .run = run_uninstall,
};

const struct cli_command cli_queue_grant = {
    .name = "queue grant",
    .args = "ROLE producer|worker|admin",
    .summary = "let a database role push, work, or manage",
    .options = (const struct cli_option[]){QUEUE_OPTIONS, {0}},
    .min_words = 2,
    .max_words = 2,
    .run = run_grant,
};

const struct cli_command cli_queue_push = {
    .name = "queue push",
    .args = "QUEUE ENTITY [create|update [PAYLOAD]]",
    .summary = "push a request; prints its id",
    .examples = "belay queue push orders 42 update '{\"reason\": \"paid\"}'\n"
                "belay queue push mail 7 --in 1h\n"
                "belay queue push orders --stdin < requests.ndjson",
    .options =
        (const struct cli_option[]){
            QUEUE_OPTIONS,
            {"kind", 'k', CLI_TEXT, "KIND", "create (default) or update"},
            {"payload", 'p', CLI_TEXT, "JSON", "data for the worker"},
            {"in", 0, CLI_DURATION, "D", "not before that time has passed"},
            {"run-at", 0, CLI_TEXT, "TIME", "not before; any timestamp PostgreSQL reads"},
            {"max-attempts", 0, CLI_NUMBER, "N", "instead of the worker's limit"},
            {"timeout", 0, CLI_DURATION, "D",
             "time of an attempt, instead of the worker's limit"},
            {"once", 0, CLI_TEXT, "KEY", "not when KEY was pushed to this queue"},
            {"within", 0, CLI_DURATION, "D", "in the last D"},
            {"stdin", 0, CLI_FLAG, NULL,
             "one JSON object a line: entity, kind, payload, run_at, max_attempts, timeout_ms"},
            {0}},
    .min_words = 1,
    .max_words = 4,
    .run = run_push,
};

const struct cli_command cli_queue_capture = {
    .name = "queue capture",
    .args = "TABLE --queue Q --entity COLUMN|SQL | --check | --list | --remove N",
    .summary = "make every change of a table a request",
    .examples =
        "belay queue capture orders --queue search --entity id\n"
        "belay queue capture order_notes --queue search --entity order_id --columns text",
    .options =
        (const struct cli_option[]){
            QUEUE_OPTIONS,
            {"queue", 'q', CLI_TEXT, "Q", "where the requests go"},
            {"entity", 'e', CLI_TEXT, "SQL", "a column, or SQL over the columns of the table"},
            {"columns", 'c', CLI_TEXT, "A,B|*", "old and new values that go into the payload"},
            {"when", 'w', CLI_TEXT, "SQL", "only if this holds; over old and new"},
            {"always", 0, CLI_FLAG, NULL, "also capture changes that replication applies"},
            {"no-notify", 0, CLI_FLAG, NULL,
             "tell no worker: for two-phase commit; workers look every second"},
            {"lock-timeout", 0, CLI_DURATION, "D", "wait that long for the table (3s)"},
            {"check", 0, CLI_FLAG, NULL,
             "list changes that are not captured; exits 1 when a capture is broken"},
            {"list", 'l', CLI_FLAG, NULL, "list the captures"},
            {"remove", 'r', CLI_NUMBER, "N", "stop capture number N"},
            {0}},
    .max_words = 1,
    .run = run_capture,
};

static const struct cli_command *const rows[] = {
    &cli_queue_install, &cli_queue_push,      &cli_queue_work,
    &cli_queue_ls,      &cli_queue_show,      &cli_queue_history,
    &cli_queue_stats,   &cli_queue_watch,     &cli_queue_retry,
    &cli_queue_cancel,  &cli_queue_purge,     &cli_queue_pause,
    &cli_queue_resume,  &cli_queue_keep,      &cli_queue_capture,
    &cli_queue_grant,   &cli_queue_uninstall, NULL};

const struct cli_command *const *cli_queue_commands(void)
{
    return rows;
}

const struct cli_command *cli_find_queue(const char *name)
{
    for (size_t i = 0; rows[i]; i++)
        if (strcmp(rows[i]->name + strlen("queue "), name) == 0)
            return rows[i];
    return NULL;
}

static int list_rows(FILE *to, int code)
{
    fprintf(to, "usage: belay queue SUBCOMMAND ...\n\n");
    for (size_t i = 0; rows[i]; i++)
        fprintf(to, "  %-10s %s\n", rows[i]->name + strlen("queue "), rows[i]->summary);
    fprintf(to, "\nbelay queue SUBCOMMAND --help says more; docs/QUEUE.md says why.\n");
    return code;
}

static int run_queue(int argc, char **argv)
{
    cli_put_command_first(argc, argv);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return argc < 2 ? list_rows(stderr, CLI_USAGE) : list_rows(stdout, CLI_OK);
    const struct cli_command *row = cli_find_queue(argv[1]);
    if (!row) {
        (void)cli_error(CLI_USAGE, "queue: there is no \"%s\"", argv[1]);
        return list_rows(stderr, CLI_USAGE);
    }
    struct cli c = {.command = row, .color = cli_color_wanted(1)};
    int code = CLI_USAGE;
    if (cli_parse(&c, argc - 1, argv + 1))
        code = cli_given(&c, "help") ? cli_print_help(row) : row->run(&c);
    cli_parse_done(&c);
    return code;
}

const struct cli_command cli_cmd_queue = {
    .name = "queue",
    .args = "install | push | work | ls | show | history | stats | watch | retry | cancel | "
            "purge | pause | resume | keep | capture | grant | uninstall",
    .summary = "requests in PostgreSQL: push, work, see",
    .about = "A queue of requests in your own PostgreSQL, worked on one entity at a time. "
             "\"belay queue SUBCOMMAND --help\" says more; docs/QUEUE.md is the manual.",
    .examples = "belay queue install --db postgresql:///app\n"
                "belay queue push orders 42 update\n"
                "belay queue work orders -- ./index-order",
    .run_raw = run_queue,
    .words =
        "install push work ls show history stats watch retry cancel purge pause resume keep capture grant "
        "uninstall",
};
