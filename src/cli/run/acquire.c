/* acquire.c - getting the locks of a run: all or none, without deadlock.
 *
 * The locks are taken one after the other, in the order of their names, each kept (renewed)
 * from its grant on. Everybody who takes several locks this way takes them in the same order,
 * so nobody waits in a circle. Somebody else's program may hold them in another order: then the
 * server names the circle, everything is given back, and after a short random pause it begins
 * again. */
#include "cli/run/guard.h"
#include "cli/run/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

int run_exit_of(struct run *r, int code)
{
    run_status_clear(r);
    switch (r->quiet ? cli_exit_of(code) : cli_fail(r->c, code)) {
    case CLI_UNREACHABLE:
    case CLI_TIMED_OUT: /* the server did not answer: it is not there for us */
        return RUN_UNREACHABLE;
    case CLI_NOT:
        return RUN_LOST;
    case CLI_USAGE:
        return RUN_USAGE;
    case CLI_REFUSED:
        return RUN_REFUSED;
    default:
        return RUN_FAILED;
    }
}

/* "broken by the token 0123456789abcdef: runner 4 is gone" */
static void put_lost_words(struct run *r, const struct belay_lost *lost)
{
    static const char *const rows[][2] = {
        {"ttl", "it was not renewed in time"},
        {"release", "its session was closed by another client"},
        {"session", "its session has ended"},
        {"namespace", "its namespace was deleted"},
        {"revoked", "its token was revoked"},
    };
    struct buf words = {0};
    if (strcmp(lost->reason, "break") == 0) {
        buf_put_str(&words, "broken by ");
        buf_printf(&words, lost->by[0] ? "the token %s" : "an operator%s", lost->by);
        buf_put_str(&words, lost->text[0] ? ": " : "");
        cli_put_safe(&words, lost->text, strlen(lost->text));
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(lost->reason, rows[i][0]) == 0)
            buf_put_str(&words, rows[i][1]);
    if (!buf_len(&words))
        buf_put_str(&words, belay_code_text(lost->why));
    snprintf(r->lost_words, sizeof r->lost_words, "%s", buf_cstr(&words));
    buf_done(&words);
}

static void on_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct run *r = arg;
    (void)b;
    if (r->lost)
        return;
    r->lost = true;
    r->lost_why = lost->why;
    put_lost_words(r, lost);
    run_event_lost(r, lost);
}

int64_t run_margin_ms(const struct run *r)
{
    int64_t margin = r->ttl_ms / RUN_MARGIN_PART;
    return margin > RUN_MARGIN_MIN_MS ? margin : RUN_MARGIN_MIN_MS;
}

int run_open(struct run *r)
{
    int err = CLI_OK;
    if (!r->c->belay) {
        if (cli_connect(r->c) != CLI_OK)
            return RUN_USAGE;
        belay_on_lost(r->c->belay, run_margin_ms(r) + r->kill_after_ms, on_lost, r);
    }
    r->lost = false;
    err = belay_session_close(r->c->belay); /* one that is over, if any */
    if (err == BELAY_E_OK || err == BELAY_E_NO_SESSION)
        err = belay_session_open(r->c->belay, r->ttl_ms, r->linger_ms, r->owner);
    return err ? run_exit_of(r, err) : 0;
}

static bool is_silent(const struct run *r)
{
    return r->lost && (r->lost_why == BELAY_E_CONNECT || r->lost_why == BELAY_E_DEADLINE);
}

/* Backwards, each by itself: the session would free them in one step, but a lock that was given
 * back is not one that was lost (its delay does not count). A server that does not answer is
 * not waited for more than once: everything ends with the connection, or a TTL later. */
void run_give_back(struct run *r)
{
    int err = is_silent(r) ? BELAY_E_CONNECT : BELAY_E_OK;
    for (size_t i = r->n_locks; i-- > 0;) {
        bool held = false;
        if (r->locks[i].fence && err == BELAY_E_OK) {
            err = belay_release(r->c->belay, r->locks[i].name, r->locks[i].fence, NULL, &held);
            run_event_lock(r, "released", r->locks[i].name, ",\"held\":%s",
                           held ? "true" : "false");
        }
        r->locks[i].fence = 0;
    }
    if (err == BELAY_E_OK && belay_session_close(r->c->belay) != BELAY_E_OK)
        r->serial++; /* nothing more to do about it */
}

/* ---- one lock -------------------------------------------------------------------------- */

/* What a callback needs. Each has its own, and frees it: answers may come when nobody waits for
 * them any more (`serial` is an old one then). */
struct question {
    struct run *r;
    struct run_lock *lock;
    uint64_t serial;
};

static struct question *question_new(struct run *r, struct run_lock *lock)
{
    struct question *q = malloc(sizeof *q);
    if (q)
        *q = (struct question){.r = r, .lock = lock, .serial = r->serial};
    return q;
}

static void take_grant(struct run *r, struct run_lock *lock, const struct belay_grant *g)
{
    lock->fence = g->fence;
    free(lock->body);
    lock->body = malloc(g->body_len + 1);
    if (!lock->body) {
        r->answer_err = BELAY_E_MEMORY;
        return;
    }
    memcpy(lock->body, g->body, g->body_len);
    lock->body[g->body_len] = '\0';
    lock->body_len = g->body_len;
}

static void on_grant(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    struct question *q = arg;
    struct run *r = q->r;
    (void)b;
    if (q->serial == r->serial) {
        r->answered = true;
        r->answer_err = err;
        r->answer = err == BELAY_E_OK ? g->status : BELAY_REFUSED;
        snprintf(r->answer_reason, sizeof r->answer_reason, "%s",
                 err == BELAY_E_OK ? g->reason : "");
        if (err == BELAY_E_OK && g->status == BELAY_GRANTED)
            take_grant(r, q->lock, g);
    }
    free(q);
}

static void on_shown(struct belay *b, int err, const struct belay_reply *lock, void *arg)
{
    struct question *q = arg;
    (void)b;
    if (err == BELAY_E_OK && q->serial == q->r->serial && !q->r->answered)
        run_status(q->r, lock, q->lock->name);
    free(q);
}

static int64_t wait_left(const struct run *r)
{
    if (r->wait_until_ms == INT64_MAX)
        return BELAY_FOREVER;
    int64_t left = r->wait_until_ms - guard_now_ms();
    return left > 0 ? left : 0;
}

/* A server that cannot reach the others says nothing for a long time: --wait ends all the same.
 */
static bool is_waited_out(const struct run *r, int64_t now_ms)
{
    return r->wait_ms != 0 && r->wait_until_ms != INT64_MAX &&
           now_ms >= r->wait_until_ms + RUN_ANSWER_MS;
}

static int look_at_line(struct run *r, struct run_lock *lock)
{
    struct belay_bytes show[2] = {{"SHOW", 4}, {lock->name, strlen(lock->name)}};
    struct question *q = question_new(r, lock);
    int err = q ? belay_send(r->c->belay, show, 2, on_shown, q) : BELAY_E_MEMORY;
    if (err != BELAY_E_OK)
        free(q);
    return err;
}

/* Asks for the lock and waits until that is answered; looks at the line now and then. */
static int ask_and_wait(struct run *r, struct run_lock *lock)
{
    struct belay_acquire want = r->want;
    int64_t look_ms = guard_now_ms() + RUN_FIRST_LOOK_MS;
    struct question *q = question_new(r, lock);
    want.name = lock->name;
    want.wait_ms = wait_left(r);
    r->answered = false;
    int err = q ? belay_acquire_send(r->c->belay, &want, on_grant, q) : BELAY_E_MEMORY;
    if (err != BELAY_E_OK)
        free(q);
    while (err == BELAY_E_OK && !r->answered && !r->lost) {
        int64_t now = guard_now_ms();
        if (is_waited_out(r, now)) {
            r->answered = true;
            r->answer_err = BELAY_E_OK;
            r->answer = BELAY_TIMED_OUT;
            r->unheard = true;
            break;
        }
        if (now >= look_ms && belay_is_connected(r->c->belay)) {
            look_ms = now + RUN_LOOK_MS;
            err = look_at_line(r, lock);
        }
        /* A broken connection reaches us as the answer of the acquire. */
        int ignored = belay_poll(r->c->belay, look_ms > now ? look_ms - now : 0);
        (void)ignored;
    }
    r->serial++;
    return err != BELAY_E_OK ? err : r->lost ? BELAY_E_LOST : r->answer_err;
}

enum take_next { TAKE_DONE, TAKE_AGAIN, TAKE_EXIT };

static void pause_a_little(void)
{
    uint16_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0)
        random = 1;
    long ms = 20 + random % RUN_AGAIN_MS;
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* The way to the server is broken, but our session lives: it is attached again, here or at
 * another address, and asking again takes our old place in the line. */
static bool is_worth_asking_again(const struct run *r, int err)
{
    bool broke = err == BELAY_E_CLOSED || err == BELAY_E_CONNECT || err == BELAY_E_UNAVAILABLE;
    return broke && !r->lost && wait_left(r) != 0;
}

static enum take_next take_failed(struct run *r, int err, int *ret_exit)
{
    if (r->lost || err == BELAY_E_LOST || err == BELAY_E_STALE || err == BELAY_E_NO_SESSION)
        return TAKE_AGAIN;
    *ret_exit = run_exit_of(r, err);
    return TAKE_EXIT;
}

static int exit_of_refusal(const struct run *r, bool timed_out)
{
    if (timed_out)
        return r->wait_ms ? RUN_TIMED_OUT : RUN_NOT_OBTAINED;
    bool kind = strcmp(r->answer_reason, "kind") == 0;
    return kind || r->wait_ms ? RUN_REFUSED : RUN_NOT_OBTAINED;
}

static int tell_refusal(struct run *r, const struct run_lock *lock, enum belay_status status)
{
    bool timed_out = status != BELAY_REFUSED;
    struct buf why = {0};
    run_event_lock(r, timed_out ? "timeout" : "refused", lock->name, "%s", "");
    if (r->unheard) {
        buf_printf(&why, "%s did not answer", belay_addr(r->c->belay));
        cli_put_problem(r->c, &why);
    } else {
        cli_put_refusal(&why, timed_out ? "held" : r->answer_reason, r->owner,
                        cli_look(r->c, lock->name));
    }
    int code = cli_error(exit_of_refusal(r, timed_out), "%s: %s: %s", lock->name,
                         timed_out ? "not obtained in time" : "refused", buf_cstr(&why));
    buf_done(&why);
    return code;
}

static enum take_next take_one(struct run *r, struct run_lock *lock, int *ret_exit)
{
    int err;
    while (is_worth_asking_again(r, err = ask_and_wait(r, lock)))
        pause_a_little();
    enum belay_status status = r->answer;
    if (err != BELAY_E_OK)
        return take_failed(r, err, ret_exit);
    if (status == BELAY_GRANTED) {
        run_status_clear(r);
        run_event_lock(r, "granted", lock->name, ",\"fence\":%" PRIu64, lock->fence);
        return TAKE_DONE;
    }
    if (status == BELAY_DEADLOCK && wait_left(r) != 0)
        return TAKE_AGAIN;
    run_status_clear(r);
    *ret_exit = tell_refusal(r, lock, status);
    return TAKE_EXIT;
}

/* ---- all of them ----------------------------------------------------------------------- */

/* Opens a session again, for as long as we would have waited anyway: a server that is started
 * anew is no reason to give up a place that nobody has. */
static int open_again(struct run *r)
{
    int code;
    do {
        pause_a_little();
        if (wait_left(r) == 0)
            return cli_error(r->wait_ms == 0 ? RUN_NOT_OBTAINED : RUN_TIMED_OUT,
                             "not obtained in time");
        code = run_open(r);
        r->quiet = true;
    } while (code == RUN_UNREACHABLE);
    r->quiet = false;
    return code;
}

int run_take(struct run *r)
{
    int exit_code = 0;
    while (exit_code == 0) {
        enum take_next next = TAKE_DONE;
        for (size_t i = 0; i < r->n_locks && next == TAKE_DONE; i++)
            next = take_one(r, &r->locks[i], &exit_code);
        if (next == TAKE_DONE)
            return 0;
        run_give_back(r);
        if (next == TAKE_AGAIN)
            exit_code = open_again(r);
    }
    return exit_code;
}
