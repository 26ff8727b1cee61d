/* pg.c - one PostgreSQL connection on a libuv loop, in pipeline mode. */
#include "queue/pg.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PG_PREPARED_MAX = 16,
    PG_PENDING_FIRST = 64,
    PG_BACKOFF_MS = 100,
    PG_BACKOFF_MAX_MS = 10000,
    PG_CONNECT_TIMEOUT_MS = 10000,
    PG_MESSAGE_MAX = 512,
    PG_STATE_BYTES = 6
};

#define NO_ANSWER       "no answer"
#define STATE_IN_FAILED "25P02" /* the transaction has failed, and was not ended */

const char pg_begin_sql[] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/* What the server owes us an answer for. */
struct pending_query {
    pg_result_fn *fn;
    void *arg;
    PGresult *res;   /* its answer, until its batch is through */
    bool is_sync;    /* the end of a batch */
    bool whole;      /* of a sync: its batch is one transaction */
    bool goes_on;    /* of a sync: COMMIT and another sync belong to the batch, too */
    unsigned number; /* > 0: prepares the statement of that number */
};

struct prepared {
    const char *sql; /* NULL: free */
    unsigned number; /* of its name */
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
    uv_timer_t *timer;    /* reconnect, time-out of a connect, or the end of a broken one */
    uv_timer_t *deadline; /* of the answer that is awaited */
    unsigned answer_ms;
    bool up, own, sticky;
    bool refused;         /* not a connection to work with: to be lost */
    bool whole;           /* the batch being sent began with pg_begin() */
    bool calling, doomed; /* inside a callback: pg_close() waits until it is over */
    unsigned failures;
    struct pending_query *pending; /* a ring of `room` */
    size_t room, first, count;
    size_t at;     /* statements of the first batch that are answered */
    bool answered; /* and the next one has its result, but not its end */
    PGresult
        *failed; /* how the commit at the end of the first batch failed; NULL: it did not */
    uint64_t batches;
    struct prepared prepared[PG_PREPARED_MAX];
    unsigned last_number;
    char words[PG_MESSAGE_MAX]; /* with which the server ended the connection */
    char state[PG_STATE_BYTES];
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

/* ---- what is awaited -----------------------------------------------------------------------
 */

static struct pending_query *entry(struct pg *pg, size_t i)
{
    return &pg->pending[(pg->first + i) % pg->room];
}

static struct pending_query take_first(struct pg *pg)
{
    struct pending_query p = *entry(pg, 0);
    pg->first = (pg->first + 1) % pg->room;
    pg->count--;
    return p;
}

static void push_pending(struct pg *pg, struct pending_query p)
{
    BELAY_CHECK(pg->count < PG_PENDING_MAX);
    if (pg->count == pg->room) {
        size_t room = pg->room ? 2 * pg->room : PG_PENDING_FIRST;
        struct pending_query *more = mem_alloc(room * sizeof *more);
        for (size_t i = 0; i < pg->count; i++)
            more[i] = *entry(pg, i);
        free(pg->pending);
        pg->pending = more;
        pg->room = room;
        pg->first = 0;
    }
    pg->count++;
    *entry(pg, pg->count - 1) = p;
}

/* Forgets everything that is awaited; tells the callers that wait and want to know. */
static void drop_pending(struct pg *pg)
{
    while (pg->count > 0) {
        struct pending_query p = take_first(pg);
        PQclear(p.res);
        if (p.fn && !pg->doomed)
            p.fn(p.arg, NULL);
    }
    PQclear(pg->failed);
    pg->failed = NULL;
    pg->at = 0;
    pg->answered = pg->whole = false;
    (void)uv_timer_stop(pg->deadline);
}

static bool transient_state(const char *state)
{
    static const char *const classes[] = {"08", "40", "53", "55", "57"};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strncmp(state, classes[i], 2) == 0)
            return true;
    return false;
}

/* The directory of the socket is there: a server that starts makes the socket. */
static bool socket_may_come(const char *why)
{
    const char *from = strchr(why, '"'), *to = strstr(why, "/.s.PGSQL.");
    char directory[PG_MESSAGE_MAX];
    if (!from || !to || to < from)
        return false;
    (void)snprintf(directory, sizeof directory, "%.*s", (int)(to - from - 1), from + 1);
    return access(directory, F_OK) == 0;
}

/* Could not connect, with this message. Without a word of the server's only what a server that
 * is away or not there yet looks like is worth waiting for. libpq speaks English in a program
 * that does not set a locale. */
static bool is_hopeless(const char *state, const char *why)
{
    static const char *const away[] = {"connection to server", "could not connect", NO_ANSWER};
    if (state[0])
        return !transient_state(state);
    if (strstr(why, "fe_sendauth"))
        return true;
    if (strstr(why, "No such file or directory"))
        return !socket_may_come(why);
    for (size_t i = 0; i < sizeof away / sizeof *away; i++)
        if (strncmp(why, away[i], strlen(away[i])) == 0)
            return false;
    return strstr(why, "Temporary failure") == NULL; /* of a name server */
}

/* Finds "FATAL:  57P03: words" in the message of a failed connect and keeps state and words. */
static void find_state(struct pg *pg, const char *why)
{
    for (const char *p = strstr(why, ":  "); p; p = strstr(p + 1, ":  ")) {
        size_t n = 0;
        while (isdigit((unsigned char)p[3 + n]) || isupper((unsigned char)p[3 + n]))
            n++;
        if (n == PG_STATE_BYTES - 1 && p[3 + n] == ':') {
            memcpy(pg->state, p + 3, n);
            return;
        }
    }
}

static void make_message(char *message, const char *words, const char *why)
{
    (void)snprintf(message, PG_MESSAGE_MAX, "%s", words[0] ? words : why);
    char *more = strstr(message, "\nLOCATION:");
    if (more)
        *more = '\0';
    for (char *p = message; *p; p++)
        if (*p == '\n')
            *p = ' ';
}

uint64_t pg_backoff_ms(unsigned failures)
{
    uint64_t ms = (uint64_t)PG_BACKOFF_MS << (failures < 7 ? failures : 7);
    if (ms > PG_BACKOFF_MAX_MS)
        ms = PG_BACKOFF_MAX_MS;
    return ms / 2 + (uint64_t)random() % (ms / 2 + 1);
}

/* Everything unanswered fails, in order; then the owner hears of it; then we try again later.
 */
static void lose(struct pg *pg, const char *why)
{
    char message[PG_MESSAGE_MAX];
    bool was_up = pg->up;
    if (!was_up && !pg->state[0])
        find_state(pg, why);
    make_message(message, pg->words, why);
    bool hopeless = !was_up && is_hopeless(pg->state, message);
    drop_poll(pg);
    PQfinish(pg->conn);
    pg->conn = NULL;
    pg->up = pg->own = false;
    memset(pg->prepared, 0, sizeof pg->prepared);
    drop_pending(pg);
    if (pg->doomed)
        return;
    (void)uv_timer_start(pg->timer, on_reconnect, pg_backoff_ms(pg->failures++), 0);
    pg->events.down(pg->arg, message, hopeless);
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

/* ---- answers -------------------------------------------------------------------------------
 */

/* What the server says before it ends a connection is worth more than that it was ended. */
static void note_words(struct pg *pg, const PGresult *res)
{
    const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (!severity || (strcmp(severity, "FATAL") != 0 && strcmp(severity, "PANIC") != 0))
        return;
    (void)snprintf(pg->words, sizeof pg->words, "%s", pg_message(res));
    (void)snprintf(pg->state, sizeof pg->state, "%s", pg_state(res));
}

static void on_notice(void *arg, const PGresult *res)
{
    note_words(arg, res);
    log_debug("queue.notice", "%s", pg_message(res));
}

static void take_notifications(struct pg *pg)
{
    PGnotify *n;
    while (!pg->doomed && pg->conn && (n = PQnotifies(pg->conn)) != NULL) {
        if (pg->events.notify)
            pg->events.notify(pg->arg, n->relname, n->extra);
        PQfreemem(n);
    }
}

static void forget_prepared(struct pg *pg, unsigned number)
{
    for (size_t i = 0; i < PG_PREPARED_MAX; i++)
        if (pg->prepared[i].number == number)
            pg->prepared[i] = (struct prepared){0};
}

/* Not a connection to work with: it is lost when its input is taken. */
static void refuse(struct pg *pg, const PGresult *res)
{
    if (!res)
        return; /* it is lost already */
    pg->refused = true;
    (void)snprintf(pg->words, sizeof pg->words, "%s", pg_message(res));
    (void)snprintf(pg->state, sizeof pg->state, "%s", pg_state(res));
}

/* The first batch is through: its answers go out. A transaction that failed anywhere failed for
 * all of its statements. */
static void deliver(struct pg *pg)
{
    size_t n = pg->at;
    PGresult *failed = pg->failed;
    pg->failed = NULL;
    pg->at = 0;
    for (size_t i = 0; entry(pg, n)->whole && !failed && i < n; i++)
        if (!entry(pg, i)->is_sync && !pg_ok(entry(pg, i)->res)) {
            failed = entry(pg, i)->res;
            entry(pg, i)->res = NULL;
        }
    if (entry(pg, n)->whole && strcmp(pg_state(failed), STATE_IN_FAILED) == 0)
        refuse(pg, failed); /* it began in what an earlier one has left behind */
    for (size_t i = 0; i <= n; i++) {
        struct pending_query p = take_first(pg);
        bool good = pg_ok(p.res) && !failed;
        if (p.number && !pg_ok(p.res))
            forget_prepared(pg, p.number);
        if (p.fn && !pg->doomed)
            p.fn(p.arg, good || (p.res && !pg_ok(p.res)) ? p.res : failed);
        PQclear(p.res);
    }
    PQclear(failed);
}

/* One result, the owner's from now on. False: it does not belong here. */
static bool take_result(struct pg *pg, PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);
    struct pending_query *p = entry(pg, pg->at);
    note_words(pg, res);
    if (status == PGRES_PIPELINE_SYNC) {
        PQclear(res);
        if (!p->is_sync)
            return false;
        pg->answered = false;
        if (p->goes_on) {
            pg->at++;
            return true;
        }
        deliver(pg);
        if (pg->count == 0)
            (void)uv_timer_stop(pg->deadline);
        return true;
    }
    bool failed = status == PGRES_FATAL_ERROR || status == PGRES_PIPELINE_ABORTED;
    PGresult **where = p->is_sync ? &pg->failed : &p->res;
    if (*where || (p->is_sync ? !failed : !failed && !pg_ok(res))) {
        PQclear(res);
        return false;
    }
    *where = res;
    pg->answered = true;
    return true;
}

/* Hands out every answer that has come in full. False: the server does not keep to the
 * protocol. */
static bool take_results(struct pg *pg)
{
    while (pg->count > 0 && !pg->doomed && !PQisBusy(pg->conn)) {
        PGresult *res = PQgetResult(pg->conn);
        if (PQstatus(pg->conn) == CONNECTION_BAD) { /* an error of the connection's own */
            if (res)
                note_words(pg, res);
            PQclear(res);
            return true;
        }
        if (res) {
            if (!take_result(pg, res))
                return false;
        } else if (!pg->answered) {
            return true; /* nothing more has come */
        } else {
            pg->answered = false; /* the end of a statement's answer */
            if (!entry(pg, pg->at)->is_sync)
                pg->at++;
        }
    }
    return true;
}

static void take_input(struct pg *pg)
{
    (void)PQconsumeInput(pg->conn); /* a failure shows in PQstatus() */
    bool good = take_results(pg);
    take_notifications(pg);
    if (pg->doomed || !pg->conn)
        return;
    if (!good)
        lose(pg, "the server sent an answer that belongs to no statement");
    else if (pg->refused)
        lose(pg, pg->words);
    else if (PQstatus(pg->conn) == CONNECTION_BAD)
        lose(pg, PQerrorMessage(pg->conn));
}

static void on_io(uv_poll_t *poll, int status, int events)
{
    struct pg *pg = poll->data;
    enter(pg);
    if (status < 0)
        pg->poll_events = 0; /* libuv has stopped to watch: watch() must begin again */
    if (status < 0 || (events & UV_READABLE)) {
        if (pg->count > 0)
            (void)uv_timer_again(pg->deadline); /* something comes: it is alive */
        take_input(pg);
    }
    if (pg->conn && !pg->doomed)
        watch(pg, UV_READABLE | (PQflush(pg->conn) == 1 ? UV_WRITABLE : 0));
    leave(pg);
}

/* What has come meanwhile counts: this process may have been stopped for a while. */
static void on_deadline(uv_timer_t *timer)
{
    struct pg *pg = timer->data;
    size_t awaited = pg->count;
    uint64_t batches = pg->batches;
    char why[64];
    enter(pg);
    take_input(pg);
    if (pg->conn && !pg->doomed && pg->count == awaited && pg->batches == batches) {
        (void)snprintf(why, sizeof why, NO_ANSWER " for %u ms", pg->answer_ms);
        lose(pg, why);
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

/* Found while sending, and callbacks never come from pg_send(). */
static void break_soon(struct pg *pg)
{
    drop_poll(pg);
    (void)uv_timer_start(pg->timer, on_broken, 0, 0);
}

static void watch_with(struct pg *pg, int events, uv_poll_cb cb)
{
    int fd = PQsocket(pg->conn);
    if (fd < 0) {
        break_soon(pg);
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

/* ---- sending -------------------------------------------------------------------------------
 */

/* The number of `sql` among the prepared statements; prepares it first if there is room, else
 * 0. */
static unsigned prepared_number(struct pg *pg, const char *sql)
{
    size_t free_place = PG_PREPARED_MAX;
    for (size_t i = 0; i < PG_PREPARED_MAX; i++) {
        if (pg->prepared[i].sql == sql)
            return pg->prepared[i].number;
        if (!pg->prepared[i].sql && free_place == PG_PREPARED_MAX)
            free_place = i;
    }
    if (free_place == PG_PREPARED_MAX)
        return 0;
    char name[16];
    unsigned number = ++pg->last_number;
    (void)snprintf(name, sizeof name, "s%u", number);
    if (PQsendPrepare(pg->conn, name, sql, 0, NULL) == 0)
        return 0;
    push_pending(pg, (struct pending_query){.number = number});
    pg->prepared[free_place] = (struct prepared){sql, number};
    return number;
}

static void send_statement(struct pg *pg, const char *sql, int n, const char *const *params,
                           struct pending_query p)
{
    unsigned number = pg->sticky ? prepared_number(pg, sql) : 0;
    int sent;
    if (number > 0) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%u", number);
        sent = PQsendQueryPrepared(pg->conn, name, n, params, NULL, NULL, 0);
    } else {
        sent = PQsendQueryParams(pg->conn, sql, n, NULL, params, NULL, NULL, 0);
    }
    push_pending(pg, p);
    if (sent == 0)
        break_soon(pg);
}

static void send_sync(struct pg *pg, bool goes_on)
{
    bool sent = PQpipelineSync(pg->conn) == 1;
    if (!uv_is_active((uv_handle_t *)pg->deadline))
        (void)uv_timer_start(pg->deadline, on_deadline, pg->answer_ms, pg->answer_ms);
    push_pending(
        pg, (struct pending_query){.is_sync = true, .whole = pg->whole, .goes_on = goes_on});
    pg->whole = pg->whole && goes_on;
    pg->batches++;
    int more = PQflush(pg->conn);
    if (!sent || more < 0)
        break_soon(pg);
    else
        watch(pg, UV_READABLE | (more == 1 ? UV_WRITABLE : 0));
}

void pg_send(struct pg *pg, const char *sql, int n, const char *const *params, pg_result_fn *fn,
             void *arg)
{
    BELAY_CHECK(pg_is_up(pg));
    BELAY_CHECK(n <= PG_PARAMS_MAX);
    send_statement(pg, sql, n, params, (struct pending_query){.fn = fn, .arg = arg});
}

void pg_sync(struct pg *pg)
{
    BELAY_CHECK(pg_is_up(pg));
    send_sync(pg, false);
}

void pg_begin(struct pg *pg)
{
    pg->whole = true;
    if (!pg->own)
        pg_send(pg, pg_begin_sql, 0, NULL, NULL, NULL);
}

/* After an error all is skipped up to the next sync. Behind one the COMMIT is carried out in any
 * case, and ends a transaction that failed as well: the session is not left in it. */
void pg_commit(struct pg *pg)
{
    if (!pg->own) {
        send_sync(pg, true);
        pg_send(pg, "COMMIT", 0, NULL, NULL, NULL);
    }
    pg_sync(pg);
}

/* ---- connecting ----------------------------------------------------------------------------
 */

static const char settings_sql[] =
    "SELECT set_config(s.name, s.value, false) FROM (VALUES"
    " ('default_transaction_isolation', 'read committed'),"
    " ('default_transaction_read_only', 'off'),"
    " ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0'),"
    " ('lock_timeout', '0'), ('transaction_timeout', '0'), ('statement_timeout', $1),"
    " ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'),"
    " ('tcp_keepalives_count', '3')) s (name, value)"
    " JOIN pg_settings g ON g.name = s.name";

static void good(struct pg *pg)
{
    pg->up = true;
    pg->failures = 0;
    pg->events.up(pg->arg);
}

static void on_settings(void *arg, const PGresult *res)
{
    struct pg *pg = arg;
    if (pg_ok(res))
        good(pg);
    else
        refuse(pg, res);
}

/* The server works for us: in a session of our own what we rely on is set, whatever the
 * database's defaults are. The server ends a statement a little before we give it up. */
static void on_check(void *arg, const PGresult *res)
{
    struct pg *pg = arg;
    char ms[16];
    if (!pg_ok(res)) {
        refuse(pg, res);
        return;
    }
    pg->own = strtol(pg_first(res), NULL, 10) == PQbackendPID(pg->conn);
    if (!pg->own) {
        good(pg);
        return;
    }
    (void)snprintf(ms, sizeof ms, "%u", pg->answer_ms - pg->answer_ms / 5);
    const char *p[] = {ms};
    send_statement(pg, settings_sql, 1, p,
                   (struct pending_query){.fn = on_settings, .arg = pg});
    send_sync(pg, false);
}

static void connected(struct pg *pg)
{
    (void)uv_timer_stop(pg->timer);
    (void)PQsetnonblocking(pg->conn, 1);
    (void)PQenterPipelineMode(pg->conn);
    send_statement(pg, "SELECT pg_backend_pid()", 0, NULL,
                   (struct pending_query){.fn = on_check, .arg = pg});
    send_sync(pg, false);
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
        connected(pg);
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
    lose(pg, NO_ANSWER " while connecting");
    leave(pg);
}

static void connect_start(struct pg *pg)
{
    /* The URL may say otherwise about what stands before it. */
    const char *keys[] = {
        "keepalives_idle", "keepalives_interval",       "keepalives_count", "tcp_user_timeout",
        "dbname",          "fallback_application_name", "client_encoding",  NULL};
    const char *values[] = {"10", "5", "3", "25000", pg->url, pg->name, "UTF8", NULL};
    enter(pg);
    pg->words[0] = pg->state[0] = '\0';
    pg->refused = false;
    pg->conn = PQconnectStartParams(keys, values, 1);
    BELAY_CHECK(pg->conn != NULL);
    if (PQstatus(pg->conn) == CONNECTION_BAD) {
        lose(pg, PQerrorMessage(pg->conn));
    } else {
        (void)PQsetNoticeReceiver(pg->conn, on_notice, pg);
        (void)PQsetErrorVerbosity(pg->conn, PQERRORS_VERBOSE); /* so that SQLSTATE is told */
        (void)uv_timer_start(pg->timer, on_connect_timeout, PG_CONNECT_TIMEOUT_MS, 0);
        watch_with(pg, UV_WRITABLE, on_connect_io);
    }
    leave(pg);
}

static uv_timer_t *open_timer(struct pg *pg)
{
    uv_timer_t *timer = mem_zalloc(sizeof *timer);
    (void)uv_timer_init(pg->loop, timer);
    timer->data = pg;
    return timer;
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
    pg->answer_ms = PG_ANSWER_MS;
    pg->timer = open_timer(pg);
    pg->deadline = open_timer(pg);
    (void)uv_timer_start(pg->timer, on_reconnect, 0,
                         0); /* callbacks never come from pg_open() */
    return pg;
}

void pg_close(struct pg *pg)
{
    if (!pg)
        return;
    pg->doomed = true;
    if (pg->calling)
        return;
    drop_poll(pg);
    drop_pending(pg);
    PQfinish(pg->conn);
    uv_close((uv_handle_t *)pg->timer, on_handle_closed);
    uv_close((uv_handle_t *)pg->deadline, on_handle_closed);
    free(pg->pending);
    free(pg->url);
    free(pg->name);
    free(pg);
}

void pg_set_answer_ms(struct pg *pg, unsigned ms)
{
    pg->answer_ms = ms;
}

void pg_set_sticky(struct pg *pg, bool sticky)
{
    pg->sticky = sticky;
}

bool pg_is_up(const struct pg *pg)
{
    return pg->up && !pg->doomed;
}

bool pg_is_own(const struct pg *pg)
{
    return pg->own;
}

/* ---- results -------------------------------------------------------------------------------
 */

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

bool pg_is_transient(const PGresult *res)
{
    return !res || PQresultStatus(res) == PGRES_PIPELINE_ABORTED ||
           transient_state(pg_state(res));
}

const char *pg_first(const PGresult *res)
{
    return PQntuples(res) > 0 && PQnfields(res) > 0 ? PQgetvalue(res, 0, 0) : "";
}
