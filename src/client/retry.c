/* retry.c - which requests may be sent again when their answer did not come: the column `again`
 * of the table of commands.
 *
 * What only reads, and what does the same when it is done twice, may be sent again as it is.
 * What changes something gets a request id, by which the server knows it: it takes effect once.
 * Anything else (the Redis recipes, commands of an operator or of the connection, what this
 * library does not know) is sent once. */
#include "client/client.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    P_NONE,
#define P(id, keyword, member, type, min, max, shown) P_##id,
#include "command/params.def"
#undef P
};

#define LIST(...) ((const unsigned char[]){__VA_ARGS__, P_NONE})

static const struct retry_rule {
    struct slice name; /* one word or two */
    enum again again;
    const unsigned char *positions, *options; /* P_NONE behind the last one */
} rules[] = {
#define CMD(id, name, fn, flags, need, again, method, path, positions, options, summary)       \
    {{name, sizeof(name) - 1}, AGAIN_##again, LIST positions, LIST options},
#include "command/commands.def"
#undef CMD
};

static bool is_word(const struct belay_bytes *w, struct slice word)
{
    return slice_eq_nocase(slice_of(w->data, w->len), word);
}

/* The bytes of the verb: all of the name, or what is before its space. */
static size_t verb_len(struct slice name)
{
    const char *space = memchr(name.data, ' ', name.len);
    return space ? (size_t)(space - name.data) : name.len;
}

static bool is_command(struct slice name, const struct belay_bytes *words, size_t n)
{
    if (name.len < words[0].len || !is_word(&words[0], slice_of(name.data, words[0].len)))
        return false;
    size_t len = verb_len(name);
    if (len != words[0].len || len == name.len)
        return len == words[0].len;
    return n > 1 && is_word(&words[1], slice_of(name.data + len + 1, name.len - len - 1));
}

static const struct retry_rule *rule_of(const struct belay_bytes *words, size_t n)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (is_command(rules[i].name, words, n))
            return &rules[i];
    return NULL;
}

static bool has(const unsigned char *list, unsigned char param)
{
    while (*list && *list != param)
        list++;
    return *list == param;
}

/* Behind how many words its options begin. */
static size_t options_at(const struct retry_rule *r, const struct belay_bytes *words, size_t n)
{
    size_t at = verb_len(r->name) < r->name.len ? 2 : 1;
    for (const unsigned char *p = r->positions; *p; p++, at++)
        if (*p == P_HOLD && at < n && is_word(&words[at], SLICE("OWNER")))
            at++;
    return at;
}

enum again retry_kind(const struct belay_bytes *words, size_t n)
{
    const struct retry_rule *r = rule_of(words, n);
    if (!r || r->again != AGAIN_WITH_ID)
        return r ? r->again : AGAIN_NEVER;
    bool has_id = n >= options_at(r, words, n) + 2 && is_word(&words[n - 2], SLICE("REQUEST"));
    if (has_id)
        return AGAIN_AS_IT_IS; /* the caller's own */
    return n + 2 <= BELAY_WORDS_MAX ? AGAIN_WITH_ID : AGAIN_NEVER;
}

/* A transaction may wait, and so may what takes WAIT and is not told "queued" at once. */
bool retry_is_prompt(const struct belay_bytes *words, size_t n)
{
    const struct retry_rule *r = rule_of(words, n);
    return r && r->again != AGAIN_NEVER && !has(r->options, P_WAIT) &&
           !has(r->positions, P_JSON);
}

bool retry_looks(const struct belay_bytes *words, size_t n)
{
    const struct retry_rule *r = rule_of(words, n);
    return r && has(r->options, P_STALE) && n < BELAY_WORDS_MAX &&
           !is_word(&words[n - 1], SLICE("STALE"));
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
