/* runner.c - has a group worked on: by a command, a long-lived command, or a C function. */
#include "queue/runner.h"

#include "base/check.h"
#include "base/mem.h"
#include "queue/schema.h"
#include "queue/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    EXIT_AGAIN = 75, /* EX_TEMPFAIL of sysexits.h */
    CLOSE_GRACE_MS = 5000,
    REPLY_LINE_MAX = 1 << 20,
    QUICK_MS = 2, /* a command that answers in this time may have more lines ahead */
    SLOW_MS = 10, /* and in this one no line but its own */
    VARIABLES = 6 /* BELAY_* of a command */
};

struct runner {
    const struct runner_options *o;
    runner_done_fn *done;
    void *arg;
    struct list groups; /* started and not done; the first one is being worked on */
    size_t load;
    struct child *child; /* NULL: none */
    struct buf input;    /* lines not yet given to the child */
    struct buf output;   /* stdout so far, or the part of a line */
    bool overflow;       /* it was more than we keep */
    bool timed_out;
    bool dropped; /* killed because of a group that is lost: no attempt of the others */
    bool closing;
    size_t window;     /* persistent: groups that may be given to the child at a time */
    uint64_t since_ms; /* when the first one became the first */
    uv_timer_t *timer;
    uv_work_t job; /* function only */
    enum belay_queue_verdict answer;
    struct buf fn_outcome,
        fn_error; /* copies: the function's texts end with its thread's turn */
    bool has_outcome, has_error;
};

void group_free(struct work_group *g)
{
    if (!g)
        return;
    free(g->queue);
    free(g->entity);
    free(g->kind);
    free(g->process);
    free(g->ids);
    free(g->work);
    free(g->refuse);
    free(g);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

static void release(struct runner *r)
{
    uv_close((uv_handle_t *)r->timer, on_timer_closed);
    buf_done(&r->input);
    buf_done(&r->output);
    buf_done(&r->fn_outcome);
    buf_done(&r->fn_error);
    free(r);
}

static void on_timeout(uv_timer_t *timer)
{
    struct runner *r = timer->data;
    r->timed_out = true;
    child_kill(r->child);
}

/* Of the group that is worked on: what it asks for, else what the worker says; 0: none. */
static uint64_t timeout_of(const struct runner *r)
{
    uint64_t own = list_empty(&r->groups)
                       ? 0
                       : list_item(r->groups.next, struct work_group, link)->timeout_ms;
    return own > 0 ? own : r->o->timeout_ms;
}

static void arm_timeout(struct runner *r)
{
    if (timeout_of(r) > 0 && r->child && !list_empty(&r->groups))
        (void)uv_timer_start(r->timer, on_timeout, timeout_of(r), 0);
    else
        (void)uv_timer_stop(r->timer);
}

/* Lines ahead save round trips where answers come quickly. Behind a slow group nothing may wait
 * in the pipe: its claim could be lost meanwhile, and a line cannot be taken back. */
static void measure(struct runner *r)
{
    uint64_t now = uv_now(r->o->loop), took = now - r->since_ms;
    if (took <= QUICK_MS)
        r->window *= r->window < RUNNER_WINDOW_MAX ? 2 : 1;
    else if (took > SLOW_MS)
        r->window = 1;
    r->since_ms = now;
}

/* Hands the oldest group back. The owner may start the next one from inside the call. */
static void settle_first(struct runner *r, const struct verdict *v)
{
    BELAY_CHECK(!list_empty(&r->groups));
    struct work_group *g = list_item(r->groups.next, struct work_group, link);
    list_remove(&g->link);
    r->load--;
    measure(r);
    arm_timeout(r);
    r->done(r->arg, g, v);
}

/* ---- the end of a command ------------------------------------------------------------------
 */

static void describe_end(struct buf *out, struct runner *r, int status, struct slice errors)
{
    if (r->timed_out)
        buf_printf(out, "timed out after %" PRIu64 " ms", timeout_of(r));
    else if (WIFSIGNALED(status))
        buf_printf(out, "killed by signal %d (%s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else
        buf_printf(out, "exit status %d", WEXITSTATUS(status));
    if (errors.len > 0) {
        buf_put_str(out, ": ");
        text_put_clean(out, errors);
    }
}

static void command_ended(struct runner *r, int status, struct slice errors)
{
    struct buf why = {0}, outcome = {0};
    struct verdict v = {.kind = VERDICT_COMPLETE};

    text_put_clean(&outcome, buf_slice(&r->output));
    v.outcome = buf_slice(&outcome);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !r->timed_out) {
        if (r->overflow) {
            v.kind = VERDICT_ERROR;
            v.error = SLICE("the output is larger than 65536 bytes; the beginning was kept");
        }
    } else {
        bool again = !WIFEXITED(status) || WEXITSTATUS(status) == EXIT_AGAIN || r->timed_out;
        v.kind = again ? VERDICT_RETRY : VERDICT_ERROR;
        describe_end(&why, r, status, errors);
        v.error = buf_slice(&why);
    }
    r->timed_out = r->dropped = false;
    settle_first(r, &v);
    buf_done(&outcome);
    buf_done(&why);
}

/* The first group was being worked on when it died; those behind it had not been begun. */
static void persistent_ended(struct runner *r, int status, struct slice errors)
{
    struct buf why = {0};
    buf_put_str(&why, "the command ended before it answered: ");
    describe_end(&why, r, status, errors);
    size_t begun = r->dropped ? 0 : 1;
    r->timed_out = r->dropped = false;
    r->window = 1;
    size_t n = r->load; /* what the owner starts meanwhile belongs to the next process */
    for (size_t i = 0; i < n; i++) {
        struct verdict v = {.kind = i < begun ? VERDICT_RETRY : VERDICT_UNTOUCHED,
                            .error = buf_slice(&why)};
        settle_first(r, &v);
    }
    buf_done(&why);
}

static void on_ended(void *arg, int status, struct slice errors)
{
    struct runner *r = arg;
    (void)uv_timer_stop(r->timer);
    r->child = NULL;
    if (r->closing) {
        release(r);
        return;
    }
    if (r->o->persistent)
        persistent_ended(r, status, errors);
    else
        command_ended(r, status, errors);
}

/* ---- output --------------------------------------------------------------------------------
 */

static void answer_line(struct runner *r, struct slice line)
{
    struct buf store = {0}, clean = {0}, why = {0};
    struct verdict v = {0};
    const char *wrong = NULL;

    text_put_clean(&clean, line);
    if (!reply_parse(buf_slice(&clean), &store, &v, &wrong)) {
        buf_printf(&why, "the command's answer is not understood: %s", wrong);
        v = (struct verdict){.kind = VERDICT_ERROR, .error = buf_slice(&why)};
    } else if (v.outcome.len > QUEUE_OUTCOME_MAX) {
        v.kind = VERDICT_ERROR;
        v.outcome.len = QUEUE_OUTCOME_MAX;
        v.error = SLICE("the outcome is larger than 65536 bytes; the beginning was kept");
    }
    struct buf outcome = {0}; /* cut or with \u0000 in it, it needs another look */
    if (v.outcome.data) {
        text_put_clean(&outcome, v.outcome);
        v.outcome = buf_slice(&outcome);
    }
    struct buf error = {0};
    if (v.error.data) {
        text_put_clean(&error, v.error);
        v.error = buf_slice(&error);
    }
    settle_first(r, &v);
    buf_done(&error);
    buf_done(&outcome);
    buf_done(&store);
    buf_done(&clean);
    buf_done(&why);
}

static void on_output(void *arg, struct slice bytes)
{
    struct runner *r = arg;
    size_t max = r->o->persistent ? REPLY_LINE_MAX : QUEUE_OUTCOME_MAX;
    size_t room = max - buf_len(&r->output);
    if (bytes.len > room && !r->o->persistent) {
        r->overflow = true;
        bytes.len = room;
    }
    buf_put_slice(&r->output, bytes);
    if (!r->o->persistent)
        return;
    const char *nl;
    while (r->child && (nl = memchr(buf_data(&r->output), '\n', buf_len(&r->output))) != NULL) {
        size_t n = (size_t)(nl - buf_data(&r->output));
        struct buf line = {0};
        buf_put(&line, buf_data(&r->output), n);
        buf_consume(&r->output, n + 1);
        if (list_empty(&r->groups)) {
            child_kill(
                r->child); /* it talks without being asked: we no longer know what it means */
            buf_clear(&r->output);
        } else {
            answer_line(r, buf_slice(&line));
        }
        buf_done(&line);
    }
    if (buf_len(&r->output) > REPLY_LINE_MAX) {
        child_kill(r->child);
        buf_clear(&r->output);
    }
}

/* ---- start ---------------------------------------------------------------------------------
 */

/* The ids as the environment has them: 1,2,3. */
static void put_ids(struct buf *out, const char *ids)
{
    size_t n = strlen(ids);
    if (n >= 2)
        buf_put(out, ids + 1, n - 2);
}

static const char *const variables[VARIABLES] = {"BELAY_QUEUE", "BELAY_ENTITY",
                                                 "BELAY_KIND",  "BELAY_PROCESS",
                                                 "BELAY_FENCE", "BELAY_REQUESTS"};

/* A variable of a group: another one's, of a worker or a lock around us, would mislead. */
static bool is_ours(const char *text)
{
    for (size_t i = 0; i < VARIABLES; i++) {
        size_t n = strlen(variables[i]);
        if (strncmp(text, variables[i], n) == 0 && text[n] == '=')
            return true;
    }
    return false;
}

/* Our environment with BELAY_* of the group instead of what there was; without a group none. */
static char **command_env(const struct work_group *g, struct buf vars[VARIABLES])
{
    size_t inherited = 0;
    while (environ[inherited])
        inherited++;
    char **env = mem_alloc((inherited + VARIABLES + 1) * sizeof *env);
    size_t n = 0;
    if (g) {
        for (size_t i = 0; i < VARIABLES; i++)
            buf_printf(&vars[i], "%s=", variables[i]);
        buf_put_str(&vars[0], g->queue);
        buf_put_str(&vars[1], g->entity);
        buf_put_str(&vars[2], g->kind);
        buf_put_str(&vars[3], g->process);
        buf_put_i64(&vars[4], g->fence);
        put_ids(&vars[5], g->ids);
        for (; n < VARIABLES; n++) {
            (void)buf_cstr(&vars[n]);
            env[n] = vars[n].mem + vars[n].start;
        }
    }
    for (size_t i = 0; i < inherited; i++)
        if (!is_ours(environ[i]))
            env[n++] = environ[i];
    env[n] = NULL;
    return env;
}

static bool start_child(struct runner *r, const struct work_group *g)
{
    static const struct child_events events = {on_output, on_ended};
    struct buf vars[VARIABLES] = {0};
    char **env = command_env(g, vars);
    r->child = child_open(r->o->nursery, r->o->argv, env, &events, r);
    int code = errno;
    for (size_t i = 0; i < VARIABLES; i++)
        buf_done(&vars[i]);
    free(env);
    buf_clear(&r->input);
    buf_clear(&r->output);
    r->overflow = false;
    errno = code;
    return r->child != NULL;
}

/* A text of the result, or NULL, as far as it is kept. */
static bool copy_text(struct buf *out, const char *text)
{
    buf_clear(out);
    if (text)
        text_put_clean(out, slice_of(text, strnlen(text, QUEUE_OUTCOME_MAX)));
    return text != NULL;
}

/* On a thread. The texts are the function's own: what it does next on this thread, for another
 * group, may change them. */
static void on_function(uv_work_t *job)
{
    struct runner *r = job->data;
    struct work_group *g = list_item(r->groups.next, struct work_group, link);
    struct belay_queue_group lent = {g->queue,   g->entity,          g->kind,
                                     g->process, (uint64_t)g->fence, g->work};
    struct belay_queue_result result = {0};
    r->answer = r->o->fn(r->o->fn_arg, &lent, &result);
    r->has_outcome = copy_text(&r->fn_outcome, result.outcome);
    r->has_error = copy_text(&r->fn_error, result.error);
}

static void on_function_done(uv_work_t *job, int status)
{
    BELAY_CHECK(status == 0);
    struct runner *r = job->data;
    struct buf outcome = r->fn_outcome,
               error = r->fn_error; /* the next job may begin in here */
    struct verdict v = {.kind = r->answer == BELAY_QUEUE_COMPLETE ? VERDICT_COMPLETE
                                : r->answer == BELAY_QUEUE_RETRY  ? VERDICT_RETRY
                                                                  : VERDICT_ERROR};
    if (r->has_outcome)
        v.outcome = buf_slice(&outcome);
    if (r->has_error)
        v.error = buf_slice(&error);
    r->fn_outcome = r->fn_error = (struct buf){0};
    settle_first(r, &v);
    buf_done(&outcome);
    buf_done(&error);
}

bool runner_start(struct runner *r, struct work_group *g)
{
    BELAY_CHECK(r->o->persistent || r->load == 0);
    if (!r->o->argv) {
        list_push_back(&r->groups, &g->link);
        r->load++;
        r->job.data = r;
        (void)uv_queue_work(r->o->loop, &r->job, on_function, on_function_done);
        return true;
    }
    if (!r->child && !start_child(r, r->o->persistent ? NULL : g))
        return false;
    list_push_back(&r->groups, &g->link);
    r->load++;
    buf_put_str(&r->input, g->work);
    if (r->load == 1) {
        r->since_ms = uv_now(r->o->loop);
        arm_timeout(r);
    }
    return true;
}

void runner_flush(struct runner *r)
{
    if (!r->child || buf_len(&r->input) == 0)
        return;
    child_write(r->child, buf_slice(&r->input));
    buf_clear(&r->input);
    if (!r->o->persistent)
        child_close_input(r->child);
}

void runner_kill(struct runner *r)
{
    if (r->child)
        child_kill(r->child);
}

void runner_drop(struct runner *r, const struct work_group *g)
{
    list_each (it, &r->groups)
        if (it == &g->link) {
            r->dropped = true;
            runner_kill(r);
            return;
        }
}

size_t runner_load(const struct runner *r)
{
    return r->load;
}

bool runner_has_room(const struct runner *r)
{
    return r->load < (r->o->persistent ? r->window : 1);
}

struct runner *runner_open(const struct runner_options *options, runner_done_fn *done,
                           void *arg)
{
    struct runner *r = mem_zalloc(sizeof *r);
    r->o = options;
    r->done = done;
    r->arg = arg;
    r->window = 1;
    list_init(&r->groups);
    r->timer = mem_zalloc(sizeof *r->timer);
    (void)uv_timer_init(options->loop, r->timer);
    r->timer->data = r;
    return r;
}

static void on_close_grace(uv_timer_t *timer)
{
    struct runner *r = timer->data;
    child_kill(r->child);
}

void runner_close(struct runner *r)
{
    if (!r)
        return;
    r->closing = true;
    if (!r->child) {
        release(r);
        return;
    }
    child_close_input(r->child);
    (void)uv_timer_start(r->timer, on_close_grace, CLOSE_GRACE_MS, 0);
}
