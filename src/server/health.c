/* health.c - see health.h. */
#include "server/health.h"

#include "audit/audit.h"
#include "net/runtime.h"
#include "raft/replica.h"
#include "server/state.h"

#include <inttypes.h>

/* --- the disk --- */

static void on_looked(uv_fs_t *look)
{
    struct server *s = look->data;
    struct health *h = &s->health;
    const uv_statfs_t *fs = look->ptr;
    h->looking = false;
    h->looked = look->result == 0 && fs;
    if (h->looked) {
        h->free_bytes = fs->f_bavail * fs->f_bsize;
        h->disk_bytes = fs->f_blocks * fs->f_bsize;
    }
    uv_fs_req_cleanup(look);
}

void health_second(struct server *s)
{
    struct health *h = &s->health;
    if (!s->config->node.data || h->looking || h->wait-- > 0)
        return;
    h->wait = HEALTH_LOOK_SECONDS;
    h->look.data = s;
    h->looking = uv_fs_statfs(&s->loop, &h->look, s->config->node.data, on_looked) == 0;
}

/* --- the lines --- */

static void put(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, "%s:%" PRIu64 "\r\n", name, value);
}

static void put_seconds(struct buf *out, const char *name, int64_t value)
{
    buf_printf(out, "%s:%" PRId64 "\r\n", name, value);
}

static void put_durable(const struct server *s, struct buf *out)
{
    struct replica *o = runtime_replica(s->runtime);
    struct write_times writes;
    struct member self;
    int64_t left;
    if (runtime_self(s->runtime, &self))
        buf_printf(out, "node:%s\r\n", self.name);
    if (runtime_certificate_expires_s(s->runtime, &left))
        put_seconds(out, "node_certificate_ends_s", left);
    if (runtime_last_writes(s->runtime, &writes)) {
        put(out, "journal_write_median_us", writes.median_us);
        put(out, "journal_write_slowest_us", writes.slowest_us);
    }
    put(out, "journal_bytes", journal_bytes(replica_journal(o)));
    put(out, "journal_usual_bytes", replica_journal_usual(o));
    put(out, "snapshots_failing", replica_snapshots_failing(o));
    if (s->health.looked) {
        put(out, "disk_free_bytes", s->health.free_bytes);
        put(out, "disk_bytes", s->health.disk_bytes);
    }
}

void health_info(const struct server *s, struct buf *out)
{
    const char *word;
    struct audit_state audit;
    bool ready = !server_not_ready(s, &word);
    buf_printf(out, "\r\n# Health\r\nnot_ready:%s\r\n", ready ? "" : word);
    put(out, "state_bytes", budget_used(&s->budget, BUDGET_STATE));
    put(out, "state_max_bytes", budget_share(&s->budget, BUDGET_STATE));
    put(out, "connections_wanted", s->wanted_conns);
    if (s->tls.context)
        put_seconds(out, "certificate_ends_s", tls_context_expires_s(s->tls.context));
    if (s->trail.audit) {
        audit_look(s->trail.audit, &audit);
        put(out, "audit_failing", audit.error != 0);
    }
    if (s->runtime)
        put_durable(s, out);
}
