/* sim_once.c - I30 in the order of the log: a request with an id is carried out once, and
 * whoever asks again is told the same.
 *
 * An id is open while what was asked for waits, and then has an answer. It is forgotten when
 * what waits or was granted is called off, or does not come back in time. When that cannot be
 * seen in the log, it is in doubt. */
#include "base/hash.h"
#include "sim_judge.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ONCE_CAP = 1 << 15 };

struct request_book {
    uint64_t id, asker; /* asker: who asked last */
    enum { ID_UNKNOWN, ID_OPEN, ID_DOUBTFUL, ID_ANSWERED } state;
    struct sim_heard answer;
};

struct once {
    struct sim_world *w;
    struct request_book *all; /* open addressing, by id */
    size_t n;
    struct request_book *open[ONCE_OPEN]; /* or doubtful */
    size_t n_open;
    struct request_book *now; /* of this step's op; NULL: it has none */
};

struct once *once_open(struct sim_world *w)
{
    struct once *o = mem_zalloc(sizeof *o);
    o->w = w;
    o->all = mem_zalloc(ONCE_CAP * sizeof *o->all);
    return o;
}

void once_close(struct once *o)
{
    free(o->all);
    free(o);
}

/* NULL: no op of this id was ever seen, and it is not to be. */
static struct request_book *find(struct once *o, struct slice request, bool add)
{
    static const struct hash_key key = {17, 19};
    uint64_t id = hash_bytes(&key, request.data, request.len) | 1;
    size_t at = (size_t)(id >> 1) & (ONCE_CAP - 1);
    while (o->all[at].id && o->all[at].id != id)
        at = (at + 1) & (ONCE_CAP - 1);
    if (o->all[at].id)
        return &o->all[at];
    if (!add)
        return NULL;
    BELAY_CHECK(++o->n < ONCE_CAP / 2);
    o->all[at].id = id;
    return &o->all[at];
}

static void set_state(struct once *o, struct request_book *q, int state)
{
    bool was = q->state == ID_OPEN || q->state == ID_DOUBTFUL;
    bool is = state == ID_OPEN || state == ID_DOUBTFUL;
    q->state = state;
    if (is && !was) {
        BELAY_CHECK(o->n_open < ONCE_OPEN);
        o->open[o->n_open++] = q;
    }
    for (size_t i = 0; was && !is && i < o->n_open; i++)
        if (o->open[i] == q) {
            o->open[i] = o->open[--o->n_open];
            return;
        }
}

bool once_begin(struct once *o, const struct op *op)
{
    bool asks = op->request.len && op->kind != OP_CANCEL;
    o->now = asks ? find(o, op->request, true) : NULL;
    if (!asks)
        return false;
    bool again = o->now->state != ID_UNKNOWN;
    o->now->asker = op->asker;
    if (!again)
        set_state(o, o->now, ID_OPEN);
    return again;
}

bool once_is_sure(const struct once *o)
{
    return o->now && o->now->state != ID_DOUBTFUL;
}

static struct sim_heard heard(const struct event *ev)
{
    return (struct sim_heard){ev->kind, ev->err, ev->reason, ev->status, ev->fence, ev->count};
}

static bool is_same(const struct sim_heard *a, const struct sim_heard *b)
{
    return a->kind == b->kind && a->err == b->err && a->reason == b->reason &&
           a->status == b->status && a->fence == b->fence && a->count == b->count;
}

/* A grant that is over may be told as such. */
static void check_same(const struct once *o, const struct rules *r, const struct op *op,
                       const struct event *ev)
{
    const struct sim_heard *was = &o->now->answer;
    struct sim_heard is = heard(ev);
    bool over = was->kind == EVENT_GRANTED && is.kind == EVENT_FAILED &&
                is.err == BELAY_ERR_STALE && !rules_holds(r, op, was->fence);
    if (ev->news || (!is_same(was, &is) && !over))
        sim_wrong(o->w, "I30",
                  "op %" PRIu64 " was asked before: %d (%d, fence %" PRIu64 ", count %" PRIu64
                  ") after %d (%d, fence %" PRIu64 ", count %" PRIu64 ")",
                  op->index, (int)is.kind, (int)is.err, is.fence, is.count, (int)was->kind,
                  (int)was->err, was->fence, was->count);
}

static void settle(struct once *o, const struct event *ev)
{
    for (size_t i = 0; i < o->n_open; i++) {
        struct request_book *q = o->open[i];
        if (q->asker != ev->asker)
            continue;
        bool gone = ev->kind == EVENT_LEFT && ev->reason == REASON_CANCEL;
        q->answer = heard(ev);
        set_state(o, q, gone ? ID_UNKNOWN : ID_ANSWERED);
        return;
    }
}

void once_left(struct once *o, uint64_t asker)
{
    for (size_t i = 0; i < o->n_open; i++) {
        struct request_book *q = o->open[i];
        if (q->asker == asker) {
            set_state(o, q, ID_UNKNOWN);
            return;
        }
    }
}

/* It is carried out when it is asked again. */
static bool is_postponed(const struct event *ev)
{
    return ev->kind == EVENT_FAILED && ev->err == BELAY_ERR_UNAVAILABLE;
}

void once_end(struct once *o, const struct rules *r, const struct op *op,
              const struct event *events, size_t n)
{
    bool known = o->now && o->now->state == ID_ANSWERED;
    size_t told = 0;
    for (size_t i = 0; i < n; i++) {
        const struct event *ev = &events[i];
        if (!ev->asker || ev->kind == EVENT_QUEUED)
            continue;
        if (known && ev->asker == op->asker) {
            check_same(o, r, op, ev);
            told++;
        } else if (is_postponed(ev) && o->now && ev->asker == op->asker) {
            set_state(o, o->now, ID_UNKNOWN);
        } else {
            settle(o, ev);
        }
    }
    if (known && told != 1)
        sim_wrong(o->w, "I30", "op %" PRIu64 " was asked before and is told %zu times",
                  op->index, told);
}

void once_cancel(struct once *o, const struct rules *r, const struct op *op)
{
    struct request_book *q = op->request.len ? find(o, op->request, false) : NULL;
    bool granted = q && q->state == ID_ANSWERED && q->answer.kind == EVENT_GRANTED;
    if (granted && !(op->flags & OP_AWAY) && !rules_holds(r, op, q->answer.fence))
        set_state(o, q, ID_DOUBTFUL); /* called off, or it was over before */
    if (q && q->state == ID_OPEN && op->name.len == 0)
        set_state(o, q, ID_DOUBTFUL);
}

bool once_dead_run(uint64_t asker, uint64_t live)
{
    return asker && asker >> OP_NODE_SHIFT == live >> OP_NODE_SHIFT &&
           asker >> OP_RUN_SHIFT != live >> OP_RUN_SHIFT;
}

void once_away(struct once *o, uint64_t live)
{
    for (size_t i = 0; i < o->n_open; i++)
        if (once_dead_run(o->open[i]->asker, live))
            o->open[i]->state = ID_DOUBTFUL;
}
