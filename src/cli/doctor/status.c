/* status.c - a cluster, by what one of its nodes says about all of them (CLUSTER STATUS). */
#include "cli/doctor/doctor.h"

#include <inttypes.h>
#include <string.h>

static bool is_on(const struct belay_reply *row, const char *key)
{
    return belay_int(belay_get(row, key), 0) != 0;
}

static const char *text_of(const struct belay_reply *row, const char *key)
{
    return belay_text(belay_get(row, key), "");
}

/* Never negative, whatever the server says. */
static int64_t count_of(const struct belay_reply *row, const char *key)
{
    int64_t n = belay_int(belay_get(row, key), 0);
    return n > 0 ? n : 0;
}

static const struct belay_reply *rows(const struct belay_reply *status, const char *key)
{
    return belay_at(belay_get(status, key), 0);
}

static void look_member(struct doctor *d, const struct belay_reply *m, const char *self)
{
    const char *name = text_of(m, "name"), *problem = text_of(m, "problem");
    d->where = name;
    if (!is_on(m, "up") && strcmp(problem, "not connected") == 0) {
        doctor_find(d, DOCTOR_ERROR, "member-down", "%s does not hear it", self);
        doctor_advise(
            d,
            "Start it, or look at the network between the two. If it is gone for good: "
            "belay cluster replace %s.",
            name);
    } else if (!is_on(m, "up")) {
        doctor_find(d, DOCTOR_ERROR, "member-refused", "%s says: %s", self, problem);
        doctor_advise(d, "See \"A node is refused\" in docs/OPERATIONS.md.");
    } else if (strcmp(text_of(m, "role"), "learner") == 0) {
        doctor_find(d, DOCTOR_WARNING, "learner", "it does not vote yet");
        doctor_advise(d,
                      "Wait until it has caught up. If that takes long, look at its disk and "
                      "at the network to it.");
    } else if (strcmp(text_of(m, "role"), "leaving") == 0) {
        doctor_find(d, DOCTOR_WARNING, "leaving", "it is being removed from the cluster");
        doctor_advise(d, "Wait until belay cluster status does not show it any more.");
    }
}

static void look_lag(struct doctor *d, const struct belay_reply *status)
{
    int64_t most = 0;
    for (const struct belay_reply *m = rows(status, "nodes"); m; m = m->next)
        if (count_of(m, "applied") > most)
            most = count_of(m, "applied");
    for (const struct belay_reply *m = rows(status, "nodes"); m; m = m->next) {
        int64_t behind = most - count_of(m, "applied");
        if (!is_on(m, "up") || behind < DOCTOR_BEHIND_ENTRIES)
            continue;
        d->where = text_of(m, "name");
        doctor_find(d, DOCTOR_WARNING, "lag", "it is %" PRId64 " entries of the log behind",
                    behind);
        doctor_advise(d, "Wait. If this does not shrink, look at its disk, its processor and "
                         "the network to it.");
    }
}

static void look_voters(struct doctor *d, const struct belay_reply *status)
{
    size_t voters = 0;
    for (const struct belay_reply *m = rows(status, "nodes"); m; m = m->next)
        voters += strcmp(text_of(m, "role"), "learner") != 0 &&
                  strcmp(text_of(m, "role"), "leaving") != 0;
    d->where = "cluster";
    if (voters != 2)
        return;
    doctor_find(d, DOCTOR_WARNING, "two-members",
                "of two members both are needed: it stops when either stops");
    doctor_advise(d, "Add a third member: belay cluster add NAME=HOST:PORT");
}

static void look_leaders(struct doctor *d, const struct belay_reply *status)
{
    size_t without = 0, n = 0;
    for (const struct belay_reply *s = rows(status, "shards"); s; s = s->next, n++)
        without += *text_of(s, "leader") == '\0';
    d->where = "cluster";
    if (!without)
        return;
    doctor_find(d, DOCTOR_ERROR, "no-leader", "%zu of %zu shards have no leader, says %s",
                without, n, text_of(status, "node"));
    doctor_advise(d, "An election takes a second or two. If it stays so, start the members "
                     "that are down: most of them must be up.");
}

static void look_level(struct doctor *d, const struct belay_reply *status)
{
    int64_t level = INT64_MAX, possible = INT64_MAX;
    bool manual = false;
    for (const struct belay_reply *s = rows(status, "shards"); s; s = s->next)
        if (count_of(s, "level") < level)
            level = count_of(s, "level");
    for (const struct belay_reply *m = rows(status, "nodes"); m; m = m->next) {
        const struct belay_reply *newest = belay_get(m, "level_newest");
        if (!newest || newest->kind == BELAY_NULL)
            return; /* an earlier version, or a node that is down: it is told already */
        possible = newest->number < possible ? newest->number : possible;
        manual |= is_on(m, "level_manual");
    }
    d->where = "cluster";
    if (level >= possible)
        return;
    doctor_find(d, DOCTOR_WARNING, "level",
                "it follows the rules of level %" PRId64
                ", and all members know level %" PRId64,
                level, possible);
    if (manual)
        doctor_advise(d,
                      "When no member will go back to an earlier version: belay cluster "
                      "level %" PRId64,
                      possible);
    else
        doctor_advise(d, "It rises by itself within seconds. If it does not, see "
                         "docs/UPGRADE.md.");
}

static void look_clocks(struct doctor *d, const struct belay_reply *status)
{
    for (const struct belay_reply *m = rows(status, "nodes"); m; m = m->next) {
        int64_t ppm = belay_int(belay_get(m, "clock_ppm"), 0);
        uint64_t off = ppm < 0 ? 0 - (uint64_t)ppm : (uint64_t)ppm;
        if (off <= DOCTOR_CLOCK_PPM)
            continue;
        d->where = text_of(m, "name");
        doctor_find(d, DOCTOR_WARNING, "clock",
                    "its clock goes %" PRIu64 " ppm %s than that of %s; leases allow for %d",
                    off, ppm < 0 ? "slower" : "faster", text_of(status, "node"),
                    DOCTOR_CLOCK_PPM);
        doctor_advise(d, "Look at the clock sources of both machines "
                         "(/sys/devices/system/clocksource, chronyc tracking).");
    }
}

void doctor_status(struct doctor *d, const struct belay_reply *status)
{
    const char *self = text_of(status, "node");
    look_leaders(d, status);
    for (const struct belay_reply *m = rows(status, "nodes"); m; m = m->next)
        if (strcmp(text_of(m, "name"), self) != 0)
            look_member(d, m, self);
    look_voters(d, status);
    look_lag(d, status);
    look_level(d, status);
    look_clocks(d, status);
}
