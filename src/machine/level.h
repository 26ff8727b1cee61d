/* level.h - which rules a replicated state follows.
 *
 * What an op means may change from one version of Belay to the next, but the log may hold ops
 * of the version before, and nodes replay it from snapshots at different places. So the state
 * of each group has a level, and the rules are chosen by it: `m->level >= LEVEL_...`. An op in
 * the log (OP_LEVEL) raises it, never lowers it; everything behind that op follows the new
 * rules, on every node and in every replay.
 *
 * A state of snapshot version 5 or older, and one without any op in a log, has level 0. The
 * leader of a group raises it when all members can follow (raft/replica_level.c). What is new
 * on disk, but means the same for an old op, needs no level. Changes that are released together
 * share a number. */
#ifndef BELAY_MACHINE_LEVEL_H
#define BELAY_MACHINE_LEVEL_H

enum {
    LEVEL_KEEP_FIRST =
        1, /* group 0 keeps a session before a shard uses it, and ends it alone */
    /* What is over is not revived: by an upgrade that waits, by ADD_TTL, by a request for
     * several names. SELECT counts what it selects. */
    LEVEL_OVER = 1,
    LEVEL_ACCOUNTS = 1,    /* accounts and tokens may be made: every member knows these ops */
    LEVEL_LONG_CYCLES = 1, /* a deadlock is found whatever its length */
    LEVEL_PLACES = 1,      /* members with numbers above 127 (raft/place.h) */
    LEVEL_SILENCE = 1,     /* clients that wait at a silent node are passed over */
    LEVEL_BOUNDED = 1,     /* what a transaction looks at is counted, and limited */
    /* A long line, and many lines, are served in several steps (line.c); a session ends in as many
     * as it takes (session.c). What a transaction selects is a part of its work (txn.c). Who
     * frees several locks, whoever holds them, frees a bounded number of holds (request.c). */
    LEVEL_PARTS = 2,
    LEVEL_NEWEST = LEVEL_PARTS,
};
#endif
