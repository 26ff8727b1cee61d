/* text_op.c - an op as text, and back. */
#include "base/check.h"
#include "machine/program.h"
#include "text_format.h"

#include <stdio.h>
#include <stdlib.h>

/* How the words behind an op's name are meant. */
enum shape {
    SHAPE_NONE,
    SHAPE_LOCK,      /* name [owner | #fence | @asker | anyone] */
    SHAPE_SESSION,   /* id */
    SHAPE_KEEPALIVE, /* id id id */
    SHAPE_NAMESPACE, /* ns */
    SHAPE_LIST,      /* [prefix] */
    SHAPE_TXN        /* id statement statement */
};

static enum shape shape_of(enum op_kind kind)
{
    switch (kind) {
    case OP_TICK:
    case OP_MESSAGES:
    case OP_TAKEN:
    case OP_LEVEL:
    case OP_NODE:
    case OP_AUTH_RESET:
    case OP_AUTH_INIT: /* stories about accounts and tokens are told in C */
    case OP_ACCOUNT_CREATE:
    case OP_ACCOUNT_UPDATE:
    case OP_ACCOUNT_DELETE:
    case OP_TOKEN_CREATE:
    case OP_TOKEN_ROTATE:
    case OP_TOKEN_REVOKE:
    case OP_TOKEN_USED:
    case OP_ACCOUNT_SHOW:
    case OP_ACCOUNT_LIST:
    case OP_TOKEN_LIST:
    case OP_LOGIN:
    case OP_KIND_COUNT:
        return SHAPE_NONE;
    case OP_ACQUIRE:
    case OP_RELEASE:
    case OP_RENEW:
    case OP_CONVERT:
    case OP_BODY:
    case OP_BREAK:
    case OP_CANCEL:
    case OP_CHECK:
    case OP_SHOW:
    case OP_HOLDERS:
    case OP_WAITERS:
        return SHAPE_LOCK;
    case OP_SESSION_OPEN:
    case OP_SESSION_ATTACH:
    case OP_SESSION_DETACH:
    case OP_SESSION_CLOSE:
    case OP_SESSION_SHOW:
    case OP_SESSION_ENROL:
    case OP_SESSION_ITEMS:
        return SHAPE_SESSION;
    case OP_SESSION_KEEPALIVE:
        return SHAPE_KEEPALIVE;
    case OP_NAMESPACE_CREATE:
    case OP_NAMESPACE_UPDATE:
    case OP_NAMESPACE_DELETE:
    case OP_NAMESPACE_SHOW:
        return SHAPE_NAMESPACE;
    case OP_TXN:
        return SHAPE_TXN;
    case OP_LIST:
    case OP_SESSION_LIST:
    case OP_NAMESPACE_LIST:
    case OP_TABLE_LIST:
    case OP_TABLE_SHOW:
    case OP_FIND:
        return SHAPE_LIST;
    }
    check_failed(__FILE__, __LINE__, "a kind of op");
    return SHAPE_NONE;
}

/* The numbers and texts that are written key=value. */
#define KEY_NUMBER_MAP(X)                                                                      \
    X("ttl", ttl_ms)                                                                           \
    X("wait", wait_ms)                                                                         \
    X("grace", grace_ms)                                                                       \
    X("delay", delay_ms)                                                                       \
    X("quiet", quiet_ms)                                                                       \
    X("linger", linger_ms)                                                                     \
    X("limit", limit)                                                                          \
    X("target", target)                                                                        \
    X("asker", asker)
#define KEY_BYTES_MAP(X)                                                                       \
    X("ns", ns, 0)                                                                             \
    X("account", account, 0)                                                                   \
    X("session", session, 0)                                                                   \
    X("owner", owner, 0)                                                                       \
    X("body", body, OP_SET_BODY)                                                               \
    X("text", text, OP_SET_TEXT)                                                               \
    X("request", request, 0)                                                                   \
    X("after", text, 0)

static const struct {
    const char *word;
    uint64_t flag;
} flag_words[] = {{"noblock", OP_NOBLOCK},  {"force", OP_FORCE},
                  {"want", OP_WANT_LOCK},   {"anyone", OP_ANYONE},
                  {"fresh", OP_FRESH},      {"add", OP_ADD_TTL},
                  {"away", OP_AWAY},        {"undo", OP_UNDO},
                  {"named", OP_NAMED},      {"holds-only", OP_HOLDS_ONLY},
                  {"end-wait", OP_END_WAIT}};
enum { FLAG_WORDS = sizeof(flag_words) / sizeof(flag_words[0]) };

static bool read_key(const char *word, const char *eq, struct arena *a, struct op *op)
{
    struct slice key = slice_of(word, (size_t)(eq - word));
    const char *value = eq + 1;
#define X(text, field)                                                                         \
    if (slice_eq(key, SLICE(text))) {                                                          \
        op->field = strtoull(value, NULL, 10);                                                 \
        return true;                                                                           \
    }
    KEY_NUMBER_MAP(X)
#undef X
#define X(text_, field, flag)                                                                  \
    if (slice_eq(key, SLICE(text_))) {                                                         \
        op->field = arena_copy(a, slice_str(value));                                           \
        op->flags |= (flag);                                                                   \
        return true;                                                                           \
    }
    KEY_BYTES_MAP(X)
#undef X
    if (slice_eq(key, SLICE("timed"))) {
        op->policy = POLICY_TIMED;
        op->quiet_ms = strtoull(value, NULL, 10);
        return true;
    }
    return false;
}

static bool read_plain(const char *word, struct op *op)
{
    if (!strcmp(word, "soft"))
        op->policy = POLICY_SOFT;
    else if (!strcmp(word, "shared"))
        op->mode = MODE_SHARED;
    else if (!strcmp(word, "exclusive"))
        op->mode = MODE_EXCLUSIVE;
    else if (strchr(word, '/') && word[0] >= '0' && word[0] <= '9') {
        char *slash = NULL;
        op->mode = MODE_SEMAPHORE;
        op->permits = strtoull(word, &slash, 10);
        op->of = strtoull(slash + 1, NULL, 10);
    } else if (word[0] == '#')
        op->fence = strtoull(word + 1, NULL, 10);
    else if (word[0] == '@')
        op->target = strtoull(word + 1, NULL, 10);
    else {
        for (size_t i = 0; i < FLAG_WORDS; i++)
            if (!strcmp(word, flag_words[i].word)) {
                op->flags |= flag_words[i].flag;
                return true;
            }
        return false;
    }
    return true;
}

/* A word that is no option: the op's name, owner, id or namespace, by its place. */
static bool read_place(enum shape shape, size_t place, struct slice word, struct op *op)
{
    struct slice *to = NULL;
    if (shape == SHAPE_LOCK && place < 2)
        to = place == 0 ? &op->name : &op->owner;
    else if ((shape == SHAPE_SESSION || shape == SHAPE_TXN) && place == 0)
        to = &op->session;
    else if (shape == SHAPE_NAMESPACE && place == 0)
        to = &op->ns;
    else if (shape == SHAPE_LIST && place == 0)
        to = &op->name;
    if (to)
        *to = word;
    return to != NULL;
}

static enum op_kind read_kind(const char *word)
{
    for (int k = 0; k < OP_KIND_COUNT; k++)
        if (!strcmp(word, op_word((enum op_kind)k)))
            return (enum op_kind)k;
    fprintf(stderr, "story: no such op: %s\n", word);
    abort();
}

static void read_word(const char *word, size_t *place, struct arena *a, struct op *op,
                      struct slice *more)
{
    enum shape shape = shape_of(op->kind);
    const char *eq = strchr(word, '=');
    if (eq && read_key(word, eq, a, op))
        return;
    bool named = shape == SHAPE_LOCK && *place == 0 && !op->session.len;
    if (!named && read_plain(word, op))
        return;
    struct slice text = arena_copy(a, slice_str(word));
    bool statement = shape == SHAPE_TXN && *place > 0;
    if (shape == SHAPE_KEEPALIVE || word[0] == '+' || statement) {
        size_t skip = word[0] == '+';
        more[op->more.n++] = slice_of(text.data + skip, text.len - skip);
        return;
    }
    if (read_place(shape, (*place)++, text, op))
        return;
    fprintf(stderr, "story: not understood: %s\n", word);
    abort();
}

/* The statements, which were kept as names, become the program. */
static void make_program(struct op *op, struct arena *a)
{
    struct buf out = {0};
    if (op->more.n)
        program_begin(&out, op->more.n);
    for (size_t i = 0; i < op->more.n; i++)
        text_put_node(&out, op->more.items[i]);
    op->program = arena_copy(a, buf_slice(&out));
    op->more = (struct names){0};
    buf_done(&out);
}

void text_read_op(const char *text, struct arena *a, struct op *ret_op)
{
    struct slice copy = arena_copy(a, slice_of(text, strlen(text) + 1));
    struct slice *more = arena_alloc(a, (strlen(text) / 2 + 1) * sizeof(struct slice));
    char *save = NULL;
    /* the copy is ours, so that it may be cut into words */
    char *rest = arena_alloc(a, copy.len);
    memcpy(rest, copy.data, copy.len);
    char *time = strtok_r(rest, " ", &save);
    char *kind = strtok_r(NULL, " ", &save);
    BELAY_CHECK(time != NULL);
    BELAY_CHECK(kind != NULL);
    *ret_op = (struct op){.now_ms = strtoull(time, NULL, 10), .kind = read_kind(kind)};
    size_t place = 0;
    for (char *w = strtok_r(NULL, " ", &save); w; w = strtok_r(NULL, " ", &save))
        read_word(w, &place, a, ret_op, more);
    ret_op->more.items = ret_op->more.n ? more : NULL;
    if (ret_op->kind == OP_TXN)
        make_program(ret_op, a);
    if (!ret_op->account.len)
        ret_op->account = SLICE("default");
    if (!ret_op->ns.len)
        ret_op->ns = SLICE("default");
    if (ret_op->kind == OP_ACQUIRE && ret_op->mode == MODE_NONE)
        ret_op->mode = MODE_EXCLUSIVE;
}

static void put_options(struct buf *out, const struct op *op)
{
    if (op->mode == MODE_SHARED)
        buf_put_str(out, " shared");
    if (op->mode == MODE_EXCLUSIVE && op->kind == OP_CONVERT)
        buf_put_str(out, " exclusive");
    if (op->mode == MODE_SEMAPHORE)
        buf_printf(out, " %llu/%llu", (unsigned long long)op->permits,
                   (unsigned long long)op->of);
    if (op->policy == POLICY_SOFT)
        buf_put_str(out, " soft");
    if (op->policy == POLICY_TIMED)
        buf_printf(out, " timed=%llu", (unsigned long long)op->quiet_ms);
    for (size_t i = 0; i < FLAG_WORDS; i++)
        if (op->flags & flag_words[i].flag)
            buf_printf(out, " %s", flag_words[i].word);
#define X(text, field)                                                                         \
    if (op->field && !(op->policy == POLICY_TIMED && &op->field == &op->quiet_ms))             \
        buf_printf(out, " " text "=%llu", (unsigned long long)op->field);
    KEY_NUMBER_MAP(X)
#undef X
}

void text_put_text(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] > 31 && s.data[i] < 127)
            buf_put_byte(out, s.data[i]);
        else
            buf_printf(out, "\\x%02x", (unsigned char)s.data[i]);
    }
}

void text_put_op(struct buf *out, const struct op *op)
{
    enum shape shape = shape_of(op->kind);
    buf_printf(out, "%llu %s", (unsigned long long)op->now_ms, op_word(op->kind));
    struct slice first = {0};
    if (shape == SHAPE_LOCK || shape == SHAPE_LIST)
        first = op->name;
    else if (shape == SHAPE_SESSION)
        first = op->session;
    else if (shape == SHAPE_NAMESPACE)
        first = op->ns;
    if (first.len)
        buf_put_str(out, " "), text_put_text(out, first);
    if (op->fence)
        buf_printf(out, " #%llu", (unsigned long long)op->fence);
    put_options(out, op);
    if (shape != SHAPE_NAMESPACE && !slice_eq(op->ns, SLICE("default")))
        buf_put_str(out, " ns="), text_put_text(out, op->ns);
    if (op->session.len && shape != SHAPE_SESSION)
        buf_put_str(out, " session="), text_put_text(out, op->session);
    if (op->owner.len)
        buf_put_str(out, " owner="), text_put_text(out, op->owner);
    if (op->flags & OP_SET_BODY || op->body.len)
        buf_put_str(out, " body="), text_put_text(out, op->body);
    if (op->flags & OP_SET_TEXT || op->text.len)
        buf_put_str(out, shape == SHAPE_LIST ? " after=" : " text="),
            text_put_text(out, op->text);
    if (op->request.len)
        buf_put_str(out, " request="), text_put_text(out, op->request);
    for (size_t i = 0; i < op->more.n; i++)
        buf_put_str(out, shape == SHAPE_KEEPALIVE ? " " : " +"),
            text_put_text(out, op->more.items[i]);
}
