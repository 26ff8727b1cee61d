/* group_timer.c - when a group wants to be woken: heartbeats, and when to stand for election.
 */
#include "base/check.h"
#include "raft/group_core.h"
#include "raft/place.h"

enum { STORE_WAIT_MS = 5, STRETCH_MAX = 3 };

static unsigned turn_ms(const struct group *g)
{
    BELAY_CHECK(g->rank <= NODE_PLACES);
    return g->raft.election_timeout / 40 + (unsigned)g->rank * (g->raft.election_timeout / 8);
}

/* Terms have gone by without a leader: on such disks, or such a network, an election takes
 * longer. Twice as much time after each, for all the same, until one has enough. */
static unsigned stretch(const struct group *g)
{
    BELAY_CHECK(raft_current_term(&g->raft) >= g->led_term);
    uint64_t failed = raft_current_term(&g->raft) - g->led_term;
    failed = failed > 1 ? failed - 1 : 0; /* the first is going on */
    return failed < STRETCH_MAX ? (unsigned)failed : STRETCH_MAX;
}

/* The core waits for a random time between one and two election times, so that in the end
 * somebody stands alone. With a rank for everybody that happens at once, and after half an
 * election time again should it fail; a part of the random time is left, for ranks that are
 * the same. The first one does not stand at once: the nodes that it asks must have noticed, too. */
void group_set_timeout(struct group *g)
{
    unsigned *timeout = &g->raft.follower_state.randomized_election_timeout;
    unsigned election = g->raft.election_timeout;
    if (group_leader(g))
        g->led_term = raft_current_term(&g->raft);
    if (g->raft.state == RAFT_CANDIDATE)
        timeout = &g->raft.candidate_state.randomized_election_timeout;
    if (g->raft.state == RAFT_LEADER || *timeout == g->timeout)
        return;
    unsigned chance = *timeout > election ? (*timeout - election) / 8 : 0;
    *timeout = g->raft.state == RAFT_FOLLOWER ? election + turn_ms(g) + chance / 4
                                              : election / 2 + turn_ms(g) + chance;
    *timeout <<= stretch(g);
    BELAY_CHECK(*timeout > 0);
    g->timeout = *timeout;
}

/* Alone, the core elects itself without a new term. But what it sent in this one before it died
 * or stepped down may be with others, and not on its own disk. */
static void renew_term(struct group *g)
{
    BELAY_CHECK(!g->asked);
    struct group_conf conf;
    group_conf(g, &conf);
    if (g->raft.state != RAFT_FOLLOWER || !group_only_voter(&conf, g->raft.id) ||
        !group_guarded(g, GUARD_NEW_TERM))
        return;
    BELAY_CHECK(g->raft.current_term < UINT64_MAX / 2);
    g->raft.current_term++;
    g->raft.voted_for = g->raft.id;
    g->vote_lsn = group_persist_vote(g, g->raft.current_term, g->raft.voted_for);
}

/* A learner never stands for election. So the core would let it believe in a dead leader for
 * ever, and would refuse its vote if it has one already without knowing it. */
static void forget_leader(struct group *g)
{
    BELAY_CHECK(!g->asked);
    if (g->raft.state == RAFT_FOLLOWER && raft_role(&g->raft) != RAFT_VOTER &&
        group_guarded(g, GUARD_LEARNER_VOTES))
        g->raft.follower_state.current_leader.id = 0;
}

void group_tick(struct group *g, uint64_t now_ms, unsigned slack_ms)
{
    uint64_t due = raft_timeout(&g->raft);
    unsigned early = g->raft.state == RAFT_LEADER ? slack_ms : 0;
    BELAY_CHECK(early < g->raft.heartbeat_timeout);
    group_advance_clock(g, now_ms);
    if (g->now_ms + early < due)
        return;
    if (g->raft.state == RAFT_FOLLOWER && g->raft.last_stored < raft_last_index(&g->raft)) {
        g->raft.election_timer_start += g->now_ms - due + STORE_WAIT_MS;
        return; /* not before its log is on disk */
    }
    renew_term(g);
    forget_leader(g);
    struct raft_event event = {.type = RAFT_TIMEOUT};
    g->raft.heartbeat_timeout -= early;
    group_step(g, &event);
    g->raft.heartbeat_timeout += early;
    group_apply_committed(g);
}

void group_set_rank(struct group *g, size_t rank)
{
    BELAY_CHECK(rank <= NODE_PLACES);
    g->rank = rank;
    g->timeout = 0;
    group_set_timeout(g);
}

void group_suspect(struct group *g, uint64_t now_ms)
{
    BELAY_CHECK(!g->asked);
    group_advance_clock(g, now_ms);
    uint64_t timeout = g->raft.follower_state.randomized_election_timeout;
    if (g->raft.state != RAFT_FOLLOWER || g->now_ms < timeout)
        return;
    g->raft.follower_state.current_leader.id = 0;
    g->raft.election_timer_start = g->now_ms + turn_ms(g) - timeout;
    g->env->changed(g->ctx, g->group_no);
}

void group_hope(struct group *g)
{
    BELAY_CHECK(!g->asked);
    if (stretch(g) == 0)
        return;
    g->led_term = raft_current_term(&g->raft);
    g->timeout = 0;
    group_set_timeout(g);
    g->env->changed(g->ctx, g->group_no);
}

uint64_t group_next_ms(const struct group *g)
{
    return raft_timeout(&g->raft);
}
