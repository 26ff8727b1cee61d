/* format.h - the formats of what outlives a process or leaves it, and their versions: what this
 * program writes, and the oldest that it still reads. It refuses a later one, and says so.
 *
 * This is the one place where they stand. A new version of what other nodes read is written only
 * from a new level on (machine/level.h), so that nobody gets what it cannot read. What a release
 * has written stays readable: tests/releases holds it. */
#ifndef BELAY_BASE_FORMAT_H
#define BELAY_BASE_FORMAT_H

/* X(NAME, name, oldest, newest, what it is) */
#define FORMATS(X)                                                                             \
    X(IDENTITY, identity, 1, 1, "whose a data directory is")                                   \
    X(JOURNAL, journal, 1, 1, "segments of the journal and their records")                     \
    X(SNAPSHOT, snapshot, 1, 2, "the head of a snapshot file: members, progress of nodes")     \
    X(STATE, state, 1, 6, "the state of a shard, in a snapshot")                               \
    X(BACKUP, backup, 1, 1, "a backup: the snapshots of all shards, in one file")              \
    X(ENTRY, entry, 1, 2, "what an entry of the log holds: ops, or a level")                   \
    X(OP, op, 3, 5, "what is asked of a shard")                                                \
    X(PROGRAM, program, 1, 1, "a transaction, in an op")                                       \
    X(HELLO, hello, 3, 3, "what a node says first to another one")                             \
    X(MESSAGE, message, 2, 2, "what nodes say to each other from then on")

enum {
#define X(NAME, name, oldest, newest, what)                                                    \
    FORMAT_##NAME##_OLDEST = (oldest), FORMAT_##NAME = (newest),
    FORMATS(X)
#undef X
};
#endif
