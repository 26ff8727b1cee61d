/* slow.c - what requests are called in the log, and those of them that took long.
 *
 * A request over HTTP has an id: its X-Request-Id, or one that is made here; its answer has the
 * same. One over RESP has the number that the engine gives it ("asker"), and so has one over
 * HTTP. The time of a request goes from the begin of the turn of the loop that took it to its
 * answer. What it stood in line for its turn does not count: that is no work. */
#include "base/check.h"
#include "base/log.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

enum { SLOW_LINES_PER_S = 100, SLOW_LINES_AT_ONCE = 1000, NS_PER_MS = 1000000 };

void slow_init(struct server *s)
{
    s->slow.above_ns = s->config->slow_ms * NS_PER_MS;
    limiter_init(&s->slow.lines, SLOW_LINES_PER_S, SLOW_LINES_AT_ONCE);
    uint64_t *next = &s->slow.next_id;
    BELAY_CHECK(getrandom(next, sizeof *next, 0) == (ssize_t)sizeof *next);
    s->id = SLICE("");
}

void slow_done(struct server *s)
{
    limiter_done(&s->slow.lines);
}

struct slice slow_id(struct conn *c)
{
    struct server *s = c->server;
    if (c->door != DOOR_HTTP)
        return SLICE("");
    if (s->id.len == 0) {
        int n = snprintf(s->slow.id, sizeof s->slow.id, "%016" PRIx64, s->slow.next_id++);
        s->id = slice_of(s->slow.id, (size_t)n);
    }
    return s->id;
}

static void say(struct conn *c, const struct pending_reply *p, const struct event *ev,
                uint64_t ns)
{
    struct server *s = c->server;
    struct slice command = command_get(p ? p->manner.command : s->call.manner.command)->name;
    struct slice id = p ? slice_str(p->id) : slow_id(c);
    struct buf more = {0};
    if (limiter_take(&s->slow.lines, 0, uv_hrtime())) {
        s->slow.skipped++;
        return;
    }
    if (ev && ev->asker)
        buf_printf(&more, " asker=%" PRIu64, ev->asker);
    if (ev && p->ask.order_ms)
        buf_printf(&more, " order_ms=%" PRIu64, p->ask.order_ms);
    if (ev && p->ask.line_ms)
        buf_printf(&more, " line_ms=%" PRIu64, p->ask.line_ms);
    if (id.len)
        buf_printf(&more, " id=%s", log_bytes(id));
    if (s->slow.skipped)
        buf_printf(&more, " skipped=%" PRIu64, s->slow.skipped);
    s->slow.skipped = 0;
    log_warn("server.slow", "command=\"%.*s\" ms=%" PRIu64 ".%03u address=\"%s\"%s",
             (int)command.len, command.data, ns / NS_PER_MS, (unsigned)(ns / 1000 % 1000),
             c->address, buf_cstr(&more));
    buf_done(&more);
}

uint64_t slow_ns(uint64_t taken_ns, uint64_t line_ms)
{
    if (taken_ns == 0)
        return 0;
    uint64_t line_ns = line_ms ? (line_ms + 1) * NS_PER_MS : 0; /* it counts whole ms */
    uint64_t ns = uv_hrtime() - taken_ns;
    return ns > line_ns ? ns - line_ns : 0;
}

void slow_look(struct conn *c, const struct pending_reply *p, const struct event *ev)
{
    struct server *s = c->server;
    if (s->slow.above_ns == 0)
        return;
    BELAY_CHECK(p || !ev);
    uint64_t ns = slow_ns(p ? p->taken_ns : s->taken_ns, p && ev ? p->ask.line_ms : 0);
    if (ns > s->slow.above_ns && (p || s->call.command))
        say(c, p, ev, ns);
}
