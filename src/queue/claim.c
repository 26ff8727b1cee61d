/* claim.c - the answer of claim() and claim_lease() becomes groups for the runners. */
#include "queue/claim.h"

#include "base/check.h"
#include "base/mem.h"
#include "queue/prefetch.h"
#include "queue/runner.h"
#include "queue/text.h"

#include <stdlib.h>
#include <string.h>

/* Columns of claim() and claim_lease(), in this order. */
enum column {
    COLUMN_LINE,
    COLUMN_MET,
    COLUMN_ID,
    COLUMN_ENTITY,
    COLUMN_KIND,
    COLUMN_PROCESS,
    COLUMN_FENCE,
    COLUMN_ATTEMPTS,
    COLUMN_PUSHED_AT, /* JSON */
    COLUMN_PAYLOAD,   /* JSON, or NULL */
    COLUMN_REFUSE,
    COLUMN_TIMEOUT_MS
};

static struct slice value(const PGresult *res, int row, enum column column)
{
    if (PQgetisnull(res, row, (int)column))
        return slice_of(NULL, 0);
    return slice_of(PQgetvalue(res, row, (int)column),
                    (size_t)PQgetlength(res, row, (int)column));
}

static int64_t number(const PGresult *res, int row, enum column column)
{
    return strtoll(PQgetvalue(res, row, (int)column), NULL, 10);
}

static char *copy(struct slice s)
{
    return s.data ? mem_dup(s.data, s.len) : NULL;
}

static char *copy_buf(struct buf *b)
{
    char *s = mem_dup(buf_data(b), buf_len(b));
    buf_done(b);
    return s;
}

/* The row after the last one of the group that begins at `row`. */
static int group_end(const PGresult *res, int row, int n)
{
    const char *fence = PQgetvalue(res, row, COLUMN_FENCE);
    int end = row + 1;
    while (end < n && strcmp(PQgetvalue(res, end, COLUMN_FENCE), fence) == 0)
        end++;
    return end;
}

static void put_member(struct buf *out, const char *name, struct slice text)
{
    buf_put_str(out, name);
    text_put_json(out, text);
}

static void put_head(struct buf *out, const struct work_group *g, int64_t attempt)
{
    put_member(out, "{\"queue\":", slice_str(g->queue));
    put_member(out, ",\"entity\":", slice_str(g->entity));
    put_member(out, ",\"kind\":", slice_str(g->kind));
    put_member(out, ",\"process\":", slice_str(g->process));
    buf_put_str(out, ",\"fence\":");
    buf_put_i64(out, g->fence);
    buf_put_str(out, ",\"attempt\":");
    buf_put_i64(out, attempt);
}

static void put_request(struct buf *out, const PGresult *res, int row)
{
    struct slice payload = value(res, row, COLUMN_PAYLOAD);
    buf_put_str(out, "{\"id\":");
    buf_put_slice(out, value(res, row, COLUMN_ID));
    buf_put_str(out, ",\"attempts\":");
    buf_put_slice(out, value(res, row, COLUMN_ATTEMPTS));
    buf_put_str(out, ",\"pushed_at\":");
    buf_put_slice(out, value(res, row, COLUMN_PUSHED_AT));
    buf_put_str(out, ",\"payload\":");
    buf_put_slice(out, payload.data ? payload : SLICE("null"));
    buf_put_byte(out, '}');
}

/* Rows `from` to `end` - 1. */
static struct work_group *read_group(const char *queue, const PGresult *res, int from, int end)
{
    struct work_group *g = mem_zalloc(sizeof *g);
    struct buf ids = {0}, work = {0};
    int64_t attempts = 0;
    list_init(&g->link);
    list_init(&g->held);
    g->queue = copy(slice_str(queue));
    g->entity = copy(value(res, from, COLUMN_ENTITY));
    g->kind = copy(value(res, from, COLUMN_KIND));
    g->process = copy(value(res, from, COLUMN_PROCESS));
    g->refuse = copy(value(res, from, COLUMN_REFUSE));
    g->fence = number(res, from, COLUMN_FENCE);
    g->n_request = (unsigned)(end - from);
    for (int row = from; row < end; row++) {
        uint64_t timeout_ms = (uint64_t)number(res, row, COLUMN_TIMEOUT_MS);
        if (timeout_ms > g->timeout_ms)
            g->timeout_ms = timeout_ms;
        if (number(res, row, COLUMN_ATTEMPTS) > attempts)
            attempts = number(res, row, COLUMN_ATTEMPTS);
    }
    g->attempts = attempts;
    put_head(&work, g, attempts + 1);
    buf_put_str(&work, ",\"requests\":");
    for (int row = from; row < end; row++) {
        buf_put_byte(&ids, row == from ? '{' : ',');
        buf_put_slice(&ids, value(res, row, COLUMN_ID));
        buf_put_byte(&work, row == from ? '[' : ',');
        put_request(&work, res, row);
    }
    buf_put_byte(&ids, '}');
    buf_put_str(&work, "]}\n");
    g->ids = copy_buf(&ids);
    g->work = copy_buf(&work);
    return g;
}

static struct sight *read_sight(const PGresult *res, int row)
{
    struct sight *s = mem_zalloc(sizeof *s);
    list_init(&s->link);
    s->id = number(res, row, COLUMN_ID);
    s->upto = number(res, row, COLUMN_LINE);
    s->entity = copy(value(res, row, COLUMN_ENTITY));
    s->kind = copy(value(res, row, COLUMN_KIND));
    return s;
}

void claim_read(const char *queue, const PGresult *res, struct claim *ret)
{
    int n = PQntuples(res), end_of_groups = 0;
    BELAY_CHECK(n > 0);
    while (end_of_groups < n && !PQgetisnull(res, end_of_groups, COLUMN_ID) &&
           !PQgetisnull(res, end_of_groups, COLUMN_FENCE))
        end_of_groups++;
    bool own = end_of_groups < n && PQgetisnull(res, end_of_groups, COLUMN_ID);
    int tells = own ? end_of_groups : 0;
    list_init(&ret->groups);
    list_init(&ret->ahead);
    ret->n_group = 0;
    for (int row = 0; row < end_of_groups; ret->n_group++) {
        int end = group_end(res, row, end_of_groups);
        list_push_back(&ret->groups, &read_group(queue, res, row, end)->link);
        row = end;
    }
    int64_t met = number(res, tells, COLUMN_MET);
    ret->busy = met > (int64_t)ret->n_group ? (unsigned)(met - (int64_t)ret->n_group) : 0;
    const char *why = own && ret->n_group == 0 ? PQgetvalue(res, tells, COLUMN_REFUSE) : "";
    ret->bundle = strcmp(why, "bundle") == 0;
    ret->late = strcmp(why, "late") == 0;
    ret->end = PQgetisnull(res, tells, COLUMN_LINE) != 0;
    ret->line = ret->end ? 0 : number(res, tells, COLUMN_LINE);
    for (int row = end_of_groups + own; row < n; row++)
        list_push_back(&ret->ahead, &read_sight(res, row)->link);
}
