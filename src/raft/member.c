/* member.c - a member as the text that its configuration keeps, and back. */
#include "raft/member.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIORITY_WORD "priority="
#define LEAVING_WORD  "leaving"
#define JOIN_WORD     "join="
enum { SUM_DIGITS = 16 };

static void copy_text(char *out, size_t cap, const char *from, size_t len)
{
    BELAY_CHECK(cap > 0);
    len = len < cap ? len : cap - 1;
    memcpy(out, from, len);
    out[len] = '\0';
}

/* Two numbers of 16 hex digits each. */
static void take_sum(const char *digits, size_t len, uint64_t ret[2])
{
    BELAY_CHECK(digits);
    char half[SUM_DIGITS + 1];
    for (size_t i = 0; i < 2 && len == 2 * (size_t)SUM_DIGITS; i++) {
        copy_text(half, sizeof half, digits + i * SUM_DIGITS, SUM_DIGITS);
        ret[i] = strtoull(half, NULL, 16);
    }
}

static void take_word(const char *word, size_t len, struct member *m)
{
    BELAY_DCHECK(word[len] == '\0' || word[len] == ' ');
    size_t key = strlen(PRIORITY_WORD);
    if (len == strlen(LEAVING_WORD) && memcmp(word, LEAVING_WORD, len) == 0)
        m->leaving = true;
    if (len > key && memcmp(word, PRIORITY_WORD, key) == 0) {
        unsigned long n = strtoul(word + key, NULL, 10);
        m->priority = n <= MEMBER_PRIORITY_NEVER ? (uint8_t)n : MEMBER_PRIORITY_UNSET;
    }
    key = strlen(JOIN_WORD);
    if (len > key && memcmp(word, JOIN_WORD, key) == 0)
        take_sum(word + key, len - key, m->join);
}

void member_parse(const char *address, struct member *ret)
{
    BELAY_CHECK(address);
    size_t len = strcspn(address, " ");
    const char *at = memchr(address, '@', len);
    *ret = (struct member){.priority = MEMBER_PRIORITY_UNSET};
    if (at)
        copy_text(ret->name, sizeof ret->name, address, (size_t)(at - address));
    const char *peer = at ? at + 1 : address;
    copy_text(ret->peer, sizeof ret->peer, peer, len - (size_t)(peer - address));
    for (const char *word = address + len; *word == ' '; word += len) {
        len = strcspn(++word, " ");
        take_word(word, len, ret);
    }
}

bool member_format(const struct member *m, char ret[GROUP_ADDRESS_MAX])
{
    BELAY_CHECK(m->priority <= MEMBER_PRIORITY_NEVER || m->priority == MEMBER_PRIORITY_UNSET);
    char priority[32] = "";
    char join[sizeof " " JOIN_WORD + (size_t)2 * SUM_DIGITS] = "";
    if (strpbrk(m->name, "@,= ") || strpbrk(m->peer, "@,= ") ||
        strlen(m->name) + 1 + strlen(m->peer) >= MEMBER_PLACE_MAX)
        return false;
    if (m->priority != MEMBER_PRIORITY_UNSET)
        snprintf(priority, sizeof priority, " " PRIORITY_WORD "%u", m->priority);
    if (!member_is_let_in(m))
        snprintf(join, sizeof join, " " JOIN_WORD "%016" PRIx64 "%016" PRIx64, m->join[0],
                 m->join[1]);
    int n = snprintf(ret, GROUP_ADDRESS_MAX, "%s%s%s%s%s%s", m->name, *m->name ? "@" : "",
                     m->peer, priority, join, m->leaving ? " " LEAVING_WORD : "");
    BELAY_CHECK(n < GROUP_ADDRESS_MAX);
    return true;
}

/* Visible, and nothing that ends a word or a quoted text somewhere. */
static bool is_clean(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at <= ' ' || *at == 0x7f || strchr("\"'\\`@,=", *at))
            return false;
    return true;
}

bool member_is_name(const char *name)
{
    return *name && strlen(name) < MEMBER_NAME_MAX && is_clean(name);
}

bool member_is_address(const char *peer)
{
    if (!is_clean(peer))
        return false;
    const char *colon = strrchr(peer, ':');
    if (!colon || colon == peer || strlen(colon) > sizeof ":65535" - 1)
        return false;
    if (strncmp(peer, "0.0.0.0:", 8) == 0 || strncmp(peer, "[::]:", 5) == 0)
        return false; /* everybody would call himself */
    const char *port = colon + 1;
    long number = strtol(port, NULL, 10);
    return port[strspn(port, "0123456789")] == '\0' && number > 0 && number <= 65535;
}

bool member_is_taken(const struct group_conf *conf, const struct member *m)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    for (size_t i = 0; i < conf->n; i++) {
        struct member other;
        member_parse(conf->servers[i].address, &other);
        if (strcmp(m->name, other.name) == 0 || strcmp(m->peer, other.peer) == 0)
            return true;
    }
    return false;
}

static int by_address(const void *a, const void *b)
{
    const struct group_server *x = a;
    const struct group_server *y = b;
    int order = strcmp(x->address, y->address);
    BELAY_DCHECK(order != 0 || x == y); /* member_is_taken() */
    return order;
}

const char *members_of_peers(const char *text, struct group_conf *conf)
{
    BELAY_CHECK(text);
    conf->n = 0;
    while (*text) {
        const char *equals = strchr(text, '=');
        size_t len = strcspn(text, ",");
        if (!equals || (size_t)(equals - text) >= len || equals == text)
            return "a peer is NAME=HOST:PORT";
        size_t name = (size_t)(equals - text);
        if (conf->n == GROUP_SERVERS_MAX || name >= MEMBER_NAME_MAX || len >= MEMBER_PLACE_MAX)
            return "too many peers, or one is too long";
        struct group_server *s = &conf->servers[conf->n];
        struct member m;
        snprintf(s->address, sizeof s->address, "%.*s@%.*s", (int)name, text,
                 (int)(len - name - 1), equals + 1);
        s->voter = true;
        member_parse(s->address, &m);
        if (!member_is_name(m.name))
            return "a name has no spaces, quotes, control characters, @, comma or =";
        if (!member_is_address(m.peer))
            return "a peer is NAME=HOST:PORT, and the other nodes must be able to call the host";
        if (member_is_taken(conf, &m))
            return "two peers have the same name or the same address";
        conf->n++;
        text += len + (text[len] == ',');
    }
    qsort(conf->servers, conf->n, sizeof conf->servers[0], by_address);
    for (size_t i = 0; i < conf->n; i++)
        conf->servers[i].id = i + 1;
    return conf->n ? NULL : "no peers are named";
}
