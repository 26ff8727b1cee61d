/* test_admission.c - what CLUSTER ADD answers and --join takes, and the sum that is kept of it.
 */
#include "net/admission.h"
#include "raft/member.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define SECRET "0123456789abcdef0123456789abcdef"

static void a_text_is_read_as_it_was_written(void **state)
{
    (void)state;
    static const struct admission all[] = {
        {.node = 4, .cluster = 0xabc, .secret = SECRET},
        {.node = INT64_MAX, .cluster = UINT64_MAX, .secret = SECRET},
        {.node = 130, .cluster = 1}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[ADMISSION_TEXT_MAX];
        struct admission again;
        admission_format(&all[i], text);
        assert_int_equal(admission_parse(text, &again), BELAY_OK);
        assert_int_equal(again.node, all[i].node);
        assert_true(again.cluster == all[i].cluster);
        assert_string_equal(again.secret, all[i].secret);
    }
    struct admission number;
    assert_int_equal(admission_parse("7", &number), BELAY_OK);
    assert_int_equal(number.node, 7);
    assert_int_equal(number.cluster, 0);
    assert_string_equal(number.secret, "");
}

static void other_texts_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "0",
        "-1",
        " 4",
        "4 ",
        "four",
        "99999999999999999999",
        "9223372036854775808",
        "4:",
        "4:1",
        "4:0000000000000abC",
        "4:00000000000000abc",
        "4:0000000000000abc:",
        "4:0000000000000abc:0",
        "4:0000000000000abc:" SECRET "0",
        "4:0000000000000abc:" SECRET ":",
        "4:0000000000000abc:" SECRET "\n",
        "4:0000000000000abc:0123456789ABCDEF0123456789abcdef",
        "4::" SECRET,
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct admission a = {.node = 77};
        assert_int_equal(admission_parse(bad[i], &a), BELAY_ERR_SYNTAX);
        assert_int_equal(a.node, 77);
    }
}

static void secrets_differ_and_so_do_their_sums(void **state)
{
    (void)state;
    char one[ADMISSION_SECRET_MAX], two[ADMISSION_SECRET_MAX];
    uint64_t of_one[2], of_two[2], none[2];
    admission_draw(one);
    admission_draw(two);
    assert_int_equal(strlen(one), ADMISSION_SECRET_MAX - 1);
    assert_string_not_equal(one, two);
    admission_sum(one, of_one);
    admission_sum(two, of_two);
    assert_true(memcmp(of_one, of_two, sizeof of_one) != 0);
    admission_sum("", none);
    assert_true(none[0] == 0 && none[1] == 0);
    admission_sum("abc", of_one); /* FIPS 180-2 */
    assert_true(of_one[0] == 0xba7816bf8f01cfea && of_one[1] == 0x414140de5dae2223);
}

static void a_member_keeps_the_sum_until_it_is_let_in(void **state)
{
    (void)state;
    struct member m = {.name = "n4",
                       .peer = "10.0.0.4:7200",
                       .priority = 15,
                       .leaving = true,
                       .join = {0xba7816bf8f01cfea, 7}};
    struct member again;
    char text[GROUP_ADDRESS_MAX];
    assert_true(member_format(&m, text));
    assert_string_equal(text, "n4@10.0.0.4:7200 priority=15 "
                              "join=ba7816bf8f01cfea0000000000000007 leaving");
    member_parse(text, &again);
    assert_memory_equal(again.join, m.join, sizeof m.join);
    assert_false(member_is_let_in(&again));
    assert_true(again.leaving && again.priority == 15);
    member_parse("n4@10.0.0.4:7200 join=12 leaving", &again); /* nobody writes that */
    assert_true(member_is_let_in(&again) && again.leaving);
    memset(m.peer, 'p', MEMBER_PLACE_MAX - 4); /* the longest that there may be */
    m.peer[MEMBER_PLACE_MAX - 4] = '\0';
    assert_true(member_format(&m, text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_read_as_it_was_written),
        cmocka_unit_test(other_texts_are_none),
        cmocka_unit_test(secrets_differ_and_so_do_their_sums),
        cmocka_unit_test(a_member_keeps_the_sum_until_it_is_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
