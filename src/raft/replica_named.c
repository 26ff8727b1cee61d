/* replica_named.c - members that this node has not in its log yet, named by others.
 *
 * A node that was away while a member was added does not know that member, which may lead by
 * now. So every member sends the list of members about once a second (WIRE_NODE). A node that
 * neither the own log nor any member names is not listened to, whatever certificate it has: it
 * may have been removed, or belong to another cluster of the same CA. */
#include "base/check.h"
#include "raft/replica_core.h"

bool named_hear(struct replica *o, struct slice bytes)
{
    struct group_conf conf;
    if (bytes.len == 0)
        return true; /* it knows none, or is of an earlier version */
    if (group_conf_decode(bytes, &conf) != BELAY_OK)
        return false;
    for (size_t i = 0; i < conf.n; i++) {
        struct named *named = &o->named[place_of(conf.servers[i].id)];
        BELAY_DCHECK(named->node == 0 || place_of(named->node) == place_of(conf.servers[i].id));
        if (conf.servers[i].id < named->node)
            continue;
        named->node = conf.servers[i].id;
        member_parse(conf.servers[i].address, &named->member);
    }
    return true;
}

bool replica_find_member(const struct replica *o, uint64_t node, struct member *ret)
{
    BELAY_CHECK(o->replicas[0].group);
    struct group_conf conf;
    group_conf(o->replicas[0].group, &conf);
    const struct group_server *s = group_conf_find(&conf, node);
    const struct named *named = &o->named[place_of(node)];
    BELAY_DCHECK(named->node == 0 || place_of(named->node) == place_of(node));
    if (s) {
        member_parse(s->address, ret);
        return true;
    }
    *ret = named->member;
    return named->node == node && node > replica_last_node(o);
}
