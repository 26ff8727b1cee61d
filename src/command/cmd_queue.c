/* cmd_queue.c - requests in PostgreSQL: only the server has the connection. */
#include "command/command.h"

void cmd_queue_push(struct call *c)
{
    call_act(c, ACTION_QUEUE_PUSH);
}

void cmd_queue_list(struct call *c)
{
    call_act(c, ACTION_QUEUE_LIST);
}

void cmd_queue_manage(struct call *c)
{
    call_act(c, ACTION_QUEUE_MANAGE);
}
