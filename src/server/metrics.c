/* metrics.c - what the server counts, as Prometheus text and as INFO lines. */
#include "server/metrics.h"

#include "audit/audit.h"
#include "auth/rule.h"
#include "base/log.h"
#include "belay_version.h"
#include "machine/machine.h"
#include "net/runtime.h"
#include "raft/replica.h"
#include "server/state.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { HANDOVER_FIRST_NS = 16000, METRICS_ACCOUNTS_MAX = 200 };

void metrics_handover(struct metrics *m, size_t n, uint64_t ns)
{
    size_t i = 0;
    for (uint64_t top = HANDOVER_FIRST_NS; i + 1 < METRICS_BUCKETS && ns > top; top *= 2)
        i++;
    m->handover[i] += n;
    m->handover_n += n;
    m->handover_ns += n * ns;
}

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buf *out, const char *name, const char *type, const char *help,
                uint64_t value)
{
    head(out, name, type, help);
    buf_printf(out, "%s %" PRIu64 "\n", name, value);
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

static void put_requests(const struct metrics *m, struct buf *out)
{
    static const char *const results[] = {"ok", "refused", "error"};
    head(out, "belay_requests_total", "counter", "Requests answered, by command and result.");
    for (int i = 0; i <= COMMAND_COUNT_ALL; i++) {
        const char *name =
            i < COMMAND_COUNT_ALL ? command_get((enum command_id)i)->name.data : "unknown";
        for (int r = 0; r < OUTCOME_COUNT; r++) {
            if (m->requests[i][r])
                buf_printf(out,
                           "belay_requests_total{command=\"%s\",result=\"%s\"} %" PRIu64 "\n",
                           name, results[r], m->requests[i][r]);
        }
    }
}

static void put_news(const struct metrics *m, struct buf *out)
{
    head(out, "belay_events_total", "counter", "Events of locks and sessions, by kind.");
    for (int i = 0; i < EVENT_KIND_COUNT; i++) {
        if (i == EVENT_ROWS || i == EVENT_FAILED || i == EVENT_CHECKED)
            continue; /* never news */
        buf_printf(out, "belay_events_total{event=\"%s\"} %" PRIu64 "\n",
                   event_word((enum event_kind)i), m->news[i]);
    }
}

static void put_handover(const struct metrics *m, struct buf *out)
{
    uint64_t sum = 0;
    head(
        out, "belay_handover_seconds", "histogram",
        "Time of grants to waiters, from the release or the end of a lease (with --data: when it "
        "is committed) to the write of the answer.");
    for (int i = 0; i + 1 < METRICS_BUCKETS; i++) {
        double top = (double)((uint64_t)HANDOVER_FIRST_NS << i) / 1e9;
        sum += m->handover[i];
        buf_printf(out, "belay_handover_seconds_bucket{le=\"%.6f\"} %" PRIu64 "\n", top, sum);
    }
    buf_printf(out, "belay_handover_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n", m->handover_n);
    buf_printf(out, "belay_handover_seconds_sum %.9f\n", (double)m->handover_ns / 1e9);
    buf_printf(out, "belay_handover_seconds_count %" PRIu64 "\n", m->handover_n);
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
    head(out, "belay_trust", "gauge", "Calls of the last second over their norm, 0 to 1.");
    buf_printf(out, "belay_trust %.6f\n", t.level);
    head(out, "belay_calls_norm", "gauge", "Usual number of calls a second at this node.");
    buf_printf(out, "belay_calls_norm %.6f\n", t.norm);
}

static void put_gauges(const struct server *s, struct buf *out)
{
    const struct metrics *m = &s->metrics;
    struct machine_counts n;
    uint64_t doors[3];
    engine_counts(s->engine, &n);
    count_doors(s, doors);
    one(out, "belay_locks", "gauge", "Locks that exist.", n.locks);
    one(out, "belay_held", "gauge", "Locks that are held.", n.held);
    one(out, "belay_waiting", "gauge", "Waiters in all lines.", n.waiting);
    one(out, "belay_sessions", "gauge", "Live sessions.", n.sessions);
    one(out, "belay_namespaces", "gauge", "Namespaces.", n.namespaces);
    one(out, "belay_variables", "gauge", "Records of variables.", n.variables);
    one(out, "belay_transactions_waiting", "gauge", "Transactions that wait.", n.transactions);
    one(out, "belay_receipts", "gauge", "Answers kept for requests with an id.", n.receipts);
    put_trust(s, out);
    head(out, "belay_connections", "gauge", "Open connections by door.");
    buf_printf(out, "belay_connections{door=\"resp\"} %" PRIu64 "\n", doors[DOOR_RESP]);
    buf_printf(out, "belay_connections{door=\"http\"} %" PRIu64 "\n", doors[DOOR_HTTP]);
    buf_printf(out, "belay_connections{door=\"silent\"} %" PRIu64 "\n", doors[DOOR_SNIFF]);
    one(out, "belay_connections_max", "gauge", "Connections that are allowed.", s->max_conns);
    one(out, "belay_accepted_total", "counter", "Connections taken.", m->accepted);
    one(out, "belay_closed_timeout_total", "counter", "Connections closed: too slow.",
        m->closed_timeout);
    one(out, "belay_closed_lagging_total", "counter", "Watchers closed: fell behind.",
        m->closed_lagging);
    one(out, "belay_closed_yielded_total", "counter",
        "Connections closed: idle, and another one needed the place.", m->closed_yielded);
    one(out, "belay_refused_connections_total", "counter",
        "Connections refused: too many of one address, or the rest is for operators.",
        m->refused_connections);
    one(out, "belay_closed_overloaded_total", "counter",
        "Connections closed: the client left too many replies unread.", m->closed_overloaded);
    one(out, "belay_overloaded_total", "counter", "Requests refused: no memory for new things.",
        m->refused_overloaded);
    one(out, "belay_tls_handshakes", "gauge", "Handshakes of TLS that are under way.",
        s->n_shaking);
    one(out, "belay_tls_opened_total", "counter", "Open connections with TLS.", m->tls_opened);
    one(out, "belay_tls_failed_total", "counter",
        "Connections with TLS that failed, or gave way to others in their handshake.",
        m->tls_failed);
    one(out, "belay_failed_logins_total", "counter", "Failed logins: the token is not valid.",
        m->failed_logins);
    one(out, "belay_throttled_total", "counter", "Requests and logins refused: too many.",
        m->throttled);
    one(out, "belay_guard_refused_total", "counter", "Requests of foreign pages refused.",
        m->refused_guard);
    one(out, "belay_accept_paused_total", "counter", "Times that no connection was free.",
        m->paused);
    one(out, "belay_read_bytes_total", "counter", "Bytes read.", m->bytes_in);
    one(out, "belay_written_bytes_total", "counter", "Bytes written.", m->bytes_out);
    one(out, "belay_loop_lag_ms", "gauge", "How late the last tick of one second was.",
        m->lag_ms);
    one(out, "belay_loop_lag_max_ms", "gauge", "The longest such delay so far.", m->lag_max_ms);
    one(out, "belay_uptime_seconds", "gauge", "Since the start.", uptime_s(s));
    head(out, "belay_build_info", "gauge", "The build.");
    buf_printf(out, "belay_build_info{version=\"%s\"} 1\n", BELAY_VERSION);
}

static void put_audit(const struct server *s, struct buf *out)
{
    struct audit_state a;
    audit_look(s->trail.audit, &a);
    one(out, "belay_audit_lines_total", "counter", "Lines of the audit log.", a.put);
    one(out, "belay_audit_waiting", "gauge", "Lines that are not on the disk yet.",
        a.put - a.durable);
    one(out, "belay_audit_failing", "gauge", "1: the audit log cannot be written.",
        a.error != 0);
    one(out, "belay_audit_lost_total", "counter", "Lines for which there was no room.", a.lost);
    one(out, "belay_audit_skipped_total", "counter",
        "Refusals that were counted but not written.", s->trail.skipped);
}

static void put_memory(const struct server *s, struct buf *out)
{
    one(out, "belay_memory_max_bytes", "gauge", "Memory that is allowed (--max-memory).",
        s->budget.limit);
    head(out, "belay_memory_bytes", "gauge", "Memory that is allocated, by use.");
    for (int i = 0; i < BUDGET_PARTS; i++)
        buf_printf(out, "belay_memory_bytes{part=\"%s\"} %zu\n",
                   budget_part_name((enum budget_part)i),
                   budget_used(&s->budget, (enum budget_part)i));
}

/* One row per group for each of these; there are at most SERVER_SHARDS_MAX + 1 groups. */
static void put_shards(const struct server *s, struct buf *out)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {{"belay_shard_leader", "gauge", "1: this node leads the group."},
                {"belay_shard_term", "counter", "Term of the group: it rises with elections."},
                {"belay_shard_committed", "counter", "Log entries committed, as known here."},
                {"belay_shard_applied", "counter", "Log entries applied here."},
                {"belay_shard_journal_bytes", "gauge",
                 "Bytes of the journal that stay until the shard's next snapshot."}};
    struct replica *o = runtime_replica(s->runtime);
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        head(out, rows[row].name, rows[row].type, rows[row].help);
        for (size_t i = 0; i < replica_groups(o); i++) {
            const struct group *g = replica_group(o, i);
            uint64_t values[] = {group_role(g) == GROUP_LEADER, group_term(g), group_commit(g),
                                 group_applied(g), replica_kept_bytes(o, i)};
            buf_printf(out, "%s{shard=\"%zu\"} %" PRIu64 "\n", rows[row].name, i, values[row]);
        }
    }
}

static void put_ready(const struct server *s, struct buf *out)
{
    static const char *const words[] = {"stopping",  "too-old",    "leaving",  "refused",
                                        "fetching",  "behind",     "starting", "disk-full",
                                        "no-leader", "no-majority"};
    const char *word;
    const char *why = server_not_ready(s, &word);
    one(out, "belay_ready", "gauge", "1: this node can serve.", !why);
    head(out, "belay_not_ready", "gauge", "1: this node cannot serve, for this reason.");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        buf_printf(out, "belay_not_ready{reason=\"%s\"} %d\n", words[i],
                   why && strcmp(word, words[i]) == 0);
}

static void put_cluster(const struct server *s, struct buf *out)
{
    struct runtime_member members[GROUP_SERVERS_MAX];
    struct journal *j = replica_journal(runtime_replica(s->runtime));
    size_t n = runtime_members(s->runtime, members, GROUP_SERVERS_MAX);
    head(out, "belay_node_up", "gauge", "1: this node and that one are connected, both ways.");
    for (size_t i = 0; i < n; i++) {
        metrics_label(out, "belay_node_up", "node", members[i].member.name);
        buf_printf(out, "%d\n", members[i].up);
    }
    head(out, "belay_node_refused", "gauge",
         "1: this node and that one do not listen to each other, or one does not.");
    for (size_t i = 0; i < n; i++) {
        metrics_label(out, "belay_node_refused", "node", members[i].member.name);
        buf_printf(out, "%d\n", members[i].refused);
    }
    head(out, "belay_clock_rate_ppm", "gauge",
         "How much faster that node's clock goes than this one's, per million; over a minute.");
    for (size_t i = 0; i < n; i++) {
        int64_t ppm;
        if (!replica_clock_rate(runtime_replica(s->runtime), members[i].id, &ppm))
            continue;
        metrics_label(out, "belay_clock_rate_ppm", "node", members[i].member.name);
        buf_printf(out, "%" PRId64 "\n", ppm);
    }
    put_ready(s, out);
    one(out, "belay_disk_full", "gauge", "1: the disk is full, only STALE reads are answered.",
        replica_is_full(runtime_replica(s->runtime)));
    one(out, "belay_journal_bytes", "gauge", "Bytes of the journal.", journal_bytes(j));
    one(out, "belay_journal_batches_total", "counter", "Batches written to the journal.",
        journal_durable(j));
    one(out, "belay_snapshots_failed_total", "counter", "Snapshots that could not be stored.",
        replica_snapshots_failed(runtime_replica(s->runtime)));
    int64_t left = 0;
    if (host_certificate_expires_s(s->runtime, &left))
        one(out, "belay_certificate_expiry_seconds", "gauge",
            "Seconds until this node's certificate ends; 0: it has ended.",
            left > 0 ? (uint64_t)left : 0);
    put_shards(s, out);
}

static void put_certificate(const struct server *s, struct buf *out)
{
    if (!s->tls.context)
        return;
    int64_t left = tls_context_expires_s(s->tls.context);
    one(out, "belay_client_certificate_expiry_seconds", "gauge",
        "Seconds until the certificate for clients ends; 0: it has ended.",
        left > 0 ? (uint64_t)left : 0);
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
    head(out, limit, "gauge", "Limits of the accounts that have any.");
    head(&counts, used, "gauge", "Use of each limit by its account.");
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
    put_handover(&s->metrics, out);
    put_gauges(s, out);
    put_memory(s, out);
    put_certificate(s, out);
    if (s->trail.audit)
        put_audit(s, out);
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
}
