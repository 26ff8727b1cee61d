/* db.c - a blocking connection for `belay queue`, and the installing of the schema. */
#include "queue/db.h"

#include "base/check.h"
#include "base/mem.h"
#include "queue/schema.h"
#include "queue/text.h"

#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct db {
    PGconn *conn;
    char *schema;
    char why[DB_WHY_BYTES];
    char state[8];
};

/* db_rows is a PGresult by another name. */
static const PGresult *result(const struct db_rows *rows)
{
    return (const PGresult *)(const void *)rows;
}

__attribute__((format(printf, 2, 3))) static bool fail(struct db *db, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(db->why, sizeof db->why, format, args);
    va_end(args);
    db->state[0] = '\0';
    return false;
}

static void note_error(struct db *db, const PGresult *res)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
    const char *more = PQresultErrorField(res, PG_DIAG_MESSAGE_HINT);
    if (!more)
        more = PQresultErrorField(res, PG_DIAG_MESSAGE_DETAIL);
    if (!text)
        text = PQerrorMessage(db->conn);
    (void)snprintf(db->why, sizeof db->why, "%.*s%s%s%s", (int)strcspn(text, "\n"), text,
                   more ? " (" : "", more ? more : "", more ? ")" : "");
    (void)snprintf(db->state, sizeof db->state, "%s", state ? state : "");
    if (state && (strcmp(state, "42883") == 0 || strcmp(state, "3F000") == 0))
        (void)snprintf(db->why, sizeof db->why,
                       "schema \"%s\" has no such function: run belay queue install",
                       db->schema);
}

static void on_notice(void *arg, const char *message)
{
    (void)arg;
    (void)message; /* "already exists, skipping" and the like */
}

struct db *db_open(const char *url, const char *schema, char *why)
{
    const char *keys[] = {"dbname", "fallback_application_name", "client_encoding",
                          "connect_timeout", NULL};
    const char *values[] = {url ? url : "", "belay queue", "UTF8", "10", NULL};
    if (!schema[0] || strlen(schema) > QUEUE_SCHEMA_MAX) {
        (void)snprintf(why, DB_WHY_BYTES, "a schema's name has 1 to %d bytes",
                       QUEUE_SCHEMA_MAX);
        return NULL;
    }
    PGconn *conn = PQconnectdbParams(keys, values, 1);
    if (PQstatus(conn) != CONNECTION_OK) {
        const char *text = PQerrorMessage(conn);
        (void)snprintf(why, DB_WHY_BYTES, "%.*s", (int)strcspn(text, "\n"), text);
        PQfinish(conn);
        return NULL;
    }
    (void)PQsetNoticeProcessor(conn, on_notice, NULL);
    struct db *db = mem_zalloc(sizeof *db);
    db->conn = conn;
    db->schema = mem_dup(schema, strlen(schema));
    return db;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    PQfinish(db->conn);
    free(db->schema);
    free(db);
}

static PGresult *run(struct db *db, const char *sql, int n, const char *const *params)
{
    PGresult *res = n < 0 ? PQexec(db->conn, sql)
                          : PQexecParams(db->conn, sql, n, NULL, params, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(res);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return res;
    note_error(db, res);
    PQclear(res);
    return NULL;
}

static bool exec(struct db *db, const char *sql)
{
    PGresult *res = run(db, sql, -1, NULL);
    PQclear(res);
    return res != NULL;
}

struct db_rows *db_call(struct db *db, bool json, const char *call, int n,
                        const char *const *params)
{
    struct buf sql = {0};
    buf_put_str(&sql, json ? "SELECT row_to_json(r) FROM " : "SELECT * FROM ");
    text_put_ident(&sql, db->schema);
    buf_printf(&sql, ".%s r", call);
    PGresult *res = run(db, buf_cstr(&sql), n, params);
    buf_done(&sql);
    return (struct db_rows *)(void *)res;
}

void db_rows_free(struct db_rows *rows)
{
    PQclear((PGresult *)(void *)rows);
}

int db_rows_count(const struct db_rows *rows)
{
    return PQntuples(result(rows));
}

int db_rows_columns(const struct db_rows *rows)
{
    return PQnfields(result(rows));
}

const char *db_column(const struct db_rows *rows, int column)
{
    return PQfname(result(rows), column);
}

const char *db_value(const struct db_rows *rows, int row, int column)
{
    return PQgetvalue(result(rows), row, column);
}

bool db_is_null(const struct db_rows *rows, int row, int column)
{
    return PQgetisnull(result(rows), row, column) != 0;
}

const char *db_why(const struct db *db)
{
    return db->why;
}

const char *db_state(const struct db *db)
{
    return db->state;
}

bool db_listen(struct db *db, const char *channel)
{
    struct buf name = {0}, sql = {0};
    buf_printf(&name, "%s.%s", db->schema, channel);
    buf_put_str(&sql, "LISTEN ");
    text_put_ident(&sql, buf_cstr(&name));
    bool ok = exec(db, buf_cstr(&sql));
    buf_done(&name);
    buf_done(&sql);
    return ok;
}

int db_wait(struct db *db, int ms)
{
    for (;;) {
        PGnotify *n = PQnotifies(db->conn);
        if (n) {
            do
                PQfreemem(n);
            while ((n = PQnotifies(db->conn)) != NULL);
            return 1;
        }
        struct pollfd p = {.fd = PQsocket(db->conn), .events = POLLIN};
        int rc = poll(&p, 1, ms);
        if (rc == 0 || (rc < 0 && errno == EINTR))
            return 0;
        if (rc < 0 || PQconsumeInput(db->conn) == 0) {
            (void)fail(db, "%s", PQerrorMessage(db->conn));
            return -1;
        }
    }
}

/* ---- install -------------------------------------------------------------------------------
 */

/* A piece of schema.sql with the schema's name put in; two forms are known, as in psql. */
static void put_schema_sql(struct buf *out, const char *from, size_t n, const char *schema)
{
    static const char mark[] = ":\"schema\"";
    const char *end = from + n;
    while (from < end) {
        const char *at = memmem(from, (size_t)(end - from), mark, sizeof mark - 1);
        buf_put(out, from, (size_t)((at ? at : end) - from));
        if (!at)
            return;
        text_put_ident(out, schema);
        from = at + sizeof mark - 1;
    }
}

/* Runs the sections "-- == version N ==" with above < N <= to, and the functions when `to` is
 * the newest. */
static bool run_sections(struct db *db, int above, int to)
{
    static const char head[] = "\n-- == ";
    const char *at = strstr(queue_schema_sql, head);
    while (at) {
        const char *next = strstr(at + 1, head);
        const char *name = at + sizeof head - 1;
        size_t n = next ? (size_t)(next - at) : strlen(at);
        int version = 0;
        bool functions = strncmp(name, "functions", 9) == 0;
        if (!functions)
            version = (int)strtol(name + strlen("version "), NULL, 10);
        if (functions ? to == QUEUE_SCHEMA_VERSION : version > above && version <= to) {
            struct buf sql = {0};
            put_schema_sql(&sql, at, n, db->schema);
            bool ok = exec(db, buf_cstr(&sql));
            buf_done(&sql);
            if (!ok)
                return false;
        }
        at = next;
    }
    return true;
}

/* -1: an error; 0: no schema, or an empty one; else its version. */
static int found_version(struct db *db)
{
    const char *p[] = {db->schema};
    static const char sql[] =
        "SELECT (SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid) +"
        " (SELECT count(*) FROM pg_proc p WHERE p.pronamespace = n.oid),"
        " to_regclass(quote_ident($1) || '.meta') IS NOT NULL"
        " FROM pg_namespace n WHERE n.nspname = $1";
    PGresult *res = run(db, sql, 1, p);
    if (!res)
        return -1;
    bool empty = PQntuples(res) == 0 || strcmp(PQgetvalue(res, 0, 0), "0") == 0;
    bool meta = PQntuples(res) > 0 && PQgetvalue(res, 0, 1)[0] == 't';
    PQclear(res);
    if (empty)
        return 0;
    if (!meta) {
        (void)fail(
            db, "schema \"%s\" exists and holds something else: choose another with --schema",
            db->schema);
        return -1;
    }
    struct buf ask = {0};
    buf_put_str(&ask, "SELECT version FROM ");
    text_put_ident(&ask, db->schema);
    buf_put_str(&ask, ".meta WHERE product = 'belay queue'");
    res = run(db, buf_cstr(&ask), -1, NULL);
    buf_done(&ask);
    if (!res || PQntuples(res) != 1) {
        if (res)
            (void)fail(db, "schema \"%s\" has a table \"meta\" that is not Belay's",
                       db->schema);
        PQclear(res);
        return -1;
    }
    int version = (int)strtol(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    return version;
}

static bool begin(struct db *db)
{
    return exec(db,
                "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('belay install', 0))");
}

static bool finish(struct db *db, bool ok)
{
    if (ok)
        return exec(db, "COMMIT");
    PGresult *res = PQexec(db->conn, "ROLLBACK");
    PQclear(res);
    return false;
}

static bool install_steps(struct db *db, int to, int *ret_from)
{
    int from = found_version(db);
    if (from < 0)
        return false;
    *ret_from = from;
    if (from > QUEUE_SCHEMA_VERSION)
        return fail(db, "the schema has version %d, newer than this program (%d)", from,
                    QUEUE_SCHEMA_VERSION);
    if (from == 0) {
        struct buf sql = {0};
        buf_put_str(&sql, "CREATE SCHEMA IF NOT EXISTS ");
        text_put_ident(&sql, db->schema);
        bool ok = exec(db, buf_cstr(&sql));
        buf_done(&sql);
        if (!ok)
            return false;
    }
    return run_sections(db, from, to);
}

bool db_install(struct db *db, int to, int *ret_from)
{
    if (!begin(db))
        return finish(db, false);
    return finish(db, install_steps(db, to ? to : QUEUE_SCHEMA_VERSION, ret_from));
}

/* Everything by name and without CASCADE, so that what depends on it from elsewhere stops us.
 */
static bool uninstall_steps(struct db *db)
{
    static const char sql[] =
        "DO $$\nDECLARE f regprocedure; n integer;\nBEGIN\n"
        "  IF to_regproc('captures') IS NOT NULL THEN\n"
        "    FOR n IN SELECT no FROM captures() LOOP PERFORM uncapture(n); END LOOP;\n"
        "  END IF;\n"
        "  FOR f IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace\n"
        "    WHERE n.nspname = current_schema() ORDER BY p.proname <> 'list' LOOP\n"
        "    EXECUTE format('DROP FUNCTION %s', f);\n  END LOOP;\n"
        "  IF to_regclass('cell') IS NOT NULL THEN\n"
        "    FOR n IN SELECT no FROM cell LOOP EXECUTE format('DROP SEQUENCE attempt_%s', n); END LOOP;\n"
        "  END IF;\n"
        "  DROP VIEW IF EXISTS claimed;\n"
        "  DROP TABLE IF EXISTS capture, guard, cell, bundle, paused, once, request, queue, meta;\n"
        "  DROP DOMAIN IF EXISTS request_status, request_kind, request_entity;\n"
        "  DROP SEQUENCE IF EXISTS fence, cell_no;\n"
        "END $$";
    struct buf path = {0}, drop = {0};
    int version = found_version(db);
    if (version < 0)
        return false;
    if (version == 0)
        return fail(db, "there is no queue in schema \"%s\"", db->schema);
    buf_put_str(&path, "SET LOCAL search_path = ");
    text_put_ident(&path, db->schema);
    buf_put_str(&drop, "DROP SCHEMA ");
    text_put_ident(&drop, db->schema);
    bool ok = exec(db, buf_cstr(&path)) && exec(db, sql) && exec(db, buf_cstr(&drop));
    buf_done(&path);
    buf_done(&drop);
    return ok;
}

bool db_uninstall(struct db *db)
{
    if (!begin(db))
        return finish(db, false);
    return finish(db, uninstall_steps(db));
}
