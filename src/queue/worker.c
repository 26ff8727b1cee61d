/* worker.c - a worker: its loop, its control connection, its start and its stop. */
#include "queue/worker.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "queue/schema.h"
#include "queue/text.h"
#include "queue/worker_state.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_LEASE_MS = 30000,
    DEFAULT_MAX_ATTEMPTS = 10,
    DEFAULT_BACKOFF_MS = 1000,
    DEFAULT_BACKOFF_MAX_MS = 3600000,
    PRIME_MARK = 1, /* first byte of our own notifications: no queue's name has it */
    LOOK_MARK = 2,  /* and of those that say in how many ms to look what time has brought */
    CANCEL_MARK = 3 /* and before the name of a queue of which a claim was taken away */
};

/* ---- passes --------------------------------------------------------------------------------
 */

void pass_reset(struct pass *p)
{
    memset(p->line, 0, sizeof p->line);
    p->at = 0;
    p->empty = 0;
    p->turn++;
    p->busy = 0;
    p->worked = false;
    p->careful = false;
    p->unfolded = 0;
}

/* Place `at` in the order; among queues of one priority the start moves from pass to pass. */
size_t pass_queue(const struct worker *w, const struct pass *p)
{
    const struct worker_queue *q = w->o->queues;
    int priority = q[w->order[p->at]].priority;
    size_t first = p->at, end = p->at + 1;
    while (first > 0 && q[w->order[first - 1]].priority == priority)
        first--;
    while (end < w->o->n_queue && q[w->order[end]].priority == priority)
        end++;
    return w->order[first + (p->at - first + p->turn) % (end - first)];
}

void pass_found(struct pass *p)
{
    p->worked = true;
    p->careful = false;
    p->empty = 0;
    p->at = 0; /* the highest priority first, each time */
    p->turn++;
    if (p->unfolded < PASS_UNFOLD_MAX)
        p->unfolded = 0;
}

void pass_unfolded(struct pass *p, long n)
{
    unsigned counts = n < PASS_UNFOLD_FULL ? PASS_UNFOLD_LITTLE : 1;
    unsigned before = p->unfolded < PASS_UNFOLD_MAX ? p->unfolded : 0;
    p->unfolded = before + counts < PASS_UNFOLD_MAX ? before + counts : PASS_UNFOLD_MAX;
}

bool pass_next(struct worker *w, struct pass *p)
{
    p->at = (p->at + 1) % w->o->n_queue;
    if (++p->empty < w->o->n_queue)
        return true;
    bool again = p->worked;
    if (again)
        pass_reset(p); /* because of us somebody may have skipped what is free now */
    return again;
}

/* ---- the end -------------------------------------------------------------------------------
 */

static bool is_lease(const struct worker *w)
{
    return w->o->base.mode == BELAY_QUEUE_LEASE;
}

static bool quiet(const struct worker *w)
{
    return slots_quiet(w) && worker_lease_quiet(w);
}

void worker_maybe_close(struct worker *w)
{
    if (!w->stopping || w->closing || !quiet(w))
        return;
    w->closing = true;
    slots_close(w);
    worker_lease_close(w);
    pg_close(w->control);
    uv_handle_t *handles[] = {
        (uv_handle_t *)&w->tick,        (uv_handle_t *)&w->recheck, (uv_handle_t *)&w->done,
        (uv_handle_t *)&w->prime_timer, (uv_handle_t *)&w->grace,   (uv_handle_t *)&w->again,
        (uv_handle_t *)&w->doze,        (uv_handle_t *)&w->get_up,  (uv_handle_t *)&w->look,
        (uv_handle_t *)&w->sigterm,     (uv_handle_t *)&w->sigint};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
        uv_close(handles[i], NULL);
}

struct pg *worker_connect(struct worker *w, const struct pg_events *events, void *arg)
{
    struct pg *pg =
        pg_open(&w->loop, w->o->base.url ? w->o->base.url : "", w->name, events, arg);
    if (w->o->answer_ms > 0)
        pg_set_answer_ms(pg, w->o->answer_ms);
    return pg;
}

void worker_prepare(struct worker *w, struct pg *pg)
{
    static const char *const off[] = {"SET plan_cache_mode = force_generic_plan",
                                      "SET enable_seqscan = off",
                                      "SET enable_bitmapscan = off",
                                      "SET enable_hashjoin = off",
                                      "SET enable_mergejoin = off",
                                      "SET enable_memoize = off"};
    bool own = pg_is_own(pg); /* else its settings would be somebody else's, too */
    pg_set_sticky(pg, own && w->o->poll_ms == 0);
    if (own && w->o->verbose)
        pg_send(pg, "SET client_min_messages = debug1", 0, NULL, NULL, NULL);
    for (size_t i = 0; own && i < sizeof off / sizeof off[0]; i++)
        pg_send(pg, off[i], 0, NULL, NULL, NULL);
    pg_sync(pg);
}

void worker_ask(struct pg *pg, const char *sql, int n, const char *const *params,
                pg_result_fn *fn, void *arg)
{
    pg_begin(pg);
    pg_send(pg, sql, n, params, fn, arg);
    pg_commit(pg);
}

void worker_unfold(struct worker *w, struct pg *pg, const struct pass *p, pg_result_fn *fn,
                   void *arg)
{
    const char *queue[] = {w->o->queues[pass_queue(w, p)].name};
    pg_begin(pg);
    pg_send(pg, "SET LOCAL synchronous_commit = off", 0, NULL, NULL, NULL);
    pg_send(pg, w->sql.unfold, 1, queue, fn, arg);
    pg_commit(pg);
}

char *result_refused(const PGresult *res)
{
    struct buf b = {0};
    buf_printf(&b, "the result could not be stored: %s", pg_message(res));
    char *text = mem_dup(buf_data(&b), buf_len(&b));
    buf_done(&b);
    return text;
}

static void kill_all(struct worker *w)
{
    w->killed = true;
    slots_kill(w);
    worker_lease_kill(w);
}

static void on_grace(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    log_warn("queue.grace_over", "grace_ms=%u", w->o->grace_ms);
    kill_all(w);
}

void worker_stop(struct worker *w)
{
    if (w->stopping)
        return;
    w->stopping = true;
    if (w->o->grace_ms > 0)
        (void)uv_timer_start(&w->grace, on_grace, w->o->grace_ms, 0);
    worker_lease_stop(w);
    worker_maybe_close(w);
}

void worker_fail(struct worker *w, const char *format, ...)
{
    if (w->rc == 0) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(w->why, w->why_bytes, format, args);
        va_end(args);
        w->rc = -1;
    }
    kill_all(w);
    worker_stop(w);
}

bool worker_hopeless(struct worker *w, const PGresult *res)
{
    static const char *const states[] = {"42501", "42883", "3F000", "42P01", "3D000"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(pg_state(res), states[i]) == 0) {
            worker_fail(w, "%s", pg_message(res));
            return true;
        }
    return false;
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct worker *w = handle->data;
    if (w->stopping) {
        log_warn("queue.killing", "signal=%d", signum);
        kill_all(w);
        return;
    }
    log_info("queue.stopping", "signal=%d", signum);
    worker_stop(w);
}

/* ---- waking and sleeping -------------------------------------------------------------------
 */

bool worker_try_wake(struct worker *w)
{
    return is_lease(w) ? worker_lease_wake(w) : slots_wake(w);
}

void worker_wake(struct worker *w)
{
    if (!w->stopping && !worker_try_wake(w))
        w->dirty = true;
}

static void on_recheck(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    worker_wake(w);
}

static void on_drain_waits(void *arg, const PGresult *res)
{
    (void)arg;
    if (pg_ok(res) && pg_first(res)[0])
        log_info("queue.drain_waits", "for=%s", log_bytes(slice_str(pg_first(res))));
}

/* A drain that waits says for what, now and then. */
static void ask_drain_waits(struct worker *w)
{
    uint64_t now = uv_now(&w->loop);
    if (w->drain_asked_ms > 0 && now - w->drain_asked_ms < WORKER_DRAIN_SAY_MS)
        return;
    w->drain_asked_ms = now;
    const char *names[] = {w->queue_names};
    worker_ask(w->control, w->sql.drain_waits, 1, names, on_drain_waits, w);
}

static void on_drained(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    w->draining = false;
    if (!pg_ok(res) || w->stopping)
        return;
    if (pg_first(res)[0] == 't' && quiet(w)) {
        log_info("queue.drained", "complete=%" PRIu64 " error=%" PRIu64, w->n_complete,
                 w->n_error);
        worker_stop(w);
    } else {
        worker_tend(w);
        ask_drain_waits(w);
        (void)uv_timer_start(&w->recheck, on_recheck, WORKER_DRAIN_CHECK_MS, 0);
    }
}

void worker_idle(struct worker *w, const struct pass *p)
{
    if (w->stopping)
        return;
    if (w->dirty) {
        w->dirty = false;
        worker_wake(w);
    } else if (w->o->base.drain && quiet(w)) {
        if (w->draining || !pg_is_up(w->control))
            return;
        w->draining = true;
        const char *names[] = {w->queue_names};
        worker_ask(w->control, w->sql.drained, 1, names, on_drained, w);
    } else {
        if (p->busy > 0)
            (void)uv_timer_start(&w->recheck, on_recheck, WORKER_RECHECK_MS, 0);
        else if (!w->o->base.drain)
            (void)uv_timer_stop(&w->recheck); /* what was passed over is gone */
        sleep_fall(w);
    }
}

static void on_tick(uv_timer_t *timer)
{
    worker_tend(timer->data);
}

/* When to tend again, by the answer of tend(). What is overdue and was not taken is locked by
 * somebody: to ask for it again and again would keep the database busy for nothing. */
static uint64_t next_tend(const struct worker *w, const PGresult *res)
{
    uint64_t poll = w->o->poll_ms ? w->o->poll_ms : WORKER_POLL_MS;
    uint64_t next = w->listening ? WORKER_SAFETY_POLL_MS : poll, now = uv_now(&w->loop);
    if (w->look_at > now && w->look_at - now < next)
        next = w->look_at - now;
    if (!pg_ok(res))
        return WORKER_RECHECK_MS;
    if (PQntuples(res) == 0 || PQgetisnull(res, 0, 0))
        return next;
    uint64_t due = strtoull(PQgetvalue(res, 0, 0), NULL, 10);
    if (due == 0 && strcmp(PQgetvalue(res, 0, 1), "0") == 0)
        due = WORKER_OVERDUE_MS;
    return due + 1 < next ? due + 1 : next;
}

static void open_slots(struct worker *w)
{
    if (is_lease(w))
        worker_lease_open(w);
    else
        slots_open(w, w->cells);
}

static void on_tend(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    w->tending = false;
    w->tend_from = pg_ok(res) ? (int)strtol(PQgetvalue(res, 0, 2), NULL, 10) : 0;
    if (w->stopping || !res)
        return;
    if (!pg_ok(res)) {
        if (worker_hopeless(w, res))
            return;
        log_warn("queue.tend_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
    }
    if (w->tend_from > 0) {
        worker_tend(w); /* the rest of the journal */
        return;
    }
    if (!w->slots && !w->lease) /* the attempts of the dead are counted: now it may claim */
        open_slots(w);
    (void)uv_timer_start(&w->tick, on_tick, next_tend(w, res), 0);
    if (w->tend_again) {
        w->tend_again = false;
        worker_tend(w);
        return;
    }
    worker_wake(w);
}

void worker_tend(struct worker *w)
{
    if (w->stopping || !pg_is_up(w->control))
        return; /* it comes with the connection */
    if (w->tending) {
        w->tend_again = true;
        return;
    }
    w->tending = true;
    char from[16];
    (void)snprintf(from, sizeof from, "%d", w->tend_from);
    const char *p[] = {w->queue_names, w->numbers[0], w->numbers[1],
                       w->numbers[2],  w->cells,      from};
    worker_ask(w->control, w->sql.tend, 6, p, on_tend, w);
}

static void on_done_timer(uv_timer_t *timer);

static void on_announced(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    (void)res;
    w->announcing = false;
    for (size_t i = 0; i < w->o->n_queue && !w->stopping; i++)
        if (w->settled[i])
            (void)uv_timer_start(&w->done, on_done_timer, WORKER_DONE_MS, 0);
}

static void on_done_timer(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    if (!pg_is_up(w->control) || w->announcing)
        return;
    w->announcing = true;
    pg_begin(w->control);
    for (size_t i = 0; i < w->o->n_queue; i++)
        if (w->settled[i]) {
            w->settled[i] = false;
            const char *p[] = {w->o->queues[i].name};
            pg_send(w->control, w->sql.announce_done, 1, p, NULL, NULL);
        }
    pg_send(w->control, "SELECT 1", 0, NULL, on_announced, w);
    pg_commit(w->control);
}

void worker_count(struct worker *w, const char *queue, enum verdict_kind kind)
{
    if (kind == VERDICT_COMPLETE)
        w->n_complete++;
    else if (kind == VERDICT_ERROR)
        w->n_error++;
    else
        w->n_retry++;
    for (size_t i = 0; i < w->o->n_queue; i++)
        if (strcmp(w->o->queues[i].name, queue) == 0)
            w->settled[i] = true;
    if (!uv_is_active((uv_handle_t *)&w->done) && !w->stopping)
        (void)uv_timer_start(&w->done, on_done_timer, WORKER_DONE_MS, 0);
    if (kind == VERDICT_RETRY)
        worker_tend(w); /* sets the alarm for its next attempt */
}

/* ---- control connection --------------------------------------------------------------------
 */

static void control_start(struct worker *w);

static void on_again(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    if (!w->stopping && pg_is_up(w->control))
        control_start(w);
}

/* A first statement failed. What time mends is waited out; without an answer `down` follows. */
static void start_failed(struct worker *w, const PGresult *res, const char *advice)
{
    if (!res || PQresultStatus(res) == PGRES_PIPELINE_ABORTED)
        return;
    if (!pg_is_transient(res)) {
        worker_fail(w, "%s%s", pg_message(res), advice);
        return;
    }
    log_warn("queue.not_ready", "state=%s error=\"%s\" next=\"trying again\"", pg_state(res),
             pg_message(res));
    (void)uv_timer_start(&w->again, on_again, pg_backoff_ms(w->start_failures++), 0);
}

static void add_cells(struct worker *w, const char *more)
{
    struct buf all = {0};
    const char *lists[] = {w->cells ? w->cells : "", more};
    int64_t cell;
    w->n_cell = 0;
    text_array_begin(&all);
    for (size_t i = 0; i < 2; i++)
        for (const char *at = lists[i]; text_array_next_i64(&at, &cell); w->n_cell++)
            text_array_add_i64(&all, cell);
    text_array_end(&all);
    free(w->cells);
    w->cells = mem_dup(buf_data(&all), buf_len(&all));
    buf_done(&all);
}

static void on_ready(void *arg, const PGresult *res);

/* A transaction gives out as many as it has room for locks. */
static void ask_cells(struct worker *w)
{
    char count[16];
    (void)snprintf(count, sizeof count, "%u", slots_max(w) - w->n_cell);
    const char *p[] = {count};
    worker_ask(w->control, w->sql.ready, 1, p, on_ready, w);
}

static void on_ready(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    if (w->stopping)
        return;
    if (!pg_ok(res)) {
        start_failed(w, res, "");
        return;
    }
    w->start_failures = 0;
    unsigned had = w->n_cell;
    add_cells(w, pg_first(res));
    if (w->n_cell > had && w->n_cell < slots_max(w)) {
        ask_cells(w);
        return;
    }
    worker_tend(w);
}

static void on_version(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    if (w->stopping)
        return;
    if (!pg_ok(res)) {
        start_failed(w, res, " (is the schema installed? belay queue install)");
        return;
    }
    long version = strtol(pg_first(res), NULL, 10);
    if (version != QUEUE_SCHEMA_VERSION) {
        worker_fail(w, "the schema has version %ld, this program needs %d: %s", version,
                    QUEUE_SCHEMA_VERSION,
                    version < QUEUE_SCHEMA_VERSION ? "run belay queue install"
                                                   : "use a newer program");
        return;
    }
    if (w->slots || w->lease) { /* its cells are its own as long as it lives */
        w->start_failures = 0;
        worker_tend(w);
        return;
    }
    ask_cells(w);
}

static void control_start(struct worker *w)
{
    worker_ask(w->control, w->sql.version, 0, NULL, on_version, w);
}

/* Said once: it stays like this as long as the worker runs. */
static void say_polling(struct worker *w, const char *why)
{
    if (!w->told_polling)
        log_warn("queue.no_notifications", "polling every %d ms: %s", WORKER_POLL_MS, why);
    w->told_polling = true;
}

static void on_prime_timer(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    say_polling(w, "our own notification did not come back");
    worker_tend(w);
}

/* LISTEN, and a notification in another transaction: when it comes back, others' will too. A
 * session that a pooler gives to somebody else after each transaction is left alone. */
static void start_listening(struct worker *w)
{
    w->listening = false;
    if (w->o->poll_ms > 0)
        return;
    if (!pg_is_own(w->control)) {
        say_polling(w, "there is a pooler in front of the database, so sessions are shared");
        return;
    }
    struct buf listen = {0};
    const char *prime[] = {w->channel_push, w->prime};
    buf_put_str(&listen, "LISTEN ");
    text_put_ident(&listen, w->channel_push);
    pg_send(w->control, buf_cstr(&listen), 0, NULL, NULL, NULL);
    pg_sync(w->control);
    pg_send(w->control, "SELECT pg_notify($1, $2)", 2, prime, NULL, NULL);
    pg_sync(w->control);
    buf_done(&listen);
    (void)uv_timer_start(&w->prime_timer, on_prime_timer, WORKER_PRIME_MS, 0);
}

static void on_control_up(void *arg)
{
    struct worker *w = arg;
    log_info("queue.connected", "worker=%s", w->name);
    start_listening(w);
    control_start(w);
    w->reached = true;
}

static void on_control_down(void *arg, const char *why, bool hopeless)
{
    struct worker *w = arg;
    w->tending = w->draining = w->announcing = false;
    w->listening = false;
    sleep_lost(w);
    (void)uv_timer_stop(&w->prime_timer);
    (void)uv_timer_stop(&w->again);
    if (hopeless && !w->reached) {
        worker_fail(w, "%s", why);
    } else {
        w->reached = true; /* there is a server, even if it does not take us now */
        log_warn("queue.disconnected", "error=\"%s\" next=\"trying again\"", why);
    }
    worker_maybe_close(w);
}

/* Somebody planned something (0), or has leases that may end then: tend(), not later. */
static void look_in(struct worker *w, uint64_t ms)
{
    uint64_t now = uv_now(&w->loop);
    if (ms == 0)
        worker_tend(w);
    else if (w->look_at <= now || w->look_at > now + ms)
        w->look_at = now + ms;
    if (!w->tending && w->look_at > now && uv_timer_get_due_in(&w->tick) > w->look_at - now)
        (void)uv_timer_start(&w->tick, on_tick, w->look_at - now, 0);
}

static void on_control_notify(void *arg, const char *channel, const char *payload)
{
    struct worker *w = arg;
    (void)channel;
    bool cancelled = payload[0] == CANCEL_MARK;
    if (payload[0] == PRIME_MARK) {
        if (strcmp(payload, w->prime) == 0) {
            w->listening = true;
            (void)uv_timer_stop(&w->prime_timer);
            sleep_fall(w);
        }
        return;
    }
    if (payload[0] == LOOK_MARK) {
        look_in(w, strtoull(payload + 1, NULL, 10));
        return;
    }
    for (size_t i = 0; i < w->o->n_queue; i++)
        if (strcmp(w->o->queues[i].name, payload + cancelled) == 0) {
            if (cancelled) {
                worker_lease_look(w);
            } else {
                sleep_told(w);
                worker_wake(w);
            }
            return;
        }
}

/* ---- setting up ----------------------------------------------------------------------------
 */

static char *with_schema(const char *text, const char *schema)
{
    struct buf b = {0};
    for (; *text; text++)
        if (*text == '@')
            text_put_ident(&b, schema);
        else
            buf_put_byte(&b, *text);
    char *sql = mem_dup(buf_data(&b), buf_len(&b));
    buf_done(&b);
    return sql;
}

static void make_sql(struct worker *w)
{
    const char *schema = w->o->base.schema ? w->o->base.schema : "belay";
    struct buf b = {0};
#define X(name, text) w->sql.name = with_schema(text, schema);
    WORKER_SQL(X)
#undef X
    buf_clear(&b);
    buf_printf(&b, "%s.push", schema);
    w->channel_push = mem_dup(buf_data(&b), buf_len(&b));
    buf_clear(&b);
    text_array_begin(&b);
    for (size_t i = 0; i < w->o->n_queue; i++)
        text_array_add(&b, slice_str(w->o->queues[i].name));
    text_array_end(&b);
    w->queue_names = mem_dup(buf_data(&b), buf_len(&b));
    buf_done(&b);
}

static void free_sql(struct worker *w)
{
#define X(name, text) free(w->sql.name);
    WORKER_SQL(X)
#undef X
    free(w->channel_push);
    free(w->queue_names);
    free(w->cells);
}

static unsigned or_default(unsigned v, unsigned otherwise)
{
    return v ? v : otherwise;
}

static void make_order(struct worker *w)
{
    for (size_t i = 0; i < w->o->n_queue; i++) {
        size_t at = i;
        for (; at > 0 && w->o->queues[w->order[at - 1]].priority < w->o->queues[i].priority;
             at--)
            w->order[at] = w->order[at - 1];
        w->order[at] = i;
    }
}

static void make_names(struct worker *w)
{
    const struct belay_queue_options *b = &w->o->base;
    char host[64] = "";
    (void)gethostname(host, sizeof host - 1);
    if (b->worker)
        (void)snprintf(w->name, sizeof w->name, "%s", b->worker);
    else
        (void)snprintf(w->name, sizeof w->name, "%s:%ld", host, (long)getpid());
    (void)snprintf(w->prime, sizeof w->prime, "%c%s:%ld:%" PRIu64, PRIME_MARK, "prime",
                   (long)getpid(), uv_hrtime());
    (void)snprintf(w->numbers[0], sizeof w->numbers[0], "%u",
                   or_default(b->max_attempts, DEFAULT_MAX_ATTEMPTS));
    (void)snprintf(w->numbers[1], sizeof w->numbers[1], "%u",
                   or_default(b->backoff_ms, DEFAULT_BACKOFF_MS));
    (void)snprintf(w->numbers[2], sizeof w->numbers[2], "%u",
                   or_default(b->backoff_max_ms, DEFAULT_BACKOFF_MAX_MS));
    w->concurrency = or_default(b->concurrency, 1);
    w->batch = or_default(b->batch, w->concurrency);
    w->lease_ms = or_default(b->lease_ms, DEFAULT_LEASE_MS);
}

static void open_handles(struct worker *w)
{
    uv_timer_t *timers[] = {&w->tick,  &w->recheck, &w->done,   &w->prime_timer, &w->grace,
                            &w->again, &w->doze,    &w->get_up, &w->look};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        (void)uv_timer_init(&w->loop, timers[i]);
        timers[i]->data = w;
    }
    (void)uv_signal_init(&w->loop, &w->sigterm);
    (void)uv_signal_init(&w->loop, &w->sigint);
    w->sigterm.data = w->sigint.data = w;
    (void)uv_signal_start(&w->sigterm, on_signal, SIGTERM);
    (void)uv_signal_start(&w->sigint, on_signal, SIGINT);
}

/* Signals that a worker, or libuv for it, handles while it runs; the caller gets them back. */
static const int taken_signals[] = {SIGPIPE, SIGTERM, SIGINT, SIGCHLD};
enum { TAKEN_SIGNALS = sizeof taken_signals / sizeof *taken_signals };

static void save_signals(struct sigaction saved[TAKEN_SIGNALS])
{
    for (size_t i = 0; i < TAKEN_SIGNALS; i++)
        (void)sigaction(taken_signals[i], NULL, &saved[i]);
    (void)signal(SIGPIPE, SIG_IGN);
}

static void restore_signals(const struct sigaction saved[TAKEN_SIGNALS])
{
    for (size_t i = 0; i < TAKEN_SIGNALS; i++)
        (void)sigaction(taken_signals[i], &saved[i], NULL);
}

int worker_run(const struct worker_options *o, char *why, size_t why_bytes)
{
    static const struct pg_events events = {on_control_up, on_control_down, on_control_notify};
    struct worker *w = mem_zalloc(sizeof *w);
    w->o = o;
    w->why = why;
    w->why_bytes = why_bytes;
    struct sigaction signals[TAKEN_SIGNALS];
    save_signals(signals);
    int rc = uv_loop_init(&w->loop);
    BELAY_CHECK(rc == 0);
    w->run = (struct runner_options){.loop = &w->loop,
                                     .argv = o->argv,
                                     .persistent = o->persistent,
                                     .timeout_ms = o->timeout_ms,
                                     .fn = o->fn,
                                     .fn_arg = o->fn_arg};
    if (o->argv && !(w->run.nursery = nursery_open(&w->loop))) {
        (void)snprintf(why, why_bytes, "cannot start the minder: %s", strerror(errno));
        w->rc = -1;
    } else {
        make_names(w);
        make_sql(w);
        make_order(w);
        open_handles(w);
        w->control = worker_connect(w, &events, w);
        (void)uv_run(&w->loop, UV_RUN_DEFAULT);
        log_info("queue.stopped", "complete=%" PRIu64 " error=%" PRIu64 " retried=%" PRIu64,
                 w->n_complete, w->n_error, w->n_retry);
        nursery_close(w->run.nursery);
    }
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&w->loop);
    restore_signals(signals);
    rc = w->rc;
    free(w->slots);
    free(w->clerks);
    free(w->ahead);
    free_sql(w);
    free(w);
    return rc;
}
