/* queue_callback.c - a worker that is a C function, for test_queue_c: queue_callback URL QUEUE
 * MODE. */
#include "belay_queue.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum belay_queue_verdict on_group(void *arg, const struct belay_queue_group *g,
                                         struct belay_queue_result *r)
{
    (void)arg;
    usleep(20000); /* long enough for two threads to meet */
    r->outcome = g->kind;
    if (strcmp(g->entity, "bad") != 0)
        return strcmp(g->entity, "again") == 0 ? BELAY_QUEUE_RETRY : BELAY_QUEUE_COMPLETE;
    r->error = "no";
    return BELAY_QUEUE_ERROR;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    if (argc != 4)
        return 2;
    struct belay_queue_options o = {.url = argv[1],
                                    .queue = argv[2],
                                    .mode = argv[3][0] == 'l' ? BELAY_QUEUE_LEASE
                                                              : BELAY_QUEUE_TRANSACTION,
                                    .concurrency = 4,
                                    .max_attempts = 2,
                                    .backoff_ms = 10,
                                    .drain = 1};
    int rc = belay_queue_work(&o, on_group, NULL, why, sizeof why);
    if (rc != 0)
        fprintf(stderr, "%s\n", why);
    return rc != 0;
}
