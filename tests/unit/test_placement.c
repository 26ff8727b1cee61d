/* Who should lead a group, and how its members follow those of group 0; and the text in which
 * the cluster keeps what it knows of a member. */
#include "raft/placement.h"

#include "raft/member.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES_MAX = 8 };

/* "1 2/3 3/15! 4?" - ids in any order; /N priority (14); ! is down, ? is behind, - goes, l
 * learns,
 * + is wanted and not in yet, x is in and not wanted, = learns and should only learn. */
static size_t nodes_of(const char *text, struct placement_node *nodes)
{
    size_t n = 0;
    while (*text) {
        char *end;
        struct placement_node node = {.priority = 14,
                                      .member = true,
                                      .voter = true,
                                      .wanted = true,
                                      .wanted_voter = true,
                                      .up = true,
                                      .near = true};
        node.id = strtoul(text, &end, 10);
        for (; *end && *end != ' '; end++) {
            if (*end == '/')
                node.priority = (uint8_t)strtoul(end + 1, &end, 10), end--;
            node.up = node.up && *end != '!';
            node.near = node.near && *end != '?';
            node.going = node.going || *end == '-';
            node.member = node.member && *end != '+';
            node.voter = node.voter && !strchr("l+=", *end);
            node.wanted = node.wanted && *end != 'x';
            node.wanted_voter = node.wanted_voter && *end != '=';
        }
        nodes[n++] = node;
        text = end + (*end == ' ');
    }
    return n;
}

/* Groups 0, 1, 2, ... are led by these. */
static void groups_are_spread_over_the_best(void **state)
{
    (void)state;
    static const struct {
        const char *what, *nodes, *leaders;
    } rows[] = {
        {"in turn, by id", "1 2 3", "1 2 3 1 2 3 1"},
        {"the order of the members says nothing", "3 1 2", "1 2 3 1 2 3 1"},
        {"ids need not be neighbours", "2 9 4", "2 4 9 2 4 9 2"},
        {"who is down does not count", "1 2! 3", "1 3 1 3 1 3 1"},
        {"nor who is behind", "1? 2 3", "2 3 2 3 2 3 2"},
        {"nor who goes", "1 2 3-", "1 2 1 2 1 2 1"},
        {"nor who learns", "1 2l 3", "1 3 1 3 1 3 1"},
        {"nor who is not in yet", "1 2+ 3", "1 3 1 3 1 3 1"},
        {"the lowest number leads everything", "1 2/3 3", "2 2 2 2 2 2 2"},
        {"two of them share it", "1/3 2 3/3", "1 3 1 3 1 3 1"},
        {"while it is down the next ones lead", "1/0! 2/7 3/7", "2 3 2 3 2 3 2"},
        {"15 never leads", "1/15 2 3", "2 3 2 3 2 3 2"},
        {"not even alone", "1/15 2! 3!", "0 0 0 0 0 0 0"},
        {"nobody can", "1! 2? 3-", "0 0 0 0 0 0 0"},
        {"one alone", "7", "7 7 7 7 7 7 7"},
        {"nobody is there", "", "0 0 0 0 0 0 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct placement_node nodes[NODES_MAX];
        size_t n = nodes_of(rows[i].nodes, nodes);
        char got[64] = "";
        for (size_t group = 0; group < 7; group++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", group ? " " : "",
                     (int)placement_leader(nodes, n, group));
        if (strcmp(got, rows[i].leaders) != 0)
            fail_msg("%s: %s, not %s", rows[i].what, got, rows[i].leaders);
    }
}

/* In which order the nodes 1 to 4 stand for groups 0, 1 and 2; 9: last. */
static void who_should_lead_stands_first(void **state)
{
    (void)state;
    static const struct {
        const char *what, *nodes, *ranks;
    } rows[] = {
        {"in turn", "1 2 3 4", "0123 3012 2301"},
        {"without the one that is gone", "1! 2 3 4", "9012 9201 9120"},
        {"whether they are near or not: nobody knows", "1? 2 3? 4!", "0129 2019 1209"},
        {"the lowest number first", "1 2/3 3 4/15", "1029 2019 1029"},
        {"who goes, learns or is not in stands last", "1- 2l 3+ 4", "9990 9990 9990"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct placement_node nodes[NODES_MAX];
        size_t n = nodes_of(rows[i].nodes, nodes);
        char got[64] = "";
        for (size_t group = 0; group < 3; group++) {
            strcat(got, group ? " " : "");
            for (uint64_t id = 1; id <= 4; id++) {
                size_t rank = placement_rank(nodes, n, group, id);
                snprintf(got + strlen(got), sizeof got - strlen(got), "%d",
                         rank >= n ? 9 : (int)rank);
            }
        }
        if (strcmp(got, rows[i].ranks) != 0)
            fail_msg("%s: %s, not %s", rows[i].what, got, rows[i].ranks);
    }
}

/* Node 1 leads. */
static void members_follow_one_step_at_a_time(void **state)
{
    (void)state;
    static const char *const words[] = {"none", "add", "promote", "remove"};
    static const struct {
        const char *what, *nodes, *want;
    } rows[] = {
        {"nothing to do", "1 2 3", "none"},
        {"a new one learns first", "1 2 3 4+", "add 4"},
        {"also while it is down", "1 2 3 4+!", "add 4"},
        {"and votes when it is near", "1 2 3 4l", "promote 4"},
        {"not before", "1 2 3 4l?", "none"},
        {"nor while it is down", "1 2 3 4l!", "none"},
        {"nor if it should only learn", "1 2 3 4=", "none"},
        {"who must go goes", "1 2 3x", "remove 3"},
        {"dead or alive", "1 2 3x!", "remove 3"},
        {"but not when too few who stay are up", "1 2! 3x", "none"},
        {"nor is anything possible without a majority", "1 2! 3! 4lx", "none"},
        {"a learner that must go goes", "1 2 3! 4lx", "remove 4"},
        {"a leader does not remove itself", "1x 2 3", "none"},
        {"out before in", "1 2 3x 4+", "remove 3"},
        {"in before votes", "1 2 3l 4+", "add 4"},
        {"what cannot be done does not hold up the rest", "1 2! 3x 4+", "add 4"},
        {"two of two", "1 2x", "remove 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct placement_node nodes[NODES_MAX];
        size_t n = nodes_of(rows[i].nodes, nodes);
        uint64_t id = 0;
        char got[64];
        enum placement_step step = placement_change(nodes, n, 1, &id);
        snprintf(got, sizeof got, id ? "%s %d" : "%s", words[step], (int)id);
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("%s: %s, not %s", rows[i].what, got, rows[i].want);
    }
}

static void a_member_is_a_text_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *address, *name, *peer;
        int priority;
        bool leaving;
    } rows[] = {
        {"n1@127.0.0.1:7200", "n1", "127.0.0.1:7200", MEMBER_PRIORITY_UNSET, false},
        {"n1@[::1]:7200 priority=0", "n1", "[::1]:7200", 0, false},
        {"n1@h:1 priority=15 leaving", "n1", "h:1", 15, true},
        {"n1@h:1 leaving", "n1", "h:1", MEMBER_PRIORITY_UNSET, true},
        {"node-3", "", "node-3", MEMBER_PRIORITY_UNSET, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct member m;
        char again[GROUP_ADDRESS_MAX];
        member_parse(rows[i].address, &m);
        assert_string_equal(m.name, rows[i].name);
        assert_string_equal(m.peer, rows[i].peer);
        assert_int_equal(m.priority, rows[i].priority);
        assert_int_equal(m.leaving, rows[i].leaving);
        assert_true(member_format(&m, again));
        assert_string_equal(again, rows[i].address);
    }
}

static void a_member_with_a_strange_name_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"a b", "a@b", "a=b", "a,b"};
    char text[GROUP_ADDRESS_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct member m = {.peer = "h:1", .priority = MEMBER_PRIORITY_UNSET};
        snprintf(m.name, sizeof m.name, "%s", names[i]);
        assert_false(member_format(&m, text));
        struct member p = {.name = "n", .priority = MEMBER_PRIORITY_UNSET};
        snprintf(p.peer, sizeof p.peer, "%s", names[i]);
        assert_false(member_format(&p, text));
    }
    struct member m = {.name = "n", .priority = 3, .leaving = true};
    memset(m.peer, 'h', sizeof m.peer - 1);
    assert_false(member_format(&m, text));
    /* what an unknown version wrote is kept out, not misread */
    member_parse("n@h:1 priority=99 sleeping", &m);
    assert_int_equal(m.priority, MEMBER_PRIORITY_UNSET);
    assert_false(m.leaving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_spread_over_the_best),
        cmocka_unit_test(who_should_lead_stands_first),
        cmocka_unit_test(members_follow_one_step_at_a_time),
        cmocka_unit_test(a_member_is_a_text_and_back),
        cmocka_unit_test(a_member_with_a_strange_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
