/* openapi.c - the HTTP API as OpenAPI 3.1: from commands.def and params.def what can be asked, from
 * the table below and schemas.json what is answered. */
#include "command/openapi.h"

#include "base/check.h"
#include "belay_version.h"
#include "command/command.h"
#include "proto/json.h"

#include <ctype.h>
#include <stdio.h>

/* The file is read by the assembler while this one is compiled; the Makefile knows of it. */
__asm__(".pushsection .rodata\n"
        ".globl openapi_schemas\n"
        ".hidden openapi_schemas\n"
        "openapi_schemas:\n"
        ".incbin \"src/command/schemas.json\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char openapi_schemas[] __attribute__((visibility("hidden")));

/* What is answered beside errors: a schema, or with a slash in it a media type, or nothing. */
static const struct answer {
    enum command_id command;
    int status;
    const char *what;
} answers[] = {
    {CMD_ACQUIRE, 200, "Granted"},
    {CMD_ACQUIRE, 202, "Queued"},
    {CMD_ACQUIRE, 408, "LateOrError"},
    {CMD_ACQUIRE, 409, "Conflict"},
    {CMD_RELEASE, 200, "Released"},
    {CMD_RENEW, 200, "Renewed"},
    {CMD_CONVERT, 200, "Granted"},
    {CMD_CONVERT, 202, "Queued"},
    {CMD_CONVERT, 408, "LateOrError"},
    {CMD_CONVERT, 409, "Conflict"},
    {CMD_CHECK, 200, "Checked"},
    {CMD_BODY, 200, "Renewed"},
    {CMD_SHOW, 200, "Lock"},
    {CMD_LIST, 200, "Locks"},
    {CMD_FIND, 200, "Locks"},
    {CMD_GRAPH, 200, "WaitGraph"},
    {CMD_HOLDERS, 200, "Holders"},
    {CMD_WAITERS, 200, "Waiters"},
    {CMD_BREAK, 200, "Broken"},
    {CMD_SESSION_OPEN, 201, "SessionOpened"},
    {CMD_SESSION_KEEPALIVE, 200, "SessionKept"},
    {CMD_SESSION_CLOSE, 200, "SessionClosed"},
    {CMD_SESSION_SHOW, 200, "Session"},
    {CMD_SESSION_LIST, 200, "Sessions"},
    {CMD_SESSION_HOLDS, 200, "SessionHolds"},
    {CMD_SESSION_WAITS, 200, "SessionWaits"},
    {CMD_SESSION_VARIABLES, 200, "SessionVariables"},
    {CMD_NAMESPACE_CREATE, 201, "NamespaceChanged"},
    {CMD_NAMESPACE_SHOW, 200, "Namespace"},
    {CMD_NAMESPACE_LIST, 200, "Namespaces"},
    {CMD_NAMESPACE_UPDATE, 200, "NamespaceChanged"},
    {CMD_NAMESPACE_DELETE, 200, "NamespaceChanged"},
    {CMD_TXN, 200, "TransactionDone"},
    {CMD_TXN, 404, "TransactionOrError"},
    {CMD_TXN, 408, "TransactionOrError"},
    {CMD_TXN, 409, "TransactionOrError"},
    {CMD_TXN, 412, "TransactionOrError"},
    {CMD_TABLE_LIST, 200, "Tables"},
    {CMD_TABLE_SHOW, 200, "Variables"},
    {CMD_CLUSTER_STATUS, 200, "Cluster"},
    {CMD_CLUSTER_ADD, 200, "ClusterChanged"},
    {CMD_CLUSTER_REMOVE, 200, "ClusterChanged"},
    {CMD_CLUSTER_TRANSFER, 200, "ClusterChanged"},
    {CMD_CLUSTER_PRIORITY, 200, "ClusterChanged"},
    {CMD_CLUSTER_LEVEL, 200, "ClusterChanged"},
    {CMD_LOG_LEVEL, 200, "LogLevel"},
    {CMD_WATCH, 200, "text/event-stream"},
    {CMD_EVENTS, 200, "text/event-stream"},
    {CMD_HISTORY, 200, "History"},
    {CMD_AUTH_INIT, 201, "TokenChanged"},
    {CMD_AUTH_WHOAMI, 200, "WhoAmI"},
    {CMD_AUTH_CAN, 200, "Can"},
    {CMD_ACCOUNT_CREATE, 201, "AccountChanged"},
    {CMD_ACCOUNT_LIST, 200, "Accounts"},
    {CMD_ACCOUNT_SHOW, 200, "Account"},
    {CMD_ACCOUNT_UPDATE, 200, "AccountChanged"},
    {CMD_ACCOUNT_DELETE, 200, "AccountChanged"},
    {CMD_TOKEN_CREATE, 201, "TokenChanged"},
    {CMD_TOKEN_LIST, 200, "Tokens"},
    {CMD_TOKEN_ROTATE, 200, "TokenChanged"},
    {CMD_TOKEN_REVOKE, 200, "TokenChanged"},
    {CMD_GLOCK_ACQUIRE, 200, "Glock"},
    {CMD_GLOCK_NO_FENCE, 200, ""},
    {CMD_GLOCK_BODY, 200, ""},
    {CMD_GLOCK_RELEASE, 200, ""},
    {CMD_GLOCK_HEARTBEAT, 200, ""},
    {CMD_QUEUE_PUSH, 201, "Any"},
    {CMD_QUEUE_LIST, 200, "Any"},
    {CMD_QUEUE_PAUSE, 200, "Any"},
    {CMD_QUEUE_RESUME, 200, "Any"},
    {CMD_QUEUE_RETRY, 200, "Any"},
    {CMD_QUEUE_CANCEL, 200, "Any"},
    {CMD_QUEUE_KEEP, 200, "Any"},
    {CMD_STATS, 200, "Stats"},
    {CMD_OPENAPI, 200, "Any"},
    {CMD_HOME, 200, "text/plain"},
    {CMD_CONSOLE_JS, 200, "text/javascript"},
    {CMD_CONSOLE_CSS, 200, "text/css"},
    {CMD_HEALTHZ, 200, "text/plain"},
    {CMD_READYZ, 200, "text/plain"},
    {CMD_READYZ, 503, "text/plain"},
    {CMD_METRICS, 200, "text/plain"},
};

static const char *const ids[COMMAND_COUNT_ALL] = {
#define CMD(id, name, fn, flags, need, again, method, path, positions, options, summary)       \
    [CMD_##id] = #id,
#include "command/commands.def"
#undef CMD
};

static void put_string(struct buf *out, const char *text)
{
    json_put_string(out, slice_str(text));
}

/* "SESSION_OPEN" and "post": sessionOpen. A second method of the same command is told apart. */
static void put_id(struct buf *out, enum command_id id, struct slice method, bool first)
{
    bool up = false;
    buf_put_str(out, "\"operationId\":\"");
    for (const char *p = ids[id]; *p; p++) {
        if (*p != '_')
            buf_put_byte(out, (char)(up ? *p : tolower((unsigned char)*p)));
        up = *p == '_';
    }
    if (!first)
        buf_put_slice(out, method);
    buf_put_byte(out, '"');
}

static bool is_in_path(const struct command *cmd, enum param p)
{
    char place[64];
    (void)snprintf(place, sizeof place, "{%s}", args_member(p));
    return strstr(cmd->path, place) != NULL;
}

/* Calls `put` for each parameter that is not in the path; `required` for the positions. */
static void each_field(const struct command *cmd,
                       void (*put)(void *ctx, enum param p, bool required), void *ctx)
{
    const uint8_t *lists[] = {cmd->params.positions, cmd->params.options};
    for (int list = 0; list < 2; list++)
        for (const uint8_t *at = lists[list]; *at != P_NONE; at++) {
            enum param p = (enum param) * at;
            bool taken = is_in_path(cmd, p) || p == P_JSON || p == P_IDS || p == P_RAW_BODY;
            if (!taken && p == P_HOLD) { /* one of the two */
                put(ctx, P_FENCE, false);
                put(ctx, P_OWNER, false);
            } else if (!taken) {
                put(ctx, p, list == 0);
            }
        }
}

/* --- parameters --- */

struct param_writer {
    struct buf *out;
    const char *comma;
    bool required; /* only the names of those that are */
};

static void put_parameter(struct param_writer *w, const char *in, const char *name,
                          bool required, enum param p)
{
    buf_printf(w->out, "%s{\"name\":\"%s\",\"in\":\"%s\",\"required\":%s,\"schema\":", w->comma,
               name, in, required ? "true" : "false");
    args_schema(p, w->out);
    buf_put_byte(w->out, '}');
    w->comma = ",";
}

static void put_query(void *ctx, enum param p, bool required)
{
    put_parameter(ctx, "query", args_member(p), required, p);
}

static bool has_body(const struct command *cmd, struct slice method)
{
    return !slice_eq(method, SLICE("GET")) && !slice_eq(method, SLICE("DELETE")) &&
           !(cmd->flags & CMD_FORM);
}

static void put_parameters(struct buf *out, const struct command *cmd, struct slice method)
{
    struct param_writer w = {.out = out, .comma = ""};
    buf_put_str(out, ",\"parameters\":[");
    for (const char *p = strchr(cmd->path, '{'); p; p = strchr(p + 1, '{')) {
        char name[32];
        size_t len = strcspn(p + 1, "}");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, p + 1);
        put_parameter(&w, "path", name, true,
                      args_param_of_path(&cmd->params, slice_of(p + 1, len)));
    }
    if (!has_body(cmd, method))
        each_field(cmd, put_query, &w);
    if (args_takes(&cmd->params, P_REQUEST))
        put_parameter(&w, "header", "Idempotency-Key", false, P_REQUEST);
    buf_put_byte(out, ']');
}

/* --- bodies --- */

static void put_property(void *ctx, enum param p, bool required)
{
    struct param_writer *w = ctx;
    if (w->required && !required)
        return;
    buf_put_str(w->out, w->comma);
    put_string(w->out, args_member(p));
    if (!w->required) {
        buf_put_byte(w->out, ':');
        args_schema(p, w->out);
    }
    w->comma = ",";
}

static void put_body(struct buf *out, const struct command *cmd)
{
    if (cmd->flags & CMD_RAW) {
        buf_put_str(out, ",\"requestBody\":{\"content\":{\"application/octet-stream\":{}}}");
        return;
    }
    buf_put_str(out,
                ",\"requestBody\":{\"content\":{\"application/json\":{\"schema\":{\"type\":"
                "\"object\"");
    if (!(cmd->flags & CMD_JSON)) {
        struct param_writer w = {.out = out, .comma = ""};
        struct param_writer required = {.out = out, .comma = "", .required = true};
        buf_put_str(out, ",\"additionalProperties\":false,\"properties\":{");
        each_field(cmd, put_property, &w);
        buf_put_str(out, "},\"required\":[");
        each_field(cmd, put_property, &required);
        buf_put_byte(out, ']');
    }
    buf_put_str(out, "}}}}");
}

/* --- answers --- */

static void put_schema(struct buf *out, const char *media, const char *schema)
{
    buf_printf(out, "\"%s\":{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}", media,
               schema);
}

static void put_answer(struct buf *out, const struct answer *a)
{
    bool is_error = a->status >= 400;
    buf_printf(out, "\"%d\":{\"description\":", a->status);
    put_string(out, is_error ? "no, and why" : "done");
    if (strchr(a->what, '/')) {
        buf_printf(out, ",\"content\":{\"%s\":{\"schema\":{\"type\":\"string\"}}}", a->what);
    } else if (strcmp(a->what, "Any") == 0) {
        buf_put_str(out, ",\"content\":{\"application/json\":{\"schema\":{}}}");
    } else if (*a->what) {
        buf_put_str(out, ",\"content\":{");
        put_schema(out, "application/json", a->what);
        if (is_error) {
            buf_put_byte(out, ',');
            put_schema(out, "application/problem+json", "Problem");
        }
        buf_put_byte(out, '}');
    }
    buf_put_str(out, "},");
}

static void put_answers(struct buf *out, const struct command *cmd, enum command_id id)
{
    buf_put_str(out, ",\"responses\":{");
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (answers[i].command == id)
            put_answer(out, &answers[i]);
    if (id == CMD_SHOW || id == CMD_CLUSTER_STATUS)
        buf_put_str(out, "\"304\":{\"description\":\"it has that ETag\"},");
    buf_put_str(out, "\"default\":{\"description\":\"an error\",\"content\":{");
    if (cmd->flags & CMD_GLOCK) {
        put_schema(out, "application/json", "GlockError");
    } else {
        put_schema(out, "application/json", "Error");
        buf_put_byte(out, ',');
        put_schema(out, "application/problem+json", "Problem");
    }
    buf_put_str(out, "}}}");
}

/* --- paths --- */

static void put_operations(struct buf *out, enum command_id id, const char **comma)
{
    const struct command *cmd = command_get(id);
    for (const char *p = cmd->method; *p;) {
        size_t len = strcspn(p, "|");
        struct slice method = slice_of(p, len);
        buf_printf(out, "%s\"", *comma);
        for (size_t i = 0; i < len; i++)
            buf_put_byte(out, (char)tolower((unsigned char)p[i]));
        buf_put_str(out, "\":{");
        put_id(out, id, method, p == cmd->method);
        buf_put_str(out, ",\"summary\":");
        put_string(out, cmd->summary);
        buf_put_str(out, ",\"tags\":[");
        put_string(out, command_group(cmd));
        buf_put_byte(out, ']');
        if (cmd->need == NEED_NOTHING)
            buf_put_str(out, ",\"security\":[]");
        put_parameters(out, cmd, method);
        if (has_body(cmd, method))
            put_body(out, cmd);
        put_answers(out, cmd, id);
        buf_put_byte(out, '}');
        *comma = ",";
        p += p[len] ? len + 1 : len;
    }
}

static bool is_first(int id)
{
    const char *path = command_get((enum command_id)id)->path;
    for (int other = 0; path && other < id; other++) {
        const char *before = command_get((enum command_id)other)->path;
        if (before && strcmp(before, path) == 0)
            return false;
    }
    return path != NULL;
}

void openapi_write(struct buf *out)
{
    const char *comma = "";
    buf_printf(out,
               "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Belay\",\"version\":\"%s\","
               "\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"},"
               "\"description\":\"Locks and coordination. docs/PROTOCOL.md says what all of it "
               "means.\"},\"servers\":[{\"url\":\"/\"}],"
               "\"security\":[{},{\"token\":[]},{\"basic\":[]}],\"paths\":{",
               BELAY_VERSION);
    for (int id = 0; id < COMMAND_COUNT_ALL; id++) {
        const char *inner = "";
        if (!is_first(id))
            continue;
        const char *path = command_get((enum command_id)id)->path;
        buf_printf(out, "%s\"%s\":{", comma, path);
        for (int same = id; same < COMMAND_COUNT_ALL; same++) {
            const char *other = command_get((enum command_id)same)->path;
            if (other && strcmp(other, path) == 0)
                put_operations(out, (enum command_id)same, &inner);
        }
        buf_put_byte(out, '}');
        comma = ",";
    }
    buf_printf(out,
               "},\"components\":{\"securitySchemes\":{\"token\":{\"type\":\"http\","
               "\"scheme\":\"bearer\"},\"basic\":{\"type\":\"http\",\"scheme\":\"basic\"}},"
               "\"schemas\":{\"Code\":{\"type\":\"string\",\"enum\":[\"%s\"",
               err_word(BELAY_ERR_SYNTAX));
#define X(id, word, status, text)                                                              \
    if ((id) > BELAY_ERR_SYNTAX && (id) != BELAY_ERR_LOGIN)                                    \
        buf_put_str(out, ",\"" word "\"");
    BELAY_ERR_MAP(X)
#undef X
    buf_put_str(out, "]},");
    buf_put_str(out, openapi_schemas);
    buf_put_str(out, "}}}\n");
}
