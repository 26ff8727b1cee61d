/* call.c - calls in flight, and blocking calls made of them.
 *
 *   queued --READY, client_call_flush_queued()--> sent --answer--> callback
 *      ^                                     | '--[queued, ..]--> parked --push--> callback
 *      '------------ client_call_lost() ----------+----------------------'
 *
 * client_call_lost(): the connection broke, or the server says UNAVAILABLE.
 * Only what may be sent again goes back (retry.c): for as long as its own time-out, and no
 * longer than the handle's without a connection. */
#include "client/client.h"
#include "proto/resp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int client_fail(struct belay *b, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(b->err_text, sizeof b->err_text, format, args);
    va_end(args);
    b->err_code = code;
    b->err_word[0] = '\0';
    return code;
}

/* ---- lists ----------------------------------------------------------------------------- */

static void list_add(struct client_calls *list, struct client_call *c)
{
    c->next = NULL;
    if (list->last)
        list->last->next = c;
    else
        list->first = c;
    list->last = c;
    list->n++;
}

static struct client_call *list_pop(struct client_calls *list)
{
    struct client_call *c = list->first;
    if (!c)
        return NULL;
    list->first = c->next;
    if (!list->first)
        list->last = NULL;
    list->n--;
    return c;
}

static struct client_call *list_take_ticket(struct client_calls *list, uint64_t ticket)
{
    struct client_call *before = NULL;
    for (struct client_call *c = list->first; c; before = c, c = c->next) {
        if (c->ticket != ticket)
            continue;
        if (before)
            before->next = c->next;
        else
            list->first = c->next;
        if (list->last == c)
            list->last = before;
        list->n--;
        return c;
    }
    return NULL;
}

static void list_add_all(struct client_calls *list, struct client_calls *more)
{
    for (struct client_call *c; (c = list_pop(more));)
        list_add(list, c);
}

static void list_push_front(struct client_calls *list, struct client_call *c)
{
    c->next = list->first;
    list->first = c;
    if (!list->last)
        list->last = c;
    list->n++;
}

/* ---- out ------------------------------------------------------------------------------- */

/* The command as bytes at the end of b->out, with an id if it needs one. 0: out of memory. */
static size_t write_command(struct belay *b, const struct belay_bytes *words, size_t n,
                            bool with_id)
{
    struct slice slices[BELAY_WORDS_MAX];
    char id[CLIENT_REQUEST_BYTES];
    size_t before = buf_len(&b->out);
    for (size_t i = 0; i < n; i++)
        slices[i] = slice_of(words[i].data, words[i].len);
    if (b->stale && retry_looks(words, n))
        slices[n++] = SLICE("STALE");
    if (with_id) {
        slices[n++] = SLICE("REQUEST");
        slices[n++] = retry_next_id(b, id);
    }
    resp_write_request(&b->out, slices, n);
    if (!b->out.oom)
        return buf_len(&b->out) - before;
    b->out.oom = false; /* half a request must never leave */
    b->out.end = b->out.start + before;
    return 0;
}

static int64_t timeout_of(const struct belay *b, const struct client_call *like)
{
    int64_t timeout_ms = like->timeout_ms ? like->timeout_ms : b->timeout_ms;
    return timeout_ms == BELAY_FOREVER ? INT64_MAX : client_add_ms(client_now_ms(), timeout_ms);
}

int client_call_send(struct belay *b, const struct belay_bytes *words, size_t n,
                     const struct client_call *like)
{
    if (!words || n == 0 || n > BELAY_WORDS_MAX)
        return client_fail(b, BELAY_E_USAGE, "a command has 1 to %d words", BELAY_WORDS_MAX);
    if (b->queued.n + b->sent.n + b->parked.n >= CLIENT_CALLS_MAX)
        return client_fail(b, BELAY_E_USAGE, "more than %d calls in flight", CLIENT_CALLS_MAX);
    bool now = like->is_greeting || b->state == CLIENT_READY;
    enum again again = like->once || like->is_greeting ? AGAIN_NEVER : retry_kind(words, n);
    size_t len = write_command(b, words, n, again == AGAIN_WITH_ID);
    size_t kept = again != AGAIN_NEVER || !now ? len : 0;
    struct client_call *c = len ? malloc(sizeof *c + kept) : NULL;
    if (!c || !now)
        b->out.end -= len;
    if (!c)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    *c = *like;
    c->again = again != AGAIN_NEVER;
    c->prompt = like->is_greeting || like->may_park || retry_is_prompt(words, n);
    c->sent_ms = client_now_ms();
    c->until_ms = timeout_of(b, like);
    c->len = kept;
    if (kept)
        memcpy(c->bytes, b->out.mem + b->out.end - (now ? len : 0), kept);
    list_add(now ? &b->sent : &b->queued, c);
    return BELAY_E_OK;
}

static void send_queued(struct belay *b, struct client_call *c)
{
    buf_put(&b->out, c->bytes, c->len); /* out of memory is noticed before it is written */
    c->lost_ms = 0;
    c->sent_ms = client_now_ms();
    list_add(&b->sent, c);
}

/* What proves a lease goes first: it must not stand behind something that waits. */
void client_call_flush_queued(struct belay *b)
{
    struct client_calls others = {0};
    for (struct client_call *c; (c = list_pop(&b->queued));) {
        if (c->once)
            send_queued(b, c);
        else
            list_add(&others, c);
    }
    for (struct client_call *c; (c = list_pop(&others));)
        send_queued(b, c);
}

/* ---- without a connection -------------------------------------------------------------- */

static int64_t give_up_ms(const struct belay *b, const struct client_call *c)
{
    int64_t patience = client_add_ms(c->lost_ms, b->timeout_ms);
    return patience < c->until_ms ? patience : c->until_ms;
}

void client_call_lost(struct belay *b, int code)
{
    struct client_calls lost = {0}, failed = {0}, kept = {0};
    int64_t now = client_now_ms();
    list_add_all(&lost, &b->parked); /* they were sent before the others */
    list_add_all(&lost, &b->sent);
    bool hope =
        code == BELAY_E_CLOSED || code == BELAY_E_CONNECT || code == BELAY_E_UNAVAILABLE;
    for (struct client_call *c; (c = list_pop(&lost));) {
        c->lost_ms = now;
        list_add(hope && c->again && now < c->until_ms ? &kept : &failed, c);
    }
    list_add_all(&kept, &b->queued);
    b->queued = kept;
    client_call_fail_all(b, &failed, code);
}

typedef bool is_over_fn(const struct belay *b, struct client_call *c);

static bool has_waited_enough(const struct belay *b, struct client_call *c)
{
    return c->lost_ms && client_now_ms() >= give_up_ms(b, c);
}

static bool has_missed_all(const struct belay *b, struct client_call *c)
{
    return !c->lost_ms && ++c->missed >= b->n_addrs;
}

static struct client_calls take_queued(struct belay *b, is_over_fn *is_over)
{
    struct client_calls queued = b->queued, taken = {0}, kept = {0};
    for (struct client_call *c; (c = list_pop(&queued));)
        list_add(is_over(b, c) ? &taken : &kept, c);
    b->queued = kept;
    return taken;
}

void client_call_unreachable(struct belay *b, int code)
{
    struct client_calls failed = take_queued(b, has_missed_all);
    client_call_fail_all(b, &failed, code);
}

void client_call_expire(struct belay *b)
{
    if (client_call_due_ms(b) > client_now_ms())
        return;
    struct client_calls failed = take_queued(b, has_waited_enough);
    char why[CLIENT_ERROR_BYTES];
    memcpy(why, b->err_text, sizeof why);
    client_fail(b, BELAY_E_CLOSED, "%.400s; it may have been carried out", why);
    client_call_fail_all(b, &failed, BELAY_E_CLOSED);
}

int64_t client_call_due_ms(const struct belay *b)
{
    int64_t due = INT64_MAX;
    for (const struct client_call *c = b->queued.first; c; c = c->next)
        if (c->lost_ms && give_up_ms(b, c) < due)
            due = give_up_ms(b, c);
    return due;
}

/* ---- in -------------------------------------------------------------------------------- */

static void client_call_done(struct belay *b, const struct client_call *c, int err,
                             const struct belay_reply *r)
{
    if (c->fn)
        c->fn(b, err, r, c->arg);
}

void client_call_fail_all(struct belay *b, struct client_calls *list, int code)
{
    for (struct client_call *c; (c = list_pop(list));) {
        client_call_done(b, c, code, NULL);
        free(c);
    }
}

/* The error answer of a call becomes its code, and the words of belay_error(). */
static int note_error(struct belay *b, const struct reply *r)
{
    int code = reply_code(r->err);
    client_fail(b, code, "%.*s", (int)r->text.len, r->text.data);
    snprintf(b->err_word, sizeof b->err_word, "%s", err_word(r->err));
    return code;
}

/* "[queued, ticket, position]" for a call that did not ask to be told so. */
static bool is_parking(const struct client_call *c, const struct reply *r)
{
    return c->may_park && r->kind == REPLY_LIST && r->first &&
           slice_eq(r->first->text, SLICE("queued")) && r->first->next &&
           r->first->next->kind == REPLY_INT;
}

/* "Not here, not now": it is sent again, to the next address. */
static bool goes_elsewhere(const struct client_call *c, const struct reply *r)
{
    return r->kind == REPLY_ERROR && r->err == BELAY_ERR_UNAVAILABLE && c->again &&
           client_now_ms() < c->until_ms;
}

static void leave(struct belay *b, const struct reply *r)
{
    char text[CLIENT_ERROR_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)r->text.len, r->text.data);
    connection_fail(b, BELAY_E_UNAVAILABLE, "%s: %s", b->addrs[b->at].text, text);
}

/* It answers: the addresses that were tried before it do not count any more. */
static void is_good(struct belay *b)
{
    b->tried = 0;
    b->backoff_ms = 0;
}

static void hand_out(struct belay *b, const struct client_call *c, const struct reply *r)
{
    if (r->kind == REPLY_ERROR) {
        client_call_done(b, c, note_error(b, r), NULL);
        return;
    }
    struct arena *a = c->keeps_result ? &b->result : &b->tree;
    arena_reset(a);
    const struct belay_reply *tree = reply_copy(a, r);
    if (!tree)
        client_call_done(b, c, client_fail(b, BELAY_E_MEMORY, "out of memory"), NULL);
    else
        client_call_done(b, c, BELAY_E_OK, tree);
}

static void take_outcome(struct belay *b, struct client_call *c, const struct reply *r);

/* ---- pushes before their "queued" ------------------------------------------------------ */

bool client_call_may_park(const struct belay *b)
{
    const struct client_call *c = b->sent.first;
    while (c && !c->may_park)
        c = c->next;
    return c != NULL;
}

void client_call_forget_early(struct belay *b)
{
    while (b->early) {
        struct early *e = b->early;
        b->early = e->next;
        free(e);
    }
}

/* The "queued" of its call stands behind a request that waits: it is kept until that comes. */
static void keep_early(struct belay *b, uint64_t ticket, struct slice bytes)
{
    struct early *e = malloc(sizeof *e + bytes.len);
    if (!e) {
        connection_fail(b, BELAY_E_MEMORY, "out of memory");
        return;
    }
    e->ticket = ticket;
    e->len = bytes.len;
    memcpy(e->bytes, bytes.data, bytes.len);
    e->next = b->early;
    b->early = e;
}

/* "queued": it waits for its push, or that is there already. */
static void park(struct belay *b, struct client_call *c, uint64_t ticket)
{
    struct early **at = &b->early;
    while (*at && (*at)->ticket != ticket)
        at = &(*at)->next;
    struct early *e = *at;
    c->ticket = ticket;
    if (!e) {
        list_add(&b->parked, c);
        return;
    }
    struct reply *r = NULL;
    size_t used = 0;
    const char *why = "";
    *at = e->next;
    if (resp_next_reply(slice_of(e->bytes, e->len), &b->parse, &r, &used, &why) == RESP_DONE) {
        take_outcome(b, c, r);
    } else { /* it was whole when it came */
        client_call_done(b, c, client_fail(b, BELAY_E_MEMORY, "out of memory"), NULL);
        free(c);
    }
    free(e);
}

void client_call_answer(struct belay *b, const struct reply *r)
{
    struct client_call *c = list_pop(&b->sent);
    if (!c) {
        connection_fail(b, BELAY_E_PROTOCOL, "%s sent an answer without a request",
                        b->addrs[b->at].text);
        return;
    }
    if (goes_elsewhere(c, r)) {
        list_push_front(&b->sent, c);
        leave(b, r);
        return;
    }
    if (!c->is_greeting)
        is_good(b);
    if (is_parking(c, r)) {
        park(b, c, (uint64_t)r->first->next->number);
    } else {
        hand_out(b, c, r);
        free(c);
    }
    if (b->early && !client_call_may_park(b))
        client_call_forget_early(b); /* they were for a connection that is gone */
}

/* >[word, name, fence, ticket, expires_in_ms, body or reason]: the last word of a parked
 * ACQUIRE or CONVERT. It becomes what would have been its answer without a line. */
static struct reply *late_answer(struct arena *a, const struct reply *r)
{
    struct reply *part[6] = {r->first};
    for (size_t i = 1; i < 6; i++)
        part[i] = part[i - 1]->next;
    if (slice_eq(part[0]->text, SLICE("failed")))
        return reply_error(a, BELAY_ERR_UNAVAILABLE, "%.*s", (int)part[5]->text.len,
                           part[5]->text.data);
    struct reply *list = reply_new(a, REPLY_LIST);
    reply_text(a, list, NULL, part[0]->text);
    if (slice_eq(part[0]->text, SLICE("granted"))) {
        reply_int(a, list, NULL, part[2]->number);
        reply_int(a, list, NULL, part[4]->number);
    }
    return reply_text(a, list, NULL, part[5]->text) ? list : NULL;
}

static void keep_text(char *to, size_t cap, struct slice text)
{
    size_t n = text.len < cap - 1 ? text.len : cap - 1;
    memcpy(to, text.data, n);
    to[n] = '\0';
}

static void forget_told(struct belay *b)
{
    b->told.reason[0] = b->told.by[0] = b->told.text[0] = '\0';
}

/* >[broken-by, name, fence, token, text]: comes right before the push that says it is broken. */
static void push_broken_by(struct belay *b, const struct reply *r)
{
    const struct reply *fence = r->first->next->next, *by = fence->next;
    if (!slice_eq(r->first->text, SLICE("broken-by")))
        return;
    b->told.fence = (uint64_t)fence->number;
    keep_text(b->told.by, sizeof b->told.by, by->text);
    keep_text(b->told.text, sizeof b->told.text, by->next->text);
}

/* What an attached session lost is told at once: a lock (>[broken|expired, name, fence, ...]),
 * or everything (>[session-ended, id, ...]). False: the push says something else. */
static bool push_lost(struct belay *b, const struct reply *r)
{
    const struct reply *name = r->first->next, *fence = name->next;
    struct slice word = r->first->text;
    bool over = slice_eq(word, SLICE("session-ended"));
    bool gone = slice_eq(word, SLICE("broken")) || slice_eq(word, SLICE("expired"));
    if (over || b->told.fence != (uint64_t)fence->number)
        forget_told(b); /* it is about something else */
    keep_text(b->told.reason, sizeof b->told.reason, r->last->text);
    if (over && slice_eq(name->text, slice_str(b->session)))
        lease_session_over(b, BELAY_E_LOST);
    else if (gone)
        lease_gone(b, name->text, (uint64_t)fence->number);
    forget_told(b);
    return over || gone || slice_eq(word, SLICE("overdue"));
}

/* `r` is the last word about `c`, which frees it. */
static void take_outcome(struct belay *b, struct client_call *c, const struct reply *r)
{
    const struct reply *answer = late_answer(&b->parse, r);
    if (answer && goes_elsewhere(c, answer)) {
        list_push_front(&b->parked, c);
        leave(b, answer);
        return;
    }
    if (answer)
        hand_out(b, c, answer);
    else
        client_call_done(b, c, client_fail(b, BELAY_E_MEMORY, "out of memory"), NULL);
    free(c);
}

static void push_acquired(struct belay *b, const struct reply *r, struct slice bytes)
{
    if (push_lost(b, r))
        return;
    uint64_t ticket = (uint64_t)r->first->next->next->next->number;
    struct client_call *c = list_take_ticket(&b->parked, ticket);
    if (c)
        take_outcome(b, c, r);
    else if (client_call_may_park(b))
        keep_early(b, ticket, bytes);
}

static void push_event(struct belay *b, const struct reply *r)
{
    if (!b->watch_fn)
        return;
    arena_reset(&b->tree);
    const struct belay_reply *tree = reply_copy(&b->tree, r->last);
    if (!tree) {
        b->watch_fn(b, client_fail(b, BELAY_E_MEMORY, "out of memory"), NULL, b->watch_arg);
        return;
    }
    int64_t seq = belay_int(belay_get(tree, "seq"), 0);
    if (seq > 0)
        b->watch_seen = (uint64_t)seq;
    b->watch_fn(b, BELAY_E_OK, tree, b->watch_arg);
}

void client_call_push(struct belay *b, const struct reply *r, struct slice bytes)
{
    if (!r->first)
        return;
    is_good(b);
    if (r->last->kind == REPLY_MAP)
        push_event(b, r);
    else if (r->count == 6)
        push_acquired(b, r, bytes);
    else if (r->count == 5)
        push_broken_by(b, r);
    /* others are for later versions: a client ignores what it did not ask for */
}

/* ---- blocking -------------------------------------------------------------------------- */

int client_call_begin(struct belay *b)
{
    if (b->depth)
        return client_fail(b, BELAY_E_USAGE, "a blocking call inside a callback");
    arena_reset(&b->result);
    return BELAY_E_OK;
}

int client_call_wait(struct belay *b, const bool *done, int64_t timeout_ms)
{
    int64_t until =
        timeout_ms == BELAY_FOREVER ? INT64_MAX : client_add_ms(client_now_ms(), timeout_ms);
    for (;;) {
        int ignored = connection_step(b); /* a failure reaches the call through its callback */
        (void)ignored;
        if (*done)
            break;
        if (client_now_ms() >= until) {
            connection_arm(b);
            return client_fail(b, BELAY_E_DEADLINE, "%s: no answer within %lld ms",
                               b->addrs[b->at].text, (long long)timeout_ms);
        }
        connection_sleep(b, until);
    }
    connection_arm(b);
    return BELAY_E_OK;
}

/* One per blocking call. When the caller no longer waits (deadline), the answer still comes:
 * then `abandoned` lets the callback free it. */
struct waiting {
    bool done, abandoned;
    int err;
    const struct belay_reply *r;
};

static void on_waited(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    struct waiting *w = arg;
    (void)b;
    if (w->abandoned) {
        free(w);
        return;
    }
    w->done = true;
    w->err = err;
    w->r = r;
}

int belay_callv(struct belay *b, const struct belay_bytes *words, size_t n, int64_t timeout_ms,
                const struct belay_reply **ret_r)
{
    if (ret_r)
        *ret_r = NULL;
    int err = client_call_begin(b);
    if (err != BELAY_E_OK)
        return err;
    struct waiting *w = calloc(1, sizeof *w);
    if (!w)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    struct client_call like = {
        .fn = on_waited, .arg = w, .keeps_result = true, .timeout_ms = timeout_ms};
    err = client_call_send(b, words, n, &like);
    if (err != BELAY_E_OK) {
        free(w);
        return err;
    }
    err = client_call_wait(b, &w->done, timeout_ms ? timeout_ms : b->timeout_ms);
    if (err != BELAY_E_OK) {
        w->abandoned = true; /* on_waited() frees it */
        return err;          /* NOLINT(clang-analyzer-unix.Malloc) */
    }
    err = w->err;
    if (err == BELAY_E_OK && ret_r)
        *ret_r = w->r;
    free(w);
    return err;
}

int belay_call(struct belay *b, const struct belay_reply **ret_r, ...)
{
    struct belay_bytes words[BELAY_CALL_WORDS_MAX];
    size_t n = 0;
    if (ret_r)
        *ret_r = NULL;
    va_list args;
    va_start(args, ret_r);
    for (const char *s; n <= BELAY_CALL_WORDS_MAX && (s = va_arg(args, const char *)); n++)
        if (n < BELAY_CALL_WORDS_MAX)
            words[n] = (struct belay_bytes){s, strlen(s)};
    va_end(args);
    if (n > BELAY_CALL_WORDS_MAX)
        return client_fail(b, BELAY_E_USAGE, "belay_call: more than %d words",
                           BELAY_CALL_WORDS_MAX);
    return belay_callv(b, words, n, 0, ret_r);
}

int belay_send(struct belay *b, const struct belay_bytes *words, size_t n, belay_reply_fn *fn,
               void *arg)
{
    struct client_call like = {.fn = fn, .arg = arg};
    int err = client_call_send(b, words, n, &like);
    connection_arm(b);
    return err;
}

/* ---- news ------------------------------------------------------------------------------ */

size_t client_call_watch_words(struct belay *b, struct belay_bytes *ret_words)
{
    size_t n = 0;
    if (!b->watch_fn)
        return 0;
    ret_words[n++] = (struct belay_bytes){"WATCH", 5};
    if (b->watch_prefix && b->watch_prefix[0]) {
        ret_words[n++] = (struct belay_bytes){"PREFIX", 6};
        ret_words[n++] = (struct belay_bytes){b->watch_prefix, strlen(b->watch_prefix)};
    }
    if (b->watch_seen) {
        int len = snprintf(b->watch_since, sizeof b->watch_since, "%llu",
                           (unsigned long long)b->watch_seen);
        ret_words[n++] = (struct belay_bytes){"SINCE", 5};
        ret_words[n++] = (struct belay_bytes){b->watch_since, (size_t)len};
    }
    return n;
}

void client_call_watch_gap(struct belay *b, int err)
{
    if (b->watch_fn)
        b->watch_fn(b, err, NULL, b->watch_arg);
}

int belay_watch(struct belay *b, const char *prefix, uint64_t since, belay_event_fn *fn,
                void *arg)
{
    struct belay_bytes words[6];
    int err = client_call_begin(b);
    if (err != BELAY_E_OK)
        return err;
    free(b->watch_prefix);
    b->watch_prefix = prefix && fn ? strdup(prefix) : NULL;
    b->watch_fn = NULL;
    if (prefix && fn && !b->watch_prefix)
        return client_fail(b, BELAY_E_MEMORY, "out of memory");
    if (!fn) {
        err = belay_is_connected(b) ? belay_call(b, NULL, "UNWATCH", NULL) : BELAY_E_OK;
        return err == BELAY_E_CLOSED ? BELAY_E_OK : err; /* and the watch with it */
    }
    /* Connected first: else the greeting would watch, and then this call once more. */
    err = belay_connect(b);
    if (err != BELAY_E_OK)
        return err;
    b->watch_fn = fn;
    b->watch_arg = arg;
    b->watch_seen = since;
    err = belay_callv(b, words, client_call_watch_words(b, words), 0, NULL);
    if (err == BELAY_E_CLOSED)
        err = belay_connect(b); /* the next connection begins with it */
    if (err != BELAY_E_OK)
        b->watch_fn = NULL;
    return err;
}
