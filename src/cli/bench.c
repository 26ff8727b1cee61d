/* bench.c - `belay bench`: how fast is a server, measured from one thread. The load is load.c.
 */
#include "cli/cli.h"
#include "cli/load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { HOST_BYTES = 256 };

static int parse_mode(const struct cli *c, struct load_config *g)
{
    const char *mode = cli_text(c, "mode", "pair");
    if (strcmp(mode, "pair") == 0)
        g->mode = LOAD_PAIR;
    else if (strcmp(mode, "handoff") == 0)
        g->mode = LOAD_HANDOFF;
    else if (strcmp(mode, "park") == 0)
        g->mode = LOAD_PARK;
    else if (strcmp(mode, "hold") == 0)
        g->mode = LOAD_HOLD;
    else
        return cli_usage(c, "--mode is pair, handoff, park or hold, not \"%s\"", mode);
    if (g->redis && g->mode != LOAD_PAIR && g->mode != LOAD_HOLD)
        return cli_usage(c, "Redis has no lines: with --redis only --mode pair or hold");
    if (g->txn && (g->redis || g->mode != LOAD_PAIR))
        return cli_usage(c, "--txn goes with --mode pair, and not with --redis");
    if (g->mode == LOAD_HANDOFF && g->connections < 2)
        return cli_usage(c, "a hand-off needs two connections");
    if (g->mode == LOAD_PAIR && g->pipeline > 1 && g->pipeline % 2)
        return cli_usage(c, "--pipeline is 1 or even: pairs of acquire and release");
    return CLI_OK;
}

static int parse_config(const struct cli *c, struct load_config *g)
{
    int64_t connections = cli_number(c, "connections", 50);
    int64_t pipeline = cli_number(c, "pipeline", 1);
    int64_t locks = cli_number(c, "locks", 1000000);
    if (connections < 1 || connections > LOAD_CONNECTIONS_MAX)
        return cli_usage(c, "--connections is 1 to %d", LOAD_CONNECTIONS_MAX);
    if (pipeline < 1 || pipeline > LOAD_PIPELINE_MAX)
        return cli_usage(c, "--pipeline is 1 to %d", LOAD_PIPELINE_MAX);
    if (locks < 1 || locks > LOAD_LOCKS_MAX)
        return cli_usage(c, "--locks is 1 to %d", LOAD_LOCKS_MAX);
    g->connections = (size_t)connections;
    g->pipeline = (size_t)pipeline;
    g->locks = (size_t)locks;
    g->redis = cli_given(c, "redis");
    g->txn = cli_given(c, "txn");
    g->duration_ms = cli_number(c, "duration", 5000);
    g->warmup_ms = cli_number(c, "warmup", 500);
    g->ttl_ms = cli_number(c, "ttl", 600000);
    g->server_pid = (int)cli_number(c, "server-pid", 0);
    int code = parse_mode(c, g);
    if (g->mode == LOAD_HOLD) {
        g->warmup_ms = 0;
        g->duration_ms = 600000; /* until all are held */
    }
    return code;
}

/* "host:port" of the first address; the measuring connections go to one server only. */
static int parse_addr(struct cli *c, char *host, const char **ret_port,
                      struct tls_context **ret_tls)
{
    int code = cli_connect(c); /* checks the list, connects to nothing */
    if (code != CLI_OK)
        return code;
    const char *addr = belay_addr(c->belay);
    bool sealed = strncmp(addr, "tls://", 6) == 0;
    if (strncmp(addr, "unix://", 7) == 0)
        return cli_usage(c, "the load goes to an address and a port, not to %s", addr);
    snprintf(host, HOST_BYTES, "%s", addr + (sealed ? 6 : 0));
    struct tls_files files = cli_tls_files(c);
    if (sealed && tls_context_open(&files, TLS_CALLER, ret_tls) != BELAY_OK)
        return cli_usage(c, "TLS: %s", tls_context_problem());
    char *colon = strrchr(host, ':');
    if (!colon)
        return cli_usage(c, "\"%s\" has no port", host);
    *colon = '\0';
    *ret_port = colon + 1;
    if (host[0] == '[') { /* [::1] */
        memmove(host, host + 1, strlen(host));
        host[strlen(host) - 1] = '\0';
    }
    return CLI_OK;
}

/* Every connection is a descriptor. */
static void raise_limit(size_t connections)
{
    struct rlimit r = {0};
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= connections + 64)
        return;
    r.rlim_cur = r.rlim_max < connections + 64 ? r.rlim_max : connections + 64;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0)
        return; /* then connecting says so */
}

static double per_op_us(uint64_t ns, uint64_t ops)
{
    return ops ? (double)ns / 1000.0 / (double)ops : 0;
}

static void put_json(struct buf *out, const struct load_config *g, const struct load_result *r,
                     double rate)
{
    buf_printf(out,
               "{\"ops_per_s\":%.0f,\"ops\":%" PRIu64 ",\"failures\":%" PRIu64
               ",\"connections\":%zu,\"pipeline\":%zu,\"redis\":%s",
               rate, r->ops, r->failures, g->connections, g->pipeline,
               g->redis ? "true" : "false");
    buf_printf(out, ",\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f",
               (double)load_percentile(&r->latency, 0.5) / 1000.0,
               (double)load_percentile(&r->latency, 0.99) / 1000.0,
               (double)load_percentile(&r->latency, 0.999) / 1000.0);
    buf_printf(out, ",\"client_cpu_us_per_op\":%.3f,\"server_cpu_us_per_op\":%.3f",
               per_op_us(r->client_cpu_ns, r->ops), per_op_us(r->server_cpu_ns, r->ops));
    buf_printf(out, ",\"server_cpu_part\":%.4f,\"server_rss_grown_bytes\":%" PRId64,
               (double)r->server_cpu_ns / (double)(r->elapsed_ns ? r->elapsed_ns : 1),
               r->server_rss_bytes);
    if (g->mode == LOAD_HANDOFF)
        buf_printf(out,
                   ",\"grants_min\":%" PRIu64 ",\"grants_max\":%" PRIu64
                   ",\"out_of_turn\":%" PRIu64,
                   r->grants_min, r->grants_max, r->out_of_turn);
    buf_put_str(out, "}\n");
}

static void put_text(struct buf *out, const struct load_config *g, const struct load_result *r,
                     double rate)
{
    buf_printf(out, "%.0f %s/s   %" PRIu64 " in %.2f s, %" PRIu64 " failures\n", rate,
               g->mode == LOAD_HANDOFF ? "hand-offs" : "ops", r->ops,
               (double)r->elapsed_ns / 1e9, r->failures);
    buf_printf(out, "latency us   p50 %.1f   p99 %.1f   p99.9 %.1f   (of a %s)\n",
               (double)load_percentile(&r->latency, 0.5) / 1000.0,
               (double)load_percentile(&r->latency, 0.99) / 1000.0,
               (double)load_percentile(&r->latency, 0.999) / 1000.0,
               g->mode == LOAD_PAIR && g->pipeline == 1 ? "request"
               : g->mode == LOAD_HANDOFF                ? "turn round the line"
                                                        : "batch");
    buf_printf(out, "cpu us/op    client %.3f", per_op_us(r->client_cpu_ns, r->ops));
    if (g->server_pid)
        buf_printf(out, "   server %.3f (%.1f %% of a core)   grown by %.1f MiB",
                   per_op_us(r->server_cpu_ns, r->ops),
                   100.0 * (double)r->server_cpu_ns /
                       (double)(r->elapsed_ns ? r->elapsed_ns : 1),
                   (double)r->server_rss_bytes / 1048576.0);
    buf_put_byte(out, '\n');
    if (g->mode == LOAD_HANDOFF)
        buf_printf(out,
                   "fairness     %" PRIu64 " to %" PRIu64 " grants a connection, %" PRIu64
                   " out of turn\n",
                   r->grants_min, r->grants_max, r->out_of_turn);
}

static int bench(struct cli *c)
{
    char host[HOST_BYTES], token[CLI_TOKEN_BYTES] = "", why[256] = "";
    struct load_config g = {.host = host};
    struct buf out = {0};
    int code = parse_config(c, &g);
    if (code == CLI_OK)
        code = parse_addr(c, host, &g.port, &g.tls);
    if (code == CLI_OK)
        code = cli_token(c, token);
    g.token = token[0] ? token : NULL;
    if (code != CLI_OK)
        return code;
    struct load_result *r = calloc(1, sizeof *r);
    if (!r)
        return cli_error(CLI_FAILED, "out of memory");
    raise_limit(g.connections);
    bool ran = load_run(&g, r, why, sizeof why);
    tls_context_close(g.tls);
    if (!ran) {
        free(r);
        return cli_error(CLI_UNREACHABLE, "%s:%s: %s", host, g.port, why);
    }
    double rate = (double)r->ops / ((double)(r->elapsed_ns ? r->elapsed_ns : 1) / 1e9);
    if (c->json)
        put_json(&out, &g, r, rate);
    else
        put_text(&out, &g, r, rate);
    code = r->failures ? CLI_REFUSED : CLI_OK;
    free(r);
    int failed = cli_flush(&out);
    return failed ? failed : code;
}

static const struct cli_option bench_options[] = {
    {"mode", 'm', CLI_TEXT, "MODE", "pair, handoff, park or hold (pair)"},
    {"connections", 'c', CLI_NUMBER, "N", "connections (50)"},
    {"pipeline", 'p', CLI_NUMBER, "N", "requests sent at a time by each (1)"},
    {"duration", 'd', CLI_DURATION, "D", "how long to measure (5s)"},
    {"warmup", 0, CLI_DURATION, "D", "run before measuring (500ms)"},
    {"locks", 0, CLI_NUMBER, "N", "hold: how many locks (1000000)"},
    {"ttl", 't', CLI_DURATION, "D", "of each lock (10m)"},
    {"redis", 0, CLI_FLAG, NULL, "a Redis server: SET NX PX and EVALSHA compare-and-delete"},
    {"txn", 0, CLI_FLAG, NULL,
     "transactions that set and delete a variable, in place of locks"},
    {"server-pid", 0, CLI_NUMBER, "PID", "measure that process, too"},
    {0},
};

const struct cli_command cli_cmd_bench = {
    .name = "bench",
    .args = "",
    .summary = "measure the speed of a server",
    .about =
        "pair: every connection takes and gives back its own lock.\n"
        "handoff: all connections wait in one line; each releases the lock at once and\n"
        "joins the line again. It counts connections that were overtaken. The client does\n"
        "not sleep between grants, so that its own wake-up is not measured.\n"
        "park: all but one wait and nothing happens; see the server's CPU and memory.\n"
        "hold: takes --locks locks with names of 16 bytes and ends.\n"
        "One thread; pin it and the server to different cores (taskset) to compare.\n"
        "Exits with 5 when an answer was not the expected one.",
    .examples = "  belay bench --connections 50 --server-pid $(pidof belay)\n"
                "  belay bench --pipeline 16\n"
                "  belay bench --txn --pipeline 16\n"
                "  belay bench --redis --addr 127.0.0.1:6379\n"
                "  belay bench --mode handoff --connections 65",
    .options = bench_options,
    .run = bench,
};
