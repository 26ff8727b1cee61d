/* cmd_find.c - reads that look for something: locks of all namespaces, long lines, the things of
 * a session. */
#include "command/answer.h"
#include "command/command.h"

/* What FIND, and LIST with a filter, look for. */
static void put_filter(struct call *c)
{
    const struct args *a = &c->args;
    c->op.kind = OP_FIND;
    c->op.name = args_text(a, P_PREFIX);
    c->op.owner = args_text(a, P_OWNER);
    c->op.session = args_text(a, P_SESSION);
    c->op.target = args_has(a, P_STATE) ? 1 + args_number(a, P_STATE, 0) : 0;
    c->op.number = args_number(a, P_MIN_AGE, 0);
    c->op.permits = args_number(a, P_MIN_WAITERS, 0);
    c->op.fence = args_number(a, P_SORT, SORT_NAME);
    c->op.limit = args_number(a, P_LIMIT, 100);
    c->op.flags = args_has(a, P_STALE) ? OP_STALE : 0;
    call_act(c, ACTION_FIND);
}

static bool is_filtered(const struct args *a)
{
    return args_has(a, P_STATE) || args_has(a, P_OWNER) || args_has(a, P_SESSION) ||
           args_has(a, P_MIN_AGE) || args_has(a, P_MIN_WAITERS) || args_has(a, P_SORT);
}

static void refuse_place(struct call *c)
{
    call_fail(c, BELAY_ERR_SYNTAX,
              "AFTER takes the \"next\" of the page before, and only in the order of names");
}

void cmd_list(struct call *c)
{
    if (is_filtered(&c->args)) {
        put_filter(c);
        c->op.text = args_text(&c->args, P_AFTER);
        if (c->op.text.len && c->op.fence != SORT_NAME)
            refuse_place(c);
        return;
    }
    c->op.kind = OP_LIST;
    c->op.name = args_text(&c->args, P_PREFIX);
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
}

/* c->text: the namespace to look in, empty: in all of them from op.ns on. */
void cmd_find(struct call *c)
{
    struct slice place = args_text(&c->args, P_CURSOR), ns = SLICE(""), name = SLICE("");
    put_filter(c);
    c->text = args_text(&c->args, P_NS);
    bool known = place.len == 0 || answer_read_place(place, c->arena, &ns, &name);
    if (!known || (place.len && c->op.fence != SORT_NAME)) {
        refuse_place(c);
        return;
    }
    c->op.ns = c->text.len ? c->text : ns;
    c->op.text = name;
}

/* As FIND, of the locks with the longest lines. */
void cmd_graph(struct call *c)
{
    put_filter(c);
    c->op.permits = 1;
    c->op.fence = SORT_WAITERS;
    c->op.limit = LIMIT_LIST;
    c->text = args_text(&c->args, P_NS);
    c->op.ns = c->text;
}

void cmd_holders(struct call *c)
{
    c->op.kind = OP_HOLDERS;
    c->op.name = args_text(&c->args, P_NAME);
    c->op.fence = args_number(&c->args, P_AFTER_ID, 0);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
}

void cmd_waiters(struct call *c)
{
    cmd_holders(c);
    c->op.kind = OP_WAITERS;
}

/* "2.17": behind number 17 of shard 2. */
static bool read_item_place(struct slice text, uint64_t *ret_group, uint64_t *ret_number)
{
    const char *dot = text.len ? memchr(text.data, '.', text.len) : NULL;
    size_t len = dot ? (size_t)(dot - text.data) : 0;
    return dot && args_parse_u64(slice_of(text.data, len), ret_group) &&
           args_parse_u64(slice_of(dot + 1, text.len - len - 1), ret_number);
}

void cmd_session_items(struct call *c)
{
    struct slice place = args_text(&c->args, P_CURSOR);
    c->op.kind = OP_SESSION_ITEMS;
    c->op.session = args_text(&c->args, P_ID);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
    c->op.mode = c->command == command_get(CMD_SESSION_HOLDS)   ? ITEM_HOLD
                 : c->command == command_get(CMD_SESSION_WAITS) ? ITEM_WAIT
                                                                : ITEM_VARIABLE;
    if (place.len && !read_item_place(place, &c->op.target, &c->op.fence))
        refuse_place(c);
}
