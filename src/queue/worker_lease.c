/* worker_lease.c - lease mode: one connection claims batches of groups, runners work on them,
 * and what they finished meanwhile is settled together with the next claim, in one round trip.
 *
 *   claim_lease() -> backlog -> runner -> finished -> settle_lease()
 *                       \--- heartbeats for all that is held ---/
 *
 * The claim is in the table, not in the connection: when that is lost, work goes on and is
 * settled after the next connect, if the lease still stands; the fence decides. */
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

enum { SETTLE_TRIES = 5 }; /* of a worker that shall stop */

/* A group that ended, until the database knows. */
struct finished {
    struct list link;
    struct work_group *group;
    enum verdict_kind kind;
    char *outcome, *error; /* owned; NULL: none */
    bool alone;            /* a batch with it could not be settled: it goes by itself */
    bool replaced;         /* its own result could not be stored: this one says so */
};

struct desk {
    struct lease_worker *lease;
    struct runner *runner;
};

struct lease_worker {
    struct worker *w;
    struct pg *pg;      /* claims */
    struct pg *settler; /* settles, while the next claim runs: two backends share the work */
    struct desk *desks; /* one per slot */
    struct list backlog;
    struct list held;     /* all groups claimed and not ended, for heartbeats */
    struct list finished; /* to be settled */
    struct list settling; /* on their way */
    size_t n_backlog, n_running, n_unsettled; /* the last: finished and settling */
    struct pass pass;
    bool searching;
    bool claim_on_its_way, settle_on_its_way;
    unsigned settle_failures; /* in a row, of the kind that time mends */
    uv_timer_t *pause;        /* until the next try to settle */
    uint64_t claim_sent_ms;
    /* Others look then: the first of our leases may have ended. What we claim until then has
     * not, and they see it when they look. */
    uint64_t told_until;
    bool telling; /* with the claim on its way, if it finds something */
    uv_timer_t *beat;
    uint64_t beat_sent_ms;
    bool beating, beat_again;
};

static void step(struct lease_worker *l);

static size_t held(const struct lease_worker *l)
{
    return l->n_backlog + l->n_running;
}

/* ---- settle --------------------------------------------------------------------------------
 */

static void finished_free(struct lease_worker *l, struct finished *f)
{
    l->n_unsettled--;
    list_remove(&f->link);
    group_free(f->group);
    free(f->outcome);
    free(f->error);
    free(f);
}

static char *text_or_null(struct slice s)
{
    return s.data ? mem_dup(s.data, s.len) : NULL;
}

static void finish(struct lease_worker *l, struct work_group *g, const struct verdict *v)
{
    struct finished *f = mem_zalloc(sizeof *f);
    list_remove(&g->held);
    f->group = g;
    f->kind = v->kind;
    f->outcome = text_or_null(v->outcome);
    f->error = text_or_null(v->error);
    list_push_back(&l->finished, &f->link);
    l->n_unsettled++;
}

/* The fences in an answer, sorted. */
struct fences {
    int64_t *at;
    size_t n;
};

static int fence_order(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static struct fences fences_of(const PGresult *res) /* free(at) */
{
    struct fences f = {.n = (size_t)PQntuples(res)};
    f.at = mem_alloc(f.n * sizeof *f.at);
    for (size_t i = 0; i < f.n; i++)
        f.at[i] = strtoll(PQgetvalue(res, (int)i, 0), NULL, 10);
    qsort(f.at, f.n, sizeof *f.at, fence_order);
    return f;
}

static bool fences_have(const struct fences *f, int64_t fence)
{
    return bsearch(&fence, f->at, f->n, sizeof fence, fence_order) != NULL;
}

static void on_pause_over(uv_timer_t *timer)
{
    step(timer->data);
}

/* What was on its way to be settled is to be settled again, in its order. */
static void take_back(struct lease_worker *l)
{
    while (!list_empty(&l->settling)) {
        struct list *last = l->settling.prev;
        list_remove(last);
        list_push_front(&l->finished, last);
    }
}

/* Time mends it: all of it is sent again. Settling twice is harmless, because the second time
 * the fence is no longer current. */
static void settle_later(struct lease_worker *l, bool lost)
{
    if (l->w->stopping && l->settle_failures >= SETTLE_TRIES)
        list_each_safe(it, &l->settling)
            finished_free(l, list_item(it, struct finished, link)); /* the leases run out */
    take_back(l);
    if (!lost)
        (void)uv_timer_start(l->pause, on_pause_over, pg_backoff_ms(l->settle_failures++), 0);
}

/* The database will not take it: that it could not be stored is how it ended. */
static void replace_result(struct lease_worker *l, struct finished *f, const PGresult *res)
{
    if (f->replaced || f->kind == VERDICT_UNTOUCHED) {
        log_error("queue.not_settled", "queue=%s requests=%s next=\"its lease runs out\"",
                  log_bytes(slice_str(f->group->queue)), f->group->ids);
        finished_free(l, f);
        return;
    }
    free(f->outcome);
    free(f->error);
    f->kind = VERDICT_RETRY;
    f->outcome = NULL;
    f->error = result_refused(res);
    f->replaced = true;
}

/* One of the batch may be the reason that the database does not take it: each goes alone. */
static void settle_apart(struct lease_worker *l, const PGresult *res)
{
    bool single = l->settling.next == l->settling.prev;
    list_each (it, &l->settling)
        list_item(it, struct finished, link)->alone = true;
    take_back(l);
    if (single)
        replace_result(l, list_item(l->finished.next, struct finished, link), res);
}

static void settling_failed(struct lease_worker *l, const PGresult *res)
{
    if (res)
        log_error("queue.settle_failed", "state=%s error=\"%s\"", pg_state(res),
                  pg_message(res));
    if (pg_is_transient(res))
        settle_later(l, res == NULL);
    else
        settle_apart(l, res);
}

static void on_settle(void *arg, const PGresult *res)
{
    struct lease_worker *l = arg;
    l->settle_on_its_way = false;
    if (!pg_ok(res)) {
        settling_failed(l, res);
        step(l);
        return;
    }
    l->settle_failures = 0;
    struct fences lost = fences_of(res);
    list_each_safe(it, &l->settling)
    {
        struct finished *f = list_item(it, struct finished, link);
        if (f->kind == VERDICT_UNTOUCHED) {
            /* given back in the same batch */
        } else if (!fences_have(&lost, f->group->fence)) {
            worker_count(l->w, f->group->queue, f->kind);
        } else {
            log_warn("queue.settle_refused",
                     "queue=%s requests=%s fence=%" PRId64 " reason=\"the claim was lost\"",
                     log_bytes(slice_str(f->group->queue)), f->group->ids, f->group->fence);
        }
        finished_free(l, f);
    }
    free(lost.at);
    step(l);
}

/* Array literals, an element per group; the same place in each belongs to the same group. */
struct arrays {
    struct buf ids, fences, status, outcome, error;
};

static void arrays_begin(struct arrays *a)
{
    struct buf *all[] = {&a->ids, &a->fences, &a->status, &a->outcome, &a->error};
    *a = (struct arrays){0};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        text_array_begin(all[i]);
}

static void arrays_end(struct arrays *a)
{
    struct buf *all[] = {&a->ids, &a->fences, &a->status, &a->outcome, &a->error};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        text_array_end(all[i]);
}

static void arrays_done(struct arrays *a)
{
    struct buf *all[] = {&a->ids, &a->fences, &a->status, &a->outcome, &a->error};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        buf_done(all[i]);
}

static void arrays_add(struct arrays *a, const struct work_group *g)
{
    text_array_add(&a->ids, slice_str(g->ids));
    text_array_add_i64(&a->fences, g->fence);
}

/* One that must go alone, or NULL: all go together. */
static struct finished *lone(const struct lease_worker *l)
{
    list_each (it, &l->finished) {
        struct finished *f = list_item(it, struct finished, link);
        if (f->alone)
            return f;
    }
    return NULL;
}

static void send_settle(struct lease_worker *l)
{
    const struct finished *only = lone(l);
    struct worker *w = l->w;
    struct arrays ends, back;
    bool some_back = false;
    uint64_t n = 0; /* requests that end */
    char count[24];
    arrays_begin(&ends);
    arrays_begin(&back);
    list_each_safe(it, &l->finished)
    {
        struct finished *f = list_item(it, struct finished, link);
        if (only && f != only)
            continue;
        list_remove(it);
        list_push_back(&l->settling, it);
        if (f->kind == VERDICT_UNTOUCHED) {
            arrays_add(&back, f->group);
            some_back = true;
            continue;
        }
        n += f->group->n_request;
        arrays_add(&ends, f->group);
        text_array_add(&ends.status, f->kind == VERDICT_COMPLETE ? SLICE("complete")
                                     : f->kind == VERDICT_RETRY  ? SLICE("new")
                                                                 : SLICE("error"));
        text_array_add(&ends.outcome, slice_str(f->outcome));
        text_array_add(&ends.error, slice_str(f->error));
    }
    arrays_end(&ends);
    arrays_end(&back);
    pg_begin(l->settler);
    if (some_back) {
        const char *b[] = {buf_cstr(&back.ids), buf_cstr(&back.fences)};
        pg_send(l->settler, w->sql.give_back, 2, b, NULL, NULL);
    }
    (void)snprintf(count, sizeof count, "%" PRIu64, n);
    const char *p[] = {buf_cstr(&ends.ids),     buf_cstr(&ends.fences), buf_cstr(&ends.status),
                       buf_cstr(&ends.outcome), buf_cstr(&ends.error),  count,
                       w->numbers[0],           w->numbers[1],          w->numbers[2]};
    pg_send(l->settler, w->sql.settle_lease, 9, p, on_settle, l);
    pg_commit(l->settler);
    l->settle_on_its_way = true;
    arrays_done(&ends);
    arrays_done(&back);
}

/* ---- claim ---------------------------------------------------------------------------------
 */

static void search_ended(struct lease_worker *l)
{
    l->searching = false;
    if (!worker_lease_quiet(l->w)) /* else step() says so */
        worker_idle(l->w, &l->pass);
}

static void claim_failed(struct lease_worker *l, const PGresult *res)
{
    if (!res)
        return; /* `down` follows, and `up` starts again */
    if (strcmp(pg_state(res), "55P03") == 0 && !l->pass.careful) {
        log_debug("queue.conflict", "state=55P03");
        l->pass.careful = true;
        return;
    }
    l->pass.busy = 1;
    if (!worker_hopeless(l->w, res)) {
        log_warn("queue.claim_failed", "state=%s error=\"%s\"", pg_state(res), pg_message(res));
        search_ended(l);
    }
}

static void on_unfold(void *arg, const PGresult *res)
{
    struct lease_worker *l = arg;
    l->claim_on_its_way = false;
    if (!pg_ok(res))
        claim_failed(l, res);
    else
        pass_unfolded(&l->pass, strtol(pg_first(res), NULL, 10));
    if (!l->w->closing)
        step(l);
}

static void send_unfold(struct lease_worker *l)
{
    worker_unfold(l->w, l->pg, &l->pass, on_unfold, l);
    l->claim_on_its_way = true;
}

static void on_claim(void *arg, const PGresult *res)
{
    struct lease_worker *l = arg;
    struct worker *w = l->w;
    l->claim_on_its_way = false;
    if (!pg_ok(res)) {
        claim_failed(l, res);
        if (!w->closing)
            step(l);
        return;
    }
    size_t q = pass_queue(w, &l->pass);
    struct claim c;
    claim_read(w->o->queues[q].name, res, &c);
    if (!c.end)
        l->pass.line[q] = c.line;
    l->pass.busy += c.busy;
    list_each_safe(it, &c.groups)
    {
        struct work_group *g = list_item(it, struct work_group, link);
        g->deadline_ms = l->claim_sent_ms + w->lease_ms;
        list_remove(&g->link);
        list_push_back(&l->backlog, &g->link);
        list_push_back(&l->held, &g->held);
        l->n_backlog++;
    }
    if (c.n_group > 0) {
        pass_found(&l->pass);
        sleep_found(w);
        if (l->telling)
            l->told_until = l->claim_sent_ms + w->lease_ms;
    }
    if (c.bundle && !w->stopping)
        send_unfold(l);
    else if (c.end && !pass_next(w, &l->pass))
        search_ended(l);
    step(l);
}

static void send_claim(struct lease_worker *l, size_t n)
{
    struct worker *w = l->w;
    size_t q = pass_queue(w, &l->pass);
    char line[24], lease[24];
    struct buf processes = {0};
    text_put_uuids(&processes, n);
    (void)snprintf(line, sizeof line, "%" PRId64, l->pass.line[q]);
    (void)snprintf(lease, sizeof lease, "%u", w->lease_ms);
    l->claim_sent_ms = uv_now(&w->loop);
    l->telling = l->claim_sent_ms >= l->told_until;
    const char *p[] = {w->o->queues[q].name,
                       line,
                       buf_cstr(&processes),
                       lease,
                       w->name,
                       w->o->base.require_created ? "t" : "f",
                       l->pass.careful ? "t" : "f",
                       l->pass.unfolded == PASS_UNFOLD_MAX ? "t" : "f",
                       l->telling ? "t" : "f"};
    worker_ask(l->pg, w->sql.claim_lease, 9, p, on_claim, l);
    l->claim_on_its_way = true;
    buf_done(&processes);
}

/* ---- work ----------------------------------------------------------------------------------
 */

static void on_done(void *arg, struct work_group *g, const struct verdict *v)
{
    struct desk *d = arg;
    struct lease_worker *l = d->lease;
    l->n_running--;
    if (g->lost) {
        log_warn("queue.result_dropped", "queue=%s requests=%s fence=%" PRId64,
                 log_bytes(slice_str(g->queue)), g->ids, g->fence);
        list_remove(&g->held);
        group_free(g);
    } else {
        struct verdict untouched = {.kind = VERDICT_UNTOUCHED};
        finish(l, g, l->w->killed ? &untouched : v);
    }
    step(l);
}

/* Groups a runner may have at a time: a long-lived command takes lines ahead. */
static size_t depth(const struct lease_worker *l)
{
    return l->w->o->persistent ? (l->w->batch + l->w->concurrency - 1) / l->w->concurrency : 1;
}

static struct desk *free_desk(struct lease_worker *l)
{
    struct desk *best = NULL;
    for (unsigned i = 0; i < l->w->concurrency; i++) {
        struct desk *d = &l->desks[i];
        if (runner_load(d->runner) < depth(l) && runner_has_room(d->runner) &&
            (!best || runner_load(d->runner) < runner_load(best->runner)))
            best = d;
    }
    return best;
}

/* A group whose claim is gone, and that is not being worked on. */
static void forget(struct work_group *g)
{
    log_warn("queue.claim_lost", "queue=%s requests=%s fence=%" PRId64,
             log_bytes(slice_str(g->queue)), g->ids, g->fence);
    list_remove(&g->held);
    group_free(g);
}

/* Gives the backlog to free children. False when the command cannot be started. */
static bool start_backlog(struct lease_worker *l)
{
    while (l->n_backlog > 0) {
        struct work_group *g = list_item(l->backlog.next, struct work_group, link);
        const char *refuse = g->refuse;
        bool stopping = l->w->stopping;
        struct desk *d = stopping || refuse ? NULL : free_desk(l);
        if (!d && !stopping && !refuse)
            return true;
        list_remove(&g->link);
        l->n_backlog--;
        if (uv_now(&l->w->loop) >= g->deadline_ms) {
            forget(g); /* nobody knows whose it is by now */
        } else if (stopping) {
            finish(l, g, &(struct verdict){.kind = VERDICT_UNTOUCHED});
        } else if (refuse) {
            finish(l, g, &(struct verdict){.kind = VERDICT_ERROR, .error = slice_str(refuse)});
        } else if (d && runner_start(d->runner, g)) {
            l->n_running++;
        } else {
            int code = errno;
            finish(l, g, &(struct verdict){.kind = VERDICT_UNTOUCHED});
            worker_fail(l->w, "cannot start %s: %s", l->w->o->argv[0], strerror(code));
            return false;
        }
    }
    return true;
}

static bool hand_out(struct lease_worker *l)
{
    bool ok = start_backlog(l);
    for (unsigned i = 0; i < l->w->concurrency; i++)
        runner_flush(l->desks[i].runner); /* many groups, one write */
    return ok;
}

/* Whatever can be done now is done: the one place that decides. */
static void step(struct lease_worker *l)
{
    struct worker *w = l->w;
    if (w->closing || !hand_out(l))
        return;
    if (pg_is_up(l->settler) && !l->settle_on_its_way && !list_empty(&l->finished) &&
        !uv_is_active((uv_handle_t *)l->pause))
        send_settle(l);
    size_t cap = w->batch > 1 ? 3 * (size_t)w->batch : w->concurrency;
    size_t taken = held(l) + (w->batch > 1 ? l->n_unsettled : 0);
    if (pg_is_up(l->pg) && pg_is_up(l->settler) && !l->claim_on_its_way && l->searching &&
        !w->stopping && taken < cap) {
        size_t room = cap - taken;
        if (room >= w->batch || taken == 0)
            send_claim(l, room < w->batch ? room : w->batch);
    }
    if (!l->searching && !w->stopping && worker_lease_quiet(w))
        worker_idle(w, &l->pass); /* the last of a search is settled: drained, perhaps */
    worker_maybe_close(w);
}

/* ---- heartbeat -----------------------------------------------------------------------------
 */

/* The claim is somebody else's by now, or nobody's: its work must end before it does harm. */
static void lose(struct lease_worker *l, struct work_group *g)
{
    log_warn("queue.claim_lost", "queue=%s requests=%s fence=%" PRId64,
             log_bytes(slice_str(g->queue)), g->ids, g->fence);
    g->lost = true;
    for (unsigned i = 0; i < l->w->concurrency; i++)
        runner_drop(l->desks[i].runner, g);
}

/* A group of the backlog that was lost is simply forgotten. */
static void drop_lost_backlog(struct lease_worker *l)
{
    list_each_safe(it, &l->backlog)
    {
        struct work_group *g = list_item(it, struct work_group, link);
        if (!g->lost)
            continue;
        list_remove(&g->link);
        list_remove(&g->held);
        l->n_backlog--;
        group_free(g);
    }
}

static void beat(struct lease_worker *l);

static void on_beat(void *arg, const PGresult *res)
{
    struct lease_worker *l = arg;
    struct fences current = fences_of(res); /* none when it failed */
    l->beating = false;
    list_each (it, &l->held) {
        struct work_group *g = list_item(it, struct work_group, held);
        if (!g->beaten)
            continue;
        g->beaten = false;
        if (!pg_ok(res))
            continue; /* unknown: its deadline decides */
        if (fences_have(&current, g->fence))
            g->deadline_ms = l->beat_sent_ms + l->w->lease_ms;
        else if (!g->lost)
            lose(l, g);
    }
    free(current.at);
    drop_lost_backlog(l);
    step(l);
    if (l->beat_again && !l->w->closing)
        beat(l);
}

static void beat(struct lease_worker *l)
{
    struct worker *w = l->w;
    l->beat_again = l->beating;
    struct arrays a;
    arrays_begin(&a);
    bool send = !l->beating && pg_is_up(w->control) && !list_empty(&l->held);
    list_each (it, &l->held) {
        struct work_group *g = list_item(it, struct work_group, held);
        if (g->lost)
            continue;
        if (uv_now(&w->loop) >= g->deadline_ms) {
            lose(l, g); /* no heartbeat came through for a whole lease */
        } else if (send) {
            g->beaten = true;
            arrays_add(&a, g);
        }
    }
    arrays_end(&a);
    if (send) {
        char lease[24];
        (void)snprintf(lease, sizeof lease, "%u", w->lease_ms);
        const char *p[] = {buf_cstr(&a.ids), buf_cstr(&a.fences), lease};
        l->beating = true;
        l->beat_sent_ms = uv_now(&w->loop);
        worker_ask(w->control, w->sql.beat, 3, p, on_beat, l);
    }
    arrays_done(&a);
    drop_lost_backlog(l);
}

static void on_beat_timer(uv_timer_t *timer)
{
    beat(timer->data);
}

void worker_lease_look(struct worker *w)
{
    if (w->lease)
        beat(w->lease);
}

/* ---- connection ----------------------------------------------------------------------------
 */

static void on_up(void *arg)
{
    struct lease_worker *l = arg;
    worker_prepare(l->w, l->pg);
    worker_tend(l->w);
    step(l);
}

static void on_down(void *arg, const char *why, bool hopeless)
{
    struct lease_worker *l = arg;
    (void)hopeless;
    log_warn("queue.disconnected", "error=\"%s\"", why);
    worker_maybe_close(l->w);
}

static void on_settler_up(void *arg)
{
    struct lease_worker *l = arg;
    worker_prepare(l->w, l->settler);
    step(l);
}

static uv_timer_t *open_timer(struct lease_worker *l)
{
    uv_timer_t *timer = mem_zalloc(sizeof *timer);
    (void)uv_timer_init(&l->w->loop, timer);
    timer->data = l;
    return timer;
}

void worker_lease_open(struct worker *w)
{
    static const struct pg_events events = {on_up, on_down, NULL};
    static const struct pg_events settler_events = {on_settler_up, on_down, NULL};
    struct lease_worker *l = mem_zalloc(sizeof *l);
    w->lease = l;
    l->w = w;
    list_init(&l->backlog);
    list_init(&l->held);
    list_init(&l->finished);
    list_init(&l->settling);
    l->desks = mem_zalloc(w->concurrency * sizeof *l->desks);
    for (unsigned i = 0; i < w->concurrency; i++) {
        l->desks[i].lease = l;
        l->desks[i].runner = runner_open(&w->run, on_done, &l->desks[i]);
    }
    l->beat = open_timer(l);
    l->pause = open_timer(l);
    uint64_t every = w->lease_ms / 3;
    (void)uv_timer_start(l->beat, on_beat_timer, every, every);
    l->pg = worker_connect(w, &events, l);
    l->settler = worker_connect(w, &settler_events, l);
}

bool worker_lease_wake(struct worker *w)
{
    struct lease_worker *l = w->lease;
    if (!l || l->searching || !pg_is_up(l->pg))
        return false;
    pass_reset(&l->pass);
    l->searching = true;
    step(l);
    return true;
}

bool worker_lease_quiet(const struct worker *w)
{
    const struct lease_worker *l = w->lease;
    return !l || (held(l) == 0 && !l->claim_on_its_way && !l->settle_on_its_way &&
                  (!pg_is_up(l->settler) || list_empty(&l->finished)));
}

void worker_lease_kill(struct worker *w)
{
    for (unsigned i = 0; w->lease && i < w->concurrency; i++)
        runner_kill(w->lease->desks[i].runner);
}

void worker_lease_stop(struct worker *w)
{
    if (w->lease)
        step(w->lease);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void worker_lease_close(struct worker *w)
{
    struct lease_worker *l = w->lease;
    if (!l)
        return;
    pg_close(l->pg);
    pg_close(l->settler);
    for (unsigned i = 0; i < w->concurrency; i++)
        runner_close(l->desks[i].runner);
    list_each_safe(it, &l->finished)
    {
        finished_free(l, list_item(it, struct finished, link));
    }
    uv_close((uv_handle_t *)l->beat, on_timer_closed);
    uv_close((uv_handle_t *)l->pause, on_timer_closed);
    free(l->desks);
    free(l);
    w->lease = NULL;
}
