/* session_level0.c - what sessions do at level 0 with several groups, for logs that were
 * written then; and how they move on.
 *
 *   group 0: the time to live is over --KEEPALIVE--> shard: so long it is used here
 *   group 0 <--KEEPALIVE, ttl_ms-- shard;  all have said 0: it ends
 *   shard: "not used", and it is used after that --ENROL--> group 0 --OPEN--> shard
 *   group 0: its connection is gone --DETACH--> shard: what was done before does not count
 *
 * Groups move one by one: messages of a group that is still at level 0 are taken at any level.
 */
#include "machine/session_level0.h"
#include "base/check.h"
#include "machine/outbox.h"
#include "machine/session.h"

/* It is noted only: group 0 asks when it thinks that the end has come. If the answer was then
 * that it is not used, it may be over by now, and is enrolled again. */
void old_guest_used(struct machine *m, struct session *s)
{
    BELAY_CHECK(s->guest != GUEST_NOT);
    s->kept_ms = m->now_ms + s->ttl_ms;
    if (s->guest != GUEST_SILENT)
        return;
    struct op message = {
        .kind = OP_SESSION_ENROL, .session = session_id(s), .target = m->group};
    outbox_post(m, 0, &message);
    s->guest = GUEST_ENROLS;
}

/* Group 0 knows only of the uses it has seen itself. The shards say how long theirs keep it; it
 * ends when all have said that they do not. Meanwhile it has no end: late perhaps, never early.
 */
void old_ask(struct machine *m, struct session *s)
{
    BELAY_CHECK(s->end.pos && s->enrolled);
    struct op message = {.kind = OP_SESSION_KEEPALIVE, .session = session_id(s)};
    session_tell(m, s->enrolled & ~s->asked, &message);
    s->asked = s->enrolled;
    heap_remove(&m->ends, &s->end);
}

/* Its connection is gone: only what is done from now on keeps it longer than it lingers. */
void guest_lingers(struct machine *m, const struct op *message)
{
    BELAY_CHECK(m->group != 0);
    struct session *s = guest_of(m, message);
    if (s)
        s->kept_ms = m->now_ms;
}

void guest_asked(struct machine *m, const struct op *message)
{
    struct session *s = guest_of(m, message);
    if (!s)
        return;
    struct op answer = {.kind = OP_SESSION_KEEPALIVE, .session = message->session};
    if (s->kept_ms > m->now_ms)
        answer.ttl_ms = s->kept_ms - m->now_ms;
    else if (s->guest == GUEST && m->level < LEVEL_KEEP_FIRST)
        s->guest = GUEST_SILENT;
    BELAY_CHECK(s->guest != GUEST_NOT);
    outbox_post(m, 0, &answer);
}

void guest_answered(struct machine *m, const struct op *message, uint64_t shard,
                    struct effects *fx)
{
    BELAY_CHECK(m->group == 0);
    struct session *s = session_find(m, message->account, message->session);
    if (!s || s->guest != GUEST_NOT)
        return;
    uint64_t end = m->now_ms + message->ttl_ms;
    s->asked &= ~group_bit(m, shard);
    if (message->ttl_ms && (s->end.pos == 0 || s->end.at < end))
        heap_set(&m->ends, &s->end, end);
    if (!s->asked && s->end.pos == 0)
        session_end(m, s, REASON_TTL, 0, fx);
}

void guest_enrols(struct machine *m, const struct op *message, uint64_t shard)
{
    BELAY_CHECK(m->group == 0);
    struct session *s = session_find(m, message->account, message->session);
    if (!s || s->guest != GUEST_NOT || group_bit(m, shard) == 0)
        return; /* it has ended, and a message that says so is on its way */
    session_keep(m, s);
    session_invite(m, s, shard);
}

/* A shard may have used it just now, and not said so: it lives for its whole time from here. */
void old_sessions_move(struct machine *m)
{
    BELAY_CHECK(m->level < LEVEL_KEEP_FIRST);
    list_each (it, &m->session_list) {
        struct session *s = list_item(it, struct session, in_machine);
        uint64_t end = m->now_ms + s->ttl_ms + s->ttl_ms / 4;
        if (s->guest != GUEST_NOT)
            s->guest = GUEST;
        else if (s->enrolled && (s->end.pos == 0 || s->end.at < end))
            heap_set(&m->ends, &s->end, end);
        s->asked = 0;
    }
}
