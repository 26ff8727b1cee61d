#include "play.h"

#include "base/check.h"
#include "story.h"

#include <stdarg.h>

void play_open(struct play *p)
{
    *p = (struct play){.m = machine_open((struct hash_key){3, 4})};
}

void play_done(struct play *p)
{
    machine_close(p->m);
    effects_done(&p->fx);
    arena_done(&p->arena);
}

const struct event *play(struct play *p, const char *format, ...)
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
    story_read_op(buf_cstr(&text), &p->arena, &op);
    buf_done(&text);
    op.asker = ++p->line;
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

size_t play_count(const struct play *p, enum event_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < p->fx.n; i++)
        n += p->fx.events[i].kind == kind;
    return n;
}
