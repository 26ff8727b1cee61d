/* gateway.c - the queue for the server: /v1/queues, on one connection that never blocks the
 * loop. */
#include "queue/gateway.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "queue/pg.h"
#include "queue/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gateway_call {
    struct gateway *front;
    gateway_fn *fn; /* NULL: forgotten */
    void *arg;
    struct gateway_call *next; /* all that are on their way */
};

struct gateway {
    struct pg *pg;
    char *push_sql, *list_sql, *manage_sql;
    struct gateway_call *calls;
    size_t n_calls;
    bool told; /* that the database is away */
};

static enum belay_err err_of(const PGresult *res)
{
    static const struct {
        const char *state;
        enum belay_err err;
    } map[] = {{"23505", BELAY_ERR_EXISTS},      {"42704", BELAY_ERR_NOT_FOUND},
               {"42501", BELAY_ERR_DENIED},      {"54000", BELAY_ERR_TOO_BIG},
               {"42883", BELAY_ERR_UNAVAILABLE}, {"3F000", BELAY_ERR_UNAVAILABLE}};
    const char *state = pg_state(res);
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (strcmp(state, map[i].state) == 0)
            return map[i].err;
    if (strncmp(state, "22", 2) == 0) /* data exceptions: bad JSON, bad names, bad times */
        return BELAY_ERR_RANGE;
    return res && state[0] ? BELAY_ERR_INTERNAL : BELAY_ERR_UNAVAILABLE;
}

static void on_result(void *arg, const PGresult *res)
{
    struct gateway_call *call = arg;
    struct gateway *f = call->front;
    struct gateway_call **at = &f->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    f->n_calls--;
    if (!call->fn) {
        /* nobody waits */
    } else if (pg_ok(res)) {
        call->fn(call->arg, BELAY_OK, slice_str(pg_first(res)));
    } else {
        call->fn(call->arg, err_of(res), slice_str(pg_message(res)));
    }
    free(call);
}

static struct gateway_call *send_call(struct gateway *f, const char *sql, int n,
                                      const char *const *params, struct gateway_call like)
{
    struct gateway_call *call = mem_alloc(sizeof *call);
    *call = like;
    call->front = f;
    call->next = f->calls;
    f->calls = call;
    f->n_calls++;
    pg_begin(f->pg);
    pg_send(f->pg, sql, n, params, on_result, call);
    pg_commit(f->pg);
    return call;
}

static bool can_ask(const struct gateway *f, const char **ret_why)
{
    if (!pg_is_up(f->pg))
        *ret_why = "the database of the queue cannot be reached now";
    else if (f->n_calls >= FRONT_CALLS_MAX)
        *ret_why = "too many calls are waiting for the database";
    else
        return true;
    return false;
}

/* Text parameters end at NUL: a name with one in it is told as such by the database's own rule.
 */
static const char *param(struct buf *b, struct slice s)
{
    text_put_clean(b, s);
    return buf_cstr(b);
}

struct gateway_call *gateway_push(struct gateway *f, struct slice queue, struct slice json,
                                  gateway_fn *fn, void *arg, const char **ret_why)
{
    struct buf q = {0}, j = {0};
    if (!can_ask(f, ret_why))
        return NULL;
    const char *p[] = {param(&q, queue), param(&j, json)};
    struct gateway_call *call =
        send_call(f, f->push_sql, 2, p, (struct gateway_call){.fn = fn, .arg = arg});
    buf_done(&q);
    buf_done(&j);
    return call;
}

struct gateway_call *gateway_manage(struct gateway *f, const struct gateway_order *order,
                                    gateway_fn *fn, void *arg, const char **ret_why)
{
    struct buf q = {0}, j = {0};
    if (!can_ask(f, ret_why))
        return NULL;
    const char *p[] = {param(&q, order->queue), order->what, param(&j, order->options)};
    struct gateway_call *call =
        send_call(f, f->manage_sql, 3, p, (struct gateway_call){.fn = fn, .arg = arg});
    buf_done(&q);
    buf_done(&j);
    return call;
}

struct gateway_call *gateway_list(struct gateway *f, const struct gateway_filter *filter,
                                  gateway_fn *fn, void *arg, const char **ret_why)
{
    struct buf q = {0}, s = {0}, e = {0};
    char after[24], limit[24], bytes[24];
    if (!can_ask(f, ret_why))
        return NULL;
    (void)snprintf(after, sizeof after, "%" PRId64, filter->after);
    (void)snprintf(limit, sizeof limit, "%" PRId64, filter->limit);
    (void)snprintf(bytes, sizeof bytes, "%d", FRONT_PAGE_BYTES);
    const char *p[] = {param(&q, filter->queue),
                       filter->status.len ? param(&s, filter->status) : NULL,
                       filter->entity.len ? param(&e, filter->entity) : NULL,
                       after,
                       limit,
                       bytes};
    struct gateway_call *call =
        send_call(f, f->list_sql, 6, p, (struct gateway_call){.fn = fn, .arg = arg});
    buf_done(&q);
    buf_done(&s);
    buf_done(&e);
    return call;
}

void gateway_forget(struct gateway_call *call)
{
    call->fn = NULL;
}

static void on_up(void *arg)
{
    struct gateway *f = arg;
    f->told = false;
    log_info("queue.connected", "for=http");
}

static void on_down(void *arg, const char *why, bool hopeless)
{
    struct gateway *f = arg;
    (void)hopeless; /* the locks go on, and a database may be mended */
    if (!f->told)
        log_warn("queue.disconnected", "for=http error=\"%s\" next=\"trying again\"", why);
    f->told = true;
}

static char *make_sql(const char *before, const char *schema, const char *after)
{
    struct buf b = {0};
    buf_put_str(&b, before);
    text_put_ident(&b, schema);
    buf_put_str(&b, after);
    char *sql = mem_dup(buf_data(&b), buf_len(&b));
    buf_done(&b);
    return sql;
}

struct gateway *gateway_open(uv_loop_t *loop, const char *url, const char *schema)
{
    static const struct pg_events events = {on_up, on_down, NULL};
    struct gateway *f = mem_zalloc(sizeof *f);
    f->push_sql = make_sql("SELECT ", schema, ".push_json($1, $2)");
    f->list_sql = make_sql("SELECT ", schema, ".page($1, $2, $3, $4, $5, $6)");
    f->manage_sql = make_sql("SELECT ", schema, ".manage($1, $2, $3)");
    f->pg = pg_open(loop, url, "belay serve", &events, f);
    return f;
}

void gateway_close(struct gateway *f)
{
    if (!f)
        return;
    pg_close(f->pg);
    while (f->calls) {
        struct gateway_call *call = f->calls;
        f->calls = call->next;
        free(call);
    }
    free(f->push_sql);
    free(f->list_sql);
    free(f->manage_sql);
    free(f);
}
