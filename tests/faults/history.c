/* history.c - the token-order check: was this history of exclusive locks possible?
 *
 * A line per grant that was answered, times in microseconds of one clock:
 *
 *   LOCK FENCE ASKED ANSWERED RELEASED_ASKED RELEASED_ANSWERED TTL KEPT
 *
 * RELEASED_* are 0 when no release was answered; KEPT is 1 when the release found the lock
 * held. Fences give the order of grants, so no search is needed. Per lock, by fence:
 *   - no fence twice
 *   - a grant that was answered before another was asked for has the smaller fence
 *   - the grant of f can have happened at the earliest when it was asked and when the one
 *     before had ended, and not after it was answered
 *   - a hold ends by its release (between asking and answer), or at the earliest a TTL after it
 *     began; a release that found nothing although the lease cannot have been over is an early
 *     end
 *
 * Prints what is impossible; TAP at the end. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64 };

struct grant {
    char lock[NAME_MAX_BYTES];
    uint64_t fence, asked, answered, rel_asked, rel_answered, ttl;
    int kept;
};

static int by_lock_and_fence(const void *a, const void *b)
{
    const struct grant *x = a;
    const struct grant *y = b;
    int c = strcmp(x->lock, y->lock);
    if (c)
        return c;
    return x->fence < y->fence ? -1 : x->fence > y->fence;
}

static size_t wrong;

static void complain(const struct grant *g, const char *what, uint64_t by)
{
    if (wrong++ < 20)
        printf("# lock %s fence %" PRIu64 ": %s (%" PRIu64 ")\n", g->lock, g->fence, what, by);
}

static void check_lock(const struct grant *g, size_t n)
{
    uint64_t free_from = 0; /* the one before cannot have ended earlier */
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && g[i].fence == g[i - 1].fence)
            complain(&g[i], "was given twice", g[i].fence);
        uint64_t begin = g[i].asked > free_from ? g[i].asked : free_from;
        if (begin > g[i].answered)
            complain(&g[i], "was granted before the one before it can have ended, us",
                     begin - g[i].answered);
        for (size_t k = i + 1; k < n && k < i + 8; k++)
            if (g[k].answered < g[i].asked)
                complain(&g[i], "has the smaller fence but was asked after it was answered",
                         g[k].fence);
        uint64_t lease_end = begin + g[i].ttl;
        bool over = g[i].rel_answered && g[i].kept;
        free_from = over ? (g[i].rel_asked > begin ? g[i].rel_asked : begin) : lease_end;
        if (g[i].rel_answered && !g[i].kept && g[i].rel_answered < g[i].asked + g[i].ttl)
            complain(&g[i], "ended early: its release found nothing after us",
                     g[i].rel_answered - g[i].asked);
        if (g[i].rel_asked && !g[i].rel_answered)
            free_from = g[i].rel_asked; /* the answer was lost: it may have worked */
    }
}

int main(int argc, char **argv)
{
    struct grant *all = NULL;
    size_t n = 0;
    size_t cap = 0;
    FILE *f = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!f)
        return 2;
    for (;;) {
        struct grant g;
        int got = fscanf(f,
                         "%63s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                         " %" SCNu64 " %d",
                         g.lock, &g.fence, &g.asked, &g.answered, &g.rel_asked, &g.rel_answered,
                         &g.ttl, &g.kept);
        if (got != 8)
            break;
        if (n == cap) {
            cap = cap ? 2 * cap : 1024;
            all = realloc(all, cap * sizeof *all);
            if (!all)
                return 2;
        }
        all[n++] = g;
    }
    if (argc > 1)
        fclose(f);
    if (n)
        qsort(all, n, sizeof *all, by_lock_and_fence);
    size_t locks = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && strcmp(all[end].lock, all[i].lock) == 0)
            end++;
        check_lock(all + i, end - i);
        locks++;
        i = end;
    }
    printf("# %zu grants of %zu locks, %zu impossible\n", n, locks, wrong);
    free(all);
    return wrong || n == 0 ? 1 : 0;
}
