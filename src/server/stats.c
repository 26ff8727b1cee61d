/* stats.c - see stats.h. What is counted for ever (metrics.h) is looked at once a second; the
 * difference is a sample. */
#include "server/stats.h"

#include "belay_version.h"
#include "net/runtime.h"
#include "server/state.h"

#include <inttypes.h>

static uint64_t since(uint64_t now, uint64_t *last)
{
    uint64_t step = now - *last;
    *last = now;
    return step;
}

/* What has been added to `now` since `*last`. */
static struct histogram histogram_since(const struct histogram *now, struct histogram *last)
{
    struct histogram step;
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        step.n[i] = now->n[i] - last->n[i];
    step.sum_ns = now->sum_ns - last->sum_ns;
    *last = *now;
    return step;
}

static void add(struct histogram *to, const struct histogram *h)
{
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        to->n[i] += h->n[i];
    to->sum_ns += h->sum_ns;
}

/* So many per cent took no longer: between the bounds of its bucket, as if they were spread evenly
 * there. 0: nothing was counted. */
static uint64_t percentile_us(const struct histogram *h, unsigned percent)
{
    uint64_t count = histogram_count(h), before = 0;
    double want = (double)count * percent / 100.0;
    if (count == 0)
        return 0;
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        if ((double)(before + h->n[i]) >= want && h->n[i]) {
            uint64_t low = i ? histogram_bounds_ns[i - 1] : 0;
            double part = (want - (double)before) / (double)h->n[i];
            return (low + (uint64_t)((double)(histogram_bounds_ns[i] - low) * part)) / 1000;
        }
        before += h->n[i];
    }
    return histogram_bounds_ns[HISTOGRAM_BOUNDS - 1] / 1000;
}

static void look_at_requests(struct server *s, struct stats_sample *to)
{
    struct stats *st = &s->stats;
    struct histogram all = {0}, now[OUTCOME_COUNT] = {0};
    uint64_t n[OUTCOME_COUNT];
    for (size_t command = 0; command <= COMMAND_COUNT_ALL; command++)
        for (size_t o = 0; o < OUTCOME_COUNT; o++)
            add(&now[o], &s->metrics.requests[command][o]);
    for (size_t o = 0; o < OUTCOME_COUNT; o++) {
        struct histogram step = histogram_since(&now[o], &st->requests[o]);
        n[o] = histogram_count(&step);
        add(&all, &step);
    }
    to->ok = n[OUTCOME_OK];
    to->refused = n[OUTCOME_REFUSED];
    to->errors = n[OUTCOME_ERROR];
    to->request_p50_us = percentile_us(&all, 50);
    to->request_p99_us = percentile_us(&all, 99);
    struct histogram handover = histogram_since(&s->metrics.handover, &st->handover);
    to->handover_p50_us = percentile_us(&handover, 50);
    to->handover_p99_us = percentile_us(&handover, 99);
}

static uint64_t news_since(struct server *s, enum event_kind kind)
{
    return since(s->metrics.news[kind], &s->stats.news[kind]);
}

void stats_second(struct server *s)
{
    struct stats *st = &s->stats;
    struct stats_sample *to = &st->samples[st->n++ % STATS_SECONDS];
    struct machine_counts counts;
    engine_counts(s->engine, &counts);
    *to = (struct stats_sample){.time_ms = login_wall_ms(),
                                .granted = news_since(s, EVENT_GRANTED),
                                .released = news_since(s, EVENT_RELEASED),
                                .timeouts = news_since(s, EVENT_TIMEOUT),
                                .expired = news_since(s, EVENT_EXPIRED),
                                .broken = news_since(s, EVENT_BROKEN),
                                .deadlocks = news_since(s, EVENT_DEADLOCK),
                                .read_bytes = since(s->metrics.bytes_in, &st->bytes_in),
                                .written_bytes = since(s->metrics.bytes_out, &st->bytes_out),
                                .locks = counts.locks,
                                .held = counts.held,
                                .waiting = counts.waiting,
                                .sessions = counts.sessions,
                                .connections = s->n_conns,
                                .lag_ms = s->metrics.lag_ms};
    look_at_requests(s, to);
}

/* {"time_ms":[…],"ok":[…],…}, the oldest first. */
static void put_samples(const struct stats *st, size_t limit, struct buf *out)
{
    static const struct {
        const char *name;
        size_t place;
    } members[] = {
#define X(name) {#name, offsetof(struct stats_sample, name)},
        STATS_MAP(X)
#undef X
    };
    size_t n = st->n < STATS_SECONDS ? st->n : STATS_SECONDS;
    n = n < limit ? n : limit;
    for (size_t m = 0; m < sizeof members / sizeof *members; m++) {
        buf_printf(out, "%s\"%s\":[", m ? "," : "{", members[m].name);
        for (size_t i = st->n - n; i < st->n; i++) {
            const char *sample = (const char *)&st->samples[i % STATS_SECONDS];
            uint64_t value;
            memcpy(&value, sample + members[m].place, sizeof value);
            buf_put_str(out, i == st->n - n ? "" : ",");
            buf_put_u64(out, value);
        }
        buf_put_byte(out, ']');
    }
    buf_put_byte(out, '}');
}

static void put_int_or_null(struct arena *a, struct reply *r, const char *key, bool known,
                            int64_t v)
{
    if (known)
        reply_int(a, r, key, v);
    else
        reply_null(a, r, key);
}

/* What this node can say of itself beside that. */
static void put_node(struct server *s, struct arena *a, struct reply *r)
{
    struct member *self = arena_alloc(a, sizeof *self);
    const char *word;
    const char *why = server_not_ready(s, &word);
    size_t used = 0;
    int64_t left = 0;
    for (int part = 0; part < BUDGET_PARTS; part++)
        used += budget_used(&s->budget, (enum budget_part)part);
    if (s->runtime && runtime_self(s->runtime, self))
        reply_text(a, r, "node", slice_str(self->name));
    else
        reply_null(a, r, "node");
    reply_text(a, r, "version", SLICE(BELAY_VERSION));
    reply_bool(a, r, "queue", s->front != NULL);
    reply_bool(a, r, "ready", !why);
    reply_text(a, r, "problem", why ? slice_str(why) : SLICE(""));
    reply_int(a, r, "uptime_s", (int64_t)(uv_now(&s->loop) - s->metrics.started_ms) / 1000);
    reply_int(a, r, "connections_max", (int64_t)s->max_conns);
    reply_int(a, r, "memory_bytes", (int64_t)used);
    reply_int(a, r, "memory_max_bytes", (int64_t)s->budget.limit);
    bool disk = s->runtime && s->health.looked;
    put_int_or_null(a, r, "disk_free_bytes", disk, (int64_t)s->health.free_bytes);
    put_int_or_null(a, r, "disk_bytes", disk, (int64_t)s->health.disk_bytes);
    put_int_or_null(a, r, "certificate_ends_s", s->tls.context != NULL,
                    s->tls.context ? tls_context_expires_s(s->tls.context) : 0);
    bool proves = s->runtime && runtime_certificate_expires_s(s->runtime, &left);
    put_int_or_null(a, r, "node_certificate_ends_s", proves, left);
}

void stats_run(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    struct arena *a = &s->request_arena;
    struct reply *r = reply_new(a, REPLY_MAP);
    struct buf text = {0};
    put_node(s, a, r);
    reply_int(a, r, "time_ms", (int64_t)login_wall_ms());
    reply_int(a, r, "step_ms", 1000);
    put_samples(&s->stats, (size_t)args_number(&call->args, P_LIMIT, STATS_SECONDS), &text);
    struct reply *samples = reply_new(a, REPLY_JSON);
    samples->text = buf_slice(&text);
    (void)reply_add(r, SLICE("samples"), samples);
    pipeline_reply(c, r, close);
    buf_done(&text);
}
