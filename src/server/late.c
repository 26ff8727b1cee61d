/* late.c - waits with NOBLOCK: they were told "queued", and their outcome is pushed.
 *
 * A connection may have thousands. When nobody wants them any more, they are called off a slice a
 * turn; what is answered meanwhile is not pushed. A connection that is closed is freed behind the
 * last of them. */
#include "command/answer.h"
#include "proto/resp.h"
#include "server/state.h"

static struct pending_reply *first_of(const struct conn *c)
{
    return list_empty(&c->late) ? NULL : list_item(c->late.next, struct pending_reply, late);
}

void late_add(struct pending_reply *p)
{
    p->late_round = p->conn->late_round;
    list_push_back(&p->conn->late, &p->late);
    p->conn->late_n++;
}

bool late_is_wanted(const struct pending_reply *p)
{
    return p->late_round == p->conn->late_round;
}

void late_drop(struct pending_reply *p)
{
    BELAY_CHECK(p->conn->late_n > 0);
    list_remove(&p->late);
    p->conn->late_n--;
    pipeline_free(p);
}

void late_push(struct pending_reply *p, const struct event *ev)
{
    struct conn *c = p->conn;
    struct event told = *ev;
    told.ticket = p->ticket; /* a failure does not know it */
    conn_use_out(c);
    resp_write(&c->out, answer_push(&told, &c->server->reply_arena), c->resp);
    late_drop(p);
}

/* False: there was no time for all of them. */
static bool call_off_some(struct conn *c, uint64_t until_ns)
{
    struct pending_reply *p;
    while ((p = first_of(c)) != NULL && !late_is_wanted(p)) {
        if (uv_hrtime() >= until_ns)
            return false;
        pipeline_call_off(p);
        late_drop(p);
    }
    return true;
}

static uint64_t slice_end_ns(void)
{
    return uv_hrtime() + CONN_SLICE_US * UINT64_C(1000);
}

void late_cancel(struct conn *c)
{
    c->late_round++;
    if (!list_empty(&c->quitting) || call_off_some(c, slice_end_ns()))
        return;
    list_push_back(&c->server->quitting, &c->quitting);
    conn_stay_awake(c->server);
}

void late_dismiss(struct conn *c, const struct event *stop)
{
    struct pending_reply *p;
    while ((p = first_of(c)) != NULL) {
        pipeline_call_off(p);
        arena_reset(&c->server->reply_arena);
        if (late_is_wanted(p))
            late_push(p, stop);
        else
            late_drop(p);
    }
}

void late_go_on(struct server *s)
{
    uint64_t until = slice_end_ns();
    while (!list_empty(&s->quitting)) {
        struct conn *c = list_item(s->quitting.next, struct conn, quitting);
        if (!call_off_some(c, until))
            return;
        conn_quit(c);
    }
}
