/* refusal.c - which node refuses which other one, and why. */
#include "net/refusal.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SAY_MS = 600000, /* the same is said again so seldom */
    OVER_MS = 5000,  /* a refused node comes twice a second; else it has gone */
};

static const struct refusal *find(const struct refusal by_place[NODE_PLACES], uint64_t node)
{
    static const struct refusal none;
    const struct refusal *r = &by_place[place_of(node)];
    return r->node == node ? r : &none;
}

/* True: the log should say it. */
static bool note(struct refusal *r, uint64_t node, const struct peer_refusal *no,
                 uint64_t now_ms)
{
    bool same = r->node == node && strcmp(r->no.why, no->why) == 0;
    r->node = node;
    r->no = *no;
    r->at_ms = now_ms;
    r->times++;
    if (same && now_ms < r->say_ms)
        return false;
    r->say_ms = now_ms + SAY_MS;
    return true;
}

void refusal_by_us(struct refusals *r, const struct peer_hello *hello, const char *event,
                   const struct peer_refusal *no, uint64_t now_ms)
{
    struct refusal *of = &r->by_us[place_of(hello->node)];
    if (!note(of, hello->node, no, now_ms))
        return;
    log_error(event, "node=%s error=\"%s\" times=%" PRIu64, log_bytes(slice_str(hello->name)),
              no->why, of->times);
    of->times = 0;
}

void refusal_of_us(struct refusals *r, uint64_t node, const struct peer_refusal *no,
                   uint64_t now_ms)
{
    struct refusal *of = &r->of_us[place_of(node)];
    if (!note(of, node, no, now_ms))
        return;
    log_error("peer.refuses", "node=%" PRIu64 " error=%s times=%" PRIu64, node,
              log_bytes(slice_str(no->why)), of->times);
    of->times = 0;
}

void refusal_clear(struct refusal by_place[NODE_PLACES], uint64_t node)
{
    by_place[place_of(node)] = (struct refusal){0};
}

static bool leads_something(struct replica *o, uint64_t node)
{
    for (size_t i = 0; i < replica_groups(o); i++)
        if (group_leader(replica_group(o, i)) == node)
            return true;
    return false;
}

static bool says_removed(const struct peer_refusal *no)
{
    return no->removed;
}

static bool says_over(const struct peer_refusal *no)
{
    return no->over;
}

static bool most_say(const struct refusals *r, struct replica *o, uint64_t self,
                     bool (*says)(const struct peer_refusal *no))
{
    struct group_conf conf;
    size_t others = 0;
    size_t say_so = 0;
    group_conf(replica_group(o, 0), &conf);
    for (size_t i = 0; i < conf.n; i++) {
        const struct group_server *s = &conf.servers[i];
        if (!s->voter || s->id == self)
            continue;
        others++;
        say_so += says(&find(r->of_us, s->id)->no);
    }
    return say_so > others / 2;
}

bool refusal_proves_removed(const struct refusals *r, struct replica *o, uint64_t self)
{
    return most_say(r, o, self, says_removed);
}

bool refusal_proves_over(const struct refusals *r, struct replica *o, uint64_t self)
{
    return most_say(r, o, self, says_over);
}

const char *refusal_not_ready(const struct refusals *r, struct replica *o, uint64_t self)
{
    static _Thread_local char text[REFUSAL_TEXT_MAX];
    struct group_conf conf;
    size_t others = 0;
    size_t refuse = 0;
    bool leads = false;
    group_conf(replica_group(o, 0), &conf);
    for (size_t i = 0; i < conf.n; i++) {
        const struct group_server *s = &conf.servers[i];
        const char *why = find(r->of_us, s->id)->no.why;
        struct member m;
        others += s->voter && s->id != self;
        if (*why == '\0')
            continue;
        member_parse(s->address, &m);
        snprintf(text, sizeof text, "refused by %s: %s", m.name, why);
        refuse += s->voter;
        leads |= leads_something(o, s->id);
    }
    return leads || refuse > others / 2 ? text : NULL;
}

void refusal_problem(const struct refusals *r, uint64_t node, uint64_t now_ms,
                     char ret[REFUSAL_TEXT_MAX])
{
    const struct refusal *by = find(r->by_us, node);
    const struct refusal *of = find(r->of_us, node);
    ret[0] = '\0';
    if (by->no.why[0] && now_ms - by->at_ms < OVER_MS)
        snprintf(ret, REFUSAL_TEXT_MAX, "refused by this node: %s", by->no.why);
    else if (of->no.why[0])
        snprintf(ret, REFUSAL_TEXT_MAX, "refuses this node: %s", of->no.why);
}
