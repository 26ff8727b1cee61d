/* group.c - see group.h; what comes in from others is group_receive.c. */
#include "raft/group.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "raft/group_core.h"
#include "raft/place.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)GROUP_ENTRY_CHANGE == (int)RAFT_CHANGE, "the journal knows it by number");
static_assert((int)GROUP_ENTRY_COMMAND == (int)RAFT_COMMAND, "the journal knows it by number");

/* --- memory and traces of the core --- */

static void *heap_malloc(void *data, size_t size)
{
    (void)data;
    return mem_alloc(size);
}

static void heap_free(void *data, void *ptr)
{
    (void)data;
    free(ptr);
}

static void *heap_calloc(void *data, size_t n, size_t size)
{
    (void)data;
    BELAY_CHECK(size == 0 || n <= SIZE_MAX / size);
    return mem_zalloc(n * size);
}

static void *heap_realloc(void *data, void *ptr, size_t size)
{
    (void)data;
    return mem_resize(ptr, size);
}

static void *heap_aligned(void *data, size_t alignment, size_t size)
{
    (void)data;
    void *p = aligned_alloc(alignment, size);
    BELAY_CHECK(p);
    return p;
}

static void heap_aligned_free(void *data, size_t alignment, void *ptr)
{
    (void)data;
    (void)alignment;
    free(ptr);
}

static struct raft_heap heap = {NULL,         heap_malloc,  heap_free,        heap_calloc,
                                heap_realloc, heap_aligned, heap_aligned_free};

/* --- configurations --- */

void group_conf_to_raft(const struct group_conf *conf, struct raft_configuration *c)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    raft_configuration_init(c);
    for (size_t i = 0; i < conf->n; i++) {
        int rv = raft_configuration_add(c, conf->servers[i].id, conf->servers[i].address,
                                        conf->servers[i].voter ? RAFT_VOTER : RAFT_STANDBY);
        BELAY_CHECK(rv == 0);
    }
}

static void conf_from_raft(const struct raft_configuration *c, struct group_conf *ret)
{
    BELAY_CHECK(c->n <= GROUP_SERVERS_MAX);
    ret->n = 0;
    for (unsigned i = 0; i < c->n && i < GROUP_SERVERS_MAX; i++) {
        struct group_server *s = &ret->servers[ret->n++];
        s->id = c->servers[i].id;
        s->voter = c->servers[i].role == RAFT_VOTER;
        snprintf(s->address, sizeof s->address, "%s", c->servers[i].address);
    }
}

/* --- out: messages --- */

static void post(struct group *g, uint64_t to, const struct peer_message *msg)
{
    BELAY_CHECK(msg->type != WIRE_NONE && msg->from == g->raft.id);
    if (to == 0)
        return;
    if (g->vote_lsn <= g->durable && !g->held) {
        g->env->send(g->ctx, to, msg);
        return;
    }
    struct held *h = mem_zalloc(sizeof *h);
    h->to = to;
    h->lsn = g->vote_lsn;
    peer_message_encode(msg, &h->bytes);
    BELAY_CHECK(!h->bytes.oom);
    BELAY_CHECK(!*g->held_end);
    *g->held_end = h;
    g->held_end = &h->next;
}

static void release_held(struct group *g)
{
    struct arena a = {0};
    while (g->held && g->held->lsn <= g->durable) {
        struct held *h = g->held;
        BELAY_CHECK(!h->next || h->next->lsn >= h->lsn);
        struct peer_message msg;
        enum belay_err err = peer_message_decode(buf_slice(&h->bytes), &a, &msg);
        BELAY_CHECK(err == BELAY_OK);
        g->env->send(g->ctx, h->to, &msg);
        g->held = h->next;
        buf_done(&h->bytes);
        free(h);
        arena_reset(&a);
    }
    if (!g->held)
        g->held_end = &g->held;
    arena_done(&a);
}

/* In several messages if it is much: what else there is to say goes in between. */
static void post_append(struct group *g, const struct raft_message *m, struct peer_message *w)
{
    const struct raft_append_entries *in = &m->append_entries;
    struct peer_entry entries[GROUP_INFLIGHT_MAX];
    BELAY_CHECK(in->n_entries <= GROUP_INFLIGHT_MAX);
    w->type = WIRE_APPEND;
    w->term = in->term;
    w->index = in->prev_log_index;
    w->log_term = in->prev_log_term;
    w->commit = in->leader_commit;
    (void)group_match(g, m->server_id, &w->reject);
    w->entries = entries;
    unsigned sent = 0;
    do {
        size_t bytes = 0;
        for (w->n_entries = 0; sent < in->n_entries && bytes < GROUP_APPEND_BYTES; sent++) {
            const struct log_entry *e = entry_log_get(&g->log, in->prev_log_index + 1 + sent);
            BELAY_CHECK(e);
            entries[w->n_entries++] = (struct peer_entry){e->term, e->type, e->data};
            bytes += e->data.len;
        }
        post(g, m->server_id, w);
        BELAY_CHECK(w->n_entries > 0 || in->n_entries == 0);
        w->index += w->n_entries;
        w->log_term = w->n_entries ? entries[w->n_entries - 1].term : w->log_term;
    } while (sent < in->n_entries);
}

struct told *group_offered(struct group *g, uint64_t id)
{
    BELAY_CHECK(place_of(id) != 0);
    for (unsigned i = 0; i < g->raft.configuration.n && i < GROUP_SERVERS_MAX; i++)
        if (g->raft.configuration.servers[i].id == id)
            return &g->offered[i];
    return NULL;
}

static void post_snapshot(struct group *g, const struct raft_message *m, struct peer_message *w)
{
    struct group_snapshot snap;
    struct told *offered = group_offered(g, m->server_id);
    if (offered)
        *offered = (struct told){m->server_id, m->install_snapshot.term,
                                 m->install_snapshot.last_index};
    if (!g->env->newest(g->ctx, g->group_no, &snap, &w->seq))
        return; /* the core asks again */
    BELAY_CHECK(snap.index > 0 && snap.term > 0);
    w->type = WIRE_SNAPSHOT;
    w->term = m->install_snapshot.term;
    w->index = snap.index;
    w->log_term =
        group_guarded(g, GUARD_SNAPSHOT_TERM) ? snap.term : m->install_snapshot.last_term;
    post(g, m->server_id, w);
}

static void post_message(struct group *g, const struct raft_message *m)
{
    BELAY_CHECK(m->server_id != g->raft.id);
    struct peer_message w = {.group_no = g->group_no, .from = g->raft.id};
    switch (m->type) {
    case RAFT_APPEND_ENTRIES:
        post_append(g, m, &w);
        return;
    case RAFT_INSTALL_SNAPSHOT:
        post_snapshot(g, m, &w);
        return;
    case RAFT_APPEND_ENTRIES_RESULT:
        if (g->no_answer && m->append_entries_result.rejected == 0)
            return;
        w.type = WIRE_APPEND_RESULT;
        w.term = m->append_entries_result.term;
        w.index = m->append_entries_result.last_log_index;
        w.reject = m->append_entries_result.rejected;
        if (w.reject == 0)
            w.index = group_gate_index(g, w.index);
        w.features = m->append_entries_result.features;
        if (g->is_old && group_guarded(g, GUARD_OLD_TERM)) {
            w.reject = w.reject ? w.reject : 1; /* 0 would be consent */
            w.index = w.reject - 1;
        }
        break;
    case RAFT_REQUEST_VOTE:
        if (g->never_leads || !group_may_stand(g, m->request_vote.term))
            return; /* it must stop believing in a dead leader, but it must not win */
        w.type = WIRE_VOTE;
        w.term = m->request_vote.term;
        w.index = m->request_vote.last_log_index;
        w.log_term = m->request_vote.last_log_term;
        w.flags = (m->request_vote.disrupt_leader ? WIRE_DISRUPT : 0u) |
                  (m->request_vote.pre_vote ? WIRE_PRE_VOTE : 0u);
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        w.type = WIRE_VOTE_RESULT;
        w.term = m->request_vote_result.term;
        w.flags = m->request_vote_result.pre_vote ? WIRE_PRE_VOTE : 0u;
        if (m->request_vote_result.vote_granted && group_may_vote(g))
            w.flags |= WIRE_GRANTED;
        w.features = m->request_vote_result.features;
        if ((w.flags & WIRE_PRE_VOTE) && !(w.flags & WIRE_GRANTED) &&
            w.term < raft_current_term(&g->raft) && group_guarded(g, GUARD_PRE_VOTE_TERM))
            w.term = raft_current_term(&g->raft);
        group_gate_hint(g, &w);
        break;
    case RAFT_TIMEOUT_NOW:
        w.type = WIRE_TIMEOUT_NOW;
        w.term = m->timeout_now.term;
        w.index = m->timeout_now.last_log_index;
        w.log_term = m->timeout_now.last_log_term;
        break;
    }
    BELAY_CHECK(w.type != WIRE_NONE);
    post(g, m->server_id, &w);
}

/* --- what a step wants done --- */

static void take_entries(struct group *g, struct raft_update *u)
{
    BELAY_CHECK(u->entries.n > 0 && u->entries.index > 0);
    for (unsigned i = 0; i < u->entries.n; i++) {
        const struct raft_entry *e = &u->entries.batch[i];
        struct slice data = slice_of(e->buf.base, e->buf.len);
        struct journal_record rec = {.kind = JOURNAL_ENTRY,
                                     .group_no = g->group_no,
                                     .type = (uint8_t)e->type,
                                     .term = e->term,
                                     .index = u->entries.index + i,
                                     .data = data};
        struct log_entry entry = {e->term, g->env->persist(g->ctx, &rec), data,
                                  (uint8_t)e->type};
        entry_log_put(&g->log, rec.index, &entry);
    }
    raft_free(u->entries.batch[0].batch);
}

static void take_snapshot(struct group *g, struct raft_update *u)
{
    struct group_snapshot *snap = &g->installing;
    snap->index = u->snapshot.metadata.index;
    snap->term = u->snapshot.metadata.term;
    snap->conf_index = u->snapshot.metadata.configuration_index;
    conf_from_raft(&u->snapshot.metadata.configuration, &snap->conf);
    raft_configuration_close(&u->snapshot.metadata.configuration);
    raft_free(u->snapshot.chunk.base);
    BELAY_CHECK(snap->index > 0 && snap->term > 0);
    entry_log_reset(&g->log, snap->index + 1);
    g->install_lsn = g->env->install(g->ctx, g->group_no, snap);
}

void group_settle_conf(struct group *g, uint64_t index, struct slice data)
{
    BELAY_CHECK(index > 0);
    if (index <= g->raft.configuration_committed_index && group_guarded(g, GUARD_CHANGE_KNOWN))
        return;
    struct group_conf conf;
    enum belay_err err = group_conf_decode(data, &conf);
    BELAY_CHECK(err == BELAY_OK);
    struct raft_event event = {.type = RAFT_CONFIGURATION};
    event.configuration.index = index;
    group_conf_to_raft(&conf, &event.configuration.conf);
    group_step(g, &event);
}

/* Applies what is committed and here. A configuration goes back into the core, which may lead
 * to more of everything; so one entry at a time, and never from inside a step. */
void group_apply_committed(struct group *g)
{
    group_count_copies(g);
    while (g->installing.index == 0 && g->applied < raft_commit_index(&g->raft)) {
        const struct log_entry *e = entry_log_get(&g->log, g->applied + 1);
        if (!e)
            return;
        uint64_t index = g->applied + 1;
        if (e->type == RAFT_COMMAND && !g->env->apply(g->ctx, g->group_no, index, e->data))
            return;
        g->applied = index;
        if (e->type == RAFT_CHANGE) {
            group_settle_conf(g, index, e->data);
            g->env->changed(g->ctx, g->group_no);
        }
    }
}

bool group_has_more(const struct group *g)
{
    return g->installing.index == 0 && g->applied < raft_commit_index(&g->raft) &&
           entry_log_get(&g->log, g->applied + 1);
}

void group_go_on(struct group *g, uint64_t now_ms)
{
    BELAY_CHECK(g->applied <= entry_log_last(&g->log) || g->installing.index != 0);
    if (!group_has_more(g))
        return;
    group_advance_clock(g, now_ms);
    group_apply_committed(g);
}

void group_take_update(struct group *g, struct raft_update *u)
{
    uint64_t last = entry_log_last(&g->log);
    if (u->flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR)) {
        struct journal_record rec = {.kind = JOURNAL_VOTE,
                                     .group_no = g->group_no,
                                     .term = raft_current_term(&g->raft),
                                     .index = raft_voted_for(&g->raft)};
        g->vote_lsn = g->env->persist(g->ctx, &rec);
    }
    if (u->flags & RAFT_UPDATE_ENTRIES)
        take_entries(g, u);
    if (u->flags & RAFT_UPDATE_SNAPSHOT)
        take_snapshot(g, u);
    if (u->flags & RAFT_UPDATE_MESSAGES)
        for (unsigned i = 0; i < u->messages.n; i++)
            post_message(g, &u->messages.batch[i]);
    group_set_timeout(g);
    if (u->flags & RAFT_UPDATE_STATE) {
        if (raft_state(&g->raft) == RAFT_LEADER)
            g->term_start = last > g->applied ? last : g->applied;
        g->env->changed(g->ctx, g->group_no);
    }
    BELAY_CHECK(entry_log_last(&g->log) == raft_last_index(&g->raft));
}

void group_step(struct group *g, struct raft_event *event)
{
    struct raft_update update;
    event->time = g->now_ms;
    event->capacity = 0;
    int rv = raft_step(&g->raft, event, &update);
    if (rv != 0)
        log_error("raft.step", "shard=%u event=%d error=\"%s\"", g->group_no, (int)event->type,
                  raft_strerror(rv));
    BELAY_CHECK(rv == 0);
    group_take_update(g, &update);
}

/* --- time and disk --- */

uint64_t group_persist_vote(struct group *g, uint64_t term, uint64_t vote)
{
    BELAY_CHECK(term > 0);
    struct journal_record rec = {
        .kind = JOURNAL_VOTE, .group_no = g->group_no, .term = term, .index = vote};
    return g->env->persist(g->ctx, &rec);
}

bool group_only_voter(const struct group_conf *conf, uint64_t id)
{
    BELAY_CHECK(conf->n <= GROUP_SERVERS_MAX);
    struct group_conf copy = *conf;
    const struct group_server *self = group_conf_find(&copy, id);
    return self && self->voter && group_conf_voters(conf) == 1;
}

static void installed(struct group *g)
{
    struct group_snapshot snap = g->installing;
    BELAY_CHECK(snap.index > 0 && g->install_lsn <= g->durable);
    g->installing.index = 0;
    g->applied = snap.index;
    g->env->restore(g->ctx, g->group_no);
    struct raft_event event = {.type = RAFT_PERSISTED_SNAPSHOT};
    event.persisted_snapshot.metadata = (struct raft_snapshot_metadata){
        .index = snap.index, .term = snap.term, .configuration_index = snap.conf_index};
    group_conf_to_raft(&snap.conf, &event.persisted_snapshot.metadata.configuration);
    event.persisted_snapshot.last = true;
    group_step(g, &event);
    g->env->changed(g->ctx, g->group_no);
}

void group_durable(struct group *g, uint64_t lsn, uint64_t now_ms)
{
    group_advance_clock(g, now_ms);
    g->durable = lsn;
    release_held(g);
    if (g->installing.index && g->install_lsn <= lsn)
        installed(g);
    if (g->installing.index)
        return;
    uint64_t stored = g->raft.last_stored;
    const struct log_entry *e = entry_log_get(&g->log, stored + 1);
    while (e && e->lsn <= lsn)
        e = entry_log_get(&g->log, ++stored + 1);
    if (stored > g->raft.last_stored) {
        struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};
        event.persisted_entries.index = stored;
        group_step(g, &event);
    }
    group_apply_committed(g);
}

/* --- requests --- */

static enum belay_err submit(struct group *g, enum raft_entry_type type, struct slice data)
{
    BELAY_CHECK(data.len > 0 && data.len <= GROUP_ENTRY_BYTES_MAX);
    struct raft_entry entry = {.term = raft_current_term(&g->raft),
                               .type = type,
                               .buf = {(void *)(uintptr_t)data.data, data.len},
                               .batch = raft_malloc(1)};
    struct raft_event event = {.type = RAFT_SUBMIT, .time = g->now_ms};
    event.submit.entries = &entry;
    event.submit.n = 1;
    struct raft_update update;
    int rv = raft_step(&g->raft, &event, &update);
    if (rv != 0) {
        raft_free(entry.batch);
        return rv == RAFT_NOTLEADER ? BELAY_ERR_NOT_LEADER : BELAY_ERR_UNAVAILABLE;
    }
    group_take_update(g, &update);
    group_apply_committed(g);
    return BELAY_OK;
}

enum belay_err group_propose(struct group *g, struct slice data, uint64_t now_ms)
{
    BELAY_CHECK(data.len > 0);
    BELAY_CHECK(data.len <= GROUP_ENTRY_BYTES_MAX);
    group_advance_clock(g, now_ms);
    return submit(g, RAFT_COMMAND, data);
}

/* A heartbeat that ends at what the follower is known to have: it proves nothing else, and an
 * answer would say nothing new. */
static void tell_commit(struct group *g, uint64_t id, struct told *told)
{
    BELAY_CHECK(id != g->raft.id);
    raft_index match;
    uint64_t commit = raft_commit_index(&g->raft);
    if (raft_match_index(&g->raft, id, &match) != 0 || match == 0)
        return;
    uint64_t known = match < commit ? match : commit;
    uint64_t term = raft_current_term(&g->raft);
    if (told->id == id && told->term == term && told->index >= known)
        return;
    const struct log_entry *e = entry_log_get(&g->log, match);
    if (!e)
        return; /* far behind: it needs more than this */
    BELAY_CHECK(known <= commit && known <= match);
    *told = (struct told){id, term, known};
    struct peer_message w = {.type = WIRE_APPEND,
                             .group_no = g->group_no,
                             .from = g->raft.id,
                             .term = term,
                             .index = match,
                             .log_term = e->term,
                             .commit = commit,
                             .reject = match,
                             .flags = WIRE_NO_ANSWER};
    post(g, id, &w);
}

void group_tell_commit(struct group *g)
{
    if (g->raft.state != RAFT_LEADER)
        return;
    for (unsigned i = 0; i < g->raft.configuration.n && i < GROUP_SERVERS_MAX; i++)
        if (g->raft.configuration.servers[i].id != g->raft.id)
            tell_commit(g, g->raft.configuration.servers[i].id, &g->told[i]);
}

enum belay_err group_transfer(struct group *g, uint64_t to, uint64_t now_ms)
{
    BELAY_CHECK(to != g->raft.id);
    group_advance_clock(g, now_ms);
    struct raft_event event = {.type = RAFT_TRANSFER, .time = g->now_ms};
    event.transfer.server_id = to;
    struct raft_update update;
    int rv = raft_step(&g->raft, &event, &update);
    if (rv == RAFT_NOTLEADER)
        return BELAY_ERR_NOT_LEADER;
    if (rv != 0)
        return BELAY_ERR_UNAVAILABLE;
    group_take_update(g, &update);
    return BELAY_OK;
}

/* Has this leader committed something in its own term? Until then it does not know which
 * configuration is in force. */
static bool committed_in_term(const struct group *g)
{
    const struct log_entry *e = entry_log_get(&g->log, raft_commit_index(&g->raft));
    return e && e->term == raft_current_term(&g->raft);
}

static enum belay_err edit_conf(const struct group *g, enum group_change what,
                                const struct group_server *server, struct group_conf *conf)
{
    BELAY_CHECK(conf->n > 0 && conf->n <= GROUP_SERVERS_MAX);
    struct group_server *known = group_conf_find(conf, server->id);
    if (what == GROUP_ADD) {
        if (known)
            return BELAY_ERR_EXISTS;
        if (conf->n == GROUP_SERVERS_MAX)
            return BELAY_ERR_LIMIT;
        conf->servers[conf->n] = *server;
        conf->servers[conf->n++].voter = false;
        return BELAY_OK;
    }
    if (!known)
        return BELAY_ERR_NOT_FOUND;
    if (what == GROUP_PROMOTE) {
        if (known->voter)
            return BELAY_ERR_EXISTS;
        known->voter = true;
        return BELAY_OK;
    }
    if (what == GROUP_EDIT) {
        memcpy(known->address, server->address, sizeof known->address);
        return BELAY_OK;
    }
    *known = conf->servers[--conf->n];
    const struct group_server *self = group_conf_find(conf, g->raft.id);
    if (group_conf_voters(conf) == 0)
        return BELAY_ERR_IN_USE;
    if (group_conf_voters(conf) == 1 && !(self && self->voter) &&
        group_guarded(g, GUARD_LAST_VOTER_LEADS))
        return BELAY_ERR_IN_USE;
    return BELAY_OK;
}

enum belay_err group_change(struct group *g, enum group_change what,
                            const struct group_server *server, uint64_t now_ms)
{
    BELAY_CHECK(place_of(server->id) != 0);
    group_advance_clock(g, now_ms);
    if (raft_state(&g->raft) != RAFT_LEADER)
        return BELAY_ERR_NOT_LEADER;
    if (g->raft.configuration_uncommitted_index != 0)
        return BELAY_ERR_UNAVAILABLE;
    if (group_guarded(g, GUARD_CHANGE_AFTER_COMMIT) && !committed_in_term(g)) {
        if (raft_commit_index(&g->raft) == group_last(g)) {
            static const char nothing[8];
            enum belay_err err = submit(g, RAFT_BARRIER, slice_of(nothing, sizeof nothing));
            if (err != BELAY_OK)
                return err;
        }
        return BELAY_ERR_UNAVAILABLE;
    }
    struct group_conf conf;
    struct buf bytes = {0};
    conf_from_raft(&g->raft.configuration, &conf);
    enum belay_err err = edit_conf(g, what, server, &conf);
    if (err == BELAY_OK) {
        group_conf_encode(&conf, &bytes);
        err = submit(g, RAFT_CHANGE, buf_slice(&bytes));
    }
    buf_done(&bytes);
    return err;
}

/* --- start and end --- */

void group_bootstrap(const struct group_config *config, const struct group_conf *conf)
{
    BELAY_CHECK(conf->n > 0 && group_conf_voters(conf) > 0);
    struct buf bytes = {0};
    group_conf_encode(conf, &bytes);
    (void)config->env->persist(
        config->ctx, &(struct journal_record){
                         .kind = JOURNAL_VOTE, .group_no = config->group_no, .term = 1});
    (void)config->env->persist(config->ctx,
                               &(struct journal_record){.kind = JOURNAL_ENTRY,
                                                        .group_no = config->group_no,
                                                        .type = RAFT_CHANGE,
                                                        .term = 1,
                                                        .index = 1,
                                                        .data = buf_slice(&bytes)});
    buf_done(&bytes);
}

/* Will it elect itself as soon as it starts? By the last configuration it has, committed or
 * not. */
static bool start_alone(const struct group *g, const struct group_state *state)
{
    BELAY_CHECK(state->snapshot.conf.n <= GROUP_SERVERS_MAX);
    struct group_conf conf = state->snapshot.conf;
    if (!state->snapshot.index)
        conf.n = 0;
    for (size_t i = 0; i < g->log.n; i++) {
        const struct log_entry *e = entry_log_get(&g->log, g->log.first + i);
        if (e->type == RAFT_CHANGE && group_conf_decode(e->data, &conf) != BELAY_OK)
            return false;
    }
    return group_only_voter(&conf, g->raft.id) && group_guarded(g, GUARD_NEW_TERM);
}

static void start(struct group *g, const struct group_state *state)
{
    BELAY_CHECK(g->applied == 0 && g->vote_lsn == 0);
    struct raft_event event = {.type = RAFT_START};
    struct raft_snapshot_metadata metadata = {0};
    struct raft_entry *entries = mem_alloc((g->log.n + 1) * sizeof *entries);
    event.start.term = state->term;
    event.start.voted_for = state->vote;
    event.start.start_index = 1;
    if (state->snapshot.index) {
        metadata.index = state->snapshot.index;
        metadata.term = state->snapshot.term;
        metadata.configuration_index = state->snapshot.conf_index;
        group_conf_to_raft(&state->snapshot.conf, &metadata.configuration);
        event.start.metadata = &metadata;
        event.start.start_index = state->snapshot.index + 1;
    }
    if (g->log.n > 0)
        event.start.start_index = g->log.first;
    for (size_t i = 0; i < g->log.n; i++) {
        const struct log_entry *e = entry_log_get(&g->log, g->log.first + i);
        entries[i] = (struct raft_entry){.term = e->term,
                                         .type = e->type,
                                         .buf = {(void *)(uintptr_t)e->data.data, e->data.len}};
    }
    BELAY_CHECK(g->log.n == 0 || g->log.first <= state->snapshot.index + 1);
    event.start.entries = entries;
    event.start.n_entries = (unsigned)g->log.n;
    if (start_alone(g, state)) {
        event.start.term++;
        event.start.voted_for = g->raft.id;
        g->vote_lsn = group_persist_vote(g, event.start.term, event.start.voted_for);
    }
    g->applied = state->snapshot.index;
    group_step(g, &event);
    free(entries);
    group_apply_committed(g);
}

struct group *group_open(const struct group_config *config, struct group_state *state,
                         uint64_t now_ms)
{
    BELAY_CHECK(config->heartbeat_ms > 0 && config->heartbeat_ms < config->election_ms);
    BELAY_CHECK(place_of(config->id) != 0 && config->inflight > 0 &&
                config->inflight <= GROUP_INFLIGHT_MAX);
    static bool heap_set;
    if (!heap_set)
        raft_heap_set(&heap);
    heap_set = true;
    struct group *g = mem_zalloc(sizeof *g);
    g->env = config->env;
    g->ctx = config->ctx;
    g->group_no = config->group_no;
    g->guards_off = config->guards_off;
    g->held_end = &g->held;
    g->now_ms = now_ms;
    g->led_term = state->term;
    g->log = state->log;
    state->log = (struct entry_log){0};
    if (g->log.n == 0)
        g->log.first = state->snapshot.index + 1;
    int rv = raft_init(&g->raft, NULL, NULL, config->id, "");
    BELAY_CHECK(rv == 0);
    g->raft.tracer = NULL; /* it has nothing to say above debug, and formats each line of it */
    raft_seed(&g->raft, config->seed);
    raft_set_pre_vote(&g->raft, true);
    raft_set_election_timeout(&g->raft, config->election_ms);
    raft_set_heartbeat_timeout(&g->raft, config->heartbeat_ms);
    raft_set_max_inflight_entries(&g->raft, config->inflight);
    start(g, state);
    return g;
}

void group_close(struct group *g)
{
    if (!g)
        return;
    raft_close(&g->raft, NULL);
    while (g->held) {
        struct held *h = g->held;
        g->held = h->next;
        buf_done(&h->bytes);
        free(h);
    }
    entry_log_done(&g->log);
    free(g);
}

/* --- questions --- */

enum group_role group_role(const struct group *g)
{
    if (g->raft.state == RAFT_LEADER)
        return GROUP_LEADER;
    return g->raft.state == RAFT_CANDIDATE ? GROUP_CANDIDATE : GROUP_FOLLOWER;
}

uint64_t group_term(const struct group *g)
{
    return raft_current_term(&g->raft);
}

uint64_t group_leader(const struct group *g)
{
    if (g->raft.state == RAFT_LEADER)
        return g->raft.id;
    return g->raft.state == RAFT_FOLLOWER ? g->raft.follower_state.current_leader.id : 0;
}

uint64_t group_applied(const struct group *g)
{
    return g->applied;
}

uint64_t group_commit(const struct group *g)
{
    return raft_commit_index(&g->raft);
}

uint64_t group_last(const struct group *g)
{
    return entry_log_last(&g->log);
}

bool group_installing(const struct group *g)
{
    return g->installing.index != 0;
}

bool group_can_install(const struct group *g)
{
    return (!g->making && !g->installing.index) || !group_guarded(g, GUARD_SNAPSHOT_BUSY);
}

bool group_covers(const struct group *g, uint64_t index, uint64_t term)
{
    BELAY_CHECK(index > 0 && term > 0);
    const struct log_entry *e = entry_log_get(&g->log, index);
    return raft_commit_index(&g->raft) >= index || g->raft.trail.snapshot.index >= index ||
           (e && e->term == term);
}

bool group_transferring(const struct group *g)
{
    return raft_transferee(&g->raft) != 0;
}

bool group_ready(const struct group *g)
{
    return g->raft.state == RAFT_LEADER && g->applied >= g->term_start;
}

void group_conf(const struct group *g, struct group_conf *ret)
{
    conf_from_raft(&g->raft.configuration, ret);
}

uint64_t group_conf_index(const struct group *g)
{
    return g->raft.configuration_committed_index;
}

void group_conf_committed(const struct group *g, struct group_conf *ret)
{
    conf_from_raft(&g->raft.configuration_committed, ret);
}

bool group_match(const struct group *g, uint64_t id, uint64_t *ret_index)
{
    BELAY_CHECK(id != 0);
    raft_index index;
    if (raft_match_index(&g->raft, id, &index) != 0)
        return false;
    *ret_index = index;
    return true;
}

uint64_t group_oldest_lsn(const struct group *g)
{
    const struct log_entry *e = entry_log_get(&g->log, g->log.first);
    return e ? e->lsn : UINT64_MAX;
}
