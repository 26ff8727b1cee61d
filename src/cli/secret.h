/* secret.h - what must not be seen by others: passwords in the command line, core dumps. */
#ifndef BELAY_CLI_SECRET_H
#define BELAY_CLI_SECRET_H

#include "cli/cli.h"

/* The database by --postgres-file, --postgres or BELAY_POSTGRES; *ret is NULL when there is
 * none. What stood in the command line is overwritten there. CLI_OK, or a wrong usage. */
int secret_postgres(const struct cli *c, const char **ret);
/* No core dump, and no debugger of another process of this user: both show the memory. */
void secret_forbid_core(void);
#endif
