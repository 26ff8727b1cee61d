/* histogram.h - how often something took how long, between bounds that are the same for all, for
 * metrics. */
#ifndef BELAY_BASE_HISTOGRAM_H
#define BELAY_BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { HISTOGRAM_BOUNDS = 18 };
extern const uint64_t histogram_bounds_ns[HISTOGRAM_BOUNDS]; /* 50 us to 10 min, rising */

struct histogram {
    /* Above the bound before, up to this one; the last: above all. */
    uint64_t n[HISTOGRAM_BOUNDS + 1];
    uint64_t sum_ns;
};

void histogram_add(struct histogram *h, size_t times, uint64_t ns); /* each took so long */
uint64_t histogram_count(const struct histogram *h);
#endif
