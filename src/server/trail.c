/* trail.c - what operators do, for the log and the audit log: notes of requests, and what came of
 * them. */
#include "server/trail.h"

#include "audit/audit.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdlib.h>

enum { DETAIL_BYTES_MAX = 512 };

const char trail_refused_text[] =
    "the audit log cannot be written, so the command is refused (--audit-required)";

/* What is known of a request; its bytes are behind it, in this order. */
struct trail_note {
    const struct command *command;
    bool quiet; /* not an operator's: only a refusal is told */
    bool act;   /* an operator's that changes something: it is in the log, too */
    bool force, known;
    bool drawn; /* its name was made up by this node, and will be another one when it is read
                   again */
    uint64_t fence, names;
    uint64_t asked; /* number of the line that said it was asked for; 0: none */
    char token[TOKEN_ID_BYTES];
    struct slice account, ns, name, target, detail, reason, id;
};

/* --- texts --- */

static void put_unit(struct buf *out, unsigned unit)
{
    buf_printf(out, "\\u%04x", unit);
}

static unsigned code_point(const char *s, size_t n)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned v = (unsigned char)s[0] & masks[n];
    for (size_t i = 1; i < n; i++)
        v = v << 6 | ((unsigned char)s[i] & 0x3f);
    return v;
}

/* In ASCII: no byte of a client ends a line, or reaches a terminal as it is. */
static void put_escaped(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.len;) {
        unsigned char ch = (unsigned char)s.data[i];
        size_t n = ch < 0x80 ? 1 : utf8_len(s.data + i, s.len - i);
        unsigned v = code_point(s.data + i, n);
        if (v >= 0x10000) {
            put_unit(out, 0xd800 + ((v - 0x10000) >> 10));
            put_unit(out, 0xdc00 + ((v - 0x10000) & 0x3ff));
        } else if (v < ' ' || v >= 0x7f || v == '"' || v == '\\') {
            put_unit(out, v);
        } else {
            buf_put_byte(out, (char)v);
        }
        i += n;
    }
}

static bool is_utf8(struct slice s)
{
    for (size_t i = 0, n; i < s.len; i += n) {
        n = (unsigned char)s.data[i] < 0x80 ? 1 : utf8_len(s.data + i, s.len - i);
        if (n == 0)
            return false;
    }
    return true;
}

/* Bytes that are no text stand there as digits, under "KEY_hex": nothing is lost. */
static void put_text(struct buf *out, const char *key, struct slice s)
{
    if (s.len == 0)
        return;
    if (is_utf8(s)) {
        buf_printf(out, ",\"%s\":\"", key);
        put_escaped(out, s);
    } else {
        buf_printf(out, ",\"%s_hex\":\"", key);
        for (size_t i = 0; i < s.len; i++)
            buf_printf(out, "%02x", (unsigned char)s.data[i]);
    }
    buf_put_byte(out, '"');
}

/* --- lines --- */

static void begin_line(struct buf *out, const char *event)
{
    char space[AUDIT_TIME_BYTES];
    buf_put_str(out, "\"time\":\"");
    buf_put_slice(out, audit_time(space));
    buf_printf(out, "\",\"event\":\"%s\"", event);
}

static uint64_t end_line(struct trail *t, struct buf *line)
{
    BELAY_CHECK(!line->oom);
    uint64_t n = audit_put(t->audit, buf_slice(line));
    buf_done(line);
    return n;
}

/* A refusal more: is there room for its line? */
static bool begin_refusal(struct trail *t, struct buf *line, const char *event)
{
    if (limiter_take(&t->refusals, 0, uv_hrtime())) {
        t->skipped++;
        return false;
    }
    begin_line(line, event);
    if (t->skipped > t->skipped_told)
        buf_printf(line, ",\"skipped\":%" PRIu64, t->skipped - t->skipped_told);
    t->skipped_told = t->skipped;
    return true;
}

static void put_door(struct buf *out, const struct conn *c)
{
    put_text(out, "address", slice_str(c->address));
    if (c->door != DOOR_SNIFF)
        put_text(out, "door", c->door == DOOR_HTTP ? SLICE("http") : SLICE("resp"));
}

static void put_who(struct buf *out, const struct conn *c, const struct trail_note *n)
{
    if (n->asked)
        buf_printf(out, ",\"asked\":%" PRIu64, n->asked);
    put_text(out, "account", n->account);
    if (n->token[0])
        put_text(out, "token", slice_of(n->token, TOKEN_ID_BYTES));
    put_door(out, c);
}

static void put_what(struct buf *out, const struct trail_note *n, bool done)
{
    put_text(out, "command", n->command->name);
    if (!n->known)
        return;
    put_text(out, "namespace", n->ns);
    if (done || !n->drawn)
        put_text(out, "name", n->name);
    if (n->names)
        buf_printf(out, ",\"more_names\":%" PRIu64, n->names);
    put_text(out, "for", n->target);
    put_text(out, "detail", n->detail);
    if (n->fence)
        buf_printf(out, ",\"fence\":%" PRIu64, n->fence);
    if (n->force)
        buf_put_str(out, ",\"force\":true");
    put_text(out, "reason", n->reason);
}

/* --- notes --- */

static bool is_operators(const struct command *command)
{
    enum need need = command->need;
    return need == NEED_BREAK || need == NEED_ADMIN || need == NEED_CLUSTER ||
           need == NEED_ACCOUNTS || command == command_get(CMD_AUTH_INIT);
}

/* What it is about, by the kind of command: a lock, a namespace, an account, a token, a node.
 */
static void fill_what(const struct call *call, struct trail_note *n)
{
    const struct args *args = &call->args;
    bool of_account = call->kind != CALL_REPLY && op_is(call->op.kind, KIND_OF_ACCOUNT);
    bool of_node = call->action == ACTION_CLUSTER;
    bool of_queue = args_has(args, P_QUEUE);
    bool of_log = call->action == ACTION_LOG_LEVEL;
    n->known = true;
    n->force = args_has(args, P_FORCE);
    if (of_account) {
        bool of_token = call->op.kind >= OP_TOKEN_CREATE && call->op.kind <= OP_TOKEN_REVOKE;
        n->name = of_token || call->op.kind == OP_AUTH_INIT ? call->op.name : call->op.account;
        n->drawn = call->op.kind == OP_AUTH_INIT || call->op.kind == OP_TOKEN_CREATE ||
                   (call->op.kind == OP_ACCOUNT_CREATE && !args_has(args, P_ACCOUNT));
        n->target = of_token ? args_text(args, P_ACCOUNT) : SLICE("");
        n->detail = args_text(args, args_has(args, P_RULES) ? P_RULES : P_LIMITS);
    } else if (of_node) {
        n->name = call->text;
        n->detail = call->peer;
    } else if (of_queue || of_log) {
        n->name = args_text(args, of_queue ? P_QUEUE : P_LOG_LEVEL);
    } else {
        n->ns = call->op.ns;
        n->name = call->op.name.len ? call->op.name : call->op.session;
        n->names = call->op.more.n;
        n->fence = call->op.fence;
        n->reason = call->op.kind == OP_BREAK ? call->op.text : SLICE("");
    }
    if (n->detail.len > DETAIL_BYTES_MAX)
        n->detail.len = DETAIL_BYTES_MAX;
}

/* Borrows from the call. */
static struct trail_note note_of(const struct conn *c, const struct call *call)
{
    struct trail_note n = {.command = call->command, .account = call->context->account};
    if (call->context->who)
        memcpy(n.token, c->login.id, TOKEN_ID_BYTES);
    else if (call->context->closed)
        n.account = SLICE("");            /* nobody has logged in */
    if (call->refused != BELAY_ERR_LOGIN) /* else it was not even read */
        fill_what(call, &n);
    return n;
}

static struct slice keep(char **at, struct slice s)
{
    struct slice kept = slice_of(*at, s.len);
    *at = slice_put(*at, s);
    return kept;
}

static struct trail_note *note_keep(const struct trail_note *n)
{
    size_t bytes = n->account.len + n->ns.len + n->name.len + n->target.len + n->detail.len +
                   n->reason.len + n->id.len;
    struct trail_note *kept = mem_alloc(sizeof *kept + bytes);
    char *at = (char *)(kept + 1);
    *kept = *n;
    kept->account = keep(&at, n->account);
    kept->ns = keep(&at, n->ns);
    kept->name = keep(&at, n->name);
    kept->target = keep(&at, n->target);
    kept->detail = keep(&at, n->detail);
    kept->reason = keep(&at, n->reason);
    kept->id = keep(&at, n->id);
    return kept;
}

/* --- requests --- */

static enum trail_step ask(struct conn *c, struct trail_note *note)
{
    struct trail *t = &c->server->trail;
    struct audit_state state;
    audit_look(t->audit, &state);
    if (c->asked_line && state.durable >= c->asked_line) {
        note->asked = c->asked_line;
        trail_forget(c);
        return TRAIL_GO;
    }
    if (state.error) {
        trail_forget(c);
        return TRAIL_REFUSED;
    }
    if (!c->asked_line) {
        struct buf line = {0};
        begin_line(&line, "asked");
        put_who(&line, c, note);
        put_what(&line, note, false);
        c->asked_line = end_line(t, &line);
        if (!c->asked_line)
            return TRAIL_REFUSED;
        t->n_asked++;
    }
    c->logging_in = true;
    return TRAIL_WAIT;
}

enum trail_step trail_begin(struct conn *c, const struct call *call, struct trail_note **ret)
{
    struct trail *t = &c->server->trail;
    *ret = NULL;
    if (call->kind == CALL_REPLY)
        return TRAIL_GO;
    bool loud = is_operators(call->command);
    bool act = loud && !(call->command->flags & CMD_READ);
    if (!t->audit && !act)
        return TRAIL_GO;
    if (!loud && (!call->context->closed || call->kind != CALL_OP))
        return TRAIL_GO;
    struct trail_note note = note_of(c, call);
    note.quiet = !loud;
    note.act = act;
    note.id = slow_id(c);
    if (loud && t->required) {
        enum trail_step step = ask(c, &note);
        if (step != TRAIL_GO)
            return step;
    }
    *ret = note_keep(&note);
    return TRAIL_GO;
}

void trail_forget(struct conn *c)
{
    c->server->trail.n_asked -= c->asked_line != 0;
    c->asked_line = 0;
}

static bool is_refusal(enum belay_err err)
{
    return err == BELAY_ERR_DENIED || err == BELAY_ERR_LOGIN || err == BELAY_ERR_QUOTA ||
           err == BELAY_ERR_THROTTLED;
}

static const char *outcome_of(enum belay_err err)
{
    return err == BELAY_OK ? "ok" : err_word(err);
}

/* `err` BELAY_OK: done. */
static void write_outcome(struct conn *c, const struct trail_note *n, enum belay_err err,
                          const struct event *ev)
{
    struct trail *t = &c->server->trail;
    struct buf line = {0};
    if (is_refusal(err)) {
        if (!begin_refusal(t, &line, "refused"))
            return;
    } else {
        begin_line(&line, "command");
    }
    put_who(&line, c, n);
    put_what(&line, n, true);
    put_text(&line, "outcome", slice_str(outcome_of(err)));
    if (ev && ev->index) {
        if (ev->kind == EVENT_BROKEN || ev->kind == EVENT_SESSION_ENDED)
            buf_printf(&line, ",\"count\":%" PRIu64, ev->count);
        buf_printf(&line, ",\"index\":%" PRIu64 ",\"shard\":%u", ev->index, ev->group);
    }
    (void)end_line(t, &line);
}

/* --- the log --- */

static void put_part(struct buf *out, const char *key, struct slice s)
{
    if (s.len)
        buf_printf(out, " %s=%s", key, log_bytes(s));
}

/* One line an act, whatever came of it. */
static void say_act(const struct conn *c, const struct trail_note *n, const char *outcome)
{
    struct trail *t = &c->server->trail;
    struct buf more = {0};
    if (!n || !n->act)
        return;
    if (limiter_take(&t->acts, 0, uv_hrtime())) {
        t->acts_skipped++;
        return;
    }
    put_part(&more, "account", n->account);
    put_part(&more, "token", slice_of(n->token, n->token[0] ? TOKEN_ID_BYTES : 0));
    put_part(&more, "namespace", n->ns);
    put_part(&more, "name", n->name);
    put_part(&more, "for", n->target);
    put_part(&more, "id", n->id);
    if (t->acts_skipped)
        buf_printf(&more, " skipped=%" PRIu64, t->acts_skipped);
    t->acts_skipped = 0;
    log_info("server.admin", "command=\"%.*s\" outcome=\"%s\" address=\"%s\"%s",
             (int)n->command->name.len, n->command->name.data, outcome, c->address,
             buf_cstr(&more));
    buf_done(&more);
}

void trail_end(struct conn *c, struct trail_note *note, const struct event *ev)
{
    enum belay_err err = ev->kind == EVENT_FAILED ? ev->err : BELAY_OK;
    say_act(c, note, outcome_of(err));
    bool told = note && (!note->quiet || ev->by_break || is_refusal(err));
    if (told && c->server->trail.audit)
        write_outcome(c, note, err, ev);
    free(note);
}

void trail_end_reply(struct conn *c, struct trail_note *note, const struct reply *r)
{
    enum belay_err err = r->kind == REPLY_ERROR ? r->err : BELAY_OK;
    say_act(c, note, outcome_of(err));
    if (note && c->server->trail.audit && (!note->quiet || is_refusal(err)))
        write_outcome(c, note, err, NULL);
    free(note);
}

void trail_end_unknown(struct conn *c, struct trail_note *note)
{
    say_act(c, note, "unknown");
    if (note && !note->quiet && c->server->trail.audit) {
        struct buf line = {0};
        begin_line(&line, "command");
        put_who(&line, c, note);
        put_what(&line, note, true);
        put_text(&line, "outcome", SLICE("unknown"));
        (void)end_line(&c->server->trail, &line);
    }
    free(note);
}

void trail_refuse(struct conn *c, const struct call *call, enum belay_err err)
{
    struct trail *t = &c->server->trail;
    struct buf line = {0};
    if (!t->audit)
        return;
    if (call && call->command) {
        struct trail_note note = note_of(c, call);
        write_outcome(c, &note, err, NULL);
    } else if (begin_refusal(t, &line, "refused")) {
        if (c->login.known)
            put_text(&line, "token", slice_of(c->login.id, TOKEN_ID_BYTES));
        put_door(&line, c);
        put_text(&line, "outcome", slice_str(err_word(err)));
        (void)end_line(t, &line);
    }
}

static bool same_login(const struct login *a, const struct login *b)
{
    return a->known == b->known && a->generation == b->generation &&
           memcmp(a->id, b->id, TOKEN_ID_BYTES) == 0;
}

/* A connection's first request with a token, of many: that is its login. */
void trail_login(struct conn *c, struct slice id, bool counts)
{
    struct trail *t = &c->server->trail;
    struct buf line = {0};
    struct machine_token who;
    if (!t->audit)
        return;
    if (counts) {
        if (same_login(&c->login_told, &c->login))
            return;
        c->login_told = c->login;
        begin_line(&line, "login");
        if (login_who(c, login_wall_ms(), &who))
            put_text(&line, "account", who.account);
    } else if (!begin_refusal(t, &line, "login")) {
        return;
    }
    if (token_is_id(id))
        put_text(&line, "token", id);
    put_door(&line, c);
    put_text(&line, "outcome", slice_str(counts ? "ok" : err_word(BELAY_ERR_LOGIN)));
    (void)end_line(t, &line);
}

void trail_reset(struct server *s)
{
    struct buf line = {0};
    if (!s->trail.audit)
        return;
    begin_line(&line, "reset");
    (void)end_line(&s->trail, &line);
}

/* --- the file --- */

static void say_where(struct server *s, const char *event)
{
    struct audit_state state;
    audit_look(s->trail.audit, &state);
    log_info(event, "path=%s lines=%" PRIu64 " hash=%.*s", s->config->audit, state.put,
             (int)sizeof state.hash, state.hash);
}

static void told(void *ctx) /* on the thread that writes */
{
    (void)uv_async_send(ctx);
}

/* Some lines are on the disk, or could not be written. */
static void on_wrote(uv_async_t *async)
{
    struct server *s = async->data;
    if (s->trail.n_asked == 0)
        return;
    list_each_safe(it, &s->conns)
    {
        struct conn *c = list_item(it, struct conn, all);
        if (!c->asked_line || c->closed)
            continue;
        c->logging_in = false;
        conn_dirty(c);
    }
}

bool trail_open(struct server *s)
{
    struct trail *t = &s->trail;
    const char *why = NULL;
    limiter_init(&t->acts, TRAIL_ACTS_PER_S, TRAIL_ACTS_AT_ONCE);
    if (!s->config->audit)
        return true;
    t->required = s->config->audit_required;
    limiter_init(&t->refusals, TRAIL_REFUSALS_PER_S, TRAIL_REFUSALS_AT_ONCE);
    t->wrote.data = s;
    BELAY_CHECK(uv_async_init(&s->loop, &t->wrote, on_wrote) == 0);
    t->audit = audit_open(s->config->audit, told, &t->wrote, &why);
    if (!t->audit) {
        log_error("audit.open", "path=%s error=\"%s\"", s->config->audit, why);
        uv_close((uv_handle_t *)&t->wrote, NULL);
        return false;
    }
    say_where(s, "audit.opened");
    return true;
}

void trail_reopen(struct server *s)
{
    if (!s->trail.audit)
        return;
    say_where(s, "audit.reopen");
    audit_reopen(s->trail.audit);
}

void trail_look(struct server *s)
{
    struct trail *t = &s->trail;
    struct audit_state state;
    if (!t->audit)
        return;
    audit_look(t->audit, &state);
    if (state.error && state.error != t->error)
        log_error("audit.write", "path=%s error=\"%s\" waiting=%" PRIu64, s->config->audit,
                  strerror(state.error), state.put - state.durable);
    else if (!state.error && t->error)
        log_info("audit.written", "path=%s lost=%" PRIu64, s->config->audit, state.lost);
    t->error = state.error;
}

void trail_close(struct server *s)
{
    struct trail *t = &s->trail;
    limiter_done(&t->acts);
    if (!t->audit)
        return;
    say_where(s, "audit.closed");
    uint64_t unwritten = audit_close(t->audit);
    if (unwritten)
        log_error("audit.closed", "path=%s unwritten=%" PRIu64, s->config->audit, unwritten);
    t->audit = NULL;
    limiter_done(&t->refusals);
    uv_close((uv_handle_t *)&t->wrote, NULL);
}
