/* queue_callback.c - a worker that is a C function, for test_queue_c: queue_callback URL QUEUE
 * MODE. */
#include "belay_queue.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum belay_queue_verdict on_group(void *arg, const struct belay_queue_group *g,
                                         struct belay_queue_result *r)
{
    static _Thread_local char mine[64]; /* of the thread: its next group writes over it */
    (void)arg;
    if (strncmp(g->entity, "quick", 5) == 0) {
        (void)snprintf(mine, sizeof mine, "%s", g->entity);
        r->outcome = mine;
        return BELAY_QUEUE_COMPLETE;
    }
    usleep(20000); /* long enough for two threads to meet */
    r->outcome = g->kind;
    if (strcmp(g->entity, "bad") != 0)
        return strcmp(g->entity, "again") == 0 ? BELAY_QUEUE_RETRY : BELAY_QUEUE_COMPLETE;
    r->error = "no";
    return BELAY_QUEUE_ERROR;
}

static void on_signal(int signum)
{
    (void)signum;
}

static int handlers_are_ours(void)
{
    struct sigaction term, pipe;
    return sigaction(SIGTERM, NULL, &term) == 0 && term.sa_handler == on_signal &&
           sigaction(SIGPIPE, NULL, &pipe) == 0 && pipe.sa_handler == on_signal;
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
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGPIPE, on_signal);
    int rc = belay_queue_work(&o, on_group, NULL, why, sizeof why);
    if (rc != 0)
        fprintf(stderr, "%s\n", why);
    if (!handlers_are_ours())
        fprintf(stderr, "the handlers are not ours\n");
    return rc != 0;
}
