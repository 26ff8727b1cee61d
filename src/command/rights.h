/* rights.h - may the client do this? Decided once for each request, before the engine: by the
 * `need` of its row in commands.def, the rules of its token and what the op names. The machine
 * looks once more where it takes effect (machine/token.c). */
#ifndef BELAY_COMMAND_RIGHTS_H
#define BELAY_COMMAND_RIGHTS_H

#include "command/command.h"

/* NULL: it may, and c->op says as what; else the refusal. Where nobody has to log in everybody
 * may do everything. */
struct reply *rights_refuse(struct call *c);
#endif
