/* model_rights.c - random requests of clients with tokens, and a naive twin that decides alone
 * what each of them may do and what comes of it.
 *
 *   MODEL_SEED=n   start here (printed by every run; a failure prints the one to use)
 *   MODEL_OPS=n    how many requests in all
 *
 * Requests go the whole way: the text of a command, its rights, the op, the machine. Tokens are
 * made, rotated and revoked meanwhile, and some requests were allowed before that and take effect
 * behind it. Now and then the machine goes through a snapshot. */
#include "auth/rule.h"
#include "auth/token.h"
#include "base/check.h"
#include "choice.h"
#include "command/command.h"
#include "machine/machine.h"
#include "proto/resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    EPISODE_OPS = 400,
    OPS_DEFAULT = 150000,
    TOKENS = 6, /* the first is the operator's */
    RULES = 4,
    NAMES = 4,
    OWNERS = 2,
    SPACES = 3,
    ACCOUNTS = 2,
    VERBS = 4,
    TEXT_BYTES = 160,
    ASKER = 7,
};

static const struct hash_key keys[] = {{1, 2}, {0x9e3779b97f4a7c15u, 77}};
static const char *const verbs[VERBS] = {"read", "lock", "break", "admin"};
static const char *const spaces[SPACES] = {"default", "deep", "d"};
static const char *const names[NAMES] = {"a", "ab", "abc", "b"};
static const char *const patterns[] = {"a", "ab", "abc", "b", "*", "a*", "ab*", "abc*"};
static const char *const space_patterns[] = {"default", "deep", "d", "*", "d*", "de*", "deep*"};
static const char *const owners[OWNERS] = {"ann", "bob"};
static const char *const accounts[ACCOUNTS] = {"default", "00000000000000ab"};

struct rule_twin {
    bool has[VERBS];
    const char *space, *name;
};

struct token_twin {
    bool is_there;
    int account, n_rules;
    struct rule_twin rules[RULES];
    char id[TOKEN_ID_BYTES + 1];
    uint64_t number, generation, old_generation; /* 0: none */
    struct buf bytes;
};

struct hold_twin {
    int owner;      /* -1: nobody */
    uint64_t token; /* that took it */
};

struct model {
    struct choice c;
    struct machine *m;
    struct effects fx;
    struct arena arena;
    struct token_twin tokens[TOKENS];
    struct hold_twin holds[ACCOUNTS][SPACES][NAMES];
    uint64_t seed, ops, step, numbers;
    uint64_t denied, late, done;
    char text[TEXT_BYTES];
};

static void fail(const struct model *x, const char *want, const char *got)
{
    printf("not ok - the twin says %s, the server %s, request %" PRIu64
           " of the episode with MODEL_SEED=%" PRIu64 "\n# %s",
           want, got, x->step, x->seed, x->text);
    exit(1);
}

/* --- the twin's rights --- */

/* How exact it is for this name: 0 not at all; a whole name above all beginnings. */
static size_t exactness(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*')
        return strncmp(pattern, name, n - 1) == 0 ? n : 0;
    return strcmp(pattern, name) == 0 ? 1000 : 0;
}

static bool may(const struct token_twin *t, int verb, const char *space, const char *name)
{
    size_t best = 0;
    bool can = false;
    for (int i = 0; i < t->n_rules; i++) {
        const struct rule_twin *r = &t->rules[i];
        size_t in_space = exactness(r->space, space), of_name = exactness(r->name, name);
        size_t exact = in_space && of_name ? in_space * 10000 + of_name : 0;
        if (exact > best)
            can = r->has[verb];
        else if (exact && exact == best)
            can |= r->has[verb];
        best = exact > best ? exact : best;
    }
    return can;
}

/* --- what a request does --- */

enum verb_of { OF_READ, OF_LOCK, OF_BREAK };

static const struct {
    const char *word, *before, *behind; /* of the owner */
    int verb;
} requests[] = {
    {"ACQUIRE", " ", " TTL 600000", OF_LOCK},
    {"RELEASE", " OWNER ", "", OF_LOCK},
    {"RENEW", " OWNER ", " TTL 600000", OF_LOCK},
    {"BODY", " OWNER ", " x", OF_LOCK},
    {"CHECK", " OWNER ", "", OF_READ},
    {"BREAK", NULL, NULL, OF_BREAK},
};
enum { ACQUIRE, RELEASE, RENEW, BODY, CHECK, BREAK, REQUESTS };

struct asked {
    int request, space, name, owner;
    struct token_twin *by;
    uint64_t generation; /* that the client logged in with */
};

/* The token still counts, and it has the right. */
static const char *twin(struct model *x, const struct asked *a)
{
    struct token_twin *t = a->by;
    struct hold_twin *h = &x->holds[t->account][a->space][a->name];
    const char *space = spaces[a->space], *name = names[a->name];
    bool breaks = may(t, OF_BREAK, space, name), mine = h->owner == a->owner;
    if (!may(t, requests[a->request].verb, space, name) || !t->is_there ||
        (a->generation != t->generation && a->generation != t->old_generation))
        return "denied";
    if (a->request == CHECK)
        return mine ? "1" : "0";
    if (a->request == BREAK) {
        const char *count = h->owner >= 0 ? "1" : "0";
        h->owner = -1;
        return count;
    }
    if (mine && h->token != t->number && !breaks)
        return "denied";
    if (a->request == ACQUIRE && h->owner >= 0 && !mine)
        return "refused";
    if (a->request == ACQUIRE) {
        *h = (struct hold_twin){a->owner, mine ? h->token : t->number};
        return "granted";
    }
    if (a->request == RELEASE) {
        h->owner = mine ? -1 : h->owner;
        return mine ? "1" : "0";
    }
    return mine ? "ok" : "stale";
}

static const char *word_of(const struct event *ev)
{
    BELAY_CHECK(ev);
    switch ((int)ev->kind) {
    case EVENT_GRANTED:
        return "granted";
    case EVENT_REFUSED:
        return "refused";
    case EVENT_RENEWED:
    case EVENT_BODY_SET:
        return "ok";
    case EVENT_RELEASED:
    case EVENT_CHECKED:
    case EVENT_BROKEN:
        return ev->count == 1 ? "1" : "0";
    case EVENT_FAILED:
        break;
    default:
        return event_word(ev->kind);
    }
    if (ev->err == BELAY_ERR_LOGIN || ev->err == BELAY_ERR_DENIED)
        return "denied";
    return ev->err == BELAY_ERR_STALE ? "stale" : err_word(ev->err);
}

/* The event for who asked. */
static const struct event *take(struct model *x, struct op op)
{
    op.asker = ASKER;
    op.now_ms = ++x->step;
    op.index = machine_applied(x->m) + 1;
    const char *what;
    BELAY_CHECK(op_validate(&op, &what) == BELAY_OK);
    effects_reset(&x->fx);
    if (op_is_read(op.kind))
        machine_query(x->m, &op, &x->fx);
    else
        machine_apply(x->m, &op, &x->fx);
    for (size_t i = 0; i < x->fx.n; i++)
        if (x->fx.events[i].asker == ASKER)
            return &x->fx.events[i];
    return NULL;
}

/* --- tokens --- */

static struct op by_operator(struct op op)
{
    op.token = op.rights = 1;
    op.wall_ms = 1000;
    return op;
}

static void draw_rules(struct model *x, struct token_twin *t)
{
    char text[TEXT_BYTES];
    buf_clear(&t->bytes);
    t->n_rules = 1 + (int)choice_below(&x->c, RULES);
    for (int i = 0; i < t->n_rules; i++) {
        struct rule_twin *r = &t->rules[i];
        size_t at = 0;
        *r = (struct rule_twin){.space = choice_of(&x->c, space_patterns),
                                .name = choice_of(&x->c, patterns)};
        r->has[choice_below(&x->c, VERBS)] = true;
        for (int v = 0; v < VERBS; v++) {
            r->has[v] |= choice_one_in(&x->c, 2);
            if (r->has[v])
                at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? "," : "",
                                       verbs[v]);
        }
        (void)snprintf(text + at, sizeof text - at, " %s/%s", r->space, r->name);
        BELAY_CHECK(!rule_read(slice_str(text), &t->bytes));
    }
}

static const struct event *token_op(struct model *x, enum op_kind kind, struct token_twin *t,
                                    uint64_t until_ms)
{
    static const char sum[TOKEN_SUM_BYTES] = {1};
    struct op op = {.kind = kind, .name = slice_str(t->id), .until_ms = until_ms};
    if (kind != OP_TOKEN_REVOKE)
        op.owner = slice_of(sum, TOKEN_SUM_BYTES);
    if (kind == OP_TOKEN_CREATE) {
        op.account = slice_str(accounts[t->account]);
        op.body = buf_slice(&t->bytes);
    }
    return take(x, by_operator(op));
}

static void change_token(struct model *x)
{
    struct token_twin *t = &x->tokens[1 + choice_below(&x->c, TOKENS - 1)];
    if (!t->is_there) {
        t->account = (int)choice_below(&x->c, ACCOUNTS);
        t->number = ++x->numbers;
        t->generation = 1;
        t->old_generation = 0;
        (void)snprintf(t->id, sizeof t->id, "%016" PRIx64, t->number);
        draw_rules(x, t);
        BELAY_CHECK(token_op(x, OP_TOKEN_CREATE, t, 0)->kind == EVENT_TOKEN_CREATED);
        t->is_there = true;
    } else if (choice_one_in(&x->c, 2)) {
        BELAY_CHECK(token_op(x, OP_TOKEN_REVOKE, t, 0)->kind == EVENT_TOKEN_REVOKED);
        t->is_there = false;
    } else {
        bool overlap = choice_one_in(&x->c, 2);
        const struct event *ev = token_op(x, OP_TOKEN_ROTATE, t, overlap ? 1000000 : 0);
        BELAY_CHECK(ev->kind == EVENT_TOKEN_ROTATED);
        t->old_generation = overlap ? t->generation : 0;
        t->generation++;
    }
}

/* --- a request --- */

static struct asked draw(struct model *x)
{
    struct asked a = {.request = (int)choice_below(&x->c, REQUESTS),
                      .space = (int)choice_below(&x->c, SPACES),
                      .name = (int)choice_below(&x->c, NAMES),
                      .owner = (int)choice_below(&x->c, OWNERS),
                      .by = &x->tokens[choice_below(&x->c, TOKENS)]};
    a.generation = a.by->generation;
    if (choice_one_in(&x->c, 8) && a.generation > 1)
        a.generation--;
    const char *before = requests[a.request].before;
    (void)snprintf(x->text, sizeof x->text, "%s %s%s%s%s\r\n", requests[a.request].word,
                   names[a.name], before ? before : "", before ? owners[a.owner] : "",
                   before ? requests[a.request].behind : "");
    return a;
}

/* What the server says before the order: a refusal, or the op that it makes of the text. */
static bool read_text(struct model *x, const struct asked *a, struct op *ret)
{
    static struct call call;
    struct request req = {0};
    size_t used;
    const char *why;
    struct machine_token who = {.number = a->by->number,
                                .account = slice_str(accounts[a->by->account]),
                                .rules = buf_slice(&a->by->bytes)};
    struct context context = {.account = who.account,
                              .ns = slice_str(spaces[a->space]),
                              .resp = 2,
                              .closed = true,
                              .who = &who,
                              .generation = a->generation};
    BELAY_CHECK(resp_next(slice_str(x->text), &x->arena, &req, &used, &why) == RESP_DONE);
    command_read(&req, &context, &x->arena, &call);
    *ret = call.op;
    BELAY_CHECK(call.refused ? call.kind == CALL_REPLY : call.kind == CALL_OP);
    return !call.refused;
}

static void ask(struct model *x)
{
    struct asked a = draw(x);
    struct op op;
    if (a.by->number == 0)
        return; /* it was never there */
    bool was_there = a.by->is_there;
    bool passes = read_text(x, &a, &op);
    struct token_twin before = *a.by;
    if (choice_one_in(&x->c, 8))
        change_token(x); /* between the check and the order */
    if (a.by->number != before.number)
        return; /* another one has its place */
    const char *want = twin(x, &a);
    const char *got = passes ? word_of(take(x, op)) : "denied";
    if (strcmp(want, got) != 0)
        fail(x, want, got);
    bool denied = strcmp(got, "denied") == 0;
    x->denied += denied && !passes;
    x->late += denied && passes && was_there;
    x->done += !denied;
    x->ops++;
    arena_reset(&x->arena);
}

static void go_through_a_snapshot(struct model *x)
{
    struct buf bytes = {0};
    struct machine *m;
    machine_encode(x->m, &bytes);
    BELAY_CHECK(machine_decode(buf_slice(&bytes), keys[x->step % 2], &m) == BELAY_OK);
    machine_close(x->m);
    x->m = m;
    buf_done(&bytes);
}

static void begin(struct model *x, uint64_t seed)
{
    struct token_twin *first = &x->tokens[0];
    x->c = choice_seed(seed);
    x->seed = seed;
    x->step = 0;
    x->m = machine_open(keys[0]);
    for (int i = 0; i < TOKENS; i++) {
        struct buf kept = x->tokens[i].bytes;
        x->tokens[i] = (struct token_twin){.bytes = kept};
    }
    for (size_t i = 0; i < sizeof x->holds / sizeof(struct hold_twin); i++)
        ((struct hold_twin *)x->holds)[i] = (struct hold_twin){.owner = -1};
    x->numbers = first->number = first->generation = 1;
    first->is_there = true;
    (void)snprintf(first->id, sizeof first->id, "%016x", 1);
    draw_rules(x, first);
    struct op init = {.kind = OP_AUTH_INIT,
                      .name = slice_str(first->id),
                      .owner = SLICE("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
                      .body = buf_slice(&first->bytes),
                      .wall_ms = 1000};
    BELAY_CHECK(take(x, init)->kind == EVENT_TOKEN_CREATED);
    struct op account = {.kind = OP_ACCOUNT_CREATE,
                         .account = slice_str(accounts[1]),
                         .ns = SLICE("default"),
                         .name = SLICE("a@b"),
                         .owner = SLICE("N")};
    BELAY_CHECK(take(x, by_operator(account))->kind == EVENT_ACCOUNT_CREATED);
    for (int a = 0; a < ACCOUNTS; a++)
        for (int i = 1; i < SPACES; i++)
            (void)take(x, by_operator((struct op){.kind = OP_NAMESPACE_CREATE,
                                                  .account = slice_str(accounts[a]),
                                                  .ns = slice_str(spaces[i])}));
}

static void episode(struct model *x, uint64_t seed)
{
    begin(x, seed);
    for (int i = 0; i < EPISODE_OPS; i++) {
        if (choice_one_in(&x->c, 16))
            change_token(x);
        if (choice_one_in(&x->c, 64))
            go_through_a_snapshot(x);
        ask(x);
    }
    machine_close(x->m);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
    static struct model x;
    uint64_t seed = number_of("MODEL_SEED", (uint64_t)time(NULL) * 1000);
    uint64_t ops = number_of("MODEL_OPS", OPS_DEFAULT);
    printf("# MODEL_SEED=%" PRIu64 " MODEL_OPS=%" PRIu64 "\n", seed, ops);
    (void)fflush(stdout);
    for (; x.ops < ops; seed++)
        episode(&x, seed);
    printf("ok - %" PRIu64 " requests: %" PRIu64 " denied by the rules, %" PRIu64
           " where they took effect, %" PRIu64 " done\n",
           x.ops, x.denied, x.late, x.done);
    BELAY_CHECK(ops < 1000 || (x.denied && x.late && x.done));
    for (int i = 0; i < TOKENS; i++)
        buf_done(&x.tokens[i].bytes);
    effects_done(&x.fx);
    arena_done(&x.arena);
    return 0;
}
