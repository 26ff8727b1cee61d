/* group_receive.c - what other nodes say, checked and guarded before the core hears it. */
#include "base/check.h"
#include "base/log.h"
#include "raft/group_core.h"

#include <inttypes.h>

bool group_is_term(const struct group *g, uint64_t term)
{
    return term <= GROUP_NUMBER_MAX && term <= group_term(g) + GROUP_TERM_LEAP;
}

static const char *entry_problem(const struct group *g, const struct peer_entry *e)
{
    BELAY_CHECK(g->env);
    struct group_conf conf;
    if (e->type != RAFT_COMMAND && e->type != RAFT_BARRIER && e->type != RAFT_CHANGE)
        return "an entry is of an unknown type";
    if (e->data.len > GROUP_ENTRY_BYTES_MAX)
        return "an entry is too large";
    if (e->type == RAFT_CHANGE && group_conf_decode(e->data, &conf) != BELAY_OK)
        return "an entry holds no members";
    return e->type == RAFT_COMMAND && g->env->problem
               ? g->env->problem(g->ctx, g->group_no, e->data)
               : NULL;
}

/* 0: not here. */
static uint64_t term_of(const struct group *g, uint64_t index)
{
    BELAY_DCHECK(g->raft.trail.snapshot.index == 0 || g->raft.trail.snapshot.term > 0);
    const struct log_entry *e = entry_log_get(&g->log, index);
    if (e)
        return e->term;
    return index == g->raft.trail.snapshot.index ? g->raft.trail.snapshot.term : 0;
}

/* The leader of this term has all that is committed; one of an earlier term may lack some. */
static bool contradicts(const struct group *g, const struct peer_message *w, uint64_t index,
                        uint64_t term)
{
    uint64_t known = index <= raft_commit_index(&g->raft) ? term_of(g, index) : 0;
    return w->term >= group_term(g) && known != 0 && known != term;
}

static const char *append_problem(const struct group *g, const struct peer_message *w)
{
    BELAY_CHECK(w->type == WIRE_APPEND && w->n_entries <= WIRE_ENTRIES_MAX);
    uint64_t term = w->log_term;
    if ((w->index > 0) != (w->log_term > 0) || w->log_term > w->term)
        return "the entry before its entries does not exist";
    if (w->term == g->entries_term && w->from != g->entries_from &&
        group_guarded(g, GUARD_ONE_LEADER))
        return "two nodes lead in one term";
    if (contradicts(g, w, w->index, w->log_term))
        return "it contradicts committed entries";
    for (size_t i = 0; i < w->n_entries; i++) {
        const struct peer_entry *e = &w->entries[i];
        if (e->term < term || e->term == 0 || e->term > w->term)
            return "the terms of entries are out of order";
        if (contradicts(g, w, w->index + 1 + i, e->term))
            return "it contradicts committed entries";
        const char *what = entry_problem(g, e);
        if (what)
            return what;
        term = e->term;
    }
    return NULL;
}

/* A configuration is appended when the one before it is committed. The core hears that of each
 * when it is applied, which takes its time; if the last one is cut off before, the core goes back
 * to what it has heard of, and votes are counted by members of long ago. */
static void settle_confs(struct group *g, const struct peer_message *w, size_t from)
{
    BELAY_CHECK(from < w->n_entries && w->entries[from].type == RAFT_CHANGE);
    uint64_t prev = w->index + from;
    uint64_t prev_term = from ? w->entries[from - 1].term : w->log_term;
    if (w->term < group_term(g) || prev == 0 || term_of(g, prev) != prev_term ||
        !group_guarded(g, GUARD_CHANGE_KNOWN))
        return;
    for (uint64_t i = g->raft.configuration_committed_index + 1; i <= prev; i++) {
        const struct log_entry *e = entry_log_get(&g->log, i);
        if (e && e->type == RAFT_CHANGE)
            group_settle_conf(g, i, e->data);
    }
}

/* Hands entries[from, to) over as a message of their own. */
static void give_append(struct group *g, const struct peer_message *w, size_t from, size_t to)
{
    BELAY_CHECK(from <= to && to <= w->n_entries && to - from <= WIRE_ENTRIES_MAX);
    struct raft_entry entries[WIRE_ENTRIES_MAX];
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES, .server_id = w->from};
    struct raft_append_entries *in = &m.append_entries;
    m.server_address = "";
    in->version = 1;
    in->term = w->term;
    in->prev_log_index = w->index + from;
    in->prev_log_term = from ? w->entries[from - 1].term : w->log_term;
    in->leader_commit = w->commit;
    in->n_entries = (unsigned)(to - from);
    in->entries = entries;
    void *token = to > from ? raft_malloc(1) : NULL;
    for (size_t i = from; i < to; i++)
        entries[i - from] = (struct raft_entry){
            .term = w->entries[i].term,
            .type = w->entries[i].type,
            .buf = {(void *)(uintptr_t)w->entries[i].data.data, w->entries[i].data.len},
            .batch = token};
    uint64_t end = in->prev_log_index + in->n_entries;
    uint64_t commit = raft_commit_index(&g->raft);
    if (end < commit && in->leader_commit > commit && group_guarded(g, GUARD_COMMIT_FORWARD))
        in->leader_commit = commit;
    struct raft_event event = {.type = RAFT_RECEIVE};
    event.receive.message = &m;
    group_step(g, &event);
    group_apply_committed(g);
}

static void receive_append(struct group *g, const struct peer_message *w)
{
    BELAY_CHECK(w->type == WIRE_APPEND && w->from != g->raft.id);
    if (raft_state(&g->raft) == RAFT_LEADER && w->term == raft_current_term(&g->raft) &&
        group_guarded(g, GUARD_ONE_LEADER)) {
        log_error("raft.two_leaders", "shard=%u term=%" PRIu64 " other=%" PRIu64, g->group_no,
                  w->term, w->from);
        return;
    }
    /* What is before our first entry is in our snapshot, and so it is the same: go on behind
     * it. */
    uint64_t covered = g->raft.trail.snapshot.index;
    size_t from = 0;
    if (w->index < g->log.first && w->index < covered && group_guarded(g, GUARD_COVERED)) {
        from = (size_t)(covered - w->index);
        struct peer_message beat = *w;
        beat.index = covered;
        beat.log_term = g->raft.trail.snapshot.term;
        beat.n_entries = 0;
        if (from >= w->n_entries) {
            give_append(g, &beat, 0, 0);
            return;
        }
    }
    do {
        size_t to = from;
        while (to < w->n_entries) {
            bool change =
                w->entries[to].type == RAFT_CHANGE && group_guarded(g, GUARD_CHANGE_ALONE);
            if (change && to > from)
                break;
            to++;
            if (change)
                break;
        }
        BELAY_CHECK(to > from || w->n_entries == 0);
        uint64_t prev = w->index + from;
        if (from > 0 && raft_last_index(&g->raft) < prev)
            return; /* the part before was refused: the leader has been told where to go on */
        if (to > from && w->entries[from].type == RAFT_CHANGE)
            settle_confs(g, w, from);
        give_append(g, w, from, to);
        from = to;
    } while (from < w->n_entries);
}

bool group_install(struct group *g, uint64_t from, const struct group_snapshot *snap,
                   uint64_t now_ms)
{
    BELAY_CHECK(snap->index > 0 && from != g->raft.id);
    group_advance_clock(g, now_ms);
    if (snap->term > group_term(g) || snap->conf_index > snap->index ||
        group_leader(g) != from || !group_can_install(g) ||
        group_covers(g, snap->index, snap->term))
        return false;
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT, .server_id = from};
    m.server_address = "";
    m.install_snapshot.term = group_term(g);
    m.install_snapshot.last_index = snap->index;
    m.install_snapshot.last_term = snap->term;
    m.install_snapshot.conf_index = snap->conf_index;
    group_conf_to_raft(&snap->conf, &m.install_snapshot.conf);
    m.install_snapshot.data = (struct raft_buffer){raft_malloc(1), 1};
    struct raft_event event = {.type = RAFT_RECEIVE};
    event.receive.message = &m;
    group_step(g, &event);
    group_apply_committed(g);
    BELAY_CHECK(g->raft.id != from);
    return g->installing.index == snap->index;
}

/* Votes are counted by the candidate's configuration, which may be newer than ours: when it
 * says that we vote and ours says that we learn, nobody could be elected. For this step we are
 * a voter. */
static struct raft_server *lend_vote(struct group *g, const struct peer_message *w)
{
    BELAY_CHECK(g->raft.configuration.n <= GROUP_SERVERS_MAX);
    if (w->type != WIRE_VOTE || !group_guarded(g, GUARD_LEARNER_VOTES))
        return NULL;
    for (unsigned i = 0; i < g->raft.configuration.n; i++) {
        struct raft_server *s = &g->raft.configuration.servers[i];
        if (s->id == g->raft.id && s->role == RAFT_STANDBY) {
            s->role = RAFT_VOTER;
            return s;
        }
    }
    return NULL;
}

/* A node that has not heard its leader for one election time lets others stand. The core would
 * wait for its own time-out, which is random and up to twice as long. */
static void doubt_leader(struct group *g, const struct peer_message *w)
{
    BELAY_CHECK(g->now_ms >= g->raft.election_timer_start || g->raft.state != RAFT_FOLLOWER);
    if (w->type == WIRE_VOTE && g->raft.state == RAFT_FOLLOWER &&
        g->now_ms - g->raft.election_timer_start >= g->raft.election_timeout &&
        group_guarded(g, GUARD_SILENT_LEADER))
        g->raft.follower_state.current_leader.id = 0;
}

static bool stale_reject(const struct group *g, const struct peer_message *w)
{
    uint64_t match;
    return w->type == WIRE_APPEND_RESULT && w->reject > 0 && w->term == group_term(g) &&
           group_match(g, w->from, &match) && w->reject <= match &&
           group_guarded(g, GUARD_STALE_REJECT);
}

/* Heartbeats to a node that is offered a snapshot end at our newest one. The core takes a refusal
 * only if it ends at the snapshot that was offered: with a newer one made since it would hear none,
 * and offer nothing. So it hears once that the old one is missing. */
static void refuse_offer(struct group *g, uint64_t from,
                         struct raft_append_entries_result *result)
{
    BELAY_CHECK(from != g->raft.id);
    struct told *offered = group_offered(g, from);
    if (!offered || offered->id != from || offered->term != result->term ||
        offered->index >= result->rejected ||
        result->rejected != g->raft.trail.snapshot.index ||
        !group_guarded(g, GUARD_NEWER_SNAPSHOT))
        return;
    BELAY_DCHECK(offered->index > 0);
    result->rejected = offered->index;
    if (result->last_log_index >= offered->index)
        result->last_log_index = offered->index - 1;
    *offered = (struct told){0};
}

static void receive_small(struct group *g, const struct peer_message *w)
{
    BELAY_CHECK(w->type == WIRE_APPEND_RESULT || w->type == WIRE_VOTE ||
                w->type == WIRE_VOTE_RESULT || w->type == WIRE_TIMEOUT_NOW);
    struct raft_message m = {.server_id = w->from, .server_address = ""};
    if (w->type == WIRE_APPEND_RESULT) {
        m.type = RAFT_APPEND_ENTRIES_RESULT;
        m.append_entries_result =
            (struct raft_append_entries_result){.version = 1,
                                                .term = w->term,
                                                .rejected = w->reject,
                                                .last_log_index = w->index,
                                                .features = (unsigned short)w->features};
        refuse_offer(g, w->from, &m.append_entries_result);
    } else if (w->type == WIRE_VOTE) {
        m.type = RAFT_REQUEST_VOTE;
        m.request_vote = (struct raft_request_vote){.version = 2,
                                                    .term = w->term,
                                                    .candidate_id = w->from,
                                                    .last_log_index = w->index,
                                                    .last_log_term = w->log_term,
                                                    .disrupt_leader = w->flags & WIRE_DISRUPT,
                                                    .pre_vote = w->flags & WIRE_PRE_VOTE};
    } else if (w->type == WIRE_VOTE_RESULT) {
        if (!group_may_stand(g, w->term))
            return; /* it was for an earlier start of this node */
        if (g->raft.state != RAFT_CANDIDATE)
            return; /* too late; and the core would look at a field of another state's union */
        m.type = RAFT_REQUEST_VOTE_RESULT;
        m.request_vote_result =
            (struct raft_request_vote_result){.version = 3,
                                              .term = w->term,
                                              .vote_granted = w->flags & WIRE_GRANTED,
                                              .pre_vote = w->flags & WIRE_PRE_VOTE,
                                              .features = (unsigned short)w->features};
    } else {
        m.type = RAFT_TIMEOUT_NOW;
        if (g->never_leads)
            return;
        m.timeout_now = (struct raft_timeout_now){.version = 1,
                                                  .term = w->term,
                                                  .last_log_index = w->index,
                                                  .last_log_term = w->log_term};
    }
    if (stale_reject(g, w))
        return;
    struct raft_event event = {.type = RAFT_RECEIVE};
    event.receive.message = &m;
    struct raft_server *lent = lend_vote(g, w);
    doubt_leader(g, w);
    BELAY_CHECK(!g->asked);
    g->asked = w->type == WIRE_VOTE ? w : NULL;
    group_step(g, &event);
    g->asked = NULL;
    if (lent)
        lent->role = RAFT_STANDBY;
    group_apply_committed(g);
}

static const char *numbers_problem(const struct group *g, const struct peer_message *w)
{
    if (w->term == 0 || !group_is_term(g, w->term))
        return "its term is out of range";
    if (w->index > GROUP_NUMBER_MAX || w->log_term > GROUP_NUMBER_MAX ||
        w->commit > GROUP_NUMBER_MAX || w->reject > GROUP_NUMBER_MAX ||
        w->seq > GROUP_NUMBER_MAX)
        return "a number of it is out of range";
    return NULL;
}

const char *group_problem(const struct group *g, const struct peer_message *msg)
{
    BELAY_CHECK(msg->group_no == g->group_no);
    const char *what = numbers_problem(g, msg);
    return !what && msg->type == WIRE_APPEND ? append_problem(g, msg) : what;
}

void group_receive(struct group *g, const struct peer_message *msg, uint64_t now_ms)
{
    BELAY_CHECK(msg->group_no == g->group_no && msg->from != g->raft.id);
    uint64_t leader = group_leader(g);
    group_advance_clock(g, now_ms);
    switch (msg->type) {
    case WIRE_APPEND:
        if (msg->term >= group_term(g)) {
            g->entries_term = msg->term;
            g->entries_from = msg->from;
        }
        g->no_answer = msg->flags & WIRE_NO_ANSWER;
        g->is_old = msg->term < raft_current_term(&g->raft);
        receive_append(g, msg);
        g->no_answer = g->is_old = false;
        break;
    case WIRE_APPEND_RESULT:
    case WIRE_VOTE:
    case WIRE_VOTE_RESULT:
    case WIRE_TIMEOUT_NOW:
        receive_small(g, msg);
        break;
    case WIRE_NONE:
    case WIRE_SNAPSHOT:
    case WIRE_FETCH:
    case WIRE_PIECE:
    case WIRE_PROBE:
    case WIRE_PROBE_ACK:
    case WIRE_FORWARD:
    case WIRE_READ:
    case WIRE_READ_AT:
    case WIRE_ASK:
    case WIRE_TOLD:
    case WIRE_NODE:
    case WIRE_TYPE_COUNT:
        break; /* the order's own */
    }
    BELAY_DCHECK(!g->asked && !g->no_answer && !g->is_old);
    if (group_leader(g) != leader)
        g->env->changed(g->ctx, g->group_no);
}

/* With copies of its own term a majority proves that no other leader can replace what is before
 * them; with older ones it proves nothing (the Raft paper's figure 8). */
void group_count_copies(struct group *g)
{
    struct group_conf conf;
    if (group_guarded(g, GUARD_OWN_TERM) || g->raft.state != RAFT_LEADER)
        return;
    group_conf(g, &conf);
    for (uint64_t index = raft_commit_index(&g->raft) + 1; index <= group_last(g); index++) {
        size_t copies = 0;
        for (size_t i = 0; i < conf.n; i++) {
            uint64_t match = 0;
            copies += conf.servers[i].voter && group_match(g, conf.servers[i].id, &match) &&
                      match >= index;
        }
        BELAY_DCHECK(copies <= group_conf_voters(&conf));
        if (copies <= group_conf_voters(&conf) / 2)
            return;
        g->raft.commit_index = index;
    }
}
