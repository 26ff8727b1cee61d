/* cmd_txn.c - transactions over variables and locks, and a look at the tables. */
#include "command/command.h"
#include "command/txn_json.h"

void cmd_txn(struct call *c)
{
    struct txn txn;
    const char *what = NULL;
    enum belay_err err = txn_read(args_text(&c->args, P_JSON), c->arena, &txn, &what);
    if (err != BELAY_OK) {
        call_fail(c, err, "%s", what);
        return;
    }
    c->op.kind = OP_TXN;
    if (txn.request.len) /* the document's own: a client library may have added another */
        c->op.request = txn.request;
    c->op.session = txn.session;
    c->op.text = txn.description;
    c->op.wait_ms = txn.wait_ms;
    c->op.program = txn.program;
    c->min_uptime_s = txn.min_uptime_s;
    c->min_trust = txn.min_trust;
}

void cmd_table_list(struct call *c)
{
    c->op.kind = OP_TABLE_LIST;
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 0);
}

void cmd_table_show(struct call *c)
{
    c->op.kind = OP_TABLE_SHOW;
    c->op.name = args_text(&c->args, P_TABLE);
    c->op.text = args_text(&c->args, P_AFTER);
    c->op.limit = args_number(&c->args, P_LIMIT, 0);
}
