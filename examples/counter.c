/* counter.c - the blocking way: many processes add to one number, and none is lost.
 *
 *   counter NAME TIMES FILE     adds 1 to the number in FILE, TIMES times, under the lock NAME
 *
 * Every step takes the lock, reads, adds, writes, and gives the lock back. The fence goes into
 * the file too: a step with a smaller fence than the file's has come too late and must not
 * write. */
#include <belay.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int add_one(const char *path, uint64_t fence)
{
    long number = 0;
    uint64_t last = 0;
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%ld %" SCNu64, &number, &last) != 2)
            number = 0;
        fclose(f);
    }
    if (fence <= last)
        return -1; /* somebody with a newer fence was here: we are late */
    f = fopen(path, "w");
    if (!f)
        return -1;
    fprintf(f, "%ld %" PRIu64 "\n", number + 1, fence);
    return fclose(f);
}

static int one_step(struct belay *b, const char *name, const char *owner, const char *path)
{
    struct belay_grant g;
    struct belay_acquire want = {.name = name, .owner = owner, .wait_ms = BELAY_FOREVER};
    int err = belay_acquire(b, &want, &g);
    if (err != BELAY_E_OK) {
        fprintf(stderr, "counter: %s\n", belay_error(b));
        return 1;
    }
    if (g.status != BELAY_GRANTED || add_one(path, g.fence) != 0)
        return 1;
    return belay_release(b, name, g.fence, NULL, NULL) != BELAY_E_OK;
}

int main(int argc, char **argv)
{
    struct belay *b = NULL;
    char owner[32];
    if (argc != 4) {
        fprintf(stderr, "usage: counter NAME TIMES FILE\n");
        return 2;
    }
    snprintf(owner, sizeof owner, "counter:%d", (int)getpid());
    if (belay_open(NULL, &b) != BELAY_E_OK)
        return 1;
    int failed = 0;
    for (int i = 0; i < atoi(argv[2]) && !failed; i++)
        failed = one_step(b, argv[1], owner, argv[3]);
    belay_close(b);
    return failed;
}
