/* remaining.c - how much of a lease is left when its answer is given. */
#include "engine/remaining.h"

#define UNKNOWN_AHEAD (INT64_MAX / 2)

void remaining_heard(struct remaining *l, uint64_t clock_ms, uint64_t now_ms, bool is_own)
{
    int64_t ahead = (int64_t)(now_ms - clock_ms);
    if (!l->is_known) {
        *l = (struct remaining){
            .is_known = true, .since_ms = clock_ms, .ahead = ahead, .earlier = UNKNOWN_AHEAD};
    } else if (clock_ms - l->since_ms >= LATE_KEEP_MS) {
        l->earlier = l->ahead;
        l->ahead = ahead;
        l->until_ms = l->now_ms;
        l->since_ms = clock_ms;
    } else if (ahead > l->ahead) {
        l->ahead = ahead;
    }
    l->now_ms = now_ms > l->now_ms ? now_ms : l->now_ms;
    l->is_own = is_own;
}

static bool is_lease(const struct event *ev)
{
    return (ev->kind == EVENT_GRANTED || ev->kind == EVENT_RENEWED ||
            ev->kind == EVENT_BODY_SET) &&
           !ev->forever;
}

static int64_t passed(const struct remaining *l, uint64_t clock_ms, uint64_t at_ms)
{
    bool is_sure = l->is_own && at_ms > l->until_ms;
    int64_t ahead = l->ahead > l->earlier || is_sure ? l->ahead : l->earlier;
    return (int64_t)(clock_ms - at_ms) + ahead;
}

void remaining_tell(const struct remaining *l, uint64_t clock_ms, uint64_t asked_ms,
                    struct event *ev)
{
    if (!is_lease(ev))
        return;
    int64_t late_ms = l->is_known ? passed(l, clock_ms, ev->at_ms) : UNKNOWN_AHEAD;
    late_ms = late_ms < (int64_t)asked_ms ? late_ms : (int64_t)asked_ms;
    if (late_ms < LATE_MS)
        return;
    if ((uint64_t)late_ms < ev->expires_in_ms) {
        ev->expires_in_ms -= (uint64_t)late_ms;
        return;
    }
    *ev = (struct event){.kind = EVENT_FAILED,
                         .asker = ev->asker,
                         .at_ms = ev->at_ms,
                         .err = BELAY_ERR_UNAVAILABLE,
                         .text =
                             SLICE("the lock was granted while this node was out of reach, and "
                                   "the lease is over, as far as this node knows")};
}
