/* access.c - which clients are let in: addresses to listen on, and web pages that may ask.
 *
 * A browser on this machine will carry requests of any page to 127.0.0.1. Two checks keep such
 * a page out: the Host it names must be ours (a rebound DNS name is not: only names we know and
 * plain addresses are), and a write may not come from another page's Origin. Newer browsers say
 * by themselves whose page asks (Sec-Fetch-Site): another one's may not even read. */
#include "server/state.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOST_BYTES_MAX = 253 };

bool access_is_loopback(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_UNIX)
        return true;
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)addr;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)addr;
    return addr->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* "127.0.0.1:7117", "[::1]:7117", "localhost:7117", ":7117" */
bool access_parse_listen(const char *text, struct sockaddr_storage *ret, const char **ret_why)
{
    char host[HOST_BYTES_MAX + 1];
    const char *colon = strrchr(text, ':');
    const char *digits = colon ? colon + 1 : text; /* a port alone: on loopback */
    char *end = NULL;
    unsigned long port = strtoul(digits, &end, 10);
    *ret_why = "must be ADDRESS:PORT, such as 127.0.0.1:7117 or [::1]:7117, or a port";
    if (end == digits || *end || port > 65535)
        return false;
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool v6 = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (len - (v6 ? 2 : 0) > HOST_BYTES_MAX)
        return false;
    memcpy(host, text + v6, len - (v6 ? 2 : 0));
    host[len - (v6 ? 2 : 0)] = '\0';
    if (strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    memset(ret, 0, sizeof *ret);
    if (v6)
        return uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)(void *)ret) == 0;
    return uv_ip4_addr(host[0] ? host : "127.0.0.1", (int)port,
                       (struct sockaddr_in *)(void *)ret) == 0;
}

void access_format(const struct sockaddr *addr, char *ret, size_t cap)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)addr;
        (void)uv_ip6_name(in6, host, sizeof host);
        (void)snprintf(ret, cap, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)addr;
        (void)uv_ip4_name(in, host, sizeof host);
        (void)snprintf(ret, cap, "%s:%u", host, ntohs(in->sin_port));
    }
}

/* ":7117", or nothing. */
static bool is_port(const char *at, const char *end)
{
    if (at < end && *at++ != ':')
        return false;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at == end;
}

/* Host without its port; empty when it is neither a name nor an address. */
static struct slice host_name(struct slice host)
{
    const char *end = host.data + host.len;
    if (host.len && host.data[0] == '[') {
        const char *close = memchr(host.data, ']', host.len);
        return close && is_port(close + 1, end)
                   ? slice_of(host.data + 1, (size_t)(close - host.data - 1))
                   : SLICE("");
    }
    const char *colon = host.len ? memchr(host.data, ':', host.len) : NULL;
    if (!colon)
        return host;
    return is_port(colon, end) ? slice_of(host.data, (size_t)(colon - host.data)) : SLICE("");
}

static bool is_address(const char *name)
{
    unsigned char raw[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, raw) == 1 || inet_pton(AF_INET6, name, raw) == 1;
}

static bool is_our_name(const struct server *s, struct slice host)
{
    char name[HOST_BYTES_MAX + 1];
    struct slice bare = host_name(host);
    if (bare.len == 0 || bare.len > HOST_BYTES_MAX || memchr(bare.data, '\0', bare.len))
        return false;
    memcpy(name, bare.data, bare.len);
    name[bare.len] = '\0';
    if (is_address(name) || strcasecmp(name, "localhost") == 0)
        return true;
    size_t tail = sizeof ".localhost" - 1;
    if (bare.len > tail && strcasecmp(name + bare.len - tail, ".localhost") == 0)
        return true;
    for (const char *const *h = s->config->hosts; h && *h; h++) {
        if (strcasecmp(name, *h) == 0)
            return true;
    }
    return false;
}

/* "http://" or "https://", and the Host of this request. */
static bool is_our_origin(const struct request *req, bool sealed)
{
    struct slice scheme = sealed ? SLICE("https://") : SLICE("http://");
    return slice_starts(req->origin, scheme) &&
           slice_eq_nocase(
               slice_of(req->origin.data + scheme.len, req->origin.len - scheme.len),
               req->host);
}

uint8_t access_origin(const struct server *s, struct slice origin)
{
    const char *const *allowed = s->config->origins;
    for (uint8_t i = 0; origin.len && allowed && allowed[i]; i++)
        if (slice_eq(origin, slice_str(allowed[i])))
            return (uint8_t)(i + 1);
    return 0;
}

struct slice access_origin_text(const struct server *s, uint8_t place)
{
    const char *const *allowed = s->config->origins;
    for (uint8_t i = 0; allowed && allowed[i]; i++)
        if (i + 1 == place)
            return slice_str(allowed[i]);
    return SLICE("");
}

const char *access_http(const struct conn *c, const struct request *req)
{
    const struct server *s = c->server;
    bool reads = slice_eq(req->verb, SLICE("GET")) || slice_eq(req->verb, SLICE("HEAD"));
    /* HTTP/1.0 may leave it out; no browser does */
    if (req->host.len && !is_our_name(s, req->host))
        return "this Host is not one of this server's names; start it with --host NAME";
    if (access_origin(s, req->origin))
        return NULL;
    if (reads && slice_eq(req->path, SLICE("/")))
        return NULL; /* a link to the console, which says nothing by itself */
    if (slice_eq(req->fetch_site, SLICE("cross-site")) ||
        slice_eq(req->fetch_site, SLICE("same-site")))
        return "pages of another origin may not send requests here";
    if (!reads && req->origin.len && !is_our_origin(req, c->tls != NULL))
        return "pages of another origin may not change anything here";
    return NULL;
}
