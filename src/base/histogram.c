/* histogram.c - see histogram.h. */
#include "base/histogram.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

const uint64_t histogram_bounds_ns[HISTOGRAM_BOUNDS] = {
    50 * US, 100 * US, 250 * US, 500 * US, MS,    2500 * US, 5 * MS, 10 * MS, 25 * MS,
    50 * MS, 100 * MS, 250 * MS, 500 * MS, 1 * S, 2500 * MS, 10 * S, 60 * S,  600 * S};

void histogram_add(struct histogram *h, size_t times, uint64_t ns)
{
    size_t i = 0;
    while (i < HISTOGRAM_BOUNDS && ns > histogram_bounds_ns[i])
        i++;
    h->n[i] += times;
    h->sum_ns += times * ns;
}

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        n += h->n[i];
    return n;
}
