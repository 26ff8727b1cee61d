/* transcript.c - a history as text, which must come out the same. */
#include "transcript.h"

#include "base/check.h"
#include "machine/machine.h"
#include "text_format.h"

/* cmocka wants these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static const struct hash_key keys[] = {{1, 2}, {0xfeedfacefeedfaceu, 77}};

struct stage {
    struct machine *m;
    struct effects fx;
    struct arena arena;
    uint64_t line;
    size_t wrong;
};

/* Encodes and decodes it: from here on the copy plays. */
static void change_cast(struct stage *s)
{
    struct buf before = {0}, after = {0};
    struct machine *copy = NULL;
    machine_encode(s->m, &before);
    assert_int_equal(machine_decode(buf_slice(&before), keys[s->line % 2], &copy), BELAY_OK);
    machine_encode(copy, &after);
    assert_true(slice_eq(buf_slice(&before), buf_slice(&after)));
    assert_true(machine_hash(s->m) == machine_hash(copy));
    buf_done(&before);
    buf_done(&after);
    machine_close(s->m);
    s->m = copy;
}

static void play(struct stage *s, const char *text, struct buf *got)
{
    struct op said, op;
    struct buf bytes = {0};
    const char *what = "";
    effects_reset(&s->fx);
    arena_reset(&s->arena);
    text_read_op(text, &s->arena, &said);
    if (!said.asker)
        said.asker = s->line;
    op_encode(&said, &bytes);
    assert_int_equal(op_decode(buf_slice(&bytes), &s->arena, &op), BELAY_OK);
    if (op_validate(&op, &what) != BELAY_OK) {
        buf_printf(got, "invalid: %s", what);
    } else if (op_is_read(op.kind)) {
        machine_query(s->m, &op, &s->fx);
    } else {
        op.index = machine_applied(s->m) + 1;
        machine_apply(s->m, &op, &s->fx);
    }
    for (size_t i = 0; i < s->fx.n; i++) {
        buf_put_str(got, i ? ", " : "");
        text_put_event(got, &op, &s->fx.events[i]);
    }
    if (!buf_len(got))
        buf_put_str(got, "-");
    buf_done(&bytes);
    change_cast(s);
}

static void check_line(struct stage *s, const char *line)
{
    static const char arrow[] = " -> ";
    char text[1024];
    struct buf got = {0};
    const char *at = strstr(line, arrow);
    BELAY_CHECK(at != NULL);
    BELAY_CHECK((size_t)(at - line) < sizeof text);
    memcpy(text, line, (size_t)(at - line));
    text[at - line] = 0;
    s->line++;
    play(s, text, &got);
    if (strcmp(buf_cstr(&got), at + sizeof arrow - 1) != 0) {
        fprintf(stderr, "line %d: %s\n   got:%*s%s%s\n", (int)s->line, line,
                (int)(at - line > 7 ? at - line - 7 : 0), "", arrow, buf_cstr(&got));
        s->wrong++;
    }
    buf_done(&got);
}

void transcript(const char *const lines[])
{
    struct stage s = {.m = machine_open(keys[0])};
    for (size_t i = 0; lines[i]; i++)
        check_line(&s, lines[i]);
    machine_close(s.m);
    effects_done(&s.fx);
    arena_done(&s.arena);
    if (s.wrong)
        fail_msg("%d lines went another way", (int)s.wrong);
}
