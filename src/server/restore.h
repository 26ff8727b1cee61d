/* restore.h - the file of a backup, for the command line. */
#ifndef BELAY_SERVER_RESTORE_H
#define BELAY_SERVER_RESTORE_H

#include "repair/backup.h"

/* Reads all of it and judges it (repair/backup.h). BELAY_ERR_TYPE: it is no regular file, as
 * ret->problem says. BELAY_ERR_IO: errno. */
BELAY_MUST_CHECK enum belay_err restore_look(const char *path, struct backup_found *ret);

/* Makes the data directory `dir` of it, which must be empty or absent; `name`: of the node, NULL:
 * n1. BELAY_ERR_EXISTS: a file is in it. BELAY_ERR_DENIED: a link, or others may write into it.
 * Else as backup_restore(). After an error the directory is as it was. */
BELAY_MUST_CHECK enum belay_err restore_make(const char *path, const char *dir, bool keeps,
                                             const char *name);

/* Of which backup is this the begin? 0: of none that can be told. */
uint64_t restore_id(const char *path);
#endif
