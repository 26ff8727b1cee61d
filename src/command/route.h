/* route.h - which command an HTTP method and path mean. */
#ifndef BELAY_COMMAND_ROUTE_H
#define BELAY_COMMAND_ROUTE_H

#include "command/command.h"

/* The command, with the path's parameters in `ret_args`; or NULL and *ret_fail says why: no
 * such path, another method, a segment that is badly encoded or out of bounds. */
const struct command *route_find(const struct request *req, struct arena *a,
                                 struct args *ret_args, struct reply **ret_fail);
#endif
