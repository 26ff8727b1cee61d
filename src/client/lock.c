/* lock.c - the typed calls: a struct or a few arguments become one command and its answer. */
#include "client/client.h"
#include "client/words.h"

#include <stdlib.h>

/* ---- acquire --------------------------------------------------------------------------- */

/* An acquire or a convert in flight. It copies what is needed when the answer comes, because
 * the caller's struct may be gone by then. */
struct asking {
    struct asking *next;
    belay_grant_fn *fn;
    void *arg;
    bool keep;
    bool has_waited;    /* it may have stood in line: the grant's moment is not known */
    bool was_known;     /* CONVERT: the handle knew the hold when it was asked */
    uint64_t old_fence; /* CONVERT; 0: it is an acquire */
    int64_t ttl_ms, sent_ms;
    int64_t confirm_until_ms; /* 0: it was not confirmed yet */
    bool released;            /* by its owner, while it was being confirmed */
    bool blocking, done,
        abandoned; /* a blocking call waits for it; it has waited long enough */
    int err;
    struct belay_grant grant;
    char *body; /* owned copy of the grant's body, while it is confirmed */
    char session[CLIENT_SESSION_BYTES]; /* the handle's, in which it asked; "": none */
    const char *owner;                  /* behind the name */
    char name[];
};

/* What a grant reads when the call failed: a caller that does not look at the error holds nothing.
 */
static const struct belay_grant no_grant = {.status = BELAY_REFUSED, .reason = "", .body = ""};

static const char *session_of(const struct belay *b, const struct belay_acquire *want)
{
    return want->session ? want->session : b->session;
}

static bool is_mode(enum belay_mode mode)
{
    return mode == BELAY_EXCLUSIVE || mode == BELAY_SHARED;
}

static bool is_policy(enum belay_policy policy)
{
    return policy == BELAY_HARD || policy == BELAY_SOFT || policy == BELAY_TIMED;
}

static int check_want(struct belay *b, const struct belay_acquire *want)
{
    if (!want || !want->name || !want->name[0])
        return client_fail(b, BELAY_E_USAGE, "an acquire needs a name");
    if (!want->owner || !want->owner[0])
        return client_fail(b, BELAY_E_USAGE, "an acquire needs an owner");
    if (want->ttl_ms < BELAY_FOREVER || want->wait_ms < BELAY_FOREVER || want->grace_ms < 0 ||
        want->delay_ms < 0 || want->quiet_ms < 0)
        return client_fail(b, BELAY_E_USAGE, "a duration is negative");
    if (!is_mode(want->mode))
        return client_fail(b, BELAY_E_USAGE, "no such mode");
    if (!is_policy(want->policy))
        return client_fail(b, BELAY_E_USAGE, "no such policy");
    if (want->permits && !want->of)
        return client_fail(b, BELAY_E_USAGE, "permits need a semaphore: give `of`");
    if (b->session_lost && !want->session)
        return client_fail(b, BELAY_E_LOST, "the session of this handle is over");
    if (want->ttl_ms == BELAY_FOREVER && !session_of(b, want)[0])
        return client_fail(b, BELAY_E_USAGE, "a lock without end needs a session");
    if (want->keep && want->ttl_ms == BELAY_FOREVER)
        return client_fail(b, BELAY_E_USAGE, "keep needs a TTL to renew: give one");
    return BELAY_E_OK;
}

static int64_t wait_of(int64_t wait_ms)
{
    return wait_ms == BELAY_FOREVER ? CLIENT_WAIT_MAX_MS : wait_ms;
}

/* NOBLOCK: "queued" comes at once and the outcome as a push, so that other calls (renewals
 * above all) have their answers meanwhile. */
static void wait_words(struct words *c, int64_t wait_ms)
{
    words_option(c, "WAIT", wait_of(wait_ms));
    if (wait_ms)
        words_add(c, "NOBLOCK");
}

static void acquire_words(const struct belay *b, const struct belay_acquire *want,
                          struct words *c)
{
    static const char *const policies[] = {
        [BELAY_HARD] = "hard", [BELAY_SOFT] = "soft", [BELAY_TIMED] = "timed"};
    const char *session = session_of(b, want);
    words_add(c, "ACQUIRE");
    words_add(c, want->name);
    words_add(c, want->owner);
    if (want->of) {
        words_option(c, "PERMITS", want->permits ? want->permits : 1);
        words_option(c, "OF", want->of);
    } else if (want->mode == BELAY_SHARED) {
        words_add(c, "MODE");
        words_add(c, "shared");
    }
    if (want->ttl_ms == BELAY_FOREVER) {
        words_add(c, "TTL");
        words_u64(c, 0);
    }
    words_option(c, "TTL", want->ttl_ms);
    wait_words(c, want->wait_ms);
    words_option(c, "GRACE", want->grace_ms);
    words_option(c, "DELAY", want->delay_ms);
    if (want->policy != BELAY_HARD) {
        words_add(c, "POLICY");
        words_add(c, policies[want->policy]);
        if (want->policy == BELAY_TIMED)
            words_u64(c, (uint64_t)want->quiet_ms);
    }
    if (session[0]) {
        words_add(c, "SESSION");
        words_add(c, session);
    }
    if (want->body) {
        words_add(c, "BODY");
        words_bytes(c, want->body, want->body_len);
    }
}

static void release_unwanted(struct belay *b, const struct asking *a, uint64_t fence)
{
    struct words c = {0};
    words_add(&c, "RELEASE");
    words_add(&c, a->name);
    words_u64(&c, fence);
    /* If this cannot be sent either, the TTL ends it. */
    int ignored = belay_send(b, c.w, c.n, NULL, NULL);
    (void)ignored;
}

/* ---- asks in flight -------------------------------------------------------------------- */

static struct asking *asking_new(struct belay *b, const char *name, const char *owner)
{
    size_t len = strlen(name) + 1, owner_len = strlen(owner) + 1;
    struct asking *a = calloc(1, sizeof *a + len + owner_len);
    if (!a) {
        client_fail(b, BELAY_E_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(a->name, name, len);
    memcpy(a->name + len, owner, owner_len);
    a->owner = a->name + len;
    a->sent_ms = client_now_ms();
    a->next = b->asking;
    b->asking = a;
    return a;
}

/* It is answered. */
static void asking_over(struct belay *b, const struct asking *a)
{
    struct asking **at = &b->asking;
    while (*at && *at != a)
        at = &(*at)->next;
    if (*at)
        *at = a->next;
}

bool lock_is_moving(const struct belay *b, const struct client_hold *h, bool granted)
{
    for (const struct asking *a = b->asking; a; a = a->next) {
        bool same = a->old_fence ? a->old_fence == h->fence : strcmp(a->owner, h->owner) == 0;
        if (same && strcmp(a->name, h->name) == 0 && (!granted || a->confirm_until_ms))
            return true;
    }
    return false;
}

static void hand_over(struct belay *b, struct asking *a, int err, const struct belay_grant *g)
{
    asking_over(b, a);
    if (err != BELAY_E_OK)
        g = &no_grant;
    if (a->blocking && !a->abandoned) {
        a->done = true;
        a->err = err;
        a->grant = *g;
        return; /* the blocking call frees it */
    }
    if (a->fn && !a->abandoned)
        a->fn(b, err, g, a->arg);
    free(a->body);
    free(a);
}

/* ---- grants ---------------------------------------------------------------------------- */

/* It was asked for in a session of this handle that is over: its users were told to stop. */
static bool is_of_old_session(const struct belay *b, const struct asking *a)
{
    return a->session[0] && strcmp(a->session, b->session) != 0;
}

static struct client_lease lease_of(const struct asking *a, uint64_t fence)
{
    return (struct client_lease){.name = a->name,
                                 .owner = a->owner,
                                 .fence = fence,
                                 .ttl_ms = a->ttl_ms,
                                 .sent_ms = a->sent_ms,
                                 .in_session = a->session[0] != '\0'};
}

/* From here on it is ours, and belay_held(). */
static int take(struct belay *b, const struct asking *a, const struct belay_grant *g)
{
    struct client_lease l = lease_of(a, g->fence);
    if (a->old_fence) {
        l.ttl_ms = g->expires_in_ms; /* a renewal may have given it another one */
        bool known = lease_move(b, a->name, a->old_fence, &l);
        if (known == a->was_known)
            return BELAY_E_OK;
        return client_fail(b, BELAY_E_STALE, "the lock was lost while it was converted");
    }
    if (is_of_old_session(b, a))
        return client_fail(b, BELAY_E_LOST, "granted in a session that is over");
    lease_drop(b, a->name, 0, a->owner); /* a re-acquire: the old fence is stale */
    if (a->keep)
        return lease_keep(b, &l);
    bool lasts_elsewhere = a->ttl_ms == BELAY_FOREVER && !a->session[0];
    return lasts_elsewhere ? BELAY_E_OK : held_add(b, &l); /* with somebody's session */
}

static void on_confirmed(struct belay *of, int err, const struct belay_reply *r, void *arg);

static int confirm_send(struct belay *b, struct asking *a)
{
    struct words c = {0};
    struct client_call like = {.fn = on_confirmed, .arg = a, .once = true};
    words_add(&c, "RENEW");
    words_add(&c, a->name);
    words_u64(&c, a->grant.fence);
    words_option(&c, "TTL", a->ttl_ms);
    a->sent_ms = client_now_ms();
    return ping_send(b, c.w, c.n, &like);
}

/* No answer: it is asked again, for as long as the lease may last. */
static bool asks_again(struct belay *b, struct asking *a, int err)
{
    bool perhaps =
        err == BELAY_E_CLOSED || err == BELAY_E_CONNECT || err == BELAY_E_UNAVAILABLE;
    return perhaps && !b->doomed && !a->abandoned && client_now_ms() < a->confirm_until_ms &&
           confirm_send(b, a) == BELAY_E_OK;
}

/* The fence that was there before it was asked may be an old one now. */
static void doubt_before(const struct belay *b, const struct asking *a, int err)
{
    struct client_hold *h = lease_find(b, a->name, a->old_fence, a->owner);
    if (h)
        lease_doubt(h, err);
}

/* Was it carried out, or not? A server that refuses says why; what was never sent was not. */
bool lock_is_unknown(int err)
{
    switch (err) {
    case BELAY_E_MEMORY:
    case BELAY_E_DEADLINE:
    case BELAY_E_CLOSED:
    case BELAY_E_PROTOCOL:
    case BELAY_E_UNAVAILABLE:
    case BELAY_E_SERVER:
        return true;
    default:
        return false;
    }
}

/* It must not be kept under a fence that its caller does not know. */
static void give_back(struct belay *b, const struct asking *a, uint64_t fence)
{
    doubt_before(b, a, BELAY_E_STALE);
    release_unwanted(b, a, fence);
}

/* The first renewal of a late grant has come back. */
static void on_confirmed(struct belay *of, int err, const struct belay_reply *r, void *arg)
{
    struct belay *b = ping_main(of);
    struct asking *a = arg;
    if (asks_again(b, a, err))
        return;
    if (err != BELAY_E_OK && of != b)
        client_fail(b, err, "%s", of->err_text);
    int64_t end = client_add_ms(a->sent_ms, a->ttl_ms - lease_early_ms(b, a->ttl_ms));
    bool gone = err == BELAY_E_STALE || err == BELAY_E_NO_NAMESPACE;
    if (err == BELAY_E_OK && a->released)
        err = client_fail(b, BELAY_E_STALE, "the lock was released before it was proven");
    if (err == BELAY_E_OK && client_now_ms() >= end)
        err = client_fail(b, BELAY_E_STALE, "the lease was over before it was proven");
    a->grant.expires_in_ms = belay_int(r, a->grant.expires_in_ms);
    if (err == BELAY_E_OK && !a->abandoned)
        err = take(b, a, &a->grant);
    if (gone)
        doubt_before(b, a, BELAY_E_STALE);
    else if (err != BELAY_E_OK || a->abandoned)
        give_back(b, a, a->grant.fence);
    hand_over(b, a, err, &a->grant);
}

/* Has it been so long since it was asked for that the lease may be over? */
static bool is_late(const struct asking *a)
{
    enum { LATE_PART = 3 };
    return a->ttl_ms != BELAY_FOREVER && client_now_ms() >= a->sent_ms + a->ttl_ms / LATE_PART;
}

/* A grant out of the line came at a moment that we do not know: perhaps we were stopped, and it
 * is over already. Only a renewal that we send now proves how long it lasts. */
static int confirm(struct belay *b, struct asking *a, const struct belay_grant *g)
{
    a->grant = *g;
    if (!a->blocking) { /* the reply dies with the callback we are in */
        a->body = malloc(g->body_len + 1);
        if (!a->body)
            return client_fail(b, BELAY_E_MEMORY, "out of memory");
        memcpy(a->body, g->body, g->body_len + 1);
        a->grant.body = a->body;
        a->grant.reply = NULL;
    }
    a->confirm_until_ms = client_add_ms(client_now_ms(), a->ttl_ms);
    return confirm_send(b, a);
}

static void on_acquired(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    struct asking *a = arg;
    struct belay_grant g = no_grant;
    if (err == BELAY_E_OK)
        err = reply_grant(b, r, &g);
    if (err == BELAY_E_OK && g.status == BELAY_GRANTED) {
        bool proves = a->ttl_ms && ((a->keep && a->has_waited) || is_late(a));
        if (proves && !a->abandoned && !is_of_old_session(b, a)) {
            err = confirm(b, a, &g);
            if (err == BELAY_E_OK)
                return; /* on_confirmed() goes on */
        } else if (!a->abandoned) {
            err = take(b, a, &g);
        }
        if (err != BELAY_E_OK || a->abandoned)
            give_back(b, a, g.fence);
    } else if (lock_is_unknown(err) || (err == BELAY_E_STALE && a->old_fence)) {
        doubt_before(b, a, err);
    }
    hand_over(b, a, err, &g);
}

/* The session of this handle, if it is asked for in that. */
static const char *own_session(const struct belay *b, const struct belay_acquire *want)
{
    return strcmp(session_of(b, want), b->session) == 0 ? b->session : "";
}

/* NULL: *ret_err says why. */
static struct asking *ask(struct belay *b, const struct belay_acquire *want, bool blocking,
                          int *ret_err)
{
    struct words c = {0};
    *ret_err = check_want(b, want);
    if (*ret_err != BELAY_E_OK)
        return NULL;
    struct asking *a = asking_new(b, want->name, want->owner);
    if (!a) {
        *ret_err = BELAY_E_MEMORY;
        return NULL;
    }
    a->keep = want->keep;
    a->blocking = blocking;
    a->has_waited = want->wait_ms != 0;
    a->ttl_ms = want->ttl_ms ? want->ttl_ms : CLIENT_TTL_MS;
    snprintf(a->session, sizeof a->session, "%s", own_session(b, want));
    acquire_words(b, want, &c);
    struct client_call like = {.fn = on_acquired,
                               .arg = a,
                               .may_park = true,
                               .keeps_result = blocking,
                               .timeout_ms =
                                   client_add_ms(wait_of(want->wait_ms), b->timeout_ms)};
    struct client_hold *before = lease_find(b, a->name, 0, a->owner);
    *ret_err = client_call_send(b, c.w, c.n, &like);
    if (*ret_err == BELAY_E_OK && before && a->ttl_ms != BELAY_FOREVER)
        lease_shorten(before, a->sent_ms, a->ttl_ms);
    if (*ret_err == BELAY_E_OK)
        return a;
    asking_over(b, a);
    free(a);
    return NULL;
}

int belay_acquire_send(struct belay *b, const struct belay_acquire *want, belay_grant_fn *fn,
                       void *arg)
{
    int err = BELAY_E_OK;
    struct asking *a = ask(b, want, false, &err);
    if (a) {
        a->fn = fn;
        a->arg = arg;
    }
    connection_arm(b);
    return err;
}

/* Waits for the answer to `a`, which is freed here or, when it comes too late, by itself. */
static int await(struct belay *b, struct asking *a, int64_t wait_ms, struct belay_grant *ret_g)
{
    int err = client_call_wait(b, &a->done, client_add_ms(wait_ms, b->timeout_ms));
    if (err != BELAY_E_OK) {
        a->abandoned = true;
        doubt_before(b, a, err);
        return err;
    }
    err = a->err;
    if (err == BELAY_E_OK)
        *ret_g = a->grant;
    free(a);
    return err;
}

int belay_acquire(struct belay *b, const struct belay_acquire *want, struct belay_grant *ret_g)
{
    if (!ret_g)
        return client_fail(b, BELAY_E_USAGE, "an acquire needs room for its grant");
    int err = BELAY_E_OK;
    do { /* a wait for ever is as many waits as it takes */
        *ret_g = no_grant;
        err = client_call_begin(b);
        struct asking *a = err == BELAY_E_OK ? ask(b, want, true, &err) : NULL;
        if (a)
            err = await(b, a, wait_of(want->wait_ms), ret_g);
    } while (err == BELAY_E_OK && want->wait_ms == BELAY_FOREVER &&
             ret_g->status == BELAY_TIMED_OUT);
    return err;
}

/* ---- what a holder does ---------------------------------------------------------------- */

/* "NAME fence" or "NAME OWNER owner". */
static int hold_words(struct belay *b, struct words *c, const char *command, const char *name,
                      uint64_t fence, const char *owner)
{
    if (!name || !name[0])
        return client_fail(b, BELAY_E_USAGE, "%s needs a name", command);
    if (!fence && (!owner || !owner[0]))
        return client_fail(b, BELAY_E_USAGE, "%s needs a fence or an owner", command);
    words_add(c, command);
    words_add(c, name);
    if (fence) {
        words_u64(c, fence);
    } else {
        words_add(c, "OWNER");
        words_add(c, owner);
    }
    return BELAY_E_OK;
}

/* A command that answers a number. */
static int call_number(struct belay *b, const struct words *c, int64_t *ret_v)
{
    const struct belay_reply *r = NULL;
    int err = belay_callv(b, c->w, c->n, 0, &r);
    if (err != BELAY_E_OK)
        return err;
    if (r->kind != BELAY_INT && r->kind != BELAY_BOOL)
        return client_fail(b, BELAY_E_PROTOCOL, "%.20s: the answer is not a number",
                           c->w[0].data);
    if (ret_v)
        *ret_v = r->number;
    return BELAY_E_OK;
}

/* The grant was told before this answer, so the server had it to release. What proves it may have
 * been carried out before, and be answered on the second connection only now. */
static void release_unproven(struct belay *b, const char *name, const char *owner)
{
    for (struct asking *a = b->asking; a; a = a->next)
        a->released |= a->confirm_until_ms && !a->old_fence && strcmp(a->name, name) == 0 &&
                       strcmp(a->owner, owner) == 0;
}

int belay_release(struct belay *b, const char *name, uint64_t fence, const char *owner,
                  bool *ret_held)
{
    struct words c = {0};
    int64_t count = 0;
    if (ret_held)
        *ret_held = false;
    int err = hold_words(b, &c, "RELEASE", name, fence, owner);
    if (err == BELAY_E_OK)
        err = client_call_begin(b); /* in a callback nothing is dropped that is not released */
    if (err != BELAY_E_OK)
        return err;
    lease_drop(b, name, fence, owner); /* first: it is not renewed, whatever the answer is */
    err = call_number(b, &c, &count);
    if (!fence) { /* and what was granted just before that */
        lease_drop(b, name, 0, owner);
        release_unproven(b, name, owner);
    }
    if (err == BELAY_E_OK && ret_held)
        *ret_held = count > 0;
    return err;
}

int belay_renew(struct belay *b, const char *name, uint64_t fence, const char *owner,
                int64_t ttl_ms, int64_t *ret_left_ms)
{
    struct words c = {0};
    if (ret_left_ms)
        *ret_left_ms = 0;
    int err = hold_words(b, &c, "RENEW", name, fence, owner);
    if (err == BELAY_E_OK && ttl_ms < 0)
        err = client_fail(b, BELAY_E_USAGE, "a duration is negative");
    if (err == BELAY_E_OK)
        err = client_call_begin(b); /* in a callback nothing is believed to be shorter */
    if (err != BELAY_E_OK)
        return err;
    words_option(&c, "TTL", ttl_ms);
    int64_t sent = client_now_ms(), left = 0;
    struct client_hold *h = lease_find(b, name, fence, owner);
    if (h)
        lease_shorten(h, sent, ttl_ms);
    err = call_number(b, &c, &left);
    h = lease_find(b, name, fence, owner);
    if (h && err == BELAY_E_OK)
        lease_renewed(h, sent, ttl_ms, left);
    else if (h && lock_is_unknown(err))
        h->unanswered = true;
    else if (h && err == BELAY_E_STALE && !lock_is_moving(b, h, false))
        lease_doubt(h, err);
    if (ret_left_ms)
        *ret_left_ms = left;
    return err;
}

int belay_convert(struct belay *b, const char *name, uint64_t fence, enum belay_mode mode,
                  int64_t wait_ms, struct belay_grant *ret_g)
{
    struct words c = {0};
    if (!ret_g)
        return client_fail(b, BELAY_E_USAGE, "CONVERT needs room for its grant");
    *ret_g = no_grant;
    int err = hold_words(b, &c, "CONVERT", name, fence, NULL);
    if (err == BELAY_E_OK && !is_mode(mode))
        err = client_fail(b, BELAY_E_USAGE, "no such mode");
    if (err == BELAY_E_OK && wait_ms < BELAY_FOREVER)
        err = client_fail(b, BELAY_E_USAGE, "a duration is negative");
    if (err == BELAY_E_OK)
        err = client_call_begin(b);
    if (err != BELAY_E_OK)
        return err;
    words_add(&c, "MODE");
    words_add(&c, mode == BELAY_SHARED ? "shared" : "exclusive");
    wait_words(&c, wait_ms);
    const struct client_hold *known = lease_find(b, name, fence, NULL);
    struct asking *a = asking_new(b, name, known ? known->owner : "");
    if (!a)
        return BELAY_E_MEMORY;
    a->blocking = true;
    a->old_fence = fence;
    a->was_known = known != NULL;
    a->ttl_ms = known ? known->ttl_ms : 0;
    struct client_call like = {.fn = on_acquired,
                               .arg = a,
                               .may_park = true,
                               .keeps_result = true,
                               .timeout_ms = client_add_ms(wait_of(wait_ms), b->timeout_ms)};
    err = client_call_send(b, c.w, c.n, &like);
    if (err == BELAY_E_OK)
        return await(b, a, wait_of(wait_ms), ret_g);
    asking_over(b, a);
    free(a);
    return err;
}

int belay_check(struct belay *b, const char *name, uint64_t fence, const char *owner,
                bool *ret_current)
{
    struct words c = {0};
    int64_t current = 0;
    if (!ret_current)
        return client_fail(b, BELAY_E_USAGE, "CHECK needs room for its answer");
    *ret_current = false;
    int err = hold_words(b, &c, "CHECK", name, fence, owner);
    if (err == BELAY_E_OK)
        err = call_number(b, &c, &current);
    if (err == BELAY_E_OK)
        *ret_current = current > 0;
    return err;
}

int belay_body(struct belay *b, const char *name, uint64_t fence, const void *body, size_t len)
{
    struct words c = {0};
    int err = hold_words(b, &c, "BODY", name, fence, NULL);
    if (err == BELAY_E_OK && !body && len)
        err = client_fail(b, BELAY_E_USAGE, "BODY needs its %zu bytes", len);
    if (err != BELAY_E_OK)
        return err;
    words_bytes(&c, body ? body : "", len);
    return belay_callv(b, c.w, c.n, 0, NULL);
}

/* ---- what an onlooker does ------------------------------------------------------------- */

int belay_show(struct belay *b, const char *name, const struct belay_reply **ret_r)
{
    if (ret_r)
        *ret_r = NULL;
    if (!name || !name[0])
        return client_fail(b, BELAY_E_USAGE, "SHOW needs a name");
    return belay_call(b, ret_r, "SHOW", name, NULL);
}

int belay_list(struct belay *b, const char *prefix, const char *after, unsigned limit,
               const struct belay_reply **ret_r)
{
    struct words c = {0};
    words_add(&c, "LIST");
    if (prefix && prefix[0]) {
        words_add(&c, "PREFIX");
        words_add(&c, prefix);
    }
    if (after && after[0]) {
        words_add(&c, "AFTER");
        words_add(&c, after);
    }
    words_option(&c, "LIMIT", limit);
    return belay_callv(b, c.w, c.n, 0, ret_r);
}

int belay_break(struct belay *b, const char *name, int64_t *ret_count)
{
    return belay_break_for(b, name, NULL, ret_count);
}

int belay_break_for(struct belay *b, const char *name, const char *reason, int64_t *ret_count)
{
    struct words c = {0};
    if (ret_count)
        *ret_count = 0;
    if (!name || !name[0])
        return client_fail(b, BELAY_E_USAGE, "BREAK needs a name");
    words_add(&c, "BREAK");
    words_add(&c, name);
    if (reason && reason[0]) {
        words_add(&c, "REASON");
        words_add(&c, reason);
    }
    return call_number(b, &c, ret_count);
}

/* ---- namespaces ------------------------------------------------------------------------ */

int belay_namespace_create(struct belay *b, const char *ns, const char *description)
{
    struct words c = {0};
    words_add(&c, "NAMESPACE");
    words_add(&c, "CREATE");
    words_add(&c, ns ? ns : "");
    if (description) {
        words_add(&c, "DESCRIPTION");
        words_add(&c, description);
    }
    return belay_callv(b, c.w, c.n, 0, NULL);
}

int belay_namespace_delete(struct belay *b, const char *ns, bool force)
{
    return belay_call(b, NULL, "NAMESPACE", "DELETE", ns ? ns : "", force ? "FORCE" : NULL,
                      NULL);
}

int belay_namespace_list(struct belay *b, const char *after, const struct belay_reply **ret_r)
{
    bool more = after && after[0];
    return belay_call(b, ret_r, "NAMESPACE", "LIST", more ? "AFTER" : NULL, after, NULL);
}
