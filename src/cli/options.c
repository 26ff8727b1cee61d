/* options.c - the words behind a subcommand: options in any order, durations, numbers.
 *
 * Written here and not with getopt_long(), because one row of options has to serve the parser,
 * the help, the man page and the completions, and because bad input must be told exactly. */
#include "base/check.h"
#include "cli/cli.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------- */

#define DURATION_MAX_MS INT64_C(1000000000000) /* 31 years */

static const struct {
    const char *unit;
    int64_t ms;
} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

static int64_t unit_ms(const char *at, size_t len)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].unit) == len && memcmp(units[i].unit, at, len) == 0)
            return units[i].ms;
    return 0;
}

/* One number with its unit at *at, which it moves on. */
static const char *parse_part(const char **at, int64_t *before, int64_t *sum)
{
    int64_t v = 0;
    if (!isdigit((unsigned char)**at))
        return "a duration is a number and a unit: 250ms, 30s, 1m30s, 2h";
    for (; isdigit((unsigned char)**at); ++*at)
        if ((v = v * 10 + (**at - '0')) > DURATION_MAX_MS)
            return "a duration this long is surely a mistake";
    size_t len = strspn(*at, "abcdefghijklmnopqrstuvwxyz");
    if (len == 0)
        return **at ? "only whole numbers: write 1s500ms for one and a half seconds"
                    : "the unit is missing: 30s, 250ms, 1m30s, 2h";
    int64_t ms = unit_ms(*at, len);
    if (!ms)
        return "the units are ms, s, m, h and d";
    if (ms >= *before)
        return "larger units come first, each once: 1m30s";
    if (v > (DURATION_MAX_MS - *sum) / ms)
        return "a duration this long is surely a mistake";
    *before = ms;
    *sum += v * ms;
    *at += len;
    return NULL;
}

const char *cli_parse_duration(const char *text, int64_t *ret_ms)
{
    int64_t sum = 0, before = INT64_MAX;
    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return NULL;
    }
    if (!text[0])
        return "an empty duration";
    for (const char *at = text; *at;) {
        const char *why = parse_part(&at, &before, &sum);
        if (why)
            return why;
    }
    *ret_ms = sum;
    return NULL;
}

const char *cli_parse_number(const char *text, int64_t *ret_v)
{
    int64_t v = 0;
    if (!*text)
        return "an empty number";
    for (const char *at = text; *at; at++) {
        if (!isdigit((unsigned char)*at))
            return "a number has digits only";
        if (v > (INT64_MAX - 9) / 10)
            return "a number this large does not fit";
        v = v * 10 + (*at - '0');
    }
    *ret_v = v;
    return NULL;
}

const char *cli_parse_size(const char *text, int64_t *ret_bytes)
{
    static const struct {
        const char *unit;
        unsigned shift;
    } sizes[] = {{"", 0},   {"kb", 10}, {"mb", 20}, {"gb", 30}, {"tb", 40},
                 {"k", 10}, {"m", 20},  {"g", 30},  {"t", 40}};
    char digits[20];
    int64_t v;
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len >= sizeof digits)
        return "a size is a number and a unit: 512kb, 256mb, 2gb";
    memcpy(digits, text, len);
    digits[len] = '\0';
    const char *why = cli_parse_number(digits, &v);
    for (size_t i = 0; !why && i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcasecmp(text + len, sizes[i].unit) != 0)
            continue;
        if (v > INT64_MAX >> sizes[i].shift)
            return "a size this large does not fit";
        *ret_bytes = v << sizes[i].shift;
        return NULL;
    }
    return why ? why : "the units are kb, mb, gb and tb";
}

/* ---- options --------------------------------------------------------------------------- */

/* A command may mean something else by a common name: `serve --tls-cert`. */
static bool is_own(const struct cli_command *command, const char *name)
{
    for (const struct cli_option *o = command->options; o && o->name; o++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

const struct cli_option *cli_option_at(const struct cli_command *command, size_t i)
{
    const struct cli_option *o = command->options;
    for (; o && o->name; o++)
        if (i-- == 0)
            return o;
    for (o = cli_common_options; o->name; o++)
        if (!is_own(command, o->name) && i-- == 0)
            return o;
    return NULL;
}

static size_t option_index(const struct cli *c, const char *name)
{
    const struct cli_option *o;
    size_t i = 0;
    while ((o = cli_option_at(c->command, i)) && strcmp(o->name, name) != 0)
        i++;
    BELAY_CHECK(o !=
                NULL); /* else our own code asks for an option that its row does not have */
    return i;
}

bool cli_has_option(const struct cli *c, const char *name)
{
    const struct cli_option *o;
    for (size_t i = 0; (o = cli_option_at(c->command, i)); i++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

bool cli_given(const struct cli *c, const char *name)
{
    return c->values[option_index(c, name)].given;
}

const char *cli_text(const struct cli *c, const char *name, const char *otherwise)
{
    const struct cli_value *v = &c->values[option_index(c, name)];
    return v->given ? v->text : otherwise;
}

const char *const *cli_texts(const struct cli *c, const char *name, size_t *ret_n)
{
    const struct cli_value *v = &c->values[option_index(c, name)];
    *ret_n = v->n_texts;
    return v->texts;
}

const struct cli_value *cli_value(const struct cli *c, const char *name)
{
    return &c->values[option_index(c, name)];
}

int64_t cli_number(const struct cli *c, const char *name, int64_t otherwise)
{
    const struct cli_value *v = &c->values[option_index(c, name)];
    return v->given ? v->number : otherwise;
}

const char *cli_set(struct cli *c, size_t i, const char *text)
{
    struct cli_value *v = &c->values[i];
    enum cli_type type = cli_option_at(c->command, i)->type;
    const char *why = NULL;
    if (type == CLI_TEXTS && v->n_texts == CLI_TEXTS_MAX)
        return "there may be 64 of them";
    if (type == CLI_NUMBER)
        why = cli_parse_number(text, &v->number);
    else if (type == CLI_SIZE)
        why = cli_parse_size(text, &v->number);
    else if (type == CLI_WAIT && strcmp(text, "forever") == 0)
        v->number = BELAY_FOREVER;
    else if (type == CLI_WAIT || type == CLI_DURATION)
        why = cli_parse_duration(text, &v->number);
    if (why)
        return why;
    v->given = true;
    v->text = text;
    if (type == CLI_TEXTS)
        v->texts[v->n_texts++] = text;
    return NULL;
}

static bool set_value(struct cli *c, const struct cli_option *o, size_t i, const char *text)
{
    if (c->values[i].given && o->type != CLI_FLAG && o->type != CLI_TEXTS) {
        cli_usage(c, "--%s is given twice", o->name);
        return false;
    }
    const char *why = cli_set(c, i, text);
    if (why)
        cli_usage(c, "--%s %s: %s", o->name, text, why);
    return !why;
}

const struct cli_option *cli_nearest_option(const struct cli_command *command, const char *name)
{
    const struct cli_option *o, *best = NULL;
    size_t least = strlen(name) / 3 + 1; /* more than a third wrong is another word */
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        size_t d = cli_distance(name, o->name);
        if (d < least) {
            least = d;
            best = o;
        }
    }
    return best;
}

static void tell_unknown(const struct cli *c, const char *name, size_t len)
{
    char word[64];
    (void)snprintf(word, sizeof word, "%.*s", (int)len, name);
    const struct cli_option *best = cli_nearest_option(c->command, word);
    if (best)
        cli_usage(c, "there is no option --%s; did you mean --%s?", word, best->name);
    else
        cli_usage(c, "there is no option --%s", word);
}

/* NULL: there is none, and it said so. */
static const struct cli_option *find_option(struct cli *c, const char *name, size_t len,
                                            char letter, size_t *ret_i)
{
    const struct cli_option *o;
    for (size_t i = 0; (o = cli_option_at(c->command, i)); i++) {
        bool found = letter ? o->letter == letter
                            : strlen(o->name) == len && memcmp(o->name, name, len) == 0;
        if (found) {
            *ret_i = i;
            return o;
        }
    }
    if (letter)
        cli_usage(c, "there is no option -%c", letter);
    else
        tell_unknown(c, name, len);
    return NULL;
}

/* One word that begins with a dash; may eat the next one. */
static bool parse_option(struct cli *c, char **argv, int argc, int *at)
{
    const char *word = argv[*at], *value = NULL;
    const struct cli_option *o;
    size_t i = 0;
    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        value = word[2 + len] ? word + 3 + len : NULL;
        o = find_option(c, word + 2, len, 0, &i);
    } else {
        value = word[2] ? word + 2 : NULL;
        o = find_option(c, "", 0, word[1], &i);
    }
    if (!o)
        return false;
    if (o->type == CLI_FLAG && !value)
        return set_value(c, o, i, "");
    if (o->type == CLI_FLAG) {
        cli_usage(c, "--%s takes no value", o->name);
        return false;
    }
    if (!value && *at + 1 >= argc) {
        cli_usage(c, "--%s needs a value (%s)", o->name, o->value);
        return false;
    }
    return set_value(c, o, i, value ? value : argv[++*at]);
}

/* How many words this option takes; 0: it is none that all commands have, or --help, which is a
 * command, too. */
static int common_words(const char *word)
{
    size_t len = strcspn(word, "=");
    for (const struct cli_option *o = cli_common_options; word[0] == '-' && o->name; o++) {
        if (strcmp(o->name, "help") == 0)
            continue;
        bool named = word[1] == '-' && strlen(o->name) == len - 2 &&
                     memcmp(o->name, word + 2, len - 2) == 0;
        bool lettered = word[1] != '-' && o->letter && word[1] == o->letter;
        if (named)
            return o->type == CLI_FLAG || word[len] ? 1 : 2;
        if (lettered)
            return o->type == CLI_FLAG || word[2] ? 1 : 2;
    }
    return 0;
}

void cli_put_command_first(int argc, char **argv)
{
    int at = 1;
    for (int n = 1; at < argc && n; at += n)
        n = common_words(argv[at]);
    char *command = at < argc ? argv[at] : NULL;
    if (!command)
        return;
    memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
    argv[1] = command;
}

/* First, because it says how wrong words before it are told. */
static void look_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0)
            cli_errors_as_json();
}

/* What its arguments begin with is a name to fill in (NAME... -- COMMAND) or one of several words to
 * choose from (open | ls). */
static void tell_missing(const struct cli *c)
{
    const char *args = c->command->args;
    for (size_t i = 0; i < c->n_words; i++) {
        args += strcspn(args, " ");
        args += strspn(args, " ");
    }
    size_t len = strspn(args, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (len)
        cli_usage(c, "%.*s is missing", (int)len, args);
    else
        cli_usage(c, "%s", c->n_words ? "an argument is missing" : "a subcommand is missing");
}

bool cli_parse(struct cli *c, int argc, char **argv)
{
    look_for_json(argc, argv);
    c->words = calloc((size_t)argc + 1, sizeof *c->words);
    BELAY_CHECK(c->words != NULL);
    for (int i = 1; i < argc && !c->tail; i++) {
        if (strcmp(argv[i], "--") == 0) {
            c->tail = argv + i + 1;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            if (!parse_option(c, argv, argc, &i))
                return false;
        } else {
            c->words[c->n_words++] = argv[i];
        }
    }
    c->json = cli_given(c, "json");
    if (cli_given(c, "help"))
        return true;
    if (c->n_words < (size_t)c->command->min_words)
        tell_missing(c);
    else if (c->n_words > (size_t)c->command->max_words)
        cli_usage(c, "\"%s\" is one word too many", c->words[c->command->max_words]);
    else
        return true;
    return false;
}

void cli_parse_done(struct cli *c)
{
    free(c->words);
    c->words = NULL;
}

void cli_take_typed(struct cli *to, const struct cli *from)
{
    for (size_t i = 0; i < CLI_OPTIONS_MAX; i++)
        if (!from->values[i].line && !from->values[i].environment)
            to->values[i] = from->values[i];
}
