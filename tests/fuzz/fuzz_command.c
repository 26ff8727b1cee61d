/* fuzz_command.c - a server without sockets: any bytes as requests of one connection, through
 * the command table, the memory engine and back into RESP and JSON. Checked: an op that a
 * command makes is one the machine takes; every request gets exactly one answer or a place in a
 * line; every reply is one well-formed reply. Time moves with the requests. */
#include "base/check.h"
#include "command/answer.h"
#include "command/command.h"
#include "command/scripts.h"
#include "engine/engine.h"
#include "engine/order.h"
#include "events/feed.h"
#include "proto/http.h"
#include "proto/json.h"
#include "proto/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ASKS_MAX = 64, STEP_MS = 7000 };

struct asker {
    struct ask ask; /* first */
    struct manner manner;
    int answers;
};

static struct scripts *scripts;
static uint64_t now_ms;

static uint64_t clock_ms(void *ctx)
{
    (void)ctx;
    return now_ms;
}

static void check_resp(const struct reply *r, int version)
{
    struct buf wire = {0};
    struct arena a = {0};
    struct reply *again = NULL;
    size_t used = 0;
    const char *why = NULL;
    resp_write(&wire, r, version);
    if (r->kind != REPLY_NONE) {
        BELAY_CHECK(resp_next_reply(buf_slice(&wire), &a, &again, &used, &why) == RESP_DONE);
        BELAY_CHECK(used == buf_len(&wire));
    }
    arena_done(&a);
    buf_done(&wire);
}

static void check_http(const struct reply *r)
{
    struct buf wire = {0};
    struct arena a = {0};
    struct json_token *root = NULL;
    struct json_error bad;
    json_write(&wire, r);
    if (r->kind != REPLY_NONE && buf_len(&wire) < REQUEST_BYTES_MAX / 4)
        BELAY_CHECK(json_parse_in(buf_slice(&wire), &a, &root, &bad));
    buf_clear(&wire);
    http_write(&wire, r, (struct http_manner){.keep_alive = true, .id = SLICE("7")});
    BELAY_CHECK(slice_starts(buf_slice(&wire), SLICE("HTTP/1.1 ")));
    arena_done(&a);
    buf_done(&wire);
}

static void on_answer(struct ask *ask, const struct event *ev)
{
    struct asker *who = (struct asker *)ask;
    struct arena a = {0};
    BELAY_CHECK(++who->answers == 1);
    for (int http = 0; http < 2; http++) {
        who->manner.http = http;
        const struct reply *r = ev->kind == EVENT_TXN
                                    ? answer_txn(ev, (struct answer_standing){0}, &a)
                                    : answer_event(ev, who->manner, 1, &a);
        if (http)
            check_http(r);
        else
            check_resp(r, 2);
    }
    check_resp(answer_push(ev, &a), 3);
    (void)answer_outcome(ev);
    arena_done(&a);
}

static void run(struct engine *e, struct request *req, struct arena *a, struct asker *who)
{
    static struct call call;
    struct context context = {.account = SLICE("default"),
                              .ns = SLICE("default"),
                              .resp = req->is_http ? 0 : 3,
                              .target = 1,
                              .scripts = scripts};
    command_read(req, &context, a, &call);
    now_ms += STEP_MS / 10;
    if (call.kind == CALL_REPLY) {
        if (req->is_http)
            check_http(call.reply);
        else
            check_resp(call.reply, 3);
        return;
    }
    if (call.kind != CALL_OP)
        return;
    const char *what = NULL;
    BELAY_CHECK(op_validate(&call.op, &what) == BELAY_OK);
    *who = (struct asker){.ask.answer = on_answer, .manner = call.manner};
    engine_submit(e, &call.op, &who->ask);
    BELAY_CHECK(who->answers == 1 || who->ask.id != 0);
}

/* One request; returns its length, 0: no more can be read. */
static size_t step(struct engine *e, struct slice in, bool http, struct asker *who)
{
    struct arena a = {0};
    struct request req = {0};
    struct http_error bad;
    size_t used = 0;
    const char *why = NULL;
    bool whole = http ? http_next(in, &a, &req, &used, &bad) == HTTP_DONE
                      : resp_next(in, &a, &req, &used, &why) == RESP_DONE;
    if (whole && (http || req.verb.len))
        run(e, &req, &a, who);
    arena_done(&a);
    return whole ? used : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct asker askers[ASKS_MAX];
    struct feed *feed = feed_open(8);
    struct engine_config config = {
        .order = order_memory_open(), .clock_ms = clock_ms, .feed = feed};
    struct engine *e = engine_open(&config);
    struct slice in = slice_of((const char *)data, size);
    bool http = http_sniff(in) == HTTP_DONE;
    if (!scripts)
        scripts = scripts_open();
    memset(askers, 0, sizeof askers);
    for (size_t i = 0; i < ASKS_MAX && in.len; i++) {
        size_t used = step(e, in, http, &askers[i]);
        if (used == 0)
            break;
        in = slice_of(in.data + used, in.len - used);
    }
    for (size_t i = 0; i < ASKS_MAX; i++)
        engine_cancel(e, &askers[i].ask);
    engine_close(e);
    feed_close(feed);
    return 0;
}
