/* slot.c - transaction mode: one connection and one runner per slot.
 *
 *   DOWN --up--> IDLE --wake--> CLAIMING --row--> WORKING --done--> CLAIMING ...
 *                 ^                | nothing anywhere
 *                 +----ROLLBACK----+
 *   any --connection lost--> DOWN: the server has rolled back, the claim is somebody else's, so
 * the command is killed at once and its result is thrown away
 *
 * The transaction is open from BEGIN before the claim to COMMIT after the settle: the row locks
 * are the claim. Settle, COMMIT, BEGIN and the next claim leave in one write: one round trip
 * per group. */
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "queue/text.h"
#include "queue/worker_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum slot_state { SLOT_DOWN, SLOT_IDLE, SLOT_CLAIMING, SLOT_WORKING };

struct slot {
    struct worker *w;
    struct pg *pg;
    struct runner *runner;
    enum slot_state state;
    struct pass pass;
    struct group *group;    /* while WORKING, and while its end is awaited after a loss */
    enum verdict_kind sent; /* of the settle on its way */
    char cell[16];
    unsigned on_its_way; /* answers awaited */
};

static void send_claim(struct slot *s, bool begin);

/* ---- settle --------------------------------------------------------------------------------
 */

static void on_settle(void *arg, const PGresult *res)
{
    struct slot *s = arg;
    s->on_its_way--;
    if (!pg_ok(res))
        log_error("queue.settle_failed", "state=%s error=\"%s\"", pg_state(res),
                  pg_message(res));
}

static void on_commit(void *arg, const PGresult *res)
{
    struct slot *s = arg;
    struct group *g = s->group;
    s->on_its_way--;
    s->group = NULL;
    /* COMMIT of a failed transaction answers ROLLBACK, without an error. */
    if (pg_ok(res) && strcmp(PQcmdStatus((PGresult *)(uintptr_t)res), "COMMIT") == 0)
        worker_count(s->w, g->queue, s->sent);
    else
        log_warn("queue.not_settled", "queue=%s requests=%s error=\"%s\"",
                 log_bytes(slice_str(g->queue)), g->ids, pg_message(res));
    group_free(g);
    worker_maybe_close(s->w);
}

static void send_settle(struct slot *s, const struct verdict *v)
{
    struct worker *w = s->w;
    struct group *g = s->group;
    struct buf outcome = {0}, error = {0};
    const char *out = NULL, *err = NULL;
    if (v->outcome.data) {
        buf_put_slice(&outcome, v->outcome);
        out = buf_cstr(&outcome);
    }
    if (v->error.data) {
        buf_put_slice(&error, v->error);
        err = buf_cstr(&error);
    }
    s->sent = v->kind;
    if (v->kind == VERDICT_RETRY) {
        const char *p[] = {g->ids,        err ? err : "try again", w->numbers[0],
                           w->numbers[1], w->numbers[2],           s->cell};
        pg_send(s->pg, w->sql.again, 6, p, on_settle, s);
    } else {
        char fence[24];
        (void)snprintf(fence, sizeof fence, "%" PRId64, g->fence);
        const char *p[] = {g->ids,     v->kind == VERDICT_COMPLETE ? "complete" : "error",
                           out,        err,
                           g->process, fence,
                           w->name,    s->cell};
        pg_send(s->pg, w->sql.settle, 8, p, on_settle, s);
    }
    pg_send(s->pg, "COMMIT", 0, NULL, on_commit, s);
    s->on_its_way += 2;
    buf_done(&outcome);
    buf_done(&error);
}

/* ---- claim ---------------------------------------------------------------------------------
 */

static void rollback(struct slot *s)
{
    pg_send(s->pg, "ROLLBACK", 0, NULL, NULL, NULL);
    pg_sync(s->pg);
}

/* The group goes back as if it had never been taken. */
static void give_back(struct slot *s)
{
    const char *p[] = {s->cell};
    pg_send(s->pg, s->w->sql.unbegin, 1, p, NULL, NULL);
    pg_sync(s->pg);
    rollback(s);
    group_free(s->group);
    s->group = NULL;
    s->state = SLOT_IDLE;
}

static void go_idle(struct slot *s)
{
    s->state = SLOT_IDLE;
    worker_idle(s->w, &s->pass);
}

static void on_done(void *arg, struct group *g, const struct verdict *v)
{
    struct slot *s = arg;
    BELAY_CHECK(g == s->group);
    if (g->lost) { /* the connection went: so did the claim */
        s->group = NULL;
        group_free(g);
        if (pg_is_up(s->pg)) {
            s->state = SLOT_IDLE;
            worker_tend(s->w);
        }
        worker_maybe_close(s->w);
        return;
    }
    if (v->kind == VERDICT_UNTOUCHED || s->w->killed) {
        give_back(s);
        worker_maybe_close(s->w);
        return;
    }
    send_settle(s, v);
    if (!s->w->stopping) {
        send_claim(s, true);
        return;
    }
    pg_sync(s->pg);
    s->state = SLOT_IDLE;
}

static void work_on(struct slot *s, struct group *g)
{
    s->state = SLOT_WORKING;
    log_debug("queue.claim", "kind=%s requests=%s entity=%s line=%" PRId64, g->kind, g->ids,
              log_bytes(slice_str(g->entity)), s->pass.line[pass_queue(s->w, &s->pass)]);
    pass_found(&s->pass);
    worker_wake(s->w); /* where one was found there may be more: the next slot looks */
    if (g->refuse) {
        struct verdict v = {.kind = VERDICT_ERROR, .error = slice_str(g->refuse)};
        on_done(s, g, &v);
    } else if (!runner_start(s->runner, g)) {
        int code = errno;
        give_back(s);
        worker_fail(s->w, "cannot start %s: %s", s->w->o->argv[0], strerror(code));
    } else {
        runner_flush(s->runner);
    }
}

/* The claim failed. 55P03: a stranger holds a row; roll back and go around it, as the article
 * does. */
static void claim_failed(struct slot *s, const PGresult *res)
{
    rollback(s);
    if (strcmp(pg_state(res), "55P03") == 0 && !s->pass.careful && !s->w->stopping) {
        log_debug("queue.conflict", "state=55P03 queue=%s",
                  log_bytes(slice_str(s->w->o->queues[pass_queue(s->w, &s->pass)].name)));
        s->pass.careful = true;
        send_claim(s, true);
        return;
    }
    s->state = SLOT_IDLE;
    s->pass.busy = 1; /* look again soon */
    if (!worker_hopeless(s->w, res)) {
        log_warn("queue.claim_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
        worker_idle(s->w, &s->pass);
    }
}

static void on_claim(void *arg, const PGresult *res)
{
    struct slot *s = arg;
    struct worker *w = s->w;
    s->on_its_way--;
    if (!res)
        return; /* `down` follows */
    if (!pg_ok(res)) {
        claim_failed(s, res);
        worker_maybe_close(w);
        return;
    }
    size_t q = pass_queue(w, &s->pass);
    struct claim c;
    claim_read(w->o->queues[q].name, res, &c);
    BELAY_CHECK(c.n_group <= 1 && !c.end);
    s->pass.line[q] = c.line;
    s->pass.busy += c.busy;
    struct group *g = c.n_group ? list_item(c.groups.next, struct group, link) : NULL;
    if (g) {
        list_remove(&g->link);
        s->group = g;
        if (w->stopping)
            give_back(s);
        else
            work_on(s, g);
    } else if (!w->stopping && pass_next(w, &s->pass)) {
        send_claim(s, false);
    } else {
        rollback(s);
        go_idle(s);
    }
    worker_maybe_close(w);
}

static void send_claim(struct slot *s, bool begin)
{
    struct worker *w = s->w;
    size_t q = pass_queue(w, &s->pass);
    char line[24];
    (void)snprintf(line, sizeof line, "%" PRId64, s->pass.line[q]);
    struct buf process = {0};
    text_put_uuids(&process, 1);
    const char *p[] = {w->o->queues[q].name,
                       line,
                       s->cell,
                       buf_cstr(&process),
                       w->o->base.require_created ? "t" : "f",
                       s->pass.careful ? "t" : "f"};
    s->state = SLOT_CLAIMING;
    if (begin)
        pg_send(s->pg, "BEGIN", 0, NULL, NULL, NULL);
    pg_send(s->pg, w->sql.claim, 6, p, on_claim, s);
    pg_sync(s->pg);
    s->on_its_way++;
    buf_done(&process);
}

/* ---- connection ----------------------------------------------------------------------------
 */

static void on_up(void *arg)
{
    struct slot *s = arg;
    worker_prepare(s->w, s->pg);
    if (s->group)
        return; /* its command is being killed; on_done() goes on */
    s->state = SLOT_IDLE;
    worker_tend(
        s->w); /* counts the attempt that the lost connection took with it, then wakes */
}

static void on_down(void *arg, const char *why)
{
    struct slot *s = arg;
    log_warn("queue.disconnected", "slot=%s error=\"%s\"", s->cell, why);
    s->state = SLOT_DOWN;
    if (s->group) {
        s->group->lost = true;
        runner_kill(s->runner);
    }
    worker_maybe_close(s->w);
}

static void on_notify(void *arg, const char *channel, const char *payload)
{
    (void)arg;
    (void)channel;
    (void)payload;
}

void slots_open(struct worker *w, const char *cells)
{
    static const struct pg_events events = {on_up, on_down, on_notify};
    w->slots = mem_zalloc(w->concurrency * sizeof *w->slots);
    for (unsigned i = 0; i < w->concurrency; i++) {
        struct slot *s = &w->slots[i];
        int64_t cell = 0; /* fewer cells than slots: the rest work without the journal */
        (void)text_array_next_i64(&cells, &cell);
        (void)snprintf(s->cell, sizeof s->cell, "%" PRId64, cell);
        s->w = w;
        s->pass.turn = i;
        s->runner = runner_open(&w->run, on_done, s);
        s->pg = pg_open(&w->loop, w->o->base.url ? w->o->base.url : "", w->name, &events, s);
    }
}

bool slots_wake(struct worker *w)
{
    for (unsigned i = 0; w->slots && i < w->concurrency; i++)
        if (w->slots[i].state == SLOT_IDLE && w->slots[i].on_its_way == 0) {
            pass_reset(&w->slots[i].pass);
            send_claim(&w->slots[i], true);
            return true;
        }
    return false;
}

bool slots_quiet(const struct worker *w)
{
    for (unsigned i = 0; w->slots && i < w->concurrency; i++) {
        const struct slot *s = &w->slots[i];
        if (s->group || s->on_its_way > 0 || s->state == SLOT_CLAIMING)
            return false;
    }
    return true;
}

void slots_kill(struct worker *w)
{
    for (unsigned i = 0; w->slots && i < w->concurrency; i++)
        runner_kill(w->slots[i].runner);
}

void slots_close(struct worker *w)
{
    for (unsigned i = 0; w->slots && i < w->concurrency; i++) {
        pg_close(w->slots[i].pg);
        runner_close(w->slots[i].runner);
    }
}
