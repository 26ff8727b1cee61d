/* metrics.c - what the server counts, as Prometheus text and as INFO lines. */
#include "server/metrics.h"

#include "audit/audit.h"
#include "auth/rule.h"
#include "base/log.h"
#include "belay_version.h"
#include "machine/machine.h"
#include "net/runtime.h"
#include "raft/replica.h"
#include "server/health.h"
#include "server/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METRICS_ACCOUNTS_MAX = 200 };

/* Whose a value is: the second kind is the same at every node, and must not be added up. */
enum scope { OF_NODE, OF_CLUSTER };

static const char *const results[] = {"ok", "refused", "error"};

/* How many files are open. The kernel says it since 6.2; before, counting them would take long
 * when there are many: then `about` is the answer, if it is known. */
static uint64_t process_files(uint64_t about)
{
    struct stat st;
    uint64_t n = 0;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    if (about)
        return about;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* False: the kernel does not say. */
static bool process_memory(uint64_t *ret_virtual, uint64_t *ret_resident)
{
    char text[128] = "";
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    char *end = text;
    *ret_virtual = strtoull(text, &end, 10) * page;
    *ret_resident = strtoull(end, NULL, 10) * page;
    return n > 0 && *ret_resident > 0;
}

void metrics_init(struct metrics *m, uint64_t now_ms)
{
    m->started_ms = now_ms;
    m->started_wall_ns = server_wall_ns();
    m->files_at_start = process_files(0);
}

static void head(struct buf *out, const char *name, const char *type, enum scope scope,
                 const char *help)
{
    static const char *const whose[] = {"(This node.)",
                                        "(The cluster: the same at each node.)"};
    buf_printf(out, "# HELP %s %s %s\n# TYPE %s %s\n", name, help, whose[scope], name, type);
}

static void put(struct buf *out, const char *name, const char *type, enum scope scope,
                const char *help, uint64_t value)
{
    head(out, name, type, scope, help);
    buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void gauge(struct buf *out, const char *name, const char *help, uint64_t value)
{
    put(out, name, "gauge", OF_NODE, help, value);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
    put(out, name, "counter", OF_NODE, help, value);
}

static void shared(struct buf *out, const char *name, const char *help, uint64_t value)
{
    put(out, name, "gauge", OF_CLUSTER, help, value);
}

static void seconds(struct buf *out, const char *name, const char *type, const char *help,
                    double value)
{
    head(out, name, type, OF_NODE, help);
    buf_printf(out, "%s %.3f\n", name, value);
}

/* `labels`: those of each row, without braces; "" for none. */
static void put_histogram(struct buf *out, const char *name, const char *labels,
                          const struct histogram *h)
{
    const char *comma = *labels ? "," : "";
    uint64_t n = 0;
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        n += h->n[i];
        buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, labels, comma,
                   (double)histogram_bounds_ns[i] / 1e9, n);
    }
    n += h->n[HISTOGRAM_BOUNDS];
    buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, n);
    const char *open = *labels ? "{" : "";
    const char *close = *labels ? "}" : "";
    buf_printf(out, "%s_sum%s%s%s %.9f\n", name, open, labels, close, (double)h->sum_ns / 1e9);
    buf_printf(out, "%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, n);
}

void metrics_label(struct buf *out, const char *metric, const char *label, const char *value)
{
    buf_printf(out, "%s{%s=\"", metric, label);
    for (; *value; value++) {
        if (*value == '\n')
            buf_put_str(out, "\\n");
        else if (*value == '"' || *value == '\\')
            buf_printf(out, "\\%c", *value);
        else
            buf_put_byte(out, *value);
    }
    buf_put_str(out, "\"} ");
}

/* One row for each command and result that there was: their number is bounded, whatever clients
 * send. */
static void put_requests(const struct metrics *m, struct buf *out)
{
    static const char total[] = "belay_requests_total";
    static const char duration[] = "belay_request_duration_seconds";
    struct buf durations = {0};
    head(out, total, "counter", OF_NODE, "Requests answered, by command and result.");
    head(&durations, duration, "histogram", OF_NODE,
         "Time from taking a request to its answer, without the time in a line.");
    for (int i = 0; i <= COMMAND_COUNT_ALL; i++) {
        const char *name =
            i < COMMAND_COUNT_ALL ? command_get((enum command_id)i)->name.data : "unknown";
        for (int r = 0; r < OUTCOME_COUNT; r++) {
            const struct histogram *h = &m->requests[i][r];
            uint64_t n = histogram_count(h);
            char labels[128];
            if (n == 0)
                continue;
            snprintf(labels, sizeof labels, "command=\"%s\",result=\"%s\"", name, results[r]);
            buf_printf(out, "%s{%s} %" PRIu64 "\n", total, labels, n);
            put_histogram(&durations, duration, labels, h);
        }
    }
    buf_put_slice(out, buf_slice(&durations));
    buf_done(&durations);
}

static void put_news(const struct metrics *m, struct buf *out)
{
    head(out, "belay_events_total", "counter", OF_CLUSTER,
         "Events of locks and sessions, by kind, since the start of the node.");
    for (int i = 0; i < EVENT_KIND_COUNT; i++) {
        if (i == EVENT_ROWS || i == EVENT_FAILED || i == EVENT_CHECKED)
            continue; /* never news */
        buf_printf(out, "belay_events_total{event=\"%s\"} %" PRIu64 "\n",
                   event_word((enum event_kind)i), m->news[i]);
    }
}

static void put_waits(const struct metrics *m, struct buf *out)
{
    static const char line[] = "belay_line_wait_seconds";
    static const char handover[] = "belay_handover_seconds";
    head(
        out, line, "histogram", OF_NODE,
        "Time that requests waited in a line, or transactions for their condition, by result.");
    for (int r = 0; r < OUTCOME_COUNT; r++) {
        char labels[32];
        snprintf(labels, sizeof labels, "result=\"%s\"", results[r]);
        put_histogram(out, line, labels, &m->line[r]);
    }
    head(
        out, handover, "histogram", OF_NODE,
        "Time of grants to waiters, from the release or the end of a lease (with --data: when it "
        "is committed) to the write of the answer.");
    put_histogram(out, handover, "", &m->handover);
}

static void count_doors(const struct server *s, uint64_t ret[3])
{
    ret[DOOR_SNIFF] = ret[DOOR_RESP] = ret[DOOR_HTTP] = 0;
    list_each (it, &s->conns)
        ret[list_item(it, struct conn, all)->door]++;
}

static uint64_t uptime_s(const struct server *s)
{
    return (uv_now(&s->loop) - s->metrics.started_ms) / 1000;
}

static struct trust trust_now(const struct server *s)
{
    struct trust t = s->trust;
    trust_advance(&t, uv_now(&s->loop));
    return t;
}

static void put_trust(const struct server *s, struct buf *out)
{
    struct trust t = trust_now(s);
    head(out, "belay_trust", "gauge", OF_NODE,
         "Calls of the last second over their norm, 0 to 1.");
    buf_printf(out, "belay_trust %.6f\n", t.level);
    head(out, "belay_calls_norm", "gauge", OF_NODE,
         "Usual number of calls a second at this node.");
    buf_printf(out, "belay_calls_norm %.6f\n", t.norm);
}

static void put_gauges(const struct server *s, struct buf *out)
{
    const struct metrics *m = &s->metrics;
    struct machine_counts n;
    uint64_t doors[3];
    engine_counts(s->engine, &n);
    count_doors(s, doors);
    shared(out, "belay_locks", "Locks that exist.", n.locks);
    shared(out, "belay_held", "Locks that are held.", n.held);
    shared(out, "belay_waiting", "Waiters in all lines.", n.waiting);
    shared(out, "belay_sessions", "Live sessions.", n.sessions);
    shared(out, "belay_namespaces", "Namespaces.", n.namespaces);
    shared(out, "belay_variables", "Records of variables.", n.variables);
    shared(out, "belay_transactions_waiting", "Transactions that wait.", n.transactions);
    shared(out, "belay_receipts", "Answers kept for requests with an id.", n.receipts);
    put_trust(s, out);
    head(out, "belay_connections", "gauge", OF_NODE, "Open connections by door.");
    buf_printf(out, "belay_connections{door=\"resp\"} %" PRIu64 "\n", doors[DOOR_RESP]);
    buf_printf(out, "belay_connections{door=\"http\"} %" PRIu64 "\n", doors[DOOR_HTTP]);
    buf_printf(out, "belay_connections{door=\"silent\"} %" PRIu64 "\n", doors[DOOR_SNIFF]);
    gauge(out, "belay_connections_max", "Connections that are allowed.", s->max_conns);
    counter(out, "belay_accepted_total", "Connections taken.", m->accepted);
    counter(out, "belay_closed_timeout_total", "Connections closed: too slow.",
            m->closed_timeout);
    counter(out, "belay_closed_lagging_total", "Watchers closed: fell behind.",
            m->closed_lagging);
    counter(out, "belay_closed_yielded_total",
            "Connections closed: idle, and another one needed the place.", m->closed_yielded);
    counter(out, "belay_refused_connections_total",
            "Connections refused: too many of one address, or the rest is for operators.",
            m->refused_connections);
    counter(out, "belay_closed_overloaded_total",
            "Connections closed: the client left too many replies unread.",
            m->closed_overloaded);
    counter(out, "belay_overloaded_total", "Requests refused: no memory for new things.",
            m->refused_overloaded);
    gauge(out, "belay_tls_handshakes", "Handshakes of TLS that are under way.", s->n_shaking);
    counter(out, "belay_tls_opened_total", "Open connections with TLS.", m->tls_opened);
    counter(out, "belay_tls_failed_total",
            "Connections with TLS that failed, or gave way to others in their handshake.",
            m->tls_failed);
    counter(out, "belay_failed_logins_total", "Failed logins: the token is not valid.",
            m->failed_logins);
    counter(out, "belay_throttled_total", "Requests and logins refused: too many.",
            m->throttled);
    counter(out, "belay_guard_refused_total", "Requests of foreign pages refused.",
            m->refused_guard);
    counter(out, "belay_accept_paused_total", "Times that no connection was free.", m->paused);
    counter(out, "belay_read_bytes_total", "Bytes read.", m->bytes_in);
    counter(out, "belay_written_bytes_total", "Bytes written.", m->bytes_out);
    seconds(out, "belay_loop_lag_seconds", "gauge", "How late the last tick of one second was.",
            (double)m->lag_ms / 1e3);
    seconds(out, "belay_loop_lag_max_seconds", "gauge",
            "The longest such delay since the start.", (double)m->lag_max_ms / 1e3);
    gauge(out, "belay_uptime_seconds", "Since the start.", uptime_s(s));
    head(out, "belay_build_info", "gauge", OF_NODE, "The build.");
    buf_printf(out, "belay_build_info{version=\"%s\"} 1\n", BELAY_VERSION);
}

static void put_audit(const struct server *s, struct buf *out)
{
    struct audit_state a;
    audit_look(s->trail.audit, &a);
    counter(out, "belay_audit_lines_total", "Lines of the audit log.", a.put);
    gauge(out, "belay_audit_waiting", "Lines that are not on the disk yet.", a.put - a.durable);
    gauge(out, "belay_audit_failing", "1: the audit log cannot be written.", a.error != 0);
    counter(out, "belay_audit_lost_total", "Lines for which there was no room.", a.lost);
    counter(out, "belay_audit_skipped_total", "Refusals that were counted but not written.",
            s->trail.skipped);
}

static void put_memory(const struct server *s, struct buf *out)
{
    gauge(out, "belay_memory_max_bytes", "Memory that is allowed (--max-memory).",
          s->budget.limit);
    head(out, "belay_memory_bytes", "gauge", OF_NODE, "Memory that is allocated, by use.");
    for (int i = 0; i < BUDGET_PARTS; i++)
        buf_printf(out, "belay_memory_bytes{part=\"%s\"} %zu\n",
                   budget_part_name((enum budget_part)i),
                   budget_used(&s->budget, (enum budget_part)i));
}

/* One row per group for each of these; there are at most SERVER_SHARDS_MAX + 1 groups. */
static void put_shards(const struct server *s, struct buf *out)
{
    static const struct {
        const char *name, *help;
        enum scope scope;
    } rows[] = {
        {"belay_shard_leader", "1: this node leads the group.", OF_NODE},
        {"belay_shard_term", "Term of the group: it rises with elections.", OF_CLUSTER},
        {"belay_shard_committed", "Last log entry committed, as known here.", OF_NODE},
        {"belay_shard_applied", "Last log entry applied here.", OF_NODE},
        {"belay_shard_pending", "Changes asked here that are not applied yet.", OF_NODE},
        {"belay_shard_journal_bytes", "Bytes of the journal that stay until the next snapshot.",
         OF_NODE}};
    struct replica *o = runtime_replica(s->runtime);
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        head(out, rows[row].name, "gauge", rows[row].scope, rows[row].help);
        for (size_t i = 0; i < replica_groups(o); i++) {
            const struct group *g = replica_group(o, i);
            uint64_t values[] = {group_role(g) == GROUP_LEADER,
                                 group_term(g),
                                 group_commit(g),
                                 group_applied(g),
                                 replica_pending(o, i),
                                 replica_kept_bytes(o, i)};
            buf_printf(out, "%s{shard=\"%zu\"} %" PRIu64 "\n", rows[row].name, i, values[row]);
        }
    }
}

/* When the file was written, by the wall clock; 0: that cannot be seen. */
static double written_s(const struct server *s, const char *name)
{
    struct stat st;
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", s->config->node.data, name);
    if (n < 0 || (size_t)n >= sizeof path || stat(path, &st) != 0)
        return 0;
    return (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec / 1e9;
}

static void put_snapshots(const struct server *s, struct buf *out)
{
    static const char bytes[] = "belay_shard_snapshot_bytes";
    static const char age[] = "belay_shard_snapshot_age_seconds";
    double now = (double)server_wall_ns() / 1e9;
    const struct replica *o = runtime_replica(s->runtime);
    struct snapshot_file file;
    struct buf ages = {0};
    head(out, bytes, "gauge", OF_NODE, "Size of the last snapshot of the group.");
    head(&ages, age, "gauge", OF_NODE,
         "Time since the last snapshot of the group was written.");
    for (size_t i = 0; i < replica_groups(o); i++) {
        if (!replica_snapshot(o, i, &file))
            continue;
        buf_printf(out, "%s{shard=\"%zu\"} %" PRIu64 "\n", bytes, i, file.bytes);
        double at = written_s(s, file.name);
        if (at > 0)
            buf_printf(&ages, "%s{shard=\"%zu\"} %.3f\n", age, i, now > at ? now - at : 0);
    }
    buf_put_slice(out, buf_slice(&ages));
    buf_done(&ages);
}

static void put_disk(const struct server *s, struct buf *out)
{
    static const char write[] = "belay_journal_write_seconds";
    static const char commit[] = "belay_commit_seconds";
    struct replica *o = runtime_replica(s->runtime);
    struct journal *j = replica_journal(o);
    gauge(out, "belay_disk_full", "1: the disk is full, only STALE reads are answered.",
          replica_is_full(o));
    gauge(out, "belay_journal_bytes", "Bytes of the journal.", journal_bytes(j));
    counter(out, "belay_journal_batches_total", "Batches written to the journal.",
            journal_durable(j));
    head(out, write, "histogram", OF_NODE,
         "Time of a write to the journal with its fdatasync.");
    put_histogram(out, write, "", runtime_writes(s->runtime));
    head(out, commit, "histogram", OF_NODE,
         "Time from putting an entry into a log, as its leader, until it is applied here; one "
         "entry of each group is timed at a time.");
    put_histogram(out, commit, "", runtime_commits(s->runtime));
    counter(out, "belay_snapshots_failed_total", "Snapshots that could not be stored.",
            replica_snapshots_failed(o));
    put_snapshots(s, out);
}

static void put_ready(const struct server *s, struct buf *out)
{
    static const char *const words[] = {"stopping",  "too-old",    "leaving",  "refused",
                                        "fetching",  "behind",     "starting", "disk-full",
                                        "no-leader", "no-majority"};
    const char *word;
    const char *why = server_not_ready(s, &word);
    gauge(out, "belay_ready", "1: this node can serve.", !why);
    head(out, "belay_not_ready", "gauge", OF_NODE,
         "1: this node cannot serve, for this reason.");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        buf_printf(out, "belay_not_ready{reason=\"%s\"} %d\n", words[i],
                   why && strcmp(word, words[i]) == 0);
}

static void put_cluster(const struct server *s, struct buf *out)
{
    struct runtime_member members[GROUP_SERVERS_MAX];
    size_t n = runtime_members(s->runtime, members, GROUP_SERVERS_MAX);
    head(out, "belay_node_up", "gauge", OF_NODE,
         "1: this node and that one are connected, both ways.");
    for (size_t i = 0; i < n; i++) {
        metrics_label(out, "belay_node_up", "node", members[i].member.name);
        buf_printf(out, "%d\n", members[i].up);
    }
    head(out, "belay_node_refused", "gauge", OF_NODE,
         "1: this node and that one do not listen to each other, or one does not.");
    for (size_t i = 0; i < n; i++) {
        metrics_label(out, "belay_node_refused", "node", members[i].member.name);
        buf_printf(out, "%d\n", members[i].refused);
    }
    head(out, "belay_clock_rate_ppm", "gauge", OF_NODE,
         "How much faster that node's clock goes than this one's, per million; over a minute.");
    for (size_t i = 0; i < n; i++) {
        int64_t ppm;
        if (!replica_clock_rate(runtime_replica(s->runtime), members[i].id, &ppm))
            continue;
        metrics_label(out, "belay_clock_rate_ppm", "node", members[i].member.name);
        buf_printf(out, "%" PRId64 "\n", ppm);
    }
    put_disk(s, out);
    int64_t left = 0;
    if (runtime_certificate_expires_s(s->runtime, &left))
        gauge(out, "belay_certificate_expiry_seconds",
              "Seconds until this node's certificate ends; 0: it has ended.",
              left > 0 ? (uint64_t)left : 0);
    put_shards(s, out);
}

static void put_certificate(const struct server *s, struct buf *out)
{
    if (!s->tls.context)
        return;
    int64_t left = tls_context_expires_s(s->tls.context);
    gauge(out, "belay_client_certificate_expiry_seconds",
          "Seconds until the certificate for clients ends; 0: it has ended.",
          left > 0 ? (uint64_t)left : 0);
}

static double cpu_s(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) != 0)
        return 0;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Names and meaning are those of all programs that Prometheus watches. */
static void put_process(const struct server *s, struct buf *out)
{
    struct rlimit files;
    uint64_t virtual_bytes;
    uint64_t resident_bytes;
    seconds(out, "process_cpu_seconds_total", "counter", "Processor time used.", cpu_s());
    seconds(out, "process_start_time_seconds", "gauge", "Time of day when the node started.",
            (double)s->metrics.started_wall_ns / 1e9);
    if (process_memory(&virtual_bytes, &resident_bytes)) {
        gauge(out, "process_virtual_memory_bytes", "Address space.", virtual_bytes);
        gauge(out, "process_resident_memory_bytes", "Memory in use.", resident_bytes);
    }
    gauge(out, "process_open_fds", "Open file descriptors.",
          process_files(s->metrics.files_at_start + s->n_conns));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        gauge(out, "process_max_fds", "File descriptors that are allowed.", files.rlim_cur);
}

/* May the client see this account's counts? */
static bool may_see(const struct context *asker, struct slice account)
{
    if (!asker->who || rules_can(asker->who->rules, VERB_ACCOUNTS, SLICE(""), SLICE(""), NULL))
        return true;
    return slice_eq(asker->account, account);
}

static bool is_limited(const struct account_row *row)
{
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        if (row->limits[i])
            return true;
    return false;
}

static void put_quota(struct buf *out, const char *metric, const struct account_row *row,
                      size_t quota, uint64_t value)
{
    char id[LIMIT_ACCOUNT_BYTES + 1] = "";
    memcpy(id, row->id.data, row->id.len < LIMIT_ACCOUNT_BYTES ? row->id.len : 0);
    buf_printf(out, "%s{account=\"%s\",what=\"%s\"} %" PRIu64 "\n", metric, id,
               quota_word((enum quota)quota), value);
}

/* Accounts with limits: what they may have, and what they have of it. */
static void put_accounts(const struct server *s, const struct context *asker, struct buf *out)
{
    static const char limit[] = "belay_account_limit", used[] = "belay_account_used";
    struct account_row row;
    struct buf counts = {0};
    size_t n = 0;
    head(out, limit, "gauge", OF_CLUSTER, "Limits of the accounts that have any.");
    head(&counts, used, "gauge", OF_CLUSTER, "Use of each limit by its account.");
    for (size_t i = 0; i < engine_accounts(s->engine) && n < METRICS_ACCOUNTS_MAX; i++) {
        if (!engine_account_at(s->engine, i, &row) || !is_limited(&row) ||
            !may_see(asker, row.id))
            continue;
        n++;
        for (size_t q = 0; q < QUOTA_COUNT; q++) {
            if (!row.limits[q])
                continue;
            put_quota(out, limit, &row, q, row.limits[q]);
            put_quota(&counts, used, &row, q, row.used[q]);
        }
    }
    if (n)
        buf_put_slice(out, buf_slice(&counts));
    buf_done(&counts);
}

void metrics_write(const struct server *s, struct buf *out)
{
    put_requests(&s->metrics, out);
    put_news(&s->metrics, out);
    put_waits(&s->metrics, out);
    put_gauges(s, out);
    put_process(s, out);
    put_memory(s, out);
    put_certificate(s, out);
    if (s->trail.audit)
        put_audit(s, out);
    put_ready(s, out);
    if (s->runtime)
        put_cluster(s, out);
    put_accounts(s, s->call.context, out);
}

void metrics_info(const struct server *s, struct buf *out)
{
    struct machine_counts n;
    engine_counts(s->engine, &n);
    const char *word;
    const char *why = server_not_ready(s, &word);
    buf_printf(out, "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n");
    buf_printf(out, "belay_version:%s\r\nprocess_id:%d\r\ntcp_address:%s\r\n", BELAY_VERSION,
               (int)getpid(), s->address);
    buf_printf(out, "uptime_in_seconds:%" PRIu64 "\r\n", uptime_s(s));
    buf_printf(out, "\r\n# Clients\r\nconnected_clients:%zu\r\nmaxclients:%zu\r\n", s->n_conns,
               s->max_conns);
    buf_printf(out, "blocked_clients:%" PRIu64 "\r\n", n.waiting);
    buf_printf(out, "\r\n# Persistence\r\nloading:0\r\n");
    buf_printf(out, "\r\n# Stats\r\ntotal_connections_received:%" PRIu64 "\r\n",
               s->metrics.accepted);
    buf_printf(out, "\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
    buf_printf(out, "\r\n# Belay\r\nengine:%s\r\nready:%s\r\n", s->runtime ? "raft" : "memory",
               why ? why : "yes");
    buf_printf(out,
               "locks:%" PRIu64 "\r\nheld:%" PRIu64 "\r\nwaiting:%" PRIu64
               "\r\nsessions:%" PRIu64 "\r\nnamespaces:%" PRIu64 "\r\n",
               n.locks, n.held, n.waiting, n.sessions, n.namespaces);
    struct trust t = trust_now(s);
    buf_printf(out, "variables:%" PRIu64 "\r\nwaiting_transactions:%" PRIu64 "\r\n",
               n.variables, n.transactions);
    buf_printf(out, "log_level:%s\r\n", log_level_word(log_max));
    buf_printf(out, "trust:%.6f\r\ncalls_norm:%.6f\r\n", t.level, t.norm);
    health_info(s, out);
}
