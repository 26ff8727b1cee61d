/* help.c - everything that is said about the subcommands, made from their rows: `belay help`,
 * man pages, completions for bash, zsh and fish. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26, HELP_WIDTH = 80 };

/* ---- text ------------------------------------------------------------------------------ */

/* Words of a text in lines of HELP_WIDTH columns, the later ones from `indent` on; the first one
 * has `at` columns already. */
static void put_wrapped(struct buf *out, const char *text, size_t indent, size_t at)
{
    while (*text) {
        size_t word = strcspn(text, " ");
        size_t columns = cli_columns(text, word);
        bool begins = at == indent;
        if (!begins && at + 1 + columns > HELP_WIDTH) {
            buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!begins) {
            buf_put_byte(out, ' ');
            at++;
        }
        buf_put(out, text, word);
        at += columns;
        text += word;
        text += strspn(text, " ");
    }
    buf_put_byte(out, '\n');
}

/* Paragraphs, as wide as the screen allows; lines that begin with a blank stay as they are. */
static void put_paragraphs(struct buf *out, const char *text)
{
    struct buf words = {0};
    while (*text) {
        const char *line = text;
        size_t len = strcspn(line, "\n");
        bool flows = len && *line != ' ';
        if (flows)
            buf_printf(&words, "%s%.*s", buf_len(&words) ? " " : "", (int)len, line);
        text += len + (line[len] == '\n');
        if (buf_len(&words) && (!flows || !*text)) {
            put_wrapped(out, buf_cstr(&words), 0, 0);
            buf_clear(&words);
        }
        if (!flows)
            buf_printf(out, "%.*s\n", (int)len, line);
    }
    buf_done(&words);
}

static void put_usage(struct buf *out, const struct cli_command *command)
{
    int n = snprintf(NULL, 0, "usage: belay %s", command->name);
    struct buf words = {0};
    buf_printf(out, "usage: belay %s", command->name);
    if (!command->run_raw)
        buf_put_str(&words, "[OPTION...] ");
    buf_put_str(&words, command->args);
    put_wrapped(out, buf_cstr(&words), (size_t)n + 1, (size_t)n);
    buf_done(&words);
}

void cli_print_usage(FILE *to, const struct cli_command *command)
{
    struct buf out = {0};
    put_usage(&out, command);
    fprintf(to, "%s(belay help %s says more)\n", buf_cstr(&out), command->name);
    buf_done(&out);
}

static void put_option(struct buf *out, const struct cli_option *o)
{
    size_t start = buf_len(out);
    if (o->letter)
        buf_printf(out, "  -%c, --%s", o->letter, o->name);
    else
        buf_printf(out, "      --%s", o->name);
    if (o->type != CLI_FLAG)
        buf_printf(out, " %s", o->value);
    size_t len = buf_len(out) - start;
    if (len >= HELP_COLUMN) {
        buf_put_byte(out, '\n');
        len = 0;
    }
    buf_printf(out, "%*s", (int)(HELP_COLUMN - len), "");
    put_wrapped(out, o->help, HELP_COLUMN, HELP_COLUMN);
}

static void put_options(struct buf *out, const struct cli_command *command)
{
    const struct cli_option *o;
    if (command->run_raw && !command->options)
        return;
    buf_put_str(out, "\noptions:\n");
    if (command->run_raw) {
        for (o = command->options; o->name; o++)
            put_option(out, o);
        return;
    }
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        put_option(out, o);
}

static void put_help(struct buf *out, const struct cli_command *command)
{
    buf_printf(out, "belay %s - %s\n\n", command->name, command->summary);
    put_usage(out, command);
    if (command->about) {
        buf_put_byte(out, '\n');
        put_paragraphs(out, command->about);
    }
    put_options(out, command);
    if (command->examples)
        buf_printf(out, "\nexamples:\n%s\n", command->examples);
    if (command->exit_text)
        buf_printf(out, "\nexit status:\n%s\n", command->exit_text);
}

int cli_print_help(const struct cli_command *command)
{
    struct buf out = {0};
    put_help(&out, command);
    return cli_flush(&out);
}

static const char exit_text[] =
    "exit status:\n"
    "  0  done          1  not obtained, not held, stale    2  wrong usage\n"
    "  3  unreachable   4  timed out    5  refused by the server    6  failed here\n"
    "  (belay run and elect have their own, see their help)\n";

static int print_overview(void)
{
    struct buf out = {0};
    buf_put_str(&out, "belay - locks, lines and leases for many machines\n\n"
                      "usage: belay SUBCOMMAND ...\n\n");
    for (const struct cli_command *const *c = cli_commands(); *c; c++)
        buf_printf(&out, "  %-11s %s\n", (*c)->name, (*c)->summary);
    buf_printf(
        &out,
        "\nbelay help SUBCOMMAND says more, with examples. The server is named by --addr\n"
        "or BELAY_ADDR (default %s), the namespace by --namespace or\n"
        "BELAY_NAMESPACE. Durations have units: 250ms, 30s, 1m30s, 2h. With --json,\n"
        "answers are lines of JSON on stdout, and so are errors on stderr:\n"
        "  {\"error\":{\"code\":\"STALE\",\"message\":\"...\"}}\n\n%s",
        BELAY_ADDR_DEFAULT, exit_text);
    return cli_flush(&out);
}

/* ---- man pages ------------------------------------------------------------------------- */

/* roff takes a dot or quote at the start of a line as its own, and a dash as a hyphen. */
static void put_roff(struct buf *out, const char *text)
{
    for (const char *at = text; *at; at++) {
        bool first = at == text || at[-1] == '\n';
        if (first && (*at == '.' || *at == '\''))
            buf_put_str(out, "\\&");
        if (*at == '-')
            buf_put_str(out, "\\-");
        else if (*at == '\\')
            buf_put_str(out, "\\e");
        else
            buf_put_byte(out, *at);
    }
}

static void put_roff_option(struct buf *out, const struct cli_option *o)
{
    buf_put_str(out, ".TP\n.B ");
    if (o->letter)
        buf_printf(out, "\\-%c, ", o->letter);
    buf_put_str(out, "\\-\\-");
    put_roff(out, o->name);
    if (o->type != CLI_FLAG) {
        buf_put_byte(out, ' ');
        put_roff(out, o->value);
    }
    buf_put_byte(out, '\n');
    put_roff(out, o->help);
    buf_put_byte(out, '\n');
}

static void put_roff_options(struct buf *out, const struct cli_command *command)
{
    const struct cli_option *o = command->options;
    if (command->run_raw && !o)
        return;
    buf_put_str(out, ".SH OPTIONS\n");
    for (; command->run_raw && o->name; o++)
        put_roff_option(out, o);
    for (size_t i = 0; !command->run_raw && (o = cli_option_at(command, i)); i++)
        put_roff_option(out, o);
}

static void put_roff_block(struct buf *out, const char *head, const char *text)
{
    if (!text)
        return;
    buf_printf(out, ".SH %s\n.nf\n", head);
    put_roff(out, text);
    buf_put_str(out, "\n.fi\n");
}

/* Filled as wide as the reader's terminal is. */
static void put_roff_description(struct buf *out, const char *text)
{
    buf_put_str(out, ".SH DESCRIPTION\n");
    for (const char *next; *text; text = next) {
        size_t len = strcspn(text, "\n");
        next = text + len + (text[len] == '\n');
        char *line = strndup(text, len);
        if (line && *line)
            put_roff(out, line);
        else if (line)
            buf_put_str(out, ".PP");
        else
            out->oom = true;
        buf_put_byte(out, '\n');
        free(line);
    }
}

/* "queue push" -> "belay\-queue\-push" */
static void put_page_name(struct buf *out, const struct cli_command *command)
{
    buf_put_str(out, "belay\\-");
    for (const char *at = command->name; *at; at++)
        if (*at == ' ')
            buf_put_str(out, "\\-");
        else
            buf_put_byte(out, *at);
}

static void put_man(struct buf *out, const struct cli_command *command)
{
    buf_put_str(out, ".TH ");
    put_page_name(out, command);
    buf_printf(out, " 1 \"\" \"belay %s\" \"Belay\"\n.SH NAME\n", BELAY_VERSION);
    put_page_name(out, command);
    buf_put_str(out, " \\- ");
    put_roff(out, command->summary);
    buf_printf(out, "\n.SH SYNOPSIS\n.B belay %s\n", command->name);
    put_roff(out, command->run_raw ? "" : "[OPTION...] ");
    put_roff(out, command->args);
    buf_put_byte(out, '\n');
    put_roff_description(out, command->about ? command->about : command->summary);
    put_roff_options(out, command);
    put_roff_block(out, "EXAMPLES", command->examples);
    if (!command->exit_text)
        put_roff_block(out, "EXIT STATUS", exit_text + sizeof "exit status:");
    else
        put_roff_block(out, "EXIT STATUS", command->exit_text);
    buf_put_str(out, ".SH SEE ALSO\n.BR belay (1)\n");
    for (const struct cli_command *const *c = cli_queue_commands();
         command == &cli_cmd_queue && *c; c++) {
        buf_put_str(out, ".BR ");
        put_page_name(out, *c);
        buf_put_str(out, " (1)\n");
    }
}

static void put_man_overview(struct buf *out)
{
    buf_printf(out,
               ".TH BELAY 1 \"\" \"belay %s\" \"Belay\"\n.SH NAME\nbelay \\- locks, lines and "
               "leases for many machines\n.SH SYNOPSIS\n.B belay\nSUBCOMMAND [OPTION...]\n"
               ".SH SUBCOMMANDS\n",
               BELAY_VERSION);
    for (const struct cli_command *const *c = cli_commands(); *c; c++) {
        buf_printf(out, ".TP\n.BR belay\\-%s (1)\n", (*c)->name);
        put_roff(out, (*c)->summary);
        buf_put_byte(out, '\n');
    }
    buf_put_str(
        out,
        ".SH ENVIRONMENT\n.TP\n.B BELAY_ADDR\nservers to try, host:port,tls://host:port,unix:///path\n"
        ".TP\n.B BELAY_TLS_CA, BELAY_TLS_CERT, BELAY_TLS_KEY\nfiles for tls://, as the "
        "options of these names\n"
        ".TP\n.B BELAY_NAMESPACE\nnamespace of the locks\n"
        ".TP\n.B NO_COLOR\nno colours, also on a terminal\n");
    put_roff_block(out, "EXIT STATUS", exit_text + sizeof "exit status:");
}

/* ---- completion ------------------------------------------------------------------------ */

static void put_option_words(struct buf *out, const struct cli_command *command)
{
    const struct cli_option *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        buf_printf(out, "%s--%s", i ? " " : "", o->name);
}

static const char bash_head[] =
    "# bash completion for belay; made by `belay help --completion bash`\n"
    "_belay_locks() { belay ls --json --timeout 1s 2>/dev/null |\n"
    "    grep -o '\"name\":\"[^\"\\\\]*\"' | cut -d'\"' -f4; }\n"
    "_belay() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} sub=${COMP_WORDS[1]} words='' options=''\n"
    "    COMPREPLY=()\n"
    "    local i\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do [ \"${COMP_WORDS[i]}\" = -- ] && {\n"
    "        COMPREPLY=($(compgen -c -f -- \"$cur\")); return; }; done\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then sub=''; fi\n"
    "    case $sub in\n";

static const char bash_tail[] = "    esac\n"
                                "    case $words in @lock) words=$(_belay_locks) ;; esac\n"
                                "    case $cur in -*) words=$options ;; esac\n"
                                "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                                "}\n"
                                "complete -F _belay belay\n";

static void put_bash(struct buf *out)
{
    buf_put_str(out, bash_head);
    buf_put_str(out, "    '') words='");
    for (const struct cli_command *const *c = cli_commands(); *c; c++)
        buf_printf(out, "%s%s", c == cli_commands() ? "" : " ", (*c)->name);
    buf_put_str(out, "' ;;\n");
    for (const struct cli_command *const *c = cli_commands(); *c; c++) {
        buf_printf(out, "    %s) words='%s' options='", (*c)->name,
                   (*c)->words ? (*c)->words : "");
        put_option_words(out, *c);
        buf_put_str(out, "' ;;\n");
    }
    buf_put_str(out, bash_tail);
}

/* zsh takes ':' and brackets of a description as its own. */
static void put_zsh_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            buf_put_str(out, "'\\''");
        else if (strchr(":[]\\", *text))
            buf_printf(out, "\\%c", *text);
        else
            buf_put_byte(out, *text);
    }
}

static void put_zsh_row(struct buf *out, const struct cli_command *command)
{
    const struct cli_option *o;
    buf_printf(out, "    %s) _arguments -S", command->name);
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        buf_printf(out, " \\\n        '--%s%s[", o->name, o->type == CLI_FLAG ? "" : "=");
        put_zsh_text(out, o->help);
        buf_put_byte(out, ']');
        if (o->type != CLI_FLAG) {
            buf_put_byte(out, ':');
            put_zsh_text(out, o->value);
            buf_put_byte(out, ':');
        }
        buf_put_byte(out, '\'');
    }
    if (command->words && strcmp(command->words, "@lock") == 0)
        buf_put_str(out, " \\\n        '*:lock:_belay_locks'");
    else if (command->words)
        buf_printf(out, " \\\n        '1:what:(%s)'", command->words);
    buf_put_str(out, " ;;\n");
}

static void put_zsh(struct buf *out)
{
    buf_put_str(out, "#compdef belay\n"
                     "# zsh completion for belay; made by `belay help --completion zsh`\n"
                     "_belay_locks() {\n"
                     "    local -a names\n"
                     "    names=(${(f)\"$(belay ls --json --timeout 1s 2>/dev/null |\n"
                     "        grep -o '\"name\":\"[^\"\\\\]*\"' | cut -d'\"' -f4)\"})\n"
                     "    compadd -a names\n}\n"
                     "_belay() {\n"
                     "    local -a commands\n    commands=(\n");
    for (const struct cli_command *const *c = cli_commands(); *c; c++) {
        buf_printf(out, "        '%s:", (*c)->name);
        put_zsh_text(out, (*c)->summary);
        buf_put_str(out, "'\n");
    }
    buf_put_str(out, "    )\n"
                     "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
                     "    local sub=$words[2]\n"
                     "    shift words; (( CURRENT-- ))\n"
                     "    case $sub in\n");
    for (const struct cli_command *const *c = cli_commands(); *c; c++)
        put_zsh_row(out, *c);
    buf_put_str(out, "    esac\n}\n_belay \"$@\"\n");
}

/* Single quotes, in which fish knows only \\ and \'. */
static void put_fish_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            buf_put_byte(out, '\\');
        buf_put_byte(out, *text);
    }
}

static void put_fish_row(struct buf *out, const struct cli_command *command)
{
    const struct cli_option *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        buf_printf(out, "complete -c belay -n '__fish_seen_subcommand_from %s' -l %s",
                   command->name, o->name);
        if (o->letter)
            buf_printf(out, " -s %c", o->letter);
        buf_printf(out, "%s -d '", o->type == CLI_FLAG ? "" : " -r");
        put_fish_text(out, o->help);
        buf_put_str(out, "'\n");
    }
    if (!command->words)
        return;
    buf_printf(out, "complete -c belay -n '__fish_seen_subcommand_from %s' -f -a '",
               command->name);
    put_fish_text(out,
                  strcmp(command->words, "@lock") == 0 ? "(_belay_locks)" : command->words);
    buf_put_str(out, "'\n");
}

static void put_fish(struct buf *out)
{
    buf_put_str(out, "# fish completion for belay; made by `belay help --completion fish`\n"
                     "function _belay_locks\n"
                     "    belay ls --json --timeout 1s 2>/dev/null |\n"
                     "        string match -r -g '\"name\":\"([^\"\\\\]*)\"'\n"
                     "end\n");
    for (const struct cli_command *const *c = cli_commands(); *c; c++) {
        buf_printf(out, "complete -c belay -n __fish_use_subcommand -f -a %s -d '", (*c)->name);
        put_fish_text(out, (*c)->summary);
        buf_put_str(out, "'\n");
        put_fish_row(out, *c);
    }
}

static void put_names(struct buf *out, const struct cli_command *const *c)
{
    for (; *c; c++)
        buf_printf(out, "%s\n", (*c)->name);
}

/* ---- the row --------------------------------------------------------------------------- */

static int help(struct cli *c)
{
    struct buf out = {0};
    const char *shell = cli_text(c, "completion", NULL);
    const struct cli_command *about = NULL;
    if (c->n_words && !(about = cli_find(c->words[0])))
        return cli_unknown(c->words[0]);
    if (c->n_words == 2 && about != &cli_cmd_queue)
        return cli_usage(c, "\"%s\" is one word too many", c->words[1]);
    if (c->n_words == 2 && !(about = cli_find_queue(c->words[1])))
        return cli_usage(c, "belay queue has no \"%s\"", c->words[1]);
    if (shell && strcmp(shell, "bash") == 0)
        put_bash(&out);
    else if (shell && strcmp(shell, "zsh") == 0)
        put_zsh(&out);
    else if (shell && strcmp(shell, "fish") == 0)
        put_fish(&out);
    else if (shell)
        return cli_usage(c, "completion for bash, zsh and fish, not for \"%s\"", shell);
    else if (cli_given(c, "names"))
        put_names(&out, about == &cli_cmd_queue ? cli_queue_commands() : cli_commands());
    else if (cli_given(c, "man") && about)
        put_man(&out, about);
    else if (cli_given(c, "man"))
        put_man_overview(&out);
    else
        return about ? cli_print_help(about) : print_overview();
    return cli_flush(&out);
}

static const struct cli_option help_options[] = {
    {"man", 0, CLI_FLAG, NULL, "as a man page (roff)"},
    {"names", 0, CLI_FLAG, NULL,
     "only the names of the subcommands, or of those of queue, for scripts"},
    {"completion", 0, CLI_TEXT, "bash|zsh|fish", "completions for that shell"},
    {0},
};

const struct cli_command cli_cmd_help = {
    .name = "help",
    .args = "[SUBCOMMAND | queue SUBCOMMAND]",
    .summary = "list the subcommands, or explain one",
    .about = "Man pages and completions are made from the same text as this help.",
    .examples = "  belay help run\n"
                "  belay help --man run | man -l -\n"
                "  source <(belay help --completion bash)",
    .options = help_options,
    .max_words = 2,
    .run = help,
};
