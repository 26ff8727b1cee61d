#include "engine/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIORITY_WORD "priority="
#define LEAVING_WORD  "leaving"

static void copy_text(char *out, size_t cap, const char *from, size_t len)
{
    len = len < cap ? len : cap - 1;
    memcpy(out, from, len);
    out[len] = '\0';
}

static void take_word(const char *word, size_t len, struct member *m)
{
    size_t key = strlen(PRIORITY_WORD);
    if (len == strlen(LEAVING_WORD) && memcmp(word, LEAVING_WORD, len) == 0)
        m->leaving = true;
    if (len > key && memcmp(word, PRIORITY_WORD, key) == 0) {
        unsigned long n = strtoul(word + key, NULL, 10);
        m->priority = n <= MEMBER_PRIORITY_NEVER ? (uint8_t)n : MEMBER_PRIORITY_UNSET;
    }
}

void member_parse(const char *address, struct member *ret)
{
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
    char priority[32] = "";
    if (strpbrk(m->name, "@,= ") || strpbrk(m->peer, "@,= "))
        return false;
    if (m->priority != MEMBER_PRIORITY_UNSET)
        snprintf(priority, sizeof priority, " " PRIORITY_WORD "%u", m->priority);
    int n = snprintf(ret, GROUP_ADDRESS_MAX, "%s%s%s%s%s", m->name, *m->name ? "@" : "",
                     m->peer, priority, m->leaving ? " " LEAVING_WORD : "");
    return n < GROUP_ADDRESS_MAX;
}

bool member_is_address(const char *peer)
{
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
    for (size_t i = 0; i < conf->n; i++) {
        struct member other;
        member_parse(conf->servers[i].address, &other);
        if (strcmp(m->name, other.name) == 0 || strcmp(m->peer, other.peer) == 0)
            return true;
    }
    return false;
}
