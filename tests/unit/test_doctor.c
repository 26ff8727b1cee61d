/* What `belay doctor` finds in the answers of nodes: what cannot be made with real processes in a
 * test, such as a clock that is wrong for minutes or nodes of two versions. */
#include "cli/doctor/doctor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cli cli = {.command = &cli_cmd_doctor, .json = true};

static void ends(struct doctor *d)
{
    buf_done(&d->found);
    buf_done(&d->seen);
}

static void finds(struct doctor *d, const char *part)
{
    if (!strstr(buf_cstr(&d->found), part))
        fail_msg("%s is not in %s", part, buf_cstr(&d->found));
}

/* --- INFO --- */

static void look(struct doctor *d, const char *a, const char *b)
{
    char name_a[] = "n1";
    char name_b[] = "n2";
    struct doctor_node nodes[] = {{name_a, strdup(a)}, {name_b, b ? strdup(b) : NULL}};
    *d = (struct doctor){.c = &cli};
    doctor_nodes(d, nodes, b ? 2 : 1);
    free(nodes[0].info);
    free(nodes[1].info);
}

static void lines_that_are_wrong(void **state)
{
    static const struct {
        const char *info, *what;
    } rows[] = {
        {"ready:no leader is known\r\nnot_ready:no-leader\r\n", "\"code\":\"no-leader\""},
        {"ready:no leader is known\r\n", "\"code\":\"not-ready\""}, /* of an earlier version */
        {"state_bytes:900\r\nstate_max_bytes:1000\r\n", "memory is nearly full"},
        {"state_bytes:1000\r\nstate_max_bytes:1000\r\n", "memory is full"},
        {"connections_wanted:20\r\nmaxclients:10\r\n", "\"code\":\"open-files\""},
        {"connected_clients:9\r\nmaxclients:10\r\n", "9 of at most 10"},
        {"node_certificate_ends_s:86400\r\n",
         "for the other nodes, or that of its CA, ends in 1"},
        {"certificate_ends_s:2591999\r\n", "for clients, or that of its CA, ends in 29 days"},
        {"certificate_ends_s:0\r\n", "its certificate for clients has ended"},
        {"certificate_ends_s:-5\r\n", "its certificate for clients has ended"},
        {"journal_write_median_us:50000\r\njournal_write_slowest_us:70000\r\n",
         "took 50 ms or more, the slowest 70 ms"},
        {"disk_free_bytes:200000000\r\ndisk_bytes:400000000\r\n", "\"code\":\"disk-space\""},
        {"disk_free_bytes:9000000000\r\ndisk_bytes:1000000000000\r\n",
         "\"code\":\"disk-space\""},
        {"snapshots_failing:2\r\n", "cannot be stored (2 shards)"},
        {"journal_bytes:2000000\r\njournal_usual_bytes:1000000\r\n", "\"code\":\"journal\""},
        {"audit_failing:1\r\n", "\"code\":\"audit\""},
        {"node:n9\r\naudit_failing:1\r\n", "from here, n9 answers at its address"},
    };
    struct doctor d;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        look(&d, rows[i].info, NULL);
        finds(&d, rows[i].what);
        finds(&d, "\"where\":\"n1\"");
        assert_int_equal(d.errors + d.warnings, 1);
        ends(&d);
    }
}

static void lines_that_are_well(void **state)
{
    static const char *const rows[] = {
        "",
        "ready:yes\r\nnot_ready:\r\nnode:n1\r\n",
        "state_bytes:840\r\nstate_max_bytes:1000\r\n",
        "connections_wanted:10\r\nmaxclients:10\r\nconnected_clients:8\r\n",
        "certificate_ends_s:2592000\r\nnode_certificate_ends_s:2592000\r\n",
        "journal_write_median_us:49999\r\njournal_write_slowest_us:9000000\r\n",
        "disk_free_bytes:20000000000\r\ndisk_bytes:1000000000000\r\n",
        "disk_free_bytes:300000000\r\ndisk_bytes:1000000000\r\n",
        "snapshots_failing:0\r\njournal_bytes:1000\r\njournal_usual_bytes:1000\r\n",
        "audit_failing:0\r\nmy_audit_failing:1\r\naudit_failing_too:1\r\n",
        "state_bytes:nonsense\r\nstate_max_bytes:0\r\n",
    };
    struct doctor d;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        look(&d, rows[i], NULL);
        if (d.errors + d.warnings)
            fail_msg("%s: %s", rows[i], buf_cstr(&d.found));
        assert_int_equal(d.n_seen, 1);
        ends(&d);
    }
}

static void versions_that_differ(void **state)
{
    struct doctor d;
    (void)state;
    look(&d, "belay_version:0.2.0\r\n", "belay_version:0.2.0\r\n");
    assert_int_equal(d.errors + d.warnings, 0);
    ends(&d);
    look(&d, "belay_version:0.2.0\r\n", "belay_version:0.1.0\r\n");
    finds(&d, "n1 runs belay 0.2.0, and n2 belay 0.1.0");
    assert_int_equal(d.warnings, 1);
    ends(&d);
}

/* --- CLUSTER STATUS --- */

enum { MEMBERS = 3, FIELDS = 8 };

struct row {
    const char *name, *role, *problem;
    int64_t up, applied, newest, manual, ppm; /* newest, ppm 0: null */
};

struct answer {
    struct belay_reply top, node, nodes, shards, shard, shard_fields[2];
    struct belay_reply members[MEMBERS], fields[MEMBERS][FIELDS];
};

static struct belay_reply text_of(const char *key, const char *text)
{
    return (struct belay_reply){
        .kind = BELAY_TEXT, .key = key, .text = text, .len = strlen(text)};
}

static struct belay_reply int_of(const char *key, int64_t v)
{
    return (struct belay_reply){.kind = BELAY_INT, .key = key, .number = v};
}

static struct belay_reply or_null(const char *key, int64_t v)
{
    return v ? int_of(key, v) : (struct belay_reply){.kind = BELAY_NULL, .key = key};
}

static void chain(struct belay_reply *rows, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        rows[i].next = &rows[i + 1];
}

static void judge(struct doctor *d, const struct row *rows, size_t n, int64_t level)
{
    static struct answer a;
    a = (struct answer){.node = text_of("node", "n1")};
    a.shard_fields[0] = text_of("leader", "n1");
    a.shard_fields[1] = int_of("level", level);
    chain(a.shard_fields, 2);
    a.shard = (struct belay_reply){.kind = BELAY_MAP, .first = a.shard_fields, .count = 2};
    a.shards = (struct belay_reply){
        .kind = BELAY_LIST, .key = "shards", .first = &a.shard, .count = 1};
    for (size_t i = 0; i < n; i++) {
        struct belay_reply fields[FIELDS] = {
            text_of("name", rows[i].name),          text_of("role", rows[i].role),
            text_of("problem", rows[i].problem),    int_of("up", rows[i].up),
            int_of("applied", rows[i].applied),     or_null("level_newest", rows[i].newest),
            int_of("level_manual", rows[i].manual), or_null("clock_ppm", rows[i].ppm)};
        memcpy(a.fields[i], fields, sizeof fields);
        chain(a.fields[i], FIELDS);
        a.members[i] =
            (struct belay_reply){.kind = BELAY_MAP, .first = a.fields[i], .count = FIELDS};
    }
    chain(a.members, n);
    a.nodes = (struct belay_reply){
        .kind = BELAY_LIST, .key = "nodes", .first = a.members, .count = n};
    a.node.next = &a.nodes;
    a.nodes.next = &a.shards;
    a.top = (struct belay_reply){.kind = BELAY_MAP, .first = &a.node, .count = 3};
    *d = (struct doctor){.c = &cli};
    doctor_status(d, &a.top);
}

#define WELL(name, role)                                                                       \
    (struct row)                                                                               \
    {                                                                                          \
        name, role, "", 1, 100000, 2, 0, 0                                                     \
    }

static void members_that_are_wrong(void **state)
{
    static const struct {
        struct row third;
        const char *code, *what;
    } cases[] = {
        {{"n3", "follower", "not connected", 0, 0, 2, 0, 0},
         "member-down",
         "n1 does not hear it"},
        {{"n3", "follower", "refused by this node: no", 0, 0, 2, 0, 0}, "member-refused", "no"},
        {{"n3", "learner", "", 1, 100000, 2, 0, 0}, "learner", "does not vote yet"},
        {{"n3", "leaving", "", 1, 100000, 2, 0, 0}, "leaving", "being removed"},
        {{"n3", "follower", "", 1, 80000, 2, 0, 0}, "lag", "20000 entries"},
        {{"n3", "follower", "", 1, 100000, 2, 0, 1001}, "clock", "1001 ppm faster"},
        {{"n3", "follower", "", 1, 100000, 2, 0, -5000}, "clock", "5000 ppm slower"},
    };
    struct doctor d;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct row rows[] = {WELL("n1", "leader"), WELL("n2", "follower"), cases[i].third};
        bool two_vote = strcmp(cases[i].third.role, "follower") != 0;
        judge(&d, rows, 3, 2);
        finds(&d, cases[i].code);
        finds(&d, cases[i].what);
        finds(&d, "\"where\":\"n3\"");
        assert_int_equal(d.errors + d.warnings, two_vote ? 2 : 1);
        ends(&d);
    }
}

static void a_cluster_that_is_well(void **state)
{
    struct row rows[] = {WELL("n1", "leader"), WELL("n2", "follower"), WELL("n3", "follower")};
    struct doctor d;
    (void)state;
    rows[1].applied -= DOCTOR_BEHIND_ENTRIES - 1;
    rows[1].ppm = 1000;
    rows[2].ppm = -1000;
    judge(&d, rows, 3, 2);
    assert_int_equal(d.errors + d.warnings, 0);
    ends(&d);
    judge(&d, rows, 1, 2);
    assert_int_equal(d.errors + d.warnings, 0);
    ends(&d);
}

static void levels(void **state)
{
    struct row rows[] = {WELL("n1", "leader"), WELL("n2", "follower"), WELL("n3", "follower")};
    struct doctor d;
    (void)state;
    judge(&d, rows, 3, 1);
    finds(&d, "level 1, and all members know level 2");
    finds(&d, "It rises by itself");
    ends(&d);
    rows[2].manual = 1;
    judge(&d, rows, 3, 1);
    finds(&d, "belay cluster level 2");
    ends(&d);
    rows[2].newest = 1;
    judge(&d, rows, 3, 1);
    assert_int_equal(d.errors + d.warnings, 0);
    ends(&d);
    rows[2].newest = 0; /* it has not said it */
    judge(&d, rows, 3, 1);
    assert_int_equal(d.errors + d.warnings, 0);
    ends(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_are_wrong),   cmocka_unit_test(lines_that_are_well),
        cmocka_unit_test(versions_that_differ),   cmocka_unit_test(members_that_are_wrong),
        cmocka_unit_test(a_cluster_that_is_well), cmocka_unit_test(levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
