/* lease.c - the session of a handle and the locks it keeps: renewed in time, told in time.
 *
 *   sent_ms            + ttl/3            ...            proven - early      proven = sent_ms +
 * ttl
 *   |--- proven ----------|-- RENEW again ------------------|-- lost! ----------|
 *
 * A lease is proven from the moment a request that renewed it was *sent*: whenever the server
 * took it, its end there lies later. A grant out of the line has no such moment, so lock.c
 * renews it once before it hands it over. */
#include "client/client.h"
#include "client/words.h"

#include <stdlib.h>

enum { RENEW_PART = 3, EARLY_PART = 10 }; /* of the TTL */

static int64_t early_of(const struct belay *b, int64_t ttl_ms)
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

static void hold_free(struct belay *b, struct hold *h)
{
    for (struct hold **at = &b->holds; *at; at = &(*at)->next) {
        if (*at == h) {
            *at = h->next;
            break;
        }
    }
    free(h);
}

/* It is no longer kept; an answer that is still on its way frees it. */
static void hold_end(struct belay *b, struct hold *h)
{
    h->dead = true;
    if (!h->sent_ms)
        hold_free(b, h);
}

static void hold_lost(struct belay *b, struct hold *h, int why)
{
    struct belay_lost lost = {
        .name = h->name, .fence = h->fence, .why = why, .left_ms = left_of(h->proven_ms)};
    h->dead = true;
    if (b->lost_fn)
        b->lost_fn(b, &lost, b->lost_arg);
    hold_end(b, h);
}

static void on_renewed(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    struct hold *h = arg;
    int64_t sent = h->sent_ms;
    (void)r;
    h->sent_ms = 0;
    if (h->dead) {
        hold_free(b, h);
    } else if (err == BELAY_E_OK) {
        h->proven_ms = client_add_ms(sent, h->ttl_ms);
        h->renew_ms = sent + h->ttl_ms / RENEW_PART;
    } else if (err == BELAY_E_STALE || err == BELAY_E_NO_NAMESPACE) {
        hold_lost(b, h, BELAY_E_STALE);
    } else {
        h->renew_ms =
            client_now_ms() + CLIENT_BACKOFF_MIN_MS; /* and until then it may be lost */
    }
}

static void hold_renew(struct belay *b, struct hold *h)
{
    struct words c = {0};
    struct flight like = {.fn = on_renewed, .arg = h, .once = true};
    words_add(&c, "RENEW");
    words_add(&c, h->name);
    words_u64(&c, h->fence);
    words_option(&c, "TTL", h->ttl_ms);
    h->sent_ms = client_now_ms();
    if (flight_send(b, c.w, c.n, &like) == BELAY_E_OK)
        return;
    h->sent_ms = 0;
    h->renew_ms = client_now_ms() + CLIENT_BACKOFF_MIN_MS;
}

int lease_keep(struct belay *b, const char *name, uint64_t fence, int64_t ttl_ms,
               int64_t sent_ms)
{
    lease_drop(b, name, 0); /* a re-acquire: the old fence is stale */
    struct hold *h = calloc(1, sizeof *h + strlen(name) + 1);
    if (!h)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    memcpy(h->name, name, strlen(name) + 1);
    h->fence = fence;
    h->ttl_ms = ttl_ms;
    h->in_session = b->session[0] != '\0';
    h->proven_ms = client_add_ms(sent_ms, ttl_ms);
    h->renew_ms = sent_ms + ttl_ms / RENEW_PART;
    h->next = b->holds;
    b->holds = h;
    return BELAY_E_OK;
}

void lease_drop(struct belay *b, const char *name, uint64_t fence)
{
    for (struct hold *h = b->holds, *next; h; h = next) {
        next = h->next;
        if (!h->dead && strcmp(h->name, name) == 0 && (!fence || h->fence == fence))
            hold_end(b, h);
    }
}

void lease_gone(struct belay *b, struct slice name, uint64_t fence)
{
    for (struct hold *h = b->holds; h; h = h->next) {
        if (h->dead || h->fence != fence || !slice_eq(slice_str(h->name), name))
            continue;
        hold_lost(b, h, BELAY_E_STALE);
        return;
    }
}

void lease_refence(struct belay *b, const char *name, uint64_t old, uint64_t fence)
{
    for (struct hold *h = b->holds; h; h = h->next)
        if (!h->dead && strcmp(h->name, name) == 0 && h->fence == old)
            h->fence = fence;
}

/* ---- the session ----------------------------------------------------------------------- */

void lease_session_over(struct belay *b, int why)
{
    struct belay_lost lost = {.why = why, .left_ms = left_of(b->session_proven_ms)};
    if (!b->session[0])
        return;
    b->session[0] = '\0';
    b->session_lost = true;
    if (b->lost_fn)
        b->lost_fn(b, &lost, b->lost_arg);
    for (struct hold *h = b->holds, *next; h; h = next) {
        next = h->next;
        if (!h->dead && h->in_session)
            hold_lost(b, h, why);
    }
}

void lease_attached(struct belay *b)
{
    b->session_proven_ms = client_add_ms(b->session_sent_ms, b->session_ttl_ms);
    b->session_keep_ms = b->session_sent_ms + b->session_ttl_ms / RENEW_PART;
    b->session_sent_ms = 0;
    for (struct hold *h = b->holds; h; h = h->next)
        h->renew_ms = 0; /* the sooner we know, the better */
}

static void on_session_kept(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    int64_t sent = b->session_sent_ms;
    (void)arg;
    b->session_sent_ms = 0;
    if (!b->session[0])
        return;
    if (err == BELAY_E_NO_SESSION || (err == BELAY_E_OK && belay_int(r, 1) == 0)) {
        lease_session_over(b, BELAY_E_LOST);
    } else if (err == BELAY_E_OK) {
        b->session_proven_ms = client_add_ms(sent, b->session_ttl_ms);
        b->session_keep_ms = sent + b->session_ttl_ms / RENEW_PART;
    } else {
        b->session_keep_ms = client_now_ms() + CLIENT_BACKOFF_MIN_MS;
    }
}

static void session_keep(struct belay *b)
{
    struct words c = {0};
    struct flight like = {.fn = on_session_kept, .once = true};
    words_add(&c, "SESSION");
    words_add(&c, "KEEPALIVE");
    words_add(&c, b->session);
    b->session_sent_ms = client_now_ms();
    if (flight_send(b, c.w, c.n, &like) == BELAY_E_OK)
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
    lease_attached(b);
    wire_arm(b);
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
    if (!id || !id[0] || ttl_ms < 0)
        return client_fail(b, BELAY_E_USAGE, "attaching needs the session's id and TTL");
    return session_begin(b, id, ttl_ms ? ttl_ms : CLIENT_SESSION_TTL_MS);
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
        b->session_proven_ms = client_add_ms(sent, b->session_ttl_ms);
    return err;
}

int belay_session_close(struct belay *b)
{
    char id[CLIENT_SESSION_BYTES];
    b->session_lost = false;
    if (!b->session[0])
        return BELAY_E_OK;
    memcpy(id, b->session, sizeof id);
    b->session[0] = '\0'; /* first: from here on it is not kept, whatever the answer */
    for (struct hold *h = b->holds, *next; h; h = next) {
        next = h->next;
        if (!h->dead && h->in_session)
            hold_end(b, h);
    }
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
    if (b->session[0] && now >= b->session_proven_ms - early_of(b, b->session_ttl_ms)) {
        lease_session_over(b, why_silent(b));
        /* The server may yet come back and find the session attached to this connection: it
         * must not live on, and wait in lines, for somebody who has given it up. */
        if (b->state != CLIENT_OFF)
            wire_fail(b, BELAY_E_CLOSED, "%s did not answer in time", b->addrs[b->at].text);
        ready = false;
    }
    if (b->session[0] && ready && !b->session_sent_ms && now >= b->session_keep_ms)
        session_keep(b);
    for (struct hold *h = b->holds, *next; h; h = next) {
        next = h->next;
        if (h->dead)
            continue;
        if (now >= h->proven_ms - early_of(b, h->ttl_ms))
            hold_lost(b, h, why_silent(b));
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
        sooner(&due, b->session_proven_ms - early_of(b, b->session_ttl_ms));
        if (ready && !b->session_sent_ms)
            sooner(&due, b->session_keep_ms);
    }
    for (const struct hold *h = b->holds; h; h = h->next) {
        if (h->dead)
            continue;
        sooner(&due, h->proven_ms - early_of(b, h->ttl_ms));
        if (ready && !h->sent_ms)
            sooner(&due, h->renew_ms);
    }
    return due;
}

int64_t belay_proven_ms(const struct belay *b)
{
    int64_t proven = INT64_MAX;
    for (const struct hold *h = b->holds; h; h = h->next)
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
    wire_arm(b);
}

void lease_free(struct belay *b)
{
    while (b->holds) {
        struct hold *h = b->holds;
        b->holds = h->next;
        free(h);
    }
}
