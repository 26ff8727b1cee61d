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
    PRIME_MARK = 1 /* first byte of our own notifications: no queue's name has it */
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

void pass_unfold(struct pass *p)
{
    p->unfolded = p->unfolded < PASS_UNFOLD_MAX ? p->unfolded + 1 : 1;
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
    return slots_quiet(w) && lease_quiet(w);
}

void worker_maybe_close(struct worker *w)
{
    if (!w->stopping || w->closing || !quiet(w))
        return;
    w->closing = true;
    slots_close(w);
    lease_close(w);
    pg_close(w->control);
    uv_handle_t *handles[] = {(uv_handle_t *)&w->tick,  (uv_handle_t *)&w->recheck,
                              (uv_handle_t *)&w->done,  (uv_handle_t *)&w->prime_timer,
                              (uv_handle_t *)&w->grace, (uv_handle_t *)&w->sigterm,
                              (uv_handle_t *)&w->sigint};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
        uv_close(handles[i], NULL);
}

void worker_prepare(struct worker *w, struct pg *pg)
{
    static const char *const off[] = {"SET plan_cache_mode = force_generic_plan",
                                      "SET enable_seqscan = off",
                                      "SET enable_bitmapscan = off",
                                      "SET enable_hashjoin = off",
                                      "SET enable_mergejoin = off",
                                      "SET enable_memoize = off"};
    pg_set_sticky(pg, w->listening);
    if (w->o->verbose)
        pg_send(pg, "SET client_min_messages = debug1", 0, NULL, NULL, NULL);
    /* Behind a pooler the session is not ours alone: its settings would be somebody else's. */
    for (size_t i = 0; w->o->poll_ms == 0 && i < sizeof off / sizeof off[0]; i++)
        pg_send(pg, off[i], 0, NULL, NULL, NULL);
    pg_sync(pg);
}

static void kill_all(struct worker *w)
{
    w->killed = true;
    slots_kill(w);
    lease_kill(w);
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
    lease_stop(w);
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

void worker_wake(struct worker *w)
{
    if (w->stopping)
        return;
    if (!(is_lease(w) ? lease_wake(w) : slots_wake(w)))
        w->dirty = true;
}

static void on_recheck(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    worker_wake(w);
}

static void on_drained(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    w->draining = false;
    if (!pg_ok(res) || w->stopping)
        return;
    if (PQgetvalue(res, 0, 0)[0] == 't' && quiet(w)) {
        log_info("queue.drained", "complete=%" PRIu64 " error=%" PRIu64, w->n_complete,
                 w->n_error);
        worker_stop(w);
    } else {
        worker_tend(w);
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
        pg_send(w->control, w->sql.drained, 1, names, on_drained, w);
        pg_sync(w->control);
    } else if (p->busy > 0) {
        (void)uv_timer_start(&w->recheck, on_recheck, WORKER_RECHECK_MS, 0);
    } else if (!w->o->base.drain) {
        (void)uv_timer_stop(&w->recheck); /* what was passed over is gone */
    }
}

static void on_tick(uv_timer_t *timer)
{
    worker_tend(timer->data);
}

static void on_tend(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    w->tending = false;
    if (w->stopping || !res)
        return;
    uint64_t next = w->listening    ? WORKER_SAFETY_POLL_MS
                    : w->o->poll_ms ? w->o->poll_ms
                                    : WORKER_POLL_MS;
    if (!pg_ok(res)) {
        if (worker_hopeless(w, res))
            return;
        log_warn("queue.tend_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
        next = WORKER_RECHECK_MS;
    } else if (!PQgetisnull(res, 0, 0)) {
        uint64_t due = strtoull(PQgetvalue(res, 0, 0), NULL, 10) + 1;
        next = due < next ? due : next;
    }
    (void)uv_timer_start(&w->tick, on_tick, next, 0);
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
    const char *p[] = {w->queue_names, w->numbers[0], w->numbers[1], w->numbers[2]};
    pg_send(w->control, w->sql.tend, 4, p, on_tend, w);
    pg_sync(w->control);
}

static void on_done_timer(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    if (!pg_is_up(w->control))
        return;
    for (size_t i = 0; i < w->o->n_queue; i++)
        if (w->settled[i]) {
            w->settled[i] = false;
            const char *p[] = {w->o->queues[i].name};
            pg_send(w->control, w->sql.announce_done, 1, p, NULL, NULL);
        }
    pg_sync(w->control);
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

/* No answer, because the connection goes or the server is being stopped: `down` follows. */
static bool cut_off(const PGresult *res)
{
    return !res || strncmp(pg_state(res), "57P0", 4) == 0;
}

static void on_ready(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    if (w->stopping || cut_off(res))
        return;
    if (!pg_ok(res)) {
        worker_fail(w, "%s", pg_message(res));
        return;
    }
    if (is_lease(w) && !w->lease)
        lease_open(w);
    else if (!is_lease(w) && !w->slots)
        slots_open(w, PQgetvalue(res, 0, 0));
    worker_tend(w);
}

static void on_version(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    if (w->stopping || cut_off(res))
        return;
    if (!pg_ok(res)) {
        worker_fail(w, "%s (is the schema installed? belay queue install)", pg_message(res));
        return;
    }
    long version = strtol(PQgetvalue(res, 0, 0), NULL, 10);
    if (version != QUEUE_SCHEMA_VERSION)
        worker_fail(w, "the schema has version %ld, this program needs %d: %s", version,
                    QUEUE_SCHEMA_VERSION,
                    version < QUEUE_SCHEMA_VERSION ? "run belay queue install"
                                                   : "use a newer program");
}

static void on_prime_timer(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    log_warn("queue.no_notifications",
             "polling every %d ms: our own notification did not come back (a pooler?)",
             WORKER_POLL_MS);
    worker_tend(w);
}

static void on_control_up(void *arg)
{
    struct worker *w = arg;
    char slots[16];
    (void)snprintf(slots, sizeof slots, "%u", slots_max(w));
    const char *count[] = {slots}, *prime[] = {w->channel_push, w->prime};
    log_info("queue.connected", "worker=%s", w->name);
    pg_send(w->control, w->sql.version, 0, NULL, on_version, w);
    pg_sync(w->control);
    if (w->o->poll_ms == 0) {
        struct buf listen = {0};
        buf_put_str(&listen, "LISTEN ");
        text_put_ident(&listen, w->channel_push);
        pg_send(w->control, buf_cstr(&listen), 0, NULL, NULL, NULL);
        pg_send(w->control, "SELECT pg_notify($1, $2)", 2, prime, NULL, NULL);
        pg_sync(w->control);
        buf_done(&listen);
        w->listening = false;
        (void)uv_timer_start(&w->prime_timer, on_prime_timer, WORKER_PRIME_MS, 0);
    }
    pg_send(w->control, w->sql.ready, 1, count, on_ready, w);
    pg_sync(w->control);
    w->was_up = true;
}

static void on_control_down(void *arg, const char *why)
{
    struct worker *w = arg;
    w->tending = w->draining = false;
    w->listening = false;
    (void)uv_timer_stop(&w->prime_timer);
    if (!w->was_up)
        worker_fail(w, "%s", why); /* never connected: a wrong URL, most likely */
    else
        log_warn("queue.disconnected", "error=\"%s\" next=\"trying again\"", why);
    worker_maybe_close(w);
}

static void on_control_notify(void *arg, const char *channel, const char *payload)
{
    struct worker *w = arg;
    (void)channel;
    if (payload[0] == PRIME_MARK) {
        if (strcmp(payload, w->prime) == 0) {
            w->listening = true;
            (void)uv_timer_stop(&w->prime_timer);
        }
        return;
    }
    for (size_t i = 0; i < w->o->n_queue; i++)
        if (strcmp(w->o->queues[i].name, payload) == 0) {
            worker_wake(w);
            return;
        }
}

/* ---- setting up ----------------------------------------------------------------------------
 */

static void make_sql(struct worker *w)
{
    const char *schema = w->o->base.schema ? w->o->base.schema : "belay";
    struct buf b = {0};
#define X(name, before, after)                                                                 \
    buf_clear(&b);                                                                             \
    buf_put_str(&b, before);                                                                   \
    text_put_ident(&b, schema);                                                                \
    buf_put_str(&b, "." after);                                                                \
    w->sql.name = mem_dup(buf_data(&b), buf_len(&b));
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
#define X(name, before, after) free(w->sql.name);
    WORKER_SQL(X)
#undef X
    free(w->channel_push);
    free(w->queue_names);
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
    uv_timer_t *timers[] = {&w->tick, &w->recheck, &w->done, &w->prime_timer, &w->grace};
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

int worker_run(const struct worker_options *o, char *why, size_t why_bytes)
{
    static const struct pg_events events = {on_control_up, on_control_down, on_control_notify};
    struct worker *w = mem_zalloc(sizeof *w);
    w->o = o;
    w->why = why;
    w->why_bytes = why_bytes;
    (void)signal(SIGPIPE, SIG_IGN);
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
        w->control = pg_open(&w->loop, o->base.url ? o->base.url : "", w->name, &events, w);
        (void)uv_run(&w->loop, UV_RUN_DEFAULT);
        log_info("queue.stopped", "complete=%" PRIu64 " error=%" PRIu64 " retried=%" PRIu64,
                 w->n_complete, w->n_error, w->n_retry);
        nursery_close(w->run.nursery);
    }
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&w->loop);
    rc = w->rc;
    free(w->slots);
    free(w->clerks);
    free(w->ahead);
    free_sql(w);
    free(w);
    return rc;
}
