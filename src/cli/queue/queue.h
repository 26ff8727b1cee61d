/* queue.h - `belay queue SUBCOMMAND`: what its files share. */
#ifndef BELAY_CLI_QUEUE_QUEUE_H
#define BELAY_CLI_QUEUE_QUEUE_H

#include "cli/cli.h"
#include "queue/db.h"

#define QUEUE_OPTIONS                                                                          \
    {"db", 'd', CLI_TEXT, "URL", "the database (BELAY_DB, else the PG* environment)"},         \
    {                                                                                          \
        "schema", 's', CLI_TEXT, "NAME", "the schema (BELAY_SCHEMA, belay)"                    \
    }

const char *queue_url(const struct cli *c); /* NULL: the PG* environment */
const char *queue_schema(const struct cli *c);
/* Connects; NULL: it said why, and *ret_code is the exit status. */
struct db *queue_connect(const struct cli *c, int *ret_code);
/* Says why the last call failed and closes; the exit status. */
int queue_failed(struct db *db);
/* Calls, prints every row, closes: as JSON lines (--json) or as a table of these columns. */
int queue_print(struct cli *c, const char *call, int n, const char *const *params,
                const char *const *columns);

extern const struct cli_command cli_queue_install, cli_queue_uninstall, cli_queue_grant,
    cli_queue_push, cli_queue_work, cli_queue_ls, cli_queue_show, cli_queue_history,
    cli_queue_stats, cli_queue_watch, cli_queue_retry, cli_queue_cancel, cli_queue_purge,
    cli_queue_capture, cli_queue_pause, cli_queue_resume, cli_queue_keep;
#endif
