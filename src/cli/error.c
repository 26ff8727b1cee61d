/* error.c - what went wrong: a line on stderr for people, or with --json for programs, and the
 * exit status that says it, too. */
#include "cli/cli.h"
#include "proto/json.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static bool as_json;

void cli_errors_as_json(void)
{
    as_json = true;
}

/* Those of `belay run` are the same, from 200 on. */
static const char *word_of(int exit_code)
{
    static const char *const words[] = {
        [CLI_OK] = "OK",
        [CLI_NOT] = "NO",
        [CLI_USAGE] = "USAGE",
        [CLI_REFUSED] = "REFUSED",
        [CLI_TIMED_OUT] = "TIMEOUT",
        [CLI_FAILED] = "FAILED",
        [CLI_UNREACHABLE] = "UNREACHABLE",
    };
    static const char *const run_words[] = {"USAGE",       "NO",      "TIMEOUT", "LOST",
                                            "UNREACHABLE", "REFUSED", "FAILED"};
    size_t i = (size_t)exit_code;
    if (i >= 200 && i < 200 + sizeof run_words / sizeof run_words[0])
        return run_words[i - 200];
    return i < sizeof words / sizeof words[0] ? words[i] : "FAILED";
}

/* {"error":{"code":"STALE","message":"..."}}, as the HTTP door has it. */
static void put_json(FILE *to, const char *key, const char *word, const char *text)
{
    struct buf out = {0};
    buf_printf(&out, "{\"%s\":{", key);
    if (word)
        buf_printf(&out, "\"code\":\"%s\",", word);
    buf_put_str(&out, "\"message\":");
    json_put_string(&out, slice_str(text));
    fprintf(to, "%s}}\n", buf_cstr(&out));
    buf_done(&out);
}

/* One line, whatever names are in it: a terminal obeys nothing of it. */
static void put_line(FILE *to, const char *who, const char *text)
{
    struct buf out = {0};
    cli_put_safe(&out, text, strlen(text));
    fprintf(to, "belay%s%s: %s\n", who[0] ? " " : "", who, buf_cstr(&out));
    buf_done(&out);
}

static void put_error(const char *word, const char *text)
{
    if (as_json)
        put_json(stderr, "error", word, text);
    else
        put_line(stderr, "", text);
}

int cli_error(int exit_code, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    put_error(word_of(exit_code), buf_cstr(&text));
    buf_done(&text);
    return exit_code;
}

int cli_no_file(const struct cli *c, const char *option, const char *path, enum belay_err err,
                int bytes_max)
{
    if (err == BELAY_ERR_TOO_BIG)
        return cli_usage(c, "--%s %s has more than %d bytes", option, path, bytes_max);
    return cli_usage(c, "--%s %s: %s", option, path, strerror(errno));
}

void cli_notice(const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    if (as_json)
        put_json(stderr, "notice", NULL, buf_cstr(&text));
    else
        put_line(stderr, "", buf_cstr(&text));
    buf_done(&text);
}

static int put_wrong(const struct cli *c, bool usage, const char *text)
{
    FILE *to = c->errors ? c->errors : stderr;
    if (as_json && !c->errors) {
        put_error(word_of(CLI_USAGE), text);
    } else {
        put_line(to, c->command->name, text);
        if (usage)
            cli_print_usage(to, c->command);
    }
    return c->command->usage_exit ? c->command->usage_exit : CLI_USAGE;
}

int cli_usage(const struct cli *c, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    int code = put_wrong(c, true, buf_cstr(&text));
    buf_done(&text);
    return code;
}

int cli_wrong(const struct cli *c, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    int code = put_wrong(c, false, buf_cstr(&text));
    buf_done(&text);
    return code;
}

int cli_exit_of(int code)
{
    switch (code) {
    case BELAY_E_OK:
        return CLI_OK;
    case BELAY_E_STALE:
    case BELAY_E_LOST:
        return CLI_NOT;
    case BELAY_E_CONNECT:
    case BELAY_E_CLOSED:
    case BELAY_E_PROTOCOL:
        return CLI_UNREACHABLE;
    case BELAY_E_DEADLINE:
        return CLI_TIMED_OUT;
    case BELAY_E_MEMORY:
        return CLI_FAILED;
    case BELAY_E_USAGE:
        return CLI_USAGE;
    default:
        return CLI_REFUSED;
    }
}

int cli_fail(const struct cli *c, int code)
{
    const char *word = belay_error_word(c->belay);
    struct buf text = {0};
    buf_put_str(&text, belay_error(c->belay));
    if (code == BELAY_E_DEADLINE)
        cli_put_problem(c, &text);
    else if (strstr(buf_cstr(&text), err_text(BELAY_ERR_LOGIN)))
        buf_put_str(&text, " (--token-file or BELAY_TOKEN_FILE)");
    if (as_json && word[0])
        put_error(word, buf_cstr(&text));
    else
        cli_error(cli_exit_of(code), "%s%s%s", word, word[0] ? ": " : "", buf_cstr(&text));
    buf_done(&text);
    return cli_exit_of(code);
}

int cli_done(const struct cli *c, int code)
{
    if (code != BELAY_E_OK)
        return cli_fail(c, code);
    if (c->json)
        printf("{\"done\":true}\n");
    return CLI_OK;
}
