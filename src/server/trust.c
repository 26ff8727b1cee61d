/* trust.c - how far the variables of this node can be trusted after a silence. */
#include "server/trust.h"

#include "base/check.h"

#include <math.h>

void trust_init(struct trust *t, double decay, uint64_t period_ms, uint64_t now_ms)
{
    BELAY_CHECK(decay > 0 && decay < 1);
    BELAY_CHECK(period_ms > 0);
    *t = (struct trust){.fall = pow(decay, (double)TRUST_GRID_MS / (double)period_ms),
                        .level = 1,
                        .from_ms = now_ms};
}

/* One second is over. */
static void step(struct trust *t)
{
    double calls = (double)t->calls;
    t->norm = calls > t->norm ? calls : t->norm * t->fall;
    t->level = calls < t->norm ? calls / t->norm : 1;
    if (t->norm <= 1) { /* used to nothing: nothing can be missing */
        t->norm = 0;
        t->level = 1;
    }
    t->calls = 0;
    t->from_ms += TRUST_GRID_MS;
}

void trust_advance(struct trust *t, uint64_t now_ms)
{
    while (now_ms >= t->from_ms + TRUST_GRID_MS && (t->calls || t->norm > 0))
        step(t);
    if (now_ms < t->from_ms + TRUST_GRID_MS)
        return;
    t->level = 1; /* seconds without calls and without a norm change nothing: skip them */
    t->from_ms += (now_ms - t->from_ms) / TRUST_GRID_MS * TRUST_GRID_MS;
}

void trust_count(struct trust *t, uint64_t now_ms)
{
    trust_advance(t, now_ms);
    t->calls++;
}
