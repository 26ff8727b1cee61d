/* member.h - what is written of a member in the configuration of group 0.
 *
 * libraft knows an id, a role and an address, a text that means nothing to it. So the address
 * says everything else, replicated and durable like the membership itself:
 *
 *   name@host:port [ priority=N] [ leaving] */
#ifndef BELAY_ENGINE_MEMBER_H
#define BELAY_ENGINE_MEMBER_H

#include "engine/group.h"

enum {
    MEMBER_NAME_MAX = 64,
    MEMBER_PRIORITY_NEVER = 15, /* does not lead */
    MEMBER_PRIORITY_UNSET = 16, /* what the node was started with counts */
};

struct member {
    char name[MEMBER_NAME_MAX];
    char peer[GROUP_ADDRESS_MAX]; /* host:port */
    uint8_t priority;
    bool leaving; /* it hands over what it leads; then every group lets it go */
};

/* Never fails: a text without a name is all peer. */
void member_parse(const char *address, struct member *ret);
/* false: too long, or with a byte that would be read as something else. */
BELAY_MUST_CHECK bool member_format(const struct member *m, char ret[GROUP_ADDRESS_MAX]);
/* "host:port", "[v6]:port" */
bool member_is_address(const char *peer);
/* Somebody has its name already, or its peer address. */
bool member_is_taken(const struct group_conf *conf, const struct member *m);
#endif
