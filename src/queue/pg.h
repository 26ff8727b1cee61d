/* pg.h - one PostgreSQL connection on a libuv loop: never blocks, always in pipeline mode,
 * comes back by itself.
 *
 *   pg_open() -> CONNECTING -> UP <-> DOWN (back-off 0.1 s .. 10 s, half of it jitter)
 *   pg_close() from any state
 *
 * Statements are answered in order. A batch is what stands between two pg_sync(): after an
 * error the rest of the batch is not run and answered with an error too. When the connection is
 * lost every statement not yet answered gets NULL, then `down` is called. Loop thread only. */
#ifndef BELAY_QUEUE_PG_H
#define BELAY_QUEUE_PG_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <uv.h>

enum { PG_PARAMS_MAX = 11, PG_PENDING_MAX = 4096 };

struct pg;

struct pg_events {
    void (*up)(void *arg);
    void (*down)(void *arg, const char *why); /* borrows `why` */
    void (*notify)(void *arg, const char *channel, const char *payload);
};

/* The answer to one statement: borrowed for the call; NULL when the connection was lost. */
typedef void pg_result_fn(void *arg, const PGresult *res);

/* Starts to connect; no callback before the loop runs. `url`, `name` (application_name) and
 * `events` are copied. */
struct pg *pg_open(uv_loop_t *loop, const char *url, const char *name,
                   const struct pg_events *events, void *arg);
void pg_close(struct pg *pg); /* no callback is called any more; NULL is allowed */
/* True: statements are prepared once and kept. Not behind a pooler that changes the server
 * connection between transactions, so false at first. */
void pg_set_sticky(struct pg *pg, bool sticky);
bool pg_is_up(const struct pg *pg);

/* Sends a statement with n text parameters (NULL is NULL). `sql` must outlive the connection:
 * its address is its name. `fn` may be NULL. Only while up. */
void pg_send(struct pg *pg, const char *sql, int n, const char *const *params, pg_result_fn *fn,
             void *arg);
void pg_sync(struct pg *pg); /* ends the batch and sends it */

/* PGRES_TUPLES_OK or PGRES_COMMAND_OK. */
bool pg_ok(const PGresult *res);
const char *pg_state(const PGresult *res); /* SQLSTATE, "" when there is none */
/* The primary message, borrowed from `res`. */
const char *pg_message(const PGresult *res);
#endif
