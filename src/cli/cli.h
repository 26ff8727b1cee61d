/* cli.h - the command line: one row a subcommand, and what all of them share.
 *
 * A row (struct cli_command) is the only place where a subcommand is described: `belay help`,
 * its man page, the shell completions and the parser of its options are made from it. Talks to
 * servers through belay.h only. */
#ifndef BELAY_CLI_CLI_H
#define BELAY_CLI_CLI_H

#include "base/buf.h"
#include "base/err.h"
#include "belay.h"
#include "tls/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What the exit status of every subcommand says (`belay run` and `elect`: run.h). */
enum cli_exit {
    CLI_OK = 0,
    CLI_NOT = 1,         /* not obtained, not held, stale: the answer is no */
    CLI_USAGE = 2,       /* the command line is wrong; nothing was done */
    CLI_UNREACHABLE = 3, /* no server of the list could be reached, or it broke off */
    CLI_TIMED_OUT = 4,   /* waited long enough */
    CLI_REFUSED = 5,     /* the server answered with an error */
    CLI_FAILED = 6,      /* something of this machine failed: memory, a file, a process */
};

enum cli_type {
    CLI_FLAG,
    CLI_TEXT,
    CLI_TEXTS,    /* may be repeated */
    CLI_NUMBER,   /* 0 and up */
    CLI_DURATION, /* 250ms, 30s, 1m30s, 2h, 0 */
    CLI_WAIT,     /* a duration or "forever" */
    CLI_SIZE,     /* 256mb, 1gb, 512kb, or bytes */
};

struct cli_option {
    const char *name; /* without its dashes; NULL ends a list */
    char letter;      /* 'n' for -n; 0: none */
    enum cli_type type;
    const char *value; /* how help shows it: "D" */
    const char *help;
};

enum { CLI_OPTIONS_MAX = 64 };

struct arena;
struct cli;
struct cli_command {
    const char *name;
    const char *args; /* "NAME [-- COMMAND...]" */
    const char *summary;
    const char *about;                /* paragraphs, shown as wide as the screen; may be NULL */
    const char *examples;             /* lines; may be NULL */
    const struct cli_option *options; /* its own; the common ones come on top */
    int min_words, max_words;         /* words that are not options */
    int (*run)(struct cli *c);
    int (*run_raw)(int argc, char **argv); /* parses for itself; argv[0] is the subcommand */
    int usage_exit;                        /* exit status for wrong usage; 0: CLI_USAGE */
    const char *exit_text;                 /* its own exit codes; NULL: the common ones */
    const char *words; /* for completion: "open attach"; "@lock": names of locks */
};

enum { CLI_TEXTS_MAX = 64 }; /* as many as a token may have rules */

struct cli_value {
    bool given;
    const char *texts[CLI_TEXTS_MAX + 1]; /* CLI_TEXTS; NULL behind the last one */
    size_t n_texts;
    const char *text;
    int64_t number;   /* also durations, in ms; BELAY_FOREVER */
    unsigned line;    /* of the configuration file that it is from; 0: of none */
    bool environment; /* it is from there */
};

/* One invocation. */
struct cli {
    const struct cli_command *command;
    struct cli_value values[CLI_OPTIONS_MAX];
    const char **words; /* what is not an option; borrowed from argv */
    size_t n_words;
    char **tail; /* behind "--", NULL at its end; NULL: there was none */
    struct belay *belay;
    const char *addrs;   /* of the servers, instead of --addr; NULL: as the options say */
    int64_t patience_ms; /* without --timeout: for the answer of a call; 0: libbelay's own */
    bool json, color;
    FILE *errors; /* where it says what is wrong with the command line; NULL: stderr */
};

/* ---- table.c, help.c ------------------------------------------------------------------ */

extern const struct cli_option cli_common_options[];  /* --addr, --namespace, --json, ... */
const struct cli_command *cli_find(const char *name); /* or NULL */
const struct cli_command *cli_find_queue(const char *name); /* of `belay queue`, or NULL */
const struct cli_command *const *cli_commands(void);        /* NULL ends it */
const struct cli_command *const *cli_queue_commands(void);
int cli_unknown(const char *name); /* "did you mean"; CLI_USAGE */
void cli_print_usage(FILE *to, const struct cli_command *command); /* the short form */
int cli_print_help(const struct cli_command *command);             /* the long one, on stdout */

/* ---- options.c ------------------------------------------------------------------------ */

/* Fills c->values, words and tail. False: it said on stderr what is wrong. */
bool cli_parse(struct cli *c, int argc, char **argv);
void cli_parse_done(struct cli *c);
/* Options that all commands have may stand before the subcommand: they are moved behind it, so
 * that it is argv[1], or NULL if there is none. What else stands there stays. */
void cli_put_command_first(int argc, char **argv);
/* The values of `from` that were on its command line. */
void cli_take_typed(struct cli *to, const struct cli *from);
const struct cli_option *cli_option_at(const struct cli_command *command,
                                       size_t i); /* or NULL */
/* The option that somebody meant who wrote `name`, or NULL. */
const struct cli_option *cli_nearest_option(const struct cli_command *command,
                                            const char *name);
bool cli_has_option(const struct cli *c, const char *name);
/* By name; the option must exist in the row. */
bool cli_given(const struct cli *c, const char *name);
const char *cli_text(const struct cli *c, const char *name, const char *otherwise);
const char *const *cli_texts(const struct cli *c, const char *name, size_t *ret_n);
const struct cli_value *cli_value(const struct cli *c, const char *name);
int64_t cli_number(const struct cli *c, const char *name, int64_t otherwise);
/* Gives the option at `i` a value, as if it had been on the command line. NULL, or why not. */
const char *cli_set(struct cli *c, size_t i, const char *text);
/* How many letters must change to make one word of the other. */
size_t cli_distance(const char *a, const char *b);

/* --shared, --semaphore N, --permits K -> mode, of, permits. CLI_OK, or a wrong usage. */
enum { CLI_PERMITS_MAX = 1000000 }; /* the server's */
int cli_parse_kind(const struct cli *c, struct belay_acquire *want);

/* "30s", "1m30s", "250ms", "2h", "1d", "0". NULL: *ret_ms is set; else why not, a static text.
 */
const char *cli_parse_duration(const char *text, int64_t *ret_ms);
const char *cli_parse_number(const char *text, int64_t *ret_v);
const char *cli_parse_size(const char *text, int64_t *ret_bytes); /* "256mb" */

/* ---- config.c -------------------------------------------------------------------------- */

/* Gives `belay serve` the options that its command line does not have: from the environment, else
 * from the file of --config, else from credentials. CLI_OK, or it said on stderr what is wrong, and in which line. The
 * texts of the values live in `keep`. */
int config_apply(struct cli *c, struct arena *keep);
/* The value of this option is wrong: names the option as it was given, in a line of the file, in
 * the environment or on the command line. Returns CLI_USAGE. */
int config_usage(const struct cli *c, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line of the log for each variable BELAY_... that is none, but is near one. */
void config_warn(const struct cli *c);

/* ---- connect.c -------------------------------------------------------------------------- */

/* Opens c->belay by --addr, --namespace, BELAY_ADDR, BELAY_NAMESPACE. CLI_OK, or it said why.
 */
int cli_connect(struct cli *c);
/* The token to log in with, empty when there is none: of --token-file, else of the environment. */
enum { CLI_TOKEN_BYTES = 256 };
int cli_token(const struct cli *c, char *ret);
/* Why the node that was asked cannot answer, in its own words: ": shard 0: no majority: ...".
 * Nothing if it does not say so soon, or need not say it to us. */
void cli_put_problem(const struct cli *c, struct buf *out);
/* For commands that connect without libbelay: the options, or the environment. */
struct tls_files cli_tls_files(const struct cli *c);
/* host:pid:random - nobody else has it. `space` needs CLI_OWNER_BYTES. */
enum { CLI_OWNER_BYTES = 129 };
const char *cli_unique_owner(char *space);

/* ---- error.c --------------------------------------------------------------------------- */

/* From now on errors are lines of JSON: {"error":{"code":"STALE","message":"..."}}, as over HTTP.
 * The code is the server's word, or the exit status in words: USAGE, UNREACHABLE, ... */
void cli_errors_as_json(void);
/* "belay: ..." on stderr. Returns exit_code, so that a line can say `return cli_error(...)`. */
int cli_error(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "belay NAME: ..." and how it is used; returns CLI_USAGE, or what the row has for it. */
int cli_usage(const struct cli *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int cli_wrong(const struct cli *c, const char *format, ...) /* without how it is used */
    __attribute__((format(printf, 2, 3)));
/* The file of this option could not be read, as buf_read_file() just said; returns CLI_USAGE. */
int cli_no_file(const struct cli *c, const char *option, const char *path, enum belay_err err,
                int bytes_max);
/* Not an error: it goes on. */
void cli_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The exit status for a failed call; says what failed. */
int cli_fail(const struct cli *c, int code);
/* The same for a call without an answer to print; if it did not fail, {"done":true} with --json. */
int cli_done(const struct cli *c, int code);
int cli_exit_of(int code); /* enum belay_code -> enum cli_exit */

/* ---- refusal.c ------------------------------------------------------------------------- */

/* The lock as it is now, to say who holds it. NULL: there is no quick answer. Borrowed until the
 * next call. */
const struct belay_reply *cli_look(const struct cli *c, const char *name);
/* Why `owner` was refused, in words: "held by ci-7 for 1m20s, since 2026-11-19T14:02:11Z".
 * `reason` is the server's word; `lock` is what cli_look() returned, and may be NULL. */
void cli_put_refusal(struct buf *out, const char *reason, const char *owner,
                     const struct belay_reply *lock);

/* ---- repair.c --------------------------------------------------------------------------- */

/* Says why a data directory cannot be opened. CLI_FAILED. */
int cli_no_data(const char *dir, enum belay_err err);

/* ---- print.c -------------------------------------------------------------------------- */

enum cli_color { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW, CLI_BLUE };
bool cli_color_wanted(int fd); /* a terminal, NO_COLOR is not set, TERM is not dumb */
const char *cli_color(bool on, enum cli_color color); /* "" when off */

void cli_put_json(struct buf *out, const struct belay_reply *r);
int cli_print_json(const struct belay_reply *r); /* one line on stdout */
int cli_flush(struct buf *out); /* to stdout; frees; CLI_FAILED when it cannot be written */
/* Bytes of a stranger for a terminal: control characters and invalid UTF-8 become \xNN. */
void cli_put_safe(struct buf *out, const char *text, size_t len);
/* Columns of a terminal that safe text takes: two for a wide character, none for an accent. */
size_t cli_columns(const char *utf8, size_t len);
/* As many whole characters as fit these columns; how many bytes that are. */
size_t cli_fit(const char *utf8, size_t len, size_t columns);
void cli_put_duration(struct buf *out, int64_t ms); /* "29.9s", "4m05s"; below 0: "-" */

/* A lock as `belay show` has it: its state, body, holders and line. */
void cli_put_lock(struct buf *out, const struct belay_reply *lock, bool color);

/* A table: cells row by row, aligned, two spaces between; the first row is the head. */
enum { CLI_TABLE_COLUMNS_MAX = 12 };
struct cli_table {
    size_t columns;
    bool right[CLI_TABLE_COLUMNS_MAX]; /* numbers stand at the right */
    struct buf text;                   /* all cells, each ended by NUL */
    struct buf marks;                  /* one enum cli_color a cell */
};
void cli_cell(struct cli_table *t, enum cli_color color, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void cli_cell_bytes(struct cli_table *t, enum cli_color color, const char *text, size_t len);
void cli_cell_duration(struct cli_table *t, int64_t ms);
void cli_table_put(struct cli_table *t, struct buf *out, bool color); /* frees the table */
/* A list, page by page. Names may hold any byte, NUL too: where it goes on is no C string. */
struct cli_pages {
    const char *what;   /* NAMESPACE, SESSION; NULL: locks */
    const char *prefix; /* NULL: all */
    int64_t limit;      /* rows of the next page; 0: as the server likes */
    int64_t timeout_ms; /* for each page; 0: that of the handle */
    struct buf after;   /* behind this one; empty: from the beginning */
    bool end;           /* that was the last page */
};
/* The next page: its first row, which is borrowed until the next call, NULL when it has none.
 * BELAY_E_OK or what went wrong. The caller frees `after` with buf_done(). */
int cli_page(struct cli *c, struct cli_pages *p, const struct belay_reply **ret_first);
/* Everything that `what` LIST (NAMESPACE, SESSION) has, page by page: a table under these heads
 * (as many as it has columns), or a line of JSON each. Frees the table; the exit code. */
int cli_list(struct cli *c, const char *what, struct cli_table *t, const char *const *heads,
             void (*row)(struct cli_table *t, const struct belay_reply *r));

/* The commit that this program was built from, for `belay version`; "": not known. */
void cli_built_from(const char *text);

/* ---- the rows ------------------------------------------------------------------------- */

extern const struct cli_command cli_cmd_acquire, cli_cmd_release, cli_cmd_renew,
    cli_cmd_convert, cli_cmd_check, cli_cmd_body, cli_cmd_show, cli_cmd_ls, cli_cmd_break,
    cli_cmd_watch, cli_cmd_session, cli_cmd_namespace, cli_cmd_cluster, cli_cmd_queue,
    cli_cmd_bench, cli_cmd_serve, cli_cmd_help, cli_cmd_run, cli_cmd_elect, cli_cmd_top,
    cli_cmd_txn, cli_cmd_repair, cli_cmd_cert, cli_cmd_auth, cli_cmd_account, cli_cmd_token,
    cli_cmd_audit, cli_cmd_version, cli_cmd_log, cli_cmd_doctor, cli_cmd_backup,
    cli_cmd_restore;
#endif
