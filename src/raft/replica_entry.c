/* replica_entry.c - what is wrong with an entry of the log, before it is accepted.
 *
 * An entry that is durable is applied at every start, and applying cannot fail. So nothing is
 * written that cannot be applied: neither what a leader sends, nor what a node hands over to
 * one, nor what lies on a disk is taken without this check. */
#include "base/check.h"
#include "raft/replica_core.h"

#include <inttypes.h>

static bool is_of_group(const struct replica_group *r, enum op_kind kind)
{
    BELAY_CHECK(r->group_no < r->o->base.n_groups && kind < OP_KIND_COUNT);
    return r->o->base.n_groups == 1 || op_is(kind, KIND_EVERYWHERE) ||
           op_is(kind, KIND_AT_HOME) == (r->group_no == 0);
}

/* An op that was asked for at that node. */
const char *entry_op_problem(struct replica_group *r, uint64_t node, struct slice bytes)
{
    BELAY_CHECK(place_of(node) != 0);
    struct replica *o = r->o;
    struct op op;
    const char *what = NULL;
    if (bytes.len + ENTRY_ROOM > GROUP_ENTRY_BYTES_MAX)
        return "an op is too large";
    if (op_decode(bytes, &o->arena, &op) != BELAY_OK)
        what = "a record does not hold an op";
    else if (op_validate(&op, &what) == BELAY_OK)
        what = NULL;
    if (!what && (op_is_read(op.kind) || op.kind == OP_LEVEL || op.kind == OP_NODE))
        what = "an op is of a kind that nodes do not forward";
    if (!what && !is_of_group(r, op.kind))
        what = "an op is in the wrong group";
    if (!what && op.asker && (op.asker & ~OP_ASKER_LOOSE) >> OP_NODE_SHIFT != place_of(node))
        what = "an op names another asker's node than the node that forwarded it";
    arena_reset(&o->arena);
    return what;
}

/* What a leader says of a node: its run is over, or an OP_NODE. */
static const char *word_problem(struct replica *o, struct slice bytes)
{
    struct op op;
    const char *what;
    if (bytes.len == 0)
        return NULL;
    bool is_word = op_decode(bytes, &o->arena, &op) == BELAY_OK && op.kind == OP_NODE &&
                   op_validate(&op, &what) == BELAY_OK;
    arena_reset(&o->arena);
    return is_word ? NULL : "an entry about a node has a word that no leader writes";
}

static const char *record_problem(struct replica_group *r, struct reader *in)
{
    BELAY_CHECK(in->left.len > 0);
    uint64_t node = reader_u64(in);
    uint64_t run = reader_u64(in);
    uint64_t number = reader_u64(in);
    struct slice op = reader_bytes(in);
    if (in->bad)
        return "an entry is cut off";
    if (place_of(node) == 0 || node > GROUP_NUMBER_MAX || run > GROUP_NUMBER_MAX ||
        number > GROUP_NUMBER_MAX)
        return "a number in an entry is out of range";
    return number ? entry_op_problem(r, node, op) : word_problem(r->o, op);
}

const char *entry_problem(struct replica_group *r, struct slice data)
{
    BELAY_CHECK(r->group_no < r->o->base.n_groups);
    struct reader in = {.left = data};
    const char *what = NULL;
    uint8_t version = reader_byte(&in);
    uint64_t now = reader_u64(&in);
    if (in.bad || (version != ENTRY_VERSION && version != ENTRY_LEVEL))
        return "an entry is of an unknown version";
    if (now > GROUP_NUMBER_MAX)
        return "the time of an entry is out of range";
    if (version == ENTRY_LEVEL) {
        uint64_t level = reader_u64(&in);
        if (!in.bad && in.left.len == 0 && level > level_newest(r->o))
            return "an entry raises the level beyond what this program knows: start a newer "
                   "belay here";
        return in.bad || in.left.len ? "an entry holds no level" : NULL;
    }
    while (in.left.len > 0 && !what)
        what = record_problem(r, &in);
    return what;
}

/* Of what was read from the disk. */
enum belay_err entry_check_log(struct replica_group *r)
{
    BELAY_CHECK(!r->group);
    const struct entry_log *log = &r->loaded.log;
    for (size_t i = 0; i < log->n; i++) {
        const struct log_entry *e = entry_log_get(log, log->first + i);
        const char *what = e->type == GROUP_ENTRY_COMMAND ? entry_problem(r, e->data) : NULL;
        if (!what)
            continue;
        store_problem("shard %u: entry %" PRIu64 ": %s", r->group_no, log->first + i, what);
        return BELAY_ERR_CORRUPT;
    }
    return BELAY_OK;
}
