/* node.c - nodes, by the lines of their INFO. Lines that are not there (an earlier version, no
 * TLS, nothing on disk) are no finding. */
#include "cli/doctor/doctor.h"

#include <inttypes.h>
#include <string.h>

bool doctor_line(const char *info, const char *name, char *ret, size_t cap)
{
    size_t len = strlen(name);
    for (const char *at = info; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, len) != 0 || at[len] != ':')
            continue;
        const char *value = at + len + 1;
        snprintf(ret, cap, "%.*s", (int)strcspn(value, "\r\n"), value);
        return true;
    }
    return false;
}

static bool number(const struct doctor_node *n, const char *name, uint64_t *ret)
{
    char text[32];
    int64_t v;
    if (!doctor_line(n->info, name, text, sizeof text) || cli_parse_number(text, &v))
        return false;
    *ret = (uint64_t)v;
    return true;
}

static const char *what_to_do(const char *word)
{
    static const struct {
        const char *word, *text;
    } rows[] = {
        {"no-majority", "Start the nodes that are down, or mend the network between them."},
        {"disk-full", "Make room on the disk of --data: the node goes on by itself."},
        {"behind", "Wait. If it stays so, look at the disk and the processor of this node."},
        {"too-old", "Start a newer belay on this node."},
        {"refused", "See \"A node is refused\" in docs/OPERATIONS.md."},
        {"leaving", "Wait until it has left; then its process ends."},
        {"stopping", "Wait until it has stopped, and start it again if it is to serve."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].word, word) == 0)
            return rows[i].text;
    return "Wait a few seconds and look again. If it stays so, read the log of this node.";
}

static void look_ready(struct doctor *d, const struct doctor_node *n)
{
    char why[512] = "", word[32] = "";
    if (!doctor_line(n->info, "ready", why, sizeof why) || strcmp(why, "yes") == 0)
        return;
    (void)doctor_line(n->info, "not_ready", word, sizeof word);
    doctor_find(d, DOCTOR_ERROR, *word ? word : "not-ready", "it cannot serve: %s", why);
    doctor_advise(d, "%s", what_to_do(word));
}

static void look_memory(struct doctor *d, const struct doctor_node *n)
{
    uint64_t used, most;
    if (!number(n, "state_bytes", &used) || !number(n, "state_max_bytes", &most) ||
        used / DOCTOR_FULL_PERCENT < most / 100)
        return;
    bool full = used >= most;
    doctor_find(d, full ? DOCTOR_ERROR : DOCTOR_WARNING, "memory",
                full ? "memory is full: new things are refused (%" PRIu64 " of %" PRIu64
                       " MB of state)"
                     : "memory is nearly full: %" PRIu64 " of %" PRIu64 " MB of state",
                used >> 20, most >> 20);
    doctor_advise(d, "Start it with a larger --max-memory, or free locks, bodies and variables "
                     "that nobody needs (belay ls, belay namespace ls).");
}

static void look_connections(struct doctor *d, const struct doctor_node *n)
{
    uint64_t wanted, most, open;
    if (number(n, "connections_wanted", &wanted) && number(n, "maxclients", &most) &&
        wanted > most) {
        doctor_find(d, DOCTOR_WARNING, "open-files",
                    "of --max-connections %" PRIu64 " it takes %" PRIu64
                    ": the process may not open more files",
                    wanted, most);
        doctor_advise(d,
                      "Raise the limit of open files (LimitNOFILE= in the unit, or ulimit -n) "
                      "and start it again, or lower --max-connections.");
    }
    if (!number(n, "connected_clients", &open) || !number(n, "maxclients", &most) ||
        open * 100 < most * DOCTOR_FULL_PERCENT)
        return;
    doctor_find(d, DOCTOR_WARNING, "connections",
                "%" PRIu64 " of at most %" PRIu64 " connections are open", open, most);
    doctor_advise(d, "Raise --max-connections, or find the client that opens so many "
                     "(belay_connections in /metrics, --max-connections-per-address).");
}

static void look_certificate(struct doctor *d, const struct doctor_node *n, const char *line,
                             const char *what, const char *todo)
{
    char text[32];
    int64_t seconds = 0;
    if (!doctor_line(n->info, line, text, sizeof text))
        return;
    bool over = text[0] == '-' || strcmp(text, "0") == 0;
    if (!over && (cli_parse_number(text, &seconds) ||
                  seconds >= INT64_C(86400) * DOCTOR_CERTIFICATE_DAYS))
        return;
    if (over)
        doctor_find(d, DOCTOR_ERROR, "certificate", "its certificate %s has ended", what);
    else
        doctor_find(d, DOCTOR_WARNING, "certificate",
                    "its certificate %s, or that of its CA, ends in %" PRId64 " days", what,
                    seconds / 86400);
    doctor_advise(d, "%s", todo);
}

static void look_disk(struct doctor *d, const struct doctor_node *n)
{
    uint64_t a, b;
    if (number(n, "journal_write_median_us", &a) && number(n, "journal_write_slowest_us", &b))
        doctor_writes(d, a, b);
    if (number(n, "disk_free_bytes", &a) && number(n, "disk_bytes", &b))
        doctor_space(d, a, b);
    if (number(n, "snapshots_failing", &a) && a > 0) {
        doctor_find(d, DOCTOR_WARNING, "snapshot",
                    "snapshots cannot be stored (%" PRIu64 " shard%s): the journal only grows",
                    a, a == 1 ? "" : "s");
        doctor_advise(d,
                      "Look at order.snapshot_failed and order.snapshot_unusable in its log, "
                      "at the space on the disk and at the memory.");
    }
    if (number(n, "journal_bytes", &a) && number(n, "journal_usual_bytes", &b) && a > b) {
        doctor_find(d, DOCTOR_WARNING, "journal",
                    "the journal is %" PRIu64 " MB long; %" PRIu64 " MB are usual", a >> 20,
                    b >> 20);
        doctor_advise(d, "The last snapshots are old: a start takes longer. Look at "
                         "order.snapshot in its log.");
    }
    if (number(n, "audit_failing", &a) && a > 0) {
        doctor_find(d, DOCTOR_ERROR, "audit", "the audit log cannot be written");
        doctor_advise(d, "Look at audit.write in its log, and at the disk of --audit.");
    }
}

/* The address of a node that listens on loopback is on this machine another one's. */
static bool is_another(struct doctor *d, const struct doctor_node *n)
{
    char name[256];
    if (!doctor_line(n->info, "node", name, sizeof name) || strcmp(name, n->name) == 0)
        return false;
    doctor_find(d, DOCTOR_WARNING, "no-address", "from here, %s answers at its address", name);
    doctor_advise(d, "Run belay doctor on its machine, too, or give it a --listen address that "
                     "other machines reach.");
    return true;
}

static void look_node(struct doctor *d, const struct doctor_node *n)
{
    d->where = n->name;
    if (is_another(d, n))
        return;
    doctor_saw(d, n->name);
    look_ready(d, n);
    look_memory(d, n);
    look_connections(d, n);
    look_certificate(d, n, "node_certificate_ends_s", "for the other nodes",
                     "Make a new one (belay cert node), put it in the place of the old one and "
                     "send the process SIGHUP.");
    look_certificate(d, n, "certificate_ends_s", "for clients",
                     "Make or order a new one, put it in the place of the old one and send the "
                     "process SIGHUP.");
    look_disk(d, n);
}

static void look_versions(struct doctor *d, const struct doctor_node *nodes, size_t n)
{
    char first[32], other[32];
    d->where = "cluster";
    if (n == 0 || !doctor_line(nodes[0].info, "belay_version", first, sizeof first))
        return;
    for (size_t i = 1; i < n; i++) {
        if (!doctor_line(nodes[i].info, "belay_version", other, sizeof other) ||
            strcmp(first, other) == 0)
            continue;
        doctor_find(d, DOCTOR_WARNING, "versions", "%s runs belay %s, and %s belay %s",
                    nodes[0].name, first, nodes[i].name, other);
        doctor_advise(d,
                      "End the upgrade: start all nodes with the same version, one after the "
                      "other (docs/UPGRADE.md).");
        return;
    }
}

void doctor_nodes(struct doctor *d, const struct doctor_node *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        look_node(d, &nodes[i]);
    look_versions(d, nodes, n);
}
