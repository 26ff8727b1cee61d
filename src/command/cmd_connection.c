/* cmd_connection.c - what clients say about the connection itself, and what they ask on
 * connect. */
#include "base/log.h"
#include "command/command.h"
#include "command/openapi.h"
#include "machine/event.h"

#include <assert.h>
#include <ctype.h>

static_assert(EVENT_KIND_COUNT <= 64, "kinds are bits");

void cmd_use(
    struct call *c) /* whether it exists is found when it is used: nothing is read here */
{
    c->text = args_text(&c->args, P_NS);
    call_act(c, ACTION_USE);
}

/* "granted,released": bits of enum event_kind. False: it has been refused. */
static bool read_kinds(struct call *c, struct slice words, uint64_t *ret)
{
    *ret = 0;
    while (words.len) {
        const char *comma = memchr(words.data, ',', words.len);
        size_t len = comma ? (size_t)(comma - words.data) : words.len;
        struct slice word = slice_of(words.data, len);
        int kind = 0;
        while (kind < EVENT_KIND_COUNT &&
               !slice_eq(word, slice_str(event_word((enum event_kind)kind))))
            kind++;
        if (kind == EVENT_KIND_COUNT) {
            call_fail(c, BELAY_ERR_SYNTAX, "there is no event %s", args_quote(c->arena, word));
            return false;
        }
        *ret |= UINT64_C(1) << kind;
        len += comma != NULL;
        words = slice_of(words.data + len, words.len - len);
    }
    return true;
}

void cmd_watch(struct call *c)
{
    c->text = args_text(&c->args, P_PREFIX);
    if (c->command == command_get(CMD_EVENTS))
        c->op.ns = args_text(&c->args, P_NS);
    if (!read_kinds(c, args_text(&c->args, P_KINDS), &c->kinds))
        return;
    c->number = args_number(&c->args, P_SINCE, 0);
    if (c->request->last_event_id.len &&
        (!args_parse_u64(c->request->last_event_id, &c->number) || c->number > INT64_MAX)) {
        call_fail(c, BELAY_ERR_SYNTAX, "Last-Event-ID must be the number of an event");
        return;
    }
    if (args_has(&c->args, P_SINCE) || c->request->last_event_id.len)
        c->number++; /* the first one wanted is the one behind it */
    if (c->context->resp == 2) {
        call_fail(c, BELAY_ERR_SYNTAX, "WATCH needs RESP3: send HELLO 3 first");
        return;
    }
    call_act(c, ACTION_WATCH);
}

void cmd_history(struct call *c)
{
    c->op.name = args_text(&c->args, P_NAME);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
    call_act(c, ACTION_HISTORY);
}

void cmd_unwatch(struct call *c)
{
    call_act(c, ACTION_UNWATCH);
}

/* HELLO [2|3 [AUTH user password] [SETNAME name]] */
void cmd_hello(struct call *c)
{
    const struct slice *w = c->args.rest;
    size_t n = c->args.n_rest;
    c->number = 0;
    c->text = SLICE("");
    if (n && (!args_parse_u64(w[0], &c->number) || c->number < 2 || c->number > 3)) {
        call_fail(c, BELAY_ERR_NO_PROTO,
                  "unsupported protocol version; RESP 2 and 3 are known");
        return;
    }
    for (size_t i = 1; i < n; i++) {
        if (slice_eq_nocase(w[i], SLICE("SETNAME")) && i + 1 < n) {
            c->text = w[++i];
        } else if (slice_eq_nocase(w[i], SLICE("AUTH")) && i + 2 < n) {
            c->peer = w[i + 1];
            c->secret = w[i + 2];
            i += 2;
        } else {
            call_fail(c, BELAY_ERR_SYNTAX,
                      "unknown word %s; HELLO takes: [2|3 [AUTH id secret] [SETNAME name]]",
                      args_quote(c->arena, w[i]));
            return;
        }
    }
    call_act(c, ACTION_HELLO);
}

/* AUTH token, or AUTH id secret */
void cmd_auth(struct call *c)
{
    size_t n = c->args.n_rest;
    if (n != 1 && n != 2) {
        call_fail(c, BELAY_ERR_SYNTAX, "AUTH takes a token, or its id and its secret");
        return;
    }
    c->peer = n == 2 ? c->args.rest[0] : SLICE("");
    c->secret = c->args.rest[n - 1];
    call_act(c, ACTION_LOGIN);
}

void cmd_ping(struct call *c)
{
    if (c->args.n_rest == 0) {
        call_answer_status(c, "PONG");
    } else if (c->args.n_rest == 1) {
        call_answer(c, reply_text(c->arena, NULL, NULL, c->args.rest[0]));
    } else {
        call_fail(c, BELAY_ERR_SYNTAX, "PING takes one text at most");
    }
}

void cmd_echo(struct call *c)
{
    call_answer(c, reply_text(c->arena, NULL, NULL, args_text(&c->args, P_TEXT)));
}

void cmd_quit(struct call *c)
{
    call_act(c, ACTION_QUIT);
}

void cmd_reset(struct call *c)
{
    call_act(c, ACTION_RESET);
}

void cmd_select(struct call *c)
{
    if (args_number(&c->args, P_NUMBER, 0) == 0)
        call_answer_status(c, "OK");
    else
        call_fail(c, BELAY_ERR_RANGE, "there is only database 0; USE chooses a namespace");
}

void cmd_client_id(struct call *c)
{
    call_act(c, ACTION_CLIENT_ID);
}

void cmd_client_setname(struct call *c)
{
    c->text = args_text(&c->args, P_TEXT);
    for (size_t i = 0; i < c->text.len; i++) {
        if (c->text.data[i] <= ' ' || c->text.data[i] > '~') {
            call_fail(c, BELAY_ERR_SYNTAX, "a name has printable characters without spaces");
            return;
        }
    }
    call_act(c, ACTION_SETNAME);
}

void cmd_client_getname(struct call *c)
{
    call_act(c, ACTION_GETNAME);
}

void cmd_client_setinfo(struct call *c)
{
    call_answer_status(c, "OK");
}

/* Nothing is configured this way; what tools ask for has the answer that is true here. */
void cmd_config_get(struct call *c)
{
    static const char *const known[][2] = {
        {"save", ""}, {"appendonly", "no"}, {"databases", "1"}};
    struct reply *map = reply_new(c->arena, REPLY_MAP);
    for (size_t i = 0; i < c->args.n_rest; i++) {
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            if (slice_eq_nocase(c->args.rest[i], slice_str(known[k][0])))
                reply_text(c->arena, map, known[k][0], slice_str(known[k][1]));
        }
    }
    call_answer(c, map);
}

void cmd_cluster_status(struct call *c)
{
    call_act(c, ACTION_CLUSTER);
}

void cmd_cluster_add(struct call *c)
{
    c->text = args_text(&c->args, P_NAME);
    c->peer = args_text(&c->args, P_PEER);
    call_act(c, ACTION_CLUSTER);
}

void cmd_cluster_remove(struct call *c)
{
    c->text = args_text(&c->args, P_NAME);
    call_act(c, ACTION_CLUSTER);
}

void cmd_cluster_transfer(struct call *c)
{
    c->text = args_text(&c->args, P_NAME);
    c->number = args_number(&c->args, P_SHARD, 0);
    call_act(c, ACTION_CLUSTER);
}

void cmd_cluster_priority(struct call *c)
{
    c->text = args_text(&c->args, P_NAME);
    c->number = args_number(&c->args, P_PRIORITY, 0);
    call_act(c, ACTION_CLUSTER);
}

void cmd_log_level(struct call *c)
{
    enum log_level level;
    struct slice word = args_text(&c->args, P_LOG_LEVEL);
    if (!log_level_of(word, &level)) {
        call_fail(c, BELAY_ERR_SYNTAX, "a level is error, warn, info or debug, not %s",
                  args_quote(c->arena, word));
        return;
    }
    c->number = (uint64_t)level;
    call_act(c, ACTION_LOG_LEVEL);
}

void cmd_cluster_level(struct call *c)
{
    c->number = args_number(&c->args, P_LEVEL, 0);
    call_act(c, ACTION_CLUSTER);
}

void cmd_backup(struct call *c)
{
    c->number = args_number(&c->args, P_BACKUP, 0);
    call_act(c, ACTION_CLUSTER);
}

void cmd_info(struct call *c)
{
    call_act(c, ACTION_INFO);
}

static bool is_resp(const struct command *cmd)
{
    return cmd->name.data[0] != '/';
}

static struct slice lower(struct arena *a, struct slice s)
{
    char *text = arena_alloc(a, s.len + 1);
    for (size_t i = 0; i < s.len; i++)
        text[i] = (char)tolower((unsigned char)s.data[i]);
    return slice_of(text, s.len);
}

/* [name, arity, flags, first key, last key, step]; at least as many words as the positions. */
static void add_info(struct arena *a, struct reply *list, const struct command *cmd)
{
    int words = 1 + (memchr(cmd->name.data, ' ', cmd->name.len) != NULL);
    bool open = cmd->params.options[0] != P_NONE;
    for (const uint8_t *p = cmd->params.positions; *p != P_NONE; p++) {
        bool rest = *p == P_WORDS || *p == P_IDS || *p == P_KEYS;
        open |= rest || *p == P_HOLD;
        words += *p != P_WORDS;
    }
    bool key = cmd->params.positions[0] == P_NAME || cmd->params.positions[0] == P_KEY ||
               cmd->params.positions[0] == P_KEYS;
    struct reply *row = reply_list(a, list, NULL);
    reply_text(a, row, NULL, lower(a, cmd->name));
    reply_int(a, row, NULL, open ? -words : words);
    struct reply *flags = reply_list(a, row, NULL);
    reply_text(a, flags, NULL, cmd->flags & CMD_WRITE ? SLICE("write") : SLICE("readonly"));
    if (cmd->flags & CMD_ADMIN)
        reply_text(a, flags, NULL, SLICE("admin"));
    reply_int(a, row, NULL, key);
    reply_int(a, row, NULL, cmd->params.positions[0] == P_KEYS ? -1 : key);
    reply_int(a, row, NULL, key);
}

void cmd_command(struct call *c)
{
    struct reply *list = reply_list(c->arena, NULL, NULL);
    for (int i = 0; i < COMMAND_COUNT_ALL; i++) {
        if (is_resp(command_get((enum command_id)i)))
            add_info(c->arena, list, command_get((enum command_id)i));
    }
    call_answer(c, list);
}

void cmd_command_info(struct call *c)
{
    struct reply *list = reply_list(c->arena, NULL, NULL);
    if (c->args.n_rest == 0) {
        cmd_command(c);
        return;
    }
    for (size_t i = 0; i < c->args.n_rest; i++) {
        const struct command *cmd = command_find(c->args.rest[i]);
        if (cmd && is_resp(cmd))
            add_info(c->arena, list, cmd);
        else
            reply_null(c->arena, list, NULL);
    }
    call_answer(c, list);
}

void cmd_command_count(struct call *c)
{
    int64_t n = 0;
    for (int i = 0; i < COMMAND_COUNT_ALL; i++)
        n += is_resp(command_get((enum command_id)i));
    call_answer(c, reply_int(c->arena, NULL, NULL, n));
}

void cmd_command_list(struct call *c)
{
    struct reply *list = reply_list(c->arena, NULL, NULL);
    for (int i = 0; i < COMMAND_COUNT_ALL; i++) {
        const struct command *cmd = command_get((enum command_id)i);
        if (is_resp(cmd))
            reply_text(c->arena, list, NULL, lower(c->arena, cmd->name));
    }
    call_answer(c, list);
}

static void add_docs(struct arena *a, struct reply *map, const struct command *cmd)
{
    struct buf usage = {0};
    args_usage(&cmd->params, &usage);
    struct reply *doc = reply_new(a, REPLY_MAP);
    reply_text(a, doc, "summary", slice_str(cmd->summary));
    reply_text(a, doc, "since", SLICE("0.1.0"));
    reply_text(a, doc, "group", SLICE("belay"));
    reply_text(a, doc, "usage", arena_copy(a, buf_slice(&usage)));
    reply_add(map, lower(a, cmd->name), doc);
    buf_done(&usage);
}

void cmd_command_docs(struct call *c)
{
    struct reply *map = reply_new(c->arena, REPLY_MAP);
    for (size_t i = 0; i < c->args.n_rest; i++) {
        const struct command *cmd = command_find(c->args.rest[i]);
        if (cmd && is_resp(cmd))
            add_docs(c->arena, map, cmd);
    }
    for (int i = 0; i < COMMAND_COUNT_ALL && c->args.n_rest == 0; i++) {
        if (is_resp(command_get((enum command_id)i)))
            add_docs(c->arena, map, command_get((enum command_id)i));
    }
    call_answer(c, map);
}

void cmd_healthz(struct call *c)
{
    struct reply *r = reply_new(c->arena, REPLY_PLAIN);
    r->text = SLICE("ok\n");
    call_answer(c, r);
}

void cmd_readyz(struct call *c)
{
    call_act(c, ACTION_READY);
}

void cmd_openapi(struct call *c)
{
    struct buf text = {0};
    openapi_write(&text);
    struct reply *r = reply_new(c->arena, REPLY_PLAIN);
    r->text = arena_copy(c->arena, buf_slice(&text));
    r->media = "application/json";
    call_answer(c, r);
    buf_done(&text);
}

void cmd_stats(struct call *c)
{
    call_act(c, ACTION_STATS);
}

void cmd_metrics(struct call *c)
{
    call_act(c, ACTION_METRICS);
}
