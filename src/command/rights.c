/* rights.c - may this token do this? Decided after the command was read, before the engine. */
#include "command/rights.h"

#include "auth/rule.h"
#include "machine/program.h"

static struct slice rules(const struct call *c)
{
    return c->context->who->rules;
}

static bool can(const struct call *c, enum verb verb, struct slice ns, struct slice name)
{
    return rules_can(rules(c), verb, ns, name, NULL);
}

static struct reply *refuse(const struct call *c, enum verb verb, struct slice ns,
                            struct slice name)
{
    if (ns.len == 0)
        return reply_error(c->arena, BELAY_ERR_DENIED, "this needs the right \"%s\"",
                           verb_word(verb));
    return reply_error(c->arena, BELAY_ERR_DENIED, "this needs the right \"%s\" for %s in %s",
                       verb_word(verb), name.len ? args_quote(c->arena, name) : "all locks",
                       args_quote(c->arena, ns));
}

static unsigned verbs_for(const struct call *c, struct slice name)
{
    struct rule by;
    (void)rules_can(rules(c), VERB_NOBODY, c->op.ns, name, &by);
    return by.verbs;
}

/* For every name that it names. *verbs: what it may do with all of them. */
static struct reply *need_names(const struct call *c, enum verb verb, unsigned *verbs)
{
    if (args_has(&c->args, P_QUEUE)) { /* a queue is a name like that of a lock */
        struct slice ns = SLICE("default"), queue = args_text(&c->args, P_QUEUE);
        return can(c, verb, ns, queue) ? NULL : refuse(c, verb, ns, queue);
    }
    *verbs = verbs_for(c, c->op.name);
    if (!(*verbs & verb))
        return refuse(c, verb, c->op.ns, c->op.name);
    for (size_t i = 0; i < c->op.more.n; i++) {
        unsigned those = verbs_for(c, c->op.more.items[i]);
        if (!(those & verb))
            return refuse(c, verb, c->op.ns, c->op.more.items[i]);
        *verbs &= those;
    }
    return NULL;
}

static struct reply *need_one(const struct call *c, enum verb verb, struct slice ns)
{
    return can(c, verb, ns, SLICE("")) ? NULL : refuse(c, verb, ns, SLICE(""));
}

static struct reply *need_some(const struct call *c, enum verb verb, const struct slice *ns)
{
    if (rules_can_somewhere(rules(c), verb, ns))
        return NULL;
    return refuse(c, verb, ns ? *ns : SLICE(""), SLICE(""));
}

struct each {
    const struct call *call;
    struct reply *no;
};

static void need_operator(void *ctx, enum program_node node, struct slice name)
{
    struct each *each = ctx;
    bool looks = node == NODE_EXISTS || node == NODE_SELECT;
    enum verb verb = looks ? VERB_READ : VERB_LOCK;
    if (!each->no && !can(each->call, verb, each->call->op.ns, name))
        each->no = refuse(each->call, verb, each->call->op.ns, name);
}

/* Also of branches that will not be taken: what it may do does not depend on the state. An
 * empty one only keeps its session. */
static struct reply *need_each(const struct call *c)
{
    struct each each = {.call = c};
    if (c->op.program.len == 0)
        return need_some(c, VERB_LOCK, NULL);
    program_each(c->op.program, need_operator, &each);
    return each.no;
}

static struct reply *refusal(const struct call *c, unsigned *verbs)
{
    struct slice none = SLICE("");
    switch (c->command->need) {
    case NEED_NOTHING:
    case NEED_TOKEN:
        return NULL;
    case NEED_READ:
        return need_names(c, VERB_READ, verbs);
    case NEED_LOCK:
        return need_names(c, VERB_LOCK, verbs);
    case NEED_BREAK:
        return need_names(c, VERB_BREAK, verbs);
    case NEED_ADMIN:
        return need_names(c, VERB_ADMIN, verbs);
    case NEED_READ_ALL:
        return need_one(c, VERB_READ, c->op.ns);
    case NEED_READ_SOME:
        return need_some(c, VERB_READ, &c->op.ns);
    case NEED_READ_NAMED:
        return args_has(&c->args, P_NS) ? need_some(c, VERB_READ, &c->op.ns) : NULL;
    case NEED_LOCK_SOME:
        return need_some(c, VERB_LOCK, NULL);
    case NEED_EACH:
        return need_each(c);
    case NEED_CLUSTER:
        return need_one(c, VERB_CLUSTER, none);
    case NEED_ACCOUNTS:
        return need_one(c, VERB_ACCOUNTS, none);
    }
    return refuse(c, VERB_NOBODY, none, none);
}

/* The identity that asks, and what the machine cannot know of its rules: `verbs` for its names. */
static void sign(struct call *c, unsigned verbs)
{
    struct op *op = &c->op;
    op->token = c->context->who->number;
    op->rights = c->context->generation;
    if (op_is(op->kind, KIND_OF_HOLD) && verbs & VERB_BREAK)
        op->flags |= OP_MAY_BREAK;
    c->manner.blind = !(verbs & VERB_READ); /* answers about what it named look at it */
    if (op->kind == OP_LIST || op->kind == OP_NAMESPACE_LIST || op->kind == OP_FIND ||
        op->kind == OP_SESSION_ITEMS)
        op->body = rules(c);
    bool of_session = op->kind == OP_SESSION_LIST || op->session.len;
    if (of_session && can(c, VERB_BREAK, SLICE(""), SLICE("")))
        op->flags |= OP_SEES_ALL;
}

static struct reply *stranger(const struct call *c)
{
    struct reply *r = reply_error(c->arena, BELAY_ERR_LOGIN, "%s", err_text(BELAY_ERR_LOGIN));
    r->headers = SLICE("WWW-Authenticate: Bearer realm=\"belay\", Basic realm=\"belay\"\r\n");
    return r;
}

struct reply *rights_refuse(struct call *c)
{
    if (c->command->need == NEED_NOTHING)
        return NULL;
    if (c->context->unclaimed)
        return reply_error(c->arena, BELAY_ERR_DENIED,
                           "other machines must log in, and there are no tokens yet: run "
                           "\"belay auth init\" on the server's machine");
    if (!c->context->closed)
        return NULL;
    if (!c->context->who)
        return stranger(c);
    bool of_queue = args_has(&c->args, P_QUEUE); /* PostgreSQL knows no accounts */
    if (of_queue && !slice_eq(c->context->account, SLICE("default")))
        return reply_error(c->arena, BELAY_ERR_DENIED,
                           "queues belong to the account \"default\"");
    unsigned verbs = 0;
    struct reply *no = refusal(c, &verbs);
    if (!no && c->op.kind != OP_TICK)
        sign(c, verbs);
    return no;
}
