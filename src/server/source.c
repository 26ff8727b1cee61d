/* source.c - where connections come from: how many each address has.
 *
 * An IPv6 network of 64 bits counts as one address: whoever has one of it has all. Until there
 * are accounts, who comes from this machine counts as an operator. */
#include "base/mem.h"
#include "server/state.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/random.h>

enum { ADDRESS_BYTES = 8 };

struct source {
    struct map_node by_address;
    unsigned char address[ADDRESS_BYTES];
    size_t n;
    bool loopback;
};

void source_init(struct server *s)
{
    BELAY_CHECK(getrandom(&s->source_key, sizeof s->source_key, 0) ==
                (ssize_t)sizeof s->source_key);
}

static void read_address(const struct sockaddr *addr, unsigned char ret[ADDRESS_BYTES])
{
    memset(ret, 0, ADDRESS_BYTES);
    if (addr->sa_family == AF_UNIX)
        return; /* as loopback by IPv6 */
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)addr;
        memcpy(ret, &in->sin_addr, sizeof in->sin_addr);
        return;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)addr;
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
        memcpy(ret, in6->sin6_addr.s6_addr + 12, 4);
    else if (!IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr))
        memcpy(ret, in6->sin6_addr.s6_addr, ADDRESS_BYTES);
}

static bool same_address(struct map_node *node, const void *key)
{
    return memcmp(map_item(node, struct source, by_address)->address, key, ADDRESS_BYTES) == 0;
}

static size_t most(const struct server *s, bool loopback)
{
    if (s->config->max_per_address)
        return s->config->max_per_address;
    size_t part = s->max_conns / SERVER_ADDRESS_PART;
    return loopback ? s->max_conns : part ? part : 1;
}

struct source *source_take(struct server *s, const struct sockaddr *addr)
{
    unsigned char address[ADDRESS_BYTES];
    read_address(addr, address);
    uint64_t hash = hash_bytes(&s->source_key, address, sizeof address);
    struct map_node *node = map_find(&s->sources, hash, same_address, address);
    struct source *source = node ? map_item(node, struct source, by_address) : NULL;
    bool loopback = access_is_loopback(addr);
    if (source && source->n >= most(s, loopback))
        return NULL;
    if (!source) {
        source = mem_zalloc(sizeof *source);
        memcpy(source->address, address, sizeof address);
        source->loopback = loopback;
        map_add(&s->sources, &source->by_address, hash);
    }
    source->n++;
    s->n_remote += !loopback;
    return source;
}

void source_give(struct server *s, struct source *source)
{
    s->n_remote -= !source->loopback;
    if (--source->n > 0)
        return;
    map_remove(&s->sources, &source->by_address);
    free(source);
}

uint64_t source_hash(const struct source *source)
{
    return source ? source->by_address.hash : 0;
}

bool source_is_operator(const struct source *source)
{
    return source->loopback;
}
