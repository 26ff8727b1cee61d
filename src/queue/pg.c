#include "queue/pg.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PG_PREPARED_MAX = 16,
    PG_BACKOFF_MS = 100,
    PG_BACKOFF_MAX_MS = 10000,
    PG_CONNECT_TIMEOUT_MS = 10000,
    PG_MESSAGE_MAX = 512
};

/* What the server owes us an answer for. */
struct pending {
    pg_result_fn *fn;
    void *arg;
    bool is_sync;
};

struct pg {
    uv_loop_t *loop;
    char *url, *name;
    struct pg_events events;
    void *arg;
    PGconn *conn;
    uv_poll_t *poll; /* owned until its close callback; NULL: none */
    int poll_fd;     /* of `poll`, and what it looks for */
    int poll_events;
    uv_poll_cb poll_cb;
    uv_timer_t *timer; /* reconnect, time-out of a connect, or the end of a broken one */
    bool up, closed, sticky;
    bool calling, doomed; /* inside a callback: pg_close() waits until it is over */
    unsigned failures;
    struct pending pending[PG_PENDING_MAX]; /* a ring */
    size_t first, count;
    const char *prepared[PG_PREPARED_MAX];
    size_t n_prepared;
};

static void connect_start(struct pg *pg);
static void watch(struct pg *pg, int events);

static void on_handle_closed(uv_handle_t *handle)
{
    free(handle);
}

static void drop_poll(struct pg *pg)
{
    if (!pg->poll)
        return;
    (void)uv_poll_stop(pg->poll);
    uv_close((uv_handle_t *)pg->poll, on_handle_closed);
    pg->poll = NULL;
}

static void on_reconnect(uv_timer_t *timer)
{
    connect_start(timer->data);
}

/* Everything unanswered fails, in order; then the owner hears of it; then we try again later.
 */
static void lose(struct pg *pg, const char *why)
{
    char message[PG_MESSAGE_MAX];
    (void)snprintf(message, sizeof message, "%s", why);
    for (char *p = message; *p; p++)
        if (*p == '\n')
            *p = ' ';
    drop_poll(pg);
    PQfinish(pg->conn);
    pg->conn = NULL;
    pg->up = false;
    pg->n_prepared = 0;
    while (pg->count > 0 && !pg->doomed) {
        struct pending p = pg->pending[pg->first];
        pg->first = (pg->first + 1) % PG_PENDING_MAX;
        pg->count--;
        if (p.fn)
            p.fn(p.arg, NULL);
    }
    pg->count = 0;
    if (pg->doomed)
        return;
    unsigned shift = pg->failures < 7 ? pg->failures : 7;
    uint64_t ms = (uint64_t)PG_BACKOFF_MS << shift;
    if (ms > PG_BACKOFF_MAX_MS)
        ms = PG_BACKOFF_MAX_MS;
    ms = ms / 2 + (uint64_t)random() % (ms / 2 + 1);
    pg->failures++;
    (void)uv_timer_start(pg->timer, on_reconnect, ms, 0);
    pg->events.down(pg->arg, message);
}

/* Callbacks may close the connection they came from: the end waits for the outermost caller. */
static void enter(struct pg *pg)
{
    pg->calling = true;
}

static void leave(struct pg *pg)
{
    pg->calling = false;
    if (pg->doomed)
        pg_close(pg);
}

static void on_notice(void *arg, const char *message)
{
    (void)arg;
    size_t n = strcspn(message, "\n");
    log_debug("queue.notice", "%.*s", (int)n, message);
}

static void take_notifications(struct pg *pg)
{
    PGnotify *n;
    while (!pg->doomed && pg->conn && (n = PQnotifies(pg->conn)) != NULL) {
        pg->events.notify(pg->arg, n->relname, n->extra);
        PQfreemem(n);
    }
}

/* Hands out every answer that has come in full. */
static void take_results(struct pg *pg)
{
    while (pg->count > 0 && !pg->doomed && pg->conn && !PQisBusy(pg->conn)) {
        PGresult *res = PQgetResult(pg->conn);
        struct pending *p = &pg->pending[pg->first];
        if (!res ||
            PQstatus(pg->conn) == CONNECTION_BAD) { /* an error of the connection's own */
            PQclear(res);
            return;
        }
        bool sync = PQresultStatus(res) == PGRES_PIPELINE_SYNC;
        BELAY_CHECK(sync == p->is_sync);
        struct pending done = *p;
        pg->first = (pg->first + 1) % PG_PENDING_MAX;
        pg->count--;
        if (!sync) {
            PGresult *end = PQgetResult(pg->conn); /* NULL: each statement has one result */
            BELAY_CHECK(end == NULL);
        }
        if (done.fn)
            done.fn(done.arg, res);
        PQclear(res);
    }
}

static void on_io(uv_poll_t *poll, int status, int events)
{
    struct pg *pg = poll->data;
    enter(pg);
    if (status < 0)
        pg->poll_events = 0; /* libuv has stopped to watch: watch() must begin again */
    if (status < 0 || (events & UV_READABLE))
        (void)PQconsumeInput(pg->conn); /* a failure shows in PQstatus() */
    take_results(pg);
    take_notifications(pg);
    if (pg->conn && !pg->doomed) {
        if (PQstatus(pg->conn) == CONNECTION_BAD)
            lose(pg, PQerrorMessage(pg->conn));
        else
            watch(pg, UV_READABLE | (PQflush(pg->conn) == 1 ? UV_WRITABLE : 0));
    }
    leave(pg);
}

static void on_broken(uv_timer_t *timer)
{
    struct pg *pg = timer->data;
    enter(pg);
    lose(pg, PQerrorMessage(pg->conn));
    leave(pg);
}

static void watch_with(struct pg *pg, int events, uv_poll_cb cb)
{
    int fd = PQsocket(pg->conn);
    if (fd < 0) { /* found broken while sending; callbacks never come from pg_send() */
        drop_poll(pg);
        (void)uv_timer_start(pg->timer, on_broken, 0, 0);
        return;
    }
    if (pg->poll && pg->poll_fd != fd) /* libpq tried another address */
        drop_poll(pg);
    if (!pg->poll) {
        pg->poll = mem_zalloc(sizeof *pg->poll);
        pg->poll->data = pg;
        pg->poll_fd = fd;
        int rc = uv_poll_init(pg->loop, pg->poll, fd);
        BELAY_CHECK(rc == 0);
        pg->poll_events = 0;
    }
    if (pg->poll_events == events && pg->poll_cb == cb)
        return; /* asking again would cost two system calls a round trip */
    pg->poll_events = events;
    pg->poll_cb = cb;
    (void)uv_poll_start(pg->poll, events, cb);
}

static void watch(struct pg *pg, int events)
{
    watch_with(pg, events, on_io);
}

static void on_connect_io(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct pg *pg = poll->data;
    enter(pg);
    if (status < 0) /* libpq finds out what is wrong */
        pg->poll_events = 0;
    switch (PQconnectPoll(pg->conn)) {
    case PGRES_POLLING_READING:
        watch_with(pg, UV_READABLE, on_connect_io);
        break;
    case PGRES_POLLING_WRITING:
        watch_with(pg, UV_WRITABLE, on_connect_io);
        break;
    case PGRES_POLLING_OK:
        (void)uv_timer_stop(pg->timer);
        (void)PQsetnonblocking(pg->conn, 1);
        (void)PQenterPipelineMode(pg->conn);
        (void)PQsetNoticeProcessor(pg->conn, on_notice, NULL);
        pg->up = true;
        pg->failures = 0;
        watch(pg, UV_READABLE);
        pg->events.up(pg->arg);
        break;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE:
        lose(pg, PQerrorMessage(pg->conn));
        break;
    }
    leave(pg);
}

static void on_connect_timeout(uv_timer_t *timer)
{
    struct pg *pg = timer->data;
    enter(pg);
    lose(pg, "no answer while connecting");
    leave(pg);
}

static void connect_start(struct pg *pg)
{
    const char *keys[] = {"dbname", "fallback_application_name", "client_encoding", NULL};
    const char *values[] = {pg->url, pg->name, "UTF8", NULL};
    enter(pg);
    pg->conn = PQconnectStartParams(keys, values, 1);
    BELAY_CHECK(pg->conn != NULL);
    if (PQstatus(pg->conn) == CONNECTION_BAD) {
        lose(pg, PQerrorMessage(pg->conn));
    } else {
        (void)uv_timer_start(pg->timer, on_connect_timeout, PG_CONNECT_TIMEOUT_MS, 0);
        watch_with(pg, UV_WRITABLE, on_connect_io);
    }
    leave(pg);
}

struct pg *pg_open(uv_loop_t *loop, const char *url, const char *name,
                   const struct pg_events *events, void *arg)
{
    struct pg *pg = mem_zalloc(sizeof *pg);
    pg->loop = loop;
    pg->url = mem_dup(url, strlen(url));
    pg->name = mem_dup(name, strlen(name));
    pg->events = *events;
    pg->arg = arg;
    pg->timer = mem_zalloc(sizeof *pg->timer);
    (void)uv_timer_init(loop, pg->timer);
    pg->timer->data = pg;
    (void)uv_timer_start(pg->timer, on_reconnect, 0,
                         0); /* callbacks never come from pg_open() */
    return pg;
}

void pg_close(struct pg *pg)
{
    if (!pg)
        return;
    if (pg->calling) {
        pg->doomed = true;
        return;
    }
    drop_poll(pg);
    PQfinish(pg->conn);
    (void)uv_timer_stop(pg->timer);
    uv_close((uv_handle_t *)pg->timer, on_handle_closed);
    free(pg->url);
    free(pg->name);
    free(pg);
}

void pg_set_sticky(struct pg *pg, bool sticky)
{
    pg->sticky = sticky;
}

bool pg_is_up(const struct pg *pg)
{
    return pg->up && !pg->doomed;
}

static void push_pending(struct pg *pg, struct pending p)
{
    BELAY_CHECK(pg->count < PG_PENDING_MAX);
    pg->pending[(pg->first + pg->count) % PG_PENDING_MAX] = p;
    pg->count++;
}

/* The place of `sql` among the prepared statements; prepares it first if there is room, else
 * -1. */
static int prepared_index(struct pg *pg, const char *sql)
{
    for (size_t i = 0; i < pg->n_prepared; i++)
        if (pg->prepared[i] == sql)
            return (int)i;
    if (pg->n_prepared == PG_PREPARED_MAX)
        return -1;
    char name[16];
    (void)snprintf(name, sizeof name, "s%zu", pg->n_prepared);
    if (PQsendPrepare(pg->conn, name, sql, 0, NULL) == 0)
        return -1;
    push_pending(pg, (struct pending){0});
    pg->prepared[pg->n_prepared] = sql;
    return (int)pg->n_prepared++;
}

/* A send that fails shows again as a broken connection when we read, so it is not handled here.
 */
void pg_send(struct pg *pg, const char *sql, int n, const char *const *params, pg_result_fn *fn,
             void *arg)
{
    BELAY_CHECK(pg_is_up(pg));
    BELAY_CHECK(n <= PG_PARAMS_MAX);
    int at = pg->sticky ? prepared_index(pg, sql) : -1;
    int sent;
    if (at >= 0) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%d", at);
        sent = PQsendQueryPrepared(pg->conn, name, n, params, NULL, NULL, 0);
    } else {
        sent = PQsendQueryParams(pg->conn, sql, n, NULL, params, NULL, NULL, 0);
    }
    if (sent == 0)
        log_debug("queue.send_failed", "error=%s",
                  log_bytes(slice_str(PQerrorMessage(pg->conn))));
    push_pending(pg, (struct pending){fn, arg, false});
}

void pg_sync(struct pg *pg)
{
    BELAY_CHECK(pg_is_up(pg));
    (void)PQpipelineSync(pg->conn);
    push_pending(pg, (struct pending){.is_sync = true});
    watch(pg, UV_READABLE | (PQflush(pg->conn) == 1 ? UV_WRITABLE : 0));
}

bool pg_ok(const PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

const char *pg_state(const PGresult *res)
{
    const char *state = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
    return state ? state : "";
}

const char *pg_message(const PGresult *res)
{
    const char *text = res ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (text)
        return text;
    return res ? "the batch was given up" : "the connection was lost";
}
