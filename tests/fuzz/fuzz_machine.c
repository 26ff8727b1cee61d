/* fuzz_machine.c - state fuzz: the bytes choose valid ops for the machine and its naive twin.
 *
 * As the model test, but a fuzzer looks for the choices: every event must be equal, the slow
 * checks walk the state after each op, and a snapshot at the end must be the same state. */
#include "base/check.h"
#include "choice.h"
#include "machine/machine.h"
#include "random_ops.h"
#include "text_format.h"
#include "twin.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { OPS_MAX = 400 };

static void compare(const struct op *op, const struct effects *got, const struct effects *want)
{
    bool same = got->n == want->n;
    for (size_t i = 0; same && i < got->n; i++)
        same = text_same_event(&got->events[i], &want->events[i]);
    if (same)
        return;
    struct buf out = {0};
    text_put_op(&out, op);
    for (size_t i = 0; i < got->n; i++)
        buf_put_str(&out, "\n  machine: "), text_put_event_fully(&out, &got->events[i]);
    for (size_t i = 0; i < want->n; i++)
        buf_put_str(&out, "\n  twin:    "), text_put_event_fully(&out, &want->events[i]);
    fprintf(stderr, "%s\n", buf_cstr(&out));
    check_failed(__FILE__, __LINE__, "the machine and its twin part");
}

static void check_snapshot(const struct machine *m)
{
    struct buf bytes = {0};
    struct machine *copy = NULL;
    machine_encode(m, &bytes);
    BELAY_CHECK(machine_decode(buf_slice(&bytes), (struct hash_key){9, 9}, &copy) == BELAY_OK);
    BELAY_CHECK(machine_hash(m) == machine_hash(copy));
    machine_close(copy);
    buf_done(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct choice c = choice_bytes(data, n);
    struct machine *m = machine_open((struct hash_key){1, 2});
    struct twin *t = twin_open(MACHINE_EXPIRE_BATCH);
    struct effects got = {0}, want = {0};
    struct random_ops g;
    random_ops_init(&g, &c);
    for (size_t i = 0; i < OPS_MAX && c.n; i++) {
        struct op op;
        bool read = choice_below(&c, 6) == 5;
        random_ops_next(&g, read, &op);
        effects_reset(&got);
        effects_reset(&want);
        op.index = machine_applied(m) + 1;
        if (read) {
            machine_query(m, &op, &got);
            twin_query(t, &op, &want);
        } else {
            machine_apply(m, &op, &got);
            twin_apply(t, &op, &want);
        }
        compare(&op, &got, &want);
        for (size_t k = 0; k < want.n; k++)
            random_ops_saw(&g, &want.events[k]);
    }
    check_snapshot(m);
    effects_done(&got);
    effects_done(&want);
    machine_close(m);
    twin_close(t);
    return 0;
}
