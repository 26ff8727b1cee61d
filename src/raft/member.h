/* member.h - what is written of a member in the configuration of group 0.
 *
 * libraft knows an id, a role and an address, a text that means nothing to it. So the address
 * says everything else, replicated and durable like the membership itself:
 *
 *   name@host:port [ priority=N] [ join=SUM] [ leaving] */
#ifndef BELAY_RAFT_MEMBER_H
#define BELAY_RAFT_MEMBER_H

#include "raft/group.h"

enum {
    MEMBER_NAME_MAX = 64,
    MEMBER_PLACE_MAX = 256, /* name@host:port; what is added to it later has room behind it */
    MEMBER_PRIORITY_NEVER = 15, /* does not lead */
    MEMBER_PRIORITY_UNSET = 16, /* what the node was started with counts */
};

struct member {
    char name[MEMBER_NAME_MAX];
    char peer[MEMBER_PLACE_MAX]; /* host:port */
    uint8_t priority;
    bool leaving;     /* it hands over what it leads; then every group lets it go */
    uint64_t join[2]; /* sum of the secret by which it is let in; 0: it is in */
};

static inline bool member_is_let_in(const struct member *m)
{
    return m->join[0] == 0 && m->join[1] == 0;
}

/* Never fails: a text without a name is all peer. */
void member_parse(const char *address, struct member *ret);
/* false: too long, or with a byte that would be read as something else. */
BELAY_MUST_CHECK bool member_format(const struct member *m, char ret[GROUP_ADDRESS_MAX]);
/* May a new member be called so? Messages, digits and other visible characters but quotes,
 * backslashes and what member_format() does not take. Older members may have other names. */
bool member_is_name(const char *name);
/* "host:port", "[v6]:port" */
bool member_is_address(const char *peer);
/* "n1=host:port,n2=..." -> members with numbers in the order of their names. NULL, or what is
 * wrong with the text. */
const char *members_of_peers(const char *text, struct group_conf *conf);
/* Somebody has its name already, or its peer address. */
bool member_is_taken(const struct group_conf *conf, const struct member *m);
#endif
