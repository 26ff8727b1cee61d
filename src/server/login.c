/* login.c - the identity of a client: tokens of connections and of HTTP requests, certificates,
 * users of the socket.
 *
 *   AUTH, HELLO AUTH, Authorization --> what this node knows of group 0
 *     it counts          --> its token's number, generation and rules go with each request
 *     it does not        --> group 0 is asked once, because this node may be behind. The
 *                            request stays in its buffer meanwhile, and nothing behind it is
 *                            taken
 *     it still does not  --> one same answer for every reason; from the eleventh of an address
 *                            in a minute on, a second later
 *
 * A connection keeps the id and the generation that it logged in with and looks its token up
 * for every request, so a change counts from the next request on. Connections of a token that
 * does not count any more are closed when that is heard, and looked for once a second.
 *
 * A certificate of the clients' CA stands for the token that it names, whatever its secret is,
 * and so does a user at the Unix socket (--socket-user): as long as nobody logs in with another
 * one, each request is that token's, if it counts then.
 */
#include "auth/token.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { STRIKES = 10, STRIKES_MS = 60 * 1000, SLOW_MS = 1000, MS_PER_HOUR = 3600 * 1000 };
static const uint64_t NS_PER_MS = 1000000;

const char login_lost_text[] = "the cluster could not be asked whether the token is valid";

const char login_unsure_text[] = "the cluster could not be asked whether this is allowed";

const char login_busy_text[] = "too many connections of this token";

uint64_t login_wall_ms(void)
{
    return server_wall_ns() / NS_PER_MS;
}

static const char CERTIFICATE_URI[] = "belay:token:";

static void by_proof(struct conn *c)
{
    const char *slash = strchr(c->proven, '/');
    struct slice account = slice_of(c->proven, (size_t)(slash - c->proven));
    struct slice id = slice_str(slash + 1);
    uint64_t generation = engine_token_generation(c->server->engine, account, id);
    c->login =
        (struct login){.known = generation != 0, .by_proof = true, .generation = generation};
    memcpy(c->login.id, id.data, TOKEN_ID_BYTES);
}

static void prove(struct conn *c, const char *text)
{
    const char *slash = strchr(text, '/');
    if (!slash || !token_is_id(slice_str(slash + 1)))
        return;
    c->proven = mem_dup(text, strlen(text) + 1);
    by_proof(c);
}

void login_certify(struct conn *c)
{
    char text[TOKEN_ID_BYTES + ACCOUNT_ID_BYTES + 2];
    if (!c->proven && tls_uri(c->tls, CERTIFICATE_URI, text, sizeof text))
        prove(c, text);
}

void login_by_user(struct conn *c)
{
    const char *text = socket_token(c);
    if (text)
        prove(c, text);
}

bool login_who(struct conn *c, uint64_t wall_ms, struct machine_token *ret)
{
    if (c->proven && !c->login.failed && (!c->login.known || c->login.by_proof))
        by_proof(c);
    return c->login.known &&
           engine_token(c->server->engine, slice_of(c->login.id, TOKEN_ID_BYTES),
                        c->login.generation, wall_ms, ret);
}

void login_forget(struct conn *c)
{
    c->login = (struct login){0};
    if (c->proven)
        by_proof(c);
}

/* To the hour: an op at most for each hour and connection. */
void login_used(struct conn *c, const struct machine_token *who, uint64_t wall_ms)
{
    uint64_t hour_ms = wall_ms - wall_ms % MS_PER_HOUR;
    if (who->used_ms >= hour_ms || c->used_ms >= hour_ms || c->server->stopping)
        return;
    c->used_ms = hour_ms;
    struct op op = {.kind = OP_TOKEN_USED,
                    .name = slice_of(c->login.id, TOKEN_ID_BYTES),
                    .wall_ms = hour_ms};
    engine_submit(c->server->engine, &op, NULL);
}

/* --- failed ones --- */

static struct strikes *strikes_of(struct conn *c)
{
    uint64_t sum = source_hash(c->source);
    struct strikes *at = &c->server->strikes[sum % LOGIN_STRIKES_MAX];
    uint64_t now = uv_now(&c->server->loop);
    if (at->address != sum || now - at->since_ms >= STRIKES_MS)
        *at = (struct strikes){.address = sum, .since_ms = now};
    return at;
}

/* It has failed. True: the answer has to wait. */
static bool is_slowed(struct conn *c)
{
    struct strikes *at = strikes_of(c);
    c->server->metrics.failed_logins++;
    if (at->n++ < STRIKES)
        return false;
    c->slow_until_ms = uv_now(&c->server->loop) + SLOW_MS;
    c->logging_in = true;
    return true;
}

/* --- trying --- */

static bool is_known_here(struct conn *c, struct op *op)
{
    struct login *login = &c->login;
    *login = (struct login){0};
    login->known = engine_login(c->server->engine, op, &login->generation);
    if (login->known)
        memcpy(login->id, op->name.data, TOKEN_ID_BYTES);
    return login->known;
}

/* Group 0 has been asked; whatever it said, what this node knows is new enough now. */
static void on_login(struct ask *ask, const struct event *ev)
{
    struct conn *c = list_item(ask, struct conn, login_ask);
    c->logging_in = false;
    c->login_asked = ev->kind != EVENT_FAILED || ev->err == BELAY_ERR_LOGIN;
    c->login_lost = !c->login_asked;
    conn_dirty(c);
}

static enum login_step succeed(struct conn *c, struct slice id)
{
    if (!throttle_join(c)) {
        trail_refuse(c, NULL, BELAY_ERR_THROTTLED);
        login_forget(c);
        return LOGIN_BUSY;
    }
    trail_login(c, id, true);
    return LOGIN_OK;
}

static enum login_step fail(struct conn *c, struct slice id)
{
    bool counts = engine_closed(c->server->engine); /* else nobody has to */
    if (counts && !c->login_slowed && is_slowed(c)) {
        c->login_slowed = true;
        return LOGIN_WAIT;
    }
    c->login_asked = c->login_slowed = false;
    if (counts)
        trail_login(c, id, false);
    return LOGIN_NO;
}

bool login_enter(struct conn *c)
{
    return !c->login.by_proof || succeed(c, slice_of(c->login.id, TOKEN_ID_BYTES)) == LOGIN_OK;
}

enum login_step login_try(struct conn *c, struct slice id, struct slice secret)
{
    struct engine *e = c->server->engine;
    unsigned char sum[TOKEN_SUM_BYTES];
    struct slice whole_id, whole_secret;
    if (token_read(secret, &whole_id, &whole_secret)) { /* whatever user stands beside it */
        id = whole_id;
        secret = whole_secret;
    }
    token_sum(secret, sum);
    bool is_id = token_is_id(id); /* what is none is looked up like one that is not there */
    struct op op = {.kind = OP_LOGIN,
                    .name = is_id ? id : SLICE("0000000000000000"),
                    .owner = slice_of((const char *)sum, sizeof sum),
                    .wall_ms = login_wall_ms()};
    if (is_known_here(c, &op)) {
        c->login_asked = c->login_slowed = false;
        return succeed(c, id);
    }
    if (c->login_lost) {
        c->login_lost = false;
        return LOGIN_LOST;
    }
    if (!c->login_asked) {
        c->logging_in = true;
        c->login_ask = (struct ask){.answer = on_login};
        engine_submit(e, &op, &c->login_ask);
        if (c->logging_in)
            return LOGIN_WAIT;
        if (is_known_here(c, &op))
            return succeed(c, id);
    }
    return fail(c, id);
}

/* --- once more --- */

/* What is ordered is looked at once more by the group in which it takes effect. What changes the
 * members, goes to PostgreSQL, or carries everything away, is not. */
static bool acts_outside(const struct call *call)
{
    if (call->kind != CALL_ACTION)
        return false;
    return call->action == ACTION_QUEUE_PUSH || call->action == ACTION_QUEUE_LIST ||
           call->action == ACTION_QUEUE_MANAGE ||
           (call->action == ACTION_CLUSTER && call->command != command_get(CMD_CLUSTER_STATUS));
}

static void on_confirmed(struct ask *ask, const struct event *ev)
{
    struct conn *c = list_item(ask, struct conn, login_ask);
    bool refused = ev->kind == EVENT_FAILED &&
                   (ev->err == BELAY_ERR_LOGIN || ev->err == BELAY_ERR_NOT_FOUND);
    c->standing = refused ? LOGIN_NO : ev->kind == EVENT_ROWS ? LOGIN_OK : LOGIN_LOST;
    c->confirmed = true;
    c->logging_in = false;
    conn_dirty(c);
}

/* Group 0 is asked for the account, as that token: where it is revoked, that is refused. */
enum login_step login_confirm(struct conn *c, const struct call *call)
{
    const struct context *asker = call->context;
    if (!acts_outside(call))
        return LOGIN_OK;
    if (!c->confirmed) {
        struct op op = {.kind = OP_ACCOUNT_SHOW,
                        .account = asker->account,
                        .token = asker->who ? asker->who->number : 0,
                        .rights = asker->generation};
        c->logging_in = true;
        c->login_ask = (struct ask){.answer = on_confirmed};
        engine_submit(c->server->engine, &op, &c->login_ask);
    }
    return c->confirmed ? (enum login_step)c->standing : LOGIN_WAIT;
}

/* --- HTTP --- */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static struct slice base64_read(struct slice text, struct arena *a)
{
    unsigned bits = 0, n_bits = 0;
    char *out = arena_alloc(a, text.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.len && text.data[i] != '='; i++) {
        int digit = base64_digit(text.data[i]);
        if (digit < 0)
            return SLICE("");
        bits = bits << 6 | (unsigned)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (char)(bits >> n_bits & 255);
        }
    }
    return slice_of(out, n);
}

/* Basic: the user is the id, or anything beside a whole token. */
static enum login_step try_basic(struct conn *c, struct slice text)
{
    struct slice pair = base64_read(text, &c->server->request_arena);
    const char *colon = pair.len ? memchr(pair.data, ':', pair.len) : NULL;
    size_t n = colon ? (size_t)(colon - pair.data) : 0;
    struct slice secret = colon ? slice_of(colon + 1, pair.len - n - 1) : SLICE("");
    return login_try(c, slice_of(pair.data, n), secret);
}

static enum login_step try_header(struct conn *c, struct slice text)
{
    const char *space = memchr(text.data, ' ', text.len);
    size_t n = space ? (size_t)(space - text.data) : text.len;
    struct slice scheme = slice_of(text.data, n);
    struct slice rest = space ? slice_of(space + 1, text.len - n - 1) : SLICE("");
    while (rest.len && rest.data[0] == ' ')
        rest = slice_of(rest.data + 1, rest.len - 1);
    if (slice_eq_nocase(scheme, SLICE("Basic")))
        return try_basic(c, rest);
    return login_try(c, SLICE(""), slice_eq_nocase(scheme, SLICE("Bearer")) ? rest : SLICE(""));
}

enum login_step login_http(struct conn *c, const struct request *req)
{
    login_forget(c); /* each request says who it is */
    if (req->authorization.len == 0)
        return LOGIN_OK;
    enum login_step step = try_header(c, req->authorization);
    c->login.failed = step == LOGIN_NO;
    return step;
}

/* --- the way back --- */

static void reset_path(const struct server *s, struct buf *out)
{
    buf_printf(out, "%s/" LOGIN_RESET_FILE, s->config->node.data);
}

static void on_reset(struct ask *ask, const struct event *ev)
{
    struct server *s = list_item(ask, struct server, reset_ask);
    struct buf path = {0};
    if (ev->kind != EVENT_AUTH_RESET)
        return; /* in a second again */
    reset_path(s, &path);
    if (unlink(buf_cstr(&path)) != 0)
        log_error("login.reset", "path=%s error=\"%s\"", buf_cstr(&path), strerror(errno));
    s->reset_wanted = false;
    trail_reset(s);
    log_warn("login.reset", "text=\"nobody has to log in, until belay auth init\"");
    buf_done(&path);
}

void login_start(struct server *s)
{
    struct buf path = {0};
    if (!s->config->node.data)
        return;
    reset_path(s, &path);
    s->reset_wanted = access(buf_cstr(&path), F_OK) == 0;
    buf_done(&path);
}

void login_reset(struct server *s)
{
    const char *word;
    if (!s->reset_wanted || s->reset_ask.id || s->stopping || server_not_ready(s, &word))
        return;
    struct op op = {.kind = OP_AUTH_RESET};
    s->reset_ask.answer = on_reset;
    engine_submit(s->engine, &op, &s->reset_ask);
}

/* --- looking after them --- */

void login_cancel(struct conn *c)
{
    if (c->login_ask.id)
        engine_cancel(c->server->engine, &c->login_ask);
    c->logging_in = false;
}

/* A client that ends its own token is told so before its connection goes. */
static bool awaits_own_end(const struct conn *c)
{
    for (const struct pending_reply *p = c->head; p; p = p->next)
        if (p->manner.op >= OP_ACCOUNT_DELETE && p->manner.op <= OP_TOKEN_REVOKE)
            return true;
    return false;
}

/* Its token counts no more, or it watches from before everybody had to log in. */
static bool is_nobody_s(struct conn *c, uint64_t wall_ms)
{
    struct machine_token who;
    bool watches = c->watch && engine_closed(c->server->engine);
    return (c->login.known || watches) && !login_who(c, wall_ms, &who);
}

void login_look(struct server *s)
{
    uint64_t now = uv_now(&s->loop), wall_ms = login_wall_ms();
    s->logins_changed = false;
    list_each_safe(it, &s->conns)
    {
        struct conn *c = list_item(it, struct conn, all);
        if (c->slow_until_ms && c->slow_until_ms <= now) {
            c->slow_until_ms = 0;
            c->logging_in = false;
            conn_dirty(c);
        }
        if (!c->closed && is_nobody_s(c, wall_ms) && !awaits_own_end(c)) {
            c->doomed = true;
            conn_dirty(c);
        }
    }
}

void login_news(struct server *s, const struct event *ev)
{
    if (ev->kind == EVENT_TOKEN_REVOKED || ev->kind == EVENT_TOKEN_ROTATED ||
        ev->kind == EVENT_ACCOUNT_DELETED)
        s->logins_changed = true;
}
