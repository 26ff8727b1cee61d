/* scripts.c - the Lua scripts of well-known Redis clients, recognised and not run. */
#include "command/scripts.h"

#include "base/buf.h"
#include "base/mem.h"

#include <ctype.h>
#include <openssl/sha.h>
#include <stdlib.h>

enum { NORMAL_NAMES_MAX = 24, NORMAL_TOKENS_MAX = 1024 };

/* Every way the clients write it; the names of locals and the quotes do not matter. */
static const struct script table[] = {
    /* Redis' documentation, go redsync, redis-semaphore: compare and delete */
    {.does = SCRIPT_RELEASE,
     .owner = 1,
     .lua = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
            "else return 0 end"},
    {.does = SCRIPT_RELEASE,
     .owner = 1,
     .lua =
         "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end "
         "return 0"},
    {.does = SCRIPT_RELEASE,
     .owner = 1,
     .lua = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return 1 "
            "else return 0 end"},
    {.does = SCRIPT_RELEASE,
     .owner = 1,
     .lua =
         "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return 1 end "
         "return 0"},
    /* redis-py */
    {.does = SCRIPT_RELEASE,
     .owner = 1,
     .lua = "local t = redis.call('get', KEYS[1]) if not t or t ~= ARGV[1] then return 0 end "
            "redis.call('del', KEYS[1]) return 1"},
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .lua = "local t = redis.call('get', KEYS[1]) if not t or t ~= ARGV[1] then return 0 end "
            "redis.call('pexpire', KEYS[1], ARGV[2]) return 1"},
    {.does = SCRIPT_EXTEND,
     .owner = 1,
     .ttl = 2,
     .lua = "local t = redis.call('get', KEYS[1]) if not t or t ~= ARGV[1] then return 0 end "
            "local e = redis.call('pttl', KEYS[1]) if not e then e = 0 end "
            "if e < 0 then return 0 end "
            "local n = ARGV[2] if ARGV[3] == '0' then n = ARGV[2] + e end "
            "redis.call('pexpire', KEYS[1], n) return 1"},
    /* compare and extend: documentation, redsync, redis-semaphore */
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .lua = "if redis.call('get', KEYS[1]) == ARGV[1] then "
            "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"},
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .lua = "if redis.call('get', KEYS[1]) == ARGV[1] then "
            "return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"},
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .seconds = true,
     .lua = "if redis.call('get', KEYS[1]) == ARGV[1] then "
            "return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end"},
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .seconds = true,
     .lua = "if redis.call('get', KEYS[1]) == ARGV[1] then "
            "return redis.call('expire', KEYS[1], ARGV[2]) end return 0"},
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .lua = "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then "
            "redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0"},
    /* set if absent, written as a script */
    {.does = SCRIPT_ACQUIRE,
     .owner = 1,
     .ttl = 2,
     .lua = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 "
            "else return 0 end"},
    {.does = SCRIPT_ACQUIRE,
     .owner = 1,
     .ttl = 2,
     .lua = "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then "
            "redis.call('pexpire', KEYS[1], ARGV[2]) return 1 else return 0 end"},
    /* node redlock 4 and 5: several keys */
    {.does = SCRIPT_ACQUIRE,
     .owner = 1,
     .ttl = 2,
     .all_keys = true,
     .lua =
         "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end "
         "for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end "
         "return #KEYS"},
    {.does = SCRIPT_RENEW,
     .owner = 1,
     .ttl = 2,
     .all_keys = true,
     .lua =
         "for i, key in ipairs(KEYS) do if redis.call('get', key) ~= ARGV[1] then return 0 end "
         "end "
         "for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end "
         "return #KEYS"},
    {.does = SCRIPT_RELEASE,
     .owner = 1,
     .all_keys = true,
     .lua =
         "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then "
         "redis.call('del', key) n = n + 1 end end return n"},
    /* redis-semaphore: Semaphore, MultiSemaphore */
    {.does = SCRIPT_SEMAPHORE,
     .limit = 1,
     .owner = 2,
     .ttl = 3,
     .lua = "local e = ARGV[4] - ARGV[3] redis.call('zremrangebyscore', KEYS[1], '-inf', e) "
            "if redis.call('zcard', KEYS[1]) < ARGV[1] then "
            "redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) "
            "redis.call('pexpire', KEYS[1], ARGV[3]) return 1 else return 0 end"},
    {.does = SCRIPT_RENEW,
     .owner = 2,
     .ttl = 3,
     .lua = "local e = ARGV[4] - ARGV[3] redis.call('zremrangebyscore', KEYS[1], '-inf', e) "
            "if redis.call('zscore', KEYS[1], ARGV[2]) then "
            "redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) "
            "redis.call('pexpire', KEYS[1], ARGV[3]) return 1 else return 0 end"},
    {.does = SCRIPT_SEMAPHORE,
     .limit = 1,
     .permits = 2,
     .owner = 3,
     .ttl = 4,
     .lua = "local e = ARGV[5] - ARGV[4] local a = {} "
            "redis.call('zremrangebyscore', KEYS[1], '-inf', e) "
            "if (redis.call('zcard', KEYS[1]) + ARGV[2]) <= ARGV[1] then "
            "for i=0, ARGV[2] - 1 do table.insert(a, ARGV[5]) "
            "table.insert(a, ARGV[3] .. '_' .. i) end "
            "redis.call('zadd', KEYS[1], unpack(a)) redis.call('pexpire', KEYS[1], ARGV[4]) "
            "return 1 else return 0 end"},
    {.does = SCRIPT_RENEW,
     .owner = 3,
     .ttl = 4,
     .lua = "local e = ARGV[5] - ARGV[4] local a = {} "
            "redis.call('zremrangebyscore', KEYS[1], '-inf', e) "
            "if redis.call('zscore', KEYS[1], ARGV[3] .. '_0') then "
            "for i=0, ARGV[2] - 1 do table.insert(a, ARGV[5]) "
            "table.insert(a, ARGV[3] .. '_' .. i) end "
            "redis.call('zadd', KEYS[1], unpack(a)) redis.call('pexpire', KEYS[1], ARGV[4]) "
            "return 1 else return 0 end"},
    {.does = SCRIPT_RELEASE,
     .permits = 1,
     .owner = 2,
     .lua = "local a = {} for i=0, ARGV[1] - 1 do table.insert(a, ARGV[2] .. '_' .. i) end "
            "return redis.call('zrem', KEYS[1], unpack(a))"},
};
enum { TABLE_ROWS = sizeof table / sizeof *table };

/* --- the normal form --- */

enum token_kind { TOKEN_NAME, TOKEN_NUMBER, TOKEN_STRING, TOKEN_SIGN };

struct script_token {
    enum token_kind kind;
    struct slice text; /* a string without its quotes */
};

/* A name for a place in KEYS or ARGV, or a local variable with its number. */
struct script_name {
    struct slice text;
    struct script_token source,
        index; /* KEYS or ARGV, and which; index.text.len == 0: a local */
    unsigned number;
};

struct normal {
    struct script_token tokens[NORMAL_TOKENS_MAX];
    size_t n;
    struct script_name names[NORMAL_NAMES_MAX];
    size_t n_names;
    unsigned locals;
};

static const char *skip_blank(const char *p, const char *end)
{
    while (p < end) {
        if (isspace((unsigned char)*p) || *p == ';') {
            p++;
        } else if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
            bool block = end - p >= 4 && p[2] == '[' && p[3] == '[';
            if (block) {
                const char *close = memmem(p, (size_t)(end - p), "]]", 2);
                p = close ? close + 2 : end;
            } else {
                const char *line = memchr(p, '\n', (size_t)(end - p));
                p = line ? line : end;
            }
        } else {
            break;
        }
    }
    return p;
}

/* One token at p; returns what is behind it, NULL: not a script that we could know. */
static const char *read_token(const char *p, const char *end, struct script_token *ret)
{
    const char *start = p;
    if (*p == '"' || *p == '\'') {
        const char *close = memchr(p + 1, *p, (size_t)(end - p - 1));
        if (!close || memchr(p, '\\', (size_t)(close - p)))
            return NULL;
        *ret = (struct script_token){TOKEN_STRING, slice_of(p + 1, (size_t)(close - p - 1))};
        return close + 1;
    }
    if (isalnum((unsigned char)*p) || *p == '_') {
        bool digit = isdigit((unsigned char)*p);
        while (p < end && (isalnum((unsigned char)*p) || *p == '_'))
            p++;
        *ret = (struct script_token){digit ? TOKEN_NUMBER : TOKEN_NAME,
                                     slice_of(start, (size_t)(p - start))};
        return p;
    }
    bool two =
        end - p >= 2 && ((p[1] == '=' && strchr("=~<>", p[0])) || (p[0] == '.' && p[1] == '.'));
    *ret = (struct script_token){TOKEN_SIGN, slice_of(p, two ? 2 : 1)};
    return p + (two ? 2 : 1);
}

static bool tokenize(struct slice text, struct normal *n)
{
    const char *end = text.data + text.len;
    n->n = 0;
    for (const char *p = skip_blank(text.data, end); p && p < end; p = skip_blank(p, end)) {
        if (n->n == NORMAL_TOKENS_MAX)
            return false;
        p = read_token(p, end, &n->tokens[n->n++]);
        if (!p)
            return false;
    }
    return n->n > 0;
}

static bool is(const struct normal *n, size_t at, const char *text)
{
    return at < n->n && n->tokens[at].kind != TOKEN_STRING &&
           slice_eq(n->tokens[at].text, slice_str(text));
}

/* KEYS[2] or ARGV[2] at `at`, perhaps within tonumber(); returns its length in tokens or 0. */
static size_t place_at(const struct normal *n, size_t at, struct script_name *ret)
{
    size_t from = at + (is(n, at, "tonumber") && is(n, at + 1, "(") ? 2 : 0);
    if (!(is(n, from, "KEYS") || is(n, from, "ARGV")) || !is(n, from + 1, "[") ||
        !is(n, from + 3, "]"))
        return 0;
    if (from > at && !is(n, from + 4, ")"))
        return 0;
    ret->source = n->tokens[from];
    ret->index = n->tokens[from + 2];
    return from > at ? 7 : 4;
}

static struct script_name *find_name(struct normal *n, struct slice text)
{
    for (size_t i = n->n_names; i > 0; i--) {
        if (slice_eq(n->names[i - 1].text, text))
            return &n->names[i - 1];
    }
    return NULL;
}

static struct script_name *add_name(struct normal *n, struct slice text)
{
    struct script_name *known = find_name(n, text);
    if (known && known->index.text.len == 0)
        return known; /* "for i" twice: the same number */
    if (n->n_names == NORMAL_NAMES_MAX)
        return NULL;
    struct script_name *name = &n->names[n->n_names++];
    *name = (struct script_name){.text = text};
    return name;
}

/* "local x = KEYS[1]" only gives a place a name: the statement vanishes. Returns its length.
 * One that is assigned to later ("n = ARGV[2] + e") is a variable after all. */
static size_t read_alias(struct normal *n, size_t at)
{
    struct script_name place;
    if (!is(n, at, "local") || !is(n, at + 2, "="))
        return 0;
    size_t len = place_at(n, at + 3, &place);
    if (len == 0)
        return 0;
    size_t behind = at + 3 + len;
    if (behind < n->n &&
        (n->tokens[behind].kind == TOKEN_SIGN || is(n, behind, "and") || is(n, behind, "or")))
        return 0; /* "ARGV[4] - ARGV[3]" is more than a place */
    struct slice text = n->tokens[at + 1].text;
    for (size_t i = at + 3 + len; i + 1 < n->n; i++) {
        if (n->tokens[i].kind == TOKEN_NAME && slice_eq(n->tokens[i].text, text) &&
            is(n, i + 1, "="))
            return 0;
    }
    struct script_name *name = add_name(n, text);
    if (!name)
        return 0;
    name->source = place.source;
    name->index = place.index;
    return 3 + len;
}

/* The names behind "local" and "for" are variables: they get numbers in the order they come. */
static void read_locals(struct normal *n, size_t at)
{
    if (!is(n, at, "local") && !is(n, at, "for"))
        return;
    for (size_t i = at + 1; i < n->n && n->tokens[i].kind == TOKEN_NAME; i += 2) {
        struct script_name *name = add_name(n, n->tokens[i].text);
        if (name && name->number == 0)
            name->number = ++n->locals;
        if (!is(n, i + 1, ","))
            break;
    }
}

static void put_place(struct buf *out, const struct script_name *name)
{
    buf_put_slice(out, name->source.text);
    buf_put_byte(out, '[');
    buf_put_slice(out, name->index.text);
    buf_put_str(out, "] ");
}

static void put_string(struct buf *out, struct slice text)
{
    buf_put_byte(out, '"');
    if (slice_eq_nocase(text, SLICE("unlink")))
        text = SLICE("del");
    for (size_t i = 0; i < text.len; i++)
        buf_put_byte(out, (char)tolower((unsigned char)text.data[i]));
    buf_put_str(out, "\" ");
}

static void put_token(struct buf *out, struct normal *n, size_t at)
{
    struct script_token t = n->tokens[at];
    struct script_name *name =
        t.kind == TOKEN_NAME && !is(n, at - 1, ".") ? find_name(n, t.text) : NULL;
    if (t.kind == TOKEN_STRING)
        put_string(out, t.text);
    else if (name && name->index.text.len)
        put_place(out, name);
    else if (name)
        buf_printf(out, "$%u ", name->number);
    else if (t.kind == TOKEN_NAME && slice_eq(t.text, SLICE("pcall")))
        buf_put_str(out, "call ");
    else
        buf_printf(out, "%.*s ", (int)t.text.len, t.text.data);
}

/* Appends the normal form; false: it is no script that we could know. */
static bool normalize(struct slice text, struct normal *n, struct buf *out)
{
    n->n_names = 0;
    n->locals = 0;
    if (text.len > SCRIPT_BYTES_MAX || !tokenize(text, n))
        return false;
    for (size_t at = 0; at < n->n;) {
        struct script_name place;
        size_t skip = read_alias(n, at);
        if (skip == 0 && (skip = place_at(n, at, &place)) > 0) {
            put_place(out, &place);
        } else if (skip == 0) {
            read_locals(n, at);
            put_token(out, n, at);
            skip = 1;
        }
        at += skip;
    }
    return true;
}

/* --- what is known --- */

struct known_script {
    char sha[SCRIPT_SHA_BYTES];
    const struct script *script;
};

struct scripts {
    struct normal normal; /* room to work in */
    struct buf forms[TABLE_ROWS];
    struct known_script known[SCRIPTS_KNOWN_MAX];
    size_t n, next;
};

struct scripts *scripts_open(void)
{
    struct scripts *s = mem_zalloc(sizeof *s);
    for (size_t i = 0; i < TABLE_ROWS; i++)
        BELAY_CHECK(normalize(slice_str(table[i].lua), &s->normal, &s->forms[i]));
    return s;
}

void scripts_close(struct scripts *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < TABLE_ROWS; i++)
        buf_done(&s->forms[i]);
    free(s);
}

static void sha1_hex(struct slice text, char ret[SCRIPT_SHA_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char raw[SHA_DIGEST_LENGTH];
    (void)SHA1((const unsigned char *)text.data, text.len, raw);
    for (size_t i = 0; i < sizeof raw; i++) {
        ret[2 * i] = hex[raw[i] >> 4];
        ret[2 * i + 1] = hex[raw[i] & 15];
    }
}

static const struct script *recognise(struct scripts *s, struct slice text)
{
    const struct script *found = NULL;
    struct buf form = {0};
    if (normalize(text, &s->normal, &form)) {
        for (size_t i = 0; i < TABLE_ROWS && !found; i++) {
            if (slice_eq(buf_slice(&form), buf_slice(&s->forms[i])))
                found = &table[i];
        }
    }
    buf_done(&form);
    return found;
}

const struct script *scripts_find(const struct scripts *s, struct slice sha)
{
    char lower[SCRIPT_SHA_BYTES];
    if (sha.len != SCRIPT_SHA_BYTES)
        return NULL;
    for (size_t i = 0; i < SCRIPT_SHA_BYTES; i++)
        lower[i] = (char)tolower((unsigned char)sha.data[i]);
    for (size_t i = 0; i < s->n; i++) {
        if (memcmp(s->known[i].sha, lower, SCRIPT_SHA_BYTES) == 0)
            return s->known[i].script;
    }
    return NULL;
}

const struct script *scripts_learn(struct scripts *s, struct slice text,
                                   char ret_sha[SCRIPT_SHA_BYTES])
{
    sha1_hex(text, ret_sha);
    const struct script *found = scripts_find(s, slice_of(ret_sha, SCRIPT_SHA_BYTES));
    if (found)
        return found;
    found = recognise(s, text);
    if (!found)
        return NULL;
    struct known_script *k = &s->known[s->next];
    memcpy(k->sha, ret_sha, SCRIPT_SHA_BYTES);
    k->script = found;
    s->next = (s->next + 1) % SCRIPTS_KNOWN_MAX;
    if (s->n < SCRIPTS_KNOWN_MAX)
        s->n++;
    return found;
}

void scripts_forget(struct scripts *s)
{
    s->n = s->next = 0;
}
