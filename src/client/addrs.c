/* addrs.c - "host:port,[v6]:port,tls://host,unix:///path" into a list. */
#include "client/client.h"

#include <sys/un.h>

#include <stdio.h>
#include <stdlib.h>

enum { PORT_DEFAULT = 7117, PORT_MAX = 65535 };

static bool port_parse(struct slice s, char *ret_port)
{
    unsigned v = 0;
    if (s.len == 0 || s.len > 5)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
        v = v * 10 + (unsigned)(s.data[i] - '0');
    }
    if (v == 0 || v > PORT_MAX)
        return false;
    snprintf(ret_port, 8, "%u", v);
    return true;
}

/* Splits one item into host and port; the colon of a bare IPv6 address needs brackets. */
static const char *addr_split(struct slice item, struct slice *ret_host, struct slice *ret_port)
{
    const char *end = item.data + item.len;
    if (item.len && item.data[0] == '[') {
        const char *close = memchr(item.data, ']', item.len);
        if (!close)
            return "a '[' without its ']'";
        *ret_host = slice_of(item.data + 1, (size_t)(close - item.data) - 1);
        if (close + 1 == end)
            return NULL;
        if (close[1] != ':')
            return "only a ':' and the port may follow the ']'";
        *ret_port = slice_of(close + 2, (size_t)(end - close) - 2);
        return NULL;
    }
    const char *colon = item.len ? memchr(item.data, ':', item.len) : NULL;
    if (!colon) {
        *ret_host = item;
        return NULL;
    }
    *ret_host = slice_of(item.data, (size_t)(colon - item.data));
    *ret_port = slice_of(colon + 1, (size_t)(end - colon) - 1);
    if (memchr(ret_port->data, ':', ret_port->len))
        return "an IPv6 address needs brackets: [::1]:7117";
    return NULL;
}

static const char *addr_path(struct slice path, struct addr *ret)
{
    if (path.len == 0 || path.data[0] != '/')
        return "the path of a socket begins with a '/': unix:///run/belay.sock";
    if (path.len >= sizeof((struct sockaddr_un *)0)->sun_path)
        return "longer than the path of a socket can be (107 bytes)";
    ret->is_path = true;
    snprintf(ret->host, sizeof ret->host, "%.*s", (int)path.len, path.data);
    snprintf(ret->text, sizeof ret->text, "unix://%.*s", (int)path.len, path.data);
    return NULL;
}

static const char *addr_one(struct slice item, struct addr *ret)
{
    struct slice host = {"", 0}, port = {NULL, 0}, path = SLICE("unix://"),
                 tls = SLICE("tls://");
    *ret = (struct addr){0};
    if (slice_starts(item, path))
        return addr_path(slice_of(item.data + path.len, item.len - path.len), ret);
    ret->tls = slice_starts(item, tls);
    if (ret->tls)
        item = slice_of(item.data + tls.len, item.len - tls.len);
    if (item.len == 0)
        return "an empty address";
    if (item.len >= CLIENT_ADDR_BYTES - 24)
        return "longer than a host name can be";
    const char *why = addr_split(item, &host, &port);
    if (why)
        return why;
    if (host.len == 0)
        return "the host is missing";
    for (size_t i = 0; i < host.len; i++)
        if ((unsigned char)host.data[i] <= ' ' || host.data[i] == '/')
            return "a host name has no such character";
    snprintf(ret->port, sizeof ret->port, "%d", PORT_DEFAULT);
    if (port.data && !port_parse(port, ret->port))
        return "the port is not a number from 1 to 65535";
    snprintf(ret->host, sizeof ret->host, "%.*s", (int)host.len, host.data);
    bool v6 = strchr(ret->host, ':') != NULL;
    snprintf(ret->text, sizeof ret->text, "%s%s%.*s%s:%.5s", ret->tls ? "tls://" : "",
             v6 ? "[" : "", (int)host.len, host.data, v6 ? "]" : "", ret->port);
    return NULL;
}

int addrs_parse(const char *list, struct addr *ret_addrs, size_t max, size_t *ret_n, char *why,
                size_t why_bytes)
{
    size_t n = 0;
    for (const char *at = list;;) {
        size_t len = strcspn(at, ",");
        if (n == max) {
            snprintf(why, why_bytes, "more than %zu addresses", max);
            return BELAY_E_USAGE;
        }
        const char *wrong = addr_one(slice_of(at, len), &ret_addrs[n]);
        if (wrong) {
            snprintf(why, why_bytes, "address \"%.*s\": %s", (int)(len < 100 ? len : 100), at,
                     wrong);
            return BELAY_E_USAGE;
        }
        n++;
        if (at[len] == '\0')
            break;
        at += len + 1;
    }
    *ret_n = n;
    return BELAY_E_OK;
}
