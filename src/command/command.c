/* command.c - a request becomes an op, a reply or an action: the step between proto and
 * engine. */
#include "command/command.h"

#include "base/check.h"
#include "command/rights.h"
#include "command/route.h"
#include "proto/http.h"

#include <stdarg.h>

enum { COMMAND_NAME_BYTES_MAX = 32 };

#define LIST(...)                                                                              \
    {                                                                                          \
        __VA_ARGS__                                                                            \
    }
#define READ       CMD_READ
#define WRITE      CMD_WRITE
#define ADMIN      (CMD_ADMIN | CMD_WRITE)
#define CONNECTION CMD_CONNECTION
#define REDIS      CMD_REDIS
#define GLOCK      CMD_GLOCK
#define PAGE       CMD_PAGE
#define RAW        CMD_RAW
#define FORM       CMD_FORM
#define RESP_ONLY  CMD_RESP_ONLY
#define JSON       CMD_JSON

static const struct command table[COMMAND_COUNT_ALL] = {
#define CMD(id, name, fn, flags, need, again, method, path, positions, options, summary)       \
    [CMD_##id] = {{name, sizeof(name) - 1},       cmd_##fn, flags, NEED_##need, method, path,  \
                  {LIST positions, LIST options}, summary},
#include "command/commands.def"
#undef CMD
};

const struct command *command_get(enum command_id id)
{
    return &table[id];
}

/* The busiest commands stand first in the table, so a walk over it is quick enough. */
const struct command *command_find(struct slice name)
{
    if (name.len == 0)
        return NULL;
    for (size_t i = 0; i < COMMAND_COUNT_ALL; i++) {
        struct slice known = table[i].name;
        if (known.len == name.len && known.data[0] == (name.data[0] & ~32) &&
            (slice_eq(known, name) || slice_eq_nocase(known, name)))
            return &table[i];
    }
    return NULL;
}

/* "CLIENT" "setinfo" is the command "CLIENT SETINFO". */
static const struct command *find_sub(struct slice verb, struct slice sub)
{
    char name[COMMAND_NAME_BYTES_MAX];
    if (verb.len + 1 + sub.len > sizeof name)
        return NULL;
    memcpy(name, verb.data, verb.len);
    name[verb.len] = ' ';
    if (sub.len)
        memcpy(name + verb.len + 1, sub.data, sub.len);
    return command_find(slice_of(name, verb.len + 1 + sub.len));
}

static bool is_container(struct slice verb)
{
    for (size_t i = 0; i < COMMAND_COUNT_ALL; i++) {
        struct slice known = table[i].name;
        if (known.len > verb.len && known.data[verb.len] == ' ' &&
            slice_eq_nocase(slice_of(known.data, verb.len), verb))
            return true;
    }
    return false;
}

void call_answer(struct call *c, struct reply *r)
{
    c->kind = CALL_REPLY;
    c->reply = r;
}

void call_answer_status(struct call *c, const char *word)
{
    struct reply *r = reply_new(c->arena, REPLY_STATUS);
    r->text = slice_str(word);
    call_answer(c, r);
}

void call_fail(struct call *c, enum belay_err err, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    call_answer(c, reply_error(c->arena, err, "%s", buf_cstr(&text)));
    buf_done(&text);
}

void call_act(struct call *c, enum action action)
{
    c->kind = CALL_ACTION;
    c->action = action;
}

/* What every op has in common; then the command's own function; then the bounds of the machine.
 */
static void read_call(struct call *c)
{
    c->kind = CALL_OP;
    c->action = ACTION_NONE;
    memset(&c->op, 0, sizeof c->op);
    c->op.account = c->context->account;
    c->op.ns = args_has(&c->args, P_NS) ? args_text(&c->args, P_NS) : c->context->ns;
    c->op.request = args_text(&c->args, P_REQUEST);
    c->manner = (struct manner){.form = FORM_PLAIN, .http = c->request->is_http};
    c->command->read(c);
    if (c->kind != CALL_OP)
        return;
    if (args_has(&c->args, P_STALE))
        c->op.flags |= OP_STALE;
    const char *what = NULL;
    enum belay_err err = op_validate(&c->op, &what);
    if (err != BELAY_OK)
        call_fail(c, err, "%s", what);
    c->manner.op = (uint8_t)c->op.kind;
}

/* A refusal, in the words of its door. */
static bool is_refused(struct call *c)
{
    struct reply *no = rights_refuse(c);
    if (!no)
        return false;
    c->refused = no->err;
    if (c->command->flags & CMD_GLOCK) { /* Glock's paths have error bodies of their own */
        struct reply *r = reply_new(c->arena, REPLY_MAP);
        reply_text(c->arena, r, "error", no->text);
        r->status = err_status(no->err);
        r->headers = no->headers;
        no = r;
    }
    call_answer(c, no);
    return true;
}

/* A client that must log in first is told nothing else. */
static bool is_stranger(struct call *c)
{
    c->kind = CALL_ACTION; /* nothing is known of it yet */
    c->action = ACTION_NONE;
    c->op.kind = OP_TICK;
    return !c->context->who && is_refused(c);
}

/* The same, for a client with the right. */
static void finish(struct call *c)
{
    read_call(c);
    if (c->kind != CALL_REPLY)
        (void)is_refused(c);
}

static void read_resp(struct call *c)
{
    const struct request *req = c->request;
    size_t skip = 0;
    c->command = command_find(req->verb);
    bool both = c->command == &table[CMD_COMMAND] || c->command == &table[CMD_AUTH];
    if ((!c->command || both) && req->n_words > 0) {
        const struct command *sub = find_sub(req->verb, req->words[0]);
        if (sub) {
            c->command = sub;
            skip = 1;
        }
    }
    if (c->command && is_stranger(c))
        return;
    if (!c->command) {
        bool container = is_container(req->verb);
        if (container && req->n_words)
            call_fail(c, BELAY_ERR_UNKNOWN, "unknown sub-command %s of %s",
                      args_quote(c->arena, req->words[0]), args_quote(c->arena, req->verb));
        else
            call_fail(c, BELAY_ERR_UNKNOWN, "%s %s; COMMAND LIST names all commands",
                      container ? "a sub-command is missing behind" : "unknown command",
                      args_quote(c->arena, req->verb));
        return;
    }
    struct reply *fail =
        args_from_words(&c->command->params, skip ? req->words + skip : req->words,
                        req->n_words - skip, c->arena, &c->args);
    if (fail)
        call_answer(c, fail);
    else
        finish(c);
}

/* "application/json; charset=utf-8" is application/json. */
static bool is_media(struct slice type, struct slice want)
{
    const char *end = type.len ? memchr(type.data, ';', type.len) : NULL;
    size_t len = end ? (size_t)(end - type.data) : type.len;
    while (len && (type.data[len - 1] == ' ' || type.data[len - 1] == '\t'))
        len--;
    return slice_eq_nocase(slice_of(type.data, len), want);
}

/* A form is written like a query; what stands in the query already counts there. */
static struct reply *read_form(struct request *req, struct arena *a)
{
    struct request form = {0};
    const char *why = NULL;
    if (!http_read_query(&form, req->body, a, &why))
        return reply_error(a, BELAY_ERR_SYNTAX, "%s", why);
    for (size_t i = 0; i < req->n_fields; i++) {
        size_t same = 0;
        while (same < form.n_fields && !slice_eq(form.fields[same].key, req->fields[i].key))
            same++;
        if (same == REQUEST_FIELDS_MAX)
            return reply_error(a, BELAY_ERR_LIMIT, "more than %d fields", REQUEST_FIELDS_MAX);
        form.fields[same] = req->fields[i];
        form.n_fields += same == form.n_fields;
    }
    req->fields = form.fields;
    req->n_fields = form.n_fields;
    return NULL;
}

static struct reply *read_http_body(struct call *c, struct request *req)
{
    const char *why = NULL;
    if (req->body.len == 0 || c->command->flags & CMD_RAW)
        return NULL;
    if (c->command->flags & CMD_FORM)
        return is_media(req->content_type, SLICE("application/x-www-form-urlencoded"))
                   ? read_form(req, c->arena)
                   : NULL; /* Glock takes any body here and reads none but a form */
    if (!is_media(req->content_type, SLICE("application/json")))
        return reply_error(c->arena, BELAY_ERR_TYPE,
                           "send the body with Content-Type: application/json");
    if (c->command->flags & CMD_JSON)
        return args_set(P_JSON, req->body, c->arena, &c->args);
    if (!http_read_body(req, c->arena, &why))
        return reply_error(c->arena, BELAY_ERR_SYNTAX, "%s", why);
    return NULL;
}

/* Idempotency-Key is the request's id, where the command takes one; others ignore it. */
static struct reply *read_key(struct call *c, const struct request *req)
{
    if (req->idempotency_key.len == 0 || !args_takes(&c->command->params, P_REQUEST))
        return NULL;
    if (args_has(&c->args, P_REQUEST))
        return reply_error(c->arena, BELAY_ERR_SYNTAX,
                           "\"request\" is given, and Idempotency-Key too");
    return args_set(P_REQUEST, req->idempotency_key, c->arena, &c->args);
}

static void read_http(struct call *c, struct request *req)
{
    struct reply *fail = NULL;
    size_t n_query = req->n_fields;
    args_clear(&c->args);
    c->command = route_find(req, c->arena, &c->args, &fail);
    BELAY_CHECK(c->command || fail); /* a command, or why there is none */
    if (c->command && is_stranger(c))
        return;
    if (!fail)
        fail = read_http_body(c, req);
    if (!fail)
        fail = args_from_fields(&c->command->params, req, n_query, c->arena, &c->args);
    if (!fail)
        fail = read_key(c, req);
    if (!fail) {
        finish(c);
        return;
    }
    call_answer(c, fail);
    /* Glock's paths have error bodies of their own */
    if (c->command && c->command->flags & CMD_GLOCK) {
        struct reply *r = reply_new(c->arena, REPLY_MAP);
        reply_text(c->arena, r, "error", fail->text);
        r->status = fail->status ? fail->status : err_status(fail->err);
        c->reply = r;
    }
}

void command_read(struct request *req, const struct context *context, struct arena *a,
                  struct call *ret)
{
    ret->context = context;
    ret->request = req;
    ret->arena = a;
    ret->reply = NULL;
    ret->refused = BELAY_OK;
    ret->number = 0;
    ret->text = ret->peer = slice_of("", 0);
    ret->secret = SLICE("");
    ret->manner = (struct manner){.http = req->is_http};
    if (req->is_http)
        read_http(ret, req);
    else
        read_resp(ret);
    if (ret->command)
        ret->manner.command = (uint8_t)(ret->command - table); /* also of one that is wrong */
}

const char *command_group(const struct command *cmd)
{
    if (cmd->flags & CMD_REDIS)
        return "The Redis lock recipes";
    if (cmd->flags & CMD_GLOCK)
        return "The HTTP lock of Glock";
    if (cmd->flags & CMD_PAGE)
        return "Pages";
    if (cmd->flags & CMD_CONNECTION)
        return "The connection";
    if (cmd >= &table[CMD_AUTH_INIT] && cmd <= &table[CMD_TOKEN_REVOKE])
        return "Accounts and tokens";
    return "Locks, sessions, namespaces, variables";
}

/* Within a table's cell a bar must be escaped, also inside of code. */
static void put_cell(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            buf_put_byte(out, '\\');
        buf_put_byte(out, *text);
    }
}

static void put_row(struct buf *out, const struct command *cmd)
{
    struct buf usage = {0};
    buf_put_str(out, "| ");
    if (cmd->name.data[0] != '/') {
        args_usage(&cmd->params, &usage);
        buf_printf(out, "`%s%s", cmd->name.data, buf_len(&usage) ? " " : "");
        put_cell(out, buf_cstr(&usage));
        buf_put_str(out, "` ");
    }
    buf_put_str(out, "| ");
    if (cmd->path) {
        buf_put_byte(out, '`');
        put_cell(out, cmd->method);
        buf_printf(out, " %s` ", cmd->path);
    }
    buf_put_str(out, "| ");
    put_cell(out, cmd->summary);
    buf_put_str(out, " |\n");
    buf_done(&usage);
}

void command_write_docs(struct buf *out)
{
    const char *group = "";
    for (size_t i = 0; i < COMMAND_COUNT_ALL; i++) {
        if (strcmp(group, command_group(&table[i])) != 0) {
            group = command_group(&table[i]);
            buf_printf(out, "\n### %s\n\n| RESP | HTTP | what it does |\n|---|---|---|\n",
                       group);
        }
        put_row(out, &table[i]);
    }
}
