/* limiter.c - a time for each: when it has used up what it may. */
#include "server/limiter.h"

#include "base/mem.h"

#include <stdlib.h>

static const uint64_t NS_PER_S = 1000000000;

void limiter_init(struct limiter *l, uint64_t per_s, uint64_t burst)
{
    *l = (struct limiter){0};
    if (per_s == 0)
        return;
    l->interval_ns = NS_PER_S / per_s ? NS_PER_S / per_s : 1;
    l->burst_ns = l->interval_ns * (burst ? burst : per_s);
    l->places = mem_zalloc((size_t)LIMITER_BUCKETS * LIMITER_WAYS * sizeof *l->places);
}

void limiter_done(struct limiter *l)
{
    free(l->places);
    l->places = NULL;
}

/* Its place, or that of the client that has been quiet for longest. */
static struct limiter_place *place_of(struct limiter *l, uint64_t who)
{
    struct limiter_place *bucket = &l->places[who % LIMITER_BUCKETS * LIMITER_WAYS];
    struct limiter_place *quiet = bucket;
    for (unsigned i = 0; i < LIMITER_WAYS; i++) {
        if (bucket[i].who == who)
            return &bucket[i];
        if (bucket[i].until_ns < quiet->until_ns)
            quiet = &bucket[i];
    }
    *quiet = (struct limiter_place){.who = who};
    return quiet;
}

uint64_t limiter_take(struct limiter *l, uint64_t who, uint64_t now_ns)
{
    if (l->interval_ns == 0)
        return 0;
    struct limiter_place *p = place_of(l, who);
    uint64_t until = (p->until_ns > now_ns ? p->until_ns : now_ns) + l->interval_ns;
    if (until - now_ns > l->burst_ns)
        return until - now_ns - l->burst_ns;
    p->until_ns = until;
    return 0;
}
