/* table.c - the one list of subcommands, in the order in which help shows them. */
#include "cli/cli.h"

#include <string.h>

/* A row a line, so that adding one touches one line. */
/* clang-format off */
static const struct cli_command *const table[] = {
    &cli_cmd_serve,
    &cli_cmd_run,
    &cli_cmd_elect,
    &cli_cmd_acquire,
    &cli_cmd_release,
    &cli_cmd_renew,
    &cli_cmd_convert,
    &cli_cmd_check,
    &cli_cmd_body,
    &cli_cmd_show,
    &cli_cmd_ls,
    &cli_cmd_top,
    &cli_cmd_watch,
    &cli_cmd_break,
    &cli_cmd_session,
    &cli_cmd_namespace,
    &cli_cmd_auth,
    &cli_cmd_account,
    &cli_cmd_token,
    &cli_cmd_cluster,
    &cli_cmd_backup,
    &cli_cmd_restore,
    &cli_cmd_repair,
    &cli_cmd_doctor,
    &cli_cmd_cert,
    &cli_cmd_audit,
    &cli_cmd_log,
    &cli_cmd_txn,
    &cli_cmd_queue,
    &cli_cmd_bench,
    &cli_cmd_version,
    &cli_cmd_help,
    NULL,
};
/* clang-format on */

const struct cli_option cli_common_options[] = {
    {"addr", 'a', CLI_TEXT, "HOST:PORT,...",
     "servers to try in order (BELAY_ADDR, 127.0.0.1:7117); also tls://HOST:PORT, unix:///PATH"},
    {"tls-ca", 0, CLI_TEXT, "FILE",
     "the CA that a tls:// server's certificate must be from (BELAY_TLS_CA, the system's CAs)"},
    {"tls-cert", 0, CLI_TEXT, "FILE", "the certificate of this client (BELAY_TLS_CERT)"},
    {"tls-key", 0, CLI_TEXT, "FILE", "and its key (BELAY_TLS_KEY)"},
    {"namespace", 'n', CLI_TEXT, "NS", "namespace of the locks (BELAY_NAMESPACE, default)"},
    {"token-file", 0, CLI_TEXT, "FILE",
     "a file with the token to log in with (BELAY_TOKEN_FILE, BELAY_TOKEN)"},
    {"timeout", 0, CLI_DURATION, "D", "how long the server may take to answer (10s)"},
    {"json", 'j', CLI_FLAG, NULL, "print answers and errors as JSON, a line each"},
    {"help", 'h', CLI_FLAG, NULL, "this text"},
    {0},
};

const struct cli_command *const *cli_commands(void)
{
    return table;
}

const struct cli_command *cli_find(const char *name)
{
    for (size_t i = 0; table[i]; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

/* Levenshtein's, of bounded words. */
size_t cli_distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    size_t row[MAX + 1], n = strlen(b);
    if (strlen(a) > MAX || n > MAX)
        return MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[n];
}

int cli_unknown(const char *name)
{
    const struct cli_command *best = NULL;
    size_t least = strlen(name) / 3 + 1; /* more than a third wrong is another word */
    if (name[0] == '-')
        return cli_error(CLI_USAGE,
                         "\"%s\": which command? Before it stand only options that all "
                         "commands have; belay help lists the commands",
                         name);
    for (size_t i = 0; table[i]; i++) {
        size_t d = cli_distance(name, table[i]->name);
        if (d < least) {
            least = d;
            best = table[i];
        }
    }
    if (best)
        return cli_error(CLI_USAGE, "there is no \"%s\"; did you mean \"belay %s\"?", name,
                         best->name);
    return cli_error(CLI_USAGE, "there is no \"%s\"; \"belay help\" lists the subcommands",
                     name);
}
