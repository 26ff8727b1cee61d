/* fuzz_op.c - any bytes as an op: no crash, and what is accepted has exactly one binary form.
 */
#include "base/check.h"
#include "machine/op.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct arena arena = {0};
    struct buf again = {0};
    struct op op;
    struct slice in = slice_of((const char *)data, n);
    if (op_decode(in, &arena, &op) == BELAY_OK) {
        const char *what = NULL;
        op_encode(&op, &again);
        BELAY_CHECK(slice_eq(buf_slice(&again), in));
        if (op_validate(&op, &what) != BELAY_OK)
            BELAY_CHECK(what != NULL && *what != 0);
    }
    buf_done(&again);
    arena_done(&arena);
    return 0;
}
