/* audit.c - watching: prints what happens to locks, and who waits for whom at the start.
 *
 *   audit PREFIX COUNT     the state first, then COUNT events
 *
 * News are numbered. When some were missed (err is not 0), read the state again: that is why
 * the state is printed by a function of its own. */
#include <belay.h>

#include <stdio.h>
#include <stdlib.h>

static int print_state(struct belay *b, const char *prefix)
{
    const struct belay_reply *page = NULL;
    int err = belay_list(b, prefix, NULL, 100, &page);
    if (err != BELAY_E_OK)
        return err;
    for (const struct belay_reply *lock = belay_at(belay_at(page, 0), 0); lock;
         lock = lock->next) {
        const struct belay_reply *holder = belay_at(belay_get(lock, "holders"), 0);
        printf("%s: %s", belay_text(belay_get(lock, "name"), "?"),
               belay_text(belay_get(lock, "state"), "?"));
        if (holder)
            printf(", held by %s", belay_text(belay_get(holder, "owner"), "?"));
        printf(", %zu waiting\n", belay_get(lock, "waiters")->count);
    }
    fflush(stdout);
    return BELAY_E_OK;
}

struct audit {
    int left, missed;
};

static void on_event(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    struct audit *a = arg;
    (void)b;
    if (err != BELAY_E_OK) {
        a->missed = 1;
        return;
    }
    printf("%s %s %s\n", belay_text(belay_get(event, "event"), "?"),
           belay_text(belay_get(event, "name"), "-"),
           belay_text(belay_get(event, "owner"), "-"));
    fflush(stdout);
    a->left--;
}

int main(int argc, char **argv)
{
    struct belay *b = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: audit PREFIX COUNT\n");
        return 2;
    }
    struct audit a = {.left = atoi(argv[2])};
    if (belay_open(NULL, &b) != BELAY_E_OK)
        return 1;
    /* First watch, then read: what happens in between is seen twice, but never missed. */
    int err = belay_watch(b, argv[1], 0, on_event, &a);
    if (err == BELAY_E_OK)
        err = print_state(b, argv[1]);
    while (err == BELAY_E_OK && a.left > 0) {
        if (belay_poll(b, BELAY_FOREVER) != BELAY_E_OK)
            fprintf(stderr, "audit: %s; trying again\n", belay_error(b));
        if (a.missed) {
            a.missed = 0;
            err = print_state(b, argv[1]);
        }
    }
    if (err != BELAY_E_OK)
        fprintf(stderr, "audit: %s\n", belay_error(b));
    belay_close(b);
    return err != BELAY_E_OK;
}
