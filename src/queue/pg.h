/* pg.h - one PostgreSQL connection on a libuv loop: never blocks, always in pipeline mode,
 * comes back by itself.
 *
 *   pg_open() -> CONNECTING -> CHECKING -> UP <-> DOWN (back-off 0.1 s .. 10 s, half jitter)
 *   pg_close() from any state
 *
 * Statements are answered in order. A batch is what stands between two pg_sync(): after an
 * error the rest of the batch is not run and answered with an error too. Answers are given when
 * the whole batch is through, because a statement without BEGIN is committed by the end of its
 * batch: when that commit fails, the statements that seemed to work get its error.
 *
 * When the connection is lost, or an answer does not come in time, every statement not yet
 * answered gets NULL, then `down` is called. Whatever a server sends, nothing aborts: what does
 * not fit the protocol ends the connection. Loop thread only. */
#ifndef BELAY_QUEUE_PG_H
#define BELAY_QUEUE_PG_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { PG_PARAMS_MAX = 11, PG_PENDING_MAX = 4096, PG_ANSWER_MS = 30000 };

struct pg;

struct pg_events {
    void (*up)(void *arg);
    /* Borrows `why`: the server's own words where it had any. `hopeless`: it could not connect,
     * and waiting does not help: a wrong URL, a wrong password, no such database. */
    void (*down)(void *arg, const char *why, bool hopeless);
    void (*notify)(void *arg, const char *channel, const char *payload); /* NULL: none */
};

/* The answer to one statement: borrowed for the call; NULL when the connection was lost. */
typedef void pg_result_fn(void *arg, const PGresult *res);

/* Starts to connect; no callback before the loop runs. `url`, `name` (application_name) and
 * `events` are copied. */
struct pg *pg_open(uv_loop_t *loop, const char *url, const char *name,
                   const struct pg_events *events, void *arg);
void pg_close(struct pg *pg); /* no callback is called any more; NULL is allowed */
/* An answer that takes longer than this ends the connection; PG_ANSWER_MS at first. */
void pg_set_answer_ms(struct pg *pg, unsigned ms);
/* True: statements are prepared once and kept. Only for a session of our own, so false at
 * first. */
void pg_set_sticky(struct pg *pg, bool sticky);
bool pg_is_up(const struct pg *pg);
/* No pooler stands between: the session has the process id that the connection was told. What
 * is set or prepared in a session that is not ours would be left to somebody else. */
bool pg_is_own(const struct pg *pg);

/* Sends a statement with n text parameters (NULL is NULL). `sql` must outlive the connection:
 * its address is its name. `fn` may be NULL. Only while up. */
void pg_send(struct pg *pg, const char *sql, int n, const char *const *params, pg_result_fn *fn,
             void *arg);
void pg_sync(struct pg *pg); /* ends the batch and sends it */

/* Around the statements of a batch that is one transaction: READ COMMITTED, whatever the
 * database's default is. In a session of our own that is set once, in another one with each. */
void pg_begin(struct pg *pg);
void pg_commit(struct pg *pg); /* instead of pg_sync() */
extern const char pg_begin_sql[];

/* PGRES_TUPLES_OK or PGRES_COMMAND_OK. */
bool pg_ok(const PGresult *res);
const char *pg_state(const PGresult *res); /* SQLSTATE, "" when there is none */
/* The primary message, borrowed from `res`. */
const char *pg_message(const PGresult *res);
/* An error that time mends: of the connection, a conflict, no resources, something in use, an
 * operator's doing (classes 08, 40, 53, 55, 57). Also NULL, and a batch that was given up. */
bool pg_is_transient(const PGresult *res);
const char *pg_first(const PGresult *res); /* the first value; "" when there is none */
/* How long to wait after so many failures in a row. */
uint64_t pg_backoff_ms(unsigned failures);
#endif
