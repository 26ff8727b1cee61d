/* test_rights.c - every command x every right x every door: who is let through to the engine.
 *
 * The table below says what each command takes, apart from commands.def: a command that is not
 * in it fails the test, and so does a row for one that is gone. Requests are made from the
 * parameters of each row. */
#include "auth/rule.h"
#include "command/command.h"
#include "command/scripts.h"
#include "proto/http.h"
#include "proto/resp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

/* '-': nobody has to log in; '*': any token; 's': lock, wherever; else the letter of a verb. */
static const struct {
    const char *name;
    char takes;
} rows[] = {
    {"ACQUIRE", 'l'},
    {"RELEASE", 'l'},
    {"RENEW", 'l'},
    {"CONVERT", 'l'},
    {"CHECK", 'r'},
    {"BODY", 'l'},
    {"SHOW", 'r'},
    {"LIST", 'r'},
    {"FIND", '*'},
    {"GRAPH", '*'},
    {"HOLDERS", 'r'},
    {"WAITERS", 'r'},
    {"SESSION HOLDS", 's'},
    {"SESSION WAITS", 's'},
    {"SESSION VARIABLES", 's'},
    {"/events", '*'},
    {"HISTORY", 'r'},
    {"BREAK", 'b'},
    {"SESSION OPEN", 's'},
    {"SESSION ATTACH", 's'},
    {"SESSION KEEPALIVE", 's'},
    {"SESSION CLOSE", 's'},
    {"SESSION SHOW", 's'},
    {"SESSION LIST", 's'},
    {"NAMESPACE CREATE", 'a'},
    {"NAMESPACE SHOW", 'r'},
    {"NAMESPACE LIST", '*'},
    {"NAMESPACE UPDATE", 'a'},
    {"NAMESPACE DELETE", 'a'},
    {"TXN", 'l'},
    {"TABLE LIST", 'r'},
    {"TABLE SHOW", 'r'},
    {"CLUSTER STATUS", 'c'},
    {"CLUSTER ADD", 'c'},
    {"CLUSTER REMOVE", 'c'},
    {"CLUSTER TRANSFER", 'c'},
    {"CLUSTER PRIORITY", 'c'},
    {"LOG LEVEL", 'c'},
    {"CLUSTER LEVEL", 'c'},
    {"BACKUP START", 'c'},
    {"BACKUP READ", 'c'},
    {"USE", '*'},
    {"WATCH", 'r'},
    {"UNWATCH", '*'},
    {"HELLO", '-'},
    {"AUTH", '-'},
    {"PING", '-'},
    {"ECHO", '-'},
    {"QUIT", '-'},
    {"RESET", '-'},
    {"SELECT", '*'},
    {"CLIENT ID", '*'},
    {"CLIENT SETNAME", '*'},
    {"CLIENT GETNAME", '*'},
    {"CLIENT SETINFO", '*'},
    {"CONFIG GET", '*'},
    {"COMMAND", '*'},
    {"COMMAND COUNT", '*'},
    {"COMMAND DOCS", '*'},
    {"COMMAND LIST", '*'},
    {"COMMAND INFO", '*'},
    {"INFO", '*'},
    {"AUTH INIT", '-'},
    {"AUTH WHOAMI", '*'},
    {"AUTH CAN", '*'},
    {"ACCOUNT CREATE", 'A'},
    {"ACCOUNT LIST", 'A'},
    {"ACCOUNT SHOW", 'A'},
    {"ACCOUNT UPDATE", 'A'},
    {"ACCOUNT DELETE", 'A'},
    {"TOKEN CREATE", 'A'},
    {"TOKEN LIST", 'A'},
    {"TOKEN ROTATE", 'A'},
    {"TOKEN REVOKE", 'A'},
    {"SET", 'l'},
    {"SETNX", 'l'},
    {"GET", 'r'},
    {"DEL", 'l'},
    {"UNLINK", 'l'},
    {"EXISTS", 'r'},
    {"PTTL", 'r'},
    {"TTL", 'r'},
    {"PEXPIRE", 'l'},
    {"EXPIRE", 'l'},
    {"ZREM", 'l'},
    {"EVAL", 'l'},
    {"EVALSHA", 'l'},
    {"SCRIPT LOAD", '*'},
    {"SCRIPT EXISTS", '*'},
    {"SCRIPT FLUSH", '*'},
    {"/glock-acquire", 'l'},
    {"/glock-no-fence", '*'},
    {"/glock-body", 'l'},
    {"/glock-release", 'l'},
    {"/glock-heartbeat", 'l'},
    {"/queue-push", 'l'},
    {"/queue-list", 'r'},
    {"/queue-pause", 'a'},
    {"/queue-resume", 'a'},
    {"/queue-retry", 'a'},
    {"/queue-cancel", 'a'},
    {"/queue-keep", 'a'},
    {"/home", '-'},
    {"/console-js", '-'},
    {"/console-css", '-'},
    {"/healthz", '-'},
    {"/readyz", '-'},
    {"/stats", '*'},
    {"/openapi", '*'},
    {"/metrics", '*'},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Each right alone, for everything; then for a namespace and for a name that are not asked for.
 */
static const struct {
    char letter;
    const char *rule;
} rights[] = {
    {'r', "read *"},      {'l', "lock *"},      {'b', "break *"},       {'a', "admin *"},
    {'c', "cluster"},     {'A', "accounts"},    {'-', "read other"},    {'-', "lock other"},
    {'-', "break other"}, {'-', "admin other"}, {'-', "break */other"}, {'-', "admin */other"},
};
enum { RIGHTS = sizeof rights / sizeof *rights };

static struct arena arena;
static struct scripts *scripts;
static const char unlock_script[] =
    "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else "
    "return 0 end";

static const char *sample(enum param p, const struct command *cmd)
{
    static const struct {
        enum param p;
        const char *text;
    } samples[] = {
        {P_NUMBER, "1"},
        {P_HOLD, "7"},
        {P_FENCE, "7"},
        {P_PATH_FENCE, "7"},
        {P_PRIORITY, "7"},
        {P_LEVEL, "2"},
        {P_BACKUP, "7"},
        {P_OFFSET, "7"},
        {P_SCRIPT, unlock_script},
        {P_JSON, "{\"session\":\"s\",\"statements\":[{\"assert\":{\"lock\":{\"name\":\"n\","
                 "\"owner\":\"o\"}}}]}"},
        {P_EMAIL, "a@b"},
        {P_VERB, "read"},
        {P_LOG_LEVEL, "info"},
        {P_ACCOUNT, "0123456789abcdef"},
        {P_ID, "0123456789abcdef"},
        {P_PEER, "127.0.0.1:7"},
    };
    if (slice_eq(cmd->name, SLICE("SELECT")))
        return "0";
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (samples[i].p == p)
            return samples[i].text;
    return "n";
}

static void put_word(struct buf *out, const char *word)
{
    buf_printf(out, "$%zu\r\n%s\r\n", strlen(word), word);
}

/* The words behind the positions that some commands need. */
static const char *const *tail_of(const struct command *cmd)
{
    static const char *const set[] = {"NX", NULL}, *const eval[] = {"n", "o", NULL},
                             *const convert[] = {"MODE", "shared", NULL},
                             *const auth[] = {"x", NULL}, *const none[] = {NULL};
    if (slice_eq(cmd->name, SLICE("SET")))
        return set;
    if (slice_eq(cmd->name, SLICE("EVAL")) || slice_eq(cmd->name, SLICE("EVALSHA")))
        return eval;
    if (slice_eq(cmd->name, SLICE("CONVERT")))
        return convert;
    return slice_eq(cmd->name, SLICE("AUTH")) ? auth : none;
}

static void put_resp(const struct command *cmd, const char *sha, struct buf *out)
{
    struct buf words = {0};
    size_t n = 0;
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)cmd->name.len, cmd->name.data);
    for (char *word = strtok(name, " "); word; word = strtok(NULL, " "), n++)
        put_word(&words, word);
    for (const uint8_t *p = cmd->params.positions; *p != P_NONE; p++) {
        if (*p == P_WORDS)
            continue;
        bool by_sha = *p == P_SCRIPT && slice_eq(cmd->name, SLICE("EVALSHA"));
        put_word(&words, by_sha ? sha : sample((enum param) * p, cmd));
        n++;
    }
    for (const char *const *word = tail_of(cmd); *word; word++, n++)
        put_word(&words, *word);
    buf_printf(out, "*%zu\r\n%s", n, buf_cstr(&words));
    buf_done(&words);
}

static void put_path(const struct command *cmd, struct buf *out)
{
    for (const char *p = cmd->path; *p;) {
        if (*p != '{') {
            buf_put_byte(out, *p++);
            continue;
        }
        size_t len = strcspn(p, "}");
        enum param param = args_param_of_path(&cmd->params, slice_of(p + 1, len - 1));
        buf_put_str(out, param == P_NS ? "default" : sample(param, cmd));
        p += len + 1;
    }
}

/* Members for the positions that the path does not bring. */
static void put_json(const struct command *cmd, struct buf *out)
{
    const char *comma = "";
    if (cmd->flags & CMD_JSON) {
        buf_put_str(out, sample(P_JSON, cmd));
        return;
    }
    buf_put_byte(out, '{');
    for (const uint8_t *p = cmd->params.positions; *p != P_NONE; p++) {
        const char *member = *p == P_OWNER                                  ? "owner"
                             : *p == P_BODY                                 ? "body"
                             : *p == P_EMAIL                                ? "email"
                             : *p == P_PEER                                 ? "peer"
                             : *p == P_HOLD                                 ? "fence"
                             : *p == P_PRIORITY                             ? "priority"
                             : *p == P_LEVEL || *p == P_LOG_LEVEL           ? "level"
                             : *p == P_NEW_NS || *p == P_FULL_NAME          ? "name"
                             : *p == P_NAME && !strstr(cmd->path, "{name}") ? "name"
                                                                            : NULL;
        if (!member)
            continue;
        bool number = *p == P_HOLD || *p == P_PRIORITY || *p == P_LEVEL;
        const char *quote = number ? "" : "\"";
        buf_printf(out, "%s\"%s\":%s%s%s", comma, member, quote, sample((enum param) * p, cmd),
                   quote);
        comma = ",";
    }
    if (strcmp(cmd->path, "/v1/namespaces/{ns}/locks/{name}/convert") == 0)
        buf_printf(out, "%s\"mode\":\"shared\"", comma);
    buf_put_byte(out, '}');
}

static void put_http(const struct command *cmd, struct buf *out)
{
    struct buf body = {0};
    bool reads = strcmp(cmd->method, "GET") == 0;
    put_json(cmd, &body);
    if (reads || cmd->flags & CMD_FORM || strcmp(buf_cstr(&body), "{}") == 0)
        buf_clear(&body);
    buf_printf(out, "%.*s ", (int)strcspn(cmd->method, "|"), cmd->method);
    put_path(cmd, out);
    if (strcmp(cmd->path, "/v1/auth/can") == 0)
        buf_put_str(out, "?verb=read");
    if (strcmp(cmd->path, "/v1/history") == 0)
        buf_put_str(out, "?name=n");
    if (cmd->flags & CMD_FORM)
        buf_put_str(out, "?nonce=x");
    buf_printf(out,
               " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               buf_len(&body), buf_cstr(&body));
    buf_done(&body);
}

/* What became of it: 'y' let through, 'n' refused for its rights, '?' not understood. */
static char ask(const struct command *cmd, bool http, const struct machine_token *who)
{
    static struct call call;
    struct buf bytes = {0};
    struct request req = {0};
    struct http_error bad = {0};
    const char *why = NULL;
    size_t used;
    char sha[SCRIPT_SHA_BYTES + 1] = "";
    arena_reset(&arena);
    (void)scripts_learn(scripts, slice_str(unlock_script), sha);
    sha[SCRIPT_SHA_BYTES] = '\0';
    if (http) {
        put_http(cmd, &bytes);
        assert_int_equal(http_next(buf_slice(&bytes), &arena, &req, &used, &bad), HTTP_DONE);
    } else {
        put_resp(cmd, sha, &bytes);
        assert_int_equal(resp_next(buf_slice(&bytes), &arena, &req, &used, &why), RESP_DONE);
    }
    struct context context = {.account = SLICE("default"),
                              .ns = SLICE("default"),
                              .resp = http ? 0 : 3,
                              .target = 1,
                              .scripts = scripts,
                              .closed = true,
                              .who = who,
                              .generation = 1,
                              .wall_ms = 1};
    command_read(&req, &context, &arena, &call);
    char found = call.command == cmd ? 'y' : '?';
    if (call.kind == CALL_REPLY) {
        const struct reply *r = call.reply;
        bool error = r->kind == REPLY_ERROR;
        int status = error ? err_status(r->err) : r->status;
        if (status == (who ? 403 : 401))
            found = 'n';
        else if (error && r->err != BELAY_ERR_NOT_FOUND)
            found = '?';
    } else if (found == 'y' && call.kind == CALL_OP) {
        assert_int_equal(call.op.token, who ? who->number : 0);
    }
    if (found == '?')
        print_error("%s\n", buf_cstr(&bytes));
    buf_done(&bytes);
    return found;
}

static size_t row_of(const struct command *cmd)
{
    for (size_t i = 0; i < ROWS; i++)
        if (slice_eq(cmd->name, slice_str(rows[i].name)))
            return i;
    fail_msg("%s: say in the table of this test what it takes", cmd->name.data);
    return 0;
}

static void check(const struct command *cmd, bool http, size_t *cells)
{
    char takes = rows[row_of(cmd)].takes;
    for (size_t r = 0; r <= RIGHTS; r++) {
        struct buf rule = {0};
        struct machine_token who = {.number = 9, .account = SLICE("default")};
        if (r < RIGHTS)
            assert_null(rule_read(slice_str(rights[r].rule), &rule));
        who.rules = buf_slice(&rule);
        char want = takes == '-' ? 'y' : 'n';
        if (r < RIGHTS && (takes == '*' || takes == rights[r].letter))
            want = 'y';
        if (r < RIGHTS && takes == 's' && strncmp(rights[r].rule, "lock", 4) == 0)
            want = 'y';
        char got = ask(cmd, http, r < RIGHTS ? &who : NULL);
        if (got != want)
            fail_msg("%s, %s, %s: %c", cmd->name.data, http ? "HTTP" : "RESP",
                     r < RIGHTS ? rights[r].rule : "nobody", got);
        ++*cells;
        buf_done(&rule);
    }
}

static void every_command_every_right_every_door(void **state)
{
    (void)state;
    size_t cells = 0;
    assert_int_equal(ROWS, COMMAND_COUNT_ALL);
    for (int i = 0; i < COMMAND_COUNT_ALL; i++) {
        const struct command *cmd = command_get((enum command_id)i);
        if (cmd->name.data[0] != '/')
            check(cmd, false, &cells);
        if (cmd->path)
            check(cmd, true, &cells);
    }
    print_message("%zu cells\n", cells);
    assert_true(cells > 1500);
}

/* Every name of several, and every operator of a transaction. */
static void each_name_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        bool may;
    } asks[] = {
        {"DEL db1 db2", true},
        {"DEL db1 x", false},
        {"DEL x db1", false},
        {"EVAL \""
         "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
         "\" 1 x o",
         false},
        {"EVAL \""
         "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
         "\" 1 db o",
         true},
        {"TXN '{\"session\":\"s\",\"statements\":[{\"assert\":{\"lock\":{\"name\":\"db\",\"owner\":\"o\"}}}]}'",
         true},
        {"TXN '{\"session\":\"s\",\"statements\":[{\"if\":{\"cond\":{\"false\":{}},\"then\":{\"anyway\":"
         "{\"unlock\":{\"name\":\"x\",\"fence\":1}}}}}]}'",
         false},
        {"TXN '{\"session\":\"s\",\"statements\":[{\"assert\":{\"or\":[{\"true\":{}},{\"set\":"
         "{\"table\":\"t\",\"key\":\"db\",\"value\":1}}]}}]}'",
         false},
        {"TXN '{\"session\":\"s\",\"statements\":[{\"select\":{\"into\":\"x\",\"table\":\"db\",\"key\":\"db\"}}]}'",
         false},
        {"TXN '{\"session\":\"s\",\"statements\":[{\"assert\":{\"true\":{}}}]}'", true},
        {"TABLE SHOW db", false},
        {"LIST", true},
        {"LIST PREFIX x", true}, /* and shows nothing */
    };
    struct buf rules = {0};
    assert_null(rule_read(SLICE("read,lock default/db*"), &rules));
    struct machine_token who = {
        .number = 9, .account = SLICE("default"), .rules = buf_slice(&rules)};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        static struct call call;
        struct buf bytes = {0};
        struct request req = {0};
        const char *why = NULL;
        size_t used;
        arena_reset(&arena);
        buf_printf(&bytes, "%s\r\n", asks[i].words);
        assert_int_equal(resp_next(buf_slice(&bytes), &arena, &req, &used, &why), RESP_DONE);
        struct context context = {.account = SLICE("default"),
                                  .ns = SLICE("default"),
                                  .resp = 3,
                                  .scripts = scripts,
                                  .closed = true,
                                  .who = &who,
                                  .generation = 1};
        command_read(&req, &context, &arena, &call);
        bool may = call.kind != CALL_REPLY;
        if (!may && (call.reply->kind != REPLY_ERROR || call.reply->err != BELAY_ERR_DENIED))
            fail_msg("%s: %.*s", asks[i].words, (int)call.reply->text.len,
                     call.reply->text.data);
        if (may != asks[i].may)
            fail_msg("%s", asks[i].words);
        buf_done(&bytes);
    }
    buf_done(&rules);
}

static int begin(void **state)
{
    (void)state;
    scripts = scripts_open();
    return 0;
}

static int end(void **state)
{
    (void)state;
    scripts_close(scripts);
    arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_every_right_every_door),
        cmocka_unit_test(each_name_is_checked),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
