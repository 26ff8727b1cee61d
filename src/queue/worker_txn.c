/* worker_txn.c - transaction mode.
 *
 * A slot is a connection with its transaction. A clerk is a runner and the search for its next
 * group; there is one for each group that may be worked on at a time. A worker that has enough
 * to do opens some slots more than it has clerks.
 *
 *   DOWN --up--> IDLE --a clerk sits down--> CLAIMING --row--> WORKING --done--> SETTLING
 *                 ^ ^                           | nothing (a bundle: unfold, again) | commit
 *                 | +---------ROLLBACK----------+                                   |
 *                 +-----------------------------------------------------------------+
 *
 *   SETTLING --refused--> MENDING --refused, too--> HOLDING --> IDLE
 *   any --connection lost--> DOWN
 *
 *   MENDING   claims the group again, to store that its result was refused
 *   HOLDING   nobody works on the group for a while
 *   DOWN      the server has rolled back, and the claim is somebody else's: the command is
 *             killed at once, and its result is thrown away
 *
 * The transaction is open from BEGIN before the claim to COMMIT after the settle: the row locks
 * are the claim. While the disk makes a commit last, its clerk goes on at an idle slot; the
 * entity stays locked until the commit is through. When no slot is idle, or the database has
 * enough to do with the others, settle, COMMIT, BEGIN and the next claim leave in one write:
 * one round trip per group, and fewer processes to wake. */
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

enum slot_state {
    SLOT_DOWN,
    SLOT_IDLE,
    SLOT_CLAIMING,
    SLOT_WORKING,
    SLOT_SETTLING,
    SLOT_MENDING,
    SLOT_HOLDING
};

enum mending { MEND_NOT, MEND_SAY, MEND_HOLD };

enum {
    SLOTS_SPARE = 4, /* so many commits may be waited for beside the work */
    MEND_TRIES = 10,
    MEND_PAUSE_MS = 20,
    HOLD_MS = 10000, /* what cannot be settled at all is left alone for so long */
    SLOTS_BUSY = 2 /* more than these at the database keep it busy, if there are many clerks */
};

struct clerk {
    struct runner *runner;
    struct pass pass;
    struct txn_slot *slot; /* where it sits; NULL: idle */
};

struct txn_slot {
    struct worker *w;
    struct pg *pg;
    struct clerk *clerk; /* in this slot while CLAIMING or WORKING, and after a loss */
    enum slot_state state;
    struct work_group
        *group; /* from the claim until the commit, or until its command has ended */
    enum verdict_kind sent; /* of the settle on its way */
    char cell[16];
    unsigned on_its_way;  /* answers awaited */
    int64_t sight;        /* the claim on its way was led by this one; 0: it searches */
    bool asks;            /* and it looks ahead */
    enum mending mending; /* the group's result was refused: what is done about it next */
    unsigned mend_tries;
    char *refused; /* and how; owned */
    uv_timer_t hold;
};

static void send_claim(struct txn_slot *s, bool begin);
static void rollback(struct txn_slot *s);
static void open_slot(struct worker *w);
static void mend(struct txn_slot *s);

static void sit(struct clerk *clerk, struct txn_slot *s)
{
    clerk->slot = s;
    s->clerk = clerk;
}

/* Returns the clerk that was there, or NULL. */
static struct clerk *stand_up(struct txn_slot *s)
{
    struct clerk *clerk = s->clerk;
    if (clerk)
        clerk->slot = NULL;
    s->clerk = NULL;
    return clerk;
}

static struct txn_slot *idle_slot(struct worker *w)
{
    for (unsigned i = 0; i < w->n_slot; i++)
        if (w->slots[i].state == SLOT_IDLE && w->slots[i].on_its_way == 0)
            return &w->slots[i];
    return NULL;
}

/* Slots that wait for the database, or for a connection to it. */
static unsigned waiting(const struct worker *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_slot; i++)
        n += w->slots[i].on_its_way > 0 || w->slots[i].state == SLOT_DOWN;
    return n;
}

static struct clerk *idle_clerk(struct worker *w)
{
    for (unsigned i = 0; i < w->concurrency; i++)
        if (!w->clerks[i].slot)
            return &w->clerks[i];
    return NULL;
}

/* ---- settle --------------------------------------------------------------------------------
 */

static void set_refused(struct txn_slot *s, const PGresult *res)
{
    if (!res || s->refused)
        return;
    log_error("queue.settle_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
    s->refused = result_refused(res);
}

static void on_settle(void *arg, const PGresult *res)
{
    struct txn_slot *s = arg;
    s->on_its_way--;
    if (!pg_ok(res))
        set_refused(s, res);
}

static void drop_group(struct txn_slot *s)
{
    group_free(s->group);
    free(s->refused);
    s->group = NULL;
    s->refused = NULL;
    s->mending = MEND_NOT;
    s->mend_tries = 0;
}

/* The slot is free. A clerk that found nothing may have passed over what was locked until now.
 */
static void settled(struct txn_slot *s, bool ok)
{
    s->state = SLOT_IDLE;
    if (!ok)
        rollback(s);
    if (idle_clerk(s->w))
        worker_wake(s->w);
}

static void on_commit(void *arg, const PGresult *res)
{
    struct txn_slot *s = arg;
    struct work_group *g = s->group;
    s->on_its_way--;
    /* COMMIT of a failed transaction answers ROLLBACK, without an error. */
    bool ok = pg_ok(res) && strcmp(PQcmdStatus((PGresult *)(uintptr_t)res), "COMMIT") == 0;
    if (ok)
        worker_count(s->w, g->queue, s->sent);
    else
        log_warn("queue.not_settled", "queue=%s requests=%s error=\"%s\"",
                 log_bytes(slice_str(g->queue)), g->ids,
                 s->refused ? s->refused : pg_message(res));
    if (!pg_ok(res) && res) {
        set_refused(s, res);
        s->mending = s->mending == MEND_NOT ? MEND_SAY : MEND_HOLD;
        if (s->state == SLOT_SETTLING) /* else the answer of the claim behind it follows */
            mend(s);
        return;
    }
    drop_group(s);
    if (s->state == SLOT_SETTLING && res)
        settled(s, ok);
    worker_maybe_close(s->w);
}

static void send_settle(struct txn_slot *s, const struct verdict *v)
{
    struct worker *w = s->w;
    struct work_group *g = s->group;
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
    char fence[24];
    (void)snprintf(fence, sizeof fence, "%" PRId64, g->fence);
    s->sent = v->kind;
    if (v->kind == VERDICT_COMPLETE) {
        const char *p[] = {g->ids, out, g->process, fence, w->name};
        pg_send(s->pg, w->sql.complete, 5, p, on_settle, s);
    } else if (v->kind == VERDICT_RETRY) {
        const char *p[] = {g->ids,        err ? err : "try again", w->numbers[0],
                           w->numbers[1], w->numbers[2],           s->cell};
        pg_send(s->pg, w->sql.again, 6, p, on_settle, s);
    } else {
        const char *p[] = {g->ids, "error", out, err, g->process, fence, w->name, s->cell};
        pg_send(s->pg, w->sql.settle, 8, p, on_settle, s);
    }
    pg_send(s->pg, "COMMIT", 0, NULL, on_commit, s);
    s->on_its_way += 2;
    buf_done(&outcome);
    buf_done(&error);
}

/* ---- claim ---------------------------------------------------------------------------------
 */

static void rollback(struct txn_slot *s)
{
    pg_send(s->pg, "ROLLBACK", 0, NULL, NULL, NULL);
    pg_sync(s->pg);
}

/* The group goes back as if it had never been taken. */
static void give_back(struct txn_slot *s)
{
    const char *p[] = {s->cell};
    pg_send(s->pg, s->w->sql.unbegin, 1, p, NULL, NULL);
    pg_sync(s->pg);
    rollback(s);
    group_free(s->group);
    s->group = NULL;
    s->state = SLOT_IDLE;
    (void)stand_up(s);
}

static void go_idle(struct txn_slot *s)
{
    s->state = SLOT_IDLE;
    worker_idle(s->w, &stand_up(s)->pass);
}

/* The settle is sent: on with the next group, here or at a slot that has no commit to wait for.
 */
static void move_on(struct txn_slot *s)
{
    struct worker *w = s->w;
    bool enough = w->concurrency > SLOTS_SPARE && waiting(w) > SLOTS_BUSY;
    struct txn_slot *next = w->stopping || enough ? NULL : idle_slot(w);
    if (!next && !w->stopping) {
        if (!enough && w->n_slot < slots_max(w))
            open_slot(w); /* for the next time: this worker has enough to do */
        send_claim(s, true);
        return;
    }
    pg_sync(s->pg);
    s->state = SLOT_SETTLING;
    struct clerk *clerk = stand_up(s);
    if (next) {
        sit(clerk, next);
        send_claim(next, true);
    }
}

static void on_done(void *arg, struct work_group *g, const struct verdict *v)
{
    struct txn_slot *s = ((struct clerk *)arg)->slot;
    BELAY_CHECK(s && g == s->group);
    if (g->lost) { /* the connection went: so did the claim */
        s->group = NULL;
        group_free(g);
        (void)stand_up(s);
        if (pg_is_up(s->pg))
            s->state = SLOT_IDLE;
        worker_tend(s->w); /* counts the attempt, then wakes */
        worker_maybe_close(s->w);
        return;
    }
    if (v->kind == VERDICT_UNTOUCHED || s->w->killed) {
        give_back(s);
        worker_maybe_close(s->w);
        return;
    }
    send_settle(s, v);
    move_on(s);
}

static void work_on(struct txn_slot *s, struct work_group *g)
{
    struct clerk *clerk = s->clerk;
    s->state = SLOT_WORKING;
    log_debug("queue.claim", "kind=%s requests=%s entity=%s line=%" PRId64, g->kind, g->ids,
              log_bytes(slice_str(g->entity)),
              clerk->pass.line[pass_queue(s->w, &clerk->pass)]);
    pass_found(&clerk->pass);
    sleep_found(s->w);
    worker_wake(s->w); /* where one was found there may be more: the next clerk looks */
    if (g->refuse) {
        struct verdict v = {.kind = VERDICT_ERROR, .error = slice_str(g->refuse)};
        on_done(clerk, g, &v);
    } else if (!runner_start(clerk->runner, g)) {
        int code = errno;
        give_back(s);
        worker_fail(s->w, "cannot start %s: %s", s->w->o->argv[0], strerror(code));
    } else {
        runner_flush(clerk->runner);
    }
}

/* The claim failed. 55P03: a stranger holds a row; roll back and go around it, as the article
 * does. */
static void claim_failed(struct txn_slot *s, const PGresult *res)
{
    struct clerk *clerk = s->clerk;
    rollback(s);
    if (strcmp(pg_state(res), "55P03") == 0 && !clerk->pass.careful && !s->w->stopping) {
        log_debug("queue.conflict", "state=55P03 queue=%s",
                  log_bytes(slice_str(s->w->o->queues[pass_queue(s->w, &clerk->pass)].name)));
        clerk->pass.careful = true;
        send_claim(s, true);
        return;
    }
    s->state = SLOT_IDLE;
    (void)stand_up(s);
    clerk->pass.busy = 1; /* look again soon */
    if (!worker_hopeless(s->w, res)) {
        log_warn("queue.claim_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
        worker_idle(s->w, &clerk->pass);
    }
}

/* What an answer says about the hints; NULL: there was none. */
static void look_ahead(struct txn_slot *s, struct prefetch *a, struct claim *c)
{
    struct list none;
    list_init(&none);
    if (c && c->bundle)
        prefetch_done(a); /* the hint was not looked at: a search finds it again */
    else if (c && s->sight > 0 && (c->n_group == 0 || c->line != s->sight))
        prefetch_missed(a);
    else if (c && c->n_group > 0 && s->sight == 0)
        prefetch_found(a, c->line);
    if (s->asks)
        prefetch_add(a, c ? &c->ahead : &none, uv_now(&s->w->loop));
    s->asks = false;
}

static void on_unfold(void *arg, const PGresult *res)
{
    struct txn_slot *s = arg;
    s->on_its_way--;
    if (!res)
        return; /* `down` follows */
    if (!pg_ok(res))
        claim_failed(s, res);
    else if (s->w->stopping)
        go_idle(s);
    else {
        pass_unfolded(&s->clerk->pass, strtol(pg_first(res), NULL, 10));
        send_claim(s, true);
    }
    worker_maybe_close(s->w);
}

/* What is in a bundle becomes requests that all can see, outside of the claim's transaction. */
static void send_unfold(struct txn_slot *s)
{
    rollback(s);
    worker_unfold(s->w, s->pg, &s->clerk->pass, on_unfold, s);
    s->on_its_way++;
}

/* Another slot will say of this entity that its result could not be stored. */
static bool is_mended(const struct worker *w, const struct work_group *g)
{
    for (unsigned i = 0; i < w->n_slot; i++) {
        const struct txn_slot *s = &w->slots[i];
        if (s->mending != MEND_NOT && s->group && strcmp(s->group->entity, g->entity) == 0 &&
            strcmp(s->group->queue, g->queue) == 0)
            return true;
    }
    return false;
}

static void pass_over(struct txn_slot *s)
{
    struct clerk *clerk = s->clerk;
    give_back(s);
    sit(clerk, s);
    clerk->pass.busy++;
    send_claim(s, true);
}

static void on_claim(void *arg, const PGresult *res)
{
    struct txn_slot *s = arg;
    struct clerk *clerk = s->clerk;
    struct worker *w = s->w;
    s->on_its_way--;
    size_t q = pass_queue(w, &clerk->pass);
    if (!pg_ok(res))
        look_ahead(s, &w->ahead[q], NULL);
    if (!res)
        return;                   /* `down` follows */
    if (s->mending != MEND_NOT) { /* the settle before it was refused */
        (void)stand_up(s);
        mend(s);
        return;
    }
    if (!pg_ok(res)) {
        claim_failed(s, res);
        worker_maybe_close(w);
        return;
    }
    struct claim c;
    claim_read(w->o->queues[q].name, res, &c);
    BELAY_CHECK(c.n_group <= 1 && !c.end);
    look_ahead(s, &w->ahead[q], &c);
    if (!c.bundle)
        clerk->pass.line[q] = c.line;
    clerk->pass.busy += c.busy;
    struct work_group *g = c.n_group ? list_item(c.groups.next, struct work_group, link) : NULL;
    if (g) {
        list_remove(&g->link);
        s->group = g;
        if (w->stopping)
            give_back(s);
        else if (is_mended(w, g))
            pass_over(s);
        else
            work_on(s, g);
    } else if (!w->stopping && c.bundle) {
        send_unfold(s);
    } else if (!w->stopping && c.late) {
        rollback(s);
        send_claim(s, true);
    } else if (!w->stopping && pass_next(w, &clerk->pass)) {
        send_claim(s, false);
    } else {
        rollback(s);
        go_idle(s);
    }
    worker_maybe_close(w);
}

/* In a session of our own the time-outs are off. Elsewhere they are for this transaction: the
 * command may take longer than the database allows its users to think. */
static void begin_transaction(struct txn_slot *s)
{
    pg_send(s->pg, pg_begin_sql, 0, NULL, NULL, NULL);
    if (!pg_is_own(s->pg))
        pg_send(
            s->pg,
            "SELECT set_config('idle_in_transaction_session_timeout', '0', true), "
            "set_config('lock_timeout', '0', true), "
            "set_config('statement_timeout', '0', true), "
            "CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL " /* of 17 on */
            "THEN set_config('transaction_timeout', '0', true) END",
            0, NULL, NULL, NULL);
}

static void send_claim(struct txn_slot *s, bool begin)
{
    struct worker *w = s->w;
    struct clerk *clerk = s->clerk;
    size_t q = pass_queue(w, &clerk->pass);
    char line[24], from[24], upto[24];
    struct sight *sight = NULL;
    int64_t ahead = 0;
    /* The first search of a pass begins at its line; after it there will be another pass. */
    if (clerk->pass.worked && !clerk->pass.careful) {
        sight = prefetch_take(&w->ahead[q], uv_now(&w->loop));
        s->asks = prefetch_ask(&w->ahead[q], &ahead);
    }
    s->sight = sight ? sight->id : 0;
    (void)snprintf(line, sizeof line, "%" PRId64, sight ? sight->id : clerk->pass.line[q]);
    (void)snprintf(from, sizeof from, "%" PRId64, ahead);
    /* The prefetch must see how far the ids go now. */
    (void)snprintf(upto, sizeof upto, "%" PRId64, sight ? sight->upto : 0);
    struct buf process = {0};
    text_put_uuids(&process, 1);
    const char *p[] = {w->o->queues[q].name,
                       line,
                       s->cell,
                       buf_cstr(&process),
                       w->o->base.require_created ? "t" : "f",
                       clerk->pass.careful ? "t" : "f",
                       sight ? sight->entity : NULL,
                       sight ? sight->kind : NULL,
                       s->asks ? from : NULL,
                       clerk->pass.unfolded == PASS_UNFOLD_MAX ? "t" : "f",
                       sight && !s->asks ? upto : NULL};
    s->state = SLOT_CLAIMING;
    if (begin)
        begin_transaction(s);
    pg_send(s->pg, w->sql.claim, 11, p, on_claim, s);
    pg_sync(s->pg);
    s->on_its_way++;
    buf_done(&process);
    sight_free(sight);
}

/* ---- a result that could not be stored -----------------------------------------------------
 */

/* The rollback has set the group free. It is claimed again, if nobody else has it, and ends
 * with an attempt that counts. If the database does not take that either, the claim is held for
 * a while, so that the command is not run again and again. */

static void end_mending(struct txn_slot *s)
{
    drop_group(s);
    const char *p[] = {s->cell};
    pg_send(s->pg, s->w->sql.unbegin, 1, p, NULL, NULL);
    pg_sync(s->pg);
    settled(s, false);
    worker_maybe_close(s->w);
}

static void on_hold_over(uv_timer_t *timer)
{
    end_mending(timer->data);
}

static int64_t first_id(const struct work_group *g)
{
    const char *at = g->ids;
    int64_t id = 0;
    (void)text_array_next_i64(&at, &id);
    return id;
}

static void on_mend_again(uv_timer_t *timer)
{
    mend(timer->data);
}

static void on_mend_claim(void *arg, const PGresult *res)
{
    struct txn_slot *s = arg;
    struct claim c = {0};
    s->on_its_way--;
    if (!res) {
        drop_group(s);
        return; /* `down` follows */
    }
    if (pg_ok(res))
        claim_read(s->group->queue, res, &c);
    struct work_group *g = c.n_group ? list_item(c.groups.next, struct work_group, link) : NULL;
    bool same = g && first_id(g) == first_id(s->group) && !s->w->stopping;
    if (g)
        list_remove(&g->link);
    if (!same) {
        group_free(g);
        if (s->mend_tries++ < MEND_TRIES && !s->w->stopping)
            (void)uv_timer_start(&s->hold, on_mend_again, MEND_PAUSE_MS, 0);
        else
            end_mending(s); /* somebody else works on it */
        return;
    }
    bool counted =
        g->attempts > s->group->attempts; /* a tend() took the rollback for a death */
    group_free(s->group);
    s->group = g;
    if (s->mending == MEND_SAY && counted) {
        end_mending(s);
    } else if (s->mending == MEND_SAY) {
        struct verdict v = {.kind = VERDICT_RETRY, .error = slice_str(s->refused)};
        send_settle(s, &v);
        pg_sync(s->pg);
        s->state = SLOT_SETTLING;
        worker_wake(s->w);
    } else {
        drop_group(s);
        s->state = SLOT_HOLDING;
        worker_wake(s->w);
        (void)uv_timer_start(&s->hold, on_hold_over, HOLD_MS, 0);
    }
}

static void mend(struct txn_slot *s)
{
    const struct work_group *g = s->group;
    char line[24];
    struct buf process = {0};
    text_put_uuids(&process, 1);
    (void)snprintf(line, sizeof line, "%" PRId64, first_id(g));
    const char *p[] = {g->queue, line, s->cell,   buf_cstr(&process),
                       "f",      "f",  g->entity, g->kind,
                       NULL,     "t",  NULL};
    s->state = SLOT_MENDING;
    rollback(s);
    pg_send(s->pg, s->w->sql.unbegin, 1, &p[2], NULL, NULL); /* else a tend() counts a death */
    pg_sync(s->pg);
    begin_transaction(s);
    pg_send(s->pg, s->w->sql.claim, 11, p, on_mend_claim, s);
    pg_sync(s->pg);
    s->on_its_way++;
    buf_done(&process);
}

/* ---- connection ----------------------------------------------------------------------------
 */

static void on_up(void *arg)
{
    struct txn_slot *s = arg;
    worker_prepare(s->w, s->pg);
    if (s->group)
        return; /* its command is being killed; on_done() goes on */
    s->state = SLOT_IDLE;
    worker_tend(
        s->w); /* counts the attempt that the lost connection took with it, then wakes */
}

static void on_down(void *arg, const char *why, bool hopeless)
{
    struct txn_slot *s = arg;
    (void)hopeless;
    log_warn("queue.disconnected", "slot=%s error=\"%s\"", s->cell, why);
    s->state = SLOT_DOWN;
    (void)uv_timer_stop(&s->hold);
    if (s->group && s->clerk) {
        s->group->lost = true;
        runner_kill(s->clerk->runner);
    } else {
        drop_group(s);
        if (stand_up(s))
            worker_wake(s->w); /* at another slot, if there is one */
    }
    worker_maybe_close(s->w);
}

static void open_slot(struct worker *w)
{
    static const struct pg_events events = {on_up, on_down, NULL};
    struct txn_slot *s = &w->slots[w->n_slot++];
    s->pg = worker_connect(w, &events, s);
}

unsigned slots_max(const struct worker *w)
{
    unsigned spare = w->concurrency < SLOTS_SPARE ? w->concurrency + 1 : SLOTS_SPARE;
    unsigned n = w->concurrency + spare;
    return n < WORKER_SLOTS_MAX ? n : WORKER_SLOTS_MAX;
}

void slots_open(struct worker *w, const char *cells)
{
    unsigned n = slots_max(w);
    w->clerks = mem_zalloc(w->concurrency * sizeof *w->clerks);
    for (unsigned i = 0; i < w->concurrency; i++) {
        struct clerk *clerk = &w->clerks[i];
        clerk->pass.turn = i;
        clerk->runner = runner_open(&w->run, on_done, clerk);
    }
    w->ahead = mem_zalloc(w->o->n_queue * sizeof *w->ahead);
    for (size_t i = 0; i < w->o->n_queue; i++)
        prefetch_init(&w->ahead[i]);
    w->slots = mem_zalloc(n * sizeof *w->slots);
    for (unsigned i = 0; i < n; i++) {
        struct txn_slot *s = &w->slots[i];
        int64_t cell = 0; /* fewer cells than slots: the rest work without the journal */
        (void)text_array_next_i64(&cells, &cell);
        (void)snprintf(s->cell, sizeof s->cell, "%" PRId64, cell);
        s->w = w;
        (void)uv_timer_init(&w->loop, &s->hold);
        s->hold.data = s;
    }
    while (w->n_slot < w->concurrency)
        open_slot(w);
}

bool slots_wake(struct worker *w)
{
    struct clerk *clerk = w->clerks ? idle_clerk(w) : NULL;
    struct txn_slot *s = clerk ? idle_slot(w) : NULL;
    if (!s)
        return false;
    sit(clerk, s);
    pass_reset(&clerk->pass);
    send_claim(s, true);
    return true;
}

bool slots_quiet(const struct worker *w)
{
    for (unsigned i = 0; i < w->n_slot; i++) {
        const struct txn_slot *s = &w->slots[i];
        if (s->group || s->on_its_way > 0 || s->state == SLOT_CLAIMING)
            return false;
    }
    return true;
}

void slots_kill(struct worker *w)
{
    for (unsigned i = 0; w->clerks && i < w->concurrency; i++)
        runner_kill(w->clerks[i].runner);
}

void slots_close(struct worker *w)
{
    for (unsigned i = 0; i < w->n_slot; i++)
        pg_close(w->slots[i].pg);
    for (unsigned i = 0; w->slots && i < slots_max(w); i++)
        uv_close((uv_handle_t *)&w->slots[i].hold, NULL);
    for (unsigned i = 0; w->clerks && i < w->concurrency; i++)
        runner_close(w->clerks[i].runner);
    for (size_t i = 0; w->ahead && i < w->o->n_queue; i++)
        prefetch_done(&w->ahead[i]);
}
