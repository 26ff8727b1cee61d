/* reply.c - replies as the user of the library sees them, and what their errors are called. */
#include "client/client.h"

#include <stdlib.h>

int reply_code(enum belay_err err)
{
    switch (err) { /* no default: a new error of the server must be placed here */
    case BELAY_OK:
        return BELAY_E_OK;
    case BELAY_ERR_SYNTAX:
    case BELAY_ERR_UNKNOWN:
    case BELAY_ERR_METHOD:
    case BELAY_ERR_TYPE:
    case BELAY_ERR_TOO_BIG:
        return BELAY_E_SYNTAX;
    case BELAY_ERR_RANGE:
        return BELAY_E_RANGE;
    case BELAY_ERR_LIMIT:
    case BELAY_ERR_OVERLOADED:
    case BELAY_ERR_QUOTA:
    case BELAY_ERR_THROTTLED:
        return BELAY_E_LIMIT;
    case BELAY_ERR_NOT_FOUND:
        return BELAY_E_NOT_FOUND;
    case BELAY_ERR_NO_SESSION:
        return BELAY_E_NO_SESSION;
    case BELAY_ERR_NO_NAMESPACE:
        return BELAY_E_NO_NAMESPACE;
    case BELAY_ERR_EXISTS:
        return BELAY_E_EXISTS;
    case BELAY_ERR_IN_USE:
        return BELAY_E_IN_USE;
    case BELAY_ERR_STALE:
        return BELAY_E_STALE;
    case BELAY_ERR_DENIED:
    case BELAY_ERR_LOGIN:
        return BELAY_E_DENIED;
    case BELAY_ERR_GONE:
        return BELAY_E_GONE;
    case BELAY_ERR_NOT_LEADER:
    case BELAY_ERR_UNAVAILABLE:
        return BELAY_E_UNAVAILABLE;
    case BELAY_ERR_NO_SCRIPT:
    case BELAY_ERR_NO_PROTO:
    case BELAY_ERR_TIMEOUT:
    case BELAY_ERR_CORRUPT:
    case BELAY_ERR_IO:
    case BELAY_ERR_NO_MEMORY:
    case BELAY_ERR_INTERNAL:
        return BELAY_E_SERVER;
    }
    return BELAY_E_SERVER;
}

const char *belay_code_text(int code)
{
    static const struct {
        int code;
        const char *text;
    } table[] = {
        {BELAY_E_OK, "done"},
        {BELAY_E_MEMORY, "out of memory"},
        {BELAY_E_USAGE, "a wrong argument; nothing was sent"},
        {BELAY_E_CONNECT, "the server cannot be reached"},
        {BELAY_E_DEADLINE, "no answer in time"},
        {BELAY_E_CLOSED, "the connection broke"},
        {BELAY_E_PROTOCOL, "the answer is not one of a Belay server"},
        {BELAY_E_LOST, "the session is over, and everything held in it"},
        {BELAY_E_STALE, "the fence or owner does not hold the lock"},
        {BELAY_E_NO_SESSION, "no such session, or it has ended"},
        {BELAY_E_NO_NAMESPACE, "no such namespace"},
        {BELAY_E_NOT_FOUND, "no such thing"},
        {BELAY_E_EXISTS, "it exists already"},
        {BELAY_E_IN_USE, "it is in use"},
        {BELAY_E_LIMIT, "a limit of the server is reached"},
        {BELAY_E_RANGE, "a value is outside its bounds"},
        {BELAY_E_SYNTAX, "the server does not understand the request"},
        {BELAY_E_DENIED, "not allowed"},
        {BELAY_E_UNAVAILABLE, "the server cannot serve now, try again"},
        {BELAY_E_GONE, "that part of the history is dropped"},
        {BELAY_E_SERVER, "the server answered with an error"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].code == code)
            return table[i].text;
    return "an unknown code";
}

static enum belay_kind kind_of(enum reply_kind kind)
{
    switch (kind) {
    case REPLY_NONE:
    case REPLY_NULL:
        return BELAY_NULL;
    case REPLY_BOOL:
        return BELAY_BOOL;
    case REPLY_INT:
        return BELAY_INT;
    case REPLY_DOUBLE:
        return BELAY_DOUBLE;
    case REPLY_TEXT:
    case REPLY_STATUS:
    case REPLY_JSON:
    case REPLY_PLAIN:
        return BELAY_TEXT;
    case REPLY_ERROR:
        return BELAY_ERROR;
    case REPLY_LIST:
    case REPLY_PUSH:
        return BELAY_LIST;
    case REPLY_MAP:
        return BELAY_MAP;
    }
    return BELAY_NULL;
}

static const char *copy_text(struct arena *a, struct slice s)
{
    char *p = arena_alloc(a, s.len + 1);
    if (!p)
        return NULL;
    if (s.len)
        memcpy(p, s.data, s.len);
    p[s.len] = '\0';
    return p;
}

/* One node without its children. */
static struct belay_reply *copy_node(struct arena *a, const struct reply *r, bool has_key)
{
    struct belay_reply *n = arena_alloc(a, sizeof *n);
    if (!n)
        return NULL;
    *n = (struct belay_reply){.kind = kind_of(r->kind),
                              .text = "",
                              .len = r->text.len,
                              .number = r->number,
                              .real = r->real,
                              .count = r->count};
    if (r->text.len)
        n->text = copy_text(a, r->text);
    if (has_key)
        n->key = copy_text(a, r->key);
    return n->text && (n->key || !has_key) ? n : NULL;
}

/* The parser bounds the depth (RESP_DEPTH_MAX), so recursion is bounded too. */
static struct belay_reply *copy_tree(struct arena *a, const struct reply *r, bool has_key)
{
    struct belay_reply *n = copy_node(a, r, has_key);
    if (!n)
        return NULL;
    const struct belay_reply **link = &n->first;
    for (const struct reply *c = r->first; c; c = c->next) {
        struct belay_reply *child = copy_tree(a, c, r->kind == REPLY_MAP);
        if (!child)
            return NULL;
        *link = child;
        link = &child->next;
    }
    return n;
}

const struct belay_reply *reply_copy(struct arena *a, const struct reply *r)
{
    return copy_tree(a, r, false);
}

const struct belay_reply *belay_get(const struct belay_reply *r, const char *key)
{
    if (!r || r->kind != BELAY_MAP || !key)
        return NULL;
    for (const struct belay_reply *c = r->first; c; c = c->next)
        if (strcmp(c->key, key) == 0)
            return c;
    return NULL;
}

const struct belay_reply *belay_at(const struct belay_reply *r, size_t i)
{
    const struct belay_reply *c = r ? r->first : NULL;
    while (c && i--)
        c = c->next;
    return c;
}

int64_t belay_int(const struct belay_reply *r, int64_t otherwise)
{
    if (!r)
        return otherwise;
    if (r->kind == BELAY_INT || r->kind == BELAY_BOOL)
        return r->number;
    if (r->kind != BELAY_TEXT || r->len == 0)
        return otherwise;
    char *end = NULL;
    long long v = strtoll(r->text, &end, 10);
    return end == r->text + r->len ? v : otherwise;
}

const char *belay_text(const struct belay_reply *r, const char *otherwise)
{
    return r && (r->kind == BELAY_TEXT || r->kind == BELAY_ERROR) ? r->text : otherwise;
}

int reply_grant(struct belay *b, const struct belay_reply *r, struct belay_grant *ret_g)
{
    static const char *const words[] = {
        [BELAY_GRANTED] = "granted",   [BELAY_QUEUED] = "queued",
        [BELAY_REFUSED] = "refused",   [BELAY_TIMED_OUT] = "timeout",
        [BELAY_DEADLOCK] = "deadlock",
    };
    const char *word = belay_text(belay_at(r, 0), "");
    size_t status = 0;
    while (status < sizeof words / sizeof words[0] && strcmp(word, words[status]) != 0)
        status++;
    const struct belay_reply *second = belay_at(r, 1), *third = belay_at(r, 2);
    *ret_g = (struct belay_grant){
        .status = (enum belay_status)status, .reason = "", .body = "", .reply = r};
    if (status == BELAY_GRANTED) {
        const struct belay_reply *body = belay_at(r, 3);
        ret_g->fence = (uint64_t)belay_int(second, 0);
        ret_g->expires_in_ms = belay_int(third, BELAY_FOREVER);
        ret_g->body = belay_text(body, "");
        ret_g->body_len = body ? body->len : 0;
        return ret_g->fence ? BELAY_E_OK
                            : client_fail(b, BELAY_E_PROTOCOL, "a grant without a fence");
    }
    if (status == BELAY_QUEUED) {
        ret_g->ticket = (uint64_t)belay_int(second, 0);
        ret_g->position = (uint64_t)belay_int(third, 0);
        return BELAY_E_OK;
    }
    if (status == BELAY_REFUSED)
        ret_g->reason = belay_text(second, "");
    if (status < sizeof words / sizeof words[0])
        return BELAY_E_OK;
    return client_fail(b, BELAY_E_PROTOCOL, "the answer \"%.40s\" is none of an acquire", word);
}
