/* fuzz_auth.c - any bytes as the text of a token, as a rule that is typed, and as rules that are
 * kept: what is accepted has one form, and can be written and read again; what decides is found
 * for every name, and a listing always gets on. */
#include "auth/rule.h"
#include "auth/token.h"
#include "base/check.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_token(struct slice text)
{
    struct slice id, secret;
    struct buf again = {0};
    if (!token_read(text, &id, &secret))
        return;
    BELAY_CHECK(token_is_id(id));
    buf_put_str(&again, "blt_");
    buf_put_slice(&again, id);
    buf_put_byte(&again, '_');
    buf_put_slice(&again, secret);
    BELAY_CHECK(slice_eq(buf_slice(&again), text));
    buf_done(&again);
}

static void try_typed(struct slice text)
{
    struct buf bytes = {0}, written = {0}, again = {0};
    struct rule rule;
    if (!rule_read(text, &bytes)) {
        struct slice left = buf_slice(&bytes);
        BELAY_CHECK(rules_check(left) && rules_next(&left, &rule) && left.len == 0);
        rule_write(&rule, &written);
        BELAY_CHECK(buf_len(&written) > RULE_TEXT_BYTES ||
                    (!rule_read(buf_slice(&written), &again) &&
                     slice_eq(buf_slice(&again), buf_slice(&bytes))));
    }
    buf_done(&bytes);
    buf_done(&written);
    buf_done(&again);
}

/* The places of a listing only go forward, a few for each rule. */
static void walk(struct slice rules, struct slice ns, struct slice name)
{
    char bytes[RULE_NAME_BYTES];
    struct rules_place place;
    for (size_t steps = 0; !rules_can(rules, VERB_READ, ns, name, NULL); steps++) {
        BELAY_CHECK(steps <= 4 * RULES_MAX);
        if (!rules_skip(rules, ns, name, &place))
            return;
        struct slice next = slice_of(place.bytes, place.len);
        int order = slice_cmp(next, name);
        BELAY_CHECK(order > 0 || (order == 0 && !place.itself));
        if (!place.itself)
            return; /* a whole name: the next one is whatever there is */
        memcpy(bytes, place.bytes, place.len);
        name = slice_of(bytes, place.len);
    }
}

static void try_kept(struct slice rules, struct slice name)
{
    struct rule by;
    struct slice ns = slice_of(name.data, name.len / 2);
    if (!rules_check(rules))
        return;
    for (unsigned verb = VERB_READ; verb <= VERB_ACCOUNTS; verb *= 2) {
        bool can = rules_can(rules, (enum verb)verb, ns, name, &by);
        BELAY_CHECK(can == !!(by.verbs & verb));
        BELAY_CHECK(!can || rules_can_somewhere(rules, (enum verb)verb, NULL));
    }
    walk(rules, ns, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of((const char *)data, size);
    try_token(in);
    try_typed(in);
    size_t n = size ? data[size - 1] : 0; /* so many bytes at the end are a name */
    n = n < size ? n : size;
    try_kept(slice_of(in.data, size - n), slice_of(in.data + size - n, n));
    return 0;
}
