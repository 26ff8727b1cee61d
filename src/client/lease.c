/* lease.c - the session of a handle and the locks it keeps: renewed in time, told in time.
 *
 *   sent_ms        sent_ms + ttl/3        proven - early        proven = sent_ms + ttl
 *   |--------------|----------------------|---------------------|
 *   | proven       | RENEW, again and     | told: lost          | somebody else may have it
 *   |              | again until answered |                     |
 *
 * A lease is proven from the moment a request that renewed it was *sent*: whenever the server
 * took it, its end there lies later. A grant out of the line has no such moment, so lock.c
 * renews it once before it hands it over. */
#include "client/client.h"
#include "client/words.h"

#include <stdlib.h>

enum { RENEW_PART = 3, EARLY_PART = 10 }; /* of the TTL */

int64_t lease_early_ms(const struct belay *b, int64_t ttl_ms)
{
    int64_t early = b->early_ms ? b->early_ms : ttl_ms / EARLY_PART;
    return early < ttl_ms / 2 ? early : ttl_ms / 2; /* later renewals must have their chance */
}

static int64_t left_of(int64_t proven_ms)
{
    int64_t left = proven_ms - client_now_ms();
    return left > 0 ? left : 0;
}

static int why_silent(const struct belay *b)
{
    return b->state == CLIENT_READY ? BELAY_E_DEADLINE : BELAY_E_CONNECT;
}

/* ---- kept locks ------------------------------------------------------------------------ */

/* The one place that frees a hold: callbacks run while others walk through them. */
static void bury_dead(struct belay *b)
{
    for (struct client_hold **at = &b->holds; *at;) {
        struct client_hold *h = *at;
        if (!h->dead || h->sent_ms) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        free(h);
    }
}

static void tell_lost(struct belay *b, struct belay_lost *lost)
{
    lost->reason = b->told.reason;
    lost->by = b->told.by;
    lost->text = b->told.text;
    if (b->lost_fn)
        b->lost_fn(b, lost, b->lost_arg);
}

static void hold_lost(struct belay *b, struct client_hold *h, int why)
{
    struct belay_lost lost = {
        .name = h->name, .fence = h->fence, .why = why, .left_ms = left_of(h->proven_ms)};
    h->dead = true;
    tell_lost(b, &lost);
}

/* The server does not know this fence (any more). On one connection a grant that has changed it
 * comes before this answer, so it was told already; beside it (the pulse) perhaps not. */
static bool is_gone(const struct belay *b, const struct client_hold *h, int err, bool in_order)
{
    bool moved = h->fence != h->sent_fence || lock_is_moving(b, h, in_order);
    return err == BELAY_E_NO_NAMESPACE || (err == BELAY_E_STALE && !moved);
}

static void on_renewed(struct belay *of, int err, const struct belay_reply *r, void *arg)
{
    struct belay *b = ping_main(of);
    struct client_hold *h = arg;
    int64_t sent = h->sent_ms;
    (void)r;
    h->sent_ms = 0;
    h->unanswered |= h->sent_fence == h->fence && lock_is_unknown(err);
    if (h->dead || h->why)
        return;
    if (err == BELAY_E_OK && sent <= h->by_hand_ms) {
        h->renew_ms = 0;
    } else if (err == BELAY_E_OK) {
        h->renewed_ms = sent;
        h->proven_ms = client_add_ms(sent, h->ttl_ms);
        h->renew_ms = sent + h->ttl_ms / RENEW_PART;
    } else if (is_gone(b, h, err, of == b)) {
        hold_lost(b, h, BELAY_E_STALE);
    } else {
        h->renew_ms =
            client_now_ms() + CLIENT_BACKOFF_MIN_MS; /* and until then it may be lost */
    }
}

static void hold_renew(struct belay *b, struct client_hold *h)
{
    struct words c = {0};
    struct client_call like = {.fn = on_renewed, .arg = h, .once = true};
    words_add(&c, "RENEW");
    words_add(&c, h->name);
    words_u64(&c, h->fence);
    words_option(&c, "TTL", h->ttl_ms);
    h->sent_ms = client_now_ms();
    h->sent_fence = h->fence;
    if (ping_send(b, c.w, c.n, &like) == BELAY_E_OK)
        return;
    h->sent_ms = 0;
    h->renew_ms = client_now_ms() + CLIENT_BACKOFF_MIN_MS;
}

int lease_keep(struct belay *b, const struct client_lease *l)
{
    struct client_hold *h = hold_new(l);
    if (!h)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    h->renew_ms = l->sent_ms + l->ttl_ms / RENEW_PART;
    h->next = b->holds;
    b->holds = h;
    return BELAY_E_OK;
}

void lease_drop(struct belay *b, const char *name, uint64_t fence, const char *owner)
{
    for (struct client_hold *h = b->holds; h; h = h->next)
        h->dead |= hold_is(h, name, fence, owner);
    held_drop(b, name, fence, owner);
}

void lease_gone(struct belay *b, struct slice name, uint64_t fence)
{
    for (struct client_hold *h = b->holds; h; h = h->next) {
        if (h->dead || h->fence != fence || !slice_eq(slice_str(h->name), name))
            continue;
        hold_lost(b, h, BELAY_E_STALE);
        return;
    }
    held_gone(b, name, fence);
}

void lease_doubt(struct client_hold *h, int why)
{
    h->why = why;
    h->proven_ms = 0;
}

struct client_hold *lease_find(const struct belay *b, const char *name, uint64_t fence,
                               const char *owner)
{
    struct client_hold *h = b->holds;
    while (h && !hold_is(h, name, fence, owner))
        h = h->next;
    return h ? h : held_find(b, name, fence, owner);
}

bool lease_move(struct belay *b, const char *name, uint64_t old, const struct client_lease *now)
{
    struct client_hold *h = lease_find(b, name, old, NULL);
    if (!h)
        return false;
    h->fence = now->fence;
    h->unanswered = false;
    int64_t proven = client_add_ms(now->sent_ms, now->ttl_ms);
    if (now->ttl_ms != BELAY_FOREVER && proven > h->proven_ms)
        h->proven_ms = proven;
    return true;
}

void lease_shorten(struct client_hold *h, int64_t sent_ms, int64_t ttl_ms)
{
    int64_t end = client_add_ms(sent_ms, ttl_ms);
    h->by_hand_ms = sent_ms;
    if (ttl_ms <= 0)
        return;
    if (h->ttl_ms == BELAY_FOREVER || ttl_ms < h->ttl_ms)
        h->ttl_ms = ttl_ms; /* it may yet be carried out, at any time */
    if (end < h->proven_ms)
        h->proven_ms = end;
    if (h->renew_ms > client_add_ms(sent_ms, ttl_ms / RENEW_PART))
        h->renew_ms = sent_ms + ttl_ms / RENEW_PART;
}

void lease_renewed(struct client_hold *h, int64_t sent_ms, int64_t ttl_ms, int64_t left_ms)
{
    /* One that is on its way on the second connection, or was never answered, may yet be carried
     * out, for its time: so none is for longer. */
    bool open = h->unanswered || (h->sent_ms && h->sent_fence == h->fence);
    bool capped = open && h->ttl_ms != BELAY_FOREVER && (left_ms < 0 || left_ms > h->ttl_ms);
    if (capped)
        left_ms = h->ttl_ms;
    else if (ttl_ms)
        h->ttl_ms = ttl_ms;
    if (h->why || h->renewed_ms > sent_ms)
        return; /* doubted; a later one was answered before it, on the second connection */
    h->proven_ms = left_ms < 0 ? INT64_MAX : client_add_ms(sent_ms, left_ms);
}

int64_t lease_patience_ms(const struct belay *b)
{
    enum { TRIES = 3 }; /* the server that is silent, and two others */
    int64_t least = INT64_MAX;
    if (b->session[0])
        least = b->session_ttl_ms;
    for (const struct client_hold *h = b->holds; h; h = h->next)
        if (!h->dead && h->ttl_ms < least)
            least = h->ttl_ms;
    if (least == INT64_MAX)
        return least;
    return (least - least / RENEW_PART - lease_early_ms(b, least)) / TRIES;
}

/* ---- the session ----------------------------------------------------------------------- */

void lease_session_over(struct belay *b, int why)
{
    struct belay_lost lost = {.why = why, .left_ms = left_of(b->session_proven_ms)};
    if (!b->session[0])
        return;
    b->session[0] = '\0';
    b->session_lost = true;
    held_session_over(b);
    tell_lost(b, &lost);
    for (struct client_hold *h = b->holds; h; h = h->next)
        if (!h->dead && h->in_session)
            hold_lost(b, h, why);
}

void lease_attached(struct belay *b)
{
    b->session_proven_ms = client_add_ms(b->session_sent_ms, b->session_ttl_ms);
    b->session_keep_ms = b->session_sent_ms + b->session_ttl_ms / RENEW_PART;
    b->session_sent_ms = 0;
    for (struct client_hold *h = b->holds; h; h = h->next)
        h->renew_ms = 0; /* the sooner we know, the better */
}

/* Beside a second connection, an answer that was held back may be older than the last one. */
static void session_kept(struct belay *b, int64_t sent_ms)
{
    int64_t proven = client_add_ms(sent_ms, b->session_ttl_ms);
    if (proven > b->session_proven_ms)
        b->session_proven_ms = proven;
}

static void on_session_kept(struct belay *of, int err, const struct belay_reply *r, void *arg)
{
    struct belay *b = ping_main(of);
    int64_t sent = b->session_sent_ms;
    if (!b->session[0] || (uintptr_t)arg != b->sessions)
        return;
    b->session_sent_ms = 0;
    if (err == BELAY_E_NO_SESSION || (err == BELAY_E_OK && belay_int(r, 1) == 0)) {
        lease_session_over(b, BELAY_E_LOST);
    } else if (err == BELAY_E_OK) {
        session_kept(b, sent);
        b->session_keep_ms = sent + b->session_ttl_ms / RENEW_PART;
    } else {
        b->session_keep_ms = client_now_ms() + CLIENT_BACKOFF_MIN_MS;
    }
}

static void session_keep(struct belay *b)
{
    struct words c = {0};
    struct client_call like = {.fn = on_session_kept, .arg = (void *)b->sessions, .once = true};
    words_add(&c, "SESSION");
    words_add(&c, "KEEPALIVE");
    words_add(&c, b->session);
    b->session_sent_ms = client_now_ms();
    if (ping_send(b, c.w, c.n, &like) == BELAY_E_OK)
        return;
    b->session_sent_ms = 0;
    b->session_keep_ms = client_now_ms() + CLIENT_BACKOFF_MIN_MS;
}

static int session_begin(struct belay *b, const char *id, int64_t ttl_ms)
{
    int64_t sent = client_now_ms();
    if (strlen(id) >= sizeof b->session || !id[0])
        return client_fail(b, BELAY_E_PROTOCOL, "a session id of %zu bytes", strlen(id));
    char copy[CLIENT_SESSION_BYTES];
    memcpy(copy, id, strlen(id) + 1);
    int err = belay_call(b, NULL, "SESSION", "ATTACH", copy, NULL);
    if (err != BELAY_E_OK)
        return err;
    memcpy(b->session, copy, sizeof b->session);
    b->session_ttl_ms = ttl_ms;
    b->session_sent_ms = sent;
    b->session_lost = false;
    b->sessions++;
    lease_attached(b);
    connection_arm(b);
    return BELAY_E_OK;
}

int belay_session_open(struct belay *b, int64_t ttl_ms, int64_t linger_ms,
                       const char *description)
{
    const struct belay_reply *r = NULL;
    struct words c = {0};
    if (b->session[0])
        return client_fail(b, BELAY_E_USAGE, "this handle has a session already");
    if (ttl_ms < 0 || linger_ms < 0)
        return client_fail(b, BELAY_E_USAGE, "a duration is negative");
    ttl_ms = ttl_ms ? ttl_ms : CLIENT_SESSION_TTL_MS;
    words_add(&c, "SESSION");
    words_add(&c, "OPEN");
    words_option(&c, "TTL", ttl_ms);
    words_option(&c, "LINGER", linger_ms);
    if (description) {
        words_add(&c, "DESCRIPTION");
        words_add(&c, description);
    }
    int err = belay_callv(b, c.w, c.n, 0, &r);
    if (err != BELAY_E_OK)
        return err;
    const char *id = belay_text(r->kind == BELAY_MAP ? belay_get(r, "id") : r, NULL);
    if (!id)
        id = belay_text(belay_at(r, 0), "");
    return session_begin(b, id, ttl_ms);
}

int belay_session_attach(struct belay *b, const char *id, int64_t ttl_ms)
{
    if (b->session[0])
        return client_fail(b, BELAY_E_USAGE, "this handle has a session already");
    char copy[CLIENT_SESSION_BYTES]; /* it may be borrowed from an answer */
    if (!id || !id[0] || strlen(id) >= sizeof copy || ttl_ms < 0)
        return client_fail(b, BELAY_E_USAGE, "attaching needs the session's id");
    memcpy(copy, id, strlen(id) + 1);
    if (ttl_ms == 0) {
        const struct belay_reply *r = NULL;
        int err = belay_call(b, &r, "SESSION", "SHOW", copy, NULL);
        if (err != BELAY_E_OK)
            return err;
        ttl_ms = belay_int(belay_get(r, "ttl_ms"), 0);
    }
    if (ttl_ms <= 0)
        return client_fail(b, BELAY_E_PROTOCOL, "the server does not say the session's TTL");
    return session_begin(b, copy, ttl_ms);
}

int belay_session_keepalive(struct belay *b)
{
    const struct belay_reply *r = NULL;
    int64_t sent = client_now_ms();
    if (!b->session[0])
        return client_fail(b, b->session_lost ? BELAY_E_LOST : BELAY_E_USAGE,
                           "this handle has no session");
    int err = belay_call(b, &r, "SESSION", "KEEPALIVE", b->session, NULL);
    if (err == BELAY_E_OK && belay_int(r, 1) == 0)
        err = client_fail(b, BELAY_E_LOST, "the session is over");
    if (err == BELAY_E_OK)
        session_kept(b, sent);
    return err;
}

int belay_session_close(struct belay *b)
{
    char id[CLIENT_SESSION_BYTES];
    int err = client_call_begin(b);
    if (err != BELAY_E_OK)
        return err;
    b->session_lost = false;
    if (!b->session[0])
        return BELAY_E_OK;
    memcpy(id, b->session, sizeof id);
    b->session[0] = '\0'; /* first: from here on it is not kept, whatever the answer */
    for (struct client_hold *h = b->holds; h; h = h->next)
        h->dead |= h->in_session;
    held_session_over(b);
    return belay_call(b, NULL, "SESSION", "CLOSE", id, NULL);
}

const char *belay_session_id(const struct belay *b)
{
    return b->session;
}

/* ---- time ------------------------------------------------------------------------------ */

void lease_step(struct belay *b)
{
    int64_t now = client_now_ms();
    bool ready = b->state == CLIENT_READY;
    if (b->session[0] && now >= b->session_proven_ms - lease_early_ms(b, b->session_ttl_ms)) {
        lease_session_over(b, why_silent(b));
        /* The server may yet come back and find the session attached to this connection: it
         * must not live on, and wait in lines, for somebody who has given it up. */
        if (b->state != CLIENT_OFF)
            connection_fail(b, BELAY_E_CLOSED, "%s did not answer in time",
                            b->addrs[b->at].text);
        ready = false;
    }
    if (b->session[0] && ready && !b->session_sent_ms && now >= b->session_keep_ms)
        session_keep(b);
    bury_dead(b);
    for (struct client_hold *h = b->holds; h; h = h->next) {
        if (h->dead)
            continue;
        if (now >= h->proven_ms - lease_early_ms(b, h->ttl_ms))
            hold_lost(b, h, h->why ? h->why : why_silent(b));
        else if (ready && !h->sent_ms && now >= h->renew_ms)
            hold_renew(b, h);
    }
}

static void sooner(int64_t *due, int64_t at)
{
    if (at < *due)
        *due = at;
}

int64_t lease_due_ms(const struct belay *b)
{
    int64_t due = INT64_MAX;
    bool ready = b->state == CLIENT_READY;
    if (b->session[0]) {
        sooner(&due, b->session_proven_ms - lease_early_ms(b, b->session_ttl_ms));
        if (ready && !b->session_sent_ms)
            sooner(&due, b->session_keep_ms);
    }
    for (const struct client_hold *h = b->holds; h; h = h->next) {
        if (h->dead)
            continue;
        sooner(&due, h->proven_ms - lease_early_ms(b, h->ttl_ms));
        if (ready && !h->sent_ms)
            sooner(&due, h->renew_ms);
    }
    return due;
}

int64_t belay_proven_ms(const struct belay *b)
{
    int64_t proven = INT64_MAX;
    for (const struct client_hold *h = b->holds; h; h = h->next)
        if (!h->dead)
            sooner(&proven, h->proven_ms);
    if (b->session[0])
        sooner(&proven, b->session_proven_ms);
    return proven;
}

void belay_on_lost(struct belay *b, int64_t early_ms, belay_lost_fn *fn, void *arg)
{
    b->early_ms = early_ms > 0 ? early_ms : 0;
    b->lost_fn = fn;
    b->lost_arg = arg;
    connection_arm(b);
}

void lease_free(struct belay *b)
{
    while (b->holds) {
        struct client_hold *h = b->holds;
        b->holds = h->next;
        free(h);
    }
}
