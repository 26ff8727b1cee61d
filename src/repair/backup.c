/* backup.c - see backup.h. */
#include "repair/backup.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/level.h"
#include "machine/machine.h"
#include "repair/create.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* What a group says of its messages to another one and from it. */
struct mail {
    uint64_t posted, waiting, taken;
};

struct looking {
    struct backup_found *found;
    struct slice left;
    uint32_t number;                     /* of the next part */
    struct mail out[JOURNAL_GROUPS_MAX], /* of group 0, to each shard */
        in[JOURNAL_GROUPS_MAX];          /* of each shard, to group 0 */
};

__attribute__((format(printf, 3, 4))) static enum belay_err
refuse(struct backup_found *found, enum belay_err err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misreads va_start */
    vsnprintf(found->problem, sizeof found->problem, format, args);
    va_end(args);
    return err;
}

static enum belay_err next_part(struct looking *l, enum backup_kind kind, struct slice *ret)
{
    enum belay_err err = backup_part(&l->left, kind, l->number, ret);
    if (err == BELAY_ERR_NO_PROTO)
        return refuse(l->found, err, "it was made by a newer belay");
    if (err != BELAY_OK)
        return refuse(l->found, err, "part %u is damaged, or not all of it is there",
                      l->number);
    l->number++;
    return BELAY_OK;
}

static struct mail mail_of(const struct machine *m, unsigned other)
{
    return (struct mail){machine_posted(m, other), machine_waiting(m, other),
                         machine_taken(m, other)};
}

static void count(struct looking *l, unsigned group, const struct machine *m)
{
    struct machine_counts counts;
    machine_counts(m, &counts);
    l->found->locks += counts.locks;
    if (group == 0)
        l->found->sessions = counts.sessions;
    if (machine_level(m) > l->found->level)
        l->found->level = machine_level(m);
    for (unsigned g = 1; group == 0 && g < l->found->head.groups; g++)
        l->out[g] = mail_of(m, g);
    if (group > 0 && group < JOURNAL_GROUPS_MAX)
        l->in[group] = mail_of(m, 0);
}

/* The state of the part, which is then the caller's. */
static enum belay_err read_state(struct looking *l, unsigned group, struct judged *ret)
{
    struct slice content;
    struct slice state;
    size_t n_groups = (size_t)l->found->head.groups;
    *ret = (struct judged){0};
    enum belay_err err = next_part(l, BACKUP_GROUP, &content);
    if (err != BELAY_OK)
        return err;
    if (store_decode(content, (uint16_t)group, &ret->snap, ret->origins, &state) &&
        machine_snapshot_level(state) > LEVEL_NEWEST)
        return refuse(l->found, BELAY_ERR_NO_PROTO,
                      "shard %u follows level %" PRIu64 ", this program knows up to %d", group,
                      machine_snapshot_level(state), LEVEL_NEWEST);
    if (!store_judge(n_groups, (uint16_t)group, content, ret))
        return refuse(l->found, BELAY_ERR_CORRUPT, "the state of shard %u is not sound", group);
    return BELAY_OK;
}

static bool fits(const struct mail *from, const struct mail *to)
{
    return to->taken <= from->posted && from->waiting <= to->taken + 1;
}

static enum belay_err read_head(struct looking *l)
{
    struct slice content;
    enum belay_err err = next_part(l, BACKUP_HEAD, &content);
    if (err == BELAY_OK &&
        (!backup_head_decode(content, &l->found->head) || l->found->head.groups > LIMIT_GROUPS))
        err = refuse(l->found, BELAY_ERR_CORRUPT, "its head makes no sense");
    return err;
}

enum belay_err backup_look(struct slice file, struct backup_found *ret)
{
    struct looking l = {.found = ret, .left = file};
    struct judged *state = mem_zalloc(sizeof *state);
    struct slice end;
    *ret = (struct backup_found){0};
    enum belay_err err = read_head(&l);
    for (unsigned g = 0; err == BELAY_OK && g < ret->head.groups; g++) {
        err = read_state(&l, g, state);
        if (err == BELAY_OK)
            count(&l, g, state->state);
        machine_close(state->state);
    }
    free(state);
    if (err == BELAY_OK)
        err = next_part(&l, BACKUP_END, &end);
    if (err == BELAY_OK && (l.left.len > 0 || end.len > 0))
        err = refuse(ret, BELAY_ERR_CORRUPT, "something is behind its end");
    for (unsigned g = 1; err == BELAY_OK && g < ret->head.groups; g++)
        if (!fits(&l.out[g], &l.in[g]) || !fits(&l.in[g], &l.out[g]))
            err = refuse(ret, BELAY_ERR_CORRUPT, "shard %u does not fit to shard 0", g);
    return err;
}

/* --- a new directory --- */

static uint64_t skip_of(const struct backup_head *head, const struct restore_plan *plan)
{
    uint64_t age_s = plan->wall_ms > head->wall_ms ? (plan->wall_ms - head->wall_ms) / 1000 : 0;
    uint64_t most = MACHINE_NUMBER_MAX / 4 / RESTORE_SKIP_S; /* 68 years */
    return RESTORE_SKIP + (age_s < most ? age_s : most) * RESTORE_SKIP_S;
}

static enum belay_err restore_group(struct looking *l, unsigned group,
                                    const struct restore_plan *plan, struct create *c)
{
    struct judged *state = mem_zalloc(sizeof *state);
    uint64_t skip = skip_of(&l->found->head, plan);
    enum belay_err err = read_state(l, group, state);
    if (err == BELAY_OK && machine_number(state->state) > MACHINE_NUMBER_MAX - skip)
        err = BELAY_ERR_RANGE;
    if (err == BELAY_OK) {
        machine_restore(state->state, skip, plan->keeps);
        err = create_group(c, state);
    }
    machine_close(state->state);
    free(state);
    return err;
}

enum belay_err backup_restore(struct slice file, const struct restore_plan *plan,
                              struct disk *to)
{
    struct backup_found found = {0};
    struct looking l = {.found = &found, .left = file};
    struct create *c = NULL;
    BELAY_CHECK(plan->seed != 0);
    enum belay_err err = read_head(&l);
    struct create_plan made = {.to = to,
                               .cluster = plan->seed,
                               .n_groups = (size_t)found.head.groups,
                               .name = plan->name ? plan->name : "n1"};
    if (err == BELAY_OK)
        err = create_open(&made, &c);
    for (unsigned g = 0; err == BELAY_OK && g < found.head.groups; g++)
        err = restore_group(&l, g, plan, c);
    return create_close(c, err);
}
