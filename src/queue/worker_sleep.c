/* worker_sleep.c - an idle worker is notified of what is pushed, and only an idle one.
 *
 * NOTIFY makes commits wait for each other, so a push asks whether a worker waits
 * (asleep() in schema.sql): one that has the queue's advisory lock, shared, in its control
 * session. A worker that dies loses it by that.
 *
 *   AWAKE --a search found nothing: lock--> DOZING or SOUND, and another search
 *   DOZING --all transactions that are older than the lock have ended--> SOUND, another search
 *   any --nobody was idle for a second, or pushes come fast: unlock--> AWAKE
 *
 * Where notifications come faster than WORKER_LOOK_MS, the worker is told of nothing and looks
 * that often by itself, until it has found nothing for WORKER_LOOKS_VAIN looks in a row.
 *
 * A push before the lock was there did not notify. What had committed by then the other
 * search finds; what had not is looked for as long as such transactions run, after a quarter of
 * the time that we have waited for them. */
#include "base/check.h"
#include "base/log.h"
#include "queue/worker_state.h"

#include <stdio.h>

static void ask(struct worker *w);

static void on_doze(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    if (!w->stopping)
        ask(w);
}

static void look_again(struct worker *w)
{
    uint64_t ms = (uv_now(&w->loop) - w->doze_since) / 4;
    if (ms < WORKER_DOZE_MIN_MS)
        ms = WORKER_DOZE_MIN_MS;
    else if (ms > WORKER_DOZE_MAX_MS)
        ms = WORKER_DOZE_MAX_MS;
    (void)uv_timer_start(&w->doze, on_doze, ms, 0);
}

static void on_asleep(void *arg, const PGresult *res)
{
    struct worker *w = arg;
    w->sleep_asked = false;
    if (!res || w->stopping)
        return; /* without an answer `down` follows */
    if (!pg_ok(res)) {
        log_warn("queue.sleep_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
        (void)uv_timer_start(&w->doze, on_doze, WORKER_RECHECK_MS, 0);
        return;
    }
    if (PQgetisnull(res, 0, 0)) { /* somebody tries the lock just now */
        look_again(w);
        return;
    }
    (void)snprintf(w->sleep_before, sizeof w->sleep_before, "%s", PQgetvalue(res, 0, 0));
    w->sleep = PQgetvalue(res, 0, 1)[0] == 't' ? SLEEP_SOUND : SLEEP_DOZING;
    if (w->sleep == SLEEP_DOZING)
        look_again(w);
    worker_wake(w);
}

static void ask(struct worker *w)
{
    if (w->sleep_asked || !w->listening || !pg_is_up(w->control))
        return;
    w->sleep_asked = true;
    const char *p[] = {w->queue_names, w->sleep == SLEEP_AWAKE ? NULL : w->sleep_before};
    worker_ask(w->control, w->sql.fall_asleep, 2, p, on_asleep, w);
}

void sleep_fall(struct worker *w)
{
    (void)uv_timer_stop(&w->get_up);
    if (w->sleep != SLEEP_AWAKE || uv_is_active((uv_handle_t *)&w->doze) ||
        uv_is_active((uv_handle_t *)&w->look))
        return;
    w->doze_since = uv_now(&w->loop);
    ask(w);
}

static void get_up(struct worker *w)
{
    BELAY_CHECK(w->sleep != SLEEP_AWAKE && !w->sleep_asked);
    w->sleep = SLEEP_AWAKE;
    (void)uv_timer_stop(&w->doze);
    const char *p[] = {w->queue_names};
    worker_ask(w->control, w->sql.get_up, 1, p, NULL, NULL);
}

/* Somebody may have been idle all the time: then it searches, which ends in one or the other.
 */
static void on_get_up(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    if (w->stopping || w->sleep == SLEEP_AWAKE || worker_try_wake(w))
        return;
    if (w->sleep_asked) { /* its answer would be taken for one that came after */
        sleep_found(w);
        return;
    }
    get_up(w);
}

/* After the last look, a search that finds nothing falls asleep. */
static void on_look(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    if (++w->looks_vain >= WORKER_LOOKS_VAIN)
        (void)uv_timer_stop(timer);
    worker_wake(w);
}

void sleep_told(struct worker *w)
{
    uint64_t now = uv_now(&w->loop);
    if (now - w->told_since > (uint64_t)WORKER_LOOK_MS * WORKER_TOLD_MAX) {
        w->told_since = now;
        w->n_told = 0;
    }
    if (++w->n_told <= WORKER_TOLD_MAX || w->sleep == SLEEP_AWAKE || w->sleep_asked ||
        w->stopping)
        return;
    get_up(w);
    (void)uv_timer_stop(&w->get_up);
    w->looks_vain = 0;
    (void)uv_timer_start(&w->look, on_look, WORKER_LOOK_MS, WORKER_LOOK_MS);
}

void sleep_found(struct worker *w)
{
    w->looks_vain = 0;
    if (w->sleep != SLEEP_AWAKE && !uv_is_active((uv_handle_t *)&w->get_up))
        (void)uv_timer_start(&w->get_up, on_get_up, WORKER_GET_UP_MS, 0);
}

void sleep_lost(struct worker *w)
{
    w->sleep = SLEEP_AWAKE;
    w->sleep_asked = false;
    (void)uv_timer_stop(&w->doze);
    (void)uv_timer_stop(&w->get_up);
    (void)uv_timer_stop(&w->look);
}
