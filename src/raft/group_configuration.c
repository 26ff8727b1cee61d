/* group_configuration.c - the bytes of a configuration, as libraft writes them into its
 * entries.
 *
 * Its own decoder trusts what it reads; so configurations are read here first, and what does
 * not pass never gets there. */
#include "base/check.h"
#include "raft/group.h"
#include "raft/place.h"

#include <string.h>

enum { CONF_FORMAT = 1, ROLE_STANDBY = 0, ROLE_VOTER = 1 };

static void put_le64(struct buf *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        buf_put_byte(out, (char)(v >> (8 * i)));
}

static uint64_t get_le64(const char *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

void group_conf_encode(const struct group_conf *conf, struct buf *out)
{
    BELAY_CHECK(conf->n > 0 && conf->n <= GROUP_SERVERS_MAX);
    size_t start = buf_len(out);
    buf_put_byte(out, CONF_FORMAT);
    put_le64(out, conf->n);
    for (size_t i = 0; i < conf->n; i++) {
        const struct group_server *s = &conf->servers[i];
        put_le64(out, s->id);
        buf_put(out, s->address, strlen(s->address) + 1);
        buf_put_byte(out, s->voter ? ROLE_VOTER : ROLE_STANDBY);
    }
    while ((buf_len(out) - start) % 8 != 0)
        buf_put_byte(out, 0);
    BELAY_CHECK(!out->oom);
    BELAY_CHECK(buf_len(out) - start <= GROUP_CONF_BYTES_MAX);
}

static bool is_twin(const struct group_conf *conf, const struct group_server *s)
{
    BELAY_CHECK(conf->n < GROUP_SERVERS_MAX);
    for (size_t k = 0; k < conf->n; k++)
        if (place_of(conf->servers[k].id) == place_of(s->id) ||
            strcmp(conf->servers[k].address, s->address) == 0)
            return true;
    return false;
}

enum belay_err group_conf_decode(struct slice in, struct group_conf *ret)
{
    struct group_conf conf = {0};
    if (in.len < 9 || in.len > GROUP_CONF_BYTES_MAX || in.data[0] != CONF_FORMAT)
        return BELAY_ERR_CORRUPT;
    uint64_t n = get_le64(in.data + 1);
    size_t at = 9;
    if (n == 0 || n > GROUP_SERVERS_MAX)
        return BELAY_ERR_CORRUPT;
    for (; conf.n < n; conf.n++) {
        struct group_server *s = &conf.servers[conf.n];
        if (in.len - at < 10)
            return BELAY_ERR_CORRUPT;
        s->id = get_le64(in.data + at);
        at += 8;
        const char *end = memchr(in.data + at, 0, in.len - at);
        size_t len = end ? (size_t)(end - (in.data + at)) : SIZE_MAX;
        if (place_of(s->id) == 0 || s->id > GROUP_NUMBER_MAX || len >= sizeof s->address ||
            len + 2 > in.len - at)
            return BELAY_ERR_CORRUPT;
        memcpy(s->address, in.data + at, len);
        at += len + 1;
        BELAY_CHECK(at < in.len);
        char role = in.data[at++];
        if ((role != ROLE_VOTER && role != ROLE_STANDBY) || is_twin(&conf, s))
            return BELAY_ERR_CORRUPT;
        s->voter = role == ROLE_VOTER;
    }
    if (group_conf_voters(&conf) == 0)
        return BELAY_ERR_CORRUPT;
    *ret = conf;
    return BELAY_OK;
}

size_t group_conf_voters(const struct group_conf *conf)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    size_t n = 0;
    for (size_t i = 0; i < conf->n; i++)
        n += conf->servers[i].voter;
    return n;
}

struct group_server *group_conf_find(struct group_conf *conf, uint64_t id)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    for (size_t i = 0; i < conf->n; i++)
        if (conf->servers[i].id == id)
            return &conf->servers[i];
    return NULL;
}
