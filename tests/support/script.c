/* script.c - ops as text, applied to a machine, for tests that are stories. */
#include "script.h"

#include "base/check.h"
#include "text_format.h"

#include <stdarg.h>

void script_open(struct script *p)
{
    *p = (struct script){.m = machine_open((struct hash_key){3, 4})};
}

void script_done(struct script *p)
{
    machine_close(p->m);
    effects_done(&p->fx);
    arena_done(&p->arena);
}

const struct event *play(struct script *p, const char *format, ...)
{
    struct op op;
    struct buf text = {0};
    const char *what = NULL;
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    arena_reset(&p->arena);
    effects_reset(&p->fx);
    text_read_op(buf_cstr(&text), &p->arena, &op);
    buf_done(&text);
    p->line++;
    if (op.asker == 0)
        op.asker = p->line;
    BELAY_CHECK(op_validate(&op, &what) == BELAY_OK);
    if (op_is_read(op.kind)) {
        machine_query(p->m, &op, &p->fx);
    } else {
        op.index = machine_applied(p->m) + 1;
        machine_apply(p->m, &op, &p->fx);
    }
    for (size_t i = 0; i < p->fx.n; i++)
        if (p->fx.events[i].asker == op.asker)
            return &p->fx.events[i];
    return p->fx.n ? &p->fx.events[p->fx.n - 1] : NULL;
}

void script_store(const struct script *p)
{
    struct buf stored = {0}, again = {0};
    struct machine *copy = NULL;
    machine_encode(p->m, &stored);
    BELAY_CHECK(machine_decode(buf_slice(&stored), (struct hash_key){5, 6}, &copy) == BELAY_OK);
    machine_encode(copy, &again);
    BELAY_CHECK(slice_eq(buf_slice(&stored), buf_slice(&again)));
    machine_close(copy);
    buf_done(&stored);
    buf_done(&again);
}

size_t script_count(const struct script *p, enum event_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < p->fx.n; i++)
        n += p->fx.events[i].kind == kind;
    return n;
}
