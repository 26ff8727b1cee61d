/* refusal.c - why a lock was not given, in words: who holds it, and since when. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 1000 };

/* When that was, as in the logs of servers: their clock does not count, ours may be wrong. */
static void put_since(struct buf *out, int64_t ms_ago)
{
    struct timespec now = {0};
    struct tm day = {0};
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    time_t then = now.tv_sec + (now.tv_nsec / 1000000 - ms_ago) / 1000;
    gmtime_r(&then, &day);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &day);
    buf_printf(out, ", since %s", text);
}

static void put_owner(struct buf *out, const struct belay_reply *row)
{
    const struct belay_reply *owner = belay_get(row, "owner");
    cli_put_safe(out, belay_text(owner, "?"), owner ? owner->len : 1);
}

static int64_t length(const struct belay_reply *lock, const char *list, const char *total)
{
    const struct belay_reply *rows = belay_get(lock, list), *all = belay_get(lock, total);
    return all ? belay_int(all, 0) : rows ? (int64_t)rows->count : 0;
}

/* "held by ci-7 for 1m20s, since 2026-11-19T14:02:11Z, and 2 others; 3 wait in line" */
static bool put_holders(struct buf *out, const struct belay_reply *lock)
{
    const struct belay_reply *first = belay_at(belay_get(lock, "holders"), 0);
    int64_t others = length(lock, "holders", "holders_total") - 1;
    int64_t line = length(lock, "waiters", "waiters_total");
    int64_t held_ms = belay_int(belay_get(first, "held_ms"), -1);
    if (!first && !line)
        return false;
    if (first) {
        buf_put_str(out, "held by ");
        put_owner(out, first);
    } else {
        buf_put_str(out, "nobody holds it now");
    }
    if (held_ms >= 0) {
        buf_put_str(out, " for ");
        cli_put_duration(out, held_ms);
        put_since(out, held_ms);
    }
    if (others > 0)
        buf_printf(out, ", and %" PRId64 " other%s", others, others > 1 ? "s" : "");
    if (line > 0)
        buf_printf(out, "; %" PRId64 " wait%s in line", line, line > 1 ? "" : "s");
    return true;
}

static void put_held(struct buf *out, const struct belay_reply *lock)
{
    if (put_holders(out, lock))
        return;
    buf_put_str(out, lock ? "another owner held it, or waited before you; it is free now"
                          : "another owner holds it, or waits before you");
}

/* Either the asker holds it in another mode, or it is another kind of lock. */
static void put_kind(struct buf *out, const char *owner, const struct belay_reply *lock)
{
    const struct belay_reply *row = belay_at(belay_get(lock, "holders"), 0);
    const char *state = belay_text(belay_get(lock, "state"), "");
    for (; row; row = row->next) {
        const char *mode = belay_text(belay_get(row, "mode"), "");
        if (strcmp(belay_text(belay_get(row, "owner"), ""), owner) == 0 &&
            strcmp(mode, "semaphore") != 0) {
            buf_printf(out,
                       "you hold it already, in another mode: %s; belay convert changes it",
                       mode);
            return;
        }
    }
    buf_put_str(out, "it is in use as a lock of another kind: ");
    if (strcmp(state, "semaphore") == 0)
        buf_printf(out, "a semaphore with %" PRId64 " permits",
                   belay_int(belay_get(lock, "of"), 0));
    else if (strcmp(state, "shared") == 0 || strcmp(state, "exclusive") == 0)
        buf_put_str(out, "a read/write lock");
    else
        buf_put_str(out, "a read/write lock, or a semaphore with another number of permits");
    struct buf who = {0};
    if (put_holders(&who, lock))
        buf_printf(out, "; %s", buf_cstr(&who));
    buf_done(&who);
}

static void put_closed(struct buf *out, const struct belay_reply *lock)
{
    int64_t closed_ms = belay_int(belay_get(lock, "closed_ms"), 0);
    buf_put_str(out, "it is closed for ");
    if (closed_ms > 0)
        cli_put_duration(out, closed_ms);
    else
        buf_put_str(out, "a while");
    buf_put_str(out, " after its holder was lost");
}

void cli_put_refusal(struct buf *out, const char *reason, const char *owner,
                     const struct belay_reply *lock)
{
    if (strcmp(reason, "held") == 0)
        put_held(out, lock);
    else if (strcmp(reason, "kind") == 0)
        put_kind(out, owner, lock);
    else if (strcmp(reason, "closed") == 0)
        put_closed(out, lock);
    else if (strcmp(reason, "replaced") == 0)
        buf_put_str(out, "the same owner asked again and took this place");
    else if (strcmp(reason, "release") == 0)
        buf_put_str(out, "its owner was released meanwhile, and left the line");
    else if (strcmp(reason, "lost") == 0)
        buf_put_str(out, "the hold to be converted has ended");
    else if (strcmp(reason, "session") == 0)
        buf_put_str(out, "its session has ended");
    else if (strcmp(reason, "namespace") == 0)
        buf_put_str(out, "its namespace was deleted");
    else if (strcmp(reason, "revoked") == 0)
        buf_put_str(out, "the token that it was asked for with was revoked");
    else
        buf_put_str(out, reason);
}

const struct belay_reply *cli_look(const struct cli *c, const char *name)
{
    const struct belay_bytes words[] = {{"SHOW", 4}, {name, strlen(name)}};
    const struct belay_reply *lock = NULL;
    if (!belay_is_connected(c->belay) ||
        belay_callv(c->belay, words, 2, LOOK_MS, &lock) != BELAY_E_OK)
        return NULL;
    return lock;
}
