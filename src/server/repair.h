/* repair.h - a data directory that a node does not start from: what is wrong with it, and two
 * ways out. For `belay repair`; no server runs.
 *
 *   repair_open() -> repair_rejoin() or repair_salvage() -> repair_close()
 *
 * Opening takes the directory's lock, so that no server can start meanwhile, and changes
 * nothing. Nothing is ever deleted: what was there is in a directory of its own afterwards,
 * inside the old one, where no other file system and no other rights are needed. */
#ifndef BELAY_SERVER_REPAIR_H
#define BELAY_SERVER_REPAIR_H

#include "repair/inspect.h"

struct repair;

/* BELAY_ERR_NOT_FOUND: no such directory, or nothing of a node is in it. BELAY_ERR_IN_USE: a
 * server runs on it. BELAY_ERR_IO: errno. */
BELAY_MUST_CHECK enum belay_err repair_open(const char *dir, struct repair **ret);
void repair_close(struct repair *r); /* NULL is allowed */
const struct inspection *repair_found(const struct repair *r);

/* Empties it. Only for a node of a cluster: the others have what it had. */
BELAY_MUST_CHECK enum belay_err repair_rejoin(struct repair *r);
/* Makes it one from which a node that is alone starts, with what can be saved. Only with
 * can_salvage. BELAY_ERR_CORRUPT: what came out is not sound either; nothing has changed. */
BELAY_MUST_CHECK enum belay_err repair_salvage(struct repair *r);
/* Makes it one from which a cluster of its own starts, of a member whose cluster has lost its
 * majority for good. Only with can_survive. BELAY_ERR_GONE: what it has of the shards does not fit
 * together; nothing has changed. */
BELAY_MUST_CHECK enum belay_err repair_survive(struct repair *r);
const char *repair_aside(const struct repair *r); /* where the old files are now */

/* `belay auth reset`: the node that starts from this directory asks nobody to log in, until
 * `belay auth init`. Errors as of repair_open(). */
BELAY_MUST_CHECK enum belay_err repair_reset_login(const char *dir);
#endif
