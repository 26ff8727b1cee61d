/* config.c - options of `belay serve` from a file and from the environment.
 *
 *   # /etc/belay/belay.conf                 BELAY_LISTEN=10.0.0.1:7117,127.0.0.1:7117
 *   listen = 10.0.0.1:7117                  BELAY_MAX_MEMORY=2gb
 *   listen = 127.0.0.1:7117                 BELAY_FAST_FAILOVER=yes
 *   max-memory = 2gb
 *   fast-failover = yes
 *
 * A key is the name of an option. An option on the command line is stronger than the environment,
 * and that is stronger than the file. What none of them names can be a credential of the service
 * manager (systemd.exec(5)): a file that has the name of an option. */
#include "base/arena.h"
#include "base/check.h"
#include "base/log.h"
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 64 * 1024, VARIABLE_BYTES_MAX = 64 };

/* Options that neither a file nor the environment has: those about one start, and a password. Of
 * the others below, the variables are for clients (`belay help`). */
static const char *const only_typed[] = {
    "config",    "check-config", "json",       "help",     "addr",
    "namespace", "timeout",      "token-file", "postgres", NULL};
static const char *const for_clients[] = {"tls-ca", "tls-cert", "tls-key", NULL};
static const char *const credentials[] = {
    "tls-ca",          "tls-cert",       "tls-key",       "client-tls-ca",
    "client-tls-cert", "client-tls-key", "postgres-file", NULL};
/* Variables that are no options: of clients, and of what `belay run` and `belay queue` start. */
static const char *const no_options[] = {
    "addr",  "namespace", "token", "token-file", "postgres", "db",    "owner",    "lock",
    "fence", "session",   "kind",  "entity",     "process",  "queue", "requests", NULL};

static bool is_one_of(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static char *copy_text(struct arena *keep, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(arena_alloc(keep, bytes), text, bytes);
}

static void variable_of(const char *option, char *ret)
{
    size_t n = (size_t)snprintf(ret, VARIABLE_BYTES_MAX, "BELAY_%s", option);
    for (size_t i = 0; i < n; i++)
        if (ret[i] == '-')
            ret[i] = '_';
        else
            ret[i] = (char)toupper((unsigned char)ret[i]);
}

static int say(const struct cli *c, const char *where, const char *what, const char *why)
{
    return cli_wrong(c, "%s%s %s", where, what, why);
}

int config_usage(const struct cli *c, const char *name, const char *format, ...)
{
    const struct cli_value *v = cli_value(c, name);
    char why[256], where[512] = "", what[VARIABLE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    (void)snprintf(what, sizeof what, "%s", name);
    if (v->line)
        (void)snprintf(where, sizeof where, "%s:%u: ", cli_text(c, "config", ""), v->line);
    else if (v->environment)
        variable_of(name, what);
    else
        return cli_usage(c, "--%s %s", name, why);
    return say(c, where, what, why);
}

/* yes and no, as people write them. NULL: *ret is set. */
static const char *parse_flag(const char *text, bool *ret)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret = i % 2 == 1;
            return NULL;
        }
    }
    return "must be yes or no";
}

/* NULL, or why the text is no value of this option. */
static const char *set(struct cli *c, size_t i, const char *text)
{
    bool on = true;
    const char *why = NULL;
    if (cli_option_at(c->command, i)->type == CLI_FLAG)
        why = parse_flag(text, &on);
    else if (!*text)
        why = "needs a value";
    return why || !on ? why : cli_set(c, i, text);
}

/* The nearest key, or word of `more`; NULL: none is near. */
static const char *nearest(const struct cli *c, const char *key, const char *const *more)
{
    const struct cli_option *o = cli_nearest_option(c->command, key);
    const char *best = o && !is_one_of(only_typed, o->name) ? o->name : NULL;
    size_t least = best ? cli_distance(key, best) : strlen(key) / 3 + 1;
    for (; more && *more; more++) {
        size_t d = cli_distance(key, *more);
        if (d < least) {
            least = d;
            best = *more;
        }
    }
    return best;
}

/* ---- the environment ----------------------------------------------------------------------- */

/* A list is split at its commas. */
static const char *set_list(struct cli *c, size_t i, const char *text, struct arena *keep)
{
    const char *why = NULL;
    for (char *part = copy_text(keep, text); part && !why;) {
        char *next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        why = set(c, i, part);
        part = next;
    }
    return why;
}

static int apply_environment(struct cli *c, bool *taken, struct arena *keep)
{
    const struct cli_option *o;
    char variable[VARIABLE_BYTES_MAX];
    for (size_t i = 0; (o = cli_option_at(c->command, i)); i++) {
        if (taken[i] || is_one_of(only_typed, o->name) || is_one_of(for_clients, o->name))
            continue;
        variable_of(o->name, variable);
        const char *text = getenv(variable);
        if (!text)
            continue;
        const char *why = o->type == CLI_TEXTS ? set_list(c, i, text, keep) : set(c, i, text);
        if (why)
            return say(c, variable, ":", why);
        taken[i] = c->values[i].environment = true;
    }
    return CLI_OK;
}

/* MAX_MEMORY=2gb -> max-memory; what is too long for an option is cut. */
static void key_of(const char *variable, char *ret)
{
    size_t n = 0;
    for (; variable[n] && variable[n] != '=' && n < VARIABLE_BYTES_MAX - 1; n++)
        ret[n] = (char)(variable[n] == '_' ? '-' : tolower((unsigned char)variable[n]));
    ret[n] = '\0';
}

void config_warn(const struct cli *c)
{
    static const char prefix[] = "BELAY_";
    char key[VARIABLE_BYTES_MAX], right[VARIABLE_BYTES_MAX];
    for (char **v = environ; *v; v++) {
        if (strncmp(*v, prefix, strlen(prefix)) != 0)
            continue;
        key_of(*v + strlen(prefix), key);
        const char *best = nearest(c, key, no_options);
        if (!best || strcmp(best, key) == 0)
            continue;
        variable_of(best, right);
        log_warn("config.variable", "name=%s text=\"does nothing; did you mean %s?\"",
                 log_bytes(slice_of(*v, strcspn(*v, "="))), right);
    }
}

/* ---- the service manager ------------------------------------------------------------------- */

/* systemd puts the name of a directory before the names of its files: "belay_tls-key". */
static const char *find_credential(const char *dir, const char *option, struct arena *keep)
{
    struct buf path = {0};
    const char *found = NULL;
    for (int bare = 0; bare < 2 && !found; bare++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s%s", dir, bare ? "" : "belay_", option);
        if (access(buf_cstr(&path), F_OK) == 0)
            found = copy_text(keep, buf_cstr(&path));
    }
    buf_done(&path);
    return found;
}

static bool has_database(const struct cli *c)
{
    return cli_given(c, "postgres") || getenv("BELAY_POSTGRES");
}

static void apply_credentials(struct cli *c, struct arena *keep)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    const struct cli_option *o;
    for (size_t i = 0; dir && (o = cli_option_at(c->command, i)); i++) {
        if (c->values[i].given || !is_one_of(credentials, o->name) ||
            (strcmp(o->name, "postgres-file") == 0 && has_database(c)))
            continue;
        const char *path = find_credential(dir, o->name, keep);
        if (!path)
            continue;
        const char *why = cli_set(c, i, path);
        BELAY_CHECK(why == NULL); /* any text is the name of a file */
        c->values[i].environment = true;
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t len = strlen(text);
    while (len && strchr(" \t\r", text[len - 1]))
        text[--len] = '\0';
    return text;
}

struct line {
    const char *path;
    unsigned number;
};

static int bad_line(const struct cli *c, struct line at, const char *what, const char *why)
{
    char where[512];
    (void)snprintf(where, sizeof where, "%s:%u: ", at.path, at.number);
    return say(c, where, what, why);
}

static int unknown_key(const struct cli *c, struct line at, const char *key)
{
    char why[128];
    const char *best = nearest(c, key, NULL);
    if (best)
        (void)snprintf(why, sizeof why, "is no key; did you mean %s?", best);
    else
        (void)snprintf(why, sizeof why, "is no key; \"belay help serve\" lists the options");
    return bad_line(c, at, key, why);
}

/* `taken`: the options that have a value already, from something stronger. */
static int apply_line(struct cli *c, struct line at, char *text, const bool *taken)
{
    char *equals = strchr(text, '=');
    const struct cli_option *o;
    size_t i = 0;
    if (!equals)
        return bad_line(c, at, text, "has no \"=\": a line is key = value");
    *equals = '\0';
    const char *key = trim(text), *value = trim(equals + 1);
    while ((o = cli_option_at(c->command, i)) && strcmp(o->name, key) != 0)
        i++;
    if (!o || is_one_of(only_typed, key))
        return unknown_key(c, at, key);
    struct cli_value *v = &c->values[i];
    if (taken[i])
        return CLI_OK;
    if (v->line && o->type != CLI_TEXTS)
        return bad_line(c, at, key, "is there already, further up");
    const char *why = set(c, i, value);
    if (why) {
        char text_and_why[256];
        (void)snprintf(text_and_why, sizeof text_and_why, "= %s: %s", value, why);
        return bad_line(c, at, key, text_and_why);
    }
    v->line = at.number;
    return CLI_OK;
}

static int apply_text(struct cli *c, const char *path, char *text, const bool *taken)
{
    for (unsigned number = 1; text; number++) {
        char *next = strchr(text, '\n');
        if (next)
            *next++ = '\0';
        char *line = trim(text);
        text = next;
        if (!*line || *line == '#')
            continue;
        int code = apply_line(c, (struct line){path, number}, line, taken);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

static int apply_file(struct cli *c, const char *path, const bool *taken, struct arena *keep)
{
    struct buf bytes = {0};
    char *text = NULL;
    int code = CLI_OK;
    enum belay_err err = buf_read_file(&bytes, path, FILE_BYTES_MAX);
    if (err != BELAY_OK)
        code = cli_no_file(c, "config", path, err, FILE_BYTES_MAX);
    else if (strlen(buf_cstr(&bytes)) != buf_len(&bytes))
        code = cli_usage(c, "--config %s is no text: it has NUL bytes", path);
    else
        text = copy_text(keep, buf_cstr(&bytes));
    buf_done(&bytes);
    return text ? apply_text(c, path, text, taken) : code;
}

int config_apply(struct cli *c, struct arena *keep)
{
    bool taken[CLI_OPTIONS_MAX];
    for (size_t i = 0; i < CLI_OPTIONS_MAX; i++)
        taken[i] = c->values[i].given;
    int code = apply_environment(c, taken, keep);
    const char *path = cli_text(c, "config", NULL);
    if (code == CLI_OK && path)
        code = apply_file(c, path, taken, keep);
    if (code == CLI_OK)
        apply_credentials(c, keep);
    return code;
}
