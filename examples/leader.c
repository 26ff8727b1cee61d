/* leader.c - the event-loop way: one of many processes leads, renewed without a thread.
 *
 *   leader NAME SECONDS     stands for election; when it leads, says so for SECONDS, then
 * resigns
 *
 * One descriptor (belay_fd) in a poll() of our own, next to a timer of our own. The lease is
 * kept by belay_dispatch(); the lost callback comes early enough to stop before anybody else
 * can lead. */
#include <belay.h>

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct state {
    int answered, leads, lost, failed;
    uint64_t fence;
};

static void on_grant(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    struct state *s = arg;
    s->answered = 1;
    if (err != BELAY_E_OK) {
        fprintf(stderr, "leader: %s\n", belay_error(b));
        s->failed = 1;
        return;
    }
    s->leads = g->status == BELAY_GRANTED;
    s->failed = !s->leads;
    s->fence = g->fence;
}

static void on_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct state *s = arg;
    (void)b;
    fprintf(stderr, "leader: %s lost, %lld ms left to stop\n",
            lost->name ? lost->name : "the session", (long long)lost->left_ms);
    s->lost = 1;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Turns the loop until `done` or lost, or until the time is over (until_ms 0: no end). */
static void turn(struct belay *b, const int *done, const int *lost, int64_t until_ms)
{
    while (!*done && !*lost) {
        int64_t left = until_ms ? until_ms - now_ms() : -1;
        if (until_ms && left <= 0)
            return;
        struct pollfd p = {.fd = belay_fd(b), .events = POLLIN};
        if (poll(&p, 1, (int)left) > 0 && belay_dispatch(b) != BELAY_E_OK)
            fprintf(stderr, "leader: %s; trying again\n", belay_error(b));
    }
}

int main(int argc, char **argv)
{
    struct belay *b = NULL;
    struct state s = {0};
    char owner[32];
    if (argc != 3) {
        fprintf(stderr, "usage: leader NAME SECONDS\n");
        return 2;
    }
    snprintf(owner, sizeof owner, "leader:%d", (int)getpid());
    struct belay_acquire want = {.name = argv[1],
                                 .owner = owner,
                                 .ttl_ms = 10000,
                                 .wait_ms = BELAY_FOREVER,
                                 .keep = true};
    if (belay_open(NULL, &b) != BELAY_E_OK)
        return 1;
    belay_on_lost(b, 500, on_lost, &s);
    /* In a session on this connection: when we die, the next one leads milliseconds later. */
    if (belay_session_open(b, 10000, 0, "leader example") != BELAY_E_OK ||
        belay_acquire_send(b, &want, on_grant, &s) != BELAY_E_OK) {
        fprintf(stderr, "leader: %s\n", belay_error(b));
        belay_close(b);
        return 1;
    }
    turn(b, &s.answered, &s.lost, 0);
    if (s.leads) {
        printf("%s leads with fence %" PRIu64 "\n", owner, s.fence);
        fflush(stdout);
        int never = 0;
        turn(b, &never, &s.lost, now_ms() + atoi(argv[2]) * 1000);
    }
    int failed = s.failed || s.lost || belay_session_close(b) != BELAY_E_OK;
    belay_close(b);
    return failed;
}
