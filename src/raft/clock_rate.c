/* clock_rate.c - how fast the clock of another node goes, from what it says about once a
 * second. */
#include "raft/clock_rate.h"

#include "base/check.h"

bool clock_rate_hear(struct clock_rate *r, uint64_t start, uint64_t own_ms, uint64_t its_ms)
{
    const int64_t million = 1000000;
    int64_t difference = (int64_t)(own_ms - its_ms);
    if (its_ms > INT64_MAX / 4)
        return false; /* no clock shows that */
    if (r->start != start)
        *r = (struct clock_rate){.start = start, .window_ms = own_ms, .least = INT64_MAX};
    BELAY_CHECK(own_ms >= r->window_ms);
    BELAY_DCHECK(own_ms >= r->least_ms && r->least_ms >= r->before_ms);
    bool ends = own_ms - r->window_ms >= CLOCK_RATE_WINDOW_MS;
    bool measured = ends && r->before_ms && r->least_ms > r->before_ms;
    if (measured) {
        int64_t gained = r->before - r->least;
        bool absurd = gained > CLOCK_RATE_GAIN_MAX_MS || gained < -CLOCK_RATE_GAIN_MAX_MS;
        r->is_known = !absurd;
        r->ppm = absurd ? 0 : gained * million / (int64_t)(r->least_ms - r->before_ms);
    }
    if (ends) {
        r->before = r->least;
        r->before_ms = r->least_ms;
        r->window_ms = own_ms;
        r->least = INT64_MAX;
    }
    if (difference < r->least) {
        r->least = difference;
        r->least_ms = own_ms;
    }
    return measured;
}

bool clock_rate_is_off(const struct clock_rate *r)
{
    BELAY_DCHECK(r->is_known || r->ppm == 0);
    return r->is_known && (r->ppm > CLOCK_RATE_OFF_PPM || r->ppm < -CLOCK_RATE_OFF_PPM);
}
