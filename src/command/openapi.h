/* openapi.h - the HTTP API, described for machines. */
#ifndef BELAY_COMMAND_OPENAPI_H
#define BELAY_COMMAND_OPENAPI_H

#include "base/buf.h"

/* Appends an OpenAPI 3.1 document: JSON. */
void openapi_write(struct buf *out);
#endif
