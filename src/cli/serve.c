/* serve.c - `belay serve`: the server in the foreground. */
#include "server/server.h"
#include "server/trust.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/secret.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SERVE_REMOVED = 7 }; /* exit status, beside enum cli_exit */
enum { PRIORITY_DEFAULT = 14 };

/* The address goes to stdout, where a script reads the port of "--listen 127.0.0.1:0"; a person
 * at a terminal is told what to try. */
static bool durable; /* what the person at the terminal is told */

static void on_listening(const char *address)
{
    const char *port = strrchr(address, ':') + 1;
    printf("listening %s\n", address);
    if (isatty(STDOUT_FILENO)) {
        printf("\nTry, in another terminal:\n"
               "  belay --help\n"
               "  redis-cli -p %s ACQUIRE my-lock me TTL 30000\n"
               "  curl http://%s/v1/namespaces/default/locks\n"
               "%s Ctrl-C stops the server.\n\n",
               port, address,
               durable ? "Everything is on disk before it is answered (--data)."
                       : "Nothing is kept on disk (--memory).");
    }
    (void)fflush(stdout);
}

/* They have been checked. */
static void set_log(const struct cli *c)
{
    enum log_level level = LOG_INFO;
    (void)log_level_of(slice_str(cli_text(c, "log-level", "info")), &level);
    log_set_level(level);
    log_set_json(strcmp(cli_text(c, "log-format", "text"), "json") == 0);
}

/* A durable server forks for its snapshots, and a fork copies the page tables: 9 ms for 320 MB
 * in small pages, 0.2 ms in huge ones. glibc's malloc asks for huge pages only when the
 * environment says so before the process starts; so it starts once more, as the same process.
 * If that is not possible it goes on as it is. */
static void use_huge_pages(void)
{
    enum { WORDS_MAX = 256, BYTES_MAX = 1 << 16 };
    static char *words[WORDS_MAX + 1];
    struct buf line = {0};
    size_t n = 0;
    if (getenv("GLIBC_TUNABLES") ||
        buf_read_file(&line, "/proc/self/cmdline", BYTES_MAX) != BELAY_OK)
        return;
    buf_put_byte(&line, '\0');
    for (size_t at = line.start; at + 1 < line.end && n < WORDS_MAX; n++) {
        words[n] = line.mem + at;
        at += strlen(words[n]) + 1;
    }
    if (!line.oom && n < WORDS_MAX &&
        setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1) == 0)
        (void)execv("/proc/self/exe", words);
    buf_done(&line);
}

enum { SEGMENT_KB_MIN = 16, SEGMENT_KB_MAX = 1 << 20 };

static int check_tls(const struct cli *c)
{
    bool own = cli_given(c, "tls-cert"), other = cli_given(c, "client-tls-cert");
    bool peers = cli_given(c, "peer-listen");
    if (own != cli_given(c, "tls-key"))
        return cli_usage(c, "--tls-cert and --tls-key belong together");
    if (other != cli_given(c, "client-tls-key"))
        return cli_usage(c, "--client-tls-cert and --client-tls-key belong together");
    if (peers && own != cli_given(c, "tls-ca"))
        return cli_usage(c, "--tls-ca, --tls-cert and --tls-key belong together between nodes");
    if (peers && !own && !cli_given(c, "insecure"))
        return cli_usage(c,
                         "--peer-listen needs --tls-ca, --tls-cert and --tls-key (belay cert "
                         "makes them), or --insecure");
    if (!own && !other && (cli_given(c, "tls-ca") || cli_given(c, "client-tls-ca")))
        return cli_usage(c, "--tls-ca and --client-tls-ca need --tls-cert and --tls-key");
    return CLI_OK;
}

static struct tls_files tls_for_nodes(const struct cli *c)
{
    return (struct tls_files){.ca = cli_text(c, "tls-ca", NULL),
                              .cert = cli_text(c, "tls-cert", NULL),
                              .key = cli_text(c, "tls-key", NULL)};
}

static struct tls_files tls_for_clients(const struct cli *c)
{
    struct tls_files own = tls_for_nodes(c);
    return (struct tls_files){.ca = cli_text(c, "client-tls-ca", own.ca),
                              .cert = cli_text(c, "client-tls-cert", own.cert),
                              .key = cli_text(c, "client-tls-key", own.key)};
}

/* Words that mean nothing without others: a node of a cluster that keeps nothing would be a
 * server of its own, and nobody would notice. */
static int check_company(const struct cli *c)
{
    static const char *const durable_only[] = {
        "node",         "peers",      "peer-listen", "join",          "shards", "priority",
        "node-timeout", "segment-kb", "snapshot-kb", "fast-failover", "level"};
    if (cli_given(c, "addr"))
        return cli_usage(c, "--addr names a server to talk to; this one is told --listen");
    if (cli_given(c, "memory") && cli_given(c, "data"))
        return cli_usage(c, "--data and --memory exclude each other");
    for (size_t i = 0; i < sizeof durable_only / sizeof durable_only[0]; i++)
        if (cli_given(c, durable_only[i]) && !cli_given(c, "data"))
            return cli_usage(c, "--%s needs --data", durable_only[i]);
    if (cli_given(c, "schema") && !cli_given(c, "postgres") && !cli_given(c, "postgres-file") &&
        !getenv("BELAY_POSTGRES"))
        return cli_usage(c, "--schema needs --postgres-file, --postgres or BELAY_POSTGRES");
    if (cli_given(c, "peers") && (!cli_given(c, "node") || !cli_given(c, "peer-listen")))
        return cli_usage(c, "--peers needs --node and --peer-listen");
    return check_tls(c);
}

static int check_sizes(const struct cli *c)
{
    int64_t connections = cli_number(c, "max-connections", 1);
    if (connections < 1 || connections > 1000000)
        return config_usage(c, "max-connections", "is 1 to 1000000");
    if (cli_number(c, "max-connections-per-address", 1) < 1)
        return config_usage(c, "max-connections-per-address", "is 1 or more");
    if (cli_number(c, "max-memory", SERVER_MEMORY_MIN) < SERVER_MEMORY_MIN)
        return config_usage(c, "max-memory", "is at least %dmb", SERVER_MEMORY_MIN >> 20);
    int64_t segment = cli_number(c, "segment-kb", SEGMENT_KB_MIN);
    if (segment < SEGMENT_KB_MIN || segment > SEGMENT_KB_MAX)
        return config_usage(c, "segment-kb", "is %d to %d", SEGMENT_KB_MIN, SEGMENT_KB_MAX);
    int64_t shards = cli_number(c, "shards", 1);
    if (cli_given(c, "shards") && (shards < 1 || shards > SERVER_SHARDS_MAX))
        return config_usage(c, "shards", "is 1 to %d", SERVER_SHARDS_MAX);
    return CLI_OK;
}

static int check_listen(const struct cli *c)
{
    size_t n;
    const char *const *listen = cli_texts(c, "listen", &n);
    if (n > SERVER_LISTEN_MAX)
        return config_usage(c, "listen", "may be given %d times", SERVER_LISTEN_MAX);
    for (size_t i = 0; i < n; i++) {
        const char *why = server_check_listen(listen[i]);
        if (why)
            return config_usage(c, "listen", "%s: %s", listen[i], why);
    }
    return CLI_OK;
}

static int check_socket(const struct cli *c)
{
    size_t n;
    const char *const *users = cli_texts(c, "socket-user", &n);
    if (n && !cli_given(c, "socket"))
        return config_usage(c, "socket-user", "needs --socket");
    for (size_t i = 0; i < n; i++) {
        const char *why = server_check_socket_user(users[i]);
        if (why)
            return config_usage(c, "socket-user", "%s: %s", users[i], why);
    }
    return CLI_OK;
}

/* As a browser writes them: scheme and host, perhaps a port. */
static int check_origins(const struct cli *c)
{
    size_t n;
    const char *const *origins = cli_texts(c, "cors", &n);
    for (size_t i = 0; i < n; i++) {
        const char *host = strstr(origins[i], "://");
        bool known =
            strncmp(origins[i], "https://", 8) == 0 || strncmp(origins[i], "http://", 7) == 0;
        bool plain = host && host[3] && host[3 + strcspn(host + 3, "/?#@*, \t\r\n")] == '\0';
        if (!known || !plain)
            return config_usage(c, "cors", "%s: must be like https://ops.example:8443",
                                origins[i]);
    }
    return CLI_OK;
}

static int check_log(const struct cli *c)
{
    enum log_level level;
    const char *format = cli_text(c, "log-format", "text");
    if (!log_level_of(slice_str(cli_text(c, "log-level", "info")), &level))
        return config_usage(c, "log-level", "is error, warn, info or debug");
    if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
        return config_usage(c, "log-format", "is text or json");
    return CLI_OK;
}

static int check_rest(const struct cli *c)
{
    double decay = strtod(cli_text(c, "trust-decay", "0.8321"), NULL);
    if (!(decay > 0 && decay < 1) || cli_number(c, "trust-period", 1) < 1)
        return cli_usage(c, "--trust-decay is above 0 and below 1, --trust-period above 0");
    if (cli_number(c, "priority", 0) > 15)
        return config_usage(c, "priority", "is 0 to 15");
    const char *level = cli_text(c, "level", "auto");
    if (strcmp(level, "auto") != 0 && strcmp(level, "manual") != 0)
        return config_usage(c, "level", "is auto or manual");
    if (cli_given(c, "join") &&
        (cli_given(c, "peers") || !cli_given(c, "node") || !cli_given(c, "peer-listen")))
        return config_usage(c, "join",
                            "takes what CLUSTER ADD printed, with --node and --peer-listen, "
                            "without --peers");
    if (cli_given(c, "audit-required") && !cli_given(c, "audit"))
        return cli_usage(c, "--audit-required needs --audit FILE");
    return check_log(c);
}

static struct server_limits read_limits(const struct cli *c)
{
    return (struct server_limits){.head_ms = (uint64_t)cli_number(c, "head-timeout", 0),
                                  .body_ms = (uint64_t)cli_number(c, "body-timeout", 0),
                                  .idle_ms = (uint64_t)cli_number(c, "idle-timeout", 0),
                                  .resp_idle_ms =
                                      (uint64_t)cli_number(c, "resp-idle-timeout", 0),
                                  .write_ms = (uint64_t)cli_number(c, "write-timeout", 0)};
}

static int check(const struct cli *c)
{
    int code = check_company(c);
    if (code == CLI_OK)
        code = check_sizes(c);
    if (code == CLI_OK)
        code = check_listen(c);
    if (code == CLI_OK)
        code = check_socket(c);
    if (code == CLI_OK)
        code = check_origins(c);
    return code == CLI_OK ? check_rest(c) : code;
}

static struct node_options read_node(const struct cli *c)
{
    return (struct node_options){
        .data = cli_text(c, "data", NULL),
        .name = cli_text(c, "node", NULL),
        .peers = cli_text(c, "peers", NULL),
        .peer_listen = cli_text(c, "peer-listen", NULL),
        .tls = cli_given(c, "peer-listen") ? tls_for_nodes(c) : (struct tls_files){0},
        .join = cli_text(c, "join", NULL),
        .shards = (size_t)cli_number(c, "shards", 0),
        .priority = (uint8_t)cli_number(c, "priority", PRIORITY_DEFAULT),
        .silence_ms = (uint64_t)cli_number(c, "node-timeout", 0),
        .segment_bytes = (uint64_t)cli_number(c, "segment-kb", 0) * 1024,
        .snapshot_bytes = (uint64_t)cli_number(c, "snapshot-kb", 0) * 1024,
        .fast_failover = cli_given(c, "fast-failover"),
        .level_manual = strcmp(cli_text(c, "level", "auto"), "manual") == 0};
}

static struct server_config read_config(const struct cli *c)
{
    static const char *const listen_default[] = {"127.0.0.1:7117", NULL};
    size_t n_listen, n_hosts, n_users, n_origins;
    const char *const *listen = cli_texts(c, "listen", &n_listen);
    return (struct server_config){
        .listen = n_listen ? listen : listen_default,
        .socket = cli_text(c, "socket", NULL),
        .socket_users = cli_texts(c, "socket-user", &n_users),
        .insecure = cli_given(c, "insecure"),
        .reset_frees = cli_given(c, "reset-frees"),
        .max_connections = (size_t)cli_number(c, "max-connections", SERVER_CONNECTIONS_DEFAULT),
        .max_per_address = (size_t)cli_number(c, "max-connections-per-address", 0),
        .max_connections_per_token = (size_t)cli_number(c, "max-connections-per-token", 0),
        .max_requests_per_address = (size_t)cli_number(c, "max-requests-per-address", 0),
        .max_requests_per_token = (size_t)cli_number(c, "max-requests-per-token", 0),
        .max_memory = (size_t)cli_number(c, "max-memory", 0),
        .limits = read_limits(c),
        .trust_decay = strtod(cli_text(c, "trust-decay", "0.8321"), NULL),
        .trust_period_ms = (uint64_t)cli_number(c, "trust-period", TRUST_PERIOD_DEFAULT_MS),
        .node = read_node(c),
        .tls = tls_for_clients(c),
        .schema = cli_text(c, "schema", "belay"),
        .slow_ms = (uint64_t)cli_number(c, "slow", 0),
        .audit = cli_text(c, "audit", NULL),
        .audit_required = cli_given(c, "audit-required"),
        .hosts = cli_texts(c, "host", &n_hosts),
        .origins = cli_texts(c, "cors", &n_origins),
        .on_listening = on_listening,
    };
}

/* ---- SIGHUP -------------------------------------------------------------------------------- */

static struct {
    const struct cli *first; /* as the server was started; its command line counts again */
    struct cli now;
    struct arena texts;
    struct server_config config;
} reloaded;

/* Options that count at once. Those with files in them are read again, too. */
static bool may_change(const char *name)
{
    static const char *const names[] = {"log-level",
                                        "log-format",
                                        "slow",
                                        "host",
                                        "cors",
                                        "max-connections",
                                        "max-connections-per-address",
                                        "head-timeout",
                                        "body-timeout",
                                        "idle-timeout",
                                        "max-connections-per-token",
                                        "config",
                                        "resp-idle-timeout",
                                        "write-timeout",
                                        "max-requests-per-address",
                                        "max-requests-per-token"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool is_same(const struct cli_value *a, const struct cli_value *b)
{
    if (a->given != b->given || a->n_texts != b->n_texts)
        return false;
    for (size_t i = 0; i < a->n_texts; i++)
        if (strcmp(a->texts[i], b->texts[i]) != 0)
            return false;
    return !a->given || strcmp(a->text, b->text) == 0;
}

static void tell_rest(const struct cli *now)
{
    const struct cli_option *o;
    for (size_t i = 0; (o = cli_option_at(now->command, i)); i++)
        if (!may_change(o->name) && !is_same(&reloaded.first->values[i], &now->values[i]))
            log_warn("config.restart", "option=%s text=\"counts when the server starts again\"",
                     o->name);
}

/* What is wrong is a line of the log like any other. */
static bool read_again(struct cli *now, struct arena *texts)
{
    char *said = NULL;
    size_t n;
    now->errors = open_memstream(&said, &n);
    bool sound = config_apply(now, texts) == CLI_OK && check(now) == CLI_OK;
    if (now->errors)
        (void)fclose(now->errors);
    now->errors = NULL;
    if (!sound)
        log_error("config.refused",
                  "error=%s text=\"nothing of it counts; what was in force stays\"",
                  log_bytes(slice_of(said, said ? strcspn(said, "\n") : 0)));
    free(said);
    return sound;
}

static const struct server_config *reload(void)
{
    struct cli now = {.command = reloaded.first->command};
    struct arena texts = {0};
    cli_take_typed(&now, reloaded.first);
    if (!read_again(&now, &texts)) {
        arena_done(&texts);
        return NULL;
    }
    set_log(&now);
    tell_rest(&now);
    log_info("config.read", "path=%s", log_bytes(slice_str(cli_text(&now, "config", ""))));
    arena_done(&reloaded.texts);
    reloaded.texts = texts;
    reloaded.now = now;
    reloaded.config = read_config(&reloaded.now);
    return &reloaded.config;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int serve(struct cli *c)
{
    struct arena texts = {0}; /* for as long as the process runs */
    reloaded.first = c;
    int code = config_apply(c, &texts);
    if (code == CLI_OK)
        code = check(c);
    if (code != CLI_OK)
        return code;
    bool only_check = cli_given(c, "check-config");
    durable = cli_given(c, "data");
    if (durable && !only_check)
        use_huge_pages(); /* before anything is said: it starts the process again */
    set_log(c);
    config_warn(c);
    if (only_check) {
        printf(c->json ? "{\"sound\":true}\n" : "the configuration is sound\n");
        return CLI_OK;
    }
    if (!cli_given(c, "core"))
        secret_forbid_core();
    struct server_config config = read_config(c);
    code = secret_postgres(c, &config.postgres);
    if (code != CLI_OK)
        return code;
    if (cli_given(c, "config"))
        config.reload = reload;
    reloaded.now = *c;
    if (!durable && !cli_given(c, "memory"))
        log_warn("server.memory_only",
                 "text=\"nothing is kept on disk; --data DIR keeps everything\"");
    static const int codes[] = {[SERVER_STOPPED] = CLI_OK,
                                [SERVER_NOT_STARTED] = CLI_FAILED,
                                [SERVER_REMOVED] = SERVE_REMOVED};
    code = codes[server_run(&config)];
    arena_done(&reloaded.texts);
    arena_done(&texts);
    return code;
}

static const struct cli_option serve_options[] = {
    {"config", 0, CLI_TEXT, "FILE",
     "options that are not given here, as lines \"key = value\"; SIGHUP reads it again"},
    {"check-config", 0, CLI_FLAG, NULL,
     "say what is wrong with the options, and start nothing"},
    {"listen", 'l', CLI_TEXTS, "ADDRESS:PORT",
     "where to listen (127.0.0.1:7117); port 0: any; repeatable"},
    {"socket", 0, CLI_TEXT, "PATH", "listen there, too: a Unix socket, mode 0660"},
    {"socket-user", 0, CLI_TEXTS, "UID=ACCOUNT/TOKEN",
     "this user is logged in there as that token; repeatable"},
    {"data", 'd', CLI_TEXT, "DIR", "keep everything in this directory, durably"},
    {"memory", 0, CLI_FLAG, NULL, "keep nothing on disk (the default without --data)"},
    {"node", 0, CLI_TEXT, "NAME", "this node's name in its cluster"},
    {"peers", 0, CLI_TEXT, "N=HOST:PORT,...", "the first members, the same list on every node"},
    {"peer-listen", 0, CLI_TEXT, "ADDRESS:PORT", "where the other nodes connect"},
    {"tls-cert", 0, CLI_TEXT, "FILE",
     "this server's certificate, for clients and nodes (belay cert); SIGHUP reads it again"},
    {"tls-key", 0, CLI_TEXT, "FILE", "and its key"},
    {"tls-ca", 0, CLI_TEXT, "FILE",
     "the CA that certificates of nodes and clients must be from"},
    {"client-tls-cert", 0, CLI_TEXT, "FILE",
     "the certificate for clients, if not that for nodes"},
    {"client-tls-key", 0, CLI_TEXT, "FILE", "and its key"},
    {"client-tls-ca", 0, CLI_TEXT, "FILE", "the CA of clients, if not that of nodes"},
    {"join", 0, CLI_TEXT, "N:CLUSTER:SECRET",
     "join a cluster, with the text that CLUSTER ADD printed"},
    {"shards", 0, CLI_NUMBER, "N",
     "Raft groups for the namespaces; cannot be changed later (1; a cluster: 16)"},
    {"priority", 0, CLI_NUMBER, "N", "rank as a leader: 0 leads first, 15 never leads (14)"},
    {"node-timeout", 0, CLI_DURATION, "D",
     "drop the waiters of a node that has been silent for this long (30s)"},
    {"segment-kb", 0, CLI_NUMBER, "N", "size of a journal file, for a small disk (65536)"},
    {"snapshot-kb", 0, CLI_NUMBER, "N", "take a snapshot after this much journal (32768)"},
    {"level", 0, CLI_TEXT, "auto|manual",
     "after an upgrade, raise the level when all members know it (auto), or wait for belay cluster level"},
    {"fast-failover", 0, CLI_FLAG, NULL, "elect after 100 ms of silence instead of 400"},
    {"postgres-file", 0, CLI_TEXT, "FILE",
     "serve /v1/queues from the database whose URL is in this file (BELAY_POSTGRES)"},
    {"postgres", 0, CLI_TEXT, "URL",
     "the URL itself: other users can see it, with its password, until the server has started"},
    {"schema", 0, CLI_TEXT, "NAME", "the queue's schema in that database (belay)"},
    {"insecure", 0, CLI_FLAG, NULL,
     "allow plain text and clients that have not logged in from other machines; nodes without TLS"},
    {"audit", 0, CLI_TEXT, "FILE",
     "log operators' commands, logins and refusals here; SIGHUP opens it anew (belay audit)"},
    {"audit-required", 0, CLI_FLAG, NULL,
     "refuse operators' commands that cannot be written to the audit log"},
    {"host", 0, CLI_TEXTS, "NAME",
     "another name of this server that web pages may use; repeatable"},
    {"cors", 0, CLI_TEXTS, "ORIGIN",
     "pages from here may ask this server too: https://ops.example; repeatable"},
    {"max-memory", 0, CLI_SIZE, "SIZE",
     "above it new things are refused with OVERLOADED (three fifths of the machine's)"},
    {"max-connections", 0, CLI_NUMBER, "N", "connections at once (10000)"},
    {"max-connections-per-address", 0, CLI_NUMBER, "N",
     "connections of one address (a quarter of them; loopback: all)"},
    {"max-connections-per-token", 0, CLI_NUMBER, "N",
     "connections of one token, at this node (no limit)"},
    {"max-requests-per-address", 0, CLI_NUMBER, "N",
     "requests of one address in a second, at this node; above it THROTTLED (no limit)"},
    {"max-requests-per-token", 0, CLI_NUMBER, "N",
     "requests of one token in a second, at this node (no limit)"},
    {"head-timeout", 0, CLI_DURATION, "D",
     "time for an HTTP head or a TLS handshake to arrive (10s)"},
    {"body-timeout", 0, CLI_DURATION, "D", "time for a body or a RESP request to arrive (30s)"},
    {"idle-timeout", 0, CLI_DURATION, "D",
     "close HTTP connections after this long without a request (60s)"},
    {"resp-idle-timeout", 0, CLI_DURATION, "D",
     "close RESP connections after this long without a request, session, watch or wait (1h)"},
    {"write-timeout", 0, CLI_DURATION, "D",
     "close a client that reads nothing for this long (30s)"},
    {"reset-frees", 0, CLI_FLAG, NULL,
     "treat a connection reset as a close: it ends the session without waiting for the TTL"},
    {"trust-decay", 0, CLI_TEXT, "F", "factor by which the norm of calls falls (0.8321) after"},
    {"trust-period", 0, CLI_DURATION, "D", "this long without calls (3570ms)"},
    {"core", 0, CLI_FLAG, NULL, "allow core dumps and debuggers, which can show the memory"},
    {"log-level", 0, CLI_TEXT, "LEVEL", "error, warn, info (the default) or debug"},
    {"log-format", 0, CLI_TEXT, "FORMAT", "text (the default) or json: an object a line"},
    {"slow", 0, CLI_DURATION, "D",
     "log requests that take longer; the wait for a lock does not count (no log)"},
    {0},
};

const struct cli_command cli_cmd_serve = {
    .name = "serve",
    .args = "",
    .summary = "run a server: RESP and HTTP on one port",
    .about =
        "Prints the addresses it listens on, logs to stderr, and stops on SIGTERM or Ctrl-C\n"
        "after it has answered what is there.\n\n"
        "Options can also stand in a file (--config) and in the environment: max-memory = 2gb\n"
        "is BELAY_MAX_MEMORY=2gb there. The command line is stronger than the environment, and\n"
        "the environment is stronger than the file. Flags are yes or no. Of a list, a file has a\n"
        "line for each value, and the environment has commas. BELAY_TLS_CA, BELAY_TLS_CERT and\n"
        "BELAY_TLS_KEY are for clients only. Files of certificates and keys, and postgres-file,\n"
        "can be credentials of systemd: files in $CREDENTIALS_DIRECTORY with the name of the\n"
        "option, or with belay_ before it.",
    .exit_text =
        "  0  stopped as asked      2  wrong usage    6  cannot start, the log says why\n"
        "  7  removed from its cluster: do not start it again",
    .examples = "  belay serve --data /var/lib/belay\n"
                "  belay serve --memory\n"
                "  belay serve --data /var/lib/belay --node n1 --peer-listen 10.0.0.1:7200 \\\n"
                "      --peers n1=10.0.0.1:7200,n2=10.0.0.2:7200,n3=10.0.0.3:7200 \\\n"
                "      --tls-ca ca.crt --tls-cert n1.crt --tls-key n1.key\n"
                "  belay serve --listen 127.0.0.1:0 --log-level debug",
    .options = serve_options,
    .run = serve,
};
