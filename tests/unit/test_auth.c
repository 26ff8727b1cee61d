/* test_auth.c - the text of tokens and rules, and which rule decides: tables. */
#include "auth/rule.h"
#include "auth/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char hex64[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static void a_token_has_one_form(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        int digits; /* of the secret */
        const char *tail;
        bool good;
    } rows[] = {
        {"blt_0123456789abcdef_", 64, "", true},
        {"blt_ffffffffffffffff_", 64, "", true},
        {"blt_0123456789abcdef_", 63, "f", true},
        {"blt_0123456789abcdef_", 64, "a", false},
        {"blt_0123456789abcde_", 64, "", false},
        {"blt_0123456789abcdeg_", 64, "", false},
        {"blt_0123456789ABCDEF_", 64, "", false},
        {"BLT_0123456789abcdef_", 64, "", false},
        {"blt-0123456789abcdef_", 64, "", false},
        {"blt_0123456789abcdef-", 64, "", false},
        {"blt_0123456789abcdef_", 63, "", false},
        {" blt_0123456789abcdef_", 63, "", false},
        {"blt_0123456789abcdef_", 63, "A", false},
        {"blt_0123456789abcdef_", 63, " ", false},
        {"", 64, "", false},
        {"", 0, "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        struct slice id = {0}, secret = {0};
        (void)snprintf(text, sizeof text, "%s%.*s%s", rows[i].head, rows[i].digits, hex64,
                       rows[i].tail);
        bool is = token_read(slice_str(text), &id, &secret);
        if (is != rows[i].good)
            fail_msg("row %zu: %s", i, text);
        if (is)
            assert_true(token_is_id(id) && slice_eq(secret, slice_str(hex64)));
    }
}

static void a_new_secret_is_another_one(void **state)
{
    (void)state;
    char a[TOKEN_SECRET_BYTES], b[TOKEN_SECRET_BYTES];
    unsigned char x[TOKEN_SUM_BYTES], y[TOKEN_SUM_BYTES];
    token_new(a, sizeof a);
    token_new(b, sizeof b);
    token_sum(slice_of(a, sizeof a), x);
    token_sum(slice_of(b, sizeof b), y);
    assert_false(token_sums_equal(x, y));
    token_sum(slice_of(a, sizeof a), y);
    assert_true(token_sums_equal(x, y));
    y[31] ^= 1;
    assert_false(token_sums_equal(x, y));
}

static void rules_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *again; /* NULL: refused; "": as typed */
    } rows[] = {
        {"read team", ""},
        {"read team/*", "read team"},
        {"lock,read team/db*", "read,lock team/db*"},
        {"read,lock,break,admin *", ""},
        {"read */x", ""},
        {"read te*/x*", ""},
        {"read a%2Fb/%2A%25", ""},
        {"read a/b/c", "read a/b%2Fc"}, /* the first slash divides */
        {"read a/b%2fc", "read a/b%2Fc"},
        {"read %00/%FF*", ""},
        {"cluster", ""},
        {"accounts,cluster", "cluster,accounts"},
        {"", NULL},
        {"read", NULL},
        {"read ", NULL},
        {" team", NULL},
        {"write team", NULL},
        {"READ team", NULL},
        {"read,read team", NULL},
        {"read,,lock team", NULL},
        {"read, lock team", NULL},
        {"cluster team", NULL},
        {"cluster,read team", NULL},
        {"read te*m", NULL},
        {"read team/", NULL},
        {"read /x", NULL},
        {"read team/%", NULL},
        {"read team/%4", NULL},
        {"read team/%4g", NULL},
        {"read team/a*b", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf bytes = {0}, again = {0};
        struct rule r;
        const char *what = rule_read(slice_str(rows[i].text), &bytes);
        if ((what == NULL) != (rows[i].again != NULL))
            fail_msg("%s: %s", rows[i].text, what ? what : "taken");
        if (!what) {
            struct slice left = buf_slice(&bytes);
            assert_true(rules_check(left) && rules_next(&left, &r) && left.len == 0);
            rule_write(&r, &again);
            assert_string_equal(buf_cstr(&again),
                                *rows[i].again ? rows[i].again : rows[i].text);
        } else {
            assert_int_equal(buf_len(&bytes), 0); /* nothing of a bad rule is left behind */
        }
        buf_done(&bytes);
        buf_done(&again);
    }
}

static void a_long_rule_is_refused(void **state)
{
    (void)state;
    char text[700];
    struct buf bytes = {0};
    (void)snprintf(text, sizeof text, "read %0128d/%0512d", 1, 1);
    assert_null(rule_read(slice_str(text), &bytes));
    (void)snprintf(text, sizeof text, "read %0129d", 1);
    assert_non_null(rule_read(slice_str(text), &bytes));
    (void)snprintf(text, sizeof text, "read x/%0513d", 1);
    assert_non_null(rule_read(slice_str(text), &bytes));
    buf_done(&bytes);
}

static struct slice rules_of(struct buf *bytes, const char *const *texts)
{
    for (; *texts; texts++)
        assert_null(rule_read(slice_str(*texts), bytes));
    return buf_slice(bytes);
}

static void the_most_exact_rule_decides(void **state)
{
    (void)state;
    static const char *const texts[] = {"read *",
                                        "read,lock team",
                                        "read team/secret*",
                                        "lock team/secret-1",
                                        "admin te*",
                                        "break team*/db*",
                                        "read,lock only/a*",
                                        "lock only/a*",
                                        "cluster",
                                        "read,lock,break,admin all",
                                        NULL};
    static const struct {
        const char *verb, *ns, *name;
        bool can;
        const char *by;
    } rows[] = {
        {"read", "other", "x", true, "read *"},
        {"lock", "other", "x", false, "read *"},
        {"read", "other", "", true, "read *"},
        {"lock", "team", "x", true, "read,lock team"},
        {"break", "team", "x", false, "read,lock team"},
        {"admin", "team", "", false, "read,lock team"},
        {"admin", "tex", "", true, "admin te*"},
        {"read", "tex", "x", false, "admin te*"}, /* a more exact rule takes away, too */
        {"read", "team", "secret", true, "read team/secret*"},
        {"lock", "team", "secret", false, "read team/secret*"},
        {"lock", "team", "secret-1", true, "lock team/secret-1"},
        {"read", "team", "secret-1", false, "lock team/secret-1"},
        {"lock", "team", "secret-12", false, "read team/secret*"},
        {"break", "team2", "db1", true, "break team*/db*"},
        {"break", "team", "db1", false, "read,lock team"}, /* the namespace counts first */
        {"break", "team2", "x", false, "admin te*"},
        {"lock", "only", "a", true, "read,lock only/a*"},
        {"lock", "only", "b", false, "read *"},
        {"lock", "only", "", false, "read *"},
        {"cluster", "", "", true, "cluster"},
        {"accounts", "", "", false, "cluster"},
        {"admin", "all", "", true, "read,lock,break,admin all"},
        {"cluster", "all", "", true, "cluster"},
        {"read", "TEAM", "secret", true, "read *"}, /* raw bytes */
    };
    struct buf bytes = {0};
    struct slice rules = rules_of(&bytes, texts);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf by = {0};
        struct rule r;
        bool can = rules_can(rules, verb_find(slice_str(rows[i].verb)), slice_str(rows[i].ns),
                             slice_str(rows[i].name), &r);
        rule_write(&r, &by);
        if (can != rows[i].can || strcmp(buf_cstr(&by), rows[i].by) != 0)
            fail_msg("row %zu: %d by %s", i, can, buf_cstr(&by));
        buf_done(&by);
    }
    struct slice team = SLICE("team"), none = SLICE("x");
    assert_true(rules_can_somewhere(rules, VERB_BREAK, NULL));
    assert_false(rules_can_somewhere(rules, VERB_ACCOUNTS, NULL));
    assert_false(rules_can_somewhere(rules, VERB_BREAK, &team));
    assert_false(rules_can_somewhere(rules, VERB_LOCK, &none));
    assert_false(rules_can(SLICE(""), VERB_READ, team, none, NULL));
    buf_done(&bytes);
}

static void bytes_that_are_no_rules_are_refused(void **state)
{
    (void)state;
    struct buf bytes = {0};
    static const char *const texts[] = {"read,lock team/db*", "cluster", "admin *", NULL};
    struct slice rules = rules_of(&bytes, texts);
    size_t whole[] = {0, 0, 0, 0};
    struct slice left = rules;
    struct rule r;
    for (size_t i = 1; rules_next(&left, &r); i++)
        whole[i] = rules.len - left.len;
    for (size_t n = 0; n <= rules.len; n++) {
        bool is = n == whole[0] || n == whole[1] || n == whole[2] || n == whole[3];
        assert_int_equal(rules_check(slice_of(rules.data, n)), is);
    }
    char copy[64];
    static const unsigned char bad[] = {0, 64, 17, 255}; /* in place of the verbs */
    for (size_t i = 0; i < sizeof bad; i++) {
        memcpy(copy, rules.data, rules.len);
        copy[0] = (char)bad[i];
        assert_false(rules_check(slice_of(copy, rules.len)));
    }
    memcpy(copy, rules.data, rules.len);
    copy[1] |= 4;
    assert_false(rules_check(slice_of(copy, rules.len)));
    buf_clear(&bytes);
    for (int i = 0; i <= RULES_MAX; i++) {
        assert_int_equal(rules_check(buf_slice(&bytes)), true);
        assert_null(rule_read(SLICE("read *"), &bytes));
    }
    assert_false(rules_check(buf_slice(&bytes)));
    buf_done(&bytes);
}

/* --- what a listing passes over --- */

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static size_t draw_name(uint64_t *seed, char *out)
{
    static const char letters[] = {'a', 'b', '\0', '\xff'};
    size_t n = draw(seed) % 4;
    for (size_t i = 0; i < n; i++)
        out[i] = letters[draw(seed) % sizeof letters];
    return n;
}

static void draw_rule(uint64_t *seed, struct buf *bytes)
{
    char name[4], text[64];
    size_t n = draw_name(seed, name);
    int at = snprintf(text, sizeof text, "%s n%s/", draw(seed) % 2 ? "read" : "lock",
                      draw(seed) % 3 ? "" : "*");
    for (size_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%%%02X", (unsigned char)name[i]);
    (void)snprintf(text + at, sizeof text - (size_t)at, "%s",
                   n == 0 || draw(seed) % 3 ? "*" : "");
    assert_null(rule_read(slice_str(text), bytes));
}

/* Between a name that may not be read and the place to go on from, nothing may be read. */
static void a_skip_passes_over_nothing(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    const char *given = getenv("SEED");
    if (given)
        seed = strtoull(given, NULL, 10);
    print_message("SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        struct buf bytes = {0};
        for (size_t n = draw(&seed) % 5; n; n--)
            draw_rule(&seed, &bytes);
        char from[4], other[4];
        struct slice rules = buf_slice(&bytes), ns = SLICE("n");
        struct slice name = slice_of(from, draw_name(&seed, from));
        struct slice probe = slice_of(other, draw_name(&seed, other));
        struct rules_place place;
        if (!rules_can(rules, VERB_READ, ns, name, NULL)) {
            bool more = rules_skip(rules, ns, name, &place);
            struct slice to = slice_of(place.bytes, more ? place.len : 0);
            int order = more ? slice_cmp(probe, to) : -1;
            bool passed =
                slice_cmp(probe, name) > 0 && (order < 0 || (order == 0 && !place.itself));
            if (passed)
                assert_false(rules_can(rules, VERB_READ, ns, probe, NULL));
            if (more) /* and it goes on */
                assert_true(slice_cmp(to, name) > 0 || (slice_eq(to, name) && !place.itself));
        }
        buf_done(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_has_one_form),
        cmocka_unit_test(a_new_secret_is_another_one),
        cmocka_unit_test(rules_are_read),
        cmocka_unit_test(a_long_rule_is_refused),
        cmocka_unit_test(the_most_exact_rule_decides),
        cmocka_unit_test(bytes_that_are_no_rules_are_refused),
        cmocka_unit_test(a_skip_passes_over_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
