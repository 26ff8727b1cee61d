/* db.h - a blocking connection for the command line: one call of a schema function at a time,
 * and installing the schema. Without libpq's types, so that only src/queue knows libpq. */
#ifndef BELAY_QUEUE_DB_H
#define BELAY_QUEUE_DB_H

#include <stdbool.h>
#include <stddef.h>

enum { DB_WHY_BYTES = 1024 };

struct db;
struct db_rows; /* an answer; owned, release with db_rows_free() */

/* Connects. NULL: `why` (DB_WHY_BYTES) says why. `url` may be NULL: the PG* environment. */
struct db *db_open(const char *url, const char *schema, char *why);
void db_close(struct db *db); /* NULL is allowed */

/* SELECT * FROM schema.call with n text parameters; `call` is our own text, such as "push($1,
 * $2)". With `json`, every row is one column: the row as JSON. NULL: db_why(). */
struct db_rows *db_call(struct db *db, bool json, const char *call, int n,
                        const char *const *params);
void db_rows_free(struct db_rows *rows);
int db_rows_count(const struct db_rows *rows);
int db_rows_columns(const struct db_rows *rows);
const char *db_column(const struct db_rows *rows, int column);
const char *db_value(const struct db_rows *rows, int row, int column); /* "" for NULL */
bool db_is_null(const struct db_rows *rows, int row, int column);

const char *db_why(const struct db *db);   /* of the last failure, with its hint */
const char *db_state(const struct db *db); /* its SQLSTATE; "" */

/* LISTEN on one of the schema's channels ("push" or "done"). */
bool db_listen(struct db *db, const char *channel);
/* Waits for a notification; 1: there was one, 0: time is over, -1: db_why(). Negative ms: for
 * ever. */
int db_wait(struct db *db, int ms);

/* Brings the schema to version `to` (0: the newest) in one transaction; nothing happens when it
 * is there. *ret_from is what was found, 0 for none. */
bool db_install(struct db *db, int to, int *ret_from);
/* Removes captures, tables, functions and the schema in one transaction. Refuses when something
 * that is not Belay's lives in the schema or depends on it. */
bool db_uninstall(struct db *db);
#endif
