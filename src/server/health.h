/* health.h - what this node knows about itself that an operator should look at, as lines of INFO:
 * `belay doctor` reads them. It judges nothing. */
#ifndef BELAY_SERVER_HEALTH_H
#define BELAY_SERVER_HEALTH_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct server;

enum { HEALTH_LOOK_SECONDS = 30 };

/* The space on the disk of --data, asked for on another thread: a file system may be slow. */
struct health {
    uv_fs_t look;
    bool looking, looked;
    unsigned wait; /* seconds until the next look */
    uint64_t free_bytes, disk_bytes;
};

void health_second(struct server *s);                      /* once a second */
void health_info(const struct server *s, struct buf *out); /* "# Health" and its lines */
#endif
