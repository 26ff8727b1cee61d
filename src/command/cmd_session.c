/* cmd_session.c - sessions and namespaces. */
#include "command/command.h"

#include <sys/random.h>

enum { SESSION_ID_RANDOM_BYTES = 16 };

/* 128 random bits in hex. Random here and not in the machine: an op carries every choice. */
static struct slice new_id(struct call *c)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char raw[SESSION_ID_RANDOM_BYTES];
    char *text = arena_alloc(c->arena, sizeof raw * 2);
    BELAY_CHECK(getrandom(raw, sizeof raw, 0) == (ssize_t)sizeof raw);
    for (size_t i = 0; i < sizeof raw; i++) {
        text[2 * i] = hex[raw[i] >> 4];
        text[2 * i + 1] = hex[raw[i] & 15];
    }
    return slice_of(text, sizeof raw * 2);
}

void cmd_session_open(struct call *c)
{
    c->op.kind = OP_SESSION_OPEN;
    bool named = args_has(&c->args, P_ID);
    c->op.session = named ? args_text(&c->args, P_ID) : new_id(c);
    c->op.flags = named ? OP_NAMED : 0;
    c->op.ttl_ms = args_number(&c->args, P_SESSION_TTL, SESSION_TTL_DEFAULT_MS);
    c->op.linger_ms = args_number(&c->args, P_LINGER, 0);
    c->op.text = args_text(&c->args, P_DESCRIPTION);
}

void cmd_session_attach(struct call *c)
{
    c->op.kind = OP_SESSION_ATTACH;
    c->op.target = c->context->target;
    c->op.session = args_text(&c->args, P_ID);
}

void cmd_session_keepalive(struct call *c)
{
    c->op.kind = OP_SESSION_KEEPALIVE;
    if (args_has(&c->args, P_ID)) { /* by path: just this one */
        c->manner.form = FORM_KEPT_ONE;
        c->args.rest = &c->args.at[P_ID].text;
        c->args.n_rest = 1;
    }
    for (size_t i = 0; i < c->args.n_rest; i++) {
        size_t len = c->args.rest[i].len;
        if (len < 1 || len > LIMIT_SESSION_BYTES) {
            call_fail(c, BELAY_ERR_RANGE, "id must have 1 to %d bytes, not %zu",
                      LIMIT_SESSION_BYTES, len);
            return;
        }
    }
    c->op.more = (struct names){c->args.rest, c->args.n_rest};
}

void cmd_session_close(struct call *c)
{
    c->op.kind = OP_SESSION_CLOSE;
    c->op.session = args_text(&c->args, P_ID);
}

void cmd_session_show(struct call *c)
{
    c->op.kind = OP_SESSION_SHOW;
    c->op.session = args_text(&c->args, P_ID);
}

void cmd_session_list(struct call *c)
{
    c->op.kind = OP_SESSION_LIST;
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
}

void cmd_namespace_create(struct call *c)
{
    c->op.kind = OP_NAMESPACE_CREATE;
    c->op.ns = args_text(&c->args, P_NEW_NS);
    c->op.text = args_text(&c->args, P_DESCRIPTION);
}

void cmd_namespace_show(struct call *c)
{
    c->op.kind = OP_NAMESPACE_SHOW;
}

void cmd_namespace_list(struct call *c)
{
    c->op.kind = OP_NAMESPACE_LIST;
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 100);
}

void cmd_namespace_update(struct call *c)
{
    c->op.kind = OP_NAMESPACE_UPDATE;
    if (args_has(&c->args, P_DESCRIPTION)) {
        c->op.text = args_text(&c->args, P_DESCRIPTION);
        c->op.flags = OP_SET_TEXT;
    }
}

void cmd_namespace_delete(struct call *c)
{
    c->op.kind = OP_NAMESPACE_DELETE;
    c->op.flags = args_has(&c->args, P_FORCE) ? OP_FORCE : 0;
}
