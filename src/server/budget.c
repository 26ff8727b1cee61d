/* budget.c - the memory of the process: parts, their shares, and clients that use too much. */
#include "server/budget.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/tally.h"
#include "command/command.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 64 << 10, PATH_BYTES = 4096, SIXTEENTHS = 16 };

static const struct {
    const char *name;
    size_t sixteenths;
} parts[] = {
#define X(id, name, sixteenths) [BUDGET_##id] = {name, sixteenths},
    BUDGET_PART_MAP(X)
#undef X
};

/* --- how much this process may have --- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number in a file; UINT64_MAX: there is none ("max", or no such file). */
static uint64_t number_in(const char *path)
{
    struct buf text = {0};
    uint64_t n = UINT64_MAX;
    if (buf_read_file(&text, path, FILE_BYTES_MAX) == BELAY_OK) {
        char *end;
        const char *at = buf_cstr(&text);
        unsigned long long v = strtoull(at, &end, 10);
        n = end == at ? UINT64_MAX : v;
    }
    buf_done(&text);
    return n;
}

/* The least limit of a control group and those above it. `path` begins with '/'. */
static uint64_t group_limit(const char *mount, const char *path, const char *file)
{
    char at[PATH_BYTES], full[2 * PATH_BYTES];
    uint64_t limit = UINT64_MAX;
    if (strlen(path) >= sizeof at)
        return limit;
    memcpy(at, path, strlen(path) + 1);
    for (;;) {
        (void)snprintf(full, sizeof full, "%s%s/%s", mount, at, file);
        limit = least(limit, number_in(full));
        char *slash = strrchr(at, '/');
        if (!slash)
            return limit;
        *slash = '\0';
    }
}

/* /proc/self/cgroup: "0::/path" (version 2), "4:memory:/path" (version 1). */
static uint64_t cgroup_limit(void)
{
    struct buf text = {0};
    uint64_t limit = UINT64_MAX;
    if (buf_read_file(&text, "/proc/self/cgroup", FILE_BYTES_MAX) == BELAY_OK) {
        buf_put_byte(&text, '\0');
        char *save = NULL;
        char *line = text.oom ? NULL : strtok_r(text.mem + text.start, "\n", &save);
        for (; line; line = strtok_r(NULL, "\n", &save)) {
            const char *v1 = strstr(line, ":memory:");
            if (strncmp(line, "0::", 3) == 0)
                limit = least(limit, group_limit("/sys/fs/cgroup", line + 3, "memory.max"));
            else if (v1)
                limit = least(limit, group_limit("/sys/fs/cgroup/memory", v1 + 8,
                                                 "memory.limit_in_bytes"));
        }
    }
    buf_done(&text);
    return limit;
}

static uint64_t machine_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What a limit of the address space leaves: code, stacks and what threads have reserved count
 * there, too, and blocks that are free but scattered. So half of the rest is ours. */
static uint64_t address_space(void)
{
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t taken =
        least(number_in("/proc/self/statm"), UINT32_MAX) * (uint64_t)sysconf(_SC_PAGESIZE);
    return space.rlim_cur > taken ? (space.rlim_cur - taken) / 2 : 0;
}

static size_t default_limit(void)
{
    uint64_t memory = least(machine_bytes(), cgroup_limit()) / 5 * 3;
    uint64_t limit = least(memory, address_space());
    return limit < SERVER_MEMORY_MIN ? SERVER_MEMORY_MIN : (size_t)limit;
}

void budget_init(struct budget *b, size_t limit)
{
    tally_keep_reserve(BUDGET_RESERVE_BYTES);
    *b = (struct budget){.limit = limit ? limit : default_limit()};
}

void budget_tend(void)
{
    tally_keep_reserve(BUDGET_RESERVE_BYTES);
}

/* --- the parts --- */

size_t budget_share(const struct budget *b, enum budget_part part)
{
    return b->limit / SIXTEENTHS * parts[part].sixteenths;
}

size_t budget_used(const struct budget *b, enum budget_part part)
{
    if (part != BUDGET_STATE)
        return b->parts[part];
    size_t others = 0;
    for (int i = BUDGET_STATE + 1; i < BUDGET_PARTS; i++)
        others += b->parts[i];
    size_t all = tally_bytes();
    return all > others ? all - others : 0;
}

bool budget_is_full(const struct budget *b, enum budget_part part)
{
    return budget_used(b, part) >= budget_share(b, part) ||
           (part == BUDGET_STATE && tally_is_short());
}

bool budget_is_nearly_full(const struct budget *b, enum budget_part part)
{
    size_t share = budget_share(b, part);
    return budget_used(b, part) >= share - share / SIXTEENTHS ||
           (part == BUDGET_STATE && tally_is_short());
}

void budget_report(struct budget *b, enum budget_part part, size_t was, size_t is)
{
    BELAY_DCHECK(b->parts[part] >= was);
    b->parts[part] += is - was;
}

const char *budget_part_name(enum budget_part part)
{
    return parts[part].name;
}

bool budget_is_growth(const struct call *call)
{
    if (call->kind == CALL_ACTION)
        return call->action == ACTION_WATCH || call->action == ACTION_QUEUE_PUSH;
    switch ((int)call->op.kind) {
    case OP_ACQUIRE:
    case OP_SESSION_OPEN:
    case OP_NAMESPACE_CREATE:
        return true;
    case OP_NAMESPACE_UPDATE:
        return call->op.text.len > 0;
    case OP_BODY:
        return call->op.body.len > 0;
    case OP_TXN:
        return call->op.program.len > 0; /* without one it only keeps its session */
    default:
        return false;
    }
}
