/* test_format.c - what is written has the version that the table of formats says, and what has
 * a later one is refused, with a text that says so. */
#include "base/format.h"

#include "../sim/sim_disk.h"
#include "base/log.h"
#include "machine/machine.h"
#include "machine/program.h"
#include "machine/varint.h"
#include "net/peer.h"
#include "raft/peer_message.h"
#include "raft/replica_core.h"
#include "single_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct sim_file *find(struct sim_disk *disk, const char *prefix)
{
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        if (disk->files[i].used && strncmp(disk->files[i].name, prefix, strlen(prefix)) == 0)
            return &disk->files[i];
    fail_msg("no file is called %s", prefix);
    return NULL;
}

static char *at(struct buf *bytes, size_t where)
{
    assert_true(where < buf_len(bytes));
    return bytes->mem + bytes->start + where;
}

/* A directory with a snapshot, of a server that has stopped. */
static void make(struct sim_disk *disk)
{
    struct single_node n;
    sim_disk_init(disk, 1);
    assert_int_equal(single_node_open(&n, disk, 1), BELAY_OK);
    assert_true(single_node_acquire(&n, "default", "a") > 0);
    replica_snapshot_now(replica_of(n.order));
    single_node_pump(&n);
    single_node_stop(&n);
}

static void files_have_the_version_of_the_table(void **state)
{
    enum { VERSION_AT = 8 };
    static const struct {
        const char *name;
        unsigned char newest;
    } files[] = {{"identity", FORMAT_IDENTITY},
                 {"journal-", FORMAT_JOURNAL},
                 {"snapshot-", FORMAT_SNAPSHOT}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        static struct sim_disk disk;
        struct single_node n;
        make(&disk);
        char *version = at(&find(&disk, files[i].name)->bytes, VERSION_AT);
        assert_int_equal(*version, files[i].newest);
        ++*version;
        sim_disk_revive(&disk);
        assert_int_not_equal(single_node_open(&n, &disk, 1), BELAY_OK);
        assert_non_null(strstr(replica_problem(), "of a newer belay"));
        --*version;
        assert_int_equal(single_node_open(&n, &disk, 1), BELAY_OK);
        single_node_stop(&n);
        sim_disk_wipe(&disk);
    }
}

/* The same bytes with another version. */
static struct slice with(struct buf *bytes, size_t where, unsigned version)
{
    *at(bytes, where) = (char)version;
    return buf_slice(bytes);
}

static void what_a_shard_keeps_has_the_version_of_the_table(void **state)
{
    enum { VERSION_AT = 8 };
    (void)state;
    struct buf bytes = {0};
    struct machine *m = machine_open((struct hash_key){3, 5});
    machine_encode(m, &bytes);
    machine_close(m);
    assert_int_equal(*at(&bytes, VERSION_AT), FORMAT_STATE);
    buf_clear(&bytes);
    program_begin(&bytes, 1);
    assert_int_equal(*at(&bytes, 0), FORMAT_PROGRAM);
    buf_done(&bytes);
}

static void an_op_has_one_of_the_versions_of_the_table(void **state)
{
    (void)state;
    struct arena a = {0};
    struct buf bytes = {0};
    struct op op = {.kind = OP_RELEASE, .name = SLICE("a"), .fence = 1}, back;
    op_encode(&op, &bytes);
    for (unsigned version = 0; version <= FORMAT_OP + 1; version++) {
        bool known = version >= FORMAT_OP_OLDEST && version <= OP_VERSION_NO_NUMBER;
        assert_int_equal(op_decode(with(&bytes, 0, version), &a, &back),
                         known ? BELAY_OK
                               : BELAY_ERR_CORRUPT); /* later ones have more in them */
    }
    buf_clear(&bytes);
    op.number = 1;
    op.token = 1;
    op_encode(&op, &bytes);
    assert_int_equal(*at(&bytes, 0), FORMAT_OP);
    buf_done(&bytes);
    arena_done(&a);
}

static void what_nodes_say_has_the_version_of_the_table(void **state)
{
    enum { HELLO_VERSION_AT = 8 };
    (void)state;
    struct arena a = {0};
    struct buf hello = {0}, message = {0};
    struct peer_hello h = {.cluster = 1, .node = 1, .start = 1, .groups = 1}, ret_h;
    struct peer_message m = {.type = WIRE_PROBE, .from = 1}, ret_m;
    peer_hello_encode(&h, &hello);
    assert_int_equal(*at(&hello, HELLO_VERSION_AT), FORMAT_HELLO);
    assert_int_equal(peer_hello_decode(buf_slice(&hello), &ret_h), BELAY_OK);
    assert_int_equal(
        peer_hello_decode(with(&hello, HELLO_VERSION_AT, FORMAT_HELLO + 1), &ret_h),
        BELAY_ERR_CORRUPT);
    peer_message_encode(&m, &message);
    assert_int_equal(*at(&message, 0), FORMAT_MESSAGE);
    assert_int_equal(peer_message_decode(buf_slice(&message), &a, &ret_m), BELAY_OK);
    assert_int_equal(peer_message_decode(with(&message, 0, FORMAT_MESSAGE + 1), &a, &ret_m),
                     BELAY_ERR_CORRUPT);
    buf_done(&hello);
    buf_done(&message);
    arena_done(&a);
}

static void the_table_is_in_order(void **state)
{
    (void)state;
#define X(NAME, name, oldest, newest, what)                                                    \
    assert_true(FORMAT_##NAME##_OLDEST >= 1 && FORMAT_##NAME##_OLDEST <= FORMAT_##NAME);
    FORMATS(X)
#undef X
    assert_int_equal(ENTRY_VERSION, FORMAT_ENTRY_OLDEST);
    assert_int_equal(ENTRY_LEVEL, FORMAT_ENTRY);
}

int main(void)
{
    log_set_level(LOG_NONE); /* directories are refused */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_have_the_version_of_the_table),
        cmocka_unit_test(what_a_shard_keeps_has_the_version_of_the_table),
        cmocka_unit_test(an_op_has_one_of_the_versions_of_the_table),
        cmocka_unit_test(what_nodes_say_has_the_version_of_the_table),
        cmocka_unit_test(the_table_is_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
