/* test_machine_any_op.c - whatever an op says that op_validate() lets pass: no machine stops, and
 * what it leaves is a state that a snapshot may have. Fields have values at the ends of their
 * ranges, and there are few names, so that ops meet. MODEL_SEED repeats a run. */
#include "auth/rule.h"
#include "auth/token.h"
#include "base/arena.h"
#include "choice.h"
#include "machine/machine.h"
#include "machine/varint.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LIVES = 100, OPS = 60, GROUPS = 3, MESSAGES_TRIED = 120, OPS_TRIED = 4000 };

static const struct hash_key key = {3, 4};

static uint64_t any_number(struct choice *c)
{
    static const uint64_t edges[] = {
        0, 1, 2, 3, 1000, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX / 4, UINT64_MAX / 2};
    uint64_t n = choice_of(c, edges);
    return choice_one_in(c, 4) ? n + choice_below(c, 3) - 1 : n;
}

static struct slice any_of(struct choice *c, const struct slice *texts, size_t n)
{
    return texts[choice_below(c, n)];
}

/* What any op has, whatever it is. */
static void any_fields(struct choice *c, struct buf *rules, struct op *ret)
{
    static const struct slice names[] = {
        {"", 0}, {"a", 1}, {"aaaaaaaaaaaaaaaa", 16}, {"bbbbbbbbbbbbbbbb", 16}};
    static const struct slice owners[] = {
        {"", 0}, {"o", 1}, {"SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS", 32}};
    static const struct slice spaces[] = {{"default", 7}, {"n", 1}};
    static const struct slice accounts[] = {
        {"", 0}, {"default", 7}, {"cccccccccccccccc", 16}, {"dddddddddddddddd", 16}};
    *ret = (struct op){.account = any_of(c, accounts, 4),
                       .ns = any_of(c, spaces, 2),
                       .name = any_of(c, names, 4),
                       .owner = any_of(c, owners, 3),
                       .session = any_of(c, names, 2),
                       .flags = choice_u64(c) & ((1 << 20) - 1)};
    uint64_t *any[] = {&ret->fence,   &ret->target,   &ret->number, &ret->rights,
                       &ret->wall_ms, &ret->until_ms, &ret->ttl_ms, &ret->linger_ms};
    for (size_t i = 0; i < sizeof any / sizeof any[0]; i++)
        *any[i] = choice_one_in(c, 3) ? any_number(c) : choice_below(c, 3);
    uint64_t *small[] = {&ret->mode,    &ret->permits,  &ret->of,
                         &ret->wait_ms, &ret->grace_ms, &ret->delay_ms};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        *small[i] = choice_below(c, 3);
    if (choice_one_in(c, 6))
        ret->token = any_number(c);
    if (choice_one_in(c, 3))
        ret->body = buf_slice(rules);
    if (choice_one_in(c, 8))
        ret->request = SLICE("r");
}

static bool is_sound(const struct op *op)
{
    const char *what;
    return op_validate(op, &what) == BELAY_OK;
}

static bool is_message(struct slice bytes)
{
    struct op op = {.kind = OP_MESSAGES, .fence = 1, .program = bytes};
    return is_sound(&op);
}

static void any_messages(struct choice *c, struct buf *rules, struct buf *out)
{
    for (uint64_t n = choice_below(c, MESSAGES_TRIED); n > 0; n--) {
        struct op message;
        struct buf bytes = {0}, one = {0};
        any_fields(c, rules, &message);
        message.kind = (enum op_kind)choice_below(c, OP_CHECK);
        op_encode(&message, &bytes);
        varint_put_bytes(&one, buf_slice(&bytes));
        if (is_message(buf_slice(&one)))
            buf_put_slice(out, buf_slice(&one));
        buf_done(&bytes);
        buf_done(&one);
    }
}

/* As entry_op_problem() has it: what is about sessions, namespaces and accounts is asked for in
 * group 0, the rest in the shards. */
static bool is_of_group(const struct op *op, unsigned group)
{
    bool everywhere = op->kind == OP_TICK || op->kind == OP_CANCEL || op->kind == OP_MESSAGES ||
                      op->kind == OP_TAKEN || op->kind == OP_NODE;
    bool at_home = (op->kind >= OP_SESSION_OPEN && op->kind <= OP_SESSION_CLOSE) ||
                   op->kind == OP_SESSION_ENROL || op->kind == OP_NAMESPACE_CREATE ||
                   op->kind == OP_NAMESPACE_UPDATE || op_is(op->kind, KIND_OF_ACCOUNT);
    return group == GROUPS || everywhere || at_home == (group == 0);
}

/* False: nothing that passes was found. */
static bool any_op(struct choice *c, struct machine *m, unsigned group, struct buf *rules,
                   struct buf *messages, struct op *ret)
{
    for (int tries = 0; tries < OPS_TRIED; tries++) {
        any_fields(c, rules, ret);
        ret->kind = (enum op_kind)choice_below(c, OP_CHECK);
        if (choice_one_in(c, 3))
            ret->kind = OP_MESSAGES;
        if (ret->kind == OP_TXN || ret->kind == OP_LEVEL) /* they have tests of their own */
            continue;
        if (ret->kind == OP_MESSAGES) {
            buf_clear(messages);
            any_messages(c, rules, messages);
            ret->program = buf_slice(messages);
            ret->target = choice_below(c, GROUPS);
            ret->fence = machine_taken(m, (unsigned)ret->target) + 1;
        }
        if (is_sound(ret) && is_of_group(ret, group))
            return true;
    }
    return false;
}

static void assert_storable(const struct machine *m)
{
    struct buf bytes = {0};
    struct machine *copy = NULL;
    machine_encode(m, &bytes);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){9, 9}, &copy),
                     BELAY_OK);
    assert_int_equal(machine_hash(m), machine_hash(copy));
    machine_close(copy);
    buf_done(&bytes);
}

/* group GROUPS: one that is alone */
static void live(struct choice *c, unsigned group, struct buf *rules)
{
    struct machine *m = machine_open(key);
    struct effects fx = {0};
    struct buf messages = {0};
    struct op op;
    uint64_t now_ms = 0;
    if (group < GROUPS)
        machine_set_group(m, group, GROUPS);
    for (int i = 0; i < OPS; i++) {
        assert_true(any_op(c, m, group, rules, &messages, &op));
        op.index = machine_applied(m) + 1;
        op.now_ms = now_ms += choice_below(c, 2000);
        effects_reset(&fx);
        machine_apply(m, &op, &fx);
        assert_storable(m);
    }
    buf_done(&messages);
    effects_done(&fx);
    machine_close(m);
}

static void what_any_op_leaves_can_be_stored(void **state)
{
    (void)state;
    const char *text = getenv("MODEL_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    struct buf rules = {0};
    print_message("# MODEL_SEED=%" PRIu64 "\n", seed);
    (void)rule_read(SLICE("read,lock *"), &rules);
    assert_true(buf_len(&rules) > 0);
    for (uint64_t i = 0; i < LIVES; i++) {
        struct choice c = choice_seed(seed * LIVES + i);
        live(&c, (unsigned)(i % (GROUPS + 1)), &rules);
    }
    buf_done(&rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_any_op_leaves_can_be_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
