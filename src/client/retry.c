/* retry.c - which requests may be sent again when their answer did not come.
 *
 * What only reads, and what does the same when it is done twice, may be sent again as it is.
 * What changes something gets a request id, by which the server knows it: it takes effect once.
 * Anything else (the Redis recipes, commands of an operator or of the connection, what this
 * library does not know) is sent once. */
#include "client/client.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { OPTIONS_NONE, OPTIONS_1, OPTIONS_2, OPTIONS_3, OPTIONS_HOLD, OPTIONS_HOLD_1 };

static const struct retry_rule {
    const char *verb, *sub;                 /* sub NULL: one word */
    enum { CHANGES, HARMLESS, LOOKS } kind; /* it gets an id; needs none; takes STALE */
    int options; /* where they begin: behind how many words, or behind a hold */
} rules[] = {
    {"ACQUIRE", NULL, CHANGES, OPTIONS_3},
    {"RELEASE", NULL, CHANGES, OPTIONS_HOLD},
    {"RENEW", NULL, HARMLESS, OPTIONS_NONE},
    {"CONVERT", NULL, CHANGES, OPTIONS_HOLD},
    {"CHECK", NULL, HARMLESS, OPTIONS_NONE},
    {"BODY", NULL, CHANGES, OPTIONS_HOLD_1},
    {"SHOW", NULL, LOOKS, OPTIONS_NONE},
    {"LIST", NULL, LOOKS, OPTIONS_NONE},
    {"BREAK", NULL, CHANGES, OPTIONS_2},
    {"SESSION", "OPEN", CHANGES, OPTIONS_2},
    {"SESSION", "ATTACH", HARMLESS, OPTIONS_NONE},
    {"SESSION", "KEEPALIVE", HARMLESS, OPTIONS_NONE},
    {"SESSION", "CLOSE", CHANGES, OPTIONS_3},
    {"SESSION", "SHOW", LOOKS, OPTIONS_NONE},
    {"SESSION", "LIST", LOOKS, OPTIONS_NONE},
    {"NAMESPACE", "CREATE", CHANGES, OPTIONS_3},
    {"NAMESPACE", "UPDATE", CHANGES, OPTIONS_3},
    {"NAMESPACE", "DELETE", CHANGES, OPTIONS_3},
    {"NAMESPACE", "SHOW", LOOKS, OPTIONS_NONE},
    {"NAMESPACE", "LIST", LOOKS, OPTIONS_NONE},
    {"TXN", NULL, CHANGES, OPTIONS_2},
    {"TABLE", "LIST", LOOKS, OPTIONS_NONE},
    {"TABLE", "SHOW", LOOKS, OPTIONS_NONE},
    {"CLUSTER", "STATUS", HARMLESS, OPTIONS_NONE},
    {"PING", NULL, HARMLESS, OPTIONS_NONE},
    {"INFO", NULL, HARMLESS, OPTIONS_NONE},
};

static bool is_word(const struct belay_bytes *w, const char *word)
{
    return slice_eq_nocase(slice_of(w->data, w->len), slice_str(word));
}

static const struct retry_rule *rule_of(const struct belay_bytes *words, size_t n)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct retry_rule *r = &rules[i];
        if (is_word(&words[0], r->verb) && (!r->sub || (n > 1 && is_word(&words[1], r->sub))))
            return r;
    }
    return NULL;
}

static size_t options_at(const struct retry_rule *r, const struct belay_bytes *words, size_t n)
{
    size_t hold = n > 2 && is_word(&words[2], "OWNER") ? 4 : 3;
    switch (r->options) {
    case OPTIONS_HOLD:
        return hold;
    case OPTIONS_HOLD_1:
        return hold + 1;
    default:
        return (size_t)r->options;
    }
}

enum again retry_kind(const struct belay_bytes *words, size_t n)
{
    const struct retry_rule *r = rule_of(words, n);
    if (!r)
        return AGAIN_NEVER;
    if (r->kind != CHANGES)
        return AGAIN_AS_IT_IS;
    bool has_id = n >= options_at(r, words, n) + 2 && is_word(&words[n - 2], "REQUEST");
    if (has_id)
        return AGAIN_AS_IT_IS; /* the caller's own */
    return n + 2 <= BELAY_WORDS_MAX ? AGAIN_WITH_ID : AGAIN_NEVER;
}

/* TXN may wait, and so may an ACQUIRE or a CONVERT that is not told "queued" at once. */
bool retry_is_prompt(const struct belay_bytes *words, size_t n)
{
    const struct retry_rule *r = rule_of(words, n);
    return r && !is_word(&words[0], "ACQUIRE") && !is_word(&words[0], "CONVERT") &&
           !is_word(&words[0], "TXN");
}

bool retry_looks(const struct belay_bytes *words, size_t n)
{
    const struct retry_rule *r = rule_of(words, n);
    return r && r->kind == LOOKS && n < BELAY_WORDS_MAX && !is_word(&words[n - 1], "STALE");
}

void retry_init(struct belay *b)
{
    unsigned char raw[CLIENT_ID_BYTES / 2];
    struct timespec t = {0};
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw) { /* too early in a boot */
        clock_gettime(CLOCK_REALTIME, &t);
        snprintf(b->id, sizeof b->id, "%lx.%lx.%lx", (unsigned long)getpid(),
                 (unsigned long)t.tv_sec, (unsigned long)t.tv_nsec);
        return;
    }
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(b->id + 2 * i, 3, "%02x", raw[i]);
}

struct slice retry_next_id(struct belay *b, char *space)
{
    int n = snprintf(space, CLIENT_REQUEST_BYTES, "%s-%llx", b->id,
                     (unsigned long long)++b->requests);
    return slice_of(space, (size_t)n);
}
